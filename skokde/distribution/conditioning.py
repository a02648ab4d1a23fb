"""Marginals and conditionals of a mixture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, ndtr

from skokde.distribution._gaussians import (
    Gaussians,
    RandomState,
    cholesky_of_correlations,
    pieces,
    read_only,
    runs_of_equal,
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
    family = conditioned([Conditioner(distribution, numbers, others)], rows)
    return family[0] if single else family


@dataclass(frozen=True, eq=False, repr=False)
class Conditioner:
    """What Gaussians tell of some features where others are known, whatever their values.

    Attributes
    ----------
    distribution : Gaussians
    numbers, others : sequences of int
        Features that are known, and those that are asked for; the rest is integrated out.
    lasts : bool
        Whether regressions are made of all components, once, or of those that each call uses.
    """

    distribution: Gaussians
    numbers: Sequence[int]
    others: Sequence[int]
    lasts: bool = False

    @property
    def kind(self) -> type[Gaussians]:
        """What there is one of for each row."""
        return type(self.distribution)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the features that are asked for."""
        return self.distribution.names_of(self.others)

    @property
    def n_components(self) -> int:
        """Number of Gaussians."""
        return self.distribution.n_components

    @property
    def is_independent(self) -> bool:
        """Whether features are, within components."""
        return self.distribution.covariances.ndim == 2

    @cached_property
    def known(self) -> Gaussians:
        """Of the features that are known."""
        return marginal(self.distribution, self.numbers)

    @cached_property
    def _regressions(self) -> tuple[np.ndarray | None, np.ndarray]:
        return regressions(self.distribution.covariances, self.numbers, self.others)

    def arrays(self, some: np.ndarray, independent: bool) -> tuple[np.ndarray, ...]:
        """Known means, other means, gains and covariances of some components.

        Parameters
        ----------
        some : (m,) array of intp
        independent : bool
            Whether features are, in all that there is; else covariances are matrices.
        """
        if self.lasts:
            gains, covariances = (a if a is None else a[some] for a in self._regressions)
        else:
            chosen = self.distribution.covariances[some]
            gains, covariances = regressions(chosen, self.numbers, self.others)
        b = len(self.others)
        if gains is None:
            gains = np.zeros((len(some), b, len(self.numbers)))
            if not independent:
                covariances = covariances[:, :, None] * np.eye(b)
        other_means = self.distribution.means[some[:, None], self.others]
        return self.known.means[some], other_means, gains, covariances


class Tempering(NamedTuple):
    """Groups of components among which what is known decides less than it would by Bayes' rule.

    Attributes
    ----------
    groups : (k,) array of intp
        Which one each of all components belongs to.
    log_totals : (n_groups,) array
        Logarithms of the weights of groups, with what is left out of their components.
    power : float
        To which the density of what is known is raised in what a group weighs.
    """

    groups: np.ndarray
    log_totals: np.ndarray
    power: float

    def applied(self, log_terms: np.ndarray) -> np.ndarray:
        """Logarithms of weights times densities (n, k), with those of the groups to that power."""
        order = np.argsort(self.groups, kind="stable")
        starts = np.flatnonzero(np.diff(self.groups[order], prepend=-1))
        sizes = np.diff(starts, append=len(order))
        ordered = log_terms[:, order]
        top = np.maximum.reduceat(ordered, starts, axis=1)
        top[top == -np.inf] = 0.0
        with np.errstate(divide="ignore"):
            sums = np.log(
                np.add.reduceat(np.exp(ordered - np.repeat(top, sizes, axis=1)), starts, axis=1)
            )
        logs = sums + top
        known = logs > -np.inf
        totals = self.log_totals[self.groups[order[starts]]]
        away = np.where(known, totals - np.where(known, logs, 0.0), 0.0)
        out = np.empty_like(log_terms)
        out[:, order] = ordered + (1.0 - self.power) * np.repeat(away, sizes, axis=1)
        return out


def conditioned(
    conditioners: Sequence[Conditioner],
    rows: np.ndarray,
    log_factors: np.ndarray | None = None,
    tempering: Tempering | None = None,
) -> GaussianMixtureFamily:
    """Distributions for rows of what is known, of the components of some mixtures together.

    Parameters
    ----------
    conditioners : sequence of Conditioner
    rows : (n, a) array
    log_factors : (n, k) or (1, k) array, default=None
        Logarithms of what the weights of all components are multiplied by.
    tempering : Tempering, default=None
    """
    first = conditioners[0]
    known = [c.known for c in conditioners]
    log_weights = posterior_log_weights(known, rows, log_factors, tempering)
    # What is beyond rounding for all rows, of thousands of components nearly all, costs nothing.
    used = np.flatnonzero((log_weights > NEGLIGIBLE).any(axis=0))
    stops = np.cumsum([c.n_components for c in conditioners])
    parts = np.split(used, np.searchsorted(used, stops[:-1]))
    independent = all(c.is_independent for c in conditioners)
    arrays = [
        c.arrays(part - (stop - c.n_components), independent)
        for c, part, stop in zip(conditioners, parts, stops, strict=True)
    ]
    known_means, other_means, gains, covariances = map(np.concatenate, zip(*arrays, strict=True))
    return GaussianMixtureFamily(
        first.kind,
        log_weights[:, used],
        known_means,
        other_means,
        None if independent else gains,
        covariances,
        rows,
        first.names,
    )


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
    covariances, run = runs_of_equal(covariances)
    ordered = covariances[:, order][:, :, order]
    scales = np.sqrt(variances_of(ordered))
    factors = cholesky_of_correlations(ordered, scales)
    left = scales[:, b:, None] * factors[:, b:, b:]
    whitened = np.linalg.solve(
        factors[:, :b, :b].transpose(0, 2, 1), factors[:, b:, :b].transpose(0, 2, 1)
    )
    gains = scales[:, b:, None] * whitened.transpose(0, 2, 1) / scales[:, None, :b]
    return gains[run], (left @ left.transpose(0, 2, 1))[run]


def posterior_log_weights(
    mixtures: Sequence[Gaussians],
    rows: np.ndarray,
    log_factors: np.ndarray | None = None,
    tempering: Tempering | None = None,
) -> np.ndarray:
    """Logarithms (n, k) of what the components of all mixtures weigh where rows are known.

    Where all squared distances overflow, the component weighs all that is nearest in its own units.

    Parameters
    ----------
    mixtures : sequence of Gaussians
    rows : (n, d) array
    log_factors : (n, k) or (1, k) array, default=None
        Logarithms of what weights are multiplied by.
    tempering : Tempering, default=None
    """
    k = sum(mixture.n_components for mixture in mixtures)
    factors = np.zeros((1, k)) if log_factors is None else log_factors
    out = np.empty((len(rows), k))
    for some in pieces(len(rows), k):
        terms = np.concatenate([mixture.log_terms(rows[some]) for mixture in mixtures], axis=1)
        terms += factors if len(factors) == 1 else factors[some]
        lost = np.flatnonzero(~(terms.max(axis=1) > -np.inf))
        if len(lost):
            far = rows[some][lost]
            far = 1e100 * (far / np.abs(far).max(axis=1, keepdims=True))
            centered = [mixture.centered() for mixture in mixtures]
            directions = np.concatenate([mixture.log_terms(far) for mixture in centered], axis=1)
            weighs = factors + np.concatenate([m.log_weights for m in mixtures]) > -np.inf
            weighs = weighs if len(factors) == 1 else weighs[some][lost]
            nearest = np.where(weighs, directions, -np.inf).argmax(axis=1)
            terms[lost] = -np.inf
            terms[lost, nearest] = 0.0
        if tempering is not None:
            terms = tempering.applied(terms)
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

    @classmethod
    def unconditional(cls, distribution: Gaussians, n: int) -> Self:
        """The same distribution for so many rows of which nothing is known."""
        weights, means, covariances = distribution.arrays
        nothing, k = np.empty((n, 0)), len(weights)
        log_weights = np.tile(distribution.log_weights, (n, 1))
        names = distribution.feature_names
        return cls(
            type(distribution),
            log_weights,
            np.empty((k, 0)),
            means,
            None,
            covariances,
            nothing,
            names,
        )

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
        weights, means = self.components_of(row)
        return self.kind(weights, means, self.covariances, self.feature_names)

    def components_of(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights (k,) and means (k, n_features) of the components in a row."""
        weights = np.exp(self.log_weights[row])
        return weights / weights.sum(), self._means(slice(row, row + 1 or None))[0]

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
            weights, means = self.components_of(row)
            chosen = rng.choice(len(weights), size=size, p=weights)
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
        out, deviations = np.empty((len(self), len(q))), np.sqrt(variances_of(self.covariances))
        for rows in pieces(len(self), self.known_means.size + len(q) * len(deviations)):
            # Of those that weigh anything in any row none needs more than that of the most.
            n = np.count_nonzero(self.log_weights[rows] > NEGLIGIBLE, axis=1).max()
            most = np.argpartition(-self.log_weights[rows], n - 1, axis=1)[:, :n]
            weights = np.exp(np.take_along_axis(self.log_weights[rows], most, axis=1))
            means = np.take_along_axis(self._means(rows)[:, :, 0], most, axis=1)
            out[rows] = quantiles(q, weights, means, deviations[most, 0])
        return out

    def _check_one_dimension(self, name: str) -> None:
        if self.n_features != 1:
            raise ValueError(
                f"{name} is for one dimension, and there are {self.n_features}: take the "
                "conditional of a marginal."
            )
