"""Log-densities of a single row under mixtures of the densities of a KDE.

What `_log_density` does for a block of points at a time is done here for a few kernel widths at a
time: of one point most of a block would be empty. The results are the same but for rounding.
"""

import numpy as np

from scipy.linalg.cython_blas cimport dgemv
from skokde._engine._exponential cimport exp_within  # no-cython-lint: for the C below
from skokde._engine._frame cimport coordinates, coordinates_size, map_points
from skokde._engine._shapes cimport check_shapes, number_of_parts

cdef extern from *:
    """
    #define LANES 4 /* widths at a time */

    /* What is not inlined would be made for the oldest processors only. */
    #if defined(__GNUC__)
    #define INLINE static inline __attribute__((always_inline))
    #else
    #define INLINE static inline
    #endif

    typedef struct {
        Py_ssize_t d, k, m, n_parts, n_kernels, n_widths;
        int full;
        const double *point, *projected; /* on the eigenvectors of all covariances */
        const double *log_weights, *means, *projections, *precisions, *log_dets;
        const Py_ssize_t *parts, *starts;
    } Family;

    /* What is written: terms and places of all components, peaks and sums of all parts. */
    typedef struct {
        double *terms, *peaks, *sums;
        Py_ssize_t* places;
    } Work;

    /* squares[w] += precision * (x - shrink * mean)^2, for n coordinates */
    INLINE void add_squares(
        const int size, Py_ssize_t n, const double* x, const double* means, const double* shrinks,
        const double* precisions, Py_ssize_t stride, double* squares
    ) {
        for (Py_ssize_t j = 0; j < n; j++)
            for (int w = 0; w < size; w++) {
                const double delta = x[j] - shrinks[w] * means[j];
                squares[w] += precisions[j * stride + w] * (delta * delta);
            }
    }

    /* For each part, for some kernels: the largest term, and the sum of exp(term - largest). */
    INLINE void mix(
        const int size, Family f, Py_ssize_t first, const double* all_shrinks,
        const double* all_widths, const unsigned char* used, Work work
    ) {
        const double constant = 0.5 * f.d * log(2.0 * M_PI);
        double shrinks[LANES], precisions[LANES], log_dets[LANES];
        Py_ssize_t n = 0;
        for (int w = 0; w < size; w++) {
            const double scale = all_shrinks[first + w] * all_widths[first + w];
            shrinks[w] = all_shrinks[first + w];
            precisions[w] = 1.0 / (scale * scale);
            log_dets[w] = f.d * log(scale * scale);
        }
        for (Py_ssize_t part = 0; part < f.n_parts; part++)
            for (int w = 0; w < size; w++) {
                work.peaks[part * f.n_widths + first + w] = -INFINITY;
                work.sums[part * f.n_widths + first + w] = 0.0;
            }
        for (Py_ssize_t i = 0; i < f.k; i++)
            for (int w = 0; w < size; w++)
                if (used[f.parts[i] * f.n_widths + first + w]) {
                    work.places[n++] = i;
                    break;
                }
        for (Py_ssize_t c = 0; c < n; c++) {
            const Py_ssize_t i = work.places[c];
            const Py_ssize_t start = i < f.m ? f.starts[i] : 0;
            const Py_ssize_t rank = i < f.m ? f.starts[i + 1] - start : 0;
            const double* dets = i < f.m ? f.log_dets + i * f.n_kernels + first : log_dets;
            const double base = f.log_weights[i] - constant;
            double* peaks = work.peaks + f.parts[i] * f.n_widths + first;
            double squares[LANES] = {0.0};
            if (rank < f.d)
                add_squares(size, f.d, f.point, f.means + i * f.d, shrinks, precisions, 0, squares);
            if (rank > 0)
                add_squares(
                    size, rank, f.full ? f.projected + start : f.point, f.projections + start,
                    shrinks, f.precisions + start * f.n_kernels + first, f.n_kernels, squares
                );
            /* Rounding may have made a square negative; one that overflows may be NaN. */
            for (int w = 0; w < size; w++) {
                const double square = squares[w] < 0.0 ? 0.0 : squares[w];
                const double finite = base - 0.5 * dets[w] - 0.5 * square;
                const double term = square == square ? finite : -INFINITY;
                work.terms[c * size + w] = term;
                peaks[w] = term > peaks[w] ? term : peaks[w];
            }
        }
        for (Py_ssize_t c = 0; c < n; c++) {
            const double* peaks = work.peaks + f.parts[work.places[c]] * f.n_widths + first;
            for (int w = 0; w < size; w++) {
                const double below = work.terms[c * size + w] - peaks[w];
                work.terms[c * size + w] = below > -700.0 ? below : -700.0;
            }
        }
        for (Py_ssize_t c = 0; c < n * size; c++)
            work.terms[c] = exp_within(work.terms[c]);
        for (Py_ssize_t c = 0; c < n; c++) {
            double* sums = work.sums + f.parts[work.places[c]] * f.n_widths + first;
            for (int w = 0; w < size; w++)
                sums[w] += work.terms[c * size + w];
        }
    }

    /* Under those kernels that compounds have, and under the others; the compiler unrolls what has
       the usual number of them. */
    FOR_EACH_PROCESSOR
    static void mix_all(
        Family f, const double* shrinks, const double* widths, const unsigned char* used, Work work
    ) {
        for (Py_ssize_t w = 0; w < f.n_widths; ) {
            const Py_ssize_t end = w < f.n_kernels ? f.n_kernels : f.n_widths;
            const int size = end - w < LANES ? (int)(end - w) : LANES;
            if (size == LANES)
                mix(LANES, f, w, shrinks, widths, used, work);
            else
                mix(size, f, w, shrinks, widths, used, work);
            w += size;
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
        Py_ssize_t d, k, m, n_parts, n_kernels, n_widths
        int full
        const double* point
        const double* projected
        const double* log_weights
        const double* means
        const double* projections
        const double* precisions
        const double* log_dets
        const Py_ssize_t* parts
        const Py_ssize_t* starts

    ctypedef struct Work:
        double* terms
        double* peaks
        double* sums
        Py_ssize_t* places

    void mix_all(
        Family family, const double* shrinks, const double* widths, const unsigned char* used,
        Work work
    ) noexcept nogil
    double mixture(
        Py_ssize_t n, const double* weights, const double* peaks, const double* sums
    ) noexcept nogil


cdef class RowFamily:
    """What a row is scored by under the kernels of one family, checked once for many rows.

    Parameters
    ----------
    center, spread : (d,) arrays
    matrix : (d * d,) or (d,) array
        Of the frame.
    log_det : float
        Of the frame, too.
    log_weights, means, parts, vectors, projections, precisions, starts, log_dets, widths, shrinks
        What `_log_density.log_mixtures` takes after the weights.
    """

    cdef const double[::1] center, spread, matrix, log_weights, projections, widths, shrinks
    cdef const double[:, ::1] means, vectors, precisions, log_dets
    cdef const Py_ssize_t[::1] parts, starts
    cdef unsigned char[::1] with_compounds  # which of the parts
    cdef double log_det
    cdef Family family

    def __init__(
        self, center, spread, matrix, double log_det, log_weights, means, parts, vectors,
        projections, precisions, starts, log_dets, widths, shrinks,
    ):
        cdef Py_ssize_t i
        self.center, self.spread, self.matrix, self.log_det = center, spread, matrix, log_det
        self.log_weights, self.means, self.parts = log_weights, means, parts
        self.vectors, self.projections, self.precisions = vectors, projections, precisions
        self.starts, self.log_dets = starts, log_dets
        self.widths, self.shrinks = widths, shrinks
        cdef Family* f = &self.family
        f.d, f.k, f.m = self.means.shape[1], self.means.shape[0], self.starts.shape[0] - 1
        f.n_kernels, f.n_widths = self.precisions.shape[1], self.widths.shape[0]
        f.full = self.vectors.shape[0] > 0
        check_shapes(
            f.d, self.matrix.shape[0],
            0 <= f.m <= f.k == self.log_weights.shape[0] == self.parts.shape[0] and 0 < f.k
            and self.vectors.shape[1] == f.d
            and self.center.shape[0] == self.spread.shape[0] == f.d
            and self.projections.shape[0] == self.precisions.shape[0] == self.starts[f.m]
            and self.vectors.shape[0] in (0, self.starts[f.m])
            and self.log_dets.shape[0] == f.m and f.n_kernels == self.log_dets.shape[1]
            and f.n_kernels <= f.n_widths == self.shrinks.shape[0] and 0 < f.n_widths,
        )
        f.log_weights, f.means, f.starts, f.parts = (
            &self.log_weights[0], &self.means[0, 0], &self.starts[0], &self.parts[0]
        )
        f.n_parts = number_of_parts(self.parts)
        self.with_compounds = np.zeros(f.n_parts, dtype=np.uint8)
        for i in range(f.m):
            self.with_compounds[self.parts[i]] = 1
        if f.m:
            f.log_dets = &self.log_dets[0, 0]
        if self.starts[f.m]:
            f.projections, f.precisions = &self.projections[0], &self.precisions[0, 0]


def log_mixtures_of_row(const double[::1] row, list families, list weights):
    """Log-densities of one row in data units under mixtures, in nats.

    Parameters
    ----------
    row : (d,) array
    families : list of RowFamily
    weights : list of (n_mixtures, n_parts, n_widths) arrays
        What each family's densities count in the mixtures; of parts with compounds only those
        under the first kernels do.

    Returns
    -------
    (n_families, n_mixtures) array
        As that of `log_mixtures` for each family.
    """
    cdef Py_ssize_t d = row.shape[0], i, j, n, m, most = 1, longest = 1, densities = 1, n_mixtures
    cdef double one = 1.0, zero = 0.0
    cdef int order = <int>d, columns, step = 1
    cdef char transposed = b"T"
    cdef RowFamily family
    cdef Family f
    cdef Work work
    cdef const double[:, :, ::1] weight
    n_mixtures = len(weights[0])
    for family, weight in zip(families, weights, strict=True):
        f = family.family
        check_shapes(
            d, family.matrix.shape[0],
            f.d == d and weight.shape[0] == n_mixtures and weight.shape[1] == f.n_parts
            and weight.shape[2] == f.n_widths,
        )
        most = max(most, f.k)
        longest = max(longest, family.projections.shape[0])
        densities = max(densities, f.n_parts * f.n_widths)
    out = np.empty((len(families), n_mixtures))
    cdef double[:, ::1] result = out
    cdef double[::1] point = np.empty(d), projected = np.empty(longest)
    cdef double[::1] scratch = np.empty(coordinates_size(d, d * d)), terms = np.empty(LANES * most)
    cdef double[:, ::1] densities_of = np.empty((2, densities))
    cdef Py_ssize_t[::1] places = np.empty(most, dtype=np.intp)
    cdef unsigned char[::1] used = np.empty(densities, dtype=np.uint8)
    work.terms, work.places = &terms[0], &places[0]
    work.peaks, work.sums = &densities_of[0, 0], &densities_of[1, 0]
    for m, (family, weight) in enumerate(zip(families, weights)):
        f = family.family
        f.point, f.projected = &point[0], &projected[0]
        n = f.n_parts * f.n_widths
        with nogil:
            map_points(
                coordinates(
                    d, family.matrix.shape[0] != d, &family.center[0], &family.spread[0],
                    &family.matrix[0], &scratch[0],
                ),
                1, &row[0], &point[0],
            )
            if f.full:
                columns = <int>f.starts[f.m]
                dgemv(&transposed, &order, &columns, &one, <double*>&family.vectors[0, 0], &order,
                      &point[0], &step, &zero, &projected[0], &step)
            for i in range(n):
                used[i] = 0
                for j in range(n_mixtures):
                    used[i] |= (&weight[j, 0, 0])[i] > 0.0
                if (used[i] and i % f.n_widths >= f.n_kernels
                        and family.with_compounds[i // f.n_widths]):
                    raise ValueError("Compounds are not decomposed under all the kernels.")
            mix_all(f, &family.shrinks[0], &family.widths[0], &used[0], work)
            for j in range(n_mixtures):
                result[m, j] = family.log_det + mixture(n, &weight[j, 0, 0], work.peaks, work.sums)
    return out
