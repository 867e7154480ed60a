"""`python -m tests.ingest.breakage_table`: break good traces in every way there is, and count what else is lost.

Owns the table of breakages, by kind: cases tried, events broken, and events lost beyond those, which must be none. It
compares the rows that reading gives with those of the unbroken events alone, column by column.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import click

from tests.ingest.breakages import BREAKAGES, real_events, seam
from tracekit.errors import TracekitError
from tracekit.ingest import TABLES, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.ingest import Events

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "train.json.gz"
OPENING = b'{"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": ['
CLOSING = b'], "traceName": "t.json"}'
EVENTS = 40
"""Events of a case, of which eight neighbours are in reach of what breaks."""
_TIME = re.compile(rb'"ts":\s*"?[-\d.]+"?')
_DURATION = re.compile(rb'"dur":\s*"?[-\d.]+"?')
_END = {"array's end and keys", "keys without the array's end", "missing closing brace before the array's end"}
"""Breakages that bring an end of the file with them, or leave it out."""


class Case(NamedTuple):
    """A broken trace, the events in it that are whole, and how many are not."""

    data: bytes
    whole: list[bytes]
    broken: int


class Row(NamedTuple):
    """What came of one kind of breakage."""

    kind: str
    cases: int
    broken: int
    noticed: int
    lost_beyond: int


def _within(kind: str, random: Random, events: list[bytes]) -> Case:
    is_end = "end" in kind or kind in _END
    first = len(events) - 8 if is_end else 0 if "beginning" in kind else random.randrange(len(events) - 8)
    middle = events[first : first + 8]
    text, may_change = BREAKAGES[kind](random, middle)
    between = seam(events)
    listed = between.join([*events[:first], text, *events[first + 8 :]])
    whole = [event for place, event in enumerate(events) if place - first not in may_change]
    return Case(OPENING + listed + (b"" if is_end else CLOSING), whole, len(may_change))


def _one(pattern: re.Pattern[bytes], *texts: bytes) -> Callable[[Random, list[bytes]], Case]:
    """Replace a time of one event."""

    def breakage(random: Random, events: list[bytes]) -> Case:
        places = [place for place, event in enumerate(events) if b'"dur"' in event and pattern.search(event)]
        at = random.choice(places or range(len(events)))
        changed = pattern.sub(random.choice(texts), events[at], count=1)
        broken = [changed if place == at else event for place, event in enumerate(events)]
        return Case(_document(broken), [event for place, event in enumerate(events) if place != at], 1)

    return breakage


def _document(events: Sequence[bytes]) -> bytes:
    return OPENING + seam(events).join(events) + CLOSING


def _packed(random: Random, events: list[bytes], damage: bytes) -> Case:
    """Cut or garble a gzip's last third; whole is what ends in the text that comes before."""
    packed = gzip.compress(_document(events), mtime=0)
    at = random.randrange(len(packed) * 2 // 3, len(packed) - 8)
    text = zlib.decompressobj(31).decompress(packed[:at])
    whole = [event for event in events if event in text]
    data = packed[:at] + damage + (packed[at + len(damage) :] if damage else b"")
    return Case(data, whole, len(events) - len(whole))


def _bare(_: Random, events: list[bytes]) -> Case:
    return Case(seam(events).join(events), events, 0)


def _unopened(_: Random, events: list[bytes]) -> Case:
    return Case(seam(events).join(events) + CLOSING, events, 0)


def _unclosed(random: Random, events: list[bytes]) -> Case:
    return Case(OPENING + seam(events).join(events) + random.choice([b"", b"]", b"\n", b"}"]), events, 0)


OTHERS: dict[str, Callable[[Random, list[bytes]], Case]] = {
    "missing ts": _one(_TIME, b'"was": 1'),
    "ts null": _one(_TIME, b'"ts": null'),
    "negative duration": _one(_DURATION, b'"dur": -5', b'"dur": -0.001'),
    "zero duration": _one(_DURATION, b'"dur": 0'),
    "absurd duration": _one(_DURATION, b'"dur": 9e18', b'"dur": 99999999999999999999', b'"dur": 90000000000000'),
    "gzip cut": lambda random, events: _packed(random, events, b""),
    "gzip garbled": lambda random, events: _packed(random, events, random.randbytes(16)),
    "byte order mark before the file": lambda _, events: Case(b"\xef\xbb\xbf" + _document(events), events, 0),
    "no envelope": _bare,
    "missing opening of the file": _unopened,
    "missing closing of the file": _unclosed,
}
"""Breakages of times, and of the file as a whole."""


def case(kind: str, random: Random, events: list[bytes]) -> Case:
    """Break a trace of these events in one way."""
    return OTHERS[kind](random, events) if kind in OTHERS else _within(kind, random, events)


def rows(found: Events) -> Counter[tuple[object, ...]]:
    """Return every row that was read, and arrows, which are counted only."""
    read = Counter((name, *row) for name in TABLES if name != "arrows" for row in getattr(found, name).iter_rows())
    read["arrow",] = sum(problem.count for problem in found.problems if problem.check_name == "flow_event")
    return read


def measure(kind: str, samples: Sequence[list[bytes]], cases: int) -> Row:
    """Break samples in one way so many times, and count."""
    broken = noticed = lost = 0
    for number in range(cases):
        random, sample = Random(f"{kind} {number}"), samples[number % len(samples)]
        first = random.randrange(max(1, len(sample) - EVENTS))
        tried = case(kind, random, sample[first : first + EVENTS])
        try:
            found = read_bytes(tried.data, "t.json")
        except TracekitError:
            lost += len(tried.whole)
            continue
        expected = read_bytes(_document(tried.whole), "t.json")
        lost += (rows(expected) - rows(found)).total()
        broken += tried.broken
        noticed += any(problem not in expected.problems for problem in found.problems)
    return Row(kind, cases, broken, noticed, lost)


@click.command()
@click.argument("traces", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-n", "cases", type=click.IntRange(1), default=14, show_default=True, help="Cases of each kind.")
def main(traces: tuple[Path, ...], cases: int) -> None:
    """Print the table for TRACES, by default a sample of tracekit's. Exit 1 if an event is lost beyond the broken."""
    samples = [real_events(path) for path in traces or (SAMPLE,)]
    found = [measure(kind, samples, cases) for kind in [*BREAKAGES, *OTHERS]]
    found.append(Row("all", *(sum(row[place] for row in found) for place in range(1, 5))))
    click.echo(f"{'kind':46}{'cases':>7}{'broken':>8}{'noticed':>9}{'lost beyond':>13}")
    for row in found:
        click.echo(f"{row.kind:46}{row.cases:>7}{row.broken:>8}{row.noticed:>9}{row.lost_beyond:>13}")
    sys.exit(bool(found[-1].lost_beyond))


if __name__ == "__main__":
    main(prog_name="python -m tests.ingest.breakage_table")
