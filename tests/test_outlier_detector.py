"""The outlier detector: levels that hold, thresholds, blame, and what all estimators here do."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from sklearn import config_context
from sklearn.base import clone, is_outlier_detector
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import skokde._outliers
from marks import quick
from skokde import DegenerateDataWarning, OnlineKDEDensity, OnlineKDEOutlierDetector
from skokde._outliers import LEAST_HELD, LEVEL, LOWEST, MOST_HELD, Reference
from structures import STRUCTURES

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))

SETTINGS = {
    "defaults": {},
    "diag": {"covariance_type": "diag"},
    "memory": {"forgetting_factor": "predictive"},
    "forgetful": {"forgetting_factor": 0.98, "compression_threshold": 0.1, "bandwidth": "scott"},
    "picky": {"learn_flagged": False, "contamination": 0.1},
}
with_settings = pytest.mark.parametrize("settings", quick(SETTINGS, 2))


# In a tenth of the time of the defaults.
QUICK = {"compression_threshold": 0.1, "bandwidth": "silverman"}


@parametrize_with_checks(
    [
        OnlineKDEOutlierDetector(),
        OnlineKDEOutlierDetector(covariance_type="diag"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def stream(n=200, d=3, seed=0):
    """Rows of two clusters with some that repeat the one before, and weights, zero among them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 4.0 * rng.integers(0, 2, size=(n, 1))
    for i in range(20, n, 20):
        X[i] = X[i - 1]
    X[n // 2] *= 100.0
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], size=n)
    return X, weights


# ------------------------------------------------------------------------------------- levels


def clusters(n, rng):
    centers, sizes = rng.normal(0.0, 3.0, (3, 2)), rng.uniform(0.3, 1.5, 3)
    of = rng.integers(0, 3, n)
    return centers[of] + rng.normal(size=(n, 2)) * sizes[of, None]


def moving(n, rng):
    of, angle = rng.integers(0, 3, n), np.linspace(0.0, 4.0 * np.pi, n)[:, None]
    one, other = rng.normal(0.0, 3.0, (2, 3, 2))
    return np.cos(angle) * one[of] + np.sin(angle) * other[of] + rng.normal(0.0, 0.5, (n, 2))


def changed(n, rng):
    return np.concatenate([clusters(n // 2, rng), clusters(n - n // 2, rng)])


@with_settings
def test_learning_tells_the_p_values_before(assert_same_model, monkeypatch, settings):
    monkeypatch.setattr(skokde._outliers, "MOST_HELD", 90)
    monkeypatch.setattr(skokde._outliers, "BLOCK", 64)
    X, weights = stream()
    weights[0] = 1.0
    one_by_one = OnlineKDEOutlierDetector(**SETTINGS[settings])
    expected = np.where(weights > 0.0, 1.0, np.nan)
    for i in range(len(X)):
        if i and weights[i]:
            expected[i] = one_by_one.p_values(X[[i]])[0]
        one_by_one.partial_fit(X[[i]], sample_weight=weights[[i]])
    assert np.nanmin(expected) < 0.1
    detector, p_values = OnlineKDEOutlierDetector(**SETTINGS[settings]), []
    for part in (slice(0, 1), slice(1, 150), slice(150, None)):
        p_values.append(detector.partial_fit_p_values(X[part], sample_weight=weights[part]))
    np.testing.assert_array_equal(np.concatenate(p_values), expected)
    assert_same_model(detector, one_by_one)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "memory"),
    [(clusters, 1.0), (moving, "predictive"), (changed, "predictive")],
    ids=["stationary", "moving", "changed"],
)
def test_levels_hold(rows, memory):
    X = rows(10_000, np.random.default_rng(11))
    p = OnlineKDEOutlierDetector(forgetting_factor=memory).partial_fit_p_values(X)
    for level in (0.01, 0.05, 0.5):
        assert 0.8 * level <= np.mean(p <= level) <= 1.2 * level, level


def test_sudden_change_is_noticed_and_got_used_to():
    X = np.random.default_rng(0).normal(size=(1500, 2))
    X[1000:] += 8.0
    detector = OnlineKDEOutlierDetector(forgetting_factor="predictive", **QUICK)
    p = detector.partial_fit_p_values(X)
    assert (p[1000:1003] <= 0.01).all()
    assert np.mean(p[1100:] <= 0.01) <= 0.01


def test_discrete_data_keep_the_level_from_above():
    X = np.random.default_rng(1).poisson(2.0, size=(3000, 2)).astype(float)
    p = OnlineKDEOutlierDetector(**QUICK).partial_fit_p_values(X)
    for level in (0.01, 0.05):
        assert np.mean(p[500:] <= level) <= 1.2 * level


# ----------------------------------------------------------------------------------- p-values


# Not so close to each other that they are taken for the same.
log_densities = st.integers(-(10**5), 10**5).map(lambda n: n / 100) | st.just(LOWEST)


@given(
    st.lists(log_densities, min_size=2, max_size=60),
    st.lists(log_densities, min_size=1, max_size=20),
    st.sampled_from([1.0, 1e-6, 1e6]),
)
def test_p_values_are_ranks(log_densities, new, weight):
    log_densities, new = np.array(log_densities), np.sort(new)
    n = len(log_densities)
    reference = Reference(np.zeros((n, 1)), np.full(n, weight), log_densities)
    p, newer = reference.p_values(new), log_densities[n // 2 :]
    brute = [(1 + (newer <= score).sum()) / (1 + len(newer)) for score in new]
    np.testing.assert_allclose(p, brute, rtol=1e-9)
    assert (p > 0.0).all()
    assert (np.diff(p) >= 0.0).all()


@with_settings
def test_p_values_follow_scores(settings):
    X, weights = stream()
    detector = OnlineKDEOutlierDetector(**SETTINGS[settings]).fit(X, sample_weight=weights)
    rows = np.concatenate([X + 0.1, 3.0 * X + 0.1, 1e200 * np.ones((1, 3))])
    scores, p = detector.score_samples(rows), detector.p_values(rows)
    order = np.argsort(scores)
    assert (np.diff(p[order]) >= 0.0).all()
    assert 0.0 < p.min() < 0.05
    assert p.max() <= 1.0
    assert scores[-1] == LOWEST


def test_no_p_value_before_anything_was_predicted():
    detector = OnlineKDEOutlierDetector().partial_fit([[1.0, 2.0]])
    assert detector.p_values([[1.0, 2.0], [1e9, 0.0]]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("weight", [1e-6, 3.0])
def test_p_values_do_not_depend_on_the_unit_of_weights(weight):
    known, rows = np.random.default_rng(0).normal(size=(2, 100, 2))
    held = OnlineKDEOutlierDetector().fit(known)._reference
    for p in (held, held._replace(counts=weight * held.counts)):
        np.testing.assert_allclose(p.p_values(rows[:, 0]), held.p_values(rows[:, 0]), rtol=1e-9)


def test_weights_weigh_ranks():
    X, weights = stream()
    held = OnlineKDEOutlierDetector().fit(X, sample_weight=weights)._reference
    np.testing.assert_array_equal(held.counts, weights[weights > 0.0])
    np.testing.assert_array_equal(held.rows, X[weights > 0.0])
    n = len(held.counts) // 2
    known, counts = held.log_densities[n:], held.counts[n:]
    for score in np.quantile(known, [0.0, 0.1, 0.7]) + 0.01:
        expected = counts[known <= score].sum() + counts.mean()
        expected /= counts.sum() + counts.mean()
        assert held.p_values(np.array([score]))[0] == pytest.approx(expected)
    # A heavy row at the threshold is no outlier where it would make them too many.
    heavy = held._replace(counts=np.where(held.log_densities == known.min(), 50.0, 1.0))
    assert heavy.threshold(0.1) <= known.min()


def test_what_differs_by_rounding_is_a_tie():
    rows = np.zeros((10, 1))
    for score in (-1e6, -0.3, 0.0, 40.0):
        reference = Reference(rows, np.ones(10), np.full(10, score))
        below = [score - 1e-13 * max(abs(score), 1.0), score - 1e-6 * max(abs(score), 1.0)]
        assert reference.p_values(np.array(below)).tolist() == [1.0, pytest.approx(1 / 6)]


def test_rows_are_known_again_by_their_values():
    X = np.random.default_rng(0).integers(0, 3, size=(100, 2)).astype(float)
    detector = OnlineKDEOutlierDetector().fit(X)
    held = detector._reference
    for value in np.unique(X, axis=0):  # by the last of those that are equal
        last = np.flatnonzero(np.equal(X, value).all(axis=1))[-1]
        signed = np.where(value == 0.0, -0.0, value)
        assert detector.score_samples([value, signed]).tolist() == 2 * [held.log_densities[last]]
    signed = OnlineKDEOutlierDetector().fit(np.where(X == 0.0, -0.0, X))
    np.testing.assert_array_equal(signed.score_samples(X), detector.score_samples(X))


def test_a_constant_stream_tells_what_is_new():
    X = np.tile([[1.0, 2.0]], (300, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        detector = OnlineKDEOutlierDetector().fit(X)
    new, usual = detector.p_values([[1.5, 2.0], [1.0, 2.0]])
    assert new == pytest.approx(1 / 151)
    assert usual > 0.1
    assert detector.predict([[1.5, 2.0], [1.0, 2.0]]).tolist() == [-1, 1]


def test_what_is_stuck_is_got_used_to():
    X = np.random.default_rng(0).normal(size=(400, 2))
    detector = OnlineKDEOutlierDetector(forgetting_factor="predictive").fit(X)
    stuck, alarms = np.array([[4.0, -4.0]]), []
    for _ in range(20):
        alarms.append(detector.p_values(stuck)[0] <= 0.01)
        detector.partial_fit(stuck)
    assert alarms[0]
    assert not any(alarms[3:])


# --------------------------------------------------------------------------------- thresholds


def test_rows_that_were_learned_are_scored_as_they_were_before():
    X = np.random.default_rng(0).normal(size=(120, 8))
    detector, before = OnlineKDEOutlierDetector(), []
    for i, row in enumerate(X[:, None]):
        if i:
            before.append(detector.density_.score_samples(row)[0])
        detector.partial_fit(row)
    np.testing.assert_array_equal(detector.score_samples(X)[1:], before)
    learned = detector.density_.score_samples(X)
    assert np.mean(learned[1:] - before) > 1.0
    # Their p-values are those of new rows, which may repeat others: nothing has to be held for it.
    as_new = detector._reference.p_values(learned)
    np.testing.assert_array_equal(detector.p_values(X), as_new)
    # Others as the density finds them.
    np.testing.assert_array_equal(
        detector.score_samples(X + 0.1), detector.density_.score_samples(X + 0.1)
    )


@both_structures
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_a_share_of_the_last_rows_is_flagged(covariance_type, share):
    X = np.random.default_rng(0).normal(size=(400, 5))
    detector = OnlineKDEOutlierDetector(contamination=share, covariance_type=covariance_type)
    assert np.sum(detector.fit_predict(X) == -1) == 400 * share
    # And no more of others than chance makes of it, which learned rows would not tell.
    new = np.random.default_rng(1).normal(size=(2000, 5))
    assert np.mean(detector.predict(new) == -1) < share + 0.05


def test_auto_flags_what_p_values_flag():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(600, 2)), rng.normal(size=(3000, 2))
    detector = OnlineKDEOutlierDetector().fit(X)
    p = detector.p_values(new)
    np.testing.assert_array_equal(detector.predict(new) == -1, p <= LEVEL)
    assert (p <= LEVEL).any()


def test_a_row_at_the_threshold_is_an_inlier():
    X, _ = stream()
    detector = OnlineKDEOutlierDetector(contamination=0.1).fit(X)
    at = X[detector.score_samples(X) == detector.offset_]
    assert len(at)
    assert detector.decision_function(at).tolist() == [0.0] * len(at)
    assert (detector.predict(at) == 1).all()


def test_few_rows_flag_none():
    X = np.random.default_rng(0).normal(size=(LEAST_HELD, 2))
    detector = OnlineKDEOutlierDetector().fit(X[:-1])
    assert detector.offset_ == LOWEST
    assert (detector.predict(100.0 * X) == 1).all()
    detector.partial_fit(X[-1:])
    assert detector.offset_ > LOWEST
    assert (detector.predict(100.0 * X) == -1).all()


@given(
    st.lists(st.sampled_from([-3.0, -1.0, 0.0, 2.0]), min_size=LEAST_HELD, max_size=60),
    st.floats(0.01, 0.5),
)
def test_ties_at_the_threshold_are_all_inliers(log_densities, share):
    log_densities = np.array(log_densities)
    n = len(log_densities)
    reference = Reference(np.zeros((n, 1)), np.ones(n), log_densities)
    threshold = reference.threshold(share)
    assert threshold in log_densities
    assert np.sum(log_densities < threshold) <= share * n * (1.0 + 1e-9)
    assert np.sum(log_densities <= threshold) > share * n


@with_settings
def test_set_params_takes_effect_at_once(settings):
    X, _ = stream()
    detector = OnlineKDEOutlierDetector(**SETTINGS[settings]).fit(X)
    offsets = [detector.set_params(contamination=c).offset_ for c in ("auto", 0.02, 0.2, 0.5)]
    assert offsets[1:] == sorted(offsets[1:])
    assert len(set(offsets[1:])) == 3
    assert detector.set_params(contamination="auto").offset_ == offsets[0]
    detector.set_params(bandwidth=0.3, compression_threshold=0.1)
    wide = detector.score_samples(X[:5] + 1.0)
    assert (detector.set_params(bandwidth=0.1).score_samples(X[:5] + 1.0) != wide).all()
    detector.set_params(bandwidth=0.3)
    detector.partial_fit(X[:50] + 0.1)
    assert detector.density_.bandwidth == 0.3
    other = "full" if detector.covariance_type == "diag" else "diag"
    detector.set_params(covariance_type=other)
    with pytest.raises(ValueError, match="can't change"):
        detector.partial_fit(X)


@pytest.mark.parametrize("value", [0.0, 0.6, -0.1, "most", np.nan, None, True, [0.1]])
def test_wrong_contamination(value):
    X, _ = stream(50)
    detector = OnlineKDEOutlierDetector(contamination=value)
    with pytest.raises((TypeError, ValueError), match="contamination must be 'auto' or"):
        detector.fit(X)
    fitted = OnlineKDEOutlierDetector().fit(X).set_params(contamination=value)
    with pytest.raises((TypeError, ValueError), match="contamination must be 'auto' or"):
        fitted.predict(X)


# -------------------------------------------------------------------------- what is not learned


def test_flagged_rows_can_be_left_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    hit = rng.random(1000) < 0.1
    X[hit] = 7.0 + 0.1 * rng.normal(size=(hit.sum(), 2))
    X[:100], hit[:100] = rng.normal(size=(100, 2)), False
    there = np.array([[7.0, 7.0]])
    kept, cleaned = (
        OnlineKDEOutlierDetector(contamination=0.2, learn_flagged=learn).fit(X)
        for learn in (True, False)
    )
    assert kept.score_samples(there)[0] - cleaned.score_samples(there)[0] > 3.0
    assert kept.density_.n_samples_seen_ == 1000.0
    assert 700.0 < cleaned.density_.n_samples_seen_ < 900.0
    # All rows are held, learned or not: else a share of the others would be flagged in their place.
    assert len(cleaned._reference.counts) == len(kept._reference.counts) == 1000


def test_the_level_does_not_creep_where_flagged_rows_are_left_out():
    X = np.random.default_rng(0).normal(size=(3000, 2))
    detector = OnlineKDEOutlierDetector(contamination=0.05, learn_flagged=False, **QUICK).fit(X)
    assert 0.035 < 1.0 - detector.density_.n_samples_seen_ / len(X) < 0.065


def test_what_goes_on_to_come_is_learned_some_time():
    X = np.random.default_rng(0).normal(size=(1500, 2))
    X[500:] += 30.0
    detector = OnlineKDEOutlierDetector(learn_flagged=False, **QUICK).fit(X)
    assert np.mean(detector.predict(X[-200:] + 0.01) == 1) > 0.9


# -------------------------------------------------------------------------------------- blame


@with_settings
def test_blame_is_the_conditional_of_the_mixture(settings):
    X, _ = stream()
    detector = OnlineKDEOutlierDetector(**SETTINGS[settings]).fit(X)
    mixture, rows = detector.density_.distribution(), X[::10] + 0.1
    got = detector.explain(rows)
    assert got.shape == rows.shape
    for j in range(3):
        others = [k for k in range(3) if k != j]
        family = mixture.conditional(others, rows[:, others])
        np.testing.assert_allclose(got[:, j], family.logpdf(rows[:, [j]]), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("covariance_type", STRUCTURES)
def test_blame_of_few_rows_is_that_of_many(covariance_type, monkeypatch):
    """Of few rows it comes from precision matrices, of many from marginals."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 12)) @ rng.normal(size=(12, 12)) + 5.0 * rng.integers(
        2, size=(300, 1)
    )
    detector = OnlineKDEOutlierDetector(
        covariance_type=covariance_type, forgetting_factor="predictive"
    ).fit(X)
    rows = X[:10] + 0.1
    rows[0, 3], rows[1] = 1e4, 1e12
    few = detector.explain(rows)
    monkeypatch.setattr("skokde._density.MARGINALS_PAY", np.inf)
    many = detector.explain(rows)
    assert not np.array_equal(few, many)
    # Far out a rounding of the marginals' factors is magnified.
    near = np.arange(10) != 1
    np.testing.assert_allclose(few[near], many[near], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(few[1], many[1], rtol=1e-5)
    assert few[0].argmin() == 3


def test_blame_by_numerical_integration():
    X = np.random.default_rng(0).normal(size=(150, 2)) @ [[1.0, 0.8], [0.0, 0.5]]
    detector = OnlineKDEOutlierDetector(**QUICK).fit(X)
    for row in ([0.0, 0.0], [1.0, -1.0], [2.5, 0.3]):

        def density(x, j, row=row):
            moved = np.array([row], dtype=float)
            moved[0, j] = x
            return np.exp(detector.density_.score_samples(moved)[0])

        for j in range(2):
            total, _ = quad(density, -12.0, 12.0, args=(j,), points=[row[j]], limit=200)
            expected = np.log(density(row[j], j) / total)
            assert detector.explain([row])[0, j] == pytest.approx(expected, abs=1e-4)


def test_blame_of_the_feature_that_is_wrong():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4))
    X /= X.std(axis=0)
    detector = OnlineKDEOutlierDetector().fit(X)
    wrong = X[:40].copy()
    at = rng.integers(0, 4, 40)
    wrong[np.arange(40), at] += 8.0
    assert np.mean(detector.explain(wrong).argmin(axis=1) == at) > 0.8


@both_structures
def test_blame_of_a_single_feature_is_the_log_density(covariance_type):
    X = np.random.default_rng(0).normal(size=(100, 1))
    detector = OnlineKDEOutlierDetector(covariance_type=covariance_type).fit(X)
    expected = detector.density_.score_samples(X)
    np.testing.assert_allclose(detector.explain(X)[:, 0], expected, rtol=1e-12, atol=1e-12)


def test_blame_is_never_nan():
    X, _ = stream()
    detector = OnlineKDEOutlierDetector().fit(X)
    rows = np.array([[1e200, 0.0, 0.0], [1e200, 1e200, 0.0], [1e300] * 3, [1e12, 0.0, 0.0]])
    blame = detector.explain(rows)
    assert not np.isnan(blame).any()
    assert blame[0].argmin() == blame[3].argmin() == 0


# ------------------------------------------------------------------- what all estimators here do


@with_settings
def test_blocks_make_no_difference(assert_same_model, settings):
    X, weights = stream(120)
    whole = OnlineKDEOutlierDetector(**SETTINGS[settings]).fit(X, sample_weight=weights)
    rng = np.random.default_rng(0)
    for cuts in ([], [1], [119], [60, 61], *(rng.integers(1, 120, size=n) for n in (2, 6))):
        cut = OnlineKDEOutlierDetector(**SETTINGS[settings])
        for part in np.split(np.arange(120), np.unique(np.array(cuts, dtype=int))):
            cut.partial_fit(X[part], sample_weight=weights[part])
            if cut.__sklearn_is_fitted__():  # what is asked in between makes none either
                cut.predict(X[:3])
                cut.p_values(X[3:4])
        assert_same_model(cut, whole)


def test_rows_one_by_one_and_long_blocks(assert_same_model, monkeypatch):
    X, _ = stream(150)
    monkeypatch.setattr(skokde._outliers, "MOST_HELD", 60)
    whole = OnlineKDEOutlierDetector(learn_flagged=False).fit(X)
    monkeypatch.setattr(skokde._outliers, "BLOCK", 7)
    in_blocks = OnlineKDEOutlierDetector(learn_flagged=False).fit(X)
    one_by_one = OnlineKDEOutlierDetector(learn_flagged=False)
    for row in X[:, None]:
        one_by_one.partial_fit(row)
    assert_same_model(whole, in_blocks)
    assert_same_model(whole, one_by_one)
    assert len(whole._reference.counts) == 60
    np.testing.assert_array_equal(whole._reference.rows[-1], X[-1])


def test_the_density_is_that_of_the_rows_alone(assert_same_model):
    X, weights = stream()
    for memory in (1.0, "predictive"):
        detector = OnlineKDEOutlierDetector(forgetting_factor=memory).fit(X, sample_weight=weights)
        alone = OnlineKDEDensity(forgetting_factor=memory).fit(X, sample_weight=weights)
        assert_same_model(detector.density_, alone)


@with_settings
def test_stored_and_restored(assert_same_model, settings):
    X, weights = stream()
    for n in (1, 2, 40, 200):
        original = OnlineKDEOutlierDetector(**SETTINGS[settings])
        original.fit(X[:n], sample_weight=weights[:n] + 0.5)
        back = pickle.loads(pickle.dumps(original))
        assert_same_model(back, original)
        assert back.offset_ == original.offset_
        np.testing.assert_array_equal(back.p_values(X), original.p_values(X))
        for detector in (back, original):
            detector.partial_fit(X[n - 1 :] + 0.0)
        assert_same_model(back, original)


def test_nothing_of_the_engine_is_stored():
    X, _ = stream(60)
    state = OnlineKDEOutlierDetector().fit(X).__getstate__()
    assert type(state["_reference"]) is dict
    assert {type(v) for v in state["_reference"].values()} == {np.ndarray}
    assert "_snapshot" not in state


DAMAGED = {
    "rows": [None, "text", np.zeros((3, 3)), np.zeros((60, 2)), np.full((60, 3), np.nan)],
    "counts": [None, 7.5, np.zeros(60), -np.ones(60), np.ones(59), np.full(60, np.inf)],
    "log_densities": [
        None,
        [1.0],
        np.zeros(60, dtype=np.float32),
        np.full(60, np.nan),
        np.full(60, np.inf),
        np.full(60, -np.inf),
        np.append(np.zeros(59), np.inf),
    ],
}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, vs in DAMAGED.items() for v in vs])
def test_damage_is_found(name, value):
    X = np.random.default_rng(0).normal(size=(60, 3))
    state = copy.deepcopy(OnlineKDEOutlierDetector().fit(X).__getstate__())
    state["_reference"][name] = value
    with pytest.raises(ValueError, match=r"stored .* damaged"):
        OnlineKDEOutlierDetector().__setstate__(state)


def test_other_damage_is_found():
    X = np.random.default_rng(0).normal(size=(60, 3))
    good = OnlineKDEOutlierDetector().fit(X).__getstate__()
    other = OnlineKDEDensity().fit(X[:, :2])
    too_many = {
        "rows": np.zeros((MOST_HELD + 1, 3)),
        "counts": np.ones(MOST_HELD + 1),
        "log_densities": np.zeros(MOST_HELD + 1),
    }
    for name, value in [
        ("_reference", None),
        ("_reference", {}),
        ("_reference", too_many),
        ("density_", None),
        ("density_", other),
        ("density_", OnlineKDEOutlierDetector()),
        ("_format", 99),
    ]:
        with pytest.raises(ValueError, match=r"damaged|newer"):
            OnlineKDEOutlierDetector().__setstate__(good | {name: value})
    without = {name: value for name, value in good.items() if name != "_reference"}
    with pytest.raises(ValueError, match="damaged"):
        OnlineKDEOutlierDetector().__setstate__(without)


@pytest.mark.parametrize("method", ["fit", "partial_fit", "partial_fit_p_values"])
@pytest.mark.parametrize("after", [0, 1, 17])
def test_a_call_that_raises_leaves_all_as_it_was(state_of, monkeypatch, method, after):
    X, _ = stream()
    detector = OnlineKDEOutlierDetector().fit(X[:100])
    before, held, calls = state_of(detector), dict(vars(detector)), [0]
    scores = detector.score_samples(X)
    learn = OnlineKDEDensity._learn_complete

    def stops(self, *args):
        calls[0] += 1
        if calls[0] > after:
            raise KeyboardInterrupt
        return learn(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(OnlineKDEDensity, "_learn_complete", stops)
        with pytest.raises(KeyboardInterrupt):
            getattr(detector, method)(X[100:])
    assert vars(detector).keys() == held.keys()
    assert all(vars(detector)[name] is held[name] for name in held)
    assert state_of(detector) == before
    np.testing.assert_array_equal(detector.score_samples(X), scores)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[0.0, np.nan, 1.0]], r"contains NaN.*OnlineKDEImputer"),
        ([[0.0, np.inf, 1.0]], "infinity"),
        ([[0.0, 1e200, 1.0]], "Values beyond"),
        ([[0.0, 1.0]], "2 features"),
        (np.ma.masked_greater([[0.0, 1.0, 2.0]], 1.5), "masked"),
    ],
)
def test_bad_rows_are_refused(state_of, X, message):
    detector = OnlineKDEOutlierDetector().fit(stream()[0])
    before = state_of(detector)
    with pytest.raises(ValueError, match=message):
        detector.partial_fit(X)
    assert state_of(detector) == before


@pytest.mark.parametrize(
    "bad",
    [
        {"learn_flagged": 1},
        {"n_jobs": "all"},
        {"bandwidth": -1.0},
        {"forgetting_factor": 2.0},
        {"covariance_type": "tied"},
    ],
    ids=str,
)
def test_bad_parameters_are_refused(state_of, bad):
    X, _ = stream(60)
    detector = OnlineKDEOutlierDetector().fit(X)
    before = state_of(detector)
    for method in (detector.set_params(**bad).fit, detector.partial_fit):
        with pytest.raises((TypeError, ValueError), match=next(iter(bad))):
            method(X)
    assert state_of(detector) == before


def test_bad_weights_are_refused():
    X, _ = stream(60)
    detector = OnlineKDEOutlierDetector()
    with pytest.raises(ValueError, match="nothing to fit"):
        detector.fit(X, sample_weight=np.zeros(60))
    with pytest.raises(ValueError, match="Negative"):
        detector.fit(X, sample_weight=-np.ones(60))
    detector.partial_fit(X, sample_weight=np.zeros(60))
    with pytest.raises(NotFittedError):
        detector.predict(X)
    detector.partial_fit(X)
    assert detector.density_.n_samples_seen_ == 60.0


def test_before_fit():
    X, detector = np.zeros((1, 2)), OnlineKDEOutlierDetector()
    for method in ("predict", "score_samples", "decision_function", "p_values", "explain"):
        with pytest.raises(NotFittedError):
            getattr(detector, method)(X)
    with pytest.raises(AttributeError, match="offset_"):
        detector.offset_  # noqa: B018
    assert not hasattr(detector, "offset_")


def test_fit_forgets(assert_same_model):
    X, _ = stream(120)
    used = OnlineKDEOutlierDetector().fit(100.0 + X[:, :2]).fit(X)
    assert_same_model(used, OnlineKDEOutlierDetector().fit(X))
    assert vars(clone(used)).keys() == used.get_params().keys()


def test_asking_writes_nothing(monkeypatch):
    X, _ = stream(120)
    detector = OnlineKDEOutlierDetector(contamination=0.1).fit(X)
    before = pickle.dumps(detector)

    def refuse(self, name, value):
        raise AssertionError(f"{name} was written")

    with monkeypatch.context() as patched:
        patched.setattr(OnlineKDEOutlierDetector, "__setattr__", refuse)
        for method in ("predict", "score_samples", "decision_function", "p_values", "explain"):
            getattr(detector, method)(X)
        assert detector.offset_ < 0.0
    assert pickle.dumps(detector) == before


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library):
    frames = pytest.importorskip(library)
    X, _ = stream(100)
    frame = frames.DataFrame({name: X[:, j] for j, name in enumerate("abc")})
    detector = OnlineKDEOutlierDetector().fit(frame)
    plain = OnlineKDEOutlierDetector().fit(X)
    assert detector.feature_names_in_.tolist() == ["a", "b", "c"]
    for method in ("predict", "score_samples", "p_values", "explain"):
        np.testing.assert_array_equal(getattr(detector, method)(frame), getattr(plain, method)(X))
    with pytest.raises(ValueError, match="feature names"):
        detector.partial_fit(frame[["c", "b", "a"]])
    # The density knows them, too.
    assert detector.density_.distribution().feature_names == ("a", "b", "c")


def test_n_jobs_makes_no_difference(assert_same_model):
    X, _ = stream()
    one, two = (OnlineKDEOutlierDetector(n_jobs=n).fit(X) for n in (None, 2))
    assert_same_model(one, two)
    rows = np.tile(X, (30, 1)) + 0.1
    np.testing.assert_array_equal(one.explain(rows), two.explain(rows))


def test_in_a_pipeline_and_with_routing():
    X, weights = np.random.default_rng(0).normal(size=(200, 3)), stream()[1]
    pipeline = make_pipeline(StandardScaler(), OnlineKDEOutlierDetector(contamination=0.1))
    assert is_outlier_detector(pipeline)
    assert np.sum(pipeline.fit_predict(X) == -1) == pytest.approx(20, abs=1)
    with config_context(enable_metadata_routing=True):
        detector = OnlineKDEOutlierDetector().set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        routed = make_pipeline(scaler, detector).fit(X, sample_weight=weights)
    assert routed[-1].density_.n_samples_seen_ == weights.sum()


def test_finds_outliers():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1000, 3)) @ rng.normal(size=(3, 3)), rng.random(1000) < 0.03
    X[y] = rng.uniform(-6.0, 6.0, (y.sum(), 3))
    detector = OnlineKDEOutlierDetector().fit(X[:500])
    assert roc_auc_score(y[500:], -detector.score_samples(X[500:])) > 0.9


# ----------------------------------------------------------------------------------- degenerate


def check_sane(detector, X):
    for method in ("score_samples", "decision_function", "p_values", "explain"):
        assert not np.isnan(getattr(detector, method)(X)).any(), method
    assert np.isin(detector.predict(X), [-1, 1]).all()
    assert np.isfinite(detector.offset_)


@both_structures
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_scales(covariance_type, scale):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(2, 200, 2))
    new[:10] *= 10.0
    one = OnlineKDEOutlierDetector(covariance_type=covariance_type).fit(X)
    scaled = OnlineKDEOutlierDetector(covariance_type=covariance_type).fit(scale * X)
    check_sane(scaled, scale * new)
    np.testing.assert_array_equal(scaled.predict(scale * new), one.predict(new))
    np.testing.assert_allclose(scaled.p_values(scale * new), one.p_values(new), atol=0.011)


@both_structures
@pytest.mark.parametrize("n", [1, 2, 5, 31, 80])
@pytest.mark.parametrize("kind", ["one row", "constant feature", "all equal", "two values", "line"])
def test_degenerate_streams(covariance_type, kind, n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    if kind == "one row":
        X = X[:1]
    elif kind == "constant feature":
        X[:, 1] = 7.0
    elif kind == "all equal":
        X = np.tile(X[:1], (n, 1))
    elif kind == "two values":
        X = rng.integers(0, 2, size=(n, 3)).astype(float)
    else:
        X[:, 1] = 2.0 * X[:, 0]
    for contamination in ("auto", 0.2):
        detector = OnlineKDEOutlierDetector(
            covariance_type=covariance_type, contamination=contamination
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateDataWarning)
            detector.fit(X)
        check_sane(detector, np.concatenate([X, X + 1.0, [[1e9, 0.0, -1e9]]]))


def test_the_warning_is_of_the_users_line():
    X = np.random.default_rng(0).normal(size=(40, 2))
    X[:, 1] = 1.0
    frame = pd.DataFrame(X, columns=["moves", "stuck"])
    with pytest.warns(DegenerateDataWarning, match="stuck") as seen:
        OnlineKDEOutlierDetector().fit(frame)
    assert [warning.filename for warning in seen] == [__file__]
    for method in ("partial_fit", "partial_fit_p_values"):
        detector = OnlineKDEOutlierDetector().fit(X[:5])
        with pytest.warns(DegenerateDataWarning) as seen:
            getattr(detector, method)(X[5:])
        assert [warning.filename for warning in seen] == [__file__]
