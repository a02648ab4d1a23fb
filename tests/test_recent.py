"""Memory by prediction: the newest samples as short memories, and class counts in several."""

import numpy as np
import pytest

import twins
from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._engine import recent as engine
from skokde._engine.class_memory import FACTORS, FIRST_WEIGHTS, ClassMemory
from skokde._engine.covariance import STRUCTURES
from skokde._engine.estimates import REFERENCES, build_kde, predict_pending
from skokde._engine.recent import (
    FIRST_OF_FADING,
    FIRST_SHARE,
    LEAST_WEIGHT,
    LONGEST_MEMORY,
    MEMORIES,
    N_KEPT,
    N_PREDICTED,
    memory_moments,
    none_pending,
    nothing_recent,
    prior_counts,
    rows_until_due,
    short_memories,
    with_rows,
)
from skokde._engine.state import FADING
from skokde._validation import check_settings

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))


def density(**parameters):
    return OnlineKDEDensity(forgetting_factor="predictive", **parameters)


def settings_of(covariance_type="full", d=2, **parameters):
    return check_settings(density(covariance_type=covariance_type, **parameters), d)


def share_of_memories(model):
    """The weight of all short memories."""
    return model.expert_weights_["memory"][1:].sum()


# ------------------------------------------------------------------------------- the short memories


@pytest.mark.parametrize("factor", MEMORIES)
def test_short_memories_by_the_formula(factor):
    rng = np.random.default_rng(0)
    n = 2000
    rows, counts = rng.normal(size=(n, 2)), rng.choice([1.0, 2.0, 0.3, 7.0], size=n)
    (memory,) = short_memories(rows, counts, [factor], STRUCTURES["full"])
    later = np.array([counts[i + 1 :].sum() for i in range(n)])
    # A row of weight w is as the last of w rows, and those before it.
    expected = factor**later * (1.0 - factor**counts) / (1.0 - factor)
    known = np.flatnonzero(factor**later > LEAST_WEIGHT)
    assert 10 < len(known) < n
    np.testing.assert_array_equal(memory.means, rows[known])
    np.testing.assert_allclose(memory.counts, expected[known], rtol=1e-10)
    assert memory.n_compounds == 0


def test_a_row_of_whole_weight_is_as_so_many_rows():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    times = np.resize([1, 4, 2], 40)
    for factor in MEMORIES:
        arguments = [factor], STRUCTURES["full"]
        (weighted,) = short_memories(rows, times.astype(float), *arguments)
        (single,) = short_memories(np.repeat(rows, times, axis=0), np.ones(times.sum()), *arguments)
        for row, count in zip(weighted.means[1:], weighted.counts[1:], strict=True):
            same = (single.means == row).all(axis=1)
            np.testing.assert_allclose(single.counts[same].sum(), count, rtol=1e-10)


@both_structures
def test_moments_of_the_memories(covariance_type):
    settings = settings_of(covariance_type, 3)
    rows = np.random.default_rng(0).normal(size=(100, 3)) * [1.0, 2.0, 3.0]
    counts = np.resize([1.0, 0.5, 3.0], 100)
    mixture = twins.learned_mixture(rows, covariance_type)
    factors = settings.discriminating
    assert factors == MEMORIES[1:]
    # However many of the rows are pending.
    for n in (100, 97, 92):
        newest = with_rows(nothing_recent(3, settings), rows[:n], counts[:n])
        newest = none_pending(newest, mixture, newest.credits)
        if n < 100:
            newest = with_rows(newest, rows[n:], counts[n:])
        assert len(newest.pending_rows) == 100 - n
        moments = memory_moments(newest, mixture, settings)
        memories = short_memories(rows, counts, factors, settings.structure)
        assert len(moments) == len(memories) == len(factors)
        for memory, got in zip(memories, moments, strict=True):
            zero = np.zeros((memory.n_components, 3, 3))
            expected = twins.moments(memory.counts, memory.means, zero)
            twins.assert_same_moments(got, expected, covariance_type, rtol=1e-9)
    # Before any prediction they are those of the pending rows, before any row those of all samples.
    newest = with_rows(nothing_recent(3, settings), rows[:8], counts[:8])
    count, *_ = memory_moments(newest, mixture, settings)[0]
    np.testing.assert_allclose(
        count, short_memories(rows[:8], counts[:8], factors[:1], settings.structure)[0].counts.sum()
    )
    (_, mean, _), *_ = memory_moments(nothing_recent(3, settings), mixture, settings)
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-9)
    assert len(memory_moments(None, mixture, settings)) == len(factors)


def test_an_outlier_that_is_pending_does_not_move_the_moments():
    settings, rng = settings_of(), np.random.default_rng(0)
    rows = rng.normal(size=(200, 2))
    mixture = twins.learned_mixture(rows, "full")
    newest = with_rows(nothing_recent(2, settings), rows, np.ones(200))
    newest = none_pending(newest, mixture, newest.credits)
    newest = with_rows(newest, np.array([[1e9, 0.0]]), np.ones(1))
    for _, mean, covariance in memory_moments(newest, mixture, settings):
        assert np.abs(mean).max() < 1.0
        assert covariance.max() < 3.0


def test_rows_are_kept_whatever_the_cuts():
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(200, 2)), rng.integers(1, 5, size=200), axis=0)
    weights = rng.choice([1.0, 0.1, 3.0], size=len(rows))
    kept, newest_mixture = [], twins.learned_mixture(rows[:5], "full")
    for size in (1, 7, 64, len(rows)):
        newest, due, done = nothing_recent(2, settings_of()), [], 0
        while done < len(rows):
            block = rows[done : done + size]
            n = rows_until_due(newest, block)
            if n:
                newest = with_rows(newest, block[:n], weights[done : done + n])
                done += n
            else:
                due.append(done)
                newest = none_pending(newest, newest_mixture, newest.credits)
        kept.append((*(array.tobytes() for array in newest[:-1]), newest.fading, due))
    assert len(kept[0][-1]) == 24
    assert all(other == kept[0] for other in kept)
    # So many distinct rows are predicted at a time, the last ones are held.
    runs = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1)))
    assert kept[0][-1] == runs[N_PREDICTED::N_PREDICTED].tolist()
    all_rows = np.concatenate([newest.rows, newest.pending_rows])
    all_counts = np.append(newest.counts, newest.pending_counts)
    np.testing.assert_array_equal(all_rows, rows[runs])
    np.testing.assert_allclose(all_counts, np.add.reduceat(weights, runs), rtol=1e-12)
    newest = with_rows(newest, rng.normal(size=(900, 2)), np.ones(900))
    newest = none_pending(newest, newest_mixture, newest.credits)
    assert len(newest.rows) == len(newest.counts) == N_KEPT
    assert not len(newest.pending_rows)


def test_before_any_prediction_the_model_of_all_has_half_the_weight():
    settings = settings_of()
    prior = prior_counts(settings)
    assert prior[0] == FIRST_SHARE
    np.testing.assert_allclose(prior.sum(), 1.0)
    assert len(set(prior[1:-1])) == 1
    assert prior[-1] == FIRST_OF_FADING
    rest = (1.0 - FIRST_SHARE - FIRST_OF_FADING) / 3
    first = np.array([FIRST_SHARE, rest, rest, rest, FIRST_OF_FADING])
    rows = np.random.default_rng(0).normal(size=(9, 2))
    assert density().fit(rows)._state.recent.fading is not None
    np.testing.assert_allclose(density().fit(rows).expert_weights_["memory"], first)
    # The model that fades counts for nothing before it is there.
    first[-1] = 0.0
    weights = density().fit(rows[:1]).expert_weights_["memory"]
    np.testing.assert_allclose(weights, first / first.sum())


def test_credits_are_of_a_limited_number_of_samples():
    model = density().fit(np.random.default_rng(0).normal(size=(600, 1)))
    credits = model._state.recent.credits
    assert credits.sum() == pytest.approx(1.0 + LONGEST_MEMORY)
    assert np.all(credits >= prior_counts(settings_of(d=1)) - 1e-12)


@both_structures
def test_pending_rows_are_predicted_by_what_was_there_before_them(covariance_type):
    # By hand, from a model and memories that have not seen them.
    stream = twins.clumps(2, 90, seed=1)
    for n in range(70, 90):
        X = stream[:n]
        model = density(covariance_type=covariance_type).fit(X)
        settings, state = model._settings(), model._state
        pending = len(state.recent.pending_rows)
        before = density(covariance_type=covariance_type).fit(X[:-pending])
        # No compression has come between.
        same = np.array_equal(before._mixture.covariances, model._mixture.covariances)
        waiting = len(before._state.recent.pending_rows)
        if same and 1 < pending < N_PREDICTED and waiting == N_PREDICTED:
            break
    else:
        raise AssertionError("none are pending")
    earlier = predict_pending(before._state, settings, REFERENCES)
    np.testing.assert_array_equal(earlier.recent.credits, state.recent.credits)
    long = OnlineKDEDensity(covariance_type=covariance_type).fit(X[:-pending])
    fading = OnlineKDEDensity(covariance_type=covariance_type, forgetting_factor=FADING)
    fading.fit(X[:-pending])
    target = engine.target_of(long._mixture, settings)
    rows, counts = X[:-pending], np.ones(len(X) - pending)
    families = engine.families_of(rows, counts, settings, target)
    new = X[-pending:]
    of_memories = [family.log_densities(new) for family in families]
    logs = np.column_stack([long.score_samples(new), *of_memories, fading.score_samples(new)])
    credits = state.recent.credits
    new = credits
    for _ in range(10):
        shares = new * np.exp(logs - logs.max(axis=1, keepdims=True))
        new = credits + (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0)
    prior = prior_counts(settings)
    learned = new - prior
    expected = prior + learned * min(1.0, LONGEST_MEMORY / learned.sum())
    got = predict_pending(state, settings, REFERENCES).recent
    np.testing.assert_allclose(got.credits, expected, rtol=1e-6)
    assert not len(got.pending_rows)


# ------------------------------------------------------------------------------ what they are for


@both_structures
def test_a_jump_is_noticed_within_some_tens_of_rows(covariance_type):
    rng = np.random.default_rng(0)
    model = density(covariance_type=covariance_type).fit(rng.normal(size=(1000, 2)))
    assert share_of_memories(model) < 0.5
    model.partial_fit(rng.normal(size=(40, 2)) * 0.3 + [6.0, -6.0])
    assert share_of_memories(model) > 0.7
    new = rng.normal(size=(200, 2)) * 0.3 + [6.0, -6.0]
    forgetful = OnlineKDEDensity(covariance_type=covariance_type).fit(rng.normal(size=(1000, 2)))
    forgetful.partial_fit(rng.normal(size=(40, 2)) * 0.3 + [6.0, -6.0])
    assert model.score(new) > forgetful.score(new) + 1.0


@pytest.mark.slow
@both_structures
def test_a_stationary_stream_is_left_to_the_model_of_all(covariance_type):
    shares, losses = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)

        def rows(n, rng=rng):
            return rng.normal(size=(n, 2)) + 4.0 * rng.integers(0, 2, size=(n, 1))

        model, forgets_nothing = (
            density(covariance_type=covariance_type),
            OnlineKDEDensity(covariance_type=covariance_type),
        )
        for block in range(16):
            X = rows(100)
            model.partial_fit(X)
            forgets_nothing.partial_fit(X)
            if block >= 8:
                shares.append(model.expert_weights_["memory"][0])
        new = rows(2000)
        losses.append(forgets_nothing.score(new) - model.score(new))
    assert np.mean(shares) > 0.7
    assert np.mean(losses) < 0.03


def test_an_old_regime_that_returns_is_known_at_once():
    gains = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        first, second = rng.normal(size=(600, 2)), 0.5 * rng.normal(size=(600, 2)) + 8.0
        again, new = rng.normal(size=(10, 2)), rng.normal(size=(300, 2))
        scores = []
        for factor in ("predictive", 0.99):
            model = OnlineKDEDensity(forgetting_factor=factor)
            for block in (first, second, again):
                model.partial_fit(block)
            scores.append(model.score(new))
        gains.append(scores[0] - scores[1])
    assert np.mean(gains) > 0.2


def moving_clusters(n, seed):
    rng = np.random.default_rng(seed)
    centers, velocities = 4.0 * rng.normal(size=(2, 8, 5))
    times, of = np.linspace(0.0, 1.0, n)[:, None], rng.integers(8, size=n)
    return centers[of] + times * velocities[of] + 0.5 * rng.normal(size=(n, 5))


@both_structures
def test_clusters_that_move_are_followed_by_a_model_that_fades(covariance_type):
    # Of few of the newest samples alone kernels say little of clusters, however they are weighted.
    found = {}
    for factor in (1.0, FADING, "predictive"):
        scores = []
        model = OnlineKDEDensity(covariance_type=covariance_type, forgetting_factor=factor)
        stream = moving_clusters(1600, 0)
        for start in range(0, len(stream), 16):
            rows = stream[start : start + 16]
            if start >= 600:
                scores.append(model.score(rows))
            model.partial_fit(rows)
        found[factor] = np.mean(scores)
    assert found[FADING] > found[1.0] + 0.8
    assert found["predictive"] > found[FADING] - 0.15
    assert np.argmax(model.expert_weights_["memory"]) == 4
    assert model.experts_["memory"][4] == FADING


def test_the_model_that_fades_has_learned_what_has_been_predicted(assert_same_model):
    rows = np.repeat(twins.clumps(2, 100), np.resize([1, 3, 1, 2], 100), axis=0)
    models = []
    for size in (1, 7, len(rows)):
        model = density()
        for start in range(0, len(rows), size):
            model.partial_fit(rows[start : start + size])
        models.append(model)
        assert_same_model(model, models[0])
    n_pending = int(model._state.recent.pending_counts.sum())
    assert n_pending
    fading = model._state.recent.fading.mixture
    alone = OnlineKDEDensity(forgetting_factor=FADING).fit(rows[:-n_pending])
    # Repetitions have been added up.
    for got, expected in zip(fading, alone._mixture, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


def test_merged_models_have_one_that_fades(assert_same_model):
    first, second = twins.clumps(2, 300), twins.clumps(2, 100, seed=1) + 1.0
    one, other = density().fit(first), density().fit(second)
    both = one.merge(other)
    alone = OnlineKDEDensity(forgetting_factor=FADING).fit(np.concatenate([first, second]))
    assert_same_model(alone._copied({"_state": both._state.recent.fading}), alone)


def test_the_model_that_fades_begins_anew_where_there_is_none():
    X = twins.clumps(2, 400)
    without = density().fit(X).without_rows(min_samples=5)
    recent = without._state.recent
    assert recent.fading is None
    assert recent.credits[-1] == FIRST_OF_FADING
    assert without.expert_weights_["memory"][0] == 1.0
    without.partial_fit(X[:20])
    assert without._state.recent.fading.mixture.counts.sum() == pytest.approx(
        sum(FADING**i for i in range(16))
    )
    # Classes have none, and neither have their densities by themselves.
    classifier = OnlineKDEClassifier(forgetting_factor="predictive").fit(X, np.resize([0, 1], 400))
    of_class = classifier.estimators_[0]
    assert of_class._state.recent.fading is None
    assert of_class.expert_weights_["memory"][-1] == 0.0
    assert np.isfinite(of_class.score(X))


DEGENERATE = {
    "one row": np.array([[1.0, -2.0]]),
    "equal rows": np.tile([1.0 / 3.0, 1e6], (70, 1)),
    "constant feature": np.random.default_rng(0).normal(size=(120, 2)) * [1.0, 0.0],
    "huge": 1e100 * np.random.default_rng(0).normal(size=(120, 2)),
    "tiny": 1e-100 * np.random.default_rng(0).normal(size=(120, 2)),
    "then constant": np.concatenate(
        [np.random.default_rng(0).normal(size=(60, 2)), np.ones((300, 2))]
    ),
    "then another constant": np.repeat([[1.0, 2.0], [5.0, 2.0]], 100, axis=0),
    "an outlier last": np.append(
        np.random.default_rng(0).normal(size=(99, 2)), [[1e12, 0.0]], axis=0
    ),
}


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@pytest.mark.parametrize("bandwidth", ["predictive", "plugin", "scott", 0.5])
@pytest.mark.parametrize("case", DEGENERATE)
@both_structures
def test_degenerate_rows_have_finite_densities(covariance_type, case, bandwidth):
    X = DEGENERATE[case]
    model = density(covariance_type=covariance_type, bandwidth=bandwidth)
    for start in range(0, len(X), 30):
        model.partial_fit(X[start : start + 30])
        assert np.isfinite(model.score_samples(X)).all()
        assert np.isfinite(model.score_samples(X + 0.1 * np.abs(X) + 0.1)).all()
        np.testing.assert_allclose(model.expert_weights_["memory"].sum(), 1.0)
        assert np.isfinite(model._state.recent.credits).all()
    weights, means, covariances = model.distribution().arrays
    assert all(np.isfinite(part).all() for part in (means, covariances))
    np.testing.assert_allclose(weights.sum(), 1.0)


@pytest.mark.parametrize("weight", [1e-200, 1e-20, 1e-3, 1e9, 1e20])
@pytest.mark.parametrize("Estimator", [OnlineKDEDensity, OnlineKDEClassifier])
def test_weights_of_any_size(Estimator, weight):
    X, y = twins.clumps(2, 60), np.resize([0, 1], 60)
    model = Estimator(forgetting_factor="predictive")
    for n in (5, 20, 60):
        model.fit(X[:n], y[:n], sample_weight=np.full(n, weight))
        assert np.isfinite(model.score_samples(X)).all()


@pytest.mark.parametrize("Estimator", [OnlineKDEDensity, OnlineKDEClassifier])
def test_parameters_that_change_the_memories_densities(Estimator):
    # What is scored before any more rows, and learned with them.
    X, y = twins.clumps(2, 120), np.resize([0, 1], 120)
    model = Estimator(forgetting_factor="predictive").fit(X, y)
    for parameters in (
        {"bandwidth": "plugin"},
        {"compression_threshold": 0.08},
        {"bandwidth": "predictive"},
        {"forgetting_factor": 0.99},
        {"forgetting_factor": "predictive", "bandwidth": 0.5},
    ):
        model.set_params(**parameters)
        assert np.isfinite(model.score_samples(X)).all()
        model.partial_fit(X[:9], y[:9])
        assert np.isfinite(model.score_samples(X)).all()


@both_structures
def test_all_samples_stand_in_for_memories_that_hold_nothing(covariance_type):
    X = twins.clumps(2, 300)
    state = OnlineKDEDensity(covariance_type=covariance_type).fit(X)._state
    settings, new = settings_of(covariance_type), X[:9] + 0.3
    expected = build_kde(state, settings._replace(memories=())).log_density(new)
    n = settings.n_pooled_shapes[1] * settings.n_sides
    memories = (True, False, True)
    for groups in (n * (True,), n * (False,)):
        logs = build_kde(state, settings, groups=groups, memories=memories)
        logs = logs.log_densities_of_groups(new)
        assert logs.shape == (9, sum(groups) + 2)
        if not any(groups):
            np.testing.assert_allclose(logs, np.column_stack([expected, expected]), rtol=1e-9)


# ---------------------------------------------------------------------------------- class counts


def test_prior_of_the_classes():
    memory = ClassMemory.start(np.zeros(4))
    assert not memory.prior().any()
    codes = np.resize([0, 1, 1, 3], 100)
    memory = memory.updated(codes, np.ones(100))
    prior = memory.prior()
    assert prior[2] == 0.0
    np.testing.assert_allclose(prior.sum(), 1.0)
    np.testing.assert_allclose(prior[[0, 1, 3]], [0.25, 0.5, 0.25], atol=0.02)
    # By hand, of what each memory counts.
    shares = [(c + 1.0 / 3.0) / (c.sum() + 1.0) for c in memory.counts]
    expected = np.where(memory.counts[0] > 0.0, memory.weights @ np.array(shares), 0.0)
    np.testing.assert_allclose(prior, expected / expected.sum(), rtol=1e-12)
    # Nothing is written to.
    before = memory.counts.copy(), memory.weights.copy()
    memory.updated(codes, np.ones(100))
    np.testing.assert_array_equal(memory.counts, before[0])
    np.testing.assert_array_equal(memory.weights, before[1])


def test_classes_that_come_later_have_a_place():
    memory = ClassMemory.start(np.zeros(2)).updated(np.zeros(30, dtype=np.intp), np.ones(30))
    grown = memory.grown(np.array([0, 2]), 3)
    np.testing.assert_array_equal(grown.counts[:, [0, 2]], memory.counts)
    assert not grown.counts[:, 1].any()
    assert grown.prior().tolist() == [1.0, 0.0, 0.0]


def test_memories_of_classes_are_found():
    assert FACTORS[0] == 1.0
    np.testing.assert_allclose(FIRST_WEIGHTS.sum(), 1.0)
    rng = np.random.default_rng(0)
    # What comes in any order is best predicted by all that came.
    mixed = ClassMemory.start(np.zeros(2)).updated(rng.integers(2, size=3000), np.ones(3000))
    assert mixed.weights[0] > 0.5
    # What comes in long runs, by the newest.
    runs = ClassMemory.start(np.zeros(2)).updated(np.repeat([0, 1], 1500), np.ones(3000))
    assert runs.weights[0] < 0.05
    assert runs.prior()[1] > 0.95


# Turns of fifty are as long as the shortest memory, so those are predicted row by row.
@pytest.mark.parametrize(("cycle", "size"), quick([(3, 25), (1, 25), (10, 25), (50, 1)]))
def test_labels_in_turns_are_predicted_no_worse_than_by_chance(cycle, size):
    # The prior must not say the opposite of whose turn it is.
    rng = np.random.default_rng(0)
    y = np.resize(np.repeat([0, 1, 2], cycle), 900)
    X = rng.normal(size=(900, 2)) + 0.8 * np.eye(3, 2)[y]
    shares = []
    for factor in (1.0, "predictive"):
        model, right = OnlineKDEClassifier(forgetting_factor=factor), []
        for i in range(0, 900, size):
            block = slice(i, i + size)
            if i >= 150:
                right += (model.predict(X[block]) == y[block]).tolist()
            model.partial_fit(X[block], y[block], classes=[0, 1, 2])
        shares.append(np.mean(right))
    assert shares[1] > 0.4
    assert shares[1] > shares[0] - 0.05
