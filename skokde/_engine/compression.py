"""Hierarchical compression (paper, Sections 2.3 and 2.6)."""

from __future__ import annotations

import numpy as np

from skokde._engine._compression import cluster as _cluster
from skokde._engine._compression import split_details
from skokde._engine._moments import match_group_moments
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

    Parameters
    ----------
    mixture : Mixture
    labels : (k,) array of intp
        See `cluster`.
    kernel : Kernel
        Kernel coordinates, for the clustering of the detailed models.
    """
    sizes = np.bincount(labels)
    merged = (sizes > 1)[labels]
    if not merged.any():
        return mixture
    m, shape = mixture.n_compounds, mixture.covariances.shape[1:]
    order = np.argsort(labels, kind="stable")
    members = order[merged[order]]
    starts = np.append(0, np.cumsum(sizes[sizes > 1]))
    counts, means, covariances = match_group_moments(
        mixture.counts, mixture.means, flatten(mixture.covariances), members, starts
    )
    covariances = covariances.reshape(-1, *shape)
    details = merge_details(mixture, merged, members, starts, kernel)
    # A cluster of equal samples is a Dirac again.
    equal = ~flatten(covariances).any(axis=1)
    compounds = (counts, means, covariances, *details)
    return Mixture.join(
        [mixture.compounds(~merged[:m]), tuple(array[~equal] for array in compounds)],
        [mixture.diracs(~merged[m:]), (counts[equal], means[equal])],
    )


def merge_details(
    mixture: Mixture,
    merged: np.ndarray,
    members: np.ndarray,
    starts: np.ndarray,
    kernel: Kernel,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Detailed models of merged clusters, two components each.

    The extended mixture of a cluster holds its components' detailed models (paper, Eq. 15); it is
    split by Goldberger's two-means, and each side is moment-matched.

    Parameters
    ----------
    mixture : Mixture
    merged : (k,) array of bool
        Which components are in a cluster.
    members : (n,) array of intp
        Those components, cluster after cluster.
    starts : (n_clusters + 1,) array of intp
        Where each cluster begins.
    kernel : Kernel

    Returns
    -------
    weights : (n_clusters, 2) array
    means : (n_clusters, 2, d) array
    covariances : (n_clusters, 2, d, d) or (n_clusters, 2, d) array
    """
    m, d = mixture.n_compounds, mixture.n_features
    shape = mixture.covariances.shape[1:]
    # The extended mixture of all clusters: two components of each compound, and then Diracs.
    compounds = merged[:m]
    counts, means = mixture.diracs(merged[m:])
    weights = mixture.counts[:m][compounds, None] * mixture.detail_weights[compounds]
    counts = np.concatenate([weights.ravel(), counts])
    means = np.concatenate([mixture.detail_means[compounds].reshape(-1, d), means])
    covariances = mixture.detail_covariances[compounds].reshape(-1, *shape)
    lengths = merged.astype(np.intp)
    lengths[:m] *= 2
    frame = kernel.frame.divided(np.sqrt(DETAIL_BANDWIDTH))
    whole = len(members) == mixture.n_components and len(starts) == 2
    counts, means, covariances = split_details(
        members,
        starts,
        np.cumsum(lengths) - lengths,
        counts,
        means,
        flatten(covariances),
        counts / mixture.counts.sum(),
        frame.points(means),
        frame.covariances(covariances),
        kernel.axis if whole else None,
    )
    return (
        counts / counts.sum(axis=1, keepdims=True),
        means,
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
    labels = cluster(components, threshold, kernel.axis, max_components)
    return merge(mixture, labels, kernel)
