"""The tables of a bundle: how they are set down, and how they are made ready to be asked.

Owns the way between frames and a bundle's entries. Every question goes through it, so it imports little.
"""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING

import polars as pl

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tracekit import bundle


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


def tables_in(ready: bundle.Bundle) -> dict[str, pl.LazyFrame]:
    """Return a bundle's tables by name. Raises TracekitError if it has none, or one is damaged."""
    return scanned({entry: ready.read(entry) for entry in ready.names("tables/")}, str(ready.path))


def scanned(entries: Mapping[str, bytes], shown: str) -> dict[str, pl.LazyFrame]:
    """Return tables from the content of a bundle's entries; `shown` is what messages call it. Raises TracekitError."""
    parts: dict[str, dict[str, IO[bytes]]] = {}
    for entry, content in entries.items():
        table = entry.removeprefix("tables/").split("/")[0].removesuffix(".parquet")
        parts.setdefault(table, {})[entry] = io.BytesIO(content)
    scans = {}
    for name, held in parts.items():
        scans[name] = pl.scan_parquet(list(held.values()))
        try:
            scans[name].collect_schema()
            if len(held) > 1:  # the schema is that of the first one
                scans[name].select(pl.len()).collect()
        except pl.exceptions.PolarsError as error:
            raise _damaged(held, shown) from error
    if "trace" not in scans or not scans["trace"].select(pl.len()).collect().item():
        raise TracekitError(f"{shown} holds no tables", "load the trace again with this version of tracekit")
    return scans


def _damaged(held: Mapping[str, IO[bytes]], shown: str) -> TracekitError:
    """Return what to say of the first entry that is no Parquet file."""
    for entry, content in held.items():
        content.seek(0)
        try:
            pl.read_parquet_schema(content)
        except pl.exceptions.PolarsError:
            return TracekitError(f"{shown}: entry {entry} is no Parquet file", "load the trace again")
    return TracekitError(f"{shown}: the parts of a table differ", "load the trace again")
