"""A table as CSV (RFC 4180) or tab-separated values: the data and nothing else.

Owns the delimited formats. Values keep full precision and strings every character; a null is an empty field,
an empty string a quoted one; the notes go elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.render.frames import plain_values
from tracekit.render.values import json_text

if TYPE_CHECKING:
    from tracekit.table import Table


def render_csv(table: Table) -> bytes:
    """Return the rows as comma-separated values in UTF-8, below a line of column names."""
    return _delimited(table, ",")


def render_tsv(table: Table) -> bytes:
    """Return the rows as tab-separated values in UTF-8, quoted as CSV is, below a line of column names."""
    return _delimited(table, "\t")


def _delimited(table: Table, separator: str) -> bytes:
    frame = plain_values(table.frame)
    flat = frame.with_columns(_as_json(column) for column in frame if column.dtype.is_nested())
    return flat.write_csv(separator=separator).encode()


def _as_json(column: pl.Series) -> pl.Series:
    texts = [None if value is None else json_text(value) for value in column.to_list()]
    return pl.Series(column.name, texts, dtype=pl.String)
