"""Learning from a stream: append samples, compress when due (paper, Section 5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skokde._engine._append import append_rows
from skokde._engine.bandwidth import is_predictive, kernel_coordinates
from skokde._engine.compression import compress
from skokde._engine.covariance import Structure
from skokde._engine.mixture import Mixture
from skokde._engine.predictive import foretell, no_evidence
from skokde._engine.revitalization import may_revive, revitalize

# Components that are held before the first compression, and how much of what a compression leaves
# may be added before the next one. The published implementations start at 15 at most and compress
# after nearly every sample once they have reached their limit, which is what makes them slow.
INITIAL_LIMIT = 30
GROWTH = 1.25
# Their share of the components under a cap.
OUTLIERS = 0.2


class Settings(NamedTuple):
    """What the estimators' parameters mean to the engine."""

    structure: Structure
    bandwidth: str | float | np.ndarray
    compression_threshold: float
    forgetting_factor: float
    max_components: int | None
    prior: np.ndarray | None = None  # for the covariance, see `with_prior`


class State(NamedTuple):
    """What an online model is.

    Attributes
    ----------
    mixture : Mixture
    limit : int
        Components that may be held.
    n_foretold : int
        Components that the last compression left; those after them are samples since.
    evidence : (n_widths,) array
        What predictions tell of the bandwidth, see `weigh`.
    """

    mixture: Mixture
    limit: int
    n_foretold: int
    evidence: np.ndarray

    @classmethod
    def empty(cls, d: int, structure: Structure) -> State:
        return cls(Mixture.empty(d, structure), INITIAL_LIMIT, 0, no_evidence())


def next_limit(mixture: Mixture, settings: Settings) -> int:
    """Components that are held before the next compression."""
    limit = max(INITIAL_LIMIT, int(GROWTH * mixture.n_components) + 1)
    return limit if settings.max_components is None else min(limit, settings.max_components)


def compact(state: State, settings: Settings) -> State:
    """Revitalize and compress a model, under its own bandwidth."""
    evidence = state.evidence
    if is_predictive(settings.bandwidth):
        evidence = foretell(
            state.mixture, state.n_foretold, evidence, settings.structure, settings.prior
        )
    # With a cap, leave room for new samples: else nearly each of them costs a compression.
    cap = settings.max_components
    most = None if cap is None else max(1, int(cap / GROWTH))
    mixture = fewer_components(state.mixture.without_vanished(), settings, most)
    return State(mixture, next_limit(mixture, settings), mixture.n_components, evidence)


def fewer_components(mixture: Mixture, settings: Settings, most: int | None) -> Mixture:
    """Revitalize and compress a mixture, outliers by themselves.

    Under the bandwidth of the others they would never merge, and under one that is wide enough for
    them the others would.
    """
    if mixture.n_components == 1 and not may_revive(mixture).any():
        return mixture
    kernel = kernel_coordinates(mixture, settings.structure, settings.bandwidth)
    parts = []
    near = kernel.inliers
    if near is not None and not near.all() and most != 1:
        room = None if most is None else max(1, int(OUTLIERS * most))
        parts.append(fewer_components(mixture.part(~near), settings, room))
        mixture = mixture.part(near)
        most = None if most is None else most - parts[0].n_components
    mixture = revitalize(mixture, kernel.frame, settings.compression_threshold)
    parts.append(compress(mixture, kernel, settings.compression_threshold, most))
    return Mixture.of_parts(parts)


def learn(state: State, X: np.ndarray, weights: np.ndarray, settings: Settings) -> State:
    """Add rows to a model, in order.

    When to compress depends on the stream alone: before a distinct sample would pass the limit.
    The result is therefore the same, bit for bit, however the stream is cut.

    Parameters
    ----------
    state : State
    X : (n, d) array
    weights : (n,) array, positive
    settings : Settings
    """
    cap = settings.max_components
    if cap is not None:
        if state.mixture.n_components > cap:
            state = compact(state, settings)
        state = state._replace(limit=min(state.limit, cap))
    done = 0
    while done < len(X):
        mixture = state.mixture
        capacity = min(state.limit, mixture.n_components + len(X) - done)
        capacity = max(mixture.n_components, capacity)
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
        state = state._replace(mixture=mixture._replace(counts=counts[:k], means=means[:k]))
        done += n_rows
        if done < len(X):
            state = compact(state, settings)
    return state
