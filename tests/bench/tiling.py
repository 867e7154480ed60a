"""Large traces, made of a small one: copies of it that follow one another in time.

Owns how copies are kept apart and how they are laid out: as PyTorch's exporter does, an event over several lines.
Numbers stay as their digits were written. Memory depends on the small trace, never on the size of what is made.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Event = Mapping[str, msgspec.Raw]

IDS = {
    "correlation": "correlation",
    "wait_on_cuda_event_record_corr_id": "correlation",
    "External id": "external",
    "external id": "external",
    "Ev Idx": "event",
    "Profiler Event Index": "event",
    "Sequence number": "sequence",
    "Python id": "python",
    "Python parent id": "python",
    "Record function id": "record",
}
"""Args that link events, and what they number: those of one kind are shifted alike. Flows have ids besides."""
_NO_ID = 2**32 - 1
_GAP_US = 1000
_CHUNK_EVENTS = 4000
_LAYOUT = 1
_HEAD = ("ph", "cat", "name", "pid", "tid")


@dataclass(frozen=True)
class Made:
    """A trace that was made: its file, alone in its folder, and what it is made of."""

    path: Path
    copies: int
    events: int
    bytes: int


@dataclass(frozen=True)
class _Chunk:
    """Text of some events with a `%d` for each number that differs between copies, those numbers, and their steps."""

    text: str
    numbers: Sequence[int]
    steps: Sequence[int]

    def copy(self, number: int) -> bytes:
        moved = tuple([value + number * step for value, step in zip(self.numbers, self.steps, strict=True)])
        return (self.text % moved).encode()


def make(source: Path, size: int, folder: Path) -> Made:
    """Return a trace of about `size` bytes made of the one at `source`; one made before in `folder` is kept.

    Raises TracekitError if `source` is not a trace in valid JSON, plain or gzipped.
    """
    raw = source.read_bytes()
    name = f"{source.name.split('.')[0]}-{size}-{hashlib.sha256(raw).hexdigest()[:8]}-{_LAYOUT}"
    path, about = folder / name / "rank0.json", folder / f"{name}.json"
    if about.exists() and path.exists():
        made = Made(path, **json.loads(about.read_text(encoding="utf-8")))
        if path.stat().st_size == made.bytes:
            return made
    path.parent.mkdir(parents=True, exist_ok=True)
    made = _write(source.name, raw, size, path)
    about.write_text(json.dumps({key: value for key, value in asdict(made).items() if key != "path"}), encoding="utf-8")
    return made


def _write(name: str, raw: bytes, size: int, path: Path) -> Made:
    try:
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        document = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        events = msgspec.json.decode(document.pop("traceEvents"), type=list[msgspec.Raw])
        once, repeated, last = _sorted(events)
        steps = _steps(repeated)
    except (msgspec.MsgspecError, KeyError, EOFError, OSError, ValueError) as error:
        raise TracekitError(
            f"{name} can't be tiled: {error}", "give a whole trace, as torch.profiler wrote it"
        ) from error
    chunks = {what: list(_chunks(part, steps)) for what, part in (("once", once), ("all", repeated), ("last", last))}
    one = sum(len(chunk.copy(0)) for chunk in chunks["all"])
    copies = max(1, round(size / one))
    with path.open("wb") as out:
        head = "".join(f"  {json.dumps(key)}: {_plain(value)},\n" for key, value in document.items())
        out.write(f'{{\n{head}  "traceEvents": [\n'.encode())
        between = b""
        for chunk, copy in _in_order(chunks, copies):
            out.write(between)
            out.write(chunk.copy(copy))
            between = b",\n"
        out.write(b"\n  ]\n}\n")
        written = out.tell()
    return Made(path, copies, len(once) + copies * len(repeated) + len(last), written)


def _in_order(chunks: Mapping[str, Sequence[_Chunk]], copies: int) -> Iterator[tuple[_Chunk, int]]:
    yield from ((chunk, 0) for chunk in chunks["once"])
    for copy in range(copies):
        yield from ((chunk, copy) for chunk in chunks["all"])
    yield from ((chunk, copies - 1) for chunk in chunks["last"])


def _sorted(events: Sequence[msgspec.Raw]) -> tuple[list[Event], list[msgspec.Raw], list[Event]]:
    """Tell apart what stands once at the start (names of tracks, rows without a time), in each copy, and at the end."""
    once, repeated, last = [], [], []
    for raw in events:
        event = _event(raw)
        if _plain(event.get("name")) == '"Record Window End"':
            last.append(event)
        elif _plain(event.get("ph")) == '"M"' or not _whole_us(event.get("ts")).isdigit():
            once.append(event)
        else:
            repeated.append(raw)
    return once, repeated, last


def _event(raw: msgspec.Raw) -> Event:
    return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])


def _args(event: Event) -> Event:
    return _event(event["args"]) if "args" in event else {}


def _plain(raw: msgspec.Raw | None) -> str:
    """Return a value as it was written, on one line; in JSON, lines never end inside a string."""
    text = "" if raw is None else bytes(raw).decode()
    return "".join(line.strip() for line in text.split("\n")) if "\n" in text else text


def _whole_us(raw: msgspec.Raw | None) -> str:
    """Return a time's digits before its point: copies lie whole microseconds apart, so that the rest stays."""
    return _plain(raw).partition(".")[0]


def _numbers(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the kind and the digits of each id of an event."""
    for key, raw in _args(event).items():
        if key in IDS:
            yield IDS[key], _plain(raw)
    if _is_flow(event):
        yield _flow_kind(event), _plain(event["id"])


def _is_flow(event: Event) -> bool:
    return "id" in event and _plain(event.get("ph")) in {'"s"', '"t"', '"f"'}


def _flow_kind(event: Event) -> str:
    """Return what a flow's id numbers: pairs of forward and backward, or else launches, by their correlation."""
    category = _plain(event.get("cat"))
    return "flow" if "fwd" in category or "forward" in category else "correlation"


def _is_id(kind: str, digits: str) -> bool:
    return digits.isdigit() and int(digits) < _NO_ID and not (kind == "record" and int(digits) == 0)


def _steps(repeated: Sequence[msgspec.Raw]) -> dict[str, int]:
    """Return by how much each kind of number grows from copy to copy: more than any in the trace; times, its span."""
    largest: Counter[str] = Counter()
    first, end = 2**63, 0
    for event in map(_event, repeated):
        start = int(_whole_us(event["ts"]))
        length = _whole_us(event.get("dur"))
        first, end = min(first, start), max(end, start + (int(length) if length.isdigit() else 0))
        for kind, digits in _numbers(event):
            if _is_id(kind, digits):
                largest[kind] = max(largest[kind], int(digits) + 1)
    if not repeated:
        raise ValueError("it holds no event with a time")
    return {**largest, "time": end - first + _GAP_US}


def _chunks(events: Sequence[msgspec.Raw] | Sequence[Event], steps: Mapping[str, int]) -> Iterator[_Chunk]:
    for at in range(0, len(events), _CHUNK_EVENTS):
        numbers: list[int] = []
        by: list[int] = []
        texts = [
            _text(_event(given) if isinstance(given, msgspec.Raw) else given, steps, numbers, by)
            for given in events[at : at + _CHUNK_EVENTS]
        ]
        yield _Chunk(",\n".join(texts), numbers, by)


def _text(event: Event, steps: Mapping[str, int], numbers: list[int], by: list[int]) -> str:
    """Return an event's text with a `%d` for what differs between copies, and note those numbers and their steps."""

    def field(key: str, raw: msgspec.Raw, kind: str | None) -> str:
        value, rest = _plain(raw), ""
        if kind == "time":
            value, point, rest = value.partition(".")
            rest = point + rest
        if kind in steps and kind is not None and (value.isdigit() if kind == "time" else _is_id(kind, value)):
            numbers.append(int(value))
            by.append(steps[kind])
            return f"{_escaped(json.dumps(key))}: %d{rest}"
        return _escaped(f"{json.dumps(key)}: {value}{rest}")

    kinds = {"ts": "time", "id": _flow_kind(event) if _is_flow(event) else None}
    head = ", ".join(field(key, event[key], None) for key in _HEAD if key in event)
    tail = [key for key in event if key not in (*_HEAD, "args")]
    lines = [head, ", ".join(field(key, event[key], kinds.get(key)) for key in tail)]
    if "args" in event:
        inside = ", ".join(field(key, raw, IDS.get(key)) for key, raw in _args(event).items())
        lines.append(f'"args": {{\n      {inside}\n    }}')
    return "  {\n    " + ",\n    ".join(line for line in lines if line) + "\n  }"


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def main(source: str, size: str, folder: str) -> None:
    """Make a trace and print what it is as JSON; for a process of its own, whose memory goes when it ends."""
    try:
        made = make(Path(source), int(size), Path(folder))
    except TracekitError as error:
        sys.exit(str(error))
    print(json.dumps({**asdict(made), "path": str(made.path)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
