"""Repairs one JSON object that strict reading refused: the cheapest reading of it that accounts for all its text.

Owns the grammar of damage. Where a string's closing quote is in doubt, readings are tried from the fewest changes up,
within a budget of steps. It never guesses: what was no number becomes null, and text that could be read only by
inventing or dropping something is refused.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple

from tracekit.ingest.salvage_reading import Reading, escape, is_closed, join
from tracekit.ingest.salvage_text import DEPTH
from tracekit.ingest.salvage_words import scalar

_KEPT_DEPTH = 2
_MAX_STACK = 20_000

Role = Literal["key", "value", "element"]

_BLANKS = re.compile(rb"[ \t\r\n]*+")
_CLEAN = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_QUOTE = re.compile(rb'(\\*+)"')
_NEXT_KEY = rb'"(?:[^"\\]|\\.){0,200}+"[ \t\r\n]*:'
_CLOSES: dict[Role, re.Pattern[bytes]] = {
    "key": re.compile(rb"[ \t]*:"),
    "value": re.compile(
        rb"[ \t\r\n]*(?:,[ \t\r\n,]*(?:" + _NEXT_KEY + rb"|\}|\Z)|\}|\Z|" + _NEXT_KEY + rb")|,?[ \t]*\r?\n"
    ),
    "element": re.compile(rb'[ \t\r\n]*(?:,[ \t\r\n,]*(?:["\[{\]+.\w-]|\Z)|[\]}]|\Z)|,?[ \t]*\r?\n'),
}
_KEY = re.compile(_NEXT_KEY)
_SWALLOWED = re.compile(rb'"(?:ph|cat|name|pid|tid|ts|dur|args|id|External id)"[ \t\r\n]*:')
_MEMBER = re.compile(rb'"[ \t\r\n]*:')
_LINE = re.compile(
    rb'(?:[A-Za-z]|\[[A-Za-z][^"\],]* |\[\d{4}-\d\d|\d{4}-\d\d-\d\d )[^\n"{}]*\n|\[?[A-Za-z]+\d*[\] :][^\n]*\n'
)
_QUOTED, _SLASHED, _LOGGED, _INSERTED = 1.0, 1.5, 4.0, 3.0


class Repaired(NamedTuple):
    """A repaired object: its text, the names of the repairs, and where it ended. `reason` says why there is none."""

    text: bytes
    repairs: tuple[str, ...]
    end: int
    reason: str = ""


@dataclass(slots=True)
class Budget:
    """How many steps may still be spent on readings, so that hopeless text costs seconds at most."""

    steps: int


class _Refused(Exception):  # noqa: N818  # a step of the search, no error of anyone
    """This reading leads nowhere."""


@dataclass(slots=True)
class _Doubt:
    """A string whose end is in doubt: `reading` stands at its opening quote; ends before `at` were tried."""

    reading: Reading
    role: Role
    at: int
    skipped: int = 0


def repair(text: bytes, budget: Budget, *, may_close: bool) -> Repaired:
    """Return the object that `text` begins with, repaired, or the reason why it can't be.

    `may_close` allows one missing brace at the end of the text; the caller must judge whether the rest is all there.
    """
    return _Search(text, budget, may_close=may_close).run()


class _Search:
    """The readings of one text, cheapest first."""

    def __init__(self, text: bytes, budget: Budget, *, may_close: bool) -> None:
        self.text = text
        self.may_close = may_close
        self.budget = budget
        self.steps = min(budget.steps, 400 + len(text))
        self.heap: list[tuple[float, int, Reading | _Doubt]] = []
        self.order = count()
        self.is_cut = self.is_too_deep = False

    def run(self) -> Repaired:
        if self.text.startswith(b"{"):
            self._push(0.0, Reading())
        given = self.steps
        result = None
        while self.heap and self.steps > 0 and result is None:
            _, _, task = heapq.heappop(self.heap)
            try:
                if isinstance(task, Reading):
                    result = self._follow(task)
                else:
                    self._try_end(task)
            except _Refused:
                continue
        self.budget.steps -= given - self.steps
        if result is not None:
            return result
        reason = "too_deep" if self.is_too_deep else "cut_off" if self.is_cut else "not_json"
        return Repaired(b"", (), 0, reason)

    def _push(self, cost: float, task: Reading | _Doubt) -> None:
        heapq.heappush(self.heap, (cost, next(self.order), task))

    def _follow(self, reading: Reading) -> Repaired | None:
        """Read on until the object is complete; return None where a string's end is in doubt."""
        while self._step(reading):
            self.steps -= 1
            if reading.out is not None and not reading.stack:
                return self._complete(reading)
            if self.steps <= 0:
                raise _Refused
        return None

    def _complete(self, reading: Reading) -> Repaired:
        if _KEY.search(self.text, reading.pos):
            raise _Refused
        return Repaired(join(reading.out), reading.repairs, reading.pos)

    def _step(self, reading: Reading) -> bool:
        reading.pos = _after_blanks(self.text, reading.pos)
        byte = self.text[reading.pos : reading.pos + 1]
        if not byte:
            self._at_end(reading)
            return True
        top = reading.stack[-1:]
        if top == b":" or not top:
            return self._value(reading, byte)
        if byte == b",":
            reading.commas += 1
            reading.pos += 1
            return True
        return self._in_object(reading, byte) if top in b"{}" else self._in_array(reading, byte)

    def _at_end(self, reading: Reading) -> None:
        """Close the one brace that may be missing at the text's end."""
        self.is_cut = True
        if not self.may_close or reading.stack != b"}" or not is_closed(reading.out):
            raise _Refused
        reading.commas = 0
        reading.note("closing_brace", _INSERTED)
        self._close(reading, b"}", 0)

    def _in_object(self, reading: Reading, byte: bytes) -> bool:
        if byte == b'"':
            return self._string(reading, "key")
        if byte == b"}":
            self._close(reading, byte, 1)
        else:
            self._skip_line(reading)
        return True

    def _in_array(self, reading: Reading, byte: bytes) -> bool:
        if byte == b"]":
            self._close(reading, byte, 1)
            return True
        if byte == b"}" or (byte == b'"' and _KEY.match(self.text, reading.pos)):
            commas = reading.commas
            reading.commas = 0
            reading.note("closing_bracket", _INSERTED)
            self._close(reading, b"]", 0)
            reading.commas = commas
            return True
        return self._value(reading, byte)

    def _value(self, reading: Reading, byte: bytes) -> bool:
        is_member = reading.stack.endswith(b":")
        if byte == b'"':
            if not is_member or not _KEY.match(self.text, reading.pos):
                return self._string(reading, "value" if is_member else "element")
            self._push(reading.cost + _QUOTED, _Doubt(reading.copy(), "value", reading.pos + 1))
            reading.note("opening_brace", _INSERTED)
            self._open(reading, b"{", 0)
        elif byte == b"[" and _LINE.match(self.text, reading.pos):
            self._skip_line(reading)
        elif byte in b"{[":
            self._open(reading, byte, 1)
        else:
            self._scalar(reading, is_member=is_member)
        return True

    def _scalar(self, reading: Reading, *, is_member: bool) -> None:
        found = scalar(self.text, reading.pos, is_member=is_member)
        if found is None:
            self._skip_line(reading)
            return
        if not is_member:
            reading.begin()
        if found.repair:
            reading.note(found.repair)
        reading.write(found.text)
        reading.pos = found.end
        reading.finish()

    def _skip_line(self, reading: Reading) -> None:
        """Step over a line of a log, if it holds nothing that may belong to the object."""
        line = _LINE.match(self.text, reading.pos)
        if line is None or not reading.stack or _KEY.search(line[0]):
            raise _Refused
        reading.note("log_line", _LOGGED)
        reading.pos = line.end()

    def _open(self, reading: Reading, byte: bytes, length: int) -> None:
        if reading.stack and not reading.stack.endswith(b":"):
            reading.begin()
        if reading.depth == _KEPT_DEPTH:
            reading.anchor = reading.out
        reading.depth += 1
        reading.stack += byte
        reading.is_deep = reading.is_deep or reading.depth > DEPTH
        if len(reading.stack) > _MAX_STACK:
            self.is_too_deep = True
            raise _Refused
        reading.write(byte)
        reading.pos += length

    def _close(self, reading: Reading, byte: bytes, length: int) -> None:
        if reading.commas:
            reading.note("comma")
            reading.commas = 0
        reading.stack = reading.stack[:-1]
        reading.write(byte)
        reading.pos += length
        reading.depth -= 1
        reading.finish()
        if reading.is_deep and reading.depth <= _KEPT_DEPTH:
            reading.is_deep = False
            reading.out = reading.anchor
            reading.write(b"null")
            reading.note("too_deep")

    def _string(self, reading: Reading, role: Role) -> bool:
        """Read a string whose end is clear, keeping the doubt for later; else leave it to the doubt alone."""
        clean = _CLEAN.match(self.text, reading.pos)
        if clean is None or not self._may_end(clean.end(), role):
            self._push(reading.cost, _Doubt(reading.copy(), role, reading.pos + 1))
            return False
        self._push(reading.cost + _QUOTED, _Doubt(reading.copy(), role, clean.end(), 1))
        self._take(reading, role, clean[0], clean.end())
        return True

    def _may_end(self, at: int, role: Role) -> bool:
        return _CLOSES[role].match(self.text, at) is not None

    def _take(self, reading: Reading, role: Role, string: bytes, end: int) -> None:
        if role != "value":
            reading.begin()
        reading.write(string)
        reading.pos = end
        if role == "key":
            reading.write(b":")
            reading.stack += b":"
            reading.pos = _after_blanks(self.text, end) + 1
        else:
            reading.finish()

    def _try_end(self, doubt: _Doubt) -> None:
        """Take the next place where the string may end as one reading, and those after it as a dearer doubt."""
        opening = doubt.reading.pos
        while quote := _QUOTE.search(self.text, doubt.at):
            self.steps -= 1
            doubt.at = quote.end()
            isescaped = len(quote[1]) % 2 == 1
            if self._may_end(quote.end(), doubt.role):
                self._take_doubtful(doubt, self.text[opening + 1 : quote.end() - 1], isescaped=isescaped)
                doubt.skipped += not isescaped
                self._push(doubt.reading.cost + doubt.skipped * _QUOTED, doubt)
                return
            doubt.skipped += not isescaped
            if self.steps <= 0:
                raise _Refused
        self.is_cut = True

    def _take_doubtful(self, doubt: _Doubt, content: bytes, *, isescaped: bool) -> None:
        if doubt.skipped and (_MEMBER if doubt.role == "key" else _SWALLOWED).search(content):
            return
        reading = doubt.reading.copy()
        string, repairs = escape(content)
        for name in repairs:
            reading.note(name, 0)
        reading.cost += doubt.skipped * _QUOTED + isescaped * _SLASHED
        end = doubt.at
        self._take(reading, doubt.role, b'"' + string + b'"', end)
        self._push(reading.cost, reading)


def _after_blanks(text: bytes, pos: int) -> int:
    match = _BLANKS.match(text, pos)
    return match.end() if match else pos
