#!/usr/bin/env python3
"""Streams that change: each row is predicted, then learned, by skokde and by models of river.

    python benchmarks/prequential.py --data DIR --n-jobs 2
    python benchmarks/prequential.py --quick --out DIR

eegeye, gas and covtype (the first 20,000 rows) in their own order, and 20,000 rows each of river's
generators: sea, hyperplane, rbf, led, and a sudden and a gradual change of concept. skokde with its
defaults, with each of some fixed forgetting factors, and with the factor learned by prediction;
river's adaptive random forest, Hoeffding adaptive tree, Gaussian naive Bayes and nearest neighbours
in a window; and the class of the row before.

Each cell, one model on one stream, runs in a process of its own with one thread. What has been run
is kept in OUT/prequential.jsonl and not run again, unless the stream, the model's parameters or its
code have changed: an interrupted run goes on where it stopped. The table, the report and the
picture (accuracy over time) in OUT are made from there; with --render nothing is run before.

A full run takes hours of CPU time, --quick less than a minute.
"""

if __name__ == "__main__":
    # Imported here, since the process of every cell imports this file, and needs nothing of it.
    from evaluation.streaming import main

    main(__doc__)
