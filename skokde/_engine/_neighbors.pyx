"""Which classes the samples near to rows are of."""

import numpy as np

from libc.float cimport DBL_MIN
from libc.math cimport fmax, INFINITY
from libc.string cimport memset
from skokde._engine._exponential cimport normal_kernels
from skokde._engine._gaussian cimport long_dot
from skokde._engine._shapes cimport check_shapes

cdef extern from *:
    """
    #define TOGETHER 16 /* points that are a block */

    /* From a point to those of some blocks, sums of squares over their d features. */
    FOR_EACH_PROCESSOR
    static void squares_of_distances(
        Py_ssize_t n_blocks, Py_ssize_t d, const double* restrict point,
        const double* restrict blocks, double* restrict squares
    ) {
        for (Py_ssize_t b = 0; b < n_blocks; b++, squares += TOGETHER) {
            double sums[TOGETHER] = {0.0};
            for (Py_ssize_t i = 0; i < d; i++, blocks += TOGETHER) {
                IN_LANES
                for (int a = 0; a < TOGETHER; a++) {
                    const double delta = point[i] - blocks[a];
                    sums[a] += delta * delta;
                }
            }
            for (int a = 0; a < TOGETHER; a++)
                squares[a] = sums[a];
        }
    }

    /* Whether some of a block are no more than a limit. */
    FOR_EACH_PROCESSOR
    static int some_within(double limit, const double* restrict squares) {
        int64_t within = 0;
        for (int a = 0; a < TOGETHER; a++)
            within += squares[a] <= limit;
        return within > 0;
    }
    """
    enum: TOGETHER
    void squares_of_distances(
        Py_ssize_t n_blocks, Py_ssize_t d, const double* point, const double* blocks,
        double* squares
    ) noexcept nogil
    bint some_within(double limit, const double* squares) noexcept nogil

# Distances that are less than this share of a point's own from the center are rounding.
cdef double ROUNDING = 1e-9
# What squares of equal distances differ by is less than this share.
cdef double TIE = 1e-9
# In nats: votes so far below that of the nearest sample are none.
cdef double NEGLIGIBLE = 40.0


cdef Py_ssize_t number_of_blocks(Py_ssize_t k) noexcept nogil:
    return (k + TOGETHER - 1) // TOGETHER


cdef double[::1] in_blocks(const double[:, ::1] points, const Py_ssize_t* order):
    # In an order, if there is any, and feature by feature, which are summed in lanes. What is left
    # of the last block is far from all.
    cdef Py_ssize_t k = points.shape[0], d = points.shape[1], n_blocks = number_of_blocks(k)
    cdef Py_ssize_t a, b, i, j
    cdef double[::1] blocks = np.empty(n_blocks * TOGETHER * d)
    cdef double* to = &blocks[0]
    with nogil:
        for b in range(n_blocks):
            for a in range(TOGETHER):
                j = b * TOGETHER + a
                if j < k and order is not NULL:
                    j = order[j]
                for i in range(d):
                    to[i * TOGETHER + a] = points[j, i] if j < k else INFINITY
            to += TOGETHER * d
    return blocks


cdef void sort_by_class(
    const Py_ssize_t[::1] codes, Py_ssize_t[::1] order, Py_ssize_t[::1] starts
) noexcept nogil:
    # Numbers of components class by class, and where each class begins.
    cdef Py_ssize_t c, j
    for j in range(codes.shape[0]):
        starts[codes[j] + 2] += 1
    for c in range(2, starts.shape[0]):
        starts[c] += starts[c - 1]
    for j in range(codes.shape[0]):
        order[starts[codes[j] + 1]] = j
        starts[codes[j] + 1] += 1


cdef Py_ssize_t find_nearest(
    Py_ssize_t k,
    const double[::1] squares,
    const double[::1] counts,
    Py_ssize_t[::1] nearest,
) noexcept nogil:
    # Numbers of the nearest of k components that have a sample, in order of their distance, as far
    # as there is room for them: of those that are as near but for rounding, which discrete features
    # make many, the first. Returns how many there are.
    cdef Py_ssize_t b, i, j, n = 0
    cdef double limit = INFINITY
    for b in range(number_of_blocks(k)):
        if not some_within(limit, &squares[b * TOGETHER]):
            continue
        for i in range(b * TOGETHER, min((b + 1) * TOGETHER, k)):
            if counts[i] <= 0.0:
                continue
            if n == nearest.shape[0]:
                if squares[i] >= (1.0 - TIE) * limit:
                    continue
                n -= 1
            j = n
            while j > 0 and (1.0 - TIE) * squares[nearest[j - 1]] > squares[i]:
                nearest[j] = nearest[j - 1]
                j -= 1
            nearest[j] = i
            n += 1
            if n == nearest.shape[0]:
                limit = squares[nearest[n - 1]]
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
    cdef Py_ssize_t n_blocks = number_of_blocks(k)
    cdef double[::1] blocks = in_blocks(points, NULL), squares = np.empty(n_blocks * TOGETHER)
    cdef double[::1] left = np.maximum(counts, DBL_MIN)
    with nogil:
        for i in range(n):
            squares_of_distances(n_blocks, d, &points[chosen[i], 0], &blocks[0], &squares[0])
            left[chosen[i]] = counts[chosen[i]] - 1.0
            find_nearest(k, squares, left, nearest[i])
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
    Py_ssize_t n_widths,
):
    """How many of the samples that are near to points are of each class.

    Kernels of normal distributions weigh them, so that the nearest one has one vote: they are the
    wider the farther the nearest samples are. By kernels of each width there are votes of their
    own.

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
        Of the widest kernels, as a share of the distance up to which the samples are by which it
        goes.
    n_widths : int
        How many there are, each half as wide as the next.

    Returns
    -------
    (n, n_widths, n_classes) array
    """
    cdef Py_ssize_t n = points.shape[0], d = points.shape[1], k = others.shape[0], b, c, i, j, w
    cdef Py_ssize_t itself, n_found, n_blocks = number_of_blocks(k)
    cdef double square, total, variance, farthest
    check_shapes(
        d, d,
        others.shape[1] == d and counts.shape[0] == codes.shape[0] == k and k > 0 and most > 0
        and own.shape[0] == n,
    )
    for j in range(k):
        if not 0 <= codes[j] < n_classes:
            raise ValueError("codes must be numbers of classes")
    for i in range(n):
        if own[i] >= n_classes:
            raise ValueError("own must be numbers of classes, or negative")
    out = np.zeros((n, n_widths, n_classes))
    cdef double[:, :, ::1] votes = out
    cdef Py_ssize_t[::1] order = np.empty(k, dtype=np.intp)
    cdef Py_ssize_t[::1] starts = np.zeros(n_classes + 2, dtype=np.intp)
    sort_by_class(codes, order, starts)
    cdef double[::1] blocks = in_blocks(others, &order[0])
    cdef double[::1] squares = np.empty(n_blocks * TOGETHER), left = np.zeros(n_blocks * TOGETHER)
    cdef double[::1] kernels = np.empty(n_blocks * TOGETHER)
    cdef Py_ssize_t[::1] nearest = np.empty(most, dtype=np.intp)
    with nogil:
        for j in range(k):
            left[j] = counts[order[j]]
        for i in range(n):
            squares_of_distances(n_blocks, d, &points[i, 0], &blocks[0], &squares[0])
            itself = -1
            if own[i] >= 0:
                for j in range(starts[own[i]], starts[own[i] + 1]):
                    if itself < 0 or squares[j] < squares[itself]:
                        itself = j
            if itself >= 0:
                left[itself] = fmax(left[itself] - 1.0, 0.0)
            n_found = find_nearest(k, squares, left, nearest)
            if n_found > 0:
                total = 0.0
                for j in range(n_found):
                    square = squares[nearest[j]]
                    total += left[nearest[j]]
                    if total >= n_samples:
                        break
                variance = width * width * square
                square = long_dot(d, &points[i, 0], &points[i, 0])
                variance = fmax(fmax(variance, ROUNDING * ROUNDING * square), DBL_MIN)
                farthest = squares[nearest[0]] + 2.0 * NEGLIGIBLE * variance
                for b in range(n_blocks):
                    if some_within(farthest, &squares[b * TOGETHER]):
                        normal_kernels(
                            TOGETHER, 0.5 / variance, squares[nearest[0]], &squares[b * TOGETHER],
                            &kernels[b * TOGETHER],
                        )
                    else:
                        memset(&kernels[b * TOGETHER], 0, TOGETHER * sizeof(double))
                for w in range(n_widths - 1, -1, -1):
                    if w < n_widths - 1:
                        for j in range(n_blocks * TOGETHER):  # half as wide
                            kernels[j] *= kernels[j]
                            kernels[j] *= kernels[j]
                    total = 0.0
                    for c in range(n_classes):
                        j = starts[c]
                        votes[i, w, c] = long_dot(starts[c + 1] - j, &left[j], &kernels[j])
                        total += votes[i, w, c]
                    if total > n_samples:
                        for c in range(n_classes):
                            votes[i, w, c] *= n_samples / total
            if itself >= 0:
                left[itself] = counts[order[itself]]
    return out
