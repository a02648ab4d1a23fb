# The check of what Python gives: the loops of the compiled functions do not look at bounds.


cdef inline int check_shapes(Py_ssize_t d, Py_ssize_t size, bint rest) except -1:
    # Covariances are taken for full or diagonal ones by their size. `rest`: whether all else fits.
    if d < 1 or size not in (d, d * d) or not rest:
        raise ValueError(
            f"Shapes do not belong together, with {d} features and covariances of {size} numbers."
        )
    return 0


cdef inline Py_ssize_t number_of_parts(const Py_ssize_t[::1] parts) except -1:
    # Of a model, by the number of each component's.
    cdef Py_ssize_t i, n = 0
    for i in range(parts.shape[0]):
        if parts[i] < 0:
            raise ValueError(f"There is no part {parts[i]}.")
        n = max(n, parts[i] + 1)
    return n


cdef inline Py_ssize_t number_of_true(const unsigned char[:, ::1] flags) noexcept nogil:
    cdef Py_ssize_t i, j, n = 0
    for i in range(flags.shape[0]):
        for j in range(flags.shape[1]):
            n += flags[i, j] != 0
    return n
