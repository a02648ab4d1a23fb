"""The densities of a class that are pooled: of groups of experts, some in other coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skokde._engine.estimates import REFERENCES, References, build_kde, build_transformed_kde
from skokde._engine.kde import KDE, log_densities_of_groups_in_row
from skokde._engine.state import Settings, State
from skokde._engine.transformation import Transformation, TransformedRows

# Up to so many rows take less time one by one than all at once.
FEW_ROWS = 4


class ClassDensity(NamedTuple):
    """Densities of a class, each normalised in the units of the data.

    Attributes
    ----------
    transformation : Transformation or None
        The same for all classes.
    transformed : KDE or None
        In its coordinates, if any of the groups there are asked for.
    kde : KDE
        In the data's.
    """

    transformation: Transformation | None
    transformed: KDE | None
    kde: KDE

    @property
    def in_rows(self) -> bool:
        """Whether a compiled function scores single rows."""
        return self.kde.in_rows and (self.transformed is None or self.transformed.in_rows)

    def in_coordinates(self, X: np.ndarray) -> TransformedRows | None:
        """Rows in the coordinates of the transformation, if densities there are asked for."""
        return None if self.transformed is None else self.transformation.of_rows(X)

    def log_densities(
        self, X: np.ndarray, in_coordinates: TransformedRows | None = None
    ) -> np.ndarray:
        """Log-densities (n, n_densities) of rows, in nats; the transformed ones stand first.

        The rows `in_coordinates`, if they are known, are the same for all classes.
        """
        logs = self.kde.log_densities_of_groups(X)
        if self.transformed is None:
            return logs
        rows, log_dets = in_coordinates or self.in_coordinates(X)
        of_rows = self.transformed.log_densities_of_groups(rows) + log_dets[:, None]
        return np.concatenate([of_rows, logs], axis=1)


def log_densities_of_few(X: np.ndarray, densities: Sequence[ClassDensity]) -> np.ndarray | None:
    """What `log_densities` of all classes are, in far less time than that of as many calls.

    Parameters
    ----------
    X : (n, d) array
    densities : sequence of ClassDensity

    Returns
    -------
    (n_densities, n, n_classes) array or None
        None where rows are not that few, or incomplete, or no compiled function scores them.
    """
    if len(X) > FEW_ROWS or np.isnan(X).any() or not all(of.in_rows for of in densities):
        return None
    return np.transpose([log_densities_in_row(row, densities) for row in X], (2, 0, 1))


def log_densities_in_row(row: np.ndarray, densities: Sequence[ClassDensity]) -> np.ndarray:
    """The same of a single row, (n_classes, n_densities)."""
    logs = log_densities_of_groups_in_row(row, [density.kde for density in densities])
    in_coordinates = densities[0].in_coordinates(row[None])
    if in_coordinates is None:
        return logs
    (row,), (log_det,) = in_coordinates
    kdes = [density.transformed for density in densities]
    of_row = log_densities_of_groups_in_row(row, kdes)
    return np.concatenate([of_row + log_det, logs], axis=1)


def build_class_density(
    state: State,
    settings: Settings,
    references: References = REFERENCES,
    chosen: Sequence[bool] | None = None,
) -> ClassDensity:
    """Densities that are pooled of a class, or some of them.

    For the other parameters see `build_kde`.
    """
    of_transformed, groups, memories = settings.chosen_densities(chosen)
    kde = build_kde(state, settings, references, groups, memories)
    if not any(of_transformed):
        return ClassDensity(None, None, kde)
    transformed = build_transformed_kde(state, settings, references, of_transformed)
    return ClassDensity(settings.transformation, transformed, kde)
