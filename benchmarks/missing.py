#!/usr/bin/env python3
"""Missing values: what they cost in accuracy and log-loss, and how well they are filled in.

    python benchmarks/missing.py --data DIR [--sets pima wine ...] [--splits 3] [--n-jobs 2]

A share of all values is removed at random from training and test rows. Classifiers that take such
rows are trained on them; others after an imputer that was fitted on the training rows, whose
features are scaled by their deviations for those that need it. Errors of imputation are root mean
squares over the values removed from test rows, in deviations of the features. At most 1,000
training rows and 300 test rows are taken. Tables (CSV and Markdown) go to --out.
"""

if __name__ == "__main__":
    from evaluation.missing import main

    main(__doc__)
