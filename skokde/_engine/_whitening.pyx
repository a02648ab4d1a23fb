"""Standardising and whitening a covariance (paper, Sections 3.1 and 3.3), and the map that does."""

import numpy as np

from libc.float cimport DBL_EPSILON
from libc.math cimport fabs, fmax, log, sqrt
from skokde._engine._frame cimport (
    coordinates, Coordinates, coordinates_size, map_covariances, map_points, prepare_covariances,
)
from skokde._engine._gaussian cimport eigh, from_eigen, work_size
from skokde._engine._shapes cimport check_shapes


def standardize(const double[::1] center, const double[:, ::1] cov, double smallest):
    """Spreads of the features, none zero, and their correlation.

    Parameters
    ----------
    center : (d,) array
    cov : (1, d * d) or (1, d) array
    smallest : float
        A variance that is not above it, or that the center's rounding hides, is none.

    Returns
    -------
    spread : (d,) array
        Of a constant feature a tenth of its size, or 0.1 for zero: in the manner of Eq. 18, 1 % of
        its mean square stands for its variance, and follows its unit.
    correlation : array of cov's shape
        Zero for constant features.
    filled : array of cov's shape
        The same with a one on the diagonal for each of them.
    """
    cdef Py_ssize_t d = center.shape[0], size = cov.shape[1], i, j
    cdef bint full = size != d, constant = False
    check_shapes(d, size, cov.shape[0] == 1)
    cdef double value
    spreads, correlations = np.empty(d), np.empty((1, size))
    cdef double[::1] spread = spreads, factor = np.empty(d)
    cdef double[:, ::1] correlation = correlations
    for i in range(d):
        value = cov[0, i * d + i if full else i]
        spread[i] = sqrt(value) if value > smallest else 0.0
        if spread[i] > DBL_EPSILON * fabs(center[i]):
            factor[i] = 1.0 / spread[i]
        else:
            factor[i] = 0.0
            constant = True
            spread[i] = 0.1 * (fabs(center[i]) if fabs(center[i]) > sqrt(smallest) else 1.0)
    for i in range(d):
        if full:
            for j in range(d):
                correlation[0, i * d + j] = cov[0, i * d + j] * factor[i] * factor[j]
        else:
            correlation[0, i] = cov[0, i] * factor[i] * factor[i]
    if not constant:
        return spreads, correlations, correlations
    filled = correlations.copy()
    correlation = filled
    for i in range(d):
        if factor[i] == 0.0:
            correlation[0, i * d + i if full else i] = 1.0
    return spreads, correlations, filled


def eigen(const double[:, ::1] correlation):
    """Eigenvalues and eigenvectors of a symmetric matrix.

    Parameters
    ----------
    correlation : (d, d) array

    Returns
    -------
    values : (d,) array
        In ascending order.
    vectors : (d, d) array
        In rows.
    """
    cdef Py_ssize_t d = correlation.shape[0]
    check_shapes(d, d, correlation.shape[1] == d)
    out_values, out_vectors = np.empty(d), np.array(correlation)
    cdef double[:, ::1] vectors = out_vectors
    cdef double[::1] values = out_values, work = np.empty(work_size(d, d * d))
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    with nogil:
        eigh(d, &vectors[0, 0], &values[0], &work[0], &iwork[0])
    return out_values, out_vectors


def roots(const double[::1] values, const double[:, ::1] vectors, double floor, double share):
    """Symmetric root and inverse root of a correlation, its smallest eigenvalues corrected.

    Parameters
    ----------
    values, vectors : arrays
        Of the correlation, see `eigen`.
    floor, share : float
        Eigenvalues below `floor` times the largest are replaced by `share` times the average of
        the others (Eqs. 16 to 18).

    Returns
    -------
    root, inv_root : (d, d) arrays
    log_det : float
        Log-determinant of the corrected matrix.
    """
    cdef Py_ssize_t d = values.shape[0], i, n_valid = 0
    cdef double log_det = 0.0, valid = 0.0, largest = 0.0, value
    check_shapes(d, d, vectors.shape[0] == d and vectors.shape[1] == d)
    out_root, out_inv = np.empty((d, d)), np.empty((d, d))
    cdef double[:, ::1] root = out_root, inv_root = out_inv, scaled = np.empty((d, d))
    cdef double[::1] factors = np.empty(d)
    with nogil:
        for i in range(d):
            largest = fmax(largest, values[i])
        for i in range(d):
            if values[i] >= floor * largest:
                valid += values[i]
                n_valid += 1
        for i in range(d):
            value = values[i] if values[i] >= floor * largest else share * valid / n_valid
            log_det += log(value)
            factors[i] = sqrt(sqrt(value))
        from_eigen(d, &vectors[0, 0], &factors[0], &scaled[0, 0], &root[0, 0])
        for i in range(d):
            factors[i] = 1.0 / factors[i]
        from_eigen(d, &vectors[0, 0], &factors[0], &scaled[0, 0], &inv_root[0, 0])
    return out_root, out_inv, log_det


cdef mapped(
    const double[:, ::1] rows,
    const double[::1] center,
    const double[::1] spread,
    const double[::1] matrix,
    bint points,
):
    # Points or covariances in a frame.
    cdef Py_ssize_t n = rows.shape[0], d = spread.shape[0], size = matrix.shape[0]
    check_shapes(d, size, center.shape[0] == d and rows.shape[1] == (d if points else size))
    cdef Coordinates frame
    out = np.empty((n, rows.shape[1]))
    cdef double[:, ::1] result = out
    cdef double[::1] scratch = np.empty(coordinates_size(d, size))
    if n:
        with nogil:
            frame = coordinates(d, size != d, &center[0], &spread[0], &matrix[0], &scratch[0])
            if points:
                map_points(frame, n, &rows[0, 0], &result[0, 0])
            else:
                prepare_covariances(frame)
                map_covariances(frame, n, &rows[0, 0], &result[0, 0])
    return out


def points_in(
    const double[:, ::1] X,
    const double[::1] center,
    const double[::1] spread,
    const double[::1] matrix,
):
    """Points ``matrix ((x - center) / spread)`` of any rows x, see `covariances_in`.

    Those that are too far to be told apart are brought nearer.
    """
    return mapped(X, center, spread, matrix, True)


def covariances_in(
    const double[:, ::1] covs,
    const double[::1] center,
    const double[::1] spread,
    const double[::1] matrix,
):
    """Covariances after each feature is divided by its spread, and then the map.

    Parameters
    ----------
    covs : (n, d * d) or (n, d) array
    center, spread : (d,) arrays
    matrix : (d * d,) or (d,) array
        Symmetric, or diagonal.

    Returns
    -------
    array of the same shape as covs
    """
    return mapped(covs, center, spread, matrix, False)
