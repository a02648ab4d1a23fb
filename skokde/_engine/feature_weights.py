"""Weights of features in distances, by which samples of the same class are near to each other.

Not in the paper. Means and variances do not tell how much of a feature matters between samples that
are near to each other: it may be noise there, or tell classes apart that have the same mean.
Neighborhood components analysis (Goldberger et al. 2005) finds the distances by which the votes of
near samples predict best of which class each of them is, without its own vote; here it is confined
to one weight for each feature.

Points are in units of the features' deviations within the classes: whatever a feature is measured
in makes no difference. Where all may be measured in the same units, those that vary by little, as
pixels at the edge do, often tell little. Then weights may go some of the way back to the units of
the data, or all of it, without being less probable before any prediction.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from scipy.optimize import minimize

from skokde._engine._feature_weights import loss_of_votes
from skokde._engine._neighbors import nearest_components
from skokde._engine.neighbors import N_NEAREST, PRIOR_COUNT, TINY, Neighbors
from skokde._engine.whitening import Frame

# At most so many components are predicted, each by the votes of so many that are next to it; fewer
# where there are hundreds of features, in all of which they differ: so many numbers are held.
MOST_PREDICTED = 1024
N_VOTERS = 12
MOST_DIFFERENCES = 1_000_000
# Of the kernels by which they vote, between the widths by which samples vote for classes.
WIDTH = 1 / 3
# Logarithms of weights have a standard normal distribution before any prediction, about zero or
# what leads back to the units of the data, and are never farther from zero than this. They change
# by no more than so much at a time, since samples that were far by the weights before are left out:
# nothing would tell that they come near.
FARTHEST_LOG = 5.0
LARGEST_CHANGE = 0.5
# So many steps are made, or fewer, if one lessens the loss by no more than this share of it.
MOST_STEPS = 8
LEAST_GAIN = 1e-3
# Few samples may have told what is wrong, and what is near by that says nothing else. So weights
# are learned from equal ones, too, which may change by so much; but not where the loss is less than
# this share of that of the classes' shares alone. They are taken if they have less than so much of
# the loss of the weights before.
LARGEST_FIRST_CHANGE = 1.0
PREDICTED_WELL = 0.1
CLEARLY_LESS = 0.8
# Points are no farther out than this: what is that far tells nothing of features, but squares of it
# must not be all that counts.
FARTHEST_POINT = 1e6
# Samples that are no farther from each other, in variances within the classes, are in one place.
SMALLEST_VARIANCE = 1e-12


def learn_feature_weights(
    neighbors: Neighbors, weights: np.ndarray | None = None, *, common_units: bool = False
) -> np.ndarray:
    """Factors (d,) of points, whose product is one, by which near samples predict better.

    Which samples are near depends on them: learned again and again they come to predict best.

    Parameters
    ----------
    neighbors : Neighbors
        In coordinates each of which is one of the features.
    weights : (d,) array, default=None
        What they were before, if anything.
    common_units : bool, default=False
        Whether the features may be measured in the same units.
    """
    order = classes_in_turns(neighbors.codes)
    counts, codes = neighbors.counts[order], neighbors.codes[order]
    points = np.clip(neighbors.points[order], -FARTHEST_POINT, FARTHEST_POINT)
    neighbors = neighbors._replace(points=points, counts=counts, codes=codes)
    n, d = points.shape
    equal = np.zeros(d)
    logs = equal if weights is None else np.log(weights)
    if n < 2 or d < 2:
        return np.exp(logs)
    of_units = logs_of_units(neighbors.metric.frame) if common_units else equal
    near = Predictions.of(logs, neighbors, of_units)
    if weights is None:
        return np.exp(near.improved(equal, LARGEST_FIRST_CHANGE))
    loss, _ = near.loss(logs)
    if loss > PREDICTED_WELL * near.loss_by_shares:
        anew = Predictions.of(equal, neighbors, of_units).improved(equal, LARGEST_FIRST_CHANGE)
        loss_anew, _ = Predictions.of(anew, neighbors, of_units).loss(anew)
        if loss_anew < CLEARLY_LESS * loss:
            return np.exp(anew)
    return np.exp(near.improved(logs, LARGEST_CHANGE))


class Predictions(NamedTuple):
    """Of the classes of some samples, by votes of those that are near by some weights of features.

    Attributes
    ----------
    squares, counts, agree, precisions, prior, times : arrays
        See `loss_of_votes`.
    of_units : (d,) array
        Logarithms of weights; any share of them is as probable as none, before any prediction.
    """

    squares: np.ndarray
    counts: np.ndarray
    agree: np.ndarray
    precisions: np.ndarray
    prior: np.ndarray
    times: np.ndarray
    of_units: np.ndarray

    @classmethod
    def of(cls, logs: np.ndarray, neighbors: Neighbors, of_units: np.ndarray) -> Self:
        """Of some of the samples, by logarithms (d,) of weights of the points' coordinates."""
        points, n, d = neighbors.points, *neighbors.points.shape
        most = min(MOST_PREDICTED, 1 + MOST_DIFFERENCES // (N_VOTERS * d))
        some = np.linspace(0, n - 1, min(n, most)).astype(np.intp)
        voters, counts, precisions = nearest_voters(points * np.exp(logs), neighbors.counts, some)
        codes = neighbors.codes
        return cls(
            np.square(points[some, None] - points[voters]),
            counts,
            codes[voters] == codes[some, None],
            precisions,
            PRIOR_COUNT * neighbors.shares[codes[some]],
            neighbors.counts[some],
            of_units,
        )

    @property
    def loss_by_shares(self) -> float:
        """What the loss is if nothing is near to any of the samples, in nats."""
        return -float(self.times @ np.log(np.maximum(self.prior / PRIOR_COUNT, TINY)))

    def loss(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Of the predictions by other weights and of their prior, in nats, and its gradient."""
        *of_votes, of_units = self
        factors = np.exp(2.0 * logs)
        value, slopes = loss_of_votes(factors, *of_votes, PRIOR_COUNT)
        share = np.clip(logs @ of_units / max(of_units @ of_units, TINY), 0.0, 1.0)
        away = logs - share * of_units
        return value + 0.5 * away @ away, away + 2.0 * factors * slopes

    def improved(self, logs: np.ndarray, largest_change: float) -> np.ndarray:
        """Logarithms, of sum zero, with less loss than the given ones."""
        around = [logs - largest_change, logs + largest_change]
        bounds = np.clip(around, -FARTHEST_LOG, FARTHEST_LOG).T
        options = {"maxiter": MOST_STEPS, "ftol": LEAST_GAIN}
        found = minimize(
            self.loss, logs, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        return found.x - found.x.mean()


def logs_of_units(frame: Frame) -> np.ndarray:
    """Logarithms (d,), of sum zero, of weights by which distances are in the units of the data.

    What varies by far less, or far more, than most features is taken to be not that far from them.
    """
    ratios = frame.spread / np.median(frame.spread)
    logs = np.log(np.clip(ratios, np.exp(-FARTHEST_LOG), np.exp(FARTHEST_LOG)))
    return logs - logs.mean()


def classes_in_turns(codes: np.ndarray) -> np.ndarray:
    """An order of components, by their classes, in which each part has its share of each class.

    Of those that are as near as each other, as discrete features make many, not all can vote: the
    first ones do.
    """
    order = np.argsort(codes, kind="stable")
    _, sizes = np.unique(codes, return_counts=True)
    places = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes])
    return order[np.argsort(places, kind="stable")]


def nearest_voters(
    points: np.ndarray, counts: np.ndarray, predicted: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The components that are next to some of them, and the kernels by which they vote.

    Parameters
    ----------
    points : (n, d) array
    counts : (n,) array
    predicted : (m,) array of intp
        Numbers of those some, two components in all or more.

    Returns
    -------
    voters : (m, n_voters) array of intp
        In order of their distance.
    counts : (m, n_voters) array
        Of their samples, without one that is the predicted one itself.
    precisions : (m,) array
        Of the kernels; zero where as many samples as it goes by are all in one place.
    """
    n_voters = min(N_VOTERS, len(points) - 1)
    voters, squares = nearest_components(points, counts, predicted, n_voters)
    of_voters = counts[voters] - (voters == predicted[:, None])
    enough = np.cumsum(of_voters, axis=1) >= N_NEAREST
    last = np.where(enough.any(axis=1), enough.argmax(axis=1), n_voters - 1)
    variances = WIDTH**2 * np.take_along_axis(squares, last[:, None], axis=1)[:, 0]
    known = variances > SMALLEST_VARIANCE
    return voters, of_voters, np.divide(1.0, variances, out=np.zeros(len(known)), where=known)
