"""The bandwidth rules and the roughness functional (paper, Section 2.2)."""

import numpy as np
import pytest
from skokde._engine._goldberger import widest_gap
from skokde._engine._roughness import roughness

import twins
from skokde import OnlineKDEDensity
from skokde._engine import bandwidth as bandwidth_module
from skokde._engine.bandwidth import normal_reference, optimal_scale
from skokde._engine.covariance import EIGENVALUE_FLOOR, EIGENVALUE_SHARE, STRUCTURES
from skokde._engine.whitening import whiten

pytestmark = pytest.mark.thorough

# ----------------------------------------------------------------- the roughness functional


def functional(weights, means, covs, pilot, *, printed):
    """R itself: the compiled function leaves a factor out."""
    d = means.shape[1]
    return roughness(weights, means, covs, pilot, printed) / (2.0 * np.pi * pilot) ** (d / 2)


def integral(weights, means, covs, pilot, step):
    """int tr^2(H_p(x)) dx of the pilot density, by the trapezoidal rule.

    Pairs meet under A^-1 = G + S_i + S_j, so each component itself has S_i + G / 2.
    """
    d = means.shape[1]
    covariances = twins.matrices(covs, d, len(means)) + 0.5 * pilot * np.eye(d)
    points, cell = twins.grid_over([(weights, means, covariances)], step)
    trace = np.zeros(len(points))
    for w, mean, covariance in zip(weights, means, covariances, strict=True):
        # The Hessian of a Gaussian is (A x x^T A - A) times its density.
        precision = np.linalg.inv(covariance)
        ax = (points - mean) @ precision
        density = np.exp(twins.log_pdf(points, mean, covariance))
        trace += w * density * (np.sum(ax * ax, axis=1) - np.trace(precision))
    return cell * np.sum(trace**2)


@pytest.mark.parametrize("kind", ["diracs", "compounds", "mixed"])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize(("d", "pilot"), [(1, 0.05), (1, 0.6), (2, 0.3), (2, 1.5), (3, 1.2)])
def test_right_form_is_the_integral(d, pilot, covariance_type, kind):
    weights, means, covs = twins.random_components(d, covariance_type, kind, 4, seed=1)
    means *= 0.7  # close enough to meet
    # Fine enough for the square of second derivatives of the narrowest component.
    step = 0.45 * np.sqrt(0.5 * pilot)
    expected = integral(weights, means, covs, pilot, step)
    np.testing.assert_allclose(
        functional(weights, means, covs, pilot, printed=False), expected, rtol=1e-8
    )


@pytest.mark.parametrize("kind", ["diracs", "compounds", "mixed"])
def test_both_forms_are_one_in_one_dimension(kind):
    arrays = twins.random_components(1, "full", kind)
    printed, right = (functional(*arrays, 0.1, printed=p) for p in (True, False))
    np.testing.assert_allclose(printed, right, rtol=1e-12)


@pytest.mark.parametrize("kind", ["compounds", "mixed"])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_both_forms_are_one_where_means_coincide(d, covariance_type, kind):
    weights, means, covs = twins.random_components(d, covariance_type, kind)
    means[:] = means[0]
    printed, right = (functional(weights, means, covs, 0.3, printed=p) for p in (True, False))
    np.testing.assert_allclose(printed, right, rtol=1e-12)


@pytest.mark.parametrize(("d", "excess"), [(2, 1.02), (3, 1.05)])
def test_printed_form_is_too_large_for_samples_of_a_gaussian(d, excess):
    # Section 3 of the design: 0.1407 for 0.1315 in 2-d, 0.404 for 0.300 in 3-d.
    n = 40
    means = np.random.default_rng(d).normal(size=(n, d))
    weights, covs = np.full(n, 1.0 / n), np.empty((0, d * d))
    pilot = normal_reference(d, n) ** 2
    printed, right = (functional(weights, means, covs, pilot, printed=p) for p in (True, False))
    expected = integral(weights, means, covs, pilot, 0.5 * np.sqrt(0.5 * pilot))
    np.testing.assert_allclose(right, expected, rtol=1e-7)
    assert printed > excess * expected


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_roughness_of_the_standard_gaussian(d):
    # A compound that the pilot G / 2 completes to N(0, I): R = d (d + 2) / (4 (4 pi)^(d / 2)).
    pilot = 0.4
    covs = (1.0 - 0.5 * pilot) * np.eye(d).reshape(1, d * d)
    got = functional(np.ones(1), np.zeros((1, d)), covs, pilot, printed=False)
    np.testing.assert_allclose(got, d * (d + 2) / (4.0 * (4.0 * np.pi) ** (d / 2)), rtol=1e-13)


# -------------------------------------------------------------------------------- the rules


def standard_mixture(X, covariance_type="full"):
    return twins.learned_mixture(X, covariance_type, threshold=0.0)


@pytest.mark.parametrize("printed", [True, False], ids=["okde", "plugin"])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_plugin_scale_follows_the_papers_equations(d, covariance_type, printed):
    """Eqs. 4 to 6, in whitened coordinates made here."""
    X = twins.clumps(d, 25, seed=4)
    covariance = np.cov(X.T, ddof=0).reshape(d, d)
    if covariance_type == "diag":
        covariance = np.diag(np.diag(covariance))
    # Any root whitens: R does not change with a rotation.
    white = (X - X.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    n = len(X)
    pilot = (4.0 / ((d + 2) * n)) ** (2.0 / (d + 4))
    R = twins.roughness(np.full(n, 1.0 / n), white, np.empty((0, d * d)), pilot, printed)
    R /= (2.0 * np.pi * pilot) ** (d / 2)
    # The paper has d on the wrong side, see the next test.
    beta = ((d if printed else 1.0 / d) * (4.0 * np.pi) ** (d / 2) * n * R) ** (-1.0 / (d + 4))
    mixture, structure = standard_mixture(X, covariance_type), STRUCTURES[covariance_type]
    got = optimal_scale(mixture, whiten(mixture, structure), printed=printed)
    np.testing.assert_allclose(got, beta, rtol=1e-10)
    H = OnlineKDEDensity(
        covariance_type=covariance_type,
        compression_threshold=0.0,
        bandwidth="okde" if printed else "plugin",
    )
    H = twins.full_covariances(H.fit(X).bandwidth_[None])[0]
    np.testing.assert_allclose(H, beta**2 * covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_plugin_minimises_the_asymptotic_error(d):
    """AMISE(h) = R(p) h^4 / 4 + (4 pi)^(-d/2) / (n h^d), the textbook one, by search."""
    X = twins.clumps(d, 28, seed=2)
    n = len(X)
    covariance = np.cov(X.T, ddof=0).reshape(d, d)
    white = (X - X.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    pilot = (4.0 / ((d + 2) * n)) ** (2.0 / (d + 4))
    R = twins.roughness(np.full(n, 1.0 / n), white, np.empty((0, d * d)), pilot, False)
    R /= (2.0 * np.pi * pilot) ** (d / 2)
    h = np.exp(np.linspace(np.log(0.01), np.log(2.0), 20001))
    best = h[np.argmin(0.25 * R * h**4 + (4.0 * np.pi) ** (-d / 2) / (n * h**d))]
    H = OnlineKDEDensity(bandwidth="plugin").fit(X).bandwidth_
    np.testing.assert_allclose(H, best**2 * covariance, rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize(
    ("bandwidth", "scale"),
    [
        ("silverman", lambda n, d: (4.0 / ((d + 2) * n)) ** (1.0 / (d + 4))),
        ("scott", lambda n, d: n ** (-1.0 / (d + 4))),
        (1.0, lambda n, d: (4.0 / ((d + 2) * n)) ** (1.0 / (d + 4))),
        (0.37, lambda n, d: 0.37 * (4.0 / ((d + 2) * n)) ** (1.0 / (d + 4))),
    ],
    ids=["silverman", "scott", "float 1", "float"],
)
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("d", [1, 3])
def test_reference_rules(d, covariance_type, bandwidth, scale):
    X = twins.clumps(d, 200, seed=3)
    model = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth).fit(X)
    assert model.n_components_ < 200
    # Compression has kept the covariance that the rules are about.
    H = twins.full_covariances(model.bandwidth_[None])[0]
    expected = scale(200, d) ** 2 * np.cov(X.T, ddof=0).reshape(d, d)
    if covariance_type == "diag":
        expected = np.diag(np.diag(expected))
    np.testing.assert_allclose(H, expected, rtol=1e-8, atol=1e-12)


def test_weights_count_as_samples():
    X = twins.clumps(2, 12)
    for rule in ("okde", "plugin", "silverman", "scott"):
        once = OnlineKDEDensity(bandwidth=rule).fit(X).bandwidth_
        thrice = OnlineKDEDensity(bandwidth=rule).fit(X, sample_weight=np.full(12, 3.0)).bandwidth_
        repeated = OnlineKDEDensity(bandwidth=rule).fit(np.repeat(X, 3, axis=0)).bandwidth_
        np.testing.assert_allclose(thrice, repeated, rtol=1e-12)
        assert np.all(np.linalg.eigvalsh(once - thrice) > 0.0)


@pytest.mark.parametrize(
    ("covariance_type", "bandwidth", "expected"),
    [
        ("full", [[4.0, 1.0], [1.0, 9.0]], [[4.0, 1.0], [1.0, 9.0]]),
        ("full", [4.0, 9.0], [[4.0, 0.0], [0.0, 9.0]]),
        ("diag", [4.0, 9.0], [4.0, 9.0]),
        ("full", [[1e-12, 1e-3], [1e-3, 1e12]], [[1e-12, 1e-3], [1e-3, 1e12]]),
    ],
    ids=["matrix", "variances", "diag", "scales"],
)
@pytest.mark.parametrize("n", [1, 20, 100])
def test_array_is_the_bandwidth(n, covariance_type, bandwidth, expected):
    model = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth)
    model.fit(twins.clumps(2, n))
    np.testing.assert_allclose(model.bandwidth_, expected, rtol=1e-12)


def test_pure_function_of_the_mixture():
    mixture = twins.learned_mixture(twins.clumps(3, 100), "full")
    before = [array.copy() for array in mixture]
    first, second = (twins.kernel_frame(mixture, "full") for _ in range(2))
    np.testing.assert_array_equal(first.frame.matrix, second.frame.matrix)
    for a, b in zip(before, mixture, strict=True):
        np.testing.assert_array_equal(a, b)


# ----------------------------------------------------------------------------- the first cut


@pytest.mark.parametrize("bandwidth", ["plugin", "predictive", "array"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("d", [2, 3])
def test_first_cut_of_full_models_is_across_the_principal_axis(d, seed, bandwidth):
    X = twins.clumps(d, 200, seed=seed) @ np.diag([1.0, 30.0, 0.01][:d])
    mixture = twins.learned_mixture(X, "full", threshold=0.05)
    if bandwidth == "array":  # of the whole, in the coordinates in which H is the identity
        root = np.random.default_rng(seed).normal(size=(d, d))
        kernel = twins.kernel_frame(mixture, "full", root @ root.T + np.eye(d))
        expected = np.cov(kernel.frame.points(X).T, ddof=0)
    else:  # of the correlation, since the whole is white
        kernel = twins.kernel_frame(mixture, "full", bandwidth)
        expected = np.corrcoef(X.T)
    np.testing.assert_allclose(kernel.first_cut, twins.principal_axis(expected), rtol=1e-7)


def explained_by_halves(points, counts):
    """Variance between the halves on either side of the mean, for each feature."""
    explained = []
    for x in points.T:
        mean = np.average(x, weights=counts)
        halves = [x > mean, x <= mean]
        shares = [counts[half].sum() / counts.sum() for half in halves]
        centers = [np.average(x[half], weights=counts[half]) for half in halves]
        explained.append(sum(w * (c - mean) ** 2 for w, c in zip(shares, centers, strict=True)))
    return explained


@pytest.mark.parametrize("bandwidth", ["plugin", "predictive", "array"])
@pytest.mark.parametrize("d", [2, 5])
def test_first_cut_of_diagonal_models_is_where_it_explains_most(d, bandwidth):
    features = set()
    for seed in range(10):
        X = twins.clumps(d, 200, seed=seed)
        mixture = twins.learned_mixture(X, "diag", threshold=0.05)
        H = np.random.default_rng(seed).uniform(0.1, 3.0, size=d)
        kernel = twins.kernel_frame(mixture, "diag", H if bandwidth == "array" else bandwidth)
        explained = explained_by_halves(kernel.frame.points(mixture.means), mixture.counts)
        np.testing.assert_array_equal(kernel.first_cut, np.eye(d)[np.argmax(explained)])
        features.add(int(np.argmax(explained)))
    assert len(features) > 1


def test_first_of_features_that_explain_the_same_is_cut():
    weights, x = np.array([1.0, 2.0, 1.0, 3.0]) / 7.0, np.array([0.0, 1.0, 5.0, 6.0])

    def widest(points):
        return widest_gap(weights, points, weights @ points).tolist()

    for noise in (0.0, 1e-14, -1e-14):
        assert widest(np.column_stack([0.5 * x, x, (1.0 + noise) * x, -x])) == [0.0, 1.0, 0.0, 0.0]
    # Features that don't vary, or vary beyond the range of squares.
    assert widest(np.zeros((4, 2))) == [1.0, 0.0]
    assert widest(np.column_stack([x, 1e200 * x])) == [0.0, 1.0]


# -------------------------------------------------------------- fall-backs (paper, Section 3.4)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_scale_falls_back_to_the_models_covariance(value, monkeypatch):
    X = twins.clumps(2, 20)
    mixture = standard_mixture(X)
    monkeypatch.setattr(bandwidth_module, "roughness", lambda *args: value)
    whitening = whiten(mixture, STRUCTURES["full"])
    assert optimal_scale(mixture, whitening, printed=False) == 1.0
    H = twins.kernel_frame(mixture, "full").frame.identity_back()
    np.testing.assert_allclose(H, np.cov(X.T, ddof=0), rtol=1e-10)


def test_vanishing_scale_falls_back():
    # A few locations with astronomic counts: beta would be below 1e-9.
    mixture = standard_mixture(np.array([[0.0], [1.0], [5.0]]))
    mixture = mixture._replace(counts=mixture.counts * 1e60)
    assert optimal_scale(mixture, whiten(mixture, STRUCTURES["full"]), printed=False) == 1.0


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_constant_features_get_a_tenth_of_their_size(covariance_type):
    X = np.column_stack([np.arange(9.0), np.full(9, -40.0), np.zeros(9)])
    model = OnlineKDEDensity(covariance_type=covariance_type, bandwidth="scott").fit(X)
    H = twins.full_covariances(model.bandwidth_[None])[0]
    beta2 = 9.0 ** (-2.0 / 7.0)
    np.testing.assert_allclose(np.diag(H), beta2 * np.array([X[:, 0].var(), 16.0, 0.01]))
    assert not (H - np.diag(np.diag(H))).any()


def test_singular_covariance_is_corrected_by_a_hundredth():
    # x2 = x1: eigenvalues 2 and 0 of the correlation matrix become 2 and 0.02.
    x = np.random.default_rng(0).normal(size=25)
    X = np.column_stack([x, 1e6 * x])
    H = OnlineKDEDensity(bandwidth="scott").fit(X).bandwidth_
    s = np.array([1.0, 1e6]) * x.std()
    correlation = np.array([[1.01, 0.99], [0.99, 1.01]])
    np.testing.assert_allclose(H, 25 ** (-1.0 / 3.0) * correlation * np.outer(s, s), rtol=1e-9)


def test_only_eigenvalues_below_a_billionth_of_the_largest_are_corrected():
    # Eqs. 16 to 18; the average is over the others.
    full = STRUCTURES["full"]
    for eigenvalues, expected in [
        ([4.0, 2.0, 1.01 * 4e-9], [4.0, 2.0, 1.01 * 4e-9]),
        ([4.0, 0.99 * 4e-9, 2.0, 0.0, -1e-17], [4.0, 0.03, 2.0, 0.03, 0.03]),
    ]:
        root, inv_root, log_det = full.roots(full.spectrum(np.diag(eigenvalues)))
        np.testing.assert_allclose(root, np.diag(np.sqrt(expected)), rtol=1e-15)
        np.testing.assert_allclose(inv_root, np.diag(1.0 / np.sqrt(expected)), rtol=1e-15)
        np.testing.assert_allclose(log_det, np.log(expected).sum(), rtol=1e-15)


@pytest.mark.parametrize("share", [1.0, 0.7, 0.5, 0.0])
@pytest.mark.parametrize("n", [4, 50])
def test_any_share_of_the_correlations_has_the_spectrum_of_its_own_matrix(n, share):
    # Of four rows it has no spread in three directions of six.
    full = STRUCTURES["full"]
    matrix = np.corrcoef(np.random.default_rng(n).normal(size=(n, 6)), rowvar=False)
    spectrum = full.spectrum(matrix).with_correlations(share)
    own = full.with_less_correlation(matrix, 1.0 - share)
    expected = twins.whitening_roots(own, EIGENVALUE_FLOOR, EIGENVALUE_SHARE)
    for a, b in zip(full.roots(spectrum), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(spectrum.squared_correlations, np.square(own).sum())
    assert spectrum.is_flat == twins.has_flat_direction(own) == (n == 4 and share == 1.0)
    assert spectrum.flat_features().all() == spectrum.is_flat
