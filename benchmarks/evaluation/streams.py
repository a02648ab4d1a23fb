"""Streams in an order that matters: real ones, and generators of river whose concepts change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from river.datasets import synth

from evaluation.datasets import load_dataset

SEED = 0


class Stream(NamedTuple):
    """Features of shape (n, d), integer classes, and where they are from, as a `Dataset` has."""

    name: str
    label: str
    X: np.ndarray
    y: np.ndarray
    rows: str  # "folder", "loader" or "river"


def _variants(n: int, variants: list[Iterable]) -> Iterable:
    """As many rows of each, one after the other."""
    return chain.from_iterable(islice(each, ceil(n / len(variants))) for each in variants)


def _sea(n: int, seed: int) -> Iterable:
    """Three sudden changes of the threshold of a sum; a tenth of the labels is wrong."""
    return _variants(n, [synth.SEA(variant, 0.1, seed + variant) for variant in range(4)])


def _hyperplane(n: int, seed: int) -> Iterable:
    """A plane in ten dimensions that turns all the time."""
    return synth.Hyperplane(seed, n_features=10, n_drift_features=10, mag_change=0.001)


def _rbf(n: int, seed: int) -> Iterable:
    """Fifty clusters of five classes in ten dimensions, all of which move."""
    return synth.RandomRBFDrift(
        seed, seed, n_classes=5, n_features=10, n_centroids=50, change_speed=0.001
    )


def _led(n: int, seed: int) -> Iterable:
    """Digits of seven noisy segments among 17 irrelevant features; three times others swap.

    LEDDrift itself does not change: it swaps features once, at the start.
    """
    swapped = [synth.LEDDrift(seed + k, 0.1, True, n_drift_features=k) for k in (1, 3, 5, 7)]
    return _variants(n, swapped)


def _agrawal(n: int, seed: int, share: float) -> Iterable:
    """Loans granted by age, and from the middle of the stream on by disposable income."""
    before, after = (synth.Agrawal(function, seed + function) for function in (0, 6))
    return synth.ConceptDriftStream(before, after, n // 2, ceil(share * n), seed)


def _sudden(n: int, seed: int) -> Iterable:
    # Below 1 / 350 river's sigmoid overflows.
    return _agrawal(n, seed, 1 / 200)


def _gradual(n: int, seed: int) -> Iterable:
    return _agrawal(n, seed, 1 / 4)


# In their own order.
REAL = ("eegeye", "gas", "covtype")
GENERATORS: dict[str, Callable[[int, int], Iterable[tuple[dict, Any]]]] = {
    "sea": _sea,
    "hyperplane": _hyperplane,
    "rbf": _rbf,
    "led": _led,
    "sudden": _sudden,
    "gradual": _gradual,
}
STREAMS = [*REAL, *GENERATORS]


def load_stream(name: str, n: int, folder: Path | None = None, seed: int = SEED) -> Stream:
    """The first n rows of a real stream; or n generated rows, whose changes are at shares of n."""
    if name in REAL:
        data = load_dataset(name, folder)
        return Stream(name, data.label, data.X[:n], data.y[:n], data.rows)
    X, y = zip(*islice(GENERATORS[name](n, seed), n), strict=True)
    values = np.array([list(row.values()) for row in X], dtype=float)
    return Stream(name, name, values, np.array(y, dtype=int), "river")
