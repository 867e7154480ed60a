"""The part of a run that questions see, as SQL.

Owns how each table obeys the selection of steps, ranks and phases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.store.schema import Column, Relation

PHASES = ("forward", "backward", "recompute", "optimizer", "other")


@dataclass(frozen=True)
class Selection:
    """The part of a run that questions see: numbers of steps, ranks, phases; empty means all."""

    steps: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()
    phases: frozenset[str] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Return whether nothing is left out."""
        return not (self.steps or self.ranks or self.phases)


def selected(
    relation: Relation, source: str, present: Mapping[str, str], selection: Selection, *, of_any_step: bool = False
) -> str:
    """Return what selects a table's rows from `source`, which has the columns `present`, given with their types.

    A column that is missing is null. With `of_any_step` these are the rows of every step; --phase selects among them
    only where the table itself tells the phase, since the ops that would are those of the steps.
    """
    picked = ", ".join(_column(column, present) for column in relation.columns)
    has_phase = any(column.name == "phase" for column in relation.columns)
    every_step = Selection(frozenset(), selection.ranks, selection.phases if has_phase else frozenset())
    where = " and ".join(_filters(relation, every_step if of_any_step else selection)) or "true"
    return f"select * from (select {picked} from {source} as r) as r where {where}"


def _column(column: Column, present: Mapping[str, str]) -> str:
    name = f'"{column.name}"'
    found = present.get(column.name)
    if found is None:
        return f"null::{column.type} as {name}"
    if found == column.type:
        return f"r.{name}"
    entries = re.fullmatch(r"MAP\((\w+), (\w+)\)", column.type)
    if entries:  # Parquet has it as a list of keys and values
        kind = f'STRUCT("key" {entries[1]}, "value" {entries[2]})[]'
        return f"map_from_entries(r.{name}::{kind}) as {name}"
    return f"r.{name}::{column.type} as {name}"


def _filters(relation: Relation, selection: Selection) -> Iterator[str]:
    """Yield the conditions by which a table obeys the selection."""
    names = {column.name for column in relation.columns}
    if selection.ranks and "trace_id" in names:
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
    elif "op_id" in names:
        yield "r.op_id in (select op_id from op)"


def _numbers(values: frozenset[int]) -> str:
    return ", ".join(str(int(value)) for value in sorted(values))
