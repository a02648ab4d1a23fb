"""The kernel density estimate: the sample model convolved with H (paper, Eq. 3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skokde._engine._hellinger import factorize_all
from skokde._engine._log_density import log_density
from skokde._engine.mixture import Mixture
from skokde._engine.whitening import Frame


class Components(NamedTuple):
    """Components of a KDE in kernel coordinates, where each has the covariance S_i + I.

    Attributes
    ----------
    weights : (k,) array, sum one
    means : (k, d) array
    covariances : (m, d * d) or (m, d) array
        The S_i of the first m components, flattened; the others are Diracs.
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


class Factors(NamedTuple):
    """What densities of components need (paper, Section 3.2).

    Attributes
    ----------
    inv_roots, roots : (m, d * d) or (m, d) arrays
        Symmetric (S_i + I)^(-1/2) and (S_i + I)^(1/2).
    log_dets : (m,) array
        log |S_i + I|
    """

    inv_roots: np.ndarray
    roots: np.ndarray
    log_dets: np.ndarray


def components_in(
    frame: Frame, counts: np.ndarray, means: np.ndarray, covariances: np.ndarray
) -> Components:
    """Components of a mixture in kernel coordinates."""
    return Components(counts / counts.sum(), frame.points(means), frame.covariances(covariances))


def factorize(components: Components) -> Factors:
    """Factors of the covariances of the KDE's components."""
    return Factors(*factorize_all(components.covariances, components.means.shape[1]))


class KDE(NamedTuple):
    """What scoring needs, made once after learning.

    Attributes
    ----------
    frame : Frame
        Kernel coordinates.
    components : Components
    inv_roots : (m, d * d) or (m, d) array
    log_dets : (m,) array
        Both as in `Factors`.
    """

    frame: Frame
    components: Components
    inv_roots: np.ndarray
    log_dets: np.ndarray

    @classmethod
    def of(cls, mixture: Mixture, frame: Frame) -> KDE:
        return cls.in_frame(frame, components_in(frame, *mixture[:3]))

    @classmethod
    def in_frame(cls, frame: Frame, components: Components) -> KDE:
        """Of components that are in these coordinates already."""
        factors = factorize(components)
        return cls(frame, components, factors.inv_roots, factors.log_dets)

    def log_density(self, X: np.ndarray) -> np.ndarray:
        """Log-densities of rows in data units, in nats."""
        with np.errstate(divide="ignore"):  # the logarithm of a weight that has underflowed
            log_weights = np.log(self.components.weights)
        points = self.frame.points_within_reach(X)
        return self.frame.log_det + log_density(
            points, log_weights, self.components.means, self.inv_roots, self.log_dets
        )

    def components_back(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, means and covariances of the Gaussians, in data units."""
        weights, means, compounds = self.components
        identity = self.frame.identity_back()
        covariances = np.tile(identity, (len(weights), *(1,) * identity.ndim))
        covariances[: len(compounds)] += self.frame.covariances_back(compounds)
        return weights, self.frame.center + self.frame.vectors_back(means), covariances
