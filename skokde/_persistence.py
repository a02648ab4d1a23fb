"""What is stored of a fitted estimator, and the check of what comes back.

Stored are arrays, numbers and text in dicts and lists, nothing of the engine's own types: a file
says for itself what it holds, and a reader like skops has to trust nothing but the estimators.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from skokde._calibration import Calibration, PendingBatch
from skokde._engine.class_memory import FACTORS, ClassMemory
from skokde._engine.covariance import structure_of
from skokde._engine.histograms import N_BINS, N_HISTOGRAMS, Histograms
from skokde._engine.mixture import Mixture
from skokde._engine.neighbors import N_VOTE_WIDTHS
from skokde._engine.pooling import CONTAMINATIONS, LogLinearPool
from skokde._engine.recent import MEMORIES
from skokde._engine.state import Recent, State
from skokde._engine.steady_pool import SteadyPool
from skokde._engine.transformation import Transformation
from skokde._incomplete import Waiting
from skokde._replay import NewestRows, ReplayBuffer, SampledRows
from skokde._validation import TINY

# To be raised when what is stored changes; older formats stay readable.
FORMAT = 23

# The fields of the engine's tuples that are such tuples, or lists of them.
PARTS: dict[type, dict[str, type]] = {
    State: {"mixture": Mixture, "recent": Recent},
    Recent: {"fading": State},
    PendingBatch: {"states": State, "newest": NewestRows},
    SteadyPool: {"pool": LogLinearPool},
    Calibration: {
        "pool": LogLinearPool,
        "steady": SteadyPool,
        "transformation": Transformation,
        "histograms": Histograms,
        "pending": PendingBatch,
        "replay": ReplayBuffer,
        "newest": NewestRows,
        "sample": SampledRows,
    },
}


def packed(value: Any) -> Any:
    """A tuple of the engine, or a list of them, as dicts; anything else as it is."""
    if isinstance(value, list):
        return [packed(item) for item in value]
    if hasattr(value, "_asdict"):
        return {name: packed(field) for name, field in value._asdict().items()}
    return value


def unpacked(kind: type, value: Any) -> Any:
    """The tuple, or the list of them, that was packed; None stays None."""
    if value is None:
        return None
    if isinstance(value, list):
        return [unpacked(kind, item) for item in value]
    expect(isinstance(value, Mapping) and set(value) == set(kind._fields), kind.__name__)
    parts = PARTS.get(kind, {})
    return kind(
        **{
            name: unpacked(parts[name], field) if name in parts else field
            for name, field in value.items()
        }
    )


def expect(condition: Any, name: str, what: str = "") -> None:
    """Raise unless the part of that name is what it has to be."""
    if not condition:
        raise ValueError(f"The stored {name} is damaged{what and f': it must be {what}'}.")


def expect_array(array: Any, name: str, shape: tuple[int, ...], *, least: float = -np.inf) -> None:
    """Expect a finite float64 array of a shape, as the compiled functions take it."""
    expect(
        _is_of_floats(array, shape) and np.isfinite(array).all() and (array >= least).all(),
        name,
        f"a finite float64 array of shape {shape}"
        + (f", from {least:g} on" if least > -np.inf else ""),
    )


def expect_rows(array: Any, name: str, shape: tuple[int, ...]) -> None:
    """Expect rows as they came, some values of which may be missing."""
    expect(
        _is_of_floats(array, shape) and not np.isinf(array).any(),
        name,
        f"a float64 array of shape {shape}, nowhere infinite",
    )


def _is_of_floats(array: Any, shape: tuple[int, ...]) -> bool:
    return (
        isinstance(array, np.ndarray)
        and array.dtype == np.float64
        and array.shape == shape
        and array.flags.c_contiguous
    )


def expect_number(value: Any, name: str, *, least: float = 0.0) -> None:
    """Expect a finite number that is not below another one."""
    expect(
        isinstance(value, Real) and -np.inf < value < np.inf and value >= least,
        name,
        "a finite number" + (f" from {least:g} on" if least > -np.inf else ""),
    )


def expect_whole(value: Any, name: str, least: int, most: int | None = None) -> None:
    """Expect an integer in a range."""
    expect(
        isinstance(value, Integral)
        and not isinstance(value, bool)
        and least <= value
        and (most is None or value <= most),
        name,
        f"an integer from {least}" + (" on" if most is None else f" to {most}"),
    )


def check_state(state: State, d: int) -> None:
    """Raise unless this can be the state of an online model of d features."""
    mixture = state.mixture
    expect(isinstance(mixture, Mixture), "mixture")
    expect(
        all(isinstance(a, np.ndarray) for a in mixture)
        and mixture.counts.ndim == 1
        and mixture.covariances.ndim in (2, 3),
        "mixture",
        "of arrays",
    )
    k, m, shape = len(mixture.counts), len(mixture.covariances), mixture.covariances.shape[1:]
    expect(m <= k and structure_of(mixture.covariances).holds(shape, d), "covariances")
    expect_array(mixture.counts, "counts", (k,), least=0.0)
    expect(not k or mixture.counts.sum() > 0.0, "counts", "positive")
    expect_array(mixture.means, "means", (k, d))
    expect_array(mixture.covariances, "covariances", (m, *shape))
    expect_array(mixture.detail_weights, "detail_weights", (m, 2), least=0.0)
    expect_array(mixture.detail_means, "detail_means", (m, 2, d))
    merged = mixture.details_merged
    in_pairs = merged.shape == (m, 2) and merged.flags.c_contiguous
    expect(merged.dtype == bool and in_pairs, "details_merged", f"{m} pairs of bools")
    expect_array(mixture.detail_covariances, "detail_covariances", (merged.sum(), *shape))
    for covariances in (mixture.covariances, mixture.detail_covariances):
        variances = structure_of(mixture.covariances).variances(covariances)
        expect((variances >= 0.0).all(), "covariances", "of variances that are not negative")
    expect_whole(state.limit, "limit", 1)
    expect_whole(state.n_compressed, "n_compressed", 0, k)
    expect_partitions(state.partitions, state.n_compressed)
    expect_whole(state.level, "level", 0, len(state.partitions))
    n_experts = len(np.atleast_1d(state.expert_counts))
    expect_array(state.expert_counts, "expert_counts", (n_experts,), least=TINY)
    if state.recent is not None:
        check_recent(state.recent, state.n_compressed, k, d)


def check_recent(recent: Recent, n_compressed: int, k: int, d: int) -> None:
    """Raise unless these can be the newest samples of a model of k components and d features."""
    n = len(np.atleast_1d(recent.counts))
    expect_array(recent.rows, "recent rows", (n, d))
    expect_array(recent.counts, "counts of recent rows", (n,), least=TINY)
    n_pending = len(np.atleast_1d(recent.pending_counts))
    expect_array(recent.pending_rows, "pending rows", (n_pending, d))
    expect_array(recent.pending_counts, "counts of pending rows", (n_pending,), least=TINY)
    n_before = len(np.atleast_1d(recent.counts_before))
    expect(n_compressed <= n_before <= k, "counts_before", f"of {n_compressed} to {k} components")
    expect_array(recent.counts_before, "counts_before", (n_before,), least=0.0)
    n_densities = len(np.atleast_1d(recent.credits))
    expect_array(recent.credits, "credits", (n_densities,), least=TINY)
    if recent.fading is not None:
        expect(isinstance(recent.fading, State), "model that fades")
        expect(recent.fading.recent is None, "model that fades", "without newest samples")
        check_state(recent.fading, d)


def check_waiting(waiting: Waiting | None, d: int) -> None:
    """Raise unless these can be rows that wait to be learned."""
    if waiting is None:
        return
    n = len(np.atleast_1d(waiting.weights))
    expect_rows(waiting.rows, "waiting rows", (n, d))
    expect_array(waiting.weights, "weights of waiting rows", (n,), least=TINY)


def check_class_memory(memory: ClassMemory | None, n_classes: int) -> None:
    """Raise unless these can be the memories of class counts."""
    if memory is None:
        return
    n = len(FACTORS)
    expect_array(memory.counts, "class memory's counts", (n, n_classes), least=0.0)
    expect_array(memory.weights, "class memory's weights", (n,), least=0.0)
    expect(memory.weights.sum() > 0.0, "class memory's weights", "positive")


def expect_partitions(partitions: Any, n: int) -> None:
    """Expect numbers of clusters of n components, at each of some levels."""
    expect(
        isinstance(partitions, np.ndarray)
        and partitions.dtype == np.intp
        and partitions.ndim == 2
        and partitions.shape[1] == n
        and all(
            np.array_equal(np.unique(row), np.arange(row.max(initial=-1) + 1)) for row in partitions
        ),
        "partitions",
        f"numbers of clusters of {n} components",
    )


def check_calibration(calibration: Calibration, n_classes: int, d: int) -> None:
    """Raise unless this can be the calibration of so many classes and features."""
    expect(isinstance(calibration, Calibration), "calibration")
    pool, pending, replay = calibration.pool, calibration.pending, calibration.replay
    n_densities = len(np.atleast_1d(getattr(pool, "exponents", 0.0)))
    expect(n_densities > 2, "pool's exponents", "three or more")
    check_pool(pool, n_densities, n_classes)
    if calibration.steady is not None:
        check_pool(calibration.steady.pool, n_densities, n_classes)
        expect_number(calibration.steady.log_odds, "steady pool's log-odds", least=-np.inf)
    expect_whole(calibration.position, "position", 0)
    expect_whole(calibration.refreshed, "refreshed", 0)
    expect_whole(calibration.next_checkpoint, "next_checkpoint", 0)
    if calibration.covariance is not None:
        covariance, shape = np.asarray(calibration.covariance), np.shape(calibration.covariance)
        expect(
            len(shape) in (1, 2) and structure_of(covariance[None]).holds(shape, d),
            "covariance",
            f"of {d} features",
        )
        expect_array(calibration.covariance, "covariance", shape)
    if calibration.transformation is not None:
        expect(calibration.covariance is not None, "covariance", "there with a transformation")
        check_transformation(calibration.transformation, calibration.covariance.shape)
    weights = calibration.feature_weights
    if weights is not None:
        expect(calibration.covariance is not None, "covariance", "there with feature weights")
        expect_array(weights, "feature weights", (d,), least=TINY)
    if calibration.histograms is not None:
        check_histograms(calibration.histograms, n_classes, d)
    if calibration.last is not None:
        expect(len(calibration.last) == 2, "last row")
        expect_rows(calibration.last[0], "last row", (d,))
        expect_whole(calibration.last[1], "class of the last row", 0, n_classes - 1)
    if replay is not None:
        n = len(replay.rows)
        expect_rows(replay.rows, "predicted rows", (n, d))
        expect_array(replay.counts, "counts of predicted rows", (n,), least=TINY)
        # Besides these the pool has discriminants, with short memories or without, the classes'
        # scales, votes by up to two distances, of memories or kept rows, each by kernels of some
        # widths, and histograms.
        most_votes = N_VOTE_WIDTHS * (2 + len(MEMORIES) + 1)
        most_others = len(MEMORIES) + 1 + most_votes + N_HISTOGRAMS
        n_pooled = np.shape(replay.log_densities)[-1:]
        expect_array(replay.log_densities, "log-densities of predicted rows", (n, *n_pooled))
        expect(
            n_densities - n_pooled[0] in range(2, most_others + 1),
            "log-densities of predicted rows",
            "one for each density that is pooled",
        )
        expect_codes(replay.codes, "classes of predicted rows", n, n_classes)
    if pending is not None:
        expect(calibration.covariance is not None, "covariance", "there with a window")
        n = len(pending.rows)
        expect_whole(pending.start, "start of the window", 0)
        expect_rows(pending.rows, "rows of the window", (n, d))
        expect_array(pending.counts, "counts of the window", (n,), least=TINY)
        expect_array(pending.class_count, "class counts of the window", (n_classes,), least=0.0)
        expect_codes(pending.codes, "classes of the window", n, n_classes)
        expect(len(pending.states) == n_classes, "states of the window", "one for each class")
        for state in pending.states:
            if state is not None:
                check_state(state, d)
        check_newest(pending.newest, n_classes, d)
    check_newest(calibration.newest, n_classes, d)
    check_sample(calibration.sample, n_classes, d)


def check_pool(pool: LogLinearPool, n_densities: int, n_classes: int) -> None:
    """Raise unless this can be a pool of so many densities and classes."""
    expect(isinstance(pool, LogLinearPool), "pool")
    expect_array(pool.exponents, "pool's exponents", (n_densities,), least=0.0)
    expect_array(pool.offsets, "pool's offsets", (n_classes,))
    n = n_densities + n_classes
    expect_array(pool.precision, "pool's precision", (n, n))
    expect_number(pool.count, "pool's count")
    shape = (len(CONTAMINATIONS),)
    expect_array(pool.log_likelihoods, "pool's log-likelihoods", shape)


def check_newest(newest: NewestRows | None, n_classes: int, d: int) -> None:
    """Raise unless these can be the newest rows of so many classes and features."""
    if newest is None:
        return
    n = len(np.atleast_1d(newest.counts))
    expect_rows(newest.rows, "newest rows", (n, d))
    expect_array(newest.counts, "counts of newest rows", (n,), least=TINY)
    expect_codes(newest.codes, "classes of newest rows", n, n_classes)


def check_sample(sample: SampledRows | None, n_classes: int, d: int) -> None:
    """Raise unless this can be a sample of rows of so many classes and features."""
    if sample is None:
        return
    n = len(np.atleast_1d(sample.weights))
    expect_array(sample.rows, "sampled rows", (n, d))
    expect_array(sample.weights, "weights of sampled rows", (n,), least=TINY)
    expect_array(sample.draws, "draws of sampled rows", (n,), least=TINY)
    expect_codes(sample.codes, "classes of sampled rows", n, n_classes)
    threshold = sample.threshold
    expect(isinstance(threshold, float) and 0.0 <= threshold < np.inf, "threshold of the sample")


def check_histograms(histograms: Histograms, n_classes: int, d: int) -> None:
    """Raise unless these can be the histograms of so many classes and features."""
    expect(isinstance(histograms, Histograms), "histograms")
    edges, counts = histograms
    expect_array(edges, "edges of bins", (d, N_BINS - 1))
    in_order = (edges[:, 1:] >= edges[:, :-1]).all()  # differences may overflow
    expect(in_order, "edges of bins", "none below the one before")
    shape = (N_HISTOGRAMS, n_classes, d, N_BINS)
    expect_array(counts, "counts in bins", shape, least=0.0)


def check_transformation(transformation: Transformation, shape: tuple[int, ...]) -> None:
    """Raise unless this can be the transformation where covariances have a shape."""
    expect(isinstance(transformation, Transformation), "transformation")
    center, scale, covariance = transformation
    of_features = shape[-1:]
    expect_array(center, "transformation's center", of_features)
    expect(
        _is_of_floats(scale, of_features) and (scale > 0.0).all(),
        "transformation's scale",
        f"a positive float64 array of shape {of_features}",
    )
    expect_array(covariance, "transformation's covariance", shape)


def expect_codes(codes: Any, name: str, n: int, n_classes: int) -> None:
    """Expect n numbers of classes."""
    expect(
        isinstance(codes, np.ndarray)
        and codes.dtype == np.intp
        and codes.shape == (n,)
        and ((codes >= 0) & (codes < n_classes)).all(),
        name,
        f"{n} numbers of classes below {n_classes}",
    )


def check_format(name: str, stored: Any) -> None:
    """Raise unless an estimator's stored state is of a format that this version reads."""
    number = stored.get("_format") if isinstance(stored, Mapping) else None
    if isinstance(number, int) and number > FORMAT:
        raise ValueError(
            f"This {name} was stored by a newer skokde, in format {number}; the installed version "
            f"reads formats up to {FORMAT}. Update skokde."
        )
    expect(number in range(1, FORMAT + 1), name)
