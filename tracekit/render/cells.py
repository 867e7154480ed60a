"""A table's columns as text to be looked at: headers with units, and nothing that a terminal obeys.

Owns how a header and a value that is no number read. It knows nothing of widths or of any format's syntax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.render.escape import visible
from tracekit.render.figures import NULL, figures
from tracekit.render.values import json_text, plain_columns
from tracekit.units import stem_of, unit_of

if TYPE_CHECKING:
    from tracekit.render.values import Plain
    from tracekit.table import Table

NO_ROWS = "no rows"
"""What stands below the header of an answer without rows."""


@dataclass(frozen=True)
class Column:
    """A column ready to draw: its name, its header, and a text for each row.

    One that is measured has numbers with a unit.
    """

    name: str
    header: str
    cells: list[str]
    is_numeric: bool
    is_measured: bool = False


def columns_of(table: Table) -> list[Column]:
    """Return the table's columns as text, in their order."""
    return [_column(column) for column in plain_columns(table)]


def _column(column: Plain) -> Column:
    name = column.name
    if column.is_numeric:
        symbol, cells = figures(name, column.values)
        return Column(
            name, _header(stem_of(name), symbol), cells, is_numeric=True, is_measured=unit_of(name) is not None
        )
    unit = unit_of(name) if column.is_nested else None
    header = _header(stem_of(name), unit.name) if unit else _header(name, "")
    return Column(name, header, [_word(value) for value in column.values], is_numeric=False)


def _header(words: str, symbol: str) -> str:
    shown = visible(words).replace("_", " ").strip() or "''"
    return f"{shown} [{symbol}]" if symbol else shown


def _word(value: Any) -> str:
    match value:
        case None:
            return NULL
        case bool():
            return "yes" if value else "no"
        case str():
            return visible(value) or "''"
    return visible(json_text(value))
