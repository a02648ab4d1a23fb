"""Experts: the densities that a model is scored by, each combination of what is uncertain one.

Not in the paper. Whatever is uncertain of what is scored is tried in several ways at once: how far
the model is compressed, what shape its kernels have, and how wide they are. Each combination is an
expert, with a density of its own. How they are weighted is in `prequential`. Short memories, see
`recent`, are experts beside all of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from typing import NamedTuple, Self

import numpy as np

from skokde._engine import recent
from skokde._engine._expert_weights import mixture_weights
from skokde._engine.bandwidth import KernelFrame
from skokde._engine.covariance import CovarianceStructure, FullCovariance, LowRankCovariance
from skokde._engine.families import family_of
from skokde._engine.kde import KDE, KernelFamily, log, marginals
from skokde._engine.mixture import Mixture, Resolutions
from skokde._engine.outputs import log_conditionals
from skokde._engine.state import INITIAL_LIMIT, Settings, State

# Equal weights are worth this number of samples before any is predicted. So many of the lowest
# thresholds are too much alike for one each. The narrowest kernels have this share of what others
# have where there are wide ones by their side: what they gain soon tells where values repeat, and
# elsewhere they would tell samples that have been learned from all others.
PRIOR_COUNT = 1.0
N_ALIKE = 2
SHARE_OF_NARROWEST = 0.01
# Resolutions with less than this share of the weight of the best one of their shape are not scored.
NEGLIGIBLE = 0.1
# The number of the threshold whose resolution the widest kernels have, which see next to no
# difference between it and finer ones: as many components more would tell them nothing.
WIDEST_KERNELS_AT = 3
# Weights of the parts of a model that has nothing but the mean: of no components, and of that.
MEAN_ALONE = np.array([[0.0], [1.0]])
# The logarithm of the weight that the mean has in such a model, which is one.
LOG_OF_ONE = np.zeros(1)


def prior_counts(settings: Settings) -> np.ndarray:
    """Weights worth `PRIOR_COUNT` samples, equal ones but for these.

    The lowest thresholds have one together, and the narrowest of many kernels next to none.
    """
    prior, n_together = np.ones(settings.n_experts), min(N_ALIKE, 1 + settings.n_levels)
    estimates, _, _ = by_kind(prior, settings)
    estimates[:, :n_together] = 1.0 / n_together
    if settings.bandwidth.n_narrow:
        estimates[:, :, 0] *= SHARE_OF_NARROWEST
    return prior * (PRIOR_COUNT / prior.sum())


def empty_state(d: int, settings: Settings) -> State:
    """The model of a stream that has not begun."""
    mixture, partitions = Mixture.empty(d, settings.structure), one_each(0, settings)
    newest = recent.nothing_recent(d, settings) if settings.memories else None
    return State(mixture, INITIAL_LIMIT, 0, 0, partitions, prior_counts(settings), newest)


def one_each(n: int, settings: Settings) -> np.ndarray:
    """Partitions of components that are all apart at each of the higher thresholds."""
    return np.tile(np.arange(n), (settings.n_levels, 1))


def adapted(state: State, settings: Settings) -> State:
    """The state with the experts of the settings, if these were others before."""
    if len(state.partitions) != settings.n_levels:
        partitions = one_each(state.n_compressed, settings)
        state = state._replace(level=0, partitions=partitions)
    if len(state.expert_counts) != settings.n_experts:
        prior = prior_counts(settings)
        n = len(prior) - len(settings.bandwidth.shrinkages)
        if len(state.expert_counts) == n:  # of a class, whose density has not tried them
            prior = np.append(state.expert_counts, prior[n:])
        state = state._replace(expert_counts=prior)
    if not settings.memories:
        return state if state.recent is None else state._replace(recent=None)
    newest, prior = state.recent, recent.prior_counts(settings)
    if newest is not None and settings.fades and len(newest.credits) == len(prior) - 1:
        # It is of a class, or was stored before there was a model that fades.
        return state._replace(recent=newest._replace(credits=np.append(newest.credits, prior[-1:])))
    if newest is None or len(newest.credits) != len(prior):
        nothing = recent.nothing_recent(state.mixture.n_features, settings)
        state = state._replace(recent=nothing._replace(counts_before=state.mixture.counts))
    return state


@dataclass(frozen=True, eq=False)
class Grid:
    """The estimates that there are of each shape: resolutions, and widths at each of them.

    Attributes
    ----------
    resolutions : (1 + n_levels,) array of intp
        Which one each threshold has: where it merges nothing, that of the next lower one.
    first_levels : (n_resolutions,) array of intp
        The lowest threshold of each resolution.
    partitions : (n_resolutions, n_compressed) array of intp
        Numbers of clusters at each resolution; at the first all components are apart.
    widths : (n_resolutions, n_widths) array of bool
        See `widths_at`.
    """

    resolutions: np.ndarray
    first_levels: np.ndarray
    partitions: np.ndarray
    widths: np.ndarray

    @classmethod
    def of(cls, partitions: np.ndarray, settings: Settings) -> Self:
        """By the partitions (n_levels, n_compressed) at higher thresholds."""
        n = partitions.shape[1]
        n_clusters = [n, *(partitions.max(axis=1, initial=-1) + 1).tolist()]
        merges = (after < before for before, after in pairwise(n_clusters))
        resolutions = np.array([0, *accumulate(merges)])
        first_levels = np.searchsorted(resolutions, np.arange(resolutions[-1] + 1))
        partitions = np.concatenate([np.arange(n)[None], partitions])[first_levels]
        return cls(resolutions, first_levels, partitions, widths_at(resolutions, settings))

    @property
    def n_resolutions(self) -> int:
        return len(self.widths)

    @cached_property
    def at_one_resolution(self) -> np.ndarray:
        """Which widths (n_widths,) one resolution has only."""
        return np.count_nonzero(self.widths, axis=0) == 1

    @cached_property
    def each_alone(self) -> tuple[np.ndarray, np.ndarray]:
        """Each of the estimates by itself, and which of them each threshold and width has.

        Returns
        -------
        weights : (n_estimates, n_resolutions, n_widths) array
        numbers : (n_levels * n_widths,) array of intp
            A width that one resolution has alone stands for that of the others.
        """
        n, only = np.count_nonzero(self.widths), self.at_one_resolution
        weights = np.zeros((n, *self.widths.shape))
        weights[np.arange(n), *np.nonzero(self.widths)] = 1.0
        number = np.zeros(self.widths.shape, dtype=np.intp)
        number[self.widths] = np.arange(n)
        at = np.where(only, self.widths.argmax(axis=0), self.resolutions[:, None])
        return weights, number[at, np.arange(len(only))].ravel()

    def counts(self, expert_counts: np.ndarray, settings: Settings) -> np.ndarray:
        """Counts (n_shapes, n_resolutions, n_widths) of the estimates among the experts."""
        estimates, _, _ = by_kind(expert_counts, settings)
        return np.add.reduceat(estimates, self.first_levels, axis=1)

    def that_matter(self, counts: np.ndarray) -> np.ndarray:
        """Which resolutions of each shape are scored, (n_shapes, n_resolutions) of bool.

        One that alone has one of the widths is scored in any case.
        """
        totals = counts.sum(axis=2)
        negligible = totals < NEGLIGIBLE * totals.max(axis=1, keepdims=True)
        return ~negligible | (self.widths & self.at_one_resolution).any(axis=1)

    def where_scored(self, counts: np.ndarray) -> np.ndarray:
        """Counts of the estimates, those of widths that one resolution has all there."""
        totals = counts.sum(axis=1, keepdims=True)
        return np.where(self.at_one_resolution, self.widths * totals, counts)


class Experts(NamedTuple):
    """The densities of all experts, or of those that matter.

    Attributes
    ----------
    families : tuple of KernelFamily
        For each shape, at all resolutions that matter to any.
    shrunk : tuple of KernelFamily
        Single Gaussians whose correlations are shrunk.
    grid : Grid
    matter : (n_shapes, n_resolutions) array of bool
        Which of the resolutions matter to a shape.
    """

    families: tuple[KernelFamily, ...]
    shrunk: tuple[KernelFamily, ...]
    grid: Grid
    matter: np.ndarray

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        grid: Grid,
        settings: Settings,
        expert_counts: np.ndarray | None = None,
        kernel_frame: KernelFrame | None = None,
    ) -> Self:
        """Of a mixture that is not empty.

        Parameters
        ----------
        mixture : Mixture
        grid : Grid
        settings : Settings
        expert_counts : (n_experts,) array, default=None
            By which it is told which experts matter: estimates that weigh little beside the best
            of their shape don't. None: all do. Single Gaussians always do, for what no estimate
            has seen.
        kernel_frame : KernelFrame, default=None
            That of the mixture, where it is known.
        """
        rule, structure, target = settings.bandwidth, settings.structure, settings.shrinkage_target
        matter = np.ones((len(settings.shapes), grid.n_resolutions), dtype=bool)
        models = Resolutions.of_one(mixture.sample_model)
        if grid.n_resolutions > 1:
            if expert_counts is not None:
                matter = grid.that_matter(grid.counts(expert_counts, settings))
            needed = grid.partitions[matter.any(axis=0)]
            models = Resolutions.of(mixture.sample_model, needed)
        kernels = rule.kernels(mixture, structure, target, settings.shapes, kernel_frame)
        center = kernels[0].frame.center
        if rule.gaussian_scales:
            models = models.with_mean(center)
        logs, families = log(models.weights), []
        for shape, of_shape in zip(settings.shapes, kernels, strict=False):
            families.append(family_of(shape).of(models._replace(shape=shape), of_shape, logs))
        of_mean = Resolutions.of_one(mixture.sample_model.empty()).with_mean(center)
        singles = kernels[len(families) :]
        shrunk = [family_of(structure).of(of_mean, single, LOG_OF_ONE) for single in singles]
        return cls(tuple(families), tuple(shrunk), grid, matter)

    def log_densities(self, X: np.ndarray, settings: Settings) -> np.ndarray:
        """Log-densities (n, n_experts) of rows, in nats, where all experts are there."""
        alone, numbers = self.grid.each_alone
        n, n_gaussians = len(alone), len(settings.bandwidth.gaussian_scales)
        of_kernels = np.concatenate([alone, np.zeros((n_gaussians, *alone.shape[1:]))])
        weights = self.families[0].weights(of_kernels, np.eye(n + n_gaussians, n_gaussians, -n))
        logs = [family.log_mixtures(X, weights) for family in self.families]
        of_shrunk = [family.log_mixtures(X, MEAN_ALONE[None]) for family in self.shrunk]
        of_estimates, of_gaussians = [a[:, numbers] for a in logs], [a[:, n:] for a in logs]
        return np.concatenate(of_estimates + of_gaussians + of_shrunk, axis=1)

    def log_densities_with_later(
        self, log_densities: np.ndarray, X: np.ndarray, counts: np.ndarray, means: np.ndarray
    ) -> np.ndarray:
        """What `log_densities` of rows become with more Diracs, the same at all resolutions.

        Parameters
        ----------
        log_densities : (n, n_experts) array
        X : (n, d) array
        counts, means : (m,) and (m, d) arrays
            Of the Diracs.
        """
        parts, diracs = [], self.families[0].diracs(counts, means)
        for family in self.families:
            parts += [family.of_diracs(diracs).log_densities(X)] * len(self.grid.resolutions)
        later = np.concatenate(parts, axis=1)
        before, added = self.families[0].models.count, counts.sum()
        out = log_densities.copy()
        out[:, : later.shape[1]] = np.logaddexp(
            out[:, : later.shape[1]] + np.log(before / (before + added)),
            later + np.log(added / (before + added)),
        )
        return out

    def log_likelihoods(
        self,
        X: np.ndarray,
        n_unaided: int,
        counts: np.ndarray,
        means: np.ndarray,
        settings: Settings,
    ) -> np.ndarray:
        """By how much rows speak for each expert, (n, n_experts), in nats.

        Parameters
        ----------
        X : (n, d) array
        n_unaided : int
            The first rows; the others are predicted with the help of more Diracs.
        counts, means : (m,) and (m, d) arrays
            Of these.
        settings : Settings
            Where there are outputs, it is what is told of these by the other features.
        """
        logs = self.log_densities(X, settings)
        if len(counts) and n_unaided < len(X):
            logs[n_unaided:] = self.log_densities_with_later(
                logs[n_unaided:], X[n_unaided:], counts, means
            )
        if not settings.n_outputs:
            return logs
        features = np.arange(X.shape[1] - settings.n_outputs)
        of_features = self.marginal(features).log_likelihoods(
            X.take(features, axis=1),
            n_unaided,
            counts,
            means.take(features, axis=1),
            settings._replace(n_outputs=0),
        )
        return log_conditionals(logs, of_features)

    def marginal(self, features: np.ndarray) -> Self:
        """Of some of the features, by an array of their numbers."""
        families = marginals(self.families + self.shrunk, features)
        n = len(self.families)
        return self._replace(families=families[:n], shrunk=families[n:])

    def mixed(self, expert_counts: np.ndarray, settings: Settings) -> KDE:
        """What is scored of them, weighted."""
        if settings.n_experts == 1:  # nothing to weight
            return KDE(self.families, (np.ones((2, 1, 1)),), 1)
        counts = self.grid.counts(expert_counts, settings)
        _, of_gaussians, of_shrunk = by_kind(expert_counts, settings)
        scored = self.matter[:, :, None] & self.grid.widths
        held = np.where(scored, self.grid.where_scored(counts), 0.0)[:, self.matter.any(axis=0)]
        # All families are at the same resolutions.
        weights, shares = mixture_weights(
            held,
            of_gaussians,
            of_shrunk,
            self.families[0].models.there,
            settings.bandwidth.n_narrow,
        )
        families = *self.families, *self.shrunk
        return KDE(families, (*weights, *shares), len(self.families))


def widths_at(resolutions: np.ndarray, settings: Settings) -> np.ndarray:
    """Which widths (n_resolutions, n_widths) there are at each resolution.

    Where the resolution is found by prediction, the widest kernels have one resolution only.
    """
    rule = settings.bandwidth
    widths = np.ones((resolutions[-1] + 1, rule.n_widths), dtype=bool)
    if rule.n_narrow:
        only = resolutions[: WIDEST_KERNELS_AT + 1][-1]
        widths[:, -1] = np.arange(len(widths)) == only
    return widths


def by_kind(
    expert_counts: np.ndarray, settings: Settings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts of estimates, of single Gaussians, and of those that are shrunk.

    They are (n_shapes, 1 + n_levels, n_widths), (n_shapes, n_scales) and (n_shrinkages,) arrays.
    """
    shape = len(settings.shapes), 1 + settings.n_levels, settings.bandwidth.n_widths
    first, last = prod(shape), len(expert_counts) - len(settings.bandwidth.shrinkages)
    gaussians = expert_counts[first:last].reshape(len(settings.shapes), -1)
    return expert_counts[:first].reshape(shape), gaussians, expert_counts[last:]


def shape_name(shape: CovarianceStructure, structure: CovarianceStructure) -> str:
    """What a shape of kernels has of the covariances."""
    if shape is structure:
        return structure.name
    if isinstance(shape, LowRankCovariance):
        return f"{shape.rank} directions"
    return "half of the correlations" if isinstance(shape, FullCovariance) else "no correlations"
