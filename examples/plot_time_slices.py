"""
Time slices: a model of each hour, and of any period
====================================================

A service answers requests; how long they take and how much they return differ from day to night,
and after a release in the middle of the second day. A ring holds a model of each hour. Merging some
of them gives the density of any period.
"""

# %%
# Hours of requests
# -----------------
# Each hour has 150 requests. In the hours 32 to 34 a broken clock measures times that are far too
# long.

from collections import deque

import matplotlib.pyplot as plt
import numpy as np

from skokde import OnlineKDEDensity, merge

HOURS, ROWS = 3 * 24, 150
RELEASE = 36
BROKEN = range(32, 35)


def requests(hour, seed=0):
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


# %%
# A ring of models
# ----------------
# A ``deque`` of the hours that may be asked about is all it takes: what is older falls out. Beside
# it one model learns all rows, with a forgetting factor by which it remembers a day.

ring = deque(maxlen=HOURS)
forgetting = OnlineKDEDensity(forgetting_factor=1.0 - 1.0 / (24 * ROWS))
for hour in range(HOURS):
    rows = requests(hour)
    ring.append(OnlineKDEDensity().fit(rows))
    forgetting.partial_fit(rows)

# %%
# Ask about periods
# -----------------
# What is not merged has not been learned: the broken hours go without a trace, while the model that
# forgets still knows them.

hours = np.arange(HOURS)
periods = {
    "all hours": hours,
    "all but the broken hours": np.setdiff1d(hours, BROKEN),
    "nights before the release": hours[(hours < RELEASE) & (hours % 24 < 6)],
    "the last day": hours[-24:],
}
models = {name: merge(ring[hour] for hour in chosen) for name, chosen in periods.items()}
models["forgetting"] = forgetting

fresh_day = np.concatenate([requests(hour, seed=1) for hour in hours[-24:]])
fresh_broken = np.concatenate([requests(hour, seed=1) for hour in BROKEN])
print("mean log-density, nats, of fresh rows of    the last day    the broken hours")
for name, model in models.items():
    print(f"{name:40} {model.score(fresh_day):15.2f} {model.score(fresh_broken):19.2f}")

figure, axes = plt.subplots(1, len(models), figsize=(15, 3.4), sharey=True, layout="constrained")
time, size = np.meshgrid(np.linspace(1.0, 10.0, 90), np.linspace(0.0, 9.0, 90))
places = np.column_stack([time.ravel(), size.ravel()])
for ax, (name, model) in zip(axes, models.items(), strict=True):
    density = np.exp(model.score_samples(places)).reshape(time.shape)
    ax.contourf(time, size, np.sqrt(density), levels=20, cmap="Blues")
    ax.set(title=f"{name}\n{model.n_components_} components", xlabel="log milliseconds")
axes[0].set_ylabel("log kilobytes")
plt.show()
