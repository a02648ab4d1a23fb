"""Marginals and conditionals of a mixture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, ndtr

from skokde.distribution._gaussians import (
    Gaussians,
    RandomState,
    cholesky_of_correlations,
    pieces,
    read_only,
    variances_of,
)
from skokde.distribution.regions import quantiles
from skokde.distribution.sampling import generator, normal_draws

# In nats, of a weight: less changes no sum of thousands.
NEGLIGIBLE = -50.0


def marginal(distribution: Gaussians, numbers: Sequence[int]) -> Gaussians:
    """Distribution of some features, in their order."""
    covariances = distribution.covariances[:, numbers]
    if covariances.ndim == 3:
        covariances = covariances[:, :, numbers]
    return type(distribution)(
        distribution.weights,
        distribution.means[:, numbers],
        covariances,
        distribution.names_of(numbers),
    )


def conditional(
    distribution: Gaussians, numbers: Sequence[int], values: ArrayLike
) -> Gaussians | GaussianMixtureFamily:
    """Distribution of the other features, or one for each row of values."""
    values = np.array(values, dtype=float)
    single = values.ndim < 2
    rows = np.atleast_1d(values)[None] if single else values
    if rows.ndim != 2 or rows.shape[1] != len(numbers):
        raise ValueError(
            f"values must have the shape {(len(numbers),)} or (n_rows, {len(numbers)}), got "
            f"{values.shape}."
        )
    if not np.isfinite(rows).all():
        raise ValueError("values must be finite: leave out what is not known.")
    others = [j for j in range(distribution.n_features) if j not in set(numbers)]
    if not others:
        raise ValueError("All features are known: there is no distribution of others.")
    known = marginal(distribution, numbers)
    log_weights = posterior_log_weights(known, rows)
    # What is beyond rounding for all rows, of thousands of components nearly all, costs nothing.
    used = np.flatnonzero((log_weights > NEGLIGIBLE).any(axis=0))
    gains, covariances = regressions(distribution.covariances[used], numbers, others)
    family = GaussianMixtureFamily(
        type(distribution),
        log_weights[:, used],
        known.means[used],
        distribution.means[used[:, None], others],
        gains,
        covariances,
        rows,
        distribution.names_of(others),
    )
    return family[0] if single else family


def regressions(
    covariances: np.ndarray, known: Sequence[int], others: Sequence[int]
) -> tuple[np.ndarray | None, np.ndarray]:
    """How much others follow what is known, (k, a, b), and the covariances of what is left.

    They come from the Cholesky factor with the known features first: its last block is the factor
    of what is left, which can't become indefinite.
    """
    if covariances.ndim == 2:
        return None, covariances[:, others]
    order, b = [*known, *others], len(known)
    ordered = covariances[:, order][:, :, order]
    scales = np.sqrt(variances_of(ordered))
    factors = cholesky_of_correlations(ordered, scales)
    left = scales[:, b:, None] * factors[:, b:, b:]
    whitened = np.linalg.solve(
        factors[:, :b, :b].transpose(0, 2, 1), factors[:, b:, :b].transpose(0, 2, 1)
    )
    gains = scales[:, b:, None] * whitened.transpose(0, 2, 1) / scales[:, None, :b]
    return gains, left @ left.transpose(0, 2, 1)


def posterior_log_weights(known: Gaussians, rows: np.ndarray) -> np.ndarray:
    """Logarithms (n, k) of what the components weigh where some features are known.

    Where all squared distances overflow, the component weighs all that is nearest in its own units.
    """
    out = np.empty((len(rows), known.n_components))
    for some in pieces(len(rows), known.n_components):
        terms = known.log_terms(rows[some])
        lost = np.flatnonzero(~(terms.max(axis=1) > -np.inf))
        if len(lost):
            size = np.abs(rows[some][lost]).max(axis=1)
            directions = Gaussians(
                known.weights, np.zeros_like(known.means), known.covariances
            ).log_terms(1e100 * (rows[some][lost] / size[:, None]))
            nearest = np.where(known.weights > 0.0, directions, -np.inf).argmax(axis=1)
            terms[lost] = -np.inf
            terms[lost, nearest] = 0.0
        out[some] = terms - logsumexp(terms, axis=1, keepdims=True)
    return out


@dataclass(frozen=True, eq=False, repr=False)
class GaussianMixtureFamily:
    """Mixtures of the same covariances, one for each row of values that are known.

    What `GaussianMixtureDistribution.conditional` returns for rows. The means of all components
    are made when they are needed, for a few rows at a time.

    Attributes
    ----------
    n_features : int
        Of each distribution.
    mean : ndarray of shape (n_rows, n_features)
    cov : ndarray of shape (n_rows, n_features, n_features)

    Examples
    --------
    >>> from skokde.distribution import GaussianMixtureDistribution
    >>> mixture = GaussianMixtureDistribution([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]])
    >>> family = mixture.conditional(0, [[-1.0], [0.0], [2.0]])
    >>> len(family), family.mean.ravel()
    (3, array([-0.5,  0. ,  1. ]))
    >>> family.ppf([0.5]).ravel().round(6)
    array([-0.5,  0. ,  1. ])
    >>> family[2].cov
    array([[0.75]])
    """

    kind: type[Gaussians]
    log_weights: np.ndarray
    known_means: np.ndarray
    other_means: np.ndarray
    gains: np.ndarray | None
    covariances: np.ndarray
    values: np.ndarray
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for value in self._fields():
            if isinstance(value, np.ndarray):
                read_only(value)

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Be made anew when copied or unpickled: arrays would not stay read-only."""
        return type(self), self._fields()

    def __repr__(self) -> str:
        """Tell how large it is."""
        return (
            f"<GaussianMixtureFamily of {len(self)} distributions of {len(self.other_means)} "
            f"components in {self.n_features} dimensions>"
        )

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.values)

    def __getitem__(self, row: int) -> Gaussians:
        """The distribution of a row."""
        weights = np.exp(self.log_weights[row])
        return self.kind(
            weights / weights.sum(),
            self._means(slice(row, row + 1 or None))[0],
            self.covariances,
            self.feature_names,
        )

    @property
    def n_features(self) -> int:
        """Number of dimensions of each distribution."""
        return self.other_means.shape[1]

    def _means(self, rows: slice | np.ndarray) -> np.ndarray:
        """Means (n, k, d) of the components of some rows."""
        values = self.values[rows]
        if self.gains is None:
            return np.broadcast_to(self.other_means, (len(values), *self.other_means.shape))
        away = values[:, None] - self.known_means
        return self.other_means + np.einsum("kij,nkj->nki", self.gains, away)

    def _weighed(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Weights (n, k) and means; far out those may overflow that weigh nothing."""
        weights, means = np.exp(self.log_weights[rows]), self._means(rows)
        return weights, np.where(weights[:, :, None] > 0.0, means, 0.0)

    def _pieces(self) -> Iterator[slice]:
        return pieces(len(self), self.other_means.size + self.known_means.size)

    @property
    def mean(self) -> np.ndarray:
        """Means (n_rows, n_features)."""
        out = np.empty((len(self), self.n_features))
        for rows in self._pieces():
            weights, means = self._weighed(rows)
            out[rows] = np.einsum("nk,nki->ni", weights, means)
        return out

    @property
    def cov(self) -> np.ndarray:
        """Covariances (n_rows, n_features, n_features)."""
        d, covariances = self.n_features, self.covariances
        out = np.empty((len(self), d, d))
        for rows in self._pieces():
            weights, means = self._weighed(rows)
            away = means - np.einsum("nk,nki->ni", weights, means)[:, None]
            away = np.where(weights[:, :, None] > 0.0, away, 0.0)
            within = np.tensordot(weights, covariances, axes=1)
            if covariances.ndim == 2:
                within = within[:, :, None] * np.eye(d)
            out[rows] = within + np.einsum("nk,nki,nkj->nij", weights, away, away, optimize=True)
        return out

    def logpdf(self, x: ArrayLike) -> np.ndarray:
        """Log-density (n_rows,) of a point of each row, in nats.

        Parameters
        ----------
        x : array-like of shape (n_rows, n_features)
        """
        x = np.asarray(x, dtype=float).reshape(len(self), self.n_features)
        centered = Gaussians(
            np.full(len(self.other_means), 1.0 / len(self.other_means)),
            np.zeros_like(self.other_means),
            self.covariances,
        )
        log_norms, scales, inv_factors = centered._standardized
        log_norms = log_norms - centered.log_weights
        out = np.empty(len(self))
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in self._pieces():
                z = (x[rows, None] - self._means(rows)) / scales
                if inv_factors is not None:
                    z = np.einsum("kij,nkj->nki", inv_factors, z)
                squares = (z**2).sum(axis=2)
                squares = np.where(squares >= 0.0, squares, np.inf)
                out[rows] = logsumexp(self.log_weights[rows] + log_norms - 0.5 * squares, axis=1)
        return out

    def pdf(self, x: ArrayLike) -> np.ndarray:
        """Density (n_rows,) of a point of each row."""
        return np.exp(self.logpdf(x))

    def rvs(self, size: int = 1, random_state: RandomState = None) -> np.ndarray:
        """Independent draws (n_rows, size, n_features), not squeezed.

        Parameters
        ----------
        size : int, default=1
            Of each row.
        random_state : int, RandomState, Generator or None, default=None
        """
        rng = generator(random_state)
        out = np.empty((len(self), size, self.n_features))
        for row in range(len(self)):
            weights = np.exp(self.log_weights[row])
            chosen = rng.choice(len(weights), size=size, p=weights / weights.sum())
            means = self._means(slice(row, row + 1))[0]
            out[row] = normal_draws(means, self.covariances, chosen, rng)
        return out

    def cdf(self, x: ArrayLike) -> np.ndarray:
        """Probability (n_rows,) of what is below a value of each row, in one dimension.

        Parameters
        ----------
        x : array-like of shape (n_rows,)
        """
        self._check_one_dimension("cdf")
        x = np.asarray(x, dtype=float).reshape(len(self))
        deviations, out = np.sqrt(variances_of(self.covariances)[:, 0]), np.empty(len(self))
        for rows in self._pieces():
            below = ndtr((x[rows, None] - self._means(rows)[:, :, 0]) / deviations)
            out[rows] = (np.exp(self.log_weights[rows]) * below).sum(axis=1)
        return np.clip(out, 0.0, 1.0)

    def ppf(self, q: ArrayLike) -> np.ndarray:
        """Quantiles (n_rows, n_quantiles), in one dimension.

        Parameters
        ----------
        q : array-like of shape (n_quantiles,)
            Probabilities from 0 to 1.
        """
        self._check_one_dimension("ppf")
        q = np.atleast_1d(np.asarray(q, dtype=float))
        deviations, out = (
            np.sqrt(variances_of(self.covariances)[:, 0]),
            np.empty((len(self), len(q))),
        )
        for rows in pieces(len(self), self.known_means.size + len(q) * len(deviations)):
            weights, means = np.exp(self.log_weights[rows]), self._means(rows)[:, :, 0]
            out[rows] = quantiles(q, weights, means, deviations)
        return out

    def _check_one_dimension(self, name: str) -> None:
        if self.n_features != 1:
            raise ValueError(
                f"{name} is for one dimension, and there are {self.n_features}: take the "
                "conditional of a marginal."
            )
