"""Densities of hundreds of features, each in a process of its own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_digits, load_sample_image
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from evaluation.cells import peak_memory, start_peak
from evaluation.datasets import load_dataset
from evaluation.tables import tables_command
from skokde import OnlineKDEClassifier, OnlineKDEDensity

N_CLUSTERS, N_DIRECTIONS = 10, 16
SIZES = {128: (20000,), 384: (300, 1000, 20000), 1536: (5000,)}
N_TEST = 1000
PATCH = (8, 16)
N_PATCHES = (1000, 20000)
N_TRAINED = {"digits": (300, 900), "gas": (5022,)}
FLOOR = -690.8  # of log-densities, as in the evaluation


class FactorMixture(NamedTuple):
    """Clusters whose rows are a mean, some directions times normal numbers, and noise."""

    means: np.ndarray
    directions: np.ndarray
    noises: np.ndarray

    @classmethod
    def of(cls, d: int) -> FactorMixture:
        rng = np.random.default_rng(0)
        return cls(
            rng.normal(size=(N_CLUSTERS, d)),
            0.35 * rng.normal(size=(N_CLUSTERS, N_DIRECTIONS, d)),
            rng.uniform(0.5, 1.5, size=(N_CLUSTERS, d)),
        )

    def rows(self, n: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        cluster = rng.integers(0, N_CLUSTERS, n)
        factors = rng.normal(size=(n, N_DIRECTIONS))
        noise = rng.normal(size=(n, self.means.shape[1])) * np.sqrt(self.noises[cluster])
        return (
            self.means[cluster] + np.einsum("nr,nrd->nd", factors, self.directions[cluster]) + noise
        )

    def outliers(self, n: int, seed: int) -> np.ndarray:
        """Rows with the same means and variances in each cluster, and no correlations."""
        rng = np.random.default_rng(seed)
        cluster = rng.integers(0, N_CLUSTERS, n)
        variances = self.noises + np.square(self.directions).sum(axis=1)
        return self.means[cluster] + rng.normal(size=(n, self.means.shape[1])) * np.sqrt(
            variances[cluster]
        )

    def log_density(self, X: np.ndarray) -> np.ndarray:
        logs = []
        for mean, directions, noise in zip(*self, strict=True):
            away, scaled = (X - mean) / np.sqrt(noise), directions / np.sqrt(noise)
            lower = np.linalg.cholesky(np.eye(N_DIRECTIONS) + scaled @ scaled.T)
            explained = np.linalg.solve(lower, scaled @ away.T)
            squares = (away**2).sum(axis=1) - (explained**2).sum(axis=0)
            log_det = np.log(noise).sum() + 2.0 * np.log(np.diag(lower)).sum()
            logs.append(-0.5 * (squares + log_det + X.shape[1] * np.log(2.0 * np.pi)))
        return logsumexp(logs, axis=0) - np.log(N_CLUSTERS)


class ShrunkGaussian:
    """Ledoit and Wolf's."""

    def fit(self, X: np.ndarray) -> ShrunkGaussian:
        self.estimate = LedoitWolf().fit(X)
        return self

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        estimate = self.estimate
        return multivariate_normal(estimate.location_, estimate.covariance_).logpdf(X)


DENSITIES: dict[str, Callable[[], Any]] = {
    "skokde lowrank": lambda: OnlineKDEDensity(covariance_type="lowrank"),
    "skokde diag": lambda: OnlineKDEDensity(covariance_type="diag"),
    "LedoitWolf": ShrunkGaussian,
    "FactorAnalysis, 32": lambda: FactorAnalysis(n_components=32),
    "GaussianMixture diag, 10": lambda: GaussianMixture(
        N_CLUSTERS, covariance_type="diag", random_state=0
    ),
    "GaussianMixture full, 10": lambda: GaussianMixture(
        N_CLUSTERS, covariance_type="full", random_state=0
    ),
    "PCA 32, KernelDensity": lambda: make_pipeline(
        PCA(32, whiten=True, random_state=0), KernelDensity(bandwidth="scott")
    ),
    "IsolationForest": lambda: IsolationForest(random_state=0),
}
# Scores that are no densities of all features.
NO_DENSITY = ("PCA 32, KernelDensity", "IsolationForest")


def of_mixture(task: tuple[str, int, int]) -> dict[str, Any]:
    """One density of so many rows of so many features."""
    name, d, n = task
    mixture = FactorMixture.of(d)
    new = mixture.rows(N_TEST, 2)
    figures = measured(name, mixture.rows(n, 1), new, mixture.outliers(N_TEST, 3))
    below = mixture.log_density(new).mean() + figures.pop("-log p")
    return {"features": d, "rows": n, "density": name, "nats below the true one": below, **figures}


def of_images(task: tuple[str, int]) -> dict[str, Any]:
    """One density of so many patches of a picture, told apart from those of another one.

    A patch is 8 times 16 pixels of three colours, with noise of less than a whole number in place
    of what was rounded away. Learned patches and new ones do not overlap.
    """
    name, n = task
    china, flower = (load_sample_image(f"{picture}.jpg") for picture in ("china", "flower"))
    border = 3 * china.shape[1] // 4
    rows = patches(china[:, :border], n, 1), patches(china[:, border:], N_TEST, 2)
    figures = measured(name, *rows, patches(flower, N_TEST, 3))
    return {"features": rows[0].shape[1], "rows": n, "density": name, **figures}


def patches(picture: np.ndarray, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    windows = np.lib.stride_tricks.sliding_window_view(picture, PATCH, axis=(0, 1))
    places = rng.integers(0, windows.shape[:2], size=(n, 2))
    chosen = windows[places[:, 0], places[:, 1]].reshape(n, -1)
    return chosen + rng.uniform(size=chosen.shape)


def measured(name: str, X: np.ndarray, new: np.ndarray, outliers: np.ndarray) -> dict[str, Any]:
    """Quality and cost of a density of rows, by as many new rows as outliers."""
    with threadpool_limits(1):
        before, start = start_peak(), time.process_time()
        density = DENSITIES[name]().fit(X)
        fitted = time.process_time()
        scores = density.score_samples(new)
        scored = time.process_time()
        memory = peak_memory() - before
        is_usual = np.repeat([1, 0], N_TEST)
        area = roc_auc_score(is_usual, np.append(scores, density.score_samples(outliers)))
        return {
            "-log p": np.nan if name in NO_DENSITY else -scores.mean(),
            "ROC AUC": area,
            "rows learned a second": len(X) / (fitted - start),
            "rows scored a second": N_TEST / (scored - fitted),
            "MB": memory,
            "components": getattr(density, "n_components_", np.nan),
        }


def in_processes(function: Callable[[Any], Any], tasks: list[Any]) -> Iterator[Any]:
    """Results, each from a new process, so that memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for result in pool.map(function, tasks):
            print(result, flush=True)
            yield result


def mixtures(options: argparse.Namespace) -> pd.DataFrame:
    tasks = [
        (name, d, n)
        for d, sizes in SIZES.items()
        for n in sizes
        for name in DENSITIES
        # Ten covariances of 1,536 features are 9 million numbers from 5,000 rows.
        if (name, d) != ("GaussianMixture full, 10", 1536)
    ]
    return pd.DataFrame(in_processes(of_mixture, tasks))


def images(options: argparse.Namespace) -> pd.DataFrame:
    tasks = [(name, n) for n in N_PATCHES for name in DENSITIES]
    return pd.DataFrame(in_processes(of_images, tasks))


def of_classes(task: tuple[str, int, str, Any]) -> dict[str, Any]:
    """A classifier of the first rows, tested on the last ones."""
    name, n, covariance_type, folder = task
    X, y = load_digits(return_X_y=True) if name == "digits" else load_dataset(name, folder)[1:3]
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:n], order[N_TRAINED[name][-1] :]
    with threadpool_limits(1):
        start = time.process_time()
        classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[train], y[train])
        seconds = time.process_time() - start
        code = np.searchsorted(classifier.classes_, y[test]), np.arange(len(test))
        proba = classifier.predict_proba(X[test])[code[::-1]]
        joint = classifier.predict_joint_log_proba(X[test])[code[::-1]]
        own = np.maximum(joint - np.log(classifier.class_prior_[code[0]]), FLOOR)
        return {
            "set": name,
            "rows": n,
            "covariances": covariance_type,
            "accuracy": 100.0 * classifier.score(X[test], y[test]),
            "log-loss": -np.log(np.maximum(proba, 1e-300)).mean(),
            "-log p": -own.mean(),
            "seconds": seconds,
        }


def classes(options: argparse.Namespace) -> pd.DataFrame:
    tasks = [
        (name, n, covariance_type, options.data)
        for name, sizes in N_TRAINED.items()
        for n in sizes
        for covariance_type in ("lowrank", "diag", "spherical", "full")
        if (name, covariance_type) != ("gas", "spherical")
    ]
    return pd.DataFrame(in_processes(of_classes, tasks))


TABLES = {"mixtures": mixtures, "images": images, "classes": classes}


def main(description: str) -> None:
    title = "Hundreds of features: covariances of low rank"
    tables_command("lowrank", description, TABLES, digits=2, title=title)
