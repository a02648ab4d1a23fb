"""Calibrations of classifiers that are merged.

What a pool has learned is right for densities of the samples that there were. Those of more samples
are surer of themselves, and their pool is learned anew, from rows that each of the models predicted
before it learned them. To the density of its class a row has since been added; but what it would be
of all the others is the mean of what it was in its own model then and what it is in the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from skokde._calibration import (
    FIRST_CHECKPOINT,
    Calibration,
    Mapper,
    ReplayBuffer,
    followed,
    serially,
    shares_of,
)
from skokde._engine.experts import build_kde, discriminant_moments
from skokde._engine.kde import log, log_sum
from skokde._engine.mixture import Mixture
from skokde._engine.outliers import inlier_moments
from skokde._engine.pooling import LogLinearPool, learn_pool, linear_discriminants
from skokde._engine.shrinkage import pooled_within_covariance
from skokde._engine.state import Settings, State
from skokde._ranks import LOWEST
from skokde._validation import TINY

# Rows that are predicted again, at most, and kept.
MOST_PREDICTED = 1500


class CalibratedClasses(NamedTuple):
    """One of some models of the same classes.

    Attributes
    ----------
    calibration : Calibration
        Without an open window.
    states : list of State or None
        Of the class densities; None for a class without samples.
    class_count : (n_classes,) array
    """

    calibration: Calibration
    states: list[State | None]
    class_count: np.ndarray


def common_covariance(models: Sequence[CalibratedClasses]) -> np.ndarray | None:
    """The average covariance within the classes of all models, or None if it is not used."""
    if all(model.calibration.covariance is None for model in models):
        return None
    moments = []
    for states in zip(*(model.states for model in models), strict=True):
        mixtures = [state.mixture for state in states if state is not None]
        if mixtures:
            moments.append(inlier_moments(Mixture.of_parts(mixtures)))
    return pooled_within_covariance(moments)


def merged_calibration(
    models: Sequence[CalibratedClasses],
    states: list[State | None],
    class_count: np.ndarray,
    settings: Settings,
    in_threads: Mapper = serially,
) -> Calibration:
    """The calibration of models that have been merged.

    Parameters
    ----------
    models : sequence of CalibratedClasses
        The newest last.
    states : list of State or None
        Of the class densities of all together.
    class_count : (n_classes,) array
        Of all together.
    settings : Settings
        Their `shrinkage_target` is the average covariance within the classes.
    in_threads : callable, default=serially
        See `Calibration.update_at_checkpoint`.
    """
    calibrations = [model.calibration for model in models]
    if len(models) == 1:
        return calibrations[0]
    position = sum(calibration.position for calibration in calibrations)
    last = [calibration.last for calibration in calibrations if calibration.last is not None]
    if settings.memories:
        # It follows the stream, and is as in the newest model unless that knows far less.
        most = max(calibration.pool.count for calibration in calibrations)
        newest = [c for c in calibrations if 2.0 * c.pool.count >= most][-1]
        pool, replay = newest.pool, newest.replay
    else:
        pool, replay = relearned(models, states, class_count, settings, in_threads)
    return Calibration(
        pool,
        settings.shrinkage_target,
        position,
        position,
        max(position, FIRST_CHECKPOINT),
        last[-1] if last else None,
        None,
        replay,
    )


def relearned(
    models: Sequence[CalibratedClasses],
    states: list[State | None],
    class_count: np.ndarray,
    settings: Settings,
    in_threads: Mapper,
) -> tuple[LogLinearPool, ReplayBuffer | None]:
    """The pool after the prediction of rows by all models together, and these rows.

    For the parameters see `merged_calibration`.
    """
    sizes = np.array([model.class_count.sum() for model in models])
    share = sizes.max() / max(sizes.sum(), TINY)
    # Of a model that most samples are of the pool is as right as it was.
    largest = models[sizes.argmax()].calibration.pool
    pool = largest.tempered(2.0 * share - 1.0, settings.first_exponents)
    shares = shares_of(states, class_count)
    known = rows_to_predict(models, shares)
    if known is None:
        return pool, None
    own, rows = known
    seen = np.flatnonzero(shares)

    def log_densities_of(code: int) -> np.ndarray:
        """(n, n_densities), of rows of the class itself as if each of them had not been learned."""
        kde = build_kde(states[code], settings)
        logs, of_class = kde.log_densities_of_groups(rows.rows), rows.codes == code
        counts = [model.class_count[code] if model.states[code] else 0.0 for model in models]
        before = np.full((len(models), np.count_nonzero(of_class), logs.shape[1]), -np.inf)
        for number, (model, count) in enumerate(zip(models, counts, strict=True)):
            if count and len(before[number]):
                kde = build_kde(model.states[code], settings)
                before[number] = kde.log_densities_of_groups(rows.rows[of_class])
        before[own[of_class], np.arange(before.shape[1])] = rows.log_densities[of_class]
        weights = log(np.array(counts) / max(sum(counts), TINY))
        logs[of_class] = np.maximum(log_sum(before + weights[:, None, None]), LOWEST)
        return logs

    # Of densities, rows and classes.
    log_densities = np.transpose(in_threads(log_densities_of, seen.tolist()), (2, 1, 0))
    moments = [discriminant_moments(states[code], settings) for code in seen]
    discriminants = linear_discriminants(moments, settings.shrinkage_target, settings.structure)
    q = np.array([discriminant.log_densities(rows.rows) for discriminant in discriminants])
    codes = np.searchsorted(seen, rows.codes)
    learned = learn_pool(
        pool.of_classes(seen),
        np.log(shares[seen]),
        np.concatenate([log_densities, q]),
        codes,
        rows.counts,
        followed(class_count, settings),
    )
    of_own = log_densities[:, np.arange(len(codes)), codes].T
    return pool.with_classes(seen, learned), rows._replace(log_densities=of_own.copy())


def rows_to_predict(
    models: Sequence[CalibratedClasses], shares: np.ndarray
) -> tuple[np.ndarray, ReplayBuffer] | None:
    """Rows that models have predicted, of each class by its share, and whose they are, if any.

    They are evenly spread over what the models have kept.
    """
    replays = [model.calibration.replay for model in models]
    own = np.repeat(np.arange(len(models)), [0 if r is None else len(r.rows) for r in replays])
    if not len(own):
        return None
    rows = reduce(ReplayBuffer.followed_by, [replay for replay in replays if replay is not None])
    chosen = []
    for code in np.flatnonzero(shares):
        at = np.flatnonzero(rows.codes == code)
        n = min(int(np.ceil(MOST_PREDICTED * shares[code])), len(at))
        chosen.append(at[np.linspace(0, len(at) - 1, n).astype(np.intp)])
    chosen = np.sort(np.concatenate(chosen))
    return own[chosen], ReplayBuffer(*(array[chosen] for array in rows))
