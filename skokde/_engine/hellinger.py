"""The unscented Hellinger distance and the local clustering error (paper, Sections 2.4, 2.5).

The errors are those of un-normalised sub-mixtures: sqrt(w) D for a cluster of weight w.
"""

from __future__ import annotations

import numpy as np

from skokde._engine import _hellinger
from skokde._engine.covariance import flatten, structure_of
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
    structure = structure_of(mixture.covariances)
    return _hellinger.detail_errors(
        mixture.counts / mixture.counts.sum(),
        mixture.means,
        flatten(structure.seen_by_kernels(mixture.covariances)),
        mixture.detail_weights,
        mixture.detail_means,
        mixture.details_merged.view(np.uint8),
        flatten(structure.seen_by_kernels(mixture.detail_covariances)),
        *frame.arrays,
        low,
    )
