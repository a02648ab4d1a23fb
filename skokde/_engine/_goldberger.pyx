"""Goldberger's two-means of Gaussians (paper, Section 2.6), in kernel coordinates."""

import numpy as np

from libc.float cimport DBL_MIN
from libc.math cimport fabs, fmax, sqrt
from scipy.linalg.cython_blas cimport dgemm
from skokde._engine._gaussian cimport (
    dot, eigh, factorize, invert, long_dot, match_moments, residue, row_times, thin_factor,
    thin_gram, thin_limit, work_size,
)
from skokde._engine._shapes cimport check_shapes


# What is less, beside the farthest of all, is rounding: discrete features put samples at the mean.
cdef double ROUNDING = 1e-9
# Eigenvalues that differ by a smaller share are equal but for rounding.
cdef double EQUAL = 1e-6
# So are shares of variances, and costs of clusters.
cdef double NEGLIGIBLE = 1e-8
# A feature is cut across in place of another axis if its halves explain this many times the share.
# Where that axis is the feature's, but for rounding, it stays.
cdef double CLEARLY_MORE = 1.01
# Where the halves of a feature explain this share of its variance, or more, there is a gap between
# them. Of a normal distribution they explain 0.64, of a uniform one 0.75, of two values all of it.
cdef double SHARE_OF_GAP = 0.9


cdef Py_ssize_t number_of_leading(Py_ssize_t n, const double* values) noexcept nogil:
    # How many of ascending eigenvalues are as large as the last one, but for rounding.
    cdef Py_ssize_t n_leading = 1
    while n_leading < n and values[n - 1 - n_leading] >= (1.0 - EQUAL) * values[n - 1] > 0.0:
        n_leading += 1
    return n_leading


cdef void axis_among(
    Py_ssize_t d, Py_ssize_t n, const double* axes, double* axis, double* square
) noexcept nogil:
    # Of the directions that n axes of one length span, the one nearest to the axis of a feature: of
    # the feature that is the longest part of one, the first if rounding decides. A component that
    # is all there is has such axes in the coordinates of the whole.
    cdef Py_ssize_t i, j, lead = 0
    for j in range(d):
        square[j] = 0.0
        for i in range(n):
            square[j] += axes[i * d + j] * axes[i * d + j]
        if square[j] > (1.0 + EQUAL) * square[lead]:
            lead = j
    for j in range(d):
        axis[j] = 0.0
    for i in range(n):
        for j in range(d):
            axis[j] += axes[i * d + lead] / sqrt(square[lead]) * axes[i * d + j]


cdef void principal_axis(
    Py_ssize_t d, bint full, const double* cov, double* axis, double* work, int* iwork
) noexcept nogil:
    # Root of the leading eigenvalue times its eigenvector. Its sign is fixed by its largest
    # entry; of entries or variances that are equal but for rounding, the first counts.
    cdef Py_ssize_t i, j, t, rank, n_leading, lead = 0
    cdef double beyond = 1.0 + 1e-8
    cdef double scale = 0.0
    cdef double* vectors = work
    cdef double* values = work + d * d
    cdef double* factor = values + d
    cdef double* axes
    if not full:
        for j in range(d):
            axis[j] = 0.0
            if cov[j] > beyond * cov[lead]:
                lead = j
        axis[lead] = sqrt(cov[lead]) if cov[lead] > 0.0 else 0.0
        return
    for j in range(d):
        axis[j] = 0.0
        scale = fmax(scale, cov[j * d + j])
    rank = thin_factor(d, cov, residue() * scale, factor, values)
    if rank == 0:
        return
    if rank > 0:
        # The rows of the factor, turned to the eigenvectors, have their lengths already.
        thin_gram(d, rank, factor, vectors)
        axes, scale = factor + rank * d, 1.0
        eigh(rank, vectors, values, axes, iwork)
        n_leading = number_of_leading(rank, values)
        vectors += (rank - n_leading) * rank
        for i in range(n_leading):
            for j in range(d):
                axes[i * d + j] = 0.0
            for t in range(rank):
                for j in range(d):
                    axes[i * d + j] += vectors[i * rank + t] * factor[t * d + j]
    else:
        for j in range(d * d):
            vectors[j] = cov[j]
        eigh(d, vectors, values, factor, iwork)
        scale = sqrt(values[d - 1]) if values[d - 1] > 0.0 else 0.0
        n_leading = number_of_leading(d, values)
        axes = vectors + (d - n_leading) * d
    if n_leading > 1:
        axis_among(d, n_leading, axes, axis, factor)
    else:
        for j in range(d):
            axis[j] = axes[j]
            if fabs(axis[j]) > beyond * fabs(axis[lead]):
                lead = j
        if axis[lead] < 0.0:
            scale = -scale
    for j in range(d):
        axis[j] *= scale


def principal_axes(const double[:, ::1] covs, Py_ssize_t d):
    """Leading eigenvectors of covariances, each as long as the root of its eigenvalue."""
    cdef Py_ssize_t i, n = covs.shape[0], size = covs.shape[1]
    cdef bint full = size != d
    check_shapes(d, size, True)
    out = np.empty((n, d))
    cdef double[:, ::1] axes = out
    cdef double[::1] work = np.empty(work_size(d, size))
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    with nogil:
        for i in range(n):
            principal_axis(d, full, &covs[i, 0], &axes[i, 0], &work[0], &iwork[0])
    return out


def widest_gap(
    const double[::1] weights, const double[:, ::1] points, const double[::1] center
):
    """The coordinate axis along which a cut at the center explains most of the variance.

    Parameters
    ----------
    weights : (k,) array, sum one
    points : (k, d) array
    center : (d,) array
        Their mean.

    Returns
    -------
    (d,) array
        Zeros and a one. Of features that are equal but for rounding the first counts.
    """
    cdef Py_ssize_t k = points.shape[0], d = points.shape[1], i, j
    cdef double deviation, largest = DBL_MIN, most = 0.0, share, moment
    check_shapes(d, d, weights.shape[0] == k and center.shape[0] == d)
    out = np.zeros(d)
    cdef double[::1] axis = out, explained = np.empty(d)
    with nogil:
        for i in range(k):
            for j in range(d):
                largest = fmax(largest, fabs(points[i, j] - center[j]))
        for j in range(d):
            share = moment = 0.0
            for i in range(k):
                deviation = points[i, j] - center[j]
                if deviation > ROUNDING * largest:
                    share += weights[i]
                    # Squares of the farthest would overflow.
                    moment += weights[i] * (deviation / largest)
            explained[j] = moment * moment / fmax(share * (1.0 - share), DBL_MIN)
            most = fmax(most, explained[j])
        for j in range(d):
            if explained[j] >= (1.0 - 1e-8) * most:
                axis[j] = 1.0
                break
    return out


cdef void nearly_principal_axis(
    Py_ssize_t d, bint full, const double* cov, double* axis, double* next_axis
) noexcept nogil:
    # A direction of about the largest variance, by power iteration: a cut that is then bettered
    # needs no eigenvectors.
    cdef Py_ssize_t j, lead = 0
    cdef double square, along
    for j in range(1, d):
        if cov[j * d + j if full else j] > cov[lead * d + lead if full else lead]:
            lead = j
    for j in range(d):
        axis[j] = cov[lead * d + j] if full else j == lead
    for _ in range(64 if full else 0):
        square = dot(d, axis, axis)
        if not square > 0.0:
            break
        for j in range(d):
            axis[j] /= sqrt(square)
        row_times(d, axis, cov, next_axis)
        along, square = dot(d, axis, next_axis), dot(d, next_axis, next_axis)
        for j in range(d):
            axis[j] = next_axis[j]
        if along * along > (1.0 - 1e-8) * square:
            break


cdef bint partition(
    Py_ssize_t n, const Py_ssize_t* members, const signed char* labels,
    Py_ssize_t* sides, Py_ssize_t* n_first,
) noexcept nogil:
    # The members of label 0, then those of label 1; false if a side is empty.
    cdef Py_ssize_t a, first = 0, last = n
    for a in range(n):
        if labels[a] == 0:
            sides[first] = members[a]
            first += 1
    n_first[0] = first
    for a in range(n):
        if labels[a] != 0:
            sides[first] = members[a]
            first += 1
    return 0 < n_first[0] < last


cdef double explained_share(
    Py_ssize_t n, const Py_ssize_t* members, const double* weights, const double* along,
    double* variance, double* least,
) noexcept nogil:
    # Which share of the variance along an axis is that between both halves, cut at the mean; of
    # places from there. What is above it by no more than the least is rounding. NaN if nothing
    # varies, or squares overflow.
    cdef double largest = 0.0, total = 0.0, share = 0.0, moment = 0.0, square = 0.0
    cdef Py_ssize_t a
    for a in range(n):
        largest = fmax(largest, fabs(along[a]))
    least[0] = ROUNDING * largest
    for a in range(n):
        total += weights[members[a]]
        square += weights[members[a]] * along[a] * along[a]
        if along[a] > least[0]:
            share += weights[members[a]]
            moment += weights[members[a]] * along[a]
    variance[0] = square / total
    return moment * moment / (share * (1.0 - share / total) * square)


cdef Py_ssize_t most_divided_feature(
    Py_ssize_t n, const Py_ssize_t* members, Py_ssize_t d, bint full, const double* weights,
    const double* means, const double* center, const double* axis, const double* features,
    bint* has_gap, double* least, double* along,
) noexcept nogil:
    # The feature whose halves explain the largest share of its variance; -1 if those along another
    # axis explain about as much. Of features of two values each the widest, and then the first. A
    # gap is wider than the kernel.
    cdef Py_ssize_t a, i, j, t, lead = -1
    cdef double most, share, variance, above, widest = 0.0
    cdef bint more, as_much
    for a in range(n):
        along[a] = 0.0
        for t in range(d):
            along[a] += axis[t] * (means[members[a] * d + t] - center[t])
    most = fmax(explained_share(n, members, weights, along, &variance, &above), 0.0)
    most *= CLEARLY_MORE
    for j in range(d):
        for a in range(n):
            i = members[a] * d
            if full:
                along[a] = 0.0
                for t in range(d):
                    along[a] += features[j * d + t] * (means[i + t] - center[t])
            else:
                along[a] = means[i + j] - center[j]
        share = explained_share(n, members, weights, along, &variance, &above)
        if full:
            variance /= dot(d, features + j * d, features + j * d)
        if not variance > NEGLIGIBLE:  # beside that of the kernel it is rounding
            continue
        more = share > (1.0 + NEGLIGIBLE) * most
        as_much = lead >= 0 and share > (1.0 - NEGLIGIBLE) * most
        if more or as_much and variance > (1.0 + NEGLIGIBLE) * widest:
            most, lead, widest, least[0] = share, j, variance, above
    has_gap[0] = (
        lead >= 0
        and most > (1.0 - NEGLIGIBLE) * SHARE_OF_GAP
        and widest > 1.0 - NEGLIGIBLE
    )
    return lead


cdef Py_ssize_t split_size(Py_ssize_t n, Py_ssize_t d, Py_ssize_t size) noexcept nogil:
    # Doubles of scratch that `split` takes for up to n members.
    return n + 6 * d + 2 * size + work_size(d, size)


cdef Py_ssize_t split(
    Py_ssize_t n, const Py_ssize_t* members, Py_ssize_t d, Py_ssize_t size, Py_ssize_t m,
    const double* weights, const double* means, const double* covs, const double* start,
    const double* features, Py_ssize_t* sides, signed char* labels, double* scratch, int* iwork,
) noexcept nogil:
    # See `two_means`. The members go to `sides`, and how many are in the first cluster is returned;
    # `sides` has room for 3 n, and `labels` for 2 n.
    cdef Py_ssize_t a, j, n_first = 0, n_other, feature = -1
    cdef bint full = size != d, has_gap = False
    cdef double* along = scratch
    cdef double* center = along + n
    cdef double* axis = center + d
    cdef double* cov = axis + d
    cdef double* work = axis + d
    cdef double count, cost, other, least = 0.0
    if n == 2:
        sides[0], sides[1] = members[0], members[1]
        return 1
    match_moments(
        d, full, n, members, weights, means, covs, m, &count, center, cov, cov + size
    )
    if start == NULL:
        nearly_principal_axis(d, full, cov, axis, cov + size)
    else:
        for j in range(d):
            axis[j] = start[j]
    if features != NULL:
        feature = most_divided_feature(
            n, members, d, full, weights, means, center, axis, features, &has_gap, &least,
            along,
        )
    if not has_gap:
        n_first = best_clusters(
            n, members, d, size, m, weights, means, covs, center, axis, 0.0, sides, labels, &cost,
            work, iwork,
        )
    if feature >= 0:
        for j in range(d):
            axis[j] = features[feature * d + j] if full else j == feature
        n_other = best_clusters(
            n, members, d, size, m, weights, means, covs, center, axis, least, sides + n, labels,
            &other, work, iwork,
        )
        # Logarithms of determinants near one have no more digits than one.
        if has_gap or other < cost - NEGLIGIBLE * (cost + count):
            n_first = n_other
            for a in range(n):
                sides[a] = sides[n + a]
    return n_first


cdef Py_ssize_t best_clusters(
    Py_ssize_t n, const Py_ssize_t* members, Py_ssize_t d, Py_ssize_t size, Py_ssize_t m,
    const double* weights, const double* means, const double* covs, const double* center,
    const double* axis, double least, Py_ssize_t* sides, signed char* labels, double* total_cost,
    double* scratch, int* iwork,
) noexcept nogil:
    # Two clusters, of which the first ones are cut across an axis, at the center or a little above:
    # their cost is the logarithms of their smoothed determinants, weighted, but for what is the
    # same for all clusters.
    cdef Py_ssize_t a, i, j, c, n_first = 0, n_next = 0
    cdef bint full = size != d, same
    cdef Py_ssize_t* proposed = sides + n
    cdef signed char* label = labels
    cdef signed char* proposal = labels + n
    cdef double* delta = scratch
    cdef double* u = delta + d
    cdef double* mean = u + d  # of both clusters, as the next
    cdef double* precision = mean + 2 * d
    cdef double* work = precision + 2 * size
    cdef double[2] trace, log_det, cost, count
    for a in range(n):
        for j in range(d):
            delta[j] = means[members[a] * d + j] - center[j]
        label[a] = dot(d, delta, axis) > least
    if not partition(n, members, label, sides, &n_first):
        # Equal means: the first component alone, the others follow by KL.
        for a in range(n):
            label[a] = a > 0
        partition(n, members, label, sides, &n_first)
    # The cost falls with each round, so only rounding could keep two assignments alternating.
    for _ in range(100):
        for c in range(2):
            match_moments(
                d, full, n_first if c == 0 else n - n_first, sides + c * n_first, weights, means,
                covs, m, &count[c], mean + c * d, precision + c * size, delta,
            )
            invert_smoothed(
                d, full, n_first if c == 0 else n - n_first, precision + c * size, &log_det[c],
                work, iwork,
            )
            trace[c] = 0.0
            for j in range(d):
                trace[c] += precision[c * size + (j * d + j if full else j)]
        total_cost[0] = count[0] * log_det[0] + count[1] * log_det[1]
        same = True
        for a in range(n):
            i = members[a]
            for c in range(2):
                for j in range(d):
                    delta[j] = means[i * d + j] - mean[c * d + j]
                if full:
                    row_times(d, delta, precision + c * size, u)
                else:
                    for j in range(d):
                        u[j] = precision[c * size + j] * delta[j]
                cost[c] = log_det[c] + trace[c] + dot(d, delta, u)
                if i < m:
                    if full:
                        cost[c] += long_dot(size, precision + c * size, covs + i * size)
                    else:
                        cost[c] += dot(d, precision + c * d, covs + i * d)
            proposal[a] = cost[1] < cost[0]
            same = same and proposal[a] == label[a]
        if same or not partition(n, members, proposal, proposed, &n_next):
            break
        label, proposal = proposal, label
        for a in range(n):
            sides[a] = proposed[a]
        n_first = n_next
    return n_first


def two_means(
    const Py_ssize_t[::1] members,
    const double[::1] weights,
    const double[:, ::1] means,
    const double[:, ::1] covs,
    const double[::1] start=None,
    const double[::1] feature_axes=None,
):
    """Split a sub-mixture, smoothed by H = I, into two clusters.

    The first assignment cuts at the mean across the principal axis; then each component goes to
    the cluster whose moment-matched Gaussian is nearer by KL(component || cluster), until an
    assignment repeats.

    Features may be looked at as well. If there is one whose halves explain more of its variance
    than those along this axis do, it is cut instead where it has a gap, or else where the clusters
    that are found from there cost less.

    Parameters
    ----------
    members : (n,) array of intp, n >= 2
    weights : (k,) array
    means : (k, d) array
    covs : (m, d * d) or (m, d) array
        Flattened sample covariances of the first m components; the others are Diracs.
    start : (d,) array, default=None
        The axis to cut across first, instead of the principal one.
    feature_axes : (d * d,) or (d,) array, default=None
        Directions in which the features are, one after the other. Of diagonal covariances they are
        those of the coordinates.

    Returns
    -------
    first, second : arrays of intp
        The members of the clusters, in the order given; neither is empty.
    """
    cdef Py_ssize_t n = members.shape[0], d = means.shape[1]
    cdef Py_ssize_t m = covs.shape[0], size = covs.shape[1], n_first
    check_shapes(
        d, size,
        n > 1 and m <= weights.shape[0] == means.shape[0]
        and (start is None or start.shape[0] == d)
        and (feature_axes is None or feature_axes.shape[0] == size),
    )
    cdef double[::1] scratch = np.empty(split_size(n, d, size))
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    cdef signed char[::1] labels = np.empty(2 * n, dtype=np.int8)
    out = np.empty(3 * n, dtype=np.intp)
    cdef Py_ssize_t[::1] sides = out
    cdef const double* axis = &start[0] if start is not None else NULL
    cdef const double* features = &feature_axes[0] if feature_axes is not None else NULL
    with nogil:
        n_first = split(
            n, &members[0], d, size, m, &weights[0], &means[0, 0], &covs[0, 0] if m else NULL,
            axis, features, &sides[0], &labels[0], &scratch[0], &iwork[0],
        )
    return out[:n_first].copy(), out[n_first:n].copy()


cdef int invert_thin(
    Py_ssize_t d, Py_ssize_t rank, const double* factor, double* inverse, double* log_det,
    double* work,
) noexcept nogil:
    # (I + F^T F)^-1 = I - F^T (I + F F^T)^-1 F, Woodbury's identity, F the rows of the factor
    cdef Py_ssize_t i
    cdef int n = <int>d, r = <int>rank
    cdef char no = b"N", yes = b"T"
    cdef double one = 1.0, zero = 0.0, minus = -1.0
    cdef double* inner = work
    cdef double* product = work + rank * rank
    log_det[0] = 0.0
    if rank > 0:
        thin_gram(d, rank, factor, inner)
        for i in range(rank):
            inner[i * rank + i] += 1.0
        if invert(rank, inner, log_det) != 0:
            return 1
        dgemm(&no, &no, &n, &r, &r, &one, <double*>factor, &n, inner, &r, &zero, product, &n)
    for i in range(d * d):
        inverse[i] = 0.0
    for i in range(d):
        inverse[i * d + i] = 1.0
    if rank > 0:
        dgemm(&no, &yes, &n, &n, &r, &minus, product, &n, <double*>factor, &n, &one, inverse, &n)
    return 0


cdef void invert_smoothed(
    Py_ssize_t d, bint full, Py_ssize_t n, double* cov, double* log_det, double* work, int* iwork
) noexcept nogil:
    # cov := (cov + I)^-1 of a cluster of n components
    cdef Py_ssize_t i, rank, size = d * d if full else d
    cdef int order = <int>d
    cdef char no = b"N"
    cdef double one = 1.0, zero = 0.0
    cdef double* copy = work
    cdef double* inv_root = work + size
    cdef double* root = work + 2 * size
    if full and n <= thin_limit(d):
        rank = thin_factor(d, cov, residue(), work, work + thin_limit(d) * d)
        if rank >= 0 and invert_thin(d, rank, work, cov, log_det, work + rank * d) == 0:
            return
    if full:
        for i in range(d * d):
            copy[i] = cov[i]
        for i in range(d):
            cov[i * d + i] += 1.0
        if invert(d, cov, log_det) == 0:
            return
        # Rounding of a huge covariance has made it indefinite: the eigenvalues mend that.
        log_det[0] = factorize(d, full, copy, inv_root, root, work + 3 * size, iwork)
        dgemm(&no, &no, &order, &order, &order, &one, inv_root, &order, inv_root, &order, &zero,
              cov, &order)
    else:
        log_det[0] = factorize(d, full, cov, inv_root, root, NULL, NULL)
        for i in range(d):
            cov[i] = inv_root[i] * inv_root[i]
