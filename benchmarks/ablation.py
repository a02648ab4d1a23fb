#!/usr/bin/env python3
"""What each part of skokde's defaults is worth.

    python benchmarks/ablation.py --data DIR [--sets pima red ...] [--shuffles 4] [--n-jobs 2]

Each variant is the defaults with one thing changed, learned and scored inside the training parts of
the paper's splits, so that choices can be made by it. A table (CSV and Markdown) goes to --out.
"""

if __name__ == "__main__":
    # Imported here, since the processes that are started import this file, and need nothing of it.
    from evaluation.ablation import main

    main(__doc__)
