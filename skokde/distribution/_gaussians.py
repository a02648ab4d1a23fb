"""Weighted Gaussians, frozen, and their log-densities: what all questions start from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

# Numbers in the largest table that is made at a time.
TABLE = 2**22

Dimensions = int | str | Sequence[int] | Sequence[str]
RandomState = int | np.random.RandomState | np.random.Generator | None


class Estimate(NamedTuple):
    """A number that is estimated from draws.

    Attributes
    ----------
    value : float
    standard_error : float
        Zero where the number is exact.
    """

    value: float
    standard_error: float


@dataclass(frozen=True, eq=False, repr=False)
class Gaussians:
    """Weighted Gaussians: arrays that belong together, their moments and log-densities.

    See :class:`GaussianMixtureDistribution`, which adds what else a mixture can be asked.
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    feature_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        weights, means, covariances = (
            np.array(array, dtype=float, order="C")
            for array in (self.weights, self.means, self.covariances)
        )
        if means.ndim != 2 or 0 in means.shape:
            raise ValueError(
                "means must have the shape (n_components, n_features), with at least one of each, "
                f"got {means.shape}."
            )
        k, d = means.shape
        if weights.shape != (k,):
            raise ValueError(
                f"weights must have the shape {(k,)}, as means do, got {weights.shape}."
            )
        if covariances.shape not in ((k, d, d), (k, d)):
            raise ValueError(
                f"covariances must have the shape {(k, d, d)} or {(k, d)}, as means do, got "
                f"{covariances.shape}."
            )
        for name, array in (("weights", weights), ("means", means), ("covariances", covariances)):
            if not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite.")
        total = weights.sum()
        if (weights < 0.0).any() or not abs(total - 1.0) <= 1e-6:
            raise ValueError(
                f"weights must not be negative, and their sum must be one, got {total}: divide "
                "them by their sum."
            )
        names = self.feature_names
        if names is not None:
            names = tuple(str(name) for name in names)
            if len(names) != d or len(set(names)) != d:
                raise ValueError(f"feature_names must be {d} different names, got {names}.")
        if covariances.ndim == 3:
            skew = np.abs(covariances - covariances.transpose(0, 2, 1)).max(axis=(1, 2))
            if (skew > 1e-8 * np.abs(covariances).max(axis=(1, 2))).any():
                raise ValueError("covariances must be symmetric.")
        variances = variances_of(covariances)
        if not (variances > 0.0).all():
            number = int(np.flatnonzero((variances <= 0.0).any(axis=1))[0])
            raise ValueError(
                f"covariances must be positive definite, that of component {number} is not: add "
                "the variance of a kernel."
            )
        # Those whose sum is one to rounding stay what they are: copies have the same bits.
        weights = weights if abs(total - 1.0) <= 1e-12 else weights / total
        own = {
            "weights": read_only(weights),
            "means": read_only(means),
            "covariances": read_only(covariances),
            "feature_names": names,
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be made anew when copied or unpickled: arrays would not stay read-only."""
        return type(self), (*self.arrays, self.feature_names)

    def __repr__(self) -> str:
        """Tell how large it is."""
        kind = "full" if self.covariances.ndim == 3 else "diagonal"
        return (
            f"<{type(self).__name__} of {self.n_components} components with {kind} "
            f"covariances in {self.n_features} dimensions>"
        )

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, means and covariances."""
        return self.weights, self.means, self.covariances

    @property
    def n_components(self) -> int:
        """Number of Gaussians."""
        return len(self.means)

    @property
    def n_features(self) -> int:
        """Number of dimensions."""
        return self.means.shape[1]

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean (n_features,) of the whole."""
        center = self.means[self.weights.argmax()]  # differences from it lose no digits
        return read_only(center + self.weights @ (self.means - center))

    @cached_property
    def cov(self) -> np.ndarray:
        """Covariance (n_features, n_features) of the whole."""
        away = self.means - self.mean
        between = (self.weights[:, None] * away).T @ away
        within = np.tensordot(self.weights, self.covariances, axes=1)
        return read_only(between + (within if within.ndim == 2 else np.diag(within)))

    # ------------------------------------------------------------------------------- densities

    def logpdf(self, x: ArrayLike) -> Any:
        """Log-densities, in nats.

        Parameters
        ----------
        x : array-like of shape (..., n_features)
            In one dimension of shape (n,), too, as in SciPy. May be infinite, but not NaN: of
            points with holes, take the marginal.

        Returns
        -------
        float or ndarray of shape (...)
            -inf where the squared distance from all components overflows.

        Examples
        --------
        >>> from skokde.distribution import GaussianMixtureDistribution
        >>> normal = GaussianMixtureDistribution([1.0], [[0.0, 0.0]], [[1.0, 1.0]])
        >>> normal.logpdf([[0.0, 0.0], [0.0, 3.0]]).round(4)
        array([-1.8379, -6.3379])
        """
        points, shape = points_of(x, self.n_features)
        out = np.empty(len(points))
        for rows in pieces(len(points), self.n_components):
            out[rows] = logsumexp(self.log_terms(points[rows]), axis=1)
        return out.reshape(shape)[()]

    def pdf(self, x: ArrayLike) -> Any:
        """Densities, see `logpdf`; they may under- or overflow where logarithms do not."""
        return np.exp(self.logpdf(x))

    def log_terms(self, points: np.ndarray) -> np.ndarray:
        """Logarithms (n, n_components) of the densities of the weighted components.

        Parameters
        ----------
        points : (n, n_features) array
        """
        n, d = points.shape
        out = np.empty((n, self.n_components))
        log_norms, scales, inv_factors = self._standardized
        with np.errstate(over="ignore", invalid="ignore"):
            for some in pieces(self.n_components, n * d):
                z = (points - self.means[some, None]) / scales[some, None]
                if inv_factors is not None:
                    z = z @ inv_factors[some].transpose(0, 2, 1)
                squares = np.einsum("kij,kij->ik", z, z)
                # Not a number where infinite differences have met.
                out[:, some] = log_norms[some] - 0.5 * np.where(squares >= 0.0, squares, np.inf)
        return out

    def log_conditionals(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What `log_terms` gives, and log-densities of each feature given all others.

        Parameters
        ----------
        points : (n, n_features) array

        Returns
        -------
        log_terms : (n, n_components) array
        log_conditionals : (n, n_components, n_features) array
            In each component.
        """
        log_norms, scales, inv_factors = self._standardized
        with np.errstate(over="ignore", invalid="ignore"):
            z = residuals = (points - self.means[:, None]) / scales[:, None]
            precisions = np.ones_like(scales)
            if inv_factors is not None:
                z = z @ inv_factors.transpose(0, 2, 1)
                residuals, precisions = z @ inv_factors, np.square(inv_factors).sum(axis=1)
            squares = np.einsum("kij,kij->ik", z, z)
            log_terms = log_norms - 0.5 * np.where(squares >= 0.0, squares, np.inf)
            away = np.square(residuals) / precisions[:, None]
        norms = 0.5 * np.log(precisions / (2.0 * np.pi)) - np.log(scales)
        return log_terms, (norms[:, None] - 0.5 * away).transpose(1, 0, 2)

    def centered(self) -> Gaussians:
        """With zero for all means."""
        return Gaussians(self.weights, np.zeros_like(self.means), self.covariances)

    @cached_property
    def log_weights(self) -> np.ndarray:
        """Logarithms (n_components,) of the weights."""
        with np.errstate(divide="ignore"):
            return read_only(np.log(self.weights))

    @cached_property
    def _standardized(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Terms at the means; deviations; of correlations, inverses of the Cholesky factors."""
        distinct, run = runs_of_equal(self.covariances)
        scales = np.sqrt(variances_of(distinct))
        log_dets, inv_factors = np.log(scales).sum(axis=1), None
        if distinct.ndim == 3:
            factors = cholesky_of_correlations(distinct, scales)
            log_dets += np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
            inv_factors = np.linalg.inv(factors)[run]
        log_norms = self.log_weights - log_dets[run] - 0.5 * self.n_features * np.log(2.0 * np.pi)
        return log_norms, scales[run], inv_factors

    def numbers_of(self, dimensions: Dimensions) -> list[int]:
        """Numbers of features that are given by number or by name."""
        return numbers_of(dimensions, self.n_features, self.feature_names)

    def names_of(self, numbers: Sequence[int]) -> tuple[str, ...] | None:
        """Names of features, if they have any."""
        names = self.feature_names
        return None if names is None else tuple(names[number] for number in numbers)


def numbers_of(dimensions: Dimensions, d: int, names: Sequence[str] | None) -> list[int]:
    """Numbers, of d features, that are given by number or by name."""
    single = isinstance(dimensions, (str, Integral))
    numbers = []
    for dimension in [dimensions] if single else list(dimensions):
        if isinstance(dimension, str):
            if names is None or dimension not in names:
                known = "none" if names is None else tuple(names)
                raise ValueError(f"There is no feature {dimension!r} among {known}.")
            numbers.append(list(names).index(dimension))
            continue
        if not isinstance(dimension, Integral) or isinstance(dimension, (bool, np.bool_)):
            raise TypeError(f"dimensions must be integers or names, got {dimension!r}.")
        if not -d <= dimension < d:
            raise ValueError(f"There is no feature {dimension}: there are {d}.")
        numbers.append(int(dimension) % d)
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"dimensions must be at least one, and all different: {dimensions}.")
    return numbers


def runs_of_equal(covariances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first of each run of equal covariances, and the number (k,) of each one's run.

    Single samples have that of their kernel, so what takes long is done for a few of them.
    """
    is_first = np.ones(len(covariances), dtype=bool)
    of_each = tuple(range(1, covariances.ndim))
    is_first[1:] = (covariances[1:] != covariances[:-1]).any(axis=of_each)
    return covariances[is_first], np.cumsum(is_first) - 1


def variances_of(covariances: np.ndarray) -> np.ndarray:
    """Variances (k, d) of covariances, whichever shape they have."""
    return covariances if covariances.ndim == 2 else np.diagonal(covariances, axis1=1, axis2=2)


def cholesky_of_correlations(covariances: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Lower factors (k, d, d), in units of the deviations: features of any units do no harm."""
    correlations = covariances / scales[:, :, None] / scales[:, None, :]
    try:
        return np.linalg.cholesky(correlations)
    except np.linalg.LinAlgError:
        raise ValueError(
            "covariances must be positive definite, to rounding: add the variance of a kernel."
        ) from None


def read_only(array: np.ndarray) -> np.ndarray:
    """The same array, which can't be written to any more."""
    array.flags.writeable = False
    return array


def points_of(x: ArrayLike, d: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """Points (n, d), and the shape of what there is one of for each: that of SciPy."""
    x = np.asarray(x, dtype=float)
    if x.ndim == 0 or (d == 1 and x.ndim == 1):
        x = x[..., None]
    if x.shape[-1] != d:
        raise ValueError(f"x must have {d} features along its last axis, got the shape {x.shape}.")
    if np.isnan(x).any():
        raise ValueError("x has NaN: of points with holes, take the marginal of what is known.")
    return x.reshape(-1, d), x.shape[:-1]


def pieces(n: int, size: int) -> Iterator[slice]:
    """Slices of n items of so many numbers each, of which a table is not too large."""
    step = max(1, TABLE // max(size, 1))
    for start in range(0, n, step):
        yield slice(start, start + step)


def check_probability(name: str, value: float) -> float:
    """A number between 0 and 1."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be a number between 0 and 1, got {value!r}.")
    return float(value)


def check_size(n_samples: int) -> int:
    """A number of draws that tells a standard error, too."""
    if not isinstance(n_samples, Integral) or isinstance(n_samples, bool) or n_samples < 2:
        raise ValueError(f"n_samples must be an integer of at least 2, got {n_samples!r}.")
    return int(n_samples)
