"""Votes of the nearest samples, and what they are worth to classes."""

import numpy as np
import pytest
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier

from marks import quick
from skokde import OnlineKDEClassifier
from skokde._engine import neighbors as module
from skokde._engine.covariance import STRUCTURES
from skokde._engine.mixture import Mixture
from skokde._engine.neighbors import N_NEAREST, SCALE, Neighbors
from skokde._engine.state import Settings
from skokde._engine.whitening import frame_of

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))
FULL = STRUCTURES["full"]
SHARES = np.array([0.5, 0.3, 0.2])


def covariance_of(d, covariance_type):
    root = np.random.default_rng(d).normal(size=(d, d))
    covariance = root @ root.T + np.eye(d)
    return covariance if covariance_type == "full" else np.diag(covariance)


def frame(d, covariance_type="full"):
    return frame_of(np.ones(d), covariance_of(d, covariance_type), STRUCTURES[covariance_type])


def diracs(X, counts=None):
    counts, empty = np.ones(len(X)) if counts is None else counts, Mixture.empty(X.shape[1], FULL)
    return empty._replace(counts=counts, means=X)


def rows_of_classes(n=100, d=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), (n * SHARES).astype(int))
    return rng.normal(size=(len(y), d)) + 0.5 * y[:, None], y


def neighbors_of(X, y, frame):
    return Neighbors.of([diracs(X[y == c]) for c in range(3)], frame)


def clumps(n, d=6, n_classes=5, seed=0):
    """Rows from many small clumps, of which each class has its own."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(1).normal(size=(40 * n_classes, d))
    numbers = rng.integers(0, len(centers), size=n)
    return centers[numbers] + 0.3 * rng.normal(size=(n, d)), numbers % n_classes


# ------------------------------------------------------------------------------------- votes


@both_structures
def test_votes_are_those_of_nearest_neighbors(covariance_type):
    (X, y), rows = rows_of_classes(), rows_of_classes(seed=1)[0]
    coordinates = frame(3, covariance_type)
    model = KNeighborsClassifier(N_NEAREST, algorithm="brute").fit(coordinates.points(X), y)
    votes = N_NEAREST * model.predict_proba(coordinates.points(rows))
    expected = np.log((votes + SHARES) / (N_NEAREST + 1.0) / SHARES)
    np.testing.assert_allclose(neighbors_of(X, y, coordinates).log_ratios(rows), SCALE * expected)


def test_no_row_has_its_own_vote():
    (X, y), coordinates = rows_of_classes(), frame(3)
    model = neighbors_of(X, y, coordinates)
    own = np.where(np.arange(len(X)) % 2, y, -1)
    ratios = model.log_ratios(X, own)
    for i, (row, code) in enumerate(zip(X, y, strict=True)):
        others = np.arange(len(X)) != i
        without = neighbors_of(X[others], y[others], coordinates)
        if own[i] >= 0:  # but for the shares, of which one sample more or less changes little
            expected = without._replace(shares=model.shares).log_ratios(row[None])
        else:
            expected = model.log_ratios(row[None])
            own_alone = SCALE * np.log((1.0 / model.shares[code] + 1.0) / (N_NEAREST + 1.0))
            assert expected[0, code] >= own_alone - 1e-12
        np.testing.assert_allclose(ratios[i], expected[0])


def test_equal_votes_for_equal_distances():
    row = np.zeros((1, 2))
    at = [diracs(row, np.array([count])) for count in (30.0, 18.0, 12.0)]
    np.testing.assert_allclose(Neighbors.of(at, frame(2)).log_ratios(row), 0.0, atol=1e-9)
    other = [at[0], diracs(row + 1.0, np.array([18.0])), at[2]]
    ratios = Neighbors.of(other, frame(2)).log_ratios(row)[0]
    assert ratios[0] == pytest.approx(ratios[2])
    assert ratios[1] < 0.0 < ratios[0]


def test_features_that_are_not_known_do_not_count():
    (X, y), coordinates = rows_of_classes(), frame(3)
    model, rows = neighbors_of(X, y, coordinates), rows_of_classes(seed=1)[0][:9]
    rows[3:6, 1], rows[6:, :] = np.nan, np.nan
    ratios = model.log_ratios(rows)
    np.testing.assert_array_equal(ratios[:3], model.log_ratios(rows[:3]))
    known = [0, 2]
    covariance = covariance_of(3, "full")[np.ix_(known, known)]
    marginal = neighbors_of(X[:, known], y, frame_of(np.ones(2), covariance, coordinates.structure))
    np.testing.assert_allclose(ratios[3:6], marginal.log_ratios(rows[3:6][:, known]))
    np.testing.assert_allclose(ratios[6:], 0.0, atol=1e-12)


@pytest.mark.parametrize("far", [1e12, 1e160, 1e300])
def test_far_rows_and_samples_have_finite_ratios(far):
    X, y = rows_of_classes()
    X[:5] = far
    rows = np.array([[far, 0.0, 0.0], [-far, far, far], [0.0, 0.0, 0.0]])
    model = neighbors_of(X, y, frame(3))
    for some in (rows, X):
        assert np.isfinite(model.log_ratios(some, np.full(len(some), 0))).all()


def test_forgotten_samples_hardly_vote():
    X, y = rows_of_classes()
    faded = [diracs(X[y == c], np.full((y == c).sum(), 1e-200)) for c in range(3)]
    np.testing.assert_allclose(Neighbors.of(faded, frame(3)).log_ratios(X), 0.0, atol=1e-12)


# ------------------------------------------------------------------------------- the classifier


@both_structures
def test_votes_tell_many_clumps_apart(covariance_type, monkeypatch):
    (X, y), (rows, labels) = clumps(2000), clumps(1000, seed=2)
    with_votes = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    assert with_votes.calibration_weights_["neighbors"] > 0.0
    monkeypatch.setattr(Settings, "pools_neighbors", False)
    without = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    assert without.calibration_weights_["neighbors"].size == 0
    loss_without = log_loss(labels, without.predict_proba(rows))
    monkeypatch.undo()
    assert log_loss(labels, with_votes.predict_proba(rows)) < 0.98 * loss_without


@pytest.mark.parametrize(
    "parameters", [{"bandwidth": "okde"}, {"compression_threshold": 0.1, "bandwidth": "plugin"}]
)
def test_no_votes_where_the_bandwidth_is_not_predicted(parameters):
    X, y = clumps(300)
    model = OnlineKDEClassifier(**parameters).fit(X, y)
    assert model.calibration_weights_["neighbors"].size == 0


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@both_structures
def test_single_rows_have_the_votes_of_many(covariance_type, memory):
    X, y = clumps(400)
    model = OnlineKDEClassifier(covariance_type=covariance_type, forgetting_factor=memory)
    for row, label in zip(X[:60], y[:60], strict=True):  # what is known of a class goes on
        model.partial_fit(row[None], [label], classes=range(5))
        model.predict_proba(row[None])
    model.partial_fit(X[60:], y[60:])
    settings = model._scoring_settings()
    ratios = model._log_ratios_of_neighbors(X, settings)
    one_by_one = [model._log_ratios_of_neighbors(row[None], settings)[0] for row in X]
    np.testing.assert_array_equal(ratios, one_by_one)
    mixtures = [density._mixture for density in model.estimators_]
    known = Neighbors.of(mixtures, model._known_discriminants(settings).frame)
    np.testing.assert_array_equal(ratios, known.log_ratios(X))


def test_what_does_not_count_takes_no_time(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, size=300)
    model = OnlineKDEClassifier().fit(X, y)
    pool = model._calibration.pool
    zero = np.append(pool.exponents[:-1], 0.0)
    model._calibration = model._calibration._replace(pool=pool._replace(exponents=zero))
    expected = model.predict_proba(X)

    def not_asked(*_):
        raise AssertionError

    monkeypatch.setattr(module, "votes_of_nearest", not_asked)
    model._snapshot = type(model._snapshot)()
    np.testing.assert_array_equal(model.predict_proba(X), expected)
