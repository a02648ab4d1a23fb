import matplotlib.pyplot as plt
import numpy as np
from drawing import BLUE, GREY, ORANGE, RED
from scipy.special import logsumexp
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity

from skokde import OnlineKDEDensity


def two_clusters(n, d, seed):
    rng = np.random.default_rng(seed)
    side = np.where(rng.random(n) < 0.5, -2.0, 2.0)
    X = rng.normal(size=(n, d))
    X[:, 0] += side
    log_p = logsumexp([-0.5 * ((X[:, 0] - m) ** 2) for m in (-2.0, 2.0)], axis=0) - np.log(2.0)
    return X, log_p - 0.5 * (X[:, 1:] ** 2).sum(axis=1) - 0.5 * d * np.log(2.0 * np.pi)


dimensions = [1, 2, 4, 8, 16, 32]
models = {
    "GaussianMixture, 2 components": (GaussianMixture(2, random_state=0), GREY),
    "OnlineKDEDensity": (OnlineKDEDensity(), BLUE),
    'OnlineKDEDensity, "diag"': (OnlineKDEDensity(covariance_type="diag"), ORANGE),
    "KernelDensity, cross-validated": (
        GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.1, 1.5, 10)}, cv=3),
        RED,
    ),
}
figure, ax = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
for name, (model, color) in models.items():
    losses = []
    for d in dimensions:
        model.fit(two_clusters(1000, d, 0)[0])
        X, log_p = two_clusters(1000, d, 1)
        losses.append(np.mean(log_p - model.score_samples(X)))
    ax.loglog(dimensions, losses, "o-", color=color, label=name)
ax.set_xticks(dimensions, dimensions)
ax.minorticks_off()
ax.set(xlabel="features", ylabel="nats below the true log-density")
ax.legend(frameon=False)
