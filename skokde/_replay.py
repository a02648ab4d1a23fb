"""Rows that are kept with their classes: predicted ones, in balance, the newest, and a sample.

Rows that come sorted by class would teach that all are of the class that is about to come. So each
class counts in a window as much as it does in the model, and what a window lacks is made up for by
the last rows of the class that were predicted before it. Where the memory is found by prediction
classes count as they come, and the newest rows of all classes vote. A random sample of all rows
does in any case: what is compressed has merged samples that are near in all features, and where few
of them tell classes apart that blurs what these tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skokde._engine.kde import log_sum
from skokde._engine.recent import LEAST_WEIGHT, counts_of_runs
from skokde._validation import TINY

# So many predicted rows are kept: what p-values refer to.
N_KEPT = 600
# And so many of the newest ones: of others next to nothing is left in the shortest memory.
N_NEWEST = 64
# A sample has at most so many rows, and fewer where these are so many numbers.
MOST_SAMPLED = 4096
MOST_NUMBERS_SAMPLED = 2**19


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

    def without_repeated(self, later: ReplayBuffer) -> ReplayBuffer:
        """Without the rows that come again: the last equal one, for each row of another buffer."""
        again = Counter(
            (row.tobytes(), code) for row, code in zip(later.rows, later.codes, strict=True)
        )
        kept = np.ones(len(self.rows), dtype=bool)
        for place in reversed(range(len(self.rows))):
            row = self.rows[place].tobytes(), self.codes[place]
            kept[place] = not again[row]
            again[row] -= not kept[place]
        return ReplayBuffer(*(array[kept] for array in self))

    def followed_by(self, later: ReplayBuffer) -> ReplayBuffer:
        return ReplayBuffer(*(np.concatenate(arrays) for arrays in zip(self, later, strict=True)))


class NewestRows(NamedTuple):
    """The last rows of the stream in order, whatever their classes.

    Attributes
    ----------
    rows : (n, d) array
        One that repeats the row before is not held twice.
    codes : (n,) array of int
        Their classes.
    counts : (n,) array
        How many samples each row stands for.
    """

    rows: np.ndarray
    codes: np.ndarray
    counts: np.ndarray

    @classmethod
    def none(cls, d: int) -> NewestRows:
        return cls(np.empty((0, d)), np.empty(0, dtype=np.intp), np.empty(0))

    def followed_by(
        self, rows: np.ndarray, codes: np.ndarray, counts: np.ndarray, starts: np.ndarray
    ) -> NewestRows:
        """With more rows, of which some (n,) start a run of equal ones."""
        together = NewestRows(
            np.concatenate([self.rows, rows[starts]]),
            np.concatenate([self.codes, codes[starts]]),
            counts_of_runs(self.counts, starts, counts),
        )
        return NewestRows(*(array[-N_NEWEST:] for array in together))

    def grown(self, chosen: np.ndarray) -> NewestRows:
        """With the classes' new numbers."""
        return self._replace(codes=chosen[self.codes])

    def of_classes(self, chosen: np.ndarray) -> NewestRows:
        """Those of some classes, by a sorted array of their numbers, which are counted anew."""
        codes = numbers_among(chosen, self.codes)
        kept = codes >= 0
        return NewestRows(self.rows[kept], codes[kept], self.counts[kept])

    def complete(self) -> NewestRows:
        """Those of which no value is missing."""
        return NewestRows(*(array[~np.isnan(self.rows).any(axis=1)] for array in self))


class SampledRows(NamedTuple):
    """A random sample of rows (priority sampling, Duffield, Lund and Thorup 2007).

    Whatever its size a sample of two others, or of one and what came later, is as one of all rows.

    Attributes
    ----------
    rows : (n, d) array
        In the order in which they came; of each all values are known.
    codes : (n,) array of int
        Their classes.
    weights : (n,) array
        How many samples each row stood for when it came, and what is left of them.
    draws : (n,) array
        Random numbers between zero and one: rows whose weight is the largest multiple of them stay.
    threshold : float
        The largest of these multiples that is not in the sample, zero if there is none.
    """

    rows: np.ndarray
    codes: np.ndarray
    weights: np.ndarray
    draws: np.ndarray
    threshold: float

    @classmethod
    def none(cls, d: int) -> SampledRows:
        return cls(*NewestRows.none(d), np.empty(0), 0.0)

    @classmethod
    def of_window(
        cls, rows: np.ndarray, codes: np.ndarray, weights: np.ndarray, position: int
    ) -> SampledRows:
        """All rows of which no value is missing; the first one has a position in the stream."""
        known = ~np.isnan(rows).any(axis=1)
        draws = uniform_draws(position + np.flatnonzero(known))
        return cls(rows[known], codes[known], weights[known], draws, 0.0)

    @classmethod
    def together(cls, parts: Sequence[SampledRows]) -> SampledRows:
        """One sample of several, the newest last."""
        *arrays, thresholds = zip(*parts, strict=True)
        rows, codes, weights, draws = (np.concatenate(a) for a in arrays)
        threshold, multiples = max(thresholds), weights / draws
        most = min(MOST_SAMPLED, max(1, MOST_NUMBERS_SAMPLED // rows.shape[1]))
        if len(rows) > most:
            threshold = max(threshold, float(np.partition(multiples, -1 - most)[-1 - most]))
        return cls(rows, codes, weights, draws, threshold).part(multiples > threshold)

    def part(self, chosen: np.ndarray) -> SampledRows:
        """Some of the rows, by an array of bool."""
        return SampledRows(*(array[chosen] for array in self[:4]), self.threshold)

    def faded(self, fade: float) -> SampledRows:
        """With what is left of the weights, without rows of which next to nothing is."""
        if fade == 1.0 or not len(self.weights):
            return self
        left = fade * self.weights
        kept = left > max(LEAST_WEIGHT * left.max(), TINY)
        return self._replace(weights=left, threshold=fade * self.threshold).part(kept)

    def grown(self, chosen: np.ndarray) -> SampledRows:
        """With the classes' new numbers."""
        return self._replace(codes=chosen[self.codes])

    def of_classes(self, chosen: np.ndarray) -> SampledRows:
        """Those of some classes, by a sorted array of their numbers, which are counted anew."""
        codes = numbers_among(chosen, self.codes)
        return self._replace(codes=codes).part(codes >= 0)

    @property
    def counts(self) -> np.ndarray:
        """How many votes each row has; one, if rows stand for more samples than one."""
        return np.maximum(self.weights, self.threshold) / max(self.threshold, 1.0)

    def holds(self, rows: np.ndarray) -> np.ndarray:
        """Which of some rows are in the sample, (n,) array of bool."""
        held = {row.tobytes() for row in self.rows}
        return np.array([row.tobytes() in held for row in rows], dtype=bool)


def numbers_among(chosen: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Numbers of classes (n,) where only those chosen count, in their order; -1 for others."""
    # A table: np.isin takes ten times as long, which single rows feel.
    numbers = np.full(1 + max(codes.max(initial=0), chosen.max(initial=0)), -1)
    numbers[chosen] = np.arange(len(chosen))
    return numbers[codes]


def uniform_draws(numbers: np.ndarray) -> np.ndarray:
    """Random numbers in (0, 1], the same for the same numbers (SplitMix64, Steele et al. 2014)."""
    z = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return ((z >> np.uint64(11)).astype(float) + 1.0) * 2.0**-53


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
