"""A run in DuckDB, shut in: the only room that knows DuckDB.

`Store` holds a run's tables behind the views of schema.sql and answers one SELECT at a time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Self

import duckdb

from tracekit.errors import TracekitError
from tracekit.store.schema import Column, Relation, comment_statements, schema, tables, view_statements
from tracekit.store.views import PHASES, Selection, view
from tracekit.store.wall import SHUT, Limits, connect, fault, held, memory_bytes, one_select, too_much_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

__all__ = ["PHASES", "Column", "Limits", "Relation", "Selection", "Store", "schema"]

_BATCH_ROWS = 100_000
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
                self._con.register(source, frames[relation.name])
            self._sources[relation.name] = source
            yield view(relation, source, present, self.selection)
            if relation.name == "kernel":
                yield view(relation, source, present, self.selection, "kernel_of_any_step")
        yield from (statement for statement in view_statements() if "view kernel_of_any_step" not in statement)

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
        batches, size, most = [], 0, memory_bytes(self.limits.memory)
        with self._con.sql(text, params=values).to_arrow_reader(_BATCH_ROWS) as reader:
            for batch in reader:
                batches.append(batch)
                size += batch.nbytes
                if size > most:
                    raise too_much_memory(self.limits)
            table = reader.from_batches(reader.schema, batches).read_all()
        frame = pl.from_arrow(table.rename_columns([column[0] for column in columns]))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def scalar(self, sql: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row, or None where there is no row."""
        frame = self.ask(sql, params)
        return frame.row(0)[0] if frame.height else None

    def holds(self, table: str, column: str) -> bool:
        """Return whether a column of a table has any value in the selected part of the run."""
        return self.scalar(f'select 1 from {table} where "{column}" is not null limit 1') is not None
