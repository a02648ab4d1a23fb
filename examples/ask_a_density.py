"""What a density can be asked: regions, modes, conditional densities, draws.

    pip install ".[plot]" && python examples/ask_a_density.py

A stream of points in three clusters, two of which are bent, is learned row by row. The mixture that
is scored then answers: where 50 and 90 % of the points are expected, where the density has its
modes and which is uphill from each point, what y is where x is known, and what new points look
like.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import colormaps
from tqdm import tqdm

from skokde import OnlineKDEDensity
from skokde.distribution import GaussianMixtureDistribution

SLICES = (-1.5, 0.0, 1.5)


def moons(n: int, seed: int) -> np.ndarray:
    """Two bent clusters and a round one."""
    rng = np.random.default_rng(seed)
    part, angle = rng.integers(0, 3, size=n), np.pi * rng.random(n)
    upper = np.column_stack([np.cos(angle) - 0.5, np.sin(angle)])
    lower = np.column_stack([0.5 - np.cos(angle), -np.sin(angle) + 0.3])
    X = np.choose(part[:, None], [1.3 * upper, 1.3 * lower, [2.0, 2.2]])
    return X + 0.15 * rng.normal(size=(n, 2))


def draw_regions(ax: plt.Axes, p: GaussianMixtureDistribution, X: np.ndarray) -> None:
    """The smallest regions of two probabilities, and the points by the mode uphill."""
    grid = np.linspace(-2.6, 3.2, 120)
    x, y = np.meshgrid(grid, grid)
    log_p = p.logpdf(np.stack([x, y], axis=-1))
    levels = [p.highest_density_threshold(q, random_state=0).value for q in (0.9, 0.5)]
    ax.contour(
        x, y, log_p, levels=levels, colors="black", linewidths=[0.8, 1.6], linestyles="solid"
    )
    modes = p.modes().points
    colors = colormaps["tab10"](p.assign(X) % 10)
    ax.scatter(*X.T, s=5, c=colors, alpha=0.6)
    ax.scatter(*modes.T, s=70, marker="*", color="black", zorder=3)
    ax.set_title(f"regions of 50 and 90 %, {len(modes)} modes\nand what is uphill to each")
    for value in SLICES:
        ax.axvline(value, color="gray", linestyle=":", linewidth=1.0)


def draw_slices(ax: plt.Axes, p: GaussianMixtureDistribution) -> None:
    """Densities of y where x is known, with their 90 % intervals."""
    y = np.linspace(-2.6, 3.2, 300)
    for number, value in enumerate(SLICES):
        q, color = p.conditional(0, value), f"C{number}"
        ax.plot(y, q.pdf(y), color=color, label=f"x = {value:g}")
        low, high = q.ppf([0.05, 0.95])
        ax.plot([low, high], [-0.05 - 0.06 * number] * 2, color=color, linewidth=3.0)
    ax.legend(frameon=False)
    ax.set(xlabel="y", title="density of y given x,\nand 90 % intervals")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default="ask_a_density.png", help="picture to save")
    options = parser.parse_args()
    X = moons(1500, options.seed)
    density = OnlineKDEDensity()
    for row in tqdm(X, unit=" points"):
        density.partial_fit(row[None])
    p = density.distribution()
    print(f"{p}: mean {p.mean.round(2)}, entropy {p.entropy(random_state=0).value:.2f} nats")
    print(
        f"probability of the upper right quarter: {p.integrate_box([0, 0], [np.inf, np.inf]):.3f}"
    )
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    draw_regions(axes[0], p, X[:600])
    draw_slices(axes[1], p)
    axes[2].scatter(*density.sample(600, random_state=0).T, s=5, color="gray")
    axes[2].set_title("600 draws")
    for ax in axes[[0, 2]]:
        ax.set(aspect="equal", xlim=(-2.6, 3.2), ylim=(-2.6, 3.2), xticks=[], yticks=[])
    figure.savefig(options.out, dpi=100)


if __name__ == "__main__":
    main()
