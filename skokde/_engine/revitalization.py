"""Revitalization: undoing compressions that were too strong (paper, Section 2.7)."""

from __future__ import annotations

import numpy as np

from skokde._engine.goldberger import principal_axis_split
from skokde._engine.hellinger import detail_errors
from skokde._engine.mixture import Mixture, merged_details
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
    revived = may_revive(mixture)
    if revived.any():
        revived &= detail_errors(mixture, frame, low=threshold) > threshold
    if not revived.any():
        return mixture
    counts, _, _, weights, means, merged, covariances = mixture.compounds(revived)
    counts, means = (counts[:, None] * weights).ravel(), means.reshape(-1, mixture.n_features)
    # The paper asks for a zero determinant, which clusters of few samples have as well.
    merged = merged.ravel()
    split = (counts[merged], means[merged], covariances)
    weights, of_halves, halves = principal_axis_split(*split[1:], frame)
    split += weights, of_halves, *merged_details(halves)
    return Mixture.join(
        [mixture.compounds(~revived), split],
        [(counts[~merged], means[~merged]), mixture.diracs()],
    )
