"""What classes are pooled by besides their densities.

Ratios of discriminants, of the votes of near samples and of histograms, and what these need.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skokde._engine.discriminants import Discriminant, Discriminants
from skokde._engine.feature_weights import learn_feature_weights
from skokde._engine.histograms import Histograms
from skokde._engine.mixture import Mixture
from skokde._engine.neighbors import NeighborMetric, Neighbors
from skokde._engine.outliers import Moments
from skokde._engine.recent import voting_memory, weights_in_memories
from skokde._engine.state import Settings, State
from skokde._replay import NewestRows, ReplayBuffer, SampledRows

# A sample of rows votes where more than this share of the samples are merged with others: until
# then it would tell what components do. Where samples are forgotten soon the newest, which are not
# merged yet, count for most; then that share of the components is enough.
SHARE_MERGED = 1 / 4

VotingRows = dict[int, NewestRows | SampledRows | None]


def log_ratios_besides(
    states: Sequence[State],
    moments: Sequence[Sequence[Moments]],
    X: np.ndarray,
    own: np.ndarray,
    settings: Settings,
    kept: VotingRows,
    in_histograms: np.ndarray | None = None,
    among_kept: np.ndarray | None = None,
) -> np.ndarray:
    """What is pooled of classes besides densities: discriminants, votes and histograms, if any.

    Parameters
    ----------
    states : sequence of State
        One for each class.
    moments : sequence of sequences of Moments
        See `discriminant_moments`.
    X : (n, d) array
    own : (n,) array of intp
        See `Neighbors.log_ratios`.
    settings : Settings
        With the covariance within the classes, the weights of features, and histograms.
    kept : dict
        See `voting_rows`; of these classes.
    in_histograms : (n,) array of intp, default=None
        As `own`, of rows that may be in these only.
    among_kept : (n,) array of intp, default=None
        The same of those that are kept. These have no vote on rows that components have learned:
        they know them, or what came next to them.

    Returns
    -------
    (n_others, n, n_classes) array
    """
    discriminants = Discriminants.of(moments, settings.shrinkage_target, settings.structure)
    votes = []
    metrics = [neighbor_metric(discriminants, settings, n) for n in range(settings.n_distances)]
    for number in range(settings.n_voters):
        metric = metrics[settings.distance_of_voters(number)]
        if number in kept:
            neighbors = kept_neighbors(kept[number], len(states), settings, metric)
            votes.append(neighbors.log_ratios(X, among_kept))
            votes[-1][:, own >= 0] = 0.0
        else:
            voters = [voters_of(state, settings, number) for state in states]
            votes.append(Neighbors.of(voters, metric).log_ratios(X, own))
    terms = [*discriminants.log_ratios(X), *(ratios for of_voters in votes for ratios in of_voters)]
    if settings.histograms is not None:
        in_histograms = own if in_histograms is None else in_histograms
        terms += [*settings.histograms.log_ratios(X, in_histograms)]
    else:  # of those of an earlier format nothing is known yet
        terms += settings.n_histograms * [np.zeros((len(X), len(states)))]
    return np.array(terms)


def found_histograms(
    states: Sequence[State | None],
    replay: ReplayBuffer | None,
    settings: Settings,
    before: Histograms | None = None,
) -> Histograms | None:
    """Those of all samples while components are samples, and then of rows that were kept.

    Of these the short memory is, as soon as there are any.

    Parameters
    ----------
    states : sequence of State or None
        One for each class.
    replay : ReplayBuffer or None
    settings : Settings
    before : Histograms, default=None
        What there is of all rows, if anything: it stays as long as it fits those that are kept.
    """
    if not settings.pools_histograms:
        return None
    mixtures = [state and state.mixture for state in states]
    if replay is None:
        return Histograms.of_mixtures(mixtures)
    in_short, in_long = weights_in_memories(replay.counts, settings.left_in_histograms)
    if not any(mixture and mixture.n_compounds for mixture in mixtures):
        found = Histograms.of_mixtures(mixtures)
    elif before is not None and before.fits(replay.rows, replay.counts):
        return before
    else:
        found = Histograms.of_rows(replay.rows, replay.codes, in_long, len(states))
    return found.with_short_memory(replay.rows, replay.codes, in_short)


def voters_of(state: State, settings: Settings, number: int) -> Mixture:
    """The samples of a class that are voters: all by each distance, or a memory.

    Others are rows, see `voting_rows`.
    """
    if number < settings.n_distances:
        return state.mixture
    factor = settings.memories[number - settings.n_distances]
    return voting_memory(state.recent, state.mixture, factor, settings.structure)


def voting_rows(
    newest: NewestRows | None,
    sample: SampledRows | None,
    states: Sequence[State | None],
    settings: Settings,
    chosen: np.ndarray | None = None,
) -> VotingRows:
    """The rows that vote beside components, by the number of these voters.

    Parameters
    ----------
    newest : NewestRows or None
        They vote in place of the shortest memory, if there is any.
    sample : SampledRows or None
        It votes if many samples are merged.
    states : sequence of State or None
        One for each class.
    settings : Settings
    chosen : array of intp, default=None
        Classes of which the rows are.
    """
    if not settings.n_voters:
        return {}
    rows: VotingRows = {settings.n_voters - 1: voting_sample(sample, states)}
    if settings.memories:
        rows[settings.n_distances] = newest
    if chosen is None:
        return rows
    return {number: kept and kept.of_classes(chosen) for number, kept in rows.items()}


def voting_sample(sample: SampledRows | None, states: Sequence[State | None]) -> SampledRows | None:
    """A sample of rows, if many samples are merged."""
    return sample if are_merged([state.mixture for state in states if state is not None]) else None


def are_merged(mixtures: Sequence[Mixture]) -> bool:
    """Whether many of the samples, or of the components, are of components of several samples."""
    samples = sum(mixture.counts.sum() for mixture in mixtures)
    merged = sum(mixture.counts[: mixture.n_compounds].sum() for mixture in mixtures)
    n_components = sum(mixture.n_components for mixture in mixtures)
    n_compounds = sum(mixture.n_compounds for mixture in mixtures)
    return merged > SHARE_MERGED * samples or n_compounds > SHARE_MERGED * n_components


def kept_neighbors(
    kept: NewestRows | SampledRows | None,
    n_classes: int,
    settings: Settings,
    metric: NeighborMetric,
) -> Neighbors:
    """Rows of so many classes that vote.

    Of the newest ones what the shortest memory has left of them does. They go by the time of the
    stream: where classes are many, what changes in it is followed before each of them has a few
    rows of its own.
    """
    if kept is None:
        kept = SampledRows.none(metric.discriminant.means.shape[1])
    counts = kept.counts
    if isinstance(kept, NewestRows):
        kept = kept.complete()
        (counts,) = weights_in_memories(kept.counts, settings.memories[:1])
    return Neighbors.of_rows(kept.rows, counts, kept.codes, n_classes, metric)


def neighbor_metric(
    discriminants: Discriminants, settings: Settings, number: int
) -> NeighborMetric:
    """One of the distances by which near samples vote.

    Parameters
    ----------
    discriminants : Discriminants
    settings : Settings
        With the weights of features, if they have been learned.
    number : int
        That of features is the first one, whitened ones are the second.
    """
    of_samples, counts = discriminants.linear[0], discriminants.counts
    if number:
        return NeighborMetric.of(of_samples, counts)
    weights = settings.feature_weights
    if weights is None:
        weights = np.ones(of_samples.means.shape[1])
    return NeighborMetric.of(of_samples, counts, weights)


def found_feature_weights(
    states: Sequence[State | None],
    moments: Sequence[Moments],
    settings: Settings,
    before: np.ndarray | None = None,
    sample: SampledRows | None = None,
) -> np.ndarray | None:
    """Weights of features in the distances of near samples, if these vote for classes.

    Parameters
    ----------
    states : sequence of State or None
        One for each class.
    moments : sequence of Moments
        Of the classes that have a state.
    settings : Settings
        With the covariance within the classes; until that is known there are no weights.
    before : (d,) array, default=None
        What they were before, if anything.
    sample : SampledRows, default=None
        From this they are learned if it votes, and else from components.
    """
    if not settings.n_distances or settings.shrinkage_target is None:
        return None
    counts = np.array([count for count, *_ in moments])
    discriminant = Discriminant.of_moments(moments, settings.shrinkage_target, settings.structure)
    unweighted = np.ones(discriminant.means.shape[1])
    of_features = NeighborMetric.of(discriminant, counts, unweighted)
    seen = np.flatnonzero([state is not None for state in states])
    rows = voting_sample(sample, states)
    if rows is None:
        neighbors = Neighbors.of([states[code].mixture for code in seen], of_features)
    else:
        neighbors = kept_neighbors(rows.of_classes(seen), len(seen), settings, of_features)
    return learn_feature_weights(neighbors, before, common_units=settings.structure.common_units)
