"""Items of the paper's future work, each in plain NumPy, beside what skokde does in its place."""

from __future__ import annotations

import argparse
import pickle
import time
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from scipy.special import gammaln, logsumexp
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from evaluation.datasets import load_dataset
from evaluation.protocol import StreamSplit
from evaluation.tables import tables_command
from skokde import DegenerateDataWarning, OnlineKDEClassifier, OnlineKDEDensity
from skokde._engine.bandwidth import RULES
from skokde._engine.compression import cluster
from skokde._engine.covariance import EIGENVALUE_FLOOR, STRUCTURES, FullCovariance, Spectrum
from skokde._engine.kde import components_in
from skokde._engine.mixture import Mixture, moments_of_groups

SETS = ("yeast", "pima", "white", "letter", "segment", "steel")
MOST_ROWS = 1000  # of a class
SCALES = np.array([0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0])  # of Silverman's width
FLOOR = -690.0  # of log-densities, as in the evaluation
SHARE_OF_VALIDATION = 0.25

Rows = tuple[np.ndarray, np.ndarray]
Kernel = Callable[[np.ndarray, int], np.ndarray]


def split(name: str, options: argparse.Namespace, seed: int = 0) -> tuple[Rows, Rows]:
    """Rows that are learned, and others that are scored; both are of the training part."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        X, y = load_dataset(name, options.data)[1:3]
    train, _ = StreamSplit().of_seed(len(y), seed)
    train = train[:6000]
    n = int(SHARE_OF_VALIDATION * len(train))
    return (X[train[n:]], y[train[n:]]), (X[train[:n]], y[train[:n]])


# ------------------------------------------------------------------------------ pairwise merging


def log_determinants(covariances: np.ndarray) -> np.ndarray:
    return np.linalg.slogdet(covariances)[1]


def merged_in_pairs(
    weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, n: int
) -> np.ndarray:
    """Clusters (k,) of components that are left when the cheapest pair is merged until n are.

    The cost is Runnalls' bound on the Kullback-Leibler divergence, half of (w_i + w_j) log |P_ij|
    - w_i log |P_i| - w_j log |P_j|.
    """
    k = len(weights)
    weights, means, covariances = weights.copy(), means.copy(), covariances.copy()
    logs, labels, alive = log_determinants(covariances), np.arange(k), np.ones(k, dtype=bool)

    def together(i: int, js: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        share = weights[js] / (weights[i] + weights[js])
        away = means[js] - means[i]
        spread = away[:, :, None] * away[:, None, :]
        share = share[:, None, None]
        joint = (
            (1 - share) * covariances[i] + share * covariances[js] + share * (1 - share) * spread
        )
        both = weights[i] + weights[js]
        cost = both * log_determinants(joint) - weights[i] * logs[i] - weights[js] * logs[js]
        return 0.5 * cost, joint

    best, partner = np.full(k, np.inf), np.zeros(k, dtype=np.intp)
    for i in range(k - 1):
        js = np.arange(i + 1, k)
        cost, _ = together(i, js)
        best[i], partner[i] = cost.min(), js[cost.argmin()]
    for _ in range(k - n):
        i = int(best.argmin())
        j = int(partner[i])
        (joint,) = together(i, np.array([j]))[1]
        share = weights[j] / (weights[i] + weights[j])
        means[i] += share * (means[j] - means[i])
        covariances[i], weights[i] = joint, weights[i] + weights[j]
        logs[i], labels[labels == j] = log_determinants(joint), i
        alive[j], best[j] = False, np.inf
        stale = np.flatnonzero(alive & np.isin(partner, [i, j]))
        for at in np.union1d(stale, [i]):
            js = np.flatnonzero(alive & (np.arange(k) > at))
            best[at] = np.inf
            if len(js):
                cost, _ = together(at, js)
                best[at], partner[at] = cost.min(), js[cost.argmin()]
        # Pairs of a component before i with what i has become.
        before = np.flatnonzero(alive & (np.arange(k) < i))
        if len(before):
            cost, _ = together(i, before)
            better = cost < best[before]
            best[before[better]], partner[before[better]] = cost[better], i
    return np.unique(labels, return_inverse=True)[1]


def log_density(
    points: np.ndarray, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray
) -> np.ndarray:
    """Of a mixture of Gaussians whose covariances have the kernel's, the identity, in them."""
    logs = np.empty((len(weights), len(points)))
    for i, (weight, mean, covariance) in enumerate(zip(weights, means, covariances, strict=True)):
        factor = np.linalg.cholesky(covariance)
        z = np.linalg.solve(factor, (points - mean).T)
        logs[i] = np.log(weight) - np.log(np.diag(factor)).sum() - 0.5 * (z**2).sum(axis=0)
    return logsumexp(logs, axis=0) - 0.5 * points.shape[1] * np.log(2.0 * np.pi)


def pairwise(options: argparse.Namespace) -> pd.DataFrame:
    """Both ways to merge the samples of a class, to as many components, under one kernel."""
    lines = []
    for name in SETS:
        (X, y), (new, y_new) = split(name, options)
        label = np.bincount(y).argmax()
        X, new = X[y == label][:400], new[y_new == label]
        mixture = Mixture.empty(X.shape[1], STRUCTURES["full"])
        mixture = mixture._replace(counts=np.ones(len(X)), means=X)
        kernel = RULES["silverman"].kernel_frame(mixture, STRUCTURES["full"])
        components = components_in(kernel.frame, *mixture.sample_model)
        points, rows = components.means, kernel.frame.points(new)
        d, n = points.shape[1], len(points)
        kernels = np.tile(np.eye(d), (n, 1, 1))
        of_all = log_density(rows, np.full(n, 1.0 / n), points, kernels)
        for threshold in (0.02, 0.08, 0.3):
            start = time.process_time()
            (labels,) = cluster(components, np.array([threshold]), kernel.first_cut)
            seconds = {"hierarchical": time.process_time() - start}
            of_ways, k = {"hierarchical": labels}, labels.max() + 1
            start = time.process_time()
            of_ways["pairwise"] = merged_in_pairs(np.full(n, 1.0 / n), points, kernels, k)
            seconds["pairwise"] = time.process_time() - start
            line = {"set": name, "D_th": threshold, "samples": n, "components": k}
            for way, labels in of_ways.items():
                counts, means, flat = moments_of_groups(*components, labels)
                covariances = flat.reshape(-1, d, d) + np.eye(d)
                logs = log_density(rows, counts, means, covariances)
                line[f"nats, {way}"] = (logs - of_all).mean()
            line |= {f"seconds, {way}": seconds[way] for way in of_ways}
            lines.append(line)
    return pd.DataFrame(lines)


# ------------------------------------------------------------------------------- kinds of kernels


def gaussian(squares: np.ndarray, d: int) -> np.ndarray:
    return -0.5 * squares - 0.5 * d * np.log(2.0 * np.pi)


def student(degrees: float) -> Kernel:
    def kernel(squares: np.ndarray, d: int) -> np.ndarray:
        logs = gammaln(0.5 * (degrees + d)) - gammaln(0.5 * degrees)
        logs -= 0.5 * d * np.log(degrees * np.pi)
        return logs - 0.5 * (degrees + d) * np.log1p(squares / degrees)

    return kernel


def epanechnikov(squares: np.ndarray, d: int) -> np.ndarray:
    volume = 0.5 * d * np.log(np.pi) - gammaln(0.5 * d + 1.0)
    with np.errstate(divide="ignore"):
        return np.log(0.5 * (d + 2)) - volume + np.log(np.maximum(1.0 - squares, 0.0))


class Distances:
    """Squared distances under the covariance of a class, shrunk to that of all rows."""

    def __init__(self, own: np.ndarray, all_rows: np.ndarray, new: np.ndarray) -> None:
        self.n, self.d = own.shape
        share = self.d / (self.n + self.d)
        of_class = np.cov(own.T, bias=True) if self.n > 1 else np.zeros((self.d, self.d))
        covariance = (1.0 - share) * of_class + share * np.cov(all_rows.T, bias=True)
        covariance += 1e-9 * np.trace(covariance) / self.d * np.eye(self.d)
        factor = np.linalg.cholesky(covariance)
        own, new = np.linalg.solve(factor, own.T).T, np.linalg.solve(factor, new.T).T
        self.log_det = np.log(np.diag(factor)).sum()
        # A row is as far as can be from itself.
        self.left_out = cdist(own, own, "sqeuclidean") + np.diag(np.full(self.n, 1e300))
        self.of_new = cdist(new, own, "sqeuclidean")
        self.silverman = (4.0 / ((self.d + 2) * self.n)) ** (1.0 / (self.d + 4))

    def log_densities(self, kernel: Kernel, width: float, *, left_out: bool = False) -> np.ndarray:
        """Of the new rows, or of the own ones by the others; floored as in the evaluation."""
        squares = self.left_out if left_out else self.of_new
        n = max(self.n - left_out, 1)
        logs = logsumexp(kernel(squares / width**2, self.d), axis=1)
        return np.maximum(logs - self.d * np.log(width) - self.log_det - np.log(n), FLOOR)


def of_best_width(distances: Distances, kernel: Kernel, unit: float) -> np.ndarray:
    """Log-densities of new rows under the width that predicts the own ones best, left one out."""
    widths = unit * distances.silverman * SCALES
    scores = [distances.log_densities(kernel, w, left_out=True).mean() for w in widths]
    return distances.log_densities(kernel, widths[int(np.argmax(scores))])


def of_mixed_widths(distances: Distances) -> np.ndarray:
    """The same of Gaussians of all widths, weighted by expectation maximisation."""
    widths = distances.silverman * SCALES
    logs = np.array([distances.log_densities(gaussian, w, left_out=True) for w in widths])
    likelihood, weights = np.exp(logs - logs.max(axis=0)), np.full(len(widths), 1.0 / len(widths))
    for _ in range(100):
        shares = weights[:, None] * likelihood
        weights = (shares / shares.sum(axis=0)).mean(axis=1) + 1e-4
        weights /= weights.sum()
    logs = np.array([distances.log_densities(gaussian, w) for w in widths])
    return logsumexp(logs + np.log(weights)[:, None], axis=0)


def kernels(options: argparse.Namespace) -> pd.DataFrame:
    """Estimates from the samples themselves."""
    lines = []
    for name in SETS:
        (X, y), (new, y_new) = split(name, options)
        classes, d = np.unique(y), X.shape[1]
        prior = np.log([np.mean(y == label) for label in classes])
        of_classes = [Distances(X[y == label][:MOST_ROWS], X, new) for label in classes]
        # The radius for which it has the variance of a Gaussian of width one.
        radius = np.sqrt(d + 4.0)
        joints = {
            kind: np.array([make(distances) for distances in of_classes]).T
            for kind, make in {
                "Gaussian": lambda c: of_best_width(c, gaussian, 1.0),
                "Gaussians of all widths": of_mixed_widths,
                "Student, 3": lambda c: of_best_width(c, student(3.0), 1.0),
                "Student, 10": lambda c: of_best_width(c, student(10.0), 1.0),
                "Epanechnikov": lambda c: of_best_width(c, epanechnikov, radius),  # noqa: B023
            }.items()
        }
        line: dict[str, Any] = {"set": name}
        at = np.arange(len(new)), np.searchsorted(classes, y_new)
        for kind, joint in joints.items():
            predicted = classes[(prior + joint).argmax(axis=1)]
            line[f"accuracy, {kind}"] = 100.0 * np.mean(predicted == y_new)
        for kind, joint in joints.items():
            line[f"-log p, {kind}"] = -joint[at].mean()
        line["% of rows at the floor"] = 100.0 * np.mean(joints["Epanechnikov"][at] <= FLOOR)
        lines.append(line)
    return pd.DataFrame(lines)


# ---------------------------------------------------------------------------------- pseudo-inverse


def pseudo_roots(self: FullCovariance, spectrum: Spectrum) -> tuple[Any, Any, float]:
    """Roots within the subspace in which the data have a spread."""
    values, vectors = spectrum
    valid = values > EIGENVALUE_FLOOR * values[-1]
    values, vectors = values[valid], vectors[valid]
    root = (vectors.T * np.sqrt(values)) @ vectors
    inverse = (vectors.T / np.sqrt(values)) @ vectors
    return root, inverse, float(np.log(values).sum())


def with_sums(X: np.ndarray) -> np.ndarray:
    """Features, and sums of two neighbours each, which follow from them."""
    return np.hstack([X, X[:, 1:] + X[:, :-1]])


def pseudoinverse(options: argparse.Namespace) -> pd.DataFrame:
    """Data in a subspace: classes, and outliers that leave it, with the paper's settings."""
    lines = []
    rng = np.random.default_rng(0)
    for name in ("pima", "segment", "letter", "digits"):
        (X, y), (new, y_new) = split(name, options)
        if name != "digits":  # which has constant pixels and few samples
            X, new = with_sums(X), with_sums(new)
        away = new + 0.5 * X.std(axis=0) * rng.normal(size=new.shape)
        settings = {"compression_threshold": 0.1, "bandwidth": "silverman"}
        line: dict[str, Any] = {"set": name, "features": X.shape[1]}
        for way in ("corrected", "pseudo-inverse"):
            roots = FullCovariance.roots if way == "corrected" else pseudo_roots
            with patch.object(FullCovariance, "roots", roots), warnings.catch_warnings():
                warnings.simplefilter("ignore", DegenerateDataWarning)
                classifier = OnlineKDEClassifier(calibrate=False, **settings).fit(X, y)
                line[f"accuracy, {way}"] = 100.0 * classifier.score(new, y_new)
                density = OnlineKDEDensity(**settings).fit(X)
                scores = np.concatenate([density.score_samples(rows) for rows in (new, away)])
            is_away = np.repeat([0, 1], len(new))
            line[f"ROC AUC, {way}"] = roc_auc_score(is_away, -np.nan_to_num(scores))
        lines.append(line)
    return pd.DataFrame(lines)


# ------------------------------------------------------------------------------------------ float32


def rounded(mixture: Mixture) -> Mixture:
    return Mixture(
        *(a if a.dtype == bool else a.astype(np.float32).astype(np.float64) for a in mixture)
    )


def float32(options: argparse.Namespace) -> pd.DataFrame:
    """What single precision saves of a stored model, and what it makes of its log-densities."""
    lines = []
    for name in SETS:
        (X, _), (new, _) = split(name, options)
        for offset in (0.0, 1e3, 1e6):  # from the origin, in standard deviations
            moved = offset * X.std(axis=0)
            density = OnlineKDEDensity().fit(X + moved)
            scores = density.score_samples(new + moved)
            state = density._state
            size = len(pickle.dumps(density))
            half = sum(array.nbytes for array in state.mixture) / 2
            single = OnlineKDEDensity()._copied(vars(density))
            single._state = state._replace(mixture=rounded(state.mixture))
            single._snapshot = type(density._snapshot)()
            others = single.score_samples(new + moved)
            lines.append(
                {
                    "set": name,
                    "offset": f"{offset:g}",
                    "kilobytes": size / 1e3,
                    "in float32": (size - half) / 1e3,
                    "largest error, nats": float(np.abs(others - scores).max()),
                    "change of the mean": float(others.mean() - scores.mean()),
                }
            )
    return pd.DataFrame(lines)


TABLES = {
    "pairwise": pairwise,
    "kernels": kernels,
    "pseudoinverse": pseudoinverse,
    "float32": float32,
}


def main(description: str) -> None:
    tables_command("alternatives", description, TABLES, digits=3)
