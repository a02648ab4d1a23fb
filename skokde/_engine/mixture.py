"""The sample model and its detailed models (paper, Section 2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from skokde._engine._moments import match_group_moments
from skokde._engine.covariance import Structure


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

    def grouped(self, partitions: np.ndarray) -> list[SampleModel]:
        """At some resolutions, groups of components replaced by one Gaussian each.

        Parameters
        ----------
        partitions : (n_levels, n) array of intp
            The number of each component's group. Components after those that have one stay as they
            are.
        """
        n = partitions.shape[1]
        n_groups = partitions.max(axis=1, initial=-1) + 1
        level = np.repeat(np.arange(len(partitions)), n_groups)
        counts, means, covariances = moments_of_groups(
            self.counts[:n],
            self.means[:n],
            flatten(self.covariances),
            partitions + (np.cumsum(n_groups) - n_groups)[:, None],
        )
        # Compounds stand first: a group of one Dirac is none.
        compound = covariances.any(axis=1)
        order = np.argsort(2 * level + ~compound, kind="stable")
        counts, means = counts[order], means[order]
        covariances = covariances[order[compound[order]]].reshape(-1, *self.covariances.shape[1:])
        n_compounds = np.bincount(level[compound], minlength=len(partitions))
        models = []
        for size, m in zip(n_groups.tolist(), n_compounds.tolist(), strict=True):
            groups = SampleModel(counts[:size], means[:size], covariances[:m])
            models.append(groups.with_diracs(self.counts[n:], self.means[n:]))
            counts, means, covariances = counts[size:], means[size:], covariances[m:]
        return models

    def with_diracs(self, counts: np.ndarray, means: np.ndarray) -> SampleModel:
        """With more Diracs after the components."""
        return self._replace(
            counts=np.append(self.counts, counts), means=np.concatenate([self.means, means])
        )


class SampleModels(NamedTuple):
    """Sample models of the same samples at different resolutions, the compounds of all first.

    Attributes
    ----------
    count : float
        Samples that each stands for.
    weights : (k,) array
        Of the components of all, sum one in each model.
    means : (k, d) array
    covariances : (m, d, d) or (m, d) array
    bounds : (2, n_models + 1) array of intp
        Where the compounds and the Diracs of each model begin.
    """

    count: float
    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    bounds: np.ndarray

    @classmethod
    def of(cls, models: Sequence[SampleModel]) -> SampleModels:
        """Of at least one model."""
        count = models[0].counts.sum()
        compounds = [len(model.covariances) for model in models]
        if len(models) == 1:
            (model,), (m,) = models, compounds
            bounds = np.array([[0, m], [m, model.n_components]], dtype=np.intp)
            return cls(count, model.counts / count, model.means, model.covariances, bounds)
        diracs = [model.n_components - m for model, m in zip(models, compounds, strict=True)]
        ends = list(accumulate(compounds + diracs, initial=0))
        bounds = np.array([ends[: len(models) + 1], ends[len(models) :]], dtype=np.intp)
        parts = [(model, slice(m)) for model, m in zip(models, compounds, strict=True)]
        parts += [(model, slice(m, None)) for model, m in zip(models, compounds, strict=True)]
        weights = [model.counts / model.counts.sum() for model in models]
        return cls(
            count,
            np.concatenate([w[part] for w, (_, part) in zip(2 * weights, parts, strict=True)]),
            np.concatenate([model.means[part] for model, part in parts]),
            np.concatenate([model.covariances for model in models]),
            bounds,
        )

    @property
    def n_models(self) -> int:
        return self.bounds.shape[1] - 1

    def model(self, number: int) -> SampleModel:
        """One of them, with the weights of its components as counts."""
        (first, end), (first_dirac, last) = self.bounds[:, number : number + 2]
        weights, means = (
            np.concatenate([array[first:end], array[first_dirac:last]])
            for array in (self.weights, self.means)
        )
        return SampleModel(weights, means, self.covariances[first:end])

    def shaped(self, shape: Structure) -> SampleModels:
        """With what a shape has of the covariances."""
        return self._replace(covariances=shape.shaped(self.covariances))


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
    detail_covariances : (m, 2, d, d) or (m, 2, d) array
        Zero for a component that is a single sample.
    """

    counts: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    detail_weights: np.ndarray
    detail_means: np.ndarray
    detail_covariances: np.ndarray

    @property
    def sample_model(self) -> SampleModel:
        return SampleModel(*self[:3])

    @classmethod
    def empty(cls, d: int, structure: Structure) -> Mixture:
        shape = structure.shape(d)
        return cls(
            np.empty(0),
            np.empty((0, d)),
            np.empty((0, *shape)),
            np.empty((0, 2)),
            np.empty((0, 2, d)),
            np.empty((0, 2, *shape)),
        )

    @classmethod
    def join(
        cls, compounds: list[tuple[np.ndarray, ...]], diracs: list[tuple[np.ndarray, ...]]
    ) -> Mixture:
        """A mixture of the parts that `compounds` and `diracs` return.

        Parameters
        ----------
        compounds : list of tuples of the six arrays of a mixture of compounds alone
        diracs : list of tuples of counts and means
        """
        counts, means = (
            np.concatenate([part[i] for part in [*compounds, *diracs]]) for i in range(2)
        )
        others = (np.concatenate([part[i] for part in compounds]) for i in range(2, 6))
        return cls(counts, means, *others)

    @classmethod
    def of_parts(cls, parts: list[Mixture]) -> Mixture:
        """All components of some mixtures."""
        if len(parts) == 1:
            return parts[0]
        return cls.join([p.compounds(slice(None)) for p in parts], [p.diracs() for p in parts])

    def part(self, chosen: np.ndarray) -> Mixture:
        """Some of the components, chosen by a (k,) array of bool."""
        m = self.n_compounds
        return Mixture(self.counts[chosen], self.means[chosen], *(a[chosen[:m]] for a in self[2:]))

    def compounds(self, chosen: np.ndarray | slice) -> tuple[np.ndarray, ...]:
        """The arrays of some of the compounds, chosen by an (m,) array of bool or a slice."""
        m = self.n_compounds
        return (self.counts[:m][chosen], self.means[:m][chosen], *(a[chosen] for a in self[2:]))

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

    def without_vanished(self) -> Mixture:
        """Drop components whose count has underflowed, as far as sums of squares go."""
        keep = self.counts > 1e-150 * self.counts.sum()
        return self if keep.all() else self.part(keep)


def flatten(covariances: np.ndarray) -> np.ndarray:
    """Covariances as the compiled functions take them: (n, d * d) or (n, d)."""
    return covariances.reshape(len(covariances), prod(covariances.shape[1:]))


def moments_of_groups(
    counts: np.ndarray, means: np.ndarray, covariances: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, means and flattened covariances of groups of components, by their numbers.

    Parameters
    ----------
    counts : (k,) array
    means : (k, d) array
    covariances : (m, d * d) or (m, d) array
    labels : (k,) or (n, k) array of intp
        The number of each component's group; if it is in several, of all of them.
    """
    labels, k = labels.ravel(), len(counts)
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(labels.max(initial=-1) + 2))
    return match_group_moments(counts, means, covariances, order % max(k, 1), starts)


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
    out = match_group_moments(counts, means, flatten(covariances), everything, whole)
    return float(out[0][0]), out[1][0], out[2].reshape(covariances.shape[1:])


def total_moments(mixture: Mixture) -> tuple[float, np.ndarray, np.ndarray]:
    """Count, mean and covariance of the whole sample model."""
    return match_moments(*mixture[:3])
