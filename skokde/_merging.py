"""Calibrations of classifiers that are merged.

What a pool has learned is right for densities of the samples that there were. Those of more samples
are surer of themselves, and their pool is learned anew, from the samples of each class that came
after its last compression: the merged densities predict them as they are without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from skokde._calibration import Calibration, Mapper, serially, shares_of
from skokde._calibration_windows import FIRST_CHECKPOINT, followed
from skokde._engine.class_density import build_class_density
from skokde._engine.estimates import discriminant_moments
from skokde._engine.merging import HeldOut
from skokde._engine.mixture import Mixture
from skokde._engine.outliers import inlier_moments
from skokde._engine.pooling import LogLinearPool, learn_pool
from skokde._engine.shrinkage import pooled_within_covariance
from skokde._engine.state import Settings, State
from skokde._pooled_ratios import (
    found_feature_weights,
    found_histograms,
    log_ratios_besides,
    voting_rows,
)
from skokde._ranks import LOWEST
from skokde._replay import ReplayBuffer, SampledRows, n_kept
from skokde._validation import TINY

# Samples of a class that are predicted, at most.
MOST_HELD_OUT = 256
# Classes with fewer of them get rows that one of the models predicted.
ENOUGH_HELD_OUT = 16


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


def with_common_shape(settings: Settings, models: Sequence[CalibratedClasses]) -> Settings:
    """With what classes share of the shape of their densities, found from all models.

    Nothing, if no model has it yet.
    """
    if all(model.calibration.covariance is None for model in models):
        return settings
    mixtures = []
    for states in zip(*(model.states for model in models), strict=True):
        of_class = [state.mixture for state in states if state is not None]
        if of_class:
            mixtures.append(Mixture.of_parts(of_class))
    moments = [inlier_moments(mixture) for mixture in mixtures]
    return settings._replace(
        shrinkage_target=pooled_within_covariance(moments, keeps_noise=settings.keeps_noise),
        transformation=settings.transformation_of(mixtures, moments),
    )


def merged_calibration(
    models: Sequence[CalibratedClasses],
    predicted: Sequence[State | None],
    class_count: np.ndarray,
    settings: Settings,
    in_threads: Mapper = serially,
) -> Calibration:
    """The calibration of models that have been merged.

    Parameters
    ----------
    models : sequence of CalibratedClasses
        The newest last.
    predicted : sequence of State or None
        Of the class densities of all together, see `skokde._engine.merging.Merged`.
    class_count : (n_classes,) array
        Of all together.
    settings : Settings
        See `with_common_shape`.
    in_threads : callable, default=serially
        See `Calibration.update_at_checkpoint`.
    """
    calibrations = [model.calibration for model in models]
    if len(models) == 1:
        return calibrations[0]
    position = sum(calibration.position for calibration in calibrations)
    mixtures = [state.mixture for state in predicted if state is not None]
    moments = [inlier_moments(mixture) for mixture in mixtures]
    samples = [calibration.sample for calibration in calibrations if calibration.sample is not None]
    sample = SampledRows.together(samples) if samples else None
    weights = found_feature_weights(predicted, moments, settings, sample=sample)
    settings = settings._replace(feature_weights=weights)
    last = [calibration.last for calibration in calibrations if calibration.last is not None]
    newest = [calibration.newest for calibration in calibrations if calibration.newest is not None]
    if settings.memories:
        # It follows the stream, and is as in the newest model unless that knows far less.
        most = max(calibration.pool.count for calibration in calibrations)
        latest = [c for c in calibrations if 2.0 * c.pool.count >= most][-1]
        pool, steady, replay = latest.pool, latest.steady, latest.replay
    else:
        steady = None
        pool, replay = relearned(
            models, predicted, class_count, position, sample, settings, in_threads
        )
    histograms = None
    if settings.shrinkage_target is not None:
        histograms = found_histograms(predicted, replay, settings)
    return Calibration(
        pool,
        steady,
        settings.shrinkage_target,
        settings.transformation,
        settings.feature_weights,
        histograms,
        position,
        position,
        max(position, FIRST_CHECKPOINT),
        last[-1] if last else None,
        None,
        replay,
        newest[-1] if newest and settings.memories else None,
        sample,
    )


def relearned(
    models: Sequence[CalibratedClasses],
    predicted: Sequence[State | None],
    class_count: np.ndarray,
    position: int,
    sample: SampledRows | None,
    settings: Settings,
    in_threads: Mapper,
) -> tuple[LogLinearPool, ReplayBuffer | None]:
    """The pool after the prediction of what the merged densities can predict, and these rows.

    For the parameters see `merged_calibration`, and `Calibration` for the position.
    """
    pools = [model.calibration.pool for model in models]
    sizes = np.array([model.class_count.sum() for model in models])
    sizes = sizes / max(sizes.sum(), TINY)
    shares = shares_of(predicted, class_count)
    held_out = [
        HeldOut.of(state, MOST_HELD_OUT) if share else None
        for state, share in zip(predicted, shares, strict=True)
    ]
    earlier = [model.calibration.replay for model in models if model.calibration.replay is not None]
    any_held_out = any(held is not None and len(held.rows) for held in held_out)
    if settings.shrinkage_target is None or not any_held_out:
        return LogLinearPool.together(pools, sizes, settings.first_exponents), None
    samples = samples_of(held_out, settings)
    rows = rows_to_predict(earlier, samples, shares)
    # By their share of the samples, and once more, as they are right for models of so few.
    pool = LogLinearPool.together(pools, sizes**2, settings.first_exponents)
    # Of classes without a row nothing can be learned.
    known, codes = np.unique(rows.codes, return_inverse=True)

    def log_densities_of(code: int) -> np.ndarray:
        return build_class_density(held_out[code].state, settings).log_densities(rows.rows)

    # Of densities, rows and classes.
    log_densities = np.transpose(in_threads(log_densities_of, known.tolist()), (2, 1, 0))
    numbers, before = np.arange(len(codes)), ~np.isnan(rows.log_densities[:, 0])
    log_densities[:, numbers[before], codes[before]] = rows.log_densities[before].T
    states, own = [held_out[code].state for code in known], np.where(before, codes, -1)
    replayed = reduce(ReplayBuffer.followed_by, earlier) if earlier else None
    histograms = found_histograms([held and held.state for held in held_out], replayed, settings)
    settings = settings._replace(histograms=histograms and histograms.of_classes(known))
    kept = voting_rows(None, sample, states, settings, known)
    # Rows that densities are without may be among those that are kept.
    among_kept = None if sample is None else np.where(sample.holds(rows.rows), codes, -1)
    moments = [discriminant_moments(state, settings) for state in states]
    others = log_ratios_besides(states, moments, rows.rows, own, settings, kept, codes, among_kept)
    learned = learn_pool(
        pool.of_classes(known),
        np.log(shares[known]),
        np.concatenate([log_densities, others]),
        codes,
        rows.counts,
        followed(class_count, position, settings),
    )
    own = np.maximum(log_densities[:, numbers, codes].T, LOWEST)
    new = ReplayBuffer(*(array[~before] for array in rows._replace(log_densities=own)))
    # Windows had some of them, too: histograms would know a row that is predicted once more.
    replay = new if replayed is None else replayed.without_repeated(new).followed_by(new)
    return pool.with_classes(known, learned), replay.last(n_kept(shares))


def samples_of(held_out: Sequence[HeldOut | None], settings: Settings) -> ReplayBuffer:
    """The samples that densities of classes are without, their log-densities not yet known, NaN."""
    known = [(code, held) for code, held in enumerate(held_out) if held is not None]
    codes = np.repeat([code for code, _ in known], [len(held.rows) for _, held in known])
    rows = np.concatenate([held.rows for _, held in known])
    counts = np.concatenate([held.counts for _, held in known])
    unknown = np.full((len(rows), settings.n_densities), np.nan)
    return ReplayBuffer(rows, codes, counts, unknown)


def rows_to_predict(
    earlier: Sequence[ReplayBuffer], samples: ReplayBuffer, shares: np.ndarray
) -> ReplayBuffer:
    """Samples, and for classes that lack them earlier rows.

    Each class has its share of the counts, and its rows are evenly spread among the others.

    Parameters
    ----------
    earlier : sequence of ReplayBuffer
        Of the models, the newest last.
    samples : ReplayBuffer
    shares : (n_classes,) array
        Of the classes among all samples.
    """
    lacking = np.maximum(ENOUGH_HELD_OUT - np.bincount(samples.codes, minlength=len(shares)), 0)
    lacking[shares <= 0.0] = 0
    rows = reduce(ReplayBuffer.followed_by, [*(b.last(lacking) for b in earlier), samples])
    of_class = np.bincount(rows.codes, rows.counts, minlength=len(shares))
    weights = shares[rows.codes] * (rows.counts / of_class[rows.codes])
    weights /= weights.sum()
    # So many rows of equal weights would tell as much.
    total = min(rows.counts.sum(), 1.0 / (weights**2).sum())
    place = np.empty(len(weights))
    for code in np.unique(rows.codes):
        of_code = np.flatnonzero(rows.codes == code)
        place[of_code] = (np.arange(len(of_code)) + 0.5) / len(of_code)
    spread = np.argsort(place, kind="stable")
    return ReplayBuffer(*(array[spread] for array in rows._replace(counts=total * weights)))
