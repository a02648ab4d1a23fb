"""What is learned of rows with missing values.

Each is completed by a draw from the distribution of what it lacks given what it has, under the
model so far: unlike means, draws keep the variance, and unlike rows that are left out, what is
known of a row counts. Where little has been learned regressions of one feature on others are noise,
and values that are extrapolated by them would be learned from in turn. So correlations within
components count as far as there are samples to tell them.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from skokde._engine.mixture import Mixture
from skokde.distribution import GaussianMixtureDistribution
from skokde.distribution.conditioning import completed

# In samples for each feature: as many that have both of two features halve their correlation.
CORRELATION_PRIOR = 16.0
# A completed value is no larger, whatever the others are.
LARGEST_COMPLETED = 1e150
# More rows don't wait: features without a value in any of them are zero, as constant ones.
MOST_WAITING = 30


class Waiting(NamedTuple):
    """The first rows of a stream, while there is a feature without any value in them.

    Attributes
    ----------
    rows : (n, d) array
        NaN is missing.
    weights : (n,) array
    """

    rows: np.ndarray
    weights: np.ndarray

    @classmethod
    def none(cls, d: int) -> Self:
        return cls(np.empty((0, d)), np.empty(0))

    def followed_by(self, rows: np.ndarray, weights: np.ndarray) -> Self:
        """With rows (m, d) and weights (m,) after them."""
        return type(self)(
            np.concatenate([self.rows, rows]), np.concatenate([self.weights, weights])
        )

    @property
    def is_enough(self) -> bool:
        """Whether they can be learned."""
        seen = ~np.isnan(self.rows).all(axis=0)
        return bool(seen.all()) or len(self.rows) >= MOST_WAITING

    def filled(self) -> np.ndarray:
        """The rows, with the mean of what is known of a feature for what is missing."""
        known = ~np.isnan(self.rows)
        sums = np.where(known, self.rows, 0.0).sum(axis=0)
        return np.where(known, self.rows, sums / np.maximum(known.sum(axis=0), 1))


def complete(
    row: np.ndarray, mixture: Mixture, bandwidth: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A row with its missing values drawn from their distribution given the others.

    Parameters
    ----------
    row : (d,) array
        NaN is missing.
    mixture : Mixture
        The model so far, not empty.
    bandwidth : (d, d) or (d,) array
        Covariance of the kernel that it is convolved with.
    rng : Generator
    """
    count, d = mixture.counts.sum(), len(row)
    covariances = mixture.all_covariances() + bandwidth
    if covariances.ndim == 3:
        # Rows like this one have two features with the probability that the share is squared.
        pairs = count * np.mean(~np.isnan(row)) ** 2
        known = pairs / (pairs + CORRELATION_PRIOR * d)
        covariances *= known + (1.0 - known) * np.eye(d)
    distribution = GaussianMixtureDistribution(mixture.counts / count, mixture.means, covariances)
    drawn = completed(distribution, row, rng)
    return np.clip(drawn, -LARGEST_COMPLETED, LARGEST_COMPLETED)
