"""Any number of threads may score and predict, each with the same result."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from skokde import OnlineKDEClassifier, OnlineKDEDensity


@pytest.mark.parametrize("bandwidth", ["predictive", "okde"])
@pytest.mark.parametrize(
    ("Estimator", "method"),
    [
        (OnlineKDEDensity, "score_samples"),
        (OnlineKDEClassifier, "score_samples"),
        (OnlineKDEClassifier, "predict_proba"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_threads_that_score_the_same_models(Estimator, method, bandwidth):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=300)
    X = rng.normal(size=(300, 4)) + y[:, None]
    models = [Estimator(bandwidth=bandwidth).fit(X[:n], y[:n]) for n in (200, 300)]
    expected = [getattr(model, method)(X) for model in models]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            # Without what is kept for scoring, so that all of them make it.
            fresh = [pickle.loads(pickle.dumps(model)) for model in models]
            calls = [threads.submit(getattr(fresh[i % 2], method), X) for i in range(16)]
            for i, call in enumerate(calls):
                np.testing.assert_array_equal(call.result(), expected[i % 2])
