"""A run's tables as files in memory that DuckDB reads: no path of the machine is opened for a question.

Owns the seam between a bundle's bytes and the engine, which reads Parquet itself and of it what a question needs.
Linux gives files without a name, which no GIL stands before; elsewhere, and for a run of very many files, Python
serves them as a file system of its own.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import duckdb

    from tracekit.loading.opening import Tables

_MOST_NAMELESS = 256
"""Files without a name that a run may have: a process has 1,024 in all by default."""


class Source(Protocol):
    """Tables as files, each ready to be read once its rows are asked for."""

    def let_in(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let a database read these files, and nothing else once its external access is off."""

    def rows_of(self, table: str) -> str:
        """Have a table ready to be read, and return what SQL selects its rows from; nothing if there is none."""

    def tables_named(self, said: str) -> list[str]:
        """Return the tables whose files the engine's words name."""

    def close(self) -> None:
        """Give the memory back."""


def source_of(tables: Tables, names: Iterable[str]) -> Source:
    """Return of `tables` those of these names, as files."""
    held = {name: tables.count(name) for name in names if name in tables}
    if hasattr(os, "memfd_create") and sum(held.values()) <= _MOST_NAMELESS:
        return Nameless(tables, held)
    from tracekit.store.served import Served  # fsspec is slow to import

    return Served(tables, held)


class Nameless:
    """Files of Linux that have no name; each is sealed against writing once it is filled."""

    def __init__(self, tables: Tables, counts: dict[str, int]) -> None:
        """Hold so many files of each table."""
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self._tables = tables
        self._empty = set(counts)
        self._files = {name: [os.memfd_create(name, flags) for _ in range(count)] for name, count in counts.items()}
        self._finalize = weakref.finalize(self, _close, [file for files in self._files.values() for file in files])

    def let_in(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let a database read these files, and nothing else once its external access is off."""
        con.execute(f"set allowed_paths = {[path for name in self._files for path in self._paths(name)]}")

    def rows_of(self, table: str) -> str:
        """Have a table ready to be read, and return what SQL selects its rows from; nothing if there is none."""
        if table not in self._files:
            return ""
        if table in self._empty:
            for file, content in zip(self._files[table], self._tables.parts(table), strict=True):
                _fill(file, content)
            self._empty.remove(table)
        return reading(self._paths(table))

    def tables_named(self, said: str) -> list[str]:
        """Return the tables whose files the engine's words name."""
        return [table for table in self._files if any(path in said for path in self._paths(table))]

    def close(self) -> None:
        """Give the memory back."""
        self._finalize()

    def _paths(self, table: str) -> list[str]:
        return [f"/proc/self/fd/{file}" for file in self._files[table]]


def reading(paths: Collection[str]) -> str:
    """Return what SQL selects the rows of these files from."""
    return f"read_parquet({[*paths]}, hive_partitioning = false)"


def _fill(file: int, content: bytes) -> None:
    import fcntl

    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)
