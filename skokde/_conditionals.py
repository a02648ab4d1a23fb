"""Conditionals of what is scored, whatever holds its covariances."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from skokde._engine import outputs
from skokde._engine.families import LowRankFamily
from skokde._engine.kde import KDE, KernelFamily, log
from skokde._engine.lowrank import FactorMixture
from skokde.distribution import GaussianMixtureDistribution
from skokde.distribution._gaussians import Gaussians, pieces
from skokde.distribution.conditioning import Conditioner

# About so many numbers in the precision matrices that are made at a time, or those of one density.
MATRICES = 2**20


class KnownFactors:
    """What `Conditioner` needs of some features that are known, of factor analysers.

    Attributes
    ----------
    mixtures : sequence of FactorMixture
        Of these features.
    log_weights : (n_components,) array
    means : (n_components, n_known) array
    """

    def __init__(self, mixtures: Sequence[FactorMixture]) -> None:
        self.mixtures = mixtures
        self.analysers = [mixture.analysers() for mixture in mixtures]
        self.log_weights = log(np.concatenate([mixture.weights for mixture in mixtures]))
        self.means = np.concatenate([mixture.means for mixture in mixtures])

    @property
    def n_components(self) -> int:
        return len(self.means)

    def log_terms(self, points: np.ndarray) -> np.ndarray:
        """Logarithms (n, n_components) of the densities of the weighted components."""
        logs = [analysers.log_densities(points) for analysers in self.analysers]
        return np.concatenate(logs).T + self.log_weights

    def log_conditionals(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Gaussians.log_conditionals`."""
        of_mixtures = [analysers.log_conditionals(points) for analysers in self.analysers]
        terms, conditionals = (np.concatenate(a, axis=1) for a in zip(*of_mixtures, strict=True))
        return terms + self.log_weights, conditionals

    def centered(self) -> KnownFactors:
        """With zero for all means."""
        return KnownFactors([m._replace(means=np.zeros_like(m.means)) for m in self.mixtures])


@dataclass(frozen=True, eq=False)
class FactorConditioner:
    """The same as `Conditioner`, of factor analysers: no covariance of what is known is made.

    Attributes
    ----------
    mixtures : sequence of FactorMixture
    numbers, others : (n,) arrays of intp
        Features that are known, and those that are asked for.
    """

    mixtures: Sequence[FactorMixture]
    numbers: np.ndarray
    others: np.ndarray

    kind = GaussianMixtureDistribution
    names = None
    is_independent = False

    @property
    def n_components(self) -> int:
        return self.known.n_components

    @cached_property
    def known(self) -> KnownFactors:
        return KnownFactors([mixture.marginal(self.numbers) for mixture in self.mixtures])

    def arrays(self, some: np.ndarray, independent: bool) -> tuple[np.ndarray, ...]:
        """Known means, other means, gains and covariances of some components."""
        others = [mixture.marginal(self.others) for mixture in self.mixtures]
        a, b = len(self.numbers), len(self.others)
        means, covariances = np.empty((len(some), b)), np.empty((len(some), b, b))
        gains = np.empty((len(some), b, a))
        sizes = [len(mixture.weights) for mixture in others]
        stops = np.cumsum(sizes)
        owners = np.searchsorted(stops, some, side="right")
        numbers = some - (stops - sizes)[owners]
        for place, (owner, number) in enumerate(zip(owners, numbers, strict=True)):
            mixture = others[owner]
            means[place] = mixture.means[number]
            gains[place], explained = self.known.analysers[owner].regression(
                number, np.concatenate([mixture.shared, mixture.directions[number]])
            )
            covariances[place] = np.diag(mixture.noises[number]) + explained
        return self.known.means[some], means, gains, covariances


def conditioner_of(
    family: KernelFamily, used: np.ndarray, features: np.ndarray, others: np.ndarray, lasts: bool
) -> tuple[Conditioner | FactorConditioner, np.ndarray, float]:
    """Of the Gaussians of some densities of a family.

    Parameters
    ----------
    family : KernelFamily
    used : (2, n) array of intp
        The numbers of these densities' parts and widths.
    features, others : arrays of intp
        Features that are known, and those that are asked for.
    lasts : bool
        See `Conditioner`.

    Returns
    -------
    conditioner : Conditioner or FactorConditioner
    expert : (k,) array of intp
        Which of the densities each Gaussian belongs to.
    log_total : float
        What is to be added to the logarithms of the Gaussians' weights.
    """
    components, expert, log_total = joined(family, used)
    if isinstance(components, Gaussians):
        return Conditioner(components, features, others, lasts), expert, log_total
    return FactorConditioner(components, features, others), expert, log_total


def joined(
    family: KernelFamily, used: np.ndarray
) -> tuple[GaussianMixtureDistribution | list[FactorMixture], np.ndarray, float]:
    """The Gaussians of some densities of a family together; see `conditioner_of`.

    Those of low rank are one mixture for each density.
    """
    if isinstance(family, LowRankFamily):
        mixtures = [family.factors(part, width) for part, width in used.T]
        sizes = [len(mixture.weights) for mixture in mixtures]
        return mixtures, np.repeat(np.arange(len(sizes)), sizes), 0.0
    gaussians = [family.gaussians_of(part, width) for part, width in used.T]
    weights, means, covariances = (
        np.concatenate(arrays) for arrays in zip(*gaussians, strict=True)
    )
    total = weights.sum()
    mixture = GaussianMixtureDistribution(weights / total, means, covariances)
    expert = np.repeat(np.arange(len(gaussians)), [part.n_components for part in gaussians])
    return mixture, expert, float(np.log(total))


class LeaveOneOut(NamedTuple):
    """Densities of rows with and without each feature, whose ratio is wanted, of some components.

    Attributes
    ----------
    log_top : (n, d) array
        What is taken off both logarithms: far out it is so large that nothing else would be left.
    log_with, log_without : (n, d) arrays
    """

    log_top: np.ndarray
    log_with: np.ndarray
    log_without: np.ndarray

    @classmethod
    def of(cls, log_terms: np.ndarray, log_conditionals: np.ndarray) -> LeaveOneOut:
        """Of components, see `Gaussians.log_conditionals`."""
        with np.errstate(invalid="ignore"):
            logs = log_terms[:, :, None] - log_conditionals
        # Not a number where both have overflowed.
        logs = np.where(log_terms[:, :, None] > -np.inf, logs, -np.inf)
        top = logs.max(axis=1)
        logs -= finite(top)[:, None]
        return cls(top, logsumexp(logs + log_conditionals, axis=1), logsumexp(logs, axis=1))

    def plus(self, other: LeaveOneOut) -> LeaveOneOut:
        """Of the components of both."""
        top = np.maximum(self.log_top, other.log_top)
        own, others = (
            [logs + (of.log_top - finite(top)) for logs in of[1:]] for of in (self, other)
        )
        return LeaveOneOut(top, *map(np.logaddexp, own, others))

    def log_conditionals(self) -> np.ndarray:
        """Log-densities (n, d) of each feature given all others; -inf where none is known."""
        return outputs.log_conditionals(self.log_with, self.log_without)


def finite(logs: np.ndarray) -> np.ndarray:
    """Zero in place of -inf, to be taken off."""
    return np.where(logs > -np.inf, logs, 0.0)


def log_conditionals(
    kde: KDE, X: np.ndarray, in_threads: Callable[[Callable, Sequence], list]
) -> np.ndarray:
    """Log-densities (n, d) of each feature of rows, given all others.

    Parameters
    ----------
    kde : KDE
    X : (n, d) array
    in_threads : callable
        What `map` does, with a list.
    """

    def of_batch(batch: tuple[KernelFamily, np.ndarray, np.ndarray]) -> LeaveOneOut:
        family, used, shares = batch
        components, expert, log_total = joined(family, used)
        if not isinstance(components, Gaussians):
            components = KnownFactors(components)
        log_factors, found = np.log(shares)[expert] + log_total, []
        for rows in pieces(len(X), components.means.size):
            terms, conditionals = components.log_conditionals(X[rows])
            found.append(LeaveOneOut.of(terms + log_factors, conditionals))
        return LeaveOneOut(*map(np.concatenate, zip(*found, strict=True)))

    of_all = in_threads(of_batch, list(batches(kde, X.shape[1])))
    return reduce(LeaveOneOut.plus, of_all).log_conditionals()


def batches(kde: KDE, d: int) -> Iterator[tuple[KernelFamily, np.ndarray, np.ndarray]]:
    """Some densities of a family at a time: many of few components take less time together.

    Yields
    ------
    family : KernelFamily
    used : (2, n) array of intp
        The numbers of their parts and widths.
    shares : (n,) array
        What they count.
    """
    for family, (weights, *_) in zip(kde.families, kde.weights, strict=True):
        used = np.argwhere(weights).T
        sizes = d * d * np.bincount(family.models.parts, minlength=len(weights))[used[0]]
        ends = np.flatnonzero(np.diff(np.cumsum(sizes) // MATRICES)) + 1
        for some in np.split(used, ends, axis=1):
            if some.size:
                yield family, some, weights[tuple(some)]
