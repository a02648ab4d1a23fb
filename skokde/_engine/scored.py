"""What is scored of a model, whatever its bandwidth."""

from __future__ import annotations

import numpy as np

from skokde._engine.bandwidth import (
    Kernel,
    frame_under_prior,
    is_predictive,
    kernel_coordinates,
)
from skokde._engine.covariance import Structure
from skokde._engine.kde import KDE, components_in
from skokde._engine.learn import State
from skokde._engine.predictive import PredictiveKDE, predictive_kde


def kde_of(
    state: State,
    structure: Structure,
    bandwidth: str | float | np.ndarray,
    prior: np.ndarray | None = None,
    kernel: Kernel | None = None,
    known: PredictiveKDE | None = None,
) -> KDE | PredictiveKDE:
    """The density estimate of a model that is not empty.

    Parameters
    ----------
    state : State
    structure : Structure
    bandwidth : str, float or array
    prior : (d, d) or (d,) array, default=None
        For the covariance that shapes the kernels, see `with_prior`. An array `bandwidth` has its
        shape already.
    kernel : Kernel, default=None
        The kernel coordinates of a bandwidth that is not predictive, where they are known.
    known : PredictiveKDE, default=None
        Of one that is, see `predictive_kde`.
    """
    if is_predictive(bandwidth):
        return predictive_kde(
            state.mixture, state.n_foretold, state.evidence, structure, prior, known
        )
    if kernel is None:
        kernel = kernel_coordinates(state.mixture, structure, bandwidth)
    if prior is None or isinstance(bandwidth, np.ndarray):
        frame = kernel.frame
    else:
        frame = frame_under_prior(state.mixture, kernel, prior)
    return KDE.of(frame, components_in(frame, *state.mixture[:3]))
