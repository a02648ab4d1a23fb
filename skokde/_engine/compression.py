"""Hierarchical compression (paper, Sections 2.3 and 2.6)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from skokde._engine._compression import cluster as _cluster
from skokde._engine.bandwidth import Kernel
from skokde._engine.goldberger import two_means
from skokde._engine.kde import Components, components_in, factorize
from skokde._engine.mixture import Mixture, flatten, match_moments

# Detailed models are clustered under a bandwidth of H / 8.
DETAIL_BANDWIDTH = 1.0 / 8.0


def cluster(
    components: Components, threshold: float, axis: np.ndarray | None, max_clusters: int | None
) -> list[np.ndarray]:
    """Clusters whose components can be approximated by one Gaussian each.

    From one cluster of everything, the one with the largest local error is split in two until
    that error is at most the threshold; the leaves of a lower threshold refine those of a
    higher one.

    Parameters
    ----------
    components : Components
    threshold : float
        D_th. Zero keeps all components apart.
    axis : (d,) array or None
        See `Kernel`.
    max_clusters : int or None
        Stop there, whatever the error.

    Returns
    -------
    list of arrays of component numbers
    """
    k = len(components.weights)
    everything = np.arange(k)
    if threshold == 0.0 and (max_clusters is None or k <= max_clusters):
        return [everything[i : i + 1] for i in range(k)]
    members, starts = _cluster(
        *components, *factorize(components), threshold, axis, max_clusters or 0
    )
    return [members[start:end] for start, end in pairwise(starts.tolist())]


def merge(mixture: Mixture, clusters: list[np.ndarray], kernel: Kernel) -> Mixture:
    """Replace each cluster of more than one component by its moment-matched Gaussian.

    Parameters
    ----------
    mixture : Mixture
    clusters : list of arrays of component numbers, each number in one of them
    kernel : Kernel
        Kernel coordinates, for the clustering of the detailed models.
    """
    clusters = [np.sort(members) for members in clusters if len(members) > 1]
    if not clusters:
        return mixture
    clusters.sort(key=lambda members: members[0])
    m = mixture.n_compounds
    kept = np.ones(mixture.n_components, dtype=bool)
    kept[np.concatenate(clusters)] = False
    merged = (
        *match_moments(*mixture[:3], clusters),
        *merge_details(mixture, clusters, kernel),
    )
    # A cluster of equal samples is a Dirac again.
    equal = ~flatten(merged[2]).any(axis=1)
    return Mixture.join(
        [mixture.compounds(kept[:m]), tuple(array[~equal] for array in merged)],
        [mixture.diracs(kept[m:]), tuple(array[equal] for array in merged[:2])],
    )


def merge_details(
    mixture: Mixture, clusters: list[np.ndarray], kernel: Kernel
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Detailed models of merged clusters, two components each.

    The extended mixture of a cluster holds its components' detailed models (paper, Eq. 15); it is
    split by Goldberger's two-means, and each side is moment-matched.

    Returns
    -------
    weights : (n, 2) array
    means : (n, 2, d) array
    covariances : (n, 2, d, d) or (n, 2, d) array
    """
    m, d = mixture.n_compounds, mixture.n_features
    shape = mixture.covariances.shape[1:]
    # Component i has the extended components 2 i and 2 i + 1, a Dirac the one m + i.
    counts = np.concatenate(
        [(mixture.counts[:m, None] * mixture.detail_weights).ravel(), mixture.counts[m:]]
    )
    # Only the clusters' are looked at; in `chosen` their components stand as in the mixture.
    chosen = np.sort(np.concatenate(clusters))
    compounds, diracs = chosen[chosen < m], chosen[chosen >= m]
    n = len(compounds)
    extended = np.concatenate([(2 * compounds[:, None] + np.arange(2)).ravel(), m + diracs])
    means = np.concatenate(
        [mixture.detail_means[compounds].reshape(2 * n, d), mixture.means[diracs]]
    )
    covariances = mixture.detail_covariances[compounds].reshape(2 * n, *shape)
    frame = kernel.frame.divided(np.sqrt(DETAIL_BANDWIDTH))
    components = Components(
        (counts / counts.sum())[extended], frame.points(means), frame.covariances(covariances)
    )
    sides: list[np.ndarray] = []
    for members in clusters:
        i = np.searchsorted(chosen, members)
        inner = np.concatenate([2 * i[i < n], 2 * i[i < n] + 1, n + i[i >= n]])
        whole = len(members) == mixture.n_components
        sides += two_means(components, inner, kernel.axis if whole else None)
    counts, means, covariances = match_moments(counts[extended], means, covariances, sides)
    counts = counts.reshape(-1, 2)
    return (
        counts / counts.sum(axis=1, keepdims=True),
        means.reshape(-1, 2, d),
        covariances.reshape(-1, 2, *shape),
    )


def compress(
    mixture: Mixture, kernel: Kernel, threshold: float, max_components: int | None
) -> Mixture:
    """Approximate a sample model by one with fewer components.

    Parameters
    ----------
    mixture : Mixture
    kernel : Kernel
        Kernel coordinates of this mixture, or of one with the same whole.
    threshold : float
        D_th, the largest local error of a cluster.
    max_components : int or None
        No more components than this are left.

    Returns
    -------
    Mixture
        Of the same count, mean and covariance.
    """
    components = components_in(kernel.frame, *mixture[:3])
    clusters = cluster(components, threshold, kernel.axis, max_components)
    return merge(mixture, clusters, kernel)
