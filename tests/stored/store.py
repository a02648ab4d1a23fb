"""Store small models in the present format, for all later versions to load.

Run it once when `skokde._persistence.FORMAT` has been raised or there is a new kind, and commit the
files. Those that there are stay as they are.
"""

import pickle
from pathlib import Path

import numpy as np

from skokde import (
    OnlineKDEClassifier,
    OnlineKDEDensity,
    OnlineKDEImputer,
    OnlineKDEOutlierDetector,
    OnlineKDERegressor,
)
from skokde._persistence import FORMAT
from skokde.covariance import LowRankCovariance


def layout(value, path=""):
    """Names and types of all that is stored, without what depends on the data."""
    if isinstance(value, dict):
        return sorted(
            line for name, part in value.items() for line in layout(part, f"{path}.{name}")
        )
    if isinstance(value, list) and value:
        return layout(next((part for part in value if part is not None), None), f"{path}[]")
    ndim = f" of {value.ndim} dimensions" if isinstance(value, np.ndarray) else ""
    return [f"{path}: {type(value).__name__}{ndim}"]


def stored_layout(estimator):
    """The layout of a fitted estimator, but for what scikit-learn puts there."""
    parameters = estimator.get_params()
    state = estimator.__getstate__()
    return layout({k: v for k, v in state.items() if k not in parameters and k[:4] != "_skl"})


def fitted_models():
    """Small models of each kind, some way into a window of the classifier's calibration.

    With each come rows, and the method that shows what it makes of them.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=70)
    X = rng.normal(size=(70, 3)) + y[:, None]
    labels = np.array(["a", "b", "c"])[y]
    yield "density", OnlineKDEDensity().fit(X), X, "score_samples"
    yield "classifier", OnlineKDEClassifier().fit(X, labels), X, "score_samples"
    memory = {"forgetting_factor": "predictive"}
    yield "density-memory", OnlineKDEDensity(**memory).fit(X), X, "score_samples"
    yield "classifier-memory", OnlineKDEClassifier(**memory).fit(X, labels), X, "score_samples"
    holes = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    yield "classifier-missing", OnlineKDEClassifier().fit(holes, labels), holes, "score_samples"
    yield "imputer", OnlineKDEImputer().fit(holes), holes, "transform"
    yield "detector", OnlineKDEOutlierDetector().fit(X), X, "score_samples"
    yield "regressor", OnlineKDERegressor().fit(holes, X @ [1.0, 2.0, 3.0]), holes, "predict"
    wide = X @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(70, 8))
    yield "density-wide", OnlineKDEDensity().fit(wide), wide, "score_samples"
    of_two = {"covariance_type": LowRankCovariance(2)}
    yield "density-lowrank", OnlineKDEDensity(**of_two).fit(wide), wide, "score_samples"
    yield (
        "classifier-lowrank",
        OnlineKDEClassifier(**of_two).fit(wide, labels),
        wide,
        "score_samples",
    )


def main():
    for kind, estimator, X, method in fitted_models():
        rows = X[:10]
        content = {
            "estimator": estimator,
            "X": rows,
            "method": method,
            "scores": getattr(estimator, method)(rows),
            "layout": stored_layout(estimator),
        }
        path = Path(__file__).parent / f"format-{FORMAT}-{kind}.pkl"
        if not path.exists():
            path.write_bytes(pickle.dumps(content, protocol=4))


if __name__ == "__main__":
    main()
