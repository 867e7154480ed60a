"""A table as aligned text for a terminal or a plain file.

Owns the layout: widths, alignment, and what gives way where a terminal is narrow. Numbers are never cut;
headers wrap, long words lose their middle, and columns that still don't fit are left out by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tracekit.render.cells import NO_ROWS, Column, columns_of
from tracekit.render.escape import visible
from tracekit.render.notes import note_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.table import Table

_GAP = "  "
_LONGEST = 120
"""Words are cut to this many characters where no width is given."""

_SHORTEST = 12
"""A column of words keeps this width, if its words are that long."""

_HEADER_WORD = 20
"""A word of a header is broken only if it is longer than this."""

_CONSOLE = Console(width=_LONGEST, color_system=None, force_terminal=False)
"""Rich's wrapping asks for a console; nothing is printed to it."""


@dataclass(frozen=True)
class _Extent:
    """The width that a column would like, and the least that it can do with."""

    natural: int
    least: int


def render_text(table: Table, width: int | None = None) -> bytes:
    """Return the table as UTF-8 text within `width` characters; None leaves lines as long as they are.

    A single column of numbers wider than `width` is drawn all the same.
    """
    columns = columns_of(table)
    extents = [_extent(column) for column in columns]
    unbounded = [min(extent.natural, _LONGEST) for extent in extents]
    widths = unbounded if width is None else _fitted(extents, width)
    lines = _grid(columns[: len(widths)], widths, wraps=width is not None)
    if table.frame.is_empty():
        lines.append(NO_ROWS)
    remarks = _remarks(table, columns, len(widths))
    lines += ["", *(line for remark in remarks for line in _wrapped(remark, width))] if remarks else []
    return "".join(f"{line.rstrip()}\n" for line in lines).encode()


def _extent(column: Column) -> _Extent:
    content = max(map(cell_len, column.cells), default=0)
    header_word = max(map(cell_len, column.header.split()), default=0)
    needed = content if column.is_numeric else min(content, _SHORTEST)
    return _Extent(
        natural=max(content, cell_len(column.header)),
        least=max(needed, min(header_word, _HEADER_WORD)),
    )


def _fitted(extents: Sequence[_Extent], width: int) -> list[int]:
    """Return the widths of as many leading columns as fit, and of one at least; the widest give way first."""
    count = len(extents)
    while count > 1 and sum(extent.least for extent in extents[:count]) > _room(count, width):
        count -= 1
    kept = extents[:count]
    widths = [max(extent.least, min(extent.natural, width)) for extent in kept]
    cap = width
    while cap > 0 and sum(widths) > _room(count, width):
        cap -= 1
        widths = [max(extent.least, min(extent.natural, cap)) for extent in kept]
    return widths


def _room(columns: int, width: int) -> int:
    return width - len(_GAP) * (columns - 1)


def _grid(columns: Sequence[Column], widths: Sequence[int], *, wraps: bool) -> list[str]:
    sized = list(zip(columns, widths, strict=True))
    headers = [_wrapped(column.header, width) if wraps else [_elided(column.header, width)] for column, width in sized]
    height = max(map(len, headers), default=0)
    headers = [[""] * (height - len(header)) + header for header in headers]
    rule = "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
    return [
        *_joined(_aligned(header, column, width) for header, (column, width) in zip(headers, sized, strict=True)),
        rule,
        *_joined(_aligned(column.cells, column, width) for column, width in sized),
    ]


def _joined(columns: Iterable[Sequence[str]]) -> list[str]:
    return [_GAP.join(row) for row in zip(*columns, strict=True)]


def _aligned(texts: Sequence[str], column: Column, width: int) -> list[str]:
    aligned = []
    for text in texts:
        shown = _elided(text, width)
        padding = " " * (width - cell_len(shown))
        aligned.append(padding + shown if column.is_numeric else shown + padding)
    return aligned


def _elided(text: str, width: int) -> str:
    """Cut the middle out of a text that is wider than `width` terminal cells."""
    if cell_len(text) <= width:
        return text
    tail_width = (width - 1) // 2
    head, tail = text[: width - 1 - tail_width], text[len(text) - tail_width :]
    while cell_len(head) > width - 1 - tail_width:
        head = head[:-1]
    while cell_len(tail) > tail_width:
        tail = tail[1:]
    return f"{head}…{tail}"


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    return [line.plain.rstrip() for line in Text(text).wrap(_CONSOLE, width, overflow="fold")]


def _remarks(table: Table, columns: Sequence[Column], shown: int) -> list[str]:
    if shown == len(columns):
        return note_lines(table)
    names = ", ".join(visible(column.name) for column in columns[shown:])
    left_out = f"{len(columns) - shown} of {len(columns)} columns don't fit this width: {names}"
    return [left_out, *note_lines(table)]
