import matplotlib.pyplot as plt
from drawing import bare, draw_components, spiral

from skokde import OnlineKDEDensity

X, test = spiral(2000), spiral(2000, seed=1)
figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
for ax, threshold in zip(axes, (0.005, 0.02, 0.1), strict=True):
    density = OnlineKDEDensity(compression_threshold=threshold).fit(X)
    draw_components(ax, density)
    ax.axis((-3.2, 3.2, -3.2, 3.2))
    bare(
        ax,
        f"threshold {threshold}\n{density.n_components_} components, "
        f"log-density {density.score(test):.2f}",
    )
