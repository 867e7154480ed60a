"""A piece of a trace's text, events separated by commas, to rows sorted by kind.

Owns the three ways to read: all events at once into typed structs; event by event, where one is of a shape that no
struct has; and salvage, where the text is no JSON. Each gives the same rows, and every event is in one of them, is
counted as an arrow, or is named as lost.
"""

from __future__ import annotations

import gc
import re
from collections import defaultdict
from contextlib import contextmanager
from functools import cache, reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from tracekit.ingest.args import EXTRAS, HEAD, Identity, Shape, knowledge, reader, row_struct, shapes, text
from tracekit.ingest.cut import parts
from tracekit.ingest.repeats import repeats
from tracekit.ingest.rows import ArrowRow, OtherRow, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.salvage import Salvaged

_FLOWS = frozenset("stf")
_ARROWS = frozenset({"flow", "arrow"})
PART_BYTES = 2**19
"""Text whose events are read at once, or not: little enough to stay in a processor's cache."""
_GROUP = 256


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Keep Python from looking for garbage among millions of new rows, none of which is any."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def decode(piece: bytes, start: int = 0, *, is_odd: bool = False, is_strict: bool = False) -> Rows:
    """Return the rows of a piece of text that begins `start` bytes into the trace. Raises nothing.

    Each row's `ts` and `dur` are text that need not be a time. Where one is found that is none, the piece is to be
    read again as `is_odd`: event by event, so that an event without a time is kept whole. A reader who `is_strict`
    looks at all of the text for repeated keys, else only at samples.
    """
    with _no_garbage():
        found = _in_parts(piece, start, is_odd=is_odd)
        if found is None:
            return _salvaged(piece, start)
        _add_unnoticed(found, piece, start, is_strict=is_strict)
        return found


def _in_parts(piece: bytes, start: int, *, is_odd: bool) -> Rows | None:
    """Return the rows of a piece, read part by part so that odd events slow down but one; None if it is no JSON."""
    found = Rows()
    for first, last in parts(piece, PART_BYTES):
        part = _read(memoryview(piece)[first:last], start + first, is_odd=is_odd)
        if part is None:
            return None if last - first == len(piece) else _read(piece, start, is_odd=is_odd)
        found.take(part)
    return found


def _read(events: bytes | memoryview, start: int, *, is_odd: bool) -> Rows | None:
    listed = b"".join((b"[", events, b"]"))
    if not is_odd and (found := _quickly(listed)) is not None:
        return found
    try:
        raws = msgspec.json.decode(listed, type=list[Raw])
    except (msgspec.DecodeError, RecursionError):
        return None
    return _one_by_one(raws, listed, start - 1, is_odd=is_odd)


def _add_unnoticed(found: Rows, piece: bytes, start: int, *, is_strict: bool) -> None:
    """Count what the decoders don't look at: keys that are repeated, and bytes that are no UTF-8, replaced later."""
    for offset in repeats(piece, is_strict=is_strict):
        found.findings["repaired:duplicate_key"].add(offset=start + offset)
    if not piece.isascii():
        try:
            piece.decode()
        except UnicodeDecodeError as error:
            replaced = piece.decode("utf-8", "replace").count("\ufffd") - piece.count("\ufffd".encode())
            found.findings["repaired:utf8"].add(replaced, start + error.start)


def _quickly(listed: bytes) -> Rows | None:
    """Return the rows of a list of events if all are as their categories promise, else None."""
    for wide in tuple(_WIDTHS):
        try:
            found = _at_once(listed, wide=wide)
        except msgspec.ValidationError as error:
            if "unknown field" not in str(error):  # which wider structs might know
                return None
        except (msgspec.DecodeError, RecursionError, _OddError):
            return None
        else:
            _WIDTHS.sort(key=lambda each: each != wide)  # the next piece will be alike
            return found
    return None


class _OddError(Exception):
    """An event is not what its category promises, so that the rows must be made one by one."""


_WIDTHS = [False, True]
"""Whether to read with all args that are known, in the order in which to try."""


@cache
def _decoder(*, wide: bool) -> msgspec.json.Decoder[list[Any]]:
    return msgspec.json.Decoder(list[reduce(or_, shapes(wide=wide))])  # type: ignore[misc]


@cache
def _one_decoder() -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(reduce(or_, shapes(wide=False)))


def _at_once(listed: bytes, *, wide: bool = False) -> Rows:
    by_shape: dict[type[Any], list[Any]] = defaultdict(list)
    events = _decoder(wide=wide).decode(listed)
    for event in events:
        by_shape[event.__class__].append(event)
    found = Rows(events=len(events), usable=len(events), is_wide=wide)
    known = shapes(wide=wide)
    for struct in sorted(by_shape, key=lambda each: known[each]):  # so that order in the file does not matter
        rows, shape = by_shape[struct], known[struct]
        if shape.kind == "other" and not all(map(_is_other, rows)):
            raise _OddError
        _take(found, rows, shape)
    return found


def _is_other(row: Any) -> bool:
    """Tell whether an event of a category without a table is neither an arrow nor about memory."""
    return row.ph not in _FLOWS and row.name != "[memory]"


SEPARATOR = b"\x1e"
"""A control character, which JSON text never holds as such."""
_NUMBER_START = frozenset(b"-0123456789")


def _take(found: Rows, rows: list[Any], shape: Shape) -> None:
    category = shape.category.lower()
    if shape.kind in _ARROWS:
        found.flows += len(rows)
        found.arrows += rows if shape.kind == "arrow" else ()
    elif shape.kind == "other":
        found.categories[shape.category] += len(rows)
        found.other += [_other(row, category, _with_extras(row)) for row in rows]
    else:
        found.add(shape.kind, shape.category, rows)


def _other(row: Any, category: str, args_json: str | None) -> OtherRow:
    return OtherRow(category, row.ph, row.name, row.pid, row.tid, row.ts, row.dur, args_json)


def _with_extras(row: Any) -> str | None:
    return _joined({key: raw for key in EXTRAS if len(memoryview(raw := getattr(row, key)))}, text(row.args))


def _joined(extras: dict[str, Raw], args_json: str | None) -> str | None:
    """Return fields of an event and its args as one JSON object, or the args as they are where there are no fields."""
    if not extras:
        return args_json
    made = msgspec.json.encode(extras).decode("utf-8", "replace")
    if args_json is None or not args_json.startswith("{"):
        return made if args_json is None else f'{made[:-1]},"args":{args_json}}}'
    inner = args_json[1:].lstrip()
    return made if inner == "}" else f"{made[:-1]},{inner}"


def _salvaged(piece: bytes, start: int) -> Rows:
    from tracekit.ingest.salvage import salvage

    saved = _sifted(salvage(piece, start), piece, start)
    found = Rows(tail=saved.tail)
    for event in saved.events:
        _place(found, Raw(event.text), event.offset)
        for repair in event.repairs:
            found.findings[f"repaired:{repair}"].add(offset=event.offset)
    for lost in saved.lost:
        found.findings[f"lost:{lost.reason}"].add(offset=lost.offset, example=f"{lost.length:,} bytes")
    if not (saved.lost or any(event.repairs for event in saved.events)) and not _is_list(piece, saved.tail):
        found.findings["repaired:separator"].add(offset=start)
    return found


def _sifted(saved: Salvaged, piece: bytes, start: int) -> Salvaged:
    """Look once more at each text that gave no event, if events begin within: at every one of them for itself."""
    from tracekit.ingest.salvage import salvage

    events, lost = list(saved.events), []
    for one in saved.lost:
        text = piece[one.offset - start : one.offset - start + one.length]
        begins = [found.start() for found in _BEGINS.finditer(text)]
        again = [
            salvage(text[first:last].rstrip(b", \t\r\n"), one.offset + first)
            for first, last in pairwise([*begins, len(text)])
        ]
        if len(begins) < 2 or not any(each.events for each in again):
            lost.append(one)
            continue
        events += [event for each in again for event in each.events]
        lost += [each for part in again for each in part.lost]
    return saved._replace(events=sorted(events, key=lambda event: event.offset), lost=lost)


_BEGINS = re.compile(rb'\{\s*"(?:ph"\s*:|name"\s*:\s*"[^"\\]*"\s*,\s*"(?:ph|cat)"\s*:)')


def _is_list(piece: bytes, tail: bytes) -> bool:
    """Tell whether there is nothing wrong between the events of a piece, which may be cut off after a comma."""
    body = piece[: len(piece) - len(tail)] if tail else piece.rstrip(b" \t\r\n,")
    try:
        msgspec.json.decode(b"[" + body + b"]", type=list[Raw])
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _one_by_one(raws: list[Raw], listed: bytes, start: int, *, is_odd: bool) -> Rows:
    """Read the events of a list in small groups, and one by one only in a group that holds an odd one."""
    found = Rows()
    place = 0
    for first in range(0, len(raws), _GROUP):
        group = raws[first : first + _GROUP]
        quick = None if is_odd else _quickly(b"[" + b",".join(group) + b"]")
        if quick is not None:
            found.take(quick)
        else:
            place = max(place, listed.find(memoryview(group[0]), place))
            for raw in group:
                at = listed.find(memoryview(raw), place)
                place = at + len(memoryview(raw))
                _place(found, raw, start + at)
    return found


def _place(found: Rows, raw: Raw, offset: int) -> None:
    """Sort in one event, whatever its shape."""
    found.events += 1
    try:
        event = _one_decoder().decode(raw)
    except (msgspec.DecodeError, RecursionError):
        _place_odd(found, raw, offset)
        return
    shape = shapes(wide=False)[event.__class__]
    if _is_other(event) if shape.kind == "other" else shape.kind in _ARROWS or _is_number(event.ts):
        found.usable += 1
        _take(found, [event], shape)
    else:
        _place_odd(found, raw, offset)


@cache
def _field_decoders() -> dict[str, msgspec.json.Decoder[Any]]:
    kinds = {name: kind for name, kind, _ in HEAD} | {"cat": str | None, "args": Raw}
    return {name: msgspec.json.Decoder(kind) for name, kind in kinds.items()}


def _place_odd(found: Rows, raw: Raw, offset: int) -> None:
    try:
        fields, extras = _fields(raw)
    except msgspec.DecodeError as error:
        found.findings["unreadable_event"].add(offset=offset, example=str(error))
        found.other.append(OtherRow("unreadable", "", "", None, None, Raw(), Raw(), text(raw)))
        return
    found.usable += 1
    written = fields.pop("cat") or ""
    args, category, letter = fields.pop("args"), written.lower(), fields["ph"]
    if letter in _FLOWS:
        _place_arrow(found, category, fields, extras.get("id", b"null"))
        return
    kind = _kind(fields, category)
    if kind is not None and not _is_number(fields["ts"]):
        found.findings["event_without_time"].add(offset=offset, example=text(fields["ts"]) or "missing")
        kind = None
    if kind is None:
        if letter != "M":
            found.categories[written] += 1
            found.unknown[category] += category not in _known()
        found.other.append(OtherRow(category=category, **fields, args_json=_joined(extras, text(args))))
        return
    typed, rest = reader(kind).read(args)
    if kind == "memory":
        extras.pop("s", None)
    if joined := _joined(extras, rest):
        found.rests[kind][len(found.rows[kind])] = joined
    found.add(kind, written, [row_struct(kind)(**fields, args=typed)])


def _place_arrow(found: Rows, category: str, fields: dict[str, Any], written: Raw | bytes) -> None:
    found.flows += 1
    if category in knowledge()["flows"]["forward"]:
        try:
            identity = msgspec.json.decode(written, type=Identity)
        except msgspec.DecodeError:
            identity = None
        found.arrows.append(ArrowRow(fields["ph"], identity, fields["pid"], fields["tid"], fields["ts"]))


@cache
def _known() -> frozenset[str]:
    return frozenset({"", *knowledge()["known_other"]["categories"], *knowledge()["categories"]})


def _fields(raw: Raw) -> tuple[dict[str, Any], dict[str, Raw]]:
    """Return an event's known fields and all others. Raises msgspec.DecodeError if one is of the wrong type."""
    try:
        items = msgspec.json.decode(raw, type=dict[str, Raw])
        values = _typed(items)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # bytes that are no UTF-8
        items = msgspec.json.decode(str(memoryview(raw), "utf-8", "replace"), type=dict[str, Raw])
        values = _typed(items)
    return values, {key: value for key, value in items.items() if key not in values}


def _typed(items: dict[str, Raw]) -> dict[str, Any]:
    absent: dict[str, Any] = {name: default for name, _, default in HEAD} | {"cat": None, "args": Raw()}
    return absent | {name: decoder.decode(items[name]) for name, decoder in _field_decoders().items() if name in items}


def _kind(fields: dict[str, Any], category: str) -> str | None:
    """Return the kind of row that an event becomes, or None for one that is kept whole."""
    if fields["name"] == "[memory]" and (fields["ph"] in {"i", "I"} or category == "cpu_instant_event"):
        return "memory"  # the Python exporter writes them as complete events
    found: str | None = knowledge()["categories"].get(category) if fields["ph"] == "X" else None
    return found


def _is_number(raw: Raw) -> bool:
    """Tell whether a time is a number, be it written as text."""
    digits = bytes(memoryview(raw)).strip(b'"').strip()
    return bool(digits) and digits[0] in _NUMBER_START
