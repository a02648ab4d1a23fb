"""The unscented Hellinger distance (paper, Sections 2.4 and 2.5), in kernel coordinates.

Components carry the KDE's covariances: the first m have symmetric roots and inverse roots of
S_i + I, the others are Diracs, N(mu_i, I). Constant factors of (2 pi)^(-d/2) are left out, as
only ratios of densities matter.
"""

import numpy as np

from libc.math cimport fmax, log, sqrt
from libc.string cimport memset
from scipy.linalg.cython_blas cimport dgemm
from skokde._engine._exponential cimport add_ratios, all_below, divergences
from skokde._engine._frame cimport (
    coordinates, Coordinates, coordinates_size, map_covariances, map_points, prepare_covariances,
)
from skokde._engine._gaussian cimport (
    dot, factorize, long_dot, match_moments, row_times, thin_factor, thin_limit, work_size,
)
from skokde._engine._shapes cimport check_shapes, number_of_true

# An inverse root is I, but for less than this, less the outer products of a few vectors if it comes
# from a thin covariance.
cdef double THIN = 1e-12
# A term less than e to the minus this times a sum leaves it as it is: 2^-54 is half a last bit.
cdef double NO_BIT = 38.0


cdef struct Sigma:
    # The sigma points: radius^2 = d + kappa; points 2j and 2j + 1 are mu +- radius * column j of
    # the symmetric root, and the last is mu, if kappa > 0.
    Py_ssize_t n_points
    double radius2
    double weight
    double centre_weight


cdef Sigma sigma_points(Py_ssize_t d) noexcept nogil:
    cdef Sigma sigma
    cdef Py_ssize_t kappa = 3 - d if d < 3 else 0
    sigma.n_points = 2 * d + (1 if kappa > 0 else 0)
    sigma.radius2 = d + kappa
    sigma.weight = 0.5 / sigma.radius2
    sigma.centre_weight = kappa / sigma.radius2
    return sigma


cdef void own_log_densities(Sigma sigma, Py_ssize_t d, double log_det, double* out) noexcept nogil:
    # Of a component at its own sigma points.
    cdef Py_ssize_t s
    for s in range(sigma.n_points):
        out[s] = -0.5 * (log_det + (sigma.radius2 if s < 2 * d else 0.0))


cdef double expectation(Sigma sigma, Py_ssize_t d, const double* values) noexcept nogil:
    # Of what the values are at the sigma points.
    cdef Py_ssize_t s
    cdef double total = 0.0
    for s in range(2 * d):
        total += values[s]
    total *= sigma.weight
    return total if sigma.centre_weight == 0.0 else total + sigma.centre_weight * values[2 * d]


cdef void log_densities(
    Py_ssize_t d, bint full, Sigma sigma, const double* mean, const double* root,
    const double* other_mean, const double* other_inv_root, double other_log_det,
    Py_ssize_t rank, const double* factor, double* out, double* work,
) noexcept nogil:
    # Log-densities of the other component at the sigma points of one; NULL roots are Diracs'.
    # |y +- r b_j|^2 with y the whitened difference of the means, b_j the root's whitened rows.
    # The other's inverse root is I - factor.T @ factor if the rank is not negative.
    cdef Py_ssize_t j
    cdef int n = <int>d
    cdef char no = b"N"
    cdef double one = 1.0, zero = 0.0, yy, yb, bb
    cdef double r2 = sigma.radius2, r = sqrt(sigma.radius2)
    cdef double* delta = work
    cdef double* y = work + d
    cdef double* whitened = work + 2 * d
    cdef const double* b = NULL
    for j in range(d):
        delta[j] = mean[j] - other_mean[j]
    if other_inv_root == NULL:
        for j in range(d):
            y[j] = delta[j]
    elif full:
        row_times(d, delta, other_inv_root, y)
    else:
        for j in range(d):
            y[j] = other_inv_root[j] * delta[j]
    yy = dot(d, y, y)
    if full:
        if other_inv_root == NULL:
            b = root
        elif root == NULL:
            b = other_inv_root
        else:
            b = whitened
            if rank >= 0:
                whiten_thin(d, rank, factor, root, whitened, whitened + d * d)
            else:
                dgemm(&no, &no, &n, &n, &n, &one, <double*>other_inv_root, &n, <double*>root, &n,
                      &zero, whitened, &n)
    for j in range(d):
        if full and b != NULL:
            bb = long_dot(d, b + j * d, b + j * d)
            yb = long_dot(d, b + j * d, y)
        elif full:
            bb, yb = 1.0, y[j]
        else:
            yb = 1.0 if other_inv_root == NULL else other_inv_root[j]
            if root != NULL:
                yb *= root[j]
            bb = yb * yb
            yb = yb * y[j]
        bb = yy + r2 * bb
        yb = 2.0 * r * yb
        out[2 * j] = -0.5 * (other_log_det + (bb + yb if bb + yb > 0.0 else 0.0))
        out[2 * j + 1] = -0.5 * (other_log_det + (bb - yb if bb - yb > 0.0 else 0.0))
    if sigma.centre_weight > 0.0:
        out[2 * d] = -0.5 * (other_log_det + yy)


cdef void whiten_thin(
    Py_ssize_t d, Py_ssize_t rank, const double* factor, const double* root, double* out,
    double* product,
) noexcept nogil:
    # out = root @ (I - factor.T @ factor)
    cdef Py_ssize_t j
    cdef int n = <int>d, r = <int>rank
    cdef char no = b"N", yes = b"T"
    cdef double one = 1.0, zero = 0.0, minus = -1.0
    for j in range(d * d):
        out[j] = root[j]
    if rank > 0:
        dgemm(&yes, &no, &r, &n, &n, &one, <double*>factor, &n, <double*>root, &n, &zero,
              product, &r)
        dgemm(&no, &no, &n, &n, &r, &minus, <double*>factor, &n, product, &r, &one, out, &n)


cdef Py_ssize_t thin_inverse_root(
    Py_ssize_t d, const double* inv_root, double* factor, double* work
) noexcept nogil:
    # The rank and the factor of I - inv_root, or -1.
    cdef Py_ssize_t j
    for j in range(d * d):
        work[j] = -inv_root[j]
    for j in range(d):
        work[j * d + j] += 1.0
    return thin_factor(d, work, THIN, factor, work + d * d)


cdef Py_ssize_t local_error_size(Py_ssize_t n, Py_ssize_t d, Py_ssize_t size) noexcept nogil:
    # Doubles of scratch that `error_of_merging` takes for up to n members.
    cdef Py_ssize_t n_points = sigma_points(d).n_points
    return n + 4 * n_points + 3 * size + 2 * d + work_size(d, size)


cdef Py_ssize_t factors_size(Py_ssize_t m, Py_ssize_t d, Py_ssize_t size) noexcept nogil:
    # Doubles that the factors of m inverse roots take.
    return m * thin_limit(d) * d if size != d else 0


cdef void thin_inverse_roots(
    Py_ssize_t m, Py_ssize_t d, Py_ssize_t size, const double* inv_roots, Py_ssize_t* ranks,
    double* factors, double* work,
) noexcept nogil:
    # For all compounds what `thin_inverse_root` gives.
    cdef Py_ssize_t i, limit = thin_limit(d) if size != d else 0
    for i in range(m):
        ranks[i] = -1
        if limit > 0:
            ranks[i] = thin_inverse_root(
                d, inv_roots + i * size, factors + i * limit * d, work
            )


cdef inline double error_of(double mass, double total) noexcept nogil:
    # Of a sub-mixture of that mass, by the total over the sigma points of both sides.
    return sqrt(0.5 * mass * total)


cdef bint settled(
    double mass, double least, double most, Py_ssize_t n_edges, const double* edges
) noexcept nogil:
    # Whether it is clear of an error between which edges it is, where there are any: its total is
    # from `least` to `most`.
    cdef Py_ssize_t e
    least, most = error_of(mass, least), error_of(mass, most)
    for e in range(n_edges):
        if not (least > edges[e] or most <= edges[e]):
            return False
    return n_edges > 0


cdef void density_ratios(
    Py_ssize_t d, bint full, Sigma sigma, const double* mean, const double* root, double log_det,
    const double* other_mean, const double* other_inv_root, double other_log_det,
    double* own, double* ratios, double* logs, double* work,
) noexcept nogil:
    # Densities of another component over those of one at its own sigma points, which are `own`.
    cdef Py_ssize_t s
    own_log_densities(sigma, d, log_det, own)
    log_densities(
        d, full, sigma, mean, root, other_mean, other_inv_root, other_log_det, -1, NULL, logs, work
    )
    for s in range(sigma.n_points):
        ratios[s] = 0.0
    add_ratios(sigma.n_points, 1.0, logs, own, ratios)


cdef double error_of_merging(
    Py_ssize_t n, const Py_ssize_t* members, Py_ssize_t d, Py_ssize_t size, Py_ssize_t m,
    const double* weights, const double* means, const double* covs, const double* inv_roots,
    const double* roots, const double* log_dets, const Py_ssize_t* ranks, const double* factors,
    Py_ssize_t n_edges, const double* edges, double* scratch, int* iwork,
) noexcept nogil:
    # See `local_error`, and for the ranks and the factors `thin_inverse_roots`.
    cdef Py_ssize_t a, b, i, j, s
    cdef bint full = size != d
    cdef Sigma sigma = sigma_points(d)
    cdef Py_ssize_t n_points = sigma.n_points
    cdef double mass = 0.0, log_det, total = 0.0, left
    cdef double shown = 0.0, tried = 0.0, average = 1.0
    cdef Py_ssize_t stride = thin_limit(d) * d
    # At sigma points: a component's log-densities, those of the points' own component, and over
    # its density those of the mixture and of the single Gaussian.
    cdef double* share = scratch
    cdef double* logs = share + n
    cdef double* own = logs + n_points
    cdef double* mixed = own + n_points
    cdef double* single = mixed + n_points
    cdef double* mean = single + n_points
    cdef double* delta = mean + d
    cdef double* cov = delta + d
    cdef double* inv_root = cov + size
    cdef double* root = inv_root + size
    cdef double* work = root + size
    if n == 1:
        return 0.0
    for a in range(n):
        mass += weights[members[a]]
    # What is left of the total is at most the weight of the sigma points, but for rounding.
    left = 2.0 + 1e-9
    if settled(mass, 0.0, left, n_edges, edges):
        return 0.0
    match_moments(d, full, n, members, weights, means, covs, m, &mass, mean, cov, delta)
    log_det = factorize(d, full, cov, inv_root, root, work, iwork)
    # The sigma points of the single Gaussian.
    own_log_densities(sigma, d, log_det, own)
    for s in range(n_points):
        mixed[s], single[s] = 0.0, 1.0
    for a in range(n):
        i = members[a]
        share[a] = weights[i] / mass
        log_densities(
            d, full, sigma, mean, root, means + i * d,
            inv_roots + i * size if i < m else NULL, log_dets[i] if i < m else 0.0,
            ranks[i] if i < m else -1, factors + i * stride, logs, work,
        )
        add_ratios(n_points, share[a], logs, own, mixed)
    divergences(n_points, mixed, single)
    total = expectation(sigma, d, mixed)
    left -= 1.0
    # Those of the components. At these the mixture has their own share at least: where the single
    # Gaussian has far less, it need not be known what the others add.
    if settled(mass, total, total + left, n_edges, edges):
        return error_of(mass, total)
    a = 0
    while a < n and settled(mass, total + average, total + left, n_edges, edges):
        i = members[a]
        density_ratios(
            d, full, sigma, means + i * d, roots + i * size if i < m else NULL,
            log_dets[i] if i < m else 0.0, mean, inv_root, log_det, own, single, logs, work,
        )
        for s in range(n_points):
            mixed[s] = fmax(share[a], single[s])
        divergences(n_points, mixed, single)
        shown += share[a] * expectation(sigma, d, mixed)
        if settled(mass, total + shown, total + left, n_edges, edges):
            return error_of(mass, total + shown)
        tried += share[a]
        average = shown / tried
        a += 1
    for a in range(n):
        if settled(mass, total, total + left, n_edges, edges):
            break
        i = members[a]
        density_ratios(
            d, full, sigma, means + i * d, roots + i * size if i < m else NULL,
            log_dets[i] if i < m else 0.0, mean, inv_root, log_det, own, single, logs, work,
        )
        for s in range(n_points):
            mixed[s] = share[a]
        for b in range(n):
            if b == a:
                continue
            j = members[b]
            log_densities(
                d, full, sigma, means + i * d, roots + i * size if i < m else NULL,
                means + j * d, inv_roots + j * size if j < m else NULL,
                log_dets[j] if j < m else 0.0, ranks[j] if j < m else -1, factors + j * stride,
                logs, work,
            )
            # In many features most are so far away that not a bit of the sums changes.
            if all_below(n_points, log(share[a] / share[b]) - NO_BIT, logs, own):
                continue
            add_ratios(n_points, share[b], logs, own, mixed)
        divergences(n_points, mixed, single)
        total += share[a] * expectation(sigma, d, mixed)
        left -= share[a]
    return error_of(mass, total)


def local_error(
    const Py_ssize_t[::1] members,
    const double[::1] weights,
    const double[:, ::1] means,
    const double[:, ::1] covs,
    const double[:, ::1] inv_roots,
    const double[:, ::1] roots,
    const double[::1] log_dets,
    const double[::1] edges,
):
    """Hellinger distance of a sub-mixture and its single Gaussian, times the root of its mass.

    Parameters
    ----------
    members : (n,) array of intp
    weights : (k,) array, sum one over the whole mixture
    means : (k, d) array
    covs, inv_roots, roots : (m, d * d) or (m, d) arrays
    log_dets : (m,) array
    edges : (n_edges,) array
        The result need only be between the same ones as the error; if there are none it is exact.
        Some sub-mixtures are so light that nothing can matter, and most are so far from a Gaussian
        that a few sigma points show it.

    Returns
    -------
    float
    """
    cdef Py_ssize_t n = members.shape[0], d = means.shape[1]
    cdef Py_ssize_t m = covs.shape[0], size = covs.shape[1]
    check_shapes(
        d, size,
        n > 0 and m <= weights.shape[0] == means.shape[0]
        and inv_roots.shape[0] == roots.shape[0] == log_dets.shape[0] == m
        and inv_roots.shape[1] == roots.shape[1] == size,
    )
    cdef double[::1] scratch = np.empty(local_error_size(n, d, size))
    cdef Py_ssize_t[::1] ranks = np.empty(m + 1, dtype=np.intp)
    cdef double[::1] factors = np.empty(factors_size(m, d, size) + 1)
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    cdef double error
    with nogil:
        thin_inverse_roots(
            m, d, size, &inv_roots[0, 0] if m else NULL, &ranks[0], &factors[0], &scratch[0]
        )
        error = error_of_merging(
            n, &members[0], d, size, m, &weights[0], &means[0, 0],
            &covs[0, 0] if m else NULL, &inv_roots[0, 0] if m else NULL,
            &roots[0, 0] if m else NULL, &log_dets[0] if m else NULL, &ranks[0], &factors[0],
            edges.shape[0], &edges[0] if edges.shape[0] else NULL, &scratch[0], &iwork[0],
        )
    return error


cdef double expected_divergence(
    Py_ssize_t d, bint full, Sigma sigma,
    Py_ssize_t n, const double* weights, const double* means, const double* inv_roots,
    const double* roots, const double* log_dets,
    Py_ssize_t other_n, const double* other_weights, const double* other_means,
    const double* other_inv_roots, const double* other_log_dets, double* table, double* work,
) noexcept nogil:
    # The expectation of (p^(1/2) - q^(1/2))^2 / (p + q) under the first mixture, p, by its sigma
    # points: densities over that of the points' own component.
    cdef Py_ssize_t i, j, s, size = d * d if full else d, n_points = sigma.n_points
    cdef double total = 0.0
    cdef double* logs = table
    cdef double* own = logs + n_points
    cdef double* p = own + n_points
    cdef double* q = p + n_points
    for i in range(n):
        if weights[i] <= 0.0:
            continue
        own_log_densities(sigma, d, log_dets[i], own)
        for s in range(n_points):
            p[s], q[s] = weights[i], 0.0
        for j in range(n):
            if j == i:
                continue
            log_densities(d, full, sigma, means + i * d, roots + i * size, means + j * d,
                          inv_roots + j * size, log_dets[j], -1, NULL, logs, work)
            add_ratios(n_points, weights[j], logs, own, p)
        for j in range(other_n):
            log_densities(d, full, sigma, means + i * d, roots + i * size, other_means + j * d,
                          other_inv_roots + j * size, other_log_dets[j], -1, NULL, logs, work)
            add_ratios(n_points, other_weights[j], logs, own, q)
        divergences(n_points, p, q)
        total += weights[i] * expectation(sigma, d, p)
    return total


cdef double distance(
    Py_ssize_t d, Py_ssize_t size,
    Py_ssize_t n1, const double* weights1, const double* means1, const double* covs1,
    Py_ssize_t n2, const double* weights2, const double* means2, const double* covs2,
    double* inv_roots, double* roots, double* log_dets, double* table, double* work, int* iwork,
) noexcept nogil:
    # See `hellinger`; the scratch has room for n1 + n2 components.
    cdef Py_ssize_t i
    cdef bint full = size != d
    cdef Sigma sigma = sigma_points(d)
    cdef double total
    for i in range(n1 + n2):
        log_dets[i] = factorize(
            d, full, covs1 + i * size if i < n1 else covs2 + (i - n1) * size,
            inv_roots + i * size, roots + i * size, work, iwork,
        )
    total = expected_divergence(
        d, full, sigma, n1, weights1, means1, inv_roots, roots, log_dets,
        n2, weights2, means2, inv_roots + n1 * size, log_dets + n1, table, work,
    )
    total += expected_divergence(
        d, full, sigma, n2, weights2, means2, inv_roots + n1 * size, roots + n1 * size,
        log_dets + n1, n1, weights1, means1, inv_roots, log_dets, table, work,
    )
    return sqrt(0.5 * total)


def hellinger(
    const double[::1] weights1,
    const double[:, ::1] means1,
    const double[:, ::1] covs1,
    const double[::1] weights2,
    const double[:, ::1] means2,
    const double[:, ::1] covs2,
):
    """Unscented Hellinger distance of two mixtures, each smoothed by H = I (Eqs. 12 to 14).

    Parameters
    ----------
    weights1, weights2 : (k1,) and (k2,) arrays, each of sum one
    means1, means2 : (k1, d) and (k2, d) arrays
    covs1, covs2 : (k1, d * d) and (k2, d * d), or (k1, d) and (k2, d) arrays
        Of all components, zero for Diracs.

    Returns
    -------
    float
        From 0 to 1.
    """
    cdef Py_ssize_t n1 = weights1.shape[0], n = n1 + weights2.shape[0]
    cdef Py_ssize_t d = means1.shape[1], size = covs1.shape[1]
    check_shapes(
        d, size,
        means2.shape[1] == d and covs2.shape[1] == size
        and 0 < n1 == means1.shape[0] == covs1.shape[0]
        and 0 < n - n1 == means2.shape[0] == covs2.shape[0],
    )
    cdef double[:, ::1] roots = np.empty((2 * n, size))
    cdef double[::1] log_dets = np.empty(n), work = np.empty(work_size(d, size))
    cdef double[::1] table = np.empty(4 * sigma_points(d).n_points)
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    cdef double result
    with nogil:
        result = distance(
            d, size, n1, &weights1[0], &means1[0, 0], &covs1[0, 0],
            n - n1, &weights2[0], &means2[0, 0], &covs2[0, 0],
            &roots[0, 0], &roots[n, 0], &log_dets[0], &table[0], &work[0], &iwork[0],
        )
    return result


def detail_errors(
    const double[::1] weights,
    const double[:, ::1] means,
    const double[:, ::1] covs,
    const double[:, ::1] detail_weights,
    const double[:, :, ::1] detail_means,
    const unsigned char[:, ::1] details_merged,
    const double[:, ::1] detail_covs,
    const double[::1] center,
    const double[::1] spread,
    const double[::1] matrix,
    double low,
):
    """Local errors of compounds against their detailed models of two components.

    Parameters
    ----------
    weights : (k,) array
    means : (k, d) array
    covs : (m, d * d) or (m, d) array
        Of the first m components, which are the compounds.
    detail_weights : (m, 2) array
    detail_means : (m, 2, d) array
    details_merged : (m, 2) array of uint8
        Which of the details have a covariance.
    detail_covs : (n, d * d) or (n, d) array
        Of those.
    center, spread, matrix : (d,), (d,) and (d * d,) or (d,) arrays
        Kernel coordinates.
    low : float
        Where the error is at most this, the result need only be so as well.

    Returns
    -------
    (m,) array
    """
    cdef Py_ssize_t m = covs.shape[0], d = means.shape[1], size = covs.shape[1], i, side
    cdef Py_ssize_t n_held = 0, held
    cdef bint full = size != d
    check_shapes(
        d, size,
        m <= weights.shape[0] == means.shape[0]
        and detail_weights.shape[0] == detail_means.shape[0] == details_merged.shape[0] == m
        and detail_weights.shape[1] == detail_means.shape[1] == details_merged.shape[1] == 2
        and detail_means.shape[2] == d and detail_covs.shape[1] == size
        and detail_covs.shape[0] == number_of_true(details_merged)
        and center.shape[0] == spread.shape[0] == d and matrix.shape[0] == size,
    )
    # Of the two details, and of the compound.
    cdef double[:, ::1] points = np.empty((3, d)), point_covs = np.empty((3, size))
    cdef double[:, ::1] roots = np.empty((6, size))
    cdef double[::1] log_dets = np.empty(3)
    cdef double[::1] work = np.empty(work_size(d, size))
    cdef double[::1] kept = np.empty(coordinates_size(d, size))
    cdef double[::1] table = np.empty(4 * sigma_points(d).n_points)
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    cdef double one = 1.0
    cdef Coordinates frame
    out = np.sqrt(weights[:m])
    cdef double[::1] errors = out
    with nogil:
        frame = coordinates(d, full, &center[0], &spread[0], &matrix[0], &kept[0])
        prepare_covariances(frame)
        for i in range(m):
            held = n_held
            n_held += details_merged[i, 0] + details_merged[i, 1]
            if not errors[i] > low:
                continue
            map_points(frame, 2, &detail_means[i, 0, 0], &points[0, 0])
            map_points(frame, 1, &means[i, 0], &points[2, 0])
            for side in range(2):
                if details_merged[i, side]:
                    map_covariances(frame, 1, &detail_covs[held, 0], &point_covs[side, 0])
                    held += 1
                else:
                    memset(&point_covs[side, 0], 0, size * sizeof(double))
            map_covariances(frame, 1, &covs[i, 0], &point_covs[2, 0])
            errors[i] *= distance(
                d, size, 2, &detail_weights[i, 0], &points[0, 0], &point_covs[0, 0],
                1, &one, &points[2, 0], &point_covs[2, 0],
                &roots[0, 0], &roots[3, 0], &log_dets[0], &table[0], &work[0], &iwork[0],
            )
    return out


def factorize_all(const double[:, ::1] covs, Py_ssize_t d):
    """Symmetric inverse roots and roots of all cov + I, and their log-determinants."""
    cdef Py_ssize_t i, m = covs.shape[0], size = covs.shape[1]
    cdef bint full = size != d
    check_shapes(d, size, True)
    inv_roots, roots, log_dets = np.empty((m, size)), np.empty((m, size)), np.empty(m)
    cdef double[:, ::1] inv = inv_roots, root = roots
    cdef double[::1] log_det = log_dets, work = np.empty(work_size(d, size))
    cdef int[::1] iwork = np.empty(3 + 5 * d, dtype=np.intc)
    with nogil:
        for i in range(m):
            log_det[i] = factorize(
                d, full, &covs[i, 0], &inv[i, 0], &root[i, 0], &work[0], &iwork[0]
            )
    return inv_roots, roots, log_dets
