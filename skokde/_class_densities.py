"""The densities of a classifier's classes: which have samples, and what is made of each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from skokde._base import Snapshot
from skokde._calibration import Makers, Mapper, PendingBatch
from skokde._density import OnlineKDEDensity
from skokde._engine.shrinkage import pooled_within_covariance
from skokde._engine.state import Settings, State


class ClassDensities(NamedTuple):
    """Densities of all classes, at one time.

    Attributes
    ----------
    estimators : list of OnlineKDEDensity
        One for each class. One that learns is replaced.
    snapshot : Snapshot
        What has been made of them.
    in_threads : callable
        See `Calibration.update_at_checkpoint`.
    """

    estimators: list[OnlineKDEDensity]
    snapshot: Snapshot
    in_threads: Mapper

    def are_seen(self) -> np.ndarray:
        """Which classes (n_classes,) have a sample."""

        def make() -> np.ndarray:
            codes = range(len(self.estimators))
            return np.array(
                self.of_each("fitted", None, codes, OnlineKDEDensity.__sklearn_is_fitted__)
            )

        return self.snapshot.get("seen", None, make)

    def seen_codes(self) -> list[int]:
        """Numbers of the classes with a sample."""
        return np.flatnonzero(self.are_seen()).tolist()

    def seen(self) -> list[OnlineKDEDensity]:
        """The estimators of these."""
        return list(compress(self.estimators, self.are_seen()))

    def states(self) -> list[State | None]:
        """None for classes without a sample."""
        return [e._state if e.__sklearn_is_fitted__() else None for e in self.estimators]

    def of_each(
        self,
        name: Any,
        key: Any,
        codes: Sequence[int],
        function: Callable[[OnlineKDEDensity], Any],
    ) -> list[Any]:
        """Results for the densities of some classes; most are as they were a row before.

        Parameters
        ----------
        name, key : objects
            See `Snapshot.lasting`; the results depend on nothing but the key and the density.
        codes : sequence of int
            Numbers of the classes.
        function : callable
        """
        densities, held = self.estimators, self.snapshot.lasting(name, key, dict)
        known = {c: result for c, (of, result) in tuple(held.items()) if of() is densities[c]}
        new = [c for c in codes if c not in known]
        if new:
            for c in new:  # first, so that it does not take memory beside the new one
                held.pop(c, None)
            results = self.in_threads(lambda c: function(densities[c]), new)
            known.update(zip(new, results, strict=True))
            # Of a density that has been replaced nothing else is kept.
            held.update((c, (ref(densities[c]), known[c])) for c in new)
        return [known[c] for c in codes]

    def within_covariance(self, *, keeps_noise: bool) -> np.ndarray:
        """The covariance within the classes, of all samples: the prior for those of each class."""

        def make() -> np.ndarray:
            moments = [e._inlier_moments() for e in self.seen()]
            return pooled_within_covariance(moments, keeps_noise=keeps_noise)

        return self.snapshot.get("shared covariance", keeps_noise, make)

    def when_window_began(self, pending: PendingBatch | None) -> list[OnlineKDEDensity]:
        """The densities from then: a row may have been predicted by them already.

        They are those of now if this is asked for the first time.
        """
        start, densities = (None, []) if pending is None else (pending.start, self.estimators)
        return self.snapshot.lasting("window", start, lambda: densities)

    def makers(self, pending: PendingBatch | None) -> Makers:
        """What predicts a window's rows, of which the densities from when it began know a part."""

        def made(ask: Callable[..., Any], make: Callable[..., Any]) -> Callable[..., Any]:
            def of_class(code: int, state: State, settings: Settings) -> Any:
                before = density_of(state, self.when_window_began(pending))
                later = self.estimators[code]
                if before is None:
                    return make(later, state, settings)
                with before._handing_on(later, settings):
                    return ask(before, settings)

            return of_class

        return Makers(
            made(OnlineKDEDensity._class_density, OnlineKDEDensity._class_density_of),
            made(OnlineKDEDensity._discriminant_moments, OnlineKDEDensity._discriminant_moments_of),
        )


def density_of(state: State, densities: Sequence[OnlineKDEDensity]) -> OnlineKDEDensity | None:
    """The one that has this state, if it is among them."""
    for density in densities:
        if vars(density).get("_state") is state:
            return density
    return None
