"""How rows are scored by the classes of a classifier: all that its probabilities are pooled of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from skokde._calibration import Calibration
from skokde._class_densities import ClassDensities
from skokde._density import OnlineKDEDensity
from skokde._engine.class_density import ClassDensity, log_densities_of_few
from skokde._engine.discriminants import Discriminants
from skokde._engine.histograms import Histograms
from skokde._engine.kde import KDE, in_boxes, in_parts
from skokde._engine.mixture import Mixture
from skokde._engine.neighbors import N_VOTE_WIDTHS, Neighbors
from skokde._engine.pooling import LogLinearPool
from skokde._engine.state import Settings
from skokde._engine.transformation import Transformation
from skokde._pooled_ratios import kept_neighbors, neighbor_metric, voters_of, voting_rows


class PooledRows(NamedTuple):
    """What rows are to the classes, and the pool that makes probabilities of it.

    Attributes
    ----------
    pool : LogLinearPool
        Of the terms that are of use.
    log_ratios : (n_terms, n, n_classes) array
        Log-densities of classes, -inf if they are not scored, and what is pooled besides.
    nowhere : (n,) array of bool
        Rows of which no value is known, or that are so far out that no class has a density there.
    """

    pool: LogLinearPool
    log_ratios: np.ndarray
    nowhere: np.ndarray


class ClassScorer(NamedTuple):
    """Scores rows by classes, one of which at least has a sample.

    Attributes
    ----------
    classes : ClassDensities
    class_count : (n_classes,) array
    calibration : Calibration
    settings : Settings
        With what the classes share.
    """

    classes: ClassDensities
    class_count: np.ndarray
    calibration: Calibration
    settings: Settings

    @classmethod
    def of(
        cls,
        classes: ClassDensities,
        class_count: np.ndarray,
        calibration: Calibration,
        settings: Settings,
    ) -> Self:
        """Of what the parameters mean: the classes all have a say in the kernels' shape."""
        scorer = cls(classes, class_count, calibration, settings)
        if settings.n_experts > 1:
            target = scorer.lasting_covariance()
        else:
            target = classes.within_covariance(keeps_noise=settings.keeps_noise)
        settings = settings._replace(
            shrinkage_target=target,
            transformation=scorer.lasting_transformation(),
            feature_weights=calibration.feature_weights,
            histograms=calibration.histograms,
        )
        return scorer._replace(settings=settings)

    def lasting_covariance(self) -> np.ndarray:
        """Within the classes, at the last checkpoint: a row that is learned changes its own only.

        Before it there is that of all samples.
        """
        covariance = self.calibration.covariance
        if covariance is not None:
            return covariance
        return self.classes.within_covariance(keeps_noise=self.settings.keeps_noise)

    def lasting_transformation(self) -> Transformation | None:
        """That of the last checkpoint as well, or before it of all samples."""

        def make() -> Transformation | None:
            seen = self.classes.seen()
            moments = [e._inlier_moments() for e in seen]
            return self.settings.transformation_of([e._mixture for e in seen], moments)

        if not self.settings.pools_transformed:
            return None
        known = self.calibration.transformation
        return known or self.classes.snapshot.get("transformation", None, make)

    def log_densities(self, X: np.ndarray, codes: list[int]) -> np.ndarray:
        """Log-densities (n, n_classes) of rows, by these classes; -inf for all others."""
        classes = self.classes
        out = np.full((len(X), len(self.class_count)), -np.inf)
        kdes = classes.in_threads(lambda code: classes.estimators[code]._kde(self.settings), codes)

        def score(task: tuple[int, KDE, np.ndarray]) -> None:
            code, kde, part = task
            out[part, code] = kde.log_density(X[part])

        classes.in_threads(score, self._tasks(X, codes, kdes))
        return out

    def _tasks(
        self, X: np.ndarray, codes: list[int], densities: Sequence[Any]
    ) -> list[tuple[int, Any, np.ndarray]]:
        """Classes, their densities and places of rows that are scored at a time."""
        n_components = sum(self.classes.estimators[c]._mixture.n_components for c in codes)
        parts = in_parts(in_boxes(X, self.settings.n_experts * n_components))
        pairs = zip(codes, densities, strict=True)
        return [(code, density, part) for code, density in pairs for part in parts]

    def pool(self) -> LogLinearPool:
        """That of all terms."""
        calibration = self.calibration.adapted(self.settings)
        pools = calibration.pool, calibration.steady
        pool = self.classes.snapshot.lasting("pool", pools, calibration.scored_pool)
        if pool.count > 0.0:  # single rows feel what else would be asked for
            return pool
        seen = self.classes.seen()
        count = float(self.class_count.sum() / len(seen))
        d = seen[0]._mixture.n_features
        return pool.tempered_at_first(count, d, self.settings.cautious_exponents)

    def scored_pool(self) -> tuple[LogLinearPool, tuple[bool, ...]]:
        """That of the densities that are of use, and which these are."""
        settings, pool = self.settings, self.pool()
        n_pooled, n_densities = settings.n_pooled, settings.n_densities

        def make() -> tuple[LogLinearPool, LogLinearPool, tuple[bool, ...]]:
            pruned = pool.pruned(n_pooled, len(settings.memories))
            scored = pruned.exponents[:n_densities] > 0.0
            if not scored.any():
                scored[0] = True
            return pool, pruned.of_densities(scored), tuple(scored.tolist())

        # The value holds the pool: as long as it is the same object it has not changed.
        key = id(pool), n_pooled, n_densities
        return self.classes.snapshot.lasting("scored pool", key, make)[1:]

    def pooled(self, X: np.ndarray, codes: list[int]) -> PooledRows:
        """What is of use of all terms, for rows (n, d), and for these classes of the densities."""
        settings = self.settings
        pool, scored = self.scored_pool()
        densities = self.pooled_log_densities(X, codes, scored)
        # In transformed coordinates nothing is that far.
        plain = densities[sum(scored[: settings.n_pooled_transformed]) :]
        nowhere = self._are_nowhere(X, codes, plain) | np.isnan(X).all(axis=1)
        used, n = pool.exponents[len(densities) :] > 0.0, 1 + settings.n_linear
        discriminants = self._discriminants(X, used[:n])
        others = self._votes_and_histograms(X, used[n:])
        return PooledRows(pool, np.concatenate([densities, discriminants, others]), nowhere)

    def pooled_log_densities(
        self, X: np.ndarray, codes: list[int], scored: tuple[bool, ...]
    ) -> np.ndarray:
        """Log-densities (n_scored, n, n_classes) by groups of experts, and memories, if scored.

        For classes other than these they are -inf.
        """
        settings = self.settings
        out = np.full((sum(scored), len(X), len(self.class_count)), -np.inf)
        key = settings.key, settings.shrinkage_target, settings.transformation, scored
        densities = self.classes.of_each(
            "class densities", key, codes, lambda density: density._class_density(settings, scored)
        )
        of_few = log_densities_of_few(X, densities) if settings.n_experts > 1 else None
        if of_few is not None:
            out[..., codes] = of_few
            return out

        in_coordinates = densities[0].in_coordinates(X)

        def score(task: tuple[int, ClassDensity, np.ndarray]) -> None:
            code, density, part = task
            of_part = in_coordinates and in_coordinates.part(part)
            out[:, part, code] = density.log_densities(X[part], of_part).T

        self.classes.in_threads(score, self._tasks(X, codes, densities))
        return out

    def _are_nowhere(
        self, X: np.ndarray, codes: list[int], log_densities: np.ndarray
    ) -> np.ndarray:
        """Which rows (n,) are so far out that no class has a density there.

        It is told by those in the data's coordinates that are known, (n_known, n, n_classes). If
        none is, single rows are looked at.
        """
        if len(log_densities):
            return np.isneginf(log_densities.max(axis=(0, 2)))
        out = self.settings.transformation.may_be_nowhere(X)
        if out.any():
            out[out] = np.isneginf(self.log_densities(X[out], codes).max(axis=1))
        return out

    def _discriminants(self, X: np.ndarray, used: np.ndarray) -> np.ndarray:
        """What they tell (n_terms, n, n_classes); zero for classes without a sample.

        Of terms (n_terms,) that are not used some are left out: those of memories change with each
        row.
        """
        seen = self.classes.are_seen()
        out = np.zeros((len(used), len(X), len(seen)))
        if not used.any():
            return out
        discriminants = self.discriminants()
        if used[1:-1].any():
            discriminants = self._with_memories(discriminants)
        *linear, of_scales = discriminants.log_ratios(X)
        out[: len(linear), :, seen] = linear
        out[-1][:, seen] = of_scales
        return out

    def discriminants(self) -> Discriminants:
        """Those of all samples; of the row before, unless what they are made of has changed."""
        classes, settings = self.classes, self.settings

        def make() -> Discriminants:
            covariance = self.lasting_covariance()
            moments = classes.of_each(
                "moments",
                settings.key,
                classes.seen_codes(),
                lambda density: density._reference_moments(density._state, settings),
            )
            return classes.snapshot.lasting(
                "discriminants",
                (covariance, tuple(moments)),
                lambda: Discriminants.of_samples(moments, covariance, settings.structure),
            )

        return classes.snapshot.get("discriminants", settings.key, make)

    def _with_memories(self, of_samples: Discriminants) -> Discriminants:
        """With those of short memories."""
        classes, settings = self.classes, self.settings

        def make() -> Discriminants:
            moments = classes.of_each(
                "moments in memories",
                settings.key,
                classes.seen_codes(),
                lambda density: density._discriminant_moments(settings),
            )
            _, *of_memories = zip(*moments, strict=True)
            covariance = self.lasting_covariance()
            return of_samples.with_memories(of_memories, covariance, settings.structure)

        return classes.snapshot.get("discriminants with memories", settings.key, make)

    def _votes_and_histograms(self, X: np.ndarray, used: np.ndarray) -> np.ndarray:
        """What is pooled last (n_terms, n, n_classes); zero if it is not used."""
        n_votes, histograms = self.settings.n_votes, self.settings.histograms
        out = np.zeros((len(used), len(X), len(self.class_count)))
        votes = out[:n_votes].reshape(-1, N_VOTE_WIDTHS, *out.shape[1:])
        of_voters = used[:n_votes].reshape(-1, N_VOTE_WIDTHS).any(axis=1)
        for number in np.flatnonzero(of_voters).tolist():
            votes[number] = self.log_ratios_of_neighbors(X, number)
        of_memories = used[n_votes:]
        if histograms is not None and of_memories.any():
            out[n_votes:][of_memories] = self._log_ratios_of_histograms(X, of_memories)
        return out

    def log_ratios_of_neighbors(self, X: np.ndarray, number: int) -> np.ndarray:
        """Votes for all classes (n_widths, n, n_classes); zero for those without samples."""
        classes = self.classes
        neighbors = classes.snapshot.get(
            ("neighbors", number), self.settings.key, lambda: self._neighbors(number)
        )
        seen = classes.are_seen()
        out = np.zeros((N_VOTE_WIDTHS, len(X), len(seen)))
        parts = in_parts(np.arange(len(X)))
        logs = classes.in_threads(lambda part: neighbors.log_ratios(X[part]), parts)
        out[..., seen] = np.concatenate(logs, axis=1)
        return out

    def _neighbors(self, number: int) -> Neighbors:
        """What votes: the components of all classes, or rows."""
        classes, settings, calibration = self.classes, self.settings, self.calibration
        discriminants, distance = self.discriminants(), settings.distance_of_voters(number)
        metric = classes.snapshot.lasting(
            ("metric", distance),
            (discriminants.linear[0], discriminants.counts, settings.feature_weights),
            lambda: neighbor_metric(discriminants, settings, distance),
        )
        codes = classes.seen_codes()
        rows = classes.snapshot.get(
            "voting rows",
            settings.key,
            lambda: voting_rows(calibration.newest, calibration.sample, classes.states(), settings),
        )
        if number in rows:
            kept = rows[number]

            def of_kept() -> Neighbors:
                chosen = kept and kept.of_classes(np.array(codes))
                return kept_neighbors(chosen, len(codes), settings, metric)

            return classes.snapshot.lasting(("kept neighbors", number), (metric, kept), of_kept)

        def make(density: OnlineKDEDensity) -> tuple[Mixture, np.ndarray]:
            voters = voters_of(density._state, settings, number)
            return voters, metric.points(voters.means)

        of_each = classes.of_each(("voters", number), metric, codes, make)
        voters, points = zip(*of_each, strict=True)
        return Neighbors.of(voters, metric, points)

    def _log_ratios_of_histograms(self, X: np.ndarray, of_memories: np.ndarray) -> np.ndarray:
        """By some of the memories, of all classes (n_chosen, n, n_classes)."""
        classes, key = self.classes, (self.settings.histograms, tuple(of_memories.tolist()))

        def make() -> tuple[Histograms, np.ndarray]:
            chosen = self.settings.histograms.of_memories(of_memories)
            return chosen, chosen.bin_log_ratios()

        histograms, of_bins = classes.snapshot.lasting("histograms", key, make)
        parts = in_parts(np.arange(len(X)))
        logs = classes.in_threads(
            lambda part: histograms.log_ratios(X[part], of_bins=of_bins), parts
        )
        return np.concatenate(logs, axis=1)
