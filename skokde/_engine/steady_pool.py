"""A pool without short memories, beside the one that follows a stream.

Not in the paper. Where the memory is found by prediction a pool has more to weigh: densities,
discriminants and votes of short memories. What they are worth changes with the stream, so it is
learned from the newest predictions; where nothing changes, that is noise. A second pool has none of
them, and remembers more predictions. What each of the two counts goes by how well both predicted
the newest classes. What is scored is the average of their weights, and so a geometric mean of their
probabilities; since the log-loss is convex in the weights, it is no worse than they are on average.

Where the pool with short memories is ahead by far, the stream is not what it was, and the model of
all samples forgets. It is what most of the terms are of, for which no short memory can stand in.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from scipy.special import expit

from skokde._engine.pooling import (
    FARTHEST_CLASS,
    MEMORY,
    PRIOR_PRECISION,
    LogLinearPool,
    learn_pool,
    relative,
)

# What is left, after each sample, of the evidence for either pool.
EVIDENCE_LEFT = 0.995
# The evidence for short memories, in nats, from which on something is forgotten, and from which on
# no more is: this share of older samples for each new one. Where nothing changes there is some
# evidence, too, but little: short memories are of samples that are not merged.
EVIDENCE_OF_CHANGE = 2.5, 7.5
MOST_FORGOTTEN = 0.001


class SteadyPool(NamedTuple):
    """A pool without short memories, and what speaks for it.

    Attributes
    ----------
    pool : LogLinearPool
        Of the same terms as the other one; the exponents of short memories are zero.
    log_odds : float
        For this pool, against the one that follows the stream, in nats.
    """

    pool: LogLinearPool
    log_odds: float

    @classmethod
    def beside(cls, pool: LogLinearPool, short: np.ndarray) -> Self:
        """At first it is another pool, without short memories.

        Parameters
        ----------
        pool : LogLinearPool
        short : (n_terms,) array of bool
            Which of its terms are of these.
        """
        pool = pool.without(short)
        # Nothing that is learned of the other weights moves those that are zero.
        held = np.append(short, np.zeros(len(pool.offsets), dtype=bool))
        prior = PRIOR_PRECISION * np.eye(len(held))
        precision = np.where(held | held[:, None], prior, pool.precision)
        return cls(pool._replace(precision=precision), 0.0)

    def grown(self, chosen: np.ndarray, n_classes: int) -> Self:
        """With more classes, the old ones having new numbers among them."""
        return self._replace(pool=self.pool.grown(chosen, n_classes))

    def without_last(self, n: int) -> Self:
        """Without so many of the last terms."""
        return self._replace(pool=self.pool.without_last(n))

    @property
    def share(self) -> float:
        """What it counts in what is scored, between zero and one."""
        return float(expit(self.log_odds))

    @property
    def forgotten(self) -> float:
        """What share of the samples so far the densities should forget for each new one."""
        return float(np.interp(-self.log_odds, EVIDENCE_OF_CHANGE, (0.0, MOST_FORGOTTEN)))

    def mixed_with(self, pool: LogLinearPool) -> LogLinearPool:
        """The average of this pool and of one that follows the stream."""
        share = self.share
        averages = (
            share * own + (1.0 - share) * other for own, other in zip(self.pool, pool, strict=True)
        )
        return LogLinearPool(*averages)

    def learned(
        self,
        pool: LogLinearPool,
        chosen: np.ndarray,
        log_prior: np.ndarray,
        log_densities: np.ndarray,
        codes: np.ndarray,
        counts: np.ndarray,
        n_samples: float,
        short: np.ndarray,
    ) -> Self:
        """After some more predictions of some of the classes, which `learn_pool` describes.

        Parameters
        ----------
        pool : LogLinearPool
            The one that follows the stream, before them.
        chosen : (n_chosen,) array of int
            Numbers of these classes, which the codes refer to.
        short : (n_terms,) array of bool
            Which terms are of short memories.
        """
        own, rows = self.pool.of_classes(chosen), np.arange(len(codes))
        shares, features = np.exp(log_prior), relative(log_densities, FARTHEST_CLASS)
        steady, following = (
            counts @ each.log_probabilities(shares, features)[rows, codes]
            for each in (own, pool.of_classes(chosen))
        )
        without_short = np.where(short[:, None, None], 0.0, log_densities)
        # As many predictions are remembered as there are samples.
        learned = learn_pool(own, log_prior, without_short, codes, counts, n_samples / MEMORY)
        log_odds = EVIDENCE_LEFT ** counts.sum() * (self.log_odds + steady - following)
        return type(self)(self.pool.with_classes(chosen, learned), float(log_odds))
