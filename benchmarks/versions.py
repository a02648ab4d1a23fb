#!/usr/bin/env python3
"""How long a version of skokde takes beside another one: both run in turns on the same rows.

    python benchmarks/versions.py 80576c0 --data DIR
    python benchmarks/versions.py /path/to/tree --with-version HEAD --data DIR --sets pima skin

A version is a revision of this repository, which is built in a temporary folder, or the folder of
a tree that is built already; beside the given one stands this tree, or another version. Either has
a process of its own, with one thread, that learns each set, scores rows of it, and meets some rows
one by one; the processes take turns, so that whatever else the machine does concerns both, and the
least CPU time of the rounds counts. Ratios above one mean that this tree takes longer.
"""

if __name__ == "__main__":
    # Imported here, since the processes that are started import this file, and need nothing of it.
    from evaluation.versions import main

    main(__doc__)
