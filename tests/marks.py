"""Which cases of exhaustive tests run each time, and which only where they are asked for."""

import pytest


def quick(values, n=1):
    """Parameters of which the first n are in the quick run, and the others are marked as slow."""
    return [
        value if i < n else pytest.param(value, marks=pytest.mark.slow)
        for i, value in enumerate(values)
    ]
