"""Online multivariate kernel density estimation for scikit-learn."""

from importlib.metadata import version

from skokde._classifier import OnlineKDEClassifier
from skokde._density import OnlineKDEDensity

__version__ = version("skokde")

__all__ = ["OnlineKDEClassifier", "OnlineKDEDensity", "__version__"]
