"""The classifiers that meet the streams: skokde, river's, and the class of the row before."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from river import forest, naive_bayes, neighbors, tree
from sklearn.base import BaseEstimator, ClassifierMixin

from skokde import OnlineKDEClassifier

FIXED = (1.0, 0.999, 0.99, 0.97, 0.9)
DEFAULT, PREDICTIVE, PREVIOUS = "skokde", "skokde, predictive", "class of the row before"


class RiverClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of river, behind the methods of scikit-learn.

    Parameters
    ----------
    kind : type
        The classifier's.
    parameters : dict, default=None
    """

    def __init__(self, kind: type, parameters: dict[str, Any] | None = None):
        self.kind = kind
        self.parameters = parameters

    def partial_fit(self, X: np.ndarray, y: np.ndarray, classes: Any = None) -> Self:
        if not hasattr(self, "model_"):
            self.classes_ = np.asarray(classes)
            self.model_ = self.kind(**(self.parameters or {}))
        for row, label in zip(X.tolist(), y.tolist(), strict=True):
            self.model_.learn_one(dict(enumerate(row)), label)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Zero for classes that the model has not met; all are alike where it names none."""
        told = [self.model_.predict_proba_one(dict(enumerate(row))) for row in X.tolist()]
        labels = self.classes_.tolist()
        probabilities = np.array([[each.get(label, 0.0) for label in labels] for each in told])
        probabilities[~probabilities.any(axis=1)] = 1.0
        return probabilities / probabilities.sum(axis=1, keepdims=True)


class PreviousClass(ClassifierMixin, BaseEstimator):
    """The class of the last row learned, for certain."""

    def partial_fit(self, X: np.ndarray, y: np.ndarray, classes: Any = None) -> Self:
        if not hasattr(self, "classes_"):
            self.classes_ = np.asarray(classes)
        self.last_ = y[-1]
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.tile(np.where(self.classes_ == self.last_, 1.0, 0.0), (len(X), 1))


def fixed(factor: float) -> str:
    """The name of skokde with this forgetting factor; by default it is one."""
    return DEFAULT if factor == 1.0 else f"skokde, {factor:g}"


MODELS: dict[str, BaseEstimator] = {
    DEFAULT: OnlineKDEClassifier(),
    PREDICTIVE: OnlineKDEClassifier(forgetting_factor="predictive"),
    **{fixed(factor): OnlineKDEClassifier(forgetting_factor=factor) for factor in FIXED[1:]},
    "adaptive random forest": RiverClassifier(forest.ARFClassifier, {"seed": 0}),
    "Hoeffding adaptive tree": RiverClassifier(tree.HoeffdingAdaptiveTreeClassifier, {"seed": 0}),
    "Gaussian naive Bayes": RiverClassifier(naive_bayes.GaussianNB),
    "nearest 5 of the last 1,000": RiverClassifier(
        neighbors.KNNClassifier, {"n_neighbors": 5, "engine": neighbors.LazySearch(1000)}
    ),
    PREVIOUS: PreviousClass(),
}
