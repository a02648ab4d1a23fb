"""Models that are merged: what is exact, what is as good as one stream, and what is refused."""

import gc
import pickle
import weakref
from functools import partial, reduce

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from marks import quick
from skokde import (
    DegenerateDataWarning,
    OnlineKDEClassifier,
    OnlineKDEDensity,
    OnlineKDEImputer,
    OnlineKDEOutlierDetector,
    OnlineKDERegressor,
    fit_shards,
    merge,
)
from skokde._engine.compression import MOST_COMPONENTS
from skokde._engine.learn import ENOUGH_NEW, MORE_GOING_ON, MORE_IF_MERGED
from skokde._engine.merging import HeldOut
from skokde._engine.pooling import LogLinearPool, learn_pool
from structures import STRUCTURES

ESTIMATORS = [
    OnlineKDEDensity,
    OnlineKDEClassifier,
    OnlineKDEImputer,
    OnlineKDERegressor,
    OnlineKDEOutlierDetector,
]
TARGETS = (OnlineKDEClassifier, OnlineKDERegressor)
every_estimator = pytest.mark.parametrize("Estimator", ESTIMATORS)
structures = pytest.mark.parametrize("covariance_type", STRUCTURES, ids=str)


def labelled(n=240, seed=0):
    """Two classes, each of two clusters, in three features."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 3)) + 3.0 * y[:, None] + 4.0 * rng.integers(0, 2, (n, 1))
    return X, y


def learned(estimator, X, y):
    """Fitted to some rows, with classes or outputs where it has any."""
    return estimator.fit(X, y) if isinstance(estimator, TARGETS) else estimator.fit(X)


def shards_of(estimator, X, y, n):
    parts = np.array_split(np.arange(len(X)), n)
    return [learned(clone(estimator), X[rows], y[rows]) for rows in parts]


def moments(density):
    """Count, mean and covariance of a whole sample model."""
    counts, means = density._mixture.counts, density.means_
    mean = counts @ means / counts.sum()
    away, covariances = means - mean, density.covariances_
    if covariances.ndim == 2:
        spread = covariances + away**2
    else:
        spread = covariances + away[:, :, None] * away[:, None, :]
    return counts.sum(), mean, np.tensordot(counts, spread, 1) / counts.sum()


def in_a_tree(models):
    while len(models) > 1:
        pairs = [models[i : i + 2] for i in range(0, len(models), 2)]
        models = [clone(pair[0]).merge(*pair) for pair in pairs]
    return models[0]


def in_a_chain(models):
    return reduce(lambda first, second: clone(first).merge(first, second), models)


def at_once(models):
    return clone(models[0]).merge(*models)


@given(
    st.sampled_from(STRUCTURES),
    st.sampled_from(["predictive", 0.1]),
    st.sampled_from([1e-12, 1.0, 1e12]),
    st.lists(st.integers(1, 120), min_size=2, max_size=6),
    st.integers(0, 2**16),
)
def test_count_mean_and_covariance_are_those_of_all_samples(
    covariance_type, threshold, scale, sizes, seed
):
    rng = np.random.default_rng(seed)
    X = scale * (rng.normal(size=(sum(sizes), 2)) + rng.integers(0, 3, size=(sum(sizes), 1)))
    weights = rng.integers(1, 4, size=len(X)).astype(float)
    density = OnlineKDEDensity(covariance_type=covariance_type, compression_threshold=threshold)
    cuts = np.cumsum(sizes)[:-1]
    models = [
        clone(density).fit(rows, sample_weight=w)
        for rows, w in zip(np.split(X, cuts), np.split(weights, cuts), strict=True)
    ]
    merged = at_once(models)
    count, mean, covariance = moments(merged)
    right = np.average(X, axis=0, weights=weights)
    away = X - right
    spread = (weights[:, None] * away).T @ away / weights.sum()
    if covariance.ndim == 1:
        spread = np.diag(spread)
    assert merged.n_samples_seen_ == weights.sum()
    np.testing.assert_allclose(count, weights.sum(), rtol=1e-12)
    np.testing.assert_allclose(mean, right, rtol=1e-12, atol=1e-12 * scale)
    np.testing.assert_allclose(covariance, spread, rtol=1e-12, atol=1e-12 * scale**2)
    assert np.isfinite(merged.score_samples(X)).all()


@every_estimator
def test_what_has_learned_nothing_changes_nothing(Estimator, assert_same_model, state_of):
    X, y = labelled()
    model = learned(Estimator(), X, y)
    before = state_of(model)
    assert model.merge() is model
    assert model.merge(Estimator(), Estimator()) is model
    assert_same_model(before, model)
    assert not hasattr(Estimator().merge(Estimator()), "n_features_in_")
    taken = Estimator().merge(Estimator(), model)
    assert taken.n_features_in_ == 3
    if Estimator is not OnlineKDEClassifier:  # whose open window is closed
        assert_same_model(before, taken)


@every_estimator
@structures
def test_the_others_stay_as_they_are(Estimator, covariance_type, state_of, assert_same_model):
    X, y = labelled()
    models = shards_of(Estimator(covariance_type=covariance_type), X, y, 3)
    before = [state_of(model) for model in models]
    merged = at_once(models)
    merged.merge(*models)
    for model, state in zip(models, before, strict=True):
        assert_same_model(model, state)


@every_estimator
def test_merged_models_are_stored_and_go_on_learning(Estimator, assert_same_model):
    X, y = labelled(400)
    merged = at_once(shards_of(Estimator(), X[:300], y[:300], 3))
    stored = pickle.loads(pickle.dumps(merged))
    assert_same_model(merged, stored)
    for model in (merged, stored):
        parts = (X[300:], y[300:]) if Estimator in TARGETS else (X[300:],)
        model.partial_fit(*parts)
    assert_same_model(merged, stored)
    density = getattr(merged, "density_", merged)
    if Estimator is OnlineKDEClassifier:
        seen = sum(density.n_samples_seen_ for density in merged.estimators_)
        np.testing.assert_array_equal(merged.class_count_, np.bincount(y))
    else:
        seen = density.n_samples_seen_
    assert seen == 400.0


@structures
def test_few_samples_are_as_in_one_stream(covariance_type):
    """Before a compression all samples are held as they came, in either case."""
    X, _ = labelled(28)
    X[20:24] = X[:4]  # a repeated sample is one Dirac
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth="silverman")
    merged = at_once([clone(density).fit(part) for part in (X[:10], X[10:21], X[21:])])
    stream = density.fit(X)
    assert merged.n_components_ == stream.n_components_ == 24
    np.testing.assert_allclose(merged.score_samples(X), stream.score_samples(X), rtol=1e-10)


@pytest.mark.parametrize("orders", quick([[in_a_tree, in_a_chain], [at_once, merge]]))
def test_any_order_of_merges_is_as_good_as_one_stream(orders):
    X, y = load_digits(return_X_y=True)
    X = X[:, 20:30] + np.random.default_rng(0).normal(size=(len(X), 10))
    scores, losses = [], []  # of the stream, and of each order
    for seed in range(3):
        train, test, y_train, y_test = train_test_split(X, y, random_state=seed)
        stream = OnlineKDEDensity().fit(train)
        shards = shards_of(OnlineKDEDensity(), train, y_train, 6)
        for together in orders:
            assert together(shards).score(test) > stream.score(test) - 0.1
        stream = OnlineKDEClassifier().fit(train, y_train)
        shards = shards_of(OnlineKDEClassifier(), train, y_train, 6)
        models = [stream, *(together(shards) for together in orders)]
        scores.append([model.score(test, y_test) for model in models])
        losses.append([log_loss(y_test, model.predict_proba(test)) for model in models])
    # One part of 450 rows differs by as much as this by chance.
    (score, *merged_scores), (loss, *merged_losses) = np.mean([scores, losses], axis=1)
    assert min(merged_scores) > score - 0.02
    assert max(merged_losses) < loss + 0.1


def test_classes_that_came_one_after_the_other_are_told_apart():
    X, y = labelled(600)
    order = np.argsort(y, kind="stable")
    test, y_test = labelled(500, seed=1)
    stream = OnlineKDEClassifier().fit(X, y).score(test, y_test)
    merged = at_once(shards_of(OnlineKDEClassifier(), X[order], y[order], 6))
    assert merged.score(test, y_test) > stream - 0.02
    assert stream > 0.85


@pytest.mark.parametrize("cap", [None, 50])
def test_components_are_bounded(cap):
    X = np.random.default_rng(0).uniform(size=(6000, 4))
    density = OnlineKDEDensity(max_components=cap)
    merged = merge(clone(density).fit(part) for part in np.split(X, 12))
    most = MORE_IF_MERGED * MOST_COMPONENTS + ENOUGH_NEW if cap is None else cap
    assert merged.n_components_ <= most
    assert merged.partial_fit(X[:500]).n_components_ <= 1.5 * most


def test_shards_tell_as_much_apart_as_one_stream():
    """A spiral, of which models of few samples see next to nothing."""

    def spiral(n, seed):
        rng = np.random.default_rng(seed)
        angle = 6.0 * np.pi * np.sqrt(rng.uniform(size=n))
        turns = angle[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
        return turns + 0.05 * rng.normal(size=(n, 2))

    X, new = spiral(4800, seed=0), spiral(2000, seed=1)
    merged = merge(OnlineKDEDensity().fit(shard) for shard in np.split(X, 16))
    assert merged.score(new) > OnlineKDEDensity().fit(X).score(new) - 0.1


@pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))
def test_merged_models_of_simple_samples_are_small(covariance_type):
    X, new = np.split(np.random.default_rng(0).normal(size=(10_000, 2)), [8000])
    density = OnlineKDEDensity(covariance_type=covariance_type)
    shards = [clone(density).fit(part) for part in np.split(X, 16)]
    stream, merged = clone(density).fit(X), merge(shards)
    n_components = sum(shard.n_components_ for shard in shards)
    assert 4 * merged.n_components_ < n_components
    assert merged.score(new) > stream.score(new) - 0.02


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_models_that_are_larger_once_merged_stay_fine(covariance_type, monkeypatch):
    monkeypatch.setattr("skokde._validation.MOST_COMPONENTS", 40)
    rng = np.random.default_rng(0)
    centers = rng.uniform(size=(120, 3))  # one of a single stream can't tell them apart
    X, test = (
        c + 0.01 * rng.normal(size=(3000, 3)) for c in centers[rng.integers(120, size=(2, 3000))]
    )
    density = OnlineKDEDensity(covariance_type=covariance_type)
    shards = [clone(density).fit(part) for part in np.split(X[:2000], 10)]
    assert all(shard._state.n_compressed <= 40 for shard in shards)
    merged = merge(shards)
    assert 40 < merged._state.n_compressed <= MORE_IF_MERGED * 40
    merged.partial_fit(X[2000:])
    # As it goes on it is not made as small as one of a stream, nor does it grow without end.
    assert MORE_IF_MERGED * 40 < merged._state.n_compressed <= MORE_GOING_ON * 40
    stream = clone(density).fit(X)
    assert stream._state.n_compressed <= 40
    assert merged.score(test) > stream.score(test) + 0.1


def test_labels_are_united():
    X, y = labelled()
    first = OnlineKDEClassifier().fit(X[y == 0], y[y == 0])
    second = OnlineKDEClassifier().partial_fit(X, y + 3, classes=[2, 3, 4])
    merged = at_once([first, second])
    np.testing.assert_array_equal(merged.classes_, [0, 2, 3, 4])
    np.testing.assert_array_equal(merged.class_count_, [sum(y == 0), 0, sum(y == 0), sum(y == 1)])
    assert merged.predict_proba(X).shape == (240, 4)
    np.testing.assert_allclose(merged.predict_proba(X).sum(axis=1), 1.0)
    priors = [0.1, 0.2, 0.3, 0.4]
    whole = OnlineKDEClassifier(priors=priors).merge(first, first, second, first)
    np.testing.assert_allclose(whole.class_prior_, np.array([0.1, 0.0, 0.3, 0.4]) / 0.8)
    # The first one was fitted: which labels may come was declared.
    with pytest.raises(ValueError, match="not among the classes"):
        merged.partial_fit(X, np.full(240, 7))


def test_parameters_are_those_of_the_model_that_merges():
    X, y = labelled()
    fine = OnlineKDEDensity().fit(X)
    other = OnlineKDEDensity(bandwidth="okde", compression_threshold=0.1).fit(X)
    merged = clone(other).merge(fine, other)
    assert merged.get_params() == other.get_params()
    assert merged.bandwidth_scale_ > 0.0
    assert set(clone(fine).merge(other, fine).expert_weights_["width"].shape) == {5}
    classifier = OnlineKDEClassifier(calibrate=False).fit(X, y)
    merged = OnlineKDEClassifier().merge(classifier, OnlineKDEClassifier().fit(X, y))
    assert merged.calibrate
    assert merged.score(X, y) > 0.8


def test_forgetting_ages_what_came_first():
    X, y = labelled(200)
    first = OnlineKDEDensity(forgetting_factor=0.98).fit(X[:100])
    second = OnlineKDEDensity(forgetting_factor=0.98).fit(X[100:])
    stream = OnlineKDEDensity(forgetting_factor=0.98).fit(X)
    of_merged, of_stream = moments(clone(first).merge(first, second)), moments(stream)
    for value, right in zip(of_merged, of_stream, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-10, atol=1e-10)
    classifier = OnlineKDEClassifier(forgetting_factor=0.98)
    merged = merge(shards_of(classifier, X, y, 4))
    np.testing.assert_allclose(merged.class_count_, classifier.fit(X, y).class_count_, rtol=1e-12)


def test_what_was_merged_is_unlearned_by_forgetting():
    X, y = labelled(600)
    new, _ = labelled(300, seed=1)
    merged = merge(shards_of(OnlineKDEDensity(forgetting_factor=0.97), X, y, 4))
    before = merged.score(X)
    merged.partial_fit(new + 30.0)
    stream = OnlineKDEDensity(forgetting_factor=0.97).fit(new + 30.0)
    later, _ = labelled(300, seed=2)
    assert abs(merged.score(later + 30.0) - stream.score(later + 30.0)) < 0.1
    assert merged.score(X) < before - 5.0
    np.testing.assert_allclose(moments(merged)[1], moments(stream)[1], atol=0.05)


@pytest.mark.slow
def test_the_newest_samples_are_those_of_the_last_one():
    X, y = labelled(900)
    X[600:] += 20.0
    density = OnlineKDEDensity(forgetting_factor="predictive")
    models = [clone(density).fit(part) for part in np.split(X, 3)]
    now = X[600:] + 0.01
    forward, backward = at_once(models), at_once(models[::-1])
    assert forward.score(now) > backward.score(now)
    recent = forward._state.recent
    np.testing.assert_array_equal(recent.rows, X[-512:])
    assert not len(recent.pending_rows)
    classifier = OnlineKDEClassifier(forgetting_factor="predictive")
    stream = clone(classifier).fit(X, y)
    merged = merge(shards_of(classifier, X, y, 3))
    np.testing.assert_allclose(merged._class_memory.counts, stream._class_memory.counts, rtol=1e-10)
    assert merged.score(now, y[600:]) > stream.score(now, y[600:]) - 0.05


def test_rows_that_wait_are_learned():
    X, _ = labelled(40)
    X[:6, 2] = np.nan
    waiting = OnlineKDEDensity().partial_fit(X[:3])
    more = OnlineKDEDensity().partial_fit(X[3:6])
    both = clone(waiting).merge(waiting, more)
    assert not both.__sklearn_is_fitted__()
    merged = both.merge(OnlineKDEDensity().fit(X[6:]))
    assert merged.n_samples_seen_ == 40.0
    np.testing.assert_allclose(moments(merged)[1][:2], X[:, :2].mean(axis=0), rtol=1e-12)


@pytest.mark.slow
def test_p_values_of_merged_detectors_hold_their_level():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(4000, 3)), rng.normal(size=(4000, 3))
    merged = merge(OnlineKDEOutlierDetector().fit(part) for part in np.split(X, 4))
    p = merged.p_values(new)
    for level in (0.01, 0.05, 0.2):
        assert 0.5 * level < (p <= level).mean() < 1.6 * level
    assert merged.p_values([[6.0, 6.0, 6.0]])[0] < 0.01
    assert merged.predict([[6.0, 6.0, 6.0]])[0] == -1


def test_p_values_of_merged_classifiers_hold_their_level():
    X, y = labelled(3000)
    new, _ = labelled(3000, seed=1)
    merged = merge(shards_of(OnlineKDEClassifier(), X, y, 4))
    p = merged.outlier_p_values(new)
    assert (p <= 0.05).mean() <= 0.08
    assert merged.outlier_p_values([[30.0, -30.0, 30.0]])[0] < 0.01


def test_merged_regressors_and_imputers():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(900, 2))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=900)
    stream = OnlineKDERegressor().fit(X[:600], y[:600]).score(X[600:], y[600:])
    merged = merge(shards_of(OnlineKDERegressor(), X[:600], y[:600], 4))
    assert merged.score(X[600:], y[600:]) > stream - 0.03
    holes = X.copy()
    holes[:25, 1] = np.nan
    holes[25:, 0][::2] = np.nan
    first, second = OnlineKDEImputer().fit(holes[:25]), OnlineKDEImputer().fit(holes[25:])
    merged = clone(first).merge(first, second)
    np.testing.assert_array_equal(first.empty_features_, [False, True])
    np.testing.assert_array_equal(merged.empty_features_, [False, False])
    np.testing.assert_array_equal(merged.incomplete_features_, [True, True])
    filled = merged.transform([[1.0, np.nan], [np.nan, -1.0]])
    assert np.abs(filled).max() < 2.0


@every_estimator
def test_mismatches_are_refused_and_change_nothing(Estimator, state_of, assert_same_model):
    X, y = labelled()
    model = learned(Estimator(), X, y)
    named = learned(Estimator(), pd.DataFrame(X, columns=list("abc")), y)
    before = state_of(model)
    others = {
        "features": learned(Estimator(), X[:, :2], y),
        "names": named,
        "covariance_type": learned(Estimator(covariance_type="diag"), X, y),
    }
    for message, other in others.items():
        with pytest.raises(ValueError, match=message):
            model.merge(learned(Estimator(), X, y), other)
        assert_same_model(before, model)
    with pytest.raises(ValueError, match="names"):
        named.merge(learned(Estimator(), pd.DataFrame(X, columns=list("abd")), y))
    for other in (None, clone(model).get_params(), type("Other", (), {"n_features_in_": 3})()):
        with pytest.raises(TypeError, match="merged"):
            model.merge(other)
    broken = learned(Estimator(), X, y).set_params(max_components=1)
    with pytest.raises(ValueError, match="max_components"):
        broken.merge(model)
    assert_same_model(before, model)


def test_mismatches_of_some_estimators():
    X, y = labelled()
    classifier = OnlineKDEClassifier().fit(X, y)
    with pytest.raises(ValueError, match="label"):
        classifier.merge(OnlineKDEClassifier().fit(X, np.where(y, "a", "b")))
    with pytest.raises(ValueError, match="priors"):
        clone(classifier).set_params(priors=[0.5, 0.5]).merge(
            classifier, OnlineKDEClassifier().fit(X, y + 1)
        )
    regressor = OnlineKDERegressor().fit(X, y)
    for other in (np.column_stack([y, y]), y[:, None]):
        with pytest.raises(ValueError, match="outputs or dimensions"):
            clone(regressor).merge(regressor, OnlineKDERegressor().fit(X, other))
    with pytest.raises(TypeError, match="merged"):
        merge([OnlineKDEDensity().fit(X), classifier])
    with pytest.raises(TypeError, match="estimators of skokde"):
        merge([1])
    with pytest.raises(ValueError, match="no models"):
        merge([])


def test_the_warning_comes_with_the_thirtieth_sample():
    X = np.column_stack([np.arange(60.0), np.full(60, 7.0)])
    models = [OnlineKDEDensity().fit(X[:20]), OnlineKDEDensity().fit(X[20:40])]
    with pytest.warns(DegenerateDataWarning, match="features"):
        merged = at_once(models)
    merged.merge(OnlineKDEDensity().fit(X[40:]))  # it has warned: another one would be an error


def test_a_model_is_merged_with_itself():
    X, _ = labelled()
    density = OnlineKDEDensity().fit(X)
    before = moments(density)
    after = moments(density.merge(density))
    assert after[0] == 2.0 * before[0]
    np.testing.assert_allclose(after[1], before[1], rtol=1e-12)
    np.testing.assert_allclose(after[2], before[2], rtol=1e-11)


@pytest.mark.slow
def test_models_are_taken_one_at_a_time():
    loaded = weakref.WeakSet()

    def load():
        for part in np.split(np.random.default_rng(0).normal(size=(320, 1)), 32):
            model = OnlineKDEDensity().fit(part)
            loaded.add(model)
            yield model
            del model
            gc.collect()
            assert len(loaded) <= 3

    assert merge(load()).n_samples_seen_ == 320.0


@pytest.mark.parametrize("Estimator", ESTIMATORS[:-1])
def test_shards_do_not_depend_on_the_workers(Estimator, assert_same_model):
    X, y = labelled(400)
    weights = np.random.default_rng(1).integers(0, 3, 400)
    shards = partial(fit_shards, Estimator(), X, sample_weight=weights, n_shards=4)
    if Estimator in TARGETS:
        shards = partial(shards, y=y)
    alone = shards()
    assert_same_model(alone, shards(n_jobs=2))
    with parallel_config("threading", n_jobs=2):
        assert_same_model(alone, shards())
    assert not hasattr(Estimator(), "n_features_in_")


@pytest.mark.parametrize("n", [2, 3, 5, 6, 7])
def test_shards_are_merged_as_models_are(n, assert_same_model):
    X, y = labelled(40 * n)
    parts = zip(np.split(X, n), np.split(y, n), strict=True)
    models = [OnlineKDEClassifier().partial_fit(*part, classes=[0, 1]) for part in parts]
    assert_same_model(fit_shards(OnlineKDEClassifier(), X, y, n_shards=n), merge(models))


def test_one_shard_is_a_stream(assert_same_model):
    X, y = labelled(100)
    stream = OnlineKDEClassifier().partial_fit(X, y, classes=[0, 1])
    assert_same_model(fit_shards(OnlineKDEClassifier(), X, y, n_shards=1), stream)


def test_shards_of_frames_and_of_few_rows():
    X, y = labelled(9)
    frame, labels = pd.DataFrame(X, columns=list("abc")), pd.Series(y, index=np.arange(9) * 7)
    classifier = fit_shards(OnlineKDEClassifier(), frame, labels, n_shards=20)
    np.testing.assert_array_equal(classifier.feature_names_in_, list("abc"))
    np.testing.assert_array_equal(classifier.class_count_, np.bincount(y))
    for n in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="n_shards"):
            fit_shards(OnlineKDEDensity(), X, n_shards=n)
    with pytest.raises(ValueError, match="inconsistent"):
        fit_shards(OnlineKDEClassifier(), X, y[:5])


def stored_rows(value, d):
    """All rows of d numbers in arrays of what is stored of an estimator."""
    if isinstance(value, np.ndarray) and value.dtype == float and value.shape[-1:] == (d,):
        return value.reshape(-1, d).tolist()
    if hasattr(value, "__getstate__") and hasattr(value, "get_params"):
        value = value.__getstate__()
    items = value.values() if isinstance(value, dict) else value
    if isinstance(items, (str, np.ndarray)) or not hasattr(items, "__iter__"):
        return []
    return [row for item in items for row in stored_rows(item, d)]


@every_estimator
@pytest.mark.parametrize("forgetting_factor", quick(["predictive", 1.0]))
def test_what_is_shared_holds_no_rows(Estimator, forgetting_factor, state_of, assert_same_model):
    X, y = labelled(300)
    model = learned(Estimator(forgetting_factor=forgetting_factor), X, y)
    before = state_of(model)
    shared = model.without_rows(min_samples=5)
    assert_same_model(before, model)
    d = 4 if Estimator is OnlineKDERegressor else 3
    rows = {tuple(row) for row in (np.column_stack([X, y]) if d == 4 else X).tolist()}
    assert rows.intersection(map(tuple, stored_rows(model, d)))  # the test can fail
    assert not rows.intersection(map(tuple, stored_rows(shared, d)))
    densities = getattr(shared, "estimators_", [getattr(shared, "density_", shared)])
    originals = getattr(model, "estimators_", [getattr(model, "density_", model)])
    for density, original in zip(densities, originals, strict=True):
        mixture = density._mixture
        assert mixture.counts.min() >= 5.0
        halves = mixture.counts[: mixture.n_compounds, None] * mixture.detail_weights
        alike = (mixture.detail_means[:, 0] == mixture.detail_means[:, 1]).all(axis=1)
        assert (alike | (halves.min(axis=1) >= 5.0)).all()
        for value, right in zip(moments(density), moments(original), strict=True):
            np.testing.assert_allclose(value, right, rtol=1e-9, atol=1e-9)
        assert (
            abs(
                density.score(X if d == 3 else np.column_stack([X, y]))
                - original.score(X if d == 3 else np.column_stack([X, y]))
            )
            < 2.0
        )
    stored = pickle.loads(pickle.dumps(shared))
    merged = clone(shared).merge(stored, shared)
    parts = (X, y) if Estimator in TARGETS else (X,)
    assert merged.partial_fit(*parts).n_features_in_ == 3


def test_what_can_not_be_shared():
    X, y = labelled(100)
    with pytest.raises(ValueError, match="There are 4 samples only"):
        OnlineKDEDensity().fit(X[:4]).without_rows()
    few = np.append(np.zeros(97, dtype=int), [1, 1, 1])
    with pytest.raises(ValueError, match="3 samples only"):
        OnlineKDEClassifier().fit(X, few).without_rows(5)
    for number in (1, 0, 2.5, "3"):
        with pytest.raises(ValueError, match="min_samples"):
            OnlineKDEDensity().fit(X).without_rows(number)
    shared = OnlineKDEClassifier().fit(X, y).without_rows(5)
    assert shared.score(X, y) > 0.8
    detector = OnlineKDEOutlierDetector().fit(X).without_rows(5)
    np.testing.assert_array_equal(detector.p_values(X), 1.0)
    np.testing.assert_array_equal(detector.predict(X), 1)


def test_a_pool_of_two_is_that_of_all_predictions():
    """Parabolas of two pools add up to that of the predictions of both."""
    rng = np.random.default_rng(0)
    exponents, log_prior = np.array([0.5, 0.5, 0.0]), np.log([0.3, 0.7])
    logs, codes = rng.normal(size=(3, 400, 2)), rng.integers(0, 2, 400)
    logs[0, np.arange(400), codes] += 1.0  # the first density tells classes apart
    start = LogLinearPool.start(2, exponents)

    def learned(rows):
        ones = np.ones(len(codes[rows]))
        return learn_pool(start, log_prior, logs[:, rows], codes[rows], ones, 1e9)

    first, second, both = (learned(part) for part in (slice(200), slice(200, 400), slice(400)))
    together = LogLinearPool.together([first, second], [1.0, 1.0], exponents)
    assert together.count == both.count == 400.0
    np.testing.assert_allclose(together.weights, both.weights, atol=0.05)
    assert np.abs(first.weights - second.weights).max() > 0.1
    np.testing.assert_allclose(together.precision, both.precision, rtol=0.2, atol=5.0)
    alone = LogLinearPool.together([first, second], [1.0, 0.0], exponents)
    np.testing.assert_allclose(alone.weights, first.weights, atol=1e-9)
    nothing = LogLinearPool.together([first, second], [0.0, 0.0], exponents)
    np.testing.assert_allclose(nothing.weights, start.weights, atol=1e-12)


@structures
def test_samples_are_held_out_of_the_models_that_predict_them(covariance_type):
    X, _ = labelled(300)
    density = OnlineKDEDensity(covariance_type=covariance_type)
    merged = merge(clone(density).fit(part) for part in np.split(X, 3))
    for state, n in ((merged._state, 20), (density.fit(X[:28])._state, 7)):
        held = HeldOut.of(state, 20)
        assert len(held.rows) == n
        assert (held.rows[:, None] == X).all(axis=2).any(axis=1).all()
        rest = held.state.mixture
        assert rest.n_components == state.mixture.n_components - n
        assert not (rest.means[:, None] == held.rows).all(axis=2).any()
        np.testing.assert_allclose(rest.counts.sum() + n, state.mixture.counts.sum())


def test_merged_probabilities_are_as_right_as_those_of_one_stream():
    """Classes that overlap, in features that repeat each other: without a pool far too sure."""
    rng = np.random.default_rng(0)

    def rows(n):
        y = rng.integers(0, 2, n)
        Z = rng.normal(size=(n, 2)) + y[:, None]
        return np.hstack([Z, Z + 0.1 * rng.normal(size=(n, 2))]), y

    (X, y), (new, y_new) = rows(3000), rows(3000)
    stream = OnlineKDEClassifier(covariance_type="diag").fit(X, y)
    merged = merge(shards_of(clone(stream), X, y, 8))
    of_merged, of_stream = (log_loss(y_new, m.predict_proba(new)) for m in (merged, stream))
    assert of_merged < of_stream + 0.02
    uncalibrated = clone(merged).set_params(calibrate=False).merge(merged)
    assert log_loss(y_new, uncalibrated.predict_proba(new)) > of_stream + 0.05


def test_classes_of_which_nothing_can_be_predicted():
    X, y = labelled(60)
    hole = np.full((1, 3), np.nan)
    waiting = [OnlineKDEClassifier().partial_fit(hole, [c], classes=[0, 1]) for c in (0, 1)]
    merged = merge(waiting)
    np.testing.assert_array_equal(merged.class_count_, [1.0, 1.0])
    fitted = OnlineKDEClassifier().fit(X, y)
    assert merged.merge(fitted).class_count_.sum() == 62.0
    assert np.isfinite(merged.predict_log_proba(X)).all()
    single = merge(OnlineKDEClassifier().fit(X[i : i + 1], y[i : i + 1]) for i in range(40))
    assert single.score(X[40:], y[40:]) > 0.7
    # Models without rows keep what their pools have learned.
    shared = fitted.without_rows(3)
    exponents = shared._calibration.pool.exponents
    np.testing.assert_allclose(
        merge([shared, shared])._calibration.pool.exponents, exponents, atol=1e-9
    )
