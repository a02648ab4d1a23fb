"""Store small models in the present format, for all later versions to load.

Run it once when `skokde._persistence.FORMAT` has been raised, and commit the files.
"""

import pickle
from pathlib import Path

import numpy as np

from skokde import OnlineKDEClassifier, OnlineKDEDensity
from skokde._persistence import FORMAT

rng = np.random.default_rng(0)
y = rng.integers(0, 3, size=70)
X = rng.normal(size=(70, 3)) + y[:, None]
labels = np.array(["a", "b", "c"])[y]
for kind, estimator in (("density", OnlineKDEDensity()), ("classifier", OnlineKDEClassifier())):
    estimator.fit(X, labels)
    scores = estimator.score_samples(X[:10])
    with (Path(__file__).parent / f"format-{FORMAT}-{kind}.pkl").open("wb") as file:
        pickle.dump({"estimator": estimator, "X": X[:10], "scores": scores}, file, protocol=4)
