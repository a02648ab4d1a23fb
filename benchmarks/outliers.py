#!/usr/bin/env python3
"""Outliers: how well they are ranked, and whether false-alarm levels hold on streams.

    python benchmarks/outliers.py --data DIR [--quick] [--sets skin yeast ...] [--splits 3]

The outliers of a set are its smallest class; of eegeye the rows with a value more than 20 robust
deviations from the median. Detectors with their defaults learn shuffled rows of the other classes,
6,000 at most, alone or with outliers added as 5 % of them, and score 2,000 other rows at most with
up to 200 outliers that were not learned. LocalOutlierFactor, OneClassSVM and HalfSpaceTrees get
features scaled by the training rows. Then the rows come one by one, each scored before it is
learned, beside HalfSpaceTrees of river; and p-values of rows before they are learned are compared
with their levels. Nothing is chosen on test rows. Tables (CSV and Markdown) go to --out.
"""

if __name__ == "__main__":
    from evaluation.outliers import main

    main(__doc__)
