"""`tracekit graph` on the command line."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Said

SAMPLE = str(ROOT / "sample_traces" / "train.json.gz")


@pytest.mark.parametrize(("suffix", "start"), [("mmd", "%%"), ("dot", "digraph"), ("gv", "digraph"), ("txt", "%%")])
def test_the_format_is_that_of_the_suffix(
    tracekit: Callable[..., Said], tmp_path: Path, suffix: str, start: str
) -> None:
    path = tmp_path / f"layer.{suffix}"
    assert tracekit("graph", SAMPLE, "-o", path).code == 0
    assert path.read_text(encoding="utf-8").startswith(start)
    assert "exists" in tracekit("graph", SAMPLE, "-o", path).fault
    assert tracekit("graph", SAMPLE, "-o", path, "--force", "-f", "dot").code == 0
    assert path.read_text(encoding="utf-8").startswith("digraph")


def test_mermaid_goes_to_stdout(tracekit: Callable[..., Said]) -> None:
    said = tracekit("graph", SAMPLE)
    assert said.code == 0
    assert "flowchart TD" in said.out
    assert "attention.qkv_proj" in said.out


def test_an_attention_call_is_drawn_by_its_number(tracekit: Callable[..., Said]) -> None:
    said = tracekit("graph", SAMPLE, "--call", "0")
    assert said.code == 0
    assert said.out.startswith("%% attention call 0 (sdpa): ")


def test_what_can_t_be_drawn_is_a_line(tracekit: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no calls of a module 'nowhere'" in tracekit("graph", SAMPLE, "--module", "nowhere").fault
    assert tracekit("graph", SAMPLE, "--module", "a", "--op", "1").code == 2
    assert "no attention call 99999 with an op" in tracekit("graph", SAMPLE, "--call", "99999").fault
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "svg needs Graphviz" in tracekit("graph", SAMPLE, "-f", "svg").fault


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_svg(tracekit: Callable[..., Said], tmp_path: Path) -> None:
    assert tracekit("graph", SAMPLE, "-o", tmp_path / "layer.svg").code == 0
    assert b"<svg" in (tmp_path / "layer.svg").read_bytes()
