"""A call that learns is made as a whole or not at all, wherever it is stopped."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

import skokde
from skokde import OnlineKDEClassifier, OnlineKDEDensity

PACKAGE = str(Path(skokde.__file__).parent)

both_estimators = pytest.mark.parametrize(
    "Estimator", [OnlineKDEDensity, OnlineKDEClassifier], ids=["density", "classifier"]
)


def stream():
    """Rows in which compressions, revitalization, a checkpoint and a window's end fall due."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=150)
    return rng.normal(size=(150, 2)) + 3.0 * y[:, None], y


def traced(call, on_line):
    """Call with a function that is told of each line of the package before it runs."""

    def tracer(frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            on_line(frame.f_code.co_filename, frame.f_lineno)
        return tracer

    previous = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    finally:
        sys.settrace(previous)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@both_estimators
def test_stopped_at_any_line(state_of, Estimator, error, method):
    X, y = stream()
    fitted = Estimator().fit(X[:100], y[:100])
    before, pickled = state_of(fitted), pickle.dumps(fitted)
    lines = {}

    def count(*line):
        lines[line] = lines.get(line, 0) + 1

    whole = pickle.loads(pickled)
    traced(lambda: getattr(whole, method)(X[100:], y[100:]), count)
    assert state_of(whole) != before
    assert len(lines) > 100
    # Each line once, at the first or at a later time, in turns.
    for i, (line, times) in enumerate(lines.items()):
        estimator = pickle.loads(pickled)
        held = dict(vars(estimator))
        left = [1 + i % times]

        def stop(*at, line=line, left=left):
            if at == line:
                left[0] -= 1
                if not left[0]:
                    raise error("stopped")

        with pytest.raises(error, match="stopped"):
            traced(lambda e=estimator: getattr(e, method)(X[100:], y[100:]), stop)
        assert vars(estimator).keys() == held.keys(), line
        assert all(vars(estimator)[name] is held[name] for name in held), line
        assert state_of(estimator) == before, line
    # The last of them goes on as if nothing had been.
    getattr(estimator, method)(X[100:], y[100:])
    assert state_of(estimator) == state_of(whole)
