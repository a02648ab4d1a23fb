"""What may come in: all usual containers; and what may not, which must leave the model alone."""

import pickle
import warnings
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import column_or_1d, validate_data

import skokde._density
from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._validation import _as_array, _is_ready

both_estimators = pytest.mark.parametrize(
    "Estimator", [OnlineKDEDensity, OnlineKDEClassifier], ids=["density", "classifier"]
)
both_structures = pytest.mark.parametrize("covariance_type", ["full", "diag"])
both_fits = pytest.mark.parametrize("method", ["fit", "partial_fit"])


def good_data():
    """Small whole numbers, so that every number format holds them, and more than 30 of them."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 100, size=(80, 2)).astype(float)
    return X, rng.integers(0, 3, size=80)


def strided(X):
    wide = np.full((2 * len(X), 3 * X.shape[1]), np.nan)
    wide[::2, ::3] = X
    return wide[::2, ::3]


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


FORMATS = {
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "masked, nothing hidden": np.ma.masked_invalid,
    "long double": lambda X: X.astype(np.longdouble),
    "int64": lambda X: X.astype(np.int64),
    "int8": lambda X: X.astype(np.int8),
    "uint16": lambda X: X.astype(np.uint16),
    "objects": lambda X: X.astype(object),
    "other byte order": lambda X: X.astype(">f8"),
    "list": lambda X: X.tolist(),
    "tuple of arrays": tuple,
    "Fortran order": np.asfortranarray,
    "strided": strided,
    "negative strides": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "transposed": lambda X: X.T.copy().T,
    "read-only": read_only,
    "read-only Fortran": lambda X: read_only(np.asfortranarray(X)),
    "pandas": lambda X: pd.DataFrame(X, columns=["a", "b"]),
    "pandas int": lambda X: pd.DataFrame(X.astype(int), columns=["a", "b"]),
    "pandas nullable": lambda X: pd.DataFrame(X, columns=["a", "b"]).astype("Float64"),
    "pandas without names": lambda X: pd.DataFrame(X),
    "polars": lambda X: pl.DataFrame(X, schema=["a", "b"]),
    "polars float32": lambda X: pl.DataFrame(X.astype(np.float32), schema=["a", "b"]),
}

SERIES = {
    "list": lambda y: y.tolist(),
    "strided": lambda y: np.repeat(y, 2)[::2],
    "read-only": read_only,
    "column of a frame": lambda y: pd.DataFrame({"y": y, "z": 0})["y"],
    "pandas": lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
    "polars": lambda y: pl.Series("y", y),
}


def without_names(state):
    return {key: leaf for key, leaf in state.items() if "feature_names_in_" not in key}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))
@both_estimators
def test_containers_of_X(state_of, Estimator, covariance_type, form):
    X, y = good_data()
    same_X = FORMATS[form](X)
    plain = Estimator(covariance_type=covariance_type).fit(X, y)
    fitted = Estimator(covariance_type=covariance_type).fit(same_X, y)
    assert without_names(state_of(fitted)) == state_of(plain)
    np.testing.assert_array_equal(fitted.score_samples(same_X), plain.score_samples(X))
    blocks = Estimator(covariance_type=covariance_type)
    for block in (slice(0, 1), slice(1, 40), slice(40, 80)):
        blocks.partial_fit(FORMATS[form](X[block]), y[block])
    plain = Estimator(covariance_type=covariance_type).partial_fit(X, y)
    assert without_names(state_of(blocks)) == state_of(plain)
    assert fitted.score_samples(same_X).dtype == np.float64
    if Estimator is OnlineKDEClassifier:
        assert fitted.predict_proba(same_X).dtype == np.float64
        np.testing.assert_array_equal(fitted.predict(same_X), plain.predict(X))


@pytest.mark.parametrize("form", SERIES)
@pytest.mark.parametrize("labels", ["numbers", "strings"])
def test_containers_of_y(assert_same_model, labels, form):
    X, y = good_data()
    if labels == "strings":
        y = np.array(["one", "two", "three"])[y]
    expected = OnlineKDEClassifier().fit(X, y)
    assert_same_model(OnlineKDEClassifier().fit(X, SERIES[form](y)), expected)
    streamed = OnlineKDEClassifier()
    streamed.partial_fit(X[:50], SERIES[form](y[:50]), classes=SERIES[form](np.unique(y)))
    assert_same_model(streamed.partial_fit(X[50:], SERIES[form](y[50:])), expected)
    assert expected.score(X, SERIES[form](y)) == expected.score(X, y)


@pytest.mark.parametrize("form", SERIES)
@both_estimators
def test_containers_of_sample_weight(assert_same_model, Estimator, form):
    X, y = good_data()
    weights = (np.arange(80) % 4) / 2
    expected = Estimator().fit(X, y, sample_weight=weights)
    same = Estimator().fit(X, y, sample_weight=SERIES[form](weights))
    assert_same_model(same, expected)
    halves = weights.astype(np.float32)
    assert_same_model(Estimator().fit(X, y, sample_weight=halves), expected)
    whole = Estimator().fit(X, y, sample_weight=(2 * weights).astype(int))
    assert_same_model(whole, Estimator().fit(X, y, sample_weight=2.0 * weights))


@both_estimators
def test_one_number_as_sample_weight(assert_same_model, Estimator):
    X, y = good_data()
    expected = Estimator().fit(X, y, sample_weight=np.full(80, 2.0))
    assert_same_model(Estimator().fit(X, y, sample_weight=2), expected)


def test_density_ignores_y(assert_same_model):
    X, _ = good_data()
    expected = OnlineKDEDensity().fit(X)
    for y in (np.full(80, np.nan), "anything", range(3)):
        assert_same_model(OnlineKDEDensity().fit(X, y), expected)
        assert_same_model(OnlineKDEDensity().partial_fit(X, y), expected)
        assert expected.score(X, y) == expected.score(X)


NUMBERS = {
    "NumPy scalars": {
        "compression_threshold": np.float32(0.25),
        "forgetting_factor": np.float64(0.5),
        "max_components": np.int16(9),
        "bandwidth": np.float32(0.5),
    },
    "Python numbers": {
        "compression_threshold": 0.25,
        "forgetting_factor": 0.5,
        "max_components": 9,
        "bandwidth": 0.5,
    },
}


@both_estimators
def test_numbers_of_any_kind_as_parameters(assert_same_model, Estimator):
    X, y = good_data()
    models = [Estimator(**numbers).fit(X, y) for numbers in NUMBERS.values()]
    assert_same_model(*models)
    whole = Estimator(compression_threshold=0, forgetting_factor=1, bandwidth=1).fit(X, y)
    floats = Estimator(compression_threshold=0.0, forgetting_factor=1.0, bandwidth=1.0).fit(X, y)
    assert_same_model(whole, floats)


@pytest.mark.parametrize("form", [list, tuple, np.float32, read_only, np.asfortranarray])
def test_bandwidth_arrays_of_any_kind(assert_same_model, form):
    X, y = good_data()
    H = np.array([[4.0, 1.0], [1.0, 2.0]])
    expected = OnlineKDEDensity(bandwidth=H).fit(X)
    same = OnlineKDEDensity(bandwidth=form(H)).fit(X)
    assert_same_model(same, expected)
    np.testing.assert_array_equal(same.score_samples(X), expected.score_samples(X))
    OnlineKDEClassifier(bandwidth=form(H)).fit(X, y)


# -------------------------------------------------------------------------------- feature names

FRAMES = {
    "pandas": lambda columns: pd.DataFrame(columns),
    "polars": lambda columns: pl.DataFrame(columns),
}
all_frames = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)


def columns(*names):
    X, _ = good_data()
    return dict(zip(names, X.T, strict=False))


@all_frames
@both_estimators
def test_names_are_kept_and_checked(state_of, assert_same_model, Estimator, frame):
    _, y = good_data()
    right = frame(columns("b", "a"))
    fitted = Estimator().fit(right, y)
    assert fitted.feature_names_in_.tolist() == ["b", "a"]
    before = state_of(fitted)
    swapped, other = frame(columns("a", "b")), frame(columns("b", "c"))
    for call in (fitted.score_samples, lambda X: fitted.partial_fit(X, y)):
        with pytest.raises(ValueError, match="must be in the same order"):
            call(swapped)
        with pytest.raises(ValueError, match="names unseen at fit time:\n- c"):
            call(other)
    assert_same_model(before, fitted)
    fitted.partial_fit(right, y)
    assert fitted.feature_names_in_.tolist() == ["b", "a"]
    if Estimator is OnlineKDEClassifier:
        assert fitted.estimators_[0].feature_names_in_.tolist() == ["b", "a"]
        fitted.estimators_[0].score_samples(right)  # without a warning


@all_frames
@both_estimators
def test_names_that_come_and_go_warn(Estimator, frame):
    X, y = good_data()
    named = Estimator().fit(frame(columns("a", "b")), y)
    nameless = Estimator().fit(X, y)
    calls = ["score_samples", "score", "partial_fit"]
    if Estimator is OnlineKDEClassifier:
        calls += ["predict", "predict_proba", "predict_joint_log_proba"]
    for call in calls:
        arguments = (y,) if call in ("score", "partial_fit") else ()
        with pytest.warns(UserWarning, match="X does not have valid feature names") as caught:
            getattr(named, call)(X, *arguments)
        assert len(caught) == 1
        with pytest.warns(UserWarning, match="X has feature names, but") as caught:
            getattr(nameless, call)(frame(columns("a", "b")), *arguments)
        assert len(caught) == 1
    # A refused call that warned has not changed the names either.
    assert named.feature_names_in_.tolist() == ["a", "b"]
    assert not hasattr(nameless, "feature_names_in_")


@both_estimators
def test_names_of_one_container_fit_the_other(Estimator):
    _, y = good_data()
    fitted = Estimator().fit(pd.DataFrame(columns("a", "b")), y)
    fitted.partial_fit(pl.DataFrame(columns("a", "b")), y)
    assert fitted.feature_names_in_.tolist() == ["a", "b"]


@both_estimators
def test_names_that_are_not_strings(Estimator):
    X, y = good_data()
    assert not hasattr(Estimator().fit(pd.DataFrame(X), y), "feature_names_in_")
    estimator = Estimator()
    with pytest.raises(TypeError, match="only supported if all input features have string names"):
        estimator.fit(pd.DataFrame(X, columns=["a", 1]), y)
    assert vars(estimator) == vars(Estimator())


@both_estimators
def test_fit_replaces_names(Estimator):
    X, y = good_data()
    fitted = Estimator().fit(pd.DataFrame(columns("a", "b")), y)
    assert fitted.fit(pd.DataFrame({"z": X[:, 0]}), y).feature_names_in_.tolist() == ["z"]
    fitted.fit(X, y)
    assert not hasattr(fitted, "feature_names_in_")
    fitted.score_samples(X)  # without a warning
    if Estimator is OnlineKDEClassifier:
        assert not hasattr(fitted.estimators_[0], "feature_names_in_")


# ------------------------------------------------------------- errors leave the estimator alone


def unfitted(Estimator):
    return Estimator()


@cache
def learned(Estimator, method):
    """Once for all tests: each takes a copy."""
    return pickle.dumps(getattr(Estimator(), method)(*good_data()))


def fitted(Estimator):
    return pickle.loads(learned(Estimator, "fit"))


def started(Estimator):
    """Fitted by a stream that did not declare its classes."""
    return pickle.loads(learned(Estimator, "partial_fit"))


all_beginnings = pytest.mark.parametrize("beginning", quick([unfitted, fitted, started], 2))


def assert_refuses(estimator, error, match, call):
    """The call raises; nothing in the estimator has been changed, replaced or added."""
    before, pickled = dict(vars(estimator)), pickle.dumps(estimator)
    with pytest.raises(error, match=match):
        call()
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[name] is before[name] for name in before)
    assert pickle.dumps(estimator) == pickled


def assert_usable(estimator, beginning):
    """After refused calls the estimator goes on as if they had not been."""
    X, y = (array[:15] for array in good_data())
    expected = beginning(type(estimator)).partial_fit(X + 1.0, y)
    estimator.partial_fit(X + 1.0, y)
    np.testing.assert_array_equal(estimator.score_samples(X), expected.score_samples(X))


def assert_refuses_parameter(estimator, beginning, method, parameter, value, error, match):
    """The call raises with the parameter's name; with a good value the estimator goes on."""
    X, y = good_data()
    good = estimator.get_params()[parameter]
    estimator.set_params(**{parameter: value})
    call = getattr(estimator, method)
    assert_refuses(estimator, error, rf"(?s)(?=.*{parameter}).*{match}", lambda: call(X, y))
    assert_usable(estimator.set_params(**{parameter: good}), beginning)


def with_value(value):
    def make(X):
        X = X.copy()
        X[-1, 1] = value
        return X

    return make


BAD_X = {
    "sparse": (sparse.csr_array, TypeError, "Sparse data was passed"),
    "sparse matrix": (sparse.coo_matrix, TypeError, "Sparse data was passed"),
    "infinity": (with_value(np.inf), ValueError, "Input X contains infinity"),
    "minus infinity": (with_value(-np.inf), ValueError, "Input X contains infinity"),
    "huge": (with_value(1.01e150), ValueError, r"Values beyond 1e\+150, .*: 1\. .* Rescale"),
    "huge and negative": (
        with_value(-1e300),
        ValueError,
        r"Values beyond 1e\+150, .*: 1\. .* Rescale",
    ),
    "1-d": (lambda X: X[:, 0], ValueError, "Expected 2D array, got 1D array"),
    "3-d": (lambda X: X[None], ValueError, "Found array with dim 3"),
    "no rows": (lambda X: X[:0], ValueError, r"Found array with 0 sample\(s\)"),
    "no features": (lambda X: X[:, :0], ValueError, r"Found array with 0 feature\(s\)"),
    "words": (lambda X: X.astype(int).astype(str).astype(object) + "x", ValueError, "string"),
    "complex": (lambda X: X + 1j, ValueError, "Complex data not supported"),
    "masked": (
        lambda X: np.ma.masked_greater(X, 90.0),
        ValueError,
        "X is a masked array, .* leave their rows out",
    ),
    "pandas, infinite": (
        lambda X: pd.DataFrame(X).replace(3.0, np.inf),
        ValueError,
        "Input X contains infinity",
    ),
    "nested lists": (
        lambda X: [[1.0, [2.0]]] * len(X),
        ValueError,
        "inhomogeneous|setting an array",
    ),
    "ragged": (lambda X: [[1.0], *X[1:].tolist()], ValueError, "inhomogeneous|setting an array"),
    "nothing": (lambda X: None, ValueError, "Expected 2D array, got scalar"),
    "a dict": (lambda X: {"a": X[:, 0]}, (TypeError, ValueError), "array|dict"),
    "a scalar": (lambda X: 3.0, ValueError, "Expected 2D array, got scalar"),
}


@pytest.mark.parametrize("case", BAD_X)
@both_fits
@all_beginnings
@both_estimators
def test_bad_X(Estimator, beginning, method, case):
    make, error, match = BAD_X[case]
    X, y = good_data()
    estimator = beginning(Estimator)
    bad = make(X)
    size = bad.shape[0] if hasattr(bad, "shape") and bad.ndim == 2 else len(y)
    assert_refuses(estimator, error, match, lambda: getattr(estimator, method)(bad, y[:size]))
    assert_usable(estimator, beginning)


@pytest.mark.parametrize("case", BAD_X)
def test_bad_X_to_score(case):
    make, error, match = BAD_X[case]
    X, _ = good_data()
    for Estimator in (OnlineKDEDensity, OnlineKDEClassifier):
        estimator = fitted(Estimator)
        methods = ["score_samples"]
        if Estimator is OnlineKDEClassifier:
            methods += ["predict", "predict_proba", "predict_log_proba", "predict_joint_log_proba"]
        for method in methods:
            score = getattr(estimator, method)
            if case.startswith("huge"):  # far away, but not wrong
                assert len(score(make(X))) == len(X)
            else:
                assert_refuses(estimator, error, match, lambda score=score: score(make(X)))


@both_estimators
def test_another_number_of_features(Estimator):
    X, y = good_data()
    for beginning in (fitted, started):
        estimator = beginning(Estimator)
        for wrong in (X[:, :1], np.hstack([X, X])):
            match = f"X has {wrong.shape[1]} features, but {Estimator.__name__} is expecting 2"
            assert_refuses(estimator, ValueError, match, lambda: estimator.partial_fit(wrong, y))  # noqa: B023
            assert_refuses(estimator, ValueError, match, lambda: estimator.score_samples(wrong))  # noqa: B023
        assert_usable(estimator, beginning)
        assert estimator.fit(X[:, :1], y).n_features_in_ == 1


@both_estimators
def test_nothing_works_before_fitting(Estimator):
    X, y = good_data()
    estimator = Estimator()
    methods = ["score_samples"]
    if Estimator is OnlineKDEClassifier:
        methods += ["predict", "predict_proba", "predict_log_proba", "predict_joint_log_proba"]
    else:
        with pytest.raises(NotFittedError):
            estimator.distribution()
    for method in methods:
        match = f"{Estimator.__name__} instance is not fitted yet"
        assert_refuses(estimator, NotFittedError, match, lambda: getattr(estimator, method)(X))  # noqa: B023
    with pytest.raises(NotFittedError):
        estimator.score(X, y)


BAD_WEIGHTS = {
    "negative": (lambda w: -w, "Negative values in sample_weight"),
    "one negative": (lambda w: np.append(w[1:], -1e-9), "Negative values in sample_weight"),
    "NaN": (lambda w: np.append(w[1:], np.nan), "Input sample_weight contains NaN"),
    "infinity": (lambda w: np.append(w[1:], np.inf), "Input sample_weight contains infinity"),
    "huge": (lambda w: np.append(w[1:], 1e151), r"Values beyond 1e\+150 in sample_weight"),
    "too short": (lambda w: w[1:], r"sample_weight.shape == \(79,\), expected \(80,\)"),
    "too long": (lambda w: np.append(w, 1.0), r"sample_weight.shape == \(81,\), expected \(80,\)"),
    "2-d": (lambda w: w[:, None], r"sample_weight.shape == \(80, 1\), expected \(80,\)"),
    "words": (lambda w: ["heavy"] * len(w), "could not convert string to float"),
    "NaN as number": (lambda w: np.nan, "Input sample_weight contains NaN"),
    "negative number": (lambda w: -1, "Negative values in sample_weight"),
    "masked": (lambda w: np.ma.masked_array(w, w > 0.0), "sample_weight is a masked array"),
    "complex": (lambda w: w + 1j, "Complex data not supported"),
}


@pytest.mark.parametrize("case", BAD_WEIGHTS)
@both_fits
@all_beginnings
@both_estimators
def test_bad_sample_weight(Estimator, beginning, method, case):
    make, match = BAD_WEIGHTS[case]
    X, y = good_data()
    estimator = beginning(Estimator)
    bad = make(np.ones(80))
    assert_refuses(
        estimator,
        ValueError,
        match,
        lambda: getattr(estimator, method)(X, y, sample_weight=bad),
    )
    assert_usable(estimator, beginning)


@all_beginnings
@both_estimators
def test_only_zero_weights_can_not_be_fitted(Estimator, beginning):
    X, y = good_data()
    estimator = beginning(Estimator)
    for zeros in (np.zeros(80), np.full(80, 5e-324), 0):
        assert_refuses(
            estimator,
            ValueError,
            "All sample weights are zero",
            lambda: estimator.fit(X, y, sample_weight=zeros),  # noqa: B023
        )
    assert_usable(estimator, beginning)


BAD_Y = {
    "continuous": (lambda y: y + 0.5, ValueError, "Unknown label type: continuous"),
    "NaN": (lambda y: np.where(y == 2, np.nan, y), ValueError, "Input y contains NaN"),
    "infinity": (lambda y: np.where(y == 2, np.inf, y), ValueError, "Input y contains infinity"),
    "missing": (lambda y: None, ValueError, "requires y to be passed, but the target y is None"),
    "too short": (lambda y: y[1:], ValueError, r"inconsistent numbers of samples: \[80, 79\]"),
    "indicators": (lambda y: np.eye(3)[y], ValueError, "y should be a 1d array"),
    "scalar": (lambda y: 1, ValueError, "y should be a 1d array"),
    "masked": (lambda y: np.ma.masked_equal(y, 2), ValueError, "y is a masked array"),
    "complex": (lambda y: y + 1j, ValueError, "Complex data not supported"),
    "objects of two types": (
        lambda y: np.where(y == 2, "two", y.astype(object)),
        (TypeError, ValueError),
        "label type|'<' not supported",
    ),
}


@pytest.mark.parametrize("case", BAD_Y)
@both_fits
@all_beginnings
def test_bad_y(beginning, method, case):
    make, error, match = BAD_Y[case]
    X, y = good_data()
    estimator = beginning(OnlineKDEClassifier)
    assert_refuses(estimator, error, match, lambda: getattr(estimator, method)(X, make(y)))
    assert_usable(estimator, beginning)


UNKNOWN = {
    "number": (np.array([0, 1, 7]), r"not among the classes \[0, 1, 2\]: \[7\]"),
    "larger than all": (np.array([5, 6, 7]), r"not among the classes \[0, 1, 2\]: \[5, 6, 7\]"),
    "below all": (np.array([-1, 1, 2]), r"not among the classes \[0, 1, 2\]: \[-1\]"),
    "words": (np.array(["0", "1", "2"]), r"not among the classes \[0, 1, 2\]: \['0', '1', '2'\]"),
    "objects": (np.array(["0", "b", "2"], dtype=object), "not among the classes"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_labels(case):
    X, y = good_data()
    labels, match = UNKNOWN[case]
    declared = OnlineKDEClassifier()
    first = {"classes": [0, 1, 2]}
    assert_refuses(declared, ValueError, match, lambda: declared.partial_fit(X, labels[y], **first))
    for estimator in (fitted(OnlineKDEClassifier), declared.partial_fit(X, y, **first)):
        assert_refuses(
            estimator,
            ValueError,
            match,
            lambda: estimator.partial_fit(X, labels[y]),  # noqa: B023
        )
    assert_usable(fitted(OnlineKDEClassifier), fitted)


def test_unknown_labels_of_zero_weight_are_unknown_all_the_same():
    X, y = good_data()
    estimator = fitted(OnlineKDEClassifier)
    assert_refuses(
        estimator,
        ValueError,
        "not among the classes",
        lambda: estimator.partial_fit(X, y + 1, sample_weight=np.where(y == 2, 0.0, 1.0)),
    )


def test_words_after_numbers():
    # A stream that did not declare its classes may bring new ones, but of the same type.
    X, y = good_data()
    estimator = started(OnlineKDEClassifier)
    words = np.array(["a", "b", "c"])[y]
    assert_refuses(estimator, ValueError, "Mix of label", lambda: estimator.partial_fit(X, words))
    assert_usable(estimator, started)


@pytest.mark.parametrize(
    "classes", [[0, 1], [0, 1, 2, 3], [0, 1, 3], ["0", "1", "2"], [1]], ids=str
)
def test_other_classes_later(classes):
    X, y = good_data()
    declared = OnlineKDEClassifier().partial_fit(X, y, classes=[2, 1, 0])
    for estimator in (declared, fitted(OnlineKDEClassifier), started(OnlineKDEClassifier)):
        assert_refuses(
            estimator,
            ValueError,
            r"not those of the first call of partial_fit, \[0, 1, 2\]",
            lambda: estimator.partial_fit(X, y, classes=classes),  # noqa: B023
        )
    declared.partial_fit(X, y, classes=[0, 1, 2, 2]).partial_fit(X, y, classes=np.arange(3))


BAD_CLASSES = {
    "continuous": [0.5, 1.5],
    "NaN": [0.0, 1.0, np.nan],
    "of two types": [0, "a"],
    "a word": "ab",
    "a number": 3,
    "empty": [],
    "2-d": [[0, 1], [1, 0]],
}


@pytest.mark.parametrize("case", BAD_CLASSES)
@all_beginnings
def test_bad_classes(beginning, case):
    X, y = good_data()
    y = np.minimum(y, 1)
    estimator = beginning(OnlineKDEClassifier)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # scikit-learn casts NaN to an integer
        assert_refuses(
            estimator,
            ValueError,
            "(?i)class|label|array|NaN",
            lambda: estimator.partial_fit(X, y, classes=BAD_CLASSES[case]),
        )
    assert_usable(estimator, beginning)


BAD_PARAMETERS = [
    (
        "covariance_type",
        "round",
        ValueError,
        r"must be one of \['diag', 'full', 'lowrank', 'spherical'\]",
    ),
    ("covariance_type", object, ValueError, "or a CovarianceStructure"),
    ("covariance_type", "Full", ValueError, "must be one of"),
    ("covariance_type", None, ValueError, "must be one of"),
    ("covariance_type", 1, ValueError, "must be one of"),
    ("covariance_type", ["full"], ValueError, "must be one of"),
    (
        "compression_threshold",
        -0.1,
        ValueError,
        "must be 'predictive' or a number from 0 to 1, got",
    ),
    ("compression_threshold", 1.1, ValueError, "must be 'predictive' or a number from 0 to 1, got"),
    (
        "compression_threshold",
        np.nan,
        ValueError,
        "must be 'predictive' or a number from 0 to 1, got",
    ),
    (
        "compression_threshold",
        np.inf,
        ValueError,
        "must be 'predictive' or a number from 0 to 1, got",
    ),
    (
        "compression_threshold",
        "0.1",
        ValueError,
        "must be 'predictive' or a number from 0 to 1, got",
    ),
    ("compression_threshold", None, TypeError, "must be 'predictive' or a number from 0 to 1, got"),
    ("compression_threshold", True, TypeError, "must be 'predictive' or a number from 0 to 1, got"),
    (
        "compression_threshold",
        [0.1],
        TypeError,
        "must be 'predictive' or a number from 0 to 1, got",
    ),
    ("compression_threshold", "Predictive", ValueError, "must be 'predictive' or a number"),
    (
        "forgetting_factor",
        0.0,
        ValueError,
        "must be 'predictive' or a number above 0 and at most 1, got",
    ),
    (
        "forgetting_factor",
        -0.5,
        ValueError,
        "must be 'predictive' or a number above 0 and at most 1, got",
    ),
    (
        "forgetting_factor",
        1.0001,
        ValueError,
        "must be 'predictive' or a number above 0 and at most 1, got",
    ),
    (
        "forgetting_factor",
        np.nan,
        ValueError,
        "must be 'predictive' or a number above 0 and at most 1, got",
    ),
    (
        "forgetting_factor",
        "1",
        ValueError,
        "must be 'predictive' or a number above 0 and at most 1, got",
    ),
    (
        "forgetting_factor",
        None,
        TypeError,
        "must be 'predictive' or a number above 0 and at most 1, got",
    ),
    (
        "forgetting_factor",
        True,
        TypeError,
        "must be 'predictive' or a number above 0 and at most 1, got",
    ),
    ("forgetting_factor", "auto", ValueError, "must be 'predictive' or a number"),
    ("max_components", 1, ValueError, "must be at least 2"),
    ("max_components", 0, ValueError, "must be at least 2"),
    ("max_components", -5, ValueError, "must be at least 2"),
    ("max_components", 10.0, TypeError, "must be None or an integer"),
    ("max_components", "10", TypeError, "must be None or an integer"),
    ("max_components", True, TypeError, "must be None or an integer"),
    ("bandwidth", "gaussian", ValueError, r"must be one of .*'silverman'"),
    ("bandwidth", 0, ValueError, "must be positive"),
    ("bandwidth", -1.0, ValueError, "must be positive"),
    ("bandwidth", np.nan, ValueError, "must be positive"),
    ("bandwidth", np.inf, ValueError, "must be positive"),
    ("bandwidth", None, TypeError, "must be a string, a positive number or an array"),
    ("bandwidth", True, TypeError, "must be a string, a positive number or an array"),
    ("bandwidth", {"plugin": 1}, TypeError, "must be a string, a positive number or an array"),
    ("bandwidth", [1.0], ValueError, r"shape \(2,\), variances, or \(2, 2\)"),
    ("bandwidth", [1.0, 2.0, 3.0], ValueError, r"shape \(2,\), variances, or \(2, 2\)"),
    ("bandwidth", np.eye(3), ValueError, r"shape \(2,\), variances, or \(2, 2\)"),
    ("bandwidth", np.ones((1, 2)), ValueError, r"shape \(2,\), variances, or \(2, 2\)"),
    ("bandwidth", [1.0, 0.0], ValueError, "must be positive"),
    ("bandwidth", [1.0, -1.0], ValueError, "must be positive"),
    ("bandwidth", [1.0, np.nan], ValueError, "contains NaN"),
    ("bandwidth", [1.0, np.inf], ValueError, "contains infinity"),
    ("bandwidth", [[1.0, 0.0], [0.0, -1.0]], ValueError, "must be positive"),
    ("bandwidth", [[1.0, 2.0], [2.0, 1.0]], ValueError, "must be positive definite"),
    ("bandwidth", [[1.0, 1.0], [1.0, 1.0]], ValueError, "must be positive definite"),
    ("bandwidth", [[1.0, 0.5], [0.0, 1.0]], ValueError, "must be symmetric"),
    ("bandwidth", ["a", "b"], ValueError, ""),
    ("bandwidth", [[1.0], [1.0, 2.0]], ValueError, ""),
]


@pytest.mark.parametrize(
    ("parameter", "value", "error", "match"),
    BAD_PARAMETERS,
    ids=[f"{case[0]}={case[1]}".replace("\n", "") for case in BAD_PARAMETERS],
)
@both_fits
@all_beginnings
@both_estimators
def test_bad_parameters(Estimator, beginning, method, parameter, value, error, match):
    assert_refuses_parameter(
        beginning(Estimator), beginning, method, parameter, value, error, match
    )


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (case[1], case[3])
        for case in BAD_PARAMETERS
        if case[0] == "bandwidth" and isinstance(case[1], (str, float, list))
    ],
    ids=str,
)
@both_estimators
def test_bad_bandwidth_at_the_next_score(Estimator, value, match):
    X, _ = good_data()
    estimator = fitted(Estimator).set_params(bandwidth=value)
    assert_refuses(
        estimator,
        ValueError,
        rf"(?s)(?=.*bandwidth).*{match}",
        lambda: estimator.score_samples(X),
    )


@both_fits
@all_beginnings
@both_estimators
def test_bandwidth_matrix_with_diagonal_covariances(Estimator, beginning, method):
    X, y = good_data()
    if beginning is unfitted or method == "fit":
        estimator = beginning(Estimator).set_params(covariance_type="diag", bandwidth=np.eye(2))
    else:
        estimator = Estimator(covariance_type="diag").partial_fit(X, y)
        estimator.set_params(bandwidth=np.eye(2))
    assert_refuses(
        estimator,
        ValueError,
        r"bandwidth of shape \(2, 2\) needs covariance_type='full'",
        lambda: getattr(estimator, method)(X, y),
    )


@pytest.mark.parametrize("change", [("full", "diag"), ("diag", "full")], ids="-".join)
@both_estimators
def test_covariance_type_can_not_change_in_mid_stream(Estimator, change):
    X, y = good_data()
    before, after = change
    for method in ("fit", "partial_fit"):
        estimator = getattr(Estimator(covariance_type=before), method)(X, y)
        scores = estimator.score_samples(X)
        estimator.set_params(covariance_type=after)
        assert_refuses(
            estimator,
            ValueError,
            f"covariance_type can't change from '{before}' to '{after}' in mid-stream",
            lambda: estimator.partial_fit(X, y),  # noqa: B023
        )
        np.testing.assert_array_equal(estimator.score_samples(X), scores)
        estimator.set_params(covariance_type=before).partial_fit(X, y)
        estimator.set_params(covariance_type=after).fit(X, y)


BAD_PRIORS = {
    "too few": [0.5, 0.5],
    "too many": [0.25] * 4,
    "negative": [-0.5, 0.5, 1.0],
    "sum below one": [0.3, 0.3, 0.3],
    "sum above one": [1.0, 1.0, 1.0],
    "zeros": [0.0, 0.0, 0.0],
    "NaN": [np.nan, 0.5, 0.5],
    "infinity": [np.inf, 0.5, 0.5],
    "2-d": [[0.2, 0.3, 0.5]],
    "scalar": 0.5,
    "word": "uniform",
    "words": ["a", "b", "c"],
    "dict": {0: 0.2, 1: 0.3, 2: 0.5},
    "ragged": [[0.2], [0.3, 0.5], 1.0],
}


@pytest.mark.parametrize("case", BAD_PRIORS)
@both_fits
@all_beginnings
def test_bad_priors(beginning, method, case):
    estimator, error = beginning(OnlineKDEClassifier), (TypeError, ValueError)
    assert_refuses_parameter(estimator, beginning, method, "priors", BAD_PRIORS[case], error, "")


@pytest.mark.parametrize("case", BAD_PRIORS)
def test_bad_priors_at_the_next_prediction(case):
    X, _ = good_data()
    estimator = fitted(OnlineKDEClassifier).set_params(priors=BAD_PRIORS[case])
    assert_refuses(estimator, (TypeError, ValueError), "priors", lambda: estimator.predict(X))


BAD_SETTINGS = [
    *[
        ("calibrate", value, TypeError, "must be True or False")
        for value in (None, 1, 0.0, "yes", [True])
    ],
]
BAD_N_JOBS = [
    (0, ValueError, ""),
    ("2", TypeError, "must be None or an integer"),
    (1.5, TypeError, "must be None or an integer"),
]


@pytest.mark.parametrize(("value", "error", "match"), BAD_N_JOBS, ids=str)
@both_fits
@all_beginnings
@both_estimators
def test_bad_n_jobs(Estimator, beginning, method, value, error, match):
    estimator = beginning(Estimator)
    assert_refuses_parameter(estimator, beginning, method, "n_jobs", value, error, match)


@pytest.mark.parametrize(("parameter", "value", "error", "match"), BAD_SETTINGS, ids=str)
@both_fits
@all_beginnings
def test_bad_settings_of_the_classifier(beginning, method, parameter, value, error, match):
    estimator = beginning(OnlineKDEClassifier)
    assert_refuses_parameter(estimator, beginning, method, parameter, value, error, match)


@both_estimators
def test_the_feature_with_huge_values_is_named(Estimator):
    X, y = good_data()
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame.loc[3, "b"] = -1e200
    for call in (Estimator().fit, Estimator().partial_fit):
        with pytest.raises(ValueError, match=r"Values beyond 1e\+150, in features: b\. "):
            call(frame, y)
    with pytest.raises(ValueError, match=r"in features: 0, 1, 2, .*, 9, \.\.\.\. "):
        Estimator().fit(np.full((3, 12), 1e151), y[:3])


@pytest.mark.parametrize("Estimator", [OnlineKDEDensity, OnlineKDEClassifier])
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_that_are_no_numbers_are_named(Estimator, frame):
    X = {"a": [1.0, 2.0], "text": ["x", "y"], "b": [3, 4], "words": ["u", "v"]}
    if frame is pd.DataFrame:  # older versions of polars crash over dates
        X["words"] = pd.to_datetime(["2026-01-01", "2026-01-02"])
    X = frame(X)
    with pytest.raises(ValueError, match=r"no numbers: \['text', 'words'\]\. Drop") as raised:
        Estimator().fit(X, [0, 1])
    assert "could not convert" in str(raised.value) or "promoted" in str(raised.value)
    # What else is wrong with a frame of numbers is told as it is.
    with pytest.raises(ValueError, match="infinity") as raised:
        Estimator().fit(frame({"a": [1.0, np.inf]}), [0, 1])
    assert "numbers" not in str(raised.value)


@both_fits
@all_beginnings
@both_estimators
def test_failure_while_learning(monkeypatch, Estimator, beginning, method):
    # Whatever goes wrong, at whichever class: memory, an interrupt.
    X, y = good_data()
    estimator = beginning(Estimator)
    learn, calls = skokde._density.learn, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == (2 if Estimator is OnlineKDEClassifier else 1):
            raise KeyboardInterrupt("stop")
        return learn(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(skokde._density, "learn", interrupted)
        call = getattr(estimator, method)
        assert_refuses(estimator, KeyboardInterrupt, "stop", lambda: call(X, y))
    assert_usable(estimator, beginning)


@both_estimators
def test_refused_first_call_leaves_no_trace(Estimator):
    X, y = good_data()
    estimator = Estimator()
    with pytest.raises(ValueError, match="contains infinity"):
        estimator.partial_fit(np.full((3, 7), np.inf), y[:3])
    # Another number of features is not held against the next call.
    estimator.partial_fit(X, y)
    assert estimator.n_features_in_ == 2


@pytest.mark.parametrize("form", FORMATS)
def test_only_rows_that_need_no_validation_go_without(form):
    X, y = good_data()
    classifier = OnlineKDEClassifier().fit(X, y)
    given = FORMATS[form](X)
    if hasattr(given, "columns"):
        classifier.fit(given, y)
    validated = validate_data(classifier, given, dtype=np.float64, order="C", reset=False)
    assert _is_ready(classifier, given) == (validated is given)


@pytest.mark.parametrize(
    ("y", "plain"),
    [
        ([0, 1], True),
        ([np.int8(3)], True),
        (["one", "three"], True),
        ([True, False], True),
        ([0.5, 1.0], True),
        ([0, "one"], False),
        ([0, 1.0], False),
        ([None], False),
        ([[0], [1]], False),
        ([], False),
        ((0, 1), False),
    ],
    ids=str,
)
def test_only_plain_lists_become_arrays_before_validation(y, plain):
    array = _as_array(y)
    assert (array is not y) == plain
    if plain:
        validated = column_or_1d(y)
        assert array.dtype == validated.dtype
        np.testing.assert_array_equal(array, validated)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_one_bad_value_is_found_among_many(value):
    X, y = good_data()
    classifier = OnlineKDEClassifier().fit(X, y)
    X[70, 1] = value
    for call in (classifier.predict, lambda rows: classifier.partial_fit(rows, y)):
        with pytest.raises(ValueError, match="infinity"):
            call(X)
