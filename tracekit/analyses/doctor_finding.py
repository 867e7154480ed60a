"""What a check of the doctor hands over, and what all of them use.

Owns the shape of a finding and the way to the rows of doctor.toml.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.analyses.doctor_scans import rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.analyses.doctor_scans import Facts


@dataclass(frozen=True)
class Finding:
    """What a check found: a sentence, and its figures.

    Where `is_known` is false the sentence says why. What `is_fine` or `is_bad` is so whatever its figures.
    """

    meaning: str
    count: int | None = None
    share_frac: float | None = None
    value_ns: float | None = None
    ratio: float | None = None
    is_known: bool = True
    is_fine: bool = False
    is_bad: bool = False


def unknown(why: str) -> Finding:
    """Return that a trace can't tell, and why."""
    return Finding(why, is_known=False)


def no_device(facts: Facts) -> Finding:
    """Return that nothing can be told without device work."""
    return unknown("no device work was recorded" + (", or it was cut off" if facts["truncated"] else ""))


def noticed(facts: Facts, names: Iterable[str]) -> list[Facts]:
    """Return the rows of table quality of some names."""
    return [row for row in facts["quality"] if row["check_name"] in set(names)]


def rule(name: str) -> dict[str, Any]:
    """Return what doctor.toml says of a check."""
    found: dict[str, Any] = next(found for found in rules()["check"] if found["name"] == name)
    return found


def spoken_for(name: str) -> list[str]:
    """Return the names of the rows of table quality that a check speaks for."""
    return list(rule(name)["quality"])


def with_offset(row: Facts) -> str:
    """Return what a row of table quality says, and where in the file it was first found."""
    at = "" if row["first_offset"] is None else f" (first at byte {row['first_offset']:,})"
    return f"{row['message'].rstrip('.')}{at}."


def median(values: list[int]) -> float:
    """Return the median of numbers, of which there is at least one."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
