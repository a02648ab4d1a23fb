"""The soak run, in little: it passes, notices what breaks, and goes on where it was stopped."""

import gc
import pickle
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evaluation.soak import KINDS, N_CHECKS, Soak, Stream, main, traced_memory
from skokde import OnlineKDEClassifier, OnlineKDEDensity

pytestmark = pytest.mark.slow

SOAK = Path(__file__).parents[1] / "benchmarks" / "soak.py"
STREAM = Stream(20_000)
FORGETTING = 0.9999
# What depends on the machine; and pickles name once what objects share, which loaded ones may not.
MEASURED = ["us per sample", "RSS, MB", "peak, MB", "pickle, kB"]


@pytest.fixture(scope="module")
def whole():
    """An uninterrupted run."""
    return Soak.start(STREAM, FORGETTING).run()


@pytest.fixture
def assert_same_run(assert_same_model):
    def check(first, second):
        assert_same_model(first.classifier, second.classifier)
        frames = [run.frame.drop(columns=MEASURED) for run in (first, second)]
        pd.testing.assert_frame_equal(*frames, check_exact=True)

    return check


def test_a_run_breaks_nothing(whole):
    frame = whole.frame
    assert frame.broken.tolist() == [""] * N_CHECKS
    assert whole.position == whole.n_rows.sum() == 20_000
    assert set(" ".join(frame.began).split()) == set(KINDS)
    accuracy = frame["accuracy, %"]
    assert accuracy[:5].min() > 75.0  # before anything happens
    # While classes cross or are absent a window of some hundred rows falls as low as 51 to 88 %,
    # by the seed of the stream; chance has 33.
    assert accuracy[-20:].mean() > 90.0
    assert accuracy[-20:].min() > 60.0
    assert accuracy[-7:].min() > 80.0  # after everything, outliers above all


def test_a_stream_is_the_same_each_time_and_has_what_it_tells():
    events = {event.kind: event for event in STREAM.events}  # the last one of each kind
    X, y = STREAM.rows(0, 20_000)
    again = STREAM.rows(0, 20_000)
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])

    def part(values, kind):
        return values[events[kind].start : events[kind].stop]

    assert events["absence"].which not in part(y, "absence")
    assert len(np.unique(part(X, "repeat"), axis=0)) == 1
    assert np.median(np.abs(part(X, "far"))) > 1e5
    assert len(np.unique(part(X, "stuck")[:30, events["stuck"].which])) == 1
    assert np.abs(Stream(20_000, kinds=()).rows(0, 20_000)[0]).max() < 30.0


def test_blocks_are_mixed_and_leave_nothing_out():
    blocks = list(Stream(10**7).blocks(200_000, 400_000))
    starts, sizes = np.array(blocks).T
    assert starts[0] == 200_000
    np.testing.assert_array_equal(starts[1:], (starts + sizes)[:-1])
    assert starts[-1] + sizes[-1] == 400_000
    assert sizes.min() < 10
    assert sizes.max() > 5000


def many():
    return OnlineKDEDensity(compression_threshold=0.0).fit(STREAM.rows(0, 2402)[0])


BREAK = {
    "finite densities": lambda c: c.estimators_[1]._mixture.means.fill(np.nan),
    "finite joint": lambda c: c.estimators_[1]._mixture.means.fill(np.nan),
    "sum of one": lambda c: vars(c).update(predict_proba=lambda X: np.full((len(X), 3), 0.3)),
    "few components": lambda c: c.estimators_.__setitem__(1, many()),
    "class counts": lambda c: c.class_count_.__imul__(1.0 + 1e-8),
    "density counts": lambda c: c.estimators_[0]._mixture.counts.__imul__(1.0 + 1e-8),
    "rows seen": lambda c: vars(c.estimators_[2]).update(_n_samples_seen=1.0),
    "pickle": lambda c: c.estimators_[1]._mixture.means.__iadd__(1e-9),
}


@pytest.mark.parametrize("name", BREAK)
def test_a_broken_invariant_is_noticed(name):
    soak = Soak.start(STREAM, FORGETTING)
    soak.step(400)
    assert soak.n_broken == 0
    pickled = pickle.dumps(soak.classifier)
    soak.classifier = pickle.loads(pickled)  # without what is kept for scoring
    BREAK[name](soak.classifier)
    with np.errstate(all="ignore"):
        broken = soak.broken(STREAM.rows(0, 20)[0], pickled)
    assert name in broken
    soak.records[-1]["broken"] = ", ".join(broken)
    assert "broken invariants: 1 of 1" in soak.verdict()


def test_the_exit_code_tells_of_broken_invariants(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["soak.py", "--samples", "1000", "--out", str(tmp_path)])
    for most, code in [(300, 0), (1, 1)]:
        monkeypatch.setattr("evaluation.soak.MOST_COMPONENTS", most)
        with pytest.raises(SystemExit) as end:
            main("")
        assert end.value.code == code
        assert ("few components" in capsys.readouterr().out) == bool(code)


def test_traced_memory_is_that_of_all_but_the_run():
    tracemalloc.start()
    try:
        before = traced_memory()
        held = np.zeros(10**5)
        assert traced_memory() - before == pytest.approx(held.nbytes / 1e3, rel=0.01)
        soak = Soak.start(Stream(1000), FORGETTING).run()
    finally:
        tracemalloc.stop()
    traced, pickled = soak.frame["traced, kB"], soak.frame["pickle, kB"]
    assert (traced > pickled).all()
    assert f"{traced[25:].max():.0f} in the second" in soak.verdict()


# ------------------------------------------------------------------------------------ going on


class Stopped(Exception):
    pass


def test_a_resumed_run_equals_an_uninterrupted_one(whole, assert_same_run, tmp_path, monkeypatch):
    checkpoint = tmp_path / "soak.joblib"
    step = Soak.step

    def stopping(self, stop):
        # While rows await the calibration, in an absence, and after outliers.
        if stop in (1200, 4400, 10_000) and stop not in stopped:
            stopped.append(stop)
            raise Stopped
        step(self, stop)

    stopped = []
    monkeypatch.setattr(Soak, "step", stopping)
    for at in (800, 4000, 9600):
        with pytest.raises(Stopped):
            Soak.start(STREAM, FORGETTING, checkpoint).run(checkpoint)
        assert Soak.start(STREAM, FORGETTING, checkpoint).position == at
    assert_same_run(Soak.start(STREAM, FORGETTING, checkpoint).run(checkpoint), whole)
    # The end is a check point, too.
    assert_same_run(Soak.start(STREAM, FORGETTING, checkpoint), whole)


def test_another_run_is_not_gone_on_with(tmp_path):
    checkpoint = tmp_path / "soak.joblib"
    Soak.start(Stream(1000), 1.0).run(checkpoint)
    for stream, forgetting in [
        (Stream(1000), 0.9),
        (Stream(1001), 1.0),
        (Stream(1000, seed=1), 1.0),
    ]:
        with pytest.raises(ValueError, match="of another run"):
            Soak.start(stream, forgetting, checkpoint)


def test_a_killed_process_resumes_to_the_same_model(whole, assert_same_run, tmp_path):
    checkpoint = tmp_path / "soak.joblib"
    command = [sys.executable, SOAK, "--samples", "20000", "--out", tmp_path]
    command += ["--checkpoint", checkpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not checkpoint.exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert 0 < Soak.start(STREAM, FORGETTING, checkpoint).position < 20_000
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"broken invariants: 0 of {N_CHECKS}" in done.stdout
    assert_same_run(Soak.start(STREAM, FORGETTING, checkpoint), whole)
    assert len(pd.read_csv(tmp_path / "soak.csv")) == N_CHECKS


# --------------------------------------------------------------------------------------- memory

# A byte for each of the 24,000 samples between (a row is 32), so 100 for each of 240 calls.
# Python's own caches, of attributes by their names for one, grow by some kB until they are full.
ALLOWED = 24_000


@pytest.mark.parametrize("Estimator", [OnlineKDEDensity, OnlineKDEClassifier])
def test_memory_does_not_grow(Estimator):
    # With a threshold that is found there are more components the more samples, up to a bound.
    stream, estimator = Stream(40_000, kinds=()), Estimator(compression_threshold=0.08)

    def learn(start, stop):
        """The most that is held in the last 8,000 rows: a model waxes and wanes."""
        held = []
        for at in range(start, stop, 100):
            X, y = stream.rows(at, 100)
            estimator.partial_fit(X, y)
            estimator.score_samples(X[:5])
            if at >= stop - 8_000 and not at % 500:
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
        return max(held)

    gc.freeze()  # what was there before is not looked at in each collection
    tracemalloc.start()
    try:
        before = learn(0, 16_000)
        after = learn(16_000, 40_000)
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert after - before < ALLOWED
