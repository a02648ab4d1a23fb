"""What an online model is, and what the estimators' parameters mean to it."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from skokde._engine.bandwidth import Rule
from skokde._engine.covariance import CovarianceStructure
from skokde._engine.mixture import Mixture

# Components that are held before the first compression. The published implementations start at 15
# at most and compress after nearly every sample once they have reached their limit, which is what
# makes them slow.
INITIAL_LIMIT = 30


class Settings(NamedTuple):
    """What the estimators' parameters mean to the engine.

    Attributes
    ----------
    structure : CovarianceStructure
    bandwidth : Rule
    thresholds : (1 + n_levels,) array
        D_th by which models are compressed, and higher ones at which they are looked at, too.
    forgetting_factor : float
    max_components : int or None
        At any time.
    most_components : int or None
        After a compression, for which a higher threshold is taken if need be.
    shapes : tuple of CovarianceStructure
        Of the kernels that are tried: the structure, and others that have less in them.
    memories : tuple of float
        Forgetting factors that are tried beside the one above.
    shrinkage_target : (d, d) or (d,) array, or None
        For covariances, see `shrink_covariance`.
    """

    structure: CovarianceStructure
    bandwidth: Rule
    thresholds: np.ndarray
    forgetting_factor: float
    max_components: int | None
    most_components: int | None
    shapes: tuple[CovarianceStructure, ...]
    memories: tuple[float, ...] = ()
    shrinkage_target: np.ndarray | None = None

    @property
    def key(self) -> tuple:
        """What tells apart what is scored of the same state, for the same target."""
        shapes = tuple(shape.name for shape in self.shapes)
        return self.bandwidth.key, self.thresholds, shapes, self.memories

    @property
    def n_levels(self) -> int:
        """How many coarser views there are of a model."""
        return len(self.thresholds) - 1

    @property
    def n_groups(self) -> int:
        """How many groups of experts there are."""
        return len(self.shapes) * (2 if self.bandwidth.n_narrow else 1)

    @property
    def n_densities(self) -> int:
        """How many densities classes are pooled by: of groups of experts, and of short memories."""
        return self.n_groups + len(self.memories)

    @property
    def n_discriminants(self) -> int:
        """How many linear discriminants classes have: of all samples, and of some memories."""
        return 1 + len(self.discriminating)

    @property
    def discriminating(self) -> tuple[float, ...]:
        """The memories of which there are discriminants: the shortest has too few samples."""
        return self.memories[1:]

    @property
    def first_exponents(self) -> np.ndarray:
        """Of a pool of densities and discriminants before any prediction: Bayes' rule.

        Half of it is for the shape that all covariances have, if others are tried, too.
        """
        n_others = len(self.memories) + self.n_discriminants
        return _first_exponents(len(self.shapes), self.n_groups, n_others)

    @property
    def n_experts(self) -> int:
        rule = self.bandwidth
        of_shape = (1 + self.n_levels) * rule.n_widths + len(rule.gaussian_scales)
        return len(self.shapes) * of_shape + len(rule.shrinkages)


@cache
def _first_exponents(n_shapes: int, n_groups: int, n_others: int) -> np.ndarray:
    others = n_shapes - 1
    of_shapes = np.append(0.5, np.full(others, 0.5 / others)) if others else np.ones(1)
    sides = n_groups // n_shapes
    exponents = np.append(np.repeat(of_shapes / sides, sides), np.zeros(n_others))
    exponents.flags.writeable = False  # it is the same object each time
    return exponents


class Recent(NamedTuple):
    """The newest samples, and how well they predict what comes next.

    Attributes
    ----------
    rows : (r, d) array
        In order; one that repeats the row before is not held twice.
    counts : (r,) array
        How many samples each row stands for.
    pending_rows, pending_counts : (p, d) and (p,) arrays
        The same of those after them, which are not yet predicted.
    counts_before : (k,) array
        Of the mixture's components, before the pending rows.
    credits : (1 + n,) array
        How many samples the model of all samples is credited with, and each density of the newest.
    """

    rows: np.ndarray
    counts: np.ndarray
    pending_rows: np.ndarray
    pending_counts: np.ndarray
    counts_before: np.ndarray
    credits: np.ndarray


class State(NamedTuple):
    """What an online model is.

    Attributes
    ----------
    mixture : Mixture
    limit : int
        Components that may be held.
    n_compressed : int
        Components that the last compression left; those after them are samples since.
    level : int
        The number of the threshold that it was compressed by.
    partitions : (n_levels, n_compressed) array of intp
        The numbers of the clusters of these components at each of the higher thresholds.
    expert_counts : (n_experts,) array
        How many samples each expert is credited with, see `experts`.
    recent : Recent or None
        Where the memory is found by prediction.
    """

    mixture: Mixture
    limit: int
    n_compressed: int
    level: int
    partitions: np.ndarray
    expert_counts: np.ndarray
    recent: Recent | None
