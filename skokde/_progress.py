"""How far a call that learns has come, in one line that is printed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from time import perf_counter

# Seconds between two prints. What takes less is not reported: a stream may be many short calls.
INTERVAL = 0.5
# Rows of the first part.
FIRST = 64


def reported_parts(n: int, n_components: Callable[[], int]) -> Iterator[slice]:
    """Cut rows into parts to be learned one after the other, and print what has been done between.

    Parts are as long as take a fraction of the interval, so that neither the cuts nor the prints
    cost anything that could be noticed.

    Parameters
    ----------
    n : int
        Rows.
    n_components : callable
        It returns how many the model holds now.

    Yields
    ------
    slice
        At least one, which is empty if there are no rows.
    """
    done, size = 0, FIRST
    start = printed = now = perf_counter()
    try:
        while True:
            part = slice(done, min(done + size, n))
            yield part
            before, now, done = now, perf_counter(), part.stop
            size = 2 * size if now - before < INTERVAL / 8 else max(size // 2, 1)
            if now - printed >= INTERVAL or (done == n and printed > start):
                printed = now
                line = progress_line(done, n, now - start, n_components())
                # As wide as any, to cover the one before.
                print(f"\r{line:<78}", end="", flush=True)
            if done == n:
                return
    finally:
        if printed > start:
            print(flush=True)


def progress_line(done: int, n: int, seconds: float, n_components: int) -> str:
    """What is printed: rows, their rate, components, and the time that is left or was taken."""
    rate = done / seconds
    left = f"{_rounded((n - done) / rate)} left" if done < n else f"took {_rounded(seconds)}"
    return f"{done:,} of {n:,} rows, {rate:,.0f} rows/s, {n_components:,} components, {left}"


def _rounded(seconds: float) -> timedelta:
    return timedelta(seconds=round(seconds))
