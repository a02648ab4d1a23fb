"""Goldberger's two-means and the principal-axis split (paper, Sections 2.6 and 2.7)."""

import numpy as np
import pytest

import twins
from skokde._engine.covariance import STRUCTURES
from skokde._engine.goldberger import principal_axis_split, two_means
from skokde._engine.kde import components_in
from skokde._engine.mixture import match_moments

both_structures = pytest.mark.parametrize("covariance_type", ["full", "diag"])


def learned(d, covariance_type, **kwargs):
    """A mixture of compounds and Diracs, its kernel coordinates and its components in them."""
    mixture = twins.learned_mixture(
        twins.clumps(d, 150, **kwargs), covariance_type, threshold=0.05, bandwidth="okde"
    )
    kernel = twins.kernel_frame(mixture, covariance_type)
    return mixture, kernel, components_in(kernel.frame, *mixture[:3])


def as_sets(sides):
    return {frozenset(side.tolist()) for side in sides}


# -------------------------------------------------------------------------------- two-means


@both_structures
@pytest.mark.parametrize("d", [1, 2, 4])
def test_finds_two_clumps(d, covariance_type):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(28, d))
    X[::3] += 15.0
    mixture = twins.learned_mixture(X, covariance_type)
    kernel = twins.kernel_frame(mixture, covariance_type)
    components = components_in(kernel.frame, *mixture[:3])
    # Of the whole, only the kernel's axis tells them: in whitened space all axes are alike.
    sides = two_means(components, np.arange(28), kernel.first_cut)
    far = frozenset(range(0, 28, 3))
    assert as_sets(sides) == {far, frozenset(range(28)) - far}


@both_structures
@pytest.mark.parametrize("d", [1, 2, 4])
def test_result_is_a_partition_that_no_single_move_by_cost_changes(d, covariance_type):
    mixture, _, components = learned(d, covariance_type)
    arrays = components[:3]
    everything = np.arange(mixture.n_components)
    assert len(everything) >= 9
    for members in (everything, everything[::2].copy(), everything[5:9]):
        sides = two_means(components, members)
        assert all(len(side) for side in sides)
        assert sorted(np.concatenate(sides)) == sorted(members)
        gaussians = [twins.sub_gaussian(side, *arrays) for side in sides]
        smoothed = twins.matrices(components.covariances, d, len(everything)) + np.eye(d)
        for c, side in enumerate(sides):
            for i in side:
                own, other = (
                    twins.kl(components.means[i], smoothed[i], *gaussians[b]) for b in (c, 1 - c)
                )
                assert own <= other * (1.0 + 1e-9)


@both_structures
@pytest.mark.parametrize("d", [1, 2, 4])
def test_cost_is_at_most_that_of_the_first_cut(d, covariance_type):
    gains = []
    for seed in range(3):
        _, kernel, components = learned(d, covariance_type, seed=seed)
        arrays = components[:3]
        members = np.arange(len(components.weights))
        mean, _ = twins.sub_gaussian(members, *arrays)
        for axis in [*np.eye(d), kernel.first_cut]:
            beyond = (components.means - mean) @ axis > 0.0
            cut = twins.split_cost([members[~beyond], members[beyond]], *arrays)
            found = twins.split_cost(two_means(components, members, axis), *arrays)
            assert found <= cut * (1.0 + 1e-12)
            gains.append(cut - found)
    assert max(gains) > 0.0


@both_structures
@pytest.mark.parametrize("d", [1, 2, 4])
def test_order_of_the_members_does_not_matter(d, covariance_type):
    _, kernel, components = learned(d, covariance_type)
    members = np.arange(len(components.weights))
    expected = as_sets(two_means(components, members, kernel.first_cut))
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(members)
        assert as_sets(two_means(components, shuffled, kernel.first_cut)) == expected


@both_structures
@pytest.mark.parametrize("d", [1, 3])
def test_mirrored_axis_gives_the_same_clusters(d, covariance_type):
    _, kernel, components = learned(d, covariance_type)
    members = np.arange(len(components.weights))
    first, second = two_means(components, members, kernel.first_cut)
    mirrored = two_means(components, members, -kernel.first_cut)
    assert [side.tolist() for side in mirrored] == [second.tolist(), first.tolist()]


def test_first_cut_is_across_the_given_axis():
    # Four corners: either cut is a fixed point, so that the first one decides.
    X = np.array([[0.0, 0.0], [0.0, 9.0], [9.0, 0.0], [9.0, 9.0]])
    mixture = twins.learned_mixture(X, "full")
    kernel = twins.kernel_frame(mixture, "full", np.eye(2))
    components = components_in(kernel.frame, *mixture[:3])
    across_x = two_means(components, np.arange(4), np.array([1.0, 0.0]))
    across_y = two_means(components, np.arange(4), np.array([0.0, 1.0]))
    assert [side.tolist() for side in across_x] == [[0, 1], [2, 3]]
    assert [side.tolist() for side in across_y] == [[0, 2], [1, 3]]


def with_two_values(d, n, seed):
    """Correlated normal features, and one of two values that the second one goes along with."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    X[:, 0] = rng.permutation(n) < 0.4 * n
    X[:, 1] += X[:, 0] * X[:, 1].std()
    return X


@both_structures
@pytest.mark.parametrize("d", [3, 6])
def test_values_of_a_discrete_feature_are_told_apart(d, covariance_type):
    found = []
    for seed in range(5):
        X = with_two_values(d, 60, seed)
        mixture = twins.learned_mixture(X, covariance_type, threshold=0.0)
        kernel = twins.kernel_frame(mixture, covariance_type)
        components = components_in(kernel.frame, *mixture[:3])
        members, upper = np.arange(len(X)), X[:, 0] > 0.0
        expected = as_sets([members[upper], members[~upper]])
        axes = kernel.frame.feature_axes()
        for axis in (None, kernel.first_cut):
            assert as_sets(two_means(components, members, axis, axes)) == expected
            found.append(as_sets(two_means(components, members, axis)) == expected)
    assert not all(found)  # no wonder that they are, else


@both_structures
def test_features_are_cut_where_that_costs_less(covariance_type):
    gains = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        # No gap, but halves that are farther apart than those of a normal feature.
        X = rng.normal(size=(40, 4))
        X[:, 0] = rng.uniform(-1.5, 1.5, size=40)
        mixture = twins.learned_mixture(X, covariance_type, threshold=0.0)
        kernel = twins.kernel_frame(mixture, covariance_type)
        components = components_in(kernel.frame, *mixture[:3])
        arrays, axes = components[:3], kernel.frame.feature_axes()
        without, found = (
            two_means(components, np.arange(40), np.eye(4)[-1], of) for of in (None, axes)
        )
        costs = [twins.split_cost(sides, *arrays) for sides in (without, found)]
        assert costs[1] <= costs[0] * (1.0 + 1e-9)
        gains.append(costs[0] - costs[1])
    assert max(gains) > 0.0


@both_structures
@pytest.mark.parametrize("factor", [2.0**-40, 1e-9, 1e9], ids=["2^-40", "1e-9", "1e9"])
def test_units_of_features_do_not_matter(covariance_type, factor):
    X = twins.clumps(3, 28)
    clusters = []
    for scale in (np.ones(3), np.array([1.0, factor, 1.0])):
        mixture = twins.learned_mixture(X * scale, covariance_type)
        kernel = twins.kernel_frame(mixture, covariance_type)
        components = components_in(kernel.frame, *mixture[:3])
        clusters.append(as_sets(two_means(components, np.arange(28), kernel.first_cut)))
    assert clusters[0] == clusters[1]


# --------------------------------------------------------------------- principal-axis split


def gaussians(d, covariance_type, n=6):
    """Means, covariances and a frame that is not that of the data's axes."""
    _, means, covs = twins.random_components(d, covariance_type, "compounds", n)
    structure = STRUCTURES[covariance_type]
    covs = covs.reshape(-1, *structure.shape(d))
    mixture = twins.learned_mixture(twins.clumps(d, 20, seed=7), covariance_type)
    return means, covs, twins.kernel_frame(mixture, covariance_type).frame


@both_structures
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_split_keeps_mean_and_covariance(d, covariance_type):
    means, covs, frame = gaussians(d, covariance_type)
    weights, new_means, new_covs = principal_axis_split(means, covs, frame)
    full = twins.full_covariances
    for i in range(len(means)):
        _, mean, covariance = twins.moments(weights[i], new_means[i], full(new_covs[i]))
        if covariance_type == "diag":
            covariance = np.diag(np.diag(covariance))
        np.testing.assert_allclose(mean, means[i], rtol=1e-15, atol=1e-15 * np.abs(means).max())
        scale = np.trace(full(covs)[i])
        np.testing.assert_allclose(covariance, full(covs)[i], rtol=0.0, atol=1e-14 * scale)


@both_structures
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_halves_are_symmetric_and_narrower(d, covariance_type):
    means, covs, frame = gaussians(d, covariance_type)
    weights, new_means, new_covs = principal_axis_split(means, covs, frame)
    full = twins.full_covariances
    np.testing.assert_array_equal(weights, 0.5)
    np.testing.assert_array_equal(new_covs[:, 0], new_covs[:, 1])
    np.testing.assert_allclose(
        new_means[:, 1] - means, means - new_means[:, 0], rtol=0.0, atol=1e-14 * np.abs(means).max()
    )
    for i in range(len(means)):
        before, after = full(covs)[i], full(new_covs[i])[0]
        assert np.all(np.linalg.eigvalsh(after) > 0.0)
        # A quarter of the variance along the axis has gone into the means.
        np.testing.assert_allclose(np.linalg.det(after), 0.75 * np.linalg.det(before), rtol=1e-10)


@both_structures
@pytest.mark.parametrize("d", [2, 3, 5])
def test_split_is_along_the_principal_axis_of_the_frame(d, covariance_type):
    means, covs, frame = gaussians(d, covariance_type)
    _, new_means, _ = principal_axis_split(means, covs, frame)
    white = twins.matrices(frame.covariances(covs), d)
    for i in range(len(means)):
        offset = np.diff(frame.points(new_means[i]), axis=0)[0]
        expected = twins.principal_axis(white[i])  # means lie half of it to each side
        if offset @ expected < 0.0:
            expected = -expected
        np.testing.assert_allclose(offset, expected, rtol=0.0, atol=1e-9 * np.abs(offset).max())


@both_structures
def test_constant_features_stay_constant(covariance_type):
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.normal(size=40), np.full(40, 1.0 / 3.0), rng.normal(size=40), np.full(40, 1e6 / 7.0)]
    )
    mixture = twins.learned_mixture(X, covariance_type, threshold=0.2)
    assert mixture.n_compounds
    frame = twins.kernel_frame(mixture, covariance_type).frame
    m = mixture.n_compounds
    _, new_means, new_covs = principal_axis_split(mixture.means[:m], mixture.covariances, frame)
    assert np.all(new_means[..., [1, 3]] == X[0, [1, 3]])
    new_covs = twins.full_covariances(new_covs.reshape(2 * m, *mixture.covariances.shape[1:]))
    assert not new_covs[:, [1, 3]].any()
    assert not new_covs[:, :, [1, 3]].any()
    assert np.all(np.ptp(new_means[..., 0], axis=1) + np.ptp(new_means[..., 2], axis=1) > 0.0)


def test_features_constant_within_a_component_stay_so():
    # Correlated features, one of them constant in the component but not in the whole: the frame
    # mixes them, and rounding must not leave a trace of the one in the other.
    _, _, frame = gaussians(3, "full")
    covs = np.zeros((1, 3, 3))
    covs[0][np.ix_([0, 2], [0, 2])] = [[2.0, 0.3], [0.3, 1.0]]
    means = np.array([[1.0, 1.0 / 3.0, 2.0]])
    _, new_means, new_covs = principal_axis_split(means, covs, frame)
    assert np.all(new_means[..., 1] == means[0, 1])
    assert not new_covs[..., 1].any()
    assert not new_covs[..., 1, :].any()
    assert np.ptp(new_means[0, :, 0]) > 0.1


@both_structures
@pytest.mark.parametrize("d", [2, 5])
@pytest.mark.parametrize("scale", [1e-16, 1e-100, 1e-150])
def test_features_that_hardly_vary_stay_within_their_spread(scale, d, covariance_type):
    # The frame mixes them with the others, whose rounding is more than all of their variance.
    means, covs, frame = gaussians(d, covariance_type)
    units = np.where(np.arange(d) < d // 2, scale, 1.0)
    covs = STRUCTURES[covariance_type].rescale(covs, units)
    _, new_means, new_covs = principal_axis_split(means * units, covs, frame)
    full, halves = twins.full_covariances(covs), twins.full_covariances(new_covs[:, 0])
    for before, after, ends in zip(full, halves, new_means, strict=True):
        spreads = np.sqrt(np.diagonal(before))
        assert np.all(np.ptp(ends, axis=0) <= 1.001 * spreads + 1e-15 * np.abs(ends[0]))
        correlation, other = (matrix / np.outer(spreads, spreads) for matrix in (after, before))
        assert np.linalg.eigvalsh(correlation)[0] > 0.7 * np.linalg.eigvalsh(other)[0] > 0.0


@both_structures
def test_split_of_nothing(covariance_type):
    structure = STRUCTURES[covariance_type]
    frame = gaussians(2, covariance_type)[2]
    got = principal_axis_split(np.empty((0, 2)), np.empty((0, *structure.shape(2))), frame)
    assert [a.shape for a in got] == [(0, 2), (0, 2, 2), (0, 2, *structure.shape(2))]


@both_structures
def test_split_then_match_restores(covariance_type):
    means, covs, frame = gaussians(3, covariance_type, 1)
    weights, new_means, new_covs = principal_axis_split(means, covs, frame)
    count, mean, covariance = match_moments(7.0 * weights[0], new_means[0], new_covs[0])
    np.testing.assert_allclose(count, 7.0, rtol=1e-15)
    np.testing.assert_allclose(mean, means[0], rtol=1e-14)
    np.testing.assert_allclose(covariance, covs[0], rtol=0, atol=1e-14 * np.abs(covs).max())
