"""Long calls report how far they are, and learn the same."""

import re
from itertools import count

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor

import skokde._base
import skokde._density
import skokde._progress
from skokde import (
    OnlineKDEClassifier,
    OnlineKDEDensity,
    OnlineKDEImputer,
    OnlineKDEOutlierDetector,
    OnlineKDERegressor,
)
from skokde._progress import FIRST, INTERVAL, progress_line, reported_parts

ESTIMATORS = [
    OnlineKDEDensity(),
    OnlineKDEDensity(compression_threshold=0.1, bandwidth="okde", max_components=20),
    OnlineKDEDensity(forgetting_factor="predictive"),
    OnlineKDEClassifier(),
    OnlineKDEClassifier(calibrate=False, bandwidth="scott", compression_threshold=0.1),
    OnlineKDEClassifier(forgetting_factor="predictive", n_jobs=2),
    OnlineKDEOutlierDetector(),
    OnlineKDEOutlierDetector(learn_flagged=False, forgetting_factor=0.99),
    OnlineKDERegressor(),
    OnlineKDEImputer(),
]
LINE = r"[\d,]+ of [\d,]+ rows, [\d,]+ rows/s, [\d,]+ components, (\d:\d\d:\d\d left|took .*)"
both_fits = pytest.mark.parametrize("method", ["fit", "partial_fit"])
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)


@pytest.fixture
def clock(monkeypatch):
    """Let so many seconds pass with each look at the clock."""

    def set_clock(step):
        times = count(0.0, step)
        monkeypatch.setattr(skokde._progress, "perf_counter", lambda: next(times))

    return set_clock


def arguments(estimator, n=100):
    """Rows, some of which do not count and, where they may, are incomplete, and a target."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 2)) + 2.0 * y[:, None]
    if estimator._takes_missing_values:
        X[rng.random(X.shape) < 0.05] = np.nan
    target = {}
    if is_classifier(estimator):
        target = {"y": y}
    elif is_regressor(estimator):
        target = {"y": rng.normal(size=n)}
    return {"X": X, "sample_weight": rng.integers(0, 3, n), **target}


@pytest.mark.parametrize(
    ("method", "step"), [("fit", 0.0), ("fit", INTERVAL), ("partial_fit", INTERVAL / 2)]
)
@each_estimator
def test_the_model_is_the_same(estimator, method, step, clock, assert_same_model, capsys):
    given = arguments(estimator)
    silent, verbose = (clone(estimator).set_params(verbose=v) for v in (0, 2))
    getattr(silent, method)(**given)
    assert capsys.readouterr().out == ""
    clock(step)
    getattr(verbose, method)(**given)
    assert_same_model(verbose, silent)
    assert (capsys.readouterr().out != "") == (step > 0.0)


@each_estimator
def test_what_is_printed(estimator, clock, capsys):
    clock(1.0)
    given = arguments(estimator)
    estimator = clone(estimator).set_params(verbose=True).fit(**given)
    printed = capsys.readouterr()
    assert printed.err == ""
    first, *lines = printed.out.split("\r")
    assert first == ""
    assert printed.out.count("\n") == 1
    assert lines[-1].endswith("\n")
    assert all(re.fullmatch(LINE, line.strip()) for line in lines)
    n = len(given["X"])
    if isinstance(estimator, (OnlineKDEClassifier, OnlineKDEOutlierDetector)):
        n = np.count_nonzero(given["sample_weight"])  # others do not get that far
    densities = getattr(estimator, "estimators_", [getattr(estimator, "density_", estimator)])
    components = sum(density.n_components_ for density in densities)
    assert lines[-1].startswith(f"{n} of {n} rows, ")
    assert f", {components} components, took 0:00:" in lines[-1]


def test_lines_in_place_cover_each_other():
    assert progress_line(2, 1_000_000, 0.5, 1) == (
        "2 of 1,000,000 rows, 4 rows/s, 1 components, 2 days, 21:26:40 left"
    )
    assert progress_line(90, 90, 30.0, 1200) == (
        "90 of 90 rows, 3 rows/s, 1,200 components, took 0:00:30"
    )


@pytest.mark.parametrize("step", [0.0, 0.01, 0.2, 3.0])
@pytest.mark.parametrize("n", [0, 1, FIRST, FIRST + 1, 10_000])
def test_parts_are_all_rows_in_order(n, step, clock, capsys):
    clock(step)
    parts = list(reported_parts(n, lambda: 7))
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == n
    assert len(parts) == 1 or all(part.start < part.stop for part in parts)


def test_parts_are_as_long_as_takes_a_fraction_of_the_interval(monkeypatch, capsys):
    now, seconds_a_row, lengths = 0.0, 1e-4, []
    monkeypatch.setattr(skokde._progress, "perf_counter", lambda: now)
    for part in reported_parts(100_000, lambda: 7):
        lengths.append(part.stop - part.start)
        now += seconds_a_row * lengths[-1]
        if part.stop > 40_000:
            seconds_a_row = 1e-2
    fast, slow = (np.array(some) for some in (lengths[5:25], lengths[-30:-1]))
    assert (fast.sum() > 0) & (fast * 1e-4 < INTERVAL / 3).all()
    assert (slow * 1e-2 < INTERVAL / 3).all()
    # Twice a second at most.
    assert capsys.readouterr().out.count("\r") <= now / INTERVAL + 1


def test_short_calls_print_nothing(clock, capsys):
    clock(0.0)
    density = OnlineKDEDensity(verbose=1)
    for row in np.random.default_rng(0).normal(size=(100, 1, 2)):
        density.partial_fit(row)
    assert capsys.readouterr().out == ""


def test_without_verbose_all_rows_are_learned_at_once(monkeypatch):
    learn, lengths = skokde._density.learn, []

    def noted(state, X, *others):
        lengths.append(len(X))
        return learn(state, X, *others)

    monkeypatch.setattr(skokde._density, "learn", noted)
    X = np.random.default_rng(0).normal(size=(500, 2))
    OnlineKDEDensity().fit(X)
    assert lengths == [500]
    OnlineKDEDensity(verbose=1).fit(X)
    assert lengths[1] == FIRST


@both_fits
def test_an_interrupted_call_ends_its_line(method, clock, capsys, monkeypatch, state_of):
    X = np.random.default_rng(0).normal(size=(500, 2))
    density = OnlineKDEDensity(verbose=1).fit(X[:50])
    before, learn, calls = state_of(density), skokde._density.learn, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return learn(*arguments)

    monkeypatch.setattr(skokde._density, "learn", interrupted)
    clock(INTERVAL)
    with pytest.raises(KeyboardInterrupt):
        getattr(density, method)(X)
    assert capsys.readouterr().out.endswith("\n")
    assert state_of(density) == before


@each_estimator
def test_what_is_refused_is_refused_first(estimator, clock, capsys):
    clock(INTERVAL)
    given = arguments(estimator, n=300)
    given["X"][-1, 1] = 1e200
    with pytest.raises(ValueError, match="Values beyond"):
        clone(estimator).set_params(verbose=1).fit(**given)
    assert capsys.readouterr().out == ""


@each_estimator
def test_bad_values(estimator, state_of):
    given = arguments(estimator, n=40)
    fitted = clone(estimator).fit(**given)
    before = state_of(fitted)
    for bad in (-1, "yes", None, 1.0, [1]):
        for call in (fitted.set_params(verbose=bad).fit, fitted.partial_fit):
            with pytest.raises(ValueError, match=r"verbose must be True, False or an integer"):
                call(**given)
            assert state_of(fitted) == before


def test_densities_of_classes_do_not_report(clock, capsys):
    clock(0.0)
    given = arguments(OnlineKDEClassifier())
    classifier = OnlineKDEClassifier(verbose=1).fit(**given)
    assert [density.verbose for density in classifier.estimators_] == [0, 0, 0]
