"""Raise alarms on a stream of sensors that drifts, at a stated level, and tell which one is wrong.

    pip install ".[plot]" && python examples/stream_alarms.py

Four sensors follow two quantities that wander, and their zero points drift. Now and then one of
them is off for a single reading, by less than the readings range: only beside the others it can be
seen. Each reading gets a p-value before it is learned, and an alarm is raised where it is at most
1 %. Whatever the data are, about one of a hundred normal readings raises one, too. The sensor to
blame is the one that is least probable given the others.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from tqdm import tqdm

from skokde import OnlineKDEOutlierDetector

SENSORS = ["A", "B", "C", "D"]
LEVEL = 0.01
FIRST = 500  # readings before faults come


def sensors(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Readings, and the number of the sensor that is off, or -1."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    state = np.column_stack([np.sin(t / 60.0), np.cos(t / 97.0)]) + 0.3 * rng.normal(size=(n, 2))
    gains = np.array([[1.0, 0.8, -0.6, 0.5], [0.4, -0.7, 0.9, 1.0]])
    zero = np.outer(t / n, [3.0, -2.0, 0.0, 1.0])
    X = state @ gains + zero + 0.1 * rng.normal(size=(n, 4))
    off = np.full(n, -1)
    times = rng.choice(np.arange(FIRST, n), size=n // 200, replace=False)
    off[times] = rng.integers(0, 4, size=len(times))
    X[times, off[times]] += rng.choice([-1.5, 1.5], size=len(times))
    return X, off


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default="stream_alarms.png", help="picture to save")
    options = parser.parse_args()
    X, off = sensors(5000, options.seed)
    detector = OnlineKDEOutlierDetector(forgetting_factor="predictive")
    p, blame = np.ones(len(X)), np.zeros(X.shape)
    for i, row in enumerate(tqdm(X[:, None], unit=" readings")):
        if i:
            p[i] = detector.p_values(row)[0]
            if p[i] <= LEVEL:
                blame[i] = detector.explain(row)[0]
        detector.partial_fit(row)
    alarm, wrong = p <= LEVEL, off >= 0
    hit = alarm & wrong
    to_blame = blame.argmin(axis=1)
    print(f"false alarms: {(alarm & ~wrong).sum() / (~wrong).sum():.2%} of {(~wrong).sum()}")
    print(f"faults found: {hit.sum()} of {wrong.sum()}")
    print(f"right sensor blamed: {(to_blame[hit] == off[hit]).sum()} of {hit.sum()}")

    figure, axes = plt.subplots(3, 1, figsize=(10, 7), sharex=True, layout="constrained")
    time, red, blue = np.arange(len(X)), "#d55e00", "#0072b2"
    for j, name in enumerate(SENSORS):
        axes[0].plot(time, X[:, j], lw=0.5, label=name)
    axes[0].set_ylabel("readings")
    axes[0].legend(title="sensor", loc="upper left", ncols=4, fontsize=8)
    usual = ~(alarm | wrong)
    axes[1].scatter(time[usual], p[usual], s=1, color="0.6")
    for chosen, color, marker, label in (
        (alarm & ~wrong, blue, "o", "false alarms"),
        (hit, red, "o", "faults found"),
        (wrong & ~alarm, red, "x", "faults missed"),
    ):
        axes[1].scatter(time[chosen], p[chosen], s=16, color=color, marker=marker, label=label)
    axes[1].axhline(LEVEL, color="black", lw=0.8)
    axes[1].set(yscale="log", ylabel="p-value")
    axes[1].legend(loc="lower left", fontsize=8)
    # The sensors whose readings are unlikely given the others, in nats below the most likely one.
    times = time[hit]
    below = np.minimum(blame[hit].max(axis=1, keepdims=True) - blame[hit], 20.0)
    for j in range(len(SENSORS)):
        axes[2].scatter(times, np.full(len(times), j), s=5.0 * below[:, j], color="0.6")
    axes[2].scatter(times, off[hit], s=24, marker="x", color=red, label="sensor that was off")
    axes[2].set(yticks=range(4), yticklabels=SENSORS, ylabel="blame", xlabel="reading")
    axes[2].set_ylim(-0.6, 3.6)
    axes[2].legend(loc="lower left", fontsize=8)
    figure.savefig(options.out, dpi=100)


if __name__ == "__main__":
    main()
