"""What to change so that a faster backend of SDPA takes a call, and whether it then would.

Owns the order of speed, the choice of remedies, and asking the rules again of the call as it would be.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tracekit.attention.backends.eligibility import Reason, answer, over_releases
from tracekit.attention.backends.releases import known_releases, number_of
from tracekit.attention.backends.rules import Row, all_rules, known_at, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.attention.backends.readings import Readings
    from tracekit.attention.backends.rules import Known


class Step(NamedTuple):
    """A change that answers a rule, or several, and what to know before; `others` are remedies for the same, by id."""

    rule: str
    remedy: str
    change: str
    caveat: str
    others: tuple[str, ...] = ()


class Remedy(NamedTuple):
    """What would bring a backend to take the call.

    `is_eligible` is whether the rules let it after the steps, None where they can't tell; `left` are the rules that
    would still refuse, or that no step answers.
    """

    backend: str
    status: str
    steps: tuple[Step, ...]
    is_eligible: bool | None
    left: tuple[str, ...]


class Change(Row, frozen=True, kw_only=True):
    """A row of remedies.toml's `remedy`."""

    id: str
    change: str
    caveat: str
    set: dict[str, Any] = msgspec.field(default_factory=dict)
    copy: tuple[str, ...] = ()
    round_up: dict[str, int] = msgspec.field(default_factory=dict)
    add_dims: int | None = None
    dtype: bool = False
    upgrade: str | None = None
    leaves_sdpa: bool = False

    @property
    def can_be_asked(self) -> bool:
        """Return whether the row says what the call would be."""
        return bool(self.set or self.copy or self.round_up or self.add_dims or self.dtype or self.upgrade)


class Speed(Row, frozen=True, kw_only=True):
    """Backends, the fastest first."""

    backends: tuple[str, ...]


class Later(Row, frozen=True, kw_only=True):
    """What a backend that is later in the order needs."""

    backend: str
    remedy: tuple[str, ...]


def faster_than(taken: str, known: Known, release: str, device: str) -> tuple[str, ...]:
    """Return the backends that are called faster than the one taken, the fastest first; all, if it is not called."""
    for row in rows_of("backends", "speed", Speed):
        if row.fits(release, device) and row.holds(known.filled):
            return row.backends[: row.backends.index(taken)] if taken in row.backends else row.backends
    return ()


def remedy_for(
    backend: str, status: str, reasons: Sequence[Reason], readings: Readings, releases: Sequence[str], device: str
) -> Remedy:
    """Return what would bring a backend to take the call: steps for each rule that refuses it.

    Where none is known to refuse it, steps for those that may.
    """
    known = known_at(readings, releases[-1], device)
    refusing = [] if "later" in status else [reason.rule for reason in reasons if reason.refuses]
    if "later" in status:
        wanted = {
            f"{backend} is later in the order": row.remedy
            for row in rows_of("remedies", "later", Later)
            if row.backend == backend
        }
    else:
        rules = {rule.id: rule.remedy for rule in all_rules()}
        wanted = {rule: rules.get(rule, ()) for rule in refusing or [reason.rule for reason in reasons]}
    chosen = {rule: _usable(names, known, releases, device) for rule, names in wanted.items()}
    steps = _steps(chosen)
    unanswered = tuple(rule for rule, found in chosen.items() if not found)
    if not refusing:
        return Remedy(backend, status, steps, None, ())
    first_changes = [found[0] for found in chosen.values() if found]
    if unanswered or not all(change.can_be_asked for change in first_changes):
        return Remedy(backend, status, steps, False if unanswered else None, unanswered)
    return _asked_again(Remedy(backend, status, steps, None, ()), first_changes, readings, releases, device)


def _steps(chosen: Mapping[str, Sequence[Change]]) -> tuple[Step, ...]:
    """Return a step for each remedy that comes first for a rule; one that answers several rules is one step."""
    found: dict[str, Step] = {}
    for rule, (first, *others) in ((rule, changes) for rule, changes in chosen.items() if changes):
        ids = tuple(other.id for other in others)
        step = found.get(first.id, Step("", first.id, first.change, first.caveat))
        others_too = tuple(dict.fromkeys((*step.others, *ids)))
        found[first.id] = step._replace(rule=f"{step.rule}, {rule}".strip(", "), others=others_too)
    return tuple(found.values())


def _usable(names: Sequence[str], known: Known, releases: Sequence[str], device: str) -> list[Change]:
    """Return the remedies that help this call, in the order of the rule's row."""
    rows = {row.id: row for row in rows_of("remedies", "remedy", Change)}
    found = (rows[name] for name in names)
    return [
        row
        for row in found
        if any(row.fits(release, device) for release in releases) and row.holds(known.readings) is not False
    ]


def _asked_again(
    remedy: Remedy, changes: Sequence[Change], readings: Readings, releases: Sequence[str], device: str
) -> Remedy:
    """Return the remedy with what the rules say of the call as it would be."""
    changed = dict(readings)
    for change in changes:
        changed |= _changed(change, changed)
        if change.upgrade:
            at_least = number_of(change.upgrade)
            releases = [each for each in known_releases() if number_of(each) >= at_least][-1:]
    found = over_releases([answer(changed, release, device) for release in releases], remedy.backend)
    left = tuple(dict.fromkeys(reason.rule for reason in found.reasons if reason.refuses))
    return remedy._replace(is_eligible=found.is_eligible, left=left)


def _changed(change: Change, readings: Readings) -> dict[str, object]:
    """Return the readings that a change gives other values."""
    found: dict[str, object] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in change.set.items()
    }
    for name in change.copy:
        sizes = readings[name]
        found[name] = (sizes[0],) * len(sizes) if isinstance(sizes, tuple) else None
    for name, factor in change.round_up.items():
        sizes = readings[name]
        found[name] = tuple(-(-size // factor) * factor for size in sizes) if isinstance(sizes, tuple) else None
    if change.add_dims:
        found |= _flattened(readings["shapes"], change.add_dims)
    if change.dtype:
        capability = readings["sm"]
        half = "float16" if isinstance(capability, int) and capability < 80 else "bfloat16"
        found["dtypes"] = (half,) * 3
    return found


def _flattened(shapes: object, rank: int) -> dict[str, object]:
    """Return the readings of shapes that get so many dims: those before the heads become one, missing ones are 1."""
    known = shapes if isinstance(shapes, tuple) else ()
    full = [(1,) * (rank - len(shape)) + shape for shape in known]
    return {
        "ranks": (rank,) * 3,
        "batches": tuple(prod(shape[:-3]) for shape in full) or None,
        "heads": tuple(shape[-3] for shape in full) or None,
    }
