"""Moment matching of groups of components (paper, Eq. 9)."""

import numpy as np

from skokde._engine._gaussian cimport match_moments
from skokde._engine._shapes cimport check_shapes


def match_group_moments(
    const double[::1] counts,
    const double[:, ::1] means,
    const double[:, ::1] covs,
    const Py_ssize_t[::1] order,
    const Py_ssize_t[::1] starts,
):
    """One Gaussian per group of components, with the group's count, mean and covariance.

    Parameters
    ----------
    counts : (k,) array
    means : (k, d) array
    covs : (m, d * d) or (m, d) array
        Flattened covariances of the first m components; the others are Diracs.
    order : (n,) array of intp
        Component numbers, group after group.
    starts : (n_groups + 1,) array of intp
        Group g is ``order[starts[g]:starts[g + 1]]``, not empty.

    Returns
    -------
    counts : (n_groups,) array
    means : (n_groups, d) array
    covs : (n_groups, d * d) or (n_groups, d) array
    """
    cdef Py_ssize_t g, n_groups = starts.shape[0] - 1, d = means.shape[1], size = covs.shape[1]
    cdef Py_ssize_t n_compounds = covs.shape[0]
    cdef bint full = size != d
    check_shapes(
        d, size,
        n_compounds <= counts.shape[0] == means.shape[0]
        and n_groups >= 0 and starts[n_groups] == order.shape[0],
    )
    out_counts = np.empty(n_groups)
    out_means = np.empty((n_groups, d))
    out_covs = np.empty((n_groups, size))
    cdef double[::1] c = out_counts, delta = np.empty(d)
    cdef double[:, ::1] m = out_means, s = out_covs
    cdef const double* cov = &covs[0, 0] if n_compounds else NULL
    with nogil:
        for g in range(n_groups):
            match_moments(
                d, full, starts[g + 1] - starts[g], &order[starts[g]], &counts[0],
                &means[0, 0], cov, n_compounds, &c[g], &m[g, 0], &s[g, 0], &delta[0],
            )
    return out_counts, out_means, out_covs
