"""Regression: what the joint density tells of outputs where features are known."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_linnerud, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import BayesianRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import skokde._density
from marks import quick
from skokde import DegenerateDataWarning, OnlineKDEDensity, OnlineKDERegressor
from skokde._conditionals import conditioner_of
from skokde.distribution import GaussianMixtureDistribution, crps
from twins import conditionals, through_factors

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))
LEVELS = [0.05, 0.5, 0.95]


@parametrize_with_checks([OnlineKDERegressor(), OnlineKDERegressor(covariance_type="diag")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@pytest.mark.parametrize("n", [58, 70, 90])
def test_outputs_are_predicted_from_as_few_rows_as_correlated_features(n):
    scores = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        Z, factors = rng.normal(size=(400, 8)), rng.normal(size=(8, 60))
        X = through_factors(Z, factors, 0.2, rng)
        y = Z @ rng.normal(size=8) + 0.3 * rng.normal(size=400)
        scores.append(OnlineKDERegressor().fit(X[:n], y[:n]).score(X[100:], y[100:]))
    assert np.mean(scores) > 0.6


def waves(n=600, seed=0, d=2):
    """A wave, with noise that grows along the second feature."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, d))
    return X, 2.0 * np.sin(X[:, 0]) + (0.1 + 0.2 * np.abs(X[:, -1])) * rng.normal(size=n)


def branches(n=800, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=n)
    return x[:, None], rng.choice([-1.0, 1.0], n) * (1.0 + x**2) + 0.1 * rng.normal(size=n)


def two_outputs(n=400, seed=0):
    X, y = waves(n, seed)
    rng = np.random.default_rng(seed + 1)
    return X, np.column_stack([y, 10.0 * y + X[:, 1] + rng.normal(size=n)])


def with_holes(X, share=0.3, seed=1):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


@both_structures
@pytest.mark.parametrize("make", [waves, two_outputs])
def test_all_that_is_predicted_is_that_of_the_conditional_distribution(covariance_type, make):
    X, y = make()
    regressor = OnlineKDERegressor(covariance_type=covariance_type).fit(X, y)
    rows, outputs = X[:25], y[:25].reshape(25, -1)
    asked = [0, 1], 2 + np.arange(outputs.shape[1])
    expected = conditionals(regressor._asked_density(), rows, *asked)
    mean, std = regressor.predict(rows, return_std=True)
    np.testing.assert_allclose(mean.reshape(25, -1), [p.mean for p in expected], rtol=1e-7)
    of_features = np.array([np.sqrt(np.diag(p.cov)) for p in expected])
    np.testing.assert_allclose(std.reshape(25, -1), of_features, rtol=1e-6)
    quantiles = regressor.predict(rows, quantiles=LEVELS).reshape(25, -1, 3)
    for j in range(outputs.shape[1]):
        marginals = [p.marginal(j).ppf(LEVELS) for p in expected]
        np.testing.assert_allclose(quantiles[:, j], marginals, rtol=1e-7)
    log_densities = np.ravel([p.logpdf(row) for p, row in zip(expected, outputs, strict=True)])
    np.testing.assert_allclose(regressor.log_density(rows, y[:25]), log_densities, rtol=1e-7)
    family = regressor.predict_distribution(rows)
    np.testing.assert_allclose(family.logpdf(outputs), log_densities, rtol=1e-7)
    # All but what no sample speaks for is that of the density itself.
    plain = [p.mean for p in conditionals(regressor.density_, rows, *asked)]
    np.testing.assert_allclose(mean.reshape(25, -1), plain, atol=0.05 * np.std(y))


@both_structures
def test_with_one_kernel_it_is_the_conditional_of_the_joint_density(covariance_type):
    X, y = two_outputs()
    regressor = OnlineKDERegressor(
        covariance_type=covariance_type, compression_threshold=0.02, bandwidth="okde"
    ).fit(X, y)
    joint = regressor.density_.distribution().conditional([0, 1], X[:25])
    np.testing.assert_allclose(regressor.predict(X[:25]), joint.mean, rtol=1e-7)
    np.testing.assert_allclose(regressor.log_density(X[:25], y[:25]), joint.logpdf(y[:25]))


def test_shapes_are_those_of_the_outputs():
    X, y = two_outputs(100)
    of_one = {"column": y[:, 0], "table": y[:, :1], "two": y}
    for name, outputs in of_one.items():
        regressor = OnlineKDERegressor().fit(X, outputs)
        shape = outputs[:5].shape
        assert regressor.n_outputs_ == (2 if name == "two" else 1)
        assert regressor.predict(X[:5]).shape == shape
        assert [a.shape for a in regressor.predict(X[:5], return_std=True)] == [shape, shape]
        assert regressor.predict(X[:5], quantiles=0.5).shape == shape
        assert regressor.predict(X[:5], quantiles=[0.5]).shape == (*shape, 1)
        assert regressor.predict(X[:5], quantiles=LEVELS).shape == (*shape, 3)
        assert regressor.predict_interval(X[:5]).shape == (*shape, 2)
        assert regressor.sample_y(X[:5], 7, random_state=0).shape == (*shape, 7)
        assert regressor.log_density(X[:5], outputs[:5]).shape == (5,)
        assert regressor.predict_distribution(X[:5]).mean.shape == (5, regressor.n_outputs_)
    column, table = (OnlineKDERegressor().fit(X, of_one[name]) for name in ("column", "table"))
    np.testing.assert_array_equal(column.predict(X), table.predict(X)[:, 0])


@both_structures
def test_rows_do_not_depend_on_those_they_are_asked_with(covariance_type):
    X, y = waves(500)
    regressor = OnlineKDERegressor(covariance_type=covariance_type).fit(X, y)
    whole = regressor.predict(X), regressor.predict(X, quantiles=LEVELS)
    alone = [(regressor.predict(row), regressor.predict(row, quantiles=LEVELS)) for row in
             X[:30, None]]  # fmt: skip
    for together, single in zip(whole, zip(*alone, strict=True), strict=True):
        np.testing.assert_allclose(together[:30], np.concatenate(single), rtol=1e-8)
    shuffled = np.random.default_rng(0).permutation(500)
    np.testing.assert_allclose(regressor.predict(X[shuffled]), whole[0][shuffled], rtol=1e-8)


@both_structures
def test_missing_features_are_integrated_out(covariance_type):
    X, y = waves(500, d=3)
    regressor = OnlineKDERegressor(covariance_type=covariance_type).fit(X, y)
    density = regressor._asked_density()
    rows = X[:40].copy()
    rows[::4, 0], rows[1::4, 1:], rows[2::4] = np.nan, np.nan, np.nan
    mean, std = regressor.predict(rows, return_std=True)
    log_density = regressor.log_density(rows, y[:40])
    for i, known in ((0, [1, 2]), (1, [0]), (3, [0, 1, 2])):
        (p,) = conditionals(density, rows[i : i + 1, known], known, [3])
        # Gaussians that hardly matter are left out where something is missing.
        assert mean[i] == pytest.approx(p.mean[0], abs=2e-4)
        assert std[i] == pytest.approx(np.sqrt(p.cov[0, 0]), rel=2e-4)
        assert log_density[i] == pytest.approx(p.logpdf(y[i : i + 1]), abs=1e-7)
    of_nothing = density.distribution(3)
    assert mean[2] == pytest.approx(of_nothing.mean[0])
    assert std[2] == pytest.approx(np.sqrt(of_nothing.cov[0, 0]))
    assert log_density[2] == pytest.approx(of_nothing.logpdf(y[2:3]))
    np.testing.assert_allclose(
        regressor.predict(rows[2:3], quantiles=LEVELS)[0], of_nothing.ppf(LEVELS), rtol=1e-9
    )
    assert np.isfinite(regressor.sample_y(rows, 3, random_state=0)).all()
    assert regressor.predict_distribution(rows[::4]).mean[:, 0] == pytest.approx(mean[::4])
    assert len(regressor.predict_distribution(rows[2::4])) == 10
    with pytest.raises(ValueError, match="lack the same features"):
        regressor.predict_distribution(rows)


def test_learns_from_incomplete_rows():
    X, y = waves(1000)
    holes, (test, truth) = with_holes(X, 0.3), waves(300, seed=5)
    regressor = OnlineKDERegressor().fit(holes, y)
    complete = ~np.isnan(holes).any(axis=1)
    assert regressor.density_.n_samples_seen_ == 1000.0
    assert regressor.score(test, truth) > 0.7
    assert regressor.score(test, truth) > OnlineKDERegressor().fit(
        holes[complete][:100], y[complete][:100]
    ).score(test, truth)


def test_noise_and_branches_are_found():
    X, y = waves(1500)
    regressor = OnlineKDERegressor().fit(X, y)
    test, truth = waves(500, seed=7)
    assert regressor.score(test, truth) > 0.8 > BayesianRidge().fit(X, y).score(test, truth)
    inside = regressor.predict_interval(test, coverage=0.8)
    assert 0.7 < np.mean((inside[:, 0] <= truth) & (truth <= inside[:, 1])) < 0.9
    np.testing.assert_allclose(inside, regressor.predict(test, quantiles=[0.1, 0.9]), rtol=1e-9)
    _, std = regressor.predict([[1.6, 0.0], [1.6, 3.0]], return_std=True)
    assert std[1] > 1.5 * std[0]
    X, y = branches()
    regressor = OnlineKDERegressor().fit(X, y)
    p = regressor.predict_distribution([[0.0]])[0]
    np.testing.assert_allclose(np.sort(p.modes().points[:2, 0]), [-1.0, 1.0], atol=0.15)
    draws = regressor.sample_y([[0.0]], 500, random_state=0)[0]
    assert 0.4 < np.mean(draws > 0.0) < 0.6
    assert np.mean(np.abs(np.abs(draws) - 1.0) < 0.6) > 0.9
    assert regressor.log_density([[0.0]], [1.0]) > regressor.log_density([[0.0]], [0.0]) + 2.0


def test_deviations_are_not_those_of_experts_for_which_nothing_speaks():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 100.0, size=(800, 1))
    y = 2.0 * X[:, 0] + rng.normal(size=800)
    regressor = OnlineKDERegressor().fit(X, y)
    _, std = regressor.predict(X[:50], return_std=True)
    assert 0.7 < np.median(std) < 2.0  # 6 with them


def test_as_good_as_others_on_small_tables():
    X, y = load_diabetes(return_X_y=True)
    scores = cross_val_score(OnlineKDERegressor(), X, y, cv=5)
    assert scores.mean() > cross_val_score(BayesianRidge(), X, y, cv=5).mean() - 0.05
    X, y = load_linnerud(return_X_y=True)
    regressor = OnlineKDERegressor().fit(X, y)
    assert np.isfinite(regressor.predict(X)).all()
    assert r2_score(y, regressor.predict(X)) > 0.0


SETTINGS = [
    {},
    {"covariance_type": "diag"},
    {"forgetting_factor": "predictive"},
    {"compression_threshold": 0.1, "bandwidth": "silverman", "forgetting_factor": 0.99},
]


@pytest.mark.parametrize("parameters", SETTINGS, ids=str)
def test_blocks_and_storage_change_nothing(state_of, parameters):
    X, y = two_outputs(150)
    X = with_holes(X, 0.1)
    weights = np.random.default_rng(0).integers(0, 3, size=150).astype(float)
    whole = OnlineKDERegressor(**parameters).fit(X, y, sample_weight=weights)
    cut = OnlineKDERegressor(**parameters)
    for part in np.split(np.arange(150), [1, 2, 40, 41, 97]):
        cut.partial_fit(X[part], y[part], sample_weight=weights[part])
        cut.predict(X[:3])
    assert state_of(cut) == state_of(whole)
    stored = pickle.loads(pickle.dumps(whole))
    np.testing.assert_array_equal(stored.predict(X), whole.predict(X))
    later = [model.partial_fit(X[:50], y[:50]) for model in (stored, cut)]
    assert state_of(later[0]) == state_of(later[1])
    np.testing.assert_allclose(later[0].predict(X), later[1].predict(X), rtol=1e-9)


@pytest.mark.parametrize("forgetting_factor", [1.0, "predictive"])
def test_row_by_row_what_lasts_is_made_once(monkeypatch, forgetting_factor):
    asked = []  # the families themselves, so that none takes the place of another in memory

    def recorded(family, *others):
        asked.append(family)
        return conditioner_of(family, *others)

    monkeypatch.setattr(skokde._density, "conditioner_of", recorded)
    X, y = make_friedman1(160, n_features=5, random_state=0)
    regressor = OnlineKDERegressor(forgetting_factor=forgetting_factor).fit(X[:100], y[:100])
    for i in range(100, 160):
        regressor.predict(X[i : i + 1])
        regressor.partial_fit(X[i : i + 1], y[i : i + 1])
    assert len(asked) == len({id(family) for family in asked})


def test_first_rows_may_come_in_any_order():
    X, y = waves(20)
    weights = np.random.default_rng(0).integers(1, 4, size=20)
    order = np.random.default_rng(1).permutation(20)
    one = OnlineKDERegressor().fit(X, y, sample_weight=weights)
    other = OnlineKDERegressor().fit(X[order].repeat(weights[order], 0), y[order].repeat(
        weights[order]))  # fmt: skip
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-9)
    np.testing.assert_allclose(one.log_density(X, y), other.log_density(X, y), rtol=1e-9)


def test_follows_a_stream_that_changes():
    X, y = waves(1500)
    y[750:] *= -1.0
    errors = []
    for factor in ("predictive", 1.0):
        regressor = OnlineKDERegressor(forgetting_factor=factor).fit(X[:950], y[:950])
        errors.append(np.mean((regressor.predict(X[950:]) - y[950:]) ** 2))
    assert errors[0] < 0.5 * errors[1]


BAD = {
    "infinite X": lambda X, y: (np.where(X > 2.9, np.inf, X), y),
    "NaN in y": lambda X, y: (X, np.where(y > 1.0, np.nan, y)),
    "infinite y": lambda X, y: (X, np.where(y > 1.0, np.inf, y)),
    "huge y": lambda X, y: (X, np.where(y > 1.0, 1e200, y)),
    "huge X": lambda X, y: (np.where(X > 2.9, 1e200, X), y),
    "words": lambda X, y: (X, np.array(["a"] * len(y))),
    "complex y": lambda X, y: (X, y + 1j),
    "masked y": lambda X, y: (X, np.ma.masked_greater(y, 1.0)),
    "short y": lambda X, y: (X, y[:-1]),
    "no y": lambda X, y: (X, None),
    "three axes": lambda X, y: (X, np.tile(y[:, None, None], (1, 2, 2))),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_bad_input_changes_nothing(state_of, case, method):
    X, y = waves(100)
    bad = BAD[case](X, y)
    new, fitted = OnlineKDERegressor(), OnlineKDERegressor().fit(X, y)
    before = state_of(fitted)
    for regressor in (new, fitted):
        with pytest.raises((ValueError, TypeError), match="in y" if case == "huge y" else "."):
            getattr(regressor, method)(*bad)
    assert state_of(fitted) == before
    assert not new.__sklearn_is_fitted__()
    with pytest.raises(NotFittedError):
        new.predict(X)


def test_other_outputs_than_before_are_refused(state_of):
    X, y = two_outputs(60)
    regressor = OnlineKDERegressor().fit(X, y)
    before = state_of(regressor)
    for other in (y[:, 0], y[:, :1], np.hstack([y, y])):
        with pytest.raises(ValueError, match="is expecting"):
            regressor.partial_fit(X, other)
        with pytest.raises(ValueError, match="is expecting"):
            regressor.log_density(X, other)
    assert state_of(regressor) == before
    column = OnlineKDERegressor().fit(X, y[:, 0])
    with pytest.raises(ValueError, match=r"expecting \(60,\)"):
        column.partial_fit(X, y[:, :1])
    assert regressor.fit(X, y[:, 0]).predict(X).shape == (60,)


def test_questions_that_make_no_sense():
    X, y = waves(60)
    regressor = OnlineKDERegressor().fit(X, y)
    with pytest.raises(ValueError, match="not for both"):
        regressor.predict(X, return_std=True, quantiles=0.5)
    for wrong in (-0.1, [0.5, 1.1], [[0.5]], np.nan):
        with pytest.raises(ValueError, match="from 0 to 1"):
            regressor.predict(X, quantiles=wrong)
    for wrong in (0.0, 1.0, 2.0, "0.9"):
        with pytest.raises(ValueError, match="between 0 and 1"):
            regressor.predict_interval(X, coverage=wrong)
    with pytest.raises(ValueError, match="at least 1"):
        regressor.sample_y(X, 0)
    np.testing.assert_array_equal(
        regressor.predict(X[:1], quantiles=[0.0, 1.0]), [[-np.inf, np.inf]]
    )
    assert not hasattr(regressor, "predict_proba")


@both_structures
@pytest.mark.parametrize("far", [1e6, 1e150, 1e300])
def test_far_out_nothing_is_nan(covariance_type, far):
    X, y = waves(200)
    regressor = OnlineKDERegressor(covariance_type=covariance_type).fit(X, y)
    rows = far * np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])
    for found in (
        *regressor.predict(rows, return_std=True),
        regressor.predict(rows, quantiles=LEVELS),
        regressor.sample_y(rows, 2, random_state=0),
    ):
        assert np.isfinite(found).all()
    log_density = regressor.log_density(rows, np.zeros(3))
    assert not np.isnan(log_density).any()
    assert (log_density < np.inf).all()
    assert (regressor.log_density(X[:3], np.full(3, 1e149)) < -1e6).all()
    if (
        far == 1e300 and covariance_type == "diag"
    ):  # where nothing has a density the nearest component tells
        assert (regressor.log_density(rows, regressor.predict(rows)) > -20.0).all()


DEGENERATE = {
    "one row": lambda X, y: (X[:1], y[:1]),
    "two rows": lambda X, y: (X[:2], y[:2]),
    "constant y": lambda X, y: (X, np.full(len(X), 3.0)),
    "zero y": lambda X, y: (X, np.zeros(len(X))),
    "constant X": lambda X, y: (np.ones_like(X), y),
    "repeated": lambda X, y: (X[[0, 1]].repeat(50, 0), y[[0, 1]].repeat(50)),
    "y is X": lambda X, y: (X, X[:, 0]),
    "tiny and large": lambda X, y: (X * [1e-12, 1e12], 1e9 + 1e-3 * y),
    "wide": lambda X, y: (np.tile(X[:10], (1, 10)), y[:10]),
}


@both_structures
@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
def test_degenerate_data(covariance_type, case):
    X, y = DEGENERATE[case](*waves(100))
    regressor = OnlineKDERegressor(covariance_type=covariance_type).fit(X, y)
    mean, std = regressor.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0.0).all()
    assert np.isfinite(regressor.predict(X, quantiles=LEVELS)).all()
    assert np.isfinite(regressor.log_density(X, y)).all()
    if case in ("constant y", "zero y", "one row"):
        np.testing.assert_allclose(mean, y, atol=1e-9)
    if case == "y is X":
        assert r2_score(y, mean) > (0.98 if covariance_type == "full" else 0.9)


def test_warnings_tell_of_features_alone():
    X, y = waves(60, d=3)
    X[:, 1] = 4.0
    names = ["first", "constant", "last"]
    frame = pd.DataFrame(X, columns=names)
    with pytest.warns(
        DegenerateDataWarning, match="OnlineKDERegressor.*others: constant. "
    ) as told:
        OnlineKDERegressor().fit(frame, y)
    assert told[0].filename == __file__
    later = OnlineKDERegressor().partial_fit(frame[:20], y[:20])
    with pytest.warns(DegenerateDataWarning, match="constant") as told:
        later.partial_fit(frame[20:], y[20:])
    assert told[0].filename == __file__
    # That outputs follow from features exactly, or are constant, is no fault of these.
    X = np.random.default_rng(0).normal(size=(60, 2))
    exact = OnlineKDERegressor().fit(X, X @ [1.0, -2.0])
    assert exact.predict([[1.0, 1.0]]) == pytest.approx(-1.0, abs=0.3)
    OnlineKDERegressor().fit(X, np.ones(60))
    OnlineKDERegressor(bandwidth=np.ones(3)).fit(np.ones((60, 2)), y)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library):
    frames = pytest.importorskip(library)
    X, y = waves(80)
    columns = {"a": X[:, 0], "b": X[:, 1]}
    regressor = OnlineKDERegressor().fit(frames.DataFrame(columns), frames.Series(y))
    assert list(regressor.feature_names_in_) == ["a", "b"]
    expected = OnlineKDERegressor().fit(X, y).predict(X[:5])
    np.testing.assert_array_equal(regressor.predict(frames.DataFrame(columns)[:5]), expected)
    swapped = frames.DataFrame({"b": X[:, 1], "a": X[:, 0]})
    with pytest.raises(ValueError, match="feature names"):
        regressor.predict(swapped)


def test_in_the_tools_of_scikit_learn():
    X, y = waves(200)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), OnlineKDERegressor()),
        {"onlinekderegressor__covariance_type": ["full", "diag"]},
        cv=2,
    ).fit(X, y)
    assert search.best_score_ > 0.5
    rescaled = TransformedTargetRegressor(OnlineKDERegressor(), transformer=StandardScaler())
    assert rescaled.fit(X, y).score(X, y) > 0.5
    assert MultiOutputRegressor(OnlineKDERegressor()).fit(X, two_outputs(200)[1]).predict(
        X
    ).shape == (200, 2)
    regressor = OnlineKDERegressor(max_components=20, bandwidth=0.5)
    assert clone(regressor).get_params() == regressor.get_params()
    assert regressor.fit(X, y).density_.n_components_ <= 20
    with config_context(enable_metadata_routing=True):
        routed = OnlineKDERegressor().set_fit_request(sample_weight=True)
        routed = routed.set_score_request(sample_weight=False)
        weights = np.random.default_rng(0).integers(0, 3, size=200)
        search = GridSearchCV(routed, {"covariance_type": ["full"]}, cv=2)
        search.fit(X, y, sample_weight=weights)
    expected = OnlineKDERegressor().fit(X, y, sample_weight=weights).predict(X)
    np.testing.assert_array_equal(search.best_estimator_.predict(X), expected)


def test_most_rows_change_nothing_of_what_predictions_take_long_to_make(monkeypatch):
    made, make = [], skokde._density.reference_kde

    def counted(*args, **settings):
        made.append(args)
        return make(*args, **settings)

    monkeypatch.setattr(skokde._density, "reference_kde", counted)
    X, y = make_friedman1(440, random_state=0)
    model = OnlineKDERegressor().fit(X[:400], y[:400])
    for row, output in zip(X[400:], y[400:], strict=True):
        model.predict(row[None])
        model.partial_fit(row[None], [output])
    # One as it is, and one where the samples have become a good many more.
    assert 0 < len(made) <= 4


def test_threads_change_nothing():
    X, y = waves(300)
    fitted = [OnlineKDERegressor(n_jobs=n).fit(X, y) for n in (1, 2)]
    predictions = [regressor.predict(X) for regressor in fitted]
    np.testing.assert_array_equal(*predictions)
    np.testing.assert_array_equal(*(regressor.log_density(X, y) for regressor in fitted))


# ------------------------------------------------------------------------------------------- crps


def test_crps_is_the_integral_of_squared_differences():
    rng = np.random.default_rng(0)
    p = GaussianMixtureDistribution([0.2, 0.5, 0.3], [[-2.0], [0.5], [4.0]], [[0.3], [1.0], [2.0]])
    for y in rng.uniform(-6.0, 9.0, size=5):
        integral = sum(
            integrate.quad(lambda z, y=y: (p.cdf(z) - (z >= y)) ** 2, low, high, limit=200)[0]
            for low, high in ((-40.0, y), (y, 40.0))
        )
        assert crps(p, y) == pytest.approx(integral, rel=1e-6)
    assert crps(p, np.zeros((2, 3))).shape == (2, 3)
    normal = GaussianMixtureDistribution([1.0], [[1.0]], [[4.0]])
    z = np.array([-1.0, 0.0, 2.5])
    known = 2.0 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(crps(normal, 1.0 + 2.0 * z), known)


def test_crps_of_families_and_far_out():
    X, y = waves(300)
    family = OnlineKDERegressor().fit(X, y).predict_distribution(X[:10])
    found = crps(family, y[:10])
    np.testing.assert_allclose(
        found, [crps(family[i], y[i]) for i in range(10)], rtol=1e-6, atol=1e-9
    )
    point = GaussianMixtureDistribution([0.5, 0.5], [[1.0], [1.0]], [[1e-20], [1e-20]])
    assert crps(point, 1.0) >= 0.0
    assert crps(point, 1e12) == pytest.approx(1e12)


def test_crps_refuses_what_it_can_not_score():
    two = GaussianMixtureDistribution([1.0], [[0.0, 0.0]], [[1.0, 1.0]])
    with pytest.raises(ValueError, match="one dimension"):
        crps(two, 0.0)
    one = two.marginal(0)
    with pytest.raises(ValueError, match="finite"):
        crps(one, [0.0, np.nan])
    X, y = waves(50)
    family = OnlineKDERegressor().fit(X, y).predict_distribution(X[:4])
    with pytest.raises(ValueError, match="shape"):
        crps(family, y[:3])


def test_the_density_is_that_of_features_and_outputs():
    X, y = waves(100)
    regressor = OnlineKDERegressor().fit(X, y)
    density = OnlineKDEDensity().fit(np.column_stack([X, y]))
    np.testing.assert_array_equal(regressor.density_.means_, density.means_)
