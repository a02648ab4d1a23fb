"""Prequential evaluation: rows of a stream are predicted, then learned."""

from __future__ import annotations

import pickle
import time
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import cohen_kappa_score

# Least probability that counts: scikit-learn's log_loss had this one for long.
PROBABILITY_FLOOR = 1e-15
# Points of a curve of accuracy over time.
WINDOWS = 40


def prequential(model: BaseEstimator, X: np.ndarray, y: np.ndarray, block: int) -> np.ndarray:
    """Which rows were predicted rightly.

    Parameters
    ----------
    model : classifier with partial_fit
    X : (n, d) array
        In the order of the stream.
    y : (n,) array
    block : int
        Rows that are predicted before any of them is learned.

    Returns
    -------
    (n - block,) array of bool
        Without the first block, before which nothing is known.
    """
    model = clone(model).partial_fit(X[:block], y[:block], classes=np.unique(y))
    right = []
    for start in range(block, len(X), block):
        rows = slice(start, start + block)
        right.append(model.predict(X[rows]) == y[rows])
        model.partial_fit(X[rows], y[rows])
    return np.concatenate(right)


def last_class(y: np.ndarray) -> np.ndarray:
    """Which rows are of the class of the row before: what needs no model. The first is not."""
    return np.append(False, y[1:] == y[:-1])


class Passage(NamedTuple):
    """What a stream of n rows and C classes was to a model that met it row by row.

    Attributes
    ----------
    probabilities : (n - 1, C) array
        Of the classes in sorted order, told before the row was learned. The first row is learned
        only: before it nothing is known.
    seconds : (n - 1,) array
        CPU time of predicting and learning a row.
    model : classifier
        After the last row.
    """

    probabilities: np.ndarray
    seconds: np.ndarray
    model: BaseEstimator


def row_by_row(model: BaseEstimator, X: np.ndarray, y: np.ndarray) -> Passage:
    """Predict each row of a stream, then learn it; the classes are declared at the start."""
    classes, n = np.unique(y), len(y)
    model = clone(model).partial_fit(X[:1], y[:1], classes=classes)
    probabilities, seconds = np.empty((n - 1, len(classes))), np.empty(n - 1)
    for i in range(1, n):
        row, label = X[[i]], y[[i]]
        # The clock of the process ticks in milliseconds where its CPU time is limited.
        start = time.thread_time()
        probabilities[i - 1] = model.predict_proba(row)[0]
        model.partial_fit(row, label, classes=classes)
        seconds[i - 1] = time.thread_time() - start
    return Passage(probabilities, seconds, model)


def log_loss(probabilities: np.ndarray, codes: np.ndarray) -> float:
    """Mean of -log P(class) in nats, probabilities below the floor counted as the floor."""
    own = probabilities[np.arange(len(codes)), codes]
    return float(np.log(1.0 / np.maximum(own, PROBABILITY_FLOOR)).mean())


def temporal_kappa(right: np.ndarray, as_before: np.ndarray) -> float:
    """How far a model is from the no-change classifier (0) to faultless (1).

    Žliobaitė et al. (2015, Evaluation methods and decision theory for classification of streaming
    data with temporal dependence, Machine Learning 98).

    Parameters
    ----------
    right, as_before : array of bool
        Which rows the model predicted rightly, and which are of the class of the row before.
    """
    chance = as_before.mean()
    return float((right.mean() - chance) / (1.0 - chance)) if chance < 1.0 else np.nan


def figures(passage: Passage, y: np.ndarray) -> dict:
    """Figures of a passage over all rows of y but the first; the most probable class counts."""
    codes = np.unique(y, return_inverse=True)[1][1:]
    predicted = passage.probabilities.argmax(axis=1)
    right = predicted == codes
    windows = min(WINDOWS, len(right))
    median, slowest = np.quantile(1e6 * passage.seconds, [0.5, 0.999])
    return {
        "accuracy": 100.0 * right.mean(),
        "kappa": float(cohen_kappa_score(codes, predicted)),
        "kappa_temporal": temporal_kappa(right, last_class(y)[1:]),
        "log_loss": log_loss(passage.probabilities, codes),
        "us_median": median,
        "us_999": slowest,
        "pickle_kb": len(pickle.dumps(passage.model)) / 1e3,
        "curve": [100.0 * part.mean() for part in np.array_split(right, windows)],
    }
