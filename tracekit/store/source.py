"""Polars frames as DuckDB reads them: each scan collects the columns that it needs, and no other library is loaded.

Owns the seam between the two engines. DuckDB's own way to read a lazy frame goes through pyarrow, whose import would
cost more than most answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_BASE: Any
try:
    from duckdb import _sources

    _BASE = _sources.ArrowScanSource
except (ImportError, AttributeError):  # it is not where it was; DuckDB takes lazy frames as they are, only slower
    _BASE = object

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl


def source_of(frame: pl.LazyFrame | pl.DataFrame, *, is_at_hand: bool = True) -> object:
    """Return what DuckDB is to register for a frame; one that is at hand tells its rows without being made."""
    lazy = frame.lazy()
    if _BASE is object:
        return lazy
    return _Counted(lazy) if is_at_hand else _Frame(lazy)


class _Frame(_BASE):  # type: ignore[misc]
    """A lazy frame, narrowed and collected once a scan."""

    schema_is_stable = True
    obj: pl.LazyFrame

    def __arrow_c_schema__(self) -> object:
        return self.obj.collect_schema().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.obj.collect().__arrow_c_stream__(requested_schema)

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Any]) -> tuple[object, bool]:  # noqa: ARG002
        """Return the rows as an Arrow stream, and whether it holds these columns alone; it filters nothing."""
        import polars as pl

        # A frame without columns has no rows, so that a request for none reads them all.
        plan = self.obj.select([pl.nth(place) for place in columns]) if columns else self.obj
        return plan.collect().__arrow_c_stream__(None), bool(columns)


class _Counted(_Frame):
    """A frame that tells the engine's planner how many rows it has, so that it hashes the smaller side of a join."""

    _rows: int | None = None

    def rows(self) -> int:
        """Return how many rows a scan gives."""
        import polars as pl

        if self._rows is None:
            self._rows = self.obj.select(pl.len()).collect().item()
        return self._rows
