"""How exact log-densities are: against mpmath at 50 digits, beside scikit-learn and SciPy.

Three errors are told apart. That of the compiled kernel: the reference takes the very doubles that
the kernel is given. That of evaluating a model: the reference takes the sample model's doubles and
those of the frame that skokde scores it in, so that mapping rows and components into the frame is
measured, too. And the difference from `distribution`: its covariances are rounded to doubles, which
alone moves the density by about the condition number times eps.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from mpmath import MPContext
from scipy.linalg import cholesky, solve_triangular
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture
from skokde._engine._hellinger import factorize_all
from skokde._engine._log_density import decompose, log_mixtures

from evaluation.options import RESULTS
from evaluation.tables import frame_markdown, make_tables
from skokde import OnlineKDEDensity

ONE = np.ones(1)
MP = MPContext()  # of our own: the precision of mpmath.mp belongs to all
MP.dps = 50
exact = np.vectorize(MP.mpf, otypes=[object])
_log = np.vectorize(MP.log, otypes=[object])
_exp = np.vectorize(MP.exp, otypes=[object])

DIMENSIONS = (2, 8, 16, 64)
CONDITIONS = (1e0, 1e4, 1e8, 1e12)
COVARIANCES = ("full", "diag")
PLACES = {"near": 0.1, "between": 0.0, "10 sd": 10.0, "1000 sd": 1000.0}

# ---------------------------------------------------------------------------------- reference


class Gaussian:
    """A Gaussian of mpf numbers, whose covariance is (d, d), or (d,) if it is diagonal."""

    def __init__(self, covariance: np.ndarray):
        self.rows: list[list[Any]] = []
        if covariance.ndim == 1:
            self.scale = covariance
            self.log_det = MP.fsum(_log(covariance))
            return
        for i, values in enumerate(covariance):  # Cholesky, row by row
            row: list[Any] = []
            for j in range(i):
                row.append((values[j] - MP.fdot(row, self.rows[j][:j])) / self.rows[j][j])
            self.rows.append([*row, MP.sqrt(values[i] - MP.fdot(row, row))])
        self.log_det = 2 * MP.fsum(MP.log(row[-1]) for row in self.rows)

    def square(self, delta: np.ndarray) -> Any:
        """Squared Mahalanobis distance."""
        if not self.rows:
            return MP.fsum(delta * delta / self.scale)
        y: list[Any] = []
        for value, row in zip(delta, self.rows, strict=True):
            y.append((value - MP.fdot(row[:-1], y)) / row[-1])
        return MP.fdot(y, y)


class Reference(NamedTuple):
    """Log-densities in mpf numbers, and the sizes of what they are summed from.

    A log-density near zero may be the difference of large numbers. So the size, one and the
    absolute parts of the likeliest component's, is what rounding errors are to be compared with.
    """

    values: np.ndarray
    sizes: np.ndarray

    def errors(self, scores: np.ndarray) -> np.ndarray:
        """Relative errors, absolute ones where the log-density is below one."""
        return self._over(scores, [max(1, abs(value)) for value in self.values])

    def roundings(self, scores: np.ndarray) -> np.ndarray:
        """Errors in units of eps times the size."""
        return self._over(scores, self.sizes) / np.finfo(float).eps

    def _over(self, scores: np.ndarray, scales: Iterable[Any]) -> np.ndarray:
        triples = zip(exact(scores), self.values, scales, strict=True)
        return np.array([float(abs(score - value) / scale) for score, value, scale in triples])


def reference(
    points: np.ndarray,
    weights: Iterable[Any],
    means: Iterable[np.ndarray],
    covariances: Iterable[np.ndarray],
    log_scale: Any = 0,
) -> Reference:
    """Log-densities of a mixture given in doubles or mpf numbers, plus a constant."""
    points, covariances, known = exact(points), list(covariances), {}
    terms, sizes = [], []
    constant = points.shape[1] * MP.log(2 * MP.pi)
    for weight, mean, covariance in zip(weights, means, covariances, strict=True):
        key = covariance.dtype, covariance.shape, covariance.tobytes()  # of mpf, addresses
        if key not in known:
            known[key] = Gaussian(exact(covariance))
        gaussian = known[key]
        squares = np.array([gaussian.square(delta) for delta in points - exact(mean)])
        log_weight = MP.log(weight)
        terms.append(log_weight + log_scale - (constant + gaussian.log_det + squares) / 2)
        size = abs(log_weight) + abs(log_scale) + (constant + abs(gaussian.log_det)) / 2
        sizes.append(1 + size + squares / 2)
    peaks = np.max(terms, axis=0)
    values = peaks + _log(_exp(np.array(terms) - peaks).sum(axis=0))
    likeliest = np.argmax(terms, axis=0)
    return Reference(values, np.array(sizes)[likeliest, range(len(points))])


def identity(d: int, covariance: np.ndarray) -> np.ndarray:
    """In the shape of a covariance."""
    return exact(np.eye(d) if covariance.ndim == 2 else np.ones(d))


def frame_reference(model: OnlineKDEDensity, points: np.ndarray) -> Reference:
    """Of a fitted model as its sample model and its frame say, in exact arithmetic from there on.

    The kernel is the covariance that is exactly the identity, or a multiple of it, in the frame.
    """
    kde = model._kde(model._settings())
    frame = kde.families[0].kernels.frame
    assert all(family.kernels.frame is frame for family in kde.families)
    center, spread, matrix = map(exact, (frame.center, frame.spread, frame.matrix))
    d, full = len(center), matrix.ndim == 2
    turn = matrix / spread[:, None] if full else matrix / spread

    def mapped(rows: np.ndarray) -> np.ndarray:
        deltas = exact(rows) - center
        return deltas @ turn if full else deltas * turn

    parts = []
    for family, held in zip(kde.families, kde.weights, strict=True):
        scales = list(zip(exact(family.kernels.widths), exact(family.kernels.shrinks), strict=True))
        for number, width in zip(*np.nonzero(held[0]), strict=True):
            model, (b, a) = family.models.part(number), scales[width]
            counts, means = exact(model.counts), mapped(model.means)
            compounds = [
                turn.T @ cov @ turn if full else cov * turn**2 for cov in exact(model.covariances)
            ]
            covariances = [a**2 * (cov + b**2 * identity(d, cov)) for cov in compounds]
            covariances += [(a * b) ** 2 * exact(np.ones(d))] * (len(counts) - len(compounds))
            share = exact(held[0, number, width])
            parts += zip(share * counts, a * means, covariances, strict=True)
    weights, means, covariances = zip(*parts, strict=True)
    weights = np.array(weights) / MP.fsum(weights)
    log_scale = Gaussian(matrix).log_det - MP.fsum(_log(spread))
    return reference(mapped(points), weights, means, covariances, log_scale)


def model_arrays(
    log_weights: np.ndarray,
    means: np.ndarray,
    compounds: np.ndarray,
    widths: np.ndarray,
    shrinks: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """What `log_mixtures` takes after the points, of one model under each of the kernels."""
    under_each = np.eye(len(widths))[:, None]
    parts = np.zeros(len(means), dtype=np.intp)
    decomposed = decompose(means, compounds, widths, shrinks)
    return under_each, None, log_weights, means, parts, *decomposed, widths, shrinks


# -------------------------------------------------------------------------------------- peers


class Mixture(NamedTuple):
    """Of Gaussians, in doubles."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


def scikit_learn(mixture: Mixture, points: np.ndarray) -> np.ndarray:
    """`GaussianMixture.score_samples`; NaN where it refuses a covariance."""
    covariance_type = "full" if mixture.covariances.ndim == 3 else "diag"
    model = GaussianMixture(len(mixture.weights), covariance_type=covariance_type)
    model.weights_, model.means_ = mixture.weights, mixture.means
    if covariance_type == "diag":
        model.precisions_cholesky_ = 1.0 / np.sqrt(mixture.covariances)
        return model.score_samples(points)
    identity = np.eye(points.shape[1])
    try:  # as its fit does
        roots = [cholesky(cov, lower=True) for cov in mixture.covariances]
    except np.linalg.LinAlgError:
        return np.full(len(points), np.nan)
    model.precisions_cholesky_ = np.array(
        [solve_triangular(root, identity, lower=True).T for root in roots]
    )
    return model.score_samples(points)


def scipy(mixture: Mixture, points: np.ndarray) -> np.ndarray:
    """The sum over `multivariate_normal.logpdf`; NaN where it refuses a covariance."""
    terms = []
    for weight, mean, cov in zip(*mixture, strict=True):
        try:
            gaussian = multivariate_normal(mean, cov if cov.ndim == 2 else np.diag(cov))
        except np.linalg.LinAlgError:
            return np.full(len(points), np.nan)
        terms.append(np.log(weight) + gaussian.logpdf(points))
    return logsumexp(terms, axis=0)


PEERS = {"GaussianMixture": scikit_learn, "multivariate_normal": scipy}


def errors_of_peers(truth: Reference, mixture: Mixture, points: np.ndarray) -> dict[str, Any]:
    found = {}
    for name, scores_of in PEERS.items():
        scores = scores_of(mixture, points)
        refused = np.isnan(scores).any()
        found[name] = np.full(len(points), np.nan) if refused else truth.errors(scores)
    return found


# ------------------------------------------------------------------------------------- kernel


def rotation(d: int, covariance_type: str, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(d, d)))[0] if covariance_type == "full" else np.eye(d)


def around(
    means: np.ndarray, roots: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Points at each of the places, and which: so many standard deviations from each mean.

    Those between are half way from one mean to the next.
    """
    points, places = [], []
    for place, distance in PLACES.items():
        for mean, after, root in zip(means, np.roll(means, -1, axis=0), roots, strict=True):
            direction = rng.normal(size=len(mean))
            direction *= distance / np.linalg.norm(direction)
            middle = 0.5 * (mean + after) if place == "between" else mean
            points.append(middle + root @ direction)
            places.append(place)
    return np.array(points), np.array(places)


class KernelCase(NamedTuple):
    """Two compounds and a Dirac, whose covariance is I, in kernel coordinates."""

    mixture: Mixture
    points: np.ndarray
    places: np.ndarray

    @property
    def compounds(self) -> np.ndarray:
        """What the kernel takes: S = C - I of the compounds, which is exact, flattened."""
        covariances = self.mixture.covariances
        d = covariances.shape[-1]
        ones = np.eye(d) if covariances.ndim == 3 else np.ones(d)
        return (covariances[:2] - ones).reshape(2, -1)

    def scores(self, widths: np.ndarray = ONE, shrinks: np.ndarray = ONE) -> np.ndarray:
        weights, means, _ = self.mixture
        arrays = model_arrays(np.log(weights), means, self.compounds, widths, shrinks)
        return log_mixtures(self.points, *arrays)

    def truth(self, b: float = 1.0, a: float = 1.0) -> Reference:
        """The error against it is that of the kernel alone, but for the weights' logarithms."""
        weights, means, covariances = self.mixture
        b, a = MP.mpf(b), MP.mpf(a)
        covariances = [
            a**2 * (exact(cov) + (b**2 - 1) * identity(len(cov), cov)) for cov in covariances[:2]
        ] + [(a * b) ** 2 * exact(np.ones(means.shape[1]))]
        return reference(self.points, weights, a * exact(means), covariances)


@cache
def kernel_case(covariance_type: str, d: int, condition: float, seed: int = 0) -> KernelCase:
    """The compounds' variances are from 2 to 4 times the condition, along the same axes."""
    rng = np.random.default_rng([seed, d])
    axes = rotation(d, covariance_type, rng)
    variances = np.geomspace(2.0, 2.0 * condition, d) * rng.uniform(1.0, 2.0, size=(2, d))
    variances = np.concatenate([variances, np.ones((1, d))])
    roots = axes * np.sqrt(variances)[:, None]
    if covariance_type == "full":
        covariances = roots @ roots.transpose(0, 2, 1)
        covariances[2] = np.eye(d)
    else:
        covariances = variances
    means = 1.5 * rng.normal(size=(3, d)) @ roots[0].T
    points, places = around(means, roots, rng)
    return KernelCase(Mixture(np.array([0.5, 0.2, 0.3]), means, covariances), points, places)


def kernel() -> pd.DataFrame:
    """The compiled kernel's own error, that of decomposing the covariances included."""
    frames = []
    for kind, d, condition in product(COVARIANCES, DIMENSIONS, CONDITIONS):
        case = kernel_case(kind, d, condition)
        truth = case.truth()
        columns = {"covariances": kind, "features": d, "condition": condition, "at": case.places}
        columns["skokde"] = truth.errors(case.scores()[:, 0])
        columns |= errors_of_peers(truth, case.mixture, case.points)
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames)


def determinants() -> pd.DataFrame:
    """Errors of log |S + I| as the unscented Hellinger distance and the log-densities take it."""
    found = []
    for kind, d, condition in product(COVARIANCES, DIMENSIONS, CONDITIONS):
        truth, *figures = log_determinants(kernel_case(kind, d, condition))
        hellinger, scoring = (truth.errors(log_dets).max() for log_dets in figures)
        found.append((kind, d, condition, hellinger, scoring))
    names = ["covariances", "features", "condition", "factorize_all", "decompose"]
    return pd.DataFrame(found, columns=names)


def log_determinants(case: KernelCase) -> tuple[Reference, np.ndarray, np.ndarray]:
    """Of all S + I, what they are, and what `factorize_all` and `decompose` make of them."""
    log_dets = [Gaussian(exact(cov)).log_det for cov in case.mixture.covariances[:2]]
    truth = Reference(np.array(log_dets), np.ones(2))
    d = case.points.shape[1]
    scoring = decompose(case.mixture.means, case.compounds, ONE, ONE)[-1][:, 0]
    return truth, factorize_all(case.compounds, d)[2], scoring


# ------------------------------------------------------------------------------------- models

BANDWIDTHS = ("array", "plugin", "predictive")


class ModelCase(NamedTuple):
    model: OnlineKDEDensity
    points: np.ndarray
    places: np.ndarray

    @property
    def mixture(self) -> Mixture:
        return Mixture(*self.model.distribution().arrays)

    @property
    def condition(self) -> float:
        """The largest of the scored covariances once features are standardised, as skokde does."""
        covariances = self.mixture.covariances
        if covariances.ndim == 2:
            return 1.0
        spread = np.sqrt(np.diagonal(self.model.bandwidth_))
        return float(np.linalg.cond(covariances / np.outer(spread, spread)).max())


@cache
def model_case(
    covariance_type: str, d: int, condition: float, bandwidth: str, compressed: bool
) -> ModelCase:
    """Fitted on two clumps: 20 rows, or 60 and at most 4 components. `array` is a tenth of C."""
    rng = np.random.default_rng([d, compressed])
    axes = rotation(d, covariance_type, rng)
    root = axes * np.sqrt(np.geomspace(1.0 / condition, 1.0, d))
    n = 60 if compressed else 20
    clumps = 3.0 * rng.normal(size=(2, d))
    X = (rng.normal(size=(n, d)) + clumps[rng.integers(2, size=n)]) @ root.T
    variances = 0.1 * (root @ root.T if covariance_type == "full" else np.diagonal(root) ** 2)
    model = OnlineKDEDensity(
        covariance_type=covariance_type,
        compression_threshold=0.08,  # one shape of the kernels: all have the same frame
        bandwidth=variances if bandwidth == "array" else bandwidth,
        max_components=4 if compressed else None,
    ).fit(X)
    points, places = around(X[:2], [root, root], rng)
    return ModelCase(model, points, places)


def models() -> pd.DataFrame:
    """Of fitted models, those of evaluating and those against the covariances of `distribution`.

    The peers are given the latter, and their errors are against the same.
    """
    frames = []
    cases = product(COVARIANCES, DIMENSIONS, CONDITIONS, BANDWIDTHS, (False, True))
    for kind, d, condition, bandwidth, compressed in cases:
        try:
            case = model_case(kind, d, condition, bandwidth, compressed)
        except ValueError:  # an array that is singular but for rounding
            continue
        truth, scores = reference(case.points, *case.mixture), case.model.score_samples(case.points)
        columns = {
            "covariances": kind,
            "features": d,
            "condition": condition,
            "bandwidth": bandwidth,
            "compressed": compressed,
            "at": case.places,
            "condition in the end": case.condition,
            "evaluation": frame_reference(case.model, case.points).errors(scores),
            "skokde": truth.errors(scores),
        }
        frames.append(pd.DataFrame(columns | errors_of_peers(truth, case.mixture, case.points)))
    return pd.concat(frames)


# --------------------------------------------------------------------------------------- command

TABLES = {"kernel": kernel, "determinants": determinants, "models": models}
# The columns of a table that are said once for all points.
CASES = ("covariances", "features", "condition", "bandwidth", "compressed")


def worst(frame: pd.DataFrame) -> pd.DataFrame:
    """The largest figures over the points; none where a peer has refused."""
    by = [name for name in CASES if name in frame]
    return frame.drop(columns="at", errors="ignore").groupby(by, sort=False).max().reset_index()


def markdown(frame: pd.DataFrame) -> str:
    return frame_markdown(worst(frame), lambda value: "" if np.isnan(value) else f"{value:.0e}")


def main(description: str) -> None:
    from evaluation.cells import versions  # what it imports Windows lacks, and tests import this

    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    options = parser.parse_args()
    make_tables(
        "precision", TABLES, options.tables, options.out, markdown, versions(), float_format="%.2g"
    )
