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

# Where bounds leave fewer than a quarter out of a block, they are not asked for some after it.
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

    /* A term at a point is at most base - half |x - shrink mean|^2. */
    typedef struct {
        double base, half, length, twice; /* shrink^2 |mean|^2 and 2 shrink */
    } Bound;

    /* From |x|^2 and x . mean of a whole block, and the logarithm of a weight; what rounding may
       have changed a squared distance by is a small part of the lengths. */
    #define UPPER_BOUND(a) \
        (base - bound.half * (least * lengths[a] + (rest - bound.twice * products[a])))

    /* The largest bounds so far, and the numbers of the components they are of. */
    FOR_EACH_PROCESSOR
    static void raise_bounds(
        Bound bound, double log_weight, double number, const double* restrict lengths,
        const double* restrict products, double* restrict bounds, double* restrict numbers
    ) {
        const double least = 1.0 - 1e-13, rest = least * bound.length;
        const double base = bound.base + log_weight;
        for (int a = 0; a < BLOCK; a++) {
            const double upper = UPPER_BOUND(a);
            numbers[a] = upper > bounds[a] ? number : numbers[a];
            bounds[a] = upper > bounds[a] ? upper : bounds[a];
        }
    }

    /* Whether a term may count for any point, which none does where its bound is negligible. */
    FOR_EACH_PROCESSOR
    static int may_count(
        Bound bound, double log_weight, const double* restrict lengths,
        const double* restrict products, const double* restrict lows
    ) {
        const double least = 1.0 - 1e-13, rest = least * bound.length;
        const double base = bound.base + log_weight;
        int may = 0;
        for (int a = 0; a < BLOCK; a++)
            may |= !(UPPER_BOUND(a) < lows[a] - NEGLIGIBLE);
        return may;
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
    ctypedef struct Bound:
        double base, half, length, twice
    void raise_bounds(
        Bound bound, double log_weight, double number, const double* lengths,
        const double* products, double* bounds, double* numbers
    ) noexcept nogil
    int may_count(
        Bound bound, double log_weight, const double* lengths, const double* products,
        const double* lows
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


cdef struct Pair:
    # Components of one part of the model, under one kernel.
    Py_ssize_t width
    Py_ssize_t terms  # where those of its components begin
    Py_ssize_t first_use, last_use  # in the mixtures, in an array of `Use`


cdef struct Use:
    Py_ssize_t mixture
    double weight, log_weight


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
    double* leasts  # (k, n_widths), what a squared distance counts at least in any direction
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
    Py_ssize_t* counts  # (n_parts,), how many of each part's have been evaluated


cdef Py_ssize_t index_pairs(
    const double[:, :, ::1] weights, const Py_ssize_t* sizes, Use* uses, Pair* pairs,
    Py_ssize_t* pairs_of,
) noexcept nogil:
    # What counts in any mixture: the kernels of each part of a size, and their uses. Returns the
    # number of terms.
    cdef Py_ssize_t j, p, w, n_uses = 0, n_pairs = 0, n_terms = 0
    for p in range(weights.shape[1]):
        for w in range(weights.shape[2]):
            pairs[n_pairs].first_use = n_uses
            for j in range(weights.shape[0]):
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
    return n_terms


cdef void find_least_precisions(Model f) noexcept nogil:
    cdef Py_ssize_t i, r, w, start, end
    cdef double least, besides
    for i in range(f.k):
        start = end = 0
        if i < f.m:
            start, end = f.starts[i], f.starts[i + 1]
        for w in range(f.n_kernels if i < f.m else f.n_widths):
            least = f.narrows[w]  # no component is narrower than its kernel
            if end - start == f.d and f.couplings != NULL:
                r = start * f.n_kernels + w
                least = 1.0 / most_variance(f.d, f.n_kernels, f.precisions + r, f.couplings + r)
            else:
                besides = 0.0 if end - start == f.d else f.narrows[w]
                for r in range(start, end):
                    least = fmin(least, besides + f.precisions[r * f.n_kernels + w])
            f.leasts[i * f.n_widths + w] = least


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
    Model f, Block b, const Py_ssize_t* places, Py_ssize_t n, int rows
) noexcept nogil:
    # Of n components under the kernels that are used, and the peaks of each pair.
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
            w = f.pairs[q].width
            square = b.terms + (f.pairs[q].terms + b.counts[p]) * BLOCK
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
        b.counts[p] += 1


cdef Bound bound_of(Model f, Py_ssize_t i, Py_ssize_t w) noexcept nogil:
    cdef Bound bound
    cdef double shrink = f.shrinks[w]
    bound.base, bound.half = f.bases[i * f.n_widths + w], 0.5 * f.leasts[i * f.n_widths + w]
    bound.length, bound.twice = shrink * shrink * f.lengths[i], 2.0 * shrink
    return bound


cdef bint may_count_anywhere(Model f, Block b, Py_ssize_t i) noexcept nogil:
    # Whether a component may count for any point of a full block in any of the mixtures.
    cdef Py_ssize_t q, u
    cdef Bound bound
    for q in range(f.pairs_of[f.parts[i]], f.pairs_of[f.parts[i] + 1]):
        bound = bound_of(f, i, f.pairs[q].width)
        for u in range(f.pairs[q].first_use, f.pairs[q].last_use):
            if may_count(bound, f.uses[u].log_weight, b.lengths, b.products + i * BLOCK,
                         b.bounds + f.uses[u].mixture * BLOCK):
                return True
    return False


cdef Py_ssize_t find_terms_that_count(Model f, Block b) noexcept nogil:
    # Of a full block: first of the components that have the largest bounds for some point,
    # and then of those whose bounds are not negligible beside these terms. Returns how many.
    cdef Py_ssize_t a, c, i, j, q, u, n_first = 0, n_others = 0, n_near = 0
    cdef int order = <int>f.d, stride = BLOCK, columns = <int>f.k
    cdef char no = b"N"
    cdef double one = 1.0, zero = 0.0, peak
    cdef Bound bound
    dgemm(&no, &no, &stride, &columns, &order, &one, b.x, &stride, <double*>f.means, &order, &zero,
          b.products, &stride)
    for a in range(f.n_mixtures * BLOCK):
        b.bounds[a], b.numbers[a] = -INFINITY, 0.0
    for c in range(f.n_used):
        i = f.used[c]
        b.others[c] = False
        for q in range(f.pairs_of[f.parts[i]], f.pairs_of[f.parts[i] + 1]):
            bound = bound_of(f, i, f.pairs[q].width)
            for u in range(f.pairs[q].first_use, f.pairs[q].last_use):
                j = f.uses[u].mixture * BLOCK
                raise_bounds(bound, f.uses[u].log_weight, c, b.lengths, b.products + i * BLOCK,
                             b.bounds + j, b.numbers + j)
    for a in range(f.n_mixtures * BLOCK):
        b.others[<Py_ssize_t>b.numbers[a]] = True
    for c in range(f.n_used):
        i = f.used[c]
        if b.others[c]:
            b.firsts[n_first] = i
            n_first += 1
        else:
            b.others[n_others] = i
            n_others += 1
    find_terms(f, b, b.firsts, n_first, BLOCK)
    for a in range(f.n_mixtures * BLOCK):
        b.bounds[a] = -INFINITY
    for q in range(f.n_pairs):
        for u in range(f.pairs[q].first_use, f.pairs[q].last_use):
            j = f.uses[u].mixture * BLOCK
            for a in range(BLOCK):
                peak = b.peaks[q * BLOCK + a] + f.uses[u].log_weight
                b.bounds[j + a] = peak if peak > b.bounds[j + a] else b.bounds[j + a]
    for c in range(n_others):
        i = b.others[c]
        if may_count_anywhere(f, b, i):
            b.others[n_near] = i
            n_near += 1
    find_terms(f, b, b.others, n_near, BLOCK)
    return n_first + n_near


cdef void mix_terms(Model f, Block b, int rows) noexcept nogil:
    # In each mixture the largest peak, and the sum of densities beside it.
    cdef Py_ssize_t a, j, p, q, u
    for a in range(f.n_mixtures * BLOCK):
        b.tops[a] = -INFINITY
        b.totals[a] = 0.0
    for p in range(f.n_parts):
        for q in range(f.pairs_of[p], f.pairs_of[p + 1]):
            exponential_sums(rows, b.counts[p], b.terms + f.pairs[q].terms * BLOCK,
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
    cdef Py_ssize_t number, first, size, a, c, i, j, p, q, w, unasked = 0, most = 0
    cdef Py_ssize_t n_terms, n_columns, n_powers = 2 * d + 1, n_doubles
    cdef int rows
    cdef double base, narrow, constant = 0.5 * d * log(2.0 * M_PI)
    cdef Model f
    cdef Block b
    f.d, f.k, f.m, f.n_parts, f.n_widths = d, k, m, n_parts, n_widths
    f.n_kernels, f.n_mixtures = n_kernels, n_mixtures
    f.full = axes.shape[0] > 0 or starts[m] == 0
    # Diagonal covariances' squares are multiplied out where that serves many rows.
    f.expanded = not f.full and n >= BLOCK
    # Each point of a block may have a nearest component of its own: of few none can be left out.
    cdef bint bounded = n >= BLOCK and k > BLOCK
    # What is used of the parts, and in which mixtures. Views of many small arrays would take longer
    # than what few points take.
    cdef Py_ssize_t[::1] numbers = np.zeros(3 * n_parts + 1 + 3 * k, dtype=np.intp)
    cdef Py_ssize_t* sizes = &numbers[0]
    cdef Py_ssize_t* pairs_of = sizes + n_parts
    b.counts = pairs_of + n_parts + 1
    b.firsts = b.counts + n_parts
    b.others = b.firsts + k
    cdef Py_ssize_t* used = b.others + k
    cdef Py_ssize_t most_pairs = n_parts * n_widths, most_uses = n_mixtures * most_pairs
    cdef Py_ssize_t n_bytes = most_uses * sizeof(Use) + most_pairs * sizeof(Pair)
    cdef double[::1] structs = np.empty(n_bytes // sizeof(double) + 1)
    cdef Use* uses = <Use*>&structs[0]
    cdef Pair* pairs = <Pair*>(uses + most_uses)
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
    n_doubles = BLOCK * (n_powers + f.group + n_terms + 2 * f.n_pairs + 4 * n_mixtures + 3)
    n_doubles += BLOCK * k if bounded else 0
    n_doubles += (2 * n_widths + 1) * k + n_widths + n_columns * n_powers
    cdef double[::1] memory = np.empty(n_doubles)
    cdef double* free = &memory[0]
    b.powers = taken(&free, n_powers * BLOCK)
    b.x = b.powers + d * BLOCK
    b.lengths, b.squares = taken(&free, BLOCK), taken(&free, BLOCK)
    b.alongs, b.projected = taken(&free, BLOCK), taken(&free, f.group * BLOCK)
    b.products = taken(&free, k * BLOCK if bounded else 0)
    b.bounds, b.numbers = taken(&free, n_mixtures * BLOCK), taken(&free, n_mixtures * BLOCK)
    b.terms = taken(&free, n_terms * BLOCK)
    b.peaks, b.sums = taken(&free, f.n_pairs * BLOCK), taken(&free, f.n_pairs * BLOCK)
    b.tops, b.totals = taken(&free, n_mixtures * BLOCK), taken(&free, n_mixtures * BLOCK)
    f.lengths, f.bases = taken(&free, k), taken(&free, k * n_widths)
    f.narrows, f.leasts = taken(&free, n_widths), taken(&free, k * n_widths)
    cdef double* coefficients = taken(&free, n_columns * n_powers)
    f.means, f.shrinks, f.parts, f.starts = &means[0, 0], &shrinks[0], &parts[0], &starts[0]
    f.projections = &projections[0] if starts[m] else NULL
    f.precisions = &precisions[0, 0] if starts[m] else NULL
    f.couplings = &couplings[0, 0] if couplings.shape[0] else NULL
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
        if bounded:
            find_least_precisions(f)
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
            for p in range(n_parts):
                b.counts[p] = 0
            if not bounded or size < BLOCK or unasked > 0:
                unasked -= 1
                find_terms(f, b, f.used, f.n_used, rows)
            elif 4 * find_terms_that_count(f, b) > 3 * f.n_used:
                unasked = SELDOM
            mix_terms(f, b, rows)
            for j in range(n_mixtures):
                for a in range(size):
                    base = b.tops[j * BLOCK + a]
                    result[first + a, j] = base
                    if base > -INFINITY:
                        result[first + a, j] = base + log(b.totals[j * BLOCK + a])
    return out
