"""What experts count where outputs are predicted from features."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy.special import logsumexp

import skokde._engine.prequential
from marks import quick
from skokde import OnlineKDEDensity, OnlineKDERegressor
from skokde._engine.estimates import build_kde
from skokde._engine.experts import Experts, Grid
from skokde._engine.outputs import (
    highest_log_density,
    log_conditionals,
    log_densities_of_outputs,
    power_of_features,
)
from skokde._validation import check_settings
from skokde.distribution.conditioning import Tempering

structures = pytest.mark.parametrize(
    "covariance_type", quick(["full", "diag", "spherical", "lowrank"])
)


def linear(n, d, seed=0, noise=0.15):
    """A linear function of independent features, with a share of noise in its deviation."""
    rng = np.random.default_rng([seed, d])
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d)
    return X, y + noise * y.std() * rng.normal(size=n)


@pytest.mark.parametrize("n", [40, 80, 300])
def test_many_features_do_not_decide_which_expert_predicts(n):
    scores = []
    for seed in range(2):
        X, y = linear(1000, 20, seed)
        scores.append(OnlineKDERegressor().fit(X[:n], y[:n]).score(X[300:], y[300:]))
    assert np.mean(scores) > 0.8


def test_a_function_that_changes_is_followed_where_the_features_stay():
    X, y = linear(600, 10)
    y[300:] = -y[300:]
    regressor = OnlineKDERegressor(forgetting_factor="predictive")
    regressor.fit(X[:300], y[:300])
    shares = []
    for start in range(300, 500, 20):
        part = slice(start, start + 20)
        regressor.partial_fit(X[part], y[part])
        shares.append(regressor.density_.expert_weights_["memory"][0])
    assert regressor.score(X[500:], y[500:]) > 0.6
    assert min(shares) < 0.1


@structures
@pytest.mark.parametrize("n", [25, 300])
def test_likelihoods_of_experts_are_densities_of_outputs(covariance_type, n):
    X, y = linear(n, 3, noise=0.5)
    regressor = OnlineKDERegressor(covariance_type=covariance_type).fit(X, y)
    density = regressor.density_
    settings, state = density._settings(), density._state
    assert settings.n_outputs == 1
    experts = Experts.of(state.mixture, Grid.of(state.partitions, settings), settings)
    # Close where kernels may be narrow, and far enough for the widest Gaussian.
    values = y.mean() + 0.1 * y.std() * np.sinh(np.linspace(-9.0, 9.0, 20_001))
    for row in X[:2]:
        rows = np.column_stack([np.tile(row, (len(values), 1)), values])
        logs = experts.log_likelihoods(rows, len(rows), np.empty(0), np.empty((0, 4)), settings)
        totals = integrate.trapezoid(np.exp(logs), values, axis=0)
        np.testing.assert_allclose(totals, 1.0, rtol=1e-3)


@structures
def test_rows_speak_for_experts_with_the_help_of_later_samples(covariance_type):
    X, y = linear(120, 3, noise=0.5)
    regressor = OnlineKDERegressor(covariance_type=covariance_type).fit(X, y)
    rows = np.column_stack([X, y])
    settings, state = regressor.density_._settings(), regressor.density_._state
    experts = Experts.of(state.mixture, Grid.of(state.partitions, settings), settings)
    joint, features = settings._replace(n_outputs=0), np.arange(3)
    later = np.ones(20), rows[:20]
    found = experts.log_likelihoods(rows[20:50], 10, *later, settings)
    of_both = experts.log_likelihoods(rows[20:50], 10, *later, joint)
    of_features = experts.marginal(features).log_likelihoods(
        X[20:50].copy(), 10, later[0], X[:20].copy(), joint
    )
    np.testing.assert_array_equal(found, of_both - of_features)
    unaided = experts.log_likelihoods(rows[20:50], 30, *later, joint)
    np.testing.assert_array_equal(of_both[:10], unaided[:10])
    assert (of_both[10:] != unaided[10:]).any()


@structures
@pytest.mark.parametrize("count", [330.0, 2000.0])
@pytest.mark.parametrize("forgetting_factor", [1.0, "predictive"])
def test_log_densities_of_outputs_are_those_of_kernels(covariance_type, forgetting_factor, count):
    """By the definition, kernel by kernel."""
    X, y = linear(330, 3, noise=0.5)
    regressor = OnlineKDERegressor(
        covariance_type=covariance_type, forgetting_factor=forgetting_factor
    ).fit(X, y)
    density, rows = regressor.density_, np.column_stack([X, y])[:30]
    rows[::3, 0], rows[1::3, :3] = np.nan, np.nan
    settings = density._settings()
    kde = build_kde(density._state, settings)
    found = log_densities_of_outputs(kde, rows, 1, count)
    for row, log_density in zip(rows, found, strict=True):
        known = np.flatnonzero(~np.isnan(row[:3]))
        logs, says, totals = {}, {}, {}
        for family, part, width, weight in kde.densities:
            alone = np.zeros((1, len(family.masses), len(family.kernels.widths)))
            alone[0, part, width] = weight
            kernel = id(family.kernels.frame), width
            for held, chosen in ((logs, [*known, 3]), (says, known)):
                numbers = np.array(chosen, dtype=np.intp)
                if len(numbers):
                    marginal = family.marginal(numbers, family.kernels.frame.marginal(numbers))
                    value = marginal.log_mixtures(row[None, numbers], alone)[0, 0]
                else:
                    value = np.log(weight * family.masses[part])
                held.setdefault(kernel, []).append(value)
            totals.setdefault(kernel, []).append(weight * family.masses[part])
        power = 1.0 / (1.0 + len(known) * (1.0 if count < 500.0 else 500.0 / count))
        of_both, of_features = (
            np.array([logsumexp(held[kernel]) for kernel in totals]) for held in (logs, says)
        )
        of_kernels = np.log([np.sum(of) for of in totals.values()])
        weights = power * of_features + (1.0 - power) * of_kernels
        expected = logsumexp(weights + of_both - of_features) - logsumexp(weights)
        assert log_density == pytest.approx(expected, abs=1e-9)


def test_no_probability_of_a_whole_number_is_above_one():
    wholes = np.array([[3.0], [5.0], [5.0], [6.0], [9.0]])
    assert highest_log_density(wholes) == 0.0
    assert highest_log_density(0.25 * wholes) == pytest.approx(np.log(4.0))
    both = np.column_stack([0.25 * wholes, 10.0 * wholes])
    assert highest_log_density(both) == pytest.approx(np.log(4.0) - np.log(10.0))
    assert highest_log_density(np.full((4, 1), 2.0)) == np.inf
    assert highest_log_density(np.column_stack([wholes, np.ones(5)])) == np.inf
    assert highest_log_density(np.empty((0, 1))) == np.inf


def test_kernels_as_narrow_as_rounding_do_not_win_by_rows_that_repeat(monkeypatch):
    def score(seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(900, 4))
        y = np.round(X[:, 0] + X[:, 1] + 0.7 * rng.normal(size=900))
        learned = rng.permutation(np.append(np.arange(400), rng.integers(0, 400, 200)))
        return OnlineKDERegressor().fit(X[learned], y[learned]).score(X[400:], y[400:])

    bounded = np.mean([score(seed) for seed in range(3)])
    monkeypatch.setattr(skokde._engine.prequential, "highest_log_density", lambda outputs: np.inf)
    assert bounded > np.mean([score(seed) for seed in range(3)]) + 0.01


def test_features_count_as_one_of_few_samples_and_as_bayes_has_it_of_many():
    assert [power_of_features(4, count) for count in (1.0, 500.0)] == [0.2, 0.2]
    powers = power_of_features(np.array([0, 1, 4]), 2000.0)
    np.testing.assert_allclose(powers, [1.0, 0.8, 0.5])
    assert power_of_features(20, 1e9) == pytest.approx(1.0, abs=1e-4)


def test_what_is_lost_stays_lost():
    both = np.array([[-np.inf, -np.inf, -1.0]])
    features = np.array([[-np.inf, -2.0, -3.0]])
    np.testing.assert_array_equal(log_conditionals(both, features), [[-np.inf, -np.inf, 2.0]])


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(0, 2**32 - 1),
)
def test_tempering_raises_what_groups_say_to_a_power(groups, n, power, seed):
    rng = np.random.default_rng(seed)
    k, groups = len(groups), np.array(groups)
    log_weights = np.log(rng.dirichlet(np.ones(k)))
    log_totals = rng.normal(size=5)  # with components that are left out
    log_terms = log_weights + rng.normal(scale=200.0, size=(n, k))
    log_terms[rng.random((n, k)) < 0.2] = -np.inf
    found = Tempering(groups, log_totals, power).applied(log_terms)
    for row in range(n):
        for group in set(groups):
            some = groups == group
            says, total = logsumexp(log_terms[row, some]), log_totals[group]
            if says == -np.inf:
                assert (found[row, some] == -np.inf).all()
                continue
            assert logsumexp(found[row, some]) == pytest.approx(
                power * says + (1.0 - power) * total, abs=1e-9
            )
            there = some & (log_terms[row] > -np.inf)
            away = found[row, there] - log_terms[row, there]
            np.testing.assert_allclose(away, (1.0 - power) * (total - says), atol=1e-9)


def test_far_out_it_is_known_that_little_is_known():
    """A narrow kernel would give the output of the nearest sample there, with its small spread."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(400, 2))
    y = 2.0 * np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=400)
    regressor = OnlineKDERegressor().fit(X, y)
    assert regressor.score(X, y) > 0.9
    near, far = (regressor.predict(scale * X, return_std=True)[1] for scale in (1.0, 6.0))
    assert np.median(far) > 4.0 * np.median(near)


@pytest.mark.parametrize("n", [12, 25, 100])
def test_copies_predict_the_same(n):
    X, y = linear(n + 5, 4)
    regressor = OnlineKDERegressor().fit(X[:n], y[:n])
    expected = regressor.predict(X[n:])
    for other in (copy.deepcopy(regressor), pickle.loads(pickle.dumps(regressor))):
        np.testing.assert_array_equal(other.predict(X[n:]), expected)
        assert other.density_._settings().n_outputs == 1
        rows = np.column_stack([X, y])
        np.testing.assert_array_equal(
            other.density_.score_samples(rows), regressor.density_.score_samples(rows)
        )
    stored = regressor.density_.__getstate__()
    assert set(stored) == set(OnlineKDEDensity().fit(X).__getstate__())


def test_densities_have_no_outputs():
    X, y = linear(50, 3)
    density = OnlineKDEDensity().fit(X)
    assert check_settings(density, 3).n_outputs == 0
    regressor = OnlineKDERegressor().fit(X, np.column_stack([y, y**2]))
    assert check_settings(regressor, 5).n_outputs == 2
