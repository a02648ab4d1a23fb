"""The unscented Hellinger distance and the local clustering error (paper, Sections 2.4, 2.5).

The errors are those of un-normalised sub-mixtures: sqrt(w) D for a cluster of weight w.
"""

from __future__ import annotations

import numpy as np

from skokde._engine import _hellinger
from skokde._engine.mixture import Mixture
from skokde._engine.whitening import Frame


def detail_errors(mixture: Mixture, frame: Frame, low: float = 0.0) -> np.ndarray:
    """Local error of each compound against its detailed model (paper, Section 2.7).

    Parameters
    ----------
    mixture : Mixture
    frame : Frame
        Kernel coordinates.
    low : float
        Where the error is at most this, the result need only be so as well.

    Returns
    -------
    (m,) array
    """
    d, m = mixture.n_features, mixture.n_compounds
    errors = np.sqrt(mixture.counts[:m] / mixture.counts.sum())
    heavy = np.flatnonzero(errors > low)
    if len(heavy) == 0:
        return errors
    details = mixture.detail_covariances[heavy]
    errors[heavy] *= _hellinger.detail_distances(
        frame.points(mixture.means[heavy]),
        frame.covariances(mixture.covariances[heavy]),
        mixture.detail_weights[heavy],
        frame.points(mixture.detail_means[heavy].reshape(-1, d)),
        frame.covariances(details.reshape(-1, *details.shape[2:])),
    )
    return errors
