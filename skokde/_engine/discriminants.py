"""Discriminants: what tells classes apart by their means and scales alone.

Not in the paper. Few samples tell more of what all classes have in common than of each. A linear
discriminant takes the covariance to be the same in all of them: it has the mean of each, and heavy
tails, which bound what a row far out says. There is one of all samples, and one for each short
memory that is long enough. Classes that differ by how widely they spread, such as one around
another, have the same means; so there is a term for one scale of each class, in the coordinates in
which the covariance within the classes is the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from skokde._engine.covariance import CovarianceStructure
from skokde._engine.missing import by_known_features
from skokde._engine.outliers import Moments
from skokde._engine.shrinkage import pooled_within_covariance, share_of_target, shrink_covariance
from skokde._engine.whitening import FactorFrame, Frame, frame_of

# Of the t distributions.
DEGREES_OF_FREEDOM = 3.0
# From the mean of a class, in standard deviations.
FARTHEST_MEAN = 1e150
# Scales are those of normal distributions, whose tails data hardly ever have: a row is as if it
# were no farther than the mean square distance and so many of its standard deviations.
FARTHEST_SQUARE = 3.0
# The covariance within the classes is that of some rows before. Where what deviates from their
# means is so many times as much it is found anew: a feature was constant, or outliers are none now.
OUTDATED = 2.0


class Discriminant(NamedTuple):
    """A linear discriminant: t distributions with the means of the classes.

    Attributes
    ----------
    frame : Frame or FactorFrame
        In which the covariance within the classes is the identity.
    means : (n_classes, d) array
        In its coordinates.
    """

    frame: Frame | FactorFrame
    means: np.ndarray

    @classmethod
    def of(
        cls, means: np.ndarray, covariance: np.ndarray, structure: CovarianceStructure
    ) -> Discriminant:
        """Of the means (n_classes, d) of the classes, and the covariance within them."""
        frame = frame_of(means.mean(axis=0), covariance, structure)
        return cls(frame, frame.points(means))

    @classmethod
    def of_moments(
        cls, moments: Sequence[Moments], covariance: np.ndarray, structure: CovarianceStructure
    ) -> Discriminant:
        """The same of the moments of each class."""
        return cls.of(np.array([mean for _, mean, _ in moments]), covariance, structure)

    def marginal(self, features: np.ndarray) -> Discriminant:
        """Of some of the features, by an array of their numbers."""
        frame = self.frame.marginal(features)
        means = self.frame.points_back(self.means).take(features, axis=1)
        return Discriminant(frame, frame.points(means))

    def squares(self, X: np.ndarray) -> np.ndarray:
        """Square distances (n, n_classes) of rows of which all is known from the means."""
        # Farther than this all are alike: a square must not overflow.
        return np.minimum(cdist(self.frame.points(X), self.means), FARTHEST_MEAN) ** 2


class Discriminants(NamedTuple):
    """All that tells classes apart by means and scales.

    Attributes
    ----------
    linear : tuple of Discriminant
        Of all samples, and of each short memory that is long enough.
    counts : (n_classes,) array
        Of all samples.
    scales : (n_classes,) array
        Of all samples: mean squares of what deviates from the mean of a class, in the coordinates
        in which they are one on average.
    """

    linear: tuple[Discriminant, ...]
    counts: np.ndarray
    scales: np.ndarray

    @classmethod
    def of(
        cls,
        moments: Sequence[Sequence[Moments]],
        covariance: np.ndarray,
        structure: CovarianceStructure,
    ) -> Discriminants:
        """Of the moments of each class, and what they share.

        Parameters
        ----------
        moments : sequence of sequences of (float, (d,) array, (d, d) or (d,) array)
            Of each class, of all its samples and of those in each memory.
        covariance : (d, d) or (d,) array
            Within the classes, of all samples.
        structure : CovarianceStructure
        """
        of_all, *of_memories = zip(*moments, strict=True)
        of_samples = cls.of_samples(of_all, covariance, structure)
        return of_samples.with_memories(of_memories, covariance, structure)

    @classmethod
    def of_samples(
        cls, moments: Sequence[Moments], covariance: np.ndarray, structure: CovarianceStructure
    ) -> Discriminants:
        """Of the moments of all samples of each class, without memories."""
        counts = np.array([count for count, *_ in moments])
        linear = Discriminant.of_moments(moments, covariance, structure)
        scales = class_scales(moments, linear.frame)
        if counts @ scales > OUTDATED * counts.sum():
            latest = pooled_within_covariance(moments)
            linear = Discriminant.of_moments(moments, latest, structure)
            scales = class_scales(moments, linear.frame)
        return cls((linear,), counts, scales)

    def with_memories(
        self,
        moments: Sequence[Sequence[Moments]],
        covariance: np.ndarray,
        structure: CovarianceStructure,
    ) -> Discriminants:
        """With those of memories, by the moments of each class in each of them."""
        linear = list(self.linear)
        for of_memory in moments:
            within = covariance_within_memory(of_memory, covariance)
            linear.append(Discriminant.of_moments(of_memory, within, structure))
        return self._replace(linear=tuple(linear))

    def marginal(self, features: np.ndarray) -> Discriminants:
        """Of some of the features, by an array of their numbers."""
        return self._replace(linear=tuple(of.marginal(features) for of in self.linear))

    def log_ratios(self, X: np.ndarray) -> np.ndarray:
        """What is pooled of them (1 + n_linear, n, n_classes): that of scales stands last.

        Parameters
        ----------
        X : (n, d) array
            NaN is missing.
        """
        if np.isnan(X).any():
            shape = (1 + len(self.linear), len(self.scales))

            def of_known(features: np.ndarray, rows: np.ndarray) -> np.ndarray:
                return self.marginal(features).log_ratios(rows).swapaxes(0, 1)

            return by_known_features(X, of_known, shape).swapaxes(0, 1)
        squares, d = [of.squares(X) for of in self.linear], X.shape[1]
        logs = [log_t_densities(of, d) for of in squares]
        return np.array([*logs, log_ratios_by_scale(squares[0], self.scales, d)])


def log_t_densities(squares: np.ndarray, d: int) -> np.ndarray:
    """Logarithms of t distributions in d features at square distances, but for a constant."""
    return -0.5 * (DEGREES_OF_FREEDOM + d) * np.log(1.0 + squares / DEGREES_OF_FREEDOM)


def log_ratios_by_scale(squares: np.ndarray, scales: np.ndarray, d: int) -> np.ndarray:
    """By how much rows are more likely with the scales of their classes than with one of all.

    Parameters
    ----------
    squares : (n, n_classes) array
        Distances from the means, in the coordinates of the scales.
    scales : (n_classes,) array
        Variances in each direction, of normal distributions.
    d : int
        Number of features.

    Returns
    -------
    (n, n_classes) array
        In nats.
    """
    squares = np.minimum(squares, d + FARTHEST_SQUARE * sqrt(2.0 * d))
    return 0.5 * (squares * (1.0 - 1.0 / scales) - d * np.log(scales))


def class_scales(moments: Sequence[Moments], frame: Frame | FactorFrame) -> np.ndarray:
    """Mean squares (n_classes,) of the coordinates of each class, about its mean.

    They are shrunk to one as covariances are to what they are compared with.
    """
    shares = np.array([share_of_target(count, len(mean)) for count, mean, _ in moments])
    squares = frame.mean_squares(np.array([covariance for *_, covariance in moments]))
    return (1.0 - shares) * squares + shares


def covariance_within_memory(moments: Sequence[Moments], covariance: np.ndarray) -> np.ndarray:
    """The covariance within classes of a short memory.

    Parameters
    ----------
    moments : sequence of (float, (d,) array, (d, d) or (d,) array)
        Of each class.
    covariance : (d, d) or (d,) array
        Of all samples, as it was last found.
    """
    latest = pooled_within_covariance(moments)
    return shrink_covariance(latest, sum(count for count, *_ in moments), covariance)
