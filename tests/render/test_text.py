"""Tables as aligned text."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from inline_snapshot import snapshot
from rich.cells import cell_len

from tests.build import trace_file
from tracekit.render.text import render_text
from tracekit.table import Note, Table


def _table(*notes: Note, **columns: Sequence[object]) -> Table:
    frame = pl.DataFrame(columns)
    return Table("small", frame, dict.fromkeys(frame.columns, "A column."), notes)


def _lines(table: Table, width: int | None = None) -> list[str]:
    return render_text(table, width).decode().split("\n")


def test_no_rows_leave_the_header_and_say_so(empty: Table) -> None:
    assert _lines(empty, 70) == snapshot(
        [
            "         total             share         stream               is",
            "kernel    [ns]  launches     [%]  ratio      id  dims  facts  cold",
            "────────────────────────────────────────────────────────────────────",
            "no rows",
            "",
            "exact: total_ns counts every kernel",
            "",
        ]
    )


def test_markup_and_escape_sequences_print_literally() -> None:
    table = _table(name=["[bold]x[/bold]", "\x1b[2J", "\x9b31m", "a\u202eb", "\u200b", "a\tb\r\n"])
    assert _lines(table)[2:-1] == snapshot(
        ["[bold]x[/bold]", "\\x1b[2J", "\\x9b31m", "a\\u202eb", "\\u200b", "a\\tb\\r\\n"]
    )


def test_a_name_of_a_column_is_made_harmless_too() -> None:
    assert _lines(_table(**{"\x1b[2J_ns": [1]}))[0] == "\\x1b[2J [ns]"


def test_without_a_terminal_long_words_are_cut_in_the_middle_to_120() -> None:
    word = "begin" + "x" * 300 + "end"
    line = _lines(_table(name=[word], other=["y"]))[2]
    assert line.startswith("beginxxx")
    assert line.endswith("xxxend  y")
    assert len(line) == 120 + len("  y")
    assert line.count("…") == 1


def test_without_a_terminal_nothing_wraps_however_many_the_columns() -> None:
    table = _table(Note("info", "word " * 100), **{f"column_{i}": ["v" * 50] for i in range(30)})
    _header, rule, row, blank, note, end = _lines(table)
    assert len(row) == len(rule) == 30 * 50 + 29 * 2
    assert (blank, end) == ("", "")
    assert note == ("note: " + "word " * 100).rstrip()


def test_a_terminal_takes_width_from_the_longest_words_first() -> None:
    table = _table(short=["s" * 10], long=["l" * 100], count=[123456])
    assert _lines(table, 60)[2] == f"{'s' * 10}  {'l' * 19}…{'l' * 19}  123,456"


def test_headers_wrap_before_words_are_cut_or_numbers_left_out() -> None:
    table = _table(kernel=["k" * 12], attention_core_total_ns=[1_000_000], attention_core_launches=[12])
    assert _lines(table, 36) == snapshot(
        [
            "               attention   attention",
            "              core total        core",
            "kernel              [ms]    launches",
            "────────────────────────────────────",
            "kkkkkkkkkkkk       1.000          12",
            "",
        ]
    )


def test_numbers_are_never_cut() -> None:
    table = _table(count=[10**18], other=[1])
    assert _lines(table, 12)[2] == f"{10**18:,}"
    assert "1 of 2 columns" in " ".join(_lines(table, 12))


def test_wide_characters_count_twice() -> None:
    first, second = _lines(_table(name=["核心" * 40, "x"], n=[1, 2]), 60)[2:4]
    assert cell_len(first) == cell_len(second) <= 60


def test_notes_wrap_in_a_terminal() -> None:
    lines = _lines(_table(Note("warning", "several words " * 10), n=[1]), 60)
    assert max(map(len, lines)) <= 60
    assert " ".join(lines).count("several words") == 10


@pytest.mark.parametrize("width", [1, 2, 5])
def test_an_absurd_width_still_prints_the_first_column(width: int) -> None:
    assert "7" in render_text(_table(n=[7], other=["word"]), width).decode()


def test_a_column_without_values_is_named_instead_of_drawn() -> None:
    table = Table("t", pl.DataFrame({"role": ["mlp"], "phase": [None]}), {"role": "R.", "phase": "P."})
    assert render_text(table).decode() == snapshot("""\
role
────
mlp

columns without values: phase
""")


def test_a_table_of_nothing_but_nulls_is_drawn() -> None:
    table = Table("t", pl.DataFrame({"role": [None], "phase": [None]}), {"role": "R.", "phase": "P."})
    assert render_text(table).decode().splitlines()[0].split() == ["role", "phase"]


def test_sentences_wrap_and_names_are_cut() -> None:
    rows = {"name": ["kernel_" * 10] * 2, "message": ["one two three four five six seven eight nine ten " * 2, "short"]}
    table = Table("t", pl.DataFrame(rows), {"name": "N.", "message": "M."})
    assert render_text(table, 70).decode() == snapshot("""\
name                                message
──────────────────────────────────────────────────────────────────────
kernel_kernel_ker…l_kernel_kernel_  one two three four five six seven
                                    eight nine ten one two three four
                                    five six seven eight nine ten
kernel_kernel_ker…l_kernel_kernel_  short
""")


def test_words_give_way_to_measured_numbers_and_not_to_sizes() -> None:
    sizes = {name: [3_000] for name in ("batch", "m", "n", "k")}
    table = _table(
        kernel=["sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"],
        **sizes,
        work_ns=[12_345],
        peak_frac=[0.617],
        share_frac=[0.1],
    )
    assert _lines(table, 64)[:4] == snapshot(
        [
            "                                              work   peak  share",
            "kernel          batch      m      n      k    [µs]    [%]    [%]",
            "────────────────────────────────────────────────────────────────",
            "sm90_xm…2_tn_n  3,000  3,000  3,000  3,000  12.345   61.7   10.0",
        ]
    )


@pytest.mark.parametrize(
    ("name", "question", "shown"),
    [
        ("h100-qwen1.5-0.5b", "attention_calls", ["backend", "nq", "total [ms]", "achieved [TFLOP/s]"]),
        ("h100-qwen1.5-0.5b", "roofline", ["sizes", "work [ms]", "achieved [TFLOP/s]", "peak [%]"]),
        ("h100-qwen1.5-0.5b", "gemm_calls", ["m", "work [ms]", "achieved [TFLOP/s]", "peak [%]", "share [%]"]),
        ("h100-qwen1.5-0.5b", "backend_verdict", ["query", "ran", "device [ms]", "backend", "state", "why"]),
        ("h100-qwen1.5-0.5b", "head_occupancy", ["sizes", "total [ms]", "sm [%]", "occupancy [%]"]),
        ("b200-vllm-eager", "attention_calls", ["backend", "total [µs]", "share [%]"]),
        ("b200-vllm-eager", "roofline", ["name", "work [ms]", "achieved [TFLOP/s]", "peak [%]"]),
        ("h100-timesformer-math", "attention_calls", ["nq", "total [ms]", "achieved [TFLOP/s]"]),
    ],
)
def test_what_tells_most_is_seen_in_80_columns(traces: Path, name: str, question: str, shown: list[str]) -> None:
    with trace_file(traces / f"{name}.json.gz") as opened:
        lines = _lines(opened.query(question), 80)
    header = " ".join(lines[: next(at for at, line in enumerate(lines) if line.startswith("─"))])
    assert [column for column in shown if not set(column.split()) <= set(header.split())] == []
