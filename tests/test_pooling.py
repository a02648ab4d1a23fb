"""The logarithmic pool of densities and a linear discriminant."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import log_softmax
from scipy.stats import multivariate_t

import twins
from skokde._base import one_blas_thread
from skokde._engine import pooling
from skokde._engine.covariance import STRUCTURES
from skokde._engine.pooling import (
    DEGREES_OF_FREEDOM,
    FARTHEST_CLASS,
    MEMORY,
    PRIOR_PRECISION,
    Discriminant,
    LogLinearPool,
    learn_pool,
    newton_step,
    relative,
)


@pytest.fixture(autouse=True)
def _one_thread():
    with one_blas_thread():  # as the estimators do
        yield


both_structures = pytest.mark.parametrize("covariance_type", ["full", "diag"])

MANY = 1e9  # samples that the model remembers: no prediction is forgotten


def predictions(n=80, n_classes=3, *, seed=0, sure=3.0):
    """What `learn_pool` takes but for the pool: of densities that are too sure by a factor."""
    rng = np.random.default_rng([seed, n_classes])
    prior = rng.dirichlet(np.full(n_classes, 5.0))
    codes = rng.choice(n_classes, size=n, p=prior)
    log_density = rng.normal(size=(n, n_classes))
    log_density[np.arange(n), codes] += 1.0
    linear = 0.5 * log_density + rng.normal(size=(n, n_classes))
    counts = rng.uniform(0.5, 2.0, size=n)
    return np.log(prior), sure * log_density, linear, codes, counts


def plain_loss(weights, pool, log_prior, log_density, linear, codes, counts):
    """Log-loss of the rows, and the parabola of what was learned before, from the formula."""
    t, s, *b = weights
    log_p = log_softmax(log_prior + b + t * log_density + s * linear, axis=1)
    step = weights - pool.weights
    return 0.5 * step @ pool.precision @ step - counts @ log_p[np.arange(len(codes)), codes]


def minimum(pool, *batch):
    bounds = [(0.0, None)] * 2 + [(None, None)] * (len(pool.weights) - 2)
    return minimize(
        plain_loss,
        pool.weights,
        args=(pool, *batch),
        method="L-BFGS-B",
        bounds=bounds,
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 1000},
    ).x


def hessian(function, x, step=1e-4):
    d = len(x)
    out = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            terms = [
                sign_i
                * sign_j
                * function(x + step * (sign_i * np.eye(d)[i] + sign_j * np.eye(d)[j]))
                for sign_i in (1, -1)
                for sign_j in (1, -1)
            ]
            out[i, j] = sum(terms) / (4 * step**2)
    return out


# -------------------------------------------------------------------------------------- learning


def test_bayes_rule_is_where_it_begins():
    pool = LogLinearPool.bayes(3)
    log_prior, log_density, linear, *_ = predictions()
    np.testing.assert_array_equal(
        pool.logits(log_prior, log_density, linear), log_prior + log_density
    )
    np.testing.assert_array_equal(pool.precision, PRIOR_PRECISION * np.eye(5))
    assert pool.count == 0.0


def test_logits_by_hand():
    pool = LogLinearPool(np.array([0.5, 2.0, 1.0, -1.0]), np.eye(4), 0.0)
    logits = pool.logits(np.array([-1.0, -2.0]), np.array([[2.0, 4.0]]), np.array([[1.0, 3.0]]))
    np.testing.assert_array_equal(logits, [[-1 + 1 + 1 + 2, -2 - 1 + 2 + 6]])


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_first_batch_has_the_least_loss(n_classes):
    pool, batch = LogLinearPool.bayes(n_classes), predictions(n_classes=n_classes)
    learned = learn_pool(pool, *batch, MANY)
    expected = minimum(pool, *batch)
    np.testing.assert_allclose(learned.weights, expected, atol=1e-3)
    least = plain_loss(expected, pool, *batch)
    assert plain_loss(learned.weights, pool, *batch) <= least + 1e-6 * abs(least)
    # It has tempered what was too sure.
    assert 0.0 < learned.weights[0] < 0.7
    assert learned.count == pytest.approx(batch[-1].sum())


@pytest.mark.parametrize("sure", [0.1, 0.3, 1.0])
def test_no_gradient_is_left(sure):
    pool = learn_pool(LogLinearPool.bayes(3), *predictions(), MANY)
    batch = predictions(seed=1, sure=sure)
    learned = learn_pool(pool, *batch, MANY)
    assert learned.weights[:2].min() > 0.0
    gradient = approx_fprime(learned.weights, plain_loss, 1e-6, pool, *batch)
    np.testing.assert_allclose(gradient, 0.0, atol=2e-2)
    np.testing.assert_allclose(learned.weights, minimum(pool, *batch), atol=1e-4)


@pytest.mark.parametrize("gap", [30.0, 1e3, 1e30])
def test_classes_that_are_told_apart_for_certain_take_no_longer(monkeypatch, gap):
    # The loss is zero but for rounding.
    log_prior, _, linear, codes, counts = predictions(50, n_classes=2)
    log_density = gap * np.eye(2)[codes]
    steps = []

    def counted(*arguments):
        steps.append(arguments)
        return newton_step(*arguments)

    monkeypatch.setattr(pooling, "newton_step", counted)
    learn_pool(LogLinearPool.bayes(2), log_prior, log_density, 0.0 * linear, codes, counts, MANY)
    assert len(steps) <= 6


def test_steps_that_overshoot_are_halved(monkeypatch):
    # Surprises beyond measure: a whole Newton step from there goes far beyond the minimum.
    pool = LogLinearPool.bayes(2)._replace(precision=1e-6 * np.eye(4))
    log_density = np.array([[0.0, 60.0]] * 9 + [[60.0, 0.0]])
    monkeypatch.setattr(pooling, "PRIOR_PRECISION", 1e-6)
    batch = np.log([0.5, 0.5]), log_density, np.zeros((10, 2)), np.zeros(10, int), np.ones(10)
    learned = learn_pool(pool, *batch, MANY)
    expected = minimum(pool, *batch)
    least = plain_loss(expected, pool, *batch)
    assert plain_loss(learned.weights, pool, *batch) <= least + 1e-6


def test_later_batches_start_from_the_earlier_ones():
    first = learn_pool(LogLinearPool.bayes(3), *predictions(), MANY)
    batch = predictions(seed=1, sure=0.5)
    second = learn_pool(first, *batch, MANY)
    np.testing.assert_allclose(second.weights, minimum(first, *batch), atol=1e-3)
    alone = learn_pool(LogLinearPool.bayes(3), *batch, MANY)
    assert first.weights[0] < second.weights[0] < alone.weights[0]
    assert second.count == pytest.approx(first.count + batch[-1].sum())


@pytest.mark.parametrize("n_classes", [2, 4])
def test_precision_is_the_curvature(n_classes):
    batch = predictions(n_classes=n_classes)
    pool = learn_pool(LogLinearPool.bayes(n_classes), *batch, MANY)
    numeric = hessian(lambda w: plain_loss(w, LogLinearPool.bayes(n_classes), *batch), pool.weights)
    np.testing.assert_allclose(pool.precision, numeric, rtol=1e-4, atol=1e-3)
    second = predictions(n_classes=n_classes, seed=1)
    later = learn_pool(pool, *second, MANY)
    numeric = hessian(lambda w: plain_loss(w, pool, *second), later.weights)
    np.testing.assert_allclose(later.precision, numeric, rtol=1e-4, atol=1e-3)
    assert np.linalg.eigvalsh(later.precision)[0] >= PRIOR_PRECISION - 1e-9


def test_a_parabola_stands_for_the_first_batch():
    # Twice the same predictions lead to nearly the same weights as both at once.
    log_prior, log_density, linear, codes, counts = predictions(300)
    halves = slice(None, 150), slice(150, None)
    pool = LogLinearPool.bayes(3)
    for half in halves:
        pool = learn_pool(
            pool, log_prior, log_density[half], linear[half], codes[half], counts[half], MANY
        )
    both = learn_pool(LogLinearPool.bayes(3), log_prior, log_density, linear, codes, counts, MANY)
    np.testing.assert_allclose(pool.weights, both.weights, atol=0.06)


def test_a_density_that_misleads_has_no_weight_but_never_less():
    log_prior, log_density, _, codes, counts = predictions(400)
    linear = np.random.default_rng(1).normal(size=(400, 3)) + 2.0 * np.eye(3)[codes]
    pool = learn_pool(LogLinearPool.bayes(3), log_prior, -log_density, linear, codes, counts, MANY)
    assert pool.weights[0] == 0.0
    assert pool.weights[1] > 0.0
    pool = learn_pool(LogLinearPool.bayes(3), log_prior, log_density, -linear, codes, counts, MANY)
    assert pool.weights[0] > 0.0
    assert pool.weights[1] == 0.0
    pool = learn_pool(LogLinearPool.bayes(3), log_prior, -log_density, -linear, codes, counts, MANY)
    assert pool.weights[:2].tolist() == [0.0, 0.0]


def test_constants_of_a_row_do_not_matter():
    log_prior, log_density, linear, codes, counts = predictions()
    shift = np.random.default_rng(0).normal(size=(80, 2, 1)) * 1e3
    pool = learn_pool(LogLinearPool.bayes(3), log_prior, log_density, linear, codes, counts, MANY)
    shifted = learn_pool(
        LogLinearPool.bayes(3),
        log_prior,
        log_density + shift[:, 0],
        linear + shift[:, 1],
        codes,
        counts,
        MANY,
    )
    np.testing.assert_allclose(shifted.weights, pool.weights, atol=1e-6)
    np.testing.assert_allclose(shifted.precision, pool.precision, rtol=1e-6, atol=1e-6)


def test_rows_count_as_often_as_they_are():
    log_prior, log_density, linear, codes, _ = predictions(40)
    times = np.random.default_rng(0).integers(1, 4, size=40)
    weighted = learn_pool(
        LogLinearPool.bayes(3), log_prior, log_density, linear, codes, times.astype(float), MANY
    )
    rows = np.repeat(np.arange(40), times)
    repeated = learn_pool(
        LogLinearPool.bayes(3),
        log_prior,
        log_density[rows],
        linear[rows],
        codes[rows],
        np.ones(len(rows)),
        MANY,
    )
    np.testing.assert_allclose(weighted.weights, repeated.weights, atol=1e-5)
    np.testing.assert_allclose(weighted.precision, repeated.precision, rtol=1e-5, atol=1e-5)
    assert weighted.count == pytest.approx(repeated.count)


def test_predictions_are_worth_a_share_of_the_samples():
    batch = predictions()
    n = batch[-1].sum()
    free = learn_pool(LogLinearPool.bayes(3), *batch, MANY)
    samples = 0.5 * n / MEMORY
    capped = learn_pool(LogLinearPool.bayes(3), *batch, samples)
    assert capped.count == pytest.approx(MEMORY * samples) == pytest.approx(0.5 * free.count)
    # As if each row were half a one.
    halved = learn_pool(LogLinearPool.bayes(3), *batch[:-1], 0.5 * batch[-1], MANY)
    np.testing.assert_allclose(capped.weights, halved.weights, atol=1e-6)
    np.testing.assert_allclose(capped.precision, halved.precision, rtol=1e-6)
    # What was known before is forgotten by as much, but not the prior.
    second = predictions(seed=1)
    total = free.count + second[-1].sum()
    later = learn_pool(free, *second, 0.25 * total / MEMORY)
    prior = PRIOR_PRECISION * np.eye(5)
    faded = free._replace(precision=prior + 0.25 * (free.precision - prior))
    expected = learn_pool(faded, *second[:-1], 0.25 * second[-1], MANY)
    np.testing.assert_allclose(later.weights, expected.weights, atol=1e-6)
    np.testing.assert_allclose(later.precision, expected.precision, rtol=1e-6)
    assert later.count == pytest.approx(0.25 * total)


def test_what_was_learned_long_ago_fades():
    pool = LogLinearPool.bayes(3)
    for seed in range(15):
        pool = learn_pool(pool, *predictions(20, seed=seed, sure=10.0), 400.0)
    tempered = pool.weights[0]
    for seed in range(25):
        pool = learn_pool(pool, *predictions(20, seed=seed, sure=0.5), 400.0)
    assert pool.count == pytest.approx(100.0)
    assert tempered < 0.3
    assert pool.weights[0] > 0.8


def test_one_class_only():
    batch = np.zeros(1), np.zeros((5, 1)), np.zeros((5, 1)), np.zeros(5, dtype=int), np.ones(5)
    pool = learn_pool(LogLinearPool.bayes(1), *batch, MANY)
    np.testing.assert_array_equal(pool.weights, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(pool.precision, PRIOR_PRECISION * np.eye(3))


def test_count_is_a_plain_number():
    assert type(learn_pool(LogLinearPool.bayes(3), *predictions(), MANY).count) is float


# ------------------------------------------------------------------------------ far from a class


def test_relative():
    logs = np.array([[0.0, -5.0, -1e9], [3.0, 3.0, -np.inf], [-np.inf] * 3])
    np.testing.assert_array_equal(
        relative(logs, 100.0), [[0.0, -5.0, -100.0], [0.0, 0.0, -100.0], [-100.0] * 3]
    )


def test_far_rows_teach_no_more_than_the_farthest_class():
    log_prior, log_density, linear, codes, counts = predictions()
    log_density[:3] = [[0.0, -1e300, -np.inf], [-1e308, 0.0, -1e6], [-np.inf] * 3]
    linear[:3] = [[0.0, -1e9, -1e9]] * 3
    codes[:3] = [0, 0, 1]
    pool = learn_pool(LogLinearPool.bayes(3), log_prior, log_density, linear, codes, counts, MANY)
    assert np.isfinite(pool.weights).all()
    assert np.isfinite(pool.precision).all()
    nearer = log_density.copy()
    nearer[:3] = [
        [0.0, -FARTHEST_CLASS, -FARTHEST_CLASS],
        [-FARTHEST_CLASS, 0.0, -FARTHEST_CLASS],
        [0.0] * 3,
    ]
    same = learn_pool(LogLinearPool.bayes(3), log_prior, nearer, linear, codes, counts, MANY)
    np.testing.assert_allclose(pool.weights, same.weights, atol=1e-6)


# --------------------------------------------------------------------------------- some classes


def test_of_some_classes_and_back():
    pool = learn_pool(LogLinearPool.bayes(4), *predictions(n_classes=4), MANY)
    chosen = np.array([0, 2, 3])
    some = pool.of_classes(chosen)
    assert some.weights.tolist() == pool.weights[[0, 1, 2, 4, 5]].tolist()
    np.testing.assert_array_equal(
        some.precision, pool.precision[:, [0, 1, 2, 4, 5]][[0, 1, 2, 4, 5]]
    )
    assert some.count == pool.count
    back = pool.with_classes(chosen, some)
    for ours, theirs in zip(back, pool, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # What is not chosen stays as it was, and nothing is written to.
    before = pool.weights.copy(), pool.precision.copy()
    changed = LogLinearPool(some.weights + 1.0, 2.0 * some.precision, 7.0)
    other = pool.with_classes(chosen, changed)
    assert other.weights[3] == pool.weights[3]
    np.testing.assert_array_equal(other.precision[3], pool.precision[3] * [1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(other.of_classes(chosen).weights, changed.weights)
    np.testing.assert_array_equal(other.of_classes(chosen).precision, changed.precision)
    assert other.count == 7.0
    np.testing.assert_array_equal(pool.weights, before[0])
    np.testing.assert_array_equal(pool.precision, before[1])


# ---------------------------------------------------------------------------------- discriminant


def discriminant(d, covariance_type, seed=0):
    rng = np.random.default_rng(seed)
    mixtures = [
        twins.learned_mixture(twins.clumps(d, 60, seed=seed + c), covariance_type) for c in range(3)
    ]
    root = rng.normal(size=(d, d))
    covariance = root @ root.T + 0.1 * np.eye(d)
    if covariance_type == "diag":
        covariance = np.diag(covariance).copy()
    means = np.array([twins.mixture_moments(mixture)[1] for mixture in mixtures])
    q = Discriminant.of(means, covariance, STRUCTURES[covariance_type])
    return mixtures, covariance, q


@both_structures
@pytest.mark.parametrize("d", [1, 2, 5])
def test_discriminant_is_of_t_distributions(d, covariance_type):
    mixtures, covariance, q = discriminant(d, covariance_type)
    points = twins.clumps(d, 50, seed=9)
    full = twins.full_covariances(covariance[None])[0]
    expected = np.column_stack(
        [
            multivariate_t(twins.mixture_moments(mixture)[1], full, df=DEGREES_OF_FREEDOM)
            .logpdf(points)
            .reshape(50)
            for mixture in mixtures
        ]
    )
    got = q.log_densities(points)
    np.testing.assert_allclose(got - got[:, :1], expected - expected[:, :1], rtol=1e-9, atol=1e-9)
    # The constant is the same for all rows, too.
    np.testing.assert_allclose(got - expected, (got - expected)[0, 0], rtol=1e-9)


@both_structures
def test_far_rows_have_a_finite_discriminant(covariance_type):
    _, _, q = discriminant(2, covariance_type)
    far = np.array([[1e300, 0.0], [-1e308, 1e308], [1e160, -1e160], [1e20, 0.0]])
    logs = q.log_densities(far)
    assert np.isfinite(logs).all()
    # So far out the classes are all the same.
    np.testing.assert_allclose(logs - logs[:, :1], 0.0, atol=1e-9)
    assert np.all(logs[3] > logs[:3])


def test_discriminant_of_constant_features():
    X = np.column_stack([twins.clumps(1, 40), np.full(40, 7.0)])
    mixtures = [twins.learned_mixture(rows, "full") for rows in (X[:20], X[20:])]
    covariance = np.diag([2.0, 0.0])
    means = np.array([twins.mixture_moments(mixture)[1] for mixture in mixtures])
    q = Discriminant.of(means, covariance, STRUCTURES["full"])
    points = np.array([[0.0, 7.0], [3.0, 7.0], [0.0, 8.0]])
    assert np.isfinite(q.log_densities(points)).all()
