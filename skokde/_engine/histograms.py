"""Which classes the values of single features speak for: naive Bayes by histograms.

Not in the paper. Kernels smooth over what is discrete, and over what piles up at one value, as
zeros of counts do; tails they fill with what is near in all features at once. A feature at a time
needs no kernel: how often its values fall into a bin is known from far fewer samples than a joint
density, and the product of all features tells classes apart though they depend on each other (Hand
and Yu 2001). Bins are halved again and again at the median of all classes, and a class that has few
samples in one is taken to be there as all are (a Polya tree, Lavine 1992): so fine bins do no harm.
What a feature tells may change before anything else does. So samples are counted in two memories, a
short one and one of all samples, and what each is worth predictions tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from skokde._engine.mixture import Mixture
from skokde._engine.transformation import as_points

# How often the values of a feature are halved.
N_LEVELS = 5
N_BINS = 2**N_LEVELS
# As so many samples counts, in each bin that is halved, that a class is there as all classes are.
PRIOR_COUNT = 4.0
LARGEST = np.finfo(float).max
# What is left of the counts of either memory after each sample, the short one first: it is shorter
# where the memory of the densities is found by prediction. A factor that is given is kept by both.
LEFT_AFTER_SAMPLE = np.array([0.999, 1.0])
LEFT_WITH_FOUND_MEMORY = np.array([0.997, 1.0])
N_HISTOGRAMS = len(LEFT_AFTER_SAMPLE)
# Bins are found anew if they leave so much more of the samples in one.
UNPARTED = 0.25


class Histograms(NamedTuple):
    """Of each feature, how many samples of each class have a value in each bin, in two memories.

    Attributes
    ----------
    edges : (d, n_bins - 1) array
        Between the bins of each feature, none below the one before; a value on an edge is below it.
    counts : (n_memories, n_classes, d, n_bins) array
    """

    edges: np.ndarray
    counts: np.ndarray

    @classmethod
    def of_rows(cls, X: np.ndarray, codes: np.ndarray, counts: np.ndarray, n_classes: int) -> Self:
        """In bins of about as many, of rows (n, d) of classes (n,) and how many each stands for."""
        edges = edges_between(X, counts)
        return cls.empty(edges, n_classes).with_rows(X, codes, counts)

    @classmethod
    def empty(cls, edges: np.ndarray, n_classes: int) -> Self:
        """Between these edges, of no samples."""
        return cls(edges, np.zeros((N_HISTOGRAMS, n_classes, len(edges), N_BINS)))

    @classmethod
    def of_mixtures(cls, mixtures: Sequence[Mixture | None]) -> Self:
        """Of the samples of components, None for a class without any, as far as these tell."""
        counts, rows = zip(*(as_points(m) for m in mixtures if m is not None), strict=True)
        codes = np.flatnonzero([mixture is not None for mixture in mixtures])
        codes = np.repeat(codes, [len(of_class) for of_class in counts])
        return cls.of_rows(np.concatenate(rows), codes, np.concatenate(counts), len(mixtures))

    def with_short_memory(self, X: np.ndarray, codes: np.ndarray, counts: np.ndarray) -> Self:
        """The same where the short memory has these rows alone; see `with_rows`."""
        n_classes = self.counts.shape[1]
        alone = self.empty(self.edges, n_classes).with_rows(X, codes, counts)
        return self._replace(counts=np.concatenate([alone.counts[:1], self.counts[1:]]))

    def grown(self, chosen: np.ndarray, n_classes: int) -> Self:
        """With more classes, the old ones having new numbers among them."""
        grown = self.empty(self.edges, n_classes)
        grown.counts[:, chosen] = self.counts
        return grown

    def of_classes(self, chosen: np.ndarray) -> Self:
        """Of some of the classes, by an array of their numbers."""
        return self._replace(counts=self.counts[:, chosen])

    def of_memories(self, chosen: np.ndarray) -> Self:
        """Of some of the memories, by an array of bool, to be asked and not to be gone on with."""
        return self._replace(counts=self.counts[chosen])

    def with_rows(
        self, X: np.ndarray, codes: np.ndarray, counts: np.ndarray, left: float | np.ndarray = 1.0
    ) -> Self:
        """With rows (n, d) that stand for so many samples (n,) of classes (n,).

        Of what was there before a share is left, of each memory (n_memories,) its own.
        """
        shape = self.counts.shape[1:]
        place = np.ravel_multi_index((codes[:, None], np.arange(shape[1]), self._bins(X)), shape)
        times = np.broadcast_to(counts[:, None], X.shape)
        known = ~np.isnan(X)
        added = np.bincount(place[known], times[known], minlength=self.counts[0].size)
        of_memories = np.broadcast_to(left, N_HISTOGRAMS)[:, None, None, None]
        return self._replace(counts=of_memories * self.counts + added.reshape(shape))

    def fits(self, X: np.ndarray, counts: np.ndarray) -> bool:
        """Whether bins of other edges would part rows (n, d), which stand for so many, no better.

        That is, by far: the fullest bin of a feature has much of what others would part.
        """
        shares = [fullest(edges, X, counts) for edges in (self.edges, edges_between(X, counts))]
        return bool((shares[0] - shares[1] <= UNPARTED).all())

    def _bins(self, X: np.ndarray) -> np.ndarray:
        """Numbers (n, d) of the bins of values; zero where they are missing."""
        return (X[:, :, None] > self.edges).sum(axis=2)

    def log_ratios(
        self, X: np.ndarray, own: np.ndarray | None = None, of_bins: np.ndarray | None = None
    ) -> np.ndarray:
        """Logarithms of the classes' shares in the bins, as ratios to those of all classes.

        Parameters
        ----------
        X : (n, d) array
            NaN is missing.
        own : (n,) array of intp, default=None
            Classes of the rows that are among the samples, -1 for others: none counts itself.
        of_bins : (n_memories, d, n_bins, n_classes) array, default=None
            What `bin_log_ratios` returns, if it is known.

        Returns
        -------
        (n_memories, n, n_classes) array
            Sums over the features that are known.
        """
        bins, number = self._bins(X), np.arange(X.shape[1])
        ratios = (self.bin_log_ratios() if of_bins is None else of_bins)[:, number, bins]
        if own is not None and (own >= 0).any():
            rows = np.flatnonzero(own >= 0)
            without_one = self.bin_log_ratios(1.0)
            of_own = own[rows][:, None]
            ratios[:, rows[:, None], number, of_own] = without_one[:, number, bins[rows], of_own]
        ratios[:, np.isnan(X)] = 0.0
        return ratios.sum(axis=2)

    def bin_log_ratios(self, without: float = 0.0) -> np.ndarray:
        """The same of each bin (n_memories, d, n_bins, n_classes), with so many samples less."""
        out = np.zeros(self.counts.shape)
        for level in range(N_LEVELS):
            of_classes = self.counts.reshape(*self.counts.shape[:3], 2**level, 2, -1).sum(axis=-1)
            of_all = of_classes.sum(axis=1, keepdims=True)
            halved = of_all.sum(axis=-1, keepdims=True)
            share = np.divide(of_all, halved, out=np.zeros_like(of_all), where=halved > 0.0)
            halved = of_classes.sum(axis=-1, keepdims=True)
            left, all_left = (np.maximum(a - without, 0.0) for a in (of_classes, halved))
            expected = PRIOR_COUNT * share
            # What no class has is never asked for, unless it has come since.
            possible = np.where(share > 0.0, share, 1.0)
            ratios = (left + expected) / ((all_left + PRIOR_COUNT) * possible)
            logs = np.log(np.where(share > 0.0, ratios, 1.0)).reshape(*out.shape[:3], -1)
            out += np.repeat(logs, N_BINS // logs.shape[-1], axis=-1)
        return np.ascontiguousarray(out.transpose(0, 2, 3, 1))


def fullest(edges: np.ndarray, X: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The share of rows, which stand for so many, in the fullest bin of each feature (d,)."""
    of_bins = Histograms.empty(edges, 1).with_rows(X, np.zeros(len(X), dtype=np.intp), counts)
    return of_bins.counts[0, 0].max(axis=1) / counts.sum()


def edges_between(X: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Edges (d, n_bins - 1) between bins of about as many samples, each between two values.

    Of rows (n, d) that stand for so many samples (n,) each; NaN is missing.
    """
    shares = np.arange(1, N_BINS) / N_BINS
    edges = np.zeros((X.shape[1], len(shares)))
    for feature, values in enumerate(X.T):
        known = ~np.isnan(values) & (counts > 0.0)
        if not known.any():
            continue
        order = np.argsort(values[known], kind="stable")
        ordered, total = values[known][order], np.cumsum(counts[known][order])
        last = len(ordered) - 1
        below = ordered[np.minimum(np.searchsorted(total, shares * total[-1]), last)]
        after = np.searchsorted(ordered, below, side="right")
        above = ordered[np.minimum(after, last)]
        # What is beyond all values belongs to the largest one.
        edges[feature] = np.where(after > last, LARGEST, 0.5 * below + 0.5 * above)
    return edges
