"""Displays of densities, which need matplotlib: ``pip install "skokde[plot]"``."""

from skokde.plot._density_display import DensityDisplay

__all__ = ["DensityDisplay"]
