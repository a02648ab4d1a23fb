"""The unscented Hellinger distance and the local clustering error (paper, Sections 2.4, 2.5)."""

import numpy as np
import pytest
from skokde._engine._hellinger import local_error

import twins
from skokde._engine import _hellinger
from skokde._engine.covariance import STRUCTURES
from skokde._engine.hellinger import detail_errors
from skokde._engine.kde import components_in, factorize
from skokde._engine.mixture import Mixture


def hellinger(frame, *mixtures):
    """Distance of two mixtures in data units, under the bandwidth that is I in the frame."""
    arrays = []
    for weights, means, covariances in mixtures:
        arrays += [weights / weights.sum(), frame.points(means), frame.covariances(covariances)]
    return _hellinger.hellinger(*arrays)


def mixture(weights, means, covariances=None):
    """Weights, means and flattened full covariances (zero by default), for H = I."""
    means = np.array(means, dtype=float)
    if means.ndim == 1:
        means = means[:, None]
    k, d = means.shape
    if covariances is None:
        covariances = np.zeros((k, d, d))
    covariances = np.array(covariances, dtype=float).reshape(k, d * d)
    return np.array(weights, dtype=float) / np.sum(weights), means, covariances


def and_its_gaussian(weights, means, covariances=None):
    """A sub-mixture and the single Gaussian of its moments: what a compression compares."""
    weights, means, covariances = mixture(weights, means, covariances)
    d = means.shape[1]
    _, mean, covariance = twins.moments(weights, means, covariances.reshape(-1, d, d))
    return (weights, means, covariances), mixture([1.0], mean[None], covariance[None])


def turned(angle, a, b):
    """A 2-d covariance with variance a along the angle and b across it."""
    c, s = np.cos(angle), np.sin(angle)
    rotation = np.array([[c, -s], [s, c]])
    return rotation @ np.diag([a, b]) @ rotation.T


RING = 3.0 * np.array([[np.cos(a), np.sin(a)] for a in np.arange(8) * np.pi / 4])
CLOUD = 2.0 * np.random.default_rng(0).normal(size=(6, 2))

# Covariances are without H = I. The list was written down before its results were known.
PAIRS = {
    # 1-d sub-mixtures and their Gaussians
    "two samples, 1 apart": and_its_gaussian([1, 1], [0, 1]),
    "two samples, 2 apart": and_its_gaussian([1, 1], [0, 2]),
    "two samples, 4 apart": and_its_gaussian([1, 1], [0, 4]),
    "two samples, unequal": and_its_gaussian([8, 2], [0, 3]),
    "three samples": and_its_gaussian([1, 1, 1], [0, 1, 3]),
    "ten samples in a row": and_its_gaussian(np.ones(10), np.linspace(-3, 3, 10)),
    "compound and outlier": and_its_gaussian([9, 1], [0, 5], [4, 0]),
    "narrow and wide": and_its_gaussian([1, 1], [0, 0], [1, 9]),
    "two compounds": and_its_gaussian([1, 1], [-2.5, 2.5], [2, 2]),
    # 2-d sub-mixtures and their Gaussians
    "2-d, two samples": and_its_gaussian([1, 1], [[0, 0], [2, 2]]),
    "2-d, square": and_its_gaussian(np.ones(4), [[0, 0], [0, 3], [3, 0], [3, 3]]),
    "2-d, ring": and_its_gaussian(np.ones(8), RING),
    "2-d, cloud": and_its_gaussian([1, 2, 3, 1, 2, 3], CLOUD),
    "2-d, tilted compound and sample": and_its_gaussian(
        [3, 1], [[0, 0], [-1, 2]], [turned(0.6, 9, 0.5), np.zeros((2, 2))]
    ),
    "2-d, cross": and_its_gaussian([1, 1], [[0, 0], [0, 0]], [np.diag([9, 0]), np.diag([0, 9])]),
    # any two mixtures
    "shifted by 2": (mixture([1], [0]), mixture([1], [2])),
    "widened": (mixture([1], [0]), mixture([1], [0], [4])),
    "weights exchanged": (mixture([7, 3], [-2, 2]), mixture([3, 7], [-2, 2])),
    "one of three moved": (mixture([1, 1, 1], [-3, 0, 3]), mixture([1, 1, 1], [-3, 0, 4])),
    "2-d, shifted": (mixture([1], [[0, 0]]), mixture([1], [[1, 2]])),
    "2-d, quarter turn": (
        mixture([1, 1], [[-2, 0], [2, 0]]),
        mixture([1, 1], [[0, -2], [0, 2]]),
    ),
    "2-d, far apart": (
        mixture([1, 2], [[0, 0], [2, 1]], [np.eye(2), turned(1.0, 4, 1)]),
        mixture([1, 1], [[12, 0], [14, 3]], [turned(2.0, 3, 1), np.eye(2)]),
    ),
}


def true_distance(first, second):
    d = first[1].shape[1]
    smoothed = [(w, m, c.reshape(-1, d, d) + np.eye(d)) for w, m, c in (first, second)]
    return twins.true_hellinger(*smoothed, step=0.1 if d == 1 else 0.25)


TRUE = {name: true_distance(*pair) for name, pair in PAIRS.items()}


@pytest.mark.parametrize("name", PAIRS)
def test_unscented_distance_is_near_the_true_one(name):
    assert abs(_hellinger.hellinger(*PAIRS[name][0], *PAIRS[name][1]) - TRUE[name]) < 0.2


def test_unscented_distance_is_near_the_true_one_on_average():
    errors = [_hellinger.hellinger(*PAIRS[name][0], *PAIRS[name][1]) - TRUE[name] for name in PAIRS]
    assert np.mean(np.abs(errors)) < 0.03
    # Nor is there much bias, which D_th would have to make up for.
    assert abs(np.mean(errors)) < 0.02


def test_quadrature_agrees_with_closed_form():
    # Equal covariances: D^2 = 1 - exp(-delta^2 / 8); equal means: by the ratio of deviations.
    shift = np.sqrt(-np.expm1(-(2.0**2) / 8.0))
    s, t = 1.0, np.sqrt(5.0)
    widening = np.sqrt(1.0 - np.sqrt(2.0 * s * t / (s * s + t * t)))
    np.testing.assert_allclose(TRUE["shifted by 2"], shift, rtol=1e-10)
    np.testing.assert_allclose(TRUE["widened"], widening, rtol=1e-10)
    np.testing.assert_allclose(TRUE["2-d, shifted"], np.sqrt(-np.expm1(-5.0 / 8.0)), rtol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_zero_for_equal_mixtures(d, covariance_type):
    weights, means, covs = twins.random_components(d, covariance_type, "mixed", all_covs=True)
    assert _hellinger.hellinger(weights, means, covs, weights, means, covs) < 1e-12
    # The same mixture, its first component in two halves, its order another.
    order = np.r_[len(weights), np.arange(len(weights))[::-1]]
    halves = [np.append(array, array[:1], axis=0)[order] for array in (weights, means, covs)]
    halves[0][[0, -1]] /= 2.0
    assert _hellinger.hellinger(weights, means, covs, *halves) < 1e-12


@pytest.mark.parametrize("name", PAIRS)
def test_symmetric(name):
    first, second = PAIRS[name]
    there = _hellinger.hellinger(*first, *second)
    back = _hellinger.hellinger(*second, *first)
    np.testing.assert_allclose(there, back, rtol=1e-13)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("distance", [0.0, 1e-9, 1e-3, 1.0, 10.0, 1e3, 1e6, 1e12])
def test_from_zero_to_one_at_any_distance(d, distance):
    weights, means, covs = twins.random_components(d, "full", "mixed", all_covs=True)
    got = _hellinger.hellinger(weights, means, covs, weights, means + distance, covs)
    assert 0.0 <= got <= 1.0 + 1e-15
    if distance >= 1e3:
        assert got > 1.0 - 1e-9  # disjoint
    if distance <= 1e-9:
        assert got < 1e-8


def test_grows_with_the_distance():
    one, zero = np.ones(1), np.zeros((1, 1))
    shifts = np.linspace(0.0, 8.0, 33)[:, None, None]
    distances = [_hellinger.hellinger(one, zero, zero, one, shift, zero) for shift in shifts]
    assert np.all(np.diff(distances) > 0.0)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_local_error_is_the_weighted_distance_to_the_gaussian(d, covariance_type):
    mixture = twins.learned_mixture(twins.clumps(d, 150), covariance_type, threshold=0.05)
    assert 0 < mixture.n_compounds < mixture.n_components
    frame = twins.kernel_frame(mixture, covariance_type).frame
    components = components_in(frame, *mixture[:3])
    full = twins.full_covariances(mixture.all_covariances())
    rng = np.random.default_rng(1)
    for size in (2, 3, 5, mixture.n_components):
        members = np.sort(rng.choice(mixture.n_components, size, replace=False))
        counts, means = mixture.counts[members], mixture.means[members]
        count, mean, covariance = twins.moments(counts, means, full[members])
        if covariance_type == "diag":
            covariance = np.diag(covariance).copy()
        distance = hellinger(
            frame,
            (counts, means, mixture.all_covariances()[members]),
            (np.ones(1), mean[None], covariance[None]),
        )
        expected = np.sqrt(count / mixture.counts.sum()) * distance
        assert expected > 1e-5
        np.testing.assert_allclose(
            local_error(members, *components, *factorize(components), np.empty(0)),
            expected,
            rtol=1e-9,
        )


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("d", [1, 3])
def test_detail_errors_are_weighted_distances_to_the_detailed_models(d, covariance_type):
    mixture = twins.learned_mixture(twins.clumps(d, 150), covariance_type, threshold=0.05)
    frame = twins.kernel_frame(mixture, covariance_type).frame
    got = detail_errors(mixture, frame)
    assert got.shape == (mixture.n_compounds,)
    for i in range(mixture.n_compounds):
        distance = hellinger(
            frame,
            (
                mixture.detail_weights[i],
                mixture.detail_means[i],
                mixture.all_detail_covariances()[i],
            ),
            (np.ones(1), mixture.means[i : i + 1], mixture.covariances[i : i + 1]),
        )
        weight = mixture.counts[i] / mixture.counts.sum()
        np.testing.assert_allclose(got[i], np.sqrt(weight) * distance, rtol=1e-9)


def affine_maps(d):
    """Changes of coordinates, matrix and shift, under which the distance must stay."""
    rng = np.random.default_rng(d)
    maps = {
        "shift": (np.eye(d), rng.normal(size=d) * 10.0),
        "units": (np.diag(10.0 ** rng.integers(-6, 7, size=d)), np.zeros(d)),
        "signs": (np.diag(np.where(np.arange(d) % 2, 1.0, -1.0)), np.zeros(d)),
        "order": (np.eye(d)[::-1].copy(), np.zeros(d)),
    }
    everything = np.eye(d)
    for matrix, _ in maps.values():
        everything = everything @ matrix
    return maps | {"all of them": (everything, rng.normal(size=d))}


@pytest.mark.parametrize("change", ["shift", "units", "signs", "order", "all of them"])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_unchanged_by_units_and_order_of_features(d, covariance_type, change):
    """Shifts, units, signs and order of the features; in 1-d these are all affine maps.

    A rotation in 2-d or more, which no user does to single features, turns the sigma points
    against the components: they lie along the columns of the symmetric roots, and Diracs have
    the coordinate axes. The true distance stays, its unscented estimate changes a little.
    """
    structure = STRUCTURES[covariance_type]
    mixtures = []
    for seed in (0, 1):
        weights, means, covs = twins.random_components(
            d, covariance_type, "mixed", all_covs=True, seed=seed
        )
        mixtures.append((weights, means, covs.reshape(-1, *structure.shape(d))))
    rng = np.random.default_rng(5)
    if covariance_type == "full":
        root = rng.normal(size=(d, d))
        H = root @ root.T + 0.5 * np.eye(d)
    else:
        H = rng.uniform(0.5, 2.0, size=d)

    def distance(mixtures, H):
        holder = Mixture.empty(d, structure)._replace(
            counts=mixtures[0][0], means=mixtures[0][1], covariances=mixtures[0][2]
        )
        return hellinger(twins.kernel_frame(holder, covariance_type, H).frame, *mixtures)

    matrix, shift = affine_maps(d)[change]

    def mapped(covariances):
        if covariance_type == "full":
            return matrix @ covariances @ matrix.T
        return covariances @ (matrix * matrix).T  # a signed, scaled permutation

    expected = distance(mixtures, H)
    assert 0.05 < expected < 0.99
    moved = [(w, means @ matrix.T + shift, mapped(c)) for w, means, c in mixtures]
    np.testing.assert_allclose(distance(moved, mapped(H)), expected, rtol=1e-9)
