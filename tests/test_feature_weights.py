"""Weights of features in distances, by neighborhood components analysis."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

import skokde._pooled_ratios as pooled_ratios
from marks import quick
from skokde import OnlineKDEClassifier
from skokde._engine import feature_weights as module
from skokde._engine.covariance import STRUCTURES
from skokde._engine.discriminants import Discriminant
from skokde._engine.feature_weights import (
    FARTHEST_LOG,
    LARGEST_CHANGE,
    LARGEST_FIRST_CHANGE,
    Predictions,
    learn_feature_weights,
    logs_of_units,
)
from skokde._engine.mixture import Mixture
from skokde._engine.neighbors import N_NEAREST, PRIOR_COUNT, NeighborMetric, Neighbors
from skokde.covariance import DiagonalCovariance, LowRankCovariance

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))


def checkerboard(n, n_noise=4, seed=0):
    """Two features of which neither tells classes apart by itself, and others that are noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2 + n_noise))
    return X, ((X[:, 0] > 0.0) ^ (X[:, 1] > 0.0)).astype(int)


def neighbors_of(X, y, counts=None):
    """In the coordinates of the rows as they are."""
    counts, d, classes = np.ones(len(X)) if counts is None else counts, X.shape[1], np.unique(y)
    empty = Mixture.empty(d, STRUCTURES["diag"])
    mixtures = [empty._replace(counts=counts[y == c], means=X[y == c]) for c in classes]
    same_means = Discriminant.of(np.zeros((len(classes), d)), np.ones(d), STRUCTURES["diag"])
    metric = NeighborMetric.of(same_means, np.ones(len(classes)), np.ones(d))
    return Neighbors.of(mixtures, metric)


def loss_by_hand(neighbors, logs, logs_before, of_units):
    """Of components by votes of those next to them under earlier weights, and of the prior."""
    points, before = neighbors.points * np.exp(logs), neighbors.points * np.exp(logs_before)
    shares = np.linspace(0.0, 1.0, 100_001)[:, None]
    total = 0.5 * np.square(logs - shares * of_units).sum(axis=1).min()
    for i, code in enumerate(neighbors.codes):
        counts = neighbors.counts.copy()
        counts[i] -= 1.0
        squares = np.square(before - before[i]).sum(axis=1)
        squares[i] = 0.0 if counts[i] > 0.0 else np.inf
        voters = np.argsort(squares, kind="stable")[: module.N_VOTERS]
        counts = counts[voters]
        reached = min(np.searchsorted(np.cumsum(counts), N_NEAREST), len(voters) - 1)
        variance = module.WIDTH**2 * squares[voters[reached]]
        exponents = -0.5 * np.square(points[voters] - points[i]).sum(axis=1) / variance
        votes = counts * np.exp(exponents - exponents.max())
        right = votes[neighbors.codes[voters] == code].sum() + PRIOR_COUNT * neighbors.shares[code]
        total -= neighbors.counts[i] * np.log(right / (votes.sum() + PRIOR_COUNT))
    return total


@pytest.mark.parametrize("common_units", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_votes_predict_better_with_what_is_learned(seed, common_units):
    rng = np.random.default_rng(seed)
    X, y = checkerboard(80, seed=seed)
    neighbors = neighbors_of(X, y, rng.integers(1, 4, size=80).astype(float))
    before = rng.normal(scale=0.3, size=6)
    before -= before.mean()
    of_units = rng.normal(size=6) if common_units else np.zeros(6)
    near = Predictions.of(before, neighbors, of_units)
    for logs in (before, np.zeros(6), rng.normal(size=6), 0.4 * of_units, 2.0 * of_units):
        loss, slopes = near.loss(logs)
        assert loss == pytest.approx(loss_by_hand(neighbors, logs, before, of_units))
        error = check_grad(lambda a: near.loss(a)[0], lambda a: near.loss(a)[1], logs)
        assert error < 1e-4 * (1.0 + np.linalg.norm(slopes))
    improved = near.improved(before, 0.5)
    assert improved.sum() == pytest.approx(0.0, abs=1e-12)
    assert near.loss(improved)[0] < near.loss(before)[0] - 2.0
    shares = neighbors.shares[neighbors.codes]
    assert near.loss_by_shares == pytest.approx(-neighbors.counts @ np.log(shares))


def test_features_that_tell_near_samples_apart_get_weight():
    X, y = checkerboard(1500, n_noise=6)
    neighbors, weights, ratios = neighbors_of(X, y), None, []
    for _ in range(12):
        before, weights = weights, learn_feature_weights(neighbors, weights)
        ratios.append(weights[:2].min() / weights[2:].max())
        changes = np.log(weights) - (0.0 if before is None else np.log(before))
        largest = LARGEST_FIRST_CHANGE if before is None else LARGEST_CHANGE
        assert np.abs(changes).max() <= 2.0 * largest
    assert ratios[0] > 2.0
    # Once that is found it is kept. By samples that are near, all changes seem to be small.
    assert min(ratios[2:]) > 5.0
    # Without anything to tell apart they stay alike.
    labels = np.random.default_rng(0).integers(2, size=400)
    weights = learn_feature_weights(neighbors_of(X[:400], labels))
    assert weights.max() < 6.0 * weights.min()


def test_weights_that_few_samples_have_told_wrong_do_not_last():
    # Only samples with the same values of the first two features are of the same class, and by
    # these weights none of them is near.
    X = np.random.default_rng(0).integers(0, 4, size=(500, 6)).astype(float)
    neighbors = neighbors_of(X, (X[:, 0] + X[:, 1]).astype(int) % 2)
    wrong = np.exp([-0.7, -0.9, 0.0, 0.3, 0.4, 0.9])
    near = Predictions.of(np.log(wrong), neighbors, np.zeros(6))
    nowhere = near.improved(np.log(wrong), LARGEST_CHANGE)
    assert nowhere[:2].max() < nowhere[2:].min()
    weights = learn_feature_weights(neighbors, wrong)
    assert weights[:2].min() > 2.0 * weights[2:].max()
    # What is about as good stays.
    labels = np.random.default_rng(1).integers(2, size=500)
    neighbors = neighbors_of(X, labels)
    weights = learn_feature_weights(neighbors, wrong)
    assert np.abs(np.log(weights / wrong)).max() <= 2.0 * LARGEST_CHANGE


def test_numbers_of_classes_do_not_matter_where_many_samples_are_as_near():
    # Of eight features that are zero or one many rows are equal, more than those that vote.
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(401, 8)).astype(float)
    y = (rng.uniform(size=401) < 0.2 + 0.6 * X[:, 0] * X[:, 1]).astype(int)
    assert y.sum() % 2 != (1 - y).sum() % 2  # else two may have their turn at once
    weights = learn_feature_weights(neighbors_of(X, y))
    np.testing.assert_allclose(learn_feature_weights(neighbors_of(X, 1 - y)), weights, rtol=1e-3)


@pytest.mark.parametrize("far", [1.0, 1e9, 1e150])
def test_weights_of_rows_in_one_place_or_far_out_are_finite(far):
    X, y = checkerboard(60)
    X[:30] = X[0]
    X[30:33] = [[far], [-far], [0.5 * far]]
    X[:, 3] = 7.0
    weights = learn_feature_weights(neighbors_of(X, y))
    assert np.isfinite(weights).all()
    assert (np.abs(np.log(weights)) <= 2.0 * FARTHEST_LOG).all()


def test_what_there_is_nothing_to_learn_from_changes_nothing():
    X, y = checkerboard(1)
    before = np.array([0.5, 2.0, 1.0, 1.0, 1.0, 1.0])
    assert learn_feature_weights(neighbors_of(X, y)).tolist() == 6 * [1.0]
    np.testing.assert_allclose(learn_feature_weights(neighbors_of(X, y), before), before)
    X, y = checkerboard(50)
    assert learn_feature_weights(neighbors_of(X[:, :1], y)).tolist() == [1.0]
    gone = learn_feature_weights(neighbors_of(X, y, np.full(50, 1e-200)))
    np.testing.assert_allclose(gone, 1.0, rtol=1e-6)


def in_spreads(X, y, spreads):
    """Neighbors in units of deviations within the classes, which these are."""
    neighbors = neighbors_of(X / spreads, y)
    frame = neighbors.metric.frame._replace(spread=spreads)
    return neighbors._replace(metric=neighbors.metric._replace(frame=frame))


def ratio_that_is_learned(X, y, spreads, *, common_units):
    """Of average weights of the first and the second half of the features."""
    neighbors, weights = in_spreads(X, y, spreads), None
    for _ in range(4):
        weights = learn_feature_weights(neighbors, weights, common_units=common_units)
    first, second = np.split(np.log(weights), 2)
    return np.exp(first.mean() - second.mean())


def test_weights_lead_back_to_common_units_where_these_predict_better():
    # Half of the features vary by little, and tell nothing.
    rng, y = np.random.default_rng(0), np.arange(400) % 2
    spreads = np.repeat([3.0, 0.1], 20)
    X = spreads * rng.normal(size=(400, 40))
    X[:, :20] += 3.0 * y[:, None]
    alone = ratio_that_is_learned(X, y, spreads, common_units=False)
    assert ratio_that_is_learned(X, y, spreads, common_units=True) > 1.5 * alone > 1.5
    # Where they tell as much as all others weights stay alike.
    X[:, 20:] += 0.1 * y[:, None]
    assert 0.7 < ratio_that_is_learned(X, y, spreads, common_units=True) < 1.5


@pytest.mark.parametrize("unit", [1e-300, 2.0**40, 1e300])
def test_common_units_are_those_of_most_features(unit):
    spreads = unit * np.array([1.0, 2.0, 3.0, 1e-7, 1e7])
    frame = in_spreads(*checkerboard(20, n_noise=3), spreads).metric.frame
    logs = logs_of_units(frame)
    assert logs.sum() == pytest.approx(0.0, abs=1e-12)
    expected = [
        0.0,
        np.log(2.0),
        np.log(3.0),
        np.log(2.0) - FARTHEST_LOG,
        np.log(2.0) + FARTHEST_LOG,
    ]
    np.testing.assert_allclose(logs - logs[0], expected, atol=1e-12)


@pytest.mark.parametrize(("d", "most"), [(2, 1024), (128, 652), (1000, 84), (20_000, 5)])
def test_memory_is_bounded_whatever_the_number_of_features(d, most, monkeypatch):
    rng, n, found = np.random.default_rng(0), 1100 if d < 1000 else 90, []
    neighbors = neighbors_of(rng.normal(size=(n, d)), rng.integers(2, size=n))

    def recorded(points, counts, predicted, found_by=module.nearest_voters):
        found.append(found_by(points, counts, predicted))
        return found[-1]

    monkeypatch.setattr(module, "nearest_voters", recorded)
    assert np.isfinite(learn_feature_weights(neighbors)).all()
    assert found
    for voters, *_ in found:
        assert len(voters) == min(n, most)
        assert voters.size * d <= module.MOST_DIFFERENCES + module.N_VOTERS * d


# ------------------------------------------------------------------------------- the classifier


@both_structures
def test_classifiers_learn_what_features_are_worth(covariance_type, monkeypatch):
    (X, y), (rows, labels) = checkerboard(600, n_noise=6), checkerboard(1000, n_noise=6, seed=1)

    def fitted():
        return OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)

    model = fitted()
    weights = model._calibration.feature_weights
    assert weights[:2].min() > 2.0 * weights[2:].max()
    with monkeypatch.context() as patch:
        patch.setattr(pooled_ratios, "learn_feature_weights", lambda *_, **_units: np.ones(8))
        loss_without = log_loss(labels, fitted().predict_proba(rows))
    assert log_loss(labels, model.predict_proba(rows)) < 0.9 * loss_without


@both_structures
def test_units_do_not_matter(covariance_type):
    X, y = checkerboard(200)
    units = 2.0 ** np.array([-30, 20, 5, 0, -7, 9])
    weights = [
        OnlineKDEClassifier(covariance_type=covariance_type).fit(rows, y)._calibration
        for rows in (X, units * X)
    ]
    weights = [calibration.feature_weights for calibration in weights]
    np.testing.assert_allclose(*weights, rtol=1e-6)


class SameUnits(DiagonalCovariance):
    """A structure of one's own, of features that are measured in the same units."""

    name = "same units"
    common_units = True


def test_classifiers_make_use_of_common_units():
    X, y = load_digits(return_X_y=True)
    assert LowRankCovariance().common_units
    with_units, without = (
        log_loss(y[600:], model.fit(X[:600], y[:600]).predict_proba(X[600:]))
        for model in (OnlineKDEClassifier(covariance_type=c) for c in (SameUnits(), "diag"))
    )
    assert with_units < 0.95 * without


def test_merged_models_learn_them_anew():
    X, y = checkerboard(600)
    models = [OnlineKDEClassifier().fit(X[part], y[part]) for part in np.split(np.arange(600), 3)]
    merged = models[0].merge(*models[1:])
    weights = merged._calibration.feature_weights
    assert weights[:2].min() > 1.5 * weights[2:].max()


def test_no_weights_where_nothing_votes():
    X, y = checkerboard(200)
    assert OnlineKDEClassifier(bandwidth="okde").fit(X, y)._calibration.feature_weights is None
    assert OnlineKDEClassifier().fit(X[:12], y[:12])._calibration.feature_weights is None
