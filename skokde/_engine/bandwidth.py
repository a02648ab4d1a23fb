"""The bandwidth H = beta^2 F (paper, Section 2.2), in whitened space, where F = I."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skokde._engine._goldberger import principal_axes
from skokde._engine._roughness import roughness
from skokde._engine.covariance import Structure
from skokde._engine.mixture import Mixture, total_moments
from skokde._engine.whitening import Frame, Whitening, frame_of_covariance, whiten

# Those that look for the best scale, and all.
OPTIMAL = ("okde", "plugin")
RULES = ("predictive", *OPTIMAL, "silverman", "scott")

# Compressions go by a bandwidth somewhat below the normal-reference one where what is scored is
# found by prediction: one that is too wide would merge, for good, what later samples tell apart.
COMPRESSION_SCALE = 0.7

# Below this, beta is taken for zero; H has the covariance of the whole model then, and where there
# is no finite scale (paper, Section 3.4).
SMALLEST_SCALE = 1e-9
FALL_BACK_SCALE = 1.0


class Kernel(NamedTuple):
    """Kernel coordinates: the frame in which the bandwidth H is the identity.

    Attributes
    ----------
    frame : Frame
    axis : (d,) array or None
        Where to cut the whole mixture first. In whitened space its principal axis is rounding
        noise, and the correlation matrix' is taken.
    scale : float or None
        beta; None if H itself was given.
    inliers : (k,) array of bool, or None
        Components of the mixture that the bandwidth goes by; None if H itself was given.
    """

    frame: Frame
    axis: np.ndarray | None
    scale: float | None = None
    inliers: np.ndarray | None = None


def is_predictive(bandwidth: str | float | np.ndarray) -> bool:
    """Whether what is scored is found by prediction, not by one scale."""
    return isinstance(bandwidth, str) and bandwidth == "predictive"


def normal_reference(d: int, count: float) -> float:
    """Scale of the best bandwidth for a Gaussian (Silverman), as in the paper's Eq. 6."""
    return float((4.0 / ((d + 2) * count)) ** (1.0 / (d + 4)))


def optimal_scale(mixture: Mixture, whitening: Whitening, *, printed: bool) -> float:
    """The plug-in scale beta_opt (paper, Eqs. 4 to 6).

    The asymptotic mean integrated squared error (4 pi)^(-d/2) / (N beta^d) + beta^4 R / 4 is least
    for beta^(d + 4) = d / ((4 pi)^(d/2) N R), which for a Gaussian is the normal-reference scale.
    The paper prints 1 / d for d in Eq. 4, besides the slip in its functional.

    Parameters
    ----------
    mixture : Mixture, not empty
    whitening : Whitening
        Of the mixture.
    printed : bool
        Both as the paper prints them, or the right ones.

    Returns
    -------
    float
        `FALL_BACK_SCALE` where none is positive and finite.
    """
    d, frame = mixture.n_features, whitening.frame
    pilot = normal_reference(d, whitening.count) ** 2
    functional = roughness(
        mixture.counts / mixture.counts.sum(),
        frame.points(mixture.means),
        frame.covariances(mixture.covariances),
        pilot,
        printed,
    )
    if not functional > 0.0:
        return FALL_BACK_SCALE
    log_scale = np.log(d) * (-1.0 if printed else 1.0) - np.log(whitening.count)
    log_scale -= np.log(functional) + 0.5 * d * np.log(2.0 / pilot)
    scale = float(np.exp(log_scale / (d + 4)))
    return scale if SMALLEST_SCALE < scale < np.inf else FALL_BACK_SCALE


def bandwidth_scale(mixture: Mixture, whitening: Whitening, bandwidth: str | float) -> float:
    """The scale beta, in whitened space, by the rule that `bandwidth` names."""
    d, count = mixture.n_features, whitening.count
    if bandwidth in OPTIMAL:
        return optimal_scale(mixture, whitening, printed=bandwidth == "okde")
    if is_predictive(bandwidth):
        return COMPRESSION_SCALE * normal_reference(d, count)
    if bandwidth == "silverman":
        return normal_reference(d, count)
    if bandwidth == "scott":
        return float(count ** (-1.0 / (d + 4)))
    return float(bandwidth) * normal_reference(d, count)


def kernel_coordinates(
    mixture: Mixture, structure: Structure, bandwidth: str | float | np.ndarray
) -> Kernel:
    """The kernel coordinates of a mixture, a pure function of it.

    Parameters
    ----------
    mixture : Mixture, not empty
    structure : Structure
    bandwidth : str, float or array
        A rule, a multiple of the normal-reference scale, or H itself in data units: an array of
        the structure's shape, positive definite.
    """
    if isinstance(bandwidth, np.ndarray):
        _, mean, _ = total_moments(mixture)
        spread = np.sqrt(structure.variances(bandwidth))
        correlation = structure.rescale(bandwidth, 1.0 / spread)
        return Kernel(frame_of_covariance(mean, spread, correlation, structure), None)
    whitening = whiten(mixture, structure)
    scale = bandwidth_scale(mixture, whitening, bandwidth)
    axis = principal_axes(whitening.correlation.reshape(1, -1), mixture.n_features)[0]
    return Kernel(whitening.frame.divided(scale), axis, scale, whitening.inliers)


def fell_back(bandwidth: str | float | np.ndarray, kernel: Kernel) -> bool:
    """Whether a rule that looks for the best scale has found none."""
    return isinstance(bandwidth, str) and bandwidth in OPTIMAL and kernel.scale == FALL_BACK_SCALE


def frame_under_prior(mixture: Mixture, kernel: Kernel, prior: np.ndarray) -> Frame:
    """Kernel coordinates of the same scale, where F is the covariance under a prior.

    Parameters
    ----------
    mixture : Mixture
    kernel : Kernel
        Of the mixture, by a rule.
    prior : (d, d) or (d,) array
        See `with_prior`.
    """
    return whiten(mixture, kernel.frame.structure, prior).frame.divided(kernel.scale)
