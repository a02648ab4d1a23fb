"""The unscented Hellinger distance and the local clustering error (paper, Sections 2.4, 2.5).

The errors are those of un-normalised sub-mixtures: sqrt(w) D for a cluster of weight w.
"""

from __future__ import annotations

import numpy as np

from skokde._engine import _hellinger
from skokde._engine.kde import Components
from skokde._engine.mixture import Mixture
from skokde._engine.whitening import Frame


def hellinger(
    frame: Frame,
    mixture1: tuple[np.ndarray, np.ndarray, np.ndarray],
    mixture2: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> float:
    """Unscented Hellinger distance of two KDEs with the same bandwidth (paper, Eqs. 10 to 13).

    Parameters
    ----------
    frame : Frame
        Kernel coordinates.
    mixture1, mixture2 : tuples of weights (k,), means (k, d) and covariances of all components
        In data units, without the bandwidth.

    Returns
    -------
    float
        From 0 to 1.
    """
    arrays = []
    for weights, means, covariances in (mixture1, mixture2):
        arrays += [weights / weights.sum(), frame.points(means), frame.covariances(covariances)]
    return _hellinger.hellinger(*arrays)


def detail_errors(mixture: Mixture, frame: Frame) -> np.ndarray:
    """Local error of each compound against its detailed model (paper, Section 2.7).

    Returns
    -------
    (m,) array
    """
    d, m = mixture.n_features, mixture.n_compounds
    means, covariances = frame.points(mixture.means[:m]), frame.covariances(mixture.covariances)
    shape = mixture.detail_covariances.shape
    detail_means = frame.points(mixture.detail_means.reshape(2 * m, d))
    detail_covariances = frame.covariances(mixture.detail_covariances.reshape(2 * m, *shape[2:]))
    one = np.ones(1)
    distances = np.empty(m)
    for i in range(m):
        distances[i] = _hellinger.hellinger(
            mixture.detail_weights[i],
            detail_means[2 * i : 2 * i + 2],
            detail_covariances[2 * i : 2 * i + 2],
            one,
            means[i : i + 1],
            covariances[i : i + 1],
        )
    return np.sqrt(mixture.counts[:m] / mixture.counts.sum()) * distances


def local_error(components: Components, members: np.ndarray, enough: float = np.inf) -> float:
    """Local clustering error of taking some components of a KDE together (paper, Eq. 9).

    Parameters
    ----------
    components : Components
    members : (n,) array of component numbers
    enough : float
        An error beyond this need not be exact, only beyond it as well.
    """
    return _hellinger.local_error(members, *components, enough)
