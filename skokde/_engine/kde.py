"""The kernel density estimate: the sample model convolved with H (paper, Eq. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import block_diag

from skokde._engine._hellinger import factorize_all
from skokde._engine._log_density import BOX, decompose, log_densities
from skokde._engine._row_density import RowFamily, log_densities_of_row
from skokde._engine.mixture import SampleModel, SampleModels
from skokde._engine.whitening import Frame

# In standard deviations of the whole: a component farther out than this is not shrunk.
FAR = 10.0


class Components(NamedTuple):
    """Components of a KDE in kernel coordinates, where each has the covariance S_i + I.

    Attributes
    ----------
    weights : (k,) array, sum one
    means : (k, d) array
    covariances : (m, d * d) or (m, d) array
        The S_i of the first m components, flattened; the others are Diracs.
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


class Factors(NamedTuple):
    """What densities of components need (paper, Section 3.2).

    Attributes
    ----------
    inv_roots, roots : (m, d * d) or (m, d) arrays
        Symmetric (S_i + I)^(-1/2) and (S_i + I)^(1/2).
    log_dets : (m,) array
        log |S_i + I|
    """

    inv_roots: np.ndarray
    roots: np.ndarray
    log_dets: np.ndarray


class Kernels(NamedTuple):
    """Kernels of one shape under which the same components are scored.

    Under a kernel of width b, with a the factor by which the estimate is shrunk towards the origin,
    a component is N(a mu_i, a^2 (S_i + b^2 I)).

    Attributes
    ----------
    frame : Frame
        Coordinates in which no width is below one.
    widths, shrinks : (n_widths,) arrays
        The b and the a.
    spread : float
        Standard deviation of the whole sample model, in all directions of the frame.
    """

    frame: Frame
    widths: np.ndarray
    shrinks: np.ndarray
    spread: float

    @classmethod
    def single(cls, frame: Frame) -> Self:
        """One kernel, with the identity as its covariance in the frame."""
        return cls(frame, np.ones(1), np.ones(1), np.inf)

    @property
    def n_widths(self) -> int:
        return len(self.widths)

    def far(self, points: np.ndarray) -> np.ndarray:
        """Which points of the frame are too far out to be shrunk."""
        return np.abs(points).max(axis=1, initial=0.0) > FAR * self.spread

    def centers(self, means: np.ndarray) -> np.ndarray:
        """Points of the frame that, once shrunk, are the centers of components.

        Shrinking takes those far out along, by a part of their distance from the mean: they are
        moved so that the narrowest kernel is where the sample is.
        """
        points = self.frame.points(means)
        far = self.far(points)
        return np.where(far[:, None], points / self.shrinks[0], points) if far.any() else points

    def covariances_back(self) -> np.ndarray:
        """Covariances (n_widths, d, d) or (n_widths, d) of the kernels, in data units."""
        return np.multiply.outer((self.shrinks * self.widths) ** 2, self.frame.identity_back())


def components_in(
    frame: Frame, counts: np.ndarray, means: np.ndarray, covariances: np.ndarray
) -> Components:
    """Components of a mixture in kernel coordinates."""
    return Components(counts / counts.sum(), frame.points(means), frame.covariances(covariances))


def log(weights: np.ndarray) -> np.ndarray:
    """Logarithms, -inf of zero and of what has underflowed."""
    with np.errstate(divide="ignore"):
        return np.log(weights)


def nothing_decomposed(d: int, n_widths: int) -> tuple[np.ndarray, ...]:
    """What `decompose` returns of no covariances, in less time than a call takes."""
    no_widths = np.empty((0, n_widths))
    return np.empty((0, d)), np.empty(0), no_widths, np.zeros(1, dtype=np.intp), no_widths


def log_of_mixture(logs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Log-densities (n,) of mixtures of densities whose logarithms (n, n_densities) are known.

    numpy.logaddexp.reduce does the same in several times the time.
    """
    top = logs.max(axis=1)
    below = logs - np.where(top > -np.inf, top, 0.0)[:, None]
    return top + log(np.exp(below) @ weights)


def factorize(components: Components) -> Factors:
    """Factors of the covariances of the KDE's components."""
    return Factors(*factorize_all(components.covariances, components.means.shape[1]))


@dataclass(frozen=True, eq=False)
class KernelFamily:
    """Sample models under kernels of one shape: densities that share most of their work.

    Attributes
    ----------
    models : SampleModels
    kernels : Kernels
        All of the shape.
    chosen : (n_models, n_widths) array of bool
        Under which of them each model is a density.
    log_weights : (k,) array
    centers : (k, d) array
        In the kernels' frame.
    decomposed : tuple of arrays
        See `decompose`.
    """

    models: SampleModels
    kernels: Kernels
    chosen: np.ndarray
    log_weights: np.ndarray
    centers: np.ndarray
    decomposed: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, models: SampleModels, kernels: Kernels, chosen: np.ndarray | None = None) -> Self:
        """Under the chosen kernels, or all."""
        if chosen is None:
            chosen = np.ones((models.n_models, kernels.n_widths), dtype=bool)
        centers = kernels.centers(models.means)
        if len(models.covariances):
            covariances = kernels.frame.covariances(models.covariances)
            decomposed = decompose(centers, covariances, kernels.widths, kernels.shrinks)
        else:
            decomposed = nothing_decomposed(centers.shape[1], kernels.n_widths)
        return cls(models, kernels, chosen, log(models.weights), centers, decomposed)

    @classmethod
    def single_gaussians(cls, kernels: Kernels, scales: Sequence[float]) -> Self:
        """Gaussians as wide as the whole sample model, times each scale: kernels at its mean."""
        frame, d = kernels.frame, len(kernels.frame.center)
        no_compounds = np.empty((0, *frame.structure.shape(d)))
        mean = SampleModels.of([SampleModel(np.ones(1), frame.center[None], no_compounds)])
        widths, shrinks = np.array(scales) * kernels.spread, np.ones(len(scales))
        wide = kernels._replace(widths=widths, shrinks=shrinks)
        return cls.of(mean, wide)

    @property
    def n_densities(self) -> int:
        return int(np.count_nonzero(self.chosen))

    def of_densities(self, needed: np.ndarray) -> Self:
        """Some of the densities, chosen by an array (n_densities,) of bool."""
        chosen = self.chosen.copy()
        chosen[chosen] = needed
        return replace(self, chosen=chosen)

    def of_diracs(self, counts: np.ndarray, means: np.ndarray) -> KernelFamily:
        """Diracs alone under the same kernels, all that any of the models is scored under."""
        diracs = SampleModels.of([SampleModel(counts, means, self.models.covariances[:0])])
        return self.of(diracs, self.kernels, self.chosen.any(axis=0, keepdims=True))

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_densities) of rows in data units under each, in nats."""
        return self.log_densities_of_points(self.kernels.frame.points(X))

    def log_densities_of_points(self, points: np.ndarray) -> np.ndarray:
        """The same of points of the kernels' frame."""
        return self.kernels.frame.log_det + log_densities(points, *self.arrays)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the compiled functions take after the points."""
        return (
            self.log_weights,
            self.centers,
            self.models.bounds,
            *self.decomposed,
            self.kernels.widths,
            self.kernels.shrinks,
            self.chosen.view(np.uint8),
        )

    @cached_property
    def in_row(self) -> RowFamily:
        """The same for the compiled function that scores a single row."""
        frame = self.kernels.frame
        return RowFamily(*frame.arrays, frame.log_det, *self.arrays)

    def covariances_back(self) -> np.ndarray:
        """Covariances (n_densities, d, d) or (n_densities, d) of the kernels, in data units."""
        return self.kernels.covariances_back()[np.nonzero(self.chosen)[1]]

    def gaussians(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Weights, means and covariances of the Gaussians of each density, in data units."""
        frame, _, shrinks, _ = self.kernels
        kernels, parts = self.kernels.covariances_back(), []
        for number, width in zip(*np.nonzero(self.chosen), strict=True):
            weights, means, compounds = self.models.model(number)
            away = means - frame.center
            far = self.kernels.far(frame.points(means))
            shrunk = np.where(far, shrinks[width] / shrinks[0], shrinks[width])
            covariances = np.tile(kernels[width], (len(means), *(1,) * (kernels.ndim - 1)))
            covariances[: len(compounds)] += shrinks[width] ** 2 * compounds
            # Where nothing is shrunk not a bit of the means is lost.
            parts.append((weights, means - (1.0 - shrunk)[:, None] * away, covariances))
        return parts


@dataclass(frozen=True, eq=False)
class KDE:
    """What is scored, made once after learning: densities, weighted.

    Attributes
    ----------
    estimates : tuple of KernelFamily
        Kernel density estimates of all samples.
    others : tuple of KernelFamily
        Single Gaussians and estimates of the newest samples.
    weights : (n_experts,) array, sum one
        Of the densities of the families, one after the other.
    group_weights : (n_groups, n_experts) array, sums one
        The same within each group of experts.
    """

    estimates: tuple[KernelFamily, ...]
    others: tuple[KernelFamily, ...]
    weights: np.ndarray
    group_weights: np.ndarray

    def with_later(self, counts: np.ndarray, means: np.ndarray) -> KDE:
        """With more Diracs in the estimates; they change neither kernels nor single Gaussians."""
        before, added = self.estimates[0].models.count, counts.sum()
        share = added / (before + added)
        all_weights = np.vstack([self.weights, self.group_weights])
        later = share * (all_weights[:, : self.n_estimates] @ self._widths_of_estimates)
        all_weights[:, : self.n_estimates] *= 1.0 - share
        weights = np.concatenate([all_weights, later], axis=1)
        families = (family.of_diracs(counts, means) for family in self.estimates)
        return KDE(self.estimates, (*self.others, *families), weights[0], weights[1:])

    @cached_property
    def _widths_of_estimates(self) -> np.ndarray:
        """Which estimates are under the same kernel (n_estimates, n_kernels), one for each."""
        parts = []
        for family in self.estimates:
            widths = np.nonzero(family.chosen)[1]
            parts.append(widths[:, None] == np.unique(widths))
        return block_diag(*parts).astype(float)

    def of_groups(self, chosen: Sequence[bool]) -> KDE:
        """Of some of the groups alone, and the densities that are in them."""
        group_weights = self.group_weights[np.asarray(chosen)]
        needed = group_weights.any(axis=0)
        parts = np.split(needed, np.cumsum([family.n_densities for family in self.families])[:-1])
        n = len(self.estimates)
        estimates, others = (
            tuple(f.of_densities(p) for f, p in zip(families, of_each, strict=True) if p.any())
            for families, of_each in ((self.estimates, parts[:n]), (self.others, parts[n:]))
        )
        weights = self.weights[needed] / self.weights[needed].sum()
        return KDE(estimates, others, weights, group_weights[:, needed])

    @property
    def n_estimates(self) -> int:
        """The first densities, the estimates'."""
        return sum(family.n_densities for family in self.estimates)

    @property
    def families(self) -> tuple[KernelFamily, ...]:
        return self.estimates + self.others

    @property
    def n_groups(self) -> int:
        return len(self.group_weights)

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_experts) of rows in data units under each, in nats."""
        frames = {id(family.kernels.frame): family.kernels.frame for family in self.families}
        points = {key: frame.points(X) for key, frame in frames.items()}
        logs = [f.log_densities_of_points(points[id(f.kernels.frame)]) for f in self.families]
        return np.concatenate(logs, axis=1)

    def log_density(self, X: np.ndarray) -> np.ndarray:
        """Log-densities of rows in data units, in nats."""
        if len(self.weights) == 1:
            return self.families[0].log_densities(X)[:, 0]
        return log_of_mixture(self.log_densities(X), self.weights)

    def log_densities_of_groups(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_groups) of rows under the mixture of each group, in nats."""
        logs = self.log_densities(X)
        out = np.empty((len(X), self.n_groups))
        for group, weights in enumerate(self.group_weights):
            chosen = np.flatnonzero(weights)
            out[:, group] = log_of_mixture(logs[:, chosen], weights[chosen])
        return out

    def log_densities_of_groups_in_row(self, row: np.ndarray) -> np.ndarray:
        """The same (n_groups,) of a single row, but for rounding, in far less time."""
        logs = log_densities_of_row(row, [family.in_row for family in self.families])
        return np.logaddexp.reduce(logs + log(self.group_weights), axis=1)

    def bandwidth(self) -> np.ndarray:
        """Average covariance of the kernels of the estimates, in data units."""
        kernels = in_one_shape([family.covariances_back() for family in self.estimates])
        return np.average(kernels, axis=0, weights=self.weights[: len(kernels)])

    def gaussians(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, means and covariances of all Gaussians, in data units."""
        parts = [part for family in self.families for part in family.gaussians()]
        shares, means, covariances = zip(*parts, strict=True)
        weights = [weight * share for weight, share in zip(self.weights, shares, strict=True)]
        return np.concatenate(weights), np.concatenate(means), in_one_shape(covariances)


def in_boxes(rows: np.ndarray) -> np.ndarray:
    """An order of rows in which each `BOX` of them are close, for densities in less time.

    They are parted across the feature that tells them apart most, in units of its deviation.
    """
    if len(rows) <= BOX:
        return np.arange(len(rows))
    with np.errstate(over="ignore", invalid="ignore"):  # then the order is none, and does no harm
        scale = rows.std(axis=0)
        return parted(rows / np.where(scale > 0.0, scale, 1.0), np.arange(len(rows)))


def parted(points: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    if len(chosen) <= BOX:
        return chosen
    some = points[chosen]
    side = some[:, np.ptp(some, axis=0).argmax()]
    half = max(1, len(chosen) // (2 * BOX)) * BOX
    order = chosen[np.argpartition(side, half)]
    return np.concatenate([parted(points, part) for part in (order[:half], order[half:])])


def in_one_shape(covariances: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of covariances together, diagonal ones as matrices if there are full ones."""
    if len({array.ndim for array in covariances}) > 1:
        covariances = [a if a.ndim == 3 else a[:, None] * np.eye(a.shape[1]) for a in covariances]
    return np.concatenate(covariances)
