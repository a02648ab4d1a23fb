"""The roughness functional of the plug-in bandwidth (paper, Section 2.2; Wand & Jones 1995)."""

import numpy as np

from libc.math cimport exp, log
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
    cdef Py_ssize_t i, j, c
    cdef bint full = size != d
    cdef double total = 0.0, term, q, value, log_det, trace, trace2, uu, uau
    cdef double[:, ::1] inverses = np.empty((max(m, 1), size))
    cdef double[:, ::1] moments = np.empty((max(m, 1), 3))
    cdef double[::1] pair = np.empty(size), delta = np.empty(d), u = np.empty(d), au = np.empty(d)
    cdef const double* a
    with nogil:
        for i in range(m):
            trace_inverse(
                d, full, &covs[i, 0], NULL, pilot, &inverses[i, 0],
                &moments[i, 0], &moments[i, 1], &moments[i, 2],
            )
        for i in range(k):
            for j in range(i, k):
                for c in range(d):
                    delta[c] = means[i, c] - means[j, c]
                if i >= m:
                    q = dot(d, &delta[0], &delta[0]) / pilot
                    if q > 1000.0:
                        continue
                    value = bracket(
                        printed, d / pilot, d / (pilot * pilot), q, q / pilot, q / pilot / pilot
                    )
                    term = exp(-0.5 * q)
                else:
                    if j >= m:
                        a = &inverses[i, 0]
                        trace, trace2, log_det = moments[i, 0], moments[i, 1], moments[i, 2]
                    else:
                        trace_inverse(
                            d, full, &covs[i, 0], &covs[j, 0], pilot, &pair[0],
                            &trace, &trace2, &log_det,
                        )
                        a = &pair[0]
                    if full:
                        symmetric_times(d, a, &delta[0], &u[0])
                        symmetric_times(d, a, &u[0], &au[0])
                    else:
                        for c in range(d):
                            u[c] = a[c] * delta[c]
                            au[c] = a[c] * u[c]
                    q = dot(d, &delta[0], &u[0])
                    uu = dot(d, &u[0], &u[0])
                    uau = dot(d, &u[0], &au[0])
                    value = bracket(printed, trace, trace2, q, uu, uau)
                    term = exp(-0.5 * (q + log_det))
                total += weights[i] * weights[j] * term * value * (1.0 if i == j else 2.0)
    return total


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
