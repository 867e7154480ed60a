"""The tables and views that questions read, as schema.sql and its views state them.

Owns the reading of these files: names and types from their text, which every run needs at once, and the rest from
DuckDB, when somebody asks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from tracekit.store.engine import duckdb

_FILES = ("schema", "views", "roofs")
_TABLE = re.compile(r"^create table (\w+) \((.*)\);$", re.MULTILINE)
_COMMA = re.compile(r", (?![^(]*\))")


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
    con.execute(text() + _copied_comments())
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


def text() -> str:
    """Return schema.sql, which holds the tables, and the files with the views over them, in the order to make them."""
    return "".join(files("tracekit").joinpath(f"{name}.sql").read_text(encoding="utf-8") for name in _FILES)


@cache
def tables() -> tuple[Relation, ...]:
    """Return the tables of schema.sql with their columns' names and types, without comments."""
    found = []
    for name, body in _TABLE.findall(text()):
        pairs = (column.replace('"', "").split(" ", 1) for column in _COMMA.split(body))
        found.append(Relation(name, False, "", tuple(Column(name, column, kind.upper(), "") for column, kind in pairs)))
    return tuple(found)


@cache
def view_statements() -> tuple[str, ...]:
    """Return the statements that make the views and macros, in their order."""
    return tuple(re.findall(r"^create (?:view|macro) .*?;$", text(), re.MULTILINE | re.DOTALL))


@cache
def comment_statements() -> str:
    """Return the statements that put comments on tables, which are views in a run, and on columns."""
    found = re.findall(r"^comment on .*;$", text(), re.MULTILINE)
    return "\n".join(found).replace("comment on table ", "comment on view ") + _copied_comments()


def _copied_comments() -> str:
    """Return the statements by which a view of some rows of a table takes over its columns' comments."""
    found = []
    for table, name in (
        ("kernel", "kernel_of_any_step"),
        ("launch", "launch_of_any_step"),
        ("other_event", "other_event_of_any_step"),
        ("device_wait", "device_wait_of_any_step"),
        ("op", "cpu_op"),
    ):
        own = re.findall(rf"^comment on column {table}\..*;$", text(), re.MULTILINE)
        found += [line.replace(f"comment on column {table}.", f"comment on column {name}.") for line in own]
    return "\n".join(found)
