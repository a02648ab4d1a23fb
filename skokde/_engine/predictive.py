"""Bandwidths by prediction: kernels of several widths, weighted by how well they foretell.

Not in the paper. Samples that came after the last compression stand in the model as they came, so
they can be taken out again and scored under what is left: the predictive likelihood of each width
comes for free, and the weights of a mixture of them follow by expectation maximisation.

A kernel of width b in whitened space would inflate the model's covariance by 1 + b^2. Here the KDE
is shrunk towards the mean by a = (1 + b^2)^(-1/2), so that the model's mean and covariance are kept
(West 1993): from the samples themselves, b = 0, it leads to one Gaussian, b = infinity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from skokde._engine.bandwidth import normal_reference
from skokde._engine.covariance import Structure
from skokde._engine.kde import KDE, components_in
from skokde._engine.mixture import Mixture
from skokde._engine.whitening import whiten

# The widths b, the narrowest first, in units of the normal-reference scale, and the spreads of
# single Gaussians about the mean, in units of the model's: the first is the limit for wide b, the
# others are for outliers.
KERNEL_SCALES = (0.25, 0.5, 1.0, 2.0)
GAUSSIAN_SCALES = (1.0, 4.0, 16.0)

# Equal weights are worth this number of samples before any is predicted.
PRIOR_EVIDENCE = 1.0
# Evidence is worth at most this share of the samples, since what is best changes as they get more,
# and at most this number of them, that a sudden change in the data is overcome.
MEMORY = 0.25
LONGEST_MEMORY = 128.0
LEAST_SHARE = 1e-9
# Before the first compression each part of the samples is predicted from the others.
N_FOLDS = 4
EM_STEPS = 10
# The kernels follow the samples when there are more of them by this share.
PACE = 0.05
# In standard deviations of what they take their shape from.
FAR = 10.0


class PredictiveKDE(NamedTuple):
    """A mixture of kernel density estimates under kernels of all widths, and of wide Gaussians.

    Attributes
    ----------
    kde : KDE
        Shrunk towards the model's mean, the origin of its coordinates.
    spreads : (n_gaussians,) array
        Standard deviations of the Gaussians about the mean, in the same coordinates.
    evidence : (n_widths,) array
        The weights, times any number.
    """

    kde: KDE
    spreads: np.ndarray
    evidence: np.ndarray

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        evidence: np.ndarray,
        structure: Structure,
        prior: np.ndarray | None,
    ) -> PredictiveKDE:
        """All widths of a mixture that is not empty, under a prior for its covariance if any."""
        whitening = whiten(mixture, structure, prior)
        widths = np.array(KERNEL_SCALES) * normal_reference(mixture.n_features, whitening.count)
        narrowest, shrinks = widths.min(), shrinkage(widths)
        frame, spreads = whitening.frame.divided(narrowest), np.array(GAUSSIAN_SCALES) / narrowest
        components = components_in(frame, *mixture[:3])
        components = components._replace(means=staying(components.means, spreads, shrinks))
        return cls(KDE.of(frame, components, widths / narrowest, shrinks), spreads, evidence)

    def with_later(self, mixture: Mixture) -> PredictiveKDE:
        """Of a mixture with more Diracs after the others, too; they don't change the kernels."""
        later = self.kde.frame.points(mixture.means[len(self.kde.components.weights) :])
        later = staying(later, self.spreads, self.kde.shrinks)
        return self._replace(kde=self.kde.with_diracs(mixture.counts, later))

    @property
    def weights(self) -> np.ndarray:
        return self.evidence / self.evidence.sum()

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Log-densities (n, n_widths) of rows under each of the kernels, in nats."""
        points = self.kde.frame.points(X)
        return self.kde.log_densities(points, self.spreads)

    def log_density(self, X: np.ndarray) -> np.ndarray:
        """Log-densities of rows in data units, in nats."""
        return np.logaddexp.reduce(self.log_densities(X) + np.log(self.weights), axis=1)

    def bandwidth(self) -> np.ndarray:
        """Average covariance of the kernels, in data units; single Gaussians have none."""
        kernels = self.kde.kernels_back()
        weights = self.weights[: len(kernels)]
        return np.tensordot(weights / weights.sum(), kernels, axes=1)

    def components(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, means and covariances of all Gaussians, in data units."""
        frame = self.kde.frame
        parts = self.kde.components_back()
        for spread in self.spreads:
            parts.append((np.ones(1), frame.center[None], spread**2 * frame.identity_back()[None]))
        weighted = [
            (weight * shares, means, covariances)
            for weight, (shares, means, covariances) in zip(self.weights, parts, strict=True)
        ]
        weights, means, covariances = (
            np.concatenate(arrays) for arrays in zip(*weighted, strict=True)
        )
        return weights, means, covariances


def shrinkage(widths: np.ndarray) -> np.ndarray:
    """The factors a that preserve the variance."""
    return 1.0 / np.hypot(1.0, widths)


def staying(points: np.ndarray, spreads: np.ndarray, shrinks: np.ndarray) -> np.ndarray:
    """Where the narrowest kernels must be for those far out to stay where their samples are.

    Shrinking takes them along, by a part of their distance from the mean.
    """
    far = np.abs(points).max(axis=1, initial=0.0) > FAR * spreads[0]
    return np.where(far[:, None], points / shrinks[0], points) if far.any() else points


def no_evidence() -> np.ndarray:
    """Equal weights, worth `PRIOR_EVIDENCE` samples."""
    n_widths = len(KERNEL_SCALES) + len(GAUSSIAN_SCALES)
    return np.full(n_widths, PRIOR_EVIDENCE / n_widths)


def weigh(evidence: np.ndarray, log_densities: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Evidence for each width after some more predictions.

    A sample is shared out between the widths in proportion to weight times density. So none counts
    for more than itself, however unlikely it was.

    Parameters
    ----------
    evidence : (n_widths,) array, positive
        Numbers of samples that speak for each of the widths.
    log_densities : (n, n_widths) array
    counts : (n,) array
        How many samples each row stands for.
    """
    known = np.isfinite(log_densities).any(axis=1)
    log_densities, counts = log_densities[known], counts[known]
    likelihood = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
    new = evidence
    for _ in range(EM_STEPS):
        new = evidence + new * ((counts / (likelihood @ new)) @ likelihood)
    return new


def without(mixture: Mixture, chosen: np.ndarray) -> Mixture:
    """A mixture without some of its Diracs.

    Parameters
    ----------
    mixture : Mixture
    chosen : (k - m,) array of bool
    """
    m = mixture.n_compounds
    kept = np.append(np.ones(m, dtype=bool), ~chosen)
    return mixture._replace(counts=mixture.counts[kept], means=mixture.means[kept])


def turns(
    mixture: Mixture,
    n_foretold: int,
    evidence: np.ndarray,
    structure: Structure,
    prior: np.ndarray | None,
) -> Iterator[tuple[PredictiveKDE, np.ndarray]]:
    """Densities and masks over the Diracs: which are predicted by them.

    Half of the new samples are predicted by what was there before them, the others with the help of
    the first half. Rows that come next to each other in time are alike: if all had help, kernels
    would become too narrow for what is to come. In rows sorted by value each is beyond all before:
    if none had help, kernels would become too wide.

    The parameters are those of `foretell`.
    """
    number = np.arange(mixture.n_compounds, mixture.n_components)
    new = number >= n_foretold
    parts = [new] if n_foretold else [number % N_FOLDS == fold for fold in range(N_FOLDS)]
    for part in parts:
        rest = without(mixture, part)
        # Nothing can be told from one sample, nor from samples that are as good as forgotten.
        remembered = rest.counts.sum() > LEAST_SHARE * mixture.counts.sum()
        if not (remembered and (rest.n_components > 1 or rest.n_compounds)):
            continue
        known = PredictiveKDE.of(rest, evidence, structure, prior)
        helped = part & (number % 2 == 1) & bool(n_foretold)
        yield known, part & ~helped
        if helped.any():
            yield known.with_later(without(mixture, helped)), helped


def foretell(
    mixture: Mixture,
    n_foretold: int,
    evidence: np.ndarray,
    structure: Structure,
    prior: np.ndarray | None,
) -> np.ndarray:
    """Evidence after the prediction of the samples that came last.

    Parameters
    ----------
    mixture : Mixture
    n_foretold : int
        Leading components that came out of the last compression. The others are Diracs, and are
        predicted; if there has been no compression all are, each part by the others.
    evidence : (n_widths,) array
    structure : Structure
    prior : (d, d) or (d,) array, or None
        For the covariance, see `with_prior`.

    Returns
    -------
    (n_widths,) array
    """
    logs, counts = [], []
    for kde, predicted in turns(mixture, n_foretold, evidence, structure, prior):
        if predicted.any():
            predicted_counts, means = mixture.diracs(predicted)
            logs.append(kde.log_densities(means))
            counts.append(predicted_counts)
    if logs:
        evidence = weigh(evidence, np.concatenate(logs), np.concatenate(counts))
    prior_evidence = no_evidence()
    learned = evidence - prior_evidence
    most = min(MEMORY * mixture.counts.sum(), LONGEST_MEMORY)
    return prior_evidence + learned * min(1.0, most / max(learned.sum(), most))


def settled(mixture: Mixture, n_foretold: int) -> Mixture:
    """The part of a mixture that the kernels take their shape and size from.

    Samples since the last compression are left out until they are a good many more, so that one
    sample more changes next to nothing of what scoring needs.

    Parameters
    ----------
    mixture : Mixture
    n_foretold : int
        See `foretell`.
    """
    later = mixture.n_components - n_foretold
    if not (n_foretold and later):
        return mixture
    pace = max(1, int(PACE * mixture.counts[:n_foretold].sum()))
    n = mixture.n_components - later % pace
    return mixture._replace(counts=mixture.counts[:n], means=mixture.means[:n])


def predictive_kde(
    mixture: Mixture,
    n_foretold: int,
    evidence: np.ndarray,
    structure: Structure,
    prior: np.ndarray | None,
    known: PredictiveKDE | None = None,
) -> PredictiveKDE:
    """What is scored; the parameters are those of `foretell`.

    Parameters
    ----------
    known : PredictiveKDE, default=None
        That of the settled part, where it has been made already.
    """
    if not n_foretold:
        evidence = foretell(mixture, 0, evidence, structure, prior)
    if known is None:
        known = PredictiveKDE.of(settled(mixture, n_foretold), evidence, structure, prior)
    return known.with_later(mixture)._replace(evidence=evidence)
