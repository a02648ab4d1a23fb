"""Weights of features in distances, by which samples of the same class are near to each other.

Not in the paper. Means and variances do not tell how much of a feature matters between samples that
are near to each other: it may be noise there, or tell classes apart that have the same mean.
Neighborhood components analysis (Goldberger et al. 2005) finds the distances by which the votes of
near samples predict best of which class each of them is, without its own vote; here it is confined
to one weight for each feature.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from skokde._engine._feature_weights import loss_of_votes
from skokde._engine._neighbors import nearest_components
from skokde._engine.neighbors import N_NEAREST, PRIOR_COUNT, WIDTH, Neighbors

# At most so many components are predicted, each by the votes of so many that are next to it; fewer
# where there are hundreds of features, in all of which they differ: so many numbers are held.
MOST_PREDICTED = 512
N_VOTERS = 12
MOST_DIFFERENCES = 1_000_000
# Logarithms of weights have a standard normal distribution before any prediction, and are never
# farther from zero than this. They change by no more than so much at a time, since samples that
# were far by the weights before are left out: nothing would tell that they come near.
FARTHEST_LOG = 5.0
LARGEST_CHANGE = 0.5
# So many steps are made, or fewer, if one lessens the loss by no more than this share of it.
MOST_STEPS = 8
LEAST_GAIN = 1e-3
# Points are no farther out than this: what is that far tells nothing of features, but squares of it
# must not be all that counts.
FARTHEST_POINT = 1e6
# Samples that are no farther from each other, in variances within the classes, are in one place.
SMALLEST_VARIANCE = 1e-12


def learn_feature_weights(neighbors: Neighbors, weights: np.ndarray | None = None) -> np.ndarray:
    """Factors (d,) of points, whose product is one, by which near samples predict better.

    Which samples are near depends on them, too: they get there in several times.

    Parameters
    ----------
    neighbors : Neighbors
        In coordinates each of which is one of the features.
    weights : (d,) array, default=None
        What they were before, if anything.
    """
    points = np.clip(neighbors.points, -FARTHEST_POINT, FARTHEST_POINT)
    n, d = points.shape
    logs = np.zeros(d) if weights is None else np.log(weights)
    if n < 2 or d < 2:
        return np.exp(logs)
    most = min(MOST_PREDICTED, 1 + MOST_DIFFERENCES // (N_VOTERS * d))
    predicted = np.linspace(0, n - 1, min(n, most)).astype(np.intp)
    voters, counts, precisions = nearest_voters(points * np.exp(logs), neighbors.counts, predicted)
    codes = neighbors.codes
    agree = codes[voters] == codes[predicted, None]
    prior = PRIOR_COUNT * neighbors.shares[codes[predicted]]
    times = neighbors.counts[predicted]
    squares = np.square(points[predicted, None] - points[voters])
    votes = squares, counts, agree, precisions, prior, times

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Of the predictions and the prior, in nats, and its gradient."""
        factors = np.exp(2.0 * logs)
        value, slopes = loss_of_votes(factors, *votes, PRIOR_COUNT)
        return value + 0.5 * logs @ logs, logs + 2.0 * factors * slopes

    near = [logs - LARGEST_CHANGE, logs + LARGEST_CHANGE]
    bounds = np.clip(near, -FARTHEST_LOG, FARTHEST_LOG).T
    options = {"maxiter": MOST_STEPS, "ftol": LEAST_GAIN}
    logs = minimize(loss, logs, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return np.exp(logs - logs.mean())


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
