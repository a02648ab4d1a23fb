"""Bandwidths by prediction: kernels of several widths, and what they are weighted with."""

import gc
import pickle
from itertools import pairwise, product
from weakref import WeakSet, ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, spearmanr
from sklearn.covariance import OAS
from sklearn.metrics import roc_auc_score

import skokde._density
import twins
from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._base import Snapshot
from skokde._engine.bandwidth import (
    COMPRESSION_SCALE,
    FINE_KERNEL_SCALES,
    GAUSSIAN_SCALES,
    KERNEL_SCALES,
    N_NARROW,
    RULES,
    fine_predictive,
    normal_reference,
    shrinkage,
)
from skokde._engine.covariance import SHAPES, STRUCTURES, FullCovariance
from skokde._engine.estimates import PACE, build_kde, reference_kde, reference_part
from skokde._engine.experts import (
    NEGLIGIBLE,
    PRIOR_COUNT,
    WIDEST_KERNELS_AT,
    Experts,
    Grid,
    by_kind,
    empty_state,
    one_each,
    prior_counts,
)
from skokde._engine.learn import learn
from skokde._engine.mixture import total_moments
from skokde._engine.outliers import inliers
from skokde._engine.prequential import (
    EM_STEPS,
    ENOUGH_FOR_HALF,
    LONGEST_MEMORY,
    MEMORY,
    N_FOLDS,
    em_update,
    predict_latest,
    prequential_splits,
)
from skokde._engine.shrinkage import shrink_covariance
from skokde._engine.state import INITIAL_LIMIT, State

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))

N_EXPERTS = len(KERNEL_SCALES) + len(GAUSSIAN_SCALES)
SOME_COUNTS = np.linspace(0.5, 3.0, N_EXPERTS)
PRIOR = np.full(N_EXPERTS, PRIOR_COUNT / N_EXPERTS)


def compressed(d, covariance_type, n=150, **parameters):
    return twins.learned_mixture(
        twins.clumps(d, n), covariance_type, bandwidth="predictive", threshold=0.05, **parameters
    )


def density(covariance_type="full", compression_threshold=0.08, **parameters):
    """Of one threshold, unless it is said otherwise."""
    return OnlineKDEDensity(
        covariance_type=covariance_type,
        compression_threshold=compression_threshold,
        **parameters,
    )


def density_of(covariance_type, X, **parameters):
    return density(covariance_type, **parameters).fit(X)


def kde_of(model):
    """What is scored."""
    return model._kde(model._settings())


def reference_of(model):
    """The part that the kernels take their shape from."""
    return reference_part(model._state, model._settings())


def state_and_settings(mixture, n_compressed, counts, covariance_type, target=None):
    settings = twins.settings_of(
        covariance_type, mixture.n_features, bandwidth="predictive", target=target
    )
    partitions = one_each(n_compressed, settings)
    state = State(mixture, INITIAL_LIMIT, n_compressed, 0, partitions, counts, None)
    return state, settings


def experts_of(mixture, covariance_type, target=None):
    """Those of all components, as if they had come out of a compression."""
    state, settings = state_and_settings(
        mixture, mixture.n_components, PRIOR, covariance_type, target
    )
    return Experts.of(mixture, Grid.of(state.partitions, settings), settings)


def logs_of(experts, points, covariance_type):
    settings = twins.settings_of(covariance_type, points.shape[1], bandwidth="predictive")
    return experts.log_densities(points, settings)


def scored(mixture, covariance_type, counts, target=None):
    """What is scored of these experts, by their counts."""
    _, settings = state_and_settings(mixture, mixture.n_components, PRIOR, covariance_type, target)
    return experts_of(mixture, covariance_type, target).mixed(counts, settings)


# ---------------------------------------------------------------------------------------- widths


def widths_by_hand(mixture, covariance_type, prior=None, leading=None):
    """Weights, means and covariances for each width, from the definition.

    The kernels are those of the leading components, by default of all.
    """
    count, mean, covariance = twins.mixture_moments(leading or mixture)
    d = len(mean)
    if prior is not None:
        covariance = (count * covariance + d * prior) / (count + d)
    else:
        covariance = twins.of_kernels(covariance, count)
    if covariance_type == "diag":
        covariance = np.diag(np.diag(covariance))
    full = twins.full_covariances(mixture.all_covariances())
    weights = mixture.counts / mixture.counts.sum()
    reference = (4.0 / ((d + 2) * count)) ** (1.0 / (d + 4))
    mixtures = []
    for scale in KERNEL_SCALES:
        b = scale * reference
        a = (1.0 + b**2) ** -0.5
        mixtures.append(
            (weights, mean + a * (mixture.means - mean), a**2 * (full + b**2 * covariance))
        )
    for scale in GAUSSIAN_SCALES:
        mixtures.append((np.ones(1), mean[None], scale**2 * covariance[None]))
    return mixtures


def random_prior(d, covariance_type):
    root = np.random.default_rng(d).normal(size=(d, d))
    prior = root @ root.T + np.eye(d)
    return np.diag(prior).copy() if covariance_type == "diag" else prior


@pytest.mark.parametrize("with_a_prior", [False, True], ids=["", "prior"])
@pytest.mark.parametrize("n", [20, 150], ids=["uncompressed", "compressed"])
@both_structures
@pytest.mark.parametrize("d", [1, 2, 4])
def test_log_density_is_that_of_the_explicit_mixture(d, covariance_type, n, with_a_prior):
    mixture = compressed(d, covariance_type, n)
    assert (mixture.n_compounds > 0) == (n == 150)
    prior = random_prior(d, covariance_type) if with_a_prior else None
    kde = scored(mixture, covariance_type, SOME_COUNTS, prior)
    points = twins.clumps(d, 40, seed=1)
    full_prior = None if prior is None else twins.full_covariances(prior[None])[0]
    by_hand = widths_by_hand(mixture, covariance_type, full_prior)
    logs = np.column_stack([twins.mixture_log_pdf(points, *parts) for parts in by_hand])
    (family,) = kde.families
    np.testing.assert_allclose(family.log_densities(points), logs, rtol=1e-9, atol=1e-9)
    shares = SOME_COUNTS / SOME_COUNTS.sum()
    np.testing.assert_allclose(twins.kernel_weights(kde), shares, rtol=1e-14)
    np.testing.assert_allclose(
        kde.log_density(points), np.log(np.exp(logs) @ shares), rtol=1e-9, atol=1e-9
    )
    # What is shown is the same mixture.
    expected = [np.concatenate(arrays) for arrays in zip(*by_hand, strict=True)]
    expected[0] = np.concatenate([w * parts[0] for w, parts in zip(shares, by_hand, strict=True)])
    weights, means, covariances = kde.gaussians()
    np.testing.assert_allclose(weights, expected[0], rtol=1e-12)
    np.testing.assert_allclose(means, expected[1], rtol=1e-12, atol=1e-12)
    covariances = twins.full_covariances(covariances)
    np.testing.assert_allclose(covariances, expected[2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [28, 150], ids=["uncompressed", "compressed"])
@both_structures
@pytest.mark.parametrize("d", [1, 3])
def test_outliers_stay_where_they_are(d, covariance_type, n):
    """The narrowest kernels of components far out are not shrunk, the others as much less."""
    X = twins.clumps(d, n)
    X[5::15] += 1e3 * X.std(axis=0)
    mixture = twins.learned_mixture(X, covariance_type, bandwidth="predictive", threshold=0.05)
    far = ~inliers(mixture)
    assert 0 < far.sum() < len(far)
    near_mixture = mixture.part(~far)
    count, mean, covariance = twins.mixture_moments(near_mixture)
    expected = []
    full = twins.full_covariances(mixture.all_covariances())
    reference = (4.0 / ((d + 2) * count)) ** (1.0 / (d + 4))
    shrinks = [1.0 / np.hypot(1.0, scale * reference) for scale in KERNEL_SCALES]
    for scale, a in zip(KERNEL_SCALES, shrinks, strict=True):
        of_means = np.where(far, a / shrinks[0], a)[:, None]
        kernel = (scale * reference) ** 2 * twins.of_kernels(covariance, count)
        if covariance_type == "diag":
            kernel = np.diag(np.diag(kernel))
        expected.append((mean + of_means * (mixture.means - mean), a**2 * (full + kernel)))
    np.testing.assert_allclose(expected[0][0][far], mixture.means[far], rtol=1e-14)
    experts, weights = experts_of(mixture, covariance_type), mixture.counts / mixture.counts.sum()
    points = np.concatenate([X[:30], mixture.means[far]])
    logs = logs_of(experts, points, covariance_type)[:, : len(KERNEL_SCALES)]
    by_hand = [twins.mixture_log_pdf(points, weights, *parts) for parts in expected]
    np.testing.assert_allclose(logs, np.transpose(by_hand), rtol=1e-8, atol=1e-8)
    shown = scored(mixture, covariance_type, SOME_COUNTS).gaussians()
    for i, (means, covariances) in enumerate(expected):
        part = slice(i * len(far), (i + 1) * len(far))
        np.testing.assert_allclose(shown[1][part], means, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(
            twins.full_covariances(shown[2][part]), covariances, rtol=1e-9, atol=1e-12
        )
    # Those that come later do so, too.
    later = mean[None] - 1e4 * np.sqrt(np.diag(covariance))
    family = experts.families[0]
    family = family.of_diracs(family.diracs(np.ones(1), later))
    gaussians = family.gaussians(np.ones((1, len(KERNEL_SCALES))))
    for column, parts in zip(family.log_densities(later).T, gaussians, strict=True):
        np.testing.assert_allclose(column, twins.mixture_log_pdf(later, *parts), rtol=1e-8)
    np.testing.assert_allclose(gaussians[0][1][-1:], later, rtol=1e-14)


def density_with_all_in_its_kernels(covariance_type, X, n, **parameters):
    """Of the first n rows, or of some more, until its kernels take all of them into account."""
    model = density_of(covariance_type, X[:n], **parameters)
    for row in X[n:]:
        if reference_of(model).n_components == model.n_components_:
            return model
        model.partial_fit(row[None])
    raise AssertionError("some came later at all times")


@pytest.mark.parametrize("n", [20, 150], ids=["uncompressed", "compressed"])
@both_structures
@pytest.mark.parametrize("d", [1, 3])
def test_each_width_keeps_mean_and_covariance(d, covariance_type, n):
    # But for the doubtful part of the correlations, by the share of the kernels.
    X = twins.clumps(d, n + 20)
    model = density_with_all_in_its_kernels(covariance_type, X, n, compression_threshold=0.05)
    mixture = model._mixture
    assert (mixture.n_compounds > 0) == (n == 150)
    count, mean, covariance = twins.mixture_moments(mixture)
    of_kernels = twins.of_kernels(covariance, count)
    variances = np.diag(np.diag(covariance))
    np.testing.assert_allclose(np.diag(np.diag(of_kernels)), variances, rtol=1e-15)
    assert np.abs(of_kernels - covariance).max() < 0.01 * np.diag(covariance).max()
    reference = (4.0 / ((d + 2) * count)) ** (1.0 / (d + 4))
    k = mixture.n_components
    # All the weight on one width at a time: what is shown has its components in this order.
    weights, means, covariances = model.distribution().arrays
    covariances = twins.full_covariances(covariances)
    assert len(weights) == k * len(KERNEL_SCALES) + len(GAUSSIAN_SCALES)
    for i, scale in enumerate(KERNEL_SCALES):
        part = slice(i * k, (i + 1) * k)
        got = twins.moments(weights[part] / weights[part].sum(), means[part], covariances[part])
        share = (scale * reference) ** 2 / (1.0 + (scale * reference) ** 2)
        expected = 1.0, mean, (1.0 - share) * covariance + share * of_kernels
        twins.assert_same_moments(got, expected, covariance_type, rtol=1e-9)
    for mean_of, wide, scale in zip(means[-3:], covariances[-3:], GAUSSIAN_SCALES, strict=True):
        got = 1.0, mean_of, wide / scale**2
        twins.assert_same_moments(got, (1.0, mean, of_kernels), covariance_type, rtol=1e-9)


@pytest.mark.parametrize("factor", [1.0, 0.99])
@both_structures
def test_kernels_follow_the_samples_at_a_pace(covariance_type, factor):
    X = twins.clumps(2, 400)
    parameters = {"compression_threshold": 0.05, "forgetting_factor": factor}
    model = density_of(covariance_type, X[:200], **parameters)
    kept, fresh, frames = 0, 0, set()
    for row in X[200:]:
        model.partial_fit(row[None])
        model.score_samples(row[None])
        mixture, n_compressed = model._mixture, model._state.n_compressed
        part = reference_of(model)
        later = mixture.n_components - part.n_components
        assert 0 <= later < max(1, PACE * part.counts.sum())
        assert part.n_components >= n_compressed
        assert part.covariances is mixture.covariances
        kept, fresh = kept + (later > 0), fresh + (later == 0)
        frames.add(kde_of(model).families[0].kernels.frame.center.tobytes())
    assert kept > 5 * fresh > 0
    # Without the samples that came later each kernel is the same, but for the weight of all.
    assert len(frames) < 0.3 * 200


@pytest.mark.parametrize("factor", [1.0, 0.99])
@both_structures
def test_samples_that_came_later_are_scored_in_the_same_kernels(covariance_type, factor):
    X = twins.clumps(2, 400)
    parameters = {"compression_threshold": 0.05, "forgetting_factor": factor}
    model = density_of(covariance_type, X[:390], **parameters)
    for row in X[390:]:
        model.partial_fit(row[None])
        part = reference_of(model)
        if part.n_components + 3 <= model.n_components_:
            break
    else:
        raise AssertionError("none came later at any time")
    mixture, points = model._mixture, X[:20]
    by_hand = widths_by_hand(mixture, covariance_type, leading=part)
    logs = np.column_stack([twins.mixture_log_pdf(points, *parts) for parts in by_hand])
    shares = model._state.expert_counts / model._state.expert_counts.sum()
    expected = np.log(np.exp(logs) @ shares)
    np.testing.assert_allclose(model.score_samples(points), expected, rtol=1e-9)


@pytest.mark.parametrize("forgetting_factor", [1.0, 0.98])
@both_structures
def test_scores_do_not_depend_on_what_was_scored_before(covariance_type, forgetting_factor):
    # What is kept between rows must be what a model that never scored makes.
    X = twins.clumps(3, 320)
    # Rows that repeat earlier ones, Diracs or not, change counts that the kernels go by.
    X[250:] = X[np.random.default_rng(0).integers(0, 250, size=70)]
    model = density_of(covariance_type, X[:60], forgetting_factor=forgetting_factor)
    for i, row in enumerate(X[60:]):
        weight = 1.0 + i % 3
        model.partial_fit(row[None], sample_weight=[weight])
        fresh = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(model.score_samples(X[:9]), fresh.score_samples(X[:9]))


@both_structures
def test_scores_are_those_under_the_target_that_is_given(covariance_type):
    # Nor on the targets that scores were asked for before.
    model = density_of(covariance_type, twins.clumps(2, 150))
    model.partial_fit(twins.clumps(2, 3, seed=1))
    points = twins.clumps(2, 20, seed=2)
    targets = [random_prior(2, covariance_type), 100.0 * random_prior(2, covariance_type), None]
    different = set()
    for target in (*targets, *targets):
        settings = model._settings()._replace(shrinkage_target=target)
        got = model._kde(settings).log_density(points)
        expected = build_kde(model._state, settings).log_density(points)
        np.testing.assert_array_equal(got, expected)
        different.add(got.tobytes())
    assert len(different) == 3


def test_shrinkage_leads_from_the_samples_to_one_gaussian():
    np.testing.assert_allclose(shrinkage(np.array([0.0, 1.0, 1e9])), [1.0, 0.5**0.5, 1e-9])


@both_structures
def test_bandwidth_is_the_average_of_the_kernels(covariance_type):
    X = twins.clumps(2, 25)
    model = density_of(covariance_type, X)
    weights, _, covariances = model.distribution().arrays
    # Of single samples the kernels are all that there is, besides the three Gaussians at the end.
    n = 25 * len(KERNEL_SCALES)
    expected = np.tensordot(weights[:n] / weights[:n].sum(), covariances[:n], axes=1)
    np.testing.assert_allclose(model.bandwidth_, expected, rtol=1e-10)


@both_structures
def test_compression_goes_by_a_narrower_kernel_than_the_normal_reference(covariance_type):
    mixture = compressed(2, covariance_type)
    kernel = twins.kernel_frame(mixture, covariance_type, "predictive")
    reference = normal_reference(2, mixture.counts.sum())
    assert kernel.scale == COMPRESSION_SCALE * reference < reference
    given_ = twins.learned_mixture(
        twins.clumps(2, 150), covariance_type, bandwidth=COMPRESSION_SCALE, threshold=0.05
    )
    for ours, theirs in zip(mixture, given_, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --------------------------------------------------------------- coarser levels and other shapes


RULES_BY_NAME = {"fine": fine_predictive()} | RULES


def levels_and_shapes(covariance_type, d, bandwidth="predictive", target=None):
    """Settings with two coarser levels, and kernels of all shapes that there are."""
    settings = twins.settings_of(covariance_type, d, bandwidth="predictive", target=target)
    return settings._replace(
        bandwidth=RULES_BY_NAME[bandwidth],
        thresholds=np.array([0.015, 0.05, 0.2]),
        shapes=SHAPES.get(covariance_type, (STRUCTURES[covariance_type],)),
    )


def merged_by_hand(mixture, labels):
    """Weights, means and full covariances with the groups of the leading components merged."""
    full = twins.full_covariances(mixture.all_covariances())
    n = len(labels)
    parts = [
        twins.moments(mixture.counts[group], mixture.means[group], full[group])
        for group in twins.clusters_of(labels)
    ]
    parts += zip(mixture.counts[n:], mixture.means[n:], full[n:], strict=True)
    counts, means, covariances = (np.array(arrays) for arrays in zip(*parts, strict=True))
    return counts / counts.sum(), means, covariances


@pytest.mark.parametrize("with_a_target", [False, True], ids=["", "target"])
@pytest.mark.parametrize("bandwidth", ["predictive", "fine", "silverman"])
@both_structures
@pytest.mark.parametrize("d", quick([2, 4]))
def test_experts_of_coarser_levels_and_other_shapes(d, covariance_type, bandwidth, with_a_target):
    target = random_prior(d, covariance_type) if with_a_target else None
    settings = levels_and_shapes(covariance_type, d, bandwidth, target)
    X = twins.clumps(d, 170, seed=3)
    X[::10] *= 2.0  # some of which stay alone
    state = learn(empty_state(d, settings)._replace(level=0), X, np.ones(len(X)), settings)
    mixture, n = state.mixture, state.n_compressed
    n_groups = [labels.max() + 1 for labels in state.partitions]
    assert mixture.n_components > n > n_groups[0] > n_groups[1] > 0
    assert mixture.n_compounds < n
    experts = Experts.of(mixture, Grid.of(state.partitions, settings), settings)
    points = twins.clumps(d, 40, seed=1)
    count, mean, covariance = twins.mixture_moments(mixture)
    if with_a_target:
        full_target = twins.full_covariances(target[None])[0]
        covariance = (count * covariance + d * full_target) / (count + d)
    reference = normal_reference(d, count)
    scales = {"predictive": KERNEL_SCALES, "fine": FINE_KERNEL_SCALES, "silverman": (1.0,)}[
        bandwidth
    ]
    shrinks = bandwidth != "silverman"
    if shrinks and not with_a_target:
        covariance = twins.of_kernels(covariance, count)
    by_hand, gaussians = [], []
    assert len(settings.thresholds) <= WIDEST_KERNELS_AT + 1
    for shape in settings.shapes:
        left = 0.0 if shape.name == "diag" else shape.correlations
        only = left + (1.0 - left) * np.eye(d)
        merged = [merged_by_hand(mixture, g) for g in (np.arange(n), *state.partitions)]
        for level, scale in product(range(len(merged)), scales):
            # Whatever the threshold, the widest kernels are those of one resolution.
            widest = bandwidth == "fine" and scale == max(scales)
            weights, means, covariances = merged[-1 if widest else level]
            b = reference * scale
            a = 1.0 / np.hypot(1.0, b) if shrinks else 1.0
            shrunk = mean + a * (means - mean)
            widened = a**2 * only * (covariances + b**2 * covariance)
            by_hand.append(twins.mixture_log_pdf(points, weights, shrunk, widened))
        for scale in GAUSSIAN_SCALES if shrinks else ():
            gaussians.append(twins.log_pdf(points, mean, scale**2 * only * covariance))
    logs = np.transpose(by_hand + gaussians)
    assert logs.shape[1] == settings.n_experts
    got = experts.log_densities(points, settings)
    np.testing.assert_allclose(got, logs, rtol=1e-9, atol=1e-9)
    # The kernel frame of the model is not that of other shapes.
    frame = settings.bandwidth.kernel_frame(mixture, settings.structure)
    again = Experts.of(mixture, Grid.of(state.partitions, settings), settings, kernel_frame=frame)
    np.testing.assert_array_equal(again.log_densities(points, settings), got)
    # What is scored is their mixture, without levels of next to no weight beside the best one of
    # their shape; of the others no width is left out.
    counts = np.linspace(1.0, 2.0, settings.n_experts)
    of_estimates = counts[: len(by_hand)].reshape(len(settings.shapes), 3, -1)
    of_estimates[:, 1] *= 1e-5
    of_estimates[0, 2] *= 2.0 * NEGLIGIBLE
    of_estimates[-1] *= 1e-2
    if shrinks:
        of_estimates[0, 0, 1] = 1e-5
    experts = Experts.of(mixture, Grid.of(state.partitions, settings), settings, counts)
    kde = experts.mixed(counts, settings)
    expected = np.log(np.exp(logs) @ counts / counts.sum())
    np.testing.assert_allclose(kde.log_density(points), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        kde.log_density(points), twins.mixture_log_pdf(points, *kde.gaussians()), rtol=1e-9
    )
    of_estimates[:, 1, : len(scales) - 1 if bandwidth == "fine" else None] = 0.0
    expected = np.log(np.exp(logs) @ counts / counts.sum())
    np.testing.assert_allclose(kde.log_density(points), expected, rtol=1e-9, atol=1e-9)
    assert experts.matter.sum(axis=1).tolist() == [2] * len(settings.shapes)
    # The same by groups: of each shape the narrow kernels and the wide ones, with the Gaussians.
    narrow = np.arange(len(scales)) < (N_NARROW if bandwidth == "fine" else 0)
    sides = (narrow, ~narrow) if bandwidth == "fine" else (~narrow,)
    assert kde.n_groups == len(sides) * len(settings.shapes)
    groups = []
    for number in range(len(settings.shapes)):
        for side in sides:
            chosen = np.zeros_like(of_estimates, dtype=bool)
            chosen[number] = side
            n_gaussians = len(gaussians) // len(settings.shapes)
            of_gaussians = np.repeat(np.arange(len(settings.shapes)), n_gaussians)
            weights = counts * np.append(chosen.ravel(), of_gaussians == number)
            groups.append(np.log(np.exp(logs) @ weights / weights.sum()))
    np.testing.assert_allclose(
        kde.log_densities_of_groups(points), np.transpose(groups), rtol=1e-9, atol=1e-9
    )
    _, weights = twins.densities_of(kde, points)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("factor", [0.999, 0.9, 0.3])
def test_a_reference_stays_as_it_is_while_samples_fade(factor):
    X = twins.clumps(2, 500)
    model = OnlineKDEDensity(compression_threshold=0.05, forgetting_factor=factor).fit(X[:300])
    same = changed = 0
    before = reference_of(model)
    for row in X[300:]:
        model.partial_fit(row[None])
        part, counts = reference_of(model), model._mixture.counts
        n = part.n_components
        # But for the last digits they are what forgetting has not taken yet.
        left = factor ** (len(counts) - n)
        np.testing.assert_allclose(left * part.counts, counts[:n], rtol=1e-8)
        if part.covariances is before.covariances and n == before.n_components:
            same += np.array_equal(part.counts, before.counts)
            changed += not np.array_equal(part.counts, before.counts)
        before = part
    assert changed <= 0.02 * same
    if factor == 0.999:
        assert same > 100


@both_structures
def test_later_samples_count_once_where_the_finest_resolution_is_not_scored(covariance_type):
    settings = levels_and_shapes(covariance_type, 2, "predictive")
    X = twins.clumps(2, 170, seed=3)
    state = learn(empty_state(2, settings), X, np.ones(len(X)), settings)
    counts = np.ones(settings.n_experts)
    of_estimates, _, _ = by_kind(counts, settings)
    of_estimates[:, 0] = 1e-5
    state = state._replace(expert_counts=counts)
    mixture, n = state.mixture, reference_part(state, settings).n_components
    assert n < mixture.n_components
    before, kde = reference_kde(state, settings), build_kde(state, settings)
    points, share = twins.clumps(2, 20, seed=1), mixture.counts[n:].sum() / len(X)
    expected = 0.0
    for family, held in zip(before.families, before.weights, strict=True):
        assert family.models.there.shape[1] == 2  # of three
        of_kernels, of_gaussians = held.copy(), held.copy()
        of_kernels[:, :, family.kernels.n_kernels :] = 0.0
        of_gaussians[:, :, : family.kernels.n_kernels] = 0.0
        expected += (1.0 - share) * np.exp(family.log_mixtures(points, of_kernels))
        expected += np.exp(family.log_mixtures(points, of_gaussians))
        kernels = twins.full_covariances(family.kernels.covariances_back())
        for width in range(family.kernels.n_kernels):
            shrink, center = family.kernels.shrinks[width], family.kernels.frame.center
            means = center + shrink * (mixture.means[n:] - center)
            weights = mixture.counts[n:] / mixture.counts[n:].sum()
            kernels_of_all = np.tile(kernels[width], (len(means), 1, 1))
            later = np.exp(twins.mixture_log_pdf(points, weights, means, kernels_of_all))
            expected += share * later[:, None] * (family.masses @ held[:, :, width].T)
    expected = np.log(expected)
    np.testing.assert_allclose(kde.log_density(points), expected[:, 0], rtol=1e-9, atol=1e-9)
    got = kde.log_densities_of_groups(points)
    np.testing.assert_allclose(got, expected[:, 1:], rtol=1e-9, atol=1e-9)


@both_structures
def test_levels_and_shapes_for_any_block_size(covariance_type):
    X = twins.clumps(2, 200)
    settings = levels_and_shapes(covariance_type, 2)
    states = []
    for size in (200, 7, 1):
        state = empty_state(2, settings)
        for start in range(0, 200, size):
            block = X[start : start + size]
            state = learn(state, block, np.ones(len(block)), settings)
        states.append(state)
    for state in states[1:]:
        np.testing.assert_array_equal(state.partitions, states[0].partitions)
        np.testing.assert_array_equal(state.expert_counts, states[0].expert_counts)
        for ours, theirs in zip(state.mixture, states[0].mixture, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    # A model that had one level and one shape goes on with them, and the other way round.
    plain = twins.settings_of(covariance_type, 2, bandwidth="predictive")
    for first, second in ((plain, settings), (settings, plain)):
        state = learn(empty_state(2, first), X[:140], np.ones(140), first)
        assert np.isfinite(build_kde(state, second).log_density(X)).all()
        state = learn(state, X[140:], np.ones(60), second)
        assert len(state.partitions) == second.n_levels
        assert len(state.expert_counts) == second.n_experts


def test_groups_that_change_are_scored_at_once():
    # A compression that merges nothing leaves the same components, perhaps in other groups.
    settings = levels_and_shapes("full", 2)
    X = twins.clumps(2, 150)
    model = density_of("full", X)
    state = learn(empty_state(2, settings), X, np.ones(len(X)), settings)
    different = set()
    for partitions in (state.partitions, np.zeros_like(state.partitions)):
        model._state = state._replace(partitions=partitions)
        model._snapshot = Snapshot(model._snapshot)  # as learning does
        got = model._kde(settings).log_density(X)
        np.testing.assert_array_equal(got, build_kde(model._state, settings).log_density(X))
        different.add(got.tobytes())
    assert len(different) == 2


def test_of_earlier_states_nothing_is_held():
    X = twins.clumps(3, 400)
    model = OnlineKDEDensity().fit(X[:200])
    before = model._state.partitions
    model.score_samples(X[:5])
    kde = ref(model._reference_kde_of_all(model._state, model._settings()))
    for row in X[200:]:
        model.partial_fit(row[None])
        if model._state.partitions is not before:
            break
    gc.collect()
    assert len(model._state.mixture.counts) > 5
    assert kde() is None


def test_replaced_densities_of_classes_are_let_go_of():
    X, y = twins.clumps(3, 400), np.arange(400) % 2
    model = OnlineKDEClassifier(calibrate=False).fit(X[:300], y[:300])
    model.predict_proba(X[:5])
    replaced = WeakSet(model.estimators_)
    model.partial_fit(X[300:], y[300:])
    gc.collect()
    assert not replaced
    model.predict_proba(X[:5])
    known = WeakSet(model.estimators_)
    model.predict_proba(X[:5])
    assert len(known) == 2


def test_shapes_of_kernels_hold_the_same_covariances():
    X = twins.clumps(3, 400)
    model = OnlineKDEDensity().fit(X)
    state, settings = model._state, model._settings()
    grid = Grid.of(state.partitions, settings)
    families = Experts.of(state.mixture, grid, settings).families
    assert len(families) == 3
    assert state.mixture.n_compounds
    for family in families:
        assert family.models.unshaped[0] is state.mixture.covariances
        assert family.models.unshaped[1] is families[0].models.unshaped[1]
    full, half, diagonal = (family.models.covariances() for family in families)
    np.testing.assert_allclose(half, 0.5 * (full + np.eye(3) * full), rtol=1e-12)
    np.testing.assert_array_equal(diagonal, np.diagonal(full, axis1=1, axis2=2))


def test_what_is_used_again_is_kept():
    made, snapshot = [], Snapshot()

    def ask(key):
        return snapshot.lasting("name", key, lambda: made.append(key) or key, n_kept=2)

    for later in "bcd":
        assert ask("a") == "a"
        assert ask(later) == later
    assert made == ["a", "b", "c", "d"]
    ask("c")  # was not asked for since "d", and "a" was
    assert made == ["a", "b", "c", "d", "c"]


def test_what_is_made_for_earlier_rows_is_handed_on():
    first = Snapshot()
    first.lasting("own", "a", str)
    first.lasting("changed", "a", str)
    later = Snapshot(first)
    later.lasting("own", "b", lambda: "later")
    with first.handing_on(later):
        first.lasting("own", "c", str)
        first.lasting("changed", "c", lambda: "first")
        first.lasting("new", "c", lambda: "first")
    assert later.lasting("own", "b", str) == "later"
    assert later.lasting("changed", "c", str) == "first"
    assert later.lasting("new", "c", str) == "first"


def test_short_windows_make_only_what_has_changed(monkeypatch):
    X, y = twins.clumps(3, 900), np.arange(900) % 2
    model = OnlineKDEClassifier(forgetting_factor="predictive").fit(X[:700], y[:700])
    made, make = [], skokde._density.reference_kde

    def counted(state, settings, **parameters):
        made.append(settings.transformed)
        return make(state, settings, **parameters)

    monkeypatch.setattr(skokde._density, "reference_kde", counted)
    starts = set()
    for row, label in zip(X[700:], y[700:], strict=True):
        model.partial_fit(row[None], [label])
        if model._calibration.pending is not None:
            starts.add(model._calibration.pending.start)
    # Each of the windows predicts by both classes.
    assert sum(made) < len(starts)


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
def test_densities_get_better_while_rows_come_to_be_as_many_as_features():
    # Their covariance has next to no spread in some directions then.
    scores = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        factors = rng.normal(size=(8, 60))
        X = twins.through_factors(rng.normal(size=(500, 8)), factors, 0.2, rng)
        models = [OnlineKDEDensity().fit(X[:n]) for n in (30, 50, 62, 80, 120)]
        scores.append([model.score_samples(X[200:]).mean() for model in models])
    assert (np.diff(np.mean(scores, axis=0)) > 0.0).all()


@both_structures
def test_an_estimate_is_scored_however_little_its_weight(covariance_type):
    # Else there were no kernel, and no bandwidth to show.
    mixture = compressed(2, covariance_type)
    counts = np.where(np.arange(N_EXPERTS) < len(KERNEL_SCALES), 0.0, 1.0)
    counts[2] = 1e-6
    kde = scored(mixture, covariance_type, counts)
    of_kernels = twins.kernel_weights(kde)[: len(KERNEL_SCALES)]
    np.testing.assert_array_equal(np.flatnonzero(of_kernels), [2])
    bandwidth = twins.full_covariances(kde.bandwidth[None])[0]
    expected = widths_by_hand(mixture, covariance_type)[2][2][-1]
    assert not mixture.all_covariances()[-1].any()
    np.testing.assert_allclose(bandwidth, expected, rtol=1e-9, atol=1e-12)


# ----------------------------------------------------------------------- counts of the experts


def naive_em_update(expert_counts, log_densities, counts):
    """Expectation maximisation, sample by sample."""
    new = list(expert_counts)
    for _ in range(EM_STEPS):
        total = list(expert_counts)
        for logs, count in zip(log_densities, counts, strict=True):
            densities = np.exp(logs - max(logs))
            shares = np.array(new) * densities
            shares = shares / shares.sum()
            for i, share in enumerate(shares):
                total[i] += count * share
        new = total
    return np.array(new)


@given(n=st.integers(0, 20), seed=st.integers(0, 1000), spread=st.sampled_from([0.1, 5.0, 300.0]))
def test_em_update_is_expectation_maximisation(n, seed, spread):
    rng = np.random.default_rng(seed)
    log_densities = spread * rng.normal(size=(n, N_EXPERTS)) - 400.0
    counts = rng.uniform(0.1, 3.0, size=n)
    before = rng.uniform(0.01, 5.0, size=N_EXPERTS)
    got = em_update(before, log_densities, counts)
    expected = naive_em_update(before, log_densities, counts)
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    # Each sample adds its count, and takes nothing from any expert.
    np.testing.assert_allclose(got.sum() - before.sum(), counts.sum(), rtol=1e-10, atol=1e-10)
    assert np.all(got >= before)


def test_em_update_finds_the_better_expert():
    rng = np.random.default_rng(0)
    log_densities = rng.normal(size=(200, N_EXPERTS))
    log_densities[:, 3] += 3.0
    new = em_update(PRIOR, log_densities, np.ones(200))
    assert new[3] > 0.9 * new.sum()


def test_rows_that_no_expert_can_tell_count_for_nothing():
    logs = np.random.default_rng(0).normal(size=(6, N_EXPERTS))
    with_some = np.insert(logs, 3, -np.inf, axis=0)
    with_some = np.insert(with_some, 0, -np.inf, axis=0)
    expected = em_update(SOME_COUNTS, logs, np.ones(6))
    np.testing.assert_array_equal(em_update(SOME_COUNTS, with_some, np.ones(8)), expected)
    # One that only some can tell counts for those.
    logs = np.full((1, N_EXPERTS), -np.inf)
    logs[0, 2] = -1e6
    np.testing.assert_allclose(
        em_update(SOME_COUNTS, logs, np.array([2.0])), SOME_COUNTS + 2.0 * (np.arange(7) == 2)
    )


def by_hand_predicted(mixture, splits, covariance_type, prior=None):
    """Log-densities of Diracs under all widths of the model without others, and their counts.

    In each split some are predicted by some others, under the kernels of the latter's leading ones.
    """
    logs, counts = [], []
    for predicted, *known in splits:
        rest, leading = (
            mixture._replace(counts=mixture.counts[chosen], means=mixture.means[chosen])
            for chosen in known
        )
        widths = widths_by_hand(rest, covariance_type, prior, leading)
        means = mixture.means[predicted]
        logs.append(np.column_stack([twins.mixture_log_pdf(means, *parts) for parts in widths]))
        counts.append(mixture.counts[predicted])
    return np.concatenate(logs), np.concatenate(counts)


def forgotten(expert_counts, n_samples):
    """What is kept of the counts, besides the prior."""
    most = min(MEMORY * n_samples, LONGEST_MEMORY)
    learned = expert_counts - PRIOR
    if learned.sum() > most:
        learned = learned * most / learned.sum()
    return PRIOR + learned


@pytest.mark.parametrize("with_a_prior", [False, True], ids=["", "prior"])
@both_structures
@pytest.mark.parametrize("d", [1, 3])
def test_half_of_the_new_samples_are_predicted_without_any_the_others_with_their_help(
    d, covariance_type, with_a_prior
):
    model = density_of(covariance_type, twins.clumps(d, 100))
    mixture, n = model._mixture, model._state.n_compressed
    assert 0 < n < mixture.n_components
    counts = mixture.counts.copy()
    counts[n:] *= np.linspace(0.5, 2.0, len(counts) - n)  # as of weighted rows
    mixture = mixture._replace(counts=counts)
    prior = random_prior(d, covariance_type) if with_a_prior else None
    full_prior = None if prior is None else twins.full_covariances(prior[None])[0]
    old, new = np.arange(n), np.arange(n, mixture.n_components)
    even, odd = new[new % 2 == 0], new[new % 2 == 1]
    splits = [(even, old, old), (odd, np.append(old, even), old)]
    logs, counts = by_hand_predicted(mixture, splits, covariance_type, full_prior)
    expected = forgotten(naive_em_update(SOME_COUNTS, logs, counts), mixture.counts.sum())
    got = predict_latest(*state_and_settings(mixture, n, SOME_COUNTS, covariance_type, prior))
    np.testing.assert_allclose(got, expected, rtol=1e-7)
    # And this is what is scored: the counts as they were, until the next compression.
    counts = model._state.expert_counts
    np.testing.assert_allclose(
        twins.kernel_weights(kde_of(model)), counts / counts.sum(), rtol=1e-12
    )


@both_structures
@pytest.mark.parametrize("n", [2, 5, 7, 29])
def test_before_any_compression_each_part_is_predicted_by_the_others(n, covariance_type):
    X = twins.clumps(2, n)
    mixture = density_of(covariance_type, X)._mixture
    folds = [np.arange(fold, n, N_FOLDS) for fold in range(min(n, N_FOLDS))]
    rests = [np.setdiff1d(np.arange(n), fold) for fold in folds]
    # Nothing can be told from one sample.
    splits = [(fold, rest, rest) for fold, rest in zip(folds, rests, strict=True) if len(rest) > 1]
    state, settings = state_and_settings(mixture, 0, PRIOR, covariance_type)
    got = predict_latest(state, settings)
    if n == 2:
        np.testing.assert_array_equal(got, PRIOR)
    else:
        logs, counts = by_hand_predicted(mixture, splits, covariance_type)
        expected = forgotten(naive_em_update(PRIOR, logs, counts), n)
        np.testing.assert_allclose(got, expected, rtol=1e-7)
    # What is scored has these counts at once.
    kde = build_kde(state, settings)
    np.testing.assert_allclose(twins.kernel_weights(kde), got / got.sum(), rtol=1e-12)
    np.testing.assert_array_equal(
        kde.log_density(X),
        density(covariance_type).fit(X).score_samples(X),
    )


@both_structures
@pytest.mark.parametrize("n", [2, 3, 7, 11, 12, 29])
def test_with_resolutions_every_second_part_stands_for_the_next(n, covariance_type):
    model = OnlineKDEDensity(covariance_type=covariance_type).fit(twins.clumps(2, n))
    state, settings = model._state, model._settings()
    assert settings.n_levels > 0
    splits = list(prequential_splits(state, settings))
    step = 2 if n >= ENOUGH_FOR_HALF else 1
    expected = [list(range(fold, n, N_FOLDS)) for fold in range(0, min(n, N_FOLDS), step)]
    assert [unaided.tolist() for *_, unaided, _ in splits] == (expected if n > 2 else [])
    for times, experts, unaided, helped in splits:
        assert (times, len(helped)) == (step, 0)
        assert experts.families[0].models.count == n - len(unaided)
    # All samples count, whether predicted or not; of few of them not all are remembered.
    counts = predict_latest(state, settings)
    learned = n if n > 2 else 0
    prior = prior_counts(settings)
    assert (counts - prior).sum() == pytest.approx(min(learned, MEMORY * n), rel=1e-9)


def compactions_by_row(X, covariance_type):
    """The state before each compression, and the experts' counts after it."""
    model = density(covariance_type).partial_fit(X[:1])
    compactions = []
    for row in X[1:]:
        before = model._state
        model.partial_fit(row[None])
        after = model._state
        if not np.array_equal(before.expert_counts, after.expert_counts):
            compactions.append((before, after.expert_counts))
            # All that the compression has left is predicted, whether merged or not.
            assert model.n_components_ == after.n_compressed + 1
    return compactions


@both_structures
def test_samples_are_predicted_at_each_compression(covariance_type):
    X = twins.clumps(2, 200)
    X[::9] *= 10.0  # some of which stay alone
    compactions = compactions_by_row(X, covariance_type)
    assert any(state.n_compressed > state.mixture.n_compounds for state, _ in compactions)
    assert len(compactions) > 5
    assert compactions[0][0].n_compressed == 0
    assert compactions[0][0].mixture.n_components == INITIAL_LIMIT
    for (_, after), (state, _) in pairwise(compactions):
        np.testing.assert_array_equal(after, state.expert_counts)
    settings = twins.settings_of(covariance_type, 2, bandwidth="predictive")
    for state, after in compactions:
        np.testing.assert_array_equal(after, predict_latest(state, settings))


@both_structures
def test_compressions_predict_under_the_shrinkage_target(covariance_type):
    X = twins.clumps(2, 120)
    target = 4.0 * random_prior(2, covariance_type)
    settings = twins.settings_of(covariance_type, 2, bandwidth="predictive", target=target)
    state, n_compressed = empty_state(2, settings), set()
    for row in X:
        before, state = state, learn(state, row[None], np.ones(1), settings)
        if np.array_equal(before.expert_counts, state.expert_counts):
            continue
        n_compressed.add(before.n_compressed)
        np.testing.assert_array_equal(state.expert_counts, predict_latest(before, settings))
        without = predict_latest(before, settings._replace(shrinkage_target=None))
        assert np.abs(state.expert_counts - without).max() > 1e-3
    assert min(n_compressed) == 0 < max(n_compressed)


@both_structures
def test_values_that_repeat_have_the_narrowest_kernels(covariance_type):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, size=(400, 2)), rng.normal(size=400)])
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    assert density.expert_weights_["width"][0] > 0.9


@both_structures
@pytest.mark.parametrize("seed", [1, 2])
def test_outliers_are_told_among_few_rows_that_have_been_learned(covariance_type, seed):
    rng = np.random.default_rng(seed)
    X, is_outlier = rng.normal(size=(300, 2)), rng.random(300) < 0.05
    X[is_outlier] = rng.uniform(-5.0, 5.0, (is_outlier.sum(), 2))
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    assert roc_auc_score(is_outlier, -density.score_samples(X)) > 0.8


@both_structures
def test_counts_are_worth_a_share_of_the_samples(covariance_type):
    model = density(covariance_type)
    for n in (50, 150, 300, 2000):
        model.partial_fit(twins.clumps(1, n, seed=n))
        samples = model.n_samples_seen_
        worth = model._state.expert_counts.sum() - PRIOR_COUNT
        assert worth <= min(MEMORY * samples, LONGEST_MEMORY) + 1e-9
        # As much as there may be; some samples came after the last compression.
        assert worth > 0.5 * min(MEMORY * samples, LONGEST_MEMORY)
        assert np.all(model._state.expert_counts >= PRIOR - 1e-12)


def test_counts_are_forgotten():
    # Widths that are of no use for long come back when they are.
    rng = np.random.default_rng(0)
    spikes = 100.0 * rng.integers(0, 2, size=(3000, 1)) + rng.normal(size=(3000, 1))
    model = density(forgetting_factor=0.99, compression_threshold=0.02).fit(spikes)
    assert twins.kernel_weights(kde_of(model))[0] > 0.9
    model.partial_fit(rng.normal(size=(3000, 1)))
    assert twins.kernel_weights(kde_of(model))[0] < 0.3


def test_samples_are_predicted_from_a_single_compound_too():
    X = np.random.default_rng(0).normal(size=(62, 1))
    model = density(compression_threshold=1.0).fit(X[:31])
    assert (model._state.n_compressed, model._mixture.n_compounds) == (1, 1)
    before = model._state.expert_counts.sum()
    model.partial_fit(X[31:])
    assert model._state.expert_counts.sum() > before + 5.0


@pytest.mark.parametrize("f", [0.9, 0.5])
def test_counts_do_not_vanish_in_a_long_stream(f):
    # Each compression forgets some: in the long run nothing but the prior may hold an expert up.
    model = density(forgetting_factor=f, max_components=5)
    model.fit(np.random.default_rng(0).normal(size=(1500, 1)))
    assert np.all(model._state.expert_counts >= PRIOR - 1e-9)
    assert np.isfinite(model.score_samples([[0.0], [50.0]])).all()


@pytest.mark.parametrize("size", [1, 7, 31, 1000])
@both_structures
def test_counts_for_any_block_size(assert_same_model, covariance_type, size):
    X = twins.clumps(2, 300)
    expected = density(covariance_type).fit(X)
    assert expected._state.n_compressed > 0
    blocks = density(covariance_type)
    for start in range(0, 300, size):
        blocks.partial_fit(X[start : start + size])
        blocks.score_samples(X[:2])  # which changes nothing
    assert_same_model(blocks, expected)
    np.testing.assert_array_equal(blocks.score_samples(X), expected.score_samples(X))


@both_structures
def test_counts_of_weighted_rows_are_those_of_repeated_ones(assert_same_model, covariance_type):
    X = twins.clumps(2, 120)
    times = np.random.default_rng(0).integers(0, 4, size=120)
    weighted = density(covariance_type).fit(X, sample_weight=times)
    repeated = density(covariance_type).fit(np.repeat(X, times, axis=0))
    assert weighted._state.n_compressed > 0
    assert_same_model(weighted, repeated)
    few = density(covariance_type).fit(X[:20], sample_weight=times[:20])
    same = density(covariance_type)
    same.fit(np.repeat(X[:20], times[:20], axis=0))
    np.testing.assert_array_equal(few.score_samples(X), same.score_samples(X))


@pytest.mark.parametrize("bandwidth", ["plugin", 0.5])
def test_other_bandwidths_have_one_expert_and_learn_nothing_of_it(bandwidth):
    model = density(bandwidth=bandwidth).fit(twins.clumps(1, 200))
    np.testing.assert_array_equal(model._state.expert_counts, [PRIOR_COUNT])
    # A change of mind in mid-stream: what came since the last compression is predicted.
    model.set_params(bandwidth="predictive")
    np.testing.assert_allclose(twins.kernel_weights(kde_of(model)), PRIOR / PRIOR.sum(), rtol=1e-12)
    model.partial_fit(twins.clumps(1, 100, seed=1))
    assert model._state.expert_counts.shape == (N_EXPERTS,)
    assert model._state.expert_counts.sum() > 5.0


# --------------------------------------------------------------------------- little to go by


def test_nothing_is_predicted_from_what_is_forgotten():
    # The rest is too light for any moments: the counts stay.
    mixture = twins.learned_mixture(np.arange(8.0)[:, None], "full")
    mixture = mixture._replace(counts=np.where(np.arange(8) < 7, 0.0, 1.0))
    for counts in (mixture.counts, np.where(np.arange(8) < 7, 5e-324, 1.0)):
        got = predict_latest(*state_and_settings(mixture._replace(counts=counts), 7, PRIOR, "full"))
        np.testing.assert_allclose(got, PRIOR, rtol=1e-12)


SMALL = {
    "one": np.array([[1.0, 2.0, 3.0]]),
    "two": np.array([[1.0, 2.0, 3.0], [2.0, 2.5, -1.0]]),
    "three, two of them equal": np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [2.0, 2.5, -1.0]]),
    "fewer than features": np.random.default_rng(0).normal(size=(6, 20)),
    "constant features": np.random.default_rng(0).normal(size=(80, 3)) * [1.0, 0.0, 1e-3] + 0.1,
    "fewer than features, constant": np.random.default_rng(0).normal(size=(6, 9)) * np.arange(9.0),
    "equal rows": np.ones((60, 2)),
    "two places": np.repeat([[0.0, 1.0], [1.0, 1.0]], 30, axis=0),
}


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@pytest.mark.parametrize("case", SMALL)
@both_structures
def test_little_data(covariance_type, case):
    X = SMALL[case]
    model = density_of(covariance_type, X)
    far = np.concatenate([X[:2] + 1.0, 1e6 * (1.0 + np.abs(X[:1]))])
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.score_samples(far)).all()
    assert model.score_samples(X[:1])[0] > model.score_samples(far[-1:])[0]
    weights, means, covariances = model.distribution().arrays
    assert all(np.isfinite(part).all() for part in (weights, means, covariances))
    assert weights.sum() == pytest.approx(1.0)
    spread = np.linalg.eigvalsh(twins.full_covariances(covariances))
    assert np.all(spread[:, 0] > 0.0)
    assert np.all(np.diag(twins.full_covariances(model.bandwidth_[None])[0]) > 0.0)


@both_structures
def test_one_sample_has_equal_weights(covariance_type):
    model = density_of(covariance_type, np.array([[3.0, -1.0]]))
    np.testing.assert_allclose(twins.kernel_weights(kde_of(model)), 1.0 / N_EXPERTS, rtol=1e-14)
    _, means, _ = model.distribution().arrays
    np.testing.assert_array_equal(means, np.tile([3.0, -1.0], (N_EXPERTS, 1)))


# -------------------------------------------------------------------------- what the weights tell


def shares_of(X):
    weights = twins.kernel_weights(kde_of(density().fit(X)))
    return weights[: len(KERNEL_SCALES)], weights[len(KERNEL_SCALES) :]


@pytest.mark.parametrize("n", [25, 600])
@pytest.mark.parametrize("d", [1, 3])
def test_of_one_gaussian_wide_kernels_are_best(d, n):
    X = np.random.default_rng(1).normal(size=(n, d)) @ np.random.default_rng(d).normal(size=(d, d))
    kernels, gaussians = shares_of(X)
    assert kernels[2:].sum() + gaussians[0] > 0.65
    assert kernels[0] < 0.15


@pytest.mark.parametrize(("n", "d"), [(25, 1), (600, 1), (600, 3)])
def test_of_two_far_spikes_narrow_kernels_are_best(d, n):
    rng = np.random.default_rng(1)
    X = 100.0 * rng.integers(0, 2, size=(n, 1)) + rng.normal(size=(n, d))
    kernels, gaussians = shares_of(X)
    assert kernels[0] > 0.8
    assert gaussians.sum() < 0.1


@pytest.mark.parametrize("d", [1, 3])
def test_the_wide_gaussians_are_for_outliers(d):
    X = np.random.default_rng(0).normal(size=(600, d))
    far = np.zeros((1, d))
    far[0, 0] = 15.0
    model = density().fit(X)
    assert model.score_samples(far)[0] > -20.0
    assert model.set_params(bandwidth="plugin").score_samples(far)[0] < -60.0


@both_structures
def test_an_outlier_counts_for_no_more_than_itself(covariance_type):
    X = np.random.default_rng(0).normal(size=(40, 2))
    mixture = density_of(covariance_type, X[:29])._mixture
    rest, _, _ = total_moments(mixture)
    experts = experts_of(mixture, covariance_type)
    logs = logs_of(experts, X[29:], covariance_type)
    far = logs_of(experts, np.array([[1e9, -1e9]]), covariance_type)
    assert far.max() < -1e3
    without = em_update(PRIOR, logs, np.ones(11))
    beside = em_update(PRIOR, np.vstack([logs, far]), np.ones(12))
    assert rest == 29.0
    # It goes to the widest, which is then likelier for the others, too, but hardly.
    change = beside - without
    np.testing.assert_allclose(change.sum(), 1.0, rtol=1e-10)
    assert 1.0 < change[-1] < 1.2
    assert np.abs(change[:-1]).max() < 0.2


DRAWN = {
    "gaussian": lambda rng, n: rng.normal(size=(n, 2)),
    "clumps": lambda rng, n: rng.normal(size=(n, 2)) + 8.0 * rng.integers(0, 3, size=(n, 1)),
    "outliers": lambda rng, n: rng.standard_t(2.0, size=(n, 3)),
    "skew": lambda rng, n: rng.exponential(size=(n, 2)),
    "many features": lambda rng, n: rng.normal(size=(n, 10)) * (1.0 + rng.random(size=(n, 1))),
}
# By how much, in nats for each row, the defaults are better than the plug-in rule, at least. For
# one Gaussian that rule has nothing to lose.
GAINS = {"gaussian": -0.02, "clumps": 0.06, "outliers": 0.3, "skew": 0.01, "many features": 0.35}


@pytest.mark.parametrize("kind", DRAWN)
def test_held_out_rows_are_likelier_than_by_the_plug_in_rule(kind):
    gains = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        train, test = DRAWN[kind](rng, 300), DRAWN[kind](rng, 1000)
        ours, plugin = (
            density(bandwidth=bandwidth, compression_threshold=threshold).fit(train)
            for bandwidth, threshold in (("predictive", 0.08), ("plugin", 0.1))
        )
        gains.append(ours.score(test) - plugin.score(test))
    assert np.mean(gains) > GAINS[kind]


@pytest.mark.parametrize("n", [10, 29, 300])
@both_structures
@pytest.mark.parametrize("d", [1, 2])
def test_integrates_to_one(d, covariance_type, n):
    model = density_of(covariance_type, twins.clumps(d, n))
    points, cells = twins.stretched_grid(*model.distribution().arrays)
    total = cells @ np.exp(model.score_samples(points))
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)


def test_prior_for_the_covariance_is_that_of_the_classifier():
    mixture = compressed(2, "full")
    prior = random_prior(2, "full")
    experts = experts_of(mixture, "full", prior)
    count, mean, covariance = total_moments(mixture)
    expected = multivariate_normal(mean, shrink_covariance(covariance, count, prior))
    points = twins.clumps(2, 20, seed=1)
    logs = logs_of(experts, points, "full")[:, len(KERNEL_SCALES)]
    np.testing.assert_allclose(logs, expected.logpdf(points), rtol=1e-9)


def test_the_prior_stays_whatever_the_number_of_samples():
    prior = random_prior(2, "full")
    for count in (2e3 - 2, 1e6, 1e300):
        np.testing.assert_allclose(shrink_covariance(np.zeros((2, 2)), count, prior), 1e-3 * prior)


def test_all_experts_are_worth_the_same_at_first():
    settings = twins.settings_of("full", 2, bandwidth="predictive")
    state = empty_state(2, settings)
    assert state.n_compressed == 0
    np.testing.assert_allclose(state.expert_counts, PRIOR_COUNT / N_EXPERTS)
    assert prior_counts(settings) is not prior_counts(settings)


# ------------------------------------------------------------------- shrinkage of correlations


def neighbours(n, d, seed=0):
    """Rows whose features correlate with those next to them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    for j in range(1, d):
        X[:, j] = 0.9 * X[:, j - 1] + np.sqrt(1.0 - 0.81) * X[:, j]
    return X * np.geomspace(1e-3, 1e3, d)


@pytest.mark.parametrize(("n", "d", "gain"), [(40, 16, 0.8), (40, 20, 1.0), (100, 40, 1.0)])
def test_young_densities_shrink_correlations(n, d, gain, monkeypatch):
    """As well as a Gaussian with the best shrinkage, which neither kernels nor shapes come near."""
    X = neighbours(n + 500, d)
    X, new = X[:n], X[n:]
    density = OnlineKDEDensity().fit(X)
    assert density.experts_["shrinkage"] == [1.0, 0.3]
    assert density.expert_weights_["shrinkage"].sum() > 0.5
    scale = X.std(axis=0)
    estimate = OAS().fit(X / scale)
    gaussian = multivariate_normal(estimate.location_, estimate.covariance_)
    shrunk = gaussian.logpdf(new / scale).mean() - np.log(scale).sum()
    score = density.score(new)
    assert score > shrunk - 1.0
    # They are among what the distribution has, and draws come from them.
    distribution = density.distribution()
    np.testing.assert_allclose(distribution.logpdf(new), density.score_samples(new), rtol=1e-9)
    ranks = spearmanr(density.sample(4000, random_state=0))  # some are outliers
    np.testing.assert_allclose(ranks.statistic, estimate.covariance_, atol=0.25)
    monkeypatch.setattr(FullCovariance, "shrinkages", ())
    assert score > OnlineKDEDensity().fit(X).score(new) + gain


def test_shrinkage_needs_features(assert_same_model):
    X = neighbours(60, 8)
    narrow, wide = OnlineKDEDensity().fit(X[:, :7]), OnlineKDEDensity().fit(X)
    assert narrow.experts_["shrinkage"] == []
    assert wide.experts_["shrinkage"] == [1.0, 0.3]
    again = OnlineKDEDensity()
    for row in X:
        again.partial_fit(row[None])
    assert_same_model(again, wide)
    # A density of a class has not tried them, and may be asked by itself.
    X = neighbours(400, 8)
    of_class, _ = OnlineKDEClassifier().fit(X, np.arange(400) % 2).estimators_
    assert of_class._state.n_compressed
    assert np.isfinite(of_class.score_samples(X)).all()
    assert 0.0 < of_class.expert_weights_["shrinkage"].sum() < 0.05
