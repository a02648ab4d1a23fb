"""
Predictive memory beside fixed forgetting factors
=================================================

A stream changes suddenly, and later changes back. A density that forgets nothing lags behind, one
that forgets at a fixed pace has lost the first regime when it comes back. With
``forgetting_factor="predictive"`` the stream decides how much the newest samples count.
"""

# %%
# A stream that changes twice
# ---------------------------
# In four dimensions, 800 points lie along a thin closed curve, the next 600 come from one wide
# Gaussian, and the last 800 lie along the curve again.

from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np

from skokde import OnlineKDEDensity

BLOCK = 20  # points that are scored, then learned
CURVE, GAUSSIAN = 800, 600  # points
rng = np.random.default_rng(0)


def curve():
    """Points along a closed curve."""
    t = rng.uniform(0.0, 2.0 * np.pi, CURVE)
    points = np.column_stack([np.cos(t), np.cos(2.0 * t), np.sin(t), np.sin(2.0 * t)])
    return 1.5 * points + rng.normal(0.0, 0.1, points.shape)


X = np.concatenate([curve(), rng.normal(2.0, 1.0, (GAUSSIAN, 4)), curve()])

# %%
# Score, then learn
# -----------------
# Three densities run side by side: one forgets nothing, one has a forgetting factor of 0.98, a
# memory of some 50 points, and one is told nothing of the stream. Each block is scored before it is
# learned, and after it ``expert_weights_`` tells what has predicted best so far.

densities = {
    factor: OnlineKDEDensity(forgetting_factor=factor) for factor in (1.0, 0.98, "predictive")
}
scores = {factor: [] for factor in densities}
weights = {"memory": [], "threshold": [], "width": []}
for start in range(0, len(X), BLOCK):
    block = X[start : start + BLOCK]
    for factor, density in densities.items():
        scores[factor].append(density.score(block) if start else np.nan)
        density.partial_fit(block)
    for kind, of_kind in weights.items():
        of_kind.append(densities["predictive"].expert_weights_[kind])

first, second = CURVE // BLOCK, (CURVE + GAUSSIAN) // BLOCK
parts = {
    "curve": slice(1, first),
    "Gaussian": slice(first, second),
    "curve again": slice(second, None),
    "its first 100 points": slice(second, second + 100 // BLOCK),
}
print("mean log-density, nats", *(f"{part:>20s}" for part in parts))
for factor, of_blocks in scores.items():
    print(f"factor {factor!s:15s}", *(f"{np.mean(of_blocks[s]):20.2f}" for s in parts.values()))

# %%
# What was found
# --------------
# Within a hundred points after the first change the weight has moved to the newest samples. When
# the curve comes back the model of all samples still has it, and the weight goes back there, while
# the density with a fixed factor has to learn the curve anew. Thresholds and widths follow more
# slowly.

STYLES = {
    "predictive": {"color": "#0072b2", "zorder": 3},
    1.0: {"color": "#767676", "linestyle": ":"},
    0.98: {"color": "#d55e00", "linestyle": "--"},
}
experts = OnlineKDEDensity().fit(X[:BLOCK]).experts_  # no threshold is given up yet
LABELS = {
    "memory": ["all samples", "newest, 0.9", "newest, 0.97", "newest, 0.997", "model, 0.99"],
    "threshold": ["the one held", *(f"{threshold:g}" for threshold in experts["threshold"][1:])],
    "width": [str(Fraction(width)) for width in experts["width"]],
}
TITLES = {
    "memory": "Weight of each memory",
    "threshold": "Weight of each threshold",
    "width": "Weight of each kernel width, in units of the normal-reference scale",
}

figure, axes = plt.subplots(
    4, 1, figsize=(9, 8.5), sharex=True, height_ratios=[1.5, 1, 1, 1], layout="constrained"
)
seen = BLOCK * np.arange(1, len(scores[1.0]) + 1)
for factor, of_blocks in scores.items():
    axes[0].plot(seen, of_blocks, label=f"forgetting_factor={factor!r}", **STYLES[factor])
axes[0].set(title=f"Mean log-density of the next {BLOCK} points, nats", ylim=(-19, 3))
axes[0].legend(frameon=False, loc="lower left")
changes = (0, CURVE, CURVE + GAUSSIAN)
for change, name in zip(changes, ("curve", "Gaussian", "curve again"), strict=True):
    axes[0].text(change + 15, 1.0, name, color="#767676")
for ax, (kind, of_kind) in zip(axes[1:], weights.items(), strict=True):
    # Thresholds that were given up are no longer listed: the first is the one held.
    n = len(LABELS[kind])
    rows = [np.concatenate([row[:1], np.zeros(n - len(row)), row[1:]]) for row in of_kind]
    shades = plt.get_cmap("viridis")(np.linspace(0.05, 0.95, n))
    ax.stackplot(seen, np.transpose(rows), labels=LABELS[kind], colors=shades, linewidth=0)
    ax.set(title=TITLES[kind], ylim=(0, 1), yticks=[0, 0.5, 1])
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
for ax in axes:
    for change in changes[1:]:
        ax.axvline(change, color="black", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
axes[-1].set(xlabel="points learned", xlim=(0, seen[-1]))
plt.show()
