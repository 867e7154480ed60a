"""A summary as a page: one line a topic, and what to ask next at the margin; nothing is drawn as a grid."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from tracekit.render.escape import visible
from tracekit.render.notes import note_lines
from tracekit.render.text import render_text

if TYPE_CHECKING:
    from tracekit.table import Table

_COLUMNS = ["topic", "finding", "ask"]
_TOPIC = 12
_WIDTH = 110
_UNIT = re.compile(r"(?<=\d) (?=%|[nµm]?s\b|[KMG]i?B\b|B\b)")
_HELD = "\N{NO-BREAK SPACE}"


def render_page(table: Table, width: int | None = None) -> bytes:
    """Return a table of topic, finding and ask as a page, its lines broken at `width`; any other table as text."""
    if table.frame.columns != _COLUMNS:
        return render_text(table, width)
    room = max(40, (width or _WIDTH) - _TOPIC)
    lines: list[str] = []
    before = ""
    for topic, finding, ask in table.frame.iter_rows():
        head = "" if topic == before else visible(topic)
        parts = _broken(visible(finding), room)
        if ask and head:
            parts = _with_ask(parts, f"→ {ask}", room)
        lines += [f"{head if number == 0 else '':<{_TOPIC}}{part}".rstrip() for number, part in enumerate(parts)]
        before = topic
    notes = [part for note in note_lines(table) for part in _broken(note, room + _TOPIC)]
    return "\n".join([*lines, *([""] if notes else []), *notes, ""]).encode()


def _broken(text: str, room: int) -> list[str]:
    """Break a text into lines, never between a number and its unit."""
    lines = textwrap.wrap(_UNIT.sub(_HELD, text), room, break_on_hyphens=False) or [""]
    return [line.replace(_HELD, " ") for line in lines]


def _with_ask(lines: list[str], ask: str, room: int) -> list[str]:
    """Put what to ask next at the right margin: behind the last line if there is room, else below it."""
    gap = room - len(lines[-1]) - len(ask)
    return [*lines[:-1], f"{lines[-1]}{' ' * gap}{ask}"] if gap >= 2 else [*lines, f"{ask:>{room}}"]
