"""Regression beside scikit-learn's regressors, quantile forests and river's."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import islice, product
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.stats import norm
from sklearn.datasets import load_diabetes, load_linnerud
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.metrics import mean_pinball_loss, r2_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from evaluation.datasets import load_dataset
from evaluation.options import add_common_options
from evaluation.tables import decimals, frame_markdown
from skokde import OnlineKDERegressor

SETS = ("diabetes", "linnerud", "red", "white", "friedman", "waves", "branches")
STREAMS = ("TrumpApproval", "ChickWeights", "Friedman", "FriedmanDrift")
MOST_TRAINING, MOST_TEST, MOST_STREAMED = 1000, 300, 2000
# Rows of a stream before predictions count.
WARM_UP = 30
# Among them the bounds of intervals that 90 % of the outputs are in.
LEVELS = np.linspace(0.05, 0.95, 19)

Predicted = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def waves(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A wave along one feature, and noise that grows with the size of another."""
    X = rng.uniform(-3.0, 3.0, size=(n, 2))
    return X, 2.0 * np.sin(X[:, 0]) + (0.1 + 0.3 * np.abs(X[:, 1])) * rng.normal(size=n)


def branches(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two curves, either of which may come."""
    x = rng.uniform(-2.0, 2.0, size=n)
    y = rng.choice([-1.0, 1.0], n) * (1.0 + x**2) + 0.15 * (1.0 + np.abs(x)) * rng.normal(size=n)
    return x[:, None], y


def friedman(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Five features of ten tell the output (Friedman 1991)."""
    X = rng.uniform(size=(n, 10))
    y = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    return X, y + 10.0 * X[:, 3] + 5.0 * X[:, 4] + rng.normal(size=n)


def table(name: str, seed: int, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Features and the output of a set; of linnerud, the first of three outputs."""
    if name == "diabetes":
        return load_diabetes(return_X_y=True)
    if name == "linnerud":
        X, y = load_linnerud(return_X_y=True)
        return X, y[:, 0]
    made = {"waves": waves, "branches": branches, "friedman": friedman}.get(name)
    if made is not None:
        return made(MOST_TRAINING + MOST_TEST, np.random.default_rng([2, seed]))
    dataset = load_dataset(name, options.data)
    return dataset.X, dataset.y.astype(float)  # the classes are qualities in their order


def of_skokde(train: tuple[Any, ...], X: np.ndarray, y: np.ndarray, **parameters: Any) -> Predicted:
    model = OnlineKDERegressor(**parameters).fit(*train)
    return model.predict(X), model.predict(X, quantiles=LEVELS), model.log_density(X, y)


def of_normal(model: Any, train: tuple[Any, ...], X: np.ndarray, y: np.ndarray) -> Predicted:
    mean, std = model.fit(*train).predict(X, return_std=True)
    return mean, mean[:, None] + std[:, None] * norm.ppf(LEVELS), norm(mean, std).logpdf(y)


def of_boosting(train: tuple[Any, ...], X: np.ndarray, y: np.ndarray) -> Predicted:
    mean = HistGradientBoostingRegressor(random_state=0).fit(*train).predict(X)
    quantiles = [
        HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0)
        .fit(*train)
        .predict(X)
        for level in LEVELS
    ]
    return mean, np.sort(np.column_stack(quantiles), axis=1), None


def of_forest(train: tuple[Any, ...], X: np.ndarray, y: np.ndarray) -> Predicted:
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(random_state=0).fit(*train)
    return model.predict(X, quantiles="mean"), model.predict(X, quantiles=LEVELS.tolist()), None


def methods() -> dict[str, Callable[..., Predicted]]:
    kernel = ConstantKernel() * RBF() + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    found = {
        "skokde": of_skokde,
        "skokde, diag": partial(of_skokde, covariance_type="diag"),
        "GaussianProcess": partial(of_normal, process),
        "BayesianRidge": partial(of_normal, BayesianRidge()),
        "HistGradientBoosting": of_boosting,
    }
    return found | ({"quantile forest": of_forest} if find_spec("quantile_forest") else {})


def scored(y: np.ndarray, predicted: Predicted) -> dict[str, float]:
    """R2, log-density in nats, CRPS in deviations of the output, coverage of intervals in percent.

    The score is made from quantiles for all alike: twice the mean of their pinball losses.
    """
    mean, quantiles, log_density = predicted
    losses = [mean_pinball_loss(y, q, alpha=a) for q, a in zip(quantiles.T, LEVELS, strict=True)]
    inside = (quantiles[:, 0] <= y) & (y <= quantiles[:, -1])
    return {
        "r2": r2_score(y, mean),
        "log_density": np.nan if log_density is None else log_density.mean(),
        "crps": 2.0 * np.mean(losses),
        "coverage": 100.0 * inside.mean(),
    }


def run(name: str, seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All figures of a set and a split. Outputs are in units of their deviation."""
    warnings.simplefilter("ignore")
    X, y = table(name, seed, options)
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed)
    train, test = train[:MOST_TRAINING], test[:MOST_TEST]
    scaler = StandardScaler().fit(X[train])
    center, scale = y[train].mean(), y[train].std()
    rows, y = scaler.transform(X), (y - center) / scale
    lines = []
    for method, function in methods().items():
        start = time.process_time()
        predicted = function((rows[train], y[train]), rows[test], y[test])
        line = {"set": name, "seed": seed, "method": method}
        seconds = time.process_time() - start
        lines.append(line | scored(y[test], predicted) | {"seconds": seconds})
    return lines


# ----------------------------------------------------------------------------------------- streams


def stream(name: str, seed: int) -> Iterator[tuple[dict[str, float], float]]:
    """Rows of river's, those of data that come with it in their order."""
    from river import datasets

    if hasattr(datasets, name):
        rows = getattr(datasets, name)()
    elif name == "FriedmanDrift":
        drift = (MOST_STREAMED // 3, MOST_STREAMED // 2, 3 * MOST_STREAMED // 4)
        rows = datasets.synth.FriedmanDrift("lea", position=drift, seed=seed)
    else:
        rows = getattr(datasets.synth, name)(seed=seed)
    for x, y in islice(rows, MOST_STREAMED):
        numbers = {key: float(v) for key, v in x.items() if isinstance(v, (bool, int, float))}
        yield dict(sorted(numbers.items())), float(y)


def stream_methods() -> dict[str, Callable[[], Any]]:
    from river import compat, forest, linear_model, neighbors, preprocessing, tree

    def of_skokde(**parameters: Any) -> Any:
        return compat.convert_sklearn_to_river(OnlineKDERegressor(**parameters))

    def scaled(make: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: preprocessing.StandardScaler() | make()

    return {
        "skokde": of_skokde,
        "skokde, predictive memory": partial(of_skokde, forgetting_factor="predictive"),
        "LinearRegression": scaled(linear_model.LinearRegression),
        "BayesianLinearRegression": scaled(linear_model.BayesianLinearRegression),
        "HoeffdingTree": tree.HoeffdingTreeRegressor,
        "HoeffdingAdaptiveTree": partial(tree.HoeffdingAdaptiveTreeRegressor, seed=0),
        "ARF": partial(forest.ARFRegressor, seed=0),
        "KNN": scaled(neighbors.KNNRegressor),
    }


def streamed(name: str, seed: int) -> list[dict[str, Any]]:
    """Figures of rows that were predicted before they were learned."""
    warnings.simplefilter("ignore")
    rows, lines = list(stream(name, seed)), []
    for method, make in stream_methods().items():
        model, predicted = make(), []
        start = time.process_time()
        for x, y in rows:
            predicted.append(model.predict_one(x) or 0.0)
            model.learn_one(x, y)
        seconds = time.process_time() - start
        truth, found = np.array([y for _, y in rows])[WARM_UP:], np.array(predicted)[WARM_UP:]
        figures = {
            "r2": r2_score(truth, found),
            "mae": np.abs(truth - found).mean() / truth.std(),
            "ms": 1e3 * seconds / len(rows),
        }
        lines.append({"set": name, "seed": seed, "method": method} | figures)
    return lines


def ranking(figures: pd.DataFrame, column: str, best: str, digits: int) -> str:
    """A table of means over the splits, the best mean first."""
    held = figures.dropna(subset=[column])
    table = held.pivot_table(index="method", columns="set", values=column, sort=False)
    table.insert(0, "mean", table.mean(axis=1))
    if best in ("high", "low"):
        table = table.sort_values("mean", ascending=best == "low")
    return frame_markdown(table.reset_index(), decimals(digits))


def losses(figures: pd.DataFrame, column: str, best: str) -> str:
    """Sets on which others are better than skokde with its defaults."""
    means = figures.pivot_table(index="method", columns="set", values=column, sort=False)
    own, lines = means.loc["skokde"], []
    for name in means:
        others = means[name][[not method.startswith("skokde") for method in means.index]].dropna()
        better = others[others > own[name]] if best == "high" else others[others < own[name]]
        if len(better):
            named = ", ".join(f"{method} {value:.3f}" for method, value in better.items())
            lines.append(f"- {name}: skokde {own[name]:.3f}; {named}")
    return "\n".join(lines) or "- none"


def report(figures: pd.DataFrame, streams: pd.DataFrame) -> str:
    seconds = figures.groupby("method", sort=False)["seconds"].mean()
    times = ", ".join(f"{method} {value:.1f}" for method, value in seconds.items())
    return f"""# Regression

Made by `benchmarks/regression.py`; means over {figures["seed"].nunique()} splits. Methods have
their defaults. At most {MOST_TRAINING} rows are learned and {MOST_TEST} predicted. Outputs are in
units of their deviation.

## R2

{ranking(figures, "r2", "high", 3)}

Losses:

{losses(figures, "r2", "high")}

## CRPS

From 19 quantiles, for all methods alike.

{ranking(figures, "crps", "low", 4)}

Losses:

{losses(figures, "crps", "low")}

## Log-density, nats

{ranking(figures, "log_density", "high", 3)}

Losses:

{losses(figures, "log_density", "high")}

## Percent of outputs in intervals of 90 %

{ranking(figures, "coverage", "any", 1)}

CPU seconds for learning and all predictions: {times}.

## Streams, R2 of predictions row by row

Up to {MOST_STREAMED} rows, the first {WARM_UP} left out.

{ranking(streams, "r2", "high", 3)}

Losses:

{losses(streams, "r2", "high")}

## Streams, mean absolute errors in deviations of the output

{ranking(streams, "mae", "low", 3)}

## Streams, CPU milliseconds for predicting and learning a row

{ranking(streams, "ms", "low", 2)}
"""


def main(description: str) -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="SET")
    parser.add_argument("--streams", nargs="+", default=STREAMS, choices=STREAMS, metavar="STREAM")
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    seeds = range(options.splits)
    parallel = Parallel(options.n_jobs, verbose=5)
    lines = parallel(
        delayed(run)(name, seed, options) for name, seed in product(options.sets, seeds)
    )
    figures = pd.DataFrame([line for part in lines for line in part])
    # Data that come with river have one order only.
    cells = [
        (name, seed)
        for name, seed in product(options.streams, seeds)
        if seed == 0 or name.startswith("Friedman")
    ]
    lines = parallel(delayed(streamed)(name, seed) for name, seed in cells)
    streams = pd.DataFrame([line for part in lines for line in part])
    options.out.mkdir(parents=True, exist_ok=True)
    figures.to_csv(options.out / "regression.csv", index=False, float_format="%.6g")
    streams.to_csv(options.out / "regression_streams.csv", index=False, float_format="%.6g")
    text = report(figures, streams)
    (options.out / "regression.md").write_text(text)
    print(text)
