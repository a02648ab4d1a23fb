"""What the figures of the guide share."""

import numpy as np
from matplotlib.collections import EllipseCollection

BLUE, RED, GREY, ORANGE = "#1f6fb4", "#d1382c", "#8a8f98", "#e08a1e"


def spiral(n, seed=0):
    """Points (n, 2) along a spiral, in random order."""
    rng = np.random.default_rng(seed)
    angle = np.sqrt(rng.uniform(1.0, 14.0, n)) * 2.9
    curve = np.column_stack([angle * np.cos(angle), angle * np.sin(angle)])
    return curve / 4.0 + rng.normal(0.0, 0.12, (n, 2))


def draw_components(ax, density, color=BLUE, marked=None):
    """Diracs as dots, other components as ellipses of two standard deviations.

    Ellipses whose means are among `marked` (k, 2) are drawn in red.
    """
    means, covariances = density.means_, density.covariances_
    dirac = ~covariances.any(axis=(1, 2))
    ax.plot(*means[dirac].T, ".", color=GREY, markersize=3)
    means, covariances = means[~dirac], covariances[~dirac]
    if not len(means):
        return
    colors = np.full(len(means), color, dtype=object)
    if marked is not None and len(marked):
        nearest = np.abs(means[:, None] - marked).max(axis=2).min(axis=1)
        colors[nearest < 1e-9] = RED
    variances, axes = np.linalg.eigh(covariances)
    sizes = 4.0 * np.sqrt(np.maximum(variances, 1e-4))
    angles = np.degrees(np.arctan2(axes[:, 1, 0], axes[:, 0, 0]))
    ellipses = EllipseCollection(
        sizes[:, 0],
        sizes[:, 1],
        angles,
        units="xy",
        offsets=means,
        transOffset=ax.transData,
        facecolors=[f"{c}30" for c in colors],
        edgecolors=list(colors),
        linewidths=0.9,
    )
    ax.add_collection(ellipses)


def bare(ax, title=""):
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.set_title(title, fontsize=10)
    ax.spines[:].set_visible(False)


def draw_density(ax, density, limits, n=160):
    """Contours that hold 25, 50, 75, 90 and 97 % of the probability."""
    x, y = np.linspace(*limits[:2], n), np.linspace(*limits[2:], n)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    p = np.exp(density.score_samples(grid))
    ordered = np.sort(p)[::-1]
    mass = np.cumsum(ordered) / ordered.sum()
    levels = ordered[np.searchsorted(mass, [0.97, 0.9, 0.75, 0.5, 0.25])]
    ax.contourf(x, y, p.reshape(n, n), [*levels, ordered[0]], cmap="Blues")
    ax.axis(limits)
