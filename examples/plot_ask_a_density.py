"""
Conditional densities, regions, modes, draws
============================================

A fitted density is a mixture of Gaussians, and a mixture answers more than how dense it is at a
point: where most of the points are expected, where it has its modes, what y is where x is known,
and what new points look like.
"""

# %%
# A density of three clusters
# ---------------------------
# Two of the clusters are bent. ``distribution()`` returns the mixture that is scored, with the
# method names of SciPy's ``multivariate_normal``. The plug-in rule gives all kernels one width, so
# that the density is smooth. By default several widths are mixed; that predicts better, but the
# narrowest of them make many small modes.

import matplotlib.pyplot as plt
import numpy as np

from skokde import OnlineKDEDensity

rng = np.random.default_rng(0)
N = 1000
angle = np.pi * rng.random(N)
upper = 1.3 * np.column_stack([np.cos(angle) - 0.5, np.sin(angle)])
lower = 1.3 * np.column_stack([0.5 - np.cos(angle), 0.3 - np.sin(angle)])
X = np.choose(rng.integers(0, 3, size=(N, 1)), [upper, lower, [2.0, 2.2]])
X += 0.15 * rng.normal(size=(N, 2))

density = OnlineKDEDensity(bandwidth="plugin").fit(X)
p = density.distribution()
print(p)
print(f"mean {p.mean.round(2)}")
print(f"probability of x > 0 and y > 0: {p.integrate_box([0, 0], [np.inf, np.inf]):.3f}")
print(f"share of the points there: {(X > 0).all(axis=1).mean():.3f}")

# %%
# Regions, modes, conditionals, draws
# -----------------------------------
# Left, lines enclose the smallest regions in which 50 and 90 % of the points are expected; stars
# are the modes, and points have the color of the mode that is uphill from them. Middle, densities
# of y where x is known, along the three dotted lines, with their central intervals of 90 %: at 0
# and 1.5 there are two branches. Right, new points.

EDGES = (-2.6, 3.2)
SLICES = (-1.5, 0.0, 1.5)
COLORS = ("#0072b2", "#d55e00", "#009e73")

figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
grid = np.linspace(*EDGES, 100)
log_p = p.logpdf(np.stack(np.meshgrid(grid, grid), axis=-1))
levels = [p.highest_density_threshold(prob, random_state=0).value for prob in (0.9, 0.5)]
axes[0].contour(
    grid, grid, log_p, levels=levels, colors="black", linewidths=[0.8, 1.6], linestyles="solid"
)
modes = p.modes().points
axes[0].scatter(*X[:400].T, s=5, c=p.assign(X[:400]), cmap="tab20", vmax=19, alpha=0.6)
axes[0].scatter(*modes.T, s=70, marker="*", color="black", zorder=3)
axes[0].set_title(f"regions of 50 and 90 %, {len(modes)} modes,\nand what is uphill to each")

y = np.linspace(*EDGES, 300)
for number, (x, color) in enumerate(zip(SLICES, COLORS, strict=True)):
    axes[0].axvline(x, color=color, linestyle=":", linewidth=1.2)
    q = p.conditional(0, x)
    axes[1].plot(y, q.pdf(y), color=color, label=f"x = {x:g}")
    axes[1].plot(q.ppf([0.05, 0.95]), [-0.05 - 0.06 * number] * 2, color=color, linewidth=3)
axes[1].legend(frameon=False, loc="upper right")
axes[1].set(xlabel="y", title="densities of y given x,\nand intervals of 90 %")

axes[2].scatter(*density.sample(400, random_state=0).T, s=5, color="gray")
axes[2].set_title("400 draws")
for ax in axes[[0, 2]]:
    ax.set(aspect="equal", xlim=EDGES, ylim=EDGES, xlabel="x", ylabel="y")
plt.show()
