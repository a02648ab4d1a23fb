"""The classifier: one density a class, and priors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, clone
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from skokde._base import BaseOnlineKDE, Snapshot, features_of, one_blas_thread, unchanged_on_error
from skokde._calibration import Calibration, Mapper
from skokde._class_densities import ClassDensities
from skokde._class_scorer import ClassScorer
from skokde._density import DENSITY_PARAMETERS, OnlineKDEDensity
from skokde._engine._append import age_class_counts
from skokde._engine.class_memory import ClassMemory
from skokde._engine.kde import in_one_shape, log
from skokde._engine.merging import fades_of
from skokde._engine.neighbors import N_VOTE_WIDTHS
from skokde._engine.pooling import FARTHEST_CLASS, normalized, relative
from skokde._engine.shrinkage import shrink_shares
from skokde._engine.state import Settings, State
from skokde._engine.whitening import corrected_features
from skokde._merging import CalibratedClasses, merged_calibration, with_common_shape
from skokde._persistence import (
    check_calibration,
    check_class_memory,
    expect,
    expect_array,
    unpacked,
)
from skokde._ranks import LOWEST, rank_p_values
from skokde._replay import class_scores
from skokde._summary import counted, density_line
from skokde._validation import (
    TINY,
    check_flag,
    check_is_learned,
    check_n_samples,
    check_rows,
    check_rows_and_labels,
    check_settings,
    check_values,
    check_weights,
)
from skokde.distribution import GaussianMixtureDistribution
from skokde.distribution._gaussians import Dimensions

# In nats: a class without a sample is as impossible as one so far below the best one.
FARTHEST = 1e300


class OnlineKDEClassifier(ClassifierMixin, BaseOnlineKDE):
    """Bayes classifier of a stream, with an online kernel density estimate for each class.

    Prior times density gives the probabilities of the classes (Section 6 of [1]_), calibrated on
    the stream itself unless asked not to.

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
        These seven are as those of :class:`OnlineKDEDensity`. ``max_components`` is for each class.
        With ``compression_threshold="predictive"`` a class gives up no threshold before it has
        4,000 samples, and single samples do not count among the fewer components that may be left
        of many features: they hold no covariance. All components are 1,600 at most.
        With ``forgetting_factor="predictive"`` the priors of the classes and the calibration follow
        the stream, too: class counts that forget by factors of 1, 0.999 and 0.99 are weighted by
        how well they predict the labels, and the estimates of the newest samples go into the pool
        as densities p_j of their own, with a q for each of the two longer ones. Where these tell
        far more of the classes than all samples do, the densities of classes forget, up to 0.001
        for each sample.
    calibrate : bool, default=True
        Whether `predict_proba`, and with it `predict`, go beyond Bayes' rule: log P(c | x) is then
        log P(c) + b_c + sum_j t_j log p_j(x | c) + s log q(x | c), but for a constant, where the
        p_j are the density estimate or parts of it (see the notes), and q is a t distribution about
        the mean of the class with the average covariance within the classes. P(c) is
        ``class_prior_``, shrunk to equal shares as far as chance may be why it differs from them
        [3]_, unless `priors` are given. Which t_j, s >= 0 and b_c have the least log-loss is
        learned from rows that are predicted before they are learned, in which each class counts as
        it does in ``class_count_``: from 10 rows on for each of three classes, and 5 for each
        further one, but 20 at least. Until then the t_j are less than by Bayes' rule, the more so
        the fewer samples there are. A share of rows, found by prediction, is taken to have classes
        by P(c) alone. False: plain Bayes' rule, as in the paper. Can be set later.
    priors : array-like of shape (n_classes,), default=None
        Prior probabilities in the order of ``classes_``, of sum one. They are divided by their sum
        over the classes of which a sample has been seen. None: proportional to ``class_count_``.
    n_jobs : int, default=None
        Threads, over classes, and over rows that are scored; the result does not depend on it. None
        means 1, unless in a :func:`joblib.parallel_config` context; -1 means all cores.
    verbose : int, default=0
        Whether calls that learn for more than half a second print how far they are, as those of
        :class:`OnlineKDEDensity` do; components are those of all classes.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    class_count_ : ndarray of shape (n_classes,)
        Weighted number of rows of each class. With forgetting, all counts age with every row of the
        stream, so that a class that stops coming loses weight, while its density ages with its
        own rows only.
    class_prior_ : ndarray of shape (n_classes,)
        What the densities are weighted with, of sum one.
    estimators_ : list of OnlineKDEDensity
        One for each class, in the order of ``classes_``; not fitted while its class has no sample.
    n_components_ : int
        Components of all classes.
    corrected_features_ : ndarray of shape (n_features,)
        True for features that spread within no class, nor between them, alone or, with full
        covariances, along with others: the kernels' spread is then put in, see
        :class:`OnlineKDEDensity`. It is the same for all classes, so that their probabilities
        hardly depend on it, and there is no warning.
    calibration_weights_ : dict of str to ndarray or float
        What the calibration has learned. "transformed" and "density" are the exponents t_j, one for
        each shape and, in columns, for narrow kernels and for wide ones, in transformed coordinates
        (see the notes) and in those of the data; "memory" has those of short memories;
        "discriminant" the s of each q, "scale" that of how widely the classes spread, "neighbors"
        those of the nearest samples' votes, by narrow kernels and, in another column, by wide ones:
        by distances of features and by whitened ones, of those of short memories, if there are any,
        and of a sample of rows, as far as they vote; "histograms" has those of what single features
        tell, by a short memory and by all samples, if they are asked; "offset" the b_c;
        "contamination" is the share of rows of which nothing tells. Where the memory is found by
        prediction all of these are averages of two pools, and "steady" is the share of the one that
        has no short memories, from 0 to 1; "forgotten" is the share of older samples that densities
        forget for each new one, up to 0.001, the more the more the other pool is ahead. Else these
        two are 0.
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all of them are strings.

    See Also
    --------
    OnlineKDEDensity : The density of one class.
    sklearn.naive_bayes.GaussianNB : One Gaussian for each class and feature.
    skokde.plot.DensityDisplay : Pictures, by ``DensityDisplay.from_estimator(classifier)``.

    Notes
    -----
    The kernels of a class have the shape of its covariance, which few samples tell little of: a
    feature that is constant in them has no spread, a single sample has none at all. So the
    covariance is taken under a prior that is worth as many observations as there are features, the
    average covariance within the classes. This concerns scoring here only, not what is stored, nor
    what ``estimators_`` return, nor a bandwidth that is given as an array.

    With ``bandwidth="okde"``, ``compression_threshold=0.1`` and ``calibrate=False`` it is the
    classifier of the paper.

    Densities are often far from the truth where samples are few, and features that repeat each
    other count more than once: what Bayes' rule makes of them is far too sure. The calibration is a
    logarithmic pool of the densities with a linear discriminant [2]_, and with one by how widely
    the classes spread about their means, of one scale each. Where all is predictive the
    density estimate of a class goes into it in parts: what is likely under narrow kernels and under
    wide ones, of each shape, tells classes apart to different degrees. There are more of them of
    the same components, but for covariances of low rank, in the coordinates
    arsinh((x - center) / scale), in which Johnson's distributions with the same quantiles as all
    data are normal, feature by feature [4]_: kernels that are narrow in the bulk of a feature are
    wide in its tail there. So do votes of the samples near to a row [5]_, by kernels that all
    classes share, narrow ones and wide ones: those are better where features are many or classes
    hardly overlap, these where they do. They vote by two distances, unless covariances are without
    correlations. Once distances are those of features, each in its standard deviation within the
    classes, and weighted so that votes predict best (neighborhood components analysis [7]_, of one
    weight for each feature); once the covariance within the classes is their unit. Both count for
    more along features, or directions, in which the means of the classes differ [6]_. And so does
    naive Bayes [8]_: how many samples of a class have values of a feature in the bin of the row's,
    feature by feature, in bins that are halved again and again (Polya trees [9]_). This tells of
    discrete features, and of those that have one value often.

    References
    ----------
    .. [1] J. Ferreira, D. Martins de Matos, R. Ribeiro (2016). Fast and Extensible Online
       Multivariate Kernel Density Estimation. arXiv:1606.02608.
    .. [2] C. Genest, J. V. Zidek (1986). Combining probability distributions: a critique and an
       annotated bibliography. Statistical Science 1, 114-135.
    .. [3] J. Hausser, K. Strimmer (2009). Entropy inference and the James-Stein estimator.
       Journal of Machine Learning Research 10, 1469-1484.
    .. [4] J. F. Slifker, S. S. Shapiro (1980). The Johnson System: Selection and Parameter
       Estimation. Technometrics 22, 239-246.
    .. [5] T. Cover, P. Hart (1967). Nearest neighbor pattern classification. IEEE Transactions on
       Information Theory 13, 21-27.
    .. [6] T. Hastie, R. Tibshirani (1996). Discriminant adaptive nearest neighbor classification.
       IEEE Transactions on Pattern Analysis and Machine Intelligence 18, 607-616.
    .. [7] J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov (2005). Neighbourhood components
       analysis. Advances in Neural Information Processing Systems 17, 513-520.
    .. [8] D. J. Hand, K. Yu (2001). Idiot's Bayes: not so stupid after all? International
       Statistical Review 69, 385-398.
    .. [9] M. Lavine (1992). Some aspects of Polya tree distributions for statistical modelling.
       The Annals of Statistics 20, 1222-1235.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from skokde import OnlineKDEClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> order = np.random.default_rng(2).permutation(len(X))
    >>> train, test = order[:120], order[120:]
    >>> classifier = OnlineKDEClassifier()
    >>> for i in train:
    ...     classifier = classifier.partial_fit(X[[i]], y[[i]], classes=[0, 1, 2])
    >>> round(classifier.score(X[test], y[test]), 2)
    0.98
    """

    _learned = (
        "classes_",
        "class_count_",
        "estimators_",
        "_classes_declared",
        "_calibration",
        "_class_memory",
    )
    _takes_missing_values = True
    _of_classes = True

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
        calibrate: bool = True,
        priors: ArrayLike | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ):
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
        self.calibrate = calibrate
        self.priors = priors

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget what was learned and stream the rows of X in order, or shuffled if asked to.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is missing at random; incomplete rows are learned as by :class:`OnlineKDEDensity`,
            those of each class for themselves.
        y : array-like of shape (n_samples,)
            Class labels, numbers or strings. Later calls of :meth:`partial_fit` may bring these
            classes only.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts: a whole number is as many repetitions of the row, zero leaves
            it out.

        Returns
        -------
        self : OnlineKDEClassifier

        Raises
        ------
        ValueError
            For infinite, masked or huge values, rows without any value alone, sparse input,
            continuous targets, negative or only zero weights, or a parameter out of its range. The
            estimator is then as it was.
        TypeError
            For a parameter of the wrong type.
        """
        with unchanged_on_error(self), one_blas_thread():
            X, y = check_rows_and_labels(self, X, y, reset=True)
            check_classification_targets(y)
            weights = check_weights(sample_weight, len(X), some_positive=True)
            X, y, weights = self._in_order(X, y, weights)
            self._forget()
            self._set_classes(unique_labels(y), declared=True)
            self._learn(X, y, weights)
            self._start_waiting()
            check_is_learned(self)
            return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Go on learning with the rows of X, in order.

        The model depends on the stream alone, not on the calls it is cut into. Parameters that
        were changed since the last call take effect, but for ``covariance_type``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One row or a million; NaN is missing, as in :meth:`fit`.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever come, in the first call; then other labels raise. Without it,
            for streams that can't tell, ``classes_`` grows as labels come.
        sample_weight : array-like of shape (n_samples,), default=None
            As in :meth:`fit`; all may be zero here.

        Returns
        -------
        self : OnlineKDEClassifier

        Raises
        ------
        ValueError
            As in :meth:`fit`, for labels that are not among the classes, other ``classes``, number
            or names of features than before, and where ``covariance_type`` has been changed since
            the model was fitted. The estimator is then as it was.
        TypeError
            For a parameter of the wrong type.
        """
        with unchanged_on_error(self), one_blas_thread():
            first = not hasattr(self, "classes_")
            X, y = check_rows_and_labels(self, X, y, reset=first)
            known = not first and set(self.classes_.tolist()).issuperset(y.tolist())
            if not known:  # it takes longer than all else that a row does
                check_classification_targets(y)
            weights = check_weights(sample_weight, len(X))
            if classes is not None and not (known and _same(classes, self.classes_)):
                classes = unique_labels(column_or_1d(classes))
                if not len(classes):
                    raise ValueError("classes must not be empty: give all labels, or None.")
                if first:
                    self._set_classes(classes, declared=True)
                elif not np.array_equal(classes, self.classes_):
                    raise ValueError(
                        f"classes={classes.tolist()} are not those of the first call of "
                        f"partial_fit, {self.classes_.tolist()}: give the same, or leave them out."
                    )
            elif first:
                self._set_classes(unique_labels(y), declared=False)
            elif not (self._classes_declared or known):
                self._set_classes(unique_labels(self.classes_, y), declared=False)
            self._learn(X, y, weights)
            return self

    def predict_joint_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Logarithm of prior times density, for each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is missing: densities are those of what is known of the row.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            log P(c) + log p(x | c) in nats; -inf for classes without a sample or with zero prior.
            Neither is calibrated.
        """
        X = self._checked(X)
        with one_blas_thread():
            prior = self.class_prior_
            return log(prior) + self._scorer().log_densities(X, self._scored(prior))

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Logarithms of class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            log P(c | x) in nats. Rows so far out that no class has a density there get the prior,
            which is ``class_prior_``, but where it comes from few samples and `calibrate` is True
            is nearer to equal shares.
            Declared classes without a sample share the probability that the next sample is of a
            new class (Good and Turing's estimate, from the number of classes with one sample); it
            is zero if `calibrate` is False or priors are given.
        """
        X = self._checked(X)
        with one_blas_thread():
            out = self._log_proba(X)
        if self.calibrate and self.priors is None and not (seen := self._classes.are_seen()).all():
            share = share_of_unseen(self.class_count_[seen], np.count_nonzero(~seen))
            out[:, seen] += np.log1p(-share)
            out[:, ~seen] = np.log(share / np.count_nonzero(~seen))
        return out

    def _log_proba(self, X: np.ndarray) -> np.ndarray:
        """Logarithms of class probabilities of validated rows."""
        prior = self.class_prior_
        codes = self._scored(prior)
        if not self.calibrate:
            log_prior = log(prior)
            log_densities = self._scorer().log_densities(X, codes)
            joint = log_prior + log_densities
            joint[np.isneginf(log_densities.max(axis=1))] = log_prior
            return normalized(joint)
        pool, log_ratios, nowhere = self._scorer().pooled(X, codes)
        features = np.full_like(log_ratios, -FARTHEST)
        features[..., codes] = relative(log_ratios[..., codes], FARTHEST_CLASS)
        shares = self._shrunk_shares(codes)
        out = pool.log_probabilities(shares, features)
        out[nowhere] = log(shares)
        if self.priors is not None:
            out[:, codes] += np.log(prior[codes] / shares[codes])
            out = normalized(out)
        return out

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is missing: the classes are weighed by what is known of the row, and have their
            priors where nothing is.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Rows of sum one, in the order of ``classes_``.
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels; of equally probable ones, the first in ``classes_``.
        """
        best = np.argmax(self.predict_log_proba(X), axis=1)
        return self.classes_[best]

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Log-densities of rows, whatever their class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            log p(x), the densities of the classes weighted by their priors, in nats.
        """
        return np.logaddexp.reduce(self.predict_joint_log_proba(X), axis=1)

    def outlier_p_values(self, X: ArrayLike) -> np.ndarray:
        """P-values of rows for belonging to any of the known classes.

        Probabilities are of the known classes, and one of them has to win. A low p-value says that
        none of them fits.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows that have not been learned, without missing values.

        Returns
        -------
        ndarray of shape (n_samples,)
            Shares of rows that fitted their own classes no better, before they were learned, than
            these fit the best of all: at most 5 % of the rows of known classes have p-values of
            5 % or less. Of the newer half of 600 rows, or of three windows of the calibration, and
            the row itself: never 0. One, where no row has been predicted yet, as in the first 20 of
            each class, or with one threshold, one kernel, and ``calibrate=False``.

        Raises
        ------
        NotFittedError
            Before the first row.
        ValueError
            For missing values: what is not known of a row can't tell against it, and densities of
            fewer features have other units.

        See Also
        --------
        OnlineKDEOutlierDetector : P-values without classes, also for streams that drift.

        Notes
        -----
        Inductive conformal p-values (Vovk, Gammerman, Shafer 2005, Algorithmic Learning in a Random
        World). How well a row fits into a class is the logarithm of the mean of the densities that
        are pooled. They are conservative, since the best class of a row may be another one than its
        own.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from skokde import OnlineKDEClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> known = y < 2
        >>> classifier = OnlineKDEClassifier(covariance_type="diag").fit(X[known], y[known])
        >>> p = classifier.outlier_p_values(X[y == 7])  # which is neither 0 nor 1
        >>> bool((p <= 0.05).mean() > 0.9)
        True
        """
        X = self._checked(X)
        if np.isnan(X).any():
            raise ValueError(
                "X has missing values, and densities of what is known have other units: fill them "
                "in, as by an OnlineKDEImputer."
            )
        replay = self._calibration.replay
        with one_blas_thread():
            scorer = self._scorer()
            n_densities = scorer.settings.n_densities
            # Other settings than those by which rows were predicted take effect in the next call
            # that learns.
            if replay is None or replay.log_densities.shape[1] != n_densities:
                return np.ones(len(X))
            codes, every = self._scored(self.class_prior_), (True,) * n_densities
            log_densities = scorer.pooled_log_densities(X, codes, every)
            best = np.maximum(class_scores(log_densities).max(axis=1), LOWEST)
            return rank_p_values(best, *replay.newer_half())

    def distribution(
        self, label: Any = None, dimensions: Dimensions | None = None
    ) -> GaussianMixtureDistribution:
        """The mixture of a class as the classifier scores it, or of all classes together.

        Parameters
        ----------
        label : label of a class, default=None
            Of ``classes_``; by default all of them, weighted by ``class_prior_``, which is what
            `score_samples` scores.
        dimensions : int, str or sequence of them, default=None
            Features that are wanted, see :meth:`OnlineKDEDensity.distribution`; by default all.

        Returns
        -------
        GaussianMixtureDistribution
            Frozen, see :meth:`OnlineKDEDensity.distribution`. Priors and densities, as in
            `predict_joint_log_proba`: what calibration makes of them is no mixture.

        Raises
        ------
        NotFittedError
            Before the first row.
        ValueError
            For a label that is not known, or of which there is no sample, and for features that
            are not there, or are there twice.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skokde import OnlineKDEClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = OnlineKDEClassifier().fit(X, y)
        >>> classifier.distribution(0).mean.round(1)
        array([5. , 3.4, 1.5, 0.2])
        >>> classifier.distribution().n_features
        4
        """
        self._check_is_fitted()
        asked = self._scorer().settings, getattr(self, "feature_names_in_", None), dimensions
        if label is not None:
            codes = np.flatnonzero(self.classes_ == label).tolist()
            if not codes or not self._classes.are_seen()[codes[0]]:
                raise ValueError(
                    f"{type(self).__name__}: there is no sample of a class {label!r}, the classes "
                    f"are {self.classes_}."
                )
            return self.estimators_[codes[0]]._distribution(*asked)
        prior = self.class_prior_
        parts = [(prior[c], self.estimators_[c]._distribution(*asked)) for c in self._scored(prior)]
        return GaussianMixtureDistribution(
            np.concatenate([share * part.weights for share, part in parts]),
            np.concatenate([part.means for _, part in parts]),
            in_one_shape([part.covariances for _, part in parts]),
            parts[0][1].feature_names,
        )

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw labelled rows: labels by ``class_prior_``, and rows from the densities.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Independent rows, in no order.
        y : ndarray of shape (n_samples,)
            Their labels.

        Raises
        ------
        NotFittedError
            Before the first row.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skokde import OnlineKDEClassifier
        >>> classifier = OnlineKDEClassifier().fit(*load_iris(return_X_y=True))
        >>> X, y = classifier.sample(100, random_state=0)
        >>> X.shape, y.shape, classifier.score(X, y) > 0.9
        ((100, 4), (100,), True)
        """
        self._check_is_fitted()
        n, rng = check_n_samples(self, n_samples), check_random_state(random_state)
        prior = self.class_prior_
        codes = rng.choice(len(prior), size=n, p=prior)
        X, settings = np.empty((n, self.n_features_in_)), self._scorer().settings
        for code in np.unique(codes):
            rows = codes == code
            X[rows] = self.estimators_[code]._draws(int(rows.sum()), rng, settings)
        return X, self.classes_[codes]

    @property
    def class_prior_(self) -> np.ndarray:
        """Priors that the densities are weighted with."""
        if not hasattr(self, "classes_"):
            name = type(self).__name__
            raise AttributeError(f"{name!r} object has no attribute 'class_prior_' before fitting")
        seen = self._classes.are_seen().astype(float)
        priors = self._check_priors()
        prior = (self._effective_class_count() if priors is None else priors) * seen
        if not prior.any():  # all the weight is on classes without a sample
            prior = seen
        return prior / prior.sum()

    @property
    def n_components_(self) -> int:
        """Components of all classes."""
        if not self.__sklearn_is_fitted__():
            name = type(self).__name__
            raise AttributeError(
                f"{name!r} object has no attribute 'n_components_' before it is fitted"
            )
        return self._n_components()

    @property
    def calibration_weights_(self) -> dict[str, np.ndarray | float]:
        """What the calibration has learned."""
        if not self.__sklearn_is_fitted__():
            name = type(self).__name__
            raise AttributeError(
                f"{name!r} object has no attribute 'calibration_weights_' before it is fitted"
            )
        scorer = self._scorer()
        settings, pool = scorer.settings, scorer.pool()
        steady = self._calibration.adapted(settings).steady
        n_sides, parts = settings.n_sides, np.split(pool.exponents.copy(), settings.ends_of_terms)
        transformed, density, memory, discriminant, scale, neighbors, histograms = parts
        return {
            "transformed": transformed.reshape(-1, n_sides),
            "density": density.reshape(-1, n_sides),
            "memory": memory,
            "discriminant": discriminant,
            "scale": scale,
            "neighbors": neighbors.reshape(-1, N_VOTE_WIDTHS),
            "histograms": histograms,
            "offset": pool.offsets.copy(),
            "contamination": pool.contamination,
            "steady": 0.0 if steady is None else steady.share,
            "forgotten": 0.0 if steady is None else steady.forgotten,
        }

    @property
    def corrected_features_(self) -> np.ndarray:
        """Features of which the kernels' spread is not the data's."""
        seen = self._classes.seen() if hasattr(self, "estimators_") else []
        if not seen:
            name = type(self).__name__
            raise AttributeError(
                f"{name!r} object has no attribute 'corrected_features_' before it is fitted"
            )
        d = self.n_features_in_
        settings = check_settings(self, d, seen[0]._layout)
        if not settings.bandwidth.follows_data:
            return np.zeros(d, dtype=bool)
        counts, means, _ = zip(*(e._inlier_moments() for e in seen), strict=True)
        center = np.average(means, axis=0, weights=counts)
        covariance = self._classes.within_covariance(keeps_noise=True)
        return corrected_features(center, covariance, settings.structure)

    def _summary_lines(self) -> list[str]:
        whole = (
            f"{counted(self._n_samples_seen(), 'sample')} of "
            f"{counted(self.n_features_in_, 'feature')} in "
            f"{counted(self._n_components(), 'component')}, "
            f"{counted(len(self.classes_), 'class', 'classes')}"
        )
        lines = [
            density_line(density) if is_seen else "no sample"
            for density, is_seen in zip(self.estimators_, self._classes.are_seen(), strict=True)
        ]
        labels = self.classes_.tolist()
        return [whole, *(f"class {c!r}: {line}" for c, line in zip(labels, lines, strict=True))]

    def __sklearn_is_fitted__(self) -> bool:
        return any(e.__sklearn_is_fitted__() for e in getattr(self, "estimators_", []))

    def _restore(self) -> None:
        n_classes, d = len(self.classes_), self.n_features_in_
        self._calibration = unpacked(Calibration, self._calibration)
        check_calibration(self._calibration, n_classes, d)
        self._class_memory = unpacked(ClassMemory, self._class_memory)
        check_class_memory(self._class_memory, n_classes)
        expect(n_classes == len(np.unique(self.classes_)), "classes_", "different labels")
        expect_array(self.class_count_, "class_count_", (n_classes,), least=0.0)
        expect(
            [type(e) for e in self.estimators_] == n_classes * [OnlineKDEDensity],
            "estimators_",
            "a density for each class",
        )
        expect(isinstance(self._classes_declared, bool), "_classes_declared", "a bool")
        seen = [e for e in self.estimators_ if e.__sklearn_is_fitted__()]
        expect(
            {e.n_features_in_ for e in seen} <= {d} and len({e._layout for e in seen}) <= 1,
            "estimators_",
            f"of {d} features and one covariance_type",
        )
        covariance = self._calibration.covariance
        if covariance is not None and seen:
            shape = seen[0]._mixture.covariances.shape[1:]
            expect(
                covariance.shape == shape, "covariance", "of the shape that those of classes have"
            )

    def _checked(self, X: ArrayLike) -> np.ndarray:
        self._check_is_fitted()
        return check_rows(self, X, reset=False)

    @property
    def _classes(self) -> ClassDensities:
        return ClassDensities(self.estimators_, self._snapshot, self._in_threads)

    def _scorer(self) -> ClassScorer:
        """What scores rows by the classes as they are."""
        classes = self._classes
        settings = check_settings(self, self.n_features_in_, classes.seen()[0]._layout)
        return ClassScorer.of(classes, self.class_count_, self._calibration, settings)

    def _shrunk_shares(self, codes: list[int]) -> np.ndarray:
        """Of some classes among their samples, without what chance may have in it."""
        counts, out = self._effective_class_count()[codes], np.zeros(len(self.classes_))
        shrunk = shrink_shares(counts / counts.sum(), float(self.class_count_.sum()))
        out[codes] = np.maximum(shrunk, TINY)  # of what is nearly forgotten a share may be zero
        return out

    def _scored(self, prior: np.ndarray) -> list[int]:
        """Numbers of the classes with a sample and a prior that is not zero."""
        return np.flatnonzero(self._classes.are_seen() & (prior > 0.0)).tolist()

    def _set_classes(self, classes: np.ndarray, *, declared: bool) -> None:
        """Set `classes_`, which hold those that were there before."""
        old = {}
        calibration, class_memory = Calibration.start(len(classes)), None
        if hasattr(self, "classes_"):
            chosen = np.searchsorted(classes, self.classes_)
            calibration = self._calibration.grown(chosen, len(classes))
            if self._class_memory is not None:
                class_memory = self._class_memory.grown(chosen, len(classes))
            pairs = zip(self.class_count_, self.estimators_, strict=True)
            old = dict(zip(self.classes_.tolist(), pairs, strict=True))
        pairs = [old.get(label, (0.0, OnlineKDEDensity())) for label in classes.tolist()]
        self.classes_ = classes
        self.class_count_ = np.array([count for count, _ in pairs])
        self.estimators_ = [estimator for _, estimator in pairs]
        self._classes_declared = declared
        self._calibration = calibration
        self._class_memory = class_memory

    def _learn(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        """Learn from validated rows; what is fitted is replaced, not written to."""
        check_values(self, X)
        settings = check_settings(self, X.shape[1])
        check_flag(self, "calibrate")
        self._check_priors()
        self._check_n_jobs()
        for estimator in self._begun()[:1]:  # the others have the same
            estimator._check_structure(settings)
        code_of = {label: code for code, label in enumerate(self.classes_.tolist())}
        unknown = set(y.tolist()).difference(code_of)
        if unknown:
            raise ValueError(
                f"y has labels that are not among the classes {self.classes_.tolist()}: "
                f"{sorted(unknown, key=str)}. Give all labels as `classes` in the first call of "
                "partial_fit."
            )
        codes = np.array([code_of[label] for label in y.tolist()], dtype=np.intp)
        counted = weights > 0.0
        if not counted.all():
            X, codes, weights = X[counted], codes[counted], weights[counted]
        for part in self._parts(len(X), self._n_components):
            self._learn_counted(X[part], codes[part], weights[part], settings)

    def _learn_counted(
        self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray, settings: Settings
    ) -> None:
        """Learn from rows with positive weights."""
        # Without rows, too, what was set takes effect.
        if not (len(X) and (self.calibrate or settings.n_experts > 1)):
            settings = settings._replace(shrinkage_target=self._calibration.covariance)
            self._learn_part(X, codes, weights, settings)
            return
        done = 0
        self._calibration = self._calibration.adapted(settings)
        while done < len(X):
            calibration = self._calibration
            if calibration.is_due(X[done], codes[done]):
                classes = self._classes
                calibration = calibration.update_at_checkpoint(
                    classes.states(),
                    self._effective_class_count(),
                    settings,
                    classes.makers(calibration.pending),
                    self._in_threads,
                )
                classes.when_window_began(calibration.pending)
            self._calibration, n = calibration.consume(
                X[done:], codes[done:], weights[done:], settings
            )
            part = slice(done, done + n)
            of_classes = self._calibration.settings_of_classes(settings)
            self._learn_part(X[part], codes[part], weights[part], of_classes)
            done += n

    def _learn_part(
        self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray, settings: Settings
    ) -> None:
        """Learn from rows between which no checkpoint lies."""
        class_count = self.class_count_.copy()
        age_class_counts(class_count, codes, weights, settings.forgetting_factor)
        class_memory = None
        if settings.memories:
            class_memory = self._known_class_memory().updated(codes, weights)
        parameters = {name: getattr(self, name) for name in DENSITY_PARAMETERS}
        state = features_of(self)
        came = set(codes.tolist())

        def learned(code: int) -> OnlineKDEDensity:
            estimator, changed = self.estimators_[code], code in came
            held = vars(estimator)
            if not changed and all(held[name] is parameters[name] for name in parameters):
                return estimator
            new = estimator._copied(parameters)
            if changed:
                vars(new).update(state)
            rows = codes == code
            if changed or new.__sklearn_is_fitted__():  # what was set may concern what is held
                new._learn(X[rows], weights[rows], settings)
            return new

        changing = sorted(came) if self._in_step(parameters) else range(len(class_count))
        estimators = self.estimators_.copy()
        for code, estimator in zip(changing, self._in_threads(learned, changing), strict=True):
            estimators[code] = estimator
        self.estimators_ = estimators
        self.class_count_ = class_count
        self._class_memory = class_memory
        self._snapshot = Snapshot(getattr(self, "_snapshot", None))
        self._snapshot.get("in step", None, lambda: (estimators, parameters))

    def _merge(self, models: Sequence[OnlineKDEClassifier]) -> None:
        if len(models) > 2:
            # Two at a time: rows are predicted again by models that are as large as can be.
            half = len(models) // 2
            alone = clone(self).set_params(priors=None)  # which are of all classes
            models = [clone(alone).merge(*part) for part in (models[:half], models[half:])]
        settings = check_settings(self, self.n_features_in_)
        check_flag(self, "calibrate")
        self._check_n_jobs()
        for density in chain.from_iterable(model.estimators_ for model in models):
            density._check_same_structure(settings)
        classes = unique_labels(*(model.classes_ for model in models))
        parts = [model._with_classes(classes) for model in models]
        self.classes_, self._classes_declared = classes, parts[0]._classes_declared
        self._check_priors()
        seen = [part._n_samples_seen() for part in parts]
        calibrated = [
            part._calibrated(fade, settings, self._in_threads)
            for part, fade in zip(parts, fades_of(seen, settings), strict=True)
        ]
        self.class_count_ = np.sum([part.class_count for part in calibrated], axis=0)
        self._class_memory = None
        if settings.memories:
            self._class_memory, *later = [part._known_class_memory() for part in parts]
            for memory, n in zip(later, seen[1:], strict=True):
                self._class_memory = self._class_memory.followed_by(memory, n)
        settings = with_common_shape(settings, calibrated)
        parameters = {name: getattr(self, name) for name in DENSITY_PARAMETERS}
        known = {
            name: vars(self)[name]
            for name in ("n_features_in_", "feature_names_in_")
            if name in vars(self)
        }

        def together(
            densities: tuple[OnlineKDEDensity, ...],
        ) -> tuple[OnlineKDEDensity, State | None]:
            new, predicted = OnlineKDEDensity()._copied(parameters), None
            if any(hasattr(density, "_state") for density in densities):
                vars(new).update(known)
                predicted = new._merge_states(densities, settings)
            return new, predicted

        of_classes = list(zip(*(part.estimators_ for part in parts), strict=True))
        merged = self._in_threads(together, of_classes)
        self.estimators_ = [density for density, _ in merged]
        self._calibration = merged_calibration(
            calibrated,
            [state for _, state in merged],
            self._effective_class_count(),
            settings,
            self._in_threads,
        )

    def _drop_rows(self, min_samples: int) -> None:
        self.estimators_ = [
            density.without_rows(min_samples) if seen else OnlineKDEDensity()
            for density, seen in zip(self.estimators_, self._classes.are_seen(), strict=True)
        ]
        self._calibration = self._calibration.without_rows()

    def _with_classes(self, classes: np.ndarray) -> OnlineKDEClassifier:
        """The same model of more classes; what it learns changes nothing here."""
        other = OnlineKDEClassifier()
        vars(other).update(vars(self))
        other._set_classes(classes, declared=self._classes_declared)
        return other

    def _calibrated(self, fade: float, settings: Settings, in_threads: Mapper) -> CalibratedClasses:
        """What the calibration and the densities have learned, and what is left of the counts."""
        calibration = self._calibration.adapted(settings).without_window(
            self._effective_class_count(), settings, in_threads=in_threads
        )
        sample = calibration.sample and calibration.sample.faded(fade)
        calibration = calibration._replace(sample=sample)
        return CalibratedClasses(calibration, self._classes.states(), fade * self.class_count_)

    def _n_components(self) -> int:
        """Components of all classes."""
        return sum(density._mixture.n_components for density in self._classes.seen())

    def _n_samples_seen(self) -> float:
        """Samples of all classes."""
        return sum(getattr(density, "_n_samples_seen", 0.0) for density in self.estimators_)

    def _known_class_memory(self) -> ClassMemory:
        return self._class_memory or ClassMemory.start(self.class_count_)

    def _start_waiting(self) -> None:
        """Let classes learn the rows that wait for a feature without any value in them."""
        waits = [getattr(estimator, "_waiting", None) is not None for estimator in self.estimators_]
        if any(waits):
            settings = check_settings(self, self.n_features_in_)
            settings = self._calibration.settings_of_classes(settings)
            # Replaced, not written to: what is known of a density is known by its identity.
            self.estimators_ = self.estimators_.copy()
            for code in np.flatnonzero(waits):
                self.estimators_[code] = self.estimators_[code]._copied({})
                self.estimators_[code]._start(settings)
            self._snapshot = Snapshot(self._snapshot)

    def _in_step(self, parameters: dict[str, Any]) -> bool:
        """Whether it is known that all densities have these parameters."""
        if not hasattr(self, "_snapshot"):
            return False
        estimators, known = self._snapshot.get("in step", None, lambda: (None, {}))
        return estimators is self.estimators_ and all(
            known[name] is value for name, value in parameters.items()
        )

    def _check_priors(self) -> np.ndarray | None:
        if self.priors is None:
            return None
        try:
            priors = np.asarray(self.priors, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"priors must be None or an array of numbers, got {self.priors!r}."
            ) from error
        if priors.shape != self.classes_.shape:
            raise ValueError(
                f"priors must be one for each of the {len(self.classes_)} classes, in the order "
                f"of classes_; got {self.priors!r}. Declare all classes in the first call."
            )
        if not (np.all(priors >= 0.0) and np.isclose(priors.sum(), 1.0)):
            raise ValueError(f"priors must not be negative and sum to one, got {self.priors!r}.")
        return priors

    def _begun(self) -> list[OnlineKDEDensity]:
        """The estimators of classes of which a row has come."""
        return [e for e in self.estimators_ if hasattr(e, "_state")]

    def _effective_class_count(self) -> np.ndarray:
        """Numbers of rows of which the classes are as probable as they seem to be now."""
        if self._class_memory is None:
            return self.class_count_
        return self._class_memory.prior() * self.class_count_.sum()


def share_of_unseen(class_count: np.ndarray, n_unseen: int) -> float:
    """The probability that the next sample is of a declared class that has not come yet.

    That is about as probable as the samples were whose class came once (Good 1953). It is so little
    that none of these classes is ever the most probable one.

    Parameters
    ----------
    class_count : (n_seen,) array, positive
    n_unseen : int
    """
    n_seen = len(class_count)
    of_singles = class_count[class_count <= 1.0].sum()
    share = (of_singles + 1.0 / n_seen) / (class_count.sum() + 2.0)
    return min(share, 0.9 * n_unseen / (n_seen + n_unseen))


def _same(labels: ArrayLike, known: np.ndarray) -> bool:
    """Whether labels are the known ones as they are, which takes far less than a check of them."""
    labels = np.asarray(labels)
    return labels.dtype.kind == known.dtype.kind and np.array_equal(labels, known)
