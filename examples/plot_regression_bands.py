"""
Regression: branches, bands, and a stream that jumps
====================================================

``OnlineKDERegressor`` learns the joint density of features and outputs. What it predicts is a
distribution for each row: its mean, its quantiles, or all of it.
"""

# %%
# An output with two branches
# ---------------------------
# One of two curves comes by chance, with noise that grows. The mean lies between them, where no row
# is. The predicted density has both; ``predict_distribution`` returns it, as a mixture of Gaussians
# for each row.

import matplotlib.pyplot as plt
import numpy as np

from skokde import OnlineKDERegressor

rng = np.random.default_rng(0)
x = rng.uniform(0.0, 4.0, size=800)
side = rng.choice([-1.0, 1.0], size=800)
y_branches = side * (0.5 + 0.4 * x) + (0.05 + 0.08 * x) * rng.normal(size=800)

of_branches = OnlineKDERegressor().fit(x[:, None], y_branches)
grid, heights = np.linspace(0.0, 4.0, 80), np.linspace(-3.2, 3.2, 100)
family = of_branches.predict_distribution(grid[:, None])
density = np.array([family.pdf(np.full((80, 1), height)) for height in heights])

# %%
# Intervals along a stream
# ------------------------
# The output depends on two features, its noise on one of them, and in the middle its zero point
# jumps. Rows come one at a time; each is predicted before it is learned. With
# ``forgetting_factor="predictive"`` the model follows the jump: some rows are missed, then
# intervals are wide, and then narrow again.

N, FIRST = 320, 60
t = np.arange(N)
X = np.column_stack([np.sin(t / 32.0), rng.normal(size=N)])
noise = 0.1 + 0.2 * (X[:, 1] > 1.0)
y = 2.0 * X[:, 0] + X[:, 1] + 3.0 * (t >= N // 2) + noise * rng.normal(size=N)

regressor = OnlineKDERegressor(forgetting_factor="predictive").fit(X[:FIRST], y[:FIRST])
bands = np.full((N, 2), np.nan)
for i in range(FIRST, N):
    bands[i] = regressor.predict_interval(X[[i]], coverage=0.9)[0]
    regressor.partial_fit(X[[i]], y[[i]])
inside = (bands[:, 0] <= y) & (y <= bands[:, 1])
print(f"in their intervals of 90 %: {inside[FIRST:].mean():.1%} of {N - FIRST} rows")
print(f"median width: {np.median(np.diff(bands[FIRST:])):.2f}, deviation of y: {y.std():.2f}")

# %%
# Look at both
# ------------
# Rows that are outside of their intervals are red.

figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
axes[0].pcolormesh(grid, heights, density, cmap="Blues", vmax=1.5)
axes[0].plot(x[::3], y_branches[::3], ".", markersize=2, color="0.3")
axes[0].plot(grid, of_branches.predict(grid[:, None]), color="#d55e00", label="predict")
axes[0].set(title="predicted density, two branches", xlabel="x", ylabel="y")
axes[0].legend(loc="upper left")

outside = ~inside & (t >= FIRST)
axes[1].fill_between(t, *bands.T, color="#56b4e9", alpha=0.5, linewidth=0, label="90 % interval")
axes[1].plot(t, y, ".", markersize=2, color="0.3")
axes[1].plot(t[outside], y[outside], ".", markersize=5, color="#d55e00", label="outside")
axes[1].set(title="a stream that jumps, row by row", xlabel="row", ylabel="y", ylim=(-6.0, 9.0))
axes[1].legend(loc="upper left")
plt.show()
