"""Covariance structures: what one has to provide, and nothing else knows of it.

Models hold covariances in one of three layouts: full, diagonal, or of low rank. Variances are exact
in all of them. A structure tells what of them is scored, and how they behave under a linear map of
the coordinates, which is one of the layout's own matrices: a symmetric (d, d) matrix for full
covariances, a (d,) vector of factors for diagonal ones. The compiled functions know these two. A
model of the third is compressed by the variances of its components, in the coordinates, and with
the kernels, that a diagonal one would have: see `CovarianceStructure.of_kernels`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import prod
from numbers import Integral
from typing import NamedTuple, Self

import numpy as np

from skokde._engine import lowrank
from skokde._engine._goldberger import principal_axes, widest_gap
from skokde._engine._moments import match_group_moments
from skokde._engine._whitening import covariances_in, eigen, roots

Rng = np.random.Generator | np.random.RandomState

# Section 3.1 of the paper: normalised eigenvalues below the first are replaced by the second
# times the average of the others.
EIGENVALUE_FLOOR = 1e-9
EIGENVALUE_SHARE = 0.01

# Of a unit eigenvector: what is less is rounding.
SMALLEST_PART = 1e-3


class Spectrum(NamedTuple):
    """Eigenvalues and eigenvectors of a correlation matrix.

    Attributes
    ----------
    values : (d,) array
        In ascending order.
    vectors : (d, d) array
        In rows. None: the axes themselves, whose eigenvalues are all one.
    """

    values: np.ndarray
    vectors: np.ndarray | None

    @classmethod
    def of_independent(cls, d: int) -> Self:
        """Of features that do not correlate."""
        return cls(np.ones(d), None)

    @property
    def squared_correlations(self) -> float:
        """Sum of the squares of all correlations, those of features with themselves being one."""
        return float(np.square(self.values).sum())

    @property
    def is_flat(self) -> bool:
        """Whether there is no spread in some direction, but for rounding."""
        return bool(self.values[0] < EIGENVALUE_FLOOR * self.values[-1])

    def flat_features(self) -> np.ndarray:
        """Features (d,) that have a part in the directions without spread."""
        if self.vectors is None:
            return np.zeros(len(self.values), dtype=bool)
        flat = self.vectors[self.values < EIGENVALUE_FLOOR * self.values[-1]]
        return (np.abs(flat) > SMALLEST_PART).any(axis=0)

    def with_correlations(self, share: float) -> Self:
        """Of the matrix with no more than a share of the correlations: its vectors are the same."""
        if share == 1.0 or self.vectors is None:
            return self
        return self._replace(values=share * self.values + (1.0 - share))


class CovarianceStructure(ABC):
    """What a structure of covariances has to provide.

    One of your own is a subclass of :class:`FullCovariance` or :class:`DiagonalCovariance` with a
    name and a method :meth:`shaped`; the others are right for each structure of the same layout.
    Arrays of covariances are (..., d, d), (..., d) or (..., 1 + r, d).

    Attributes
    ----------
    name : str
        What tells it from others. It has to say with which parameters it was made.
    layout : {"full", "diag", "lowrank"}
        How models hold covariances: as (d, d), (d,) or (1 + r, d) arrays. Models of the same layout
        hold the same, whatever is scored.
    is_compiled : bool
        Whether the compiled functions take covariances of the layout.
    shrinkages : tuple of float
        Parts of the correlations' noise that are taken off the single Gaussian of all samples in
        others, which are tried beside it where prediction says which is right.
    patience : int
        How many times as many samples as else may come before the next compression, at most:
        beside components that hold much, they cost next to nothing.
    common_units : bool
        Whether features may be measured in the same units. Then those that vary by little may count
        for little in distances between samples, if prediction says so.
    """

    name: str
    layout: str
    is_compiled = True
    shrinkages: tuple[float, ...] = ()
    patience = 1
    common_units = False

    def __repr__(self) -> str:
        return f"<covariance structure {self.name!r}>"

    def shaped(self, covariances: np.ndarray) -> np.ndarray:
        """What the structure has of covariances as they are held.

        It is asked for the covariances of components and of all samples, whose shape kernels have.

        Parameters
        ----------
        covariances : (..., d, d) or (..., d) array
            Positive semi-definite, some zero. They must not be written to.

        Returns
        -------
        array of the same shape
            Positive semi-definite, and of the same trace, if it is to have the same spread.
        """
        return covariances

    def scored(self, covariances: np.ndarray) -> np.ndarray:
        """What `shaped` gives, as the compiled functions need it.

        Raises
        ------
        ValueError
            If it has another shape, or values that are not finite where those given are.
        """
        out = np.ascontiguousarray(self.shaped(covariances), dtype=np.float64)
        if out is covariances:
            return out
        finite = np.isfinite(out).all() or not np.isfinite(covariances).all()
        if out.shape != covariances.shape or not finite:
            raise ValueError(
                f"{type(self).__name__}.shaped must return finite numbers of the shape that it was "
                f"given, {covariances.shape}; it returned {out!r}."
            )
        return out

    @property
    def of_kernels(self) -> CovarianceStructure:
        """The structure of kernels, and of all that decides how a model is compressed."""
        return self

    def seen_by_kernels(self, covariances: np.ndarray) -> np.ndarray:
        """What that structure has of covariances as they are held."""
        return covariances

    @property
    def shapes(self) -> tuple[CovarianceStructure, ...]:
        """The shapes of kernels and components that are tried where nothing says which is right."""
        return SHAPES.get(self.name, (self,))

    @abstractmethod
    def shape(self, d: int) -> tuple[int, ...]:
        """Shape of a covariance of d features."""

    def of_features(self, d: int) -> CovarianceStructure:
        """The structure that stands for it where there are so many features."""
        return self

    def holds(self, shape: tuple[int, ...], d: int) -> bool:
        """Whether covariances of d features have that shape in some structure of the layout."""
        return shape == self.shape(d)

    @abstractmethod
    def variances(self, covariances: np.ndarray) -> np.ndarray:
        """Variances (..., d) of the features."""

    @abstractmethod
    def marginal(self, covariances: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Covariances of some of the features, by an array of their numbers."""

    @abstractmethod
    def rescale(self, covariances: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Covariances after each coordinate is multiplied by its factor."""

    def squared(self, correlations: np.ndarray) -> np.ndarray:
        """Squares of correlations."""
        return correlations**2

    @abstractmethod
    def group_moments(
        self,
        counts: np.ndarray,
        means: np.ndarray,
        covariances: np.ndarray,
        order: np.ndarray,
        starts: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts, means and covariances of groups of components, see `match_group_moments`.

        Those of the first m components are given, an (m, ...) array; the others are Diracs.
        """

    @abstractmethod
    def weighted_sum(self, weights: np.ndarray, covariances: np.ndarray) -> np.ndarray:
        """Sum of covariances (n, ...) times weights (n,), none negative."""

    @abstractmethod
    def shrunk(self, covariance: np.ndarray, share: float, target: np.ndarray) -> np.ndarray:
        """A covariance of which a share is replaced by that of a target."""

    @abstractmethod
    def squared_correlations(self, covariance: np.ndarray) -> float:
        """Sum of the squares of all correlations, those of features with themselves being one."""

    @abstractmethod
    def with_less_correlation(self, covariance: np.ndarray, share: float) -> np.ndarray:
        """A covariance of which a share of the correlations is left out."""

    def has_flat_direction(self, covariance: np.ndarray) -> bool:
        """Whether features that have a spread have none in some direction, but for rounding."""
        return False

    @abstractmethod
    def halves(
        self, covariances: np.ndarray, matrix: np.ndarray, spread: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Principal axes of covariances, and what is left of these without a quarter of them.

        Parameters
        ----------
        covariances : (n, ...) array
        matrix : (d, d) or (d,) array
        spread : (d,) array
            Of the frame in which the axes are the principal ones.

        Returns
        -------
        axes : (n, d) array
            As long as the roots of the leading eigenvalues.
        covariances : array of the same shape
        """

    @abstractmethod
    def draws(self, covariances: np.ndarray, chosen: np.ndarray, rng: Rng) -> np.ndarray:
        """Vectors (n, d) from normal distributions with mean zero.

        Parameters
        ----------
        covariances : (k, ...) array
        chosen : (n,) array of intp
            The number of each vector's covariance.
        rng : Generator or RandomState
        """


class CompiledStructure(CovarianceStructure):
    """A structure of one of the layouts that compiled functions take, and that kernels can have."""

    def group_moments(
        self,
        counts: np.ndarray,
        means: np.ndarray,
        covariances: np.ndarray,
        order: np.ndarray,
        starts: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        shape = covariances.shape[1:]
        flat = flatten(covariances)
        *moments, flat = match_group_moments(counts, means, flat, order, starts)
        return *moments, flat.reshape(-1, *shape)

    def weighted_sum(self, weights: np.ndarray, covariances: np.ndarray) -> np.ndarray:
        return (weights @ flatten(covariances)).reshape(covariances.shape[1:])

    def shrunk(self, covariance: np.ndarray, share: float, target: np.ndarray) -> np.ndarray:
        return (1.0 - share) * covariance + share * target

    def halves(
        self, covariances: np.ndarray, matrix: np.ndarray, spread: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        # The axis is S w / sqrt(w^T S w), with w the eigenvector as a functional: so each feature
        # stays within its spread and the halves positive definite, however the frame rounds.
        d = len(spread)
        flat = flatten(np.ascontiguousarray(covariances))
        in_frame = covariances_in(flat, np.zeros(d), spread, matrix.ravel())
        w = unit_size(principal_axes(in_frame, d))
        spreads = np.sqrt(self.variances(covariances))
        units = positive(spreads)
        w = unit_size(self.map_vectors(w, matrix) * (units / spread))
        axes = self.times(self.rescale(covariances, 1.0 / units), w)
        axes /= np.sqrt(positive((w * axes).sum(axis=1, keepdims=True)))
        axes = spreads * np.clip(axes, -1.0, 1.0)
        return axes, covariances - 0.25 * self.outer(axes)

    def draws(self, covariances: np.ndarray, chosen: np.ndarray, rng: Rng) -> np.ndarray:
        deviations = np.sqrt(self.variances(covariances))
        out = rng.standard_normal((len(chosen), deviations.shape[1]))
        for number, rows in rows_of(chosen):
            # In units of these: what has no spread stays without, to the last bit.
            units = 1.0 / positive(deviations[number])
            scaled = self.rescale(covariances[number], units)
            root, _, _ = self.roots(self.spectrum(scaled))
            out[rows] = deviations[number] * self.map_vectors(out[rows], root)
        return out

    @abstractmethod
    def times(self, covariances: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Each covariance times a vector."""

    @abstractmethod
    def map_vectors(self, vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """Vectors (..., d) times a matrix of the layout."""

    @abstractmethod
    def outer(self, vectors: np.ndarray) -> np.ndarray:
        """Products of vectors with themselves, as far as the layout has them."""

    @abstractmethod
    def square(self, matrix: np.ndarray) -> np.ndarray:
        """The covariance that the inverse of the map ``matrix^-1`` gives the identity."""

    @abstractmethod
    def spectrum(self, correlation: np.ndarray) -> Spectrum:
        """That of a correlation matrix."""

    @abstractmethod
    def scored_spectrum(self, spectrum: Spectrum) -> Spectrum:
        """That of what `scored` gives of a correlation matrix."""

    @abstractmethod
    def roots(self, spectrum: Spectrum) -> tuple[np.ndarray, np.ndarray, float]:
        """Symmetric root and inverse root of an eigenvalue-corrected correlation matrix.

        Returns
        -------
        root, inv_root : (d, d) or (d,) arrays
        log_det : float
            Log-determinant of the corrected matrix.
        """

    @abstractmethod
    def first_cut(
        self, correlation: np.ndarray, counts: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        """The axis (d,) to cut all components across first, in whitened coordinates.

        Parameters
        ----------
        correlation : (d, d) or (d,) array
            What was whitened.
        counts : (k,) array
        points : (k, d) array
            The components' means.
        """

    @abstractmethod
    def to_matrix(self, variances: np.ndarray) -> np.ndarray:
        """The covariance with these variances and no correlation."""


class FullCovariance(CompiledStructure):
    """Full covariances, (d, d) each.

    Parameters
    ----------
    correlations : float, default=1.0
        The share of them that is scored.
    """

    name = "full"
    layout = "full"
    shrinkages = (1.0, 0.3)

    def __init__(self, correlations: float = 1.0) -> None:
        self.correlations = correlations

    def shaped(self, covariances: np.ndarray) -> np.ndarray:
        if self.correlations == 1.0:
            return covariances
        return self.with_less_correlation(covariances, 1.0 - self.correlations)

    def squared_correlations(self, covariance: np.ndarray) -> float:
        return np.square(self._correlations(covariance)).sum()

    def has_flat_direction(self, covariance: np.ndarray) -> bool:
        return self.spectrum(self._correlations(covariance)).is_flat

    def _correlations(self, covariance: np.ndarray) -> np.ndarray:
        units = 1.0 / np.sqrt(positive(self.variances(covariance)))
        correlations = self.rescale(covariance, units)
        np.fill_diagonal(correlations, 1.0)
        return correlations

    def with_less_correlation(self, covariance: np.ndarray, share: float) -> np.ndarray:
        return covariance * (1.0 - share + share * np.eye(covariance.shape[-1]))

    def shape(self, d: int) -> tuple[int, ...]:
        return (d, d)

    def variances(self, covariances: np.ndarray) -> np.ndarray:
        return covariances.diagonal(axis1=-2, axis2=-1)

    def marginal(self, covariances: np.ndarray, features: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(covariances[..., features[:, None], features])

    def rescale(self, covariances: np.ndarray, factors: np.ndarray) -> np.ndarray:
        return covariances * factors[..., :, None] * factors[..., None, :]

    def times(self, covariances: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return (covariances @ vectors[..., None])[..., 0]

    def map_vectors(self, vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        return vectors @ matrix

    def outer(self, vectors: np.ndarray) -> np.ndarray:
        return vectors[..., :, None] * vectors[..., None, :]

    def square(self, matrix: np.ndarray) -> np.ndarray:
        return matrix @ matrix

    def spectrum(self, correlation: np.ndarray) -> Spectrum:
        return Spectrum(*eigen(correlation))

    def scored_spectrum(self, spectrum: Spectrum) -> Spectrum:
        return spectrum.with_correlations(self.correlations)

    def roots(self, spectrum: Spectrum) -> tuple[np.ndarray, np.ndarray, float]:
        return roots(*spectrum, EIGENVALUE_FLOOR, EIGENVALUE_SHARE)

    def first_cut(
        self, correlation: np.ndarray, counts: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        return principal_axes(correlation.reshape(1, -1), len(correlation))[0]

    def to_matrix(self, variances: np.ndarray) -> np.ndarray:
        return np.diag(variances)


class DiagonalCovariance(CompiledStructure):
    """Diagonal covariances, (d,) each (paper, Section 4)."""

    name = "diag"
    layout = "diag"

    def shape(self, d: int) -> tuple[int, ...]:
        return (d,)

    def squared_correlations(self, covariance: np.ndarray) -> float:
        return float(len(covariance))

    def with_less_correlation(self, covariance: np.ndarray, share: float) -> np.ndarray:
        return covariance

    def variances(self, covariances: np.ndarray) -> np.ndarray:
        return covariances

    def marginal(self, covariances: np.ndarray, features: np.ndarray) -> np.ndarray:
        return covariances.take(features, axis=-1)

    def rescale(self, covariances: np.ndarray, factors: np.ndarray) -> np.ndarray:
        return covariances * factors * factors

    def times(self, covariances: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return covariances * vectors

    def map_vectors(self, vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        return vectors * matrix

    def outer(self, vectors: np.ndarray) -> np.ndarray:
        return vectors * vectors

    def square(self, matrix: np.ndarray) -> np.ndarray:
        return matrix * matrix

    def spectrum(self, correlation: np.ndarray) -> Spectrum:
        return Spectrum.of_independent(len(correlation))

    def scored_spectrum(self, spectrum: Spectrum) -> Spectrum:
        return Spectrum.of_independent(len(spectrum.values))

    def roots(self, spectrum: Spectrum) -> tuple[np.ndarray, np.ndarray, float]:
        # Standardised variances are one, all of them.
        ones = spectrum.values
        return ones, ones, 0.0

    def first_cut(
        self, correlation: np.ndarray, counts: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        # All variances are one: the feature whose halves are the farthest apart.
        weights = counts / counts.sum()
        return widest_gap(weights, points, weights @ points)

    def to_matrix(self, variances: np.ndarray) -> np.ndarray:
        return variances


class DiagonalOfFull(DiagonalCovariance):
    """The diagonal of full covariances, as a shape of kernels beside theirs."""

    def scored(self, covariances: np.ndarray) -> np.ndarray:
        return np.diagonal(covariances, axis1=-2, axis2=-1).copy()


class SphericalCovariance(DiagonalCovariance):
    """The same variance in all features, in the unit that they have in common, with no correlation.

    Each component, and all samples, have the mean of their variances.
    """

    name = "spherical"

    def shaped(self, covariances: np.ndarray) -> np.ndarray:
        mean = covariances.mean(axis=-1, keepdims=True)
        return np.broadcast_to(mean, covariances.shape)


class LowRankCovariance(CovarianceStructure):
    """Covariances of low rank and a diagonal: a mixture of factor analysers.

    A covariance is a (1 + r, d) array: variances, and r directions whose products with themselves
    are the correlations. Kernels have as many where their width is predicted, else none.

    Parameters
    ----------
    rank : int or "predictive", default=16
        The number of directions that each component holds. Up to twice as many features as that
        covariances are full ones, which take no longer. "predictive": 16 are held; where threshold
        and bandwidth are predicted, the longest 8 and 2 of them are tried, too, and weighted by how
        well they predict the samples to come. It takes up to twice the time.

    Raises
    ------
    ValueError
        If the rank is neither a positive integer nor "predictive".
    """

    layout = "lowrank"
    is_compiled = False
    shrinkages = (0.3, 0.05)
    patience = 16
    # So many features are pixels, bands of a spectrum, or coordinates of an embedding mostly.
    common_units = True
    is_predictive = False

    def __init__(self, rank: int | str = 16) -> None:
        if isinstance(rank, str) and rank == "predictive":
            self.is_predictive, rank = True, DEFAULT_RANK
        elif not isinstance(rank, Integral) or isinstance(rank, bool) or rank < 1:
            raise ValueError(f"rank must be a positive integer or 'predictive', got {rank!r}.")
        self.rank = int(rank)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank={'predictive' if self.is_predictive else self.rank!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.name == self.name

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    @property
    def name(self) -> str:
        if self.is_predictive:
            return "lowrank(predictive)"
        return "lowrank" if self.rank == DEFAULT_RANK else f"lowrank({self.rank})"

    @property
    def of_kernels(self) -> CovarianceStructure:
        return STRUCTURES["diag"]

    def seen_by_kernels(self, covariances: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(covariances[..., 0, :])

    @property
    def shapes(self) -> tuple[CovarianceStructure, ...]:
        fewer = [LongestDirections(n) for n in FEWER_DIRECTIONS] if self.is_predictive else []
        return (self, *fewer, DIAGONAL_OF_LOW_RANK)

    def shape(self, d: int) -> tuple[int, ...]:
        return (1 + self.rank, d)

    def of_features(self, d: int) -> CovarianceStructure:
        return self if d > FEATURES_PER_DIRECTION * self.rank else STRUCTURES["full"]

    def holds(self, shape: tuple[int, ...], d: int) -> bool:
        return len(shape) == 2 and shape[1] == d and 1 < shape[0] < d

    def group_moments(
        self,
        counts: np.ndarray,
        means: np.ndarray,
        covariances: np.ndarray,
        order: np.ndarray,
        starts: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        variances = np.ascontiguousarray(covariances[:, 0])
        moments = match_group_moments(counts, means, variances, order, starts)
        arrays = counts, means, covariances, order, starts
        return *moments[:2], lowrank.group_covariances(*arrays, moments)

    def weighted_sum(self, weights: np.ndarray, covariances: np.ndarray) -> np.ndarray:
        return lowrank.weighted_sum(weights, covariances)

    def shrunk(self, covariance: np.ndarray, share: float, target: np.ndarray) -> np.ndarray:
        return self.weighted_sum(np.array([1.0 - share, share]), np.stack([covariance, target]))

    def squared_correlations(self, covariance: np.ndarray) -> float:
        return lowrank.squared_correlations(covariance)

    def with_less_correlation(self, covariance: np.ndarray, share: float) -> np.ndarray:
        return lowrank.with_less_correlation(covariance, share)

    def halves(
        self, covariances: np.ndarray, matrix: np.ndarray, spread: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        # The longest direction, which is one of the correlations', whatever the frame.
        halves, number = covariances.copy(), np.arange(len(covariances))
        scale = lowrank.units(covariances[:, 0])[:, None]
        longest = first_of_largest(np.square(covariances[:, 1:] / scale).sum(axis=2))
        axes = covariances[number, 1 + longest]
        # Its sign is that of its largest entry.
        lead = first_of_largest(np.abs(axes / scale[:, 0]))
        axes = np.where(axes[number, lead][:, None] < 0.0, -axes, axes)
        halves[number, 1 + longest] *= np.sqrt(0.75)
        halves[:, 0] = np.maximum(halves[:, 0] - 0.25 * axes**2, 0.0)
        return axes, halves

    def draws(self, covariances: np.ndarray, chosen: np.ndarray, rng: Rng) -> np.ndarray:
        height, d = covariances.shape[1:]
        out = rng.standard_normal((len(chosen), d))
        factors = rng.standard_normal((len(chosen), height - 1))
        for number, rows in rows_of(chosen):
            deviations = np.sqrt(lowrank.noise(covariances[number]))
            out[rows] = deviations * out[rows] + factors[rows] @ covariances[number, 1:]
        return out

    def variances(self, covariances: np.ndarray) -> np.ndarray:
        return covariances[..., 0, :]

    def marginal(self, covariances: np.ndarray, features: np.ndarray) -> np.ndarray:
        return covariances.take(features, axis=-1)

    def rescale(self, covariances: np.ndarray, factors: np.ndarray) -> np.ndarray:
        out = covariances * factors[..., None, :]
        out[..., 0, :] *= factors
        return out

    def squared(self, correlations: np.ndarray) -> np.ndarray:
        # Of features with themselves alone: the others would have r^2 directions.
        out = np.zeros_like(correlations)
        out[..., 0, :] = correlations[..., 0, :] ** 2
        return out

    def gaussian(
        self,
        counts: np.ndarray,
        means: np.ndarray,
        covariances: np.ndarray,
        share: float,
        target: np.ndarray | None,
    ) -> np.ndarray:
        """Covariance of all samples, with more directions than a component has.

        Parameters
        ----------
        counts, means, covariances : (k,), (k, d) and (m, 1 + r, d) arrays
            Of all components; those without a covariance are Diracs.
        share : float
            Of the target.
        target : (1 + r, d) array or None

        Returns
        -------
        (1 + s, d) array
        """
        everything, whole = np.arange(len(counts)), np.array([0, len(counts)])
        held = np.ascontiguousarray(covariances[:, 0])
        (total,), (mean,), (variances,) = match_group_moments(
            counts, means, held, everything, whole
        )
        compounds = everything < len(covariances)
        rows = lowrank.rows_of(counts / total, means - mean, compounds, covariances)
        if target is not None:
            rows = np.concatenate([np.sqrt(1.0 - share) * rows, np.sqrt(share) * target[1:]])
            variances = (1.0 - share) * variances + share * target[0]
        rank = min(means.shape[1], DIRECTIONS_OF_ALL * self.rank)
        return lowrank.with_directions(variances, rows, rank)

    def dense(self, covariances: np.ndarray) -> np.ndarray:
        """Full covariances (..., d, d), for whoever has to have them."""
        directions = covariances[..., 1:, :]
        out = np.swapaxes(directions, -1, -2) @ directions
        number = np.arange(out.shape[-1])
        out[..., number, number] = covariances[..., 0, :]
        return out


class LongestDirections(LowRankCovariance):
    """Some of the directions of covariances of low rank, as a shape of components beside theirs."""

    def scored(self, covariances: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(covariances[..., : 1 + self.rank, :])


class DiagonalOfLowRank(DiagonalCovariance):
    """The variances of covariances of low rank, as a shape of components beside theirs."""

    @property
    def of_kernels(self) -> CovarianceStructure:
        return STRUCTURES["diag"]

    def scored(self, covariances: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(covariances[..., 0, :])


def flatten(covariances: np.ndarray) -> np.ndarray:
    """Covariances as the compiled functions take them: (n, d * d) or (n, d)."""
    if covariances.ndim == 2:
        return covariances
    return covariances.reshape(len(covariances), prod(covariances.shape[1:]))


def rows_of(numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each number that occurs in an array (n,), with its places."""
    order = np.argsort(numbers, kind="stable")
    used, starts = np.unique(numbers[order], return_index=True)
    stops = np.append(starts, len(order))[1:]
    for number, start, stop in zip(used, starts, stops, strict=True):
        yield number, order[start:stop]


def positive(values: np.ndarray) -> np.ndarray:
    """To divide by: one instead of zero, and of what rounding has made negative."""
    return np.where(values > 0.0, values, 1.0)


def first_of_largest(values: np.ndarray) -> np.ndarray:
    """The place of the largest of each row of values (n, k), which are not negative.

    Of those that are equal but for rounding the first counts: the axis of two samples is as long in
    all features.
    """
    return (values >= (1.0 - 1e-8) * values.max(axis=1, keepdims=True)).argmax(axis=1)


def unit_size(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, d), the largest entry of each one."""
    return vectors / positive(np.abs(vectors).max(axis=1, keepdims=True))


# With fewer features a dozen samples tell how they correlate.
FEWEST_SHRUNK = 8
# Those that have a name as a parameter.
DEFAULT_RANK = 16
# Up to so many, full covariances take no longer, and lose nothing.
FEATURES_PER_DIRECTION = 2
# How many are tried beside those that are held, where prediction finds the rank.
FEWER_DIRECTIONS = (8, 2)
# How many times as many directions a single Gaussian has.
DIRECTIONS_OF_ALL = 8
STRUCTURES: dict[str, CovarianceStructure] = {
    s.name: s
    for s in (FullCovariance(), DiagonalCovariance(), SphericalCovariance(), LowRankCovariance())
}
DIAGONAL_OF_LOW_RANK = DiagonalOfLowRank()

# The shapes of kernels that are tried where nothing says which is right; for others their own.
SHAPES: dict[str, tuple[CovarianceStructure, ...]] = {
    "full": (STRUCTURES["full"], FullCovariance(correlations=0.5), DiagonalOfFull()),
}


def structure_of(covariances: np.ndarray) -> CovarianceStructure:
    """The structure that has all of an array of covariances (n, ...), by its layout."""
    if covariances.ndim == 2:
        return STRUCTURES["diag"]
    is_square = covariances.shape[1] == covariances.shape[2]
    return STRUCTURES["full" if is_square else "lowrank"]
