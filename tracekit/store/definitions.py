"""What SQL about a run may name, each made in the engine when it is first named: a question needs little of it.

Owns the order in which tables, views and macros are made, and what each of them reads.
"""

from __future__ import annotations

import re
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING

from tracekit.store.schema import tables, view_statements
from tracekit.store.source import source_of
from tracekit.store.views import Selection, view

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    import polars as pl

_OF_ANY_STEP = {f"{table}_of_any_step": table for table in ("kernel", "launch", "other_event", "device_wait")}
"""Views that show a table whatever steps are selected: work of one step may wait for calls of another."""
_COUNTED_AS = {"device_spec": "trace", "residency": "", "device_wait": "kernel"}
"""What has as many rows as a table that is made when it is read, if anything."""
_NOTHING = "(select 1 where false)"
_WORD = re.compile(r"\w+")


class Definitions:
    """The names of a run's tables, views and macros in one database, over the run's frames."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        frames: Mapping[str, pl.LazyFrame | pl.DataFrame],
        selection: Selection,
    ) -> None:
        """Make nothing yet. A table that is not among `frames` is empty."""
        self._con = con
        self._frames = frames
        self._selection = selection
        self._tables = {relation.name: relation for relation in tables()}
        self._texts = {text.split(" ", 3)[2].partition("(")[0]: text for text in view_statements()}
        self._order = {name: place for place, name in enumerate([*self._tables, *_OF_ANY_STEP, *self._texts])}
        self._reads: dict[str, set[str]] = {}
        self._registered: dict[str, object] = {}
        self._made: set[str] = set()
        self._lock = RLock()

    @property
    def are_whole(self) -> bool:
        """Return whether all of them are made."""
        return len(self._made) == len(self._order)

    def make(self, sql: str) -> dict[str, object]:
        """Make what SQL names, and what that reads in turn.

        Return by name what is registered for it, which other connections to the database do not know.
        """
        with self._lock:
            needed = self._needed(sql)
            self._make(needed)
            tables = {_OF_ANY_STEP.get(name, name) for name in needed} & self._frames.keys() & self._tables.keys()
            return {name: self._registered[name] for name in map(self._source, tables)}

    def make_all(self) -> None:
        """Make every one, for SQL that looks at the engine's catalog, or misses a name."""
        with self._lock:
            self._make(set(self._order))

    def _source(self, table: str) -> str:
        """Return what to select from for the rows of a table, whatever is selected."""
        if table not in self._frames:
            return _NOTHING
        name = f"_{table}"
        if name not in self._registered:
            counted = self._frames.get(_COUNTED_AS.get(table, table))
            self._registered[name] = source_of(self._frames[table], counted)
            self._con.register(name, self._registered[name])
        return name

    def _needed(self, sql: str) -> set[str]:
        found = set[str]()
        new = set(_WORD.findall(sql.lower())) & self._order.keys()
        while new:
            found |= new
            new = set().union(*(self._read_by(name) for name in new)) - found
        return found

    def _read_by(self, name: str) -> set[str]:
        if name not in self._reads:
            self._reads[name] = set(_WORD.findall(self._statement(name))) & self._order.keys()
        return self._reads[name]

    def _make(self, names: set[str]) -> None:
        for name in sorted(names - self._made, key=self._order.__getitem__):
            self._con.execute(self._statement(name))
            self._made.add(name)

    def _statement(self, name: str) -> str:
        table = _OF_ANY_STEP.get(name, name)
        if table in self._tables:
            source = self._source(table)
            present = set[str]() if source is _NOTHING else set(self._frames[table].collect_schema())
            return view(self._tables[table], source, present, self._selection, name if name != table else "")
        if name == "cpu_op" and self._is_device_alone:
            return "create view cpu_op as select * from op where false"  # so that ops are not even looked at
        if name == "work" and self._is_device_alone:
            return self._texts[name].partition("union all by name")[0]
        return self._texts[name]

    @cached_property
    def _is_device_alone(self) -> bool:
        """Return whether every trace of the run has a device."""
        trace = self._frames.get("trace")
        if trace is None or "has_device" not in trace.collect_schema():
            return False
        flags = trace.lazy().select("has_device").collect().to_series()
        return len(flags) > 0 and flags.null_count() == 0 and bool(flags.all())
