"""P-values for belonging to any of the classes that a classifier knows."""

import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from marks import quick
from skokde import OnlineKDEClassifier
from skokde._ranks import rank_p_values
from skokde._replay import N_KEPT

CENTERS = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]])


def rows(n, seed=0, drift=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    return CENTERS[y] + drift * np.arange(n)[:, None] / n + rng.normal(size=(n, 2)), y


SETTINGS = [
    {},
    {"covariance_type": "diag"},
    {"forgetting_factor": "predictive"},
    {"calibrate": False},
]


@pytest.mark.parametrize("parameters", quick(SETTINGS, 2), ids=str)
def test_levels_hold_and_what_is_unknown_is_found(parameters):
    # Ranks among some hundred rows: one stream's share of p-values below a level is chance.
    p = []
    for seed in range(4):
        X, y = rows(2000, seed=2 * seed)
        classifier = OnlineKDEClassifier(**parameters).fit(X, y)
        p.append(classifier.outlier_p_values(rows(3000, seed=2 * seed + 1)[0]))
    first, p = p[0], np.concatenate(p)
    assert (p > 0.0).all()
    assert (p <= 1.0).all()
    for level in (0.05, 0.2, 0.5):
        # Ranks among so many rows, which are not quite independent of each other.
        deviation = np.sqrt(level * (1.0 - level) / N_KEPT)
        assert abs(np.mean(first <= level) - level) < 5.0 * deviation
        assert 0.4 * level < np.mean(p <= level) < 1.3 * level
    unknown = CENTERS[3] + np.random.default_rng(2).normal(size=(500, 2))
    found = classifier.outlier_p_values(unknown)
    assert np.mean(found <= 0.05) > 0.9


def test_asked_row_by_row_along_a_stream():
    X, y = rows(1200, drift=2.0)
    classifier = OnlineKDEClassifier(forgetting_factor="predictive").fit(X[:300], y[:300])
    p = np.empty(900)
    for i in range(900):
        row = slice(300 + i, 301 + i)
        p[i] = classifier.outlier_p_values(X[row])[0]
        classifier.partial_fit(X[row], y[row])
    assert np.mean(p <= 0.05) < 0.06
    assert np.mean(p <= 0.5) > 0.3


def test_the_best_class_is_ranked_among_rows_in_their_own():
    X, y = rows(900)
    classifier = OnlineKDEClassifier().fit(X, y)
    replay = classifier._calibration.replay
    assert len(replay.rows) <= N_KEPT + 3  # each class has its share, rounded up
    newer = np.arange(len(replay.rows)) >= len(replay.rows) // 2
    known = np.log(np.exp(replay.log_densities[newer]).mean(axis=1))
    settings = classifier._scorer().settings
    best = []
    for density in classifier.estimators_:
        groups = density._class_density(settings).log_densities(X[:50])
        best.append(np.log(np.exp(groups).mean(axis=1)))
    best, counts = np.max(best, axis=0), replay.counts[newer]
    expected = [
        (counts.mean() + counts[known <= score].sum()) / (counts.mean() + counts.sum())
        for score in best
    ]
    np.testing.assert_allclose(classifier.outlier_p_values(X[:50]), expected, rtol=1e-9)
    single = [classifier.outlier_p_values(row)[0] for row in X[:50, None]]
    np.testing.assert_allclose(single, expected, rtol=1e-9)


def test_nothing_is_an_outlier_where_no_row_has_been_predicted():
    X, y = rows(18)
    with pytest.raises(NotFittedError):
        OnlineKDEClassifier().outlier_p_values(X)
    young = OnlineKDEClassifier().fit(X, y)
    np.testing.assert_array_equal(young.outlier_p_values(100.0 * X), 1.0)
    plain = {"compression_threshold": 0.1, "bandwidth": "silverman", "calibrate": False}
    X, y = rows(500)
    np.testing.assert_array_equal(
        OnlineKDEClassifier(**plain).fit(X, y).outlier_p_values(100.0 * X), 1.0
    )
    # Rows were predicted by other densities than there are now.
    changed = OnlineKDEClassifier().fit(X, y).set_params(bandwidth="silverman")
    np.testing.assert_array_equal(changed.outlier_p_values(100.0 * X), 1.0)
    assert (changed.partial_fit(*rows(500, seed=1)).outlier_p_values(100.0 * X) < 0.1).any()


def test_bad_rows_are_refused_and_far_ones_have_low_p_values(state_of):
    X, y = rows(500)
    classifier = OnlineKDEClassifier().fit(X, y)
    before = state_of(classifier)
    holes = X[:5].copy()
    holes[0, 1] = np.nan
    with pytest.raises(ValueError, match="missing values"):
        classifier.outlier_p_values(holes)
    far = classifier.outlier_p_values([[1e6, 0.0], [1e200, -1e200]])
    assert (far < 0.01).all()
    assert state_of(classifier) == before


def test_incomplete_rows_that_were_learned_are_not_referred_to():
    X, y = rows(1500)
    holes = np.where(np.random.default_rng(3).random(X.shape) < 0.2, np.nan, X)
    classifier = OnlineKDEClassifier().fit(holes, y)
    known, _ = classifier._calibration.replay.newer_half()
    assert 100 < len(known) < N_KEPT / 2
    p = classifier.outlier_p_values(rows(2000, seed=1)[0])
    assert 0.01 < np.mean(p <= 0.05) < 0.08


def test_stored_with_the_classifier():
    X, y = rows(600)
    classifier = OnlineKDEClassifier().fit(X, y)
    stored = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(stored.outlier_p_values(X), classifier.outlier_p_values(X))


def test_ranks():
    known, counts = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    found = rank_p_values(np.array([0.0, 1.0, 2.5, 9.0]), known, counts)
    np.testing.assert_allclose(found, [2.0 / 8.0, 4.0 / 8.0, 7.0 / 8.0, 1.0])
    np.testing.assert_array_equal(rank_p_values(np.zeros(2), np.empty(0), np.empty(0)), 1.0)
