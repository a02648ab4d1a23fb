#!/usr/bin/env python3
"""Hundreds of features: covariances of low rank beside what there is, on factor mixtures and sets.

    python benchmarks/lowrank.py --data DIR [--tables mixtures images classes]

mixtures: rows from ten clusters, each with 16 directions and noise, of 128, 384 and 1,536 features;
how many nats densities are below the true one, how well rows without correlations are told apart,
CPU time and memory. images: patches of one of scikit-learn's photographs, -log p, how well those
of the other one are told apart. classes: gas and digits, accuracy and log-densities. It takes half
an hour; tables (CSV and Markdown) go to --out.
"""

if __name__ == "__main__":
    from evaluation.lowrank import main

    main(__doc__)
