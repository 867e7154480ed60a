"""Laws that every table keeps, whatever it holds."""

import csv
import io
import json
import math
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from polars.testing import assert_frame_equal
from rich.cells import cell_len

from tracekit.render import render
from tracekit.render.cells import columns_of
from tracekit.table import Note, Table

_INT64 = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(max_size=40) | st.text("\x1b[]|\\`*_<>\n\r\t\",…é核 ab'", max_size=200)
_KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pl.Int64(), _INT64),
    (pl.Int128(), st.integers(-(2**127), 2**127 - 1)),
    (pl.Float64(), st.floats()),
    (pl.String(), _TEXT),
    (pl.Boolean(), st.booleans()),
    (pl.List(pl.Int64()), st.lists(st.none() | _INT64, max_size=3)),
]
_SUFFIXES = st.sampled_from(["", "_ns", "_us", "_bytes", "_frac", "_flops", "_id", "_bytes_per_s"])


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Build a table of up to five columns and rows; the first column is never null, so no line is blank."""
    rows = draw(st.integers(0, 5))
    columns = {"row": pl.Series(range(rows), dtype=pl.Int64)}
    for kind, values in draw(st.lists(st.sampled_from(_KINDS), max_size=5)):
        name = f"{draw(st.text(max_size=8))}{len(columns)}{draw(_SUFFIXES)}"
        cells = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        columns[name] = pl.Series(cells, dtype=kind)
    frame = pl.DataFrame(columns)
    return Table("drawn", frame, dict.fromkeys(columns, "It."), (Note("info", draw(_TEXT)),))


@given(tables())
def test_csv_brings_back_every_value(table: Table) -> None:
    header, *rows = csv.reader(io.StringIO(render(table, "csv").decode(), newline=""))
    assert header == table.frame.columns
    assert len(rows) == table.frame.height
    for series, fields in zip(table.frame, zip(*rows, strict=True), strict=False):
        read = [_from_csv(field, series.dtype) for field in fields]
        expected = ["" if value is None else value for value in series.to_list()]
        assert list(map(repr, read)) == list(map(repr, expected))


def _from_csv(field: str, dtype: pl.DataType) -> object:
    if field == "" or dtype == pl.String:
        return field
    if dtype == pl.Boolean:
        return {"true": True, "false": False}[field]
    if dtype.is_nested():
        return json.loads(field)
    return int(field) if dtype.is_integer() else float(field)


@given(tables())
def test_json_brings_back_every_value(table: Table) -> None:
    envelope = json.loads(render(table, "json"))
    expected = [{name: _for_json(value) for name, value in row.items()} for row in table.frame.to_dicts()]
    assert envelope["rows"] == expected
    assert [list(row) for row in envelope["rows"]] == [table.frame.columns] * table.frame.height
    assert envelope["notes"] == [{"status": "info", "text": table.notes[0].text}]


def _for_json(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@given(tables())
def test_parquet_brings_back_every_value(table: Table) -> None:
    read = pl.read_parquet(render(table, "parquet"))
    assert_frame_equal(read.cast(table.frame.schema), table.frame, check_exact=True)


@given(tables(), st.none() | st.integers(20, 200))
def test_text_holds_nothing_that_a_terminal_obeys(table: Table, width: int | None) -> None:
    lines = render(table, "table", width).decode().split("\n")
    assert all(line.isprintable() for line in lines)


@given(tables(), st.integers(60, 200))
def test_no_line_exceeds_the_width(table: Table, width: int) -> None:
    lines = render(table, "table", width).decode().splitlines()
    assert max(map(cell_len, lines)) <= width


@given(tables())
def test_a_row_is_a_line(table: Table) -> None:
    lines = render(table, "table").decode().split("\n")
    left_out = [line for line in lines if line.startswith("columns without values: ")]
    assert len(lines) == 2 + max(table.frame.height, 1) + len(left_out) + len(["blank", "note", "end"])


@given(tables())
def test_markdown_is_read_as_it_was_meant(table: Table) -> None:
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(render(table, "md").decode())
    inside = [token.level > 1 and token.type == "inline" for token in tokens]
    read = [
        "".join(child.content for child in token.children or [])
        for token, is_inside in zip(tokens, inside, strict=True)
        if is_inside
    ]
    columns = columns_of(table)
    cells = [cell for row in zip(*(column.cells for column in columns), strict=True) for cell in row]
    expected = [text.strip() for text in [*(column.header for column in columns), *cells]]
    assert read[: len(expected)] == expected
