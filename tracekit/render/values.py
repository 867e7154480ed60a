"""An answer's values and columns as plain data, exact, for the formats that spell them out.

Owns what a format tells about a column. It never rounds, knows nothing of looks, and imports Polars only for answers
that are frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypedDict

from tracekit.table import Rows
from tracekit.units import unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from tracekit.table import Table


class ColumnFacts(TypedDict):
    """What is told about a column beside its values; `unit` is None for a plain value."""

    name: str
    unit: str | None
    doc: str
    type: str


def json_text(value: Any) -> str:
    """Return a value as compact JSON: exact numbers, ISO dates, base64 bytes; NaN and infinities become null."""
    return _encoder().encode(value).decode()


@cache
def _encoder() -> msgspec.json.Encoder:
    import msgspec

    return msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True)
class Plain:
    """A column of numbers, booleans, strings and nested ones: dates in ISO 8601, bytes in base64.

    `type` is what Polars calls the type that it had.
    """

    name: str
    type: str
    values: list[Any]
    is_numeric: bool
    is_nested: bool = False


def plain_columns(table: Table) -> list[Plain]:
    """Return the columns of a table, in their order."""
    content = table.content
    if isinstance(content, Rows):
        columns = [list(values) for values in zip(*content.rows, strict=True)] or [[] for _ in content.types]
        return [
            Plain(name, kind, values, is_numeric=kind not in {"String", "Boolean"})
            for (name, kind), values in zip(content.types.items(), columns, strict=True)
        ]
    from tracekit.render.frames import is_number, plain_values, whole_decimals_as_integers

    typed = whole_decimals_as_integers(content)
    return [
        Plain(name, str(kind), series.to_list(), is_numeric=is_number(series), is_nested=series.dtype.is_nested())
        for (name, kind), series in zip(typed.schema.items(), plain_values(content), strict=True)
    ]


def described_columns(types: Mapping[str, str], docs: Mapping[str, str]) -> list[ColumnFacts]:
    """Return what is known of each column, in the order of the types."""
    facts = []
    for (name, kind), doc in zip(types.items(), docs.values(), strict=True):
        unit = unit_of(name)
        facts.append(ColumnFacts(name=name, unit=unit.name if unit else None, doc=doc, type=kind))
    return facts


def described_notes(table: Table) -> list[dict[str, str]]:
    """Return the notes as plain data."""
    return [{"status": note.status, "text": note.text} for note in table.notes]
