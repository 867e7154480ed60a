"""Questions to HTA on the command line: listed, described, refused in one line, and silent but for the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

from tracekit.analyses import hta_questions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Said

needs_hta = pytest.mark.skipif(hta_questions.installed() is None, reason="HolisticTraceAnalysis is not installed")


def test_they_are_listed_and_described_without_hta_and_without_a_run(tracekit: Callable[..., Said]) -> None:
    assert set(hta_questions.headers()) <= {
        line.partition(",")[0] for line in tracekit("query", "--list", "-f", "csv").out.splitlines()
    }
    assert "the trace itself, HolisticTraceAnalysis" in tracekit("query", "--describe", "hta_idle").out


def test_a_fault_is_one_line_and_exit_1(tracekit: Callable[..., Said], run_file: Path) -> None:
    said = tracekit("query", run_file, "hta_idle")
    assert (said.code, said.out) == (1, "")
    assert said.fault == snapshot(
        "hta_idle is not derivable from this run: it does not hold the trace itself: ask the raw trace, or a bundle "
        "loaded with --keep-raw"
    )


@needs_hta
def test_hta_says_nothing_by_itself(
    trace: Path, tracekit: Callable[..., Said], capfd: pytest.CaptureFixture[str]
) -> None:
    said = tracekit("query", trace, "hta_overlap", "-f", "csv")
    assert said.out.startswith("rank,span_ns,")
    assert [
        line for line in said.err.splitlines() if not line.startswith(("note:", "warning:", "tracekit: loading"))
    ] == []
    assert capfd.readouterr() == ("", "")
