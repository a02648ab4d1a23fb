"""A sample of rows, and what its votes are worth where samples have been merged."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

import skokde._pooled_ratios as pooled_ratios
from skokde import OnlineKDEClassifier, merge
from skokde._replay import (
    MOST_NUMBERS_SAMPLED,
    MOST_SAMPLED,
    ReplayBuffer,
    SampledRows,
    uniform_draws,
)


def window(start, n, d=2, weights=None):
    """Rows by which their numbers are known, of two classes."""
    numbers = np.arange(start, start + n)
    rows = np.column_stack([numbers, *(d - 1) * [np.ones(n)]]).astype(float)
    weights = np.ones(n) if weights is None else weights
    return SampledRows.of_window(rows, numbers % 2, weights, start)


def assert_same(sample, other):
    for array, expected in zip(sample, other, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_all_rows_are_kept_while_there_is_room():
    sample = SampledRows.together([window(0, 3000), window(3000, MOST_SAMPLED - 3000)])
    np.testing.assert_array_equal(sample.rows[:, 0], np.arange(MOST_SAMPLED))
    np.testing.assert_array_equal(sample.counts, np.ones(MOST_SAMPLED))
    assert sample.threshold == 0.0


def test_draws_are_uniform():
    draws = uniform_draws(np.arange(100_000))
    assert ((draws > 0.0) & (draws <= 1.0)).all()
    assert len(np.unique(draws)) == len(draws)
    counts, _ = np.histogram(draws, np.linspace(0.0, 1.0, 101))
    assert abs(counts / 1000.0 - 1.0).max() < 0.15
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.01
    assert abs(np.corrcoef(draws, np.arange(len(draws)))[0, 1]) < 0.01


def test_a_sample_of_many_rows_is_as_they_are():
    n = 60_000
    sample = SampledRows.together([window(0, n)])
    assert len(sample.rows) == MOST_SAMPLED
    numbers = sample.rows[:, 0]
    assert (np.diff(numbers) > 0.0).all()
    counts, _ = np.histogram(numbers, np.linspace(0.0, n, 11))
    assert abs(counts / (MOST_SAMPLED / 10.0) - 1.0).max() < 0.2
    assert sample.codes.mean() == pytest.approx(0.5, abs=0.04)
    np.testing.assert_array_equal(sample.counts, np.ones(MOST_SAMPLED))
    assert sample.threshold * sample.counts.sum() == pytest.approx(n, rel=0.05)


def test_a_sample_does_not_depend_on_the_parts_in_which_rows_come():
    whole = SampledRows.together([window(0, 20_000)])
    sample, starts = window(0, 100), [*range(100, 20_000, 1990), 20_000]
    for start, end in pairwise(starts):
        sample = SampledRows.together([sample, window(start, end - start)])
    assert_same(sample, whole)
    halves = [SampledRows.together([window(a, 10_000)]) for a in (0, 10_000)]
    assert_same(SampledRows.together(halves), whole)


def test_heavy_rows_are_there_more_often():
    n = 30_000
    weights = np.where(np.arange(n) % 3 == 0, 4.0, 1.0)
    sample = SampledRows.together([window(0, n, weights=weights)])
    heavy = sample.weights == 4.0
    assert heavy.mean() == pytest.approx(4.0 / 6.0, abs=0.03)
    # What they stand for is what there was of either.
    stands_for = sample.threshold * sample.counts
    assert stands_for[heavy].sum() == pytest.approx(40_000, rel=0.05)
    assert stands_for[~heavy].sum() == pytest.approx(20_000, rel=0.05)
    huge = weights.copy()
    huge[7] = 1e6
    sample = SampledRows.together([window(0, n, weights=huge)])
    place = np.flatnonzero(sample.rows[:, 0] == 7.0)
    assert sample.counts[place] * sample.threshold == pytest.approx(1e6)


def test_what_is_forgotten_goes():
    old, new = SampledRows.together([window(0, 20_000)]), window(20_000, 20_000)
    sample = SampledRows.together([old.faded(0.25), new])
    assert np.mean(sample.rows[:, 0] < 20_000) == pytest.approx(0.2, abs=0.03)
    sample = SampledRows.together([old.faded(0.0), window(20_000, 10)])
    np.testing.assert_array_equal(sample.rows[:, 0], np.arange(20_000, 20_010))
    np.testing.assert_array_equal(sample.counts, np.ones(10))
    # What little weight is left is that, in samples.
    sample = SampledRows.together([window(0, 10).faded(0.5), window(10, 10)])
    np.testing.assert_array_equal(sample.counts, [*10 * [0.5], *10 * [1.0]])
    assert len(sample.faded(0.5).rows) == 20
    assert len(SampledRows.together([sample.faded(1e-4), window(20, 5)]).faded(0.9).rows) == 5
    assert not len(sample.faded(1e-310).rows)


def test_of_many_features_fewer_rows_are_kept():
    sample = SampledRows.together([window(0, 3000, d=400)])
    assert len(sample.rows) == MOST_NUMBERS_SAMPLED // 400


def test_rows_with_missing_values_are_not_in_it():
    X = np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, 5.0]])
    sample = SampledRows.of_window(X, np.array([0, 1, 1]), np.ones(3), 0)
    np.testing.assert_array_equal(sample.rows, X[[0, 2]])
    np.testing.assert_array_equal(sample.codes, [0, 1])
    np.testing.assert_array_equal(sample.draws, uniform_draws(np.array([0, 2])))


def test_classes_are_counted_anew():
    sample = window(0, 6)
    np.testing.assert_array_equal(sample.grown(np.array([1, 3])).codes, [1, 3, 1, 3, 1, 3])
    ones = sample.of_classes(np.array([1]))
    np.testing.assert_array_equal(ones.rows[:, 0], [1.0, 3.0, 5.0])
    np.testing.assert_array_equal(ones.codes, np.zeros(3))


def test_rows_of_a_sample_are_known():
    rows = np.array([[3.0, 1.0], [3.0, 2.0], [5.0, 1.0]])
    np.testing.assert_array_equal(window(0, 6).holds(rows), [True, False, True])
    assert window(0, 6).holds(rows[:0]).shape == (0,)


def interaction(n, seed=0, d=8):
    """Rows whose class two of the features tell together, and neither alone."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, d))
    return X, ((X[:, 0] > 0.5) ^ (X[:, 1] > 0.5)).astype(int)


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
def test_a_sample_tells_what_merging_blurs(monkeypatch, covariance_type, memory):
    (X, y), (new, y_new) = interaction(3000), interaction(2000, seed=1)
    parameters = {"covariance_type": covariance_type, "forgetting_factor": memory}
    model = OnlineKDEClassifier(max_components=120, **parameters)
    with_sample = model.fit(X, y)
    place = -3  # of the sample's votes, before histograms
    assert with_sample._calibration.pool.exponents[place] > 0.5
    loss = log_loss(y_new, with_sample.predict_proba(new))
    monkeypatch.setattr(pooled_ratios, "SHARE_MERGED", 1.0)
    without = OnlineKDEClassifier(max_components=120, **parameters).fit(X, y)
    assert without._calibration.pool.exponents[place] == pytest.approx(0.0, abs=1e-9)
    assert loss < 0.75 * log_loss(y_new, without.predict_proba(new))


def test_a_sample_does_not_vote_where_next_to_nothing_is_merged():
    X, y = interaction(500)
    model = OnlineKDEClassifier().fit(X, y)
    assert len(model._calibration.sample.rows) > 300
    scorer = model._scorer()
    assert not scorer.log_ratios_of_neighbors(X, scorer.settings.n_distances).any()


def test_a_sample_that_has_voted_goes_on_voting():
    # A few components stand for most of the samples, and each of the newest rows is one more.
    X, y = make_classification(
        1500, 8, n_informative=3, n_clusters_per_class=2, random_state=np.random.RandomState(1)
    )
    model, votes = OnlineKDEClassifier(shuffle=False, max_components=60), []
    for start in range(0, len(X), 20):
        block = slice(start, start + 20)
        model.partial_fit(X[block], y[block], classes=[0, 1])
        scorer = model._scorer()
        if scorer.settings.n_votes and model._calibration.sample is not None:
            ratios = scorer.log_ratios_of_neighbors(X[:5], scorer.settings.n_distances)
            votes.append(bool(ratios.any()))
    assert votes[-1]
    assert all(votes[votes.index(True) :])


def test_what_a_sample_has_is_as_the_stream_is(monkeypatch):
    monkeypatch.setattr("skokde._replay.MOST_SAMPLED", 128)
    X, y = interaction(1500)
    weights = np.random.default_rng(2).integers(1, 4, size=len(X))
    whole = OnlineKDEClassifier(shuffle=False, max_components=60)
    blocks = OnlineKDEClassifier(shuffle=False, max_components=60)
    repeated = OnlineKDEClassifier(shuffle=False, max_components=60)
    whole.partial_fit(X, y, classes=[0, 1], sample_weight=weights)
    for block in np.array_split(np.arange(len(X)), 37):
        blocks.partial_fit(X[block], y[block], classes=[0, 1], sample_weight=weights[block])
    repeated.partial_fit(np.repeat(X, weights, axis=0), np.repeat(y, weights), classes=[0, 1])
    assert_same(blocks._calibration.sample, whole._calibration.sample)
    assert_same(repeated._calibration.sample, whole._calibration.sample)
    assert len(whole._calibration.sample.rows) == 128
    np.testing.assert_array_equal(blocks.predict_proba(X), whole.predict_proba(X))


def test_with_forgetting_a_sample_is_of_the_newest(monkeypatch):
    monkeypatch.setattr("skokde._replay.MOST_SAMPLED", 128)
    X, y = interaction(3000)
    X[:, 7] = np.arange(3000.0)
    model = OnlineKDEClassifier(forgetting_factor=0.995, shuffle=False).fit(X, y)
    age = 3000.0 - model._calibration.sample.rows[:, 7]
    assert 100.0 < age.mean() < 500.0


def test_a_sample_is_merged_and_left_out():
    X, y = interaction(2400)
    labels = np.array(["a", "b"])[y]
    shards = [
        OnlineKDEClassifier(max_components=100).fit(X[rows], labels[rows])
        for rows in np.array_split(np.arange(len(X)), 4)
    ]
    shards[3] = OnlineKDEClassifier(max_components=100).fit(X[1800:], np.full(600, "c"))
    kept = sum(len(shard._calibration.sample.rows) for shard in shards)
    model = merge(shards)
    sample = model._calibration.sample
    assert kept <= len(sample.rows) <= len(X)  # windows that were open have been predicted
    expected = dict(zip(map(bytes, X), [*labels[:1800], *600 * ["c"]], strict=True))
    told = [expected[row.tobytes()] for row in sample.rows]
    np.testing.assert_array_equal(model.classes_[sample.codes], told)
    without = model.without_rows(5)
    assert without._calibration.sample is None
    assert model._calibration.pool.exponents[-3:-1].any()  # by narrow kernels and by wide ones
    assert (without._calibration.pool.exponents[-3:] == 0.0).all()
    assert np.isfinite(without.predict_log_proba(X)).all()
    without.partial_fit(X, labels)
    assert len(without._calibration.sample.rows) > 100


def test_rows_that_come_again_are_kept_once():
    rows = np.array([[1.0], [2.0], [1.0], [1.0], [3.0]])
    buffer = ReplayBuffer(rows, np.array([0, 0, 0, 1, 0]), np.arange(5.0), np.zeros((5, 1)))
    later = buffer.last(np.array([0, 1]))
    np.testing.assert_array_equal(buffer.without_repeated(later).counts, [0.0, 1.0, 2.0, 4.0])
    later = ReplayBuffer(rows[[0, 4]], np.zeros(2, dtype=int), np.ones(2), np.zeros((2, 1)))
    np.testing.assert_array_equal(buffer.without_repeated(later).counts, [0.0, 1.0, 3.0])


def redundant(n, seed):
    """Classes that overlap, in features that repeat each other."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    Z = rng.normal(size=(n, 2)) + y[:, None]
    return np.hstack([Z, Z + 0.1 * rng.normal(size=(n, 2))]), y


def test_merging_predicts_no_row_that_is_known_already():
    """Histograms knew rows twice that a window and a merge had predicted: they seemed too good."""
    losses = []
    for seed in range(3):
        (X, y), (new, y_new) = redundant(3000, seed), redundant(3000, seed + 100)
        stream = OnlineKDEClassifier(covariance_type="diag").fit(X, y)
        shards = [
            OnlineKDEClassifier(covariance_type="diag").fit(X[rows], y[rows])
            for rows in np.array_split(np.arange(len(X)), 8)
        ]
        merged = merge(shards)
        rows = merged._calibration.replay.rows
        assert len(np.unique(rows, axis=0)) == len(rows)
        losses.append([log_loss(y_new, model.predict_proba(new)) for model in (merged, stream)])
    of_merged, of_stream = np.mean(losses, axis=0)
    assert of_merged < of_stream + 0.012
