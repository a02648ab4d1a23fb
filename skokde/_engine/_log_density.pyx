"""Log-densities of the KDE in kernel coordinates."""

import numpy as np

from libc.math cimport fmax, fmin, log, sqrt, INFINITY, M_PI
from scipy.linalg.cython_blas cimport dgemm
from skokde._engine._exponential cimport exp_within  # no-cython-lint: for the C below
from skokde._engine._gaussian cimport dot, eigh, residue, thin_factor, thin_limit, turn, work_size
from skokde._engine._shapes cimport check_shapes

# Distances from shrunk means are made from those of the means themselves where shrinking moves them
# by less than the root of this, in widths of the kernel: else rounding would show.
cdef double LONG = 100.0

# The loops that most of the time goes to, each over a block of so many points.
cdef extern from *:
    """
    #define BLOCK 64
    #define LANES 8 /* points that share a decision */
    #define NEGLIGIBLE 50.0 /* nats below the largest term: a double does not tell */

    /* |x[a] - mean|^2 and (x[a] - mean) . mean of all points */
    FOR_EACH_PROCESSOR
    static void distances(
        int size, Py_ssize_t d, const double* restrict x, const double* restrict mean,
        double* restrict squares, double* restrict products
    ) {
        for (int first = 0; first < size; first += LANES) {
            double sums[LANES] = {0.0}, others[LANES] = {0.0};
            for (Py_ssize_t j = 0; j < d; j++) {
                const double center = mean[j];
                const double* row = x + j * BLOCK + first;
                for (int a = 0; a < LANES; a++) {
                    const double delta = row[a] - center;
                    sums[a] += delta * delta;
                    others[a] += delta * center;
                }
            }
            for (int a = 0; a < LANES; a++) {
                squares[first + a] = sums[a];
                products[first + a] = others[a];
            }
        }
    }

    /* squares[a] += precision * (x[a] - mean)^2, for n coordinates of all points */
    FOR_EACH_PROCESSOR
    static void add_squares(
        int size, Py_ssize_t n, const double* restrict x, const double* restrict means,
        double shrink, const double* restrict precisions, Py_ssize_t stride,
        double* restrict squares
    ) {
        for (int first = 0; first < size; first += LANES) {
            double sums[LANES];
            for (int a = 0; a < LANES; a++)
                sums[a] = squares[first + a];
            for (Py_ssize_t j = 0; j < n; j++) {
                const double mean = shrink * means[j], precision = precisions[j * stride];
                const double* row = x + j * BLOCK + first;
                for (int a = 0; a < LANES; a++) {
                    const double delta = row[a] - mean;
                    sums[a] += precision * (delta * delta);
                }
            }
            for (int a = 0; a < LANES; a++)
                squares[first + a] = sums[a];
        }
    }

    /* out[a] := precision * |x[a] - shrink * mean|^2, from `distances` */
    FOR_EACH_PROCESSOR
    static void shrunk_squares(
        int size, double precision, double stretch, double square_of_mean,
        const double* restrict squares, const double* restrict products, double* restrict out
    ) {
        const double rest = stretch * stretch * square_of_mean, twice = 2.0 * stretch;
        for (int a = 0; a < size; a++)
            out[a] = precision * (squares[a] + (twice * products[a] + rest));
    }

    /* squares := base - squares / 2, at most base if rounding has made them negative. The largest
       so far go to the peaks. What has overflowed is -inf or not a number: it counts for nothing.
    */
    FOR_EACH_PROCESSOR
    static void finish(
        int size, double base, double* restrict squares, double* restrict peaks
    ) {
        for (int a = 0; a < size; a++) {
            const double free = base - 0.5 * squares[a];
            const double term = free > base ? base : free;
            squares[a] = term;
            peaks[a] = term > peaks[a] ? term : peaks[a];
        }
    }

    /* log sum_i exp(terms[i]) for each point */
    FOR_EACH_PROCESSOR
    static void log_sums(
        int size, Py_ssize_t k, Py_ssize_t stride, const double* restrict terms,
        const double* restrict peaks, double* restrict out
    ) {
        double limits[BLOCK], sums[BLOCK], logs[BLOCK];
        unsigned char counted[BLOCK];
        const uint64_t none = 0;
        for (int a = 0; a < size; a++) {
            limits[a] = peaks[a] - NEGLIGIBLE;
            sums[a] = 0.0;
        }
        for (Py_ssize_t i = 0; i < k; i++) {
            const double* row = terms + i * stride;
            for (int a = 0; a < size; a++)
                counted[a] = row[a] >= limits[a]; /* not >: it may be absorbed */
            for (int first = 0, last; first < size; first = last + LANES) {
                for (last = first; last < size && memcmp(counted + last, &none, LANES); )
                    last += LANES;
                for (int a = first; a < last; a++) {
                    const double below = row[a] - peaks[a];
                    logs[a] = below > -700.0 ? below : -700.0;
                }
                for (int a = first; a < last; a++)
                    sums[a] += exp_within(logs[a]);
            }
        }
        for (int a = 0; a < size; a++)
            out[a] = peaks[a] > -INFINITY ? peaks[a] + log(sums[a]) : -INFINITY;
    }
    """
    enum: BLOCK
    enum: LANES
    double NEGLIGIBLE
    void distances(
        int size, Py_ssize_t d, const double* x, const double* mean, double* squares,
        double* products
    ) noexcept nogil
    void add_squares(
        int size, Py_ssize_t n, const double* x, const double* means, double shrink,
        const double* precisions, Py_ssize_t stride, double* squares
    ) noexcept nogil
    void shrunk_squares(
        int size, double precision, double stretch, double square_of_mean, const double* squares,
        const double* products, double* out
    ) noexcept nogil
    void finish(int size, double base, double* squares, double* peaks) noexcept nogil
    void log_sums(
        int size, Py_ssize_t k, Py_ssize_t stride, const double* terms, const double* peaks,
        double* out
    ) noexcept nogil


# Rows that are scored together: what is near none of them is left out.
BOX = BLOCK


cdef Py_ssize_t spectrum(
    Py_ssize_t d, const double* cov, double* vectors, double* values, double* work, int* iwork
) noexcept nogil:
    # Eigenvalues of a covariance, and eigenvectors as rows; of a thin one only the few that are
    # not lost in the bandwidth's. Returns their number.
    cdef Py_ssize_t i, j, rank
    cdef double scale
    cdef double* rest = work + thin_limit(d) * d
    rank = thin_factor(d, cov, residue(), work, rest)
    if rank < 0:
        for j in range(d * d):
            vectors[j] = cov[j]
        eigh(d, vectors, values, work, iwork)
        rank = d
    else:
        turn(d, rank, work, vectors, values, rest, iwork)
        for i in range(rank):
            scale = 1.0 / sqrt(values[i]) if values[i] > 0.0 else 0.0
            for j in range(d):
                vectors[i * d + j] *= scale
    for i in range(rank):
        values[i] = fmax(values[i], 0.0)
    return rank


def decompose(
    const double[:, ::1] means,
    const double[:, ::1] covs,
    const double[::1] widths,
    const double[::1] shrinks,
):
    """What the log-densities of components take, for kernels of several widths.

    Parameters
    ----------
    means : (k, d) array
    covs : (m, d * d) or (m, d) array
        Of the first m components; the others are Diracs.
    widths, shrinks : (n_widths,) arrays
        See `log_densities`; no width is below one.

    Returns
    -------
    vectors : (n, d) array
        Eigenvectors of all covariances; none if they are diagonal.
    projections : (n,) array
        Of the means on the eigenvectors of their covariances, or n = m d means.
    precisions : (n, n_widths) array
        What a squared distance along each of them counts, less what it counts in a Dirac's kernel
        where there are fewer than d.
    starts : (m + 1,) array of intp
        Where each component's begin.
    log_dets : (m, n_widths) array
    """
    cdef Py_ssize_t d = means.shape[1], m = covs.shape[0], size = covs.shape[1]
    cdef Py_ssize_t n_widths = widths.shape[0], i, j, r, w, rank, n = 0
    cdef bint full = size != d
    cdef double variance, narrow
    check_shapes(d, size, m <= means.shape[0] and shrinks.shape[0] == n_widths)
    vectors = np.empty((m * d if full else 0, d))
    values, projections = np.empty(m * d), np.empty(m * d)
    precisions, log_dets = np.empty((m * d, n_widths)), np.empty((m, n_widths))
    starts = np.zeros(m + 1, dtype=np.intp)
    cdef double[:, ::1] rows = vectors, precision = precisions, log_det = log_dets
    cdef double[::1] value = values, projection = projections
    cdef Py_ssize_t[::1] start = starts
    cdef double[::1] work = np.empty(work_size(d, size))
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    with nogil:
        for i in range(m):
            if full:
                rank = spectrum(d, &covs[i, 0], &rows[n, 0], &value[n], &work[0], &iwork[0])
            else:
                rank = d
                for j in range(d):
                    value[n + j] = fmax(covs[i, j], 0.0)
            for w in range(n_widths):
                narrow = (shrinks[w] * widths[w]) * (shrinks[w] * widths[w])
                log_det[i, w] = (d - rank) * log(narrow) if rank < d else 0.0
                for r in range(n, n + rank):
                    variance = shrinks[w] * shrinks[w] * value[r] + narrow
                    log_det[i, w] += log(variance)
                    precision[r, w] = 1.0 / variance
                    if rank < d:
                        precision[r, w] -= 1.0 / narrow
            for r in range(n, n + rank):
                projection[r] = 0.0 if full else means[i, r - n]
                if full:
                    for j in range(d):
                        projection[r] += rows[r, j] * means[i, j]
            n += rank
            start[i + 1] = n
    if not full:
        return vectors, projections, precisions, starts, log_dets
    # Of thin covariances little is kept.
    return vectors[:n].copy(), projections[:n].copy(), precisions[:n].copy(), starts, log_dets


cdef void least_precisions(
    Py_ssize_t d, const Py_ssize_t[::1] starts, const double[:, ::1] precisions,
    const double[::1] narrows, double[:, ::1] out,
) noexcept nogil:
    # The least that a squared distance from each component counts in any direction.
    cdef Py_ssize_t i, r, w
    cdef double least
    cdef bint thin
    for i in range(out.shape[0]):
        thin = starts[i + 1] - starts[i] < d
        for w in range(out.shape[1]):
            least = 0.0 if thin else INFINITY
            for r in range(starts[i], starts[i + 1]):
                least = precisions[r, w] if precisions[r, w] < least else least
            out[i, w] = least + narrows[w] if thin else least


cdef Py_ssize_t near_block(
    const double[:, ::1] x, const double[:, ::1] means, double least_shrink, double most_shrink,
    const double[:, ::1] bases, const double[::1] narrows, const double[:, ::1] leasts,
    const Py_ssize_t[::1] some, Py_ssize_t n_some, double[:, ::1] box, double[:, ::1] uppers,
    Py_ssize_t[::1] places, Py_ssize_t n,
) noexcept nogil:
    # Of n components those that may count for any point of a whole block under some of the widths,
    # by bounds over the box around it; being shrunk by several factors, a mean is a segment.
    # Returns their number. There are no fmin and fmax, which are calls that most of the time would
    # go to.
    cdef Py_ssize_t d = x.shape[0], m = leasts.shape[0], c, i, j, s, w, n_near = 0
    cdef double low, high, below, above, near, far, gap
    for s in range(n_some):
        uppers[n, s] = -INFINITY  # the largest of the terms' lower bounds
    for c in range(n):
        i = places[c]
        near = far = 0.0
        for j in range(d):
            low, high = least_shrink * means[i, j], most_shrink * means[i, j]
            if low > high:
                low, high = high, low
            below, above = low - box[1, j], box[0, j] - high
            gap = below if below > above else above
            near += gap * gap if gap > 0.0 else 0.0
            below, above = high - box[0, j], box[1, j] - low
            gap = below if below > above else above
            far += gap * gap
        for s in range(n_some):
            w = some[s]
            uppers[c, s] = bases[i, w] - 0.5 * near * (leasts[i, w] if i < m else narrows[w])
            low = bases[i, w] - 0.5 * far * narrows[w]
            uppers[n, s] = low if low > uppers[n, s] else uppers[n, s]
    for c in range(n):
        for s in range(n_some):
            if not uppers[c, s] < uppers[n, s] - NEGLIGIBLE:
                places[n_near] = places[c]
                n_near += 1
                break
    return n_near


cdef void box_around(const double[:, ::1] x, double[:, ::1] box) noexcept nogil:
    # The least and the largest coordinates of a whole block.
    cdef Py_ssize_t a, j
    cdef double value
    for j in range(x.shape[0]):
        box[0, j] = box[1, j] = x[j, 0]
        for a in range(1, BLOCK):
            value = x[j, a]
            box[0, j] = value if value < box[0, j] else box[0, j]
            box[1, j] = value if value > box[1, j] else box[1, j]


def log_densities(
    const double[:, ::1] points,
    const double[::1] log_weights,
    const double[:, ::1] means,
    const Py_ssize_t[:, ::1] bounds,
    const double[:, ::1] vectors,
    const double[::1] projections,
    const double[:, ::1] precisions,
    const Py_ssize_t[::1] starts,
    const double[:, ::1] log_dets,
    const double[::1] widths,
    const double[::1] shrinks,
    const unsigned char[:, ::1] chosen,
):
    """Log-densities under mixtures of N(a mu_i, a^2 (S_i + b^2 I)), in nats.

    Parameters
    ----------
    points : (n, d) array
    log_weights : (k,) array
    means : (k, d) array
        Of the components of all models.
    bounds : (2, n_models + 1) array of intp
        Where each model's compounds begin, and its Diracs: those are the components before the
        m-th, these the others.
    vectors, projections, precisions, starts, log_dets
        What `decompose` returns.
    widths, shrinks : (n_widths,) arrays
        The b and the a, positive.
    chosen : (n_models, n_widths) array of bool
        Under which of them each model is scored.

    Returns
    -------
    (n, n_chosen) array
        Not NaN and below +inf for any points; -inf where the density is zero.
    """
    cdef Py_ssize_t n = points.shape[0], d = points.shape[1], k = means.shape[0]
    cdef Py_ssize_t m = starts.shape[0] - 1, n_widths = widths.shape[0]
    cdef Py_ssize_t n_models = bounds.shape[1] - 1
    check_shapes(
        d, d,
        0 <= m <= k == log_weights.shape[0] and means.shape[1] == vectors.shape[1] == d
        and projections.shape[0] == precisions.shape[0] == starts[m]
        and vectors.shape[0] in (0, starts[m]) and log_dets.shape[0] == m
        and precisions.shape[1] == log_dets.shape[1] == shrinks.shape[0] == n_widths
        and bounds.shape[0] == 2 and n_models >= 0 and bounds[0, 0] == 0
        and bounds[0, n_models] == bounds[1, 0] == m and bounds[1, n_models] == k
        and chosen.shape[0] == n_models and chosen.shape[1] == n_widths,
    )
    cdef Py_ssize_t block, first, size, a, c, i, j, r, s, w, rank, n_places, n_some
    cdef Py_ssize_t last, column, begin = 0, most = 0, largest = 0, group = 0, n_chosen = 0
    cdef bint full = vectors.shape[0] > 0 or starts[m] == 0
    cdef int rows, stride = BLOCK, columns, order = <int>d
    cdef char no = b"N"
    cdef double one = 1.0, zero = 0.0, narrow, stretch
    cdef double least_shrink = INFINITY, most_shrink = 0.0
    cdef double constant = 0.5 * d * log(2.0 * M_PI)
    for i in range(m):
        most = max(most, starts[i + 1] - starts[i])
    group = max(most, 128) if full else 0
    for r in range(n_models):
        largest = max(largest, bounds[0, r + 1] - bounds[0, r] + bounds[1, r + 1] - bounds[1, r])
        for w in range(n_widths):
            n_chosen += chosen[r, w] != 0
    cdef double[:, ::1] x = np.zeros((d, BLOCK)), projected = np.empty((group, BLOCK))
    cdef double[:, :, ::1] terms = np.empty((largest, n_widths, BLOCK))
    cdef double[:, ::1] bases = np.empty((k, n_widths)), peaks = np.empty((n_widths, BLOCK))
    cdef double[:, ::1] scales = np.empty((2, n_widths))
    cdef double[::1] narrows = scales[0], log_narrows = scales[1], lengths = np.empty(k)
    cdef double[:, ::1] buffers = np.empty((3, BLOCK))
    cdef double[::1] squares = buffers[0], products = buffers[1], sums = buffers[2]
    cdef double[:, ::1] leasts = np.empty((m, n_widths)), uppers = np.empty((largest + 1, n_widths))
    cdef double[:, ::1] box = np.empty((2, d))
    cdef Py_ssize_t[::1] places = np.empty(largest, dtype=np.intp)
    cdef Py_ssize_t[::1] some = np.empty(n_widths, dtype=np.intp)
    out = np.empty((n, n_chosen))
    cdef double[:, ::1] result = out
    cdef double* square
    cdef const double* coordinates = NULL
    with nogil:
        for w in range(n_widths):
            narrow = (shrinks[w] * widths[w]) * (shrinks[w] * widths[w])
            narrows[w], log_narrows[w] = 1.0 / narrow, log(narrow)
            least_shrink = fmin(least_shrink, shrinks[w])
            most_shrink = fmax(most_shrink, shrinks[w])
        for i in range(k):
            lengths[i] = dot(d, &means[i, 0], &means[i, 0])
            for w in range(n_widths):
                bases[i, w] = log_weights[i] - constant
                bases[i, w] -= 0.5 * (log_dets[i, w] if i < m else d * log_narrows[w])
        if n >= BLOCK:
            least_precisions(d, starts, precisions, narrows, leasts)
        for block in range((n + BLOCK - 1) // BLOCK):
            first = block * BLOCK
            size = min(<Py_ssize_t>BLOCK, n - first)
            rows = <int>(size + LANES - 1) // LANES * LANES  # whole vectors of every processor
            for a in range(size):
                for j in range(d):
                    x[j, a] = points[first + a, j]
            if size == BLOCK:
                box_around(x, box)
            column = 0
            for r in range(n_models):
                n_some = 0
                for w in range(n_widths):
                    if chosen[r, w]:
                        some[n_some] = w
                        n_some += 1
                if n_some == 0:
                    continue
                n_places = 0
                for j in range(2):
                    for i in range(bounds[j, r], bounds[j, r + 1]):
                        places[n_places] = i
                        n_places += 1
                if size == BLOCK:
                    n_places = near_block(x, means, least_shrink, most_shrink, bases, narrows,
                                          leasts, some, n_some, box, uppers, places, n_places)
                for s in range(n_some):
                    for a in range(rows):
                        peaks[s, a] = -INFINITY
                last = 0  # the first component whose points are not yet projected
                for c in range(n_places):
                    i = places[c]
                    if full and last <= i < m:
                        begin = last = i
                        # Those of several small ones at a time.
                        while (last < bounds[0, r + 1]
                               and starts[last + 1] - starts[i] <= group):
                            last += 1
                        columns = <int>(starts[last] - starts[i])
                        if columns > 0:
                            dgemm(&no, &no, &rows, &columns, &order, &one, &x[0, 0], &stride,
                                  <double*>&vectors[starts[i], 0], &order, &zero,
                                  &projected[0, 0], &stride)
                    rank = starts[i + 1] - starts[i] if i < m else 0
                    if rank < d:
                        distances(rows, d, &x[0, 0], &means[i, 0], &squares[0], &products[0])
                    for s in range(n_some):
                        w = some[s]
                        square = &terms[c, s, 0]
                        stretch = 1.0 - shrinks[w]
                        if rank < d and narrows[w] * stretch * stretch * lengths[i] < LONG:
                            shrunk_squares(rows, narrows[w], stretch, lengths[i], &squares[0],
                                           &products[0], square)
                        else:
                            for a in range(rows):
                                square[a] = 0.0
                            if rank < d:
                                add_squares(rows, d, &x[0, 0], &means[i, 0], shrinks[w],
                                            &narrows[w], 0, square)
                        if rank > 0:
                            if full:
                                coordinates = &projected[starts[i] - starts[begin], 0]
                            add_squares(rows, rank, coordinates if full else &x[0, 0],
                                        &projections[starts[i]], shrinks[w],
                                        &precisions[starts[i], w], n_widths, square)
                        finish(rows, bases[i, w], square, &peaks[s, 0])
                for s in range(n_some):
                    log_sums(rows, n_places, n_widths * BLOCK, &terms[0, s, 0], &peaks[s, 0],
                             &sums[0])
                    for a in range(size):
                        result[first + a, column + s] = sums[a]
                column += n_some
    return out
