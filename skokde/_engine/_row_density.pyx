"""Log-densities of a single row under all densities of a KDE.

What `_log_density` does for a block of points at a time is done here for a few kernel widths at a
time: of one point most of a block would be empty. The results are the same but for rounding.
"""

import numpy as np

from scipy.linalg.cython_blas cimport dgemv
from skokde._engine._exponential cimport exp_within  # no-cython-lint: for the C below
from skokde._engine._frame cimport coordinates, coordinates_size, map_points
from skokde._engine._shapes cimport check_shapes

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
        Py_ssize_t d, n_models, m, n_widths;
        int full;
        const double *point, *projected; /* on the eigenvectors of all covariances */
        const double *log_weights, *means, *projections, *precisions, *log_dets;
        const Py_ssize_t *bounds, *starts;
        const unsigned char *chosen;
        double *terms; /* LANES for each component of a model, written */
    } Family;

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

    /* terms[i] := exp(terms[i] - peak) */
    INLINE void exponentials(Py_ssize_t n, double peak, double* terms) {
        for (Py_ssize_t i = 0; i < n; i++) {
            const double below = terms[i] - peak;
            terms[i] = below > -700.0 ? below : -700.0;
        }
        for (Py_ssize_t i = 0; i < n; i++)
            terms[i] = exp_within(terms[i]);
    }

    /* out[w] := log sum_i exp(log-density under the i-th component), of a model, for some widths */
    INLINE void mix(
        const int size, Family f, Py_ssize_t model, Py_ssize_t first, const double* some_shrinks,
        const double* some_widths, double* restrict out
    ) {
        const double constant = 0.5 * f.d * log(2.0 * M_PI);
        double shrinks[LANES], precisions[LANES], log_dets[LANES], peaks[LANES], sums[LANES];
        const Py_ssize_t* of_compounds = f.bounds + model;
        const Py_ssize_t* of_diracs = of_compounds + f.n_models + 1;
        const Py_ssize_t m = of_compounds[1] - of_compounds[0];
        const Py_ssize_t k = m + of_diracs[1] - of_diracs[0];
        for (int w = 0; w < size; w++) {
            const double scale = some_shrinks[w] * some_widths[w];
            shrinks[w] = some_shrinks[w];
            precisions[w] = 1.0 / (scale * scale);
            log_dets[w] = f.d * log(scale * scale);
            peaks[w] = -INFINITY;
            sums[w] = 0.0;
        }
        for (Py_ssize_t n = 0; n < k; n++) {
            const Py_ssize_t i = n < m ? of_compounds[0] + n : of_diracs[0] + (n - m);
            const Py_ssize_t start = n < m ? f.starts[i] : 0;
            const Py_ssize_t rank = n < m ? f.starts[i + 1] - start : 0;
            const double* dets = n < m ? f.log_dets + i * f.n_widths + first : log_dets;
            const double base = f.log_weights[i] - constant;
            double squares[LANES] = {0.0};
            if (rank < f.d)
                add_squares(size, f.d, f.point, f.means + i * f.d, shrinks, precisions, 0, squares);
            if (rank > 0)
                add_squares(
                    size, rank, f.full ? f.projected + start : f.point, f.projections + start,
                    shrinks, f.precisions + start * f.n_widths + first, f.n_widths, squares
                );
            /* Rounding may have made a square negative; one that overflows may be NaN. */
            for (int w = 0; w < size; w++) {
                const double square = squares[w] < 0.0 ? 0.0 : squares[w];
                const double finite = base - 0.5 * dets[w] - 0.5 * square;
                const double term = square == square ? finite : -INFINITY;
                f.terms[w * k + n] = term;
                peaks[w] = term > peaks[w] ? term : peaks[w];
            }
        }
        for (int w = 0; w < size; w++)
            exponentials(k, peaks[w], f.terms + w * k);
        for (Py_ssize_t n = 0; n < k; n++)
            for (int w = 0; w < size; w++)
                sums[w] += f.terms[w * k + n];
        for (int w = 0; w < size; w++)
            out[w] = peaks[w] > -INFINITY ? peaks[w] + log(sums[w]) : -INFINITY;
    }

    /* Log-densities for all that is chosen; the compiler unrolls the usual number of widths. */
    FOR_EACH_PROCESSOR
    static void mix_all(
        Family f, const double* shrinks, const double* widths, double* restrict out
    ) {
        for (Py_ssize_t model = 0; model < f.n_models; model++) {
            const unsigned char* chosen = f.chosen + model * f.n_widths;
            Py_ssize_t first = 0, end = f.n_widths;
            while (first < end && !chosen[first])
                first++;
            while (first < end && !chosen[end - 1])
                end--;
            for (Py_ssize_t w = first; w < end; w += LANES) {
                const int size = end - w < LANES ? (int)(end - w) : LANES;
                double logs[LANES];
                if (size == LANES)
                    mix(LANES, f, model, w, shrinks + w, widths + w, logs);
                else
                    mix(size, f, model, w, shrinks + w, widths + w, logs);
                for (int i = 0; i < size; i++)
                    if (chosen[w + i])
                        *out++ = logs[i];
            }
        }
    }
    """
    enum: LANES

    ctypedef struct Family:
        Py_ssize_t d, n_models, m, n_widths
        int full
        const double* point
        const double* projected
        const double* log_weights
        const double* means
        const double* projections
        const double* precisions
        const double* log_dets
        const Py_ssize_t* bounds
        const Py_ssize_t* starts
        const unsigned char* chosen
        double* terms
    void mix_all(
        Family family, const double* shrinks, const double* widths, double* out
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
    log_weights, means, bounds, vectors, projections, precisions, starts, log_dets, widths, \
shrinks, chosen
        What `_log_density.log_densities` takes after the points.
    """

    cdef const double[::1] center, spread, matrix, log_weights, projections, widths, shrinks
    cdef const double[:, ::1] means, vectors, precisions, log_dets
    cdef const Py_ssize_t[:, ::1] bounds
    cdef const Py_ssize_t[::1] starts
    cdef const unsigned char[:, ::1] chosen
    cdef double log_det
    cdef Py_ssize_t n_chosen, largest
    cdef Family family

    def __init__(
        self, center, spread, matrix, double log_det, log_weights, means, bounds, vectors,
        projections, precisions, starts, log_dets, widths, shrinks, chosen,
    ):
        cdef Py_ssize_t r, w
        self.center, self.spread, self.matrix, self.log_det = center, spread, matrix, log_det
        self.log_weights, self.means, self.bounds = log_weights, means, bounds
        self.vectors, self.projections, self.precisions = vectors, projections, precisions
        self.starts, self.log_dets = starts, log_dets
        self.widths, self.shrinks, self.chosen = widths, shrinks, chosen
        cdef Family* f = &self.family
        cdef Py_ssize_t k = self.means.shape[0]
        f.d, f.n_models, f.m = self.means.shape[1], self.bounds.shape[1] - 1, starts.shape[0] - 1
        f.n_widths, f.full = self.widths.shape[0], self.vectors.shape[0] > 0
        check_shapes(
            f.d, self.matrix.shape[0],
            0 <= f.m <= k == self.log_weights.shape[0] and self.vectors.shape[1] == f.d
            and self.center.shape[0] == self.spread.shape[0] == f.d
            and self.projections.shape[0] == self.precisions.shape[0] == self.starts[f.m]
            and self.vectors.shape[0] in (0, self.starts[f.m])
            and self.log_dets.shape[0] == f.m and 0 < k and 0 < f.n_widths
            and self.precisions.shape[1] == self.log_dets.shape[1] == f.n_widths
            and self.shrinks.shape[0] == f.n_widths
            and self.bounds.shape[0] == 2 and 0 < f.n_models and self.bounds[0, 0] == 0
            and self.bounds[0, f.n_models] == self.bounds[1, 0] == f.m
            and self.bounds[1, f.n_models] == k
            and self.chosen.shape[0] == f.n_models and self.chosen.shape[1] == f.n_widths,
        )
        f.log_weights, f.means, f.starts = (
            &self.log_weights[0], &self.means[0, 0], &self.starts[0]
        )
        f.bounds, f.chosen = &self.bounds[0, 0], &self.chosen[0, 0]
        if f.m:
            f.log_dets = &self.log_dets[0, 0]
        if self.starts[f.m]:
            f.projections, f.precisions = &self.projections[0], &self.precisions[0, 0]
        self.n_chosen = self.largest = 0
        for r in range(f.n_models):
            self.largest = max(
                self.largest,
                self.bounds[0, r + 1] - self.bounds[0, r]
                + self.bounds[1, r + 1] - self.bounds[1, r],
            )
            for w in range(f.n_widths):
                self.n_chosen += self.chosen[r, w] != 0


def log_densities_of_row(const double[::1] row, list families):
    """Log-densities of one row in data units under each kernel of some families, in nats.

    Parameters
    ----------
    row : (d,) array
    families : list of RowFamily

    Returns
    -------
    (n_experts,) array
        As that of `log_densities` for each family, one after the other.
    """
    cdef Py_ssize_t d = row.shape[0], w, n = 0, most = 1, longest = 1
    cdef double one = 1.0, zero = 0.0
    cdef int order = <int>d, columns, step = 1
    cdef char transposed = b"T"
    cdef RowFamily family
    cdef Family f
    for family in families:
        check_shapes(d, family.matrix.shape[0], family.family.d == d)
        n += family.n_chosen
        most = max(most, family.largest)
        longest = max(longest, family.projections.shape[0])
    out = np.empty(n)
    cdef double[::1] result = out, point = np.empty(d), projected = np.empty(longest)
    cdef double[::1] scratch = np.empty(coordinates_size(d, d * d))
    cdef double[:, ::1] terms = np.empty((LANES, most))
    n = 0
    for family in families:
        f = family.family
        f.point, f.projected, f.terms = &point[0], &projected[0], &terms[0, 0]
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
            mix_all(f, &family.shrinks[0], &family.widths[0], &result[n])
        for w in range(n, n + family.n_chosen):
            result[w] += family.log_det
        n += family.n_chosen
    return out
