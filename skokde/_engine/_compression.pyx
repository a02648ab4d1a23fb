"""The tree of clusters (paper, Section 2.6), in kernel coordinates."""

import numpy as np

from libc.float cimport DBL_MIN
from libc.math cimport fmax
from libc.string cimport memcpy, memset
from skokde._engine._frame cimport (
    coordinates, Coordinates, coordinates_size, map_covariances, map_points, prepare_covariances,
)
from skokde._engine._gaussian cimport match_moments
from skokde._engine._goldberger cimport split, split_size
from skokde._engine._hellinger cimport (
    error_of_merging, factors_size, local_error_size, thin_inverse_roots,
)
from skokde._engine._shapes cimport check_shapes, number_of_true


def cluster(
    const double[::1] weights,
    const double[:, ::1] means,
    const double[:, ::1] covs,
    const double[:, ::1] inv_roots,
    const double[:, ::1] roots,
    const double[::1] log_dets,
    const double[::1] thresholds,
    const double[::1] axis,
    Py_ssize_t max_clusters,
    const double[::1] feature_axes=None,
):
    """Split all components, and then the cluster with the largest error, until it is small.

    On the way the clusters are noted where the error is small enough for each threshold.

    Parameters
    ----------
    weights : (k,) array, sum one
    means : (k, d) array
    covs, inv_roots, roots : (m, d * d) or (m, d) arrays
        Of the first m components; the others are Diracs.
    log_dets : (m,) array
    thresholds : (n,) array
        The largest errors that are left, the largest one last.
    axis : (d,) array
        To cut the whole across first.
    max_clusters : int
        Stop there; -1 for no such end.
    feature_axes : (d * d,) or (d,) array, default=None
        See `two_means`.

    Returns
    -------
    (n, k) array of intp
        For each threshold the number of each component's cluster, in the order of their first
        members.
    """
    cdef Py_ssize_t k = weights.shape[0], d = means.shape[1]
    cdef Py_ssize_t m = covs.shape[0], size = covs.shape[1]
    cdef Py_ssize_t n_clusters = 1, worst = 0, level = thresholds.shape[0] - 1
    cdef Py_ssize_t first, n, n_first, a, c, i
    check_shapes(
        d, size,
        m <= k == means.shape[0] > 0 and inv_roots.shape[0] == roots.shape[0] == m
        and inv_roots.shape[1] == roots.shape[1] == size and log_dets.shape[0] == m
        and level >= 0 and axis.shape[0] == d and (max_clusters == -1 or max_clusters > 0)
        and (feature_axes is None or feature_axes.shape[0] == size),
    )
    cdef const double* features = &feature_axes[0] if feature_axes is not None else NULL
    # Without an end to the number all that matters of an error is between which thresholds it is.
    cdef Py_ssize_t n_edges = level + 1 if max_clusters < 0 else 0
    cdef const double* cov = &covs[0, 0] if m else NULL
    cdef const double* inv_root = &inv_roots[0, 0] if m else NULL
    cdef const double* root = &roots[0, 0] if m else NULL
    cdef const double* log_det = &log_dets[0] if m else NULL
    cdef double[::1] scratch = np.empty(max(local_error_size(k, d, size), split_size(k, d, size)))
    cdef Py_ssize_t[::1] ranks = np.empty(m + 1, dtype=np.intp)
    cdef double[::1] factors = np.empty(factors_size(m, d, size) + 1)
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    cdef signed char[::1] labels = np.empty(2 * k, dtype=np.int8)
    cdef Py_ssize_t[::1] sides = np.empty(3 * k, dtype=np.intp)
    cdef double[::1] errors = np.empty(k)
    # Clusters as they come: where each begins in `members`, and how many it has.
    cdef Py_ssize_t[::1] members = np.arange(k, dtype=np.intp)
    cdef Py_ssize_t[::1] begin = np.empty(k, dtype=np.intp), count = np.empty(k, dtype=np.intp)
    cdef Py_ssize_t[::1] number = np.empty(k, dtype=np.intp)
    out = np.empty((level + 1, k), dtype=np.intp)
    cdef Py_ssize_t[:, ::1] label = out
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
                    &axis[0] if n == k else NULL, features,
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
                            cov, inv_root, root, log_det, &ranks[0], &factors[0], n_edges,
                            &thresholds[0], &scratch[0], &iwork[0],
                        ),
                    )
            worst = 0
            for c in range(1, n_clusters):
                if errors[c] > errors[worst]:
                    worst = c
            while level >= 0 and (
                errors[worst] <= thresholds[level] or n_clusters == max_clusters
            ):
                for c in range(n_clusters):
                    for i in range(begin[c], begin[c] + count[c]):
                        label[level, members[i]] = c
                    number[c] = -1
                n = 0
                for i in range(k):
                    c = label[level, i]
                    if number[c] < 0:
                        number[c] = n
                        n += 1
                    label[level, i] = number[c]
                level -= 1
            if level < 0:
                break
    return out


def merge(
    const Py_ssize_t[::1] labels,
    const double[::1] counts,
    const double[:, ::1] means,
    const double[:, ::1] covs,
    const double[:, ::1] detail_weights,
    const double[:, :, ::1] detail_means,
    const unsigned char[:, ::1] details_merged,
    const double[:, ::1] detail_covs,
    const double[::1] center,
    const double[::1] spread,
    const double[::1] matrix,
    const double[::1] axis,
    const double[::1] feature_axes=None,
):
    """Replace each cluster of more than one component by its moment-matched Gaussian.

    The extended mixture of a cluster holds its components' detailed models (paper, Eq. 15); it is
    split by Goldberger's two-means, and each side is moment-matched. A cluster of equal samples is
    a Dirac again.

    Parameters
    ----------
    labels : (k,) array of intp
        The number of each component's cluster, in the order of their first members.
    counts : (k,) array
    means : (k, d) array
    covs : (m, d * d) or (m, d) array
        Of the first m components; the others are Diracs.
    detail_weights : (m, 2) array
        Of the two details of each of the m components.
    detail_means : (m, 2, d) array
    details_merged : (m, 2) array of uint8
        Which of the details have a covariance.
    detail_covs : (n, d * d) or (n, d) array
        Of those.
    center, spread, matrix : (d,), (d,) and (d * d,) or (d,) arrays
        The frame in which details are split.
    axis : (d,) array
        To cut the whole across, if it is one cluster.
    feature_axes : (d * d,) or (d,) array, default=None
        See `two_means`.

    Returns
    -------
    members : (n_clusters,) array of intp
        Of each component of the new mixture, the first of those which it stands for.
    counts, means, covs : arrays
        Of the new mixture: compounds and then Diracs, each those first that are not merged.
    detail_weights, detail_means, details_merged, detail_covs : arrays
        Of its compounds.
    """
    cdef Py_ssize_t k = counts.shape[0], d = means.shape[1], m = covs.shape[0], size = covs.shape[1]
    cdef Py_ssize_t n_clusters = 0, n_compounds = 0, n_details, n_held = 0, n_first
    cdef Py_ssize_t to, c, a, i, n, side
    check_shapes(
        d, size,
        m <= k == labels.shape[0] == means.shape[0] and k > 0
        and detail_weights.shape[0] == detail_means.shape[0] == details_merged.shape[0] == m
        and detail_weights.shape[1] == detail_means.shape[1] == details_merged.shape[1] == 2
        and detail_means.shape[2] == d and detail_covs.shape[1] == size
        and detail_covs.shape[0] == number_of_true(details_merged)
        and center.shape[0] == spread.shape[0] == axis.shape[0] == d and matrix.shape[0] == size
        and (feature_axes is None or feature_axes.shape[0] == size),
    )
    cdef const double* features = &feature_axes[0] if feature_axes is not None else NULL
    cdef bint full = size != d
    cdef double total = np.sum(counts)
    cdef const double* cov = &covs[0, 0] if m else NULL
    # Components, cluster after cluster, and where each cluster begins.
    cdef Py_ssize_t[::1] members = np.empty(k, dtype=np.intp)
    cdef Py_ssize_t[::1] starts = np.zeros(k + 2, dtype=np.intp)
    with nogil:
        for i in range(k):
            n_clusters = max(n_clusters, labels[i] + 1)
            starts[labels[i] + 2] += 1
        for c in range(n_clusters):
            starts[c + 2] += starts[c + 1]
        for i in range(k):
            c = labels[i] + 1
            members[starts[c]] = i
            starts[c] += 1
    cdef double[::1] new_counts = np.empty(n_clusters), delta = np.empty(d)
    cdef double[:, ::1] new_means = np.empty((n_clusters, d))
    cdef double[:, ::1] new_covs = np.empty((n_clusters, size))
    cdef signed char[::1] compound = np.zeros(n_clusters, dtype=np.int8)
    cdef Py_ssize_t[::1] order = np.empty(n_clusters, dtype=np.intp)
    with nogil:
        for c in range(n_clusters):
            n = starts[c + 1] - starts[c]
            match_moments(
                d, full, n, &members[starts[c]], &counts[0], &means[0, 0], cov, m,
                &new_counts[c], &new_means[c, 0], &new_covs[c, 0], &delta[0],
            )
            compound[c] = n == 1 and members[starts[c]] < m
            for i in range(size if n > 1 else 0):
                compound[c] |= new_covs[c, i] != 0.0
            n_compounds += compound[c]
        n = 0
        for a in range(4):
            for c in range(n_clusters):
                if compound[c] == (a < 2) and (starts[c + 1] - starts[c] > 1) == a % 2:
                    order[n] = c
                    n += 1
    out_members = np.empty(n_clusters, dtype=np.intp)
    out_counts, out_means = np.empty(n_clusters), np.empty((n_clusters, d))
    out_covs, out_weights = np.empty((n_compounds, size)), np.empty((n_compounds, 2))
    out_detail_means = np.empty((n_compounds, 2, d))
    out_merged = np.zeros((n_compounds, 2), dtype=np.bool_)
    out_detail_covs = np.empty((2 * n_compounds, size))
    cdef Py_ssize_t[::1] out_member = out_members
    cdef double[::1] out_count = out_counts
    cdef double[:, ::1] out_mean = out_means, out_cov = out_covs, out_weight = out_weights
    cdef double[:, :, ::1] out_detail_mean = out_detail_means
    cdef unsigned char[:, ::1] merged = out_merged.view(np.uint8)
    cdef double[:, ::1] out_detail_cov = out_detail_covs
    # The extended mixture: two details of each compound, and the Diracs. In the frame as far as it
    # is needed.
    cdef double[::1] extended_counts = np.empty(k + m), weights = np.empty(k + m)
    cdef double[:, ::1] extended_means = np.empty((k + m, d)), points = np.empty((k + m, d))
    cdef double[:, ::1] extended_covs = np.empty((2 * m, size))
    cdef double[:, ::1] point_covs = np.empty((2 * m, size))
    cdef double* extended_cov = &extended_covs[0, 0] if m else NULL
    cdef double* point_cov = &point_covs[0, 0] if m else NULL
    cdef Py_ssize_t[::1] details = np.empty(k + m, dtype=np.intp)
    cdef Py_ssize_t[::1] sides = np.empty(3 * (k + m), dtype=np.intp)
    cdef signed char[::1] side_labels = np.empty(2 * (k + m), dtype=np.int8)
    cdef Py_ssize_t n_scratch = split_size(k + m, d, size)
    cdef double[::1] scratch = np.empty(n_scratch + coordinates_size(d, size))
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    cdef Coordinates frame
    with nogil:
        n = 0
        for i in range(2 * m):
            extended_counts[i] = counts[i // 2] * detail_weights[i // 2, i % 2]
            memcpy(&extended_means[i, 0], &detail_means[i // 2, i % 2, 0], d * sizeof(double))
            if details_merged[i // 2, i % 2]:
                memcpy(&extended_covs[i, 0], &detail_covs[n, 0], size * sizeof(double))
                n += 1
            else:
                memset(&extended_covs[i, 0], 0, size * sizeof(double))
        for i in range(m, k):
            extended_counts[m + i] = counts[i]
            memcpy(&extended_means[m + i, 0], &means[i, 0], d * sizeof(double))
        for i in range(k + m):
            weights[i] = extended_counts[i] / total
        frame = coordinates(
            d, full, &center[0], &spread[0], &matrix[0], &scratch[n_scratch]
        )
        prepare_covariances(frame)
        for to in range(n_clusters):
            c = order[to]
            n = starts[c + 1] - starts[c]
            out_member[to] = members[starts[c]]
            out_count[to] = new_counts[c]
            memcpy(&out_mean[to, 0], &new_means[c, 0], d * sizeof(double))
            if not compound[c]:
                continue
            memcpy(&out_cov[to, 0], &new_covs[c, 0], size * sizeof(double))
            n_details = 0
            for a in range(starts[c], starts[c + 1]):
                i = members[a]
                details[n_details] = 2 * i if i < m else m + i
                n_details += 1
                if i < m:
                    details[n_details] = 2 * i + 1
                    n_details += 1
            n_first, sides[0], sides[1] = 1, details[0], details[1]
            if n > 1:
                for a in range(n_details):
                    i = details[a]
                    map_points(frame, 1, &extended_means[i, 0], &points[i, 0])
                    if i < 2 * m:
                        map_covariances(frame, 1, &extended_covs[i, 0], &point_covs[i, 0])
                n_first = split(
                    n_details, &details[0], d, size, 2 * m, &weights[0], &points[0, 0], point_cov,
                    &axis[0] if n_clusters == 1 else NULL, features,
                    &sides[0], &side_labels[0], &scratch[0], &iwork[0],
                )
            for side in range(2):
                match_moments(
                    d, full, n_details - n_first if side else n_first,
                    &sides[n_first if side else 0], &extended_counts[0], &extended_means[0, 0],
                    extended_cov, 2 * m, &out_weight[to, side], &out_detail_mean[to, side, 0],
                    &out_detail_cov[n_held, 0], &delta[0],
                )
                for i in range(size):
                    merged[to, side] |= out_detail_cov[n_held, i] != 0.0
                n_held += merged[to, side]
                if n > 1:
                    out_weight[to, side] /= new_counts[c]
                else:
                    out_weight[to, side] = detail_weights[details[0] // 2, side]
    return (
        out_members, out_counts, out_means, out_covs, out_weights, out_detail_means, out_merged,
        # What is not used is let go of.
        out_detail_covs[:n_held].copy(),
    )
