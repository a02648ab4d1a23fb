"""Directions of covariances of low rank, and densities of factor analysers, see `lowrank`."""

import numpy as np

from libc.math cimport fmax, INFINITY, isnan, log, sqrt
from libc.string cimport memcpy, memset
from scipy.linalg.cython_blas cimport daxpy, dgemm
from scipy.linalg.cython_lapack cimport dgeqrf, dorgqr, dpotrf, dtrtri
from skokde._engine._gaussian cimport dot, eigh, from_eigen, long_dot, thin_gram
from skokde._engine._shapes cimport check_shapes

cdef enum:
    STEPS = 2
    FEW = 4
    TOGETHER = 64

# Directions are found by so many steps of subspace iteration where there are more rows than this
# many times the directions that are looked for.
N_STEPS = STEPS
FEW_ROWS = FEW
# Of the variance along the longest direction: what is left of one without any.
ROUNDING = 1e-14
cdef double NO_VARIANCE = ROUNDING


cdef void matrix_product(
    Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, const double* a, bint a_transposed,
    const double* b, bint b_transposed, double* out,
) noexcept nogil:
    # out (m, n) = A @ B of A (m, k) and B (k, n), which may be given as their transposes.
    cdef int rows = <int>m, columns = <int>n, inner = <int>k
    cdef int of_a = rows if a_transposed else inner, of_b = inner if b_transposed else columns
    cdef char no = b"N", yes = b"T"
    cdef double one = 1.0, zero = 0.0
    dgemm(
        &yes if b_transposed else &no, &yes if a_transposed else &no, &columns, &rows, &inner, &one,
        <double*>b, &of_b, <double*>a, &of_a, &zero, out, &columns,
    )


cdef Py_ssize_t order_of_products(Py_ssize_t d, Py_ssize_t q) noexcept nogil:
    # At most so many rows, or features, have their products decomposed.
    return max(min(d, FEW * q), q)


cdef Py_ssize_t leading_size(Py_ssize_t k, Py_ssize_t d, Py_ssize_t n, Py_ssize_t q) noexcept nogil:
    # Doubles of scratch that `leading` takes for k rows.
    cdef Py_ssize_t most = order_of_products(d, q)
    return 3 * most * most + 7 * most + 1 + (n + 1) * d + q * (k + 2 * d + 65)


cdef void orthonormalize(Py_ssize_t n, Py_ssize_t k, double* rows, double* work) noexcept nogil:
    # Rows (n, k), no more than k, in place.
    cdef int columns = <int>n, length = <int>k, size = <int>(64 * n), info = 0
    dgeqrf(&length, &columns, rows, &length, work, work + n, &size, &info)
    dorgqr(&length, &columns, &columns, rows, &length, work, work + n, &size, &info)


cdef void compress(
    Py_ssize_t k, Py_ssize_t d, const double* rows, Py_ssize_t q, const double* combinations,
    double* out, double* scratch,
) noexcept nogil:
    # About the same products of rows (k, d) with themselves from q rows (Halko et al. 2011). They
    # begin with combinations of the rows, not of the features, whose order does not matter then.
    cdef double* basis = scratch  # (q, k)
    cdef double* products = basis + q * k  # (d, q)
    cdef double* work = products + d * q
    matrix_product(d, q, k, rows, True, combinations, False, products)
    matrix_product(q, k, d, products, True, rows, True, basis)
    for _ in range(STEPS):
        matrix_product(d, q, k, rows, True, basis, True, products)
        matrix_product(q, k, d, products, True, rows, True, basis)
        orthonormalize(q, k, basis, work)
    matrix_product(q, d, k, basis, False, rows, False, out)


cdef Py_ssize_t rank_of(Py_ssize_t k, const double* values, Py_ssize_t most) noexcept nogil:
    # How many of ascending eigenvalues are more than rounding, up to a number.
    cdef Py_ssize_t rank = 0
    while rank < min(k, most) and values[k - 1 - rank] > NO_VARIANCE * values[k - 1]:
        rank += 1
    return rank


cdef Py_ssize_t directions_of(
    Py_ssize_t k, Py_ssize_t d, const double* rows, Py_ssize_t n, Py_ssize_t q,
    const double* combinations, double* out, double* scratch, int* iwork,
) noexcept nogil:
    # At most n leading directions (n, d), of either sign, of rows (k, d) that are not zero; how
    # many there are.
    cdef Py_ssize_t i, j, rank, most = order_of_products(d, q)
    cdef double length
    cdef double* products = scratch
    cdef double* values = products + most * most
    cdef double* ascending = values + most  # (n, d)
    cdef double* fewer = ascending + n * d  # (q, d)
    cdef double* work = fewer + q * d
    if k > min(d, FEW * q):
        if d <= q:
            matrix_product(d, d, k, rows, True, rows, False, products)
            eigh(d, products, values, work, iwork)
            rank = rank_of(d, values, n)
            for i in range(rank):
                length = sqrt(values[d - 1 - i])
                for j in range(d):
                    out[i * d + j] = length * products[(d - 1 - i) * d + j]
            return rank
        compress(k, d, rows, q, combinations, fewer, work)
        rows, k = fewer, q
    thin_gram(d, k, rows, products)
    eigh(k, products, values, work, iwork)
    rank = rank_of(k, values, n)
    if rank > 0:
        matrix_product(rank, d, k, products + (k - rank) * k, False, rows, False, ascending)
    for i in range(rank):
        memcpy(out + i * d, ascending + (rank - 1 - i) * d, d * sizeof(double))
    return rank


cdef void leading(
    Py_ssize_t k, Py_ssize_t d, double* rows, Py_ssize_t n, Py_ssize_t q,
    const double* combinations, double* out, double* scratch, int* iwork,
) noexcept nogil:
    # See `leading_directions`; what is left of the rows are those that are not zero.
    cdef Py_ssize_t i, j, n_rows = 0, rank
    cdef int one = 1, length = <int>d
    cdef double* towards = scratch
    memset(out, 0, n * d * sizeof(double))
    memset(towards, 0, d * sizeof(double))
    for i in range(k):
        j = 0
        while j < d and rows[i * d + j] == 0.0:
            j += 1
        if j == d:
            continue
        if n_rows < i:
            memcpy(rows + n_rows * d, rows + i * d, d * sizeof(double))
        daxpy(&length, <double*>&combinations[n_rows], rows + n_rows * d, &one, towards, &one)
        n_rows += 1
    if n_rows == 0:
        return
    rank = directions_of(n_rows, d, rows, n, q, combinations, out, scratch + d, iwork)
    for i in range(rank):
        if dot(d, out + i * d, towards) < 0.0:
            for j in range(d):
                out[i * d + j] = -out[i * d + j]


def leading_directions(
    const double[:, ::1] rows, Py_ssize_t n, const double[:, ::1] combinations
):
    """The n leading directions of rows, the longest first, as long as what they explain.

    The products of directions with themselves add up to no more than those of the rows: what is
    lost is positive semi-definite, however roughly directions are found. They may be rows of what
    is merged next, so their signs matter: these go by a combination of the rows, whatever the
    order of the features.

    Parameters
    ----------
    rows : (k, d) array
    n : int, positive
    combinations : (k, q) array, n <= q
        Of the rows, with a part in any direction. From so many of them directions are found where
        there are many rows; the first k numbers are the combination that has the signs.

    Returns
    -------
    (n, d) array
        Zeros where there are fewer.
    """
    cdef Py_ssize_t k = rows.shape[0], d = rows.shape[1], q = combinations.shape[1]
    check_shapes(d, d, k == combinations.shape[0] and 0 < n <= q)
    out = np.empty((n, d))
    cdef double[:, ::1] found = out, kept = np.array(rows)
    cdef double[::1] scratch = np.empty(leading_size(k, d, n, q))
    cdef int[::1] iwork = np.empty(3 + 5 * order_of_products(d, q), dtype=np.intc)
    if k > 0:
        with nogil:
            leading(
                k, d, &kept[0, 0], n, q, &combinations[0, 0], &found[0, 0], &scratch[0], &iwork[0]
            )
    else:
        out[:] = 0.0
    return out


def group_covariances(
    const double[::1] counts,
    const double[:, ::1] means,
    const double[:, :, ::1] covs,
    const Py_ssize_t[::1] order,
    const Py_ssize_t[::1] starts,
    const double[::1] totals,
    const double[:, ::1] centers,
    const double[:, ::1] variances,
    const double[:, ::1] combinations,
):
    """Covariances of low rank of groups of components.

    The leading directions are those of correlations, so that no feature's unit matters.

    Parameters
    ----------
    counts : (k,) array
    means : (k, d) array
    covs : (m, 1 + r, d) array
        Of the first m components; the others are Diracs.
    order, starts : arrays
        See `match_group_moments`.
    totals, centers, variances : (n_groups,), (n_groups, d) and (n_groups, d) arrays
        Counts, means and variances of the groups.
    combinations : (n_rows, q) array, r <= q
        See `leading_directions`; a component is a row, and a compound r more of them.

    Returns
    -------
    (n_groups, 1 + r, d) array
        A component alone has the directions that it had.
    """
    cdef Py_ssize_t n_groups = starts.shape[0] - 1, k = means.shape[0], d = means.shape[1]
    cdef Py_ssize_t m = covs.shape[0], r = covs.shape[1] - 1, q = combinations.shape[1]
    cdef Py_ssize_t g, a, i, j, t, n_rows, most = 0
    cdef double root
    check_shapes(
        d, d,
        m <= k == counts.shape[0] and covs.shape[2] == d and 0 < r <= q
        and n_groups >= 0 and starts[n_groups] == order.shape[0]
        and totals.shape[0] == centers.shape[0] == variances.shape[0] == n_groups
        and centers.shape[1] == variances.shape[1] == d,
    )
    for g in range(n_groups):
        n_rows = 0
        for a in range(starts[g], starts[g + 1]):
            n_rows += 1 + r if order[a] < m else 1
        most = max(most, n_rows)
    check_shapes(d, d, most <= combinations.shape[0])
    out = np.empty((n_groups, 1 + r, d))
    cdef double[:, :, ::1] found = out
    cdef double[:, ::1] rows = np.empty((most + 1, d))
    cdef double[::1] units = np.empty(d), scratch = np.empty(leading_size(most, d, r, q))
    cdef int[::1] iwork = np.empty(3 + 5 * order_of_products(d, q), dtype=np.intc)
    with nogil:
        for g in range(n_groups):
            memcpy(&found[g, 0, 0], &variances[g, 0], d * sizeof(double))
            if starts[g + 1] - starts[g] == 1:
                i = order[starts[g]]
                if i < m:
                    memcpy(&found[g, 1, 0], &covs[i, 1, 0], r * d * sizeof(double))
                else:
                    memset(&found[g, 1, 0], 0, r * d * sizeof(double))
                continue
            for j in range(d):
                units[j] = sqrt(variances[g, j]) if variances[g, j] > 0.0 else 1.0
            n_rows = starts[g + 1] - starts[g]
            for a in range(starts[g], starts[g + 1]):
                i = order[a]
                root = sqrt(counts[i] / totals[g]) if totals[g] > 0.0 else 0.0
                for j in range(d):
                    rows[a - starts[g], j] = root * (means[i, j] - centers[g, j]) / units[j]
                for t in range(1, 1 + r if i < m else 1):
                    for j in range(d):
                        rows[n_rows, j] = root * covs[i, t, j] / units[j]
                    n_rows += 1
            leading(
                n_rows, d, &rows[0, 0], r, q, &combinations[0, 0], &found[g, 1, 0], &scratch[0],
                &iwork[0],
            )
            for t in range(1, 1 + r):
                for j in range(d):
                    found[g, t, j] *= units[j]
    return out


def analyser_factors(
    const double[:, ::1] precisions,
    const double[:, :, ::1] directions,
    const double[:, ::1] shared,
):
    """What densities of factor analysers need, by Woodbury's identity.

    One has the covariance noise + shared^T shared + directions^T directions.

    Parameters
    ----------
    precisions : (k, d) array, positive
        One over the noises.
    directions : (k, r, d) array
    shared : (s, d) array
        Directions that all have.

    Returns
    -------
    projections : (k, s + r, d) array
        Of a row what the directions explain is the square of its products with these.
    inverses : (k, s + r, s + r) array
        L^-1, where L L^T are the products of the directions over the noise, and the identity. Where
        rounding has made that indefinite L is its symmetric root, with no eigenvalue below one.
    log_dets : (k,) array
        log |L L^T|
    """
    cdef Py_ssize_t k = directions.shape[0], r = directions.shape[1], d = directions.shape[2]
    cdef Py_ssize_t s = shared.shape[0], n = s + r, i, j, t
    cdef int order = <int>n, info = 0
    cdef char upper = b"U", no = b"N"
    check_shapes(d, d, k == precisions.shape[0] and d == precisions.shape[1] == shared.shape[1])
    projections, inverses, log_dets = np.empty((k, n, d)), np.empty((k, n, n)), np.zeros(k)
    if n == 0:
        return projections, inverses, log_dets
    cdef double[:, :, ::1] projection = projections, inverse = inverses
    cdef double[::1] log_det = log_dets
    cdef double[:, ::1] of_all = np.empty((n, d)), weighted = np.empty((n, d))
    cdef double[:, ::1] vectors = np.empty((n, n))
    cdef double[::1] values = np.empty(n), scratch = np.empty(1 + 6 * n + 2 * n * n)
    cdef int[::1] iwork = np.empty(3 + 5 * n, dtype=np.intc)
    if s > 0:
        of_all[:s] = shared
    with nogil:
        for i in range(k):
            if r > 0:
                memcpy(&of_all[s, 0], &directions[i, 0, 0], r * d * sizeof(double))
            for t in range(n):
                for j in range(d):
                    weighted[t, j] = of_all[t, j] * precisions[i, j]
            matrix_product(n, n, d, &weighted[0, 0], False, &of_all[0, 0], True, &inverse[i, 0, 0])
            for t in range(n):
                inverse[i, t, t] += 1.0
            memcpy(&vectors[0, 0], &inverse[i, 0, 0], n * n * sizeof(double))
            # The upper triangle of a matrix by columns is the lower one by rows.
            dpotrf(&upper, &order, &inverse[i, 0, 0], &order, &info)
            if info == 0:
                for t in range(n):
                    log_det[i] += 2.0 * log(inverse[i, t, t])
                    for j in range(t + 1, n):
                        inverse[i, t, j] = 0.0
                # A product with many columns takes less than solving for them.
                dtrtri(&upper, &no, &order, &inverse[i, 0, 0], &order, &info)
            else:
                eigh(n, &vectors[0, 0], &values[0], &scratch[0], &iwork[0])
                for t in range(n):
                    values[t] = fmax(values[t], 1.0)
                    log_det[i] += log(values[t])
                    values[t] = 1.0 / sqrt(sqrt(values[t]))
                from_eigen(n, &vectors[0, 0], &values[0], &scratch[0], &inverse[i, 0, 0])
            matrix_product(
                n, d, n, &inverse[i, 0, 0], False, &weighted[0, 0], False, &projection[i, 0, 0]
            )
    return projections, inverses, log_dets


def analyser_log_densities(
    const double[:, ::1] X,
    const double[:, ::1] means,
    const double[:, ::1] precisions,
    const double[:, :, ::1] projections,
    const double[::1] bases,
):
    """Log-densities of factor analysers.

    Parameters
    ----------
    X : (n, d) array
    means, precisions : (k, d) arrays
    projections : (k, r, d) array
        See `analyser_factors`.
    bases : (k,) array
        Log-densities at the means.

    Returns
    -------
    (k, n) array
        -inf where squares overflow.
    """
    cdef Py_ssize_t n = X.shape[0], k = means.shape[0], d = means.shape[1]
    cdef Py_ssize_t r = projections.shape[1], i, j, a, b, begin, end
    cdef double square
    check_shapes(
        d, d,
        d == X.shape[1] == precisions.shape[1] == projections.shape[2]
        and k == precisions.shape[0] == projections.shape[0] == bases.shape[0],
    )
    out = np.empty((k, n))
    cdef double[:, ::1] logs = out, away = np.empty((TOGETHER, d))
    cdef double[:, ::1] explained = np.empty((TOGETHER, r + 1))
    cdef double[::1] squares = np.empty(TOGETHER), scaled = np.empty(d)
    cdef const double* row
    with nogil:
        for i in range(k):
            for b in range((n + TOGETHER - 1) // TOGETHER):
                begin, end = b * TOGETHER, min((b + 1) * TOGETHER, n)
                for a in range(end - begin):
                    for j in range(d):
                        away[a, j] = X[begin + a, j] - means[i, j]
                        scaled[j] = away[a, j] * precisions[i, j]
                    squares[a] = long_dot(d, &away[a, 0], &scaled[0])
                if r > 0:
                    matrix_product(
                        end - begin, r, d, &away[0, 0], False, &projections[i, 0, 0], True,
                        &explained[0, 0],
                    )
                for a in range(end - begin):
                    row = &explained[0, 0] + a * r
                    square = squares[a] - long_dot(r, row, row)
                    # Rounding may take more away than there is, and an overflow is no number.
                    square = INFINITY if isnan(square) else fmax(square, 0.0)
                    logs[i, begin + a] = bases[i] - 0.5 * square
    return out
