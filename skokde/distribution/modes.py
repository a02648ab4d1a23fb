"""Local maxima of a mixture's density, and what is uphill to which of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skokde.distribution._gaussians import Gaussians, pieces, read_only
from skokde.distribution.conditioning import posterior_log_weights

MOST_STEPS = 1000
# In deviations of the precision at a point: a shorter step is none, a longer one is not Newton's,
# and what is closer to a mode has met it.
TINY_STEP, SHORT_STEP, MET = 1e-9, 0.1, 1e-3
# In deviations of the whole.
FAR = 1e6
# Components of which all pairs are starts, too.
FEW = 32


class Modes(NamedTuple):
    """Local maxima of a density, the highest first.

    Attributes
    ----------
    points : ndarray of shape (n_modes, n_features)
    log_densities : ndarray of shape (n_modes,)
        In nats.
    hessians : ndarray of shape (n_modes, n_features, n_features)
        Second derivatives of the log-density; times the density, those of the density.
    """

    points: np.ndarray
    log_densities: np.ndarray
    hessians: np.ndarray


def modes(distribution: Gaussians) -> Modes:
    """See the method of the same name.

    A fixed-point iteration goes uphill (Carreira-Perpinan, Mode-finding for mixtures of Gaussian
    distributions, 2000), to its end by Newton's method.
    """
    standard, center, scale = standardized(distribution)
    found = ascended(standard, starts_of(standard))
    hessians = hessians_at(standard, found)
    # Between two equal components it ends on a saddle: from there both sides are tried.
    values, axes = np.linalg.eigh(hessians)
    saddles = values[:, -1] > -1e-9 * np.abs(values).max(axis=1)
    if saddles.any():
        nudge = 1e-2 * axes[saddles, :, -1] / np.sqrt(np.abs(values[saddles]).max(axis=1))[:, None]
        sides = np.concatenate([found[saddles] + nudge, found[saddles] - nudge])
        found = np.concatenate([found[~saddles], ascended(standard, sides)])
        hessians = hessians_at(standard, found)
    heights = standard.logpdf(found)
    kept: list[int] = []
    for number in np.argsort(-heights, kind="stable"):
        if not kept or (distances(found[kept], hessians[kept], found[number]) > MET).all():
            kept.append(int(number))
    return Modes(
        read_only(center + scale * found[kept]),
        read_only(heights[kept] - np.log(scale).sum()),
        read_only(hessians[kept] / scale[:, None] / scale),
    )


def starts_of(distribution: Gaussians) -> np.ndarray:
    """Where the search starts: all means, that of the whole, and where any two of a few cross.

    From the means alone no mode would be found that belongs to no component, such as where two long
    ones cross (Carreira-Perpinan and Williams, On the number of modes of a Gaussian mixture, 2003).
    """
    weighs = distribution.weights > 0.0
    means = distribution.means[weighs]
    starts = [means, distribution.mean[None]]
    if 1 < len(means) <= FEW:
        precisions = precisions_of(distribution)[weighs]
        pulls = np.einsum("kij,kj->ki", precisions, means)
        i, j = np.triu_indices(len(means), 1)
        crossings = np.linalg.solve(precisions[i] + precisions[j], (pulls[i] + pulls[j])[..., None])
        starts.append(crossings[..., 0])
    return np.unique(np.concatenate(starts), axis=0)


def assign(distribution: Gaussians, points: np.ndarray, found: Modes) -> np.ndarray:
    """Numbers (n,) of the modes uphill from points."""
    standard, center, scale = standardized(distribution)
    tops, hessians = (found.points - center) / scale, found.hessians * scale[:, None] * scale
    ends = ascended(standard, landed(standard, (points - center) / scale))
    return np.array([distances(tops, hessians, end).argmin() for end in ends], dtype=np.intp)


def standardized(
    distribution: Gaussians,
) -> tuple[Gaussians, np.ndarray, np.ndarray]:
    """The same in units of the deviations of the whole, these, and the mean."""
    center, scale = distribution.mean, np.sqrt(np.diag(distribution.cov))
    units = scale if distribution.covariances.ndim == 2 else np.outer(scale, scale)
    covariances = distribution.covariances / (units**2 if units.ndim == 1 else units)
    means = (distribution.means - center) / scale
    return Gaussians(distribution.weights, means, covariances), center, scale


def distances(tops: np.ndarray, hessians: np.ndarray, point: np.ndarray) -> np.ndarray:
    """From each top, in deviations of the normal distribution that it looks like."""
    away = point - tops
    return np.sqrt(np.maximum(-np.einsum("mi,mij,mj->m", away, hessians, away), 0.0))


def ascended(distribution: Gaussians, starts: np.ndarray) -> np.ndarray:
    """Where points end that go uphill."""
    points = starts.copy()
    precisions = precisions_of(distribution)
    k, d = distribution.means.shape
    for rows in pieces(len(points), k * d):
        x = points[rows]
        moving = np.arange(len(x))
        for _ in range(MOST_STEPS):
            gradient, precision, hessian = slopes(distribution, precisions, x[moving])
            step = np.linalg.solve(precision, gradient[:, :, None])[:, :, 0]
            length = np.sqrt(np.abs(np.einsum("ni,ni->n", step, gradient)))
            # Near a maximum Newton's step is longer, and ends there at once.
            concave = np.linalg.eigvalsh(hessian)[:, -1] < -1e-9
            near = concave & (length < SHORT_STEP)
            if near.any():
                newton = np.linalg.solve(hessian[near], -gradient[near][:, :, None])[:, :, 0]
                before, there = x[moving[near]], x[moving[near]] + newton
                higher = distribution.logpdf(there) >= distribution.logpdf(before)
                step[np.flatnonzero(near)[higher]] = newton[higher]
            x[moving] += step
            moving = moving[length > TINY_STEP]
            if not len(moving):
                break
        points[rows] = x
    return points


def landed(distribution: Gaussians, points: np.ndarray) -> np.ndarray:
    """The same points, those that are far out one step of the iteration later.

    There the step is so long that nothing but rounding errors would be left of its end, or that its
    square overflows; the end itself does not depend on where the point is, but for its weights.
    """
    out, far = points.copy(), np.flatnonzero(np.abs(points).max(axis=1) > FAR)
    precisions = precisions_of(distribution)
    pulls = np.einsum("kij,kj->ki", precisions, distribution.means)
    k, d = distribution.means.shape
    for some in pieces(len(far), k):
        shares = np.exp(posterior_log_weights([distribution], points[far[some]]))
        precision = (shares @ precisions.reshape(k, d * d)).reshape(-1, d, d)
        out[far[some]] = np.linalg.solve(precision, (shares @ pulls)[:, :, None])[:, :, 0]
    return out


def precisions_of(distribution: Gaussians) -> np.ndarray:
    """Inverse covariances (k, d, d)."""
    if distribution.covariances.ndim == 2:
        return (1.0 / distribution.covariances)[:, :, None] * np.eye(distribution.n_features)
    return np.linalg.inv(distribution.covariances)


def slopes(
    distribution: Gaussians, precisions: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the log-density at points: gradients, average precisions and Hessians."""
    k, d = distribution.means.shape
    shares = np.exp(posterior_log_weights([distribution], points))
    precision = (shares @ precisions.reshape(k, d * d)).reshape(-1, d, d)
    pulls = np.einsum("kij,nkj->nki", precisions, distribution.means - points[:, None])
    pulls = np.where(shares[:, :, None] > 0.0, pulls, 0.0)
    gradient = np.einsum("nk,nki->ni", shares, pulls)
    spread = np.einsum("nki,nkj->nij", shares[:, :, None] * pulls, pulls, optimize=True)
    hessian = spread - precision - gradient[:, :, None] * gradient[:, None, :]
    return gradient, precision, 0.5 * (hessian + hessian.transpose(0, 2, 1))


def hessians_at(distribution: Gaussians, points: np.ndarray) -> np.ndarray:
    """Hessians (n, d, d) of the log-density."""
    precisions = precisions_of(distribution)
    parts = pieces(len(points), distribution.means.size)
    return np.concatenate([slopes(distribution, precisions, points[rows])[2] for rows in parts])
