"""The distribution object: each question is answered in the file of its name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skokde.distribution import conditioning, regions, sampling
from skokde.distribution import modes as hills
from skokde.distribution._gaussians import (
    Dimensions,
    Estimate,
    Gaussians,
    RandomState,
    points_of,
)
from skokde.distribution.conditioning import GaussianMixtureFamily
from skokde.distribution.modes import Modes


@dataclass(frozen=True, eq=False, repr=False)
class GaussianMixtureDistribution(Gaussians):
    """A mixture of Gaussians, with the names of :data:`scipy.stats.multivariate_normal`.

    What fitted estimators give by their method ``distribution``; it can be made by hand, too. It is
    frozen: its arrays are read-only, and it does not change when the estimator learns.

    Parameters
    ----------
    weights : array-like of shape (n_components,)
        Not negative; their sum is one.
    means : array-like of shape (n_components, n_features)
    covariances : array-like of shape (k, n_features, n_features) or (k, n_features)
        Positive definite, of k = n_components; the latter are variances of features that are
        independent within each component.
    feature_names : sequence of str, default=None
        With them, features can be given by name.

    Attributes
    ----------
    n_components, n_features : int
    mean : ndarray of shape (n_features,)
    cov : ndarray of shape (n_features, n_features)

    Raises
    ------
    ValueError
        For arrays that do not belong together, or are not those of a mixture.

    Examples
    --------
    >>> from skokde.distribution import GaussianMixtureDistribution
    >>> mixture = GaussianMixtureDistribution([0.5, 0.5], [[-2.0], [2.0]], [[1.0], [1.0]])
    >>> mixture.mean, mixture.cov
    (array([0.]), array([[5.]]))
    >>> mixture.cdf([-2.0, 0.0]).round(3)
    array([0.25, 0.5 ])
    >>> mixture.ppf([0.25, 0.75]).round(3)
    array([-2.,  2.])
    """

    # --------------------------------------------------------------------- draws and marginals

    def rvs(self, size: int | tuple[int, ...] = 1, random_state: RandomState = None) -> Any:
        """Independent draws.

        Parameters
        ----------
        size : int or tuple of int, default=1
        random_state : int, RandomState, Generator or None, default=None

        Returns
        -------
        float or ndarray of shape size + (n_features,)
            Squeezed, as SciPy does.

        Examples
        --------
        >>> from skokde.distribution import GaussianMixtureDistribution
        >>> mixture = GaussianMixtureDistribution([1.0], [[0.0, 50.0]], [[1.0, 1.0]])
        >>> mixture.rvs(3, random_state=0).shape
        (3, 2)
        """
        shape = (size,) if isinstance(size, Integral) else tuple(size)
        found = sampling.draws(self, int(np.prod(shape)), random_state)
        return found.reshape(*shape, self.n_features).squeeze()[()]

    def entropy(self, n_samples: int = 10_000, random_state: RandomState = None) -> Estimate:
        """Differential entropy, in nats.

        Parameters
        ----------
        n_samples : int, default=10000
            Draws that it is estimated from; of a single Gaussian it is known exactly.
        random_state : int, RandomState, Generator or None, default=None

        Returns
        -------
        Estimate
        """
        return sampling.entropy(self, n_samples, random_state)

    def marginal(self, dimensions: Dimensions) -> GaussianMixtureDistribution:
        """Distribution of some of the features.

        Parameters
        ----------
        dimensions : int, str or sequence of them
            In the order in which they are wanted; from -1 on they count from the end.

        Raises
        ------
        ValueError, TypeError
            For features that are not there, or are there twice.

        Examples
        --------
        >>> from skokde.distribution import GaussianMixtureDistribution
        >>> mixture = GaussianMixtureDistribution([1.0], [[0.0, 50.0]], [[1.0, 4.0]])
        >>> mixture.marginal(1).mean
        array([50.])
        """
        return conditioning.marginal(self, self.numbers_of(dimensions))

    def conditional(
        self, dimensions: Dimensions, values: ArrayLike
    ) -> GaussianMixtureDistribution | GaussianMixtureFamily:
        """Distribution of the other features where some are known.

        Parameters
        ----------
        dimensions : int, str or sequence of them
            Those that are known.
        values : float or array-like of shape (n_dimensions,) or (n_rows, n_dimensions)
            What they are, however far out.

        Returns
        -------
        GaussianMixtureDistribution or GaussianMixtureFamily
            Of the other features, in their order; a family, with one distribution for each row,
            where there are rows of values.

        Raises
        ------
        ValueError, TypeError
            For features that are not there or are there twice, if none is left, or for values that
            are not finite or do not fit.

        Examples
        --------
        >>> from skokde.distribution import GaussianMixtureDistribution
        >>> mixture = GaussianMixtureDistribution(
        ...     [0.5, 0.5], [[0.0, 0.0], [9.0, 5.0]], [[[1.0, 0.5], [0.5, 1.0]]] * 2
        ... )
        >>> mixture.conditional(0, 1.0).mean.round(3)
        array([0.5])
        >>> mixture.conditional(0, [[1.0], [9.0]]).mean.round(3)
        array([[0.5],
               [5. ]])
        """
        return conditioning.conditional(self, self.numbers_of(dimensions), values)

    # --------------------------------------------------------------------------------- regions

    def cdf(self, x: ArrayLike, *, lower_limit: ArrayLike | None = None) -> Any:
        """Probability of all that is below x in each feature.

        Parameters
        ----------
        x : array-like of shape (..., n_features)
            In one dimension of shape (n,), too. May be infinite.
        lower_limit : array-like that broadcasts with x, default=None
            From where on; by default from -inf.

        Returns
        -------
        float or ndarray of shape (...)
            Exact to rounding in one dimension and for diagonal covariances; else the sum of what
            :data:`scipy.stats.multivariate_normal` estimates for each component, with an error of
            some 1e-5.
        """
        return regions.cdf(self, x, lower_limit)

    def integrate_box(self, low_bounds: ArrayLike, high_bounds: ArrayLike) -> float:
        """Probability of a box, see `cdf`.

        Parameters
        ----------
        low_bounds, high_bounds : array-like of shape (n_features,)
            May be infinite. Where one is above the other the sign turns, as that of an integral.
        """
        low, high = np.broadcast_arrays(low_bounds, high_bounds)
        return float(np.squeeze(self.cdf(high, lower_limit=low)))

    def ppf(self, q: ArrayLike) -> Any:
        """Quantiles, in one dimension.

        Parameters
        ----------
        q : array-like
            Probabilities from 0 to 1.

        Returns
        -------
        float or ndarray of the shape of q
            To some 1e-13 of the spread, or of their own size.

        Raises
        ------
        ValueError
            In more than one dimension: take a marginal.
        """
        return regions.ppf(self, q)

    def highest_density_threshold(
        self, prob: float, n_samples: int = 10_000, random_state: RandomState = None
    ) -> Estimate:
        """Log-density above which there is so much probability: the edge of the smallest region.

        Parameters
        ----------
        prob : float
            Between 0 and 1. The region may have many parts.
        n_samples : int, default=10000
            Draws that it is estimated from; of a single Gaussian it is known exactly.
        random_state : int, RandomState, Generator or None, default=None

        Returns
        -------
        Estimate
            In nats.

        Examples
        --------
        >>> from skokde.distribution import GaussianMixtureDistribution
        >>> mixture = GaussianMixtureDistribution([0.5, 0.5], [[-9.0], [9.0]], [[1.0], [1.0]])
        >>> threshold = mixture.highest_density_threshold(0.9, random_state=0).value
        >>> mixture.logpdf([-9.0, 0.0, 9.0]) > threshold
        array([ True, False,  True])
        """
        return regions.highest_density_threshold(self, prob, n_samples, random_state)

    # ----------------------------------------------------------------------------------- modes

    def modes(self) -> Modes:
        """Local maxima of the density, the highest first.

        Returns
        -------
        Modes
            Points, log-densities, and Hessians of the log-density. There may be fewer than there
            are components, or more. They are those uphill from any mean and from that of the whole;
            of up to 32 components, also from where any two cross. Others are rare, and may be
            missed.
        """
        return self._modes

    def assign(self, x: ArrayLike) -> Any:
        """Number of the mode that is uphill from each point: clusters without their number.

        Parameters
        ----------
        x : array-like of shape (..., n_features)

        Returns
        -------
        int or ndarray of shape (...)
            See `modes` for their order. The way uphill goes by steps that are not short: near a
            watershed it may end on the other side.
        """
        points, shape = points_of(x, self.n_features)
        if not np.isfinite(points).all():
            raise ValueError("x must be finite: nothing is uphill from infinity.")
        return hills.assign(self, points, self._modes).reshape(shape)[()]

    @cached_property
    def _modes(self) -> Modes:
        return hills.modes(self)
