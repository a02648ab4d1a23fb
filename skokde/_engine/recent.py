"""Short memories: the newest samples as they came, beside a model that forgets nothing.

Not in the paper. A forgetting factor has to be known beforehand. Where it is found by prediction,
the newest samples are kept, weighted by exponentials of their age; each of these memories is a
small kernel density estimate. How much each of them counts beside the model of all samples, which
has an old regime still when it comes back, is learned as for other experts: from samples that are
predicted before they are learned. Kernels follow with the samples that have been predicted; those
that are pending stand there as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from skokde._engine.bandwidth import RULES, Rule
from skokde._engine.covariance import CovarianceStructure
from skokde._engine.families import family_of
from skokde._engine.kde import KDE, KernelFamily
from skokde._engine.mixture import Mixture, Resolutions, SampleModel
from skokde._engine.outliers import Moments, inlier_moments
from skokde._engine.state import Recent, Settings, State

# The forgetting factors.
MEMORIES = (0.9, 0.97, 0.997)
# Samples that are kept, and how many at a time are predicted.
N_KEPT = 512
N_PREDICTED = 8
# Older samples than those with this weight beside the newest don't matter.
LEAST_WEIGHT = 1e-3
# The shares of the weight that the model of all samples, and one that fades, start with; all of it
# is worth one sample.
FIRST_SHARE, FIRST_OF_FADING = 0.5, 0.1
# Samples that are remembered of how well each memory predicts.
LONGEST_MEMORY = 32.0


def rule_of(settings: Settings) -> Rule:
    """The kernels of the short memories, of which all widths are tried where any are."""
    return RULES["predictive"] if settings.bandwidth.n_widths > 1 else settings.bandwidth


def prior_counts(settings: Settings) -> np.ndarray:
    """First weights, of the kinds that `Recent.credits` are of."""
    rule = rule_of(settings)
    n = len(settings.memories) * (rule.n_widths + len(rule.gaussian_scales))
    of_fading = [FIRST_OF_FADING] if settings.fades else []
    rest = 1.0 - FIRST_SHARE - sum(of_fading)
    return np.concatenate([[FIRST_SHARE], np.full(n, rest / n), of_fading])


def credits_by_kind(recent: Recent, settings: Settings) -> tuple[float, np.ndarray, float]:
    """Those of the model of all samples, of the densities of each memory, and of what fades.

    The second is an array (n_memories, n_densities). What fades has none before it is there.
    """
    n = len(recent.credits) - settings.fades
    of_all, of_memories, of_fading = np.split(recent.credits, [1, n])
    of_fading = 0.0 if recent.fading is None else float(of_fading[0])
    return float(of_all[0]), of_memories.reshape(len(settings.memories), -1), of_fading


def nothing_recent(d: int, settings: Settings) -> Recent:
    """Before the first sample."""
    none = np.empty((0, d)), np.empty(0)
    return Recent(*none, *none, np.empty(0), prior_counts(settings), None)


def holds_any(recent: Recent | None) -> bool:
    """Whether there is a sample in it."""
    return recent is not None and len(recent.rows) + len(recent.pending_rows) > 0


def held(recent: Recent) -> tuple[np.ndarray, np.ndarray]:
    """Rows that kernels follow, and their counts: those pending too before the first prediction."""
    if len(recent.rows):
        return recent.rows, recent.counts
    return recent.pending_rows, recent.pending_counts


def starts_of_runs(recent: Recent, X: np.ndarray) -> np.ndarray:
    """Which rows (n,) differ from the one before: a row of weight two is the same as two rows."""
    starts = np.ones(len(X), dtype=bool)
    starts[1:] = (X[1:] != X[:-1]).any(axis=1)
    last = recent.pending_rows if len(recent.pending_rows) else recent.rows
    if len(last):
        starts[0] = (X[0] != last[-1]).any()
    return starts


def counts_of_runs(counts: np.ndarray, starts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Counts of runs of equal rows after some more rows, of which some start a run.

    Weights are added one by one, so that the sums do not depend on the blocks.
    """
    run, added = np.zeros(len(starts) + 1, dtype=np.intp), np.zeros(len(starts) + 1)
    np.cumsum(starts, out=run[1:])
    added[1:] = weights
    if not len(counts):
        return np.bincount(run, added)[1:]
    added[0] = counts[-1]
    return np.concatenate([counts[:-1], np.bincount(run, added)])


def rows_until_due(recent: Recent, X: np.ndarray) -> int:
    """How many rows come before the next prediction."""
    room = N_PREDICTED - len(recent.pending_rows)
    runs = np.cumsum(starts_of_runs(recent, X))
    return int(np.searchsorted(runs, room, side="right"))


def with_rows(recent: Recent, X: np.ndarray, weights: np.ndarray) -> Recent:
    """With more rows, not yet predicted."""
    starts, n = starts_of_runs(recent, X), len(recent.rows)
    if len(recent.pending_rows) or not n or starts[0]:
        pending_counts = counts_of_runs(recent.pending_counts, starts, weights)
        counts = recent.counts
    else:  # the last one that was predicted has come again
        all_counts = counts_of_runs(recent.counts, starts, weights)
        counts, pending_counts = all_counts[:n], all_counts[n:]
    return recent._replace(
        counts=counts,
        pending_rows=np.concatenate([recent.pending_rows, X[starts]]),
        pending_counts=pending_counts,
    )


def none_pending(recent: Recent, mixture: Mixture, credits: np.ndarray) -> Recent:
    """After the prediction of all rows, when these are the credits and all samples this mixture."""
    nothing = recent.pending_rows[:0], recent.pending_counts[:0]
    if not len(recent.pending_rows):
        return recent._replace(counts_before=mixture.counts, credits=credits)
    rows, counts = all_rows(recent)
    rows, counts = rows[-N_KEPT:], counts[-N_KEPT:]
    return Recent(rows, counts, *nothing, mixture.counts, credits, recent.fading)


def all_rows(recent: Recent) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d), pending ones too, and their counts."""
    rows = np.concatenate([recent.rows, recent.pending_rows])
    return rows, np.append(recent.counts, recent.pending_counts)


def later_than_each(counts: np.ndarray) -> np.ndarray:
    """How many samples came after each row, by what the rows count."""
    later = np.zeros(len(counts))
    np.cumsum(counts[:0:-1], out=later[1:])
    return later[::-1]


def weights_in_memories(counts: np.ndarray, factors: Sequence[float]) -> np.ndarray:
    """What is left of rows of some counts after the last one, (n_memories, n).

    A row of count w is as w rows, also where w is tiny.
    """
    logs = np.log(factors)[:, None]
    of_each = np.empty((len(logs), len(counts)))
    of_each[:] = counts
    np.divide(np.expm1(logs * counts), np.expm1(logs), out=of_each, where=logs < 0.0)
    return np.exp(logs * later_than_each(counts)) * of_each


def short_memories(
    rows: np.ndarray, counts: np.ndarray, factors: Sequence[float], structure: CovarianceStructure
) -> list[Mixture]:
    """Rows, weighted by powers of each forgetting factor, as mixtures of Diracs."""
    empty, memories = Mixture.empty(rows.shape[1], structure), []
    later = later_than_each(counts)
    for factor, weights in zip(factors, weights_in_memories(counts, factors), strict=True):
        known = slice(int(np.count_nonzero(factor**later <= LEAST_WEIGHT)), None)
        memories.append(empty._replace(counts=weights[known], means=rows[known]))
    return memories


def voting_memory(
    recent: Recent | None, mixture: Mixture, factor: float, structure: CovarianceStructure
) -> Mixture:
    """The newest samples, pending ones too, weighted by powers of a forgetting factor.

    All samples, a mixture, stand in for a memory that holds nothing.
    """
    if not holds_any(recent):
        return mixture
    (memory,) = short_memories(*all_rows(recent), [factor], structure)
    return memory


def families_of(
    rows: np.ndarray, counts: np.ndarray, settings: Settings, target: np.ndarray
) -> list[KernelFamily]:
    """Of all short memories, whose covariances are shrunk to a target."""
    rule, families = rule_of(settings), []
    for mixture in short_memories(rows, counts, settings.memories, settings.structure):
        (kernels,) = rule.kernels(mixture, settings.structure, target)
        models = Resolutions.of_one(mixture.sample_model)._replace(shape=settings.structure)
        if rule.gaussian_scales:
            models = models.with_mean(kernels.frame.center)
        families.append(family_of(settings.structure).of(models, kernels))
    return families


def samples_before(state: State) -> Mixture:
    """All samples but the pending ones, or all if there are no others."""
    mixture, counts = state.mixture, state.recent.counts_before
    if not len(counts):
        return mixture
    return mixture._replace(counts=counts, means=mixture.means[: len(counts)])


def target_of(mixture: Mixture, settings: Settings) -> np.ndarray:
    """What covariances of short memories are shrunk to: that of all samples, if to nothing else."""
    if settings.shrinkage_target is not None:
        return settings.shrinkage_target
    return inlier_moments(mixture)[2]


def reference_memories(
    state: State, settings: Settings, chosen: tuple[bool, ...] | None = None
) -> KDE:
    """The short memories of the rows that have been predicted, each a group of its own.

    Some may be chosen; by default there are all.
    """
    target = target_of(samples_before(state), settings)
    families = families_of(*held(state.recent), settings, target)
    of_families = credits_by_kind(state.recent, settings)[1][:, None]
    weights = []
    for number, (family, credits) in enumerate(zip(families, of_families, strict=True)):
        shares = np.zeros((1 + len(families), credits.shape[1]))
        shares[0], shares[1 + number] = credits / of_families.sum(), credits / credits.sum()
        n = family.kernels.n_kernels
        weights.append(family.weights(shares[:, None, :n], shares[:, n:]))
    kde = KDE(tuple(families), tuple(weights), len(families))
    return kde if chosen is None or all(chosen) else kde.of_groups(chosen)


def with_memories(
    kde: KDE | None, memories: KDE, recent: Recent, factors: Sequence[float], share: float
) -> KDE:
    """The density of all samples, if it is asked for, and of the newest ones.

    Parameters
    ----------
    kde : KDE or None
        Of all samples.
    memories : KDE
        See `reference_memories`.
    recent : Recent
        Not empty.
    factors : sequence of float
        Of these memories.
    share : float
        What the density of all samples counts beside them.
    """
    counts, factors = recent.pending_counts, np.array(factors)
    if len(recent.rows) and len(counts):
        weights = weights_in_memories(counts, factors)
        memories = memories.with_later(recent.pending_rows, weights, factors ** counts.sum())
    if kde is None:
        return memories
    return kde.beside(memories, share)


def predicted_moments(recent: Recent, settings: Settings) -> list[Moments]:
    """Count, mean and covariance of memories of the rows that have been predicted."""
    memories = short_memories(*held(recent), settings.discriminating, settings.structure)
    return [inlier_moments(memory) for memory in memories]


def memory_moments(
    recent: Recent | None,
    mixture: Mixture,
    settings: Settings,
    reference: Callable[[Recent, Settings], list[Moments]] = predicted_moments,
) -> list[Moments]:
    """Count, mean and covariance of memories that tell classes apart, without outliers.

    Parameters
    ----------
    recent : Recent or None
    mixture : Mixture
        Of all samples, in place of memories that hold nothing.
    settings : Settings
    reference : callable, default=predicted_moments
        Gives what that gives, and may know it already.
    """
    factors = np.array(settings.discriminating)
    if not len(factors):
        return []
    if not holds_any(recent):
        return len(factors) * [inlier_moments(mixture)]
    before, counts = reference(recent, settings), recent.pending_counts
    if not (len(recent.rows) and len(counts)):
        return before
    fades, weights = factors ** counts.sum(), weights_in_memories(counts, factors)
    return [
        inlier_moments(
            SampleModel(
                np.append(count * fade, of_pending),
                np.concatenate([mean[None], recent.pending_rows]),
                covariance[None],
            )
        )
        for (count, mean, covariance), fade, of_pending in zip(before, fades, weights, strict=True)
    ]
