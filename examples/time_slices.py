"""Keep a model of each hour, and merge the hours that are asked about.

    pip install ".[plot]" && python examples/time_slices.py

A service answers requests; how long they take and how much they return differ from day to night,
and after a release on the sixth day. A ring holds the models of the last seven days, hour by hour.
Merging some of them gives the density of any period: of a day, of all nights, or of the week but
for three hours in which a sensor was broken, whose rows are so unlearned. One model that forgets
knows the last day only.
"""

import argparse
from collections import deque
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from tqdm import tqdm

from skokde import OnlineKDEDensity, merge

HOURS = 7 * 24
ROWS = 400  # an hour
RELEASE = 5 * 24
BROKEN = range(60, 63)


def requests(hour: int, seed: int) -> np.ndarray:
    """Logarithms of the milliseconds and of the kilobytes of the requests of an hour."""
    rng = np.random.default_rng([seed, hour])
    day = 0.5 - 0.5 * np.cos(2.0 * np.pi * hour / 24.0)
    batch = rng.random(ROWS) > 0.2 + 0.7 * day  # large ones, at night
    size = np.where(batch, rng.normal(7.0, 0.5, ROWS), rng.normal(3.0, 0.8, ROWS))
    time = 2.0 + 0.5 * size + 0.3 * day + rng.normal(0.0, 0.25, ROWS)
    if hour >= RELEASE:
        time -= 0.8
    if hour in BROKEN:
        time = rng.normal(9.0, 0.1, ROWS)
    return np.column_stack([time, size])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default="time_slices.png", help="picture to save")
    options = parser.parse_args()
    ring: deque[OnlineKDEDensity] = deque(maxlen=HOURS)
    forgetting = OnlineKDEDensity(forgetting_factor=1.0 - 1.0 / (24 * ROWS))
    for hour in tqdm(range(HOURS), unit=" hours"):
        rows = requests(hour, options.seed)
        ring.append(OnlineKDEDensity().fit(rows))
        forgetting.partial_fit(rows)
    hours = np.arange(HOURS)
    periods = {
        "the whole week": hours,
        "all but the broken hours": np.setdiff1d(hours, BROKEN),
        "nights before the release": hours[(hours < RELEASE) & (hours % 24 < 6)],
        "the last day": hours[-24:],
    }
    models = {name: merge(ring[hour] for hour in of_it) for name, of_it in periods.items()}
    models["forgetting"] = forgetting
    asked = {
        "a day after the release": range(RELEASE + 24, RELEASE + 48),
        "the broken hours": BROKEN,
    }
    print(f"{'mean log-density of fresh rows of':38}" + "".join(f"{name:>26}" for name in asked))
    for name, model in models.items():
        scores = [
            model.score(np.concatenate([requests(hour, options.seed + 1000) for hour in of_it]))
            for of_it in asked.values()
        ]
        label = f"{name} ({model.n_components_} components)"
        print(f"{label:38}" + "".join(f"{score:26.2f}" for score in scores))

    figure, axes = plt.subplots(
        1, len(models), figsize=(15, 3.4), sharey=True, layout="constrained"
    )
    time, size = np.meshgrid(np.linspace(1.0, 10.0, 150), np.linspace(0.0, 9.0, 150))
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        points = np.column_stack([time.ravel(), size.ravel()])
        density = np.exp(model.score_samples(points)).reshape(time.shape)
        ax.contourf(time, size, np.sqrt(density), levels=20, cmap="Blues")
        ax.set(title=name, xlabel="log milliseconds")
    axes[0].set_ylabel("log kilobytes")
    figure.savefig(options.out, dpi=100)


if __name__ == "__main__":
    main()
