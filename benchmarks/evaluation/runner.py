"""Run cells, several at a time, and store each as it ends."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator
from tqdm import tqdm

from evaluation.cells import (
    ERROR,
    OK,
    TIME_LIMIT,
    Cell,
    fingerprint,
    run_apart,
    run_cell,
    unit_of_time,
    versions,
)
from evaluation.datasets import Dataset
from evaluation.models import MODELS
from evaluation.store import Store

# Seconds after which the unit of time is measured anew: the speed of a machine drifts.
UNIT_AGE = 1800.0


class Unit:
    """The unit of time, measured beside the cells."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._measured = -np.inf
        self._seconds = np.nan

    def seconds(self) -> float:
        with self._lock:
            if time.monotonic() - self._measured > UNIT_AGE:
                status, value = run_apart(unit_of_time)
                if status != OK:
                    raise RuntimeError(f"the unit of time could not be measured: {value}")
                self._seconds, self._measured = value, time.monotonic()
            return self._seconds


def run(
    cells: Iterable[Cell],
    datasets: dict[str, Dataset],
    store: Store,
    *,
    limit: float,
    n_jobs: int,
    estimators: Mapping[str, BaseEstimator] | None = None,
    job: Callable[[Cell, Path], dict] = run_cell,
) -> None:
    """Run the cells that the store does not have.

    Parameters
    ----------
    cells : iterable of Cell
        In the order in which they are started.
    datasets : dict of Dataset
    store : Store
    limit : float
        CPU seconds of a cell. Where a model passes it on a set, its other shuffles are not tried.
    n_jobs : int
        Processes at a time.
    estimators : mapping, default=None
        By the names of models. None takes those of `MODELS`.
    job : callable
        Returns the figures of a cell, given it and the folder of the arrays.
    """
    estimators = estimators or {name: model.estimator for name, model in MODELS.items()}
    prints = {
        (data.name, name): fingerprint(data, estimator)
        for data in datasets.values()
        for name, estimator in estimators.items()
    }
    unit, writing = Unit(), threading.Lock()

    def passed_before(cell: Cell) -> bool:
        return any(
            record["status"] == TIME_LIMIT
            and record["fingerprint"] == prints[cell.dataset, cell.model]
            and record["limit"] >= limit
            and (cell.rows is None or (other.rows is not None and other.rows <= cell.rows))
            for other, record in list(store.records.items())
            if (other.dataset, other.model) == (cell.dataset, cell.model)
        )

    def one(cell: Cell, folder: Path) -> None:
        data = datasets[cell.dataset]
        key = prints[cell.dataset, cell.model]
        with writing:
            known = store.find(cell, key, limit)
        if known is not None:
            record = known
        else:
            record = {
                "label": data.label,
                "source": data.rows,
                "fingerprint": key,
                "versions": versions(),
                "limit": limit,
            }
            if passed_before(cell):
                record |= {
                    "status": TIME_LIMIT,
                    "message": "not tried: another took longer",
                }
            else:
                record["unit_s"] = unit.seconds()
                status, value = run_apart(job, cell, folder, limit=limit)
                record["status"] = status
                record |= value if status == OK else {"message": value}
        with writing:
            store.add(cell, {k: v for k, v in record.items() if k not in Cell._fields})
        if record["status"] == ERROR:
            tqdm.write(f"{cell.dataset}, {cell.model}, seed {cell.seed}: {record['message']}")

    todo = [
        cell
        for cell in cells
        if (record := store.records.get(cell)) is None
        or record is not store.find(cell, prints[cell.dataset, cell.model], limit)
    ]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(n_jobs) as pool:
        path = Path(folder)
        for name in {cell.dataset for cell in todo}:
            np.save(path / f"{name}.X.npy", datasets[name].X)
            np.save(path / f"{name}.y.npy", datasets[name].y)
        futures = [pool.submit(one, cell, path) for cell in todo]
        try:
            for future in tqdm(
                as_completed(futures), total=len(futures), unit="cell", disable=None
            ):
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    store.tidy()
