"""Headers, and values that are no numbers."""

import datetime as dt

import polars as pl
import pytest

from tracekit.render.cells import Column, columns_of
from tracekit.table import Table


def _column(name: str, values: list[object], dtype: pl.DataType | None = None) -> Column:
    return columns_of(Table("one", pl.DataFrame({name: pl.Series(values, dtype=dtype)}), {name: "It."}))[0]


@pytest.mark.parametrize(
    ("name", "value", "header"),
    [
        ("total_ns", 5_000_000, "total [ms]"),
        ("host_wait_ns", 5, "host wait [ns]"),
        ("share_frac", 0.5, "share [%]"),
        ("flops", 3e12, "flops [TFLOP]"),
        ("kernels", 3, "kernels"),
        ("note_frac", "word", "note frac"),
        ("is_cold", True, "is cold"),
        ("lengths_bytes", [1, 2], "lengths [bytes]"),
        ("end_ns", None, "end [ns]"),
        ("_", 1, "''"),
    ],
)
def test_a_header_says_the_unit_of_what_stands_below(name: str, value: object, header: str) -> None:
    assert _column(name, [value]).header == header


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, "-"),
        ("", "''"),
        ("word", "word"),
        ("a\nb", "a\\nb"),
        (True, "yes"),
        (False, "no"),
        ([1, None], "[1,null]"),
        ([], "[]"),
        ([["\x1b", "\x9b"]], '[["\\u001b","\\x9b"]]'),
        ({"a": 1, "b": [0.5]}, '{"a":1,"b":[0.5]}'),
        (dt.date(2024, 1, 2), "2024-01-02"),
        (dt.timedelta(seconds=1.5), "PT1.5S"),
        (b"\xff\x00", "/wA="),
    ],
)
def test_a_word_reads_literally_in_one_line(value: object, cell: str) -> None:
    assert _column("value", [value]).cells == [cell]


def test_only_numbers_go_to_the_right() -> None:
    sides = {type(value): _column("v", [value]).is_numeric for value in (1, 0.5, "1", True, [1])}
    assert sides == {int: True, float: True, str: False, bool: False, list: False}


def test_a_category_reads_as_its_word() -> None:
    assert _column("mode", ["train"], pl.Categorical()).cells == ["train"]
