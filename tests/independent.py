"""A second reading of a trace, to hold the product's figures against.

Owns its own way from bytes to numbers: json and Decimal instead of msgspec and Polars, skip pointers instead of
a stack for nesting. It needs the standard library alone and must import nothing of the product.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, NamedTuple

Event = dict[str, Any]
Thread = tuple[str, str]

OPS = {"cpu_op", "Operator"}
ANNOTATIONS = {"user_annotation"}
FRAMES = {"python_function"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime", "mtia_runtime"}
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset", "mtia_ccp_events"}
IDLE = {("mtia_ccp_events", "event_record"), ("mtia_ccp_events", "event_wait")}
ARROWS = {"s", "t", "f"}
SIZES = ("Bytes", "Total Allocated", "Total Reserved")
EPOCH_NS = 10**17


class Span(NamedTuple):
    """A time in ns from `start` up to `end`."""

    start: int
    end: int


class Work(NamedTuple):
    """One piece of device work; times in ns as the file counts them."""

    name: str
    start: int
    duration: int
    stream: str
    correlation: int | None


class Point(NamedTuple):
    """One end of an arrow: a thread and a time in ns."""

    thread: Thread
    time: int


def read(data: bytes) -> list[Event]:
    """Return the events of a trace; numbers with a fraction are Decimals."""
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    document = json.loads(text, parse_float=Decimal)
    events: list[Event] = document if isinstance(document, list) else document["traceEvents"]
    return events


def nanoseconds(microseconds: int | Decimal) -> int:
    """Return ns for µs, exactly; half a ns goes to the even one."""
    if isinstance(microseconds, int):
        return microseconds * 1000
    return int((microseconds * 1000).to_integral_value(ROUND_HALF_EVEN))


def args(event: Event) -> dict[str, Any]:
    """Return an event's args, empty where it has none."""
    return event.get("args") or {}


def thread(event: Event) -> Thread:
    """Return the process and thread of an event, as text."""
    return str(event["pid"]), str(event["tid"])


def complete(events: list[Event], categories: set[str]) -> list[Event]:
    """Return the complete events of some categories, in the file's order."""
    return [
        event for event in events if event.get("ph") == "X" and event.get("cat") in categories and not _is_idle(event)
    ]


def _is_idle(event: Event) -> bool:
    return (event.get("cat"), event["name"]) in IDLE


def span(event: Event) -> Span:
    """Return when an event ran; a negative duration is none."""
    start = nanoseconds(event["ts"])
    return Span(start, start + max(0, nanoseconds(event.get("dur", 0))))


def device_work(events: list[Event]) -> list[Work]:
    """Return every kernel, copy and set, in the file's order."""
    return [
        Work(event["name"], when.start, when.end - when.start, _stream(event), args(event).get("correlation"))
        for event, when in ((event, span(event)) for event in complete(events, DEVICE))
    ]


def _stream(event: Event) -> str:
    return str(args(event).get("stream", event["tid"])).rpartition(" ")[2]


def by_thread(events: list[Event]) -> dict[Thread, list[Span]]:
    """Return the spans of events on each thread, in order of start, the longest first."""
    found: dict[Thread, list[Span]] = defaultdict(list)
    for event in events:
        found[thread(event)].append(span(event))
    return {key: sorted(spans, key=lambda one: (one.start, -one.end)) for key, spans in found.items()}


def busy(spans: list[Span]) -> int:
    """Return the length in ns of the union of spans, which are sorted by start."""
    total, reached = 0, spans[0].start
    for start, end in spans:
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total


class Nest:
    """The spans of one thread, ready to be asked which of them is the innermost one open at a time."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans
        self._starts = [one.start for one in spans]
        self._longer: list[int] = []
        for index, one in enumerate(spans):
            before = index - 1
            while before >= 0 and spans[before].end <= one.end:
                before = self._longer[before]
            self._longer.append(before)

    def innermost(self, time: int) -> Span | None:
        """Return the span that started last of those open at `time`: from its start up to, not including, its end."""
        at = bisect_right(self._starts, time) - 1
        while at >= 0 and self._spans[at].end <= time:
            at = self._longer[at]
        return self._spans[at] if at >= 0 else None


def launched_by(events: list[Event]) -> dict[int, Event]:
    """Return for each correlation the call that carries it; of several, the one that starts last."""
    found: dict[int, Event] = {}
    for call in complete(events, CALLS):
        correlation = args(call).get("correlation")
        if correlation is not None and (correlation not in found or call["ts"] > found[correlation]["ts"]):
            found[correlation] = call
    return found


def ops_of_work(events: list[Event], works: list[Work]) -> list[tuple[Work, Span]]:
    """Return device work with the span of the innermost op around its launch, where there is one."""
    nests = {key: Nest(spans) for key, spans in by_thread(complete(events, OPS)).items()}
    calls = launched_by(events)

    def op_of(work: Work) -> Span | None:
        call = calls.get(work.correlation) if work.correlation is not None else None
        nest = nests.get(thread(call)) if call is not None else None
        return nest.innermost(nanoseconds(call["ts"])) if call is not None and nest is not None else None

    return [(work, op) for work in works if (op := op_of(work)) is not None]


def places_of_work(events: list[Event], works: list[Work]) -> list[tuple[Work, Event, tuple[str, ...]]]:
    """Return device work with the innermost op around its launch and the nn.Modules around that, outermost first.

    Work without an op is left out. Modules are named as their frames are, without `nn.Module: `.
    """
    ops = {(thread(op), span(op)): op for op in complete(events, OPS)}
    modules: dict[Thread, list[tuple[Span, str]]] = defaultdict(list)
    for frame in complete(events, FRAMES):
        if frame["name"].startswith("nn.Module: "):
            modules[thread(frame)].append((span(frame), frame["name"].removeprefix("nn.Module: ")))
    nests = {key: Nest(spans) for key, spans in by_thread(complete(events, OPS)).items()}
    calls = launched_by(events)
    found = []
    for work in works:
        call = calls.get(work.correlation) if work.correlation is not None else None
        nest = nests.get(thread(call)) if call is not None else None
        inner = nest.innermost(nanoseconds(call["ts"])) if call is not None and nest is not None else None
        if call is not None and inner is not None:
            around = [row for row in modules[thread(call)] if row[0].start <= inner.start < row[0].end]
            names = tuple(name for _, name in sorted(around, key=lambda row: (row[0].start, -row[0].end)))
            found.append((work, ops[thread(call), inner], names))
    return found


def external_id(event: Event) -> int | None:
    """Return the id by which the profiler itself names an op, and the op of a kernel."""
    found: int | None = args(event).get("External id", args(event).get("external id"))
    return found


def ids_of_work(events: list[Event], works: list[Work]) -> list[tuple[Work, int]]:
    """Return the device work that carries the id of an op, and that id.

    Nothing where most ids merely repeat the correlation, as exporters wrote them before October 2024.
    """
    ops = {external_id(op) for op in complete(events, OPS)}
    kernels = zip(works, map(external_id, complete(events, DEVICE)), strict=True)
    named = [(work, number) for work, number in kernels if number is not None]
    repeated = sum(work.correlation == number for work, number in named)
    return [(work, number) for work, number in named if number in ops and 2 * repeated < len(named)]


class Sample(NamedTuple):
    """A row of the allocator: its device's type and id, its time in ns, its size, and the totals after it."""

    device: tuple[int | None, int | None]
    time: int
    size: int | None
    allocated: int | None
    reserved: int | None


def allocator_rows(events: list[Event]) -> list[Sample]:
    """Return the allocator's rows by time, those of one time in the file's order; what a row lacks is None."""
    rows = [event for event in events if event.get("name") == "[memory]"]
    samples = [
        Sample(
            (args(row).get("Device Type"), args(row).get("Device Id")),
            nanoseconds(row["ts"]),
            *map(args(row).get, SIZES),
        )
        for row in rows
    ]
    return sorted(samples, key=lambda sample: sample.time)


def backward_arrows(events: list[Event]) -> list[tuple[Point, Point]]:
    """Return the arrows that the exporter drew from forward ops to backward ops."""
    ends: dict[str, dict[int, Point]] = {"s": {}, "f": {}}
    for event in events:
        if event.get("cat") == "fwdbwd":
            ends[event["ph"]][event["id"]] = Point(thread(event), nanoseconds(event["ts"]))
    return [(point, ends["f"][number]) for number, point in ends["s"].items()]


def first_moment(events: list[Event]) -> int:
    """Return when the first row starts, in ns, of those that have a place in time; 0 among epoch times is none."""
    rows = complete(events, OPS | ANNOTATIONS | FRAMES | CALLS | DEVICE)
    starts = [nanoseconds(row["ts"]) for row in rows]
    is_epoch = max(starts, default=0) > EPOCH_NS
    return min((start for start in starts if start > EPOCH_NS or not is_epoch), default=0)
