"""How good a predicted distribution is for what came: the continuous ranked probability score."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from skokde.distribution._gaussians import Gaussians, pieces, variances_of
from skokde.distribution.conditioning import GaussianMixtureFamily

# Of a row of a family, components that weigh less change the score by less than this times their
# distance.
NEGLIGIBLE = 1e-12


def crps(distribution: Gaussians | GaussianMixtureFamily, y: ArrayLike) -> Any:
    r"""Continuous ranked probability score of mixtures in one dimension; lower is better.

    The expected distance of a draw from what came, less half of that of two draws; of a single
    number it is the absolute error. For mixtures of Gaussians it has a closed form [1]_.

    Parameters
    ----------
    distribution : GaussianMixtureDistribution or GaussianMixtureFamily
        Of one feature.
    y : array-like
        What came. With a family of shape (n_rows,), one for each of its distributions; else of any
        shape.

    Returns
    -------
    float or ndarray of the shape of y
        In units of y. The time it takes grows with the square of the number of components.

    Raises
    ------
    ValueError
        For more than one feature, NaN or infinite values, or a wrong shape.

    References
    ----------
    .. [1] E. Grimit, T. Gneiting, V. Berrocal, N. Johnson (2006). The continuous ranked probability
       score for circular variables and its application to mesoscale forecast ensemble verification.
       Quarterly Journal of the Royal Meteorological Society 132, 2925-2942.

    Examples
    --------
    >>> from skokde.distribution import GaussianMixtureDistribution, crps
    >>> forecast = GaussianMixtureDistribution([1.0], [[0.0]], [[1.0]])
    >>> crps(forecast, [0.0, 3.0]).round(3)
    array([0.234, 2.437])
    """
    if distribution.n_features != 1:
        raise ValueError(
            f"crps is for one dimension, and there are {distribution.n_features}: take a marginal."
        )
    y = np.asarray(y, dtype=float)
    if not np.isfinite(y).all():
        raise ValueError("y must be finite.")
    deviations = np.sqrt(variances_of(distribution.covariances)[:, 0])
    if isinstance(distribution, Gaussians):
        arrays = distribution.weights, distribution.means[:, 0], deviations
        return _score(y.ravel(), *arrays).reshape(y.shape)[()]
    if y.shape != (len(distribution),):
        raise ValueError(f"y must have the shape {(len(distribution),)}, got {y.shape}.")
    out = np.empty(len(y))
    for row, value in enumerate(y):
        weights, means = distribution.components_of(row)
        some = weights > NEGLIGIBLE
        out[row] = _score(value[None], weights[some], means[some, 0], deviations[some])[0]
    return out


def _score(
    y: np.ndarray, weights: np.ndarray, means: np.ndarray, deviations: np.ndarray
) -> np.ndarray:
    """Scores (n,) of one mixture."""
    out = np.empty(len(y))
    for some in pieces(len(y), len(weights)):
        out[some] = _mean_size(y[some, None] - means, deviations) @ weights
    between = 0.0
    for some in pieces(len(weights), len(weights)):
        sizes = _mean_size(means[some, None] - means, np.hypot(deviations[some, None], deviations))
        between += weights[some] @ sizes @ weights
    # Rounding must not make it negative where all is next to certain.
    return np.maximum(out - 0.5 * between, 0.0)


def _mean_size(means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Expected absolute values of Gaussians."""
    z = means / deviations
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return means * (2.0 * ndtr(z) - 1.0) + 2.0 * deviations * density
