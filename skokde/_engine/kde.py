"""The kernel density estimate: the sample model convolved with H (paper, Eq. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from skokde._engine._hellinger import factorize_all
from skokde._engine._log_density import decompose, log_densities
from skokde._engine._row_density import RowFamily, log_densities_of_row
from skokde._engine.mixture import SampleModel
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


def factorize(components: Components) -> Factors:
    """Factors of the covariances of the KDE's components."""
    return Factors(*factorize_all(components.covariances, components.means.shape[1]))


class KernelFamily(NamedTuple):
    """A sample model under several kernels of one shape: densities that share most of their work.

    Attributes
    ----------
    model : SampleModel
    kernels : Kernels
    components : Components
    decomposed : tuple of arrays
        See `decompose`.
    """

    model: SampleModel
    kernels: Kernels
    components: Components
    decomposed: tuple[np.ndarray, ...]

    @classmethod
    def single_gaussians(cls, kernels: Kernels, scales: Sequence[float]) -> Self:
        """Gaussians as wide as the whole sample model, times each scale: kernels at its mean."""
        frame = kernels.frame
        covariances = np.empty((0, *frame.structure.shape(len(frame.center))))
        model = SampleModel(np.ones(1), frame.center[None], covariances)
        widths = np.array(scales) * kernels.spread
        return cls.of(model, kernels._replace(widths=widths, shrinks=np.ones(len(scales))))

    @classmethod
    def of(cls, model: SampleModel, kernels: Kernels) -> Self:
        components = Components(
            model.counts / model.counts.sum(),
            kernels.centers(model.means),
            kernels.frame.covariances(model.covariances),
        )
        decomposed = decompose(*components[1:], kernels.widths, kernels.shrinks)
        return cls(model, kernels, components, decomposed)

    def with_later(self, counts: np.ndarray, means: np.ndarray, centers: np.ndarray) -> Self:
        """Of a model with more Diracs, too; they don't change the kernels."""
        model = self.model.with_diracs(counts, means)
        components = Components(
            model.counts / model.counts.sum(),
            np.concatenate([self.components.means, centers]),
            self.components.covariances,
        )
        return KernelFamily(model, self.kernels, components, self.decomposed)

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_widths) of rows in data units under each of the kernels, in nats."""
        frame = self.kernels.frame
        return frame.log_det + log_densities(frame.points(X), *self.arrays)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the compiled functions take after the points."""
        _, widths, shrinks, _ = self.kernels
        log_weights = log(self.components.weights)
        return log_weights, self.components.means, *self.decomposed, widths, shrinks

    def gaussians(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Weights, means and covariances of the Gaussians of each density, in data units."""
        frame, _, shrinks, _ = self.kernels
        counts, means, compounds = self.model
        away = means - frame.center
        far = self.kernels.far(frame.points(means))
        parts = []
        for kernel, shrink in zip(self.kernels.covariances_back(), shrinks, strict=True):
            shrunk = np.where(far, shrink / shrinks[0], shrink)
            covariances = np.tile(kernel, (len(means), *(1,) * kernel.ndim))
            covariances[: len(compounds)] += shrink**2 * compounds
            # Where nothing is shrunk not a bit of the means is lost.
            shrunk_means = means - (1.0 - shrunk)[:, None] * away
            parts.append((counts / counts.sum(), shrunk_means, covariances))
        return parts


def with_later(
    families: Sequence[KernelFamily], counts: np.ndarray, means: np.ndarray
) -> tuple[KernelFamily, ...]:
    """Families of models with more Diracs, too; those of one shape have their kernels in common."""
    all_kernels = {id(family.kernels): family.kernels for family in families}
    centers = {key: kernels.centers(means) for key, kernels in all_kernels.items()}
    return tuple(f.with_later(counts, means, centers[id(f.kernels)]) for f in families)


@dataclass(frozen=True, eq=False)
class KDE:
    """What is scored, made once after learning: densities, weighted.

    Attributes
    ----------
    families : tuple of KernelFamily
    weights : (n_experts,) array, sum one
        Of the densities of the families, one after the other.
    group_weights : (n_groups, n_experts) array, sums one
        The same within each group of experts.
    n_estimates : int
        The leading densities, which are kernel density estimates of all samples.
    """

    families: tuple[KernelFamily, ...]
    weights: np.ndarray
    group_weights: np.ndarray
    n_estimates: int

    def with_later(self, counts: np.ndarray, means: np.ndarray) -> KDE:
        """With more Diracs in the estimates, which make no difference to single Gaussians."""
        n = self.n_estimates // self.families[0].kernels.n_widths
        families = (*with_later(self.families[:n], counts, means), *self.families[n:])
        return replace(self, families=families)

    @property
    def n_groups(self) -> int:
        return len(self.group_weights)

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_experts) of rows in data units under each, in nats."""
        return np.concatenate([family.log_densities(X) for family in self.families], axis=1)

    def log_density(self, X: np.ndarray) -> np.ndarray:
        """Log-densities of rows in data units, in nats."""
        if len(self.weights) == 1:
            return self.families[0].log_densities(X)[:, 0]
        return np.logaddexp.reduce(self.log_densities(X) + np.log(self.weights), axis=1)

    def log_densities_of_groups(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_groups) of rows under the mixture of each group, in nats."""
        logs = self.log_densities(X)
        out = np.empty((len(X), self.n_groups))
        for group, weights in enumerate(self.group_weights):
            chosen = weights > 0.0
            out[:, group] = np.logaddexp.reduce(logs[:, chosen] + np.log(weights[chosen]), axis=1)
        return out

    def log_densities_of_groups_in_row(self, row: np.ndarray) -> np.ndarray:
        """The same (n_groups,) of a single row, but for rounding, in far less time."""
        logs = log_densities_of_row(row, self._row_families)
        return np.logaddexp.reduce(logs + self._log_group_weights, axis=1)

    @cached_property
    def _row_families(self) -> list[RowFamily]:
        frames = [family.kernels.frame for family in self.families]
        return [
            RowFamily(*frame.arrays, frame.log_det, *family.arrays)
            for frame, family in zip(frames, self.families, strict=True)
        ]

    @cached_property
    def _log_group_weights(self) -> np.ndarray:
        return log(self.group_weights)

    def bandwidth(self) -> np.ndarray:
        """Average covariance of the kernels of the estimates, in data units."""
        kernels = [family.kernels.covariances_back() for family in self.families]
        n = self.n_estimates
        return np.average(_in_one_shape(kernels)[:n], axis=0, weights=self.weights[:n])

    def gaussians(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, means and covariances of all Gaussians, in data units."""
        parts = [part for family in self.families for part in family.gaussians()]
        shares, means, covariances = zip(*parts, strict=True)
        weights = [weight * share for weight, share in zip(self.weights, shares, strict=True)]
        return np.concatenate(weights), np.concatenate(means), _in_one_shape(covariances)


def _in_one_shape(covariances: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of covariances together, diagonal ones as matrices if there are full ones."""
    if len({array.ndim for array in covariances}) > 1:
        covariances = [a if a.ndim == 3 else a[:, None] * np.eye(a.shape[1]) for a in covariances]
    return np.concatenate(covariances)
