"""The display of a density: a curve, contours, or a grid of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import prod
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skokde.distribution import GaussianMixtureDistribution
from skokde.distribution._gaussians import numbers_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of the probability of each feature, left out on either side of a grid; how far it goes at most
# beyond the middle half, in lengths of that; and what it is wider than all of this.
TAIL = 1e-3
FARTHEST = 1.75
MARGIN = 0.05
# Without a choice so many features are shown.
MOST_FEATURES = 4
PLOT_METHODS = ("contourf", "contour", "pcolormesh")


class DensityDisplay:
    """A density of one feature as a curve, of two as contours, of more as a grid of pairs.

    Make it by :meth:`from_estimator` or :meth:`from_distribution`. What is shown are exact
    marginals, whatever the number of features.

    Parameters
    ----------
    distribution : GaussianMixtureDistribution
        Of the features that are shown, in their order.
    names : sequence of str
        Of the features.
    grids : list of (grid_resolution,) arrays
        Values of each feature.
    densities : dict of arrays
        By numbers of features: (i,) the density on the grid of one, (i, j) that of a pair, with a
        row for each value of j.
    thresholds : dict of (n_levels,) arrays
        By the same numbers: densities above which there is as much probability as the levels say;
        zero where the grid has less.
    levels : (n_levels,) array
        Probabilities, in descending order.
    X : (n, n_features) array, default=None
        Rows that are shown as points.

    Attributes
    ----------
    ax_ : Axes or (n_features, n_features) array of Axes
        After :meth:`plot`; None above the diagonal.
    figure_ : Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skokde import OnlineKDEDensity
    >>> from skokde.plot import DensityDisplay
    >>> X = load_iris().data[:, 2:]
    >>> display = DensityDisplay.from_estimator(OnlineKDEDensity().fit(X), X)
    >>> display.densities[0, 1].shape
    (100, 100)
    """

    def __init__(
        self,
        distribution: GaussianMixtureDistribution,
        *,
        names: Sequence[str],
        grids: list[np.ndarray],
        densities: dict[tuple[int, ...], np.ndarray],
        thresholds: dict[tuple[int, ...], np.ndarray],
        levels: np.ndarray,
        X: np.ndarray | None = None,
    ) -> None:
        self.distribution = distribution
        self.names = names
        self.grids = grids
        self.densities = densities
        self.thresholds = thresholds
        self.levels = levels
        self.X = X

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike | None = None,
        *,
        features: int | str | Iterable[int | str] | None = None,
        levels: Iterable[float] = (0.5, 0.9, 0.99),
        grid_resolution: int = 100,
        plot_method: str = "contourf",
        components: bool = False,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Display what a fitted estimator has learned.

        Parameters
        ----------
        estimator : OnlineKDEDensity, OnlineKDEClassifier, or another with a ``density_``
            Of a classifier all classes together; see :meth:`from_distribution` for one of them.
        X : array-like of shape (n_samples, n_features), default=None
            Rows that are shown as points. NaN is left out.
        features : int, str, or several of them, default=None
            By number or name; by default the first four.
        levels : iterable of float, default=(0.5, 0.9, 0.99)
            Probabilities of the smallest regions whose edges are drawn, between 0 and 1.
        grid_resolution : int, default=100
            Values of each feature, at least 2.
        plot_method : {"contourf", "contour", "pcolormesh"}, default="contourf"
            How pairs are drawn.
        components : bool, default=False
            Whether ellipses of one standard deviation are drawn for the mixture's components.
        ax : Axes, default=None
            Where to draw a curve or one pair; by default, and for more features, in a new figure.
        **kwargs
            Passed on to the plot method.

        Returns
        -------
        DensityDisplay
            Already drawn.

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError, TypeError
            For a parameter out of its range, and estimators without a density.
        """
        if not hasattr(estimator, "distribution"):
            if not hasattr(estimator, "density_"):
                raise TypeError(
                    "estimator must have learned a density (distribution or density_), got "
                    f"{estimator!r}."
                )
            estimator = estimator.density_
        return cls._of_marginal(
            lambda numbers: estimator.distribution(dimensions=numbers),
            (estimator.n_features_in_, getattr(estimator, "feature_names_in_", None)),
            X,
            features,
            levels,
            grid_resolution,
            plot_method=plot_method,
            components=components,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_distribution(
        cls,
        distribution: GaussianMixtureDistribution,
        X: ArrayLike | None = None,
        *,
        features: int | str | Iterable[int | str] | None = None,
        levels: Iterable[float] = (0.5, 0.9, 0.99),
        grid_resolution: int = 100,
        plot_method: str = "contourf",
        components: bool = False,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Display a distribution.

        Parameters
        ----------
        distribution : GaussianMixtureDistribution
            For instance ``classifier.distribution(label)``.
        X, features, levels, grid_resolution, plot_method, components, ax, **kwargs
            See :meth:`from_estimator`.

        Returns
        -------
        DensityDisplay
        """
        return cls._of_marginal(
            distribution.marginal,
            (distribution.n_features, distribution.feature_names),
            X,
            features,
            levels,
            grid_resolution,
            plot_method=plot_method,
            components=components,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def _of_marginal(
        cls,
        marginal_of: Callable[[list[int]], GaussianMixtureDistribution],
        whole: tuple[int, Sequence[str] | None],
        X: ArrayLike | None,
        features: int | str | Iterable[int | str] | None,
        levels: Iterable[float],
        grid_resolution: int,
        **kwargs: Any,
    ) -> Self:
        """Display some features of a distribution, by the number and the names of all of them."""
        check_matplotlib()
        if not isinstance(grid_resolution, Integral) or grid_resolution < 2:
            raise ValueError(
                f"grid_resolution must be an integer of at least 2, got {grid_resolution!r}."
            )
        levels = checked_levels(levels)
        n_features, _ = whole
        numbers = list(range(min(n_features, MOST_FEATURES)))
        if features is not None:
            numbers = numbers_of(features, *whole)
        shown = marginal_of(numbers)
        names = shown.feature_names or [f"feature {number}" for number in numbers]
        if X is not None:
            X = np.asarray(X, dtype=float)
            if X.ndim != 2 or X.shape[1] != n_features:
                raise ValueError(
                    f"X must have the distribution's {n_features} features, got the shape "
                    f"{X.shape}."
                )
            X = X[:, numbers]
        n = len(numbers)
        marginals = [shown.marginal(i) for i in range(n)]
        grids = [
            grid_of(marginal, None if X is None else X[:, i], grid_resolution)
            for i, marginal in enumerate(marginals)
        ]
        densities = {
            (i,): marginal.pdf(grid[:, None])
            for i, (marginal, grid) in enumerate(zip(marginals, grids, strict=True))
        }
        for i, j in combinations(range(n), 2):
            pair = shown.marginal([i, j])
            points = np.stack(np.meshgrid(grids[i], grids[j]), axis=-1)
            densities[i, j] = pair.pdf(points.reshape(-1, 2)).reshape(points.shape[:2])
        steps = [grid[1] - grid[0] for grid in grids]
        thresholds = {
            key: thresholds_of(density, prod(steps[i] for i in key), levels)
            for key, density in densities.items()
        }
        display = cls(
            shown,
            names=names,
            grids=grids,
            densities=densities,
            thresholds=thresholds,
            levels=levels,
            X=X,
        )
        return display.plot(**kwargs)

    def plot(
        self,
        *,
        plot_method: str = "contourf",
        components: bool = False,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the display, in the same way or another.

        Parameters
        ----------
        plot_method, components, ax, **kwargs
            See :meth:`from_estimator`.

        Returns
        -------
        self : DensityDisplay
        """
        plt = check_matplotlib()
        if plot_method not in PLOT_METHODS:
            raise ValueError(f"plot_method must be one of {PLOT_METHODS}, got {plot_method!r}.")
        n = len(self.grids)
        if n > 2:
            if ax is not None:
                raise ValueError("ax is for one or two features; more need a figure of their own.")
            self.figure_, self.ax_ = plt.subplots(
                n, n, figsize=(2.2 * n, 2.2 * n), layout="constrained", sharex="col"
            )
            for i, j in np.ndindex(n, n):
                if i == j:
                    self._draw_curve(self.ax_[i, i], i)
                elif i > j:
                    self._draw_pair(self.ax_[i, j], j, i, plot_method, components, kwargs)
                else:
                    self.ax_[i, j].remove()
                    self.ax_[i, j] = None
            for axes in filter(None, self.ax_.ravel()):
                axes.label_outer()
            return self
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        if n == 1:
            self._draw_curve(ax, 0, **kwargs)
            ax.set(ylabel="density")
        else:
            self._draw_pair(ax, 0, 1, plot_method, components, kwargs)
        return self

    def _draw_curve(self, ax: Axes, i: int, **kwargs: Any) -> None:
        grid, density = self.grids[i], self.densities[i,]
        (line,) = ax.plot(grid, density, **kwargs)
        for threshold in filter(None, self.thresholds[i,]):
            within = density >= threshold
            ax.fill_between(
                grid, density, where=within, color=line.get_color(), alpha=0.2, linewidth=0.0
            )
        if self.X is not None:
            values = self.X[np.isfinite(self.X[:, i]), i]
            ax.plot(values, np.zeros(len(values)), "|", color="0.3", markersize=6, alpha=0.5)
        ax.set(xlabel=self.names[i], ylim=(0.0, None))

    def _draw_pair(
        self, ax: Axes, i: int, j: int, plot_method: str, components: bool, kwargs: dict[str, Any]
    ) -> None:
        x, y, density = self.grids[i], self.grids[j], self.densities[i, j]
        # Equal where a region is smaller than the grid can show.
        edges = np.unique(self.thresholds[i, j])
        edges = edges[edges > 0.0]
        if plot_method == "pcolormesh" or not len(edges):
            ax.pcolormesh(x, y, density, **{"shading": "nearest", "cmap": "Blues"} | kwargs)
        else:
            last = [max(density.max(), edges[-1]) * (1.0 + 1e-9)] * (plot_method == "contourf")
            style = {"cmap": "Blues"} if "colors" not in kwargs else {}
            getattr(ax, plot_method)(x, y, density, levels=[*edges, *last], **style | kwargs)
        if self.X is not None:
            ax.plot(self.X[:, i], self.X[:, j], ".", color="0.3", markersize=2, alpha=0.5)
        if components:
            ax.add_collection(ellipses(self.distribution.marginal([i, j]), ax))
        ax.set(xlabel=self.names[i], ylabel=self.names[j], xlim=x[[0, -1]], ylim=y[[0, -1]])


def check_matplotlib() -> Any:
    """matplotlib.pyplot, or an error that says what to install."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("DensityDisplay needs matplotlib: pip install 'skokde[plot]'.") from error
    return plt


def checked_levels(levels: Iterable[float]) -> np.ndarray:
    """Probabilities in descending order, so that densities ascend."""
    levels = list(levels)
    right = all(isinstance(p, Real) and 0.0 < p < 1.0 for p in levels)
    if not levels or not right or len(set(levels)) < len(levels):
        raise ValueError(f"levels must be different probabilities between 0 and 1, got {levels}.")
    return np.sort(np.array(levels, dtype=float))[::-1]


def grid_of(marginal: GaussianMixtureDistribution, values: np.ndarray | None, n: int) -> np.ndarray:
    """Values of a feature, nearly all of its probability and all that is to be shown within."""
    low, first, third, high = marginal.ppf([TAIL, 0.25, 0.75, 1.0 - TAIL])
    # Wide Gaussians of little weight, which are for outliers, would make all else a dot.
    middle = third - first
    ends = max(low, first - FARTHEST * middle), min(high, third + FARTHEST * middle)
    if values is not None and np.isfinite(values).any():
        values = values[np.isfinite(values)]
        ends = min(ends[0], values.min()), max(ends[1], values.max())
    margin = MARGIN * (ends[1] - ends[0])
    return np.linspace(ends[0] - margin, ends[1] + margin, n)


def thresholds_of(density: np.ndarray, size: float, levels: np.ndarray) -> np.ndarray:
    """Densities on a grid above which there is as much probability as levels say, zero if nowhere.

    Parameters
    ----------
    density : array
    size : float
        Of a cell of the grid.
    levels : (n_levels,) array
    """
    falling = np.sort(density.ravel())[::-1]
    mass = np.cumsum(falling) * size
    return np.append(falling, 0.0)[np.searchsorted(mass, levels)]


def ellipses(pair: GaussianMixtureDistribution, ax: Axes) -> Any:
    """Components of two features, one standard deviation around, as dark as they weigh."""
    from matplotlib.collections import EllipseCollection

    covariances = pair.covariances
    if covariances.ndim == 2:
        covariances = covariances[:, :, None] * np.eye(2)
    variances, axes = np.linalg.eigh(covariances)
    diameters = 2.0 * np.sqrt(np.maximum(variances, 0.0))
    angles = np.degrees(np.arctan2(axes[:, 1, 1], axes[:, 0, 1]))
    return EllipseCollection(
        diameters[:, 1],
        diameters[:, 0],
        angles,
        units="xy",
        offsets=pair.means,
        offset_transform=ax.transData,
        facecolors="none",
        edgecolors="C1",
        alpha=np.sqrt(pair.weights / pair.weights.max()),
    )
