"""When the calibration predicts: checkpoints, windows, and how long predictions are remembered."""

from __future__ import annotations

from math import sqrt

import numpy as np

from skokde._engine.state import Settings

# The first checkpoint is after this many rows; the first window begins after so many for each class
# seen, for more classes than a few less for each further one; the next ones come after this share
# of the rows so far, but after so many at least.
FIRST_CHECKPOINT = 20
FIRST_OF_CLASS, FEW_CLASSES, FIRST_OF_FURTHER = 10, 3, 5
SHARE_BETWEEN, LEAST_BETWEEN = 0.2, 12
# So many rows for each feature are few: the covariance that classes share follows each of them, but
# none from the first window on.
FEW_ROWS = 2
# A window has at most so many rows: its densities lack them, and its predictions come late.
LONGEST_WINDOW = 256
# Up to this number of rows a window lasts until the next one, and predictions are remembered in
# proportion to all samples. From there on the distance of windows and what is remembered grow with
# the root: many predicted rows are enough, and older ones are of densities that knew less.
MANY_ROWS = 2000
# Where the memory is found by prediction windows have this number of rows, and they follow each
# other at once; in a long stream every second one is left out.
SHORT_WINDOW = 4
LONG_STREAM = 500
# Samples by whose number it goes there how long predictions are remembered, at most.
MOST_FOLLOWED = 4000.0
# With a fixed factor it goes by so many times the rows that are not forgotten: how right densities
# of the newest are changes less than these do.
TIMES_REMEMBERED = 3.0


def followed(class_count: np.ndarray, position: int, settings: Settings) -> float:
    """Samples by whose number it goes how long predictions are remembered."""
    total = float(class_count.sum())
    if settings.memories:
        return min(total, MOST_FOLLOWED)
    if settings.forgetting_factor < 1.0:
        total = min(position, TIMES_REMEMBERED * remembered(position, settings))
    return slowed(total)


def window_length(position: int, settings: Settings) -> int:
    """Rows in a window that begins after so many rows."""
    if settings.memories:
        return SHORT_WINDOW
    return min(share(remembered(position, settings)), LONGEST_WINDOW)


def between(position: int, settings: Settings) -> int:
    """Rows from a checkpoint to the next."""
    length = window_length(position, settings)
    if settings.memories:
        return length if position < LONG_STREAM else 2 * length
    number = remembered(position, settings)
    return int(length * number / slowed(number))


def remembered(position: int, settings: Settings) -> float:
    """How many of so many rows are not forgotten.

    Densities that forget are not what they were a window of all rows before: what predictions of
    such a window say of them would be wrong.
    """
    forgotten = 1.0 - settings.forgetting_factor
    return min(position, 1.0 / forgotten) if forgotten else position


def first_window(n_classes: int) -> int:
    """Rows before the first window, where so many classes have a sample.

    Few rows of each class tell little of how sure the densities should be, but many classes of few
    rows each are wrong by far more than that.
    """
    further = max(0, n_classes - FEW_CLASSES)
    of_classes = FIRST_OF_CLASS * (n_classes - further) + FIRST_OF_FURTHER * further
    return max(FIRST_CHECKPOINT, of_classes)


def share(position: float) -> int:
    """So many rows that with them what is known of the data may have changed."""
    return max(LEAST_BETWEEN, int(SHARE_BETWEEN * position))


def slowed(number: float) -> float:
    """What grows as a number does up to `MANY_ROWS`, and then with its root."""
    return sqrt(number * min(number, MANY_ROWS))
