"""Covariances of low rank plus a diagonal, and the linear algebra that never makes them dense.

A covariance of d features is a (1 + r, d) array: the variances of the features, and r directions,
rows whose outer products are the correlations that are held. What is left of a variance without its
part in the directions is the noise of that feature, which correlates with nothing: a component is a
factor analyser. The variances are exact whatever is held of the correlations.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from skokde._engine._lowrank import (
    ROUNDING,
    analyser_factors,
    analyser_log_densities,
    leading_directions,
)
from skokde._engine._lowrank import group_covariances as _group_covariances

# Where there are many rows, directions are found among so many more of them.
OVERSAMPLING = 8
# Of a variance: what noise may be lost beside a kernel's.
THIN = 1e-12


def noise(covariances: np.ndarray) -> np.ndarray:
    """Variances (..., d) without the part in the directions, not below zero."""
    directions = covariances[..., 1:, :]
    return np.maximum(covariances[..., 0, :] - np.square(directions).sum(axis=-2), 0.0)


def units(variances: np.ndarray) -> np.ndarray:
    """Standard deviations, and ones in place of zeros."""
    return np.sqrt(np.where(variances > 0.0, variances, 1.0))


def combinations_of(k: int, n: int) -> np.ndarray:
    """Combinations (k, n + OVERSAMPLING) of so many rows, see `leading_directions`."""
    return long_combinations(1 << (k - 1).bit_length(), n + OVERSAMPLING)[:k]


@cache
def long_combinations(k: int, n: int) -> np.ndarray:
    combinations = np.random.default_rng(0).standard_normal((k, n))
    combinations.flags.writeable = False  # it is the same object each time
    return combinations


def leading(rows: np.ndarray, n: int) -> np.ndarray:
    """The n leading directions of rows (k, d), the longest first, as long as what they explain."""
    return leading_directions(np.ascontiguousarray(rows), n, combinations_of(len(rows), n))


def with_directions(variances: np.ndarray, rows: np.ndarray, rank: int) -> np.ndarray:
    """The covariance (1 + rank, d) of these variances, from rows that add up to it but for noise.

    The leading directions are those of correlations, so that no feature's unit matters.
    """
    scale = units(variances)
    out = np.empty((1 + rank, len(variances)))
    out[0] = variances
    out[1:] = leading(rows / scale, rank) * scale
    return out


def largest_first(weights: np.ndarray) -> np.ndarray:
    """An order of what has weights, so that it is not their numbers, as of classes, that matter."""
    return np.argsort(-weights, kind="stable")


def weighted_sum(weights: np.ndarray, covariances: np.ndarray) -> np.ndarray:
    """Sum of covariances (n, 1 + r, d) times weights that are not negative."""
    height, d = covariances.shape[1:]
    order = largest_first(weights)
    rows = np.sqrt(weights[order])[:, None, None] * covariances[order, 1:]
    return with_directions(weights @ covariances[:, 0], rows.reshape(-1, d), height - 1)


def group_covariances(
    counts: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
    order: np.ndarray,
    starts: np.ndarray,
    moments: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> np.ndarray:
    """Covariances (n_groups, 1 + r, d) of groups of components.

    Parameters
    ----------
    counts, means, order, starts : arrays
        See `match_group_moments`.
    covariances : (m, 1 + r, d) array
        Of the first m components; the others are Diracs.
    moments : tuple of (n_groups,), (n_groups, d) and (n_groups, d) arrays
        Counts, means and variances of the groups.
    """
    m, rank = len(covariances), covariances.shape[1] - 1
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = order[np.lexsort((-counts[order], group))]
    n_rows = np.bincount(group, np.where(order < m, 1 + rank, 1)).max(initial=0.0)
    arrays = counts, means, covariances, order, starts, *moments
    return _group_covariances(*arrays, combinations_of(int(n_rows), rank))


def rows_of(
    shares: np.ndarray, away: np.ndarray, compounds: np.ndarray, covariances: np.ndarray
) -> np.ndarray:
    """Rows that add up to the covariance of components together, but for noise.

    Parameters
    ----------
    shares : (k,) array
        Of the components.
    away : (k, d) array
        Their means, from that of all.
    compounds : (k,) array of bool
        Those that have a covariance.
    covariances : (m, 1 + r, d) array
        Of these.
    """
    roots = np.sqrt(shares)
    directions = roots[compounds][:, None, None] * covariances[:, 1:]
    return np.concatenate([roots[:, None] * away, directions.reshape(-1, away.shape[1])])


def squared_correlations(covariance: np.ndarray) -> float:
    """Sum of the squares of the correlations that a covariance (1 + r, d) has."""
    directions = covariance[1:] / units(covariance[0])
    explained = np.square(directions).sum(axis=0)
    own = np.maximum(1.0 - explained, 0.0)
    return np.square(directions @ directions.T).sum() + (own * (own + 2.0 * explained)).sum()


def with_less_correlation(covariance: np.ndarray, share: float) -> np.ndarray:
    """A covariance (1 + r, d) of which a share of the correlations is left out."""
    return covariance * np.append(1.0, np.full(len(covariance) - 1, np.sqrt(1.0 - share)))[:, None]


def is_thin(covariances: np.ndarray) -> np.ndarray:
    """Which covariances (n, 1 + r, d) have no noise but for rounding, as those of few samples."""
    return (noise(covariances) <= THIN * covariances[:, 0]).all(axis=1)


def decompose(
    means: np.ndarray, directions: np.ndarray, widths: np.ndarray, shrinks: np.ndarray
) -> tuple[np.ndarray, ...]:
    """What the compiled `decompose` gives of thin covariances, from directions (m, r, d).

    Parameters
    ----------
    means : (k, d) array
        Of components of which the first m have a covariance.
    directions : (m, r, d) array
    widths, shrinks : (n_widths,) arrays
    """
    (m, _, d), n_widths = directions.shape, len(widths)
    values, vectors = np.linalg.eigh(directions @ directions.transpose(0, 2, 1))
    used = values > ROUNDING * values[:, -1:]
    owner, _ = np.nonzero(used)
    axes = (vectors.transpose(0, 2, 1) @ directions)[used] / np.sqrt(values[used])[:, None]
    narrow = (shrinks * widths) ** 2
    variances = shrinks**2 * values[used][:, None] + narrow
    log_dets = np.tile(d * np.log(narrow), (m, 1))
    np.add.at(log_dets, owner, np.log(variances / narrow))
    return (
        axes,
        np.einsum("nd,nd->n", axes, means[owner]),
        1.0 / variances - 1.0 / narrow,
        np.zeros((0, n_widths)),
        np.append(0, np.cumsum(np.count_nonzero(used, axis=1))),
        log_dets,
    )


def stretched(points: np.ndarray, factors: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Points (n, d) of which the parts along directions are longer by these factors.

    Parameters
    ----------
    points : (n, d) array
    factors : (r,) array
    directions : (r, d) array
        Orthonormal.
    """
    return points + (points @ directions.T * (factors - 1.0)) @ directions


class Whitener:
    """The linear map of coordinates in which a covariance of low rank becomes the identity.

    Standardised ones, by the noise, of which the part along some axes is made shorter.

    Parameters
    ----------
    noises : (d,) array
        Positive.
    directions : (r, d) array
    """

    def __init__(self, noises: np.ndarray, directions: np.ndarray) -> None:
        self.deviations = np.sqrt(noises)
        directions = directions / self.deviations
        eigenvalues, vectors = np.linalg.eigh(directions @ directions.T)
        some = eigenvalues > ROUNDING * max(1.0, eigenvalues.max(initial=0.0))
        eigenvalues = eigenvalues[some]
        # Orthonormal, and the roots of the standardised covariance's eigenvalues along them.
        self.axes = (vectors[:, some] / np.sqrt(eigenvalues)).T @ directions
        self.lengths = np.sqrt(1.0 + eigenvalues)
        self.log_det = -float(np.log(self.deviations).sum() + np.log(self.lengths).sum())

    def points(self, X: np.ndarray) -> np.ndarray:
        """Rows (n, d) in the new coordinates."""
        return stretched(X / self.deviations, 1.0 / self.lengths, self.axes)

    @property
    def squares(self) -> np.ndarray:
        """Square lengths (d,) of the points that unit vectors along the features become."""
        shorter = 1.0 - 1.0 / np.square(self.lengths)
        return (1.0 - shorter @ np.square(self.axes)) / np.square(self.deviations)

    def points_back(self, points: np.ndarray) -> np.ndarray:
        """Rows of points."""
        return self.deviations * stretched(points, self.lengths, self.axes)


class FactorMixture(NamedTuple):
    """Weighted factor analysers, see `Analysers`.

    Attributes
    ----------
    weights : (k,) array
    means, noises : (k, d) arrays
    directions : (k, r, d) array
    shared : (s, d) array
    """

    weights: np.ndarray
    means: np.ndarray
    noises: np.ndarray
    directions: np.ndarray
    shared: np.ndarray

    def marginal(self, features: np.ndarray) -> FactorMixture:
        """Of some of the features, by an array of their numbers."""
        return FactorMixture(self.weights, *(a.take(features, axis=-1) for a in self[1:]))

    def analysers(self) -> Analysers:
        return Analysers(*self[1:])


class Analysers:
    """Log-densities of factor analysers, by Woodbury's identity.

    One is N(mean, noise + shared^T shared + directions^T directions).

    Parameters
    ----------
    means, noises : (k, d) arrays
        Noises are positive.
    directions : (k, r, d) array
    shared : (s, d) array, default=None
        Directions that all have.
    """

    def __init__(
        self,
        means: np.ndarray,
        noises: np.ndarray,
        directions: np.ndarray,
        shared: np.ndarray | None = None,
    ) -> None:
        d = means.shape[1]
        if shared is None:
            shared = np.empty((0, d))
        self.means, self.precisions = means, 1.0 / noises
        # Of a row what the directions explain is the square of its products with these.
        self.projections, self._inverses, log_dets = analyser_factors(
            *map(np.ascontiguousarray, (self.precisions, directions, shared))
        )
        log_dets += np.log(noises).sum(axis=1)
        self.bases = -0.5 * (log_dets + d * np.log(2.0 * np.pi))

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (k, n) of rows (n, d); -inf where squares overflow."""
        arrays = self.means, self.precisions, self.projections, self.bases
        return analyser_log_densities(np.ascontiguousarray(X), *arrays)

    def regression(self, number: int, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What one of them tells of other features.

        Parameters
        ----------
        number : int
        directions : (s + r, b) array
            Of the other features, the shared ones first.

        Returns
        -------
        gains : (b, d) array
            How much the others follow the rows.
        covariance : (b, b) array
            What the factors leave of them: their noise is not in it.
        """
        left = self._inverses[number] @ directions
        return left.T @ self.projections[number], left.T @ left

    def log_conditionals(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-densities (n, k) of rows (n, d), and those of each feature given all others.

        The latter are an (n, k, d) array.
        """
        (k, d), n = self.means.shape, len(X)
        out = np.empty((n, k, d))
        for i, (mean, precision) in enumerate(zip(self.means, self.precisions, strict=True)):
            projections = self.projections[i]
            own = precision - np.square(projections).sum(axis=0)
            own = np.maximum(own, ROUNDING * precision)
            with np.errstate(over="ignore", invalid="ignore"):
                away = X - mean
                residuals = away * precision - (away @ projections.T) @ projections
                out[:, i] = 0.5 * (np.log(own / (2.0 * np.pi)) - np.square(residuals) / own)
        return self.log_densities(X).T, out
