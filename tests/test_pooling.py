"""The logarithmic pool of densities and a linear discriminant."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit, log_softmax, softmax

from skokde._base import one_blas_thread
from skokde._engine import pooling
from skokde._engine.pooling import (
    AS_IF_TOLD_APART,
    CONTAMINATIONS,
    FARTHEST_CLASS,
    MEMORY,
    PRIOR_OF_CONTAMINATIONS,
    PRIOR_PRECISION,
    UNTOLD,
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
NO_EVIDENCE = np.zeros(len(CONTAMINATIONS))


# Groups of experts, and discriminants.
NUMBERS = {"one of each": (1, 1), "two groups": (2, 1), "with memories": (4, 3)}
each_number = pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)


def bayes(n_classes=3, numbers=(1, 1)):
    return LogLinearPool.start(n_classes, exponents_of_bayes(*numbers))


def exponents_of_bayes(n_groups, n_others):
    return np.append(np.full(n_groups, 1.0 / n_groups), np.zeros(n_others))


def predictions(n=80, n_classes=3, *, seed=0, sure=3.0, numbers=(1, 1)):
    """What `learn_pool` takes but for the pool: of densities that are too sure by a factor."""
    rng = np.random.default_rng([seed, n_classes])
    prior = rng.dirichlet(np.full(n_classes, 5.0))
    codes = rng.choice(n_classes, size=n, p=prior)
    log_density = rng.normal(size=(n, n_classes))
    log_density[np.arange(n), codes] += 1.0
    linear = 0.5 * log_density + rng.normal(size=(n, n_classes))
    counts = rng.uniform(0.5, 2.0, size=n)
    # Of others each repeats the first in part, and all groups together are as sure as one.
    groups = [sure * log_density] + [
        sure * (log_density + (1.0 + i) * rng.normal(size=log_density.shape))
        for i in range(numbers[0] - 1)
    ]
    others = [0.5 * linear + rng.normal(size=linear.shape) for _ in range(numbers[1] - 1)]
    return np.log(prior), np.array([*groups, linear, *others]), codes, counts


def plain_loss(weights, pool, log_prior, log_densities, codes, counts, untold=0.0):
    """Log-loss of the rows, and the parabola of what was learned before, from the formula.

    Of a share of the rows the classes are those that come.
    """
    n = len(log_densities)
    tempered = sum(t * logs for t, logs in zip(weights[:n], log_densities, strict=True))
    log_p = log_softmax(log_prior + weights[n:] + tempered, axis=1)
    step = weights - np.append(pool.exponents, pool.offsets)
    targets = (1.0 - untold) * np.eye(len(log_prior))[codes] + untold * np.exp(log_prior)
    return 0.5 * step @ pool.precision @ step - counts @ (targets * log_p).sum(axis=1)


def minimum(pool, *batch):
    n = len(pool.exponents)
    bounds = [(0.0, None)] * n + [(None, None)] * len(pool.offsets)
    return minimize(
        plain_loss,
        pool.weights,
        args=(pool, *batch),
        method="L-BFGS-B",
        bounds=bounds,
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000, "maxfun": 100_000},
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


@each_number
def test_bayes_rule_is_where_it_begins(numbers):
    pool = bayes(3, numbers)
    log_prior, log_densities, *_ = predictions(numbers=numbers)
    # Of several groups each counts as much, and all together as one.
    expected = log_prior + log_densities[: numbers[0]].mean(axis=0)
    got = pool.logits(log_prior, log_densities)
    if numbers == (1, 1):
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(pool.precision, PRIOR_PRECISION * np.eye(sum(numbers) + 3))
    np.testing.assert_array_equal(pool.offsets, np.zeros(3))
    assert pool.count == 0.0


def test_logits_by_hand():
    pool = LogLinearPool(np.array([0.5, 2.0]), np.array([1.0, -1.0]), np.eye(4), 0.0, NO_EVIDENCE)
    logits = pool.logits(np.array([-1.0, -2.0]), np.array([[[2.0, 4.0]], [[1.0, 3.0]]]))
    np.testing.assert_array_equal(logits, [[-1 + 1 + 1 + 2, -2 - 1 + 2 + 6]])
    np.testing.assert_array_equal(pool.weights, [0.5, 2.0, 1.0, -1.0])
    other = pool.with_weights(np.array([4.0, 3.0, 2.0, 1.0]))
    assert (other.exponents.tolist(), other.offsets.tolist()) == ([4.0, 3.0], [2.0, 1.0])
    assert other.precision is pool.precision
    three = LogLinearPool(np.array([0.5, 2.0, 3.0]), np.zeros(2), np.eye(5), 0.0, NO_EVIDENCE)
    logs = np.array([[[2.0, 4.0]], [[1.0, 3.0]], [[-1.0, 1.0]]])
    np.testing.assert_array_equal(three.logits(np.zeros(2), logs), [[1 + 2 - 3, 2 + 6 + 3]])


def test_other_densities_start_from_bayes_rule():
    pool = learn_pool(bayes(3, (2, 1)), *predictions(numbers=(2, 1)), MANY)
    assert pool.adapted(exponents_of_bayes(2, 1)) is pool
    for numbers in ((1, 1), (4, 3), (1, 3)):
        adapted = pool.adapted(exponents_of_bayes(*numbers))
        for ours, theirs in zip(adapted, bayes(3, numbers), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@each_number
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_first_batch_has_the_least_loss(n_classes, numbers):
    pool = bayes(n_classes, numbers)
    batch = predictions(n_classes=n_classes, numbers=numbers)
    learned = learn_pool(pool, *batch, MANY)
    expected = minimum(pool, *batch)
    np.testing.assert_allclose(learned.weights, expected, atol=1e-3)
    least = plain_loss(expected, pool, *batch)
    assert plain_loss(learned.weights, pool, *batch) <= least + 1e-6 * abs(least)
    # It has tempered what was too sure.
    assert 0.0 < learned.weights[0] < 0.7
    assert learned.count == pytest.approx(batch[-1].sum())


@each_number
@pytest.mark.parametrize("sure", [0.1, 0.3, 1.0])
def test_no_gradient_is_left(sure, numbers):
    pool = learn_pool(bayes(3, numbers), *predictions(numbers=numbers), MANY)
    batch = predictions(seed=1, sure=sure, numbers=numbers)
    learned = learn_pool(pool, *batch, MANY)
    free = learned.weights > 0.0
    free[sum(numbers) :] = True
    if numbers == (1, 1):
        assert free.all()
    gradient = approx_fprime(learned.weights, plain_loss, 1e-6, pool, *batch)
    np.testing.assert_allclose(gradient[free], 0.0, atol=2e-2)
    # Where an exponent is held at zero it would fall.
    assert np.all(gradient[~free] > -2e-2)
    np.testing.assert_allclose(learned.weights, minimum(pool, *batch), atol=1e-4)


@pytest.mark.parametrize("gap", [30.0, 1e3, 1e30])
def test_classes_that_are_told_apart_for_certain_take_no_longer(monkeypatch, gap):
    # The loss is zero but for rounding.
    log_prior, (_, linear), codes, counts = predictions(50, n_classes=2)
    log_densities = np.array([gap * np.eye(2)[codes], 0.0 * linear])
    steps = []

    def counted(*arguments):
        steps.append(arguments)
        return newton_step(*arguments)

    monkeypatch.setattr(pooling, "newton_step", counted)
    learn_pool(bayes(2), log_prior, log_densities, codes, counts, MANY)
    assert len(steps) <= 6


def test_steps_that_overshoot_are_halved(monkeypatch):
    # Surprises beyond measure: a whole Newton step from there goes far beyond the minimum.
    pool = bayes(2)._replace(precision=1e-6 * np.eye(4))
    log_density = np.array([[0.0, 60.0]] * 9 + [[60.0, 0.0]])
    monkeypatch.setattr(pooling, "PRIOR_PRECISION", 1e-6)
    log_densities = np.array([log_density, np.zeros((10, 2))])
    batch = np.log([0.5, 0.5]), log_densities, np.zeros(10, int), np.ones(10)
    learned = learn_pool(pool, *batch, MANY)
    expected = minimum(pool, *batch)
    least = plain_loss(expected, pool, *batch)
    assert plain_loss(learned.weights, pool, *batch) <= least + 1e-6


def test_later_batches_start_from_the_earlier_ones():
    first = learn_pool(bayes(), *predictions(), MANY)
    batch = predictions(seed=1, sure=0.5)
    second = learn_pool(first, *batch, MANY)
    np.testing.assert_allclose(second.weights, minimum(first, *batch), atol=1e-3)
    alone = learn_pool(bayes(), *batch, MANY)
    assert first.weights[0] < second.weights[0] < alone.weights[0]
    assert second.count == pytest.approx(first.count + batch[-1].sum())


@each_number
@pytest.mark.parametrize("n_classes", [2, 4])
def test_precision_is_the_curvature(n_classes, numbers):
    first, batch = bayes(n_classes, numbers), predictions(n_classes=n_classes, numbers=numbers)
    pool = learn_pool(first, *batch, MANY)
    numeric = hessian(lambda w: plain_loss(w, first, *batch), pool.weights)
    np.testing.assert_allclose(pool.precision, numeric, rtol=1e-4, atol=1e-3)
    second = predictions(n_classes=n_classes, seed=1, numbers=numbers)
    later = learn_pool(pool, *second, MANY)
    numeric = hessian(lambda w: plain_loss(w, pool, *second), later.weights)
    np.testing.assert_allclose(later.precision, numeric, rtol=1e-4, atol=1e-3)
    assert np.linalg.eigvalsh(later.precision)[0] >= PRIOR_PRECISION - 1e-9


def test_a_parabola_stands_for_the_first_batch():
    # Twice the same predictions lead to nearly the same weights as both at once.
    log_prior, log_densities, codes, counts = predictions(300)
    halves = slice(None, 150), slice(150, None)
    pool = bayes()
    for half in halves:
        pool = learn_pool(pool, log_prior, log_densities[:, half], codes[half], counts[half], MANY)
    both = learn_pool(bayes(), log_prior, log_densities, codes, counts, MANY)
    np.testing.assert_allclose(pool.weights, both.weights, atol=0.06)


def test_a_density_that_misleads_has_no_weight_but_never_less():
    log_prior, (log_density, _), codes, counts = predictions(400)
    linear = np.random.default_rng(1).normal(size=(400, 3)) + 2.0 * np.eye(3)[codes]

    def exponents(*log_densities, numbers=(1, 1)):
        logs = np.array(log_densities)
        return learn_pool(bayes(3, numbers), log_prior, logs, codes, counts, MANY).weights

    pool = exponents(-log_density, linear)
    assert pool[0] == 0.0
    assert pool[1] > 0.0
    pool = exponents(log_density, -linear)
    assert pool[0] > 0.0
    assert pool[1] == 0.0
    assert exponents(-log_density, -linear)[:2].tolist() == [0.0, 0.0]
    # Of several each is bounded by itself.
    misleading = np.random.default_rng(2).normal(size=(2, 400, 3)) - np.eye(3)[codes]
    pool = exponents(log_density, misleading[0], linear, misleading[1], numbers=(2, 2))
    assert np.all(pool[[0, 2]] > 0.0)
    assert pool[[1, 3]].tolist() == [0.0, 0.0]


@each_number
def test_constants_of_a_row_do_not_matter(numbers):
    log_prior, log_densities, codes, counts = predictions(numbers=numbers)
    shift = np.random.default_rng(0).normal(size=(sum(numbers), 80, 1)) * 1e3
    pool = learn_pool(bayes(3, numbers), log_prior, log_densities, codes, counts, MANY)
    shifted = learn_pool(bayes(3, numbers), log_prior, log_densities + shift, codes, counts, MANY)
    np.testing.assert_allclose(shifted.weights, pool.weights, atol=1e-6)
    np.testing.assert_allclose(shifted.precision, pool.precision, rtol=1e-6, atol=1e-6)


@each_number
def test_rows_count_as_often_as_they_are(numbers):
    log_prior, log_densities, codes, _ = predictions(40, numbers=numbers)
    times = np.random.default_rng(0).integers(1, 4, size=40)
    weighted = learn_pool(
        bayes(3, numbers), log_prior, log_densities, codes, times.astype(float), MANY
    )
    rows = np.repeat(np.arange(40), times)
    repeated = learn_pool(
        bayes(3, numbers),
        log_prior,
        log_densities[:, rows],
        codes[rows],
        np.ones(len(rows)),
        MANY,
    )
    np.testing.assert_allclose(weighted.weights, repeated.weights, atol=1e-5)
    np.testing.assert_allclose(weighted.precision, repeated.precision, rtol=1e-5, atol=1e-5)
    assert weighted.count == pytest.approx(repeated.count)


def test_a_density_that_is_there_twice_counts_once():
    # Only the sum of their exponents is told by the loss; the prior shares it out equally.
    log_prior, (log_density, linear), codes, counts = predictions()
    twice = np.array([log_density, log_density, linear])
    both = learn_pool(bayes(3, (2, 1)), log_prior, twice, codes, counts, MANY)
    np.testing.assert_allclose(both.exponents[0], both.exponents[1], atol=1e-6)
    # Half of the prior's curvature, for the sum of two.
    once = bayes()
    precision = once.precision.copy()
    precision[0, 0] /= 2.0
    batch = log_prior, np.array([log_density, linear]), codes, counts
    expected = minimum(once._replace(precision=precision), *batch)
    got = np.append(both.exponents[:2].sum(), both.weights[2:])
    np.testing.assert_allclose(got, expected, atol=1e-3)


@pytest.mark.parametrize("n_samples", [450.0, 2000.0])
def test_as_if_a_few_predictions_told_nothing(n_samples):
    batch = predictions()
    assert batch[-1].sum() < MEMORY * n_samples
    pool = learn_pool(bayes(), *batch, n_samples)
    untold = UNTOLD / (UNTOLD + MEMORY * n_samples)
    np.testing.assert_allclose(pool.weights, minimum(bayes(), *batch, untold), atol=1e-5)
    assert pool.weights[0] < learn_pool(bayes(), *batch, MANY).weights[0]


@pytest.mark.parametrize("n", [20, 60])
def test_exponents_are_no_larger_than_predictions_warrant(n, monkeypatch):
    # All predictions are right, by a hundred nats.
    codes = np.arange(n) % 2
    of_class = 100.0 * np.eye(2)[codes][None]
    batch = np.log([0.5, 0.5]), np.concatenate([of_class, 0.0 * of_class]), codes, np.ones(n)
    few, many = (learn_pool(bayes(2), *batch, k * n).exponents[0] for k in (1.0, 100.0))
    assert few < 0.5
    assert few < 0.8 * many  # which a model of so many samples remembers
    monkeypatch.setattr(pooling, "UNTOLD", 0.0)
    assert learn_pool(bayes(2), *batch, 1.0 * n).exponents[0] == pytest.approx(1.0, abs=1e-6)


def test_predictions_are_worth_a_share_of_the_samples(monkeypatch):
    monkeypatch.setattr(pooling, "UNTOLD", 0.0)
    batch = predictions()
    n = batch[-1].sum()
    free = learn_pool(bayes(), *batch, MANY)
    samples = 0.5 * n / MEMORY
    capped = learn_pool(bayes(), *batch, samples)
    assert capped.count == pytest.approx(MEMORY * samples) == pytest.approx(0.5 * free.count)
    # As if each row were half a one.
    halved = learn_pool(bayes(), *batch[:-1], 0.5 * batch[-1], MANY)
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
    pool = bayes()
    for seed in range(15):
        pool = learn_pool(pool, *predictions(20, seed=seed, sure=10.0), 400.0)
    tempered = pool.weights[0]
    for seed in range(25):
        pool = learn_pool(pool, *predictions(20, seed=seed, sure=0.5), 400.0)
    assert pool.count == pytest.approx(100.0)
    assert tempered < 0.3
    assert pool.weights[0] > 0.8


def test_one_class_only():
    batch = np.zeros(1), np.zeros((2, 5, 1)), np.zeros(5, dtype=int), np.ones(5)
    pool = learn_pool(bayes(1), *batch, MANY)
    np.testing.assert_array_equal(pool.weights, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(pool.precision, PRIOR_PRECISION * np.eye(3))


def test_count_is_a_plain_number():
    assert type(learn_pool(bayes(), *predictions(), MANY).count) is float


# ------------------------------------------------------------------------------ far from a class


def test_relative():
    logs = np.array([[0.0, -5.0, -1e9], [3.0, 3.0, -np.inf], [-np.inf] * 3])
    np.testing.assert_array_equal(
        relative(logs, 100.0), [[0.0, -5.0, -100.0], [0.0, 0.0, -100.0], [-100.0] * 3]
    )


def test_far_rows_teach_no_more_than_the_farthest_class():
    log_prior, log_densities, codes, counts = predictions()
    log_density, linear = log_densities
    log_density[:3] = [[0.0, -1e300, -np.inf], [-1e308, 0.0, -1e6], [-np.inf] * 3]
    linear[:3] = [[0.0, -1e9, -1e9]] * 3
    codes[:3] = [0, 0, 1]
    pool = learn_pool(bayes(), log_prior, log_densities, codes, counts, MANY)
    assert np.isfinite(pool.weights).all()
    assert np.isfinite(pool.precision).all()
    nearer = log_density.copy()
    nearer[:3] = [
        [0.0, -FARTHEST_CLASS, -FARTHEST_CLASS],
        [-FARTHEST_CLASS, 0.0, -FARTHEST_CLASS],
        [0.0] * 3,
    ]
    same = learn_pool(bayes(), log_prior, np.array([nearer, linear]), codes, counts, MANY)
    np.testing.assert_allclose(pool.weights, same.weights, atol=1e-6)


# --------------------------------------------------------------------------------- some classes


# --------------------------------------------------------------------- groups that are of no use


def least_rise(pool, zero, n_groups):
    """The least rise of the parabola where some exponents are zero and none is below."""
    n = len(pool.exponents)
    groups = np.arange(len(pool.weights)) < n_groups
    precision = pool.precision + AS_IF_TOLD_APART * pool.count * np.outer(groups, groups)
    bounds = [(0.0, 0.0) if at_zero else (0.0, None) for at_zero in zero]

    def rise(weights):
        step = weights - pool.weights
        return 0.5 * step @ precision @ step, precision @ step

    start = np.append(np.where(zero, 0.0, pool.exponents), pool.offsets)
    bounds += [(None, None)] * (len(start) - n)
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000, "maxfun": 100_000}
    found = minimize(rise, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.fun, found.x


def random_pool(seed, n_groups, count, n_others=2, n_classes=3):
    rng = np.random.default_rng(seed)
    n = n_groups + n_others
    exponents = rng.uniform(0.0, 0.3, size=n) * (rng.uniform(size=n) < 0.8)
    # Groups have much in common: an exponent can make up for another.
    shape = (n + n_classes, n + n_classes)
    root = rng.normal(size=shape) + np.outer(rng.normal(size=shape[0]), np.ones(shape[1]))
    precision = np.eye(len(root)) + 20.0 * root @ root.T
    return LogLinearPool(exponents, rng.normal(size=n_classes), precision, count, NO_EVIDENCE)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n_votes", [0, 1, 2])
@pytest.mark.parametrize("n_groups", [1, 2, 4])
def test_groups_of_no_use_go_as_long_as_the_loss_allows(n_groups, n_votes, seed):
    # After the groups there are a memory, a linear discriminant, scales and votes.
    pool = random_pool(seed, n_groups, count=500.0, n_others=3 + n_votes)
    pruned = pool.pruned(n_groups, n_memories=1)
    number, allowed = np.arange(len(pool.exponents)), pool.allowed_rise
    gone = pruned.exponents[:n_groups] == 0.0
    assert n_groups == 1 or not gone.all() or not pool.exponents[:n_groups].any()
    zero = pruned.exponents == 0.0
    rise, weights = least_rise(pool, zero, n_groups)
    assert rise <= allowed
    np.testing.assert_allclose(pruned.weights, weights, atol=1e-4)
    # None of those that are left could go, too.
    left = np.flatnonzero(~gone).tolist() if np.count_nonzero(~gone) > 1 else []
    others = (number > n_groups) & ~zero
    for one in [*left, *number[others]]:
        assert least_rise(pool, zero | (number == one), n_groups)[0] > allowed
    np.testing.assert_array_equal(pruned.precision, pool.precision)


@pytest.mark.parametrize("apart", [0.0, 6.0, 7.0, 50.0])
def test_groups_may_cost_a_share_of_the_impurity_of_predictions(apart):
    log_prior, logs, codes, counts = predictions(2000)
    logs[:, np.arange(len(codes)), codes] += apart
    learned = learn_pool(bayes(), log_prior, logs, codes, counts, MANY)
    p = np.exp(log_softmax(learned.logits(log_prior, logs), axis=1))
    allowed = 0.1 * np.average((p * (1.0 - p)).sum(axis=1), weights=counts)
    assert (apart in (6.0, 7.0)) == (3e-5 < allowed < 1e-3)
    expected = np.clip(allowed, 3e-5, 1e-3)
    np.testing.assert_allclose(learned.allowed_rise / learned.count, expected, rtol=1e-3)


def test_some_groups_go_and_some_stay():
    pools = [random_pool(seed, 4, count=500.0) for seed in range(30)]
    left = [np.count_nonzero(pool.pruned(4).exponents[:4]) for pool in pools]
    assert {1, 2, 3} <= set(left)
    pools = [random_pool(seed, 4, count=500.0, n_others=3) for seed in range(30)]
    for other in (4, 5, 6):
        assert {bool(pool.pruned(4).exponents[other]) for pool in pools} == {False, True}
    gone = [pool.pruned(4).exponents[4] == 0.0 < pool.exponents[4] for pool in pools]
    as_memories = [pool.pruned(4, n_memories=1).exponents[4] > 0.0 for pool in pools]
    assert np.count_nonzero(np.logical_and(gone, as_memories)) > 5  # which stay


def test_a_wrong_class_is_the_less_probable_the_more_predictions_were_right():
    log_prior, codes = np.log([0.5, 0.5]), np.tile([0, 1], 15)
    logs = np.zeros((2, len(codes), 2))
    logs[0, np.arange(len(codes)), codes] = 100.0
    predicted = log_prior, logs, codes, np.ones(len(codes)), MANY
    few = pool = learn_pool(bayes(2), *predicted)
    for _ in range(49):
        pool = learn_pool(pool, *predicted)
    assert few.count == len(codes)
    assert 0.1 / len(codes) < few.contamination < 0.3 / len(codes)
    assert pool.contamination < 2e-4


def test_no_group_goes_before_any_prediction():
    pool = bayes(3, (4, 2))
    np.testing.assert_array_equal(pool.pruned(4).weights, pool.weights)


def test_something_stays_for_what_is_harder_while_classes_are_easily_told_apart():
    # There was nothing to learn from many predictions: whoever is left stands for all groups.
    pool = bayes(2, (4, 2))._replace(count=1e6)
    pruned = pool.pruned(4)
    assert np.count_nonzero(pruned.exponents) == 1
    np.testing.assert_allclose(pruned.exponents.sum(), pool.exponents.sum(), rtol=1e-3)


def test_one_group_stays_however_little_its_use():
    pool = random_pool(0, 4, count=500.0)
    pool = pool._replace(exponents=1e-3 * pool.exponents)
    assert np.count_nonzero(pool.pruned(4).exponents[:4]) == 1


@pytest.mark.parametrize("sure", [3.0, 10.0])
def test_the_others_make_up_for_groups_that_go(sure):
    # Copies of a group with some noise: only their sum matters much.
    log_prior, logs, codes, counts = predictions(2000, sure=sure)
    rng = np.random.default_rng(1)
    groups = [logs[0] + 0.02 * rng.normal(size=logs[0].shape) for _ in range(3)]
    scales = np.zeros_like(logs[1])
    logs = np.array([*groups, logs[1], scales])
    learned = learn_pool(bayes(3, (3, 2)), log_prior, logs, codes, counts, MANY)
    pruned = learned.pruned(3)
    assert np.count_nonzero(learned.exponents[:3]) > np.count_nonzero(pruned.exponents[:3])

    def loss(pool):
        log_p = log_softmax(pool.logits(log_prior, logs), axis=1)
        return -np.average(log_p[np.arange(len(codes)), codes], weights=counts)

    allowed = learned.allowed_rise / learned.count
    assert loss(pruned) < loss(learned) + allowed
    left = pruned.exponents[:3] > 0.0
    # It would rise by more if the others did not make up for those that go.
    weights = learned.weights
    weights[:3] *= left
    assert loss(learned.with_weights(weights)) > loss(learned) + 10.0 * allowed
    alone = pruned.of_densities(left)
    tempered = alone.logits(log_prior, logs[np.append(left, [True, True])])
    np.testing.assert_allclose(tempered, pruned.logits(log_prior, logs), rtol=1e-12, atol=1e-12)


@each_number
def test_of_some_classes_and_back(numbers):
    batch = predictions(n_classes=4, numbers=numbers)
    pool = learn_pool(bayes(4, numbers), *batch, MANY)
    n, chosen = sum(numbers), np.array([0, 2, 3])
    places = [*range(n), n, n + 2, n + 3]
    some = pool.of_classes(chosen)
    assert some.weights.tolist() == pool.weights[places].tolist()
    np.testing.assert_array_equal(some.precision, pool.precision[:, places][places])
    assert some.count == pool.count
    back = pool.with_classes(chosen, some)
    for ours, theirs in zip(back, pool, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # What is not chosen stays as it was, and nothing is written to.
    before = pool.weights.copy(), pool.precision.copy()
    changed = LogLinearPool(
        some.exponents + 1.0, some.offsets + 1.0, 2.0 * some.precision, 7.0, CONTAMINATIONS
    )
    other = pool.with_classes(chosen, changed)
    assert other.weights[n + 1] == pool.weights[n + 1]
    np.testing.assert_array_equal(other.precision[n + 1], pool.precision[n + 1])
    np.testing.assert_array_equal(other.of_classes(chosen).weights, changed.weights)
    np.testing.assert_array_equal(other.of_classes(chosen).precision, changed.precision)
    assert other.count == 7.0
    assert other.log_likelihoods is CONTAMINATIONS
    np.testing.assert_array_equal(pool.weights, before[0])
    np.testing.assert_array_equal(pool.precision, before[1])


# --------------------------------------------------------------------------------- contamination


@each_number
def test_likelihoods_are_those_of_predictions_before_they_teach(numbers):
    first, second = predictions(numbers=numbers), predictions(50, seed=1, numbers=numbers)
    once = learn_pool(bayes(3, numbers), *first, MANY)
    twice = learn_pool(once, *second, 100.0)
    expected = NO_EVIDENCE
    for before, after, (log_prior, logs, codes, counts) in [
        (bayes(3, numbers), once, first),
        (once, twice, second),
    ]:
        p = softmax(before.logits(log_prior, logs), axis=1)[np.arange(len(codes)), codes]
        of_rows = [
            counts @ np.log((1.0 - c) * p + c * np.exp(log_prior)[codes]) for c in CONTAMINATIONS
        ]
        share = after.count / (before.count + counts.sum())
        expected = share * (expected + np.array(of_rows))
        np.testing.assert_allclose(after.log_likelihoods, expected, rtol=1e-9)
    assert twice.count < once.count + second[-1].sum()  # what is remembered is bounded


def test_mean_contamination_is_that_of_the_posterior():
    pool = bayes()
    assert pool.contamination == pytest.approx(PRIOR_OF_CONTAMINATIONS @ CONTAMINATIONS)
    assert PRIOR_OF_CONTAMINATIONS.sum() == pytest.approx(1.0)
    logs = np.random.default_rng(0).normal(size=len(CONTAMINATIONS))
    weights = PRIOR_OF_CONTAMINATIONS * np.exp(logs)
    mean = weights @ CONTAMINATIONS / weights.sum()
    # Only differences of log-likelihoods tell anything, however large they are.
    for constant in (0.0, -1e6):
        found = pool._replace(log_likelihoods=logs + constant).contamination
        assert found == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_contamination_is_found(share):
    rng = np.random.default_rng(0)
    pool = bayes(2)
    for _ in range(20):
        logs = np.zeros((2, 200, 2))
        logs[0, :, 1] = 8.0 * rng.normal(size=200)
        codes = (rng.random(200) < expit(logs[0, :, 1])).astype(int)
        told = rng.random(200) >= share
        codes = np.where(told, codes, rng.integers(0, 2, size=200))
        pool = learn_pool(pool, np.log([0.5, 0.5]), logs, codes, np.ones(200), MANY)
    assert pool.contamination == pytest.approx(share, abs=0.011)
    if not share:
        assert pool.contamination < 1e-3


def test_log_probabilities_by_hand():
    shares = np.array([0.5, 0.3, 0.2, 0.0])
    likelihoods = np.where(CONTAMINATIONS == 0.03, 1e3, 0.0)
    pool = bayes(4)._replace(log_likelihoods=likelihoods, offsets=np.array([0.1, 0.2, 0.3, 0.0]))
    logs = np.random.default_rng(0).normal(scale=20.0, size=(2, 50, 4))
    p = softmax(pool.logits(np.log([0.5, 0.3, 0.2, 1e-300]), logs), axis=1)
    with np.errstate(divide="ignore"):
        expected = np.log(0.97 * p + 0.03 * shares)
        expected[:, 3] = -np.inf
    got = pool.log_probabilities(shares, logs)
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    np.testing.assert_allclose(np.exp(got).sum(axis=1), 1.0, rtol=1e-12)
    # Where the pool tells of all rows, tiny probabilities keep their digits.
    pool = pool._replace(log_likelihoods=np.where(CONTAMINATIONS == 0.0, 1e3, 0.0))
    logs[:, :, 0] += 1e3
    got = pool.log_probabilities(shares, logs)
    np.testing.assert_array_less(got[:, 1], -500.0)
