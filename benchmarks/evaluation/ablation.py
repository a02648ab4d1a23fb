"""What each part of the defaults is worth: figures without it, or with another in its place.

All is learned and scored inside the training parts of the paper's splits: two thirds of a part are
the stream, the last third is predicted. Choices can be made by these figures; the test rows are not
touched.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits
from skokde._engine._hellinger import local_error
from tqdm import tqdm

from evaluation.cells import versions
from evaluation.datasets import load_dataset
from evaluation.options import add_common_options
from evaluation.protocol import StreamSplit, brier, log_loss, nll
from skokde import OnlineKDEClassifier
from skokde._engine.bandwidth import FINE_KERNEL_SCALES, N_NARROW, KernelFrame, Predictive
from skokde._engine.compression import cluster
from skokde._engine.covariance import SHAPES, STRUCTURES
from skokde._engine.experts import Grid
from skokde._engine.kde import Components, factorize
from skokde._engine.neighbors import Neighbors
from skokde._engine.pooling import CONTAMINATIONS
from skokde._engine.shrinkage import shrink_covariance
from skokde._engine.state import Settings

SETS = (
    "iris",
    "yeast",
    "pima",
    "red",
    "white",
    "wine",
    "letter",
    "segment",
    "steel",
    "cancer",
    "digits",
)
# Modules that use how many widths the kernels have by which samples vote.
USING_N_VOTE_WIDTHS = (
    "_calibration",
    "_class_scorer",
    "_classifier",
    "_engine.neighbors",
    "_engine.state",
    "_persistence",
)
# Only one shuffle of these.
LARGE = ("white", "letter")
STREAM_SHARE = 2.0 / 3.0
# At most this many rows are predicted.
MOST_TESTED = 2000


class Variant(NamedTuple):
    """The defaults but for some parameters, or some names of the engine."""

    parameters: dict[str, Any] = {}
    replaced: dict[str, Any] = {}


def _none_of_discriminants(squares: np.ndarray, *args: Any) -> np.ndarray:
    return np.zeros_like(squares)


def _equal_weights(neighbors: Neighbors, *args: Any, **parameters: Any) -> np.ndarray:
    return np.ones(neighbors.points.shape[1])


def _no_shrinkage(widths: np.ndarray) -> np.ndarray:
    return np.ones_like(widths)


def _no_feature_axes(_: KernelFrame) -> None:
    """Clusters are cut as with a bandwidth of the data's moments."""


def _compressing_at(multiple: float) -> Predictive:
    """The default rule with another `COMPRESSION_SCALE`."""
    rule = Predictive(FINE_KERNEL_SCALES, N_NARROW)
    rule.multiple = multiple
    return rule


def _prior_worth(observations: float) -> Callable:
    """`shrink_covariance`, worth this many times as much."""

    def prior(covariance: np.ndarray, count: float, prior: np.ndarray) -> np.ndarray:
        if not observations:
            return covariance
        return shrink_covariance(covariance, count / observations, prior)

    return prior


GRID_COUNTS = Grid.counts


def _best_alone(grid: Grid, expert_counts: np.ndarray, settings: Settings) -> np.ndarray:
    """`Grid.counts`, with next to nothing left of all but the best estimate of each shape."""
    counts = GRID_COUNTS(grid, expert_counts, settings)
    best = counts == counts.max(axis=(1, 2), keepdims=True)
    return np.where(best, counts, 1e-9 * counts)


def _all_widths(resolutions: np.ndarray, settings: Settings) -> np.ndarray:
    """`widths_at`, if finer resolutions were worth their time to the widest kernels, too."""
    return np.ones((resolutions[-1] + 1, settings.bandwidth.n_widths), dtype=bool)


def _towards_diagonal(covariance: np.ndarray, count: float, prior: np.ndarray) -> np.ndarray:
    """Shrinkage towards the pooled covariance, and as much again towards the diagonal."""
    shrunk = shrink_covariance(covariance, count, prior)
    if shrunk.ndim == 1:
        return shrunk
    return shrink_covariance(shrunk, count, np.diag(np.diag(shrunk)))


def _merged_again(
    components: Components,
    thresholds: np.ndarray,
    first_cut: np.ndarray,
    max_clusters: int | None = None,
    feature_axes: np.ndarray | None = None,
) -> np.ndarray:
    """`cluster` by one threshold, and then leaves joined that the tree had put apart.

    The nearest come first.
    """
    (threshold,) = thresholds
    (labels,) = cluster(components, thresholds, first_cut, max_clusters, feature_axes)
    leaves = [np.flatnonzero(labels == number) for number in range(labels.max() + 1)]
    factors = factorize(components)
    weights = [components.weights[leaf].sum() for leaf in leaves]
    means = [
        components.weights[leaf] @ components.means[leaf] / weight
        for leaf, weight in zip(leaves, weights, strict=True)
    ]
    tried = set()
    while True:
        k = len(leaves)
        # Ward's cost: what a merge adds to the sum of squares.
        mass = np.array(weights)
        costs = pdist(np.array(means), "sqeuclidean") if k > 1 else np.empty(0)
        first, second = np.triu_indices(k, 1)
        costs *= mass[first] * mass[second] / (mass[first] + mass[second])
        # Those farther off hardly ever can be merged.
        for pair in np.argsort(costs)[: 2 * k]:
            i, j = first[pair], second[pair]
            both = np.sort(np.concatenate([leaves[i], leaves[j]]))
            if both.tobytes() in tried:
                continue
            tried.add(both.tobytes())
            error = local_error(both, *components, *factors, np.array([threshold]))
            if error <= threshold:
                break
        else:
            for number, leaf in enumerate(sorted(leaves, key=min)):
                labels[leaf] = number
            return labels[None]
        weight = weights[i] + weights[j]
        mean = (weights[i] * means[i] + weights[j] * means[j]) / weight
        for values, merged in ((leaves, both), (weights, weight), (means, mean)):
            del values[j]
            values[i] = merged


BANDWIDTH = "skokde._engine.bandwidth."
RULE = "skokde._validation.fine_predictive"
POOLING = "skokde._engine.pooling."
DISCRIMINANTS = "skokde._engine.discriminants."
PRIOR = "skokde._engine.whitening.shrink_covariance"
CLUSTER = "skokde._engine.compression.cluster"
VARIANTS: dict[str, Variant] = {
    "defaults": Variant(),
    "the paper's settings": Variant(
        {"bandwidth": "okde", "calibrate": False, "compression_threshold": 0.1}
    ),
    "plug-in bandwidth, Bayes' rule": Variant({"bandwidth": "plugin", "calibrate": False}),
    "plug-in bandwidth": Variant({"bandwidth": "plugin"}),
    "Bayes' rule": Variant({"calibrate": False}),
    "no linear discriminant in the pool": Variant(
        {}, {DISCRIMINANTS + "log_t_densities": _none_of_discriminants}
    ),
    "no scales of classes in the pool": Variant(
        {}, {DISCRIMINANTS + "log_ratios_by_scale": _none_of_discriminants}
    ),
    "no votes of the nearest samples in the pool": Variant(
        {}, {"skokde._engine.state.Settings.n_voters": 0}
    ),
    "votes by kernels of one width, a third": Variant(
        {},
        {f"skokde.{module}.N_VOTE_WIDTHS": 1 for module in USING_N_VOTE_WIDTHS}
        | {"skokde._engine.neighbors.VOTE_WIDTH": 1 / 3},
    ),
    "votes by distances without weights of features": Variant(
        {}, {"skokde._pooled_ratios.learn_feature_weights": _equal_weights}
    ),
    "no histograms of features in the pool": Variant(
        {}, {"skokde._engine.state.Settings.pools_histograms": False}
    ),
    "no densities in transformed coordinates": Variant(
        {}, {"skokde._engine.state.Settings.pools_transformed": False}
    ),
    "transformed densities of the data's shape alone": Variant(
        {}, {"skokde._engine.state.Settings.n_pooled_shapes": (1, 1)}
    ),
    "no rows of which no density tells": Variant(
        {}, {POOLING + "CONTAMINATIONS": np.zeros_like(CONTAMINATIONS)}
    ),
    "kernels that inflate the variance": Variant({}, {BANDWIDTH + "shrinkage": _no_shrinkage}),
    "one kernel width": Variant({}, {RULE: lambda _: Predictive((1.0,), 0)}),
    "narrow and wide kernels in one density": Variant(
        {}, {RULE: lambda _: Predictive(FINE_KERNEL_SCALES, 0)}
    ),
    "kernels of the data's shape alone": Variant(
        {}, {"skokde._engine.covariance.SHAPES": {name: (s,) for name, s in STRUCTURES.items()}}
    ),
    "no diagonal kernels": Variant(
        {}, {"skokde._engine.covariance.SHAPES": SHAPES | {"full": SHAPES["full"][:-1]}}
    ),
    "the best estimate of each shape chosen, not mixed": Variant(
        {}, {"skokde._engine.experts.Grid.counts": _best_alone}
    ),
    "the widest kernels at all resolutions": Variant(
        {}, {"skokde._engine.experts.widths_at": _all_widths}
    ),
    "clusters cut across principal axes alone": Variant(
        {}, {"skokde._engine.bandwidth.KernelFrame.feature_axes": _no_feature_axes}
    ),
    "no Gaussians for outliers": Variant(
        {}, {RULE: lambda _: Predictive(FINE_KERNEL_SCALES, N_NARROW, (1.0,))}
    ),
    "all evidence remembered": Variant({}, {"skokde._engine.prequential.MEMORY": 1.0}),
    "all predictions remembered by the pool": Variant({}, {POOLING + "MEMORY": 1.0}),
    "groups of experts of little use scored, too": Variant(
        {}, {POOLING + "BOUNDS_OF_USE": np.zeros(2)}
    ),
    "compression under half the bandwidth": Variant({}, {RULE: lambda _: _compressing_at(0.35)}),
    "compression under twice the bandwidth": Variant({}, {RULE: lambda _: _compressing_at(1.4)}),
    "no prior for covariances": Variant({}, {PRIOR: _prior_worth(0.0)}),
    "prior for covariances three times as strong": Variant({}, {PRIOR: _prior_worth(3.0)}),
    "prior for covariances ten times as strong": Variant({}, {PRIOR: _prior_worth(10.0)}),
    "covariances shrunk towards their diagonal too": Variant({}, {PRIOR: _towards_diagonal}),
    "prior of the pool a tenth as strong": Variant({}, {POOLING + "PRIOR_PRECISION": 1.0}),
    "prior of the pool ten times as strong": Variant({}, {POOLING + "PRIOR_PRECISION": 100.0}),
    "D_th 0.08, clusters of different branches merged": Variant(
        {"compression_threshold": 0.08}, {CLUSTER: _merged_again}
    ),
    "the same, D_th 0.07": Variant({"compression_threshold": 0.07}, {CLUSTER: _merged_again}),
    "diagonal covariances": Variant({"covariance_type": "diag"}),
    "memory by prediction": Variant({"forgetting_factor": "predictive"}),
    "memory by prediction, no steady pool": Variant(
        {"forgetting_factor": "predictive"}, {"skokde._engine.steady_pool.SteadyPool.share": 0.0}
    ),
    "D_th 0.03": Variant({"compression_threshold": 0.03}),
    "D_th 0.05": Variant({"compression_threshold": 0.05}),
    "D_th 0.08": Variant({"compression_threshold": 0.08}),
    "D_th 0.1": Variant({"compression_threshold": 0.1}),
    "D_th 0.2": Variant({"compression_threshold": 0.2}),
}


def evaluate(variant: Variant, X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    """Figures of one variant on one split of a training part."""
    train, _ = StreamSplit().of_seed(len(X), seed)
    cut = int(STREAM_SHARE * len(train))
    stream, rest = train[:cut], train[cut:][:MOST_TESTED]
    with ExitStack() as stack:
        for name, value in variant.replaced.items():
            stack.enter_context(patch(name, value))
        model = OnlineKDEClassifier(**variant.parameters).fit(X[stream], y[stream])
        figures: dict[str, Callable] = {"nll": nll, "log-loss": log_loss, "Brier": brier}
        return {
            "accuracy": 100.0 * model.score(X[rest], y[rest]),
            **{name: figure(model, X[rest], y[rest]) for name, figure in figures.items()},
            "K": float(
                np.mean([e.n_components_ for e in model.estimators_ if hasattr(e, "means_")])
            ),
        }


def report(frame: pd.DataFrame) -> str:
    """Averages over sets, and on how many sets a variant is better than the defaults."""
    means = (
        frame.groupby(["variant", "set"], sort=False).mean(numeric_only=True).drop(columns="seed")
    )
    usual = means.loc["defaults"]
    lines = [
        "# What each part of the defaults is worth",
        "Made by `benchmarks/ablation.py` on parts of the training rows of the paper's splits, and "
        "on scikit-learn's digits; the test rows are not touched. Means over "
        f"{len(usual)} sets; -log p and log-loss in nats. In the last columns: on how many sets "
        "the defaults are better, and the variant is.",
        "Run with " + versions() + ".",
        "| variant | accuracy, % | -log p | log-loss | Brier | K | accuracy: defaults, variant | "
        "log-loss: defaults, variant |\n|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in VARIANTS:
        if name not in means.index.get_level_values(0):
            continue
        of_sets = means.loc[name]
        mean = of_sets.mean()
        gain = of_sets.accuracy - usual.accuracy
        loss = of_sets["log-loss"] - usual["log-loss"]
        lines[-1] += (
            f"\n| {name} | {mean.accuracy:.1f} | {mean.nll:.2f} | {mean['log-loss']:.3f} | "
            f"{mean.Brier:.3f} | {mean.K:.1f} | {(gain < 0).sum()}, {(gain > 0).sum()} | "
            f"{(loss > 0).sum()}, {(loss < 0).sum()} |"
        )
    return "\n\n".join(lines) + "\n"


def main(description: str) -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--shuffles", type=int, default=4, help="default: %(default)s")
    options = parser.parse_args()
    data = {}
    for name in options.sets:
        if name == "digits":
            data[name] = load_digits(return_X_y=True)
        else:
            loaded = load_dataset(name, options.data)
            data[name] = loaded.X, loaded.y
    jobs = [
        (variant, name, seed)
        for variant, name in itertools.product(options.variants, options.sets)
        for seed in range(1 if name in LARGE else options.shuffles)
    ]
    results = Parallel(options.n_jobs, return_as="generator")(
        delayed(evaluate)(VARIANTS[variant], *data[name], seed) for variant, name, seed in jobs
    )
    frame = pd.DataFrame(
        [
            {"variant": variant, "set": name, "seed": seed} | figures
            for (variant, name, seed), figures in zip(
                jobs, tqdm(results, total=len(jobs), disable=None), strict=True
            )
        ]
    )
    options.out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(options.out / "ablation.csv", index=False, float_format="%.5g")
    text = report(frame)
    (options.out / "ablation.md").write_text(text)
    print(text)
