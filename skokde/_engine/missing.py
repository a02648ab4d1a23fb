"""Rows with missing values: those that lack the same features belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np


def patterns(X: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers of rows that lack the same features, NaN in them, and of the features they have."""
    found, numbers = np.unique(np.isnan(X), axis=0, return_inverse=True)
    for number, missing in enumerate(found):
        yield np.flatnonzero(numbers == number), np.flatnonzero(~missing)


def by_known_features(
    X: np.ndarray, function: Callable[[np.ndarray, np.ndarray], np.ndarray], shape: tuple[int, ...]
) -> np.ndarray:
    """Results (n, *shape) for rows, of what is known of each.

    Parameters
    ----------
    X : (n, d) array
        NaN is missing.
    function : callable
        Called with the numbers of the features that some rows have, and these rows without the
        others; it returns a (n_rows, *shape) array.
    shape : tuple of int

    Returns
    -------
    (n, *shape) array
        Zero for a row of which nothing is known: the logarithm of a probability of one.
    """
    out = np.zeros((len(X), *shape))
    for rows, features in patterns(X):
        if len(features):
            out[rows] = function(features, X[rows].take(features, axis=1))
    return out


def together(X: np.ndarray) -> np.ndarray:
    """An order of rows in which those that lack the same features are neighbours."""
    return np.lexsort(np.isnan(X).T)
