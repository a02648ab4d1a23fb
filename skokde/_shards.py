"""Many models into one: learned in parallel, at several sites, or of periods of time."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier
from sklearn.utils import gen_even_slices
from sklearn.utils.multiclass import unique_labels
from sklearn.utils.validation import check_consistent_length

from skokde._base import BaseOnlineKDE

Estimator = TypeVar("Estimator", bound=BaseOnlineKDE)


def merge(models: Iterable[Estimator]) -> Estimator:
    """Merge any number of models into a new one.

    They are taken one at a time, so that a generator which loads them from files holds the
    logarithm of their number in memory.

    Parameters
    ----------
    models : iterable of estimators of the same type
        The oldest first, see :meth:`OnlineKDEDensity.merge`. They stay as they are.

    Returns
    -------
    estimator
        With the parameters of the first one.

    Raises
    ------
    TypeError
        For estimators of different types.
    ValueError
        If there are none, and for models that can't be merged.

    Notes
    -----
    Models are merged in pairs, and these in pairs, so that what is merged is of the same size as
    far as it goes: the result depends on the order of the models alone.

    Examples
    --------
    >>> import numpy as np
    >>> from skokde import OnlineKDEDensity, merge
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> merged = merge(OnlineKDEDensity().fit(shard) for shard in np.split(X, 4))
    >>> merged.n_samples_seen_
    400.0
    """
    held: list[tuple[int, Estimator]] = []
    for model in models:
        if not isinstance(model, BaseOnlineKDE):
            raise TypeError(f"Only estimators of skokde can be merged, got {model!r}.")
        held.append((0, model))
        while len(held) > 1 and held[-1][0] == held[-2][0]:
            (level, first), (_, second) = held[-2:]
            held[-2:] = [(level + 1, clone(first).merge(first, second))]
    if not held:
        raise ValueError("There are no models to merge.")
    result = clone(held[-1][1]).merge(held[-1][1])
    for _, model in reversed(held[:-1]):
        result = clone(model).merge(model, result)
    return result


def fit_shards(
    estimator: Estimator,
    X: ArrayLike,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    *,
    n_shards: int = 8,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Estimator:
    """Learn an array in parts that follow each other, in parallel, and merge their models.

    The result depends on the number of shards, and not on that of the workers.

    Parameters
    ----------
    estimator : estimator
        Any of skokde's, for its parameters; it is not changed.
    X : array-like of shape (n_samples, n_features)
        Rows that are sorted, by class or by time, make shards that differ; they may.
    y : array-like, default=None
        As the estimator's ``fit`` takes it.
    sample_weight : array-like of shape (n_samples,), default=None
    n_shards : int, default=8
        Each costs some quality, the less the longer it is: thousands of rows of each class are
        enough, see the tables in :doc:`/merging`.
    n_jobs : int, default=None
        Processes, or what :func:`joblib.parallel_config` says; the last merge has as many threads.
        None means 1, unless in such a context; -1 means all cores.
    verbose : int, default=0
        Whether, and how often, joblib tells of the progress in shards. The estimator's own
        ``verbose`` is for the rows of each.

    Returns
    -------
    estimator
        A new one, fitted.

    Raises
    ------
    ValueError, TypeError
        As the estimator's ``fit``, and for a number of shards that is not an integer of at least 1.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skokde import OnlineKDEClassifier, fit_shards
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = fit_shards(OnlineKDEClassifier(covariance_type="diag"), X, y, n_shards=2)
    >>> round(classifier.score(X, y), 1)
    1.0
    """
    if not isinstance(n_shards, Integral) or isinstance(n_shards, bool) or n_shards < 1:
        raise ValueError(f"n_shards must be an integer of at least 1, got {n_shards!r}.")
    check_consistent_length(X, y, sample_weight)
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    known = {"classes": unique_labels(y)} if is_classifier(estimator) else {}
    slices = gen_even_slices(n, min(n_shards, n))
    with Parallel(n_jobs=n_jobs, verbose=verbose) as parallel:
        models = parallel(
            delayed(learned)(
                clone(estimator), *(_part(a, rows) for a in (X, y, sample_weight)), **known
            )
            for rows in slices
        )
        # The same pairs as of `merge`.
        while len(models) > 1:
            odd = models[-1:] if len(models) % 2 else []
            pairs = list(zip(models[::2], models[1::2], strict=False))
            if len(pairs) == 1:
                models = [merged_in_threads(*pairs[0], effective_n_jobs(n_jobs)), *odd]
            else:
                models = [*parallel(delayed(merge)(pair) for pair in pairs), *odd]
    return models[0]


def merged_in_threads(first: Estimator, second: Estimator, n_threads: int) -> Estimator:
    """Two models in one, where there is no other pair for the other workers."""
    new = clone(first).set_params(n_jobs=n_threads)
    return new.merge(first, second).set_params(n_jobs=first.n_jobs)


def _part(array: Any, rows: slice) -> Any:
    """Some rows of an array or a frame, or None of None."""
    return None if array is None else getattr(array, "iloc", array)[rows]


def learned(estimator: Estimator, X: Any, y: Any, sample_weight: Any, **known: Any) -> Estimator:
    """An estimator after some rows, of a y or of none."""
    targets = () if y is None else (y,)
    return estimator.partial_fit(X, *targets, sample_weight=sample_weight, **known)
