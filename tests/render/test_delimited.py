"""CSV and tab-separated values."""

import csv
import io

import polars as pl

from tracekit.render.delimited import render_csv, render_tsv
from tracekit.table import Table


def _table(frame: pl.DataFrame) -> Table:
    return Table("small", frame, dict.fromkeys(frame.columns, "A column."))


def test_tabs_hold_the_same_fields_as_commas(awkward: Table) -> None:
    comma = list(csv.reader(io.StringIO(render_csv(awkward).decode(), newline="")))
    tab = list(csv.reader(io.StringIO(render_tsv(awkward).decode(), newline=""), delimiter="\t"))
    assert tab == comma
    assert len(tab) == 7


def test_no_rows_are_a_header_alone(empty: Table) -> None:
    header = "kernel,total_ns,launches,share_frac,ratio,stream_id,dims,facts,is_cold\n"
    assert render_csv(empty).decode() == header


def test_a_null_is_nothing_and_an_empty_string_is_quoted() -> None:
    assert render_csv(_table(pl.DataFrame({"a": ["", None], "b": [1, 2]}))) == b'a,b\n"",1\n,2\n'


def test_a_tab_is_quoted_among_tabs_and_a_comma_is_not() -> None:
    assert render_tsv(_table(pl.DataFrame({"a": ["x\ty", "x,y"]}))) == b'a\n"x\ty"\nx,y\n'


def test_types_that_csv_lacks_are_text() -> None:
    columns = {"blob": [b"\xff"], "wait": pl.Series([1500], dtype=pl.Duration("ms")), "nested": [[[1], []]]}
    assert render_csv(_table(pl.DataFrame(columns))) == b'blob,wait,nested\n/w==,PT1.5S,"[[1],[]]"\n'
