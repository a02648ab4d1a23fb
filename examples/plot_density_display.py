"""
A look at a density of four features
====================================

``DensityDisplay`` draws a density of one feature as a curve, of two as contours, and of more as a
grid of all pairs. What it shows are exact marginals, not projections of points.
"""

# %%
# All pairs of the features of iris
# ---------------------------------
# Contours hold 50, 90 and 99 % of the probability, where the grid has as much. Points are the rows.

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris
from sklearn.inspection import DecisionBoundaryDisplay

from skokde import OnlineKDEDensity
from skokde.plot import DensityDisplay

X = load_iris(as_frame=True).data
density = OnlineKDEDensity().fit(X)
display = DensityDisplay.from_estimator(density, X, grid_resolution=60)
plt.show()

# %%
# Two of them, in scikit-learn's display
# --------------------------------------
# scikit-learn's own display of boundaries draws a density of two features, too, by its log-density:
# that makes visible how improbable the space between the clusters is.

pair = X[["petal length (cm)", "petal width (cm)"]]
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
shown = DecisionBoundaryDisplay.from_estimator(
    OnlineKDEDensity().fit(pair), pair, response_method="score_samples", ax=ax, cmap="Blues"
)
ax.plot(*pair.to_numpy().T, ".", color="black", markersize=3)
figure.colorbar(shown.surface_, label="log-density, nats")
plt.show()
