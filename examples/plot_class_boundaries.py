"""
Class boundaries while data arrive
==================================

A classifier that learns row by row can be asked at any time. This one is asked after 15, 60, 240
and 1000 rows. The third class comes late, and nobody has told the classifier that it would.
"""

# %%
# Three classes, one of them late
# -------------------------------
# Two half-moons, and a ring around the upper one of which nothing is seen in the first 100 rows.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from sklearn.datasets import make_moons

from skokde import OnlineKDEClassifier

rng = np.random.default_rng(0)


def rows(n, late=0):
    """Rows of two half-moons and a ring, which does not come before row ``late``."""
    X, y = make_moons(n, noise=0.2, random_state=rng.integers(1000))
    ring = (rng.random(n) < 0.3) & (np.arange(n) >= late)
    angle = rng.uniform(0.0, 2.0 * np.pi, n)
    around = (2.3 + 0.15 * rng.normal(size=n)) * [np.cos(angle), np.sin(angle)]
    X[ring], y[ring] = around.T[ring] + [0.5, 0.25], 2
    return X, y


X, y = rows(1000, late=100)
X_test, y_test = rows(2000)

# %%
# Ask it along the way
# --------------------
# Colors are mixed by the predicted probabilities: where two classes are about as probable, the
# color is between theirs. ``classes`` of ``partial_fit`` is left out, so that classes may come as
# they come; the columns of ``predict_proba`` grow with them. After 60 rows the ring is unknown;
# after 240 there are 40 rows of it.

COLORS = np.array([to_rgb(color) for color in ("#0072b2", "#e69f00", "#009e73")])
x0, x1 = np.meshgrid(np.linspace(-2.3, 3.3, 120), np.linspace(-2.6, 3.1, 120))
places = np.column_stack([x0.ravel(), x1.ravel()])

classifier = OnlineKDEClassifier()
figure, axes = plt.subplots(1, 4, figsize=(13, 3.7), sharey=True, layout="constrained")
learned = 0
for ax, n in zip(axes, (15, 60, 240, 1000), strict=True):
    classifier.partial_fit(X[learned:n], y[learned:n])
    learned = n
    mixed = classifier.predict_proba(places) @ COLORS[classifier.classes_]
    extent = [x0.min(), x0.max(), x1.min(), x1.max()]
    ax.imshow(mixed.reshape(*x0.shape, 3), origin="lower", extent=extent, alpha=0.6)
    newest = slice(max(n - 240, 0), n)
    ax.scatter(*X[newest].T, c=COLORS[y[newest]], s=9, edgecolors="black", linewidths=0.3)
    accuracy = classifier.score(X_test, y_test)
    ax.set(title=f"{n} rows, accuracy {accuracy:.2f}", xlabel="feature 0")
axes[0].set_ylabel("feature 1")
plt.show()

# %%
# What it costs to come late
# --------------------------
# A stream is its own test: each row is predicted before it is learned. Here are the probabilities
# that the true classes got, means over the last 10 rows. The first rows of the ring get nothing, as
# their class has never been seen. After some twenty of them they are known.

classifier = OnlineKDEClassifier().partial_fit(X[:5], y[:5])
of_truth = np.zeros(400)
for i in range(5, 400):
    row, label = X[[i]], y[i]
    known = classifier.classes_ == label
    of_truth[i] = classifier.predict_proba(row)[0, known].sum()
    classifier.partial_fit(row, [label])

figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for late, name, color in (
    (False, "half-moons", "#0072b2"),
    (True, "ring, from row 100", "#009e73"),
):
    numbers = np.flatnonzero((y[:400] == 2) == late)
    means = np.convolve(of_truth[numbers], np.full(10, 0.1), mode="valid")
    ax.plot(numbers[9:], means, label=name, color=color)
ax.set(xlabel="rows learned", ylabel="probability of the true class", ylim=(0, 1))
ax.legend(frameon=False, loc="lower right")
plt.show()
