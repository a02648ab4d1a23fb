"""How different two mixtures are."""

from __future__ import annotations

import numpy as np

from skokde.distribution._gaussians import (
    Estimate,
    Gaussians,
    RandomState,
    check_size,
    cholesky_of_correlations,
    pieces,
    variances_of,
)
from skokde.distribution.sampling import draws, generator, mean_of


def hellinger(
    p: Gaussians,
    q: Gaussians,
    *,
    method: str = "unscented",
    n_samples: int = 10_000,
    random_state: RandomState = None,
) -> Estimate:
    r"""Hellinger distance of two mixtures, from 0 to 1.

    .. math:: D(p, q) = \sqrt{\tfrac12 \int (\sqrt{p(x)} - \sqrt{q(x)})^2 \, dx}

    Parameters
    ----------
    p, q : GaussianMixtureDistribution
        Of the same features.
    method : {"unscented", "monte-carlo"}, default="unscented"
        The unscented approximation of the paper (Section 3.4, Eqs. 13 and 14), which takes the
        square roots along 2 d + 1 points of each component, deterministic and without a known
        error; or a mean over draws from (p + q) / 2, with its standard error.
    n_samples : int, default=10000
        Draws from each.
    random_state : int, RandomState, Generator or None, default=None

    Returns
    -------
    Estimate
        The standard error of the unscented approximation is NaN: it is not known.

    Examples
    --------
    >>> from skokde.distribution import GaussianMixtureDistribution, hellinger
    >>> p = GaussianMixtureDistribution([1.0], [[0.0]], [[1.0]])
    >>> hellinger(p, p).value
    0.0
    """
    _check_two(p, q)
    if method == "unscented":
        squared = 0.0
        for distribution in (p, q):
            for points, weights in _sigma_points(distribution):
                squared += 0.5 * float(weights @ _root_differences(p, q, points))
        return Estimate(float(np.sqrt(min(max(0.5 * squared, 0.0), 1.0))), float("nan"))
    if method != "monte-carlo":
        raise ValueError(f"method must be 'unscented' or 'monte-carlo', got {method!r}.")
    n, rng = check_size(n_samples), generator(random_state)
    halves = [mean_of(_root_differences(p, q, draws(one, n, rng))) for one in (p, q)]
    squared = 0.25 * (halves[0].value + halves[1].value)
    error = 0.25 * np.hypot(halves[0].standard_error, halves[1].standard_error)
    value = np.sqrt(squared)
    # That of a root; near zero that of the square tells more.
    return Estimate(float(value), float(min(error / max(2.0 * value, 1e-300), np.sqrt(error))))


def _root_differences(p: Gaussians, q: Gaussians, points: np.ndarray) -> np.ndarray:
    """Of the square roots at points, squared, in units of (p + q) / 2."""
    difference = p.logpdf(points) - q.logpdf(points)
    # 2 (1 - r)^2 / (1 + r^2), with r the smaller root over the larger one.
    ratio = np.exp(-0.5 * np.abs(difference))
    return 2.0 * (1.0 - ratio) ** 2 / (1.0 + ratio**2)


def _sigma_points(distribution: Gaussians):
    """Points and weights of some components at a time; kappa is 3 - d, as in the engine."""
    d = distribution.n_features
    kappa = max(0.0, 3.0 - d)
    scales = np.sqrt(variances_of(distribution.covariances))
    for some in pieces(distribution.n_components, (2 * d + 1) * d):
        if distribution.covariances.ndim == 2:
            roots = scales[some, :, None] * np.eye(d)
        else:
            scale = scales[some]
            # Of the correlations: small units beside large ones would be lost in rounding.
            values, vectors = np.linalg.eigh(
                distribution.covariances[some] / scale[:, :, None] / scale[:, None, :]
            )
            halves = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
            roots = halves @ vectors.transpose(0, 2, 1) * scale[:, None, :]
        away = np.sqrt(d + kappa) * roots
        means = distribution.means[some, None]
        points = np.concatenate([means, means + away, means - away], axis=1)
        shares = np.full(2 * d + 1, 0.5 / (d + kappa))
        shares[0] = kappa / (d + kappa)
        weights = distribution.weights[some, None] * shares
        yield points.reshape(-1, d), weights.ravel()


def integrated_squared_error(p: Gaussians, q: Gaussians) -> float:
    r"""Integral of the squared difference of two densities, in closed form.

    .. math:: \int (p(x) - q(x))^2 \, dx

    Parameters
    ----------
    p, q : GaussianMixtureDistribution
        Of the same features.

    Returns
    -------
    float
        In units of a density. Each pair of components takes a factorisation.

    Examples
    --------
    >>> from skokde.distribution import GaussianMixtureDistribution, integrated_squared_error
    >>> p = GaussianMixtureDistribution([1.0], [[0.0]], [[1.0]])
    >>> integrated_squared_error(p, p)
    0.0
    """
    _check_two(p, q)
    return max(0.0, _product(p, p) - 2.0 * _product(p, q) + _product(q, q))


def _product(p: Gaussians, q: Gaussians) -> float:
    """Integral of p(x) q(x): each pair gives the density of one mean about the other."""
    total, d = 0.0, p.n_features
    of_p, of_q = p.covariances, q.covariances
    if of_p.ndim != of_q.ndim:
        of_p, of_q = (c if c.ndim == 3 else c[:, :, None] * np.eye(d) for c in (of_p, of_q))
    for i in range(p.n_components):
        for some in pieces(q.n_components, d * d):
            covariances = of_p[i] + of_q[some]
            scales = np.sqrt(variances_of(covariances))
            z = (p.means[i] - q.means[some]) / scales
            log_norms = -np.log(scales).sum(axis=1) - 0.5 * d * np.log(2.0 * np.pi)
            if covariances.ndim == 3:
                factors = cholesky_of_correlations(covariances, scales)
                z = np.linalg.solve(factors, z[:, :, None])[:, :, 0]
                log_norms -= np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
            terms = np.exp(log_norms - 0.5 * (z**2).sum(axis=1))
            total += p.weights[i] * float(q.weights[some] @ terms)
    return total


def kl_divergence(
    p: Gaussians,
    q: Gaussians,
    *,
    n_samples: int = 10_000,
    random_state: RandomState = None,
) -> Estimate:
    r"""Kullback-Leibler divergence of p from q, in nats: the mean of log p - log q under p.

    Parameters
    ----------
    p, q : GaussianMixtureDistribution
        Of the same features.
    n_samples : int, default=10000
        Draws from p; of two single Gaussians it is known exactly.
    random_state : int, RandomState, Generator or None, default=None

    Returns
    -------
    Estimate

    Examples
    --------
    >>> from skokde.distribution import GaussianMixtureDistribution, kl_divergence
    >>> p = GaussianMixtureDistribution([1.0], [[0.0]], [[1.0]])
    >>> q = GaussianMixtureDistribution([1.0], [[1.0]], [[1.0]])
    >>> kl_divergence(p, q)
    Estimate(value=0.5, standard_error=0.0)
    """
    _check_two(p, q)
    n = check_size(n_samples)
    if p.n_components == q.n_components == 1:
        return Estimate(_of_two_gaussians(p, q), 0.0)
    points = draws(p, n, random_state)
    return mean_of(p.logpdf(points) - q.logpdf(points))


def _of_two_gaussians(p: Gaussians, q: Gaussians) -> float:
    """The closed form."""
    scale = np.sqrt(variances_of(q.covariances)[0])  # features of any units do no harm
    covariances = [
        (c[0] if c.ndim == 3 else np.diag(c[0])) / scale[:, None] / scale
        for c in (p.covariances, q.covariances)
    ]
    within = np.trace(np.linalg.solve(covariances[1], covariances[0]))
    away = (p.means[0] - q.means[0]) / scale
    between = away @ np.linalg.solve(covariances[1], away)
    log_dets = [np.linalg.slogdet(covariance)[1] for covariance in covariances]
    return float(0.5 * (within + between - p.n_features + log_dets[1] - log_dets[0]))


def jensen_shannon(
    p: Gaussians,
    q: Gaussians,
    *,
    n_samples: int = 10_000,
    random_state: RandomState = None,
) -> Estimate:
    """Jensen-Shannon divergence of two mixtures, from 0 to log 2 nats.

    The mean of the Kullback-Leibler divergences of both from (p + q) / 2; not its square root.

    Parameters
    ----------
    p, q : GaussianMixtureDistribution
        Of the same features.
    n_samples : int, default=10000
        Draws from each.
    random_state : int, RandomState, Generator or None, default=None

    Returns
    -------
    Estimate

    Examples
    --------
    >>> from skokde.distribution import GaussianMixtureDistribution, jensen_shannon
    >>> p = GaussianMixtureDistribution([1.0], [[0.0]], [[1.0]])
    >>> q = GaussianMixtureDistribution([1.0], [[99.0]], [[1.0]])
    >>> round(jensen_shannon(p, q, random_state=0).value, 4)  # log 2
    0.6931
    """
    _check_two(p, q)
    n, rng = check_size(n_samples), generator(random_state)
    halves = []
    for one, other in ((p, q), (q, p)):
        points = draws(one, n, rng)
        own = one.logpdf(points)
        halves.append(mean_of(own - np.logaddexp(own, other.logpdf(points)) + np.log(2.0)))
    value = 0.5 * (halves[0].value + halves[1].value)
    error = 0.5 * np.hypot(halves[0].standard_error, halves[1].standard_error)
    return Estimate(float(np.clip(value, 0.0, np.log(2.0))), float(error))


def _check_two(p: Gaussians, q: Gaussians) -> None:
    if p.n_features != q.n_features or (
        p.feature_names is not None
        and q.feature_names is not None
        and tuple(p.feature_names) != tuple(q.feature_names)
    ):
        raise ValueError(
            "Both distributions must be of the same features, got "
            f"{p.feature_names or p.n_features} and {q.feature_names or q.n_features}."
        )
