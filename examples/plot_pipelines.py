"""
Pipelines with scalers and PCA
==============================

Densities and classifiers are ordinary scikit-learn estimators, and work behind any transformer.
Which of them help?
"""

# %%
# Scalers
# -------
# The features of the wine data range from tenths to a thousand. ``"full"`` and ``"diag"`` find the
# spread of each feature by themselves, so that ``StandardScaler`` changes nothing. ``"spherical"``
# has one width for all features and needs it. ``PowerTransformer`` makes skewed features more alike
# to Gaussians.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler

from skokde import OnlineKDEClassifier, OnlineKDEDensity

X, y = load_wine(return_X_y=True)
cv = StratifiedKFold(2, shuffle=True, random_state=0)
scalers = {
    "no scaler": "passthrough",
    "StandardScaler": StandardScaler(),
    "PowerTransformer": PowerTransformer(),
}
structures = ("full", "diag", "spherical")
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for place, (name, scaler) in enumerate(scalers.items()):
    losses = [
        -cross_val_score(
            make_pipeline(scaler, OnlineKDEClassifier(covariance_type=structure)),
            X,
            y,
            scoring="neg_log_loss",
            cv=cv,
        ).mean()
        for structure in structures
    ]
    bars = ax.bar(np.arange(3) + 0.27 * (place - 1), losses, width=0.25, label=name)
    ax.bar_label(bars, fmt="%.2f", fontsize=8)
ax.set_xticks(range(3), structures)
ax.set(xlabel="covariance_type", ylabel="log-loss, nats")
ax.margins(y=0.1)
ax.legend(frameon=False, loc="upper left")
plt.show()

# %%
# PCA
# ---
# In many dimensions densities need many samples, and time. The 64 pixels of the digits have fewer
# independent directions than that: with 400 images to learn, twenty of them are enough to predict
# 97 % of the other 1397.

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, train_size=400, stratify=y, random_state=0)
numbers = (2, 5, 10, 20)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for structure, style in (("full", "o-"), ("diag", "s--")):
    accuracies = [
        make_pipeline(
            PCA(n_components=n, random_state=0), OnlineKDEClassifier(covariance_type=structure)
        )
        .fit(X, y)
        .score(X_test, y_test)
        for n in numbers
    ]
    ax.plot(numbers, accuracies, style, label=structure)
ax.set(xlabel="directions of PCA", ylabel="accuracy", xscale="log")
ax.set_xticks(numbers, numbers, minor=False)
ax.minorticks_off()
ax.legend(frameon=False, title="covariance_type", loc="lower right")
plt.show()

# %%
# And back
# --------
# A density behind PCA can be sampled, and the samples taken back to pixels: digits that nobody has
# written.

pipeline = make_pipeline(PCA(n_components=15, random_state=0), OnlineKDEDensity()).fit(X)
pca, density = pipeline
new = pca.inverse_transform(density.sample(40, random_state=0))
figure, axes = plt.subplots(4, 10, figsize=(7, 3), layout="constrained")
for ax, image in zip(axes.ravel(), new.reshape(-1, 8, 8), strict=True):
    ax.imshow(image, cmap="gray_r", vmin=0, vmax=16)
    ax.axis("off")
plt.show()

# %%
# Streams
# -------
# ``Pipeline`` has no ``partial_fit``. Where rows come one by one, fit the transformer on the first
# rows, keep it as it is, and let the density go on: its features must keep their meaning.

pca = PCA(n_components=15, random_state=0).fit(X[:200])
classifier = OnlineKDEClassifier()
for block in np.array_split(np.arange(len(X)), 5):
    classifier.partial_fit(pca.transform(X[block]), y[block])
print(f"accuracy: {classifier.score(pca.transform(X_test), y_test):.3f}")
