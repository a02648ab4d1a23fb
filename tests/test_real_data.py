"""Accuracy, log-density and log-loss on real data, in bands around what was measured.

The protocol is the paper's: raw features, seeds 0 to 11, the first three quarters of a permutation
are the stream, the rest is the test set. The bands are three standard errors of the twelve shuffles
wide on each side; the last tests show that they are narrow enough to notice a fault.
"""

import copy
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from skokde import OnlineKDEClassifier
from skokde._engine.bandwidth import PlugIn
from skokde._engine.experts import by_kind

pytestmark = pytest.mark.thorough

FLOOR = np.log(1e-300)


class Figure(NamedTuple):
    mean: float
    error: float  # standard error over the shuffles


class Case(NamedTuple):
    name: str
    covariance_type: str
    accuracy: Figure  # in percent
    nll: Figure  # mean -log p of test rows under their own class's density, in nats
    log_loss: Figure | None = None  # mean -log P of the own class, in nats
    settings: str = "plugin"

    def of(self, settings):
        return self._replace(settings=settings)


SETTINGS = {
    "plugin": {"bandwidth": "plugin", "compression_threshold": 0.1, "calibrate": False},
    "paper": {"bandwidth": "okde", "compression_threshold": 0.1, "calibrate": False},
    "defaults": {},
}

# "overlap" is breast cancer with its two features symmetry and fractal dimension only and every
# third malignant row: the classes overlap there and one is rare, so that priors matter.
CASES = [
    Case("iris", "full", Figure(94.52, 0.94), Figure(1.53, 0.12)),
    Case("iris", "diag", Figure(94.30, 1.02), Figure(1.09, 0.08)),
    Case("wine", "full", Figure(98.89, 0.43), Figure(25.25, 0.92)),
    Case("wine", "diag", Figure(99.26, 0.42), Figure(21.62, 0.55)),
    Case("cancer", "full", Figure(93.94, 0.45), Figure(-25.05, 1.41)),
    Case("cancer", "diag", Figure(95.28, 0.29), Figure(-15.79, 0.28)),
    Case("overlap", "full", Figure(83.41, 0.59), Figure(-5.91, 0.06)),
    Case("overlap", "diag", Figure(82.24, 0.43), Figure(-5.94, 0.05)),
]
DEFAULTS = [
    Case("iris", "full", Figure(96.05, 0.89), Figure(0.57, 0.06), Figure(0.076, 0.012)),
    Case("iris", "diag", Figure(94.96, 0.76), Figure(0.90, 0.08), Figure(0.127, 0.021)),
    Case("wine", "full", Figure(99.26, 0.42), Figure(16.55, 0.17), Figure(0.045, 0.006)),
    Case("wine", "diag", Figure(97.41, 0.46), Figure(17.18, 0.18), Figure(0.084, 0.022)),
    Case("cancer", "full", Figure(96.45, 0.39), Figure(-40.23, 0.27), Figure(0.097, 0.008)),
    Case("cancer", "diag", Figure(95.28, 0.40), Figure(-19.78, 0.28), Figure(0.121, 0.007)),
    Case("overlap", "full", Figure(83.33, 0.47), Figure(-6.00, 0.04), Figure(0.387, 0.011)),
    Case("overlap", "diag", Figure(83.10, 0.57), Figure(-5.99, 0.03), Figure(0.394, 0.012)),
]
DEFAULTS = [case.of("defaults") for case in DEFAULTS]
# xokde++ on the same splits: the seeds it ended well on, accuracy, -log p.
PEER = {
    ("iris", "full"): (range(12), Figure(94.30, 0.96), Figure(8.05, 0.40)),
    ("iris", "diag"): (range(12), Figure(93.86, 1.04), Figure(4.29, 0.30)),
    ("wine", "full"): (range(12), Figure(98.34, 0.48), Figure(52.90, 2.23)),
    ("wine", "diag"): (range(12), Figure(98.89, 0.43), Figure(34.38, 1.20)),
    ("cancer", "full"): (range(4), Figure(91.61, 2.00), Figure(-5.05, 5.35)),
    ("cancer", "diag"): ((0, 1, 2, 6, 8, 11), Figure(96.04, 0.69), Figure(-14.56, 0.99)),
}
IDS = [f"{case.name}-{case.covariance_type}" for case in CASES]


def load(name):
    if name == "iris":
        return load_iris(return_X_y=True)
    if name == "wine":
        return load_wine(return_X_y=True)
    X, y = load_breast_cancer(return_X_y=True)
    if name == "overlap":
        rows = np.concatenate([np.flatnonzero(y == 0)[::3], np.flatnonzero(y == 1)])
        return X[rows, 8:10], y[rows]
    return X, y


@cache
def trained(case, seed):
    """A fitted classifier and its test set."""
    X, y = load(case.name)
    order = np.random.RandomState(seed).permutation(len(X))
    train, test = np.split(order, [int(0.75 * len(X))])
    parameters = SETTINGS[case.settings]
    classifier = OnlineKDEClassifier(covariance_type=case.covariance_type, **parameters)
    classifier.partial_fit(X[train], y[train], classes=np.unique(y))
    return classifier, X[test], y[test]


def twice_the_scale(*args, scale=PlugIn.scale):
    return 2.0 * scale(*args)


def figures(case, seeds=range(12), fault=None):
    """Accuracy in percent, mean -log p and log-loss of each seed, an (n_seeds, 3) array."""
    rows = []
    for seed in seeds:
        classifier, X, y = trained(case, seed)
        classifier = copy.deepcopy(classifier)
        if fault == "priors ignored":
            n_classes = len(classifier.classes_)
            classifier.set_params(priors=np.full(n_classes, 1 / n_classes))
        if fault == "labels swapped":
            classifier.estimators_[:2] = classifier.estimators_[1::-1]
        if fault == "not calibrated":
            classifier.set_params(calibrate=False)
        if fault == "weights reversed":
            settings = classifier._scorer().settings
            for estimator in classifier.estimators_:
                state = estimator._state
                counts = state.expert_counts.copy()
                by_width, _, _ = by_kind(counts, settings)
                by_width[...] = by_width[:, :, ::-1].copy()
                estimator._state = state._replace(expert_counts=counts)
        with pytest.MonkeyPatch.context() as patch:
            if fault == "H times 4":
                patch.setattr(PlugIn, "scale", twice_the_scale)
            joint = classifier.predict_joint_log_proba(X)
            log_proba = classifier.predict_log_proba(X)
        own = joint[np.arange(len(X)), y] - np.log(classifier.class_prior_[y])
        accuracy = 100 * np.mean(classifier.classes_[log_proba.argmax(axis=1)] == y)
        log_loss = -np.maximum(log_proba[np.arange(len(X)), y], FLOOR).mean()
        rows.append([accuracy, -np.maximum(own, FLOOR).mean(), log_loss])
    return np.array(rows)


def in_band(values, figure):
    return abs(values.mean() - figure.mean) <= 3 * figure.error


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_figures_are_what_was_measured(case):
    accuracy, nll, _ = figures(case).T
    assert in_band(accuracy, case.accuracy)
    assert in_band(nll, case.nll)


@pytest.mark.parametrize("case", DEFAULTS, ids=IDS)
def test_figures_of_the_defaults_are_what_was_measured(case):
    accuracy, nll, log_loss = figures(case).T
    assert in_band(accuracy, case.accuracy)
    assert in_band(nll, case.nll)
    assert in_band(log_loss, case.log_loss)


def difference(case, other):
    """Means of the paired differences of the figures, and their standard errors."""
    differences = figures(case) - figures(case.of(other))
    return differences.mean(axis=0), differences.std(axis=0, ddof=1) / np.sqrt(len(differences))


@pytest.mark.slow
@pytest.mark.parametrize("other", ["plugin", "paper"])
@pytest.mark.parametrize("case", DEFAULTS, ids=IDS)
def test_defaults_beside_one_bandwidth_and_bayes_rule(case, other):
    mean, error = difference(case, other)
    assert mean[1] < -1.5 * error[1]
    # Wine's features are nearly independent within the classes: nothing beats the product of their
    # densities there.
    if case[:2] != ("wine", "diag"):
        assert mean[0] >= -2.0 * error[0]
        assert mean[2] < 0.0
    if case.name in ("cancer", "overlap"):
        assert mean[2] < -2.0 * error[2]


@pytest.mark.parametrize("case", CASES[:6], ids=IDS[:6])
def test_no_worse_than_the_published_implementation(case):
    seeds, accuracy, nll = PEER[case.name, case.covariance_type]
    ours = figures(case, seeds)
    mean, error = ours.mean(axis=0), ours.std(axis=0, ddof=1) / np.sqrt(len(ours))
    assert mean[0] >= accuracy.mean - np.hypot(error[0], accuracy.error)
    assert mean[1] <= nll.mean + np.hypot(error[1], nll.error)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", CASES + DEFAULTS, ids=[*IDS, *(f"{name}-defaults" for name in IDS)]
)
def test_bands_notice_swapped_labels(case):
    accuracy, nll, _ = figures(case, fault="labels swapped").T
    assert not in_band(accuracy, case.accuracy)
    assert not in_band(nll, case.nll)


# With the diagonal covariances of iris, twice the scale is as much too wide as the rule's own is
# too narrow, and in two dimensions ("overlap") the bandwidth matters little.
NOTICED = [i for i, case in enumerate(CASES[:6]) if case[:2] != ("iris", "diag")]


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASES[i] for i in NOTICED], ids=[IDS[i] for i in NOTICED])
def test_bands_notice_a_wrong_bandwidth(case):
    assert not in_band(figures(case, fault="H times 4")[:, 1], case.nll)


@pytest.mark.slow
@pytest.mark.parametrize("case", DEFAULTS, ids=IDS)
def test_weights_of_the_widths_matter(case):
    # Mixtures forgive much, so that it shows in the differences only.
    losses = (figures(case, fault="weights reversed") - figures(case))[:, 1]
    assert losses.mean() > 2.0 * losses.std(ddof=1) / np.sqrt(len(losses))


@pytest.mark.slow
# Of the others the densities alone are nearly calibrated.
@pytest.mark.parametrize("case", DEFAULTS[4:6], ids=IDS[4:6])
def test_bands_notice_a_lack_of_calibration(case):
    assert not in_band(figures(case, fault="not calibrated")[:, 2], case.log_loss)


@pytest.mark.parametrize("case", CASES[-2:], ids=IDS[-2:])
def test_bands_notice_ignored_priors(case):
    # The other sets' classes are too far apart for priors to matter.
    accuracy, *_ = figures(case, fault="priors ignored").T
    assert not in_band(accuracy, case.accuracy)


def in_folder(name):
    """Rows and labels of a set in the folder of the paper's data sets."""
    folder = os.environ.get("SKOKDE_DATA")
    if not folder:
        pytest.skip("SKOKDE_DATA is not set to the folder of the paper's data sets")
    table = np.loadtxt(Path(folder) / f"{name}.csv.gz", delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1].astype(int)


@pytest.mark.parametrize("name", ["iris", "wine", "cancer"])
def test_loaders_have_the_rows_of_the_data_folder(name):
    # The figures of xokde++ are for the rows and the order of that folder.
    table, labels = in_folder(name)
    X, y = load(name)
    np.testing.assert_allclose(table, X, rtol=1e-12)
    np.testing.assert_array_equal(labels, y)


def test_a_row_that_makes_outliers_inliers_harms_nothing():
    # After the last of these rows a plate that is twenty times as large as others of its class is
    # no outlier any more. It moved the mean of the class by 30 deviations, in the covariance from
    # before: 47 % were right then, and 64 one row earlier.
    X, y = in_folder("steel")
    order = np.random.default_rng(100).permutation(len(X))
    train, test = np.split(order, [150])
    classifier = OnlineKDEClassifier().partial_fit(X[train[:-1]], y[train[:-1]], np.unique(y))
    before = classifier.score(X[test], y[test])
    classifier.partial_fit(X[train[-1:]], y[train[-1:]])
    assert classifier.score(X[test], y[test]) > before - 0.02
