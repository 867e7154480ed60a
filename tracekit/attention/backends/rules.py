"""The rules by which a backend of SDPA refuses a call, and what each says of one.

Owns the reading of the rules_*.toml files and the evaluation of one rule in one release: on what is known alone, and,
where that does not decide, on what may be assumed.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from tracekit.attention.backends.conditions import any_holds, clause_holds, needs_of
from tracekit.attention.backends.releases import holds_at
from tracekit.attention.knowledge import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.attention.backends.readings import Readings

CERTAINTIES = ("certain", "likely", "unknown")
"""Degrees of certainty, the surest first: decided by what was recorded; by an assumption, or by a rule whose range of
releases was not read from each; not decided."""

DEVICES = ("cuda", "rocm", "cpu", "xpu", "mps")


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What rows have in common: where they hold, by release, device and conditions."""

    devices: tuple[str, ...] = DEVICES
    since: str | None = None
    until: str | None = None
    when: tuple[dict[str, Any], ...] = ()
    unless: tuple[dict[str, Any], ...] = ()
    source: str

    def fits(self, release: str, device: str) -> bool:
        """Return whether the row is of a release and a device."""
        return device in self.devices and holds_at(release, self.since, self.until)

    def holds(self, readings: Readings) -> bool | None:
        """Return whether its conditions hold: none at all do, and None where what is not known would decide."""
        found = any_holds(self.when, readings) if self.when else True
        excepted = any_holds(self.unless, readings)
        if found is False or excepted is True:
            return False
        return None if found is None or excepted is None else True


_Row = TypeVar("_Row", bound=Row)


class Rule(Row, frozen=True, kw_only=True):
    """A rule: where `when` holds and `unless` does not, the backend refuses."""

    id: str
    backend: str
    why: str
    level: str = "certain"
    remedy: tuple[str, ...] = ()


class Order(Row, frozen=True, kw_only=True):
    """An order in which backends are tried."""

    id: str
    backends: tuple[str, ...]
    level: str = "certain"


class Assumption(Row, frozen=True, kw_only=True):
    """A value that readings are assumed to have where they are not known."""

    names: tuple[str, ...]
    value: Any


class Outcome(NamedTuple):
    """What a rule says of a call in one release.

    `holds` is whether it refuses, None where that is not known; `readings` decided, or would have; `assumed` are those
    of them that were not known.
    """

    holds: bool | None
    certainty: str
    readings: tuple[str, ...]
    assumed: tuple[str, ...]


class Known(NamedTuple):
    """The readings of a call as they are known, and with what may be assumed in one release filled in."""

    readings: Readings
    filled: Readings


def rows_of(stem: str, table: str, kind: type[_Row]) -> tuple[_Row, ...]:
    """Return the rows of a table of a TOML file of this room as structs."""
    found: tuple[_Row, ...] = _rows(stem, table, kind)
    return found


@cache
def _rows(stem: str, table: str, kind: type[Any]) -> Any:
    return tuple(msgspec.convert(row, kind) for row in load(f"backends/{stem}")[table])


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return the rules of every backend, release and device."""
    stems = ("rules_flash", "rules_efficient", "rules_cudnn", "rules_other")
    return tuple(rule for stem in stems for rule in rows_of(stem, "rule", Rule))


@cache
def rules_of(release: str, device: str, backend: str) -> tuple[Rule, ...]:
    """Return the rules of a backend that a release has for a device."""
    return tuple(rule for rule in all_rules() if rule.backend == backend and rule.fits(release, device))


def known_at(readings: Mapping[str, object], release: str, device: str) -> Known:
    """Return readings and the same with assumptions of a release filled in."""
    filled = dict(readings)
    for row in rows_of("backends", "assumption", Assumption):
        if row.fits(release, device):
            value = tuple(row.value) if isinstance(row.value, list) else row.value
            filled |= {name: value for name in row.names if filled[name] is None}
    return Known(readings, filled)


def evaluate(row: Row, known: Known, level: str = "certain") -> Outcome:
    """Return whether a row holds for a call; a row of level unknown is not decided where it would hold."""
    holds = row.holds(known.readings)
    readings = known.readings
    certainty = "certain"
    if holds is None:
        holds, readings, certainty = row.holds(known.filled), known.filled, "likely"
    if holds is None or (holds and level == "unknown"):
        return Outcome(None, "unknown", _deciding(row, readings), _assumed(row, known))
    if holds:
        certainty = worst(certainty, level)
    return Outcome(holds, certainty, _deciding(row, readings), _assumed(row, known) if readings is known.filled else ())


def worst(*certainties: str) -> str:
    """Return the least sure of some degrees of certainty."""
    return max(certainties, key=CERTAINTIES.index, default="certain")


def _deciding(row: Row, readings: Readings) -> tuple[str, ...]:
    """Return the readings of the clauses that hold, or may."""
    holding = [clause for clause in row.when if clause_holds(clause, readings)]
    clauses = holding or [clause for clause in row.when if clause_holds(clause, readings) is None]
    excepting = [clause for clause in row.unless if clause_holds(clause, readings) is not False]
    return tuple(dict.fromkeys(need for clause in (*clauses, *excepting) for need in needs_of(clause)))


def _assumed(row: Row, known: Known) -> tuple[str, ...]:
    """Return the readings that the row needs and that are not known."""
    needs = (need for clause in (*row.when, *row.unless) for need in needs_of(clause))
    return tuple(
        dict.fromkeys(need for need in needs if known.readings[need] is None and known.filled[need] is not None)
    )
