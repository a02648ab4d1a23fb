"""Every model over every stream, row by row: cells, tables, curves and the command."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from math import ceil
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from evaluation.cells import OK, Cell
from evaluation.figures import STYLE
from evaluation.options import add_common_options
from evaluation.prequential import WINDOWS, figures, row_by_row
from evaluation.runner import run
from evaluation.store import Store
from evaluation.stream_models import DEFAULT, FIXED, MODELS, PREDICTIVE, PREVIOUS, fixed
from evaluation.streams import SEED, STREAMS, load_stream
from evaluation.tables import Difference, Entry, Table, Text, Value

QUICK_STREAMS = ("sea", "sudden")
QUICK_MODELS = (DEFAULT, fixed(0.97), "Gaussian naive Bayes", PREVIOUS)
BEST = "skokde, best fixed factor"
OURS = {"linewidth": 1.6, "zorder": 3}
OTHERS = {"linewidth": 1.0, "linestyle": "--"}
# Of each figure the title, what is to be known of it, and digits.
FIGURES = {
    "accuracy": ("Accuracy, %", "The prediction is the most probable class.", 1),
    "kappa": (
        "Cohen's kappa",
        "0 for predictions that have nothing to do with the classes, 1 for faultless ones.",
        3,
    ),
    "kappa_temporal": (
        "Temporal kappa",
        "0 for a model that is right as often as the class of the row before, 1 for a faultless "
        "one.",
        3,
    ),
    "log_loss": (
        "Log-loss of the class probabilities, nats",
        "skokde is told at the start which classes there are, river's models find out. Whatever "
        "probability a model gives to a class that has not come yet is what counts; below 1e-15 it "
        "counts as 1e-15, so that the first row of a class costs up to 34.5 nats, as does each "
        "mistake of a model that is certain.",
        3,
    ),
    "us_median": (
        "CPU time of predicting and learning a row, µs: the median",
        "One thread; of river's models with making the dict that they take.",
        0,
    ),
    "us_999": (
        "CPU time of predicting and learning a row, µs: 99.9 % of the rows take less",
        "One thread, as above.",
        0,
    ),
    "pickle_kb": ("Pickled model, kB", "After the last row.", 0),
}
TEXT = (
    "Made by `benchmarks/prequential.py` from `prequential.jsonl`, not by hand. Each row is "
    "predicted, then learned; the first is learned only. All models get the same raw features, "
    "and nothing is tuned to a stream."
)


def run_cell(cell: Cell, folder: Path) -> dict:
    """The figures of a model on a stream, whose arrays lie in a folder."""
    X, y = (np.load(folder / f"{cell.dataset}.{part}.npy") for part in "Xy")
    passage = row_by_row(MODELS[cell.model], X, y)
    return figures(passage, y) | {"river": version("river")}


def stored(store: Store, options: argparse.Namespace) -> pd.DataFrame:
    """The records of the chosen streams and models: of each stream, those over most rows."""
    frame = pd.DataFrame(store.records.values())
    frame = frame[
        frame.dataset.isin(options.streams)
        & frame.model.isin(options.models)
        & (frame.rows <= options.rows)
    ]
    frame = frame[frame.rows == frame.groupby("dataset").rows.transform("max")]
    # Where every cell failed, or none did, some columns are missing.
    frame = frame.reindex(columns=frame.columns.union([*FIGURES, "curve", "river", "message"]))
    order = {name: i for i, name in enumerate([*STREAMS, *MODELS])}
    return frame.sort_values(["dataset", "model"], key=lambda names: names.map(order))


def best_fixed(of_stream: pd.DataFrame) -> pd.Series | None:
    """The record of the fixed factor of most accuracy."""
    ours = of_stream[of_stream.model.isin(map(fixed, FIXED)) & (of_stream.status == OK)]
    return None if ours.empty else ours.loc[ours.accuracy.idxmax()]


def factor_of(record: pd.Series) -> str:
    return next(f"{factor:g}" for factor in FIXED if fixed(factor) == record.model)


def _entry(of_stream: pd.DataFrame, model: str, figure: str) -> Entry:
    records = of_stream[of_stream.model == model]
    if records.empty:
        return None
    record = records.iloc[0]
    return Value.of(records[figure]) if record.status == OK else Text(record.status)


def tables(frame: pd.DataFrame) -> list[Table]:
    """The forgetting factors, and a table for each figure: a row for each stream."""
    streams = dict(list(frame.groupby("label", sort=False)))
    factors: dict[str, list[Entry]] = {}
    for label, of_stream in streams.items():
        best = best_fixed(of_stream)
        if best is None:
            continue
        entries = [_entry(of_stream, model, "accuracy") for model in (DEFAULT, PREDICTIVE)]
        factors[label] = [
            Text(factor_of(best)),
            Value(best.accuracy),
            *entries,
            *(
                Difference(entry.mean - best.accuracy) if isinstance(entry, Value) else None
                for entry in entries
            ),
        ]
    models = list(dict.fromkeys(frame.model))
    tried = [f"{factor:g}" for factor in FIXED if fixed(factor) in models]
    return [
        Table(
            "factors",
            "Forgetting factors: accuracy, %",
            f"The best of {', '.join(tried)}, known only afterwards, "
            'beside the defaults and `forgetting_factor="predictive"`.',
            [
                "best fixed factor",
                "its accuracy",
                *(columns := [DEFAULT, PREDICTIVE]),
                *(f"{column} − best" for column in columns),
            ],
            factors,
        )
    ] + [
        Table(
            figure,
            title,
            caption,
            models,
            {
                label: [_entry(of_stream, model, figure) for model in models]
                for label, of_stream in streams.items()
            },
            digits,
        ).with_average(list(streams), "average of the {} streams all have")
        for figure, (title, caption, digits) in FIGURES.items()
    ]


def draw(frame: pd.DataFrame) -> Figure:
    """Accuracy over time; of the fixed forgetting factors only the best of each stream."""
    groups = dict(list(frame.groupby("label", sort=False)))
    columns = min(3, len(groups))
    rows = ceil(len(groups) / columns)
    shown = [name for name in MODELS if name not in map(fixed, FIXED[1:])]
    shown.insert(2, BEST)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4 * columns, 2.7 * rows + 0.8), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, (label, of_stream) in zip(grid, groups.items(), strict=False):
            curves = of_stream[of_stream.status == OK].set_index("model").curve.to_dict()
            best = best_fixed(of_stream)
            if best is not None:
                curves[BEST] = best.curve
                label += f", best factor {factor_of(best)}"
            for i, name in enumerate(shown):
                if name not in curves:
                    continue
                ends = np.linspace(0, of_stream.rows.iloc[0], len(curves[name]) + 1)
                axes.plot(
                    (ends[1:] + ends[:-1]) / 2,
                    curves[name],
                    color=f"C{i}",
                    label=name,
                    **(OURS if name.startswith("skokde") else OTHERS),
                )
            axes.set_title(label)
            axes.set_xlabel("rows seen")
            axes.set_ylabel("accuracy, %")
            axes.grid(color="0.92")
        for axes in grid[len(groups) :]:
            axes.remove()
        lines = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
        names = [name for name in shown if name in lines]
        figure.legend(
            [lines[name] for name in names],
            names,
            loc="outside lower center",
            ncols=4,
            frameon=False,
        )
    return figure


def report(frame: pd.DataFrame) -> str:
    rows = "; ".join(
        f"{label}, {n:,}" for label, n in frame.groupby("label", sort=False).rows.first().items()
    )
    run_with = "; ".join(sorted(set(frame.versions)))
    river = ", ".join(sorted(set(frame.river.dropna())))
    failures = [
        f"- {model} ({', '.join(group.label)}): {message}"
        for (model, message), group in frame[frame.status != OK].groupby(["model", "message"])
    ]
    parts = [
        "# Streams that change",
        f"{TEXT} Rows: {rows}. Run with {run_with}; river {river}.",
        "![Accuracy over time](prequential.png)",
        f"Accuracy over time, in windows of a {WINDOWS}th of each stream.",
        *(table.markdown() for table in tables(frame)),
        *(["## Without figures", "\n".join(failures)] if failures else []),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def write_report(frame: pd.DataFrame, out: Path) -> str:
    """Write the report, its figures as CSV and its picture; return the report."""
    columns = ["label", "rows", "model", "status", *FIGURES]
    names = {"label": "stream"}
    frame[columns].rename(columns=names).to_csv(
        out / "prequential.csv", index=False, float_format="%.5g"
    )
    draw(frame).savefig(out / "prequential.png", dpi=130, metadata={"Software": None})
    text = report(frame)
    (out / "prequential.md").write_text(text)
    return text


def parse(arguments: list[str] | None = None, description: str = "") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser)
    parser.add_argument("--streams", nargs="+", choices=STREAMS, metavar="STREAM")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), metavar="MODEL")
    parser.add_argument("--rows", type=int, help="of a stream; default 20,000, 300 with --quick")
    parser.add_argument("--time-limit", type=float, default=3600.0, help="CPU seconds of a cell")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{' and '.join(QUICK_STREAMS)}; {', '.join(QUICK_MODELS)}",
    )
    parser.add_argument(
        "--render", action="store_true", help="run nothing, make the tables of what is stored"
    )
    options = parser.parse_args(arguments)
    options.streams = options.streams or list(QUICK_STREAMS if options.quick else STREAMS)
    options.models = options.models or list(QUICK_MODELS if options.quick else MODELS)
    options.rows = options.rows or (300 if options.quick else 20_000)
    return options


def main(description: str) -> None:
    options = parse(description=description)
    store = Store(options.out / "prequential.jsonl")
    if not options.render:
        streams = {}
        for name in options.streams:
            try:
                streams[name] = load_stream(name, options.rows, options.data)
            except (OSError, ValueError) as error:
                print(f"left out: {error}", file=sys.stderr)
        cells = [
            Cell(name, model, SEED, len(stream.y))
            for name, stream in streams.items()
            for model in options.models
        ]
        run(
            cells,
            streams,
            store,
            limit=options.time_limit,
            n_jobs=options.n_jobs,
            estimators={name: MODELS[name] for name in options.models},
            job=run_cell,
        )
    print(write_report(stored(store, options), options.out))
