"""Which classes the samples nearest to a row are of (Cover and Hart 1967).

Not in the paper. A density tells how far a row is from all samples of a class, as its kernels have
it: one width for all places, and each class has its own. Of which class the nearest samples are,
at whatever distance, needs neither, and few of them are never too sure. They vote by kernels that
all classes share, and whose width is in proportion to the distance of the nearest ones. What
proportion is best depends on the data: narrow kernels are, where classes hardly overlap or features
are many, whose distances differ little, and wide ones where many samples together tell more than
the nearest. Both vote.

Distances are of two kinds. In one each feature counts by itself, in the other, if covariances have
correlations, what is whitened by that within the classes. Both count for more along features, or
directions, in which the classes' means differ, as in discriminant adaptive neighborhoods (Hastie
and Tibshirani 1996): samples that differ in others are as good. What else features are worth,
`feature_weights` learns. All samples vote by both, as components; the newest ones, or a sample of
rows, vote by features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from skokde._engine._neighbors import votes_of_near
from skokde._engine.discriminants import Discriminant
from skokde._engine.missing import by_known_features
from skokde._engine.mixture import Mixture
from skokde._engine.whitening import FactorFrame, Frame

# What is near goes by so many samples, in no more components. There are no more votes.
N_NEAREST = 8
# Of the widest kernels by which samples vote, as a share of the distance up to which these are, and
# how many there are, each half as wide as the next. Each is a vote of its own.
VOTE_WIDTH = 1 / 2
N_VOTE_WIDTHS = 2
# The shares of the classes among all samples vote as so many samples.
PRIOR_COUNT = 0.1
# From the center: what is farther is as if it were no farther, as a square must not overflow.
FARTHEST = 1e150
TINY = np.finfo(float).tiny
# Of the classes' means, in standard deviations within the classes: a square distance counts for
# twice as much along a direction in which they spread by this.
DOUBLED_AT = 0.2


class NeighborMetric(NamedTuple):
    """Coordinates whose distances tell how near samples are.

    Attributes
    ----------
    discriminant : Discriminant
        Of all samples.
    counts : (n_classes,) array
        Of its classes.
    weights : (d,) array or None
        Of the features, besides how far the means of the classes spread along them. None for
        coordinates in which the covariance within the classes is the identity, stretched along
        directions in which these means spread.
    frame : Frame or FactorFrame
    """

    discriminant: Discriminant
    counts: np.ndarray
    weights: np.ndarray | None
    frame: Frame | FactorFrame

    @classmethod
    def of(
        cls, discriminant: Discriminant, counts: np.ndarray, weights: np.ndarray | None = None
    ) -> Self:
        """From the means of the classes, and how many samples (n_classes,) each has."""
        frame, shares = discriminant.frame, counts / counts.sum()
        if weights is None:
            deviations = deviations_from_average(discriminant.means, shares)
            _, spreads, directions = np.linalg.svd(deviations, full_matrices=False)
            stretched = frame.stretched(stretch(spreads), directions)
        else:
            of_features = frame.of_features()
            means = of_features.points(frame.points_back(discriminant.means))
            spreads = np.linalg.norm(deviations_from_average(means, shares), axis=0)
            stretched = of_features.stretched(weights * stretch(spreads))
        return cls(discriminant, counts, weights, stretched)

    def marginal(self, features: np.ndarray) -> Self:
        """By some of the features, an array of their numbers."""
        weights = None if self.weights is None else self.weights[features]
        return self.of(self.discriminant.marginal(features), self.counts, weights)

    def points(self, X: np.ndarray) -> np.ndarray:
        """Points of any rows."""
        return np.clip(self.frame.points(X), -FARTHEST, FARTHEST)


def deviations_from_average(means: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Of the means (n_classes, d) of classes, so that their squares sum to the variance."""
    return np.sqrt(shares)[:, None] * (means - shares @ means)


def stretch(spreads: np.ndarray) -> np.ndarray:
    """Factors of coordinates, by the standard deviations of the classes' means along them."""
    return np.sqrt(1.0 + spreads / DOUBLED_AT)


class Neighbors(NamedTuple):
    """The components of all classes, or rows of them.

    Attributes
    ----------
    metric : NeighborMetric
    points : (k, d) array
        Means in its coordinates.
    counts : (k,) array
    codes : (k,) array of intp
        Numbers of the classes.
    shares : (n_classes,) array, sum one
        Of the classes among these samples.
    """

    metric: NeighborMetric
    points: np.ndarray
    counts: np.ndarray
    codes: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(
        cls,
        mixtures: Sequence[Mixture],
        metric: NeighborMetric,
        points: Sequence[np.ndarray] | None = None,
    ) -> Neighbors:
        """Of classes, none of which is empty, and the points of their components if known."""
        points = points or [metric.points(mixture.means) for mixture in mixtures]
        counts = np.concatenate([mixture.counts for mixture in mixtures])
        codes = np.repeat(np.arange(len(mixtures)), [m.n_components for m in mixtures])
        return cls._of_points(metric, np.concatenate(points), counts, codes, len(mixtures))

    @classmethod
    def of_rows(
        cls,
        X: np.ndarray,
        counts: np.ndarray,
        codes: np.ndarray,
        n_classes: int,
        metric: NeighborMetric,
    ) -> Neighbors:
        """Of rows (n, d) that stand for so many samples (n,) each; a class may be without any."""
        return cls._of_points(metric, metric.points(X), counts, codes, n_classes)

    @classmethod
    def _of_points(
        cls,
        metric: NeighborMetric,
        points: np.ndarray,
        counts: np.ndarray,
        codes: np.ndarray,
        n_classes: int,
    ) -> Neighbors:
        totals = np.bincount(codes, counts, minlength=n_classes)
        return cls(metric, points, counts, codes, totals / max(totals.sum(), TINY))

    def marginal(self, features: np.ndarray) -> Neighbors:
        """By some of the features, an array of their numbers."""
        metric = self.metric.marginal(features)
        means = self.metric.frame.points_back(self.points).take(features, axis=1)
        return self._replace(metric=metric, points=metric.points(means))

    def log_ratios(self, X: np.ndarray, own: np.ndarray | None = None) -> np.ndarray:
        """Logarithms of the classes' shares by votes, as ratios to those of all.

        Parameters
        ----------
        X : (n, d) array
            NaN is missing.
        own : (n,) array of intp, default=None
            Classes of the rows that are among the samples, -1 for others: none has its own vote.

        Returns
        -------
        (n_widths, n, n_classes) array
            Zero, where nothing is known of a row, and for classes without a sample.
        """
        own = np.full(len(X), -1) if own is None else own
        votes = self._votes(X, own).transpose(1, 0, 2)
        ratios, seen = np.zeros(votes.shape), self.shares > 0.0
        totals = votes.sum(axis=2, keepdims=True) + PRIOR_COUNT
        ratios[..., seen] = np.log((votes[..., seen] / self.shares[seen] + PRIOR_COUNT) / totals)
        return ratios

    def _votes(self, X: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Votes (n, n_widths, n_classes) for the classes."""
        shape = N_VOTE_WIDTHS, len(self.shares)
        if not len(self.points):
            return np.zeros((len(X), *shape))
        if np.isnan(X).any():

            def of_known(features: np.ndarray, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
                # The marginal of all features differs by rounding.
                known = self if len(features) == X.shape[1] else self.marginal(features)
                return known._votes(rows, own)

            return by_known_features(X, of_known, shape, own)
        return votes_of_near(
            self.metric.points(X),
            self.points,
            self.counts,
            self.codes,
            own,
            len(self.shares),
            N_NEAREST,
            N_NEAREST,
            VOTE_WIDTH,
            N_VOTE_WIDTHS,
        )
