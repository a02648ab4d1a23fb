"""Linear discriminants, and how widely classes spread."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.datasets import make_gaussian_quantiles
from sklearn.metrics import log_loss

import twins
from skokde import OnlineKDEClassifier
from skokde._engine.covariance import STRUCTURES
from skokde._engine.discriminants import (
    DEGREES_OF_FREEDOM,
    Discriminant,
    Discriminants,
    class_scales,
    log_ratios_by_scale,
)
from skokde._engine.shrinkage import pooled_within_covariance
from skokde._engine.whitening import frame_of
from skokde.covariance import LowRankCovariance

both_structures = pytest.mark.parametrize("covariance_type", ["full", "diag"])


def discriminant(d, covariance_type, seed=0):
    rng = np.random.default_rng(seed)
    mixtures = [
        twins.learned_mixture(twins.clumps(d, 60, seed=seed + c), covariance_type) for c in range(3)
    ]
    root = rng.normal(size=(d, d))
    covariance = root @ root.T + 0.1 * np.eye(d)
    if covariance_type == "diag":
        covariance = np.diag(covariance).copy()
    means = np.array([twins.mixture_moments(mixture)[1] for mixture in mixtures])
    q = Discriminant.of(means, covariance, STRUCTURES[covariance_type])
    return mixtures, covariance, q


def log_densities(q, X):
    """By a linear discriminant, but for a constant."""
    equal = np.ones(len(q.means))
    return Discriminants((q,), equal, equal).log_ratios(X)[0]


@both_structures
@pytest.mark.parametrize("d", [1, 2, 5])
def test_discriminant_is_of_t_distributions(d, covariance_type):
    mixtures, covariance, q = discriminant(d, covariance_type)
    points = twins.clumps(d, 50, seed=9)
    full = twins.full_covariances(covariance[None])[0]
    expected = np.column_stack(
        [
            multivariate_t(twins.mixture_moments(mixture)[1], full, df=DEGREES_OF_FREEDOM)
            .logpdf(points)
            .reshape(50)
            for mixture in mixtures
        ]
    )
    got = log_densities(q, points)
    np.testing.assert_allclose(got - got[:, :1], expected - expected[:, :1], rtol=1e-9, atol=1e-9)
    # The constant is the same for all rows, too.
    np.testing.assert_allclose(got - expected, (got - expected)[0, 0], rtol=1e-9)


@both_structures
def test_far_rows_have_a_finite_discriminant(covariance_type):
    _, _, q = discriminant(2, covariance_type)
    far = np.array([[1e300, 0.0], [-1e308, 1e308], [1e160, -1e160], [1e20, 0.0]])
    logs = log_densities(q, far)
    assert np.isfinite(logs).all()
    # So far out the classes are all the same.
    np.testing.assert_allclose(logs - logs[:, :1], 0.0, atol=1e-9)
    assert np.all(logs[3] > logs[:3])


def test_discriminant_of_constant_features():
    X = np.column_stack([twins.clumps(1, 40), np.full(40, 7.0)])
    mixtures = [twins.learned_mixture(rows, "full") for rows in (X[:20], X[20:])]
    covariance = np.diag([2.0, 0.0])
    means = np.array([twins.mixture_moments(mixture)[1] for mixture in mixtures])
    q = Discriminant.of(means, covariance, STRUCTURES["full"])
    points = np.array([[0.0, 7.0], [3.0, 7.0], [0.0, 8.0]])
    assert np.isfinite(log_densities(q, points)).all()


@both_structures
def test_marginals_of_discriminants_are_those_of_a_t_distribution(covariance_type):
    rng = np.random.default_rng(0)
    means, A = rng.normal(size=(3, 4)), rng.normal(size=(4, 4))
    covariance = A @ A.T + np.eye(4)
    structure = STRUCTURES[covariance_type]
    if covariance_type == "diag":
        covariance = np.diag(np.diag(covariance))
    held = covariance if covariance_type == "full" else np.diag(covariance).copy()
    discriminant = Discriminant.of(means, held, structure)
    X = rng.normal(size=(5, 4))
    X[:, [0, 2]] = np.nan
    found, f = log_densities(discriminant, X), [1, 3]
    expected = np.column_stack(
        [
            multivariate_t(mean[f], covariance[np.ix_(f, f)], DEGREES_OF_FREEDOM).logpdf(X[:, f])
            for mean in means
        ]
    )
    # But for a constant.
    np.testing.assert_allclose(found - found[0, 0], expected - expected[0, 0], rtol=1e-9)


# ---------------------------------------------------------------------------------- scales


def moments_of(d, covariance_type):
    """Of three classes, and a covariance within them as the fourth, in two layouts: dense, held."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(4, d, d))
    dense = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(d)
    held = dense
    if covariance_type == "diag":
        held = np.diagonal(dense, axis1=1, axis2=2).copy()
        dense = np.array([np.diag(variances) for variances in held])
    return [5.0, 40.0, 1000.0], rng.normal(size=(3, d)), dense, held


@both_structures
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("unit", [1.0, 1e-12, 1e12])
def test_scales_are_mean_squares_where_the_common_covariance_is_the_identity(
    d, covariance_type, unit
):
    counts, means, dense, held = moments_of(d, covariance_type)
    units = np.full(d, unit) ** np.linspace(0.5, 1.0, d)
    structure = STRUCTURES[covariance_type]
    moments = [
        (n, units * mean, structure.rescale(covariance, units))
        for n, mean, covariance in zip(counts, means, held, strict=False)
    ]
    frame = frame_of(np.zeros(d), structure.rescale(held[-1], units), structure)
    got = class_scales(moments, frame)
    for n, covariance, scale in zip(counts, dense, got, strict=False):
        square = np.trace(np.linalg.solve(dense[-1], covariance)) / d
        share = d / (n + d)
        # The frame's covariance is a little more, so that it has an inverse.
        np.testing.assert_allclose(scale, (1.0 - share) * square + share, rtol=1e-5)


def test_scales_of_low_rank_are_those_of_the_matrices():
    d, rank, rng = 12, 2, np.random.default_rng(0)
    held = np.zeros((4, 1 + rank, d))
    held[:, 1:] = rng.normal(size=(4, rank, d))
    held[:, 0] = np.square(held[:, 1:]).sum(axis=1) + rng.uniform(0.2, 2.0, size=(4, d))
    structure = LowRankCovariance(rank)
    dense = [structure.dense(covariance) for covariance in held]
    moments = [(50.0, np.zeros(d), covariance) for covariance in held[:-1]]
    got = class_scales(moments, frame_of(np.zeros(d), held[-1], structure))
    share = d / (50 + d)
    squares = [np.trace(np.linalg.solve(dense[-1], covariance)) / d for covariance in dense[:-1]]
    np.testing.assert_allclose(got, (1.0 - share) * np.array(squares) + share, rtol=1e-9)


@pytest.mark.parametrize("d", [1, 4])
def test_scales_tell_what_normal_distributions_do_and_no_more_far_out(d):
    rng, scales = np.random.default_rng(0), np.array([0.3, 1.0, 4.0])
    X = rng.normal(size=(40, d))
    squares = np.square(X).sum(axis=1)
    near = squares < d + 3 * np.sqrt(2 * d)
    got = log_ratios_by_scale(np.repeat(squares[:, None], 3, axis=1), scales, d)
    of_one = multivariate_normal(np.zeros(d), np.eye(d)).logpdf(X)
    for scale, logs in zip(scales, got.T, strict=True):
        expected = multivariate_normal(np.zeros(d), scale * np.eye(d)).logpdf(X) - of_one
        np.testing.assert_allclose(logs[near], expected[near], rtol=1e-9, atol=1e-12)
    assert not got[:, 1].any()
    far = log_ratios_by_scale(np.array([[d + 3 * np.sqrt(2 * d)], [1e300]]), scales[:1], d)
    np.testing.assert_array_equal(far[0], far[1])


@both_structures
def test_a_covariance_that_is_too_small_for_the_classes_is_found_anew(covariance_type):
    counts, means, _, held = moments_of(4, covariance_type)
    moments = [[m] for m in zip(counts, means, held, strict=False)]
    within = pooled_within_covariance([m for (m,) in moments])
    structure, X = STRUCTURES[covariance_type], np.random.default_rng(1).normal(size=(9, 4))
    latest = Discriminants.of(moments, within, structure).log_ratios(X)
    for share, is_latest in [(0.1, True), (0.8, False)]:
        logs = Discriminants.of(moments, share * within, structure).log_ratios(X)
        assert np.array_equal(logs, latest) == is_latest
    of_constant = within.copy()
    of_constant[0] = 0.0
    if covariance_type == "full":
        of_constant[:, 0] = 0.0
    logs = Discriminants.of(moments, of_constant, structure).log_ratios(X)
    np.testing.assert_array_equal(logs, latest)


@both_structures
def test_what_is_pooled_of_rows_with_missing_values_is_that_of_what_is_known(covariance_type):
    counts, means, _, held = moments_of(4, covariance_type)
    structure = STRUCTURES[covariance_type]
    moments = [[m, m] for m in zip(counts, means, held, strict=False)]
    discriminants = Discriminants.of(moments, held[-1], structure)
    X = np.random.default_rng(1).normal(size=(6, 4))
    whole = discriminants.log_ratios(X)
    assert whole.shape == (3, 6, 3)
    for logs, of in zip(whole, discriminants.linear, strict=False):
        np.testing.assert_array_equal(logs, log_densities(of, X))
    X[2:4, [0, 2]] = X[5] = np.nan
    got = discriminants.log_ratios(X)
    np.testing.assert_allclose(got[:, [0, 1, 4]], whole[:, [0, 1, 4]], rtol=1e-12)
    known = np.array([1, 3])
    of_known = discriminants.marginal(known).log_ratios(X[2:4].take(known, axis=1))
    np.testing.assert_array_equal(got[:, 2:4], of_known)
    assert not got[:, 5].any()


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_classes_around_one_another_are_told_apart(covariance_type):
    # By kernels alone 61, 66 and 66 %.
    X, y = make_gaussian_quantiles(n_samples=1600, n_features=6, n_classes=4, random_state=0)
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:600], y[:600])
    assert classifier.score(X[600:], y[600:]) > 0.78
    assert classifier.calibration_weights_["scale"] > 1.0


@pytest.mark.parametrize(("covariance_type", "most"), [("full", 0.36), ("diag", 0.245)])
def test_few_predictions_are_enough_to_tell_classes_by_their_spread(covariance_type, most):
    # 0.28 and 0.21 nats; where so few predictions had no say it was 0.46 and 0.28.
    losses = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = rng.integers(2, size=1050)
        X = rng.normal(size=(1050, 12)) * np.where(y, 2.0, 1.0)[:, None]
        classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:50], y[:50])
        losses.append(log_loss(y[50:], classifier.predict_proba(X[50:])))
    assert np.mean(losses) < most


@both_structures
def test_a_class_without_spread_has_finite_probabilities(covariance_type):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(60, 2)), np.tile([0.5, 0.5], (60, 1))])
    y = np.repeat([0, 1], 60)
    order = rng.permutation(120)
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[order], y[order])
    new = np.array([[0.5, 0.5], [0.5, 0.6], [1e300, -1e300], [30.0, 30.0], [np.nan, 0.5]])
    p = classifier.predict_proba(new)
    assert np.isfinite(p).all()
    assert p[0, 1] > 0.9 > 0.1 > p[3, 1]
