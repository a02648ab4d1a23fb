"""What OnlineKDEClassifier promises of classes, priors and probabilities."""

import copy
import pickle
from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import norm
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.utils import shuffle

import skokde._density
import twins
from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._classifier import share_of_unseen
from skokde._engine.bandwidth import normal_reference
from skokde._engine.experts import empty_state
from skokde._engine.learn import learn
from skokde._engine.shrinkage import pooled_within_covariance, shrink_shares
from skokde._validation import check_settings

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))

NAMES = {
    "strings": np.array(["setosa", "b", "zz"]),
    "objects": np.array(["setosa", "b", "zz"], dtype=object),
    "integers": np.array([7, -1, 3]),
    "small integers": np.array([2, 0, 1], dtype=np.uint8),
    "floats": np.array([2.0, 0.0, 1.0]),
}


# Parameters that the densities of classes have as if they were not given.
NOT_HANDED_ON = {"shuffle": False, "random_state": None, "n_jobs": None, "verbose": 0}


@pytest.fixture(scope="module")
def iris():
    return shuffle(*load_iris(return_X_y=True), random_state=0)


def blobs(n=120, seed=0):
    """Three classes, well apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    return rng.normal(size=(n, 2)) + 8.0 * np.eye(3)[y][:, :2], y


# --------------------------------------------------------------------------------- class labels


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
def test_labels_of_any_kind(kind, declared):
    X, y = blobs()
    labels = NAMES[kind][y]
    classifier = OnlineKDEClassifier()
    for i in range(len(X)):
        first = {"classes": NAMES[kind]} if declared and i == 0 else {}
        classifier.partial_fit(X[[i]], labels[[i]], **first)
    assert classifier.classes_.tolist() == sorted(NAMES[kind].tolist())
    assert classifier.classes_.dtype.kind == NAMES[kind].dtype.kind.replace("O", "U")
    counts = dict(zip(*np.unique(labels, return_counts=True), strict=True))
    expected = [counts[label] for label in classifier.classes_]
    np.testing.assert_array_equal(classifier.class_count_, expected)
    predicted = classifier.predict(X)
    assert predicted.dtype == classifier.classes_.dtype
    assert predicted.shape == (len(X),)
    assert classifier.score(X, labels) > 0.95
    best = np.argmax(classifier.predict_proba(X), axis=1)
    np.testing.assert_array_equal(classifier.classes_[best], predicted)


def test_components_are_those_of_all_classes(iris):
    classifier = OnlineKDEClassifier()
    assert not hasattr(classifier, "n_components_")
    classifier.partial_fit(*iris, classes=[0, 1, 2, 3])  # of one there is no row
    held = [density.n_components_ for density in classifier.estimators_[:3]]
    assert classifier.n_components_ == sum(held) > 50


def test_truth_values_as_labels():
    X, y = blobs()
    classifier = OnlineKDEClassifier().fit(X, y == 1)
    assert classifier.classes_.dtype == bool
    assert classifier.classes_.tolist() == [False, True]
    assert classifier.predict(X).dtype == bool
    assert classifier.score(X, y == 1) > 0.95
    streamed = OnlineKDEClassifier()
    for i in range(len(X)):
        streamed.partial_fit(X[[i]], y[[i]] == 1, classes=[True, False])
    np.testing.assert_array_equal(streamed.predict_proba(X), classifier.predict_proba(X))


@both_structures
def test_labels_do_not_change_the_model(covariance_type):
    X, y = blobs()
    numbers = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    words = OnlineKDEClassifier(covariance_type=covariance_type).fit(
        X, np.array(["a", "b", "c"])[y]
    )
    np.testing.assert_array_equal(numbers.predict_proba(X), words.predict_proba(X))


def test_undeclared_classes_grow():
    X, y = blobs()
    classifier = OnlineKDEClassifier()
    classifier.partial_fit(X[y == 2], ["m"] * np.sum(y == 2))
    assert classifier.classes_.tolist() == ["m"]
    np.testing.assert_array_equal(classifier.predict_proba(X), np.ones((len(X), 1)))
    middle = classifier.estimators_[0]
    classifier.partial_fit(X[:1], ["a name that is longer"])
    assert classifier.classes_.tolist() == ["a name that is longer", "m"]
    assert classifier.class_count_.tolist() == [1.0, np.sum(y == 2)]
    assert classifier.estimators_[1].n_samples_seen_ == middle.n_samples_seen_
    classifier.partial_fit(X[:2], ["z", "n"])
    assert classifier.classes_.tolist() == ["a name that is longer", "m", "n", "z"]
    assert classifier.class_count_.tolist() == [1.0, np.sum(y == 2), 1.0, 1.0]
    assert [e.n_samples_seen_ for e in classifier.estimators_] == [1, np.sum(y == 2), 1, 1]
    assert classifier.predict_proba(X).shape == (len(X), 4)


@both_structures
def test_a_late_class_is_as_one_declared(covariance_type):
    X, y = blobs()
    order = np.argsort(y, kind="stable")[::-1]  # class 0 comes last
    declared = OnlineKDEClassifier(covariance_type=covariance_type, forgetting_factor=0.99)
    undeclared = OnlineKDEClassifier(covariance_type=covariance_type, forgetting_factor=0.99)
    for block in np.array_split(order, 13):
        declared.partial_fit(X[block], y[block], classes=[0, 1, 2])
        undeclared.partial_fit(X[block], y[block])
        seen = np.isin([0, 1, 2], undeclared.classes_)
        of_seen = declared.predict_proba(X)[:, seen]
        # Those that may yet come have a little.
        np.testing.assert_allclose(
            of_seen / of_seen.sum(axis=1, keepdims=True), undeclared.predict_proba(X), rtol=1e-12
        )
        joint = declared.predict_joint_log_proba(X)[:, seen]
        np.testing.assert_array_equal(joint, undeclared.predict_joint_log_proba(X))
    np.testing.assert_array_equal(declared.class_count_, undeclared.class_count_)
    assert seen.all()


@both_structures
def test_prediction_works_from_the_first_sample_on(covariance_type):
    X, y = blobs()
    classifier = OnlineKDEClassifier(covariance_type=covariance_type)
    seen = set()
    for i in range(30):
        classifier.partial_fit(X[[i]], y[[i]], classes=[0, 1, 2, 3])
        seen.add(y[i])
        probabilities = classifier.predict_proba(X)
        assert np.isfinite(probabilities).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        unseen = [label for label in range(4) if label not in seen]
        singles = (np.bincount(y[: i + 1]) == 1).sum()
        share = min((singles + 1.0 / len(seen)) / (i + 3), 0.9 * len(unseen) / 4)
        np.testing.assert_allclose(probabilities[:, unseen], share / len(unseen))
        assert np.isneginf(classifier.predict_joint_log_proba(X)[:, unseen]).all()
        plain = copy.copy(classifier).set_params(calibrate=False)
        assert np.isneginf(plain.predict_log_proba(X)[:, unseen]).all()
        given = copy.copy(classifier).set_params(priors=[0.25] * 4)
        assert not given.predict_proba(X)[:, unseen].any()
        assert set(classifier.predict(X)) <= seen
        assert not hasattr(classifier.estimators_[3], "weights_")
    assert classifier.class_count_[3] == classifier.class_prior_[3] == 0.0
    assert classifier.score(X, y) > 0.95


def test_two_samples_of_two_classes():
    classifier = OnlineKDEClassifier().fit([[0.0, 0.0], [4.0, 0.0]], ["left", "right"])
    rows = [[0.1, 0.0], [3.9, 0.0], [-9.0, 0.0], [99.0, 0.0]]
    assert classifier.predict(rows).tolist() == ["left", "right", "left", "right"]
    np.testing.assert_allclose(classifier.predict_proba([[2.0, 0.0]]), [[0.5, 0.5]])


def test_one_class_is_enough():
    X, _ = blobs()
    for bandwidth, threshold in product(("predictive", "plugin"), ("predictive", 0.08)):
        parameters = {"bandwidth": bandwidth, "compression_threshold": threshold}
        classifier = OnlineKDEClassifier(**parameters).fit(X, np.zeros(len(X)))
        assert not classifier.predict(X).any()
        np.testing.assert_array_equal(classifier.predict_proba(X), 1.0)
        expected = OnlineKDEDensity(**parameters).fit(X).score_samples(X)
        # Evidence for experts is taken under a prior that is as old as the last checkpoint.
        atol = 0.01 if "predictive" in parameters.values() else 1e-10
        np.testing.assert_allclose(classifier.score_samples(X), expected, rtol=0, atol=atol)


def test_of_equally_probable_classes_the_first():
    X = np.random.default_rng(0).normal(size=(40, 2))
    classifier = OnlineKDEClassifier(calibrate=False).fit(np.repeat(X, 2, axis=0), ["z", "a"] * 40)
    assert set(classifier.predict(X)) == {"a"}
    np.testing.assert_allclose(classifier.predict_proba(X), 0.5)
    # A calibration that has seen one of them more often may tell them apart, but hardly.
    classifier.set_params(calibrate=True)
    np.testing.assert_allclose(classifier.predict_proba(X), 0.5, atol=0.02)


def test_before_fitting():
    classifier = OnlineKDEClassifier()
    for name in ("classes_", "class_count_", "class_prior_", "estimators_", "n_features_in_"):
        assert not hasattr(classifier, name)
    # All weights zero: the classes are known, but there is no density yet.
    X, y = blobs()
    classifier.partial_fit(X, y, sample_weight=np.zeros(len(X)))
    assert classifier.classes_.tolist() == [0, 1, 2]
    with pytest.raises(NotFittedError):
        classifier.predict(X)
    classifier.partial_fit(X, y)
    np.testing.assert_array_equal(
        classifier.predict_proba(X), OnlineKDEClassifier().fit(X, y).predict_proba(X)
    )


# ---------------------------------------------------------------------------------- the densities


@both_structures
@pytest.mark.parametrize("forgetting_factor", [1.0, 0.97])
def test_densities_are_those_of_each_class_alone(
    iris, assert_same_model, covariance_type, forgetting_factor
):
    X, y = iris
    parameters = {
        "covariance_type": covariance_type,
        "forgetting_factor": forgetting_factor,
        "compression_threshold": 0.2,
        "bandwidth": "scott",
        "max_components": 25,
    }
    classifier = OnlineKDEClassifier(**parameters)
    for block in np.array_split(np.arange(150), 4):
        classifier.partial_fit(X[block], y[block])
    assert len(classifier.estimators_) == 3
    for label, density in enumerate(classifier.estimators_):
        assert type(density) is OnlineKDEDensity
        assert density.get_params() == parameters | NOT_HANDED_ON
        alone = OnlineKDEDensity(**parameters).fit(X[y == label])
        assert_same_model(density, alone)
        np.testing.assert_array_equal(density.score_samples(X), alone.score_samples(X))


def test_a_class_ages_with_its_own_rows_only(assert_same_model, state_of):
    X, y = blobs()
    classifier = OnlineKDEClassifier(forgetting_factor=0.9).fit(X, y)
    before, count = state_of(classifier.estimators_[1]), classifier.class_count_[1]
    classifier.partial_fit(X[y == 2], y[y == 2])
    assert_same_model(before, classifier.estimators_[1])
    expected = count * 0.9 ** np.sum(y == 2)
    assert classifier.class_count_[1] == pytest.approx(expected, rel=1e-12)


@both_structures
def test_joint_is_prior_times_density(iris, covariance_type):
    X, y = iris
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, calibrate=False).fit(X, y)
    joint = classifier.predict_joint_log_proba(X)
    assert joint.shape == (150, 3)
    # Under a given H the densities are those of the estimators.
    given = OnlineKDEClassifier(covariance_type=covariance_type, bandwidth=np.full(4, 0.1))
    densities = np.column_stack([e.score_samples(X) for e in given.fit(X, y).estimators_])
    expected = densities + np.log(given.class_prior_)
    np.testing.assert_array_equal(given.predict_joint_log_proba(X), expected)
    np.testing.assert_allclose(classifier.predict_proba(X), softmax(joint, axis=1), atol=1e-14)
    np.testing.assert_allclose(classifier.predict_proba(X).sum(axis=1), 1.0)
    log_proba = joint - logsumexp(joint, axis=1, keepdims=True)
    np.testing.assert_allclose(classifier.predict_log_proba(X), log_proba, rtol=1e-10, atol=1e-12)
    mixture = logsumexp(joint, axis=1)
    np.testing.assert_allclose(classifier.score_samples(X), mixture, rtol=1e-12)
    assert classifier.score(X, y) == np.mean(classifier.classes_[np.argmax(joint, axis=1)] == y)
    # The densities, and what is made of them alone, are not calibrated.
    classifier.set_params(calibrate=True)
    np.testing.assert_array_equal(classifier.predict_joint_log_proba(X), joint)
    np.testing.assert_allclose(classifier.score_samples(X), mixture, rtol=1e-12)
    best = classifier.classes_[classifier.predict_proba(X).argmax(axis=1)]
    np.testing.assert_array_equal(classifier.predict(X), best)
    assert classifier.score(X, y) == np.mean(best == y)


# --------------------------------------------------------------- spread that a class does not have


def few_and_many():
    """Classes of 1, 3 (equal), 5, 12 and 25 rows in six correlated features of unlike units."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(range(5), [1, 3, 5, 12, 25]))
    X = rng.normal(size=(46, 6)) @ rng.normal(size=(6, 6)) + y[:, None]
    X[y == 1] = X[y == 1][0]
    X[y == 3, 2] = -0.7  # constant within a class
    X[y == 4, 5] = X[y == 4, 0] - X[y == 4, 1]  # collinear within a class
    return X * [1.0, 20.0, 0.05, 1.0, 1.0, 1.0], y


@pytest.mark.parametrize("keeps_noise", [False, True])
@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize(("n", "d"), [(3, 1), (3, 5), (8, 2), (9, 5), (12, 5), (400, 5)])
@both_structures
def test_covariance_that_classes_share(covariance_type, n, d, is_flat, keeps_noise):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)), np.arange(n) % 3
    if d > 2:
        X[:, 2] = -0.3
    if is_flat:
        X[:, -1] = 1e3 * X[:, 0] - 7.0
    moments = []
    for c in range(3):
        covariance = np.cov(X[y == c].T, bias=True).reshape(d, d)
        moments.append(
            (
                float(np.sum(y == c)),
                X[y == c].mean(axis=0),
                covariance if covariance_type == "full" else np.diag(covariance),
            )
        )
    expected = twins.pooled_within_covariance(X, y, keeps_noise=keeps_noise)
    np.testing.assert_allclose(
        pooled_within_covariance(moments, keeps_noise=keeps_noise),
        expected if covariance_type == "full" else np.diag(expected),
        rtol=1e-10,
        atol=1e-14,
    )


@pytest.mark.parametrize("bandwidth", ["plugin", "okde", "silverman", "scott", 0.7])
@both_structures
def test_kernels_have_the_shape_of_the_covariance_under_the_prior(covariance_type, bandwidth):
    # Nothing is compressed, so that the densities are known.
    X, y = few_and_many()
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, bandwidth=bandwidth)
    joint = classifier.fit(X, y).predict_joint_log_proba(X + 0.1 * X.std(axis=0))
    # The prior is as old as the last checkpoint.
    before = slice(classifier._calibration.refreshed)
    assert 0.85 * len(X) < before.stop < len(X)
    shared = twins.pooled_within_covariance(X[before], y[before])
    for c, estimator in enumerate(classifier.estimators_):
        mixture = estimator._mixture
        scale = twins.kernel_frame(mixture, covariance_type, bandwidth).scale
        assert mixture.n_compounds == 0
        expected = twins.class_log_density(
            X + 0.1 * X.std(axis=0), X[y == c], shared, scale, covariance_type
        )
        np.testing.assert_allclose(
            joint[:, c] - np.log(np.mean(y == c)), expected, rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("bandwidth", ["plugin", "predictive"])
@both_structures
def test_densities_follow_what_other_classes_learn(covariance_type, bandwidth):
    # What is kept of a class that learns nothing must not outlive the target of its covariance.
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    X = rng.normal(size=(400, 2)) + y[:, None]
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, bandwidth=bandwidth)
    classifier.fit(X, y)
    untouched, before = classifier.estimators_[0], classifier.predict_joint_log_proba(X)
    classifier.partial_fit([5.0, 30.0] * rng.normal(size=(200, 2)), np.ones(200))
    assert classifier.estimators_[0] is untouched
    after = classifier.predict_joint_log_proba(X)
    fresh = pickle.loads(pickle.dumps(classifier)).predict_joint_log_proba(X)
    np.testing.assert_array_equal(after, fresh)
    # The kernels of the class have changed, not only its prior.
    assert np.ptp(after[:, 0] - before[:, 0]) > 1e-3


def test_a_row_changes_the_densities_of_its_own_class_only(monkeypatch):
    # In a stream of 15 classes the first 300 rows come before the first window, most after it.
    built, build = [], skokde._density.build_class_density
    monkeypatch.setattr(
        skokde._density, "build_class_density", lambda *args: built.append(1) or build(*args)
    )
    rng = np.random.default_rng(0)
    y = rng.integers(15, size=400)
    X = rng.normal(size=(400, 2)) + y[:, None]
    classifier = OnlineKDEClassifier().partial_fit(X[:100], y[:100], classes=range(15))
    numbers = []
    for i in range(100, 400):
        classifier.predict_proba(X[[i]])
        numbers.append(len(built))
        classifier.partial_fit(X[[i]], y[[i]])
    new = np.diff(numbers)
    # All are made anew where the covariance is found anew that they share, ten times or so.
    assert np.median(new) == 1
    assert 5 <= np.count_nonzero(new >= 15) <= 25


@both_structures
@pytest.mark.parametrize("threshold", [0.08, "predictive"])
def test_classes_learn_under_the_target_of_the_last_checkpoint(covariance_type, threshold):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    X = rng.normal(size=(200, 3)) * [1.0, 10.0, 0.1] + y[:, None]
    parameters = {"covariance_type": covariance_type, "compression_threshold": threshold}
    classifier = OnlineKDEClassifier(**parameters)
    settings = check_settings(classifier, 3)
    states, targets = [empty_state(3, settings), empty_state(3, settings)], set()
    for row, c in zip(X, y, strict=True):
        classifier.partial_fit(row[None], [c], classes=[0, 1])
        target = classifier._calibration.covariance
        settings = settings._replace(shrinkage_target=target)
        states[c] = learn(states[c], row[None], np.ones(1), settings)
        targets.add(None if target is None else target.tobytes())
    assert len(targets) > 5
    for c, (estimator, state) in enumerate(zip(classifier.estimators_, states, strict=True)):
        np.testing.assert_array_equal(estimator._state.expert_counts, state.expert_counts)
        # A class merges as it would alone, but its kernels have the shape of all classes.
        alone = OnlineKDEDensity(**parameters).fit(X[y == c])._state
        np.testing.assert_array_equal(state.mixture.means, alone.mixture.means)
        assert np.abs(state.expert_counts - alone.expert_counts).max() > 1e-3


def test_prior_is_worth_one_observation_for_each_feature():
    # By hand: two features, one row of one class, four of the other.
    X = np.array([[0.0, 0.0], [4.0, 8.0], [4.0, 8.0], [8.0, 8.0], [8.0, 8.0]])
    y = np.array([0, 1, 1, 1, 1])
    within = 4 * np.array([4.0, 0.0])  # times the five rows; class 0 has no spread
    shared = (within + 2 * np.array([8.96, 10.24])) / (5 + 2)  # these are of all rows
    kernels = [(0.0 + 2 * shared) / (1 + 2), (within + 2 * shared) / (4 + 2)]
    classifier = OnlineKDEClassifier(covariance_type="diag", bandwidth="silverman").fit(X, y)
    joint = classifier.predict_joint_log_proba([[0.0, 0.0]])
    for c, (kernel, n) in enumerate(zip(kernels, [1, 4], strict=True)):
        kernel = normal_reference(2, n) ** 2 * kernel
        densities = norm.logpdf(0.0, X[y == c], np.sqrt(kernel)).sum(axis=1)
        expected = logsumexp(densities) - np.log(5)
        np.testing.assert_allclose(joint[0, c], expected, rtol=1e-12)


@both_structures
def test_classifier_of_one_class_is_its_density(iris, covariance_type):
    X, _ = iris
    parameters = {"covariance_type": covariance_type, "bandwidth": "plugin"}
    for threshold, tolerance in ((0.08, 1e-9), ("predictive", 0.01)):
        parameters["compression_threshold"] = threshold
        classifier = OnlineKDEClassifier(**parameters).fit(X, np.zeros(len(X)))
        density = OnlineKDEDensity(**parameters).fit(X)
        ours, theirs = (model.score_samples(X) for model in (classifier, density))
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=0.1 * tolerance)


def test_few_rows_in_many_correlated_features_find_their_kind():
    # Eight rows say nothing of four of the twelve directions; the other class does.
    rng = np.random.default_rng(0)
    turn = rng.normal(size=(12, 12))
    X = rng.normal(size=(408, 12)) @ turn
    y = np.repeat([0, 1], [400, 8])
    X[y == 1] += 3.0 * X.std(axis=0)
    classifier = OnlineKDEClassifier().fit(X, y)
    new = rng.normal(size=(200, 12)) @ turn + 3.0 * X[y == 0].std(axis=0)
    own = classifier.predict_joint_log_proba(new)[:, 1] - np.log(8 / 408)
    alone = classifier.estimators_[1].score_samples(new)
    assert own.mean() > alone.mean() + 5.0
    assert own.min() > -150.0


@both_structures
def test_feature_constant_in_all_classes(covariance_type):
    X, y = blobs()
    X = np.column_stack([X, np.full(len(X), 0.3)])
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    assert np.isfinite(classifier.predict_joint_log_proba(X)).all()
    assert classifier.score(X, y) > 0.95


@pytest.mark.parametrize("bandwidth", ["plugin", "predictive"])
def test_spread_that_classes_share_follows_the_stream(bandwidth):
    X, y = blobs()
    X[y == 0] = [8.0, 0.0]
    order = np.argsort(y, kind="stable")
    parameters = {"bandwidth": bandwidth}
    if bandwidth == "plugin":
        parameters["compression_threshold"] = 0.08
    forwards = OnlineKDEClassifier(**parameters).partial_fit(X[order], y[order])
    backwards = OnlineKDEClassifier(**parameters)
    for row in order[::-1]:
        backwards.partial_fit(X[[row]], y[[row]])
        assert np.isfinite(backwards.predict_proba(X)).all()
    first, second = (c.predict_joint_log_proba(X)[:, 0] for c in (forwards, backwards))
    if bandwidth == "plugin":
        # It is looked up when scoring, so it does not depend on the order of the classes.
        np.testing.assert_allclose(first, second, rtol=1e-9)
    else:  # it is that of the last checkpoint, 13 % of the stream ago at most
        np.testing.assert_allclose(first, second, atol=1.5)
        assert np.abs(first - second).max() > 1e-3


@both_structures
def test_single_sample_of_a_class_is_usable_among_many_features(covariance_type):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(81, 20)), np.repeat([0, 1], [80, 1])
    X[80] += 6.0
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, priors=[0.5, 0.5]).fit(X, y)
    assert classifier.predict(X[80:] + 0.5).tolist() == [1]
    assert not classifier.predict(X[:80]).any()


# ----------------------------------------------------------------------------------------- priors


def test_priors_are_counts():
    X, y = blobs()
    classifier = OnlineKDEClassifier().fit(X, y)
    counts = np.bincount(y)
    np.testing.assert_array_equal(classifier.class_count_, counts)
    assert classifier.class_count_.dtype == np.float64
    np.testing.assert_allclose(classifier.class_prior_, counts / counts.sum(), rtol=1e-15)


def test_sample_weights_count_in_the_priors():
    X, y = blobs()
    weights = np.random.default_rng(0).random(len(X)) * (y != 1)
    classifier = OnlineKDEClassifier().fit(X, y, sample_weight=weights)
    expected = np.bincount(y, weights)
    assert expected[1] == 0.0
    np.testing.assert_allclose(classifier.class_count_, expected, rtol=1e-12)
    np.testing.assert_allclose(classifier.class_prior_, expected / expected.sum(), rtol=1e-12)
    unseen = classifier.predict_proba(X)[:, 1]
    np.testing.assert_allclose(unseen, 0.5 / (expected.sum() + 2.0))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_priors_age_with_every_row_of_the_stream(size):
    # By hand, f = 1/2: a 1, a 1 1/2, b (3/4, 1), a (1 3/8, 1/2).
    X, y = np.arange(4.0)[:, None], np.array(["a", "a", "b", "a"])
    classifier = OnlineKDEClassifier(forgetting_factor=0.5)
    for start in range(0, 4, size):
        classifier.partial_fit(X[start : start + size], y[start : start + size])
    assert classifier.class_count_.tolist() == [1.375, 0.5]
    assert classifier.class_prior_.tolist() == [1.375 / 1.875, 0.5 / 1.875]
    # The density of b has aged with its own row only.
    assert classifier.estimators_[1].n_samples_seen_ == 1.0


def test_priors_age_by_the_weight_of_a_row():
    # A row of weight 2 is as two rows: a 1 1/2, then b: (3/4, 1), then b of weight 0.
    classifier = OnlineKDEClassifier(forgetting_factor=0.5)
    classifier.partial_fit([[0.0], [1.0], [2.0]], ["a", "b", "b"], sample_weight=[2.0, 1.0, 0.0])
    np.testing.assert_allclose(classifier.class_count_, [0.75, 1.0], rtol=1e-15)


def test_a_class_that_stops_coming_loses_weight():
    X, y = blobs(300)
    classifier = OnlineKDEClassifier(forgetting_factor=0.98).fit(X, y)
    before = classifier.class_prior_[1]
    classifier.partial_fit(X[y != 1], y[y != 1])
    assert classifier.class_prior_[1] < 0.05 * before
    assert np.mean(classifier.predict(X[y == 1]) == 1) > 0.95  # its density is what it was


def test_a_class_forgotten_altogether():
    X, y = blobs(300)
    classifier = OnlineKDEClassifier(forgetting_factor=0.3).fit(X, y)
    for _ in range(8):
        classifier.partial_fit(X[y != 1], y[y != 1])
    assert classifier.class_prior_[1] < 1e-300
    probabilities = classifier.predict_proba(X)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


@pytest.mark.parametrize("form", [list, tuple, np.array, np.float32])
def test_given_priors(form):
    X, y = blobs()
    given = [0.5, 0.375, 0.125]
    classifier = OnlineKDEClassifier(priors=form(given)).fit(X, y)
    np.testing.assert_allclose(classifier.class_prior_, given)
    np.testing.assert_array_equal(classifier.class_count_, np.bincount(y))
    counted = OnlineKDEClassifier().fit(X, y)
    shift = np.log(given) - np.log(counted.class_prior_)
    np.testing.assert_allclose(
        classifier.predict_joint_log_proba(X),
        counted.predict_joint_log_proba(X) + shift,
        rtol=1e-10,
        atol=1e-10,
    )


def test_given_priors_do_not_age():
    X, y = blobs()
    classifier = OnlineKDEClassifier(priors=[0.5, 0.3, 0.2], forgetting_factor=0.5).fit(X, y)
    np.testing.assert_allclose(classifier.class_prior_, [0.5, 0.3, 0.2])


def test_given_priors_are_renormalised_over_the_classes_seen():
    X, y = blobs()
    classifier = OnlineKDEClassifier(priors=[0.5, 0.3, 0.2])
    classifier.partial_fit(X[y == 2], y[y == 2], classes=[0, 1, 2])
    np.testing.assert_array_equal(classifier.class_prior_, [0.0, 0.0, 1.0])
    classifier.partial_fit(X[y == 0], y[y == 0])
    np.testing.assert_allclose(classifier.class_prior_, [5 / 7, 0.0, 2 / 7])
    classifier.partial_fit(X[y == 1], y[y == 1])
    np.testing.assert_allclose(classifier.class_prior_, [0.5, 0.3, 0.2])


def test_zero_prior():
    X, y = blobs()
    classifier = OnlineKDEClassifier(priors=[0.5, 0.0, 0.5]).fit(X, y)
    assert np.isneginf(classifier.predict_joint_log_proba(X)[:, 1]).all()
    assert not classifier.predict_proba(X)[:, 1].any()
    assert set(classifier.predict(X)) == {0, 2}


def test_all_the_prior_on_classes_not_seen():
    # Nothing is known of the classes that have come: they share equally.
    X, y = blobs()
    classifier = OnlineKDEClassifier(priors=[0.0, 1.0, 0.0])
    classifier.partial_fit(X[y != 1], y[y != 1], classes=[0, 1, 2])
    np.testing.assert_array_equal(classifier.class_prior_, [0.5, 0.0, 0.5])
    np.testing.assert_allclose(classifier.predict_proba(X).sum(axis=1), 1.0)
    classifier.partial_fit(X, y)
    np.testing.assert_array_equal(classifier.class_prior_, [0.0, 1.0, 0.0])


def test_priors_change_what_is_predicted():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 1)), rng.integers(0, 2, size=400)

    def share(p, X, **parameters):
        classifier = OnlineKDEClassifier(priors=[1.0 - p, p], **parameters).fit(X, y)
        return np.mean(classifier.predict(X))

    shares = [share(p, X, bandwidth="plugin", calibrate=False) for p in (0.01, 0.5, 0.99)]
    assert shares[0] < 0.05 < 0.2 < shares[1] < 0.8 < 0.95 < shares[2]
    # Calibrated ones leave noise alone, so that the features must tell something.
    assert [share(p, X) for p in (0.01, 0.99)] == [0.0, 1.0]
    shares = [share(p, X + y[:, None]) for p in (0.01, 0.5, 0.99)]
    assert shares[0] < 0.05 < 0.2 < shares[1] < 0.8 < 0.95 < shares[2]


def test_priors_set_later_take_effect_at_the_next_prediction():
    X, y = blobs()
    classifier = OnlineKDEClassifier().fit(X, y)
    classifier.predict(X)
    classifier.set_params(priors=[0.1, 0.1, 0.8])
    expected = OnlineKDEClassifier(priors=[0.1, 0.1, 0.8]).fit(X, y)
    np.testing.assert_array_equal(classifier.predict_proba(X), expected.predict_proba(X))


@pytest.mark.parametrize("bandwidth", ["silverman", 3.0, [4.0, 9.0]], ids=str)
@both_structures
def test_bandwidth_set_later_takes_effect_at_the_next_prediction(covariance_type, bandwidth):
    # As for the density.
    X, y = blobs(30)  # nothing compressed, so that a new fit has the same components
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    classifier.predict(X)
    classifier.set_params(bandwidth=bandwidth)
    expected = OnlineKDEClassifier(covariance_type=covariance_type, bandwidth=bandwidth).fit(X, y)
    assert all(density.n_components_ <= 30 for density in expected.estimators_)
    np.testing.assert_array_equal(classifier.predict_proba(X), expected.predict_proba(X))
    np.testing.assert_array_equal(classifier.score_samples(X), expected.score_samples(X))


# --------------------------------------------------------------------------------------- far rows


@both_structures
def test_rows_where_no_class_has_a_density_get_the_prior(covariance_type):
    X, y = blobs()
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, priors=[0.5, 0.3, 0.2])
    classifier.partial_fit(X * 1e-30, y, classes=[0, 1, 2])  # so that 1e200 squared overflows
    rows = np.array([[1e200, 0.0], [-1e308, 1e308], [0.0, 0.0]])
    joint = classifier.predict_joint_log_proba(rows)
    assert np.isneginf(joint[:2]).all()
    assert np.isneginf(classifier.score_samples(rows)[:2]).all()
    probabilities = classifier.predict_proba(rows)
    np.testing.assert_allclose(probabilities[:2], [[0.5, 0.3, 0.2]] * 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.isfinite(classifier.predict_log_proba(rows)).all()
    assert classifier.predict(rows)[:2].tolist() == [0, 0]
    assert np.isfinite(joint[2]).all()


def test_far_rows_get_the_prior_of_the_classes_seen():
    X, y = blobs()
    classifier = OnlineKDEClassifier()
    classifier.partial_fit(X[y != 1] * 1e-30, y[y != 1], classes=[0, 1, 2])
    probabilities = classifier.predict_proba([[1e200, 1e200]])
    share = 0.5 / (np.count_nonzero(y != 1) + 2.0)
    prior = np.insert(twins.shrunk_prior(classifier.class_count_[[0, 2]]), 1, 0.0)
    expected = (1.0 - share) * prior + share * np.array([0.0, 1.0, 0.0])
    np.testing.assert_allclose(probabilities[0], expected)
    assert classifier.class_prior_[1] == 0.0
    assert classifier.predict([[1e200, 1e200]])[0] in (0, 2)


@both_structures
def test_far_rows_belong_to_the_wider_class(covariance_type):
    # Far out the log-densities are huge, but they still differ.
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(100, 2)), 5.0 * rng.normal(size=(100, 2))])
    y = np.repeat(["narrow", "wide"], 100)
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, priors=[0.9, 0.1]).fit(X, y)
    rows = 10.0 ** np.array([[2, 2], [6, 6], [9, 8], [12, 12], [30, 29], [100, 100]])
    assert set(classifier.predict(np.vstack([rows, -rows]))) == {"wide"}
    assert np.isfinite(classifier.score_samples(rows)).all()


# --------------------------------------------------------------------------------------- accuracy


@both_structures
def test_accuracy_of_a_stream(iris, covariance_type):
    # Prequential: each flower is classified before it is learned.
    X, y = iris
    classifier = OnlineKDEClassifier(covariance_type=covariance_type)
    right = []
    for i in range(150):
        if i >= 30:
            right.append(classifier.predict(X[[i]])[0] == y[i])
        classifier.partial_fit(X[[i]], y[[i]])
    assert np.mean(right) > 0.9


def test_forgetting_follows_classes_that_swap():
    X, y = blobs(600)
    forgetful = OnlineKDEClassifier(forgetting_factor=0.95).fit(X, y)
    faithful = OnlineKDEClassifier().fit(X, y)
    swapped = (y + 1) % 3
    for classifier in (forgetful, faithful):
        classifier.partial_fit(X[:400], swapped[:400])
    assert forgetful.score(X[400:], swapped[400:]) > 0.95
    assert faithful.score(X[400:], swapped[400:]) < 0.8


def test_covariance_type_cannot_change_for_a_late_class_only():
    classifier = OnlineKDEClassifier().partial_fit([[0.0, 1.0]], [0], classes=[0, 1])
    classifier.set_params(covariance_type="diag")
    with pytest.raises(ValueError, match="covariance_type can't change"):
        classifier.partial_fit([[3.0, 1.0]], [1])


def test_shares_of_few_samples_are_shrunk_to_equal_ones():
    rng = np.random.default_rng(0)
    truth = {"equal": np.full(8, 0.125), "skewed": np.array([0.65, *[0.05] * 7])}
    for name, shares in truth.items():
        for n in (12, 60, 5000):
            counts = rng.multinomial(n, shares, size=400)
            shrunk = np.array([shrink_shares(c / n, float(n)) for c in counts])
            np.testing.assert_allclose(shrunk.sum(axis=1), 1.0, rtol=1e-12)
            np.testing.assert_allclose(shrunk, [twins.shrunk_prior(c) for c in counts], rtol=1e-9)
            losses = [np.square(p - shares).sum(axis=1).mean() for p in (shrunk, counts / n)]
            assert losses[0] < (0.5 if name == "equal" else 1.2) * losses[1]
    # One sample tells nothing, and of one class there is nothing to tell.
    assert shrink_shares(np.array([0.0, 1.0]), 1.0).tolist() == [0.5, 0.5]
    assert shrink_shares(np.array([1.0]), 7.0).tolist() == [1.0]
    assert shrink_shares(np.array([0.0, 1.0]), 1e9).tolist() == [0.0, 1.0]


def test_classes_to_come_are_as_probable_as_they_are_often():
    # Samples of 40 classes; those that have not come yet are half of the next ones at first.
    rng = np.random.default_rng(0)
    foretold, came = [], []
    for _ in range(400):
        labels = rng.integers(40, size=31)
        count = np.bincount(labels[:30], minlength=40).astype(float)
        foretold.append(share_of_unseen(count[count > 0], np.count_nonzero(count == 0)))
        came.append(count[labels[30]] == 0)
    assert abs(np.mean(foretold) - np.mean(came)) < 0.1
    # Once all have come often, none is expected any more.
    assert share_of_unseen(np.full(5, 1e6), 35) < 1e-6
    # However few samples there are, no class to come is the most probable one.
    for seen in range(1, 6):
        for unseen in range(1, 6):
            share = share_of_unseen(np.ones(seen), unseen)
            assert 0.0 < share / unseen < (1.0 - share) / seen
