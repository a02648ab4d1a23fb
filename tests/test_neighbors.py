"""Votes of the nearest samples, and what they are worth to classes."""

import numpy as np
import pytest
from scipy.linalg import inv, sqrtm
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors as SklearnNeighbors

import skokde._pooled_ratios as pooled_ratios
from marks import quick
from skokde import OnlineKDEClassifier
from skokde._engine import neighbors as module
from skokde._engine.covariance import STRUCTURES, LowRankCovariance
from skokde._engine.discriminants import Discriminant
from skokde._engine.mixture import Mixture
from skokde._engine.neighbors import (
    DOUBLED_AT,
    N_NEAREST,
    N_VOTE_WIDTHS,
    PRIOR_COUNT,
    VOTE_WIDTH,
    NeighborMetric,
    Neighbors,
)
from skokde._engine.recent import LEAST_WEIGHT
from skokde._engine.state import Settings
from skokde._replay import N_NEWEST, NewestRows

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))
FULL = STRUCTURES["full"]
SHARES = np.array([0.5, 0.3, 0.2])


def covariance_of(d, covariance_type):
    root = np.random.default_rng(d).normal(size=(d, d))
    covariance = root @ root.T + np.eye(d)
    return covariance if covariance_type == "full" else np.diag(covariance)


COUNTS = 10.0 * SHARES


def metric_of(covariance, structure, means, weights=None):
    """Whitened, unless there are weights of features."""
    return NeighborMetric.of(Discriminant.of(means, covariance, structure), COUNTS, weights)


def metric(d, covariance_type="full", means=None):
    """That of classes with the same mean, by default; of features, if it is diagonal."""
    means = np.ones((3, d)) if means is None else means
    weights = np.ones(d) if covariance_type == "diag" else None
    return metric_of(covariance_of(d, covariance_type), STRUCTURES[covariance_type], means, weights)


def means_of(d):
    return np.random.default_rng(d + 1).normal(scale=2.0, size=(3, d))


def diracs(X, counts=None):
    counts, empty = np.ones(len(X)) if counts is None else counts, Mixture.empty(X.shape[1], FULL)
    return empty._replace(counts=counts, means=X)


def rows_of_classes(n=100, d=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), (n * SHARES).astype(int))
    return rng.normal(size=(len(y), d)) + 0.5 * y[:, None], y


def neighbors_of(X, y, metric):
    return Neighbors.of([diracs(X[y == c]) for c in range(3)], metric)


def clumps(n, d=6, n_classes=5, seed=0):
    """Rows from many small clumps, of which each class has its own."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(1).normal(size=(40 * n_classes, d))
    numbers = rng.integers(0, len(centers), size=n)
    return centers[numbers] + 0.3 * rng.normal(size=(n, d)), numbers % n_classes


# ------------------------------------------------------------------------------------- votes


@both_structures
def test_near_samples_vote_by_kernels(covariance_type):
    (X, y), rows = rows_of_classes(), rows_of_classes(seed=1)[0]
    coordinates = metric(3, covariance_type, means_of(3))
    points = coordinates.points(X)
    near = SklearnNeighbors(n_neighbors=N_NEAREST).fit(points)
    distances = near.kneighbors(coordinates.points(rows))[0]
    squares = euclidean_distances(coordinates.points(rows), points) ** 2
    ratios = neighbors_of(X, y, coordinates).log_ratios(rows)
    assert N_VOTE_WIDTHS == 2
    for width, of_width in zip((VOTE_WIDTH / 2, VOTE_WIDTH), ratios, strict=True):
        widths = width * distances[:, [-1]]
        kernels = np.exp(-0.5 * (squares - distances[:, [0]] ** 2) / widths**2)
        kernels *= np.minimum(1.0, N_NEAREST / kernels.sum(axis=1, keepdims=True))
        votes = np.column_stack([kernels[:, y == c].sum(axis=1) for c in range(3)])
        totals = votes.sum(axis=1, keepdims=True) + PRIOR_COUNT
        expected = np.log((votes / SHARES + PRIOR_COUNT) / totals)
        np.testing.assert_allclose(of_width, expected, atol=1e-9)


def test_no_row_has_its_own_vote():
    (X, y), coordinates = rows_of_classes(), metric(3, means=means_of(3))
    model = neighbors_of(X, y, coordinates)
    own = np.where(np.arange(len(X)) % 2, y, -1)
    ratios = model.log_ratios(X, own)
    for i, (row, code) in enumerate(zip(X, y, strict=True)):
        others = np.arange(len(X)) != i
        without = neighbors_of(X[others], y[others], coordinates)
        if own[i] >= 0:  # but for the shares, of which one sample more or less changes little
            expected = without._replace(shares=model.shares).log_ratios(row[None])
        else:
            expected = model.log_ratios(row[None])
            votes = np.exp(expected[:, 0, code])
            assert (votes > 1.0 / (N_NEAREST + PRIOR_COUNT)).all()
        np.testing.assert_allclose(ratios[:, i], expected[:, 0])


def test_equal_votes_for_equal_distances():
    row = np.zeros((1, 2))
    at = [diracs(row, np.array([count])) for count in (30.0, 18.0, 12.0)]
    np.testing.assert_allclose(Neighbors.of(at, metric(2)).log_ratios(row), 0.0, atol=1e-9)
    other = [at[0], diracs(row + 1.0, np.array([18.0])), at[2]]
    for ratios in Neighbors.of(other, metric(2)).log_ratios(row)[:, 0]:
        assert ratios[0] == pytest.approx(ratios[2])
        assert ratios[1] < 0.0 < ratios[0]


def test_features_that_are_not_known_do_not_count():
    (X, y), means = rows_of_classes(), means_of(3)
    model = neighbors_of(X, y, metric(3, means=means))
    rows = rows_of_classes(seed=1)[0][:9]
    rows[3:6, 1], rows[6:, :] = np.nan, np.nan
    ratios = model.log_ratios(rows)
    np.testing.assert_array_equal(ratios[:, :3], model.log_ratios(rows[:3]))
    known = [0, 2]
    covariance = covariance_of(3, "full")[np.ix_(known, known)]
    marginal = neighbors_of(X[:, known], y, metric_of(covariance, FULL, means.take(known, axis=1)))
    np.testing.assert_allclose(ratios[:, 3:6], marginal.log_ratios(rows[3:6].take(known, axis=1)))
    np.testing.assert_allclose(ratios[:, 6:], 0.0, atol=1e-12)


@pytest.mark.parametrize("far", [1e12, 1e160, 1e300])
def test_far_rows_and_samples_have_finite_ratios(far):
    X, y = rows_of_classes()
    X[:5] = far
    rows = np.array([[far, 0.0, 0.0], [-far, far, far], [0.0, 0.0, 0.0]])
    model = neighbors_of(X, y, metric(3, means=means_of(3)))
    for some in (rows, X):
        assert np.isfinite(model.log_ratios(some, np.full(len(some), 0))).all()


def test_forgotten_samples_hardly_vote():
    X, y = rows_of_classes()
    faded = [diracs(X[y == c], np.full((y == c).sum(), 1e-200)) for c in range(3)]
    np.testing.assert_allclose(Neighbors.of(faded, metric(3)).log_ratios(X), 0.0, atol=1e-12)


# ------------------------------------------------------------------------------------ distances


def square_distances(X, covariance, means, *, is_diagonal):
    """By the formula, with the symmetric root of the covariance between the classes."""
    whiten = inv(sqrtm(covariance))
    deviations = (means - SHARES @ means) @ whiten
    between = deviations.T @ (SHARES[:, None] * deviations)
    if is_diagonal:
        between = np.diag(np.diag(between))
    points = X @ whiten
    stretched = points @ (np.eye(len(covariance)) + sqrtm(between).real / DOUBLED_AT)
    squares = [
        [(p - q) @ (s - t) for q, t in zip(points, stretched, strict=True)]
        for p, s in zip(points, stretched, strict=True)
    ]
    return np.array(squares)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_distances_are_longer_where_means_differ(covariance_type, d):
    X, means = rows_of_classes(20, d)[0], means_of(d)
    covariance, is_diagonal = covariance_of(d, covariance_type), covariance_type == "diag"
    matrix = np.diag(covariance) if is_diagonal else covariance
    expected = square_distances(X, matrix, means, is_diagonal=is_diagonal)
    coordinates = metric(d, covariance_type, means)
    distances = euclidean_distances(coordinates.points(X))
    np.testing.assert_allclose(distances**2, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(coordinates.frame.points_back(coordinates.points(X)), X)
    same = metric(d, covariance_type)
    frame = same.discriminant.frame
    np.testing.assert_allclose(same.points(X), frame.points(X), rtol=1e-12)
    # A coordinate transformation: its determinant is that of volumes.
    linear = coordinates.frame.matrix
    volume = np.linalg.slogdet(linear)[1] if linear.ndim == 2 else np.log(linear).sum()
    volume -= np.log(coordinates.frame.spread).sum()
    assert coordinates.frame.log_det == pytest.approx(volume)


def test_distances_of_low_rank_are_those_of_the_same_full_covariance():
    d, structure = 40, LowRankCovariance(2)
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(2, d))
    covariance = np.vstack([1.0 + np.square(directions).sum(axis=0), directions])
    X, means = rng.normal(size=(9, d)), means_of(d)
    low_rank = metric_of(covariance, structure, means)
    full = metric_of(np.eye(d) + directions.T @ directions, FULL, means)
    distances = [euclidean_distances(metric.points(X)) for metric in (low_rank, full)]
    np.testing.assert_allclose(*distances, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(low_rank.frame.points_back(low_rank.points(X)), X)


@pytest.mark.parametrize("covariance_type", ["full", "diag", "lowrank"])
def test_distances_of_features_have_their_weights_and_no_correlations(covariance_type):
    d, weights = 5, np.array([0.1, 1.0, 3.0, 2.0, 0.5])
    structure, dense = STRUCTURES[covariance_type], covariance_of(d, "full")
    held = {"full": dense, "diag": np.diag(dense).copy()}.get(covariance_type)
    if held is None:
        structure, held = LowRankCovariance(1), np.vstack([np.diag(dense), np.ones(d)])
    X, means = rows_of_classes(20, d)[0], means_of(d)
    coordinates = metric_of(held, structure, means, weights)
    # Weights are besides how far the means spread, which goes by the variances.
    spreads = np.sqrt(SHARES @ np.square(means - SHARES @ means) / np.diag(dense))
    points = X / np.sqrt(np.diag(dense)) * weights * np.sqrt(1.0 + spreads / DOUBLED_AT)
    distances = euclidean_distances(coordinates.points(X))
    np.testing.assert_allclose(distances, euclidean_distances(points), rtol=1e-9, atol=1e-9)
    known = np.array([1, 3])
    of_known = coordinates.marginal(known).points(X.take(known, axis=1))
    distances = euclidean_distances(of_known)
    np.testing.assert_allclose(distances, euclidean_distances(points[:, known]), rtol=1e-6)


@both_structures
def test_features_that_do_not_tell_classes_apart_count_for_less(covariance_type, monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=900)
    X = rng.normal(size=(900, 12))
    X[:, 0] += 1.5 * y
    X[:, 1] += 1.5 * (y == 1)

    # Which would make up for it.
    monkeypatch.setattr(pooled_ratios, "learn_feature_weights", lambda *_, **_units: np.ones(12))

    def loss():
        model = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:300], y[:300])
        number = 0 if covariance_type == "diag" else 1
        ratios = model._scorer().log_ratios_of_neighbors(X[300:], number)
        shares = np.exp(ratios[-1])
        return log_loss(y[300:], shares / shares.sum(axis=1, keepdims=True))

    with_metric = loss()
    monkeypatch.setattr(module, "DOUBLED_AT", 1e9)
    assert with_metric < 0.95 * loss()


# ------------------------------------------------------------------------------- the classifier


@both_structures
def test_votes_tell_many_clumps_apart(covariance_type, monkeypatch):
    (X, y), (rows, labels) = clumps(500), clumps(1000, seed=2)
    with_votes = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    assert with_votes.calibration_weights_["neighbors"].sum() > 0.0
    monkeypatch.setattr(Settings, "n_distances", 0)
    without = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    assert without.calibration_weights_["neighbors"].size == 0
    loss_without = log_loss(labels, without.predict_proba(rows))
    monkeypatch.undo()
    assert log_loss(labels, with_votes.predict_proba(rows)) < 0.95 * loss_without


@both_structures
def test_wide_kernels_count_for_more_where_many_samples_tell_more(covariance_type):
    share_of_wide = {"right": [], "wrong": []}
    for seed in range(3):
        X, y = clumps(800, n_classes=3, seed=seed)
        rng = np.random.default_rng(seed)
        wrong = np.where(rng.random(len(y)) < 0.3, rng.integers(3, size=len(y)), y)
        for labels, shares in zip((y, wrong), share_of_wide.values(), strict=True):
            model = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, labels)
            narrow, wide = model.calibration_weights_["neighbors"].sum(axis=0)
            shares.append(wide / (narrow + wide))
    assert np.mean(share_of_wide["right"]) < 0.25
    assert np.mean(share_of_wide["wrong"]) > 0.35


@pytest.mark.parametrize(
    "parameters", [{"bandwidth": "okde"}, {"compression_threshold": 0.1, "bandwidth": "plugin"}]
)
def test_no_votes_where_the_bandwidth_is_not_predicted(parameters):
    X, y = clumps(300)
    model = OnlineKDEClassifier(**parameters).fit(X, y)
    assert model.calibration_weights_["neighbors"].size == 0


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@both_structures
def test_single_rows_have_the_votes_of_many(covariance_type, memory):
    X, y = clumps(400)
    model = OnlineKDEClassifier(covariance_type=covariance_type, forgetting_factor=memory)
    for row, label in zip(X[:60], y[:60], strict=True):  # what is known of a class goes on
        model.partial_fit(row[None], [label], classes=range(5))
        model.predict_proba(row[None])
    model.partial_fit(X[60:], y[60:])
    scorer = model._scorer()
    settings, discriminants = scorer.settings, scorer.discriminants()
    weights = settings.feature_weights
    factors = [] if memory == 1.0 else [0.9, 0.97, 0.997]
    n_distances = 2 if covariance_type == "full" else 1
    sample = n_distances + len(factors)
    assert settings.n_voters == sample + 1
    assert settings.n_votes == N_VOTE_WIDTHS * settings.n_voters
    for number in range(settings.n_voters):
        mixtures = [density._mixture for density in model.estimators_]
        if n_distances <= number < sample:
            factor = factors[number - n_distances]
            mixtures = [newest_of(X[y == code], factor) for code in range(5)]
        ratios = scorer.log_ratios_of_neighbors(X, number)
        one_by_one = [scorer.log_ratios_of_neighbors(row[None], number) for row in X]
        np.testing.assert_array_equal(ratios, np.concatenate(one_by_one, axis=1))
        of_samples = discriminants.linear[0], discriminants.counts
        metric = NeighborMetric.of(*of_samples, None if number == 1 < n_distances else weights)
        expected = Neighbors.of(mixtures, metric).log_ratios(X)
        if number == sample:  # few samples are merged: it does not vote
            expected = np.zeros((N_VOTE_WIDTHS, len(X), 5))
        elif number == n_distances:  # the newest rows of all classes
            counts = 0.9 ** np.arange(len(X))[::-1]
            newest = (array[-N_NEWEST:] for array in (X, counts, y))
            expected = Neighbors.of_rows(*newest, 5, metric).log_ratios(X)
        if number < n_distances:
            np.testing.assert_array_equal(ratios, expected)
        else:
            np.testing.assert_allclose(ratios, expected, rtol=1e-12, atol=1e-12)


def newest_of(rows, factor):
    """Samples with powers of a forgetting factor as their counts, but those that don't matter."""
    counts = factor ** np.arange(len(rows))[::-1]
    known = counts > LEAST_WEIGHT
    return diracs(rows[known], counts[known])


def moving_clumps(n, d=4, n_classes=3):
    """Rows of clumps that move through a box, each straight ahead until it is reflected."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-1.0, 1.0, size=(8 * n_classes, d))
    directions = rng.normal(size=centers.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    numbers = rng.integers(len(centers), size=n)
    unbounded = centers[numbers] + 0.002 * np.arange(n)[:, None] * directions[numbers]
    in_box = np.abs((unbounded + 1.0) % 4.0 - 2.0) - 1.0
    return in_box + 0.1 * rng.normal(size=(n, d)), numbers % n_classes


def test_memories_vote_where_clumps_move(monkeypatch):
    X, y = moving_clumps(1500)

    def losses_of_blocks():
        model = OnlineKDEClassifier(forgetting_factor="predictive").fit(X[:500], y[:500])
        for start in range(500, 1500, 20):
            block = slice(start, start + 20)
            yield log_loss(y[block], model.predict_proba(X[block]), labels=range(3))
            model.partial_fit(X[block], y[block])
        of_memories = model.calibration_weights_["neighbors"][3:]
        assert (of_memories.sum() > 0.1) == (len(of_memories) > 0)

    with_memories = np.mean(list(losses_of_blocks()))
    monkeypatch.setattr(Settings, "n_voters", Settings.n_distances)
    assert with_memories < 0.95 * np.mean(list(losses_of_blocks()))


def test_newest_rows_vote_where_classes_change_places(monkeypatch):
    rng = np.random.default_rng(0)
    centers, place = rng.uniform(-5.0, 5.0, size=(12, 2)), np.arange(12)
    X, y = np.empty((1000, 2)), np.empty(1000, dtype=int)
    for i in range(1000):
        if i % 200 == 0:
            place = rng.permutation(12)
        y[i] = rng.integers(12)
        X[i] = centers[place[y[i]]] + 0.3 * rng.normal(size=2)

    def losses_one_by_one():
        model = OnlineKDEClassifier(forgetting_factor="predictive")
        for i in range(1000):
            if i >= 200:
                yield -model.predict_log_proba(X[i][None])[0, y[i]]
            model.partial_fit(X[i][None], y[i : i + 1], classes=range(12))

    with_newest = np.mean(list(losses_one_by_one()))
    monkeypatch.setattr(NewestRows, "complete", lambda newest: newest.of_classes(np.arange(0)))
    assert with_newest < 0.9 * np.mean(list(losses_one_by_one()))


def test_classes_without_a_sample_have_no_votes_against_them():
    X, y = rows_of_classes()
    known = y != 1
    counts, codes = np.ones(known.sum()), y[known]
    ratios = Neighbors.of_rows(X[known], counts, codes, 3, metric(3)).log_ratios(X)
    two = Neighbors.of_rows(X[known], counts, codes // 2, 2, metric(3)).log_ratios(X)
    assert (ratios[..., 1] == 0.0).all()
    np.testing.assert_array_equal(ratios[..., [0, 2]], two)
    none = Neighbors.of_rows(X[:0], counts[:0], codes[:0], 3, metric(3)).log_ratios(X)
    assert (none == 0.0).all()
    assert none.shape == (N_VOTE_WIDTHS, len(X), 3)


def test_newest_rows_are_kept_in_order():
    X, y = clumps(300)
    X[250] = X[249]
    y[250] = y[249]
    X[260, 0] = np.nan
    memory = {"forgetting_factor": "predictive"}
    model = OnlineKDEClassifier(**memory)
    for block in np.split(np.arange(300), [1, 40, 170, 250, 251, 263]):
        model.partial_fit(X[block], y[block], classes=range(5))
    newest = model._calibration.newest
    held = np.delete(np.arange(300), 250)[-N_NEWEST:]
    np.testing.assert_array_equal(newest.rows, X[held])
    np.testing.assert_array_equal(newest.codes, y[held])
    np.testing.assert_array_equal(newest.counts, 1.0 + (held == 249))
    assert len(newest.complete().rows) == N_NEWEST - 1
    np.testing.assert_array_equal(
        newest.of_classes(np.array([1, 4])).codes == 1, (y == 4)[held[np.isin(y[held], [1, 4])]]
    )

    # Merged with a model of other classes, they have new numbers.
    others = OnlineKDEClassifier(**memory).fit(X[:200], y[:200] - 3)
    merged = others.merge(model)
    np.testing.assert_array_equal(merged._calibration.newest.rows, newest.rows)
    labels = merged.classes_[merged._calibration.newest.codes]
    np.testing.assert_array_equal(labels, y[held])
    assert model.without_rows(5)._calibration.newest is None
    assert OnlineKDEClassifier().fit(X, y)._calibration.newest is None


def test_what_does_not_count_takes_no_time(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, size=300)
    model = OnlineKDEClassifier().fit(X, y)
    pool = model._calibration.pool
    settings = model._scorer().settings
    votes_and_histograms = settings.n_votes + settings.n_histograms
    zero = pool.exponents.copy()
    zero[-votes_and_histograms:] = 0.0
    model._calibration = model._calibration._replace(pool=pool._replace(exponents=zero))
    expected = model.predict_proba(X)

    def not_asked(*_):
        raise AssertionError

    monkeypatch.setattr(module, "votes_of_near", not_asked)
    model._snapshot = type(model._snapshot)()
    np.testing.assert_array_equal(model.predict_proba(X), expected)
