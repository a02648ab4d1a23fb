"""What the test modules share."""

import sys

import numpy as np
import pytest
from hypothesis import settings
from sklearn.base import BaseEstimator

# The same examples in each run: a test that fails sometimes would teach people to look away.
settings.register_profile(
    "skokde", deadline=None, derandomize=True, max_examples=20, stateful_step_count=15
)
settings.load_profile("skokde")
# Other and more examples with each run, by pytest --hypothesis-profile=nightly.
settings.register_profile(
    "nightly", deadline=None, max_examples=400, stateful_step_count=30, print_blob=True
)

# The benchmark limits its processes by means that Windows does not have.
collect_ignore = ["test_evaluation.py", "test_soak.py"] if sys.platform == "win32" else []

# What scikit-learn keeps with an estimator besides its parameters.
NOT_LEARNED = {"_sklearn_version", "_metadata_request", "_format"}


def _flat(value, path):
    if isinstance(value, BaseEstimator):
        parameters = value.get_params(deep=False)
        state = value.__getstate__()
        return {
            key: leaf
            for name in sorted(state.keys() - parameters.keys() - NOT_LEARNED)
            for key, leaf in _flat(state[name], f"{path}.{name}").items()
        }
    if isinstance(value, np.ndarray):
        content = value.tolist() if value.dtype == object else value.tobytes()
        return {path: (value.dtype.str, value.shape, content)}
    if isinstance(value, dict):
        return {
            key: leaf
            for name in value
            for key, leaf in _flat(value[name], f"{path}.{name}").items()
        }
    if isinstance(value, (tuple, list)):
        return {
            key: leaf
            for i, item in enumerate(value)
            for key, leaf in _flat(item, f"{path}[{i}]").items()
        }
    return {path: (type(value), value)}


@pytest.fixture(scope="session")
def state_of():
    """Everything that an estimator has learned, to the last bit, as a dict of its parts."""
    return lambda estimator: _flat(estimator, "")


@pytest.fixture(scope="session")
def assert_same_model(state_of):
    """Assert that two estimators have learned the same, bit for bit."""

    def check(first, second):
        first, second = (
            model if isinstance(model, dict) else state_of(model) for model in (first, second)
        )
        assert first.keys() == second.keys()
        assert [name for name in first if first[name] != second[name]] == []

    return check
