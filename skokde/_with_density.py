"""What estimators share that learn one density and ask it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from skokde._base import BaseOnlineKDE, features_of
from skokde._density import DENSITY_PARAMETERS, OnlineKDEDensity
from skokde._persistence import expect
from skokde._summary import counted, density_line
from skokde._validation import check_settings


class BaseWithDensity(BaseOnlineKDE):
    """An estimator over `density_`, an :class:`OnlineKDEDensity` that gets its parameters."""

    density_: OnlineKDEDensity

    def _present_density(self) -> OnlineKDEDensity:
        """A copy of the density, empty before the first row, with the parameters as they are."""
        names = (*DENSITY_PARAMETERS, "n_jobs", "verbose")
        parameters = {name: getattr(self, name) for name in names}
        return getattr(self, "density_", OnlineKDEDensity())._copied(parameters)

    def _summary_lines(self) -> list[str]:
        return [density_line(self._present_density(), of=f" of {self._summary_of()}")]

    def _summary_of(self) -> str:
        """What a sample consists of."""
        return counted(self.n_features_in_, "feature")

    def _merge(self, models: Sequence[Self]) -> None:
        densities, density = [model.density_ for model in models], self._present_density()
        vars(density).update(features_of(densities[0]))
        settings = check_settings(self, density.n_features_in_)
        density._check_n_jobs()
        seen_before = max(one._n_samples_seen for one in densities)
        density._merge_states(densities, settings)
        density._warn_if_due(seen_before, settings, self)
        self.density_ = density

    def _drop_rows(self, min_samples: int) -> None:
        self.density_ = self.density_.without_rows(min_samples)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "density_") and self.density_.__sklearn_is_fitted__()

    def _restore(self) -> None:
        expect(type(self.density_) is OnlineKDEDensity, "density_", "a density")
