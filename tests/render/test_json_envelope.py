"""The JSON envelope."""

import json

import polars as pl

from tracekit.render.json_envelope import render_json
from tracekit.table import Table


def test_no_rows_are_an_empty_list(empty: Table) -> None:
    envelope = json.loads(render_json(empty))
    assert list(envelope) == ["name", "columns", "rows", "notes"]
    assert envelope["rows"] == []
    assert [column["name"] for column in envelope["columns"]] == empty.frame.columns


def test_what_could_steer_a_terminal_is_escaped_and_comes_back() -> None:
    hostile = "\x00\x1b[2J\x7f\x9b31m\u202e\u200b\u2028\ufeff\U000e0041\\é"
    text = render_json(Table("t", pl.DataFrame({hostile: [hostile]}), {hostile: hostile})).decode()
    assert not [char for char in text if char != "\n" and not char.isprintable()]
    assert json.loads(text)["rows"] == [{hostile: hostile}]
