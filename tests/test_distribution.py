"""The distribution object against SciPy, brute force and numerical integration."""

import copy
import pickle
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from sklearn.exceptions import NotFittedError

from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde.distribution import (
    Estimate,
    GaussianMixtureDistribution,
    GaussianMixtureFamily,
    hellinger,
    integrated_squared_error,
    jensen_shannon,
    kl_divergence,
)

KINDS = ["full", "diag"]


def random_mixture(seed=0, k=4, d=3, kind="full", zero=0, spread=2.0, names=None):
    """A mixture of k components, of which the last `zero` weigh nothing."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 1.5, k)
    weights[k - zero :] = 0.0
    if kind == "diag":
        covariances = rng.uniform(0.3, 2.0, (k, d))
    else:
        roots = rng.normal(size=(k, d, d))
        covariances = roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(d)
    means = spread * rng.normal(size=(k, d))
    return GaussianMixtureDistribution(weights / weights.sum(), means, covariances, names)


def full(mixture):
    c = mixture.covariances
    return c if c.ndim == 3 else c[:, :, None] * np.eye(c.shape[1])


def scipy_logpdf(mixture, x):
    with np.errstate(divide="ignore"):
        terms = [
            np.log(w) + multivariate_normal(m, c, allow_singular=True).logpdf(x)
            for w, m, c in zip(mixture.weights, mixture.means, full(mixture), strict=True)
        ]
    return logsumexp(np.array(terms), axis=0)


def one_dimensional(weights, means, deviations):
    variances = np.square(np.asarray(deviations, dtype=float))[:, None]
    return GaussianMixtureDistribution(weights, np.asarray(means, float)[:, None], variances)


def grid_of(mixture, n=400, reach=9.0):
    """Points of a grid around a mixture in two dimensions, and the size of its cells."""
    deviations = np.sqrt(np.diagonal(full(mixture), axis1=1, axis2=2))
    low = (mixture.means - reach * deviations).min(axis=0)
    high = (mixture.means + reach * deviations).max(axis=0)
    axes = [np.linspace(a, b, n) for a, b in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    return points, np.prod([axis[1] - axis[0] for axis in axes])


# ------------------------------------------------------------------------------- densities


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 6), d=st.integers(1, 5), zero=st.integers(0, 2))
def test_logpdf_is_scipys(kind, seed, k, d, zero):
    mixture = random_mixture(seed, k + zero, d, kind, zero)
    x = 3.0 * np.random.default_rng(seed + 1).normal(size=(7, d))
    expected = scipy_logpdf(mixture, x)
    np.testing.assert_allclose(mixture.logpdf(x), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mixture.pdf(x), np.exp(expected), rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_the_formulas(kind):
    mixture = random_mixture(1, kind=kind)
    mean = sum(w * m for w, m in zip(mixture.weights, mixture.means, strict=True))
    second = sum(
        w * (c + np.outer(m, m))
        for w, m, c in zip(mixture.weights, mixture.means, full(mixture), strict=True)
    )
    np.testing.assert_allclose(mixture.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(mixture.cov, second - np.outer(mean, mean), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 3])
def test_shapes_are_those_of_scipy(kind, d):
    mixture = random_mixture(2, d=d, kind=kind)
    normal = multivariate_normal(np.zeros(d), np.eye(d))
    points = np.random.default_rng(0).normal(size=(4, 5, d))
    several = [points[0], points]
    several += [0.3, points[0, :, 0]] if d == 1 else [points[0, 0]]
    for x in several:
        for name in ("logpdf", "pdf", "cdf"):
            found = getattr(mixture, name)(x)
            assert np.shape(found) == np.shape(getattr(normal, name)(x)), (name, np.shape(x))
            assert np.shape(found) or isinstance(found, float)
    np.testing.assert_array_equal(
        mixture.logpdf(points).ravel(), mixture.logpdf(points.reshape(-1, d))
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e3, 1e10, 1e150, 1e200])
def test_far_out_nothing_is_nan(kind, size):
    mixture = random_mixture(3, k=5, d=2, kind=kind, zero=1)
    points = size * np.array([[1.0, 0.0], [-1.0, 1.0], [0.3, -2.0]])
    log_p = mixture.logpdf(points)
    assert (log_p < -1e3).all()
    assert (np.isfinite(log_p) if size < 1e150 else ~np.isnan(log_p)).all()
    np.testing.assert_array_equal(mixture.pdf(points), 0.0)
    np.testing.assert_allclose(mixture.cdf(np.abs(points) + size), 1.0, atol=1e-12)
    np.testing.assert_allclose(mixture.cdf(-size * np.ones(2)), 0.0, atol=1e-12)
    assert not np.isnan(mixture.cdf(points, lower_limit=-points)).any()
    labels = mixture.assign(points)
    assert ((labels >= 0) & (labels < len(mixture.modes().points))).all()
    family = mixture.conditional(0, points[:, :1] + size)
    for values in (family.mean, family.cov, family.ppf([0.1, 0.9]), family.rvs(3, 0)):
        assert np.isfinite(values).all()
    assert not np.isnan(family.logpdf(np.zeros((3, 1)))).any()
    assert not np.isnan(family.cdf(np.zeros(3))).any()
    for row in range(3):
        assert np.isfinite(family[row].weights).all()
        assert family[row].weights[-1] == 0.0


def test_a_component_without_weight_does_not_count_though_it_is_nearest():
    mixture = GaussianMixtureDistribution(
        [0.6, 0.4, 0.0], [[0.0, 0.0], [2.0, 1.0], [50.0, 50.0]], np.ones((3, 2))
    )
    without = GaussianMixtureDistribution([0.6, 0.4], mixture.means[:2], np.ones((2, 2)))
    x = np.array([[50.0, 50.0], [1.0, 1.0], [49.0, 0.0]])
    np.testing.assert_allclose(mixture.logpdf(x), without.logpdf(x), rtol=1e-12)
    np.testing.assert_allclose(mixture.cdf(x), without.cdf(x), rtol=1e-12)
    np.testing.assert_allclose(mixture.marginal(0).ppf([0.0, 0.3, 1.0]),
                               without.marginal(0).ppf([0.0, 0.3, 1.0]), rtol=1e-9)  # fmt: skip
    for value in (50.0, 1e200):
        found, expected = mixture.conditional(0, value), without.conditional(0, value)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9)
    assert len(mixture.modes().points) == len(without.modes().points)
    assert mixture.assign([50.0, 50.0]) < len(without.modes().points)
    assert mixture.rvs(500, random_state=0).max() < 30.0


def test_degenerate_covariances():
    r = 1.0 - 1e-12
    units = np.array([1e-12, 1e12])
    correlated = np.array([[1.0, r], [r, 1.0]])
    plain = GaussianMixtureDistribution([1.0], [[0.0, 0.0]], [correlated])
    scaled = GaussianMixtureDistribution([1.0], [[0.0, 0.0]], [correlated * np.outer(units, units)])
    along = np.array([[1.0, 1.0], [-2.0, -2.0]])
    # Along the long axis the density is that of a normal distribution, times that across it.
    across = -0.5 * np.log(2.0 * np.pi * (1.0 - r))
    expected = (
        -0.5 * (along**2).sum(axis=1) / (1.0 + r) + across - 0.5 * np.log(2 * np.pi * (1 + r))
    )
    np.testing.assert_allclose(plain.logpdf(along), expected, rtol=1e-4)
    np.testing.assert_allclose(
        scaled.logpdf(along * units) + np.log(units).sum(), plain.logpdf(along), rtol=1e-4
    )
    np.testing.assert_allclose(scaled.conditional(0, 1e-12).mean, 1e12, rtol=1e-9)
    np.testing.assert_allclose(scaled.cdf(along * units), norm.cdf(along[:, 0]), atol=1e-4)
    drawn = scaled.rvs(2000, random_state=0) / units
    np.testing.assert_allclose(drawn[:, 0], drawn[:, 1], atol=1e-4)
    np.testing.assert_allclose(drawn.std(axis=0), 1.0, atol=0.1)
    modes = scaled.modes()
    np.testing.assert_allclose(modes.points / units, [[0.0, 0.0]], atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_units_do_no_harm(seed):
    """Features in other units: all answers are those in the old ones."""
    old = random_mixture(seed, d=3)
    units = np.array([1e-12, 1.0, 1e12])
    new = GaussianMixtureDistribution(
        old.weights, old.means * units, old.covariances * np.outer(units, units)
    )
    x = np.random.default_rng(seed).normal(size=(5, 3))
    np.testing.assert_allclose(new.logpdf(x * units), old.logpdf(x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(new.cdf(x * units), old.cdf(x), atol=1e-9)
    np.testing.assert_allclose(
        new.conditional([0, 2], x[:, [0, 2]] * units[[0, 2]]).mean,
        old.conditional([0, 2], x[:, [0, 2]]).mean, rtol=1e-8)  # fmt: skip
    np.testing.assert_allclose(new.modes().points / units, old.modes().points, atol=1e-6)
    np.testing.assert_array_equal(new.assign(x * units), old.assign(x))
    other = random_mixture(seed + 9, d=3)
    new_other = GaussianMixtureDistribution(
        other.weights, other.means * units, other.covariances * np.outer(units, units)
    )
    assert hellinger(new, new_other).value == pytest.approx(hellinger(old, other).value, rel=1e-6)
    kl = kl_divergence(old, other, n_samples=100, random_state=0)
    assert kl_divergence(new, new_other, n_samples=100, random_state=0) == pytest.approx(kl)


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_components_make_no_huge_tables(kind):
    rng = np.random.default_rng(0)
    k, d, n = 3000, 20, 2000
    covariances = np.ones((k, d)) if kind == "diag" else np.tile(np.eye(d), (k, 1, 1))
    mixture = GaussianMixtureDistribution(np.full(k, 1 / k), rng.normal(size=(k, d)), covariances)
    x = rng.normal(size=(n, d))
    tracemalloc.start()
    try:
        log_p = mixture.logpdf(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300e6  # all differences at once would take 960 MB
    expected = -0.5 * ((x[:3, None] - mixture.means) ** 2).sum(axis=2) - 0.5 * d * np.log(2 * np.pi)
    np.testing.assert_allclose(log_p[:3], logsumexp(expected - np.log(k), axis=1), rtol=1e-9)


# ------------------------------------------------------------------- cdf, boxes, quantiles


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2])
def test_cdf_is_scipys(kind, d):
    mixture = random_mixture(4, k=3, d=d, kind=kind)
    x = np.random.default_rng(0).normal(size=(6, d)) * 2.0
    low = x - np.random.default_rng(1).uniform(0.1, 3.0, (6, d))
    for limit in (None, low):
        expected = sum(
            w * multivariate_normal(m, c).cdf(x, lower_limit=limit)
            for w, m, c in zip(mixture.weights, mixture.means, full(mixture), strict=True)
        )
        np.testing.assert_allclose(mixture.cdf(x, lower_limit=limit), expected, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_lower_limits_broadcast(kind):
    mixture = random_mixture(5, k=2, d=2, kind=kind)
    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    low = np.array([-1.0, -2.0])
    each = np.array([[mixture.cdf(p, lower_limit=low) for p in row] for row in x])
    np.testing.assert_allclose(mixture.cdf(x, lower_limit=low), each, atol=2e-5)
    np.testing.assert_allclose(mixture.cdf(x, lower_limit=-1.0),
                               mixture.cdf(x, lower_limit=[-1.0, -1.0]), atol=2e-5)  # fmt: skip
    many = mixture.cdf([1.0, 1.0], lower_limit=x[0])
    assert many.shape == (4,)
    np.testing.assert_allclose(many[2], mixture.cdf([1.0, 1.0], lower_limit=x[0, 2]), atol=2e-5)
    with pytest.raises(ValueError, match="broadcast"):
        mixture.cdf(x, lower_limit=np.zeros((5, 2)))
    with pytest.raises(ValueError, match="NaN"):
        mixture.cdf(x, lower_limit=np.nan)


def test_lower_limits_broadcast_in_one_dimension():
    mixture = one_dimensional([0.3, 0.7], [-1.0, 2.0], [1.0, 0.5])

    def between(a, b):
        return 0.3 * (norm.cdf(b, -1.0) - norm.cdf(a, -1.0)) + 0.7 * (
            norm.cdf(b, 2.0, 0.5) - norm.cdf(a, 2.0, 0.5)
        )

    x, low = np.array([0.0, 1.0, 2.0]), np.array([-1.0, -2.0, 3.0])
    np.testing.assert_allclose(mixture.cdf(x, lower_limit=low), between(low, x), rtol=1e-12)
    np.testing.assert_allclose(mixture.cdf(x[:, None], lower_limit=low), between(low, x))
    np.testing.assert_allclose(mixture.cdf(x, lower_limit=low[:, None]), between(low, x))
    np.testing.assert_allclose(mixture.cdf(x, lower_limit=-1.0), between(-1.0, x))
    np.testing.assert_allclose(mixture.cdf(x, lower_limit=[-1.0]), between(-1.0, x))
    np.testing.assert_allclose(mixture.cdf(1.0, lower_limit=low), between(low, 1.0))
    assert mixture.cdf(1.0, lower_limit=-1.0) == pytest.approx(between(-1.0, 1.0))
    # Far out in the upper tail the difference keeps its digits.
    tail = norm.sf(40.0) - norm.sf(41.0)
    assert one_dimensional([1.0], [0.0], [1.0]).integrate_box(40.0, 41.0) == pytest.approx(tail)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_infinite_and_swapped_limits(kind, d):
    mixture = random_mixture(6, k=3, d=d, kind=kind, zero=1)
    infinite = np.full(d, np.inf)
    assert mixture.cdf(infinite) == pytest.approx(1.0, abs=1e-9)
    assert mixture.cdf(infinite) <= 1.0
    assert mixture.cdf(-infinite) == pytest.approx(0.0, abs=1e-12)
    assert mixture.integrate_box(-infinite, infinite) == pytest.approx(1.0, abs=1e-9)
    assert mixture.integrate_box(infinite, infinite) == pytest.approx(0.0, abs=1e-12)
    assert mixture.integrate_box(-infinite, -infinite) == pytest.approx(0.0, abs=1e-12)
    half = infinite.copy()
    half[0] = 0.5
    of_first = mixture.marginal(0).cdf(0.5)
    assert mixture.cdf(half) == pytest.approx(of_first, abs=2e-5)
    low, high = -np.ones(d), np.full(d, 1.5)
    box = mixture.integrate_box(low, high)
    assert isinstance(box, float)
    assert 0.0 < box < 1.0
    for signs in product([False, True], repeat=d):
        a, b = np.where(signs, high, low), np.where(signs, low, high)
        assert mixture.integrate_box(a, b) == pytest.approx((-1) ** sum(signs) * box, abs=2e-5)


def test_a_box_is_the_integral_of_the_density():
    mixture = random_mixture(7, k=3, d=2)
    low, high = np.array([-1.0, -0.5]), np.array([1.5, 2.0])
    axes = [a + (b - a) * (np.arange(300) + 0.5) / 300 for a, b in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    expected = mixture.pdf(points).mean() * np.prod(high - low)
    assert mixture.integrate_box(low, high) == pytest.approx(expected, abs=5e-5)


@given(seed=st.integers(0, 10**6), k=st.integers(1, 6), zero=st.integers(0, 1))
def test_quantiles_are_the_inverse_of_the_cdf(seed, k, zero):
    mixture = random_mixture(seed, k + zero, 1, "diag", zero)
    x = np.linspace(*mixture.ppf([1e-6, 1.0 - 1e-6]), 9)
    np.testing.assert_allclose(mixture.cdf(mixture.ppf(mixture.cdf(x))), mixture.cdf(x), rtol=1e-9)
    middle = x[mixture.pdf(x) > 1e-3]
    np.testing.assert_allclose(mixture.ppf(mixture.cdf(middle)), middle, atol=1e-9)


def test_quantiles_deep_in_the_tails():
    normal = one_dimensional([0.5, 0.5], [2.0, 2.0], [3.0, 3.0])
    q = np.array([1e-300, 1e-20, 0.5, 1.0 - 1e-16])
    np.testing.assert_allclose(normal.ppf(q), norm.ppf(q, 2.0, 3.0), rtol=1e-9)
    np.testing.assert_array_equal(normal.ppf([0.0, 1.0]), [-np.inf, np.inf])
    assert normal.ppf(0.5) == pytest.approx(2.0)
    assert np.shape(normal.ppf(0.5)) == ()
    assert normal.ppf(np.full((2, 3), 0.5)).shape == (2, 3)
    assert normal.ppf([]).shape == (0,)
    uneven = one_dimensional([1e-6, 1.0 - 1e-6], [-1e12, 0.0], [1e-12, 1.0])
    np.testing.assert_allclose(uneven.ppf(5e-7), -1e12, rtol=1e-12)
    assert uneven.cdf(uneven.ppf(0.7)) == pytest.approx(0.7, rel=1e-9)
    for q in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="probabilities from 0 to 1"):
            normal.ppf(q)
    with pytest.raises(ValueError, match="take a marginal"):
        random_mixture(d=2).ppf(0.5)


# -------------------------------------------------------------------------------------- draws


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_shapes_of_scipy(kind, d):
    mixture = random_mixture(8, d=d, kind=kind)
    normal = multivariate_normal(np.zeros(d), np.eye(d))
    for size in (1, 5, (5,), (2, 3), (1, 4), 0):
        found = mixture.rvs(size, random_state=0)
        expected = normal.rvs(size, random_state=0)
        assert np.shape(found) == np.shape(expected), size


@pytest.mark.parametrize("make", [lambda: 3, lambda: np.random.RandomState(3),
                                  lambda: np.random.default_rng(3)])  # fmt: skip
def test_draws_with_the_same_state_are_the_same(make):
    mixture = random_mixture(9)
    np.testing.assert_array_equal(mixture.rvs(20, make()), mixture.rvs(20, make()))
    assert not np.array_equal(mixture.rvs(20, 4), mixture.rvs(20, make()))
    np.testing.assert_array_equal(mixture.rvs(20, 3), mixture.rvs(20, np.random.RandomState(3)))


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_moments_and_are_in_no_order(kind):
    mixture = random_mixture(10, k=3, d=2, kind=kind, spread=4.0)
    n = 20_000
    drawn = mixture.rvs(n, random_state=0)
    errors = 4.0 * np.sqrt(np.diag(mixture.cov) / n)
    assert (np.abs(drawn.mean(axis=0) - mixture.mean) < errors).all()
    np.testing.assert_allclose(np.cov(drawn.T), mixture.cov, rtol=0.05, atol=0.2)
    first, second = drawn[: n // 2], drawn[n // 2 :]
    assert (np.abs(first.mean(axis=0) - second.mean(axis=0)) < 2.0 * errors).all()
    # The shares of the components, by what is nearest.
    below = [(drawn <= x).all(axis=1).mean() for x in mixture.means]
    np.testing.assert_allclose(below, mixture.cdf(mixture.means), atol=4 * 0.5 / np.sqrt(n))


# -------------------------------------------------------------- marginals and conditionals


@pytest.mark.parametrize("kind", KINDS)
def test_marginals_are_in_the_order_given(kind):
    mixture = random_mixture(11, d=4, kind=kind, names=["a", "b", "c", "d"])
    expected = [2, 0]
    for dimensions in ([2, 0], [-2, -4], ["c", "a"], (np.int64(2), 0), np.array([2, 0])):
        found = mixture.marginal(dimensions)
        assert isinstance(found, GaussianMixtureDistribution)
        assert found.feature_names == ("c", "a")
        np.testing.assert_array_equal(found.means, mixture.means[:, expected])
        np.testing.assert_array_equal(full(found), full(mixture)[:, expected][:, :, expected])
        np.testing.assert_array_equal(found.weights, mixture.weights)
    for one in (1, -3, "b"):
        assert mixture.marginal(one).n_features == 1
        np.testing.assert_array_equal(mixture.marginal(one).means[:, 0], mixture.means[:, 1])


def test_a_marginal_is_the_integral_of_the_joint():
    mixture = random_mixture(12, k=3, d=2)
    for x in (-1.0, 0.5):
        mass = quad(lambda y, x=x: mixture.pdf([x, y]), -30.0, 30.0, limit=200)[0]
        assert mixture.marginal(0).pdf(x) == pytest.approx(mass, rel=1e-6)


def textbook_conditional(mixture, known, others, values):
    weights, means, covariances = [], [], []
    for w, m, c in zip(mixture.weights, mixture.means, full(mixture), strict=True):
        gain = c[np.ix_(others, known)] @ np.linalg.inv(c[np.ix_(known, known)])
        weights.append(w * multivariate_normal(m[known], c[np.ix_(known, known)]).pdf(values))
        means.append(m[others] + gain @ (values - m[known]))
        covariances.append(c[np.ix_(others, others)] - gain @ c[np.ix_(known, others)])
    weights = np.array(weights)
    return GaussianMixtureDistribution(weights / weights.sum(), means, covariances)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [[0], [2, 0], [3, 1, 0]])
def test_conditionals_are_those_of_the_textbook(kind, known):
    mixture = random_mixture(13, d=4, kind=kind, zero=1, names=list("abcd"))
    others = [j for j in range(4) if j not in known]
    rows = np.random.default_rng(0).normal(size=(5, len(known)))
    family = mixture.conditional(known, rows)
    assert isinstance(family, GaussianMixtureFamily)
    assert len(family) == 5
    assert family.n_features == len(others)
    x = np.random.default_rng(1).normal(size=(5, len(others)))
    log_p = family.logpdf(x)
    np.testing.assert_allclose(family.pdf(x), np.exp(log_p))
    for i, values in enumerate(rows):
        expected = textbook_conditional(mixture, known, others, values)
        single = mixture.conditional(np.array(list("abcd"))[known].tolist(), values)
        for found in (family[i], family[i - 5], single):
            assert found.feature_names == tuple("abcd"[j] for j in others)
            np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-8)
            np.testing.assert_allclose(found.means, expected.means, rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(full(found), full(expected), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(family.mean[i], expected.mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(family.cov[i], expected.cov, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(log_p[i], expected.logpdf(x[i]), rtol=1e-8)
    with pytest.raises(IndexError):
        family[5]
    assert len(list(family)) == 5


def test_a_conditional_is_the_joint_over_the_marginal():
    mixture = random_mixture(14, k=3, d=2)
    for value in (-2.0, 0.0, 3.0):
        mass = quad(lambda y, value=value: mixture.pdf([value, y]), -30.0, 30.0, limit=200)[0]
        first = quad(lambda y, value=value: y * mixture.pdf([value, y]), -30.0, 30.0, limit=200)[0]
        found = mixture.conditional(0, value)
        np.testing.assert_allclose(found.pdf(1.0), mixture.pdf([value, 1.0]) / mass, rtol=1e-6)
        np.testing.assert_allclose(found.mean, first / mass, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_family_in_one_dimension(kind):
    mixture = random_mixture(15, d=3, kind=kind, zero=1)
    rows = np.random.default_rng(0).normal(size=(6, 2))
    family = mixture.conditional([0, 2], rows)
    q = [0.0, 1e-12, 0.3, 0.5, 1.0 - 1e-12, 1.0]
    quantiles = family.ppf(q)
    assert quantiles.shape == (6, 6)
    assert family.ppf(0.5).shape == (6, 1)
    y = np.linspace(-2.0, 2.0, 6)
    below = family.cdf(y)
    for i in range(6):
        np.testing.assert_allclose(quantiles[i], family[i].ppf(q), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(below[i], family[i].cdf(y[i]), rtol=1e-10)
    np.testing.assert_array_equal(quantiles[:, 0], -np.inf)
    np.testing.assert_array_equal(quantiles[:, -1], np.inf)
    np.testing.assert_allclose(family.cdf(quantiles[:, 2]), 0.3, rtol=1e-9)
    with pytest.raises(ValueError, match="for one dimension"):
        mixture.conditional([0], rows[:, :1]).cdf(y)
    with pytest.raises(ValueError, match="for one dimension"):
        mixture.conditional([0], rows[:, :1]).ppf(0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_a_family(kind):
    mixture = random_mixture(16, d=3, kind=kind)
    family = mixture.conditional(1, [[-1.0], [0.5]])
    n = 5000
    drawn = family.rvs(n, random_state=0)
    assert drawn.shape == (2, n, 2)
    assert family.rvs(random_state=0).shape == (2, 1, 2)
    np.testing.assert_array_equal(drawn, family.rvs(n, random_state=0))
    for i in range(2):
        errors = 4.0 * np.sqrt(np.diag(family.cov[i]) / n)
        assert (np.abs(drawn[i].mean(axis=0) - family.mean[i]) < errors).all()
        np.testing.assert_allclose(np.cov(drawn[i].T), family.cov[i], rtol=0.15, atol=0.3)


# -------------------------------------------------------------------------- estimates of one


@pytest.mark.parametrize("kind", KINDS)
def test_entropy(kind):
    single = random_mixture(17, k=1, d=3, kind=kind)
    exact = single.entropy()
    assert isinstance(exact, Estimate)
    assert exact.standard_error == 0.0
    expected = multivariate_normal(single.means[0], full(single)[0]).entropy()
    assert exact.value == pytest.approx(expected)
    mixture = random_mixture(18, k=3, d=1, kind=kind)
    true = quad(lambda x: -mixture.pdf(x) * mixture.logpdf(x), -30.0, 30.0, limit=300)[0]
    found = mixture.entropy(20_000, random_state=0)
    assert 0.0 < found.standard_error < 0.02
    assert abs(found.value - true) < 4.0 * found.standard_error


@pytest.mark.parametrize("prob", [0.1, 0.5, 0.9])
def test_highest_density_threshold(prob):
    single = random_mixture(19, k=1, d=2)
    exact = single.highest_density_threshold(prob)
    assert exact.standard_error == 0.0
    # In two dimensions the density at the edge is 1 - prob times that at the top.
    assert exact.value == pytest.approx(single.logpdf(single.means[0]) + np.log(1.0 - prob))
    mixture = random_mixture(20, k=3, d=2)
    points, cell = grid_of(mixture)
    heights = np.sort(mixture.logpdf(points))[::-1]
    true = heights[np.searchsorted(np.cumsum(np.exp(heights)) * cell, prob)]
    found = mixture.highest_density_threshold(prob, 20_000, random_state=0)
    assert 0.0 < found.standard_error < 0.1
    assert abs(found.value - true) < 4.0 * found.standard_error + 1e-3


# -------------------------------------------------------------------------------------- modes


def check_modes(mixture):
    found = mixture.modes()
    n, d = found.points.shape
    assert found.log_densities.shape == (n,)
    assert found.hessians.shape == (n, d, d)
    assert (np.diff(found.log_densities) <= 0.0).all()
    np.testing.assert_allclose(found.log_densities, mixture.logpdf(found.points), rtol=1e-9)

    def height(point):  # without the shape of a vector in one dimension
        return mixture.logpdf(point[None])[0]

    step = 1e-3
    sides = step * np.eye(d)
    for point, hessian in zip(found.points, found.hessians, strict=True):
        gradient = [(height(point + s) - height(point - s)) / (2 * step) for s in sides]
        np.testing.assert_allclose(gradient, 0.0, atol=1e-4)
        numeric = np.empty((d, d))
        for i, j in product(range(d), repeat=2):
            numeric[i, j] = sum(
                s * t * height(point + s * sides[i] + t * sides[j])
                for s, t in product([-1, 1], repeat=2)
            ) / (4 * step**2)  # fmt: skip
        np.testing.assert_allclose(hessian, numeric, rtol=1e-2, atol=1e-3)
        assert np.linalg.eigvalsh(hessian).max() < 0.0
    return found


def peaks_on_a_grid(mixture, n, reach):
    """Number of points that are higher than all eight neighbours."""
    p = mixture.logpdf(grid_of(mixture, n, reach)[0]).reshape(n, n)
    inner = p[1:-1, 1:-1]
    top = np.ones_like(inner, dtype=bool)
    for i, j in product([-1, 0, 1], repeat=2):
        if (i, j) != (0, 0):
            top &= inner > p[1 + i : n - 1 + i, 1 + j : n - 1 + j]
    return top.sum()


def test_modes_of_one_component():
    found = check_modes(random_mixture(21, k=1, d=3))
    np.testing.assert_allclose(found.points, random_mixture(21, k=1, d=3).means, rtol=1e-9)


@pytest.mark.parametrize("means", [[-3.0, 3.0], [-4.0, 0.0, 4.0]])
def test_modes_in_one_dimension_are_all_there(means):
    mixture = one_dimensional(np.full(len(means), 1 / len(means)), means, np.ones(len(means)))
    found = check_modes(mixture)
    x = np.linspace(-10.0, 10.0, 20_001)
    p = mixture.pdf(x)
    top = x[1:-1][(p[1:-1] > p[:-2]) & (p[1:-1] > p[2:])]
    np.testing.assert_allclose(np.sort(found.points[:, 0]), top, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_modes_in_two_dimensions_are_all_there(kind, seed):
    mixture = random_mixture(seed + 30, k=5, d=2, kind=kind)
    found = check_modes(mixture)
    assert len(found.points) == peaks_on_a_grid(mixture, 400, 1.0)


def test_more_modes_than_components():
    """Carreira-Perpinan and Williams, On the number of modes of a Gaussian mixture (2003)."""
    along = np.diag([1.0, 0.02])
    crossing = GaussianMixtureDistribution(
        [0.45, 0.55], [[1.5, 0.03], [-0.05, 1.6]], [along, along[::-1, ::-1]]
    )
    found = check_modes(crossing)
    assert len(found.points) == peaks_on_a_grid(crossing, 401, 1.0) == 3
    # Of three equal ones the fourth mode is in the middle; it is there for few deviations only.
    angles = 2.0 * np.pi * np.arange(3) / 3 + 0.1
    triangle = np.column_stack([np.cos(angles), np.sin(angles)])
    for deviation, number in ((0.69, 3), (0.714, 4), (0.75, 1)):
        equal = GaussianMixtureDistribution(
            np.full(3, 1 / 3), triangle, np.full((3, 2), deviation**2)
        )
        assert len(check_modes(equal).points) == number


@pytest.mark.parametrize(("distance", "number"), [(0.0, 1), (1.0, 1), (1.9, 1), (2.1, 2), (5.0, 2)])
def test_two_equal_components_have_two_modes_beyond_two_deviations(distance, number):
    mixture = one_dimensional([0.5, 0.5], [-0.5 * distance, 0.5 * distance], [1.0, 1.0])
    assert len(check_modes(mixture).points) == number


def test_a_start_on_a_saddle_leaves_it():
    mixture = one_dimensional([0.45, 0.1, 0.45], [-2.0, 0.0, 2.0], [1.0, 1.0, 1.0])
    found = check_modes(mixture)
    np.testing.assert_allclose(found.points[0], -found.points[1], atol=1e-6)
    assert len(found.points) == 2


def test_duplicates_are_one_mode():
    mixture = GaussianMixtureDistribution(np.full(6, 1 / 6), [[1.0, 2.0], [9.0, 9.0]] * 3,
                                          np.ones((6, 2)))  # fmt: skip
    assert len(mixture.modes().points) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_points_are_assigned_to_the_mode_uphill(kind):
    mixture = random_mixture(40, k=4, d=2, kind=kind, spread=4.0)
    found = mixture.modes()
    assert len(found.points) > 1
    x = 4.0 * np.random.default_rng(0).normal(size=(30, 2))
    # Brute force: very short steps along the gradient.
    ends, h = x.copy(), 1e-5 * np.eye(2)
    for _ in range(3000):
        slope = np.stack([mixture.logpdf(ends + s) - mixture.logpdf(ends - s) for s in h], axis=1)
        slope /= 2e-5
        ends += 0.02 * slope / np.maximum(1.0, np.linalg.norm(slope, axis=1))[:, None]
    away = np.linalg.norm(ends[:, None] - found.points, axis=2)
    arrived = away.min(axis=1) < 0.05
    assert arrived.mean() > 0.9
    agree = mixture.assign(x)[arrived] == away[arrived].argmin(axis=1)
    # Near a watershed a long step may cross it.
    assert agree.mean() >= 0.85
    np.testing.assert_array_equal(mixture.assign(found.points), np.arange(len(found.points)))
    assert mixture.assign(x.reshape(5, 6, 2)).shape == (5, 6)
    assert mixture.assign(x[0]) == mixture.assign(x)[0]
    with pytest.raises(ValueError, match="finite"):
        mixture.assign([np.inf, 0.0])


# ---------------------------------------------------------------------------- of two of them


def pairs(d):
    return [(random_mixture(s, 3, d, a), random_mixture(s + 50, 4, d, b))
            for s, (a, b) in enumerate(product(KINDS, KINDS))]  # fmt: skip


def integrals(p, q):
    """Hellinger distance, integrated squared error, KL and JS divergence on a grid."""
    if p.n_features == 1:
        x = np.linspace(-40.0, 40.0, 40_001)[:, None]
        cell = x[1, 0] - x[0, 0]
    else:
        both = GaussianMixtureDistribution(
            np.concatenate([p.weights, q.weights]) / 2,
            np.concatenate([p.means, q.means]),
            np.concatenate([full(p), full(q)]),
        )
        x, cell = grid_of(both, 300)
    a, b = p.logpdf(x), q.logpdf(x)
    pa, pb = np.exp(a), np.exp(b)
    m = np.logaddexp(a, b) - np.log(2.0)
    return (
        np.sqrt(0.5 * ((np.sqrt(pa) - np.sqrt(pb)) ** 2).sum() * cell),
        ((pa - pb) ** 2).sum() * cell,
        (pa * (a - b)).sum() * cell,
        0.5 * (pa * (a - m) + pb * (b - m)).sum() * cell,
    )


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("d", [1, 2])
def test_distances_are_those_of_integration(d, number):
    p, q = pairs(d)[number]
    distance, squared_error, kl, js = integrals(p, q)
    found = hellinger(p, q, method="monte-carlo", n_samples=20_000, random_state=0)
    assert 0.0 < found.standard_error < 0.02
    assert abs(found.value - distance) < 4.0 * found.standard_error
    unscented = hellinger(p, q)
    assert unscented.value == pytest.approx(distance, abs=0.15)
    assert np.isnan(unscented.standard_error)
    assert integrated_squared_error(p, q) == pytest.approx(squared_error, rel=1e-6)
    for function, true in ((kl_divergence, kl), (jensen_shannon, js)):
        estimate = function(p, q, n_samples=20_000, random_state=0)
        assert estimate.standard_error > 0.0
        assert abs(estimate.value - true) < 4.0 * estimate.standard_error


def test_distances_of_equal_distributions_are_zero():
    for kind in KINDS:
        p = random_mixture(60, kind=kind)
        assert integrated_squared_error(p, p) == 0.0
        assert hellinger(p, p).value == 0.0
        assert hellinger(p, p, method="monte-carlo", random_state=0) == (0.0, 0.0)
        assert kl_divergence(p, p, random_state=0) == (0.0, 0.0)
        assert jensen_shannon(p, p, random_state=0).value == pytest.approx(0.0, abs=1e-12)


def test_far_apart_distances_are_at_their_ends():
    p, q = one_dimensional([1.0], [0.0], [1.0]), one_dimensional([1.0], [1e3], [1.0])
    assert hellinger(p, q).value == pytest.approx(1.0)
    assert hellinger(p, q, method="monte-carlo", random_state=0).value == pytest.approx(1.0)
    assert jensen_shannon(p, q, random_state=0).value == pytest.approx(np.log(2.0))
    assert kl_divergence(p, q).value == pytest.approx(0.5e6)


def test_divergence_of_two_gaussians_is_exact():
    p, q = random_mixture(61, k=1, d=3), random_mixture(62, k=1, d=3, kind="diag")
    exact = kl_divergence(p, q)
    assert exact.standard_error == 0.0
    x = p.rvs(100_000, random_state=0)
    values = p.logpdf(x) - q.logpdf(x)
    assert abs(exact.value - values.mean()) < 4.0 * values.std() / np.sqrt(len(x))


def test_only_the_same_features_are_compared():
    p = random_mixture(d=2, names=["a", "b"])
    for q in (random_mixture(d=3), random_mixture(d=2, names=["b", "a"])):
        for function in (hellinger, integrated_squared_error, kl_divergence, jensen_shannon):
            with pytest.raises(ValueError, match="same features"):
                function(p, q)
    assert hellinger(p, random_mixture(d=2)).value == 0.0
    with pytest.raises(ValueError, match="method must be"):
        hellinger(p, p, method="exact")


# -------------------------------------------------------------------------------- the object


def test_it_is_frozen():
    inputs = np.array([0.5, 0.5]), np.zeros((2, 2)), np.ones((2, 2))
    mixture = GaussianMixtureDistribution(*inputs)
    for array in (*mixture.arrays, mixture.mean, mixture.cov, *mixture.modes()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0
    for name in ("weights", "means", "mean", "cov", "n_features", "anything"):
        with pytest.raises(AttributeError):
            setattr(mixture, name, 3.0)
    for array in inputs:
        array[0] = 7.0  # may be written to, and is no part of it
    np.testing.assert_array_equal(mixture.weights, 0.5)
    np.testing.assert_array_equal(mixture.means, 0.0)
    np.testing.assert_array_equal(mixture.covariances, 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_family_is_frozen(kind):
    rows = np.zeros((2, 1))
    family = random_mixture(d=3, kind=kind).conditional(0, rows)
    before = family.mean
    rows[:] = 9.0
    np.testing.assert_array_equal(family.mean, before)
    with pytest.raises(AttributeError):
        family.values = rows
    for one in (family, pickle.loads(pickle.dumps(family)), copy.deepcopy(family)):
        arrays = [value for value in vars(one).values() if isinstance(value, np.ndarray)]
        assert len(arrays) == (6 if kind == "full" else 5)
        for array in arrays:
            assert not array.flags.writeable
        np.testing.assert_array_equal(one.mean, before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [lambda m: pickle.loads(pickle.dumps(m)), copy.copy, copy.deepcopy])
def test_copies_are_equal_and_frozen(kind, way):
    mixture = random_mixture(70, k=7, kind=kind, names=["a", "b", "c"])
    mixture.modes(), mixture.logpdf(np.zeros(3)), mixture.mean, mixture.cov
    other = way(mixture)
    assert type(other) is GaussianMixtureDistribution
    assert other.feature_names == mixture.feature_names
    for first, second in zip(mixture.arrays, other.arrays, strict=True):
        np.testing.assert_array_equal(first, second)
    for array in (*other.arrays, other.mean, other.cov, other.log_weights, *other.modes()):
        assert not array.flags.writeable
    assert other.logpdf(np.ones(3)) == mixture.logpdf(np.ones(3))
    with pytest.raises(AttributeError):
        other.weights = 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [0.0], [[1.0]]), "means must have the shape"),
        (([1.0], np.empty((0, 1)), [[1.0]]), "at least one of each"),
        (([0.5, 0.5], [[0.0]], [[1.0]]), "weights must have the shape"),
        (([1.0], [[0.0, 1.0]], [[1.0]]), "covariances must have the shape"),
        (([0.7, 0.7], [[0.0]] * 2, [[1.0]] * 2), "divide them by their sum"),
        (([1.5, -0.5], [[0.0]] * 2, [[1.0]] * 2), "must not be negative"),
        (([np.nan], [[0.0]], [[1.0]]), "weights must be finite"),
        (([1.0], [[np.inf]], [[1.0]]), "means must be finite"),
        (([0.5, 0.5], [[0.0]] * 2, [[1.0], [0.0]]), "that of component 1 is not"),
        (([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.4, 1.0]]]), "symmetric"),
        (([1.0], [[0.0, 0.0]], [[1.0, 1.0]], ["a"]), "2 different names"),
        (([1.0], [[0.0, 0.0]], [[1.0, 1.0]], ["a", "a"]), "2 different names"),
    ],
)
def test_what_is_no_mixture(arguments, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixtureDistribution(*arguments)


def test_a_covariance_that_is_indefinite():
    mixture = GaussianMixtureDistribution([1.0], [[0.0, 0.0]], [[[1.0, 2.0], [2.0, 1.0]]])
    with pytest.raises(ValueError, match="positive definite"):
        mixture.logpdf([0.0, 0.0])
    with pytest.raises(ValueError, match="positive definite"):
        mixture.rvs(random_state=0)


def test_bad_questions():
    mixture = random_mixture(d=3, names=["a", "b", "c"])
    for dimensions in ("z", ["a", "z"], 3, -4, [0, 3]):
        with pytest.raises(ValueError, match="There is no feature"):
            mixture.marginal(dimensions)
    for dimensions in ([], [0, 0], [0, -3], ["a", 0]):
        with pytest.raises(ValueError, match="at least one, and all different"):
            mixture.marginal(dimensions)
    for dimensions in (True, 1.0, [0.5]):
        with pytest.raises(TypeError):
            mixture.marginal(dimensions)
    with pytest.raises(ValueError, match="There is no feature 'a' among none"):
        random_mixture().marginal("a")
    with pytest.raises(ValueError, match="All features are known"):
        mixture.conditional([0, 1, 2], [0.0, 0.0, 0.0])
    for values in ([0.0, 1.0], [[0.0, 1.0]], np.zeros((1, 1, 1))):
        with pytest.raises(ValueError, match="values must have the shape"):
            mixture.conditional(0, values)
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="values must be finite"):
            mixture.conditional(0, value)
    with pytest.raises(ValueError, match="3 features along its last axis"):
        mixture.logpdf([0.0, 1.0])
    with pytest.raises(ValueError, match="x has NaN"):
        mixture.logpdf([0.0, 1.0, np.nan])
    for prob in (0.0, 1.0, -0.1, np.nan, "0.5"):
        with pytest.raises(ValueError, match="prob must be a number between 0 and 1"):
            mixture.highest_density_threshold(prob)
    for n in (1, 2.5, True):
        with pytest.raises(ValueError, match="n_samples must be an integer of at least 2"):
            mixture.entropy(n)


def test_repr_tells_the_size():
    assert repr(random_mixture(k=4, d=3)) == (
        "<GaussianMixtureDistribution of 4 components with full covariances in 3 dimensions>"
    )
    family = random_mixture(k=4, d=3).conditional(0, [[1.0]])
    assert (
        repr(family) == "<GaussianMixtureFamily of 1 distributions of 4 components in 2 dimensions>"
    )


# --------------------------------------------------------------------------------- estimators

SETTINGS = [
    {},
    {"covariance_type": "diag"},
    {"bandwidth": "okde", "compression_threshold": 0.1},
    {"bandwidth": "okde", "compression_threshold": 0.1, "covariance_type": "diag"},
    {"forgetting_factor": "predictive"},
]


def stream(n=150, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, 2)) * [1.0, 3.0] + 3.0 * y[:, None]
    return X, y


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_distribution_of_a_density_is_what_it_scores(settings):
    X, _ = stream()
    density = OnlineKDEDensity(**settings).fit(X)
    points = stream(seed=1)[0]
    np.testing.assert_allclose(
        density.distribution().logpdf(points), density.score_samples(points), atol=1e-8, rtol=1e-8
    )


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_distributions_of_a_classifier_are_what_it_scores(settings):
    X, y = stream()
    labels = np.array(["no", "yes"])
    classifier = OnlineKDEClassifier(**settings).fit(X, labels[y])
    points = stream(seed=1)[0]
    joint = classifier.predict_joint_log_proba(points)
    for code, label in enumerate(labels):
        found = classifier.distribution(label).logpdf(points) + np.log(
            classifier.class_prior_[code]
        )
        np.testing.assert_allclose(found, joint[:, code], atol=1e-8, rtol=1e-8)
    np.testing.assert_allclose(
        classifier.distribution().logpdf(points), classifier.score_samples(points), atol=1e-8,
        rtol=1e-8)  # fmt: skip


def test_before_the_first_row_there_is_none():
    for estimator in (OnlineKDEDensity(), OnlineKDEClassifier()):
        with pytest.raises(NotFittedError):
            estimator.distribution()
        with pytest.raises(NotFittedError):
            estimator.sample()


def test_it_stays_when_the_estimator_learns():
    X, y = stream()
    density = OnlineKDEDensity().fit(X)
    classifier = OnlineKDEClassifier().fit(X, y)
    old = density.distribution(), classifier.distribution(1), classifier.distribution()
    before = [[array.copy() for array in one.arrays] for one in old]
    density.partial_fit(X + 50.0)
    classifier.partial_fit(X + 50.0, y)
    for one, arrays in zip(old, before, strict=True):
        for array, kept in zip(one.arrays, arrays, strict=True):
            np.testing.assert_array_equal(array, kept)
    assert density.distribution().mean[0] > old[0].mean[0] + 10.0
    assert classifier.distribution().mean[0] > old[2].mean[0] + 10.0


def test_names_are_those_of_the_frame():
    pd = pytest.importorskip("pandas")
    X, y = stream()
    frame = pd.DataFrame(X, columns=["height", "weight"])
    density = OnlineKDEDensity().fit(frame)
    classifier = OnlineKDEClassifier().fit(frame, y)
    for one in (density.distribution(), classifier.distribution(), classifier.distribution(0)):
        assert one.feature_names == ("height", "weight")
        assert one.marginal("weight").feature_names == ("weight",)
        assert one.conditional("weight", 0.0).feature_names == ("height",)
    assert OnlineKDEDensity().fit(X).distribution().feature_names is None


@pytest.mark.parametrize("settings", SETTINGS[:3])
def test_samples_of_a_density(settings):
    X, _ = stream()
    density = OnlineKDEDensity(**settings).fit(X)
    assert density.sample().shape == (1, 2)
    n = 20_000
    drawn = density.sample(n, random_state=0)
    distribution = density.distribution()
    errors = 4.0 * np.sqrt(np.diag(distribution.cov) / n)
    assert (np.abs(drawn.mean(axis=0) - distribution.mean) < errors).all()
    assert (np.abs(drawn[: n // 2].mean(axis=0) - drawn[n // 2 :].mean(axis=0)) < 2 * errors).all()
    np.testing.assert_allclose(np.cov(drawn.T), distribution.cov, rtol=0.2, atol=0.2)
    np.testing.assert_array_equal(density.sample(9, 1), density.sample(9, np.random.RandomState(1)))
    assert not np.array_equal(density.sample(9, 1), density.sample(9, 2))


def test_samples_of_a_classifier():
    X, y = stream()
    labels = np.array(["no", "yes"])
    classifier = OnlineKDEClassifier().fit(X, labels[y])
    n = 10_000
    drawn, drawn_y = classifier.sample(n, random_state=0)
    assert drawn.shape == (n, 2)
    assert drawn_y.shape == (n,)
    assert drawn_y.dtype == classifier.classes_.dtype
    prior = classifier.class_prior_
    assert abs((drawn_y == "yes").mean() - prior[1]) < 4.0 * np.sqrt(prior.prod() / n)
    half = (drawn_y[: n // 2] == "yes").mean()
    assert abs(half - prior[1]) < 4.0 * np.sqrt(2.0 * prior.prod() / n)
    for label in labels:
        part, whole = drawn[drawn_y == label], classifier.distribution(label)
        errors = 4.0 * np.sqrt(np.diag(whole.cov) / len(part))
        assert (np.abs(part.mean(axis=0) - whole.mean) < errors).all()
    again = classifier.sample(n, random_state=0)
    np.testing.assert_array_equal(again[0], drawn)
    np.testing.assert_array_equal(again[1], drawn_y)


@pytest.mark.parametrize("estimator", [OnlineKDEDensity(), OnlineKDEClassifier()])
@pytest.mark.parametrize("n", [0, -1, 1.5, "3", True])
def test_numbers_of_samples_that_are_none(estimator, n):
    X, y = stream(30)
    with pytest.raises((ValueError, TypeError), match="n_samples"):
        estimator.fit(X, y).sample(n)


def test_a_class_without_a_sample():
    X, y = stream(60)
    classifier = OnlineKDEClassifier().partial_fit(X, y, classes=[0, 1, 2])
    for label in (2, 7, "a"):
        with pytest.raises(ValueError, match="no sample of a class"):
            classifier.distribution(label)
    assert set(classifier.sample(500, random_state=0)[1]) == {0, 1}
    points = stream(20, seed=1)[0]
    np.testing.assert_allclose(
        classifier.distribution().logpdf(points), classifier.score_samples(points), rtol=1e-8
    )
