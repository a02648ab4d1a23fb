"""Tables of values and paired differences, as Markdown and CSV."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from threadpoolctl import threadpool_limits

import skokde
from evaluation.options import add_common_options


class Value(NamedTuple):
    """Mean and standard deviation over shuffles, how many of them, and a mark."""

    mean: float
    sd: float = np.nan
    n: int = 1
    mark: str = ""

    @classmethod
    def of(cls, figures: pd.Series, mark: str = "") -> Value | None:
        figures = figures.dropna()
        if figures.empty:
            return None
        return cls(figures.mean(), figures.std(), len(figures), mark)

    def markdown(self, digits: int) -> str:
        spread = "" if np.isnan(self.sd) else f" ± {self.sd:.{digits}f}"
        return f"{self.mean:,.{digits}f}{spread}{self.mark}"


class Difference(NamedTuple):
    """Mean difference, and the p-value of it being chance where it was tested."""

    mean: float
    p: float = np.nan
    n: int = 1

    def markdown(self, digits: int) -> str:
        return f"{self.mean:+,.{digits}f}{'*' if self.p < 0.05 else ''}"


class Text(NamedTuple):
    """Why there is no figure."""

    text: str

    def markdown(self, digits: int) -> str:
        return self.text


Entry = Value | Difference | Text | None


def corrected_t_test(differences: np.ndarray, n_train: int, n_test: int) -> float:
    """P-value of paired differences over random splits of one data set having zero mean.

    The splits overlap, so that differences are correlated; Nadeau & Bengio (2003, Inference for
    the generalization error, Machine Learning 52) therefore add n_test / n_train to the 1 / J in
    the variance of their mean.
    """
    differences = np.asarray(differences, dtype=float)
    j = len(differences)
    if j < 2:
        return np.nan
    variance = differences.var(ddof=1)
    if variance == 0.0:
        return 1.0 if differences[0] == 0.0 else 0.0
    t = differences.mean() / np.sqrt((1.0 / j + n_test / n_train) * variance)
    return float(2.0 * stats.t.sf(abs(t), j - 1))


class Table(NamedTuple):
    """Rows of entries under columns.

    Attributes
    ----------
    name : str
        Of the CSV file.
    title, caption : str
    columns : list of str
    rows : dict of list
        By the first column's text.
    digits : int
    """

    name: str
    title: str
    caption: str
    columns: list[str]
    rows: dict[str, list[Entry]]
    digits: int = 1

    def with_average(self, names: list[str], label: str) -> Table:
        """The table with a row of averages over those of the named rows that all columns have."""
        full = [
            self.rows[name]
            for name in names
            if name in self.rows
            and all(isinstance(entry, (Value, Difference)) for entry in self.rows[name])
        ]
        if len(full) < 2:
            return self
        means = np.array([[entry.mean for entry in row] for row in full]).mean(axis=0)
        average = [
            type(entry)(mean, n=len(full)) for entry, mean in zip(full[0], means, strict=True)
        ]
        return self._replace(rows=self.rows | {f"**{label.format(len(full))}**": average})

    def markdown(self, level: int = 2) -> str:
        lines = [
            f"{'#' * level} {self.title}\n",
            f"{self.caption}\n",
            "| set | " + " | ".join(self.columns) + " |",
            "|---|" + "---:|" * len(self.columns),
        ]
        for name, row in self.rows.items():
            texts = ["" if entry is None else entry.markdown(self.digits) for entry in row]
            lines.append(f"| {name} | " + " | ".join(texts) + " |")
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """A line for each entry: row, column, mean, sd, n, p, note."""
        records = []
        for name, row in self.rows.items():
            for column, entry in zip(self.columns, row, strict=True):
                record = {"set": name.strip("*"), "column": column}
                if isinstance(entry, Text):
                    record["note"] = entry.text
                elif entry is not None:
                    record |= {k: v for k, v in entry._asdict().items() if k != "mark"}
                records.append(record)
        frame = pd.DataFrame(records).reindex(
            columns=["set", "column", "mean", "sd", "n", "p", "note"]
        )
        return frame.to_csv(index=False, float_format="%.6g")


def decimals(digits: int) -> Callable[[float], str]:
    """Writes numbers with so many digits after the point, what is missing as a dash."""
    return lambda value: "-" if np.isnan(value) else f"{value:.{digits}f}"


def frame_markdown(frame: pd.DataFrame, number: Callable[[float], str]) -> str:
    """A frame as a Markdown table; `number` writes its floats."""
    lines = ["| " + " | ".join(frame.columns) + " |", "|" + "---|" * len(frame.columns)]
    for row in frame.itertuples(index=False):
        texts = [number(value) if isinstance(value, float) else str(value) for value in row]
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def make_tables(
    command: str,
    tables: dict[str, Callable[[], pd.DataFrame]],
    chosen: Iterable[str],
    out: Path,
    markdown: Callable[[pd.DataFrame], str],
    versions: str,
    float_format: str = "%.5g",
    title: str | None = None,
) -> None:
    """Make the chosen tables of a command, with one thread: CSV files, and all as Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        with threadpool_limits(1):
            frame = tables[name]()
        frame.to_csv(out / f"{command}_{name}.csv", index=False, float_format=float_format)
        print(f"\n## {name}\n\n{markdown(frame)}", flush=True)
    made = f"Made by `benchmarks/{command}.py`. Last run with {versions}."
    parts = [f"# {title or command.capitalize()}\n\n{made}"]
    for name in tables:
        path = out / f"{command}_{name}.csv"
        if path.exists():
            parts.append(f"## {name}\n\n{markdown(pd.read_csv(path))}")
    (out / f"{command}.md").write_text("\n\n".join(parts) + "\n")


def tables_command(
    command: str,
    description: str,
    tables: dict[str, Callable[[argparse.Namespace], pd.DataFrame]],
    digits: int,
    title: str | None = None,
) -> None:
    """Make tables as a command's options say, which each of them gets."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser)
    parser.add_argument("--tables", nargs="+", default=tables, choices=tables, metavar="TABLE")
    options = parser.parse_args()
    make_tables(
        command,
        {name: partial(make, options) for name, make in tables.items()},
        options.tables,
        options.out,
        lambda frame: frame_markdown(frame, decimals(digits)),
        f"skokde {skokde.__version__}",
        title=title,
    )
