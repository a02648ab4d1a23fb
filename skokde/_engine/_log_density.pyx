"""Log-densities of the KDE in kernel coordinates."""

import numpy as np

from libc.math cimport fabs, fmax, fmin, log, sqrt, INFINITY, M_PI
from libc.string cimport memcpy
from scipy.linalg.cython_blas cimport dgemm
from skokde._engine._eigh cimport LARGEST_ORDER
from skokde._engine._exponential cimport exp_within  # no-cython-lint: for the C below
from skokde._engine._gaussian cimport (
    dot, eigh, long_dot, longest_shift, residue, thin_factor, thin_limit, tridiagonal_form, turn,
    work_size,
)
from skokde._engine._shapes cimport check_shapes, number_of_parts

# Where bounds leave fewer than a tenth out of a block, they are not asked for some blocks after it.
cdef Py_ssize_t SELDOM = 15
# Of a kernel's variance: if more is lost to rounding, beside large variances, those eigenvalues are
# set to zero that are negative.
cdef double LOST = 1e-3
# In squared widths of the kernel: what is farther from the origin is not multiplied out, since
# differences of products would lose digits of log-densities.
cdef double FARTHEST = 1e4

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

    /* The same where a coordinate is first lessened by a multiple of the one before it. */
    FOR_EACH_PROCESSOR
    static void add_coupled_squares(
        int size, Py_ssize_t n, const double* restrict x, const double* restrict means,
        double shrink, const double* restrict precisions, const double* restrict couplings,
        Py_ssize_t stride, double* restrict squares
    ) {
        for (int first = 0; first < size; first += LANES) {
            double sums[LANES], before[LANES] = {0.0};
            for (int a = 0; a < LANES; a++)
                sums[a] = squares[first + a];
            for (Py_ssize_t j = 0; j < n; j++) {
                const double mean = shrink * means[j], precision = precisions[j * stride];
                const double coupling = couplings[j * stride];
                const double* row = x + j * BLOCK + first;
                for (int a = 0; a < LANES; a++) {
                    const double delta = (row[a] - mean) - coupling * before[a];
                    sums[a] += precision * (delta * delta);
                    before[a] = delta;
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

    /* sum_i exp(terms[i] - peak) for each point */
    FOR_EACH_PROCESSOR
    static void exponential_sums(
        int size, Py_ssize_t k, const double* restrict terms, const double* restrict peaks,
        double* restrict sums
    ) {
        double limits[BLOCK], logs[BLOCK];
        unsigned char counted[BLOCK];
        const uint64_t none = 0;
        for (int a = 0; a < size; a++) {
            limits[a] = peaks[a] - NEGLIGIBLE;
            sums[a] = 0.0;
        }
        for (Py_ssize_t i = 0; i < k; i++) {
            const double* row = terms + i * BLOCK;
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
    }

    /* tops := the larger ones */
    FOR_EACH_PROCESSOR
    static void raise_tops(int size, const double* restrict peaks, double* restrict tops) {
        for (int a = 0; a < size; a++)
            tops[a] = peaks[a] > tops[a] ? peaks[a] : tops[a];
    }

    /* totals += weight * sums * exp(peaks - tops) */
    FOR_EACH_PROCESSOR
    static void add_density(
        int size, double weight, const double* restrict peaks, const double* restrict sums,
        const double* restrict tops, double* restrict totals
    ) {
        double logs[BLOCK];
        for (int a = 0; a < size; a++) {
            const double below = peaks[a] - tops[a];
            logs[a] = below > -700.0 ? below : -700.0; /* not a number where both are -inf, too */
        }
        for (int a = 0; a < size; a++)
            totals[a] += weight * sums[a] * exp_within(logs[a]);
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
    void add_coupled_squares(
        int size, Py_ssize_t n, const double* x, const double* means, double shrink,
        const double* precisions, const double* couplings, Py_ssize_t stride, double* squares
    ) noexcept nogil
    void shrunk_squares(
        int size, double precision, double stretch, double square_of_mean, const double* squares,
        const double* products, double* out
    ) noexcept nogil
    void finish(int size, double base, double* squares, double* peaks) noexcept nogil
    void exponential_sums(
        int size, Py_ssize_t k, const double* terms, const double* peaks, double* sums
    ) noexcept nogil
    void raise_tops(int size, const double* peaks, double* tops) noexcept nogil
    void add_density(
        int size, double weight, const double* peaks, const double* sums, const double* tops,
        double* totals
    ) noexcept nogil


# Rows that are scored together: what is near none of them is left out.
BOX = BLOCK


cdef Py_ssize_t axes_of(
    Py_ssize_t d, const double* cov, bint coupled, double* axes, double* values, double* beside,
    double* work, int* iwork,
) noexcept nogil:
    # Orthonormal axes, as rows, along which a covariance is diagonal, or tridiagonal if they are
    # coupled; of a thin one only the few whose variances are not lost in the bandwidth's. Returns
    # their number.
    cdef Py_ssize_t i, j, rank
    cdef double scale
    cdef double* rest = work + thin_limit(d) * d
    for i in range(d):
        beside[i] = 0.0
    rank = thin_factor(d, cov, residue(), work, rest)
    if rank < 0:
        for j in range(d * d):
            axes[j] = cov[j]
        if coupled:
            tridiagonal_form(d, axes, values, beside, work)
            return d
        eigh(d, axes, values, work, iwork)
        rank = d
    else:
        turn(d, rank, work, axes, values, rest, iwork)
        for i in range(rank):
            scale = 1.0 / sqrt(values[i]) if values[i] > 0.0 else 0.0
            for j in range(d):
                axes[i * d + j] *= scale
    for i in range(rank):
        values[i] = fmax(values[i], 0.0)
    return rank


cdef bint weigh_axes(
    Py_ssize_t d, Py_ssize_t rank, const double* values, const double* beside,
    const double[::1] widths, const double[::1] shrinks, double* precisions, double* couplings,
    double* log_dets,
) noexcept nogil:
    # Of one component, under each width, L D L' of the variances along its axes: the inverse of D
    # and, where there is room, what is beside the diagonal of L. False if rounding has made one
    # indefinite.
    cdef Py_ssize_t r, w, place, n_widths = widths.shape[0]
    cdef double variance, edge, scale, narrow
    for w in range(n_widths):
        scale = shrinks[w] * shrinks[w]
        narrow = (shrinks[w] * widths[w]) * (shrinks[w] * widths[w])
        log_dets[w] = (d - rank) * log(narrow) if rank < d else 0.0
        for r in range(rank):
            place = r * n_widths + w
            variance = scale * values[r] + narrow
            if couplings != NULL and r > 0:
                edge = scale * beside[r - 1]
                couplings[place] = edge * precisions[place - n_widths]
                variance -= edge * couplings[place]
            if not variance > (1.0 - LOST) * narrow:
                return False
            log_dets[w] += log(variance)
            precisions[place] = 1.0 / variance
        for r in range(rank if rank < d else 0):
            precisions[r * n_widths + w] -= 1.0 / narrow
    return True


def decompose(
    const double[:, ::1] means,
    const double[:, ::1] covs,
    const double[::1] widths,
    const double[::1] shrinks,
):
    """What the log-densities of components take, for kernels of several widths.

    A covariance of many features is made tridiagonal only, in a third of the time that eigenvectors
    take: under each width L D L' of what is left takes no more than the eigenvalues would.

    Parameters
    ----------
    means : (k, d) array
    covs : (m, d * d) or (m, d) array
        Of the first m components; the others are Diracs.
    widths, shrinks : (n_widths,) arrays
        See `log_densities`; no width is below one.

    Returns
    -------
    axes : (n, d) array
        Orthonormal ones of all covariances, eigenvectors unless they are coupled; none if the
        covariances are diagonal.
    projections : (n,) array
        Of the means on the axes of their covariances, or n = m d means.
    precisions : (n, n_widths) array
        What a squared distance along each of them counts, less what it counts in a Dirac's kernel
        where there are fewer than d.
    couplings : (n, n_widths) or (0, n_widths) array
        By how much of the distance along the axis before it that along each axis is lessened.
    starts : (m + 1,) array of intp
        Where each component's begin.
    log_dets : (m, n_widths) array
    """
    cdef Py_ssize_t d = means.shape[1], m = covs.shape[0], size = covs.shape[1]
    cdef Py_ssize_t n_widths = widths.shape[0], i, j, r, rank, n = 0
    cdef bint full = size != d, coupled = full and d > LARGEST_ORDER, definite
    cdef double* beyond
    check_shapes(d, size, m <= means.shape[0] and shrinks.shape[0] == n_widths)
    axes = np.empty((m * d if full else 0, d))
    projections = np.empty(m * d)
    precisions, log_dets = np.empty((m * d, n_widths)), np.empty((m, n_widths))
    couplings = np.zeros((m * d if coupled else 0, n_widths))
    starts = np.zeros(m + 1, dtype=np.intp)
    cdef double[:, ::1] axis = axes, precision = precisions, coupling = couplings
    cdef double[:, ::1] log_det = log_dets
    cdef double[::1] projection = projections, value = np.empty(d), beside = np.empty(d)
    cdef Py_ssize_t[::1] start = starts
    cdef double[::1] work = np.empty(work_size(d, size))
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    with nogil:
        for i in range(m):
            rank = d
            for j in range(0 if full else d):
                value[j] = fmax(covs[i, j], 0.0)
            if full:
                rank = axes_of(d, &covs[i, 0], coupled, &axis[n, 0], &value[0], &beside[0],
                               &work[0], &iwork[0])
            beyond = &coupling[n, 0] if coupled else NULL
            definite = weigh_axes(d, rank, &value[0], &beside[0], widths, shrinks,
                                  &precision[n, 0], beyond, &log_det[i, 0])
            if coupled and not definite:  # eigenvalues are not negative
                rank = axes_of(d, &covs[i, 0], False, &axis[n, 0], &value[0], &beside[0],
                               &work[0], &iwork[0])
                weigh_axes(d, rank, &value[0], &beside[0], widths, shrinks, &precision[n, 0],
                           beyond, &log_det[i, 0])
            for r in range(n, n + rank):
                if full:
                    projection[r] = long_dot(d, &axis[r, 0], &means[i, 0])
                else:
                    projection[r] = means[i, r - n]
            n += rank
            start[i + 1] = n
    if not full:
        return axes, projections, precisions, couplings, starts, log_dets
    kept = [array[:n] for array in (axes, projections, precisions, couplings)]
    if 2 * n < m * d:  # of thin covariances little is held
        kept = [array.copy() for array in kept]
    return *kept, starts, log_dets


cdef double most_variance(
    Py_ssize_t n, Py_ssize_t stride, const double* precisions, const double* couplings
) noexcept nogil:
    # A bound of the largest eigenvalue of L D L' (Gershgorin).
    cdef Py_ssize_t r
    cdef double most = 0.0, before = 0.0, edge = 0.0, next_edge, value
    for r in range(n):
        value = 1.0 / precisions[r * stride]
        next_edge = fabs(couplings[(r + 1) * stride]) * value if r + 1 < n else 0.0
        most = fmax(most, value + couplings[r * stride] ** 2 * before + edge + next_edge)
        before, edge = value, next_edge
    return most


cdef void least_precisions(
    Py_ssize_t d, const Py_ssize_t[::1] starts, const double[:, ::1] precisions,
    const double[:, ::1] couplings, const double* narrows, double* out,
) noexcept nogil:
    # The least that a squared distance from each component counts in any direction.
    cdef Py_ssize_t i, r, w, m = starts.shape[0] - 1, n_kernels = precisions.shape[1]
    cdef double least
    cdef bint thin
    for i in range(m):
        thin = starts[i + 1] - starts[i] < d
        for w in range(n_kernels):
            least = 0.0 if thin else INFINITY
            if couplings.shape[0] > 0 and not thin:
                r = starts[i]
                out[i * n_kernels + w] = 1.0 / most_variance(
                    d, n_kernels, &precisions[r, w], &couplings[r, w]
                )
                continue
            for r in range(starts[i], starts[i + 1]):
                least = precisions[r, w] if precisions[r, w] < least else least
            out[i * n_kernels + w] = least + narrows[w] if thin else least


cdef void box_around(Py_ssize_t d, const double* x, double* low, double* high) noexcept nogil:
    # The least and the largest coordinates of a whole block.
    cdef Py_ssize_t a, j
    cdef double value
    for j in range(d):
        low[j] = high[j] = x[j * BLOCK]
        for a in range(1, BLOCK):
            value = x[j * BLOCK + a]
            low[j] = value if value < low[j] else low[j]
            high[j] = value if value > high[j] else high[j]


cdef struct Pair:
    # Components of one part of the model, under one kernel.
    Py_ssize_t width
    Py_ssize_t terms  # where those of its components begin
    Py_ssize_t first_use, last_use  # in the mixtures, in an array of `Use`


cdef struct Use:
    Py_ssize_t mixture
    double weight, log_weight


cdef struct Bounds:
    # What bounds on the terms of a block of points are made of, and room for them.
    Py_ssize_t d, n_mixtures, n_widths, m, n_kernels
    double least_shrink, most_shrink
    const double* means
    const Py_ssize_t* parts
    const Py_ssize_t* pairs_of
    const Pair* pairs
    const Use* uses
    double* bases  # (k, n_widths)
    double* narrows  # (n_widths,)
    double* leasts  # (m, n_kernels)
    double* low  # (d,)
    double* high
    double* uppers  # (k, n_widths)
    double* lowest  # (n_mixtures,)


cdef Py_ssize_t near_block(Bounds f, Py_ssize_t* places, Py_ssize_t n) noexcept nogil:
    # Of n components those that may count for any point of a whole block in any of the mixtures,
    # by bounds over the box around it; being shrunk by several factors, a mean is a segment.
    # Returns their number. There are no fmin and fmax, which are calls that most of the time would
    # go to.
    cdef Py_ssize_t c, i, j, q, u, w, n_near = 0
    cdef double low, high, below, above, near, far, gap
    cdef bint counts
    for j in range(f.n_mixtures):
        f.lowest[j] = -INFINITY  # the largest of the terms' lower bounds
    for c in range(n):
        i = places[c]
        near = far = 0.0
        for j in range(f.d):
            low = f.least_shrink * f.means[i * f.d + j]
            high = f.most_shrink * f.means[i * f.d + j]
            if low > high:
                low, high = high, low
            below, above = low - f.high[j], f.low[j] - high
            gap = below if below > above else above
            near += gap * gap if gap > 0.0 else 0.0
            below, above = high - f.low[j], f.high[j] - low
            gap = below if below > above else above
            far += gap * gap
        for q in range(f.pairs_of[f.parts[i]], f.pairs_of[f.parts[i] + 1]):
            w = f.pairs[q].width
            gap = f.leasts[i * f.n_kernels + w] if i < f.m else f.narrows[w]
            f.uppers[c * f.n_widths + w] = f.bases[i * f.n_widths + w] - 0.5 * near * gap
            low = f.bases[i * f.n_widths + w] - 0.5 * far * f.narrows[w]
            for u in range(f.pairs[q].first_use, f.pairs[q].last_use):
                high = low + f.uses[u].log_weight
                j = f.uses[u].mixture
                f.lowest[j] = high if high > f.lowest[j] else f.lowest[j]
    for c in range(n):
        i = places[c]
        counts = False
        for q in range(f.pairs_of[f.parts[i]], f.pairs_of[f.parts[i] + 1]):
            for u in range(f.pairs[q].first_use, f.pairs[q].last_use):
                high = f.uppers[c * f.n_widths + f.pairs[q].width] + f.uses[u].log_weight
                counts = counts or not high < f.lowest[f.uses[u].mixture] - NEGLIGIBLE
        if counts:
            places[n_near] = i
            n_near += 1
    return n_near


cdef bint is_near(double length1, double length2, double narrow) noexcept nogil:
    # Whether the square of a distance may come from the squares of both lengths and a product.
    return (length1 + length2) * narrow < FARTHEST


cdef void expand_squares(
    Py_ssize_t d, const double* mean, const double* precisions, Py_ssize_t stride, double shrink,
    double* out,
) noexcept nogil:
    # By what squares of coordinates, these, and one are to be multiplied that their sum is
    # sum_j precisions[j] (x[j] - shrink mean[j])^2.
    cdef Py_ssize_t j
    cdef double center
    out[2 * d] = 0.0
    for j in range(d):
        center = shrink * mean[j]
        out[j] = precisions[j * stride]
        out[d + j] = -2.0 * center * out[j]
        out[2 * d] += center * center * out[j]


cdef double* taken(double** free, Py_ssize_t n) noexcept nogil:
    # The next n doubles of a workspace.
    cdef double* start = free[0]
    free[0] = start + n
    return start


def log_mixtures(
    const double[:, ::1] points,
    const double[:, :, ::1] weights,
    const double[::1] log_weights,
    const double[:, ::1] means,
    const Py_ssize_t[::1] parts,
    const double[:, ::1] axes,
    const double[::1] projections,
    const double[:, ::1] precisions,
    const double[:, ::1] couplings,
    const Py_ssize_t[::1] starts,
    const double[:, ::1] log_dets,
    const double[::1] widths,
    const double[::1] shrinks,
):
    """Log-densities under mixtures of N(a mu_i, a^2 (S_i + b^2 I)), in nats.

    Parameters
    ----------
    points : (n, d) array
    weights : (n_mixtures, n_parts, n_widths) array
        What the parts of the model, under each kernel, count in each of the mixtures.
    log_weights : (k,) array
        Of the components within the model.
    means : (k, d) array
    parts : (k,) array of intp
        Which part each component belongs to. One with compounds has the first kernels only, those
        that `decompose` was called with.
    axes, projections, precisions, couplings, starts, log_dets
        What `decompose` returns.
    widths, shrinks : (n_widths,) arrays
        The b and the a, positive.

    Returns
    -------
    (n, n_mixtures) array
        Not NaN and below +inf for any points; -inf where the density is zero.
    """
    cdef Py_ssize_t n = points.shape[0], d = points.shape[1], k = means.shape[0]
    cdef Py_ssize_t m = starts.shape[0] - 1, n_widths = widths.shape[0]
    cdef Py_ssize_t n_mixtures = weights.shape[0], n_parts = weights.shape[1]
    cdef Py_ssize_t n_kernels = precisions.shape[1]
    check_shapes(
        d, d,
        0 <= m <= k == log_weights.shape[0] == parts.shape[0]
        and n_parts == number_of_parts(parts)
        and means.shape[1] == axes.shape[1] == d
        and projections.shape[0] == precisions.shape[0] == starts[m]
        and axes.shape[0] in (0, starts[m]) and log_dets.shape[0] == m
        and couplings.shape[0] in (0, starts[m]) and couplings.shape[1] == n_kernels
        and n_kernels == log_dets.shape[1] <= n_widths == shrinks.shape[0] == weights.shape[2],
    )
    cdef Py_ssize_t block, first, size, a, c, i, j, p, q, u, w, rank, n_places
    cdef Py_ssize_t n_pairs = 0, n_uses = 0, n_terms = 0, n_columns = 0
    cdef Py_ssize_t last, n_doubles, begin = 0, most = 0, group = 0, near, unasked = 0
    cdef bint full = axes.shape[0] > 0 or starts[m] == 0
    cdef int rows, stride = BLOCK, columns, order = <int>d
    cdef char no = b"N"
    cdef double one = 1.0, zero = 0.0, narrow, stretch, base, longest = longest_shift()
    cdef double nearest, farthest
    cdef double constant = 0.5 * d * log(2.0 * M_PI)
    for i in range(m):
        most = max(most, starts[i + 1] - starts[i])
    # Diagonal covariances' squares are multiplied out where that serves many rows.
    cdef bint expanded = not full and n >= BLOCK, some_near, all_near
    group = max(most if full else n_kernels, 128)
    # What is used of the parts, and in which mixtures. Views of many small arrays would take longer
    # than what few points take.
    cdef Py_ssize_t[::1] numbers = np.zeros(3 * n_parts + 1 + k, dtype=np.intp)
    cdef Py_ssize_t* sizes = &numbers[0]
    cdef Py_ssize_t* counts = sizes + n_parts
    cdef Py_ssize_t* pairs_of = counts + n_parts
    cdef Py_ssize_t* places = pairs_of + n_parts + 1
    cdef Py_ssize_t most_pairs = n_parts * n_widths, most_uses = n_mixtures * most_pairs
    cdef Py_ssize_t n_bytes = most_uses * sizeof(Use) + most_pairs * sizeof(Pair)
    cdef double[::1] structs = np.empty(n_bytes // sizeof(double) + 1)
    cdef Use* uses = <Use*>&structs[0]
    cdef Pair* pairs = <Pair*>(uses + most_uses)
    for i in range(k):
        sizes[parts[i]] += 1
    for p in range(n_parts):
        for w in range(n_widths):
            pairs[n_pairs].first_use = n_uses
            for j in range(n_mixtures):
                if weights[j, p, w] > 0.0:
                    uses[n_uses].mixture, uses[n_uses].weight = j, weights[j, p, w]
                    uses[n_uses].log_weight = log(weights[j, p, w])
                    n_uses += 1
            if n_uses > pairs[n_pairs].first_use:
                pairs[n_pairs].width, pairs[n_pairs].last_use = w, n_uses
                pairs[n_pairs].terms = n_terms
                n_terms += sizes[p]
                n_pairs += 1
        pairs_of[p + 1] = n_pairs
    for i in range(m):
        p = parts[i]
        if pairs_of[p] < pairs_of[p + 1] and pairs[pairs_of[p + 1] - 1].width >= n_kernels:
            raise ValueError("Compounds are not decomposed under all the kernels.")
    cdef Py_ssize_t[::1] columns_of = np.zeros(m + 1, dtype=np.intp)
    for i in range(m if expanded else 0):
        columns_of[i + 1] = columns_of[i] + pairs_of[parts[i] + 1] - pairs_of[parts[i]]
    n_columns = columns_of[m]
    cdef Py_ssize_t n_powers = 2 * d + 1
    cdef int powers = <int>n_powers
    n_doubles = BLOCK * (n_powers + group + n_terms + 2 * n_pairs + 2 * n_mixtures + 3)
    n_doubles += (2 * k + 2) * n_widths + k + m * n_kernels + n_mixtures + 2 * d
    n_doubles += n_columns * n_powers
    cdef double[::1] memory = np.empty(n_doubles)
    cdef double* free = &memory[0]
    # Squares of coordinates, these, and ones, and what they are multiplied by.
    cdef double* powers_of_x = taken(&free, n_powers * BLOCK)
    cdef double* x = powers_of_x + d * BLOCK
    cdef double* coefficients = taken(&free, n_columns * n_powers)
    cdef double* point_lengths = taken(&free, BLOCK)
    cdef double* projected = taken(&free, group * BLOCK)
    cdef double* terms = taken(&free, n_terms * BLOCK)
    cdef double* peaks = taken(&free, n_pairs * BLOCK)
    cdef double* sums = taken(&free, n_pairs * BLOCK)
    cdef double* tops = taken(&free, n_mixtures * BLOCK)
    cdef double* totals = taken(&free, n_mixtures * BLOCK)
    cdef double* squares = taken(&free, BLOCK)
    cdef double* products = taken(&free, BLOCK)
    cdef double* lengths = taken(&free, k)
    cdef double* log_narrows = taken(&free, n_widths)
    cdef Bounds f
    f.d, f.n_mixtures, f.n_widths, f.m, f.n_kernels = d, n_mixtures, n_widths, m, n_kernels
    f.means, f.parts, f.pairs_of, f.pairs, f.uses = (
        &means[0, 0], &parts[0], pairs_of, pairs, uses
    )
    f.least_shrink, f.most_shrink = INFINITY, 0.0
    f.bases, f.uppers = taken(&free, k * n_widths), taken(&free, k * n_widths)
    f.narrows, f.leasts = taken(&free, n_widths), taken(&free, m * n_kernels)
    f.low, f.high, f.lowest = taken(&free, d), taken(&free, d), taken(&free, n_mixtures)
    out = np.empty((n, n_mixtures))
    cdef double[:, ::1] result = out
    cdef double* square
    cdef double* column = NULL
    cdef const double* coordinates = NULL
    # In products of matrices: points or their powers, and axes or coefficients of components.
    cdef double* factors = x if full else powers_of_x
    cdef int n_factors = order if full else powers
    cdef double* multiplied = coefficients
    cdef const Py_ssize_t* begins = &starts[0] if full else &columns_of[0]
    if full and axes.shape[0]:
        multiplied = <double*>&axes[0, 0]
    with nogil:
        for a in range(n_powers * BLOCK):
            # Points are zero where the last block is not full.
            powers_of_x[a] = a >= 2 * d * BLOCK
        for a in range(BLOCK):
            point_lengths[a] = 0.0
        for i in range(m if expanded else 0):
            c = columns_of[i]
            for q in range(pairs_of[parts[i]], pairs_of[parts[i] + 1]):
                w = pairs[q].width
                expand_squares(d, &means[i, 0], &precisions[starts[i], w], n_kernels, shrinks[w],
                               coefficients + c * n_powers)
                c += 1
        for w in range(n_widths):
            narrow = (shrinks[w] * widths[w]) * (shrinks[w] * widths[w])
            f.narrows[w], log_narrows[w] = 1.0 / narrow, log(narrow)
        for q in range(n_pairs):  # of the kernels that are used
            f.least_shrink = fmin(f.least_shrink, shrinks[pairs[q].width])
            f.most_shrink = fmax(f.most_shrink, shrinks[pairs[q].width])
        for i in range(k):
            lengths[i] = dot(d, &means[i, 0], &means[i, 0])
            for w in range(n_kernels if i < m else n_widths):
                base = log_weights[i] - constant
                base -= 0.5 * (log_dets[i, w] if i < m else d * log_narrows[w])
                f.bases[i * n_widths + w] = base
        if n >= BLOCK:
            least_precisions(d, starts, precisions, couplings, f.narrows, f.leasts)
        for block in range((n + BLOCK - 1) // BLOCK):
            first = block * BLOCK
            size = min(<Py_ssize_t>BLOCK, n - first)
            rows = <int>(size + LANES - 1) // LANES * LANES  # whole vectors of every processor
            for a in range(size):
                for j in range(d):
                    x[j * BLOCK + a] = points[first + a, j]
            if expanded:
                nearest, farthest = INFINITY, 0.0
                for a in range(d * BLOCK):
                    powers_of_x[a] = x[a] * x[a]
                for a in range(size):
                    point_lengths[a] = dot(d, &points[first + a, 0], &points[first + a, 0])
                    nearest = min(nearest, point_lengths[a])
                    farthest = max(farthest, point_lengths[a])
            n_places = 0
            for i in range(k):
                if pairs_of[parts[i]] < pairs_of[parts[i] + 1]:
                    places[n_places] = i
                    n_places += 1
            if unasked > 0:
                unasked -= 1
            elif size == BLOCK:
                box_around(d, x, f.low, f.high)
                near = near_block(f, places, n_places)
                if 10 * near > 9 * n_places:
                    unasked = SELDOM
                n_places = near
            for p in range(n_parts):
                counts[p] = 0
            for a in range(n_pairs * BLOCK):
                peaks[a] = -INFINITY
            for a in range(n_mixtures * BLOCK):
                tops[a] = -INFINITY
                totals[a] = 0.0
            last = 0  # the first component whose points are not yet projected
            for c in range(n_places):
                i = places[c]
                p = parts[i]
                if last <= i < m and (full or expanded):
                    begin = last = i
                    # Those of several small ones at a time.
                    while last < m and begins[last + 1] - begins[i] <= group:
                        last += 1
                    columns = <int>(begins[last] - begins[i])
                    if columns > 0:
                        dgemm(&no, &no, &rows, &columns, &n_factors, &one, factors, &stride,
                              multiplied + begins[i] * n_factors, &n_factors, &zero, projected,
                              &stride)
                rank = starts[i + 1] - starts[i] if i < m else 0
                if rank < d:
                    distances(rows, d, x, &means[i, 0], squares, products)
                for q in range(pairs_of[p], pairs_of[p + 1]):
                    w = pairs[q].width
                    square = terms + (pairs[q].terms + counts[p]) * BLOCK
                    stretch = 1.0 - shrinks[w]
                    all_near = some_near = False
                    if expanded and i < m:
                        j = begins[i] - begins[begin] + q - pairs_of[p]
                        column = projected + j * BLOCK
                        some_near = is_near(nearest, lengths[i], f.narrows[w])
                        all_near = is_near(farthest, lengths[i], f.narrows[w])
                    if all_near:
                        memcpy(square, column, rows * sizeof(double))
                    elif rank < d and f.narrows[w] * stretch * stretch * lengths[i] < longest:
                        shrunk_squares(rows, f.narrows[w], stretch, lengths[i], squares, products,
                                       square)
                    else:
                        for a in range(rows):
                            square[a] = 0.0
                        if rank < d:
                            add_squares(rows, d, x, &means[i, 0], shrinks[w], &f.narrows[w], 0,
                                        square)
                    if rank > 0 and not all_near:
                        if full:
                            coordinates = projected + (starts[i] - starts[begin]) * BLOCK
                        if rank == d and couplings.shape[0] > 0:
                            add_coupled_squares(
                                rows, d, coordinates, &projections[starts[i]], shrinks[w],
                                &precisions[starts[i], w], &couplings[starts[i], w], n_kernels,
                                square,
                            )
                        else:
                            add_squares(rows, rank, coordinates if full else x,
                                        &projections[starts[i]], shrinks[w],
                                        &precisions[starts[i], w], n_kernels, square)
                    # A row must not depend on those that it is scored with.
                    for a in range(rows if some_near and not all_near else 0):
                        if is_near(point_lengths[a], lengths[i], f.narrows[w]):
                            square[a] = column[a]
                    finish(rows, f.bases[i * n_widths + w], square, peaks + q * BLOCK)
                counts[p] += 1
            for p in range(n_parts):
                for q in range(pairs_of[p], pairs_of[p + 1]):
                    exponential_sums(rows, counts[p], terms + pairs[q].terms * BLOCK,
                                     peaks + q * BLOCK, sums + q * BLOCK)
                    for u in range(pairs[q].first_use, pairs[q].last_use):
                        raise_tops(rows, peaks + q * BLOCK, tops + uses[u].mixture * BLOCK)
            for q in range(n_pairs):
                for u in range(pairs[q].first_use, pairs[q].last_use):
                    j = uses[u].mixture * BLOCK
                    add_density(rows, uses[u].weight, peaks + q * BLOCK, sums + q * BLOCK,
                                tops + j, totals + j)
            for j in range(n_mixtures):
                for a in range(size):
                    base = tops[j * BLOCK + a]
                    result[first + a, j] = base
                    if base > -INFINITY:
                        result[first + a, j] = base + log(totals[j * BLOCK + a])
    return out
