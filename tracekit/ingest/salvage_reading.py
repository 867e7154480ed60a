"""A reading of damaged JSON on its way: what was read so far, written as valid JSON, and what that took.

Owns the writing: commas, braces, escapes. Which reading is the right one is `salvage_repair`'s to find.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNSAFE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\\x00-\x1f]')

Chain = tuple["Chain | None", bytes]
"""What was written, last text first, so that readings share what they have in common."""


@dataclass(slots=True)
class Reading:
    """A reading of the text up to `pos`.

    `stack` holds `{` and `[` while they are empty, `}` and `]` once they hold something, `:` where a value is due.
    """

    pos: int = 0
    stack: bytes = b""
    out: Chain | None = None
    repairs: tuple[str, ...] = ()
    cost: float = 0.0
    commas: int = 0
    depth: int = 0
    is_deep: bool = False
    anchor: Chain | None = None

    def copy(self) -> Reading:
        """Return one that can go another way from here."""
        return Reading(
            self.pos,
            self.stack,
            self.out,
            self.repairs,
            self.cost,
            self.commas,
            self.depth,
            self.is_deep,
            self.anchor,
        )

    def write(self, text: bytes) -> None:
        """Write text."""
        self.out = (self.out, text)

    def note(self, repair: str, cost: float = 1.0) -> None:
        """Name a repair, and make the reading dearer by its cost."""
        self.cost += cost
        if repair not in self.repairs:
            self.repairs = (*self.repairs, repair)

    def begin(self) -> None:
        """Begin a member or element: write the comma before it, whatever commas the text had."""
        top = self.stack[-1:]
        if top in b"{[":
            self.stack = self.stack[:-1] + (b"}" if top == b"{" else b"]")
            wanted = 0
        else:
            self.write(b",")
            wanted = 1
        if self.commas != wanted:
            self.note("comma")
        self.commas = 0

    def finish(self) -> None:
        """Finish a value: a member is complete with it."""
        if self.stack.endswith(b":"):
            self.stack = self.stack[:-1]


def escape(content: bytes) -> tuple[bytes, list[str]]:
    """Return a string's content with all that is invalid in it escaped, and the names of what was."""
    names: list[str] = []

    def mend(match: re.Match[bytes]) -> bytes:
        text = match[0]
        if len(text) > 1:
            return text
        if text == b'"':
            names.append("quote")
        elif text == b"\\":
            names.append("backslash")
        else:
            names.append("control_character")
            return b"\\u%04x" % text[0]
        return b"\\" + text

    return _UNSAFE.sub(mend, content), names


def is_closed(out: Chain | None) -> bool:
    """Say whether a closing brace was written last."""
    return out is not None and out[1] == b"}"


def join(out: Chain | None) -> bytes:
    """Return what was written."""
    parts: list[bytes] = []
    while out is not None:
        out, text = out
        parts.append(text)
    return b"".join(reversed(parts))
