"""Class probabilities by a logarithmic pool, whose weights are learned from predictions.

Not in the paper. Bayes' rule takes densities at their word: where features repeat each other, or a
density is not what the data come from, its probabilities are far too sure. The pool

    log P(c | x) = log P(c) + b_c + sum_j t_j log p_j(x | c) + s log q(x | c) + constant

tempers them by the t_j, one for each group of experts and each short memory of the newest samples,
and lends weight to a linear discriminant: q has the class' mean, the average covariance within the
classes, and heavy tails; there is one more for each memory that is long enough. How widely classes
spread is a term as well (see `discriminants`), what the nearest samples vote for (`neighbors`) may
be up to ten more, and what single features tell (`histograms`) two. Which t_j, s and b_c are best
the log-loss tells of rows that are predicted before they are learned; it is convex in them.
These rows also tell which share of all rows has classes that follow from nothing in it, a
contamination, so that their probabilities are the priors. While all of few rows are predicted right
nothing says how large exponents may be at most, so that a little of each row's label is taken to
be drawn by the priors (label smoothing, Szegedy et al. 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from skokde._engine.kde import log
from skokde._engine.shrinkage import share_of_target

# In nats: a class that is farther than this below the best one is as if it were no farther, where
# the pool is learned and where it is used. So one row far out is not surer than rows have shown.
FARTHEST_CLASS = 200.0
# As in `prequential`.
MEMORY = 0.25
# Before any prediction the weights are those of Bayes' rule, give or take 0.3, but where samples
# are few the exponents are less: by this share of what a covariance of as many is shrunk by. By as
# much of them densities with fewer correlations, and a linear discriminant, are trusted in their
# place.
PRIOR_PRECISION = 10.0
TEMPERED_BY_NOISE = 0.7
# Newton's method ends with a step whose square, in standard deviations of the weights, is no more.
NEGLIGIBLE = 1e-10
MOST_STEPS = 50
# Shares of rows of which the pool tells nothing, so that their classes are drawn by the priors
# alone, and how probable each share is before any prediction.
CONTAMINATIONS = np.array([0.0, 0.001, 0.003, 0.01, 0.03, 0.1])
PRIOR_OF_CONTAMINATIONS = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
# As if beside the predictions that are remembered there were so many of rows of which no term
# tells: their classes come as often as the shares say. So exponents are no larger than the number
# of predictions warrants, also where none of these was wrong.
UNTOLD = 0.5
# What lowers the log-loss by no more than this share of the impurity of what is predicted is not
# evaluated; in nats a prediction, it is between these.
USE_FOR_IMPURITY = 0.1
BOUNDS_OF_USE = np.array([3e-5, 1e-3])
# There it is taken that in this share of the predictions each group told another class from the
# right one by a nat more than it did. While all classes are easily told apart, no group is of use;
# but what comes next may need them, and those that are left make up for the others.
AS_IF_TOLD_APART = 0.1


class LeastLoss(NamedTuple):
    """Weights of a pool of which some exponents are zero.

    Attributes
    ----------
    zero : (n_densities,) array of bool
        Which ones.
    weights : (n_densities + n_classes,) array
        The best there are then.
    covariance : (n_densities + n_classes, n_densities + n_classes) array
        Inverse curvature of the log-loss by the weights that are left, zero for the others.
    rise : float
        By how much the log-loss of the predictions so far is more with them, in nats.
    """

    zero: np.ndarray
    weights: np.ndarray
    covariance: np.ndarray
    rise: float

    def without(self, places: Sequence[int]) -> Self:
        """Where these exponents are zero, too, and none of the others is below it."""
        least = self
        while len(places):
            for place in places:
                least = least._eliminated(place)
            places = np.flatnonzero(least.weights[: len(least.zero)] < 0.0)
        return least

    def _eliminated(self, place: int) -> Self:
        """Where the other weights make up for one more, as far as they can, whatever their sign.

        It is a step of Gaussian elimination, far faster than solving for the weights anew.
        """
        column = self.covariance[place]
        step = self.weights[place] / column[place]
        weights = self.weights - step * column
        covariance = self.covariance - (column / column[place])[:, None] * column
        zero = self.zero.copy()
        zero[place], weights[place] = True, 0.0
        covariance[place] = covariance[:, place] = 0.0
        return type(self)(
            zero, weights, covariance, self.rise + float(0.5 * step * self.weights[place])
        )

    def rises_without(self, removable: np.ndarray) -> list[tuple[float, int]]:
        """The rise without each exponent that may go, as long as none goes below zero, and which.

        The least rise stands first.
        """
        places = np.flatnonzero(removable & ~self.zero)
        rises = self.rise + 0.5 * self.weights[places] ** 2 / self.covariance[places, places]
        return sorted(zip(rises.tolist(), places.tolist(), strict=True))


class LogLinearPool(NamedTuple):
    """Weights of a logarithmic pool, and how sure they are.

    Attributes
    ----------
    exponents : (n_densities,) array
        The t_j, the s, that of the classes' scales and, if there are any, those of votes and, last,
        that of histograms.
    offsets : (n_classes,) array
        The b_c.
    precision : (n_densities + n_classes, n_densities + n_classes) array
        Curvature of the log-loss of the predictions so far, and of the prior: a normal
        distribution.
    count : float
        How many predictions the precision is worth.
    log_likelihoods : (n_contaminations,) array
        Of the classes that came, for each share of rows of which the pool told nothing.
    """

    exponents: np.ndarray
    offsets: np.ndarray
    precision: np.ndarray
    count: float
    log_likelihoods: np.ndarray

    @classmethod
    def start(cls, n_classes: int, exponents: np.ndarray) -> Self:
        """With what the exponents (n_densities,) are before any prediction."""
        n = len(exponents) + n_classes
        of_contaminations = np.zeros(len(CONTAMINATIONS))
        return cls(
            exponents, np.zeros(n_classes), PRIOR_PRECISION * np.eye(n), 0.0, of_contaminations
        )

    @classmethod
    def together(
        cls, pools: Sequence[Self], shares: Sequence[float], exponents: np.ndarray
    ) -> Self:
        """With what pools of the same densities and classes have learned, or a share of it.

        Parameters
        ----------
        pools : sequence of LogLinearPool
        shares : sequence of float
            One for each pool.
        exponents : (n_densities,) array
            Before any prediction.
        """
        start = cls.start(len(pools[0].offsets), exponents)
        precision, towards, count = start.precision, start.precision @ start.weights, 0.0
        log_likelihoods = start.log_likelihoods
        for pool, share in zip(pools, shares, strict=True):
            learned = pool.precision @ pool.weights - start.precision @ start.weights
            precision = precision + share * (pool.precision - start.precision)
            towards = towards + share * learned
            count += share * pool.count
            log_likelihoods = log_likelihoods + share * pool.log_likelihoods
        weights = bounded(np.linalg.solve(precision, towards), len(exponents))
        return start.with_weights(weights)._replace(
            precision=precision, count=count, log_likelihoods=log_likelihoods
        )

    def adapted(self, exponents: np.ndarray) -> Self:
        """As before any prediction, if there are other densities than this pool is for."""
        if len(self.exponents) == len(exponents):
            return self
        return self.start(len(self.offsets), exponents)

    def tempered_at_first(self, count: float, d: int, cautious: np.ndarray | None = None) -> Self:
        """Less sure than Bayes' rule where samples are few, before any prediction.

        Parameters
        ----------
        count : float
            Of the samples of a class, on average.
        d : int
            Number of features.
        cautious : (n_densities,) array, default=None
            Exponents for samples that are too few for correlations.
        """
        if self.count > 0.0:
            return self
        doubt, exponents = TEMPERED_BY_NOISE * share_of_target(count, d), self.exponents
        if cautious is not None:
            exponents = (1.0 - doubt) * exponents + doubt * cautious
        return self._replace(exponents=(1.0 - doubt) * exponents)

    def of_densities(self, chosen: np.ndarray) -> Self:
        """The exponents of some of the first densities alone, by an array of bool."""
        kept = np.append(chosen, np.ones(len(self.exponents) - len(chosen), dtype=bool))
        at = np.append(kept, np.ones(len(self.offsets), dtype=bool))
        precision = self.precision[np.ix_(at, at)]
        return self._replace(exponents=self.exponents[kept], precision=precision)

    def grown(self, chosen: np.ndarray, n_classes: int) -> Self:
        """With more classes, the old ones having new numbers among them."""
        return self.start(n_classes, self.exponents).with_classes(chosen, self)

    def _places(self, chosen: np.ndarray) -> np.ndarray:
        n = len(self.exponents)
        return np.append(np.arange(n), n + chosen)

    def of_classes(self, chosen: np.ndarray) -> Self:
        """The pool of some of the classes, by an array of their numbers."""
        at = self._places(chosen)
        precision = self.precision[np.ix_(at, at)]
        return self._replace(offsets=self.offsets[chosen], precision=precision)

    def with_classes(self, chosen: np.ndarray, pool: LogLinearPool) -> Self:
        """The pool, with what another one knows of some of the classes."""
        at = self._places(chosen)
        offsets, precision = self.offsets.copy(), self.precision.copy()
        offsets[chosen] = pool.offsets
        precision[np.ix_(at, at)] = pool.precision
        return pool._replace(offsets=offsets, precision=precision)

    def pruned(self, n_groups: int, n_memories: int = 0) -> Self:
        """With zero exponents for what is next to no use.

        One goes at a time, the one without which the loss is least: the other weights make up for
        it as far as they can (optimal brain surgeon, Hassibi and Stork 1993). One of the groups of
        experts always stays, and short memories do, which whatever changes next will need.

        Parameters
        ----------
        n_groups : int
            The first densities.
        n_memories : int, default=0
            How many are those of short memories, after the groups.
        """
        precision = self.precision.copy()
        precision[:n_groups, :n_groups] += AS_IF_TOLD_APART * self.count
        least = self._replace(precision=precision)._least_loss()
        candidates = np.ones(len(self.exponents), dtype=bool)
        candidates[n_groups : n_groups + n_memories] = False
        most = self.allowed_rise
        while True:
            fewer, allowed = least, most
            removable = candidates & ~least.zero
            if np.count_nonzero(removable[:n_groups]) == 1:
                removable[:n_groups] = False
            # None rises by less than where no exponent comes to zero besides.
            for bound, place in least.rises_without(removable):
                if bound > allowed:
                    break
                tried = least.without([place])
                if tried.rise <= allowed:
                    fewer, allowed = tried, tried.rise
            if fewer is least:
                break
            least = fewer
        return self.with_weights(least.weights)

    def without(self, zero: np.ndarray) -> Self:
        """With the weights that are best where some exponents, an array of bool, are zero."""
        gone = np.flatnonzero(zero & (self.exponents > 0.0))
        if not len(gone):
            return self
        return self.with_weights(self._least_loss().without(gone).weights)

    def without_last(self, n: int) -> Self:
        """The same where so many of the last exponents are zero."""
        return self.without(np.arange(len(self.exponents)) >= len(self.exponents) - n)

    @property
    def allowed_rise(self) -> float:
        """Of the log-loss of the predictions so far, when groups go."""
        offsets = np.diag(self.precision)[len(self.exponents) :]
        # Gini's: of the classes' probabilities each times what it lacks of one.
        impurity = (offsets - PRIOR_PRECISION).sum()
        return float(np.clip(USE_FOR_IMPURITY * impurity, *self.count * BOUNDS_OF_USE))

    def _least_loss(self) -> LeastLoss:
        """That of the weights as they are."""
        zero = self.exponents <= 0.0
        free = np.flatnonzero(np.append(~zero, np.ones(len(self.offsets), dtype=bool)))
        among_free, covariance = np.ix_(free, free), np.zeros_like(self.precision)
        covariance[among_free] = np.linalg.inv(self.precision[among_free])
        return LeastLoss(zero, self.weights, covariance, 0.0)

    @property
    def weights(self) -> np.ndarray:
        """Exponents and offsets."""
        return np.concatenate([self.exponents, self.offsets])

    def with_weights(self, weights: np.ndarray) -> Self:
        n = len(self.exponents)
        return self._replace(exponents=weights[:n], offsets=weights[n:])

    @property
    def contamination(self) -> float:
        """The share of rows of which the pool tells nothing, as predictions have it."""
        weights = PRIOR_OF_CONTAMINATIONS * np.exp(
            self.log_likelihoods - self.log_likelihoods.max()
        )
        return float(weights @ CONTAMINATIONS / weights.sum())

    def log_probabilities(self, shares: np.ndarray, log_densities: np.ndarray) -> np.ndarray:
        """Log-probabilities of the classes, where the pool may tell nothing: their shares then.

        Parameters
        ----------
        shares : (n_classes,) array, sum one
            Of the classes, zero for those that can't come.
        log_densities : (n_densities, n, n_classes) array, finite
        """
        log_shares = log(shares)
        pooled = normalized(self.logits(log_shares, log_densities))
        return contaminated(pooled, log_shares, self.contamination)

    def logits(self, log_prior: np.ndarray, log_densities: np.ndarray) -> np.ndarray:
        """Log-probabilities of the classes, but for a constant in each row.

        Parameters
        ----------
        log_prior : (n_classes,) array
        log_densities : (n_densities, n, n_classes) array, finite
        """
        flat = log_densities.reshape(len(log_densities), -1)
        tempered = (self.exponents @ flat).reshape(log_densities.shape[1:])
        return log_prior + self.offsets + tempered


def relative(logs: np.ndarray, farthest: float) -> np.ndarray:
    """Differences of logarithms from the largest of their row, none below -farthest.

    Rows (n_classes,) of an array of any number of dimensions.
    """
    top = logs.max(axis=-1, keepdims=True)
    return np.maximum(logs - np.where(np.isfinite(top), top, 0.0), -farthest)


def normalized(logits: np.ndarray) -> np.ndarray:
    """Logarithms of probabilities that are known but for a factor, of sum one in each row.

    Where densities are tiny only differences keep their digits. scipy.special.log_softmax does the
    same in three times the time, which single rows and Newton's steps feel.
    """
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def learn_pool(
    pool: LogLinearPool,
    log_prior: np.ndarray,
    log_densities: np.ndarray,
    codes: np.ndarray,
    counts: np.ndarray,
    n_samples: float,
) -> LogLinearPool:
    """The pool after some more predictions.

    The log-loss of the earlier ones stands as a parabola about the weights that were best.

    Parameters
    ----------
    pool : LogLinearPool
    log_prior : (n_classes,) array, finite
        Logarithms of shares.
    log_densities : (n_densities, n, n_classes) array
        Of rows that the model had not learned.
    codes : (n,) array
        The classes that the rows turned out to have.
    counts : (n,) array
        How many samples each row stands for.
    n_samples : float
        That the model remembers.
    """
    rows, n_densities = np.arange(len(codes)), len(log_densities)
    features = relative(log_densities, FARTHEST_CLASS)
    total = pool.count + counts.sum()
    share = min(1.0, MEMORY * n_samples / total)
    prior = PRIOR_PRECISION * np.eye(len(pool.precision))
    old = prior + share * (pool.precision - prior)
    counts = share * counts
    before = pool.weights
    untold = UNTOLD / (UNTOLD + MEMORY * n_samples)
    untold_by_class = untold * np.exp(log_prior)

    def log_probabilities(weights: np.ndarray) -> np.ndarray:
        return normalized(pool.with_weights(weights).logits(log_prior, features))

    def loss(weights: np.ndarray, log_p: np.ndarray) -> float:
        away = weights - before
        log_likelihoods = (1.0 - untold) * log_p[rows, codes] + log_p @ untold_by_class
        return float(0.5 * away @ old @ away - counts @ log_likelihoods)

    weights = before
    log_p = log_probabilities(weights)
    of_classes = log_p[rows, codes, None], log_prior[codes, None]
    of_rows = contaminated(*of_classes, CONTAMINATIONS)
    log_likelihoods = share * pool.log_likelihoods + counts @ of_rows
    for _ in range(MOST_STEPS):
        p = np.exp(log_p)
        curvature = old + log_loss_curvature(p, features, counts)
        surprise = p - untold_by_class
        surprise[rows, codes] -= 1.0 - untold
        surprise *= counts[:, None]
        gradient = old @ (weights - before)
        gradient[:n_densities] += (surprise * features).sum(axis=(1, 2))
        gradient[n_densities:] += surprise.sum(axis=0)
        step = newton_step(weights, gradient, curvature, n_densities)
        if not -gradient @ step > NEGLIGIBLE:
            weights = bounded(weights + step, n_densities)
            break
        reached = loss(weights, log_p)
        for size in 0.5 ** np.arange(MOST_STEPS):
            tried = bounded(weights + size * step, n_densities)
            log_p = log_probabilities(tried)
            if loss(tried, log_p) < reached:
                break
        else:  # rounding is all that still moves the loss
            break
        weights = tried
    return pool.with_weights(weights)._replace(
        precision=curvature, count=float(share * total), log_likelihoods=log_likelihoods
    )


def contaminated(
    log_p: np.ndarray, log_shares: np.ndarray, contamination: float | np.ndarray
) -> np.ndarray:
    """Log-probabilities of classes where of a share of rows the pool tells nothing.

    Parameters
    ----------
    log_p, log_shares : arrays
        By the pool, and without it.
    contamination : float or array
        The share, from 0 to below 1.
    """
    return np.logaddexp(log(1.0 - contamination) + log_p, log(contamination) + log_shares)


def bounded(weights: np.ndarray, n_densities: int) -> np.ndarray:
    """No exponent below zero: a class must not become less probable where its density is higher."""
    return np.append(np.maximum(weights[:n_densities], 0.0), weights[n_densities:])


def newton_step(
    weights: np.ndarray, gradient: np.ndarray, curvature: np.ndarray, n_densities: int
) -> np.ndarray:
    """Newton's step to the least loss within the bounds (Bertsekas 1982).

    An exponent that is zero and would fall stays.
    """
    free = np.ones(len(weights), dtype=bool)
    n = n_densities
    free[:n] = (weights[:n] > 0.0) | (gradient[:n] < 0.0)
    step = np.zeros_like(weights)
    step[free] = np.linalg.solve(curvature[free][:, free], -gradient[free])
    return step


def log_loss_curvature(p: np.ndarray, features: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Second derivatives of the log-loss of predictions by the weights of a pool.

    Parameters
    ----------
    p : (n, n_classes) array
        The predicted probabilities.
    features : (n_densities, n, n_classes) array
        What the exponents multiply.
    counts : (n,) array
    """
    means = (p * features).sum(axis=2)
    deviations = features - means[:, :, None]
    mass = counts[:, None] * p
    weighted = mass * deviations
    n, n_classes = len(features), p.shape[1]
    curvature = np.empty((n + n_classes, n + n_classes))
    curvature[:n, :n] = weighted.reshape(n, -1) @ deviations.reshape(n, -1).T
    curvature[:n, n:] = weighted.sum(axis=1)
    curvature[n:, :n] = curvature[:n, n:].T
    curvature[n:, n:] = np.diag(mass.sum(axis=0)) - mass.T @ p
    return curvature
