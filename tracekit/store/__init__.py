"""A run in DuckDB, shut in: the only room that knows DuckDB.

`Store` holds a run's tables behind the views of schema.sql and answers one SELECT at a time.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import duckdb

from tracekit.errors import TracekitError
from tracekit.store.schema import Column, Relation, comment_statements, schema, tables, view_statements
from tracekit.store.source import source_of
from tracekit.store.views import PHASES, Selection, view
from tracekit.store.wall import SHUT, Limits, connect, fault, held, one_select

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

    from tracekit.store.wall import Answer

__all__ = ["PHASES", "Column", "Limits", "Relation", "Selection", "Store", "schema"]

_HELD = "_held"
_OF_ANY_STEP = ("kernel", "launch", "other_event")
"""Tables that a view shows whatever steps are selected: work of one step may wait for calls of another."""
_NO_TABLE_HOLDS = re.compile(r"\bINTERVAL\b|\bUNION\(")
_WORD = re.compile(r"\w+")
_CATALOG = re.compile(r"duckdb_|information_schema|pragma_|pg_", re.IGNORECASE)


class Store:
    """The tables of one run, ready for questions. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        frames: Mapping[str, pl.LazyFrame | pl.DataFrame],
        selection: Selection | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Put views over `frames`, by name of the schema; a table or column that is missing is empty.

        Raises TracekitError if the selection names a step or rank that the run has not.
        """
        self.selection = selection or Selection()
        self.limits = limits or Limits()
        self._con = connect(self.limits)
        self._is_commented = False
        self._sources: dict[str, str] = {}
        self._frames = dict(frames)
        self._registered: dict[str, object] = {}
        self._reads: dict[str, set[str]] = {}
        for statement in self._views(frames):
            self._con.execute(statement)
            self._reads[statement.split(" ", 3)[2].partition("(")[0]] = set(_WORD.findall(statement))
        for setting in SHUT:
            self._con.execute(setting)
        self._check_selection()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back."""
        self._con.close()

    def _views(self, frames: Mapping[str, pl.LazyFrame | pl.DataFrame]) -> Iterator[str]:
        for relation in tables():
            source, present = "(select 1 where false)", set[str]()
            if relation.name in frames:
                source, present = f"_{relation.name}", set(frames[relation.name].collect_schema())
                self._registered[source] = source_of(frames[relation.name])
                self._con.register(source, self._registered[source])
            self._sources[relation.name] = source
            yield view(relation, source, present, self.selection)
            if relation.name in _OF_ANY_STEP:
                yield view(relation, source, present, self.selection, f"{relation.name}_of_any_step")
        is_device_alone = _all_have_devices(frames.get("trace"))
        for statement in view_statements():
            if is_device_alone and statement.startswith("create view cpu_op "):
                yield "create view cpu_op as select * from op where false"  # so that ops are not even looked at
            elif is_device_alone and statement.startswith("create view work "):
                yield statement.partition("union all by name")[0]
            elif "_of_any_step as select * from" not in statement:
                yield statement

    def _check_selection(self) -> None:
        chosen = self.selection
        if chosen.ranks:
            self._check_known("rank", chosen.ranks, "rank", "trace")
        if chosen.steps:
            self._check_known("step", chosen.steps, "number", "step")

    def _check_known(self, what: str, asked: frozenset[int], column: str, table: str) -> None:
        sql = f"select distinct {column} as n from {self._sources[table]} where n is not null order by n"
        known = [int(row[0]) for row in self.own(sql).iter_rows()]
        if missing := sorted(asked - set(known)):
            shown = ", ".join(map(str, known[:12])) + (", ..." if known[12:] else "")
            remedy = f"it has {shown}" if known else f"its trace does not number any {what}"
            raise TracekitError(f"the run has no {what} {missing[0]}", remedy)

    def ask(self, sql: str, params: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Run one SELECT that anybody may have written, with named parameters, and return its rows.

        Raises TracekitError if the text is anything else, doesn't bind, fails, or goes over its limits.
        """
        text = one_select(sql, self._con)
        if not self._is_commented and _CATALOG.search(text):  # only the engine's catalog shows them
            self._con.execute(comment_statements())
            self._is_commented = True
        return self._held([(self._con, lambda: self._checked_rows(text, dict(params or {})))])[0]

    def own(self, sql: str, params: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Run one SELECT of tracekit's own, which needs no check, and return its rows.

        Raises TracekitError if it fails, or goes over its limits.
        """
        return self._held([(self._con, lambda: _rows(self._con, sql, params))])[0]

    def several(self, asked: Sequence[tuple[str, Mapping[str, Any] | None]]) -> list[pl.DataFrame]:
        """Run some SELECTs of tracekit's own side by side, as `own` does, and return the rows of each."""
        cursors = [self._con.cursor() for _ in asked]
        for cursor, (sql, _) in zip(cursors, asked, strict=True):
            for source in self._sources_of(sql):
                cursor.register(source, self._registered[source])  # a connection knows only its own
        try:
            return self._held(
                [
                    (cursor, partial(_rows, cursor, sql, params))
                    for cursor, (sql, params) in zip(cursors, asked, strict=True)
                ]
            )
        finally:
            for cursor in cursors:
                cursor.close()

    def _sources_of(self, sql: str) -> set[str]:
        """Return what is registered that a SELECT of our own reads, through whatever views."""
        found, new = set[str](), set(_WORD.findall(sql))
        while new:
            found |= new
            new = set().union(*(self._reads.get(name, ()) for name in new)) - found
        return found & self._registered.keys()

    def _held(self, answers: Sequence[Answer]) -> list[pl.DataFrame]:
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

    def scalar(self, sql: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row of a SELECT of our own, or None where there is no row."""
        frame = self.own(sql, params)
        return frame.row(0)[0] if frame.height else None

    def holds(self, table: str, column: str) -> bool:
        """Return whether a column of a table has any value in the selected part of the run."""
        sources = _WORK if (table, column) == ("work", "dur_ns") else {table: column}
        if self.selection.is_whole and all(name in self._frames for name in sources):
            return any(_has_values(self._frames[name], source) for name, source in sources.items())
        return self.scalar(f'select 1 from {table} where "{column}" is not null limit 1') is not None


def _rows(con: duckdb.DuckDBPyConnection, text: str, values: Mapping[str, Any] | None) -> pl.DataFrame:
    import polars as pl

    # The rows are held by the engine first, which keeps to its limit of memory as no reader of a stream would.
    con.execute(f"create or replace temp table {_HELD} as\n{text}", dict(values or {}))
    try:
        return pl.DataFrame(con.sql(f"select * from {_HELD}"))
    finally:
        con.execute(f"drop table {_HELD}")


def _all_have_devices(trace: pl.LazyFrame | pl.DataFrame | None) -> bool:
    if trace is None or "has_device" not in trace.collect_schema():
        return False
    flags = trace.lazy().select("has_device").collect().to_series()
    return len(flags) > 0 and flags.null_count() == 0 and bool(flags.all())


_WORK = {"kernel": "dur_ns", "op": "self_ns"}
"""What work is made of: a table that is there, and a column, are asked sooner than the view."""


def _has_values(frame: pl.LazyFrame | pl.DataFrame, column: str) -> bool:
    import polars as pl

    if column not in frame.collect_schema():
        return False
    return bool(frame.lazy().select(pl.col(column).is_not_null().any()).collect().item())
