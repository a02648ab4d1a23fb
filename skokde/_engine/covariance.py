"""Covariance structures: what differs between full and diagonal, and nothing else.

A structure knows the shape of its covariances and how they behave under a linear map of the
coordinates. The map of a structure is one of its own matrices: a symmetric (d, d) matrix for full
covariances, a (d,) vector of factors for diagonal ones.
"""

from __future__ import annotations

import numpy as np

from skokde._engine._goldberger import principal_axes
from skokde._engine._whitening import roots

# Section 3.1 of the paper: normalised eigenvalues below the first are replaced by the second
# times the average of the others.
EIGENVALUE_FLOOR = 1e-9
EIGENVALUE_SHARE = 0.01

# Of a unit eigenvector: what is less is rounding.
SMALLEST_PART = 1e-3


class FullCovariance:
    """Full covariances, (d, d) each.

    Parameters
    ----------
    correlations : float, default=1.0
        The share that is left of them in a shape, see `shaped`.
    """

    name = "full"

    def __init__(self, correlations: float = 1.0) -> None:
        self.correlations = correlations

    def shaped(self, covariances: np.ndarray) -> np.ndarray:
        """Full covariances with less correlation, or none."""
        if self.correlations == 1.0:
            return covariances
        d = covariances.shape[-1]
        return covariances * (self.correlations + (1.0 - self.correlations) * np.eye(d))

    def shape(self, d: int) -> tuple[int, ...]:
        return (d, d)

    def variances(self, covariances: np.ndarray) -> np.ndarray:
        return np.diagonal(covariances, axis1=-2, axis2=-1)

    def marginal(self, covariances: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Covariances of some of the features, by an array of their numbers."""
        return np.ascontiguousarray(covariances[..., features[:, None], features])

    def rescale(self, covariances: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Covariances after each coordinate is multiplied by its factor."""
        return covariances * factors[..., :, None] * factors[..., None, :]

    def times(self, covariances: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Each covariance times a vector."""
        return (covariances @ vectors[..., None])[..., 0]

    def map_vectors(self, vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        return vectors @ matrix

    def outer(self, vectors: np.ndarray) -> np.ndarray:
        return vectors[..., :, None] * vectors[..., None, :]

    def square(self, matrix: np.ndarray) -> np.ndarray:
        """The covariance that the inverse of the map ``matrix^-1`` gives the identity."""
        return matrix @ matrix

    def roots(self, correlation: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Symmetric root and inverse root of an eigenvalue-corrected correlation matrix.

        Returns
        -------
        root, inv_root : (d, d) arrays
        log_det : float
            Log-determinant of the corrected matrix.
        """
        return roots(correlation, EIGENVALUE_FLOOR, EIGENVALUE_SHARE)

    def lies_flat(self, correlation: np.ndarray) -> np.ndarray:
        """Features (d,) with a part in the eigenvectors whose eigenvalues `roots` replaces."""
        eigenvalues, eigenvectors = np.linalg.eigh(correlation)
        replaced = eigenvectors[:, eigenvalues < EIGENVALUE_FLOOR * eigenvalues[-1]]
        return (np.abs(replaced) > SMALLEST_PART).any(axis=1)

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
        return principal_axes(correlation.reshape(1, -1), len(correlation))[0]

    def to_matrix(self, variances: np.ndarray) -> np.ndarray:
        """The covariance with these variances and no correlation."""
        return np.diag(variances)


class DiagonalCovariance:
    """Diagonal covariances, (d,) each (paper, Section 4)."""

    name = "diag"

    def shape(self, d: int) -> tuple[int, ...]:
        return (d,)

    def shaped(self, covariances: np.ndarray) -> np.ndarray:
        return np.diagonal(covariances, axis1=-2, axis2=-1).copy()

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


Structure = FullCovariance | DiagonalCovariance

STRUCTURES: dict[str, Structure] = {s.name: s for s in (FullCovariance(), DiagonalCovariance())}

# The shapes of kernels that are tried where nothing says which is right.
SHAPES: dict[str, tuple[Structure, ...]] = {
    "full": (STRUCTURES["full"], FullCovariance(correlations=0.5), STRUCTURES["diag"]),
    "diag": (STRUCTURES["diag"],),
}


def structure_of(covariances: np.ndarray) -> Structure:
    """The structure of an array of covariances."""
    return STRUCTURES["full" if covariances.ndim == 3 else "diag"]
