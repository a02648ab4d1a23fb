"""Pictures of the evaluation."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from evaluation.results import Results

MARKERS = "oD^vsP*Xp<>h"
STYLE = {"svg.hashsalt": "skokde", "font.size": 9, "axes.spines.top": False}
STYLE["axes.spines.right"] = False


def _style(models: list[str]) -> dict[str, dict]:
    """A colour and a marker for each model, skokde's in the first colours."""
    colours = matplotlib.colormaps["tab10" if len(models) <= 10 else "tab20"].colors
    return {
        model: {"color": colours[i % len(colours)], "marker": MARKERS[i % len(MARKERS)]}
        for i, model in enumerate(models)
    }


def accuracy(results: Results) -> Figure:
    """Accuracy of every model, set by set."""
    figure = Figure(figsize=(8, 0.42 * len(results.sets) + 1.2), layout="constrained")
    axes = figure.subplots()
    for model, style in _style(results.models).items():
        means = [results.of_seeds(name, model, "acc").mean() for name in results.sets]
        axes.plot(means, range(len(means)), linestyle="none", label=model, alpha=0.8, **style)
    axes.set_yticks(range(len(results.sets)), [results.label(name) for name in results.sets])
    axes.invert_yaxis()
    axes.grid(axis="y", color="0.9")
    axes.set_xlabel("accuracy, % (mean over shuffles)")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return figure


def time_accuracy(results: Results) -> Figure | None:
    """Mean accuracy against the geometric mean of training times, on the sets that all have."""
    figures = results.good.groupby(["dataset", "model"])[["acc", "train"]].mean()
    complete = figures.acc.unstack().reindex(columns=results.models).dropna()
    if complete.empty:
        return None
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for model, style in _style(results.models).items():
        train = figures.train.unstack().loc[complete.index, model]
        x, y = np.exp(np.log(train.clip(lower=1e-6)).mean()), complete[model].mean()
        axes.plot(x, y, linestyle="none", markersize=8, alpha=0.8, label=model, **style)
    axes.set_xscale("log")
    axes.set_xlabel(
        "training time, units of the reference workload "
        f"(geometric mean of the {len(complete)} sets all have)"
    )
    axes.set_ylabel("mean accuracy, %")
    axes.grid(color="0.92")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return figure


def calibration(results: Results) -> Figure | None:
    """How often predicted classes are right, against how probable they were said to be."""
    if results.good.curve.isna().all():
        return None
    good = results.good[results.good.curve.notna()]
    # Each set has the same say, and each of its shuffles.
    figure = Figure(figsize=(5.6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 100], [0, 100], color="0.8", zorder=0)
    for model, style in _style(results.models).items():
        curves = [
            np.mean([np.array(curve) / np.sum(np.array(curve)[:, 0]) for curve in group], axis=0)
            for _, group in good[good.model == model].groupby("dataset").curve
        ]
        if curves:
            rows, said, right = np.mean(curves, axis=0).T
            some = rows > 0.0
            x, y = (100 * part[some] / rows[some] for part in (said, right))
            axes.plot(x, y, markersize=4, alpha=0.8, label=model, **style)
    axes.set_xlabel("probability that the predicted class was given, %")
    axes.set_ylabel("share of rows that it was right for, %")
    axes.grid(color="0.92")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return figure


def learning_curves(results: Results) -> Figure | None:
    """-log p of the test rows against the number of training rows seen."""
    sets = [name for name in results.sets if name in set(results.curves.dataset)]
    if not sets:
        return None
    styles = _style(results.models)
    figure = Figure(figsize=(3.4 * len(sets), 3.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
        points = results.curves[results.curves.dataset == name]
        ends = results.good[
            (results.good.dataset == name) & results.good.seed.isin(points.seed.unique())
        ]
        low, high = np.inf, -np.inf
        for model in points.model.unique():
            rows = [frame[frame.model == model] for frame in (points, ends)]
            means = [frame.groupby("n_train").nll.mean() for frame in rows]
            n = np.concatenate([mean.index for mean in means])
            nll = np.concatenate([mean.to_numpy() for mean in means])
            axes.plot(n, nll, markersize=4, label=model, **styles[model])
            low, high = min(low, nll.min()), max(high, nll[len(nll) // 2 :].max())
        # A few rows on the density floor at the start would flatten everything else.
        axes.set_ylim(low - 0.1 * (high - low), high + 0.6 * (high - low))
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title(results.label(name))
        axes.set_xlabel("training rows seen")
        axes.grid(color="0.92")
    figure.axes[0].set_ylabel("-log p of test rows, nats")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


PICTURES = {
    "accuracy": accuracy,
    "time_accuracy": time_accuracy,
    "learning_curves": learning_curves,
    "calibration": calibration,
}


def draw(results: Results, out: Path) -> list[str]:
    """Draw all pictures that there are figures for; return the names of the files."""
    out.mkdir(parents=True, exist_ok=True)
    names = []
    with matplotlib.rc_context(STYLE):
        for name, make in PICTURES.items():
            figure = make(results)
            if figure is not None:
                figure.savefig(out / f"{name}.png", dpi=130, metadata={"Software": None})
                names.append(f"{name}.png")
    return names
