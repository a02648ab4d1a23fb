"""Look at a density of four features: all pairs, and each by itself.

    pip install ".[plot]" && python examples/density_display.py

Contours hold 50, 90 and 99 % of the probability, where the grid has as much. They are those of
exact marginals. scikit-learn's own display of boundaries draws a density of two features, too, by
its log-density.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris
from sklearn.inspection import DecisionBoundaryDisplay

from skokde import OnlineKDEDensity
from skokde.plot import DensityDisplay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default="density_display.png", help="picture to save")
    options = parser.parse_args()
    X = load_iris(as_frame=True).data
    display = DensityDisplay.from_estimator(OnlineKDEDensity().fit(X), X)
    # In the empty corner: two features by themselves, of which nothing is known but the density.
    pair = X[["petal length (cm)", "petal width (cm)"]]
    ax = display.figure_.add_axes((0.6, 0.66, 0.37, 0.31))
    density = OnlineKDEDensity().fit(pair)
    DecisionBoundaryDisplay.from_estimator(
        density, pair, response_method="score_samples", grid_resolution=200, ax=ax, cmap="Blues"
    )
    ax.set_title("log-density of two features", fontsize=9)
    plt.setp(ax.get_xticklabels() + ax.get_yticklabels(), fontsize=7)
    ax.set(xlabel="", ylabel="")
    display.figure_.savefig(options.out, dpi=90)
    print(f"Picture: {options.out}")


if __name__ == "__main__":
    main()
