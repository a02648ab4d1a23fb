"""Experts, weighted by how well they predict samples before these are learned.

Not in the paper. Whatever is uncertain of what is scored is tried in several ways at once: how far
the model is compressed, what shape its kernels have, and how wide they are. Each combination is an
expert, with a density of its own. Samples that came after the last compression stand in the model
as they came, so they can be taken out again and scored under what is left: the predictive
likelihood of each expert comes for free, and the weights of a mixture of them follow by expectation
maximisation. Short memories, see `recent`, are experts beside all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from typing import NamedTuple, Self

import numpy as np
from scipy.special import logsumexp

from skokde._engine import recent
from skokde._engine._expert_weights import mixture_weights
from skokde._engine.bandwidth import KernelFrame
from skokde._engine.compression import are_large
from skokde._engine.covariance import CovarianceStructure, FullCovariance, LowRankCovariance
from skokde._engine.families import family_of
from skokde._engine.kde import KDE, KernelFamily, log, marginals
from skokde._engine.mixture import Mixture, Resolutions
from skokde._engine.outliers import Moments, inlier_moments
from skokde._engine.outputs import (
    highest_log_density,
    log_conditionals,
    log_densities_of_outputs,
)
from skokde._engine.state import INITIAL_LIMIT, Recent, Settings, State

# Equal weights are worth this number of samples before any is predicted. So many of the lowest
# thresholds are too much alike for one each.
PRIOR_COUNT = 1.0
N_ALIKE = 2
# Counts are worth at most this share of the samples, since what is best changes as they get more,
# and at most this number of them, that a sudden change in the data is overcome.
MEMORY = 0.25
LONGEST_MEMORY = 128.0
LEAST_SHARE = 1e-9
TINY = np.finfo(float).tiny
# Resolutions with less than this share of the weight of the best one of their shape are not scored.
NEGLIGIBLE = 0.1
# The number of the threshold whose resolution the widest kernels have, which see next to no
# difference between it and finer ones: as many components more would tell them nothing.
WIDEST_KERNELS_AT = 3
# How many of the samples since the last compression are predicted, at most, by either half.
MOST_PREDICTED = 32
# A threshold is given up where those up to the next have less than this share of the weight, and
# for a lower one where those up to it have more than that.
OF_NO_USE = 0.25
MOST_OF_USE = 0.5
# Merging is for good, and more samples want finer models: of fewer samples than these there must be
# next to nothing that speaks for a threshold. Large components have to be worth their price.
GROWN_UP = 4000.0
NEXT_TO_NOTHING = 0.005
WORTH_THE_PRICE = 0.1
# Merged models are compressed by a higher threshold where less than so many nats a sample are lost.
NEXT_TO_NO_LOSS = 0.003
# Before the first compression each part of the samples is predicted from the others; where the
# resolution is found by prediction, too, every second part stands for the next one from so many
# samples on.
N_FOLDS = 4
ENOUGH_FOR_HALF = 12
EM_STEPS = 10
# A stream takes these again and again; merged models have what they predict once.
EM_STEPS_AT_ONCE = 20
# Weights of the parts of a model that has nothing but the mean: of no components, and of that.
MEAN_ALONE = np.array([[0.0], [1.0]])
# The kernels follow the samples when there are more of them by this share.
PACE = 0.1
# Where forgetting has left less than this of them, they follow each sample; and so exactly are
# counts taken that are faded.
LEAST_SHARE_LEFT = 0.5
ROUNDED_TO = 2.0**30


# Of those of the leading shapes of a density, which are asked for; None: all of all shapes.
Groups = tuple[bool, ...] | None


class References(NamedTuple):
    """What gives the parts of densities that most of the rows to come will change nothing of.

    Attributes
    ----------
    estimates : callable
        See `reference_kde`.
    memories : callable
        See `recent.reference_memories`.
    up_to_date : callable
        See `up_to_date`.
    """

    estimates: Callable[[State, Settings, Groups], KDE]
    memories: Callable[[State, Settings], KDE]
    up_to_date: Callable[[State, Settings], State]


def prior_counts(settings: Settings) -> np.ndarray:
    """Equal weights, worth `PRIOR_COUNT` samples; the lowest thresholds have one together."""
    prior, n_together = np.ones(settings.n_experts), min(N_ALIKE, 1 + settings.n_levels)
    estimates, _, _ = by_kind(prior, settings)
    estimates[:, :n_together] = 1.0 / n_together
    return prior * (PRIOR_COUNT / prior.sum())


def empty_state(d: int, settings: Settings) -> State:
    """The model of a stream that has not begun."""
    mixture, partitions = Mixture.empty(d, settings.structure), one_each(0, settings)
    newest = recent.nothing_recent(d, settings) if settings.memories else None
    return State(mixture, INITIAL_LIMIT, 0, 0, partitions, prior_counts(settings), newest)


def one_each(n: int, settings: Settings) -> np.ndarray:
    """Partitions of components that are all apart at each of the higher thresholds."""
    return np.tile(np.arange(n), (settings.n_levels, 1))


def adapted(state: State, settings: Settings) -> State:
    """The state with the experts of the settings, if these were others before."""
    if len(state.partitions) != settings.n_levels:
        partitions = one_each(state.n_compressed, settings)
        state = state._replace(level=0, partitions=partitions)
    if len(state.expert_counts) != settings.n_experts:
        prior = prior_counts(settings)
        n = len(prior) - len(settings.bandwidth.shrinkages)
        if len(state.expert_counts) == n:  # of a class, whose density has not tried them
            prior = np.append(state.expert_counts, prior[n:])
        state = state._replace(expert_counts=prior)
    if not settings.memories:
        return state._replace(recent=None)
    n_memories = len(recent.prior_counts(settings))
    if state.recent is None or len(state.recent.credits) != n_memories:
        nothing = recent.nothing_recent(state.mixture.n_features, settings)
        state = state._replace(recent=nothing._replace(counts_before=state.mixture.counts))
    return state


def next_level(state: State, settings: Settings) -> int:
    """The number of the threshold to compress by, as the experts say.

    A higher one is taken where the present one and the next are of no use, and a lower one where
    the present one has most of the weight.
    """
    level, mixture = state.level, state.mixture
    if not settings.n_levels:
        return level
    of_no_use = OF_NO_USE
    if mixture.counts.sum() < GROWN_UP:
        large = are_large(settings.structure, mixture.n_features)
        of_no_use = WORTH_THE_PRICE if large else NEXT_TO_NOTHING
    counts, _, _ = by_kind(state.expert_counts, settings)
    shares = np.cumsum(counts.sum(axis=(0, 2))) / counts.sum()
    if level + 2 < settings.n_levels and shares[level + 1] < of_no_use:
        return level + 1
    return level - 1 if level and shares[level] > MOST_OF_USE else level


def next_level_if_merged(predicted: Predicted, level: int, settings: Settings) -> int:
    """The number of the threshold to compress merged models by, as what was predicted says.

    The next one is taken where next to nothing is lost without the present one and those below: of
    the likelihood of mixtures whose weights are as these predictions want them. By the weights of
    the experts alone it is not told: those of estimates that are equally good remain equal.
    """
    if level + 2 >= settings.n_levels:
        return level
    log_densities, counts = predicted
    prior = prior_counts(settings)
    estimates, _, _ = by_kind(np.arange(settings.n_experts), settings)
    kept = ~np.isin(np.arange(settings.n_experts), estimates[:, : level + 1])
    with_all = best_log_likelihood(log_densities, counts, prior)
    without = best_log_likelihood(log_densities[:, kept], counts, prior[kept])
    return level + 1 if with_all - without < NEXT_TO_NO_LOSS * counts.sum() else level


def best_log_likelihood(
    log_densities: np.ndarray, counts: np.ndarray, expert_counts: np.ndarray
) -> float:
    """That of the mixture of experts whose weights are found by the same predictions."""
    weights = em_update(expert_counts, log_densities, counts, EM_STEPS_AT_ONCE)
    return float(counts @ logsumexp(log_densities, b=weights / weights.sum(), axis=1))


def em_update(
    expert_counts: np.ndarray,
    log_densities: np.ndarray,
    counts: np.ndarray,
    n_steps: int = EM_STEPS,
) -> np.ndarray:
    """Counts of the experts after some more predictions.

    A sample is shared out between the experts in proportion to weight times density. So none counts
    for more than itself, however unlikely it was.

    Parameters
    ----------
    expert_counts : (n_experts,) array, positive
        Numbers of samples that speak for each of the experts.
    log_densities : (n, n_experts) array
    counts : (n,) array
        How many samples each row stands for.
    n_steps : int, default=EM_STEPS
    """
    known = np.isfinite(log_densities).any(axis=1)
    log_densities, counts = log_densities[known], counts[known]
    likelihood = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
    new = expert_counts
    for _ in range(n_steps):
        new = expert_counts + new * ((counts / (likelihood @ new)) @ likelihood)
    return new


def without_diracs(mixture: Mixture, places: np.ndarray) -> Mixture:
    """A mixture without some of its Diracs, by their places among these."""
    kept = np.ones(mixture.n_components, dtype=bool)
    kept[mixture.n_compounds + places] = False
    return mixture._replace(counts=mixture.counts[kept], means=mixture.means[kept])


@dataclass(frozen=True, eq=False)
class Grid:
    """The estimates that there are of each shape: resolutions, and widths at each of them.

    Attributes
    ----------
    resolutions : (1 + n_levels,) array of intp
        Which one each threshold has: where it merges nothing, that of the next lower one.
    first_levels : (n_resolutions,) array of intp
        The lowest threshold of each resolution.
    partitions : (n_resolutions, n_compressed) array of intp
        Numbers of clusters at each resolution; at the first all components are apart.
    widths : (n_resolutions, n_widths) array of bool
        See `widths_at`.
    """

    resolutions: np.ndarray
    first_levels: np.ndarray
    partitions: np.ndarray
    widths: np.ndarray

    @classmethod
    def of(cls, partitions: np.ndarray, settings: Settings) -> Self:
        """By the partitions (n_levels, n_compressed) at higher thresholds."""
        n = partitions.shape[1]
        n_clusters = [n, *(partitions.max(axis=1, initial=-1) + 1).tolist()]
        merges = (after < before for before, after in pairwise(n_clusters))
        resolutions = np.array([0, *accumulate(merges)])
        first_levels = np.searchsorted(resolutions, np.arange(resolutions[-1] + 1))
        partitions = np.concatenate([np.arange(n)[None], partitions])[first_levels]
        return cls(resolutions, first_levels, partitions, widths_at(resolutions, settings))

    @property
    def n_resolutions(self) -> int:
        return len(self.widths)

    @cached_property
    def at_one_resolution(self) -> np.ndarray:
        """Which widths (n_widths,) one resolution has only."""
        return np.count_nonzero(self.widths, axis=0) == 1

    @cached_property
    def each_alone(self) -> tuple[np.ndarray, np.ndarray]:
        """Each of the estimates by itself, and which of them each threshold and width has.

        Returns
        -------
        weights : (n_estimates, n_resolutions, n_widths) array
        numbers : (n_levels * n_widths,) array of intp
            A width that one resolution has alone stands for that of the others.
        """
        n, only = np.count_nonzero(self.widths), self.at_one_resolution
        weights = np.zeros((n, *self.widths.shape))
        weights[np.arange(n), *np.nonzero(self.widths)] = 1.0
        number = np.zeros(self.widths.shape, dtype=np.intp)
        number[self.widths] = np.arange(n)
        at = np.where(only, self.widths.argmax(axis=0), self.resolutions[:, None])
        return weights, number[at, np.arange(len(only))].ravel()

    def counts(self, expert_counts: np.ndarray, settings: Settings) -> np.ndarray:
        """Counts (n_shapes, n_resolutions, n_widths) of the estimates among the experts."""
        estimates, _, _ = by_kind(expert_counts, settings)
        return np.add.reduceat(estimates, self.first_levels, axis=1)

    def that_matter(self, counts: np.ndarray) -> np.ndarray:
        """Which resolutions of each shape are scored, (n_shapes, n_resolutions) of bool.

        One that alone has one of the widths is scored in any case.
        """
        totals = counts.sum(axis=2)
        negligible = totals < NEGLIGIBLE * totals.max(axis=1, keepdims=True)
        return ~negligible | (self.widths & self.at_one_resolution).any(axis=1)

    def where_scored(self, counts: np.ndarray) -> np.ndarray:
        """Counts of the estimates, those of widths that one resolution has all there."""
        totals = counts.sum(axis=1, keepdims=True)
        return np.where(self.at_one_resolution, self.widths * totals, counts)


class Experts(NamedTuple):
    """The densities of all experts, or of those that matter.

    Attributes
    ----------
    families : tuple of KernelFamily
        For each shape, at all resolutions that matter to any.
    shrunk : tuple of KernelFamily
        Single Gaussians whose correlations are shrunk.
    grid : Grid
    matter : (n_shapes, n_resolutions) array of bool
        Which of the resolutions matter to a shape.
    """

    families: tuple[KernelFamily, ...]
    shrunk: tuple[KernelFamily, ...]
    grid: Grid
    matter: np.ndarray

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        grid: Grid,
        settings: Settings,
        expert_counts: np.ndarray | None = None,
        kernel_frame: KernelFrame | None = None,
    ) -> Self:
        """Of a mixture that is not empty.

        Parameters
        ----------
        mixture : Mixture
        grid : Grid
        settings : Settings
        expert_counts : (n_experts,) array, default=None
            By which it is told which experts matter: estimates that weigh little beside the best
            of their shape don't. None: all do. Single Gaussians always do, for what no estimate
            has seen.
        kernel_frame : KernelFrame, default=None
            That of the mixture, where it is known.
        """
        rule, structure, target = settings.bandwidth, settings.structure, settings.shrinkage_target
        matter = np.ones((len(settings.shapes), grid.n_resolutions), dtype=bool)
        models = Resolutions.of_one(mixture.sample_model)
        if grid.n_resolutions > 1:
            if expert_counts is not None:
                matter = grid.that_matter(grid.counts(expert_counts, settings))
            needed = grid.partitions[matter.any(axis=0)]
            models = Resolutions.of(mixture.sample_model, needed)
        kernels = rule.kernels(mixture, structure, target, settings.shapes, kernel_frame)
        center = kernels[0].frame.center
        if rule.gaussian_scales:
            models = models.with_mean(center)
        logs, families = log(models.weights), []
        for shape, of_shape in zip(settings.shapes, kernels, strict=False):
            families.append(family_of(shape).of(models.shaped(shape), of_shape, logs))
        alone = Resolutions.of_one(mixture.sample_model.empty())
        shrunk = [
            family_of(structure).of(alone.with_mean(center), single)
            for single in kernels[len(families) :]
        ]
        return cls(tuple(families), tuple(shrunk), grid, matter)

    def log_densities(self, X: np.ndarray, settings: Settings) -> np.ndarray:
        """Log-densities (n, n_experts) of rows, in nats, where all experts are there."""
        alone, numbers = self.grid.each_alone
        n, n_gaussians = len(alone), len(settings.bandwidth.gaussian_scales)
        of_kernels = np.concatenate([alone, np.zeros((n_gaussians, *alone.shape[1:]))])
        weights = self.families[0].weights(of_kernels, np.eye(n + n_gaussians, n_gaussians, -n))
        logs = [family.log_mixtures(X, weights) for family in self.families]
        of_shrunk = [family.log_mixtures(X, MEAN_ALONE[None]) for family in self.shrunk]
        of_estimates, of_gaussians = [a[:, numbers] for a in logs], [a[:, n:] for a in logs]
        return np.concatenate(of_estimates + of_gaussians + of_shrunk, axis=1)

    def log_densities_with_later(
        self, log_densities: np.ndarray, X: np.ndarray, counts: np.ndarray, means: np.ndarray
    ) -> np.ndarray:
        """What `log_densities` of rows become with more Diracs, the same at all resolutions.

        Parameters
        ----------
        log_densities : (n, n_experts) array
        X : (n, d) array
        counts, means : (m,) and (m, d) arrays
            Of the Diracs.
        """
        parts = []
        for family in self.families:
            diracs = family.of_diracs(counts, means)
            parts += [diracs.log_densities(X)] * len(self.grid.resolutions)
        later = np.concatenate(parts, axis=1)
        before, added = self.families[0].models.count, counts.sum()
        out = log_densities.copy()
        out[:, : later.shape[1]] = np.logaddexp(
            out[:, : later.shape[1]] + np.log(before / (before + added)),
            later + np.log(added / (before + added)),
        )
        return out

    def log_likelihoods(
        self,
        X: np.ndarray,
        n_unaided: int,
        counts: np.ndarray,
        means: np.ndarray,
        settings: Settings,
    ) -> np.ndarray:
        """By how much rows speak for each expert, (n, n_experts), in nats.

        Parameters
        ----------
        X : (n, d) array
        n_unaided : int
            The first rows; the others are predicted with the help of more Diracs.
        counts, means : (m,) and (m, d) arrays
            Of these.
        settings : Settings
            Where there are outputs, it is what is told of these by the other features.
        """
        logs = self.log_densities(X, settings)
        if len(counts) and n_unaided < len(X):
            logs[n_unaided:] = self.log_densities_with_later(
                logs[n_unaided:], X[n_unaided:], counts, means
            )
        if not settings.n_outputs:
            return logs
        features = np.arange(X.shape[1] - settings.n_outputs)
        of_features = self.marginal(features).log_likelihoods(
            X.take(features, axis=1),
            n_unaided,
            counts,
            means.take(features, axis=1),
            settings._replace(n_outputs=0),
        )
        return log_conditionals(logs, of_features)

    def marginal(self, features: np.ndarray) -> Self:
        """Of some of the features, by an array of their numbers."""
        families = marginals(self.families + self.shrunk, features)
        n = len(self.families)
        return self._replace(families=families[:n], shrunk=families[n:])

    def mixed(self, expert_counts: np.ndarray, settings: Settings) -> KDE:
        """What is scored of them, weighted."""
        if settings.n_experts == 1:  # nothing to weight
            return KDE(self.families, (np.ones((2, 1, 1)),), 1)
        counts = self.grid.counts(expert_counts, settings)
        _, of_gaussians, of_shrunk = by_kind(expert_counts, settings)
        scored = self.matter[:, :, None] & self.grid.widths
        held = np.where(scored, self.grid.where_scored(counts), 0.0)[:, self.matter.any(axis=0)]
        # All families are at the same resolutions.
        weights, shares = mixture_weights(
            held,
            of_gaussians,
            of_shrunk,
            self.families[0].models.there,
            settings.bandwidth.n_narrow,
        )
        families = *self.families, *self.shrunk
        return KDE(families, (*weights, *shares), len(self.families))


def widths_at(resolutions: np.ndarray, settings: Settings) -> np.ndarray:
    """Which widths (n_resolutions, n_widths) there are at each resolution.

    Where the resolution is found by prediction, the widest kernels have one resolution only.
    """
    rule = settings.bandwidth
    widths = np.ones((resolutions[-1] + 1, rule.n_widths), dtype=bool)
    if rule.n_narrow:
        only = resolutions[: WIDEST_KERNELS_AT + 1][-1]
        widths[:, -1] = np.arange(len(widths)) == only
    return widths


def by_kind(
    expert_counts: np.ndarray, settings: Settings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts of estimates, of single Gaussians, and of those that are shrunk.

    They are (n_shapes, 1 + n_levels, n_widths), (n_shapes, n_scales) and (n_shrinkages,) arrays.
    """
    shape = len(settings.shapes), 1 + settings.n_levels, settings.bandwidth.n_widths
    first, last = prod(shape), len(expert_counts) - len(settings.bandwidth.shrinkages)
    gaussians = expert_counts[first:last].reshape(len(settings.shapes), -1)
    return expert_counts[:first].reshape(shape), gaussians, expert_counts[last:]


def weights_by_kind(state: State, settings: Settings) -> dict[str, np.ndarray]:
    """What the experts are credited with, summed over all but one kind of choice each."""
    state = up_to_date(adapted(state, settings), settings)
    kinds = by_kind(state.expert_counts / state.expert_counts.sum(), settings)
    estimates, gaussians, shrunk = kinds
    total = max(estimates.sum(), np.finfo(float).tiny)
    # A threshold that is given up is as the one that is held.
    by_threshold = estimates.sum(axis=(0, 2)) / total
    held = by_threshold[: state.level + 1].sum()
    memory = np.ones(1)
    if recent.holds_any(state.recent):
        credits = state.recent.credits / state.recent.credits.sum()
        short = credits[1:].reshape(len(settings.memories), -1).sum(axis=1)
        memory = np.append(credits[0], short)
    return {
        "threshold": np.append(held, by_threshold[state.level + 1 :]),
        "width": estimates.sum(axis=(0, 1)) / total,
        "shape": estimates.sum(axis=(1, 2)) / total,
        "outliers": gaussians,
        "shrinkage": shrunk,
        "memory": memory,
    }


def experts_by_kind(state: State, settings: Settings) -> dict[str, list]:
    """What the entries of `weights_by_kind` belong to."""
    state, rule = up_to_date(adapted(state, settings), settings), settings.bandwidth
    memories = settings.memories if recent.holds_any(state.recent) else ()
    return {
        "threshold": settings.thresholds[state.level :].tolist(),
        "width": list(rule.kernel_scales),
        "shape": [shape_name(shape, settings.structure) for shape in settings.shapes],
        "outliers": list(rule.gaussian_scales),
        "shrinkage": list(settings.bandwidth.shrinkages),
        "memory": [settings.forgetting_factor, *memories],
    }


def shape_name(shape: CovarianceStructure, structure: CovarianceStructure) -> str:
    """What a shape of kernels has of the covariances."""
    if shape is structure:
        return structure.name
    if isinstance(shape, LowRankCovariance):
        return f"{shape.rank} directions"
    return "half of the correlations" if isinstance(shape, FullCovariance) else "no correlations"


def prequential_splits(
    state: State, settings: Settings
) -> Iterator[tuple[int, Experts, np.ndarray, np.ndarray]]:
    """Densities, the places of the Diracs which they predict, and of those which with help.

    The number before them says how many samples each of these stands for.

    Half of the new samples are predicted by what was there before them, the others with the help of
    the first half. Rows that come next to each other in time are alike: if all had help, kernels
    would become too narrow for what is to come. In rows sorted by value each is beyond all before:
    if none had help, kernels would become too wide.
    """
    mixture, grid = state.mixture, Grid.of(state.partitions, settings)
    number, times = np.arange(mixture.n_compounds, mixture.n_components), 1
    if state.n_compressed:
        new, odd = number >= state.n_compressed, number % 2 == 1
        parts = [(new & ~odd, new & odd)]
    else:
        times = 2 if settings.n_levels and len(number) >= ENOUGH_FOR_HALF else 1
        folds = range(0, min(N_FOLDS, len(number)), times)
        parts = [(number % N_FOLDS == fold, number < 0) for fold in folds]
    for part in parts:
        unaided, helped = (np.flatnonzero(half) for half in part)
        rest = without_diracs(mixture, np.append(unaided, helped))
        # Nothing can be told from one sample, nor from samples that are as good as forgotten.
        remembered = rest.counts.sum() > LEAST_SHARE * mixture.counts.sum()
        if not (remembered and (rest.n_components > 1 or rest.n_compounds)):
            continue
        yield times, Experts.of(rest, grid, settings), unaided, helped


class Predicted(NamedTuple):
    """How likely samples were, before they were learned.

    Attributes
    ----------
    log_densities : (n, n_experts) array
        In nats.
    counts : (n,) array
        How many samples each row stands for.
    """

    log_densities: np.ndarray
    counts: np.ndarray


def latest_predicted(
    state: State, settings: Settings, most: int = MOST_PREDICTED
) -> Predicted | None:
    """The prediction of the samples that came last; None: there is nothing to predict.

    They are those since the last compression, or some of them that stand for all, of either half at
    most so many; if there has been no compression, all samples, each part predicted by the others.
    """
    all_counts, means = state.mixture.diracs()
    logs, counts = [], []
    for times, experts, *halves in prequential_splits(state, settings):
        # Some may be forgotten altogether.
        places = [half[all_counts[half] > 0.0] for half in halves]
        chosen = some, others = [some_of(half, most) for half in places]
        rows, first = means[np.append(some, others)], places[0]
        later = all_counts[first], means[first]
        logs.append(experts.log_likelihoods(rows, len(some), *later, settings))
        for all_of_half, predicted in zip(places, chosen, strict=True):
            share = all_counts[predicted] / all_counts[predicted].sum()
            counts.append(times * share * all_counts[all_of_half].sum())
    if not logs:
        return None
    return Predicted(bounded(np.concatenate(logs), means, settings), np.concatenate(counts))


def predict_latest(state: State, settings: Settings) -> np.ndarray:
    """Counts (n_experts,) of the experts after the prediction of the samples that came last."""
    predicted = latest_predicted(state, settings)
    return credited(state, settings, predicted, EM_STEPS)


def credited(
    state: State, settings: Settings, predicted: Predicted | None, n_steps: int
) -> np.ndarray:
    """Counts (n_experts,) of the experts after a prediction."""
    expert_counts = state.expert_counts
    if predicted is not None:
        expert_counts = em_update(expert_counts, *predicted, n_steps)
    most = min(MEMORY * state.mixture.counts.sum(), LONGEST_MEMORY)
    return remembered(expert_counts, prior_counts(settings), most)


def bounded(log_likelihoods: np.ndarray, rows: np.ndarray, settings: Settings) -> np.ndarray:
    """None above the highest log-density that outputs may have, by some rows of the stream."""
    if not settings.n_outputs:
        return log_likelihoods
    return np.minimum(log_likelihoods, highest_log_density(rows[:, -settings.n_outputs :]))


def some_of(places: np.ndarray, most: int) -> np.ndarray:
    """At most so many of them, evenly spread."""
    if len(places) <= most:
        return places
    return places[np.linspace(0, len(places) - 1, most).astype(np.intp)]


def remembered(expert_counts: np.ndarray, prior: np.ndarray, most: float) -> np.ndarray:
    """Counts of the experts of which no more than so many samples are remembered."""
    learned = expert_counts - prior
    return prior + learned * min(1.0, most / max(learned.sum(), most, TINY))


def without_prior(state: State, settings: Settings) -> np.ndarray:
    """Counts (n_experts,) of the samples alone that speak for each of the experts."""
    counts, prior = adapted(state, settings).expert_counts, prior_counts(settings)
    learned = np.maximum(counts - prior, 0.0)
    return np.maximum(learned, LEAST_SHARE * prior) if learned.any() else counts


def predict_pending(state: State, settings: Settings, references: References) -> State:
    """The state after the prediction of the newest rows, by what there was before them.

    Parameters
    ----------
    state : State
    settings : Settings
    references : References
    """
    newest, credits = state.recent, state.recent.credits
    rows = newest.pending_rows
    if len(rows) and len(newest.rows) and len(newest.counts_before):
        before = state._replace(mixture=recent.samples_before(state))
        before = references.up_to_date(before, settings)
        estimates = build_estimates(before, settings, references)
        memories = references.memories(state, settings).families
        count = before.mixture.counts.sum()
        logs = log_likelihoods_of_memories(estimates, memories, rows, settings, count)
        logs = bounded(logs, np.concatenate([newest.rows, rows]), settings)
        credits = em_update(credits, logs, newest.pending_counts)
        credits = remembered(credits, recent.prior_counts(settings), recent.LONGEST_MEMORY)
    return state._replace(recent=recent.none_pending(newest, state.mixture, credits))


def log_likelihoods_of_memories(
    estimates: KDE,
    memories: Sequence[KernelFamily],
    rows: np.ndarray,
    settings: Settings,
    count: float,
) -> np.ndarray:
    """By how much rows speak for the model of all samples and each density of short memories.

    Parameters
    ----------
    estimates : KDE
        Of all samples.
    memories : sequence of KernelFamily
    rows : (n, d) array
    settings : Settings
    count : float
        Of all samples.

    Returns
    -------
    (n, 1 + n_densities) array
        In nats.
    """
    logs = np.concatenate([family.log_densities(rows) for family in memories], axis=1)
    n = settings.n_outputs
    if not n:
        return np.column_stack([estimates.log_density(rows), logs])
    features = np.arange(rows.shape[1] - n)
    known = rows.take(features, axis=1)
    of_features = [family.log_densities(known) for family in marginals(memories, features)]
    logs = log_conditionals(logs, np.concatenate(of_features, axis=1))
    return np.column_stack([log_densities_of_outputs(estimates, rows, n, count), logs])


def up_to_date(state: State, settings: Settings) -> State:
    """With what its samples tell before the first compression."""
    if settings.n_experts == 1 or state.n_compressed:
        return state
    return state._replace(expert_counts=predict_latest(state, settings))


def reference_part(state: State, settings: Settings) -> Mixture:
    """The part of a mixture that the kernels take their shape and size from.

    Samples since the last compression are left out until they are a good many more, so that one
    sample more changes next to nothing of what scoring needs.
    """
    mixture, n = state.mixture, reference_size(state, settings)
    if n is None:
        return mixture
    return mixture._replace(counts=unfaded(mixture, n, settings), means=mixture.means[:n])


def reference_size(state: State, settings: Settings) -> int | None:
    """How many components are in this part; None: the mixture is, as it is."""
    mixture, n_compressed = state.mixture, state.n_compressed
    later = mixture.n_components - n_compressed
    if not (n_compressed and later) or settings.bandwidth.n_widths == 1:
        return None
    compressed = unfaded(mixture, n_compressed, settings)
    pace = max(1, int(PACE * compressed.sum()))
    n = mixture.n_components - later % pace
    return None if share_left(mixture, n, settings) < LEAST_SHARE_LEFT else n


def share_left(mixture: Mixture, n: int, settings: Settings) -> float:
    """What the samples after the first n components have left of the counts of these."""
    left = 1.0 - (1.0 - settings.forgetting_factor) * float(mixture.counts[n:].sum())
    return max(left, TINY)


def unfaded(mixture: Mixture, n: int, settings: Settings) -> np.ndarray:
    """Counts of the first n components before later samples, the same after each of these."""
    counts = mixture.counts[:n]
    if settings.forgetting_factor == 1.0:
        return counts
    # The last digits depend on how many samples have come since.
    mantissas, exponents = np.frexp(counts / share_left(mixture, n, settings))
    return np.ldexp(np.round(ROUNDED_TO * mantissas) / ROUNDED_TO, exponents)


def reference_moments(state: State, settings: Settings) -> Moments:
    """Count, mean and covariance of this part, without outliers."""
    return inlier_moments(reference_part(state, settings))


def discriminant_moments(
    state: State,
    settings: Settings,
    of_samples: Callable[[State, Settings], Moments] = reference_moments,
    of_memories: Callable[[Recent, Settings], list[Moments]] = recent.predicted_moments,
) -> tuple[Moments, ...]:
    """Moments of all samples, and of the short memories, that tell classes apart.

    Parameters
    ----------
    state : State
    settings : Settings
    of_samples, of_memories : callable
        They may know already what the defaults give.
    """
    memories = recent.memory_moments(state.recent, state.mixture, settings, of_memories)
    return (of_samples(state, settings), *memories)


def reference_kde(
    state: State,
    settings: Settings,
    groups: Groups = None,
    kernel_frame: KernelFrame | None = None,
) -> KDE:
    """The density estimate of the part that most of the rows to come will change nothing of.

    Parameters
    ----------
    state : State
    settings : Settings
    groups : tuple of bool, default=None
        Which groups of experts; by default all.
    kernel_frame : KernelFrame, default=None
        That of the mixture, where it is known.
    """
    part, counts = reference_part(state, settings), state.expert_counts
    if settings.transformed:
        part = settings.transformation.mixture(part)
    grid = Grid.of(state.partitions, settings)
    kde = Experts.of(part, grid, settings, counts, kernel_frame).mixed(counts, settings)
    return kde if groups is None or all(groups) else kde.of_groups(groups)


REFERENCES = References(reference_kde, recent.reference_memories, up_to_date)


def of_leading_shapes(state: State, settings: Settings, n: int) -> tuple[State, Settings]:
    """A state whose experts are those of the first shapes alone, and its settings."""
    if n == len(settings.shapes):
        return state, settings
    estimates, gaussians, shrunk = by_kind(state.expert_counts, settings)
    counts = np.concatenate([estimates[:n].reshape(-1), gaussians[:n].reshape(-1), shrunk])
    return state._replace(expert_counts=counts), settings._replace(shapes=settings.shapes[:n])


def build_estimates(
    state: State, settings: Settings, references: References, groups: Groups = None
) -> KDE:
    """The density estimate of all samples of a model that is not empty, up to date."""
    if groups is not None:
        state, settings = of_leading_shapes(state, settings, len(groups) // settings.n_sides)
    kde, mixture = references.estimates(state, settings, groups), state.mixture
    n = reference_size(state, settings)
    if n in (None, mixture.n_components):
        return kde
    means = mixture.means[n:]
    if settings.transformed:
        means = settings.transformation.rows(means)
    later = kde.n_estimates * [mixture.counts[n:]]
    left = np.full(kde.n_estimates, share_left(mixture, n, settings))
    return kde.with_later(means, later, left)


def average_bandwidth(state: State, settings: Settings, references: References) -> np.ndarray:
    """Average covariance of the kernels, in data units, of a model that is not empty.

    Samples that the kernels do not follow yet change nothing of it, nor do short memories.
    """
    state = references.up_to_date(adapted(state, settings), settings)
    return references.estimates(state, settings, None).bandwidth


def build_kde(
    state: State,
    settings: Settings,
    references: References = REFERENCES,
    groups: Groups = None,
) -> KDE:
    """What is scored of a model that is not empty: of all samples, and short memories.

    Parameters
    ----------
    state : State
    settings : Settings
    references : References, default=REFERENCES
        They may know already what they give.
    groups : tuple of bool, default=None
        Which groups of experts of the first shapes, the others of which are left out; by default
        all of all shapes.
    """
    state = references.up_to_date(adapted(state, settings), settings)
    kde = build_estimates(state, settings, references, groups)
    if not settings.memories:
        return kde
    if not recent.holds_any(state.recent):
        return kde.with_groups_of_all(len(settings.memories))
    memories = references.memories(state, settings)
    return recent.with_memories(kde, memories, state.recent, settings)


def build_transformed_kde(
    state: State, settings: Settings, references: References, groups: Groups
) -> KDE:
    """The density of all samples in transformed coordinates, weighted as in the data's.

    For the parameters see `build_kde`.
    """
    state = references.up_to_date(adapted(state, settings), settings)
    settings = settings.in_transformed_coordinates()
    return build_estimates(adapted(state, settings), settings, references, groups)
