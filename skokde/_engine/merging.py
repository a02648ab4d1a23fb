"""Merging models of parts of a stream, as if the parts had followed each other.

Not in the paper. A mixture with counts is merged with others by taking the components of all:
count, mean and covariance of the whole are exact. Then it is compressed. Models of fewer samples
are coarser than one of all would be, but in other places each, so that together they are finer; to
keep that, components are merged by a lower threshold than in a stream. What is best for models of
fewer samples is not best for one of all: samples that have not been compressed yet are predicted by
what is left of all others, and of what each model has found by prediction so much less is kept. The
threshold rises where these predictions lose nothing by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skokde._engine import recent
from skokde._engine._append import append_rows
from skokde._engine.experts import adapted, prior_counts
from skokde._engine.learn import ENOUGH_NEW, learn, predict_newest, recompressed
from skokde._engine.mixture import Mixture
from skokde._engine.prequential import (
    EM_STEPS_AT_ONCE,
    MEMORY,
    N_FOLDS,
    credited,
    latest_predicted,
    next_level_if_merged,
    remembered,
    some_of,
    without_diracs,
)
from skokde._engine.state import Recent, Settings, State

# What models have found by prediction counts for no more than so many samples.
MOST_REMEMBERED = 64.0
# How many samples are predicted, at most, by either half of those that were not compressed.
MOST_PREDICTED = 64
# Of all samples at most this share is left as it is, to be predicted by the next merging.
SHARE_LEFT = 1 / 8
# Components that are compressed at a time, since the time grows with their square: of more models
# some are merged first.
MOST_AT_ONCE = 6000


class Merged(NamedTuple):
    """A model of the samples of some models together.

    Attributes
    ----------
    state : State
    predicted : State
        The same before the last samples were compressed, by which the experts are weighted.
    """

    state: State
    predicted: State


class HeldOut(NamedTuple):
    """A model without some of its samples.

    Attributes
    ----------
    state : State
    counts : (n,) array
        Of these samples.
    rows : (n, d) array
        The samples.
    """

    state: State
    counts: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, state: State, most: int) -> HeldOut:
        """Of the samples since the last compression at most so many, evenly spread.

        If there has been no compression they are a part of all.
        """
        counts, means = state.mixture.diracs()
        place = np.arange(len(counts))
        if state.n_compressed:
            places = place[state.n_compressed - state.mixture.n_compounds :]
        else:
            places = place[place % N_FOLDS == N_FOLDS - 1]
        places = places[counts[places] > 0.0]
        places = some_of(places, most)
        rest = state._replace(mixture=without_diracs(state.mixture, places))
        return cls(rest, counts[places], means[places])


def merged(states: Sequence[State], fades: Sequence[float], settings: Settings) -> Merged:
    """The model of the samples of some models together.

    Parameters
    ----------
    states : sequence of State
        The newest last.
    fades : sequence of float
        What is left of the counts of each of them after the samples of the later ones.
    settings : Settings
    """
    group: list[State] = []
    for state, fade in zip(states, fades, strict=True):
        state = adapted(state, settings)
        if settings.memories:
            state = predict_newest(state, settings)
        mixture = state.mixture._replace(counts=fade * state.mixture.counts)
        held = sum(other.mixture.n_components for other in group)
        if len(group) > 1 and held + mixture.n_components > MOST_AT_ONCE:
            group = [merged_at_once(group, settings).state]
        group.append(state._replace(mixture=mixture))
    return merged_at_once(group, settings)


def fades_of(n_samples: Sequence[float], settings: Settings) -> list[float]:
    """What is left of the counts of models after the samples of the later ones."""
    after = np.append(np.cumsum(n_samples[:0:-1])[::-1], 0.0)
    return (settings.forgetting_factor**after).tolist()


def merged_at_once(states: Sequence[State], settings: Settings) -> Merged:
    """The same of models whose samples have their present counts, and of which none is pending."""
    if len(states) == 1:
        return Merged(states[0], states[0])
    prior = prior_counts(settings)
    expert_counts = prior + sum(state.expert_counts - prior for state in states)
    mixture, n_compressed = joined(states)
    # What was learned about models of fewer samples is forgotten for what the later ones can tell.
    most = min(MEMORY * mixture.counts.sum(), MOST_REMEMBERED)
    most = max(0.0, most - mixture.counts[n_compressed:].sum())
    first, later = mixture.parted(n_compressed)
    state = State(
        first,
        max(state.limit for state in states),
        n_compressed,
        min(state.level for state in states),
        side_by_side(states),
        remembered(expert_counts, prior, most),
        None,
    )
    several = sum(other.n_compressed > 0 for other in states) > 1
    if several:
        state = recompressed(state, settings, merging=True)
    state = with_later(state, later)
    if settings.n_experts > 1:
        # The samples since the compressions are predicted by what is left of all the others.
        by_rest = latest_predicted(state, settings, MOST_PREDICTED)
        expert_counts = credited(state, settings, by_rest, EM_STEPS_AT_ONCE)
        state = state._replace(expert_counts=expert_counts)
        if several and by_rest is not None:
            level = next_level_if_merged(by_rest, state, settings)
            state = state._replace(level=level)
    predicted = state
    if several or state.mixture.n_components > state.limit:
        state = with_some_left(state, settings)
    if settings.memories:
        state = state._replace(recent=newest(states, state.mixture, settings))
    return Merged(state, predicted)


def with_later(state: State, diracs: tuple[np.ndarray, np.ndarray]) -> State:
    """With some samples after the others."""
    mixture = state.mixture
    held = Mixture.join([mixture.compounds(slice(None))], [mixture.diracs(), diracs])
    return state._replace(mixture=held)


def with_some_left(state: State, settings: Settings) -> State:
    """Compressed, but for some of the samples that it has got later.

    These are what the next merging, or the next compression, can predict.
    """
    mixture, number = state.mixture, np.arange(state.mixture.n_components)
    later = number[state.n_compressed :]
    room = min(ENOUGH_NEW, int(SHARE_LEFT * mixture.counts.sum()))
    left = np.isin(number, some_of(later, room))
    some = mixture.counts[left], mixture.means[left]
    compressed = recompressed(state._replace(mixture=mixture.part(~left)), settings, merging=True)
    if compressed.mixture.n_components + len(some[0]) > compressed.limit:
        return recompressed(state, settings, merging=True)
    return with_later(compressed, some)


def joined(states: Sequence[State]) -> tuple[Mixture, int]:
    """All components of some models, and how many of them compressions have left.

    A sample since the last compression that repeats another Dirac raises the count of that one.
    """
    models = [(state.mixture, state.n_compressed) for state in states]
    diracs = [(*mixture.diracs(), n - mixture.n_compounds) for mixture, n in models]
    held = Mixture.join(
        [mixture.compounds(slice(None)) for mixture, _ in models],
        [(counts[:n], means[:n]) for counts, means, n in diracs]
        + [(counts[n:], means[n:]) for counts, means, n in diracs],
    )
    first = sum(n for _, n in models)
    counts, means = held.counts.copy(), held.means.copy()
    k, _ = append_rows(
        counts, means, first, held.n_compounds, held.means[first:], held.counts[first:], 1.0
    )
    return held._replace(counts=counts[:k], means=means[:k]), first


def side_by_side(states: Sequence[State]) -> np.ndarray:
    """Partitions of the components that compressions have left, in the order of `joined`."""
    first = np.zeros((len(states[0].partitions), 1), dtype=np.intp)
    compounds, diracs = [], []
    for state in states:
        labels, m = first + state.partitions, state.mixture.n_compounds
        compounds.append(labels[:, :m])
        diracs.append(labels[:, m:])
        first = first + state.partitions.max(axis=1, initial=-1, keepdims=True) + 1
    return np.concatenate([*compounds, *diracs], axis=1)


def newest(states: Sequence[State], mixture: Mixture, settings: Settings) -> Recent:
    """The newest samples of models of which none is pending, after they have been merged."""
    held, prior = [state.recent for state in states], recent.prior_counts(settings)
    credits = prior + sum(one.credits - prior for one in held)
    last = recent.nothing_recent(mixture.n_features, settings)
    fading = held[0].fading
    for one in held[1:]:  # they hold more rows than it remembers
        if fading is None:
            fading = one.fading
        elif len(one.rows):
            fading = learn(fading, one.rows, one.counts, settings.fading)
    for one in held:
        rows = np.concatenate([last.rows, one.rows])[-recent.N_KEPT :]
        counts = np.append(last.counts, one.counts)[-recent.N_KEPT :]
        last = last._replace(rows=rows, counts=counts)
    credits = remembered(credits, prior, recent.LONGEST_MEMORY)
    return last._replace(counts_before=mixture.counts, credits=credits, fading=fading)
