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


def source_of(frame: pl.LazyFrame | pl.DataFrame, counted: pl.LazyFrame | pl.DataFrame | None) -> object:
    """Return what DuckDB is to register for a frame; `counted` has about as many rows, and is quick to count."""
    lazy = frame.lazy()
    return lazy if _BASE is object else _Frame(lazy, counted)


class _Frame(_BASE):  # type: ignore[misc]
    """A lazy frame, narrowed and collected once a scan."""

    schema_is_stable = True
    obj: pl.LazyFrame

    def __init__(self, frame: pl.LazyFrame, counted: pl.LazyFrame | pl.DataFrame | None) -> None:
        super().__init__(frame)
        self._counted = counted
        self._rows: int | None = None

    def rows(self) -> int | None:
        """Return about how many rows a scan gives, so that the planner hashes the smaller side of a join."""
        import polars as pl

        if self._rows is None and self._counted is not None:
            self._rows = self._counted.lazy().select(pl.len()).collect().item()
        return self._rows

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
