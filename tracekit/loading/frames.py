"""Tables as files: how loading sets them down for a bundle, and takes them up again.

Owns which texts a bundle holds as categories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from pathlib import Path

_REPEATED = (
    "name", "op_name", "kind", "phase", "family", "compute_dtype", "role", "role_confidence", "role_reason", "device",
    "pid", "tid", "category", "phase_letter", "unlinked_reason", "unlinked_cause",
)  # fmt: skip
"""Texts of which a table holds few different ones; as categories they are read, and grouped, in half the time."""


def set_down(frame: pl.DataFrame, path: Path) -> None:
    """Write a table, or a part of one, as a bundle holds it."""
    texts = [name for name in _REPEATED if frame.schema.get(name) == pl.String]
    frame.cast(dict.fromkeys(texts, pl.Categorical)).write_parquet(path, compression="zstd")


def taken_up(path: Path) -> pl.DataFrame:
    """Return a table, or a part of one, as it was before it was set down."""
    return pl.read_parquet(path).cast({pl.Categorical: pl.String})
