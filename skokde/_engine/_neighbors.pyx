"""Which classes the samples near to rows are of."""

import numpy as np

from libc.float cimport DBL_MIN
from libc.math cimport exp, fmax
from skokde._engine._shapes cimport check_shapes

# Distances that are less than this share of a point's own from the center are rounding.
cdef double ROUNDING = 1e-9


cdef inline double square_of_distance(
    const double* point, const double* other, Py_ssize_t d
) noexcept nogil:
    # Summed four features at a time, in parts that need not wait for each other.
    cdef double total = 0.0, delta, delta_1, delta_2, delta_3
    cdef Py_ssize_t i = 0
    while i + 4 <= d:
        delta, delta_1 = point[i] - other[i], point[i + 1] - other[i + 1]
        delta_2, delta_3 = point[i + 2] - other[i + 2], point[i + 3] - other[i + 3]
        total += (delta * delta + delta_1 * delta_1) + (delta_2 * delta_2 + delta_3 * delta_3)
        i += 4
    while i < d:
        delta = point[i] - other[i]
        total += delta * delta
        i += 1
    return total


cdef void leave_own_out(
    Py_ssize_t own,
    const Py_ssize_t[::1] codes,
    const double[::1] squares,
    double[::1] counts,
) noexcept nogil:
    # One sample less in the nearest component of the class.
    cdef Py_ssize_t j, nearest = -1
    for j in range(codes.shape[0]):
        if codes[j] == own and (nearest < 0 or squares[j] < squares[nearest]):
            nearest = j
    if nearest >= 0:
        counts[nearest] = fmax(counts[nearest] - 1.0, 0.0)


cdef Py_ssize_t find_nearest(
    const double[::1] squares,
    const double[::1] counts,
    Py_ssize_t[::1] nearest,
) noexcept nogil:
    # Numbers of the nearest components that have a sample, in order of their distance, as far as
    # there is room for them. Returns how many there are.
    cdef Py_ssize_t i, j, n = 0
    for i in range(squares.shape[0]):
        if counts[i] <= 0.0:
            continue
        if n == nearest.shape[0]:
            if squares[i] >= squares[nearest[n - 1]]:
                continue
            n -= 1
        j = n
        while j > 0 and squares[nearest[j - 1]] > squares[i]:
            nearest[j] = nearest[j - 1]
            j -= 1
        nearest[j] = i
        n += 1
    return n


def votes_of_near(
    const double[:, ::1] points,
    const double[:, ::1] others,
    const double[::1] counts,
    const Py_ssize_t[::1] codes,
    const Py_ssize_t[::1] own,
    Py_ssize_t n_classes,
    double n_samples,
    Py_ssize_t most,
    double width,
):
    """How many of the samples that are near to points are of each class.

    Kernels of normal distributions weigh them, so that the nearest one has one vote: they are the
    wider the farther the nearest samples are.

    Parameters
    ----------
    points : (n, d) array
    others : (k, d) array
        Of components, one or more.
    counts : (k,) array, positive
        Of their samples, which all count as at their mean.
    codes : (k,) array of intp
        Their classes.
    own : (n,) array of intp
        Classes of the points that are samples themselves, -1 for others: none has its own vote.
    n_classes : int
    n_samples : float, positive
        By how many samples it goes what is near: by fewer where there are no more, or not in
        `most` components. And how many votes there are at most.
    most : int
    width : float, positive
        Of the kernels, as a share of the distance up to which the samples are by which it goes.

    Returns
    -------
    (n, n_classes) array
    """
    cdef Py_ssize_t n = points.shape[0], d = points.shape[1], k = others.shape[0], i, j, n_found
    cdef double square, total, vote, variance
    check_shapes(
        d, d,
        others.shape[1] == d and counts.shape[0] == codes.shape[0] == k and k > 0 and most > 0
        and own.shape[0] == n,
    )
    for j in range(k):
        if not 0 <= codes[j] < n_classes:
            raise ValueError("codes must be numbers of classes")
    out = np.zeros((n, n_classes))
    cdef double[:, ::1] votes = out
    cdef double[::1] squares = np.empty(k), others_counts = np.empty(k), center = np.zeros(d)
    cdef Py_ssize_t[::1] nearest = np.empty(most, dtype=np.intp)
    with nogil:
        for i in range(n):
            for j in range(k):
                squares[j] = square_of_distance(&points[i, 0], &others[j, 0], d)
            others_counts[:] = counts
            if own[i] >= 0:
                leave_own_out(own[i], codes, squares, others_counts)
            n_found = find_nearest(squares, others_counts, nearest)
            if n_found == 0:
                continue
            total = 0.0
            for j in range(n_found):
                square = squares[nearest[j]]
                total += others_counts[nearest[j]]
                if total >= n_samples:
                    break
            variance = width * width * square
            square = square_of_distance(&points[i, 0], &center[0], d)
            variance = fmax(fmax(variance, ROUNDING * ROUNDING * square), DBL_MIN)
            total = 0.0
            for j in range(k):
                if others_counts[j] > 0.0:
                    square = squares[j] - squares[nearest[0]]
                    vote = others_counts[j] * exp(-0.5 * square / variance)
                    votes[i, codes[j]] += vote
                    total += vote
            if total > n_samples:
                for j in range(n_classes):
                    votes[i, j] *= n_samples / total
    return out
