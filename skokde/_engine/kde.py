"""The kernel density estimate: the sample model convolved with H (paper, Eq. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from skokde._engine._hellinger import factorize_all
from skokde._engine._log_density import BOX, decompose, log_densities
from skokde._engine._row_density import RowFamily, log_densities_of_row
from skokde._engine.mixture import SampleModel, flatten
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
        All of the shape.
    chosen : (n_widths,) array of bool
        Those that the densities have.
    components : Components
    decomposed : tuple of arrays
        See `decompose`.
    """

    model: SampleModel
    kernels: Kernels
    chosen: np.ndarray
    components: Components
    decomposed: tuple[np.ndarray, ...]

    @classmethod
    def single_gaussians(cls, kernels: Kernels, scales: Sequence[float]) -> Self:
        """Gaussians as wide as the whole sample model, times each scale: kernels at its mean."""
        frame, d = kernels.frame, len(kernels.frame.center)
        one, covariances = np.ones(1), np.empty((0, *frame.structure.shape(d)))
        widths = np.array(scales) * kernels.spread
        kernels = kernels._replace(widths=widths, shrinks=np.ones(len(scales)))
        model = SampleModel(one, frame.center[None], covariances)
        components = Components(one, np.zeros((1, d)), flatten(covariances))
        decomposed = decompose(*components[1:], widths, kernels.shrinks)
        return cls(model, kernels, np.ones(len(scales), dtype=bool), components, decomposed)

    @classmethod
    def of(cls, model: SampleModel, kernels: Kernels, chosen: np.ndarray | None = None) -> Self:
        """Under some of the kernels, chosen by an array of bool, or all."""
        if chosen is None:
            chosen = np.ones(kernels.n_widths, dtype=bool)
        components = Components(
            model.counts / model.counts.sum(),
            kernels.centers(model.means),
            kernels.frame.covariances(model.covariances),
        )
        widths, shrinks = kernels.widths[chosen], kernels.shrinks[chosen]
        decomposed = decompose(*components[1:], widths, shrinks)
        return cls(model, kernels, chosen, components, decomposed)

    @classmethod
    def of_all(
        cls, models: Sequence[SampleModel], kernels: Kernels, chosen: np.ndarray
    ) -> list[Self]:
        """Of several models together: of a small one a call takes longer than what it does."""
        if len(models) == 1:
            return [cls.of(models[0], kernels, chosen[0])]
        together = cls.of(SampleModel.joined(models), kernels)
        _, centers, covariances = together.components
        vectors, projections, precisions, starts, log_dets = together.decomposed
        families, first, later = [], 0, len(covariances)
        for model, widths in zip(models, chosen, strict=True):
            m = len(model.covariances)
            last, end = first + m, later + model.n_components - m
            means = np.concatenate([centers[first:last], centers[later:end]])
            own = slice(starts[first], starts[last])
            components = Components(
                model.counts / model.counts.sum(), means, covariances[first:last]
            )
            decomposed = (
                vectors[own],
                projections[own],
                precisions[own],
                starts[first : last + 1] - own.start,
                log_dets[first:last],
            )
            family = together._replace(model=model, components=components, decomposed=decomposed)
            families.append(family.of_widths(widths))
            first, later = last, end
        return families

    def of_widths(self, chosen: np.ndarray) -> Self:
        """Under some of the kernels, chosen by an array (n_chosen,) of bool."""
        vectors, projections, precisions, starts, log_dets = self.decomposed
        precisions, log_dets = (a.compress(chosen, axis=1) for a in (precisions, log_dets))
        widths = self.chosen.copy()
        widths[widths] = chosen
        decomposed = vectors, projections, precisions, starts, log_dets
        return self._replace(chosen=widths, decomposed=decomposed)

    def with_later(self, counts: np.ndarray, means: np.ndarray, centers: np.ndarray) -> Self:
        """Of a model with more Diracs, too; they don't change the kernels."""
        model = self.model.with_diracs(counts, means)
        components = Components(
            model.counts / model.counts.sum(),
            np.concatenate([self.components.means, centers]),
            self.components.covariances,
        )
        return self._replace(model=model, components=components)

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_chosen) of rows in data units under each, in nats."""
        return self.log_densities_of_points(self.kernels.frame.points(X))

    def log_densities_of_points(self, points: np.ndarray) -> np.ndarray:
        """The same of points of the kernels' frame."""
        return self.kernels.frame.log_det + log_densities(points, *self.arrays)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the compiled functions take after the points."""
        widths, shrinks = self.kernels.widths[self.chosen], self.kernels.shrinks[self.chosen]
        log_weights = log(self.components.weights)
        return log_weights, self.components.means, *self.decomposed, widths, shrinks

    def covariances_back(self) -> np.ndarray:
        """Covariances (n_chosen, d, d) or (n_chosen, d) of the kernels, in data units."""
        return self.kernels.covariances_back()[self.chosen]

    def gaussians(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Weights, means and covariances of the Gaussians of each density, in data units."""
        frame, _, shrinks, _ = self.kernels
        counts, means, compounds = self.model
        away = means - frame.center
        far = self.kernels.far(frame.points(means))
        parts = []
        for kernel, shrink in zip(self.covariances_back(), shrinks[self.chosen], strict=True):
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
        """With more Diracs in the estimates, which make no difference to single Gaussians."""
        return replace(self, estimates=with_later(self.estimates, counts, means))

    def of_groups(self, chosen: Sequence[bool]) -> KDE:
        """Of some of the groups alone, and the densities that are in them."""
        group_weights = self.group_weights[np.asarray(chosen)]
        needed = group_weights.any(axis=0)
        sizes = [np.count_nonzero(family.chosen) for family in self.families]
        parts = np.split(needed, np.cumsum(sizes)[:-1])
        n = len(self.estimates)
        estimates, others = (
            tuple(f.of_widths(p) for f, p in zip(families, of_each, strict=True) if p.any())
            for families, of_each in ((self.estimates, parts[:n]), (self.others, parts[n:]))
        )
        weights = self.weights[needed] / self.weights[needed].sum()
        return KDE(estimates, others, weights, group_weights[:, needed])

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
        return np.logaddexp.reduce(self.log_densities(X) + np.log(self.weights), axis=1)

    def log_densities_of_groups(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_groups) of rows under the mixture of each group, in nats."""
        logs = self.log_densities(X)
        out = np.empty((len(X), self.n_groups))
        for group, log_weights in enumerate(self._log_group_weights):
            chosen = log_weights > -np.inf
            out[:, group] = np.logaddexp.reduce(logs[:, chosen] + log_weights[chosen], axis=1)
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
        kernels = _in_one_shape([family.covariances_back() for family in self.estimates])
        return np.average(kernels, axis=0, weights=self.weights[: len(kernels)])

    def gaussians(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, means and covariances of all Gaussians, in data units."""
        parts = [part for family in self.families for part in family.gaussians()]
        shares, means, covariances = zip(*parts, strict=True)
        weights = [weight * share for weight, share in zip(self.weights, shares, strict=True)]
        return np.concatenate(weights), np.concatenate(means), _in_one_shape(covariances)


def in_boxes(rows: np.ndarray) -> np.ndarray:
    """An order of rows in which each `BOX` of them are close, for densities in less time.

    They are parted across the feature that tells them apart most, in units of its deviation.
    """
    if len(rows) <= BOX:
        return np.arange(len(rows))
    with np.errstate(over="ignore", invalid="ignore"):  # then the order is none, and does no harm
        scale = rows.std(axis=0)
        return _parted(rows / np.where(scale > 0.0, scale, 1.0), np.arange(len(rows)))


def _parted(points: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    if len(chosen) <= BOX:
        return chosen
    some = points[chosen]
    side = some[:, np.ptp(some, axis=0).argmax()]
    half = max(1, len(chosen) // (2 * BOX)) * BOX
    order = chosen[np.argpartition(side, half)]
    return np.concatenate([_parted(points, part) for part in (order[:half], order[half:])])


def _in_one_shape(covariances: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of covariances together, diagonal ones as matrices if there are full ones."""
    if len({array.ndim for array in covariances}) > 1:
        covariances = [a if a.ndim == 3 else a[:, None] * np.eye(a.shape[1]) for a in covariances]
    return np.concatenate(covariances)
