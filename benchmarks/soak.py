#!/usr/bin/env python3
"""What ten million samples do to a classifier: its time, memory, figures and invariants.

    python benchmarks/soak.py [--samples 1000000] [--checkpoint FILE]

A stream of three classes that drift and jump, are absent for long, and send bursts of outliers is
learned in blocks of 1 to 10,000 rows. At check points it is looked whether what must hold does: the
exit code is 1 if anything did not. One row for each goes to soak.csv in --out. A run with
--checkpoint goes on where it was stopped. `--events` picks what happens besides the drift, so that
the effect of one thing can be told from that of another.

CPU time of learning alone, one BLAS thread. The resident memory is known on Linux only.
"""

if __name__ == "__main__":
    from evaluation.soak import main

    main(__doc__)
