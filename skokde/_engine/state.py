"""What an online model is, and what the estimators' parameters mean to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from skokde._engine.bandwidth import Rule
from skokde._engine.covariance import CovarianceStructure, DiagonalCovariance
from skokde._engine.histograms import (
    LEFT_AFTER_SAMPLE,
    LEFT_WITH_FOUND_MEMORY,
    N_HISTOGRAMS,
    Histograms,
)
from skokde._engine.mixture import Mixture
from skokde._engine.neighbors import N_VOTE_WIDTHS
from skokde._engine.outliers import Moments
from skokde._engine.transformation import Transformation

# Components that are held before the first compression. The published implementations start at 15
# at most and compress after nearly every sample once they have reached their limit, which is what
# makes them slow.
INITIAL_LIMIT = 30
# The forgetting factor of a model that is learned beside that of all samples where the memory is
# found by prediction.
FADING = 0.99


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
        After a compression, for which a higher threshold is taken if need be. Of merged models
        so many times as many, see `skokde._engine.learn`.
    most_compounds : int or None
        How many of these may stand for several samples.
    shapes : tuple of CovarianceStructure
        Of the kernels that are tried: the structure, and others that have less in them.
    memories : tuple of float
        Forgetting factors that are tried beside the one above.
    forgotten : float
        Share of what was there before that a compression forgets for each sample since the last
        one, where short memories tell that the stream has changed.
    shrinkage_target : (d, d) or (d,) array, or None
        For covariances, see `shrink_covariance`.
    transformation : Transformation or None
        Of classes: to coordinates in which there are more densities to be pooled.
    feature_weights : (d,) array or None
        In distances between samples of classes, see `feature_weights`.
    histograms : Histograms or None
        Of the features, by classes.
    transformed : bool
        Whether what is estimated is a density in these coordinates.
    n_outputs : int
        How many of the last features are predicted from the others; none of a density as such.
    of_class : bool
        Whether densities are of classes that are told apart.
    """

    structure: CovarianceStructure
    bandwidth: Rule
    thresholds: np.ndarray
    forgetting_factor: float
    max_components: int | None
    most_components: int | None
    most_compounds: int | None
    shapes: tuple[CovarianceStructure, ...]
    memories: tuple[float, ...] = ()
    forgotten: float = 0.0
    shrinkage_target: np.ndarray | None = None
    transformation: Transformation | None = None
    feature_weights: np.ndarray | None = None
    histograms: Histograms | None = None
    transformed: bool = False
    n_outputs: int = 0
    of_class: bool = False

    @property
    def key(self) -> tuple:
        """What tells apart what is scored of the same state, for the same target."""
        shapes = _names(self.shapes)
        coordinates = self.transformation if self.transformed else None
        key = self.bandwidth.key, self.thresholds, shapes, self.memories, coordinates
        return *key, self.n_outputs

    @property
    def fades(self) -> bool:
        """Whether a model that fades is beside that of all samples; those of classes have none."""
        return bool(self.memories) and not self.of_class

    @property
    def fading(self) -> Settings:
        """For that model."""
        return self._replace(memories=(), forgetting_factor=FADING)

    @property
    def n_levels(self) -> int:
        """How many coarser views there are of a model."""
        return len(self.thresholds) - 1

    @property
    def keeps_noise(self) -> bool:
        """Whether the covariance that classes share keeps the noise of its correlations."""
        return self.n_experts == 1

    def in_transformed_coordinates(self) -> Settings:
        """For densities of all samples there."""
        return self._replace(
            memories=(), shrinkage_target=self.transformation.covariance, transformed=True
        )

    @property
    def n_sides(self) -> int:
        """Groups of experts of each shape: those of narrow kernels, and of wide ones."""
        return 2 if self.bandwidth.n_narrow else 1

    @property
    def pools_transformed(self) -> bool:
        """Whether classes are pooled by densities in transformed coordinates, too."""
        return self.bandwidth.n_narrow > 0

    def transformation_of(
        self, mixtures: Sequence[Mixture], moments: Sequence[Moments] | None = None
    ) -> Transformation | None:
        """That of classes, if there are such densities; see `Transformation.of`."""
        return Transformation.of(mixtures, moments) if self.pools_transformed else None

    @property
    def n_pooled_shapes(self) -> tuple[int, int]:
        """Of how many shapes groups are pooled, in transformed coordinates and in the data's.

        More of them would tell next to nothing besides.
        """
        n_shapes = len(self.shapes)
        return (min(2, n_shapes), 1) if self.pools_transformed else (0, n_shapes)

    @property
    def n_pooled(self) -> int:
        """How many groups of experts are pooled."""
        return sum(self.n_pooled_shapes) * self.n_sides

    @property
    def n_pooled_transformed(self) -> int:
        """How many of them, the first ones, are in transformed coordinates."""
        return self.n_pooled_shapes[0] * self.n_sides

    def chosen_densities(self, chosen: Sequence[bool] | None = None) -> list[tuple[bool, ...]]:
        """Some of the pooled densities, or all, by their kind.

        Parameters
        ----------
        chosen : sequence of bool, default=None
            One for each group that is pooled, and for each short memory.

        Returns
        -------
        list of three tuples of bools
            Of the density in transformed coordinates, and in the data's, the groups of the shapes
            that are pooled there; and the memories.
        """
        chosen = tuple(chosen or self.n_densities * [True])
        n, n_pooled = self.n_pooled_transformed, self.n_pooled
        return [chosen[:n], chosen[n:n_pooled], chosen[n_pooled:]]

    @property
    def n_densities(self) -> int:
        """How many densities classes are pooled by: of groups of experts, and of short memories."""
        return self.n_pooled + len(self.memories)

    @property
    def n_linear(self) -> int:
        """How many linear discriminants classes have: of all samples, and of some memories."""
        return 1 + len(self.discriminating)

    @property
    def discriminating(self) -> tuple[float, ...]:
        """The memories of which there are discriminants: the shortest has too few samples."""
        return self.memories[1:]

    @property
    def n_distances(self) -> int:
        """By how many kinds of distances near samples vote for classes, which are pooled as well.

        Without correlations there is one, of features.
        """
        if not self.bandwidth.n_narrow:
            return 0
        return 1 if isinstance(self.structure, DiagonalCovariance) else 2

    @property
    def n_voters(self) -> int:
        """How many groups of samples vote: all of them by each distance, and others.

        These vote by the distance of features. They are short memories, if there are any; in place
        of the shortest one, which has too few samples of a class, the newest rows of all classes
        vote, as long as it remembers. The last one is a sample of all rows.
        """
        return self.n_distances + len(self.memories) + 1 if self.n_distances else 0

    @property
    def n_votes(self) -> int:
        """How many votes are pooled: of all voters by kernels of each width."""
        return N_VOTE_WIDTHS * self.n_voters

    @property
    def ends_of_terms(self) -> list[int]:
        """Where the terms of each kind end in a pool; after the last ones there are histograms.

        They are groups of experts in transformed coordinates and in the data's, short memories,
        discriminants, that of the classes' scales, and votes.
        """
        densities = self.n_pooled_transformed, self.n_pooled, self.n_densities
        discriminants = self.n_densities + self.n_linear
        return [*densities, discriminants, discriminants + 1, discriminants + 1 + self.n_votes]

    @property
    def of_short_memories(self) -> np.ndarray:
        """Which of the terms of a pool are of short memories, (n_terms,) array of bool."""
        short = np.zeros(len(self.first_exponents), dtype=bool)
        if self.memories:
            _, groups, memories, discriminants, scale, votes = self.ends_of_terms
            short[groups:memories] = True
            short[memories + 1 : discriminants] = True
            first, last = scale + N_VOTE_WIDTHS * self.n_distances, votes - N_VOTE_WIDTHS
            short[first:last] = True
        return short

    def distance_of_voters(self, number: int) -> int:
        """The number of the distance that voters go by: that of features is the first one."""
        return number if number < self.n_distances else 0

    @property
    def pools_histograms(self) -> bool:
        """Whether classes are pooled by the histograms of single features, too."""
        return self.bandwidth.n_narrow > 0

    @property
    def n_histograms(self) -> int:
        """How many of these are pooled: of each memory, or none."""
        return N_HISTOGRAMS * self.pools_histograms

    @property
    def left_in_histograms(self) -> np.ndarray:
        """What is left of the counts of each of their memories after each sample, (n_memories,)."""
        most = LEFT_WITH_FOUND_MEMORY if self.memories else LEFT_AFTER_SAMPLE
        return np.minimum(self.forgetting_factor, most)

    @property
    def first_exponents(self) -> np.ndarray:
        """Of a pool of densities, discriminants and votes before any prediction: Bayes' rule.

        The more of the correlations a shape has, the more of it has that. It is there in the data's
        coordinates, if the shape is pooled in both.
        """
        return _first_exponents(*self.n_pooled_shapes, self.n_sides, self._n_others)

    @property
    def cautious_exponents(self) -> np.ndarray:
        """The same where samples are few.

        The linear discriminant of all samples, with one covariance for all classes, has half. The
        other half has the shape with the fewest correlations, if that is pooled in transformed
        coordinates alone; covariances of low rank are cautious as they are.
        """
        shapes, n_memories = self.n_pooled_shapes, len(self.memories)
        return _cautious_exponents(*shapes, self.n_sides, n_memories, self._n_others)

    @property
    def _n_others(self) -> int:
        """How many terms a pool has besides groups of experts; one is that of classes' scales."""
        return len(self.memories) + self.n_linear + 1 + self.n_votes + self.n_histograms

    @property
    def n_experts(self) -> int:
        rule = self.bandwidth
        of_shape = (1 + self.n_levels) * rule.n_widths + len(rule.gaussian_scales)
        return len(self.shapes) * of_shape + len(rule.shrinkages)


@lru_cache(maxsize=64)
def _names(shapes: tuple[CovarianceStructure, ...]) -> tuple[str, ...]:
    # The same object each time: single rows feel it where keys are compared.
    return tuple(shape.name for shape in shapes)


@cache
def _first_exponents(n_transformed: int, n_plain: int, n_sides: int, n_others: int) -> np.ndarray:
    number = np.arange(max(n_transformed, n_plain))
    of_shapes = number[::-1] + 1.0
    transformed = np.where(number < n_plain, 0.0, of_shapes)[:n_transformed]
    of_groups = np.append(transformed, of_shapes[:n_plain]) / (n_sides * of_shapes.sum())
    exponents = np.append(np.repeat(of_groups, n_sides), np.zeros(n_others))
    exponents.flags.writeable = False  # it is the same object each time
    return exponents


@cache
def _cautious_exponents(
    n_transformed: int, n_plain: int, n_sides: int, n_memories: int, n_others: int
) -> np.ndarray:
    exponents = 0.5 * _first_exponents(n_transformed, n_plain, n_sides, n_others)
    if n_transformed > n_plain:
        exponents[:] = 0.0
        exponents[(n_transformed - 1) * n_sides : n_transformed * n_sides] = 0.5 / n_sides
    exponents[(n_transformed + n_plain) * n_sides + n_memories] = 0.5
    exponents.flags.writeable = False
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
    credits : (1 + n,) or (2 + n,) array
        How many samples the model of all samples is credited with, each density of the newest, and
        the model that fades, if there is to be one.
    fading : State or None
        Of that model, which has learned the rows that have been predicted; None before there are
        any.
    """

    rows: np.ndarray
    counts: np.ndarray
    pending_rows: np.ndarray
    pending_counts: np.ndarray
    counts_before: np.ndarray
    credits: np.ndarray
    fading: State | None


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
        How many samples each expert is credited with, see `prequential`.
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
