#!/usr/bin/env python3
"""Curves that choosing parameters needs: the compression threshold, and the forgetting factor.

    python benchmarks/curves.py threshold --data DIR [--sets pima red ...]
    python benchmarks/curves.py forgetting --data DIR [--n-jobs 2]

threshold: accuracy, -log p, components and training time against D_th from 0.01 to 0.5, for full
and diagonal covariances, by scikit-learn's GridSearchCV over shuffles of the paper's protocol.

forgetting: prequential accuracy (each block of rows is predicted, then learned) on gas in its own
time order, in which the sensors drift, against the forgetting factor.

Tables (CSV and Markdown) and pictures go to --out.
"""

if __name__ == "__main__":
    # Imported here, since the processes that are started import this file, and need nothing of it.
    from evaluation.curves import main

    main(__doc__)
