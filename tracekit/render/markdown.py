"""A table as GitHub-flavoured Markdown, with the notes as a list below.

Owns Markdown's syntax and the escaping that keeps names literal: template arguments would vanish as HTML,
pointers turn into emphasis, and a pipe end the cell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.render.cells import NO_ROWS, columns_of
from tracekit.render.notes import note_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.table import Table

_SYNTAX = re.compile(r"[\\`*<&~$|]|\](?=[(\[:])|(?<![0-9A-Za-z])_")
"""What Markdown would read as syntax inside a line; an underscore inside a word is none,
nor are brackets that no link follows."""


def render_markdown(table: Table) -> bytes:
    """Return the table as Markdown in UTF-8, numbers to the right."""
    columns = columns_of(table)
    lines = [
        _row(_literal(column.header) for column in columns),
        _row("---:" if column.is_numeric else "---" for column in columns),
    ]
    lines += [_row(map(_literal, row)) for row in zip(*(column.cells for column in columns), strict=True)]
    if not table.content.height:
        lines += ["", NO_ROWS]
    if table.notes:
        lines += ["", *(f"- {_literal(line)}" for line in note_lines(table))]
    return "".join(f"{line}\n" for line in lines).encode()


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _literal(text: str) -> str:
    return _SYNTAX.sub(r"\\\g<0>", text)
