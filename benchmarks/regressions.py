"""Benchmarks to compare two versions of skokde by.

    pytest benchmarks/regressions.py --benchmark-save before
    (change something)
    pytest benchmarks/regressions.py --benchmark-compare --benchmark-compare-fail min:25%

CPU time, one BLAS thread. Machines are noisy: look at the least times, and repeat what looks
slower.
"""

import time

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from evaluation.speed import clumps
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._engine.bandwidth import RULES
from skokde._engine.compression import cluster, merge
from skokde._engine.covariance import STRUCTURES
from skokde._engine.kde import components_in
from skokde._engine.revitalization import revitalize

THRESHOLDS = np.array([0.1])
pytestmark = [pytest.mark.benchmark(timer=time.process_time, min_rounds=5, warmup=True)]
each_structure = pytest.mark.parametrize("covariance_type", ["full", "diag"])
each_bandwidth = pytest.mark.parametrize("bandwidth", ["okde", "predictive"])
each_dimension = pytest.mark.parametrize("d", [3, 16, 64])


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


@each_structure
@each_bandwidth
@each_dimension
def test_training(benchmark, covariance_type, bandwidth, d):
    X = clumps(1000, d)
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth)
    benchmark(density.fit, X)


@each_structure
@each_bandwidth
@each_dimension
def test_scoring(benchmark, covariance_type, bandwidth, d):
    density = OnlineKDEDensity(covariance_type=covariance_type, bandwidth=bandwidth)
    benchmark(density.fit(clumps(500, d)).score_samples, clumps(5000, d, seed=1))


@pytest.fixture
def stream():
    y = np.random.default_rng(0).integers(0, 3, 500)
    return clumps(500, 8) + y[:, None], y


def test_learning_of_single_rows(benchmark, stream):
    X, y = stream

    def learn():
        classifier = OnlineKDEClassifier()
        for i in range(len(X)):
            classifier.partial_fit(X[i : i + 1], y[i : i + 1], classes=[0, 1, 2])

    benchmark(learn)


def test_prediction_of_a_single_row(benchmark, stream):
    X, y = stream
    benchmark(OnlineKDEClassifier().fit(X, y).predict_proba, X[:1])


@pytest.fixture(params=[3, 16, 64])
def compression(request, covariance_type):
    """A model to compress, its kernel coordinates, and its components there."""
    X = clumps(300, request.param)
    density = OnlineKDEDensity(
        covariance_type=covariance_type, max_components=80, compression_threshold=1e-6
    )
    mixture = density.fit(X)._mixture
    kernel = RULES["silverman"].kernel_frame(mixture, STRUCTURES[covariance_type])
    return mixture, kernel, components_in(kernel.frame, *mixture.sample_model)


@each_structure
def test_bandwidth(benchmark, compression, covariance_type):
    benchmark(RULES["plugin"].kernel_frame, compression[0], STRUCTURES[covariance_type])


@each_structure
def test_revitalization(benchmark, compression, covariance_type):
    mixture, kernel, _ = compression
    benchmark(revitalize, mixture, kernel.frame, 0.1)


@each_structure
def test_clusters(benchmark, compression, covariance_type):
    _, kernel, components = compression
    benchmark(cluster, components, THRESHOLDS, kernel.first_cut)


@each_structure
def test_merging(benchmark, compression, covariance_type):
    mixture, kernel, components = compression
    benchmark(merge, mixture, cluster(components, THRESHOLDS, kernel.first_cut)[0], kernel)
