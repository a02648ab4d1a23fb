"""
None of the known classes
=========================

A classifier names one of its classes, whatever it is shown. ``outlier_p_values`` tells how usual a
row is for the class that fits it best, and so when to believe none of them.
"""

# %%
# Digits, of which two are unknown
# --------------------------------
# The classifier learns images of 0 to 7, in 15 directions of PCA. What does it make of other images
# of the same digits, and of eights and nines, which it has never seen?

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.utils import shuffle

from skokde import OnlineKDEClassifier

images, y = shuffle(*load_digits(return_X_y=True), random_state=0)
known = y < 8
first = np.arange(len(y)) < 1300
learned = known & first
X = PCA(n_components=15, random_state=0).fit(images[learned]).transform(images)

classifier = OnlineKDEClassifier()
classifier.partial_fit(X[learned], y[learned])
p_known = classifier.outlier_p_values(X[known & ~first])
p_unknown = classifier.outlier_p_values(X[~known & ~first])

# %%
# The p-values
# ------------
# At most 5 % of the rows of known classes have p-values of at most 5 %. How many of the others do
# depends on how unlike they are. Class probabilities do not tell: they say which of the known
# classes it is, if it is one of them.

proba = classifier.predict_proba(X[~known & ~first]).max(axis=1)
print(f"unknown images, median of the highest class probability: {np.median(proba):.3f}")
levels = np.linspace(0.0, 0.3, 200)
figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
for p, name, color in ((p_unknown, "8 and 9, unknown", "#d55e00"), (p_known, "0 to 7", "#0072b2")):
    ax.plot(levels, [(p <= level).mean() for level in levels], color=color, label=name)
    print(f"{name}: {(p <= 0.05).mean():.1%} of {len(p)} images at a level of 5 %")
ax.plot(levels, levels, ":", color="gray", label="level")
ax.set(xlabel="level", ylabel="share of images with p-values up to it", ylim=(0, 1))
ax.legend(frameon=False, loc="center right")
plt.show()

# %%
# Most and least usual
# --------------------
# The images with the lowest p-values, with the class that they would have been given.

rest = np.flatnonzero(~first)
fit = classifier.predict_joint_log_proba(X[rest]).max(axis=1)
p = classifier.outlier_p_values(X[rest])
order = np.lexsort((fit, p))
figure, axes = plt.subplots(2, 9, figsize=(9, 2.9), layout="constrained")
for row, numbers in zip(axes, (order[:9], order[-9:]), strict=True):
    for ax, number in zip(row, rest[numbers], strict=True):
        ax.imshow(images[number].reshape(8, 8), cmap="gray_r")
        given = classifier.predict(X[[number]])[0]
        ax.set_title(f"{y[number]} as {given}", fontsize=9)
        ax.axis("off")
figure.suptitle("least usual (above) and most usual (below): true digit and prediction")
plt.show()

# %%
# Learn what was unknown
# ----------------------
# Once someone has labelled a few of the unknown images, they are learned as any others: classes may
# come at any time.

late = ~known & first
for n in (10, 40, 160):
    taken = np.flatnonzero(late)[:n]
    classifier.partial_fit(X[taken], y[taken])
    late[taken] = False
    after = classifier.outlier_p_values(X[~known & ~first])
    right = classifier.score(X[~first], y[~first])
    print(f"{n:3} more: {(after <= 0.05).mean():.1%} unknown at 5 %, accuracy on all {right:.3f}")
