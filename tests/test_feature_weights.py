"""Weights of features in distances, by neighborhood components analysis."""

import numpy as np
import pytest
from scipy.optimize import check_grad
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
)
from skokde._engine.mixture import Mixture
from skokde._engine.neighbors import N_NEAREST, PRIOR_COUNT, NeighborMetric, Neighbors

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


def loss_by_hand(neighbors, logs, logs_before):
    """Of components by votes of those next to them under earlier weights, and of the prior."""
    points, before = neighbors.points * np.exp(logs), neighbors.points * np.exp(logs_before)
    total = 0.5 * logs @ logs
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


@pytest.mark.parametrize("seed", range(3))
def test_votes_predict_better_with_what_is_learned(seed):
    rng = np.random.default_rng(seed)
    X, y = checkerboard(80, seed=seed)
    neighbors = neighbors_of(X, y, rng.integers(1, 4, size=80).astype(float))
    before = rng.normal(scale=0.3, size=6)
    before -= before.mean()
    near = Predictions.of(before, neighbors)
    for logs in (before, np.zeros(6), rng.normal(size=6)):
        loss, slopes = near.loss(logs)
        assert loss == pytest.approx(loss_by_hand(neighbors, logs, before))
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
    near = Predictions.of(np.log(wrong), neighbors)
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
        patch.setattr(pooled_ratios, "learn_feature_weights", lambda *_: np.ones(8))
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
