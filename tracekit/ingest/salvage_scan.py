"""Where events begin and end in text that may be damaged.

Owns strict reading of one object at a place, and the search for the next place where an event begins. It changes
no text and knows nothing of repairs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice
from typing import Any, NamedTuple

WINDOW = 1 << 18
NEAR = 16
"""A failure this close to a window's end may be the window's fault, not the text's."""
SHALLOW = 200
"""Where reading stopped for depth, at least as many levels lie one in the other, a byte each: no event begins there."""
MAX_TRIES = 400
MAX_SURVEY = 8

EVENT_KEYS = frozenset({"ph", "name", "cat", "pid", "tid", "ts", "dur", "args", "id", "bp", "s"})
_FULL = frozenset({"ph", "name", "ts"})
_OTHER_KEYS = EVENT_KEYS - {"ph"}
_START = re.compile(rb'\{([ \t\r\n]*+)"([^"\\\x00-\x1f]{1,60}+)"[ \t\r\n]*+:')
_BLANK = b" \t\r\n"
_NESTED_END = re.compile(rb"\]\s*[\]}]\s*[,}\]]")
_SEAM = re.compile(rb"\s*(?:,\s*\{|\]\s*[,}])")
_NEXT = re.compile(rb"\S")


class Found(NamedTuple):
    """A whole JSON object: where it ends, its keys in order, and whether any object in it repeats a key."""

    end: int
    keys: tuple[str, ...]
    has_duplicates: bool


class Layout(NamedTuple):
    """How an event's beginning looks: the blanks before and after its brace, and its first key."""

    lead: bytes
    inner: bytes
    key: bytes


def _refuse(word: str) -> None:
    raise ValueError(word)


class Reader:
    """Reads whole JSON values at places of a text, stopping at the first fault, so that a failure costs little."""

    def __init__(self, piece: bytes) -> None:
        self.piece = piece
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object, parse_int=len, parse_float=len, parse_constant=_refuse
        )
        self._has_duplicates = False
        self.is_too_deep = False
        self._base = 0
        self._window = ""

    def object_at(self, pos: int) -> Found | None:
        """Return the object that begins at `pos`, or None if what is there is no whole valid one."""
        read = self._read(pos)
        if read is None or not isinstance(read[0], dict):
            return None
        return Found(read[1], tuple(read[0]), self._has_duplicates)

    def value_at(self, pos: int) -> tuple[Any, int] | None:
        """Return the valid JSON value that begins at `pos`, its numbers as their lengths, and its end."""
        return self._read(pos)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        read = dict(pairs)
        if len(read) != len(pairs):
            self._has_duplicates = True
        return read

    def _read(self, pos: int) -> tuple[Any, int] | None:
        """Read in the rolling window, then in longer ones as long as the window's end may be at fault."""
        if not self._base <= pos < self._base + len(self._window) // 2:
            self._move(pos, WINDOW)
        while True:
            self._has_duplicates = self.is_too_deep = False
            try:
                value, end = self._decoder.raw_decode(self._window, pos - self._base)
            except json.JSONDecodeError as error:
                if not self._may_be_cut(error):
                    return None
                self._move(pos, max(WINDOW, 4 * (len(self._window) - (pos - self._base))))
            except RecursionError:
                self.is_too_deep = True
                return None
            except ValueError:
                return None
            else:
                return value, end + self._base

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        if self._base + len(self._window) >= len(self.piece):
            return False
        cut = error.msg.startswith(("Unterminated", "Invalid \\u"))
        return cut or error.pos >= len(self._window) - NEAR

    def _move(self, pos: int, length: int) -> None:
        """Put the window at `pos`. Latin-1 keeps places equal to byte offsets, whatever the bytes."""
        self._base = pos
        self._window = self.piece[pos : pos + length].decode("latin-1")


class Starts:
    """Finds where the next event begins, by what an event holds and by the layout of its neighbours."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._piece = reader.piece
        self._layouts: set[Layout] = set()
        self._shapes: set[tuple[str, ...]] = set()
        self._known = (1, 0)
        self._survey()

    def learn(self, pos: int, found: Found) -> None:
        """Remember how a whole event at `pos` looks."""
        self._shapes.add(found.keys)
        layout = self._layout(pos)
        if layout is not None:
            self._layouts.add(layout)

    def has_shape(self, keys: tuple[str, ...]) -> bool:
        """Say whether a whole event of this text has just these keys in this order."""
        return keys in self._shapes

    def after(self, pos: int) -> int:
        """Return the first place at or after `pos` where an event surely begins; the text's length if none does."""
        known_from, known = self._known
        if known_from <= pos <= known:
            return known
        start = self._search(pos)
        self._known = (pos, start)
        return start

    def _search(self, pos: int) -> int:
        tries = 0
        while match := _START.search(self._piece, pos):
            at = match.start()
            layout = self._layout(at)
            if tries < MAX_TRIES or self._fits(layout) or self._is_likely(match):
                tries += 1
                verdict = self._verdict(at, layout)
                if verdict == at:
                    return at
                pos = verdict + SHALLOW if self._reader.is_too_deep else verdict
            else:
                pos = at + 1
        return len(self._piece)

    def _verdict(self, at: int, layout: Layout | None) -> int:
        """Return `at` if an event begins there, else the place to search on from."""
        before = self._before(at)
        fits = self._fits(layout)
        found = self._reader.object_at(at)
        if found is None:
            return at if fits and _may_follow(before, layout) else at + 1
        if not self._is_event(found):
            return at + 1
        if before == b"[" and found.keys not in self._shapes:
            return self._after_list(at)
        return at if self._may_end(found, before, fits=fits) else at + 1

    def _fits(self, layout: Layout | None) -> bool:
        """Say whether an event of this text begins like this; where each has lines of its own, indentation tells."""
        if layout is None or layout in self._layouts:
            return layout is not None
        is_key = layout.key.decode("latin-1") in EVENT_KEYS
        return is_key and b"\n" in layout.lead and layout[:2] in {known[:2] for known in self._layouts}

    def _is_event(self, found: Found) -> bool:
        if "ph" in found.keys:
            return not _OTHER_KEYS.isdisjoint(found.keys) or found.keys in self._shapes
        return found.keys in self._shapes

    def _may_end(self, found: Found, before: bytes, *, fits: bool) -> bool:
        """Say whether what follows an object is what follows an event, not what follows a value within one."""
        at = self._next(found.end)
        following = self._piece[at : at + 1]
        is_value = before in {b":", b"["}
        is_full = before == b":" and _FULL.issubset(found.keys)
        is_inside = is_value and not is_full and found.keys not in self._shapes
        if following == b",":
            return not self._piece.startswith(b'"', self._next(at + 1)) or (fits and not is_value)
        if following == b"{":
            return True
        if following == b"]":
            return not is_inside and not _NESTED_END.match(self._piece, at)
        if following == b"":
            return not is_inside
        return not is_value and (fits or b"\n" in self._piece[found.end : at])

    def _next(self, pos: int) -> int:
        match = _NEXT.search(self._piece, pos)
        return match.start() if match else len(self._piece)

    def _before(self, at: int) -> bytes:
        return self._piece[max(0, at - 200) : at].rstrip(_BLANK)[-1:]

    def _layout(self, at: int) -> Layout | None:
        """Return how an event at `at` begins; None at the text's beginning, where what was before is unknown."""
        match = _START.match(self._piece, at)
        before = self._piece[max(0, at - 200) : at]
        lead = before[len(before.rstrip(_BLANK)) :]
        if match is None or len(lead) == at:
            return None
        return Layout(lead, match[1], match[2])

    def _survey(self) -> None:
        """Learn from the first events that are whole, so that damage at the very beginning finds layouts to go by."""
        pos = tries = 0
        while len(self._layouts) < MAX_SURVEY and tries < MAX_TRIES and (match := _START.search(self._piece, pos)):
            at = match.start()
            pos = at + 1
            if not self._is_likely(match):
                pos = self._after_list(at)
                continue
            tries += 1
            found = self._reader.object_at(at)
            pos = pos + SHALLOW if self._reader.is_too_deep else pos
            if found and "ph" in found.keys and _SEAM.match(self._piece, found.end):
                self.learn(at, found)
                pos = found.end
        if not self._layouts:
            self._guess()

    def _guess(self) -> None:
        """Take the commonest layout for that of events, where none of the first events is whole."""
        likely = filter(self._is_likely, islice(_START.finditer(self._piece), MAX_TRIES))
        layouts = Counter(layout for match in likely if (layout := self._layout(match.start())))
        self._layouts.update(layout for layout, count in layouts.most_common(1) if count > 1)

    def _is_likely(self, match: re.Match[bytes]) -> bool:
        """Say whether an event may begin here, by the byte before and the first key alone."""
        return match[2].decode("latin-1") in EVENT_KEYS and self._before(match.start()) not in {b":", b"["}

    def _after_list(self, at: int) -> int:
        """Return the end of the whole list that the object at `at` begins, else the next place."""
        if self._before(at) != b"[":
            return at + 1
        within = self._reader.value_at(self._piece.rindex(b"[", 0, at))
        if within is None:
            return at + (SHALLOW if self._reader.is_too_deep else 1)
        return max(within[1], at + 1)


def _may_follow(before: bytes, layout: Layout | None) -> bool:
    """Say whether a damaged event may begin after this byte: on a line of its own it may after any."""
    return before in {b"}", b","} or (layout is not None and b"\n" in layout.lead)
