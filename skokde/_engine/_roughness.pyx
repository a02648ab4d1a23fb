"""The roughness functional of the plug-in bandwidth (paper, Section 2.2; Wand & Jones 1995)."""

import numpy as np

from libc.math cimport exp, log, sqrt
from skokde._engine._gaussian cimport dot, invert, symmetric_times


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
    cdef Py_ssize_t i, j
    cdef bint full = size != d
    cdef double total = 0.0, value, log_det, trace, trace2, nothing, bound
    cdef double[:, ::1] inverses = np.empty((max(m, 1), size)), traces = np.empty((max(m, 1), 3))
    cdef double[::1] pair = np.empty(size), scratch = np.empty(3 * d), norms = np.empty(k)
    with nogil:
        for i in range(k):
            if i < m:
                trace_inverse(
                    d, full, &covs[i, 0], &covs[i, 0], pilot, &pair[0], &trace, &trace2, &log_det
                )
                trace_inverse(
                    d, full, &covs[i, 0], NULL, pilot, &inverses[i, 0],
                    &traces[i, 0], &traces[i, 1], &traces[i, 2],
                )
                norms[i] = sqrt(dot(size, &covs[i, 0], &covs[i, 0]))
            else:
                trace, trace2, log_det, norms[i] = d / pilot, d / (pilot * pilot), 0.0, 0.0
            value = bracket(printed, trace, trace2, 0.0, 0.0, 0.0)
            total += weights[i] * weights[i] * value * exp(-0.5 * log_det)
        # What K^2 pairs of components that are far apart add may be lost to rounding.
        nothing = log(total) - 45.0
        for i in range(k):
            for j in range(i + 1, k):
                bound = log_bound(
                    d, &means[i, 0], &means[j, 0], norms[i] + norms[j], pilot, &scratch[0]
                )
                if log(weights[i] * weights[j]) + bound < nothing:
                    continue
                if i < m and j < m:
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


cdef double log_bound(
    Py_ssize_t d, const double* mean1, const double* mean2, double norm, double pilot,
    double* delta,
) noexcept nogil:
    # The logarithm of what a pair's term is at most, from bounds of the eigenvalues of A: at most
    # 1 / pilot, at least 1 / (pilot + norm). Leaves the difference of the means in delta.
    cdef Py_ssize_t j
    cdef double square = 0.0, least
    for j in range(d):
        delta[j] = mean1[j] - mean2[j]
        square += delta[j] * delta[j]
    least = square / (pilot + norm)
    return 2.0 * log(2.0 * d * (1.0 + square / pilot) / pilot) - 0.5 * least


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
        symmetric_times(d, a, delta, u)
        symmetric_times(d, a, u, au)
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
    cdef double value
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
            log_det[0] += log(value)
            inverse[i] = 1.0 / value
    for i in range(size):
        inverse[i] /= pilot
        trace2[0] += inverse[i] * inverse[i]
    if full:
        for i in range(d):
            trace[0] += inverse[i * d + i]
    else:
        for i in range(d):
            trace[0] += inverse[i]
