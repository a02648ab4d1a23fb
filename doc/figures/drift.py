import matplotlib.pyplot as plt
import numpy as np
from drawing import BLUE, ORANGE, RED

from skokde import OnlineKDEDensity

rng = np.random.default_rng(0)
centre = np.repeat([0.0, 4.0, 0.0], [600, 500, 500])
X = (centre + rng.normal(0.0, 0.7, centre.size))[:, None]

figure, axes = plt.subplots(2, 1, figsize=(9, 4.2), sharex=True, layout="constrained")
axes[0].plot(X, ".", color="#8a8f98", markersize=2)
axes[0].set_ylabel("samples")
smooth = 0.96
for factor, color in ((1.0, RED), (0.98, ORANGE), ("predictive", BLUE)):
    density = OnlineKDEDensity(forgetting_factor=factor).fit(X[:20])
    means, mean = [], density.score(X[:20])
    for row in X[20:, None]:
        mean = smooth * mean + (1.0 - smooth) * density.score(row)
        means.append(mean)
        density.partial_fit(row)
    label = f"forgetting_factor={factor!r}"
    axes[1].plot(np.arange(20, len(X)), means, color=color, label=label)
axes[1].set(xlabel="samples so far", ylabel="log-density,\nnats", ylim=(-4.5, -0.5))
axes[1].legend(frameon=False, ncols=3, loc="lower left")
