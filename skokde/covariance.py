"""Structures of covariances, for ``covariance_type``: those there are, and the base of others.

See :doc:`/structures` for one of your own.
"""

from skokde._engine.covariance import (
    CovarianceStructure,
    DiagonalCovariance,
    FullCovariance,
    LowRankCovariance,
    SphericalCovariance,
)

__all__ = [
    "CovarianceStructure",
    "DiagonalCovariance",
    "FullCovariance",
    "LowRankCovariance",
    "SphericalCovariance",
]
