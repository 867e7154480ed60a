"""Saves what can be saved of a trace's events where the fast decoder refused their text.

Owns the walk over the text between `[` and `]` of `traceEvents`: every byte of it becomes part of an event, of a loss
with its reason, of the tail, or is a separator. Valid events are handed on byte for byte; where they begin is
`salvage_scan`'s knowledge, how a damaged one is mended `salvage_repair`'s. It reads no files.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tracekit.ingest.salvage_metadata import metadata
from tracekit.ingest.salvage_repair import Budget, Repaired, repair
from tracekit.ingest.salvage_scan import EVENT_KEYS, Found, Reader, Starts
from tracekit.ingest.salvage_text import is_accepted, mend_text

__all__ = ["Lost", "Salvaged", "Whole", "metadata", "salvage"]

STEPS = 5_000_000
"""Steps of repair in one piece: half a minute at most. Text that needs more is no trace any more."""

_SEPARATORS = re.compile(rb"(?:[\s,]|\xef\xbb\xbf)*+")
_SEPARATORS_BACK = b" \t\r\n\x0b\x0c,"
_CLOSERS = re.compile(rb"[}\]](?:[\s}\]]*[}\]])?")
_KEY = re.compile(rb'"([^"\\\x00-\x1f]{1,200})"[ \t\r\n]*+:')
_MEMBER = re.compile(rb'"[ \t\r\n]*+:')
_LINE = re.compile(rb'(?!["}\]:\d.-]|\[\s*["\[{])[^\n]*+\n?')
_ARRAY_END = re.compile(rb'\](?=\s*(?:,\s*"|\}?\s*\Z))')
_MAX_TAILS = 4


class Whole(NamedTuple):
    """An event that can be used.

    `offset` is that of its `{` in the file (of its first key, if the brace was missing), `text` a valid JSON object
    in valid UTF-8, `repairs` the names of what was changed or noticed, empty if it was valid as it stood.
    """

    offset: int
    text: bytes
    repairs: tuple[str, ...]


class Lost(NamedTuple):
    """Text that gave no event, and why.

    `cut_off`: an event without its end; `no_start`: one without its beginning; `not_json`: one damaged beyond repair;
    `too_deep`: one nested beyond reason; `stray_text`: lines of a log and brackets between events.
    """

    offset: int
    length: int
    reason: str


class Salvaged(NamedTuple):
    """What a piece held, in the order of the text.

    `end` is the place in the piece up to which it is surely complete. An event begun there is in `lost` too, for who
    has no more text; who has gives it again from `end`, and leaves that loss out. `tail` is what follows the last
    event from the array's `]` on, empty if the array doesn't end here.
    """

    events: list[Whole]
    lost: list[Lost]
    end: int
    tail: bytes


def salvage(piece: bytes, start: int) -> Salvaged:
    """Return all events of a part of `traceEvents`, repaired where they must be, and what was lost.

    `start` is the piece's offset in the file.
    """
    return _Walk(piece, start).run()


class _Walk:
    """One walk over a piece: where it stands, and what it found."""

    def __init__(self, piece: bytes, start: int) -> None:
        self.piece = piece
        self.start = start
        self.reader = Reader(piece)
        self.starts = Starts(self.reader)
        self.budget = Budget(STEPS)
        self.events: list[Whole] = []
        self.lost: list[Lost] = []
        self.pos = 0
        self.end = len(piece)
        self.tail = b""
        self.tails_tried = 0

    def run(self) -> Salvaged:
        """Walk from event to event."""
        size = len(self.piece)
        while (pos := self._after_separators()) < size:
            self.pos = pos
            if self.piece.startswith(b"{", pos):
                self._object()
            elif self._is_tail():
                self.tail = self.piece[pos:]
                break
            else:
                self._stray()
        return Salvaged(self.events, self.lost, self.end, self.tail)

    def _after_separators(self) -> int:
        match = _SEPARATORS.match(self.piece, self.pos)
        return match.end() if match else self.pos

    def _object(self) -> None:
        found = self.reader.object_at(self.pos)
        if found is None or not self._take(found):
            self._damaged(self.pos, b"")

    def _take(self, found: Found) -> bool:
        """Take a whole object as it stands, unless it is refused.

        One from within an event that the piece's beginning cuts is lost.
        """
        if not self.events and not self.lost and self._is_nested(found):
            self._lose(found.end, "no_start")
            return True
        text, repairs = mend_text(self.piece[self.pos : found.end])
        if not is_accepted(text):
            return False
        self.starts.learn(self.pos, found)
        duplicate = ("duplicate_key",) if found.has_duplicates else ()
        self.events.append(Whole(self.start + self.pos, text, repairs + duplicate))
        self.pos = found.end
        return True

    def _is_nested(self, found: Found) -> bool:
        following = self.piece[found.end : found.end + 200].lstrip()
        return "ph" not in found.keys and re.match(rb"\}|\]\s*[\]}]\s*[,}]", following) is not None

    def _damaged(self, pos: int, brace: bytes) -> bool:
        """Repair the event at `pos`, whose brace is given if the text lacks it, or lose its text up to the next."""
        limits = self._limits(pos)
        for limit in limits:
            is_last = limit == len(self.piece)
            mended = repair(brace + self.piece[pos:limit], self.budget, may_close=not is_last)
            whole = self._whole(mended, brace)
            if whole is not None:
                self.events.append(whole)
                self.pos = pos + mended.end - len(brace)
                return True
        if brace:
            return False
        if is_last:
            self.end = pos
        self._lose(limit, mended.reason or "cut_off")
        return False

    def _whole(self, mended: Repaired, brace: bytes) -> Whole | None:
        """Judge a repaired event: where a brace was put in, it must have all the keys of a neighbour."""
        if not mended.text:
            return None
        text, repairs = mend_text(mended.text)
        found = Reader(text).object_at(0)
        if found is None or not is_accepted(text):
            return None
        if (brace or "closing_brace" in mended.repairs) and not self.starts.has_shape(found.keys):
            return None
        opened = ("opening_brace",) if brace else ()
        duplicate = ("duplicate_key",) if found.has_duplicates else ()
        return Whole(self.start + self.pos, text, (*opened, *mended.repairs, *repairs, *duplicate))

    def _limits(self, pos: int) -> list[int]:
        """Return how far a damaged event can reach: to the next, or to the piece's end or else the array's."""
        size = len(self.piece)
        following = self.starts.after(pos + 1)
        if following < size:
            return [following]
        braces, at = self._open_braces(pos, size), pos
        for bracket in _ARRAY_END.finditer(self.piece, pos):
            braces -= self._open_braces(at, bracket.start())
            at = bracket.start()
            before = self.piece[max(pos, at - 200) : at].rstrip(_SEPARATORS_BACK)
            if before.endswith(b"}") and braces >= -1:
                return [size, at]
        return [size]

    def _open_braces(self, pos: int, end: int) -> int:
        """Return how many braces more open than close here; from the array's end on, one closes the trace itself."""
        return self.piece.count(b"{", pos, end) - self.piece.count(b"}", pos, end)

    def _is_tail(self) -> bool:
        """Say whether the array has ended here, or the keys after it have begun without its bracket."""
        pos = self.pos
        if self.piece.startswith(b"]", pos):
            return self._ends_here() or self._is_valid_tail()
        key = _KEY.match(self.piece, pos)
        if key is None or not self.events or key[1].decode("latin-1") in EVENT_KEYS:
            return False
        return self._ends_here() and self._open_braces(pos, len(self.piece)) >= -1

    def _ends_here(self) -> bool:
        return self.starts.after(self.pos) == len(self.piece)

    def _is_valid_tail(self) -> bool:
        """Say whether the rest is valid JSON: then what looks like events in it belongs to other keys."""
        if self.tails_tried == _MAX_TAILS:
            return False
        self.tails_tried += 1
        return is_accepted(b'{"":[' + self.piece[self.pos :].rstrip())

    def _stray(self) -> None:
        """Step over text that begins no event: a brace too many, a line of a log, or the end of a cut event."""
        pos = self.pos
        if closers := _CLOSERS.match(self.piece, pos):
            self._lose(closers.end(), "stray_text")
        elif _KEY.match(self.piece, pos) and self._damaged(pos, b"{"):
            return
        elif line := _LINE.match(self.piece, pos):
            end = min(line.end(), self.starts.after(pos))
            is_fragment = not line[0].endswith(b"\n") and _MEMBER.search(self.piece, pos, end)
            self._lose(end, "no_start" if is_fragment else "stray_text")
        else:
            self._lose(max(self._limits(pos)[-1], pos + 1), "no_start")

    def _lose(self, end: int, reason: str) -> None:
        length = len(self.piece[self.pos : end].rstrip(_SEPARATORS_BACK))
        self.lost.append(Lost(self.start + self.pos, length, reason))
        self.pos = end
