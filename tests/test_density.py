"""What OnlineKDEDensity promises of its attributes and scores."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.neighbors import KernelDensity

from marks import quick
from skokde import OnlineKDEDensity
from skokde._engine.kde import BOX, FEW_TERMS, in_boxes

both_structures = pytest.mark.parametrize("covariance_type", ["full", "diag"])

ATTRIBUTES = ["weights_", "means_", "covariances_", "n_components_", "bandwidth_"]


def correlated(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) * 10.0 ** np.arange(d) - 3.0


def covariance_of(X, covariance_type, weights=None):
    covariance = np.atleast_2d(np.cov(X.T, bias=True, aweights=weights))
    return covariance if covariance_type == "full" else np.diag(covariance)


def log_density_by_scipy(density, X):
    weights, means, covariances = density.distribution().arrays
    terms = [
        np.log(weight) + multivariate_normal.logpdf(X, mean, covariance)
        for weight, mean, covariance in zip(weights, means, covariances, strict=True)
    ]
    return logsumexp(terms, axis=0)


# ------------------------------------------------------------------------------------ attributes


@pytest.mark.parametrize("n", [1, 20, 400])
@both_structures
def test_attributes(covariance_type, n):
    X = correlated(n)
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    k = density.n_components_
    assert type(k) is int
    shape = (3, 3) if covariance_type == "full" else (3,)
    assert density.weights_.shape == (k,)
    assert density.means_.shape == (k, 3)
    assert density.covariances_.shape == (k, *shape)
    assert density.bandwidth_.shape == shape
    for name in ("weights_", "means_", "covariances_", "bandwidth_"):
        assert getattr(density, name).dtype == np.float64
    assert density.weights_.sum() == pytest.approx(1.0, abs=1e-14)
    assert np.all(density.weights_ > 0.0)
    assert density.n_features_in_ == 3
    assert density.n_samples_seen_ == n
    assert isinstance(density.score(X), float)
    assert density.score_samples(X).shape == (n,)


@both_structures
def test_covariances_are_the_sample_models(covariance_type):
    X = correlated(30)
    density = OnlineKDEDensity(
        covariance_type=covariance_type, bandwidth="plugin", compression_threshold=0.08
    ).fit(X)
    assert not density.covariances_.any()  # 30 single samples
    np.testing.assert_array_equal(density.means_, X)
    density.partial_fit(correlated(300, seed=1))
    single = ~density.covariances_.reshape(density.n_components_, -1).any(axis=1)
    assert single.any()
    assert not single.all()
    kde = density.distribution().covariances
    np.testing.assert_array_equal(kde, density.covariances_ + density.bandwidth_)
    if covariance_type == "full":
        for covariance in density.covariances_:
            np.testing.assert_allclose(covariance, covariance.T, rtol=1e-12)
            scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
            assert np.linalg.eigvalsh(covariance / scale / scale[:, None])[0] > -1e-10
    else:
        assert np.all(density.covariances_ >= 0.0)


@pytest.mark.parametrize("name", [*ATTRIBUTES, "n_samples_seen_", "n_features_in_"])
def test_attributes_are_absent_before_fitting(name):
    density = OnlineKDEDensity()
    assert not hasattr(density, name)
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(density, name)
    assert not hasattr(clone(OnlineKDEDensity().fit([[0.0], [1.0]])), name)


def test_attributes_can_not_be_set():
    density = OnlineKDEDensity().fit([[0.0], [1.0]])
    for name in ATTRIBUTES:
        with pytest.raises(AttributeError):
            setattr(density, name, 1)


def test_repetitions_raise_the_count():
    density = OnlineKDEDensity().fit([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 2.0]])
    np.testing.assert_array_equal(density.means_, [[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(density.weights_, [0.75, 0.25])
    density.partial_fit([[3.0, 4.0]] * 5, sample_weight=[0.5] * 4 + [2.0])
    np.testing.assert_array_equal(density.weights_, [0.375, 0.625])
    assert density.n_components_ == 2
    assert density.n_samples_seen_ == 8.0
    density.partial_fit([[-0.0, 0.0], [0.0, -0.0]])  # the two zeros are equal
    assert density.n_components_ == 3


# ------------------------------------------------------------------------------------- bandwidth


def scale_of(bandwidth, d, n):
    """Beta of the rules that have a closed form."""
    reference = (4.0 / ((d + 2.0) * n)) ** (1.0 / (d + 4.0))
    if bandwidth == "silverman":
        return reference
    if bandwidth == "scott":
        return n ** (-1.0 / (d + 4.0))
    return bandwidth * reference


@pytest.mark.parametrize("n", [25, 400], ids=["before compression", "after"])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("bandwidth", ["silverman", "scott", 0.3, 2])
@both_structures
def test_bandwidth_by_its_formula(covariance_type, bandwidth, d, n):
    X = correlated(n, d)
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth).fit(X)
    expected = scale_of(bandwidth, d, n) ** 2 * covariance_of(X, covariance_type)
    np.testing.assert_allclose(density.bandwidth_, expected, rtol=1e-8)


@pytest.mark.parametrize("bandwidth", ["silverman", "scott", 0.3])
@both_structures
def test_bandwidth_counts_weights_and_forgetting(covariance_type, bandwidth):
    X = correlated(25)
    weights = np.random.default_rng(1).random(25) + 0.1
    parameters = {"covariance_type": covariance_type, "bandwidth": bandwidth}
    density = OnlineKDEDensity(**parameters).fit(X, sample_weight=weights)
    expected = scale_of(bandwidth, 3, weights.sum()) ** 2
    expected = expected * covariance_of(X, covariance_type, weights)
    np.testing.assert_allclose(density.bandwidth_, expected, rtol=1e-8)
    density = OnlineKDEDensity(**parameters, forgetting_factor=0.9).fit(X)
    counts = 0.9 ** np.arange(24.0, -1.0, -1.0)
    expected = scale_of(bandwidth, 3, counts.sum()) ** 2
    expected = expected * covariance_of(X, covariance_type, counts)
    np.testing.assert_allclose(density.bandwidth_, expected, rtol=1e-8)


@pytest.mark.parametrize("rule", ["plugin", "okde"])
@pytest.mark.parametrize("n", [25, 400])
@both_structures
def test_plug_in_bandwidths_have_the_shape_of_the_data(covariance_type, n, rule):
    X = correlated(n, 2)
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=rule).fit(X)
    ratios = density.bandwidth_ / covariance_of(X, covariance_type)
    np.testing.assert_allclose(ratios, ratios.flat[0], rtol=1e-8)
    # Near the normal-reference scale for normal data.
    assert 0.3 < np.sqrt(ratios.flat[0]) / scale_of("silverman", 2, n) < 1.5


def test_the_two_plug_in_rules():
    density = OnlineKDEDensity(bandwidth="plugin").fit(correlated(25, 1))
    other = OnlineKDEDensity(bandwidth="okde").fit(correlated(25, 1))
    np.testing.assert_allclose(density.bandwidth_, other.bandwidth_, rtol=1e-10)
    # What the paper prints is wrong in more dimensions, on the small side.
    density = OnlineKDEDensity(bandwidth="plugin").fit(correlated(25, 3))
    other = OnlineKDEDensity(bandwidth="okde").fit(correlated(25, 3))
    assert np.all(np.diag(other.bandwidth_) < np.diag(density.bandwidth_))


def test_plug_in_bandwidth_sees_modes():
    # For two far modes the rule takes a smaller scale than for one normal of the same covariance.
    X = np.random.default_rng(0).normal(size=(300, 1))
    X[::2] += 20.0
    plugin = OnlineKDEDensity(bandwidth="plugin").fit(X).bandwidth_
    silverman = OnlineKDEDensity(bandwidth="silverman").fit(X).bandwidth_
    assert plugin[0, 0] < 0.1 * silverman[0, 0]


H2 = np.array([[2.0, 0.6], [0.6, 0.5]])


@pytest.mark.parametrize("n", [1, 25, 300])
@pytest.mark.parametrize(
    ("covariance_type", "given", "expected"),
    [
        ("full", H2, H2),
        ("full", [2.0, 1e-8], np.diag([2.0, 1e-8])),
        ("full", H2 * 1e-200, H2 * 1e-200),
        ("diag", [2.0, 1e-8], [2.0, 1e-8]),
        ("diag", (3e100, 1e-100), [3e100, 1e-100]),
    ],
    ids=["matrix", "variances of full", "tiny matrix", "variances", "wide range"],
)
def test_bandwidth_arrays_are_taken_as_given(covariance_type, given, expected, n):
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=given)
    density.fit(correlated(n, 2))
    np.testing.assert_allclose(density.bandwidth_, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rule", ["plugin", "okde", "silverman", 0.2, [3.0, 4.0]], ids=str)
@both_structures
def test_bandwidth_set_later_takes_effect_at_the_next_score(covariance_type, rule):
    X = correlated(25, 2)
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    before = density.score_samples(X)
    density.set_params(bandwidth=rule)
    expected = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=rule).fit(X)
    np.testing.assert_array_equal(density.score_samples(X), expected.score_samples(X))
    np.testing.assert_array_equal(density.bandwidth_, expected.bandwidth_)
    density.set_params(bandwidth="predictive")
    np.testing.assert_array_equal(density.score_samples(X), before)


@pytest.mark.parametrize("given", [[1.0, 2.0], [[1.0, 0.0], [0.0, 2.0]]], ids=str)
def test_bandwidth_changed_in_place_takes_effect(given):
    X = correlated(25, 2)
    bandwidth = np.array(given)
    density = OnlineKDEDensity(bandwidth=bandwidth).fit(X)
    density.score_samples(X)
    bandwidth *= 7.0
    np.testing.assert_allclose(density.bandwidth_, np.diag([7.0, 14.0]))
    expected = OnlineKDEDensity(bandwidth=[7.0, 14.0]).fit(X)
    np.testing.assert_array_equal(density.score_samples(X), expected.score_samples(X))


@pytest.mark.parametrize(
    "change",
    [
        {"bandwidth": 0.1},
        {"compression_threshold": 0.6},
        {"forgetting_factor": 0.5},
        {"max_components": 5},
    ],
    ids=str,
)
def test_parameters_set_later_take_effect_at_the_next_partial_fit(change, state_of):
    X, more = correlated(30, 2), correlated(60, 2, seed=1)
    changed = OnlineKDEDensity().fit(X).set_params(**change).partial_fit(more)
    assert state_of(changed) != state_of(OnlineKDEDensity().fit(X).partial_fit(more))
    if change.keys() <= {"bandwidth", "compression_threshold"}:  # not used before a compression
        assert state_of(changed) == state_of(OnlineKDEDensity(**change).fit(np.vstack([X, more])))


# ---------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize(
    "bandwidth", ["predictive", "plugin", "okde", 0.5, [9.0, 4.0, 50.0]], ids=str
)
@pytest.mark.parametrize("n", [1, 25, 400])
@both_structures
def test_mixture_reproduces_the_scores(covariance_type, n, bandwidth):
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth)
    density.fit(correlated(n))
    X = correlated(70, seed=1)
    expected = log_density_by_scipy(density, X)
    np.testing.assert_allclose(density.score_samples(X), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("d", [1, 4])
@both_structures
def test_equals_scikit_learns_kernel_density_before_compression(covariance_type, d):
    rng = np.random.default_rng(0)
    X, weights, rows = rng.normal(size=(30, d)), rng.random(30) + 0.1, rng.normal(size=(50, d))
    reference = KernelDensity(bandwidth=0.7).fit(X, sample_weight=weights)
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=np.full(d, 0.49))
    density.fit(X, sample_weight=weights)
    expected = reference.score_samples(rows)
    np.testing.assert_allclose(density.score_samples(rows), expected, rtol=1e-10, atol=1e-10)


def test_score_is_the_mean():
    X = correlated(100)
    density = OnlineKDEDensity().fit(X)
    assert density.score(X) == pytest.approx(density.score_samples(X).mean(), rel=1e-15)
    assert density.score(X[:1]) == density.score_samples(X[:1])[0]


def test_scores_do_not_depend_on_the_other_rows():
    density = OnlineKDEDensity().fit(correlated(200))
    X = correlated(150, seed=2)
    whole = density.score_samples(X)
    np.testing.assert_array_equal(density.score_samples(X[::-1])[::-1], whole)
    single = np.concatenate([density.score_samples(row[None]) for row in X])
    np.testing.assert_allclose(single, whole, rtol=1e-12)


@pytest.mark.parametrize("n", [2, 400])
@both_structures
def test_far_rows_have_a_finite_log_density(covariance_type, n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    distances = 10.0 ** np.array([1, 3, 6, 8, 9, 10, 12, 20, 60, 140])
    scores = density.score_samples(np.column_stack([distances, -distances]))
    assert np.isfinite(scores).all()
    assert np.all(np.diff(scores) < 0.0)
    # A parabola, as of one Gaussian, so far out.
    np.testing.assert_allclose(
        np.diff(np.log10(-scores[2:])), 2 * np.diff(np.log10(distances[2:])), rtol=1e-3
    )


def test_rows_whose_distance_overflows():
    density = OnlineKDEDensity().fit(1e-30 * np.random.default_rng(0).normal(size=(50, 2)))
    scores = density.score_samples([[1e200, 0.0], [-1e308, 1e308]])
    np.testing.assert_array_equal(scores, [-np.inf, -np.inf])


# ------------------------------------------------------------------------------- little to go by


def substitute(constant):
    """The documented spread of a feature that is constant."""
    return 0.1 * abs(constant) if constant else 0.1


CONSTANTS = [0.0, 0.1, -7.3, 1e-12, 1e12]


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("times", [1, 2, 50])
@both_structures
def test_one_location(covariance_type, times, constant):
    X = np.full((times, 1), constant)
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth="silverman").fit(X)
    assert density.n_components_ == 1
    assert density.weights_.tolist() == [1.0]
    assert not density.covariances_.any()
    expected = (scale_of("silverman", 1, times) * substitute(constant)) ** 2
    np.testing.assert_allclose(density.bandwidth_.ravel(), expected)
    peak, left, right = density.score_samples(
        np.array([[0.0], [-1.0], [1.0]]) * np.sqrt(expected) + constant
    )
    assert peak == pytest.approx(-0.5 * np.log(2.0 * np.pi * expected))
    assert left == pytest.approx(peak - 0.5, rel=1e-4)
    assert right == pytest.approx(left, rel=1e-4)


@pytest.mark.parametrize("bandwidth", ["predictive", "plugin", "okde", "scott", 0.5])
@pytest.mark.parametrize("rows", [1, 2, 3])
@both_structures
def test_few_samples_are_enough(covariance_type, rows, bandwidth):
    X = np.array([[1.0, 5.0, 0.0], [1.0, 5.0, 0.0], [2.0, 4.0, 0.0]])[:rows]
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth).fit(X)
    assert density.n_components_ == max(1, rows - 1)
    scores = density.score_samples([[1.0, 5.0, 0.0], [1.5, 4.5, 0.0], [2.0, 9.0, 1.0]])
    assert np.isfinite(scores).all()
    assert scores[0] > scores[2]
    assert np.isfinite(density.bandwidth_).all()
    density.partial_fit(correlated(100))
    assert np.isfinite(density.score(correlated(50, seed=1)))


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@pytest.mark.parametrize("forgetting_factor", [1.0, 0.95])
@pytest.mark.parametrize("n", [20, 600], ids=["before compression", "after"])
@pytest.mark.parametrize("constant", CONSTANTS)
@both_structures
def test_constant_feature(covariance_type, constant, n, forgetting_factor):
    # Rounding in the moments of, say, 600 times 0.1 must not be taken for a spread.
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=n), np.full(n, constant), rng.normal(size=n)])
    density = OnlineKDEDensity(
        covariance_type=covariance_type, bandwidth="scott", forgetting_factor=forgetting_factor
    )
    density.fit(X)
    if n == 600:
        assert density.n_components_ < 200
    counts = forgetting_factor ** np.arange(n - 1.0, -1.0, -1.0)
    scale = scale_of("scott", 3, counts.sum())
    H = density.bandwidth_ if covariance_type == "full" else np.diag(density.bandwidth_)
    assert H[1, 1] == pytest.approx((scale * substitute(constant)) ** 2)
    correlations = H[1] / np.sqrt(H[1, 1] * np.diag(H))
    np.testing.assert_allclose(correlations, [0.0, 1.0, 0.0], atol=1e-12)
    inner = np.cov(X[:, [0, 2]].T, bias=True, aweights=counts)
    np.testing.assert_allclose(H[0, 0], scale**2 * inner[0, 0], rtol=1e-8)
    assert np.isfinite(density.score_samples(X)).all()


@both_structures
def test_constant_feature_that_varies_later(covariance_type):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    X[:200, 1] = 5.0
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth="silverman").fit(X)
    expected = scale_of("silverman", 2, 400) ** 2 * covariance_of(X, covariance_type)
    np.testing.assert_allclose(density.bandwidth_, expected, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@pytest.mark.parametrize("seed", [0, 3, 4, 5])
@pytest.mark.parametrize("constant", [0.1, 5.0])
@both_structures
def test_feature_that_sticks_and_has_forgotten_all_else(covariance_type, constant, seed):
    # A sensor that has failed: what varied before has a weight of less than 1e-300, and rounding
    # in the mean must not be taken for a spread.
    density = OnlineKDEDensity(
        covariance_type=covariance_type, bandwidth="scott", forgetting_factor=0.9
    )
    density.fit(np.random.default_rng(seed).normal(size=(10, 1)))
    density.partial_fit(np.full((8000, 1), constant))
    expected = (scale_of("scott", 1, 10.0) * substitute(constant)) ** 2
    np.testing.assert_allclose(density.bandwidth_.ravel(), expected, rtol=1e-6)
    assert density.score_samples([[1.01 * constant]])[0] > -100.0


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@both_structures
def test_linearly_dependent_features(covariance_type):
    x = np.random.default_rng(0).normal(size=(300, 1))
    X = np.hstack([x, 2.0 * x, -x])
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    scores = density.score_samples(np.vstack([X, X + np.array([0.0, 1.0, 0.0])]))
    assert np.isfinite(scores).all()
    assert scores[:300].mean() > scores[300:].mean()
    if covariance_type == "full":
        assert np.linalg.eigvalsh(density.bandwidth_)[0] > 0.0


# ------------------------------------------------------------------------------------ estimation


def two_modes(n, seed):
    """Rows of a known mixture, and its log-density."""
    rng = np.random.default_rng(seed)
    first = multivariate_normal([0.0, 0.0], [[1.0, 0.7], [0.7, 1.0]])
    second = multivariate_normal([4.0, -1.0], [[0.3, 0.0], [0.0, 2.0]])
    of_first = rng.random(n) < 0.6
    X = np.where(
        of_first[:, None],
        first.rvs(n, random_state=rng).reshape(n, 2),
        second.rvs(n, random_state=rng).reshape(n, 2),
    )
    true = np.logaddexp(np.log(0.6) + first.logpdf(X), np.log(0.4) + second.logpdf(X))
    return X, true


@pytest.mark.parametrize("bandwidth", quick(["predictive", "plugin", "okde", "scott"]))
@both_structures
def test_more_data_come_nearer_to_the_truth(covariance_type, bandwidth):
    X, true = two_modes(4000, seed=100)
    parameters = {"covariance_type": covariance_type, "bandwidth": bandwidth}

    def divergence(n):
        gaps = [
            true.mean() - OnlineKDEDensity(**parameters).fit(two_modes(n, seed)[0]).score(X)
            for seed in range(4)
        ]
        return np.mean(gaps)

    few, many = divergence(100), divergence(3000)
    assert 0.0 < many < 0.7 * few
    assert many < 0.2


def test_a_lower_threshold_keeps_more():
    X, _ = two_modes(1000, seed=0)
    density = OnlineKDEDensity(compression_threshold=0.01).fit(X)
    coarse = OnlineKDEDensity(compression_threshold=0.3).fit(X)
    assert coarse.n_components_ < density.n_components_ < 1000


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_extreme_thresholds(threshold):
    X, _ = two_modes(200, seed=0)
    density = OnlineKDEDensity(compression_threshold=threshold).fit(X)
    if threshold == 0.0:
        assert density.n_components_ == 200
        assert not density.covariances_.any()
    else:  # all that there was at the last compression is one Gaussian
        assert density.n_components_ <= 30
        assert density.covariances_[0].any()


@both_structures
def test_forgetting_follows_a_drift(covariance_type):
    # Prequential: each block is scored before it is learned.
    rng = np.random.default_rng(0)
    forgetful = OnlineKDEDensity(covariance_type=covariance_type, forgetting_factor=0.98)
    faithful = OnlineKDEDensity(covariance_type=covariance_type)
    scores = []
    for t in range(60):
        X = rng.normal([0.2 * t, -0.1 * t], 1.0, size=(50, 2))
        if t:
            scores.append([forgetful.score(X), faithful.score(X)])
        forgetful.partial_fit(X)
        faithful.partial_fit(X)
    first, second = np.mean(scores[20:], axis=0)
    assert first > second + 0.5
    # While nothing drifts, forgetting only costs.
    X = rng.normal(size=(3000, 2))
    forgetful.fit(X[:2000])
    faithful.fit(X[:2000])
    assert faithful.score(X[2000:]) > forgetful.score(X[2000:])


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_what_a_heavy_row_makes_forgotten_has_finite_gaussians(covariance_type):
    X = np.random.default_rng(0).normal(size=(32, 2))
    density = OnlineKDEDensity(covariance_type=covariance_type).fit(X[:31])
    density.set_params(forgetting_factor=0.97)
    density.partial_fit(X[31:], sample_weight=[1e6])  # 0.97 to that power is zero
    for array in density.distribution().arrays:
        assert np.isfinite(array).all()


@pytest.mark.slow
def test_forgetting_loses_an_old_mode():
    rng = np.random.default_rng(0)
    density = OnlineKDEDensity(forgetting_factor=0.99)
    density.fit(rng.normal(0.0, 1.0, size=(500, 1)))
    density.partial_fit(rng.normal(50.0, 1.0, size=(2000, 1)))
    assert density.weights_[density.means_[:, 0] < 25.0].sum() < 1e-8
    # There are but the tails, which are wide by default, since outliers may come.
    for bandwidth, nats in (("scott", 15.0), ("predictive", 10.0)):
        scores = density.set_params(bandwidth=bandwidth).score_samples([[0.0], [50.0]])
        assert scores[0] < scores[1] - nats
    # Far below any weight that matters it is dropped.
    density.partial_fit(rng.normal(50.0, 1.0, size=(40000, 1)))
    assert density.means_.min() > 25.0
    density.set_params(bandwidth="scott")
    assert density.bandwidth_[0, 0] < 1.0


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@pytest.mark.parametrize("bandwidth", ["predictive", "plugin"])
@pytest.mark.parametrize("factor", quick([1e-300, 0.9, 0.1, 1e-20, 5e-324], 2))
@both_structures
def test_extreme_forgetting_is_never_nan(covariance_type, factor, bandwidth):
    rng = np.random.default_rng(0)
    density = OnlineKDEDensity(
        covariance_type=covariance_type, forgetting_factor=factor, bandwidth=bandwidth
    )
    for n in (1, 1, 3, 40, 5000):
        X = rng.normal(size=(n, 2))
        density.partial_fit(X)
        scores = density.score_samples(rng.normal(size=(20, 2)))
        assert not np.isnan(scores).any()
        assert np.all(scores < np.inf)
        assert np.isfinite(density.score_samples(X[-1:])).all()
        assert density.weights_.sum() == pytest.approx(1.0)
        assert np.isfinite(density.bandwidth_).all()
        assert density.n_components_ <= 100


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")  # no scale is so small
@pytest.mark.parametrize("weight", [1e-290, 1e-100, 1e-10, 1e10, 1e140])
@pytest.mark.parametrize("bandwidth", ["predictive", "plugin", "okde", "silverman", "scott"])
@both_structures
def test_extreme_weights_are_never_nan(covariance_type, bandwidth, weight):
    X = correlated(50, 2)
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth)
    density.fit(X, sample_weight=np.full(50, weight))
    assert np.isfinite(density.score_samples(X)).all()
    density.partial_fit(X)
    assert np.isfinite(density.score_samples(X)).all()
    assert density.weights_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("unit", [1e-140, 1e-30, 1e30, 1e140])
@both_structures
def test_extreme_units(covariance_type, unit):
    X = correlated(200, 2)
    plain = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    scaled = OnlineKDEDensity(covariance_type=covariance_type).fit(X * unit)
    assert scaled.n_components_ == plain.n_components_
    expected = plain.score_samples(X) - 2.0 * np.log(unit)
    np.testing.assert_allclose(scaled.score_samples(X * unit), expected, rtol=1e-8)


@pytest.mark.parametrize("n", [0, 1, 64, 65, 1000])
def test_boxes_hold_rows_that_are_close(n):
    rows = np.random.default_rng(0).normal(size=(n, 3)) * [1.0, 1e-9, 0.0]
    order = in_boxes(rows, FEW_TERMS)
    assert sorted(order.tolist()) == list(range(n))
    np.testing.assert_array_equal(in_boxes(rows, FEW_TERMS - 1), range(n))
    blocks = np.split(rows[order], range(BOX, n, BOX))
    spans = [np.ptp(block, axis=0)[:2].prod() for block in blocks if len(block) == BOX]
    if n == 1000:
        assert len(spans) == n // BOX
        assert np.mean(spans) < 0.15 * np.ptp(rows, axis=0)[:2].prod()


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_boxes_of_extreme_rows(scale):
    rows = scale * np.random.default_rng(0).normal(size=(200, 2))
    assert sorted(in_boxes(rows, FEW_TERMS).tolist()) == list(range(200))
