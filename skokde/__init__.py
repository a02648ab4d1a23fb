"""Online multivariate kernel density estimation for scikit-learn."""

from importlib.metadata import version

try:
    from skokde._classifier import OnlineKDEClassifier
    from skokde._density import OnlineKDEDensity
    from skokde._imputer import OnlineKDEImputer
    from skokde._outliers import OnlineKDEOutlierDetector
    from skokde._regressor import OnlineKDERegressor
    from skokde._shards import fit_shards, merge
    from skokde._validation import DegenerateDataWarning
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("skokde._engine._"):
        raise
    raise ImportError(
        "skokde is imported from a folder of sources that are not compiled. Start Python in "
        "another folder, or compile them there: pip install --editable ."
    ) from error

__version__ = version("skokde")

__all__ = [
    "DegenerateDataWarning",
    "OnlineKDEClassifier",
    "OnlineKDEDensity",
    "OnlineKDEImputer",
    "OnlineKDEOutlierDetector",
    "OnlineKDERegressor",
    "__version__",
    "fit_shards",
    "merge",
]
