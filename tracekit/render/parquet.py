"""A table as Parquet, with what its columns mean and its notes in the file's metadata.

Owns the metadata's keys, `tracekit.name`, `tracekit.columns` and `tracekit.notes`, and the one change of type
that readers need: 128-bit integers, which few can read.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import polars as pl

from tracekit.render.frames import retyped, whole_decimals_as_integers
from tracekit.render.values import described_columns, described_notes, json_text

if TYPE_CHECKING:
    from tracekit.table import Table


_UNREADABLE = (pl.Int128(), pl.UInt128())


def render_parquet(table: Table) -> bytes:
    """Return the table as a Parquet file compressed by zstd.

    Integers of 128 bits become Int64 where the whole column fits, else strings of their digits.
    """
    frame = whole_decimals_as_integers(table.frame)
    frame = frame.select(_readable(column) for column in frame)
    types = {name: str(kind) for name, kind in frame.schema.items()}
    file = io.BytesIO()
    frame.write_parquet(
        file,
        compression="zstd",
        metadata={
            "tracekit.name": table.name,
            "tracekit.columns": json_text(described_columns(types, table.docs)),
            "tracekit.notes": json_text(described_notes(table)),
        },
    )
    return file.getvalue()


def _readable(column: pl.Series) -> pl.Series:
    try:
        return column.cast(retyped(column.dtype, _narrow_integer))
    except pl.exceptions.InvalidOperationError:
        return column.cast(retyped(column.dtype, _integer_digits))


def _narrow_integer(dtype: pl.DataType) -> pl.DataType:
    return pl.Int64() if dtype in _UNREADABLE else dtype


def _integer_digits(dtype: pl.DataType) -> pl.DataType:
    return pl.String() if dtype in _UNREADABLE else dtype
