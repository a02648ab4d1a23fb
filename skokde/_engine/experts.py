"""Experts, weighted by how well they predict samples before these are learned.

Not in the paper. Whatever is uncertain of what is scored, today the width of the kernel, is tried
in several ways at once: each is an expert, with a density of its own. Samples that came after the
last compression stand in the model as they came, so they can be taken out again and scored under
what is left: the predictive likelihood of each expert comes for free, and the weights of a mixture
of them follow by expectation maximisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np

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
# Experts of less weight than this are not scored.
NEGLIGIBLE = 1e-3
# Before the first compression each part of the samples is predicted from the others.
N_FOLDS = 4
EM_STEPS = 10
# The kernels follow the samples when there are more of them by this share.
PACE = 0.05


def prior_counts(settings: Settings) -> np.ndarray:
    """Equal weights, worth `PRIOR_COUNT` samples."""
    return np.full(settings.n_experts, PRIOR_COUNT / settings.n_experts)


def empty_state(d: int, settings: Settings) -> State:
    """The model of a stream that has not begun."""
    mixture, groups = Mixture.empty(d, settings.structure), no_groups(0, settings)
    return State(mixture, INITIAL_LIMIT, 0, groups, prior_counts(settings))


def no_groups(n: int, settings: Settings) -> np.ndarray:
    """The groups of components that are all apart at every level."""
    return np.tile(np.arange(n), (settings.n_levels, 1))


def adapted(state: State, settings: Settings) -> State:
    """The state with the experts of the settings, if these were others before."""
    if len(state.groups) != settings.n_levels:
        state = state._replace(groups=no_groups(state.n_compressed, settings))
    if len(state.expert_counts) != settings.n_experts:
        state = state._replace(expert_counts=prior_counts(settings))
    return state


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
    """

    estimates: tuple[KernelFamily, ...]
    gaussians: tuple[KernelFamily, ...]
    columns: np.ndarray

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        groups: np.ndarray,
        settings: Settings,
        kernel_frame: KernelFrame | None = None,
    ) -> Self:
        """Of a mixture that is not empty, whose first components belong to groups."""
        rule, target = settings.bandwidth, settings.shrinkage_target
        estimates, gaussians, columns = [], [], []
        for shape in settings.shapes:
            model = mixture.sample_model
            if shape is not settings.structure:
                model = model._replace(covariances=shape.of_full(model.covariances))
                target = None if target is None else shape.of_full(target)
            known = kernel_frame if shape is settings.structure else None
            kernels = rule.kernels(model, shape, target, known)
            estimates.append(KernelFamily.of(model, kernels))
            columns.append(len(estimates) - 1)
            n_groups = groups.shape[1]
            for labels in groups:
                if labels.max(initial=-1) + 1 < n_groups:
                    n_groups = labels.max() + 1
                    estimates.append(KernelFamily.of(model.grouped(labels), kernels))
                columns.append(len(estimates) - 1)
            if rule.gaussian_scales:
                gaussians.append(KernelFamily.single_gaussians(kernels, rule.gaussian_scales))
        columns = np.add.outer(np.array(columns) * rule.n_widths, np.arange(rule.n_widths)).ravel()
        n = len(estimates) * rule.n_widths
        columns = np.append(columns, n + np.arange(len(gaussians) * len(rule.gaussian_scales)))
        return cls(tuple(estimates), tuple(gaussians), columns)

    def with_later(self, counts: np.ndarray, means: np.ndarray) -> Self:
        """Of a mixture with more Diracs, too."""
        estimates = tuple(family.with_later(counts, means) for family in self.estimates)
        return self._replace(estimates=estimates)

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_experts) of rows, in nats."""
        logs = [family.log_densities(X) for family in (*self.estimates, *self.gaussians)]
        return np.concatenate(logs, axis=1)[:, self.columns]

    def mixed(self, expert_counts: np.ndarray) -> KDE:
        """What is scored: estimates of negligible weight have no part in it, but for the best."""
        weights = np.bincount(self.columns, expert_counts)
        n = sum(len(family.kernels.widths) for family in self.estimates)
        least = min(NEGLIGIBLE * weights.sum(), weights[:n].max())
        families, kept, n = [], [], 0
        for family in self.estimates:
            n, m = n + len(family.kernels.widths), n
            chosen = weights[m:n] >= least
            if chosen.any():
                families.append(family if chosen.all() else family.of_widths(chosen))
                kept.append(weights[m:n][chosen])
        weights = np.concatenate([*kept, weights[n:]])
        n_estimates = sum(map(len, kept))
        return KDE((*families, *self.gaussians), weights / weights.sum(), n_estimates)


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
        experts = Experts.of(rest, state.groups, settings)
        helped = part & (number % 2 == 1) & bool(state.n_compressed)
        unhelped = part & ~helped
        yield experts, unhelped
        if helped.any():
            yield experts.with_later(*mixture.diracs(unhelped)), helped


def predict_latest(state: State, settings: Settings) -> np.ndarray:
    """Counts of the experts after the prediction of the samples that came last.

    They are those since the last compression; if there has been none, all, each part predicted by
    the others.

    Returns
    -------
    (n_experts,) array
    """
    logs, counts = [], []
    for experts, predicted in prequential_splits(state, settings):
        if predicted.any():
            predicted_counts, means = state.mixture.diracs(predicted)
            logs.append(experts.log_densities(means))
            counts.append(predicted_counts)
    expert_counts = state.expert_counts
    if logs:
        expert_counts = em_update(expert_counts, np.concatenate(logs), np.concatenate(counts))
    prior = prior_counts(settings)
    learned = expert_counts - prior
    most = min(MEMORY * state.mixture.counts.sum(), LONGEST_MEMORY)
    return prior + learned * min(1.0, most / max(learned.sum(), most))


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
    return Experts.of(reference_part(state, settings), state.groups, settings, kernel_frame)


def build_kde(state: State, settings: Settings, reference: Experts | None = None) -> KDE:
    """The density estimate of a model that is not empty.

    Parameters
    ----------
    state : State
    settings : Settings
    reference : Experts, default=None
        Those of `reference_experts`, where they are known.
    """
    state = adapted(state, settings)
    if settings.n_experts > 1 and not state.n_compressed:
        state = state._replace(expert_counts=predict_latest(state, settings))
    if reference is None:
        reference = reference_experts(state, settings)
    n_later = state.mixture.n_components - reference.estimates[0].model.n_components
    if n_later:
        reference = reference.with_later(
            state.mixture.counts[-n_later:], state.mixture.means[-n_later:]
        )
    return reference.mixed(state.expert_counts)
