"""Options that the benchmark commands share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"


def add_data_option(parser: argparse.ArgumentParser) -> None:
    data = os.environ.get("SKOKDE_DATA")
    parser.add_argument(
        "--data",
        type=Path,
        default=None if data is None else Path(data),
        help="folder of NAME.csv.gz files with the columns x0, ..., y (default: $SKOKDE_DATA); "
        "sets that are not there come from scikit-learn's loaders and OpenML",
    )


def add_common_options(parser: argparse.ArgumentParser) -> None:
    add_data_option(parser)
    parser.add_argument("--n-jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: %(default)s")
