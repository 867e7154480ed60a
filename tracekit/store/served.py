"""A run's tables as a file system of Python's that DuckDB reads by paths of its own.

Owns how each of its calls is answered: there is nothing to write to, and no pattern to match.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from fsspec import AbstractFileSystem

from tracekit.store.source import reading, uniting

if TYPE_CHECKING:
    import duckdb

    from tracekit.loading.opening import Tables

_NEVER = datetime(1980, 1, 1, tzinfo=UTC)


class Served(AbstractFileSystem):  # type: ignore[misc]
    """Files by path, which can be read and not written."""

    protocol: ClassVar[str] = "tracekit"
    cachable: ClassVar[bool] = False  # each run has its own

    def __init__(self, tables: Tables, counts: dict[str, int]) -> None:
        """Hold so many files of each table, which is made when it is first asked for."""
        super().__init__()
        self._tables = tables
        self._counts = counts
        self._content: dict[str, bytes] = {}

    def let_in(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let a database read these files, and nothing else once its external access is off."""
        con.register_filesystem(self)
        con.execute(f"set allowed_paths = {[path for table in self._counts for path in self._paths(table)]}")

    def rows_of(self, table: str) -> str:
        """Have a table ready to be read, and return what SQL selects its rows from; nothing if there is none."""
        if table not in self._counts:
            return ""
        paths = self._paths(table)
        if self._strip_protocol(paths[0]) not in self._content:
            for path, content in zip(paths, self._tables.parts(table), strict=True):
                self._content[self._strip_protocol(path)] = content
        return reading(paths)

    def united(self, table: str) -> str:
        """Return what SQL selects the rows of a table of several files from by all of their columns, else nothing."""
        return uniting(self._paths(table)) if self._counts[table] > 1 else ""

    def tables_named(self, said: str) -> list[str]:
        """Return the tables whose files the engine's words name."""
        return [table for table in self._counts if any(path in said for path in self._paths(table))]

    def close(self) -> None:
        """Give the memory back."""
        self._content.clear()

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.BytesIO:
        """Open a file to read it. Raises PermissionError for any other mode, FileNotFoundError for what is none."""
        if mode != "rb":
            raise PermissionError(path)
        return io.BytesIO(self._bytes(path))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return what a file is. Raises FileNotFoundError."""
        return {"name": path, "size": len(self._bytes(path)), "type": "file"}

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether there is such a file."""
        return self._strip_protocol(path) in self._content

    isfile = exists

    def glob(self, path: str, **_: Any) -> list[str]:
        """Return a path if there is such a file: none is a pattern."""
        return [path] if self.exists(path) else []

    def modified(self, path: str) -> datetime:  # noqa: ARG002
        """Return a time that never changes, as no file does."""
        return _NEVER

    created = modified

    def _paths(self, table: str) -> list[str]:
        return [f"{self.protocol}://_{table}/{part}.parquet" for part in range(self._counts[table])]

    def _bytes(self, path: str) -> bytes:
        try:
            return self._content[self._strip_protocol(path)]
        except KeyError:
            raise FileNotFoundError(path) from None
