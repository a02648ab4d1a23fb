"""The kernel density estimate: the sample model convolved with H (paper, Eq. 3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skokde._engine._hellinger import factorize_all
from skokde._engine._log_density import decompose, log_densities
from skokde._engine.whitening import Frame

ONE = np.ones(1)
NONE = np.empty(0)


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
    """What scoring needs, made once after learning: the same components under several kernels.

    Under a kernel of width b, with a the factor by which the estimate is shrunk towards the origin,
    a component is N(a mu_i, a^2 (S_i + b^2 I)).

    Attributes
    ----------
    frame : Frame
        Coordinates in which no width is below one.
    components : Components
    widths, shrinks : (n_widths,) arrays
        The b and the a.
    decomposed : tuple of arrays
        See `decompose`.
    """

    frame: Frame
    components: Components
    widths: np.ndarray
    shrinks: np.ndarray
    decomposed: tuple[np.ndarray, ...]

    @classmethod
    def of(
        cls,
        frame: Frame,
        components: Components,
        widths: np.ndarray = ONE,
        shrinks: np.ndarray = ONE,
    ) -> KDE:
        """Of components in a frame; by default with H = I in it, and no shrinking."""
        decomposed = decompose(components.means, components.covariances, widths, shrinks)
        return cls(frame, components, widths, shrinks, decomposed)

    def with_diracs(self, counts: np.ndarray, points: np.ndarray) -> KDE:
        """With more Diracs, at those points of the frame; the counts are all components'."""
        means = np.concatenate([self.components.means, points])
        components = Components(counts / counts.sum(), means, self.components.covariances)
        return self._replace(components=components)

    def log_densities(self, points: np.ndarray, spreads: np.ndarray = NONE) -> np.ndarray:
        """Log-densities (n, n_widths) of points of the frame, per unit of the data, in nats.

        After them stand those of single Gaussians about the origin with the spreads, if any.
        """
        with np.errstate(divide="ignore"):  # the logarithm of a weight that has underflowed
            log_weights = np.log(self.components.weights)
        return self.frame.log_det + log_densities(
            points,
            log_weights,
            self.components.means,
            *self.decomposed,
            self.widths,
            self.shrinks,
            spreads,
        )

    def log_density(self, X: np.ndarray) -> np.ndarray:
        """Log-densities of rows in data units under the first kernel, in nats."""
        return self.log_densities(self.frame.points(X))[:, 0]

    def kernels_back(self) -> np.ndarray:
        """Covariances (n_widths, d, d) or (n_widths, d) of the kernels, in data units."""
        identity = self.frame.identity_back()
        return np.multiply.outer((self.shrinks * self.widths) ** 2, identity)

    def components_back(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Weights, means and covariances of the Gaussians of each width, in data units."""
        weights, means, compounds = self.components
        compounds = self.frame.covariances_back(compounds)
        means = self.frame.vectors_back(means)
        mixtures = []
        for kernel, shrink in zip(self.kernels_back(), self.shrinks, strict=True):
            covariances = np.tile(kernel, (len(weights), *(1,) * kernel.ndim))
            covariances[: len(compounds)] += shrink**2 * compounds
            mixtures.append((weights, self.frame.center + shrink * means, covariances))
        return mixtures
