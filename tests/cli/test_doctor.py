"""`tracekit doctor`: a page by default, a row a check in any format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Said


def test_the_page_starts_with_the_verdict_and_ends_with_what_is_fine(
    tracekit: Callable[..., Said], trace: Path, run_file: Path
) -> None:
    raw, loaded = tracekit("doctor", trace), tracekit("doctor", run_file)
    assert (raw.code, raw.err) == (0, "")
    lines = raw.out.splitlines()
    assert lines[0].startswith("verdict     fit with care: ")
    assert lines[-1].startswith("ok ")
    assert loaded.out == raw.out


def test_a_format_gives_every_check_as_a_row_and_the_verdict_as_a_note(
    tracekit: Callable[..., Said], trace: Path
) -> None:
    answer = json.loads(tracekit("doctor", trace, "-f", "json").out)
    found = {row["check"]: row["verdict"] for row in answer["rows"]}
    assert found["work_without_launch"] == "warn"
    assert found["impossible_durations"] == "ok"
    assert answer["notes"][0]["text"].startswith("fit with care: ")


def test_a_file_gets_rows_by_its_suffix_and_a_page_without(tracekit: Callable[..., Said], trace: Path) -> None:
    assert tracekit("doctor", trace, "-o", "checks.csv").code == 0
    assert trace.with_name("checks.csv").read_text().startswith("check,ranks,verdict,")
    assert tracekit("doctor", trace, "-o", "page").code == 0
    assert trace.with_name("page").read_text().startswith("verdict ")


def test_summary_has_the_same_verdict(tracekit: Callable[..., Said], trace: Path) -> None:
    verdict = json.loads(tracekit("doctor", trace, "-f", "json").out)["notes"][0]["text"].removesuffix(".")
    rows = json.loads(tracekit("summary", trace, "-f", "json").out)["rows"]
    assert next(row["finding"] for row in rows if row["topic"] == "trust") == verdict


@pytest.mark.parametrize(
    ("options", "line"),
    [(["--ranks", "7"], "the run has no rank 7"), (["--memory-limit", "x"], "'x' is no amount of memory")],
)
def test_faults_are_one_line(tracekit: Callable[..., Said], trace: Path, options: list[str], line: str) -> None:
    assert tracekit("doctor", trace, *options).fault.startswith(line)
