"""Log-densities of the KDE in kernel coordinates."""

import numpy as np

from libc.math cimport exp, fmax, log, INFINITY, M_PI
from scipy.linalg.cython_blas cimport dgemm


def log_density(
    const double[:, ::1] points,
    const double[::1] log_weights,
    const double[:, ::1] means,
    const double[:, ::1] inv_roots,
    const double[::1] log_dets,
):
    """Log-densities of a mixture with covariances S_i + I, in nats.

    Parameters
    ----------
    points : (n, d) array
    log_weights : (k,) array
    means : (k, d) array
    inv_roots : (m, d * d) or (m, d) array
        Symmetric (S_i + I)^(-1/2) of the first m components; the others are Diracs.
    log_dets : (m,) array

    Returns
    -------
    (n,) array
        Not NaN and below +inf for any points; -inf where the density is zero.
    """
    cdef Py_ssize_t n = points.shape[0], d = points.shape[1], k = means.shape[0]
    cdef Py_ssize_t m = inv_roots.shape[0], block = 64, n_blocks = (n + 63) // 64
    cdef Py_ssize_t b, first, size, a, i, j
    cdef bint full = inv_roots.shape[1] != d
    cdef int rows, columns = <int>d
    cdef char no = b"N"
    cdef double one = 1.0, zero = 0.0, constant = -0.5 * d * log(2.0 * M_PI), value, square, peak
    cdef double[:, ::1] delta = np.empty((block, d)), white = np.empty((block, d))
    cdef double[:, ::1] terms = np.empty((block, k))
    out = np.empty(n)
    cdef double[::1] result = out
    with nogil:
        for b in range(n_blocks):
            first = b * block
            size = min(block, n - first)
            rows = <int>size
            for i in range(k):
                if i < m and full:
                    for a in range(size):
                        for j in range(d):
                            delta[a, j] = points[first + a, j] - means[i, j]
                    dgemm(&no, &no, &columns, &rows, &columns, &one, <double*>&inv_roots[i, 0],
                          &columns, &delta[0, 0], &columns, &zero, &white[0, 0], &columns)
                for a in range(size):
                    square = 0.0
                    if i >= m:
                        for j in range(d):
                            value = points[first + a, j] - means[i, j]
                            square += value * value
                    elif full:
                        for j in range(d):
                            square += white[a, j] * white[a, j]
                        square += log_dets[i]
                    else:
                        for j in range(d):
                            value = (points[first + a, j] - means[i, j]) * inv_roots[i, j]
                            square += value * value
                        square += log_dets[i]
                    terms[a, i] = log_weights[i] + constant - 0.5 * square
            for a in range(size):
                peak = -INFINITY
                for i in range(k):
                    peak = fmax(peak, terms[a, i])
                result[first + a] = peak
                if peak == -INFINITY:
                    continue
                value = 0.0
                for i in range(k):
                    if terms[a, i] >= peak - 40.0:
                        value += exp(terms[a, i] - peak)
                result[first + a] = peak + log(value)
    return out
