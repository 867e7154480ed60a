"""A run in DuckDB, shut in: the only room that knows DuckDB.

`Store` holds a run's tables behind the views of schema.sql and answers one SELECT at a time.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tracekit.errors import TracekitError
from tracekit.loading.opening import Tables
from tracekit.store.definitions import Definitions
from tracekit.store.engine import duckdb
from tracekit.store.rows import first_row, framed, named_rows, plain
from tracekit.store.schema import Column, Relation, comment_statements, schema, tables
from tracekit.store.source import source_of
from tracekit.store.views import PHASES, Selection
from tracekit.store.wall import Limits, TooMuchMemory, connect, fault, get_ready, hearing, held, one_select

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import polars as pl

    from tracekit.attention.devices.lookups import Lookup
    from tracekit.store.rows import Taker
    from tracekit.store.wall import Answer
    from tracekit.table import Rows

__all__ = [
    "PHASES",
    "Column",
    "Limits",
    "Relation",
    "Selection",
    "Store",
    "TooMuchMemory",
    "get_ready",
    "hearing",
    "schema",
]

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
        self.selection = selection or Selection()
        self.limits = limits or Limits()
        self._tables = frames if isinstance(frames, Tables) else Tables.of(frames)
        self._source = source_of(self._tables, [relation.name for relation in tables()])
        try:
            self._con = connect(self.limits, self._source)
        except BaseException:
            self._source.close()
            raise
        self._cursors: set[duckdb.DuckDBPyConnection] = set()
        self._is_commented = False
        self._definitions = Definitions(self._con, self._source, self.selection, lookups or {})
        try:
            self._check_selection()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back."""
        try:
            self._con.close()
        finally:
            self._source.close()

    def _check_selection(self) -> None:
        chosen = self.selection
        if chosen.ranks:
            self._check_known("rank", chosen.ranks, "rank", "trace")
        if chosen.steps:
            self._check_known("step", chosen.steps, "number", "step")

    def _check_known(self, what: str, asked: frozenset[int], column: str, table: str) -> None:
        known: list[int] = self._held([(self._con, lambda: self._definitions.numbers(table, column))])[0]
        if missing := sorted(asked - set(known)):
            shown = ", ".join(map(str, known[:12])) + (", ..." if known[12:] else "")
            remedy = f"it has {shown}" if known else f"its trace does not number any {what}"
            raise TracekitError(f"the run has no {what} {missing[0]}", remedy)

    def ask(self, sql: str, params: Mapping[str, Any] | None = None) -> Rows | pl.DataFrame:
        """Run one SELECT that anybody may have written, with named parameters, and return its rows.

        Raises TracekitError if the text is anything else, doesn't bind, fails, or goes over its limits.
        """
        text = one_select(sql, self._con)
        if _CATALOG.search(text):
            self._make_all()
            if not self._is_commented:  # only the engine's catalog shows them
                self._con.execute(comment_statements())
                self._is_commented = True
        self._make(text)
        answer = (self._con, lambda: self._checked_rows(text, dict(params or {})))
        try:
            found: Rows | pl.DataFrame = self._held([answer])[0]
        except TracekitError as error:
            if not isinstance(error.__cause__, duckdb.CatalogException) or self._definitions.are_whole:
                raise
            self._make_all()  # it was named as only the engine can read, or its neighbours are to be told
            found = self._held([answer])[0]
        return found

    def prepare(self, *tables: str) -> None:
        """Have tables ready, so that another thread that asks for them need not wait."""
        self._within([" ".join(tables)])

    def own(self, sql: str, params: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Run one SELECT of tracekit's own, which needs no check, and return its rows; threads may do so at once.

        Raises TracekitError if it fails, or goes over its limits.
        """
        frame: pl.DataFrame = self._own([(framed, sql, params)])[0]
        return frame

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the rows that `own` does as Python's own values by name of column, without Polars."""
        rows: list[dict[str, Any]] = self._own([(named_rows, sql, params)])[0]
        return rows

    def scalar(self, sql: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row of a SELECT of our own, or None where there is no row."""
        row = self._own([(first_row, sql, params)])[0]
        return row[0] if row else None

    def beside(
        self,
        sql: str,
        params: Mapping[str, Any] | None,
        others: Sequence[tuple[str, Mapping[str, Any] | None]],
        shown: Collection[str] | None = None,
    ) -> tuple[Rows | pl.DataFrame, list[tuple[Any, ...] | None]]:
        """Run a SELECT of tracekit's own as `own` does, others at its side: its rows, and the first row of each other.

        One without rows gives None. `shown` are the columns that an answer has; any other is for Python alone.
        """
        content, *rows = self._own(
            [(partial(plain, shown=shown), sql, params), *((first_row, *other) for other in others)]
        )
        return content, rows

    def _own(self, asked: Sequence[tuple[Taker, str, Mapping[str, Any] | None]]) -> list[Any]:
        """Run SELECTs of tracekit's own, side by side, and return what each taker makes of its rows."""
        texts = self._within([text for _, text, _ in asked])
        unchecked = self._definitions.unchecked()
        cursors = [self._con.cursor() for _ in range(len(asked) + bool(unchecked))]
        self._cursors.update(cursors)
        answers = [
            (cursor, partial(take, cursor, text, values))
            for cursor, text, (take, _, values) in zip(cursors, texts, asked, strict=False)
        ]
        checks = [(cursor, partial(self._definitions.check, cursor, unchecked)) for cursor in cursors[len(asked) :]]
        try:
            return self._held([*checks, *answers])[len(checks) :]
        finally:
            for cursor in cursors:
                self._cursors.discard(cursor)
                with suppress(duckdb.Error):  # a Ctrl-C while its thread started may have left it at work
                    cursor.interrupt()
                    cursor.close()

    def interrupt(self) -> None:
        """Stop what other threads ask by `own` and `beside` at this moment; they raise TracekitError."""
        for cursor in tuple(self._cursors):
            with suppress(duckdb.Error):  # it may have been closed since
                cursor.interrupt()

    def _within(self, texts: Sequence[str]) -> list[str]:
        """Return SELECTs of our own after what they read."""
        if all(map(self._definitions.is_ready, texts)):
            return [*map(self._definitions.within, texts)]
        found: list[str] = self._held([(self._con, lambda: [*map(self._definitions.within, texts)])])[0]
        return found

    def _make(self, sql: str) -> None:
        if not self._definitions.has_made(sql):
            self._held([(self._con, lambda: self._definitions.make(sql))])
        self._check()

    def _make_all(self) -> None:
        self._held([(self._con, self._definitions.make_all)])
        self._check()

    def _check(self) -> None:
        if unchecked := self._definitions.unchecked():
            self._held([(self._con, lambda: self._definitions.check(self._con, unchecked))])

    def _held(self, answers: Sequence[Answer]) -> list[Any]:
        with self._told():
            return held(self.limits, answers)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise what the engine says as a TracekitError, which names the entry of a bundle that is damaged."""
        try:
            yield
        except (duckdb.Error, OSError) as error:  # rows that are read in pieces fail with OSError, in DuckDB's words
            if isinstance(error, OSError) and error.errno:
                problem = f"the run's tables can't be held in memory ({error.strerror})"
                raise TracekitError(problem, "raise the limits of this process (`ulimit -a` shows them)") from error
            for table in self._source.tables_named(str(error)):
                self._tables.check(table)
            raise fault(str(error), self.limits) from error

    def _checked_rows(self, text: str, values: dict[str, Any]) -> Rows | pl.DataFrame:
        # Only a SELECT binds as a subquery, whatever its type was said to be.
        columns = self._con.execute(f"describe select * from (\n{text}\n)", values).fetchall()
        for name, kind, *_ in columns:
            if _NO_TABLE_HOLDS.search(kind):
                problem = f"column {name} is of type {kind}, which no table holds"
                raise TracekitError(problem, "cast it, as in x::varchar")
        return plain(self._con, text, values, [name for name, *_ in columns])

    def holds(self, table: str, column: str) -> bool:
        """Return whether a column of a table has any value in the selected part of the run."""
        is_work = (table, column) == ("work", "dur_ns") and self.selection.is_whole
        sources = _WORK if is_work else {table: column}
        return any(
            self.scalar(f'select 1 from {source} where "{name}" is not null limit 1') is not None
            for source, name in sources.items()
        )


_WORK = {"kernel": "dur_ns", "op": "self_ns"}
"""What work is made of: a table, and a column, are asked sooner than the view."""
