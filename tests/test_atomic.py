"""A call that learns is made as a whole or not at all, wherever it is stopped."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import skokde
from marks import quick
from skokde import (
    OnlineKDEClassifier,
    OnlineKDEDensity,
    OnlineKDEImputer,
    OnlineKDEOutlierDetector,
    OnlineKDERegressor,
)

pytestmark = pytest.mark.thorough

PACKAGE = str(Path(skokde.__file__).parent)

both_estimators = pytest.mark.parametrize(
    "Estimator", [OnlineKDEDensity, OnlineKDEClassifier], ids=["density", "classifier"]
)
ESTIMATORS = [
    OnlineKDEDensity,
    OnlineKDEClassifier,
    OnlineKDEImputer,
    OnlineKDERegressor,
    OnlineKDEOutlierDetector,
]
# The detector learns row by row in either.
all_calls = pytest.mark.parametrize(
    ("Estimator", "method"),
    [
        *((Estimator, "partial_fit") for Estimator in ESTIMATORS),
        *((Estimator, "fit") for Estimator in ESTIMATORS[:-1]),
    ],
)


def stream():
    """Rows in which compressions, revitalization, a checkpoint and a window's end fall due.

    And an outlier for each class.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=150)
    X = rng.normal(size=(150, 2)) + 3.0 * y[:, None]
    X[[np.argmax(y == 0), np.argmax(y == 1)]] = 1e6
    return X, y


def traced(call, on_line):
    """Call with a function that is told of each line of the package before it runs."""

    def tracer(frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            on_line(frame.f_code.co_filename, frame.f_lineno)
        return tracer

    previous = sys.gettrace()
    # A limit that is left where the exit of its block is stopped would change the lines that run.
    with threadpool_limits(limits=2, user_api="blas"):
        sys.settrace(tracer)
        try:
            call()
        finally:
            sys.settrace(previous)


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.slow), 32], ids=["all", "some"])
@all_calls
def test_stopped_at_any_line(state_of, Estimator, method, each):
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
    # At each line, the first or a later time that it runs, in turns; at each fifth by both errors.
    stops = [
        (error, *line)
        for i, line in enumerate(lines.items())
        for error in (KeyboardInterrupt, MemoryError)[: 1 if i % 5 else 2]
    ]
    for i, (error, line, times) in enumerate(stops[::each]):
        estimator = pickle.loads(pickled)
        held = dict(vars(estimator))
        left = [1 + i % times]

        def stop(*at, line=line, left=left, error=error):
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


SHORT_OF_MEMORY = """
import ctypes, pickle
import numpy as np
import numpy._core._multiarray_umath as umath
import skokde

# It is arrays that get no memory. A limit of the whole process would be met by NumPy's buffers,
# too, and of these it reports the lack without the interpreter's lock, which crashes.
pointer, size = ctypes.c_void_p, ctypes.c_size_t
Malloc = ctypes.PYFUNCTYPE(pointer, pointer, size)
Calloc = ctypes.PYFUNCTYPE(pointer, pointer, size, size)

class Handler(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", pointer),
        ("malloc", Malloc),
        ("calloc", Calloc),
        ("realloc", pointer),
        ("free", pointer),
    ]

left = None

def granted(allocate, *of):
    global left
    if left is not None:
        left -= 1
        if left < 0:
            return None
    return allocate(*of)

api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [pointer, ctypes.c_char_p, pointer]
api.PyCapsule_GetPointer.restype = pointer
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
functions = ctypes.cast(api.PyCapsule_GetPointer(umath._ARRAY_API, None), ctypes.POINTER(pointer))
# These places are part of NumPy's binary interface.
set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[304])
get_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(functions[305])
usual = Handler.from_address(api.PyCapsule_GetPointer(get_handler(), b"mem_handler"))
limited = Handler.from_buffer_copy(usual)
limited.malloc = Malloc(lambda *of: granted(usual.malloc, *of))
limited.calloc = Calloc(lambda *of: granted(usual.calloc, *of))
set_handler(api.PyCapsule_New(ctypes.addressof(limited), b"mem_handler", None))

def learn():
    model.partial_fit(X[40:], y[40:])

rng = np.random.default_rng(0)
y = rng.integers(0, 2, size=120)
X = rng.normal(size=(120, 100)) + y[:, None]
begun = pickle.dumps(skokde.{Estimator}().fit(X[:40], y[:40]))
model = pickle.loads(begun)
left = enough = 10**9
learn()
n_allocations = enough - left
left = None
learned = pickle.dumps(model)
n_failed = 0
for n_granted in np.linspace(0, n_allocations - 1, {n_times}).astype(int):
    model = pickle.loads(begun)
    before = dict(vars(model))
    left = int(n_granted)
    try:
        learn()
    except MemoryError:
        n_failed += 1
    left = None
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)
    assert pickle.dumps(model) == begun
    learn()
    assert pickle.dumps(model) == learned
print(n_allocations, n_failed)
"""


@pytest.mark.parametrize(
    "n_times", [8, pytest.param(64, marks=pytest.mark.slow)], ids=["some", "many"]
)
@pytest.mark.parametrize("Estimator", quick([OnlineKDEClassifier, OnlineKDEDensity]))
def test_out_of_memory(Estimator, n_times):
    script = SHORT_OF_MEMORY.replace("{Estimator}", Estimator.__name__)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script.replace("{n_times}", str(n_times))],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    n_allocations, n_failed = map(int, run.stdout.split())
    assert n_failed == n_times < n_allocations
