"""Experts, weighted by how well they predict samples before these are learned.

Not in the paper. What is uncertain of what is scored, the resolution of the model and the width and
shape of the kernel, is tried in several ways at once: each is an expert, with a density of its own.
Samples that came after the last compression stand in the model as they came, so they can be taken
out again and scored under what is left: the predictive likelihood of each expert comes for free,
and the weights of a mixture of them follow by expectation maximisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import numpy as np

from skokde._engine import recent
from skokde._engine.bandwidth import KernelFrame
from skokde._engine.kde import KDE, KernelFamily
from skokde._engine.mixture import Mixture
from skokde._engine.state import INITIAL_LIMIT, Settings, State

# Equal weights are worth this number of samples before any is predicted.
PRIOR_COUNT = 1.0
# Counts are worth at most this share of the samples, since what is best changes as they get more,
# and at most this number of them, that a sudden change in the data is overcome.
MEMORY = 0.25
LONGEST_MEMORY = 128.0
LEAST_SHARE = 1e-9
# Estimates with less than this share of the weight of the best one of their shape are not scored.
NEGLIGIBLE = 0.1
# How many of the samples since the last compression are predicted, at most, by either half.
MOST_PREDICTED = 32
# A threshold is given up where those up to the next have less of the weight than the first, and the
# next lower one is taken where those up to the present one have more than the second.
OF_NO_USE = 0.1
MOST_OF_USE = 0.5
# Before the first compression each part of the samples is predicted from the others.
N_FOLDS = 4
EM_STEPS = 10
# The kernels follow the samples when there are more of them by this share.
PACE = 0.05


Reference = Callable[[State, Settings], "Experts"]


def prior_counts(settings: Settings) -> np.ndarray:
    """Equal weights, worth `PRIOR_COUNT` samples."""
    return np.full(settings.n_experts, PRIOR_COUNT / settings.n_experts)


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
        state = state._replace(level=0, partitions=one_each(state.n_compressed, settings))
    if len(state.expert_counts) != settings.n_experts:
        state = state._replace(expert_counts=prior_counts(settings))
    if not settings.memories:
        return state._replace(recent=None)
    n_memories = len(recent.prior_counts(settings))
    if state.recent is None or len(state.recent.credits) != n_memories:
        nothing = recent.nothing_recent(state.mixture.n_features, settings)
        state = state._replace(recent=nothing._replace(counts_before=state.mixture.counts))
    return state


def next_level(level: int, expert_counts: np.ndarray, settings: Settings) -> int:
    """The number of the threshold to compress by, as the experts say.

    A higher one is taken where neither the present one nor the next is of use, a lower one where
    the present one has most of the weight.
    """
    if not settings.n_levels:
        return level
    n = len(settings.shapes) * (1 + settings.n_levels) * settings.bandwidth.n_widths
    counts = expert_counts[:n].reshape(len(settings.shapes), 1 + settings.n_levels, -1)
    shares = np.cumsum(counts.sum(axis=(0, 2))) / counts.sum()
    if level + 2 < settings.n_levels and shares[level + 1] < OF_NO_USE:
        return level + 1
    return level - 1 if level and shares[level] > MOST_OF_USE else level


def em_update(
    expert_counts: np.ndarray, log_densities: np.ndarray, counts: np.ndarray
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
    """
    known = np.isfinite(log_densities).any(axis=1)
    log_densities, counts = log_densities[known], counts[known]
    likelihood = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
    new = expert_counts
    for _ in range(EM_STEPS):
        new = expert_counts + new * ((counts / (likelihood @ new)) @ likelihood)
    return new


def without_diracs(mixture: Mixture, chosen: np.ndarray) -> Mixture:
    """A mixture without some of its Diracs, chosen by a (k - m,) array of bool."""
    m = mixture.n_compounds
    kept = np.append(np.ones(m, dtype=bool), ~chosen)
    return mixture._replace(counts=mixture.counts[kept], means=mixture.means[kept])


class Experts(NamedTuple):
    """The densities of all experts.

    Attributes
    ----------
    estimates : tuple of KernelFamily
    gaussians : tuple of KernelFamily
        Of one component, the mean.
    columns : (n_experts,) array of intp
        Which of these families' densities each expert has. Where a threshold merges nothing it is
        that of the next lower one.
    groups : (n_groups, n_densities) array of bool
        Which densities belong to each group of experts: the kernels of a shape, or its narrow ones
        and its wide ones; the single Gaussians of the shape belong to both.
    """

    estimates: tuple[KernelFamily, ...]
    gaussians: tuple[KernelFamily, ...]
    columns: np.ndarray
    groups: np.ndarray

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        partitions: np.ndarray,
        settings: Settings,
        kernel_frame: KernelFrame | None = None,
    ) -> Self:
        """Of a mixture that is not empty, with its partitions at higher thresholds."""
        rule, n_widths = settings.bandwidth, settings.bandwidth.n_widths
        estimates, gaussians, places, shapes = [], [], [], []
        for number, shape in enumerate(settings.shapes):
            model = mixture.sample_model
            if shape is not settings.structure:
                model = model._replace(covariances=shape.shaped(model.covariances))
            kernels = rule.kernels(
                mixture, settings.structure, settings.shrinkage_target, shape, kernel_frame
            )
            families = [KernelFamily.of(model, kernels)]
            places.append(len(estimates))
            n_left = partitions.shape[1]
            for labels in partitions:
                if labels.max(initial=-1) + 1 < n_left:
                    n_left = labels.max() + 1
                    families.append(KernelFamily.of(model.grouped(labels), kernels))
                places.append(len(estimates) + len(families) - 1)
            estimates += families
            shapes += len(families) * n_widths * [number]
            if rule.gaussian_scales:
                gaussians.append(KernelFamily.single_gaussians(kernels, rule.gaussian_scales))
        n = len(shapes)
        columns = np.add.outer(n_widths * np.array(places), np.arange(n_widths)).ravel()
        columns = np.append(columns, n + np.arange(len(gaussians) * len(rule.gaussian_scales)))
        narrow = np.arange(n) % n_widths < rule.n_narrow
        of_gaussians = np.repeat(np.arange(len(gaussians)), len(rule.gaussian_scales))
        groups = [
            np.append((np.array(shapes) == number) & (narrow == side), of_gaussians == number)
            for number in range(len(settings.shapes))
            for side in ((True, False) if rule.n_narrow else (False,))
        ]
        return cls(tuple(estimates), tuple(gaussians), columns, np.array(groups))

    def with_later(self, counts: np.ndarray, means: np.ndarray) -> Self:
        """Of a mixture with more Diracs, too."""
        estimates = tuple(family.with_later(counts, means) for family in self.estimates)
        return self._replace(estimates=estimates)

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_experts) of rows, in nats."""
        logs = [family.log_densities(X) for family in (*self.estimates, *self.gaussians)]
        return np.concatenate(logs, axis=1)[:, self.columns]

    def mixed(self, expert_counts: np.ndarray) -> KDE:
        """What is scored: estimates that weigh little beside the best of their shape are left out.

        Single Gaussians never are: they are for what no estimate has seen.
        """
        weights = np.bincount(self.columns, expert_counts)
        n_widths = len(self.estimates[0].kernels.widths)
        n_estimates = len(self.estimates) * n_widths
        totals = weights[:n_estimates].reshape(-1, n_widths).sum(axis=1)
        kept = np.ones(len(totals), dtype=bool)
        for shape in {id(family.kernels): family.kernels for family in self.estimates}.values():
            own = np.array([family.kernels is shape for family in self.estimates])
            kept[own] = totals[own] >= NEGLIGIBLE * totals[own].max()
        chosen = np.ones(len(weights), dtype=bool)
        chosen[:n_estimates] = np.repeat(kept, n_widths)
        families = [f for f, keep in zip(self.estimates, kept, strict=True) if keep]
        weights = weights[chosen] / weights[chosen].sum()
        group_weights = self.groups[:, chosen] * weights
        group_weights /= group_weights.sum(axis=1, keepdims=True)
        return KDE((*families, *self.gaussians), weights, group_weights, len(families) * n_widths)


def weights_by_kind(state: State, settings: Settings) -> dict[str, np.ndarray]:
    """What the experts are credited with, summed over all but one kind of choice each."""
    n_shapes, n_widths = len(settings.shapes), settings.bandwidth.n_widths
    shares = state.expert_counts / state.expert_counts.sum()
    n = n_shapes * (1 + settings.n_levels) * n_widths
    estimates = shares[:n].reshape(n_shapes, 1 + settings.n_levels, n_widths)
    total = max(estimates.sum(), np.finfo(float).tiny)
    # A threshold that is given up is as the one that is held.
    by_threshold = estimates.sum(axis=(0, 2)) / total
    held = by_threshold[: state.level + 1].sum()
    memory = np.ones(1)
    if state.recent is not None:
        credits = state.recent.credits / state.recent.credits.sum()
        short = credits[1:].reshape(len(settings.memories), -1).sum(axis=1)
        memory = np.append(credits[0], short)
    return {
        "threshold": np.append(held, by_threshold[state.level + 1 :]),
        "width": estimates.sum(axis=(0, 1)) / total,
        "shape": estimates.sum(axis=(1, 2)) / total,
        "outliers": shares[n:].reshape(n_shapes, -1),
        "memory": memory,
    }


def prequential_splits(state: State, settings: Settings) -> Iterator[tuple[Experts, np.ndarray]]:
    """Densities and masks over the Diracs: which are predicted by them.

    Half of the new samples are predicted by what was there before them, the others with the help of
    the first half. Rows that come next to each other in time are alike: if all had help, kernels
    would become too narrow for what is to come. In rows sorted by value each is beyond all before:
    if none had help, kernels would become too wide.
    """
    mixture = state.mixture
    number = np.arange(mixture.n_compounds, mixture.n_components)
    new = number >= state.n_compressed
    parts = [new] if state.n_compressed else [number % N_FOLDS == f for f in range(N_FOLDS)]
    for part in parts:
        rest = without_diracs(mixture, part)
        # Nothing can be told from one sample, nor from samples that are as good as forgotten.
        remembered = rest.counts.sum() > LEAST_SHARE * mixture.counts.sum()
        if not (remembered and (rest.n_components > 1 or rest.n_compounds)):
            continue
        experts = Experts.of(rest, state.partitions, settings)
        helped = part & (number % 2 == 1) & bool(state.n_compressed)
        unhelped = part & ~helped
        yield experts, unhelped
        if helped.any():
            yield experts.with_later(*mixture.diracs(unhelped)), helped


def predict_latest(state: State, settings: Settings) -> np.ndarray:
    """Counts of the experts after the prediction of the samples that came last.

    They are those since the last compression, or some of them that stand for all; if there has been
    no compression, all samples, each part predicted by the others.

    Returns
    -------
    (n_experts,) array
    """
    logs, counts = [], []
    for experts, predicted in prequential_splits(state, settings):
        places = np.flatnonzero(predicted)
        if not len(places):
            continue
        some = np.unique(np.linspace(0, len(places) - 1, MOST_PREDICTED).astype(np.intp))
        some = places if len(places) <= MOST_PREDICTED else places[some]
        all_counts, means = state.mixture.diracs()
        logs.append(experts.log_densities(means[some]))
        share = all_counts[some].sum() / all_counts[places].sum()
        counts.append(all_counts[some] / share)
    expert_counts = state.expert_counts
    if logs:
        expert_counts = em_update(expert_counts, np.concatenate(logs), np.concatenate(counts))
    most = min(MEMORY * state.mixture.counts.sum(), LONGEST_MEMORY)
    return remembered(expert_counts, prior_counts(settings), most)


def remembered(expert_counts: np.ndarray, prior: np.ndarray, most: float) -> np.ndarray:
    """Counts of the experts of which no more than so many samples are remembered."""
    learned = expert_counts - prior
    return prior + learned * min(1.0, most / max(learned.sum(), most))


def predict_pending(state: State, settings: Settings, reference: Reference) -> State:
    """The state after the prediction of the newest rows, by what there was before them.

    Parameters
    ----------
    state : State
    settings : Settings
    reference : callable
        See `reference_experts`.
    """
    newest, mixture = state.recent, state.mixture
    n = newest.n_pending
    k = len(newest.counts_before)
    rows, counts = newest.rows[-n:], newest.counts[-n:]
    earlier = len(newest.rows) - n
    credits = newest.credits
    if n and k and earlier:
        before = mixture._replace(counts=newest.counts_before, means=mixture.means[:k])
        target = recent.target_of(before, settings)
        families = recent.families_of(
            newest.rows[:earlier], newest.counts[:earlier], settings, target
        )
        long = build_kde(state._replace(mixture=before, recent=None), settings, reference)
        logs = [long.log_density(rows)[:, None]]
        logs += [family.log_densities(rows) for family in families]
        credits = em_update(credits, np.concatenate(logs, axis=1), counts)
        credits = remembered(credits, recent.prior_counts(settings), recent.LONGEST_MEMORY)
    newest = newest._replace(n_pending=0, counts_before=mixture.counts, credits=credits)
    return state._replace(recent=newest)


def reference_part(state: State, settings: Settings) -> Mixture:
    """The part of a mixture that the kernels take their shape and size from.

    Samples since the last compression are left out until they are a good many more, so that one
    sample more changes next to nothing of what scoring needs.
    """
    mixture, n_compressed = state.mixture, state.n_compressed
    later = mixture.n_components - n_compressed
    if not (n_compressed and later) or settings.bandwidth.n_widths == 1:
        return mixture
    pace = max(1, int(PACE * mixture.counts[:n_compressed].sum()))
    n = mixture.n_components - later % pace
    return mixture._replace(counts=mixture.counts[:n], means=mixture.means[:n])


def reference_experts(
    state: State, settings: Settings, kernel_frame: KernelFrame | None = None
) -> Experts:
    """What most of the rows to come will change nothing of.

    Parameters
    ----------
    state : State
    settings : Settings
    kernel_frame : KernelFrame, default=None
        That of the mixture, where it is known.
    """
    state = adapted(state, settings)
    return Experts.of(reference_part(state, settings), state.partitions, settings, kernel_frame)


def build_kde(state: State, settings: Settings, reference: Reference = reference_experts) -> KDE:
    """The density estimate of a model that is not empty.

    Parameters
    ----------
    state : State
    settings : Settings
    reference : callable, default=reference_experts
        Gives what that gives of a state and settings, and may know it already.
    """
    newest = state.recent
    state = adapted(state, settings)
    if settings.n_experts > 1 and not state.n_compressed:
        state = state._replace(expert_counts=predict_latest(state, settings))
    experts = reference(state, settings)
    n_later = state.mixture.n_components - experts.estimates[0].model.n_components
    if n_later:
        experts = experts.with_later(
            state.mixture.counts[-n_later:], state.mixture.means[-n_later:]
        )
    kde = experts.mixed(state.expert_counts)
    if settings.memories and newest is not None and len(newest.rows):
        kde = recent.mixed_with(kde, newest, state.mixture, settings)
    return kde
