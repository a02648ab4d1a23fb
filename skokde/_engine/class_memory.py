"""Class priors whose memory is found by prediction.

Not in the paper. The counts of the classes are kept several times, each with its own forgetting
factor, and weighted by how probable they found each label before it was counted. Factors are such
that no prior forgets a class within less than some hundred rows: rows may be predicted long before
the next label comes, and labels may come in turns.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from skokde._engine._append import update_class_memories

FACTORS = np.array([1.0, 0.999, 0.99])
# The one that forgets nothing is right unless labels say otherwise.
FIRST_WEIGHTS = np.array([0.5, 0.25, 0.25])
FIXED_SHARE = 0.002
MOST_REPETITIONS = 1000


class ClassMemory(NamedTuple):
    """Counts of the classes in several memories.

    Attributes
    ----------
    counts : (n_memories, n_classes) array
    weights : (n_memories,) array, sum one
    """

    counts: np.ndarray
    weights: np.ndarray

    @classmethod
    def start(cls, class_count: np.ndarray) -> Self:
        """From what the classes count so far: nothing before the first row."""
        return cls(np.tile(class_count, (len(FACTORS), 1)), FIRST_WEIGHTS)

    def grown(self, chosen: np.ndarray, n_classes: int) -> Self:
        """With more classes, the old ones having new numbers among them."""
        counts = np.zeros((len(FACTORS), n_classes))
        counts[:, chosen] = self.counts
        return self._replace(counts=counts)

    def followed_by(self, later: ClassMemory, n_samples: float) -> Self:
        """After all that another one has counted, a number of samples of the same classes."""
        counts = FACTORS[:, None] ** n_samples * self.counts + later.counts
        # What told which memory is best is forgotten as it is while labels come.
        old = (1.0 - FIXED_SHARE) ** n_samples * (self.weights / FIRST_WEIGHTS - 1.0) + 1.0
        weights = old * later.weights
        return self._replace(counts=counts, weights=weights / weights.sum())

    def updated(self, codes: np.ndarray, row_weights: np.ndarray) -> Self:
        """After some rows, of which these are the classes."""
        counts, weights = self.counts.copy(), self.weights.copy()
        update_class_memories(
            counts,
            weights,
            codes,
            row_weights,
            FACTORS,
            FIRST_WEIGHTS,
            FIXED_SHARE,
            MOST_REPETITIONS,
        )
        return self._replace(counts=counts, weights=weights)

    def prior(self) -> np.ndarray:
        """Probabilities (n_classes,) of the next label, of those that have come."""
        seen = self.counts[0] > 0.0
        totals = self.counts.sum(axis=1, keepdims=True)
        # Of classes that have come, since others are known or not as the stream is cut.
        prior = self.weights @ ((self.counts + seen / max(seen.sum(), 1)) / (totals + 1.0))
        return prior / max(prior.sum(), np.finfo(float).tiny)
