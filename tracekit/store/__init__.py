"""A run in DuckDB, shut in: the only room that knows DuckDB.

`Store` holds a run's tables behind the views of schema.sql and answers one SELECT at a time.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import duckdb

from tracekit.errors import TracekitError
from tracekit.loading.opening import Tables
from tracekit.store.definitions import Definitions
from tracekit.store.schema import Column, Relation, comment_statements, schema, tables
from tracekit.store.views import PHASES, Selection
from tracekit.store.wall import Limits, TooMuchMemory, connect, fault, get_ready, held, one_select

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from tracekit.attention.devices.lookups import Lookup
    from tracekit.store.wall import Answer

__all__ = ["PHASES", "Column", "Limits", "Relation", "Selection", "Store", "TooMuchMemory", "get_ready", "schema"]

_HELD = "_held"
_NO_TABLE_HOLDS = re.compile(r"\bINTERVAL\b|\bUNION\(")
_CATALOG = re.compile(
    r"duckdb_|information_schema|pragma_|pg_|sqlite_|\b(?:show|describe|summarize)\b|\(\s*desc\b", re.IGNORECASE
)


class Store:
    """The tables of one run, ready for questions. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        frames: Mapping[str, pl.LazyFrame | pl.DataFrame],
        selection: Selection | None = None,
        limits: Limits | None = None,
        lookups: Mapping[str, Lookup] | None = None,
    ) -> None:
        """Put views over `frames`, by name of the schema; a table or column that is missing is empty.

        `lookups` are tables to be made of these. Raises TracekitError if the selection names a step or rank that the
        run has not.
        """
        from tracekit.store.source import Files

        self.selection = selection or Selection()
        self.limits = limits or Limits()
        self._tables = frames if isinstance(frames, Tables) else Tables.of(frames)
        files = Files(self._tables, [relation.name for relation in tables()])
        self._con = connect(self.limits, files)
        self._cursors: set[duckdb.DuckDBPyConnection] = set()
        self._is_commented = False
        self._definitions = Definitions(self._con, files, self.selection, lookups or {})
        self._check_selection()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back."""
        self._con.close()

    def _check_selection(self) -> None:
        chosen = self.selection
        if chosen.ranks:
            self._check_known("rank", chosen.ranks, "rank", "trace")
        if chosen.steps:
            self._check_known("step", chosen.steps, "number", "step")

    def _check_known(self, what: str, asked: frozenset[int], column: str, table: str) -> None:
        known = _numbers(self._tables.get(table), column)
        if missing := sorted(asked - set(known)):
            shown = ", ".join(map(str, known[:12])) + (", ..." if known[12:] else "")
            remedy = f"it has {shown}" if known else f"its trace does not number any {what}"
            raise TracekitError(f"the run has no {what} {missing[0]}", remedy)

    def ask(self, sql: str, params: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Run one SELECT that anybody may have written, with named parameters, and return its rows.

        Raises TracekitError if the text is anything else, doesn't bind, fails, or goes over its limits.
        """
        text = one_select(sql, self._con)
        if _CATALOG.search(text):
            self._definitions.make_all()
            if not self._is_commented:  # only the engine's catalog shows them
                self._con.execute(comment_statements())
                self._is_commented = True
        self._definitions.make(text)
        answer = (self._con, lambda: self._checked_rows(text, dict(params or {})))
        try:
            frame: pl.DataFrame = self._held([answer])[0]
        except TracekitError as error:
            if not isinstance(error.__cause__, duckdb.CatalogException) or self._definitions.are_whole:
                raise
            self._definitions.make_all()  # it was named as only the engine can read, or its neighbours are to be told
            frame = self._held([answer])[0]
        return frame

    def own(self, sql: str, params: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Run one SELECT of tracekit's own, which needs no check, and return its rows; threads may do so at once.

        Raises TracekitError if it fails, or goes over its limits.
        """
        return self.beside(sql, params, ())[0]

    def beside(
        self,
        sql: str,
        params: Mapping[str, Any] | None,
        others: Sequence[tuple[str, Mapping[str, Any] | None]],
    ) -> tuple[pl.DataFrame, list[tuple[Any, ...] | None]]:
        """Run a SELECT of tracekit's own as `own` does, others at its side: its rows, and the first row of each other.

        One without rows gives None.
        """
        asked = [(sql, params), *others]
        cursors = [self._con.cursor() for _ in asked]
        self._cursors.update(cursors)
        for text, _ in asked:
            self._definitions.make(text)
        takers = [_rows, *[_first_row] * len(others)]
        try:
            frame, *rows = self._held(
                [
                    (cursor, partial(take, cursor, text, values))
                    for take, cursor, (text, values) in zip(takers, cursors, asked, strict=True)
                ]
            )
        finally:
            for cursor in cursors:
                self._cursors.discard(cursor)
                cursor.close()
        return frame, rows

    def interrupt(self) -> None:
        """Stop what other threads ask by `own` and `beside` at this moment; they raise TracekitError."""
        for cursor in tuple(self._cursors):
            with suppress(duckdb.Error):  # it may have been closed since
                cursor.interrupt()

    def _held(self, answers: Sequence[Answer]) -> list[Any]:
        try:
            return held(self.limits, answers)
        except (duckdb.Error, OSError) as error:  # rows that are read in pieces fail with OSError, in DuckDB's words
            raise fault(str(error), self.limits) from error

    def _checked_rows(self, text: str, values: dict[str, Any]) -> pl.DataFrame:
        # Only a SELECT binds as a subquery, whatever its type was said to be.
        columns = self._con.sql(f"describe select * from (\n{text}\n)", params=values).fetchall()
        for name, kind, *_ in columns:
            if _NO_TABLE_HOLDS.search(kind):
                problem = f"column {name} is of type {kind}, which no table holds"
                raise TracekitError(problem, "cast it, as in x::varchar")
        frame = _rows(self._con, text, values)
        return frame.rename(dict(zip(frame.columns, (column[0] for column in columns), strict=True)))

    def frame(self, table: str) -> pl.LazyFrame:
        """Return a table of the selected ranks, whatever steps and phases are selected: sooner than SQL answers.

        A column of the schema that is missing is null.
        """
        import polars as pl

        names = [column.name for relation in tables() if relation.name == table for column in relation.columns]
        if table not in self._tables:
            return pl.LazyFrame(schema=dict.fromkeys(names, pl.Null))
        rows = self._tables[table].lazy()
        present = rows.collect_schema()
        every = rows.select(name if name in present else pl.lit(None).alias(name) for name in names)
        ranks = self.selection.ranks
        if not ranks:
            return every
        if table == "trace":
            return every.filter(pl.col("rank").is_in(ranks))
        return every.join(self.frame("trace").select("trace_id"), on="trace_id", how="semi")

    def scalar(self, sql: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row of a SELECT of our own, or None where there is no row."""
        frame = self.own(sql, params)
        return frame.row(0)[0] if frame.height else None

    def holds(self, table: str, column: str) -> bool:
        """Return whether a column of a table has any value in the selected part of the run."""
        sources = _WORK if (table, column) == ("work", "dur_ns") else {table: column}
        if self.selection.is_whole and all(name in self._tables for name in sources):
            return any(_has_values(self._tables[name], source) for name, source in sources.items())
        return self.scalar(f'select 1 from {table} where "{column}" is not null limit 1') is not None


def _rows(con: duckdb.DuckDBPyConnection, text: str, values: Mapping[str, Any] | None) -> pl.DataFrame:
    import polars as pl

    # The rows are held by the engine first, which keeps to its limit of memory as no reader of a stream would.
    con.execute(f"create or replace temp table {_HELD} as\n{text}", dict(values or {}))
    try:
        return pl.DataFrame(con.sql(f"select * from {_HELD}"))
    finally:
        con.execute(f"drop table {_HELD}")


def _first_row(con: duckdb.DuckDBPyConnection, text: str, values: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = con.execute(text, dict(values or {})).fetchone()
    return row


def _numbers(frame: pl.LazyFrame | pl.DataFrame | None, column: str) -> list[int]:
    if frame is None or column not in frame.collect_schema():
        return []
    return sorted(frame.lazy().select(column).collect().to_series().drop_nulls().unique().to_list())


_WORK = {"kernel": "dur_ns", "op": "self_ns"}
"""What work is made of: a table that is there, and a column, are asked sooner than the view."""


def _has_values(frame: pl.LazyFrame | pl.DataFrame, column: str) -> bool:
    import polars as pl

    if column not in frame.collect_schema():
        return False
    return bool(frame.lazy().select(pl.col(column).is_not_null().any()).collect().item())
