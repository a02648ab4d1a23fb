"""A long stream of all that streams do, and what it does to a classifier."""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import resource
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from evaluation.cells import peak_memory, versions
from evaluation.options import RESULTS
from evaluation.protocol import log_loss
from evaluation.tables import frame_markdown
from skokde import OnlineKDEClassifier

N_CLASSES = 3
N_CHECKS = 50
LONGEST_BLOCK = 10_000
# Of each class: what a compression may leave, and half as many more before the next.
MOST_COMPONENTS = 2401
# Distances of the far probes from zero.
FAR = (1e3, 1e30, 1e100)
# Sums of up to 10^7 counts round differently in another order.
COUNT_RTOL = 1e-9


class Event(NamedTuple):
    """Something that happens to the rows from `start` to `stop`, and to which class or feature."""

    kind: str
    start: int
    stop: int
    which: int


# What events do to the rows and labels they are given, in place. Of the generators `fixed` draws
# the same in each block of an event.


def absence(X: np.ndarray, y: np.ndarray, which: int, fixed: Any, rng: Any) -> None:
    y[y == which] = (which + 1) % N_CLASSES


def jump(X: np.ndarray, y: np.ndarray, which: int, fixed: Any, rng: Any) -> None:
    X[y == which] += 3.0 * fixed.normal(size=X.shape[1])


def stuck(X: np.ndarray, y: np.ndarray, which: int, fixed: Any, rng: Any) -> None:
    X[:, which % X.shape[1]] = fixed.normal()


def cauchy(X: np.ndarray, y: np.ndarray, which: int, fixed: Any, rng: Any) -> None:
    X += rng.standard_cauchy(size=X.shape)


def far(X: np.ndarray, y: np.ndarray, which: int, fixed: Any, rng: Any) -> None:
    X += 1e6 * rng.normal(size=X.shape)


def repeat(X: np.ndarray, y: np.ndarray, which: int, fixed: Any, rng: Any) -> None:
    X[:], y[:] = fixed.normal(size=X.shape[1]), which


class Kind(NamedTuple):
    """What happens, how often, and for which share of the stream each time."""

    effect: Any
    times: int
    share: float


# In the order in which they take effect. After a jump things stay as they are.
KINDS = {
    "absence": Kind(absence, 3, 0.1),
    "jump": Kind(jump, 4, 1.0),
    "stuck": Kind(stuck, 3, 0.01),
    "cauchy": Kind(cauchy, 3, 0.002),
    "far": Kind(far, 3, 0.0005),
    "repeat": Kind(repeat, 3, 0.002),
}


@dataclass(frozen=True)
class Stream:
    """Rows of three classes, each of two clumps that drift.

    It has no state: what comes at a position is drawn from a generator of that position.
    """

    samples: int
    features: int = 4
    kinds: tuple[str, ...] = tuple(KINDS)
    seed: int = 0

    @cached_property
    def events(self) -> list[Event]:
        found = []
        for number, (name, kind) in enumerate(KINDS.items()):
            rng = np.random.default_rng([self.seed, 0, number])
            # One in the first half of each of equal parts, after a tenth of peace.
            starts = 0.1 + 0.9 * (np.arange(kind.times) + 0.5 * rng.random(kind.times)) / kind.times
            for i, start in enumerate((starts * self.samples).astype(int).tolist()):
                length = max(1, int(kind.share * self.samples))
                if name in self.kinds:
                    found.append(Event(name, start, min(start + length, self.samples), i))
        return found

    def began(self, start: int, stop: int) -> str:
        """What began between two positions."""
        return " ".join(event.kind for event in self.events if start <= event.start < stop)

    def rows(self, start: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """A block: rows and classes."""
        shape = np.random.default_rng([self.seed, 1])
        size = (N_CLASSES, self.features)
        centers, arms, phases = (
            2.0 * shape.normal(size=size),
            shape.normal(size=size),
            shape.random(size),
        )
        rng = np.random.default_rng([self.seed, 2, start])
        X, y = rng.normal(size=(n, self.features)), rng.integers(0, N_CLASSES, n)
        self._happen(["absence"], X, y, start, rng)
        cycles = 5.0 * np.arange(start, start + n)[:, None] / self.samples
        X += centers[y] + rng.choice([-1.5, 1.5], (n, 1)) * arms[y]
        X += 2.0 * np.sin(2.0 * np.pi * (cycles + phases[y]))
        self._happen([name for name in KINDS if name != "absence"], X, y, start, rng)
        return X, y

    def _happen(self, names: list[str], X: np.ndarray, y: np.ndarray, start: int, rng: Any) -> None:
        for event in self.events:
            at = slice(max(event.start - start, 0), max(event.stop - start, 0))
            if event.kind in names and len(y[at]):
                fixed = np.random.default_rng([self.seed, 3, event.start])
                KINDS[event.kind].effect(X[at], y[at], event.which % N_CLASSES, fixed, rng)

    def blocks(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Cuts between two check points: many short blocks, many rows in long ones.

        The last block is a quarter of it, so that its figures are not those of a few rows.
        """
        rng = np.random.default_rng([self.seed, 4, start])
        last = stop - min(LONGEST_BLOCK, max(1, (stop - start) // 4))
        while start < last:
            n = min(int(LONGEST_BLOCK ** rng.random()), last - start)
            yield start, n
            start += n
        yield last, stop - last


def resident_memory() -> float:
    """Resident memory in MB once garbage is collected; NaN where the system does not tell."""
    gc.collect()
    path = Path("/proc/self/statm")
    if not path.exists():
        return np.nan
    return int(path.read_text().split()[1]) * resource.getpagesize() / 1e6


def traced_memory() -> float:
    """Memory in kB that Python holds for all but this file, as far as it is traced."""
    others = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, __file__)])
    return sum(trace.size for trace in others.traces) / 1e3


@dataclass
class Soak:
    """A run, and how far it has come.

    Attributes
    ----------
    stream : Stream
    classifier : OnlineKDEClassifier
    class_count, n_rows : (n_classes,) arrays
        Kept beside the classifier: what its counts must be, and rows without forgetting.
    records : list of dict
        One for each check point so far.
    """

    stream: Stream
    classifier: OnlineKDEClassifier
    class_count: np.ndarray = field(default_factory=lambda: np.zeros(N_CLASSES))
    n_rows: np.ndarray = field(default_factory=lambda: np.zeros(N_CLASSES))
    records: list[dict] = field(default_factory=list)

    @classmethod
    def start(cls, stream: Stream, forgetting: float, checkpoint: Path | None = None) -> Soak:
        """A new run, or the one of a file."""
        new = cls(stream, OnlineKDEClassifier(forgetting_factor=forgetting))
        if checkpoint is None or not checkpoint.exists():
            return new
        old = joblib.load(checkpoint)
        if old.identity != new.identity:
            raise ValueError(f"{checkpoint} is of another run: {old.identity}, not {new.identity}.")
        return old

    @property
    def identity(self) -> tuple[Stream, dict]:
        return self.stream, self.classifier.get_params()

    @property
    def position(self) -> int:
        return self.records[-1]["samples"] if self.records else 0

    def run(self, checkpoint: Path | None = None) -> Soak:
        """Learn what is left of the stream."""
        samples = self.stream.samples
        gc.freeze()  # what was there before is not looked at in each collection
        with threadpool_limits(1), tqdm(total=samples, unit=" samples", disable=None) as progress:
            progress.update(self.position)
            for stop in np.linspace(0, samples, N_CHECKS + 1).astype(int)[1:].tolist():
                if stop > self.position:
                    start = self.position
                    self.step(stop)
                    progress.update(stop - start)
                    if checkpoint is not None:
                        self._save(checkpoint)
        gc.unfreeze()
        return self

    def _save(self, checkpoint: Path) -> None:
        # Not written in place: one may be stopped in the midst of it.
        new = checkpoint.with_name(checkpoint.name + ".new")
        joblib.dump(self, new)
        os.replace(new, checkpoint)

    def step(self, stop: int) -> None:
        """Learn as far as a check point, check, and record."""
        seconds, figures, begin = 0.0, {}, self.position
        for start, n in self.stream.blocks(begin, stop):
            X, y = self.stream.rows(start, n)
            if start + n == stop and start:
                figures = {
                    "accuracy, %": 100.0 * self.classifier.score(X, y),
                    "log-loss": log_loss(self.classifier, X, y),
                }
            before = time.process_time()
            self.classifier.partial_fit(X, y, classes=np.arange(N_CLASSES))
            seconds += time.process_time() - before
            self._count(y)
        sizes = [density.n_components_ for density in self.classifier.estimators_]
        pickled = pickle.dumps(self.classifier)
        broken = self.broken(X[-500:], pickled)
        n_bytes = len(pickled)
        del X, y, pickled
        self.records.append(
            {"samples": stop, "began": self.stream.began(begin, stop)}
            | {f"K {c}": size for c, size in enumerate(sizes)}
            | {"us per sample": 1e6 * seconds / (stop - begin)}
            | figures
            | {"RSS, MB": resident_memory(), "peak, MB": peak_memory()}
            | ({"traced, kB": traced_memory()} if tracemalloc.is_tracing() else {})
            | {"pickle, kB": n_bytes / 1e3, "broken": ", ".join(broken)}
        )

    def _count(self, y: np.ndarray) -> None:
        f, of_class = self.classifier.forgetting_factor, np.eye(N_CLASSES)[y]
        fades = f ** np.arange(len(y) - 1.0, -1.0, -1.0)
        self.class_count = self.class_count * f ** len(y) + fades @ of_class
        self.n_rows = self.n_rows + of_class.sum(axis=0)

    def broken(self, recent: np.ndarray, pickled: bytes) -> list[str]:
        """Names of what should hold and does not."""
        classifier, f = self.classifier, self.classifier.forgetting_factor
        densities, d = classifier.estimators_, recent.shape[1]
        probes = np.concatenate([recent, *(r * np.vstack([np.eye(d), -np.eye(d)]) for r in FAR)])
        joint = classifier.predict_joint_log_proba(probes)
        proba = classifier.predict_proba(probes)
        # Of a density, that ages with its own rows only: a geometric series.
        counts = self.n_rows if f == 1.0 else -np.expm1(self.n_rows * np.log(f)) / (1.0 - f)
        totals = [density._mixture.counts.sum() for density in densities]
        holds = {
            "finite densities": np.isfinite([e.score_samples(probes) for e in densities]).all(),
            "finite joint": np.isfinite(joint[:, classifier.class_prior_ > 0.0]).all(),
            "sum of one": np.abs(proba.sum(axis=1) - 1.0).max() <= 1e-12 and proba.min() >= 0.0,
            "few components": max(e.n_components_ for e in densities) <= MOST_COMPONENTS,
            "class counts": np.allclose(classifier.class_count_, self.class_count, COUNT_RTOL, 0.0),
            "density counts": np.allclose(totals, counts, COUNT_RTOL, 0.0),
            "rows seen": [e.n_samples_seen_ for e in densities] == self.n_rows.tolist(),
            "pickle": np.array_equal(pickle.loads(pickled).predict_joint_log_proba(probes), joint),
        }
        return [name for name, held in holds.items() if not held]

    @property
    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.records)

    @property
    def n_broken(self) -> int:
        return int((self.frame.broken != "").sum())

    def verdict(self) -> str:
        """Time, memory and invariants, in a line."""
        frame, tenth = self.frame, max(1, len(self.records) // 10)
        us, rss = frame["us per sample"], frame["RSS, MB"]
        first, last = us[:tenth].mean(), us[-tenth:].mean()
        memory = f"RSS: {rss.iloc[-1] - rss.iloc[tenth - 1]:+.1f} MB since a tenth of the stream"
        if "traced, kB" in frame:
            traced, half = frame["traced, kB"], len(frame) // 2
            memory += (
                f"; traced memory: at most {traced[:half].max():.0f} kB in the first half, "
                f"{traced[half:].max():.0f} in the second"
            )
        return (
            f"us per sample: {first:.1f} in the first tenth, {last:.1f} in the last "
            f"({last / first:.2f} times); {memory}; check points with broken invariants: "
            f"{self.n_broken} of {len(frame)}."
        )


def main(description: str) -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=10**7, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--forgetting", type=float, default=0.9999, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--events", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--traced", action="store_true", help="trace Python's memory, too: slow")
    parser.add_argument("--checkpoint", type=Path, help="file to go on from, written on the way")
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: %(default)s")
    options = parser.parse_args()
    if options.samples < 1000:
        parser.error("--samples must be at least 1000: all classes are there at each check point")
    options.out.mkdir(parents=True, exist_ok=True)
    stream = Stream(options.samples, options.features, tuple(options.events), options.seed)
    if options.traced:
        tracemalloc.start()
    soak = Soak.start(stream, options.forgetting, options.checkpoint).run(options.checkpoint)
    soak.frame.to_csv(options.out / "soak.csv", index=False, float_format="%.5g")
    report = "\n\n".join(
        [
            "# Soak",
            f"Made by `benchmarks/soak.py`. Last run with {versions()}.",
            soak.verdict(),
            frame_markdown(soak.frame, "{:.4g}".format),
        ]
    )
    (options.out / "soak.md").write_text(report + "\n")
    print(report)
    sys.exit(int(soak.n_broken > 0))
