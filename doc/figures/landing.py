import matplotlib.pyplot as plt
from sklearn.datasets import make_moons

from skokde import OnlineKDEDensity
from skokde.plot import DensityDisplay

density = OnlineKDEDensity()
for i in range(20):  # 20 blocks of a stream
    X, _ = make_moons(100, noise=0.1, random_state=i)
    density.partial_fit(X)

DensityDisplay.from_estimator(density, X)
plt.show()
