import matplotlib.pyplot as plt
from drawing import GREY, bare, draw_components, draw_density
from sklearn.datasets import make_moons

from skokde import OnlineKDEDensity

X, _ = make_moons(800, noise=0.08, random_state=0)
density = OnlineKDEDensity(compression_threshold=0.02).fit(X)
limits = (-1.5, 2.5, -1.0, 1.5)

figure, axes = plt.subplots(1, 3, figsize=(9, 2.4), layout="constrained")
axes[0].plot(*X.T, ".", color=GREY, markersize=2)
bare(axes[0], f"{len(X)} samples")
draw_components(axes[1], density)
bare(axes[1], f"{density.n_components_} components")
draw_density(axes[2], density, limits)
bare(axes[2], "the density")
for ax in axes:
    ax.axis(limits)
