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
    X: np.ndarray,
    function: Callable[..., np.ndarray],
    shape: tuple[int, ...],
    *others: np.ndarray,
) -> np.ndarray:
    """Results (n, *shape) for rows, of what is known of each.

    Parameters
    ----------
    X : (n, d) array
        NaN is missing.
    function : callable
        Called with the numbers of the features that some rows have, these rows without the
        other features, and what `others` have of these rows; it returns a (n_rows, *shape) array.
    shape : tuple of int
    *others : (n, ...) arrays
        What else there is of each row.

    Returns
    -------
    (n, *shape) array
        Zero for a row of which nothing is known: the logarithm of a probability of one.
    """
    out = np.zeros((len(X), *shape))
    for rows, features in patterns(X):
        if len(features):
            known = X[rows].take(features, axis=1)
            out[rows] = function(features, known, *(other[rows] for other in others))
    return out


def together(X: np.ndarray) -> np.ndarray:
    """An order of rows in which those that lack the same features are neighbours."""
    return np.lexsort(np.isnan(X).T)
