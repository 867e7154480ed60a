"""A table as JSON: the rows in an envelope with what each column means and the notes.

Owns the envelope's keys. Integers keep every digit; what JSON can't say (NaN, infinities) is null.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tracekit.render.values import described_columns, described_notes, json_text, plain_columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.table import Table

_BEYOND_ASCII = re.compile(r"[^\n -~]")


def render_json(table: Table) -> bytes:
    r"""Return `{"name", "columns", "rows", "notes"}` in UTF-8, one column, row and note a line.

    Characters that don't print, some of which steer a terminal, are written as `\u` escapes, which every
    reader undoes.
    """
    plain = plain_columns(table)
    columns = described_columns({column.name: column.type for column in plain}, table.docs)
    names = [column.name for column in plain]
    rows = (dict(zip(names, row, strict=True)) for row in zip(*(column.values for column in plain), strict=True))
    text = (
        "{\n"
        f'  "name": {json_text(table.name)},\n'
        f'  "columns": {_lines(columns)},\n'
        f'  "rows": {_lines(rows)},\n'
        f'  "notes": {_lines(described_notes(table))}\n'
        "}\n"
    )
    return _BEYOND_ASCII.sub(_escaped, text).encode()


def _lines(items: Iterable[Any]) -> str:
    body = ",\n".join(f"    {json_text(item)}" for item in items)
    return f"[\n{body}\n  ]" if body else "[]"


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() else json.dumps(char)[1:-1]
