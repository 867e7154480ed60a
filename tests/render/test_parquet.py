"""Parquet files, read back."""

import io
import json

import polars as pl
import pytest
from inline_snapshot import snapshot
from polars.testing import assert_frame_equal

from tracekit.render.parquet import render_parquet
from tracekit.table import Table


def _read(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.read_parquet(render_parquet(Table("t", frame, dict.fromkeys(frame.columns, "A column."))))


def test_the_awkward_table_comes_back_with_wide_integers_as_digits(awkward: Table) -> None:
    expected = awkward.frame.with_columns(pl.col("launches").cast(pl.String))
    assert_frame_equal(pl.read_parquet(render_parquet(awkward)), expected)


def test_notes_and_columns_are_kept_in_the_metadata(awkward: Table) -> None:
    metadata = pl.read_parquet_metadata(io.BytesIO(render_parquet(awkward)))
    assert metadata["tracekit.name"] == "awkward"
    assert json.loads(metadata["tracekit.notes"]) == [
        {"status": note.status, "text": note.text} for note in awkward.notes
    ]
    assert json.loads(metadata["tracekit.columns"])[1:3] == snapshot(
        [
            {"name": "total_ns", "unit": "nanoseconds", "doc": "What total_ns says.", "type": "Int64"},
            {"name": "launches", "unit": None, "doc": "What launches says.", "type": "String"},
        ]
    )


@pytest.mark.parametrize("dtype", [pl.Int128(), pl.UInt128(), pl.Decimal(38, 0)])
def test_wide_integers_that_fit_are_int64(dtype: pl.DataType) -> None:
    frame = pl.DataFrame({"n": pl.Series([1, None, 2**63 - 1], dtype=dtype)})
    assert_frame_equal(_read(frame), pl.DataFrame({"n": [1, None, 2**63 - 1]}))


def test_one_wide_integer_that_does_not_fit_makes_its_column_digits() -> None:
    frame = pl.DataFrame({"n": pl.Series([1, 2**63], dtype=pl.Int128), "m": [[1], [2]]})
    assert_frame_equal(_read(frame), pl.DataFrame({"n": ["1", str(2**63)], "m": [[1], [2]]}))


def test_wide_integers_inside_lists_are_narrowed_too() -> None:
    frame = pl.DataFrame({"n": pl.Series([[1, None]], dtype=pl.List(pl.Int128))})
    assert_frame_equal(_read(frame), pl.DataFrame({"n": [[1, None]]}))


def test_no_rows_keep_their_columns(empty: Table) -> None:
    read = pl.read_parquet(render_parquet(empty))
    assert read.is_empty()
    assert read.columns == empty.frame.columns
