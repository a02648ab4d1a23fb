"""The density estimate of a model: its experts, weighted, with the samples since it was made.

Not in the paper. Kernels follow the samples when there are a good many more, so that most rows
change next to nothing of what scoring needs; these parts are the references.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from skokde._engine import recent
from skokde._engine.bandwidth import KernelFrame
from skokde._engine.experts import Experts, Grid, adapted, by_kind, shape_name
from skokde._engine.kde import KDE, KernelFamily, marginals
from skokde._engine.mixture import Mixture
from skokde._engine.outliers import Moments, inlier_moments
from skokde._engine.outputs import log_conditionals, log_densities_of_outputs
from skokde._engine.prequential import bounded, em_update, remembered, up_to_date
from skokde._engine.state import FADING, Recent, Settings, State

TINY = np.finfo(float).tiny
# The kernels follow the samples when there are more of them by this share.
PACE = 0.1
# Where forgetting has left less than this of them, they follow each sample; and so exactly are
# counts taken that are faded.
LEAST_SHARE_LEFT = 0.5
ROUNDED_TO = 2.0**30


# Of those of the leading shapes of a density, which are asked for; None: all of all shapes.
Groups = tuple[bool, ...] | None
# Of the short memories, which are asked for; None: all.
Memories = tuple[bool, ...] | None


class References(NamedTuple):
    """What gives the parts of densities that most of the rows to come will change nothing of.

    Attributes
    ----------
    estimates : callable
        See `reference_kde`.
    memories : callable
        See `recent.reference_memories`.
    fading : callable
        See `fading_kde`.
    up_to_date : callable
        See `up_to_date`.
    """

    estimates: Callable[[State, Settings, Groups], KDE]
    memories: Callable[[State, Settings, Memories], KDE]
    fading: Callable[[State, Settings], KDE | None]
    up_to_date: Callable[[State, Settings], State]


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
    # Under another factor than they came by, counts may seem to have been beyond all numbers.
    with np.errstate(over="ignore"):
        pace = PACE * unfaded(mixture, n_compressed, settings).sum()
    n = mixture.n_components - later % max(1, int(min(pace, later + 1)))
    return None if share_left(mixture, n, settings) < LEAST_SHARE_LEFT else n


def share_left(mixture: Mixture, n: int, settings: Settings) -> float:
    """What the samples after the first n components have left of the counts of these."""
    if settings.forgetting_factor == 1.0:
        return 1.0
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


def fading_kde(state: State, settings: Settings) -> KDE | None:
    """The density estimate of the model that fades; None if there is none."""
    fading = state.recent.fading
    return None if fading is None else build_kde(fading, settings.fading).without_groups()


REFERENCES = References(reference_kde, recent.reference_memories, fading_kde, up_to_date)


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
    memories: Memories = None,
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
    memories : tuple of bool, default=None
        Which of the short memories; by default all. There is one at least if there is no group.
    """
    state = references.up_to_date(adapted(state, settings), settings)
    factors = settings.memories
    if memories is not None:
        factors = tuple(compress(factors, memories))
    any_groups = groups is None or any(groups)
    if factors and not recent.holds_any(state.recent):  # all samples stand in for them
        kde = build_estimates(state, settings, references, groups if any_groups else None)
        return (kde if any_groups else kde.without_groups()).with_groups_of_all(len(factors))
    kde = build_estimates(state, settings, references, groups) if any_groups else None
    if not factors:
        return kde
    of_all, short, of_fading = recent.credits_by_kind(state.recent, settings)
    of_memories = references.memories(state, settings, memories)
    share = of_all / (of_all + short.sum())
    kde = recent.with_memories(kde, of_memories, state.recent, factors, share)
    if not of_fading:
        return kde
    share = of_fading / (of_all + short.sum() + of_fading)
    return kde.beside(references.fading(state, settings), 1.0 - share)


def build_transformed_kde(
    state: State, settings: Settings, references: References, groups: Groups
) -> KDE:
    """The density of all samples in transformed coordinates, weighted as in the data's.

    For the parameters see `build_kde`.
    """
    state = references.up_to_date(adapted(state, settings), settings)
    settings = settings.in_transformed_coordinates()
    return build_estimates(adapted(state, settings), settings, references, groups)


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
        memories = references.memories(state, settings, None).families
        logs = [
            log_likelihood(estimates, rows, settings, before.mixture.counts.sum()),
            log_likelihoods_of_memories(memories, rows, settings),
        ]
        if settings.fades:
            logs.append(log_likelihood_of_fading(state, settings, references))
        logs = bounded(np.column_stack(logs), np.concatenate([newest.rows, rows]), settings)
        credits = em_update(credits, logs, newest.pending_counts)
        credits = remembered(credits, recent.prior_counts(settings), recent.LONGEST_MEMORY)
    return state._replace(recent=recent.none_pending(newest, state.mixture, credits))


def log_likelihood(kde: KDE, rows: np.ndarray, settings: Settings, count: float) -> np.ndarray:
    """By how much (n,) rows speak for a model of so many samples, in nats."""
    if not settings.n_outputs:
        return kde.log_density(rows)
    return log_densities_of_outputs(kde, rows, settings.n_outputs, count)


def log_likelihood_of_fading(
    state: State, settings: Settings, references: References
) -> np.ndarray:
    """The same of pending rows, for the model that fades; -inf if there is none."""
    rows, kde = state.recent.pending_rows, references.fading(state, settings)
    if kde is None:
        return np.full(len(rows), -np.inf)
    return log_likelihood(kde, rows, settings, state.recent.fading.mixture.counts.sum())


def log_likelihoods_of_memories(
    memories: Sequence[KernelFamily], rows: np.ndarray, settings: Settings
) -> np.ndarray:
    """The same (n, n_densities) of rows, for each density of short memories."""
    logs = np.concatenate([family.log_densities(rows) for family in memories], axis=1)
    if not settings.n_outputs:
        return logs
    features = np.arange(rows.shape[1] - settings.n_outputs)
    known = rows.take(features, axis=1)
    of_features = [family.log_densities(known) for family in marginals(memories, features)]
    return log_conditionals(logs, np.concatenate(of_features, axis=1))


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
        of_all, short, of_fading = recent.credits_by_kind(state.recent, settings)
        fading = [of_fading] if settings.fades else []
        memory = np.concatenate([[of_all], short.sum(axis=1), fading])
        memory /= memory.sum()
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
    memories: tuple[float, ...] = ()
    if recent.holds_any(state.recent):
        memories = settings.memories + ((FADING,) if settings.fades else ())
    return {
        "threshold": settings.thresholds[state.level :].tolist(),
        "width": list(rule.kernel_scales),
        "shape": [shape_name(shape, settings.structure) for shape in settings.shapes],
        "outliers": list(rule.gaussian_scales),
        "shrinkage": list(settings.bandwidth.shrinkages),
        "memory": [settings.forgetting_factor, *memories],
    }
