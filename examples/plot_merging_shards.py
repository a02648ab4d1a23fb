"""
Merging models of shards
========================

Models of parts of the data can be merged into one: of shards that are learned in parallel, or of
sites that do not share their rows. Counts, means and covariances of the whole are exact. What else
does it cost?
"""

# %%
# Two sites
# ---------
# Two hospitals, say, see different patients. ``merge`` makes a model of both that has never seen a
# row; ``without_rows`` leaves nothing in a model that stands for fewer than ten.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from skokde import OnlineKDEClassifier, OnlineKDEDensity, fit_shards, merge
from skokde.plot import DensityDisplay

X, side = make_moons(1000, noise=0.12, random_state=0)
sites = [OnlineKDEDensity(compression_threshold=0.02).fit(X[side == number]) for number in (0, 1)]
shared = [site.without_rows(min_samples=10) for site in sites]
both = merge(shared)

one_stream = OnlineKDEDensity(compression_threshold=0.02).fit(X)
print("rows:", [model.n_samples_seen_ for model in (*sites, both)])
print("same mean:", np.allclose(both.distribution().mean, X.mean(axis=0)))

figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), sharex=True, sharey=True, layout="constrained")
models = {"first site": shared[0], "second site": shared[1], "merged": both, "all rows": one_stream}
for ax, (name, model) in zip(axes, models.items(), strict=True):
    DensityDisplay.from_estimator(model, grid_resolution=60, ax=ax, components=True)
    ax.set(title=f"{name}, {model.n_components_} components", xlim=(-1.8, 2.8), ylim=(-1.3, 1.8))
    ax.label_outer()
plt.show()

# %%
# Shards of one array
# -------------------
# ``fit_shards`` learns parts of an array, in as many processes as ``n_jobs`` says, and merges their
# models. The result depends on the number of shards alone. The more shards, the fewer rows each has
# to find its components by: here 1500 rows of two classes are cut into up to 16 shards, and scored
# by 1000 others.


def rows(n, random_state):
    """Two classes, each of a bent and a round cluster, in three dimensions."""
    X, y = make_moons(n, noise=0.2, random_state=random_state)
    rng = np.random.default_rng(random_state)
    round_one = rng.random(n) < 0.3
    X[round_one] = rng.normal(0.0, 0.3, (round_one.sum(), 2)) + np.c_[y, y][round_one] * 1.5 - 1.0
    return np.column_stack([X, rng.normal(X[:, 0] * X[:, 1], 0.3)]), y


X, y = rows(1500, random_state=0)
X_test, y_test = rows(1000, random_state=1)
numbers = [1, 2, 4, 8, 16]
accuracies, log_densities = [], []
for n_shards in numbers:
    classifier = fit_shards(OnlineKDEClassifier(), X, y, n_shards=n_shards)
    accuracies.append(classifier.score(X_test, y_test))
    log_densities.append(classifier.score_samples(X_test).mean())

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
axes[0].plot(numbers, accuracies, "o-", color="#0072b2")
axes[0].set(ylabel="accuracy", ylim=(0.8, 1.0))
axes[1].plot(numbers, log_densities, "o-", color="#0072b2")
axes[1].set(ylabel="mean log-density, nats", ylim=(-2.5, -1.9))
for ax in axes:
    ax.set_xscale("log", base=2)
    ax.set(xlabel="shards", xticks=numbers, xticklabels=numbers)
plt.show()
