"""Learning from a stream: append samples, compress when due (paper, Section 5)."""

from __future__ import annotations

import numpy as np

from skokde._engine._append import append_rows
from skokde._engine.compression import Compressed, compress
from skokde._engine.experts import adapted, next_level, predict_latest
from skokde._engine.mixture import Mixture
from skokde._engine.revitalization import may_revive, revitalize
from skokde._engine.state import INITIAL_LIMIT, Settings, State

# How much of what a compression leaves may be added before the next one; the same for fine models,
# to which, at the start, samples are added by this share of all at least.
GROWTH = 1.25
FINE_GROWTH = 1.5
LEAST_FINE_GROWTH = 1 / 16
# Components that need not be more before the next compression of a fine model.
ENOUGH_NEW = 64
# Their share of the components under a cap.
OUTLIERS = 0.2


def next_limit(mixture: Mixture, settings: Settings) -> int:
    """Components that are held before the next compression."""
    k = mixture.n_components
    limit = max(INITIAL_LIMIT, int(growth(settings) * k) + 1)
    if settings.n_levels:
        limit = max(limit, k + min(ENOUGH_NEW, int(LEAST_FINE_GROWTH * mixture.counts.sum())))
    return limit if settings.max_components is None else min(limit, settings.max_components)


def growth(settings: Settings) -> float:
    """By what factor components may become more between compressions."""
    return FINE_GROWTH if settings.n_levels else GROWTH


def compact(state: State, settings: Settings) -> State:
    """Revitalize and compress a model, under its own bandwidth."""
    expert_counts = state.expert_counts
    if settings.n_experts > 1:
        expert_counts = predict_latest(state, settings)
    most = settings.most_components
    # With a cap, leave room for new samples: else nearly each of them costs a compression.
    if settings.max_components is not None:
        room = max(1, int(settings.max_components / growth(settings)))
        most = room if most is None else min(most, room)
    level = next_level(state.level, expert_counts, settings)
    mixture = state.mixture.without_vanished()
    mixture, partitions, level = revitalize_and_compress(mixture, settings, level, most)
    return State(
        mixture,
        next_limit(mixture, settings),
        mixture.n_components,
        level,
        partitions,
        expert_counts,
    )


def revitalize_and_compress(
    mixture: Mixture, settings: Settings, level: int, most: int | None
) -> Compressed:
    """Revitalize and compress a mixture, outliers by themselves.

    Under the bandwidth of the others they would never merge, and under one that is wide enough for
    them the others would.
    """
    if mixture.n_components == 1 and not may_revive(mixture).any():
        return Compressed(mixture, np.zeros((settings.n_levels, 1), dtype=np.intp), level)
    kernel = settings.bandwidth.kernel_frame(mixture, settings.structure)
    parts = []
    near = kernel.inliers
    if not near.all() and most != 1:
        room = None if most is None else max(1, int(OUTLIERS * most))
        parts.append(revitalize_and_compress(mixture.part(~near), settings, level, room))
        mixture = mixture.part(near)
        most = None if most is None else most - parts[0].mixture.n_components
    mixture = revitalize(mixture, kernel.frame, settings.thresholds[level])
    parts.append(compress(mixture, kernel, settings.thresholds, level, most))
    return Compressed.of_parts(parts)


def learn(state: State, X: np.ndarray, weights: np.ndarray, settings: Settings) -> State:
    """Add rows to a model, in order.

    When to compress depends on the stream alone: before a distinct sample would pass the limit.
    The result is therefore the same, bit for bit, however the stream is cut.

    Parameters
    ----------
    state : State
    X : (n, d) array
    weights : (n,) array, positive
    settings : Settings
    """
    state = adapted(state, settings)
    cap = settings.max_components
    if cap is not None:
        if state.mixture.n_components > cap:
            state = compact(state, settings)
        state = state._replace(limit=min(state.limit, cap))
    done = 0
    while done < len(X):
        mixture = state.mixture
        capacity = min(state.limit, mixture.n_components + len(X) - done)
        capacity = max(mixture.n_components, capacity)
        counts = np.empty(capacity)
        means = np.empty((capacity, mixture.n_features))
        counts[: mixture.n_components] = mixture.counts
        means[: mixture.n_components] = mixture.means
        k, n_rows = append_rows(
            counts,
            means,
            mixture.n_components,
            mixture.n_compounds,
            X[done:],
            weights[done:],
            settings.forgetting_factor,
        )
        state = state._replace(mixture=mixture._replace(counts=counts[:k], means=means[:k]))
        done += n_rows
        if done < len(X):
            state = compact(state, settings)
    return state
