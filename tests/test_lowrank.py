"""Covariances of low rank: factor analysers, merged and scored without matrices."""

import pickle
import tracemalloc

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.covariance import LedoitWolf
from skokde._engine._log_density import decompose, log_mixtures

import skokde
from skokde import (
    OnlineKDEClassifier,
    OnlineKDEDensity,
    OnlineKDEImputer,
    OnlineKDEOutlierDetector,
    OnlineKDERegressor,
)
from skokde._engine import lowrank
from skokde._engine.covariance import structure_of
from skokde._engine.shrinkage import noise_of_correlations
from skokde._engine.whitening import frame_of
from skokde.covariance import LowRankCovariance
from twins import clumps, conditionals

RANK = 3
STRUCTURE = LowRankCovariance(RANK)


def covariances(n, d, seed=0, rank=RANK):
    rng = np.random.default_rng(seed)
    out = np.empty((n, 1 + rank, d))
    out[:, 1:] = rng.normal(size=(n, rank, d))
    out[:, 0] = np.square(out[:, 1:]).sum(axis=1) + rng.uniform(0.1, 2.0, size=(n, d))
    return out


def is_semidefinite(matrix, of):
    """But for rounding, in units of what it is a part of."""
    return np.linalg.eigvalsh(matrix)[0] >= -1e-12 * np.trace(of)


def dense_moments(counts, means, matrices):
    """Mean and covariance of a mixture, by the definition."""
    weights = counts / counts.sum()
    mean = weights @ means
    away = means - mean
    between = np.einsum("k,ki,kj->ij", weights, away, away)
    return mean, np.einsum("k,kij->ij", weights, matrices) + between


@pytest.mark.parametrize(("k", "d"), [(2, 40), (9, 8), (30, 20), (200, 40), (200, 5)])
def test_directions_explain_no_more_than_there_is(k, d):
    rows = np.random.default_rng(0).normal(size=(k, d)) * np.geomspace(1.0, 0.01, k)[:, None]
    found = lowrank.leading(rows, RANK)
    assert found.shape == (RANK, d)
    assert is_semidefinite(rows.T @ rows - found.T @ found, rows.T @ rows)
    # Orthogonal, the longest first, and about as long as any can be.
    lengths = np.linalg.norm(found, axis=1)
    assert (np.diff(lengths) <= 1e-12).all()
    gram = found @ found.T
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-8 * gram.max())
    best = np.linalg.svd(rows, compute_uv=False)[:RANK]
    np.testing.assert_allclose(lengths[: len(best)], best, rtol=1e-2)


def test_order_of_features_does_not_matter():
    rng = np.random.default_rng(0)
    rows, order = rng.normal(size=(200, 40)), rng.permutation(40)
    found, other = (lowrank.leading(rows[:, o], RANK) for o in (slice(None), order))
    np.testing.assert_allclose(other.T @ other, (found.T @ found)[np.ix_(order, order)], atol=1e-10)

    # So many features that directions are found by iteration.
    X, X_test = clumps(40, 300), clumps(40, 20, seed=1)
    model = OnlineKDEDensity(covariance_type=LowRankCovariance(RANK)).fit(X)
    assert model.covariances_.any()
    scores = OnlineKDEDensity(covariance_type=LowRankCovariance(RANK)).fit(X[:, order])
    np.testing.assert_allclose(
        scores.score_samples(X_test[:, order]), model.score_samples(X_test), rtol=1e-9
    )


def test_few_rows_are_kept_as_they_are():
    rows = np.random.default_rng(0).normal(size=(RANK, 10))
    found = lowrank.leading(rows, RANK)
    np.testing.assert_allclose(found.T @ found, rows.T @ rows, atol=1e-12)
    # Equal rows have one direction, to the last bit.
    assert np.count_nonzero(lowrank.leading(np.ones((5, 10)), RANK).any(axis=1)) == 1
    assert not lowrank.leading(np.zeros((5, 10)), RANK).any()


@pytest.mark.parametrize("unit", [1.0, 1e-120, 1e120])
def test_moments_of_groups(unit):
    d, held = 7, covariances(4, 7)
    rng = np.random.default_rng(1)
    counts, means = rng.uniform(1.0, 5.0, 9), rng.normal(size=(9, d))
    order, starts = np.array([0, 5, 2, 3, 1, 6, 7, 8, 4]), np.array([0, 2, 3, 8, 9])
    held, means = STRUCTURE.rescale(held, np.full(d, unit)), unit * means
    out_counts, out_means, out = STRUCTURE.group_moments(counts, means, held, order, starts)
    matrices = np.concatenate([STRUCTURE.dense(held), np.zeros((5, d, d))])
    for group, members in enumerate(np.split(order, starts[1:-1])):
        mean, covariance = dense_moments(counts[members], means[members], matrices[members])
        assert out_counts[group] == pytest.approx(counts[members].sum())
        np.testing.assert_allclose(out_means[group], mean, rtol=1e-12)
        # Variances are exact, and what is not held of correlations is semi-definite.
        variances = np.diag(covariance)
        np.testing.assert_allclose(out[group, 0], variances, rtol=1e-12, atol=1e-300)
        unit_free = out[group, 1:] / unit
        lost = covariance / unit / unit - unit_free.T @ unit_free
        assert is_semidefinite(lost, covariance / unit / unit)
    # One component alone, and samples as many as directions, lose nothing.
    np.testing.assert_array_equal(out[1], held[2])
    assert not out[3].any()


def test_as_many_directions_as_there_are_lose_nothing():
    d, structure = 6, LowRankCovariance(6)
    held = covariances(3, d, rank=6)
    # Without noise.
    held[:, 0] = np.square(held[:, 1:]).sum(axis=1)
    counts, means = np.array([1.0, 2.0, 3.0]), np.random.default_rng(0).normal(size=(3, d))
    order, starts = np.arange(3), np.array([0, 3])
    (out,) = structure.group_moments(counts, means, held, order, starts)[2]
    expected = dense_moments(counts, means, structure.dense(held))[1]
    np.testing.assert_allclose(structure.dense(out), expected, rtol=1e-10)


def test_sums_and_targets():
    first, second = held = covariances(2, 9)
    out = STRUCTURE.shrunk(first, 0.25, second)
    dense = 0.75 * STRUCTURE.dense(first) + 0.25 * STRUCTURE.dense(second)
    np.testing.assert_allclose(out[0], np.diag(dense), rtol=1e-12)
    assert is_semidefinite(dense - out[1:].T @ out[1:], dense)
    np.testing.assert_array_equal(out, STRUCTURE.weighted_sum(np.array([0.75, 0.25]), held))


def test_halves_have_the_same_moments():
    held = covariances(4, 9)
    axes, halves = STRUCTURE.halves(held, np.ones(9), np.ones(9))
    between = 0.25 * axes[:, :, None] * axes[:, None, :]
    np.testing.assert_allclose(
        STRUCTURE.dense(halves) + between, STRUCTURE.dense(held), rtol=1e-10, atol=1e-12
    )
    assert (lowrank.noise(halves) > 0.0).all()


def test_rounding_does_not_turn_halves_around():
    # The axis of two samples is as long in all features, and that of three that are equally far
    # from each other as long as another one.
    rng = np.random.default_rng(0)
    two, three = rng.normal(size=(2, 20)), np.eye(3, 20)
    means, order, starts = np.concatenate([two, three]), np.arange(5), np.array([0, 2, 5])
    _, _, held = STRUCTURE.group_moments(np.ones(5), means, covariances(0, 20), order, starts)
    held[1, 2] *= np.linalg.norm(held[1, 1]) / np.linalg.norm(held[1, 2])
    frame = np.ones(20), np.ones(20)
    axes, _ = STRUCTURE.halves(held, *frame)
    for _ in range(20):
        rounded = held * (1.0 + 1e-15 * rng.normal(size=held.shape))
        np.testing.assert_allclose(STRUCTURE.halves(rounded, *frame)[0], axes, atol=1e-12)


@pytest.mark.parametrize(("rank", "d"), [(1, 3), (3, 9), (5, 4)])
def test_log_densities(rank, d):
    held = covariances(3, d, rank=rank)
    rng = np.random.default_rng(2)
    means, X = rng.normal(size=(3, d)), 3.0 * rng.normal(size=(20, d))
    analysers = lowrank.Analysers(means, lowrank.noise(held), held[:, 1:])
    dense = LowRankCovariance(rank).dense(held)
    expected = [multivariate_normal(m, c).logpdf(X) for m, c in zip(means, dense, strict=True)]
    np.testing.assert_allclose(analysers.log_densities(X), expected, rtol=1e-10)
    # The same where all have some of the directions.
    shared = rng.normal(size=(2, d))
    analysers = lowrank.Analysers(means, lowrank.noise(held), held[:, 1:], shared)
    wider = dense + shared.T @ shared
    of_all = [multivariate_normal(m, c).logpdf(X) for m, c in zip(means, wider, strict=True)]
    np.testing.assert_allclose(analysers.log_densities(X), of_all, rtol=1e-10)
    analysers = lowrank.Analysers(means, lowrank.noise(held), held[:, 1:])
    with np.errstate(all="raise"):
        far = analysers.log_densities(np.full((1, d), 1e300))
    assert (far == -np.inf).all()


def test_draws():
    (held,) = covariances(1, 5)
    rng = np.random.default_rng(0)
    rows = STRUCTURE.draws(held[None], np.zeros(20000, dtype=int), rng)
    expected = STRUCTURE.dense(held)
    np.testing.assert_allclose(np.cov(rows.T), expected, atol=0.05 * np.diag(expected).max())


def of_two_factors(n, d, seed=0):
    """Rows of two clusters, each of which spreads along two directions."""
    rng = np.random.default_rng(seed)
    label = rng.integers(2, size=n)
    means, factors = 3.0 * rng.normal(size=(2, d)), rng.normal(size=(2, 2, d))
    along = np.einsum("nr,nrd->nd", rng.normal(size=(n, 2)), factors[label])
    return means[label] + along + 0.3 * rng.normal(size=(n, d))


# Predictive, with newest samples kept as they are, with a kernel without correlations.
KINDS = [{}, {"forgetting_factor": "predictive"}, {"bandwidth": 0.5, "compression_threshold": 0.1}]


@pytest.mark.parametrize("settings", KINDS)
def test_conditionals_are_those_of_full_covariances(settings):
    d, outputs = 12, 3
    X = of_two_factors(500, d)
    regressor = OnlineKDERegressor(covariance_type=STRUCTURE, **settings)
    regressor.fit(X[:, outputs:], X[:, :outputs])
    rows = X[:20, outputs:] + 0.1
    rows = np.concatenate([rows, [np.full(d - outputs, 1e12), np.full(d - outputs, 1e170)]])
    found = regressor.predict_distribution(rows)
    # The same Gaussians, as matrices.
    features = [*range(d - outputs)]
    numbers = d - outputs + np.arange(outputs)
    expected = conditionals(regressor._asked_density(), rows[:-1], features, numbers)
    np.testing.assert_allclose(found.mean[:-1], [p.mean for p in expected], rtol=1e-6)
    covariances = [p.cov for p in expected[:20]]
    np.testing.assert_allclose(found.cov[:20], covariances, rtol=1e-6, atol=1e-9)
    log_densities = np.array(
        [p.logpdf(x) for p, x in zip(expected[:20], X[:20, :outputs], strict=True)]
    ).ravel()
    np.testing.assert_allclose(
        found.logpdf(X[:22, :outputs])[:20], log_densities, rtol=1e-6, atol=1e-6
    )
    assert np.isfinite(found.mean).all()
    np.testing.assert_array_equal(regressor.predict_distribution(rows).mean, found.mean)


@pytest.mark.parametrize("settings", KINDS)
def test_incomplete_rows_of_low_rank(settings):
    X = of_two_factors(500, 10)
    holes = X[:12].copy()
    holes[np.random.default_rng(0).random(holes.shape) < 0.4] = np.nan
    holes[0], holes[1], holes[2:, 0], holes[2:, 1] = np.nan, X[1], np.nan, X[2:12, 1]
    imputer = OnlineKDEImputer(covariance_type=STRUCTURE, **settings).fit(X)
    filled = imputer.transform(holes)
    assert np.array_equal(filled[1], X[1])
    distribution = imputer.density_.distribution()
    np.testing.assert_allclose(filled[0], distribution.mean, rtol=1e-9)
    for row, got in zip(holes[2:], filled[2:], strict=True):
        known = np.flatnonzero(~np.isnan(row))
        expected = distribution.conditional(known.tolist(), row[known]).mean
        np.testing.assert_allclose(got[np.isnan(row)], expected, atol=1e-2)


def test_no_matrix_is_made_of_hundreds_of_features():
    """Draws, marginals, conditionals and blame take no more than arrays that grow with d r."""
    d, structure = 300, LowRankCovariance(4)
    X = of_two_factors(400, d)
    density = OnlineKDEDensity(covariance_type=structure).fit(X)
    detector = OnlineKDEOutlierDetector(covariance_type=structure).fit(X[:150])
    regressor = OnlineKDERegressor(covariance_type=structure).fit(X[:, 1:], X[:, 0])
    for model, ask in (
        (density, lambda: density.sample(100, random_state=0)),
        (density, lambda: density.distribution([0, 1])),
        (density, lambda: detector.explain(X[:3])),
        (regressor._asked_density(), lambda: regressor.predict(X[:3, 1:])),
    ):
        # As many matrices as there are Gaussians would be several times as large.
        limit = model.distribution([0]).n_components * d * d * 8 / 4
        tracemalloc.start()
        try:
            ask()
            assert tracemalloc.get_traced_memory()[1] < limit
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("count", [1.0, 20.0, 1e9])
def test_noise_of_correlations(count):
    """The formula of Chen et al. from the matrix."""
    (held,) = covariances(1, 9)
    scale = np.sqrt(held[0])
    correlation = STRUCTURE.dense(held) / scale / scale[:, None]
    d, square = 9, np.trace(correlation @ correlation)
    expected = ((1 - 2 / d) * square + d**2) / ((count + 1 - 2 / d) * (square - d))
    of_low_rank = lowrank.squared_correlations(held)
    assert of_low_rank == pytest.approx(square)
    assert noise_of_correlations(square, d, count) == pytest.approx(min(expected, 1.0))
    assert noise_of_correlations(d, d, count) == 1.0
    # Some of them left out.
    less = lowrank.with_less_correlation(held, 0.75)
    expected = 0.25 * STRUCTURE.dense(held) + 0.75 * np.diag(held[0])
    np.testing.assert_allclose(STRUCTURE.dense(less), expected)


def test_coordinates_of_discriminants():
    (held,) = covariances(1, 9)
    dense, center = STRUCTURE.dense(held), np.arange(9.0)
    frame = frame_of(center, held, STRUCTURE)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 9))
    points = frame.points(X)
    squares = np.einsum("ni,ij,nj->n", X - center, np.linalg.inv(dense), X - center)
    np.testing.assert_allclose(np.square(points).sum(axis=1), squares, rtol=1e-10)
    np.testing.assert_allclose(frame.points_back(points), X, rtol=1e-10, atol=1e-12)
    some = np.array([6, 1, 2])
    away = X[:, some] - center[some]
    inverse = np.linalg.inv(dense[np.ix_(some, some)])
    squares = np.einsum("ni,ij,nj->n", away, inverse, away)
    marginal = frame.marginal(some).points(X.take(some, axis=1))
    np.testing.assert_allclose(np.square(marginal).sum(axis=1), squares, rtol=1e-10)


def test_ranks():
    for wrong in (0, -1, 2.0, True, "three"):
        with pytest.raises(ValueError, match="rank must be a positive integer"):
            LowRankCovariance(rank=wrong)
    assert LowRankCovariance().name == "lowrank"
    assert LowRankCovariance(rank=3).name == "lowrank(3)"
    for rank in (3, "predictive"):
        structure = LowRankCovariance(rank)
        assert repr(structure) == f"LowRankCovariance(rank={rank!r})"
        assert {structure, LowRankCovariance(rank)} == {structure} != {LowRankCovariance()}
    X = np.random.default_rng(0).normal(size=(200, 7))
    density = OnlineKDEDensity(covariance_type=LowRankCovariance(rank=2)).fit(X)
    assert density.covariances_.shape[1:] == (3, 7)
    with pytest.raises(ValueError, match="can't change from 'lowrank' to 'lowrank\\(3\\)'"):
        density.set_params(covariance_type=LowRankCovariance(rank=3)).partial_fit(X)
    # Where they take no longer covariances are full.
    full = OnlineKDEDensity(covariance_type="full").fit(X)
    density = OnlineKDEDensity(covariance_type="lowrank").fit(X)
    np.testing.assert_array_equal(density.score_samples(X), full.score_samples(X))


def test_rank_by_prediction(assert_same_model):
    """Rows of few directions: fewer than are held predict better, and get the weight."""
    d, structure = 40, LowRankCovariance(rank="predictive")
    X = of_two_factors(1500, d)
    given, predicted = (
        OnlineKDEDensity(covariance_type=s).fit(X[:1000]) for s in ("lowrank", structure)
    )
    assert predicted.covariances_.shape[1:] == given.covariances_.shape[1:] == (17, d)
    assert predicted.experts_["shape"] == [
        "lowrank(predictive)", "8 directions", "2 directions", "no correlations"
    ]  # fmt: skip
    assert predicted.expert_weights_["shape"][2] > 0.5
    assert predicted.score(X[1000:]) > given.score(X[1000:]) + 1.0
    # What is scored is a mixture of all of them.
    np.testing.assert_allclose(
        predicted.distribution().logpdf(X[1000:1010]), predicted.score_samples(X[1000:1010])
    )
    again = OnlineKDEDensity(covariance_type=LowRankCovariance("predictive"))
    for start in range(0, 1000, 37):
        again.partial_fit(X[start : min(start + 37, 1000)])
    assert_same_model(again, predicted)
    stored = pickle.loads(pickle.dumps(predicted))
    np.testing.assert_array_equal(stored.score_samples(X), predicted.score_samples(X))
    # Both hold the same: what is tried can be changed in mid-stream.
    later = given.set_params(covariance_type=structure).partial_fit(X[1000:1400])
    assert later.expert_weights_["shape"][2] > 0.5
    shards = [OnlineKDEDensity(covariance_type=structure).fit(X[i:1000:2]) for i in range(2)]
    merged = skokde.merge(shards)
    assert merged.expert_weights_["shape"][2] > 0.5
    assert merged.score(X[1000:]) > shards[0].score(X[1000:])
    with pytest.raises(ValueError, match="can't be merged with"):
        skokde.merge([shards[0], OnlineKDEDensity(covariance_type="lowrank").fit(X[:100])])


def test_shrinkage_by_prediction(monkeypatch):
    """Features mixed at random, whose correlation matrix has small eigenvalues, shrunk too much."""
    n, d = 400, 50
    X = np.random.default_rng(0).normal(size=(n + 400, d))
    X = X @ np.random.default_rng(1).normal(size=(d, d))
    found = OnlineKDEDensity(covariance_type="lowrank").fit(X[:n])
    assert found.experts_["outliers"] == [1.0, 4.0, 16.0]
    assert found.experts_["shrinkage"] == [0.3, 0.05]
    assert found.expert_weights_["shrinkage"][1] > 0.5
    estimate = LedoitWolf().fit(X[:n])
    gaussian = multivariate_normal(estimate.location_, estimate.covariance_)
    score = found.score(X[n:])
    assert score > gaussian.logpdf(X[n:]).mean() + 5.0
    monkeypatch.setattr(LowRankCovariance, "shrinkages", ())
    assert score > OnlineKDEDensity(covariance_type="lowrank").fit(X[:n]).score(X[n:]) + 5.0


def factor_mixture(n, seed, d=60, n_clusters=4, rank=4):
    """Rows, and their log-densities."""
    rng = np.random.default_rng(7)
    means = rng.normal(size=(n_clusters, d))
    loadings = 0.6 * rng.normal(size=(n_clusters, rank, d))
    noises = rng.uniform(0.3, 0.6, size=(n_clusters, d))
    rng = np.random.default_rng(seed)
    cluster = rng.integers(n_clusters, size=n)
    X = means[cluster] + np.sqrt(noises[cluster]) * rng.normal(size=(n, d))
    X += np.einsum("nr,nrd->nd", rng.normal(size=(n, rank)), loadings[cluster])
    logs = [
        multivariate_normal(m, f.T @ f + np.diag(s)).logpdf(X)
        for m, f, s in zip(means, loadings, noises, strict=True)
    ]
    return X, np.logaddexp.reduce(logs, axis=0) - np.log(n_clusters)


def test_factor_mixtures_are_found():
    X, _ = factor_mixture(2000, 0)
    new, log_density = factor_mixture(500, 1)
    density = OnlineKDEDensity(covariance_type=LowRankCovariance(rank=4))
    for n in (50, 200, 2000):
        density.fit(X[:n])
        shrunk = LedoitWolf().fit(X[:n])
        gaussian = multivariate_normal(shrunk.location_, shrunk.covariance_).logpdf(new)
        assert density.score(new) > gaussian.mean() - 1.0
    assert density.score(new) > log_density.mean() - 3.0
    assert density.n_components_ < 300
    # All moments that are held are those of the rows.
    counts, means = density.weights_, density.means_
    held = structure_of(density.covariances_).variances(density.covariances_)
    mean = counts @ means
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(counts @ (held + (means - mean) ** 2), X.var(axis=0), rtol=1e-10)


def test_components_of_few_samples():
    """They have no noise, and are decomposed as the compiled functions do it."""
    rng = np.random.default_rng(0)
    d, rank, widths, shrinks = 12, 3, np.array([1.0, 2.5]), np.array([1.0, 0.7])
    directions, means = rng.normal(size=(4, rank, d)), rng.normal(size=(6, d))
    directions[1, 1:] = 0.0
    ours = lowrank.decompose(means, directions, widths, shrinks)
    matrices = np.swapaxes(directions, 1, 2) @ directions
    theirs = decompose(means, matrices.reshape(4, -1), widths, shrinks)
    np.testing.assert_array_equal(ours[4], theirs[4])
    np.testing.assert_allclose(ours[5], theirs[5], rtol=1e-8)
    X = rng.normal(size=(7, d))
    arrays = np.full(6, -np.log(6.0)), means, np.zeros(6, dtype=np.intp)
    weights = np.eye(2)[:, None]
    scores = [
        log_mixtures(X, weights, None, *arrays, *found, widths, shrinks) for found in (ours, theirs)
    ]
    np.testing.assert_allclose(*scores, rtol=1e-7)
    held = np.concatenate([np.square(directions).sum(axis=1, keepdims=True), directions], axis=1)
    assert lowrank.is_thin(held).all()
    held[2, 0] *= 1.0 + 1e-9
    assert list(lowrank.is_thin(held)) == [True, True, False, True]


def test_classes_of_the_same_variances():
    """What tells them apart are correlations alone."""
    rng = np.random.default_rng(0)
    d, n = 30, 900
    y = rng.integers(2, size=n)
    # Two features each with a sign in common, or with opposite ones.
    common = rng.normal(size=(n, d // 2))
    X = np.concatenate([common, np.where(y, 1.0, -1.0)[:, None] * common], axis=1)
    X += 1.5 * rng.normal(size=(n, d))
    log_loss = []
    for covariance_type in ("diag", LowRankCovariance(rank=15)):
        classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:600], y[:600])
        proba = classifier.predict_proba(X[600:])
        log_loss.append(-np.log(proba[np.arange(300), y[600:]]).mean())
    diag, low_rank = log_loss
    assert low_rank < diag - 0.1
