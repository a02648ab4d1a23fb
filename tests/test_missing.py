"""Rows with missing values: scored by exact marginals, learned by draws given what is known."""

import pickle

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import twins
from marks import quick
from skokde import DegenerateDataWarning, OnlineKDEClassifier, OnlineKDEDensity
from skokde._engine.covariance import STRUCTURES
from skokde._engine.kde import in_one_shape
from skokde._engine.missing import by_known_features, patterns
from skokde._engine.mixture import Mixture
from skokde._incomplete import MOST_WAITING, Waiting, complete
from skokde.distribution import GaussianMixtureDistribution

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))
both_estimators = pytest.mark.parametrize(
    "Estimator", [OnlineKDEDensity, OnlineKDEClassifier], ids=["density", "classifier"]
)

SETTINGS = {
    "predictive": {},
    "paper": {"compression_threshold": 0.1, "bandwidth": "okde"},
    "memory": {"forgetting_factor": "predictive"},
    "array": {"bandwidth": [0.5, 1.0, 2.0, 0.1]},
    "capped": {"max_components": 10, "forgetting_factor": 0.98},
}


def stream(n=300, d=4, seed=0):
    """Rows of two clusters, correlated within each, in units far apart, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size=n)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 4.0 * y[:, None] * rng.normal(size=d)
    return X * 10.0 ** np.linspace(-2.0, 3.0, d), y


def with_holes(X, share=0.3, seed=1):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(X.shape) < share, np.nan, X)


# ------------------------------------------------------------------------------------ scoring


@pytest.mark.parametrize("settings", SETTINGS)
@both_structures
def test_scores_are_those_of_marginals(covariance_type, settings):
    X, _ = stream()
    X[7] *= 1e6  # an outlier: far components are not shrunk, in no marginal either
    density = OnlineKDEDensity(covariance_type=covariance_type, **SETTINGS[settings]).fit(X)
    distribution, rng = density.distribution(), np.random.default_rng(0)
    near = X[:40] + 0.1 * X.std(axis=0) * rng.normal(size=(40, 4))
    for features in ([2], [0, 3], [0, 1, 2]):
        rows = np.full((40, 4), np.nan)
        rows[:, features] = near[:, features]
        expected = distribution.marginal(features).logpdf(near[:, features])
        np.testing.assert_allclose(density.score_samples(rows), expected, rtol=1e-9, atol=1e-9)


@both_structures
def test_scores_are_integrals_over_what_is_missing(covariance_type):
    X = stream(d=2)[0] / [1e-2, 1e3]
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    for x in X[:3, 0]:
        integral, _ = quad(
            lambda y, x=x: np.exp(density.score_samples([[x, y]])[0]),
            X[:, 1].min() - 20.0,
            X[:, 1].max() + 20.0,
            points=np.sort(X[:3, 1]),
            limit=500,
            epsrel=1e-7,
        )
        assert np.log(integral) == pytest.approx(density.score_samples([[x, np.nan]])[0], abs=1e-4)


@both_structures
@both_estimators
def test_rows_are_scored_as_each_alone(Estimator, covariance_type):
    X, y = stream()
    estimator = Estimator(covariance_type=covariance_type).fit(X, y)
    rows = with_holes(X[:80], 0.4)
    rows[5] = np.nan
    methods = ["score_samples"]
    if Estimator is OnlineKDEClassifier:
        methods += ["predict_log_proba", "predict_joint_log_proba"]
    for method in methods:
        call = getattr(estimator, method)
        alone = np.concatenate([call(row[None]) for row in rows])
        np.testing.assert_allclose(call(rows), alone, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(call(rows[::-1])[::-1], alone, rtol=1e-9, atol=1e-9)
        two = getattr(Estimator(covariance_type=covariance_type, n_jobs=2).fit(X, y), method)
        np.testing.assert_array_equal(two(rows), call(rows))


@both_structures
def test_a_row_without_any_value_has_density_one_and_the_prior(covariance_type):
    X, y = stream()
    nothing = np.full((2, 4), np.nan)
    assert not OnlineKDEDensity(covariance_type=covariance_type).fit(X).score_samples(nothing).any()
    for parameters in ({}, {"calibrate": False}, {"priors": [0.9, 0.1]}):
        classifier = OnlineKDEClassifier(covariance_type=covariance_type, **parameters).fit(X, y)
        prior = classifier.class_prior_
        if not parameters:
            prior = twins.shrunk_prior(classifier.class_count_)
        expected = np.tile(prior, (2, 1))
        np.testing.assert_allclose(classifier.predict_proba(nothing), expected, rtol=1e-12)
        assert np.abs(classifier.score_samples(nothing)).max() < 1e-12


@both_structures
def test_joint_probabilities_are_those_of_the_marginals_of_classes(covariance_type):
    X, y = stream()
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    features = [1, 3]
    rows = np.full_like(X[:30], np.nan)
    rows[:, features] = X[:30][:, features]
    expected = np.log(classifier.class_prior_) + np.column_stack(
        [classifier.distribution(c).marginal(features).logpdf(X[:30][:, features]) for c in (0, 1)]
    )
    found = classifier.predict_joint_log_proba(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@both_structures
def test_groups_of_experts_have_marginals(covariance_type):
    X, _ = stream()
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    kde, features = density._kde(density._settings()), [0, 2]
    rows = np.full((20, 4), np.nan)
    rows[:, features] = X[:20][:, features]
    found = kde.log_densities_of_groups(rows)
    for group in range(kde.n_groups):
        parts = [
            part
            for family, held in zip(kde.families, kde.weights, strict=True)
            for part in family.gaussians(held[1 + group])
        ]
        weights, means, covariances = zip(*parts, strict=True)
        mixture = GaussianMixtureDistribution(
            np.concatenate(weights), np.concatenate(means), in_one_shape(covariances)
        )
        expected = mixture.marginal(features).logpdf(X[:20][:, features])
        np.testing.assert_allclose(found[:, group], expected, rtol=1e-9, atol=1e-9)


def test_patterns():
    X = np.array([[1.0, np.nan], [np.nan, np.nan], [2.0, np.nan], [3.0, 4.0]])
    found = {tuple(features): rows.tolist() for rows, features in patterns(X)}
    assert found == {(0, 1): [3], (0,): [0, 2], (): [1]}
    sums = by_known_features(X, lambda features, rows: rows.sum(axis=1), ())
    np.testing.assert_array_equal(sums, [1.0, 0.0, 2.0, 7.0])


@both_structures
def test_marginals_of_features_in_any_units_and_far_out(covariance_type):
    X, _ = stream()
    X = X * [1e-12, 1e12, 1.0, 1.0]
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    rows = np.full((4, 4), np.nan)
    rows[0, 0], rows[1, 1], rows[2, 2:], rows[3, 0] = X[0, 0], X[1, 1], X[2, 2:], 1e150
    scores = density.score_samples(rows)
    assert np.isfinite(scores[:3]).all()
    assert not np.isnan(scores).any()


# ----------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("settings", quick(SETTINGS, 2))
@both_structures
@both_estimators
def test_models_do_not_depend_on_the_calls(Estimator, covariance_type, settings, state_of):
    X, y = stream(150)
    rows = with_holes(X)
    rows[40] = np.nan
    parameters = {"covariance_type": covariance_type, **SETTINGS[settings]}
    whole = Estimator(**parameters).fit(rows, y)
    blocks, classes = Estimator(**parameters), {}
    if Estimator is OnlineKDEClassifier:
        classes["classes"] = [0, 1]
    for at in np.split(np.arange(150), [1, 2, 3, 10, 60, 61, 110]):
        blocks.partial_fit(rows[at], y[at], **classes)
    assert state_of(blocks) == state_of(whole)
    assert np.isfinite(whole.score_samples(X)).all()


@both_structures
def test_moments_are_kept_where_means_would_shrink_them(covariance_type):
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    scored = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.multivariate_normal([3.0, -1.0], covariance, size=3000)
        density = OnlineKDEDensity(covariance_type=covariance_type).fit(with_holes(X, 0.3))
        learned = np.average(density.means_, axis=0, weights=density.weights_)
        np.testing.assert_allclose(learned, [3.0, -1.0], atol=0.1)
        # Of what is scored, whose widest kernels make the tails a little heavier.
        cov = density.distribution().cov
        scored.append([*np.diag(cov), cov[0, 1] / np.sqrt(np.diag(cov).prod())])
    *variances, correlation = np.mean(scored, axis=0)
    assert 0.9 < min(variances) <= max(variances) < 1.15  # by means it would be 0.7
    if covariance_type == "full":
        assert 0.6 < correlation < 0.85  # by means 0.56


def test_incomplete_rows_teach_more_than_the_complete_ones_alone():
    X, X_test = np.split(stream(800, 8)[0], 2)
    rows = with_holes(X, 0.3)
    complete = ~np.isnan(rows).any(axis=1)
    assert 10 < complete.sum() < 40
    by_all = OnlineKDEDensity().fit(rows).score(X_test)
    assert by_all > OnlineKDEDensity().fit(rows[complete]).score(X_test) + 0.5


@both_structures
def test_completions_do_not_run_away(covariance_type):
    # Regressions on more features than there are samples extrapolate anywhere.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 20)) @ rng.normal(size=(20, 20))
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(with_holes(X, 0.5))
    assert np.abs(density.means_ / X.std(axis=0)).max() < 15.0


@both_estimators
def test_rows_without_any_value_are_left_out(Estimator, state_of):
    X, y = stream(100)
    rows = np.insert(X, [10, 50], np.nan, axis=0)
    labels = np.insert(y, [10, 50], 0)
    density = OnlineKDEDensity().fit(rows)
    assert state_of(density) == state_of(OnlineKDEDensity().fit(X))
    if Estimator is OnlineKDEClassifier:  # but their classes count
        classifier = OnlineKDEClassifier().fit(rows, labels)
        np.testing.assert_array_equal(classifier.class_count_, np.bincount(labels))
        for c, estimator in enumerate(classifier.estimators_):
            assert estimator.n_samples_seen_ == (y == c).sum()


@both_structures
def test_calibration_knows_what_is_missing(covariance_type):
    # Of two features one tells the classes apart; where it is missing no one can be sure.
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=2000)
    X = rng.normal(size=(2000, 2))
    X[:, 0] += 6.0 * y
    X[rng.random(2000) < 0.5, 0] = np.nan
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:1000], y[:1000])
    log_p = classifier.predict_log_proba(X[1000:])[np.arange(1000), y[1000:]]
    unknown = np.isnan(X[1000:, 0])
    assert log_p[~unknown].mean() > -0.02
    assert -0.75 < log_p[unknown].mean() < -0.65  # log 2 at best


def test_a_row_twice_is_the_row_with_weight_two_in_the_calibration():
    X, y = stream(120)
    X[::7, 2] = np.nan
    one = OnlineKDEClassifier().fit(X, y, sample_weight=np.full(120, 2.0))._calibration
    two = OnlineKDEClassifier().fit(X.repeat(2, axis=0), y.repeat(2))._calibration
    assert one.position == two.position == 120
    np.testing.assert_array_equal(one.replay.rows, two.replay.rows)
    np.testing.assert_array_equal(one.replay.counts, two.replay.counts)


def two_components(d, structure, distance):
    """A mixture of a compound and a Dirac, three times as heavy, so far apart in all features."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(d, d))
    covariance = A @ A.T if structure.name == "full" else np.diag(A @ A.T).copy()
    empty = Mixture.empty(d, structure)
    return empty._replace(
        counts=np.array([1.0, 3.0]),
        means=np.array([np.zeros(d), np.full(d, distance)]),
        covariances=covariance[None],
        detail_weights=np.array([[0.5, 0.5]]),
        detail_means=np.zeros((1, 2, d)),
        details_merged=np.zeros((1, 2), dtype=bool),
    )


@both_structures
def test_donors_are_drawn_as_probable_as_they_are(covariance_type):
    structure, rng = STRUCTURES[covariance_type], np.random.default_rng(0)
    mixture = two_components(3, structure, 4.0)
    bandwidth = structure.to_matrix(np.array([0.5, 1.0, 2.0]))
    known, n = 2.2, 4000
    drawn = np.array(
        [complete(np.array([known, np.nan, np.nan]), mixture, bandwidth, rng) for _ in range(n)]
    )
    assert (drawn[:, 0] == known).all()
    variance = structure.variances(mixture.covariances)[0, 0]
    densities = norm([0.0, 4.0], np.sqrt([variance + 0.5, 0.5])).pdf(known) * [1.0, 3.0]
    assert 0.2 < densities[1] / densities.sum() < 0.8
    of_dirac = (drawn[:, 1:] == 4.0).all(axis=1)
    assert of_dirac.mean() == pytest.approx(densities[1] / densities.sum(), abs=0.03)
    # Values of merged samples have their covariance, and no kernel besides.
    found = np.cov(drawn[~of_dirac][:, 1:].T)
    f = np.array([1, 2])
    expected = structure.marginal(mixture.covariances, f)[0]
    if covariance_type == "diag":
        expected = np.diag(expected)
    np.testing.assert_allclose(found, expected, atol=0.15 * np.max(expected))


@both_structures
def test_the_nearest_is_the_donor_of_what_is_far_from_all(covariance_type):
    structure, rng = STRUCTURES[covariance_type], np.random.default_rng(0)
    mixture, bandwidth = two_components(2, structure, 4.0), structure.to_matrix(np.ones(2))
    for value in (1e10, 1e149):
        # In its own units the wide compound is nearer.
        drawn = complete(np.array([value, np.nan]), mixture, bandwidth, rng)
        assert np.isfinite(drawn).all()
        assert drawn[0] == value
        assert drawn[1] != 4.0


# ------------------------------------------------------------------------------------ waiting


def test_rows_wait_until_each_feature_has_been_seen():
    density = OnlineKDEDensity()
    density.partial_fit([[1.0, np.nan, np.nan], [2.0, np.nan, 5.0]])
    assert not density.__sklearn_is_fitted__()
    density.partial_fit([[np.nan, 7.0, 9.0]])
    assert density.n_samples_seen_ == 3
    expected = [[1.0, 7.0, 7.0], [2.0, 7.0, 5.0], [1.5, 7.0, 9.0]]
    np.testing.assert_array_equal(density.means_, expected)


def test_a_feature_without_any_value_is_constant():
    X, _ = stream(60)
    rows = X.copy()
    rows[:, 1] = np.nan
    density = OnlineKDEDensity().partial_fit(rows[: MOST_WAITING - 1])
    assert not density.__sklearn_is_fitted__()
    with pytest.warns(DegenerateDataWarning, match=r": 1\."):
        density.partial_fit(rows[MOST_WAITING - 1 :])
    assert density.n_samples_seen_ == 60
    assert density.corrected_features_.tolist() == [False, True, False, False]
    # A call of fit brings all that there is.
    with pytest.warns(DegenerateDataWarning, match=r": 1\."):
        OnlineKDEDensity().fit(rows)
    assert OnlineKDEDensity().fit(rows[:10]).n_samples_seen_ == 10


@both_estimators
def test_rows_without_any_value_alone_are_refused(Estimator, state_of):
    X, y = stream(50)
    estimator = Estimator().fit(X, y)
    before = state_of(estimator)
    with pytest.raises(ValueError, match="all values of X are missing"):
        estimator.fit(np.full((5, 4), np.nan), y[:5])
    assert state_of(estimator) == before
    empty = Estimator().partial_fit(np.full((5, 4), np.nan), y[:5])
    assert not empty.__sklearn_is_fitted__()
    assert empty.partial_fit(X, y).__sklearn_is_fitted__() or Estimator is OnlineKDEClassifier


def test_a_class_that_waits_has_no_prior():
    X, y = stream(100)
    classifier = OnlineKDEClassifier()
    classifier.partial_fit(X[y == 0], y[y == 0], classes=[0, 1])
    waiting = X[y == 1][:3].copy()
    waiting[:, 2] = np.nan
    classifier.partial_fit(waiting, [1, 1, 1])
    np.testing.assert_array_equal(classifier.class_prior_, [1.0, 0.0])
    assert (classifier.predict(X) == 0).all()
    classifier.partial_fit(X[y == 1], y[y == 1])
    assert classifier.class_prior_[1] == np.mean(np.append(y, [1, 1, 1]))


def test_classes_that_waited_are_seen_after_fit():
    X, y = stream(100)
    X[y == 1, 2] = np.nan
    X = np.concatenate([X[y == 0], X[y == 1][:20]])
    y = np.repeat([0, 1], [len(X) - 20, 20])
    classifier = OnlineKDEClassifier().fit(X, y)
    np.testing.assert_allclose(classifier.class_prior_, np.bincount(y) / len(y))
    assert np.isfinite(classifier.predict_joint_log_proba(X)).all()


def test_all_classes_may_wait_for_long():
    X, y = stream(100)
    rows = X.copy()
    rows[:50, 3] = np.nan
    classifier = OnlineKDEClassifier()
    classifier.partial_fit(rows[:25], y[:25])
    assert not classifier.__sklearn_is_fitted__()
    classifier.partial_fit(rows[25:], y[25:])
    assert np.isfinite(classifier.predict_log_proba(X)).all()


def test_waiting_rows_are_stored():
    rows = np.array([[1.0, np.nan], [2.0, np.nan]])
    density = OnlineKDEDensity().partial_fit(rows)
    back = pickle.loads(pickle.dumps(density))
    for estimator in (density, back):
        estimator.partial_fit([[3.0, 4.0]])
    np.testing.assert_array_equal(back.means_, density.means_)


@pytest.mark.parametrize(
    "damaged",
    [
        Waiting(np.ones((2, 3)), np.ones(2)),
        Waiting(np.full((2, 2), np.inf), np.ones(2)),
        Waiting(np.ones((2, 2)), np.ones(3)),
        Waiting(np.ones((2, 2)), np.array([1.0, -1.0])),
    ],
    ids=["features", "infinite", "weights", "negative"],
)
def test_damaged_waiting_rows_are_found(damaged):
    density = OnlineKDEDensity().partial_fit([[1.0, np.nan], [2.0, np.nan]])
    state = density.__getstate__()
    state["_waiting"] = damaged._asdict()
    with pytest.raises(ValueError, match="damaged"):
        OnlineKDEDensity().__setstate__(state)


@both_estimators
def test_stored_in_the_middle_of_a_window(Estimator, state_of):
    X, y = stream(200)
    rows = with_holes(X)
    whole = Estimator().partial_fit(rows, y)
    for n in (1, 65, 130):
        half = pickle.loads(pickle.dumps(Estimator().partial_fit(rows[:n], y[:n])))
        assert state_of(half.partial_fit(rows[n:], y[n:])) == state_of(whole)


@both_estimators
def test_infinite_values_are_refused_beside_missing_ones(Estimator, state_of):
    X, y = stream(50)
    estimator = Estimator().fit(X, y)
    before, rows = state_of(estimator), with_holes(X)
    for value, match in ((np.inf, "infinity"), (-1e151, "Values beyond")):
        rows[3, 0] = value
        for method in (estimator.fit, estimator.partial_fit):
            with pytest.raises(ValueError, match=match):
                method(rows, y)
    assert state_of(estimator) == before
