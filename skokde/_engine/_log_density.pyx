"""Log-densities of the KDE in kernel coordinates."""

import numpy as np

from libc.math cimport fmax, log, sqrt, M_PI
from scipy.linalg.cython_blas cimport dgemm
from skokde._engine._exponential cimport exp_within  # no-cython-lint: for the C below
from skokde._engine._gaussian cimport eigh, residue, thin_factor, thin_limit, turn, work_size
from skokde._engine._shapes cimport check_shapes

# The loops that most of the time goes to, each over a block of so many points.
cdef extern from *:
    """
    #define BLOCK 64

    /* squares[a] += precision * (x[a] - mean)^2, for n coordinates of all points */
    FOR_EACH_PROCESSOR
    static void add_squares(
        int size, Py_ssize_t n, const double* x, const double* means, double shrink,
        const double* precisions, Py_ssize_t stride, double* squares
    ) {
        double sums[BLOCK];
        for (int a = 0; a < size; a++)
            sums[a] = squares[a];
        for (Py_ssize_t j = 0; j < n; j++) {
            const double mean = shrink * means[j], precision = precisions[j * stride];
            for (int a = 0; a < size; a++) {
                const double delta = x[j * BLOCK + a] - mean;
                sums[a] += precision * (delta * delta);
            }
        }
        for (int a = 0; a < size; a++)
            squares[a] = sums[a];
    }

    /* squares := base - squares / 2; zero if rounding has made them negative, and -inf if they
       overflow, or differ by more than that */
    FOR_EACH_PROCESSOR
    static void finish(int size, double base, double* squares) {
        for (int a = 0; a < size; a++) {
            const double square = squares[a] < 0.0 ? 0.0 : squares[a];
            squares[a] = square == square ? base - 0.5 * square : -INFINITY;
        }
    }

    /* log sum_i exp(terms[i]) for each point */
    FOR_EACH_PROCESSOR
    static void log_sums(
        int size, Py_ssize_t k, Py_ssize_t stride, const double* terms, double* out
    ) {
        double peaks[BLOCK], sums[BLOCK], logs[BLOCK];
        for (int a = 0; a < size; a++) {
            peaks[a] = -INFINITY;
            sums[a] = 0.0;
        }
        for (Py_ssize_t i = 0; i < k; i++)
            for (int a = 0; a < size; a++) {
                const double term = terms[i * stride + a];
                peaks[a] = term > peaks[a] ? term : peaks[a];
            }
        for (Py_ssize_t i = 0; i < k; i++) {
            for (int a = 0; a < size; a++) {
                const double below = terms[i * stride + a] - peaks[a];
                logs[a] = below > -700.0 ? below : -700.0;
            }
            for (int a = 0; a < size; a++)
                sums[a] += exp_within(logs[a]);
        }
        for (int a = 0; a < size; a++)
            out[a] = peaks[a] > -INFINITY ? peaks[a] + log(sums[a]) : -INFINITY;
    }
    """
    enum: BLOCK
    void add_squares(
        int size, Py_ssize_t n, const double* x, const double* means, double shrink,
        const double* precisions, Py_ssize_t stride, double* squares
    ) noexcept nogil
    void finish(int size, double base, double* squares) noexcept nogil
    void log_sums(
        int size, Py_ssize_t k, Py_ssize_t stride, const double* terms, double* out
    ) noexcept nogil


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
                log_det[i, w] = (d - rank) * log(narrow)
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


def log_densities(
    const double[:, ::1] points,
    const double[::1] log_weights,
    const double[:, ::1] means,
    const double[:, ::1] vectors,
    const double[::1] projections,
    const double[:, ::1] precisions,
    const Py_ssize_t[::1] starts,
    const double[:, ::1] log_dets,
    const double[::1] widths,
    const double[::1] shrinks,
):
    """Log-densities under mixtures of N(a mu_i, a^2 (S_i + b^2 I)), in nats.

    Parameters
    ----------
    points : (n, d) array
    log_weights : (k,) array
    means : (k, d) array
    vectors, projections, precisions, starts, log_dets
        What `decompose` returns.
    widths, shrinks : (n_widths,) arrays
        The b and the a, positive.

    Returns
    -------
    (n, n_widths) array
        Not NaN and below +inf for any points; -inf where the density is zero.
    """
    cdef Py_ssize_t n = points.shape[0], d = points.shape[1], k = means.shape[0]
    cdef Py_ssize_t m = starts.shape[0] - 1, n_widths = widths.shape[0]
    check_shapes(
        d, d,
        0 <= m <= k == log_weights.shape[0] and means.shape[1] == vectors.shape[1] == d
        and projections.shape[0] == precisions.shape[0] == starts[m]
        and vectors.shape[0] in (0, starts[m]) and log_dets.shape[0] == m
        and precisions.shape[1] == log_dets.shape[1] == shrinks.shape[0] == n_widths,
    )
    cdef Py_ssize_t block, first, size, a, i, j, w, last, rank, most = 0, group = 0
    cdef bint full = vectors.shape[0] > 0 or starts[m] == 0
    cdef int rows, stride = BLOCK, columns, order = <int>d
    cdef char no = b"N"
    cdef double one = 1.0, zero = 0.0, narrow, constant = 0.5 * d * log(2.0 * M_PI)
    for i in range(m):
        most = max(most, starts[i + 1] - starts[i])
    group = max(most, 128) if full else 0
    cdef double[:, ::1] x = np.zeros((d, BLOCK)), projected = np.empty((group, BLOCK))
    cdef double[:, :, ::1] terms = np.empty((k, n_widths, BLOCK))
    cdef double[:, ::1] bases = np.empty((k, n_widths))
    cdef double[::1] narrows = np.empty(n_widths)
    cdef double[::1] sums = np.empty(BLOCK)
    out = np.empty((n, n_widths))
    cdef double[:, ::1] result = out
    cdef double* square
    cdef const double* coordinates = NULL
    with nogil:
        for w in range(n_widths):
            narrow = (shrinks[w] * widths[w]) * (shrinks[w] * widths[w])
            narrows[w] = 1.0 / narrow
            for i in range(k):
                bases[i, w] = log_weights[i] - constant
                bases[i, w] -= 0.5 * (log_dets[i, w] if i < m else d * log(narrow))
        for block in range((n + BLOCK - 1) // BLOCK):
            first = block * BLOCK
            size = min(<Py_ssize_t>BLOCK, n - first)
            rows = <int>(size + 7) // 8 * 8  # whole vectors of every processor
            for a in range(size):
                for j in range(d):
                    x[j, a] = points[first + a, j]
            last = 0  # the first component whose points are not yet projected
            for i in range(k):
                if full and i == last and i < m:
                    # Those of several small ones at a time.
                    while last < m and starts[last + 1] - starts[i] <= group:
                        last += 1
                    columns = <int>(starts[last] - starts[i])
                    if columns > 0:
                        dgemm(&no, &no, &rows, &columns, &order, &one, &x[0, 0], &stride,
                              <double*>&vectors[starts[i], 0], &order, &zero,
                              &projected[0, 0], &stride)
                    coordinates = &projected[0, 0]
                rank = starts[i + 1] - starts[i] if i < m else 0
                for w in range(n_widths):
                    square = &terms[i, w, 0]
                    for a in range(rows):
                        square[a] = 0.0
                    if rank < d:
                        add_squares(rows, d, &x[0, 0], &means[i, 0], shrinks[w], &narrows[w], 0,
                                    square)
                    if rank > 0:
                        add_squares(rows, rank, coordinates if full else &x[0, 0],
                                    &projections[starts[i]], shrinks[w],
                                    &precisions[starts[i], w], n_widths, square)
                    finish(rows, bases[i, w], square)
                if full and i < m:
                    coordinates += rank * BLOCK
            for w in range(n_widths):
                log_sums(rows, k, n_widths * BLOCK, &terms[0, w, 0], &sums[0])
                for a in range(size):
                    result[first + a, w] = sums[a]
    return out
