"""Probabilities of regions, and regions of a probability."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from scipy.stats import chi2, multivariate_normal

from skokde.distribution._gaussians import (
    Estimate,
    Gaussians,
    RandomState,
    check_probability,
    check_size,
    pieces,
    points_of,
    variances_of,
)
from skokde.distribution.sampling import draws

# Halving the range of doubles so often leaves no more than the last bits.
MOST_HALVINGS = 200


def cdf(distribution: Gaussians, x: ArrayLike, lower_limit: ArrayLike | None) -> Any:
    """See the method of the same name."""
    d = distribution.n_features
    points, shape = points_of(x, d)
    lower = None
    if lower_limit is not None:
        low = np.asarray(lower_limit, dtype=float)
        if d == 1 and low.ndim < 2:
            low = low[..., None]
        high, low = np.broadcast_arrays(points.reshape(*shape, d), low)
        points, shape = points_of(high, d)
        lower, _ = points_of(low, d)
    independent = distribution.covariances.ndim == 2 or d == 1
    function = _independent_cdf if independent else _dependent_cdf
    out = function(distribution, points, lower)
    return out.reshape(shape)[()]


def _independent_cdf(
    distribution: Gaussians, points: np.ndarray, lower: np.ndarray | None
) -> np.ndarray:
    scales = np.sqrt(variances_of(distribution.covariances))
    out = np.empty(len(points))
    for rows in pieces(len(points), distribution.means.size):
        upper_z = _standardized(points[rows], distribution.means, scales)
        if lower is None:
            of_features = ndtr(upper_z)
        else:
            lower_z = _standardized(lower[rows], distribution.means, scales)
            # In the upper tail differences of the other tail keep their digits.
            turned = upper_z > -lower_z
            of_features = np.where(
                turned, ndtr(-lower_z) - ndtr(-upper_z), ndtr(upper_z) - ndtr(lower_z)
            )
        out[rows] = of_features.prod(axis=2) @ distribution.weights
    return np.clip(out, -1.0, 1.0)


def _standardized(points: np.ndarray, means: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Points (n, k, d) in deviations of each component, infinite where these overflow."""
    with np.errstate(over="ignore"):
        return (points[:, None] - means) / scales


def _dependent_cdf(
    distribution: Gaussians, points: np.ndarray, lower: np.ndarray | None
) -> np.ndarray:
    out = np.zeros(len(points))
    scales = np.sqrt(variances_of(distribution.covariances))
    for weight, mean, scale, covariance in zip(
        distribution.weights, distribution.means, scales, distribution.covariances, strict=True
    ):
        if weight > 0.0:
            # In units of the deviations, so that features of any units do no harm. The integration
            # draws points; the seed makes the result the same each time.
            correlation = covariance / scale[:, None] / scale
            normal = multivariate_normal(cov=correlation, allow_singular=True, seed=0)
            upper_z = _standardized(points, mean[None], scale)[:, 0]
            lower_z = None if lower is None else _standardized(lower, mean[None], scale)[:, 0]
            out += weight * normal.cdf(upper_z, lower_limit=lower_z)
    return np.clip(out, -1.0, 1.0)


def ppf(distribution: Gaussians, q: ArrayLike) -> Any:
    """See the method of the same name."""
    if distribution.n_features != 1:
        raise ValueError(
            f"ppf is for one dimension, and there are {distribution.n_features}: take a marginal."
        )
    q = np.asarray(q, dtype=float)
    deviations = np.sqrt(variances_of(distribution.covariances)[:, 0])
    weights, means = distribution.weights[None], distribution.means[None, :, 0]
    out, flat = np.empty(q.size), q.ravel()
    for some in pieces(q.size, len(deviations)):
        out[some] = quantiles(flat[some], weights, means, deviations)[0]
    return out.reshape(q.shape)[()]


def quantiles(
    q: np.ndarray, weights: np.ndarray, means: np.ndarray, deviations: np.ndarray
) -> np.ndarray:
    """Quantiles (n, n_quantiles) of mixtures in one dimension.

    Parameters
    ----------
    q : (n_quantiles,) array
    weights, means : (n, k) arrays
    deviations : (k,) array
    """
    if not ((q >= 0.0) & (q <= 1.0)).all():
        raise ValueError("q must be probabilities from 0 to 1.")
    inside = (q > 0.0) & (q < 1.0)
    out = np.where(q > 0.0, np.inf, -np.inf) + np.zeros((len(weights), 1))
    levels = q[inside]
    # A quantile of the whole is among those of the components.
    of_components = means[:, None] + deviations * ndtri(levels)[:, None]
    weighs = (weights > 0.0)[:, None]
    low = np.where(weighs, of_components, np.inf).min(axis=2, initial=np.inf)
    high = np.where(weighs, of_components, -np.inf).max(axis=2, initial=-np.inf)
    upper = levels > 0.5  # the smaller tail keeps its digits
    target, sign = np.where(upper, 1.0 - levels, levels), np.where(upper, -1.0, 1.0)
    for _ in range(MOST_HALVINGS):
        middle = low + 0.5 * (high - low)
        z = (middle[:, :, None] - means[:, None]) / deviations
        tail = (weights[:, None] * ndtr(sign[:, None] * z)).sum(axis=2)
        below = np.where(upper, tail > target, tail < target)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        if not ((low < middle) | (middle < high)).any() or (high - low <= 0.0).all():
            break
        spread = np.maximum(np.abs(low), np.abs(high))
        if (high - low <= 1e-14 * np.maximum(spread, deviations.min())).all():
            break
    out[:, inside] = low + 0.5 * (high - low)
    return out


def highest_density_threshold(
    distribution: Gaussians,
    prob: float,
    n_samples: int,
    random_state: RandomState,
) -> Estimate:
    """See the method of the same name."""
    prob, n = check_probability("prob", prob), check_size(n_samples)
    if distribution.n_components == 1:
        at_mean = distribution.logpdf(distribution.means[0])
        return Estimate(float(at_mean - 0.5 * chi2.ppf(prob, distribution.n_features)), 0.0)
    values = np.sort(distribution.logpdf(draws(distribution, n, random_state)))
    # The order statistics one standard error to either side.
    place, error = n * (1.0 - prob), np.sqrt(n * prob * (1.0 - prob))
    low, middle, high = np.interp([place - error, place, place + error], np.arange(n) + 0.5, values)
    return Estimate(float(middle), float(0.5 * (high - low)))
