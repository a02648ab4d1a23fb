# Eigenvalues and eigenvectors of small symmetric matrices, in a half to a quarter of LAPACK's time.

from skokde._engine._exponential cimport exp_within  # for its FOR_EACH_PROCESSOR

cdef extern from *:
    """
    #include <float.h>
    #include <math.h>
    #include <string.h>

    #define LARGEST_ORDER 32 /* beyond it LAPACK, which works on blocks, is not much slower */

    /* A = Q T Q': the rows of a become those of Q, which are reflections one after the other
       (Golub & Van Loan, Matrix Computations, 8.3.1). T has the diagonal w and, beside it, e. */
    FOR_EACH_PROCESSOR
    static void tridiagonalize(int n, double* restrict a, double* restrict w, double* restrict e) {
        double p[LARGEST_ORDER], v[LARGEST_ORDER], tau[LARGEST_ORDER];
        for (int k = 0; k < n - 1; k++) {
            double* restrict x = a + k * n;
            double square = 0.0, along = 0.0;
            for (int j = k + 2; j < n; j++)
                square += x[j] * x[j];
            w[k] = x[k];
            e[k] = x[k + 1];
            tau[k] = 0.0;
            if (square == 0.0)
                continue;
            e[k] = -copysign(sqrt(x[k + 1] * x[k + 1] + square), x[k + 1]);
            tau[k] = (e[k] - x[k + 1]) / e[k];
            for (int j = k + 2; j < n; j++)
                x[j] /= x[k + 1] - e[k];
            x[k + 1] = 1.0;
            /* What is left of A from both sides, by a change of rank two. */
            for (int j = k + 1; j < n; j++)
                p[j] = 0.0;
            for (int i = k + 1; i < n; i++)
                for (int j = k + 1; j < n; j++)
                    p[j] += tau[k] * x[i] * a[i * n + j];
            for (int j = k + 1; j < n; j++)
                along += p[j] * x[j];
            for (int j = k + 1; j < n; j++)
                p[j] -= 0.5 * tau[k] * along * x[j];
            for (int i = k + 1; i < n; i++)
                for (int j = k + 1; j < n; j++)
                    a[i * n + j] -= x[i] * p[j] + p[i] * x[j];
        }
        w[n - 1] = a[n * n - 1];
        e[n - 1] = 0.0;
        /* The product of the reflections, from the last one, which touches least. */
        for (int k = n - 1; k >= 0; k--) {
            if (k < n - 1 && tau[k] != 0.0) {
                memcpy(v, a + k * n, n * sizeof(double));
                for (int j = k + 1; j < n; j++)
                    p[j] = 0.0;
                for (int i = k + 1; i < n; i++)
                    for (int j = k + 1; j < n; j++)
                        p[j] += tau[k] * v[i] * a[i * n + j];
                for (int i = k + 1; i < n; i++)
                    for (int j = k + 1; j < n; j++)
                        a[i * n + j] -= v[i] * p[j];
            }
            for (int j = k; j < n; j++)
                a[k * n + j] = a[j * n + k] = 0.0;
            a[k * n + k] = 1.0;
        }
    }

    /* Two rows turned into one another. */
    FOR_EACH_PROCESSOR
    static void rotate(int n, double c, double s, double* restrict x, double* restrict y) {
        for (int j = 0; j < n; j++) {
            const double old = x[j];
            x[j] = c * old - s * y[j];
            y[j] = s * old + c * y[j];
        }
    }

    /* Ascending eigenvalues w of a symmetric matrix; row i of a becomes the i-th eigenvector. Not
       zero if it fails, which leaves a in ruins: e has room for n. */
    static int eigh_small(int n, double* restrict a, double* restrict w, double* restrict e) {
        tridiagonalize(n, a, w, e);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++) {
                const double swap = a[i * n + j];
                a[i * n + j] = a[j * n + i];
                a[j * n + i] = swap;
            }
        /* QL steps with implicit shifts (8.3.3), each chasing a bulge from m up to l. */
        for (int l = 0; l < n; l++)
            for (int step = 0;; step++) {
                int m = l, i;
                double c = 1.0, s = 1.0, shift = 0.0, g, r;
                while (m < n - 1 && !(fabs(e[m]) <= DBL_EPSILON * (fabs(w[m]) + fabs(w[m + 1]))))
                    m++;
                if (m == l)
                    break;
                if (step == 50)
                    return 1;
                g = (w[l + 1] - w[l]) / (2.0 * e[l]);
                g = w[m] - w[l] + e[l] / (g + copysign(sqrt(g * g + 1.0), g));
                for (i = m - 1; i >= l; i--) {
                    const double f = s * e[i], b = c * e[i];
                    r = sqrt(f * f + g * g);
                    e[i + 1] = r;
                    if (r == 0.0) {
                        w[i + 1] -= shift;
                        break;
                    }
                    s = f / r;
                    c = g / r;
                    g = w[i + 1] - shift;
                    r = (w[i] - g) * s + 2.0 * c * b;
                    shift = s * r;
                    w[i + 1] = g + shift;
                    g = c * r - b;
                    rotate(n, c, s, a + i * n, a + (i + 1) * n);
                }
                if (i < l) {
                    w[l] -= shift;
                    e[l] = g;
                }
                e[m] = 0.0;
            }
        for (int i = 0; i < n; i++) {
            int least = i;
            for (int k = i + 1; k < n; k++)
                if (w[k] < w[least])
                    least = k;
            if (least != i) {
                const double swap = w[i];
                w[i] = w[least];
                w[least] = swap;
                rotate(n, 0.0, 1.0, a + i * n, a + least * n);
            }
        }
        return 0;
    }
    """
    enum: LARGEST_ORDER
    int eigh_small(int n, double* a, double* w, double* e) noexcept nogil
