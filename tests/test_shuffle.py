"""Rows that `fit` learns in a random order."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.utils import shuffle

from skokde import (
    OnlineKDEClassifier,
    OnlineKDEDensity,
    OnlineKDEImputer,
    OnlineKDEOutlierDetector,
    OnlineKDERegressor,
)

TARGETS = (OnlineKDEClassifier, OnlineKDERegressor)
all_estimators = pytest.mark.parametrize(
    "Estimator",
    [
        OnlineKDEDensity,
        OnlineKDEClassifier,
        OnlineKDEOutlierDetector,
        OnlineKDERegressor,
        OnlineKDEImputer,
    ],
)


def rows_for(Estimator, n=150):
    """Rows and, if there are any, targets; and weights, some of which are zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=n), [-0.5, 0.5])
    return (X, y) if Estimator in TARGETS else (X,), rng.integers(0, 3, n)


@all_estimators
def test_fit_learns_rows_in_the_order_of_the_seed(Estimator, assert_same_model, state_of):
    rows, weights = rows_for(Estimator)
    *mixed, mixed_weights = shuffle(*rows, weights, random_state=7)
    expected = Estimator().fit(*mixed, sample_weight=mixed_weights)
    shuffled = Estimator(shuffle=True, random_state=7)
    for _ in range(2):
        assert_same_model(shuffled.fit(*rows, sample_weight=weights), expected)
    other = clone(shuffled).set_params(random_state=8).fit(*rows, sample_weight=weights)
    assert state_of(other) != state_of(expected)


@all_estimators
def test_a_stream_stays_in_its_order(Estimator, assert_same_model):
    rows, weights = rows_for(Estimator)
    parts = [[array[part] for array in rows] for part in (slice(100), slice(100, None))]
    in_order = Estimator().fit(*rows, sample_weight=weights)
    streamed = Estimator(shuffle=True, random_state=7)
    known = {"classes": [0, 1, 2]} if Estimator is OnlineKDEClassifier else {}
    streamed.partial_fit(*parts[0], sample_weight=weights[:100], **known)
    streamed.partial_fit(*parts[1], sample_weight=weights[100:])
    assert_same_model(streamed, in_order)


@pytest.mark.parametrize(
    ("parameters", "error", "match"),
    [
        ({"shuffle": "yes"}, TypeError, "shuffle must be True or False, got 'yes'"),
        ({"shuffle": 1}, TypeError, "shuffle must be True or False, got 1"),
        ({"shuffle": None}, TypeError, "shuffle must be True or False, got None"),
        ({"random_state": "seed"}, ValueError, "random_state"),
    ],
)
@all_estimators
def test_bad_parameters_change_nothing(Estimator, parameters, error, match, assert_same_model):
    rows, weights = rows_for(Estimator)
    estimator = Estimator(shuffle=True, random_state=7).fit(*rows)
    before = clone(estimator).fit(*rows)
    with pytest.raises(error, match=match):
        estimator.set_params(**parameters).fit(*rows, sample_weight=weights)
    assert_same_model(estimator.set_params(shuffle=True, random_state=7), before)


def test_what_is_predicted_is_right_where_rows_resemble_those_next_to_them():
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(size=(120, 4)), 5, axis=0)
    X += 0.05 * rng.normal(size=X.shape)
    y = np.repeat(rng.integers(0, 3, 120), 5)
    test = np.arange(len(X)) % 5 == 4
    in_order = OnlineKDEClassifier().fit(X[~test], y[~test])
    shuffled = OnlineKDEClassifier(shuffle=True, random_state=0).fit(X[~test], y[~test])
    models = in_order, shuffled
    losses = [log_loss(y[test], model.predict_proba(X[test])) for model in models]
    assert shuffled.score(X[test], y[test]) > 0.95
    assert losses[1] < losses[0] - 0.2
    in_order = OnlineKDEDensity().fit(X[~test])
    shuffled = OnlineKDEDensity(shuffle=True, random_state=0).fit(X[~test])
    assert shuffled.score(X[test]) > in_order.score(X[test]) + 0.5
