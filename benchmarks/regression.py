#!/usr/bin/env python3
"""Regression: means, quantiles and intervals, of tables and of streams.

    python benchmarks/regression.py --data DIR [--sets diabetes red ...] [--splits 3] [--n-jobs 2]

Tables are shuffled and split; at most 1,000 rows are learned and 300 are predicted. Features are
scaled by the deviations of the rows that are learned. Streams are predicted row by row, each before
it is learned. The column of quantile forests needs quantile-forest (pip install quantile-forest).
Tables (CSV and Markdown) go to --out.
"""

if __name__ == "__main__":
    from evaluation.regression import main

    main(__doc__)
