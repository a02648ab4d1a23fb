# The check of what Python gives: the loops of the compiled functions do not look at bounds.


cdef inline int check_shapes(Py_ssize_t d, Py_ssize_t size, bint rest) except -1:
    # Covariances are taken for full or diagonal ones by their size. `rest`: whether all else fits.
    if d < 1 or size not in (d, d * d) or not rest:
        raise ValueError(
            f"Shapes do not belong together, with {d} features and covariances of {size} numbers."
        )
    return 0
