"""The frozen mixture: each question beside SciPy, numerical integration or brute force."""

import copy
import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.integrate import dblquad, quad
from scipy.special import logsumexp
from sklearn.exceptions import NotFittedError

from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde.distribution import (
    GaussianMixtureDistribution,
    hellinger,
    integrated_squared_error,
    jensen_shannon,
    kl_divergence,
)
from structures import STRUCTURES

all_structures = pytest.mark.parametrize("covariance_type", quick(STRUCTURES, 2))
both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))


def mixture(d=3, k=4, covariance_type="full", seed=0, zero=False, names=None, spread=3.0):
    """A random mixture; with a component of weight zero among the others, if asked for."""
    rng = np.random.default_rng(seed)
    weights, means = rng.dirichlet(np.ones(k)), spread * rng.normal(size=(k, d))
    if zero:
        weights[1] = 0.0
        weights /= weights.sum()
    A = rng.normal(size=(k, d, d))
    covariances = A @ A.transpose(0, 2, 1) + 0.3 * np.eye(d)
    if covariance_type == "diag":
        covariances = np.diagonal(covariances, axis1=1, axis2=2)
    return GaussianMixtureDistribution(weights, means, covariances, names)


def matrices(distribution):
    if distribution.covariances.ndim == 3:
        return distribution.covariances
    return np.array([np.diag(c) for c in distribution.covariances])


def normals(distribution):
    """SciPy's distributions of the components."""
    return [
        stats.multivariate_normal(m, c)
        for m, c in zip(distribution.means, matrices(distribution), strict=True)
    ]


def scipy_logpdf(distribution, x):
    with np.errstate(divide="ignore"):
        logs = np.log(distribution.weights)
    parts = [w + n.logpdf(x) for w, n in zip(logs, normals(distribution), strict=True)]
    return logsumexp(parts, axis=0)


# ------------------------------------------------------------------------------- densities


@both_structures
@pytest.mark.parametrize("of", [[0], [0, 0, 0], [0, 1, 1, 0, 2, 2, 2]])
def test_components_of_equal_covariances(covariance_type, of):
    three = mixture(3, 3, covariance_type)
    weights, means = np.ones(len(of)) / len(of), np.random.default_rng(1).normal(size=(len(of), 3))
    p = GaussianMixtureDistribution(weights, means, three.covariances[of])
    x = np.random.default_rng(2).normal(size=(6, 3))
    np.testing.assert_allclose(p.logpdf(x), scipy_logpdf(p, x), rtol=1e-10)
    # Of features given others: a ratio of densities.
    given_others = p.conditional([0, 2], [0.3, -0.2])
    known = p.marginal([0, 2])
    for value in x[:, 1]:
        expected = p.logpdf([0.3, value, -0.2]) - known.logpdf([0.3, -0.2])
        np.testing.assert_allclose(given_others.logpdf([value]), expected, rtol=1e-10)


@given(st.integers(1, 5), st.integers(1, 6), st.booleans(), st.booleans(), st.integers(0, 99))
def test_logpdf_is_that_of_scipy(d, k, full, zero, seed):
    p = mixture(d, k, "full" if full else "diag", seed, zero and k > 1)
    x = np.random.default_rng(seed).normal(scale=4.0, size=(7, d))
    np.testing.assert_allclose(p.logpdf(x), scipy_logpdf(p, x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(p.pdf(x), np.exp(p.logpdf(x)), rtol=1e-15)


@both_structures
def test_shapes_are_those_of_scipy(covariance_type):
    p, normal = mixture(3, 4, covariance_type), stats.multivariate_normal(np.zeros(3))
    rng = np.random.default_rng(0)
    for shape in ((3,), (5, 3), (2, 4, 3)):
        x = rng.normal(size=shape)
        for name in ("logpdf", "pdf", "cdf"):
            found, expected = getattr(p, name)(x), getattr(normal, name)(x)
            assert np.shape(found) == np.shape(expected), (name, shape)
        assert np.shape(p.assign(x)) == shape[:-1]
    one = mixture(1, 3, covariance_type)
    assert np.shape(one.logpdf(0.5)) == () == np.shape(one.cdf(0.5)) == np.shape(one.ppf(0.5))
    assert one.logpdf([0.5, 1.0]).shape == (2,) == one.cdf([0.5, 1.0]).shape
    assert one.logpdf([[0.5], [1.0], [2.0]]).shape == (3,)
    assert one.ppf([[0.1, 0.2], [0.3, 0.4]]).shape == (2, 2)


@both_structures
def test_far_out_points_have_no_density_but_never_nan(covariance_type):
    p = mixture(3, 4, covariance_type, zero=True)
    for size in (1e3, 1e10, 1e150, 1e200, np.inf):
        for axis in range(3):
            x = np.zeros(3)
            x[axis] = size
            log_p = p.logpdf(x)
            assert not np.isnan(log_p)
            if size <= 1e10:
                assert log_p == pytest.approx(scipy_logpdf(p, x), rel=1e-9)
            else:
                assert log_p < -1e100


@both_structures
def test_units_and_correlations_of_any_size(covariance_type):
    p = mixture(4, 3, covariance_type)
    units = np.array([1e-12, 1e12, 1.0, 1e-5])
    scale = np.outer(units, units) if covariance_type == "full" else units**2
    q = GaussianMixtureDistribution(p.weights, p.means * units, p.covariances * scale)
    x = np.random.default_rng(0).normal(size=(9, 4))
    expected = p.logpdf(x) - np.log(units).sum()
    np.testing.assert_allclose(q.logpdf(x * units), expected, rtol=1e-9)
    np.testing.assert_allclose(q.mean / units, p.mean, rtol=1e-9)
    found = q.conditional([0, 1], (x * units)[0, :2]).mean / units[2:]
    np.testing.assert_allclose(found, p.conditional([0, 1], x[0, :2]).mean, rtol=1e-6)


def test_next_to_singular_covariances():
    r = 1.0 - 1e-10
    p = GaussianMixtureDistribution([1.0], [[0.0, 0.0]], [[[1.0, r], [r, 1.0]]])
    # Along and across the diagonal the coordinates are independent.
    x = np.array([0.3, 0.3 + 1e-5])
    along, across = (x[0] + x[1]) / np.sqrt(2.0), (x[0] - x[1]) / np.sqrt(2.0)
    expected = stats.norm(0, np.sqrt(1 + r)).logpdf(along)
    expected += stats.norm(0, np.sqrt(1 - r)).logpdf(across)
    assert p.logpdf(x) == pytest.approx(expected, rel=1e-4)
    assert p.conditional(0, 0.7).mean[0] == pytest.approx(0.7 * r, rel=1e-9)


@both_structures
def test_many_components_in_many_dimensions_make_no_large_table(covariance_type):
    rng = np.random.default_rng(0)
    k, d, n = 3000, 20, 1000
    variances = rng.uniform(0.5, 2.0, size=(k, d))
    covariances = variances[:, :, None] * np.eye(d) if covariance_type == "full" else variances
    p = GaussianMixtureDistribution(np.full(k, 1.0 / k), rng.normal(size=(k, d)), covariances)
    x = rng.normal(size=(n, d))
    some = np.arange(0, n, 100)
    q = GaussianMixtureDistribution(p.weights, p.means, variances)
    p.logpdf(x[:1])  # what is made once
    tracemalloc.start()
    log_p, family = p.logpdf(x), p.conditional(np.arange(10), x[:, :10])
    mean = family.mean
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3e8  # a table of all would take 480 MB, and differences as much again
    np.testing.assert_allclose(log_p[some], q.logpdf(x[some]), rtol=1e-9)
    np.testing.assert_allclose(mean[0], q.conditional(np.arange(10), x[0, :10]).mean, rtol=1e-9)


# --------------------------------------------------------------------- moments, draws, marginals


@both_structures
def test_moments_are_those_of_draws_and_of_integrals(covariance_type):
    p = mixture(2, 3, covariance_type, zero=True)
    draws = p.rvs(200_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=0), p.mean, atol=0.05)
    np.testing.assert_allclose(np.cov(draws.T), p.cov, rtol=0.03, atol=0.1)
    one = p.marginal(0)
    first, second = (
        quad(lambda t, n=n: t**n * one.pdf([t])[0], -40, 40, limit=200)[0] for n in (1, 2)
    )
    assert first == pytest.approx(p.mean[0], rel=1e-8)
    assert second - first**2 == pytest.approx(p.cov[0, 0], rel=1e-8)


def test_moments_far_from_zero_keep_their_digits():
    p = GaussianMixtureDistribution([0.5, 0.5], [[1e9], [1e9 + 2.0]], [[1.0], [1.0]])
    assert p.cov[0, 0] == pytest.approx(2.0, rel=1e-12)


@both_structures
def test_draws_are_reproducible_squeezed_and_in_no_order(covariance_type):
    p = mixture(3, 2, covariance_type, spread=100.0)
    for make in (
        lambda: 7,
        lambda: np.random.RandomState(7),
        lambda: np.random.default_rng(7),
    ):
        np.testing.assert_array_equal(p.rvs(5, random_state=make()), p.rvs(5, random_state=make()))
    assert p.rvs(random_state=0).shape == (3,)
    assert p.rvs((2, 5), random_state=0).shape == (2, 5, 3)
    one = mixture(1, 2, covariance_type)
    assert np.ndim(one.rvs(random_state=0)) == 0
    assert one.rvs(4, random_state=0).shape == (4,)
    labels = p.assign(p.rvs(200, random_state=0))
    assert np.count_nonzero(np.diff(labels)) > 20


@both_structures
def test_marginals_are_in_the_order_given_by_number_or_name(covariance_type):
    p = mixture(4, 3, covariance_type, names=["a", "b", "c", "d"])
    x = np.random.default_rng(0).normal(size=(6, 4))
    expected = GaussianMixtureDistribution(
        p.weights, p.means[:, [2, 0]], matrices(p)[:, [2, 0]][:, :, [2, 0]]
    ).logpdf(x[:, [2, 0]])
    for dimensions in ([2, 0], ["c", "a"], [-2, -4], (2, "a"), np.array([2, 0])):
        found = p.marginal(dimensions)
        assert found.feature_names == ("c", "a")
        np.testing.assert_allclose(found.logpdf(x[:, [2, 0]]), expected, rtol=1e-12)
    assert p.marginal("d").n_features == 1
    low = mixture(2, 3, covariance_type)
    for t in (-1.0, 2.0):
        integral = quad(lambda u, t=t: low.pdf([t, u]), -40, 40, limit=200)[0]
        assert low.marginal(0).pdf([t])[0] == pytest.approx(integral, rel=1e-7)


# ------------------------------------------------------------------------------ conditionals


@given(st.integers(2, 5), st.integers(1, 4), st.booleans(), st.integers(0, 99), st.data())
def test_conditionals_are_joint_over_marginal(d, k, full, seed, data):
    p = mixture(d, k, "full" if full else "diag", seed)
    known = data.draw(st.permutations(range(d)))[: data.draw(st.integers(1, d - 1))]
    others = [j for j in range(d) if j not in known]
    x = np.random.default_rng(seed).normal(scale=3.0, size=(4, d))
    expected = p.logpdf(x) - p.marginal(known).logpdf(x[:, known])
    family = p.conditional(known, x[:, known])
    np.testing.assert_allclose(family.logpdf(x[:, others]), expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(family.pdf(x[:, others]), np.exp(expected), rtol=1e-6)
    for row in (0, -1):
        alone = p.conditional(known, x[row, known])
        for q in (alone, family[row]):
            found = q.logpdf(x[row, others])
            np.testing.assert_allclose(found, expected[row], rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(family.mean[row], alone.mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(family.cov[row], alone.cov, rtol=1e-8, atol=1e-8)


@both_structures
def test_families_in_one_dimension_have_quantiles(covariance_type):
    p = mixture(3, 4, covariance_type)
    x = p.rvs(6, random_state=0)
    family, q = p.conditional([0, 2], x[:, [0, 2]]), np.array([0.0, 1e-6, 0.3, 0.5, 0.999, 1.0])
    found = family.ppf(q)
    assert found.shape == (6, 6)
    assert np.isneginf(found[:, 0]).all()
    assert np.isposinf(found[:, -1]).all()
    for column in range(1, 5):
        np.testing.assert_allclose(family.cdf(found[:, column]), q[column], rtol=1e-9)
    np.testing.assert_allclose(found[2], family[2].ppf(q), rtol=1e-10)
    draws = family.rvs(4000, random_state=0)
    assert draws.shape == (6, 4000, 1)
    np.testing.assert_allclose(draws.mean(axis=1), family.mean, atol=0.25)
    with pytest.raises(ValueError, match="conditional of a marginal"):
        p.conditional(0, x[:, :1]).ppf([0.5])


@both_structures
def test_conditionals_far_out_are_never_nan(covariance_type):
    p = mixture(3, 4, covariance_type, zero=True)
    for size in (1e3, 1e10, 1e150, 1e200):
        for sign in (1.0, -1.0):
            values = sign * size * np.array([1.0, 0.3])
            q = p.conditional([0, 1], values)
            assert np.isfinite(q.mean).all()
            assert q.weights.sum() == pytest.approx(1.0)
            assert q.n_components < 4  # not the one without weight
            family = p.conditional([0, 1], [values, [0.0, 0.0]])
            assert np.isfinite(family.mean).all()
    # The wider component is the nearer one in its own units.
    two = GaussianMixtureDistribution(
        [0.5, 0.5], [[5.0, 1.0], [0.0, -1.0]], [[1.0, 1.0], [9.0, 1.0]]
    )
    for size in (1e3, 1e180):
        assert two.conditional(0, size).mean[0] == pytest.approx(-1.0)


@both_structures
def test_families_are_sequences_that_can_be_copied(covariance_type):
    p, values = mixture(3, 4, covariance_type, names=["a", "b", "c"]), np.arange(6.0).reshape(3, 2)
    family = p.conditional(["c", "a"], values)
    assert len(family) == 3 == len(list(family))
    assert family[0].feature_names == ("b",)
    with pytest.raises(IndexError):
        family[3]
    for twin in (pickle.loads(pickle.dumps(family)), copy.deepcopy(family)):
        np.testing.assert_array_equal(twin.mean, family.mean)
        assert not twin.log_weights.flags.writeable
    values[:] = 0.0  # not what the family holds
    np.testing.assert_array_equal(twin.mean, family.mean)


# ----------------------------------------------------------------------------------- regions


@both_structures
def test_cdf_is_that_of_scipy(covariance_type):
    p, rng = mixture(3, 3, covariance_type), np.random.default_rng(0)
    x, low = rng.normal(scale=3.0, size=(5, 3)), rng.normal(size=3) - 4.0
    for lower in (None, low, low * np.ones((5, 3))):
        expected = sum(
            w * n.cdf(x, lower_limit=lower) for w, n in zip(p.weights, normals(p), strict=True)
        )
        np.testing.assert_allclose(p.cdf(x, lower_limit=lower), expected, atol=2e-4)
    np.testing.assert_allclose(p.cdf(x[0]), p.cdf(x)[0], atol=2e-4)
    assert p.cdf([np.inf] * 3) == pytest.approx(1.0)
    assert p.cdf([np.inf, -np.inf, np.inf]) == pytest.approx(0.0)


@both_structures
def test_boxes_are_integrals(covariance_type):
    p = mixture(2, 3, covariance_type)
    low, high = [-2.0, -1.0], [3.0, 4.0]
    expected = dblquad(lambda v, u: p.pdf([u, v]), low[0], high[0], low[1], high[1], epsabs=1e-7)[0]
    assert p.integrate_box(low, high) == pytest.approx(expected, abs=1e-4)
    assert p.integrate_box([high[0], low[1]], [low[0], high[1]]) == pytest.approx(
        -expected, abs=1e-4
    )
    marginal = p.marginal(1).cdf(high[1])
    assert p.integrate_box([-np.inf, -np.inf], [np.inf, high[1]]) == pytest.approx(
        marginal, abs=1e-4
    )


@both_structures
def test_boxes_in_one_dimension(covariance_type):
    p = mixture(1, 3, covariance_type)
    x = np.linspace(-8.0, 8.0, 7)
    expected = sum(
        w * stats.norm(m, np.sqrt(c)).cdf(x)
        for w, m, c in zip(p.weights, p.means[:, 0], matrices(p)[:, 0, 0], strict=True)
    )
    np.testing.assert_allclose(p.cdf(x), expected, rtol=1e-13)
    np.testing.assert_allclose(p.cdf(x[:, None]), expected, rtol=1e-13)
    low = x - 1.0
    np.testing.assert_allclose(p.cdf(x, lower_limit=low), expected - p.cdf(low), atol=1e-14)
    np.testing.assert_allclose(p.cdf(x, lower_limit=-3.0), expected - p.cdf(-3.0), atol=1e-14)
    assert p.cdf(2.0, lower_limit=x).shape == x.shape
    assert p.integrate_box(-1.0, 2.0) == pytest.approx(p.cdf(2.0) - p.cdf(-1.0), rel=1e-12)
    assert p.integrate_box([2.0], [-1.0]) == pytest.approx(p.cdf(-1.0) - p.cdf(2.0), rel=1e-12)
    # Far in the upper tail differences of the distribution function would be zero.
    normal = GaussianMixtureDistribution([1.0], [[0.0]], [[1.0]])
    found = normal.integrate_box(30.0, 31.0)
    assert found == pytest.approx(stats.norm.sf(30.0), rel=1e-6, abs=0.0)


@given(st.integers(1, 6), st.integers(0, 99), st.floats(1e-9, 1.0 - 1e-9))
def test_quantiles_invert_the_distribution_function(k, seed, q):
    p = mixture(1, k, "diag", seed, zero=k > 1)
    assert p.cdf(p.ppf(q)) == pytest.approx(q, rel=1e-9)


def test_quantiles_far_in_the_tails():
    p = GaussianMixtureDistribution([0.3, 0.7], [[-5.0], [8.0]], [[1.0], [4.0]])
    low = p.ppf(1e-300)
    assert 0.7 * stats.norm(8, 2).cdf(low) == pytest.approx(1e-300, rel=1e-6, abs=0.0)
    high = p.ppf(1.0 - 2.0**-52)
    assert 0.7 * stats.norm(8, 2).sf(high) == pytest.approx(2.0**-52, rel=1e-6, abs=0.0)
    np.testing.assert_array_equal(p.ppf([0.0, 1.0]), [-np.inf, np.inf])
    for wrong in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="from 0 to 1"):
            p.ppf(wrong)
    with pytest.raises(ValueError, match="take a marginal"):
        mixture(2).ppf(0.5)


@both_structures
def test_highest_density_regions_hold_their_probability(covariance_type):
    p = mixture(2, 3, covariance_type)
    draws = p.logpdf(p.rvs(200_000, random_state=1))
    for prob in (0.05, 0.5, 0.95):
        value, error = p.highest_density_threshold(prob, n_samples=20_000, random_state=0)
        assert 0.0 < error < 0.3
        exact = np.quantile(draws, 1.0 - prob)
        assert abs(value - exact) < 4.0 * error + 0.01
    one = mixture(3, 1, covariance_type)
    value, error = one.highest_density_threshold(0.9)
    assert error == 0.0
    assert np.mean(one.logpdf(one.rvs(50_000, random_state=0)) > value) == pytest.approx(
        0.9, abs=0.01
    )


@both_structures
def test_entropy(covariance_type):
    one = mixture(3, 1, covariance_type)
    expected = stats.multivariate_normal(one.means[0], matrices(one)[0]).entropy()
    assert one.entropy() == (pytest.approx(expected, rel=1e-12), 0.0)
    p = mixture(1, 3, covariance_type)
    exact = -quad(lambda t: p.pdf([t])[0] * p.logpdf([t])[0], -30, 30, limit=300)[0]
    value, error = p.entropy(random_state=0)
    assert 0.0 < error < 0.05
    assert abs(value - exact) < 4.0 * error


# ------------------------------------------------------------------------------------- modes


@both_structures
def test_modes_are_maxima_with_their_hessians(covariance_type):
    p = mixture(2, 5, covariance_type, seed=3, spread=6.0)
    points, heights, hessians = p.modes()
    np.testing.assert_allclose(heights, p.logpdf(points), rtol=1e-12)
    assert (np.diff(heights) <= 0.0).all()
    step = 1e-4 * np.eye(2)
    for x, hessian in zip(points, hessians, strict=True):
        gradient = [(p.logpdf(x + s) - p.logpdf(x - s)) / 2e-4 for s in step]
        np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
        second = [
            [
                (
                    p.logpdf(x + s + t)
                    - p.logpdf(x + s - t)
                    - p.logpdf(x - s + t)
                    + p.logpdf(x - s - t)
                )
                / 4e-8
                for t in step
            ]
            for s in step
        ]
        np.testing.assert_allclose(hessian, second, rtol=1e-3, atol=1e-4)
        assert (np.linalg.eigvalsh(hessian) < 0.0).all()
    # From anywhere uphill there is none that is not among them.
    for start in p.rvs(20, random_state=0):
        end = optimize.minimize(lambda x: -p.logpdf(x), start, method="Nelder-Mead", tol=1e-10).x
        assert np.min(np.linalg.norm(points - end, axis=1)) < 1e-3


@pytest.mark.parametrize(("gap", "n"), [(1.0, 1), (1.9, 1), (2.1, 2), (6.0, 2)])
def test_two_equal_components_have_two_modes_from_two_deviations_on(gap, n):
    p = GaussianMixtureDistribution([0.5, 0.5], [[0.0, 0.0], [gap, 0.0]], [[1.0, 1.0]] * 2)
    assert len(p.modes().points) == n
    again = GaussianMixtureDistribution([0.25] * 4, [[0.0, 0.0], [gap, 0.0]] * 2, [[1.0, 1.0]] * 4)
    assert len(again.modes().points) == n


def test_from_a_mean_on_a_saddle_both_sides_are_found():
    variances = [[1.0, 1.0], [25.0, 1.0], [1.0, 1.0]]
    means = [[-2.5, 0.0], [0.0, 0.0], [2.5, 0.0]]
    p = GaussianMixtureDistribution([0.49, 0.02, 0.49], means, variances)
    np.testing.assert_allclose(np.abs(p.modes().points), [[2.5, 0.0]] * 2, atol=0.1)


def test_components_without_weight_have_no_mode():
    p = GaussianMixtureDistribution([1.0, 0.0], [[0.0], [50.0]], [[1.0], [1.0]])
    np.testing.assert_allclose(p.modes().points, [[0.0]], atol=1e-9)
    assert p.assign([[40.0], [-3.0]]).tolist() == [0, 0]


# ----------------------------------------------------------------------------------- divergence


@both_structures
def test_distances_are_integrals_in_one_dimension(covariance_type):
    p, q = mixture(1, 3, covariance_type, 0), mixture(1, 2, covariance_type, 1)
    f, g = (lambda t, r=r: r.pdf([t])[0] for r in (p, q))
    log_f, log_g = (lambda t, r=r: r.logpdf([t])[0] for r in (p, q))

    def integral(function):
        return quad(function, -25, 25, limit=500)[0]

    squared = integral(lambda t: (f(t) - g(t)) ** 2)
    assert integrated_squared_error(p, q) == pytest.approx(squared, rel=1e-7)
    root = np.sqrt(0.5 * integral(lambda t: (np.sqrt(f(t)) - np.sqrt(g(t))) ** 2))
    value, error = hellinger(p, q, method="monte-carlo", random_state=0)
    assert 0.0 < error < 0.02
    assert abs(value - root) < 4.0 * error
    assert hellinger(p, q).value == pytest.approx(root, abs=0.15)
    kl = integral(lambda t: f(t) * (log_f(t) - log_g(t)))
    value, error = kl_divergence(p, q, random_state=0)
    assert abs(value - kl) < 4.0 * error
    m = [
        integral(lambda t, a=a, b=b: np.exp(a(t)) * (a(t) - np.logaddexp(a(t), b(t)) + np.log(2)))
        for a, b in ((log_f, log_g), (log_g, log_f))
    ]
    value, error = jensen_shannon(p, q, random_state=0)
    assert 0.0 < error < 0.02
    assert abs(value - 0.5 * sum(m)) < 4.0 * error


@both_structures
def test_integrated_squared_error_in_two_dimensions(covariance_type):
    p, q = mixture(2, 2, covariance_type, 0), mixture(2, 3, "diag", 1)
    # The trapezoidal rule, for what is smooth and zero at the edges, is exact but for rounding.
    axis, cell = np.linspace(-12.0, 12.0, 601, retstep=True)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    expected = cell**2 * ((p.pdf(points) - q.pdf(points)) ** 2).sum()
    assert integrated_squared_error(p, q) == pytest.approx(expected, rel=1e-4)
    assert integrated_squared_error(q, p) == pytest.approx(expected, rel=1e-4)


@both_structures
def test_distances_of_equal_and_of_disjoint_ones(covariance_type):
    p = mixture(3, 4, covariance_type)
    far = GaussianMixtureDistribution(p.weights, p.means + 1e4, p.covariances)
    assert integrated_squared_error(p, p) == 0.0
    for method in ("unscented", "monte-carlo"):
        assert hellinger(p, p, method=method, random_state=0).value == 0.0
        assert hellinger(p, far, method=method, random_state=0).value == pytest.approx(1.0)
    assert kl_divergence(p, p, random_state=0).value == 0.0
    assert kl_divergence(p, far, random_state=0).value > 1e6
    assert jensen_shannon(p, p, random_state=0).value == 0.0
    assert jensen_shannon(p, far, random_state=0).value == pytest.approx(np.log(2.0))


@both_structures
def test_single_gaussians_have_closed_forms(covariance_type):
    p, q = mixture(2, 1, covariance_type, 0), mixture(2, 1, covariance_type, 1, spread=1.0)
    exact = kl_divergence(p, q)
    assert exact.standard_error == 0.0
    draws = p.rvs(200_000, random_state=0)
    logs = p.logpdf(draws) - q.logpdf(draws)
    assert exact.value == pytest.approx(logs.mean(), abs=5.0 * logs.std() / np.sqrt(len(logs)))


def test_distances_want_the_same_features():
    with pytest.raises(ValueError, match="same features"):
        hellinger(mixture(2), mixture(3))
    with pytest.raises(ValueError, match="same features"):
        kl_divergence(mixture(2, names=["a", "b"]), mixture(2, names=["b", "a"]))
    with pytest.raises(ValueError, match="method must be"):
        hellinger(mixture(2), mixture(2), method="exact")
    for wrong in (1, 0, 2.5, True):
        with pytest.raises(ValueError, match="n_samples must be an integer"):
            kl_divergence(mixture(2), mixture(2), n_samples=wrong)


# -------------------------------------------------------------------------------- the object


@both_structures
def test_it_is_frozen(covariance_type):
    weights, means = np.array([0.5, 0.5]), np.zeros((2, 2))
    covariances = np.ones((2, 2)) if covariance_type == "diag" else np.array([np.eye(2)] * 2)
    p = GaussianMixtureDistribution(weights, means, covariances, ["a", "b"])
    for twin in (p, pickle.loads(pickle.dumps(p)), copy.copy(p), copy.deepcopy(p)):
        for array in (*twin.arrays, twin.mean, twin.cov, *twin.modes()):
            assert not array.flags.writeable
        assert twin.feature_names == ("a", "b")
        with pytest.raises(AttributeError):
            twin.weights = weights
    means[:] = 7.0
    assert not p.means.any()


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        (([1.0], [0.0], [1.0]), "means must have the shape"),
        (([1.0], np.empty((1, 0)), np.empty((1, 0))), "at least one of each"),
        (([0.5, 0.5], [[0.0]], [[1.0]]), "weights must have the shape"),
        (([1.0], [[0.0, 1.0]], [[1.0]]), "covariances must have the shape"),
        (([1.0], [[np.nan]], [[1.0]]), "means must be finite"),
        (([0.5], [[0.0]], [[1.0]]), "sum must be one"),
        (([1.5, -0.5], [[0.0], [1.0]], [[1.0], [1.0]]), "must not be negative"),
        (([1.0], [[0.0]], [[0.0]]), "positive definite"),
        (([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.0, 1.0]]]), "symmetric"),
    ],
)
def test_bad_arrays(arrays, match):
    with pytest.raises(ValueError, match=match):
        GaussianMixtureDistribution(*arrays)


def test_bad_questions():
    p = mixture(3, names=["a", "b", "c"])
    for dimensions, error, match in [
        (3, ValueError, "no feature 3"),
        (-4, ValueError, "no feature -4"),
        ("d", ValueError, "no feature 'd'"),
        ([0, 0], ValueError, "all different"),
        ([0, "a"], ValueError, "all different"),
        ([], ValueError, "at least one"),
        (True, TypeError, "integers or names"),
        (0.5, TypeError, "not iterable|integers or names"),
    ]:
        with pytest.raises(error, match=match):
            p.marginal(dimensions)
    with pytest.raises(ValueError, match="no feature 'a' among none"):
        mixture(3).marginal("a")
    with pytest.raises(ValueError, match="take the marginal"):
        p.logpdf([0.0, np.nan, 0.0])
    with pytest.raises(ValueError, match="3 features"):
        p.logpdf([0.0, 1.0])
    for values, match in [
        ([1.0, 2.0], "must have the shape"),
        ([[[1.0]]], "must have the shape"),
        (np.nan, "must be finite"),
        (np.inf, "must be finite"),
    ]:
        with pytest.raises(ValueError, match=match):
            p.conditional(0, values)
    with pytest.raises(ValueError, match="All features are known"):
        p.conditional([0, 1, 2], [0.0, 0.0, 0.0])
    for prob in (0.0, 1.0, "half", np.nan):
        with pytest.raises(ValueError, match="prob must be a number between"):
            p.highest_density_threshold(prob)
    singular = GaussianMixtureDistribution([1.0], [[0.0, 0.0]], [np.ones((2, 2))])
    with pytest.raises(ValueError, match="positive definite"):
        singular.logpdf([0.0, 0.0])
    with pytest.raises(ValueError, match="2 different names"):
        GaussianMixtureDistribution([1.0], [[0.0, 0.0]], [[1.0, 1.0]], ["a", "a"])


# ---------------------------------------------------------------------------- the estimators


def clusters(n=300, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, 3)) + 4.0 * y[:, None], y


SETTINGS = {
    "predictive": {},
    "paper": {"bandwidth": "okde", "compression_threshold": 0.1},
    "memory": {"forgetting_factor": "predictive"},
    "forgetting": {"forgetting_factor": 0.97, "max_components": 12},
}


@pytest.mark.parametrize("settings", SETTINGS)
@both_structures
def test_distribution_of_a_density_is_what_it_scores(covariance_type, settings):
    X, _ = clusters()
    density = OnlineKDEDensity(covariance_type=covariance_type, **SETTINGS[settings]).fit(X)
    p, x = density.distribution(), 2.0 * X[:50]
    assert p.weights.sum() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(p.logpdf(x), density.score_samples(x), rtol=1e-8, atol=1e-8)
    before = p.logpdf(x)
    density.partial_fit(X + 1.0)
    np.testing.assert_array_equal(p.logpdf(x), before)
    assert (density.distribution().logpdf(x) != before).any()
    density.set_params(bandwidth=3.0)
    found = density.distribution().logpdf(x)
    np.testing.assert_allclose(found, density.score_samples(x), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("settings", SETTINGS)
@both_structures
def test_distributions_of_a_classifier_are_what_it_scores(covariance_type, settings):
    X, y = clusters()
    labels = np.array(["a", "b", "c"])[y]
    parameters = {"covariance_type": covariance_type, **SETTINGS[settings]}
    classifier = OnlineKDEClassifier(priors=[0.2, 0.3, 0.5], **parameters).fit(X, labels)
    joint, x = classifier.predict_joint_log_proba(X[:40]), X[:40]
    for code, label in enumerate("abc"):
        found = np.log(classifier.class_prior_[code]) + classifier.distribution(label).logpdf(x)
        np.testing.assert_allclose(found, joint[:, code], rtol=1e-8, atol=1e-8)
    whole = classifier.distribution().logpdf(x)
    np.testing.assert_allclose(whole, classifier.score_samples(x), rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="no sample of a class 'd'"):
        classifier.distribution("d")


def test_classes_without_a_sample_have_no_distribution():
    X, y = clusters()
    classifier = OnlineKDEClassifier().partial_fit(X[y == 1], y[y == 1], classes=[0, 1])
    with pytest.raises(ValueError, match="no sample of a class 0"):
        classifier.distribution(0)
    assert (classifier.sample(20, random_state=0)[1] == 1).all()
    np.testing.assert_allclose(
        classifier.distribution().logpdf(X), classifier.distribution(1).logpdf(X), rtol=1e-12
    )


def test_features_have_the_names_of_frames():
    X, y = clusters()
    frame = pd.DataFrame(X, columns=["p", "q", "r"])
    density, classifier = OnlineKDEDensity().fit(frame), OnlineKDEClassifier().fit(frame, y)
    for p in (density.distribution(), classifier.distribution(), classifier.distribution(1)):
        assert p.feature_names == ("p", "q", "r")
    by_name = density.distribution().conditional("q", 1.0).mean
    np.testing.assert_array_equal(by_name, density.distribution().conditional(1, 1.0).mean)


@both_structures
def test_samples_are_rows_of_the_density(covariance_type):
    X, y = clusters(600)
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    # A few of very wide Gaussians decide what the variance of a sample is.
    draws = density.sample(200_000, random_state=0)
    assert draws.shape == (200_000, 3)
    p = density.distribution()
    np.testing.assert_allclose(draws.mean(axis=0), p.mean, atol=0.1)
    np.testing.assert_allclose(np.cov(draws.T), p.cov, rtol=0.1, atol=0.2)
    np.testing.assert_array_equal(density.sample(5, random_state=3), density.sample(5, 3))
    assert density.sample().shape == (1, 3)
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, priors=[0.1, 0.2, 0.7])
    rows, labels = classifier.fit(X, y).sample(5000, random_state=0)
    np.testing.assert_allclose(np.bincount(labels) / 5000, [0.1, 0.2, 0.7], atol=0.03)
    assert np.count_nonzero(np.diff(labels)) > 1000
    for label in range(3):
        own = rows[labels == label]
        np.testing.assert_allclose(own.mean(axis=0), X[y == label].mean(axis=0), atol=0.4)


@pytest.mark.parametrize("settings", quick(SETTINGS, 2))
@all_structures
def test_draws_are_those_of_the_distribution(covariance_type, settings):
    """They are made without the covariances of all Gaussians, and the distribution's with them."""
    X = clusters(600)[0]
    parameters = {"covariance_type": covariance_type, **SETTINGS[settings]}
    density = OnlineKDEDensity(**parameters).fit(X)
    p, draws = density.distribution(), density.sample(6000, random_state=0)
    expected = p.rvs(6000, random_state=1)
    # Each feature, how they hang together, and where the density is high; in no order.
    for of in (lambda x: x.T, lambda x: np.diff(x, axis=1).T, lambda x: p.logpdf(x)[None]):
        for some in (slice(None), slice(1000)):
            for got, wanted in zip(of(draws[some]), of(expected), strict=True):
                assert stats.ks_2samp(got, wanted).pvalue > 1e-4


@pytest.mark.parametrize("settings", quick(SETTINGS, 2))
@all_structures
def test_of_some_features(covariance_type, settings):
    X, y = clusters(400)
    parameters = {"covariance_type": covariance_type, **SETTINGS[settings]}
    frame = pd.DataFrame(X, columns=["p", "q", "r"])
    density = OnlineKDEDensity(**parameters).fit(frame)
    points = X[:20, [2, 0]]
    expected = density.distribution().marginal([2, 0]).logpdf(points)
    for asked in (["r", "p"], [2, 0], [-1, -3]):
        found = density.distribution(dimensions=asked)
        assert found.feature_names == ("r", "p")
        np.testing.assert_allclose(found.logpdf(points), expected, rtol=1e-8, atol=1e-8)
    classifier = OnlineKDEClassifier(**parameters).fit(frame, y)
    for label in (None, 1):
        found = classifier.distribution(label, dimensions=["r", "p"])
        assert found.feature_names == ("r", "p")
        expected = classifier.distribution(label).marginal([2, 0]).logpdf(points)
        np.testing.assert_allclose(found.logpdf(points), expected, rtol=1e-8, atol=1e-8)
    for estimator in (density, classifier):
        with pytest.raises(ValueError, match="no feature 'x' among \\('p', 'q', 'r'\\)"):
            estimator.distribution(dimensions="x")
        with pytest.raises(ValueError, match="all different"):
            estimator.distribution(dimensions=[1, 1])


@pytest.mark.parametrize("Estimator", [OnlineKDEDensity, OnlineKDEClassifier])
def test_nothing_is_asked_before_the_first_row(Estimator):
    X, y = clusters()
    for method in ("distribution", "sample"):
        with pytest.raises(NotFittedError):
            getattr(Estimator(), method)()
    estimator = Estimator().fit(X, y)
    for wrong in (0, -1, 2.0, True, "two"):
        with pytest.raises(ValueError, match="n_samples must be an integer of at least 1"):
            estimator.sample(wrong)
