"""Both estimators are ordinary scikit-learn estimators."""

import ast
import io
import pickle
import re
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import VotingClassifier
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags, shuffle
from sklearn.utils.estimator_checks import parametrize_with_checks

import skokde
from marks import quick
from skokde import OnlineKDEClassifier, OnlineKDEDensity
from structures import STRUCTURES

ESTIMATORS = [OnlineKDEDensity, OnlineKDEClassifier]
both_estimators = pytest.mark.parametrize("Estimator", ESTIMATORS, ids=["density", "classifier"])
every_structure = pytest.mark.parametrize("covariance_type", quick(STRUCTURES), ids=str)


@pytest.fixture(scope="module")
def iris():
    return shuffle(*load_iris(return_X_y=True), random_state=0)


@pytest.fixture
def forbid_writing_to(monkeypatch):
    """Make every assignment to an attribute of the given estimators fail."""

    def forbid(estimators):
        def refuse(self, name, value):
            assert all(self is not estimator for estimator in estimators), f"{name} was written"
            object.__setattr__(self, name, value)

        for Estimator in ESTIMATORS:
            monkeypatch.setattr(Estimator, "__setattr__", refuse)

    return forbid


@parametrize_with_checks(
    [
        Estimator(covariance_type=covariance_type)
        for Estimator in ESTIMATORS
        for covariance_type in STRUCTURES
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [
        OnlineKDEDensity(forgetting_factor=0.9, max_components=5, bandwidth="scott"),
        OnlineKDEClassifier(forgetting_factor=0.99, max_components=20, bandwidth=0.5, n_jobs=2),
        OnlineKDEClassifier(shuffle=True, random_state=0),
    ],
    # It compares predictions, which the density has none of, and shuffles the rows.
    expected_failed_checks=lambda estimator: (
        {"check_sample_weight_equivalence_on_dense_data": "order matters with forgetting"}
        if isinstance(estimator, OnlineKDEClassifier) and estimator.forgetting_factor < 1.0
        else {}
    ),
)
def test_scikit_learn_checks_with_other_parameters(estimator, check):
    check(estimator)


def test_tags():
    assert is_classifier(OnlineKDEClassifier())
    assert not is_classifier(OnlineKDEDensity())
    assert get_tags(OnlineKDEDensity()).estimator_type == "density_estimator"
    assert get_tags(OnlineKDEClassifier()).target_tags.required
    assert not get_tags(OnlineKDEDensity()).target_tags.required
    for Estimator in ESTIMATORS:
        assert not get_tags(Estimator()).input_tags.sparse
        assert get_tags(Estimator()).input_tags.allow_nan


@every_structure
def test_density_in_a_pipeline(iris, covariance_type):
    X, _ = iris
    pipeline = make_pipeline(StandardScaler(), OnlineKDEDensity(covariance_type=covariance_type))
    scaled = StandardScaler().fit_transform(X)
    alone = OnlineKDEDensity(covariance_type=covariance_type).fit(scaled)
    np.testing.assert_array_equal(pipeline.fit(X).score_samples(X), alone.score_samples(scaled))
    assert pipeline.score(X) == alone.score(scaled)


@every_structure
def test_classifier_in_a_pipeline(iris, covariance_type):
    X, y = iris
    pipeline = make_pipeline(PCA(3), OnlineKDEClassifier(covariance_type=covariance_type))
    scores = cross_val_score(pipeline, X, y, cv=StratifiedKFold(5))
    assert scores.mean() > 0.9
    probabilities = cross_val_predict(pipeline, X, y, method="predict_proba")
    assert probabilities.shape == (150, 3)
    assert np.mean(np.argmax(probabilities, axis=1) == y) > 0.9


def test_cross_val_score_of_a_density_is_the_held_out_mean_log_density(iris):
    X, _ = iris
    folds = list(KFold(3).split(X))
    expected = [
        OnlineKDEDensity().fit(X[train]).score_samples(X[test]).mean() for train, test in folds
    ]
    np.testing.assert_allclose(cross_val_score(OnlineKDEDensity(), X, cv=folds), expected)


@both_estimators
def test_grid_search(iris, Estimator):
    X, y = iris
    thresholds = [0.0, 0.1, 0.9, "predictive"]
    grid = {"compression_threshold": thresholds, "covariance_type": ["full", "diag"]}
    search = GridSearchCV(Estimator(), grid, cv=StratifiedKFold(3), error_score="raise")
    search.fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert len(scores) == 8
    assert np.isfinite(scores).all()
    assert len(set(scores)) > 2  # the parameters do reach the models
    assert search.best_score_ == scores.max()
    best = Estimator(**search.best_params_).fit(X, y)
    assert search.score(X, y) == best.score(X, y)


def test_grid_search_prefers_the_structure_that_the_data_have():
    # A narrow ridge: the density that knows no correlation loses about a nat.
    z = np.random.default_rng(0).normal(size=(300, 2))
    X = np.column_stack([z[:, 0], z[:, 0] + 0.1 * z[:, 1]])
    search = GridSearchCV(OnlineKDEDensity(), {"covariance_type": ["diag", "full"]}, cv=3).fit(X)
    assert search.best_params_ == {"covariance_type": "full"}


@both_estimators
def test_get_and_set_params(Estimator):
    estimator = Estimator()
    defaults = {
        "covariance_type": "full",
        "compression_threshold": "predictive",
        "bandwidth": "predictive",
        "forgetting_factor": 1.0,
        "max_components": None,
        "shuffle": False,
        "random_state": None,
        "n_jobs": None,
        "verbose": 0,
    }
    if Estimator is OnlineKDEClassifier:
        defaults |= {"calibrate": True, "priors": None}
    assert estimator.get_params() == defaults
    assert estimator.set_params(bandwidth=0.5, max_components=7) is estimator
    assert estimator.get_params() == defaults | {"bandwidth": 0.5, "max_components": 7}
    with pytest.raises(ValueError, match="Invalid parameter 'gamma'"):
        estimator.set_params(gamma=1)
    with pytest.raises(TypeError):
        Estimator("full")  # keywords only


@both_estimators
def test_parameters_are_kept_as_given(Estimator):
    bandwidth = [1.0, 2.0]
    estimator = Estimator(bandwidth=bandwidth, max_components=np.int64(9))
    assert estimator.bandwidth is bandwidth
    estimator.fit([[0.0, 1.0], [2.0, 2.0]], [0, 1])
    assert estimator.bandwidth is bandwidth
    assert type(estimator.max_components) is np.int64


@both_estimators
def test_clone_is_unfitted_and_independent(iris, assert_same_model, Estimator):
    X, y = iris
    original = Estimator(compression_threshold=0.05).fit(X[:100], y[:100])
    twin = clone(original)
    assert twin.get_params() == original.get_params()
    assert vars(twin).keys() == twin.get_params().keys()
    before = clone(original, safe=False).fit(X[:100], y[:100])
    twin.fit(-X, y).partial_fit(X, y)
    assert_same_model(original, before)


def _pickled(estimator):
    return pickle.loads(pickle.dumps(estimator))


@every_structure
@both_estimators
def test_goes_on_from_memory_mapped_state(
    tmp_path, iris, assert_same_model, Estimator, covariance_type
):
    # Parallel scikit-learn tools hand estimators to their workers with read-only arrays.
    X, y = iris
    original = Estimator(covariance_type=covariance_type).fit(X[:80], y[:80])
    joblib.dump(original, tmp_path / "model.joblib")
    copy = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    np.testing.assert_array_equal(original.score_samples(X), copy.score_samples(X))
    for estimator in (original, copy):
        estimator.partial_fit(X[80:], y[80:])
    assert_same_model(original, copy)


@both_estimators
def test_pickle_of_an_unfitted_estimator(iris, assert_same_model, Estimator):
    X, y = iris
    copy = _pickled(Estimator(bandwidth="scott"))
    assert vars(copy) == vars(Estimator(bandwidth="scott"))
    assert_same_model(copy.fit(X, y), Estimator(bandwidth="scott").fit(X, y))


class _PlainUnpickler(pickle.Unpickler):
    """Loads nothing but NumPy arrays and the estimators."""

    allowed = re.compile(
        r"numpy\.(ndarray|dtype)|numpy\._core\.(multiarray\._reconstruct|numeric\._frombuffer)"
        r"|skokde\._density\.OnlineKDEDensity|skokde\._classifier\.OnlineKDEClassifier"
    )

    def find_class(self, module, name):
        assert self.allowed.fullmatch(f"{module}.{name}"), f"{module}.{name} is pickled"
        return super().find_class(module, name)


@both_estimators
def test_pickle_holds_arrays_and_plain_python_only(iris, Estimator):
    X, y = iris
    fitted = Estimator().fit(X, y)
    unscored = pickle.dumps(fitted)
    fitted.score(X, y)
    # What scoring derives is not pickled: neither the size nor a bit changes.
    assert pickle.dumps(fitted) == unscored
    assert _PlainUnpickler(io.BytesIO(unscored)).load().score(X, y) == fitted.score(X, y)


@both_estimators
def test_scoring_leaves_the_estimator_as_it_was(iris, Estimator, forbid_writing_to):
    X, y = iris
    fitted = Estimator().fit(X, y)
    before, pickled = dict(vars(fitted)), pickle.dumps(fitted)
    forbid_writing_to([fitted, *getattr(fitted, "estimators_", [])])
    fitted.score(X, y)
    fitted.score_samples(X)
    if Estimator is OnlineKDEClassifier:
        for method in ("predict", "predict_proba", "predict_log_proba", "predict_joint_log_proba"):
            getattr(fitted, method)(X)
        assert fitted.class_prior_.shape == (3,)
    else:
        for name in ("weights_", "means_", "covariances_", "bandwidth_", "n_components_"):
            getattr(fitted, name)
        fitted.distribution()
    assert vars(fitted).keys() == before.keys()
    assert all(vars(fitted)[name] is before[name] for name in before)
    assert pickle.dumps(fitted) == pickled


@both_estimators
def test_fitted_attributes_can_be_written_to_without_harm(iris, assert_same_model, Estimator):
    # Attributes of the density are derived; users who change what they got change a copy.
    X, y = iris
    fitted, twin = Estimator().fit(X, y), Estimator().fit(X, y)
    density = fitted if Estimator is OnlineKDEDensity else fitted.estimators_[0]
    for array in (density.weights_, density.means_, density.covariances_):
        array[...] = np.nan
    for array in density.distribution().arrays:
        assert not array.flags.writeable
    density.bandwidth_[...] = np.nan
    assert_same_model(fitted, twin)
    np.testing.assert_array_equal(fitted.score_samples(X), twin.score_samples(X))


@both_estimators
def test_results_can_be_written_to_without_harm(iris, Estimator):
    X, y = iris
    fitted = Estimator().fit(X, y)
    first = fitted.score_samples(X)
    expected = first.copy()
    first[...] = np.nan
    np.testing.assert_array_equal(fitted.score_samples(X), expected)
    if Estimator is OnlineKDEClassifier:
        joint = fitted.predict_joint_log_proba(X)
        expected = fitted.predict_proba(X)
        joint[...] = np.nan
        np.testing.assert_array_equal(fitted.predict_proba(X), expected)


@both_estimators
def test_fit_methods_return_self(iris, Estimator):
    X, y = iris
    estimator = Estimator()
    assert estimator.fit(X, y) is estimator
    assert estimator.partial_fit(X, y) is estimator


@both_estimators
def test_feature_names(Estimator):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"b": [0.0, 1.0, 3.0, 4.0], "a": [5.0, 5.0, 2.0, 7.0]})
    y = [0, 1, 0, 1]
    fitted = Estimator().fit(frame, y)
    assert fitted.feature_names_in_.tolist() == ["b", "a"]
    assert fitted.n_features_in_ == 2
    assert fitted.partial_fit(frame, y).feature_names_in_.tolist() == ["b", "a"]
    fitted.fit(frame.to_numpy(), y)
    assert not hasattr(fitted, "feature_names_in_")


@both_estimators
def test_sample_weight_can_be_routed(Estimator):
    with config_context(enable_metadata_routing=True):
        estimator = (
            Estimator()
            .set_fit_request(sample_weight=True)
            .set_partial_fit_request(sample_weight=False)
        )
        routing = estimator.get_metadata_routing()
        assert routing.fit.requests["sample_weight"] is True
        assert routing.partial_fit.requests["sample_weight"] is False


def test_classes_can_be_routed():
    with config_context(enable_metadata_routing=True):
        estimator = OnlineKDEClassifier().set_partial_fit_request(classes=True)
        assert estimator.get_metadata_routing().partial_fit.requests["classes"] is True


@pytest.mark.skipif(
    tuple(int(part) for part in sklearn.__version__.split(".")[:2]) < (1, 8),
    reason="before scikit-learn 1.8 weights do not reach the score of a pipeline in a grid search",
)
def test_sample_weight_reaches_a_pipeline_in_a_grid_search(iris, assert_same_model):
    X, y = iris
    weights = np.arange(len(X)) % 3.0
    with config_context(enable_metadata_routing=True):
        classifier = OnlineKDEClassifier()
        classifier.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        search = GridSearchCV(
            make_pipeline(scaler, classifier),
            {"onlinekdeclassifier__compression_threshold": [0.1, 0.3]},
            cv=3,
            error_score="raise",
        )
        search.fit(X, y, sample_weight=weights)
    threshold = search.best_params_["onlinekdeclassifier__compression_threshold"]
    X = StandardScaler().fit_transform(X)
    expected = OnlineKDEClassifier(compression_threshold=threshold)
    assert_same_model(search.best_estimator_[-1], expected.fit(X, y, sample_weight=weights))


def test_sample_weight_reaches_a_density_in_a_grid_search(iris, assert_same_model, state_of):
    X, _ = iris
    weights = np.arange(len(X)) % 3.0
    with config_context(enable_metadata_routing=True):
        density = OnlineKDEDensity().set_fit_request(sample_weight=True)
        search = GridSearchCV(density, {"compression_threshold": [0.1, 0.3]}, error_score="raise")
        search.fit(X, sample_weight=weights)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), density)
        pipeline.fit(X, sample_weight=weights)
    expected = OnlineKDEDensity(**search.best_params_)
    assert_same_model(search.best_estimator_, expected.fit(X, sample_weight=weights))
    X = StandardScaler().fit_transform(X)
    expected = state_of(OnlineKDEDensity().fit(X, sample_weight=weights))
    assert_same_model(pipeline[-1], expected)
    assert state_of(OnlineKDEDensity().fit(X)) != expected  # the weights do matter


def test_sample_weight_without_routing_in_a_pipeline(iris, assert_same_model):
    X, y = iris
    weights = np.arange(len(X)) % 3.0
    pipeline = make_pipeline(StandardScaler(), OnlineKDEClassifier())
    pipeline.fit(X, y, onlinekdeclassifier__sample_weight=weights)
    scaled = StandardScaler().fit_transform(X)
    expected = OnlineKDEClassifier().fit(scaled, y, sample_weight=weights)
    assert_same_model(pipeline[-1], expected)


def test_score_takes_sample_weight(iris):
    X, y = iris
    fitted = OnlineKDEClassifier(compression_threshold=1.0, covariance_type="diag").fit(X, y)
    right = fitted.predict(X) == y
    assert 0 < right.sum() < len(y)
    assert fitted.score(X, y, sample_weight=right) == 1.0


def test_one_vs_rest(iris):
    X, y = iris
    model = OneVsRestClassifier(OnlineKDEClassifier()).fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.9
    model = OneVsRestClassifier(OnlineKDEClassifier())
    for start in range(0, 150, 50):
        block = slice(start, start + 50)
        model.partial_fit(X[block], y[block], classes=[0, 1, 2])
    assert model.score(X, y) > 0.9


def test_voting(iris):
    X, y = iris
    members = [
        ("full", OnlineKDEClassifier()),
        ("diag", OnlineKDEClassifier(covariance_type="diag")),
        ("naive Bayes", GaussianNB()),
    ]
    model = VotingClassifier(members, voting="soft").fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.9


def test_calibration(iris):
    X, y = iris
    model = CalibratedClassifierCV(OnlineKDEClassifier(), cv=3).fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_cross_validation_in_processes(iris):
    X, y = iris
    model = OnlineKDEClassifier()
    here = cross_val_score(model, X, y, cv=3)
    np.testing.assert_array_equal(cross_val_score(model, X, y, cv=3, n_jobs=2), here)


def test_repr_shows_changed_parameters_only():
    assert repr(OnlineKDEDensity()) == "OnlineKDEDensity()"
    text = repr(OnlineKDEClassifier(max_components=3, priors=[0.5, 0.5]))
    assert text == "OnlineKDEClassifier(max_components=3, priors=[0.5, 0.5])"


def test_public_names():
    kinds = ("Classifier", "Density", "Imputer", "OutlierDetector", "Regressor")
    estimators = [f"OnlineKDE{kind}" for kind in kinds]
    functions = ["__version__", "fit_shards", "merge"]
    assert sorted(skokde.__all__) == ["DegenerateDataWarning", *estimators, *functions]
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", skokde.__version__)


def _imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_private_scikit_learn_import():
    folders = [Path(skokde.__file__).parent]
    folders += [Path(__file__).parents[1] / name for name in ("benchmarks", "examples")]
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    names = [name for path in sources for name in _imports(ast.parse(path.read_text("utf-8")))]
    names = [name for name in names if name.split(".")[0] == "sklearn"]
    assert "sklearn.base.BaseEstimator" in names  # so the search does find imports
    assert [name for name in names if re.search(r"\._", name)] == []
    compiled = Path(skokde.__file__).parent.rglob("*.p[yx][xd]")
    assert [str(path) for path in compiled if "sklearn" in path.read_text("utf-8")] == []
