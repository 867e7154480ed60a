"""Ways in which real traces break, each applied to whole events; what they leave untouched must come back exactly."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Raw
from msgspec.json import decode

from tracekit.ingest.salvage import salvage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from random import Random

Broken = tuple[bytes, set[int]]
"""The text between `[` and `]` of a broken array, and the indexes of the events that may be lost or changed."""

_STRING = re.compile(rb'(?<=[:,\[] )"((?:[^"\\]|\\.)*)"(?=\s*[,}\]])')
_NUMBER = re.compile(rb"(?<=: )-?\d+(?:\.\d+)?(?=\s*[,}])")
_TIME = re.compile(rb'(?<="ts": )\d+(?:\.\d+)?(?=\s*,)')
_BETWEEN = re.compile(rb"(?<=,)[ \n](?=\s*\")")
LOGS = [
    b"[W815 10:11:12.345678 collection.cpp:700] Warning: no stop for {a: 1} (function operator())",
    b"STAGE:2023-05-11 10:11:12 4711:4711 ActivityProfilerController.cpp:317] Completed Stage: Warm Up",
    b"[rank0]: INFO: flushing {",
    b"WARNING:root:1,2 of 3] done",
]
TAIL = b'],\n  "traceName": "t.json"\n}'


def seam(events: Iterable[bytes]) -> bytes:
    """Return what stands between events of this layout."""
    lines = next(iter(events)).split(b"\n")
    return b", " if len(lines) == 1 else b",\n" + lines[-1][: -len(lines[-1].lstrip())]


def compact(event: dict[str, Any]) -> bytes:
    """Write an event on one line, as json.dumps does."""
    return json.dumps(event).encode()


def pretty(event: dict[str, Any]) -> bytes:
    """Write an event over several lines, as Kineto does."""
    rest = {key: value for key, value in event.items() if key not in {"ts", "dur", "args"}}
    lines = [", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in rest.items())]
    times = [f'"{key}": {json.dumps(event[key])}' for key in ("ts", "dur") if key in event]
    lines += [", ".join(times)] if times else []
    if "args" in event:
        inner = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in event["args"].items())
        lines.append('"args": {\n      ' + inner + "\n    }")
    return ("{\n    " + ",\n    ".join(lines) + "\n  }").encode()


def real_events(path: Path) -> list[bytes]:
    """Return the events of a trace as they stand in it."""
    data = path.read_bytes()
    document = decode(gzip.decompress(data) if path.suffix == ".gz" else data, type=dict[str, Raw])
    return [bytes(event) for event in decode(document["traceEvents"], type=list[Raw])]


def _joined(events: list[bytes], damaged: dict[int, bytes]) -> Broken:
    return seam(events).join(damaged.get(i, event) for i, event in enumerate(events)), set(damaged)


def _edit(change: Callable[[Random, bytes], bytes]) -> Callable[[Random, list[bytes]], Broken]:
    """Make a breakage of a change to one event."""

    def breakage(random: Random, events: list[bytes]) -> Broken:
        index = random.randrange(len(events))
        return _joined(events, {index: change(random, events[index])})

    return breakage


def _replace(pattern: re.Pattern[bytes], *texts: bytes) -> Callable[[Random, list[bytes]], Broken]:
    """Make a breakage that puts a text in the place of a match."""

    def change(random: Random, event: bytes) -> bytes:
        found = list(pattern.finditer(event))
        if not found:
            return event
        match = random.choice(found)
        return event[: match.start()] + random.choice(texts) + event[match.end() :]

    return _edit(change)


def _insert(*texts: bytes) -> Callable[[Random, list[bytes]], Broken]:
    """Make a breakage that puts a text into a string value."""

    def change(random: Random, event: bytes) -> bytes:
        strings = [match for match in _STRING.finditer(event) if b"\\" not in match[1]]
        if not strings:
            return event
        match = random.choice(strings)
        at = random.randint(match.start(1), match.end(1))
        return event[:at] + random.choice(texts) + event[at:]

    return _edit(change)


def _wrap(*texts: tuple[bytes, bytes]) -> Callable[[Random, list[bytes]], Broken]:
    """Make a breakage that puts a text before and one after a string value's content."""

    def change(random: Random, event: bytes) -> bytes:
        strings = list(_STRING.finditer(event))
        if not strings:
            return event
        match = random.choice(strings)
        before, after = random.choice(texts)
        return event[: match.start(1)] + before + match[1] + after + event[match.end(1) :]

    return _edit(change)


def _add(*members: bytes) -> Callable[[Random, list[bytes]], Broken]:
    """Make a breakage that adds a last member to an event."""
    return _edit(lambda random, event: event[:-1].rstrip() + b", " + random.choice(members) + b"}")


def _between(*texts: bytes, replace: bool = False) -> Callable[[Random, list[bytes]], Broken]:
    """Make a breakage of the seam between two events: a text put before it, or in its place."""

    def breakage(random: Random, events: list[bytes]) -> Broken:
        index = random.randrange(1, len(events))
        between = seam(events)
        text = random.choice(texts)
        parts = between.join(events[:index]), text if replace else text + between, between.join(events[index:])
        return b"".join(parts), set()

    return breakage


def _cut(random: Random, event: bytes) -> bytes:
    return event[: random.randrange(1, len(event))]


def _cut_at_seam(random: Random, events: list[bytes]) -> Broken:
    """Cut an event's end off together with what stands between it and the next."""
    index = random.randrange(len(events) - 1)
    between = seam(events)
    cut = between.join([*events[:index], _cut(random, events[index])])
    return cut + between.join(events[index + 1 :]), {index}


def _cut_at_end(random: Random, events: list[bytes]) -> Broken:
    return _joined(events, {len(events) - 1: _cut(random, events[-1])})


def _cut_at_beginning(random: Random, events: list[bytes]) -> Broken:
    return _joined(events, {0: events[0][random.randrange(1, len(events[0])) :]})


def _cut_escape(random: Random, events: list[bytes]) -> Broken:
    texts = [b'"name": "a\\', b'"name": "a\\u12', b'"name": "\xc3', b'"name": "\xf0\x9f', b'"name": "', b'"na']
    return _joined(events, {len(events) - 1: events[-1][:-1].rstrip() + b", " + random.choice(texts)})


def _cut_escape_inside(random: Random, events: list[bytes]) -> Broken:
    text, _ = _cut_escape(random, events[: random.randrange(1, len(events))])
    done = len(decode_count(text, events))
    return text + seam(events) + seam(events).join(events[done + 1 :]), {done}


def decode_count(text: bytes, events: list[bytes]) -> list[int]:
    """Return the indexes of the events that a text begins with, whole."""
    between = seam(events)
    whole: list[int] = []
    for index, event in enumerate(events):
        if not text.startswith(event + between):
            return whole
        whole.append(index)
        text = text[len(event + between) :]
    return whole


def _any_brace_out(random: Random, event: bytes) -> bytes:
    at = random.choice([match.start() for match in re.finditer(rb"[{}]", event)])
    return event[:at] + event[at + 1 :]


def _without(byte: bytes, which: int) -> Callable[[Random, list[bytes]], Broken]:
    """Make a breakage that leaves out a bracket or brace: its first, last or any."""

    def change(random: Random, event: bytes) -> bytes:
        places = [match.start() for match in re.finditer(re.escape(byte), event)]
        if not places:
            return event
        at = places[which] if which < 2 else random.choice(places)
        return event[:at] + event[at + 1 :]

    return _edit(change)


def _log_inside(random: Random, event: bytes) -> bytes:
    at = random.choice([match.start() for match in _BETWEEN.finditer(event)])
    return event[:at] + b"\n" + random.choice(LOGS) + b"\n" + event[at:]


def _log_anywhere(random: Random, event: bytes) -> bytes:
    at = random.randrange(1, len(event))
    return event[:at] + b"\n" + random.choice(LOGS) + b"\n" + event[at:]


def _decimal_comma(random: Random, event: bytes) -> bytes:
    whole = _TIME.search(event)
    event = event if whole is None else event[: whole.start()] + b"1234,567" + event[whole.end() :]
    return re.sub(rb'(?<="dur": )[\d.]+', b"%d,%d" % (random.randrange(99), random.randrange(999)), event)


def _deep(random: Random, event: bytes) -> bytes:
    opened, closed = random.choice([(b"[", b"]"), (b'{"a": ', b"}"), (b'[{"name": ', b"}]")])
    return event[:-1].rstrip() + b', "deep": ' + opened * 5000 + b"1" + closed * 5000 + b"}"


def _twice(random: Random, event: bytes) -> bytes:
    key = random.choice([match[0] for match in re.finditer(rb'"[a-z]+"(?=: )', event)])
    return event[:-1].rstrip() + b", " + key + b": 1}"


def _bytes_lost(random: Random, event: bytes) -> bytes:
    at = random.randrange(1, len(event) - 1)
    return event[:at] + event[at + random.randint(1, 12) :]


def _garbled(random: Random, event: bytes) -> bytes:
    at = random.randrange(1, len(event) - 1)
    return event[:at] + random.randbytes(random.randint(1, 8)) + event[at:]


def _followed(text: bytes) -> Callable[[Random, list[bytes]], Broken]:
    def breakage(_: Random, events: list[bytes]) -> Broken:
        return seam(events).join(events) + text, set()

    return breakage


def _preceded(text: bytes) -> Callable[[Random, list[bytes]], Broken]:
    def breakage(_: Random, events: list[bytes]) -> Broken:
        return text + seam(events).join(events), set()

    return breakage


def _unclosed_before_tail(random: Random, events: list[bytes]) -> Broken:
    return seam(events).join(events)[:-1] + b"\n" + TAIL, {len(events) - 1}


_NO_NUMBERS = (b"NaN", b"Infinity", b"-Infinity", b"inf", b"-inf", b"nan", b"-nan", b"N/A", b"None", b"True", b"False")
_MIMIC = (
    rb'"x": [{"ph": "X", "name": "m", "ts": 1}, {"ph": "X", "name": "m", "ts": 2}, {"name": "m"}], "y": {"ph": "X"}'
)

SINGLE: dict[str, Callable[[Random, list[bytes]], Broken]] = {
    "cut in an event": _edit(_cut),
    "bytes lost in an event": _edit(_bytes_lost),
    "garbage in an event": _edit(_garbled),
    "missing closing brace": _without(b"}", -1),
    "missing opening brace": _without(b"{", 0),
    "missing brace of any kind": _edit(_any_brace_out),
    "missing bracket": _without(b"]", 2),
    "missing comma in an event": _replace(re.compile(rb',(?=\s*")'), b""),
    "doubled comma in an event": _replace(re.compile(rb',(?=\s*")'), b",,", b", ,"),
    "trailing comma in an event": _replace(re.compile(rb"(?=\s*\}\Z)"), b","),
    "no number": _replace(_NUMBER, *_NO_NUMBERS),
    "loose number": _replace(_NUMBER, b"0.", b".5", b"+1", b"1e", b"01", b"-.5", b"1.e5", b"-", b"+0."),
    "decimal comma": _edit(_decimal_comma),
    "quotes in a string": _wrap((b'foo("', b'")'), (b'<lambda "', b'">'), (b'"', b'"'), (b'f("a", "', b'")')),
    "quote in a string": _insert(b'"', b'"x', b' " '),
    "backslashes": _insert(b"C:\\Users\\new", b"\\", b"a\\x", b"\\u12", b"\\\\server\\q"),
    "backslash at the end": _wrap((b"C:\\tmp\\", b"\\"), (b"", b"\\")),
    "control characters": _insert(b"\n", b"\t", b"\0", b"\x7f", b"\x1b[0m", b"\r\n"),
    "invalid UTF-8": _insert(b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98"),
    "lone surrogate": _insert(b"\\ud800", b"\\udfff", b"\\ud83d\\ud83d", b"\\ud83d\\n"),
    "log line in an event": _edit(_log_inside),
    "log line anywhere": _edit(_log_anywhere),
    "duplicate key": _edit(_twice),
    "nested 5,000 deep": _edit(_deep),
}
"""Breakages of one event, which can be combined."""

UNHARMED: dict[str, Callable[[Random, list[bytes]], Broken]] = {
    "integer beyond int64": _add(b'"n": 18446744073709551616', b'"n": -9223372036854775809'),
    "time as a string": _replace(_TIME, b'"123.5"'),
    "events within an event": _add(_MIMIC),
    "text like an event": _add(rb'"x": "{\"ph\": \"X\", \"name\": \"a\"}, {\"ph\":"', rb'"x": "}, {", "y": "]}"'),
    "plain text": _followed(b""),
}
"""Odd events in valid JSON: nothing at all may change, the odd event included."""

SEAMS: dict[str, Callable[[Random, list[bytes]], Broken]] = {
    "cut event joined to the next": _cut_at_seam,
    "cut at the end": _cut_at_end,
    "cut at the beginning": _cut_at_beginning,
    "cut in an escape at the end": _cut_escape,
    "cut in an escape": _cut_escape_inside,
    "missing comma": _between(b"", b" ", b"\n", replace=True),
    "doubled comma": _between(b",", b" , ", b",,\n"),
    "trailing comma": _followed(b","),
    "brace too many": _between(b"}", b"\n}"),
    "bracket too many": _between(b"]", b"]}"),
    "log line": _between(*(b",\n" + line + b"\n" for line in LOGS), *(b"\n" + line + b"\n" for line in LOGS)),
    "log line without its own line": _between(*(b"," + line + b"\n" for line in LOGS)),
    "byte order mark": _preceded(b"\xef\xbb\xbf"),
    "byte order mark between": _between(b",\xef\xbb\xbf"),
    "zeros at the end": _followed(b"\0" * 4096),
    "array's end and keys": _followed(b"\n  " + TAIL),
    "keys without the array's end": _followed(b"\n  " + TAIL[1:]),
    "missing closing brace before the array's end": _unclosed_before_tail,
}
"""Breakages of what stands around events."""


def _several(random: Random, events: list[bytes]) -> Broken:
    """Break two or three events, neighbours among them, each in its own way."""
    first = random.randrange(len(events) - 3)
    damaged: dict[int, bytes] = {}
    for index in random.choice([(first, first + 1), (first, first + 2), (first, first + 1, first + 3)]):
        kind = SINGLE[random.choice(sorted(SINGLE))]
        damaged[index] = kind(random, [events[index]])[0]
    return _joined(events, damaged)


BREAKAGES: dict[str, Callable[[Random, list[bytes]], Broken]] = {
    **SINGLE,
    **UNHARMED,
    **SEAMS,
    "several events": _several,
}


class Measure(NamedTuple):
    """What came of one kind of breakage: cases, and events over all of them."""

    kind: str
    cases: int
    damaged: int
    repaired: int
    lost_beyond: int
    invented: int


def lost_beyond(text: bytes, events: list[bytes], may_change: set[int]) -> tuple[int, int, int]:
    """Return how many undamaged events did not come back, how many damaged ones did, and how many came from nothing.

    An undamaged event comes back if it does so byte for byte, without repairs, in order and from its own offset.
    """
    saved = salvage(text, 1000).events
    wanted = [event for index, event in enumerate(events) if index not in may_change]
    matched = 0
    for whole in saved:
        at = whole.offset - 1000
        is_next = matched < len(wanted) and whole.text == wanted[matched] and not whole.repairs
        matched += is_next and text[at : at + len(whole.text)] == whole.text
    others = len(saved) - matched
    return len(wanted) - matched, min(others, len(may_change)), max(0, others - len(may_change))


def measure(kind: str, random: Random, samples: list[list[bytes]], cases: int) -> Measure:
    """Break events of each sample in one way, as many times as asked, and count what is saved."""
    damaged = repaired = beyond = invented = 0
    for case in range(cases):
        sample = samples[case % len(samples)]
        first = random.randrange(max(1, len(sample) - 8))
        events = sample[first : first + 8]
        text, may_change = BREAKAGES[kind](random, events)
        lost, back, extra = lost_beyond(text, events, may_change)
        damaged += len(may_change)
        beyond += lost
        repaired += back
        invented += extra
    return Measure(kind, cases, damaged, repaired, beyond, invented)
