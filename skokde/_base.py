"""What both estimators share besides their checks: state, threads, atomic learning."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import signature
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags, shuffle
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import ThreadpoolController

from skokde._persistence import FORMAT, check_format, expect, packed
from skokde._progress import reported_parts
from skokde._summary import SummaryMixin
from skokde._upgrade import upgraded
from skokde._validation import check_flag, check_models, check_verbose

# scikit-learn needs threadpoolctl itself.
_blas = ThreadpoolController().select(user_api="blas")


def one_blas_thread() -> AbstractContextManager:
    """Keep BLAS to one thread.

    The matrices are d by d: more threads only get in each other's way, and sums in another order
    would make the model depend on their number.
    """
    if all(library.num_threads == 1 for library in _blas.lib_controllers):
        return nullcontext()  # a tenth of the time, which a single row feels
    return _blas.limit(limits=1)


@contextmanager
def unchanged_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Put the estimator's attributes back as they were if the block raises or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__ = before  # at once: there may be a second interrupt
        raise


class Snapshot:
    """Values that are derived from fitted state, each made when it is first asked for.

    Estimators hold one that they replace when they learn, so that scoring writes nothing to the
    estimator. It is not pickled.

    Parameters
    ----------
    before : Snapshot, default=None
        The one that is replaced; what lasts is taken over.
    """

    def __init__(self, before: Snapshot | None = None) -> None:
        self._held: dict[Any, tuple[tuple[Any, Any], ...]] = {}
        # A copy: what is replaced from now on is kept only as long as the other one is.
        self._lasting: dict[Any, tuple[tuple[Any, Any], ...]] = (
            {} if before is None else before._lasting.copy()
        )

    def get(self, name: Any, key: Any, make: Callable[[], Any]) -> Any:
        """The value of a name, made anew if the last one asked for had another key.

        Parameters
        ----------
        name : hashable
        key : object
            What the value depends on besides the state: None, strings, numbers, arrays or tuples
            of them.
        make : callable
        """
        return _get(self._held, name, key, make, 1)

    def lasting(self, name: Any, key: Any, make: Callable[[], Any], n_kept: int = 1) -> Any:
        """The same for a value whose key is all that it depends on; the last used are kept."""
        return _get(self._lasting, name, key, make, n_kept)

    @contextmanager
    def handing_on(self, later: Snapshot) -> Iterator[None]:
        """What is made in the block and lasts is taken over by a later snapshot.

        That has taken over what there was; what it has made itself since then it keeps.
        """
        before = self._lasting.copy()
        yield
        for name, values in self._lasting.items():
            known = before.get(name)
            if values is not known and later._lasting.get(name) is known:
                later._lasting[name] = values


def _get(
    values: dict[Any, tuple[tuple[Any, Any], ...]],
    name: Any,
    key: Any,
    make: Callable[[], Any],
    n_kept: int,
) -> Any:
    held = values.get(name, ())
    for place, (known, value) in enumerate(held):
        if _same(known, key):
            if place:  # what is used again is kept longer
                values[name] = (held[place], *held[:place], *held[place + 1 :])
            return value
    # What is not kept goes first, so that it does not take memory beside the new value.
    held = held[: n_kept - 1]
    values[name] = held
    value = make()
    # One assignment: threads may race, and make the same.
    values[name] = ((key, value), *held)
    return value


def _same(key: Any, other: Any) -> bool:
    """Whether keys are equal to the last bit. Arrays of models are never written to."""
    if key is other:
        return True
    if isinstance(key, tuple):
        same_length = isinstance(other, tuple) and len(key) == len(other)
        return same_length and all(map(_same, key, other))
    if isinstance(key, np.ndarray):
        same_shape = isinstance(other, np.ndarray) and key.shape == other.shape
        return same_shape and key.tobytes() == other.tobytes()
    return not isinstance(other, np.ndarray) and key == other


def features_of(estimator: BaseEstimator) -> dict[str, Any]:
    """What a fitted estimator knows of its features: their number, and names if they have any."""
    names = ("n_features_in_", "feature_names_in_")
    return {name: vars(estimator)[name] for name in names if name in vars(estimator)}


class BaseOnlineKDE(SummaryMixin, BaseEstimator):
    """An estimator whose fitted state is plain arrays, with a snapshot of what scoring needs.

    All have the parameters of a density.
    """

    # Names of what learning sets and `fit` forgets, besides the snapshot.
    _learned: ClassVar[tuple[str, ...]]
    # Whether NaN in a row is a value that is missing, not an error.
    _takes_missing_values: ClassVar[bool] = False
    # Whether its densities are of classes, which share what is known of correlations: then single
    # Gaussians of fewer of them are not tried where everything is predictive.
    _of_classes: ClassVar[bool] = False
    # How many of the last features are outputs, by whose prediction experts are weighted.
    _n_outputs: int = 0

    def __init__(
        self,
        *,
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
        self.covariance_type = covariance_type
        self.compression_threshold = compression_threshold
        self.bandwidth = bandwidth
        self.forgetting_factor = forgetting_factor
        self.max_components = max_components
        self.shuffle = shuffle
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing_values
        return tags

    def _forget(self) -> None:
        for name in (*self._learned, "_snapshot"):
            vars(self).pop(name, None)

    def _in_order(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        """Rows, and what belongs to them, in the order in which `fit` learns them."""
        check_flag(self, "shuffle")
        return shuffle(*arrays, random_state=self.random_state) if self.shuffle else arrays

    def merge(self, *others: Self) -> Self:
        """Take in what others have learned, as if their streams had followed this one.

        The count, mean and covariance of the whole are exact; what the components are, and all that
        is found by prediction, is not to the bit what one stream would have led to.

        Parameters
        ----------
        *others : estimators of the same type
            Those that have not learned anything change nothing. They stay as they are.

        Returns
        -------
        self : the same type
            With its parameters as they are: those of the others do not matter.

        Raises
        ------
        TypeError
            For an estimator of another type.
        ValueError
            For models with another ``covariance_type``, other numbers or names of features or
            outputs, labels that can't be sorted together, or a parameter out of its range. The
            estimator is then as it was.

        Warns
        -----
        DegenerateDataWarning
            If a density has 30 samples or more only now, as in ``partial_fit``.

        See Also
        --------
        skokde.merge : A new estimator of any number of models, one at a time.

        Notes
        -----
        As if one stream had followed the other: with a ``forgetting_factor`` below one, what has
        been learned here ages by all samples of the others, in the order in which they are given;
        where it is "predictive" the newest samples are those of the last one. Without forgetting
        the order makes no difference but for rounding and ties.

        Components are merged by a lower threshold than in a stream, where the threshold is
        predicted, as models of fewer samples are coarser; it rises where samples are predicted as
        well without it. There are 2,400 components at most, besides 64 samples for the next
        prediction, and 3,200 as the model goes on. See :doc:`/merging`.
        """
        with unchanged_on_error(self), one_blas_thread():
            models = check_models(self, others)
            if models and models != [self]:
                vars(self).update(features_of(models[0]))
                self._merge(models)
                self._snapshot = Snapshot()
            return self

    def without_rows(self, min_samples: int = 10) -> Self:
        """The same model for others who must not see the rows that it has learned.

        Parameters
        ----------
        min_samples : int, default=10
            At least 2. Groups of components that stand for fewer samples are replaced by one
            Gaussian each, and so are their detailed models.

        Returns
        -------
        estimator of the same type
            A new one with the same parameters, counts, means and covariances of the whole. It
            holds no rows, neither in components nor for calibration, p-values or short memories:
            p-values are one, and nothing is an outlier, until it has learned more rows.

        Raises
        ------
        NotFittedError
            Before the first row.
        ValueError
            If there are fewer samples, in a class or in all, or ``min_samples`` is no such number.

        Notes
        -----
        Microaggregation. Components are means and covariances of at least that many samples; who
        knows all but one of these can tell the last one, and repeated rows count as many. It is no
        differential privacy.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skokde import OnlineKDEDensity
        >>> density = OnlineKDEDensity().fit(load_iris().data)
        >>> shared = density.without_rows(min_samples=5)
        >>> bool((shared.weights_ * shared.n_samples_seen_).min() >= 5)
        True
        """
        self._check_is_fitted()
        expected = f"{type(self).__name__}: min_samples must be an integer of at least 2"
        if not isinstance(min_samples, Integral) or min_samples < 2:
            raise ValueError(f"{expected}, got {min_samples!r}.")
        other = clone(self)
        vars(other).update(vars(self))
        with one_blas_thread():
            other._drop_rows(min_samples)
        other._snapshot = Snapshot()
        return other

    @abstractmethod
    def _drop_rows(self, min_samples: int) -> None:
        """Replace what holds rows, or tells of fewer than so many samples."""

    @abstractmethod
    def _merge(self, models: Sequence[Self]) -> None:
        """Put what models have learned, which may be this one among them, in place of what is."""

    def _check_n_jobs(self) -> None:
        """Refuse a wrong number when rows are learned, though it may first be used later.

        To ask what None means takes a hundredth of the time of a row.
        """
        if self.n_jobs is not None:
            self._n_threads()

    def _check_is_fitted(self) -> None:
        """What scikit-learn's check does, in far less time where it passes, as a row feels."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)

    def _n_threads(self) -> int:
        if not (self.n_jobs is None or isinstance(self.n_jobs, Integral)):
            raise TypeError(f"n_jobs must be None or an integer, got {self.n_jobs!r}.")
        return effective_n_jobs(self.n_jobs)

    def _parts(self, n_rows: int, n_components: Callable[[], int]) -> Iterable[slice]:
        """Parts of the rows that are learned one after the other; all at once unless verbose."""
        if check_verbose(self):
            return reported_parts(n_rows, n_components)
        return (slice(0, n_rows),)

    def _in_threads(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Results of function(item), in as many threads as n_jobs says.

        Not joblib's, whose threads take longer to start than a block of rows takes to learn.
        """
        n_threads = self._n_threads() if len(items) > 1 else 1
        if n_threads == 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(n_threads) as threads:
            return list(threads.map(function, items))

    def __dir__(self) -> list[str]:
        """All names, where a parameter that has been set since keeps some from being evaluated."""
        try:
            return super().__dir__()
        except (ValueError, TypeError):
            return list(object.__dir__(self))

    @abstractmethod
    def _restore(self) -> None:
        """Put the engine's tuples back in place of what was stored of them, and check all."""

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        stored = {k: packed(v) if k in self._learned else v for k, v in state.items()}
        for name in ("_snapshot", "_n_outputs"):
            stored.pop(name, None)
        return stored | {"_format": FORMAT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        check_format(type(self).__name__, state)
        # Parameters that came later than the version by which it was stored have their defaults.
        parameters = signature(type(self)).parameters.items()
        later = {name: p.default for name, p in parameters if name not in state}
        super().__setstate__(later | upgraded(state))
        held = [name in vars(self) for name in self._learned]
        if any(held):
            expect(all(held), type(self).__name__)
            try:
                self._restore()
            except (AttributeError, IndexError, TypeError) as error:
                raise ValueError(f"The stored {type(self).__name__} is damaged.") from error
            self._snapshot = Snapshot()
