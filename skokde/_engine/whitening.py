"""Whitening (paper, Section 3.3), after which no feature's unit matters.

Each feature is first standardised by the sample model's own spread; what is whitened, and
eigenvalue-corrected, is then the correlation matrix. The whitening is symmetric, so that it turns
the axes as little as possible.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from skokde._engine._whitening import covariances_in, points_in, standardize
from skokde._engine.covariance import (
    EIGENVALUE_SHARE,
    STRUCTURES,
    CovarianceStructure,
    Spectrum,
    flatten,
    structure_of,
)
from skokde._engine.lowrank import Whitener, noise, stretched
from skokde._engine.mixture import Mixture
from skokde._engine.outliers import inliers, moments_of
from skokde._engine.shrinkage import noise_in, share_of_target, shrink_covariance

# A variance below this has lost its digits to underflow.
SMALLEST_VARIANCE = 1e-290
# Where samples are as many as features an eighth of the correlations' noise is left out, and less
# where they are more: correlations may be next to one. Less than the last, where there are seven
# for each feature, is nothing.
DOUBT_POWER = 3
NEGLIGIBLE_DOUBT = 2e-3


class Frame(NamedTuple):
    """Affine coordinates z = ((x - center) / spread) matrix.

    Attributes
    ----------
    structure : CovarianceStructure
    center, spread : (d,) arrays
        In the units of the data; the spread is positive.
    matrix, inverse : (d, d) arrays, symmetric unless stretched, or (d,) arrays
    log_det : float
        log |dz / dx|, in nats.
    """

    structure: CovarianceStructure
    center: np.ndarray
    spread: np.ndarray
    matrix: np.ndarray
    inverse: np.ndarray
    log_det: float

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Center, spread and matrix as the compiled functions take them, flattened."""
        return self.center, self.spread, self.matrix.ravel()

    def points(self, X: np.ndarray) -> np.ndarray:
        """Points of any rows; those that are too far to be told apart are brought nearer."""
        return points_in(X, *self.arrays)

    def points_back(self, points: np.ndarray) -> np.ndarray:
        """Rows of points."""
        return self.center + self.spread * self.structure.map_vectors(points, self.inverse)

    def feature_axes(self) -> np.ndarray:
        """Directions in which the features are, one after the other, (d * d,) or (d,) array.

        Products of points with them are deviations of a feature, in spreads.
        """
        return np.ascontiguousarray(self.inverse.T).ravel()

    def covariances(self, covariances: np.ndarray) -> np.ndarray:
        """Covariances in these coordinates, flattened for the compiled functions."""
        return covariances_in(flatten(covariances), *self.arrays)

    def identity_back(self) -> np.ndarray:
        """The covariance in the data's coordinates that is the identity in these."""
        return self.structure.rescale(self.structure.square(self.inverse), self.spread)

    def mean_squares(self, covariances: np.ndarray) -> np.ndarray:
        """Of coordinates (n,) of vectors that have covariances (n, ...) in the data's units."""
        in_spreads = self.structure.rescale(covariances, 1.0 / self.spread)
        # Traces of products of symmetric matrices.
        products = self.structure.square(self.matrix) * in_spreads
        return flatten(products).sum(axis=1) / len(self.spread)

    def marginal(self, features: np.ndarray) -> Frame:
        """The frame in which the identity stands for the same covariance of some features.

        Parameters
        ----------
        features : (n,) array of intp
        """
        center, spread, structure = self.center[features], self.spread[features], self.structure
        covariance = structure.marginal(structure.square(self.inverse), features)
        scale = np.sqrt(structure.variances(covariance))
        # Of any scale: what is whitened is a correlation.
        correlation = structure.rescale(covariance, 1.0 / scale)
        return frame_of_covariance(center, scale * spread, correlation, structure)

    def divided(self, scale: float) -> Frame:
        """The coordinates z / scale."""
        structure, center, spread, matrix, inverse, log_det = self
        log_det -= len(center) * float(np.log(scale))
        return Frame(structure, center, spread, matrix / scale, inverse * scale, log_det)

    def of_features(self) -> Frame:
        """The frame of the variances alone: each coordinate is one of the features."""
        spread = np.sqrt(self.structure.variances(self.identity_back()))
        ones, log_det = np.ones(len(spread)), -float(np.log(spread).sum())
        return Frame(STRUCTURES["diag"], self.center, spread, ones, ones, log_det)

    def stretched(self, factors: np.ndarray, directions: np.ndarray | None = None) -> Frame:
        """The coordinates of which the parts along some directions are longer by these factors.

        They are for points: what is done with covariances takes the matrix to be symmetric.

        Parameters
        ----------
        factors : (r,) array, positive
        directions : (r, d) array, default=None
            Orthonormal; by default the features, of a diagonal frame.
        """
        log_det = self.log_det + float(np.log(factors).sum())
        if directions is None:
            matrix, inverse = self.matrix * factors, self.inverse / factors
        else:
            matrix = stretched(self.matrix, factors, directions)
            inverse = stretched(self.inverse.T, 1.0 / factors, directions).T
        return self._replace(matrix=matrix, inverse=inverse, log_det=log_det)


class FactorFrame(NamedTuple):
    """Coordinates in which a covariance of low rank is the identity.

    Attributes
    ----------
    frame : Frame
        In which its variances are one.
    covariance : (1 + r, d) array
        In the units of the data.
    whitener : Whitener
        Of the points of the frame.
    """

    frame: Frame
    covariance: np.ndarray
    whitener: Whitener

    @classmethod
    def of(cls, frame: Frame, covariance: np.ndarray) -> Self:
        """From the frame of the variances alone."""
        directions = covariance[1:] / frame.spread
        explained = np.square(directions).sum(axis=0)
        noises = np.maximum(1.0 - explained, EIGENVALUE_SHARE)
        return cls(frame, covariance, Whitener(noises, directions))

    def points(self, X: np.ndarray) -> np.ndarray:
        """Points of any rows."""
        return self.whitener.points(self.frame.points(X))

    def points_back(self, points: np.ndarray) -> np.ndarray:
        """Rows of points."""
        return self.frame.points_back(self.whitener.points_back(points))

    def mean_squares(self, covariances: np.ndarray) -> np.ndarray:
        """Of coordinates (n,) of vectors that have covariances (n, ...) in the data's units."""
        in_frame = covariances / self.frame.spread
        in_frame[:, 0] /= self.frame.spread
        along = np.square(self.whitener.points(in_frame[:, 1:])).sum(axis=(1, 2))
        return (along + noise(in_frame) @ self.whitener.squares) / len(self.frame.spread)

    def marginal(self, features: np.ndarray) -> FactorFrame:
        """The frame of some features, by an array of their numbers."""
        covariance = self.covariance.take(features, axis=-1)
        return self.of(self.frame.marginal(features), covariance)

    def of_features(self) -> Frame:
        """See `Frame.of_features`."""
        return self.frame.of_features()

    def stretched(self, factors: np.ndarray, directions: np.ndarray) -> FactorFrame:
        """See `Frame.stretched`."""
        return self._replace(whitener=StretchedWhitener(self.whitener, factors, directions))


class StretchedWhitener(NamedTuple):
    """What a whitener does, and then longer parts along some directions, see `stretched`."""

    whitener: Whitener
    factors: np.ndarray
    directions: np.ndarray

    def points(self, X: np.ndarray) -> np.ndarray:
        """Rows (n, d) in the new coordinates."""
        return stretched(self.whitener.points(X), self.factors, self.directions)

    def points_back(self, points: np.ndarray) -> np.ndarray:
        """Rows of points."""
        return self.whitener.points_back(stretched(points, 1.0 / self.factors, self.directions))


class Whitening(NamedTuple):
    """The frame in which the sample model has zero mean and unit covariance.

    Outliers are left out, and the covariance is shrunk to a target if there is any.

    Attributes
    ----------
    frame : Frame
    correlation : (d, d) or (d,) array
        Of the samples, zero for constant features.
    spectrum : Spectrum
        Of the same with ones on the diagonal for these.
    trusted : float
        The share of the correlations that is not left out.
    count : float
        Samples that the model stands for.
    inliers : (k,) array of bool
        Components that are not left out.
    """

    frame: Frame
    correlation: np.ndarray
    spectrum: Spectrum
    trusted: float
    count: float
    inliers: np.ndarray

    def of_shape(self, shape: CovarianceStructure) -> Frame:
        """The frame by what a shape has of the covariance, whose spreads are the same."""
        frame = self.frame
        if shape is frame.structure:
            return frame
        spectrum = shape.scored_spectrum(self.spectrum.with_correlations(self.trusted))
        return frame_of_spectrum(frame.center, frame.spread, spectrum, shape)

    def with_correlations(self, share: float) -> Frame:
        """The frame by no more than a share of the correlations that the samples have."""
        frame, spectrum = self.frame, self.spectrum.with_correlations(share)
        return frame_of_spectrum(frame.center, frame.spread, spectrum, frame.structure)


def frame_of_covariance(
    center: np.ndarray, spread: np.ndarray, correlation: np.ndarray, structure: CovarianceStructure
) -> Frame:
    """The frame in which a covariance is the identity."""
    return frame_of_spectrum(center, spread, structure.spectrum(correlation), structure)


def frame_of_spectrum(
    center: np.ndarray, spread: np.ndarray, spectrum: Spectrum, structure: CovarianceStructure
) -> Frame:
    """The same by the spectrum of its correlations."""
    root, inv_root, log_det = structure.roots(spectrum)
    log_det = -0.5 * log_det - float(np.log(spread).sum())
    return Frame(structure, center, spread, inv_root, root, log_det)


def standardized(
    center: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spread, correlation, and that filled for constant features, see `standardize`."""
    flat, shape = flatten(covariance[None]), covariance.shape
    spread, correlation, filled = standardize(center, flat, SMALLEST_VARIANCE)
    return spread, correlation.reshape(shape), filled.reshape(shape)


def frame_of(
    center: np.ndarray, covariance: np.ndarray, structure: CovarianceStructure
) -> Frame | FactorFrame:
    """The frame in which a covariance is the identity.

    Constant features have a spread put in, and correlate with nothing.
    """
    seen = structure.of_kernels.scored(structure.seen_by_kernels(covariance))
    spread, _, filled = standardized(center, seen)
    frame = frame_of_covariance(center, spread, filled, structure.of_kernels)
    return frame if structure.is_compiled else FactorFrame.of(frame, covariance)


def corrected_features(
    center: np.ndarray, covariance: np.ndarray, structure: CovarianceStructure
) -> np.ndarray:
    """Features (d,) whose spread, alone or along with others', is put in and not the data's.

    They are constant, or have a part in a direction in which the data do not spread.
    """
    covariance, structure = structure.seen_by_kernels(covariance), structure.of_kernels
    _, correlation, filled = standardized(center, structure.scored(covariance))
    return (structure.variances(correlation) == 0.0) | structure.spectrum(filled).flat_features()


def constant_features(center: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Features (d,) that have no spread but for rounding."""
    variances = structure_of(covariance[None]).variances(covariance)
    _, correlation, _ = standardized(center, np.ascontiguousarray(variances))
    return correlation == 0.0


def whiten(
    mixture: Mixture,
    structure: CovarianceStructure,
    target: np.ndarray | None = None,
    *,
    doubts_correlations: bool = False,
) -> Whitening:
    """Whitening of a mixture that is not empty.

    Parameters
    ----------
    mixture : Mixture
    structure : CovarianceStructure
    target : (d, d) or (d,) array, default=None
        What the covariance is shrunk to, see `shrink_covariance`.
    doubts_correlations : bool, default=False
        Whether to do without a share of the correlations, as kernels do that are shrunk to nothing
        else. Of no more samples than features a covariance has no spread in some directions, and of
        some more too little.
    """
    chosen = inliers(mixture)
    count, mean, covariance = moments_of(mixture, chosen)
    if target is not None:
        covariance = shrink_covariance(covariance, count, target)
    spread, correlation, filled = standardized(mean, structure.scored(covariance))
    spectrum, trusted = structure.spectrum(filled), 1.0
    if doubts_correlations:
        share = share_of_target(count, mixture.n_features) ** DOUBT_POWER
        if share > NEGLIGIBLE_DOUBT:
            trusted -= share * noise_in(filled, count, structure, spectrum)
    frame = frame_of_spectrum(mean, spread, spectrum.with_correlations(trusted), structure)
    return Whitening(frame, correlation, spectrum, trusted, count, chosen)
