"""The mixture engine: pure functions of plain arrays, one file per step of the paper."""
