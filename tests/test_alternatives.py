"""The alternatives that are judged in the benchmark are what they are called."""

from itertools import combinations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gamma
from scipy.stats import multivariate_normal

from evaluation.alternatives import (
    epanechnikov,
    gaussian,
    log_density,
    merged_in_pairs,
    pseudo_roots,
    student,
)
from skokde.covariance import FullCovariance


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kernel", [gaussian, student(3.0), student(10.0), epanechnikov])
def test_kernels_integrate_to_one(kernel, d):
    surface = 2.0 * np.pi ** (0.5 * d) / gamma(0.5 * d)
    end = 1.0 if kernel is epanechnikov else np.inf
    mass, _ = quad(lambda r: surface * r ** (d - 1) * np.exp(kernel(np.square(r), d)), 0.0, end)
    assert mass == pytest.approx(1.0, rel=1e-6)


def cost(weights, covariances, parts):
    """Runnalls' cost of each of some pairs, from moments of the pair."""
    means, out = parts, {}
    for i, j in combinations(range(len(weights)), 2):
        both = weights[i] + weights[j]
        mean = (weights[i] * means[i] + weights[j] * means[j]) / both
        joint = sum(
            weights[c] / both * (covariances[c] + np.outer(means[c] - mean, means[c] - mean))
            for c in (i, j)
        )
        logs = [np.linalg.slogdet(c)[1] for c in (joint, covariances[i], covariances[j])]
        out[i, j] = (
            0.5 * (both * logs[0] - weights[i] * logs[1] - weights[j] * logs[2]),
            joint,
            mean,
        )
    return out


def test_pairs_are_merged_as_brute_force_does():
    rng = np.random.default_rng(0)
    k, d, n = 12, 3, 4
    weights, means = rng.dirichlet(np.ones(k)), rng.normal(size=(k, d))
    covariances = np.array([np.cov(rng.normal(size=(d, 6))) + np.eye(d) for _ in range(k)])
    labels = merged_in_pairs(weights, means, covariances, n)
    w, m, c = list(weights), list(means), list(covariances)
    groups = [{i} for i in range(k)]
    while len(groups) > n:
        costs = cost(w, c, m)
        i, j = min(costs, key=lambda pair: costs[pair][0])
        _, c[i], m[i] = costs[i, j]
        w[i] += w[j]
        groups[i] |= groups[j]
        for held in (w, m, c, groups):
            del held[j]
    assert {frozenset(np.flatnonzero(labels == label)) for label in range(n)} == set(
        map(frozenset, groups)
    )


def test_log_density_is_scipys():
    rng = np.random.default_rng(0)
    weights, means, points = np.array([0.3, 0.7]), rng.normal(size=(2, 3)), rng.normal(size=(9, 3))
    covariances = np.array([np.eye(3), np.diag([1.0, 2.0, 3.0]) + 0.2])
    expected = sum(
        w * multivariate_normal(m, c).pdf(points)
        for w, m, c in zip(weights, means, covariances, strict=True)
    )
    np.testing.assert_allclose(np.exp(log_density(points, weights, means, covariances)), expected)


def test_pseudo_inverse():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(4, 2))
    matrix = factor @ factor.T
    full = FullCovariance()
    root, inverse, log_det = pseudo_roots(full, full.spectrum(matrix))
    np.testing.assert_allclose(root @ root, matrix, atol=1e-10)
    np.testing.assert_allclose(inverse @ inverse, np.linalg.pinv(matrix), atol=1e-10)
    assert log_det == pytest.approx(np.log(np.linalg.eigvalsh(factor.T @ factor)).sum())
