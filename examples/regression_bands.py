"""Regression row by row where the noise changes and the output has two branches.

    pip install ".[plot]" && python examples/regression_bands.py

Left, one of two curves comes by chance, with noise that grows. Right, the output of a stream jumps
in the middle: rows come one at a time, each is predicted before it is learned, and the bands are
the intervals of 90 % that were predicted then. With `forgetting_factor="predictive"` the model
follows.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from tqdm import tqdm

from skokde import OnlineKDERegressor


def branches(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One of two curves by chance, with noise that grows."""
    x = np.sort(rng.uniform(0.0, 4.0, size=n))
    side = rng.choice([-1.0, 1.0], size=n)
    return x[:, None], side * (0.5 + 0.4 * x) + (0.05 + 0.08 * x) * rng.normal(size=n)


def drifting(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A reading of temperature and load, whose zero point jumps in the middle."""
    t = np.arange(n)
    X = np.column_stack([np.sin(t / 40.0), rng.normal(size=n)])
    noise = 0.1 + 0.2 * (X[:, 1] > 1.0)
    return X, 2.0 * X[:, 0] + X[:, 1] + 3.0 * (t >= n // 2) + noise * rng.normal(size=n)


def draw_branches(ax: plt.Axes, rng: np.random.Generator) -> None:
    """The predicted density, the mean, which no row is near, and the rows."""
    X, y = branches(1500, rng)
    shuffled = rng.permutation(len(X))
    regressor = OnlineKDERegressor().fit(X[shuffled], y[shuffled])
    grid, heights = np.linspace(0.0, 4.0, 120)[:, None], np.linspace(-3.0, 3.0, 160)
    log_density = np.array([regressor.log_density(grid, np.full(120, h)) for h in heights])
    ax.pcolormesh(grid[:, 0], heights, np.exp(log_density), cmap="Blues", vmax=2.0)
    ax.plot(X[::5, 0], y[::5], ".", ms=2, color="0.3")
    ax.plot(grid[:, 0], regressor.predict(grid), color="#d55e00", label="predict")
    ax.set(title="predicted density, two branches", xlabel="x", ylabel="y")
    ax.legend(loc="upper left")


def draw_stream(ax: plt.Axes, rng: np.random.Generator) -> None:
    """Intervals of rows before they were learned."""
    X, y = drifting(700, rng)
    regressor = OnlineKDERegressor(forgetting_factor="predictive").fit(X[:100], y[:100])
    bands = np.full((len(X), 2), np.nan)
    for i in tqdm(range(100, len(X)), unit=" rows"):
        row = X[i : i + 1]
        bands[i] = regressor.predict_interval(row, coverage=0.9)[0]
        regressor.partial_fit(row, y[i : i + 1])
    inside = (bands[:, 0] <= y) & (y <= bands[:, 1])
    print(f"in the intervals of 90 %: {inside[100:].mean():.1%}")
    print(f"width: {np.median(np.diff(bands[100:])):.2f}, deviation of y: {y.std():.2f}")
    t = np.arange(len(X))
    ax.fill_between(t, *bands.T, color="#56b4e9", alpha=0.5, lw=0, label="interval of 90 %")
    ax.plot(t, y, ".", ms=2, color="0.3")
    ax.plot(t[100:][~inside[100:]], y[100:][~inside[100:]], ".", ms=5, color="#d55e00",
            label="outside")  # fmt: skip
    ax.set(title="a stream that changes, row by row", xlabel="row", ylim=(-6.0, 9.0))
    ax.legend(loc="upper left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default="regression_bands.png", help="picture to save")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    draw_branches(axes[0], rng)
    draw_stream(axes[1], rng)
    figure.savefig(options.out, dpi=100)


if __name__ == "__main__":
    main()
