#!/usr/bin/env python3
"""How exact log-densities are: three tables of relative errors against mpmath at 50 digits.

    python benchmarks/precision.py [--tables kernel determinants models]

kernel: the compiled kernel on mixtures whose covariances have condition numbers from 1 to 10^12, in
2 to 64 dimensions, near the means, between them, and 10 and 1000 standard deviations away; beside
scikit-learn's GaussianMixture and SciPy's multivariate_normal on the same mixtures. determinants:
the log-determinants that compressing and scoring take. models: fitted densities, before and after
compressions, against their own frame (evaluation) and against what distribution() returns (skokde
and the peers), whose covariances are rounded.

Errors are absolute where the log-density is below one; no figure where a peer refuses a covariance.
The CSV files have a line for each point, the Markdown tables the largest of a mixture. Tables go to
--out. It takes some minutes.
"""

if __name__ == "__main__":
    from evaluation.precision import main

    main(__doc__)
