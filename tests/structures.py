"""The structures of covariances for which everything holds."""

from skokde.covariance import LowRankCovariance

# One direction, so that three features are enough for covariances of low rank.
# Those first that have least in common.
STRUCTURES = ["full", LowRankCovariance(rank=1), "diag", "spherical"]
