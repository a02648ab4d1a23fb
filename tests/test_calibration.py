"""Probabilities calibrated on the stream: rows are predicted before they are learned."""

import copy
import pickle
from itertools import pairwise
from math import ceil, sqrt

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss

import skokde._density
import twins
from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._calibration import Calibration, PendingBatch
from skokde._calibration_windows import (
    LEAST_BETWEEN,
    LONGEST_WINDOW,
    MANY_ROWS,
    SHARE_BETWEEN,
    between,
    first_window,
)
from skokde._engine.class_density import build_class_density
from skokde._engine.discriminants import Discriminants
from skokde._engine.estimates import reference_part
from skokde._engine.feature_weights import learn_feature_weights
from skokde._engine.histograms import LEFT_AFTER_SAMPLE, Histograms
from skokde._engine.neighbors import NeighborMetric, Neighbors
from skokde._engine.pooling import (
    AS_IF_TOLD_APART,
    FARTHEST_CLASS,
    LogLinearPool,
    learn_pool,
)
from skokde._engine.state import Settings, State
from skokde._engine.transformation import Transformation
from skokde._pooled_ratios import SHARE_MERGED
from skokde._replay import N_KEPT, ReplayBuffer, class_rebalanced
from skokde._validation import check_settings

pytestmark = pytest.mark.thorough

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))


def stream(n=400, d=2, n_classes=3, *, seed=0, apart=2.0):
    """Rows of overlapping classes, in random order."""
    rng = np.random.default_rng([seed, d, n_classes])
    y = rng.integers(n_classes, size=n)
    y[:n_classes] = np.arange(n_classes)
    centers = apart * rng.normal(size=(n_classes, d))
    return centers[y] + rng.normal(size=(n, d)), y


def learned(X, y, size=None, *, classes=None, weights=None, **parameters):
    """In blocks of `size` rows."""
    classifier = OnlineKDEClassifier(**parameters)
    for start in range(0, len(X), size or len(X)):
        block = slice(start, start + (size or len(X)))
        classifier.partial_fit(
            X[block],
            y[block],
            classes=classes,
            sample_weight=None if weights is None else weights[block],
        )
    return classifier


@pytest.mark.parametrize("forgetting_factor", [1.0, "predictive"])
@both_structures
def test_rows_that_are_predicted_before_they_are_learned(covariance_type, forgetting_factor):
    parameters = {"covariance_type": covariance_type, "forgetting_factor": forgetting_factor}
    X, y = stream(160, d=3)
    followed = OnlineKDEClassifier(**parameters)
    for i in range(len(X)):
        followed.partial_fit(X[[i]], y[[i]], classes=[0, 1, 2])
        # Alone, each row is scored by another way than in a block.
        alone = [followed.predict_proba(X[[j]])[0] for j in (i, (i + 1) % len(X))]
        together = followed.predict_proba(X[[i, (i + 1) % len(X)]])
        np.testing.assert_allclose(alone, together, rtol=1e-11)
    # What the predictions left behind is used for the calibration, and makes no difference to it.
    assert pickle.dumps(followed) == pickle.dumps(learned(X, y, classes=[0, 1, 2], **parameters))


# --------------------------------------------------------------------- checkpoints and windows


def schedule(n, n_classes):
    """Windows as the documentation has them: (first row, end), the last one cut at n or not."""
    windows, start = [], first_window(n_classes)
    while start < n:
        length = min(max(LEAST_BETWEEN, int(SHARE_BETWEEN * start)), LONGEST_WINDOW)
        windows.append((start, start + length))
        start += int(length * max(1.0, sqrt(start / MANY_ROWS)))
    return windows


def settings_of(model, d=2):
    return check_settings(model, d)


def test_between_checkpoints():
    settings = settings_of(OnlineKDEClassifier())
    positions = (1, 60, 99, 100, 1000, 2000, 8000)
    assert [between(n, settings) for n in positions] == [12, 12, 19, 20, 200, 256, 512]
    # By the rows that are not forgotten.
    for factor, lengths in ((0.97, [12] * 7), (0.999, [12, 12, 19, 20, 199, 199, 199])):
        settings = settings_of(OnlineKDEClassifier(forgetting_factor=factor))
        assert [between(n, settings) for n in positions] == lengths
    # Short windows, one after the other, of which later every second one is left out.
    settings = settings_of(OnlineKDEClassifier(forgetting_factor="predictive"))
    assert [between(n, settings) for n in (1, 60, 499, 500, 10**6)] == [4, 4, 4, 8, 8]


@pytest.mark.parametrize("n_classes", [1, 2, 4])
def test_windows_are_where_they_are_due(n_classes):
    n = 330
    X, y = stream(n, n_classes=n_classes)
    classifier, held, starts, states = OnlineKDEClassifier(), [], [], {}
    for i in range(n):
        states[i] = [e._state for e in classifier.estimators_] if i >= n_classes else None
        classifier.partial_fit(X[[i]], y[[i]], classes=range(n_classes))
        calibration = classifier._calibration
        assert calibration.position == i + 1
        window = calibration.pending
        if window is not None:
            held.append(i)
            starts.append(window.start)
            np.testing.assert_array_equal(window.rows, X[window.start : i + 1])
            np.testing.assert_array_equal(window.codes, y[window.start : i + 1])
            np.testing.assert_array_equal(window.counts, 1.0)
            # The densities are those before the window, which are not touched since.
            for state, before in zip(window.states, states[window.start], strict=True):
                for ours, theirs in zip(state.mixture, before.mixture, strict=True):
                    np.testing.assert_array_equal(ours, theirs)
            counts = np.bincount(y[: window.start], minlength=n_classes)
            np.testing.assert_array_equal(window.class_count, counts)
    windows = schedule(n, n_classes)
    assert len(windows) > 10
    expected = [(i, start) for start, end in windows for i in range(start, min(end, n))]
    assert list(zip(held, starts, strict=True)) == expected


def test_long_windows_leave_gaps():
    # Only the positions: the densities are of one location each, so that this is quick.
    n = 45_000
    X = np.resize([[0.0], [1.0], [2.0], [3.0]], (n, 1))
    y = np.resize([0, 1], n)
    classifier = OnlineKDEClassifier(compression_threshold=0.0)
    rows = []
    for start in range(0, n, 20):
        classifier.partial_fit(X[start : start + 20], y[start : start + 20])
        window = classifier._calibration.pending
        rows.append(0 if window is None else len(window.rows))
    assert LONGEST_WINDOW - 20 < max(rows) <= LONGEST_WINDOW
    windows = schedule(n, 2)
    for number, i in enumerate(range(19, n, 20)):
        inside = (i + 1 - start for start, end in windows if start < i + 1 <= end)
        assert rows[number] == next(inside, 0)
    gaps = {start: later - end for (start, end), (later, _) in pairwise(windows)}
    assert {gap for start, gap in gaps.items() if start < MANY_ROWS} == {0}
    assert min(gap for start, gap in gaps.items() if start > MANY_ROWS) > 0
    assert windows[-1][1] - windows[-1][0] == LONGEST_WINDOW


def discriminants_of(X, y, states, settings, shared, *, of_all=False):
    """They follow the rows as kernels do, so that they lack the newest ones, or are of all."""
    counts = [round(reference_part(state, settings).counts.sum()) for state in states]
    if of_all:
        counts = np.bincount(y).tolist()
    moments = []
    for c, n in enumerate(counts):
        rows = X[y == c][:n]
        covariance = np.cov(rows.T, bias=True) if shared.ndim == 2 else rows.var(axis=0)
        moments.append([(float(n), rows.mean(axis=0), covariance)])
    return Discriminants.of(moments, shared, settings.structure)


def trust(samples_of_a_class, d):
    """The share of Bayes' rule that there is before any prediction."""
    return 1.0 - 0.7 * d / (samples_of_a_class + d)


def by_hand(X, y, n_classes, parameters):
    """The calibration, window by window, from densities that were learned on their own.

    Where experts are learned under what classes share they are those of the classifier so far.
    """
    covariance_type = parameters["covariance_type"]
    settings = settings_of(OnlineKDEDensity(**parameters), X.shape[1])
    pool = LogLinearPool.start(n_classes, settings.first_exponents)
    histograms, last_start, sampled = None, 0, []
    predicted = {c: [] for c in range(n_classes)}  # number of the row, its log-density
    for start, end in schedule(len(X), n_classes):
        if end >= len(X):  # it ends before the row that comes after it
            break
        before = slice(None, start)
        replayed = sorted(i for of_class in predicted.values() for i, _ in of_class)
        # Each class counts as often as it was there before, with earlier rows if it has to.
        shares = np.bincount(y[before], minlength=n_classes) / start
        rows, weights = [], []
        for c in range(n_classes):
            came = [i for i in range(start, end) if y[i] == c]
            due = (end - start) * shares[c]
            lacking = due - len(came)
            again = predicted[c][-ceil(lacking) :] if lacking > 0.0 else []
            rows += [i for i, _ in again] + came
            weights += [lacking / len(again)] * len(again) if again else []
            weights += [min(1.0, due / len(came))] * len(came) if came else []
        if settings.n_experts > 1:
            so_far = OnlineKDEClassifier(**parameters).fit(X[before], y[before])
            states = so_far._classes.states()
        else:
            states = [
                OnlineKDEDensity(**parameters).fit(X[before][y[before] == c])._state
                for c in range(n_classes)
            ]
        keeps_noise = settings.n_experts == 1
        shared = twins.pooled_within_covariance(X[before], y[before], keeps_noise=keeps_noise)
        shared = np.diag(shared).copy() if covariance_type == "diag" else shared
        transformation = Transformation.of([state.mixture for state in states])
        under = settings._replace(shrinkage_target=shared, transformation=transformation)
        densities = [build_class_density(state, under) for state in states]
        # Of rows, classes and groups.
        log_density = np.stack([density.log_densities(X[rows]) for density in densities], axis=1)
        for c in range(n_classes):
            for i, value in predicted[c]:
                if i in rows:
                    log_density[rows.index(i), c] = value
            predicted[c] += [
                (i, densities[c].log_densities(X[[i]])[0]) for i in range(start, end) if y[i] == c
            ]
            predicted[c] = predicted[c][-ceil(N_KEPT * shares[c]) :]
        discriminants = discriminants_of(X[before], y[before], states, settings, shared)
        others = [*discriminants.log_ratios(X[rows])]
        mixtures = [state.mixture for state in states]
        own = np.array([y[i] if i < start else -1 for i in rows])
        if settings.n_votes:
            of_all = discriminants_of(X[before], y[before], states, settings, shared, of_all=True)
            of_features = NeighborMetric.of(of_all.linear[0], of_all.counts, np.ones(2))
            # The rows of earlier windows vote, too, where many samples are merged.
            several = np.concatenate([np.arange(m.n_components) < m.n_compounds for m in mixtures])
            samples = np.concatenate([m.counts for m in mixtures])
            votes = max(several.mean(), several @ samples / samples.sum()) > SHARE_MERGED
            kept = (X[sampled], np.ones(len(sampled)), y[sampled], n_classes)
            learned = learn_feature_weights(
                Neighbors.of_rows(*kept, of_features)
                if votes
                else Neighbors.of(mixtures, of_features),
                so_far._calibration.feature_weights,
            )
            by_voters = []
            for kind in [learned, None][: settings.n_distances]:
                metric = NeighborMetric.of(discriminants.linear[0], discriminants.counts, kind)
                by_voters.append(Neighbors.of(mixtures, metric).log_ratios(X[rows], own))
            metric = NeighborMetric.of(discriminants.linear[0], discriminants.counts, learned)
            of_sample = Neighbors.of_rows(*kept, metric).log_ratios(X[rows])
            of_sample[:, own >= 0] = 0.0  # which it knows, and what came next to them
            by_voters.append(of_sample if votes else np.zeros_like(of_sample))
            others += [ratios for of_voters in by_voters for ratios in of_voters]
            sampled += range(start, end)
        if settings.pools_histograms:
            # In bins of all rows, as long as components are samples, and then in the last of these.
            # A short memory has those that were predicted, too.
            if any(mixture.n_compounds for mixture in mixtures):
                came = slice(last_start, start)
                left = LEFT_AFTER_SAMPLE ** len(X[came])
                histograms = histograms.with_rows(X[came], y[came], np.ones(len(X[came])), left)
            else:
                histograms = Histograms.of_rows(X[before], y[before], np.ones(start), n_classes)
                if replayed:
                    faded = LEFT_AFTER_SAMPLE[0] ** np.arange(len(replayed))[::-1]
                    newest = X[replayed], y[replayed], faded
                    histograms = histograms.with_short_memory(*newest)
            last_start = start
            others += [*histograms.log_ratios(X[rows], own)]
        if not pool.count:
            pool = pool._replace(exponents=pool.exponents * trust(start / n_classes, X.shape[1]))
        pool = learn_pool(
            pool,
            np.log(shares),
            np.array([*log_density.transpose(2, 0, 1), *others]),
            y[rows],
            np.array(weights),
            float(end),
        )
    return pool


EXPERTS = {
    "one": {"bandwidth": "plugin", "compression_threshold": 0.08},
    "of widths": {"compression_threshold": 0.08},
    "of thresholds": {"bandwidth": "plugin"},
    "of all kinds": {},
}
each_kind_of_experts = pytest.mark.parametrize("experts", EXPERTS)
N_GROUPS = {"full": {"of all kinds": 6}, "diag": {"of all kinds": 4}}
N_VOTES = {"full": {"of all kinds": 6}, "diag": {"of all kinds": 4}}


@each_kind_of_experts
@both_structures
def test_pool_is_learned_from_predictions_of_each_window(covariance_type, experts):
    X, y = stream(150)
    parameters = {"covariance_type": covariance_type} | EXPERTS[experts]
    classifier = OnlineKDEClassifier(**parameters).fit(X, y)
    expected = by_hand(X, y, 3, parameters)
    pool = classifier._calibration.pool
    # A discriminant, scales, votes and histograms.
    n_votes = N_VOTES[covariance_type].get(experts, 0)
    n_others = 2 + n_votes + 2 * (n_votes > 0)
    assert len(pool.exponents) == n_others + N_GROUPS[covariance_type].get(experts, 1)
    assert pool.count > 20.0
    np.testing.assert_allclose(pool.weights, expected.weights, atol=1e-5)
    np.testing.assert_allclose(pool.precision, expected.precision, rtol=1e-4, atol=1e-4)
    assert pool.count == pytest.approx(expected.count)


def predicted_rows(codes, counts=1.0):
    """Rows that are their numbers, predicted by two groups of experts."""
    n = np.arange(float(len(codes)))
    logs = np.column_stack([-n, 2.0 * n])
    return ReplayBuffer(n[:, None], np.array(codes, dtype=np.intp), counts * np.ones(len(n)), logs)


def test_each_class_counts_in_a_window_as_it_does_in_the_model():
    earlier = predicted_rows([0, 1, 0, 2, 0, 0])
    new = predicted_rows([1, 1, 2, 1, 1, 1, 1, 1], 2.0)
    shares = np.array([0.25, 0.625, 0.125])
    rows = class_rebalanced(earlier, new, shares)
    # Of class 0 a quarter of 16 is lacking: the last two rows of a quarter of eight.
    assert rows.rows.ravel().tolist() == [4.0, 5.0, *range(8)]
    assert rows.log_densities[:, 0].tolist() == [-4.0, -5.0, *range(0, -8, -1)]
    assert rows.log_densities[:, 1].tolist() == [8.0, 10.0, *range(0, 16, 2)]
    counts = np.bincount(rows.codes, rows.counts)
    np.testing.assert_allclose(counts / counts.sum(), shares)
    np.testing.assert_allclose(rows.counts[2:] / rows.counts[0], np.where(new.codes == 1, 5 / 7, 1))
    assert counts.sum() == pytest.approx(16.0)
    # Classes of which there is no earlier row are not made up for.
    rows = class_rebalanced(earlier.last(np.zeros(3, dtype=int)), new, shares)
    np.testing.assert_allclose(np.bincount(rows.codes, rows.counts), [0.0, 10.0, 2.0])


def test_the_last_rows_of_each_class():
    rows = predicted_rows([0, 1, 0, 2, 0, 0]).last(np.array([2, 5, 0]))
    assert rows.rows.ravel().tolist() == [1.0, 4.0, 5.0]
    assert rows.codes.tolist() == [1, 0, 0]


@pytest.mark.parametrize("apart", [0.7, 2.0])
@both_structures
def test_rows_sorted_by_class(covariance_type, apart):
    X, y = stream(1800, d=4, apart=apart)
    (X, new), (y, of) = (np.split(a, [800]) for a in (X, y))
    shuffled = learned(X, y, covariance_type=covariance_type)
    for order in (np.argsort(y, kind="stable"), np.argsort(-y, kind="stable")):
        by_class = learned(X[order], y[order], covariance_type=covariance_type)
        assert by_class.score(new, of) > shuffled.score(new, of) - 0.03
        losses = [log_loss(of, c.predict_proba(new)) for c in (by_class, shuffled)]
        assert losses[0] < losses[1] + 0.05


@both_structures
def test_an_outlier_after_the_last_checkpoint_spoils_nothing(covariance_type):
    # It moves the mean of its class far away, and widens the covariance within the classes.
    X, y = stream(1400)
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:400], y[:400])
    new, labels = X[400:], y[400:]
    before = classifier.score(new, labels)
    assert (classifier.calibration_weights_["discriminant"] > 0.05).all()
    assert before > 0.75
    classifier.partial_fit([[3e4, -3e4]], [0])
    assert classifier.score(new, labels) > before - 0.02


def contaminated(classifier, logits, shares):
    """Log-probabilities where of a share of rows the pool tells nothing."""
    contamination = classifier._calibration.pool.contamination
    return np.log((1.0 - contamination) * softmax(logits, axis=1) + contamination * shares)


@pytest.mark.parametrize("threshold", [0.08, "predictive"])
@both_structures
def test_probabilities_are_those_of_the_pool(covariance_type, threshold):
    X, y = stream(1600, seed=5)
    classifier = OnlineKDEClassifier(
        covariance_type=covariance_type, compression_threshold=threshold
    ).fit(X, y)
    new, _ = stream(seed=1)
    log_prior = np.log(classifier.class_prior_)
    if threshold == "predictive":
        settings = classifier._scorer().settings
        densities = [d._class_density(settings) for d in classifier.estimators_]
        groups = np.stack([density.log_densities(new) for density in densities], axis=2)
        log_densities = list(groups.transpose(1, 0, 2))
        assert len(log_densities) == {"full": 6, "diag": 4}[covariance_type]
    else:
        log_densities = [classifier.predict_joint_log_proba(new) - log_prior]
    # The covariance is that of the last checkpoint.
    settings, refreshed = classifier._scorer().settings, classifier._calibration.refreshed
    shared = twins.pooled_within_covariance(X[:refreshed], y[:refreshed])
    shared = np.diag(shared).copy() if covariance_type == "diag" else shared
    np.testing.assert_allclose(classifier._calibration.covariance, shared, rtol=1e-9)
    discriminants = discriminants_of(X, y, classifier._classes.states(), settings, shared)
    q, by_scale = discriminants.log_ratios(new)
    pool = classifier._calibration.pool.pruned(len(log_densities))
    if threshold == "predictive":  # some groups are not scored
        assert not pool.exponents.all()
    else:
        learned, scale = classifier._calibration.pool, len(log_densities) + 1
        precision = learned.precision.copy()
        precision[0, 0] += AS_IF_TOLD_APART * learned.count
        left = np.delete(np.arange(len(precision)), scale)
        made_up = np.linalg.solve(precision[np.ix_(left, left)], precision[left, scale])
        expected = learned.weights[left] + learned.weights[scale] * made_up
        np.testing.assert_allclose(pool.weights[left], expected, rtol=1e-9)
    assert pool.exponents[len(log_densities) + 1] == 0.0  # classes spread alike
    b, s = pool.offsets, pool.exponents[len(log_densities)]
    assert s > 0.0
    t = np.delete(pool.exponents, len(log_densities))
    log_densities.append(by_scale)
    for number in range(settings.n_voters):
        log_densities += list(classifier._scorer().log_ratios_of_neighbors(new, number))
    if settings.n_histograms:
        log_densities += [*settings.histograms.log_ratios(new)]
    tempered = sum(t_j * logs for t_j, logs in zip(t, log_densities, strict=True))
    shares = twins.shrunk_prior(classifier.class_count_)
    expected = contaminated(classifier, np.log(shares) + b + tempered + s * q, shares)
    np.testing.assert_allclose(classifier.predict_log_proba(new), expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        classifier.predict_proba(new), np.exp(expected), rtol=1e-7, atol=1e-9
    )
    np.testing.assert_array_equal(classifier.predict(new), expected.argmax(axis=1))


@pytest.mark.parametrize("bandwidth", ["plugin", "predictive"])
def test_a_bandwidth_that_is_set_after_a_prediction_takes_effect(bandwidth):
    X, y = stream(600)
    other = {"plugin": "predictive", "predictive": "plugin"}[bandwidth]
    classifier = OnlineKDEClassifier(compression_threshold=0.08, bandwidth=other).fit(X, y)
    before = classifier.predict_proba(X)
    classifier.set_params(bandwidth=bandwidth)
    # A stored model knows nothing of earlier predictions.
    expected = pickle.loads(pickle.dumps(classifier)).predict_proba(X)
    np.testing.assert_array_equal(classifier.predict_proba(X), expected)
    assert np.abs(expected - before).max() > 1e-3


def test_before_the_first_window_ends_it_is_bayes_rule_tempered():
    X, y = stream(300)
    for n in (10, 30, 42):
        power = trust(n / 3, 2)
        classifier = OnlineKDEClassifier(compression_threshold=0.08).fit(X[:n], y[:n])
        assert classifier._calibration.pool.weights.tolist() == [1.0, *[0.0] * 5]
        log_prior = np.log(classifier.class_prior_)
        log_densities = classifier.predict_joint_log_proba(X) - log_prior
        shares = twins.shrunk_prior(classifier.class_count_)

        def log_discriminant(classifier, rows, codes):
            scorer = classifier._scorer()
            settings, covariance = scorer.settings, scorer.lasting_covariance()
            states = classifier._classes.states()
            return discriminants_of(rows, codes, states, settings, covariance).log_ratios(X)[0]

        # The fewer the samples are, the more there is of a discriminant.
        cautious = 0.5 * (log_densities + log_discriminant(classifier, X[:n], y[:n]))
        logs = power * log_densities + (1.0 - power) * cautious
        np.testing.assert_allclose(
            classifier.predict_log_proba(X),
            contaminated(classifier, np.log(shares) + power * logs, shares),
            rtol=1e-9,
            atol=1e-12,
        )
        # Of several groups it is that of a geometric mean of their densities, in which shapes count
        # by what they have of the correlations; the less of that the fewer the samples are, too.
        classifier = OnlineKDEClassifier().fit(X[:n], y[:n])
        settings = classifier._scorer().settings
        exponents = np.repeat([0.0, 1 / 6, 1 / 3], 2)
        first = settings.first_exponents[: len(exponents)]
        np.testing.assert_allclose(first, exponents, rtol=1e-15)
        pool = classifier._calibration.pool.adapted(settings.first_exponents)
        np.testing.assert_allclose(pool.weights, [*exponents, *[0.0] * 13], rtol=1e-15)
        exponents = power * exponents + (1.0 - power) * np.repeat([0.0, 1 / 4, 0.0], 2)
        densities = [d._class_density(settings) for d in classifier.estimators_]
        logs = np.column_stack([density.log_densities(X) @ exponents for density in densities])
        logs += (1.0 - power) * 0.5 * log_discriminant(classifier, X[:n], y[:n])
        np.testing.assert_allclose(
            classifier.predict_log_proba(X),
            contaminated(classifier, np.log(shares) + power * logs, shares),
            rtol=1e-9,
            atol=1e-12,
        )
    assert OnlineKDEClassifier().fit(X[:43], y[:43])._calibration.pool.count > 0.0


@pytest.mark.parametrize(
    ("covariance_type", "cautious"),
    [
        ("full", [0.0, 0.0, 0.25, 0.25, 0.0, 0.0, 0.5, *9 * [0.0]]),
        ("diag", [0.0, 0.0, 0.25, 0.25, 0.5, *7 * [0.0]]),
        ("lowrank", [0.0, 0.0, 0.25, 0.25, 0.0, 0.0, 0.5, *9 * [0.0]]),
    ],
)
def test_few_rows_tell_nothing_of_correlations(covariance_type, cautious):
    d = 40
    settings = settings_of(OnlineKDEDensity(covariance_type=covariance_type), d)
    bayes = settings.first_exponents
    np.testing.assert_allclose(settings.cautious_exponents, cautious, rtol=1e-15)
    pool = LogLinearPool.start(2, bayes)
    for samples in (3.0, 40.0, 4000.0):
        sure = trust(samples, d)
        asked = samples, d, settings.cautious_exponents
        young = pool.tempered_at_first(*asked)
        np.testing.assert_allclose(
            young.exponents, sure * (sure * bayes + (1 - sure) * np.array(cautious))
        )
    learned = pool._replace(count=1.0)
    assert learned.tempered_at_first(*asked) is learned


@pytest.mark.parametrize("n", [15, 24, 28, 31, 36, 40])
def test_as_few_rows_as_features_are_told_apart(n):
    # Where a covariance lacks the directions in which rows to come lie, and where it has just got
    # them, most of these would go to one class.
    X, y = load_breast_cancer(return_X_y=True)
    scores = []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = np.split(order, [n])
        scores.append(OnlineKDEClassifier().fit(X[train], y[train]).score(X[test], y[test]))
    assert np.mean(scores) > 0.88


@pytest.mark.parametrize("n", [70, 80, 120])
def test_rows_twice_as_many_as_correlated_features_are_told_apart(n):
    # Where nearly nothing is left of some directions in what classes share, that decides.
    scores = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        factors, centers = rng.normal(size=(8, 60)), rng.normal(size=(4, 8))
        y = rng.integers(4, size=n + 500)
        X = twins.through_factors(centers[y] + rng.normal(size=(len(y), 8)), factors, 0.1, rng)
        scores.append(OnlineKDEClassifier().fit(X[:n], y[:n]).score(X[n:], y[n:]))
    assert np.mean(scores) > 0.73


@both_structures
def test_few_rows_are_not_believed_too_much(covariance_type):
    # Of one distribution, so that no class is ever more probable than its share.
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(20):
        X, y = rng.normal(size=(300, 8)), rng.permutation(np.arange(300) % 2)
        young = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:18], y[:18])
        plain = copy.copy(young).set_params(calibrate=False)
        losses.append([log_loss(y[18:], c.predict_proba(X[18:])) for c in (young, plain)])
    tempered, bayes = np.mean(losses, axis=0) - np.log(2.0)
    assert tempered < 0.7 * bayes
    # With many rows of one class nothing of it goes: rows of a new one are not outvoted.
    X = np.concatenate([rng.normal(size=(2000, 2)), rng.normal(4.0, size=(30, 2))])
    late = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, np.arange(2030) >= 2000)
    assert late.score(rng.normal(4.0, size=(500, 2)), np.ones(500, dtype=bool)) > 0.9


# ----------------------------------------------------------------- the stream alone makes the model


@pytest.mark.parametrize("size", [1, 7, 100])
@both_structures
def test_any_block_size(assert_same_model, covariance_type, size):
    X, y = stream(330)
    expected = learned(X, y, covariance_type=covariance_type)
    assert expected._calibration.pool.count > 20.0
    blocks = learned(X, y, size, covariance_type=covariance_type)
    assert_same_model(blocks, expected)
    np.testing.assert_array_equal(blocks.predict_proba(X), expected.predict_proba(X))
    fitted = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    np.testing.assert_array_equal(fitted.predict_proba(X), expected.predict_proba(X))


@pytest.mark.parametrize("size", [7, 1000])
def test_any_block_size_of_a_long_stream(assert_same_model, size):
    # So long that windows leave gaps.
    X, y = stream(3200, d=1)
    assert_same_model(learned(X, y, size), learned(X, y))


def test_scoring_in_between_changes_nothing(assert_same_model):
    X, y = stream(120)
    classifier = OnlineKDEClassifier()
    for i in range(120):
        classifier.partial_fit(X[[i]], y[[i]], classes=[0, 1, 2]).predict_proba(X[:2])
    assert_same_model(classifier, learned(X, y, classes=[0, 1, 2]))


@pytest.mark.parametrize("size", [1, 7, None])
@both_structures
def test_whole_weights_equal_repetition(assert_same_model, covariance_type, size):
    X, y = stream(250)
    times = np.random.default_rng(0).integers(0, 5, size=250)
    rows = np.repeat(np.arange(250), times)
    weighted = learned(
        X, y, size, weights=times.astype(float), covariance_type=covariance_type, classes=[0, 1, 2]
    )
    repeated = learned(X[rows], y[rows], size, covariance_type=covariance_type, classes=[0, 1, 2])
    assert repeated._calibration.position == np.sum(times > 0)
    assert repeated._calibration.pool.count > 20.0
    assert_same_model(weighted, repeated)


@pytest.mark.parametrize("size", [1, 3, 10])
def test_fractions_of_rows_that_repeat(assert_same_model, size):
    # The sum of their weights in a window must not depend on where the stream is cut.
    X, y = stream(90)
    X, y = np.repeat(X, 9, axis=0), np.repeat(y, 9)
    weights = np.random.default_rng(0).random(len(X))
    assert_same_model(
        learned(X, y, size, weights=weights, classes=[0, 1, 2]),
        learned(X, y, weights=weights, classes=[0, 1, 2]),
    )


def test_equal_rows_of_other_classes_are_rows_of_their_own(assert_same_model):
    X, y = np.tile([1.0, 2.0], (100, 1)), np.resize([0, 1], 100)
    rows = learned(X, y, 1, classes=[0, 1])
    assert rows._calibration.position == 100
    assert rows._calibration.pool.count > 10.0
    assert_same_model(rows, learned(X, y, classes=[0, 1]))
    # Of one class they are one row.
    again = learned(X[:50], np.zeros(50), 7, classes=[0, 1])
    assert again._calibration.position == 1


@pytest.mark.parametrize("size", [1, 7])
@both_structures
def test_undeclared_classes_are_as_declared(assert_same_model, covariance_type, size):
    X, y = stream(300, n_classes=4)
    first = np.flatnonzero(y == 1)[:5]
    y[:150][y[:150] == 0] = 2  # one comes late, and is the first of their order
    y[:62][y[:62] == 3] = 1  # one comes in the middle of a window
    assert len(first)
    parameters = {"covariance_type": covariance_type}
    declared = learned(X, y, size, classes=range(4), **parameters)
    undeclared = learned(X, y, size, **parameters)
    declared._classes_declared = False
    assert_same_model(declared, undeclared)
    np.testing.assert_array_equal(declared.predict_proba(X), undeclared.predict_proba(X))


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_threads(assert_same_model, n_jobs):
    X, y = stream(200)
    alone, threads = learned(X, y, 50), learned(X, y, 50, n_jobs=n_jobs)
    assert_same_model(threads, alone)
    np.testing.assert_array_equal(threads.predict_proba(X), alone.predict_proba(X))


@pytest.mark.parametrize("copy_of", [lambda c: pickle.loads(pickle.dumps(c)), copy.deepcopy])
def test_going_on_from_the_middle_of_a_window(assert_same_model, copy_of):
    X, y = stream(300)
    original = learned(X[:45], y[:45])
    window = original._calibration.pending
    assert (window.start, len(window.rows)) == (42, 3)
    twin = copy_of(original)
    assert_same_model(twin, original)
    for classifier in (original, twin):
        classifier.partial_fit(X[45:], y[45:])
    assert_same_model(twin, original)
    assert_same_model(original, learned(X, y))


def test_state_is_plain():
    X, y = stream(64)
    classifier = OnlineKDEClassifier().fit(X, y)
    plain = (type(None), np.ndarray, float, int, bool)
    parts = (Calibration, PendingBatch, ReplayBuffer, LogLinearPool, State, tuple, list)

    def check(value):
        if isinstance(value, parts):
            for part in value:
                check(part)
        else:
            assert type(value) in plain or type(value).__module__.startswith("skokde._engine.mix")

    assert classifier._calibration.pending is not None
    check(classifier._calibration)
    check(learned(*stream(200))._calibration)


@pytest.mark.parametrize("n", [15, 31, 42])
def test_error_leaves_the_calibration_alone(monkeypatch, assert_same_model, n):
    # Before the first window, within it, and where it ends.
    X, y = stream(300)
    classifier = learned(X[:n], y[:n])
    before, pickled = classifier._calibration, pickle.dumps(classifier)
    learn, calls = skokde._density.learn, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return learn(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(skokde._density, "learn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            classifier.partial_fit(X[n:], y[n:])
    assert classifier._calibration is before
    assert pickle.dumps(classifier) == pickled
    assert_same_model(classifier.partial_fit(X[n:], y[n:]), learned(X, y))


def test_the_caller_may_reuse_the_buffers(assert_same_model):
    X, y = stream(64)
    own_X, own_y = X.copy(), y.copy()
    classifier = learned(own_X, own_y)
    own_X[...], own_y[...] = 0.0, 0
    assert_same_model(classifier, learned(X, y))


def test_what_is_held_in_a_window_is_little():
    X, y = stream(4000, d=1)
    classifier = OnlineKDEClassifier()
    most = 0
    for start in range(0, 4000, 50):
        classifier.partial_fit(X[start : start + 50], y[start : start + 50])
        window = classifier._calibration.pending
        if window is not None:
            most = max(most, len(window.rows))
            for array in (window.rows, window.codes, window.counts):
                held = array if array.base is None else array.base
                assert len(held) <= LONGEST_WINDOW
        if classifier._calibration.replay is not None:
            for array in classifier._calibration.replay:
                assert array.base is None
                assert len(array) <= N_KEPT + 3
    assert 200 <= most <= LONGEST_WINDOW


def wrong_by_chance(n, share, seed=0):
    """Rows, their classes, some of which are drawn at random, and the probabilities of these."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    X = rng.normal(size=(n, 10))
    X[:, 0] += 3.0 * y
    noisy = np.where(rng.random(n) < share, rng.integers(0, 3, size=n), y)
    right = softmax(-0.5 * np.square(X[:, :1] - 3.0 * np.arange(3)), axis=1)
    return X, y, noisy, (1.0 - share) * right + share / 3.0


def test_labels_that_are_wrong_by_chance_are_allowed_for(monkeypatch):
    # Votes of the nearest samples, and histograms, have wrong labels in them; without these the
    # pool finds a share.
    monkeypatch.setattr(Settings, "n_voters", 0)
    monkeypatch.setattr(Settings, "pools_histograms", False)
    X, y, noisy, _ = wrong_by_chance(3000, 0.05)
    clean, classifier = (OnlineKDEClassifier().fit(X, labels) for labels in (y, noisy))
    contaminations = [c._calibration.pool.contamination for c in (clean, classifier)]
    assert contaminations[0] < 0.001
    # Densities have wrong labels in them, too, so that they know of the others.
    assert 0.01 < contaminations[1] < 0.05
    least = classifier.predict_proba(X).min(axis=0)
    assert (least > 0.9 * contaminations[1] / 3.0).all()


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_probabilities_where_labels_are_wrong_by_chance(share):
    least = []
    for seed in range(3):
        X, _, noisy, probabilities = wrong_by_chance(6000, share, seed)
        classifier = OnlineKDEClassifier().fit(X[:3000], noisy[:3000])
        of_new = classifier.predict_proba(X[3000:])
        ideal = log_loss(noisy[3000:], probabilities[3000:])
        assert log_loss(noisy[3000:], of_new) < ideal + 0.06
        least.append(of_new.min())
    # The least of thousands, which depends on the rows.
    assert np.mean(least) > 0.15 * share / 3.0


def test_given_priors_stand_in_for_the_shares_of_the_stream():
    X, y = stream(400)
    classifier = OnlineKDEClassifier().fit(X, y)
    shares = twins.shrunk_prior(classifier.class_count_)
    before = classifier.predict_proba(X)
    priors = np.array([0.7, 0.2, 0.1])
    after = classifier.set_params(priors=priors).predict_proba(X)
    expected = before * priors / shares
    np.testing.assert_allclose(after, expected / expected.sum(axis=1, keepdims=True), rtol=1e-9)
    # Of classes that can't come nothing is left, and the others divide it.
    none = classifier.set_params(priors=[0.0, 0.5, 0.5]).predict_proba(X)
    assert (none[:, 0] == 0.0).all()
    np.testing.assert_allclose(none.sum(axis=1), 1.0, rtol=1e-12)


# ---------------------------------------------------------------------------------- the parameter


@both_structures
def test_without_calibration_it_is_bayes_rule(covariance_type):
    X, y = stream()
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, calibrate=False).fit(X, y)
    new, _ = stream(seed=1)
    joint = classifier.predict_joint_log_proba(new)
    np.testing.assert_allclose(
        classifier.predict_log_proba(new), log_softmax(joint, axis=1), rtol=1e-10, atol=1e-12
    )
    np.testing.assert_array_equal(classifier.predict(new), joint.argmax(axis=1))


@pytest.mark.parametrize("bandwidth", ["plugin", "predictive"])
def test_calibration_can_be_set_later(bandwidth):
    X, y = stream()
    plain = OnlineKDEClassifier(calibrate=False, bandwidth=bandwidth).fit(X, y)
    classifier = OnlineKDEClassifier(bandwidth=bandwidth).fit(X, y)
    calibrated = classifier.predict_proba(X)
    assert np.abs(calibrated - plain.predict_proba(X)).max() > 0.01
    joint = classifier.predict_joint_log_proba(X)
    classifier.set_params(calibrate=False)
    np.testing.assert_array_equal(classifier.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(classifier.predict_joint_log_proba(X), joint)
    classifier.set_params(calibrate=True)
    np.testing.assert_array_equal(classifier.predict_proba(X), calibrated)


def test_densities_do_not_depend_on_the_calibration(assert_same_model):
    X, y = stream()
    for bandwidth in ("plugin", "predictive"):
        with_it, without = (
            OnlineKDEClassifier(calibrate=calibrate, bandwidth=bandwidth).fit(X, y)
            for calibrate in (True, False)
        )
        for ours, theirs in zip(with_it.estimators_, without.estimators_, strict=True):
            assert_same_model(ours, theirs)
        np.testing.assert_array_equal(with_it.score_samples(X[:20]), without.score_samples(X[:20]))


@pytest.mark.parametrize("value", [None, 1, "yes", 0.5])
def test_calibrate_is_true_or_false(value):
    X, y = stream(30)
    classifier = OnlineKDEClassifier(calibrate=value)
    with pytest.raises(TypeError, match="calibrate must be True or False"):
        classifier.fit(X, y)
    assert vars(classifier) == vars(OnlineKDEClassifier(calibrate=value))
    OnlineKDEClassifier(calibrate=np.bool_(True)).fit(X, y)


# ----------------------------------------------------------------------------------------- priors


@both_structures
def test_given_priors_shift_the_probabilities_by_their_ratio(covariance_type):
    X, y = stream()
    given = np.array([0.7, 0.2, 0.1])
    counted = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    new, _ = stream(seed=1)
    expected = counted.predict_log_proba(new) + np.log(
        given / twins.shrunk_prior(counted.class_count_)
    )
    counted.set_params(priors=given)
    np.testing.assert_allclose(
        counted.predict_log_proba(new), log_softmax(expected, axis=1), rtol=1e-9, atol=1e-11
    )
    # They do not enter what is learned.
    other = OnlineKDEClassifier(covariance_type=covariance_type, priors=given).fit(X, y)
    np.testing.assert_array_equal(other.predict_proba(new), counted.predict_proba(new))


def test_a_class_without_prior_has_no_probability():
    X, y = stream()
    classifier = OnlineKDEClassifier(priors=[0.5, 0.0, 0.5]).fit(X, y)
    assert classifier._calibration.pool.count > 20.0
    assert np.isneginf(classifier.predict_log_proba(X)[:, 1]).all()
    np.testing.assert_allclose(classifier.predict_proba(X).sum(axis=1), 1.0)


# -------------------------------------------------------------------------------- classes and rows


def test_a_class_that_comes_late():
    X, y = stream(600, apart=3.0)
    order = np.argsort(y == 2, kind="stable")  # class 2 comes at the end
    X, y = X[order], y[order]
    start = int(np.sum(y != 2))
    classifier = learned(X[:start], y[:start], classes=[0, 1, 2])
    pool = classifier._calibration.pool
    assert pool.count > 20.0
    assert pool.offsets[2] == 0.0
    np.testing.assert_allclose(classifier.predict_proba(X)[:, 2], 0.5 / (start + 2))
    classifier.partial_fit(X[start : start + 1], y[start : start + 1])
    proba = classifier.predict_proba(X)
    assert np.isfinite(proba).all()
    assert proba[start, 2] > 0.0
    classifier.partial_fit(X[start + 1 :], y[start + 1 :])
    new, of = stream(600, apart=3.0)
    assert classifier.score(new, of) > 0.85


def test_rows_of_classes_that_a_window_does_not_know_teach_nothing(assert_same_model):
    X, y = stream(66, n_classes=2)
    late = y.copy()
    late[21:32] = 2  # within the first window, 20 to 32
    classifier = learned(X[:32], late[:32], classes=[0, 1, 2])
    assert len(classifier._calibration.pending.rows) == 12
    classifier.partial_fit(X[32:33], late[32:33])
    # The row is of one of two classes.
    assert classifier._calibration.pool.count == pytest.approx(0.5, abs=0.2)
    late[20] = 2
    none = learned(X[:33], late[:33], classes=[0, 1, 2])
    assert none._calibration.pool.count == 0.0


@both_structures
def test_one_class(covariance_type):
    X, _ = stream(200)
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, np.zeros(200))
    assert classifier._calibration.pool.count == 0.0  # nothing to tell apart
    assert classifier._calibration.replay is not None
    np.testing.assert_array_equal(classifier.predict_proba(X), 1.0)


@both_structures
def test_far_rows(covariance_type):
    X, y = stream()
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    far = np.array([[1e300, 0.0], [-1e308, 1e308], [1e100, 1e100], [1e6, -1e6], [50.0, 50.0]])
    log_proba = classifier.predict_log_proba(far)
    assert np.isfinite(classifier.predict_proba(far)).all()
    assert not np.isnan(log_proba).any()
    np.testing.assert_allclose(np.exp(log_proba).sum(axis=1), 1.0)
    # Where no class has a density there is but the prior.
    np.testing.assert_allclose(np.exp(log_proba[1]), twins.shrunk_prior(classifier.class_count_))
    # Such rows in the stream are survived.
    classifier.partial_fit(np.array([[1e100, -1e100], [1e10, 0.0]]), [0, 1])
    classifier.partial_fit(*stream(100, seed=1))
    assert np.isfinite(classifier.predict_proba(X)).all()


@both_structures
def test_a_row_far_out_is_no_surer_than_what_was_learned(covariance_type):
    X, y = stream(n=600, n_classes=2, apart=1.0)
    X[y == 1] *= 0.01  # a narrow class, whose density vanishes next to it
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    pool = classifier._calibration.pool
    log_prior = np.log(twins.shrunk_prior(classifier.class_count_))
    far = np.array([[20.0, 20.0], [30.0, -20.0]])
    joint = classifier.predict_joint_log_proba(far)
    assert (np.abs(np.diff(joint)) > 2.0 * FARTHEST_CLASS).all()
    settings = classifier._scorer().settings
    pruned = pool.pruned(settings.n_pooled)
    most = pruned.exponents.sum() * FARTHEST_CLASS
    most += np.ptp(log_prior + pruned.offsets)
    assert (classifier.predict_log_proba(far) >= -most - 1e-9).all()


def test_windows_are_no_longer_than_what_is_remembered():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=1200)
    angle = np.arange(1200) / 60.0 + np.pi * y  # a memory of 33 rows is half a radian
    X = 1.5 * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.6 * rng.normal(size=(1200, 2))
    losses, accuracies = [], []
    for calibrate in (True, False):
        classifier = OnlineKDEClassifier(forgetting_factor=0.97, calibrate=calibrate)
        classifier.partial_fit(X[:400], y[:400])
        predicted = []
        for start in range(400, 1200, 5):
            part = slice(start, start + 5)
            predicted.append(classifier.predict_proba(X[part]))
            classifier.partial_fit(X[part], y[part])
        predicted = np.concatenate(predicted)
        losses.append(log_loss(y[400:], predicted))
        accuracies.append(np.mean(predicted.argmax(axis=1) == y[400:]))
    assert losses[0] < 0.9 * losses[1]
    assert accuracies[0] > accuracies[1]


def test_forgetting_follows_what_changes():
    rng = np.random.default_rng(0)
    X, y = stream(800, apart=3.0)
    noise = rng.integers(3, size=800)
    classifier = OnlineKDEClassifier(forgetting_factor=0.99).fit(X, noise)
    useless = classifier._calibration.pool.exponents.sum()
    assert classifier._calibration.pool.count < 30.0 * 3
    classifier.partial_fit(X, y)
    assert classifier._calibration.pool.exponents.sum() > useless + 1.0
    assert classifier.score(X, y) > 0.6


# ---------------------------------------------------------------------------------- what it is for


def held_out_losses(X, y, train, **parameters):
    """Log-losses of the calibrated probabilities and of Bayes' rule on rows after the stream."""
    classifier = OnlineKDEClassifier(**parameters).fit(X[:train], y[:train])
    calibrated = log_loss(y[train:], classifier.predict_proba(X[train:]))
    classifier.set_params(calibrate=False)
    return calibrated, log_loss(y[train:], classifier.predict_proba(X[train:]))


@both_structures
def test_features_that_repeat_each_other(covariance_type):
    X, y = stream(1500, apart=1.0)
    noise = 1e-2 * np.random.default_rng(0).normal(size=(1500, 10))
    X = np.tile(X, 5) + noise
    calibrated, bayes = held_out_losses(X, y, 500, covariance_type=covariance_type)
    alone, _ = held_out_losses(X[:, :2], y, 500, covariance_type=covariance_type)
    if covariance_type == "diag":  # which counts each feature five times
        assert calibrated < 0.8 * bayes
    assert calibrated < alone + 0.05


@both_structures
def test_features_that_tell_nothing(covariance_type):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1500, 8)), rng.choice(3, p=[0.6, 0.3, 0.1], size=1500)
    calibrated, bayes = held_out_losses(X, y, 500, covariance_type=covariance_type)
    prior = np.bincount(y[500:]) / 1000
    entropy = -prior @ np.log(prior)
    assert entropy - 0.01 < calibrated < entropy + 0.03
    assert bayes > max(entropy, calibrated) + 0.04


@both_structures
def test_log_loss_is_no_worse_where_the_densities_are_right(covariance_type):
    # Gaussians, well learned: Bayes' rule has nothing to gain from a calibration, nor to lose.
    X, y = stream(2500, apart=1.0)
    calibrated, bayes = held_out_losses(X, y, 1500, covariance_type=covariance_type)
    assert calibrated < bayes + 0.01


@pytest.mark.parametrize("covariance_type", ["full", "diag", "lowrank"])
def test_a_feature_that_was_constant(covariance_type):
    """Its first other values don't part the class that has them from all that are as before."""
    n, d = 400, 40 if covariance_type == "lowrank" else 6
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n + 300)
    X = rng.normal(size=(n + 300, d)) + 1.5 * np.eye(d)[y]
    X[:, -1] = 0.0
    new, known = X[n:], y[n:]
    losses = []
    for first in range(n - 40, n, 8):
        rows, labels = X[: first + 12].copy(), y[: first + 12]
        rows[first:, -1] = 8.0 * (labels[first:] == 2)
        classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(rows, labels)
        losses.append(log_loss(known, classifier.predict_proba(new)))
    assert max(losses) < log_loss(known, classifier.fit(X[:n], y[:n]).predict_proba(new)) + 0.2
