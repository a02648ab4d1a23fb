"""The discriminative comparator: the On-line Independent Support Vector Machine."""

from bisect import bisect_left

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.linalg.blas import dtrsv
from scipy.linalg.lapack import dposv
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

EPS = np.finfo(float).eps
# A training ends once Newton's step promises less than this share of the objective.
TOLERANCE = 1e-12
# Two or three steps are usual. After CHEAP_STEPS the scales are so far apart that accurate ones
# are worth their cost: it may then take a hundred.
CHEAP_STEPS = 5
MAX_STEPS = 500
# A Hessian is summed anew once a diagonal element has lost all but this share of its peak.
CANCELLED = 1e-6


class OISVM(ClassifierMixin, BaseEstimator):
    """On-line Independent Support Vector Machine [1]_, one class against all others.

    After each sample, each binary machine ``f(x) = w'phi(x)`` is the minimiser of

    ``w'w / 2 + C / 2 sum_i max(0, 1 - y_i f(x_i))^2``

    over all samples so far, with w in the span of a few of them, the basis. A sample within the
    margin, ``y f(x) < 1``, joins the basis if it is independent of it. There is no bias: with
    ``coef0 > 0`` the polynomial kernel ``(gamma x'z + coef0)^degree`` has a constant feature.

    Parameters
    ----------
    C : float, default=1.0
    degree : int, default=2
    gamma : float, default=1.0
    coef0 : float, default=1.0
    eta : float, default=1e-8
        A sample is independent if the squared distance of phi(x) from the span of the basis
        exceeds ``eta * k(x, x)``, and what rounding could make of zero.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    basis_ : ndarray of shape (n_basis, n_features)
    basis_sizes_ : ndarray of shape (n_classes,)
        Number of basis vectors of each class: n_basis, as they share them.
    dual_coef_ : ndarray of shape (n_machines, n_basis)
        Weights of the basis vectors in f; one machine for two classes, else one for each class.
    n_samples_seen_ : int
    n_features_in_ : int

    Notes
    -----
    As in the original, nothing is forgotten: all samples and their products with the basis are
    stored, and each training goes over all of them. This differs from the original:

    1. The threshold is relative, where the original compares the distance itself with eta. Of raw
       features, k(x, x) is about 10 on one set and 1e28 on another, where a distance of 1e12 is
       a rounding error. The default leaves half of the digits to the new direction.
    2. The machines share one basis, which grows when any of them asks for it. Kernels are then
       evaluated and stored once, not once for each class. A machine may have more basis vectors
       than it would have alone, and so be closer to the SVM on all samples. The number of
       features of the kernel, (d + 1)(d + 2) / 2 for degree 2, bounds them either way.
    3. Weights refer to an orthonormal basis of the span: the Hessian is ``I + C Z_I Z_I'``, with
       the coordinates Z_I of the samples within the margin, and not the ``K_BB + C K_BI K_IB`` of
       the dual weights, which is worse conditioned. The minimiser is the same.
    4. Newton's step starts from the gradient over the samples, so that errors of the Hessian cost
       steps, not accuracy. If the full step would not lower the objective, the minimum on its way
       is taken. After a few steps, or if rounding has made the Hessian indefinite, the step comes
       from a QR decomposition of ``[sqrt(C) Z_I, I]'``, which no scale of the features upsets.

    References
    ----------
    .. [1] F. Orabona, C. Castellini, B. Caputo, L. Jie, G. Sandini (2010). On-line independent
       support vector machines. Pattern Recognition 43, 1402-1412.
    """

    def __init__(self, C=1.0, degree=2, gamma=1.0, coef0=1.0, eta=1e-8):
        self.C = C
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.eta = eta

    def fit(self, X, y):
        """Forget what was learned and take the rows of X in order."""
        X, y = self._check(X, y, reset=True)
        self._forget(np.unique(y))
        return self._learn(X, y)

    def partial_fit(self, X, y, classes=None):
        """Take the rows of X in order. The first call needs all classes that will ever come."""
        first = not hasattr(self, "classes_")
        if first and classes is None:
            raise ValueError("classes must be given at the first call of partial_fit")
        X, y = self._check(X, y, reset=first)
        known = np.unique(classes) if first else self.classes_
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"the classes are {known}, they cannot become {classes}")
        if not np.isin(y, known).all():
            raise ValueError(f"y has labels that are not among the classes {known}")
        if first:
            self._forget(known)
        return self._learn(X, y)

    def decision_function(self, X):
        """f(x) of each machine: (n_samples, n_classes), or (n_samples,) for two classes."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        Z = solve_triangular(self._factor, self._kernel(self._basis.T @ X.T), lower=True)
        scores = Z.T @ np.column_stack([machine.w for machine in self._machines])
        return scores if len(self._machines) > 1 else scores[:, 0]

    def predict(self, X):
        """Class of the largest f(x)."""
        scores = self.decision_function(X)
        best = np.argmax(scores, axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
        return self.classes_[best]

    @property
    def basis_(self):
        return self._basis.T

    @property
    def basis_sizes_(self):
        return np.full(len(self.classes_), len(self._factor))

    @property
    def dual_coef_(self):
        W = np.column_stack([machine.w for machine in self._machines])
        return solve_triangular(self._factor, W, lower=True, trans="T").T

    def _kernel(self, inner):
        return (self.gamma * inner + self.coef0) ** self.degree

    def _check(self, X, y, reset):
        if not (self.C > 0 and self.eta > 0):
            raise ValueError(f"C and eta must be positive, got {self.C} and {self.eta}")
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, order="C")
        check_classification_targets(y)
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(self._kernel(np.sum(X * X, axis=1)) ** 2).all():
                raise ValueError("the kernel overflows: scale the features")
        return X, y

    def _forget(self, classes):
        if len(classes) < 2:
            raise ValueError(f"more than one class is needed, got {classes}")
        self.classes_ = classes
        self.n_samples_seen_ = 0
        # Samples are columns, so that the arrays have room to spare along their last axis.
        self._samples = np.empty((self.n_features_in_, 0))
        self._coordinates = np.empty((0, 0))
        self._basis = np.empty((self.n_features_in_, 0))
        self._factor = np.empty((0, 0), order="F")  # Cholesky factor of K_BB
        self._machines = [_Machine(self.C) for _ in classes[len(classes) == 2 :]]

    def _learn(self, X, y):
        positive = self.classes_[len(self.classes_) == 2 :]
        for x, signs in zip(X, np.where(y[:, None] == positive, 1.0, -1.0), strict=True):
            self._take(x, signs)
        return self

    def _take(self, x, signs):
        n = self.n_samples_seen_
        z = self._kernel(x @ self._basis)
        if z.size:
            z = dtrsv(self._factor, z, lower=1)
        self._samples = _with_room(self._samples, n + 1)
        self._coordinates = _with_room(self._coordinates, n + 1)
        self._samples[:, n] = x
        self._coordinates[:, n] = z
        self.n_samples_seen_ += 1
        within = [m for m, s in zip(self._machines, signs, strict=True) if m.take(n, z, s)]
        grows = len(within) > 0 and self._extend_basis(x, z)
        Z = self._coordinates[:, : n + 1]
        # A new direction is of use to all machines, not only to those that have asked for it.
        for machine in self._machines if grows else within:
            machine.widen(Z) if grows else machine.enter(Z, [n], np.ones(1))
            machine.train(Z)

    def _extend_basis(self, x, z):
        """Let the last sample join the basis and give each sample its coordinate, if independent.

        The terms of ``phi(x) - sum_i a_i phi(b_i)`` may be far larger than phi(x) itself: their
        size tells what rounding can make of a distance of zero.
        """
        m, n = len(z), self.n_samples_seen_
        norm = self._kernel(x @ x)
        squared_distance = norm - z @ z
        if squared_distance <= self.eta * norm:
            return False
        if m:
            a = dtrsv(self._factor, z, lower=1, trans=1)
            terms = np.sqrt(norm) + np.abs(a) @ np.linalg.norm(self._factor, axis=1)
            if squared_distance <= 10 * EPS * terms**2:
                return False
        distance = np.sqrt(squared_distance)
        factor = np.zeros((m + 1, m + 1), order="F")
        factor[:m, :m], factor[m, :m], factor[m, m] = self._factor, z, distance
        new = np.zeros(self._coordinates.shape[1])
        new[:n] = self._kernel(x @ self._samples[:, :n]) - z @ self._coordinates[:, :n]
        new[:n] /= distance
        self._factor = factor
        self._basis = np.column_stack([self._basis, x])
        self._coordinates = np.vstack([self._coordinates, new])
        return True


class _Machine:
    """One binary problem in the coordinates Z, of shape (n_basis, n_samples).

    Its Hessian always belongs to the samples of positive slack, ``slack = 1 - sign * f``.
    """

    def __init__(self, C):
        self.C = C
        self.w = np.empty(0)
        self.sign = np.empty(0)
        self.slack = np.empty(0)
        self.hessian = self.peak = np.empty((0, 0))

    def take(self, n, z, sign):
        """Store sample n, and say whether it lies within the margin."""
        self.sign = _with_room(self.sign, n + 1)
        self.slack = _with_room(self.slack, n + 1)
        self.sign[n] = sign
        self.slack[n] = 1.0 - sign * (self.w @ z)
        return self.slack[n] > 0

    def widen(self, Z):
        """Follow the basis, which has grown by one."""
        self.w = np.append(self.w, 0.0)
        self.sum_hessian(Z)

    def enter(self, Z, samples, direction):
        """Let samples enter the Hessian (direction 1) or leave it (-1)."""
        A = Z[:, samples]
        self.hessian += self.C * (A * direction) @ A.T
        diagonal = np.diag(self.hessian)
        self.peak = np.maximum(self.peak, diagonal)
        # When an outlier leaves that has been all there was, rounding errors are all that stay.
        if (diagonal < CANCELLED * self.peak).any():
            self.sum_hessian(Z)

    def sum_hessian(self, Z):
        A = Z[:, self.slack[: Z.shape[1]] > 0]
        self.hessian = np.eye(len(Z)) + self.C * (A @ A.T)
        self.peak = np.diag(self.hessian).copy()

    def train(self, Z):
        """Newton steps from the last minimum."""
        if not len(Z):
            return
        sign, slack = self.sign[: Z.shape[1]], self.slack[: Z.shape[1]]
        value = self.objective(self.w, slack)
        for i in range(MAX_STEPS):
            within = np.flatnonzero(slack > 0)
            gradient = self.w - self.C * (Z[:, within] @ (sign[within] * slack[within]))
            step = self.newton_step(gradient, Z, accurate=i >= CHEAP_STEPS)
            if -(gradient @ step) <= TOLERANCE * value:
                return
            # Sums of small changes stay consistent where 1 - sign * f, summed anew, would not: the
            # noise of an outlier's f outweighs the slack that it needs to pull on w.
            change = -sign * (step @ Z)
            if self.objective(self.w + step, slack + change) >= value:
                fraction = self.best_fraction(step, slack, change)
                step, change = fraction * step, fraction * change
            new_slack = slack + change
            new_value = self.objective(self.w + step, new_slack)
            if not new_value <= value * (1 + TOLERANCE):  # rounding allows no more
                return
            self.w, value = self.w + step, new_value
            direction = (new_slack > 0).astype(float) - (slack > 0)
            slack[:] = new_slack
            moved = np.flatnonzero(direction)
            if len(moved):
                self.enter(Z, moved, direction[moved])

    def objective(self, w, slack):
        loss = np.maximum(slack, 0.0)
        return 0.5 * (w @ w + self.C * (loss @ loss))

    def newton_step(self, gradient, Z, accurate):
        if not accurate:
            _, step, failed = dposv(self.hessian, -gradient)
            if not failed:
                return step
        # R'R = A'A is the Hessian, whose squares would have drowned the short rows of A. Long rows
        # come first so that each row keeps its own digits.
        A = np.sqrt(self.C) * Z[:, self.slack[: Z.shape[1]] > 0].T
        A = np.vstack([A, np.eye(len(Z))])
        A = A[np.argsort(-np.einsum("ij,ij->i", A, A), kind="stable")]
        R = qr(A, mode="r", overwrite_a=True, check_finite=False)[0][: len(Z)]
        return dtrsv(R, dtrsv(R, -gradient, trans=1))

    def best_fraction(self, step, slack, change):
        """Fraction of the step where the objective is least."""

        def slope(t):
            return (self.w + t * step) @ step + self.C * np.maximum(slack + t * change, 0) @ change

        with np.errstate(divide="ignore", invalid="ignore"):
            kinks = -slack / change
            kinks = np.r_[0.0, np.sort(kinks[(kinks > 0.0) & (kinks < 1.0)]), 1.0]
            i = np.clip(bisect_left(kinks, 0.0, key=slope), 1, len(kinks) - 1)
            left, right = kinks[i - 1 : i + 1]
            rise = (slope(right) - slope(left)) / (right - left)
            return np.clip(left - slope(left) / rise, left, right)


def _with_room(array, n):
    """Return the array, or a copy twice as long along its last axis if it is shorter than n."""
    if n <= array.shape[-1]:
        return array
    longer = np.zeros((*array.shape[:-1], max(n, 2 * array.shape[-1])))
    longer[..., : array.shape[-1]] = array
    return longer
