"""A run in DuckDB, shut in: the only room that knows DuckDB.

`Store` holds a run's tables behind the views of schema.sql and answers one SELECT at a time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Self

import duckdb

from tracekit.errors import TracekitError
from tracekit.store.schema import Column, Relation, comment_statements, schema, tables, view_statements
from tracekit.store.source import source_of
from tracekit.store.views import PHASES, Selection, view
from tracekit.store.wall import SHUT, Limits, connect, fault, held, one_select

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

__all__ = ["PHASES", "Column", "Limits", "Relation", "Selection", "Store", "schema"]

_HELD = "_held"
_NO_TABLE_HOLDS = re.compile(r"\bINTERVAL\b|\bUNION\(")
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
        for statement in self._views(frames):
            self._con.execute(statement)
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
                self._con.register(source, source_of(frames[relation.name]))
            self._sources[relation.name] = source
            yield view(relation, source, present, self.selection)
            if relation.name == "kernel":
                yield view(relation, source, present, self.selection, "kernel_of_any_step")
        is_device_alone = _all_have_devices(frames.get("trace"))
        for statement in view_statements():
            if "view kernel_of_any_step" not in statement:
                # Work is CPU time only where a trace has no device: without such, ops need not be looked at.
                yield statement.partition(_CPU_WORK)[0] if is_device_alone and " work " in statement else statement

    def _check_selection(self) -> None:
        chosen = self.selection
        if chosen.ranks:
            self._check_known("rank", chosen.ranks, "rank", "trace")
        if chosen.steps:
            self._check_known("step", chosen.steps, "number", "step")

    def _check_known(self, what: str, asked: frozenset[int], column: str, table: str) -> None:
        sql = f"select distinct {column} as n from {self._sources[table]} where n is not null order by n"
        known = [int(row[0]) for row in self.ask(sql).iter_rows()]
        if missing := sorted(asked - set(known)):
            shown = ", ".join(map(str, known[:12])) + (", ..." if known[12:] else "")
            remedy = f"it has {shown}" if known else f"its trace does not number any {what}"
            raise TracekitError(f"the run has no {what} {missing[0]}", remedy)

    def ask(self, sql: str, params: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Run one SELECT with named parameters and return its rows.

        Raises TracekitError if the text is anything else, doesn't bind, fails, or goes over its limits.
        """
        text = one_select(sql, self._con)
        if not self._is_commented and _CATALOG.search(text):  # only the engine's catalog shows them
            self._con.execute(comment_statements())
            self._is_commented = True
        try:
            return held(self._con, self.limits, lambda: self._answer(text, dict(params or {})))
        except (duckdb.Error, OSError) as error:  # rows that are read in pieces fail with OSError, in DuckDB's words
            raise fault(str(error), self.limits) from error

    def _answer(self, text: str, values: dict[str, Any]) -> pl.DataFrame:
        import polars as pl

        # Only a SELECT binds as a subquery, whatever its type was said to be.
        columns = self._con.sql(f"describe select * from (\n{text}\n)", params=values).fetchall()
        for name, kind, *_ in columns:
            if _NO_TABLE_HOLDS.search(kind):
                problem = f"column {name} is of type {kind}, which no table holds"
                raise TracekitError(problem, "cast it, as in x::varchar")
        # The rows are held by the engine first, which keeps to its limit of memory as no reader of a stream would.
        self._con.execute(f"create or replace temp table {_HELD} as\n{text}", values)
        try:
            frame = pl.DataFrame(self._con.sql(f"select * from {_HELD}"))
        finally:
            self._con.execute(f"drop table {_HELD}")
        return frame.rename(dict(zip(frame.columns, (column[0] for column in columns), strict=True)))

    def scalar(self, sql: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row, or None where there is no row."""
        frame = self.ask(sql, params)
        return frame.row(0)[0] if frame.height else None

    def holds(self, table: str, column: str) -> bool:
        """Return whether a column of a table has any value in the selected part of the run."""
        sources = _WORK if (table, column) == ("work", "dur_ns") else {table: column}
        if self.selection.is_whole and all(name in self._frames for name in sources):
            return any(_has_values(self._frames[name], source) for name, source in sources.items())
        return self.scalar(f'select 1 from {table} where "{column}" is not null limit 1') is not None


def _all_have_devices(trace: pl.LazyFrame | pl.DataFrame | None) -> bool:
    if trace is None or "has_device" not in trace.collect_schema():
        return False
    flags = trace.lazy().select("has_device").collect().to_series()
    return len(flags) > 0 and flags.null_count() == 0 and bool(flags.all())


_CPU_WORK = "union all by name"
_WORK = {"kernel": "dur_ns", "op": "self_ns"}
"""What work is made of: a table that is there, and a column, are asked sooner than the view."""


def _has_values(frame: pl.LazyFrame | pl.DataFrame, column: str) -> bool:
    import polars as pl

    if column not in frame.collect_schema():
        return False
    return bool(frame.lazy().select(pl.col(column).is_not_null().any()).collect().item())
