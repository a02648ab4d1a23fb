"""Processors differ in their last bits, as BLAS does for each; no model hangs on them."""

import os
import subprocess
import sys

import numpy as np
import pytest

# Discrete features, where samples are as far from each other, or as the means of others; few
# samples in many features; a few far from all others, in a subspace.
FIT = """
import sys
import warnings
import numpy as np
from threadpoolctl import threadpool_info
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde.covariance import LowRankCovariance

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
integers = np.round(3.0 * rng.normal(size=(600, 4)))
counts = rng.poisson(2.0, size=(600, 6)).astype(float)
levels = rng.choice([-1.0, 0.0, 1.0], size=(600, 9))
few = rng.normal(size=(8, 60))[rng.integers(0, 8, 300)] + rng.normal(size=(300, 60))
plane = rng.normal(size=(400, 5)) @ rng.normal(size=(5, 12))
plane[rng.integers(0, 400, 40)] *= 100.0
paper = {"compression_threshold": 0.1, "bandwidth": "okde"}
found = {}
for name, X in {"integers": integers, "counts": counts, "levels": levels}.items():
    y = (X.sum(axis=1) > np.median(X.sum(axis=1))) ^ (rng.random(600) < 0.05)
    for covariance_type in ("full", "diag"):
        model = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:450], y[:450])
        found[f"{name}, {covariance_type}"] = model.predict_log_proba(X[450:])
    model = OnlineKDEDensity(covariance_type="diag", **paper).fit(X[:450])
    found[f"{name}, paper"] = model.score_samples(X[450:])
for covariance_type in ("full", "diag"):
    model = OnlineKDEDensity(covariance_type=covariance_type, **paper).fit(plane[:300])
    found[f"plane, {covariance_type}"] = model.score_samples(plane[300:])
for rank in (3, 16):
    model = OnlineKDEDensity(covariance_type=LowRankCovariance(rank)).fit(few[:250])
    found[f"few, {rank}"] = model.score_samples(few[250:])
np.savez(sys.argv[1], **found)
print([library.get("architecture") for library in threadpool_info()])
"""


@pytest.mark.thorough
def test_the_processor_does_not_matter(tmp_path):
    found, kernels = [], []
    for number, of_blas in enumerate(({}, {"OPENBLAS_CORETYPE": "Nehalem"})):
        path = tmp_path / f"{number}.npz"
        run = subprocess.run(
            [sys.executable, "-c", FIT, str(path)],
            env={**os.environ, **of_blas},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        kernels.append(run.stdout)
        with np.load(path) as arrays:
            found.append(dict(arrays))
    if kernels[0] == kernels[1]:
        pytest.skip("BLAS takes the same kernels, whatever the processor")
    for name, here in found[0].items():
        np.testing.assert_allclose(found[1][name], here, rtol=1e-6, atol=1e-6, err_msg=name)
