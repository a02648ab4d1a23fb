#!/usr/bin/env python3
"""Merging: what shards cost in quality, what they save in time, and a thousand of them.

    python benchmarks/merging.py --data DIR [--sets letter covtype skin] [--splits 2] [--n-jobs 2]
        [--tables quality throughput thousand memory]

Quality is that of classifiers whose shards are shuffled rows, rows in the order of the source, and
rows sorted by class, beside one stream of the same rows. At most 120,000 rows are learned. Tables
(CSV and Markdown) go to --out.
"""

if __name__ == "__main__":
    from evaluation.merging import main

    main(__doc__)
