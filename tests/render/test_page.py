"""The page that a summary is written as."""

import polars as pl
import pytest
from inline_snapshot import snapshot

from tracekit.render import render
from tracekit.table import Note, Table

LONG = "41.2 % of 5.00 ms device time: core 23.0 %, qkv_proj 9.0 %, out_proj 5.0 %, rope 2.0 %, layout 2.2 %"


@pytest.fixture
def summary() -> Table:
    rows = [
        ("run", "a.json · 1 trace", None),
        ("attention", LONG, "attention_share"),
        ("kernels", "9.0 % in 3 × gemm", "top_kernels"),
        ("kernels", "1.0 % in 1 × \x1b[31mred", "top_kernels"),
    ]
    frame = pl.DataFrame(rows, schema=["topic", "finding", "ask"], orient="row")
    docs = dict.fromkeys(frame.columns, "What it is.")
    return Table("summary", frame, docs, (Note("warning", "A word of warning."),))


def test_a_topic_stands_once_and_its_question_at_the_margin(summary: Table) -> None:
    assert render(summary, "page").decode() == snapshot("""\
run         a.json · 1 trace
attention   41.2 % of 5.00 ms device time: core 23.0 %, qkv_proj 9.0 %, out_proj 5.0 %, rope 2.0 %, layout
            2.2 %                                                                            → attention_share
kernels     9.0 % in 3 × gemm                                                                    → top_kernels
            1.0 % in 1 × \\x1b[31mred

warning: A word of warning.
""")


def test_no_line_is_wider_than_the_terminal(summary: Table) -> None:
    for width in range(60, 130):
        assert max(map(len, render(summary, "page", width).decode().splitlines())) <= width


@pytest.mark.parametrize("width", range(60, 130, 3))
def test_a_number_is_never_parted_from_its_unit(summary: Table, width: int) -> None:
    lines = render(summary, "page", width).decode().splitlines()
    assert not [line for line in lines if line.lstrip().startswith(("%", "ms"))]


def test_a_table_without_topics_is_written_as_text() -> None:
    table = Table("answer", pl.DataFrame({"a": [1]}), {"a": "A number."})
    assert render(table, "page") == render(table, "table")
