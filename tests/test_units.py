"""Neither the units of features nor degenerate data may matter (paper, Section 3)."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import twins
from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity

pytestmark = pytest.mark.thorough

both_structures = pytest.mark.parametrize("covariance_type", ["full", "diag"])


def labelled(d, n, *, seed=0):
    """Three overlapping classes of several clumps each, in random order, and rows to predict."""
    rng = np.random.default_rng([seed, d, n])
    y = rng.integers(3, size=2 * n)
    centers = 2.5 * rng.normal(size=(3, 2, d))
    X = centers[y, rng.integers(2, size=2 * n)] + rng.normal(size=(2 * n, d))
    return X[:n], y[:n], X[n:]


# --------------------------------------------------------------------- powers of two: to the bit

PARAMETERS = {
    "plain": {},
    "memory": {"forgetting_factor": "predictive"},
    "plugin": {"bandwidth": "plugin"},
    "plugin, one threshold": {"bandwidth": "plugin", "compression_threshold": 0.08},
    "okde, forgetting": {
        "bandwidth": "okde",
        "forgetting_factor": 0.99,
        "compression_threshold": 0.08,
    },
    "wide, hard": {"bandwidth": 1.5, "compression_threshold": 0.2},
    "capped": {"max_components": 12, "bandwidth": "scott", "compression_threshold": 0.08},
}


@pytest.mark.parametrize("reach", quick([300, 10]))
@pytest.mark.parametrize("kind", PARAMETERS)
@both_structures
@pytest.mark.parametrize("d", quick([2, 1, 5]))
def test_powers_of_two_change_no_bit(d, covariance_type, kind, reach):
    X, y, X_test = labelled(d, 450)
    factors = 2.0 ** np.random.default_rng(d).integers(-reach, reach + 1, size=d)
    model, scaled = (
        OnlineKDEClassifier(covariance_type=covariance_type, **PARAMETERS[kind]).fit(X * f, y)
        for f in (np.ones(d), factors)
    )
    for old, new in zip(model.estimators_, scaled.estimators_, strict=True):
        assert old.covariances_.any()  # compressed
        assert new.n_components_ == old.n_components_
        np.testing.assert_array_equal(new.weights_, old.weights_)
        np.testing.assert_array_equal(new.means_, old.means_ * factors)
        outer = factors if covariance_type == "diag" else np.outer(factors, factors)
        if covariance_type == "diag":
            outer = outer**2
        np.testing.assert_array_equal(new.covariances_, old.covariances_ * outer)
        if "compression_threshold" in PARAMETERS[kind]:
            np.testing.assert_array_equal(new.bandwidth_, old.bandwidth_ * outer)
        else:  # weighted by densities, whose logarithms the unit shifts by what is not exact
            np.testing.assert_allclose(new.bandwidth_, old.bandwidth_ * outer, rtol=1e-11)
    expected = model.predict(X_test)
    assert len(set(expected)) == 3
    np.testing.assert_array_equal(scaled.predict(X_test * factors), expected)
    np.testing.assert_allclose(
        scaled.score_samples(X_test * factors),
        model.score_samples(X_test) - np.log(factors).sum(),
        rtol=1e-12,
        atol=1e-10,
    )


@both_structures
def test_powers_of_two_with_features_constant_within_a_class(covariance_type):
    X, y, X_test = labelled(3, 360)
    X[y == 0, 1] = 0.3
    X[y == 1, 2] = 0.0
    factors = 2.0 ** np.array([7.0, -30.0, 25.0])
    model, scaled = (
        OnlineKDEClassifier(covariance_type=covariance_type).fit(X * f, y)
        for f in (np.ones(3), factors)
    )
    for old, new in zip(model.estimators_, scaled.estimators_, strict=True):
        assert old.covariances_.any()
        np.testing.assert_array_equal(new.means_, old.means_ * factors)
    np.testing.assert_array_equal(scaled.predict(X_test * factors), model.predict(X_test))
    np.testing.assert_allclose(
        scaled.predict_log_proba(X_test * factors),
        model.predict_log_proba(X_test),
        rtol=1e-10,
        atol=1e-10,
    )


# ------------------------------------------------------------------------- any factors and shifts


@pytest.mark.parametrize("bandwidth", ["predictive", "plugin", "okde", "scott"])
@both_structures
@pytest.mark.parametrize("d", [1, 2, 5])
def test_other_units_shift_log_densities_by_their_logarithms(d, covariance_type, bandwidth):
    # At most 29 rows a class: nothing is compressed, so that only rounding may tell.
    X, y, X_test = labelled(d, 75)
    assert max(np.bincount(y)) < 30
    parameters = {"covariance_type": covariance_type, "bandwidth": bandwidth}
    model = OnlineKDEClassifier(**parameters).fit(X, y)
    density = OnlineKDEDensity(**parameters).fit(X[:29])
    rng = np.random.default_rng(d)
    for _ in range(4):
        factors = 10.0 ** rng.uniform(-9.0, 9.0, size=d)
        shift = factors * rng.normal(size=d) * 100.0

        def changed(rows, factors=factors, shift=shift):
            return rows * factors + shift

        other = OnlineKDEClassifier(**parameters).fit(changed(X), y)
        np.testing.assert_array_equal(other.predict(changed(X_test)), model.predict(X_test))
        other = OnlineKDEDensity(**parameters).fit(changed(X[:29]))
        np.testing.assert_allclose(
            other.score_samples(changed(X_test)),
            density.score_samples(X_test) - np.log(factors).sum(),
            rtol=0.0,
            atol=1e-8,
        )


@both_structures
def test_compressed_models_in_other_units_are_the_same_model(covariance_type):
    # Rounding may turn a tie, but on a fixed stream without ties it must not show.
    X = twins.clumps(3, 300)
    factors = np.array([1e-9, 3.7, 1e9])
    shift = factors * [5.0, -20.0, 1.0]
    model, other = (
        OnlineKDEDensity(covariance_type=covariance_type).fit(rows)
        for rows in (X, X * factors + shift)
    )
    assert model.covariances_.any()
    assert other.n_components_ == model.n_components_
    np.testing.assert_allclose((other.means_ - shift) / factors, model.means_, atol=1e-9)


@both_structures
def test_order_of_features_does_not_matter(covariance_type):
    X, y, X_test = labelled(4, 70)
    assert max(np.bincount(y)) < 30
    order = [2, 0, 3, 1]
    model = OnlineKDEClassifier(covariance_type=covariance_type).fit(X, y)
    other = OnlineKDEClassifier(covariance_type=covariance_type).fit(X[:, order], y)
    np.testing.assert_allclose(
        other.predict_log_proba(X_test[:, order]),
        model.predict_log_proba(X_test),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("bandwidth", ["predictive", "plugin", "variances"])
@both_structures
@pytest.mark.parametrize("d", [2, 3, 9])
def test_order_of_features_does_not_matter_to_compressions(d, covariance_type, bandwidth):
    # Sums of features are rounded in their order, which is all that may differ.
    for seed in range(3):
        X, X_test = twins.clumps(d, 400, seed=seed), twins.clumps(d, 50, seed=100 + seed)
        order = np.roll(np.arange(d), 1 + seed % (d - 1))
        densities = []
        for columns in (np.arange(d), order):
            rows = np.ascontiguousarray(X[:, columns])
            rule = 0.1 * rows.var(axis=0) if bandwidth == "variances" else bandwidth
            density = OnlineKDEDensity(
                covariance_type=covariance_type, bandwidth=rule, max_components=200
            ).fit(rows)
            densities.append((density, density.score_samples(X_test[:, columns])))
        (old, expected), (new, got) = densities
        assert old.covariances_.any()
        assert new.n_components_ == old.n_components_
        np.testing.assert_allclose(new.means_, old.means_[:, order], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------------- degenerate data


def check_density(model, X, X_new):
    assert np.isfinite(model.score_samples(X)).all()
    scores = model.score_samples(X_new)
    assert not np.isnan(scores).any()
    assert np.all(scores < np.inf)
    for array in (model.weights_, model.means_, model.covariances_, model.bandwidth_):
        assert np.isfinite(array).all()
    np.testing.assert_allclose(model.weights_.sum(), 1.0, rtol=1e-12)
    diagonal = np.diagonal(twins.full_covariances(model.bandwidth_[None])[0])
    assert np.all(diagonal > 0.0)


def check_classifier(model, X, X_new):
    for rows in (X, X_new):
        proba = model.predict_proba(rows)
        assert np.isfinite(proba).all()
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-10)
        assert set(model.predict(rows)) <= set(model.classes_)
    assert np.isfinite(model.score_samples(X)).all()


def rows_beyond(X):
    """Rows that are not X's: moved, mirrored, far and very far."""
    size = np.abs(X).max(axis=0) + (X == 0.0).all(axis=0)
    return np.concatenate(
        [X[:3] + 0.1 * size, -X[:3], 1e3 * size[None], -1e9 * size[None], 1e100 * size[None]]
    )


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def with_outlier(X, size):
    X = X.copy()
    X[len(X) // 2] *= size
    return X


DEGENERATE = {
    "one row": normal(1, 3),
    "one row of zeros": np.zeros((1, 2)),
    "two rows": normal(2, 3),
    "fewer rows than features": normal(5, 12),
    "all rows equal": np.ones((50, 3)) / 3.0,
    "all zero": np.zeros((50, 2)),
    "two places": np.repeat([[0.0, 1.0], [1.0, 1.0]], 40, axis=0),
    "constant features": np.column_stack([normal(80, 2), np.full(80, 1e6 / 7.0), np.zeros(80)]),
    "equal features": normal(80, 1) * np.array([1.0, 1.0, -1.0]),
    "collinear features": np.column_stack([normal(80, 2), normal(80, 2).sum(axis=1)]),
    "nearly collinear": normal(80, 1) + 1e-9 * normal(80, 3, 1),
    "on a line, with gaps": np.arange(80.0)[:, None] ** 3 * np.array([[1.0, 2.0]]),
    "mixed scales": normal(80, 5) * 10.0 ** np.array([-12.0, -6.0, 0.0, 6.0, 12.0]),
    "tiny scales": normal(80, 2) * np.array([1e-140, 1e-100]),
    "smallest scales": normal(80, 2) * np.array([1e-300, 1e-160]),
    "largest scales": normal(80, 2) * np.array([1e145, 1e100]),
    "far outlier": with_outlier(normal(80, 3), 1e12),
    "farthest outlier": with_outlier(normal(80, 2), 1e140),
    "two far clumps": np.concatenate([normal(40, 2), normal(40, 2) + 1e9]),
    "huge offset": normal(80, 3) + 1e12,
    "offset beyond the digits": normal(80, 2) + 1e16,
    "offset and scales": (normal(80, 3) + 1e6) * np.array([1e-12, 1.0, 1e12]),
    "binary": (normal(120, 6) > 0.0).astype(float),
    "one in eighty": np.eye(80)[:, :2] + np.array([0.0, 5.0]),
    "heavy tails": np.random.default_rng(0).standard_cauchy(size=(200, 2)) ** 3,
    "random walk": np.cumsum(normal(200, 2), axis=0),
}


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@pytest.mark.parametrize(
    ("bandwidth", "threshold"),
    quick(
        [("predictive", 0.02), ("predictive", 0.3), ("plugin", 0.02), ("okde", 0.3), (2.0, 0.02)],
    ),
)
@both_structures
@pytest.mark.parametrize("data", DEGENERATE)
def test_degenerate_data(data, covariance_type, threshold, bandwidth):
    X = DEGENERATE[data]
    parameters = {
        "covariance_type": covariance_type,
        "compression_threshold": threshold,
        "bandwidth": bandwidth,
    }
    density = OnlineKDEDensity(**parameters)
    check_density(density.fit(X), X, rows_beyond(X))
    # What remains when older rows are forgotten is more degenerate still.
    forgetful = OnlineKDEDensity(forgetting_factor=0.1, max_components=5, **parameters).fit(X)
    assert np.all(forgetful.score_samples(X) < np.inf)
    y = np.arange(len(X)) % 3
    check_classifier(OnlineKDEClassifier(**parameters).fit(X, y), X, rows_beyond(X))


@pytest.mark.parametrize("distance", [1e3, 1e6, 1e9, 1e12, 1e100])
def test_probabilities_sum_to_one_however_small_the_densities(distance):
    # Two equal classes and one that is nearer: log-densities of some -1e6 and less.
    X, y = np.tile(normal(6, 1), (3, 1)), np.repeat([0, 1, 2], 6)
    X[y == 2] += 0.5
    model = OnlineKDEClassifier(bandwidth=np.ones(1)).fit(X, y)
    proba = model.predict_proba([[-distance], [distance]])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(proba[:, 0], proba[:, 1], rtol=1e-12)


@st.composite
def degenerate_streams(draw):
    """Rows whose features, scales, offsets, repeats and outliers are drawn at random."""
    n, d = draw(st.integers(1, 70)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns = []
    for _ in range(d):
        kind = draw(
            st.sampled_from(["normal", "constant", "zero", "binary", "integers", "copy", "rare"])
        )
        column = {
            "normal": rng.normal(size=n),
            "constant": np.full(n, rng.normal()),
            "zero": np.zeros(n),
            "binary": rng.integers(2, size=n).astype(float),
            "integers": rng.integers(-5, 6, size=n).astype(float),
            "copy": columns[0].copy() if columns else rng.normal(size=n),
            "rare": np.where(rng.random(n) < 0.05, rng.normal(size=n), 0.0),
        }[kind]
        columns.append(column)
    X = np.column_stack(columns)
    if draw(st.booleans()):  # rows repeat
        X = X[rng.integers(n, size=n) // draw(st.integers(1, n))]
    if draw(st.booleans()):  # outliers
        X[rng.integers(n)] *= 10.0 ** draw(st.integers(2, 12))
    X = X + np.array(draw(st.lists(st.sampled_from([0.0, 1.0, 1e6, 1e12]), min_size=d, max_size=d)))
    return X * 10.0 ** np.array(draw(st.lists(st.integers(-12, 12), min_size=d, max_size=d)))


parameter_values = st.fixed_dictionaries(
    {
        "covariance_type": st.sampled_from(["full", "diag"]),
        "compression_threshold": st.sampled_from([0.0, 0.02, 0.1, 0.5, 1.0]),
        "bandwidth": st.sampled_from(
            ["predictive", "okde", "plugin", "silverman", "scott", 0.01, 3.0]
        ),
        "max_components": st.sampled_from([None, 2, 7]),
    }
)


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(X=degenerate_streams(), parameters=parameter_values)
def test_no_stream_breaks_the_density(X, parameters):
    check_density(OnlineKDEDensity(**parameters).fit(X), X, rows_beyond(X))


@pytest.mark.filterwarnings("ignore::skokde.DegenerateDataWarning")
@settings(max_examples=40, deadline=None, derandomize=True)
@given(X=degenerate_streams(), parameters=parameter_values, f=st.sampled_from([0.99, 0.5, 1e-3]))
def test_no_stream_breaks_a_forgetful_density(X, parameters, f):
    model = OnlineKDEDensity(forgetting_factor=f, **parameters).fit(X)
    for rows in (X, rows_beyond(X)):
        scores = model.score_samples(rows)
        assert not np.isnan(scores).any()
        assert np.all(scores < np.inf)
    assert np.isfinite(model.score_samples(X[-1:])).all()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(X=degenerate_streams(), parameters=parameter_values, n_classes=st.integers(1, 4))
def test_no_stream_breaks_the_classifier(X, parameters, n_classes):
    y = np.random.default_rng(0).integers(n_classes, size=len(X))
    check_classifier(OnlineKDEClassifier(**parameters).fit(X, y), X, rows_beyond(X))
