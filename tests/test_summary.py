"""What a fitted estimator tells of itself, as text and in a notebook."""

import pickle
import re
from email.message import Message

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skokde._summary
from skokde import (
    OnlineKDEClassifier,
    OnlineKDEDensity,
    OnlineKDEImputer,
    OnlineKDEOutlierDetector,
    OnlineKDERegressor,
)

ESTIMATORS = [
    OnlineKDEDensity,
    OnlineKDEClassifier,
    OnlineKDEOutlierDetector,
    OnlineKDERegressor,
    OnlineKDEImputer,
]
each_estimator = pytest.mark.parametrize("Estimator", ESTIMATORS)
X, Y = load_iris(return_X_y=True)
ADDRESS = "https://docs.example.org/stable/"


@pytest.fixture
def project_urls(monkeypatch):
    """Let the metadata of the package have some addresses."""

    def set_urls(*entries):
        metadata = Message()
        for entry in entries:
            metadata["Project-URL"] = entry
        monkeypatch.setattr(skokde._summary, "metadata", lambda name: metadata)

    return set_urls


def best_of(summary):
    """What stands in a line of a summary for each kind of choice, and its weight in percent."""
    found = re.findall(r"(threshold|width|shape|memory) ([^(]+) \((\d+) %\)", summary)
    return {kind: (name, int(percent)) for kind, name, percent in found}


@each_estimator
def test_samples_and_components(Estimator):
    estimator = Estimator(compression_threshold=0.1, bandwidth="scott").fit(X, Y)
    head, *others = estimator.summary().splitlines()
    outputs = " and 1 output" if Estimator is OnlineKDERegressor else ""
    densities = getattr(estimator, "estimators_", [getattr(estimator, "density_", estimator)])
    counts = [density.n_components_ for density in densities]
    expected = f"150 samples of 4 features{outputs} in {sum(counts)} components"
    if Estimator is OnlineKDEClassifier:
        assert head == f"{expected}, 3 classes"
        assert others == [
            f"class {label}: 50 samples in {count} components" for label, count in enumerate(counts)
        ]
    else:
        assert [head, *others] == [expected]


def test_one_of_each():
    assert OnlineKDEDensity(bandwidth=[1.0], compression_threshold=0.1).fit([[3.0]]).summary() == (
        "1 sample of 1 feature in 1 component"
    )
    classifier = OnlineKDEClassifier(bandwidth=[1.0], compression_threshold=0.1)
    assert classifier.fit([[3.0]], ["a"], sample_weight=[2.5]).summary() == (
        "2.5 samples of 1 feature in 1 component, 1 class\nclass 'a': 2.5 samples in 1 component"
    )
    regressor = OnlineKDERegressor(bandwidth=[1.0] * 3, compression_threshold=0.1)
    assert regressor.fit([[3.0]], [[1.0, 2.0]], sample_weight=[1e6]).summary() == (
        "1,000,000 samples of 1 feature and 2 outputs in 1 component"
    )


def test_classes_without_a_sample():
    classifier = OnlineKDEClassifier().partial_fit(X[:50], Y[:50], classes=[0, 7])
    assert classifier.summary().splitlines()[2] == "class 7: no sample"


@each_estimator
def test_what_prediction_has_found(Estimator):
    estimator = Estimator(forgetting_factor="predictive").fit(X, Y)
    line = estimator.summary().splitlines()[-1]
    density = getattr(estimator, "density_", estimator)
    density = getattr(estimator, "estimators_", [density])[-1]
    choices = {
        "threshold": ["0.0025", "0.01", "0.04", "0.08", "0.16", "0.32", "0.64"],
        "width": ["1/64", "1/16", "1/4", "1/2", "2"],
        "shape": ["full", "half of the correlations", "no correlations"],
        "memory": ["all samples", "0.9", "0.97", "0.997"],
    }
    weights, best = density.expert_weights_, best_of(line)
    assert list(best) == list(choices)
    for kind, (name, percent) in best.items():
        assert percent == round(100 * weights[kind].max())
        assert name == choices[kind][-len(weights[kind]) :][weights[kind].argmax()]


@pytest.mark.parametrize(
    ("parameters", "kinds"),
    [
        ({"covariance_type": "diag"}, ["threshold", "width"]),
        ({"bandwidth": "scott"}, ["threshold"]),
        ({"compression_threshold": 0.1}, ["width"]),
        (
            {"compression_threshold": 0.1, "bandwidth": 1.0, "forgetting_factor": "predictive"},
            ["memory"],
        ),
    ],
    ids=str,
)
def test_only_what_was_left_to_prediction(parameters, kinds):
    assert list(best_of(OnlineKDEDensity(**parameters).fit(X).summary())) == kinds


def test_thresholds_that_were_given_up_are_not_named():
    density = OnlineKDEDensity().fit(X)
    for level in range(7):
        density._state = density._state._replace(level=level)
        weights = density.expert_weights_["threshold"]
        assert len(weights) == 7 - level
        name, _ = best_of(density.summary()).get("threshold", ("0.64", 100))
        names = ["0.0025", "0.01", "0.04", "0.08", "0.16", "0.32", "0.64"]
        assert name == names[level + weights.argmax()]


def test_the_scales_of_one_threshold():
    density = OnlineKDEDensity(compression_threshold=0.1).fit(X)
    name, _ = best_of(density.summary())["width"]
    assert name == ["1/4", "1/2", "1", "2"][density.expert_weights_["width"].argmax()]


@each_estimator
def test_before_fit(Estimator):
    estimator = Estimator()
    with pytest.raises(NotFittedError):
        estimator.summary()
    assert "<pre style" not in estimator._repr_html_()
    assert estimator._repr_mimebundle_()["text/plain"] == repr(estimator)


@each_estimator
def test_in_a_notebook(Estimator):
    estimator = Estimator().fit(X, Y)
    before, pickled = dict(vars(estimator)), pickle.dumps(estimator)
    bundle = estimator._repr_mimebundle_()
    assert bundle["text/plain"] == repr(estimator) == f"{Estimator.__name__}()"
    for page in (bundle["text/html"], estimator._repr_html_()):
        diagram, _, below = page.partition("<pre style")
        assert "sk-container" in diagram
        assert below.partition(">")[2] == estimator.summary().replace("'", "&#x27;") + "</pre>"
    # It writes nothing.
    assert all(vars(estimator)[name] is before[name] for name in before)
    assert vars(estimator).keys() == before.keys()
    assert pickle.dumps(estimator) == pickled


def test_without_diagrams():
    density = OnlineKDEDensity().fit(X)
    with config_context(display="text"):
        assert not hasattr(density, "_repr_html_")
        assert density._repr_mimebundle_().keys() == {"text/plain"}
        assert "samples" in density.summary()


def test_labels_are_text():
    labels = np.array(["<script>alert(1)</script>", "a&b\n", "' \""])
    classifier = OnlineKDEClassifier().fit(X, labels[Y])
    below = classifier._repr_html_().partition("<pre style")[2]
    assert "<script>" not in below
    assert "class &#x27;&lt;script&gt;alert(1)&lt;/script&gt;&#x27;: 50 samples" in below
    assert "a&amp;b\\n" in below
    assert len(classifier.summary().splitlines()) == 4


def test_diagrams_of_other_estimators():
    pipeline = make_pipeline(StandardScaler(), OnlineKDEClassifier())
    search = GridSearchCV(pipeline, {"onlinekdeclassifier__compression_threshold": [0.1]}, cv=2)
    for estimator in (pipeline, pipeline.fit(X, Y), search.fit(X, Y)):
        page = estimator._repr_html_()
        assert "OnlineKDEClassifier" in page
        assert "<pre style" not in page


@each_estimator
def test_parameters_that_are_wrong_since(Estimator):
    """Names can still be completed, and the diagram says what is wrong."""
    estimator = Estimator().fit(X, Y).set_params(bandwidth=-1.0)
    assert {"predict", "score_samples", "transform"} & set(dir(estimator))
    for page in (estimator._repr_html_(), estimator._repr_mimebundle_()["text/html"]):
        assert "bandwidth" in page.partition("<pre style")[0]
        # Before scikit-learn 1.9 a diagram asks no attribute of a classifier that depends on it.
        below = page.partition("<pre style")[2]
        assert "must be positive" in below or "150 samples" in below
    assert estimator.set_params(bandwidth=1.0).summary() in estimator._repr_html_()


@each_estimator
def test_link_to_the_documentation(Estimator, project_urls):
    project_urls("Source, https://code.example.org", f"Documentation, {ADDRESS}")
    page = f"{ADDRESS}generated/skokde.{Estimator.__name__}.html"
    assert f'href="{page}"' in Estimator()._repr_html_()
    pipeline = make_pipeline(StandardScaler(), Estimator())
    assert f'href="{page}"' in pipeline._repr_html_()


def test_no_link_without_an_address(project_urls):
    for entries in ((), ("Source, https://code.example.org",)):
        project_urls(*entries)
        assert "href=" not in re.sub(
            "<style>.*</style>", "", OnlineKDEDensity()._repr_html_(), flags=re.DOTALL
        )


def test_no_link_for_subclasses_elsewhere(project_urls):
    project_urls(f"Documentation, {ADDRESS}")

    class Other(OnlineKDEDensity):
        pass

    assert ADDRESS not in Other()._repr_html_()
