"""Outliers of a stream: rows that are less dense than most rows were before they were learned."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import OutlierMixin

from skokde._base import Snapshot, features_of, one_blas_thread, unchanged_on_error
from skokde._density import DENSITY_PARAMETERS, OnlineKDEDensity
from skokde._engine.kde import log_sum
from skokde._engine.state import Settings
from skokde._persistence import expect, expect_array, unpacked
from skokde._ranks import LOWEST, rank_p_values
from skokde._validation import (
    TINY,
    check_flag,
    check_rows,
    check_settings,
    check_values,
    check_weights,
)
from skokde._with_density import BaseWithDensity

# Rows that are held with their log-densities. The newer half of them is what p-values refer to:
# with 500 they are coarser, with 2000 they lag behind a stream that changes suddenly, and with all
# that are held they are too high while the model is young (measured on streams with a seed that
# neither tests nor benchmarks have).
MOST_HELD = 2000
# Of fewer rows than this none is flagged: what the first ones got tells nothing of the next.
LEAST_HELD = 30
# The false-alarm level of contamination="auto".
LEVEL = 0.01
# Rows that are learned at a time; it only bounds the memory that a call takes.
BLOCK = 4096


class Reference(NamedTuple):
    """The rows that came last, and how they were predicted.

    Attributes
    ----------
    rows : (n, d) array
    counts : (n,) array
        How many samples each row stands for.
    log_densities : (n,) array
        Before the row was learned; inf where nothing was known before it.
    """

    rows: np.ndarray
    counts: np.ndarray
    log_densities: np.ndarray

    @classmethod
    def empty(cls, d: int) -> Reference:
        return cls(np.empty((0, d)), np.empty(0), np.empty(0))

    def tells(self) -> bool:
        """Whether these are enough to flag others by them."""
        return len(self.counts) >= LEAST_HELD

    def newer(self) -> tuple[np.ndarray, np.ndarray]:
        """Log-densities and counts of the newer half, without a row that was not predicted."""
        start = len(self.counts) // 2
        log_densities, counts = self.log_densities[start:], self.counts[start:]
        predicted = log_densities < np.inf
        return log_densities[predicted], counts[predicted]

    def threshold(self, contamination: float | None) -> float:
        """The lowest log-density that is not flagged.

        Parameters
        ----------
        contamination : float or None
            The share of all rows held that is flagged; None: `LEVEL` of the rows to come.
        """
        if not self.tells():
            return LOWEST
        if contamination is None:
            log_densities, counts = self.newer()
            # Where a rank tells of no such level, what is less dense than all is flagged.
            own, total = counts.mean(), counts.sum()
            most = max(LEVEL * (own + total) - own, 0.0)
        else:
            log_densities, counts = self.log_densities, self.counts
            most = contamination * counts.sum()
        order = np.argsort(log_densities)
        # What is due to rounding must not tell whether one row more is flagged.
        above = np.cumsum(counts[order]) > most * (1.0 + 1e-9)
        highest = log_densities[log_densities < np.inf].max()
        return float(min(log_densities[order[above.argmax()]], highest))

    def p_values(self, log_densities: np.ndarray) -> np.ndarray:
        """Shares (n,) of rows that were not more probable than these, themselves included."""
        return rank_p_values(log_densities, *self.newer())

    def of(self, X: np.ndarray, log_densities: np.ndarray) -> np.ndarray:
        """Log-densities of rows, those held as they were predicted.

        Parameters
        ----------
        X : (n, d) array
        log_densities : (n,) array
            Of all of them, as they are now.
        """
        out = np.maximum(log_densities, LOWEST)
        if not self.tells():
            return out
        # Few other rows have their first value in common with one that is held.
        candidates = np.flatnonzero(np.isin(X[:, 0], self.rows[:, 0]))
        if len(candidates):
            # Sums with zero, so that it has no sign; of rows that are equal the last one is found.
            numbers = {row.tobytes(): number for number, row in enumerate(self.rows + 0.0)}
            for i in candidates:
                number = numbers.get((X[i] + 0.0).tobytes())
                if number is not None and self.log_densities[number] < np.inf:
                    out[i] = self.log_densities[number]
        return out


def references_together(
    references: Sequence[Reference], densities: Sequence[OnlineKDEDensity]
) -> Reference:
    """The last rows of all, with what they had in the densities together before each was learned.

    Parameters
    ----------
    references, densities : sequences, one of each for a model
        The newest last.
    """
    if len(references) == 1:
        return references[0]
    # The first row of each was not predicted.
    predicted = [reference.log_densities < np.inf for reference in references]
    own = np.repeat(np.arange(len(references)), [chosen.sum() for chosen in predicted])[-MOST_HELD:]
    arrays = [np.concatenate(of_all) for of_all in zip(*references, strict=True)]
    rows, counts, before = (a[np.concatenate(predicted)][-MOST_HELD:] for a in arrays)
    logs = np.array([density._log_densities(rows) for density in densities])
    logs[own, np.arange(len(own))] = before
    n_samples = np.array([density._mixture.counts.sum() for density in densities])
    together = log_sum(logs + np.log(n_samples / n_samples.sum())[:, None])
    return Reference(rows, counts, np.maximum(together, LOWEST))


class OnlineKDEOutlierDetector(OutlierMixin, BaseWithDensity):
    """Find outliers of a stream, by an online kernel density estimate and ranks of log-densities.

    An :class:`OnlineKDEDensity` learns the rows. Each is scored just before it is learned, and a
    row is the more of an outlier the fewer of the rows that came last were as improbable as it is:
    that share is its p-value, and rows as usual as those before get p-values below 1 % in one of a
    hundred cases, whatever their distribution.

    Parameters
    ----------
    contamination : "auto" or float, default="auto"
        What :meth:`predict` flags. "auto": new rows with a p-value of at most 1 %, or, where the
        rows are too few to tell, what is less dense than all of these. A float, above 0 and at
        most 0.5: as much as makes it this share of the last 2000 rows, by their log-densities
        before they were learned. Both follow the stream, and what is set later takes effect at
        once.
    learn_flagged : bool, default=True
        Whether rows are learned that are flagged when they come. If not, what is new and goes on
        to come is flagged for longer, though not for ever: the rows count among those that p-values
        refer to.
    covariance_type : {"full", "diag", "spherical", "lowrank"} or CovarianceStructure, \
            default="full"
    compression_threshold : "predictive" or float, default="predictive"
    bandwidth : str, float or array-like, default="predictive"
    forgetting_factor : float or "predictive", default=1.0
    max_components : int, default=None
    shuffle : bool, default=False
    random_state : int, RandomState instance or None, default=None
    n_jobs : int, default=None
    verbose : int, default=0
        These nine are the density's, see :class:`OnlineKDEDensity`. For streams that drift take
        ``forgetting_factor="predictive"``.

    Attributes
    ----------
    density_ : OnlineKDEDensity
        What has been learned.
    offset_ : float
        The lowest log-density that is not flagged, in nats; -1e300, so that none is flagged, while
        fewer than 30 rows are known.
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all of them are strings.

    See Also
    --------
    OnlineKDEDensity : The density alone.
    sklearn.ensemble.IsolationForest : Outliers of a batch, by the depths of random trees.
    sklearn.neighbors.LocalOutlierFactor : By the density about a row and about its neighbours.

    Notes
    -----
    A row that has been learned is more probable than before, the more so the more features there
    are, and thresholds found from learned rows flag most of the rows to come. So nothing here is
    found from rows that were scored after they had been learned: the last 2000 rows are held with
    their log-densities before. For :meth:`score_samples`, :meth:`decision_function` and
    :meth:`predict` a row that is equal to one of these still has that log-density, so that ``fit``
    and ``predict`` of the same rows tell what was an outlier when it came. (Unless fewer than 30
    rows are known. The present log-densities are ``density_.score_samples(X)``.) Where rows repeat
    others by chance, as discrete ones do, :meth:`p_values` tell more: they take all rows for new.

    The ranks of p-values are among the newer half of these, 1000 rows: not among older ones, which
    were predicted by a younger model, or before the stream changed. After a change that makes rows
    improbable p-values are low, and then, until these have left the 1000, higher than the level;
    over the whole the level holds. With 1 % it takes some 200 rows until there are enough to tell.
    Rows of the same log-density count as not more probable.

    A row of weight three is learned like three rows, but predicted once, with that weight. All
    learning is row by row, and takes two to eight times as long as that of the density alone.

    Examples
    --------
    >>> import numpy as np
    >>> from skokde import OnlineKDEOutlierDetector
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=500)
    >>> X = np.column_stack([x, x + 0.2 * rng.normal(size=500)])
    >>> detector = OnlineKDEOutlierDetector().fit(X)
    >>> rows = [[1.0, 1.0], [1.0, -1.0]]  # each value alone is nothing special
    >>> detector.predict(rows)
    array([ 1, -1])
    >>> detector.p_values(rows).round(2)
    array([0.54, 0.  ])
    """

    _learned = ("density_", "_reference")

    def __init__(
        self,
        *,
        contamination: float | str = "auto",
        learn_flagged: bool = True,
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
        self.contamination = contamination
        self.learn_flagged = learn_flagged
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

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Forget what was learned and stream the rows of X in order, or shuffled if asked to.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts, in the density and in ranks: a whole number is as many
            repetitions of the row, zero leaves it out.

        Returns
        -------
        self : OnlineKDEOutlierDetector

        Raises
        ------
        ValueError
            For NaN, infinite, masked or huge values, sparse input, negative or only zero weights,
            or a parameter out of its range. The estimator is then as it was.
        TypeError
            For a parameter of the wrong type.

        Warns
        -----
        DegenerateDataWarning
            As in :meth:`OnlineKDEDensity.fit`.
        """
        with unchanged_on_error(self), one_blas_thread():
            X = check_rows(self, X, reset=True)
            weights = check_weights(sample_weight, len(X), some_positive=True)
            X, weights = self._in_order(X, weights)
            self._forget()
            self._learn(X, weights)
            return self

    def partial_fit(
        self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Go on learning with the rows of X, in order.

        The fitted state depends on the stream alone, not on the calls it is cut into. Parameters
        that were changed since the last call take effect, but for ``covariance_type``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One row or a million.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`fit`; all may be zero here.

        Returns
        -------
        self : OnlineKDEOutlierDetector

        Raises
        ------
        ValueError
            As in :meth:`fit`, for another number of features than before or other names, and where
            ``covariance_type`` has been changed since it was fitted.
        TypeError
            For a parameter of the wrong type.

        Warns
        -----
        DegenerateDataWarning
            As in :meth:`OnlineKDEDensity.fit`, in the call that brings the 30th sample.
        """
        with unchanged_on_error(self), one_blas_thread():
            self._learn(*self._next_rows(X, sample_weight))
            return self

    def partial_fit_p_values(
        self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> np.ndarray:
        """Go on learning with the rows of X, and return the p-values that they had before.

        The p-values and the fitted state are those of a loop that calls :meth:`p_values` with each
        row, and then :meth:`partial_fit`, in a third of the time.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One row or a million.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`partial_fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Of 1000 rows before at most, and the row itself: from 1 / (1 + n) to 1, which is that of
            the first row of all; NaN for rows of zero weight, which are left out.

        Raises
        ------
        ValueError, TypeError
            As in :meth:`partial_fit`. The estimator is then as it was.

        Warns
        -----
        DegenerateDataWarning
            As in :meth:`partial_fit`.

        Examples
        --------
        >>> import numpy as np
        >>> from skokde import OnlineKDEOutlierDetector
        >>> X = np.random.default_rng(0).normal(size=(400, 1))
        >>> X[300] = 7.0
        >>> alarms = OnlineKDEOutlierDetector().partial_fit_p_values(X) <= 0.01
        >>> bool(alarms[300]), int(alarms.sum())
        (True, 3)
        """
        with unchanged_on_error(self), one_blas_thread():
            X, weights = self._next_rows(X, sample_weight)
            p_values = np.full(len(X), np.nan)
            self._learn(X, weights, p_values)
            return p_values

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Log-densities of rows, of those learned last as they were before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            In nats, -1e300 or more; lower is more of an outlier. Rows that are equal to one of the
            last 2000 have the log-density that this one had before it was learned.

        Raises
        ------
        NotFittedError
            Before the first row.
        ValueError
            For NaN or infinite values, or other features than before.
        """
        self._check_is_fitted()
        X = check_rows(self, X, reset=False)
        return self._reference.of(X, self._present_density()._log_densities(X))

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Log-densities of rows above that from which on they are inliers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            ``score_samples(X) - offset_``, in nats: negative for outliers.

        Raises
        ------
        NotFittedError, ValueError
            As in :meth:`score_samples`, and for a ``contamination`` out of its range.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Which rows are outliers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            -1 for outliers, 1 for inliers.

        Raises
        ------
        NotFittedError, ValueError
            As in :meth:`decision_function`.
        """
        return np.where(self.decision_function(X) >= 0.0, 1, -1)

    def p_values(self, X: ArrayLike) -> np.ndarray:
        """Shares of the last rows that were as improbable as these when they came, or more so.

        For rows that have not been learned: what the density has learned is too probable for it.
        An alarm at p-values of at most 0.01 is false in about one of a hundred rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Of 1000 rows at most, and the row itself: from 1 / (1 + n) to 1, never 0.

        Raises
        ------
        NotFittedError, ValueError
            As in :meth:`score_samples`.

        Examples
        --------
        >>> import numpy as np
        >>> from skokde import OnlineKDEOutlierDetector
        >>> X = np.random.default_rng(0).normal(size=(400, 1))
        >>> OnlineKDEOutlierDetector().fit(X).p_values([[0.0], [2.0], [5.0]]).round(3)
        array([0.781, 0.055, 0.005])
        """
        self._check_is_fitted()
        X = check_rows(self, X, reset=False)
        log_densities = self._present_density()._log_densities(X)
        return self._reference.p_values(np.maximum(log_densities, LOWEST))

    def explain(self, X: ArrayLike) -> np.ndarray:
        """Log-densities of each feature given the others: the lowest is to blame.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            log p(x_j | all other features) in nats, under ``density_`` as it is now: log p(x) less
            that of the row without feature j. With one feature it is log p(x). Never NaN: -inf
            where the row is too far out for any density.

        Raises
        ------
        NotFittedError, ValueError
            As in :meth:`score_samples`.

        Notes
        -----
        Log-densities are in the units of the features, so that they are comparable between rows,
        and between features as far as these have the same scale given the others. Where they do
        not, subtract the median of each column for usual rows. Of two features that do not fit
        together each is improbable given the other, and both have low values.

        Examples
        --------
        >>> import numpy as np
        >>> from skokde import OnlineKDEOutlierDetector
        >>> X = np.random.default_rng(0).normal(size=(500, 3))
        >>> OnlineKDEOutlierDetector().fit(X).explain([[0.0, 6.0, 0.0]]).argmin()
        np.int64(1)
        """
        self._check_is_fitted()
        X = check_rows(self, X, reset=False)
        return self._present_density()._log_conditionals(X)

    @property
    def offset_(self) -> float:
        """The lowest log-density that is not flagged."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'offset_' before it is fitted"
            )
        contamination = self._checked_contamination()
        return self._snapshot.get(
            "offset", contamination, lambda: self._reference.threshold(contamination)
        )

    def _checked_contamination(self) -> float | None:
        """The share to be flagged, None for "auto"."""
        contamination, name = self.contamination, type(self).__name__
        expected = "'auto' or a number above 0 and at most 0.5"
        if isinstance(contamination, str):
            if contamination != "auto":
                raise ValueError(
                    f"{name}: contamination must be {expected}, got {contamination!r}."
                )
            return None
        if not isinstance(contamination, Real) or isinstance(contamination, bool):
            raise TypeError(f"{name}: contamination must be {expected}, got {contamination!r}.")
        if not 0.0 < contamination <= 0.5:
            raise ValueError(f"{name}: contamination must be {expected}, got {contamination!r}.")
        return float(contamination)

    def _merge(self, models: Sequence[Self]) -> None:
        self._checked_contamination()
        check_flag(self, "learn_flagged")
        parameters = {name: getattr(self, name) for name in (*DENSITY_PARAMETERS, "n_jobs")}
        learned = [model for model in models if model.density_.__sklearn_is_fitted__()]
        densities = [model.density_._copied(parameters) for model in learned]
        references = [model._reference for model in learned]
        super()._merge(models)
        self._reference = Reference.empty(self.n_features_in_)
        if learned:
            self._reference = references_together(references, densities)

    def _drop_rows(self, min_samples: int) -> None:
        super()._drop_rows(min_samples)
        self._reference = Reference.empty(self.n_features_in_)

    def _next_rows(
        self, X: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows with which the stream goes on, validated, and their weights."""
        X = check_rows(self, X, reset=not hasattr(self, "n_features_in_"))
        return X, check_weights(sample_weight, len(X))

    def _learn(
        self, X: np.ndarray, weights: np.ndarray, p_values: np.ndarray | None = None
    ) -> None:
        """Learn from validated rows; what is fitted is replaced, not written to.

        Parameters
        ----------
        X : (n, d) array
        weights : (n,) array
        p_values : (n,) array, default=None
            It gets those of the rows whose weight is not zero.
        """
        check_values(self, X)
        settings = check_settings(self, X.shape[1])
        self._checked_contamination()
        check_flag(self, "learn_flagged")
        density = self._present_density()
        density._check_n_jobs()
        vars(density).update(features_of(self))
        seen_before = getattr(density, "_n_samples_seen", 0.0)
        density._learn(X[:0], weights[:0], settings)  # there is a state then
        reference = getattr(self, "_reference", Reference.empty(X.shape[1]))
        counted = weights > 0.0
        X, weights = X[counted], weights[counted]
        of_counted = None if p_values is None else np.empty(len(X))
        for part in self._parts(len(X), lambda: density._mixture.n_components):
            for start in range(part.start, part.stop, BLOCK):
                block = slice(start, min(start + BLOCK, part.stop))
                of_block = None if of_counted is None else of_counted[block]
                reference = self._learn_block(
                    density, reference, X[block], weights[block], settings, of_block
                )
        if p_values is not None:
            p_values[counted] = of_counted
        self.density_ = density
        self._reference = reference
        self._snapshot = Snapshot()
        density._warn_if_due(seen_before, settings, density)

    def _learn_block(
        self,
        density: OnlineKDEDensity,
        reference: Reference,
        X: np.ndarray,
        weights: np.ndarray,
        settings: Settings,
        p_values: np.ndarray | None,
    ) -> Reference:
        """Let a density of one's own learn rows, each of which it predicts; the new reference.

        One by one, although blocks take less time: those that are scored together have other last
        bits than each alone, and the result would depend on the calls.
        """
        n, contamination = len(reference.counts), self._checked_contamination()
        # With room for all rows that may come to it.
        rows, counts, log_densities = (
            np.concatenate([held, np.empty_like(held, shape=(len(X), *held.shape[1:]))])
            for held in reference
        )
        for number, (row, weight) in enumerate(zip(X[:, None], weights[:, None], strict=True)):
            log_density, learned = np.inf, True
            if density.__sklearn_is_fitted__():
                log_density = max(density._kde(settings).log_density(row)[0], LOWEST)
            held = slice(max(n - MOST_HELD, 0), n)
            before = Reference(rows[held], counts[held], log_densities[held])
            if p_values is not None:
                p_values[number] = before.p_values(np.array([log_density]))[0]
            if not self.learn_flagged:
                learned = log_density >= before.threshold(contamination)
            if learned:
                density._learn_complete(row, weight, settings)
            rows[n], counts[n], log_densities[n] = row[0], weight[0], log_density
            n += 1
        held = slice(max(n - MOST_HELD, 0), n)
        return Reference(rows[held].copy(), counts[held].copy(), log_densities[held].copy())

    def _restore(self) -> None:
        super()._restore()
        self._reference = unpacked(Reference, self._reference)
        rows, counts, log_densities = self._reference
        n = len(np.atleast_1d(counts))
        expect(n <= MOST_HELD, "counts of the last rows", f"of {MOST_HELD} rows at most")
        expect_array(rows, "last rows", (n, self.n_features_in_))
        expect_array(counts, "counts of the last rows", (n,), least=TINY)
        name = "log-densities of the last rows"
        # Before the first row, and before this row alone, nothing is known.
        known = log_densities[1:] if n and log_densities[0] == np.inf else log_densities
        expect_array(known, name, (n - (known is not log_densities),), least=LOWEST)
        expect(
            self.density_._state.mixture.n_features == self.n_features_in_,
            "density_",
            f"of {self.n_features_in_} features",
        )
