"""Learning from a stream: append samples, compress when due (paper, Section 5)."""

from __future__ import annotations

import numpy as np

from skokde._engine._append import append_rows
from skokde._engine.compression import Compressed, are_large, compress
from skokde._engine.estimates import REFERENCES, References, predict_pending
from skokde._engine.experts import adapted, empty_state
from skokde._engine.mixture import Mixture
from skokde._engine.prequential import next_level, predict_latest
from skokde._engine.recent import all_rows, rows_until_due, with_rows
from skokde._engine.revitalization import may_revive, revitalize
from skokde._engine.state import INITIAL_LIMIT, Settings, State

# How much of what a compression leaves may be added before the next one; the same for fine models.
GROWTH = 1.25
FINE_GROWTH = 1.5
# By what share of all samples fine models may become more at most, where components aren't large,
# since what is new is in no cluster of higher thresholds yet; and by how much, and by how many,
# they may in any case.
MOST_SHARE_NEW = 1 / 4
LEAST_SHARE_NEW = 1 / 16
ENOUGH_NEW = 64
# How many times the share may be where structures are patient.
MOST_PATIENT = 3
# Their share of the components under a cap.
OUTLIERS = 0.2
# Where the threshold is found by prediction, merged models are larger than those of one stream:
# their components are of fewer samples each, and in other places in each of the models. A merging
# takes so much of the threshold that a stream would have, and may leave so many times as many
# components; as the model goes on it may have so many times as many.
FINER_IF_MERGED = 0.25
MORE_IF_MERGED = 1.5
MORE_GOING_ON = 2
# Where there are more components than may be left, the lowest threshold that leaves few enough is
# taken: one of those that are tried, or the lowest of them times one of these.
BETWEEN = 2.0 ** (0.25 * np.arange(16))
# Of a long block not all is looked through for the next prediction.
SOME_ROWS = 64


def next_limit(mixture: Mixture, settings: Settings) -> int:
    """Components that are held before the next compression."""
    k, n = mixture.n_components, mixture.counts.sum()
    limit = int(growth(settings) * k) + 1
    if settings.n_levels:
        structure = settings.structure
        if not are_large(structure, mixture.n_features):
            limit = min(limit, k + int(MOST_SHARE_NEW * max(k, n)))
        at_start = int(min(structure.patience, MOST_PATIENT) * LEAST_SHARE_NEW * n)
        limit = max(limit, k + min(structure.patience * ENOUGH_NEW, at_start))
    limit = max(INITIAL_LIMIT, limit)
    return limit if settings.max_components is None else min(limit, settings.max_components)


def growth(settings: Settings) -> float:
    """By what factor components may become more between compressions."""
    return FINE_GROWTH if settings.n_levels else GROWTH


def compact(state: State, settings: Settings, references: References) -> State:
    """Revitalize and compress a model, under its own bandwidth."""
    if settings.memories:
        state = predict_newest(state, settings, references)
    if settings.n_experts > 1:
        state = state._replace(expert_counts=predict_latest(state, settings))
    return recompressed(state, settings)


def faded(state: State, settings: Settings) -> Mixture:
    """The samples, with less of those before the last compression if the stream has changed."""
    counts, n = state.mixture.counts, state.n_compressed
    if not settings.forgotten:
        return state.mixture
    left = (1.0 - settings.forgotten) ** counts[n:].sum()
    return state.mixture._replace(counts=np.concatenate([left * counts[:n], counts[n:]]))


def recompressed(state: State, settings: Settings, *, merging: bool = False) -> State:
    """The same of a model whose samples have been predicted.

    Parameters
    ----------
    state : State
    settings : Settings
    merging : bool, default=False
        Whether its components are those of several models.
    """
    most, most_compounds, more = settings.most_components, settings.most_compounds, 1
    if merging:
        level, more = state.level, MORE_IF_MERGED
    elif most is not None and state.n_compressed > most:
        level, more = 0, MORE_GOING_ON
    else:
        level = next_level(state, settings)
    if most is not None:
        most, most_compounds = int(more * most), int(more * most_compounds)
    # With a cap, leave room for new samples: else nearly each of them costs a compression.
    if settings.max_components is not None:
        room = max(1, int(settings.max_components / growth(settings)))
        most = room if most is None else min(most, room)
    thresholds, tried = settings.thresholds, settings
    # Those that are revived are two each.
    many = most is not None and 2 * state.mixture.n_components > most
    if settings.n_levels and (merging or many):
        taken, lowest = thresholds[level], thresholds[:1]
        if merging:
            taken = FINER_IF_MERGED * taken
            lowest = np.append(lowest, taken)
        finer = np.union1d(thresholds, np.outer(lowest, BETWEEN) if many else lowest)
        level, tried = int(np.searchsorted(finer, taken)), settings._replace(thresholds=finer)
    mixture = faded(state, settings).without_vanished()
    compressed = revitalize_and_compress(mixture, tried, level, most, most_compounds)
    mixture, partitions, level = compressed
    if tried is not settings:
        asked = np.searchsorted(tried.thresholds, thresholds)
        partitions = partitions[asked[1:] - 1]
        level = int(np.searchsorted(asked, level, side="right")) - 1
    return State(
        mixture,
        next_limit(mixture, settings),
        mixture.n_components,
        max(state.level if merging else 0, level),
        partitions,
        state.expert_counts,
        state.recent and state.recent._replace(counts_before=mixture.counts),
    )


def revitalize_and_compress(
    mixture: Mixture,
    settings: Settings,
    level: int,
    most: int | None = None,
    most_compounds: int | None = None,
) -> Compressed:
    """Revitalize and compress a mixture, outliers by themselves.

    Under the bandwidth of the others they would never merge, and under one that is wide enough for
    them the others would. For the parameters see `compress`.
    """
    if mixture.n_components == 1 and not may_revive(mixture).any():
        return Compressed(mixture, np.zeros((settings.n_levels, 1), dtype=np.intp), level)
    kernel = settings.bandwidth.kernel_frame(mixture, settings.structure)
    parts = []
    near = kernel.inliers
    if not near.all() and most != 1:
        room = None if most is None else max(1, int(OUTLIERS * most))
        far, mixture = mixture.part(~near), mixture.part(near)
        parts.append(revitalize_and_compress(far, settings, level, room, most_compounds))
        outliers = parts[0].mixture
        most = None if most is None else most - outliers.n_components
        if most_compounds is not None:
            most_compounds -= outliers.n_compounds
    mixture = revitalize(mixture, kernel.frame, settings.thresholds[level])
    parts.append(compress(mixture, kernel, settings.thresholds, level, most, most_compounds))
    return Compressed.of_parts(parts)


def learn(
    state: State,
    X: np.ndarray,
    weights: np.ndarray,
    settings: Settings,
    references: References = REFERENCES,
) -> State:
    """Add rows to a model, in order.

    When to compress depends on the stream alone: before a distinct sample would pass the limit.
    The result is therefore the same, bit for bit, however the stream is cut.

    Parameters
    ----------
    state : State
    X : (n, d) array
    weights : (n,) array, positive
    settings : Settings
    references : References, default=REFERENCES
        See `build_kde`.
    """
    state = adapted(state, settings)
    cap = settings.max_components
    if cap is not None:
        if state.mixture.n_components > cap:
            # It was set, which tells nothing of the stream.
            state = compact(state, settings._replace(forgotten=0.0), references)
        state = state._replace(limit=min(state.limit, cap))
    done = 0
    while done < len(X):
        part = slice(done, len(X))
        if settings.memories:
            n = rows_until_due(state.recent, X[done : done + SOME_ROWS])
            if not n:
                state = predict_newest(state, settings, references)
                continue
            part = slice(done, done + n)
        state, n = append(state, X[part], weights[part], settings)
        if settings.memories and n:
            newest = with_rows(state.recent, X[done : done + n], weights[done : done + n])
            state = state._replace(recent=newest)
        done += n
        if done < part.stop:
            state = compact(state, settings, references)
    return state


def predict_newest(state: State, settings: Settings, references: References = REFERENCES) -> State:
    """After the prediction of the newest rows; then the model that fades learns them."""
    newest, state = state.recent, predict_pending(state, settings, references)
    if not settings.fades:
        return state
    fading, rows, counts = newest.fading, newest.pending_rows, newest.pending_counts
    if fading is None:
        rows, counts = all_rows(newest)
        fading = empty_state(state.mixture.n_features, settings.fading)
    if not len(rows):
        return state
    fading = learn(fading, rows, counts, settings.fading)
    return state._replace(recent=state.recent._replace(fading=fading))


def append(
    state: State, X: np.ndarray, weights: np.ndarray, settings: Settings
) -> tuple[State, int]:
    """Add rows until one needs a compression first; how many rows are in."""
    mixture = state.mixture
    k = mixture.n_components
    capacity = max(k, min(state.limit, k + len(X)))
    counts, means = np.empty(capacity), np.empty((capacity, mixture.n_features))
    counts[:k], means[:k] = mixture.counts, mixture.means
    k, n = append_rows(
        counts, means, k, mixture.n_compounds, X, weights, settings.forgetting_factor
    )
    return state._replace(mixture=mixture._replace(counts=counts[:k], means=means[:k])), n
