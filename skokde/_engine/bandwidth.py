"""The bandwidth H = beta^2 F (paper, Section 2.2), in whitened space, where F = I.

Each rule by which it is found is an object: it gives the coordinates in which a model is
compressed, and the kernels under which it is scored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from skokde._engine._roughness import roughness
from skokde._engine.covariance import CovarianceStructure
from skokde._engine.kde import Kernels
from skokde._engine.lowrank import with_less_correlation
from skokde._engine.mixture import Mixture, total_moments
from skokde._engine.outliers import components_of
from skokde._engine.shrinkage import noise_of_correlations, share_of_target
from skokde._engine.whitening import Frame, Whitening, frame_of_covariance, whiten

# Below this, beta is taken for zero; H has the covariance of the whole model then, and where there
# is no finite scale (paper, Section 3.4).
SMALLEST_SCALE = 1e-9
FALL_BACK_SCALE = 1.0

# Compressions go by a bandwidth somewhat below the normal-reference one where what is scored is
# found by prediction: one that is too wide would merge, for good, what later samples tell apart.
COMPRESSION_SCALE = 0.7

# Where it is found by prediction: the widths b, the narrowest first, in units of the
# normal-reference scale, and the spreads of single Gaussians about the mean, in units of the
# model's: the first is the limit for wide b, the others are for outliers.
KERNEL_SCALES = (0.25, 0.5, 1.0, 2.0)
# The same for models of fine resolution, and how many of them are called narrow. The narrowest are
# for values that repeat, and features that all but depend on each other.
FINE_KERNEL_SCALES = (1.0 / 64.0, 1.0 / 16.0, 0.25, 0.5, 2.0)
N_NARROW = 3
GAUSSIAN_SCALES = (1.0, 4.0, 16.0)


class KernelFrame(NamedTuple):
    """Kernel coordinates, in which the bandwidth that a model is compressed under is the identity.

    Attributes
    ----------
    frame : Frame
    first_cut : (d,) array
        The axis to cut the whole mixture across first: in whitened space its principal axis is
        rounding noise.
    scale : float
        beta, in units of what the rule scales.
    inliers : (k,) array of bool
        Components of the mixture that the bandwidth goes by.
    seeks_gaps : bool, default=False
        Whether clusters are split across gaps of features, too: where all axes are about as long,
        the principal one seldom tells the values of a discrete feature apart.
    """

    frame: Frame
    first_cut: np.ndarray
    scale: float
    inliers: np.ndarray
    seeks_gaps: bool = False

    def feature_axes(self) -> np.ndarray | None:
        """Directions of the features that clusters may be split across, see `two_means`."""
        return self.frame.feature_axes() if self.seeks_gaps else None


class Rule(ABC):
    """How the covariance of the kernel is found."""

    # How many widths are tried, and what the covariance of the whole is scaled by in the single
    # Gaussians that are tried besides.
    n_widths = 1
    # The leading widths that make a group of their own, narrow kernels.
    n_narrow = 0
    gaussian_scales: tuple[float, ...] = ()
    # Parts of the correlations' noise that are taken off others, which come after the shapes'.
    shrinkages: tuple[float, ...] = ()
    # Where several widths are tried, what they are in multiples of the normal-reference scale.
    kernel_scales: tuple[float, ...] = ()
    # Whether the kernel's shape is that of the data.
    follows_data = True

    @property
    def key(self) -> object:
        """What tells a rule from the others."""
        return type(self).__name__

    @abstractmethod
    def kernel_frame(self, mixture: Mixture, structure: CovarianceStructure) -> KernelFrame:
        """The kernel coordinates of a mixture that is not empty, a pure function of it."""

    def kernels(
        self,
        mixture: Mixture,
        structure: CovarianceStructure,
        target: np.ndarray | None = None,
        shapes: tuple[CovarianceStructure, ...] | None = None,
        kernel_frame: KernelFrame | None = None,
    ) -> list[Kernels]:
        """The kernels of each shape under which a mixture is scored.

        That is the one that it is compressed under.

        Parameters
        ----------
        mixture : Mixture, not empty
        structure : CovarianceStructure
        target : (d, d) or (d,) array, default=None
            For the covariance that shapes the kernels, see `shrink_covariance`.
        shapes : tuple of CovarianceStructure, default=None
            What of that covariance counts, by default all that the structure has.
        kernel_frame : KernelFrame, default=None
            That of the mixture, where it is known.
        """
        frame = (kernel_frame or self.kernel_frame(mixture, structure)).frame
        return [Kernels.single(frame)] * len(shapes or (structure,))

    def reported_scale(self, kernel_frame: KernelFrame) -> float | None:
        """The one scale of what is scored, or None if there is no such."""
        return kernel_frame.scale

    def fell_back(self, kernel_frame: KernelFrame) -> bool:
        """Whether the rule has found nothing, and `FALL_BACK_SCALE` stands for it."""
        return False


class ScaleRule(Rule):
    """A multiple of the covariance of the sample model."""

    @abstractmethod
    def scale(self, mixture: Mixture, whitening: Whitening) -> float:
        """beta, by which standard deviations are multiplied."""

    def kernel_frame(self, mixture: Mixture, structure: CovarianceStructure) -> KernelFrame:
        mixture, structure = seen_by_kernels(mixture, structure)
        whitening = whiten(mixture, structure)
        scale = self.scale(mixture, whitening)
        first_cut = structure.first_cut(
            whitening.correlation, mixture.counts, whitening.frame.points(mixture.means)
        )
        frame, seeks_gaps = whitening.frame.divided(scale), self.n_narrow > 0
        return KernelFrame(frame, first_cut, scale, whitening.inliers, seeks_gaps)

    def kernels(
        self,
        mixture: Mixture,
        structure: CovarianceStructure,
        target: np.ndarray | None = None,
        shapes: tuple[CovarianceStructure, ...] | None = None,
        kernel_frame: KernelFrame | None = None,
    ) -> list[Kernels]:
        kernel_frame = kernel_frame or self.kernel_frame(mixture, structure)
        shapes = shapes or (structure,)
        if target is None and shapes == (structure,):
            return [Kernels.single(kernel_frame.frame)]
        whitening = whiten_as_kernels_see(mixture, structure, target)
        frames = [whitening.of_shape(shape.of_kernels) for shape in shapes]
        return [Kernels.single(frame.divided(kernel_frame.scale)) for frame in frames]


class NormalReference(ScaleRule):
    """A multiple of the scale that is best for a Gaussian (Silverman), as in the paper's Eq. 6."""

    def __init__(self, multiple: float = 1.0) -> None:
        self.multiple = multiple

    @property
    def key(self) -> object:
        return super().key, self.multiple

    def scale(self, mixture: Mixture, whitening: Whitening) -> float:
        return self.multiple * normal_reference(mixture.n_features, whitening.count)


class Scott(ScaleRule):
    """Scott's rule."""

    def scale(self, mixture: Mixture, whitening: Whitening) -> float:
        return float(whitening.count ** (-1.0 / (mixture.n_features + 4)))


class PlugIn(ScaleRule):
    """The scale with the least error under the model itself, see `optimal_scale`."""

    def __init__(self, *, printed: bool) -> None:
        self.printed = printed

    @property
    def key(self) -> object:
        return super().key, self.printed

    def scale(self, mixture: Mixture, whitening: Whitening) -> float:
        return optimal_scale(mixture, whitening, printed=self.printed)

    def fell_back(self, kernel_frame: KernelFrame) -> bool:
        return kernel_frame.scale == FALL_BACK_SCALE


class FixedCovariance(Rule):
    """H itself in data units, an array of the structure's shape, positive definite.

    It has its own shape, whatever covariances are shrunk to.
    """

    follows_data = False

    def __init__(self, covariance: np.ndarray) -> None:
        self.covariance = covariance

    @property
    def key(self) -> object:
        return self.covariance

    def kernel_frame(self, mixture: Mixture, structure: CovarianceStructure) -> KernelFrame:
        mixture, structure = seen_by_kernels(mixture, structure)
        _, mean, covariance = total_moments(mixture)
        spread = np.sqrt(structure.variances(self.covariance))
        correlation = structure.rescale(self.covariance, 1.0 / spread)
        frame = frame_of_covariance(mean, spread, correlation, structure)
        first_cut = structure.first_cut(
            frame.covariances(covariance[None]).reshape(covariance.shape),
            mixture.counts,
            frame.points(mixture.means),
        )
        everything = np.ones(mixture.n_components, dtype=bool)
        return KernelFrame(frame, first_cut, 1.0, everything)

    def reported_scale(self, kernel_frame: KernelFrame) -> None:
        return None


class Predictive(NormalReference):
    """Kernels of several widths, weighted by how well they predict, see `prequential`.

    A kernel of width b in whitened space would inflate the model's covariance by 1 + b^2. Here the
    KDE is shrunk towards the mean by a = (1 + b^2)^(-1/2), so that the model's mean and covariance
    are kept (West 1993): it leads from the samples themselves, b = 0, to one Gaussian, b infinite.
    Without a target, correlations of few samples are kept but for the doubtful part of them.
    """

    def __init__(
        self,
        kernel_scales: tuple[float, ...],
        n_narrow: int,
        gaussian_scales: tuple[float, ...] = GAUSSIAN_SCALES,
        shrinkages: tuple[float, ...] = (),
    ) -> None:
        super().__init__(COMPRESSION_SCALE)
        self.kernel_scales = kernel_scales
        self.n_narrow = n_narrow
        self.gaussian_scales = gaussian_scales
        self.shrinkages = shrinkages

    @property
    def n_widths(self) -> int:
        return len(self.kernel_scales)

    @cached_property
    def key(self) -> object:
        # The same object each time: single rows feel it where it is compared.
        return type(self).__name__, self.kernel_scales, self.shrinkages

    def kernels(
        self,
        mixture: Mixture,
        structure: CovarianceStructure,
        target: np.ndarray | None = None,
        shapes: tuple[CovarianceStructure, ...] | None = None,
        kernel_frame: KernelFrame | None = None,
    ) -> list[Kernels]:
        whitening = whiten_as_kernels_see(
            mixture, structure, target, doubts_correlations=target is None
        )
        shapes = shapes or (structure,)
        widths = np.array(self.kernel_scales) * normal_reference(
            mixture.n_features, whitening.count
        )
        narrowest, n = widths.min(), len(self.gaussian_scales)
        # A kernel at the mean that is as wide as the model, times each scale, is a Gaussian of it.
        relative = np.concatenate([widths, self.gaussian_scales]) / narrowest
        shrinks = np.concatenate([shrinkage(widths), np.ones(n)])
        wholes = [whole_of(mixture, whitening, target, shape) for shape in shapes]
        out = []
        for shape, whole in zip(shapes, wholes, strict=True):
            frame = whitening.of_shape(shape.of_kernels).divided(narrowest)
            single = None if whole is None else whole.without(1.0)
            out.append(Kernels(frame, relative, shrinks, n, 1.0 / narrowest, single))
        return out + [shrunk_gaussian(whitening, wholes[0], part) for part in self.shrinkages]

    def reported_scale(self, kernel_frame: KernelFrame) -> None:
        return None


# Those that have a name.
RULES: dict[str, Rule] = {
    "predictive": Predictive(KERNEL_SCALES, 0),
    "okde": PlugIn(printed=True),
    "plugin": PlugIn(printed=False),
    "silverman": NormalReference(),
    "scott": Scott(),
}


@cache
def fine_predictive(shrinkages: tuple[float, ...] = ()) -> Predictive:
    """The rule where the resolution is found by prediction, too."""
    return Predictive(FINE_KERNEL_SCALES, N_NARROW, shrinkages=shrinkages)


def seen_by_kernels(
    mixture: Mixture, structure: CovarianceStructure
) -> tuple[Mixture, CovarianceStructure]:
    """A mixture as far as kernels go by it, and their structure; details stay as they are."""
    covariances = structure.seen_by_kernels(mixture.covariances)
    return mixture._replace(covariances=covariances), structure.of_kernels


def whiten_as_kernels_see(
    mixture: Mixture,
    structure: CovarianceStructure,
    target: np.ndarray | None,
    *,
    doubts_correlations: bool = False,
) -> Whitening:
    """The whitening of a mixture as far as kernels go by it."""
    if target is not None:
        target = structure.seen_by_kernels(target)
    seen = seen_by_kernels(mixture, structure)
    return whiten(*seen, target, doubts_correlations=doubts_correlations)


class LowRankWhole(NamedTuple):
    """The covariance of all samples of a model of low rank.

    Attributes
    ----------
    covariance : (1 + s, d) array
    noise : float
        The share of its correlations that is due to the samples being so few.
    """

    covariance: np.ndarray
    noise: float

    def without(self, part: float) -> np.ndarray:
        """The covariance without a part of the noise."""
        return with_less_correlation(self.covariance, part * self.noise)


def whole_of(
    mixture: Mixture, whitening: Whitening, target: np.ndarray | None, shape: CovarianceStructure
) -> LowRankWhole | None:
    """What single Gaussians are made from where it is not the covariance of kernels."""
    if shape.is_compiled:
        return None
    chosen, d = components_of(mixture, whitening.inliers), mixture.n_features
    count = chosen[0].sum()
    share = 0.0 if target is None else share_of_target(count, d)
    whole = shape.gaussian(*chosen, share, target)
    if target is not None:
        count += d
    noise = noise_of_correlations(shape.squared_correlations(whole), d, count)
    # Constant features have a spread put in.
    whole[0] = whitening.frame.spread**2
    return LowRankWhole(whole, noise)


def shrunk_gaussian(whitening: Whitening, whole: LowRankWhole | None, part: float) -> Kernels:
    """A single Gaussian without a part of the noise of correlations."""
    one = np.ones(1)
    if whole is not None:
        return Kernels(whitening.frame, one, one, 1, 1.0, whole.without(part))
    square, d = whitening.spectrum.squared_correlations, len(whitening.spectrum.values)
    noise = noise_of_correlations(square, d, whitening.count)
    frame = whitening.with_correlations(1.0 - part * noise)
    return Kernels(frame, one, one, 1, 1.0)


def normal_reference(d: int, count: float) -> float:
    """Scale of the best bandwidth for a Gaussian (Silverman), as in the paper's Eq. 6."""
    return float((4.0 / ((d + 2) * count)) ** (1.0 / (d + 4)))


def shrinkage(widths: np.ndarray) -> np.ndarray:
    """The factors a that preserve the variance."""
    return 1.0 / np.hypot(1.0, widths)


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
