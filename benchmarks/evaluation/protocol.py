"""The paper's protocol as scikit-learn parts: a splitter and scorers that any estimator can take.

from sklearn.model_selection import cross_validate
cross_validate(estimator, X, y, cv=StreamSplit(12), scoring=SCORERS)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.metrics import brier_score_loss, get_scorer
from sklearn.metrics import log_loss as sklearn_log_loss

# Densities below this count as this: one outlier must not decide a mean.
LOG_FLOOR = float(np.log(1e-300))
# Of a calibration curve.
N_BINS = 10


class StreamSplit:
    """Random shuffles of the rows, the first part of each a training stream in that order.

    Parameters
    ----------
    n_splits : int, default=12
        Split s shuffles with ``numpy.random.RandomState(s)``.
    train_fraction : float, default=0.75
    """

    def __init__(self, n_splits: int = 12, train_fraction: float = 0.75):
        self.n_splits = n_splits
        self.train_fraction = train_fraction

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for seed in range(self.n_splits):
            yield self.of_seed(len(X), seed)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits

    def of_seed(self, n_samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Training and test rows of one split."""
        order = np.random.RandomState(seed).permutation(n_samples)
        cut = int(self.train_fraction * n_samples)
        return order[:cut], order[cut:]


def has_density(estimator: Any) -> bool:
    """Whether an estimator tells prior times density, so that log p(x | class) can be had."""
    return hasattr(estimator, "predict_joint_log_proba")


def nll(estimator: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Mean of -log p(x | class of x) in nats, the density of the row's own class model.

    Densities are floored at 1e-300. A class that the model has not seen has no density: the floor.
    """
    joint = estimator.predict_joint_log_proba(X)
    own = np.searchsorted(estimator.classes_, y)
    known = np.isin(y, estimator.classes_)
    own[~known] = 0
    with np.errstate(divide="ignore", invalid="ignore"):  # -inf - -inf where a prior is zero
        log_density = joint[np.arange(len(y)), own] - np.log(estimator.class_prior_[own])
    log_density[~known | np.isnan(log_density)] = LOG_FLOOR
    return -float(np.maximum(log_density, LOG_FLOOR).mean())


def of_all_labels(
    probabilities: np.ndarray, classes: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of all labels, zero for those that the model does not know, and the labels."""
    labels = np.union1d(classes, y)
    out = np.zeros((len(y), len(labels)))
    out[:, np.searchsorted(labels, classes)] = probabilities
    return out, labels


def _probabilities(estimator: Any, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return of_all_labels(estimator.predict_proba(X), estimator.classes_, y)


def log_loss(estimator: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Mean of -log P(class | x) in nats, as scikit-learn's log_loss, which clips at its epsilon."""
    probabilities, labels = _probabilities(estimator, X, y)
    return float(sklearn_log_loss(y, probabilities, labels=labels))


def brier(estimator: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Mean squared error of the class probabilities, summed over the classes: from 0 to 2."""
    probabilities, labels = _probabilities(estimator, X, y)
    return float(brier_score_loss(y, probabilities, labels=labels, scale_by_half=False))


def reliability(estimator: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How often the predicted classes are right, by how probable they were said to be.

    Returns
    -------
    (N_BINS, 3) array
        For each of equal bins of the probability: number of rows, sum of their probabilities,
        number of rows predicted rightly.
    """
    probabilities, labels = _probabilities(estimator, X, y)
    said = probabilities.max(axis=1)
    right = labels[probabilities.argmax(axis=1)] == y
    bins = np.minimum((said * N_BINS).astype(int), N_BINS - 1)
    return np.column_stack(
        [np.bincount(bins, weights, N_BINS) for weights in (np.ones(len(y)), said, right)]
    )


def calibration_error(curve: np.ndarray) -> float:
    """Mean distance of what is said from what is right, weighted by rows, in percent."""
    return float(100.0 * np.abs(curve[:, 1] - curve[:, 2]).sum() / curve[:, 0].sum())


def neg_nll(estimator: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Minus `nll`: greater is better, as scikit-learn wants it."""
    return -nll(estimator, X, y)


def neg_log_loss(estimator: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Minus `log_loss`."""
    return -log_loss(estimator, X, y)


# For estimators with densities and probabilities.
SCORERS = {
    "accuracy": get_scorer("accuracy"),
    "neg_nll": neg_nll,
    "neg_log_loss": neg_log_loss,
}
