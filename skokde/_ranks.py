"""P-values by ranks among rows that were predicted before they were learned."""

from __future__ import annotations

import numpy as np

# For the log-density of a row that is too far away for any.
LOWEST = -1e300
# What scores that are the same but for rounding differ by, relative to their size or one nat: equal
# rows must not be told apart by whether they were scored alone or with others.
SAME = 1e-9


def rank_p_values(scores: np.ndarray, known: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Shares (n,) of known rows that do not score higher than these, themselves included.

    Parameters
    ----------
    scores : (n,) array
    known : (m,) array
        Scores of the known rows.
    counts : (m,) array
        How many samples each of them stands for.
    """
    if not len(known):
        return np.ones(len(scores))
    order = np.argsort(known)
    below = np.append(0.0, np.cumsum(counts[order]))
    at_most = scores + SAME * np.maximum(np.abs(scores), 1.0)
    ranks = np.searchsorted(known[order], at_most, side="right")
    own = counts.mean()
    return np.minimum((own + below[ranks]) / (own + below[-1]), 1.0)
