"""Classification and imputation with values missing at random, beside scikit-learn's imputers."""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from evaluation.datasets import load_dataset
from evaluation.options import add_common_options
from evaluation.protocol import of_all_labels
from evaluation.tables import decimals, frame_markdown
from skokde import OnlineKDEClassifier, OnlineKDEImputer

SETS = ("pima", "wine", "letter", "segment", "steel")
SHARES = (0.1, 0.3, 0.5)
MOST_TRAINING, MOST_TEST = 1000, 300

SKOKDE = "skokde"


def imputers() -> dict[str, Any]:
    return {
        "OnlineKDEImputer": OnlineKDEImputer(),
        "means": SimpleImputer(),
        "KNNImputer": KNNImputer(),
        "IterativeImputer": IterativeImputer(random_state=0),
    }


def with_holes(X: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Rows with a share of their values missing."""
    return np.where(rng.random(X.shape) < share, np.nan, X)


def split(name: str, share: float, seed: int, options: argparse.Namespace) -> tuple[Any, ...]:
    """Training and test rows with holes, these rows complete, and the classes."""
    dataset = load_dataset(name, options.data)
    train, test = train_test_split(
        np.arange(len(dataset.y)), test_size=0.1, stratify=dataset.y, random_state=seed
    )
    rng = np.random.default_rng(seed)
    train, test = rng.permutation(train)[:MOST_TRAINING], rng.permutation(test)[:MOST_TEST]
    X = dataset.X[:, dataset.X[train].std(axis=0) > 0.0]
    holes = with_holes(X, share, rng)
    return holes[train], holes[test], X[test], dataset.y[train], dataset.y[test]


def scored(model: Any, train: tuple[Any, ...], test: tuple[Any, ...]) -> dict[str, float]:
    """Accuracy in percent, log-loss in nats and CPU seconds."""
    start = time.process_time()
    model.fit(*train)
    proba = model.predict_proba(test[0])
    seconds = time.process_time() - start
    proba, labels = of_all_labels(proba, model.classes_, test[1])
    return {
        "accuracy": 100.0 * np.mean(labels[proba.argmax(axis=1)] == test[1]),
        "log_loss": log_loss(test[1], proba, labels=labels),
        "seconds": seconds,
    }


def run(name: str, share: float, seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All figures of a set, a share of missing values and a split."""
    warnings.simplefilter("ignore")
    train, test, truth, y, y_test = split(name, share, seed, options)
    scale = np.nanstd(train, axis=0)
    train, test, truth = (rows / scale for rows in (train, test, truth))
    lines = []

    def note(method: str, figures: dict[str, float]) -> None:
        lines.append({"set": name, "share": share, "seed": seed, "method": method} | figures)

    note(SKOKDE, scored(OnlineKDEClassifier(), (train, y), (test, y_test)))
    complete = ~np.isnan(train).any(axis=1)
    if len(np.unique(y[complete])) > 1:
        figures = scored(OnlineKDEClassifier(), (train[complete], y[complete]), (test, y_test))
        note("skokde, incomplete rows dropped", figures)
    trees = HistGradientBoostingClassifier(random_state=0)
    note("HistGradientBoosting", scored(trees, (train, y), (test, y_test)))
    for imputer_name, imputer in imputers().items():
        start = time.process_time()
        filled = imputer.fit_transform(train), imputer.transform(test)
        seconds = time.process_time() - start
        away = (filled[1] - truth)[np.isnan(test)]
        note(imputer_name, {"error": np.sqrt(np.mean(away**2)), "seconds": seconds})
        svc = make_pipeline(StandardScaler(), SVC(probability=True, random_state=0))
        for model_name, model in (("SVC", svc), (SKOKDE, OnlineKDEClassifier())):
            figures = scored(model, (filled[0], y), (filled[1], y_test))
            note(f"{imputer_name}, {model_name}", figures)
    return lines


def tables(figures: pd.DataFrame) -> str:
    """A table for each figure, of means over the splits."""
    titles = {
        "accuracy": "Accuracy, %",
        "log_loss": "Log-loss, nats",
        "error": "Error of imputation, deviations of a feature",
    }
    digits = {"accuracy": 1, "log_loss": 3, "error": 3}
    parts = []
    for column, title in titles.items():
        held = figures.dropna(subset=[column])
        table = held.pivot_table(index="method", columns=["set", "share"], values=column)
        table.insert(0, "mean", table.mean(axis=1).where(table.notna().all(axis=1)))
        table = table.sort_values("mean", ascending=column != "accuracy")
        table.columns = ["mean", *(f"{name} {share:.0%}" for name, share in table.columns[1:])]
        parts.append(
            f"## {title}\n\n{frame_markdown(table.reset_index(), decimals(digits[column]))}"
        )
    return "\n".join(parts)


def main(description: str) -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="SET")
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES, metavar="SHARE")
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    cells = list(product(range(options.splits), options.sets, options.shares))
    results = Parallel(options.n_jobs, verbose=10)(
        delayed(run)(name, share, seed, options) for seed, name, share in cells
    )
    figures = pd.DataFrame([line for lines in results for line in lines])
    options.out.mkdir(parents=True, exist_ok=True)
    figures.to_csv(options.out / "missing.csv", index=False, float_format="%.6g")
    text = "# Values missing at random\n\n" + tables(figures)
    (options.out / "missing.md").write_text(text)
    print(text)
