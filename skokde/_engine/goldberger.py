"""Goldberger's two-means split of a mixture (paper, Section 2.6)."""

from __future__ import annotations

import numpy as np

from skokde._engine._goldberger import principal_axes
from skokde._engine._goldberger import two_means as _two_means
from skokde._engine.kde import Components
from skokde._engine.whitening import Frame


def two_means(
    components: Components, members: np.ndarray, axis: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Split some components of a KDE into two clusters, neither empty.

    Parameters
    ----------
    components : Components
    members : (n,) array of component numbers, n >= 2
    axis : (d,) array, default=None
        Cut across this axis first; by default across the members' principal one.
    """
    return _two_means(members, components.weights, components.means, components.covariances, axis)


def positive(values: np.ndarray) -> np.ndarray:
    """To divide by: one instead of zero, and of what rounding has made negative."""
    return np.where(values > 0.0, values, 1.0)


def unit_size(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, d), the largest entry of each one."""
    return vectors / positive(np.abs(vectors).max(axis=1, keepdims=True))


def principal_axis_split(
    means: np.ndarray, covariances: np.ndarray, frame: Frame
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split Gaussians in two along their principal axes (paper, Section 2.7).

    N(mu, S) with the leading eigenpair (l, u) becomes two halves with means mu +- sqrt(l) u / 2
    and covariance S - l u u^T / 4, which leaves mean and covariance as they were.

    Parameters
    ----------
    means : (n, d) array
    covariances : (n, d, d) or (n, d) array
    frame : Frame
        The coordinates in which the axis is the principal one.

    Returns
    -------
    weights : (n, 2) array
    means : (n, 2, d) array
    covariances : (n, 2, d, d) or (n, 2, d) array
    """
    structure = frame.structure
    # The axis is S w / sqrt(w^T S w), with w the eigenvector as a functional: so each feature
    # stays within its spread and the halves positive definite, however the frame rounds.
    w = unit_size(principal_axes(frame.covariances(covariances), means.shape[1]))
    spreads = np.sqrt(structure.variances(covariances))
    units = positive(spreads)
    w = unit_size(structure.map_vectors(w, frame.matrix) * (units / frame.spread))
    axes = structure.times(structure.rescale(covariances, 1.0 / units), w)
    axes /= np.sqrt(positive((w * axes).sum(axis=1, keepdims=True)))
    axes = spreads * np.clip(axes, -1.0, 1.0)
    halves = covariances - 0.25 * structure.outer(axes)
    return (
        np.full((len(means), 2), 0.5),
        np.stack([means - 0.5 * axes, means + 0.5 * axes], axis=1),
        np.stack([halves, halves], axis=1),
    )
