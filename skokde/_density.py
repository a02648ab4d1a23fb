"""The density estimator: validate, drive the engine, score."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skokde._engine.bandwidth import Kernel, kernel_coordinates
from skokde._engine.covariance import STRUCTURES
from skokde._engine.kde import KDE
from skokde._engine.learn import Settings, initial_limit, learn
from skokde._engine.mixture import Mixture
from skokde._validation import (
    Snapshot,
    check_bandwidth,
    check_settings,
    check_values,
    check_weights,
    unchanged_on_error,
)


class OnlineKDEDensity(DensityMixin, BaseEstimator):
    """Online kernel density estimation of a stream, in one pass and little memory.

    Placeholder.
    """

    def __init__(
        self,
        *,
        covariance_type: str = "full",
        compression_threshold: float = 0.1,
        bandwidth: str | float | ArrayLike = "plugin",
        forgetting_factor: float = 1.0,
        max_components: int | None = None,
    ):
        self.covariance_type = covariance_type
        self.compression_threshold = compression_threshold
        self.bandwidth = bandwidth
        self.forgetting_factor = forgetting_factor
        self.max_components = max_components

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        with unchanged_on_error(self):
            X = validate_data(self, X, dtype=np.float64, order="C", reset=True)
            self._forget()
            weights = check_weights(sample_weight, len(X))
            if not weights.any():
                raise ValueError("All sample weights are zero: there is nothing to fit.")
            self._learn(X, weights, check_settings(self, X.shape[1]))
        return self

    def partial_fit(
        self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        with unchanged_on_error(self):
            first = not hasattr(self, "n_features_in_")
            X = validate_data(self, X, dtype=np.float64, order="C", reset=first)
            weights = check_weights(sample_weight, len(X))
            self._learn(X, weights, check_settings(self, X.shape[1]))
        return self

    def _forget(self) -> None:
        for name in ("_mixture", "_limit", "_snapshot", "n_samples_seen_"):
            vars(self).pop(name, None)

    def _learn(self, X: np.ndarray, weights: np.ndarray, settings: Settings) -> None:
        """Learn from validated rows."""
        check_values(X)
        if not hasattr(self, "_mixture"):
            self._mixture = Mixture.empty(X.shape[1], settings.structure)
            self._limit = initial_limit(X.shape[1])
            self.n_samples_seen_ = 0.0
        elif self._structure is not settings.structure:
            raise ValueError(
                f"covariance_type can't change from {self._structure.name!r} to "
                f"{settings.structure.name!r} in mid-stream: call fit, which starts anew."
            )
        counted = weights > 0.0
        if not counted.all():
            X, weights = X[counted], weights[counted]
        self._mixture, self._limit = learn(self._mixture, self._limit, X, weights, settings)
        # One by one, so that the sum does not depend on the blocks.
        self.n_samples_seen_ = float(np.cumsum([self.n_samples_seen_, *weights])[-1])
        self._snapshot = Snapshot()

    @property
    def _structure(self):
        return STRUCTURES["full" if self._mixture.covariances.ndim == 3 else "diag"]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_mixture") and self._mixture.n_components > 0

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_snapshot", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "_mixture"):
            self._snapshot = Snapshot()

    def _kernel(self, whole_spread: np.ndarray | None = None) -> Kernel:
        structure = self._structure
        bandwidth = check_bandwidth(self, structure, self._mixture.n_features)
        return kernel_coordinates(self._mixture, structure, bandwidth, whole_spread)

    def _kde(self, whole_spread: np.ndarray | None = None) -> KDE:
        """What is scored; `whole_spread` as in `whiten`."""
        key = (
            repr(self.bandwidth) if np.ndim(self.bandwidth) == 0
            else np.asarray(self.bandwidth, dtype=float).tobytes(),
            None if whole_spread is None else whole_spread.tobytes(),
        )
        return self._snapshot.get(
            key, lambda: KDE.of(self._mixture, self._kernel(whole_spread).frame)
        )

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return self._kde().log_density(X)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        return float(np.mean(self.score_samples(X)))

    def kde_mixture(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        check_is_fitted(self)
        return self.weights_, self.means_, self.covariances_ + self.bandwidth_

    @property
    def weights_(self) -> np.ndarray:
        counts = self._fitted_mixture("weights_").counts
        return counts / counts.sum()

    @property
    def means_(self) -> np.ndarray:
        return self._fitted_mixture("means_").means.copy()

    @property
    def covariances_(self) -> np.ndarray:
        return self._fitted_mixture("covariances_").all_covariances()

    @property
    def n_components_(self) -> int:
        return self._fitted_mixture("n_components_").n_components

    @property
    def bandwidth_(self) -> np.ndarray:
        self._fitted_mixture("bandwidth_")
        if np.ndim(self.bandwidth):
            return check_bandwidth(self, self._structure, self._mixture.n_features)
        return self._kde().frame.identity_back()

    def _fitted_mixture(self, attribute: str) -> Mixture:
        if not self.__sklearn_is_fitted__():
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {attribute!r} before it is fitted"
            )
        return self._mixture
