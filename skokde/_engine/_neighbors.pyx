"""Which classes the samples near to rows are of."""

import numpy as np

from libc.float cimport DBL_MIN
from libc.math cimport exp, fmax
from skokde._engine._exponential cimport exp_within  # no-cython-lint: for the C below
from skokde._engine._shapes cimport check_shapes

cdef extern from *:
    """
    #define LANES 8 /* features at a time */

    /* From a point to k others, sums of squares over their d features, with some memory for the
       lanes: else the compiler does without vectors. */
    FOR_EACH_PROCESSOR
    static void squares_of_distances(
        Py_ssize_t k, Py_ssize_t d, const double* restrict point, const double* restrict others,
        double* restrict squares, double* restrict lanes
    ) {
        for (Py_ssize_t j = 0; j < k; j++) {
            const double* other = others + j * d;
            double sums[LANES] = {0.0}, total = 0.0;
            Py_ssize_t i = 0;
            for (; i + LANES <= d; i += LANES) {
                IN_LANES
                for (int a = 0; a < LANES; a++) {
                    const double delta = point[i + a] - other[i + a];
                    sums[a] += delta * delta;
                }
            }
            if (i > 0) {
                for (int a = 0; a < LANES; a++)
                    lanes[a] = sums[a];
                for (int a = 0; a < LANES; a++)
                    total += lanes[a];
            }
            for (; i < d; i++) {
                const double delta = point[i] - other[i];
                total += delta * delta;
            }
            squares[j] = total;
        }
    }
    """
    enum: LANES
    void squares_of_distances(
        Py_ssize_t k, Py_ssize_t d, const double* point, const double* others, double* squares,
        double* lanes
    ) noexcept nogil

# Distances that are less than this share of a point's own from the center are rounding.
cdef double ROUNDING = 1e-9
# In nats: votes so far below that of the nearest sample are none.
cdef double NEGLIGIBLE = 50.0


cdef Py_ssize_t nearest_of_class(
    Py_ssize_t code, const Py_ssize_t[::1] codes, const double[::1] squares
) noexcept nogil:
    # The number of the nearest component of a class, -1 if there is none.
    cdef Py_ssize_t j, nearest = -1
    for j in range(codes.shape[0]):
        if codes[j] == code and (nearest < 0 or squares[j] < squares[nearest]):
            nearest = j
    return nearest


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


def nearest_components(
    const double[:, ::1] points, const double[::1] counts, const Py_ssize_t[::1] chosen,
    Py_ssize_t n_nearest,
):
    """The components that are next to some of them, as each of these leaves one sample out.

    Parameters
    ----------
    points : (k, d) array
        Of components.
    counts : (k,) array
        Of their samples. One with no more than a single sample is not next to itself.
    chosen : (n,) array of intp
        Numbers of some components.
    n_nearest : int
        Of components that are found for each, from 1 to k - 1.

    Returns
    -------
    nearest : (n, n_nearest) array of intp
        Numbers of components in the order of their distance.
    squares : (n, n_nearest) array
        Of their distances.
    """
    cdef Py_ssize_t n = chosen.shape[0], k = points.shape[0], d = points.shape[1], i, j
    check_shapes(d, d, counts.shape[0] == k and 0 < n_nearest < k)
    for i in range(n):
        if not 0 <= chosen[i] < k:
            raise ValueError("chosen must be numbers of components")
    out, out_squares = np.empty((n, n_nearest), dtype=np.intp), np.empty((n, n_nearest))
    cdef Py_ssize_t[:, ::1] nearest = out
    cdef double[:, ::1] square = out_squares
    cdef double[::1] squares = np.empty(k), lanes = np.empty(LANES)
    cdef double[::1] left = np.maximum(counts, DBL_MIN)
    with nogil:
        for i in range(n):
            squares_of_distances(
                k, d, &points[chosen[i], 0], &points[0, 0], &squares[0], &lanes[0]
            )
            left[chosen[i]] = counts[chosen[i]] - 1.0
            find_nearest(squares, left, nearest[i])
            left[chosen[i]] = fmax(counts[chosen[i]], DBL_MIN)
            for j in range(n_nearest):
                square[i, j] = squares[nearest[i, j]]
    return out, out_squares


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
    cdef Py_ssize_t itself
    cdef double square, total, vote, variance, farthest
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
    cdef double[::1] left = np.array(counts), center = np.zeros(d)
    cdef double[::1] squares = np.empty(k), lanes = np.empty(LANES)
    cdef Py_ssize_t[::1] nearest = np.empty(most, dtype=np.intp)
    with nogil:
        for i in range(n):
            squares_of_distances(k, d, &points[i, 0], &others[0, 0], &squares[0], &lanes[0])
            itself = nearest_of_class(own[i], codes, squares) if own[i] >= 0 else -1
            if itself >= 0:
                left[itself] = counts[itself] - 1.0
            n_found = find_nearest(squares, left, nearest)
            if n_found > 0:
                total = 0.0
                for j in range(n_found):
                    square = squares[nearest[j]]
                    total += left[nearest[j]]
                    if total >= n_samples:
                        break
                variance = width * width * square
                squares_of_distances(1, d, &points[i, 0], &center[0], &square, &lanes[0])
                variance = fmax(fmax(variance, ROUNDING * ROUNDING * square), DBL_MIN)
                farthest, total = squares[nearest[0]] + 2.0 * NEGLIGIBLE * variance, 0.0
                for j in range(k):
                    if squares[j] <= farthest and left[j] > 0.0:
                        square = squares[j] - squares[nearest[0]]
                        vote = left[j] * exp(-0.5 * square / variance)
                        votes[i, codes[j]] += vote
                        total += vote
                if total > n_samples:
                    for j in range(n_classes):
                        votes[i, j] *= n_samples / total
            if itself >= 0:
                left[itself] = counts[itself]
    return out
