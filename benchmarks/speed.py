#!/usr/bin/env python3
"""How fast skokde is: eleven tables, each a ratio against something run beside it.

    python benchmarks/speed.py --data DIR [--reference DIR] [--tables scoring rows ...]

training: a pass over each set's first shuffle, in units of a fixed job, beside xokde++ in the
same units (needs --reference). steps: where the time of training goes, beside what the operations
that the algorithm cannot avoid would take in products of matrices. scoring: score_samples beside
scikit-learn's GaussianMixture with as many components, and beside KernelDensity. rows: a
prediction of each row, and partial_fit of it, after 2,000 rows and from the first row on, beside
GaussianNB and river's adaptive random forest.
latency: how evenly the time of learning is spread over rows, with a picture. growth: time per
sample from 10^4 to 10^6 samples, and from 4 to 128 features. components: score_samples of models of
few and of many components, far apart and close. scale: 10^7 rows. batch: one pass beside fitting
GaussianMixture. threads: two of them beside one. memory: what streaming long sets adds to a
process.

CPU time, one BLAS thread, but for the threads' wall-clock time. Tables (CSV and Markdown) go to
--out.
"""

if __name__ == "__main__":
    # Imported here, since the processes that are started import this file, and need nothing of it.
    from evaluation.speed import main

    main(__doc__)
