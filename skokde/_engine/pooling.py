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
from scipy.optimize import minimize

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


class Pool(NamedTuple):
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
    def bayes(cls, n_classes: int) -> Pool:
        """Bayes' rule, before any prediction."""
        weights = np.zeros(2 + n_classes)
        weights[0] = 1.0
        return cls(weights, PRIOR_PRECISION * np.eye(2 + n_classes), 0.0)

    def of_classes(self, chosen: np.ndarray) -> Pool:
        """The pool of some of the classes, by an array of their numbers."""
        at = np.concatenate([[0, 1], 2 + chosen])
        return Pool(self.weights[at], self.precision[np.ix_(at, at)], self.count)

    def with_classes(self, chosen: np.ndarray, pool: Pool) -> Pool:
        """The pool, with what another one knows of some of the classes."""
        at = np.concatenate([[0, 1], 2 + chosen])
        weights, precision = self.weights.copy(), self.precision.copy()
        weights[at] = pool.weights
        precision[np.ix_(at, at)] = pool.precision
        return Pool(weights, precision, pool.count)

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
        points = self.frame.points_within_reach(X)
        # Unlike a sum of squares hypot does not overflow.
        distances = [np.hypot.reduce(points - mean, axis=1, initial=0.0) for mean in self.means]
        logs = np.log(np.hypot(1.0, np.column_stack(distances) / np.sqrt(DEGREES_OF_FREEDOM)))
        return -(DEGREES_OF_FREEDOM + X.shape[1]) * logs


def learn_pool(
    pool: Pool,
    log_prior: np.ndarray,
    log_density: np.ndarray,
    discriminant: np.ndarray,
    codes: np.ndarray,
    counts: np.ndarray,
    n_samples: float,
) -> Pool:
    """The pool after some more predictions.

    The log-loss of the earlier ones stands as a parabola about the weights that were best.

    Parameters
    ----------
    pool : Pool
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
        logits = pool._replace(weights=weights).logits(log_prior, *features)
        return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        log_p = log_probabilities(weights)
        surprise = np.exp(log_p)
        surprise[rows, codes] -= 1.0
        surprise *= counts[:, None]
        step = weights - pool.weights
        gradient = old @ step
        gradient[:2] += np.einsum("nc,mnc->m", surprise, features)
        gradient[2:] += surprise.sum(axis=0)
        return float(0.5 * step @ old @ step - counts @ log_p[rows, codes]), gradient

    # A class must not become less probable where its density is higher.
    bounds = [(0.0, None)] * 2 + [(None, None)] * len(log_prior)
    weights = minimize(loss, pool.weights, jac=True, method="L-BFGS-B", bounds=bounds).x
    p = np.exp(log_probabilities(weights))
    deviations = features - np.einsum("nc,mnc->mn", p, features)[:, :, None]
    mass = counts[:, None] * p
    curvature = np.empty_like(old)
    curvature[:2, :2] = np.einsum("nc,mnc,lnc->ml", mass, deviations, deviations)
    curvature[:2, 2:] = np.einsum("nc,mnc->mc", mass, deviations)
    curvature[2:, :2] = curvature[:2, 2:].T
    curvature[2:, 2:] = np.diag(mass.sum(axis=0)) - mass.T @ p
    return Pool(weights, old + curvature, float(share * total))
