#!/usr/bin/env python3
"""What the paper names as future work, beside what skokde does: four tables and verdicts.

    python benchmarks/alternatives.py --data DIR [--tables pairwise kernels pseudoinverse float32]

pairwise: merging the pair of components that costs least (Runnalls 2007) beside hierarchical
compression, at equal numbers of components. kernels: Student's t, and kernels of compact support,
beside Gaussians. pseudoinverse: directions without spread left out of the density, beside corrected
eigenvalues. float32: models stored in single precision. All are measured on validation parts of
training rows. It takes some minutes; tables (CSV and Markdown) go to --out.
"""

if __name__ == "__main__":
    from evaluation.alternatives import main

    main(__doc__)
