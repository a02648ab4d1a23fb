cdef Py_ssize_t local_error_size(Py_ssize_t n, Py_ssize_t d, Py_ssize_t size) noexcept nogil

cdef Py_ssize_t factors_size(Py_ssize_t m, Py_ssize_t d, Py_ssize_t size) noexcept nogil

cdef void thin_inverse_roots(
    Py_ssize_t m, Py_ssize_t d, Py_ssize_t size, const double* inv_roots, Py_ssize_t* ranks,
    double* factors, double* work,
) noexcept nogil

cdef double error_of_merging(
    Py_ssize_t n, const Py_ssize_t* members, Py_ssize_t d, Py_ssize_t size, Py_ssize_t m,
    const double* weights, const double* means, const double* covs, const double* inv_roots,
    const double* roots, const double* log_dets, const Py_ssize_t* ranks, const double* factors,
    Py_ssize_t n_edges, const double* edges, double* scratch, int* iwork,
) noexcept nogil
