"""Covariance structures: what one has to provide, and nothing else knows of it.

Models hold covariances in one of two layouts, full or diagonal, whose moments are exact. A
structure tells what of them is scored, and how they behave under a linear map of the coordinates,
which is one of the layout's own matrices: a symmetric (d, d) matrix for full covariances, a (d,)
vector of factors for diagonal ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from skokde._engine._goldberger import principal_axes
from skokde._engine._whitening import roots

# Section 3.1 of the paper: normalised eigenvalues below the first are replaced by the second
# times the average of the others.
EIGENVALUE_FLOOR = 1e-9
EIGENVALUE_SHARE = 0.01

# Of a unit eigenvector: what is less is rounding.
SMALLEST_PART = 1e-3


class CovarianceStructure(ABC):
    """What a structure of covariances has to provide.

    One of your own is a subclass of :class:`FullCovariance` or :class:`DiagonalCovariance` with a
    name and a method :meth:`shaped`; the others are right for each structure of the same layout.

    Attributes
    ----------
    name : str
        What tells it from others. It has to say with which parameters it was made.
    layout : {"full", "diag"}
        How models hold covariances: as (d, d) or (d,) arrays. Models of the same layout hold the
        same, whatever is scored.
    """

    name: str
    layout: str

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

    @abstractmethod
    def shape(self, d: int) -> tuple[int, ...]:
        """Shape of a covariance of d features."""

    @abstractmethod
    def variances(self, covariances: np.ndarray) -> np.ndarray:
        """Variances (..., d) of the features."""

    @abstractmethod
    def marginal(self, covariances: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Covariances of some of the features, by an array of their numbers."""

    @abstractmethod
    def rescale(self, covariances: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Covariances after each coordinate is multiplied by its factor."""

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
    def roots(self, correlation: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Symmetric root and inverse root of an eigenvalue-corrected correlation matrix.

        Returns
        -------
        root, inv_root : (d, d) or (d,) arrays
        log_det : float
            Log-determinant of the corrected matrix.
        """

    @abstractmethod
    def lies_flat(self, correlation: np.ndarray) -> np.ndarray:
        """Features (d,) with a part in the directions whose eigenvalues `roots` replaces."""

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


class FullCovariance(CovarianceStructure):
    """Full covariances, (d, d) each.

    Parameters
    ----------
    correlations : float, default=1.0
        The share of them that is scored.
    """

    name = "full"
    layout = "full"

    def __init__(self, correlations: float = 1.0) -> None:
        self.correlations = correlations

    def shaped(self, covariances: np.ndarray) -> np.ndarray:
        if self.correlations == 1.0:
            return covariances
        d = covariances.shape[-1]
        return covariances * (self.correlations + (1.0 - self.correlations) * np.eye(d))

    def shape(self, d: int) -> tuple[int, ...]:
        return (d, d)

    def variances(self, covariances: np.ndarray) -> np.ndarray:
        return np.diagonal(covariances, axis1=-2, axis2=-1)

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

    def roots(self, correlation: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        return roots(correlation, EIGENVALUE_FLOOR, EIGENVALUE_SHARE)

    def lies_flat(self, correlation: np.ndarray) -> np.ndarray:
        eigenvalues, eigenvectors = np.linalg.eigh(correlation)
        replaced = eigenvectors[:, eigenvalues < EIGENVALUE_FLOOR * eigenvalues[-1]]
        return (np.abs(replaced) > SMALLEST_PART).any(axis=1)

    def first_cut(
        self, correlation: np.ndarray, counts: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        return principal_axes(correlation.reshape(1, -1), len(correlation))[0]

    def to_matrix(self, variances: np.ndarray) -> np.ndarray:
        return np.diag(variances)


class DiagonalCovariance(CovarianceStructure):
    """Diagonal covariances, (d,) each (paper, Section 4)."""

    name = "diag"
    layout = "diag"

    def shape(self, d: int) -> tuple[int, ...]:
        return (d,)

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

    def roots(self, correlation: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        # Standardised variances are one, all of them.
        ones = np.ones_like(correlation)
        return ones, ones, 0.0

    def lies_flat(self, correlation: np.ndarray) -> np.ndarray:
        return np.zeros(len(correlation), dtype=bool)

    def first_cut(
        self, correlation: np.ndarray, counts: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        # All variances are one: the feature whose halves are the farthest apart.
        return widest_gap(counts, points)

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


def widest_gap(counts: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The coordinate axis (d,) along which a cut at the mean explains most of the variance."""
    weights = counts / counts.sum()
    deviations = points - weights @ points
    above = deviations > 0.0
    # Squares of the farthest would overflow.
    deviations = deviations / max(np.abs(deviations).max(), np.finfo(float).tiny)
    share = weights @ above
    moment = weights @ (deviations * above)
    explained = moment**2 / np.maximum(share * (1.0 - share), np.finfo(float).tiny)
    axis = np.zeros(points.shape[1])
    # Of features that are equal but for rounding the first counts.
    axis[np.argmax(explained > (1.0 - 1e-8) * explained.max())] = 1.0
    return axis


# Those that have a name as a parameter.
STRUCTURES: dict[str, CovarianceStructure] = {
    s.name: s for s in (FullCovariance(), DiagonalCovariance(), SphericalCovariance())
}

# The shapes of kernels that are tried where nothing says which is right; for others their own.
SHAPES: dict[str, tuple[CovarianceStructure, ...]] = {
    "full": (STRUCTURES["full"], FullCovariance(correlations=0.5), DiagonalOfFull()),
}


def structure_of(covariances: np.ndarray) -> CovarianceStructure:
    """The structure that has all of an array of covariances, by its layout."""
    return STRUCTURES["full" if covariances.ndim == 3 else "diag"]
