"""What the classifier learns from predicting rows before it learns them.

At checkpoints, positions of the stream that are fixed, it keeps its class densities as they are,
and the rows that follow. A window of rows later it predicts their classes, all at once, and adjusts
the pool that makes probabilities of densities. So the result does not depend on the blocks in which
the stream comes, and little is held, for a small part of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skokde._calibration_windows import (
    FEW_ROWS,
    FIRST_CHECKPOINT,
    LONGEST_WINDOW,
    between,
    first_window,
    followed,
    share,
    window_length,
)
from skokde._engine.class_density import (
    ClassDensity,
    build_class_density,
    log_densities_of_few,
)
from skokde._engine.estimates import discriminant_moments
from skokde._engine.histograms import N_HISTOGRAMS, Histograms
from skokde._engine.kde import in_boxes
from skokde._engine.neighbors import N_VOTE_WIDTHS
from skokde._engine.outliers import Moments, inlier_moments
from skokde._engine.pooling import LogLinearPool, learn_pool
from skokde._engine.recent import counts_of_runs
from skokde._engine.shrinkage import pooled_within_covariance
from skokde._engine.state import Settings, State
from skokde._engine.steady_pool import SteadyPool
from skokde._engine.transformation import Transformation
from skokde._pooled_ratios import (
    found_feature_weights,
    found_histograms,
    log_ratios_besides,
    voting_rows,
)
from skokde._ranks import LOWEST
from skokde._replay import NewestRows, ReplayBuffer, SampledRows, class_rebalanced, n_kept
from skokde._validation import TINY

Mapper = Callable[[Callable[[int], np.ndarray], list[int]], list[np.ndarray]]


def build_density(code: int, state: State, settings: Settings) -> ClassDensity:
    return build_class_density(state, settings)


def find_moments(code: int, state: State, settings: Settings) -> tuple[Moments, ...]:
    return discriminant_moments(state, settings)


class Makers(NamedTuple):
    """What makes, of the number of a class, a state of it and the settings, what predicts rows.

    Who passes others than these may know already what they give.

    Attributes
    ----------
    density : callable
        Of what is pooled of the class.
    moments : callable
        Of what tells it apart from the others, see `discriminant_moments`.
    """

    density: Callable[[int, State, Settings], ClassDensity] = build_density
    moments: Callable[[int, State, Settings], tuple[Moments, ...]] = find_moments


MAKERS = Makers()


def serially(function: Callable[[int], np.ndarray], codes: list[int]) -> list[np.ndarray]:
    return [function(code) for code in codes]


def shares_of(states: list[State | None], class_count: np.ndarray) -> np.ndarray:
    """Of classes with samples that are not forgotten among all samples, zero for the others."""
    counts = np.where([state is not None for state in states], class_count, 0.0)
    return counts / max(counts.sum(), TINY)


class PendingBatch(NamedTuple):
    """Rows that await prediction, by the class densities before them.

    Attributes
    ----------
    start : int
        Position of the checkpoint.
    states : list of State or None
        Of the class densities; None for a class without samples.
    class_count : (n_classes,) array
    rows : (n, d) array
    codes : (n,) array of int
        Their classes.
    counts : (n,) array
        How many samples each row stands for.
    newest : NewestRows or None
        Those before the checkpoint.
    """

    start: int
    states: list[State | None]
    class_count: np.ndarray
    rows: np.ndarray
    codes: np.ndarray
    counts: np.ndarray
    newest: NewestRows | None

    @property
    def shares(self) -> np.ndarray:
        """Of the classes among all samples (n_classes,), zero for those without one."""
        return shares_of(self.states, self.class_count)

    def with_rows(self, rows: np.ndarray, codes: np.ndarray, counts: np.ndarray) -> PendingBatch:
        return self._replace(
            rows=np.concatenate([self.rows, rows]),
            codes=np.concatenate([self.codes, codes]),
            counts=np.concatenate([self.counts, counts]),
        )


class Calibration(NamedTuple):
    """The pool, and where the stream stands.

    Attributes
    ----------
    pool : LogLinearPool
        Where the memory is found by prediction it follows the stream.
    steady : SteadyPool or None
        Beside it then, from the first window on.
    covariance : (d, d) or (d,) array, or None
        Within the classes, at the last checkpoint. None while there are few rows for the features:
        each one may change much of it then.
    transformation : Transformation or None
        To coordinates in which classes are pooled by more densities; found with the covariance.
    feature_weights : (d,) array or None
        In distances between samples that vote for their classes; found with the covariance.
    histograms : Histograms or None
        Of the rows of all windows, and those before the first one, since their bins were found.
    refreshed : int
        The position where the covariance was found.
    position : int
        Number of rows so far. One that repeats the row before has none of its own, so that a
        row of weight two is the same as two rows.
    next_checkpoint : int
        The position at which a window begins or ends.
    last : (row, code) or None
        The last row.
    pending : PendingBatch or None
    replay : ReplayBuffer or None
        The last rows of earlier windows, of each class its share of as many as are kept.
    newest : NewestRows or None
        Where the memory is found by prediction.
    sample : SampledRows or None
        Of the rows of earlier windows.
    """

    pool: LogLinearPool
    steady: SteadyPool | None
    covariance: np.ndarray | None
    transformation: Transformation | None
    feature_weights: np.ndarray | None
    histograms: Histograms | None
    refreshed: int
    position: int
    next_checkpoint: int
    last: tuple[np.ndarray, int] | None
    pending: PendingBatch | None
    replay: ReplayBuffer | None
    newest: NewestRows | None
    sample: SampledRows | None

    @classmethod
    def start(cls, n_classes: int) -> Calibration:
        pool = LogLinearPool.start(n_classes, np.array([1.0, 0.0, 0.0]))
        return cls(pool, *5 * [None], 0, 0, FIRST_CHECKPOINT, *5 * [None])

    def adapted(self, settings: Settings) -> Calibration:
        """With a pool of the settings' densities, if they are others than before."""
        pool = self.pool.adapted(settings.first_exponents)
        if pool is self.pool:
            return self
        return self._replace(pool=pool, steady=None, histograms=None, replay=None)

    def scored_pool(self) -> LogLinearPool:
        """The pool, averaged with the steady one if there is one."""
        return self.pool if self.steady is None else self.steady.mixed_with(self.pool)

    def settings_of_classes(self, settings: Settings) -> Settings:
        """With what it knows by which the densities of classes learn."""
        forgotten = 0.0 if self.steady is None else self.steady.forgotten
        return settings._replace(shrinkage_target=self.covariance, forgotten=forgotten)

    def grown(self, chosen: np.ndarray, n_classes: int) -> Calibration:
        """With more classes, the old ones having new numbers among them."""
        pending = self.pending
        if pending is not None:
            states: list[State | None] = [None] * n_classes
            for c, state in zip(chosen, pending.states, strict=True):
                states[c] = state
            class_count = np.zeros(n_classes)
            class_count[chosen] = pending.class_count
            pending = pending._replace(
                states=states,
                class_count=class_count,
                codes=chosen[pending.codes],
                newest=pending.newest and pending.newest.grown(chosen),
            )
        replay = self.replay
        if replay is not None:
            replay = replay._replace(codes=chosen[replay.codes])
        last = None if self.last is None else (self.last[0], int(chosen[self.last[1]]))
        histograms = self.histograms and self.histograms.grown(chosen, n_classes)
        return self._replace(
            pool=self.pool.grown(chosen, n_classes),
            steady=self.steady and self.steady.grown(chosen, n_classes),
            histograms=histograms,
            pending=pending,
            replay=replay,
            newest=self.newest and self.newest.grown(chosen),
            sample=self.sample and self.sample.grown(chosen),
            last=last,
        )

    def without_rows(self) -> Calibration:
        """What has been learned, without the rows of which it was and those that wait."""
        # The votes of a sample stand before histograms in the pool.
        n = N_HISTOGRAMS * (self.histograms is not None)
        if self.sample is not None:
            n = N_VOTE_WIDTHS + N_HISTOGRAMS
        return self._replace(
            pool=self.pool.without_last(n),
            steady=self.steady and self.steady.without_last(n),
            # Quantiles, and edges of bins, are values of rows.
            transformation=None,
            histograms=None,
            last=None,
            pending=None,
            replay=None,
            newest=None,
            sample=None,
            next_checkpoint=max(self.position, 1),
        )

    def without_window(
        self,
        class_count: np.ndarray,
        settings: Settings,
        makers: Makers = MAKERS,
        in_threads: Mapper = serially,
    ) -> Calibration:
        """After the prediction of the rows that wait for it, if there are any."""
        calibration, replay = self, self.replay
        # A damaged file may lack a density: how many there are only the settings tell.
        if replay is not None and replay.log_densities.shape[1] != settings.n_densities:
            calibration = self._replace(replay=None)
        if self.pending is None:
            return calibration
        n_samples = followed(class_count, self.position, settings)
        return calibration._learn_from_pending(n_samples, settings, makers, in_threads)

    def is_due(self, row: np.ndarray, code: int) -> bool:
        """Whether a window begins or ends before a row."""
        return self.position >= self.next_checkpoint and not self._repeats(row, code)

    def _repeats(self, row: np.ndarray, code: int) -> bool:
        return (
            self.last is not None and code == self.last[1] and not differ(row, self.last[0]).any()
        )

    def update_at_checkpoint(
        self,
        states: list[State | None],
        class_count: np.ndarray,
        settings: Settings,
        makers: Makers = MAKERS,
        in_threads: Mapper = serially,
    ) -> Calibration:
        """End the window, or begin one.

        Parameters
        ----------
        states : list of State or None
            Of the class densities as they are now.
        class_count : (n_classes,) array
        settings : Settings
        makers : Makers, default=MAKERS
        in_threads : callable, default=serially
            Called with a function and a list of what to call it with, it returns the results.
        """
        calibration = self.without_window(class_count, settings, makers, in_threads)
        if self.pending is not None:
            next_checkpoint = self.pending.start + between(self.pending.start, settings)
            if next_checkpoint > self.position:
                return calibration._replace(next_checkpoint=next_checkpoint)
        mixtures = [state.mixture for state in states if state is not None]
        if not mixtures:  # all rows wait
            return calibration._replace(next_checkpoint=self.position + FIRST_CHECKPOINT)
        first, d = first_window(len(mixtures)), mixtures[0].n_features
        if self.position < min(first, FEW_ROWS * d):
            calibration = calibration._replace(
                covariance=None, transformation=None, feature_weights=None, histograms=None
            )
        # All that is scored follows the covariance, so it does not change with short windows.
        elif self.position <= first or self.position >= self.refreshed + share(self.refreshed):
            moments = [inlier_moments(mixture) for mixture in mixtures]
            covariance = pooled_within_covariance(moments, keeps_noise=settings.keeps_noise)
            calibration = calibration._replace(
                covariance=covariance,
                transformation=settings.transformation_of(mixtures, moments),
                feature_weights=found_feature_weights(
                    states,
                    moments,
                    settings._replace(shrinkage_target=covariance),
                    self.feature_weights,
                    calibration.sample,
                ),
                histograms=found_histograms(
                    states, calibration.replay, settings, calibration.histograms
                ),
                refreshed=self.position,
            )
        if self.position < first:
            next_checkpoint = min(first, self.position + share(self.position))
            return calibration._replace(next_checkpoint=next_checkpoint)
        return calibration._replace(
            next_checkpoint=self.position + window_length(self.position, settings),
            pending=PendingBatch(
                self.position,
                states,
                class_count,
                np.empty((0, d)),
                np.empty(0, dtype=np.intp),
                np.empty(0),
                self.newest,
            ),
        )

    def consume(
        self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray, settings: Settings
    ) -> tuple[Calibration, int]:
        """Go on in the stream, at most to a checkpoint; how many rows that are."""
        # Not all of a long block each time; more than what is left, in case of long repetitions.
        n = max(self.next_checkpoint - self.position, LONGEST_WINDOW)
        X, codes, weights = X[:n], codes[:n], weights[:n]
        new = np.ones(len(X), dtype=bool)
        new[0] = not self._repeats(X[0], codes[0])
        new[1:] = (codes[1:] != codes[:-1]) | differ(X[1:], X[:-1]).any(axis=1)
        positions = self.position + np.cumsum(new)
        n = int(np.searchsorted(positions, self.next_checkpoint, side="right"))
        last = (X[n - 1].copy(), int(codes[n - 1]))
        newest = None
        if settings.memories:
            newest = self.newest or NewestRows.none(X.shape[1])
            newest = newest.followed_by(X[:n], codes[:n], weights[:n], new[:n])
        calibration = self._replace(position=int(positions[n - 1]), last=last, newest=newest)
        pending = self.pending
        if pending is not None:
            new[0] |= not len(pending.rows)
            starts, counts = np.flatnonzero(new[:n]), weights[:n]
            if len(starts) < n:
                all_counts = counts_of_runs(pending.counts, new[:n], counts)
                old, counts = np.split(all_counts, [len(pending.counts)])
                pending = pending._replace(counts=old)
            if len(starts):
                pending = pending.with_rows(X[starts], codes[starts], counts)
            calibration = calibration._replace(pending=pending)
        return calibration, n

    def _sample_with_window(self, settings: Settings) -> SampledRows | None:
        """With the rows of the window; not all are kept where they stand for the next ones, too."""
        if not settings.n_distances:
            return None
        pending, parts = self.pending, []
        weights = pending.counts
        if self.sample is not None:
            n_for_each = between(pending.start, settings) / window_length(pending.start, settings)
            fade = settings.forgetting_factor ** float(n_for_each * weights.sum())
            parts.append(self.sample.faded(fade))
            if parts[0].threshold > 0.0:
                weights = n_for_each * weights
        parts.append(SampledRows.of_window(pending.rows, pending.codes, weights, pending.start))
        return SampledRows.together(parts)

    def _histograms_of_window(self, settings: Settings) -> Histograms | None:
        """With the rows of the window, if there are any yet."""
        pending = self.pending
        if self.histograms is None or not len(pending.rows):
            return self.histograms
        left = settings.left_in_histograms ** pending.counts.sum()
        return self.histograms.with_rows(pending.rows, pending.codes, pending.counts, left)

    def _log_densities_of_classes(
        self,
        X: np.ndarray,
        seen: np.ndarray,
        settings: Settings,
        makers: Makers,
        in_threads: Mapper,
    ) -> np.ndarray:
        """Log-densities (n_densities, n, n_seen) of rows, by some classes when the window began."""
        states, codes = self.pending.states, seen.tolist()

        def make(code: int) -> ClassDensity:
            return makers.density(code, states[code], settings)

        # Windows are that short where densities change little between them, and are there already.
        if settings.memories:
            densities = in_threads(make, codes)
            of_few = log_densities_of_few(X, densities)
            if of_few is not None:
                return of_few
            make = dict(zip(codes, densities, strict=True)).__getitem__
        n_components = sum(states[code].mixture.n_components for code in codes)
        order = in_boxes(X, settings.n_experts * n_components)
        ordered, in_coordinates = X[order], None
        if settings.pools_transformed:
            in_coordinates = settings.transformation.of_rows(ordered)
        out = np.empty((settings.n_densities, len(X), len(codes)))
        # One at a time, since each may take much memory.
        out[:, order] = np.transpose(
            in_threads(lambda code: make(code).log_densities(ordered, in_coordinates), codes)
        )
        return out

    def _learn_from_pending(
        self,
        n_samples: float,
        settings: Settings,
        makers: Makers,
        in_threads: Mapper,
    ) -> Calibration:
        """The calibration after the prediction of the window's rows."""
        pending = self.pending
        calibration = self._replace(
            pending=None,
            histograms=self._histograms_of_window(settings),
            sample=self._sample_with_window(settings),
        )
        shares = pending.shares
        seen = np.flatnonzero(shares)
        known = np.isin(pending.codes, seen)
        if not known.any():
            return calibration
        n = int(known.sum())
        arrays = (pending.rows[known], pending.codes[known], pending.counts[known])
        new = ReplayBuffer(*arrays, np.empty((n, settings.n_densities)))
        earlier = self.replay or new.last(np.zeros_like(seen))
        # A stream that is followed has the classes that come now, not those that came.
        used = new if settings.memories else class_rebalanced(earlier, new, shares)
        mixtures = [pending.states[code].mixture for code in seen]
        transformation = self.transformation or settings.transformation_of(mixtures)
        settings = settings._replace(
            shrinkage_target=self.covariance,
            transformation=transformation,
            feature_weights=self.feature_weights,
            histograms=self.histograms and self.histograms.of_classes(seen),
        )

        log_densities = self._log_densities_of_classes(
            used.rows, seen, settings, makers, in_threads
        )
        codes, rows = np.searchsorted(seen, used.codes), np.arange(len(used.codes))
        # Their classes have learned the earlier ones.
        log_densities[:, rows[:-n], codes[:-n]] = used.log_densities[:-n].T
        own = np.where(rows < len(rows) - n, codes, -1)
        states = [pending.states[c] for c in seen]
        kept = voting_rows(pending.newest, self.sample, states, settings, seen)
        moments = [makers.moments(code, pending.states[code], settings) for code in seen]
        others = log_ratios_besides(states, moments, used.rows, own, settings, kept)
        pool, steady = self.pool, self.steady
        if len(seen) > 1:  # else there is nothing to tell apart
            count = float(pending.class_count[seen].mean())
            first = pool.tempered_at_first(count, used.rows.shape[1])
            terms = np.concatenate([log_densities, others])
            predicted = np.log(shares[seen]), terms, codes, used.counts, n_samples
            pool = pool.with_classes(seen, learn_pool(first.of_classes(seen), *predicted))
            if settings.memories:
                short = settings.of_short_memories
                steady = self.steady or SteadyPool.beside(first, short)
                steady = steady.learned(first, seen, *predicted, short)
        own = np.maximum(log_densities[:, rows[-n:], codes[-n:]].T, LOWEST)
        replay = earlier.followed_by(new._replace(log_densities=own))
        return calibration._replace(pool=pool, steady=steady, replay=replay.last(n_kept(shares)))


def differ(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which values are not the same, missing ones being so."""
    return (rows != others) & ((rows == rows) | (others == others))
