"""Which classes the samples nearest to a row are of (Cover and Hart 1967).

Not in the paper. A density tells how far a row is from all samples of a class, as its kernels have
it: one width for all places, and each class has its own. Of which class the nearest samples are,
at whatever distance, needs neither, and few of them are never too sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skokde._engine._neighbors import votes_of_nearest
from skokde._engine.missing import by_known_features
from skokde._engine.mixture import Mixture
from skokde._engine.whitening import FactorFrame, Frame

# So many samples vote, or fewer if that takes more components than these: a row's own may be one.
N_NEAREST = 8
MOST_COMPONENTS = N_NEAREST + 1
# The shares of the classes among all samples vote as so many samples.
PRIOR_COUNT = 1.0
# Of the logarithms: the smaller they are, the more has to speak for a large exponent in the pool.
SCALE = 0.5
# From the center: what is farther is as if it were no farther, as a square must not overflow.
FARTHEST = 1e150


class Neighbors(NamedTuple):
    """The components of all classes.

    Attributes
    ----------
    frame : Frame or FactorFrame
        In which distances are taken.
    points : (k, d) array
        Means in its coordinates.
    counts : (k,) array
    codes : (k,) array of intp
        Numbers of the classes.
    shares : (n_classes,) array, sum one
        Of the classes among all samples.
    """

    frame: Frame | FactorFrame
    points: np.ndarray
    counts: np.ndarray
    codes: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(
        cls,
        mixtures: Sequence[Mixture],
        frame: Frame | FactorFrame,
        points: Sequence[np.ndarray] | None = None,
    ) -> Neighbors:
        """Of classes, none of which is empty, and the points of their components if known."""
        points = points or [points_of(mixture.means, frame) for mixture in mixtures]
        counts = np.concatenate([mixture.counts for mixture in mixtures])
        codes = np.repeat(np.arange(len(mixtures)), [m.n_components for m in mixtures])
        totals = np.bincount(codes, counts)
        return cls(frame, np.concatenate(points), counts, codes, totals / totals.sum())

    def marginal(self, features: np.ndarray) -> Neighbors:
        """By some of the features, an array of their numbers."""
        frame = self.frame.marginal(features)
        means = self.frame.points_back(self.points).take(features, axis=1)
        return self._replace(frame=frame, points=points_of(means, frame))

    def log_ratios(self, X: np.ndarray, own: np.ndarray | None = None) -> np.ndarray:
        """Logarithms of the classes' shares by votes, as ratios to those of all, and scaled.

        Parameters
        ----------
        X : (n, d) array
            NaN is missing.
        own : (n,) array of intp, default=None
            Classes of the rows that are among the samples, -1 for others: none has its own vote.

        Returns
        -------
        (n, n_classes) array
            Zero, where nothing is known of a row.
        """
        is_learned = np.zeros(len(X), dtype=bool) if own is None else own >= 0
        votes = np.empty((len(X), len(self.shares)))
        votes[~is_learned] = self._votes(X[~is_learned], N_NEAREST)
        if is_learned.any():
            of_learned, codes = self._votes(X[is_learned], N_NEAREST + 1), own[is_learned]
            of_learned[np.arange(len(codes)), codes] -= 1.0
            votes[is_learned] = np.maximum(of_learned, 0.0)
        totals = votes.sum(axis=1, keepdims=True) + PRIOR_COUNT
        return SCALE * np.log((votes / self.shares + PRIOR_COUNT) / totals)

    def _votes(self, X: np.ndarray, n_samples: int) -> np.ndarray:
        if np.isnan(X).any():
            return by_known_features(
                X, lambda f, rows: self.marginal(f)._votes(rows, n_samples), self.shares.shape
            )
        points = points_of(X, self.frame)
        return votes_of_nearest(
            points,
            self.points,
            self.counts,
            self.codes,
            len(self.shares),
            n_samples,
            MOST_COMPONENTS,
        )


def points_of(rows: np.ndarray, frame: Frame | FactorFrame) -> np.ndarray:
    """Points of rows in a frame, between which distances have squares."""
    return np.clip(frame.points(rows), -FARTHEST, FARTHEST)
