"""What is learned of rows with missing values.

Each is completed, in what it lacks, by values of the samples that are like it in what it has: a hot
deck, whose donors are the components of the model so far. Unlike means, such values keep the
variance, and unlike draws from the density, which is smoother than the samples, or from regressions
on the known features, they never lie where no sample was: what is wrong with them is not learned in
turn and does not grow.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from skokde._engine.covariance import structure_of
from skokde._engine.mixture import Mixture

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
    """A row with the values of a component for those that are missing.

    A component is drawn with the probability that it has where the others are known, under a kernel
    whose features are independent; of merged samples, the values are drawn from their normal
    distribution.

    Parameters
    ----------
    row : (d,) array
        NaN is missing.
    mixture : Mixture
        The model so far, not empty.
    bandwidth : (d, d) or (d,) array
        Covariance of the kernel.
    rng : Generator
    """
    structure, missing = structure_of(mixture.covariances), np.isnan(row)
    known = np.flatnonzero(~missing)
    variances = structure.variances(mixture.all_covariances())
    variances = (variances + structure.of_kernels.variances(bandwidth))[:, known]
    distances = np.abs(row[known] - mixture.means[:, known]) / np.sqrt(variances)
    with np.errstate(divide="ignore", over="ignore"):
        log_weights = np.log(mixture.counts) - 0.5 * (np.log(variances) + distances**2).sum(axis=1)
    if not log_weights.max() > -np.inf:  # too far from all for a density: the nearest one
        log_weights = np.where(distances.max(axis=1) > distances.max(axis=1).min(), -np.inf, 0.0)
    weights = np.exp(log_weights - log_weights.max())
    donor = rng.choice(len(weights), p=weights / weights.sum())
    values = mixture.means[donor].copy()
    if donor < mixture.n_compounds:
        values += structure.draws(mixture.covariances, np.array([donor]), rng)[0]
    return np.where(missing, values, row)
