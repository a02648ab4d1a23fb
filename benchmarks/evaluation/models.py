"""The models that are compared: skokde, the paper's OISVM, and what a user would pick instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from evaluation.batch import BICMixture, CVKernelDensity, DensityClassifier
from evaluation.oisvm import OISVM
from skokde import OnlineKDEClassifier


class Model(NamedTuple):
    """An estimator, and how many components (kernels, support vectors) each class of it holds."""

    estimator: BaseEstimator
    components: Callable[[Any], ArrayLike]


def _skokde(**parameters: Any) -> Model:
    return Model(
        OnlineKDEClassifier(**parameters),
        lambda model: [
            density.n_components_
            for density, count in zip(model.estimators_, model.class_count_, strict=True)
            if count > 0.0
        ],
    )


def _densities(density: BaseEstimator, **parameters: Any) -> Model:
    return Model(
        DensityClassifier(density, **parameters),
        lambda model: [density.n_components_ for density in model.densities_],
    )


def _paper(covariance_type: str, bandwidth: str) -> Model:
    return _skokde(
        covariance_type=covariance_type,
        bandwidth=bandwidth,
        compression_threshold=0.1,
        calibrate=False,
    )


def _svc() -> BaseEstimator:
    return make_pipeline(StandardScaler(), SVC())


MODELS = {
    "skokde full okde": _paper("full", "okde"),
    "skokde diag okde": _paper("diag", "okde"),
    "skokde full plugin": _paper("full", "plugin"),
    "skokde diag plugin": _paper("diag", "plugin"),
    "skokde": _skokde(),
    "skokde diag": _skokde(covariance_type="diag"),
    "GaussianNB": Model(GaussianNB(), lambda model: np.ones(len(model.classes_))),
    "OISVM": Model(OISVM(), lambda model: model.basis_sizes_),
    "GaussianMixture": _densities(BICMixture()),
    "KernelDensity": _densities(CVKernelDensity(), standardize=True),
    "SVC": Model(_svc(), lambda model: model[-1].n_support_),
    # Platt's probabilities, from predictions in cross-validation; the classes are the SVC's own.
    "SVC calibrated": Model(
        CalibratedClassifierCV(_svc(), ensemble=False),
        lambda model: model.calibrated_classifiers_[0].estimator[-1].n_support_,
    ),
}
