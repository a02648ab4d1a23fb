"""How well votes of near samples predict, and what features in their distances change of that."""

import numpy as np

from libc.math cimport log
from skokde._engine._exponential cimport normal_kernels
from skokde._engine._gaussian cimport long_dot
from skokde._engine._shapes cimport check_shapes

cdef extern from *:
    """
    /* sums[i] += sum_j slopes[j] * squares[j, i] */
    FOR_EACH_PROCESSOR
    static void add_squares(
        Py_ssize_t m, Py_ssize_t d, const double* restrict slopes,
        const double* restrict squares, double* restrict sums
    ) {
        for (Py_ssize_t j = 0; j < m; j++, squares += d)
            for (Py_ssize_t i = 0; i < d; i++)
                sums[i] += slopes[j] * squares[i];
    }
    """
    void add_squares(
        Py_ssize_t m, Py_ssize_t d, const double* slopes, const double* squares, double* sums
    ) noexcept nogil


def loss_of_votes(
    const double[::1] factors,
    const double[:, :, ::1] squares,
    const double[:, ::1] counts,
    agree,
    const double[::1] precisions,
    const double[::1] prior,
    const double[::1] times,
    double prior_count,
):
    """The loss of predictions by votes of near samples, and its slope along factors of features.

    A sample votes by a normal kernel of its distance, in which each feature has a factor; the
    nearest one has a whole vote, however far it is.

    Parameters
    ----------
    factors : (d,) array, positive
    squares : (n, m, d) array
        Of the differences, in each feature, of each of n samples and the m that vote on it.
    counts : (n, m) array
        Votes that each of these has at most.
    agree : (n, m) array of bool
        Which of them are of the class of the sample on which they vote.
    precisions : (n,) array
        Of the kernels.
    prior : (n,) array, positive
        Votes for the sample's class before any.
    times : (n,) array
        How often each prediction counts.
    prior_count : float, positive
        Votes for all classes before any.

    Returns
    -------
    loss : float
        In nats.
    slopes : (d,) array
    """
    cdef Py_ssize_t n = squares.shape[0], m = squares.shape[1], d = squares.shape[2], i, j, nearest
    cdef double all_votes, right, total, half, loss = 0.0
    check_shapes(
        d, d,
        factors.shape[0] == d and m > 0 and counts.shape[0] == agree.shape[0] == n
        and counts.shape[1] == agree.shape[1] == m and precisions.shape[0] == n
        and prior.shape[0] == n and times.shape[0] == n,
    )
    cdef const unsigned char[:, ::1] same = agree.view(np.uint8)
    out = np.zeros(d)
    cdef double[::1] sums = out, distances = np.empty(m), votes = np.empty(m)
    with nogil:
        for i in range(n):
            half, nearest = 0.5 * precisions[i], 0
            for j in range(m):
                distances[j] = long_dot(d, &factors[0], &squares[i, j, 0])
                if distances[j] < distances[nearest]:
                    nearest = j
            normal_kernels(m, half, distances[nearest], &distances[0], &votes[0])
            all_votes, right = prior_count, prior[i]
            for j in range(m):
                votes[j] *= counts[i, j]
                all_votes += votes[j]
                right += votes[j] if same[i, j] else 0.0
            loss -= times[i] * log(right / all_votes)
            # Of the loss along exponents; all distances are from that of the nearest one.
            total = 0.0
            for j in range(m):
                votes[j] *= 1.0 / all_votes - (1.0 / right if same[i, j] else 0.0)
                total += votes[j]
            votes[nearest] -= total
            for j in range(m):
                votes[j] *= -half * times[i]
            add_squares(m, d, &votes[0], &squares[i, 0, 0], &sums[0])
    return loss, out
