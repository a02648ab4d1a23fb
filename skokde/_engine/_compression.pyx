"""The tree of clusters (paper, Section 2.6), in kernel coordinates."""

import numpy as np

from libc.float cimport DBL_MIN
from libc.math cimport fmax, INFINITY
from skokde._engine._goldberger cimport split, split_size
from skokde._engine._hellinger cimport (
    error_of_merging, factors_size, local_error_size, thin_inverse_roots,
)


def cluster(
    const double[::1] weights,
    const double[:, ::1] means,
    const double[:, ::1] covs,
    const double[:, ::1] inv_roots,
    const double[:, ::1] roots,
    const double[::1] log_dets,
    double threshold,
    const double[::1] axis,
    Py_ssize_t max_clusters,
):
    """Split all components, and then the cluster with the largest error, until it is small.

    Parameters
    ----------
    weights : (k,) array, sum one
    means : (k, d) array
    covs, inv_roots, roots : (m, d * d) or (m, d) arrays
        Of the first m components; the others are Diracs.
    log_dets : (m,) array
    threshold : float
        The largest error that is left.
    axis : (d,) array or None
        To cut the whole across first.
    max_clusters : int
        Stop there; zero for no such end.

    Returns
    -------
    members : (k,) array of intp
        All components, those of a cluster side by side.
    starts : (n_clusters + 1,) array of intp
        Where each cluster begins.
    """
    cdef Py_ssize_t k = weights.shape[0], d = means.shape[1]
    cdef Py_ssize_t m = covs.shape[0], size = covs.shape[1]
    cdef Py_ssize_t n_clusters = 1, worst = 0, first, n, n_first, a, c
    # Without an end to the number all that matters of an error is whether it is too large.
    cdef double low = threshold if max_clusters == 0 else 0.0
    cdef double high = threshold if max_clusters == 0 else INFINITY
    cdef const double* cov = &covs[0, 0] if m else NULL
    cdef const double* inv_root = &inv_roots[0, 0] if m else NULL
    cdef const double* root = &roots[0, 0] if m else NULL
    cdef const double* log_det = &log_dets[0] if m else NULL
    cdef double[::1] scratch = np.empty(max(local_error_size(k, d, size), split_size(d, size)))
    cdef Py_ssize_t[::1] ranks = np.empty(m + 1, dtype=np.intp)
    cdef double[::1] factors = np.empty(factors_size(m, d, size) + 1)
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    cdef signed char[::1] labels = np.empty(2 * k, dtype=np.int8)
    cdef Py_ssize_t[::1] sides = np.empty(2 * k, dtype=np.intp)
    cdef double[::1] errors = np.empty(k)
    out, begins = np.arange(k, dtype=np.intp), np.empty(k + 1, dtype=np.intp)
    # Clusters as they come: where each begins in `members`, and how many it has.
    cdef Py_ssize_t[::1] members = out, begin = begins
    cdef Py_ssize_t[::1] count = np.empty(k, dtype=np.intp)
    with nogil:
        thin_inverse_roots(m, d, size, inv_root, &ranks[0], &factors[0], &scratch[0])
        begin[0] = 0
        count[0] = k
        for a in range(2 * k):
            if a > 0:
                # Split the worst: its second part is a new cluster.
                first, n = begin[worst], count[worst]
                if n == 2:
                    n_first = 1
                else:
                    n_first = split(
                        n, &members[first], d, size, m, &weights[0], &means[0, 0], cov,
                        &axis[0] if n == k and axis is not None else NULL,
                        &sides[0], &labels[0], &scratch[0], &iwork[0],
                    )
                    for c in range(n):
                        members[first + c] = sides[c]
                count[worst] = n_first
                begin[n_clusters] = first + n_first
                count[n_clusters] = n - n_first
                n_clusters += 1
            for c in range(2 if a > 0 else 1):
                n = n_clusters - 1 if c == 1 else worst
                errors[n] = 0.0
                if count[n] > 1:
                    # Distinct components are never free of error, though rounding may say so.
                    errors[n] = fmax(
                        DBL_MIN,
                        error_of_merging(
                            count[n], &members[begin[n]], d, size, m, &weights[0], &means[0, 0],
                            cov, inv_root, root, log_det, &ranks[0], &factors[0], low, high,
                            &scratch[0], &iwork[0],
                        ),
                    )
            worst = 0
            for c in range(1, n_clusters):
                if errors[c] > errors[worst]:
                    worst = c
            if errors[worst] <= threshold or n_clusters == max_clusters:
                break
    starts = np.sort(begins[:n_clusters])
    return out, np.append(starts, k)
