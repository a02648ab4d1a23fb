import matplotlib.pyplot as plt
import numpy as np
from drawing import BLUE, GREY, ORANGE, RED

from skokde import OnlineKDEDensity

rng = np.random.default_rng(0)
X = np.concatenate([rng.normal(-2.0, 0.1, 150), rng.normal(1.5, 1.0, 150)])
rng.shuffle(X)
grid = np.linspace(-4.0, 5.5, 1000)
true = sum(
    0.5 * np.exp(-0.5 * ((grid - m) / s) ** 2) / (s * np.sqrt(2.0 * np.pi))
    for m, s in ((-2.0, 0.1), (1.5, 1.0))
)

figure, axes = plt.subplots(1, 3, figsize=(9, 2.5), sharey=True, layout="constrained")
for ax, bandwidth, color in zip(axes, (0.1, 1.0, "predictive"), (ORANGE, RED, BLUE), strict=True):
    density = OnlineKDEDensity(bandwidth=bandwidth).fit(X[:, None])
    ax.fill_between(grid, true, color=GREY, alpha=0.25, linewidth=0.0)
    ax.plot(grid, np.exp(density.score_samples(grid[:, None])), color=color)
    ax.set_title(f"bandwidth={bandwidth!r}")
    ax.set_yticks([])
axes[0].set_ylabel("density")
