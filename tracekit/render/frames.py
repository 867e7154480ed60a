"""Polars frames in types that every format can say, exact.

Owns how types that a format can't say (128-bit integers as decimals, dates, durations, bytes) become ones that it
can. It never rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable

    from polars.datatypes import DataTypeClass


def retyped(dtype: pl.DataType, leaf: Callable[[pl.DataType], pl.DataType]) -> pl.DataType:
    """Return a type with `leaf` applied to every type inside it that holds no others."""
    match dtype:
        case pl.List():
            return pl.List(retyped(_instance(dtype.inner), leaf))
        case pl.Array():
            return pl.Array(retyped(_instance(dtype.inner), leaf), dtype.size)
        case pl.Map():
            return pl.Map(retyped(_instance(dtype.key), leaf), retyped(_instance(dtype.value), leaf))
        case pl.Struct():
            return pl.Struct({field.name: retyped(_instance(field.dtype), leaf) for field in dtype.fields})
    return leaf(dtype)


def whole_decimals_as_integers(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with decimals of scale 0 as 128-bit integers, at any depth.

    DuckDB's `sum` of a bigint is such a decimal by the time Polars holds it, and it means an integer.
    """
    return frame.select(column.cast(retyped(column.dtype, _integer_for_decimal)) for column in frame)


def plain_values(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame in numbers, booleans, strings and nested ones: dates in ISO 8601, bytes in base64."""
    return frame.select(_plain(column) for column in whole_decimals_as_integers(frame))


def is_number(column: pl.Series) -> bool:
    """Return whether a plain column holds numbers, or nothing."""
    return column.dtype.is_numeric() or column.dtype == pl.Null


def _instance(dtype: DataTypeClass | pl.DataType) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()


def _integer_for_decimal(dtype: pl.DataType) -> pl.DataType:
    return pl.Int128() if isinstance(dtype, pl.Decimal) and dtype.scale == 0 else dtype


def _plain(column: pl.Series) -> pl.Series:
    if column.dtype.is_temporal():
        return column.dt.to_string("iso:strict")
    if column.dtype == pl.Binary:
        return column.bin.encode("base64")
    return column.cast(pl.String) if isinstance(column.dtype, pl.Categorical | pl.Enum) else column
