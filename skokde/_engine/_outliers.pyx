"""Components that lie far outside of nearly all others."""

import numpy as np

from libc.float cimport DBL_MAX
from libc.math cimport fabs, fmax, sqrt
from libc.stdlib cimport qsort
from skokde._engine._shapes cimport check_shapes


cdef enum:
    N_BINS = 64


cdef struct Point:
    double value
    double count


cdef int by_value(const void* a, const void* b) noexcept nogil:
    cdef double first = (<const Point*> a).value, second = (<const Point*> b).value
    return (first > second) - (first < second)


cdef double quantile(const Point* points, Py_ssize_t n, double count) noexcept nogil:
    # The first of the sorted points up to which, and with which, there are so many.
    cdef Py_ssize_t i
    cdef double total = 0.0
    for i in range(n):
        total += points[i].count
        if total >= count:
            return points[i].value
    return points[n - 1].value


cdef bint reaches_far(
    const Point* points, Py_ssize_t n, double tail, double total, double share
) noexcept nogil:
    # Whether the quantiles may be nearer to each other than that share of the whole range: by
    # counting, which takes less than sorting, and for most features is enough.
    cdef double smallest = points[0].value, largest = points[0].value, per_unit, below = 0.0
    cdef double[N_BINS] bins
    cdef Py_ssize_t i, low = 0, high
    for i in range(1, n):
        if points[i].value < smallest:
            smallest = points[i].value
        elif points[i].value > largest:
            largest = points[i].value
    per_unit = N_BINS / (largest - smallest)
    if not per_unit <= DBL_MAX:
        return largest > smallest
    for i in range(N_BINS):
        bins[i] = 0.0
    for i in range(n):
        bins[min(<Py_ssize_t> ((points[i].value - smallest) * per_unit), N_BINS - 1)] += (
            points[i].count
        )
    while low < N_BINS - 1 and below + bins[low] < tail * total:
        below += bins[low]
        low += 1
    high = low
    while high < N_BINS - 1 and below + bins[high] < (1.0 - tail) * total:
        below += bins[high]
        high += 1
    # Two bins less: the quantiles are anywhere in theirs, and bins are rounded.
    return high - low - 2 < share * N_BINS


def inliers(
    const double[::1] counts,
    const double[:, ::1] means,
    const double[:, ::1] covs,
    double tail,
    double n_deviations,
    double farthest,
):
    """Components whose radius is no great multiple of that of nearly all samples.

    A feature's spread is the range between the quantiles `tail` and 1 - `tail`, for which a
    compound counts as two points, one deviation to either side of its mean. How far out a component
    is, in spreads, is the distance of its far side from the median. Its radius is the largest such
    distance in the features in which some component is more than `farthest` spreads out.

    Parameters
    ----------
    counts : (k,) array
    means : (k, d) array
    covs : (m, d * d) or (m, d) array
        Of the first m components; the others are Diracs.
    tail : float
        A share of the samples.
    n_deviations : float
        The range, in standard deviations of a normal distribution.
    farthest : float
        Of a radius, in units of its quantile 1 - `tail`, or of one spread if that is more.

    Returns
    -------
    (k,) array of bool
    """
    cdef Py_ssize_t k = means.shape[0], d = means.shape[1], m = covs.shape[0], size = covs.shape[1]
    cdef Py_ssize_t i, j
    cdef bint full = size != d, far = False
    cdef double total = 0.0, deviation, middle, spread, limit
    check_shapes(d, size, 0 < k == counts.shape[0] >= m)
    flags = np.ones(k, dtype=np.bool_)
    cdef unsigned char[::1] flag = flags.view(np.uint8)
    # A Point is two doubles.
    cdef double[:, ::1] buffer = np.empty((k + m, 2))
    cdef double[:, ::1] radii = np.zeros((2, k))
    cdef double* radius = &radii[0, 0]
    cdef double* distance = &radii[1, 0]
    cdef Point* points = <Point*> &buffer[0, 0]
    with nogil:
        for i in range(k):
            total += counts[i]
        for j in range(d):
            for i in range(k):
                points[i].value, points[i].count = means[i, j], counts[i]
            for i in range(m):
                deviation = sqrt(covs[i, j * d + j if full else j])
                points[i].value -= deviation
                points[i].count *= 0.5
                points[k + i].value = means[i, j] + deviation
                points[k + i].count = points[i].count
            if not reaches_far(points, k + m, tail, total, n_deviations / farthest):
                continue
            qsort(points, k + m, sizeof(Point), by_value)
            middle = quantile(points, k + m, 0.5 * total)
            spread = quantile(points, k + m, (1.0 - tail) * total)
            spread = (spread - quantile(points, k + m, tail * total)) / n_deviations
            if not fmax(middle - points[0].value, points[k + m - 1].value - middle) > (
                farthest * spread
            ) or not spread > 0.0:
                continue
            far = True
            for i in range(k):
                distance[i] = fabs(means[i, j] - middle)
            for i in range(m):
                distance[i] += sqrt(covs[i, j * d + j if full else j])
            for i in range(k):
                radius[i] = fmax(radius[i], distance[i] / spread)
        if far:
            for i in range(k):
                points[i].value, points[i].count = radius[i], counts[i]
            qsort(points, k, sizeof(Point), by_value)
            limit = farthest * fmax(1.0, quantile(points, k, (1.0 - tail) * total))
            for i in range(k):
                flag[i] = radius[i] <= limit
    return flags
