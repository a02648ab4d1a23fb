"""Densities in coordinates in which long tails are short, and what they are worth to classes."""

import warnings

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import johnsonsu, lognorm, norm, uniform
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

import twins
from marks import quick
from skokde import DegenerateDataWarning, OnlineKDEClassifier, OnlineKDEDensity, merge
from skokde._engine.class_density import (
    FEW_ROWS,
    build_class_density,
    log_densities_of_few,
)
from skokde._engine.covariance import STRUCTURES, structure_of
from skokde._engine.lowrank import noise
from skokde._engine.mixture import Mixture
from skokde._engine.transformation import LEVELS, Transformation, johnson, quantiles
from skokde.covariance import LowRankCovariance

both_structures = pytest.mark.parametrize("covariance_type", quick(["full", "diag"]))
structures = ["full", "diag", LowRankCovariance(rank=1)]
every_structure = pytest.mark.parametrize("covariance_type", structures, ids=str)


def mixture_of(X, covariance_type="full", **parameters):
    model = OnlineKDEDensity(covariance_type=covariance_type, **parameters).fit(X)
    return model._state.mixture


def points(n=400, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3.0


def long_tailed(n, seed=0):
    """Rows that are hyperbolic sines of what is normal in each class, and that."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    normal = rng.normal(size=(n, 4)) @ rng.normal(size=(4, 4)) + 2.0 * np.eye(3, 4)[y]
    return np.sinh(1.5 * normal / normal.std(axis=0)), normal, y


# ---------------------------------------------------------------------------- the coordinates


def test_quantiles_are_between_those_of_repeated_points():
    rng = np.random.default_rng(0)
    X, counts = rng.normal(size=(40, 3)), rng.integers(1, 5, size=40)
    repeated = np.repeat(X, counts, axis=0)
    expected = np.quantile(repeated, LEVELS, axis=0, method="averaged_inverted_cdf")
    np.testing.assert_allclose(quantiles(X, counts), expected)
    np.testing.assert_allclose(quantiles(-X, counts), -quantiles(X, counts)[::-1])


@pytest.mark.parametrize("skewness", [-1.0, 0.0, 0.5])
@pytest.mark.parametrize("peakedness", [0.3, 0.5, 0.8])
def test_johnsons_distributions_are_found(skewness, peakedness):
    distribution = johnsonsu(skewness, peakedness, loc=3.0, scale=0.1)
    center, scale = johnson(distribution.ppf(LEVELS)[:, None], np.ones(1))
    np.testing.assert_allclose([center[0], scale[0]], [3.0, 0.1], rtol=1e-6)


def test_shorter_tails_are_as_the_shortest():
    # Of normal and lognormal distributions, and of uniform ones.
    short = [norm(2.0, 3.0), lognorm(0.5), uniform(-1.0, 4.0)]
    at = np.column_stack([distribution.ppf(LEVELS) for distribution in short])
    center, scale = johnson(at, np.ones(3))
    assert center[[0, 2]] == pytest.approx([2.0, 1.0])
    y = np.arcsinh((at - center) / scale)
    lower, inner, upper = np.diff(y, axis=0)
    # About evenly spaced, as normal quantiles are, of which those of x are far.
    np.testing.assert_allclose(upper / lower, 1.0, rtol=0.05)
    np.testing.assert_allclose((lower / inner)[:2], 1.0, rtol=0.1)
    assert np.diff(at[:, 1])[2] > 2.0 * np.diff(at[:, 1])[0]


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@both_structures
def test_coordinates_have_no_unit(covariance_type, scale):
    X = points()
    shift = np.array([0.0, 5.0, -3.0]) * scale
    plain, other = (
        Transformation.of([mixture_of(rows, covariance_type)]) for rows in (X, scale * X + shift)
    )
    np.testing.assert_allclose(other.rows(scale * X + shift), plain.rows(X), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(other.covariance, plain.covariance, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        other.of_rows(scale * X + shift).log_dets,
        plain.of_rows(X).log_dets - 3 * np.log(scale),
        rtol=1e-6,
    )


@both_structures
def test_they_are_those_of_quantiles_of_all_classes(covariance_type):
    X = points(60)
    parts = [
        mixture_of(part, covariance_type, compression_threshold=0.0) for part in (X[:25], X[25:])
    ]
    transformation = Transformation.of(parts)
    at = np.quantile(X, LEVELS, axis=0, method="averaged_inverted_cdf")
    center, scale = johnson(at, X.std(axis=0))
    np.testing.assert_allclose(transformation.center, center)
    np.testing.assert_allclose(transformation.scale, scale)
    y = np.arcsinh((X - center) / scale)
    np.testing.assert_allclose(transformation.rows(X), y)
    # Within classes, and between them by d of the samples' number.
    within = sum(len(part) * np.cov(part.T, bias=True) for part in (y[:25], y[25:])) / 60
    expected = (60 * within + 3 * twins.without_noise(np.cov(y.T, bias=True), 60)) / 63
    if covariance_type == "diag":
        expected = np.diag(expected)
    np.testing.assert_allclose(transformation.covariance, expected)


def test_slopes():
    X = points()
    transformation = Transformation.of([mixture_of(X)])
    step = 1e-6
    slopes = (transformation.rows(X + step) - transformation.rows(X - step)) / (2.0 * step)
    found = transformation.of_rows(X).log_dets
    np.testing.assert_allclose(found, np.log(slopes).sum(axis=1), rtol=1e-6)
    # Of what is known alone.
    X[:, 1] = np.nan
    assert np.isnan(transformation.rows(X)[:, 1]).all()
    known = np.log(slopes[:, [0, 2]]).sum(axis=1)
    np.testing.assert_allclose(transformation.of_rows(X).log_dets, known, rtol=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_constant_features_are_nowhere_but_at_zero(offset):
    X = points()
    X[:, 1] = offset + 1e-9 * (X[:, 1] > 3.0) * (offset > 0.0)  # but for rounding
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        mixture = mixture_of(X)
    transformation = Transformation.of([mixture])
    assert np.isinf(transformation.scale).tolist() == [False, True, False]
    rows = transformation.rows(np.concatenate([X, X + 1e6]))
    assert not rows[:, 1].any()
    assert np.isfinite(transformation.of_rows(X).log_dets).all()


def test_most_values_the_same():
    # Some quantiles are the same.
    rng = np.random.default_rng(0)
    X = points()
    X[:, 2] = np.where(rng.random(len(X)) < 0.8, 0.0, rng.exponential(size=len(X)))
    mixture = mixture_of(X, compression_threshold=0.0)
    transformation = Transformation.of([mixture])
    assert transformation.scale[2] == pytest.approx(X[:, 2].std(), rel=0.2)


def test_nothing_is_too_far_out():
    X = points()
    transformation = Transformation.of([mixture_of(X)])
    far = np.array([[1e308, -1e308, 0.0], [-1e308, 1e300, 1e-300]])
    assert np.isfinite(transformation.rows(far)).all()
    assert np.isfinite(transformation.of_rows(far).log_dets).all()


@pytest.mark.parametrize("scale", [0.1, 0.5])
@both_structures
def test_compounds_have_about_the_moments_of_their_transformed_samples(covariance_type, scale):
    # Also across features that are functions of each other, which they no longer are.
    rng = np.random.default_rng(0)
    factors = scale * rng.normal(size=(200_000, 2))
    X = 1.0 + np.column_stack([factors, factors.sum(axis=1)])
    structure = STRUCTURES[covariance_type]
    covariance = np.cov(X.T, bias=True)
    if covariance_type == "diag":
        covariance = np.diag(covariance)
    whole = Transformation(np.zeros(3), np.ones(3), covariance)
    details = (
        np.zeros((1, 2)),
        np.zeros((1, 2, 3)),
        np.zeros((1, 2), dtype=bool),
        np.zeros((0, *covariance.shape)),
    )
    compound = Mixture(np.ones(1), X.mean(axis=0)[None], covariance[None], *details)
    new, rows = whole.mixture(compound), whole.rows(X)
    deviation, about = rows.std(axis=0), 0.12 * scale
    np.testing.assert_allclose(new.means[0], rows.mean(axis=0), atol=about * deviation.max())
    found, expected = new.covariances[0], np.cov(rows.T, bias=True)
    if covariance_type == "diag":
        expected = np.diag(expected)
    unit = structure.to_matrix(deviation**2).max()
    np.testing.assert_allclose(found, expected, atol=about * unit)
    # A straight line would leave nothing in the direction in which the samples have no spread.
    if covariance_type == "full":
        least = [np.linalg.eigvalsh(a)[0] for a in (found, expected)]
        assert 0.5 < least[0] / least[1] < 2.0


def test_compounds_of_low_rank_have_the_variances_of_others():
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(2, 5))
    variances = np.square(directions).sum(axis=0) + rng.uniform(0.1, 1.0, size=5)
    low_rank, mean = np.vstack([variances, directions])[None], rng.normal(size=(1, 5))

    def transformed(covariances):
        shape = covariances.shape[1:]
        nothing = np.zeros((1, 2, 5)), np.zeros((1, 2), dtype=bool), np.zeros((0, *shape))
        compound = Mixture(np.ones(1), mean, covariances, np.zeros((1, 2)), *nothing)
        return Transformation(np.zeros(5), np.ones(5), covariances[0]).mixture(compound)

    new, expected = transformed(low_rank), transformed(variances[None])
    np.testing.assert_array_equal(new.means, expected.means)
    np.testing.assert_allclose(new.covariances[0, 0], expected.covariances[0], rtol=1e-12)
    # Correlations are those of the slopes; the parabolas' bends are noise.
    deviations = np.sqrt(variances)
    slopes = (np.arcsinh(mean + deviations) - np.arcsinh(mean - deviations)) / (2.0 * deviations)
    np.testing.assert_allclose(new.covariances[0, 1:], slopes * directions, rtol=1e-12)
    assert (noise(new.covariances) > 0.0).all()


# ------------------------------------------------------------------------- what is pooled


@both_structures
def test_densities_are_normalised_in_the_units_of_the_data(covariance_type):
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(300, 1)))
    model = OnlineKDEDensity(covariance_type=covariance_type).fit(X)
    settings = model._settings()
    settings = settings._replace(transformation=Transformation.of([model._state.mixture]))
    density = build_class_density(model._state, settings)
    grid = np.sinh(np.linspace(-40.0, 40.0, 40_001))[:, None]
    logs = density.log_densities(grid)
    assert logs.shape[1] == settings.n_densities == 4
    assert settings.n_pooled_transformed == 2
    np.testing.assert_allclose(trapezoid(np.exp(logs), grid[:, 0], axis=0), 1.0, rtol=5e-3)
    # Of a normal density's logarithms those in transformed coordinates are closer.
    Z = np.exp(np.random.default_rng(1).normal(size=(2000, 1)))
    of_rows = density.log_densities(Z).mean(axis=0)
    assert of_rows[:2].max() > of_rows[2:].max()


def test_few_rows_are_scored_as_many_are():
    X, _, y = long_tailed(420)
    for parameters in ({}, {"covariance_type": LowRankCovariance(1)}, {"bandwidth": "okde"}):
        classifier = OnlineKDEClassifier(**parameters).fit(X[:400], y[:400])
        expected = classifier.predict_proba(X[400:])
        for n in (1, 2, FEW_ROWS, FEW_ROWS + 1):
            parts = [classifier.predict_proba(rows) for rows in np.split(X[400 : 400 + 4 * n], 4)]
            np.testing.assert_allclose(np.concatenate(parts), expected[: 4 * n], atol=1e-9)


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@both_structures
def test_rows_alone_and_later_samples(covariance_type, memory):
    X, _, y = long_tailed(460)
    parameters = {"covariance_type": covariance_type, "forgetting_factor": memory}
    classifier = OnlineKDEClassifier(**parameters).fit(X[:400], y[:400])
    for i in range(400, 460):  # which the kernels do not follow at once
        classifier.partial_fit(X[i : i + 1], y[i : i + 1])
    settings = classifier._scorer().settings
    whole = classifier.estimators_[0]._class_density(settings).log_densities(X[:20])
    some = np.zeros(settings.n_densities, dtype=bool)
    some[[1, settings.n_pooled - 1]] = True
    some[settings.n_pooled :: 2] = True  # of the memories, if there are any, all but the second one
    without_groups = some & (np.arange(len(some)) != settings.n_pooled - 1)
    for kept in (np.ones(len(some), dtype=bool), some, without_groups):
        chosen = None if kept.all() else tuple(kept.tolist())
        densities = [e._class_density(settings, chosen) for e in classifier.estimators_]
        together = np.stack([density.log_densities(X[:20]) for density in densities], axis=1)
        for n in range(1, FEW_ROWS + 1):
            few = log_densities_of_few(X[:n], densities).transpose(1, 2, 0)
            np.testing.assert_allclose(few, together[:n], rtol=1e-9, atol=1e-9)
        incomplete = X[:2].copy()
        incomplete[1, 0] = np.nan
        assert log_densities_of_few(incomplete, densities) is None
        assert log_densities_of_few(X[: FEW_ROWS + 1], densities) is None
        fresh = [
            build_class_density(e._state, settings, chosen=chosen) for e in classifier.estimators_
        ]
        expected = np.stack([density.log_densities(X[:20]) for density in fresh], axis=1)
        np.testing.assert_allclose(together, expected, rtol=1e-9, atol=1e-9)
        # Some of the densities alone are as they are among all.
        np.testing.assert_allclose(together[:, 0], whole[:, kept], rtol=1e-9, atol=1e-9)


@both_structures
def test_rows_are_nowhere_also_where_no_density_in_the_datas_coordinates_counts(covariance_type):
    X, _, y = long_tailed(1200)
    X = np.column_stack([X, np.full(len(X), 3.0)])
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    settings, calibration = classifier._scorer().settings, classifier._calibration
    exponents = calibration.pool.exponents.copy()
    exponents[settings.n_pooled_transformed : settings.n_pooled] = 0.0
    classifier._calibration = calibration._replace(
        pool=calibration.pool._replace(exponents=exponents)
    )
    _, scored = classifier._scorer().scored_pool()
    for estimator in classifier.estimators_:
        assert estimator._class_density(settings, scored).kde is None
    rows = X[:7].copy()
    rows[1, 0], rows[2, -1], rows[3] = 1e200, 1e200, -1e308  # the last feature has been constant
    rows[4, 0], rows[5, -1] = 1e90, np.nan
    joint = classifier.predict_joint_log_proba(rows)
    nowhere = np.isneginf(joint).all(axis=1)
    assert nowhere.tolist() == [False, True, True, True, False, False, False]
    prior = twins.shrunk_prior(classifier.class_count_)
    probabilities = classifier.predict_proba(rows)
    np.testing.assert_allclose(probabilities[nowhere], [prior] * 3)
    assert (np.abs(probabilities[~nowhere] - prior).max(axis=1) > 1e-3).all()


@every_structure
def test_rows_with_missing_values(covariance_type):
    X, _, y = long_tailed(400)
    classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    settings = classifier._scorer().settings
    density = classifier.estimators_[0]._class_density(settings)
    # Features that are known are as if there were no others, but for the shape of Gaussians.
    X[:, 1] = np.nan
    some = density.log_densities(X[:50])
    assert np.isfinite(some).all()
    part = settings.transformation
    known = Transformation(part.center[[0, 2, 3]], part.scale[[0, 2, 3]], part.covariance)
    rows = np.ascontiguousarray(known.rows(X[:50][:, [0, 2, 3]]))
    transformed = density.transformed.marginal(np.array([0, 2, 3]))
    expected = transformed.log_densities_of_groups(rows)
    expected += known.of_rows(X[:50][:, [0, 2, 3]]).log_dets[:, None]
    np.testing.assert_allclose(some[:, : settings.n_pooled_transformed], expected)


@every_structure
def test_long_tails_cost_little(covariance_type):
    shares = []
    for seed in range(8):
        X, normal, y = long_tailed(2400, seed)
        losses = []
        for rows, parameters in ((X, {}), (normal, {}), (X, {"compression_threshold": 0.08})):
            classifier = OnlineKDEClassifier(covariance_type=covariance_type, **parameters)
            classifier.fit(rows[:800], y[:800])
            losses.append(log_loss(y[800:], classifier.predict_proba(rows[800:])))
        shares.append((losses[0] - losses[1]) / (losses[2] - losses[1]))
    # Of what they cost where there are no others than the data's coordinates. A single seed may
    # have four fifths, where classes are told apart by small differences of features.
    assert np.mean(shares) < 0.3


@pytest.mark.parametrize("covariance_type", quick(["lowrank", "full"]))
def test_many_features_with_long_tails(covariance_type):
    # In the data's coordinates wide components predict best, of which too little would be left.
    losses = []
    for seed in range(2):
        X, y = make_classification(
            1400, 66, n_informative=12, n_redundant=20, n_clusters_per_class=2, random_state=seed
        )
        X = np.sinh(X)
        classifier = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:900], y[:900])
        losses.append(log_loss(y[900:], classifier.predict_proba(X[900:])))
    assert np.mean(losses) < 0.3


def test_features_that_are_functions_of_others_do_no_harm():
    # In transformed coordinates they are no linear ones, which compounds must not forget.
    losses = []
    for seed in range(4):
        X, y = make_classification(
            1000, 20, n_informative=10, n_redundant=5, n_classes=2, random_state=seed
        )
        classifier = OnlineKDEClassifier().fit(X[:700], y[:700])
        losses.append(log_loss(y[700:], classifier.predict_proba(X[700:])))
    assert np.mean(losses) < 0.2


def test_what_is_transformed_takes_part():
    X, _, y = long_tailed(800)
    classifier = OnlineKDEClassifier().fit(X, y)
    settings = classifier._scorer().settings
    n = settings.n_pooled_transformed
    exponents = classifier._calibration.pool.exponents
    assert (n, settings.n_pooled) == (4, 6)
    assert exponents[:n].sum() > exponents[n : settings.n_pooled].sum()
    # Not where nothing is found by prediction.
    for parameters in ({"compression_threshold": 0.08}, {"bandwidth": "plugin"}):
        other = OnlineKDEClassifier(**parameters).fit(X[:100], y[:100])
        assert not other._scorer().settings.n_pooled_transformed
        assert other._calibration.transformation is None


def test_they_are_found_with_the_covariance_that_classes_share():
    X, _, y = long_tailed(300)
    classifier = OnlineKDEClassifier()
    before = None
    for i in range(300):
        classifier.partial_fit(X[[i]], y[[i]], classes=[0, 1, 2])
        calibration = classifier._calibration
        there = calibration.covariance is not None
        assert (calibration.transformation is not None) == there
        if there and before is not None and calibration.refreshed == before[0]:
            assert calibration.transformation is before[1]
        before = calibration.refreshed, calibration.transformation
    # Before that those of all data so far are taken.
    young = OnlineKDEClassifier().fit(X[:15], y[:15])
    expected = Transformation.of([e._state.mixture for e in young.estimators_])
    np.testing.assert_equal(young._scorer().settings.transformation, expected)


def test_no_quantile_is_given_away():
    X, _, y = long_tailed(300)
    classifier = OnlineKDEClassifier().fit(X, y)
    shared = classifier.without_rows(5)
    assert classifier._calibration.transformation is not None
    assert shared._calibration.transformation is None
    assert np.isfinite(shared.predict_log_proba(X)).all()
    shared.partial_fit(X, y)
    assert shared._calibration.transformation is not None


def test_merged_classifiers_have_those_of_all_data():
    X, _, y = long_tailed(600)
    parts = [OnlineKDEClassifier().fit(X[i::2], y[i::2]) for i in range(2)]
    merged = merge(parts)
    of_classes = zip(*([e._state.mixture for e in part.estimators_] for part in parts), strict=True)
    expected = Transformation.of([Mixture.of_parts(list(both)) for both in of_classes])
    np.testing.assert_equal(merged._calibration.transformation, expected)


def test_structure_of_covariances_stays():
    mixture = mixture_of(points(), "diag")
    new = Transformation.of([mixture]).mixture(mixture)
    assert structure_of(new.covariances) is structure_of(mixture.covariances)
    assert len(mixture.covariances)
    for array, before in zip(mixture, mixture_of(points(), "diag"), strict=True):
        np.testing.assert_array_equal(array, before)  # which is not written to


@pytest.mark.parametrize("memory", [1.0, "predictive"])
@both_structures
def test_what_the_calibration_has_learned_is_told(covariance_type, memory):
    X, _, y = long_tailed(500)
    classifier = OnlineKDEClassifier(covariance_type=covariance_type, forgetting_factor=memory)
    with pytest.raises(AttributeError, match="before it is fitted"):
        _ = classifier.calibration_weights_
    classifier.fit(X, y)
    told, pool = classifier.calibration_weights_, classifier._calibration.scored_pool()
    n_shapes = {"full": 2, "diag": 1}[covariance_type]  # and distances of votes
    numbers = "contamination", "steady", "forgotten"
    shapes = {name: part.shape for name, part in told.items() if name not in numbers}
    assert shapes == {
        "transformed": (n_shapes, 2),
        "density": (1, 2),
        "memory": (0,) if memory == 1.0 else (3,),
        "discriminant": (1,) if memory == 1.0 else (3,),
        "scale": (1,),
        "neighbors": (n_shapes + (1 if memory == 1.0 else 4), 2),
        "histograms": (2,),
        "offset": (3,),
    }
    exponents = [told[name].ravel() for name in shapes if name != "offset"]
    np.testing.assert_array_equal(np.concatenate(exponents), pool.exponents)
    np.testing.assert_array_equal(told["offset"], pool.offsets)
    assert told["contamination"] == pool.contamination
    assert told["steady"] == 0.0 if memory == 1.0 else 0.0 < told["steady"] < 1.0
    for part in shapes:
        told[part][:] = np.nan  # which changes nothing
    assert np.isfinite(classifier.predict_proba(X)).all()
    # Before any prediction it is Bayes' rule, less sure of itself.
    young = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:10], y[:10])
    weights = young.calibration_weights_
    total = sum(weights[name].sum() for name in ("transformed", "density", "discriminant"))
    assert total == pytest.approx(1.0 - 0.7 * 4 / (10 / 3 + 4))
