"""Weights of experts, by how well they predict samples before these are learned (Dawid 1984).

Not in the paper. Samples that came after the last compression stand in the model as they came, so
they can be taken out again and scored under what is left: the predictive likelihood of each expert
comes for free, and the weights of a mixture of them follow by expectation maximisation. What they
are worth says, too, by which threshold a model is compressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from skokde._engine.compression import are_large
from skokde._engine.experts import Experts, Grid, adapted, by_kind, prior_counts
from skokde._engine.mixture import Mixture
from skokde._engine.outputs import highest_log_density
from skokde._engine.state import Settings, State

# Counts are worth at most this share of the samples, since what is best changes as they get more,
# and at most this number of them, that a sudden change in the data is overcome.
MEMORY = 0.25
LONGEST_MEMORY = 128.0
LEAST_SHARE = 1e-9
TINY = np.finfo(float).tiny
# How many of the samples since the last compression are predicted, at most, by either half.
MOST_PREDICTED = 32
# A threshold is given up where those up to the next have less than this share of the weight, and
# for a lower one where those up to it have more than that.
OF_NO_USE = 0.25
MOST_OF_USE = 0.5
# Merging is for good, and more samples want finer models: of fewer samples than these there must be
# next to nothing that speaks for a threshold. Large components have to be worth their price.
# Classes are told apart by more than these densities, by votes of near samples and in other
# coordinates: of so few samples none of their thresholds is given up.
GROWN_UP = 4000.0
NEXT_TO_NOTHING = 0.005
WORTH_THE_PRICE = 0.1
# Merged models are compressed by a higher threshold where less than so many nats a sample are lost.
NEXT_TO_NO_LOSS = 0.003
# Before the first compression each part of the samples is predicted from the others; where the
# resolution is found by prediction, too, every second part stands for the next one from so many
# samples on.
N_FOLDS = 4
ENOUGH_FOR_HALF = 12
EM_STEPS = 10
# A stream takes these again and again; merged models have what they predict once.
EM_STEPS_AT_ONCE = 20


class Predicted(NamedTuple):
    """How likely samples were, before they were learned.

    Attributes
    ----------
    log_densities : (n, n_experts) array
        In nats.
    counts : (n,) array
        How many samples each row stands for.
    """

    log_densities: np.ndarray
    counts: np.ndarray


def latest_predicted(
    state: State, settings: Settings, most: int = MOST_PREDICTED
) -> Predicted | None:
    """The prediction of the samples that came last; None: there is nothing to predict.

    They are those since the last compression, or some of them that stand for all, of either half at
    most so many; if there has been no compression, all samples, each part predicted by the others.
    """
    all_counts, means = state.mixture.diracs()
    logs, counts = [], []
    for times, experts, *halves in prequential_splits(state, settings):
        # Some may be forgotten altogether.
        places = [half[all_counts[half] > 0.0] for half in halves]
        chosen = some, others = [some_of(half, most) for half in places]
        rows, first = means[np.append(some, others)], places[0]
        later = all_counts[first], means[first]
        logs.append(experts.log_likelihoods(rows, len(some), *later, settings))
        for all_of_half, predicted in zip(places, chosen, strict=True):
            share = all_counts[predicted] / all_counts[predicted].sum()
            counts.append(times * share * all_counts[all_of_half].sum())
    if not logs:
        return None
    return Predicted(bounded(np.concatenate(logs), means, settings), np.concatenate(counts))


def prequential_splits(
    state: State, settings: Settings
) -> Iterator[tuple[int, Experts, np.ndarray, np.ndarray]]:
    """Densities, the places of the Diracs which they predict, and of those which with help.

    The number before them says how many samples each of these stands for.

    Half of the new samples are predicted by what was there before them, the others with the help of
    the first half. Rows that come next to each other in time are alike: if all had help, kernels
    would become too narrow for what is to come. In rows sorted by value each is beyond all before:
    if none had help, kernels would become too wide.
    """
    mixture, grid = state.mixture, Grid.of(state.partitions, settings)
    number, times = np.arange(mixture.n_compounds, mixture.n_components), 1
    if state.n_compressed:
        new, odd = number >= state.n_compressed, number % 2 == 1
        parts = [(new & ~odd, new & odd)]
    else:
        times = 2 if settings.n_levels and len(number) >= ENOUGH_FOR_HALF else 1
        folds = range(0, min(N_FOLDS, len(number)), times)
        parts = [(number % N_FOLDS == fold, number < 0) for fold in folds]
    for part in parts:
        unaided, helped = (np.flatnonzero(half) for half in part)
        rest = without_diracs(mixture, np.append(unaided, helped))
        # Nothing can be told from one sample, nor from samples that are as good as forgotten.
        remembered = rest.counts.sum() > LEAST_SHARE * mixture.counts.sum()
        if not (remembered and (rest.n_components > 1 or rest.n_compounds)):
            continue
        yield times, Experts.of(rest, grid, settings), unaided, helped


def predict_latest(state: State, settings: Settings) -> np.ndarray:
    """Counts (n_experts,) of the experts after the prediction of the samples that came last."""
    predicted = latest_predicted(state, settings)
    return credited(state, settings, predicted, EM_STEPS)


def credited(
    state: State, settings: Settings, predicted: Predicted | None, n_steps: int
) -> np.ndarray:
    """Counts (n_experts,) of the experts after a prediction."""
    expert_counts = state.expert_counts
    if predicted is not None:
        expert_counts = em_update(expert_counts, *predicted, n_steps)
    most = min(MEMORY * state.mixture.counts.sum(), LONGEST_MEMORY)
    return remembered(expert_counts, prior_counts(settings), most)


def up_to_date(state: State, settings: Settings) -> State:
    """With what its samples tell before the first compression."""
    if settings.n_experts == 1 or state.n_compressed:
        return state
    return state._replace(expert_counts=predict_latest(state, settings))


def em_update(
    expert_counts: np.ndarray,
    log_densities: np.ndarray,
    counts: np.ndarray,
    n_steps: int = EM_STEPS,
) -> np.ndarray:
    """Counts of the experts after some more predictions.

    A sample is shared out between the experts in proportion to weight times density. So none counts
    for more than itself, however unlikely it was.

    Parameters
    ----------
    expert_counts : (n_experts,) array, positive
        Numbers of samples that speak for each of the experts.
    log_densities : (n, n_experts) array
    counts : (n,) array
        How many samples each row stands for.
    n_steps : int, default=EM_STEPS
    """
    known = np.isfinite(log_densities).any(axis=1)
    log_densities, counts = log_densities[known], counts[known]
    likelihood = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
    new = expert_counts
    for _ in range(n_steps):
        new = expert_counts + new * ((counts / (likelihood @ new)) @ likelihood)
    return new


def without_prior(state: State, settings: Settings) -> np.ndarray:
    """Counts (n_experts,) of the samples alone that speak for each of the experts."""
    counts, prior = adapted(state, settings).expert_counts, prior_counts(settings)
    learned = np.maximum(counts - prior, 0.0)
    return np.maximum(learned, LEAST_SHARE * prior) if learned.any() else counts


def remembered(expert_counts: np.ndarray, prior: np.ndarray, most: float) -> np.ndarray:
    """Counts of the experts of which no more than so many samples are remembered."""
    learned = expert_counts - prior
    return prior + learned * min(1.0, most / max(learned.sum(), most, TINY))


def bounded(log_likelihoods: np.ndarray, rows: np.ndarray, settings: Settings) -> np.ndarray:
    """None above the highest log-density that outputs may have, by some rows of the stream."""
    if not settings.n_outputs:
        return log_likelihoods
    return np.minimum(log_likelihoods, highest_log_density(rows[:, -settings.n_outputs :]))


def some_of(places: np.ndarray, most: int) -> np.ndarray:
    """At most so many of them, evenly spread."""
    if len(places) <= most:
        return places
    return places[np.linspace(0, len(places) - 1, most).astype(np.intp)]


def without_diracs(mixture: Mixture, places: np.ndarray) -> Mixture:
    """A mixture without some of its Diracs, by their places among these."""
    kept = np.ones(mixture.n_components, dtype=bool)
    kept[mixture.n_compounds + places] = False
    return mixture._replace(counts=mixture.counts[kept], means=mixture.means[kept])


def next_level(state: State, settings: Settings) -> int:
    """The number of the threshold to compress by, as the experts say.

    A higher one is taken where the present one and the next are of no use, and a lower one where
    the present one has most of the weight.
    """
    level, mixture = state.level, state.mixture
    if not settings.n_levels:
        return level
    of_no_use = OF_NO_USE
    if stays_fine(state, settings):
        of_no_use = 0.0
    elif mixture.counts.sum() < GROWN_UP:
        large = are_large(settings.structure, mixture.n_features)
        of_no_use = WORTH_THE_PRICE if large else NEXT_TO_NOTHING
    counts, _, _ = by_kind(state.expert_counts, settings)
    shares = np.cumsum(counts.sum(axis=(0, 2))) / counts.sum()
    if level + 2 < settings.n_levels and shares[level + 1] < of_no_use:
        return level + 1
    return level - 1 if level and shares[level] > MOST_OF_USE else level


def stays_fine(state: State, settings: Settings) -> bool:
    """Whether it is a class that gives up no threshold yet, see `GROWN_UP`."""
    return settings.of_class and state.mixture.counts.sum() < GROWN_UP


def next_level_if_merged(predicted: Predicted, state: State, settings: Settings) -> int:
    """The number of the threshold to compress merged models by, as what was predicted says.

    The next one is taken where next to nothing is lost without the present one and those below: of
    the likelihood of mixtures whose weights are as these predictions want them. By the weights of
    the experts alone it is not told: those of estimates that are equally good remain equal.
    """
    level = state.level
    if level + 2 >= settings.n_levels or stays_fine(state, settings):
        return level
    log_densities, counts = predicted
    prior = prior_counts(settings)
    number = np.arange(settings.n_experts)
    estimates, _, _ = by_kind(number, settings)
    kept = ~np.isin(number, estimates[:, : level + 1])
    with_all = best_log_likelihood(log_densities, counts, prior)
    without = best_log_likelihood(log_densities[:, kept], counts, prior[kept])
    return level + 1 if with_all - without < NEXT_TO_NO_LOSS * counts.sum() else level


def best_log_likelihood(
    log_densities: np.ndarray, counts: np.ndarray, expert_counts: np.ndarray
) -> float:
    """That of the mixture of experts whose weights are found by the same predictions."""
    weights = em_update(expert_counts, log_densities, counts, EM_STEPS_AT_ONCE)
    return float(counts @ logsumexp(log_densities, b=weights / weights.sum(), axis=1))
