#!/usr/bin/env python3
"""Rerun the paper's evaluation: skokde beside the paper's figures, its peers, and a user's picks.

    python benchmarks/paper.py --data DIR --reference DIR --n-jobs 2

Protocol (Section 6 of the paper): raw features; shuffle s is numpy.random.RandomState(s)
.permutation(N); the first int(0.75 N) rows are the training stream, learned in that order in one
pass of partial_fit (by models that have it), the rest is the test set. Letter, skin and covtype
take three shuffles at most, the others twelve.

Each cell, one model on one split, runs in a process of its own with one thread. What has been run
is kept in OUT/cells.jsonl and not run again, unless the data, the model's parameters or its code
have changed: an interrupted run goes on where it stopped. The tables and pictures in OUT are made
from there.
"""

if __name__ == "__main__":
    # Imported here, since the process of every cell imports this file, and needs nothing of it.
    from evaluation.command import main

    main(__doc__)
