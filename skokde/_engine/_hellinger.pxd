cdef Py_ssize_t local_error_size(Py_ssize_t n, Py_ssize_t d, Py_ssize_t size) noexcept nogil

cdef double error_of_merging(
    Py_ssize_t n, const Py_ssize_t* members, Py_ssize_t d, Py_ssize_t size, Py_ssize_t m,
    const double* weights, const double* means, const double* covs, const double* inv_roots,
    const double* roots, const double* log_dets, double low, double high,
    double* scratch, Py_ssize_t* ranks, int* iwork,
) noexcept nogil
