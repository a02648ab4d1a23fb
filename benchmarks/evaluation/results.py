"""What the report and the pictures are made from: figures measured here, and those of the peers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from evaluation.cells import OK, TIME_LIMIT
from evaluation.datasets import SETS
from evaluation.models import MODELS
from evaluation.store import Store
from evaluation.tables import Difference, Entry, Text, Value, corrected_t_test

# On how many seeds xokde++ was tried, where not on twelve.
PEER_SEEDS = {
    (name, covariance): seeds
    for name, seeds in {"letter": 1, "covtype": 1, "skin": 2}.items()
    for covariance in ("full", "diag")
} | {("gas", "full"): 0}


class Peers(NamedTuple):
    """Figures that were not measured here; empty frames without a folder of them.

    Attributes
    ----------
    paper : DataFrame
        As printed, by set.
    xokde : DataFrame
        xokde++ on our splits, a row for each set, covariance and seed that it ended well on.
    okde : DataFrame
        oKDE on our splits, by set: means over seeds.
    batch : DataFrame
        Exact kernel density estimates of all samples, a row for each set and recipe.
    """

    paper: pd.DataFrame
    xokde: pd.DataFrame
    okde: pd.DataFrame
    batch: pd.DataFrame

    @classmethod
    def read(cls, folder: Path | None) -> Self:
        if folder is None:
            columns = ["dataset", "covariance", "seed", "acc", "nll", "k_mean", "train", "peak_mb"]
            xokde = pd.DataFrame(columns=columns)
            return cls(
                pd.DataFrame(), xokde, pd.DataFrame(columns=["preprocessing"]), pd.DataFrame()
            )
        okde = pd.read_csv(folder / "okde_matlab.csv").set_index("dataset")
        return cls(
            pd.read_csv(folder / "paper.csv").set_index("dataset"),
            pd.read_csv(folder / "xokde.csv"),
            okde,
            pd.read_csv(folder / "batch_kde.csv"),
        )

    def printed(self, dataset: str, column: str) -> Value | None:
        if dataset not in self.paper.index or np.isnan(self.paper.loc[dataset, column]):
            return None
        return Value(float(self.paper.loc[dataset, column]))

    def of_seeds(self, dataset: str, covariance: str, column: str) -> pd.Series:
        """What xokde++ gave, by seed."""
        of_set = self.xokde[(self.xokde.dataset == dataset) & (self.xokde.covariance == covariance)]
        return of_set.set_index("seed")[column]

    def octave(self, dataset: str, preprocessing: str, column: str) -> Value | None:
        rows = self.okde[self.okde.preprocessing == preprocessing]
        if dataset not in rows.index:
            return None
        return Value(float(rows.loc[dataset, column]), n=int(rows.loc[dataset, "seeds"]))


class Results:
    """What was measured, as frames.

    Parameters
    ----------
    store : Store
    peers : Peers
    sets : list of str
    tests : bool
        Whether differences are tested for significance.
    """

    def __init__(self, store: Store, peers: Peers, sets: list[str], *, tests: bool):
        records = [r for r in store.records.values() if r["dataset"] in sets]
        frame = pd.DataFrame(records).sort_values(["dataset", "model", "seed"], kind="stable")
        # Results of older runs may lack some of these.
        frame = frame.reindex(columns=frame.columns.union(["brier", "calibration", "curve"]))
        frame["train"] = frame.train_s / frame.unit_s
        frame["test"] = frame.test_s / frame.unit_s
        self.curves = frame[frame.rows.notna() & (frame.status == OK)]
        self.whole = frame[frame.rows.isna()]
        self.good = self.whole[self.whole.status == OK]
        self.peers = peers
        self.tests = tests
        self.sets = [name for name in SETS if name in set(self.whole.dataset)]
        self.models = [name for name in MODELS if name in set(self.whole.model)]
        self.versions = sorted(set(frame.versions))
        self._labels = dict(zip(frame.dataset, frame.label, strict=True))
        self._sources = dict(zip(frame.dataset, frame.source, strict=True))

    def label(self, dataset: str) -> str:
        return self._labels[dataset]

    def labels(self, datasets: list[str]) -> list[str]:
        return [self.label(name) for name in datasets if name in self._labels]

    def _ours(self, dataset: str) -> bool:
        """Whether the splits are those that the peers were run on."""
        return self._sources[dataset] == "folder"

    def of_seeds(self, dataset: str, model: str, column: str) -> pd.Series:
        rows = self.good[(self.good.dataset == dataset) & (self.good.model == model)]
        return rows.set_index("seed")[column].astype(float)

    def peer(self, dataset: str, covariance: str, column: str) -> pd.Series:
        """What xokde++ gave, where our splits are the same as its own."""
        figures = self.peers.of_seeds(dataset, covariance, column)
        seeds = self.whole[self.whole.dataset == dataset].seed if self._ours(dataset) else []
        return figures[figures.index.isin(seeds)]

    def entry(self, dataset: str, model: str, column: str, mark: str = "") -> Entry:
        """Mean over the shuffles, or why there is none."""
        value = Value.of(self.of_seeds(dataset, model, column), mark)
        if value is not None:
            return value
        rows = self.whole[(self.whole.dataset == dataset) & (self.whole.model == model)]
        if (rows.status == TIME_LIMIT).any():
            limit = rows[rows.status == TIME_LIMIT].limit.max()
            return Text(f"> {limit / 60:g} min")
        return Text("error") if len(rows) and not (rows.status == OK).any() else None

    def difference(self, dataset: str, ours: pd.Series, theirs: pd.Series) -> Difference | None:
        """Paired difference on the seeds that both have."""
        pairs = pd.concat([ours, theirs], axis=1, join="inner").dropna().to_numpy()
        if not len(pairs):
            return None
        differences = pairs[:, 0] - pairs[:, 1]
        rows = self.good[self.good.dataset == dataset].iloc[0]
        p = corrected_t_test(differences, rows.n_train, rows.n_test) if self.tests else np.nan
        return Difference(float(differences.mean()), p, len(differences))

    def peer_entry(self, dataset: str, covariance: str, column: str) -> Entry:
        """What xokde++ gave, and how often it did not."""
        figures = self.peer(dataset, covariance, column)
        if self.peers.xokde.empty or not self._ours(dataset):
            return None
        run = self.whole[self.whole.dataset == dataset].seed.nunique()
        tried = min(run, PEER_SEEDS.get((dataset, covariance), 12))
        failed = f"crashed {tried - len(figures)}/{tried}"
        if figures.empty:
            return Text(failed if tried else "not tried")
        return Value.of(figures, "" if len(figures) == tried else f" ({failed})")
