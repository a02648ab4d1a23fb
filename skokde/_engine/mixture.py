"""The sample model and its detailed models (paper, Section 2.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skokde._engine._moments import match_group_moments
from skokde._engine._resolutions import distinct_groups
from skokde._engine.covariance import CovarianceStructure, structure_of


class SampleModel(NamedTuple):
    """A mixture without its detailed models: what densities are estimated from.

    Attributes
    ----------
    counts : (k,) array
    means : (k, d) array
    covariances : (m, d, d) or (m, d) array
        Of the first m components; the others are Diracs.
    """

    counts: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @property
    def n_components(self) -> int:
        return len(self.counts)

    def empty(self) -> SampleModel:
        """One of the same structure without components."""
        return SampleModel(self.counts[:0], self.means[:0], self.covariances[:0])


class Resolutions(NamedTuple):
    """A sample model at several resolutions, each component that some have in common held once.

    Each coarser one merges groups of components of the one before, so that a component is there
    from one resolution to another. Those that are at the same ones are a part of the model.

    Attributes
    ----------
    count : float
        Samples that the model stands for.
    weights : (k,) array
        Sum one at each resolution.
    means : (k, d) array
    unshaped : tuple of (m_i, ...) arrays
        Covariances of the first components, those of groups apart from the model's, with all of
        their correlations; the others are Diracs. Models of several shapes hold the same arrays.
    parts : (k,) array of intp
        The number of each component's part.
    there : (n_parts, n_resolutions) array of bool
        Which resolutions have it.
    shape : CovarianceStructure or None
        What is taken of the covariances; None: all.
    """

    count: float
    weights: np.ndarray
    means: np.ndarray
    unshaped: tuple[np.ndarray, ...]
    parts: np.ndarray
    there: np.ndarray
    shape: CovarianceStructure | None = None

    @classmethod
    def of_one(cls, model: SampleModel) -> Resolutions:
        """A single resolution, the model as it is."""
        counts, means, covariances = model
        count, parts = counts.sum(), np.zeros(len(counts), dtype=np.intp)
        return cls(count, counts / count, means, (covariances,), parts, ONE_PART)

    @classmethod
    def of(cls, model: SampleModel, partitions: np.ndarray) -> Resolutions:
        """With groups of components replaced by one Gaussian each.

        Parameters
        ----------
        model : SampleModel
        partitions : (n_resolutions, n) array of intp
            At each resolution, the finest first, the number of each component's group. Components
            after the first n stay as they are.
        """
        n, count = partitions.shape[1], model.counts.sum()
        own, diracs, members, starts, parts, there = distinct_groups(
            partitions, model.n_components, len(model.covariances)
        )
        counts, means, covariances = structure_of(model.covariances).group_moments(
            model.counts, model.means, model.covariances, members, starts
        )
        weights = [model.counts[own], counts, model.counts[diracs], model.counts[n:]]
        places = [model.means[own], means, model.means[diracs], model.means[n:]]
        of_own = model.covariances
        if not np.array_equal(own, np.arange(len(of_own))):  # else no copy is made
            of_own = of_own[own]
        return cls(
            count,
            np.concatenate(weights) / count,
            np.concatenate(places),
            (of_own, covariances),
            parts,
            there,
        )

    @property
    def masses(self) -> np.ndarray:
        """Weights (n_parts,) of the parts."""
        return np.bincount(self.parts, self.weights, len(self.there))

    @property
    def n_compounds(self) -> int:
        return sum(map(len, self.unshaped))

    def covariances(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Covariances (n, d, d) or (n, d) of some compounds or all, made anew for each call.

        Parameters
        ----------
        chosen : (m,) array of bool, default=None
        """
        blocks = self.unshaped
        if chosen is not None:
            ends = np.cumsum([len(block) for block in blocks])
            chosen = np.split(chosen, ends[:-1])
            blocks = [block[some] for block, some in zip(blocks, chosen, strict=True)]
        unshaped = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        return unshaped if self.shape is None else self.shape.scored(unshaped)

    def marginal(self, features: np.ndarray) -> Resolutions:
        """Of some of the features, by an array of their numbers."""
        covariances = self.covariances()
        return self._replace(
            means=self.means.take(features, axis=1),
            unshaped=(structure_of(covariances).marginal(covariances, features),),
            shape=None,
        )

    def with_mean(self, mean: np.ndarray) -> Resolutions:
        """With a Dirac of weight one, a part that is at no resolution."""
        (n_parts, n_resolutions), (k, d) = self.there.shape, self.means.shape
        weights, means = np.empty(k + 1), np.empty((k + 1, d))
        parts, there = np.empty(k + 1, dtype=np.intp), np.empty((n_parts + 1, n_resolutions), bool)
        weights[:k], means[:k], parts[:k], there[:n_parts] = self[1:3] + self[4:6]
        weights[k], means[k], parts[k], there[n_parts] = 1.0, mean, n_parts, False
        return self._replace(weights=weights, means=means, parts=parts, there=there)

    def part(self, number: int) -> SampleModel:
        """One of the parts, with the weights of its components as counts."""
        chosen = self.parts == number
        compounds = self.covariances(chosen[: self.n_compounds])
        return SampleModel(self.weights[chosen], self.means[chosen], compounds)


ONE_PART = np.ones((1, 1), dtype=bool)
ONE_PART.flags.writeable = False  # it is the same object each time


class Mixture(NamedTuple):
    """The sample model p_s and the detailed model q_i of each of its components.

    Components that came from merging, the compounds, stand first. The others are Diracs: distinct
    samples, without covariance, each its own detailed model. All arrays are float64, in the units
    of the data, and are never written to.

    Attributes
    ----------
    counts : (k,) array
        How many samples each component stands for; the weights are counts / counts.sum().
    means : (k, d) array
    covariances : (m, d, d) or (m, d) array
        Of the m compounds; the bandwidth is not in them.
    detail_weights : (m, 2) array
        Weights of the two components of each compound's detailed model, of sum one.
    detail_means : (m, 2, d) array
    details_merged : (m, 2) array of bool
        Which of these components came from merging; the others are Diracs.
    detail_covariances : (n, d, d) or (n, d) array
        Of those that did, compound by compound.
    """

    counts: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    detail_weights: np.ndarray
    detail_means: np.ndarray
    details_merged: np.ndarray
    detail_covariances: np.ndarray

    @property
    def sample_model(self) -> SampleModel:
        return SampleModel(*self[:3])

    @classmethod
    def empty(cls, d: int, structure: CovarianceStructure) -> Mixture:
        shape = structure.shape(d)
        return cls(
            np.empty(0),
            np.empty((0, d)),
            np.empty((0, *shape)),
            np.empty((0, 2)),
            np.empty((0, 2, d)),
            np.empty((0, 2), dtype=bool),
            np.empty((0, *shape)),
        )

    @classmethod
    def join(
        cls, compounds: list[tuple[np.ndarray, ...]], diracs: list[tuple[np.ndarray, ...]]
    ) -> Mixture:
        """A mixture of the parts that `compounds` and `diracs` return.

        Parameters
        ----------
        compounds : list of tuples of the arrays of a mixture of compounds alone
        diracs : list of tuples of counts and means
        """
        counts, means = (
            np.concatenate([part[i] for part in [*compounds, *diracs]]) for i in range(2)
        )
        others = (
            np.concatenate(arrays) for arrays in zip(*(part[2:] for part in compounds), strict=True)
        )
        return cls(counts, means, *others)

    @classmethod
    def of_parts(cls, parts: list[Mixture]) -> Mixture:
        """All components of some mixtures."""
        if len(parts) == 1:
            return parts[0]
        return cls.join([p.compounds(slice(None)) for p in parts], [p.diracs() for p in parts])

    def part(self, chosen: np.ndarray) -> Mixture:
        """Some of the components, chosen by a (k,) array of bool."""
        _, _, *others = self.compounds(chosen[: self.n_compounds])
        return Mixture(self.counts[chosen], self.means[chosen], *others)

    def parted(self, n: int) -> tuple[Mixture, tuple[np.ndarray, np.ndarray]]:
        """The first n components, all compounds among them, and the other Diracs."""
        later = self.counts[n:], self.means[n:]
        return self._replace(counts=self.counts[:n], means=self.means[:n]), later

    def compounds(self, chosen: np.ndarray | slice) -> tuple[np.ndarray, ...]:
        """The arrays of some of the compounds."""
        m, merged = self.n_compounds, self.details_merged[chosen]
        numbers = np.cumsum(self.details_merged).reshape(m, 2) - 1
        return (
            self.counts[:m][chosen],
            self.means[:m][chosen],
            self.covariances[chosen],
            self.detail_weights[chosen],
            self.detail_means[chosen],
            merged,
            self.detail_covariances[numbers[chosen][merged]],
        )

    def diracs(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts and means of the Diracs."""
        m = self.n_compounds
        return self.counts[m:], self.means[m:]

    @property
    def n_components(self) -> int:
        return len(self.counts)

    @property
    def n_compounds(self) -> int:
        return len(self.covariances)

    @property
    def n_features(self) -> int:
        return self.means.shape[1]

    def all_covariances(self) -> np.ndarray:
        """Covariances of all components, zero for Diracs."""
        out = np.zeros((self.n_components, *self.covariances.shape[1:]))
        out[: self.n_compounds] = self.covariances
        return out

    def all_detail_covariances(self) -> np.ndarray:
        """Covariances (m, 2, d, d) or (m, 2, d) of all details, zero for Diracs."""
        out = np.zeros((self.n_compounds, 2, *self.covariances.shape[1:]))
        out[self.details_merged] = self.detail_covariances
        return out

    def without_vanished(self) -> Mixture:
        """Drop components whose count has underflowed, as far as sums of squares go."""
        keep = self.counts > 1e-150 * self.counts.sum()
        return self if keep.all() else self.part(keep)


def merged_details(covariances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which details of compounds came from merging, and the covariances of those.

    Parameters
    ----------
    covariances : (m, 2, d, d) or (m, 2, d) array
        Of all details, zero for Diracs.
    """
    merged = covariances.any(axis=tuple(range(2, covariances.ndim)))
    if merged.all():  # no copy is made
        return merged, covariances.reshape(-1, *covariances.shape[2:])
    return merged, covariances[merged]


def moments_of_groups(
    counts: np.ndarray, means: np.ndarray, covariances: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, means and flattened covariances of groups of components, by their numbers.

    Parameters
    ----------
    counts : (k,) array
    means : (k, d) array
    covariances : (m, d * d) or (m, d) array
    labels : (k,) array of intp
        The number of each component's group.
    """
    return match_group_moments(counts, means, covariances, *members_of_groups(labels))


def members_of_groups(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Components, group by group, by the number (k,) of each one's; where each group begins."""
    order = np.argsort(labels, kind="stable")
    return order, np.searchsorted(labels[order], np.arange(labels.max(initial=-1) + 2))


def match_moments(
    counts: np.ndarray, means: np.ndarray, covariances: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Count, mean and covariance of components together (paper, Eq. 9).

    Parameters
    ----------
    counts : (k,) array
    means : (k, d) array
    covariances : (m, d, d) or (m, d) array
        Of the first m components; the others are Diracs.
    """
    k = len(counts)
    everything, whole = np.arange(k), np.array([0, k])
    structure = structure_of(covariances)
    out = structure.group_moments(counts, means, covariances, everything, whole)
    return float(out[0][0]), out[1][0], out[2][0]


def total_moments(mixture: Mixture) -> tuple[float, np.ndarray, np.ndarray]:
    """Count, mean and covariance of the whole sample model."""
    return match_moments(*mixture[:3])
