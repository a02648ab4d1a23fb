"""Adding samples to the sample model, one Dirac each (paper, Section 5)."""

from libc.math cimport expm1, log, pow
from skokde._engine._shapes cimport check_shapes


cdef struct Ageing:
    double fade  # what all counts are multiplied by before a row enters
    double gain  # what the row counts


cdef Ageing age(double weight, double f) noexcept nogil:
    # A row of weight w is as w rows of weight one: f^w and 1 + f + ... + f^(w - 1).
    cdef Ageing ageing
    ageing.fade, ageing.gain = f, weight
    if f < 1.0 and weight != 1.0:
        ageing.fade = pow(f, weight)
        ageing.gain = expm1(weight * log(f)) / (f - 1.0)
    return ageing


def append_rows(
    double[::1] counts,
    double[:, ::1] means,
    Py_ssize_t n_components,
    Py_ssize_t n_compounds,
    const double[:, ::1] rows,
    const double[::1] weights,
    double forgetting_factor,
):
    """Add rows to the buffers until all are in or a distinct one finds no room.

    Before a row of weight w enters, all counts are multiplied by f^w; it enters with
    (1 - f^w) / (1 - f), so that a row of weight w counts as w rows of weight one. A row that
    repeats a Dirac raises the Dirac's count. The work is done row by row so that the result does
    not depend on the blocks in which a stream arrives.

    Parameters
    ----------
    counts : (capacity,) array, written
    means : (capacity, d) array, written
    n_components, n_compounds : int
        How much of the buffers is filled, and how much of that are not Diracs (these come first).
    rows : (n, d) array
    weights : (n,) array, positive
    forgetting_factor : float in (0, 1]

    Returns
    -------
    n_components : int
    n_rows : int
        Rows that are in; the next one needs a compression first.
    """
    cdef Py_ssize_t row, i, j, k = n_components, n = rows.shape[0], d = rows.shape[1]
    cdef Py_ssize_t capacity = counts.shape[0]
    cdef Ageing ageing
    check_shapes(
        d, d,
        means.shape[0] == capacity and means.shape[1] == d and weights.shape[0] == n
        and 0 <= n_compounds <= k <= capacity,
    )
    with nogil:
        for row in range(n):
            i = n_compounds
            while i < k:
                j = 0
                while j < d and means[i, j] == rows[row, j]:
                    j += 1
                if j == d:
                    break
                i += 1
            if i == k and k == capacity:
                n = row
                break
            ageing = age(weights[row], forgetting_factor)
            if ageing.fade < 1.0:
                for j in range(k):
                    counts[j] *= ageing.fade
            if i == k:
                for j in range(d):
                    means[k, j] = rows[row, j]
                counts[k] = 0.0
                k += 1
            counts[i] += ageing.gain
    return k, n


def age_class_counts(
    double[::1] counts,
    const Py_ssize_t[::1] labels,
    const double[::1] weights,
    double forgetting_factor,
):
    """Count rows by class, all classes ageing with every row as `append_rows` ages components.

    Parameters
    ----------
    counts : (n_classes,) array, written
    labels : (n,) array of intp
    weights : (n,) array, positive
    forgetting_factor : float in (0, 1]
    """
    cdef Py_ssize_t row, j, n_classes = counts.shape[0]
    cdef Ageing ageing
    check_shapes(1, 1, weights.shape[0] == labels.shape[0])
    with nogil:
        for row in range(labels.shape[0]):
            ageing = age(weights[row], forgetting_factor)
            for j in range(n_classes):
                counts[j] *= ageing.fade
            counts[labels[row]] += ageing.gain


def update_class_memories(
    double[:, ::1] counts,
    double[::1] weights,
    const Py_ssize_t[::1] labels,
    const double[::1] row_weights,
    const double[::1] factors,
    const double[::1] first_weights,
    double fixed_share,
    Py_ssize_t most_repetitions,
):
    """Weigh memories of class counts by how probable they found each label, then count it.

    Weights are multiplied by the probabilities; a small share goes back to the first ones each
    time, so that a memory can be found again (fixed share, Herbster and Warmuth 1998). A row of
    weight w is as w rows; what is beyond the most repetitions is counted, but not predicted.
    Classes that have not come are as absent, since they are known or not as the stream is cut.

    Parameters
    ----------
    counts : (n_memories, n_classes) array, written
    weights : (n_memories,) array, sum one, written
    labels : (n,) array of intp
    row_weights : (n,) array, positive
    factors : (n_memories,) array
        By which each memory forgets with every row; the first one forgets nothing.
    first_weights : (n_memories,) array, sum one
    fixed_share : float
    most_repetitions : int
    """
    cdef Py_ssize_t n_memories = counts.shape[0], n_classes = counts.shape[1], row, m, c, label
    cdef Py_ssize_t repetition, n_seen
    cdef double left, once, total, norm, prior
    cdef Ageing ageing
    check_shapes(
        1, 1,
        weights.shape[0] == n_memories
        and factors.shape[0] == n_memories
        and first_weights.shape[0] == n_memories
        and row_weights.shape[0] == labels.shape[0],
    )
    for row in range(labels.shape[0]):
        if not 0 <= labels[row] < n_classes:
            raise ValueError("a label is not the number of a class")
    with nogil:
        for row in range(labels.shape[0]):
            label, left = labels[row], row_weights[row]
            repetition = 0
            n_seen = 0
            for c in range(n_classes):
                n_seen += c == label or counts[0, c] > 0.0
            prior = 1.0 / n_seen
            while left > 0.0:
                once = left if repetition >= most_repetitions or left < 1.0 else 1.0
                left -= once
                repetition += 1
                norm = 0.0
                for m in range(n_memories):
                    total = 0.0
                    for c in range(n_classes):
                        total += counts[m, c]
                    if repetition <= most_repetitions:
                        weights[m] *= pow((counts[m, label] + prior) / (total + 1.0), once)
                    norm += weights[m]
                    ageing = age(once, factors[m])
                    for c in range(n_classes):
                        counts[m, c] *= ageing.fade
                    counts[m, label] += ageing.gain
                for m in range(n_memories):
                    weights[m] = (
                        (1.0 - fixed_share) * weights[m] / norm + fixed_share * first_weights[m]
                    )
