"""The pool without short memories, beside the one that follows a stream."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._engine.experts import empty_state
from skokde._engine.learn import learn, recompressed
from skokde._engine.neighbors import N_VOTE_WIDTHS
from skokde._engine.pooling import MEMORY, PRIOR_PRECISION, LogLinearPool, learn_pool
from skokde._engine.steady_pool import (
    EVIDENCE_LEFT,
    EVIDENCE_OF_CHANGE,
    MOST_FORGOTTEN,
    SteadyPool,
)
from skokde._validation import check_settings

SHORT = np.array([False, True])


def pool(exponents, n_classes=2):
    return LogLinearPool.start(n_classes, np.array(exponents))


def predictions(right, n=40, seed=0):
    """What pools learn from, where one term or the other tells the classes, and noise does not."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, size=n)
    logs = rng.normal(size=(2, n, 2))
    logs[right, np.arange(n), codes] += 2.0
    return np.log([0.5, 0.5]), logs, codes, np.ones(n)


def log_likelihood(pool, log_prior, logs, codes, counts):
    log_p = pool.log_probabilities(np.exp(log_prior), logs)
    return counts @ log_p[np.arange(len(codes)), codes]


def streamed(X, y, block=8, **parameters):
    model = OnlineKDEClassifier(forgetting_factor="predictive", **parameters)
    for start in range(0, len(X), block):
        model.partial_fit(X[start : start + block], y[start : start + block], classes=np.unique(y))
    return model


def two_classes(n, seed=0, d=4):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size=n)
    return rng.normal(size=(n, d)) + 1.2 * y[:, None], y


# -------------------------------------------------------------------------------- the pool itself


def test_at_first_it_is_the_other_pool_without_short_memories():
    learned = learn_pool(pool([1.0, 0.5]), *predictions(1), 1e9)
    steady = SteadyPool.beside(learned, SHORT)
    assert steady.share == 0.5
    assert learned.exponents[1] > 0.1
    assert steady.pool.exponents[1] == 0.0
    others = np.ix_([0, 2, 3], [0, 2, 3])
    np.testing.assert_array_equal(steady.pool.precision[others], learned.precision[others])
    assert np.count_nonzero(steady.pool.precision[1]) == 1
    # The other weights make up for what it lacks, as far as they can.
    away = steady.pool.weights - learned.weights
    gradient = learned.precision @ away
    np.testing.assert_allclose(np.delete(gradient, 1), 0.0, atol=1e-9)


@pytest.mark.parametrize("right", [0, 1])
def test_the_share_follows_what_told_the_classes(right):
    following = learn_pool(pool([0.5, 0.5]), *predictions(right), 1e9)
    steady = SteadyPool.beside(following, SHORT)
    later = predictions(right, seed=1)
    learned = steady.learned(following, np.arange(2), *later, 1e9, SHORT)
    gain = log_likelihood(steady.pool, *later) - log_likelihood(following, *later)
    assert learned.log_odds == pytest.approx(EVIDENCE_LEFT**40 * gain, rel=1e-9)
    if right == 1:
        assert learned.share < 0.01
    assert learned.pool.exponents[1] == 0.0


def test_what_was_told_is_forgotten():
    steady = SteadyPool(pool([1.0, 0.0]), 5.0)
    same = pool([1.0, 0.0])
    learned = steady.learned(same, np.arange(2), *predictions(0, n=40), 1e9, SHORT)
    assert learned.log_odds == pytest.approx(5.0 * EVIDENCE_LEFT**40, rel=1e-12)


def test_it_remembers_as_many_predictions_as_there_are_samples():
    following = steady_alone = pool([1.0, 0.0])
    steady = SteadyPool.beside(following, SHORT)
    n = 100.0
    for seed in range(8):
        batch = predictions(0, seed=seed)
        steady = steady.learned(following, np.arange(2), *batch, n, SHORT)
        following = learn_pool(following, *batch, n)
        steady_alone = learn_pool(
            steady_alone, batch[0], batch[1] * [[[1.0]], [[0.0]]], *batch[2:], n / MEMORY
        )
    assert following.count == pytest.approx(MEMORY * n)
    assert steady.pool.count == pytest.approx(n)
    np.testing.assert_allclose(steady.pool.weights, steady_alone.weights, rtol=1e-9, atol=1e-12)


def test_the_average_is_a_geometric_mean_of_probabilities():
    following = learn_pool(pool([0.5, 0.5]), *predictions(1), 1e9)
    steady = SteadyPool.beside(following, SHORT)._replace(log_odds=0.7)
    mixed, share = steady.mixed_with(following), expit(0.7)
    log_prior, logs, *_ = predictions(0, seed=2)
    each = [p.logits(log_prior, logs) for p in (steady.pool, following, mixed)]
    own, other, together = (a - a[:, :1] for a in each)
    np.testing.assert_allclose(together, share * own + (1.0 - share) * other, atol=1e-12)
    assert mixed.count == following.count
    assert mixed.contamination == pytest.approx(following.contamination, rel=1e-9)


@pytest.mark.parametrize("log_odds", [-1e6, 1e6])
def test_all_may_speak_for_one_pool(log_odds):
    following = learn_pool(pool([0.5, 0.5]), *predictions(1), 1e9)
    steady = SteadyPool.beside(following, SHORT)._replace(log_odds=log_odds)
    only = steady.pool if log_odds > 0.0 else following
    np.testing.assert_array_equal(steady.mixed_with(following).weights, only.weights)


def test_classes_that_come_later():
    following = learn_pool(pool([0.5, 0.5]), *predictions(0), 1e9)
    steady = SteadyPool.beside(following, SHORT)._replace(log_odds=0.3)
    grown = steady.grown(np.array([2, 0]), 3)
    assert grown.log_odds == 0.3
    before = steady.pool.offsets
    np.testing.assert_array_equal(grown.pool.offsets, [before[1], 0.0, before[0]])
    assert grown.pool.precision[3, 3] == PRIOR_PRECISION  # nothing is known of the new one
    # Some of the classes are learned, and the others stay.
    learned = grown.learned(
        following.grown(np.array([2, 0]), 3), np.array([0, 2]), *predictions(0, seed=3), 1e9, SHORT
    )
    assert learned.pool.offsets[1] == 0.0
    assert learned.pool.count > grown.pool.count


# ------------------------------------------------------------------------------ in the classifier


@pytest.mark.parametrize(
    "parameters",
    [{}, {"covariance_type": "diag"}, {"bandwidth": "okde"}, {"covariance_type": "lowrank"}],
    ids=str,
)
def test_it_has_nothing_of_short_memories(parameters):
    X, y = two_classes(300)
    model = streamed(X, y, **parameters)
    settings = check_settings(model, X.shape[1])
    short, steady = settings.of_short_memories, model._calibration.steady
    assert len(short) == len(steady.pool.exponents) == len(model._calibration.pool.exponents)
    n_memories = len(settings.memories)
    n_votes = N_VOTE_WIDTHS * n_memories if settings.n_votes else 0
    assert short.sum() == n_memories + len(settings.discriminating) + n_votes
    assert (steady.pool.exponents[short] == 0.0).all()
    assert (steady.pool.exponents[~short] > 0.0).any()
    # By the names of what is told: of the short memories there is no other term.
    model._calibration = model._calibration._replace(steady=steady._replace(log_odds=1e9))
    told = model.calibration_weights_
    assert told["steady"] == 1.0
    assert not told["memory"].any()
    assert not told["discriminant"][1:].any()
    assert not told["neighbors"][settings.n_distances :].any()
    assert told["discriminant"][0] + told["density"].sum() + told["transformed"].sum() > 0.0


def test_where_nothing_is_forgotten_there_is_none():
    X, y = two_classes(300)
    model = OnlineKDEClassifier().fit(X, y)
    assert model._calibration.steady is None
    assert model.calibration_weights_["steady"] == model.calibration_weights_["forgotten"] == 0.0
    assert not check_settings(model, X.shape[1]).of_short_memories.any()


def test_it_is_trusted_until_the_classes_change():
    X, y = two_classes(1200)
    changed = np.where(np.arange(1200) < 800, y, 1 - y)
    model, shares = streamed(X[:200], changed[:200]), []
    for start in range(200, 1200, 8):
        model.partial_fit(X[start : start + 8], changed[start : start + 8])
        shares.append(model.calibration_weights_["steady"])
    before, after = shares[: (800 - 200) // 8], shares[(840 - 200) // 8 :]
    assert np.mean(before) > 0.5
    # Within forty rows of the change.
    assert np.max(after[:20]) < 0.05


def test_parameters_that_change_begin_with_new_pools():
    X, y = two_classes(300)
    model = streamed(X, y)
    model.set_params(forgetting_factor=1.0).partial_fit(X[:30], y[:30])
    assert model._calibration.steady is None
    model.set_params(forgetting_factor="predictive")
    assert model.calibration_weights_["steady"] == 0.0
    model.partial_fit(X[:100], y[:100])
    assert 0.0 < model.calibration_weights_["steady"] < 1.0


def test_models_of_formats_without_one_get_it_with_the_next_predictions():
    path = Path(__file__).parent / "stored" / "format-17-classifier-memory.pkl"
    with path.open("rb") as file:
        old = pickle.load(file)["estimator"]
    assert old._calibration.steady is None
    assert old.calibration_weights_["steady"] == 0.0
    X, y = two_classes(100, d=3)
    old.partial_fit(X, old.classes_[y])
    assert 0.0 < old.calibration_weights_["steady"] < 1.0
    short = check_settings(old, X.shape[1]).of_short_memories
    assert not old._calibration.steady.pool.exponents[short].any()


@pytest.mark.parametrize(
    "damage",
    [
        {"log_odds": np.nan},
        {"log_odds": "much"},
        {"pool": None},
        {"pool": {"exponents": np.ones(3)}},
    ],
    ids=str,
)
def test_damaged_ones_are_told(damage):
    X, y = two_classes(100)
    stored = streamed(X, y).__getstate__()
    steady = stored["_calibration"]["steady"] | damage
    with pytest.raises(ValueError, match="damaged"):
        OnlineKDEClassifier().__setstate__(
            stored | {"_calibration": stored["_calibration"] | {"steady": steady}}
        )


def test_where_nothing_changes_it_predicts_better(monkeypatch):
    losses = []
    for seed in range(6):
        X, y = two_classes(900, seed=seed)
        model = OnlineKDEClassifier(forgetting_factor="predictive").fit(X[:400], y[:400])
        for without in (False, True):
            with monkeypatch.context() as patch:
                if without:
                    patch.setattr(SteadyPool, "share", 0.0)
                log_p = copy.copy(model).predict_log_proba(X[400:])
            losses.append(-log_p[np.arange(500), y[400:]].mean())
    with_it, without_it = np.reshape(losses, (6, 2)).mean(axis=0)
    assert with_it < without_it - 0.002  # 0.0056 less


# ------------------------------------------------------------ what the model of all samples forgets


def held(model):
    """How many samples the densities of the classes stand for."""
    return sum(e._state.mixture.counts.sum() for e in model.estimators_)


def other_features(n, changed, seed=0):
    """Two classes by whether two of six features have one sign, later by two others."""
    X = np.random.default_rng(seed).normal(size=(n, 6))
    before, after = X[:, 0] * X[:, 1] > 0.0, X[:, 2] * X[:, 3] > 0.0
    return X, np.where(np.arange(n) < changed, before, after).astype(int)


def test_more_is_forgotten_the_more_speaks_for_short_memories():
    least, most = EVIDENCE_OF_CHANGE
    evidence = [1e6, most, 0.5 * (least + most), least, 0.0, -1e6]
    rates = [SteadyPool(pool([1.0, 0.0]), -nats).forgotten for nats in evidence]
    assert rates == pytest.approx(MOST_FORGOTTEN * np.array([1.0, 1.0, 0.5, 0.0, 0.0, 0.0]))


@pytest.mark.parametrize("covariance_type", ["full", "diag", "lowrank"])
def test_a_compression_forgets_what_was_there_at_the_last_one(covariance_type):
    X = np.random.default_rng(0).normal(size=(400, 3))
    settings = check_settings(OnlineKDEDensity(covariance_type=covariance_type), 3)
    forgetting = settings._replace(forgotten=0.01)
    state = learn(empty_state(3, settings), X[:300], np.ones(300), settings)
    n, counts = state.n_compressed, state.mixture.counts
    assert 0 < n < len(counts)
    new = counts[n:].sum()
    assert recompressed(state, settings).mixture.counts.sum() == pytest.approx(300.0, rel=1e-12)
    compressed = recompressed(state, forgetting).mixture.counts.sum()
    assert compressed == pytest.approx(0.99**new * (300.0 - new) + new, rel=1e-12)


def test_a_weight_of_many_samples_leaves_what_is_new():
    X = np.random.default_rng(0).normal(size=(400, 2))
    settings = check_settings(OnlineKDEDensity(), 2)._replace(forgotten=0.002)
    weights = np.where(np.arange(400) == 350, 1e9, 1.0)
    state = learn(empty_state(2, settings), X, weights, settings)
    assert np.isfinite(state.mixture.counts).all()
    assert state.mixture.counts.sum() == pytest.approx(1e9, rel=1e-6)


def test_what_has_changed_is_forgotten_and_nothing_else():
    changed = streamed(*other_features(1500, 500), covariance_type="diag")
    lasting = streamed(*two_classes(1500), covariance_type="diag")
    assert held(changed) < 0.9 * 1500
    assert held(lasting) > 0.999 * 1500
    assert changed.class_count_.sum() == 1500.0
    rates = [model.calibration_weights_["forgotten"] for model in (changed, lasting)]
    assert rates[1] == 0.0 < rates[0] <= MOST_FORGOTTEN


def test_what_has_changed_is_followed(monkeypatch):
    gains = []
    for seed in range(2):
        X, y = other_features(3000, 700, seed)
        losses = []
        for most in (0.0, MOST_FORGOTTEN):
            monkeypatch.setattr("skokde._engine.steady_pool.MOST_FORGOTTEN", most)
            model = streamed(X[:2000], y[:2000], covariance_type="diag")
            log_p = model.predict_log_proba(X[2000:])
            losses.append(-log_p[np.arange(1000), y[2000:]].mean())
        gains.append(losses[0] - losses[1])
    assert np.mean(gains) > 0.02


@pytest.mark.parametrize("memory", [1.0, "predictive"])
def test_nothing_is_forgotten_where_classes_are_not_predicted_any_more(memory):
    X, y = other_features(1200, 400)
    model = streamed(X[:900], y[:900], covariance_type="diag")
    assert model.calibration_weights_["forgotten"] > 0.0
    model.set_params(calibrate=False, bandwidth="okde", compression_threshold=0.1)
    model.set_params(forgetting_factor=memory)
    before = held(model)
    model.partial_fit(X[900:], y[900:])
    assert held(model) == pytest.approx(before + 300.0, rel=1e-12)


def test_it_is_forgotten_whatever_the_blocks_and_the_repetitions(assert_same_model):
    X, y = other_features(1000, 300)
    first = streamed(X, y, block=1000)
    assert held(first) < 950
    assert_same_model(first, streamed(X, y, block=17))
    twice = OnlineKDEClassifier(forgetting_factor="predictive")
    twice.partial_fit(X, y, classes=[0, 1], sample_weight=np.full(1000, 2.0))
    repeated = streamed(np.repeat(X, 2, axis=0), np.repeat(y, 2), block=64)
    assert held(twice) < 1900
    assert_same_model(twice, repeated)
