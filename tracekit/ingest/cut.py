"""A trace's text to pieces that hold whole events, and the keys around them.

Owns the envelope (an object with `traceEvents`, or the bare list of old exporters) and the places where its list may
be cut: where an event's first key follows another event's end. Nothing of an event is understood here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Raw

from tracekit.errors import TracekitError
from tracekit.ingest.rows import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PIECE_BYTES = 2**24
"""Text given to one decoder at once. Smaller ones cost more calls, larger ones more memory in each process."""

_MOST_HEAD = 2**26
_BOM = b"\xef\xbb\xbf"
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*(?P<first>\S)')
_ANY_EVENT = re.compile(rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id)"\s*:')
_LOOK_BACK = 2**16
_PADDING = b" \t\r\n\0"
_PLACE = re.compile(r"\(byte (\d+)\)")
"""Where msgspec says that JSON is wrong."""
_EXPORT = "give a file written by torch.profiler's export_chrome_trace"


class Piece(NamedTuple):
    """Events separated by commas, the first of them `start` bytes into the text."""

    start: int
    text: bytes


class Cutter:
    """Cuts a text as it comes. `metadata`, `findings` and `is_cut_off` are whole once `pieces` has ended."""

    def __init__(self, blocks: Iterable[bytes], name: str, size: int = PIECE_BYTES) -> None:
        """Take the text as blocks of bytes; `name` is what messages call it, `size` the most bytes of a piece."""
        self.metadata: dict[str, Raw] = {}
        self.findings: dict[str, Finding] = defaultdict(Finding)
        self.is_cut_off = False
        self.is_list = False
        self._unclosed: int | None = None
        self._blocks = iter(blocks)
        self._name = name
        self._size = size

    def pieces(self) -> Iterator[Piece]:
        """Yield the events in order. Raises TracekitError if the text is no trace."""
        start, rest = self._opening()
        for block in self._blocks:
            if len(rest) + len(block) >= self._size and (sure := _last_sure(block, max(0, len(block) - _LOOK_BACK))):
                yield Piece(start, b"".join((rest, memoryview(block)[: sure.start() + 1])))  # one copy, not two
                start += len(rest) + sure.end("comma")
                rest = block[sure.end("comma") :]
                continue
            rest += block
            if len(rest) < self._size:
                continue
            yield from (cut := list(_cut(rest, start, self._size)))[:-1]
            start, rest = cut[-1]
        if len(rest) > self._size:  # the end is looked at closely, so it had better be short
            yield from (cut := list(_cut(rest, start, self._size)))[:-1]
            start, rest = cut[-1]
        yield self._closing(start, rest)

    def _opening(self) -> tuple[int, bytes]:
        """Return where the events begin, and the text from there on as far as it was read."""
        text = b""
        for block in self._blocks:
            text += block
            if (found := self._opened(text)) is not None:
                return found
            if len(text) > _MOST_HEAD:
                break
        if (first := _ANY_EVENT.search(text)) is None:
            raise _no_trace(text, self._name)
        self.findings["repaired:no_envelope"].add(offset=0)  # its beginning is lost, its events are not
        self.is_list = True
        return first.start(), text[first.start() :]

    def _opened(self, text: bytes) -> tuple[int, bytes] | None:
        blank = len(text) - len(text.removeprefix(_BOM).lstrip())
        if text.startswith(b"[", blank):
            self.is_list = True
            return blank + 1, text[blank + 1 :]
        if not text.startswith(b"{", blank) or (key := _EVENTS.search(text)) is None:
            return None
        if key["first"] != b"[":
            raise no_list(self._name)
        self._head(text[blank : key.start()], blank)
        return key.end(), text[key.end() :]

    def _head(self, text: bytes, start: int) -> None:
        try:
            self.metadata |= msgspec.json.decode(text + b'"":0}', type=dict[str, Raw])
        except (msgspec.DecodeError, RecursionError) as error:
            place = _PLACE.search(str(error))
            self.add_metadata(text, start + min(len(text), int(place[1])) if place else start)
        self.metadata.pop("", None)

    def _closing(self, start: int, text: bytes) -> Piece:
        """Return the last piece, having read the keys behind it; a piece that is not closed stays as it is."""
        try:
            if self.is_list:
                msgspec.json.decode(b"[" + text, type=list[Raw])
                return Piece(start, text.rstrip()[:-1])
            found = msgspec.json.decode(b'{"":[' + text, type=dict[str, Raw])
        except (msgspec.DecodeError, RecursionError):
            self._unclosed = start + len(text)
            return Piece(start, text)
        events = bytes(found.pop(""))
        self.metadata |= {key: Raw(bytes(value)) for key, value in found.items()}
        return Piece(start, events[1:-1])

    def close(self, tail: bytes) -> None:
        """Take what follows the events where the text did not end as it should; note that it is cut, if it is.

        `tail` begins with the `]` of the list, or with a key where that is missing; it is empty if neither is there.
        """
        if self._unclosed is not None:
            self._close(tail, self._unclosed)
        if (second := self.metadata.pop("traceEvents", None)) is not None:
            self.findings["lost:second_list"].add(_count(second), example=f"{len(bytes(second)):,} bytes")

    def _close(self, tail: bytes, end: int) -> None:
        offset = end - len(tail)
        noted = self.add_metadata(tail, offset) if tail else ()
        if _is_stray(tail, is_list=self.is_list):
            self.findings["lost:stray_text"].add(offset=offset, example="behind the trace's end")
        elif not _may_be_closed(tail.rstrip(_PADDING), is_list=self.is_list):
            self.is_cut_off = True
            if "damaged_file" not in self.findings:  # which says it better
                self.findings["cut_off"].add(offset=end)
        elif not tail.startswith(b"]"):
            self.findings["repaired:closing_bracket"].add(offset=offset)
        elif not (noted or _is_closed(tail, is_list=self.is_list)):
            self.findings["lost:stray_text"].add(offset=offset, example="behind the trace's end")

    def say_damaged(self, damage: str, offset: int) -> None:
        """Note that what the text was packed in is damaged; whether text is missing is seen by the text."""
        self.findings["damaged_file"].add(offset=offset, example=damage)

    def add_metadata(self, text: bytes, offset: int) -> tuple[str, ...]:
        """Take what can be read of keys that are no valid JSON; count what can't, and name it.

        `offset` is where in the trace something is wrong first, as far as is known.
        """
        from tracekit.ingest.salvage import metadata

        values, problems = metadata(text)
        self.metadata |= {key: Raw(value) for key, value in values.items()}
        for problem in problems:
            kind, _, key = problem.rpartition(":")
            self.findings[f"{kind or 'repaired'}:{key}"].add(offset=offset)
        return problems


def _count(value: Raw) -> int:
    """Return how many values a list holds; what is no list counts as one."""
    try:
        return len(msgspec.json.decode(value, type=list[Raw]))
    except (msgspec.DecodeError, RecursionError):
        return 1


_SURE = re.compile(rb'\}(?P<comma>\s*,\s*)\{\s*"ph"\s*:')
"""An event's end, and the beginning of one as PyTorch writes it; no object inside an event begins so."""
_LIKELY = re.compile(rb'\}(?P<comma>\s*,\s*)\{\s*"(?:name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:')
_TRIES = 64
_PATIENCE = 4
"""Text without a place to cut may grow to this many times a piece before it is cut where that may be wrong."""


def parts(text: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Yield where the parts of a piece begin and end, of about so many bytes each, with nothing but commas between.

    A piece in which no place to cut is near is one part.
    """
    first = 0
    while len(text) - first > 2 * size and (sure := _SURE.search(text, first + size, first + size + _LOOK_BACK)):
        yield first, sure.start() + 1
        first = sure.end("comma")
    yield first, len(text)


def _cut(text: bytes, start: int, size: int) -> Iterator[Piece]:
    """Yield the text up to the last place where it can be cut, if it has one, and the rest."""
    back = _LOOK_BACK
    while (last := _last_boundary(text, max(0, len(text) - back))) is None and back < len(text):
        back *= 16
    if last is None and len(text) > _PATIENCE * size:  # it is damaged, and salvage makes the best of it
        last = next(iter(reversed(list(_LIKELY.finditer(text, len(text) // 2)))), None)
    if last is None:
        yield Piece(start, text)
        return
    yield Piece(start, text[: last.start() + 1])
    yield Piece(start + last.end("comma"), text[last.end("comma") :])


def _last_boundary(text: bytes, first: int) -> re.Match[bytes] | None:
    """Return the last boundary between events at or after a place, whatever the key that the next one begins with.

    Lists inside an event may look the same, so that one which is not sure must leave valid JSON before it.
    """
    if (sure := _last_sure(text, first)) is not None:
        return sure
    for found in reversed(list(_LIKELY.finditer(text, first))[-_TRIES:]):
        try:
            msgspec.json.decode(b"".join((b"[", text[: found.start() + 1], b"]")), type=list[Raw])
        except (msgspec.DecodeError, RecursionError):
            continue
        return found
    return None


def _last_sure(text: bytes, first: int) -> re.Match[bytes] | None:
    """Return the last boundary at or after a place that is surely one."""
    return next(iter(reversed(list(_SURE.finditer(text, first)))), None)


def _is_stray(tail: bytes, *, is_list: bool) -> bool:
    """Tell whether the trace is whole, and something follows it."""
    end = tail.rfind(b"]" if is_list else b"}") + 1
    return 0 < end < len(tail.rstrip(_PADDING)) and _is_closed(tail[:end], is_list=is_list)


def _may_be_closed(tail: bytes, *, is_list: bool) -> bool:
    """Tell whether what follows the events closes what was opened, be it valid or not."""
    if not tail.endswith(b"]" if is_list else b"}"):
        return False
    closed = sum(tail.count(each) for each in (b"]", b"}")) - sum(tail.count(each) for each in (b"[", b"{"))
    return closed >= (1 if is_list or not tail.startswith(b"]") else 2)


def _is_closed(tail: bytes, *, is_list: bool) -> bool:
    """Tell whether what follows the events is valid, padding left out."""
    try:
        msgspec.json.decode((b"[" if is_list else b'{"":[') + tail.lstrip(b", \t\r\n").rstrip(_PADDING), type=Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _no_trace(text: bytes, name: str) -> TracekitError:
    """Return what to say of text without any event."""
    try:
        msgspec.json.decode(text.removeprefix(_BOM), type=Raw)
    except RecursionError:
        return TracekitError(f"{name}: its JSON is nested too deeply for a profiler trace", _EXPORT)
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            return cut_off(name)
        return TracekitError(f"{name} is not JSON, so no profiler trace", "give a .json or .json.gz trace, or a .tkb")
    return no_list(name)


def cut_off(name: str) -> TracekitError:
    """Return what to say of a text that ends before an event does."""
    problem = f"{name} is cut off before its first event ended"
    return TracekitError(problem, "get the file again, or let the profiler finish its export")


def no_list(name: str) -> TracekitError:
    """Return what to say of JSON that has no list of events."""
    return TracekitError(f"{name} is JSON but no profiler trace (no list named traceEvents)", _EXPORT)


def no_events(name: str) -> TracekitError:
    """Return what to say of JSON whose list holds other things than events."""
    return TracekitError(f"{name} is JSON but no profiler trace (its list holds no events)", _EXPORT)
