"""A table as aligned text for a terminal or a plain file.

Owns the layout: widths, alignment, and what gives way where a terminal is narrow. Numbers are never cut;
headers and sentences wrap, long names lose their middle, and columns that still don't fit, or hold no value,
are left out by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tracekit.render.cells import NO_ROWS, Column, columns_of
from tracekit.render.escape import visible
from tracekit.render.figures import NULL
from tracekit.render.notes import note_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.table import Table

_GAP = "  "
_LONGEST = 120
"""Words are cut to this many characters where no width is given."""

_SHORTEST = (28, 20, 14, 9)
"""A column of words keeps the first of these widths that leaves room for the numbers, if its words are that long."""

_NUMBERS = 3
"""So many columns of numbers are worth cutting words for."""

_PROSE = frozenset({"meaning", "message", "needs", "remedy", "summary", "why"})
"""Columns of sentences, which are broken over lines rather than cut."""

_HEADER_WORD = 20
"""A word of a header is broken only if it is longer than this."""


@dataclass(frozen=True)
class _Extent:
    """The width that a column would like, and the least that it can do with."""

    natural: int
    least: int


def render_text(table: Table, width: int | None = None) -> bytes:
    """Return the table as UTF-8 text within `width` characters; None leaves lines as long as they are.

    A single column of numbers wider than `width` is drawn all the same.
    """
    every = columns_of(table)
    columns = [column for column in every if not _is_empty(column)] or every
    unbounded = [min(_extent(column, _LONGEST).natural, _LONGEST) for column in columns]
    widths = unbounded if width is None else _fitted(columns, width)
    lines = _grid(columns[: len(widths)], widths, wraps=width is not None)
    if not table.content.height:
        lines.append(NO_ROWS)
    remarks = _remarks(table, every, columns, len(widths))
    lines += ["", *(line for remark in remarks for line in _wrapped(remark, width))] if remarks else []
    return "".join(f"{line.rstrip()}\n" for line in lines).encode()


def _extent(column: Column, shortest: int) -> _Extent:
    content = max(map(cell_len, column.cells), default=0)
    header_word = max(map(cell_len, column.header.split()), default=0)
    needed = content if column.is_numeric else min(content, shortest)
    return _Extent(
        natural=max(content, cell_len(column.header)),
        least=max(needed, min(header_word, _HEADER_WORD)),
    )


def _fitted(columns: Sequence[Column], width: int) -> list[int]:
    """Return the widths of as many leading columns as fit, and of one at least; the widest give way first.

    Words are cut shorter rather than leave out the first numbers, which are what was asked for: those with a unit,
    since the others are sizes and counts that name a row, unless there are no others.
    """
    are_numbers = [column.is_measured for column in columns]
    if not any(are_numbers):
        are_numbers = [column.is_numeric for column in columns]
    wanted = min(_NUMBERS, sum(are_numbers))
    for shortest in _SHORTEST:
        extents = [_extent(column, shortest) for column in columns]
        count = _fitting(extents, width)
        if count == len(columns) or (wanted and sum(are_numbers[:count]) >= wanted):
            break
    kept = extents[:count]
    widths = [max(extent.least, min(extent.natural, width)) for extent in kept]
    cap = width
    while cap > 0 and sum(widths) > _room(count, width):
        cap -= 1
        widths = [max(extent.least, min(extent.natural, cap)) for extent in kept]
    return widths


def _fitting(extents: Sequence[_Extent], width: int) -> int:
    """Return how many leading columns fit at their least, and one at least."""
    count = len(extents)
    while count > 1 and sum(extent.least for extent in extents[:count]) > _room(count, width):
        count -= 1
    return count


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
        *(_wrapped_rows(sized) if wraps and any(column.name in _PROSE for column, _ in sized) else _plain_rows(sized)),
    ]


def _plain_rows(sized: Sequence[tuple[Column, int]]) -> list[str]:
    return _joined(_aligned(column.cells, column, width) for column, width in sized)


def _wrapped_rows(sized: Sequence[tuple[Column, int]]) -> list[str]:
    """Return the rows as lines, sentences broken over as many as they need."""
    lines = []
    for row in range(len(sized[0][0].cells)):
        parts = [
            _wrapped(column.cells[row], width) if column.name in _PROSE else [column.cells[row]]
            for column, width in sized
        ]
        height = max(map(len, parts))
        filled = (_aligned(part + [""] * (height - len(part)), *pair) for part, pair in zip(parts, sized, strict=True))
        lines += _joined(filled)
    return lines


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
    from tracekit.render.wrapping import wrapped

    return wrapped(text, width)


def _is_empty(column: Column) -> bool:
    """Tell whether a column has rows but no value in any, and so is named below the table instead of drawn."""
    return bool(column.cells) and all(cell == NULL for cell in column.cells)


def _remarks(table: Table, every: Sequence[Column], drawn: Sequence[Column], shown: int) -> list[str]:
    lines = []
    if shown < len(drawn):
        names = ", ".join(visible(column.name) for column in drawn[shown:])
        lines.append(f"{len(drawn) - shown} of {len(every)} columns don't fit this width: {names}")
    if empty := [visible(column.name) for column in every if column not in drawn]:
        lines.append(f"columns without values: {', '.join(empty)}")
    return [*lines, *note_lines(table)]
