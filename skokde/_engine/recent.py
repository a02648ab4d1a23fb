"""Short memories: the newest samples as they came, beside a model that forgets nothing.

Not in the paper. A forgetting factor has to be known beforehand. Where it is found by prediction,
the newest samples are kept, weighted by exponentials of their age; each of these memories is a
small kernel density estimate. How much each of them counts beside the model of all samples, which
has an old regime still when it comes back, is learned as for other experts: from samples that are
predicted before they are learned.
"""

from __future__ import annotations

import numpy as np

from skokde._engine.bandwidth import RULES, Rule
from skokde._engine.kde import KDE, KernelFamily
from skokde._engine.mixture import Mixture, Resolutions
from skokde._engine.outliers import inlier_moments
from skokde._engine.state import Recent, Settings

# The forgetting factors.
MEMORIES = (0.9, 0.99)
# Samples that are kept, and how many at a time are predicted.
N_KEPT = 256
N_PREDICTED = 8
# Older samples than those with this weight beside the newest don't matter.
LEAST_WEIGHT = 1e-3
# The share of the weight that the model of all samples starts with; it is worth one sample.
FIRST_SHARE = 0.5
# Samples that are remembered of how well each memory predicts.
LONGEST_MEMORY = 32.0


def rule_of(settings: Settings) -> Rule:
    """The kernels of the short memories, of which all widths are tried where any are."""
    return RULES["predictive"] if settings.bandwidth.n_widths > 1 else settings.bandwidth


def prior_counts(settings: Settings) -> np.ndarray:
    """First weights of the model of all samples and of each density of the short memories."""
    rule = rule_of(settings)
    n = len(settings.memories) * (rule.n_widths + len(rule.gaussian_scales))
    return np.append(FIRST_SHARE, np.full(n, (1.0 - FIRST_SHARE) / n))


def nothing_recent(d: int, settings: Settings) -> Recent:
    """Before the first sample."""
    return Recent(np.empty((0, d)), np.empty(0), 0, np.empty(0), prior_counts(settings))


def starts_of_runs(recent: Recent, X: np.ndarray) -> np.ndarray:
    """Which rows (n,) differ from the one before: a row of weight two is the same as two rows."""
    starts = np.ones(len(X), dtype=bool)
    starts[1:] = (X[1:] != X[:-1]).any(axis=1)
    if len(recent.rows):
        starts[0] = (X[0] != recent.rows[-1]).any()
    return starts


def counts_of_runs(counts: np.ndarray, starts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Counts of runs of equal rows after some more rows, of which some start a run.

    Weights are added one by one, so that the sums do not depend on the blocks.
    """
    run = np.append(0, np.cumsum(starts))
    sums = np.bincount(run, np.append(counts[-1:].sum(), weights))
    return np.append(counts[:-1], sums if len(counts) else sums[1:])


def rows_until_due(recent: Recent, X: np.ndarray) -> int:
    """How many rows come before the next prediction."""
    room = N_PREDICTED - recent.n_pending
    runs = np.cumsum(starts_of_runs(recent, X))
    return int(np.searchsorted(runs, room, side="right"))


def with_rows(recent: Recent, X: np.ndarray, weights: np.ndarray) -> Recent:
    """With more rows, not yet predicted."""
    starts = starts_of_runs(recent, X)
    keep = N_KEPT + N_PREDICTED
    return recent._replace(
        rows=np.concatenate([recent.rows, X[starts]])[-keep:],
        counts=counts_of_runs(recent.counts, starts, weights)[-keep:],
        n_pending=recent.n_pending + int(np.count_nonzero(starts)),
    )


def short_memories(rows: np.ndarray, counts: np.ndarray, settings: Settings) -> list[Mixture]:
    """The newest rows, weighted by powers of each forgetting factor, as mixtures of Diracs."""
    empty = Mixture.empty(rows.shape[1], settings.structure)
    rows, counts = rows[-N_KEPT:], counts[-N_KEPT:]
    # A row of weight w is as w rows of weight one.
    later = np.append(np.cumsum(counts[:0:-1])[::-1], 0.0)
    memories = []
    for factor in settings.memories:
        fade = factor**later
        known = slice(int(np.count_nonzero(fade <= LEAST_WEIGHT)), None)  # the older, the less
        weights = fade[known] * (1.0 - factor ** counts[known]) / (1.0 - factor)
        memories.append(empty._replace(counts=weights, means=rows[known]))
    return memories


def families_of(
    rows: np.ndarray, counts: np.ndarray, settings: Settings, target: np.ndarray
) -> list[KernelFamily]:
    """Of all short memories, whose covariances are shrunk to a target."""
    rule, families = rule_of(settings), []
    for mixture in short_memories(rows, counts, settings):
        (kernels,) = rule.kernels(mixture, settings.structure, target)
        models = Resolutions.of_one(mixture.sample_model)
        if rule.gaussian_scales:
            models = models.with_mean(kernels.frame.center)
        families.append(KernelFamily.of(models, kernels))
    return families


def target_of(mixture: Mixture, settings: Settings) -> np.ndarray:
    """What covariances of short memories are shrunk to: that of all samples, if to nothing else."""
    if settings.shrinkage_target is not None:
        return settings.shrinkage_target
    return inlier_moments(mixture)[2]


def mixed_with(kde: KDE, recent: Recent, mixture: Mixture, settings: Settings) -> KDE:
    """The density of all samples and of the newest ones.

    Parameters
    ----------
    kde : KDE
        Of all samples.
    recent : Recent
        Not empty.
    mixture : Mixture
        Of all samples.
    settings : Settings
    """
    target = target_of(mixture, settings)
    families = families_of(recent.rows, recent.counts, settings, target)
    shares = recent.credits / recent.credits.sum()
    weights = []
    for family, held in zip(families, shares[1:].reshape(len(families), 1, -1), strict=True):
        n = family.kernels.n_kernels
        weights.append(family.weights(held[None, :, :n], held[:, n:]))
    return kde.beside(families, weights, shares[0])


def memory_moments(
    recent: Recent | None, mixture: Mixture, settings: Settings
) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Count, mean and covariance of each short memory, without outliers."""
    if recent is None or not len(recent.rows):
        return len(settings.memories) * [inlier_moments(mixture)]
    memories = short_memories(recent.rows, recent.counts, settings)
    return [inlier_moments(memory) for memory in memories]
