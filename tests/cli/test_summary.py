"""`tracekit summary`: one page about a run, which obeys the options of every verb."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Said


def test_the_page_names_the_run_and_is_the_same_for_its_bundle(
    tracekit: Callable[..., Said], trace: Path, run_file: Path
) -> None:
    raw, loaded = tracekit("summary", trace), tracekit("summary", run_file)
    assert (raw.code, raw.err) == (0, "")
    assert "train.json" in raw.out
    assert loaded.out.replace("train.tkb", "train.json") == raw.out


def test_the_page_is_a_table_where_a_format_is_asked_for(tracekit: Callable[..., Said], trace: Path) -> None:
    rows = json.loads(tracekit("summary", trace, "-f", "json").out)["rows"]
    assert {"run", "trust", "steps", "attention"} <= {row["topic"] for row in rows}


def test_the_page_obeys_the_selection(tracekit: Callable[..., Said], trace: Path) -> None:
    def attention(*options: str) -> str:
        rows = json.loads(tracekit("summary", trace, "-f", "json", *options).out)["rows"]
        return next(row["finding"] for row in rows if row["topic"] == "attention")

    assert "1.00 ms device time" in attention()
    assert "500 µs device time" in attention("--steps", "4")
    assert "900 µs device time" in attention("--phase", "forward")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--steps", "9"], "the run has no step 9"),
        (["--ranks", "7"], "the run has no rank 7"),
        (["--memory-limit", "x"], "'x' is no amount of memory"),
    ],
)
def test_faults_are_one_line(tracekit: Callable[..., Said], trace: Path, options: list[str], line: str) -> None:
    assert tracekit("summary", trace, *options).fault.startswith(line)
