"""A cell: one model on one split of one set, learned and tested in a process of its own."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import math
import multiprocessing
import pickle
import platform
import resource
import signal
import sys
import time
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

import skokde
from evaluation.models import MODELS, Model
from evaluation.protocol import (
    StreamSplit,
    brier,
    calibration_error,
    has_density,
    log_loss,
    nll,
    reliability,
)

if TYPE_CHECKING:
    from evaluation.datasets import Dataset

OK, TIME_LIMIT, ERROR = "ok", "time limit", "error"
# What takes long to import in a cell's process.
PRELOAD = [
    "skokde",
    "sklearn.mixture",
    "sklearn.model_selection",
    "sklearn.naive_bayes",
    "sklearn.neighbors",
    "sklearn.svm",
]


class Cell(NamedTuple):
    """What identifies a cell.

    Attributes
    ----------
    dataset, model : str
    seed : int
    rows : int or None
        Training rows; None for all of them. Fewer make a point of a learning curve, on the same
        test rows.
    """

    dataset: str
    model: str
    seed: int
    rows: int | None = None


def evaluate(model: Model, X: np.ndarray, y: np.ndarray, seed: int, rows: int | None) -> dict:
    """Learn the stream of a split in one pass, test on the rest; return the figures.

    Times are CPU seconds. Memory is in MB: the peak of the process, and how far it rose above what
    the process with its data held before.
    """
    train, test = StreamSplit().of_seed(len(X), seed)
    train = train[:rows]
    X_train, y_train, X_test, y_test = X[train], y[train], X[test], y[test]
    estimator = clone(model.estimator)
    gc.collect()
    before = start_peak()
    start = time.process_time()
    if hasattr(estimator, "partial_fit"):
        estimator.partial_fit(X_train, y_train, classes=np.unique(y))
    else:
        estimator.fit(X_train, y_train)
    trained = time.process_time()
    accuracy = estimator.score(X_test, y_test)
    tested = time.process_time()
    peak = peak_memory()
    components = np.asarray(model.components(estimator), dtype=float)
    probable = hasattr(estimator, "predict_proba")
    curve = reliability(estimator, X_test, y_test) if probable else None
    return {
        "n_train": len(train),
        "n_test": len(test),
        "acc": 100.0 * accuracy,
        "nll": nll(estimator, X_test, y_test) if has_density(estimator) else None,
        "log_loss": log_loss(estimator, X_test, y_test) if probable else None,
        "brier": brier(estimator, X_test, y_test) if probable else None,
        "calibration": calibration_error(curve) if probable else None,
        "curve": curve.tolist() if probable else None,
        "k_mean": components.mean(),
        "k_max": components.max(),
        "train_s": trained - start,
        "test_s": tested - trained,
        "pickle_kb": len(pickle.dumps(estimator)) / 1e3,
        "peak_mb": peak,
        "rise_mb": peak - before,
    }


def start_peak() -> float:
    """Resident memory in MB; from here on it is the peak's start, where the system can do that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def peak_memory() -> float:
    """Peak of the resident memory in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(li for li in status.read_text().splitlines() if li.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def reference_workload() -> float:
    """CPU seconds of the job that is the unit of time.

    Ten EM iterations of a 26-component mixture on 20,000 x 16 rows.
    """
    X = np.random.default_rng(0).normal(size=(20000, 16))
    mixture = GaussianMixture(
        26, max_iter=10, tol=0, random_state=0, init_params="random_from_data"
    )
    start = time.process_time()
    mixture.fit(X)
    return time.process_time() - start


def unit_of_time() -> float:
    return float(np.median([reference_workload() for _ in range(5)]))


def versions() -> str:
    packages = ("numpy", "scipy", "scikit-learn")
    parts = [f"skokde {skokde.__version__}", *(f"{name} {version(name)}" for name in packages)]
    parts += [f"Python {platform.python_version()}", f"{platform.system()} {platform.machine()}"]
    return ", ".join(parts)


@cache
def _code(module: str) -> str:
    """What stands for the code that a module's estimators run."""
    package = module.split(".")[0]
    if package == "skokde":  # all of it: parts of the engine lie in many files
        folder = Path(skokde.__file__).parent
        files = sorted(path for end in ("py", "pyx", "pxd") for path in folder.glob(f"**/*.{end}"))
    elif package == "evaluation":
        files = [Path(sys.modules[module].__file__)]
    else:
        distribution = "scikit-learn" if package == "sklearn" else package
        return f"{distribution} {version(distribution)}"
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def fingerprint(dataset: Dataset, estimator: BaseEstimator) -> str:
    """Digest of what a result depends on: the data, the estimator's parameters, the code."""
    parameters = estimator.get_params()
    # Estimators and classes among the parameters; numbers, text and the like have no module.
    parts = [estimator, *(value for value in parameters.values() if hasattr(value, "__module__"))]
    content = [
        hashlib.sha256(dataset.X.tobytes() + dataset.y.tobytes()).hexdigest(),
        type(estimator).__name__,
        sorted((name, repr(value)) for name, value in parameters.items()),
        sorted({_code(part.__module__) for part in parts}),
    ]
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def run_apart(function: Any, *arguments: Any, limit: float = math.inf) -> tuple[str, Any]:
    """Call a function in a fresh process of at most `limit` CPU seconds.

    Returns
    -------
    status : str
        `OK`, `TIME_LIMIT` or `ERROR`.
    value : object
        What the function returned, or a message.
    """
    # Forked from a process that has the imports done, but neither data nor threads.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_apart, args=(sender, function, arguments, limit), daemon=True)
    process.start()
    sender.close()
    try:
        status, value = receiver.recv()
    except EOFError:  # it was ended from outside
        process.join()
        number = -(process.exitcode or 0)
        if number == signal.SIGXCPU:
            return TIME_LIMIT, f"more than {limit:g} s of CPU time"
        return ERROR, f"the process ended with {_ending(number)}"
    process.join()
    return status, value


def _ending(number: int) -> str:
    return signal.Signals(number).name if number > 0 else f"exit code {-number}"


def _apart(sender: Any, function: Any, arguments: tuple, limit: float) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limit < math.inf:
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), most))
    try:
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            result = OK, function(*arguments)
    except Exception as error:
        result = ERROR, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    sender.send(result)


def run_cell(cell: Cell, folder: Path) -> dict:
    """The figures of a cell, from arrays that lie in a folder."""
    X, y = (np.load(folder / f"{cell.dataset}.{part}.npy", mmap_mode="r") for part in "Xy")
    return evaluate(MODELS[cell.model], X, y, cell.seed, cell.rows)
