"""The keys around a trace's events, read one by one where they are no valid JSON together.

Owns the envelope's text before `traceEvents` and after its `]`. It gives JSON texts; what they mean is known above.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from tracekit.ingest.salvage_repair import Budget, repair
from tracekit.ingest.salvage_scan import Reader
from tracekit.ingest.salvage_text import is_accepted, mend_text

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 2_000_000
_MAX_ENDS = 64

_BOM = b"\xef\xbb\xbf"
_TRAILING = re.compile(rb'("(?:[^"\\]|\\.)*+")|,(?=[ \t\r\n]*+[}\]])')
"""A text, which is kept, or a comma behind the last value of an object or a list."""
_AROUND = re.compile(rb"(?:[\s,{}\[\]]|\xef\xbb\xbf)*+")
_KEY = re.compile(rb'("(?:[^"\\\x00-\x1f]|\\.){0,200}+")[ \t\r\n]*+:[ \t\r\n]*+')
_NEXT = re.compile(rb'[,\n\]}"][ \t\r\n]*+(?="(?:[^"\\\x00-\x1f]|\\.){0,200}+"[ \t\r\n]*+:)')
_AFTER = re.compile(rb'[ \t\r\n]*+(?:,(?!\d)|[}\]]|\Z|"(?:[^"\\\x00-\x1f]|\\.){0,200}+"[ \t\r\n]*+:)')
_LAST = re.compile(rb"[\s,]*+(\}?)[\s,]*+\Z")


def metadata(text: bytes) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the keys of the envelope's text before or after the events, each with its value's valid JSON.

    The names of the repairs made come with them, and `lost_key:NAME` for each key whose value is beyond repair.
    """
    whole = _TRAILING.sub(rb"\1", text)
    if whole != text and (values := _whole(whole)):
        return values, ("comma",)
    return _Envelope(text).run()


def _whole(text: bytes) -> dict[str, bytes]:
    """Return the keys before the events if their text is valid JSON as far as it goes, else none."""
    try:
        values = msgspec.json.decode(text.removeprefix(_BOM) + b'"":0}', type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {name: bytes(value) for name, value in values.items() if name}


class _Envelope:
    """A walk over the envelope's keys."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.reader = Reader(text)
        self.budget = Budget(STEPS)
        self.values: dict[str, bytes] = {}
        self.repairs: dict[str, None] = {}

    def run(self) -> tuple[dict[str, bytes], tuple[str, ...]]:
        pos = 0
        while (pos := _skip(self.text, pos)) < len(self.text):
            key = _KEY.match(self.text, pos)
            if key is None:
                self.repairs["stray_text"] = None
                pos = next((at for at in self._next_keys(pos)), len(self.text))
                continue
            name = _name(key[1])
            if name == "traceEvents":
                break
            pos = self._value(name, key.end())
        return self.values, tuple(self.repairs)

    def _value(self, name: str, pos: int) -> int:
        """Read the value at `pos`, repaired if it must be; return where to read on."""
        read = self.reader.value_at(pos)
        if read is not None and _AFTER.match(self.text, read[1]):
            value, repairs = mend_text(self.text[pos : read[1]])
            if _is_value(value):
                self._keep(name, value, repairs)
                return read[1]
        for end in self._ends(pos):
            wrapped = b'{"":' + self.text[pos:end] + b"}"
            mended = repair(wrapped, self.budget, may_close=False)
            value, repairs = mend_text(mended.text[len(b'{"":') : -1])
            if "closing_bracket" not in mended.repairs and mended.end == len(wrapped) and _is_value(value):
                self._keep(name, value, mended.repairs + repairs)
                return end
        self.repairs[f"lost_key:{name}"] = None
        return next((at for at in self._next_keys(pos) if _is_balanced(self.text[pos:at])), len(self.text))

    def _keep(self, name: str, value: bytes, repairs: tuple[str, ...]) -> None:
        self.values[name] = value
        self.repairs |= dict.fromkeys(repairs)

    def _next_keys(self, pos: int) -> Iterator[int]:
        for count, match in enumerate(_NEXT.finditer(self.text, pos)):
            if count == _MAX_ENDS:
                return
            yield match.end()

    def _ends(self, pos: int) -> Iterator[int]:
        """Yield where a value may end: before each key that may be the next, and at the end of the text."""
        for at in self._next_keys(pos):
            yield len(self.text[:at].rstrip(b" \t\r\n,"))
        last = _LAST.search(self.text, pos)
        if last is not None:
            yield last.start()
            yield last.end(1)


def _skip(text: bytes, pos: int) -> int:
    match = _AROUND.match(text, pos)
    return match.end() if match else pos


def _name(key: bytes) -> str:
    try:
        return msgspec.json.decode(mend_text(key)[0], type=str)
    except msgspec.DecodeError:
        return key[1:-1].decode("utf-8", "replace")


def _is_value(text: bytes) -> bool:
    """Say whether text is one JSON value that the fast decoder takes."""
    wrapped = b'{"":' + text + b"}"
    found = Reader(wrapped).object_at(0)
    return found is not None and found.keys == ("",) and not text.startswith(b",") and is_accepted(wrapped)


def _is_balanced(text: bytes) -> bool:
    return text.count(b"{") == text.count(b"}") and text.count(b"[") == text.count(b"]")
