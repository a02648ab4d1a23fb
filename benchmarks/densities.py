#!/usr/bin/env python3
"""Densities on streams that change: how probable each row was before it was learned.

    python benchmarks/densities.py [--rows 4000] [--seeds 2] [--n-jobs 2]

Made streams, and the features of a generator of river, of which some stay as they are; skokde with
nothing forgotten, with fixed forgetting factors, and with the memory found by prediction. Tables
(CSV and Markdown) go to --out.
"""

if __name__ == "__main__":
    from evaluation.densities import main

    main(__doc__)
