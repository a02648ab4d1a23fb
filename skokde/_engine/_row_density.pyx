"""Log-densities of a single row under mixtures of the densities of KDEs.

What `_log_density` does for a block of points at a time is done here for a block of components: of
one point most of a block would be empty. The results are the same but for rounding.
"""

import numpy as np

from scipy.linalg.cython_blas cimport dgemv
from skokde._engine._exponential cimport exp_within  # no-cython-lint: for the C below
from skokde._engine._frame cimport coordinates, coordinates_size, map_points
from skokde._engine._gaussian cimport longest_shift
from skokde._engine._shapes cimport check_shapes, number_of_parts

cdef extern from *:
    """
    #define LANES 8 /* components, or coordinates, at a time */
    /* Beside the densities under one kernel, what is left out of them at most. */
    #define LEFT_OUT 1e-13

    /* What is not inlined would be made for the oldest processors only. */
    #if defined(__GNUC__)
    #define INLINE static inline __attribute__((always_inline))
    #else
    #define INLINE static inline
    #endif

    /* Components in another order: of each part of the model the compounds, and after all of these
       the Diracs of each part. */
    typedef struct {
        Py_ssize_t d, k, m, n_parts, n_kernels, n_widths, n_axes;
        int full;
        double log_det; /* of the frame */
        const double *means; /* of LANES components, coordinate by coordinate */
        const double *lengths; /* their squares */
        const double *log_weights, *log_dets, *axes, *projections, *precisions, *shrinks, *widths;
        const double *couplings; /* none if all axes are eigenvectors */
        const Py_ssize_t *places; /* each component's in the other order */
        const Py_ssize_t *ends; /* where each part's compounds end, and then its Diracs */
        const Py_ssize_t *starts;
        const unsigned char *asked; /* whether distances to some of LANES components are */
    } Family;

    /* What is read and written for a row: all terms of a part, peaks and sums of all parts. */
    typedef struct {
        const double *point, *projected; /* on the axes of covariances */
        double *squares, *products, *terms, *peaks, *sums, *lanes;
        double *of_compounds; /* terms of a part's compounds under each kernel, and their peaks */
    } Work;

    /* |x - mean|^2 and (x - mean) . mean for LANES components */
    INLINE void distances(
        Py_ssize_t d, const double* restrict x, const double* restrict means,
        double* restrict squares, double* restrict products
    ) {
        double sums[LANES] = {0.0}, others[LANES] = {0.0};
        for (Py_ssize_t j = 0; j < d; j++) {
            IN_LANES
            const double coordinate = x[j];
            const double* row = means + j * LANES;
            for (int a = 0; a < LANES; a++) {
                const double delta = coordinate - row[a];
                sums[a] += delta * delta;
                others[a] += delta * row[a];
            }
        }
        for (int a = 0; a < LANES; a++) {
            squares[a] = sums[a];
            products[a] = others[a];
        }
    }

    /* sum_j precisions[j] * (x[j] - shrink * means[j])^2, with some memory for the lanes */
    INLINE double weighted_square(
        Py_ssize_t n, const double* restrict x, const double* restrict means, double shrink,
        const double* restrict precisions, double* restrict lanes
    ) {
        double sums[LANES] = {0.0}, total = 0.0;
        Py_ssize_t j = 0;
        for (; j + LANES <= n; j += LANES) {
            IN_LANES
            for (int a = 0; a < LANES; a++) {
                const double delta = x[j + a] - shrink * means[j + a];
                sums[a] += precisions[j + a] * (delta * delta);
            }
        }
        if (j > 0) {
            for (int a = 0; a < LANES; a++)
                lanes[a] = sums[a];
            for (int a = 0; a < LANES; a++)
                total += lanes[a];
        }
        for (; j < n; j++) {
            const double delta = x[j] - shrink * means[j];
            total += precisions[j] * (delta * delta);
        }
        return total;
    }

    INLINE double dot_in_lanes(
        Py_ssize_t d, const double* restrict a, const double* restrict b, double* restrict lanes
    ) {
        double sums[LANES] = {0.0}, total = 0.0;
        Py_ssize_t j = 0;
        for (; j + LANES <= d; j += LANES) {
            IN_LANES
            for (int i = 0; i < LANES; i++)
                sums[i] += a[j + i] * b[j + i];
        }
        for (int i = 0; i < LANES; i++)
            lanes[i] = sums[i];
        for (int i = 0; i < LANES; i++)
            total += lanes[i];
        for (; j < d; j++)
            total += a[j] * b[j];
        return total;
    }

    /* |x - shrink * mean|^2 of one component. */
    INLINE double square_from(Family f, const double* x, Py_ssize_t c, double shrink) {
        const double* mean = f.means + c / LANES * LANES * f.d + c % LANES;
        double total = 0.0;
        for (Py_ssize_t j = 0; j < f.d; j++) {
            const double delta = x[j] - shrink * mean[j * LANES];
            total += delta * delta;
        }
        return total;
    }

    /* |x - shrink * mean|^2 of components, where rounding allows from the squares without. */
    INLINE void shrunk_squares(
        Family f, Work work, Py_ssize_t first, Py_ssize_t last, double shrink, double longest,
        double* restrict out
    ) {
        const double stretch = 1.0 - shrink, rest = stretch * stretch, twice = 2.0 * stretch;
        for (Py_ssize_t c = first; c < last; c++)
            out[c - first] = work.squares[c] + (twice * work.products[c] + rest * f.lengths[c]);
        for (Py_ssize_t c = first; c < last; c++)
            if (!(rest * f.lengths[c] < longest))
                out[c - first] = square_from(f, work.point, c, shrink);
    }

    INLINE double largest(Py_ssize_t n, const double* values, double* restrict lanes) {
        double tops[LANES], top = -INFINITY;
        Py_ssize_t i = 0;
        for (int a = 0; a < LANES; a++)
            tops[a] = -INFINITY;
        for (; i + LANES <= n; i += LANES) {
            IN_LANES
            for (int a = 0; a < LANES; a++)
                tops[a] = values[i + a] > tops[a] ? values[i + a] : tops[a];
        }
        for (int a = 0; a < LANES; a++)
            lanes[a] = tops[a];
        for (int a = 0; a < LANES; a++)
            top = lanes[a] > top ? lanes[a] : top;
        for (; i < n; i++)
            top = values[i] > top ? values[i] : top;
        return top;
    }

    /* sum_i exp(terms[i] - peak); there is room for LANES more */
    INLINE double exponential_sum(
        Py_ssize_t n, double* restrict terms, double peak, double* restrict lanes
    ) {
        const Py_ssize_t end = (n + LANES - 1) / LANES * LANES;
        double sums[LANES] = {0.0}, total = 0.0;
        for (int a = 0; a < LANES; a++)
            terms[n + a] = -INFINITY;
        for (Py_ssize_t i = 0; i < end; i++) {
            const double below = terms[i] - peak;
            terms[i] = below > -700.0 ? below : -700.0;
        }
        for (Py_ssize_t i = 0; i < end; i++)
            terms[i] = exp_within(terms[i]);
        for (Py_ssize_t i = 0; i < end; i += LANES) {
            IN_LANES
            for (int a = 0; a < LANES; a++)
                sums[a] += terms[i + a];
        }
        for (int a = 0; a < LANES; a++)
            lanes[a] = sums[a];
        for (int a = 0; a < LANES; a++)
            total += lanes[a];
        return total;
    }

    /* Terms of a compound of full rank, whose axes are coupled, under each kernel that is used.
       Distances add up axis by axis: those that come to be negligible beside the peaks are -inf. */
    INLINE void terms_in_steps(
        Family f, Work work, Py_ssize_t place, double constant, double limit,
        const unsigned char* used, double* restrict terms, Py_ssize_t step,
        double* restrict peaks, double* restrict sums, double* restrict befores
    ) {
        const Py_ssize_t i = f.places[place], start = f.starts[i];
        Py_ssize_t n_left = 0;
        for (Py_ssize_t w = 0; w < f.n_kernels; w++) {
            sums[w] = befores[w] = 0.0;
            terms[w * step] = f.log_weights[place] - constant
                - 0.5 * f.log_dets[i * f.n_kernels + w];
            n_left += used[w];
        }
        for (Py_ssize_t first = 0; first < f.d && n_left; first += LANES) {
            const Py_ssize_t n = f.d - first < LANES ? f.d - first : LANES;
            double along[LANES];
            for (Py_ssize_t a = 0; a < n; a++)
                along[a] = dot_in_lanes(
                    f.d, f.axes + (start + first + a) * f.d, work.point, work.lanes
                );
            n_left = 0;
            for (Py_ssize_t w = 0; w < f.n_kernels; w++) {
                const Py_ssize_t at = w * f.n_axes + start + first;
                if (!used[w] || terms[w * step] - 0.5 * sums[w] < peaks[w] - limit)
                    continue;
                for (Py_ssize_t a = 0; a < n; a++) {
                    const double delta = along[a] - f.shrinks[w] * f.projections[start + first + a];
                    /* First lessened by a multiple of the one before. */
                    befores[w] = delta - f.couplings[at + a] * befores[w];
                    sums[w] += f.precisions[at + a] * (befores[w] * befores[w]);
                }
                n_left++;
            }
        }
        for (Py_ssize_t w = 0; w < f.n_kernels; w++) {
            double* term = terms + w * step;
            *term -= 0.5 * sums[w];
            if (*term < peaks[w] - limit)
                *term = -INFINITY;
            peaks[w] = *term > peaks[w] ? *term : peaks[w];
        }
    }

    /* Those of all such compounds of a part; the nearest one comes first, since beside it most of
       the others are negligible. */
    INLINE void terms_of_full_rank(
        Family f, Work work, Py_ssize_t begin, Py_ssize_t end, double constant,
        const unsigned char* used
    ) {
        const Py_ssize_t n = end - begin;
        const double limit = log((double)f.k / LEFT_OUT);
        double* peaks = work.of_compounds + f.n_kernels * n;
        double* sums = peaks + f.n_kernels;
        Py_ssize_t nearest = -1;
        for (Py_ssize_t w = 0; w < f.n_kernels; w++)
            peaks[w] = -INFINITY;
        for (Py_ssize_t c = begin; c < end; c++) {
            const Py_ssize_t i = f.places[c];
            if (f.starts[i + 1] - f.starts[i] == f.d
                && (nearest < 0 || work.squares[c] < work.squares[nearest]))
                nearest = c;
        }
        for (Py_ssize_t a = -1; a < n; a++) {
            const Py_ssize_t c = a < 0 ? nearest : begin + a, i = c < 0 ? -1 : f.places[c];
            if (i >= 0 && f.starts[i + 1] - f.starts[i] == f.d && (a < 0 || c != nearest))
                terms_in_steps(
                    f, work, c, constant, limit, used, work.of_compounds + c - begin, n, peaks,
                    sums, sums + f.n_kernels
                );
        }
    }

    /* For each part, under each kernel that is used: the largest term, and the sum of
       exp(term - largest). */
    FOR_EACH_PROCESSOR
    static void mix(Family f, double longest_shift, const unsigned char* used, Work work) {
        const double constant = 0.5 * f.d * log(2.0 * M_PI);
        for (Py_ssize_t first = 0; first < f.k; first += LANES) {
            if (f.asked[first / LANES])
                distances(
                    f.d, work.point, f.means + first * f.d, work.squares + first,
                    work.products + first
                );
        }
        for (Py_ssize_t part = 0; part < f.n_parts; part++) {
            const Py_ssize_t* ends = f.ends + part;
            const Py_ssize_t n_compounds = ends[1] - ends[0];
            const Py_ssize_t n = n_compounds + ends[f.n_parts + 1] - ends[f.n_parts];
            if (f.couplings && n_compounds)
                terms_of_full_rank(
                    f, work, ends[0], ends[1], constant, used + part * f.n_widths
                );
            for (Py_ssize_t w = 0; w < f.n_widths; w++) {
                const Py_ssize_t number = part * f.n_widths + w;
                const double shrink = f.shrinks[w], scale = shrink * f.widths[w];
                const double narrow = scale * scale, precision = 1.0 / narrow;
                const double longest = longest_shift * narrow;
                double* terms = work.terms;
                if (!used[number])
                    continue;
                shrunk_squares(f, work, ends[0], ends[1], shrink, longest, terms);
                for (Py_ssize_t c = 0; c < n_compounds; c++) {
                    const Py_ssize_t i = f.places[ends[0] + c], start = f.starts[i];
                    const Py_ssize_t rank = f.starts[i + 1] - start;
                    const Py_ssize_t place = w * f.n_axes + start;
                    double square = rank < f.d ? precision * terms[c] : 0.0;
                    if (rank == f.d && f.couplings) {
                        terms[c] = work.of_compounds[w * n_compounds + c];
                        continue;
                    }
                    square += weighted_square(
                        rank, f.full ? work.projected + start : work.point,
                        f.projections + start, shrink, f.precisions + place, work.lanes
                    );
                    /* Rounding may have made it negative. */
                    square = square < 0.0 ? 0.0 : square;
                    terms[c] = f.log_weights[ends[0] + c] - constant
                        - 0.5 * (f.log_dets[i * f.n_kernels + w] + square);
                }
                terms += n_compounds;
                shrunk_squares(
                    f, work, ends[f.n_parts], ends[f.n_parts + 1], shrink, longest, terms
                );
                {
                    const double* log_weights = f.log_weights + ends[f.n_parts];
                    const double base = -constant - 0.5 * f.d * log(narrow);
                    for (Py_ssize_t c = 0; c < n - n_compounds; c++) {
                        double square = precision * terms[c];
                        square = square < 0.0 ? 0.0 : square;
                        terms[c] = log_weights[c] + base - 0.5 * square;
                    }
                }
                /* A square that overflows may be not a number. */
                for (Py_ssize_t c = 0; c < n; c++)
                    work.terms[c] = work.terms[c] == work.terms[c] ? work.terms[c] : -INFINITY;
                {
                    const double top = largest(n, work.terms, work.lanes);
                    work.peaks[number] = f.log_det + top;
                    work.sums[number] = 0.0;
                    if (top > -INFINITY)
                        work.sums[number] = exponential_sum(n, work.terms, top, work.lanes);
                }
            }
        }
    }

    /* log sum_i weights[i] * sums[i] * exp(peaks[i]) */
    FOR_EACH_PROCESSOR
    static double mixture(
        Py_ssize_t n, const double* weights, const double* peaks, const double* sums
    ) {
        double top = -INFINITY, total = 0.0;
        for (Py_ssize_t i = 0; i < n; i++)
            top = weights[i] > 0.0 && peaks[i] > top ? peaks[i] : top;
        for (Py_ssize_t i = 0; i < n; i++)
            if (weights[i] > 0.0 && peaks[i] - top > -700.0)
                total += weights[i] * sums[i] * exp_within(peaks[i] - top);
        return top > -INFINITY ? top + log(total) : -INFINITY;
    }
    """
    enum: LANES

    ctypedef struct Family:
        Py_ssize_t d, k, m, n_parts, n_kernels, n_widths, n_axes
        int full
        double log_det
        const double* means
        const double* lengths
        const double* log_weights
        const double* log_dets
        const double* axes
        const double* projections
        const double* precisions
        const double* couplings
        const double* shrinks
        const double* widths
        const Py_ssize_t* places
        const Py_ssize_t* ends
        const Py_ssize_t* starts
        const unsigned char* asked

    ctypedef struct Work:
        const double* point
        const double* projected
        double* squares
        double* products
        double* terms
        double* peaks
        double* sums
        double* lanes
        double* of_compounds

    void mix(
        Family family, double longest_shift, const unsigned char* used, Work work
    ) noexcept nogil
    double mixture(
        Py_ssize_t n, const double* weights, const double* peaks, const double* sums
    ) noexcept nogil


cdef class RowFamily:
    """What a row is scored by under the kernels of one family, arranged once for many rows.

    Parameters
    ----------
    center, spread : (d,) arrays
    matrix : (d * d,) or (d,) array
        Of the frame.
    log_det : float
        Of the frame, too.
    log_weights, means, parts, axes, projections, precisions, couplings, starts, log_dets, widths,
    shrinks
        What `_log_density.log_mixtures` takes after the weights.
    """

    cdef const double[::1] center, spread, matrix, projections, widths, shrinks
    cdef const double[:, ::1] axes, log_dets
    cdef const Py_ssize_t[::1] starts
    cdef double[::1] blocks, of_components
    cdef double[:, ::1] precisions, couplings
    cdef Py_ssize_t[::1] numbers
    cdef unsigned char[::1] with_compounds, asked  # which of the parts; see `Family`
    cdef Family family

    def __init__(
        self, center, spread, matrix, double log_det, const double[::1] log_weights,
        const double[:, ::1] means, const Py_ssize_t[::1] parts, axes, projections,
        const double[:, ::1] precisions, const double[:, ::1] couplings, starts, log_dets, widths,
        shrinks,
    ):
        cdef Py_ssize_t c, i, j, p, first
        cdef Family* f = &self.family
        self.center, self.spread, self.matrix, f.log_det = center, spread, matrix, log_det
        self.axes, self.projections, self.starts = axes, projections, starts
        self.log_dets, self.widths, self.shrinks = log_dets, widths, shrinks
        f.d, f.k, f.m = means.shape[1], means.shape[0], self.starts.shape[0] - 1
        f.n_kernels, f.n_widths = precisions.shape[1], self.widths.shape[0]
        f.n_axes, f.full = precisions.shape[0], self.axes.shape[0] > 0
        check_shapes(
            f.d, self.matrix.shape[0],
            0 <= f.m <= f.k == log_weights.shape[0] == parts.shape[0] and 0 < f.k
            and self.axes.shape[1] == f.d
            and self.center.shape[0] == self.spread.shape[0] == f.d
            and self.projections.shape[0] == f.n_axes == self.starts[f.m]
            and self.axes.shape[0] in (0, f.n_axes)
            and couplings.shape[0] in (0, f.n_axes) and couplings.shape[1] == f.n_kernels
            and self.log_dets.shape[0] == f.m and f.n_kernels == self.log_dets.shape[1]
            and f.n_kernels <= f.n_widths == self.shrinks.shape[0] and 0 < f.n_widths,
        )
        f.n_parts = number_of_parts(parts)
        self.with_compounds = np.zeros(f.n_parts, dtype=np.uint8)
        self.numbers = np.zeros(f.k + 2 * f.n_parts + 2, dtype=np.intp)
        self.asked = np.zeros(f.k, dtype=np.uint8)
        self.blocks = np.zeros((f.k + LANES - 1) // LANES * LANES * f.d)
        self.of_components = np.empty(2 * f.k)
        self.precisions = np.empty((f.n_kernels, f.n_axes))
        self.couplings = np.empty((f.n_kernels, couplings.shape[0]))
        cdef Py_ssize_t* ends = &self.numbers[0]
        cdef Py_ssize_t* places = ends + 2 * f.n_parts + 2
        cdef double* lengths = &self.of_components[0]
        cdef double* ordered_weights = lengths + f.k
        with nogil:
            # How many there are, one place later two: where they begin, and when they are in, end.
            for i in range(f.k):
                p = parts[i] if i < f.m else f.n_parts + parts[i]
                ends[p + 2] += 1
                if i < f.m:
                    self.with_compounds[p] = 1
            for p in range(2, 2 * f.n_parts + 2):
                ends[p] += ends[p - 1]
            for i in range(f.k):
                p = parts[i] if i < f.m else f.n_parts + parts[i]
                c = ends[p + 1]
                ends[p + 1] += 1
                places[c] = i
                ordered_weights[c] = log_weights[i]
                if (couplings.shape[0] > 0 or i >= f.m
                        or self.starts[i + 1] - self.starts[i] < f.d):
                    self.asked[c // LANES] = 1
                lengths[c] = 0.0
                first = c // LANES * LANES * f.d + c % LANES
                for j in range(f.d):
                    self.blocks[first + j * LANES] = means[i, j]
                    lengths[c] += means[i, j] * means[i, j]
            for i in range(f.n_axes):
                for j in range(f.n_kernels):
                    self.precisions[j, i] = precisions[i, j]
                    if couplings.shape[0] > 0:
                        self.couplings[j, i] = couplings[i, j]
        f.means, f.lengths, f.log_weights = &self.blocks[0], lengths, ordered_weights
        f.places, f.ends, f.starts = places, ends, &self.starts[0]
        f.widths, f.shrinks, f.asked = &self.widths[0], &self.shrinks[0], &self.asked[0]
        if f.m:
            f.log_dets = &self.log_dets[0, 0]
        if f.n_axes:
            f.projections, f.precisions = &self.projections[0], &self.precisions[0, 0]
            if f.full:
                f.axes = &self.axes[0, 0]
            if couplings.shape[0] > 0:
                f.couplings = &self.couplings[0, 0]

    cdef bint in_frame_of(self, RowFamily other):
        return (
            &self.center[0] == &other.center[0] and &self.spread[0] == &other.spread[0]
            and &self.matrix[0] == &other.matrix[0] and self.family.d == other.family.d
        )


cdef class RowKDE:
    """Families and what their densities count in mixtures, checked once for many rows.

    Parameters
    ----------
    families : list of RowFamily
    weights : list of (n_mixtures, n_parts, n_widths) arrays
        Of each family; of parts with compounds only those under the first kernels count.
    """

    cdef list families
    cdef Py_ssize_t n_mixtures
    cdef double[:, ::1] weights  # (n_mixtures, n_densities), one family after the other
    cdef unsigned char[::1] used  # which of the densities
    cdef Py_ssize_t[::1] frames  # of each family, the number of the first one in its frame
    cdef Py_ssize_t d, n_densities, most_components, most_axes, most_of_compounds

    def __init__(self, list families, list weights):
        cdef Py_ssize_t n, i, j, number, first
        cdef RowFamily family
        cdef const double[:, :, ::1] weight
        self.families, self.n_mixtures = families, len(weights[0])
        self.d = (<RowFamily?>families[0]).family.d
        self.frames = np.empty(len(families), dtype=np.intp)
        for number, (family, weight) in enumerate(zip(families, weights, strict=True)):
            check_shapes(
                self.d, self.d,
                family.family.d == self.d and weight.shape[0] == self.n_mixtures > 0
                and weight.shape[1] == family.family.n_parts
                and weight.shape[2] == family.family.n_widths,
            )
            self.n_densities += family.family.n_parts * family.family.n_widths
            self.most_components = max(self.most_components, family.family.k)
            self.most_axes = max(self.most_axes, family.family.n_axes)
            self.most_of_compounds = max(
                self.most_of_compounds, family.family.n_kernels * (family.family.m + 3)
            )
            first = 0
            while first < number and not family.in_frame_of(<RowFamily>families[first]):
                first += 1
            self.frames[number] = first
        self.weights = np.empty((self.n_mixtures, self.n_densities))
        self.used = np.zeros(self.n_densities, dtype=np.uint8)
        first = 0
        for family, weight in zip(families, weights):
            n = family.family.n_parts * family.family.n_widths
            for j in range(self.n_mixtures):
                for i in range(n):
                    self.weights[j, first + i] = (&weight[j, 0, 0])[i]
                    self.used[first + i] |= (&weight[j, 0, 0])[i] > 0.0
            for i in range(n):
                if (self.used[first + i] and i % family.family.n_widths >= family.family.n_kernels
                        and family.with_compounds[i // family.family.n_widths]):
                    raise ValueError("Compounds are not decomposed under all the kernels.")
            first += n


cdef void project(const Family* f, const double* point, double* projected) noexcept nogil:
    # On the axes of all covariances, but for those that are coupled, of which few may be needed.
    cdef Py_ssize_t i = 0, start, rank
    cdef double one = 1.0, zero = 0.0
    cdef int order = <int>f.d, columns, step = 1
    cdef char transposed = b"T"
    while i < f.m:
        start = f.starts[i]
        while i < f.m:
            rank = f.starts[i + 1] - f.starts[i]
            if f.couplings != NULL and rank == f.d:
                break
            i += 1
        columns = <int>(f.starts[i] - start)
        if columns > 0:
            dgemv(&transposed, &order, &columns, &one, <double*>f.axes + start * f.d, &order,
                  <double*>point, &step, &zero, projected + start, &step)
        i += 1


def log_mixtures_of_row(const double[::1] row, list kdes):
    """Log-densities of one row in data units under the mixtures of KDEs, in nats.

    Parameters
    ----------
    row : (d,) array
    kdes : list of RowKDE
        Of as many mixtures each.

    Returns
    -------
    (n_kdes, n_mixtures) array
        Not NaN and below +inf for any row; -inf where the density is zero.
    """
    cdef Py_ssize_t d = row.shape[0], i, j, first, number, most_families = 1, most_densities = 1
    cdef Py_ssize_t most_components = 1, most_axes = 1, most_of_compounds = 1, n_mixtures
    cdef RowKDE kde
    cdef RowFamily family
    cdef Work work
    n_mixtures = (<RowKDE?>kdes[0]).n_mixtures
    for kde in kdes:
        check_shapes(d, d, kde.d == d and kde.n_mixtures == n_mixtures)
        most_families = max(most_families, len(kde.families))
        most_densities = max(most_densities, kde.n_densities)
        most_components = max(most_components, kde.most_components)
        most_axes = max(most_axes, kde.most_axes)
        most_of_compounds = max(most_of_compounds, kde.most_of_compounds)
    most_components = (most_components + LANES - 1) // LANES * LANES
    out = np.empty((len(kdes), n_mixtures))
    cdef double[:, ::1] result = out
    cdef double[:, ::1] points = np.empty((most_families, d))
    cdef double[::1] scratch = np.empty(
        coordinates_size(d, d * d) + most_axes + 3 * most_components + 2 * LANES
        + 2 * most_densities + most_of_compounds
    )
    cdef double* projected = &scratch[0] + coordinates_size(d, d * d)
    work.projected = projected
    work.squares = projected + most_axes
    work.products = work.squares + most_components
    work.terms = work.products + most_components
    work.lanes = work.terms + most_components + LANES
    cdef double* peaks = work.lanes + LANES
    cdef double* sums = peaks + most_densities
    work.of_compounds = sums + most_densities
    for i, kde in enumerate(kdes):
        first = 0
        for number, family in enumerate(kde.families):
            work.point = &points[kde.frames[number], 0]
            work.peaks, work.sums = peaks + first, sums + first
            with nogil:
                if kde.frames[number] == number:
                    map_points(
                        coordinates(
                            d, family.matrix.shape[0] != d, &family.center[0], &family.spread[0],
                            &family.matrix[0], &scratch[0],
                        ),
                        1, &row[0], &points[number, 0],
                    )
                if family.family.full:
                    project(&family.family, work.point, projected)
                mix(family.family, longest_shift(), &kde.used[first], work)
            first += family.family.n_parts * family.family.n_widths
        for j in range(n_mixtures):
            result[i, j] = mixture(kde.n_densities, &kde.weights[j, 0], peaks, sums)
    return out
