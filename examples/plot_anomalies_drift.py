"""
Anomalies in a stream that drifts
=================================

Two clusters circle slowly around the origin, and one point in fifty falls anywhere. A density that
remembers everything takes all places for normal where the clusters have ever been. One that forgets
does not.
"""

# %%
# The stream
# ----------
# Nobody tells which points are anomalies, so they are learned like all others.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

from skokde import OnlineKDEDensity

N = 4000
FIRST = 200  # points to learn from before the scores count
BLOCK = 10  # points that are scored, then learned

rng = np.random.default_rng(0)
angle = np.linspace(0.0, 1.5 * np.pi, N) + np.pi * rng.integers(2, size=N)
X = 3.0 * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(0.0, 0.4, (N, 2))
anomalous = (rng.random(N) < 0.02) & (np.arange(N) >= FIRST)
X[anomalous] = rng.uniform(-4.5, 4.5, (anomalous.sum(), 2))

# %%
# Three memories
# --------------
# Each point is scored by its log-density before it is learned; the lower, the more of an anomaly. A
# factor of 0.99 remembers some 100 points. It was chosen by someone who knows how fast the clusters
# move; ``"predictive"`` needs to know nothing, and comes close.


def scores(density):
    """Log-density of each point before it is learned."""
    density.partial_fit(X[:FIRST])
    blocks = np.split(X[FIRST:], range(BLOCK, N - FIRST, BLOCK))
    out = []
    for block in blocks:
        out.append(density.score_samples(block))
        density.partial_fit(block)
    return np.concatenate(out)


grid = np.linspace(-5.0, 5.0, 80)
places = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 3, figsize=(12, 4.6), layout="compressed")
for ax, factor in zip(axes, (1.0, 0.99, "predictive"), strict=True):
    density = OnlineKDEDensity(forgetting_factor=factor)
    area = roc_auc_score(anomalous[FIRST:], -scores(density))
    log_p = density.score_samples(places).reshape(len(grid), -1)
    ax.contourf(grid, grid, log_p, levels=np.arange(-12.0, 0.0), cmap="Blues", extend="both")
    ax.scatter(*X[-200:].T, s=4, color="black", label="last 200 points")
    ax.scatter(*X[anomalous].T, s=18, marker="x", color="#d55e00", label="anomalies, all along")
    ax.set(aspect="equal", xlim=(-5, 5), ylim=(-5, 5), xticks=[], yticks=[])
    ax.set_title(f"forgetting_factor={factor!r}\narea under the ROC curve {area:.3f}", fontsize=10)
axes[0].legend(loc="lower left", fontsize=8)
plt.show()

# %%
# To raise alarms at a stated level, instead of ranking points, see
# :ref:`sphx_glr_auto_examples_plot_stream_alarms.py`.
