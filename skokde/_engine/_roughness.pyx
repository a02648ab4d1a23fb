"""The roughness functional of the plug-in bandwidth (paper, Section 2.2; Wand & Jones 1995)."""

import numpy as np

from libc.math cimport exp, log, log1p, sqrt
from scipy.linalg.cython_blas cimport dgemm
from skokde._engine._gaussian cimport (
    dot, invert, long_dot, multiply, residue, row_times, thin_factor, thin_gram, thin_limit,
)
from skokde._engine._shapes cimport check_shapes


cdef inline double bracket(
    bint printed, double trace, double trace2, double m, double uu, double uau,
) noexcept nogil:
    # With F = I, A = (G + S_i + S_j)^-1 and u = A D: m = D'AD, uu = D'A^2D, uau = D'A^3D.
    if printed:
        return 2.0 * trace2 * (1.0 - 2.0 * m) + trace * trace * (1.0 - m) * (1.0 - m)
    return 2.0 * (trace2 - 2.0 * uau) + (trace - uu) * (trace - uu)


def roughness(
    const double[::1] weights,
    const double[:, ::1] means,
    const double[:, ::1] covs,
    double pilot,
    bint printed,
):
    """R(p, I) of a mixture smoothed by the pilot bandwidth, over that of a pilot kernel's peak.

    Parameters
    ----------
    weights : (k,) array, sum one
    means : (k, d) array
        In whitened space.
    covs : (m, d * d) or (m, d) array
        Flattened covariances of the first m components; the others are Diracs.
    pilot : float
        The pilot bandwidth is G = pilot * I.
    printed : bool
        The bracket as the paper prints it (Eq. 5), right for d = 1 only, or the right one.

    Returns
    -------
    float
        R times (2 pi pilot)^(d / 2), which neither under- nor overflows.
    """
    cdef Py_ssize_t k = means.shape[0], d = means.shape[1], m = covs.shape[0], size = covs.shape[1]
    cdef Py_ssize_t i, j, n_rows = 0, n_own = 0
    cdef bint full = size != d
    check_shapes(d, size, m <= k == weights.shape[0])
    cdef double total = 0.0, value, log_det, trace, trace2, nothing
    cdef double[:, ::1] inverses, traces = np.empty((max(m, 1), 3))
    cdef double[::1] pair = np.empty(size), scratch = np.empty(4 * d), norms = np.zeros(k)
    cdef double[::1] log_weights = np.empty(k)
    # Factors of the thin covariances, one after the other, and the products of each one's rows
    # with one another. Diracs have none; the rank of a covariance that is not thin is -1.
    cdef Py_ssize_t limit = thin_limit(d) if full else 0
    cdef double[:, ::1] factors = np.empty((m * limit + 1, d))
    cdef double[::1] own = np.empty(m * limit * limit + 1), cross, inner
    cdef double[::1] alone = np.empty(limit * limit + 1)
    cdef double log_det_alone
    cdef Py_ssize_t[::1] ranks = np.zeros(k, dtype=np.intp), starts = np.zeros(k, dtype=np.intp)
    cdef Py_ssize_t[::1] own_starts = np.zeros(k, dtype=np.intp)
    with nogil:
        for i in range(m):
            norms[i] = sqrt(long_dot(size, &covs[i, 0], &covs[i, 0]))
            starts[i], own_starts[i], ranks[i] = n_rows, n_own, -1
            if full:
                ranks[i] = thin_factor(
                    d, &covs[i, 0], residue() * pilot, &factors[n_rows, 0], &scratch[0]
                )
            if ranks[i] > 0:
                thin_gram(d, ranks[i], &factors[n_rows, 0], &own[n_own])
                n_rows += ranks[i]
                n_own += ranks[i] * ranks[i]
    cross, inner = np.empty(n_rows * limit + 1), np.empty(4 * limit * limit + 1)
    inverses = np.empty((max(m, 1), size))
    with nogil:
        for i in range(k):
            if i >= m:
                trace, trace2, log_det = d / pilot, d / (pilot * pilot), 0.0
                value = bracket(printed, trace, trace2, 0.0, 0.0, 0.0)
            elif ranks[i] >= 0:
                for j in range(d):
                    scratch[j] = 0.0
                thin_sum(ranks[i], &own[own_starts[i]], 2.0, 0, NULL, NULL, pilot, &inner[0])
                invert(ranks[i], &inner[0], &log_det)
                value = thin_term(
                    d, printed, ranks[i], &inner[0], log_det, &scratch[0], 0.0, pilot, &scratch[d]
                )
                log_det = 0.0
            else:
                trace_inverse(
                    d, full, &covs[i, 0], &covs[i, 0], pilot, &pair[0], &trace, &trace2, &log_det
                )
                trace_inverse(
                    d, full, &covs[i, 0], NULL, pilot, &inverses[i, 0],
                    &traces[i, 0], &traces[i, 1], &traces[i, 2],
                )
                value = bracket(printed, trace, trace2, 0.0, 0.0, 0.0)
            total += weights[i] * weights[i] * value * exp(-0.5 * log_det)
        # What K^2 pairs of components that are far apart add may be lost to rounding.
        nothing = log(total) - 45.0
        for i in range(k):
            log_weights[i] = log(weights[i])
        for i in range(k):
            log_det_alone = 0.0
            if ranks[i] > 0:
                thin_products(
                    d, ranks[i], &factors[starts[i], 0], n_rows - starts[i], &cross[0]
                )
                # With any Dirac.
                thin_sum(ranks[i], &own[own_starts[i]], 1.0, 0, NULL, NULL, pilot, &alone[0])
                invert(ranks[i], &alone[0], &log_det_alone)
            for j in range(i + 1, k):
                if negligible(
                    d, &means[i, 0], &means[j, 0], norms[i] + norms[j], pilot,
                    nothing - log_weights[i] - log_weights[j], &scratch[0],
                ):
                    continue
                if i < m and ranks[i] >= 0 and ranks[j] >= 0:
                    times_delta(d, ranks[i], &factors[starts[i], 0], &scratch[0], &scratch[d])
                    if ranks[j] > 0:
                        thin_sum(
                            ranks[i], &own[own_starts[i]], 1.0, ranks[j], &own[own_starts[j]],
                            &cross[ranks[i] * (starts[j] - starts[i])], pilot, &inner[0],
                        )
                        invert(ranks[i] + ranks[j], &inner[0], &log_det)
                        times_delta(
                            d, ranks[j], &factors[starts[j], 0], &scratch[0],
                            &scratch[d + ranks[i]],
                        )
                    value = thin_term(
                        d, printed, ranks[i] + ranks[j], &inner[0] if ranks[j] > 0 else &alone[0],
                        log_det if ranks[j] > 0 else log_det_alone, &scratch[d],
                        dot(d, &scratch[0], &scratch[0]), pilot, &scratch[2 * d],
                    )
                elif j < m:
                    trace_inverse(
                        d, full, &covs[i, 0], &covs[j, 0], pilot, &pair[0],
                        &trace, &trace2, &log_det,
                    )
                    value = pair_term(
                        d, full, printed, &pair[0], trace, trace2, log_det, pilot, &scratch[0]
                    )
                elif i < m:
                    value = pair_term(
                        d, full, printed, &inverses[i, 0], traces[i, 0], traces[i, 1],
                        traces[i, 2], pilot, &scratch[0],
                    )
                else:
                    value = pair_term(
                        d, full, printed, NULL, d / pilot, d / (pilot * pilot), 0.0, pilot,
                        &scratch[0],
                    )
                total += 2.0 * weights[i] * weights[j] * value
    return total


cdef void thin_products(
    Py_ssize_t d, Py_ssize_t rank, const double* factor, Py_ssize_t n_rows, double* out
) noexcept nogil:
    # (n_rows, rank): of the rows of factor and those that follow with the first ones.
    cdef int n = <int>d, r = <int>rank, rows = <int>n_rows
    cdef double one = 1.0, zero = 0.0
    cdef char no = b"N", yes = b"T"
    dgemm(&yes, &no, &r, &rows, &n, &one, <double*>factor, &n, <double*>factor, &n, &zero, out, &r)


cdef void thin_sum(
    Py_ssize_t rank1, const double* own1, double scale, Py_ssize_t rank2, const double* own2,
    const double* cross, double pilot, double* inner,
) noexcept nogil:
    # pilot I + F F^T for the rows F of two factors; the first may be scaled
    cdef Py_ssize_t a, b, rank = rank1 + rank2
    for a in range(rank1):
        for b in range(rank1):
            inner[a * rank + b] = scale * own1[a * rank1 + b]
    for a in range(rank2):
        for b in range(rank1):
            inner[(rank1 + a) * rank + b] = inner[b * rank + rank1 + a] = cross[a * rank1 + b]
        for b in range(rank2):
            inner[(rank1 + a) * rank + rank1 + b] = own2[a * rank2 + b]
    for a in range(rank):
        inner[a * rank + a] += pilot


cdef inline void times_delta(
    Py_ssize_t d, Py_ssize_t rank, const double* factor, const double* delta, double* out
) noexcept nogil:
    cdef Py_ssize_t a
    for a in range(rank):
        out[a] = long_dot(d, factor + a * d, delta)


cdef double thin_term(
    Py_ssize_t d, bint printed, Py_ssize_t rank, const double* inverse, double log_det,
    const double* y, double square, double pilot, double* z,
) noexcept nogil:
    # N(D; 0, A^-1) times the bracket where S_i + S_j = F^T F with few rows: from y = F D,
    # square = D'D, and E, the inverse of pilot I + F F^T, and the logarithm of that one's
    # determinant. With z = E y Woodbury's identity is A = (I - F^T E F) / pilot, so that
    # F A D = z; the eigenvalues of A are those of E and 1 / pilot.
    cdef Py_ssize_t a
    cdef double trace, trace2, m, uu, uau
    log_det -= rank * log(pilot)
    row_times(rank, y, inverse, z)
    trace = (d - rank) / pilot
    trace2 = trace / pilot + long_dot(rank * rank, inverse, inverse)
    for a in range(rank):
        trace += inverse[a * rank + a]
    m = (square - dot(rank, y, z)) / pilot
    uu = (m - dot(rank, z, z)) / pilot
    row_times(rank, z, inverse, z + rank)
    uau = (uu - dot(rank, z, z + rank)) / pilot
    return exp(-0.5 * (m + log_det)) * bracket(printed, trace, trace2, m, uu, uau)


cdef bint negligible(
    Py_ssize_t d, const double* mean1, const double* mean2, double norm, double pilot,
    double nothing, double* delta,
) noexcept nogil:
    # Whether the logarithm of a pair's term is surely below `nothing`, from bounds of the
    # eigenvalues of A: at most 1 / pilot, at least 1 / (pilot + norm). Leaves the difference of
    # the means in delta.
    cdef Py_ssize_t j
    cdef double square = 0.0, bound
    for j in range(d):
        delta[j] = mean1[j] - mean2[j]
        square += delta[j] * delta[j]
    bound = 2.0 * log(2.0 * d / pilot) - 0.5 * square / (pilot + norm)
    return bound < nothing and bound + 2.0 * log1p(square / pilot) < nothing


cdef double pair_term(
    Py_ssize_t d, bint full, bint printed, const double* a, double trace, double trace2,
    double log_det, double pilot, double* scratch,
) noexcept nogil:
    # N(D; 0, A^-1) times the bracket; a NULL A is I / pilot.
    cdef Py_ssize_t j
    cdef const double* delta = scratch
    cdef double* u = scratch + d
    cdef double* au = scratch + 2 * d
    cdef double m
    if a != NULL and full:
        row_times(d, delta, a, u)
        row_times(d, u, a, au)
    else:
        for j in range(d):
            u[j] = delta[j] * (1.0 / pilot if a == NULL else a[j])
            au[j] = u[j] * (1.0 / pilot if a == NULL else a[j])
    m = dot(d, delta, u)
    return exp(-0.5 * (m + log_det)) * bracket(
        printed, trace, trace2, m, dot(d, u, u), dot(d, u, au)
    )


cdef void trace_inverse(
    Py_ssize_t d, bint full, const double* cov1, const double* cov2, double pilot,
    double* inverse, double* trace, double* trace2, double* log_det,
) noexcept nogil:
    # A = (G + cov1 + cov2)^-1, its traces, and log|G^-1 A^-1|
    cdef Py_ssize_t i, size = d * d if full else d
    cdef double value, product = 1.0
    trace[0] = 0.0
    trace2[0] = 0.0
    log_det[0] = 0.0
    for i in range(size):
        inverse[i] = (cov1[i] + (cov2[i] if cov2 != NULL else 0.0)) / pilot
    if full:
        for i in range(d):
            inverse[i * d + i] += 1.0
        if invert(d, inverse, log_det) != 0:
            # Only rounding of huge covariances comes here; such a pair adds nothing.
            log_det[0] = 1e300
            for i in range(size):
                inverse[i] = 0.0
    else:
        for i in range(d):
            value = inverse[i] + 1.0
            multiply(value, &product, log_det)
            inverse[i] = 1.0 / value
        log_det[0] += log(product)
    for i in range(size):
        inverse[i] /= pilot
        trace2[0] += inverse[i] * inverse[i]
    if full:
        for i in range(d):
            trace[0] += inverse[i * d + i]
    else:
        for i in range(d):
            trace[0] += inverse[i]
