"""The distribution object at its edges: limits, units, shapes, and modes that hide."""

import copy
import pickle
from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde.distribution import (
    GaussianMixtureDistribution,
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
        assert family[row].weights.sum() == pytest.approx(1.0)


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
    # Older versions of SciPy draw other points for their integrals each time.
    np.testing.assert_allclose(new.cdf(x * units), old.cdf(x), rtol=1e-7, atol=1e-5)
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


def test_a_marginal_is_the_integral_of_the_joint():
    mixture = random_mixture(12, k=3, d=2)
    for x in (-1.0, 0.5):
        mass = quad(lambda y, x=x: mixture.pdf([x, y]), -30.0, 30.0, limit=200)[0]
        assert mixture.marginal(0).pdf(x) == pytest.approx(mass, rel=1e-6)


def test_a_conditional_is_the_joint_over_the_marginal():
    mixture = random_mixture(14, k=3, d=2)
    for value in (-2.0, 0.0, 3.0):
        mass = quad(lambda y, value=value: mixture.pdf([value, y]), -30.0, 30.0, limit=200)[0]
        first = quad(lambda y, value=value: y * mixture.pdf([value, y]), -30.0, 30.0, limit=200)[0]
        found = mixture.conditional(0, value)
        np.testing.assert_allclose(found.pdf(1.0), mixture.pdf([value, 1.0]) / mass, rtol=1e-6)
        np.testing.assert_allclose(found.mean, first / mass, rtol=1e-6, atol=1e-8)


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
    for _ in range(1500):
        slope = np.stack([mixture.logpdf(ends + s) - mixture.logpdf(ends - s) for s in h], axis=1)
        slope /= 2e-5
        ends += 0.02 * slope / np.maximum(1.0, np.linalg.norm(slope, axis=1))[:, None]
    away = np.linalg.norm(ends[:, None] - found.points, axis=2)
    arrived = away.min(axis=1) < 0.05
    assert arrived.mean() > 0.9
    agree = mixture.assign(x)[arrived] == away[arrived].argmin(axis=1)
    # Near a watershed a long step may cross it.
    assert agree.mean() >= 0.85
    numbers = np.arange(len(found.points))
    np.testing.assert_array_equal(mixture.assign(found.points), numbers)
    np.testing.assert_array_equal(mixture.assign(found.points + 0.1), numbers)
    assert mixture.assign(x.reshape(5, 6, 2)).shape == (5, 6)
    assert mixture.assign(x[0]) == mixture.assign(x)[0]
    with pytest.raises(ValueError, match="finite"):
        mixture.assign([np.inf, 0.0])


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


def test_nothing_can_be_set_and_inputs_are_not_held():
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


def test_weights_are_divided_by_their_sum():
    """Which may differ from one by the rounding of whoever made them."""
    nearly = np.array([0.25, 0.75]) * (1.0 + 9e-7)
    mixture = one_dimensional(nearly, [-1.0, 2.0], [1.0, 1.0])
    np.testing.assert_allclose(mixture.weights, [0.25, 0.75], rtol=1e-12)
    assert mixture.cdf(np.inf) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(mixture.mean, 1.25, rtol=1e-12)
    uneven = np.random.default_rng(0).dirichlet(np.ones(1000))
    kept = one_dimensional(uneven, np.zeros(1000), np.ones(1000)).weights
    np.testing.assert_array_equal(kept, uneven)


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


def stream(n=150, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, 2)) * [1.0, 3.0] + 3.0 * y[:, None]
    return X, y


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
