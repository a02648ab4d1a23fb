"""Goldberger's two-means split of a mixture (paper, Section 2.6)."""

from __future__ import annotations

import numpy as np

from skokde._engine._goldberger import two_means as _two_means
from skokde._engine.covariance import structure_of
from skokde._engine.kde import Components
from skokde._engine.whitening import Frame


def two_means(
    components: Components,
    members: np.ndarray,
    axis: np.ndarray | None = None,
    feature_axes: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Split some components of a KDE into two clusters, neither empty.

    Parameters
    ----------
    components : Components
    members : (n,) array of component numbers, n >= 2
    axis : (d,) array, default=None
        Cut across this axis first; by default across the members' principal one.
    feature_axes : (d * d,) or (d,) array, default=None
        Directions of features that may be cut across in its place, see `Frame.feature_axes`.
    """
    return _two_means(
        members, components.weights, components.means, components.covariances, axis, feature_axes
    )


def principal_axis_split(
    means: np.ndarray, covariances: np.ndarray, frame: Frame
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split Gaussians in two along their principal axes (paper, Section 2.7).

    N(mu, S) with the leading eigenpair (l, u) becomes two halves with means mu +- sqrt(l) u / 2
    and covariance S - l u u^T / 4, which leaves mean and covariance as they were.

    Parameters
    ----------
    means : (n, d) array
    covariances : (n, ...) array
    frame : Frame
        The coordinates in which the axis is the principal one.

    Returns
    -------
    weights : (n, 2) array
    means : (n, 2, d) array
    covariances : (n, 2, ...) array
    """
    structure = structure_of(covariances)
    axes, halves = structure.halves(covariances, frame.matrix, frame.spread)
    return (
        np.full((len(means), 2), 0.5),
        np.stack([means - 0.5 * axes, means + 0.5 * axes], axis=1),
        np.stack([halves, halves], axis=1),
    )
