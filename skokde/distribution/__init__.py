"""What a mixture of Gaussians can answer: a frozen distribution, and functions of two of them."""

from skokde.distribution._gaussians import Estimate
from skokde.distribution._mixture import GaussianMixtureDistribution
from skokde.distribution.conditioning import GaussianMixtureFamily
from skokde.distribution.divergence import (
    hellinger,
    integrated_squared_error,
    jensen_shannon,
    kl_divergence,
)
from skokde.distribution.modes import Modes
from skokde.distribution.scoring import crps

__all__ = [
    "Estimate",
    "GaussianMixtureDistribution",
    "GaussianMixtureFamily",
    "Modes",
    "crps",
    "hellinger",
    "integrated_squared_error",
    "jensen_shannon",
    "kl_divergence",
]
