"""Histograms of single features, by which naive Bayes tells classes apart."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from marks import quick
from skokde import OnlineKDEClassifier, merge
from skokde._calibration_windows import first_window
from skokde._engine.covariance import STRUCTURES
from skokde._engine.histograms import (
    LEFT_AFTER_SAMPLE,
    LEFT_WITH_FOUND_MEMORY,
    N_BINS,
    N_HISTOGRAMS,
    N_LEVELS,
    PRIOR_COUNT,
    UNPARTED,
    Histograms,
    edges_between,
)
from skokde._engine.mixture import Mixture
from skokde._engine.state import Settings
from skokde._replay import N_KEPT

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))


def labelled(n=500, d=3, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, size=n)
    return rng.normal(size=(n, d)) + codes[:, None], codes, rng.choice([0.5, 1.0, 2.0], size=n)


def categorical(n, seed=0, tables_seed=5):
    """Eight features of five categories each, and classes in which these are more or less many."""
    rng, tables_rng = np.random.default_rng(seed), np.random.default_rng(tables_seed)
    tables = tables_rng.dirichlet(np.full(5, 0.7), size=(3, 8))
    y = rng.integers(0, 3, size=n)
    return np.array([[rng.choice(5, p=p) for p in tables[c]] for c in y], dtype=float), y


def zero_inflated(n, seed=0):
    """Lognormal features, of which many are zero."""
    rng, of_classes = np.random.default_rng(seed), np.random.default_rng(7)
    zeros, means = of_classes.uniform(0.3, 0.9, (3, 12)), of_classes.normal(size=(3, 12))
    y = rng.integers(0, 3, size=n)
    X = np.exp(means[y] + rng.normal(0.0, 0.7, (n, 12)))
    return X * (rng.random((n, 12)) > zeros[y]), y


def log_ratio_by_hand(counts, bin_, own_class, without=0.0):
    """Of the counts (n_classes, n_bins) of one feature, from the root to the bin."""
    first, last, total = 0, counts.shape[1], 0.0
    while last - first > 1:
        middle = (first + last) // 2
        child = slice(first, middle) if bin_ < middle else slice(middle, last)
        of_all = counts[:, first:last].sum()
        share = counts[:, child].sum() / of_all if of_all else 0.0
        if share:
            own = counts[own_class]
            left = max(own[child].sum() - without, 0.0)
            of_both = max(own[first:last].sum() - without, 0.0)
            probability = (left + PRIOR_COUNT * share) / (of_both + PRIOR_COUNT)
            total += np.log(probability / share)
        first, last = child.start, child.stop
    return total


def test_each_bin_has_about_as_many_samples():
    X, codes, counts = labelled(4000)
    histograms = Histograms.of_rows(X, codes, counts, 3)
    of_all = histograms.counts.sum(axis=1)
    np.testing.assert_allclose(of_all, counts.sum() / N_BINS, atol=2.5)
    assert (np.diff(histograms.edges) > 0.0).all()
    for feature in range(3):
        assert not np.isin(X[:, feature], histograms.edges[feature]).any()
    for code in range(3):
        of_class = histograms.counts[:, code].sum(axis=2)
        np.testing.assert_allclose(of_class, counts[codes == code].sum())


def test_each_of_a_few_values_has_a_bin_of_its_own():
    rng = np.random.default_rng(0)
    values = np.array([-3.0, 0.0, 1.0, 7.0])
    X = rng.choice(values, p=[0.05, 0.6, 0.3, 0.05], size=(300, 1))
    histograms = Histograms.of_rows(X, np.zeros(300, dtype=np.intp), np.ones(300), 1)
    of_bins = histograms.counts[0, 0, 0]
    there = of_bins[of_bins > 0.0]
    assert there.tolist() == [np.count_nonzero(value == X) for value in values]
    # What comes between two of them belongs to the nearer one.
    bins = np.searchsorted(histograms.edges[0], [-1.6, -1.4, 0.4, 0.6, 3.9, 4.1, 9.0])
    of_values = np.searchsorted(histograms.edges[0], values)
    assert bins.tolist() == of_values[[0, 1, 1, 2, 2, 3, 3]].tolist()


@pytest.mark.parametrize("without", [0.0, 1.0])
def test_log_ratios_are_those_of_a_polya_tree(without):
    X, codes, counts = labelled()
    histograms = Histograms.of_rows(X, codes, counts, 3)
    histograms.counts[0, 1, 0, 3:9] = 0.0
    histograms.counts[:, :, 1, 8:16] = 0.0  # which no class has
    of_bins = histograms.bin_log_ratios(without)
    for place in np.ndindex(of_bins.shape):
        memory, feature, bin_, code = place
        of_feature = histograms.counts[memory, :, feature]
        expected = log_ratio_by_hand(of_feature, bin_, code, without)
        assert of_bins[place] == pytest.approx(expected, abs=1e-12)
    # Of as many classes without any difference nothing is told.
    same = histograms._replace(counts=np.tile(histograms.counts[:, :1], (1, 3, 1, 1)))
    np.testing.assert_allclose(same.bin_log_ratios(), 0.0, atol=1e-12)
    empty = histograms._replace(counts=np.zeros_like(histograms.counts))
    assert not empty.bin_log_ratios(without).any()


def test_rows_do_not_count_themselves_and_what_is_missing_tells_nothing():
    X, codes, _ = labelled()
    histograms = Histograms.of_rows(X, codes, np.ones(len(X)), 3)
    histograms = histograms.with_short_memory(X[:100], codes[:100], np.ones(100))
    rows = X[:40].copy()
    rows[::3, 0] = np.nan
    rows[4] = np.nan
    own = np.where(np.arange(40) % 2, codes[:40], -1)
    logs = histograms.log_ratios(rows, own)
    assert logs.shape == (N_HISTOGRAMS, 40, 3)
    assert not logs[:, 4].any()
    for memory, number in np.ndindex(logs.shape[:2]):
        row, code, expected = rows[number], own[number], np.zeros(3)
        for feature, value in enumerate(row):
            if value == value:
                bin_ = np.searchsorted(histograms.edges[feature], value)
                for c in range(3):
                    of_feature = histograms.counts[memory, :, feature]
                    expected[c] += log_ratio_by_hand(of_feature, bin_, c, float(c == code))
        np.testing.assert_allclose(logs[memory, number], expected, atol=1e-12)
    for number in range(N_HISTOGRAMS):
        alone = histograms.of_memories(np.arange(N_HISTOGRAMS) == number)
        np.testing.assert_array_equal(alone.log_ratios(rows, own), logs[number][None])
    known = histograms.log_ratios(rows, of_bins=histograms.bin_log_ratios())
    np.testing.assert_array_equal(known, histograms.log_ratios(rows))


@given(cut=st.integers(0, 200), seed=st.integers(0, 5))
def test_rows_are_added_in_any_parts(cut, seed):
    X, codes, counts = labelled(200, seed=seed)
    X[seed::7, 1] = np.nan
    start = Histograms.of_rows(*labelled(80, seed=9), 3)
    at_once = start.with_rows(X, codes, counts)
    first = start.with_rows(X[:cut], codes[:cut], counts[:cut])
    then = first.with_rows(X[cut:], codes[cut:], counts[cut:])
    np.testing.assert_allclose(then.counts, at_once.counts, rtol=1e-12)
    repeated = start.with_rows(X, codes, 2.0 * counts).counts - start.counts
    np.testing.assert_allclose(repeated, 2.0 * (at_once.counts - start.counts), atol=1e-9)
    missing = np.isnan(X[:, 1])
    added = at_once.counts.sum(axis=(1, 3)) - start.counts.sum(axis=(1, 3))
    expected = [counts.sum(), counts[~missing].sum(), counts.sum()]
    np.testing.assert_allclose(added, [expected, expected])
    # What was there before fades.
    faded = start.with_rows(X, codes, counts, np.array([0.25, 0.5]))
    gone = np.array([0.75, 0.5])[:, None, None, None] * start.counts
    np.testing.assert_allclose(faded.counts, at_once.counts - gone, atol=1e-9)


def test_the_short_memory_may_have_other_rows():
    (X, codes, counts), (new, of, times) = labelled(), labelled(80, seed=1)
    before = Histograms.of_rows(X, codes, counts, 3)
    after = before.with_short_memory(new, of, times)
    np.testing.assert_array_equal(after.edges, before.edges)
    np.testing.assert_array_equal(after.counts[1], before.counts[1])
    of_new = Histograms.empty(before.edges, 3).with_rows(new, of, times)
    np.testing.assert_array_equal(after.counts[0], of_new.counts[0])


def test_classes_come_and_go():
    X, codes, counts = labelled()
    histograms = Histograms.of_rows(X, codes, counts, 3)
    grown = histograms.grown(np.array([0, 2, 3]), 5)
    assert not grown.counts[:, [1, 4]].any()
    back = grown.of_classes(np.array([0, 2, 3]))
    np.testing.assert_array_equal(back.counts, histograms.counts)
    # A class without a sample is as likely as all are together.
    np.testing.assert_array_equal(grown.log_ratios(X[:5])[..., [1, 4]], 0.0)
    logs = grown.log_ratios(X[:5])[..., [0, 2, 3]]
    np.testing.assert_array_equal(back.log_ratios(X[:5]), logs)


def test_components_stand_for_their_samples():
    X, codes, _ = labelled()
    mixtures = [
        Mixture.empty(3, STRUCTURES["full"])._replace(
            counts=np.ones(np.count_nonzero(codes == c)), means=X[codes == c]
        )
        for c in range(3)
    ]
    of_rows = Histograms.of_rows(X, codes, np.ones(len(X)), 4)
    of_mixtures = Histograms.of_mixtures([*mixtures, None])
    np.testing.assert_array_equal(of_mixtures.edges, of_rows.edges)
    np.testing.assert_array_equal(of_mixtures.counts, of_rows.counts)


def test_bins_fit_until_much_comes_where_they_part_nothing():
    X, codes, counts = labelled()
    histograms = Histograms.of_rows(X, codes, counts, 3)
    new, _, _ = labelled(seed=1)
    assert histograms.fits(new, counts)
    new[: int((UNPARTED - 0.1) * len(X)), 1] += 100.0
    assert histograms.fits(new, counts)
    new[: int((UNPARTED + 0.2) * len(X)), 1] += 100.0
    assert not histograms.fits(new, counts)
    # Many samples at one value no bins can part.
    X[:400, 1] = new[:400, 1] = 0.0
    histograms = Histograms.of_rows(X, codes, counts, 3)
    assert histograms.fits(new, counts)


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
def test_any_values(scale):
    X, codes, counts = labelled()
    X[:, 1] = 0.0  # constant
    X[:, 2] = np.nan
    histograms = Histograms.of_rows(scale * X, codes, counts, 3)
    assert np.isfinite(histograms.edges).all()
    np.testing.assert_allclose(
        histograms.counts, Histograms.of_rows(X, codes, counts, 3).counts, rtol=1e-12
    )
    logs = histograms.log_ratios(1e300 * np.sign(X))
    assert np.isfinite(logs).all()
    assert edges_between(X[:0], counts[:0]).shape == (3, 2**N_LEVELS - 1)


# ------------------------------------------------------------------------------- classifier


@pytest.mark.parametrize("rows", [categorical, zero_inflated])
@both_structures
def test_discrete_features_tell_classes_apart(covariance_type, rows, monkeypatch):
    X, y = rows(2300)
    new, of = X[300:], y[300:]
    losses = []
    for pooled in (True, False):
        monkeypatch.setattr(Settings, "pools_histograms", pooled)
        classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:300], y[:300])
        assert len(classifier.calibration_weights_["histograms"]) == pooled * N_HISTOGRAMS
        losses.append(log_loss(of, classifier.predict_proba(new)))
    assert losses[0] < 0.65 * losses[1]


def test_they_go_where_they_are_of_no_use():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=600)
    X = rng.normal(size=(600, 4))
    X[:, 1] += 2.0 * X[:, 0] + y  # neither feature tells by itself what both do
    classifier = OnlineKDEClassifier().fit(X, y)
    pool, _ = classifier._scorer().scored_pool()
    assert not pool.exponents[-N_HISTOGRAMS:].any()


def test_the_unit_does_not_matter():
    X, y = zero_inflated(500)
    for of_unit in (1.0, 2.0**-40, 2.0**40):
        histograms = OnlineKDEClassifier().fit(of_unit * X, y)._calibration.histograms
        if of_unit == 1.0:
            expected = histograms
        np.testing.assert_array_equal(histograms.counts, expected.counts)


def test_all_rows_are_in_them_as_far_as_they_are_not_forgotten():
    X, y = zero_inflated(2000)
    classifier = OnlineKDEClassifier()
    for n in (35, 100, 400, 2000):
        classifier.fit(X[:n], y[:n])
        histograms, pending = classifier._calibration.histograms, classifier._calibration.pending
        last = pending.start if pending is not None else classifier._calibration.refreshed
        before = Histograms.of_rows(X[:last], y[:last], np.ones(last), 3)
        totals, of_all = histograms.counts.sum(axis=3), before.counts.sum(axis=3)
        merged = any(e._mixture.n_compounds for e in classifier.estimators_)
        assert merged == (n > 100)
        np.testing.assert_allclose(totals[1], of_all[1])
        assert (totals[0] <= of_all[0] * (1.0 + 1e-12)).all()
        # The short one has what has been predicted, as far as that is kept.
        factor, n_predicted = LEFT_AFTER_SAMPLE[0], last - first_window(3)
        remembered = min(N_KEPT, (1.0 - factor**n_predicted) / (1.0 - factor))
        np.testing.assert_array_less(0.95 * remembered, totals[0].sum(axis=0))
        # Its bins were found when there were fewer, but have about as many.
        assert histograms.fits(X[:n], np.ones(n))


def test_bins_follow_rows_that_are_sorted_by_class():
    X, y = zero_inflated(1500)
    X += 20.0 * y[:, None]  # each class is beyond all bins before
    order = np.argsort(y, kind="stable")
    classifier = OnlineKDEClassifier().partial_fit(X[order], y[order], classes=[0, 1, 2])
    of_all = classifier._calibration.histograms.counts.sum(axis=1)
    assert (of_all.max(axis=2) < 0.75 * of_all.sum(axis=2)).all()


@pytest.mark.parametrize("factor", [1.0, 0.99, 0.9, "predictive"])
def test_the_short_memory_has_what_is_left_of_predicted_rows(factor):
    X, y, _ = labelled(60)
    calibration = OnlineKDEClassifier(forgetting_factor=factor).fit(X, y)._calibration
    n = len(calibration.replay.rows)
    assert n > 20
    left = {1.0: LEFT_AFTER_SAMPLE[0], "predictive": LEFT_WITH_FOUND_MEMORY[0]}.get(factor, factor)
    totals = calibration.histograms.counts[0].sum(axis=(0, 2))
    # Rows of a window, where some came since, are as new as its last one.
    np.testing.assert_allclose(totals, (1.0 - left**n) / (1.0 - left), rtol=1e-3)


@pytest.mark.parametrize("factor", [0.99, "predictive"])
def test_streams_that_forget(factor):
    X, y = categorical(1200)
    other, of = categorical(1200, seed=1, tables_seed=6)
    classifier = OnlineKDEClassifier(max_components=100, forgetting_factor=factor).fit(X, y)
    # Of eight features, in both memories.
    before = classifier._calibration.histograms.counts.sum(axis=(1, 2, 3)) / 8
    classifier.partial_fit(other, of)
    new, of_new = categorical(500, seed=2, tables_seed=6)
    assert classifier.score(new, of_new) > 0.85
    # Rows of a window are as new as its last one.
    if factor == "predictive":
        assert before[0] < 1.2 / (1.0 - LEFT_WITH_FOUND_MEMORY[0])
        assert before[1] > 2.0 * before[0]
    else:
        np.testing.assert_array_less(before, 1.2 / (1.0 - factor))


def test_merged_stored_and_without_rows():
    X, y = categorical(1600)
    new, of = categorical(1000, seed=1)
    parts = [OnlineKDEClassifier().fit(X[i::2], y[i::2]) for i in range(2)]
    merged = merge(parts)
    assert merged._calibration.histograms is not None
    assert log_loss(of, merged.predict_proba(new)) < 0.25
    loaded = pickle.loads(pickle.dumps(merged))
    np.testing.assert_array_equal(loaded.predict_proba(new), merged.predict_proba(new))
    anonymous = merged.without_rows()
    assert anonymous._calibration.histograms is None
    assert anonymous.calibration_weights_["histograms"].tolist() == N_HISTOGRAMS * [0.0]
    assert anonymous.score(new, of) > 0.6
    anonymous.partial_fit(X[:700], y[:700])
    assert anonymous._calibration.histograms is not None
    assert np.isfinite(anonymous.predict_log_proba(new)).all()
