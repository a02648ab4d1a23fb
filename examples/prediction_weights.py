"""Watch what prediction decides along a stream that changes suddenly and later changes back.

    pip install ".[plot]" && python examples/prediction_weights.py

In four dimensions, 1000 points lie along a thin closed curve, the next 800 come from one wide
Gaussian, and the last 1000 lie along the curve again. The density is told nothing of that: its
threshold, its bandwidth and its memory are all "predictive". Each block of 20 points is scored
before it is learned, and after it `expert_weights_` tells what has predicted best so far.

Two others run beside it: one that forgets nothing, and one whose forgetting factor, 0.98, was
chosen by someone who expects changes.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from tqdm import tqdm

from skokde import OnlineKDEDensity

BLOCK = 20  # points that are scored, then learned
CURVE, GAUSSIAN = 1000, 800  # points
GREY = "#767676"
STYLES = {
    "predictive": {"color": "#0072b2", "zorder": 3},
    1.0: {"color": GREY, "linestyle": ":"},
    0.98: {"color": "#d55e00", "linestyle": "--"},
}
LABELS = {
    "memory": ("all samples", "newest, 0.9", "newest, 0.97", "newest, 0.997"),
    "threshold": ("the one held", "0.04", "0.08", "0.16", "0.32", "0.64"),
    "width": ("1/16", "1/4", "1/2", "2"),
}
TITLES = {
    "memory": "Weight of each memory",
    "threshold": "Weight of each threshold",
    "width": "Weight of each kernel width, in units of the normal-reference scale",
}


def stream(seed: int) -> np.ndarray:
    """Points along a curve, from a Gaussian, and along the curve again."""
    rng = np.random.default_rng(seed)

    def curve() -> np.ndarray:
        t = rng.uniform(0.0, 2.0 * np.pi, CURVE)
        points = np.column_stack([np.cos(t), np.cos(2.0 * t), np.sin(t), np.sin(2.0 * t)])
        return 1.5 * points + rng.normal(0.0, 0.1, points.shape)

    return np.concatenate([curve(), rng.normal(2.0, 1.0, (GAUSSIAN, 4)), curve()])


def run(X: np.ndarray) -> tuple[dict[str | float, np.ndarray], dict[str, np.ndarray]]:
    """Mean log-density of each block before it is learned, and the weights after it."""
    densities = {factor: OnlineKDEDensity(forgetting_factor=factor) for factor in STYLES}
    scores = {factor: [] for factor in densities}
    weights = {name: [] for name in LABELS}
    for start in tqdm(range(0, len(X), BLOCK), unit=" blocks"):
        block = X[start : start + BLOCK]
        for factor, density in densities.items():
            scores[factor].append(density.score(block) if start else np.nan)
            density.partial_fit(block)
        found = densities["predictive"].expert_weights_
        for name, rows in weights.items():
            # Thresholds that were given up are no longer listed: the first is the one held.
            row = found[name]
            rows.append(np.concatenate([row[:1], np.zeros(len(LABELS[name]) - len(row)), row[1:]]))
    return (
        {factor: np.array(score) for factor, score in scores.items()},
        {name: np.array(rows) for name, rows in weights.items()},
    )


def report(scores: dict[str | float, np.ndarray]) -> None:
    """Print the mean log-density of the parts of the stream, and just after the changes."""
    first, second = CURVE // BLOCK, (CURVE + GAUSSIAN) // BLOCK
    parts = {
        "curve": slice(1, first),
        "Gaussian": slice(first, second),
        "curve again": slice(second, None),
        "its first 100 points": slice(second, second + 100 // BLOCK),
    }
    print("\nMean log-density  ", *(f"{name:>21s}" for name in parts))
    for factor, score in scores.items():
        print(f"factor {factor!s:11s}", *(f"{score[part].mean():21.2f}" for part in parts.values()))


def draw(scores: dict[str | float, np.ndarray], weights: dict[str, np.ndarray], path: Path) -> None:
    """Save the picture of a run."""
    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left"})
    figure, axes = plt.subplots(
        4, 1, figsize=(9, 8.5), sharex=True, height_ratios=[1.5, 1, 1, 1], layout="constrained"
    )
    seen = BLOCK * np.arange(1, len(scores[1.0]) + 1)
    for factor, score in scores.items():
        axes[0].plot(seen, score, label=f"forgetting_factor={factor!r}", **STYLES[factor])
    axes[0].set(title=f"Mean log-density of the next {BLOCK} points", ylim=(-19, 3))
    axes[0].legend(frameon=False, loc="lower right")
    places = (0, CURVE, CURVE + GAUSSIAN)
    for place, name in zip(places, ("curve", "Gaussian", "curve again"), strict=True):
        axes[0].text(place + 15, 1.0, name, color=GREY)
    for ax, (name, rows) in zip(axes[1:], weights.items(), strict=True):
        shades = plt.get_cmap("viridis")(np.linspace(0.05, 0.95, rows.shape[1]))
        ax.stackplot(seen, rows.T, labels=LABELS[name], colors=shades, linewidth=0)
        ax.set(title=TITLES[name], ylim=(0, 1), yticks=[0, 0.5, 1])
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
    for ax in axes:
        for change in places[1:]:
            ax.axvline(change, color="black", linewidth=0.8)
        ax.spines[["top", "right"]].set_visible(False)
    axes[-1].set(xlabel="points learned", xlim=(0, seen[-1]))
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default="prediction_weights.png", help="where to save")
    options = parser.parse_args()
    scores, weights = run(stream(options.seed))
    report(scores)
    draw(scores, weights, options.out)
    print(f"\nPicture: {options.out}")


if __name__ == "__main__":
    main()
