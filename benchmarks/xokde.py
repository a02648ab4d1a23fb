#!/usr/bin/env python3
"""Set skokde beside the published C++ xokde++ on the paper's data sets.

    python benchmarks/xokde.py --data DIR --reference DIR [--sets iris wine ...] [--seeds 3]

DIR for --data (or the environment variable SKOKDE_DATA) holds NAME.csv.gz files with the header
x0,...,y. DIR for --reference holds xokde.csv, the figures of xokde++ on the same splits. Protocol:
raw features; for seed s the rows in the order numpy.random.RandomState(s).permutation(N), the first
int(0.75 N) of them the training stream, the rest the test set; D_th = 0.1.

Times are CPU seconds with one thread, divided by those of a fixed job run just before: ten EM
iterations of a 26-component scikit-learn GaussianMixture on 20,000 x 16 rows. Densities are floored
at 1e-300. Rows and a Markdown table go to --out, a folder; rows of other sets that are there from
an earlier run are kept.
"""

import argparse
import os
import platform
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import scipy
import sklearn
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import skokde
from skokde import OnlineKDEClassifier

SETS = ["iris", "wine", "pima", "red", "cancer", "yeast", "segment", "steel", "letter", "gas"]
ONE_SEED = {"letter", "gas"}
BANDWIDTHS = ["okde", "plugin"]
FLOOR = np.log(1e-300)


def reference_workload() -> float:
    """CPU seconds of the job that is the unit of time."""
    X = np.random.default_rng(0).normal(size=(20000, 16))
    mixture = GaussianMixture(
        26, max_iter=10, tol=0, random_state=0, init_params="random_from_data"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is stopped before it converges
        start = time.process_time()
        mixture.fit(X)
    return time.process_time() - start


def load(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    frame = pd.read_csv(folder / f"{name}.csv.gz")
    return frame.drop(columns="y").to_numpy(float), frame["y"].to_numpy()


def split(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.RandomState(seed).permutation(n)
    return order[: int(0.75 * n)], order[int(0.75 * n) :]


def evaluate(X, y, seed: int, covariance: str, bandwidth: str, unit: float) -> dict:
    train, test = split(len(X), seed)
    classifier = OnlineKDEClassifier(
        covariance_type=covariance, compression_threshold=0.1, bandwidth=bandwidth
    )
    start = time.process_time()
    classifier.partial_fit(X[train], y[train], classes=np.unique(y))
    trained = time.process_time()
    joint = classifier.predict_joint_log_proba(X[test])
    tested = time.process_time()
    own = np.searchsorted(classifier.classes_, y[test])
    with np.errstate(divide="ignore", invalid="ignore"):  # classes without a training row
        log_density = joint[np.arange(len(test)), own] - np.log(classifier.class_prior_[own])
    log_density[np.isnan(log_density)] = FLOOR
    sizes = [e.n_components_ for e in classifier.estimators_ if hasattr(e, "n_components_")]
    return {
        "acc": 100 * np.mean(joint.argmax(axis=1) == own),
        "nll": -np.maximum(log_density, FLOOR).mean(),
        "k_mean": np.mean(sizes),
        "k_max": max(sizes),
        "train": (trained - start) / unit,
        "test": (tested - trained) / unit,
    }


def run(arguments) -> pd.DataFrame:
    rows = []
    jobs = [
        (name, covariance, bandwidth, seed)
        for name in arguments.sets
        for covariance in arguments.covariances
        for bandwidth in BANDWIDTHS
        for seed in range(1 if name in ONE_SEED else arguments.seeds)
    ]
    current = None
    for name, covariance, bandwidth, seed in (bar := tqdm(jobs, disable=None)):
        bar.set_description(f"{name} {covariance} {bandwidth} seed {seed}")
        if name != current:
            X, y = load(arguments.data, name)
            unit = float(np.median([reference_workload() for _ in range(5)]))
            current = name
        figures = evaluate(X, y, seed, covariance, bandwidth, unit)
        rows.append(
            {"dataset": name, "covariance": covariance, "bandwidth": bandwidth, "seed": seed}
            | figures
        )
    return pd.DataFrame(rows)


def spread(values: pd.Series, digits: int) -> str:
    if values.empty:
        return "-"
    text = f"{values.mean():.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {values.std():.{digits}f}"


def table(ours: pd.DataFrame, peer: pd.DataFrame) -> str:
    """A row for each set, covariance type and bandwidth; the same seeds on both sides."""
    lines = [
        "| set | covariance | bandwidth | seeds | accuracy % | xokde++ | -log p | xokde++ "
        "| K | xokde++ | training time | xokde++ | share |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for key, group in ours.groupby(["dataset", "covariance", "bandwidth"], sort=False):
        name, covariance, bandwidth = key
        theirs = peer[(peer.dataset == name) & (peer.covariance == covariance)]
        theirs = theirs[theirs.seed.isin(group.seed)]
        seeds = ",".join(map(str, group.seed))
        if len(theirs) < len(group):
            seeds += f" (xokde++ ended with an error on {len(group) - len(theirs)})"
        both = group[group.seed.isin(theirs.seed)]
        share = f"{both.train.mean() / theirs.train.mean():.3f}" if len(theirs) else "-"
        lines.append(
            f"| {name} | {covariance} | {bandwidth} | {seeds} "
            + "".join(
                f"| {spread(group[column], digits)} | {spread(theirs[column], digits)} "
                for column, digits in [("acc", 1), ("nll", 2), ("k_mean", 1), ("train", 3)]
            )
            + f"| {share} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("SKOKDE_DATA")
    parser.add_argument("--data", type=Path, default=data, required=data is None)
    parser.add_argument("--reference", type=Path, help="folder of xokde.csv")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--covariances", nargs="+", default=["full", "diag"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    columns = ["dataset", "covariance", "seed", "acc", "nll", "k_mean", "train"]
    peer = pd.DataFrame(columns=columns)
    if arguments.reference:
        peer = pd.read_csv(arguments.reference / "xokde.csv")
    with threadpool_limits(1):
        ours = run(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "xokde.csv"
    if path.exists():
        earlier = pd.read_csv(path)
        ours = pd.concat([earlier[~earlier.dataset.isin(arguments.sets)], ours])
        ours = ours.sort_values("dataset", key=lambda names: names.map(SETS.index), kind="stable")
    ours.round(4).to_csv(path, index=False)
    versions = (
        f"skokde {skokde.__version__}, scikit-learn {sklearn.__version__}, NumPy "
        f"{np.__version__}, SciPy {scipy.__version__}, Python {platform.python_version()}"
    )
    text = f"{table(ours, peer)}\n\n{versions}; means ± standard deviations over seeds; times in "
    text += "units of the workload; share: our training time over xokde++'s, same seeds.\n"
    (arguments.out / "xokde.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
