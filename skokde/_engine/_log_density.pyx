"""Log-densities of the KDE in kernel coordinates."""

import numpy as np

from libc.math cimport fabs, fmax, log, sqrt, INFINITY, M_PI
from libc.string cimport memcpy
from scipy.linalg.cython_blas cimport dgemm
from skokde._engine._eigh cimport LARGEST_ORDER
from skokde._engine._exponential cimport exp_within  # no-cython-lint: for the C below
from skokde._engine._gaussian cimport (
    dot, eigh, long_dot, longest_shift, residue, thin_factor, thin_limit, tridiagonal_form, turn,
    work_size,
)
from skokde._engine._shapes cimport check_shapes, number_of_parts

# Where bounds leave less than half of the terms out of a block, they are not asked for so many
# blocks after it.
cdef Py_ssize_t SELDOM = 15
# Of a density: what the terms that bounds leave out may be together.
cdef double LEFT_OUT = 1e-11
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

    /* Of a full block, from |x|^2 and x . mean, a lower bound of |x - shrink mean|^2: what rounding
       may have changed is a small part of the lengths. */
    typedef struct {
        const double *lengths, *products;
        double length, twice; /* shrink^2 |mean|^2 and 2 shrink */
    } Distance;

    #define SQUARE(a) \
        (least * far.lengths[a] + (least * far.length - far.twice * far.products[a]))

    /* The least of them. */
    FOR_EACH_PROCESSOR
    static double least_square(const Distance* at) {
        const Distance far = *at;
        const double least = 1.0 - 1e-12;
        double squares[LANES], square = INFINITY;
        for (int a = 0; a < LANES; a++)
            squares[a] = SQUARE(a);
        for (int first = LANES; first < BLOCK; first += LANES)
            for (int a = 0; a < LANES; a++) {
                const double other = SQUARE(first + a);
                squares[a] = squares[a] < other ? squares[a] : other; /* or not a number */
            }
        for (int a = 0; a < LANES; a++)
            square = squares[a] < square ? squares[a] : square;
        return square;
    }

    /* The largest bounds base - half |x - shrink mean|^2 of terms so far, and the numbers of the
       components they are of. */
    FOR_EACH_PROCESSOR
    static void raise_bounds(
        const Distance* at, double base, double half, double number, double* restrict bounds,
        double* restrict numbers
    ) {
        const Distance far = *at;
        const double least = 1.0 - 1e-12;
        for (int a = 0; a < BLOCK; a++) {
            const double upper = base - half * SQUARE(a);
            numbers[a] = upper > bounds[a] ? number : numbers[a];
            bounds[a] = upper > bounds[a] ? upper : bounds[a];
        }
    }

    /* Whether the bound base - half |x - shrink mean|^2 is not low for some point. */
    FOR_EACH_PROCESSOR
    static int may_count(
        const Distance* at, double base, double half, const double* restrict lows
    ) {
        const Distance far = *at;
        const double least = 1.0 - 1e-12;
        int may = 0;
        for (int a = 0; a < BLOCK; a++)
            may |= !(base - half * SQUARE(a) < lows[a]);
        return may;
    }

    /* The same with gain (y - center)^2 more, where y is along some axis. */
    FOR_EACH_PROCESSOR
    static int may_count_along(
        const Distance* at, double base, double half, double gain, double center,
        const double* restrict y, const double* restrict lows
    ) {
        const Distance far = *at;
        const double least = 1.0 - 1e-12;
        int may = 0;
        for (int a = 0; a < BLOCK; a++) {
            const double along = y[a] - center;
            may |= !(base - half * SQUARE(a) + gain * (along * along) < lows[a]);
        }
        return may;
    }

    /* y := x . axis of all points */
    FOR_EACH_PROCESSOR
    static void project(
        Py_ssize_t d, const double* restrict x, const double* restrict axis, double* restrict y
    ) {
        for (int a = 0; a < BLOCK; a++)
            y[a] = 0.0;
        for (Py_ssize_t j = 0; j < d; j++)
            for (int a = 0; a < BLOCK; a++)
                y[a] += axis[j] * x[j * BLOCK + a];
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
    ctypedef struct Distance:
        const double* lengths
        const double* products
        double length, twice
    double least_square(const Distance* far) noexcept nogil
    void raise_bounds(
        const Distance* far, double base, double half, double number, double* bounds,
        double* numbers
    ) noexcept nogil
    int may_count(
        const Distance* far, double base, double half, const double* lows
    ) noexcept nogil
    int may_count_along(
        const Distance* far, double base, double half, double gain, double center, const double* y,
        const double* lows
    ) noexcept nogil
    void project(Py_ssize_t d, const double* x, const double* axis, double* y) noexcept nogil
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


def least_precisions(
    const double[:, ::1] precisions,
    const double[:, ::1] couplings,
    const Py_ssize_t[::1] starts,
    Py_ssize_t d,
    const double[::1] widths,
    const double[::1] shrinks,
):
    """What bounds of log-densities take, beside what `decompose` returns.

    Parameters
    ----------
    precisions, couplings, starts
        Of m components, see `decompose`.
    d : int
    widths, shrinks : (n_widths,) arrays

    Returns
    -------
    longest : (m,) array of intp
        Which of a component's axes has the most variance; -1 where they are coupled, or none.
    leasts, across : (m, n_widths) arrays
        What a squared distance counts at least: in any direction, and across that axis.
    """
    cdef Py_ssize_t m = starts.shape[0] - 1, n_widths = precisions.shape[1], i, r, w, rank, start
    cdef double narrow, besides, precision
    check_shapes(
        d, d,
        0 <= m and precisions.shape[0] == starts[m] and couplings.shape[0] in (0, starts[m])
        and couplings.shape[1] == n_widths == widths.shape[0] == shrinks.shape[0],
    )
    longest = np.full(m, -1, dtype=np.intp)
    leasts, across = np.empty((m, n_widths)), np.empty((m, n_widths))
    cdef Py_ssize_t[::1] axis = longest
    cdef double[:, ::1] least = leasts, rest = across
    for i in range(m):
        start, rank = starts[i], starts[i + 1] - starts[i]
        for r in range(0 if rank == d and couplings.shape[0] > 0 else rank):
            if axis[i] < 0 or precisions[start + r, 0] < precisions[start + axis[i], 0]:
                axis[i] = r
        for w in range(n_widths):
            narrow = 1.0 / ((shrinks[w] * widths[w]) * (shrinks[w] * widths[w]))
            besides = 0.0 if rank == d else narrow
            least[i, w] = rest[i, w] = narrow  # no component is narrower than its kernel
            for r in range(rank if axis[i] >= 0 else 0):
                precision = besides + precisions[start + r, w]
                least[i, w] = min(least[i, w], precision)
                if r != axis[i]:
                    rest[i, w] = min(rest[i, w], precision)
            if rank == d and axis[i] < 0:
                least[i, w] = rest[i, w] = 1.0 / most_variance(
                    d, n_widths, &precisions[start, w], &couplings[start, w]
                )
    return longest, leasts, across


cdef struct Pair:
    # Components of one part of the model, under one kernel.
    Py_ssize_t width
    Py_ssize_t terms  # where those of its components begin
    Py_ssize_t first_use, last_use  # in the mixtures, in an array of `Use`


cdef struct Use:
    Py_ssize_t mixture
    double weight, log_weight
    bint first  # of the part in this mixture


cdef struct Model:
    # What is the same for all blocks of points.
    Py_ssize_t d, k, m, n_parts, n_widths, n_kernels, n_mixtures, n_pairs
    const double* means
    const double* shrinks
    const Py_ssize_t* parts
    const Py_ssize_t* starts
    const double* projections
    const double* precisions
    const double* couplings  # NULL where there are none
    const Py_ssize_t* pairs_of  # (n_parts + 1,), where those of each part begin
    const Pair* pairs
    const Use* uses
    const Py_ssize_t* used  # (n_used,), the components that have pairs
    Py_ssize_t n_used
    double* lengths  # (k,), squares of the means'
    double* bases  # (k, n_widths), the terms at the means
    double* narrows  # (n_widths,), the precisions of Diracs
    const Py_ssize_t* longest  # (m,)
    const double* leasts  # (m, n_kernels)
    const double* across  # (m, n_kernels)
    double limit  # in nats below a lower bound: what is left out
    # In products of matrices: axes of all compounds, or coefficients of their squares, the number
    # of their rows, where those of each compound begin, and how many there is room for at a time.
    bint full, expanded
    const double* factors
    int n_factors
    const Py_ssize_t* begins
    Py_ssize_t group


cdef struct Block:
    # A block of points, and what is found of it.
    double* powers  # (2 d + 1, BLOCK), squares of coordinates, these, and ones
    double* x  # (d, BLOCK), the coordinates
    double* lengths  # (BLOCK,)
    double nearest, farthest  # the least and the largest of these
    double* products  # (k, BLOCK), with all means
    double* bounds  # (n_mixtures, BLOCK), of the largest terms
    double* numbers  # (n_mixtures, BLOCK), the components whose bounds these are
    double* lows  # (n_mixtures, BLOCK), below which a term does not count
    double* lowest  # (n_mixtures,)
    double* projected  # (group, BLOCK)
    double* squares  # (BLOCK,)
    double* alongs  # (BLOCK,)
    double* terms  # (n_terms, BLOCK)
    double* peaks  # (n_pairs, BLOCK)
    double* sums  # (n_pairs, BLOCK)
    double* tops  # (n_mixtures, BLOCK)
    double* totals  # (n_mixtures, BLOCK)
    Py_ssize_t* firsts  # (k,), components that are evaluated first
    Py_ssize_t* others  # (k,), and after them
    unsigned char* asked  # (k, n_widths), whether terms are evaluated under the pairs of a part
    Py_ssize_t* counts  # (n_pairs,), how many of the components have been evaluated


cdef Py_ssize_t index_pairs(
    const double[:, :, ::1] weights, const Py_ssize_t* sizes, Use* uses, Pair* pairs,
    Py_ssize_t* pairs_of,
) noexcept nogil:
    # What counts in any mixture: the kernels of each part of a size, and their uses. Returns the
    # number of terms.
    cdef Py_ssize_t before, j, p, w, n_uses = 0, n_pairs = 0, n_terms = 0
    for p in range(weights.shape[1]):
        for w in range(weights.shape[2]):
            pairs[n_pairs].first_use = n_uses
            for j in range(weights.shape[0]):
                if weights[j, p, w] > 0.0:
                    uses[n_uses].mixture, uses[n_uses].weight = j, weights[j, p, w]
                    uses[n_uses].log_weight = log(weights[j, p, w])
                    uses[n_uses].first = True
                    for before in range(w):
                        uses[n_uses].first &= not weights[j, p, before] > 0.0
                    n_uses += 1
            if n_uses > pairs[n_pairs].first_use:
                pairs[n_pairs].width, pairs[n_pairs].last_use = w, n_uses
                pairs[n_pairs].terms = n_terms
                n_terms += sizes[p]
                n_pairs += 1
        pairs_of[p + 1] = n_pairs
    return n_terms


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


cdef void find_terms(
    Model f, Block b, const Py_ssize_t* places, Py_ssize_t n, int rows, const unsigned char* asked
) noexcept nogil:
    # Of n components, under the kernels that are used or those of them that are asked for, and the
    # peaks of each pair.
    cdef Py_ssize_t a, c, i, p, q, w, place, rank, begin = 0
    cdef Py_ssize_t last = 0  # the first component whose points are not yet projected
    cdef int stride = BLOCK, columns, n_factors = f.n_factors
    cdef char no = b"N"
    cdef double one = 1.0, zero = 0.0, stretch, longest = longest_shift()
    cdef bint some_near, all_near
    cdef double* square
    cdef double* column = NULL
    cdef const double* coordinates
    for c in range(n):
        i = places[c]
        p = f.parts[i]
        if last <= i < f.m and (f.full or f.expanded):
            begin = last = i
            # Those of several small ones at a time.
            while (last - i < n - c and places[c + last - i] == last < f.m
                    and f.begins[last + 1] - f.begins[i] <= f.group):
                last += 1
            columns = <int>(f.begins[last] - f.begins[i])
            if columns > 0:
                dgemm(&no, &no, &rows, &columns, &n_factors, &one, b.x if f.full else b.powers,
                      &stride, <double*>f.factors + f.begins[i] * n_factors, &n_factors, &zero,
                      b.projected, &stride)
        rank = f.starts[i + 1] - f.starts[i] if i < f.m else 0
        if rank < f.d:
            distances(rows, f.d, b.x, f.means + i * f.d, b.squares, b.alongs)
        for q in range(f.pairs_of[p], f.pairs_of[p + 1]):
            if asked != NULL and not asked[i * f.n_widths + q - f.pairs_of[p]]:
                continue
            w = f.pairs[q].width
            square = b.terms + (f.pairs[q].terms + b.counts[q]) * BLOCK
            b.counts[q] += 1
            stretch = 1.0 - f.shrinks[w]
            all_near = some_near = False
            if f.expanded and i < f.m:
                column = b.projected + (f.begins[i] - f.begins[begin] + q - f.pairs_of[p]) * BLOCK
                some_near = is_near(b.nearest, f.lengths[i], f.narrows[w])
                all_near = is_near(b.farthest, f.lengths[i], f.narrows[w])
            if all_near:
                memcpy(square, column, rows * sizeof(double))
            elif rank < f.d and f.narrows[w] * stretch * stretch * f.lengths[i] < longest:
                shrunk_squares(rows, f.narrows[w], stretch, f.lengths[i], b.squares, b.alongs,
                               square)
            else:
                for a in range(rows):
                    square[a] = 0.0
                if rank < f.d:
                    add_squares(rows, f.d, b.x, f.means + i * f.d, f.shrinks[w], &f.narrows[w], 0,
                                square)
            if rank > 0 and not all_near:
                coordinates = b.x
                if f.full:
                    coordinates = b.projected + (f.starts[i] - f.starts[begin]) * BLOCK
                place = f.starts[i] * f.n_kernels + w
                if rank == f.d and f.couplings != NULL:
                    add_coupled_squares(
                        rows, f.d, coordinates, f.projections + f.starts[i], f.shrinks[w],
                        f.precisions + place, f.couplings + place, f.n_kernels, square,
                    )
                else:
                    add_squares(rows, rank, coordinates, f.projections + f.starts[i],
                                f.shrinks[w], f.precisions + place, f.n_kernels, square)
            # A row must not depend on those that it is scored with.
            for a in range(rows if some_near and not all_near else 0):
                if is_near(b.lengths[a], f.lengths[i], f.narrows[w]):
                    square[a] = column[a]
            finish(rows, f.bases[i * f.n_widths + w], square, b.peaks + q * BLOCK)


cdef Distance distance_from(
    const Model* f, const Block* b, Py_ssize_t i, double shrink
) noexcept nogil:
    cdef Distance far
    far.lengths, far.products = b.lengths, b.products + i * BLOCK
    far.length, far.twice = shrink * shrink * f.lengths[i], 2.0 * shrink
    return far


cdef double least_precision(const Model* f, Py_ssize_t i, Py_ssize_t w) noexcept nogil:
    return f.leasts[i * f.n_kernels + w] if i < f.m else f.narrows[w]


cdef void raise_lows(Model f, Block b) noexcept nogil:
    # From the peaks.
    cdef Py_ssize_t a, j, q, u
    cdef double low
    for q in range(f.n_pairs):
        for u in range(f.pairs[q].first_use, f.pairs[q].last_use):
            j = f.uses[u].mixture * BLOCK
            for a in range(BLOCK):
                low = b.peaks[q * BLOCK + a] + f.uses[u].log_weight - f.limit
                b.lows[j + a] = low if low > b.lows[j + a] else b.lows[j + a]


cdef Py_ssize_t find_nearest_components(Model f, Block b) noexcept nogil:
    # Those with the largest bound for some point, under the first kernels alone. Returns how many.
    cdef Py_ssize_t a, c, i, j, p, q, u, w, n = 0
    cdef double base, half
    cdef Distance far
    for a in range(f.n_mixtures * BLOCK):
        b.bounds[a], b.numbers[a] = -INFINITY, 0.0
    for c in range(f.n_used):
        i = f.used[c]
        p = f.parts[i]
        for q in range(f.pairs_of[p], f.pairs_of[p + 1]):
            w = f.pairs[q].width
            for u in range(f.pairs[q].first_use, f.pairs[q].last_use):
                if f.uses[u].first:
                    j = f.uses[u].mixture * BLOCK
                    base = f.bases[i * f.n_widths + w] + f.uses[u].log_weight
                    half = 0.5 * least_precision(&f, i, w)
                    far = distance_from(&f, &b, i, f.shrinks[w])
                    raise_bounds(&far, base, half, c, b.bounds + j, b.numbers + j)
    for a in range(f.n_mixtures * BLOCK):
        b.asked[<Py_ssize_t>b.numbers[a]] = True
    for c in range(f.n_used):
        if b.asked[c]:
            b.firsts[n] = f.used[c]
            n += 1
    return n


cdef bint may_count_across(
    const Model* f, const Block* b, Py_ssize_t i, Py_ssize_t w, Use use
) noexcept nogil:
    # Whether a term may count for some point: by the least precision, and then by that across the
    # longest axis.
    cdef Distance far = distance_from(f, b, i, f.shrinks[w])
    cdef double base = f.bases[i * f.n_widths + w] + use.log_weight
    cdef double half, least = least_precision(f, i, w)
    cdef double* lows = b.lows + use.mixture * BLOCK
    cdef Py_ssize_t axis
    if not may_count(&far, base, 0.5 * least, lows):
        return False
    if i >= f.m or f.longest[i] < 0:
        return True
    axis = f.starts[i] + f.longest[i]
    if f.full:
        project(f.d, b.x, f.factors + axis * f.d, b.alongs)
    half = 0.5 * f.across[i * f.n_kernels + w]
    return may_count_along(
        &far, base, half, half - 0.5 * least, f.shrinks[w] * f.projections[axis],
        b.alongs if f.full else b.x + f.longest[i] * BLOCK, lows,
    )


cdef bint ask_for_pairs(const Model* f, const Block* b, Py_ssize_t i) noexcept nogil:
    # Under which kernels a component may count for some point of a full block in some mixture.
    cdef Py_ssize_t q, u, w, start = f.pairs_of[f.parts[i]], end = f.pairs_of[f.parts[i] + 1]
    cdef double nearest = 0.0, length = 0.0, gap, most
    cdef Use use
    cdef Distance far
    cdef bint any_may = False
    if end - start > 1:  # the least distance tells of most kernels that they are too narrow
        far = distance_from(f, b, i, 1.0)
        nearest = (1.0 - 1e-12) * sqrt(max(least_square(&far), 0.0))
        length = sqrt(f.lengths[i])
    for q in range(start, end):
        w = f.pairs[q].width
        gap = max(nearest - (1.0 - f.shrinks[w]) * length, 0.0)
        most = f.bases[i * f.n_widths + w] - 0.5 * least_precision(f, i, w) * (gap * gap)
        b.asked[i * f.n_widths + q - start] = False
        for u in range(f.pairs[q].first_use, f.pairs[q].last_use):
            use = f.uses[u]
            if (not most + use.log_weight < b.lowest[use.mixture]
                    and may_count_across(f, b, i, w, use)):
                b.asked[i * f.n_widths + q - start] = any_may = True
                break
    return any_may


cdef Py_ssize_t find_terms_that_count(Model f, Block b, bint known) noexcept nogil:
    # Of a full block: first, unless something of the densities is known, of the components that
    # are nearest to some point, and then those terms that may count beside these. Returns how many
    # terms.
    cdef Py_ssize_t a, c, i, j, q, n_first = 0, n_others = 0, n_terms = 0
    cdef int order = <int>f.d, stride = BLOCK, columns = <int>f.k
    cdef char no = b"N"
    cdef double one = 1.0, zero = 0.0
    dgemm(&no, &no, &stride, &columns, &order, &one, b.x, &stride, <double*>f.means, &order, &zero,
          b.products, &stride)
    for c in range(f.n_used):
        b.asked[c] = False
    if not known:
        n_first = find_nearest_components(f, b)
        find_terms(f, b, b.firsts, n_first, BLOCK, NULL)
        raise_lows(f, b)
    for j in range(f.n_mixtures):
        b.lowest[j] = INFINITY
        for a in range(j * BLOCK, (j + 1) * BLOCK):
            b.lowest[j] = min(b.lowest[j], b.lows[a])
    j = 0
    for c in range(f.n_used):
        i = f.used[c]
        if j < n_first and b.firsts[j] == i:
            j += 1
        elif ask_for_pairs(&f, &b, i):
            b.others[n_others] = i
            n_others += 1
    find_terms(f, b, b.others, n_others, BLOCK, b.asked)
    for q in range(f.n_pairs):
        n_terms += b.counts[q]
    return n_terms


cdef void mix_terms(Model f, Block b, int rows) noexcept nogil:
    # In each mixture the largest peak, and the sum of densities beside it.
    cdef Py_ssize_t a, j, p, q, u
    for a in range(f.n_mixtures * BLOCK):
        b.tops[a] = -INFINITY
        b.totals[a] = 0.0
    for p in range(f.n_parts):
        for q in range(f.pairs_of[p], f.pairs_of[p + 1]):
            exponential_sums(rows, b.counts[q], b.terms + f.pairs[q].terms * BLOCK,
                             b.peaks + q * BLOCK, b.sums + q * BLOCK)
            for u in range(f.pairs[q].first_use, f.pairs[q].last_use):
                raise_tops(rows, b.peaks + q * BLOCK, b.tops + f.uses[u].mixture * BLOCK)
    for q in range(f.n_pairs):
        for u in range(f.pairs[q].first_use, f.pairs[q].last_use):
            j = f.uses[u].mixture * BLOCK
            add_density(rows, f.uses[u].weight, b.peaks + q * BLOCK, b.sums + q * BLOCK,
                        b.tops + j, b.totals + j)


cdef double* taken(double** free, Py_ssize_t n) noexcept nogil:
    # The next n doubles of a workspace.
    cdef double* start = free[0]
    free[0] = start + n
    return start


def log_mixtures(
    const double[:, ::1] points,
    const double[:, :, ::1] weights,
    const double[:, ::1] besides,
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
    const Py_ssize_t[::1] longest=None,
    const double[:, ::1] leasts=None,
    const double[:, ::1] across=None,
):
    """Log-densities under mixtures of N(a mu_i, a^2 (S_i + b^2 I)), in nats.

    Parameters
    ----------
    points : (n, d) array
    weights : (n_mixtures, n_parts, n_widths) array
        What the parts of the model, under each kernel, count in each of the mixtures.
    besides : (n, n_mixtures) array or None
        Log-densities of what the mixtures are added to: what is negligible then may be left out.
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
    longest, leasts, across : optional
        What `least_precisions` returns: without them every component is evaluated at every point.

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
        and (besides is None or besides.shape[0] == n and besides.shape[1] == n_mixtures)
        and means.shape[1] == axes.shape[1] == d
        and projections.shape[0] == precisions.shape[0] == starts[m]
        and axes.shape[0] in (0, starts[m])
        and log_dets.shape[0] == m
        and (longest is None or longest.shape[0] == m)
        and (longest is None) == (leasts is None) == (across is None)
        and (leasts is None or leasts.shape[0] == m and leasts.shape[1] == n_kernels)
        and (across is None or across.shape[0] == m and across.shape[1] == n_kernels)
        and couplings.shape[0] in (0, starts[m]) and couplings.shape[1] == n_kernels
        and n_kernels == log_dets.shape[1]
        and n_kernels <= n_widths == shrinks.shape[0] == weights.shape[2],
    )
    cdef Py_ssize_t number, first, size, a, c, i, j, p, q, w, unasked = 0, most = 0
    cdef Py_ssize_t n_terms, n_columns, n_powers = 2 * d + 1, n_doubles
    cdef int rows
    cdef double base, low, narrow, constant = 0.5 * d * log(2.0 * M_PI)
    cdef Model f
    cdef Block b
    f.d, f.k, f.m, f.n_parts, f.n_widths = d, k, m, n_parts, n_widths
    f.n_kernels, f.n_mixtures = n_kernels, n_mixtures
    f.full = axes.shape[0] > 0 or starts[m] == 0
    # Diagonal covariances' squares are multiplied out where that serves many rows.
    f.expanded = not f.full and n >= BLOCK
    cdef bint bounded = longest is not None
    cdef Py_ssize_t most_pairs = n_parts * n_widths, most_uses = n_mixtures * most_pairs
    cdef Py_ssize_t n_numbers = 2 * n_parts + 1 + most_pairs + 3 * k
    # What is used of the parts, and in which mixtures. Views of many small arrays would take longer
    # than what few points take.
    cdef Py_ssize_t[::1] numbers = np.zeros(n_numbers, dtype=np.intp)
    cdef Py_ssize_t* sizes = &numbers[0]
    cdef Py_ssize_t* pairs_of = sizes + n_parts
    b.counts = pairs_of + n_parts + 1
    b.firsts = b.counts + most_pairs
    b.others = b.firsts + k
    cdef Py_ssize_t* used = b.others + k
    cdef Py_ssize_t n_bytes = most_uses * sizeof(Use) + most_pairs * sizeof(Pair)
    n_bytes += k * n_widths if bounded else 0
    cdef double[::1] structs = np.empty(n_bytes // sizeof(double) + 1)
    cdef Use* uses = <Use*>&structs[0]
    cdef Pair* pairs = <Pair*>(uses + most_uses)
    b.asked = <unsigned char*>(pairs + most_pairs)
    for i in range(k):
        sizes[parts[i]] += 1
    n_terms = index_pairs(weights, sizes, uses, pairs, pairs_of)
    f.n_pairs = pairs_of[n_parts]
    for i in range(m):
        p = parts[i]
        if pairs_of[p] < pairs_of[p + 1] and pairs[pairs_of[p + 1] - 1].width >= n_kernels:
            raise ValueError("Compounds are not decomposed under all the kernels.")
    f.pairs_of, f.pairs, f.uses, f.used, f.n_used = pairs_of, pairs, uses, used, 0
    for i in range(k):
        if pairs_of[parts[i]] < pairs_of[parts[i] + 1]:
            used[f.n_used] = i
            f.n_used += 1
    cdef Py_ssize_t[::1] columns_of = np.zeros(m + 1, dtype=np.intp)
    for i in range(m):
        most = max(most, starts[i + 1] - starts[i])
        if f.expanded:
            columns_of[i + 1] = columns_of[i] + pairs_of[parts[i] + 1] - pairs_of[parts[i]]
    n_columns = columns_of[m]
    f.group = max(most if f.full else n_kernels, 128)
    n_doubles = BLOCK * (n_powers + f.group + n_terms + 2 * f.n_pairs + 5 * n_mixtures + 3)
    n_doubles += BLOCK * k if bounded else 0
    n_doubles += (n_widths + 1) * k + n_widths + n_columns * n_powers + n_mixtures
    cdef double[::1] memory = np.empty(n_doubles)
    cdef double* free = &memory[0]
    b.powers = taken(&free, n_powers * BLOCK)
    b.x = b.powers + d * BLOCK
    b.lengths, b.squares = taken(&free, BLOCK), taken(&free, BLOCK)
    b.alongs, b.projected = taken(&free, BLOCK), taken(&free, f.group * BLOCK)
    b.products = taken(&free, k * BLOCK if bounded else 0)
    b.bounds, b.numbers = taken(&free, n_mixtures * BLOCK), taken(&free, n_mixtures * BLOCK)
    b.lows, b.terms = taken(&free, n_mixtures * BLOCK), taken(&free, n_terms * BLOCK)
    b.peaks, b.sums = taken(&free, f.n_pairs * BLOCK), taken(&free, f.n_pairs * BLOCK)
    b.tops, b.totals = taken(&free, n_mixtures * BLOCK), taken(&free, n_mixtures * BLOCK)
    f.lengths, f.bases = taken(&free, k), taken(&free, k * n_widths)
    f.narrows, b.lowest = taken(&free, n_widths), taken(&free, n_mixtures)
    cdef double* coefficients = taken(&free, n_columns * n_powers)
    f.means, f.shrinks, f.parts, f.starts = &means[0, 0], &shrinks[0], &parts[0], &starts[0]
    f.projections = &projections[0] if starts[m] else NULL
    f.precisions = &precisions[0, 0] if starts[m] else NULL
    f.couplings = &couplings[0, 0] if couplings.shape[0] else NULL
    f.longest = &longest[0] if m and bounded else NULL
    f.leasts = &leasts[0, 0] if m and bounded else NULL
    f.across = &across[0, 0] if m and bounded else NULL
    f.limit = log(fmax(n_terms, 1.0) / LEFT_OUT)
    f.factors, f.begins, f.n_factors = coefficients, &columns_of[0], <int>n_powers
    if f.full:
        f.begins, f.n_factors = f.starts, <int>d
        f.factors = &axes[0, 0] if axes.shape[0] else NULL
    out = np.empty((n, n_mixtures))
    cdef double[:, ::1] result = out
    with nogil:
        for a in range(n_powers * BLOCK):
            b.powers[a] = a >= 2 * d * BLOCK
        for a in range(BLOCK):
            b.lengths[a] = 0.0
        for w in range(n_widths):
            narrow = (shrinks[w] * widths[w]) * (shrinks[w] * widths[w])
            f.narrows[w], base = 1.0 / narrow, d * log(narrow)
            for i in range(k):
                if i >= m:
                    f.bases[i * n_widths + w] = log_weights[i] - constant - 0.5 * base
                elif w < n_kernels:
                    f.bases[i * n_widths + w] = log_weights[i] - constant - 0.5 * log_dets[i, w]
        for i in range(k):
            f.lengths[i] = dot(d, &means[i, 0], &means[i, 0])
        for i in range(m if f.expanded else 0):
            c = columns_of[i]
            for q in range(pairs_of[parts[i]], pairs_of[parts[i] + 1]):
                w = pairs[q].width
                expand_squares(d, &means[i, 0], &precisions[starts[i], w], n_kernels, shrinks[w],
                               coefficients + c * n_powers)
                c += 1
        for number in range((n + BLOCK - 1) // BLOCK):
            first = number * BLOCK
            size = min(<Py_ssize_t>BLOCK, n - first)
            rows = <int>(size + LANES - 1) // LANES * LANES  # whole vectors of every processor
            b.nearest, b.farthest = INFINITY, 0.0
            for a in range(size):
                for j in range(d):
                    b.x[j * BLOCK + a] = points[first + a, j]
            for a in range(size if n >= BLOCK else 0):  # of few points they are not used
                b.lengths[a] = dot(d, &points[first + a, 0], &points[first + a, 0])
                b.nearest, b.farthest = min(b.nearest, b.lengths[a]), max(b.farthest, b.lengths[a])
            for a in range(d * BLOCK if f.expanded else 0):
                b.powers[a] = b.x[a] * b.x[a]
            for q in range(f.n_pairs * BLOCK):
                b.peaks[q] = -INFINITY
            for q in range(f.n_pairs):
                b.counts[q] = 0
            for j in range(n_mixtures if bounded else 0):
                for a in range(size):
                    low = -INFINITY if besides is None else besides[first + a, j] - f.limit
                    b.lows[j * BLOCK + a] = low
            if not bounded or size < BLOCK or unasked > 0:
                unasked -= 1
                find_terms(f, b, f.used, f.n_used, rows, NULL)
            elif 2 * find_terms_that_count(f, b, besides is not None) > n_terms:
                unasked = SELDOM
            mix_terms(f, b, rows)
            for j in range(n_mixtures):
                for a in range(size):
                    base = b.tops[j * BLOCK + a]
                    result[first + a, j] = base
                    if base > -INFINITY:
                        result[first + a, j] = base + log(b.totals[j * BLOCK + a])
    return out
