"""The recordings that ship: small, whole, silent about the machine, and what their README says."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tracekit.bundle import Bundle, verify

SAMPLES = Path(__file__).parents[2] / "sample_traces"
BUNDLES = ("prefill-padded", "decode-dynamic", "train")
PRIVATE = re.compile(r"/(home|root|Users|tmp)/|host_name|C:\\\\")


def trace(name: str) -> dict[str, Any]:
    raw = Bundle.open(SAMPLES / f"{name}.tkb").read("raw/trace.json.gz")
    found: dict[str, Any] = json.loads(gzip.decompress(raw))
    return found


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_is_whole_and_small(name: str) -> None:
    path = SAMPLES / f"{name}.tkb"
    assert [check.problem for check in verify(path)] == ["", ""]
    assert path.stat().st_size < 3_000_000


@pytest.mark.parametrize("name", BUNDLES)
def test_nothing_names_the_machine_that_recorded(name: str) -> None:
    bundle = Bundle.open(SAMPLES / f"{name}.tkb")
    text = gzip.decompress(bundle.read("raw/trace.json.gz")).decode() + json.dumps(bundle.facts)
    assert PRIVATE.findall(text) == []


@pytest.mark.parametrize(("name", "steps"), [("prefill-padded", 3), ("decode-dynamic", 4), ("train", 3)])
def test_the_window_holds_exactly_the_steps_asked_for(name: str, steps: int) -> None:
    marks = [
        event["name"] for event in trace(name)["traceEvents"] if str(event.get("name")).startswith("tracekit|step=")
    ]
    assert marks == [f"tracekit|step={number}" for number in range(steps)]
    assert len(Bundle.open(SAMPLES / f"{name}.tkb").facts["steps"]) == steps  # type: ignore[arg-type]


def test_the_raw_trace_is_the_one_in_the_bundle() -> None:
    raw = (SAMPLES / "train.json.gz").read_bytes()
    assert raw == Bundle.open(SAMPLES / "train.tkb").read("raw/trace.json.gz")


def test_every_sample_is_in_the_readme_and_the_other_way_round() -> None:
    named = set(re.findall(r"^\| `([^`]+)` \|", (SAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert named == {path.name for path in SAMPLES.iterdir()} - {"README.md"}
