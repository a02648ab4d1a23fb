"""Thresholds by prediction: partitions, the level that is held, and the experts' weights."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm

import twins
from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._engine.compression import MOST_COMPONENTS, THRESHOLDS, Compressed, compress
from skokde._engine.estimates import build_kde
from skokde._engine.experts import by_kind, empty_state
from skokde._engine.kde import KernelFamily, components_in, log_densities_of_groups_in_row
from skokde._engine.learn import next_limit
from skokde._engine.mixture import Resolutions
from skokde._engine.prequential import (
    GROWN_UP,
    MOST_OF_USE,
    NEXT_TO_NO_LOSS,
    NEXT_TO_NOTHING,
    OF_NO_USE,
    WORTH_THE_PRICE,
    Predicted,
    next_level,
    next_level_if_merged,
)
from skokde._engine.state import INITIAL_LIMIT
from skokde._validation import check_settings

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))
N_LEVELS = len(THRESHOLDS) - 1


def fitted(covariance_type="full", n=300, d=2, **parameters):
    return OnlineKDEDensity(covariance_type=covariance_type, **parameters).fit(twins.clumps(d, n))


# -------------------------------------------------------------------------------------- partitions


def assert_refines(finer, coarser):
    """Whoever is together in the first is so in the second."""
    pairs = np.unique(np.stack([finer, coarser]), axis=1)
    assert pairs.shape[1] == finer.max(initial=-1) + 1


@pytest.mark.parametrize("bandwidth", ["predictive", "plugin", [1.0, 0.5]])
@both_structures
def test_coarser_partitions_are_refined_by_finer_ones(covariance_type, bandwidth):
    X = twins.clumps(2, 700)
    X[::50] *= 100.0  # outliers are compressed by themselves
    model = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth)
    sizes = set()
    for start in range(0, 700, 70):
        state = model.partial_fit(X[start : start + 70])._state
        partitions = state.partitions
        assert partitions.shape == (N_LEVELS, state.n_compressed)
        for labels in partitions:
            assert set(labels) == set(range(labels.max() + 1))
        for finer, coarser in pairwise(partitions):
            assert_refines(finer, coarser)
        # Up to the level that is held nothing is to be merged.
        for labels in partitions[: state.level]:
            np.testing.assert_array_equal(np.sort(labels), np.arange(state.n_compressed))
        sizes.add(tuple(labels.max() + 1 for labels in partitions))
    assert len(sizes) > 5
    assert max(len(set(size)) for size in sizes) >= 4


@both_structures
def test_partitions_are_the_clusters_of_what_was_compressed(covariance_type):
    mixture = twins.learned_mixture(twins.clumps(3, 150), covariance_type, threshold=0.0)
    kernel = twins.kernel_frame(mixture, covariance_type)._replace(seeks_gaps=True)
    components = components_in(kernel.frame, *mixture.sample_model)
    # So fine that no threshold is found from others' clusters.
    thresholds = np.array([0.01, 0.02, 0.04, 0.08])
    cuts = {"first_cut": kernel.first_cut, "feature_axes": kernel.feature_axes()}
    alone = [twins.clustered(components, t, **cuts) for t in thresholds]
    for level in range(4):
        new, partitions, taken = compress(mixture, kernel, thresholds, level)
        assert taken == level
        assert new.n_components == alone[level].max() + 1
        assert partitions.shape == (3, new.n_components)
        for number, labels in enumerate(partitions, start=1):
            expected = alone[max(number, level)]
            assert labels.max() == expected.max()
            # Means of what would be merged are those of the samples.
            merged = Resolutions.of(new.sample_model, labels[None])
            direct = twins.merged(mixture, expected, kernel)
            order, other = (np.lexsort(m.means.T) for m in (merged, direct))
            np.testing.assert_allclose(merged.means[order], direct.means[other], atol=1e-9)
            counts = merged.count * merged.weights
            np.testing.assert_allclose(counts[order], direct.counts[other], rtol=1e-12)


@both_structures
def test_no_more_components_than_are_asked_for(covariance_type):
    mixture = twins.learned_mixture(twins.clumps(2, 200), covariance_type, threshold=0.0)
    kernel = twins.kernel_frame(mixture, covariance_type)
    free = compress(mixture, kernel, THRESHOLDS)
    sizes = [free.mixture.n_components, *(free.partitions.max(axis=1) + 1)]
    assert len(set(sizes)) >= 4
    for size in sizes:
        # The lowest threshold that leaves few enough is taken.
        level = sizes.index(size)
        new = compress(mixture, kernel, THRESHOLDS, 0, size)
        assert (new.level, new.mixture.n_components) == (level, size)
        new = compress(mixture, kernel, THRESHOLDS, 0, size + 1)
        assert new.mixture.n_components <= size + 1
    fewest = compress(mixture, kernel, THRESHOLDS[:3], 1, 2)
    assert sizes[2] > 2
    assert (fewest.level, fewest.mixture.n_components) == (2, 2)
    fewest = compress(mixture, kernel, THRESHOLDS, 2, 1)
    assert fewest.mixture.n_components == 1
    assert fewest.partitions.shape == (N_LEVELS, 1)


def test_parts_are_in_clusters_of_their_own():
    first = twins.learned_mixture(np.arange(3.0)[:, None], "full")
    second = twins.learned_mixture(np.arange(2.0)[:, None] + 9.0, "full")
    together = Compressed.of_parts(
        [
            Compressed(first, np.array([[0, 0, 1], [0, 0, 0]]), 0),
            Compressed(second, np.array([[0, 1], [0, 0]]), 1),
        ]
    )
    np.testing.assert_array_equal(together.partitions, [[0, 0, 1, 2, 3], [0, 0, 0, 1, 1]])
    assert together.level == 1
    assert together.mixture.means.ravel().tolist() == [0.0, 1.0, 2.0, 9.0, 10.0]


@both_structures
@pytest.mark.parametrize("d", [1, 3])
def test_grouped_matches_moments(d, covariance_type):
    model = twins.learned_mixture(twins.clumps(d, 150), covariance_type).sample_model
    assert 0 < len(model.covariances) < model.n_components
    n = model.n_components - 3  # of the last ones nothing is said
    labels = np.random.default_rng(0).integers(n // 2, size=n)
    labels = np.unique(labels, return_inverse=True)[1]
    merged = Resolutions.of(model, labels[None])
    assert merged.there.tolist() == [[True]]
    merged = merged.part(0)._replace(counts=merged.count * merged.weights)
    covariances = np.zeros((model.n_components, d, d))
    covariances[: len(model.covariances)] = twins.full_covariances(model.covariances)
    assert merged.n_components == labels.max() + 1 + 3
    np.testing.assert_array_equal(merged.means[-3:], model.means[-3:])
    np.testing.assert_allclose(merged.counts[-3:], model.counts[-3:], rtol=1e-14)
    got = np.zeros((merged.n_components, d, d))
    got[: len(merged.covariances)] = twins.full_covariances(merged.covariances)
    left = set(range(merged.n_components - 3))
    for members in twins.clusters_of(labels):
        count, mean, covariance = twins.moments(
            model.counts[members], model.means[members], covariances[members]
        )
        if covariance_type == "diag":
            covariance = np.diag(np.diag(covariance))
        place = min(left, key=lambda i: np.abs(merged.means[i] - mean).max())
        left.remove(place)
        np.testing.assert_allclose(merged.counts[place], count, rtol=1e-12)
        np.testing.assert_allclose(merged.means[place], mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(got[place], covariance, rtol=1e-9, atol=1e-12)
    assert not left


# ------------------------------------------------------------------------------------------ level


def level_after(shares, level, n_samples, d=1, Estimator=OnlineKDEDensity):
    """The next level, where the thresholds have these shares of the weight."""
    settings = check_settings(Estimator(), d)
    rule, n_shapes = settings.bandwidth, len(settings.shapes)
    counts = np.full(settings.n_experts, 1e-3)
    estimates = np.array(shares)[None, :, None] * np.ones((n_shapes, 1, rule.n_widths))
    counts[: estimates.size] = estimates.ravel()
    state = state_of(n_samples, level, settings, d)._replace(expert_counts=counts)
    return next_level(state, settings)


def state_of(n_samples, level, settings, d):
    """A model of one component that stands for so many samples."""
    state = empty_state(d, settings)
    mixture = state.mixture._replace(counts=np.array([n_samples]), means=np.zeros((1, d)))
    return state._replace(level=level, mixture=mixture)


@pytest.mark.parametrize(
    ("n_samples", "of_no_use"), [(GROWN_UP, OF_NO_USE), (GROWN_UP - 1.0, NEXT_TO_NOTHING)]
)
def test_level_goes_up_where_thresholds_are_of_no_use(n_samples, of_no_use):
    """Merging is for good, so that of few samples next to nothing may speak for them."""
    for level in (0, 1):
        for share, expected in ((0.99 * of_no_use, level + 1), (1.01 * of_no_use, level)):
            n = level + 2
            shares = [share / n] * n + [(1.0 - share) / (7 - n)] * (7 - n)
            assert level_after(shares, level, n_samples) == expected
    # Up to the last but one but two.
    coarsest = [0.0] * N_LEVELS + [1.0]
    assert level_after(coarsest, 3, n_samples) == 4
    assert level_after(coarsest, 4, n_samples) == 4


@pytest.mark.parametrize("d", [1, 65])
def test_classes_give_up_no_threshold_while_they_are_young(d):
    """They are told apart by more than these densities, which wants samples."""
    coarsest = [0.0] * N_LEVELS + [1.0]
    for n_samples, expected in ((GROWN_UP - 1.0, 1), (GROWN_UP, 2)):
        assert level_after(coarsest, 1, n_samples, d, OnlineKDEClassifier) == expected


@pytest.mark.parametrize("n_samples", [GROWN_UP, GROWN_UP - 1.0])
def test_level_goes_down_where_the_present_one_is_most_of_use(n_samples):
    # Merged or not, those up to the present one are the same.
    for share, expected in ((1.01 * MOST_OF_USE, 1), (0.99 * MOST_OF_USE, 2)):
        shares = [share / 3] * 3 + [(1.0 - share) / 4] * 4
        assert level_after(shares, 2, n_samples) == expected
    finest = [1.0] + [0.0] * N_LEVELS
    assert level_after(finest, 1, n_samples) == 0
    assert level_after(finest, 0, n_samples) == 0


@pytest.mark.parametrize(("d", "is_large"), [(1, False), (64, False), (65, True)])
def test_large_components_have_to_be_worth_their_price(d, is_large):
    for share, expected in ((0.99 * WORTH_THE_PRICE, 2), (1.01 * WORTH_THE_PRICE, 1)):
        shares = [share / 3] * 3 + [(1.0 - share) / 4] * 4
        assert level_after(shares, 1, 100.0, d) == (expected if is_large else 1)
    fewer = MOST_COMPONENTS // (2 if is_large else 1)
    settings = check_settings(OnlineKDEDensity(), d)
    assert settings.most_components == settings.most_compounds == fewer
    # Single samples of classes do not count.
    settings = check_settings(OnlineKDEClassifier(), d)
    assert settings.most_components == MOST_COMPONENTS
    assert settings.most_compounds == fewer


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("better_by", [-1.0, 0.0, 0.9 * NEXT_TO_NO_LOSS, 1.0])
@pytest.mark.parametrize("counts", [np.ones(50), np.linspace(0.5, 4.0, 50)])
def test_merged_models_get_coarser_where_nothing_is_lost(level, better_by, counts):
    """Equally good thresholds keep equal weights: these alone would not tell."""
    settings = check_settings(OnlineKDEDensity(), 2)
    finer, _, _ = by_kind(np.arange(settings.n_experts), settings)
    log_densities = np.zeros((50, settings.n_experts))
    log_densities[:, finer[:, : level + 1].ravel()] = better_by
    predicted = Predicted(log_densities, counts)
    state = state_of(counts.sum(), level, settings, 2)
    assert next_level_if_merged(predicted, state, settings) == level + (better_by < 1.0)
    # Young classes do not.
    of_class = settings._replace(of_class=True)
    assert next_level_if_merged(predicted, state, of_class) == level
    grown_up = state_of(GROWN_UP, level, settings, 2)
    assert next_level_if_merged(predicted, grown_up, of_class) == level + (better_by < 1.0)
    # What a coarser one does not know at all is lost.
    log_densities[:, finer[:, level + 1 :].ravel()] = -np.inf
    log_densities[0, finer[:, : level + 1].ravel()] = -np.inf  # and what none knows is not
    _, gaussians, shrunk = by_kind(np.arange(settings.n_experts), settings)
    log_densities[:, np.append(gaussians, shrunk).astype(int)] = -20.0
    assert next_level_if_merged(predicted, state, settings) == level
    highest = N_LEVELS - 2
    assert next_level_if_merged(predicted, state._replace(level=highest), settings) == highest


@pytest.mark.parametrize(
    ("n_components", "n_samples", "d", "expected"),
    [
        (4, 4.0, 2, INITIAL_LIMIT),
        (100, 100.0, 2, 125),  # a quarter of all samples
        (100, 33.0, 2, 125),  # most of which may be forgotten
        (100, 240.0, 2, 151),  # half as many components
        (100, 10_000.0, 2, 164),  # no more than need be new
        (100, 100.0, 65, 151),  # large components
    ],
)
def test_when_fine_models_are_compressed(n_components, n_samples, d, expected):
    settings = check_settings(OnlineKDEDensity(), d)
    mixture = empty_state(d, settings).mixture._replace(
        counts=np.full(n_components, n_samples / n_components), means=np.zeros((n_components, d))
    )
    assert next_limit(mixture, settings) == expected


def test_one_threshold_has_one_level():
    settings = check_settings(OnlineKDEDensity(compression_threshold=0.08), 1)
    assert next_level(empty_state(1, settings), settings) == 0


def features_with_gaps(n, seed):
    """Three features of two values each, but for noise, three normal ones, and their log-density.

    One of those goes along with a value, one with another one of them.
    """
    rng = np.random.default_rng(seed)
    values, noise = rng.integers(0, 2, size=(n, 3)), rng.normal(size=(n, 6))
    X, normal = noise.copy(), norm.logpdf(noise)
    X[:, :3] = values + 0.05 * noise[:, :3]
    X[:, 3] += values[:, 0]
    X[:, 4] += 0.8 * X[:, 3]
    return X, normal.sum(axis=1) - 3.0 * np.log(2.0 * 0.05)


@both_structures
def test_clusters_go_by_gaps_of_features(covariance_type):
    X, true = features_with_gaps(1000, seed=9)
    short = [
        true.mean()
        - OnlineKDEDensity(covariance_type=covariance_type)
        .fit(features_with_gaps(300, seed)[0])
        .score(X)
        for seed in range(3)
    ]
    # 1.4 nats where clusters are cut across principal axes alone.
    assert 0.0 < np.mean(short) < 0.9


@pytest.mark.parametrize("bandwidth", ["predictive", "plugin"])
@both_structures
def test_components_are_bounded(covariance_type, bandwidth, monkeypatch):
    monkeypatch.setattr("skokde._validation.MOST_COMPONENTS", 40)
    rng = np.random.default_rng(0)
    model = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth)
    after, levels = set(), set()
    for _ in range(40):
        model.partial_fit(rng.standard_t(2.0, size=(40, 2)))
        after.add(model._state.n_compressed)
        levels.add(model._state.level)
        assert model.n_components_ <= model._state.limit <= 104  # 64 more, at the most
    assert 30 < max(after) <= 40
    assert max(levels) > 0
    model.set_params(max_components=12).partial_fit(rng.normal(size=(100, 2)))
    assert model.n_components_ <= 12


# -------------------------------------------------------------------------------- experts' weights


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@pytest.mark.parametrize("bandwidth", ["predictive", "plugin"])
@pytest.mark.parametrize("threshold", ["predictive", 0.08])
@both_structures
def test_expert_weights(state_of, covariance_type, threshold, bandwidth, memory):
    for n in (1, 20, 300):
        model = fitted(
            covariance_type,
            n,
            compression_threshold=threshold,
            bandwidth=bandwidth,
            forgetting_factor=memory,
        )
        before = state_of(model)
        weights = model.expert_weights_
        many = threshold == bandwidth == "predictive"
        n_shapes = 3 if many and covariance_type == "full" else 1
        n_thresholds = len(THRESHOLDS) - model._state.level if threshold == "predictive" else 1
        shapes = {
            "threshold": (n_thresholds,),
            "width": ((5 if many else 4) if bandwidth == "predictive" else 1,),
            "shape": (n_shapes,),
            "outliers": (n_shapes, 3 if bandwidth == "predictive" else 0),
            "shrinkage": (0,),
            "memory": (5 if memory == "predictive" else 1,),
        }
        assert {name: array.shape for name, array in weights.items()} == shapes
        for name in ("threshold", "width", "shape", "memory"):
            np.testing.assert_allclose(weights[name].sum(), 1.0, rtol=1e-12)
            # Before the first prediction there is no model that fades.
            none = name == "memory" and memory == "predictive" and n == 1
            assert np.all(weights[name][: -1 if none else None] > 0.0)
        assert 0.0 <= weights["outliers"].sum() < 1.0
        # Nothing is written to, neither by looking nor by whoever got it.
        for array in weights.values():
            array[...] = 7.0
        assert state_of(model) == before
        again = model.expert_weights_
        np.testing.assert_allclose(again["threshold"].sum(), 1.0, rtol=1e-12)
        experts = model.experts_
        held = model._state.level
        assert experts == {
            "threshold": list(THRESHOLDS[held:]) if threshold == "predictive" else [0.08],
            "width": (
                ([1 / 64, 1 / 16, 1 / 4, 1 / 2, 2] if many else [1 / 4, 1 / 2, 1, 2])
                if bandwidth == "predictive"
                else ["plugin"]
            ),
            "shape": ["full", "half of the correlations", "no correlations"][:n_shapes]
            if covariance_type == "full"
            else ["diag"],
            "outliers": [1, 4, 16] if bandwidth == "predictive" else [],
            "shrinkage": [],
            "memory": [1.0, 0.9, 0.97, 0.997, 0.99] if memory == "predictive" else [memory],
        }
        assert {name: len(of) for name, of in experts.items()} == {
            name: array.shape[-1] for name, array in again.items()
        }
        assert state_of(model) == before
    for attribute in ("expert_weights_", "experts_"):
        with pytest.raises(AttributeError, match=attribute):
            getattr(OnlineKDEDensity(), attribute)


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@pytest.mark.parametrize("bandwidth", ["predictive", "plugin"])
@both_structures
def test_the_bandwidth_is_the_average_of_all_that_is_scored(covariance_type, bandwidth, memory):
    # Of samples that came later, and beside short memories.
    model = OnlineKDEDensity(
        covariance_type=covariance_type, bandwidth=bandwidth, forgetting_factor=memory
    )
    for block in np.split(twins.clumps(2, 330), [1, 20, 43, 117, 305]):
        model.partial_fit(block)
        scored = model._kde(model._settings()).bandwidth
        np.testing.assert_allclose(model.bandwidth_, scored, rtol=1e-9, atol=1e-14)
        model.bandwidth_[...] = 7.0  # of whoever got it
        np.testing.assert_allclose(model.bandwidth_, scored, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@both_structures
@pytest.mark.parametrize(("d", "n"), quick([(1, 15), (1, 250), (2, 8)], 2))
def test_what_is_shown_is_what_is_scored(d, n, covariance_type, memory):
    model = fitted(covariance_type, n, d, forgetting_factor=memory)
    mixture = model.distribution().arrays
    np.testing.assert_allclose(mixture[0].sum(), 1.0, rtol=1e-12)
    X = twins.clumps(d, 30, seed=1)
    expected = twins.mixture_log_pdf(X, *mixture)
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-9, atol=1e-9)
    # Each expert is a density, and so are groups of them, and memories.
    kde = model._kde(model._settings())
    points, cells = twins.stretched_grid(*mixture)
    logs, weights = twins.densities_of(kde, points)
    totals = cells @ np.exp(logs)
    np.testing.assert_allclose(totals, 1.0, rtol=1e-6)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    logs, _ = twins.densities_of(kde, X)
    expected = twins.log_mixtures(logs, weights[1:])
    np.testing.assert_allclose(kde.log_densities_of_groups(X), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@both_structures
def test_groups_alone_are_as_among_all(covariance_type, memory):
    model = fitted(covariance_type, 250, 2, forgetting_factor=memory)
    settings = model._settings()
    kde = model._kde(settings)
    X = twins.clumps(2, 90, seed=1)
    expected = kde.log_densities_of_groups(X)
    n, n_memories = len(settings.shapes) * settings.n_sides, len(settings.memories)
    assert kde.n_groups == n + n_memories
    masks = [np.arange(n) == group for group in range(n)] + [np.arange(n) % 2 == 1]
    masks += [np.ones(shapes * settings.n_sides) for shapes in range(1, len(settings.shapes))]
    for chosen in masks:
        chosen = tuple(map(bool, chosen))
        part = build_kde(model._state, settings, model._references(), chosen)
        kept = np.ones(n + n_memories, dtype=bool)
        kept[:n] = (*chosen, *(n - len(chosen)) * [False])
        assert part.n_groups == np.count_nonzero(kept)
        _, weights = twins.densities_of(part, X)
        assert weights.shape[1] < twins.densities_of(kde, X)[1].shape[1]
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
        got = part.log_densities_of_groups(X)
        np.testing.assert_allclose(got, expected[:, kept], rtol=1e-12, atol=1e-12)
        # Single rows, of several densities at a time.
        other = fitted(covariance_type, 30, 2, forgetting_factor=memory)
        other = build_kde(other._state, settings, groups=chosen)
        rows = log_densities_of_groups_in_row(X[0], [part, other, part])
        np.testing.assert_allclose(rows[0], expected[0, kept], rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(rows[0], rows[2])
        alone = other.log_densities_of_groups(X[:1])
        np.testing.assert_allclose(rows[1:2], alone, rtol=1e-9, atol=1e-9)
    reference = model._reference_kde(model._state, settings)
    assert model._reference_kde(model._state, settings, n * (True,)) is reference


@both_structures
def test_classes_have_experts_of_their_own(covariance_type):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=600)
    spikes = 50.0 * rng.integers(0, 4, size=(600, 2))
    X = rng.normal(size=(600, 2)) + np.where(y[:, None] == 0, 0.0, spikes)
    model = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    wide, narrow = (density.expert_weights_["width"] for density in model.estimators_)
    assert wide[-1] > narrow[-1]
    assert narrow[0] + narrow[1] > wide[0] + wide[1]


@both_structures
def test_resolutions_together_are_as_each_alone(covariance_type):
    model = twins.learned_mixture(twins.clumps(2, 150), covariance_type).sample_model
    n, rng = model.n_components - 3, np.random.default_rng(1)
    # Each merges groups of the one before, and leaves others as they were.
    fine = np.unique(rng.integers(n, size=n), return_inverse=True)[1]
    sizes = fine.max() + 1
    coarse = np.unique(np.minimum(np.arange(sizes), sizes // 2), return_inverse=True)[1]
    partitions = np.array([np.arange(n), fine, coarse[fine], np.zeros(n)], dtype=np.intp)
    together = Resolutions.of(model, partitions)
    assert len(together.weights) < sum(partitions.max(axis=1) + 1 + 3)
    np.testing.assert_allclose(together.masses @ together.there, 1.0, rtol=1e-12)
    # Parts are of different spans, one each.
    spans = {tuple(np.flatnonzero(there)[[0, -1]].tolist()) for there in together.there}
    assert {(0, 0), (0, 1), (0, 2), (0, 3), (3, 3)} <= spans
    assert len(spans) == len(together.there)
    settings = twins.settings_of(covariance_type, 2, bandwidth="predictive")
    mixture = twins.learned_mixture(twins.clumps(2, 150), covariance_type)
    (kernels,) = settings.bandwidth.kernels(mixture, settings.structure)
    family = KernelFamily.of(together.with_mean(kernels.frame.center), kernels)
    of_gaussians = np.zeros((kernels.n_kernels, kernels.n_gaussians))
    points = twins.clumps(2, 20, seed=1)
    for number, labels in enumerate(partitions):
        alone = KernelFamily.of(Resolutions.of(model, labels[None]), kernels.without_gaussians())
        of_kernels = np.zeros((kernels.n_kernels, len(partitions), kernels.n_kernels))
        of_kernels[:, number] = np.eye(kernels.n_kernels)
        got = family.log_mixtures(points, family.weights(of_kernels, of_gaussians))
        np.testing.assert_allclose(got, alone.log_densities(points), rtol=1e-12, atol=1e-12)
    # The finest is the model as it is.
    as_it_is = KernelFamily.of(Resolutions.of_one(model), kernels.without_gaussians())
    alone = KernelFamily.of(Resolutions.of(model, partitions[:1]), kernels.without_gaussians())
    np.testing.assert_allclose(
        alone.log_densities(points), as_it_is.log_densities(points), rtol=1e-12, atol=1e-12
    )
