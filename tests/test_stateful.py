"""Whatever sequence of calls: an estimator stays what a plain list of all rows says it is."""

import copy
import pickle
from itertools import groupby
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import twins
from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from structures import STRUCTURES

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning"),
]

ROWS = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "clusters": lambda rng, n, d: rng.normal(size=(n, d)) + 9.0 * rng.integers(3, size=(n, 1)),
    "integers": lambda rng, n, d: rng.integers(-2, 3, size=(n, d)).astype(float),
    "constant": lambda rng, n, d: np.full((n, d), rng.choice([0.0, 1.0 / 3.0, -7e5])),
    "one feature varies": lambda rng, n, d: np.eye(1, d) * rng.normal(size=(n, 1)),
    "repeated": lambda rng, n, d: rng.normal(size=(3, d))[rng.integers(3, size=n)],
    "offset": lambda rng, n, d: rng.normal(size=(n, d)) + 1e9,
    "units": lambda rng, n, d: rng.normal(size=(n, d)) * 10.0 ** rng.integers(-9, 10, size=d),
    "huge": lambda rng, n, d: rng.normal(size=(n, d)) * 1e100,
    "tiny": lambda rng, n, d: rng.normal(size=(n, d)) * 1e-100,
}

WEIGHTS = {
    "none": lambda rng, n: None,
    "whole": lambda rng, n: rng.integers(4, size=n).astype(float),
    "fractional": lambda rng, n: rng.random(n) * rng.integers(2, size=n),
    "zero": lambda rng, n: np.zeros(n),
    "large": lambda rng, n: 10.0 ** rng.integers(10, size=n),
}

LABELS = np.array(["b", "a", "long", "c"])

block = {
    "kind": st.integers(0, 2),  # of those that the stream has
    "n": st.integers(1, 40),
    "weighted": st.sampled_from(list(WEIGHTS)),
    "n_labels": st.integers(1, len(LABELS)),
    "seed": st.integers(0, 99),
}

PARAMETERS = {
    "forgetting_factor": [1.0, 0.97, 0.5, 1e-3, "predictive"],
    "compression_threshold": ["predictive", 0.0, 0.02, 0.08, 0.5, 1.0],
    "max_components": [None, 2, 7, 40],
    "bandwidth": ["predictive", "plugin", "okde", "silverman", "scott", 0.3, "variances"],
}
PARAMETERS_OF_CLASSIFIER = {"calibrate": [True, False], "n_jobs": [None, 2]}

PRIORS = {
    "counted": lambda k: None,
    "equal": lambda k: np.full(k, 1.0 / k),
    "one class": lambda k: np.eye(k)[k - 1],
}


def choices(parameters):
    return st.sampled_from([(name, value) for name in parameters for value in parameters[name]])


def with_last(array, value):
    array = array.copy()
    array.flat[-1] = value
    return array


REFUSED = {
    "infinity to fit": ("fit", lambda X, w: (with_last(X, np.inf), w)),
    "infinity": ("partial_fit", lambda X, w: (with_last(X, -np.inf), w)),
    "too large": ("partial_fit", lambda X, w: (with_last(X, 1e151), w)),
    "too large to fit": ("fit", lambda X, w: (with_last(X, 1e151), w)),
    "features": ("partial_fit", lambda X, w: (np.hstack([X, X]), w)),
    "negative weight": ("partial_fit", lambda X, w: (X, with_last(w, -1.0))),
    "more weights": ("partial_fit", lambda X, w: (X, np.append(w, 1.0))),
    "nothing to fit": ("fit", lambda X, w: (X, 0.0 * w)),
}


class Stream:
    """All rows that count since the last fit.

    Attributes
    ----------
    X, y, weights : arrays
    counts, own : (n,) arrays
        What each row still counts where it ages with every later row, and where with those of its
        own label only.
    """

    def __init__(self, d):
        self.X, self.y = np.empty((0, d)), np.empty(0, dtype=LABELS.dtype)
        self.weights = self.counts = self.own = np.empty(0)

    def learn(self, X, y, weights, f):
        for row, label, weight in zip(X, y, weights, strict=True):
            if weight == 0.0:
                continue
            count = weight if f == 1.0 else -np.expm1(weight * np.log(f)) / (1.0 - f)
            fade = f**weight
            self.own = np.append(np.where(self.y == label, fade, 1.0) * self.own, count)
            self.counts = np.append(fade * self.counts, count)
            self.X, self.y = np.vstack([self.X, row]), np.append(self.y, label)
            self.weights = np.append(self.weights, weight)


def check_mixture(density):
    weights, means, covariances = density.weights_, density.means_, density.covariances_
    assert np.all(weights >= 0.0)  # zero by underflow
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-12)
    assert np.isfinite(means).all()
    for matrix in twins.full_covariances(covariances):
        np.testing.assert_array_equal(matrix, matrix.T)
        deviations = np.sqrt(np.diagonal(matrix))  # warns of a negative one
        unit = np.where(deviations > 0.0, deviations, 1.0)
        assert np.linalg.eigvalsh(matrix / np.outer(unit, unit))[0] > -1e-12
    bandwidth = twins.full_covariances(density.bandwidth_[None])[0]
    assert np.isfinite(bandwidth).all()
    assert np.all(np.diagonal(bandwidth) > 0.0)
    np.testing.assert_allclose(density.distribution().weights.sum(), 1.0, rtol=1e-12)


def check_moments(density, X, counts):
    """Count, mean and covariance of the sample model are those of the rows."""
    np.testing.assert_allclose(twins.mixture_moments(density._mixture)[0], counts.sum(), rtol=1e-12)
    share = counts / counts.sum()
    mean, size = share @ X, np.sqrt(share @ X**2)
    covariance = (share * (X - mean).T) @ (X - mean)
    spread = np.sqrt(np.diagonal(covariance))
    vanished = share < 1e-149  # may have been dropped
    dropped = np.sqrt(share[vanished] @ (np.abs(X[vanished]) + np.abs(mean)) ** 2)
    error = 1e-9 * spread + 1e-14 * size + dropped

    weights, means = density.weights_, density.means_
    model_mean = weights @ means
    assert np.all(np.abs(model_mean - mean) <= error)
    between = (weights * (means - model_mean).T) @ (means - model_mean)
    within = np.tensordot(weights, twins.full_covariances(density.covariances_), 1)
    # What such errors of the rows would make of the covariance.
    allowed = np.outer(spread + error, spread + error) - np.outer(spread, spread)
    right = np.abs(within + between - covariance) <= allowed
    d = X.shape[1]
    assert (right if density.covariances_.shape[1:] == (d, d) else np.diagonal(right)).all()


def check_uncompressed(density, X, counts):
    """The model is the distinct rows, in the order in which they came."""
    _, first, place = np.unique(X, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    np.testing.assert_array_equal(density.means_, X[first[order]])
    weights = np.bincount(place.ravel(), counts)[order] / counts.sum()
    np.testing.assert_allclose(density.weights_, weights, rtol=1e-9, atol=1e-300)


class Calls(RuleBasedStateMachine):
    """What can be asked of both estimators; hypothesis draws a sequence of it."""

    history = ()

    @initialize(
        kinds=st.lists(st.sampled_from(list(ROWS)), min_size=1, max_size=3, unique=True),
        d=st.integers(1, 3),
        covariance_type=st.sampled_from(STRUCTURES),
        declared=st.booleans(),
        replayed_by=st.sampled_from([1, 2, 7, 1000]),
    )
    def start(self, kinds, d, covariance_type, declared, replayed_by):
        self.estimator = self.Estimator(covariance_type=covariance_type)
        self.kinds, self.d, self.replayed_by = kinds, d, replayed_by
        self.probes = np.outer([0.0, 1.0, -30.0, 1e9], np.ones(d))
        self.forget(np.array([*LABELS, "never"]) if declared else None)

    def forget(self, classes):
        self.stream, self.history, self.classes = Stream(self.d), [], classes

    def started(self):
        return bool(self.history)

    def draw(self, kind, n, weighted, n_labels, seed):
        rng = np.random.default_rng(seed)
        labels = (LABELS if self.classes is None else self.classes)[:n_labels]
        y = labels[rng.integers(len(labels), size=n)]
        kind = self.kinds[kind % len(self.kinds)]
        return ROWS[kind](rng, n, self.d), y, WEIGHTS[weighted](rng, n)

    def refuses(self, method, y, weights):
        return method == "fit" and weights is not None and not weights.any()

    def assert_refuses(self, method, X, y, weights):
        before = self.state_of(self.estimator)
        with pytest.raises(ValueError, match=r"."):
            getattr(self.estimator, method)(X, y, sample_weight=weights)
        assert self.state_of(self.estimator) == before

    def learn(self, method, X, y, weights):
        if self.refuses(method, y, weights):
            self.assert_refuses(method, X, y, weights)
            return
        if method == "fit":
            self.estimator.fit(X, y, sample_weight=weights)
            self.forget(np.unique(y))
        else:
            self.feed(self.estimator, X, y, weights)
        parameters = self.estimator.get_params()
        for name in ("priors", "n_jobs"):  # without influence
            parameters.pop(name, None)
        weights = np.ones(len(X)) if weights is None else weights
        f = parameters["forgetting_factor"]
        self.stream.learn(X, y, weights, 1.0 if f == "predictive" else f)
        self.history.append((parameters, X, y, weights))

    # Most rules end with a block, so that streams get long.

    @rule(**block)
    def partial_fit(self, **block):
        self.learn("partial_fit", *self.draw(**block))

    @rule(**block)
    def partial_fit_of_a_row(self, **block):
        self.learn("partial_fit", *self.draw(**block | {"n": 1}))

    @rule(covariance_type=st.sampled_from(STRUCTURES), **block)
    def fit(self, covariance_type, **block):
        X, y, weights = self.draw(**block)
        if not self.refuses("fit", y, weights):
            self.estimator.set_params(covariance_type=covariance_type)
        self.learn("fit", X, y, weights)

    @precondition(started)
    @rule(case=st.sampled_from(list(REFUSED)), **block)
    def refused(self, case, **block):
        X, y, weights = self.draw(**block)
        method, spoilt = REFUSED[case]
        bad = spoilt(X, np.ones(len(X)) if weights is None else weights)
        self.assert_refuses(method, bad[0], y, bad[1])
        self.learn("partial_fit", X, y, weights)

    @rule(change=choices(PARAMETERS), **block)
    def set_parameter(self, change, **block):
        name, value = change
        self.estimator.set_params(**{name: [1.0] * self.d if value == "variances" else value})
        self.is_what_the_stream_says()
        self.learn("partial_fit", *self.draw(**block))

    @rule(**block)
    def pickled(self, **block):
        before, scores = self.state_of(self.estimator), self.scores(self.estimator)
        self.estimator = pickle.loads(pickle.dumps(self.estimator))
        assert self.state_of(self.estimator) == before
        np.testing.assert_array_equal(self.scores(self.estimator), scores)
        self.learn("partial_fit", *self.draw(**block))

    @precondition(started)
    @rule(keep_copy=st.booleans(), **block)
    def forked(self, keep_copy, **block):
        X, y, weights = self.draw(**block)
        if self.refuses("partial_fit", y, weights):
            return
        fork, kept = self.estimator, copy.deepcopy(self.estimator)
        if not keep_copy:
            fork, kept = kept, fork
        self.estimator = kept
        before, scores = self.state_of(kept), self.scores(kept)
        self.feed(fork, X, y, weights)
        if weights is None or weights.any():
            assert self.state_of(fork) != before
            fork.score_samples(X)
        assert self.state_of(kept) == before
        np.testing.assert_array_equal(self.scores(kept), scores)

    @rule(**block)
    def looked_at(self, **block):
        fresh = clone(self.estimator)
        np.testing.assert_equal(fresh.get_params(), self.estimator.get_params())
        assert vars(fresh).keys() == fresh.get_params().keys()
        X, y, weights = self.draw(**block)
        if len(self.stream.X):
            self.look(X)
        self.learn("partial_fit", X, y, weights)

    def look(self, X):
        scores = self.estimator.score_samples(X)
        assert np.all(scores < np.inf)  # -inf where the squared distance overflows

    def scores(self, estimator):
        """At the probes and at the last row; none before the first row that counts."""
        if not len(self.stream.X):
            with pytest.raises(NotFittedError):
                estimator.score_samples(self.probes)
            return np.empty(0)
        return estimator.score_samples(np.vstack([self.probes, self.stream.X[-1:]]))

    @invariant()
    def is_what_the_stream_says(self):
        before = self.state_of(self.estimator)
        scores = self.scores(self.estimator)
        assert np.isfinite(scores[: len(self.probes)]).all()
        assert np.all(scores < np.inf)  # the last row has -inf where the squared distance overflows
        for density, mine, counts, calls in self.densities():
            X, weights = self.stream.X[mine], self.stream.weights[mine]
            assert hasattr(density, "weights_") == bool(len(X))
            if len(X):
                assert density.n_samples_seen_ == np.cumsum(weights)[-1]
                check_mixture(density)
                caps = [call[0]["max_components"] for call in calls]
                assert density.n_components_ <= min(density._state.limit, caps[-1] or np.inf)
                if self.has_forgotten(density, counts[mine]):
                    continue
                check_moments(density, X, counts[mine])
                if len(np.unique(X, axis=0)) <= min(30, *(cap or 30 for cap in caps)):
                    check_uncompressed(density, X, counts[mine])
        assert self.state_of(self.estimator) == before

    def teardown(self):
        """The same stream in other blocks is the same model."""
        if not self.history:
            return
        fresh = self.Estimator()
        for parameters, calls in groupby(self.history, key=itemgetter(0)):
            fresh.set_params(**parameters)
            X, y, weights = (np.concatenate(part) for part in list(zip(*calls, strict=True))[1:])
            for start in range(0, len(X), self.replayed_by):
                part = slice(start, start + self.replayed_by)
                self.feed(fresh, X[part], y[part], weights[part])
        fresh.set_params(**self.estimator.get_params())
        assert self.state_of(fresh) == self.state_of(self.estimator)
        np.testing.assert_array_equal(self.scores(fresh), self.scores(self.estimator))


class DensityCalls(Calls):
    Estimator = OnlineKDEDensity

    def feed(self, density, X, y, weights):
        density.partial_fit(X, y, sample_weight=weights)

    def has_forgotten(self, density, counts):
        """Whether it has found that the stream has changed, and stands for fewer samples."""
        return False

    def densities(self):
        if self.history:
            yield self.estimator, slice(None), self.stream.counts, self.history


class ClassifierCalls(Calls):
    Estimator = OnlineKDEClassifier

    def feed(self, classifier, X, y, weights):
        classifier.partial_fit(X, y, self.classes, weights)

    def seen(self):
        """All labels that have come or were declared."""
        labels = [call[2] for call in self.history] if self.classes is None else [self.classes]
        return np.unique(np.concatenate([[], *labels]))

    def refuses(self, method, y, weights):
        if super().refuses(method, y, weights):
            return True
        classes = np.unique(y) if method == "fit" else np.union1d(self.seen(), y)
        priors = self.estimator.priors
        return priors is not None and len(priors) != len(classes)

    def look(self, X):
        super().look(X)
        proba = self.estimator.predict_proba(X)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
        best = self.estimator.classes_[np.argmax(proba, axis=1)]
        np.testing.assert_array_equal(self.estimator.predict(X), best)

    @rule(change=choices(PARAMETERS_OF_CLASSIFIER), **block)
    def set_parameter_of_classifier(self, change, **block):
        self.estimator.set_params(**dict([change]))
        self.classes_and_probabilities()
        self.learn("partial_fit", *self.draw(**block))

    @precondition(Calls.started)
    @rule(kind_of_priors=st.sampled_from(list(PRIORS)), **block)
    def set_priors(self, kind_of_priors, **block):
        self.estimator.set_params(priors=PRIORS[kind_of_priors](len(self.estimator.classes_)))
        self.classes_and_probabilities()
        self.learn("partial_fit", *self.draw(**block))

    @precondition(Calls.started)
    @rule(**block)
    def refused_label(self, **block):
        X, y, weights = self.draw(**block)
        known = self.classes is not None
        unknown = with_last(y.astype("U9"), "unknown") if known else np.full(len(X), 7)
        self.assert_refuses("partial_fit", X, unknown, weights)
        self.learn("partial_fit", X, y, weights)

    def has_forgotten(self, density, counts):
        found = any(call[0]["forgetting_factor"] == "predictive" for call in self.history)
        return found and density._mixture.counts.sum() < (1.0 - 1e-9) * counts.sum()

    def densities(self):
        if not self.history:
            return
        for label, density in zip(self.estimator.classes_, self.estimator.estimators_, strict=True):
            yield density, self.stream.y == label, self.stream.own, self.history

    @invariant()
    def classes_and_probabilities(self):
        classifier, stream = self.estimator, self.stream
        if not self.history:
            assert not hasattr(classifier, "classes_")
            return
        np.testing.assert_array_equal(classifier.classes_, self.seen())
        rows = stream.y == classifier.classes_[:, None]
        counts = rows @ stream.counts
        np.testing.assert_allclose(classifier.class_count_, counts, rtol=1e-12, atol=1e-300)
        if not len(stream.X):
            return
        came = rows.any(axis=1)
        if classifier.priors is None and classifier._class_memory is not None:
            prior = classifier.class_prior_
            np.testing.assert_allclose(prior.sum(), 1.0, rtol=1e-12)
            assert not prior[~came].any()
            assert np.all(prior[counts > 0.0] > 0.0)
            self.look(self.probes)
            return
        prior = counts if classifier.priors is None else classifier.priors * came
        if not prior.any():
            prior = came
        prior = prior / prior.sum()
        np.testing.assert_allclose(classifier.class_prior_, prior, rtol=1e-12, atol=1e-300)
        self.look(self.probes)


@pytest.mark.parametrize("Machine", quick([ClassifierCalls, DensityCalls]))
def test_any_sequence_of_calls(state_of, Machine):
    Machine.state_of = staticmethod(state_of)
    # Those of the profile, so that the nightly one looks further.
    run_state_machine_as_test(Machine, settings=settings.default)


def test_max_components_set_in_mid_stream_holds_for_all_classes():
    classifier = OnlineKDEClassifier().partial_fit(np.arange(6.0)[:, None], list("aaaaab"))
    classifier.set_params(max_components=2).partial_fit([[9.0]], ["b"])
    assert max(density.n_components_ for density in classifier.estimators_) <= 2


def test_what_is_set_takes_effect_with_rows_that_count_nothing():
    X, y = np.arange(30.0)[:, None], np.resize([0, 1], 30)
    classifier = OnlineKDEClassifier().fit(X, y).set_params(max_components=2)
    classifier.partial_fit(X[:3], y[:3], sample_weight=np.zeros(3))
    assert max(density.n_components_ for density in classifier.estimators_) <= 2
    assert classifier.class_count_.tolist() == [15.0, 15.0]


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_a_row_of_large_weight_makes_all_that_came_since_vanish(covariance_type):
    """Where it repeats a row that a compression has left alone."""
    X = np.append(np.arange(40.0), 1000.0)[:, None]
    density = OnlineKDEDensity(covariance_type=covariance_type, forgetting_factor=0.97).fit(X[::-1])
    assert density.means_[density._mixture.n_compounds, 0] == 1000.0
    assert density._mixture.n_compounds < density._state.n_compressed
    density.partial_fit([[1.5], [2.5]]).partial_fit([[1000.0]], sample_weight=[1e6])
    assert not density._mixture.counts[density._state.n_compressed :].any()
    assert density.score([[1000.0]]) > density.score([[20.0]]) > -np.inf


@pytest.mark.parametrize("far", [1e3, 1e6, 1e12])
def test_a_row_far_out_after_a_compression_has_a_density(far):
    X = np.append(np.random.default_rng(0).normal(size=34), far)[:, None]
    weights = np.append(np.full(34, 1e3), 1.0)
    density = OnlineKDEDensity().fit(X, sample_weight=weights)
    assert density.score_samples(X[-1:]) > -20.0
    # Nor does it change what is dense.
    before = OnlineKDEDensity().fit(X[:-1], sample_weight=weights[:-1])
    np.testing.assert_allclose(
        density.score_samples(X[:-1]), before.score_samples(X[:-1]), atol=0.01
    )
