"""Microaggregation: a model of which no component stands for few samples.

Not in the paper. Components that are single samples are rows, and of two samples mean and
covariance tell both. As in statistical disclosure control, groups of at least so many samples are
replaced by what they are together, here by one Gaussian each.
"""

from __future__ import annotations

import numpy as np

from skokde._engine import recent
from skokde._engine.compression import merge
from skokde._engine.experts import one_each
from skokde._engine.learn import next_limit
from skokde._engine.mixture import Mixture, merged_details
from skokde._engine.state import Settings, State


def microaggregated(state: State, settings: Settings, least: float) -> State:
    """A model of the same count, mean and covariance that holds no samples.

    Parameters
    ----------
    state : State
        Of at least so many samples.
    settings : Settings
    least : float
        Samples that each component stands for, and each component of its detailed model.
    """
    mixture = state.mixture
    kernel = settings.bandwidth.kernel_frame(mixture, settings.structure)
    labels = groups_of(mixture.counts, kernel.frame.points(mixture.means), least)
    mixture, _ = merge(mixture, labels, kernel)
    mixture = without_small_details(mixture, least)
    newest = None
    if state.recent is not None:
        nothing = recent.nothing_recent(mixture.n_features, settings)
        credits = state.recent.credits.copy()
        if settings.fades:  # it begins anew
            credits[-1] = nothing.credits[-1]
        newest = nothing._replace(counts_before=mixture.counts, credits=credits)
    n = mixture.n_components
    return state._replace(
        mixture=mixture,
        limit=next_limit(mixture, settings),
        n_compressed=n,
        partitions=one_each(n, settings),
        recent=newest,
    )


def groups_of(counts: np.ndarray, points: np.ndarray, least: float) -> np.ndarray:
    """Numbers (k,) of groups of components, in the order of their first members.

    The smallest group is joined with the nearest one until none is too small.
    """
    number, labels = np.arange(len(counts)), np.arange(len(counts))
    counts, points = counts.copy(), points.copy()
    while len(number) > 1 and counts.min() < least:
        small = counts.argmin()
        distances = ((points - points[small]) ** 2).sum(axis=1)
        distances[small] = np.inf
        to = distances.argmin()
        total = counts[small] + counts[to]
        points[to] += counts[small] / total * (points[small] - points[to])
        counts[to] = total
        labels[labels == number[small]] = number[to]
        number, counts, points = (np.delete(a, small, axis=0) for a in (number, counts, points))
    _, first, labels = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[labels]


def without_small_details(mixture: Mixture, least: float) -> Mixture:
    """With two halves of the same mean and covariance where a detail stands for few samples."""
    m = mixture.n_compounds
    small = (mixture.counts[:m, None] * mixture.detail_weights).min(axis=1, initial=np.inf) < least
    weights, means = mixture.detail_weights.copy(), mixture.detail_means.copy()
    covariances = mixture.all_detail_covariances()
    weights[small] = 0.5
    means[small] = mixture.means[:m][small][:, None]
    covariances[small] = mixture.covariances[small][:, None]
    merged, covariances = merged_details(covariances)
    return mixture._replace(
        detail_weights=weights,
        detail_means=means,
        details_merged=merged,
        detail_covariances=covariances,
    )
