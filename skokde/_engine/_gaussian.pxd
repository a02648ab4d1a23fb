# Gaussians in kernel coordinates, where the bandwidth H is the identity: a component with
# sample covariance S has the covariance S + I in the KDE, and a Dirac has I. Both covariance
# structures are one code: a covariance is d*d numbers (full) or d numbers (diagonal).

from libc.float cimport DBL_EPSILON
from libc.math cimport fmax, log, log1p, sqrt
from scipy.linalg.cython_blas cimport dgemm
from scipy.linalg.cython_lapack cimport dorgtr, dpotrf, dpotri, dsyevd, dsytrd
from skokde._engine._eigh cimport eigh_small, LARGEST_ORDER
from skokde._engine._exponential cimport exp_within  # for its FOR_EACH_PROCESSOR

cdef extern from *:
    """
    /* out := row @ matrix, four rows of the matrix at a time */
    FOR_EACH_PROCESSOR
    static void row_times(
        Py_ssize_t d, const double* restrict row, const double* restrict matrix,
        double* restrict out
    ) {
        Py_ssize_t i = 0;
        for (Py_ssize_t j = 0; j < d; j++)
            out[j] = 0.0;
        for (; i + 4 <= d; i += 4) {
            const double a = row[i], b = row[i + 1], c = row[i + 2], e = row[i + 3];
            const double* rows = matrix + i * d;
            for (Py_ssize_t j = 0; j < d; j++)
                out[j] = (((out[j] + a * rows[j]) + b * rows[d + j]) + c * rows[2 * d + j])
                    + e * rows[3 * d + j];
        }
        for (; i < d; i++)
            for (Py_ssize_t j = 0; j < d; j++)
                out[j] += row[i] * matrix[i * d + j];
    }
    """
    void row_times(
        Py_ssize_t d, const double* row, const double* matrix, double* out
    ) noexcept nogil


cdef inline double residue() noexcept nogil:
    # Variances below this are lost in the bandwidth's: whitening leaves errors of about that size.
    return 1e-9


cdef inline double longest_shift() noexcept nogil:
    # Distances from shrunk means are made from those of the means themselves where shrinking moves
    # them by less than the root of this, in widths of the kernel: else rounding would show.
    return 100.0


cdef inline Py_ssize_t work_size(Py_ssize_t d, Py_ssize_t size) noexcept nogil:
    # Doubles of scratch that every function is content with, for covariances of that size.
    return 6 * size + 8 * d + 8


cdef inline double dot(Py_ssize_t d, const double* a, const double* b) noexcept nogil:
    cdef Py_ssize_t j
    cdef double total = 0.0
    for j in range(d):
        total += a[j] * b[j]
    return total


cdef inline double long_dot(Py_ssize_t n, const double* a, const double* b) noexcept nogil:
    # Four sums, so that an addition need not wait for the one before.
    cdef Py_ssize_t j, whole = n - n % 4
    cdef double total0 = 0.0, total1 = 0.0, total2 = 0.0, total3 = 0.0
    for j in range(0, whole, 4):
        total0 += a[j] * b[j]
        total1 += a[j + 1] * b[j + 1]
        total2 += a[j + 2] * b[j + 2]
        total3 += a[j + 3] * b[j + 3]
    for j in range(whole, n):
        total0 += a[j] * b[j]
    return (total0 + total1) + (total2 + total3)


cdef inline Py_ssize_t thin_limit(Py_ssize_t d) noexcept nogil:
    # The largest rank at which a covariance is worth being taken for thin.
    return d // 2 if d >= 8 else 0


cdef inline Py_ssize_t thin_factor(
    Py_ssize_t d, const double* cov, double tolerance, double* factor, double* left
) noexcept nogil:
    # Rows whose outer products add up to cov, but for a rest with variances up to the tolerance;
    # returns their number, or -1 if there would be too many. A cluster of few samples has few.
    # This is the Cholesky decomposition with pivots: `left` are the variances not yet explained.
    cdef Py_ssize_t j, r, t, pivot, limit = thin_limit(d)
    cdef double scale = 0.0
    cdef double* row
    for j in range(d):
        left[j] = cov[j * d + j]
        scale = fmax(scale, left[j])
    if tolerance < 4.0 * d * DBL_EPSILON * scale:
        return -1  # rounding would pass for variance
    for r in range(limit + 1):
        pivot = 0
        for j in range(1, d):
            if left[j] > left[pivot]:
                pivot = j
        if left[pivot] <= tolerance:
            return r
        if r == limit:
            break
        row = factor + r * d
        for j in range(d):
            row[j] = cov[pivot * d + j]
        for t in range(r):
            scale = factor[t * d + pivot]
            for j in range(d):
                row[j] -= scale * factor[t * d + j]
        scale = 1.0 / sqrt(left[pivot])
        for j in range(d):
            row[j] *= scale
            left[j] -= row[j] * row[j]
    return -1


cdef inline void thin_gram(
    Py_ssize_t d, Py_ssize_t rank, const double* factor, double* gram
) noexcept nogil:
    # gram = factor @ factor.T, (rank, rank)
    cdef int n = <int>d, r = <int>rank
    cdef double one = 1.0, zero = 0.0
    cdef char no = b"N", yes = b"T"
    dgemm(&yes, &no, &r, &r, &n, &one, <double*>factor, &n, <double*>factor, &n, &zero, gram, &r)


cdef inline int eigh(
    Py_ssize_t d, double* matrix, double* eigenvalues, double* work, int* iwork
) noexcept nogil:
    # Ascending eigenvalues; row i of `matrix` becomes the i-th eigenvector.
    cdef int n = <int>d, lwork = <int>(1 + 6 * d + 2 * d * d), liwork = <int>(3 + 5 * d), info = 0
    cdef char jobz = b"V", uplo = b"U"
    cdef Py_ssize_t i
    cdef double trace = 0.0
    if d <= LARGEST_ORDER:
        for i in range(d):
            trace += matrix[i * d + i]
        if 1e-100 < trace < 1e100:  # so that squares neither over- nor underflow
            for i in range(d * d):
                work[i] = matrix[i]
            if eigh_small(n, matrix, eigenvalues, work + d * d) == 0:
                return 0
            for i in range(d * d):
                matrix[i] = work[i]
    dsyevd(&jobz, &uplo, &n, matrix, &n, eigenvalues, work, &lwork, iwork, &liwork, &info)
    return info


cdef inline void tridiagonal_form(
    Py_ssize_t d, double* matrix, double* values, double* beside, double* work
) noexcept nogil:
    # matrix = Q T Q': its rows become the columns of Q; T has the diagonal `values`, and `beside`.
    cdef int n = <int>d, lwork = <int>(2 * d * d), info = 0
    cdef char uplo = b"U"
    dsytrd(&uplo, &n, matrix, &n, values, beside, work, work + d, &lwork, &info)
    dorgtr(&uplo, &n, matrix, &n, work, work + d, &lwork, &info)


cdef inline void turn(
    Py_ssize_t d, Py_ssize_t rank, const double* factor, double* turned, double* eigenvalues,
    double* work, int* iwork,
) noexcept nogil:
    # The eigenvalues of factor.T @ factor that are not zero but for rounding, ascending; row i of
    # `turned` becomes the i-th eigenvector times the root of its eigenvalue.
    cdef int n = <int>d, r = <int>rank
    cdef double one = 1.0, zero = 0.0
    cdef char no = b"N"
    if rank > 0:
        thin_gram(d, rank, factor, work)
        eigh(rank, work, eigenvalues, work + rank * rank, iwork)
        dgemm(&no, &no, &n, &r, &r, &one, <double*>factor, &n, work, &r, &zero, turned, &n)


cdef inline void from_eigen(
    Py_ssize_t d, const double* vectors, const double* quarter, double* scaled, double* out
) noexcept nogil:
    # out = sum_i quarter[i]^2 v_i v_i^T
    cdef Py_ssize_t i, j
    cdef int n = <int>d
    cdef double one = 1.0, zero = 0.0
    cdef char no = b"N", yes = b"T"
    for i in range(d):
        for j in range(d):
            scaled[i * d + j] = quarter[i] * vectors[i * d + j]
    dgemm(&no, &yes, &n, &n, &n, &one, scaled, &n, scaled, &n, &zero, out, &n)


cdef inline void add_outer(
    Py_ssize_t d, Py_ssize_t rank, double sign, const double* factor, double* out
) noexcept nogil:
    # out = I + sign * factor.T @ factor
    cdef Py_ssize_t i
    cdef int n = <int>d, r = <int>rank
    cdef double one = 1.0
    cdef char no = b"N", yes = b"T"
    for i in range(d * d):
        out[i] = 0.0
    for i in range(d):
        out[i * d + i] = 1.0
    if rank > 0:
        dgemm(&no, &yes, &n, &n, &r, &sign, <double*>factor, &n, <double*>factor, &n, &one, out,
              &n)


cdef inline double factorize_thin(
    Py_ssize_t d, Py_ssize_t rank, const double* factor, double* inv_root, double* root,
    double* work, int* iwork,
) noexcept nogil:
    # `factorize` of factor.T @ factor, all in the space that the rows span. With an eigenvalue s
    # there, e = sqrt(s + 1): the root adds e - 1 = s / (e + 1), the inverse root takes
    # 1 - 1 / e = s / (e (e + 1)) away, and sqrt(s) times the eigenvector is the turned row.
    cdef Py_ssize_t i, j
    cdef double e, log_det = 0.0
    cdef double* turned = work
    cdef double* values = turned + rank * d
    turn(d, rank, factor, turned, values, values + rank, iwork)
    for i in range(rank):
        values[i] = fmax(values[i], 0.0)
        log_det += log1p(values[i])
        values[i] = sqrt(values[i] + 1.0)
        e = 1.0 / sqrt(values[i] + 1.0)
        for j in range(d):
            turned[i * d + j] *= e
    add_outer(d, rank, 1.0, turned, root)
    for i in range(rank):
        e = 1.0 / sqrt(values[i])
        for j in range(d):
            turned[i * d + j] *= e
    add_outer(d, rank, -1.0, turned, inv_root)
    return log_det


cdef inline void multiply(double value, double* product, double* log_product) noexcept nogil:
    # Multiplies a value, one or more, to a product whose logarithm is that of `product` besides
    # `log_product`: a logarithm takes longer than twenty products.
    if product[0] > 1e300 / value:
        log_product[0] += log(product[0])
        product[0] = 1.0
    product[0] *= value


cdef inline double factorize(
    Py_ssize_t d, bint full, const double* cov, double* inv_root, double* root,
    double* work, int* iwork,
) noexcept nogil:
    # Symmetric (cov + I)^(-1/2) and (cov + I)^(1/2); returns log|cov + I|. Rounding can make
    # the smallest eigenvalues of cov negative: they are zero, never less.
    cdef Py_ssize_t i, rank
    cdef double eigenvalue, product = 1.0, log_det = 0.0
    cdef double* vectors
    cdef double* values
    cdef double* scaled
    if not full:
        for i in range(d):
            eigenvalue = fmax(cov[i], 0.0) + 1.0
            root[i] = sqrt(eigenvalue)
            inv_root[i] = 1.0 / root[i]
            multiply(eigenvalue, &product, &log_det)
        return log_det + log(product)
    rank = thin_factor(d, cov, residue(), work, work + thin_limit(d) * d)
    if rank >= 0:
        return factorize_thin(d, rank, work, inv_root, root, work + rank * d, iwork)
    vectors = work
    values = vectors + d * d
    scaled = values + d
    for i in range(d * d):
        vectors[i] = cov[i]
    eigh(d, vectors, values, scaled, iwork)
    for i in range(d):
        eigenvalue = fmax(values[i], 0.0) + 1.0
        multiply(eigenvalue, &product, &log_det)
        values[i] = sqrt(sqrt(eigenvalue))
    from_eigen(d, vectors, values, scaled, root)
    for i in range(d):
        values[i] = 1.0 / values[i]
    from_eigen(d, vectors, values, scaled, inv_root)
    return log_det + log(product)


cdef inline int invert_small(Py_ssize_t n, double* a, double* log_det) noexcept nogil:
    # `invert` for few rows, where the calls of a library take longer than the numbers. With
    # a = U^T U and W the inverse of U^T, the inverse is W^T W: U takes the place of the upper
    # triangle, W that of the lower one and of the diagonal.
    cdef Py_ssize_t i, j, r, t
    cdef double scale
    for r in range(n):
        scale = a[r * n + r]
        if not scale > 0.0:
            return 1
        log_det[0] += log(scale)
        scale = 1.0 / sqrt(scale)
        for j in range(r + 1, n):
            a[r * n + j] *= scale
        a[r * n + r] = scale
        for i in range(r + 1, n):
            scale = a[r * n + i]
            for j in range(i, n):
                a[i * n + j] -= scale * a[r * n + j]
    for r in range(1, n):
        for t in range(r):
            a[r * n + t] = 0.0
        for t in range(r):
            scale = -a[t * n + r]
            for j in range(t + 1):
                a[r * n + j] += scale * a[t * n + j]
        for t in range(r):
            a[r * n + t] *= a[r * n + r]
    for i in range(n):
        for t in range(i, n):
            scale = a[t * n + i]
            if t == i:
                for j in range(i + 1):
                    a[i * n + j] *= scale
            else:
                for j in range(i + 1):
                    a[i * n + j] += scale * a[t * n + j]
        for j in range(i):
            a[j * n + i] = a[i * n + j]
    return 0


cdef inline int invert(Py_ssize_t d, double* matrix, double* log_det) noexcept nogil:
    # In place, symmetric positive definite; not zero if it is not.
    cdef Py_ssize_t i, j
    cdef int n = <int>d, info = 0
    cdef char uplo = b"U"
    log_det[0] = 0.0
    if d <= 32:
        return invert_small(d, matrix, log_det)
    dpotrf(&uplo, &n, matrix, &n, &info)
    if info != 0:
        return info
    for i in range(d):
        log_det[0] += 2.0 * log(matrix[i * d + i])
    dpotri(&uplo, &n, matrix, &n, &info)
    for i in range(d):  # column-major upper is row-major lower
        for j in range(i):
            matrix[j * d + i] = matrix[i * d + j]
    return info


cdef inline void match_moments(
    Py_ssize_t d, bint full, Py_ssize_t n, const Py_ssize_t* members, const double* counts,
    const double* means, const double* covs, Py_ssize_t n_compounds,
    double* count, double* mean, double* cov, double* delta,
) noexcept nogil:
    # Moment matching of a sub-mixture (paper, Eq. 9). Differences are taken before they are
    # squared, from the heaviest member first and then from the mean, so that equal values stay
    # equal and a member of next to no weight leaves no rounding error. Where no member counts the
    # mean is that of the first.
    cdef Py_ssize_t a, i, j, c, heaviest = members[0], size = d * d if full else d
    cdef double weight, total
    cdef const double* origin
    count[0] = 0.0
    for a in range(n):
        i = members[a]
        count[0] += counts[i]
        if counts[i] > counts[heaviest]:
            heaviest = i
    total = count[0] if count[0] > 0.0 else 1.0
    origin = means + heaviest * d
    for j in range(d):
        mean[j] = 0.0
    for a in range(n):
        i = members[a]
        for j in range(d):
            mean[j] += counts[i] * (means[i * d + j] - origin[j])
    for j in range(d):
        mean[j] = origin[j] + mean[j] / total
    for c in range(size):
        cov[c] = 0.0
    for a in range(n):
        i = members[a]
        weight = counts[i] / total
        for j in range(d):
            delta[j] = means[i * d + j] - mean[j]
        if full:
            for j in range(d):
                for c in range(d):
                    cov[j * d + c] += weight * (delta[j] * delta[c])
        else:
            for j in range(d):
                cov[j] += weight * (delta[j] * delta[j])
        if i < n_compounds:
            for c in range(size):
                cov[c] += weight * covs[i * size + c]
