"""Dask collections, on a cluster of two processes."""

import os
import signal

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from skokde import OnlineKDEClassifier, OnlineKDEDensity, merge

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")

import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402

from skokde.dask import DaskOnlineKDEClassifier, DaskOnlineKDEDensity  # noqa: E402

# Of the cluster's own making.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:distributed"),
    # Of older ones, about schedulers that tests ask for.
    pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler:UserWarning"),
    pytest.mark.xdist_group("dask"),
]
CUTS = [150, 300, 450]


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def stream():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    return rng.normal(size=(600, 4)) + 2.0 * y[:, None], y


def by_hand(estimator, X, *others):
    """What a cluster should give: a model of each partition, merged in pairs."""
    parts = zip(*(np.split(array, CUTS) for array in (X, *others)), strict=True)
    return merge([clone(estimator).partial_fit(*part) for part in parts])


@parametrize_with_checks([DaskOnlineKDEDensity(), DaskOnlineKDEClassifier()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("on_cluster", [False, True])
def test_progress(client, stream, assert_same_model, capsys, monkeypatch, on_cluster):
    # On workers nothing is printed, however long their rows take.
    monkeypatch.setattr("skokde._progress.INTERVAL", 0.0)
    X, _ = stream
    rows, where = da.from_array(X, chunks=(150, 4)), client if on_cluster else None
    silent = DaskOnlineKDEDensity(client=where).fit(rows)
    assert capsys.readouterr().out == ""
    with dask.config.set(scheduler="threads"):
        verbose = DaskOnlineKDEDensity(client=where, verbose=1).fit(rows)
    assert_same_model(verbose, silent)
    printed = capsys.readouterr().out
    assert "100%" in printed
    assert "components" not in printed
    assert verbose.to_local().verbose == 1
    with pytest.raises(ValueError, match="verbose must be True, False or an integer"):
        verbose.set_params(verbose="yes").fit(rows)


def test_arrays(client, stream, assert_same_model):
    X, y = stream
    rows, labels = da.from_array(X, chunks=(150, 4)), da.from_array(y, chunks=150)
    density = DaskOnlineKDEDensity(client=client).fit(rows)
    right = by_hand(OnlineKDEDensity(), X)
    assert_same_model(density.to_local(), right)
    assert type(density.to_local()) is OnlineKDEDensity
    scores = density.score_samples(rows)
    assert isinstance(scores, da.Array)
    assert scores.chunks == ((150, 150, 150, 150),)
    np.testing.assert_array_equal(
        scores.compute(), np.concatenate([right.score_samples(part) for part in np.split(X, CUTS)])
    )
    np.testing.assert_array_equal(density.score_samples(X), right.score_samples(X))

    classifier = DaskOnlineKDEClassifier(client=client).fit(rows, labels)
    local, right = classifier.to_local(), by_hand(OnlineKDEClassifier(), X, y)
    assert local._classes_declared
    right._classes_declared = True
    assert_same_model(local, right)
    proba = classifier.predict_proba(rows)
    assert proba.shape == (600, 3)
    np.testing.assert_allclose(proba.compute(), right.predict_proba(X), rtol=1e-9, atol=1e-12)
    assert (classifier.predict(rows) == labels).mean().compute() > 0.85
    for method in ("predict_log_proba", "predict_joint_log_proba", "outlier_p_values"):
        of_all = getattr(right, method)(X)
        np.testing.assert_allclose(
            getattr(classifier, method)(rows).compute(), of_all, rtol=1e-7, atol=1e-9
        )
    np.testing.assert_array_equal(classifier.predict(X), right.predict(X))


def test_column_blocks_unknown_sizes_and_empty_partitions(client, stream, assert_same_model):
    X, _ = stream
    right = by_hand(OnlineKDEDensity(), X)
    rows = da.from_array(X, chunks=(150, 3))
    assert_same_model(DaskOnlineKDEDensity(client=client).fit(rows).to_local(), right)
    nothing = da.from_array(X[:0], chunks=(1, 4))
    unknown = da.concatenate(
        [nothing, rows, nothing, nothing, nothing], allow_unknown_chunksizes=True
    )
    unknown = unknown[unknown[:, 0] < 1e9]
    assert np.isnan(unknown.chunks[0]).all()
    density = DaskOnlineKDEDensity(client=client).fit(unknown)
    assert density.n_samples_seen_ == 600.0
    assert density.score_samples(unknown).compute().shape == (600,)
    with pytest.raises(ValueError, match="no rows"):
        DaskOnlineKDEDensity(client=client).fit(unknown[unknown[:, 0] > 1e9])


def test_frames_weights_and_missing_classes(client, stream, assert_same_model):
    X, y = stream
    order = np.argsort(y, kind="stable")  # each partition lacks a class or two
    X, y = X[order], y[order]
    frame = pd.DataFrame(X, columns=list("abcd"))
    labels = pd.Series(np.array(["x", "y", "z"])[y])
    weights = np.random.default_rng(1).integers(0, 3, 600).astype(float)
    rows, names = dd.from_pandas(frame, npartitions=4), dd.from_pandas(labels, npartitions=4)
    classifier = DaskOnlineKDEClassifier(client=client, priors=[0.2, 0.3, 0.5])
    classifier.fit(rows, names, sample_weight=da.from_array(weights, chunks=150))
    np.testing.assert_array_equal(classifier.feature_names_in_, list("abcd"))
    np.testing.assert_array_equal(classifier.classes_, ["x", "y", "z"])
    np.testing.assert_allclose(classifier.class_count_, np.bincount(y, weights))
    np.testing.assert_allclose(classifier.class_prior_, [0.2, 0.3, 0.5])
    predicted = classifier.predict(rows).compute()
    assert (predicted == labels).mean() > 0.85
    before = classifier.to_local()
    classifier.partial_fit(rows, names)
    np.testing.assert_allclose(classifier.class_count_, before.class_count_ + np.bincount(y))
    np.testing.assert_array_equal(before.class_count_, np.bincount(y, weights))


def test_what_does_not_match_is_refused(client, stream, assert_same_model):
    X, y = stream
    rows = da.from_array(X, chunks=(150, 4))
    classifier = DaskOnlineKDEClassifier(client=client).fit(rows, da.from_array(y, chunks=200))
    before = classifier.to_local()
    unknown = da.from_array(y, chunks=200)
    unknown = unknown[unknown >= 0]
    with pytest.raises(ValueError, match="3 partitions and X has 4"):
        classifier.fit(rows, unknown)
    with pytest.raises(TypeError, match="y must be a dask array"):
        classifier.fit(rows, y)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        classifier.fit(rows, da.from_array(y[:-4], chunks=149))
    with pytest.raises(ValueError, match="bandwidth"):
        clone(classifier).set_params(bandwidth="none").fit(rows, da.from_array(y, chunks=150))
    assert clone(classifier).client is client
    assert_same_model(before, classifier.to_local())


def test_without_a_client_and_without_dask(stream, assert_same_model):
    X, y = stream
    rows = da.from_array(X, chunks=(150, 4))
    with dask.config.set(scheduler="synchronous"):
        density = DaskOnlineKDEDensity().fit(rows)
    assert_same_model(density.to_local(), by_hand(OnlineKDEDensity(), X))
    classifier = DaskOnlineKDEClassifier().fit(X, y)
    assert_same_model(classifier.to_local(), OnlineKDEClassifier().fit(X, y))
    classifier.partial_fit(X[:5], y[:5])
    assert classifier.n_features_in_ == 4


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_lost_worker_changes_nothing(client, stream, assert_same_model, tmp_path):
    X, _ = stream
    marker = tmp_path / "killed"

    def fatal_once(rows, marker):  # in here, since workers do not know this module
        if not os.path.exists(marker):
            with open(marker, "w", encoding="utf-8"):
                os.kill(os.getpid(), signal.SIGKILL)
        return rows

    parts = [dask.delayed(part) for part in np.split(X, CUTS)]
    parts[2] = dask.delayed(fatal_once)(parts[2], str(marker))
    rows = da.concatenate([da.from_delayed(part, (150, 4), float) for part in parts])
    before = {worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()}
    density = DaskOnlineKDEDensity(client=client).fit(rows)
    assert marker.exists()
    client.wait_for_workers(2, timeout=60)
    assert before != {w["pid"] for w in client.run(lambda: {"pid": os.getpid()}).values()}
    assert_same_model(density.to_local(), by_hand(OnlineKDEDensity(), X))
