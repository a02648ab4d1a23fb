"""Missing values filled in: conditional means of an online density, or draws."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity, OnlineKDEImputer

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))


def line(n=400, seed=0):
    """Rows on two lines, far apart, with little noise."""
    rng = np.random.default_rng(seed)
    side, x = rng.integers(0, 2, size=n), rng.normal(size=n)
    columns = [x, 2.0 * x + 20.0 * side, side + 0.1 * rng.normal(size=n)]
    return np.column_stack(columns) + 0.05 * rng.normal(size=(n, 3))


def with_holes(X, share=0.3, seed=1):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(X.shape) < share, np.nan, X)


@parametrize_with_checks(
    [
        OnlineKDEImputer(),
        OnlineKDEImputer(covariance_type="diag", add_indicator=True),
        OnlineKDEImputer(sample_posterior=True, random_state=0, keep_empty_features=False),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@both_structures
def test_what_is_known_stays_and_nothing_is_left_missing(covariance_type):
    X = with_holes(line())
    for sample in (False, True):
        imputer = OnlineKDEImputer(
            covariance_type=covariance_type, sample_posterior=sample, random_state=0
        )
        filled = imputer.fit_transform(X)
        known = ~np.isnan(X)
        np.testing.assert_array_equal(filled[known], X[known])
        assert np.isfinite(filled).all()


@both_structures
def test_means_are_those_of_the_conditional_distribution(covariance_type):
    X = line()
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    imputer = OnlineKDEImputer(covariance_type=covariance_type).fit(X)
    rows = X[:20].copy()
    rows[:, 1] = np.nan
    expected = density.distribution().conditional([0, 2], X[:20][:, [0, 2]]).mean[:, 0]
    found = imputer.transform(rows)[:, 1]
    # Gaussians that hardly matter are left out.
    np.testing.assert_allclose(found, expected, atol=0.01 * X[:, 1].std())
    assert np.sqrt(np.mean((found - X[:20, 1]) ** 2)) < 0.15 * X[:, 1].std()
    nothing = imputer.transform(np.full((1, 3), np.nan))
    np.testing.assert_allclose(nothing, density.distribution().mean[None], rtol=1e-9)


def test_better_than_means_where_most_rows_are_incomplete():
    X, holes = line(600), with_holes(line(600), 0.3)
    missing = np.isnan(holes)
    errors = [
        np.sqrt(np.mean(((imputer.fit_transform(holes) - X) / X.std(axis=0))[missing] ** 2))
        for imputer in (OnlineKDEImputer(), SimpleImputer())
    ]
    assert errors[0] < 0.7 * errors[1]


@pytest.mark.slow
def test_rows_are_not_filled_in_by_their_own_completions(state_of):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 1)) + 0.3 * rng.normal(size=(500, 5))
    holes = with_holes(X, 0.15)
    missing, imputer = np.isnan(holes), OnlineKDEImputer()
    error = np.sqrt(np.mean((imputer.fit_transform(holes) - X)[missing] ** 2))
    own = np.sqrt(np.mean((imputer.transform(holes) - X)[missing] ** 2))
    assert error < 0.9 * own
    assert error < 0.45  # 0.34 at best, by the factor that all features share
    assert state_of(imputer) == state_of(OnlineKDEImputer().fit(holes))
    # With nothing missing nothing is learned twice.
    np.testing.assert_array_equal(OnlineKDEImputer().fit_transform(X), X)
    few = np.array([[1.0, np.nan], [np.nan, 2.0]])
    assert np.isfinite(OnlineKDEImputer().fit_transform(few)).all()


@both_structures
def test_draws_have_the_spread_that_means_lack(covariance_type):
    X = line(1000)
    holes = X.copy()
    holes[::2, 1] = np.nan
    drawn = OnlineKDEImputer(
        covariance_type=covariance_type, sample_posterior=True, random_state=0
    ).fit(X)
    filled = drawn.transform(holes)
    np.testing.assert_array_equal(filled, drawn.transform(holes))
    other = clone(drawn).set_params(random_state=1).fit(X).transform(holes)
    assert (other[::2, 1] != filled[::2, 1]).all()
    # Given nothing at all, both sides are drawn.
    nothing = drawn.transform(np.full((500, 3), np.nan))
    assert 0.4 < np.mean(nothing[:, 1] > 10.0) < 0.6
    # The few wide Gaussians for outliers are beyond these.
    spreads = [np.subtract(*np.percentile(rows, [90, 10], axis=0)) for rows in (nothing, X)]
    np.testing.assert_allclose(*spreads, rtol=0.15)


@both_structures
def test_blocks_and_storage_change_nothing(covariance_type, state_of):
    X = with_holes(line(150))
    whole = OnlineKDEImputer(covariance_type=covariance_type).fit(X)
    blocks = OnlineKDEImputer(covariance_type=covariance_type)
    for at in np.split(np.arange(150), [1, 2, 5, 60, 61]):
        blocks = pickle.loads(pickle.dumps(blocks.partial_fit(X[at])))
    assert state_of(blocks) == state_of(whole)
    np.testing.assert_array_equal(blocks.transform(X), whole.transform(X))


def test_parameters_take_effect_at_once():
    X = with_holes(line())
    imputer = OnlineKDEImputer().fit(X)
    before = imputer.transform(X)
    imputer.set_params(bandwidth=5.0)
    assert (imputer.transform(X) != before).any()
    imputer.set_params(bandwidth="predictive")
    np.testing.assert_array_equal(imputer.transform(X), before)


def test_indicators_are_those_of_scikit_learn():
    X = line()
    X[::3, 1] = np.nan
    imputer = OnlineKDEImputer(add_indicator=True).fit(X)
    found, marked = imputer.transform(X), MissingIndicator().fit_transform(X)
    np.testing.assert_array_equal(found[:, 3:], marked)
    assert imputer.incomplete_features_.tolist() == [False, True, False]
    assert imputer.get_feature_names_out().tolist() == ["x0", "x1", "x2", "missingindicator_x1"]


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
def test_empty_features():
    X = line()
    X[:, 1] = np.nan
    kept = OnlineKDEImputer().fit(X)
    assert kept.empty_features_.tolist() == [False, True, False]
    np.testing.assert_array_equal(kept.transform(X)[:, 1], 0.0)
    dropped = OnlineKDEImputer(keep_empty_features=False).fit(X)
    np.testing.assert_array_equal(dropped.transform(X), X[:, [0, 2]])
    assert dropped.get_feature_names_out(["a", "b", "c"]).tolist() == ["a", "c"]
    # A value that comes later counts.
    dropped.partial_fit([[0.0, 3.0, 0.0]])
    assert not dropped.empty_features_.any()
    dropped.partial_fit([[0.0, np.nan, 0.0]])
    assert not dropped.empty_features_.any()


def test_frames_of_polars():
    polars = pytest.importorskip("polars")
    holes = with_holes(line())
    frame = polars.DataFrame(holes, schema=["a", "b", "c"])
    imputer = OnlineKDEImputer(add_indicator=True).set_output(transform="polars").fit(frame)
    filled = imputer.transform(frame)
    assert filled.columns == imputer.get_feature_names_out().tolist()
    expected = OnlineKDEImputer(add_indicator=True).fit(holes).transform(holes)
    np.testing.assert_array_equal(filled.to_numpy(), expected)
    # polars has a missing value of its own.
    nulls = frame.fill_nan(None)
    np.testing.assert_array_equal(imputer.transform(nulls).to_numpy(), expected)


def test_frames():
    X = pd.DataFrame(with_holes(line()), columns=["a", "b", "c"])
    imputer = OnlineKDEImputer(add_indicator=True).set_output(transform="pandas").fit(X)
    out = imputer.transform(X)
    indicators = [f"missingindicator_{name}" for name in "abc"]
    assert out.columns.tolist() == ["a", "b", "c", *indicators]
    assert not out.isna().any().any()
    with pytest.raises(ValueError, match="feature names"):
        imputer.transform(X[["b", "a", "c"]])


def test_in_a_pipeline_with_a_search():
    X = line(150)
    y = (X[:, 1] > 10.0).astype(int)
    pipeline = make_pipeline(OnlineKDEImputer(), OnlineKDEClassifier())
    grid = {"onlinekdeimputer__covariance_type": ["full", "diag"]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(with_holes(X), y)
    assert search.best_score_ > 0.9


def test_bad_calls_change_nothing(state_of):
    X = with_holes(line(80))
    imputer = OnlineKDEImputer()
    with pytest.raises(NotFittedError):
        imputer.transform(X)
    imputer.partial_fit([[1.0, np.nan, np.nan]])  # it waits
    with pytest.raises(NotFittedError):
        imputer.transform(X)
    imputer.fit(X)
    before = state_of(imputer)
    infinite = X.copy()
    infinite[0, 0] = np.inf
    for call, match in [
        (lambda: imputer.fit(infinite), "infinity"),
        (lambda: imputer.partial_fit(infinite), "infinity"),
        (lambda: imputer.transform(infinite), "infinity"),
        (lambda: imputer.partial_fit(X[:, :2]), "2 features"),
        (lambda: imputer.fit(np.full((4, 3), np.nan)), "all values of X are missing"),
        (lambda: imputer.fit(X, sample_weight=np.zeros(80)), "All sample weights are zero"),
        (lambda: imputer.partial_fit(X, sample_weight=-np.ones(80)), "Negative"),
    ]:
        with pytest.raises(ValueError, match=match):
            call()
        assert state_of(imputer) == before
    for name in ("sample_posterior", "add_indicator", "keep_empty_features"):
        wrong = clone(imputer).set_params(**{name: 1.0})
        with pytest.raises(TypeError, match=f"{name} must be True or False"):
            wrong.fit(X)
        assert not hasattr(wrong, "density_")


def test_weights_are_repetitions_of_complete_rows(state_of):
    X = line(100)
    weights = np.random.default_rng(0).integers(0, 3, size=100)
    weighted = OnlineKDEImputer().fit(X, sample_weight=weights)
    repeated = OnlineKDEImputer().fit(X.repeat(weights, axis=0))
    rows = with_holes(X)
    np.testing.assert_allclose(weighted.transform(rows), repeated.transform(rows), rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("density_", None),
        ("density_", OnlineKDEImputer()),
        ("empty_features_", np.zeros(2, dtype=bool)),
        ("incomplete_features_", np.zeros(3)),
    ],
)
def test_damage_is_found(name, value):
    state = OnlineKDEImputer().fit(line(50)).__getstate__() | {name: value}
    with pytest.raises(ValueError, match="damaged"):
        OnlineKDEImputer().__setstate__(state)


@both_structures
def test_units_do_not_matter(covariance_type):
    X, units = line(200), np.array([1e-12, 1e12, 1.0])
    rows = with_holes(X)
    plain = OnlineKDEImputer(covariance_type=covariance_type).fit(rows).transform(rows)
    scaled = OnlineKDEImputer(covariance_type=covariance_type).fit(rows * units)
    np.testing.assert_allclose(scaled.transform(rows * units) / units, plain, rtol=1e-5, atol=1e-5)
