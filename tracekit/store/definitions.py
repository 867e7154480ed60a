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
from tracekit.store.views import Selection, selected

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import duckdb

    from tracekit.attention.devices.lookups import Lookup
    from tracekit.store.source import Source

_OF_ANY_STEP = {f"{table}_of_any_step": table for table in ("kernel", "launch", "other_event", "device_wait")}
"""Views that show a table whatever steps are selected: work of one step may wait for calls of another."""
_COUNTED = {"device_wait": "device_wait_of_any_step"}
"""Tables whose rows a view counts where none are held, or where phases are selected, on which they depend."""
_NOTHING = "(select 1 where false)"
_WORD = re.compile(r"\w+")
_COMMENT = r"--[^\n]*|/\*.*?\*/"
_WITH = re.compile(rf"(?:\s|{_COMMENT})*with\s+(recursive\s+)?", re.IGNORECASE | re.DOTALL)
_HEAD = re.compile(r"create view \w+ as\s+")
_ASIDE = re.compile(rf"'((?:[^']|'')*)'|\"(?P<quoted>(?:[^\"]|\"\")*)\"|{_COMMENT}", re.DOTALL)


class Definitions:
    """The names of a run's tables, views and macros in one database, over the run's files.

    SQL that anybody may have written finds them made as views; SQL of our own is given them as CTEs, which the engine
    binds once, with the rest.
    """

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
        self._macros = {name for name, text in self._texts.items() if text.startswith("create macro ")}
        plain = [name for name in self._tables if name not in lookups and name not in _COUNTED]
        names = [*plain, *_OF_ANY_STEP, *lookups, *self._texts, *_COUNTED]
        self._order = {name: place for place, name in enumerate(dict.fromkeys(names))}
        self._columns: dict[str, dict[str, str]] = {}
        self._unchecked: list[str] = []
        self._bodies: dict[str, str] = {}
        self._reads: dict[str, set[str]] = {}
        self._made: set[str] = set()
        self._ready: set[str] = set()
        self._filled: set[str] = set()
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

    def is_ready(self, sql: str) -> bool:
        """Return whether `within` has all that SQL of our own names, without waiting for a thread that gets more."""
        return self._named(_code(sql)) <= self._ready

    def within(self, sql: str) -> str:
        """Return SQL of our own after CTEs for what it names, and for what these read in turn."""
        named = self._named(_code(sql))
        if not named <= self._ready:
            with self._lock:
                self._get_ready(self._needed(named))
        needed = sorted(self._needed(named) - self._macros, key=self._order.__getitem__)
        ctes = ",\n".join(f"{name} as not materialized (\n{self._bodies[name]}\n)" for name in needed)
        if not ctes:
            return sql
        own = _WITH.match(sql)
        return f"with {own[1] or ''}{ctes},\n{sql[own.end() :]}" if own else f"with {ctes}\n{sql}"

    def unchecked(self) -> list[str]:
        """Return the tables of several files that `check` has not found alike yet."""
        return [*self._unchecked]

    def check(self, con: duckdb.DuckDBPyConnection, names: Collection[str]) -> None:
        """Raise TracekitError if the files of a table have other columns than its first one has.

        This takes as long as to make ten of them ready, so that it is done beside the answer.
        """
        for name in names:
            if _described(con, self._held.united(name)) != self._columns[name]:
                raise TracekitError(f"the parts of table {name} differ", "load the trace again")
        with self._lock:
            self._unchecked = [name for name in self._unchecked if name not in names]

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
            self._reads[name] = self._named(_code(self._body(name))) - {name}
        return self._reads[name]

    def _make(self, names: set[str]) -> None:
        self._get_ready(names)
        for name in sorted(names - self._made - self._macros, key=self._order.__getitem__):
            self._con.execute(f"create or replace view {name} as\n{self._body(name)}")
            self._made.add(name)

    def _get_ready(self, names: set[str]) -> None:
        """Fill lookups and make macros: each but once, also where one fails or is interrupted, or reads another."""
        for name in sorted(names - self._ready, key=self._order.__getitem__):
            if name in self._lookups and name not in self._filled:
                self._fill(name)
                self._filled.add(name)
            if name in self._macros and name not in self._made:
                self._con.execute(self._body(name).replace("create macro", "create or replace macro", 1))
                self._made.add(name)
        self._ready |= names

    def _body(self, name: str) -> str:
        if name not in self._bodies:
            self._bodies[name] = self._written(name)
        return self._bodies[name]

    def _written(self, name: str) -> str:
        """Return what selects the rows of a table or a view, or the statement that makes a macro."""
        table = _OF_ANY_STEP.get(name, name)
        if table in self._tables and (name == table or not self._is_counted(table)):
            columns = self._columns_of(table)
            source, relation = self._source(table), self._tables[table]
            return selected(relation, source, columns, self._selection, of_any_step=name != table)
        if name == "cpu_op" and self._is_device_alone:
            return "select * from op where false"  # so that ops are not even looked at
        text = self._texts[name].removesuffix(";")
        text = text if name in self._macros else _HEAD.sub("", text, count=1)
        return text.partition("union all by name")[0] if name == "work" and self._is_device_alone else text

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
        """Return the columns that a table has as it is held, and their types; of several files, those of the first."""
        if table in self._lookups or self._is_counted(table):
            return {column.name: column.type for column in self._tables[table].columns}
        source = self._source(table)
        if source is _NOTHING:
            return {}
        if table not in self._columns:
            self._columns[table] = _described(self._con, source)
            if self._held.united(table):
                self._unchecked.append(table)
        return self._columns[table]

    def _fill(self, name: str) -> None:
        """Make the table that holds the rows of a lookup."""
        lookup, columns = self._lookups[name], self._tables[name].columns
        rows = lookup.rows(self._con.execute(self.within(lookup.sql)).fetchall())
        names = [column.name for column in columns]
        written = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
        kinds = json.dumps([{column.name: column.type for column in columns}])
        read = f"select row.* from (select unnest(from_json($rows, '{kinds}')) as row)"
        self._con.execute(f"create or replace table _{name} as {read}", {"rows": written})

    @cached_property
    def _is_device_alone(self) -> bool:
        """Return whether every trace of the run has a device."""
        if "has_device" not in self._columns_of("trace"):
            return False
        flags = f"select bool_and(coalesce(has_device, false)) from {self._source('trace')}"
        row = self._con.execute(flags).fetchone()
        return bool(row and row[0])


def _described(con: duckdb.DuckDBPyConnection, source: str) -> dict[str, str]:
    return {name: kind for name, kind, *_ in con.execute(f"describe from {source}").fetchall()}


def _code(sql: str) -> str:
    """Return SQL of our own in lower case, without comments and texts; one that is a single word may name something."""
    return _ASIDE.sub(
        lambda found: found[0] if _WORD.fullmatch(found[1] or found["quoted"] or "") else " ", sql.lower()
    )
