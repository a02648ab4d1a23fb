"""What each expert counts in mixtures of them."""

import numpy as np


def mixture_weights(
    const double[:, :, :] estimates,
    const double[:, :] gaussians,
    const double[:] shrunk,
    there,
    Py_ssize_t n_narrow,
):
    """What each density counts among all, and within each group of experts.

    Of each shape, estimates under narrow kernels are a group, and those under wide ones, both with
    the single Gaussians of the shape; those that are shrunk are in the groups of the first shape.

    Parameters
    ----------
    estimates : (n_shapes, n_resolutions, n_kernels) array
        What the estimate at each resolution counts under each kernel.
    gaussians : (n_shapes, n_gaussians) array
    shrunk : (n_shrunk,) array
    there : (n_parts, n_resolutions) array of bool
        Which resolutions have each part of the model; the last one is the mean of the Gaussians.
    n_narrow : int
        How many of the kernels are narrow; 0 if all are in one group.

    Returns
    -------
    weights : (n_shapes, 1 + n_groups, n_parts, n_kernels + n_gaussians) array
    of_shrunk : (n_shrunk, 1 + n_groups, 2, 1) array
        Of models without a component but for the mean, the second part.
    """
    cdef Py_ssize_t n_shapes = estimates.shape[0], n_resolutions = estimates.shape[1]
    cdef Py_ssize_t n_kernels = estimates.shape[2], n_gaussians = gaussians.shape[1]
    cdef Py_ssize_t n_parts = there.shape[0], n_sides = 2 if n_narrow > 0 else 1
    cdef Py_ssize_t n_groups = n_shapes * n_sides, s, r, w, p, side, group
    cdef double of_shrunk = 0.0, of_gaussians, total = 0.0, count
    if (
        n_parts < 1 or there.shape[1] != n_resolutions or gaussians.shape[0] != n_shapes
        or not 0 <= n_narrow <= n_kernels
    ):
        raise ValueError(
            f"Shapes do not belong together, with estimates at {n_resolutions} resolutions of "
            f"{n_shapes} shapes."
        )
    out = np.zeros((n_shapes, 1 + n_groups, n_parts, n_kernels + n_gaussians))
    shares = np.zeros((shrunk.shape[0], 1 + n_groups, 2, 1))
    cdef double[:, :, :, ::1] weight = out, share = shares
    cdef const unsigned char[:, :] is_there = there.view(np.uint8)
    cdef double[::1] totals = np.zeros(1 + n_groups)
    for r in range(shrunk.shape[0]):
        of_shrunk += shrunk[r]
    for s in range(n_shapes):
        of_gaussians = 0.0
        for w in range(n_gaussians):
            of_gaussians += gaussians[s, w]
        for side in range(n_sides):
            group = 1 + s * n_sides + side
            totals[group] = of_gaussians + (of_shrunk if s == 0 else 0.0)
        for r in range(n_resolutions):
            for w in range(n_kernels):
                group = 1 + s * n_sides + (w >= n_narrow and n_sides > 1)
                totals[group] += estimates[s, r, w]
                total += estimates[s, r, w]
        total += of_gaussians
    totals[0] = total + of_shrunk
    for s in range(n_shapes):
        for w in range(n_kernels):
            group = 1 + s * n_sides + (w >= n_narrow and n_sides > 1)
            for p in range(n_parts):
                count = 0.0
                for r in range(n_resolutions):
                    if is_there[p, r]:
                        count += estimates[s, r, w]
                weight[s, 0, p, w] = count / totals[0]
                weight[s, group, p, w] = count / totals[group]
        for w in range(n_gaussians):
            weight[s, 0, n_parts - 1, n_kernels + w] = gaussians[s, w] / totals[0]
            for group in range(1 + s * n_sides, 1 + (s + 1) * n_sides):
                weight[s, group, n_parts - 1, n_kernels + w] = gaussians[s, w] / totals[group]
    for r in range(shrunk.shape[0]):
        for group in range(1 + n_sides):
            share[r, group, 1, 0] = shrunk[r] / totals[group]
    return out, shares
