"""Revitalization: undoing compressions that were too strong (paper, Section 2.7)."""

from __future__ import annotations

import numpy as np

from skokde._engine.covariance import flatten
from skokde._engine.goldberger import principal_axis_split
from skokde._engine.hellinger import detail_errors
from skokde._engine.mixture import Mixture
from skokde._engine.whitening import Frame

# The count of a sample, but for rounding.
SAMPLE = 1.0 - 1e-9


def may_revive(mixture: Mixture) -> np.ndarray:
    """Compounds (m,) of whose detailed models each half is a sample or more.

    Halves of halves err, too, if ever so little: what is less than a sample is not set free.
    """
    halves = mixture.counts[: mixture.n_compounds, None] * mixture.detail_weights
    return halves.min(axis=1, initial=np.inf) > SAMPLE


def revitalize(mixture: Mixture, frame: Frame, threshold: float) -> Mixture:
    """Replace components that err against their detailed models by the models' components.

    Parameters
    ----------
    mixture : Mixture
    frame : Frame
        Kernel coordinates.
    threshold : float
        D_th, the largest local error that is left.

    Returns
    -------
    Mixture
        Of the same count, mean and covariance.
    """
    m = mixture.n_compounds
    revived = may_revive(mixture)
    if revived.any():
        revived &= detail_errors(mixture, frame, low=threshold) > threshold
    if not revived.any():
        return mixture
    counts = (mixture.counts[:m, None] * mixture.detail_weights)[revived].ravel()
    means = mixture.detail_means[revived].reshape(-1, mixture.n_features)
    covariances = mixture.detail_covariances[revived]
    covariances = covariances.reshape(-1, *covariances.shape[2:])
    # The paper asks for a zero determinant, which clusters of few samples have as well.
    single = ~flatten(covariances).any(axis=1)
    split = (counts[~single], means[~single], covariances[~single])
    return Mixture.join(
        [mixture.compounds(~revived), (*split, *principal_axis_split(*split[1:], frame))],
        [(counts[single], means[single]), mixture.diracs()],
    )
