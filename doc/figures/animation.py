"""A stream of points in two dimensions: components that are merged, and split again.

python animation.py FILE.gif
"""

import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from drawing import bare, draw_components, draw_density, spiral
from matplotlib.animation import FuncAnimation, PillowWriter

import skokde._engine.learn as learn
from skokde import OnlineKDEDensity

X = spiral(2000)
LIMITS = (-3.2, 3.2, -3.2, 3.2)


split = []
n_split = 0
revitalize = learn.revitalize


def observed(mixture, frame, threshold):
    """Revitalize, and note the means of what has been split."""
    revived = revitalize(mixture, frame, threshold)
    before = {mean.tobytes() for mean in mixture.means}
    split.extend(mean for mean in revived.means if mean.tobytes() not in before)
    return revived


def draw(frame):
    global n_split
    n = counts[min(frame, len(counts) - 1)]
    learned = int(getattr(density, "n_samples_seen_", 0))
    if n > learned:
        split.clear()
        density.partial_fit(X[learned:n])
        n_split += len(split) // 2
    for ax in axes:
        ax.clear()
        ax.axis(LIMITS)
    draw_components(axes[0], density, marked=np.array(split))
    bare(axes[0], f"{n} samples, {density.n_components_} components")
    draw_density(axes[1], density, LIMITS, n=70)
    bare(axes[1], f"{n_split} splits so far")


matplotlib.use("Agg")
learn.revitalize = observed
density = OnlineKDEDensity(compression_threshold=0.02)
figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.8))
figure.subplots_adjust(0.01, 0.01, 0.99, 0.92, 0.02)
counts = np.unique(np.geomspace(10, len(X), 45).astype(int))
# The last frame stays for two seconds.
animation = FuncAnimation(figure, draw, len(counts) + 8, init_func=lambda: None)
animation.save(sys.argv[1], PillowWriter(fps=4), dpi=90)
