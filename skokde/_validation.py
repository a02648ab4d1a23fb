"""Checks that both estimators make before they learn."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from skokde._engine.bandwidth import RULES, FixedCovariance, NormalReference, Rule, fine_predictive
from skokde._engine.compression import MOST_COMPONENTS, THRESHOLDS, are_large
from skokde._engine.covariance import (
    EIGENVALUE_FLOOR,
    FEWEST_SHRUNK,
    STRUCTURES,
    CovarianceStructure,
)
from skokde._engine.recent import MEMORIES
from skokde._engine.state import Settings
from skokde._engine.whitening import SMALLEST_VARIANCE

# The square of anything larger overflows.
LARGEST_VALUE = 1e150

# What the bandwidth may be multiplied by, that its square neither over- nor underflows.
LARGEST_SCALE = 1e100

# What `validate_data` makes of rows; who does not take missing values refuses them later.
OF_ROWS = {"dtype": np.float64, "order": "C", "ensure_all_finite": "allow-nan"}

# Weights below the smallest normal double are taken for zero.
TINY = np.finfo(float).tiny
# Of labels and outputs that need no further look when they come in a list.
PLAIN = (int, float, str, np.number, np.bool_)


class DegenerateDataWarning(UserWarning):
    """What the data do not tell has been put in, and log-densities depend on it."""


def warn_of_fall_back(estimator: Any) -> None:
    """Warn of a bandwidth that is not found by its rule."""
    warnings.warn(
        f"{type(estimator).__name__}: bandwidth={estimator.bandwidth!r} finds no positive finite "
        "scale for these data, and the covariance of all of them has been taken for the kernel's: "
        "give another bandwidth. See bandwidth_scale_.",
        DegenerateDataWarning,
        stacklevel=5,
    )


def warn_of_corrections(estimator: Any, corrected: np.ndarray) -> None:
    """Warn of features whose spread is not the data's."""
    warnings.warn(
        f"{type(estimator).__name__}: features that are constant or linear functions of others: "
        f"{_named(estimator, corrected)}. The spread that they lack has been put in, and "
        "log-densities depend on it: leave them out, or give the bandwidth as an array. See "
        "corrected_features_.",
        DegenerateDataWarning,
        stacklevel=5,
    )


def _named(estimator: Any, chosen: np.ndarray) -> str:
    """Names or numbers of some features, ten at most."""
    names = getattr(estimator, "feature_names_in_", np.arange(len(chosen)))[chosen]
    return ", ".join(map(str, names[:10])) + (", ..." if len(names) > 10 else "")


def check_settings(estimator: Any, n_features: int, layout: str | None = None) -> Settings:
    """The engine's settings from an estimator's parameters.

    Parameters
    ----------
    estimator : OnlineKDEDensity or OnlineKDEClassifier
    n_features : int
    layout : {"full", "diag", "lowrank"}, default=None
        How a model holds its covariances, if there is one already: what `covariance_type` has been
        set to since does not count unless it has the same layout.

    Raises
    ------
    ValueError, TypeError
        With the parameter's name and what it may be.
    """
    name = type(estimator).__name__
    covariance_type = estimator.covariance_type
    structure = covariance_type
    if isinstance(covariance_type, str) and covariance_type in STRUCTURES:
        structure = STRUCTURES[covariance_type]
    if not isinstance(structure, CovarianceStructure):
        raise ValueError(
            f"{name}: covariance_type must be one of {sorted(STRUCTURES)} or a "
            f"CovarianceStructure, got {covariance_type!r}."
        )
    structure = structure.of_features(n_features)
    if layout not in (None, structure.layout):
        structure = STRUCTURES[layout]
    thresholds, most, most_compounds = check_threshold(estimator, structure, n_features)
    forgetting, memories = check_forgetting_factor(estimator)
    cap = estimator.max_components
    if cap is not None:
        if not isinstance(cap, Integral) or isinstance(cap, bool):
            raise TypeError(f"{name}: max_components must be None or an integer, got {cap!r}.")
        if cap < 2:
            raise ValueError(f"{name}: max_components must be at least 2, got {cap!r}.")
        cap = int(cap)
    bandwidth = check_bandwidth(estimator.bandwidth, structure.of_kernels, n_features)
    shapes = (structure,)
    if most is not None and bandwidth is RULES["predictive"]:
        if n_features > 1:
            shapes = structure.shapes
        shrinks = n_features >= FEWEST_SHRUNK and not estimator._of_classes
        bandwidth = fine_predictive(structure.shrinkages if shrinks else ())
    return Settings(
        structure,
        bandwidth,
        thresholds,
        forgetting,
        cap,
        most,
        most_compounds,
        shapes,
        memories,
        n_outputs=estimator._n_outputs,
        of_class=estimator._of_classes,
    )


def check_threshold(
    estimator: Any, structure: CovarianceStructure, n_features: int
) -> tuple[np.ndarray, int | None, int | None]:
    """The thresholds that `compression_threshold` stands for, and how much may be left by them.

    It is told in components, and in those of them that stand for several samples. Where components
    are large those cost, and not single samples, which are worth most to classes.
    """
    name, threshold = type(estimator).__name__, estimator.compression_threshold
    expected = "'predictive' or a number from 0 to 1"
    if isinstance(threshold, str):
        if threshold != "predictive":
            raise ValueError(
                f"{name}: compression_threshold must be {expected}, got {threshold!r}."
            )
        most = most_compounds = MOST_COMPONENTS
        if are_large(structure, n_features):
            most_compounds //= 2
            most = most if estimator._of_classes else most_compounds
        return THRESHOLDS, most, most_compounds
    threshold = _real(estimator, "compression_threshold", expected)
    if not 0.0 <= threshold <= 1.0:
        raise ValueError(f"{name}: compression_threshold must be {expected}, got {threshold!r}.")
    return np.array([threshold]), None, None


def check_forgetting_factor(estimator: Any) -> tuple[float, tuple[float, ...]]:
    """The factor of the model of all samples, and those of short memories beside it."""
    name, factor = type(estimator).__name__, estimator.forgetting_factor
    expected = "'predictive' or a number above 0 and at most 1"
    if isinstance(factor, str):
        if factor != "predictive":
            raise ValueError(f"{name}: forgetting_factor must be {expected}, got {factor!r}.")
        return 1.0, MEMORIES
    factor = _real(estimator, "forgetting_factor", expected)
    if not 0.0 < factor <= 1.0:
        raise ValueError(f"{name}: forgetting_factor must be {expected}, got {factor!r}.")
    return factor, ()


def check_flag(estimator: Any, parameter: str) -> None:
    """Refuse anything but True or False."""
    value = getattr(estimator, parameter)
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(
            f"{type(estimator).__name__}: {parameter} must be True or False, got {value!r}."
        )


def check_verbose(estimator: Any) -> bool:
    """Whether progress is reported."""
    value = estimator.verbose
    if not isinstance(value, (Integral, np.bool_)) or value < 0:
        raise ValueError(
            f"verbose must be True, False or an integer that is not negative, got {value!r}."
        )
    return bool(value)


def check_n_samples(estimator: Any, n_samples: Any) -> int:
    """How many rows are to be drawn."""
    if not isinstance(n_samples, Integral) or isinstance(n_samples, bool) or n_samples < 1:
        raise ValueError(
            f"{type(estimator).__name__}: n_samples must be an integer of at least 1, got "
            f"{n_samples!r}."
        )
    return int(n_samples)


def _real(estimator: Any, parameter: str, expected: str) -> float:
    value = getattr(estimator, parameter)
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(
            f"{type(estimator).__name__}: {parameter} must be {expected}, got {value!r}."
        )
    return float(value)


def check_bandwidth(bandwidth: Any, structure: CovarianceStructure, n_features: int) -> Rule:
    """The rule that the `bandwidth` parameter stands for."""
    if isinstance(bandwidth, str):
        if bandwidth not in RULES:
            raise ValueError(
                f"bandwidth must be one of {list(RULES)}, a positive number or an array, "
                f"got {bandwidth!r}."
            )
        return RULES[bandwidth]
    if isinstance(bandwidth, Real) and not isinstance(bandwidth, bool):
        value = float(bandwidth)
        if not 1.0 / LARGEST_SCALE <= value <= LARGEST_SCALE:
            raise ValueError(
                f"A bandwidth number must be positive, from {1.0 / LARGEST_SCALE:g} to "
                f"{LARGEST_SCALE:g}, got {bandwidth!r}."
            )
        return NormalReference(value)
    if not isinstance(bandwidth, (np.ndarray, list, tuple)):
        raise TypeError(
            f"bandwidth must be a string, a positive number or an array, got {bandwidth!r}."
        )
    try:
        matrix = np.asarray(bandwidth, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"A bandwidth array must be of numbers, got {bandwidth!r}.") from error
    matrix, d = _finite(matrix.tobytes(), matrix.shape), n_features
    if matrix.shape == (d,):
        matrix = structure.to_matrix(matrix)
    elif matrix.shape != (d, d):
        raise ValueError(
            f"A bandwidth array must have the shape ({d},), variances, or ({d}, {d}), "
            f"a covariance, got {matrix.shape}."
        )
    if matrix.shape != structure.shape(d):
        raise ValueError(
            f"A bandwidth of shape ({d}, {d}) needs covariance_type='full'; give the "
            f"{d} variances instead."
        )
    variances = structure.variances(matrix)
    if not np.all(variances > SMALLEST_VARIANCE):
        raise ValueError(
            f"The variances in a bandwidth array must be positive, above {SMALLEST_VARIANCE:g}."
        )
    if matrix.ndim == 2:
        correlation = structure.rescale(matrix, 1.0 / np.sqrt(variances))
        _check_is_positive_definite(correlation.tobytes(), d)
    return FixedCovariance(matrix)


# Checked once: a bandwidth is looked at in each call, and single rows would feel it.
@lru_cache(maxsize=8)
def _finite(values: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """An array of these values, none of which is infinite or NaN."""
    array = np.ndarray(shape, buffer=values)
    return check_array(array, ensure_2d=False, input_name="bandwidth")


@lru_cache(maxsize=8)
def _check_is_positive_definite(values: bytes, d: int) -> None:
    correlation = np.ndarray((d, d), buffer=values)
    if not np.allclose(correlation, correlation.T, rtol=0.0, atol=1e-10):
        raise ValueError("A bandwidth matrix must be symmetric.")
    eigenvalues = np.linalg.eigvalsh(correlation)
    if eigenvalues[0] < EIGENVALUE_FLOOR * eigenvalues[-1]:
        raise ValueError(
            "A bandwidth matrix must be positive definite; this one is singular or nearly so. "
            "Add to its diagonal."
        )


def check_rows(estimator: Any, X: Any, *, reset: bool) -> np.ndarray:
    """Rows as a C-contiguous float64 array, by scikit-learn's `validate_data`."""
    if not reset and _is_ready(estimator, X):
        return X
    _check_unmasked(X, "X")
    with _columns_named(X):
        X = validate_data(estimator, X, reset=reset, **OF_ROWS)
    if not estimator._takes_missing_values and np.isnan(X).any():
        raise ValueError(
            f"Input X contains NaN, and {type(estimator).__name__} does not take missing values: "
            "fill them in by an OnlineKDEImputer in front of it, or leave these rows out."
        )
    return X


def check_rows_and_labels(
    estimator: Any, X: Any, y: Any, *, reset: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The same for rows and their classes."""
    if not reset and _is_ready(estimator, X) and _are_labels(labels := _as_array(y), len(X)):
        return X, labels
    return _validated_pair(estimator, X, y, reset=reset)


def check_rows_and_outputs(
    estimator: Any, X: Any, y: Any, *, reset: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The same for rows and their outputs, (n,) or (n, n_outputs) float64 arrays."""
    if not reset and _is_ready(estimator, X) and _are_outputs(outputs := _as_array(y), len(X)):
        return X, outputs
    X, y = _validated_pair(estimator, X, y, reset=reset, multi_output=True)
    y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
    if np.abs(y).max() > LARGEST_VALUE:
        raise ValueError(
            f"Values beyond {LARGEST_VALUE:g} in y. Their squares overflow. Rescale y."
        )
    return X, y


def check_outputs(estimator: Any, y: np.ndarray) -> None:
    """Refuse outputs of another number or shape than before."""
    known = () if estimator._is_column else (estimator.n_outputs_,)
    if y.shape[1:] != known:
        raise ValueError(
            f"y has the shape {y.shape}, but {type(estimator).__name__} is expecting "
            f"{(len(y), *known)}, as it has learned."
        )


def _validated_pair(estimator: Any, X: Any, y: Any, **options: bool) -> tuple[Any, Any]:
    _check_unmasked(X, "X")
    _check_unmasked(y, "y")
    with _columns_named(X):
        return validate_data(estimator, X, y, **options, **OF_ROWS)


@contextmanager
def _columns_named(X: Any) -> Iterator[None]:
    """Say which columns of a frame are no numbers, if that is why it is refused."""
    try:
        yield
    except (ValueError, TypeError) as error:
        columns = [name for name in getattr(X, "columns", ()) if not _are_numbers(X[name])]
        if not columns:
            raise
        raise ValueError(
            f"{error}. Columns that are no numbers: {columns}. Drop them, or turn them into "
            "numbers, text by a OneHotEncoder in a ColumnTransformer in front of the estimator."
        ) from error


def _are_numbers(column: Any) -> bool:
    values = np.asarray(column)
    try:
        values.astype(float)
    except (ValueError, TypeError):
        return False
    return values.dtype.kind not in "mM"  # dates and times, of which NumPy makes numbers


def _is_ready(estimator: Any, X: Any) -> bool:
    """Whether `validate_data` would give X back as it is.

    It takes as long as learning a single row, so it is not asked then.
    """
    return (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and len(X) > 0
        and X.shape[1] == estimator.n_features_in_
        and X.flags.c_contiguous
        and not hasattr(estimator, "feature_names_in_")
        and bool(np.isfinite(X).all())
    )


def _as_array(y: Any) -> Any:
    """A list of plain numbers or strings, all of one type, as an array; else what is given."""
    is_plain = type(y) is list and len({type(value) for value in y}) == 1
    return np.array(y) if is_plain and isinstance(y[0], PLAIN) else y


def _are_labels(y: Any, n: int) -> bool:
    return type(y) is np.ndarray and y.shape == (n,) and y.dtype.kind in "biuU"


def _are_outputs(y: Any, n: int) -> bool:
    return (
        type(y) is np.ndarray
        and y.dtype == np.float64
        and y.ndim in (1, 2)
        and len(y) == n
        and y.size > 0
        and bool((np.abs(y) <= LARGEST_VALUE).all())
    )


def _check_unmasked(array: Any, name: str) -> None:
    """Refuse masked values, which scikit-learn would take for data."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise ValueError(
            f"{name} is a masked array, and some of its values are masked: fill them in, or leave "
            "their rows out."
        )


def check_values(estimator: Any, X: np.ndarray) -> None:
    """Refuse values whose squares overflow."""
    # Of missing values, NaN, fmax and fmin take no notice.
    if X.size and max(np.fmax.reduce(X, axis=None), -np.fmin.reduce(X, axis=None)) > LARGEST_VALUE:
        huge = (np.abs(X) > LARGEST_VALUE).any(axis=0)
        raise ValueError(
            f"Values beyond {LARGEST_VALUE:g}, in features: {_named(estimator, huge)}. Their "
            "squares overflow. Rescale these features."
        )


def check_models(estimator: Any, others: Sequence[Any]) -> list[Any]:
    """Those of some estimators that have begun to learn, the first one among them if it has."""
    name = type(estimator).__name__
    for other in others:
        if not isinstance(other, type(estimator)):
            raise TypeError(f"{name}: only estimators of its type can be merged, got {other!r}.")
    models = [model for model in (estimator, *others) if hasattr(model, "n_features_in_")]
    for model in models[1:]:
        if model.n_features_in_ != models[0].n_features_in_:
            raise ValueError(
                f"{name}: models of {models[0].n_features_in_} and of {model.n_features_in_} "
                "features can't be merged."
            )
        names = [getattr(one, "feature_names_in_", None) for one in (models[0], model)]
        if not np.array_equal(*names):
            raise ValueError(
                f"{name}: models can't be merged whose features have other names, or other orders "
                f"of them, or none: {names[0]} and {names[1]}."
            )
    return models


def check_is_learned(estimator: Any) -> None:
    """Refuse rows of which all values are missing."""
    if not estimator.__sklearn_is_fitted__():
        raise ValueError(
            f"{type(estimator).__name__}: all values of X are missing: there is nothing to fit."
        )


def check_weights(sample_weight: Any, n_samples: int, *, some_positive: bool = False) -> np.ndarray:
    """Sample weights as a (n_samples,) array; subnormal ones are zero."""
    if sample_weight is None:
        return np.ones(n_samples)
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_samples, float(sample_weight))
    _check_unmasked(sample_weight, "sample_weight")
    weights = check_array(
        sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight"
    )
    if weights.shape != (n_samples,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected ({n_samples},), one for each row."
        )
    if np.any(weights < 0.0):
        raise ValueError("Negative values in sample_weight: weights count rows, so they can't be.")
    if np.any(weights > LARGEST_VALUE):
        raise ValueError(f"Values beyond {LARGEST_VALUE:g} in sample_weight.")
    weights = np.where(weights < TINY, 0.0, weights)
    if some_positive and not weights.any():
        raise ValueError("All sample weights are zero: there is nothing to fit.")
    return weights
