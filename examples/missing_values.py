"""Learn from rows with missing values, and predict them.

    pip install ".[plot]" && python examples/missing_values.py

Values are removed at random from scikit-learn's breast cancer data, from training and test rows.
Shown is how well classes are predicted by a classifier that learns the rows as they are, by one
that learns complete rows alone, and by one after means have been filled in; and how far values that
are filled in are from what was removed.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale
from tqdm import tqdm

from skokde import OnlineKDEClassifier, OnlineKDEImputer

SHARES = (0.05, 0.15, 0.3, 0.45, 0.6)
FEATURES = 10  # the means of ten measurements; their errors and extremes are left out


def losses(X: np.ndarray, y: np.ndarray, share: float, seed: int) -> dict[str, float]:
    """Log-losses of three ways to deal with a share of missing values."""
    holes = np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)
    train, test, y_train, y_test = train_test_split(
        holes, y, test_size=0.4, stratify=y, random_state=seed
    )
    out = {}

    def note(name: str, rows: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> None:
        proba = OnlineKDEClassifier().fit(rows, labels).predict_proba(asked)
        out[name] = log_loss(y_test, np.clip(proba, 1e-12, 1.0))

    note("rows as they are", train, y_train, test)
    complete = ~np.isnan(train).any(axis=1)
    if len(np.unique(y_train[complete])) == 2:
        note("complete rows alone", train[complete], y_train[complete], test)
    means = SimpleImputer().fit(train)
    note("means filled in", means.transform(train), y_train, means.transform(test))
    return out


def errors(X: np.ndarray, share: float, seed: int) -> dict[str, float]:
    """Root mean square errors of values that are filled in, in deviations."""
    missing = np.random.default_rng(seed).random(X.shape) < share
    holes, names = np.where(missing, np.nan, X), ("OnlineKDEImputer", "KNNImputer", "means")
    imputers = OnlineKDEImputer(), KNNImputer(), SimpleImputer()
    return {
        name: np.sqrt(np.mean((imputer.fit_transform(holes) - X)[missing] ** 2))
        for name, imputer in zip(names, imputers, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default="missing_values.png", help="picture to save")
    options = parser.parse_args()
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X[:, :FEATURES])
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.0), layout="constrained")
    tasks = [(share, seed) for share in SHARES for seed in range(options.seeds)]
    found = [
        (share, losses(X, y, share, seed), errors(X, share, seed)) for share, seed in tqdm(tasks)
    ]
    for ax, column, title in ((axes[0], 1, "log-loss, nats"), (axes[1], 2, "error, deviations")):
        names = dict.fromkeys(name for line in found for name in line[column])
        for name in names:
            lines = {s: [line[column].get(name) for line in found if line[0] == s] for s in SHARES}
            kept = [s for s in SHARES if None not in lines[s]]
            values = [np.mean(lines[s]) for s in kept]
            ax.plot(kept, values, "o-", label=name)
            print(f"{title}, {name}: " + ", ".join(f"{v:.3f}" for v in values))
        ax.set(xlabel="share of values that are missing", ylabel=title)
        ax.legend(frameon=False)
    axes[0].set_yscale("log")
    figure.savefig(options.out, dpi=100)


if __name__ == "__main__":
    main()
