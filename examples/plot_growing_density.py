"""
A density that grows with its stream
====================================

A kernel density estimate keeps all samples. An online one keeps a mixture of Gaussians: a new
sample enters as a point, and points that one Gaussian can stand for are merged. Here both are to be
seen while 1200 points come in along a spiral and into a cluster.
"""

# %%
# The stream
# ----------
# Four points in five lie along a spiral, the others fall into a round cluster beside it.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation
from matplotlib.collections import EllipseCollection

from skokde import OnlineKDEDensity

rng = np.random.default_rng(0)
N = 1200
angle = np.sqrt(rng.uniform(0.5, 9.0, N)) * np.pi
spiral = (0.35 * angle * [np.cos(angle), np.sin(angle)]).T
X = np.where(rng.random((N, 1)) < 0.8, spiral, [2.6, 3.0]) + 0.2 * rng.normal(size=(N, 2))

# %%
# Learn block by block
# --------------------
# ``partial_fit`` takes one row or many, and the model after any cutting of a stream into blocks is
# the same. After each block we note what the model holds. The threshold of 0.05 keeps it small, so
# that its components can be told apart; the default would hold more of them here.

AFTER = np.unique(np.geomspace(8, N, 30).astype(int))
EDGE = 4.3
grid = np.linspace(-EDGE, EDGE, 70)
places = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)

density = OnlineKDEDensity(compression_threshold=0.05)
frames = []
for start, stop in zip([0, *AFTER], AFTER, strict=False):
    density.partial_fit(X[start:stop])
    image = np.exp(density.score_samples(places)).reshape(len(grid), -1)
    frames.append((stop, X[start:stop], image, density.means_, density.covariances_))

# %%
# Watch it
# --------
# Blue is the density, orange the components of the model, drawn at two standard deviations; small
# orange dots are samples that no other has joined yet, and black ones have just arrived. At first
# there is a wide bump for each sample. Then kernels become narrower, and components settle along
# the spiral.


def ellipses(covariances):
    """Widths, heights and angles of ellipses at two standard deviations."""
    variances, axes = np.linalg.eigh(covariances)
    across, along = 4.0 * np.sqrt(np.maximum(variances, 0.0)).T
    return along, across, np.degrees(np.arctan2(axes[:, 1, 1], axes[:, 0, 1]))


def draw(frame):
    """Draw what the model held after a block."""
    n, new, image, means, covariances = frame
    ax.clear()
    ax.imshow(image**0.5, origin="lower", extent=[-EDGE, EDGE] * 2, cmap="Blues")
    single = covariances.trace(axis1=1, axis2=2) == 0.0
    ax.plot(*means[single].T, ".", color="#d55e00", markersize=3)
    ax.add_collection(
        EllipseCollection(
            *ellipses(covariances[~single]),
            units="xy",
            offsets=means[~single],
            offset_transform=ax.transData,
            facecolors="none",
            edgecolors="#d55e00",
        )
    )
    ax.plot(*new[-40:].T, ".", color="black", markersize=4)
    ax.set(title=f"{n} samples, {len(means)} components", xlabel="feature 0", ylabel="feature 1")
    ax.set(xlim=(-EDGE, EDGE), ylim=(-EDGE, EDGE))


figure, ax = plt.subplots(figsize=(4.8, 4.8), dpi=80, layout="constrained")
animation = FuncAnimation(figure, draw, frames=frames, interval=400)

# %%
# How many components there are
# -----------------------------
# Up to 30 samples nothing is merged. From then on the model is compressed each time that it has
# grown by a quarter. By default the model stays the finer the more there is to tell apart.

counts = np.arange(10, N + 1, 10)
figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for threshold, color in ((0.2, "#009e73"), (0.05, "#d55e00"), ("predictive", "#0072b2")):
    density = OnlineKDEDensity(compression_threshold=threshold)
    held = [density.partial_fit(X[n - 10 : n]).n_components_ for n in counts]
    ax.plot(counts, held, color=color, label=f"compression_threshold={threshold!r}")
ax.plot(counts, counts, ":", color="gray", label="all samples")
ax.set(xlabel="samples", ylabel="components", ylim=(0, 120))
ax.legend(frameon=False, loc="upper right")
plt.show()
