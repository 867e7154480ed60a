"""A Kineto trace in JSON to `Events`, piece by piece.

Owns what a piece gives (`Decoded`), which may be made in another process, and how pieces become one trace.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from tracekit.errors import TracekitError
from tracekit.ingest import events as shape
from tracekit.ingest.columns import NoTimeError, frames_of
from tracekit.ingest.cut import Piece, cut_off, no_events
from tracekit.ingest.decode import decode
from tracekit.ingest.dialect import hints, is_unpadded, sampled
from tracekit.ingest.events import Events
from tracekit.ingest.problems import words
from tracekit.ingest.rows import Finding, merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.ingest.cut import Cutter
    from tracekit.ingest.events import Problem, Recording
    from tracekit.ingest.rows import Rows


@dataclass
class Counts:
    """What was counted while a piece, or all of them, were read."""

    events: int = 0
    usable: int = 0
    flows: int = 0
    has_fraction: bool = False
    latest_ns: int = 0
    device_rows: int = 0
    external_ids: int = 0
    repeated_ids: int = 0
    hints: frozenset[str] = frozenset()
    categories: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)
    tail: bytes = b""

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both."""
        return Counts(
            self.events + other.events,
            self.usable + other.usable,
            self.flows + other.flows,
            self.has_fraction or other.has_fraction,
            max(self.latest_ns, other.latest_ns),
            self.device_rows + other.device_rows,
            self.external_ids + other.external_ids,
            self.repeated_ids + other.repeated_ids,
            self.hints | other.hints,
            self.categories + other.categories,
            self.unknown + other.unknown,
            merged((self.findings, other.findings)),
            self.tail or other.tail,
        )


@dataclass(frozen=True)
class Decoded:
    """A piece of a trace: its frames, named as those of `Events`, and its counts."""

    frames: dict[str, pl.DataFrame]
    counts: Counts


def decoded(piece: Piece, *, is_strict: bool = False) -> Decoded:
    """Return what a piece of text holds. Raises nothing: what can't be read is counted.

    A reader who `is_strict` looks at all of the text for keys that events repeat, else only at samples.
    """
    rows, frames = _read(piece, is_strict=is_strict)
    for check, finding in rows.findings.items():
        if finding.first_offset is None:
            finding.first_offset = _first(piece, check)
    timed = [frame["ts_ns"] for name, frame in frames.items() if name not in {"other", "arrows"} and frame.height]
    counts = Counts(
        rows.events,
        rows.usable,
        rows.flows,
        any(bool((times % 1000 != 0).any()) for times in timed),
        max((int(times.max()) for times in timed), default=0),  # type: ignore[arg-type]
        frames["device"].height,
        *_ids(frames["device"]),
        hints(piece, sampled(rows.rows), frames["runtime"]["name"]),
        rows.categories,
        rows.unknown,
        dict(rows.findings),
        rows.tail,
    )
    return Decoded(frames, counts)


def _read(piece: Piece, *, is_strict: bool) -> tuple[Rows, dict[str, pl.DataFrame]]:
    rows = decode(piece.text, piece.start, is_strict=is_strict)
    try:
        frames = frames_of(rows)
    except NoTimeError:
        rows = decode(piece.text, piece.start, is_odd=True, is_strict=is_strict)
        frames = frames_of(rows, is_odd=True)
    if halves := int(frames["other"]["phase_letter"].is_in(["B", "E"]).sum()):
        rows.findings["open_event"].add(halves)
    return rows, frames


def _first(piece: Piece, check: str) -> int | None:
    """Return where the first event begins that has what a check found in columns; None where the text is no JSON.

    It is looked for by halves, so that a piece without such an event, as most are, costs nothing.
    """
    try:
        events = msgspec.json.decode(b"[" + piece.text + b"]", type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return None
    while len(events) > 1:
        half = events[: len(events) // 2]
        found, _ = _read(Piece(0, b",".join(half)), is_strict=False)
        events = half if check in found.findings else events[len(half) :]
    return piece.start + piece.text.find(memoryview(events[0]))


def _ids(device: pl.DataFrame) -> tuple[int, int]:
    """Return how much device work has an External id and a correlation, and in how much they are the same."""
    same = (device["external_id"] == device["correlation"]).drop_nulls()
    return len(same), int(same.sum())


def assembled(parts: list[Decoded], said: Recording, noticed: Iterable[Problem]) -> Events:
    """Return a trace's pieces as one. `said` describes it, `noticed` what was odd about its text."""
    frames = {
        table: pl.concat([part.frames[table] for part in parts]) if parts else pl.DataFrame(schema=schema)
        for table, schema in shape.TABLES.items()
    }
    return Events(recording=said, **frames, problems=tuple(noticed))


def finish(cutter: Cutter, counts: Counts, name: str) -> Counts:
    """Return the counts of a whole trace with those of its envelope. Raises TracekitError if it holds no events."""
    cutter.close(counts.tail)
    if not counts.usable:
        raise _no_events(cutter, counts, name)
    whole = counts + Counts(findings=dict(cutter.findings))
    if is_unpadded(whole):
        whole.findings["unpadded_fraction"] = Finding(whole.events)
    return whole


def _no_events(cutter: Cutter, counts: Counts, name: str) -> TracekitError:
    """Return what to say of a trace that holds no event."""
    lost = {check: found for check, found in counts.findings.items() if check.startswith("lost:")}
    if damage := cutter.findings.get("damaged_file"):
        return TracekitError(f"{name}: {damage.example}, before an event ended", "get the file again")
    if counts.events:
        return no_events(name)
    if cutter.is_cut_off and lost.keys() <= {"lost:cut_off"}:
        return cut_off(name)
    if not lost:
        return TracekitError(f"{name}: traceEvents is empty", "the profiler recorded nothing: check its schedule")
    check, first = min(lost.items(), key=lambda each: each[1].first_offset or 0)
    problem = f"{name} holds no event that can be read ({words(check)}, at byte {first.first_offset or 0:,})"
    return TracekitError(problem, "get the file again, or record it again")
