"""The tables of a bundle: how they are set down, and how they are made ready to be asked.

Owns the way between frames and a bundle's entries. Every question goes through it, so it imports little.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import partial
from typing import IO, TYPE_CHECKING

import polars as pl

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


class Tables(Mapping[str, pl.LazyFrame]):
    """Tables by name, each made when it is first asked for: a question asks for few."""

    def __init__(
        self, makers: Mapping[str, Callable[[], pl.LazyFrame]], made: Mapping[str, pl.LazyFrame] | None = None
    ) -> None:
        """Hold tables to be made, and those that are made already."""
        self._makers = makers
        self._made = dict(made or {})
        self._names = [*makers, *self._made]

    def __getitem__(self, name: str) -> pl.LazyFrame:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def tables_in(ready: bundle.Bundle) -> Tables:
    """Return a bundle's tables by name. Raises TracekitError if it has none, or an entry is damaged."""
    return scanned({entry: ready.read(entry) for entry in ready.names("tables/")}, str(ready.path))


def scanned(entries: Mapping[str, bytes], shown: str) -> Tables:
    """Return tables from the content of a bundle's entries; `shown` is what messages call it.

    Raises TracekitError if there are none, and for a table that is no Parquet once that is asked for.
    """
    parts: dict[str, dict[str, IO[bytes]]] = {}
    for entry, content in entries.items():
        table = entry.removeprefix("tables/").split("/")[0].removesuffix(".parquet")
        parts.setdefault(table, {})[entry] = io.BytesIO(content)
    tables = Tables({name: partial(_scan, held, shown) for name, held in parts.items()})
    if "trace" not in tables or not tables["trace"].select(pl.len()).collect().item():
        raise TracekitError(f"{shown} holds no tables", "load the trace again with this version of tracekit")
    return tables


def _scan(held: Mapping[str, IO[bytes]], shown: str) -> pl.LazyFrame:
    frame = pl.scan_parquet(list(held.values()))
    try:
        frame.collect_schema()
        if len(held) > 1:  # the schema is that of the first one
            frame.select(pl.len()).collect()
    except pl.exceptions.PolarsError as error:
        raise _damaged(held, shown) from error
    return frame


def _damaged(held: Mapping[str, IO[bytes]], shown: str) -> TracekitError:
    """Return what to say of the first entry that is no Parquet file."""
    for entry, content in held.items():
        content.seek(0)
        try:
            pl.read_parquet_schema(content)
        except pl.exceptions.PolarsError:
            return TracekitError(f"{shown}: entry {entry} is no Parquet file", "load the trace again")
    return TracekitError(f"{shown}: the parts of a table differ", "load the trace again")
