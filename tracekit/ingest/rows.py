"""What decoding gives: rows sorted by kind, what was counted on the way, and what was wrong with some.

Owns the shapes only, and how those of several texts become one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Raw


class ArrowRow(NamedTuple):
    """One end of an arrow from a forward to its backward op; the letter is `s` at the forward op, `f` at the other."""

    ph: str
    id: float | str | None
    pid: float | str | None
    tid: float | str | None
    ts: Raw


class OtherRow(NamedTuple):
    """An event kept whole: its category in lower case, and as JSON its args and every field that has no column."""

    category: str
    ph: str
    name: str
    pid: float | str | None
    tid: float | str | None
    ts: Raw
    dur: Raw
    args_json: str | None


@dataclass
class Finding:
    """What was wrong with some events: how often, at which byte of the text first, and an example in words."""

    count: int = 0
    first_offset: int | None = None
    example: str = ""

    def add(self, count: int = 1, offset: int | None = None, example: str = "") -> None:
        """Count another case."""
        if self.first_offset is None or (offset is not None and offset < self.first_offset):
            self.first_offset, self.example = offset, example or self.example
        self.count += count


@dataclass
class Rows:
    """Events by kind, what could not be read, and what was counted on the way.

    `rests` holds, by kind and place in the list of that kind, the JSON of args that have no column; `flows` counts all
    arrows, of which those in `arrows` (each like `ArrowRow`) are read. `is_wide` says that some rows may have args that
    are known and have no column.
    """

    rows: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    rests: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    categories_of: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    other: list[OtherRow] = field(default_factory=list)
    arrows: list[Any] = field(default_factory=list)
    events: int = 0
    usable: int = 0
    flows: int = 0
    categories: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=lambda: defaultdict(Finding))
    is_wide: bool = False
    tail: bytes = b""

    def add(self, kind: str, category: str, rows: list[Any]) -> None:
        """Append rows of one kind and category."""
        self.rows[kind] += rows
        self.categories_of[kind].append((category, len(rows)))
        self.categories[category] += len(rows)

    def take(self, other: Rows) -> None:
        """Append the rows of the text that follows."""
        for kind, rests in other.rests.items():
            before = len(self.rows[kind])
            self.rests[kind] |= {before + place: rest for place, rest in rests.items()}
        for kind, rows in other.rows.items():
            self.rows[kind] += rows
            self.categories_of[kind] += other.categories_of[kind]
        for name, found in other.findings.items():
            self.findings[name].add(found.count, found.first_offset, found.example)
        self.other += other.other
        self.arrows += other.arrows
        self.events += other.events
        self.usable += other.usable
        self.flows += other.flows
        self.categories.update(other.categories)
        self.unknown.update(other.unknown)
        self.is_wide |= other.is_wide


def merged(parts: Iterable[dict[str, Finding]]) -> dict[str, Finding]:
    """Return findings of several pieces as those of the whole."""
    whole: dict[str, Finding] = defaultdict(Finding)
    for part in parts:
        for name, found in part.items():
            whole[name].add(found.count, found.first_offset, found.example)
    return whole
