"""Outlier detection beside scikit-learn's detectors and river's, and false-alarm levels."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import OneClassSVM

from evaluation.datasets import load_dataset
from evaluation.options import add_common_options
from evaluation.tables import decimals, frame_markdown
from skokde import OnlineKDEOutlierDetector

SETS = ("skin", "covtype", "yeast", "segment", "letter", "eegeye")
QUICK_SETS = ("yeast", "segment")
# Robust deviations from the median beyond which rows of eegeye are outliers.
GROSS = 20.0
MOST_INLIERS, MOST_OUTLIERS = 8000, 200
CONTAMINATION = 0.05
MOST_STREAMED = 5000
LEVELS = (0.01, 0.05)
# Seed 1 is the one by which the detector's constants were chosen.
FIRST_SEED = 2

SKOKDE, TREES = "skokde", "river HalfSpaceTrees"


# ---------------------------------------------------------------------------------- detectors


class HalfSpaceTrees(BaseEstimator):
    """River's, for arrays; it takes features from 0 to 1."""

    def fit(self, X: np.ndarray, y: Any = None) -> HalfSpaceTrees:
        from river.anomaly import HalfSpaceTrees as Trees

        self.model_ = Trees(seed=0)
        for row in X:
            self.model_.learn_one(dict(enumerate(row.tolist())))
        return self

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        return -np.array([self.model_.score_one(dict(enumerate(r.tolist()))) for r in X])


class DensityAlone(OnlineKDEOutlierDetector):
    """Present log-densities, of rows that repeat learned ones, too."""

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        return self.density_.score_samples(X)


def detectors(seed: int) -> dict[str, Any]:
    return {
        SKOKDE: OnlineKDEOutlierDetector(),
        "skokde, present log-density": DensityAlone(),
        "skokde, diag": OnlineKDEOutlierDetector(covariance_type="diag"),
        "IsolationForest": IsolationForest(random_state=seed),
        "LocalOutlierFactor": make_pipeline(StandardScaler(), LocalOutlierFactor(novelty=True)),
        "OneClassSVM": make_pipeline(StandardScaler(), OneClassSVM()),
        TREES: make_pipeline(MinMaxScaler(clip=True), HalfSpaceTrees()),
    }


# ----------------------------------------------------------------------------------- rankings


def inliers_and_outliers(name: str, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    dataset = load_dataset(name, options.data)
    X, y = dataset.X, dataset.y
    if name == "eegeye":
        away = np.abs(X - np.median(X, axis=0))
        out = (away > GROSS * 1.4826 * np.median(away, axis=0)).any(axis=1)
    else:
        out = y == np.bincount(y).argmin()
    return X[~out], X[out]


def split(
    name: str, contaminated: bool, seed: int, options: argparse.Namespace
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, test rows, and which of the latter are outliers."""
    rng = np.random.default_rng(seed)
    inliers, outliers = map(rng.permutation, inliers_and_outliers(name, options))
    inliers = inliers[:MOST_INLIERS]
    n = int(0.75 * len(inliers))
    # The same outliers are for training in both variants, so that the tests are the same.
    n_added = min(len(outliers) // 2, int(CONTAMINATION * n))
    train, added = inliers[:n], outliers[:n_added]
    if contaminated:
        train = rng.permutation(np.concatenate([train, added]))
    found = outliers[n_added:][:MOST_OUTLIERS]
    test = np.concatenate([inliers[n:], found])
    return train, test, np.arange(len(test)) >= len(inliers) - n


def figures_of(is_outlier: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    # What no density reaches is the same to all of them.
    scores = np.maximum(scores, -1e300)
    return {
        "auc": roc_auc_score(is_outlier, -scores),
        "precision": average_precision_score(is_outlier, -scores),
    }


def ranked(
    name: str, contaminated: bool, seed: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    train, test, is_outlier = split(name, contaminated, seed, options)
    lines = []
    for method, detector in detectors(seed).items():
        start = time.process_time()
        scores = detector.fit(train).score_samples(test)
        line = {
            "table": "contaminated" if contaminated else "clean",
            "set": name,
            "seed": seed,
            "method": method,
            "n_train": len(train),
            "n_outliers": int(is_outlier.sum()),
            "seconds": time.process_time() - start,
        }
        lines.append(line | figures_of(is_outlier, scores))
    return lines


def streamed(name: str, seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows and outliers, one by one, each scored before it is learned, by those that can."""
    from river.anomaly import HalfSpaceTrees as Trees
    from river.preprocessing import MinMaxScaler as OnlineMinMax

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    inliers, outliers = map(rng.permutation, inliers_and_outliers(name, options))
    inliers = inliers[:MOST_STREAMED]
    outliers = outliers[: int(CONTAMINATION * len(inliers))]
    order = rng.permutation(len(inliers) + len(outliers))
    X, is_outlier = np.concatenate([inliers, outliers])[order], order >= len(inliers)
    first = 50  # rows before which nobody is asked
    found = {}

    start = time.process_time()
    for method, memory in ((SKOKDE, 1.0), ("skokde, predictive memory", "predictive")):
        start = time.process_time()
        detector, scores = OnlineKDEOutlierDetector(forgetting_factor=memory), np.zeros(len(X))
        detector.partial_fit(X[:first])
        for i in range(first, len(X)):
            scores[i] = detector.density_.score_samples(X[[i]])[0]
            detector.partial_fit(X[[i]])
        found[method] = scores, time.process_time() - start
    start = time.process_time()
    scaler, trees, scores = OnlineMinMax(), Trees(seed=0), np.zeros(len(X))
    for i, row in enumerate(X):
        row = dict(enumerate(row.tolist()))
        scaler.learn_one(row)
        row = scaler.transform_one(row)
        scores[i] = -trees.score_one(row)
        trees.learn_one(row)
    found[TREES] = scores, time.process_time() - start
    return [
        {
            "table": "stream",
            "set": name,
            "seed": seed,
            "method": method,
            "n_train": len(X),
            "n_outliers": int(is_outlier[first:].sum()),
            "seconds": seconds,
        }
        | figures_of(is_outlier[first:], scores[first:])
        for method, (scores, seconds) in found.items()
    ]


# ------------------------------------------------------------------------------------- levels


def clusters(n: int, rng: np.random.Generator) -> np.ndarray:
    centers, sizes, of = rng.normal(0, 3, (3, 3)), rng.uniform(0.3, 1.5, 3), rng.integers(0, 3, n)
    return centers[of] + rng.normal(size=(n, 3)) * sizes[of, None]


def heavy_tails(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_t(3, (n, 3))


def moving(n: int, rng: np.random.Generator) -> np.ndarray:
    of, angle = rng.integers(0, 3, n), np.linspace(0.0, 4.0 * np.pi, n)[:, None]
    one, other = rng.normal(0.0, 3.0, (2, 3, 3))
    return np.cos(angle) * one[of] + np.sin(angle) * other[of] + rng.normal(0.0, 0.5, (n, 3))


def changed(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([clusters(n // 2, rng), clusters(n - n // 2, rng)])


def changed_often(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([clusters(n // 4, rng) for _ in range(4)])


Maker = Callable[[int, np.random.Generator], np.ndarray]
STREAMS: dict[str, tuple[Maker | None, tuple[float | str, ...]]] = {
    "clusters": (clusters, (1.0, "predictive")),
    "t, 3 degrees of freedom": (heavy_tails, (1.0,)),
    "clusters that move": (moving, ("predictive", 0.99, 1.0)),
    "sudden change in the middle": (changed, ("predictive", 0.99, 1.0)),
    "three sudden changes": (changed_often, ("predictive",)),
    "letter, shuffled": (None, (1.0,)),
    "eegeye, in its order": (None, ("predictive",)),
}


def rows_of(stream: str, n: int, seed: int, options: argparse.Namespace) -> np.ndarray:
    maker, _ = STREAMS[stream]
    if maker is not None:
        return maker(n, np.random.default_rng(seed))
    X = load_dataset(stream.split(",")[0], options.data).X
    if stream.endswith("shuffled"):
        X = np.random.default_rng(seed).permutation(X)
    return X[:n]


def levels_of(
    stream: str, memory: float | str, seed: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Shares of rows with p-values up to each level, before they were learned."""
    warnings.simplefilter("ignore")
    n = 2000 if options.quick else 12_000
    X = rows_of(stream, n, seed, options)
    detector, p = OnlineKDEOutlierDetector(forgetting_factor=memory), np.ones(len(X))
    start = time.process_time()
    detector.partial_fit(X[:1])
    for i in range(1, len(X)):
        p[i] = detector.p_values(X[[i]])[0]
        detector.partial_fit(X[[i]])
    line = {"stream": stream, "memory": str(memory), "seed": seed, "n": len(X)}
    line |= {f"at {level:.0%}": 100.0 * np.mean(p <= level) for level in LEVELS}
    return line | {"ms_per_row": 1e3 * (time.process_time() - start) / len(X)}


# ------------------------------------------------------------------------------------- tables


def ranking_tables(figures: pd.DataFrame, table: str) -> str:
    held = figures[figures["table"] == table]
    parts = []
    for column, name in (("auc", "Area under the ROC curve"), ("precision", "Average precision")):
        means = held.pivot_table(index="method", columns="set", values=column, sort=False)
        means.insert(0, "mean", means.mean(axis=1))
        means = means.sort_values("mean", ascending=False).reset_index()
        parts.append(f"{name}:\n\n{frame_markdown(means, decimals(3))}")
    sizes = held.groupby("set", sort=False)[["n_train", "n_outliers"]].first()
    texts = [f"{s} {n.n_train} and {n.n_outliers}" for s, n in sizes.iterrows()]
    what = (
        "rows in all, and outliers among them"
        if table == "stream"
        else ("rows that are learned, and outliers in the test")
    )
    parts.append(f"Numbers of {what}: {', '.join(texts)}.")
    seconds = held.groupby("method", sort=False)["seconds"].mean()
    texts = [f"{method} {value:.1f}" for method, value in seconds.items()]
    parts.append(f"CPU seconds on average: {', '.join(texts)}.")
    return "\n\n".join(parts)


def losses(figures: pd.DataFrame) -> str:
    """Where another library's detector has a higher mean than skokde's default."""
    lines = []
    for (table, name), held in figures.groupby(["table", "set"], sort=False):
        for column in ("auc", "precision"):
            means = held.groupby("method", sort=False)[column].mean()
            others = means[[m for m in means.index if not m.startswith(SKOKDE)]]
            better = others[others > means[SKOKDE] + 5e-4].sort_values(ascending=False)
            if len(better):
                texts = [f"{method} {value:.3f}" for method, value in better.items()]
                figure = "ROC AUC" if column == "auc" else "average precision"
                lines.append(
                    f"- {table}, {name}, {figure}: skokde {means[SKOKDE]:.3f}; {', '.join(texts)}"
                )
    return "\n".join(lines) or "None."


def level_table(levels: pd.DataFrame) -> str:
    columns = [f"at {level:.0%}" for level in LEVELS]
    grouped = levels.groupby(["stream", "memory"], sort=False)
    table = grouped[columns].mean()
    for column in columns:
        table[f"worst {column}"] = grouped[column].agg(
            lambda v, stated=float(column[3:-1]): v.iloc[(v - stated).abs().argmax()]
        )
    table["rows"] = grouped["n"].first()
    table["ms a row"] = grouped["ms_per_row"].mean()
    return frame_markdown(table.reset_index(), decimals(2))


def report(figures: pd.DataFrame, levels: pd.DataFrame) -> str:
    n = figures["seed"].nunique()
    return f"""# Outliers

Made by `benchmarks/outliers.py`; means over {n} shuffle{"s" if n > 1 else ""}. Methods have their
defaults. Not more than {MOST_INLIERS:,} rows of a set are taken (skin, covtype, letter and eegeye
are subsampled), {MOST_STREAMED:,} in the streams.

## Trained on rows without outliers

{ranking_tables(figures, "clean")}

## Trained on rows with outliers among them

Outliers that are not in the test are added, as 5 % of the training rows or half of all there are.

{ranking_tables(figures, "contaminated")}

## Row by row, outliers among the rows

Each row is scored before it is learned; up to 5 % are outliers. river's features are scaled by the
least and the largest so far.

{ranking_tables(figures, "stream")}

## Losses

Where a detector of another library has a higher mean than skokde with its defaults:

{losses(figures)}

## False-alarm levels

Percent of rows with a p-value of at most 1 % and 5 %, of p-values before rows were learned, from
the second row on; and that of the shuffle in which it was farthest from the level.

{level_table(levels)}
"""


def main(description: str) -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser)
    parser.add_argument("--sets", nargs="+", default=None, choices=SETS, metavar="SET")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help=f"{', '.join(QUICK_SETS)}; one split, short streams"
    )
    options = parser.parse_args()
    sets = options.sets or (QUICK_SETS if options.quick else SETS)
    seeds = range(FIRST_SEED, FIRST_SEED + (1 if options.quick else options.splits))
    run = Parallel(options.n_jobs, verbose=5)
    lines = run(
        delayed(ranked)(name, contaminated, seed, options)
        for name, contaminated, seed in product(sets, (False, True), seeds)
    )
    lines += run(delayed(streamed)(name, seed, options) for name, seed in product(sets, seeds))
    figures = pd.DataFrame([line for part in lines for line in part])
    options.out.mkdir(parents=True, exist_ok=True)
    figures.to_csv(options.out / "outliers.csv", index=False, float_format="%.6g")
    cells = [
        (stream, memory, seed)
        for stream, (maker, memories) in STREAMS.items()
        # Without a generator, and on the quick run without a set, there is one order at most.
        for memory, seed in product(memories, seeds)
        if maker is not None
        or (stream.split(",")[0] in sets and (stream.endswith("shuffled") or seed == FIRST_SEED))
    ]
    levels = pd.DataFrame(run(delayed(levels_of)(*cell, options) for cell in cells))
    levels.to_csv(options.out / "outliers_levels.csv", index=False, float_format="%.6g")
    text = report(figures, levels)
    (options.out / "outliers.md").write_text(text)
    print(text)
