"""What is stored comes back as it was, and what was damaged is told from what was not."""

import copy
import io
import pickle
import runpy
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import is_regressor

from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._engine.experts import by_kind
from skokde._engine.missing import patterns
from skokde._engine.pooling import CONTAMINATIONS, PRIOR_PRECISION, LogLinearPool
from skokde._engine.state import Recent
from skokde._persistence import FORMAT
from skokde._upgrade import CREDIT, upgraded
from skokde._validation import check_settings
from skokde.covariance import LowRankCovariance
from stored.store import fitted_models, stored_layout
from structures import STRUCTURES

both_estimators = pytest.mark.parametrize(
    "Estimator", [OnlineKDEDensity, OnlineKDEClassifier], ids=["density", "classifier"]
)
every_structure = pytest.mark.parametrize("covariance_type", quick(STRUCTURES, 2), ids=str)
STORED = Path(__file__).parent / "stored"


def stream(n=130, d=3):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=n)
    return rng.normal(size=(n, d)) + y[:, None], np.array(["a", "b", "c"])[y]


def with_pickle(estimator):
    return pickle.loads(pickle.dumps(estimator))


def with_joblib(estimator):
    file = io.BytesIO()
    joblib.dump(estimator, file, compress=3)
    file.seek(0)
    return joblib.load(file)


def with_skops(estimator):
    skops_io = pytest.importorskip("skops.io")
    # Nothing but the estimators has to be trusted, which run no code that a file brings.
    trusted = ["skokde._density.OnlineKDEDensity", "skokde._classifier.OnlineKDEClassifier"]
    if isinstance(estimator.covariance_type, LowRankCovariance):  # a parameter of a class
        trusted.append("skokde._engine.covariance.LowRankCovariance")
    data = skops_io.dumps(estimator)
    assert set(skops_io.get_untrusted_types(data=data)) <= set(trusted)
    return skops_io.loads(data, trusted=trusted)


@pytest.mark.parametrize(
    "store", quick([with_pickle, with_skops, with_joblib, copy.deepcopy, copy.copy], 2)
)
@pytest.mark.parametrize("n", quick([130, 1, 20, 70], 2), ids=lambda n: f"{n} rows")
@pytest.mark.parametrize("memory", [1.0, "predictive"])
@every_structure
@both_estimators
def test_round_trip(assert_same_model, Estimator, covariance_type, memory, n, store):
    X, y = stream()
    original = Estimator(covariance_type=covariance_type, forgetting_factor=memory)
    original.partial_fit(X[:n], y[:n])
    back = store(original)
    assert back.get_params() == original.get_params()
    assert_same_model(back, original)
    np.testing.assert_array_equal(back.score_samples(X), original.score_samples(X))
    if n < len(X):
        for estimator in (back, original):
            estimator.partial_fit(X[n:], y[n:])
        assert_same_model(back, original)


@pytest.mark.parametrize("store", [with_pickle, with_joblib, with_skops])
@pytest.mark.parametrize("bandwidth", ["okde", 0.5, [1.0, 2.0, 3.0], np.eye(3)], ids=str)
@both_estimators
def test_parameters_come_back(Estimator, bandwidth, store):
    X, y = stream()
    original = Estimator(bandwidth=bandwidth, forgetting_factor=0.99, max_components=40)
    for estimator in (original, original.fit(X, y)):
        back = store(estimator).get_params()
        expected = estimator.get_params()
        np.testing.assert_array_equal(back.pop("bandwidth"), expected.pop("bandwidth"))
        assert back == expected


# ---------------------------------------------------------------------------------- formats


def conditional_means(regressor, X):
    """Of the output, by the joint density, where rows may lack features."""
    joint = regressor._asked_density()._copied({"_n_outputs": 0})
    output, means = np.array([regressor.n_features_in_]), np.empty(len(X))
    for rows, known in patterns(X):
        if len(known):
            some, lasts = X[rows].take(known, axis=1), len(known) == regressor.n_features_in_
            means[rows] = joint._conditional(known, some, output, lasts).mean[:, 0]
        else:
            means[rows] = joint.distribution(dimensions=output.tolist()).mean
    return means


@pytest.mark.parametrize("path", sorted(STORED.glob("*.pkl")), ids=lambda path: path.stem)
def test_stored_files_of_each_format(path, monkeypatch):
    version = int(path.stem.split("-")[1])
    if version < 23:
        # The narrowest kernels are new, and would see the rows that have been learned.
        monkeypatch.setattr("skokde._upgrade.CREDIT", 1e-300)
        monkeypatch.setattr("skokde._engine.experts.SHARE_OF_NARROWEST", 1e-300)
    stored = pickle.loads(path.read_bytes())
    estimator = stored["estimator"]
    # Parameters that came later have their defaults.
    assert estimator.get_params().keys() == type(estimator)().get_params().keys()
    method = getattr(estimator, stored.get("method", "score_samples"))
    scores, expected = method(stored["X"]), stored["scores"]
    if is_regressor(estimator) and version < 23:
        np.testing.assert_allclose(scores, expected, atol=0.1 * np.std(expected))
        if version < 10:
            # By Bayes' rule then; what kernels count where features are known is another rule now.
            scores = conditional_means(estimator, stored["X"])
        else:
            # Where features lacked, what was left out was missing from the weights of kernels.
            has_all = ~np.isnan(stored["X"]).any(axis=1)
            scores, expected = scores[has_all], expected[has_all]
    same = (
        "format-1-classifier.pkl",
        "format-3-density.pkl",
        "format-[45]-density.pkl",
        "format-[6789]-*",
        "format-1[0-5]-*",
    )
    if any(map(path.match, same)):
        np.testing.assert_allclose(scores, expected, rtol=1e-9)
    else:
        # What is scored has changed since: there is a third shape of kernels, and a third memory;
        # kernels follow the samples later, and of few samples some are no longer predicted; single
        # Gaussians are shrunk in other ways.
        np.testing.assert_allclose(scores, expected, atol=0.1)
    monkeypatch.undo()
    X, y = stream()
    X = np.tile(X, 3)[:, : estimator.n_features_in_]
    estimator.partial_fit(X, X.sum(axis=1) if is_regressor(estimator) else y)
    assert np.isfinite(method(stored["X"])).all()


def calibration_of_format_2(d, n_discriminants):
    rng = np.random.default_rng(d)
    n = 4 + n_discriminants
    root = rng.normal(size=(n + 3, n + 3))
    pool = {
        "exponents": rng.uniform(size=n),
        "offsets": rng.normal(size=3),
        "precision": PRIOR_PRECISION * np.eye(n + 3) + root @ root.T,
        "count": 7.0,
    }
    return {"pool": pool, "covariance": np.eye(d), "replay": {"log_densities": np.zeros((9, 4))}}


@pytest.mark.parametrize("n_discriminants", [1, 3])
@pytest.mark.parametrize("d", [1, 2])
def test_pools_of_format_2_have_the_groups_of_today(d, n_discriminants):
    memory = None if n_discriminants == 1 else {}
    calibration = calibration_of_format_2(d, n_discriminants)
    stored = {"_format": 2, "_calibration": calibration, "_class_memory": memory}
    before = copy.deepcopy(stored)
    calibration = upgraded(stored)["_calibration"]
    assert calibration["replay"] is calibration["transformation"] is None
    new = LogLinearPool(**calibration["pool"])
    none = np.zeros(len(CONTAMINATIONS))
    np.testing.assert_array_equal(new.log_likelihoods, none)
    old = LogLinearPool(**stored["_calibration"]["pool"], log_likelihoods=none)
    rng = np.random.default_rng(0)
    logs = rng.normal(size=(4 + n_discriminants, 5, 3))
    of_new = rng.normal(size=(2, 5, 3))
    of_memories = rng.normal(size=(0 if memory is None else 3, 5, 3))
    if d == 1:  # the shapes were the same
        logs[2:4] = logs[:2]
        groups, places = [*of_new, *logs[:2]], [0, 1]
    else:  # the second one is pooled in transformed coordinates alone
        groups, places = [*of_new, *logs[2:4], *logs[:2]], [2, 3, 0, 1]
    # Scales, histograms, and by two kernels two kinds of votes, of a sample and of memories.
    n_new = 9 if memory is None else 15
    new_terms = rng.normal(size=(n_new, 5, 3))
    today = np.array([*groups, *of_memories, *logs[4:], *new_terms])
    # What was known of the others, in their new places.
    n = len(today)
    at = np.r_[2 : len(groups), len(groups) + len(of_memories) : n - n_new, n : n + 3]
    places += range(4, len(old.precision))
    np.testing.assert_array_equal(
        new.precision[np.ix_(at, at)], old.precision[np.ix_(places, places)]
    )
    assert np.linalg.eigvalsh(new.precision)[0] > 0.99 * PRIOR_PRECISION
    prior = np.log([0.2, 0.3, 0.5])
    np.testing.assert_allclose(new.logits(prior, today), old.logits(prior, logs), rtol=1e-12)
    for name, array in before["_calibration"]["pool"].items():  # nothing stored is written to
        np.testing.assert_array_equal(stored["_calibration"]["pool"][name], array)


@pytest.mark.parametrize("d", [1, 2])
def test_experts_of_format_2_keep_their_credit(d):
    counts = np.arange(1.0, 55.0)
    stored = {
        "_format": 2,
        "_state": {
            "mixture": {"means": np.ones((5, d)), "covariances": np.ones((0, d, d))},
            "expert_counts": counts,
            **compressed_by_thresholds_of_14(3, 0),
        },
    }
    estimates, gaussians = counts[:48].reshape(2, 24), counts[48:].reshape(2, 3)
    new = upgraded(stored)["_state"]["expert_counts"]
    assert len(new) == check_settings(OnlineKDEDensity(), d).n_experts
    new_estimates, new_gaussians = new[: -3 * len(new) // 38], new[-3 * len(new) // 38 :]
    new_estimates = new_estimates.reshape(-1, 7, 5)
    # So are the narrowest kernels, whose credit is to be earned.
    assert (new_estimates[:, :, 0] == CREDIT).all()
    new_estimates = new_estimates[:, :, 1:].copy()
    # The lowest threshold is new, and shares the credit of the next one.
    np.testing.assert_array_equal(new_estimates[:, 0], new_estimates[:, 1])
    new_estimates[:, 1] *= 2.0
    new_estimates, new_gaussians = (
        new_estimates[:, 1:].reshape(-1, 24),
        new_gaussians.reshape(-1, 3),
    )
    if d == 1:
        np.testing.assert_array_equal(new_estimates, [estimates.sum(axis=0)])
        np.testing.assert_array_equal(new_gaussians, [gaussians.sum(axis=0)])
    else:
        np.testing.assert_array_equal(new_estimates[:2], estimates)
        np.testing.assert_array_equal(new_gaussians[:2], gaussians)
        others = np.append(new_estimates[2:], new_gaussians[2:])
        assert (others > 0.0).all()
        assert others.sum() < 0.01


def compressed_by_thresholds_of_14(n, level):
    """Fields of a state of so many components: merged by none of the thresholds above the level."""
    return {"n_compressed": n, "level": level, "partitions": np.tile(np.arange(n), (5, 1))}


@pytest.mark.parametrize("covariance_type", ["full", "diag", "lowrank"])
@pytest.mark.parametrize("bandwidth", ["predictive", "plugin"])
@pytest.mark.parametrize("threshold", ["predictive", 0.1])
@pytest.mark.parametrize("d", [1, 2, 20])
def test_states_of_format_14_have_a_lower_threshold(covariance_type, bandwidth, threshold, d):
    settings = check_settings(
        OnlineKDEDensity(
            covariance_type=covariance_type, bandwidth=bandwidth, compression_threshold=threshold
        ),
        d,
    )
    old = {"expert_counts": np.arange(1.0, 2.0), "partitions": np.empty((0, 3)), "level": 0}
    n_widths, n_shapes = settings.bandwidth.n_widths, len(settings.shapes)
    if threshold == "predictive":
        n_widths -= bandwidth == "predictive"  # the narrowest came in format 23
        n_before = settings.n_experts - n_shapes * (7 * settings.bandwidth.n_widths - 6 * n_widths)
        old = compressed_by_thresholds_of_14(3, 2) | {"expert_counts": np.arange(1.0, n_before + 1)}
        old["partitions"][-1] = [0, 0, 1]
    elif bandwidth == "predictive":
        old["expert_counts"] = np.arange(1.0, settings.n_experts + 1)
    new = upgraded({"_format": 14, "_state": old})["_state"]
    if threshold != "predictive":
        assert new is not old
        assert all(new[name] is old[name] for name in old)
        return
    assert len(new["expert_counts"]) == settings.n_experts
    estimates, *others = by_kind(new["expert_counts"], settings)
    assert (estimates[:, :, :-n_widths] == CREDIT).all()
    estimates = estimates[:, :, -n_widths:]
    estimates_before = old["expert_counts"][: estimates[:, 1:].size].reshape(n_shapes, 6, n_widths)
    np.testing.assert_array_equal(estimates[:, 0], 0.5 * estimates_before[:, 0])
    np.testing.assert_array_equal(estimates[:, 1], 0.5 * estimates_before[:, 0])
    np.testing.assert_array_equal(estimates[:, 2:], estimates_before[:, 1:])
    n = sum(part.size for part in others)
    rest = [array[len(array) - n :] for array in (new["expert_counts"], old["expert_counts"])]
    np.testing.assert_array_equal(*rest)
    assert new["level"] == 3
    assert new["partitions"].tolist() == [[0, 1, 2], *old["partitions"].tolist()]


@pytest.mark.parametrize("n_densities", [1, 7])
@pytest.mark.parametrize("n_pending", [0, 2, 5])
def test_memories_of_format_3_stand_for_those_of_today(n_pending, n_densities):
    rng = np.random.default_rng(0)
    rows, counts = rng.normal(size=(5, 2)), np.arange(1.0, 6.0)
    credits = rng.uniform(1.0, 2.0, size=1 + 2 * n_densities)
    recent = {
        "rows": rows,
        "counts": counts,
        "n_pending": n_pending,
        "counts_before": counts[:3],
        "credits": credits,
    }
    stored = {"_format": 3, "_state": {"recent": recent}}
    before = copy.deepcopy(stored)
    new = Recent(**upgraded(stored)["_state"]["recent"])
    assert len(new.pending_rows) == n_pending
    np.testing.assert_array_equal(np.concatenate([new.rows, new.pending_rows]), rows)
    np.testing.assert_array_equal(np.append(new.counts, new.pending_counts), counts)
    np.testing.assert_array_equal(new.counts_before, counts[:3])
    # The longer memory of two stands for the two longer ones of three.
    of_memories = new.credits[1:].reshape(3, n_densities)
    np.testing.assert_array_equal(new.credits[: 1 + n_densities], credits[: 1 + n_densities])
    np.testing.assert_array_equal(of_memories[1], of_memories[2])
    np.testing.assert_allclose(of_memories[1:].sum(axis=0), credits[1 + n_densities :])
    assert stored["_state"]["recent"].keys() == before["_state"]["recent"].keys()


@pytest.mark.parametrize("n_groups", [1, 2, 6])
def test_pools_of_format_3_have_the_memories_of_today(n_groups):
    n = n_groups + 3
    root = np.random.default_rng(0).normal(size=(n + 2, n + 2))
    pool = {
        "exponents": np.arange(1.0, n + 1.0),
        "offsets": np.array([0.5, -0.5]),
        "precision": PRIOR_PRECISION * np.eye(n + 2) + root @ root.T,
        "count": 3.0,
    }
    # Nothing is known of covariances: so are those of low rank, which are not transformed.
    calibration = {"pool": pool, "replay": {}, "covariance": None}
    stored = {"_format": 3, "_calibration": calibration, "_class_memory": {}}
    calibration = upgraded(stored)["_calibration"]
    assert calibration["replay"] is None
    new = LogLinearPool(**calibration["pool"])
    assert not new.exponents[n_groups : n_groups + 3].any()
    at_end = n + 4 + 5 * (n_groups % 2 == 0)  # of scales, and four votes and histograms
    assert not new.exponents[n + 3 : at_end].any()
    kept = np.r_[:n_groups, n_groups + 3 : n + 3, at_end : at_end + 2]
    assert len(new.precision) == at_end + 2
    np.testing.assert_array_equal(new.weights[kept], np.append(pool["exponents"], pool["offsets"]))
    np.testing.assert_array_equal(new.precision[np.ix_(kept, kept)], pool["precision"])
    # Without memories nothing has changed: two more of what were discriminants are groups, which
    # are even in number where there are several.
    stored["_class_memory"] = None
    new = upgraded(stored)["_calibration"]["pool"]["exponents"]
    if n_groups > 1:
        assert len(new) == n + 4


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_pools_of_format_7_have_the_densities_of_today(covariance_type, memory):
    X, y = stream()
    parameters = {"covariance_type": covariance_type, "forgetting_factor": memory}
    pool = OnlineKDEClassifier(**parameters).fit(X, y)._calibration.pool
    n_groups = 6 if covariance_type == "full" else 2
    n_distances = 2 if covariance_type == "full" else 1
    # Of scales, votes and histograms.
    n_new = 3 + n_distances + n_later_votes(n_distances, memory)
    # Densities in transformed coordinates are new as well; of full covariances others are gone.
    n = len(pool.exponents) - n_new - (0 if covariance_type == "full" else 2)
    old = pool._asdict() | {"exponents": np.arange(1.0, n + 1.0), "precision": np.eye(n + 3)}
    covariance = np.eye(3) if covariance_type == "full" else np.ones(3)
    calibration = {"pool": old, "replay": {}, "covariance": covariance}
    class_memory = None if memory == 1.0 else {}
    stored = {"_format": 7, "_calibration": calibration, "_class_memory": class_memory}
    new = upgraded(stored)["_calibration"]["pool"]["exponents"]
    groups = [3.0, 4.0, 1.0, 2.0] if covariance_type == "full" else [1.0, 2.0]
    assert new.tolist() == [0.0, 0.0, *groups, *range(n_groups + 1, n + 1), *n_new * [0.0]]
    assert len(new) == len(pool.exponents)


def every_pool(test):
    test = pytest.mark.parametrize("memory", [1.0, "predictive"])(test)
    test = pytest.mark.parametrize("bandwidth", ["predictive", "okde"])(test)
    structures = ["full", "diag", LowRankCovariance(1)]
    return pytest.mark.parametrize("covariance_type", structures)(test)


def calibration_of_today(covariance_type, bandwidth, memory):
    """A calibration, and how many distances votes of all samples have; a histogram stands last.

    Its pool is without the votes of memories, as before format 14, of a sample, as before 16, and
    by wide kernels, as before 20, without a second histogram, as before 21, and with low rank
    without densities in transformed coordinates, as before 19: it has the places of all else.
    """
    X, y = stream()
    parameters = {"bandwidth": bandwidth, "forgetting_factor": memory}
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, **parameters)
    calibration = classifier.fit(np.hstack([X, X[::-1]]), y)._calibration
    n_votes = 0
    if bandwidth == "predictive":
        n_votes = 1 if covariance_type == "diag" else 2
    later = places_of_later_terms(calibration.pool.exponents, n_votes, memory)
    first = np.arange(n_transformed_since_18(calibration, n_votes))
    pool = pool_without(calibration.pool._asdict(), np.append(first, later))
    return calibration._replace(pool=LogLinearPool(**pool)), n_votes


def places_of_later_terms(exponents, n_votes, memory):
    """In a pool of today: votes of memories and a sample and by wide kernels, and a histogram."""
    n = len(exponents) - 2 * (n_votes > 0)
    votes = np.arange(n - n_votes - n_later_votes(n_votes, memory), n)
    return np.r_[np.setdiff1d(votes, votes[: 2 * n_votes : 2]), n + 1 : len(exponents)]


def n_transformed_since_18(calibration, n_votes):
    """How many densities of low rank are in transformed coordinates, which stand first."""
    height, d = np.atleast_2d(calibration.covariance).shape
    return 4 if 1 < height < d and n_votes else 0


def n_later_votes(n_votes, memory):
    """How many votes there are besides those of all samples by narrow kernels, if there are any."""
    of_others = 4 if memory == "predictive" else 1
    return n_votes + 2 * of_others if n_votes else 0


def pool_without(pool, places):
    kept = np.delete(np.arange(len(pool["precision"])), places)
    precision = pool["precision"][np.ix_(kept, kept)]
    return pool | {"exponents": np.delete(pool["exponents"], places), "precision": precision}


def upgraded_pool(number, exponents, precision, today, n_votes, memory):
    """Of a calibration of an earlier format, with today's covariance.

    Without the votes of memories, or of a sample, and by wide kernels, a second histogram, and
    densities of low rank in transformed coordinates, which are seen to have learned nothing.
    """
    pool = today.pool._asdict() | {"exponents": exponents, "precision": precision}
    calibration = {"pool": pool, "replay": {}, "covariance": today.covariance, "histograms": None}
    class_memory = None if memory == 1.0 else {}
    stored = {"_format": number, "_calibration": calibration, "_class_memory": class_memory}
    before = copy.deepcopy(stored)
    new = upgraded(stored)["_calibration"]
    np.testing.assert_equal(stored, before)  # nothing stored is written to
    n_first = n_transformed_since_18(today, n_votes)
    # What earlier rows have does not concern the votes.
    assert new["replay"] == (None if n_first else {})
    if number < 12:
        assert new["feature_weights"] is None
    if number < 13:
        assert new["histograms"] is None
    later = places_of_later_terms(new["pool"]["exponents"], n_votes, memory)
    later = np.append(np.arange(n_first), later)
    assert not new["pool"]["exponents"][later].any()
    unlearned = PRIOR_PRECISION * np.eye(len(new["pool"]["precision"]))[later]
    np.testing.assert_array_equal(new["pool"]["precision"][later], unlearned)
    pool = pool_without(new["pool"], later)
    assert pool["exponents"].shape == today.pool.exponents.shape
    assert pool["precision"].shape == today.pool.precision.shape
    return pool


@every_pool
def test_pools_of_format_8_have_the_votes_of_today(covariance_type, bandwidth, memory):
    today, n_votes = calibration_of_today(covariance_type, bandwidth, memory)
    n_new = 1 + n_votes + (n_votes > 0)
    n = len(today.pool.exponents) - n_new
    exponents = np.arange(1.0, n + 1.0)
    new = upgraded_pool(8, exponents, np.eye(n + 3), today, n_votes, memory)
    assert new["exponents"].tolist() == [*exponents, *n_new * [0.0]]


@every_pool
def test_pools_of_format_9_have_the_scales_of_today(covariance_type, bandwidth, memory):
    today, n_votes = calibration_of_today(covariance_type, bandwidth, memory)
    # Votes of features are new as well, before whitened ones, and histograms after them.
    has_votes, n_new = n_votes > 0, 1 + (n_votes == 2)
    n = len(today.pool.exponents) - n_new - has_votes
    root = np.random.default_rng(0).normal(size=(n + 3, n + 3))
    old = root @ root.T
    new = upgraded_pool(9, np.arange(1.0, n + 1.0), old, today, n_votes, memory)
    scale = n - has_votes
    expected = [*range(1, scale + 1), *n_new * [0.0], *(0.5 * np.arange(scale + 1, n + 1))]
    assert new["exponents"].tolist() == [*expected, *has_votes * [0.0]]
    places, kept = np.arange(n + n_new + has_votes + 3), np.ones(n + 3, dtype=bool)
    added = np.r_[scale : scale + n_new, n + n_new : n + n_new + has_votes]
    at = np.delete(places, added)
    kept[scale:n] = False  # votes had another unit
    precision, same = new["precision"][np.ix_(at, at)], np.ix_(kept, kept)
    np.testing.assert_allclose(precision[same], old[same], rtol=1e-12, atol=1e-12)
    assert (new["precision"][added, added] == PRIOR_PRECISION).all()


def pool_of_one_kind_of_votes(today, n_votes):
    """What formats 10 and 11 had: exponents, a precision, and the places of both today."""
    n_today, n_new = len(today.pool.exponents), int(n_votes == 2)
    new = np.r_[n_today - 3 : n_today - 3 + n_new, n_today - (n_votes > 0) : n_today]
    at = np.delete(np.arange(n_today + 3), new)
    n = len(at) - 3
    root = np.random.default_rng(0).normal(size=(n + 3, n + 3))
    return np.arange(1.0, n + 1.0), root @ root.T, at


@every_pool
def test_pools_of_format_10_have_the_votes_in_the_unit_of_today(covariance_type, bandwidth, memory):
    today, n_votes = calibration_of_today(covariance_type, bandwidth, memory)
    exponents, learned, at = pool_of_one_kind_of_votes(today, n_votes)
    n = len(exponents)
    precision = PRIOR_PRECISION * np.eye(n + 3) + learned
    new = upgraded_pool(10, exponents, precision, today, n_votes, memory)
    unit = np.ones(n + 3)
    if n_votes:
        unit[n - 1] = 0.5
    np.testing.assert_array_equal(new["exponents"][at[:n]], unit[:n] * exponents)
    # What predictions say of weights, which are the same but for their units, is as it was.
    weights = np.random.default_rng(1).normal(size=n + 3)
    curvature = new["precision"][np.ix_(at, at)] - PRIOR_PRECISION * np.eye(n + 3)
    predicted = unit * weights @ curvature @ (unit * weights)
    np.testing.assert_allclose(predicted, weights @ learned @ weights)


@every_pool
def test_pools_of_format_11_have_both_kinds_of_votes(covariance_type, bandwidth, memory):
    today, n_votes = calibration_of_today(covariance_type, bandwidth, memory)
    exponents, old, at = pool_of_one_kind_of_votes(today, n_votes)
    new = upgraded_pool(11, exponents, old, today, n_votes, memory)
    of_features, histograms = [0.0] * (n_votes == 2), [0.0] * (n_votes > 0)
    expected = [*exponents[:-1], *of_features, exponents[-1], *histograms]
    assert new["exponents"].tolist() == expected
    np.testing.assert_array_equal(new["precision"][np.ix_(at, at)], old)


@every_pool
def test_pools_of_format_13_have_the_votes_of_today(covariance_type, bandwidth, memory):
    today, n_votes = calibration_of_today(covariance_type, bandwidth, memory)
    exponents, root = np.arange(1.0, len(today.pool.exponents) + 1.0), today.pool.precision
    old = root @ root.T
    new = upgraded_pool(13, exponents, old, today, n_votes, memory)
    assert new["exponents"].tolist() == exponents.tolist()
    np.testing.assert_array_equal(new["precision"], old)
    classifier = OnlineKDEClassifier(
        covariance_type=covariance_type, bandwidth=bandwidth, forgetting_factor=memory
    )
    X, y = stream()
    told = classifier.fit(np.hstack([X, X[::-1]]), y).calibration_weights_
    assert told["neighbors"].shape == ((n_votes + n_later_votes(n_votes, memory)) // 2, 2)


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@pytest.mark.parametrize("n_shapes", [2, 4])
def test_pools_of_low_rank_of_format_18_have_the_densities_of_today(n_shapes, memory):
    today, _ = calibration_of_today(LowRankCovariance(1), "predictive", memory)
    X, y = stream()
    classifier = OnlineKDEClassifier(
        covariance_type=LowRankCovariance(1), forgetting_factor=memory
    ).fit(np.hstack([X, X[::-1]]), y)
    n_today = len(classifier._calibration.pool.exponents)
    n_gone = 2 * (n_shapes - 1)  # of the data's coordinates
    # New are votes by wide kernels, those of a sample beside memories, and then a histogram.
    n_wide, n_sample = (3, 0) if memory == 1.0 else (5, 2)
    n = n_today - 4 + n_gone - n_wide - n_sample - 1
    root = np.random.default_rng(0).normal(size=(n + 3, n + 3))
    old = today.pool._asdict()
    old |= {"exponents": np.arange(1.0, n + 1.0), "precision": root @ root.T}
    calibration = {"pool": old, "steady": {}, "replay": {}, "covariance": today.covariance}
    calibration["histograms"] = None
    class_memory = None if memory == 1.0 else {}
    stored = {"_format": 18, "_calibration": calibration, "_class_memory": class_memory}
    new = upgraded(stored)["_calibration"]
    kept = np.delete(np.arange(n + 3), np.arange(2, 2 + n_gone))
    exponents, precision = new["pool"]["exponents"], new["pool"]["precision"]
    votes = [weight for of_narrow in range(n - n_wide, n) for weight in (of_narrow, 0.0)]
    others = [1.0, 2.0, *range(3 + n_gone, n - n_wide)]
    assert exponents.tolist() == [*[0.0] * 4, *others, *votes, *n_sample * [0.0], n, 0.0]
    sample = n_today - 2 - n_sample
    of_wide = np.arange(sample - 2 * n_wide + 1, sample, 2)
    of_new = np.r_[:4, of_wide, sample : n_today - 2, n_today - 1]
    of_old = np.delete(np.arange(n_today + 3), of_new)
    np.testing.assert_array_equal(
        precision[np.ix_(of_old, of_old)], old["precision"][np.ix_(kept, kept)]
    )
    np.testing.assert_array_equal(precision[of_new], PRIOR_PRECISION * np.eye(n_today + 3)[of_new])
    assert new["replay"] is None
    assert new["steady"] is None


@every_pool
@pytest.mark.parametrize("number", [19, 20])
def test_pools_have_votes_by_wide_kernels_and_another_histogram(
    covariance_type, bandwidth, memory, number
):
    X, y = stream()
    parameters = {"bandwidth": bandwidth, "forgetting_factor": memory}
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, **parameters)
    stored = classifier.fit(np.hstack([X, X[::-1]]), y).__getstate__()
    today, told = stored["_calibration"], classifier.calibration_weights_
    # Wide ones stand after narrow ones of the same voters, and histograms after all votes. Beside
    # memories, those of a sample are new as well.
    n, n_votes = len(today["pool"]["exponents"]), told["neighbors"].size
    first = n - len(told["histograms"])
    sample = first - 2 * (memory == "predictive" and n_votes > 0)
    wide = np.arange(first - n_votes + 1, sample, 2) if number < 20 else []
    later = np.r_[wide, sample:first, first + 1 : n].astype(int)
    old = today | {"pool": pool_without(today["pool"], later)}
    if today["steady"] is not None:
        steady = today["steady"]
        old["steady"] = steady | {"pool": pool_without(steady["pool"], later)}
    if first < n:
        histograms = today["histograms"]
        old["histograms"] = histograms | {"counts": histograms["counts"][0]}
    before = copy.deepcopy(stored | {"_format": number, "_calibration": old})
    new = upgraded(before)["_calibration"]
    np.testing.assert_equal(before["_calibration"], old)  # nothing stored is written to
    pools = [(new["pool"], old["pool"])]
    if today["steady"] is not None:
        pools.append((new["steady"]["pool"], old["steady"]["pool"]))
    for of_new, of_old in pools:
        assert len(of_new["exponents"]) == n
        assert not of_new["exponents"][later].any()
        unlearned = PRIOR_PRECISION * np.eye(len(of_new["precision"]))[later]
        np.testing.assert_array_equal(of_new["precision"][later], unlearned)
        np.testing.assert_equal(pool_without(of_new, later), of_old)
    if first < n:  # both memories start with what the short one has
        both = np.stack(2 * [histograms["counts"][0]])
        np.testing.assert_array_equal(new["histograms"]["counts"], both)
    loaded = OnlineKDEClassifier()
    loaded.__setstate__(before)
    assert np.isfinite(loaded.predict_log_proba(np.hstack([X, X[::-1]]))).all()


@pytest.mark.parametrize("n_shapes", [2, 4])
def test_gaussians_of_format_5_keep_their_credit(n_shapes):
    counts = np.arange(1.0, 1.0 + 29 * n_shapes)
    of_low_rank = {"mixture": {"covariances": np.ones((0, 3, 8))}, "expert_counts": counts}
    full = {"mixture": {"covariances": np.ones((0, 8, 8))}, "expert_counts": counts}
    stored = {"_format": 5, "_state": of_low_rank, "_other": [full]}
    before = copy.deepcopy(stored)
    state = upgraded(stored)
    new = state["_state"]["expert_counts"]
    estimates, gaussians = np.split(new, [24 * n_shapes])
    np.testing.assert_array_equal(estimates, counts[: 24 * n_shapes])
    old = counts[24 * n_shapes :].reshape(n_shapes, 5)
    expected = np.column_stack([old[:, :3].sum(axis=1), old[:, 3:]])
    np.testing.assert_array_equal(gaussians.reshape(n_shapes, 3), expected)
    np.testing.assert_array_equal(state["_other"][0]["expert_counts"], counts)
    np.testing.assert_array_equal(
        stored["_state"]["expert_counts"], before["_state"]["expert_counts"]
    )


def test_each_format_is_among_the_stored_files():
    names = {
        f"format-{n}-{kind}{memory}.pkl"
        for n in range(1, FORMAT + 1)
        for kind in ("density", "classifier")
        for memory in (("", "-memory") if n > 1 else ("",))
    }
    assert names <= {path.name for path in STORED.iterdir()}


def test_a_change_of_layout_has_raised_the_format():
    for kind, estimator, *_ in fitted_models():
        with (STORED / f"format-{FORMAT}-{kind}.pkl").open("rb") as file:
            stored = pickle.load(file)
        assert stored_layout(estimator) == stored["layout"], kind


def test_stored_files_are_written_on_demand_only():
    before = {path: path.stat().st_mtime_ns for path in STORED.iterdir()}
    runpy.run_path(str(STORED / "store.py"), run_name="imported")
    assert {path: path.stat().st_mtime_ns for path in STORED.iterdir()} == before


def stored_state(Estimator, n=130, **parameters):
    X, y = stream()
    return copy.deepcopy(Estimator(**parameters).fit(X[:n], y[:n]).__getstate__())


@both_estimators
def test_a_newer_format_is_refused(Estimator):
    state = stored_state(Estimator)
    with pytest.raises(ValueError, match=rf"newer skokde, in format {FORMAT + 1}.* Update skokde"):
        Estimator().__setstate__(state | {"_format": FORMAT + 1})


@pytest.mark.parametrize("number", [None, 0, -1, "1", 1.5])
@both_estimators
def test_no_format_at_all_is_refused(Estimator, number):
    state = stored_state(Estimator)
    with pytest.raises(ValueError, match=f"stored {Estimator.__name__} is damaged"):
        Estimator().__setstate__(state | {"_format": number})


# ----------------------------------------------------------------------------------- damage


def leaves(value, path=()):
    """Paths to whatever is stored, containers included."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield from leaves(item, (*path, key))


def put(state, path, change):
    """A copy of what is stored with one thing changed, or None where nothing can be."""
    state = copy.deepcopy(state)
    place = state
    for key in path[:-1]:
        place = place[key]
    try:
        new = change(place[path[-1]])
    except (AttributeError, LookupError, TypeError, ValueError):
        return None
    place[path[-1]] = new
    return state


def with_first(value):
    def change(array):
        array = array.astype(np.float64, casting="safe")  # a copy
        array.flat[0] = value
        return array

    return change


DAMAGE = {
    "gone": lambda value: None,
    "text": lambda value: "text",
    "a list": lambda value: [1.0],
    "a number": lambda value: 7.5,
    "minus one": lambda value: -1,
    "huge": lambda value: 2**40,
    "shorter": lambda array: array[:-1],
    "longer": lambda array: np.concatenate([array, array]),
    "a feature less": lambda array: np.ascontiguousarray(array[..., :-1]),
    "a dimension more": lambda array: array[None].copy(),
    "float32": lambda array: array.astype(np.float32),
    "objects": lambda array: array.astype(object),
    "strided": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "NaN": with_first(np.nan),
    "infinity": with_first(np.inf),
    "negative": with_first(-1e9),
}


@pytest.mark.parametrize("damage", quick(DAMAGE))
@both_estimators
def test_damage_is_found_or_does_no_harm(Estimator, damage):
    X, y = stream()
    parameters = Estimator().get_params()
    memory = {"forgetting_factor": "predictive"}
    # In a window, too.
    states = stored_state(Estimator), stored_state(Estimator, 65), stored_state(Estimator, **memory)
    n_found = n_harmless = 0
    for state in states:
        for path in leaves(state):
            if path[0] in parameters or path[0].startswith("_sklearn"):
                continue
            damaged = put(state, path, DAMAGE[damage])
            if damaged is None:
                continue
            estimator = Estimator()
            try:
                estimator.__setstate__(damaged)
            except ValueError:
                n_found += 1
                continue
            n_harmless += 1
            # What is not found goes on with another model, perhaps, but soundly.
            assert np.isfinite(estimator.score_samples(X)).all(), path
            estimator.partial_fit(X, y)
            assert np.isfinite(estimator.score_samples(X)).all(), path
    assert n_found > n_harmless, (n_found, n_harmless)


def test_predicted_rows_of_another_number_of_densities_are_left_out():
    X, y = stream()
    state = stored_state(OnlineKDEClassifier)
    replay = state["_calibration"]["replay"]
    replay["log_densities"] = np.ascontiguousarray(replay["log_densities"][:, :-1])
    classifier = OnlineKDEClassifier()
    classifier.__setstate__(state)
    classifier.partial_fit(X, y)
    assert np.isfinite(classifier.predict_log_proba(X)).all()
    assert (
        classifier._calibration.replay.log_densities.shape[1]
        == replay["log_densities"].shape[1] + 1
    )
