"""Hierarchical compression (paper, Sections 2.3 and 2.6)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skokde._engine._compression import cluster as _cluster
from skokde._engine._compression import merge as _merge
from skokde._engine.bandwidth import KernelFrame
from skokde._engine.kde import Components, components_in, factorize
from skokde._engine.mixture import Mixture, flatten

# Detailed models are clustered under a bandwidth of H / 8.
DETAIL_BANDWIDTH = 1.0 / 8.0


def cluster(
    components: Components,
    thresholds: np.ndarray,
    first_cut: np.ndarray,
    max_clusters: int | None = None,
) -> np.ndarray:
    """Clusters whose components can be approximated by one Gaussian each.

    From one cluster of everything, the one with the largest local error is split in two until
    that error is at most the threshold; the leaves of a lower threshold refine those of a
    higher one.

    Parameters
    ----------
    components : Components
    thresholds : (n_levels,) array
        Values of D_th, the lowest first. Zero keeps all components apart.
    first_cut : (d,) array
        See `KernelFrame`.
    max_clusters : int, default=None
        Stop there, at least one, whatever the error.

    Returns
    -------
    (n_levels, k) array of intp
        The number of each component's cluster, in the order of their first members.
    """
    k = len(components.weights)
    if thresholds[-1] == 0.0 and (max_clusters is None or k <= max_clusters):
        return np.tile(np.arange(k), (len(thresholds), 1))
    return _cluster(
        *components,
        *factorize(components),
        thresholds,
        first_cut,
        -1 if max_clusters is None else max_clusters,
    )


class Compressed(NamedTuple):
    """What a compression leaves.

    Attributes
    ----------
    mixture : Mixture
    groups : (n_levels, k) array of intp
        For each of the higher thresholds, the numbers of the groups that it would merge.
    """

    mixture: Mixture
    groups: np.ndarray

    @classmethod
    def of_parts(cls, parts: list[Compressed]) -> Compressed:
        """All components of some mixtures, in groups of their own."""
        if len(parts) == 1:
            return parts[0]
        first = np.zeros((len(parts[0].groups), 1), dtype=np.intp)
        compounds, diracs = [], []
        for mixture, groups in parts:
            compounds.append(first + groups[:, : mixture.n_compounds])
            diracs.append(first + groups[:, mixture.n_compounds :])
            first = first + groups.max(axis=1, initial=-1, keepdims=True) + 1
        mixture = Mixture.of_parts([part.mixture for part in parts])
        return cls(mixture, np.concatenate([*compounds, *diracs], axis=1))


def merge(mixture: Mixture, labels: np.ndarray, kernel: KernelFrame) -> Compressed:
    """Replace each cluster of more than one component by its moment-matched Gaussian.

    The detailed model of a cluster is the extended mixture, of the components' detailed models
    (paper, Eq. 15), split in two.

    Parameters
    ----------
    mixture : Mixture
    labels : (1 + n_levels, k) array of intp
        See `cluster`; the first row's clusters are merged.
    kernel : KernelFrame
        Kernel coordinates, for the clustering of the detailed models.
    """
    labels, coarser = labels[0], labels[1:]
    if labels.max() == len(labels) - 1:
        return Compressed(mixture, coarser)
    m, d = mixture.n_compounds, mixture.n_features
    shape = mixture.covariances.shape[1:]
    frame = kernel.frame.divided(np.sqrt(DETAIL_BANDWIDTH))
    order, counts, means, covariances, detail_weights, detail_means, detail_covariances = _merge(
        labels,
        mixture.counts,
        mixture.means,
        flatten(mixture.covariances),
        mixture.detail_weights,
        np.concatenate([mixture.detail_means.reshape(-1, d), mixture.means[m:]]),
        flatten(mixture.detail_covariances.reshape(-1, *shape)),
        *frame.arrays,
        kernel.first_cut,
    )
    merged = Mixture(
        counts,
        means,
        covariances.reshape(-1, *shape),
        detail_weights,
        detail_means,
        detail_covariances.reshape(-1, 2, *shape),
    )
    first_members = np.unique(labels, return_index=True)[1]
    return Compressed(merged, coarser[:, first_members[order]])


def compress(
    mixture: Mixture, kernel: KernelFrame, thresholds: np.ndarray, max_components: int | None
) -> Compressed:
    """Approximate a sample model by one with fewer components.

    Parameters
    ----------
    mixture : Mixture
    kernel : KernelFrame
        Kernel coordinates of this mixture, or of one with the same whole.
    thresholds : (1 + n_levels,) array
        D_th, the largest local error of a cluster; after it, higher ones.
    max_components : int or None
        No more components than this are left.

    Returns
    -------
    Compressed
        A mixture of the same count, mean and covariance.
    """
    components = components_in(kernel.frame, *mixture.sample_model)
    labels = cluster(components, thresholds, kernel.first_cut, max_components)
    return merge(mixture, labels, kernel)
