"""A run's tables as files that DuckDB reads, in memory: no path of the machine is opened for a question.

Owns the seam between a bundle's bytes and the engine, which reads Parquet itself and of it what a question needs.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from fsspec import AbstractFileSystem

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.loading.opening import Tables

_NEVER = datetime(1980, 1, 1, tzinfo=UTC)


class Files(AbstractFileSystem):  # type: ignore[misc]
    """Files by path, which can be read and not written."""

    protocol: ClassVar[str] = "tracekit"
    cachable: ClassVar[bool] = False  # each run has its own

    def __init__(self, tables: Tables, names: Collection[str]) -> None:
        """Hold of `tables` those of these names; each is made when it is first asked for."""
        super().__init__()
        self._tables = tables
        self._names = [name for name in names if name in tables]
        self._content: dict[str, bytes] = {}

    @property
    def every_path(self) -> list[str]:
        """The paths of all that may be read."""
        return [path for table in self._names for path in self._paths(table)]

    def rows_of(self, table: str) -> str:
        """Have a table ready to be read, and return what SQL selects its rows from; nothing if there is none."""
        if table not in self._names:
            return ""
        paths = self._paths(table)
        if self._strip_protocol(paths[0]) not in self._content:
            for path, content in zip(paths, self._tables.parts(table), strict=True):
                self._content[self._strip_protocol(path)] = content
        return f"read_parquet({paths}, hive_partitioning = false)"

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
        return [f"{self.protocol}://_{table}/{part}.parquet" for part in range(self._tables.count(table))]

    def _bytes(self, path: str) -> bytes:
        try:
            return self._content[self._strip_protocol(path)]
        except KeyError:
            raise FileNotFoundError(path) from None
