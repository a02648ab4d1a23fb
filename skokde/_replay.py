"""Rows that are kept with their classes: predicted ones, in balance, and the newest ones.

Rows that come sorted by class would teach that all are of the class that is about to come. So each
class counts in a window as much as it does in the model, and what a window lacks is made up for by
the last rows of the class that were predicted before it. Where the memory is found by prediction
classes count as they come, and the newest rows of all classes vote.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skokde._engine.kde import log_sum
from skokde._engine.recent import counts_of_runs

# So many predicted rows are kept: what p-values refer to.
N_KEPT = 600
# And so many of the newest ones: of others next to nothing is left in the shortest memory.
N_NEWEST = 64


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
        kept = np.isin(self.codes, chosen)
        rows, codes, counts = (array[kept] for array in self)
        return NewestRows(rows, np.searchsorted(chosen, codes), counts)

    def complete(self) -> NewestRows:
        """Those of which no value is missing."""
        return NewestRows(*(array[~np.isnan(self.rows).any(axis=1)] for array in self))


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
