"""The curves against D_th and against the forgetting factor."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from tqdm import tqdm

from evaluation.cells import OK, run_apart, versions
from evaluation.datasets import Dataset, load_dataset
from evaluation.oisvm import OISVM
from evaluation.options import add_common_options
from evaluation.prequential import last_class, prequential
from evaluation.protocol import SCORERS, StreamSplit
from evaluation.tables import frame_markdown
from skokde import OnlineKDEClassifier

THRESHOLDS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.2, 0.3, 0.5)
THRESHOLD_SETS = ("iris", "pima", "red", "segment")
COVARIANCES = ("full", "diag")
FORGETTING = (1.0, 0.9999, 0.999, 0.998, 0.995, 0.99, 0.98, 0.95, 0.9)
# Rows that are predicted before they are learned. Small beside the drift.
BLOCK = 50


def components(estimator: OnlineKDEClassifier, X: np.ndarray, y: np.ndarray) -> float:
    """Mean number of components of a class, as a scorer."""
    return float(np.mean([density.n_components_ for density in estimator.estimators_]))


def threshold_curve(data: Dataset, n_splits: int, n_jobs: int) -> pd.DataFrame:
    """Figures for each covariance type and D_th; times as ratios to those at D_th = 0.1."""
    search = GridSearchCV(
        OnlineKDEClassifier(),
        {"covariance_type": COVARIANCES, "compression_threshold": THRESHOLDS},
        scoring=SCORERS | {"components": components},
        cv=StreamSplit(n_splits),
        refit=False,
        n_jobs=n_jobs,
        verbose=1,
        error_score="raise",
    ).fit(data.X, data.y)
    found = search.cv_results_
    frame = pd.DataFrame(
        {
            "set": data.label,
            "covariance": found["param_covariance_type"],
            "D_th": found["param_compression_threshold"].astype(float),
            "accuracy": 100 * found["mean_test_accuracy"],
            "accuracy_sd": 100 * found["std_test_accuracy"],
            "nll": -found["mean_test_neg_nll"],
            "log_loss": -found["mean_test_neg_log_loss"],
            "components": found["mean_test_components"],
            "seconds": found["mean_fit_time"],
        }
    )
    usual = frame[frame.D_th == 0.1].set_index("covariance").seconds
    frame["time"] = frame.seconds / frame.covariance.map(usual)
    return frame.drop(columns="seconds").sort_values(["covariance", "D_th"])


def draw_thresholds(frame: pd.DataFrame) -> Figure:
    columns = {
        "accuracy": "accuracy, %",
        "nll": "-log p, nats",
        "components": "components per class",
        "time": "training time / that at 0.1",
    }
    sets = frame["set"].unique()
    figure = Figure(figsize=(3 * len(columns), 2.4 * len(sets)), layout="constrained")
    grid = figure.subplots(len(sets), len(columns), squeeze=False, sharex=True)
    for row, name in zip(grid, sets, strict=True):
        for axes, column in zip(row, columns, strict=True):
            for covariance, curve in frame[frame["set"] == name].groupby("covariance"):
                axes.plot(curve.D_th, curve[column], marker="o", markersize=4, label=covariance)
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.grid(color="0.92")
            if column in ("components", "time"):
                axes.set_yscale("log")
        row[0].set_ylabel(name)
    for axes, title in zip(grid[0], columns.values(), strict=True):
        axes.set_title(title)
    for axes in grid[-1]:
        axes.set_xlabel("compression threshold D_th")
    grid[0, 0].legend(frameon=False)
    return figure


def forgetting_curve(
    data: Dataset, covariances: list[str], n_jobs: int
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Prequential accuracy for each model, and which rows each predicted rightly."""
    models: dict[str, BaseEstimator] = {
        f"skokde {covariance}, {factor:g}": OnlineKDEClassifier(
            covariance_type=covariance, forgetting_factor=factor
        )
        for covariance in covariances
        for factor in FORGETTING
    }
    models |= {"GaussianNB": GaussianNB(), "OISVM": OISVM()}

    def one(model: BaseEstimator) -> np.ndarray:
        status, value = run_apart(prequential, model, data.X, data.y, BLOCK)
        if status != OK:
            raise RuntimeError(value)
        return value

    with ThreadPoolExecutor(n_jobs) as pool:
        rights = pool.map(one, models.values())
        right = dict(zip(models, tqdm(rights, total=len(models), disable=None), strict=True))
    right["the last class seen"] = last_class(data.y)[BLOCK:]
    frame = pd.DataFrame(
        {
            "set": data.label,
            "model": list(right),
            "accuracy": [100 * r.mean() for r in right.values()],
        }
    )
    return frame, right


def draw_forgetting(
    frame: pd.DataFrame, right: dict[str, np.ndarray], covariances: list[str]
) -> Figure:
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, over_time = figure.subplots(1, 2)
    accuracy = frame.set_index("model").accuracy
    window = 500
    for covariance in covariances:
        curve = [accuracy[f"skokde {covariance}, {factor:g}"] for factor in FORGETTING]
        left.plot(range(len(FORGETTING)), curve, marker="o", label=f"skokde {covariance}")
        for factor in (1.0, FORGETTING[int(np.argmax(curve))]):
            name = f"skokde {covariance}, {factor:g}"
            rolling = pd.Series(right[name]).rolling(window).mean()
            over_time.plot(100 * rolling, label=name)
    for name, style in (("GaussianNB", "--"), ("OISVM", "-."), ("the last class seen", ":")):
        left.axhline(accuracy[name], color="0.4", linestyle=style, label=name)
    left.set_xticks(range(len(FORGETTING)), [f"{factor:g}" for factor in FORGETTING], rotation=45)
    left.set_xlabel("forgetting factor")
    left.set_ylabel("prequential accuracy, %")
    over_time.set_xlabel("rows seen")
    over_time.set_ylabel(f"accuracy over the last {window} rows, %")
    for axes in (left, over_time):
        axes.grid(color="0.92")
        axes.legend(frameon=False, fontsize=7)
    return figure


def write(name: str, title: str, text: str, frame: pd.DataFrame, figure: Figure, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(out / f"{name}.csv", index=False, float_format="%.5g")
    figure.savefig(out / f"{name}.png", dpi=130, metadata={"Software": None})
    report = f"# {title}\n\n{text} Run with {versions()}.\n\n![{title}]({name}.png)\n\n"
    (out / f"{name}.md").write_text(report + frame_markdown(frame, "{:.4g}".format))


def main(description: str) -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("curve", choices=["threshold", "forgetting"])
    add_common_options(parser)
    parser.add_argument("--sets", nargs="+", default=THRESHOLD_SETS, help="of the threshold")
    parser.add_argument("--shuffles", type=int, default=3, help="of the threshold")
    parser.add_argument(
        "--covariances",
        nargs="+",
        choices=COVARIANCES,
        default=["diag"],
        help="of the forgetting; full ones take an hour with 128 features",
    )
    options = parser.parse_args()
    if options.curve == "threshold":
        data = [load_dataset(name, options.data) for name in options.sets]
        frame = pd.concat(
            threshold_curve(each, options.shuffles, options.n_jobs) for each in tqdm(data)
        )
        write(
            "threshold",
            "The compression threshold",
            f"Means over {options.shuffles} shuffles, the defaults otherwise; training time (wall "
            "clock) as a ratio to that at D_th = 0.1.",
            frame,
            draw_thresholds(frame),
            options.out,
        )
    else:
        data = load_dataset("gas", options.data)
        frame, right = forgetting_curve(data, options.covariances, options.n_jobs)
        write(
            "forgetting",
            "Forgetting under drift",
            f"Prequential accuracy on {data.label} in time order, in blocks of {BLOCK} rows; the "
            "first block is not counted.",
            frame,
            draw_forgetting(frame, right, options.covariances),
            options.out,
        )
