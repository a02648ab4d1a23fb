"""The structures of covariances for which everything holds."""

from skokde.covariance import LowRankCovariance

# One direction, so that three features are enough for covariances of low rank.
STRUCTURES = ["full", "diag", "spherical", LowRankCovariance(rank=1)]
