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

# A third of the steps that find quantiles are halvings: so many leave no more than the last bits.
MOST_STEPS = 600
TINY_STEP = 1e-14
# In standard deviations: the probability of what is farther out underflows.
FAR = 100.0


def cdf(distribution: Gaussians, x: ArrayLike, lower_limit: ArrayLike | None) -> Any:
    """See the method of the same name."""
    d = distribution.n_features
    points, shape = points_of(x, d)
    low = np.asarray(-np.inf if lower_limit is None else lower_limit, dtype=float)
    if np.isnan(low).any():
        raise ValueError("lower_limit has NaN: of points with holes, take the marginal.")
    if d == 1 and low.shape[-1:] != (1,):
        low = low[..., None]
    upper, lower = np.broadcast_arrays(points.reshape(*shape, d), low)
    shape = upper.shape[:-1]
    upper, lower = upper.reshape(-1, d), lower.reshape(-1, d)
    independent = distribution.covariances.ndim == 2 or d == 1
    function = _independent_cdf if independent else _dependent_cdf
    # What is left to rounding may be outside; limits that are swapped turn the sign.
    return np.clip(function(distribution, upper, lower), -1.0, 1.0).reshape(shape)[()]


def _independent_cdf(distribution: Gaussians, upper: np.ndarray, lower: np.ndarray) -> np.ndarray:
    scales = np.sqrt(variances_of(distribution.covariances))
    out = np.empty(len(upper))
    for rows in pieces(len(upper), distribution.means.size):
        upper_z = _standardized(upper[rows, None], distribution.means, scales)
        lower_z = _standardized(lower[rows, None], distribution.means, scales)
        # In the upper tail differences of the other tail keep their digits.
        of_features = np.where(
            upper_z > -lower_z,
            ndtr(-lower_z) - ndtr(-upper_z),
            ndtr(upper_z) - ndtr(lower_z),
        )
        out[rows] = of_features.prod(axis=2) @ distribution.weights
    return out


def _dependent_cdf(distribution: Gaussians, upper: np.ndarray, lower: np.ndarray) -> np.ndarray:
    out = np.zeros(len(upper))
    scales = np.sqrt(variances_of(distribution.covariances))
    for weight, mean, scale, covariance in zip(
        distribution.weights, distribution.means, scales, distribution.covariances, strict=True
    ):
        upper_z, lower_z = (
            without_end(_standardized(limit, mean, scale)) for limit in (upper, lower)
        )
        wide = (lower_z != upper_z).all(axis=1)  # else both may be infinite
        if weight > 0.0 and wide.any():
            # In units of the deviations, so that features of any units do no harm. The integration
            # draws points; the seed makes the result the same each time.
            correlation = covariance / scale[:, None] / scale
            normal = multivariate_normal(cov=correlation, allow_singular=True, seed=0)
            out[wide] += weight * normal.cdf(upper_z[wide], lower_limit=lower_z[wide])
    return out


def without_end(limits: np.ndarray) -> np.ndarray:
    """Infinite limits in place of those beyond which there is nothing, whose squares overflow."""
    return np.where(np.abs(limits) > FAR, np.copysign(np.inf, limits), limits)


def _standardized(points: np.ndarray, means: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Points in deviations from means, infinite where these overflow."""
    with np.errstate(over="ignore"):
        return (points - means) / scales


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
    deviations : (k,) or (n, k) array
    """
    if not ((q >= 0.0) & (q <= 1.0)).all():
        raise ValueError("q must be probabilities from 0 to 1.")
    inside = (q > 0.0) & (q < 1.0)
    out = np.where(q > 0.0, np.inf, -np.inf) + np.zeros((len(weights), 1))
    levels = q[inside]
    weights, means = weights[:, None], means[:, None]
    deviations = np.broadcast_to(deviations, (len(out), means.shape[2]))[:, None]
    # A quantile of the whole is among those of the components.
    of_components = means + deviations * ndtri(levels)[:, None]
    low = np.where(weights > 0.0, of_components, np.inf).min(axis=2, initial=np.inf)
    high = np.where(weights > 0.0, of_components, -np.inf).max(axis=2, initial=-np.inf)
    upper = levels > 0.5  # the smaller tail keeps its digits
    target, sign = np.where(upper, 1.0 - levels, levels), np.where(upper, -1.0, 1.0)
    least, points = deviations.min(axis=2), low + 0.5 * (high - low)
    done = np.zeros(points.shape, dtype=bool)
    for number in range(MOST_STEPS):
        z = (points[:, :, None] - means) / deviations
        excess = sign * (target - (weights * ndtr(sign[:, None] * z)).sum(axis=2))
        low, high = np.where(excess > 0.0, points, low), np.where(excess > 0.0, high, points)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            density = (weights * np.exp(-0.5 * z * z) / deviations).sum(axis=2)
            step = excess * np.sqrt(2.0 * np.pi) / density
        near = TINY_STEP * np.maximum(np.maximum(np.abs(low), np.abs(high)), least)
        done |= (np.abs(step) <= near) | (high - low <= near)
        if done.all():
            break
        # Every third step halves what is left, where Newton's are slow.
        inner = (low < points + step) & (points + step < high) & (number % 3 < 2)
        points = np.where(done, points, np.where(inner, points + step, low + 0.5 * (high - low)))
    out[:, inside] = points
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
