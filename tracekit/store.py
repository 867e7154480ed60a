"""A run in DuckDB, shut in: the only module that knows DuckDB.

Owns the views over a bundle's Parquet, the selection of steps, ranks and phases inside them, and the wall: no
query reads or writes outside, learns whose machine it is on, or outgrows its time or memory.
"""

from __future__ import annotations

import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self

import duckdb

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import polars as pl

SHUT = (
    # What these hold by default tells of the machine: its user's name, its proxy's password, where it stands.
    "set secret_directory = ''",
    "set allow_persistent_secrets = false",
    "set http_proxy = ''",
    "set http_proxy_username = ''",
    "set http_proxy_password = ''",
    "set timezone = 'UTC'",
    "set arrow_large_buffer_size = true",
    "set temp_directory = ''",
    "set python_enable_replacements = false",
    "set autoload_known_extensions = false",
    "set autoinstall_known_extensions = false",
    "set enable_external_access = false",
    "set lock_configuration = true",
)
PHASES = ("forward", "backward", "recompute", "optimizer", "other")

_LONGEST_TEXT, _DEEPEST_TEXT, _BATCH_ROWS = 100_000, 200, 10_000
_WATCH_SECONDS, _GRACE_SECONDS, _SLACK_BYTES = 0.05, 2.0, 2**28
_UNIT_BYTES = {
    f"{prefix}{end}": base**power for power, prefix in enumerate("kmgt", 1) for end, base in (("b", 1000), ("ib", 1024))
}
_NO_TABLE_HOLDS = re.compile(r"\bINTERVAL\b|\bUNION\(")
_OPENING, _CLOSING = b"([{", b")]}"


@dataclass(frozen=True)
class Selection:
    """The part of a run that questions see: numbers of steps, ranks, phases; empty means all."""

    steps: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()
    phases: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Limits:
    """What a question may use: seconds of time and bytes of memory, in DuckDB's words (`2GB`).

    The engine is asked to stop at its limits, which it can't inside one call of a function (`repeat('x', 1e9)`).
    `give_up` is then told; a program that has nothing else to do may end there.
    """

    seconds: float = 60.0
    memory: str = "4GB"
    give_up: Callable[[TracekitError], None] = lambda _: None


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
        text = _one_select(sql, self._con)
        try:
            return _held(self._con, self.limits, lambda: self._answer(text, dict(params or {})))
        except (duckdb.Error, OSError) as error:  # rows that are read in pieces fail with OSError, in DuckDB's words
            raise _fault(str(error), self.limits) from error

    def _answer(self, text: str, values: dict[str, Any]) -> pl.DataFrame:
        import polars as pl

        # Only a SELECT binds as a subquery, whatever its type was said to be.
        columns = self._con.sql(f"describe select * from (\n{text}\n)", params=values).fetchall()
        for name, kind, *_ in columns:
            if _NO_TABLE_HOLDS.search(kind):
                problem = f"column {name} is of type {kind}, which no table holds"
                raise TracekitError(problem, "cast it, as in x::varchar")
        batches, size, most = [], 0, _bytes(self.limits.memory)
        with self._con.sql(text, params=values).to_arrow_reader(_BATCH_ROWS) as reader:
            for batch in reader:
                batches.append(batch)
                size += batch.nbytes
                if size > most:
                    raise _too_much_memory(self.limits)
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


def _connect(limits: Limits) -> duckdb.DuckDBPyConnection:
    unfit = TracekitError(f"{limits.memory!r} is no amount of memory", "write it as 512MB or 4GB")
    if not _bytes(limits.memory):
        raise unfit
    con = duckdb.connect(":memory:")
    try:
        con.execute(f"set memory_limit = '{limits.memory}'")
    except duckdb.Error as error:
        raise unfit from error
    return con


def _bytes(memory: str) -> int:
    """Return an amount of memory as a number, 0 if the text is none."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s?([kmgt]i?b)", memory.lower(), re.ASCII)
    return int(float(match[1]) * _UNIT_BYTES[match[2]]) if match else 0


def _held(con: duckdb.DuckDBPyConnection, limits: Limits, answer: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """Return what `answer` gives, held to its limits, in a thread of its own: this one watches, and hears Ctrl-C.

    The engine is interrupted from when its time is over until it obeys, and given up, once, where it does not.
    """
    end, most = time.monotonic() + limits.seconds, _peak_bytes() + 2 * _bytes(limits.memory) + _SLACK_BYTES
    is_given_up = is_broken = False
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(answer)
        while not asked.done():
            try:
                wait([asked], min(_WATCH_SECONDS, limits.seconds))
                late, is_huge = time.monotonic() - end, _peak_bytes() > most
                if late > 0:
                    con.interrupt()
                if not is_given_up and (is_huge or late > _GRACE_SECONDS):
                    is_given_up = True
                    limits.give_up(_too_much_memory(limits) if is_huge else _too_much_time(limits))
            except KeyboardInterrupt:
                is_broken, end = True, min(end, time.monotonic())
    if is_broken:
        raise KeyboardInterrupt
    return asked.result()


def _peak_bytes() -> int:
    """Return the most memory that this process has held so far, 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _too_much_time(limits: Limits) -> TracekitError:
    problem = f"the query ran longer than {limits.seconds:g} s and was stopped"
    return TracekitError(problem, "ask for less, or raise --timeout")


def _too_much_memory(limits: Limits) -> TracekitError:
    problem = f"the query needs more than {limits.memory} of memory"
    return TracekitError(problem, "ask for less, or raise --memory-limit")


def _fault(said: str, limits: Limits) -> TracekitError:
    """Return the fault that DuckDB's words tell of."""
    if said.startswith("INTERRUPT"):
        return _too_much_time(limits)
    if said.startswith("Out of Memory"):
        return _too_much_memory(limits)
    outside = said.startswith("Permission")
    remedy = "a query sees the run's tables alone" if outside else "`tracekit schema` lists tables and columns"
    return TracekitError(f"SQL: {_first_lines(said)}", remedy)


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


def _one_select(sql: str, con: duckdb.DuckDBPyConnection) -> str:
    """Return the text of the one SELECT in `sql`. Raises TracekitError if it holds anything else."""
    _check_shape(sql)
    try:
        statements: Sequence[Any] = con.extract_statements(sql)
    except duckdb.Error as error:
        remedy = "a question is a name of `tracekit query --list`, or one SELECT"
        raise TracekitError(f"SQL: {_first_lines(str(error))}", remedy) from error
    if len(statements) != 1:
        raise TracekitError(f"the SQL holds {len(statements)} statements", "give exactly one SELECT")
    kind = _kind(statements[0])
    if kind != "SELECT":
        remedy = "name the values: `pivot ... on column in (...)`" if kind == "MULTI" else "a bundle can only be read"
        raise TracekitError(f"the SQL is no SELECT but {kind}", remedy)
    text: str = statements[0].query
    data = text.encode()
    end = next((at for at, kind in duckdb.tokenize(text) if _is_sign(kind) and data[at] in b";"), len(data))
    return data[:end].decode()


def _kind(statement: Any) -> str:
    try:
        kind: str = statement.type.name
    except ValueError:  # DuckDB's Python package has no name for some of its statements
        return "a command"
    return kind


def _check_shape(sql: str) -> None:
    """Raise TracekitError for a text that could keep the parser, which no limit reaches, from ever coming back."""
    if len(sql) > _LONGEST_TEXT:
        raise TracekitError(f"the SQL is longer than {_LONGEST_TEXT:,} characters", "ask for less at once")
    data = sql.encode(errors="replace")
    if data.decode() != sql or "\0" in sql:
        raise TracekitError("the SQL holds characters that are no text", "write it in UTF-8")
    depth = signs = 0
    for at, kind in duckdb.tokenize(sql):
        if _is_sign(kind):
            depth += (data[at] in _OPENING) - (data[at] in _CLOSING)
            signs += 1
        elif kind != duckdb.token_type.comment:
            signs = 0
        if max(depth, signs) > _DEEPEST_TEXT:
            raise TracekitError(f"the SQL is nested more than {_DEEPEST_TEXT} deep", "ask for less at once")


def _is_sign(kind: duckdb.token_type) -> bool:
    return kind == duckdb.token_type.operator


def _first_lines(said: str) -> str:
    """Return an engine's message without its pointer into the text."""
    return re.sub(r"\s+", " ", said.split("\n\nLINE ")[0].split("\nLINE ")[0]).strip()
