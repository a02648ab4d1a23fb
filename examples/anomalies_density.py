"""Find anomalies in a stream that drifts, with a density that forgets.

    pip install ".[plot]" && python examples/anomalies_density.py

Two clusters circle slowly around the origin, and one point in fifty falls anywhere. Each point is
scored by its log-density before it is learned, anomalies included, as nobody tells which they are.
With a forgetting factor below one the density is that of the last points, not of all there were, so
that a place where the clusters have been long ago is not taken for normal. With "predictive" no
factor has to be known: how much the newest points count is found from the stream.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score
from tqdm import tqdm

from skokde import OnlineKDEDensity

FIRST = 200  # points to learn from before the scores count


def drifting_clusters(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and whether each is an anomaly."""
    rng = np.random.default_rng(seed)
    angle = np.linspace(0.0, 1.5 * np.pi, n) + np.pi * rng.integers(2, size=n)
    X = 3.0 * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(0.0, 0.4, (n, 2))
    anomalous = (rng.random(n) < 0.02) & (np.arange(n) >= FIRST)
    X[anomalous] = rng.uniform(-4.5, 4.5, (anomalous.sum(), 2))
    return X, anomalous


def scores(X: np.ndarray, density: OnlineKDEDensity) -> np.ndarray:
    """Log-density of each point before it is learned."""
    out = np.zeros(len(X))
    density.partial_fit(X[:FIRST])
    for i in tqdm(range(FIRST, len(X)), unit=" points"):
        out[i] = density.score_samples(X[[i]])[0]
        density.partial_fit(X[[i]])
    return out


def draw_density(ax: plt.Axes, density: OnlineKDEDensity, X: np.ndarray, hit: np.ndarray) -> None:
    """The density at the end of the stream, over the last points and all anomalies."""
    grid = np.linspace(-5.0, 5.0, 120)
    x, y = np.meshgrid(grid, grid)
    log_p = density.score_samples(np.column_stack([x.ravel(), y.ravel()])).reshape(x.shape)
    ax.contourf(x, y, log_p, levels=np.arange(-12.0, 0.0), cmap="Blues", extend="both")
    ax.scatter(*X[-200:].T, s=4, color="black", label="last 200 points")
    ax.scatter(*X[hit].T, s=18, marker="x", color="#d55e00", label="anomalies, all along")
    ax.set(aspect="equal", xlim=(-5, 5), ylim=(-5, 5), xticks=[], yticks=[])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default="anomalies_density.png", help="picture to save")
    options = parser.parse_args()
    X, anomalous = drifting_clusters(4000, options.seed)
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.6), layout="compressed")
    for ax, factor in zip(axes, (1.0, 0.99, "predictive"), strict=True):
        density = OnlineKDEDensity(forgetting_factor=factor)
        log_p = scores(X, density)
        area = roc_auc_score(anomalous[FIRST:], -log_p[FIRST:])
        name = f"forgetting_factor={factor!r}"
        print(f"{name}: area under the ROC curve {area:.3f}, {density.n_components_} components")
        draw_density(ax, density, X, anomalous)
        ax.set_title(f"{name}\narea under the ROC curve {area:.3f}", fontsize=10)
    axes[0].legend(loc="lower left", fontsize=8)
    figure.savefig(options.out, dpi=100)


if __name__ == "__main__":
    main()
