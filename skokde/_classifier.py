"""The classifier: one density a class, and priors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

from skokde._density import OnlineKDEDensity
from skokde._engine._append import age_class_counts
from skokde._engine.mixture import match_moments
from skokde._engine.whitening import feature_spread
from skokde._validation import (
    Snapshot,
    check_settings,
    check_values,
    check_weights,
    unchanged_on_error,
)


class OnlineKDEClassifier(ClassifierMixin, BaseEstimator):
    """Placeholder."""

    def __init__(
        self,
        *,
        covariance_type: str = "full",
        compression_threshold: float = 0.1,
        bandwidth: str | float | ArrayLike = "plugin",
        forgetting_factor: float = 1.0,
        max_components: int | None = None,
        priors: ArrayLike | None = None,
        n_jobs: int | None = None,
    ):
        self.covariance_type = covariance_type
        self.compression_threshold = compression_threshold
        self.bandwidth = bandwidth
        self.forgetting_factor = forgetting_factor
        self.max_components = max_components
        self.priors = priors
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        with unchanged_on_error(self):
            X, y = validate_data(self, X, y, dtype=np.float64, order="C", reset=True)
            check_classification_targets(y)
            weights = check_weights(sample_weight, len(X))
            if not weights.any():
                raise ValueError("All sample weights are zero: there is nothing to fit.")
            self._forget()
            self._declare_classes(unique_labels(y))
            self._learn(X, y, weights)
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        with unchanged_on_error(self):
            first = not hasattr(self, "classes_")
            X, y = validate_data(self, X, y, dtype=np.float64, order="C", reset=first)
            check_classification_targets(y)
            weights = check_weights(sample_weight, len(X))
            if classes is not None:
                classes = unique_labels(classes)
                if first:
                    self._declare_classes(classes)
                elif not np.array_equal(classes, self.classes_):
                    raise ValueError(
                        f"classes={classes!r} differs from classes={self.classes_!r} of the first "
                        "call of partial_fit: leave it out, or give the same."
                    )
            elif first:
                self._declare_classes(unique_labels(y))
                self._open = True
            elif self._open:
                self._admit_classes(unique_labels(y))
            self._learn(X, y, weights)
        return self

    def _forget(self) -> None:
        for name in ("classes_", "class_count_", "estimators_", "_open", "_snapshot"):
            vars(self).pop(name, None)

    def _declare_classes(self, classes: np.ndarray) -> None:
        self.classes_ = classes
        self.class_count_ = np.zeros(len(classes))
        self.estimators_ = [self._density() for _ in classes]
        self._open = False

    def _admit_classes(self, labels: np.ndarray) -> None:
        classes = unique_labels(self.classes_, labels)
        if len(classes) == len(self.classes_):
            return
        place = np.searchsorted(classes, self.classes_)
        class_count, estimators = self.class_count_, self.estimators_
        self._declare_classes(classes)
        self._open = True
        self.class_count_[place] = class_count
        for i, estimator in zip(place, estimators, strict=True):
            self.estimators_[i] = estimator

    def _density(self) -> OnlineKDEDensity:
        return OnlineKDEDensity(
            covariance_type=self.covariance_type,
            compression_threshold=self.compression_threshold,
            bandwidth=self.bandwidth,
            forgetting_factor=self.forgetting_factor,
            max_components=self.max_components,
        )

    def _learn(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        """Learn from validated rows; what is fitted is replaced, not written to."""
        check_values(X)
        settings = check_settings(self, X.shape[1])
        self._check_priors()
        codes = np.searchsorted(self.classes_, y)
        unknown = self.classes_[np.minimum(codes, len(self.classes_) - 1)] != y
        if unknown.any():
            raise ValueError(
                f"y has labels that are not among the classes {self.classes_.tolist()}: "
                f"{np.unique(y[unknown]).tolist()}. Give all labels as `classes` in the first "
                "call of partial_fit."
            )
        counted = weights > 0.0
        if not counted.all():
            X, codes, weights = X[counted], codes[counted], weights[counted]
        class_count = self.class_count_.copy()
        age_class_counts(class_count, codes, weights, settings.forgetting_factor)

        def learned(code: int, estimator: OnlineKDEDensity) -> OnlineKDEDensity:
            rows = codes == code
            fresh = self._density()
            vars(fresh).update(
                {k: v for k, v in vars(estimator).items() if k not in fresh.get_params()}
            )
            fresh.n_features_in_ = self.n_features_in_
            if hasattr(self, "feature_names_in_"):
                fresh.feature_names_in_ = self.feature_names_in_
            if rows.any():
                fresh._learn(X[rows], weights[rows], settings)
            return fresh

        self.estimators_ = self._for_each_class(learned)
        self.class_count_ = class_count
        self._snapshot = Snapshot()

    def _for_each_class(self, function: Any) -> list[Any]:
        """function(code, estimator) of all classes, in threads if n_jobs says so."""
        pairs = list(enumerate(self.estimators_))
        if effective_n_jobs(self.n_jobs) == 1:
            return [function(*pair) for pair in pairs]
        return Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(function)(*pair) for pair in pairs
        )

    def _check_priors(self) -> np.ndarray | None:
        if self.priors is None:
            return None
        priors = np.asarray(self.priors, dtype=float)
        if priors.shape != self.classes_.shape:
            raise ValueError(
                f"priors must be one for each of the {len(self.classes_)} classes, in the order "
                f"of classes_; got {self.priors!r}. Declare all classes in the first call."
            )
        if not (np.all(priors >= 0.0) and np.isclose(priors.sum(), 1.0)):
            raise ValueError(f"priors must not be negative and sum to one, got {self.priors!r}.")
        return priors

    def __sklearn_is_fitted__(self) -> bool:
        return any(self._seen())

    def _seen(self) -> list[bool]:
        return [e.__sklearn_is_fitted__() for e in getattr(self, "estimators_", [])]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_snapshot", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "classes_"):
            self._snapshot = Snapshot()

    @property
    def class_prior_(self) -> np.ndarray:
        if not hasattr(self, "classes_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'class_prior_' before it is fitted"
            )
        seen = np.array(self._seen(), dtype=float)
        priors = self._check_priors()
        prior = self.class_count_ if priors is None else priors * seen
        if not prior.sum() > 0.0:
            prior = seen
        return prior / prior.sum()

    def _whole_spread(self) -> np.ndarray | None:
        """Spread of the whole data, if a class needs it for features that are constant in it."""
        mixtures = [e._mixture for e in self.estimators_ if e.__sklearn_is_fitted__()]
        moments = [
            match_moments(*mixture[:3], [np.arange(mixture.n_components)]) for mixture in mixtures
        ]
        structure = self._structure
        spreads = [feature_spread(structure.variances(m[2][0])) for m in moments]
        if np.all(spreads):
            return None
        counts, means, covariances = (np.concatenate(arrays) for arrays in zip(*moments))
        counts = self.class_count_[self._seen()]
        _, _, whole = match_moments(counts, means, covariances, [np.arange(len(counts))])
        return feature_spread(structure.variances(whole[0]))

    @property
    def _structure(self):
        return next(e._structure for e in self.estimators_ if e.__sklearn_is_fitted__())

    def predict_joint_log_proba(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        prior = self.class_prior_
        whole_spread = self._snapshot.get(None, self._whole_spread)

        def joint(code: int, estimator: OnlineKDEDensity) -> np.ndarray:
            if not (prior[code] > 0.0 and estimator.__sklearn_is_fitted__()):
                return np.full(len(X), -np.inf)
            return np.log(prior[code]) + estimator._kde(whole_spread).log_density(X)

        return np.column_stack(self._for_each_class(joint))

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        joint = self.predict_joint_log_proba(X)
        total = logsumexp(joint, axis=1, keepdims=True)
        nowhere = np.isneginf(total[:, 0])
        joint[nowhere], total[nowhere] = self._log_prior(), 0.0
        return joint - total

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike) -> np.ndarray:
        return self.classes_[np.argmax(self.predict_log_proba(X), axis=1)]

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        return logsumexp(self.predict_joint_log_proba(X), axis=1)

    def _log_prior(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.class_prior_)
