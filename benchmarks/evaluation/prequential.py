"""Prequential evaluation: each block of a stream is predicted, then learned."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, clone


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
