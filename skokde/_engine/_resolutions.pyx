"""Which components a model has at several resolutions, each that some have in common once."""

import numpy as np


def distinct_groups(
    const Py_ssize_t[:, :] partitions, Py_ssize_t n_components, Py_ssize_t n_compounds
):
    """Groups of components, those that are the same at several resolutions once.

    Parameters
    ----------
    partitions : (n_resolutions, n) array of intp
        At each resolution, the finest first, the number of each component's group, from zero on.
        Each coarser one merges groups of the one before.
    n_components : int
        Those after the first n are by themselves at all resolutions.
    n_compounds : int
        The first ones, which are not Diracs.

    Returns
    -------
    own, diracs : (n_own,) and (n_diracs,) arrays of intp
        Compounds and Diracs among the first n that are by themselves at some resolutions.
    members : (n_members,) array of intp
        Components of the other groups, group after group.
    starts : (n_groups + 1,) array of intp
        Where each of these begins.
    parts : (n_own + n_groups + n_diracs + n_components - n,) array of intp
        Of all these, in this order, the number of those resolutions that it is there at.
    there : (n_parts, n_resolutions) array of bool
        Which resolutions these are.
    """
    cdef Py_ssize_t n_resolutions = partitions.shape[0], n = partitions.shape[1]
    cdef Py_ssize_t size = n_resolutions * n, n_spans = n_resolutions * n_resolutions
    cdef Py_ssize_t r, i, g, begin, end, n_labels, n_merged
    cdef Py_ssize_t n_own = 0, n_diracs = 0, n_members = 0, n_groups = 0, n_parts = 0, later
    if n_resolutions < 1 or not 0 <= n_compounds <= n_components or n > n_components:
        raise ValueError(
            f"Shapes do not belong together, with {n_components} components, {n_compounds} of them "
            f"compounds, and {n_resolutions} partitions of {n}."
        )
    for r in range(n_resolutions):
        for i in range(n):
            if not 0 <= partitions[r, i] < n:
                raise ValueError(f"There is no group {partitions[r, i]} of {n} components.")
    # Spans are pairs of the first and the last resolution, by their numbers.
    numbers = np.zeros(6 * size + n + n_spans + 1, dtype=np.intp)
    cdef Py_ssize_t[::1] memory = numbers
    cdef Py_ssize_t* sizes = &memory[0]  # (n_resolutions, n), of groups
    cdef Py_ssize_t* lasts = sizes + size  # (n_resolutions, n), at which all is the same
    cdef Py_ssize_t* spans = lasts + size  # (3, size), of compounds, groups and Diracs
    cdef Py_ssize_t* places = spans + 3 * size  # (n_resolutions, n), of groups among the members
    cdef Py_ssize_t* first_member = places + size  # (n,), or -1
    cdef Py_ssize_t* number_of = first_member + n  # (n_spans,)
    owns, diracs = np.empty(size, dtype=np.intp), np.empty(size, dtype=np.intp)
    members, starts = np.empty(size, dtype=np.intp), np.zeros(size + 1, dtype=np.intp)
    cdef Py_ssize_t[::1] own = owns, dirac = diracs, member = members, start = starts
    for r in range(n_resolutions):
        for i in range(n):
            sizes[r * n + partitions[r, i]] += 1
    for r in range(n_resolutions - 1, -1, -1):
        for i in range(n):
            # A group that is as large as at the resolution before is the same.
            if r == n_resolutions - 1 or (
                sizes[(r + 1) * n + partitions[r + 1, i]] != sizes[r * n + partitions[r, i]]
            ):
                lasts[r * n + i] = r
            else:
                lasts[r * n + i] = lasts[(r + 1) * n + i]
    for r in range(n_resolutions):
        n_labels = 0
        for i in range(n):
            first_member[i] = -1
        for i in range(n):
            g = partitions[r, i]
            n_labels = max(n_labels, g + 1)
            if first_member[g] < 0:
                first_member[g] = i
        n_merged = n_groups
        for g in range(n_labels):
            i = first_member[g]
            places[r * n + g] = -1
            if i < 0 or (r > 0 and lasts[(r - 1) * n + i] >= r):  # it has been there before
                continue
            end = r * n_resolutions + lasts[r * n + i]
            number_of[end] = 1
            if sizes[r * n + g] > 1:
                spans[size + n_groups] = end
                places[r * n + g] = start[n_groups]
                start[n_groups + 1] = start[n_groups] + sizes[r * n + g]
                n_groups += 1
            elif i < n_compounds:
                spans[n_own] = end
                own[n_own] = i
                n_own += 1
            else:
                spans[2 * size + n_diracs] = end
                dirac[n_diracs] = i
                n_diracs += 1
        for i in range(n if n_groups > n_merged else 0):
            g = r * n + partitions[r, i]
            if places[g] >= 0:
                member[places[g]] = i
                places[g] += 1
    n_members, later = start[n_groups], n_components - n
    if later > 0:
        number_of[n_resolutions - 1] = 1
    for i in range(n_spans):
        if number_of[i]:
            number_of[i] = n_parts
            n_parts += 1
        else:
            number_of[i] = -1
    parts = np.empty(n_own + n_groups + n_diracs + later, dtype=np.intp)
    there = np.zeros((n_parts, n_resolutions), dtype=bool)
    cdef Py_ssize_t[::1] part = parts
    cdef unsigned char[:, ::1] is_there = there.view(np.uint8)
    for i in range(n_own):
        part[i] = number_of[spans[i]]
    for i in range(n_groups):
        part[n_own + i] = number_of[spans[size + i]]
    for i in range(n_diracs):
        part[n_own + n_groups + i] = number_of[spans[2 * size + i]]
    for i in range(later):
        part[n_own + n_groups + n_diracs + i] = number_of[n_resolutions - 1]
    for begin in range(n_resolutions):
        for end in range(begin, n_resolutions):
            g = number_of[begin * n_resolutions + end]
            for r in range(begin, end + 1 if g >= 0 else begin):
                is_there[g, r] = True
    return (
        owns[:n_own], diracs[:n_diracs], members[:n_members], starts[:n_groups + 1], parts, there,
    )
