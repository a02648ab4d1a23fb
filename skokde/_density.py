"""The density estimator: validate, drive the engine, score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state

from skokde._base import BaseOnlineKDE, Snapshot, one_blas_thread, unchanged_on_error
from skokde._conditionals import conditioner_of, log_conditionals
from skokde._engine.bandwidth import KernelFrame
from skokde._engine.class_density import ClassDensity, build_class_density
from skokde._engine.covariance import structure_of
from skokde._engine.estimates import (
    Groups,
    Memories,
    References,
    average_bandwidth,
    build_kde,
    discriminant_moments,
    experts_by_kind,
    fading_kde,
    reference_kde,
    reference_part,
    weights_by_kind,
)
from skokde._engine.experts import empty_state
from skokde._engine.kde import KDE, in_boxes, in_parts, log
from skokde._engine.learn import learn
from skokde._engine.merging import fades_of, merged
from skokde._engine.microaggregation import microaggregated
from skokde._engine.mixture import Mixture
from skokde._engine.outliers import Moments, inlier_moments, inliers
from skokde._engine.outputs import log_densities_of_outputs, power_of_features
from skokde._engine.prequential import up_to_date
from skokde._engine.recent import held, predicted_moments, reference_memories
from skokde._engine.state import INITIAL_LIMIT, Recent, Settings, State
from skokde._engine.whitening import corrected_features
from skokde._incomplete import Waiting, complete
from skokde._persistence import check_state, check_waiting, expect_number, unpacked
from skokde._summary import counted, density_line
from skokde._validation import (
    check_is_learned,
    check_n_samples,
    check_rows,
    check_settings,
    check_values,
    check_weights,
    warn_of_corrections,
    warn_of_fall_back,
)
from skokde.distribution import GaussianMixtureDistribution, GaussianMixtureFamily
from skokde.distribution._gaussians import Dimensions, numbers_of
from skokde.distribution.conditioning import Tempering, conditioned

# In units of the largest density: where all Gaussians of a width and shape have less together, they
# are left out of what is told of missing values.
NEGLIGIBLE = 1e-4
# Rows, in units of the square of the features over this, from which on a marginal without each
# feature takes less time than precision matrices, of which a few rows need no marginal.
MARGINALS_PAY = 10
# Families of kernels whose regressions are kept: of two estimates, samples later than each, and
# three short memories, in three shapes each.
MOST_CONDITIONERS = 24


class OnlineKDEDensity(DensityMixin, BaseOnlineKDE):
    """Online kernel density estimation of a stream, in one pass and little memory.

    The model is a mixture of Gaussians: samples enter as Diracs, and when there are too many
    components those that one Gaussian can stand for are merged, as far as the density
    estimate stays the same within ``compression_threshold``. Each merged component keeps a detailed
    model of two components, so that a merge which later samples prove wrong is undone. The density
    is that mixture convolved with a Gaussian kernel of covariance H, the bandwidth [1]_, [2]_.

    Parameters
    ----------
    covariance_type : {"full", "diag", "spherical", "lowrank"} or CovarianceStructure, \
            default="full"
        Structure of the components' covariances and of the bandwidth. With "diag" time and memory
        grow with the number of features, with "full" with its square and more. "spherical": as
        "diag", but scored with one variance for all features, which must have the same unit.
        "lowrank": variances and 16 directions, for hundreds of features; another number by
        :class:`skokde.covariance.LowRankCovariance`. For structures of one's own see
        :doc:`/structures`.
    compression_threshold : "predictive" or float, default="predictive"
        The largest Hellinger distance, from 0 to 1 and weighted by the root of its mass, that
        merging a cluster may cost (the paper's D_th, Eq. 10). Lower values keep more components; 0
        merges nothing but equal samples. The paper's tables are made with 0.1. "predictive": the
        model is compressed by a low one, 0.0025 at first, and scored at that and at higher ones, up
        to 0.64, each weighted by how well it predicts the samples to come. One that proves of no
        use is given up for the next, which of fewer than 4,000 samples is rare; where the one that
        is held predicts best a lower one is taken again. Not more than 1,600 components are left
        by a compression, of merged models not more than 3,200; half as many of more than 64
        features with full covariances, or with those of low rank.
        With ``bandwidth="predictive"`` and full covariances half of the correlations, and none of
        them, are tried, too; with those of low rank none.
    bandwidth : str, float or array-like, default="predictive"
        How the kernel's covariance H is found:

        - "predictive": kernels of several widths are mixed, each weighted by how well it predicts
          the samples to come: 1/4, 1/2, 1 and 2 times the normal-reference scale, or 1/64, 1/16,
          1/4, 1/2 and 2 times where the threshold is predictive, too. They preserve the variance
          [3]_: components shrink towards the mean by as much as the kernel widens them.
          Compressions go by 0.7 times the normal-reference scale.

        The others are one width each, by which the model is compressed, too (Section 2.2 of [1]_):

        - "plugin": beta^2 times the covariance of the sample model, where beta minimises the
          asymptotic mean integrated squared error under the model itself (Eqs. 4 to 6);
        - "okde": the same as the paper prints it and its authors use it. The roughness functional
          (Eq. 5) and the place of d in Eq. 4 are then right in one dimension, and give smaller
          bandwidths in more;
        - "silverman": beta = (4 / ((d + 2) N))^(1 / (d + 4)), the normal-reference scale;
        - "scott": beta = N^(-1 / (d + 4));
        - a positive float: beta as this multiple of the normal-reference scale. It is relative to
          the data's own covariance, unlike the absolute ``bandwidth`` of
          :class:`sklearn.neighbors.KernelDensity`;
        - an array of shape (d,), variances, or (d, d), a covariance: H itself, in data units. The
          latter needs ``covariance_type="full"``.
    forgetting_factor : float or "predictive", default=1.0
        What older samples' counts are multiplied by with each new sample, above 0 and at most 1.
        With f below one the model remembers about 1 / (1 - f) samples. "predictive", for streams
        that may change: nothing is forgotten, but the newest 512 samples are kept as they are, and
        three estimates of these, by factors of 0.9, 0.97 and 0.997, are mixed in, as far as they
        predict the samples to come better; so is a second model, which forgets by 0.99.
    max_components : int, default=None
        Never hold more components than this, at least 2, even where it takes merges beyond the
        threshold. None: no cap. With predictive memory the model that forgets has as many at most,
        for itself.
    shuffle : bool, default=False
        Whether `fit` learns rows in a random order, for data that are no stream but stand in some
        order, as those of many files do. Rows that resemble those next to them teach what is found
        by prediction what to expect of rows that come next, which is not what to expect of rows at
        random, see :doc:`/samples`. With it a weight of three is no longer the same, to the last
        bit, as three repetitions. `partial_fit`, and with it `fit_shards`, learns rows as they
        come.
    random_state : int, RandomState instance or None, default=None
        Of that order. An integer gives the same model each time.
    n_jobs : int, default=None
        Threads, over rows that are scored; the result does not depend on it. None means 1, unless
        in a :func:`joblib.parallel_config` context; -1 means all cores.
    verbose : int, default=0
        Whether calls that learn for more than half a second print how far they are: rows, rows per
        second, components, and the time left. The model does not depend on it.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Weights of the sample model's components, of sum one.
    means_ : ndarray of shape (n_components, n_features)
    covariances_ : ndarray of shape (n_components, n_features, n_features) or \
            (n_components, n_features) or (n_components, 1 + rank, n_features)
        Of the sample model, without the bandwidth; zero for single samples. Those of low rank are
        variances, and directions whose products with themselves are the correlations.
    n_components_ : int
        All that is held, samples not yet compressed included.
    bandwidth_ : ndarray of shape (n_features, n_features) or (n_features,)
        The covariance H of the kernel, in data units; with "predictive", the average one.
    bandwidth_scale_ : float or None
        The scale beta of the kernel, or None if the bandwidth is "predictive" or an array. It is
        one where "plugin" or "okde" find none that is positive and finite (Section 3.4 of [1]_), of
        which a `DegenerateDataWarning` tells at the 30th sample.
    outliers_ : ndarray of shape (n_components,)
        True for components so far out that the bandwidth does not go by them, see the notes.
    corrected_features_ : ndarray of shape (n_features,)
        True for features of which the kernel's spread is put in, since the data have none: constant
        ones, and those that are linear functions of each other (or seem so, as with fewer samples
        than features), as described in the notes. All False if the bandwidth is an array.
    expert_weights_ : dict of {str: ndarray}
        What prediction has found, as weights of sum one: "threshold" of shape (n_thresholds,), from
        the finest that is held to the coarsest; "width" (n_widths,), from the narrowest kernel to
        the widest; "shape" (n_shapes,), full covariances, half of the correlations, and none, or
        those of low rank, those of fewer directions if the rank is predicted, and none;
        "outliers" of shape (n_shapes, 3), the weight, of one in all, of single Gaussians with the
        standard deviations of all samples and 4 and 16 times as large ones; "shrinkage" of shape
        (n_shrinkages,), of one in all, that of single Gaussians with all or 30 % of the noise taken
        off their correlations (Chen et al., 2010), or 30 and 5 % with covariances of low rank,
        where the first ones have all of it taken off; "memory", that of all samples, of the newest
        by each factor, and of the model that forgets by 0.99. Of one entry, or none, where there
        is nothing to find.
    experts_ : dict of {str: list}
        What the entries of ``expert_weights_`` belong to: "threshold", Hellinger distances;
        "width", multiples of the normal-reference scale, or the parameter ``bandwidth``, if it is
        another one than "predictive"; "shape", names; "outliers", multiples of the standard
        deviations, one for each column; "shrinkage", parts of the noise; "memory", forgetting
        factors.
    n_samples_seen_ : float
        Sum of the weights of all rows seen, without forgetting.
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all of them are strings.

    See Also
    --------
    OnlineKDEClassifier : One such density for each class.
    sklearn.neighbors.KernelDensity : Keeps all samples, with a bandwidth to be given.
    sklearn.mixture.GaussianMixture : A given number of components, in several passes.
    skokde.plot.DensityDisplay : Pictures, by ``DensityDisplay.from_estimator(density)``.

    Notes
    -----
    All computation is in float64. Until the model holds 30 components nothing is compressed and
    the density is a kernel density estimate of all samples. When to compress depends on the stream
    alone, so that the fitted model is the same, bit for bit, however the stream is cut into calls.

    The model's weighted mean and covariance are those of the stream. A feature that is constant
    has no spread of its own; a tenth of the constant's size stands for it, or 0.1 if it is zero. In
    a direction in which the data do not spread (an eigenvalue of their correlation matrix below
    1e-9 of the largest) 1 % of the average eigenvalue stands for theirs (Section 3.1 of [1]_). If
    there are such features when the 30th sample has been learned, a `DegenerateDataWarning` names
    them.

    The covariance from which bandwidths are made leaves outliers out: components more than 20 times
    as far from the median as nine tenths of the samples, in units of the features' ranges between
    their 10 % quantiles. One wrong value of 1e12 would else make kernels so wide that all other
    samples look alike. Outliers stay in the model, and are compressed apart from the others.

    References
    ----------
    .. [1] J. Ferreira, D. Martins de Matos, R. Ribeiro (2016). Fast and Extensible Online
       Multivariate Kernel Density Estimation. arXiv:1606.02608.
    .. [2] M. Kristan, A. Leonardis, D. Skocaj (2011). Multivariate online kernel density estimation
       with Gaussian kernels. Pattern Recognition 44, 2630-2642.
    .. [3] M. West (1993). Approximating posterior distributions by mixtures. Journal of the Royal
       Statistical Society B 55, 409-422.

    Examples
    --------
    >>> import numpy as np
    >>> from skokde import OnlineKDEDensity
    >>> rng = np.random.default_rng(0)
    >>> density = OnlineKDEDensity()
    >>> for _ in range(20):
    ...     block = np.concatenate([rng.normal(-2, 1, (50, 1)), rng.normal(2, 1, (50, 1))])
    ...     density = density.partial_fit(block)
    >>> density.score_samples([[0.0], [2.0]]).round(1)
    array([-2.6, -1.7])
    """

    _learned = ("_state", "_n_samples_seen", "_waiting")
    _takes_missing_values = True

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Forget what was learned and stream the rows of X in order, or shuffled if asked to.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is missing at random. An incomplete row is learned with the values of a sample that
            is like it in what is known, drawn by the model so far. Rows without any value are left
            out; the first ones wait until each feature has been seen, at most 30 of them.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts: a whole number is as many repetitions of the row (of a
            complete one; each repetition of an incomplete row is completed anew), zero leaves it
            out.

        Returns
        -------
        self : OnlineKDEDensity

        Raises
        ------
        ValueError
            For infinite, masked or huge values, rows without any value alone, sparse input,
            negative or only zero weights, or a parameter out of its range. The estimator is then as
            it was.
        TypeError
            For a parameter of the wrong type.

        Warns
        -----
        DegenerateDataWarning
            If there are ``corrected_features_`` after 30 samples or more, or the rule that
            ``bandwidth`` names finds no scale.
        """
        with unchanged_on_error(self), one_blas_thread():
            X = check_rows(self, X, reset=True)
            weights = check_weights(sample_weight, len(X), some_positive=True)
            X, weights = self._in_order(X, weights)
            self._forget()
            self._learn_and_warn(X, weights, is_all=True)
            check_is_learned(self)
            return self

    def partial_fit(
        self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Go on learning with the rows of X, in order.

        The model depends on the stream alone, not on the calls it is cut into. Parameters that
        were changed since the last call take effect, but for ``covariance_type``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One row or a million; NaN is missing, as in :meth:`fit`.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`fit`; all may be zero here.

        Returns
        -------
        self : OnlineKDEDensity

        Raises
        ------
        ValueError
            As in :meth:`fit`, for another number of features than before or other names, and where
            ``covariance_type`` has been changed since the model was fitted.
        TypeError
            For a parameter of the wrong type.

        Warns
        -----
        DegenerateDataWarning
            As in :meth:`fit`, in the call that brings the 30th sample.
        """
        with unchanged_on_error(self), one_blas_thread():
            first = not hasattr(self, "n_features_in_")
            X = check_rows(self, X, reset=first)
            weights = check_weights(sample_weight, len(X))
            self._learn_and_warn(X, weights)
            return self

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Log-densities of rows.

        A row that has been learned may have a kernel of its own, and so a higher density than
        others like it. To tell which of the learned rows are unusual, use
        `OnlineKDEOutlierDetector`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is missing: the density is that of what is known of the row, exactly, and zero is
            the logarithm of the density of a row without any value. Log-densities of rows that lack
            other features have other units.

        Returns
        -------
        ndarray of shape (n_samples,)
            In nats, float64. Finite but for rows so far out that the squared distance overflows,
            which have -inf.

        Raises
        ------
        NotFittedError
            Before the first row.
        """
        self._check_is_fitted()
        return self._log_densities(check_rows(self, X, reset=False))

    def _log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities of validated rows."""
        return self._scored(X, KDE.log_density)

    def _log_densities_of_outputs(self, X: np.ndarray) -> np.ndarray:
        """Log-densities of the outputs of validated rows, given the features before them."""
        n, count = self._n_outputs, self._mixture.counts.sum()
        return self._scored(X, lambda kde, rows: log_densities_of_outputs(kde, rows, n, count))

    def _scored(
        self, X: np.ndarray, function: Callable[[KDE, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """What a function of a KDE and of rows gives, (n,), in threads and for close rows."""
        with one_blas_thread():
            settings, out = self._settings(), np.empty(len(X))
            kde = self._kde(settings)

            def score(part: np.ndarray) -> None:
                out[part] = function(kde, X[part])

            n_terms = settings.n_experts * self._mixture.n_components
            self._in_threads(score, in_parts(in_boxes(X, n_terms)))
            return out

    def _log_conditionals(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, d) of each feature of validated rows given all others."""
        n, d = X.shape
        if MARGINALS_PAY * n < d * d:
            with one_blas_thread():
                return log_conditionals(self._kde(self._settings()), X, self._in_threads)
        whole, out = self._log_densities(X), np.empty_like(X)
        for j in range(d):
            others = X.copy()
            others[:, j] = np.nan
            with np.errstate(invalid="ignore"):
                out[:, j] = whole - self._log_densities(others)
        return np.where(np.isnan(out), -np.inf, out)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean log-density of rows, in nats; higher is better.

        Being a mean, it compares folds of different sizes, unlike the sum that
        :meth:`sklearn.neighbors.KernelDensity.score` returns.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : None
            Ignored.

        Returns
        -------
        float
        """
        return float(np.mean(self.score_samples(X)))

    def distribution(self, dimensions: Dimensions | None = None) -> GaussianMixtureDistribution:
        """The mixture that is scored: the sample model convolved with H (Eq. 3).

        Where anything is predicted it has components once for each width and shape of the kernel:
        those of the model, of groups of them at each threshold of some weight, and of each short
        memory; besides some Gaussians with the covariance of the whole and multiples of it. Each
        has a full covariance, unless ``covariance_type`` has no correlations: of hundreds of
        features ask for some.

        Parameters
        ----------
        dimensions : int, str or sequence of them, default=None
            Features, by number or name, in the order in which they are wanted; by default all. The
            marginal is made without the covariances of the others.

        Returns
        -------
        GaussianMixtureDistribution
            Frozen: it does not follow what is learned later. Its features have the names that the
            estimator was fitted with.

        Raises
        ------
        NotFittedError
            Before the first row.
        ValueError, TypeError
            For features that are not there, or are there twice.

        Examples
        --------
        >>> from skokde import OnlineKDEDensity
        >>> density = OnlineKDEDensity(bandwidth=[4.0, 1.0]).fit([[0.0, 0.0], [2.0, 3.0]])
        >>> distribution = density.distribution()
        >>> distribution.weights
        array([0.5, 0.5])
        >>> distribution.covariances[0]
        array([[4., 0.],
               [0., 1.]])
        >>> distribution.conditional(0, 2.0).mean.round(3)  # of the second feature
        array([1.867])
        """
        self._check_is_fitted()
        names = getattr(self, "feature_names_in_", None)
        return self._distribution(self._settings(), names, dimensions)

    def _distribution(
        self, settings: Settings, names: np.ndarray | None, dimensions: Dimensions | None
    ) -> GaussianMixtureDistribution:
        """The same under some settings, made once."""
        numbers = None
        if dimensions is not None:
            numbers = numbers_of(dimensions, self._mixture.n_features, names)

        def make() -> GaussianMixtureDistribution:
            with one_blas_thread():
                kde, chosen = self._kde(settings), names
                if numbers is not None:
                    kde = kde.marginal(np.array(numbers))
                    chosen = None if names is None else names[numbers]
                return GaussianMixtureDistribution(*kde.gaussians(), chosen)

        key = settings.key, settings.shrinkage_target, numbers
        return self._snapshot.get("distribution", key, make)

    def _conditional(
        self, features: np.ndarray, rows: np.ndarray, others: np.ndarray, lasts: bool = False
    ) -> GaussianMixtureFamily:
        """What `distribution().conditional` gives, of the Gaussians that matter to the rows.

        Parameters
        ----------
        features, others : arrays of intp
            Features that are known, and those that are asked for.
        rows : (n, n_known) array
        lasts : bool, default=False
            Of all Gaussians; what does not depend on the rows is kept for the next ones.
        """
        kde = self._kde(self._settings())
        kernel_numbers = dict(zip(map(id, kde.families), kde.kernel_numbers, strict=True))
        power, log_totals = 1.0, None
        if self._n_outputs:
            power = power_of_features(len(features), self._mixture.counts.sum())
            log_totals = log(kde.by_kernel().totals_of_groups)
        if not lasts:
            kde = kde.that_matter(features, rows, np.log(NEGLIGIBLE) / power)
        conditioners, log_factors, groups = [], [], []
        for family, weights in zip(kde.families, kde.weights, strict=True):
            used, numbers = np.argwhere(weights[0]).T, kernel_numbers[id(family)]
            asked = family, used, features, others, lasts
            if lasts:
                # The value holds the family: as long as it is the same object it has not changed.
                _, made = self._snapshot.lasting(
                    "conditioners",
                    (id(family), used, features, others),
                    lambda asked=asked: (asked[0], conditioner_of(*asked)),
                    n_kept=MOST_CONDITIONERS,
                )
            else:
                made = conditioner_of(*asked)
            conditioner, expert, log_total = made
            conditioners.append(conditioner)
            log_factors.append(np.log(weights[0][tuple(used)])[expert] + log_total)
            groups.append(numbers[used[1]][expert])
        tempering = None
        if log_totals is not None:
            tempering = Tempering(np.concatenate(groups), log_totals, power)
        return conditioned(conditioners, rows, np.concatenate(log_factors)[None], tempering)

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> np.ndarray:
        """Draw rows from the density.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Independent rows, in no order.

        Raises
        ------
        NotFittedError
            Before the first row.

        Examples
        --------
        >>> from skokde import OnlineKDEDensity
        >>> density = OnlineKDEDensity().fit([[0.0, 0.0], [2.0, 3.0], [1.0, 1.0]])
        >>> density.sample(5, random_state=0).shape
        (5, 2)
        """
        self._check_is_fitted()
        n = check_n_samples(self, n_samples)
        return self._draws(n, check_random_state(random_state), self._settings())

    def _draws(self, n: int, rng: np.random.RandomState, settings: Settings) -> np.ndarray:
        """Rows (n, d) from the density under some settings."""
        with one_blas_thread():
            return self._kde(settings).draws(n, rng)

    @property
    def weights_(self) -> np.ndarray:
        """Weights of the sample model's components."""
        counts = self._fitted("weights_").counts
        return counts / counts.sum()

    @property
    def means_(self) -> np.ndarray:
        """Means of the sample model's components."""
        return self._fitted("means_").means.copy()

    @property
    def covariances_(self) -> np.ndarray:
        """Covariances of the sample model, without the bandwidth."""
        return self._fitted("covariances_").all_covariances()

    @property
    def n_components_(self) -> int:
        """Number of components held."""
        return self._fitted("n_components_").n_components

    @property
    def bandwidth_(self) -> np.ndarray:
        """The covariance H of the kernel, in data units, or the average one."""
        self._fitted("bandwidth_")
        return average_bandwidth(self._state, self._settings(), self._references()).copy()

    @property
    def bandwidth_scale_(self) -> float | None:
        """The scale beta of the kernel, where it has one."""
        self._fitted("bandwidth_scale_")
        settings = self._settings()
        return settings.bandwidth.reported_scale(self._kernel_frame(settings))

    @property
    def expert_weights_(self) -> dict[str, np.ndarray]:
        """Weights of all that is tried."""
        self._fitted("expert_weights_")
        settings = self._settings()
        with one_blas_thread():
            return weights_by_kind(self._state, settings)

    @property
    def experts_(self) -> dict[str, list]:
        """All that is tried."""
        self._fitted("experts_")
        experts = experts_by_kind(self._state, self._settings())
        return experts | {"width": experts["width"] or [self.bandwidth]}

    @property
    def outliers_(self) -> np.ndarray:
        """Components that the bandwidth does not go by."""
        mixture = self._fitted("outliers_")
        if not self._settings().bandwidth.follows_data:
            return np.zeros(mixture.n_components, dtype=bool)
        return ~inliers(mixture)

    @property
    def corrected_features_(self) -> np.ndarray:
        """Features of which the kernel's spread is not the data's."""
        mixture = self._fitted("corrected_features_")
        return self._corrected(np.arange(mixture.n_features))

    def _corrected(self, features: np.ndarray) -> np.ndarray:
        """The same of some of the features, by their numbers, without regard to the others."""
        settings = self._settings()
        if not settings.bandwidth.follows_data:
            return np.zeros(len(features), dtype=bool)
        _, mean, covariance = self._inlier_moments()
        structure = settings.structure
        marginal = structure.marginal(covariance, features)
        return corrected_features(mean[features], marginal, structure)

    @property
    def n_samples_seen_(self) -> float:
        """Sum of the weights of all rows seen."""
        self._fitted("n_samples_seen_")
        return self._n_samples_seen

    def _summary_lines(self) -> list[str]:
        return [density_line(self, of=f" of {counted(self.n_features_in_, 'feature')}")]

    def _fitted(self, attribute: str) -> Mixture:
        if not self.__sklearn_is_fitted__():
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {attribute!r} before it is fitted"
            )
        return self._mixture

    @property
    def _mixture(self) -> Mixture:
        return self._state.mixture

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state") and self._mixture.n_components > 0

    def _learn_and_warn(self, X: np.ndarray, weights: np.ndarray, is_all: bool = False) -> None:
        seen_before = getattr(self, "_n_samples_seen", 0.0)
        settings = check_settings(self, X.shape[1])
        self._check_n_jobs()
        check_values(self, X)
        for part in self._parts(len(X), lambda: self._mixture.n_components):
            self._learn(X[part], weights[part], settings)
        if is_all and self._waiting is not None:
            self._start(settings)
        self._warn_if_due(seen_before, settings, self)

    def _warn_if_due(
        self, seen_before: float, settings: Settings, estimator: BaseOnlineKDE
    ) -> None:
        """Warn in the name of an estimator, whose features are the first ones of the density."""
        # Once, and not while every stream is degenerate.
        if seen_before < INITIAL_LIMIT <= self._n_samples_seen:
            corrected = self._corrected(np.arange(estimator.n_features_in_))
            if corrected.any():
                warn_of_corrections(estimator, corrected)
            if settings.bandwidth.fell_back(self._kernel_frame(settings)):
                warn_of_fall_back(estimator)

    def _learn(self, X: np.ndarray, weights: np.ndarray, settings: Settings) -> None:
        """Learn from validated rows; what is fitted is replaced, not written to."""
        if not hasattr(self, "_state"):
            self._state = empty_state(X.shape[1], settings)
            self._n_samples_seen = 0.0
            self._waiting = None
            self._snapshot = Snapshot()
        self._check_structure(settings)
        counted, missing = weights > 0.0, np.isnan(X)
        is_complete = not missing.any()
        if not is_complete:
            counted &= ~missing.all(axis=1)
        if not counted.all():
            X, weights, missing = X[counted], weights[counted], missing[counted]
        if self._waiting is None and is_complete:
            self._learn_complete(X, weights, settings)
            return
        # Where runs of complete rows end.
        stops, done = np.append(np.flatnonzero(missing.any(axis=1)), len(X)), 0
        while done < len(X):
            stop, part = stops[np.searchsorted(stops, done)], slice(done, done + 1)
            if not self._mixture.n_components:
                self._wait(X[part], weights[part], settings)
            elif done == stop:
                self._learn_incomplete(X[done], weights[part], settings)
            else:
                part = slice(done, stop)
                self._learn_complete(X[part], weights[part], settings)
            done = part.stop

    def _wait(self, X: np.ndarray, weights: np.ndarray, settings: Settings) -> None:
        """Hold one of the first rows back until all of them can be learned."""
        waiting = self._waiting or Waiting.none(X.shape[1])
        self._waiting = waiting.followed_by(X, weights)
        if self._waiting.is_enough:
            self._start(settings)

    def _start(self, settings: Settings) -> None:
        """Learn the rows that have waited for others with what they lack."""
        waiting, self._waiting = self._waiting, None
        self._learn_complete(waiting.filled(), waiting.weights, settings)

    def _learn_incomplete(self, row: np.ndarray, weight: np.ndarray, settings: Settings) -> None:
        """Learn a row with the values of a component that is like it for those that are missing."""
        # A generator of its own for each row: the draw depends on the stream alone.
        rng = np.random.default_rng(int(np.float64(self._n_samples_seen).view(np.uint64)))
        bandwidth = average_bandwidth(self._state, settings, self._references())
        row = complete(row, self._mixture, bandwidth, rng)
        self._learn_complete(row[None], weight, settings)

    def _learn_complete(self, X: np.ndarray, weights: np.ndarray, settings: Settings) -> None:
        """Learn rows of which no value is missing."""
        before = self._state
        self._state = learn(before, X, weights, settings, self._references())
        # One by one, so that the sum does not depend on the blocks.
        self._n_samples_seen = reduce(add, weights.tolist(), self._n_samples_seen)
        # After a compression nothing that was made before is of use, and it is most of the memory.
        compressed = self._state.partitions is not before.partitions
        self._snapshot = Snapshot(None if compressed else self._snapshot)

    def _merge(self, models: Sequence[OnlineKDEDensity]) -> None:
        settings = check_settings(self, self.n_features_in_)
        self._check_n_jobs()
        # One that had enough samples has warned.
        seen_before = max(model._n_samples_seen for model in models)
        self._merge_states(models, settings)
        self._warn_if_due(seen_before, settings, self)

    def _merge_states(self, models: Sequence[OnlineKDEDensity], settings: Settings) -> State | None:
        """Take in what densities have learned; what is fitted is replaced, not written to.

        Returns
        -------
        State or None
            Before the last samples were compressed, see `skokde._engine.merging.Merged`; None if
            none of the densities has learned any.
        """
        for model in models:
            model._check_same_structure(settings)
        begun = [model for model in models if hasattr(model, "_state")]
        learned = [model for model in begun if model.__sklearn_is_fitted__()]
        waiting = [model._waiting for model in begun if model._waiting is not None]
        seen = [model._n_samples_seen for model in learned]
        state, predicted = empty_state(self.n_features_in_, settings), None
        if learned:
            states = [model._state for model in learned]
            state, predicted = merged(states, fades_of(seen, settings), settings)
        self._state, self._n_samples_seen, self._waiting = state, reduce(add, seen, 0.0), None
        self._snapshot = Snapshot()
        for rows, weights in waiting:
            self._learn(rows, weights, settings)
        return predicted

    def _drop_rows(self, min_samples: int) -> None:
        count = self._mixture.counts.sum()
        if count < min_samples:
            raise ValueError(
                f"There are {count:g} samples only: a component would tell of fewer than "
                f"min_samples={min_samples}."
            )
        self._state = microaggregated(self._state, self._settings(), float(min_samples))
        self._waiting = None

    def _restore(self) -> None:
        self._state = unpacked(State, self._state)
        check_state(self._state, self.n_features_in_)
        expect_number(self._n_samples_seen, "n_samples_seen_")
        self._waiting = unpacked(Waiting, self._waiting)
        check_waiting(self._waiting, self.n_features_in_)

    def _copied(self, parameters: dict[str, Any]) -> OnlineKDEDensity:
        """Another density of the same state, under some other parameters.

        What has been made for scoring is shared; what the other one learns changes nothing here.
        """
        density = OnlineKDEDensity()
        vars(density).update(vars(self) | parameters)
        return density

    def _check_same_structure(self, settings: Settings) -> None:
        if hasattr(self, "_state"):
            learned = self._settings().structure.name
            if learned != settings.structure.name:
                raise ValueError(
                    f"Models can't be merged with covariance_type={settings.structure.name!r} that "
                    f"were learned with {learned!r}."
                )

    def _check_structure(self, settings: Settings) -> None:
        structure = settings.structure
        if hasattr(self, "_state") and (
            self._layout != structure.layout
            or self._mixture.covariances.shape[1:] != structure.shape(self._mixture.n_features)
        ):
            raise ValueError(
                f"covariance_type can't change from {self._layout!r} to "
                f"{structure.name!r} in mid-stream: call fit, which starts anew."
            )

    @property
    def _layout(self) -> str:
        return structure_of(self._mixture.covariances).layout

    def _inlier_moments(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Count, mean and covariance of the sample model without outliers."""
        return self._snapshot.get("moments", None, lambda: inlier_moments(self._mixture))

    def _discriminant_moments(self, settings: Settings) -> tuple[Moments, ...]:
        """Moments that tell this class from others; few of the rows to come will change them."""
        return self._snapshot.get(
            "discriminant moments",
            settings.key,
            lambda: self._discriminant_moments_of(self._state, settings),
        )

    def _discriminant_moments_of(self, state: State, settings: Settings) -> tuple[Moments, ...]:
        """Those of a state, this one's or one before it."""
        return discriminant_moments(
            state, settings, self._reference_moments, self._predicted_moments
        )

    def _reference_moments(self, state: State, settings: Settings) -> Moments:
        part = reference_part(state, settings)
        # Where the covariances are the same object they have not changed; the value holds it.
        return self._snapshot.lasting(
            "reference moments",
            (id(part.covariances), part.counts, part.means),
            lambda: (part, inlier_moments(part)),
        )[1]

    def _predicted_moments(self, recent: Recent, settings: Settings) -> list[Moments]:
        """What few of the rows to come will change of those of short memories."""
        return self._snapshot.lasting(
            "predicted moments",
            (settings.memories, *held(recent)),
            lambda: predicted_moments(recent, settings),
        )

    def _settings(self) -> Settings:
        """What the parameters mean as they are now."""
        return check_settings(self, self._mixture.n_features, self._layout)

    def _kernel_frame(self, settings: Settings) -> KernelFrame:
        """Kernel coordinates, for whatever target covariances are shrunk to."""
        return self._snapshot.get(
            "kernel frame",
            (settings.bandwidth.key, settings.structure.name),
            lambda: settings.bandwidth.kernel_frame(self._mixture, settings.structure),
        )

    def _kde(self, settings: Settings) -> KDE:
        """What is scored."""
        target = settings.shrinkage_target
        return self._snapshot.get(
            ("kde", target is None),
            (settings.key, target),
            lambda: build_kde(self._state, settings, self._references()),
        )

    def _class_density(
        self, settings: Settings, chosen: tuple[bool, ...] | None = None
    ) -> ClassDensity:
        """What is pooled of it, or some of that."""
        return self._snapshot.get(
            ("class density", chosen is None),
            (settings.key, settings.shrinkage_target, settings.transformation, chosen),
            lambda: self._class_density_of(self._state, settings, chosen),
        )

    def _class_density_of(
        self, state: State, settings: Settings, chosen: tuple[bool, ...] | None = None
    ) -> ClassDensity:
        """That of a state, this one's or one before it."""
        return build_class_density(state, settings, self._references(), chosen)

    @contextmanager
    def _handing_on(self, later: OnlineKDEDensity, settings: Settings) -> Iterator[None]:
        """What predicts rows now is there for a later density, which has learned them."""
        # Where windows are short the next one needs about the same. After a compression it does
        # not, and between long ones it would take memory for nothing.
        if settings.memories and later._state.partitions is self._state.partitions:
            with self._snapshot.handing_on(later._snapshot):
                yield
        else:
            yield

    def _references(self) -> References:
        """What few of the rows to come will change of what is scored."""
        return References(
            self._reference_kde, self._reference_memories, self._fading_kde, self._up_to_date
        )

    def _up_to_date(self, state: State, settings: Settings) -> State:
        """With what samples tell before the first compression, which takes long to find."""
        if state.n_compressed:
            return state
        # The value holds the mixture, which is known by its identity.
        return self._snapshot.get(
            "up to date",
            (settings.key, settings.shrinkage_target, id(state.mixture), state.expert_counts),
            lambda: (state.mixture, up_to_date(state, settings)),
        )[1]

    def _reference_kde(self, state: State, settings: Settings, groups: Groups = None) -> KDE:
        """What most of the rows to come will change nothing of, of some groups or of all."""
        whole = self._reference_kde_of_all(state, settings)
        if groups is None or all(groups):
            return whole
        # The value holds the whole: as long as it is the same object it has not changed.
        return self._snapshot.lasting(
            ("reference of groups", settings.transformed),
            (id(whole), groups),
            lambda: (whole, whole.of_groups(groups)),
            n_kept=n_references(settings),
        )[1]

    def _reference_kde_of_all(self, state: State, settings: Settings) -> KDE:
        part, target = reference_part(state, settings), settings.shrinkage_target
        key = (
            settings.key,
            id(part.covariances),
            part.counts,
            part.means,
            state.partitions,
            state.expert_counts,
            target,
        )

        def make() -> tuple[Mixture, KDE]:
            # Finding a scale is expensive, and it is the same for any target.
            known = settings.bandwidth.n_widths == 1 and state.mixture is self._mixture
            frame = self._kernel_frame(settings) if known else None
            return part, reference_kde(state, settings, kernel_frame=frame)

        # Where the covariances are the same object they have not changed; the value holds it.
        name = "reference", target is None, settings.transformed, len(settings.shapes)
        return self._snapshot.lasting(name, key, make, n_kept=n_references(settings))[1]

    def _reference_memories(self, state: State, settings: Settings, chosen: Memories = None) -> KDE:
        """What most of the rows to come will change nothing of, of some memories or of all."""
        whole = self._reference_memories_of_all(state, settings)
        if chosen is None or all(chosen):
            return whole
        return self._snapshot.lasting(
            "reference of memories",
            (id(whole), chosen),
            lambda: (whole, whole.of_groups(chosen)),
            n_kept=n_references(settings),
        )[1]

    def _reference_memories_of_all(self, state: State, settings: Settings) -> KDE:
        """What rows change of the short memories only when some of them have been predicted."""
        recent, target = state.recent, settings.shrinkage_target
        key = (
            settings.key,
            *held(recent),
            recent.credits,
            target,
            # Without a target the covariances of all samples stand for it.
            None if target is not None else (id(state.mixture.covariances), recent.counts_before),
        )
        # The value holds the covariances, which are known by their identity.
        return self._snapshot.lasting(
            ("memories", target is None),
            key,
            lambda: (state.mixture.covariances, reference_memories(state, settings)),
            n_kept=n_references(settings),
        )[1]

    def _fading_kde(self, state: State, settings: Settings) -> KDE | None:
        """The density of the model that fades, which learns rows when they have been predicted."""
        # The value holds the model, which is known by its identity.
        fading = state.recent.fading
        return self._snapshot.lasting(
            "fading", (settings.key, id(fading)), lambda: (fading, fading_kde(state, settings))
        )[1]


def n_references(settings: Settings) -> int:
    """How many references of a kind are kept.

    The one before is asked for again where rows are predicted later than they came.
    """
    return 2 if settings.memories else 1


# What estimators hand on that hold such densities; the order of rows, threads and reports are
# theirs.
DENSITY_PARAMETERS = tuple(
    name
    for name in OnlineKDEDensity().get_params()
    if name not in ("shuffle", "random_state", "n_jobs", "verbose")
)
