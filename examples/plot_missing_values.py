"""
Missing values: learn, predict, fill in
=======================================

NaN is a value that is missing. Densities and classifiers learn rows that have holes, and predict
them by what is known of them, exactly. ``OnlineKDEImputer`` fills holes in.
"""

# %%
# What is known of a value that is missing
# ----------------------------------------
# Points lie on a ring, and of two in five the second value is missing. The expected value lies in
# the middle, where no point is. A draw given the first value, with ``sample_posterior=True``, lies
# on the ring: a table with draws has the distribution of the complete one, as far as the model
# knows it.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import scale

from skokde import OnlineKDEClassifier, OnlineKDEImputer

rng = np.random.default_rng(0)
angle = rng.uniform(0.0, 2.0 * np.pi, 300)
ring = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.07 * rng.normal(size=(300, 2))
incomplete = rng.random(300) < 0.4
ring[incomplete, 1] = np.nan

imputer = OnlineKDEImputer(random_state=0).fit(ring)
figure, axes = plt.subplots(1, 2, figsize=(8.4, 4.2), sharey=True, layout="constrained")
for ax, sample_posterior in zip(axes, (False, True), strict=True):
    imputer.set_params(sample_posterior=sample_posterior)
    filled = imputer.transform(ring[incomplete])
    ax.plot(*ring[~incomplete].T, ".", color="0.6", markersize=4, label="complete")
    ax.plot(*filled.T, ".", color="#d55e00", markersize=5, label="filled in")
    ax.set(title=f"sample_posterior={sample_posterior}", aspect="equal", xlabel="feature 0")
axes[0].set_ylabel("feature 1")
axes[1].legend(loc="center")
plt.show()

# %%
# Classes of rows with holes
# --------------------------
# Breast cancer data: six measurements of each of 569 tumours. Values are removed at random, from
# the rows that are learned and from those that are predicted. Three ways to deal with it: learn
# rows as they are, learn complete rows alone, or fill in means first.
#
# The imputer is measured on the same rows, beside its peers: how far are the values that it fills
# in from those that were removed?

X, y = load_breast_cancer(return_X_y=True)
X = scale(X[:, [0, 1, 4, 6, 8, 9]])
SHARES = (0.1, 0.25, 0.4)
imputers = {
    "OnlineKDEImputer": OnlineKDEImputer(),
    "KNNImputer": KNNImputer(),
    "means": SimpleImputer(),
}
losses = {"rows as they are": [], "complete rows alone": [], "means filled in": []}
errors = {name: [] for name in imputers}
for share in SHARES:
    holes = np.where(rng.random(X.shape) < share, np.nan, X)
    learned, asked, y_learned, y_asked, _, true = train_test_split(
        holes, y, X, test_size=0.4, stratify=y, random_state=0
    )
    complete = np.isfinite(learned).all(axis=1)
    as_they_are = OnlineKDEClassifier().fit(learned, y_learned)
    of_complete = OnlineKDEClassifier().fit(learned[complete], y_learned[complete])
    of_means = make_pipeline(SimpleImputer(), OnlineKDEClassifier()).fit(learned, y_learned)
    for name, model in zip(losses, (as_they_are, of_complete, of_means), strict=True):
        losses[name].append(log_loss(y_asked, model.predict_proba(asked)))
    missing = np.isnan(asked)
    for name, imputer in imputers.items():
        filled = imputer.fit(learned).transform(asked)
        errors[name].append(np.sqrt(np.mean((filled - true)[missing] ** 2)))

# %%
# What it costs
# -------------
# With 40 % of the values missing one row in 21 is complete, and learning these alone is by far the
# worst way.

STYLES = (("o-", "#0072b2"), ("s--", "#d55e00"), ("^:", "#767676"))
figure, axes = plt.subplots(1, 2, figsize=(10, 4.0), layout="constrained")
for ax, lines, label in zip(
    axes, (losses, errors), ("log-loss, nats", "error, standard deviations"), strict=True
):
    for (name, values), (style, color) in zip(lines.items(), STYLES, strict=True):
        ax.plot(SHARES, values, style, color=color, label=name)
        print(f"{label}, {name}:", *(f"{value:.3f}" for value in values))
    ax.set(xlabel="share of values that are missing", ylabel=label, xticks=SHARES)
    ax.legend(loc="upper left", frameon=False)
axes[0].set_title("classes predicted from rows with holes")
axes[1].set_title("values filled in")
axes[1].set_ylim(0.6, 1.3)
plt.show()
