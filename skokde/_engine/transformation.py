"""Coordinates in which features are about normal: inverse hyperbolic sines of them.

Not in the paper. Kernels are as wide in a feature's tail as in its bulk. Where it spans magnitudes,
as variances and sums do, each width is too narrow for the one or too wide for the other. In
y = arsinh((x - center) / scale) steps are those of x near the center, and relative ones far from
it, as in logarithms (transformation kernel density estimates, Wand, Marron and Ruppert 1991). For
some center and scale that makes Johnson's S_U distributions normal, which have tails of any length
and skewness (Johnson 1949).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from scipy.special import ndtr

from skokde._engine.covariance import positive, structure_of
from skokde._engine.mixture import Mixture, match_moments
from skokde._engine.outliers import Moments, inlier_moments
from skokde._engine.shrinkage import pooled_within_covariance
from skokde._engine.whitening import constant_features

# The levels of four quantiles, evenly spaced in a normal distribution (Slifker and Shapiro 1980).
LEVELS = ndtr(0.524 * np.array([-3.0, -1.0, 1.0, 3.0]))
# The product of both outer distances between them is this many times the square of the inner one,
# at least: it is one in normal and lognormal distributions, whose scale would be infinite.
LEAST_PRODUCT = 1.2
# In standard deviations: quantiles that are nearer are the same.
SMALLEST_DISTANCE = 1e-9
# In units of the scale: what is farther out is as if it were no farther.
FARTHEST = 1e300
# What is nearer has densities in the data's coordinates, too: squares of it do not overflow.
FAR = 1e100


class TransformedRows(NamedTuple):
    """Rows in the coordinates of a transformation.

    Attributes
    ----------
    rows : (n, d) array
        What is missing is NaN.
    log_dets : (n,) array
        Logarithms of |dy / dx|, of what is known and is not constant.
    """

    rows: np.ndarray
    log_dets: np.ndarray

    def part(self, chosen: np.ndarray) -> TransformedRows:
        """Some of the rows, by an array of their numbers."""
        return TransformedRows(self.rows[chosen], self.log_dets[chosen])


class Transformation(NamedTuple):
    """Coordinates y = arsinh((x - center) / scale), the same for all classes.

    Attributes
    ----------
    center, scale : (d,) arrays
        Of all data; the scale of constant features, which are zero in these coordinates, is
        infinite.
    covariance : (d, d) or (d,) array
        Within the classes, in these coordinates.
    """

    center: np.ndarray
    scale: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, mixtures: Sequence[Mixture], moments: Sequence[Moments] | None = None) -> Self:
        """For classes, none of which is empty, and their moments without outliers if known."""
        moments = moments or [inlier_moments(mixture) for mixture in mixtures]
        arrays = (np.array(of_classes) for of_classes in zip(*moments, strict=True))
        _, mean, covariance = match_moments(*arrays)
        deviations = np.sqrt(structure_of(covariance[None]).variances(covariance))
        counts, points = map(np.concatenate, zip(*map(as_points, mixtures), strict=True))
        center, scale = johnson(quantiles(points, counts), deviations)
        scale = np.where(constant_features(mean, covariance), np.inf, scale)
        new = cls(center, scale, covariance)
        within = pooled_within_covariance([inlier_moments(new.mixture(m)) for m in mixtures])
        return new._replace(covariance=within)

    def _standardized(self, X: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            standardized = (X - self.center) / self.scale
        # numpy.clip takes three times as long for a single row.
        return np.maximum(np.minimum(standardized, FARTHEST), -FARTHEST)

    def rows(self, X: np.ndarray) -> np.ndarray:
        """Rows of any number of dimensions in these coordinates; what is missing stays NaN."""
        return np.arcsinh(self._standardized(X))

    def of_rows(self, X: np.ndarray) -> TransformedRows:
        """Rows (n, d) in these coordinates, and how much longer what is next to them becomes."""
        standardized = self._standardized(X)
        scale = np.where(self.scale < np.inf, self.scale, 1.0)
        slopes = np.log(np.hypot(1.0, standardized)) + np.log(scale)
        missing = np.isnan(slopes)
        if missing.any():
            slopes[missing] = 0.0
        return TransformedRows(np.arcsinh(standardized), -slopes.sum(axis=1))

    def may_be_nowhere(self, X: np.ndarray) -> np.ndarray:
        """Rows (n,) that may be too far out for densities in the data's coordinates."""
        far = np.abs(self._standardized(X)) > FAR
        changed = (self.scale == np.inf) & (self.center != X) & ~np.isnan(X)
        return (far | changed).any(axis=1)

    def mixture(self, mixture: Mixture) -> Mixture:
        """Means and covariances in these coordinates; the detailed model stays as it is.

        They are those of the parabola through the coordinates of a compound's mean and of a
        standard deviation to either side of it, feature by feature. Of low rank, correlations are
        those of its slope.
        """
        structure, m = structure_of(mixture.covariances), mixture.n_compounds
        means, covariances = self.rows(mixture.means), mixture.covariances
        if m:
            deviations = np.sqrt(structure.variances(covariances))
            below, above = (self.rows(mixture.means[:m] + sign * deviations) for sign in (-1, 1))
            bends = above + below - 2.0 * means[:m]
            means[:m] = 0.5 * (below + above)
            correlations = structure.rescale(covariances, 1.0 / positive(deviations))
            # Of squares of normal variables the covariance is twice the squared correlation.
            covariances = structure.rescale(correlations, 0.5 * (above - below))
            covariances += 0.5 * structure.rescale(structure.squared(correlations), bends)
        return mixture._replace(means=means, covariances=covariances)


def quantiles(points: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Quantiles (4, d) at `LEVELS` of points (n, d) that stand for so many each.

    Between two points, where there is none: with the sign of the points they change theirs alone.
    """
    up, down = (
        np.quantile(sign * points, LEVELS, axis=0, weights=counts, method="inverted_cdf")
        for sign in (1, -1)
    )
    return 0.5 * up - 0.5 * down[::-1]


def johnson(quantiles: np.ndarray, deviations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Center and scale (d,) of the distributions S_U with quantiles (4, d) at `LEVELS`.

    Where tails are shorter than these have, the shortest are taken, and where some quantiles are
    the same, the middle and the standard deviation (d,).
    """
    lower, inner, upper = np.diff(quantiles, axis=0)
    apart = np.min([lower, inner, upper], axis=0) > SMALLEST_DISTANCE * deviations
    lower, upper = (
        np.where(apart, tail, 1.0) / np.where(apart, inner, 1.0) for tail in (lower, upper)
    )
    longer = np.sqrt(np.maximum(1.0, LEAST_PRODUCT / (lower * upper)))
    lower, upper = longer * lower, longer * upper
    excess = lower + upper - 2.0
    scale = 2.0 * inner * np.sqrt(lower * upper - 1.0) / (excess * np.sqrt(excess + 4.0))
    center = 0.5 * (quantiles[1] + quantiles[2])
    shift = 0.5 * inner * (lower - upper) / excess
    return np.where(apart, center + shift, center), np.where(apart, scale, deviations)


def as_points(mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
    """Counts and places of points of about the same quantiles as a mixture, feature by feature."""
    (counts, means, covariances), m = mixture.sample_model, mixture.n_compounds
    deviations = np.sqrt(structure_of(covariances).variances(covariances))
    halves = 0.5 * counts[:m]
    return (
        np.concatenate([halves, halves, counts[m:]]),
        np.concatenate([means[:m] - deviations, means[:m] + deviations, means[m:]]),
    )
