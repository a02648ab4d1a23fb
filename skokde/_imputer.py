"""Missing values filled in from an online kernel density estimate."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state

from skokde._base import one_blas_thread, unchanged_on_error
from skokde._density import OnlineKDEDensity
from skokde._engine.missing import patterns
from skokde._persistence import expect
from skokde._validation import DegenerateDataWarning, check_flag, check_rows, check_weights
from skokde._with_density import BaseWithDensity

# In which rows are filled in by what was learned of the others.
N_FOLDS = 5


class OnlineKDEImputer(OneToOneFeatureMixin, TransformerMixin, BaseWithDensity):
    """Fill in missing values of a stream by what is known of their rows.

    An :class:`OnlineKDEDensity` learns the rows, incomplete ones, too. What a row lacks is then its
    expected value given what the row has, or a draw from that distribution.

    Parameters
    ----------
    sample_posterior : bool, default=False
        Whether to draw, instead of taking the mean. Several imputations, for the uncertainty that
        they leave, are those of several seeds.
    add_indicator : bool, default=False
        Whether to append a column for each feature of which a value was missing in what was
        learned: one where it is missing, else zero, as :class:`sklearn.impute.MissingIndicator`.
    keep_empty_features : bool, default=True
        Whether features of which no value has been seen are kept, as zeros, or dropped.
    random_state : int, RandomState instance or None, default=None
        Of the draws, anew in each call of :meth:`transform`, and of the order in which rows are
        learned with `shuffle`. An integer gives the same ones each time.
    covariance_type : {"full", "diag", "spherical", "lowrank"} or CovarianceStructure, \
            default="full"
    compression_threshold : "predictive" or float, default="predictive"
    bandwidth : str, float or array-like, default="predictive"
    forgetting_factor : float or "predictive", default=1.0
    max_components : int, default=None
    shuffle : bool, default=False
    n_jobs : int, default=None
    verbose : int, default=0
        These eight are the density's, see :class:`OnlineKDEDensity`.

    Attributes
    ----------
    density_ : OnlineKDEDensity
        What has been learned.
    empty_features_ : ndarray of shape (n_features,)
        True for features of which no value has been seen.
    incomplete_features_ : ndarray of shape (n_features,)
        True for features of which a value was missing in what was learned.
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all of them are strings.

    See Also
    --------
    sklearn.impute.IterativeImputer : Regressions of each feature on the others, in several passes.
    sklearn.impute.KNNImputer : Means of the nearest rows, which are all kept.

    Notes
    -----
    Values are taken to be missing at random: whether one is may depend on what is known of its row,
    but not on what it would have been. How incomplete rows are learned is described in
    :meth:`OnlineKDEDensity.fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from skokde import OnlineKDEImputer
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=500)
    >>> X = np.column_stack([x, 3.0 * x + 0.1 * rng.normal(size=500)])
    >>> imputer = OnlineKDEImputer().fit(X)
    >>> imputer.transform([[1.0, np.nan], [np.nan, -3.0]]).round(1)
    array([[ 1.,  3.],
           [-1., -3.]])
    """

    _learned = ("density_", "empty_features_", "incomplete_features_")
    _takes_missing_values = True

    def __init__(
        self,
        *,
        sample_posterior: bool = False,
        add_indicator: bool = False,
        keep_empty_features: bool = True,
        random_state: int | np.random.RandomState | None = None,
        covariance_type: str = "full",
        compression_threshold: float | str = "predictive",
        bandwidth: str | float | ArrayLike = "predictive",
        forgetting_factor: float | str = 1.0,
        max_components: int | None = None,
        shuffle: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ):
        self.sample_posterior = sample_posterior
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features
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
            NaN is missing.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts.

        Returns
        -------
        self : OnlineKDEImputer

        Raises
        ------
        ValueError
            For infinite, masked or huge values, sparse input, rows without any value, negative or
            only zero weights, or a parameter out of its range. The estimator is then as it was.
        TypeError
            For a parameter of the wrong type.
        """
        with unchanged_on_error(self):
            X = check_rows(self, X, reset=True)
            weights = check_weights(sample_weight, len(X), some_positive=True)
            X, weights = self._in_order(X, weights)
            self._forget()
            return self._learn(X, weights, OnlineKDEDensity.fit)

    def partial_fit(
        self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Go on learning with the rows of X, in order.

        The model depends on the stream alone, not on the calls it is cut into.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is missing. While there is a feature without any value, up to 30 rows wait.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`fit`; all may be zero here.

        Returns
        -------
        self : OnlineKDEImputer

        Raises
        ------
        ValueError, TypeError
            As in :meth:`fit`, and for another number of features than before or other names.
        """
        with unchanged_on_error(self):
            first = not hasattr(self, "n_features_in_")
            X = check_rows(self, X, reset=first)
            weights = check_weights(sample_weight, len(X))
            return self._learn(X, weights, OnlineKDEDensity.partial_fit)

    def _learn(
        self, X: np.ndarray, weights: np.ndarray, method: Callable[..., OnlineKDEDensity]
    ) -> Self:
        """Learn validated rows by a method of the density."""
        for name in ("sample_posterior", "add_indicator", "keep_empty_features"):
            check_flag(self, name)
        self.density_ = method(self._present_density(), X, sample_weight=weights)
        missing, d = np.isnan(X[weights > 0.0]), self.n_features_in_
        empty = getattr(self, "empty_features_", np.ones(d, dtype=bool))
        incomplete = getattr(self, "incomplete_features_", np.zeros(d, dtype=bool))
        self.empty_features_ = empty & missing.all(axis=0)
        self.incomplete_features_ = incomplete | missing.any(axis=0)
        return self

    def _merge(self, models: Sequence[Self]) -> None:
        for name in ("sample_posterior", "add_indicator", "keep_empty_features"):
            check_flag(self, name)
        super()._merge(models)
        self.empty_features_ = np.all([model.empty_features_ for model in models], axis=0)
        self.incomplete_features_ = np.any([m.incomplete_features_ for m in models], axis=0)

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Fill in what is missing.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is missing. Rows may lack all.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Known values as they are.

        Raises
        ------
        NotFittedError
            Before the first row has been learned.
        ValueError
            For infinite values, or other features than before.
        """
        self._check_is_fitted()
        X = check_rows(self, X, reset=False)
        with one_blas_thread():
            rng = check_random_state(self.random_state)
            return self._arranged(X, self._filled(X, self._present_density(), rng))

    def fit_transform(
        self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> np.ndarray:
        """Learn rows and fill in what they lack, by what was learned of others.

        A row that has been learned is in the model, completed by a draw, and would be filled in by
        that. So its values come from a model of four fifths of the rows that it is not among, as in
        :class:`sklearn.preprocessing.TargetEncoder`: ``fit(X).transform(X)`` is not the same. It
        takes five times as long as to fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is missing.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)

        Raises
        ------
        ValueError, TypeError
            As in :meth:`fit`.
        """
        self.fit(X, sample_weight=sample_weight)
        X = check_rows(self, X, reset=False)
        weights = check_weights(sample_weight, len(X))
        fold = np.arange(len(X)) % N_FOLDS
        out, rng = X.copy(), check_random_state(self.random_state)
        with one_blas_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateDataWarning)  # `fit` has warned
            for number in np.unique(fold[np.isnan(X).any(axis=1)]):
                own, density = fold == number, self._present_density()
                others = ~own & (weights > 0.0)
                if not np.isnan(X[others]).all():
                    density.fit(X[others], sample_weight=weights[others])
                out[own] = self._filled(X[own], density, rng)
        return self._arranged(X, out)

    def _filled(
        self, X: np.ndarray, density: OnlineKDEDensity, rng: np.random.RandomState
    ) -> np.ndarray:
        """Rows with what a density tells of missing values."""
        out = X.copy()
        for rows, features in patterns(X):
            others = np.setdiff1d(np.arange(X.shape[1]), features)
            if not len(others):
                continue
            if len(features):
                family = density._conditional(features, X[rows].take(features, axis=1), others)
                values = family.rvs(1, rng)[:, 0] if self.sample_posterior else family.mean
            elif self.sample_posterior:
                values = density._draws(len(rows), rng, density._settings())
            else:
                values = density._kde(density._settings()).mean
            out[np.ix_(rows, others)] = values
        return out

    def _arranged(self, X: np.ndarray, filled: np.ndarray) -> np.ndarray:
        """What `transform` returns, with or without empty features and indicators."""
        missing, empty = np.isnan(X), self.empty_features_
        out = np.where(missing & empty, 0.0, filled)
        if not self.keep_empty_features:
            out = out[:, ~empty]
        if self.add_indicator:
            out = np.hstack([out, missing[:, self.incomplete_features_]])
        return out

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """Names of the features of what :meth:`transform` returns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features; by default ``feature_names_in_``, or x0, x1 and so on.

        Returns
        -------
        ndarray of str objects
            Those of indicators begin with ``missingindicator_``.
        """
        self._check_is_fitted()
        names = super().get_feature_names_out(input_features)
        kept = names if self.keep_empty_features else names[~self.empty_features_]
        if not self.add_indicator:
            return kept
        marked = [f"missingindicator_{name}" for name in names[self.incomplete_features_]]
        return np.concatenate([kept, np.array(marked, dtype=object)])

    def _restore(self) -> None:
        super()._restore()
        for name in ("empty_features_", "incomplete_features_"):
            array = getattr(self, name)
            expect(
                isinstance(array, np.ndarray)
                and array.dtype == np.bool_
                and array.shape == (self.n_features_in_,),
                name,
                f"an array of {self.n_features_in_} bools",
            )
