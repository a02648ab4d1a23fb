"""Which classes the nearest samples of rows are of."""

import numpy as np

from libc.float cimport DBL_MAX
from skokde._engine._shapes cimport check_shapes

# Distances that differ by no more than this share of them are the same.
cdef double SAME = 1e-9


cdef inline double square_of_distance(
    const double* point, const double* other, Py_ssize_t d, double bound
) noexcept nogil:
    # Summed four features at a time, and no further than to the bound.
    cdef double total = 0.0, delta, delta_1, delta_2, delta_3
    cdef Py_ssize_t i = 0
    while i + 4 <= d and total <= bound:
        delta, delta_1 = point[i] - other[i], point[i + 1] - other[i + 1]
        delta_2, delta_3 = point[i + 2] - other[i + 2], point[i + 3] - other[i + 3]
        total += (delta * delta + delta_1 * delta_1) + (delta_2 * delta_2 + delta_3 * delta_3)
        i += 4
    if total <= bound:
        while i < d:
            delta = point[i] - other[i]
            total += delta * delta
            i += 1
    return total


cdef struct Nearest:
    # Components in order of their distance: up to that which has the last of so many samples, or
    # as many components as there is room for. The others are at the distance `left_out` at least.
    Py_ssize_t n
    double total, left_out


cdef Nearest find_nearest(
    const double* point,
    const double[:, ::1] others,
    const double[::1] counts,
    double n_samples,
    double[::1] squares,
    Py_ssize_t[::1] numbers,
) noexcept nogil:
    cdef Py_ssize_t i, j, most = squares.shape[0]
    cdef double square, bound = DBL_MAX
    cdef Nearest found
    found.n, found.total, found.left_out = 0, 0.0, DBL_MAX
    for i in range(others.shape[0]):
        square = square_of_distance(point, &others[i, 0], others.shape[1], bound)
        if square >= bound:
            found.left_out = min(found.left_out, square)
            continue
        if found.n == most:
            remove_last(&found, counts, squares, numbers)
        j = found.n
        while j > 0 and squares[j - 1] > square:
            squares[j], numbers[j] = squares[j - 1], numbers[j - 1]
            j -= 1
        squares[j], numbers[j] = square, i
        found.n += 1
        found.total += counts[i]
        while found.total - counts[numbers[found.n - 1]] >= n_samples:
            remove_last(&found, counts, squares, numbers)
        if found.total >= n_samples or found.n == most:
            bound = squares[found.n - 1]
    return found


cdef void remove_last(
    Nearest* found, const double[::1] counts, double[::1] squares, Py_ssize_t[::1] numbers
) noexcept nogil:
    found.n -= 1
    found.total -= counts[numbers[found.n]]
    found.left_out = min(found.left_out, squares[found.n])


def votes_of_nearest(
    const double[:, ::1] points,
    const double[:, ::1] others,
    const double[::1] counts,
    const Py_ssize_t[::1] codes,
    Py_ssize_t n_classes,
    double n_samples,
    Py_ssize_t most,
):
    """How many of the samples that are nearest to points are of each class.

    Parameters
    ----------
    points : (n, d) array
    others : (k, d) array
        Of components, one or more.
    counts : (k,) array, positive
        Of their samples, which all count as at their mean.
    codes : (k,) array of intp
        Their classes.
    n_classes : int
    n_samples : float, positive
        How many samples vote: fewer where there are no more, or not in `most` components.
    most : int

    Returns
    -------
    (n, n_classes) array
        Of samples that are equally far some count in part, in all classes the same.
    """
    cdef Py_ssize_t n = points.shape[0], d = points.shape[1], k = others.shape[0], i, j, number
    cdef double radius, square, inside, at_radius, part
    cdef bint is_exact
    cdef Nearest found
    check_shapes(
        d, d,
        others.shape[1] == d and counts.shape[0] == codes.shape[0] == k and k > 0 and most > 0,
    )
    for j in range(k):
        if not 0 <= codes[j] < n_classes:
            raise ValueError("codes must be numbers of classes")
    out = np.zeros((n, n_classes))
    cdef double[:, ::1] votes = out
    cdef double[::1] squares = np.empty(most), tied = np.empty(n_classes)
    cdef Py_ssize_t[::1] numbers = np.empty(most, dtype=np.intp)
    with nogil:
        for i in range(n):
            found = find_nearest(&points[i, 0], others, counts, n_samples, squares, numbers)
            radius = squares[found.n - 1]
            tied[:] = 0.0
            inside, at_radius = 0.0, 0.0
            # Samples may be equally far of which some were left out.
            is_exact = found.left_out > radius * (1.0 + SAME)
            for j in range(found.n if is_exact else k):
                if is_exact:
                    number, square = numbers[j], squares[j]
                else:
                    number = j
                    square = square_of_distance(
                        &points[i, 0], &others[j, 0], d, radius * (1.0 + SAME)
                    )
                if square < radius * (1.0 - SAME):
                    votes[i, codes[number]] += counts[number]
                    inside += counts[number]
                elif square <= radius * (1.0 + SAME):
                    tied[codes[number]] += counts[number]
                    at_radius += counts[number]
            part = min(1.0, (n_samples - inside) / at_radius) if at_radius > 0.0 else 0.0
            for j in range(n_classes):
                votes[i, j] += part * tied[j]
    return out
