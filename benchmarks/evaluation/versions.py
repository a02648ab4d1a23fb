"""Two versions of skokde, timed in turns."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from evaluation.datasets import SETS, load_dataset
from evaluation.options import add_data_option
from evaluation.protocol import StreamSplit
from evaluation.tables import frame_markdown

REPOSITORY = Path(__file__).parents[2]
PAPER = {"bandwidth": "okde", "compression_threshold": 0.1, "calibrate": False}
CONFIGURATIONS = {
    "full": {},
    "diag": {"covariance_type": "diag"},
    "paper, full": PAPER,
    "paper, diag": PAPER | {"covariance_type": "diag"},
}
# What the oldest versions did not have.
LATER = {"predictive memory": {"forgetting_factor": "predictive"}}
# So many rows of a set at most are learned, and scored; so many are met one by one after them.
MOST_ROWS = 4000
ROWS_ONE_BY_ONE = 200
# Quick passages are repeated for so many seconds.
ENOUGH = 0.2
MEASURES = ("training", "scoring", "row by row")

# Gives a process something to do, and returns what it took.
Runner = Callable[..., list[float]]

# What a version runs. It knows nothing of this package, whose newest parts older versions lack.
WORKER = """
import json, sys, time
import numpy as np
from sklearn.base import clone
import skokde

def seconds(function):
    times, begin = [], time.perf_counter()
    while not times or time.perf_counter() - begin < {enough}:
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
    return min(times), result

def one_by_one(model, X, y):
    for row, label in zip(X, y):
        model.predict_proba(row[None])
        model.partial_fit(row[None], [label])

print(skokde.__file__, flush=True)
for line in sys.stdin:
    job = json.loads(line)
    if "rows" in job:
        with np.load(job["rows"]) as arrays:
            X, y, X_test, y_test = (arrays[n] for n in ("X", "y", "X_test", "y_test"))
        print(json.dumps(None), flush=True)
        continue
    model = skokde.OnlineKDEClassifier(**job["parameters"])
    training, model = seconds(lambda: clone(model).fit(X, y))
    model.predict_proba(X_test[:1])  # what is made once
    scoring, _ = seconds(lambda: model.predict_proba(X_test))
    known = np.isin(y_test, y)
    start = time.process_time()
    one_by_one(model, X_test[known][: job["one by one"]], y_test[known][: job["one by one"]])
    print(json.dumps([training, scoring, time.process_time() - start]), flush=True)
"""


@contextmanager
def built(version: str) -> Iterator[Path]:
    """The folder of a version with its compiled modules."""
    if Path(version).is_dir():
        yield Path(version).resolve()
        return
    git = ["git", "-C", str(REPOSITORY)]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "skokde")
        subprocess.run([*git, "worktree", "add", "--detach", tree, version], check=True)
        try:
            print(f"building {version}", file=sys.stderr)
            build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
            subprocess.run(build, cwd=tree, check=True, stdout=subprocess.DEVNULL)
            yield tree
        finally:
            shutil.rmtree(tree, ignore_errors=True)
            subprocess.run([*git, "worktree", "prune"], check=True)


@contextmanager
def running(tree: Path) -> Iterator[Runner]:
    """A process that imports skokde from a folder, as a function that gives it something to do."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WORKER.replace("{enough}", str(ENOUGH))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tree,
        env=os.environ | threads | {"PYTHONPATH": str(tree)},
    ) as process:

        def do(**job: object) -> list[float]:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                raise RuntimeError("A version has failed, see above.")
            return json.loads(answer)

        found = Path(process.stdout.readline().strip())
        if tree not in found.parents:
            raise RuntimeError(f"skokde came from {found}, not from {tree}: is it built?")
        yield do


def ratios(options: argparse.Namespace, before: Runner, after: Runner) -> pd.DataFrame:
    """Least times of either version in some rounds, and how many times as long the second took."""
    rows = []
    for name in options.sets:
        loaded = load_dataset(name, options.data)
        train, test = StreamSplit().of_seed(len(loaded.X), 0)
        train, test = train[: options.rows], test[: options.rows]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows.npz")
            X, y = loaded.X, loaded.y
            np.savez(file, X=X[train], y=y[train], X_test=X[test], y_test=y[test])
            for runner in (before, after):
                runner(rows=str(file))
        for configuration in options.configurations:
            job = {
                "parameters": (CONFIGURATIONS | LATER)[configuration],
                "one by one": ROWS_ONE_BY_ONE,
            }
            times = [(before(**job), after(**job)) for _ in range(options.rounds)]
            least = np.min(times, axis=0)
            for measure, theirs, ours in zip(MEASURES, *least, strict=True):
                rows.append((configuration, measure, name, theirs, ours, ours / theirs))
                print(*rows[-1][:3], f"{rows[-1][-1]:.2f}", file=sys.stderr)
    columns = ["configuration", "measure", "set", "before, s", "after, s", "ratio"]
    return pd.DataFrame(rows, columns=columns)


def by_set(frame: pd.DataFrame) -> pd.DataFrame:
    """Ratios, a row for each measure, and their geometric means over the sets."""
    order = ["configuration", "measure"]
    table = frame.pivot(index=order, columns="set", values="ratio")
    table = table.reindex(index=frame[order].drop_duplicates(), columns=frame["set"].unique())
    table["geometric mean"] = np.exp(np.log(table).mean(axis=1))
    return table.reset_index()


def main(description: str) -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_option(parser)
    parser.add_argument("before", help="a revision, or the folder of a tree")
    parser.add_argument("--with-version", default=str(REPOSITORY), help="default: this tree")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS[:-1], metavar="SET")
    parser.add_argument(
        "--configurations",
        nargs="+",
        choices=[*CONFIGURATIONS, *LATER],
        default=list(CONFIGURATIONS),
        metavar="NAME",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="of a set, default %(default)s")
    options = parser.parse_args()
    with ExitStack() as stack:
        trees = [stack.enter_context(built(v)) for v in (options.before, options.with_version)]
        frame = ratios(options, *(stack.enter_context(running(tree)) for tree in trees))
    print(frame_markdown(by_set(frame), "{:.2f}".format))
