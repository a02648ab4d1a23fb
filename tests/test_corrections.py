"""Where the data have no spread and one is put in, the user is told."""

import warnings

import numpy as np
import pandas as pd
import pytest

from skokde import DegenerateDataWarning, OnlineKDEClassifier, OnlineKDEDensity

both_estimators = pytest.mark.parametrize(
    "Estimator", [OnlineKDEDensity, OnlineKDEClassifier], ids=["density", "classifier"]
)


def rows(n=60, d=4):
    return np.random.default_rng(0).normal(size=(n, d))


def with_constant(X):
    X[:, 1] = 7.0
    return X


def with_copy(X):
    X[:, 3] = -2.0 * X[:, 0]
    return X


def with_sum(X):
    X[:, 3] = X[:, 0] + X[:, 1]
    return X


# The features that are corrected with full and with diagonal covariances.
DATA = {
    "sound": (rows(), [], []),
    "constant": (with_constant(rows()), [1], [1]),
    "copy": (with_copy(rows()), [0, 3], []),
    "sum": (with_sum(rows()), [0, 1, 3], []),
    "constant and copy": (with_constant(with_copy(rows())), [0, 1, 3], [1]),
    "nearly constant": (rows() * [1.0, 1e-9, 1.0, 1.0] + [0.0, 1.0, 0.0, 0.0], [], []),
    "few rows": (rows(3), [0, 1, 2, 3], []),
    "one row": (rows(1), [0, 1, 2, 3], [0, 1, 2, 3]),
    "equal rows": (np.ones((60, 4)), [0, 1, 2, 3], [0, 1, 2, 3]),
}


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@pytest.mark.parametrize("data", DATA)
@both_estimators
def test_corrected_features(Estimator, data):
    X, *expected = DATA[data]
    for covariance_type, features in zip(["full", "diag"], expected, strict=True):
        fitted = Estimator(covariance_type=covariance_type).fit(X, np.zeros(len(X), dtype=int))
        assert np.flatnonzero(fitted.corrected_features_).tolist() == features
        assert fitted.corrected_features_.dtype == bool
        # Nothing is put in where the kernel is given.
        fitted.set_params(bandwidth=np.ones(4))
        assert not fitted.corrected_features_.any()


@both_estimators
def test_absent_before_fitting(Estimator):
    with pytest.raises(AttributeError, match="corrected_features_"):
        _ = Estimator().corrected_features_


def test_classes_lend_each_other_their_spread():
    X, y = rows(), np.arange(60) % 2
    X[:, 1] = y  # constant in each class, not in all
    assert not OnlineKDEClassifier().fit(X, y).corrected_features_.any()


def test_the_warning_names_the_features():
    X = pd.DataFrame(with_constant(rows()), columns=["a", "b", "c", "d"])
    with pytest.warns(DegenerateDataWarning, match=r"OnlineKDEDensity: .* of others: b\.") as seen:
        OnlineKDEDensity().fit(X)
    assert seen[0].filename == __file__
    with pytest.warns(DegenerateDataWarning, match=r"others: 0, 1, 2, .*, 9, \.\.\.\."):
        OnlineKDEDensity().fit(np.ones((40, 12)))


@pytest.mark.parametrize("bandwidth", ["plugin", "okde"])
def test_a_bandwidth_that_is_not_found(bandwidth):
    # A scale below 1e-9, from samples enough.
    density = OnlineKDEDensity(bandwidth=bandwidth)
    with pytest.warns(DegenerateDataWarning, match=f"bandwidth='{bandwidth}' finds no") as seen:
        density.fit(rows(d=1), sample_weight=1e60)
    assert len(seen) == 1
    assert density.bandwidth_scale_ == 1.0
    assert density.bandwidth_ == pytest.approx(np.var(rows(d=1)), rel=1e-9)
    assert 0.0 < density.fit(rows(d=1)).bandwidth_scale_ < 1.0


def test_the_scale_of_the_bandwidth():
    density = OnlineKDEDensity(bandwidth="scott").fit(rows(64, 2))
    assert density.bandwidth_scale_ == pytest.approx(64 ** (-1 / 6))
    np.testing.assert_allclose(
        density.bandwidth_, 0.25 * np.cov(rows(64, 2).T, bias=True), rtol=1e-9
    )
    for other in ("predictive", [1.0, 1.0]):
        assert density.set_params(bandwidth=other).bandwidth_scale_ is None


@pytest.mark.parametrize("size", [1, 7, 60])
def test_one_warning_in_a_fit_however_it_is_cut(size):
    X, density = with_constant(rows()), OnlineKDEDensity()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for start in range(0, len(X), size):
            density.partial_fit(X[start : start + size])
        assert [warning.category for warning in seen] == [DegenerateDataWarning]
        density.fit(X)  # starts anew
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("X", "parameters"),
    [
        (rows(), {}),
        (with_constant(rows(29)), {}),  # too few to tell
        (with_constant(rows()), {"bandwidth": [1.0, 1.0, 1.0, 1.0]}),
        (with_copy(rows()), {"covariance_type": "diag"}),
    ],
    ids=["sound", "29 rows", "bandwidth given", "diag"],
)
def test_no_warning(X, parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OnlineKDEDensity(**parameters).fit(X)


def test_a_warning_that_raises_leaves_the_model_as_it_was(state_of):
    X = with_constant(rows())
    density = OnlineKDEDensity().fit(X[:20])
    before = state_of(density)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DegenerateDataWarning):
            density.partial_fit(X[20:])
    assert state_of(density) == before
