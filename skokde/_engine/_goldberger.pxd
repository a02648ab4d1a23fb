cdef Py_ssize_t split_size(Py_ssize_t n, Py_ssize_t d, Py_ssize_t size) noexcept nogil

cdef Py_ssize_t split(
    Py_ssize_t n, const Py_ssize_t* members, Py_ssize_t d, Py_ssize_t size, Py_ssize_t m,
    const double* weights, const double* means, const double* covs, const double* start,
    const double* features, Py_ssize_t* sides, signed char* labels, double* scratch, int* iwork,
) noexcept nogil
