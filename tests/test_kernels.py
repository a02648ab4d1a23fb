"""Each compiled function against its plain twin."""

from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import twins
from marks import quick
from skokde._engine import (
    _append,
    _compression,
    _expert_weights,
    _feature_weights,
    _goldberger,
    _hellinger,
    _log_density,
    _lowrank,
    _moments,
    _neighbors,
    _outliers,
    _resolutions,
    _roughness,
    _row_density,
    _whitening,
)

CASES = [
    pytest.param(d, covariance_type, kind, id=f"{d}-{covariance_type}-{kind}")
    for d in (1, 2, 3, 5)
    for covariance_type in ("full", "diag")
    for kind in ("diracs", "compounds", "mixed")
    if d > 1 or covariance_type == "full"  # in 1-d both are the same array
]
# From 8 features on full covariances of low rank are taken by their factors.
CASES += [
    pytest.param(d, "full", kind, id=f"{d}-full-{kind}")
    for d in (8, 11)
    for kind in ("thin", "mixed")
]
each_case = pytest.mark.parametrize(("d", "covariance_type", "kind"), CASES)
# From 33 features on covariances of high rank are scored by their tridiagonal form.
COUPLED = [pytest.param(36, "full", kind, id=f"36-full-{kind}") for kind in ("thin", "mixed")]
each_scored_case = pytest.mark.parametrize(("d", "covariance_type", "kind"), CASES + COUPLED)
SEEDS = range(3)


def intp(values):
    return np.asarray(values, dtype=np.intp)


def roots_of(covs, d):
    """Inverse roots, roots and log-determinants, by the twin."""
    return twins.factorize_all(covs, d)


# ------------------------------------------------------------------------- random inputs


@each_case
def test_match_group_moments(d, covariance_type, kind):
    for seed in SEEDS:
        counts, means, covs = twins.random_components(d, covariance_type, kind, seed=seed)
        order, starts = intp([3, 0, 7, 1, 2, 4, 5, 6, 0, 7]), intp([0, 2, 3, 8, 10])
        got = _moments.match_group_moments(counts, means, covs, order, starts)
        expected = twins.match_group_moments(counts, means, covs, order, starts)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
            assert a.shape == b.shape


@pytest.mark.parametrize(("k", "d"), [(0, 4), (1, 4), (7, 30), (30, 7), (30, 3), (90, 30)])
@pytest.mark.parametrize("n", [1, 3])
def test_leading_directions(k, d, n):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(k, d)) * np.geomspace(1.0, 1e-2, d)
        rows[2::5] = 0.0  # as of what counts nothing
        rows[3::5] = rows[1::5][: len(rows[3::5])]
        arguments = rows, n, rng.normal(size=(k, n + 2))
        got, expected = (f.leading_directions(*arguments) for f in (_lowrank, twins))
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
        assert got.shape == (n, d)


@pytest.mark.parametrize(("d", "rank"), [(3, 1), (9, 3), (40, 3)])
def test_group_covariances(d, rank):
    order, starts = intp([3, 0, 7, 1, 2, 4, 5, 6, 0, 7, 6]), intp([0, 2, 3, 8, 9, 11])
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        counts, means = rng.uniform(0.5, 3.0, size=8), rng.normal(size=(8, d))
        counts[6:] *= seed > 0  # a group that counts nothing
        covs, units = rng.normal(size=(4, 1 + rank, d)), 10.0 ** rng.uniform(-3.0, 3.0, size=d)
        variances = np.square(rng.normal(size=(5, d))) * units**2
        variances[:, 1] = 0.0
        totals = np.array([counts[g].sum() for g in np.split(order, starts[1:-1])])
        arguments = (
            *(counts, means * units, covs * units, order, starts, totals),
            *(rng.normal(size=(5, d)) * units, variances, rng.normal(size=(40, rank + 1))),
        )
        got, expected = (f.group_covariances(*arguments) for f in (_lowrank, twins))
        np.testing.assert_allclose(got / units, expected / units, rtol=1e-8, atol=1e-10)
    few = arguments[-1][: 2 * rank + 4]
    with pytest.raises(ValueError, match="belong together"):
        _lowrank.group_covariances(*arguments[:-1], few)


@pytest.mark.parametrize(("d", "rank", "n_shared"), [(3, 1, 0), (9, 3, 2), (70, 0, 3), (9, 0, 0)])
def test_factor_analysers(d, rank, n_shared):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        precisions, means = rng.uniform(0.1, 9.0, size=(4, d)), rng.normal(size=(4, d))
        directions, shared = rng.normal(size=(4, rank, d)), rng.normal(size=(n_shared, d))
        got, expected = (
            f.analyser_factors(precisions, directions, shared) for f in (_lowrank, twins)
        )
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
        X = rng.normal(size=(70, d))
        X[0], X[1, 0], X[2] = means[1], 1e200, 1e-200
        arguments = X, means, precisions, got[0], rng.normal(size=4)
        with np.errstate(over="ignore", invalid="ignore"):
            expected = twins.analyser_log_densities(*arguments)
        got = _lowrank.analyser_log_densities(*arguments)
        np.testing.assert_allclose(got, np.where(np.isnan(expected), -np.inf, expected), rtol=1e-9)
        assert (got[:, 1] == -np.inf).all()


def test_eigenvalues_mend_indefinite_analysers():
    # So long that the identity is lost beside them, and rounding makes eigenvalues negative.
    rng = np.random.default_rng(0)
    long = 1e12 * np.ones((4, 3, 5)) + rng.normal(size=(4, 3, 5))
    long[0] = rng.normal(size=(3, 5))
    precisions, shared = np.ones((4, 5)), np.empty((0, 5))
    with pytest.raises(np.linalg.LinAlgError):
        twins.analyser_factors(precisions, long, shared)
    projections, inverses, log_dets = _lowrank.analyser_factors(precisions, long, shared)
    expected = twins.analyser_factors(precisions[:1], long[:1], shared)
    for a, b in zip((projections, inverses, log_dets), expected, strict=True):
        np.testing.assert_allclose(a[:1], b, rtol=1e-9, atol=1e-12)
    longest = np.square(long[1:]).sum(axis=(1, 2))
    assert (log_dets[1:] >= np.log(longest) - 1e-6).all()
    assert (log_dets[1:] < np.log(longest) + 40.0).all()
    # All along the direction is explained; what is across it is lost in rounding.
    points = np.stack([np.ones(5), [1.0, -1.0, 0.0, 0.0, 0.0]])
    squares = np.square(points @ projections.transpose(0, 2, 1)).sum(axis=2)[1:]
    np.testing.assert_allclose(squares[:, 0], 5.0, rtol=1e-3)
    arrays = np.zeros((4, 5)), precisions, projections, np.zeros(4)
    logs = _lowrank.analyser_log_densities(points, *arrays)
    assert np.isfinite(logs).all()
    assert (logs <= 0.0).all()


@pytest.mark.parametrize("most", [1, 4, 50])
@pytest.mark.parametrize("n_samples", [0.5, 1.0, 8.0, 1e3])
@pytest.mark.parametrize("d", [1, 3, 4, 9])
def test_votes_of_near(d, n_samples, most):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        # On a grid many are equally far, or where the point is.
        others = rng.integers(-2, 3, size=(40, d)) if seed else rng.normal(size=(40, d))
        points, others = others[:12] + (np.arange(12) % 2.0)[:, None], others.astype(float)
        counts, codes = rng.choice([0.1, 1.0, 2.5], size=40), intp(rng.integers(0, 3, size=40))
        own = intp(np.where(np.arange(12) % 4, -1, codes[:12]))
        arguments = points, others, counts, codes, own, 4, n_samples, most, 0.4, 3
        got, expected = (f.votes_of_near(*arguments) for f in (_neighbors, twins))
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
        assert (got.sum(axis=2) <= n_samples * (1.0 + 1e-12)).all()
        foreign = (*arguments[:4], np.full_like(own, -1), *arguments[5:])
        votes = _neighbors.votes_of_near(*foreign)
        assert (votes.sum(axis=2) >= min(n_samples, 0.1)).all()
        order = rng.permutation(40)  # they come in no order
        reordered = points, others[order], counts[order], codes[order], *foreign[4:]
        np.testing.assert_allclose(_neighbors.votes_of_near(*reordered), votes, atol=1e-12)


@pytest.mark.parametrize("n_nearest", [1, 7, 29])
@pytest.mark.parametrize("d", [1, 3, 4, 9])
def test_nearest_components(d, n_nearest):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        # On a grid many are equally far, or where another one is.
        points = rng.integers(-2, 3, size=(30, d)) if seed else rng.normal(size=(30, d))
        counts, chosen = rng.choice([0.0, 0.3, 1.0, 2.5], size=30), intp(rng.permutation(30)[:11])
        arguments = points.astype(float), counts, chosen, n_nearest
        got, expected = (f.nearest_components(*arguments) for f in (_neighbors, twins))
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-12, atol=1e-12)
    for wrong in (-1, 30):
        with pytest.raises(ValueError, match="numbers of components"):
            _neighbors.nearest_components(*arguments[:2], intp([wrong]), n_nearest)


def test_rounding_does_not_choose_among_equally_near():
    rng = np.random.default_rng(0)
    grid, counts = rng.integers(-1, 2, size=(60, 3)).astype(float), np.ones(60)
    expected, _ = _neighbors.nearest_components(grid, counts, intp(range(60)), 9)
    for _ in range(5):
        turned = grid @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
        nearest, _ = _neighbors.nearest_components(turned, counts, intp(range(60)), 9)
        np.testing.assert_array_equal(nearest, expected)


@pytest.mark.parametrize("n_voters", [1, 2, 12])
@pytest.mark.parametrize("d", [1, 3, 4, 9])
def test_loss_of_votes(d, n_voters):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        # Some are equally far, and some so far that they have no vote.
        squares = rng.choice([0.0, 0.5, 1.0, 1e4, 1e12], size=(7, n_voters, d))
        arguments = (
            rng.uniform(0.1, 3.0, size=d),
            squares if seed else rng.exponential(size=(7, n_voters, d)),
            rng.choice([0.0, 0.3, 1.0, 2.5], size=(7, n_voters)),
            rng.random((7, n_voters)) < 0.5,
            rng.choice([0.0, 0.2, 5.0], size=7),
            rng.uniform(0.01, 0.1, size=7),
            rng.choice([0.0, 0.3, 2.0], size=7),
            0.1,
        )
        got, expected = (f.loss_of_votes(*arguments) for f in (_feature_weights, twins))
        assert got[0] == pytest.approx(expected[0], rel=1e-12)
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-9, atol=1e-9)


def test_no_sample_votes_for_itself_alone():
    point = np.ones((1, 2))
    for counts, expected in ((1.0, 0.0), (0.3, 0.0), (2.5, 1.5)):
        arguments = point, point, np.array([counts]), intp([1]), intp([1]), 2, 8.0, 8, 0.4, 3
        votes = _neighbors.votes_of_near(*arguments)
        np.testing.assert_array_equal(votes, [3 * [[0.0, expected]]])


def test_numbers_that_are_no_classes_do_not_vote():
    arguments = np.zeros((1, 2)), np.zeros((2, 2)), np.ones(2)
    for codes in (intp([0, 2]), intp([-1, 0])):
        with pytest.raises(ValueError, match="codes must be numbers of classes"):
            _neighbors.votes_of_near(*arguments, codes, intp([-1]), 2, 1.0, 1, 0.4, 3)
    with pytest.raises(ValueError, match="own must be numbers of classes"):
        _neighbors.votes_of_near(*arguments, intp([0, 1]), intp([2]), 2, 1.0, 1, 0.4, 3)


def random_partitions(rng, n, n_resolutions):
    """Each merges some groups of the one before, or none; some have groups without a member."""
    labels, out = rng.permutation(n), []
    for _ in range(n_resolutions):
        n_groups = labels.max(initial=0) + 1
        fewer = np.where(rng.random(n_groups) < 0.3, rng.integers(0, n_groups, n_groups), range(n))
        out.append(labels)
        labels = fewer[labels] if rng.random() < 0.7 else labels
        n = labels.max(initial=0) + 1
    return intp(out)


@pytest.mark.parametrize("n_resolutions", [1, 2, 3, 6])
@pytest.mark.parametrize("n", [1, 2, 7, 20])
def test_distinct_groups(n, n_resolutions):
    n_held = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        partitions, n_compounds = random_partitions(rng, n, n_resolutions), rng.integers(n + 1)
        arguments = partitions, n + int(rng.integers(3)), int(n_compounds)
        found, expected = (f.distinct_groups(*arguments) for f in (_resolutions, twins))
        for got, as_it_should_be in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, np.reshape(as_it_should_be, np.shape(got)))
            assert len(got) == len(as_it_should_be)
        n_held += len(found[-1]) > 1
    assert n_held or n_resolutions == 1 or n == 1


def test_partitions_of_no_component():
    *none, there = _resolutions.distinct_groups(np.empty((3, 0), dtype=np.intp), 0, 0)
    assert [array.tolist() for array in none] == [[], [], [], [0], []]
    assert there.shape == (0, 3)
    *_, parts, there = _resolutions.distinct_groups(np.empty((3, 0), dtype=np.intp), 2, 0)
    assert (parts.tolist(), there.tolist()) == ([0, 0], [[True, True, True]])


def test_numbers_that_are_no_groups_are_refused():
    for wrong in ([0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="There is no group"):
            _resolutions.distinct_groups(intp([wrong]), 2, 0)


@pytest.mark.parametrize("n_narrow", [0, 2, 3])
@pytest.mark.parametrize("n_shapes", [1, 2, 3])
@pytest.mark.parametrize(("n_gaussians", "n_shrunk"), [(3, 0), (3, 2), (0, 0), (1, 1)])
def test_mixture_weights(n_gaussians, n_shrunk, n_shapes, n_narrow):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        estimates = rng.uniform(size=(n_shapes, 3, 4)) * rng.integers(0, 2, size=(n_shapes, 3, 4))
        estimates[:, 0] += 1e-3  # each group has some weight
        gaussians, shrunk = rng.uniform(size=(n_shapes, n_gaussians)), rng.uniform(size=n_shrunk)
        there = rng.random((5, 3)) < 0.5
        arguments = estimates, gaussians, shrunk, there, n_narrow
        found, expected = (f.mixture_weights(*arguments) for f in (_expert_weights, twins))
        for got, as_it_should_be in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, as_it_should_be, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("farthest", [1.5, 3.0, 20.0])
@each_case
def test_inliers(d, covariance_type, kind, farthest):
    n_outliers = 0
    for seed in range(20):
        counts, means, covs = twins.random_components(d, covariance_type, kind, k=40, seed=seed)
        # Counts without rounding, ties, constant features, and some components far out.
        counts = np.ceil(100.0 * counts)
        means[::3] = np.round(means[::3])
        means[:, : d // 3] = 1.0
        means[seed::9] *= 10.0 ** (seed % 6)
        arguments = (counts, means, covs, 0.1, 2.56, farthest)
        got = _outliers.inliers(*arguments)
        assert got.dtype == bool
        np.testing.assert_array_equal(got, twins.inliers(*arguments))
        n_outliers += np.count_nonzero(~got)
    assert n_outliers


@pytest.mark.parametrize("f", [1.0, 0.9, 0.1])
@pytest.mark.parametrize("capacity", [6, 10, 40])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_append_rows(d, capacity, f):
    for seed in SEEDS:
        rng = np.random.default_rng([seed, d])
        # Few values, so that rows repeat Diracs, and one repeats a compound's mean.
        rows = rng.integers(2 if d > 1 else 12, size=(30, d)).astype(float)
        weights = rng.choice([1.0, 1.0, 2.0, 0.5, 3.7], size=30)
        counts, means = np.full(capacity, np.nan), np.full((capacity, d), np.nan)
        counts[:5], means[:5] = rng.uniform(1, 5, size=5), 50.0 + rng.normal(size=(5, d))
        means[1] = rows[4]
        expected = twins.append_rows(counts, means, 5, 2, rows, weights, f)
        k, n = _append.append_rows(counts, means, 5, 2, rows, weights, f)
        assert (k, n) == (len(expected[0]), expected[2])
        np.testing.assert_allclose(counts[:k], expected[0], rtol=1e-12)
        np.testing.assert_array_equal(means[:k], expected[1])
        assert np.isnan(counts[k:]).all()
        assert np.isnan(means[k:]).all()


@pytest.mark.parametrize("f", [1.0, 0.9, 0.1])
def test_age_class_counts(f):
    rng = np.random.default_rng(0)
    labels, weights = intp(rng.integers(4, size=25)), rng.choice([1.0, 0.3, 2.0, 5.5], size=25)
    counts = np.array([3.0, 0.0, 1.5, 0.0, 7.0])
    expected = twins.age_class_counts(counts, labels, weights, f)
    _append.age_class_counts(counts, labels, weights, f)
    np.testing.assert_allclose(counts, expected, rtol=1e-12)


def random_memories(n_memories=3, n_classes=4):
    rng = np.random.default_rng(n_classes)
    counts = rng.choice([0.0, 0.7, 30.0], size=(n_memories, n_classes))
    first = rng.dirichlet(np.ones(n_memories))
    factors = np.array([1.0, 0.99, 0.5])[:n_memories]
    return counts, rng.dirichlet(np.ones(n_memories)), factors, first


@pytest.mark.parametrize("fixed_share", [0.0, 0.002, 0.3])
def test_update_class_memories(fixed_share):
    rng = np.random.default_rng(0)
    labels = intp(rng.integers(4, size=40))
    row_weights = rng.choice([1.0, 0.3, 2.0, 5.5, 30.0], size=40)
    counts, weights, factors, first = random_memories()
    others = factors, first, fixed_share, 4  # of 5.5 and of 30 not all is predicted
    expected = twins.update_class_memories(counts, weights, labels, row_weights, *others)
    _append.update_class_memories(counts, weights, labels, row_weights, *others)
    np.testing.assert_allclose(counts, expected[0], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(weights, expected[1], rtol=1e-9)
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-12)


def test_class_memories_do_not_depend_on_blocks():
    rng = np.random.default_rng(0)
    labels, row_weights = intp(rng.integers(4, size=60)), rng.choice([1.0, 0.25, 7.0], size=60)
    results = []
    for size in (60, 7, 1):
        counts, weights, factors, first = random_memories()
        for start in range(0, 60, size):
            part = slice(start, start + size)
            _append.update_class_memories(
                counts, weights, labels[part], row_weights[part], factors, first, 0.002, 1000
            )
        results.append(counts.tobytes() + weights.tobytes())
    assert len(set(results)) == 1


def test_class_memories_take_a_weight_for_repetitions():
    rng = np.random.default_rng(0)
    labels, times = intp(rng.integers(4, size=30)), rng.integers(1, 6, size=30)
    results = []
    for rows, row_weights in (
        (labels, times.astype(float)),
        (np.repeat(labels, times), np.ones(times.sum())),
    ):
        counts, weights, factors, first = random_memories()
        _append.update_class_memories(
            counts, weights, rows, row_weights, factors, first, 0.002, 1000
        )
        results.append(counts.tobytes() + weights.tobytes())
    assert results[0] == results[1]


@pytest.mark.parametrize("label", [-1, 4])
def test_a_label_that_is_no_class_is_refused(label):
    counts, weights, factors, first = random_memories()
    before = counts.copy(), weights.copy()
    with pytest.raises(ValueError, match="not the number of a class"):
        _append.update_class_memories(
            counts, weights, intp([0, label]), np.ones(2), factors, first, 0.002, 9
        )
    np.testing.assert_array_equal(counts, before[0])
    np.testing.assert_array_equal(weights, before[1])


@pytest.mark.parametrize("printed", quick([True, False]), ids=["printed", "right"])
@each_case
def test_roughness(d, covariance_type, kind, printed):
    for seed in SEEDS:
        weights, means, covs = twins.random_components(d, covariance_type, kind, seed=seed)
        for pilot in (0.02, 0.3, 2.0):
            got = _roughness.roughness(weights, means, covs, pilot, printed)
            expected = twins.roughness(weights, means, covs, pilot, printed)
            # The right bracket's terms cancel between pairs: a few more digits are lost there.
            np.testing.assert_allclose(got, expected, rtol=1e-11)


@pytest.mark.parametrize("printed", [True, False], ids=["printed", "right"])
@pytest.mark.parametrize("kind", ["diracs", "mixed"])
@pytest.mark.parametrize("d", [1, 3])
def test_roughness_of_components_near_and_far(d, kind, printed):
    # From pairs that coincide to pairs that add nothing: none that counts may be left out.
    weights, means, covs = twins.random_components(d, "full", kind, 24)
    means *= np.geomspace(0.1, 30.0, 24)[:, None]
    weights = weights ** np.linspace(1.0, 9.0, 24)
    weights /= weights.sum()
    for pilot in (1e-3, 0.5):
        got = _roughness.roughness(weights, means, covs, pilot, printed)
        expected = twins.roughness(weights, means, covs, pilot, printed)
        np.testing.assert_allclose(got, expected, rtol=1e-11)


@pytest.mark.parametrize("noise", [0.0, 1e-11, 0.9e-9, 1.1e-9, 1e-8, 1e-7])
@pytest.mark.parametrize("function", ["roughness", "local_error", "hellinger", "two_means"])
def test_thin_covariances_may_lack_what_is_lost_in_the_bandwidth(function, noise):
    # Whether they are taken for thin or not must not show, whatever is left out.
    d, most = 10, 2e-8
    weights, means, covs = twins.random_components(d, "full", "thin", 12, seed=3)
    covs = covs[[0, 1, 3, 4, 5]]
    for i, cov in enumerate(covs.reshape(-1, d, d)):
        root = np.random.default_rng(i).normal(size=(d, d))
        cov += noise * root @ root.T / np.linalg.norm(root, axis=1).max() ** 2
    members = intp(range(12))
    if function == "roughness":
        for pilot in (0.2, 1.0, 3.0):
            scaled = means * np.sqrt(pilot), covs * pilot, pilot, False
            got = _roughness.roughness(weights, *scaled)
            np.testing.assert_allclose(got, twins.roughness(weights, *scaled), rtol=most)
    elif function == "local_error":
        factors = _hellinger.factorize_all(covs, d)
        got = _hellinger.local_error(members, weights, means, covs, *factors, np.empty(0))
        expected = twins.local_error(members, weights, means, covs)
        np.testing.assert_allclose(got, expected, rtol=most)
    elif function == "hellinger":
        one = weights[:2] / weights[:2].sum(), means[:2], covs[:2]
        other = weights[2:5] / weights[2:5].sum(), means[2:5], covs[2:5]
        got = _hellinger.hellinger(*one, *other)
        np.testing.assert_allclose(got, twins.hellinger(*one, *other), rtol=most)
    else:
        got = _goldberger.two_means(members, weights, means, covs)
        expected = twins.two_means(members, weights, means, covs)
        assert [side.tolist() for side in got] == [side.tolist() for side in expected]


@each_case
def test_local_error(d, covariance_type, kind):
    for seed in SEEDS:
        weights, means, covs = twins.random_components(d, covariance_type, kind, seed=seed)
        factors = roots_of(covs, d)
        for members in ([0, 1], [2, 5, 7], [7, 3, 0, 4], range(8)):
            members = intp(members)
            got = _hellinger.local_error(members, weights, means, covs, *factors, np.empty(0))
            expected = twins.local_error(members, weights, means, covs)
            # The twin subtracts roots of densities that are nearly equal.
            np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13)


@each_case
def test_local_error_may_stop_where_it_is_sure_between_which_edges_it_is(d, covariance_type, kind):
    weights, means, covs = twins.random_components(d, covariance_type, kind, 16)
    factors = roots_of(covs, d)
    stopped = 0
    for members in ([0, 1], [2, 5, 7], range(16)):
        arrays = intp(members), weights, means, covs, *factors
        exact = _hellinger.local_error(*arrays, np.empty(0))
        most = np.sqrt(weights[intp(members)].sum())  # no error is beyond the root of the mass
        for low in (0.0, 0.01, 0.3, 0.7, 0.9, 0.999, 1.001):
            for high in (0.1, 0.5, 0.99, 1.01, 1.1, 3.0, 1.001 * most / exact):
                edges = exact * np.sort([low, high])
                got = _hellinger.local_error(*arrays, edges)
                assert got <= exact * (1.0 + 1e-14)
                assert np.array_equal(got <= edges, exact <= edges)
                stopped += got < 0.99 * exact
        assert _hellinger.local_error(*arrays, np.array([0.0])) > 0.0
        assert _hellinger.local_error(*arrays, np.array([1.001 * most])) == 0.0
    assert stopped > 0


@pytest.mark.parametrize(
    ("kind1", "kind2"), [("mixed", "mixed"), ("diracs", "compounds"), ("thin", "thin")]
)
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
def test_hellinger(d, covariance_type, kind1, kind2):
    for seed in SEEDS:
        arrays = [
            *twins.random_components(d, covariance_type, kind1, 4, seed=seed, all_covs=True),
            *twins.random_components(d, covariance_type, kind2, 6, seed=seed + 9, all_covs=True),
        ]
        got = _hellinger.hellinger(*arrays)
        np.testing.assert_allclose(got, twins.hellinger(*arrays), rtol=1e-12)


@each_case
def test_factorize_all(d, covariance_type, kind):
    for seed in SEEDS:
        _, _, covs = twins.random_components(d, covariance_type, kind, seed=seed)
        for got, expected in zip(
            _hellinger.factorize_all(covs, d), twins.factorize_all(covs, d), strict=True
        ):
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


@each_case
def test_standardize(d, covariance_type, kind):
    for seed in SEEDS:
        _, means, covs = twins.random_components(d, covariance_type, kind, seed=seed)
        diagonal = slice(None, None, d + 1 if covariance_type == "full" else None)
        for cov in covs[:2]:
            cov = cov[None].copy()
            if seed:  # constant features: one without a variance, one hidden by its mean
                cov[0, diagonal][0] = 0.0
                means[0, -1] = 1e20 * (seed - 1)
            got = _whitening.standardize(means[0], cov, 1e-290)
            expected = twins.standardize(means[0], cov, 1e-290)
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-14)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 16, 31, 32, 33, 40])
def test_whitening_roots(d):
    # From eigenvalues that are well apart to many equal ones, zeros, and scales far apart.
    rng = np.random.default_rng(d)
    vectors = np.linalg.qr(rng.normal(size=(d, d)))[0]
    spectra = [
        np.linspace(1.0, 2.0, d),
        np.repeat([1.0, 3.0], [d // 2, d - d // 2]),
        np.geomspace(1e-6, 1.0, d),
        np.repeat([1e-12, 1.0], [d // 2, d - d // 2]),
        np.arange(d) == 0,
        np.ones(d),
    ]
    matrices = [(vectors * spectrum) @ vectors.T for spectrum in spectra]
    matrices += [np.eye(d), np.diag(rng.uniform(size=d)), np.ones((d, d)), np.eye(d)[::-1] + 2]
    for matrix in matrices:
        matrix = 0.5 * (matrix + matrix.T)
        values, vectors = _whitening.eigen(matrix)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix), atol=1e-13 * values[-1] * d)
        np.testing.assert_allclose((vectors.T * values) @ vectors, matrix, atol=1e-12)
        got = _whitening.roots(values, vectors, 1e-9, 0.01)
        expected = twins.whitening_roots(matrix, 1e-9, 0.01)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-9 * (1.0 + np.abs(b).max()))
        np.testing.assert_allclose(got[0] @ got[1], np.eye(d), atol=1e-9)


@pytest.mark.parametrize("scale", [1e-290, 1e-160, 1e-60, 1.0, 1e60, 1e99, 1e110, 1e290])
@pytest.mark.parametrize("d", [2, 7, 32])
def test_roots_of_any_scale(d, scale):
    # Squares of the entries may over- or underflow.
    root = np.random.default_rng(d).normal(size=(d, d))
    matrix = root @ root.T + 0.1 * np.eye(d)
    for a, b, power in zip(
        _whitening.roots(*_whitening.eigen(scale * matrix), 0.0, 0.0)[:2],
        twins.whitening_roots(matrix, 0.0, 0.0)[:2],
        (0.5, -0.5),
        strict=True,
    ):
        np.testing.assert_allclose(a, scale**power * b, rtol=1e-9, atol=1e-9 * scale**power)


def random_frame(d, covariance_type):
    """Center, spread and matrix of some coordinates."""
    rng = np.random.default_rng(d)
    center, spread = rng.normal(size=d), rng.uniform(0.5, 2.0, size=d)
    root = rng.normal(size=(d, d))
    matrix = root @ root.T + np.eye(d)
    return center, spread, np.diag(matrix).copy() if covariance_type == "diag" else matrix.ravel()


def random_details(d, covariance_type, kind, seed):
    """The arrays of a mixture of 16 components, some of them equal, and of their details."""
    counts, means, covs = twins.random_components(d, covariance_type, kind, 16, seed=seed)
    means[-3:] = means[-1]
    m, size = covs.shape
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet([2.0, 2.0], size=m)
    detail_means = rng.normal(size=(m, 2, d))
    merged = np.ones(2 * m, dtype=np.uint8)
    merged[1::5] = 0
    detail_covs = np.resize(covs[::-1], (2 * m, size))[merged > 0]
    return counts, means, covs, weights, detail_means, merged.reshape(m, 2), detail_covs


LABELS = {
    "some": [0, 0, 1, 2, 1, 3, 0, 4, 5, 5, 6, 6, 7, 8, 8, 8],
    "none": range(16),
    "all": [0] * 16,
    "pairs": [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@each_case
def test_merge(d, covariance_type, kind, labels):
    labels = intp(labels)
    for seed in SEEDS:
        mixture = random_details(d, covariance_type, kind, seed)
        frame = random_frame(d, covariance_type)
        for axis, feature_axes in ((np.eye(d)[-1], None), (np.ones(d), frame[2])):
            got = _compression.merge(labels, *mixture, *frame, axis, feature_axes)
            expected = twins.merge(labels, *mixture, *frame, axis, feature_axes)
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_merge_keeps_what_is_alone_as_it_is(covariance_type):
    mixture = random_details(3, covariance_type, "mixed", 0)
    axis = np.ones(3)
    members, *got = _compression.merge(
        intp(range(16)), *mixture, *random_frame(3, covariance_type), axis
    )
    np.testing.assert_array_equal(members, range(16))
    for a, b in zip(got, mixture, strict=True):
        np.testing.assert_array_equal(a, b)


@each_case
def test_coordinates(d, covariance_type, kind):
    _, means, covs = twins.random_components(d, covariance_type, kind)
    frame = random_frame(d, covariance_type)
    got, expected = _whitening.points_in(means, *frame), twins.points_in(means, *frame)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    got, expected = _whitening.covariances_in(covs, *frame), twins.covariances_in(covs, *frame)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    assert _whitening.points_in(means[:0], *frame).shape == (0, d)
    # Those whose squares would overflow are made narrower, as the others are not.
    covs[::2] *= 1e250
    frame = frame[0], 1e-40 * frame[1], frame[2]
    got, expected = _whitening.covariances_in(covs, *frame), twins.covariances_in(covs, *frame)
    assert np.abs(expected[::2]).max(initial=1e280) > 1e270
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.abs(b).max())


def test_covariances_of_which_sums_overflow_to_either_side_stay_finite():
    covs = 1e198 * np.array([[3.0, -4.0, 1.0, -4.0, 28.0, -2.0, 1.0, -2.0, 9.0]])
    matrix = np.array([100.0, 40.0, -5.0, 40.0, 100.0, 3.0, -5.0, 3.0, 80.0])
    frame = np.zeros(3), np.array([8e-101, 3e-101, 2e-101]), matrix
    got, expected = _whitening.covariances_in(covs, *frame), twins.covariances_in(covs, *frame)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_points_out_of_reach_stay_finite():
    center, spread, matrix = np.zeros(2), np.array([1e-150, 1.0]), np.array([2.0, 1.0, 1.0, 2.0])
    points = _whitening.points_in(np.array([[1e150, -1e150]]), center, spread, matrix)
    np.testing.assert_allclose(points, [[2e160, 1e160]])


@each_case
def test_principal_axes(d, covariance_type, kind):
    for seed in SEEDS:
        _, _, covs = twins.random_components(d, covariance_type, kind, seed=seed)
        got, expected = _goldberger.principal_axes(covs, d), twins.principal_axes(covs, d)
        assert got.shape == expected.shape
        # Eigenvectors are known as well as the gap to the next eigenvalue allows.
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_widest_gap(d):
    for seed in SEEDS:
        weights, points, _ = twins.random_components(d, "diag", "diracs", seed=seed)
        for scale in (1e-100, 1.0, 1e100):
            arguments = weights, scale * points, weights @ (scale * points)
            got, expected = (f.widest_gap(*arguments) for f in (_goldberger, twins))
            np.testing.assert_array_equal(got, expected)


def test_rounding_of_the_mean_decides_nothing():
    # Two fifths of the samples are at the mean of the first feature.
    first, second = np.repeat([-1.0, 0.0, 2.0], [4, 4, 2]), np.tile([-0.9, 0.9], 5)
    points = np.column_stack([first, second])
    for noise in (0.0, 1e-13, -1e-13):
        axis = _goldberger.widest_gap(np.full(10, 0.1), points, np.array([noise, 0.0]))
        np.testing.assert_array_equal(axis, [1.0, 0.0])


@each_case
def test_detail_errors(d, covariance_type, kind):
    for seed in SEEDS:
        mixture = random_details(d, covariance_type, kind, seed)
        frame = random_frame(d, covariance_type)
        for low in (0.0, np.median(np.sqrt(mixture[0]))):
            got = _hellinger.detail_errors(*mixture, *frame, low)
            expected = twins.detail_errors(*mixture, *frame, low)
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@each_case
def test_two_means(d, covariance_type, kind):
    iterated = 0
    for seed in range(8):
        weights, means, covs = twins.random_components(d, covariance_type, kind, 16, seed=seed)
        axis = np.random.default_rng(seed).normal(size=d)
        for members in (range(16), range(3, 12), [15, 1, 8, 4, 2], [9, 0, 14]):
            members = intp(members)
            for start in (None, axis):
                got = _goldberger.two_means(members, weights, means, covs, start)
                expected = twins.two_means(members, weights, means, covs, start)
                for a, b in zip(got, expected, strict=True):
                    assert a.tolist() == b.tolist()
            mean, _ = twins.sub_gaussian(members, weights, means, covs)
            cut = members[(means[members] - mean) @ axis <= 0.0]
            iterated += cut.tolist() != got[0].tolist()
    assert iterated > 0  # else the cut alone would pass


@each_case
def test_two_means_across_features(d, covariance_type, kind):
    across = 0
    for seed in range(16):
        weights, means, covs = twins.random_components(d, covariance_type, kind, 16, seed=seed)
        rng = np.random.default_rng(seed)
        axis, feature_axes = rng.normal(size=d), random_frame(d, covariance_type)[2]
        if seed % 2:  # a feature of two values, or of three, in either coordinates
            means[:, -1] = rng.choice([-3.0, 3.0, 0.0][: 2 + seed % 3], size=16)
        else:  # one that is constant in some members, but for rounding
            means[[9, 0, 14], 0] = 1.0 / 3.0
        for members in (range(16), range(3, 12), [15, 1, 8, 4, 2], [9, 0, 14]):
            arguments = intp(members), weights, means, covs
            for start in (None, axis):
                got, expected = (
                    f.two_means(*arguments, start, feature_axes) for f in (_goldberger, twins)
                )
                for a, b in zip(got, expected, strict=True):
                    assert a.tolist() == b.tolist()
                without = _goldberger.two_means(*arguments, start)
                across += without[0].tolist() != got[0].tolist()
    assert d == 1 or across > 0


SCALES = WIDTHS, SHRINKS = np.array([1.0, 2.5, 8.0, 1.5, 40.0]), np.array([1.0, 0.8, 0.3, 1.0, 1.0])


def model_arrays(log_weights, means, covs, widths=WIDTHS, shrinks=SHRINKS, parts=None):
    """What mixtures of the densities of a model take, by default in one part."""
    parts = np.zeros(len(means), dtype=np.intp) if parts is None else parts
    decomposed = _log_density.decompose(means, covs, widths, shrinks)
    return log_weights, means, parts, *decomposed, widths, shrinks


def bounds_of(arrays):
    """What is left out of mixtures is decided by, of the arrays of a model."""
    _, means, _, _, _, precisions, couplings, starts, _, widths, shrinks = arrays
    n = precisions.shape[1]
    return _log_density.least_precisions(
        precisions, couplings, starts, means.shape[1], widths[:n], shrinks[:n]
    )


def log_densities(points, log_weights, means, covs):
    """Under each of the kernels."""
    under_each, arrays = np.eye(len(WIDTHS))[:, None], model_arrays(log_weights, means, covs)
    return _log_density.log_mixtures(points, under_each, None, *arrays, *bounds_of(arrays))


@each_scored_case
def test_log_densities(d, covariance_type, kind):
    for seed in SEEDS:
        weights, means, covs = twins.random_components(d, covariance_type, kind, seed=seed)
        # More rows than a block of the loop holds, and not a multiple of it.
        points = 4.0 * np.random.default_rng(seed).normal(size=(150, d))
        got = log_densities(points, np.log(weights), means, covs)
        expected = twins.log_densities(points, np.log(weights), means, covs, *SCALES)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
        alone = log_densities(points[:1], np.log(weights), means, covs)
        np.testing.assert_allclose(alone, got[:1], rtol=1e-13, atol=1e-13)


def log_mixtures_of_row(row, weights, *arguments):
    kde = _row_density.RowKDE([_row_density.RowFamily(*arguments)], [weights])
    return _row_density.log_mixtures_of_row(row, [kde])


def log_densities_of_rows(rows, log_weights, means, covs):
    """Under each of the kernels, one row after the other."""
    d = rows.shape[1]
    frame = np.zeros(d), np.ones(d), np.ones(d) if covs.shape[1] == d else np.eye(d).ravel(), 0.0
    arguments = np.eye(len(WIDTHS))[:, None], *frame, *model_arrays(log_weights, means, covs)
    return np.concatenate([log_mixtures_of_row(row, *arguments) for row in rows])


@each_scored_case
def test_log_densities_of_row(d, covariance_type, kind):
    frame = random_frame(d, covariance_type)
    for seed in SEEDS:
        families, expected = [], []
        rng = np.random.default_rng(seed)
        row = 4.0 * rng.normal(size=d)
        point = twins.points_in(row[None], *frame)
        for some in (slice(4), slice(5), slice(1, 4)):
            weights, means, covs = twins.random_components(d, covariance_type, kind, seed=seed)
            scales = WIDTHS[some].copy(), SHRINKS[some].copy()
            arguments = model_arrays(np.log(weights), means, covs, *scales)
            families.append(_row_density.RowFamily(*frame, 0.7, *arguments))
            expected.append(
                0.7 + twins.log_densities(point, np.log(weights), means, covs, *scales)[0]
            )
        for number, alone in enumerate(expected):
            under_each = np.eye(len(alone))[:, None]
            kde = _row_density.RowKDE(families[number:][:1], [under_each])
            got = _row_density.log_mixtures_of_row(row, [kde])
            np.testing.assert_allclose(got, alone[None], rtol=1e-12, atol=1e-12)
        # Mixtures of several kernels; of several families, and several KDEs at once.
        weights = [np.abs(rng.normal(size=(2, 1, len(alone)))) for alone in expected]
        expected = [
            twins.log_mixtures(alone[None], weight[:, 0])[0]
            for alone, weight in zip(expected, weights, strict=True)
        ]
        parts = slice(3), slice(1, 3), slice(1)
        kdes = [_row_density.RowKDE(families[part], weights[part]) for part in parts]
        got = _row_density.log_mixtures_of_row(row, kdes)
        expected = [np.logaddexp.reduce(expected[part]) for part in parts]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("apart", [1.0, 3.0, 30.0])
@pytest.mark.parametrize("kind", ["compounds", "mixed", "thin"])
def test_rows_of_many_features_are_scored_by_what_is_near(kind, apart):
    # Of components that are far from a row, or farther than others, not all axes are looked at.
    d, n = 36, 24
    for seed in SEEDS:
        weights, means, covs = twins.random_components(d, "full", kind, n, seed=seed)
        means *= apart
        rows = means[::5] + np.random.default_rng(seed).normal(size=(5, d))
        rows[-1] = 1e3
        got = log_densities_of_rows(rows, np.log(weights), means, covs)
        expected = twins.log_densities(rows, np.log(weights), means, covs, *SCALES)
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)


def test_log_densities_of_row_far_out_and_with_a_vanished_weight():
    frame = np.zeros(1), np.ones(1), np.ones(1), 0.0
    log_weights, means, covs = np.array([-np.inf, 0.0]), np.array([[0.0], [3.0]]), np.empty((0, 1))
    arguments = model_arrays(log_weights, means, covs)
    under_each = np.eye(len(WIDTHS))[:, None]
    got = log_mixtures_of_row(np.zeros(1), under_each, *frame, *arguments)
    expected = log_densities(np.zeros((1, 1)), log_weights, means, covs)
    np.testing.assert_array_equal(got, expected)
    far = log_mixtures_of_row(np.array([1e300]), under_each, *frame, *arguments)
    assert np.isneginf(far).all()
    arguments = np.full(2, -np.inf), *arguments[1:]
    assert np.isneginf(log_mixtures_of_row(np.zeros(1), under_each, *frame, *arguments)).all()


@each_scored_case
def test_log_mixtures_of_parts_of_a_model(d, covariance_type, kind):
    # Five parts, one of Diracs alone that has the last kernels, too; mixtures with nothing of some.
    rng = np.random.default_rng(d)
    weights, means, covs = twins.random_components(d, covariance_type, kind, 40)
    m, n_kernels = len(covs), 3
    parts = intp(rng.integers(4, size=len(means)))
    parts[-3:] = 4
    of_parts = rng.uniform(size=(6, 5, len(WIDTHS)))
    of_parts[:, np.unique(parts[:m]), n_kernels:] = 0.0
    of_parts[0] = 0.0
    of_parts[1, 1:] = of_parts[2, :, 1:] = of_parts[3, 2:4] = 0.0
    of_parts[4] *= 1e-200
    of_parts[5, :, [0, 2]] = 0.0
    decomposed = _log_density.decompose(means, covs, *(scale[:n_kernels] for scale in SCALES))
    arrays = np.log(weights), means, parts, *decomposed, *SCALES
    points = 4.0 * rng.normal(size=(150, d))
    covs = np.concatenate([covs, np.zeros((len(means) - m, covs.shape[1]))])
    logs = [
        twins.log_densities(points, np.log(weights[p]), means[p], covs[p], *SCALES)
        for p in (parts == number for number in range(5))
        if p.any()
    ]
    held = of_parts[:, np.unique(parts)].reshape(6, -1)
    expected = twins.log_mixtures(np.concatenate(logs, axis=1), held)
    got = _log_density.log_mixtures(points, of_parts, None, *arrays)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    assert np.isneginf(got[:, 0]).all()
    frame = random_frame(d, covariance_type)
    mapped = twins.points_in(points[:1], *frame)
    expected = _log_density.log_mixtures(mapped, of_parts, None, *arrays)
    got = log_mixtures_of_row(points[0], of_parts, *frame, 0.0, *arrays)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    if m:
        of_parts[0, parts[0], -1] = 1.0
        with pytest.raises(ValueError, match="under all the kernels"):
            _log_density.log_mixtures(points, of_parts, None, *arrays)
        with pytest.raises(ValueError, match="under all the kernels"):
            log_mixtures_of_row(points[0], of_parts, *frame, 0.0, *arrays)
    for number in (-1, 5):
        arrays[2][0] = number
        with pytest.raises(ValueError, match=r"no part|Shapes"):
            _log_density.log_mixtures(points, of_parts, None, *arrays)
        with pytest.raises(ValueError, match=r"no part|Shapes"):
            log_mixtures_of_row(points[0], of_parts, *frame, 0.0, *arrays)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_log_densities_of_many_components(covariance_type):
    # More eigenvectors than are projected on at a time, thin covariances among them.
    parts = [twins.random_components(9, covariance_type, "compounds", seed=s) for s in range(5)]
    if covariance_type == "full":
        parts.insert(2, twins.random_components(9, "full", "thin", seed=7))
    weights, means, covs = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    points = np.random.default_rng(0).normal(size=(65, 9))
    got = log_densities(points, np.log(weights), means, covs)
    expected = twins.log_densities(points, np.log(weights), means, covs, *SCALES)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    got = log_densities_of_rows(points[:5], np.log(weights), means, covs)
    np.testing.assert_allclose(got, expected[:5], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spacing", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("d", [1, 2, 9, 36])
def test_log_densities_of_blocks_far_from_most_components(d, covariance_type, spacing):
    # Whole blocks, so that bounds tell what counts, with outliers far from all in one of them.
    rng = np.random.default_rng(d)
    kinds = 4 * ["mixed", "thin", "compounds"]
    parts = [twins.random_components(d, covariance_type, k, seed=s) for s, k in enumerate(kinds)]
    parts.sort(key=lambda part: -len(part[2]))
    weights = np.concatenate([part[0] for part in parts])
    centers = spacing * rng.normal(size=(len(parts), d))
    shifted = [part[1] + center for part, center in zip(parts, centers, strict=True)]
    compounds = [means[: len(part[2])] for means, part in zip(shifted, parts, strict=True)]
    diracs = [means[len(part[2]) :] for means, part in zip(shifted, parts, strict=True)]
    means, covs = np.concatenate(compounds + diracs), np.concatenate([part[2] for part in parts])
    places = rng.integers(len(means), size=64 * 5)
    points = means[np.sort(places)] + rng.normal(size=(len(places), d))
    points[3], points[70] = 1e8, -1e3
    got = log_densities(points, np.log(weights), means, covs)
    expected = twins.log_densities(points, np.log(weights), means, covs, *SCALES)
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)
    arrays = model_arrays(np.log(weights), means, covs)
    # Mixtures of kernels, alone and beside densities of which some are larger by far.
    shares = rng.dirichlet(0.1 * np.ones(5), size=3)
    shares[2] = [1e-12, 0.0, 0.5, 0.0, 0.5]
    of_kernels = shares[:, None], None, *arrays
    of_all = twins.log_mixtures(expected, shares)
    bounded = _log_density.log_mixtures(points, *of_kernels, *bounds_of(arrays))
    np.testing.assert_allclose(bounded, of_all, rtol=1e-11, atol=1e-11)
    besides = of_all + rng.choice([-1e3, 0.0, 10.0, 40.0], size=(len(points), 1))
    besides[:64] = 1e3
    of_kernels = shares[:, None], besides, *arrays
    beside = _log_density.log_mixtures(points, *of_kernels, *bounds_of(arrays))
    np.testing.assert_allclose(
        np.logaddexp(beside, besides), np.logaddexp(of_all, besides), rtol=1e-11, atol=1e-11
    )
    assert np.isneginf(beside[:64]).all()  # else nothing is left out
    some = np.array([0, 3, 70, 200])
    rows = log_densities_of_rows(points[some], np.log(weights), means, covs)
    np.testing.assert_allclose(rows, expected[some], rtol=1e-11, atol=1e-11)
    shuffled = rng.permutation(len(points))
    other = log_densities(points[shuffled], np.log(weights), means, covs)
    np.testing.assert_allclose(other, got[shuffled], rtol=1e-11, atol=1e-11)


@each_scored_case
def test_least_precisions(d, covariance_type, kind):
    _, _, covs = twins.random_components(d, covariance_type, kind)
    axes, _, precisions, couplings, starts, _ = _log_density.decompose(
        np.zeros((len(covs), d)), covs, *SCALES
    )
    longest, *bounds = _log_density.least_precisions(precisions, couplings, starts, d, *SCALES)
    rng = np.random.default_rng(0)
    for i, cov in enumerate(twins.matrices(covs, d, len(covs))):
        own_axes = axes[starts[i] : starts[i + 1]] if len(axes) else np.eye(d)
        for w, (width, shrink) in enumerate(zip(*SCALES, strict=True)):
            precision = np.linalg.inv(shrink**2 * (cov + width**2 * np.eye(d)))
            least, across = (bound[i, w] for bound in bounds)
            assert 0.0 < least <= (1.0 + 1e-6) * np.linalg.eigvalsh(precision)[0]
            points = rng.normal(size=(50, d))
            if longest[i] >= 0:
                axis = own_axes[longest[i]]
                np.testing.assert_allclose(axis @ precision @ axis, least, rtol=1e-6)
                points -= np.outer(points @ axis, axis)
            squares = np.einsum("ij,jk,ik->i", points, precision, points)
            assert np.all(squares >= (1.0 - 1e-9) * across * (points**2).sum(axis=1) - 1e-12)


def test_thin_covariances_take_little():
    _, means, covs = twins.random_components(11, "full", "thin")
    axes, projections, precisions, couplings, starts, log_dets = _log_density.decompose(
        means, covs, WIDTHS, SHRINKS
    )
    ranks = [np.linalg.matrix_rank(cov.reshape(11, 11), tol=1e-6) for cov in covs]
    # Those of more than half of the features are not worth it.
    ranks = [rank if rank <= 5 else 11 for rank in ranks]
    assert np.diff(starts).tolist() == ranks
    assert min(ranks) < 11
    assert axes.shape == (sum(ranks), 11)
    assert couplings.shape == (0, len(WIDTHS))
    assert projections.shape == (sum(ranks),)
    assert precisions.shape == (sum(ranks), len(WIDTHS))
    assert log_dets.shape == (len(covs), len(WIDTHS))


@pytest.mark.parametrize("gap", [0.0, 1e-3, 5.0, 36.0, 300.0, 699.0, 701.0, 1e300])
def test_sums_of_terms_far_apart(gap):
    # Two Diracs at the same place, one of them less likely by so many nats.
    log_weights = np.array([0.0, -gap])
    got = log_densities(np.zeros((1, 1)), log_weights, np.zeros((2, 1)), np.empty((0, 1)))[0, 0]
    np.testing.assert_allclose(
        got + 0.5 * np.log(2.0 * np.pi), np.log1p(np.exp(-gap)), rtol=1e-14, atol=1e-15
    )


# ------------------------------------------------------------------------------ edge cases


def test_no_groups():
    counts, means, covs = twins.random_components(2, "full", "mixed")
    got = _moments.match_group_moments(counts, means, covs, intp([]), intp([0]))
    assert [a.shape for a in got] == [(0,), (0, 2), (0, 4)]


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_groups_of_one_keep_their_bits(covariance_type):
    counts, means, covs = twins.random_components(3, covariance_type, "mixed")
    means += 1e6 / 3.0
    got = _moments.match_group_moments(
        counts, means, covs, np.arange(8, dtype=np.intp), np.arange(9, dtype=np.intp)
    )
    np.testing.assert_array_equal(got[0], counts)
    np.testing.assert_array_equal(got[1], means)
    np.testing.assert_array_equal(got[2][:4], covs)
    assert not got[2][4:].any()


def test_equal_means_stay_equal_when_matched():
    counts = np.array([0.1, 0.2, 0.7, 1e-3])
    means = np.full((4, 2), 1.0 / 3.0)
    got = _moments.match_group_moments(
        counts, means, np.empty((0, 4)), np.arange(4, dtype=np.intp), intp([0, 4])
    )
    np.testing.assert_array_equal(got[1][0], means[0])
    assert not got[2].any()


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_groups_that_count_nothing_are_finite(covariance_type):
    counts, means, covs = twins.random_components(2, covariance_type, "mixed")
    counts[:3] = 0.0
    starts = intp([0, 3, len(counts)])
    order = np.arange(len(counts), dtype=np.intp)
    got = _moments.match_group_moments(counts, means, covs, order, starts)
    assert got[0][0] == 0.0
    np.testing.assert_array_equal(got[1][0], means[0])
    assert not got[2][0].any()
    for array, expected in zip(
        got, twins.match_group_moments(counts, means, covs, order, starts), strict=True
    ):
        np.testing.assert_allclose(array, expected, rtol=1e-10, atol=1e-12)


def test_append_no_rows():
    counts, means = np.array([2.0, 1.0]), np.array([[0.0], [1.0]])
    assert _append.append_rows(counts, means, 2, 0, np.empty((0, 1)), np.empty(0), 0.5) == (2, 0)
    np.testing.assert_array_equal(counts, [2.0, 1.0])  # nothing came, nothing ages


def test_append_to_nothing():
    counts, means = np.empty(1), np.empty((1, 2))
    rows = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]])
    assert _append.append_rows(counts, means, 0, 0, rows, np.ones(3), 1.0) == (1, 2)
    assert counts[0] == 2.0


def test_full_buffer_takes_repeated_rows_only():
    counts, means = np.array([1.0, 1.0]), np.array([[0.0], [1.0]])
    rows = np.array([[1.0], [0.0], [2.0], [0.0]])
    assert _append.append_rows(counts, means, 2, 0, rows, np.ones(4), 0.5) == (2, 2)
    # 1, 1 -> .5, 1.5 -> 1.25, .75; the row that found no room has aged nothing
    np.testing.assert_array_equal(counts, [1.25, 0.75])


def test_negative_zero_is_zero():
    counts, means = np.array([1.0, np.nan]), np.array([[0.0], [np.nan]])
    assert _append.append_rows(counts, means, 1, 0, np.array([[-0.0]]), np.ones(1), 1.0) == (1, 1)


@pytest.mark.parametrize("f", [1.0, 0.97, 0.5])
def test_weights_are_repetitions(f):
    rows = np.array([[0.0], [1.0], [0.0], [2.0], [1.0]])
    weights = np.array([3.0, 1.0, 2.0, 7.0, 4.0])
    weighted, repeated = np.empty(3), np.empty(3)
    _append.append_rows(weighted, np.empty((3, 1)), 0, 0, rows, weights, f)
    many = np.repeat(rows, weights.astype(int), axis=0)
    _append.append_rows(repeated, np.empty((3, 1)), 0, 0, many, np.ones(len(many)), f)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-13)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("printed", [True, False], ids=["printed", "right"])
def test_roughness_of_one_component(d, printed):
    one, mean, none = np.ones(1), np.ones((1, d)), np.empty((0, d * d))
    # int tr^2 of N(0, g/2 I)'s Hessian over N(0; 0, g I) is (d^2 + 2 d) / g^2
    got = _roughness.roughness(one, mean, none, 0.5, printed)
    np.testing.assert_allclose(got, (d * d + 2 * d) / 0.25, rtol=1e-13)
    wide = _roughness.roughness(one, mean, 3.0 * np.eye(d).reshape(1, -1), 0.5, printed)
    expected = (d * d + 2 * d) / 6.5**2 * (0.5 / 6.5) ** (d / 2)
    np.testing.assert_allclose(wide, expected, rtol=1e-13)


def test_roughness_far_apart():
    # Components that don't meet: each adds w^2 of its own.
    weights, none = np.array([0.25, 0.75]), np.empty((0, 4))
    got = _roughness.roughness(weights, np.array([[0.0, 0.0], [1e9, 0.0]]), none, 1.0, False)
    np.testing.assert_allclose(got, 8.0 * (0.25**2 + 0.75**2), rtol=1e-13)


def test_no_components():
    covs = np.empty((0, 9))
    assert [a.shape for a in _hellinger.factorize_all(covs, 3)] == [(0, 9), (0, 9), (0,)]
    assert _goldberger.principal_axes(covs, 3).shape == (0, 3)


@pytest.mark.parametrize("m", [0, 1], ids=["dirac", "compound"])
def test_local_error_of_one_component(m):
    covs = np.ones((m, 1))
    factors = _hellinger.factorize_all(covs, 1)
    one, mean = np.ones(1), np.ones((1, 1))
    assert _hellinger.local_error(intp([0]), one, mean, covs, *factors, np.empty(0)) == 0.0


@pytest.mark.parametrize("d", [1, 2, 3])
def test_local_error_of_coinciding_components(d):
    means, covs = np.ones((3, d)), np.empty((0, d * d))
    factors = _hellinger.factorize_all(covs, d)
    members, weights = intp([0, 1, 2]), np.array([0.1, 0.6, 0.3])
    error = _hellinger.local_error(members, weights, means, covs, *factors, np.empty(0))
    assert 0.0 <= error < 1e-12


@pytest.mark.parametrize("distance", [10.0, 200.0, 1e5, 1e100])
def test_local_error_of_components_that_do_not_meet(distance):
    """Two samples far apart against one wide Gaussian: densities under- and ratios overflow.

    The Gaussian is so low at the samples, and the samples are nothing at all but one of its sigma
    points, that the distance comes near to one from below.
    """
    means, covs = np.array([[0.0], [distance]]), np.empty((0, 1))
    factors = _hellinger.factorize_all(covs, 1)
    weights = np.array([0.5, 0.5])
    error = _hellinger.local_error(intp([0, 1]), weights, means, covs, *factors, np.empty(0))
    assert 0.5 < error <= 1.0
    if distance < 100.0:  # where the twin's plain densities are still numbers
        expected = twins.local_error(intp([0, 1]), weights, means, covs)
        np.testing.assert_allclose(error, expected, rtol=1e-11)


def test_wide_component_reaches_distant_ones():
    # The ratio of a wide one's density to a sample's own is beyond e^600 at no sigma point of it,
    # but the other way round it underflows: it must count as nothing, not as NaN.
    means, covs = np.array([[0.0], [200.0], [0.0]]), np.array([[1e8]])
    factors = _hellinger.factorize_all(covs, 1)
    weights = np.array([0.4, 0.3, 0.3])
    for members in ([0, 1], [1, 2], [0, 1, 2]):
        error = _hellinger.local_error(intp(members), weights, means, covs, *factors, np.empty(0))
        assert 0.0 < error < np.sqrt(weights[members].sum())


def test_factorize_takes_small_negative_eigenvalues_for_zero():
    # What rounding leaves of a singular covariance; H = I alone is there then.
    v = np.array([1.0, 2.0, -1.0]) * 1e5
    cov = np.outer(v, v) - 1e-3 * np.eye(3)
    inv_roots, roots, log_dets = _hellinger.factorize_all(cov.reshape(1, -1), 3)
    eigenvalues = np.linalg.eigvalsh(roots.reshape(3, 3))
    np.testing.assert_allclose(eigenvalues[:2], 1.0, rtol=1e-9)
    np.testing.assert_allclose(inv_roots.reshape(3, 3) @ roots.reshape(3, 3), np.eye(3), atol=1e-9)
    np.testing.assert_allclose(log_dets, 2.0 * np.log(eigenvalues[2]), rtol=1e-9)
    diagonal = _hellinger.factorize_all(np.array([[-1e-9, 3.0]]), 2)
    np.testing.assert_array_equal(diagonal[1], [[1.0, 2.0]])


def test_first_of_equal_axes_counts():
    # The diagonal of a square: which of equal entries leads must not hang on rounding.
    for noise in (0.0, 1e-14, -1e-14):
        axis = _goldberger.principal_axes(np.array([[1.0, -0.5, -0.5, 1.0 + noise]]), 2)[0]
        np.testing.assert_allclose(axis, np.sqrt([0.75, 0.75]) * [1, -1], rtol=1e-12)
        axis = _goldberger.principal_axes(np.array([[4.0, 4.0 + noise, 1.0]]), 3)[0]
        np.testing.assert_array_equal(axis, [2.0, 0.0, 0.0])


@pytest.mark.parametrize("n_leading", [2, 4])
@pytest.mark.parametrize(("d", "rank"), [(5, 5), (12, 5), (12, 12)])
def test_rounding_does_not_choose_among_equal_axes(d, rank, n_leading):
    # In coordinates in which the whole is the identity a component that is all there is has them.
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        basis, _ = np.linalg.qr(rng.normal(size=(d, rank)))
        values = np.where(np.arange(rank) < n_leading, 4.0, rng.uniform(0.5, 3.0, size=rank))
        cov = (basis * values) @ basis.T
        expected = twins.principal_axis(cov)
        assert expected @ expected == pytest.approx(4.0)
        np.testing.assert_allclose(cov @ expected, 4.0 * expected, atol=1e-12)
        for _ in range(5):
            noise = 1e-14 * rng.normal(size=(d, d))
            noisy = cov + basis @ basis.T @ (noise + noise.T) @ basis @ basis.T
            axis = _goldberger.principal_axes(noisy.reshape(1, -1), d)[0]
            np.testing.assert_allclose(axis, expected, atol=1e-11)


@pytest.mark.parametrize("d", [2, 9])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_principal_axis_of_zero_covariance(covariance_type, d):
    covs = np.zeros((1, d * d if covariance_type == "full" else d))
    np.testing.assert_array_equal(_goldberger.principal_axes(covs, d), np.zeros((1, d)))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_thin_principal_axis_of_any_scale(scale):
    # Of the same rank at every scale: an axis has no bandwidth to be lost in.
    _, _, covs = twins.random_components(9, "full", "thin")
    got = _goldberger.principal_axes(scale * covs, 9)
    np.testing.assert_allclose(
        got, np.sqrt(scale) * twins.principal_axes(covs, 9), rtol=1e-10, atol=1e-11 * np.sqrt(scale)
    )


@pytest.mark.parametrize("scale", [1e4, 1e8, 1e12])
def test_huge_thin_covariances(scale):
    # Rounding hides their rank, and must not pass for it.
    d = 9
    weights, means, covs = twins.random_components(d, "full", "thin")
    covs, means = covs * scale, means * np.sqrt(scale)
    inv_roots, roots, log_dets = _hellinger.factorize_all(covs, d)
    for inv_root, root, cov in zip(inv_roots, roots, covs, strict=True):
        smoothed = np.eye(d) + cov.reshape(d, d)
        root, inv_root = root.reshape(d, d), inv_root.reshape(d, d)
        np.testing.assert_allclose(root @ root, smoothed, rtol=0, atol=1e-14 * d * smoothed.max())
        np.testing.assert_allclose(inv_root @ root, np.eye(d), atol=1e-14 * d * np.sqrt(scale))
    assert np.isfinite(log_dets).all()
    assert np.isfinite(_roughness.roughness(weights, means, covs, 1.0, False))


def test_two_means_of_two_and_of_equal_components():
    weights, means = np.array([0.5, 0.3, 0.2]), np.ones((3, 2))
    none = np.empty((0, 4))
    first, second = _goldberger.two_means(intp([2, 0]), weights, means, none)
    assert (first.tolist(), second.tolist()) == ([2], [0])
    first, second = _goldberger.two_means(intp([2, 0, 1]), weights, means, none)
    assert sorted([*first, *second]) == [0, 1, 2]
    assert len(first)
    assert len(second)


def test_two_means_of_equal_means_parts_narrow_from_wide():
    # No axis to cut across: KL alone tells the clusters apart.
    covs = np.array([[100.0], [0.01], [120.0], [0.02], [90.0]])
    sides = _goldberger.two_means(intp(range(5)), np.full(5, 0.2), np.zeros((5, 1)), covs)
    assert sorted(sorted(side.tolist()) for side in sides) == [[0, 2, 4], [1, 3]]


def test_log_densities_of_no_rows():
    got = log_densities(np.empty((0, 2)), np.zeros(1), np.zeros((1, 2)), np.empty((0, 4)))
    assert got.shape == (0, 5)


@pytest.mark.parametrize(
    ("covariance_type", "kind", "d"),
    [("full", "mixed", 2), ("full", "mixed", 9), ("full", "thin", 9), ("diag", "mixed", 2)],
)
def test_log_densities_far_out(covariance_type, kind, d):
    weights, means, covs = twins.random_components(d, covariance_type, kind)
    points = np.zeros((4, d))
    points[:, :2] = [[1e100, 0.0], [1e200, 1.0], [-1e300, 1e300], [1e308, -1e308]]
    got = log_densities(points, np.log(weights), means, covs)
    assert np.isfinite(got[0]).all()
    assert np.all(np.isneginf(got[1:]))


def test_log_densities_with_a_vanished_weight():
    log_weights = np.array([-np.inf, 0.0])
    means, none = np.array([[0.0], [3.0]]), np.empty((0, 1))
    got = log_densities(np.array([[0.0]]), log_weights, means, none)[:, 0]
    np.testing.assert_allclose(got, -0.5 * (9.0 + np.log(2 * np.pi)), rtol=1e-14)
    got = log_densities(np.array([[0.0]]), log_weights[:1], means[:1], none)
    assert np.isneginf(got).all()


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e15, 1e18])
def test_covariances_that_rounding_has_made_indefinite(scale):
    # Beside variances of 1e15 a kernel's variance of one is lost to rounding.
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    cov = (axes * np.where(np.arange(40) < 35, scale * rng.uniform(1.0, 2.0, 40), 0.0)) @ axes.T
    cov = 0.5 * (cov + cov.T).reshape(1, -1)
    arrays = model_arrays(np.zeros(1), np.zeros((1, 40)), cov)
    axes, couplings, log_dets = arrays[3], arrays[6], arrays[8]
    np.testing.assert_allclose(axes @ axes.T, np.eye(40), atol=1e-13)
    if scale != 1e15:  # where it depends on the processor
        assert couplings.any() == (scale < 1e6)
    # It is never less than that of the kernel alone.
    assert np.all(log_dets[0] > 40 * np.log((SHRINKS * WIDTHS) ** 2))
    points, under_each = rng.normal(size=(70, 40)) * np.sqrt(scale), np.eye(len(WIDTHS))[:, None]
    logs = _log_density.log_mixtures(points, under_each, None, *arrays)
    assert np.isfinite(logs).all()
    if scale < 1e6:
        expected = twins.log_densities(points, np.zeros(1), np.zeros((1, 40)), cov, *SCALES)
        np.testing.assert_allclose(logs, expected, rtol=1e-9)


def test_small_negative_eigenvalues_count_for_zero():
    v = np.array([1.0, 2.0, -1.0]) * 1e5
    cov = (np.outer(v, v) - 1e-3 * np.eye(3)).reshape(1, -1)
    log_dets = _log_density.decompose(np.zeros((1, 3)), cov, WIDTHS[:1], SHRINKS[:1])[-1]
    np.testing.assert_allclose(log_dets, np.log(1.0 + v @ v), rtol=1e-9)
    log_dets = _log_density.decompose(
        np.zeros((1, 2)), np.array([[-1e-9, 3.0]]), WIDTHS[:1], SHRINKS[:1]
    )[-1]
    np.testing.assert_array_equal(log_dets, [[np.log(4.0)]])


# ------------------------------------------------------------------------------ what they take


class Entry(NamedTuple):
    """A compiled function and what it takes, those arrays first that it writes to."""

    function: Callable
    arguments: tuple
    n_written: int = 0
    # Numbers of arguments that may have any length, and those whose last or middle axis may.
    free: tuple = ()
    free_last: tuple = ()
    free_middle: tuple = ()


def entries(covariance_type):
    """Each compiled function, by its name, for four compounds and four Diracs."""
    d = 3
    weights, means, covs = twins.random_components(d, covariance_type, "mixed")
    members, starts, axis = intp(range(8)), intp([0, 3, 8]), np.ones(d)
    factors = _hellinger.factorize_all(covs, d)
    scales = WIDTHS, SHRINKS
    arrays = model_arrays(np.log(weights), means, covs)
    weights_of_parts = np.ones((2, 1, len(WIDTHS)))
    every = twins.random_components(d, covariance_type, "mixed", all_covs=True)
    details = (
        np.full((4, 2), 0.5),
        np.stack([means[:4], means[4:]], axis=1),
        np.ones((4, 2), dtype=np.uint8),
        every[2],
    )
    frame = random_frame(d, covariance_type)
    pairs = intp([0, 0, 1, 2, 3, 1, 2, 3])
    buffers = np.empty(9), np.empty((9, d))
    mixture = weights, means, covs
    found = [
        Entry(_append.append_rows, (*buffers, 0, 0, means, weights, 0.9), 2),
        Entry(_append.age_class_counts, (np.zeros(8), members, weights, 0.9), 1, (0,)),
        Entry(
            _append.update_class_memories,
            (
                np.zeros((2, 9)),
                np.array([0.75, 0.25]),
                members,
                weights,
                np.array([1.0, 0.9]),
                np.array([0.5, 0.5]),
                0.01,
                3,
            ),
            2,
            free_last=(0,),
        ),
        Entry(
            _compression.cluster,
            (*mixture, *factors, np.array([0.1, 0.2]), axis, -1, frame[2]),
            free=(6,),
        ),
        Entry(_compression.merge, (pairs, *mixture, *details, *frame, axis, frame[2])),
        Entry(
            _feature_weights.loss_of_votes,
            (
                np.ones(2),
                np.ones((4, 3, 2)),
                np.ones((4, 3)),
                np.ones((4, 3), dtype=bool),
                np.ones(4),
                np.ones(4),
                np.ones(4),
                0.1,
            ),
        ),
        Entry(_goldberger.principal_axes, (covs, d), free=(0,)),
        Entry(_goldberger.two_means, (members, *mixture, axis, frame[2]), free=(0, 3)),
        Entry(_goldberger.widest_gap, (weights, means, axis)),
        Entry(_hellinger.local_error, (members, *mixture, *factors, np.empty(0)), free=(0, 7)),
        Entry(_hellinger.hellinger, (*every, *every)),
        Entry(_hellinger.detail_errors, (*mixture, *details, *frame, 0.0)),
        Entry(_hellinger.factorize_all, (covs, d), free=(0,)),
        Entry(_log_density.decompose, (means, covs, *scales), free=(0, 1)),
        Entry(
            _log_density.log_mixtures,
            (means[:5], weights_of_parts, np.zeros((5, 2)), *arrays, *bounds_of(arrays)),
            free=(0, 1),
        ),
        Entry(_log_density.least_precisions, (*arrays[5:8], d, *arrays[-2:])),
        Entry(
            log_mixtures_of_row,
            (means[0], weights_of_parts, *frame, 0.7, *arrays),
            free=(1,),
        ),
        Entry(
            _lowrank.leading_directions,
            (means, 2, np.ones((8, 2))),
            free_last=(0, 2),
        ),
        Entry(
            _lowrank.group_covariances,
            (
                weights,
                means,
                np.ones((4, 2, d)),
                members,
                starts,
                np.ones(2),
                means[:2],
                np.ones((2, d)),
                np.ones((9, 1)),
            ),
            free=(2, 8),
            free_last=(8,),
        ),
        Entry(
            _lowrank.analyser_factors,
            (np.ones((4, d)), np.ones((4, 2, d)), np.ones((5, d))),
            free=(2,),
            free_middle=(1,),
        ),
        Entry(
            _lowrank.analyser_log_densities,
            (means[:5], means[:4], np.ones((4, d)), np.ones((4, 2, d)), weights[:4]),
            free=(0,),
            free_middle=(3,),
        ),
        Entry(_moments.match_group_moments, (*mixture, members, starts), free=(2,)),
        Entry(
            _neighbors.nearest_components,
            (means, weights, members[:5], 2),
            free=(2,),
            free_last=(0,),
        ),
        Entry(
            _neighbors.votes_of_near,
            (means[:5], means, weights, members % 3, members[:5] % 3, 3, 0.5, 4, 0.4, 3),
            free=(0, 4),
        ),
        Entry(
            _expert_weights.mixture_weights,
            (np.ones((2, 3, 4)), np.ones((2, 3)), np.ones(2), np.ones((5, 3), dtype=bool), 2),
            free=(2, 3),
            free_last=(0, 1),
        ),
        Entry(_outliers.inliers, (*mixture, 0.1, 2.56, 20.0), free=(2,)),
        Entry(
            _resolutions.distinct_groups,
            (np.zeros((2, 6), dtype=np.intp), 8, 4),
            free=(0,),
            free_last=(0,),
        ),
        Entry(_roughness.roughness, (*mixture, 0.1, False), free=(2,)),
        Entry(_whitening.standardize, (means[0], covs[:1], 1e-290)),
        Entry(_whitening.eigen, (np.eye(d),)),
        Entry(_whitening.roots, (np.ones(d), np.eye(d), 1e-9, 0.01)),
        Entry(_whitening.points_in, (means, *frame), free=(0,)),
        Entry(_whitening.covariances_in, (covs, *frame), free=(0,)),
    ]
    return {entry.function.__name__: entry for entry in found}


ENTRIES = list(entries("full"))
each_entry = pytest.mark.parametrize("name", ENTRIES)


def test_no_compiled_function_is_missing_here():
    modules = (
        _append,
        _compression,
        _expert_weights,
        _feature_weights,
        _goldberger,
        _hellinger,
        _log_density,
        _lowrank,
        _moments,
        _neighbors,
        _outliers,
        _resolutions,
        _roughness,
        _row_density,
        _whitening,
    )
    folder = Path(_append.__file__).parent
    assert {module.__name__.split(".")[-1] for module in modules} == {
        path.name.split(".")[0] for path in folder.glob(f"_*{EXTENSION_SUFFIXES[0]}")
    } - {"_cyutility"}
    found = [
        value.__name__
        for module in modules
        for value in vars(module).values()
        if type(value).__name__ == "cython_function_or_method"
        and not value.__name__.startswith("__")  # by which a class refuses to be pickled
    ]
    assert sorted(found) == sorted(ENTRIES)


@each_entry
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_read_only_arrays_are_taken(covariance_type, name):
    function, arguments, n_written, *_ = entries(covariance_type)[name]
    for argument in arguments[n_written:]:
        if isinstance(argument, np.ndarray):
            argument.flags.writeable = False
    function(*arguments)


def resized(array, axis):
    """The array with one more along an axis, and with one less if there are any."""
    more = np.pad(array, [(0, int(a == axis)) for a in range(array.ndim)])
    return [more, np.ascontiguousarray(np.delete(array, -1, axis))] if array.size else [more]


@each_entry
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_wrong_shapes_are_refused(covariance_type, name):
    function, arguments, _, free, free_last, free_middle = entries(covariance_type)[name]
    function(*arguments)
    for i, argument in enumerate(arguments):
        axes = set(range(int(i in free), np.ndim(argument) - int(i in free_last)))
        for axis in axes - {1} if i in free_middle else axes:
            for wrong in resized(argument, axis):
                with pytest.raises(ValueError, match="Shapes do not belong together"):
                    function(*arguments[:i], wrong, *arguments[i + 1 :])


def test_what_must_not_be_empty():
    _, arguments, *_ = entries("full")["cluster"]
    with pytest.raises(ValueError, match="belong together"):
        _compression.cluster(*arguments[:6], np.empty(0), *arguments[7:])
    _, arguments, *_ = entries("full")["two_means"]
    with pytest.raises(ValueError, match="belong together"):
        _goldberger.two_means(intp([3]), *arguments[1:])
    with pytest.raises(ValueError, match="belong together"):
        _goldberger.principal_axes(np.empty((1, 0)), 0)
