"""Hierarchical compression (paper, Sections 2.3 and 2.6)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from skokde._engine._compression import cluster as _cluster
from skokde._engine._compression import merge as _merge
from skokde._engine.bandwidth import KernelFrame
from skokde._engine.covariance import CovarianceStructure, flatten, structure_of
from skokde._engine.goldberger import two_means
from skokde._engine.kde import Components, components_in, factorize
from skokde._engine.mixture import (
    Mixture,
    SampleModel,
    members_of_groups,
    merged_details,
    moments_of_groups,
)
from skokde._engine.whitening import Frame

# Detailed models are clustered under a bandwidth of H / 8.
DETAIL_BANDWIDTH = 1.0 / 8.0

# Where the threshold is found by prediction: those that are tried, and how many components are left
# at most, for which a higher one is taken; of large ones half as many.
THRESHOLDS = np.array([0.0025, 0.01, 0.04, 0.08, 0.16, 0.32, 0.64])
MOST_COMPONENTS = 1600
# Large are components whose covariance has more numbers than these, or takes Python to work with.
MANY_NUMBERS = 4096
# Above this threshold clusters need not be found from the components themselves.
COARSEST_EXACT = 0.08


def are_large(structure: CovarianceStructure, d: int) -> bool:
    """Whether it costs so much to store components and to work with them that there are fewer."""
    return not structure.is_compiled or prod(structure.shape(d)) > MANY_NUMBERS


def cluster(
    components: Components,
    thresholds: np.ndarray,
    first_cut: np.ndarray,
    max_clusters: int | None = None,
    feature_axes: np.ndarray | None = None,
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
    feature_axes : (d * d,) or (d,) array, default=None
        See `two_means`.

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
        feature_axes,
    )


def cluster_in_steps(
    components: Components,
    thresholds: np.ndarray,
    first_cut: np.ndarray,
    ends: Sequence[int],
    feature_axes: np.ndarray | None = None,
) -> np.ndarray:
    """The same, where clusters of high thresholds are made of those of the highest low one.

    An exact error takes the square of the number of components, unless it is enough to know that it
    is above a low threshold.

    Parameters
    ----------
    components : Components
    thresholds : (n_levels,) array
    first_cut : (d,) array
    ends : sequence of int
        At which of the thresholds the next step begins.
    feature_axes : (d * d,) or (d,) array, default=None
        See `two_means`.

    Returns
    -------
    (n_levels, k) array of intp
    """
    starts = sorted({0, *ends} - {len(thresholds)})
    first, *others = (thresholds[i:j] for i, j in pairwise([*starts, len(thresholds)]))
    found = cluster(components, first, first_cut, feature_axes=feature_axes)
    if not others:
        return found
    labels = [found]
    for part in others:
        components = Components(*moments_of_groups(*components, found[-1]))
        found = cluster(components, part, first_cut, feature_axes=feature_axes)
        labels.append(found[:, labels[-1][-1]])
    return np.ascontiguousarray(np.concatenate(labels))


def ends_of_steps(thresholds: np.ndarray, structure: CovarianceStructure) -> Sequence[int]:
    """Where `cluster_in_steps` goes on with what it has found."""
    first = int(np.searchsorted(thresholds, COARSEST_EXACT, side="right"))
    if structure.is_compiled:
        return [first]
    return range(max(first, 1), len(thresholds))


def compounds_of_clusters(labels: np.ndarray, n_compounds: int) -> np.ndarray:
    """How many clusters (n_levels,) are not a Dirac alone.

    Parameters
    ----------
    labels : (n_levels, k) array of intp
    n_compounds : int
        The first ones of the k components.
    """
    numbers = []
    for of_level in labels:
        merged = np.bincount(of_level) > 1
        merged[of_level[:n_compounds]] = True
        numbers.append(np.count_nonzero(merged))
    return np.array(numbers)


class Compressed(NamedTuple):
    """What a compression leaves.

    Attributes
    ----------
    mixture : Mixture
    partitions : (n_levels, k) array of intp
        For each of the higher thresholds, the numbers of the clusters that it would merge.
    level : int
        The number of the threshold that was taken, the lowest being zero.
    """

    mixture: Mixture
    partitions: np.ndarray
    level: int

    @classmethod
    def of_parts(cls, parts: list[Compressed]) -> Compressed:
        """All components of some mixtures, in clusters of their own, at the level of the last."""
        if len(parts) == 1:
            return parts[0]
        first = np.zeros((len(parts[0].partitions), 1), dtype=np.intp)
        compounds, diracs = [], []
        for mixture, labels, _ in parts:
            compounds.append(first + labels[:, : mixture.n_compounds])
            diracs.append(first + labels[:, mixture.n_compounds :])
            first = first + labels.max(axis=1, initial=-1, keepdims=True) + 1
        mixture = Mixture.of_parts([part.mixture for part in parts])
        return cls(mixture, np.concatenate([*compounds, *diracs], axis=1), parts[-1].level)


def merge(mixture: Mixture, labels: np.ndarray, kernel: KernelFrame) -> tuple[Mixture, np.ndarray]:
    """Replace each cluster of more than one component by its moment-matched Gaussian.

    The detailed model of a cluster is the extended mixture, of the components' detailed models
    (paper, Eq. 15), split in two.

    Parameters
    ----------
    mixture : Mixture
    labels : (k,) array of intp
        See `cluster`.
    kernel : KernelFrame
        Kernel coordinates, for the clustering of the detailed models.

    Returns
    -------
    mixture : Mixture
    members : array of intp
        Of each component that it has, the first of those which it stands for.
    """
    if labels.max() == len(labels) - 1:
        return mixture, np.arange(len(labels))
    merge_clusters = merge_groups
    if structure_of(mixture.covariances).is_compiled:
        merge_clusters = merge_compiled
    frame = kernel.frame.divided(np.sqrt(DETAIL_BANDWIDTH))
    return merge_clusters(mixture, labels, frame, kernel.first_cut, kernel.feature_axes())


def merge_compiled(
    mixture: Mixture,
    labels: np.ndarray,
    frame: Frame,
    first_cut: np.ndarray,
    feature_axes: np.ndarray | None,
) -> tuple[Mixture, np.ndarray]:
    """See `merge`; moments are matched, and details split, by a compiled function."""
    shape = mixture.covariances.shape[1:]
    members, counts, means, covariances, *details, detail_covariances = _merge(
        labels,
        mixture.counts,
        mixture.means,
        flatten(mixture.covariances),
        mixture.detail_weights,
        mixture.detail_means,
        mixture.details_merged.view(np.uint8),
        flatten(mixture.detail_covariances),
        *frame.arrays,
        first_cut,
        feature_axes,
    )
    covariances = covariances.reshape(-1, *shape)
    merged = Mixture(counts, means, covariances, *details, detail_covariances.reshape(-1, *shape))
    return merged, members


def merge_groups(
    mixture: Mixture,
    labels: np.ndarray,
    frame: Frame,
    first_cut: np.ndarray,
    feature_axes: np.ndarray | None,
) -> tuple[Mixture, np.ndarray]:
    """The same for covariances of which kernels see a part only.

    Moments are those of the structure; details are split by what kernels see.
    """
    structure = structure_of(mixture.covariances)
    m, d = mixture.n_compounds, mixture.n_features
    members, starts = members_of_groups(labels)
    counts, means, covariances = structure.group_moments(*mixture.sample_model, members, starts)
    merged, first = np.diff(starts) > 1, members[starts[:-1]]
    # A cluster of equal samples is a Dirac again.
    compound = np.where(merged, flatten(covariances).any(axis=1), first < m)
    kinds = (compound & ~merged, compound & merged, ~compound & ~merged, ~compound & merged)
    order = np.concatenate([np.flatnonzero(kind) for kind in kinds])
    own, new = first[kinds[0]], np.flatnonzero(kinds[1])
    extended, numbers = extended_mixture(mixture)
    sides = []
    if len(new):
        components = components_in(frame, *extended)
    for cluster_number in new:
        of_cluster = members[starts[cluster_number] : starts[cluster_number + 1]]
        below, above = of_cluster[of_cluster < m], of_cluster[of_cluster >= m]
        details = np.append(numbers[below], m + above)
        axis = first_cut if len(starts) == 2 else None
        sides += two_means(components, details, axis, feature_axes)
    ends = np.cumsum([0, *(len(side) for side in sides)])
    everything = np.concatenate([np.empty(0, dtype=np.intp), *sides])
    weights, detail_means, detail_covariances = structure.group_moments(*extended, everything, ends)
    details = (
        weights.reshape(-1, 2) / counts[new, None],
        detail_means.reshape(-1, 2, d),
        *merged_details(detail_covariances.reshape(-1, 2, *covariances.shape[1:])),
    )
    kept = mixture.compounds(own)[3:]
    out = Mixture(
        counts[order],
        means[order],
        covariances[order[: len(own) + len(new)]],
        *(np.concatenate(arrays) for arrays in zip(kept, details, strict=True)),
    )
    return out, first[order]


def extended_mixture(mixture: Mixture) -> tuple[SampleModel, np.ndarray]:
    """Two details of each compound, those that came from merging first, and the Diracs.

    Returns
    -------
    extended : SampleModel
    numbers : (m, 2) array of intp
        Of the details; those of the Diracs are m more than they are in the mixture.
    """
    m, merged = mixture.n_compounds, mixture.details_merged
    counts = mixture.counts[:m, None] * mixture.detail_weights
    means, numbers = mixture.detail_means, np.empty((m, 2), dtype=np.intp)
    n_merged = np.count_nonzero(merged)
    numbers[merged], numbers[~merged] = np.split(np.arange(2 * m), [n_merged])
    extended = SampleModel(
        np.concatenate([counts[merged], counts[~merged], mixture.counts[m:]]),
        np.concatenate([means[merged], means[~merged], mixture.means[m:]]),
        mixture.detail_covariances,
    )
    return extended, numbers


def compress(
    mixture: Mixture,
    kernel: KernelFrame,
    thresholds: np.ndarray,
    level: int = 0,
    most: int | None = None,
    most_compounds: int | None = None,
) -> Compressed:
    """Approximate a sample model by one with fewer components.

    Parameters
    ----------
    mixture : Mixture
    kernel : KernelFrame
        Kernel coordinates of this mixture, or of one with the same whole.
    thresholds : (1 + n_levels,) array
        D_th, the largest local error of a cluster; after it, higher ones.
    level : int, default=0
        The number of the threshold to take.
    most : int, default=None
        No more components than this are left: a higher threshold is taken, or if the highest leaves
        more, the worst clusters are kept together, whatever their error.
    most_compounds : int, default=None
        Nor more of them that stand for several samples.

    Returns
    -------
    Compressed
        A mixture of the same count, mean and covariance.
    """
    components = components_in(kernel.frame, *mixture.sample_model)
    feature_axes = kernel.feature_axes()
    thresholds_left = thresholds[level:]
    ends = ends_of_steps(thresholds_left, structure_of(mixture.covariances))
    labels = cluster_in_steps(components, thresholds_left, kernel.first_cut, ends, feature_axes)
    if most is not None:
        few_enough = labels.max(axis=1) < most
        if most_compounds is not None and most_compounds < most:
            few_enough &= compounds_of_clusters(labels, mixture.n_compounds) <= most_compounds
            most = most_compounds
        if few_enough.any():
            labels = labels[np.argmax(few_enough) :]
        else:
            labels = cluster(components, thresholds[-1:], kernel.first_cut, most, feature_axes)
    merged, members = merge(mixture, labels[0], kernel)
    level = len(thresholds) - len(labels)
    partitions = np.empty((len(thresholds) - 1, merged.n_components), dtype=np.intp)
    partitions[:level] = np.arange(merged.n_components)
    partitions[level:] = labels[1:, members]
    return Compressed(merged, partitions, level)
