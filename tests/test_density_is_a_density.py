"""What is scored is the exact KDE while nothing has been compressed, and a density always."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import gaussian_kde, multivariate_normal, multivariate_t

import twins
from marks import quick
from skokde import OnlineKDEDensity

pytestmark = pytest.mark.thorough

both_structures = pytest.mark.parametrize("covariance_type", ["full", "diag"])
RULES = ["okde", "plugin", "silverman", "scott", 0.7]

# Ways to keep every sample: too few to compress, or nothing that may be merged.
UNCOMPRESSED = {
    "few samples": (29, {}),
    "zero threshold": (150, {"compression_threshold": 0.0}),
}
each_uncompressed = pytest.mark.parametrize("why", UNCOMPRESSED)


def rows_around(X, n=60):
    """Rows like those of X and some far from them."""
    rng = np.random.default_rng(9)
    d = X.shape[1]
    spread = X.std(axis=0) + 1e-3
    return np.concatenate([X[:20], X.mean(axis=0) + spread * 3.0 * rng.normal(size=(n, d))])


def exact_kde(points, X, weights, H):
    """Explicit sum over the samples."""
    H = twins.full_covariances(np.asarray(H)[None])[0]
    weights = weights / weights.sum()
    terms = [
        np.log(w) + multivariate_normal(x, H).logpdf(points)
        for w, x in zip(weights, X, strict=True)
    ]
    return logsumexp(terms, axis=0)


# ------------------------------------------------------------------------ while uncompressed


@pytest.mark.parametrize("bandwidth", RULES)
@each_uncompressed
@both_structures
@pytest.mark.parametrize("d", [1, 2, 4])
def test_uncompressed_model_is_the_exact_kde(d, covariance_type, why, bandwidth):
    n, parameters = UNCOMPRESSED[why]
    X = twins.clumps(d, n)
    model = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth, **parameters)
    model.fit(X)
    assert model.n_components_ == n
    points = rows_around(X)
    expected = exact_kde(points, X, np.ones(n), model.bandwidth_)
    np.testing.assert_allclose(model.score_samples(points), expected, rtol=1e-10, atol=1e-10)


@each_uncompressed
@both_structures
def test_weighted_samples(covariance_type, why):
    n, parameters = UNCOMPRESSED[why]
    X = twins.clumps(2, n)
    weights = np.random.default_rng(0).uniform(0.1, 5.0, size=n)
    model = OnlineKDEDensity(covariance_type=covariance_type, bandwidth="plugin", **parameters)
    model.fit(X, sample_weight=weights)
    points = rows_around(X)
    expected = exact_kde(points, X, weights, model.bandwidth_)
    np.testing.assert_allclose(model.score_samples(points), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("f", [0.999, 0.9, 0.2])
@each_uncompressed
@both_structures
def test_forgetting(covariance_type, why, f):
    n, parameters = UNCOMPRESSED[why]
    X = twins.clumps(2, n)
    model = OnlineKDEDensity(
        covariance_type=covariance_type, forgetting_factor=f, bandwidth="plugin", **parameters
    )
    model.fit(X)
    weights = f ** np.arange(n)[::-1]
    points = rows_around(X)
    expected = exact_kde(points, X, weights, model.bandwidth_)
    np.testing.assert_allclose(model.score_samples(points), expected, rtol=1e-10, atol=1e-10)
    # The bandwidth, too, goes by what is remembered: N is the sum of the weights.
    model.set_params(bandwidth="scott")
    H = twins.full_covariances(model.bandwidth_[None])[0]
    count, _, covariance = twins.moments(weights, X, np.zeros((n, 2, 2)))
    expected = count ** (-2.0 / 6.0) * covariance
    np.testing.assert_allclose(np.diag(H), np.diag(expected), rtol=1e-10)


def test_repeated_samples():
    X = np.repeat(twins.clumps(2, 12), [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6], axis=0)
    X = np.random.default_rng(0).permutation(X)
    model = OnlineKDEDensity(bandwidth="plugin").fit(X)
    assert model.n_components_ == 12
    points = rows_around(X)
    expected = exact_kde(points, X, np.ones(len(X)), model.bandwidth_)
    np.testing.assert_allclose(model.score_samples(points), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("bandwidth", ["silverman", "scott", 0.7])
@each_uncompressed
@pytest.mark.parametrize("d", [1, 2, 4])
def test_same_as_scipys_gaussian_kde(d, why, bandwidth, weighted):
    """With nothing taken from the model: SciPy finds the covariance and the bandwidth itself."""
    n, parameters = UNCOMPRESSED[why]
    X = twins.clumps(d, n)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=n) if weighted else np.ones(n)
    model = OnlineKDEDensity(bandwidth=bandwidth, **parameters).fit(X, sample_weight=weights)
    count = weights.sum()
    factor = (4.0 / ((d + 2) * count)) ** (1.0 / (d + 4))
    factor = {"silverman": factor, "scott": count ** (-1.0 / (d + 4)), 0.7: 0.7 * factor}[bandwidth]
    # SciPy divides by n - 1 (weighted: by 1 - sum w^2), the paper's moments by n.
    factor *= np.sqrt(1.0 - np.sum((weights / count) ** 2))
    reference = gaussian_kde(X.T, bw_method=factor, weights=weights)
    points = rows_around(X)
    np.testing.assert_allclose(
        model.score_samples(points), reference.logpdf(points.T), rtol=1e-10, atol=1e-10
    )


# --------------------------------------------------------------------------- compressed or not

PARAMETERS = {
    "uncompressed": {"compression_threshold": 0.0},
    "compressed": {"compression_threshold": 0.05},
    "hard": {"compression_threshold": 0.2, "bandwidth": "silverman"},
    "capped and forgetting": {"max_components": 12, "forgetting_factor": 0.99},
    "plugin": {"compression_threshold": 0.05, "bandwidth": "plugin"},
}
each_model = pytest.mark.parametrize("kind", PARAMETERS)


def fitted(d, covariance_type, kind, n=150):
    model = OnlineKDEDensity(covariance_type=covariance_type, **PARAMETERS[kind])
    model.fit(twins.clumps(d, n))
    assert (model.n_components_ == n) == (kind == "uncompressed")
    assert model.covariances_.any() == (kind != "uncompressed")
    return model


@each_model
@both_structures
@pytest.mark.parametrize("d", [1, 2, 5])
def test_scores_are_those_of_the_mixture_that_is_shown(d, covariance_type, kind):
    model = fitted(d, covariance_type, kind)
    points = rows_around(twins.clumps(d, 150))
    weights, means, covariances = model.distribution().arrays
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-13)
    np.testing.assert_allclose(
        model.score_samples(points),
        twins.mixture_log_pdf(points, weights, means, covariances),
        rtol=1e-10,
        atol=1e-10,
    )
    if "bandwidth" in PARAMETERS[kind]:  # else there are kernels of several widths
        np.testing.assert_array_equal(covariances, model.covariances_ + model.bandwidth_)
        np.testing.assert_array_equal(weights, model.weights_)
        np.testing.assert_array_equal(means, model.means_)


@each_model
@both_structures
@pytest.mark.parametrize("d", [1, 2])
def test_integrates_to_one(d, covariance_type, kind):
    model = fitted(d, covariance_type, kind)
    points, cells = twins.stretched_grid(*model.distribution().arrays)
    integral = cells @ np.exp(model.score_samples(points))
    np.testing.assert_allclose(integral, 1.0, rtol=1e-6)


@each_model
@both_structures
@pytest.mark.parametrize("d", quick([3, 1, 2, 4, 5]))
def test_integrates_to_one_by_importance_sampling(d, covariance_type, kind):
    model = fitted(d, covariance_type, kind)
    rng = np.random.default_rng(d)
    # Student's t around the samples, wide and narrow ones as kernels are, and around them all:
    # heavier tails than any Gaussian's, so that the ratio is bounded and the standard error can be
    # trusted.
    rows = twins.clumps(d, 150)
    whole = np.cov(rows.T, ddof=0).reshape(d, d)
    H = [
        np.linalg.inv(twins.full_covariances(c[None])[0]) for c in model.distribution().covariances
    ]
    shape = whole / 20.0 + 2.0 * np.linalg.inv(np.mean(H, axis=0))
    around = [multivariate_t(np.zeros(d), shape / narrower, df=4) for narrower in (1.0, 4.0, 16.0)]
    wide = multivariate_t(rows.mean(axis=0), whole, df=1)
    noise = [t.rvs(size=12_000, random_state=rng).reshape(-1, d) for t in around]
    others = wide.rvs(size=9_000, random_state=rng).reshape(-1, d)
    points = np.concatenate([rows[rng.integers(len(rows), size=36_000)] + np.vstack(noise), others])
    # Of all points and rows together, by the formula, which takes a sixth of the time.
    root = np.linalg.cholesky(np.linalg.inv(shape))
    squares = cdist(points @ root, rows @ root, "sqeuclidean")
    terms = [
        np.exp(t.logpdf(np.zeros(d))) * (1.0 + narrower * squares / 4.0) ** (-0.5 * (4.0 + d))
        for t, narrower in zip(around, (1.0, 4.0, 16.0), strict=True)
    ]
    np.testing.assert_allclose(terms[1][:, 0], around[1].pdf(points - rows[0]), rtol=1e-6)
    proposal = np.log(0.8 * np.mean(terms, axis=(0, 2)) + 0.2 * wide.pdf(points))
    ratios = np.exp(model.score_samples(points) - proposal)
    standard_error = ratios.std() / np.sqrt(len(ratios))

    assert standard_error < 0.03
    assert abs(ratios.mean() - 1.0) < 4.0 * standard_error


@both_structures
def test_far_from_all_samples_the_density_is_small_but_never_nan(covariance_type):
    model = OnlineKDEDensity(covariance_type=covariance_type).fit(twins.clumps(3, 100))
    far = np.array([[s, -s, s / 3.0] for s in 10.0 ** np.arange(1, 300, 7)])
    scores = model.score_samples(far)
    assert not np.isnan(scores).any()
    finite = np.isfinite(scores)
    assert np.all(np.diff(scores[finite]) < 0.0)
    assert np.all(np.isneginf(scores[~finite]))
    # -inf only where the square of a distance overflows.
    assert finite[far[:, 0] < 1e140].all()


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_score_is_the_mean_log_density(scale):
    X = twins.clumps(2, 100) * scale
    model = OnlineKDEDensity().fit(X)
    np.testing.assert_allclose(model.score(X), np.mean(model.score_samples(X)), rtol=1e-14)
