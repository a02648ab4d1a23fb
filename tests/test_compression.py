"""Hierarchical compression (paper, Sections 2.3 and 2.6)."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skokde._engine._hellinger import local_error

import twins
from marks import quick
from skokde import OnlineKDEDensity
from skokde._engine import _compression
from skokde._engine.compression import cluster, compress
from skokde._engine.kde import Components, components_in, factorize
from skokde._engine.mixture import Mixture
from skokde._engine.revitalization import revitalize

pytestmark = pytest.mark.thorough

both_structures = pytest.mark.parametrize("covariance_type", ["full", "diag"])
THRESHOLDS = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0]


def as_sets(clusters):
    return {frozenset(members.tolist()) for members in clusters}


# ------------------------------------------------------------------- what a compression keeps


def streams(d):
    """Rows that are hard on digits."""
    X = twins.clumps(d, 400, seed=1)
    exponents = np.linspace(-9.0, 9.0, d) if d > 1 else np.array([9.0])
    return {
        "plain": X,
        "offset": X + 1e6,
        "large": X * 1e9,
        "small": X * 1e-9,
        "units": X * 10.0**exponents,
        "units and offset": (X + 100.0) * 10.0 ** exponents[::-1],
        "repeats": np.round(10.0 * X) / 10.0,
    }


STREAMS = list(streams(1))
each_stream = pytest.mark.parametrize("stream", STREAMS)


def data_moments(X, weights=None):
    weights = np.ones(len(X)) if weights is None else weights
    d = X.shape[1]
    return twins.moments(weights, X, np.zeros((len(X), d, d)))


@each_stream
@both_structures
@pytest.mark.parametrize("d", [1, 2, 5])
def test_compress_and_revitalize_keep_count_mean_and_covariance(d, covariance_type, stream):
    X = streams(d)[stream]
    mixture = twins.learned_mixture(X, covariance_type, threshold=0.04)
    kernel = twins.kernel_frame(mixture, covariance_type)
    before = twins.mixture_moments(mixture)
    for threshold, cap in [(0.06, None), (0.1, None), (0.3, None), (1.0, None), (0.0, 4)]:
        new = twins.compressed(mixture, kernel, threshold, cap)
        assert new.n_components < mixture.n_components
        twins.assert_same_moments(twins.mixture_moments(new), before, covariance_type)
        twins.assert_details_match(new, covariance_type)
        revived = revitalize(new, kernel.frame, 0.01)
        if new.n_components < 5:
            assert revived.n_components > new.n_components
        twins.assert_same_moments(twins.mixture_moments(revived), before, covariance_type)
        twins.assert_details_match(revived, covariance_type)


@each_stream
@both_structures
@pytest.mark.parametrize("d", [1, 2, 5])
def test_model_keeps_the_streams_moments(d, covariance_type, stream):
    X = streams(d)[stream]
    mixture = twins.learned_mixture(X, covariance_type)
    assert mixture.n_components < len(np.unique(X, axis=0))
    twins.assert_same_moments(twins.mixture_moments(mixture), data_moments(X), covariance_type)
    twins.assert_details_match(mixture, covariance_type)


@both_structures
def test_model_keeps_the_moments_of_what_it_remembers(covariance_type):
    X = twins.clumps(3, 400)
    f = 0.98
    mixture = twins.learned_mixture(X, covariance_type, forgetting=f)
    weights = f ** np.arange(len(X))[::-1]
    twins.assert_same_moments(
        twins.mixture_moments(mixture), data_moments(X, weights), covariance_type
    )


@both_structures
def test_constant_features_keep_their_bits(covariance_type):
    X = twins.clumps(3, 300)
    X[:, 1] = 1e5 / 3.0
    mixture = twins.learned_mixture(X, covariance_type)
    assert mixture.n_compounds
    assert np.all(mixture.means[:, 1] == X[0, 1])
    assert np.all(mixture.detail_means[:, :, 1] == X[0, 1])
    assert not twins.full_covariances(mixture.covariances)[:, 1].any()


@both_structures
def test_what_is_not_merged_keeps_its_bits(covariance_type):
    outliers = [[50.0 / 3.0, 0.0], [0.0, 50.0 / 3.0]]
    X = np.concatenate([twins.clumps(2, 200, seed=3) / 3.0, outliers])
    mixture = twins.learned_mixture(X, covariance_type, threshold=0.02)
    new = twins.compressed(mixture, twins.kernel_frame(mixture, covariance_type), 0.025)
    assert 0 < new.n_compounds < new.n_components < mixture.n_components

    def components(mixture):
        """All that is known of each component, as bytes."""
        of_details = mixture.all_detail_covariances()
        for i in range(mixture.n_compounds):
            yield b"".join(array[i].tobytes() for array in (*mixture[:6], of_details))
        for i in range(mixture.n_compounds, mixture.n_components):
            yield mixture.counts[i].tobytes() + mixture.means[i].tobytes()

    before, after = set(components(mixture)), list(components(new))
    unmerged = [old in before for old in after]
    # All Diracs that are left, and some compounds.
    assert all(unmerged[new.n_compounds :])
    assert 0 < sum(unmerged[: new.n_compounds]) < new.n_compounds
    rows = {row.tobytes() for row in X}
    assert all(mean.tobytes() in rows for mean in new.means[new.n_compounds :])


@both_structures
def test_compression_writes_to_nothing(covariance_type):
    mixture = twins.learned_mixture(twins.clumps(2, 100), covariance_type, threshold=0.04)
    for array in mixture:
        array.flags.writeable = False
    kernel = twins.kernel_frame(mixture, covariance_type)
    revitalize(twins.compressed(mixture, kernel, 0.3), kernel.frame, 0.0)


# ------------------------------------------------------------------------- small clusters


@both_structures
def test_cluster_of_equal_samples_stays_a_dirac(covariance_type):
    x = np.array([1.0 / 3.0, 1e6 / 7.0])
    X = np.array([x, x + 1.0, x + 2.0])
    mixture = twins.learned_mixture(X, covariance_type)
    mixture = mixture._replace(means=X[[0, 0, 1]], counts=np.array([2.0, 3.0, 1.0]))
    kernel = twins.kernel_frame(mixture, covariance_type)
    new = twins.merged(mixture, [0, 0, 1], kernel)
    assert new.n_compounds == 0
    assert sorted(new.counts) == [1.0, 5.0]
    assert {mean.tobytes() for mean in new.means} == {X[0].tobytes(), X[1].tobytes()}


@both_structures
def test_details_of_two_samples_are_the_samples(covariance_type):
    X = np.array([[1.0 / 3.0, 0.1], [0.7, -1e3 / 7.0], [5.0, 5.0]])
    mixture = twins.learned_mixture(X, covariance_type)._replace(counts=np.array([1.0, 3.0, 1.0]))
    kernel = twins.kernel_frame(mixture, covariance_type)
    new = twins.merged(mixture, [0, 0, 1], kernel)
    assert (new.n_compounds, new.n_components) == (1, 2)
    np.testing.assert_array_equal(new.detail_means[0], X[:2])
    np.testing.assert_array_equal(new.detail_weights[0], [0.25, 0.75])
    assert not new.details_merged.any()


@both_structures
def test_covariances_of_details_go_with_their_compounds(covariance_type):
    mixture = twins.learned_mixture(twins.clumps(2, 300), covariance_type, threshold=0.01)
    m, merged = mixture.n_compounds, mixture.details_merged
    assert 0 < merged.sum() == len(mixture.detail_covariances) < merged.size
    of_all = mixture.all_detail_covariances()
    np.testing.assert_array_equal(of_all.any(axis=tuple(range(2, of_all.ndim))), merged)
    order = np.random.default_rng(0).permutation(m)
    for chosen in (order, order[: m // 2], np.arange(m) % 3 == 0, slice(None)):
        part = Mixture.join([mixture.compounds(chosen)], [mixture.diracs()])
        np.testing.assert_array_equal(part.all_detail_covariances(), of_all[chosen])
        np.testing.assert_array_equal(part.means[: part.n_compounds], mixture.means[:m][chosen])


@both_structures
@pytest.mark.parametrize("d", [1, 2])
def test_details_are_parted_under_an_eighth_of_the_bandwidth(d, covariance_type):
    # In the kernel's coordinates H is I; an eighth of it is I where all lengths are 8^(1/2) fold.
    members, labels = np.arange(3, 15), np.minimum(np.arange(15), 3)
    differs = 0
    for seed in range(20):
        mixture = twins.learned_mixture(twins.clumps(d, 15, seed=seed), covariance_type)
        kernel = twins.kernel_frame(mixture, covariance_type, 2.0)
        weights, means, none = components_in(kernel.frame, *mixture[:3])
        new = twins.merged(mixture, labels, kernel)
        sides = twins.two_means(members, weights, np.sqrt(8.0) * means, none)
        expected = [mixture.means[side].mean(axis=0) for side in sides]
        np.testing.assert_allclose(new.detail_means[0], expected, rtol=1e-9, atol=1e-12)
        differs += as_sets(sides) != as_sets(twins.two_means(members, weights, means, none))
    assert differs > 0


@both_structures
def test_details_of_the_whole_do_not_hang_on_rounding(covariance_type):
    # The whole mixture is white in the kernel's coordinates: a principal axis of it is noise.
    X = twins.clumps(3, 28, n_clumps=1)
    factors = np.array([3.7, 1e-3, 77.0])
    order = np.random.default_rng(0).permutation(len(X))
    details = []
    for rows in (X, X * factors, X[order]):
        mixture = twins.learned_mixture(rows, covariance_type)
        new = twins.compressed(mixture, twins.kernel_frame(mixture, covariance_type), 1.0)
        assert new.n_components == 1
        details.append(new.detail_means[0])
    np.testing.assert_allclose(details[1], details[0] * factors, rtol=1e-9)
    np.testing.assert_allclose(np.sort(details[2], axis=0), np.sort(details[0], axis=0), rtol=1e-9)


@both_structures
def test_merging_two_compounds_makes_two_details_of_four(covariance_type):
    # Two pairs of near samples: their details must be the pairs again, not one of each.
    X = np.array([[0.0, 0.0], [0.1, 0.0], [10.0, 0.0], [10.1, 0.1], [3.0, 30.0]])
    mixture = twins.learned_mixture(X, covariance_type)
    kernel = twins.kernel_frame(mixture, covariance_type)
    pairs = twins.merged(mixture, [0, 0, 1, 1, 2], kernel)
    assert pairs.n_compounds == 2
    new = twins.merged(pairs, [0, 0, 1], kernel)
    assert new.n_compounds == 1
    order = np.argsort(new.detail_means[0][:, 0])
    np.testing.assert_allclose(new.detail_means[0][order], pairs.means[:2], rtol=1e-12)
    np.testing.assert_allclose(
        new.all_detail_covariances()[0][order], pairs.covariances, rtol=1e-9, atol=1e-14
    )


# ---------------------------------------------------------------------------- the hierarchy


@pytest.fixture(params=["full", "diag"])
def covariance_type(request):
    return request.param


@pytest.fixture(
    params=[
        pytest.param((1, 0), id="1-d"),
        pytest.param((2, 1), id="2-d"),
        pytest.param((2, 2), id="2-d too", marks=pytest.mark.slow),
        pytest.param((4, 3), id="4-d", marks=pytest.mark.slow),
    ]
)
def hierarchy(request, covariance_type):
    """A mixture of compounds and Diracs with its kernel and components."""
    d, seed = request.param
    X = twins.clumps(d, 120, seed=seed)
    mixture = twins.learned_mixture(X, covariance_type, threshold=0.01)
    kernel = twins.kernel_frame(mixture, covariance_type)
    return mixture, kernel, components_in(kernel.frame, *mixture[:3])


def test_leaves_are_nested_and_fewer_as_the_threshold_grows(hierarchy):
    mixture, kernel, components = hierarchy
    levels = [
        as_sets(twins.clusters_of(twins.clustered(components, t, kernel.first_cut)))
        for t in THRESHOLDS
    ]
    assert levels[0] == {frozenset([i]) for i in range(mixture.n_components)}
    assert levels[-1] == {frozenset(range(mixture.n_components))}
    for finer, coarser in pairwise(levels):
        assert len(finer) >= len(coarser)
        assert all(any(leaf <= larger for larger in coarser) for leaf in finer)
    assert len({len(level) for level in levels}) >= 4
    for level in levels:
        assert sorted(i for leaf in level for i in leaf) == list(range(mixture.n_components))


@pytest.mark.parametrize("max_clusters", [None, 5])
@pytest.mark.parametrize("d", quick([2, 1, 3]))
def test_clusters_are_those_of_the_plain_algorithm(d, covariance_type, max_clusters):
    mixture = twins.learned_mixture(twins.clumps(d, 45), covariance_type, threshold=0.01)
    kernel = twins.kernel_frame(mixture, covariance_type)
    components = components_in(kernel.frame, *mixture[:3])
    for threshold in (0.05, 0.2):
        got = twins.clustered(components, threshold, kernel.first_cut, max_clusters)
        expected = twins.cluster(*components[:3], threshold, kernel.first_cut, max_clusters)
        np.testing.assert_array_equal(got, twins.labels_of(expected))


def test_leaves_err_by_no_more_than_the_threshold_and_one_less_would(hierarchy):
    _, kernel, components = hierarchy
    for threshold in (0.02, 0.05, 0.1, 0.2):
        leaves = twins.clusters_of(twins.clustered(components, threshold, kernel.first_cut))
        errors = [twins.local_error(leaf, *components[:3]) for leaf in leaves]
        assert max(errors) <= threshold * (1.0 + 1e-9)
        if len(leaves) > 1:
            fewer = twins.clusters_of(
                twins.clustered(components, threshold, kernel.first_cut, len(leaves) - 1)
            )
            assert max(twins.local_error(leaf, *components[:3]) for leaf in fewer) > threshold


@given(
    d=st.sampled_from([1, 2, 3, 9]),
    covariance_type=st.sampled_from(["full", "diag"]),
    kind=st.sampled_from(["diracs", "compounds", "mixed"]),
    seed=st.integers(0, 1000),
    thresholds=st.lists(st.floats(0.0, 0.5), min_size=1, max_size=4),
    most=st.none() | st.integers(1, 25),
)
def test_several_thresholds_at_once(d, covariance_type, kind, seed, thresholds, most):
    components = Components(*twins.random_components(d, covariance_type, kind, 20, seed=seed))
    first_cut = np.random.default_rng(seed).normal(size=d)
    thresholds = np.sort(thresholds)
    levels = cluster(components, thresholds, first_cut, most)
    assert levels.shape == (len(thresholds), 20)
    for labels, threshold in zip(levels, thresholds, strict=True):
        alone = twins.clustered(components, threshold, first_cut, most)
        np.testing.assert_array_equal(labels, alone)
    # Who is together at one threshold is so at a higher one.
    for finer, coarser in pairwise(levels):
        pairs = np.unique(np.stack([finer, coarser]), axis=1)
        assert pairs.shape[1] == finer.max() + 1


def test_levels_of_a_learned_mixture(hierarchy):
    # They do differ, and each is that of the plain algorithm.
    _, kernel, components = hierarchy
    thresholds = np.array([0.02, 0.05, 0.1, 0.2])
    levels = cluster(components, thresholds, kernel.first_cut)
    assert len({tuple(labels) for labels in levels}) == 4
    for labels, threshold in zip(levels, thresholds, strict=True):
        expected = twins.cluster(*components, threshold, kernel.first_cut)
        np.testing.assert_array_equal(labels, twins.labels_of(expected))


def test_no_end_to_the_number_of_clusters_is_minus_one(hierarchy):
    mixture, kernel, components = hierarchy
    arrays = *components, *factorize(components)
    thresholds = np.array([1e-9, 0.05])
    free = _compression.cluster(*arrays, thresholds, kernel.first_cut, -1)
    np.testing.assert_array_equal(free, cluster(components, thresholds, kernel.first_cut))
    enough = _compression.cluster(*arrays, thresholds, kernel.first_cut, mixture.n_components)
    np.testing.assert_array_equal(free, enough)
    assert len(set(free[0])) == mixture.n_components
    assert len(set(free[1])) > 1
    one = _compression.cluster(*arrays, thresholds, kernel.first_cut, 1)
    assert not one.any()
    for most in (0, -2, -100):
        with pytest.raises(ValueError, match="belong together"):
            _compression.cluster(*arrays, thresholds, kernel.first_cut, most)
    with pytest.raises(ValueError, match="belong together"):
        cluster(components, np.zeros(1), kernel.first_cut, 0)


@pytest.mark.parametrize("most", [1, 2, 3, 10, 10_000])
@pytest.mark.parametrize("threshold", [0.0, 0.02, 1.0])
def test_max_clusters(hierarchy, most, threshold):
    mixture, kernel, components = hierarchy
    free = twins.clusters_of(twins.clustered(components, threshold, kernel.first_cut))
    capped = twins.clusters_of(twins.clustered(components, threshold, kernel.first_cut, most))
    assert len(capped) == min(len(free), most)
    assert all(any(leaf <= larger for larger in as_sets(capped)) for leaf in as_sets(free))
    assert sum(len(leaf) for leaf in capped) == mixture.n_components


@pytest.mark.parametrize("most_compounds", [1, 4, 9, 40, 10_000])
def test_so_many_compounds_are_left_at_most(hierarchy, most_compounds):
    mixture, kernel, components = hierarchy
    thresholds = np.array([0.0, 0.01, 0.02, 0.04, 0.06, 0.08])
    k, m = mixture.n_components, mixture.n_compounds
    left = compress(mixture, kernel, thresholds, 0, k, most_compounds)
    numbers = []
    for threshold in thresholds:
        clusters = twins.clusters_of(twins.clustered(components, threshold, kernel.first_cut))
        numbers.append(sum(len(c) > 1 or min(c) < m for c in clusters))
    few_enough = np.array(numbers) <= most_compounds
    assert left.mixture.n_compounds <= most_compounds
    assert left.level == (np.argmax(few_enough) if few_enough.any() else len(thresholds) - 1)
    if few_enough.any():
        assert left.mixture.n_compounds == numbers[left.level]


@pytest.mark.parametrize("cap", quick([3, 2, 10, 40]))
def test_max_components_is_never_passed(covariance_type, cap):
    X = twins.clumps(3, 150)
    model = OnlineKDEDensity(
        covariance_type=covariance_type, max_components=cap, compression_threshold=0.0
    )
    for row in X:
        model.partial_fit(row[None])
        assert model.n_components_ <= cap
    assert model.n_components_ > cap / 2
    assert model.n_samples_seen_ == 150
    for size in (60, 90, 150):  # several compressions in one call
        assert model.partial_fit(X[:size] + size).n_components_ <= cap


def test_zero_threshold_merges_duplicates_only(covariance_type):
    rng = np.random.default_rng(0)
    X = rng.integers(8, size=(400, 2)) / 7.0
    model = OnlineKDEDensity(covariance_type=covariance_type, compression_threshold=0.0).fit(X)
    rows, counts = np.unique(X, axis=0, return_counts=True)
    assert len(rows) == 64  # more than are held before the first compression
    assert model.n_components_ == len(rows)
    assert not model.covariances_.any()
    order = np.lexsort(model.means_.T[::-1])
    np.testing.assert_array_equal(model.means_[order], rows)
    np.testing.assert_array_equal(model.weights_[order], counts / 400.0)


def test_largest_threshold_leaves_one(covariance_type):
    mixture = twins.learned_mixture(twins.clumps(2, 100), covariance_type, threshold=0.02)
    new = twins.compressed(mixture, twins.kernel_frame(mixture, covariance_type), 1.0)
    assert (new.n_components, new.n_compounds) == (1, 1)


# ----------------------------------------------------------- what it does to the density


def step_for(H):
    """A step of quadrature below the kernel's smallest deviation."""
    return 0.7 * np.sqrt(np.linalg.eigvalsh(twins.full_covariances(H[None])[0])[0])


def kde_of(mixture, H):
    covariances = twins.full_covariances(mixture.all_covariances() + H)
    return mixture.counts / mixture.counts.sum(), mixture.means, covariances


@pytest.mark.parametrize("d", [1, 2])
def test_distance_to_the_uncompressed_kde_grows_with_the_threshold(d, covariance_type):
    thresholds = [0.01, 0.03, 0.1, 0.3, 1.0]
    distances = []
    for seed in range(4):
        X = twins.clumps(d, 50, seed=seed)
        mixture = twins.learned_mixture(X, covariance_type, threshold=0.0)
        kernel = twins.kernel_frame(mixture, covariance_type)
        components = components_in(kernel.frame, *mixture[:3])
        factors = factorize(components)
        H = kernel.frame.identity_back()
        single = twins.compressed(mixture, kernel, 1.0)
        points, cell = twins.grid_over([kde_of(mixture, H), kde_of(single, H)], step_for(H))
        before = np.exp(0.5 * twins.mixture_log_pdf(points, *kde_of(mixture, H)))
        distances.append([])
        for threshold in thresholds:
            labels = twins.clustered(components, threshold, kernel.first_cut)
            new = twins.merged(mixture, labels, kernel)
            after = np.exp(0.5 * twins.mixture_log_pdf(points, *kde_of(new, H)))
            distance = np.sqrt(0.5 * cell * np.sum((before - after) ** 2))
            distances[-1].append(distance)
            # Jointly convex: D^2(whole) <= sum_j w_j D_j^2, as far as the unscented errors are
            # right, which the worse they are the larger the clusters.
            bound = np.sqrt(
                sum(
                    local_error(members, *components, *factors, np.empty(0)) ** 2
                    for members in twins.clusters_of(labels)
                )
            )
            assert distance <= bound + (0.06 if threshold <= 0.1 else 0.15)
    mean = np.mean(distances, axis=0)
    assert np.all(np.diff(mean) > 0.0)
    assert mean[0] < 0.03
    assert mean[-1] > 0.2


@pytest.mark.parametrize("d", [1, 2])
def test_whole_distance_is_bounded_by_the_clusters_true_ones(d, covariance_type):
    # With true distances it is a theorem: it fails if merging does not do what clusters say.
    mixture = twins.learned_mixture(twins.clumps(d, 40), covariance_type, threshold=0.0)
    kernel = twins.kernel_frame(mixture, covariance_type)
    labels = twins.clustered(components_in(kernel.frame, *mixture[:3]), 0.1, kernel.first_cut)
    new = twins.merged(mixture, labels, kernel)
    H = kernel.frame.identity_back()
    step = step_for(H)
    distance = twins.true_hellinger(kde_of(mixture, H), kde_of(new, H), step)
    H = twins.full_covariances(H[None])[0]
    full = twins.full_covariances(mixture.all_covariances())
    bound = 0.0
    for members in twins.clusters_of(labels):
        counts = mixture.counts[members]
        count, mean, covariance = twins.moments(counts, mixture.means[members], full[members])
        if covariance_type == "diag":
            covariance = np.diag(np.diag(covariance))
        sub_mixture = counts / count, mixture.means[members], full[members] + H
        gaussian = np.ones(1), mean[None], (covariance + H)[None]
        weight = count / mixture.counts.sum()
        bound += weight * twins.true_hellinger(sub_mixture, gaussian, step) ** 2
    assert 0.0 < distance**2 <= bound * (1.0 + 1e-9)
