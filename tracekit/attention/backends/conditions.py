"""The words that rules about SDPA's backends are written in, and what clauses made of them say.

A clause, a table of a TOML file, holds where all its conditions hold. Like a condition it is True, False, or None
where what is not known would decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.attention.backends.conditions_of_calls import CALLS
from tracekit.attention.backends.conditions_of_shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.attention.backends.readings import Readings

CONDITIONS = {**SHAPES, **CALLS}
"""Every condition by name."""


def clause_holds(clause: Mapping[str, Any], readings: Readings) -> bool | None:
    """Return whether all conditions of a clause hold; one that is false settles it, whatever is not known."""
    found = [CONDITIONS[name].holds(argument, readings) for name, argument in clause.items()]
    return False if False in found else None if None in found else True


def any_holds(clauses: Iterable[Mapping[str, Any]], readings: Readings) -> bool | None:
    """Return whether a clause holds; one that does settles it, whatever is not known."""
    found = [clause_holds(clause, readings) for clause in clauses]
    return True if True in found else None if None in found else False


def needs_of(clause: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the readings that a clause needs, each once."""
    return tuple(
        dict.fromkeys(need for name, argument in clause.items() for need in CONDITIONS[name].needs_of(argument))
    )
