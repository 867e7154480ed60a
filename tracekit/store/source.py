"""A run's tables as files in memory that DuckDB reads: no path of the machine is opened for a question.

Owns the seam between a bundle's bytes and the engine, which reads Parquet itself and of it what a question needs.
Linux gives files without a name, which no GIL stands before; elsewhere, and for a run of very many files, Python
serves them as a file system of its own.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import duckdb

    from tracekit.loading.opening import Tables

_MOST_NAMELESS = 256
"""Files without a name that a run may have: a process has 1,024 in all by default."""
_OPEN_FILES = "/proc/self/fd"


class Source(Protocol):
    """Tables as files, each ready to be read once its rows are asked for."""

    def let_in(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let a database read these files, and nothing else once its external access is off."""

    def rows_of(self, table: str) -> str:
        """Have a table ready to be read, and return what SQL selects its rows from; nothing if there is none."""

    def united(self, table: str) -> str:
        """Return what SQL selects the rows of a table of several files from by all of their columns, else nothing."""

    def tables_named(self, said: str) -> list[str]:
        """Return the tables whose files the engine's words name."""

    def close(self) -> None:
        """Give the memory back."""


def source_of(tables: Tables, names: Iterable[str]) -> Source:
    """Return of `tables` those of these names, as files."""
    held = {name: tables.count(name) for name in names if name in tables}
    if hasattr(os, "memfd_create") and sum(held.values()) <= _MOST_NAMELESS and os.path.isdir(_OPEN_FILES):  # noqa: PTH112
        with suppress(OSError):  # the system has no more of them, or forbids them
            return Nameless(tables, held)
    from tracekit.store.served import Served  # fsspec is slow to import

    return Served(tables, held)


class Nameless:
    """Files of Linux that have no name; each is sealed against writing once it is filled."""

    def __init__(self, tables: Tables, counts: dict[str, int]) -> None:
        """Hold so many files of each table. Raises OSError if the system gives no more of them."""
        self._tables = tables
        self._empty = set(counts)
        self._files: dict[str, list[int]] = {name: [] for name in counts}
        self._finalize = weakref.finalize(self, _close, self._files)
        # The engine tells files apart by what they are called, here or in any other process.
        called, flags = os.urandom(16).hex(), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        try:
            for name, count in counts.items():
                for _ in range(count):
                    self._files[name].append(os.memfd_create(called, flags))
        except OSError:
            self.close()
            raise

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

    def united(self, table: str) -> str:
        """Return what SQL selects the rows of a table of several files from by all of their columns, else nothing."""
        return uniting(self._paths(table)) if len(self._files[table]) > 1 else ""

    def tables_named(self, said: str) -> list[str]:
        """Return the tables whose files the engine's words name."""
        return [table for table in self._files if any(path in said for path in self._paths(table))]

    def close(self) -> None:
        """Give the memory back."""
        self._finalize()

    def _paths(self, table: str) -> list[str]:
        return [f"{_OPEN_FILES}/{file}" for file in self._files[table]]


def reading(paths: Collection[str]) -> str:
    """Return what SQL selects the rows of these files from."""
    return f"read_parquet({[*paths]}, hive_partitioning = false)"


def uniting(paths: Collection[str]) -> str:
    """Return what SQL selects the rows of these files from by all of their columns, wherever one has them."""
    return f"read_parquet({[*paths]}, hive_partitioning = false, union_by_name = true)"


def _fill(file: int, content: bytes) -> None:
    import fcntl

    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)


def _close(files: Mapping[str, list[int]]) -> None:
    for file in chain.from_iterable(files.values()):
        os.close(file)
