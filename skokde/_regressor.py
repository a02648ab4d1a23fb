"""Regression: the joint density of features and outputs, and what it tells of outputs alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state

from skokde._base import Snapshot, one_blas_thread, unchanged_on_error
from skokde._density import OnlineKDEDensity
from skokde._engine.kde import in_boxes
from skokde._engine.missing import patterns
from skokde._engine.prequential import without_prior
from skokde._persistence import expect
from skokde._summary import counted
from skokde._validation import (
    check_n_samples,
    check_outputs,
    check_rows,
    check_rows_and_outputs,
    check_settings,
    check_values,
    check_weights,
)
from skokde._with_density import BaseWithDensity
from skokde.distribution import GaussianMixtureFamily
from skokde.distribution._gaussians import check_probability

# Rows that are predicted at a time. Those that are close have components in common.
BLOCK = 64
# As many terms for a row as make it worth while to put close rows together, whatever that costs.
MANY_TERMS = 2**31


class OnlineKDERegressor(MultiOutputMixin, RegressorMixin, BaseWithDensity):
    """Predict one or more outputs, or their distribution, from an online density estimate.

    An :class:`OnlineKDEDensity` learns rows of features and outputs together. Given the features,
    what it says of the outputs is a mixture of Gaussians: its mean is predicted, or its spread,
    quantiles, intervals, draws, or the distribution itself. It may have several branches, and its
    spread may change from place to place.

    Parameters
    ----------
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
        All are the density's, see :class:`OnlineKDEDensity`. A bandwidth array is of features and,
        after them, outputs. For streams that drift take ``forgetting_factor="predictive"``.

    Attributes
    ----------
    density_ : OnlineKDEDensity
        Of features and, after them, outputs; its experts are weighted by how well they predict the
        outputs.
    n_outputs_ : int
        Number of outputs.
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all of them are strings.

    See Also
    --------
    OnlineKDEDensity : The density of rows without outputs.
    skokde.distribution.crps : A score of predicted distributions.
    sklearn.gaussian_process.GaussianProcessRegressor : Keeps all samples; one Gaussian for each
        prediction.

    Notes
    -----
    With one kernel the mean is that of Nadaraya and Watson where the components are samples, and a
    mixture of linear regressions where samples are merged [1]_. Kernels of several widths and
    shapes are weighted by how well they predict outputs given the features, p(y | x), and where d
    features are known by their densities of these to the power of 1 / (1 + d), from 500 samples on
    1 / (1 + 500 d / n); see :doc:`/regression`.

    References
    ----------
    .. [1] Z. Ghahramani, M. Jordan (1994). Supervised learning from incomplete data via an EM
       approach. Advances in Neural Information Processing Systems 6, 120-127.

    Examples
    --------
    >>> import numpy as np
    >>> from skokde import OnlineKDERegressor
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2.0, 2.0, 1000)
    >>> y = rng.choice([-1.0, 1.0], 1000) * (1.0 + x**2) + 0.1 * rng.normal(size=1000)
    >>> regressor = OnlineKDERegressor().fit(x[:, None], y)
    >>> regressor.predict([[0.0]], quantiles=[0.2, 0.8]).round()  # of two branches
    array([[-1.,  1.]])
    >>> regressor.log_density([[0.0], [0.0]], [1.0, 0.0]).round(1)
    array([-0.5, -7.8])
    """

    _learned = ("density_", "n_outputs_", "_is_column")
    _takes_missing_values = True

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget what was learned and stream the rows of X and y in order, or shuffled if asked to.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is missing at random, and learned as in :meth:`OnlineKDEDensity.fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts: a whole number is as many repetitions of the row, zero leaves
            it out.

        Returns
        -------
        self : OnlineKDERegressor

        Raises
        ------
        ValueError
            For infinite, masked or huge values, NaN in y, sparse input, negative or only zero
            weights, or a parameter out of its range. The estimator is then as it was.
        TypeError
            For a parameter of the wrong type.

        Warns
        -----
        DegenerateDataWarning
            If features are constant, or linear functions of each other, after 30 samples or more;
            or if the rule that ``bandwidth`` names finds no scale.
        """
        with unchanged_on_error(self), one_blas_thread():
            X, y = check_rows_and_outputs(self, X, y, reset=True)
            weights = check_weights(sample_weight, len(X), some_positive=True)
            X, y, weights = self._in_order(X, y, weights)
            self._forget()
            return self._learn(X, y, weights, is_all=True)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Go on learning with the rows of X and y, in order.

        The model depends on the stream alone, not on the calls it is cut into. Parameters that
        were changed since the last call take effect, but for ``covariance_type``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One row or a million; NaN is missing.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`fit`; all may be zero here.

        Returns
        -------
        self : OnlineKDERegressor

        Raises
        ------
        ValueError
            As in :meth:`fit`, for another number of features or outputs than before or other names,
            and where ``covariance_type`` has been changed since it was fitted.
        TypeError
            For a parameter of the wrong type.

        Warns
        -----
        DegenerateDataWarning
            As in :meth:`fit`, in the call that brings the 30th sample.
        """
        with unchanged_on_error(self), one_blas_thread():
            X, y = check_rows_and_outputs(self, X, y, reset=not hasattr(self, "n_features_in_"))
            weights = check_weights(sample_weight, len(X))
            return self._learn(X, y, weights)

    def _learn(
        self, X: np.ndarray, y: np.ndarray, weights: np.ndarray, is_all: bool = False
    ) -> Self:
        """Learn validated rows, a density in place of the one before."""
        if hasattr(self, "density_"):
            check_outputs(self, y)
        check_values(self, X)
        rows = np.column_stack([X, y])
        self.n_outputs_, self._is_column = rows.shape[1] - X.shape[1], y.ndim == 1
        density = self._present_density()
        settings = check_settings(self, rows.shape[1])
        density._check_n_jobs()
        vars(density)["n_features_in_"] = rows.shape[1]
        seen_before = getattr(density, "_n_samples_seen", 0.0)
        for part in self._parts(len(rows), lambda: density._mixture.n_components):
            density._learn(rows[part], weights[part], settings)
        if is_all and density._waiting is not None:
            density._start(settings)
        self.density_ = density
        self._snapshot = Snapshot(getattr(self, "_snapshot", None))
        # Of the features alone: that they tell the outputs exactly is no fault of theirs.
        density._warn_if_due(seen_before, settings, self)
        return self

    def _merge(self, models: Sequence[Self]) -> None:
        kinds = {(model.n_outputs_, model._is_column) for model in models}
        if len(kinds) > 1:
            raise ValueError(
                f"{type(self).__name__}: models can't be merged of which one has learned a y of "
                "another number of outputs or dimensions."
            )
        self.n_outputs_, self._is_column = kinds.pop()
        super()._merge(models)

    @property
    def _n_outputs(self) -> int:
        return getattr(self, "n_outputs_", 0)

    def _present_density(self) -> OnlineKDEDensity:
        return super()._present_density()._copied({"_n_outputs": self._n_outputs})

    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        quantiles: float | ArrayLike | None = None,
    ) -> Any:
        """Expected outputs, or quantiles of them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is missing, and integrated out.
        return_std : bool, default=False
            Whether to return standard deviations, too.
        quantiles : float or array-like of shape (n_quantiles,), default=None
            Probabilities from 0 to 1, of which the quantiles are returned instead of the mean. One
            that is 0 or 1 is infinite.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            As the y that was learned. With an array of quantiles of shape (n_samples, n_quantiles)
            or (n_samples, n_outputs, n_quantiles).
        std : ndarray of the same shape
            With ``return_std``.

        Raises
        ------
        NotFittedError
            Before the first row has been learned.
        ValueError
            For infinite values, other features than before, both deviations and quantiles, or
            probabilities that are none.

        Examples
        --------
        >>> import numpy as np
        >>> from skokde import OnlineKDERegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0.0, 100.0, (500, 1))
        >>> regressor = OnlineKDERegressor().fit(X, 2.0 * X[:, 0] + rng.normal(size=500))
        >>> regressor.predict([[10.0], [20.5]]).round(0)
        array([20., 41.])
        >>> mean, std = regressor.predict([[10.0]], return_std=True)
        >>> std.round(1)
        array([1.6])
        >>> regressor.predict([[10.0]], quantiles=[0.1, 0.5, 0.9]).round(0)
        array([[19., 20., 21.]])
        """
        X = self._checked(X)
        if quantiles is None:
            mean, deviation = np.empty((2, len(X), self.n_outputs_))
            for rows, family in self._families(X, self._outputs):
                mean[rows] = family.mean
                if return_std:
                    deviation[rows] = np.sqrt(np.diagonal(family.cov, axis1=1, axis2=2))
            mean, deviation = self._shaped(mean), self._shaped(deviation)
            return (mean, deviation) if return_std else mean
        if return_std:
            raise ValueError("Ask for deviations or for quantiles, not for both in one call.")
        levels = np.asarray(quantiles, dtype=float)
        if levels.ndim > 1 or not ((levels >= 0.0) & (levels <= 1.0)).all():
            raise ValueError(f"quantiles must be probabilities from 0 to 1, got {quantiles!r}.")
        found = self._shaped(self._quantiles(X, np.atleast_1d(levels)))
        return found if levels.ndim else found[..., 0]

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> np.ndarray:
        """Central intervals in which outputs lie with a probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        coverage : float, default=0.9
            Above 0 and below 1. What is below an interval and what is above it has the same
            probability. Where a distribution has several branches a smaller region may have it,
            see :meth:`predict_distribution`.

        Returns
        -------
        ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)

        Raises
        ------
        NotFittedError, ValueError
            As in :meth:`predict`, and for a coverage that is no probability.
        """
        tail = 0.5 * (1.0 - check_probability("coverage", coverage))
        return self.predict(X, quantiles=[tail, 1.0 - tail])

    def predict_distribution(self, X: ArrayLike) -> GaussianMixtureFamily:
        """Distributions of the outputs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows that lack the same features, if any.

        Returns
        -------
        GaussianMixtureFamily
            One distribution for each row, of ``n_outputs_`` features.

        Raises
        ------
        NotFittedError, ValueError
            As in :meth:`predict`, and for rows that lack different features.

        Examples
        --------
        >>> import numpy as np
        >>> from skokde import OnlineKDERegressor
        >>> from skokde.distribution import crps
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=300)
        >>> regressor = OnlineKDERegressor().fit(X[:200], y[:200])
        >>> family = regressor.predict_distribution(X[200:])
        >>> bool(crps(family, y[200:]).mean() < 0.1)
        True
        """
        X = self._checked(X)
        lacks = np.isnan(X)
        if (lacks != lacks[0]).any():
            raise ValueError(
                "All rows must lack the same features, or none: ask for those that lack others in "
                "a call of their own."
            )
        known = np.flatnonzero(~lacks[0])
        with one_blas_thread():
            density, rows = self._asked_density(), X.take(known, axis=1)
            return self._family(density, rows, known, self._outputs)

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray:
        """Draw outputs.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        n_samples : int, default=1
            Draws for each row.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
            Independent draws.

        Raises
        ------
        NotFittedError, ValueError
            As in :meth:`predict`.
        """
        X, n = self._checked(X), check_n_samples(self, n_samples)
        rng, out = check_random_state(random_state), np.empty((len(X), self.n_outputs_, n))
        for rows, family in self._families(X, self._outputs):
            out[rows] = family.rvs(n, rng).transpose(0, 2, 1)
        return self._shaped(out)

    def log_density(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """Log-densities of outputs given the features.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        ndarray of shape (n_samples,)
            log p(y | x) in nats, of all outputs together. -inf where y is too far out for any
            density; where X is, too, it is that of the component nearest to it.

        Raises
        ------
        NotFittedError, ValueError
            As in :meth:`predict`, and for NaN in y or other outputs than before.
        """
        self._check_is_fitted()
        X, y = check_rows_and_outputs(self, X, y, reset=False)
        check_outputs(self, y)
        y = y.reshape(len(X), -1)
        out = self._asked_density()._log_densities_of_outputs(np.hstack([X, y]))
        lost = np.flatnonzero(out == -np.inf)
        for rows, family in self._families(X[lost], self._outputs):
            out[lost[rows]] = family.logpdf(y[lost][rows])
        return out

    def _summary_of(self) -> str:
        return f"{super()._summary_of()} and {counted(self.n_outputs_, 'output')}"

    @property
    def _outputs(self) -> np.ndarray:
        """Numbers of the outputs among what the density has."""
        return self.n_features_in_ + np.arange(self.n_outputs_)

    def _checked(self, X: ArrayLike) -> np.ndarray:
        self._check_is_fitted()
        return check_rows(self, X, reset=False)

    def _shaped(self, of_outputs: np.ndarray) -> np.ndarray:
        """What is known of outputs (n, n_outputs, ...), as the y that was learned."""
        return of_outputs[:, 0] if self._is_column else of_outputs

    def _quantiles(self, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Quantiles (n, n_outputs, n_levels) of each output by itself."""
        out = np.empty((len(X), self.n_outputs_, len(levels)))
        for number, output in enumerate(self._outputs):
            for rows, family in self._families(X, output[None]):
                out[rows, number] = family.ppf(levels)
        return out

    def _families(
        self, X: np.ndarray, outputs: np.ndarray
    ) -> Iterator[tuple[np.ndarray, GaussianMixtureFamily]]:
        """Numbers of some rows at a time, with the distributions of outputs in these."""
        density = self._asked_density()
        with one_blas_thread():
            for rows, known in patterns(X):
                some = X[rows].take(known, axis=1)
                order = in_boxes(some, MANY_TERMS) if len(known) else np.arange(len(some))
                for start in range(0, len(some), BLOCK):
                    part = order[start : start + BLOCK]
                    yield rows[part], self._family(density, some[part], known, outputs)

    def _family(
        self, density: OnlineKDEDensity, rows: np.ndarray, known: np.ndarray, outputs: np.ndarray
    ) -> GaussianMixtureFamily:
        """Distributions of outputs, by a density, where some features are known."""
        if len(known) == self.n_features_in_:
            return density._conditional(known, rows, outputs, lasts=True)
        if len(known):
            return density._conditional(known, rows, outputs)
        marginal = density.distribution(dimensions=outputs.tolist())
        return GaussianMixtureFamily.unconditional(marginal, len(rows))

    def _asked_density(self) -> OnlineKDEDensity:
        """The present density, with changes that do not matter to densities as such.

        Experts for which no sample speaks have weights of their own, that a surprise is not
        impossible. Some of them are so wide that standard deviations would be theirs.

        Of a few first rows their order decides which of them predict others, and so the weights of
        kernels. But by scikit-learn's convention a row of weight two is as good as two rows,
        wherever these stand.
        """
        density = self._present_density()
        state, settings = density._state, density._settings()
        if not state.n_compressed and settings.memories:
            return density

        def make() -> OnlineKDEDensity:
            if state.n_compressed:
                changed = state._replace(expert_counts=without_prior(state, settings))
            else:
                mixture, order = state.mixture, np.lexsort(state.mixture.means.T)
                mixture = mixture._replace(counts=mixture.counts[order], means=mixture.means[order])
                changed = state._replace(mixture=mixture)
            # What most of the rows to come change nothing of is taken over by the next density.
            latest = self._snapshot.lasting("latest", None, dict)
            latest["snapshot"] = Snapshot(latest.get("snapshot"))
            return density._copied({"_state": changed, "_snapshot": latest["snapshot"]})

        return self._snapshot.get("asked", settings.key, make)

    def _restore(self) -> None:
        super()._restore()
        vars(self.density_)["_n_outputs"] = self.n_outputs_
        expect(isinstance(self._is_column, (bool, np.bool_)), "_is_column", "True or False")
        n = self.density_._state.mixture.n_features - self.n_features_in_
        expect(
            self.n_outputs_ == n >= 1 and (n == 1 or not self._is_column),
            "n_outputs_",
            "what the density has beyond the features",
        )
