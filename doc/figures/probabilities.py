import matplotlib.pyplot as plt
import numpy as np
from drawing import BLUE, GREY, RED
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.utils import shuffle

from skokde import OnlineKDEClassifier

X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
train, test = slice(900), slice(900, None)

figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.2), sharey=True, layout="constrained")
for ax, calibrate, color in zip(axes, (False, True), (RED, BLUE), strict=True):
    classifier = OnlineKDEClassifier(covariance_type="diag", calibrate=calibrate)
    p = classifier.fit(X[train], y[train]).predict_proba(X[test])
    right = p.argmax(axis=1) == y[test]
    n_rows, edges = np.histogram(p.max(axis=1), np.linspace(0.2, 1.0, 9))
    n_right = np.histogram(p.max(axis=1), edges, weights=right.astype(float))[0]
    share = n_right / np.maximum(n_rows, 1)
    many = n_rows >= 5
    sure = 0.5 * (edges[1:] + edges[:-1])
    ax.plot([0.2, 1.0], [0.2, 1.0], color=GREY, linewidth=0.8)
    ax.scatter(sure[many], share[many], 4.0 * np.sqrt(n_rows[many]) + 4.0, color=color)
    ax.set(xlabel="probability of the predicted class", xlim=(0.2, 1.02), ylim=(0.0, 1.05))
    ax.set_title(f"calibrate={calibrate}, log-loss {log_loss(y[test], p):.2f}")
    certain = 100.0 * np.mean(p.max(axis=1) > 0.99)
    ax.annotate(f"{certain:.0f} % of the rows are above 0.99", (0.42, 0.05), fontsize=8)
axes[0].set_ylabel("share that is right")
