"""Hierarchical compression (paper, Sections 2.3 and 2.6)."""

from __future__ import annotations

import numpy as np

from skokde._engine._compression import cluster as _cluster
from skokde._engine._compression import merge as _merge
from skokde._engine.bandwidth import Kernel
from skokde._engine.kde import Components, components_in, factorize
from skokde._engine.mixture import Mixture, flatten

# Detailed models are clustered under a bandwidth of H / 8.
DETAIL_BANDWIDTH = 1.0 / 8.0


def cluster(
    components: Components, threshold: float, axis: np.ndarray | None, max_clusters: int | None
) -> np.ndarray:
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
    (k,) array of intp
        The number of each component's cluster, in the order of their first members.
    """
    k = len(components.weights)
    if threshold == 0.0 and (max_clusters is None or k <= max_clusters):
        return np.arange(k)
    return _cluster(*components, *factorize(components), threshold, axis, max_clusters or 0)


def merge(mixture: Mixture, labels: np.ndarray, kernel: Kernel) -> Mixture:
    """Replace each cluster of more than one component by its moment-matched Gaussian.

    The detailed model of a cluster is the extended mixture, of the components' detailed models
    (paper, Eq. 15), split in two.

    Parameters
    ----------
    mixture : Mixture
    labels : (k,) array of intp
        See `cluster`.
    kernel : Kernel
        Kernel coordinates, for the clustering of the detailed models.
    """
    if labels.max() == len(labels) - 1:
        return mixture
    m, d = mixture.n_compounds, mixture.n_features
    shape = mixture.covariances.shape[1:]
    frame = kernel.frame.divided(np.sqrt(DETAIL_BANDWIDTH))
    counts, means, covariances, detail_weights, detail_means, detail_covariances = _merge(
        labels,
        mixture.counts,
        mixture.means,
        flatten(mixture.covariances),
        mixture.detail_weights,
        np.concatenate([mixture.detail_means.reshape(-1, d), mixture.means[m:]]),
        flatten(mixture.detail_covariances.reshape(-1, *shape)),
        *frame.arrays,
        kernel.axis,
    )
    return Mixture(
        counts,
        means,
        covariances.reshape(-1, *shape),
        detail_weights,
        detail_means,
        detail_covariances.reshape(-1, 2, *shape),
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
    labels = cluster(components, threshold, kernel.axis, max_components)
    return merge(mixture, labels, kernel)
