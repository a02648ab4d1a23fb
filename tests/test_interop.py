"""In other packages' hands: river's wrappers, scikit-learn's display of boundaries."""

from importlib.metadata import version

import numpy as np
import pytest
from packaging.version import Version
from sklearn.datasets import load_iris
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.utils import shuffle

from skokde import OnlineKDEClassifier, OnlineKDEDensity, OnlineKDERegressor

newer_displays = pytest.mark.skipif(
    Version(version("scikit-learn")) < Version("1.7"),
    reason="older displays take neither several classes nor densities",
)


@pytest.fixture(scope="module")
def iris():
    return shuffle(*load_iris(return_X_y=True), random_state=0)


def test_river_learns_and_predicts_row_by_row(iris):
    compat = pytest.importorskip("river.compat")
    X, y = iris
    model = compat.convert_sklearn_to_river(OnlineKDEClassifier(), classes=[0, 1, 2])
    direct, right = OnlineKDEClassifier(), 0
    for row, label in zip(X, y.tolist(), strict=True):
        x = dict(zip("abcd", row.tolist(), strict=True))
        expected = 0
        if direct.__sklearn_is_fitted__():
            expected = direct.predict(row[None])[0]
            right += expected == label
            assert model.predict_one(x) == expected
            proba = model.predict_proba_one(x)
            np.testing.assert_allclose(list(proba.values()), direct.predict_proba(row[None])[0])
        model.learn_one(x, label)
        direct.partial_fit(row[None], [label], classes=[0, 1, 2])
    assert right / len(y) > 0.88


def test_river_regresses_row_by_row():
    compat = pytest.importorskip("river.compat")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] - 2.0 * X[:, 1]
    model, direct = compat.convert_sklearn_to_river(OnlineKDERegressor()), OnlineKDERegressor()
    for row, value in zip(X, y.tolist(), strict=True):
        x = dict(zip("ab", row.tolist(), strict=True))
        if direct.__sklearn_is_fitted__():
            assert model.predict_one(x) == pytest.approx(direct.predict(row[None])[0], rel=1e-9)
        model.learn_one(x, value)
        direct.partial_fit(row[None], [value])
    assert model.predict_one({"a": 1.0, "b": 1.0}) == pytest.approx(-1.0, abs=0.2)


def test_river_has_no_wrapper_for_densities():
    compat = pytest.importorskip("river.compat")
    with pytest.raises(ValueError, match="Couldn't find an appropriate wrapper"):
        compat.convert_sklearn_to_river(OnlineKDEDensity())


@newer_displays
@pytest.mark.parametrize("response_method", ["predict", "predict_proba", "auto"])
def test_boundaries_of_classes_are_displayed(iris, response_method):
    plt = pytest.importorskip("matplotlib.pyplot")
    X, y = iris
    classifier = OnlineKDEClassifier().fit(X[:, :2], y)
    display = DecisionBoundaryDisplay.from_estimator(
        classifier, X[:, :2], response_method=response_method, grid_resolution=20
    )
    grid = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    expected = (
        classifier.predict(grid) if response_method == "predict" else classifier.predict_proba(grid)
    )
    np.testing.assert_allclose(display.response.reshape(expected.shape), expected)
    plt.close("all")


@newer_displays
def test_densities_are_displayed(iris):
    plt = pytest.importorskip("matplotlib.pyplot")
    density = OnlineKDEDensity().fit(iris[0][:, :2])
    display = DecisionBoundaryDisplay.from_estimator(
        density, iris[0][:, :2], response_method="score_samples", grid_resolution=20
    )
    grid = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    np.testing.assert_allclose(display.response.ravel(), density.score_samples(grid))
    plt.close("all")
