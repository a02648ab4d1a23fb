"""Class probabilities by a logarithmic pool, whose weights are learned from predictions.

Not in the paper. Bayes' rule takes densities at their word: where features repeat each other, or a
density is not what the data come from, its probabilities are far too sure. The pool

    log P(c | x) = log P(c) + b_c + t log p(x | c) + s log q(x | c) + constant

tempers them by t, and lends weight to a linear discriminant: q has the class' mean, the average
covariance within the classes, and heavy tails. Which t, s and b_c are best the log-loss tells of
rows that are predicted before they are learned; it is convex in them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skokde._engine.covariance import Structure
from skokde._engine.whitening import Frame, frame_of

# Of the t distributions q.
DEGREES_OF_FREEDOM = 3.0
# In nats: a class that is farther than this below the best one teaches no more than this.
FARTHEST_CLASS = 100.0
# As in `predictive`.
MEMORY = 0.25
# Before any prediction the weights are those of Bayes' rule, give or take 0.3.
PRIOR_PRECISION = 10.0
# Newton's method ends with a step whose square, in standard deviations of the weights, is no more.
NEGLIGIBLE = 1e-10
MOST_STEPS = 50


class LogLinearPool(NamedTuple):
    """Weights of a logarithmic pool, and how sure they are.

    Attributes
    ----------
    weights : (2 + n_classes,) array
        t, s and the b_c.
    precision : (2 + n_classes, 2 + n_classes) array
        Curvature of the log-loss of the predictions so far, and of the prior: a normal
        distribution about Bayes' rule.
    count : float
        How many predictions the precision is worth.
    """

    weights: np.ndarray
    precision: np.ndarray
    count: float

    @classmethod
    def bayes(cls, n_classes: int) -> LogLinearPool:
        """Bayes' rule, before any prediction."""
        weights = np.zeros(2 + n_classes)
        weights[0] = 1.0
        return cls(weights, PRIOR_PRECISION * np.eye(2 + n_classes), 0.0)

    def of_classes(self, chosen: np.ndarray) -> LogLinearPool:
        """The pool of some of the classes, by an array of their numbers."""
        at = np.concatenate([[0, 1], 2 + chosen])
        return LogLinearPool(self.weights[at], self.precision[np.ix_(at, at)], self.count)

    def with_classes(self, chosen: np.ndarray, pool: LogLinearPool) -> LogLinearPool:
        """The pool, with what another one knows of some of the classes."""
        at = np.concatenate([[0, 1], 2 + chosen])
        weights, precision = self.weights.copy(), self.precision.copy()
        weights[at] = pool.weights
        precision[np.ix_(at, at)] = pool.precision
        return LogLinearPool(weights, precision, pool.count)

    def logits(
        self, log_prior: np.ndarray, log_density: np.ndarray, discriminant: np.ndarray
    ) -> np.ndarray:
        """Log-probabilities of the classes, but for a constant in each row.

        Parameters
        ----------
        log_prior : (n_classes,) array
        log_density, discriminant : (n, n_classes) arrays, finite
        """
        t, s = self.weights[:2]
        return log_prior + self.weights[2:] + t * log_density + s * discriminant


def relative(logs: np.ndarray, farthest: float) -> np.ndarray:
    """Differences of logarithms from the largest of their row, none below -farthest."""
    top = logs.max(axis=1, keepdims=True)
    return np.maximum(logs - np.where(np.isfinite(top), top, 0.0), -farthest)


def normalized(logits: np.ndarray) -> np.ndarray:
    """Logarithms of probabilities that are known but for a factor, of sum one in each row.

    Where densities are tiny only differences keep their digits. scipy.special.log_softmax does the
    same in three times the time, which single rows and Newton's steps feel.
    """
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


class Discriminant(NamedTuple):
    """The densities q of the classes.

    Attributes
    ----------
    frame : Frame
        In which the covariance within the classes is the identity.
    means : (n_classes, d) array
    """

    frame: Frame
    means: np.ndarray

    @classmethod
    def of(cls, means: np.ndarray, covariance: np.ndarray, structure: Structure) -> Discriminant:
        """Of the means (n_classes, d) of the classes, and the covariance within them."""
        frame, _ = frame_of(means.mean(axis=0), covariance, structure)
        return cls(frame, frame.points(means))

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Logarithms (n, n_classes) of the densities, but for a constant."""
        points = self.frame.points(X)
        distances = np.empty((len(X), len(self.means)))
        for c, mean in enumerate(self.means):
            # Unlike a sum of squares hypot does not overflow.
            np.hypot.reduce(points - mean, axis=1, initial=0.0, out=distances[:, c])
        logs = np.log(np.hypot(1.0, distances / np.sqrt(DEGREES_OF_FREEDOM)))
        return -(DEGREES_OF_FREEDOM + X.shape[1]) * logs


def learn_pool(
    pool: LogLinearPool,
    log_prior: np.ndarray,
    log_density: np.ndarray,
    discriminant: np.ndarray,
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
    log_density, discriminant : (n, n_classes) arrays
        Of rows that the model had not learned.
    codes : (n,) array
        The classes that the rows turned out to have.
    counts : (n,) array
        How many samples each row stands for.
    n_samples : float
        That the model remembers.
    """
    rows = np.arange(len(codes))
    features = np.stack([relative(logs, FARTHEST_CLASS) for logs in (log_density, discriminant)])
    total = pool.count + counts.sum()
    share = min(1.0, MEMORY * n_samples / total)
    prior = PRIOR_PRECISION * np.eye(len(pool.weights))
    old = prior + share * (pool.precision - prior)
    counts = share * counts

    def log_probabilities(weights: np.ndarray) -> np.ndarray:
        return normalized(pool._replace(weights=weights).logits(log_prior, *features))

    def loss(weights: np.ndarray, log_p: np.ndarray) -> float:
        away = weights - pool.weights
        return float(0.5 * away @ old @ away - counts @ log_p[rows, codes])

    weights = pool.weights
    log_p = log_probabilities(weights)
    for _ in range(MOST_STEPS):
        p = np.exp(log_p)
        curvature = old + log_loss_curvature(p, features, counts)
        surprise = p
        surprise[rows, codes] -= 1.0
        surprise *= counts[:, None]
        gradient = old @ (weights - pool.weights)
        gradient[:2] += (surprise * features).sum(axis=(1, 2))
        gradient[2:] += surprise.sum(axis=0)
        step = newton_step(weights, gradient, curvature)
        if not -gradient @ step > NEGLIGIBLE:
            weights = bounded(weights + step)
            break
        before = loss(weights, log_p)
        for size in 0.5 ** np.arange(MOST_STEPS):
            tried = bounded(weights + size * step)
            log_p = log_probabilities(tried)
            if loss(tried, log_p) < before:
                break
        else:  # rounding is all that still moves the loss
            break
        weights = tried
    return LogLinearPool(weights, curvature, float(share * total))


def bounded(weights: np.ndarray) -> np.ndarray:
    """With t, s >= 0: a class must not become less probable where its density is higher."""
    return np.append(np.maximum(weights[:2], 0.0), weights[2:])


def newton_step(weights: np.ndarray, gradient: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Newton's step to the least loss within the bounds (Bertsekas 1982).

    A weight that is zero and would fall stays.
    """
    free = np.ones(len(weights), dtype=bool)
    free[:2] = (weights[:2] > 0.0) | (gradient[:2] < 0.0)
    step = np.zeros_like(weights)
    step[free] = np.linalg.solve(curvature[np.ix_(free, free)], -gradient[free])
    return step


def log_loss_curvature(p: np.ndarray, features: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Second derivatives of the log-loss of predictions by the weights of a pool.

    Parameters
    ----------
    p : (n, n_classes) array
        The predicted probabilities.
    features : (2, n, n_classes) array
        What t and s multiply.
    counts : (n,) array
    """
    means = (p * features).sum(axis=2)
    deviations = features - means[:, :, None]
    mass = counts[:, None] * p
    weighted = mass * deviations
    curvature = np.diag(np.append(np.zeros(2), mass.sum(axis=0)))
    curvature[:2, :2] = weighted.reshape(2, -1) @ deviations.reshape(2, -1).T
    curvature[:2, 2:] = weighted.sum(axis=1)
    curvature[2:, :2] = curvature[:2, 2:].T
    curvature[2:, 2:] -= mass.T @ p
    return curvature
