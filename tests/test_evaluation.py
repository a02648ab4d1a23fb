"""The benchmark's machinery: protocol, figures, processes, store, statistics and tables."""

import argparse
import json
import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.base import clone
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity

from evaluation import ablation, curves, outliers, speed, versions
from evaluation import datasets as sets
from evaluation.batch import BICMixture, CVKernelDensity, DensityClassifier
from evaluation.cells import ERROR, OK, TIME_LIMIT, Cell, evaluate, fingerprint, run_apart
from evaluation.command import cells_of, main, parse
from evaluation.datasets import SETS, Dataset, load_dataset
from evaluation.models import MODELS
from evaluation.prequential import last_class, prequential
from evaluation.protocol import (
    LOG_FLOOR,
    N_BINS,
    SCORERS,
    StreamSplit,
    brier,
    calibration_error,
    log_loss,
    nll,
    reliability,
)
from evaluation.report import BEGIN, END, against_xokde, all_models, write_readme
from evaluation.results import Peers, Results
from evaluation.runner import run
from evaluation.store import Store
from evaluation.tables import Difference, Table, Text, Value, corrected_t_test
from skokde import OnlineKDEClassifier, OnlineKDEDensity

pytestmark = pytest.mark.slow

X, y = load_iris(return_X_y=True)
IRIS = Dataset("iris", X, y, "scikit-learn", "loader")


def test_splits_are_those_of_the_protocol():
    splits = list(StreamSplit(3).split(X, y))
    assert len(splits) == StreamSplit(3).get_n_splits() == 3
    for seed, (train, test) in enumerate(splits):
        order = np.random.RandomState(seed).permutation(150)
        assert train.tolist() == order[:112].tolist()
        assert test.tolist() == order[112:].tolist()


@pytest.mark.parametrize("name", ["skokde full okde", "GaussianNB", "KernelDensity"])
def test_a_cell_has_the_figures_of_cross_validate(name):
    scores = cross_validate(
        MODELS[name].estimator, X, y, cv=StreamSplit(2), scoring=SCORERS, error_score="raise"
    )
    for seed in range(2):
        cell = evaluate(MODELS[name], X, y, seed, None)
        assert cell["acc"] == 100 * scores["test_accuracy"][seed]
        assert_allclose(cell["nll"], -scores["test_neg_nll"][seed], rtol=1e-12)
        assert_allclose(cell["log_loss"], -scores["test_neg_log_loss"][seed], rtol=1e-12)
        assert (cell["n_train"], cell["n_test"]) == (112, 38)


def test_fewer_rows_are_the_first_of_the_stream_before_the_same_test():
    train, test = StreamSplit().of_seed(150, 1)
    cell = evaluate(MODELS["GaussianNB"], X, y, 1, 40)
    model = GaussianNB().fit(X[train[:40]], y[train[:40]])
    assert cell["acc"] == 100 * model.score(X[test], y[test])
    assert cell["n_train"] == 40


def test_components_are_those_of_each_class():
    cell = evaluate(MODELS["skokde full okde"], X, y, 0, None)
    train, _ = StreamSplit().of_seed(150, 0)
    model = OnlineKDEClassifier(bandwidth="okde", compression_threshold=0.1)
    model.fit(X[train], y[train])
    sizes = [density.n_components_ for density in model.estimators_]
    assert (cell["k_mean"], cell["k_max"]) == (np.mean(sizes), max(sizes))
    assert evaluate(MODELS["GaussianMixture"], X, y, 0, None)["k_mean"] < 3
    assert evaluate(MODELS["KernelDensity"], X, y, 0, None)["k_mean"] == 112 / 3
    assert evaluate(MODELS["SVC"], X, y, 0, None)["nll"] is None


def test_nll_is_that_of_the_density_of_the_own_class():
    H = np.diag([0.1, 0.1, 0.2, 0.1])  # given, so that the classes share nothing
    model = OnlineKDEClassifier(bandwidth=H).fit(X, y)
    own = np.concatenate([model.estimators_[c].score_samples(X[y == c]) for c in range(3)])
    assert_allclose(nll(model, X, y), -own.mean(), rtol=1e-12)
    # The prior does not enter.
    other = OnlineKDEClassifier(bandwidth=H, priors=[0.8, 0.1, 0.1]).fit(X, y)
    assert_allclose(nll(other, X, y), nll(model, X, y), rtol=1e-12)


def test_nll_is_floored_and_unseen_classes_count():
    model = GaussianNB().fit(X[y < 2], y[y < 2])
    assert_allclose(nll(model, X[y == 2], y[y == 2]), -LOG_FLOOR)
    assert nll(model, X[:1] + 1e6, y[:1]) == -LOG_FLOOR
    declared = OnlineKDEClassifier().partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    assert_allclose(nll(declared, X[y == 2], y[y == 2]), -LOG_FLOOR)


def test_log_loss_is_that_of_scikit_learn_and_unseen_classes_count():
    model = GaussianNB().fit(X[::2], y[::2])
    assert log_loss(model, X, y) == sklearn_log_loss(y, model.predict_proba(X))
    fewer = GaussianNB().fit(X[y < 2], y[y < 2])
    assert log_loss(fewer, X[y == 2], y[y == 2]) > 30


def test_brier_score_is_the_squared_distance_and_unseen_classes_count():
    model = GaussianNB().fit(X[::2], y[::2])
    squares = (model.predict_proba(X) - np.eye(3)[y]) ** 2
    assert_allclose(brier(model, X, y), squares.sum(axis=1).mean(), rtol=1e-12)
    fewer = GaussianNB().fit(X[y < 2], y[y < 2])
    squares = (fewer.predict_proba(X[y == 2]) ** 2).sum(axis=1)
    assert_allclose(brier(fewer, X[y == 2], y[y == 2]), 1.0 + squares.mean(), rtol=1e-12)


def test_calibration_curve_is_that_of_scikit_learn():
    model = GaussianNB().fit(X[::2, :2], y[::2])
    curve = reliability(model, X[:, :2], y)
    rows, said, right = curve.T
    proba = model.predict_proba(X[:, :2])
    expected = calibration_curve(
        model.predict(X[:, :2]) == y, proba.max(axis=1), n_bins=N_BINS, strategy="uniform"
    )
    some = rows > 0.0
    assert rows.sum() == 150
    assert 3 < some.sum() < N_BINS
    assert_allclose(right[some] / rows[some], expected[0], rtol=1e-12)
    assert_allclose(said[some] / rows[some], expected[1], rtol=1e-12)
    # By hand: 0.8 is said of rows of which half are right, and 1.0 of one that is.
    by_hand = np.zeros((N_BINS, 3))
    by_hand[8], by_hand[9] = [2.0, 1.6, 1.0], [1.0, 1.0, 1.0]
    assert_allclose(calibration_error(by_hand), 20.0)


def test_a_cell_has_the_figures_of_its_probabilities():
    train, test = StreamSplit().of_seed(150, 0)
    cell = evaluate(MODELS["skokde"], X, y, 0, None)
    model = OnlineKDEClassifier().fit(X[train], y[train])
    assert cell["brier"] == brier(model, X[test], y[test])
    curve = reliability(model, X[test], y[test])
    assert cell["curve"] == curve.tolist()
    assert cell["calibration"] == calibration_error(curve)
    without = evaluate(MODELS["SVC"], X, y, 0, None)
    assert without["brier"] is without["calibration"] is without["curve"] is None


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("bandwidth", ["okde", "plugin"])
def test_models_of_the_paper_and_the_defaults(covariance_type, bandwidth):
    parameters = MODELS[f"skokde {covariance_type} {bandwidth}"].estimator.get_params()
    assert parameters == OnlineKDEClassifier().get_params() | {
        "covariance_type": covariance_type,
        "bandwidth": bandwidth,
        "compression_threshold": 0.1,
        "calibrate": False,
    }
    assert MODELS["skokde"].estimator.get_params() == OnlineKDEClassifier().get_params()
    diag = OnlineKDEClassifier(covariance_type="diag").get_params()
    assert MODELS["skokde diag"].estimator.get_params() == diag


def test_calibrated_svc_counts_its_vectors():
    cell = evaluate(MODELS["SVC calibrated"], X, y, 0, None)
    plain = evaluate(MODELS["SVC"], X, y, 0, None)
    assert cell["k_mean"] == plain["k_mean"] > 3
    assert cell["log_loss"] < 0.5


def test_bic_chooses_the_number_of_components():
    rng = np.random.default_rng(0)
    one = rng.normal(size=(300, 2))
    two = np.concatenate([one, rng.normal(size=(300, 2)) + 9])
    assert BICMixture().fit(one).n_components_ == 1
    found = BICMixture().fit(two)
    assert found.n_components_ == 2
    assert_allclose(
        found.score_samples(two), GaussianMixture(2, random_state=0).fit(two).score_samples(two)
    )
    # With too few rows for two full covariances there is one, whatever BIC says.
    assert BICMixture().fit(rng.normal(size=(20, 13))).n_components_ == 1


def test_densities_of_standardized_features_are_those_of_the_raw_ones():
    data = np.random.default_rng(0).normal(size=(80, 1)) * 50 + 7
    label = np.zeros(80, dtype=int)
    scaled = DensityClassifier(KernelDensity(bandwidth=0.5), standardize=True).fit(data, label)
    raw = KernelDensity(bandwidth=0.5 * data.std()).fit(data)
    assert_allclose(scaled.predict_joint_log_proba(data)[:, 0], raw.score_samples(data), rtol=1e-10)


def test_cross_validation_chooses_the_bandwidth():
    data = np.random.default_rng(1).normal(size=(400, 1))
    chosen = CVKernelDensity().fit(data)
    assert 0.1 < chosen.density_.bandwidth < 0.6  # the normal-reference one is 0.32
    assert CVKernelDensity().fit(data[:2]).n_components_ == 2


def test_density_classifier_far_out_tells_the_prior():
    model = DensityClassifier(KernelDensity(kernel="tophat")).fit(X, y)
    assert_allclose(model.predict_proba(X[:1] + 1e3), [[1 / 3, 1 / 3, 1 / 3]])


# --- Processes


def test_a_process_returns_fails_and_is_stopped():
    assert run_apart(abs, -42) == (OK, 42)
    assert run_apart(json.loads, "") == (
        ERROR,
        "JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    )
    kill = signal.SIGKILL
    assert run_apart(signal.raise_signal, kill) == (ERROR, "the process ended with SIGKILL")
    forever = range(10**15)
    assert run_apart(sum, forever, limit=1) == (TIME_LIMIT, "more than 1 s of CPU time")


# --- Store and runner


def test_a_store_goes_on_after_an_interruption(tmp_path):
    path = tmp_path / "new" / "cells.jsonl"
    store = Store(path)
    first, second = Cell("iris", "SVC", 0), Cell("iris", "SVC", 1, 50)
    store.add(first, {"status": OK, "fingerprint": "a", "acc": 1.0})
    store.add(second, {"status": OK, "fingerprint": "a", "acc": 2.0})
    store.add(first, {"status": OK, "fingerprint": "b", "acc": 3.0})
    with path.open("a") as file:
        file.write('{"dataset": "iris", "mod')  # killed while it wrote
    again = Store(path)
    assert again.records == store.records
    assert again.records[first]["acc"] == 3.0
    again.add(Cell("wine", "SVC", 0), {"status": OK, "fingerprint": "c"})
    assert len(Store(path).records) == 3


def test_a_store_finds_what_was_computed(tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    store.add(Cell("iris", "plugin", 0), {"status": OK, "fingerprint": "a", "limit": 5.0})
    same = Cell("iris", "defaults", 0)
    assert store.find(same, "a", 600.0)["model"] == "plugin"
    assert store.find(same, "b", 600.0) is None
    assert store.find(same._replace(seed=1), "a", 600.0) is None
    assert store.find(same._replace(rows=50), "a", 600.0) is None
    store.add(Cell("iris", "slow", 0), {"status": TIME_LIMIT, "fingerprint": "s", "limit": 5.0})
    assert store.find(Cell("iris", "slow", 0), "s", 5.0) is not None
    assert store.find(Cell("iris", "slow", 0), "s", 6.0) is None
    store.add(Cell("iris", "bad", 0), {"status": ERROR, "fingerprint": "e", "limit": 5.0})
    assert store.find(Cell("iris", "bad", 0), "e", 5.0) is None


def test_fingerprints_tell_data_parameters_and_estimators_apart():
    other = Dataset("iris", X + 1, y, "", "loader")
    prints = [
        fingerprint(IRIS, OnlineKDEClassifier()),
        fingerprint(other, OnlineKDEClassifier()),
        fingerprint(IRIS, OnlineKDEClassifier(bandwidth="okde")),
        fingerprint(IRIS, GaussianNB()),
        fingerprint(IRIS, MODELS["KernelDensity"].estimator),
        fingerprint(IRIS, MODELS["GaussianMixture"].estimator),
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint(IRIS, MODELS["skokde"].estimator) == prints[0]


def test_a_run_stores_cells_records_failures_and_does_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("evaluation.runner.unit_of_time", os.getpid)  # it takes seconds
    one_class = Dataset("wine", X, np.zeros(150, dtype=int), "", "loader")
    data = {"iris": IRIS, "wine": one_class}
    cells = [Cell(name, model, 0) for name in data for model in ("SVC", "GaussianNB", "skokde")]
    path = tmp_path / "cells.jsonl"
    run(cells, data, Store(path), limit=60, n_jobs=2)
    records = Store(path).records
    assert list(records) == sorted(cells)
    bad = records[Cell("wine", "SVC", 0)]
    assert bad["status"] == ERROR
    assert "number of classes" in bad["message"]
    good = records[Cell("iris", "skokde", 0)]
    direct = evaluate(MODELS["skokde"], X, y, 0, None)
    assert good["status"] == OK
    assert {key: good[key] for key in ("acc", "nll", "k_mean")} == {
        key: direct[key] for key in ("acc", "nll", "k_mean")
    }
    assert good["peak_mb"] > good["rise_mb"] > 0.0
    assert good["pickle_kb"] > 1.0
    # Only failed ones are tried again; the defaults under another name are not run anew.
    started = []
    monkeypatch.setattr(
        "evaluation.runner.run_apart",
        lambda function, *arguments, **options: started.append(arguments) or (OK, {}),
    )
    monkeypatch.setitem(MODELS, "twin", MODELS["skokde"])
    twin = Cell("iris", "twin", 0)
    run([*cells, twin], data, Store(path), limit=60, n_jobs=1)
    assert [arguments[0] for arguments in started if arguments] == cells[3:]
    assert Store(path).records[twin]["acc"] == direct["acc"]


def test_other_shuffles_of_what_took_too_long_are_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "evaluation.runner.run_apart", lambda *arguments, **options: (TIME_LIMIT, "slow")
    )
    monkeypatch.setattr("evaluation.runner.Unit.seconds", lambda self: 1.0)
    store = Store(tmp_path / "cells.jsonl")
    cells = [Cell("iris", "SVC", seed) for seed in range(3)] + [Cell("iris", "SVC", 0, 50)]
    run(cells, {"iris": IRIS}, store, limit=2, n_jobs=1)
    messages = [store.records[cell]["message"] for cell in cells]
    assert messages[0] == messages[3] == "slow"
    assert messages[1].startswith("not tried")


# --- Statistics and tables


def test_corrected_t_test():
    differences = np.array([1.0, 2.0, 0.5, 1.5, -0.5])
    # Without a test set the correction is gone.
    plain = stats.ttest_1samp(differences, 0.0).pvalue
    assert_allclose(corrected_t_test(differences, 100, 0), plain)
    t = differences.mean() / np.sqrt((1 / 5 + 25 / 75) * differences.var(ddof=1))
    assert_allclose(corrected_t_test(differences, 75, 25), 2 * stats.t.sf(t, 4))
    assert corrected_t_test(np.zeros(4), 75, 25) == 1.0
    assert corrected_t_test(np.ones(4), 75, 25) == 0.0
    assert np.isnan(corrected_t_test([1.0], 75, 25))


def test_corrected_t_test_holds_its_level_on_overlapping_splits():
    """Of pairs of equally good models it calls few different, the plain test many."""
    rng = np.random.default_rng(0)
    corrected = plain = 0
    for _ in range(300):
        values = rng.normal(size=100)  # the differences of 100 rows, of mean zero
        differences = [values[test].mean() for _, test in StreamSplit(12).split(values)]
        corrected += corrected_t_test(differences, 75, 25) < 0.05
        plain += stats.ttest_1samp(differences, 0.0).pvalue < 0.05
    assert corrected < 30 < 90 < plain


def test_a_table_averages_the_rows_that_are_complete():
    table = Table(
        "name",
        "Title",
        "Caption.",
        ["a", "b"],
        {
            "one": [Value(1.0, 0.5, 3), Difference(2.0, 0.01)],
            "two": [Value(3.0, mark=" ▲"), Difference(-1.0, 0.5)],
            "three": [Value(100.0), Text("error")],
        },
    ).with_average(["one", "two", "three"], "average of {}")
    lines = table.markdown().splitlines()
    assert "| one | 1.0 ± 0.5 | +2.0* |" in lines
    assert "| two | 3.0 ▲ | -1.0 |" in lines
    assert "| three | 100.0 | error |" in lines
    assert "| **average of 2** | 2.0 | +0.5 |" in lines
    frame = pd.read_csv(pd.io.common.StringIO(table.csv())).set_index(["set", "column"])
    assert frame.loc[("one", "b"), "p"] == 0.01
    assert frame.loc[("three", "b"), "note"] == "error"


@pytest.fixture
def results(tmp_path):
    """Three shuffles of two models, and a peer that lacks one of them."""
    store = Store(tmp_path / "cells.jsonl")
    for model, shift in (("skokde full okde", 1.0), ("GaussianNB", -8.0), ("skokde", 0.0)):
        for seed, acc in enumerate((90.0, 93.0, 92.0)):
            store.add(
                Cell("iris", model, seed),
                {
                    "status": OK,
                    "label": "iris",
                    "source": "folder",
                    "versions": "v",
                    "acc": acc + shift + 0.1 * seed * shift,
                    "nll": 1.0,
                    "log_loss": 0.5,
                    "k_mean": 5.0,
                    "n_train": 112,
                    "n_test": 38,
                    "train_s": 2.0,
                    "test_s": 1.0,
                    "unit_s": 4.0,
                },
            )
    store.add(
        Cell("iris", "SVC", 0),
        {"status": TIME_LIMIT, "label": "iris", "source": "folder", "versions": "v", "limit": 600},
    )
    paper = pd.DataFrame({"acc_full": [96.4]}, index=["iris"])
    xokde = pd.DataFrame(
        {"dataset": "iris", "covariance": "full", "seed": [0, 2, 7], "acc": [88.0, 91.0, 10.0]}
    )
    return Results(store, Peers(paper, xokde, pd.DataFrame(), pd.DataFrame()), ["iris"], tests=True)


def test_differences_to_a_peer_are_paired_over_the_seeds_that_both_have(results):
    row = against_xokde(results, "acc", "full").rows["iris"]
    printed, peer, ours, to_paper, to_peer = row[:5]
    assert printed.mean == 96.4
    # Seed 1 is missing, which is a crash; seed 7 was not run here.
    assert (peer.mean, peer.n, peer.mark) == (89.5, 2, " (crashed 1/3)")
    assert_allclose(ours.mean, np.mean([91.0, 94.1, 93.2]))
    assert_allclose(to_paper.mean, ours.mean - 96.4)
    assert_allclose(to_peer.mean, np.mean([91.0 - 88.0, 93.2 - 91.0]))
    assert to_peer.n == 2


def test_models_are_marked_where_they_differ_from_the_defaults(results):
    table = all_models(results, "acc", "Accuracy", 1)
    row = dict(zip(table.columns, table.rows["iris"], strict=True))
    assert row["GaussianNB"].mark == " ▼"
    assert row["skokde full okde"].mark == " ▲"
    assert row["skokde"].mark == ""
    results.tests = False
    assert all(entry.mark == "" for entry in all_models(results, "acc", "", 1).rows["iris"])


def test_cells_without_figures_say_why(results):
    assert results.entry("iris", "SVC", "acc") == Text("> 10 min")
    assert results.entry("iris", "OISVM", "acc") is None


def test_times_are_in_units_of_the_workload(results):
    assert results.of_seeds("iris", "skokde", "train").tolist() == [0.5, 0.5, 0.5]


def test_the_block_of_a_readme_is_replaced(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_readme("new\n", path)
    assert path.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    path.write_text("no marks\n")
    with pytest.raises(ValueError, match="results: begin"):
        write_readme("new\n", path)


# --- Data and command


def test_sets_come_from_the_folder_or_else_from_a_loader(tmp_path):
    frame = pd.DataFrame(X[:60], columns=["x0", "x1", "x2", "x3"]).assign(y=y[:60])
    frame.to_csv(tmp_path / "iris.csv.gz", index=False)
    data = load_dataset("iris", tmp_path)
    assert (data.rows, data.label) == ("folder", "iris (40% subset)")
    assert_allclose(data.X, X[:60])
    whole = load_dataset("iris", tmp_path / "elsewhere")
    assert (whole.rows, whole.label) == ("loader", "iris")
    assert whole.source == "sklearn.datasets.load_iris"


def test_data_that_cannot_be_had_or_are_others_are_refused(monkeypatch):
    def offline():
        raise OSError("no network")

    entry = sets.ENTRIES["pima"]
    monkeypatch.setitem(sets.ENTRIES, "pima", entry._replace(fetch=offline))
    with pytest.raises(OSError, match=r"pima.*OpenML, data set 37.*no network.*--data"):
        load_dataset("pima")
    labels = np.array(["no", "yes"] * 384)
    monkeypatch.setitem(
        sets.ENTRIES, "pima", entry._replace(fetch=lambda: (np.ones((768, 7)), labels))
    )
    with pytest.raises(ValueError, match=r"pima.*\(768, 7\)"):
        load_dataset("pima")
    monkeypatch.setitem(
        sets.ENTRIES, "pima", entry._replace(fetch=lambda: (np.ones((768, 8)), labels))
    )
    assert load_dataset("pima").y.tolist() == [0, 1] * 384


def test_big_sets_take_three_shuffles_and_quick_has_no_curves():
    cells = cells_of(parse(["--sets", "letter", "pima"]), {"letter": 20000, "pima": 768})
    whole = [cell for cell in cells if cell.rows is None]
    assert sum(cell.dataset == "letter" for cell in whole) == 3 * len(MODELS)
    assert sum(cell.dataset == "pima" for cell in whole) == 12 * len(MODELS)
    assert {cell.rows for cell in cells if cell.dataset == "pima"} == {None, 50, 100, 200, 400}
    assert max(cell.rows or 0 for cell in cells) == 12800
    quick = cells_of(parse(["--quick"]), {})
    assert len(quick) == 6 * 3 * len(MODELS)
    assert all(cell.rows is None for cell in quick)


def test_the_command_writes_tables_and_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("evaluation.runner.unit_of_time", os.getpid)  # it takes seconds
    monkeypatch.delenv("SKOKDE_DATA", raising=False)
    models = ["skokde full okde", "GaussianNB", "SVC"]
    arguments = ["--sets", "iris", "--models", *models, "--shuffles", "2", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["paper.py", *arguments])
    main("")
    printed = capsys.readouterr()
    assert "iris: sklearn.datasets.load_iris" in printed.err
    assert (tmp_path / "paper.md").read_text() in printed.out
    frame = pd.read_csv(tmp_path / "models_acc.csv").set_index("column")
    cells = [evaluate(MODELS["GaussianNB"], X, y, seed, None)["acc"] for seed in range(2)]
    assert_allclose(frame.loc["GaussianNB", "mean"], np.mean(cells), rtol=1e-5)
    assert frame.loc["GaussianNB", "n"] == 2
    tested = pd.read_csv(tmp_path / "comparisons.csv")
    assert set(tested.other) == {"GaussianNB", "SVC"}
    assert (tmp_path / "accuracy.png").stat().st_size > 10_000
    # Rendered anew it is the same, and nothing is run.
    monkeypatch.setattr("sys.argv", ["paper.py", *arguments, "--render"])
    monkeypatch.setattr("evaluation.command.run", None)
    main("")
    assert capsys.readouterr().out == printed.out


# --- Prequential


def test_prequential_predicts_before_it_learns():
    seen = []

    class Recorder(GaussianNB):
        def partial_fit(self, X, y, classes=None):
            seen.append(len(y))
            return super().partial_fit(X, y, classes)

    order = np.random.default_rng(0).permutation(150)
    right = prequential(Recorder(), X[order], y[order], 40)
    assert seen == [40, 40, 40, 30]
    expected = []
    for start in (40, 80, 120):
        rows, past = order[start : start + 40], order[:start]
        expected += (GaussianNB().fit(X[past], y[past]).predict(X[rows]) == y[rows]).tolist()
    assert right.tolist() == expected


def test_last_class():
    assert last_class(np.array([1, 1, 2, 2, 1])).tolist() == [False, True, False, True, False]


# --- Curves


def test_threshold_curve_is_that_of_the_cells(monkeypatch):
    monkeypatch.setattr(curves, "THRESHOLDS", (0.1, 0.5))
    frame = curves.threshold_curve(IRIS, n_splits=2, n_jobs=1)
    assert frame.D_th.tolist() == [0.1, 0.5, 0.1, 0.5]
    row = frame[(frame.covariance == "diag") & (frame.D_th == 0.1)].iloc[0]
    model = MODELS["skokde diag"]
    model = model._replace(estimator=clone(model.estimator).set_params(compression_threshold=0.1))
    cells = [evaluate(model, X, y, seed, None) for seed in range(2)]
    for column, figure in (
        ("accuracy", "acc"),
        ("nll", "nll"),
        ("log_loss", "log_loss"),
        ("components", "k_mean"),
    ):
        assert_allclose(row[column], np.mean([cell[figure] for cell in cells]), rtol=1e-12)
    by_threshold = frame.pivot(index="covariance", columns="D_th", values="components")
    assert (by_threshold[0.1] > by_threshold[0.5]).all()
    assert (frame.time[frame.D_th == 0.1] == 1.0).all()
    axes = curves.draw_thresholds(frame).axes
    assert [each.get_title() for each in axes][:2] == ["accuracy, %", "-log p, nats"]
    assert axes[3].get_xlabel() == "compression threshold D_th"


def test_forgetting_curve_is_prequential(monkeypatch):
    monkeypatch.setattr(curves, "FORGETTING", (1.0, 0.9))
    monkeypatch.setattr(curves, "BLOCK", 25)
    order = np.random.default_rng(0).permutation(150)
    data = Dataset("gas", X[order], y[order], "", "loader")
    frame, right = curves.forgetting_curve(data, ["diag"], n_jobs=1)
    model = OnlineKDEClassifier(covariance_type="diag", forgetting_factor=0.9)
    direct = prequential(model, data.X, data.y, 25)
    assert right["skokde diag, 0.9"].tolist() == direct.tolist()
    accuracy = frame.set_index("model").accuracy
    assert accuracy["skokde diag, 0.9"] == 100 * direct.mean()
    assert accuracy["the last class seen"] < 50 < accuracy["GaussianNB"]
    assert len(curves.draw_forgetting(frame, right, ["diag"]).axes) == 2


# --- Ablation


@pytest.fixture(scope="module")
def longer_stream():
    """Two classes that overlap, of three clumps each."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=1200)
    X = rng.normal(size=(1200, 2)) + 3.0 * rng.integers(0, 3, size=(1200, 1)) * [1.0, -1.0]
    return X + y[:, None], y


@pytest.mark.parametrize("name", ablation.VARIANTS)
def test_every_variant_can_be_evaluated(name, longer_stream):
    # What is patched must be there, and must matter, some of it in longer streams only.
    figures = ablation.evaluate(ablation.VARIANTS[name], X, y, 0)
    assert 80.0 < figures["accuracy"] <= 100.0
    usual = ablation.evaluate(ablation.Variant(), X, y, 0)
    hidden = ["D_th", "merged", "compression", "evidence remembered", "predictions remembered"]
    hidden += ["widest", "principal", "of little use", "linear discriminant"]
    if any(part in name for part in hidden):
        variant, defaults = ablation.VARIANTS[name], ablation.Variant()
        figures, usual = (ablation.evaluate(v, *longer_stream, 0) for v in (variant, defaults))
    assert (figures["log-loss"] == usual["log-loss"]) == (name == "defaults")


# --- Speed


def test_densities_hold_the_components_they_are_asked_for():
    for covariance_type in ("full", "diag"):
        density = speed.with_components(
            20, speed.clumps(2500, 3), covariance_type=covariance_type, bandwidth="okde"
        )
        assert density.n_components_ == 20
        assert density._mixture.n_compounds > 10


def test_rows_one_by_one_beside_naive_bayes():
    frame = speed.rows(None, n_before=40, n=20, n_first=10, n_classes=(2, 3), features=(2,))
    assert frame.model.tolist() == 2 * list(speed.one_by_one())
    assert (frame.iloc[:, 3:].to_numpy() > 0.0).all()
    of_theirs = frame.columns[-2:]
    assert_allclose(frame.loc[frame.model == "GaussianNB", of_theirs], 1.0)
    assert_allclose(frame["mean, us"], frame["predict, us"] + frame["learn, us"], rtol=1e-6)


def test_terms_that_count():
    # Two clusters far apart: rows of one need none of the Diracs of the other.
    rng = np.random.default_rng(0)
    near = rng.normal(size=(10, 2))
    density = OnlineKDEDensity(bandwidth=[1.0, 1.0]).fit(np.concatenate([near, near + 1e3]))
    assert speed.terms_that_count(density, [near]) == (0.5, 0.5)
    assert speed.terms_that_count(density, [np.concatenate([near, near + 1e3])]) == (0.5, 1.0)


def test_time_of_more_components():
    frame = speed.components(None, clusters=(2,), n=128)
    assert (frame.drop(columns="kernels").to_numpy() > 0.0).all()
    of_row, of_block = frame.iloc[:, -2:].to_numpy().T
    assert (of_row <= of_block).all()


def test_latency_of_rows(tmp_path):
    frame = speed.latency(argparse.Namespace(out=tmp_path), {2: 90})
    ordered = frame[["median, us", "99 %, us", "99.9 %, us", "slowest, us"]].to_numpy()[0]
    assert (np.diff(ordered) >= 0.0).all()
    assert (tmp_path / "speed_latency.png").stat().st_size > 1000


def test_time_of_many_rows():
    frame = speed.scale(None, n=2000, block=20)
    assert frame["rows"].tolist() == 2 * ["0 to 20", "20 to 200", "200 to 1000", "1000 to 2000"]
    assert frame.components[:4].tolist() == frame.components[4:].tolist()
    assert (frame.iloc[:, 3:].to_numpy() > 0.0).all()


def test_two_threads_learn_the_same(monkeypatch):
    monkeypatch.setattr(speed, "split", lambda name, data: (X[::2], y[::2], X[1::2], y[1::2]))
    frame = speed.threads(argparse.Namespace(data=None))
    assert frame["same bits"].all()


def test_time_of_the_steps_adds_up():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    total, spent, sizes = speed.time_steps(OnlineKDEClassifier(), X, y)
    assert all(seconds > 0.0 for seconds in spent.values())
    assert sum(spent.values()) < total
    assert len(sizes) > 5
    assert all(k >= 30 and m <= k for k, m in sizes)
    assert set(speed.operations(30, 20, 3, plugin=True)) == set(spent)


def test_tables_of_speed_as_markdown():
    frame = pd.DataFrame({"set": ["a", "b"], "times": [12345.6, np.nan], "n": [3, 4]})
    assert speed.markdown(frame).splitlines() == [
        "| set | times | n |",
        "|---|---|---|",
        "| a | 12346 | 3 |",
        "| b |  | 4 |",
    ]


def test_two_versions_run_in_turns(monkeypatch, capsys):
    tree = str(Path(versions.__file__).parents[2])
    arguments = [tree, "--sets", "iris", "wine", "--rounds", "1", "--rows", "40"]
    monkeypatch.setattr("sys.argv", ["versions.py", *arguments, "--configurations", "paper, diag"])
    monkeypatch.setattr(versions, "ENOUGH", 0.0)
    versions.main("")
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header == "| configuration | measure | iris | wine | geometric mean |"
    assert [row.split(" | ")[1] for row in rows if row] == list(versions.MEASURES)
    for row in rows[:3]:
        iris, wine, mean = (float(cell.strip(" |")) for cell in row.split(" | ")[2:])
        assert min(iris, wine) > 0.0
        assert_allclose(mean, np.sqrt(iris * wine), rtol=0.05)


def test_a_version_is_of_its_own_folder(tmp_path):
    with pytest.raises(RuntimeError, match="is it built"), versions.running(tmp_path):
        pass


# --- What is committed


@pytest.mark.parametrize("n_outliers", [5, 40, 900])
def test_rows_for_outlier_detectors_are_learned_or_tested(monkeypatch, n_outliers):
    # Rows tell their number, outliers below zero.
    rows = np.arange(1.0, 1001.0)[:, None], -np.arange(1.0, n_outliers + 1.0)[:, None]
    monkeypatch.setattr(outliers, "inliers_and_outliers", lambda *_: rows)
    tests = []
    for contaminated in (False, True):
        train, test, is_outlier = outliers.split("any", contaminated, 2, None)
        assert not set(train[:, 0]) & set(test[:, 0])
        assert len(np.unique(train)) == len(train)
        np.testing.assert_array_equal(is_outlier, test[:, 0] < 0.0)
        n_learned = np.sum(train < 0.0)
        assert n_learned == (min(n_outliers // 2, 37) if contaminated else 0)
        tests.append(test)
    np.testing.assert_array_equal(*tests)


def test_losses_to_other_detectors_are_named():
    lines = [
        {"table": "clean", "set": name, "method": method, "auc": auc, "precision": 0.5}
        for name, methods in {
            "won": {"skokde": 0.9, "IsolationForest": 0.8, "skokde, diag": 0.95},
            "lost": {"skokde": 0.7, "IsolationForest": 0.6, "OneClassSVM": 0.8},
        }.items()
        for method, auc in methods.items()
    ]
    text = outliers.losses(pd.DataFrame(lines))
    assert text == "- clean, lost, ROC AUC: skokde 0.700; OneClassSVM 0.800"


@pytest.fixture(scope="module")
def committed():
    return Path(__file__).parents[1] / "benchmarks" / "results"


def test_the_tables_are_made_from_the_cells(committed):
    results = Results(Store(committed / "cells.jsonl"), Peers.read(None), SETS, tests=True)
    for column in ("acc", "nll", "train"):
        table = all_models(results, column, "", 1)
        assert (committed / f"{table.name}.csv").read_text() == table.csv()


def test_the_readme_shows_the_summary_of_the_report(committed):
    readme = (committed.parents[1] / "README.md").read_text()
    block = readme.partition(BEGIN)[2].partition(END)[0].strip()
    report = (committed / "paper.md").read_text()
    assert block.startswith("| set |")
    assert block in report


def test_no_cell_of_ours_failed(committed):
    records = Store(committed / "cells.jsonl").records
    ours = {cell: r["status"] for cell, r in records.items() if cell.model.startswith("skokde")}
    assert len(ours) > 300
    assert set(ours.values()) == {OK}
