"""How fast skokde is, beside what a user would run instead."""

from __future__ import annotations

import argparse
import pickle
import pkgutil
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import GaussianNB

from evaluation.batch import CVKernelDensity, DensityClassifier
from evaluation.cells import OK, peak_memory, run_apart, start_peak, unit_of_time, versions
from evaluation.datasets import SETS, load_dataset
from evaluation.models import MODELS
from evaluation.options import add_common_options
from evaluation.protocol import StreamSplit, nll
from evaluation.results import Peers
from evaluation.tables import frame_markdown, make_tables
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._engine.compression import compress
from skokde._engine.kde import BOX, FEW_TERMS, in_boxes
from skokde._engine.learn import compact

TRAINED = ("skokde full okde", "skokde diag okde", "skokde", "skokde diag")


def cpu(function: Callable[[], Any], repeats: int = 1) -> float:
    """CPU seconds of a call, the least of several."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def split(name: str, data: Path | None) -> tuple[np.ndarray, ...]:
    """Rows and classes of the first shuffle's stream, and of its test rows."""
    loaded = load_dataset(name, data)
    train, test = StreamSplit().of_seed(len(loaded.X), 0)
    return loaded.X[train], loaded.y[train], loaded.X[test], loaded.y[test]


def clumps(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Three correlated clumps."""
    rng = np.random.default_rng([seed, d])
    roots = rng.normal(size=(3, d, d)) / np.sqrt(d)
    centers = 3.0 * rng.normal(size=(3, d))
    which = rng.integers(0, 3, size=n)
    X = rng.normal(size=(n, d))
    for c in range(3):
        X[which == c] = X[which == c] @ roots[c] + centers[c]
    return X


def training(options: argparse.Namespace) -> pd.DataFrame:
    peers, rows = Peers.read(options.reference), []
    for name in options.sets:
        X, y, X_test, y_test = split(name, options.data)
        unit = unit_of_time()  # anew: the machine may be slower than it was an hour ago
        repeats = 3 if len(X) < 5000 else 1
        for label in TRAINED:
            model = MODELS[label]
            classifier = clone(model.estimator)
            seconds = cpu(partial(classifier.fit, X, y), repeats)
            row = {
                "set": name,
                "model": label,
                "units": seconds / unit,
                "us per row": 1e6 * seconds / len(X),
                "accuracy, %": 100.0 * classifier.score(X_test[:20000], y_test[:20000]),
                "-log p": nll(classifier, X_test[:20000], y_test[:20000]),
                "K": np.mean(model.components(classifier)),
            }
            covariance = classifier.covariance_type
            theirs = peers.of_seeds(name, covariance, "train")
            row["xokde++, units"] = theirs.mean() if len(theirs) else np.nan
            row["times faster"] = row["xokde++, units"] / row["units"]
            rows.append(row)
    frame = pd.DataFrame(rows)
    for label in TRAINED:
        ratios = frame.loc[frame.model == label, "times faster"].dropna()
        if len(ratios):
            mean = np.exp(np.log(ratios).mean())
            rows.append({"set": "geometric mean", "model": label, "times faster": mean})
            rows.append({"set": "least", "model": label, "times faster": ratios.min()})
    return pd.DataFrame(rows)


def with_components(k: int, X: np.ndarray, **parameters: Any) -> OnlineKDEDensity:
    """A density that holds just so many components."""
    density = OnlineKDEDensity(max_components=k, compression_threshold=1e-3, **parameters)
    density.fit(X[:2000])
    for row in X[2000:]:
        if density.n_components_ == k:
            return density
        density.partial_fit(row[None])
    raise RuntimeError(f"it never holds {k} components")


def scoring(options: argparse.Namespace) -> pd.DataFrame:
    rows = []
    for n, k, d in ((100_000, 40, 8), (100_000, 60, 16), (20_000, 60, 64)):
        X, points = clumps(4000, d), clumps(n, d, seed=1)
        for covariance in ("full", "diag"):
            mixture = GaussianMixture(
                k,
                covariance_type=covariance,
                max_iter=3,
                init_params="random_from_data",
                random_state=0,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # three rounds are not meant to converge
                mixture.fit(X)
            theirs = cpu(partial(mixture.score_samples, points), 5)
            for bandwidth in ("okde", "predictive"):
                density = with_components(k, X, covariance_type=covariance, bandwidth=bandwidth)
                ours = cpu(partial(density.score_samples, points), 5)
                rows.append(
                    {
                        "rows": n,
                        "components": k,
                        "features": d,
                        "covariances": covariance,
                        "bandwidth": bandwidth,
                        "beside": "GaussianMixture",
                        "s": ours,
                        "theirs, s": theirs,
                        "times faster": theirs / ours,
                    }
                )
    X, y, X_test, y_test = split("letter", options.data)
    exact = DensityClassifier(CVKernelDensity(), standardize=True).fit(X, y)
    theirs = cpu(partial(exact.predict_joint_log_proba, X_test))
    for label in ("skokde full okde", "skokde"):
        classifier = clone(MODELS[label].estimator).fit(X, y)
        ours = cpu(partial(classifier.predict_joint_log_proba, X_test), 3)
        rows.append(
            {
                "rows": len(X_test),
                "components": f"letter, {sum(MODELS[label].components(classifier)):.0f}",
                "features": X.shape[1],
                "covariances": "full",
                "bandwidth": classifier.bandwidth,
                "beside": f"KernelDensity, {len(X)}",
                "s": ours,
                "theirs, s": theirs,
                "times faster": theirs / ours,
                "-log p": nll(classifier, X_test, y_test),
                "theirs, -log p": nll(exact, X_test, y_test),
            }
        )
    return pd.DataFrame(rows)


def times_one_by_one(*steps: Callable[[int], Any], rows: range) -> np.ndarray:
    """Microseconds (n_rows, n_steps) of what is done with each row."""
    times = np.empty((len(rows), len(steps) + 1))
    for number, i in enumerate(rows):
        times[number, 0] = time.process_time_ns()
        for place, step in enumerate(steps, start=1):
            step(i)
            times[number, place] = time.process_time_ns()
    return np.diff(times, axis=1) / 1e3


def of_classes(n: int, n_classes: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of classes that are three clusters each."""
    rng = np.random.default_rng([n_classes, d])
    centers = rng.normal(0.0, 1.5, (n_classes, 3, d))
    y, cluster = rng.integers(n_classes, size=n), rng.integers(3, size=n)
    return centers[y, cluster] + rng.normal(size=(n, d)), y


def one_by_one() -> dict[str, Any]:
    """Classifiers that meet rows one by one; river's too where it is installed."""
    models = {
        "GaussianNB": GaussianNB(),
        "skokde": OnlineKDEClassifier(),
        "skokde diag": OnlineKDEClassifier(covariance_type="diag"),
    }
    if find_spec("river"):
        from evaluation.stream_models import MODELS as STREAM_MODELS

        models["adaptive random forest"] = STREAM_MODELS["adaptive random forest"]
    return models


def predicted_then_learned(
    model: Any, X: np.ndarray, y: np.ndarray, n_classes: int, before: int, n: int
) -> np.ndarray:
    """Microseconds (n, 2) of predicting and learning rows after some that are learned at once."""
    model = clone(model).partial_fit(X[:before], y[:before], classes=np.arange(n_classes))
    with np.errstate(divide="ignore", invalid="ignore"):  # GaussianNB, of classes without rows
        return times_one_by_one(
            lambda i: model.predict_proba(X[i : i + 1]),
            lambda i: model.partial_fit(X[i : i + 1], y[i : i + 1]),
            rows=range(before, before + n),
        )


def rows(
    options: argparse.Namespace,
    n_before: int = 2000,
    n: int = 1000,
    n_first: int = 500,
    n_classes: tuple[int, ...] = (2, 10, 40),
    features: tuple[int, ...] = (4, 16, 64, 128),
) -> pd.DataFrame:
    found = []
    for c, d in product(n_classes, features):
        X, y = of_classes(n_before + n, c, d)
        beside = None
        for name, model in one_by_one().items():
            times = predicted_then_learned(model, X, y, c, n_before, n)
            both = times.sum(axis=1)
            first = predicted_then_learned(model, X, y, c, 1, n_first).sum(axis=1)
            figures = np.array([both.mean(), np.median(both), first.mean()])
            beside = figures if beside is None else beside
            row = {"classes": c, "features": d, "model": name}
            row |= dict(zip(["predict, us", "learn, us"], times.mean(axis=0), strict=True))
            row |= dict(zip(["mean, us", "median, us"], figures[:2], strict=True))
            row["99.9 %, us"] = np.quantile(both, 0.999)
            row["first rows, us"] = figures[2]
            of_theirs = [f"{what}, of GaussianNB's" for what in ("mean", "median", "first rows")]
            found.append(row | dict(zip(of_theirs, figures / beside, strict=True)))
    return pd.DataFrame(found)


def latency(
    options: argparse.Namespace,
    lengths: Mapping[int, int] = MappingProxyType({4: 100_000, 32: 100_000, 128: 20_000}),
) -> pd.DataFrame:
    """How evenly the time of learning is spread over the rows."""
    found, figure = [], Figure(figsize=(7.0, 3.5), layout="constrained")
    axes = figure.subplots()
    for d, n in lengths.items():
        X, density = clumps(n, d), OnlineKDEDensity()
        density.partial_fit(X[:1])
        (times,) = times_one_by_one(
            lambda i, X=X, m=density: m.partial_fit(X[i : i + 1]), rows=range(1, n)
        ).T
        median = np.median(times)
        row = {"features": d, "rows": n, "components": density.n_components_}
        row |= {"mean, us": times.mean(), "median, us": median}
        row |= {f"{100 * share:g} %, us": np.quantile(times, share) for share in (0.99, 0.999)}
        row |= {"slowest, us": times.max(), "slowest, of the median": times.max() / median}
        found.append(row)
        # The clock may be too coarse for the fastest.
        edges = np.geomspace(times[times > 0.0].min(), times.max(), 80)
        axes.hist(times, edges, histtype="step", label=f"{d} features, {n:,} rows")
    axes.set(xscale="log", yscale="log", xlabel="CPU time of a row, µs", ylabel="rows")
    axes.legend()
    figure.savefig(options.out / "speed_latency.png", dpi=120)
    return pd.DataFrame(found)


def terms_that_count(density: OnlineKDEDensity, blocks: list[np.ndarray]) -> tuple[float, float]:
    """Shares of the Gaussians without which log-densities would change by more than 1e-10.

    Returns
    -------
    of_row, of_block : float
        Of a row, and of all rows of a block together.
    """
    weights, means, covariances = density.distribution().arrays
    variances, axes = np.linalg.eigh(covariances)
    base = np.log(weights) - 0.5 * np.log(variances).sum(axis=1)
    counts = []
    for block in blocks:
        along = np.einsum("kij,kai->kaj", axes, block - means[:, None])
        terms = base[:, None] - 0.5 * (along**2 / variances[:, None]).sum(axis=2)
        order = np.argsort(terms, axis=0)
        densities = np.exp(np.take_along_axis(terms, order, axis=0) - terms.max(axis=0))
        counted = np.cumsum(densities, axis=0) > 1e-10 * densities.sum(axis=0)
        of_terms = np.empty_like(counted)
        np.put_along_axis(of_terms, order, counted, axis=0)
        counts.append((of_terms.mean(), of_terms.any(axis=1).mean()))
    return tuple(np.mean(counts, axis=0))


def components(
    options: argparse.Namespace,
    clusters: tuple[int, ...] = (15, 60, 240, 960),
    n: int = 16_384,
) -> pd.DataFrame:
    """How scoring grows with the components, beside how many of their terms there is a need for."""
    found, d = [], 8
    for spread, (label, parameters) in product(
        (0.3, 10.0),
        (
            ("narrow", {"bandwidth": np.full(d, 0.1), "compression_threshold": 0.02}),
            ("predictive", {}),
        ),
    ):
        for k in clusters:
            rng = np.random.default_rng([k, d])
            centers = rng.uniform(-30.0, 30.0, (k, d))
            stream = centers[rng.integers(k, size=n + max(1000, 10 * k))]
            stream += spread * rng.normal(size=stream.shape)
            X, density = stream[:n], OnlineKDEDensity(**parameters).fit(stream[n:])
            X = X[in_boxes(X, FEW_TERMS)]
            of_row, of_block = terms_that_count(density, np.array_split(X, n // BOX)[::32])
            found.append(
                {
                    "clusters": k,
                    "their deviation": spread,
                    "kernels": label,
                    "components": density.n_components_,
                    "Gaussians": len(density.distribution().weights),
                    "us per row": 1e6 * cpu(partial(density.score_samples, X), 3) / n,
                    "us of a single row": single_row(density, X),
                    "needed by a row, %": 100.0 * of_row,
                    "needed by 64 close rows, %": 100.0 * of_block,
                }
            )
    return pd.DataFrame(found)


def single_row(density: OnlineKDEDensity, X: np.ndarray) -> float:
    """Microseconds that the log-density of a row takes by itself, the median of some."""
    rows = range(min(len(X), 200))
    times = times_one_by_one(lambda i: density.score_samples(X[i : i + 1]), rows=rows)
    return float(np.median(times))


def scale(options: argparse.Namespace, n: int = 10_000_000, block: int = 10_000) -> pd.DataFrame:
    """Ten features and two classes, far more rows than are held anywhere."""
    found = []
    for n_jobs in (1, 2):
        rng, X, y = np.random.default_rng(0), *of_classes(block, 2, 10)
        classifier, done = OnlineKDEClassifier(n_jobs=n_jobs), 0
        for end in (n // 100, n // 10, n // 2, n):
            seconds, start = np.zeros(2), done
            while done < end:
                order, noise = rng.permutation(block), rng.normal(0.0, 0.5, X.shape)
                before = time.perf_counter(), time.process_time()
                classifier.partial_fit(X[order] + noise, y[order], classes=[0, 1])
                seconds += np.subtract((time.perf_counter(), time.process_time()), before)
                done += block
            found.append(
                {
                    "threads": n_jobs,
                    "rows": f"{start} to {done}",
                    "components": sum(e.n_components_ for e in classifier.estimators_),
                    "rows per second": (done - start) / seconds[0],
                    "CPU, us per row": 1e6 * seconds[1] / (done - start),
                    "pickled, kB": len(pickle.dumps(classifier)) / 1e3,
                }
            )
    return pd.DataFrame(found)


def growth(options: argparse.Namespace) -> pd.DataFrame:
    found = []
    for covariance in ("full", "diag"):
        X = clumps(1_000_000, 4)
        density, done = OnlineKDEDensity(covariance_type=covariance), 0
        for n in (10_000, 100_000, 1_000_000):
            block = cpu(partial(density.partial_fit, X[done:n]))
            found.append(
                {
                    "covariances": covariance,
                    "features": 4,
                    "samples": f"{done} to {n}",
                    "components": density.n_components_,
                    "us per sample": 1e6 * block / (n - done),
                }
            )
            done = n
    for covariance in ("full", "diag"):
        previous = None
        for d in (4, 8, 16, 32, 64, 128):
            X = clumps(2000, d)
            # The threshold is one that merges nothing, so that each has as many components.
            density = OnlineKDEDensity(
                covariance_type=covariance, max_components=50, compression_threshold=1e-6
            )
            us = 1e6 * cpu(partial(density.fit, X)) / len(X)
            score = 1e6 * cpu(partial(density.score_samples, X), 3) / len(X)
            row = {
                "covariances": covariance,
                "features": d,
                "samples": str(len(X)),
                "components": density.n_components_,
                "us per sample": us,
                "score, us": score,
            }
            if previous is not None:
                row["slope"] = np.log2(us / previous[0])
                row["score, slope"] = np.log2(score / previous[1])
            previous = us, score
            found.append(row)
    return pd.DataFrame(found)


def fit_mixtures(classifier: OnlineKDEClassifier, X: np.ndarray, y: np.ndarray) -> None:
    """A GaussianMixture for each class, with as many components."""
    for label, density in zip(classifier.classes_, classifier.estimators_, strict=True):
        GaussianMixture(density.n_components_, random_state=0).fit(X[y == label])


def batch(options: argparse.Namespace) -> pd.DataFrame:
    found = []
    for name, n in (("letter", 5_000), ("skin", 100_000), ("covtype", 10_000)):
        X, y, _, _ = split(name, options.data)
        X, y = X[:n], y[:n]
        classifier = OnlineKDEClassifier()
        ours = cpu(partial(classifier.fit, X, y))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = cpu(partial(fit_mixtures, classifier, X, y))
        found.append(
            {
                "set": name,
                "rows": len(X),
                "components": sum(e.n_components_ for e in classifier.estimators_),
                "s": ours,
                "GaussianMixture, s": theirs,
                "times faster": theirs / ours,
            }
        )
    return pd.DataFrame(found)


def threads(options: argparse.Namespace) -> pd.DataFrame:
    X, y, X_test, _ = split("letter", options.data)
    X_test = np.tile(X_test, (4, 1))
    found, results = [], []
    for n_jobs in (1, 2):
        classifier, density = OnlineKDEClassifier(n_jobs=n_jobs), OnlineKDEDensity(n_jobs=n_jobs)
        density.fit(X)
        times = [time.perf_counter()]
        classifier.fit(X, y)
        times.append(time.perf_counter())
        of_classes = classifier.predict_log_proba(X_test)
        times.append(time.perf_counter())
        of_all = density.score_samples(X_test)
        times.append(time.perf_counter())
        found.append(np.diff(times))
        results.append(np.column_stack([of_classes, of_all]))
    return pd.DataFrame(
        {
            "letter": ["training", "probabilities", "one density of all classes"],
            "one thread, s": found[0],
            "two, s": found[1],
            "times faster": found[0] / found[1],
            "same bits": np.array_equal(*results),
        }
    )


def streamed(name: str, data: Path | None, share: float) -> tuple[float, float]:
    """Peak of the memory, in MB, and what streaming a part of a set adds to it."""
    X, y, _, _ = split(name, data)
    n = int(share * len(X))
    classifier = OnlineKDEClassifier()
    before = start_peak()
    for start in range(0, n, 1000):
        end = min(start + 1000, n)
        classifier.partial_fit(X[start:end], y[start:end], classes=np.unique(y))
    return peak_memory(), peak_memory() - before


def memory(options: argparse.Namespace) -> pd.DataFrame:
    peers, found = Peers.read(options.reference), []
    for name in ("skin", "covtype"):
        theirs = peers.of_seeds(name, "full", "peak_mb")
        for share in (0.1, 0.5, 1.0):
            status, value = run_apart(streamed, name, options.data, share)
            if status != OK:
                raise RuntimeError(value)
            found.append(
                {
                    "set": name,
                    "share of the stream": share,
                    "peak over what was there, MB": value[1],
                    "peak, MB": value[0],
                    "xokde++'s process, MB": theirs.mean() if len(theirs) else np.nan,
                }
            )
    return pd.DataFrame(found)


# Where a compression takes its steps from.
STEPS = {
    "prediction": "skokde._engine.learn.predict_latest",
    "bandwidth": "skokde._engine.bandwidth.ScaleRule.kernel_frame",
    "revitalization": "skokde._engine.learn.revitalize",
    "clusters": "skokde._engine.compression.cluster",
    "merging": "skokde._engine.compression.merge",
}


def operations(k: int, m: int, d: int, *, plugin: bool) -> dict[str, float]:
    """Multiplications and additions that the steps of a compression cannot do without.

    Of k components, m of them compounds, with full covariances, by dense linear algebra, which
    takes no account of covariances of low rank: an eigendecomposition is 9 d^3, an inverse d^3, a
    product of two matrices 2 d^3, a quadratic form 2 d^2. The tree of clusters has log2(k) levels;
    each assigns every component to one of two sides at least twice, and takes the sigma points of a
    node's Gaussian to every member.
    """
    cube, square, levels = float(d) ** 3, float(d) ** 2, np.log2(k)
    return {
        # Of the last fifth under the rest; one eigendecomposition serves all widths.
        "prediction": 9 * cube * m + 0.2 * k * m * (2 * square + 5 * 3 * d),
        # Whitening; and an inverse and two quadratic forms for each pair, if it is the plug-in one.
        "bandwidth": 9 * cube
        + (4 * cube * m + 0.5 * k * k * (cube + 4 * square) if plugin else 0.0),
        # A compound and its two details: roots, and each one's sigma points to the others.
        "revitalization": m * (3 * 4 * cube + 3 * 13 * cube + 6 * 2 * cube),
        "clusters": 13 * cube * (m + 2 * k) + levels * k * (2 * 2 * 4 * square + 2 * cube),
        # A fifth of the components goes into others, and the covariances of their details with it.
        "merging": 0.2 * k * 3 * (4 * cube + 4 * square),
    }


def rate(d: int) -> float:
    """Multiplications and additions a second in products of d x d matrices."""
    a = np.ones((max(1, 30_000_000 // d**3), d, d))
    return 2.0 * len(a) * d**3 / cpu(lambda: a @ a, 5)


def time_steps(
    classifier: OnlineKDEClassifier, X: np.ndarray, y: np.ndarray
) -> tuple[float, dict[str, float], list[tuple[int, int]]]:
    """Seconds of training, of each step of it, and (k, m) of each compression."""
    spent, sizes, compacting = dict.fromkeys(STEPS, 0.0), [], False

    def watched(*arguments: Any) -> Any:
        nonlocal compacting
        compacting = True
        try:
            return compact(*arguments)
        finally:
            compacting = False

    def timed(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **keywords: Any) -> Any:
            if not compacting:  # scoring needs a bandwidth, too
                return function(*arguments, **keywords)
            start = time.process_time()
            try:
                return function(*arguments, **keywords)
            finally:
                spent[step] += time.process_time() - start

        return run

    def counted(mixture: Any, *others: Any) -> Any:
        sizes.append((mixture.n_components, mixture.n_compounds))
        return compress(mixture, *others)

    with ExitStack() as patches:
        for step, target in STEPS.items():
            patches.enter_context(patch(target, timed(step, pkgutil.resolve_name(target))))
        patches.enter_context(patch("skokde._engine.learn.compress", counted))
        patches.enter_context(patch("skokde._engine.learn.compact", watched))
        total = cpu(partial(classifier.partial_fit, X, y))
    return total, spent, sizes


def steps(options: argparse.Namespace, n: int = 20_000) -> pd.DataFrame:
    """Time of each step of the compressions, beside the time its operations would take."""
    found = []
    for name in ("skin", "covtype", "letter", "gas"):
        X, y, _, _ = split(name, options.data)
        for label in ("skokde full okde", "skokde"):
            classifier = clone(MODELS[label].estimator)
            total, spent, sizes = time_steps(classifier, X[:n], y[:n])
            plugin = classifier.bandwidth == "okde"
            needed = pd.DataFrame(
                [operations(k, m, X.shape[1], plugin=plugin) for k, m in sizes]
            ).mean()
            spent["all else"] = total - sum(spent.values())
            for step, seconds in spent.items():
                if not seconds:
                    continue
                row = {
                    "set": name,
                    "model": label,
                    "step": step,
                    "share, %": 100.0 * seconds / total,
                    "us per compression": 1e6 * seconds / len(sizes),
                }
                if step in needed:
                    row["least, us"] = 1e6 * needed[step] / rate(X.shape[1])
                    row["times the least"] = row["us per compression"] / row["least, us"]
                found.append(row)
    return pd.DataFrame(found)


TABLES = {
    "training": training,
    "steps": steps,
    "scoring": scoring,
    "rows": rows,
    "latency": latency,
    "growth": growth,
    "components": components,
    "scale": scale,
    "batch": batch,
    "threads": threads,
    "memory": memory,
}


def markdown(frame: pd.DataFrame) -> str:
    def number(value: float) -> str:
        return "" if np.isnan(value) else f"{value:.3g}" if value < 1000 else f"{value:.0f}"

    return frame_markdown(frame, number)


def main(description: str) -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser)
    parser.add_argument("--reference", type=Path, help="folder of xokde.csv and the others")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), metavar="SET")
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    options = parser.parse_args()
    tables = {name: partial(table, options) for name, table in TABLES.items()}
    make_tables("speed", tables, options.tables, options.out, markdown, versions())
