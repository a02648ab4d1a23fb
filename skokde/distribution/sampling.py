"""Draws from a mixture, and means over them."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from skokde.distribution._gaussians import (
    Estimate,
    Gaussians,
    RandomState,
    check_size,
    cholesky_of_correlations,
    variances_of,
)


def generator(random_state: RandomState) -> np.random.RandomState | np.random.Generator:
    """What draws come from."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return check_random_state(random_state)


def draws(distribution: Gaussians, n: int, random_state: RandomState = None) -> np.ndarray:
    """Independent draws (n, d), in no order."""
    rng, weights = generator(random_state), distribution.weights
    chosen = rng.choice(len(weights), size=n, p=weights / weights.sum())
    return normal_draws(distribution.means, distribution.covariances, chosen, rng)


def normal_draws(
    means: np.ndarray,
    covariances: np.ndarray,
    chosen: np.ndarray,
    rng: np.random.RandomState | np.random.Generator,
) -> np.ndarray:
    """A draw of each chosen component; only these are factorised."""
    noise = rng.standard_normal((len(chosen), means.shape[1]))
    used, places = np.unique(chosen, return_inverse=True)
    scales = np.sqrt(variances_of(covariances[used]))
    if covariances.ndim == 3 and len(used):
        factors = cholesky_of_correlations(covariances[used], scales)
        order = np.argsort(places, kind="stable")
        for number, rows in enumerate(np.split(order, np.cumsum(np.bincount(places))[:-1])):
            noise[rows] = noise[rows] @ factors[number].T
    return means[chosen] + scales[places] * noise


def mean_of(values: np.ndarray) -> Estimate:
    """Mean of independent values."""
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def entropy(distribution: Gaussians, n_samples: int, random_state: RandomState) -> Estimate:
    """See the method of the same name."""
    n = check_size(n_samples)
    if distribution.n_components == 1:
        at_mean = distribution.logpdf(distribution.means[0])
        return Estimate(float(0.5 * distribution.n_features - at_mean), 0.0)
    return mean_of(-distribution.logpdf(draws(distribution, n, random_state)))
