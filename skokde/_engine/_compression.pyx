"""The tree of clusters (paper, Section 2.6), in kernel coordinates."""

import numpy as np

from libc.float cimport DBL_MIN
from libc.math cimport fmax, INFINITY
from skokde._engine._gaussian cimport match_moments
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
    (k,) array of intp
        The number of each component's cluster, in the order of their first members.
    """
    cdef Py_ssize_t k = weights.shape[0], d = means.shape[1]
    cdef Py_ssize_t m = covs.shape[0], size = covs.shape[1]
    cdef Py_ssize_t n_clusters = 1, worst = 0, first, n, n_first, a, c, i
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
    # Clusters as they come: where each begins in `members`, and how many it has.
    cdef Py_ssize_t[::1] members = np.arange(k, dtype=np.intp)
    cdef Py_ssize_t[::1] begin = np.empty(k, dtype=np.intp), count = np.empty(k, dtype=np.intp)
    out = np.empty(k, dtype=np.intp)
    cdef Py_ssize_t[::1] label = out
    with nogil:
        thin_inverse_roots(m, d, size, inv_root, &ranks[0], &factors[0], &scratch[0])
        begin[0] = 0
        count[0] = k
        for a in range(2 * k):
            if a > 0:
                # Split the worst: its second part is a new cluster.
                first, n = begin[worst], count[worst]
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
        for c in range(n_clusters):
            for a in range(begin[c], begin[c] + count[c]):
                label[members[a]] = c
            count[c] = -1  # from here on its place in the order
        n = 0
        for i in range(k):
            c = label[i]
            if count[c] < 0:
                count[c] = n
                n += 1
            label[i] = count[c]
    return out


def split_details(
    const Py_ssize_t[::1] members,
    const Py_ssize_t[::1] starts,
    const Py_ssize_t[::1] places,
    const double[::1] counts,
    const double[:, ::1] means,
    const double[:, ::1] covs,
    const double[::1] weights,
    const double[:, ::1] points,
    const double[:, ::1] point_covs,
    const double[::1] axis,
):
    """Split the details of each cluster's components in two, and match each side's moments.

    Parameters
    ----------
    members : (n,) array of intp
        Components, cluster after cluster.
    starts : (n_clusters + 1,) array of intp
        Where each cluster begins.
    places : (k,) array of intp
        Of the details of each component among all of them: two side by side, of a Dirac one.
    counts : (n_details,) array
    means : (n_details, d) array
    covs : (n, d * d) or (n, d) array
        Of the first n details, those of compounds.
    weights, points, point_covs : arrays of the same shapes
        The same in kernel coordinates, where they are split.
    axis : (d,) array or None
        To cut across first.

    Returns
    -------
    counts : (n_clusters, 2) array
    means : (n_clusters, 2, d) array
    covs : (2 * n_clusters, d * d) or (2 * n_clusters, d) array
    """
    cdef Py_ssize_t n_clusters = starts.shape[0] - 1, d = means.shape[1], size = covs.shape[1]
    cdef Py_ssize_t n_details = means.shape[0], n_compounds = covs.shape[0]
    cdef Py_ssize_t c, a, i, n, n_first, side
    cdef bint full = size != d
    cdef const double* cov = &covs[0, 0] if n_compounds else NULL
    cdef const double* point_cov = &point_covs[0, 0] if n_compounds else NULL
    out_counts, out_means = np.empty((n_clusters, 2)), np.empty((n_clusters, 2, d))
    out_covs = np.empty((2 * n_clusters, size))
    cdef double[:, ::1] new_counts = out_counts, new_covs = out_covs
    cdef double[:, :, ::1] new_means = out_means
    cdef Py_ssize_t[::1] details = np.empty(n_details, dtype=np.intp)
    cdef Py_ssize_t[::1] sides = np.empty(2 * n_details, dtype=np.intp)
    cdef signed char[::1] labels = np.empty(2 * n_details, dtype=np.int8)
    cdef double[::1] scratch = np.empty(split_size(d, size))
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    with nogil:
        for c in range(n_clusters):
            n = 0
            for a in range(starts[c], starts[c + 1]):
                i = places[members[a]]
                details[n] = i
                n += 1
                if i < n_compounds:
                    details[n] = i + 1
                    n += 1
            n_first = split(
                n, &details[0], d, size, n_compounds, &weights[0], &points[0, 0], point_cov,
                &axis[0] if axis is not None else NULL,
                &sides[0], &labels[0], &scratch[0], &iwork[0],
            )
            for side in range(2):
                match_moments(
                    d, full, n - n_first if side else n_first, &sides[n_first if side else 0],
                    &counts[0], &means[0, 0], cov, n_compounds, &new_counts[c, side],
                    &new_means[c, side, 0], &new_covs[2 * c + side, 0], &scratch[0],
                )
    return out_counts, out_means, out_covs
