"""Densities and classifiers of Dask arrays and dataframes, by merging a model of each partition.

Needs the extra ``skokde[dask]``. Learning is a tree of ordinary tasks: one for each partition,
which is all that a worker holds of the data at a time, and one for each merge of two models. Tasks
that are lost with a worker are run again, and give the same.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_consistent_length

from skokde._base import BaseOnlineKDE, unchanged_on_error
from skokde._classifier import OnlineKDEClassifier
from skokde._density import OnlineKDEDensity
from skokde._shards import learned, merge
from skokde._validation import check_verbose

try:
    import dask
    import dask.array as da
    from dask.diagnostics import ProgressBar
except ImportError as error:
    raise ImportError("skokde.dask needs Dask: pip install 'skokde[dask]'.") from error

__all__ = ["DaskOnlineKDEClassifier", "DaskOnlineKDEDensity"]


class DaskEstimator(BaseOnlineKDE):
    """An estimator whose methods take Dask collections, too.

    What it has learned is as in the local estimator that it is a subclass of.
    """

    _local: ClassVar[type[BaseOnlineKDE]]
    client: Any

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Forget what was learned, and learn all partitions of X.

        Parameters
        ----------
        X : dask array or dataframe of shape (n_samples, n_features)
            Sizes of chunks may be unknown, and partitions empty. Arrays in several blocks of
            columns are put together by rows. NaN is missing. What is not of Dask is learned here.
        y : dask array or series of shape (n_samples,), default=None
            Classes, in partitions that are those of X, or, if all sizes are known, in any.
        sample_weight : dask array or series of shape (n_samples,), default=None
            In the same way.

        Returns
        -------
        self : the estimator, fitted
            As :func:`skokde.merge` of a model of each partition, in their order: the same for any
            number of workers.

        Raises
        ------
        ValueError, TypeError
            As the local estimator's ``fit``, and for partitions that do not match. The estimator is
            then as it was.
        """
        if not dask.is_dask_collection(X):
            targets = (y,) if is_classifier(self) else ()
            return super().fit(X, *targets, sample_weight=sample_weight)
        with unchanged_on_error(self):
            model = self._learned_of(X, y, sample_weight)
            if not model.__sklearn_is_fitted__():
                raise ValueError(f"{type(self).__name__}: X has no rows: there is nothing to fit.")
            self._forget()
            self._take(model)
            if is_classifier(self):
                self._classes_declared = True
                self._check_priors()
            return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, **known: Any) -> Self:
        """Learn all partitions of X after what has been learned.

        Parameters
        ----------
        X, y, sample_weight : dask collections
            As in :meth:`fit`.
        **known
            What the local estimator's ``partial_fit`` takes besides, for what is not of Dask.

        Returns
        -------
        self : the estimator

        Raises
        ------
        ValueError, TypeError
            As in :meth:`fit`.
        """
        if not dask.is_dask_collection(X):
            targets = (y,) if is_classifier(self) else ()
            return super().partial_fit(X, *targets, sample_weight=sample_weight, **known)
        with unchanged_on_error(self):
            self._take(self.to_local().merge(self._learned_of(X, y, sample_weight)))
            return self

    def to_local(self) -> Any:
        """The estimator without Dask, with what has been learned.

        Returns
        -------
        OnlineKDEDensity or OnlineKDEClassifier
            It shares nothing with this one that either of them writes to.
        """
        parameters = self.get_params(deep=False)
        local = self._local(**{k: v for k, v in parameters.items() if k != "client"})
        vars(local).update({k: v for k, v in vars(self).items() if k not in parameters})
        return local

    def _take(self, model: BaseOnlineKDE) -> None:
        """Put what a local estimator has learned in place of what is."""
        parameters = model.get_params(deep=False)
        vars(self).update({k: v for k, v in vars(model).items() if k not in parameters})

    def _learned_of(self, X: Any, y: Any, sample_weight: Any) -> BaseOnlineKDE:
        """A local estimator of all partitions."""
        # Workers have no one to report to.
        verbose, empty = check_verbose(self), clone(self.to_local()).set_params(verbose=0)
        if hasattr(empty, "priors"):
            empty.set_params(priors=None)  # of all classes, which a partition may not have
        parts = partitions(X, y, sample_weight)
        models = [dask.delayed(learn_partition)(empty, *part) for part in parts]
        while len(models) > 1:
            pairs = [models[i : i + 2] for i in range(0, len(models), 2)]
            models = [dask.delayed(merge)(pair) for pair in pairs]
        model = models[0]
        if self.client is None:
            with ProgressBar() if verbose else nullcontext():
                return model.compute()
        future = self.client.compute(model)
        if verbose:
            from distributed import progress  # there is a client, so it is installed

            progress(future, notebook=False)
        return future.result()

    def _of_partitions(self, method: str, X: Any, width: int | None, dtype: Any) -> Any:
        """What a method of the local estimator returns, as a dask array if X is of Dask."""
        self._check_is_fitted()
        if not dask.is_dask_collection(X):
            return getattr(super(), method)(X)
        local = self.to_local()
        # The model is one node of the graph, and not a part of each task.
        model = dask.delayed(local) if self.client is None else self.client.scatter(local)
        end, sizes = () if width is None else (width,), sizes_of(X)
        blocks = [
            da.from_delayed(
                dask.delayed(score_partition)(model, method, part, end, dtype), (n, *end), dtype
            )
            for n, (part, _, _) in zip(sizes, partitions(X, None, None), strict=True)
        ]
        return da.concatenate(blocks, allow_unknown_chunksizes=True)

    def score_samples(self, X: Any) -> Any:
        """Log-densities of rows, in nats.

        Parameters
        ----------
        X : dask array or dataframe of shape (n_samples, n_features)
            Or an array that is not of Dask.

        Returns
        -------
        dask array of shape (n_samples,)
            Not yet computed; of an ndarray an ndarray. See the local estimator's method.
        """
        return self._of_partitions("score_samples", X, None, np.float64)

    def __sklearn_clone__(self) -> Self:
        parameters = self.to_local().get_params(deep=False)
        # A client is a connection, which can't be copied.
        copied = {name: clone(value, safe=False) for name, value in parameters.items()}
        return type(self)(client=self.client, **copied)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"client": None}


def partitions(X: Any, y: Any, sample_weight: Any) -> list[tuple[Any, Any, Any]]:
    """Delayed partitions of some collections that belong together, None for what is None."""
    rows, others = delayed_partitions(X, "X"), []
    for name, collection in (("y", y), ("sample_weight", sample_weight)):
        if collection is None:
            others.append(len(rows) * [None])
            continue
        sizes = [sizes_of(c) for c in (X, collection) if dask.is_dask_collection(c)]
        # Sums are not equal where sizes are not known; where they differ a worker will tell.
        if sizes[0] != sizes[-1] and sum(sizes[0]) == sum(sizes[-1]):
            collection = collection.rechunk((sizes[0],))
        others.append(delayed_partitions(collection, name))
        if len(others[-1]) != len(rows):
            raise ValueError(
                f"{name} has {len(others[-1])} partitions and X has {len(rows)}: repartition them, "
                "so that they have the same rows."
            )
    return list(zip(rows, *others, strict=True))


def delayed_partitions(collection: Any, name: str) -> list[Any]:
    """Partitions by rows, of an array or a dataframe."""
    if not dask.is_dask_collection(collection) or not hasattr(collection, "to_delayed"):
        raise TypeError(f"{name} must be a dask array or dataframe, as X is, got {collection!r}.")
    if getattr(collection, "numblocks", (1,))[1:] not in ((), (1,)):
        collection = collection.rechunk({1: -1})
    return np.ravel(np.array(collection.to_delayed(), dtype=object)).tolist()


def sizes_of(collection: Any) -> tuple[float, ...]:
    """Numbers of rows of the partitions, NaN where they are not known."""
    if hasattr(collection, "chunks"):
        return collection.chunks[0]
    return collection.npartitions * (np.nan,)


def learn_partition(empty: BaseOnlineKDE, X: Any, y: Any, sample_weight: Any) -> BaseOnlineKDE:
    """A model of one partition, which may have no rows."""
    check_consistent_length(X, y, sample_weight)
    return learned(clone(empty), X, y, sample_weight) if len(X) else empty


def score_partition(
    model: BaseOnlineKDE, method: str, X: Any, shape: tuple[int, ...], dtype: Any
) -> np.ndarray:
    """What a method tells of one partition."""
    return getattr(model, method)(X) if len(X) else np.empty((0, *shape), dtype)


class DaskOnlineKDEDensity(DaskEstimator, OnlineKDEDensity):
    """:class:`OnlineKDEDensity` of Dask arrays and dataframes.

    Parameters
    ----------
    client : distributed.Client, default=None
        Where tasks run; None: where Dask's own settings say.
    covariance_type, compression_threshold, bandwidth, forgetting_factor, max_components, n_jobs
        See :class:`OnlineKDEDensity`.
    shuffle, random_state
        Of arrays that are not of Dask: partitions are learned in the order of their rows.
    verbose : int, default=0
        Whether Dask's progress bar, of partitions and merges, is printed. Without a client Dask has
        one for its local schedulers only.

    Examples
    --------
    >>> import dask.array as da
    >>> from skokde.dask import DaskOnlineKDEDensity
    >>> X = da.random.default_rng(0).normal(size=(4000, 2), chunks=(1000, 2))
    >>> density = DaskOnlineKDEDensity().fit(X)
    >>> density.score_samples(X).mean().compute().round(1)
    np.float64(-2.8)
    """

    _local = OnlineKDEDensity

    def __init__(
        self,
        *,
        client: Any = None,
        covariance_type: str = "full",
        compression_threshold: float | str = "predictive",
        bandwidth: str | float | ArrayLike = "predictive",
        forgetting_factor: float | str = 1.0,
        max_components: int | None = None,
        shuffle: bool = False,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ):
        self.client = client
        super().__init__(
            covariance_type=covariance_type,
            compression_threshold=compression_threshold,
            bandwidth=bandwidth,
            forgetting_factor=forgetting_factor,
            max_components=max_components,
            shuffle=shuffle,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )


class DaskOnlineKDEClassifier(DaskEstimator, OnlineKDEClassifier):
    """:class:`OnlineKDEClassifier` of Dask arrays and dataframes.

    Classes may be missing in partitions.

    Parameters
    ----------
    client : distributed.Client, default=None
        Where tasks run; None: where Dask's own settings say.
    covariance_type, compression_threshold, bandwidth, forgetting_factor, max_components, n_jobs
        See :class:`OnlineKDEClassifier`.
    calibrate, priors
        In the same way.
    shuffle, random_state
        Of arrays that are not of Dask: partitions are learned in the order of their rows.
    verbose : int, default=0
        Whether Dask's progress bar, of partitions and merges, is printed. Without a client Dask has
        one for its local schedulers only.

    Examples
    --------
    >>> import dask.array as da
    >>> from sklearn.datasets import load_iris
    >>> from skokde.dask import DaskOnlineKDEClassifier
    >>> X, y = (da.from_array(array, chunks=75) for array in load_iris(return_X_y=True))
    >>> classifier = DaskOnlineKDEClassifier().fit(X, y)
    >>> (classifier.predict(X) == y).mean().compute().round(1)
    np.float64(1.0)
    """

    _local = OnlineKDEClassifier

    def __init__(
        self,
        *,
        client: Any = None,
        covariance_type: str = "full",
        compression_threshold: float | str = "predictive",
        bandwidth: str | float | ArrayLike = "predictive",
        forgetting_factor: float | str = 1.0,
        max_components: int | None = None,
        shuffle: bool = False,
        random_state: int | np.random.RandomState | None = None,
        calibrate: bool = True,
        priors: ArrayLike | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ):
        self.client = client
        super().__init__(
            covariance_type=covariance_type,
            compression_threshold=compression_threshold,
            bandwidth=bandwidth,
            forgetting_factor=forgetting_factor,
            max_components=max_components,
            shuffle=shuffle,
            random_state=random_state,
            calibrate=calibrate,
            priors=priors,
            n_jobs=n_jobs,
            verbose=verbose,
        )

    @property
    def _labels(self) -> np.ndarray:
        self._check_is_fitted()
        return self.classes_

    def predict(self, X: Any) -> Any:
        """The most probable class of each row, as a dask array (n_samples,) if X is of Dask."""
        return self._of_partitions("predict", X, None, self._labels.dtype)

    def predict_proba(self, X: Any) -> Any:
        """Class probabilities, as a dask array (n_samples, n_classes) if X is of Dask."""
        return self._of_partitions("predict_proba", X, len(self._labels), np.float64)

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of these."""
        return self._of_partitions("predict_log_proba", X, len(self._labels), np.float64)

    def predict_joint_log_proba(self, X: Any) -> Any:
        """Logarithms of prior times density, in the same shape."""
        return self._of_partitions("predict_joint_log_proba", X, len(self._labels), np.float64)

    def outlier_p_values(self, X: Any) -> Any:
        """P-values for belonging to any of the classes, as a dask array (n_samples,)."""
        return self._of_partitions("outlier_p_values", X, None, np.float64)
