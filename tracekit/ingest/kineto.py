"""A Kineto trace in JSON to frames.

Owns the envelope (an object with `traceEvents`, or the bare list of old exporters) and the sorting of events
into kinds. An event that fits no kind is kept whole in `other`; flows and redundant args are counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from tracekit.errors import TracekitError
from tracekit.ingest.args import knowledge, reader, text

_NUMBER_START = frozenset(b"-0123456789")


class Event(msgspec.Struct, gc=False):
    """One entry of `traceEvents`; numbers stay the digits of the file, since a float64 can't hold them."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: Raw = Raw()
    dur: Raw = Raw()
    args: Raw = Raw()


class Row(NamedTuple):
    """An event with its decoded args and the JSON of those args that have no column."""

    event: Event
    args: Any
    rest: str | None


class OtherRow(NamedTuple):
    """An event kept whole: its category in lower case, and its args as JSON."""

    event: Event
    category: str
    args_json: str | None


class Sorted(NamedTuple):
    """Events by kind, with what was counted on the way."""

    rows: dict[str, list[Row]]
    other: list[OtherRow]
    metadata: dict[str, Raw]
    events: int
    flows: Counter[str]
    categories: Counter[str]
    unreadable: list[str]


def parse(data: bytes, name: str) -> Sorted:
    """Decode a trace's JSON and sort its events by kind.

    Raises TracekitError, naming `name`, if the text isn't valid JSON, isn't a trace, or holds no events.
    """
    metadata, raws = _envelope(data, name)
    if not raws:
        raise TracekitError(f"{name}: traceEvents is empty", "the profiler recorded nothing: check its schedule")
    found = _sort(raws, metadata)
    if len(found.unreadable) == len(raws):
        raise _not_a_trace(name)
    return found


def _envelope(data: bytes, name: str) -> tuple[dict[str, Raw], list[Raw]]:
    body = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    try:
        if body.startswith(b"["):
            return {}, msgspec.json.decode(body, type=list[Raw])
        metadata = msgspec.json.decode(body, type=dict[str, Raw])
    except msgspec.ValidationError as error:
        raise _not_a_trace(name) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise _invalid_json(body, name, error) from error
    events = metadata.pop("traceEvents", None)
    if events is None:
        raise _not_a_trace(name)
    try:
        return metadata, msgspec.json.decode(events, type=list[Raw])
    except msgspec.ValidationError as error:
        raise _not_a_trace(name) from error


def _not_a_trace(name: str) -> TracekitError:
    return TracekitError(
        f"{name} is JSON but no profiler trace (no list named traceEvents)",
        "give a file written by torch.profiler's export_chrome_trace",
    )


def _invalid_json(body: bytes, name: str, error: Exception) -> TracekitError:
    if not body.startswith((b"{", b"[")):
        return TracekitError(f"{name} is not JSON, so no profiler trace", "give a .json or .json.gz trace, or a .tkb")
    if isinstance(error, RecursionError):
        return TracekitError(f"{name}: its JSON is nested too deeply", "get the file again, or record it again")
    if "truncated" in str(error):
        return TracekitError(
            f"{name}: its JSON is cut off after {len(body):,} bytes",
            "get the file again, or let the profiler finish its export",
        )
    return TracekitError(
        f"{name}: its JSON is invalid ({str(error).removeprefix('JSON is malformed: ')})",
        "repair it there, or record the trace again",
    )


def _sort(raws: list[Raw], metadata: dict[str, Raw]) -> Sorted:
    decoder = msgspec.json.Decoder(Event)
    kinds = knowledge()["categories"]
    rows: dict[str, list[Row]] = defaultdict(list)
    other: list[OtherRow] = []
    flows: Counter[str] = Counter()
    categories: Counter[str] = Counter()
    unreadable: list[str] = []
    for raw in raws:
        try:
            event = _event(decoder, raw)
        except msgspec.ValidationError as error:
            unreadable.append(str(error))
            other.append(OtherRow(Event(), "unreadable", str(memoryview(raw), "utf-8", "replace")))
            continue
        category = (event.cat or "").lower()
        kind = _kind(event, category, kinds)
        if kind == "flow":
            flows[category] += 1
        elif kind is None:
            if event.ph != "M":
                categories[category] += 1
            other.append(OtherRow(event, category, text(event.args)))
        else:
            args, rest = reader(kind).read(event.args)
            rows[kind].append(Row(event, args, rest))
    return Sorted(dict(rows), other, metadata, len(raws), flows, categories, unreadable)


def _event(decoder: msgspec.json.Decoder[Event], raw: Raw) -> Event:
    """Decode an event; bytes in its texts that are no UTF-8 are replaced. Raises ValidationError for a wrong shape."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return decoder.decode(str(memoryview(raw), "utf-8", "replace"))


def _kind(event: Event, category: str, kinds: dict[str, str]) -> str | None:
    """Return the kind of row an event becomes, `flow`, or None for one that is kept whole."""
    if event.ph in {"s", "t", "f"}:
        return "flow"
    if not _has_time(event.ts):
        return None
    if event.name == "[memory]" and (event.ph in {"i", "I"} or category == "cpu_instant_event"):
        return "memory"  # the Python exporter writes them as complete events
    return kinds.get(category) if event.ph == "X" else None


def _has_time(raw: Raw) -> bool:
    view = memoryview(raw)
    return len(view) > 0 and view[0] in _NUMBER_START
