"""Batch density estimates with one choice made by the data, and the classifier they make."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data


class BICMixture(BaseEstimator):
    """The GaussianMixture whose number of components has the least BIC on the training rows.

    Numbers are tried in growing order until two in a row are no better. More than one component
    needs at least d + 1 rows for each: else covariances are singular, and BIC falls without bound.

    Parameters
    ----------
    n_components : tuple of int
    random_state : int, default=0
    """

    def __init__(
        self,
        n_components: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32),
        random_state: int = 0,
    ):
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        best, misses = np.inf, 0
        for k in self.n_components:
            if misses == 2 or (k > 1 and len(X) < k * (X.shape[1] + 1)):
                break
            mixture = GaussianMixture(k, random_state=self.random_state).fit(X)
            bic = mixture.bic(X)
            misses += 1
            if bic < best:
                best, misses, self.mixture_ = bic, 0, mixture
        self.n_components_ = self.mixture_.n_components
        return self

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        return self.mixture_.score_samples(X)


class CVKernelDensity(BaseEstimator):
    """The KernelDensity whose bandwidth has the best cross-validated likelihood.

    Parameters
    ----------
    bandwidths : tuple of float
    """

    def __init__(self, bandwidths: tuple[float, ...] = tuple(np.logspace(-1.5, 0.5, 9).round(4))):
        self.bandwidths = bandwidths

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        search = GridSearchCV(
            KernelDensity(), {"bandwidth": self.bandwidths}, cv=min(5, len(X))
        ).fit(X)
        self.density_ = search.best_estimator_
        self.n_components_ = len(X)
        return self

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        return self.density_.score_samples(X)


class DensityClassifier(ClassifierMixin, BaseEstimator):
    """Bayes classifier from a batch density estimate of each class.

    Parameters
    ----------
    density : estimator with score_samples
    standardize : bool, default=False
        Give the densities features of zero mean and unit variance over all classes. Log-densities
        are those of the raw features all the same.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_prior_ : ndarray of shape (n_classes,)
        Shares of the training rows.
    densities_ : list of fitted densities
    """

    def __init__(self, density: BaseEstimator, *, standardize: bool = False):
        self.density = density
        self.standardize = standardize

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.scaler_ = StandardScaler(with_mean=self.standardize, with_std=self.standardize).fit(X)
        self.classes_, counts = np.unique(y, return_counts=True)
        self.class_prior_ = counts / counts.sum()
        scaled = self.scaler_.transform(X)
        self.densities_ = [clone(self.density).fit(scaled[y == label]) for label in self.classes_]
        return self

    def predict_joint_log_proba(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        X = self.scaler_.transform(validate_data(self, X, dtype=np.float64, reset=False))
        volume = 0.0 if self.scaler_.scale_ is None else np.log(self.scaler_.scale_).sum()
        log_density = np.column_stack([density.score_samples(X) for density in self.densities_])
        return np.log(self.class_prior_) + log_density - volume

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        joint = self.predict_joint_log_proba(X)
        nowhere = np.isneginf(joint.max(axis=1))
        joint[nowhere] = np.log(self.class_prior_)
        return np.exp(joint - logsumexp(joint, axis=1, keepdims=True))

    def predict(self, X: ArrayLike) -> np.ndarray:
        return self.classes_[np.argmax(self.predict_joint_log_proba(X), axis=1)]
