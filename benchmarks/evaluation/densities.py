"""Densities on streams that change: nothing forgotten, fixed factors, predictive memory."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from evaluation.options import add_common_options
from evaluation.stream_models import FIXED
from evaluation.streams import load_stream
from evaluation.tables import decimals, frame_markdown
from skokde import OnlineKDEDensity

# Rows that are learned before any is scored.
FIRST = 30
FACTORS = (*FIXED, "predictive")


def _clusters(n: int, rng: np.random.Generator, speed: float = 0.0) -> np.ndarray:
    """Clusters in five dimensions that go at a speed, in units of their distances, all the time."""
    of = rng.integers(8, size=n)
    centers, velocities = 4.0 * rng.normal(size=(2, 8, 5))
    times = np.linspace(0.0, speed, n)[:, None]
    return centers[of] + times * velocities[of] + 0.5 * rng.normal(size=(n, 5))


def _drift(n: int, rng: np.random.Generator) -> np.ndarray:
    """Of six features, three go eight standard deviations."""
    away = np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.0])
    return rng.normal(size=(n, 6)) + 8.0 * np.linspace(0.0, 1.0, n)[:, None] * away


def _turn(n: int, rng: np.random.Generator) -> np.ndarray:
    """A Gaussian whose axes differ in length turns by three radians."""
    X, angle = rng.normal(size=(n, 4)) * [3.0, 0.3, 1.0, 1.0], np.linspace(0.0, 3.0, n)
    one, other = X[:, 0].copy(), X[:, 1].copy()
    X[:, 0] = np.cos(angle) * one - np.sin(angle) * other
    X[:, 1] = np.sin(angle) * one + np.cos(angle) * other
    return X


def _jump(n: int, rng: np.random.Generator) -> np.ndarray:
    """In the middle two of six features get another mean and spread."""
    X = rng.normal(size=(n, 6))
    X[n // 2 :, :2] = 0.5 * X[n // 2 :, :2] + 3.0
    return X


def _return(n: int, rng: np.random.Generator) -> np.ndarray:
    """Eight clusters, from the middle on eight others and these again in turn, an eighth each."""
    at_first, later = _clusters(n, rng), _clusters(n, rng)
    is_later = (np.arange(n) >= n // 2) & (8 * np.arange(n) // n % 2 == 0)
    return np.where(is_later[:, None], later, at_first)


def _rbf(n: int, rng: np.random.Generator) -> np.ndarray:
    return load_stream("rbf", n, seed=int(rng.integers(1000))).X


STREAMS: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "clusters that stay": _clusters,
    "clusters that move": partial(_clusters, speed=2.0),
    "a mean that drifts": _drift,
    "axes that turn": _turn,
    "a sudden change": _jump,
    "a state that returns": _return,
    "rbf (river)": _rbf,
}


def scored(stream: str, seed: int, factor: float | str, n: int) -> dict[str, float | str]:
    """Means over the rows of a stream, each scored before it is learned."""
    X = STREAMS[stream](n, np.random.default_rng(seed))
    density, scores = OnlineKDEDensity(forgetting_factor=factor), []
    start = time.thread_time()
    density.partial_fit(X[:FIRST])
    for row in X[FIRST:]:
        scores.append(density.score_samples(row[None])[0])
        density.partial_fit(row[None])
    ms = 1e3 * (time.thread_time() - start) / n
    return {
        "stream": stream,
        "seed": seed,
        "factor": str(factor),
        "nll": -np.mean(scores),
        "ms": ms,
    }


def table(figures: pd.DataFrame, column: str) -> pd.DataFrame:
    """Means over the seeds, a row for each stream and a column for each factor."""
    return figures.pivot_table(index="stream", columns="factor", values=column, sort=False)


def report(figures: pd.DataFrame, n: int) -> str:
    losses = table(figures, "nll")
    fixed = losses[[str(factor) for factor in FIXED]]
    losses["best fixed factor"] = fixed.idxmin(axis=1)
    losses["predictive − best"] = losses["predictive"] - fixed.min(axis=1)
    times = table(figures, "ms")
    times = times.div(times[str(FIXED[0])], axis=0).mean()
    texts = ", ".join(f"{factor} {value:.2f}" for factor, value in times.items())
    return f"""# Densities on streams that change

Made by `benchmarks/densities.py`: the mean of -log p in nats, of {n:,} rows, each before it is
learned, by forgetting factors; means over {figures["seed"].nunique()} seeds. Lower is better.

{frame_markdown(losses.reset_index(), decimals(3))}
CPU time of scoring and learning a row, beside that with nothing forgotten: {texts}.
"""


def main(description: str) -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    cells = product(STREAMS, range(options.seeds), FACTORS)
    parallel = Parallel(options.n_jobs, verbose=5)
    figures = pd.DataFrame(parallel(delayed(scored)(*cell, options.rows) for cell in cells))
    options.out.mkdir(parents=True, exist_ok=True)
    figures.to_csv(options.out / "densities.csv", index=False, float_format="%.6g")
    text = report(figures, options.rows)
    (options.out / "densities.md").write_text(text)
    print(text)
