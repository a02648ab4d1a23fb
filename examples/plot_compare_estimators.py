"""
Beside KernelDensity and GaussianMixture: quality, size, time
=============================================================

A kernel density estimate keeps all samples, a Gaussian mixture a number of components that has to
be chosen. An online one is between: it decides by itself what to keep, in one pass. What is each
worth, and what does it take?
"""

# %%
# Data and estimators
# -------------------
# Samples in three dimensions, half of them along a curve that is no Gaussian, the others from two
# round clusters. ``KernelDensity`` gets its bandwidth by cross-validation, ``GaussianMixture`` its
# number of components by BIC. ``OnlineKDEDensity`` gets nothing, or a fixed threshold, which makes
# it small.

from time import process_time

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity

from skokde import OnlineKDEDensity


def samples(n, seed):
    """A curve and two clusters."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.0, 2.0 * np.pi, n)
    curve = 3.0 * np.column_stack([np.cos(t), np.sin(t), np.sin(2.0 * t)])
    centers = np.array([[0.0, 0.0, 3.0], [0.0, 0.0, -3.0]])[rng.integers(0, 2, n)]
    on_curve = rng.random((n, 1)) < 0.5
    return np.where(on_curve, curve, centers) + rng.normal(0.0, [[0.2]], (n, 3))


def kernel_density(X):
    """With a cross-validated bandwidth."""
    search = GridSearchCV(KernelDensity(), {"bandwidth": [0.1, 0.15, 0.2, 0.3, 0.4]}, cv=3)
    return search.fit(X).best_estimator_


def mixture(X):
    """With as many components as BIC wants."""
    fits = [GaussianMixture(k, random_state=0).fit(X) for k in (6, 10, 16, 24)]
    return min(fits, key=lambda fit: fit.bic(X))


def online(X):
    """With the defaults."""
    return OnlineKDEDensity().fit(X)


def small_online(X):
    """With a fixed threshold."""
    return OnlineKDEDensity(compression_threshold=0.05).fit(X)


def size(model, X):
    """Samples or components that are held."""
    for name in ("n_components_", "n_components"):
        if hasattr(model, name):
            return getattr(model, name)
    return len(X)


# %%
# Quality against size and time
# -----------------------------
# Quality is the mean log-density of 1000 other samples. Times are what fitting takes, searches
# included, and scoring; they are those of the machine that made this page.
#
# Here the online estimate is better than the kernel density estimate, and mostly than the mixture.
# It holds some forty components, and is scored ten times as fast as 2000 samples are. The fixed
# threshold is no bargain: it holds nearly as many components, and is worse.

MODELS = {
    "KernelDensity": (kernel_density, "#767676", "s:"),
    "GaussianMixture": (mixture, "#d55e00", "^--"),
    "OnlineKDEDensity": (online, "#0072b2", "o-"),
    "compression_threshold=0.05": (small_online, "#56b4e9", "v-"),
}
SIZES = (250, 500, 1000, 2000)
X_test = samples(1000, seed=1)
found = {name: [] for name in MODELS}
for n in SIZES:
    X = samples(n, seed=0)
    for name, (make, _, _) in MODELS.items():
        start = process_time()
        model = make(X)
        fitted = process_time()
        quality = model.score_samples(X_test).mean()
        times = fitted - start, process_time() - fitted
        found[name].append((quality, size(model, X), *times))

figure, axes = plt.subplots(1, 4, figsize=(14, 3.8), sharey=True, layout="constrained")
labels = ("samples learned", "samples or components held", "seconds to fit", "seconds to score")
for name, rows in found.items():
    quality, held, *times = np.transpose(rows)
    for ax, x in zip(axes, (SIZES, held, *times), strict=True):
        ax.plot(x, quality, MODELS[name][2], color=MODELS[name][1], label=name)
for ax, label in zip(axes, labels, strict=True):
    ax.set(xlabel=label, xscale="log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
axes[0].set_xticks(SIZES, SIZES)
axes[0].set_ylabel("mean log-density, nats")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
plt.show()
