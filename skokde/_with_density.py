"""What estimators share that learn one density and ask it."""

from __future__ import annotations

from skokde._base import BaseOnlineKDE
from skokde._density import DENSITY_PARAMETERS, OnlineKDEDensity
from skokde._persistence import expect


class BaseWithDensity(BaseOnlineKDE):
    """An estimator over `density_`, an :class:`OnlineKDEDensity` that gets its parameters."""

    density_: OnlineKDEDensity

    def _present_density(self) -> OnlineKDEDensity:
        """A copy of the density, empty before the first row, with the parameters as they are."""
        parameters = {name: getattr(self, name) for name in (*DENSITY_PARAMETERS, "n_jobs")}
        return getattr(self, "density_", OnlineKDEDensity())._copied(parameters)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "density_") and self.density_.__sklearn_is_fitted__()

    def _restore(self) -> None:
        expect(type(self.density_) is OnlineKDEDensity, "density_", "a density")
