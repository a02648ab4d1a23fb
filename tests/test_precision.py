"""How exact log-densities are, against mpmath at 50 digits and beside scikit-learn.

Errors are counted in roundings: eps times the size of what a log-density is summed from.
"""

from itertools import product

import numpy as np
import pytest

from evaluation.precision import (
    BANDWIDTHS,
    CONDITIONS,
    COVARIANCES,
    DIMENSIONS,
    MP,
    exact,
    frame_reference,
    kernel_case,
    log_determinants,
    log_mixtures,
    model_arrays,
    model_case,
    reference,
    scikit_learn,
    scipy,
)

# Condition numbers of 1e12 are corrected, and the user is told so.
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning"),
]

EPS = np.finfo(float).eps

# What a sum of d terms makes, at random signs, and a few roundings of its own.
PLAIN = {d: 4.0 + np.sqrt(d) for d in DIMENSIONS}


def bound(d, covariance_type, condition):
    """Roundings that the compiled kernel may make of a log-density.

    Diagonal covariances take sums of squares, which no condition number harms. Full ones take an
    eigendecomposition, whose errors are about eps times the largest variance: by the condition
    number more than eps of the smallest. What lies along the narrowest axes, a few of the d where
    the variances are a geometric sequence, is wrong by so much.
    """
    narrow = 2.0 * condition * min(1.0, 8.0 / d) if covariance_type == "full" else 0.0
    return PLAIN[d] + narrow


# ---------------------------------------------------------------------------------- the reference


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_reference_is_right(condition):
    # mpmath's own decompositions, and the sum over components without a peak.
    weights, means, covariances = kernel_case("full", 8, condition).mixture
    points = kernel_case("full", 8, condition).points[:6]
    expected = []
    for x in exact(points):
        density = MP.mpf(0)
        for weight, mean, cov in zip(weights, exact(means), covariances, strict=True):
            cov, delta = MP.matrix(cov.tolist()), MP.matrix((x - mean).tolist())
            square = (delta.T * MP.lu_solve(cov, delta))[0]
            density += weight * MP.exp(-square / 2) / MP.sqrt(MP.det(2 * MP.pi * cov))
        expected.append(MP.log(density))
    got = reference(points, weights, means, covariances)
    assert max(abs(got.values - np.array(expected))) < 1e-30
    assert got.roundings([float(value) for value in got.values]).max() <= 0.5
    assert got.errors([float(v) * (1 + 1e-9) for v in got.values]).max() > 0.9e-9


# ------------------------------------------------------------------------------------- the kernel

each_kernel = pytest.mark.parametrize(
    ("covariance_type", "d", "condition"), list(product(COVARIANCES, DIMENSIONS, CONDITIONS))
)

# An eigendecomposition is exact in proportion to the largest variance, a Cholesky decomposition
# often better: scikit-learn has up to two digits more (170 times is the most that was seen). With
# diagonal covariances it expands the squares, and skokde is never worse.
TIMES_SCIKIT_LEARN = {"full": 1000.0, "diag": 1.0}


@each_kernel
def test_kernel(covariance_type, d, condition):
    """The kernel's own error: the reference has the same doubles."""
    case = kernel_case(covariance_type, d, condition)
    truth = case.truth()
    roundings = truth.roundings(case.scores()[:, 0])
    assert roundings.max() <= bound(d, covariance_type, condition)
    theirs = truth.roundings(scikit_learn(case.mixture, case.points)).max()
    assert roundings.max() <= TIMES_SCIKIT_LEARN[covariance_type] * theirs + PLAIN[d]


# Of many rows near the origin the squares are multiplied out, and so many roundings are allowed.
EXPANDED = 1e4


@pytest.mark.parametrize("origin", [0.0, 30.0, 1e6])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_diagonal_kernel_of_many_rows(d, origin):
    case = kernel_case("diag", d, 1.0)
    moved = case.mixture._replace(means=case.mixture.means + origin)
    case = case._replace(mixture=moved, points=case.points + origin)
    many = case._replace(points=np.tile(case.points, (12, 1)))  # more than two blocks of the loop
    assert len(many.points) > 128
    for scores in many.scores()[:, 0].reshape(12, -1):
        assert case.truth().roundings(scores).max() <= PLAIN[d] + EXPANDED


@each_kernel
def test_log_determinants(covariance_type, d, condition):
    truth, *figures = log_determinants(kernel_case(covariance_type, d, condition))
    # Each eigenvalue's relative error counts, so a few of the narrowest make all of it.
    most = PLAIN[d] * np.abs(truth.values.astype(float))
    most += 8.0 * condition * (covariance_type == "full")
    for log_dets in figures:
        errors = np.abs(exact(log_dets) - truth.values).astype(float)
        assert np.all(errors <= EPS * most)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_kernels_of_several_widths(covariance_type, d, condition):
    """The kernel's own error where one decomposition serves several widths."""
    case = kernel_case(covariance_type, d, condition)
    widths, shrinks = np.array([1.0, 2.5, 8.0]), np.array([1.0, 0.8, 0.3])
    scores = case.scores(widths, shrinks)
    for b, a, got in zip(widths, shrinks, scores.T, strict=True):
        assert case.truth(b, a).roundings(got).max() <= bound(d, covariance_type, condition)


@pytest.mark.parametrize("rest", [0.0, 1e-10])
@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("d", [8, 16])
def test_thin_covariances(d, scale, rest):
    """The kernel's own error where a covariance is of low rank but for variances below 1e-9."""
    rng = np.random.default_rng(d)
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
    variances = np.where(np.arange(d) < d // 2, scale * rng.uniform(1.0, 2.0, size=d), rest)
    cov = (axes * variances) @ axes.T
    cov = 0.5 * (cov + cov.T)
    mean, points = rng.normal(size=(1, d)), 3.0 * rng.normal(size=(6, d))
    one = np.ones(1)
    arrays = model_arrays(np.zeros(1), mean, cov.reshape(1, -1), one, one)
    vectors = arrays[5]
    assert len(vectors) == d // 2
    scores = log_mixtures(points, *arrays)[:, 0]
    truth = reference(points, one, mean, [exact(cov) + exact(np.eye(d))])
    # The pivots leave variances of some times the rest, next to the bandwidth's, which is one.
    assert truth.roundings(scores).max() <= bound(d, "full", 2.0 * scale) + 2.0 * rest / EPS


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_what_scipy_refuses(covariance_type):
    # The others' figures would be NaN for another reason if they failed here.
    for condition in CONDITIONS:
        case = kernel_case(covariance_type, 8, condition)
        refused = np.isnan(scipy(case.mixture, case.points)).any()
        assert refused == (condition == 1e12)


# ----------------------------------------------------------------------------------- whole models

MODELS = [
    (covariance_type, d, condition, bandwidth, compressed)
    for covariance_type, d, condition, bandwidth, compressed in product(
        COVARIANCES, (2, 8), (1e0, 1e8, 1e12), BANDWIDTHS, (False, True)
    )
    # Singular but for rounding, and refused.
    if not (covariance_type == "full" and bandwidth == "array" and condition == 1e12)
]
MODELS += [("full", 16, 1e8, "array", True), ("full", 64, 1e8, "array", False)]


@pytest.mark.parametrize(("covariance_type", "d", "condition", "bandwidth", "compressed"), MODELS)
def test_models(covariance_type, d, condition, bandwidth, compressed):
    """Two errors of `score_samples`.

    That of evaluating: the reference takes the sample model's and the frame's own doubles, and the
    kernel is what is exactly the identity there. And the whole difference from `distribution`: its
    covariances are rounded, and the conditioning share, condition times eps, is most of it.
    """
    case = model_case(covariance_type, d, condition, bandwidth, compressed)
    assert case.model.covariances_.any() == compressed
    scores, k = case.model.score_samples(case.points), case.condition
    evaluated = frame_reference(case.model, case.points).roundings(scores).max()
    # Whitening stretches the narrowest axis, and the rounding of rows along it, by the root of the
    # condition number; covariances, where there are any, by the condition number.
    assert evaluated <= PLAIN[d] + (k if compressed else np.sqrt(k))
    truth = reference(case.points, *case.mixture)
    # Rounded is H, on its way from the frame, and S on its way there.
    assert truth.roundings(scores).max() <= PLAIN[d] + k
    theirs = truth.roundings(scikit_learn(case.mixture, case.points)).max()
    assert evaluated <= 30.0 * theirs + PLAIN[d]


# ----------------------------------------------------------------------------------- same results


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("d", [2, 16, 64])
@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_rows_do_not_depend_on_their_company(covariance_type, d, compressed):
    case = model_case(covariance_type, d, 1e4, "predictive", compressed)
    points = np.tile(case.points, (20, 1))  # more than two blocks of the loop
    scores = case.model.score_samples(points)
    np.testing.assert_array_equal(case.model.score_samples(points), scores)
    # With OpenBLAS not a bit differs; other libraries may sum in another order for fewer rows,
    # whose rounding whitening stretches by the root of the condition number.
    most = PLAIN[d] * np.sqrt(case.condition) * EPS
    # Alone squares are not multiplied out.
    expanded = EXPANDED * EPS if covariance_type == "diag" and compressed else 0.0
    alone = np.concatenate([case.model.score_samples(row[None]) for row in case.points])
    np.testing.assert_allclose(np.tile(alone, 20), scores, rtol=most, atol=most + expanded)
    reverse = case.model.score_samples(points[::-1])[::-1]
    np.testing.assert_allclose(reverse, scores, rtol=most, atol=most)
