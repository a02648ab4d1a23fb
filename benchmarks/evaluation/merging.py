"""What merging costs in quality and saves in time, beside one stream."""

from __future__ import annotations

import argparse
import pickle
import resource
import time
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.metrics import log_loss

from evaluation.datasets import load_dataset
from evaluation.options import add_common_options
from evaluation.protocol import StreamSplit, nll, of_all_labels
from evaluation.tables import decimals, frame_markdown
from skokde import OnlineKDEClassifier, OnlineKDEDensity, fit_shards, merge

SETS = ("letter", "covtype", "skin")
TABLES = ("quality", "throughput", "thousand", "memory")
ORDERS = ("shuffled", "source", "class")
N_SHARDS = (1, 2, 4, 8, 16, 32, 64)
MOST_TRAINING, MOST_TEST = 120_000, 5_000
# Of the simulation: shards, rows of each, features, and rows that are scored.
MANY, ROWS, FEATURES, SCORED = 1000, 1000, 4, 20_000


def figures_of(model: OnlineKDEClassifier, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    proba, labels = of_all_labels(model.predict_proba(X), model.classes_, y)
    return {
        "accuracy": 100.0 * np.mean(labels[proba.argmax(axis=1)] == y),
        "log_loss": log_loss(y, proba, labels=labels),
        "nll": nll(model, X, y),
        "components": sum(density.n_components_ for density in model.estimators_),
    }


def quality(name: str, order: str, seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Figures of one split of a set, for all numbers of shards."""
    dataset = load_dataset(name, options.data)
    train, test = StreamSplit().of_seed(len(dataset.y), seed)
    train, test = train[:MOST_TRAINING], test[:MOST_TEST]
    if order != "shuffled":
        train = np.sort(train)
    if order == "class":
        train = train[np.argsort(dataset.y[train], kind="stable")]
    X, y, lines = dataset.X, dataset.y, []
    for n_shards in N_SHARDS:
        start = time.process_time()
        shards = [
            OnlineKDEClassifier().fit(X[rows], y[rows]) for rows in np.array_split(train, n_shards)
        ]
        learned = time.process_time()
        model = merge(shards)
        seconds = {"learning": learned - start, "merging": time.process_time() - learned}
        known = {"set": name, "order": order, "seed": seed, "shards": n_shards}
        lines.append(known | figures_of(model, X[test], y[test]) | seconds)
    return lines


def throughput(name: str | None, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of the clock, of one stream and of 8 shards in one process and in two.

    Of classifiers of a set, or without a name of a density of rows that are made.
    """
    if name is None:
        estimator, arrays = OnlineKDEDensity(), (simulated(MANY * ROWS, MANY)[0],)
    else:
        dataset = load_dataset(name, options.data)
        rows = StreamSplit().of_seed(len(dataset.y), 0)[0][:MOST_TRAINING]
        estimator, arrays = OnlineKDEClassifier(), (dataset.X[rows], dataset.y[rows])
    # Processes take a second or two to start, once.
    fit_shards(estimator, *(a[:100] for a in arrays), n_shards=2, n_jobs=2)
    lines = []
    for _ in range(3):
        seconds = {"set": name or "density of simulated rows", "rows": len(arrays[0])}
        start = time.perf_counter()
        clone(estimator).fit(*arrays)
        seconds["one stream"] = time.perf_counter() - start
        for n_jobs in (1, 2):
            start = time.perf_counter()
            fit_shards(estimator, *arrays, n_shards=8, n_jobs=n_jobs)
            seconds[f"8 shards, workers: {n_jobs}"] = time.perf_counter() - start
        lines.append(seconds)
    return lines


def simulated(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a mixture of five normal distributions, and their true log-densities."""
    rng = np.random.default_rng(0)
    weights, means = np.array([0.4, 0.3, 0.2, 0.09, 0.01]), rng.normal(0.0, 4.0, (5, FEATURES))
    roots = 0.6 * rng.normal(size=(5, FEATURES, FEATURES)) + np.eye(FEATURES)
    rng = np.random.default_rng([seed, 1])
    component = rng.choice(5, n, p=weights)
    X = means[component] + np.einsum("nij,nj->ni", roots[component], rng.normal(size=(n, FEATURES)))
    away = np.einsum("kij,nkj->nki", np.linalg.inv(roots), X[:, None] - means)
    logs = np.log(weights) - np.linalg.slogdet(roots)[1] - 0.5 * (away**2).sum(axis=2)
    return X, np.logaddexp.reduce(logs, axis=1) - 0.5 * FEATURES * np.log(2.0 * np.pi)


def thousand(n_jobs: int) -> list[dict[str, Any]]:
    """A tree of merges: levels, and in each the mean of bytes, components, time and quality.

    The clock's seconds of a level are what its models take together, divided by the processes, and
    what sending them between processes adds.
    """
    X, true = simulated(SCORED, MANY)

    def learned(seed: int) -> tuple[OnlineKDEDensity, float]:
        rows, _ = simulated(ROWS, seed)
        start = time.process_time()
        return OnlineKDEDensity().fit(rows), time.process_time() - start

    lines, workers = [], Parallel(n_jobs)
    workers(delayed(abs)(number) for number in range(n_jobs))  # they take a second or two to start
    start = time.perf_counter()
    models = workers(delayed(learned)(seed) for seed in range(MANY))
    while True:
        clock = time.perf_counter() - start
        lines.append(
            {
                "models": len(models),
                "samples of each": models[0][0].n_samples_seen_,
                "components": np.mean([model.n_components_ for model, _ in models]),
                "kilobytes": np.mean([len(pickle.dumps(m)) for m, _ in models[:20]]) / 1e3,
                "milliseconds": 1e3 * np.mean([seconds for _, seconds in models]),
                "seconds of the clock": clock,
                "nats below the truth": np.mean(
                    [true.mean() - model.score(X) for model, _ in models[:5]]
                ),
            }
        )
        if len(models) == 1:
            break
        pairs = [models[i : i + 2] for i in range(0, len(models), 2)]
        start = time.perf_counter()
        models = workers(delayed(timed_merge)(pair) for pair in pairs)
    stream = OnlineKDEDensity()
    start = time.process_time()
    for seed in range(MANY):
        stream.partial_fit(simulated(ROWS, seed)[0])
    lines.append(
        {
            "models": "one stream",
            "samples of each": stream.n_samples_seen_,
            "components": stream.n_components_,
            "kilobytes": len(pickle.dumps(stream)) / 1e3,
            "milliseconds": 1e3 * (time.process_time() - start),
            "seconds of the clock": "",
            "nats below the truth": true.mean() - stream.score(X),
        }
    )
    return lines


def timed_merge(pair: list[tuple[OnlineKDEDensity, float]]) -> tuple[OnlineKDEDensity, float]:
    start = time.process_time()
    return merge(model for model, _ in pair), time.process_time() - start


def memory(n_rows: int) -> list[dict[str, Any]]:
    """Rows that are made in two workers of Dask, a million at a time; needs skokde[dask]."""
    import dask.array as da
    from distributed import Client, LocalCluster

    from skokde.dask import DaskOnlineKDEDensity

    size = 10**6
    numbers = da.arange(n_rows // size, chunks=1)
    X = da.map_blocks(
        lambda number: simulated(size, int(number[0]))[0],
        numbers,
        chunks=((size,) * (n_rows // size), (FEATURES,)),
        new_axis=1,
        dtype=float,
        meta=np.empty((0, FEATURES)),
    )
    test, true = simulated(SCORED, MANY)
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        before = client.run(peak_megabytes)
        start = time.perf_counter()
        density = DaskOnlineKDEDensity(client=client).fit(X)
        seconds = time.perf_counter() - start
        after = client.run(peak_megabytes)
        return [
            {
                "rows": n_rows,
                "rows a second": n_rows / seconds,
                "megabytes of all rows": n_rows * FEATURES * 8 / 1e6,
                "megabytes of a worker, before": max(before.values()),
                "at most": max(after.values()),
                "components": density.n_components_,
                "nats below the truth": true.mean() - density.to_local().score(test),
            }
        ]


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def quality_markdown(figures: pd.DataFrame) -> str:
    """A table for each figure: that of one stream, and differences from it."""
    titles = {"accuracy": "Accuracy, %", "log_loss": "Log-loss, nats", "nll": "-log p, nats"}
    digits, parts = {"accuracy": 2, "log_loss": 4, "nll": 3}, []
    for column, title in titles.items():
        table = figures.pivot_table(index=["set", "order"], columns="shards", values=column)
        one = table[1].copy()
        table = table.sub(one, axis=0)
        table[1] = one
        parts.append(
            f"## {title}: one stream, and what shards change\n\n"
            f"{frame_markdown(table.rename(columns=str).reset_index(), decimals(digits[column]))}"
        )
    for column, title in {"components": "Components", "merging": "Merging, CPU seconds"}.items():
        table = figures.pivot_table(index=["set", "order"], columns="shards", values=column)
        parts.append(
            f"## {title}\n\n{frame_markdown(table.rename(columns=str).reset_index(), decimals(1))}"
        )
    return "\n".join(parts)


def main(description: str) -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="SET")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--rows", type=int, default=50_000_000, help="of the table of memory")
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES, metavar="TABLE")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if "quality" in options.tables:
        cells = list(product(range(options.splits), options.sets, ORDERS))
        results = Parallel(options.n_jobs, verbose=10)(
            delayed(quality)(name, order, seed, options) for seed, name, order in cells
        )
        write("merging", quality_markdown, [line for lines in results for line in lines], options)
    if "throughput" in options.tables:
        lines = [line for name in (*options.sets, None) for line in throughput(name, options)]
        write("merging_throughput", throughput_markdown, lines, options)
    if "memory" in options.tables:
        write("merging_memory", memory_markdown, memory(options.rows), options)
    if "thousand" in options.tables:
        write("merging_thousand", thousand_markdown, thousand(options.n_jobs), options)


def throughput_markdown(figures: pd.DataFrame) -> str:
    table = figures.groupby(["set", "rows"], as_index=False).median()
    table["two workers beside one"] = table.iloc[:, -2] / table.iloc[:, -1]
    return frame_markdown(table, decimals(2))


def thousand_markdown(figures: pd.DataFrame) -> str:
    return frame_markdown(figures, decimals(3))


def memory_markdown(figures: pd.DataFrame) -> str:
    return frame_markdown(figures, decimals(2))


# What stands above the tables of each file.
TITLES = {
    "merging": "What shards cost",
    "merging_throughput": "Seconds of the clock, medians of three runs",
    "merging_thousand": f"{MANY:,} shards of {ROWS:,} rows, merged in pairs",
    "merging_memory": "Rows made in two workers of Dask, a million at a time",
}


def write(name: str, markdown: Any, lines: list[dict[str, Any]], options: Any) -> None:
    figures = pd.DataFrame(lines)
    figures.to_csv(options.out / f"{name}.csv", index=False)
    text = f"# {TITLES[name]}\n\n{markdown(figures)}"
    (options.out / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
