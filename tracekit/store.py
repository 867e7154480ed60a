"""A run in DuckDB, shut in: the only module that knows DuckDB.

Owns the views over a bundle's Parquet, the selection of steps, ranks and phases inside them, and the wall: no
query reads or writes anything outside, runs longer than its time or uses more than its memory.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self

import duckdb

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

SHUT = (
    "set temp_directory = ''",
    "set python_enable_replacements = false",
    "set autoload_known_extensions = false",
    "set autoinstall_known_extensions = false",
    "set enable_external_access = false",
    "set lock_configuration = true",
)
PHASES = ("forward", "backward", "recompute", "optimizer", "other")


@dataclass(frozen=True)
class Selection:
    """The part of a run that questions see: numbers of steps, ranks, phases; empty means all."""

    steps: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()
    phases: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Limits:
    """What a question may use: seconds of time and bytes of memory, in DuckDB's words (`2GB`)."""

    seconds: float = 60.0
    memory: str = "4GB"


@dataclass(frozen=True)
class Column:
    """A column of the schema: its table or view, name, DuckDB type and meaning."""

    table: str
    name: str
    type: str
    doc: str


@dataclass(frozen=True)
class Relation:
    """A table or view of the schema and its meaning."""

    name: str
    is_view: bool
    doc: str
    columns: tuple[Column, ...] = field(default=())


@cache
def schema() -> tuple[Relation, ...]:
    """Return the tables and views of schema.sql, in its order, each with its columns and comments."""
    con = duckdb.connect(":memory:")
    con.execute(_schema_text())
    found = con.execute(
        "select table_name, false, comment, table_oid from duckdb_tables() union all "
        "select view_name, true, comment, view_oid from duckdb_views() where not internal order by 4"
    ).fetchall()
    rows = con.execute(
        "select table_name, column_name, data_type, comment from duckdb_columns() where not internal"
    ).fetchall()
    columns: dict[str, list[Column]] = {}
    for table, name, kind, doc in rows:
        columns.setdefault(table, []).append(Column(table, name, kind, doc))
    return tuple(Relation(name, is_view, doc, tuple(columns[name])) for name, is_view, doc, _ in found)


def _schema_text() -> str:
    return files("tracekit").joinpath("schema.sql").read_text(encoding="utf-8")


class Store:
    """The tables of one run, ready for questions. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        tables: Mapping[str, pl.LazyFrame | pl.DataFrame],
        selection: Selection | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Put views over `tables`, by name of the schema; a table or column that is missing is empty.

        Raises TracekitError if the selection names a step or rank that the run has not.
        """
        self.selection = selection or Selection()
        self.limits = limits or Limits()
        self._con = _connect(self.limits)
        sources = {name: self._register(name, frame) for name, frame in tables.items()}
        for statement in _statements():
            self._con.execute(_as_view(statement, sources, self.selection))
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

    def _register(self, name: str, frame: pl.LazyFrame | pl.DataFrame) -> tuple[str, set[str]]:
        source = f"_{name}"
        self._con.register(source, frame)
        return source, set(frame.collect_schema())

    def _check_selection(self) -> None:
        chosen = self.selection
        if chosen.ranks:
            known = {row[0] for row in self.ask("select distinct rank from trace").iter_rows()}
            if missing := sorted(chosen.ranks - known):
                raise TracekitError(f"the run has no rank {missing[0]}", "`select rank from trace` shows its ranks")
        if chosen.steps:
            known = {row[0] for row in self.ask("select distinct number from step").iter_rows()}
            if missing := sorted(chosen.steps - known):
                raise TracekitError(
                    f"the run has no step {missing[0]}",
                    "`select number from step` shows its steps; a trace without ProfilerStep annotations has none",
                )

    def ask(self, sql: str, params: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Run one SELECT with named parameters and return its rows.

        Raises TracekitError if the text is anything else, doesn't bind, fails, or goes over its limits.
        """
        text = _one_select(sql)
        values = dict(params or {})
        timer = threading.Timer(self.limits.seconds, self._con.interrupt)
        timer.daemon = True
        timer.start()
        try:
            self._con.sql(f"explain select * from (\n{text}\n)", params=values).fetchall()
            frame: pl.DataFrame = self._con.sql(text, params=values).pl()
            return frame
        except duckdb.InterruptException as error:
            raise TracekitError(
                f"the query ran longer than {self.limits.seconds:g} s and was stopped",
                "ask for less, or raise --timeout",
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise TracekitError(
                f"the query needs more than {self.limits.memory} of memory",
                "ask for less, or raise --memory-limit",
            ) from error
        except duckdb.Error as error:
            raise TracekitError(f"SQL: {_first_lines(error)}", "`tracekit schema` lists tables and columns") from error
        finally:
            timer.cancel()

    def scalar(self, sql: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row, or None where there is no row."""
        frame = self.ask(sql, params)
        return frame.row(0)[0] if frame.height else None

    def holds(self, table: str, column: str) -> bool:
        """Return whether a column of a table has any value in the selected part of the run."""
        return self.scalar(f'select 1 from {table} where "{column}" is not null limit 1') is not None


def _connect(limits: Limits) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(":memory:")
    try:
        con.execute(f"set memory_limit = '{_memory(limits.memory)}'")
    except duckdb.Error as error:
        raise TracekitError(f"{limits.memory!r} is no amount of memory", "write it as 512MB or 4GB") from error
    return con


def _memory(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)?\s*([KMGT]i?B)", text, re.IGNORECASE):
        raise TracekitError(f"{text!r} is no amount of memory", "write it as 512MB or 4GB")
    return text


@cache
def _statements() -> tuple[str, ...]:
    return tuple(statement.query.strip() for statement in duckdb.extract_statements(_schema_text()))


def _as_view(statement: str, sources: Mapping[str, tuple[str, set[str]]], selection: Selection) -> str:
    """Turn a `create table` of the schema into a view over the run's rows; leave other statements be."""
    if match := re.search(r"^comment on table (\w+)", statement, re.MULTILINE):
        return statement.replace(f"comment on table {match[1]}", f"comment on view {match[1]}")
    match = re.search(r"^create table (\w+)", statement, re.MULTILINE)
    if match is None:
        return statement
    relation = next(relation for relation in schema() if relation.name == match[1])
    source, present = sources.get(relation.name, ("(select 1 where false)", set()))
    picked = ", ".join(_column(column, present) for column in relation.columns)
    where = " and ".join(_filters(relation, selection)) or "true"
    return f"create view {relation.name} as select * from (select {picked} from {source} as r) as r where {where}"


def _column(column: Column, present: set[str]) -> str:
    name = f'"{column.name}"'
    return f"r.{name}" if column.name in present else f"null::{column.type} as {name}"


def _filters(relation: Relation, selection: Selection) -> Iterator[str]:
    """Yield the conditions by which a table obeys the selection."""
    names = {column.name for column in relation.columns}
    if selection.ranks:
        chosen = _numbers(selection.ranks)
        yield (f"r.rank in ({chosen})" if relation.name == "trace" else "r.trace_id in (select trace_id from trace)")
    if selection.steps:
        yield from _step_filter(relation.name, names, selection.steps)
    if selection.phases:
        phases = ", ".join(f"'{phase}'" for phase in sorted(selection.phases & set(PHASES)))
        if "phase" in names:
            yield f"r.phase in ({phases})"
        elif "op_id" in names:
            yield "r.op_id in (select op_id from op)"


def _step_filter(table: str, names: set[str], steps: frozenset[int]) -> Iterator[str]:
    if table == "step":
        yield f"r.number in ({_numbers(steps)})"
    elif "step_id" in names:
        yield "r.step_id in (select step_id from step)"
    elif time := next((name for name in ("start_ns", "time_ns") if name in names), None):
        inside = f"r.{time} >= s.start_ns and r.{time} < s.start_ns + s.dur_ns"
        yield f"exists (select 1 from step as s where s.trace_id = r.trace_id and {inside})"


def _numbers(values: frozenset[int]) -> str:
    return ", ".join(str(int(value)) for value in sorted(values))


def _one_select(sql: str) -> str:
    """Return the text of the one SELECT in `sql`. Raises TracekitError if it holds anything else."""
    try:
        statements: Sequence[Any] = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise TracekitError(
            f"SQL: {_first_lines(error)}", "a question is a name of `tracekit query --list`, or one SELECT"
        ) from error
    if len(statements) != 1:
        raise TracekitError(f"the SQL holds {len(statements)} statements", "give exactly one SELECT")
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = str(statements[0].type).rpartition(".")[2]
        remedy = "name the values: `pivot ... on column in (...)`" if kind == "MULTI" else "a bundle can only be read"
        raise TracekitError(f"the SQL is no SELECT but {kind}", remedy)
    text: str = statements[0].query
    return text.strip().rstrip(";")


def _first_lines(error: Exception) -> str:
    """Return an engine's message without its pointer into the text."""
    return re.sub(r"\s+", " ", str(error).split("\n\nLINE ")[0].split("\nLINE ")[0]).strip()
