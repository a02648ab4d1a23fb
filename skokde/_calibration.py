"""What the classifier learns from predicting rows before it learns them.

At checkpoints, positions of the stream that are fixed, it keeps its class densities as they are,
and the rows that follow. A window of rows later it predicts their classes, all at once, and adjusts
the pool that makes probabilities of densities. So the result does not depend on the blocks in which
the stream comes, and little is held, for a small part of the time.

Rows that come sorted by class would teach that all are of the class that is about to come. So each
class counts in a window as much as it does in the model, and what a window lacks is made up for by
the last rows of the class that were predicted before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from skokde._engine.class_density import ClassDensity, build_class_density
from skokde._engine.discriminants import Discriminant, Discriminants
from skokde._engine.experts import discriminant_moments
from skokde._engine.feature_weights import learn_feature_weights
from skokde._engine.histograms import Histograms
from skokde._engine.kde import in_boxes, log_sum
from skokde._engine.mixture import Mixture
from skokde._engine.neighbors import NeighborMetric, Neighbors
from skokde._engine.outliers import Moments, inlier_moments
from skokde._engine.pooling import LogLinearPool, learn_pool
from skokde._engine.recent import counts_of_runs
from skokde._engine.shrinkage import pooled_within_covariance
from skokde._engine.state import Settings, State
from skokde._engine.transformation import Transformation
from skokde._ranks import LOWEST
from skokde._validation import TINY

# The first checkpoint is after this many rows; the first window begins after so many for each class
# seen, for more classes than a few less for each further one; the next ones come after this share
# of the rows so far, but after so many at least.
FIRST_CHECKPOINT = 20
FIRST_OF_CLASS, FEW_CLASSES, FIRST_OF_FURTHER = 10, 3, 5
SHARE_BETWEEN, LEAST_BETWEEN = 0.13, 12
# So many rows for each feature are few: the covariance that classes share follows each of them, but
# none from the first window on.
FEW_ROWS = 2
# A window has at most so many rows: its densities lack them, and its predictions come late.
LONGEST_WINDOW = 256
# Up to this number of rows a window lasts until the next one, and predictions are remembered in
# proportion to all samples. From there on the distance of windows and what is remembered grow with
# the root: many predicted rows are enough, and older ones are of densities that knew less.
MANY_ROWS = 2000
# Where the memory is found by prediction windows have this number of rows, and they follow each
# other at once; in a long stream every second one is left out.
SHORT_WINDOW = 4
LONG_STREAM = 500
# Samples by whose number it goes there how long predictions are remembered, at most.
MOST_FOLLOWED = 4000.0
# With a fixed factor it goes by so many times the rows that are not forgotten: how right densities
# of the newest are changes less than these do.
TIMES_REMEMBERED = 3.0
# Histograms forget in any case, the sooner where the memory is found by prediction: they need few
# samples, and are what follows a change of single features first.
FORGETTING_OF_HISTOGRAMS = 0.999
FORGETTING_WITH_FOUND_MEMORY = 0.997
# So many predicted rows are kept: what p-values refer to.
N_KEPT = 600


DensityMaker = Callable[[int, State, Settings], ClassDensity]
Mapper = Callable[[Callable[[int], np.ndarray], list[int]], list[np.ndarray]]


def build_density(code: int, state: State, settings: Settings) -> ClassDensity:
    return build_class_density(state, settings)


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
    """

    start: int
    states: list[State | None]
    class_count: np.ndarray
    rows: np.ndarray
    codes: np.ndarray
    counts: np.ndarray

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


class ReplayBuffer(NamedTuple):
    """Rows that were predicted before they were learned.

    Attributes
    ----------
    rows : (n, d) array
    codes : (n,) array of int
        Their classes.
    counts : (n,) array
        How many samples each row stands for.
    log_densities : (n, n_densities) array
        Under their classes, as these were before them, by each of the densities that are pooled.
    """

    rows: np.ndarray
    codes: np.ndarray
    counts: np.ndarray
    log_densities: np.ndarray

    def newer_half(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores and counts of the newer rows of which no value is missing.

        The older ones were predicted when less was known.
        """
        newer = np.arange(len(self.rows)) >= len(self.rows) // 2
        chosen = newer & ~np.isnan(self.rows).any(axis=1)
        return class_scores(self.log_densities[chosen].T), self.counts[chosen]

    def last(self, numbers: np.ndarray) -> ReplayBuffer:
        """At most so many rows of each class, the last ones."""
        last = [np.flatnonzero(self.codes == c)[::-1][:n] for c, n in enumerate(numbers)]
        chosen = np.sort(np.concatenate(last))
        return ReplayBuffer(*(array[chosen] for array in self))

    def followed_by(self, later: ReplayBuffer) -> ReplayBuffer:
        return ReplayBuffer(*(np.concatenate(arrays) for arrays in zip(self, later, strict=True)))


class Calibration(NamedTuple):
    """The pool, and where the stream stands.

    Attributes
    ----------
    pool : LogLinearPool
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
    """

    pool: LogLinearPool
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

    @classmethod
    def start(cls, n_classes: int) -> Calibration:
        pool = LogLinearPool.start(n_classes, np.array([1.0, 0.0, 0.0]))
        return cls(pool, None, None, None, None, 0, 0, FIRST_CHECKPOINT, None, None, None)

    def adapted(self, settings: Settings) -> Calibration:
        """With a pool of the settings' densities, if they are others than before."""
        pool = self.pool.adapted(settings.first_exponents)
        if pool is self.pool:
            return self
        return self._replace(pool=pool, histograms=None, replay=None)

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
                states=states, class_count=class_count, codes=chosen[pending.codes]
            )
        replay = self.replay
        if replay is not None:
            replay = replay._replace(codes=chosen[replay.codes])
        last = None if self.last is None else (self.last[0], int(chosen[self.last[1]]))
        pool = LogLinearPool.start(n_classes, self.pool.exponents)
        pool = pool.with_classes(chosen, self.pool)
        histograms = self.histograms and self.histograms.grown(chosen, n_classes)
        return self._replace(
            pool=pool, histograms=histograms, pending=pending, replay=replay, last=last
        )

    def without_rows(self) -> Calibration:
        """What has been learned, without the rows of which it was and those that wait."""
        pool = self.pool
        return self._replace(
            pool=pool if self.histograms is None else pool.without_last(),
            # Quantiles, and edges of bins, are values of rows.
            transformation=None,
            histograms=None,
            last=None,
            pending=None,
            replay=None,
            next_checkpoint=max(self.position, 1),
        )

    def without_window(
        self,
        class_count: np.ndarray,
        settings: Settings,
        density_of: DensityMaker = build_density,
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
        return calibration._learn_from_pending(n_samples, settings, density_of, in_threads)

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
        density_of: DensityMaker = build_density,
        in_threads: Mapper = serially,
    ) -> Calibration:
        """End the window, or begin one.

        Parameters
        ----------
        states : list of State or None
            Of the class densities as they are now.
        class_count : (n_classes,) array
        settings : Settings
        density_of : callable, default=build_density
            Called with the number of a class, a state of it and the settings, it returns what is
            pooled of it.
        in_threads : callable, default=serially
            Called with a function and a list of what to call it with, it returns the results.
        """
        calibration = self.without_window(class_count, settings, density_of, in_threads)
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
                    mixtures,
                    moments,
                    settings._replace(shrinkage_target=covariance),
                    self.feature_weights,
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
            ),
        )

    def consume(
        self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray
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
        calibration = self._replace(position=int(positions[n - 1]), last=last)
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

    def _histograms_of_window(self, settings: Settings) -> Histograms | None:
        """With the rows of the window, if there are any yet."""
        pending = self.pending
        if self.histograms is None or not len(pending.rows):
            return self.histograms
        most = FORGETTING_WITH_FOUND_MEMORY if settings.memories else FORGETTING_OF_HISTOGRAMS
        fade = min(settings.forgetting_factor, most) ** float(pending.counts.sum())
        return self.histograms.with_rows(pending.rows, pending.codes, pending.counts, fade)

    def _learn_from_pending(
        self,
        n_samples: float,
        settings: Settings,
        density_of: DensityMaker,
        in_threads: Mapper,
    ) -> Calibration:
        """The calibration after the prediction of the window's rows."""
        pending = self.pending
        calibration = self._replace(pending=None, histograms=self._histograms_of_window(settings))
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

        n_components = sum(pending.states[code].mixture.n_components for code in seen)
        order = in_boxes(used.rows, settings.n_experts * n_components)
        ordered = used.rows[order]

        def log_densities_of(code: int) -> np.ndarray:
            return density_of(code, pending.states[code], settings).log_densities(ordered)

        # Of densities, rows and classes.
        log_densities = np.empty((settings.n_densities, len(ordered), len(seen)))
        log_densities[:, order] = np.transpose(in_threads(log_densities_of, seen.tolist()))
        codes, rows = np.searchsorted(seen, used.codes), np.arange(len(used.codes))
        # Their classes have learned the earlier ones.
        log_densities[:, rows[:-n], codes[:-n]] = used.log_densities[:-n].T
        own = np.where(rows < len(rows) - n, codes, -1)
        others = log_ratios_besides([pending.states[c] for c in seen], used.rows, own, settings)
        pool = self.pool
        if len(seen) > 1:  # else there is nothing to tell apart
            count = float(pending.class_count[seen].mean())
            first = pool.tempered_at_first(count, used.rows.shape[1])
            learned = learn_pool(
                first.of_classes(seen),
                np.log(shares[seen]),
                np.concatenate([log_densities, others]),
                codes,
                used.counts,
                n_samples,
            )
            pool = pool.with_classes(seen, learned)
        own = np.maximum(log_densities[:, rows[-n:], codes[-n:]].T, LOWEST)
        replay = earlier.followed_by(new._replace(log_densities=own))
        return calibration._replace(pool=pool, replay=replay.last(n_kept(shares)))


def log_ratios_besides(
    states: Sequence[State],
    X: np.ndarray,
    own: np.ndarray,
    settings: Settings,
    in_histograms: np.ndarray | None = None,
) -> np.ndarray:
    """What is pooled of classes besides densities: discriminants, votes and histograms, if any.

    Parameters
    ----------
    states : sequence of State
        One for each class.
    X : (n, d) array
    own : (n,) array of intp
        See `Neighbors.log_ratios`.
    settings : Settings
        With the covariance within the classes, the weights of features, and histograms.
    in_histograms : (n,) array of intp, default=None
        As `own`, of rows that may be in these only.

    Returns
    -------
    (n_others, n, n_classes) array
    """
    moments = [discriminant_moments(state, settings) for state in states]
    discriminants = Discriminants.of(moments, settings.shrinkage_target, settings.structure)
    mixtures = [state.mixture for state in states]
    votes = [
        Neighbors.of(mixtures, neighbor_metric(discriminants, settings, number)).log_ratios(X, own)
        for number in range(settings.n_votes)
    ]
    terms = [*discriminants.log_ratios(X), *votes]
    if settings.histograms is not None:
        in_histograms = own if in_histograms is None else in_histograms
        terms.append(settings.histograms.log_ratios(X, in_histograms))
    elif settings.pools_histograms:  # of those of an earlier format nothing is known yet
        terms.append(np.zeros((len(X), len(states))))
    return np.array(terms)


def found_histograms(
    states: Sequence[State | None],
    replay: ReplayBuffer | None,
    settings: Settings,
    before: Histograms | None = None,
) -> Histograms | None:
    """Those of all samples while components are samples, and then of rows that were kept.

    Parameters
    ----------
    states : sequence of State or None
        One for each class.
    replay : ReplayBuffer or None
    settings : Settings
    before : Histograms, default=None
        What there is of all rows, if anything: it stays as long as it fits those that are kept.
    """
    if not settings.pools_histograms:
        return None
    mixtures = [state and state.mixture for state in states]
    if replay is None or not any(mixture and mixture.n_compounds for mixture in mixtures):
        return Histograms.of_mixtures(mixtures)
    if before is not None and before.fits(replay.rows, replay.counts):
        return before
    return Histograms.of_rows(replay.rows, replay.codes, replay.counts, len(states))


def neighbor_metric(
    discriminants: Discriminants, settings: Settings, number: int
) -> NeighborMetric:
    """One of the distances by which near samples vote.

    Parameters
    ----------
    discriminants : Discriminants
    settings : Settings
        With the weights of features, if they have been learned.
    number : int
        That of features is the first one, whitened ones are the second.
    """
    of_samples, counts = discriminants.linear[0], discriminants.counts
    if number:
        return NeighborMetric.of(of_samples, counts)
    weights = settings.feature_weights
    if weights is None:
        weights = np.ones(of_samples.means.shape[1])
    return NeighborMetric.of(of_samples, counts, weights)


def found_feature_weights(
    mixtures: Sequence[Mixture],
    moments: Sequence[Moments],
    settings: Settings,
    before: np.ndarray | None = None,
) -> np.ndarray | None:
    """Weights of features in the distances of near samples, if these vote for classes.

    Parameters
    ----------
    mixtures : sequence of Mixture
        One for each class.
    moments : sequence of Moments
        Theirs.
    settings : Settings
        With the covariance within the classes; until that is known there are no weights.
    before : (d,) array, default=None
        What they were before, if anything.
    """
    if not settings.n_votes or settings.shrinkage_target is None:
        return None
    counts = np.array([count for count, *_ in moments])
    discriminant = Discriminant.of_moments(moments, settings.shrinkage_target, settings.structure)
    unweighted = np.ones(discriminant.means.shape[1])
    of_features = NeighborMetric.of(discriminant, counts, unweighted)
    return learn_feature_weights(Neighbors.of(mixtures, of_features), before)


def followed(class_count: np.ndarray, position: int, settings: Settings) -> float:
    """Samples by whose number it goes how long predictions are remembered."""
    total = float(class_count.sum())
    if settings.memories:
        return min(total, MOST_FOLLOWED)
    if settings.forgetting_factor < 1.0:
        total = min(position, TIMES_REMEMBERED * remembered(position, settings))
    return slowed(total)


def n_kept(shares: np.ndarray) -> np.ndarray:
    """How many predicted rows of each class are kept, by its share (n_classes,)."""
    return np.ceil(N_KEPT * shares).astype(np.intp)


def class_scores(log_densities: np.ndarray) -> np.ndarray:
    """How well rows fit into classes: logarithms of the means of the densities that are pooled.

    Unlike weighted ones, these means do not change with what is predicted.

    Parameters
    ----------
    log_densities : (n_densities, ...) array
    """
    return log_sum(log_densities) - np.log(len(log_densities))


def class_rebalanced(earlier: ReplayBuffer, new: ReplayBuffer, shares: np.ndarray) -> ReplayBuffer:
    """The rows of a window with earlier ones of the classes that it lacks, at their right counts.

    Parameters
    ----------
    earlier, new : ReplayBuffer
    shares : (n_classes,) array, sum one
        Of the classes, in what is returned; but if there are no earlier rows to make up for a
        class it goes on lacking.

    Returns
    -------
    ReplayBuffer
        The new rows stand last.
    """
    total, n_classes = new.counts.sum(), len(shares)
    expected = total * shares
    came = np.bincount(new.codes, new.counts, minlength=n_classes)
    lacking = np.maximum(expected - came, 0.0)
    made_up = earlier.last(np.ceil(len(new.codes) * lacking / total).astype(np.intp))
    found = np.bincount(made_up.codes, made_up.counts, minlength=n_classes)
    of_earlier = made_up.counts * lacking[made_up.codes] / found[made_up.codes]
    of_new = new.counts * np.minimum(1.0, expected[new.codes] / came[new.codes])
    return made_up.followed_by(new)._replace(counts=np.concatenate([of_earlier, of_new]))


def differ(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which values are not the same, missing ones being so."""
    return (rows != others) & ((rows == rows) | (others == others))


def window_length(position: int, settings: Settings) -> int:
    """Rows in a window that begins after so many rows."""
    if settings.memories:
        return SHORT_WINDOW
    return min(share(remembered(position, settings)), LONGEST_WINDOW)


def between(position: int, settings: Settings) -> int:
    """Rows from a checkpoint to the next."""
    length = window_length(position, settings)
    if settings.memories:
        return length if position < LONG_STREAM else 2 * length
    number = remembered(position, settings)
    return int(length * number / slowed(number))


def remembered(position: int, settings: Settings) -> float:
    """How many of so many rows are not forgotten.

    Densities that forget are not what they were a window of all rows before: what predictions of
    such a window say of them would be wrong.
    """
    forgotten = 1.0 - settings.forgetting_factor
    return min(position, 1.0 / forgotten) if forgotten else position


def first_window(n_classes: int) -> int:
    """Rows before the first window, where so many classes have a sample.

    Few rows of each class tell little of how sure the densities should be, but many classes of few
    rows each are wrong by far more than that.
    """
    further = max(0, n_classes - FEW_CLASSES)
    of_classes = FIRST_OF_CLASS * (n_classes - further) + FIRST_OF_FURTHER * further
    return max(FIRST_CHECKPOINT, of_classes)


def share(position: float) -> int:
    """So many rows that with them what is known of the data may have changed."""
    return max(LEAST_BETWEEN, int(SHARE_BETWEEN * position))


def slowed(number: float) -> float:
    """What grows as a number does up to `MANY_ROWS`, and then with its root."""
    return sqrt(number * min(number, MANY_ROWS))
