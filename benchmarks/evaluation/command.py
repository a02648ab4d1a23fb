"""The command of the evaluation: what it takes, which cells it runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from evaluation.cells import Cell
from evaluation.datasets import BIG_SETS, SETS, load_dataset
from evaluation.models import MODELS
from evaluation.options import add_common_options
from evaluation.report import summary, write_readme, write_report
from evaluation.results import Peers, Results
from evaluation.runner import run
from evaluation.store import Store

QUICK_SETS = ("iris", "wine", "pima", "cancer", "yeast", "segment")
CURVE_SETS = ("pima", "segment", "letter")
CURVE_MODELS = ("skokde full okde", "skokde diag okde", "skokde", "GaussianNB", "KernelDensity")
CURVE_SHUFFLES = 3


def parse(arguments: list[str] | None = None, description: str = "") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser)
    parser.add_argument(
        "--reference", type=Path, help="folder of paper.csv, xokde.csv, okde_matlab.csv"
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=None, metavar="SET")
    parser.add_argument(
        "--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="MODEL"
    )
    parser.add_argument("--shuffles", type=int, default=None, help="default 12, 3 with --quick")
    parser.add_argument("--time-limit", type=float, default=600.0, help="CPU seconds of a cell")
    parser.add_argument(
        "--quick", action="store_true", help=f"{', '.join(QUICK_SETS)}; no learning curves"
    )
    parser.add_argument(
        "--render", action="store_true", help="run nothing, make the tables of what is stored"
    )
    parser.add_argument("--readme", type=Path, help="a README whose results block is made anew")
    options = parser.parse_args(arguments)
    options.sets = options.sets or list(QUICK_SETS if options.quick else SETS)
    options.shuffles = options.shuffles or (3 if options.quick else 12)
    return options


def cells_of(options: argparse.Namespace, sizes: dict[str, int]) -> list[Cell]:
    """All cells, shuffle by shuffle, so that what is left takes as long as what was."""
    cells = [
        Cell(name, model, seed)
        for seed in range(options.shuffles)
        for name in options.sets
        if seed < 3 or name not in BIG_SETS
        for model in options.models
    ]
    if options.quick:
        return cells
    return cells + [
        Cell(name, model, seed, rows)
        for seed in range(min(options.shuffles, CURVE_SHUFFLES))
        for name in options.sets
        if name in CURVE_SETS
        for model in options.models
        if model in CURVE_MODELS
        for rows in (50 * 2**i for i in range(9))
        if rows < int(0.75 * sizes[name])
    ]


def main(description: str) -> None:
    options = parse(description=description)
    store = Store(options.out / "cells.jsonl")
    if not options.render:
        datasets = {}
        for name in options.sets:
            try:
                datasets[name] = load_dataset(name, options.data)
            except (OSError, ValueError) as error:
                print(f"left out: {error}", file=sys.stderr)
            else:
                print(f"{datasets[name].label}: {datasets[name].source}", file=sys.stderr)
        options.sets = list(datasets)
        cells = cells_of(options, {name: len(data.y) for name, data in datasets.items()})
        run(cells, datasets, store, limit=options.time_limit, n_jobs=options.n_jobs)
    peers = Peers.read(options.reference)
    results = Results(store, peers, options.sets, tests=not options.quick)
    print(write_report(results, options.out))
    if options.readme:
        write_readme(summary(results), options.readme)
