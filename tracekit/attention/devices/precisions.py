"""In which number format a kernel multiplies, read from its name by the rows of precisions.toml.

Owns that reading alone; what the inputs were is said by the op around its launch.
"""

from __future__ import annotations

import re
from functools import cache

import polars as pl

from tracekit.attention.knowledge import load


@cache
def _rows() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(row["pattern"]), row["dtype"]) for row in load("devices/precisions")["precision"]]


@cache
def precision_of(kernel: str) -> str | None:
    """Return the format in which a kernel multiplies, by its name; None where it is no product or does not tell."""
    return next((dtype for pattern, dtype in _rows() if pattern.search(kernel)), None)


def compute_dtypes(names: pl.Series) -> pl.Series:
    """Return the format of each kernel by its name, in the order of the names."""
    found = {name: precision_of(name) for name in names.unique().to_list()}
    return pl.Series("compute_dtype", [found[name] for name in names.to_list()], dtype=pl.String)
