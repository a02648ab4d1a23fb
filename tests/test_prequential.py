"""The prequential benchmark: what it measures, its streams, models and command."""

import math

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import cohen_kappa_score, confusion_matrix
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.naive_bayes import GaussianNB

pytest.importorskip("river", reason="the streams and some models are river's: pip install river")

from river import dummy, naive_bayes

from evaluation import densities
from evaluation.cells import ERROR, OK, Cell, fingerprint
from evaluation.prequential import (
    PROBABILITY_FLOOR,
    Passage,
    figures,
    last_class,
    log_loss,
    row_by_row,
    temporal_kappa,
)
from evaluation.store import Store
from evaluation.stream_models import (
    DEFAULT,
    FIXED,
    MODELS,
    PREDICTIVE,
    PREVIOUS,
    PreviousClass,
    RiverClassifier,
    fixed,
)
from evaluation.streaming import draw, main, parse, report, stored
from evaluation.streams import GENERATORS, STREAMS, load_stream
from skokde import OnlineKDEClassifier

pytestmark = pytest.mark.slow


@pytest.fixture
def stream():
    """Two classes that overlap and come in runs."""
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.random(200) < 0.2) % 2
    y[:2] = 0, 1
    return rng.normal(size=(200, 3)) + 1.5 * y[:, None], y


def test_each_row_is_predicted_before_it_is_learned(stream):
    X, y = stream
    calls = []

    class Recorder(PreviousClass):
        def predict_proba(self, X):
            calls.append(("predict", X.tolist()))
            return super().predict_proba(X)

        def partial_fit(self, X, y, classes=None):
            calls.append(("learn", X.tolist()))
            return super().partial_fit(X, y, classes)

    row_by_row(Recorder(), X, y)
    expected = [("learn", X[:1].tolist())]
    for row in X[1:, None].tolist():
        expected += [("predict", row), ("learn", row)]
    assert calls == expected


def test_probabilities_are_those_of_the_rows_before(stream):
    X, y = stream
    passage = row_by_row(OnlineKDEClassifier(), X, y)
    assert passage.probabilities.shape == (199, 2)
    for n in (1, 2, 50, 150):
        past = OnlineKDEClassifier().partial_fit(X[:n], y[:n], classes=[0, 1])
        assert passage.probabilities[n - 1].tolist() == past.predict_proba(X[[n]])[0].tolist()
    whole = OnlineKDEClassifier().partial_fit(X, y, classes=[0, 1])
    assert (passage.model.predict_proba(X) == whole.predict_proba(X)).all()
    assert (passage.seconds > 0.0).all()


def test_figures_are_those_of_scikit_learn_and_of_the_formulas(stream):
    _, y = stream
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet([1, 1, 1], 199)
    y = y + (np.arange(200) % 7 == 6)  # a third class
    seconds = rng.permutation(np.arange(199)) * 1e-6
    found = figures(Passage(probabilities, seconds, GaussianNB()), y)
    truth, predicted = y[1:], probabilities.argmax(axis=1)
    right = np.mean(truth == predicted)
    assert_allclose(found["accuracy"], 100 * right)
    assert_allclose(found["kappa"], cohen_kappa_score(truth, predicted))
    # Brute force: chance is that of independent draws with both margins.
    table = confusion_matrix(truth, predicted) / 199
    chance = table.sum(axis=0) @ table.sum(axis=1)
    assert_allclose(found["kappa"], (np.trace(table) - chance) / (1 - chance))
    unchanged = sum(y[i] == y[i - 1] for i in range(1, 200)) / 199
    assert_allclose(found["kappa_temporal"], (right - unchanged) / (1 - unchanged))
    assert_allclose(found["log_loss"], sklearn_log_loss(truth, probabilities))
    assert_allclose(found["us_median"], 99)
    assert 197 < found["us_999"] < 198
    assert len(found["curve"]) == 40
    assert_allclose(found["curve"][0], 100 * np.mean((truth == predicted)[:5]))


def test_labels_may_be_any_integers(stream):
    X, y = stream
    names = np.array([7, -3])[y]
    for model in (MODELS[DEFAULT], MODELS[PREVIOUS], MODELS["Gaussian naive Bayes"]):
        plain, named = (figures(row_by_row(model, X, each), each) for each in (1 - y, names))
        for figure in ("accuracy", "kappa", "kappa_temporal", "log_loss", "curve"):
            assert plain[figure] == named[figure]


def test_log_loss_has_a_floor_and_no_more():
    probabilities = np.array([[0.0, 1.0], [1.0, 0.0], [0.25, 0.75]])
    codes = np.array([0, 0, 1])
    expected = -(math.log(PROBABILITY_FLOOR) + math.log(0.75)) / 3
    assert_allclose(log_loss(probabilities, codes), expected)
    assert log_loss(probabilities[1:2], codes[1:2]) == 0.0


def test_the_class_of_the_row_before(stream):
    X, y = stream
    passage = row_by_row(MODELS[PREVIOUS], X, y)
    assert (passage.probabilities.argmax(axis=1) == y[:-1]).all()
    found = figures(passage, y)
    assert found["accuracy"] == 100 * last_class(y)[1:].mean()
    assert found["kappa_temporal"] == 0.0
    assert_allclose(found["log_loss"], -np.log(1e-15) * (y[1:] != y[:-1]).mean())


def test_temporal_kappa_of_the_faultless_and_of_what_never_changes():
    as_before = np.array([True, False, True, True])
    assert temporal_kappa(np.ones(4, dtype=bool), as_before) == 1.0
    assert temporal_kappa(np.zeros(4, dtype=bool), as_before) == -3.0
    assert np.isnan(temporal_kappa(as_before, np.ones(4, dtype=bool)))


# --- Models


def test_rivers_models_meet_the_same_rows_in_the_same_order(stream):
    X, y = stream
    passage = row_by_row(MODELS["Gaussian naive Bayes"], X, y)
    model = naive_bayes.GaussianNB()
    for i in range(200):
        row = dict(enumerate(X[i].tolist()))
        told = model.predict_proba_one(row)
        if i:
            assert_allclose(
                passage.probabilities[i - 1], [told.get(label, 0.0) for label in (0, 1)]
            )
        model.learn_one(row, int(y[i]))


def test_classes_that_river_has_not_met_have_no_probability():
    class Silent(dummy.NoChangeClassifier):
        def predict_proba_one(self, x):
            return {}

    X, y = np.ones((1, 2)), np.array([2])
    met = RiverClassifier(dummy.NoChangeClassifier).partial_fit(X, y, classes=[1, 2, 3])
    assert met.predict_proba(X).tolist() == [[0.0, 1.0, 0.0]]
    silent = RiverClassifier(Silent).partial_fit(X, y, classes=[1, 2, 3, 4])
    assert silent.predict_proba(X).tolist() == [[0.25] * 4]


@pytest.mark.parametrize("name", [name for name in MODELS if name != PREDICTIVE])
def test_models_give_distributions_and_are_reproducible(name, stream):
    X, y = stream
    X, y = X[:60], y[:60]
    first, second = (row_by_row(MODELS[name], X, y).probabilities for _ in range(2))
    assert_allclose(first.sum(axis=1), 1.0)
    assert (first >= 0.0).all()
    assert (first == second).all()


def test_models_are_told_apart(stream):
    data = load_stream("sea", 20)
    prints = {name: fingerprint(data, model) for name, model in MODELS.items()}
    assert len(set(prints.values())) == len(prints)
    assert [MODELS[fixed(factor)].forgetting_factor for factor in FIXED] == list(FIXED)


# --- Streams


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("n", [1, 399, 400])
def test_generated_streams_are_decided_by_the_seed(name, n):
    first, again, other = (load_stream(name, n, seed=seed) for seed in (0, 0, 1))
    assert len(first.X) == len(first.y) == n
    assert first.X.dtype == float
    assert np.isfinite(first.X).all()
    assert (first.X == again.X).all()
    assert (first.y == again.y).all()
    assert (first.X != other.X).any()
    if n > 1:
        assert len(np.unique(first.y)) > 1


def test_sea_changes_its_threshold_three_times():
    stream = load_stream("sea", 4000)
    total = stream.X[:, 0] + stream.X[:, 1]
    for part, threshold in enumerate((8.0, 9.0, 7.0, 9.5)):
        rows = slice(1000 * part, 1000 * (part + 1))
        agrees = (total[rows] > threshold) == stream.y[rows]
        assert 0.87 < agrees.mean() < 0.93  # a tenth is noise


def test_the_concept_changes_in_the_middle_at_once_or_by_and_by():
    def of_the_first_concept(stream):
        age = stream.X[:, 2]
        return ((age < 40) | (age >= 60)) == stream.y

    sudden, gradual = (load_stream(name, 4000) for name in ("sudden", "gradual"))
    before, after = slice(0, 1900), slice(2100, 4000)
    assert of_the_first_concept(sudden)[before].all()
    assert of_the_first_concept(sudden)[after].mean() < 0.8
    shares = [part.mean() for part in np.split(of_the_first_concept(gradual), 8)]
    assert shares[0] > shares[3] > shares[7]
    assert shares[3] > shares[4] > shares[7]


def test_real_streams_keep_their_order(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["x0", "x1"]).assign(y=[0, 1] * 15)
    frame.to_csv(tmp_path / "eegeye.csv.gz", index=False)
    stream = load_stream("eegeye", 20, tmp_path)
    assert (frame[["x0", "x1"]].to_numpy()[:20] == stream.X).all()
    assert stream.label == "eegeye (0% subset)"


# --- Command


def test_what_a_full_run_takes():
    options = parse([])
    assert (options.streams, options.models) == (STREAMS, list(MODELS))
    assert options.rows == 20_000
    assert parse(["--quick"]).rows == 300
    assert parse(["--quick", "--rows", "50", "--streams", "rbf"]).streams == ["rbf"]


def test_the_command_runs_what_is_missing_and_writes_all(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("evaluation.runner.unit_of_time", abs)  # it takes seconds
    monkeypatch.setattr("evaluation.runner.Unit.seconds", lambda self: 1.0)
    models = [fixed(0.9), "Gaussian naive Bayes", PREVIOUS]
    arguments = ["--streams", "sea", "led", "--rows", "60", "--out", str(tmp_path), "--models"]
    monkeypatch.setattr("sys.argv", ["prequential.py", *arguments, *models])
    main("")
    printed = capsys.readouterr().out
    assert (tmp_path / "prequential.md").read_text() == printed.strip() + "\n"
    frame = pd.read_csv(tmp_path / "prequential.csv").set_index(["stream", "model"])
    assert len(frame) == 6
    stream = load_stream("led", 60)
    direct = figures(row_by_row(MODELS[fixed(0.9)], stream.X, stream.y), stream.y)
    for figure in ("accuracy", "kappa", "kappa_temporal", "log_loss"):
        assert_allclose(frame.loc[("led", fixed(0.9)), figure], direct[figure], rtol=1e-4)
    assert (frame.us_999 >= frame.us_median).all()
    assert (tmp_path / "prequential.png").stat().st_size > 10_000
    # Rendered anew, or run again, it is the same, and no cell is run.
    monkeypatch.setattr("evaluation.runner.run_apart", None)
    for more in ([], ["--render"]):
        monkeypatch.setattr("sys.argv", ["prequential.py", *arguments, *models, *more])
        main("")
        assert capsys.readouterr().out == printed


def test_the_report_names_the_best_fixed_factor_and_what_failed(tmp_path):
    store = Store(tmp_path / "prequential.jsonl")
    common = {"label": "sea", "versions": "v", "fingerprint": "f"}
    numbers = dict.fromkeys(("kappa", "kappa_temporal", "log_loss", "us_median", "us_999"), 0.5)
    for rows, shift in ((20, -50.0), (80, 0.0)):  # the shorter run does not count
        for factor, accuracy in ((0.99, 70.0), (0.97, 80.0), (0.9, 75.0)):
            record = numbers | {"accuracy": accuracy + shift, "pickle_kb": 1.0, "river": "r"}
            record |= {"status": OK, "curve": [accuracy] * 40}
            store.add(Cell("sea", fixed(factor), 0, rows), common | record)
        record = {"status": ERROR, "message": "no such factor"}
        store.add(Cell("sea", PREDICTIVE, 0, rows), common | record)
    options = parse(["--streams", "sea"])
    frame = stored(store, options)
    text = report(frame)
    assert "| sea | 0.97 | 80.0 |  | error |  |  |" in text
    assert f"- {PREDICTIVE} (sea): no such factor" in text
    assert "sea, 80." in text
    axes = draw(frame).axes[0]
    assert axes.get_title() == "sea, best factor 0.97"
    assert [line.get_label() for line in axes.get_lines()] == ["skokde, best fixed factor"]
    assert (axes.get_lines()[0].get_ydata() == 80.0).all()


def test_densities_on_streams(monkeypatch, tmp_path):
    arguments = ["densities.py", "--rows", "60", "--seeds", "1", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    densities.main("")
    figures = pd.read_csv(tmp_path / "densities.csv", dtype={"factor": str})
    losses = densities.table(figures, "nll")
    assert list(losses.index) == list(densities.STREAMS)
    assert list(losses) == [str(factor) for factor in densities.FACTORS]
    assert np.isfinite(losses).all(axis=None)
    best = losses.drop(columns="predictive").min(axis=1)
    lines = (tmp_path / "densities.md").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("| a state that returns")]
    difference = (losses["predictive"] - best)["a state that returns"]
    assert line.endswith(f"| {difference:.3f} |")


def test_streams_of_densities_are_what_they_are_called():
    def parts(name):
        X = densities.STREAMS[name](4000, np.random.default_rng(0))
        return np.array([part.mean(axis=0) for part in np.split(X, 8)])

    names = ("clusters that stay", "clusters that move", "a mean that drifts")
    stay, move, drift, back = map(parts, (*names, "a state that returns"))
    assert np.abs(stay - stay[0]).max() < 1.0
    assert np.abs(move[-1] - move[0]).max() > 2.0
    assert drift[-1, 0] - drift[0, 0] > 6.0
    # Here and there in turn.
    assert np.abs(back[[0, 1, 2, 3, 5, 7]] - back[0]).max() < 1.0
    assert np.abs(back[[4, 6]] - back[0]).max(axis=1).min() > 1.5
