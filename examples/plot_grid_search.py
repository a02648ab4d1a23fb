"""
Grid search over threshold and covariance type
==============================================

By default the compression threshold is found from the stream, and little is left to choose. Where a
model must be small, or scored fast, a fixed threshold can be chosen by ``GridSearchCV``, as any
other parameter, together with the structure of the covariances.
"""

# %%
# The search
# ----------
# Breast cancer data: the means of ten measurements for each of 569 tumours. They are standardized,
# since ``"spherical"`` takes one width for all features. (``"full"`` and ``"diag"`` do not depend
# on the features' scales.)
#
# The search is for the best log-loss of the probabilities. A second measure is the number of
# components, which is what memory and scoring time are proportional to.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import scale

from skokde import OnlineKDEClassifier

X, y = load_breast_cancer(return_X_y=True)
X = scale(X[:, :10])


def measures(classifier, X, y):
    """Log-loss, and the components of all classes together."""
    return {
        "neg_log_loss": -log_loss(y, classifier.predict_proba(X)),
        "components": sum(density.n_components_ for density in classifier.estimators_),
    }


thresholds = [0.05, 0.1, 0.2, "predictive"]
structures = ["full", "diag", "spherical"]
search = GridSearchCV(
    OnlineKDEClassifier(),
    {"covariance_type": structures, "compression_threshold": thresholds},
    scoring=measures,
    refit="neg_log_loss",
    cv=StratifiedKFold(2, shuffle=True, random_state=0),
    error_score="raise",
)
search.fit(X, y)
print(search.best_params_)
print("standard deviation between folds:", search.cv_results_["std_test_neg_log_loss"].round(3))

# %%
# The result
# ----------
# Rows of both tables are covariance types, columns are thresholds. Log-losses differ by hardly more
# than those of the two folds do, while components differ by a factor of eight: here the small model
# is as good as any.

shape = len(structures), len(thresholds)
# Parameters are taken in the order of their names: the first one changes most slowly.
tables = {
    "log-loss, nats": -search.cv_results_["mean_test_neg_log_loss"].reshape(shape[::-1]).T,
    "components": search.cv_results_["mean_test_components"].reshape(shape[::-1]).T,
}
figure, axes = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
for ax, (name, table) in zip(axes, tables.items(), strict=True):
    ax.imshow(np.log(table), cmap="Blues", aspect="auto", alpha=0.7)
    for (i, j), value in np.ndenumerate(table):
        ax.text(j, i, f"{value:.3g}", ha="center", va="center")
    ax.set_yticks(range(len(structures)), structures)
    ax.set_xticks(range(len(thresholds)), thresholds)
    ax.set_title(name)
axes[1].set_xlabel("compression_threshold")
plt.show()
