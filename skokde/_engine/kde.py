"""The kernel density estimate: the sample model convolved with H (paper, Eq. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np

from skokde._engine._hellinger import factorize_all
from skokde._engine._log_density import BOX, decompose, least_precisions, log_mixtures
from skokde._engine._row_density import RowFamily, RowKDE, log_mixtures_of_row
from skokde._engine.covariance import structure_of
from skokde._engine.missing import by_known_features, together
from skokde._engine.mixture import Resolutions, SampleModel
from skokde._engine.whitening import Frame

# In standard deviations of the whole: a component farther out than this is not shrunk.
FAR = 10.0
# Components times experts: with fewer, an order of the rows takes longer than it saves.
FEW_TERMS = 4000
# Rows that are scored at a time.
PART = 8 * BOX


class Components(NamedTuple):
    """Components of a KDE in kernel coordinates, where each has the covariance S_i + I.

    Attributes
    ----------
    weights : (k,) array, sum one
    means : (k, d) array
    covariances : (m, d * d) or (m, d) array
        The S_i of the first m components, flattened; the others are Diracs.
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


class Factors(NamedTuple):
    """What densities of components need (paper, Section 3.2).

    Attributes
    ----------
    inv_roots, roots : (m, d * d) or (m, d) arrays
        Symmetric (S_i + I)^(-1/2) and (S_i + I)^(1/2).
    log_dets : (m,) array
        log |S_i + I|
    """

    inv_roots: np.ndarray
    roots: np.ndarray
    log_dets: np.ndarray


class Kernels(NamedTuple):
    """Kernels of one shape under which the same components are scored.

    Under a kernel of width b, with a the factor by which the estimate is shrunk towards the origin,
    a component is N(a mu_i, a^2 (S_i + b^2 I)).

    Attributes
    ----------
    frame : Frame
        Coordinates in which no width is below one.
    widths, shrinks : (n_widths,) arrays
        The b and the a.
    n_gaussians : int
        The last widths are those of single Gaussians about the mean of the sample model.
    spread : float
        Standard deviation of the whole sample model, in all directions of the frame.
    whole : (1 + r, d) array or None
        Covariance of the single Gaussians, in data units, where kernels have another structure.
    """

    frame: Frame
    widths: np.ndarray
    shrinks: np.ndarray
    n_gaussians: int
    spread: float
    whole: np.ndarray | None = None

    @classmethod
    def single(cls, frame: Frame) -> Self:
        """One kernel, with the identity as its covariance in the frame."""
        return cls(frame, np.ones(1), np.ones(1), 0, np.inf)

    @property
    def n_kernels(self) -> int:
        """The first widths, all but those of single Gaussians."""
        return len(self.widths) - self.n_gaussians

    def without_gaussians(self) -> Self:
        n = self.n_kernels
        return self._replace(widths=self.widths[:n], shrinks=self.shrinks[:n], n_gaussians=0)

    def far(self, points: np.ndarray) -> np.ndarray:
        """Which points of the frame are too far out to be shrunk."""
        return np.abs(points).max(axis=1, initial=0.0) > FAR * self.spread

    def centers(self, means: np.ndarray) -> np.ndarray:
        """Points of the frame that, once shrunk, are the centers of components."""
        points = self.frame.points(means)
        farthest = max(points.max(initial=0.0), -points.min(initial=0.0))
        if not farthest > FAR * self.spread:
            return points
        return self.moved(points, self.far(points))

    def moved(self, points: np.ndarray, far: np.ndarray) -> np.ndarray:
        """Points of which those far out are so that the narrowest kernel is where the sample is.

        Shrinking takes them along, by a part of their distance from the mean.
        """
        return np.where(far[:, None], points / self.shrinks[0], points)

    def covariances_back(self) -> np.ndarray:
        """Covariances (n_widths, d, d) or (n_widths, d) in data units."""
        return np.multiply.outer((self.shrinks * self.widths) ** 2, self.frame.identity_back())


def components_in(
    frame: Frame, counts: np.ndarray, means: np.ndarray, covariances: np.ndarray
) -> Components:
    """Components of a mixture in kernel coordinates."""
    covariances = structure_of(covariances).seen_by_kernels(covariances)
    return Components(counts / counts.sum(), frame.points(means), frame.covariances(covariances))


def log(weights: np.ndarray) -> np.ndarray:
    """Logarithms, -inf of zero and of what has underflowed."""
    with np.errstate(divide="ignore"):
        return np.log(weights)


@cache
def nothing_decomposed(d: int, n_kernels: int) -> tuple[np.ndarray, ...]:
    """What `decompose` returns of no covariances, in less time than a call takes."""
    nothing, starts = np.empty((0, n_kernels)), np.zeros(1, dtype=np.intp)
    starts.flags.writeable = False  # it is the same object each time
    return np.empty((0, d)), np.empty(0), nothing, nothing, starts, nothing


def log_sum(logs: np.ndarray) -> np.ndarray:
    """Logarithm of the sum along the first axis of what the logarithms are known of.

    numpy.logaddexp.reduce does the same in several times the time.
    """
    if len(logs) == 1:
        return logs[0]
    top = logs.max(axis=0)
    return top + log(np.exp(logs - np.where(top > -np.inf, top, 0.0)).sum(axis=0))


def factorize(components: Components) -> Factors:
    """Factors of the covariances of the KDE's components."""
    return Factors(*factorize_all(components.covariances, components.means.shape[1]))


@dataclass(frozen=True, eq=False)
class KernelFamily:
    """A sample model at some resolutions under kernels of one shape.

    Its densities, of each part of the model under each kernel, share most of their work.

    Attributes
    ----------
    models : Resolutions
        Where kernels have single Gaussians, the last part is their mean.
    kernels : Kernels
    log_weights : (k,) array
    centers : (k, d) array
        In the kernels' frame.
    """

    models: Resolutions
    kernels: Kernels
    log_weights: np.ndarray
    centers: np.ndarray

    # Whether a compiled function scores single rows.
    in_rows: ClassVar[bool] = True

    @classmethod
    def of(
        cls, models: Resolutions, kernels: Kernels, log_weights: np.ndarray | None = None
    ) -> Self:
        """With the logarithms of the models' weights, where they are known."""
        if log_weights is None:
            log_weights = log(models.weights)
        return cls(models, kernels, log_weights, kernels.centers(models.means))

    def diracs(self, counts: np.ndarray, means: np.ndarray) -> tuple[Resolutions, np.ndarray]:
        """A model of Diracs alone, and the logarithms of its weights."""
        model = Resolutions.of_one(SampleModel(counts, means, self._no_compounds))
        return model, log(model.weights)

    def of_diracs(self, diracs: tuple[Resolutions, np.ndarray]) -> Self:
        """Of `diracs`, under the same kernels, without single Gaussians."""
        model, log_weights = diracs
        model = model._replace(shape=self.models.shape)
        return self.of(model, self._kernels_of_diracs, log_weights)

    @cached_property
    def _no_compounds(self) -> np.ndarray:
        return self.models.unshaped[0][:0]

    @cached_property
    def _kernels_of_diracs(self) -> Kernels:
        return self.kernels.without_gaussians()

    def marginal(self, features: np.ndarray, frame: Frame) -> Self:
        """Of some of the features, by an array of their numbers.

        Parameters
        ----------
        features : (n,) array of intp
        frame : Frame
            The kernels' frame of these features.
        """
        models, kernels = self.models.marginal(features), self.kernels._replace(frame=frame)
        # What is far out, and not shrunk, is so whichever features are known.
        centers = kernels.moved(frame.points(models.means), self._far)
        return type(self)(models, kernels, self.log_weights, centers)

    def weights(self, of_kernels: np.ndarray, of_gaussians: np.ndarray) -> np.ndarray:
        """What each density counts in mixtures.

        Parameters
        ----------
        of_kernels : (n_mixtures, n_resolutions, n_kernels) array
            What the model at each resolution counts under each kernel.
        of_gaussians : (n_mixtures, n_gaussians) array

        Returns
        -------
        (n_mixtures, n_parts, n_widths) array
        """
        there, n = self.models.there, self.kernels.n_kernels
        out = np.zeros((len(of_kernels), len(there), len(self.kernels.widths)))
        out[:, :, :n] = there.astype(float) @ of_kernels
        if self.kernels.n_gaussians:
            out[:, -1, n:] = of_gaussians
        return out

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_widths) of rows in data units where there is one resolution."""
        n = len(self.kernels.widths)
        of_kernels, of_gaussians = np.split(np.eye(n), [self.kernels.n_kernels], axis=1)
        return self.log_mixtures(X, self.weights(of_kernels[:, None], of_gaussians))

    def log_mixtures(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_mixtures) of rows in data units, in nats.

        Parameters
        ----------
        X : (n, d) array
        weights : (n_mixtures, n_parts, n_widths) array
        """
        return self.log_mixtures_of_points(self.kernels.frame.points(X), weights)

    def log_mixtures_of_points(
        self, points: np.ndarray, weights: np.ndarray, besides: np.ndarray | None = None
    ) -> np.ndarray:
        """The same of points of the kernels' frame.

        What is negligible beside some log-densities, to which these are added, may be left out.
        """
        log_det = self.kernels.frame.log_det
        if besides is not None:
            besides = besides - log_det
        bounds = self._bounds if self.leaves_out(len(points)) else ()
        return log_det + log_mixtures(points, weights, besides, *self._arrays, *bounds)

    def leaves_out(self, n: int) -> bool:
        """Whether components are left out that are far from all of so many points.

        Each point may have a nearest component of its own: of few none can be left out.
        """
        return n > BOX < len(self.centers)

    @cached_property
    def _decomposed(self) -> tuple[np.ndarray, ...]:
        """See `decompose`; made when it is used, since a KDE of some groups leaves families out."""
        kernels, n = self.kernels, self.kernels.n_kernels
        if not self.models.n_compounds:
            return nothing_decomposed(self.centers.shape[1], n)
        covariances = kernels.frame.covariances(self.models.covariances())
        return decompose(self.centers, covariances, kernels.widths[:n], kernels.shrinks[:n])

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, ...]:
        """See `least_precisions`: of many points, components that are far from all are left out."""
        kernels, n, d = self.kernels, self.kernels.n_kernels, self.centers.shape[1]
        _, _, precisions, couplings, starts, _ = self._decomposed
        return least_precisions(
            precisions, couplings, starts, d, kernels.widths[:n], kernels.shrinks[:n]
        )

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        """What the compiled functions take of a family."""
        kernels = self.kernels
        of_components = self.log_weights, self.centers, self.models.parts
        return (*of_components, *self._decomposed, kernels.widths, kernels.shrinks)

    @cached_property
    def in_row(self) -> RowFamily:
        """The same for the compiled function that scores a single row."""
        frame = self.kernels.frame
        return RowFamily(*frame.arrays, frame.log_det, *self._arrays)

    @cached_property
    def _far(self) -> np.ndarray:
        """Which components (k,) are too far out to be shrunk."""
        return self.kernels.far(self.kernels.frame.points(self.models.means))

    @cached_property
    def masses(self) -> np.ndarray:
        """Weights (n_parts,) of the parts."""
        return self.models.masses

    def gaussians(self, weights: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Weights, means and covariances of the Gaussians of a mixture, in data units.

        Parameters
        ----------
        weights : (n_parts, n_widths) array
            One element of the list is for each that is not zero.
        """
        gaussians = []
        for number, width in zip(*np.nonzero(weights), strict=True):
            shares, *others = self.gaussians_of(number, width)
            gaussians.append((weights[number, width] * shares, *others))
        return gaussians

    def gaussians_of(self, number: int, width: int) -> SampleModel:
        """Weights, means and covariances of a part under a kernel, in data units."""
        part = self.shrunk_part(number, width)
        covariances = self._covariances(width, part.n_components, part.covariances)
        return part._replace(covariances=covariances)

    def draws(self, number: int, width: int, n: int, rng: np.random.RandomState) -> np.ndarray:
        """Independent rows (n, d) of the density of a part under a kernel, in data units."""
        shares, means, compounds = self.shrunk_part(number, width)
        chosen = rng.choice(len(shares), size=n, p=shares / shares.sum())
        return means[chosen] + self._deviations(width, compounds, chosen, rng)

    def first_moment(self, number: int, width: int) -> np.ndarray:
        """The sum (d,) of the means of a part under a kernel, weighted, in data units."""
        shares, means, _ = self.shrunk_part(number, width)
        return shares @ means

    def shrunk_part(self, number: int, width: int) -> SampleModel:
        """A part of the model with its means where a kernel has them."""
        shrinks, part = self.kernels.shrinks, self.models.part(number)
        far = self._far[self.models.parts == number]
        shrunk = np.where(far, shrinks[width] / shrinks[0], shrinks[width])
        # Where nothing is shrunk not a bit of the means is lost.
        away = part.means - self.kernels.frame.center
        return part._replace(means=part.means - (1.0 - shrunk)[:, None] * away)

    def _deviations(
        self, width: int, compounds: np.ndarray, chosen: np.ndarray, rng: np.random.RandomState
    ) -> np.ndarray:
        """Differences (n, d) of draws from the means of components, by the numbers of these.

        The first components are compounds; only covariances of those that are chosen are made.
        """
        used, places = np.unique(chosen, return_inverse=True)
        own = compounds[used[used < len(compounds)]]
        covariances = self._covariances(width, len(used), own)
        return structure_of(covariances).draws(covariances, places, rng)

    def _covariances(self, width: int, k: int, compounds: np.ndarray) -> np.ndarray:
        """Covariances of k components under a kernel, in data units; the first are compounds."""
        kernel = self._kernels_back[width]
        covariances = np.tile(kernel, (k, *(1,) * kernel.ndim))
        covariances[: len(compounds)] += self.kernels.shrinks[width] ** 2 * compounds
        return covariances

    @cached_property
    def _kernels_back(self) -> np.ndarray:
        """Covariances of the kernels in data units."""
        return self.kernels.covariances_back()


@dataclass(frozen=True, eq=False)
class KDE:
    """What is scored, made once after learning: densities, weighted.

    Attributes
    ----------
    families : tuple of KernelFamily
    weights : tuple of (1 + n_groups, n_parts, n_widths) arrays
        What the densities of each family count, in all and in each group of experts.
    n_estimates : int
        The first families, estimates of all samples.
    """

    families: tuple[KernelFamily, ...]
    weights: tuple[np.ndarray, ...]
    n_estimates: int

    @property
    def n_groups(self) -> int:
        return len(self.weights[0]) - 1

    def with_later(
        self, means: np.ndarray, counts: Sequence[np.ndarray], fades: Sequence[float]
    ) -> KDE:
        """With more Diracs in the estimates; they change neither kernels nor single Gaussians.

        Parameters
        ----------
        means : (m, d) array
        counts : sequence of (m,) arrays
            Of the Diracs, in each of the estimates.
        fades : sequence of float
            What is left in it of the counts of what was there before.
        """
        weights, later, of_later = list(self.weights), [], []
        known = None
        for number, (added, fade) in enumerate(zip(counts, fades, strict=True)):
            family = self.families[number]
            n, before = family.kernels.n_kernels, fade * family.models.count
            if added is not known:  # estimates of several shapes have the same
                known, total = added, added.sum()
                diracs = family.diracs(added, means) if total > 0.0 else None
            # A row of large weight, where there was one before, fades all others.
            if diracs is None:
                continue
            share, held = total / (before + total), weights[number].copy()
            of_later.append(share * (family.masses @ held[:, :, :n])[:, None])
            held[:, :, :n] *= 1.0 - share
            weights[number] = held
            later.append(family.of_diracs(diracs))
        return KDE((*self.families, *later), (*weights, *of_later), self.n_estimates)

    def beside(self, other: KDE, share: float) -> KDE:
        """With the densities of another one, in groups of their own.

        Parameters
        ----------
        other : KDE
        share : float
            What this one counts in all.
        """
        own = [in_rows(held, share, 0, other.n_groups) for held in self.weights]
        others = [in_rows(held, 1.0 - share, self.n_groups, 0) for held in other.weights]
        return KDE((*self.families, *other.families), (*own, *others), self.n_estimates)

    def without_groups(self) -> KDE:
        """All densities together alone."""
        return KDE(self.families, tuple(held[:1] for held in self.weights), self.n_estimates)

    def with_groups_of_all(self, n: int) -> KDE:
        """With some more groups, each of which is as all densities together."""
        weights = [np.concatenate([held, np.repeat(held[:1], n, axis=0)]) for held in self.weights]
        return KDE(self.families, tuple(weights), self.n_estimates)

    def of_groups(self, chosen: Sequence[bool]) -> KDE:
        """Of some of the groups alone, and the densities that are in them."""
        rows = np.append(True, chosen)
        weights = [held[rows] for held in self.weights]
        for held in weights:
            held[0, ~held[1:].any(axis=0)] = 0.0
        total = sum(
            f.masses @ held[0].sum(axis=1) for f, held in zip(self.families, weights, strict=True)
        )
        for held in weights:
            held[0] /= total
        return self._weighted(weights)

    def marginal(self, features: np.ndarray) -> KDE:
        """Of some of the features, by an array of their numbers."""
        return KDE(marginals(self.families, features), self.weights, self.n_estimates)

    @cached_property
    def kernel_numbers(self) -> tuple[np.ndarray, ...]:
        """For each family the numbers (n_widths,) that its kernels have among all.

        Samples that came later are under the kernels of the estimate they belong to.
        """
        first: dict[int, int] = {}
        numbers, n = [], 0
        for family in self.families:
            n_widths, frame = len(family.kernels.widths), id(family.kernels.frame)
            if frame not in first:
                first[frame], n = n, n + n_widths
            numbers.append(first[frame] + np.arange(n_widths))
        return tuple(numbers)

    def by_kernel(self) -> KDE:
        """With a group for each kernel in place of those that there are."""
        n = 1 + max(int(numbers.max()) for numbers in self.kernel_numbers)
        weights = []
        for held, numbers in zip(self.weights, self.kernel_numbers, strict=True):
            grouped = np.zeros((1 + n, *held.shape[1:]))
            grouped[0] = held[0]
            grouped[1 + numbers, :, np.arange(len(numbers))] = held[0].T
            weights.append(grouped)
        return KDE(self.families, tuple(weights), self.n_estimates)

    @property
    def totals_of_groups(self) -> np.ndarray:
        """What the densities of each group (n_groups,) count together."""
        of_families = [
            np.einsum("p,gpw->g", family.masses, held[1:])
            for family, held in zip(self.families, self.weights, strict=True)
        ]
        return np.sum(of_families, axis=0)

    def that_matter(self, features: np.ndarray, X: np.ndarray, log_least: float) -> KDE:
        """Without the densities that are next to nothing where some features are known.

        Parameters
        ----------
        features : (n_known,) array of intp
        X : (n, n_known) array
            Rows of these features.
        log_least : float
            In nats, beside the largest density there, what is enough at any of the rows.
        """
        logs = []
        for family, held in zip(self.marginal(features).families, self.weights, strict=True):
            part, width = np.nonzero(held[0])
            alone = np.zeros((len(part), *held.shape[1:]))
            alone[np.arange(len(part)), part, width] = held[0, part, width]
            logs.append(family.log_mixtures(X, alone))
        enough = np.max([a.max(axis=1) for a in logs], axis=0)[:, None] + log_least
        weights = [np.zeros_like(held) for held in self.weights]
        for kept, held, found in zip(weights, self.weights, logs, strict=True):
            part, width = np.argwhere(held[0])[(found >= enough).any(axis=0)].T
            kept[0, part, width] = held[0, part, width]
        return self._weighted(weights)

    def _weighted(self, weights: Sequence[np.ndarray]) -> KDE:
        """With other weights, and without the families that have none."""
        used = [number for number, held in enumerate(weights) if held.any()]
        return KDE(
            tuple(self.families[number] for number in used),
            tuple(weights[number] for number in used),
            sum(number < self.n_estimates for number in used),
        )

    def log_density(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n,) of rows in data units, in nats; of what is known of each."""
        if np.isnan(X).any():
            return by_known_features(X, lambda f, rows: self.marginal(f).log_density(rows), ())
        if len(X) == 1 and self.in_rows:
            return log_mixtures_of_row(X[0], [self._in_row])[0]
        return self._log_mixtures(X, slice(1))[:, 0]

    def log_densities_of_groups(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_groups) of rows under the mixture of each group, in nats."""
        if np.isnan(X).any():
            return by_known_features(
                X, lambda f, rows: self.marginal(f).log_densities_of_groups(rows), (self.n_groups,)
            )
        return self._log_mixtures(X, slice(1, None))

    def _log_mixtures(self, X: np.ndarray, chosen: slice) -> np.ndarray:
        frames = {id(family.kernels.frame): family.kernels.frame for family in self.families}
        points = {key: frame.points(X) for key, frame in frames.items()}
        logs: list[np.ndarray] = []
        for family, held in zip(self.families, self.weights, strict=True):
            of_frame = points[id(family.kernels.frame)]
            besides = np.max(logs, axis=0) if logs and family.leaves_out(len(X)) else None
            logs.append(family.log_mixtures_of_points(of_frame, held[chosen], besides))
        return log_sum(np.array(logs))

    @cached_property
    def in_rows(self) -> bool:
        """Whether a compiled function scores single rows."""
        return all(family.in_rows for family in self.families)

    @cached_property
    def _in_row(self) -> RowKDE:
        """For the compiled function that scores a single row."""
        return RowKDE([f.in_row for f in self.families], [held[:1] for held in self.weights])

    @cached_property
    def groups_in_row(self) -> RowKDE:
        """The same of each group."""
        return RowKDE([f.in_row for f in self.families], [held[1:] for held in self.weights])

    @cached_property
    def bandwidth(self) -> np.ndarray:
        """Average covariance of the kernels of the estimates, in data units."""
        kernels, weights = [], []
        for family, held in zip(self.families[: self.n_estimates], self.weights, strict=False):
            n = family.kernels.n_kernels
            kernels.append(family.kernels.covariances_back()[:n])
            weights.append(family.masses @ held[0, :, :n])
        return np.average(in_one_shape(kernels), axis=0, weights=np.concatenate(weights))

    def draws(self, n: int, rng: np.random.RandomState) -> np.ndarray:
        """Independent rows (n, d) in data units, in no order."""
        densities = self.densities
        shares = np.array([w * family.masses[number] for family, number, _, w in densities])
        counts = rng.multinomial(n, shares / shares.sum())
        rows = [
            family.draws(number, width, count, rng)
            for (family, number, width, _), count in zip(densities, counts, strict=True)
            if count
        ]
        return np.concatenate(rows)[rng.permutation(n)]

    @property
    def mean(self) -> np.ndarray:
        """Mean (d,) in data units."""
        densities = self.densities
        return np.sum([w * family.first_moment(*of) for family, *of, w in densities], axis=0)

    @property
    def densities(self) -> list[tuple[KernelFamily, int, int, float]]:
        """All densities of some weight, each of a part of a family under a kernel."""
        return [
            (family, number, width, held[0, number, width])
            for family, held in zip(self.families, self.weights, strict=True)
            for number, width in zip(*np.nonzero(held[0]), strict=True)
        ]

    def gaussians(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, means and covariances of all Gaussians, in data units."""
        parts = [
            part
            for family, held in zip(self.families, self.weights, strict=True)
            for part in family.gaussians(held[0])
        ]
        weights, means, covariances = zip(*parts, strict=True)
        return np.concatenate(weights), np.concatenate(means), in_one_shape(covariances)


def marginals(families: Sequence[KernelFamily], features: np.ndarray) -> tuple[KernelFamily, ...]:
    """Families of some of the features, which share frames as they did."""
    frames = {id(f.kernels.frame): f.kernels.frame for f in families}
    frames = {key: frame.marginal(features) for key, frame in frames.items()}
    return tuple(f.marginal(features, frames[id(f.kernels.frame)]) for f in families)


def log_densities_of_groups_in_row(row: np.ndarray, kdes: Sequence[KDE]) -> np.ndarray:
    """What `log_densities_of_groups` of all KDEs are in a single row, but for rounding.

    Parameters
    ----------
    row : (d,) array
    kdes : sequence of KDE
        With as many groups each.

    Returns
    -------
    (n_kdes, n_groups) array
        In far less time than that of as many calls.
    """
    if not all(kde.in_rows for kde in kdes):
        return np.array([kde.log_densities_of_groups(row[None])[0] for kde in kdes])
    return log_mixtures_of_row(row, [kde.groups_in_row for kde in kdes])


def in_rows(weights: np.ndarray, share: float, before: int, after: int) -> np.ndarray:
    """A share of the weights in all, and those in groups among groups in which they are zero."""
    out = np.zeros((len(weights) + before + after, *weights.shape[1:]))
    out[0] = share * weights[0]
    out[1 + before : before + len(weights)] = weights[1:]
    return out


def in_boxes(rows: np.ndarray, n_terms: int) -> np.ndarray:
    """An order of rows in which each `BOX` of them are close, for densities in less time.

    They are parted across the feature that tells them apart most, in units of its deviation; with
    few terms to be evaluated for a row they stay as they are. Those that lack the same features
    need the same marginals, which takes longer than all else.
    """
    if np.isnan(rows).any():
        return together(rows)
    if len(rows) <= BOX or n_terms < FEW_TERMS:
        return np.arange(len(rows))
    with np.errstate(over="ignore", invalid="ignore"):  # then the order is none, and does no harm
        scale = rows.std(axis=0)
        return parted(rows / np.where(scale > 0.0, scale, 1.0), np.arange(len(rows)))


def parted(points: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    if len(chosen) <= BOX:
        return chosen
    some = points[chosen]
    side = some[:, np.ptp(some, axis=0).argmax()]
    half = max(1, len(chosen) // (2 * BOX)) * BOX
    order = chosen[np.argpartition(side, half)]
    return np.concatenate([parted(points, part) for part in (order[:half], order[half:])])


def in_parts(order: np.ndarray) -> list[np.ndarray]:
    """Rows in an order, so many at a time: what can be scored in threads.

    The parts do not depend on the threads: where a block is far from most components, and what is
    left out because of that, follows from the blocks before it in its part.
    """
    return [order[start : start + PART] for start in range(0, len(order), PART)]


def in_one_shape(covariances: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of covariances together, diagonal ones as matrices if there are full ones."""
    if len({array.ndim for array in covariances}) > 1:
        covariances = [a if a.ndim == 3 else a[:, None] * np.eye(a.shape[1]) for a in covariances]
    return np.concatenate(covariances)
