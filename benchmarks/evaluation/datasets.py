"""The data sets of the paper, gas and eegeye: from a folder, or from loaders and OpenML."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.preprocessing import LabelEncoder


class Entry(NamedTuple):
    """What a set looks like when it is complete, and where it is had without a folder."""

    n_samples: int
    n_features: int
    n_classes: int
    source: str
    fetch: Any  # -> (X, y)


class Dataset(NamedTuple):
    """Features of shape (n_samples, n_features), codes 0..C-1 of the classes, and their origin.

    `rows` tells the splits apart: only those of the folder are the peers' splits, since a loader
    may have the rows in another order.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    source: str
    rows: str  # "folder" or "loader"

    @property
    def label(self) -> str:
        """The name, with the share of the rows where it is a subset."""
        full = ENTRIES[self.name].n_samples
        return (
            self.name if len(self.y) == full else f"{self.name} ({len(self.y) / full:.0%} subset)"
        )


def _bundled(load: Any) -> Entry:
    X, y = load(return_X_y=True)
    name = load.__name__
    return Entry(
        *X.shape, len(np.unique(y)), f"sklearn.datasets.{name}", partial(load, return_X_y=True)
    )


def _openml(data_id: int, n_samples: int, n_features: int, n_classes: int) -> Entry:
    fetch = partial(
        datasets.fetch_openml, data_id=data_id, return_X_y=True, as_frame=False, parser="liac-arff"
    )
    return Entry(n_samples, n_features, n_classes, f"OpenML, data set {data_id}", fetch)


def _covtype() -> tuple[np.ndarray, np.ndarray]:
    X, y = datasets.fetch_covtype(return_X_y=True)
    return X[:, :10], y  # the quantitative columns


ENTRIES = {
    "iris": _bundled(datasets.load_iris),
    "yeast": _openml(181, 1484, 8, 10),
    "pima": _openml(37, 768, 8, 2),
    "red": _openml(40691, 1599, 11, 6),
    "white": _openml(40498, 4898, 11, 7),
    "wine": _bundled(datasets.load_wine),
    "letter": _openml(6, 20000, 16, 26),
    "segment": _openml(36, 2310, 19, 7),
    "steel": _openml(40982, 1941, 27, 7),
    "cancer": _bundled(datasets.load_breast_cancer),
    "skin": _openml(1502, 245057, 3, 2),
    "covtype": Entry(581012, 10, 7, "sklearn.datasets.fetch_covtype", _covtype),
    "gas": _openml(1476, 13910, 128, 6),
    "eegeye": _openml(1471, 14980, 14, 2),
}
# eegeye only makes sense in its own order.
SETS = [name for name in ENTRIES if name != "eegeye"]
# They take three shuffles where the others take twelve.
BIG_SETS = ("letter", "skin", "covtype")


def load_dataset(name: str, folder: Path | None = None) -> Dataset:
    """Load a set.

    Parameters
    ----------
    name : str
        One of `ENTRIES`.
    folder : Path, default=None
        Where ``<name>.csv.gz`` is looked for: columns x0, ..., x{d-1} and the class y. Where there
        is no such file, scikit-learn's loader is used; it keeps a copy of what it downloads.

    Raises
    ------
    OSError
        If the download fails.
    ValueError
        If the loader's data have another shape than the paper's.
    """
    entry = ENTRIES[name]
    path = None if folder is None else folder / f"{name}.csv.gz"
    if path is not None and path.exists():
        frame = pd.read_csv(path)
        X, y = frame.drop(columns="y").to_numpy(float), frame["y"].to_numpy()
        return Dataset(name, X, y, str(path), "folder")
    try:
        X, y = entry.fetch()
    except OSError as error:
        raise OSError(
            f"{name}: no file {path or '(no --data folder given)'}, and {entry.source} can't be "
            f"had ({error}). Give a folder with {name}.csv.gz as --data, or leave the set out."
        ) from error
    X, y = np.asarray(X, dtype=float), LabelEncoder().fit_transform(y)
    expected = (entry.n_samples, entry.n_features, entry.n_classes)
    if (*X.shape, len(np.unique(y))) != expected:
        raise ValueError(
            f"{name}: {entry.source} has {X.shape} values and {len(np.unique(y))} classes, not "
            f"{expected[:2]} and {expected[2]} as the paper's set. Give a folder as --data."
        )
    return Dataset(name, X, y, entry.source, "loader")
