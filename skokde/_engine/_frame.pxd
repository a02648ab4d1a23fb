# The coordinates of a `Frame`, for the compiled functions.

from libc.math cimport fabs, fmax, sqrt
from scipy.linalg.cython_blas cimport dgemm
from skokde._engine._gaussian cimport row_times


cdef struct Coordinates:
    Py_ssize_t d
    bint full
    const double* center
    const double* spread
    const double* matrix
    double* whole  # the map of differences: standardised, then turned; see `prepare_covariances`
    double* scratch


cdef inline Py_ssize_t coordinates_size(Py_ssize_t d, Py_ssize_t size) noexcept nogil:
    # Doubles of scratch that coordinates keep.
    return 2 * size + d


cdef inline Coordinates coordinates(
    Py_ssize_t d, bint full, const double* center, const double* spread, const double* matrix,
    double* scratch,
) noexcept nogil:
    cdef Coordinates frame
    frame.d, frame.full = d, full
    frame.center, frame.spread, frame.matrix = center, spread, matrix
    frame.whole, frame.scratch = scratch, scratch + (d * d if full else d)
    return frame


cdef inline void prepare_covariances(Coordinates frame) noexcept nogil:
    # What `map_covariances` takes besides; points do without.
    cdef Py_ssize_t i, j, d = frame.d
    for i in range(d):
        if frame.full:
            for j in range(d):
                frame.whole[i * d + j] = 1.0 / frame.spread[i] * frame.matrix[i * d + j]
        else:
            frame.whole[i] = 1.0 / frame.spread[i] * frame.matrix[i]


cdef inline void map_points(
    Coordinates frame, Py_ssize_t n, const double* X, double* out
) noexcept nogil:
    # Those that are too far to be told apart are brought nearer: the square of a standardised
    # coordinate may overflow, a sum of d coordinates must not.
    cdef Py_ssize_t i, j, d = frame.d
    cdef double z, farthest = 1e160
    for i in range(n):
        for j in range(d):
            z = (X[i * d + j] - frame.center[j]) / frame.spread[j]
            z = farthest if z > farthest else z
            frame.scratch[j] = -farthest if z < -farthest else z
        if frame.full:
            row_times(d, frame.scratch, frame.matrix, out + i * d)
        else:
            for j in range(d):
                out[i * d + j] = frame.scratch[j] * frame.matrix[j]


cdef inline double map_covariance(Coordinates frame, const double* cov, double* out) noexcept nogil:
    # One covariance; its trace is returned.
    cdef Py_ssize_t j, d = frame.d
    cdef int order = <int>d
    cdef char no = b"N", yes = b"T"
    cdef double one = 1.0, zero = 0.0, trace = 0.0
    if frame.full:  # column-major: whole (cov whole^T)
        dgemm(&no, &no, &order, &order, &order, &one, frame.whole, &order, <double*>cov, &order,
              &zero, frame.scratch, &order)
        dgemm(&no, &yes, &order, &order, &order, &one, frame.scratch, &order, frame.whole, &order,
              &zero, out, &order)
    else:
        for j in range(d):
            out[j] = cov[j] * frame.whole[j] * frame.whole[j]
    for j in range(d):
        trace += out[j * (d + 1) if frame.full else j]
    return trace


cdef inline void map_covariances(
    Coordinates frame, Py_ssize_t n, const double* covs, double* out
) noexcept nogil:
    # Those that are too wide, of outliers, are made narrower: their squares would overflow.
    cdef Py_ssize_t i, j, d = frame.d, size = d * d if frame.full else d
    cdef double widest, too_wide = 1e300, enough = 1e140
    for i in range(n):
        # After an overflow in between, a trace may be -inf as well.
        if fabs(map_covariance(frame, covs + i * size, out + i * size)) < too_wide:
            continue
        widest = 0.0
        for j in range(d):
            widest = fmax(
                widest, sqrt(covs[i * size + (j * (d + 1) if frame.full else j)]) / frame.spread[j]
            )
        for j in range(size):
            frame.whole[j] *= enough / widest
        map_covariance(frame, covs + i * size, out + i * size)
        prepare_covariances(frame)
