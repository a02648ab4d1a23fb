from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
from drawing import BLUE, bare, draw_density

from skokde import OnlineKDEDensity

rng = np.random.default_rng(0)
angle = rng.uniform(0.0, 2.0 * np.pi, 2000)
ring = np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(0.0, 0.05, (2000, 2))
bell = rng.normal(0.0, 1.0, (2000, 2))

figure, axes = plt.subplots(2, 4, figsize=(9, 4.2), layout="constrained")
for row, X, side in zip(axes, (ring, bell), (1.5, 3.5), strict=True):
    density = OnlineKDEDensity().fit(X)
    weights = density.expert_weights_
    draw_density(row[0], density, (-side, side, -side, side))
    bare(row[0])
    labels = {
        "width": [str(Fraction(width)) for width in density.experts_["width"]],
        "threshold": [f"{threshold:g}" for threshold in density.experts_["threshold"]],
        "shape": ["full", "half", "diag"],
    }
    for ax, (kind, names) in zip(row[1:], labels.items(), strict=True):
        ax.bar(names, weights[kind], color=BLUE)
        ax.set(ylim=(0.0, 1.0), yticks=[0.0, 0.5, 1.0])
        ax.tick_params(labelsize=8)
        if X is ring:
            ax.set_title(kind)
