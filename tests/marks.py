"""Which cases of exhaustive tests run each time, and which only where they are asked for."""

import pytest


def quick(values, n=1):
    """Values, or tuples of them, of which the first n are in the quick run, the others slow."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if i < n else pytest.mark.slow,
        )
        for i, value in enumerate(values)
    ]
