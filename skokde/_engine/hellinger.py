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
    covariances, of_details = (
        structure.seen_by_kernels(array)
        for array in (mixture.covariances, mixture.all_detail_covariances())
    )
    return _hellinger.detail_errors(
        mixture.counts / mixture.counts.sum(),
        mixture.means,
        flatten(covariances),
        mixture.detail_weights,
        mixture.detail_means,
        flatten(of_details.reshape(-1, *covariances.shape[1:])),
        *frame.arrays,
        low,
    )
