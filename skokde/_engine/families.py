"""Families of densities for each layout of covariances: those of low rank, beside the compiled."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numpy as np

from skokde._engine._log_density import log_mixtures
from skokde._engine.covariance import CovarianceStructure, LowRankCovariance
from skokde._engine.kde import KernelFamily, log, log_sum, nothing_decomposed
from skokde._engine.lowrank import (
    Analysers,
    FactorMixture,
    Whitener,
    decompose,
    is_thin,
    noise,
)
from skokde._engine.whitening import Frame

# What scores this many points at a time is kept for the next ones. Beside the scores of more it
# costs little, but all experts together take up much memory.
FEW = 16


class LowRankFamily(KernelFamily):
    """A sample model with covariances of low rank, under kernels of low rank.

    Each component is a factor analyser: its density takes O(d r), and what it needs O(d r^2), by
    Woodbury's identity. Where the width is predicted, kernels and single Gaussians have the
    correlations of the whole, of low rank as well; else kernels have none.
    """

    in_rows = False

    def marginal(self, features: np.ndarray, frame: Frame) -> Self:
        family = super().marginal(features, frame)
        if self.kernels.whole is None:
            return family
        whole = self.kernels.whole.take(features, axis=-1)
        kernels = family.kernels._replace(whole=whole)
        return type(self)(family.models, kernels, family.log_weights, family.centers)

    def leaves_out(self, n: int) -> bool:
        return False

    def log_mixtures_of_points(
        self, points: np.ndarray, weights: np.ndarray, besides: np.ndarray | None = None
    ) -> np.ndarray:
        kernels, n = self.kernels, self.kernels.n_kernels
        whitened, log_det, log_weights, centers, parts, *decomposed = self._compiled
        logs = []
        if len(parts):
            of_kernels = np.ascontiguousarray(weights[:, : parts.max() + 1, :n])
            widths = kernels.widths[:n], kernels.shrinks[:n]
            arrays = log_weights, centers, parts, *decomposed, *widths
            logs.append(log_det + log_mixtures(whitened(points), of_kernels, None, *arrays))
        for part in np.unique(self.models.parts[: len(self._thin)][~self._thin]):
            for width in np.flatnonzero(weights[:, part, :n].any(axis=0)):
                of_part = self._log_density_of_part(points, part, width)
                logs.append(of_part[:, None] + log(weights[:, part, width]))
        shares = weights[:, -1, n:]
        used = shares.any(axis=0)
        if used.any():
            of_gaussians = self._log_gaussians(points, kernels.widths[n:][used] / kernels.spread)
            logs += [
                of[:, None] + log(s) for of, s in zip(of_gaussians, shares.T[used], strict=True)
            ]
        if not logs:
            return np.full((len(points), len(weights)), -np.inf)
        return kernels.frame.log_det + log_sum(np.array(logs))

    @cached_property
    def _thin(self) -> np.ndarray:
        """Which compounds (m,) have no noise."""
        return is_thin(self.models.covariances())

    @cached_property
    def _compiled(self) -> tuple[Any, ...]:
        """What a compiled function scores: Diracs, and compounds without noise.

        In coordinates in which kernels are the identity they differ from it by a few directions.

        Returns
        -------
        whitened : callable
            From the kernels' frame to these coordinates.
        log_det : float
            Of that map.
        log_weights, centers, parts, *decomposed : arrays
            See `log_mixtures`.
        """
        kernels, n, m = self.kernels, self.kernels.n_kernels, self.models.n_compounds
        # Where there are single Gaussians, the last component is their mean.
        diracs = np.arange(m, len(self.centers) - (kernels.n_gaussians > 0))
        thin = np.flatnonzero(self._thin)
        chosen = np.append(thin, diracs)
        whitener, d = self._whitener, self.centers.shape[1]
        whitened, log_det = as_they_are, 0.0
        if whitener is not None:
            whitened, log_det = whitener.points, whitener.log_det
        centers = np.ascontiguousarray(whitened(self.centers[chosen]))
        decomposed = nothing_decomposed(d, n)
        if len(thin):
            directions = whitened(self._in_frame[thin, 1:].reshape(-1, d)).reshape(len(thin), -1, d)
            widths = kernels.widths[:n], kernels.shrinks[:n]
            decomposed = decompose(centers, directions, *widths)
        arrays = self.log_weights[chosen], centers, self.models.parts[chosen]
        return whitened, log_det, *arrays, *decomposed

    def _log_density_of_part(self, points: np.ndarray, part: int, width: int) -> np.ndarray:
        """Log-densities (n,) of points under the compounds of a part that have noise."""
        a = self.kernels.shrinks[width]
        analysers = self._analysers(int(part), int(width), kept=len(points) <= FEW)
        logs = analysers.log_densities(points / a)
        # Shrinking is of the estimate as a whole.
        log_weights = self._of_part(int(part))[0]
        return log_sum((log_weights - points.shape[1] * np.log(a))[:, None] + logs)

    def _analysers(self, part: int, width: int, *, kept: bool) -> Analysers:
        """These compounds under a kernel, which may be kept for the next points."""
        if (part, width) in self._kept:
            return self._kept[part, width]
        b, kernel = self.kernels.widths[width], self._kernel
        _, centers, noises, directions = self._of_part(part)
        made = Analysers(centers, noises + b * b * noise(kernel), directions, b * kernel[1:])
        if kept:
            self._kept[part, width] = made
        return made

    def _of_part(self, part: int) -> tuple[np.ndarray, ...]:
        """Logarithms of weights, centers, noises and directions of these compounds."""
        if part not in self._parts:
            of_part = self.models.parts[: len(self._thin)] == part
            chosen = np.flatnonzero(of_part & ~self._thin)
            covariances = self._in_frame[chosen]
            # Those that none of the components has are of no use.
            directions = covariances[:, 1:]
            directions = directions[:, directions.any(axis=(0, 2))]
            self._parts[part] = (
                self.log_weights[chosen],
                self.centers[chosen],
                noise(covariances),
                directions,
            )
        return self._parts[part]

    @cached_property
    def _parts(self) -> dict[int, tuple[np.ndarray, ...]]:
        """Of each part that has been asked for."""
        return {}

    @cached_property
    def _kept(self) -> dict[tuple[int, int], Analysers]:
        """Analysers of each part and width that few points have asked for."""
        return {}

    @cached_property
    def _in_frame(self) -> np.ndarray:
        """Covariances of the compounds in the kernels' frame."""
        return self._to_frame(self.models.covariances())

    def _to_frame(self, covariances: np.ndarray) -> np.ndarray:
        frame = self.kernels.frame
        return LAYOUT.rescale(covariances, frame.matrix / frame.spread)

    @cached_property
    def _kernel(self) -> np.ndarray:
        """Covariance (1 + r, d) of a kernel of width one in the frame."""
        kernels, rank = self.kernels, self._in_frame.shape[1] - 1
        if kernels.whole is None:
            return np.ones((1, self.centers.shape[1]))
        factors = np.full(self.centers.shape[1], 1.0 / kernels.spread)
        return LAYOUT.rescale(self._to_frame(kernels.whole[: 1 + rank]), factors)

    @cached_property
    def _whitener(self) -> Whitener | None:
        """To coordinates in which a kernel of width one is the identity; None if it is already."""
        kernel = self._kernel
        return Whitener(noise(kernel), kernel[1:]) if len(kernel) > 1 else None

    def _log_gaussians(self, points: np.ndarray, scales: np.ndarray) -> list[np.ndarray]:
        """Log-densities (n,) of points under single Gaussians of some scales."""
        d, (base,) = points.shape[1], self._whole.bases
        (logs,) = self._whole.log_densities(points)
        return [base + (logs - base) / scale**2 - d * np.log(scale) for scale in scales]

    @cached_property
    def _whole(self) -> Analysers:
        """The single Gaussian of scale one."""
        whole = self._to_frame(self.kernels.whole)[None]
        return Analysers(self.centers[-1:], noise(whole), whole[:, 1:])

    def _gaussian(self, width: int) -> np.ndarray:
        """Covariance (1 + r, d) of the single Gaussian that is under a width, in data units."""
        whole, scale = self.kernels.whole, self.kernels.widths[width] / self.kernels.spread
        return whole * np.append(scale**2, np.full(len(whole) - 1, scale))[:, None]

    def _covariances(self, width: int, k: int, compounds: np.ndarray) -> np.ndarray:
        # Full ones: whoever asks for Gaussians one by one does what needs them.
        kernels = self.kernels
        if width >= kernels.n_kernels:
            return LAYOUT.dense(self._gaussian(width))[None]
        kernel = LAYOUT.dense(self._kernel_back)
        covariances = np.tile(
            (kernels.shrinks[width] * kernels.widths[width]) ** 2 * kernel, (k, 1, 1)
        )
        covariances[: len(compounds)] += kernels.shrinks[width] ** 2 * LAYOUT.dense(compounds)
        return covariances

    def _deviations(
        self, width: int, compounds: np.ndarray, chosen: np.ndarray, rng: np.random.RandomState
    ) -> np.ndarray:
        kernels, n = self.kernels, len(chosen)
        if width >= kernels.n_kernels:
            return LAYOUT.draws(self._gaussian(width)[None], np.zeros(n, dtype=np.intp), rng)
        # Of a component and of a kernel, which are independent: no covariance is made.
        kernel = self._kernel_back[None]
        out = kernels.widths[width] * LAYOUT.draws(kernel, np.zeros(n, dtype=np.intp), rng)
        of_compounds = chosen < len(compounds)
        out[of_compounds] += LAYOUT.draws(compounds, chosen[of_compounds], rng)
        return kernels.shrinks[width] * out

    def factors(self, number: int, width: int) -> FactorMixture:
        """The Gaussians of a part under a kernel, in data units."""
        kernels, (shares, means, compounds) = self.kernels, self.shrunk_part(number, width)
        (k, d), m = means.shape, len(compounds)
        if width >= kernels.n_kernels:
            whole = self._gaussian(width)
            noises = noise(whole)[None]
            return FactorMixture(shares, means, noises, np.empty((1, 0, d)), whole[1:])
        b, a = kernels.widths[width], kernels.shrinks[width]
        kernel, held = self._kernel_back, compounds[:, 1:]
        # Those that none of the components has are of no use.
        held = held[:, held.any(axis=(0, 2))]
        noises = np.tile((a * b) ** 2 * noise(kernel), (k, 1))
        noises[:m] += a**2 * noise(compounds)
        directions = np.zeros((k, held.shape[1], d))
        directions[:m] = a * held
        return FactorMixture(shares, means, noises, directions, a * b * kernel[1:])

    @cached_property
    def _kernel_back(self) -> np.ndarray:
        """Covariance (1 + r, d) of a kernel of width one in data units."""
        frame = self.kernels.frame
        return LAYOUT.rescale(self._kernel, frame.spread / frame.matrix)


def as_they_are(points: np.ndarray) -> np.ndarray:
    return points


# Its linear algebra does not depend on the rank.
LAYOUT = LowRankCovariance()


def family_of(shape: CovarianceStructure) -> type[KernelFamily]:
    """What scores covariances of a layout."""
    return KernelFamily if shape.is_compiled else LowRankFamily
