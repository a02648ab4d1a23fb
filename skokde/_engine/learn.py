"""Learning from a stream: append samples, compress when due (paper, Section 5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skokde._engine._append import append_rows
from skokde._engine.bandwidth import kernel_coordinates
from skokde._engine.compression import compress
from skokde._engine.covariance import Structure
from skokde._engine.mixture import Mixture
from skokde._engine.revitalization import revitalize

# Components that are held before the first compression, and how much of what a compression leaves
# may be added before the next one. The published implementations start at 15 at most and compress
# after nearly every sample once they have reached their limit, which is what makes them slow.
INITIAL_LIMIT = 30
GROWTH = 1.25


class Settings(NamedTuple):
    """What the estimators' parameters mean to the engine."""

    structure: Structure
    bandwidth: str | float | np.ndarray
    compression_threshold: float
    forgetting_factor: float
    max_components: int | None


def next_limit(mixture: Mixture, settings: Settings) -> int:
    """Components that are held before the next compression."""
    limit = max(INITIAL_LIMIT, int(GROWTH * mixture.n_components) + 1)
    return limit if settings.max_components is None else min(limit, settings.max_components)


def compact(mixture: Mixture, settings: Settings) -> Mixture:
    """Revitalize and compress a mixture, under its own bandwidth."""
    mixture = mixture.without_vanished()
    kernel = kernel_coordinates(mixture, settings.structure, settings.bandwidth)
    mixture = revitalize(mixture, kernel.frame, settings.compression_threshold)
    # With a cap, leave room for new samples: else nearly each of them costs a compression.
    cap = settings.max_components
    most = None if cap is None else max(1, int(cap / GROWTH))
    return compress(mixture, kernel, settings.compression_threshold, most)


def learn(
    mixture: Mixture, limit: int, X: np.ndarray, weights: np.ndarray, settings: Settings
) -> tuple[Mixture, int]:
    """Add rows to a sample model, in order.

    When to compress depends on the stream alone: before a distinct sample would pass the limit.
    The result is therefore the same, bit for bit, however the stream is cut.

    Parameters
    ----------
    mixture : Mixture
    limit : int
        Components that may be held, from the last call.
    X : (n, d) array
    weights : (n,) array, positive
    settings : Settings

    Returns
    -------
    mixture : Mixture
    limit : int
    """
    cap = settings.max_components
    if cap is not None:
        if mixture.n_components > cap:
            mixture = compact(mixture, settings)
        limit = min(limit, cap)
    done = 0
    while done < len(X):
        capacity = max(mixture.n_components, min(limit, mixture.n_components + len(X) - done))
        counts = np.empty(capacity)
        means = np.empty((capacity, mixture.n_features))
        counts[: mixture.n_components] = mixture.counts
        means[: mixture.n_components] = mixture.means
        k, n_rows = append_rows(
            counts,
            means,
            mixture.n_components,
            mixture.n_compounds,
            X[done:],
            weights[done:],
            settings.forgetting_factor,
        )
        mixture = mixture._replace(counts=counts[:k], means=means[:k])
        done += n_rows
        if done < len(X):
            mixture = compact(mixture, settings)
            limit = next_limit(mixture, settings)
    return mixture, limit
