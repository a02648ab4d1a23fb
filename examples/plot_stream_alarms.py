"""
Anomalies in a time series, with p-values and blame
===================================================

Four sensors follow two quantities that wander, and their zero points drift. Now and then one of
them is off for a single reading, by less than the readings range: it can be seen only beside the
others. We raise alarms at a stated level, and tell which sensor is to blame.
"""

# %%
# The sensors
# -----------
# Faults start after 400 readings. Their times and sensors are kept, to check the alarms by.

import matplotlib.pyplot as plt
import numpy as np

from skokde import OnlineKDEOutlierDetector

N, FIRST, N_FAULTS = 1400, 400, 8
SENSORS = ["A", "B", "C", "D"]

rng = np.random.default_rng(0)
time = np.arange(N)
state = np.column_stack([np.sin(time / 60.0), np.cos(time / 97.0)]) + 0.3 * rng.normal(size=(N, 2))
gains = np.array([[1.0, 0.8, -0.6, 0.5], [0.4, -0.7, 0.9, 1.0]])
zero = np.outer(time / 3000.0, [3.0, -2.0, 0.0, 1.0])
X = state @ gains + zero + 0.1 * rng.normal(size=(N, 4))
faults = np.sort(rng.choice(np.arange(FIRST, N), size=N_FAULTS, replace=False))
faulty_sensors = rng.integers(0, 4, size=N_FAULTS)
X[faults, faulty_sensors] += rng.choice([-2.0, 2.0], size=N_FAULTS)

# %%
# Ask, then learn
# ---------------
# A p-value is the share of the last readings that were as improbable when they came. With alarms at
# p-values of at most 1 % about one reading in a hundred raises one, whatever the data are; the more
# of these are faults, the fewer are false. ``explain`` gives the log-density of each feature given
# all others; the lowest is to blame.
#
# Every reading is learned, faults included: what is odd today may be normal tomorrow.

LEVEL = 0.01
detector = OnlineKDEOutlierDetector(forgetting_factor="predictive").fit(X[:100])
p_values, blame = np.full(N, np.nan), np.zeros((N, 4))
for i in range(100, N):
    row = X[[i]]
    p_values[i] = detector.p_values(row)[0]
    if p_values[i] <= LEVEL:
        blame[i] = detector.explain(row)[0]
    detector.partial_fit(row)

alarms = np.flatnonzero(p_values <= LEVEL)
found = np.isin(faults, alarms)
right = blame[faults].argmin(axis=1) == faulty_sensors
false = np.setdiff1d(alarms, faults)
print(f"faults found: {found.sum()} of {N_FAULTS}")
print(f"right sensor blamed: {(right & found).sum()} of {found.sum()}")
print(f"false alarms: {len(false)} of {N - N_FAULTS} readings, {len(false) / (N - N_FAULTS):.2%}")

# %%
# The alarms
# ----------
# At the bottom, dots are the larger the less probable a sensor's reading is beside those of the
# other sensors; crosses are the sensors that were off.

RED, BLUE = "#d55e00", "#0072b2"
figure, axes = plt.subplots(3, 1, figsize=(10, 7), sharex=True, layout="constrained")
for j, name in enumerate(SENSORS):
    axes[0].plot(time, X[:, j], linewidth=0.5, label=name)
axes[0].set(ylabel="reading", ylim=(-3.2, 5.0))
for line in axes[0].legend(title="sensor", loc="upper left", ncols=4, fontsize=8).get_lines():
    line.set_linewidth(2.0)
axes[1].scatter(time, p_values, s=1, color="0.6")
for chosen, color, marker, label in (
    (false, BLUE, "o", "false alarms"),
    (faults[found], RED, "o", "faults found"),
    (faults[~found], RED, "x", "faults missed"),
):
    axes[1].scatter(chosen, p_values[chosen], s=20, color=color, marker=marker, label=label)
axes[1].axhline(LEVEL, color="black", linewidth=0.8)
axes[1].set(yscale="log", ylabel="p-value")
axes[1].legend(loc="lower left", fontsize=8)
# In nats below the most likely of the four.
below = np.minimum(blame.max(axis=1, keepdims=True) - blame, 20.0)[faults[found]]
for j in range(4):
    axes[2].scatter(faults[found], np.full(found.sum(), j), s=5.0 * below[:, j], color="0.6")
axes[2].scatter(
    faults[found], faulty_sensors[found], s=24, marker="x", color=RED, label="sensor that was off"
)
axes[2].set(yticks=range(4), yticklabels=SENSORS, ylabel="blame", xlabel="reading")
axes[2].set_ylim(-0.6, 3.6)
axes[2].legend(loc="lower left", fontsize=8)
plt.show()
