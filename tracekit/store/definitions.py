"""What SQL about a run may name, each made in the engine when it is first named: a question needs little of it.

Owns the order in which tables, views and macros are made, and what each of them reads.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING

from tracekit.errors import TracekitError
from tracekit.store.schema import tables, view_statements
from tracekit.store.views import Selection, view

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.attention.devices.lookups import Lookup
    from tracekit.store.source import Source

_OF_ANY_STEP = {f"{table}_of_any_step": table for table in ("kernel", "launch", "other_event", "device_wait")}
"""Views that show a table whatever steps are selected: work of one step may wait for calls of another."""
_COUNTED = {"device_wait": "device_wait_of_any_step"}
"""Tables whose rows a view counts where none are held, or where phases are selected, on which they depend."""
_NOTHING = "(select 1 where false)"
_WORD = re.compile(r"\w+")


class Definitions:
    """The names of a run's tables, views and macros in one database, over the run's files."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        source: Source,
        selection: Selection,
        lookups: Mapping[str, Lookup],
    ) -> None:
        """Make nothing yet. A table that is neither among the files nor a lookup is empty."""
        self._con = con
        self._held = source
        self._selection = selection
        self._lookups = lookups
        self._tables = {relation.name: relation for relation in tables()}
        self._texts = {text.split(" ", 3)[2].partition("(")[0]: text for text in view_statements()}
        plain = [name for name in self._tables if name not in lookups and name not in _COUNTED]
        names = [*plain, *_OF_ANY_STEP, *lookups, *self._texts, *_COUNTED]
        self._order = {name: place for place, name in enumerate(dict.fromkeys(names))}
        self._columns: dict[str, dict[str, str]] = {}
        self._statements: dict[str, str] = {}
        self._reads: dict[str, set[str]] = {}
        self._made: set[str] = set()
        self._lock = RLock()

    @property
    def are_whole(self) -> bool:
        """Return whether all of them are made."""
        return len(self._made) == len(self._order)

    def has_made(self, sql: str) -> bool:
        """Return whether all that SQL names is made, without waiting for a thread that makes more."""
        return self._named(sql.lower()) <= self._made

    def make(self, sql: str) -> None:
        """Make what SQL names, and what that reads in turn."""
        with self._lock:
            self._make(self._needed(self._named(sql.lower())))

    def make_all(self) -> None:
        """Make every one, for SQL that looks at the engine's catalog, or misses a name."""
        with self._lock:
            self._make(set(self._order))

    def numbers(self, table: str, column: str) -> list[int]:
        """Return the different values of a column, whatever is selected; none if there is no such column."""
        if column not in self._columns_of(table):
            return []
        given = f"from {self._source(table)} where {column} is not null"
        return [row[0] for row in self._con.execute(f"select distinct {column} {given} order by all").fetchall()]

    def _named(self, text: str) -> set[str]:
        return set(_WORD.findall(text)) & self._order.keys()

    def _needed(self, new: set[str]) -> set[str]:
        found = set[str]()
        while new:
            found |= new
            new = set().union(*(self._read_by(name) for name in new)) - found
        return found

    def _read_by(self, name: str) -> set[str]:
        if name not in self._reads:
            text = self._lookups[name].sql if name in self._lookups else self._statement(name)
            self._reads[name] = self._named(text)
        return self._reads[name]

    def _make(self, names: set[str]) -> None:
        for name in sorted(names - self._made, key=self._order.__getitem__):
            if name in self._lookups:
                self._fill(name)
            self._con.execute(self._statement(name))
            self._made.add(name)

    def _statement(self, name: str) -> str:
        if name not in self._statements:
            self._statements[name] = self._written(name)
        return self._statements[name]

    def _written(self, name: str) -> str:
        table = _OF_ANY_STEP.get(name, name)
        if table in self._tables and (name == table or not self._is_counted(table)):
            relation = self._tables[table]
            return view(
                relation, self._source(table), self._columns_of(table), self._selection, name if name != table else ""
            )
        if name == "cpu_op" and self._is_device_alone:
            return "create view cpu_op as select * from op where false"  # so that ops are not even looked at
        if name == "work" and self._is_device_alone:
            return self._texts[name].partition("union all by name")[0]
        return self._texts[name]

    def _is_counted(self, table: str) -> bool:
        """Return whether a view counts the rows of a table."""
        return table in _COUNTED and (bool(self._selection.phases) or not self._held.rows_of(table))

    def _source(self, table: str) -> str:
        """Return what to select from for the rows of a table, whatever is selected."""
        if self._is_counted(table):
            return _COUNTED[table]
        if table in self._lookups:
            return f"_{table}"
        return self._held.rows_of(table) or _NOTHING

    def _columns_of(self, table: str) -> dict[str, str]:
        """Return the columns that a table has as it is held, and their types."""
        if table in self._lookups or self._is_counted(table):
            return {column.name: column.type for column in self._tables[table].columns}
        source = self._source(table)
        if source is _NOTHING:
            return {}
        if table not in self._columns:
            self._columns[table] = self._described(source)  # as the first part has them
            united = self._held.united(table)
            if united and self._described(united) != self._columns[table]:
                raise TracekitError(f"the parts of table {table} differ", "load the trace again")
        return self._columns[table]

    def _described(self, source: str) -> dict[str, str]:
        return {name: kind for name, kind, *_ in self._con.execute(f"describe from {source}").fetchall()}

    def _fill(self, name: str) -> None:
        """Make the table that holds the rows of a lookup."""
        lookup, columns = self._lookups[name], self._tables[name].columns
        rows = lookup.rows(self._con.execute(lookup.sql).fetchall())
        names = [column.name for column in columns]
        written = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
        kinds = json.dumps([{column.name: column.type for column in columns}])
        read = f"select row.* from (select unnest(from_json($rows, '{kinds}')) as row)"
        self._con.execute(f"create table _{name} as {read}", {"rows": written})

    @cached_property
    def _is_device_alone(self) -> bool:
        """Return whether every trace of the run has a device."""
        if "has_device" not in self._columns_of("trace"):
            return False
        flags = f"select bool_and(coalesce(has_device, false)) from {self._source('trace')}"
        row = self._con.execute(flags).fetchone()
        return bool(row and row[0])
