"""The display of densities, by its arrays and by what it looks like.

After a change of its looks, make the picture anew, and look at it:
``python tests/test_plot.py``.
"""

import builtins
import sys
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.testing.compare import compare_images
from scipy.stats import norm

from skokde import OnlineKDEClassifier, OnlineKDEDensity, OnlineKDEOutlierDetector
from skokde.distribution import GaussianMixtureDistribution
from skokde.plot import DensityDisplay

PICTURE = Path(__file__).parent / "baseline" / "density_display.png"
MIXTURE = GaussianMixtureDistribution(
    [0.6, 0.4],
    [[0.0, 0.0, 1.0], [3.0, 1.0, -2.0]],
    [np.eye(3), [[1.0, 0.7, 0.0], [0.7, 1.0, 0.0], [0.0, 0.0, 0.25]]],
    feature_names=["a", "b", "c"],
)
ROWS = MIXTURE.rvs(300, random_state=0)


@pytest.fixture(autouse=True)
def no_windows():
    with mpl.rc_context({"backend": "agg"}):
        yield
        plt.close("all")


@pytest.mark.parametrize("features", [None, "b", ["c", "a"], [2, 0, 1]])
def test_arrays_are_exact_marginals(features):
    display = DensityDisplay.from_distribution(MIXTURE, features=features, grid_resolution=23)
    numbers = [0, 1, 2] if features is None else MIXTURE.numbers_of(features)
    assert list(display.names) == ["abc"[number] for number in numbers]
    n = len(numbers)
    assert set(display.densities) == {(i,) for i in range(n)} | set(combinations(range(n), 2))
    for key, density in display.densities.items():
        marginal = MIXTURE.marginal([numbers[i] for i in key])
        points = np.stack(np.meshgrid(*(display.grids[i] for i in key)), axis=-1)
        assert density.shape == len(key) * (23,)
        np.testing.assert_allclose(
            density, marginal.pdf(points.reshape(-1, len(key))).reshape(density.shape)
        )


def test_regions_hold_the_probability_that_they_say():
    normal = GaussianMixtureDistribution([1.0], [[2.0]], [[9.0]])
    display = DensityDisplay.from_distribution(normal, levels=[0.5, 0.9], grid_resolution=2000)
    edges = norm.ppf(0.5 + 0.5 * np.array([0.9, 0.5]))
    np.testing.assert_allclose(display.levels, [0.9, 0.5])
    np.testing.assert_allclose(display.thresholds[0,], norm.pdf(edges) / 3.0, rtol=0.01)
    display = DensityDisplay.from_distribution(MIXTURE, features=[0, 1], grid_resolution=300)
    for level, threshold in zip(display.levels, display.thresholds[0, 1], strict=True):
        inside = (
            MIXTURE.marginal([0, 1]).pdf(MIXTURE.rvs(20_000, random_state=1)[:, :2]) > threshold
        )
        assert inside.mean() == pytest.approx(level, abs=0.01)


def test_wide_gaussians_of_little_weight_do_not_decide_the_grid():
    outliers = GaussianMixtureDistribution([0.98, 0.02], [[0.0], [0.0]], [[1.0], [1e6]])
    (grid,) = DensityDisplay.from_distribution(outliers).grids
    assert -6.0 < grid[0] < -3.0
    (grid,) = DensityDisplay.from_distribution(outliers, [[500.0], [np.nan]]).grids
    assert grid[0] < 0.0 < 500.0 < grid[-1]
    # The grid has less than .99 of the probability.
    display = DensityDisplay.from_distribution(outliers, levels=[0.99])
    np.testing.assert_array_equal(display.thresholds[0,], [0.0])


def test_estimators():
    frame = pd.DataFrame(ROWS, columns=list("abc"))
    y = (ROWS[:, 0] > 1.5).astype(int)
    for estimator in (
        OnlineKDEDensity().fit(frame),
        OnlineKDEClassifier().fit(frame, y),
        OnlineKDEOutlierDetector().fit(frame),
    ):
        display = DensityDisplay.from_estimator(estimator, frame, grid_resolution=9)
        assert list(display.names) == ["a", "b", "c"]
        assert display.ax_.shape == (3, 3)
        assert display.ax_[0, 1] is None
        assert display.ax_[2, 1].get_xlabel() == "b"
        assert display.ax_[2, 0].get_ylabel() == "c"
    five = OnlineKDEDensity().fit(np.hstack([ROWS, ROWS**2])[:, :5])
    display = DensityDisplay.from_estimator(five, grid_resolution=5)
    assert list(display.names) == [f"feature {number}" for number in range(4)]


def test_one_axes_for_a_curve_or_a_pair():
    figure, (first, second) = plt.subplots(1, 2)
    display = DensityDisplay.from_distribution(MIXTURE, features=0, ax=first, color="k")
    assert display.ax_ is first
    assert display.figure_ is figure
    (line,) = first.lines
    np.testing.assert_array_equal(line.get_ydata(), display.densities[0,])
    assert line.get_color() == "k"
    display = DensityDisplay.from_distribution(MIXTURE, ROWS, features=[0, 1], ax=second)
    assert len(second.lines[0].get_xdata()) == 300
    for method in ("contour", "pcolormesh"):
        assert display.plot(plot_method=method, components=True).ax_ is not second
    ellipses = display.ax_.collections[-1]
    np.testing.assert_array_equal(ellipses.get_offsets(), MIXTURE.means[:, :2])
    with pytest.raises(ValueError, match="figure of their own"):
        DensityDisplay.from_distribution(MIXTURE, ax=first)


WRONG = [
    ({"levels": []}, "levels"),
    ({"levels": [0.5, 1.0]}, "levels"),
    ({"levels": [0.5, 0.5]}, "levels"),
    ({"grid_resolution": 1}, "grid_resolution"),
    ({"plot_method": "hexbin"}, "plot_method"),
    ({"features": "d"}, "no feature 'd'"),
    ({"X": ROWS[:, :2]}, "3 features"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        DensityDisplay.from_distribution(MIXTURE, **arguments)


def test_what_has_no_density():
    with pytest.raises(TypeError, match="learned a density"):
        DensityDisplay.from_estimator(object())


def test_without_matplotlib(monkeypatch):
    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return import_module(name, *args, **kwargs)

    import_module = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'skokde\[plot\]'"):
        DensityDisplay.from_distribution(MIXTURE)


def draw(path):
    with mpl.rc_context({"backend": "agg"} | mpl.rcParamsDefault):
        display = DensityDisplay.from_distribution(MIXTURE, ROWS, components=True)
        # Letters differ from one version of their library to the next.
        for ax in filter(None, display.ax_.ravel()):
            ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
        display.figure_.savefig(path, dpi=60)


@pytest.mark.filterwarnings("ignore::matplotlib.MatplotlibDeprecationWarning")
def test_picture(tmp_path):
    draw(tmp_path / "density_display.png")
    assert compare_images(str(PICTURE), str(tmp_path / "density_display.png"), tol=8.0) is None


if __name__ == "__main__":
    sys.exit(draw(PICTURE))
