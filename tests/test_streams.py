"""The model depends on the stream alone: not on calls, blocks, threads or scores in between."""

import copy
import hashlib
import os
import pickle
import subprocess
import sys
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError

import skokde._density
from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from structures import STRUCTURES

every_structure = pytest.mark.parametrize("covariance_type", quick(STRUCTURES), ids=str)
forgetting = pytest.mark.parametrize("forgetting_factor", quick([1.0, "predictive", 0.97, 0.5], 2))
each_memory = pytest.mark.parametrize("memory", [1.0, "predictive"])

BANDWIDTHS = {
    "predictive": lambda d: "predictive",
    "plugin": lambda d: "plugin",
    "okde": lambda d: "okde",
    "silverman": lambda d: "silverman",
    "scott": lambda d: "scott",
    "number": lambda d: 0.6,
    "variances": lambda d: np.linspace(0.2, 0.4, d),
    "matrix": lambda d: 0.3 * np.eye(d) + 0.05,
}


def draw_rows(rng, kind, n, d):
    """Rows of different kinds; those on a grid repeat often and are full of ties."""
    if kind == "normal":
        return rng.normal(size=(n, d))
    if kind == "grid":
        return rng.integers(-2, 3, size=(n, d)).astype(float)
    if kind == "clusters":
        return rng.normal(size=(n, d)) + 9.0 * rng.integers(0, 3, size=(n, 1))
    if kind == "units":
        return rng.normal(size=(n, d)) * 10.0 ** rng.integers(-6, 7, size=d)
    return rng.standard_t(1.5, size=(n, d))  # outliers, revitalization


def draw_weights(rng, kind, n):
    if kind == "none":
        return None
    if kind == "whole":
        return rng.integers(0, 4, size=n).astype(float)
    return rng.random(n) * rng.integers(0, 2, size=n)


KINDS = st.sampled_from(["normal", "grid", "clusters", "units", "outliers"])


@st.composite
def streams(draw, weights=("none", "whole", "fractions")):
    """Rows, weights, labels, where to cut, and parameters that any covariance type can have."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, 110)), draw(st.integers(1, 3))
    return {
        "X": draw_rows(rng, draw(KINDS), n, d),
        "y": np.array(["b", "a", "long", "c"])[rng.integers(0, draw(st.integers(1, 4)), size=n)],
        "sample_weight": draw_weights(rng, draw(st.sampled_from(weights)), n),
        "cuts": sorted(draw(st.sets(st.integers(1, max(1, n - 1)), max_size=6))),
        "parameters": {
            "compression_threshold": draw(
                st.sampled_from(["predictive", 0.1, 0.02, 0.4, 0.0, 1.0])
            ),
            "max_components": draw(st.sampled_from([None, 2, 3, 10, 40])),
        },
    }


def blocks_of(cuts, n):
    edges = [0, *(cut for cut in cuts if 0 < cut < n), n]
    return [slice(a, b) for a, b in pairwise(edges)]


def learn(estimator, stream, blocks, *, score=False, **first):
    """Stream into partial_fit, block by block; `first` is for the first call of a classifier."""
    X, y, weights = stream["X"], stream["y"], stream["sample_weight"]
    for block in blocks:
        block_weights = None if weights is None else weights[block]
        if isinstance(estimator, OnlineKDEClassifier):
            estimator.partial_fit(X[block], y[block], sample_weight=block_weights, **first)
            first = {}
        else:
            estimator.partial_fit(X[block], sample_weight=block_weights)
        if score:
            look_at(estimator, X[:3])
    return estimator


def look_at(estimator, X):
    """Score, and read what is derived."""
    try:
        estimator.score_samples(X)
    except NotFittedError:  # only zero weights so far
        return
    if isinstance(estimator, OnlineKDEClassifier):
        estimator.predict_proba(X)
        assert len(estimator.class_prior_) == len(estimator.classes_)
    else:
        estimator.distribution()


def rows_of(stream):
    return [slice(i, i + 1) for i in range(len(stream["X"]))]


def everything(stream):
    return [slice(None)]


def some_weight(stream):
    return stream["sample_weight"] is None or stream["sample_weight"].any()


# ------------------------------------------------------------------- any cutting, the same model


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@settings(max_examples=6)
@given(stream=streams())
@pytest.mark.parametrize("bandwidth", quick(BANDWIDTHS))
@forgetting
@every_structure
def test_density_for_any_cutting(
    assert_same_model, covariance_type, forgetting_factor, bandwidth, stream
):
    if bandwidth == "matrix" and covariance_type != "full":
        bandwidth = "variances"

    def new():
        return OnlineKDEDensity(
            covariance_type=covariance_type,
            forgetting_factor=forgetting_factor,
            bandwidth=BANDWIDTHS[bandwidth](stream["X"].shape[1]),
            **stream["parameters"],
        )

    expected = learn(new(), stream, everything(stream))
    blocks = blocks_of(stream["cuts"], len(stream["X"]))
    assert_same_model(learn(new(), stream, blocks), expected)
    assert_same_model(learn(new(), stream, rows_of(stream), score=True), expected)
    if some_weight(stream):
        fitted = new().fit(stream["X"], sample_weight=stream["sample_weight"])
        assert_same_model(fitted, expected)
        scores = expected.score_samples(stream["X"])
        np.testing.assert_array_equal(fitted.score_samples(stream["X"]), scores)
        assert not np.isnan(scores).any()


@settings(max_examples=8)
@given(stream=streams())
@pytest.mark.parametrize("declared", quick([False, True]), ids=["undeclared", "declared"])
@forgetting
@every_structure
def test_classifier_for_any_cutting(
    assert_same_model, covariance_type, forgetting_factor, declared, stream
):
    def new():
        return OnlineKDEClassifier(
            covariance_type=covariance_type,
            forgetting_factor=forgetting_factor,
            **stream["parameters"],
        )

    first = {"classes": ["c", "never", "a", "b", "long"]} if declared else {}
    expected = learn(new(), stream, everything(stream), **first)
    blocks = blocks_of(stream["cuts"], len(stream["X"]))
    assert_same_model(learn(new(), stream, blocks, **first), expected)
    assert_same_model(learn(new(), stream, rows_of(stream), score=True, **first), expected)
    seen = ["a", "b", "c", "long", "never"] if declared else np.unique(stream["y"]).tolist()
    assert expected.classes_.tolist() == seen


@settings(max_examples=8)
@given(stream=streams())
@forgetting
@every_structure
def test_classifier_fit_equals_row_wise_partial_fit(
    assert_same_model, covariance_type, forgetting_factor, stream
):
    if not some_weight(stream):
        return
    parameters = {"covariance_type": covariance_type, "forgetting_factor": forgetting_factor}
    parameters |= stream["parameters"]
    X, y, weights = stream["X"], stream["y"], stream["sample_weight"]
    fitted = OnlineKDEClassifier(**parameters).fit(X, y, sample_weight=weights)
    rows = learn(OnlineKDEClassifier(**parameters), stream, rows_of(stream), classes=np.unique(y))
    assert_same_model(fitted, rows)


LONG = {
    "rows": 1,
    "7 rows": 7,
    "30 rows": 30,
    "31 rows": 31,
    "500 rows": 500,
    "all": 1500,
}


@pytest.fixture(scope="module")
def long_stream():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1500, 3)) @ rng.normal(size=(3, 3))
    X[::3] += 6.0
    X[::5] = np.round(X[::5])  # some repeat
    return {"X": X, "y": rng.integers(0, 3, size=1500), "sample_weight": None}


@pytest.mark.parametrize("size", LONG.values(), ids=LONG)
@every_structure
def test_long_stream_for_any_block_size(long_stream, assert_same_model, covariance_type, size):
    # So long that compression and revitalization go round many times.
    blocks = blocks_of(range(size, 1500, size), 1500)
    for threshold in ("predictive", 0.08):
        parameters = {"covariance_type": covariance_type, "compression_threshold": threshold}
        expected = OnlineKDEDensity(**parameters).fit(long_stream["X"])
        assert expected.n_components_ < (200 if threshold == 0.08 else 1000)
        density = OnlineKDEDensity(**parameters)
        assert_same_model(learn(density, long_stream, blocks), expected)


@pytest.mark.parametrize("size", quick([7, 1, 31, 250]))
@pytest.mark.parametrize("Estimator", [OnlineKDEDensity, OnlineKDEClassifier])
@every_structure
def test_long_stream_with_predictive_memory(
    long_stream, assert_same_model, covariance_type, Estimator, size
):
    stream = {name: array[:500] for name, array in long_stream.items() if array is not None}
    stream["sample_weight"] = np.resize([1.0, 2.0, 0.0, 0.25], 500)

    def new():
        return Estimator(covariance_type=covariance_type, forgetting_factor="predictive")

    first = {"classes": [0, 1, 2]} if Estimator is OnlineKDEClassifier else {}
    expected = learn(new(), stream, everything(stream), **first)
    # The memories are weighted, of predictions of rows that have gone.
    densities = expected.estimators_ if first else [expected]
    for density in densities:
        credits = density._state.recent.credits
        assert credits.sum() > 20.0
        assert len(set(credits)) > 5
    blocks = learn(new(), stream, blocks_of(range(size, 500, size), 500), score=True, **first)
    assert_same_model(blocks, expected)
    X = stream["X"]
    np.testing.assert_array_equal(blocks.score_samples(X), expected.score_samples(X))
    if first:
        np.testing.assert_array_equal(blocks.predict_proba(X), expected.predict_proba(X))


@pytest.mark.parametrize("threshold", quick(["predictive", 0.08]))
@pytest.mark.parametrize("Estimator", [OnlineKDEDensity, OnlineKDEClassifier])
def test_memory_set_in_mid_stream(long_stream, assert_same_model, Estimator, threshold):
    X, y = long_stream["X"][:260], long_stream["y"][:260]
    for first, second in (("predictive", 0.99), (0.99, "predictive"), (1.0, "predictive")):
        whole, rows = (
            Estimator(forgetting_factor=first, compression_threshold=threshold)
            .fit(X[:130], y[:130])
            .set_params(forgetting_factor=second)
            for _ in range(2)
        )
        rows.score_samples(X[:5])
        for i in range(130, 260):
            rows.partial_fit(X[[i]], y[[i]])
        assert_same_model(whole.partial_fit(X[130:], y[130:]), rows)
        assert np.isfinite(rows.score_samples(X)).all()


def test_a_class_from_before_the_memories_is_not_forgotten():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 2)), np.repeat([0, 1, 2], 30)
    classifier = OnlineKDEClassifier().fit(X, y).set_params(forgetting_factor="predictive")
    classifier.partial_fit(X[:1], y[:1])
    assert classifier.class_prior_.min() > 0.3


def test_a_changed_stream_changes_the_model(long_stream, state_of):
    # The comparison that the tests above rest on does see the last bit.
    X = long_stream["X"][:40]
    first = state_of(OnlineKDEDensity().fit(X))
    X = X.copy()
    X[7, 1] = np.nextafter(X[7, 1], np.inf)
    assert state_of(OnlineKDEDensity().fit(X)) != first


@pytest.mark.parametrize("rule", ["predictive", "okde", "plugin", "scott", 2.0])
def test_bandwidth_set_in_mid_stream(long_stream, assert_same_model, rule):
    # Whatever comes after set_params is learned as by an estimator that had it at that point.
    X = long_stream["X"][:200]
    first = OnlineKDEDensity(bandwidth="silverman").fit(X[:90]).set_params(bandwidth=rule)
    second = OnlineKDEDensity(bandwidth="silverman").fit(X[:90])
    second.score_samples(X)
    second.set_params(bandwidth=rule)
    second.score_samples(X)
    for row in X[90:]:
        first.partial_fit(row[None])
    assert_same_model(first, second.partial_fit(X[90:]))


# ----------------------------------------------------------------------------------- fit forgets


@every_structure
def test_fit_forgets(assert_same_model, covariance_type):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.repeat(["u", "v"], 30)
    density = OnlineKDEDensity(covariance_type=covariance_type)
    density.partial_fit(rng.normal(size=(90, 5))).fit(X)
    assert_same_model(density, OnlineKDEDensity(covariance_type=covariance_type).fit(X))
    classifier = OnlineKDEClassifier(covariance_type=covariance_type)
    classifier.partial_fit(rng.normal(size=(90, 5)), np.arange(90) % 7, classes=range(8)).fit(X, y)
    expected = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    assert_same_model(classifier, expected)
    assert density.n_samples_seen_ == 60.0
    assert density.n_features_in_ == classifier.n_features_in_ == 2


def test_fit_can_change_the_covariance_type(assert_same_model):
    X = np.random.default_rng(0).normal(size=(60, 2))
    density = OnlineKDEDensity().fit(X).set_params(covariance_type="diag").fit(X)
    assert_same_model(density, OnlineKDEDensity(covariance_type="diag").fit(X))
    assert density.covariances_.shape == (density.n_components_, 2)


# -------------------------------------------------------------------------------- sample weights


@settings(max_examples=12)
@given(stream=streams(weights=["whole"]))
@pytest.mark.parametrize("bandwidth", quick(["predictive", "plugin", "silverman"]))
@each_memory
@every_structure
def test_whole_weights_equal_repetition(
    assert_same_model, covariance_type, memory, bandwidth, stream
):
    X, y, weights = stream["X"], stream["y"], stream["sample_weight"]
    if not weights.any():
        return
    times = weights.astype(int)
    parameters = stream["parameters"] | {"covariance_type": covariance_type, "bandwidth": bandwidth}
    parameters["forgetting_factor"] = memory
    weighted = OnlineKDEDensity(**parameters).fit(X, sample_weight=weights)
    repeated = OnlineKDEDensity(**parameters).fit(np.repeat(X, times, axis=0))
    assert_same_model(weighted, repeated)
    assert weighted.n_samples_seen_ == times.sum()
    classes = ["a", "b", "c", "long"]
    weighted = OnlineKDEClassifier(**parameters)
    weighted.partial_fit(X, y, classes=classes, sample_weight=weights)
    repeated = OnlineKDEClassifier(**parameters)
    repeated.partial_fit(np.repeat(X, times, axis=0), np.repeat(y, times), classes=classes)
    assert_same_model(weighted, repeated)


def moments(density):
    """Mean and covariance of the sample model; variances alone where not all else is held."""
    weights, means, covariances = density.weights_, density.means_, density.covariances_
    if covariances.ndim == 3 and covariances.shape[1] < means.shape[1]:  # of low rank
        covariances = covariances[:, 0]
    mean = weights @ means
    centred = means - mean
    if covariances.ndim == 2:
        between = weights @ centred**2
    else:
        between = (weights * centred.T) @ centred
    return mean, np.tensordot(weights, covariances, 1) + between


@settings(max_examples=12)
@given(stream=streams(weights=["whole"]))
@pytest.mark.parametrize("forgetting_factor", quick([0.97, 0.999, 0.5]))
@every_structure
def test_whole_weights_equal_repetition_with_forgetting(covariance_type, forgetting_factor, stream):
    X, weights = stream["X"], stream["sample_weight"]
    if not weights.any():
        return
    parameters = {"covariance_type": covariance_type, "forgetting_factor": forgetting_factor}

    def both(n):
        times = weights[:n].astype(int)
        weighted = OnlineKDEDensity(**parameters).partial_fit(X[:n], sample_weight=weights[:n])
        return weighted, OnlineKDEDensity(**parameters).fit(np.repeat(X[:n], times, axis=0))

    # Powers of the factor round differently; where that turns a merge one cannot compare scores.
    n = 30
    if weights[:n].any():
        weighted, repeated = both(n)
        np.testing.assert_array_equal(weighted.means_, repeated.means_)
        np.testing.assert_allclose(weighted.weights_, repeated.weights_, rtol=1e-10)
        np.testing.assert_allclose(
            weighted.score_samples(X[:n]), repeated.score_samples(X[:n]), rtol=1e-10, atol=1e-10
        )
    weighted, repeated = both(len(X))
    scale = np.abs(X).max(axis=0)
    for first, second in zip(moments(weighted), moments(repeated), strict=True):
        unit = scale[:, None] * scale if first.ndim == 2 else scale
        np.testing.assert_allclose(first / unit, second / unit, rtol=0, atol=1e-10)


@pytest.mark.parametrize("forgetting_factor", [0.99, 0.6])
@every_structure
def test_whole_weights_equal_repetition_with_forgetting_while_compressing(
    covariance_type, forgetting_factor
):
    rng = np.random.default_rng(3)
    X, weights = rng.normal(size=(150, 2)), rng.integers(0, 4, size=150)
    parameters = {"covariance_type": covariance_type, "forgetting_factor": forgetting_factor}
    weighted = OnlineKDEDensity(**parameters).fit(X, sample_weight=weights)
    repeated = OnlineKDEDensity(**parameters).fit(np.repeat(X, weights, axis=0))
    assert weighted.n_components_ == repeated.n_components_ < 100
    np.testing.assert_allclose(weighted.score_samples(X), repeated.score_samples(X), rtol=1e-9)


@settings(max_examples=12)
@given(stream=streams(weights=["whole", "fractions"]))
@forgetting
@every_structure
def test_rows_of_zero_weight_are_as_absent(
    assert_same_model, covariance_type, forgetting_factor, stream
):
    X, y, weights = stream["X"], stream["y"], stream["sample_weight"]
    counted = weights > 0.0
    if not counted.any():
        return
    parameters = {"covariance_type": covariance_type, "forgetting_factor": forgetting_factor}
    parameters |= stream["parameters"]
    density = OnlineKDEDensity(**parameters).fit(X, sample_weight=weights)
    absent = OnlineKDEDensity(**parameters).fit(X[counted], sample_weight=weights[counted])
    assert_same_model(density, absent)
    first = {"classes": ["a", "b", "c", "long"]}
    classifier = OnlineKDEClassifier(**parameters)
    classifier.partial_fit(X, y, sample_weight=weights, **first)
    absent = OnlineKDEClassifier(**parameters)
    absent.partial_fit(X[counted], y[counted], sample_weight=weights[counted], **first)
    assert_same_model(classifier, absent)


@pytest.mark.parametrize("Estimator", [OnlineKDEDensity, OnlineKDEClassifier])
def test_a_block_of_zero_weight_changes_nothing(assert_same_model, state_of, Estimator):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 2)), np.arange(50) % 2
    fitted = Estimator(forgetting_factor=0.9).fit(X, y)
    before = state_of(fitted)
    fitted.partial_fit(X + 100.0, y, sample_weight=np.zeros(50))
    assert_same_model(before, fitted)
    fitted.partial_fit(X + 100.0, y, sample_weight=np.full(50, 5e-324))  # too small to count
    assert_same_model(before, fitted)


def test_only_zero_weights_at_first(assert_same_model):
    X = np.random.default_rng(0).normal(size=(50, 2))
    density = OnlineKDEDensity().partial_fit(X, sample_weight=np.zeros(50))
    with pytest.raises(NotFittedError):
        density.score_samples(X)
    assert not hasattr(density, "weights_")
    assert_same_model(density.partial_fit(X), OnlineKDEDensity().fit(X))


def test_equal_weights_are_the_same_weight():
    # Frequencies: all weights 3 is thrice the samples, so a smaller bandwidth, at the same places.
    X = np.random.default_rng(0).normal(size=(25, 2))
    once = OnlineKDEDensity(bandwidth="silverman").fit(X)
    thrice = OnlineKDEDensity(bandwidth="silverman").fit(X, sample_weight=np.full(25, 3.0))
    np.testing.assert_allclose(thrice.weights_, once.weights_)
    np.testing.assert_allclose(thrice.bandwidth_, once.bandwidth_ * 3.0 ** (-2 / 6))


# ------------------------------------------------------------------------------------ forgetting


@pytest.mark.parametrize("factor", [1.0, 0.97, 0.5, 1e-3])
@every_structure
def test_weights_by_the_closed_form(covariance_type, factor):
    X = np.random.default_rng(0).normal(size=(30, 2))
    density = OnlineKDEDensity(covariance_type=covariance_type, forgetting_factor=factor).fit(X)
    counts = factor ** np.arange(29.0, -1.0, -1.0)
    np.testing.assert_array_equal(density.means_, X)
    np.testing.assert_allclose(density.weights_, counts / counts.sum(), rtol=1e-12)
    assert density.n_samples_seen_ == 30.0


@pytest.mark.parametrize("factor", [0.97, 0.5])
def test_weighted_rows_by_the_closed_form(factor):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(30, 2)), rng.random(30) * 4.0
    density = OnlineKDEDensity(forgetting_factor=factor).fit(X, sample_weight=weights)
    later = np.append(np.cumsum(weights[::-1])[::-1][1:], 0.0)
    counts = factor**later * (1.0 - factor**weights) / (1.0 - factor)
    np.testing.assert_allclose(density.weights_, counts / counts.sum(), rtol=1e-12)
    assert density.n_samples_seen_ == pytest.approx(weights.sum(), rel=1e-14)


@pytest.mark.parametrize("factor", [1.0, 0.98, 0.9])
@every_structure
def test_moments_by_the_closed_form_after_compression(covariance_type, factor):
    X = np.random.default_rng(1).normal([3.0, -1.0], [1.0, 5.0], size=(400, 2))
    density = OnlineKDEDensity(covariance_type=covariance_type, forgetting_factor=factor).fit(X)
    assert density.n_components_ < 150
    counts = factor ** np.arange(399.0, -1.0, -1.0)
    mean, covariance = moments(density)
    expected = np.cov(X.T, aweights=counts, bias=True)
    if covariance.ndim == 1:
        expected = np.diag(expected)
    np.testing.assert_allclose(mean, np.average(X, axis=0, weights=counts), rtol=1e-10)
    np.testing.assert_allclose(covariance, expected, rtol=1e-10, atol=1e-10)


def test_repetitions_age_their_own_location():
    density = OnlineKDEDensity(forgetting_factor=0.5).fit([[1.0], [2.0], [1.0]])
    np.testing.assert_array_equal(density.means_, [[1.0], [2.0]])
    np.testing.assert_allclose(density.weights_, np.array([1.25, 0.5]) / 1.75)


# ------------------------------------------------------------------------ what is held in memory


@settings(max_examples=10)
@given(stream=streams())
@every_structure
def test_never_more_components_than_the_limit(covariance_type, stream):
    cap = stream["parameters"]["max_components"]
    density = OnlineKDEDensity(covariance_type=covariance_type, **stream["parameters"])
    for row in stream["X"]:
        density.partial_fit(row[None])
        assert density.n_components_ <= density._state.limit
        assert cap is None or density.n_components_ <= cap
        assert len(density.weights_) == density.n_components_


@pytest.mark.parametrize("threshold", [0.0, 0.1])
@pytest.mark.parametrize("cap", quick([2, 17, 3, 31, 100], 2))
@every_structure
def test_max_components_is_a_hard_cap(long_stream, covariance_type, cap, threshold):
    density = OnlineKDEDensity(
        covariance_type=covariance_type, max_components=cap, compression_threshold=threshold
    )
    largest = 0
    for row in long_stream["X"][:300]:
        density.partial_fit(row[None])
        largest = max(largest, density.n_components_)
    assert largest <= cap
    if threshold == 0.0:  # nothing but the cap holds it down
        assert largest > cap // 2
    assert np.isfinite(density.score_samples(long_stream["X"])).all()


def test_max_components_is_for_each_class(long_stream):
    X, y = long_stream["X"], long_stream["y"]
    free = OnlineKDEClassifier(compression_threshold=0.03).fit(X, y)
    capped = OnlineKDEClassifier(compression_threshold=0.03, max_components=12).fit(X, y)
    assert all(density.n_components_ > 12 for density in free.estimators_)
    assert all(density.n_components_ <= 12 for density in capped.estimators_)


def test_max_components_set_in_mid_stream(long_stream, assert_same_model):
    X = long_stream["X"]
    density = OnlineKDEDensity(compression_threshold=0.03).fit(X[:300])
    assert density.n_components_ > 10
    density.set_params(max_components=10).partial_fit(X[300:301])
    assert density.n_components_ <= 10
    density.fit(X[:300]).set_params(max_components=3)
    density.partial_fit(X[:1], sample_weight=[0.0])  # even where no row comes in
    assert density.n_components_ <= 3
    density = (
        OnlineKDEDensity(compression_threshold=0.03).fit(X[:300]).set_params(max_components=10)
    )
    density.partial_fit(X[300:301])
    other = OnlineKDEDensity(compression_threshold=0.03).fit(X[:300]).set_params(max_components=10)
    assert_same_model(density.partial_fit(X[301:400]), other.partial_fit(X[300:400]))


@pytest.mark.parametrize("forgetting_factor", quick([1.0, 0.99]))
@every_structure
def test_memory_stays_bounded(covariance_type, forgetting_factor):
    rng = np.random.default_rng(0)
    density = OnlineKDEDensity(covariance_type=covariance_type, forgetting_factor=forgetting_factor)
    sizes = [len(pickle.dumps(density.partial_fit(rng.normal(size=(1000, 2))))) for _ in range(10)]
    assert max(sizes[5:]) < 1.5 * max(sizes[:5])
    assert density.n_components_ < 150
    # Views into larger buffers would be memory that the pickle does not show.
    for array in density._mixture:
        held = array if array.base is None else array.base
        # A compound has two details, of which those of one sample have no covariance.
        most = max(len(array), density._state.limit + 1)
        assert held.nbytes <= most * max(1, array[:1].nbytes)


def test_forgotten_rows_take_no_memory():
    # Nothing may be merged here, so what no longer counts has to be dropped.
    X = np.random.default_rng(0).normal(size=(4000, 1))
    density = OnlineKDEDensity(compression_threshold=0.0, forgetting_factor=0.5).fit(X)
    assert density.n_components_ < 1500


def test_repeated_rows_take_no_memory():
    X = np.random.default_rng(0).integers(0, 5, size=(5000, 2)).astype(float)
    density = OnlineKDEDensity(compression_threshold=0.0).fit(X)
    assert density.n_components_ == 25
    assert density.n_samples_seen_ == 5000.0


def test_nothing_is_put_off_until_a_score(long_stream, assert_same_model, state_of):
    density = OnlineKDEDensity()
    for row in long_stream["X"][:100]:
        before = state_of(density.partial_fit(row[None]))
        density.score_samples(row[None])
        assert_same_model(before, density)


@settings(max_examples=30)
@given(
    # Subnormal weights count as zero.
    weights=st.lists(st.floats(0.0, 5.0, allow_subnormal=False), min_size=1, max_size=60).filter(
        any
    ),
    cut=st.integers(0, 60),
)
def test_n_samples_seen(weights, cut):
    X = np.arange(float(len(weights)))[:, None]
    density = OnlineKDEDensity(forgetting_factor=0.9).fit(X, sample_weight=weights)
    assert density.n_samples_seen_ == pytest.approx(sum(weights), rel=1e-12, abs=1e-300)
    assert type(density.n_samples_seen_) is float
    parts = OnlineKDEDensity(forgetting_factor=0.9)
    for block in blocks_of([cut], len(weights)):
        parts.partial_fit(X[block], sample_weight=weights[block])
    assert parts.n_samples_seen_ == density.n_samples_seen_


# --------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize("n_jobs", quick([2, 3, -1]))
@each_memory
@every_structure
def test_n_jobs_changes_nothing(long_stream, assert_same_model, covariance_type, memory, n_jobs):
    X, y = long_stream["X"][:400], long_stream["y"][:400]
    parameters = {"covariance_type": covariance_type, "forgetting_factor": memory}
    alone = OnlineKDEClassifier(**parameters)
    threads = OnlineKDEClassifier(n_jobs=n_jobs, **parameters)
    for block in blocks_of([100, 101, 350], 400):
        alone.partial_fit(X[block], y[block])
        threads.partial_fit(X[block], y[block])
    assert_same_model(threads, alone)
    np.testing.assert_array_equal(threads.predict_proba(X), alone.predict_proba(X))


@pytest.mark.parametrize(("n_jobs", "expected"), [(None, False), (1, False), (2, True)])
def test_n_jobs_is_what_uses_threads(long_stream, monkeypatch, n_jobs, expected):
    learn, threads = skokde._density.learn, set()

    def noted(*arguments):
        threads.add(threading.get_ident())
        return learn(*arguments)

    monkeypatch.setattr(skokde._density, "learn", noted)
    OnlineKDEClassifier(n_jobs=n_jobs).fit(long_stream["X"], long_stream["y"])
    assert (threads != {threading.get_ident()}) == expected


@pytest.mark.parametrize("spread", [1.0, 300.0])  # the latter so that blocks leave out components
@every_structure
def test_n_jobs_changes_no_score(monkeypatch, covariance_type, spread):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2)) + spread * rng.integers(0, 5, size=(3000, 2))
    y = rng.integers(0, 2, size=len(X))
    log_mixtures, threads = skokde._engine.kde.log_mixtures, set()

    def noted(*arguments):
        threads.add(threading.get_ident())
        return log_mixtures(*arguments)

    monkeypatch.setattr(skokde._engine.kde, "log_mixtures", noted)
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X[:600])
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:600], y[:600])
    for score in (density.score_samples, classifier.predict_proba, classifier.score_samples):
        estimator, scores = score.__self__, []
        for n_jobs in (None, 3):
            threads.clear()
            scores.append(score.__func__(estimator.set_params(n_jobs=n_jobs), X))
            assert (threads != {threading.get_ident()}) == (n_jobs == 3)
        np.testing.assert_array_equal(*scores)


def test_n_jobs_of_a_context(long_stream, assert_same_model):
    X, y = long_stream["X"][:300], long_stream["y"][:300]
    expected = OnlineKDEClassifier().fit(X, y)
    with parallel_config(n_jobs=2):
        assert_same_model(OnlineKDEClassifier().fit(X, y), expected)


SCRIPT = """
import sys
import numpy as np
from skokde import OnlineKDEDensity

d = int(sys.argv[1])
rng = np.random.default_rng(0)
X = rng.normal(size=(65, d)).cumsum(axis=1)  # a product of matrices depends on the threads
density = OnlineKDEDensity(compression_threshold=0.65, bandwidth="silverman").fit(X)
assert density.n_components_ < 20 and density.covariances_.any()
for array in (density.weights_, density.means_, density.covariances_, *density._mixture):
    sys.stdout.buffer.write(array.tobytes())
"""


@pytest.mark.parametrize("d", quick([64, 100]))
def test_threads_of_the_blas_change_nothing(d):
    # As many features as a BLAS needs to share its work between threads.
    digests = set()
    for threads in ("1", "2"):
        names = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"]
        environment = os.environ | dict.fromkeys(names, threads)
        command = [sys.executable, "-c", SCRIPT, str(d)]
        run = subprocess.run(command, env=environment, capture_output=True, check=True)
        assert run.stdout
        digests.add(hashlib.sha256(run.stdout).hexdigest())
    assert len(digests) == 1


# -------------------------------------------------------------------------------------- aliasing


@pytest.mark.parametrize("n", [1, 20, 90])
@every_structure
def test_the_caller_may_reuse_the_buffers(assert_same_model, covariance_type, n):
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=(n, 2)), np.arange(n) % 2, rng.random(n)
    classes = np.arange(2)
    given_ = X, y, weights, classes
    for Estimator in (OnlineKDEDensity, OnlineKDEClassifier):
        own = [array.copy() for array in given_]
        only = {"classes": own[3]} if Estimator is OnlineKDEClassifier else {}
        estimator = Estimator(covariance_type=covariance_type)
        estimator.partial_fit(own[0], own[1], sample_weight=own[2], **only)
        for array, original in zip(own, given_, strict=True):
            np.testing.assert_array_equal(array, original)  # not written to
            array[...] = 0
        expected = Estimator(covariance_type=covariance_type)
        only = {"classes": classes} if only else {}
        expected.partial_fit(X, y, sample_weight=weights, **only)
        assert_same_model(estimator, expected)
        np.testing.assert_array_equal(estimator.score_samples(X), expected.score_samples(X))


@pytest.mark.parametrize("copy_of", [copy.copy, copy.deepcopy], ids=["shallow", "deep"])
@pytest.mark.parametrize("Estimator", [OnlineKDEDensity, OnlineKDEClassifier])
def test_copies_go_their_own_ways(assert_same_model, state_of, Estimator, copy_of):
    X, y = load_wine(return_X_y=True)
    original = Estimator().fit(X[::2], y[::2])
    before, scores = state_of(original), original.score_samples(X)
    twin = copy_of(original)
    assert_same_model(twin, original)
    twin.partial_fit(X[1::2], y[1::2])
    twin.score_samples(X)
    assert_same_model(before, original)
    np.testing.assert_array_equal(original.score_samples(X), scores)
    assert state_of(twin) != before
    assert_same_model(original.partial_fit(X[1::2], y[1::2]), twin)
    np.testing.assert_array_equal(original.score_samples(X), twin.score_samples(X))
