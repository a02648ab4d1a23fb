"""Spherical covariances, and structures that are made outside of the package."""

import pickle

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity, merge
from skokde._engine.covariance import structure_of
from skokde.covariance import (
    CovarianceStructure,
    DiagonalCovariance,
    FullCovariance,
    LowRankCovariance,
)

rng = np.random.default_rng(0)
ROWS, NEW = np.split(
    rng.normal(size=(800, 5)) * [1.0, 2.0, 3.0, 1.0, 1.0] + 3.0 * rng.integers(0, 2, (800, 1)), 2
)


class Toeplitz(FullCovariance):
    """Covariances that depend on the distance of two features alone."""

    name = "toeplitz"

    def shaped(self, covariances):
        d = covariances.shape[-1]
        lags = range(d)
        sums = np.stack([np.diagonal(covariances, lag, -2, -1).sum(axis=-1) for lag in lags], -1)
        numbers = np.arange(d)
        # Sums divided by d, not by their number: so it stays positive semi-definite.
        return sums[..., np.abs(numbers[:, None] - numbers)] / d


class Two(DiagonalCovariance):
    """One variance for the first two features, one for the others."""

    name = "two variances"

    def shaped(self, covariances):
        first, others = covariances[..., :2], covariances[..., 2:]
        parts = [np.repeat(p.mean(-1, keepdims=True), p.shape[-1], -1) for p in (first, others)]
        return np.concatenate(parts, axis=-1)


def is_spherical(covariances):
    return np.allclose(covariances, covariances[..., :1], rtol=1e-12)


def is_toeplitz(covariances):
    return np.allclose(covariances[..., 1:, 1:], covariances[..., :-1, :-1], rtol=1e-9, atol=1e-12)


def is_two(covariances):
    first, others = covariances[..., :2], covariances[..., 2:]
    return is_spherical(first) and is_spherical(others) and not is_spherical(covariances)


def is_full(covariances):
    return covariances.shape[1:] == (5, 5) and (np.linalg.eigvalsh(covariances) > 0.0).all()


CHECKS = {
    "spherical": is_spherical,
    Toeplitz(): is_toeplitz,
    Two(): is_two,
    LowRankCovariance(rank=2): is_full,
}
every_structure = pytest.mark.parametrize("structure", CHECKS, ids=str)


def spherical_kde(X, new, scale):
    """Log-densities of a KDE of a multiple of the mean variance, from SciPy."""
    covariance = scale**2 * X.var(axis=0).mean() * np.eye(X.shape[1])
    return np.log(np.mean([multivariate_normal(x, covariance).pdf(new) for x in X], axis=0))


@pytest.mark.parametrize("bandwidth", [0.5, "silverman", "scott"])
def test_few_samples_by_the_formula(bandwidth):
    X, new, d, n = ROWS[:25], ROWS[25:60], 5, 25
    normal = (4.0 / ((d + 2) * n)) ** (1.0 / (d + 4))
    scale = {0.5: 0.5 * normal, "silverman": normal, "scott": n ** (-1.0 / (d + 4))}[bandwidth]
    density = OnlineKDEDensity(covariance_type="spherical", bandwidth=bandwidth).fit(X)
    np.testing.assert_allclose(density.score_samples(new), spherical_kde(X, new, scale), rtol=1e-9)


@pytest.mark.parametrize("bandwidth", ["predictive", "silverman"])
def test_few_samples_in_any_direction(bandwidth):
    """Distances are all that counts, so that the rows may be turned."""
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))
    density = OnlineKDEDensity(covariance_type="spherical", bandwidth=bandwidth)
    scores = clone(density).fit(ROWS[:28]).score_samples(ROWS)
    np.testing.assert_allclose(density.fit(ROWS[:28] @ turn).score_samples(ROWS @ turn), scores)


@every_structure
@pytest.mark.parametrize("threshold", quick(["predictive", 0.1]))
@pytest.mark.parametrize("bandwidth", quick(["predictive", "plugin", 0.7], 2))
@pytest.mark.parametrize("factor", quick([1.0, "predictive"]))
def test_what_is_scored_has_the_structure(structure, threshold, bandwidth, factor):
    density = OnlineKDEDensity(
        covariance_type=structure,
        compression_threshold=threshold,
        bandwidth=bandwidth,
        forgetting_factor=factor,
    ).fit(ROWS)
    distribution = density.distribution()
    assert CHECKS[structure](distribution.covariances)
    np.testing.assert_allclose(
        distribution.logpdf(ROWS[:50]), density.score_samples(ROWS[:50]), rtol=1e-9
    )
    # What is held are the moments of the samples, whatever is scored.
    counts, means = density.weights_, density.means_
    held = density.covariances_
    variances = structure_of(held).variances(held)
    mean = counts @ means
    np.testing.assert_allclose(mean, ROWS.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(
        counts @ (variances + (means - mean) ** 2), ROWS.var(axis=0), rtol=1e-10
    )


@every_structure
@pytest.mark.parametrize("Estimator", [OnlineKDEDensity, OnlineKDEClassifier])
def test_streams_files_and_merges(structure, Estimator, assert_same_model):
    y = (ROWS.sum(axis=1) > 8.0).astype(int)
    arguments = (ROWS, y) if Estimator is OnlineKDEClassifier else (ROWS,)
    model = Estimator(covariance_type=structure).fit(*arguments)
    stream = clone(model)
    for i in range(0, 400, 17):
        known = {"classes": [0, 1]} if len(arguments) == 2 and i == 0 else {}
        stream.partial_fit(*(a[i : i + 17] for a in arguments), **known)
    assert_same_model(model, stream)
    stored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(stored.score_samples(ROWS), model.score_samples(ROWS))
    halves = [
        clone(model).fit(*(a[part] for a in arguments)) for part in (slice(200), slice(200, 400))
    ]
    merged = merge(halves)
    assert CHECKS[structure](merged.distribution().covariances)
    assert abs(np.mean(merged.score_samples(NEW) - model.score_samples(NEW))) < 0.2
    holes = ROWS[:40].copy()
    holes[::3, 1] = np.nan
    assert np.isfinite(model.score_samples(holes)).all()
    with pytest.raises(ValueError, match="merged"):
        model.merge(Estimator(covariance_type="full").fit(*arguments))


def test_models_of_one_layout_hold_the_same():
    diag = OnlineKDEDensity(covariance_type="diag").fit(ROWS)
    scores = diag.score_samples(ROWS)
    spherical = clone(diag).fit(ROWS).set_params(covariance_type="spherical")
    assert is_spherical(spherical.distribution().covariances)
    assert not np.allclose(spherical.score_samples(ROWS), scores)
    spherical.set_params(covariance_type="diag")
    np.testing.assert_array_equal(spherical.score_samples(ROWS), scores)
    with pytest.raises(ValueError, match="can't change from 'diag' to 'toeplitz'"):
        spherical.set_params(covariance_type=Toeplitz()).partial_fit(ROWS)
    classifier = OnlineKDEClassifier(covariance_type="diag").fit(ROWS, ROWS[:, 0] > 1.0)
    proba = classifier.predict_proba(ROWS)
    classifier.set_params(covariance_type="spherical")
    assert not np.allclose(classifier.predict_proba(ROWS), proba)
    classifier.set_params(covariance_type="diag")
    np.testing.assert_array_equal(classifier.predict_proba(ROWS), proba)
    with pytest.raises(ValueError, match="'diag' that were learned with 'spherical'"):
        diag.merge(OnlineKDEDensity(covariance_type="spherical").fit(ROWS))


def test_constant_features_have_the_spread_of_the_others():
    X = np.hstack([ROWS, np.full((400, 2), 7.0)])
    density = OnlineKDEDensity(covariance_type="spherical").fit(X)  # and no warning
    assert not density.corrected_features_.any()
    assert density.score(X) > density.score(X + np.append(np.zeros(6), 20.0)) + 5.0


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
def test_pixels_of_few_images():
    """Their unit is the same: digits are told apart as the nearest neighbour does."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    (train, test), errors = np.split(order, [400]), {}
    for covariance_type in ("diag", "spherical"):
        classifier = OnlineKDEClassifier(covariance_type=covariance_type)
        errors[covariance_type] = 1.0 - classifier.fit(X[train], y[train]).score(X[test], y[test])
    assert errors["spherical"] < 0.025
    assert errors["spherical"] + 0.005 < errors["diag"] < 0.035
    nearest = ((X[test][:, None] - X[train]) ** 2).sum(axis=2).argmin(axis=1)
    assert errors["spherical"] < np.mean(y[train][nearest] != y[test]) + 0.01


def test_stationary_signals():
    """A structure that is right needs fewer samples than a full one."""
    noise = np.random.default_rng(0).normal(size=(1100, 60))
    signals = np.zeros((1100, 60))
    for t in range(1, 60):
        signals[:, t] = 0.8 * signals[:, t - 1] + noise[:, t]
    X, new = signals[:100, 36:], signals[100:, 36:]
    scores = {
        covariance_type: OnlineKDEDensity(covariance_type=covariance_type).fit(X).score(new)
        for covariance_type in ("full", "diag", Toeplitz())
    }
    (full, diag, toeplitz) = scores.values()
    assert toeplitz > max(full, diag) + 1.0


@pytest.mark.parametrize("wrong", [lambda c: c[..., :1], lambda c: np.full(c.shape, np.nan)])
def test_wrong_structures_are_refused(wrong):
    structure = Toeplitz()
    structure.shaped = wrong
    density = OnlineKDEDensity(covariance_type=structure)
    with pytest.raises(ValueError, match=r"Toeplitz\.shaped must return finite numbers"):
        density.fit(ROWS)
    assert not hasattr(density, "n_components_")


def test_structures_are_parameters_as_others():
    structure = Toeplitz()
    assert repr(structure) == "<covariance structure 'toeplitz'>"
    assert isinstance(structure, CovarianceStructure)
    assert isinstance(clone(OnlineKDEDensity(covariance_type=structure)).covariance_type, Toeplitz)
    grid = {"covariance_type": ["full", "diag", "spherical", "lowrank", structure]}
    search = GridSearchCV(OnlineKDEDensity(compression_threshold=0.1), grid, cv=2).fit(ROWS)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    with pytest.raises(TypeError, match="abstract"):
        CovarianceStructure()
