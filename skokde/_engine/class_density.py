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
    kde : KDE or None
        In the data's, if any of the groups there, or of the short memories, are.
    """

    transformation: Transformation | None
    transformed: KDE | None
    kde: KDE | None

    @property
    def in_rows(self) -> bool:
        """Whether a compiled function scores single rows."""
        return all(kde is None or kde.in_rows for kde in (self.transformed, self.kde))

    def in_coordinates(self, X: np.ndarray) -> TransformedRows | None:
        """Rows in the coordinates of the transformation, if densities there are asked for."""
        return None if self.transformed is None else self.transformation.of_rows(X)

    def log_densities(
        self, X: np.ndarray, in_coordinates: TransformedRows | None = None
    ) -> np.ndarray:
        """Log-densities (n, n_densities) of rows, in nats; the transformed ones stand first.

        The rows `in_coordinates`, if they are known, are the same for all classes.
        """
        logs = []
        if self.transformed is not None:
            rows, log_dets = in_coordinates or self.in_coordinates(X)
            logs.append(self.transformed.log_densities_of_groups(rows) + log_dets[:, None])
        if self.kde is not None:
            logs.append(self.kde.log_densities_of_groups(X))
        return np.concatenate(logs, axis=1)


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
    logs = []
    if densities[0].transformed is not None:
        (of_row,), (log_det,) = densities[0].in_coordinates(row[None])
        kdes = [density.transformed for density in densities]
        logs.append(log_densities_of_groups_in_row(of_row, kdes) + log_det)
    if densities[0].kde is not None:
        logs.append(log_densities_of_groups_in_row(row, [density.kde for density in densities]))
    return np.concatenate(logs, axis=1)


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
    transformation = transformed = kde = None
    if any(of_transformed):
        transformation = settings.transformation
        transformed = build_transformed_kde(state, settings, references, of_transformed)
    if any(groups) or any(memories):
        kde = build_kde(state, settings, references, groups, memories)
    return ClassDensity(transformation, transformed, kde)
