"""Outliers: components so far out that the bandwidth must not go by them.

Not in the paper, whose F is the covariance of all: one value of 1e12 in a million, or a burst of
them, makes kernels so wide that everything else looks alike, and merges it for good. Here outliers
are told apart by quantiles, which a tenth of the samples can't move. They stay in the model, and in
its moments, but they have no part in the covariance from which bandwidths are made.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from skokde._engine._outliers import inliers as _inliers
from skokde._engine.covariance import structure_of
from skokde._engine.mixture import Mixture, match_moments

# This share of the samples on either side does not count for a feature's spread.
TAIL = 0.1
# The range of the others for a normal distribution, in standard deviations.
NORMAL_RANGE = float(2.0 * ndtri(1.0 - TAIL))
# Outliers are this many times as far out as the nearest of the farthest tenth.
FARTHEST = 20.0

# Count, mean and covariance.
Moments = tuple[float, np.ndarray, np.ndarray]


def inliers(mixture: Mixture) -> np.ndarray:
    """Components (k,) that are not outliers, of a mixture that is not empty."""
    counts, means, covariances, *_ = mixture
    variances = np.ascontiguousarray(structure_of(covariances).variances(covariances))
    return _inliers(counts, means, variances, TAIL, NORMAL_RANGE, FARTHEST)


def components_of(
    mixture: Mixture, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, means and covariances of some components."""
    counts, means, covariances, *_ = mixture
    if not chosen.all():
        covariances = covariances[chosen[: len(covariances)]]
        counts, means = counts[chosen], means[chosen]
    return counts, means, covariances


def moments_of(mixture: Mixture, chosen: np.ndarray) -> Moments:
    """Count, mean and covariance of some components, together."""
    return match_moments(*components_of(mixture, chosen))


def inlier_moments(mixture: Mixture) -> Moments:
    """Count, mean and covariance of the components that are not outliers."""
    return moments_of(mixture, inliers(mixture))
