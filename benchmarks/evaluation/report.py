"""The report of the evaluation: which tables there are, and what stands in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from evaluation.cells import OK
from evaluation.datasets import SETS
from evaluation.figures import draw
from evaluation.results import Results
from evaluation.tables import Difference, Entry, Table, Value

PAPER_SETS = [name for name in SETS if name != "gas"]
DEFAULT = "skokde"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
AVERAGE = "average of the {} sets all have"
# Higher figures are better, or lower ones.
BETTER = {"acc": 1.0, "nll": -1.0, "log_loss": -1.0, "brier": -1.0}
# Mean accuracy over twelve shuffles that the defaults aim at.
TARGETS = {
    "iris": 97.0,
    "yeast": 59.3,
    "pima": 76.0,
    "red": 64.5,
    "white": 60.0,
    "wine": 99.5,
    "letter": 97.0,
    "segment": 95.5,
    "steel": 74.0,
    "cancer": 96.5,
    "skin": 99.9,
    "covtype": 82.0,
    "gas": 98.0,
}


def against_xokde(results: Results, column: str, covariance: str) -> Table:
    """Skokde with the paper's settings beside xokde++, as printed and on the same splits."""
    names = {"acc": "Accuracy, %", "nll": "-log p, nats", "k_mean": "Components per class"}
    printed_column = {"acc": "acc", "nll": "nll", "k_mean": "k"}[column] + f"_{covariance}"
    models = [f"skokde {covariance} {rule}" for rule in ("okde", "plugin")]
    columns = ["paper", "xokde++"]
    for rule in ("okde", "plugin"):
        columns += [rule, f"{rule} − paper", f"{rule} − xokde++"]
    rows: dict[str, list[Entry]] = {}
    for name in results.sets:
        printed = results.peers.printed(name, printed_column)
        peer = results.peer(name, covariance, column)
        row: list[Entry] = [printed, results.peer_entry(name, covariance, column)]
        for model in models:
            ours = results.of_seeds(name, model, column)
            value = results.entry(name, model, column)
            both = isinstance(value, Value) and printed is not None
            row += [
                value,
                Difference(value.mean - printed.mean) if both else None,
                results.difference(name, ours, peer),
            ]
        rows[results.label(name)] = row
    digits = 2 if column == "nll" else 1
    table = Table(
        f"{column}_{covariance}",
        f"{names[column]}: {covariance} covariances, beside xokde++",
        'Printed in the paper; xokde++ on our splits; skokde with `bandwidth="okde"`, the paper\'s '
        'settings, and with `"plugin"`. Differences to xokde++ are paired, over the seeds that '
        "it ended well on" + ("; * where p < 0.05." if results.tests else "."),
        columns,
        rows,
        digits,
    )
    return table.with_average(results.labels(results.sets), AVERAGE)


def all_models(results: Results, column: str, title: str, digits: int) -> Table:
    """Every model, marked where it differs significantly from skokde's defaults."""
    rows: dict[str, list[Entry]] = {}
    models = [
        m for m in results.models if results.good[results.good.model == m][column].notna().any()
    ]
    tested = results.tests and column in BETTER and DEFAULT in models
    for name in results.sets:
        row: list[Entry] = []
        for model in models:
            mark = ""
            if tested and model != DEFAULT:
                ours = results.of_seeds(name, DEFAULT, column)
                pair = results.difference(name, results.of_seeds(name, model, column), ours)
                if pair is not None and pair.p < 0.05:
                    mark = " ▲" if pair.mean * BETTER[column] > 0.0 else " ▼"
            row.append(results.entry(name, model, column, mark))
        rows[results.label(name)] = row
    caption = "Mean ± standard deviation over shuffles."
    if tested:
        caption += (
            f" ▲ better, ▼ worse than `{DEFAULT}` (its defaults) on the same splits, p < 0.05 in "
            "Nadeau & Bengio's corrected t-test."
        )
    table = Table(f"models_{column}", title, caption, models, rows, digits)
    table = table.with_average(results.labels(results.sets), AVERAGE)
    paper = results.labels(PAPER_SETS)
    if len(paper) == len(PAPER_SETS):
        table = _with_paper_average(table, paper)
    return table


def _with_paper_average(table: Table, names: list[str]) -> Table:
    """A row with the average of the paper's twelve sets, for the models that have all of them."""
    average: list[Entry] = []
    for i in range(len(table.columns)):
        column = [table.rows[name][i] for name in names]
        whole = all(isinstance(entry, Value) for entry in column)
        mean = np.mean([entry.mean for entry in column]) if whole else np.nan
        average.append(Value(float(mean), n=len(names)) if whole else None)
    return table._replace(rows=table.rows | {"**average of the paper's twelve**": average})


def other_peers(results: Results) -> Table:
    """Accuracy beside oKDE and OISVM."""
    columns = [
        "skokde",
        "oKDE, paper",
        "skokde − oKDE, paper",
        "oKDE",
        "oKDE, z-scored",
        "OISVM, paper",
        "skokde − OISVM, paper",
        "OISVM",
        "skokde − OISVM",
    ]
    rows: dict[str, list[Entry]] = {}
    peers = results.peers
    for name in results.sets:
        value = results.entry(name, DEFAULT, "acc")
        ours = results.of_seeds(name, DEFAULT, "acc")
        okde, oisvm = (peers.printed(name, f"acc_{peer}") for peer in ("okde", "oisvm"))

        def minus(printed: Value | None, value: Entry = value) -> Difference | None:
            if printed is None or not isinstance(value, Value):
                return None
            return Difference(value.mean - printed.mean)

        rows[results.label(name)] = [
            value,
            okde,
            minus(okde),
            peers.octave(name, "none", "acc"),
            peers.octave(name, "zscore", "acc"),
            oisvm,
            minus(oisvm),
            results.entry(name, "OISVM", "acc"),
            results.difference(name, ours, results.of_seeds(name, "OISVM", "acc")),
        ]
    return Table(
        "acc_peers",
        "Accuracy, %: skokde's defaults beside oKDE and OISVM",
        "oKDE and OISVM as printed in the paper; oKDE (Maggot 3.4) on at most three of our splits, "
        "on raw and on standardised features; OISVM as written for this benchmark, on all of them.",
        columns,
        rows,
    ).with_average(results.labels(results.sets), AVERAGE)


def targets(results: Results) -> Table:
    """What the defaults aim at, and what they reach."""
    batch = results.peers.batch
    rows: dict[str, list[Entry]] = {}
    for name in results.sets:
        printed = [
            results.peers.printed(name, f"acc_{model}")
            for model in ("full", "diag", "okde", "oisvm")
        ]
        best = max((entry.mean for entry in printed if entry is not None), default=None)
        exact = batch[batch.dataset == name].acc.max() if len(batch) else np.nan
        reached = results.entry(name, DEFAULT, "acc")
        rows[results.label(name)] = [
            None if best is None else Value(best),
            None if np.isnan(exact) else Value(float(exact)),
            Value(TARGETS[name]),
            reached,
            Difference(reached.mean - TARGETS[name]) if isinstance(reached, Value) else None,
        ]
    return Table(
        "targets",
        "Accuracy, %: what the defaults aim at",
        "The best figure in the paper, of an exact batch KDE with the best of many recipes for "
        "each set (some on a part of the rows), the target, and skokde's defaults.",
        ["best in the paper", "batch KDE", "target", "skokde", "skokde − target"],
        rows,
    ).with_average(results.labels(results.sets), AVERAGE)


def time_beside_xokde(results: Results) -> Table:
    """Training time, in the unit of the reference workload."""
    columns: list[str] = []
    rows: dict[str, list[Entry]] = {results.label(name): [] for name in results.sets}
    for covariance in ("full", "diag"):
        columns += [f"paper, s ({covariance})", f"xokde++ ({covariance})"]
        columns += [f"{rule} ({covariance})" for rule in ("okde", "plugin")]
        columns.append(f"xokde++ / okde ({covariance})")
        for name in results.sets:
            peer = results.peer(name, covariance, "train")
            ours = results.of_seeds(name, f"skokde {covariance} okde", "train")
            seeds = peer.index.intersection(ours.index)
            ratio = None
            if len(seeds):
                ratio = Value(peer[seeds].mean() / ours[seeds].mean(), n=len(seeds))
            rows[results.label(name)] += [
                results.peers.printed(name, f"time_{covariance}"),
                results.peer_entry(name, covariance, "train"),
                *(
                    results.entry(name, f"skokde {covariance} {rule}", "train")
                    for rule in ("okde", "plugin")
                ),
                ratio,
            ]
    return Table(
        "time_xokde",
        "Training time beside xokde++",
        "CPU time of one thread in units of the reference workload, measured beside it; the "
        "paper's in seconds of its machine, training and testing. The last column of each half is "
        "how many times faster skokde is, on the same seeds.",
        columns,
        rows,
        3,
    ).with_average(results.labels(results.sets), AVERAGE)


def memory_beside_xokde(results: Results) -> Table:
    """What a process needs, and what the model does."""
    columns, rows = [], {results.label(name): [] for name in results.sets}
    for covariance in ("full", "diag"):
        model = f"skokde {covariance} okde"
        columns += [
            f"{text} ({covariance})"
            for text in ("paper", "xokde++", "process", "rise", "model pickled")
        ]
        for name in results.sets:
            pickled = results.of_seeds(name, model, "pickle_kb") / 1e3
            rows[results.label(name)] += [
                results.peers.printed(name, f"mb_{covariance}"),
                results.peer_entry(name, covariance, "peak_mb"),
                results.entry(name, model, "peak_mb"),
                results.entry(name, model, "rise_mb"),
                Value.of(pickled),
            ]
    return Table(
        "memory_xokde",
        "Memory beside xokde++, MB",
        "Peaks of whole processes: the paper's, xokde++ on our splits, skokde with the paper's "
        "settings (Python, its libraries and the data are most of it); how far skokde's rose while "
        "it learned and predicted; its fitted classifier pickled.",
        columns,
        rows,
        2,
    ).with_average(results.labels(results.sets), AVERAGE)


def full_against_diag(results: Results) -> Table:
    """The paper's comparison of covariances."""
    figures = ("acc", "k_mean", "nll", "train", "pickle_kb")
    full, diag = "skokde full okde", "skokde diag okde"
    columns = [f"{text} {short}" for short in ("f", "d") for text in ("A", "K", "−L", "T", "M")]
    rows: dict[str, list[Entry]] = {}
    for name in results.sets:
        row = [results.entry(name, model, figure) for model in (full, diag) for figure in figures]
        pairs = {
            figure: results.difference(
                name, results.of_seeds(name, diag, figure), results.of_seeds(name, full, figure)
            )
            for figure in figures[:3]
        }
        complete = all(isinstance(entry, Value) for entry in row)
        speed = Value(row[3].mean / row[8].mean) if complete else None
        memory = Value(100 * row[9].mean / row[4].mean) if complete else None
        means = [entry._replace(sd=np.nan) if isinstance(entry, Value) else entry for entry in row]
        rows[results.label(name)] = [*means, *pairs.values(), speed, memory]
    return Table(
        "full_diag",
        "Full against diagonal covariances",
        "Paper's settings: accuracy A (%), components per class K, −L = -log p, training time T "
        "(units of the reference workload), pickled model M (kB), for full (f) and diagonal (d) "
        "covariances; differences d − f, T f / T d, M d / M f in %.",
        [*columns, "ΔA", "ΔK", "Δ(−L)", "speed-up", "M, %"],
        rows,
        2,
    ).with_average(results.labels(results.sets), AVERAGE)


def comparisons(results: Results) -> pd.DataFrame:
    """Paired differences of every skokde model to every other model and to xokde++, tested."""
    lines = []
    ours = [model for model in results.models if model.startswith("skokde")]
    for name in results.sets:
        for figure in BETTER:
            for model in ours:
                mine = results.of_seeds(name, model, figure)
                others = {
                    other: results.of_seeds(name, other, figure)
                    for other in results.models
                    if other != model
                }
                if figure in ("acc", "nll"):
                    for covariance in ("full", "diag"):
                        others[f"xokde++ {covariance}"] = results.peer(name, covariance, figure)
                for other, theirs in others.items():
                    difference = results.difference(name, mine, theirs)
                    if difference is not None:
                        lines.append(
                            {"set": results.label(name), "figure": figure, "model": model}
                            | {"other": other, "difference": difference.mean}
                            | {"p": difference.p, "shuffles": difference.n}
                        )
    return pd.DataFrame(lines)


def failures(results: Results) -> str:
    """Cells without figures, and why."""
    bad = results.whole[results.whole.status != OK]
    if bad.empty:
        return "Every cell has its figures.\n"
    lines = ["| set | model | shuffles | what happened |", "|---|---|---|---|"]
    for (name, model, message), group in bad.groupby(["dataset", "model", "message"], sort=False):
        seeds = ", ".join(map(str, sorted(group.seed)))
        lines.append(f"| {results.label(name)} | {model} | {seeds} | {message} |")
    return "\n".join(lines) + "\n"


def tables(results: Results) -> list[Table]:
    labels = results.labels(results.sets)
    beside = [
        against_xokde(results, column, covariance)
        for column in ("acc", "nll", "k_mean")
        for covariance in ("full", "diag")
    ]
    return (
        [
            all_models(results, "acc", "Accuracy, %", 1),
            all_models(
                results, "nll", "-log p of test rows under their own class's model, nats", 2
            ),
            all_models(results, "log_loss", "Log-loss of the class probabilities, nats", 3),
            all_models(results, "brier", "Brier score of the class probabilities", 3),
            all_models(results, "calibration", "Calibration error of the predicted classes, %", 1),
            targets(results),
            *beside,
            other_peers(results),
            full_against_diag(results),
            all_models(results, "k_mean", "Components per class", 1),
            all_models(results, "k_max", "Components of the largest class", 1),
            time_beside_xokde(results),
            all_models(results, "train", "Training time, units of the reference workload", 3),
            all_models(results, "train_s", "Training time, CPU seconds", 3),
            all_models(results, "test", "Test time, units of the reference workload", 3),
            memory_beside_xokde(results),
            all_models(results, "pickle_kb", "Pickled model, kB", 1),
            all_models(results, "peak_mb", "Peak memory of a process for one cell, MB", 1),
            all_models(
                results, "rise_mb", "Rise of the memory while learning and predicting, MB", 1
            ),
        ]
        if labels
        else []
    )


def report(results: Results, pictures: list[str]) -> str:
    """The whole report as Markdown."""
    sets = "; ".join(
        f"{results.label(name)}, {results.good[results.good.dataset == name].seed.nunique()}"
        for name in results.sets
    )
    parts = [
        "# The paper's evaluation",
        "Made by `benchmarks/paper.py` from `cells.jsonl`, not by hand. Raw features, 75 % of each "
        "shuffle learned in one pass, the rest tested. Densities are floored at 1e-300. Sets and "
        f"the shuffles of each: {sets}.",
        "Run with " + "; ".join(results.versions) + ".",
        "## Summary: accuracy, %, and log-loss",
        summary(results),
        *(f"![{Path(name).stem.replace('_', ' ')}]({name})" for name in pictures),
        *(table.markdown() for table in tables(results)),
        "## Cells without figures",
        failures(results),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def write_report(results: Results, out: Path) -> str:
    """Write the report, its tables as CSV and its pictures; return the report."""
    text = report(results, draw(results, out))
    (out / "paper.md").write_text(text)
    for table in tables(results):
        (out / f"{table.name}.csv").write_text(table.csv())
    if results.tests:
        comparisons(results).to_csv(out / "comparisons.csv", index=False, float_format="%.4g")
    return text


def summary(results: Results) -> str:
    """The tables of the README: accuracy, the peers' and ours, and log-loss."""
    accuracy = {
        "xokde++, paper": lambda name: results.peers.printed(name, "acc_full"),
        "xokde++": lambda name: results.peer_entry(name, "full", "acc"),
    } | _of_models(results, "acc", "SVC")
    log_loss = _of_models(results, "log_loss", "SVC calibrated")
    return (
        _means(results, accuracy, 1)
        + "\nLog-loss of the class probabilities, in nats (lower is better):\n\n"
        + _means(results, log_loss, 3)
    )


def _of_models(results: Results, column: str, svc: str) -> dict[str, Callable[[str], Entry]]:
    models = {"skokde, paper's settings": "skokde full okde", "**skokde**": DEFAULT} | {
        model: model for model in ("GaussianNB", "GaussianMixture", "KernelDensity", svc)
    }
    return {
        title: lambda name, model=model: results.entry(name, model, column)
        for title, model in models.items()
    }


def _means(results: Results, columns: dict[str, Callable[[str], Entry]], digits: int) -> str:
    """A table of means alone, as Markdown."""
    rows = {
        results.label(name): [
            entry._replace(sd=np.nan) if isinstance(entry := make(name), Value) else entry
            for make in columns.values()
        ]
        for name in results.sets
    }
    table = Table("summary", "", "", list(columns), rows, digits)
    table = table.with_average(results.labels(results.sets), AVERAGE)
    lines = table.markdown().splitlines()
    return "\n".join(line for line in lines if line.startswith("|")) + "\n"


def write_readme(results_text: str, path: Path) -> None:
    """Put the summary between the marks of a README."""
    text = path.read_text()
    if not -1 < text.find(BEGIN) < text.find(END):
        raise ValueError(f"{path} has no lines {BEGIN} and {END} to put the results between.")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    path.write_text(f"{head}{BEGIN}\n{results_text}{END}{tail}")
