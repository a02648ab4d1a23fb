"""The comparator of the evaluation minimises what it says it does, on the basis it may have."""

import numpy as np
import pytest
from scipy.optimize import nnls
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.metrics.pairwise import polynomial_kernel
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import LinearSVC
from sklearn.utils import shuffle
from sklearn.utils.estimator_checks import parametrize_with_checks

from evaluation.oisvm import OISVM

pytestmark = pytest.mark.thorough

LOADERS = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer}


@parametrize_with_checks([OISVM()])
def test_estimator_checks(estimator, check):
    check(estimator)


def overlapping(n=150, d=3, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    return rng.normal(size=(n, d)) + rng.normal(size=(n_classes, d))[y], y


def kernel(A, B):
    return polynomial_kernel(A, B, degree=2, gamma=1.0, coef0=1.0)


def features(X):
    """Explicit features of the kernel (x'z + 1)^2."""
    expansion = PolynomialFeatures(2).fit(X)
    mixed = expansion.powers_.max(axis=1) == 1
    return expansion.transform(X) * np.where(mixed, np.sqrt(2.0), 1.0)


def signs_of(model, y):
    positive = model.classes_ if len(model.classes_) > 2 else model.classes_[1:]
    return np.where(y[:, None] == positive, 1.0, -1.0)


def scores_of(model, X):
    return model.decision_function(X).reshape(len(X), -1)


def projection_errors(model):
    """Squared distance of each basis vector from those before it, relative to its own square."""
    F = features(model.basis_)
    errors = [1.0]
    for i in range(1, len(F)):
        a = np.linalg.lstsq(F[:i].T, F[i], rcond=None)[0]
        errors.append(np.sum((F[i] - a @ F[:i]) ** 2) / np.sum(F[i] ** 2))
    return np.array(errors)


def assert_stationary(model, X, y):
    """The gradient with respect to the dual weights vanishes, relative to the terms in it."""
    signs = signs_of(model, y)
    loss = np.maximum(1.0 - signs * scores_of(model, X), 0.0)
    assert loss.any(axis=0).all()
    K_B = kernel(model.basis_, X)
    gradient = scores_of(model, model.basis_) - model.C * K_B @ (signs * loss)
    assert (np.abs(gradient) <= 1e-8 * model.C * np.abs(K_B) @ loss).all()


def batch_scores(model, X, y):
    """f(X) of the SVM on all samples with w in the span of the basis, from the dual problem.

    min |sum_i a_i y_i phi_i|^2 + |a|^2 / C - 2 sum_i a_i over a >= 0 is nonnegative least squares.
    """
    F = features(X) @ np.linalg.qr(features(model.basis_).T)[0]
    root = np.sqrt(model.C)
    target = np.r_[np.zeros(F.shape[1]), np.full(len(X), root)]
    scores = []
    for sign in signs_of(model, y).T:
        a = nnls(np.vstack([F.T * sign, np.eye(len(X)) / root]), target)[0]
        scores.append(F @ (F.T @ (sign * a)))
    return np.column_stack(scores)


# ----------------------------------------------------------------------------------- the minimum


def test_features_belong_to_the_kernel():
    X, _ = overlapping(20)
    np.testing.assert_allclose(features(X) @ features(X).T, kernel(X, X))


def test_gradient_vanishes_after_each_sample():
    X, y = overlapping(80, d=8)  # the basis grows all the while
    model = OISVM(C=3.0)
    for i in range(len(X)):
        model.partial_fit(X[[i]], y[[i]], classes=[0, 1, 2])
        assert_stationary(model, X[: i + 1], y[: i + 1])


@pytest.mark.parametrize("name", LOADERS)
def test_raw_data_give_the_batch_solution_on_the_same_basis(name):
    X, y = shuffle(*LOADERS[name](return_X_y=True), random_state=0)
    model = OISVM().fit(X, y)
    expected = batch_scores(model, X, y)
    np.testing.assert_allclose(scores_of(model, X), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_small_basis_gives_the_batch_solution_on_it(C):
    X, y = overlapping(d=4, n_classes=2)
    model = OISVM(C=C, eta=0.3).fit(X, y)
    assert len(model.basis_) < 15
    expected = batch_scores(model, X, y)
    np.testing.assert_allclose(scores_of(model, X), expected, atol=1e-6)


@pytest.mark.parametrize("n", [60, 150, 400])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_full_basis_gives_the_svm_of_the_explicit_features(n, n_classes):
    X, y = overlapping(n, n_classes=n_classes)
    model = OISVM(C=0.5).fit(X, y)
    assert len(model.basis_) == 10
    # Its loss is C times the squared hinge, ours half of that.
    svm = LinearSVC(C=0.25, loss="squared_hinge", fit_intercept=False, dual=False, tol=1e-9)
    svm.fit(features(X), y)
    fresh, _ = overlapping(200, seed=1)
    expected = svm.decision_function(features(fresh))
    np.testing.assert_allclose(model.decision_function(fresh), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(model.predict(fresh), svm.predict(features(fresh)))


def test_kernel_parameters():
    """Of degree 1, gamma scales the features and coef0 is the square of the constant one."""
    X, y = overlapping(n_classes=2)
    model = OISVM(degree=1, gamma=4.0, coef0=9.0).fit(X, y)
    F = np.column_stack([2.0 * X, np.full(len(X), 3.0)])
    svm = LinearSVC(C=0.5, loss="squared_hinge", fit_intercept=False, dual=False, tol=1e-9)
    expected = svm.fit(F, y).decision_function(F)
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-4)


# ------------------------------------------------------------------------------------- the basis


@pytest.mark.parametrize("d", [1, 2, 4])
def test_basis_spans_the_features_and_no_more(d):
    X, y = overlapping(600, d=d)
    model = OISVM().fit(X, y)
    assert model.basis_.shape == ((d + 1) * (d + 2) // 2, d)
    assert model.basis_sizes_.tolist() == [len(model.basis_)] * 3
    assert model.dual_coef_.shape == (3, len(model.basis_))
    assert (projection_errors(model) > model.eta).all()


def test_dual_weights_are_those_of_the_basis():
    X, y = overlapping()
    model = OISVM().fit(X, y)
    expected = kernel(X, model.basis_) @ model.dual_coef_.T
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=1e-6, atol=1e-6)


def test_eta_keeps_the_basis_small():
    X, y = overlapping(400, d=4)
    model = OISVM(eta=1e-3).fit(X + 5.0, y)
    errors = projection_errors(model)
    assert (errors > 1e-3).all()
    assert len(model.basis_) < len(OISVM(eta=1e-5).fit(X + 5.0, y).basis_) <= 15


def test_rounding_is_no_new_direction():
    """Black after bright colours, which know their ten features, the constant one too, but barely.

    Black is all constant feature, so that rounding errors of the others are large beside it.
    """
    # fmt: off
    X = np.reshape(
        [199, 197, 162, 80, 113, 182, 210, 209, 213, 150, 154, 118, 90, 88, 34, 53, 57, 21,
         60, 105, 255, 1, 3, 0, 103, 140, 208, 99, 143, 197, 0, 0, 0],
        (-1, 3),
    )
    # fmt: on
    model = OISVM().fit(X, [1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0])
    assert len(model.basis_) == 10


def test_sample_outside_the_margin_changes_nothing_but_is_kept():
    X, y = overlapping(40, d=8, n_classes=2)
    model = OISVM().fit(X, y)
    assert len(model.basis_) < 45
    fresh = overlapping(300, d=8, n_classes=2, seed=5)[0]
    x = fresh[[np.argmax(model.decision_function(fresh))]]
    assert model.decision_function(x) > 1
    before = model.dual_coef_
    model.partial_fit(x, [1])
    np.testing.assert_array_equal(model.dual_coef_, before)
    assert model.n_samples_seen_ == 41
    # Others push it into the margin, where it counts.
    near = x + 0.1 * np.random.default_rng(0).normal(size=(20, 8))
    model.partial_fit(near, np.zeros(20, dtype=int))
    assert model.decision_function(x) < 1
    assert_stationary(model, np.vstack([X, x, near]), np.r_[y, 1, np.zeros(20)])


# ---------------------------------------------------------------------------------- badly scaled


@pytest.mark.parametrize("seed", range(3))
def test_outlier(seed):
    """Its slack is tiny and pulls with all of its length: rounding errors must not hide it."""
    X, y = overlapping(200, n_classes=2, seed=seed)
    X[3] = [1e4, -3e4, 2e4]
    model = OISVM().fit(X, y)
    expected = batch_scores(model, X, y)
    np.testing.assert_allclose(scores_of(model, X), expected, rtol=1e-3, atol=1e-3)


def test_outlier_that_leaves_the_margin():
    """The Hessian that it has been most of must not stay behind as rounding errors."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    y = (np.abs(X[:, 0]) + rng.normal(scale=0.3, size=300) > 1).astype(int)
    y[:40] = 1 - y[:40]  # so that the outlier is on the wrong side when it comes
    X[40], y[40] = 1e4, 1
    model = OISVM().fit(X[:41], y[:41])
    assert model.decision_function(X[[40]]) < 1 + 1e-6
    model.partial_fit(X[41:], y[41:])
    assert model.decision_function(X[[40]]) > 1e3
    others = np.arange(300) != 40
    expected = batch_scores(model, X, y)[others]
    np.testing.assert_allclose(scores_of(model, X[others]), expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_badly_scaled_features(seed):
    X, y = overlapping(300, d=8, seed=seed)
    X = X * np.logspace(-3, 7, 8) + np.logspace(7, -3, 8)
    model = OISVM().fit(X, y)
    assert np.isfinite(model.dual_coef_).all()
    assert np.isfinite(model.decision_function(X)).all()
    assert model.score(X, y) > 1.2 * np.bincount(y).max() / len(y)


def test_kernel_that_overflows_is_refused():
    X, y = overlapping()
    model = OISVM().fit(X, y)
    X[-1] = 1e60
    with pytest.raises(ValueError, match="overflows"):
        model.partial_fit(X, y)
    assert model.n_samples_seen_ == len(X)


# ------------------------------------------------------------------------------------ the stream


@pytest.mark.parametrize("size", [1, 7, 64])
def test_blocks_do_not_matter(size):
    X, y = shuffle(*load_wine(return_X_y=True), random_state=0)
    whole = OISVM().fit(X, y)
    model = OISVM()
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        model.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    np.testing.assert_array_equal(model.basis_, whole.basis_)
    np.testing.assert_array_equal(model.decision_function(X), whole.decision_function(X))


def test_fit_forgets():
    X, y = overlapping()
    model = OISVM().fit(X[:, :2], 1 + y)
    model.fit(X, y)
    assert model.n_samples_seen_ == len(X)
    expected = OISVM().fit(X, y).decision_function(X)
    np.testing.assert_array_equal(model.decision_function(X), expected)


@pytest.mark.parametrize("names", [["b", "a"], ["z", "b", "a"]])
def test_labels_of_strings(names):
    X, y = overlapping(n_classes=len(names))
    model = OISVM().partial_fit(X, np.array(names)[y], classes=names)
    numbers = OISVM().partial_fit(X, len(names) - 1 - y, classes=range(len(names)))
    assert model.classes_.tolist() == sorted(names)
    np.testing.assert_array_equal(model.predict(X), np.sort(names)[numbers.predict(X)])
    assert model.score(X, np.array(names)[y]) > 0.6


def test_class_that_never_comes():
    X, y = overlapping()
    model = OISVM().partial_fit(X, y, classes=[0, 1, 2, 3])
    assert model.decision_function(X).shape == (len(X), 4)
    assert set(model.predict(X)) == {0, 1, 2}


def test_bad_labels():
    X, y = overlapping()
    with pytest.raises(ValueError, match="first call"):
        OISVM().partial_fit(X, y)
    with pytest.raises(ValueError, match="not among"):
        OISVM().partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="more than one class"):
        OISVM().fit(X, np.zeros(len(X)))
    model = OISVM().fit(X, y)
    with pytest.raises(ValueError, match="not among"):
        model.partial_fit(X, y + 1)
    with pytest.raises(ValueError, match="cannot become"):
        model.partial_fit(X, y, classes=[0, 1, 2, 3])
    assert model.n_samples_seen_ == len(X)


@pytest.mark.parametrize("parameters", [{"C": 0.0}, {"eta": 0.0}, {"C": np.nan}])
def test_bad_parameters(parameters):
    with pytest.raises(ValueError, match="must be positive"):
        OISVM(**parameters).fit(*overlapping())
