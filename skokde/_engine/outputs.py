"""Outputs that are predicted from features: what an expert counts for that.

Not in the paper. A density of many features and one output is, for the most part, one of the
features: by how well experts predict rows, the features would decide which of them predicts the
output. So experts are weighted by the densities of the outputs alone, given the features. Where
the features of a row are known, experts differ in how probable they are, too, and by Bayes' rule
that would decide. But of few samples no density of many features is good, so it counts as much as
that of a single feature would: experts for which a row is far out, and which know nothing of it,
leave it to others. The more samples there are, the more it counts.
"""

from __future__ import annotations

import numpy as np

from skokde._engine.kde import KDE, log, log_sum

# Samples up to which the features of a row count as one of them does.
FEW_SAMPLES = 500.0


def power_of_features(n_known: int | np.ndarray, count: float) -> float | np.ndarray:
    """The power to which densities of features are raised in what experts count.

    Parameters
    ----------
    n_known : int or array of int
        How many features are known.
    count : float
        Of the samples.
    """
    return 1.0 / (1.0 + n_known * min(1.0, FEW_SAMPLES / count))


def log_conditionals(log_all: np.ndarray, log_known: np.ndarray) -> np.ndarray:
    """Log-densities of some features given others, by those of all and of these; -inf stays."""
    lost = log_all == -np.inf
    return np.where(lost, -np.inf, log_all - np.where(lost, 0.0, log_known))


def highest_log_density(outputs: np.ndarray) -> float:
    """What log-densities of outputs need not be above.

    No probability is above one: whole numbers are at most as dense as one for each. Without it
    kernels that are as narrow as rounding would win by the rows that they know already.

    Parameters
    ----------
    outputs : (n, n_outputs) array

    Returns
    -------
    float
        Infinite where an output has one value only.
    """
    finest = [np.diff(np.unique(of_one)).min(initial=np.inf) for of_one in outputs.T]
    return -float(np.log(finest).sum()) if np.isfinite(finest).all() else np.inf


def log_densities_of_outputs(
    kde: KDE, rows: np.ndarray, n_outputs: int, count: float
) -> np.ndarray:
    """Log-densities (n,) of the last values of rows given the others, in nats.

    Parameters
    ----------
    kde : KDE
    rows : (n, d) array
        Features may be missing, NaN.
    n_outputs : int
    count : float
        Of the samples.

    Returns
    -------
    (n,) array
        -inf where the features are too far out for any of the densities.
    """
    features = rows.copy()
    features[:, -n_outputs:] = np.nan
    n_known = (~np.isnan(features)).sum(axis=1)
    grouped = kde.by_kernel()
    log_totals = log(grouped.totals_of_groups)
    of_both = grouped.log_densities_of_groups(rows)
    of_features = grouped.log_densities_of_groups(features)
    of_features[n_known == 0] = log_totals
    # The weights are those of the kernels times a power of what these say of the features.
    power = power_of_features(n_known, count)[:, None]
    lost = of_features == -np.inf
    log_features = np.where(lost, 0.0, of_features)
    log_weights = np.where(lost, -np.inf, power * log_features + (1.0 - power) * log_totals)
    logs = np.where(lost, -np.inf, log_weights + log_conditionals(of_both, log_features))
    known = log_weights.max(axis=1) > -np.inf
    out = np.full(len(rows), -np.inf)
    out[known] = log_sum(logs[known].T) - log_sum(log_weights[known].T)
    return out
