"""Shrinkage of a covariance that a class has too few samples for, to what all classes tell of it.

Samples have no spread at all in a feature that is constant in them, nor, if they are no more than
the features, in some directions of the correlated ones; and too little in others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skokde._engine.covariance import CovarianceStructure, Spectrum, structure_of
from skokde._engine.mixture import match_moments

# The target is never worth less, however many the samples: equal rows would have kernels ever
# narrower with their number, and rows next to them would go to any class with wider ones.
LEAST_SHARE = 1e-3
# So many samples for each feature spread in all directions in which the data do.
ENOUGH_FOR_SPREAD = 2


def shrink_covariance(covariance: np.ndarray, count: float, target: np.ndarray) -> np.ndarray:
    """Covariance of samples, shrunk to a target that is worth one observation for each feature.

    With fewer than d the conjugate prior of a (d, d) covariance, the inverse Wishart distribution,
    is improper: it is the weakest one that is a prior. A thousandth of it always stays.

    Parameters
    ----------
    covariance : (d, d) or (d,) array
        Of the samples.
    count : float
        Their number.
    target : array of the same shape
    """
    share = share_of_target(count, target.shape[-1])
    return structure_of(target[None]).shrunk(covariance, share, target)


def share_of_target(count: float, d: int) -> float:
    """What `shrink_covariance` replaces of a covariance of so many samples and features."""
    return max(d / (count + d), LEAST_SHARE)


def noise_of_correlations(square: float, d: int, count: float) -> float:
    """The share, from 0 to 1, of correlations that is due to the samples being so few.

    The oracle approximating shrinkage of the correlation matrix to the identity (Chen et al. 2010).

    Parameters
    ----------
    square : float
        Sum of the squares of the correlations.
    d : int
        Number of features.
    count : float
        Of the samples.
    """
    beyond = square - d
    if not beyond > 0.0:
        return 1.0
    part = 1.0 - 2.0 / d
    return float(min(1.0, max(part * square + d * d, 0.0) / ((max(count, 1.0) + part) * beyond)))


def noise_in(
    covariance: np.ndarray,
    count: float,
    structure: CovarianceStructure,
    spectrum: Spectrum | None = None,
) -> float:
    """The share of a covariance's correlations that is noise, see `noise_of_correlations`.

    Where samples are many enough, a direction without any spread is the data's own. It stays so:
    else it would have some, which depends on their number, and that is another in each class.

    Parameters
    ----------
    covariance : array
        In the layout of the structure.
    count : float
        Of the samples.
    structure : CovarianceStructure
    spectrum : Spectrum, default=None
        Of its correlations, where it is known.
    """
    d = covariance.shape[-1]
    if count >= ENOUGH_FOR_SPREAD * d:
        is_flat = spectrum.is_flat if spectrum else structure.has_flat_direction(covariance)
        if is_flat:
            return 0.0
    return noise_of_correlations(structure.squared_correlations(covariance), d, count)


def shrink_shares(shares: np.ndarray, count: float) -> np.ndarray:
    """Shares of classes, shrunk to equal ones as far as chance may be why they are not.

    The estimator of James and Stein for counts (Hausser and Strimmer 2009).

    Parameters
    ----------
    shares : (n_classes,) array, sum one
    count : float
        Of the samples.
    """
    equal = 1.0 / len(shares)
    apart = (count - 1.0) * np.square(shares - equal).sum()
    by_chance = 1.0 - np.square(shares).sum()
    part = by_chance / apart if apart > by_chance else 1.0
    return part * equal + (1.0 - part) * shares


def pooled_within_covariance(
    moments: Sequence[tuple[float, np.ndarray, np.ndarray]], *, keeps_noise: bool = False
) -> np.ndarray:
    """What the covariance of a class is shrunk to: the average within all of the classes.

    That is shrunk in turn, to the covariance of all data together: classes of one sample each have
    no spread but that between them. That has none in some directions, as long as samples are no
    more than features, unless its correlations are shrunk as well.

    Parameters
    ----------
    moments : sequence of (float, (d,) array, (d, d) or (d,) array)
        Count, mean and covariance of each class, none empty.
    keeps_noise : bool, default=False
        Whether the correlations of all data stay as they are.

    Returns
    -------
    (d, d) or (d,) array
        Zero for features that are constant in all data.
    """
    counts, means, covariances = (np.array(arrays) for arrays in zip(*moments, strict=True))
    total, _, whole = match_moments(counts, means, covariances)
    structure = structure_of(covariances)
    within = structure.weighted_sum(counts / total, covariances)
    if not keeps_noise:
        noise = noise_in(whole, total, structure)
        whole = structure.with_less_correlation(whole, noise)
    return shrink_covariance(within, total, whole)
