"""Every SDPA call of the real traces: the backend that the rules expect against the one whose row is in the trace."""

from __future__ import annotations

import gzip
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.attention.backends.recorded import WRAPPER, arguments_of, arities_of, bare_rows_of, rows_of
from tests.conftest import ROOT
from tracekit.attention.backends.facts import backend_facts
from tracekit.attention.backends.readings import Environment
from tracekit.attention.backends.releases import releases_of, span_of
from tracekit.attention.backends.rows import backend_of, gradients_needed, wrapper_arguments
from tracekit.attention.backends.verdict import Verdict, judge

if TYPE_CHECKING:
    from pathlib import Path

    from tests.attention.backends.recorded import Row

FOUND: dict[str, tuple[str, int, int]] = {
    "a100-sam-compile": ("2.1 to 2.2", 7, 0),
    "a100-sam-sdpa": ("2.1 to 2.2", 144, 0),
    "h100-bert-small": ("2.5.0 to 2.11", 0, 4),
    "h100-qwen1.5-0.5b": ("2.5.0 to 2.11", 0, 24),
    "mi300x-bert-small": ("2.5.0 to 2.11", 4, 0),
    "mi300x-flux-diffusion": ("2.5.0 to 2.11", 12, 1),
    "mi300x-qwen1.5-0.5b": ("2.5.0 to 2.11", 24, 0),
}
"""Releases that the rows leave, calls predicted right, and calls of which what ran is one of several possible.

The several: on H100 cuDNN comes first in 2.5.0, 2.9 and 2.11, flash in the others; and on MI300X AOTriton takes a
head_dim of 512 from 2.7 on.
"""
NAMES = {
    "aten::_scaled_dot_product_efficient_attention": (
        *("query", "key", "value", "attn_bias", "compute_log_sumexp", "dropout_p", "is_causal", "scale"),
    ),
    "aten::_scaled_dot_product_flash_attention": (
        *("query", "key", "value", "dropout_p", "is_causal", "return_debug_mask", "scale"),
    ),
}
BARE = {"a100-sam-compile": ("efficient", 28), "mi300x-compile-triton": ("flash", 1)}
"""Rows of backends in compiled regions."""


def read(traces: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress((traces / f"{name}.json.gz").read_bytes()))
    return document


def environment(document: dict[str, Any], **rest: Any) -> Environment:
    """Return where a trace was recorded, by its own device properties."""
    device = document["deviceProperties"][0]
    return Environment(
        "rocm" if device["name"].startswith("AMD") else "cuda",
        device["name"],
        (device["computeMajor"], device["computeMinor"]),
        releases=releases_of(arities_of(document["traceEvents"])).releases,
        **rest,
    )


def verdicts(document: dict[str, Any], **rest: Any) -> list[tuple[Row, Verdict]]:
    found = []
    for row in rows_of(document["traceEvents"]):
        needs_grad = gradients_needed(has_sequence_number=row.has_sequence_number)
        place = environment(document, needs_grad=needs_grad, **rest)
        found.append((row, judge(row.arguments, place, row.ran)))
    return found


@pytest.mark.parametrize("name", FOUND)
def test_calls_ran_on_the_backend_that_rules_expect(traces: Path, name: str) -> None:
    document = read(traces, name)
    span, agreed, several = FOUND[name]
    found = verdicts(document)
    assert span_of(environment(document).releases) == span
    assert sum(row.count for row, verdict in found if verdict.agrees) == agreed
    assert sum(row.count for row, verdict in found if verdict.agrees is None) == several
    wrappers = [event for event in document["traceEvents"] if event["name"] == WRAPPER]
    assert sum(row.count for row, _ in found) == len(wrappers) == agreed + several
    assert [verdict.problem for _, verdict in found if verdict.problem] == []


@pytest.mark.parametrize("name", ["h100-bert-small", "h100-qwen1.5-0.5b"])
def test_the_version_that_was_recorded_leaves_flash_alone(traces: Path, name: str) -> None:
    document = read(traces, name)
    version = document["metadata"]["system"]["torch_env_info"]["torch_version"]
    assert version == "2.6.0+cu124"
    for row, verdict in verdicts(document, torch_version=version):
        assert (row.ran, verdict.predicted, verdict.certainty) == ("flash", "flash", "certain")
        assert [(each.backend, each.status, each.steps[0].remedy) for each in verdict.remedies] == [
            ("cudnn", "later", "R18")
        ]


@pytest.mark.parametrize("name", ["h100-bert-small", "h100-qwen1.5-0.5b"])
def test_what_ran_tells_releases_apart(traces: Path, name: str) -> None:
    for _, verdict in verdicts(read(traces, name)):
        assert verdict.possible == ("cudnn", "flash")
        assert (verdict.releases, verdict.certainty) == ("2.5.1 to 2.8, 2.10", "likely")


def test_a_head_dim_of_512_on_mi300x_tells_a_release_from_2_7_on(traces: Path) -> None:
    ((row, verdict),) = [each for each in verdicts(read(traces, "mi300x-flux-diffusion")) if each[0].count == 1]
    assert row.arguments["query"].shape == (1, 1, 1024, 512)
    assert (verdict.possible, verdict.releases) == (("math", "flash"), "2.7 to 2.11")


def test_flash_is_refused_for_the_mask_and_for_float32_in_the_eager_sam(traces: Path) -> None:
    for row, verdict in verdicts(read(traces, "a100-sam-sdpa")):
        flash = next(backend for backend in verdict.backends if backend.name == "flash")
        has_mask = row.arguments["attn_mask"].shape is not None
        assert [reason.rule for reason in flash.reasons] == (["FLASH-04", "FLASH-19"] if has_mask else ["FLASH-19"])
        assert (flash.status, flash.certainty, verdict.certainty) == ("refused", "certain", "certain")


@pytest.mark.parametrize("name", BARE)
def test_rows_of_compiled_regions_are_judged_without_a_wrapper(traces: Path, name: str) -> None:
    document = read(traces, name)
    backend, count = BARE[name]
    rows = bare_rows_of(document["traceEvents"])
    assert [ran for _, ran in rows] == [backend] * count
    for event, ran in rows:
        assert backend_of(event["name"]) == ran
        arguments = wrapper_arguments(event["name"], arguments_of(event, NAMES[event["name"]]))
        verdict = judge(arguments, environment(document, needs_grad=None, facts={"wrapper": False}), ran)
        assert (verdict.agrees, verdict.problem) == (True, None)


@pytest.mark.parametrize(("name", "count"), [("train", 6), ("prefill-padded", 6), ("decode-dynamic", 8)])
def test_calls_of_the_samples_are_certain_by_their_facts(name: str, count: int) -> None:
    with zipfile.ZipFile(ROOT / "sample_traces" / f"{name}.tkb") as bundle:
        facts = json.loads(bundle.read("facts.json"))
        (trace,) = [entry for entry in bundle.namelist() if entry.startswith("raw/")]
        document = json.loads(gzip.decompress(bundle.read(trace)))
    told = {
        **backend_facts(json.dumps(facts["environment"]), json.dumps(facts["settings"])),
        "mask_requires_grad": False,
    }
    place = Environment("cpu", torch_version=facts["torch_version"], facts=told)
    found = [(row, judge(row.arguments, place, row.ran)) for row in rows_of(document["traceEvents"])]
    assert sum(row.count for row, _ in found) == count
    assert {(row.ran, verdict.predicted, verdict.predicted_certainty) for row, verdict in found} == {
        ("flash", "flash", "certain")
    }


def test_an_old_trace_has_neither_strides_nor_enable_gqa(traces: Path) -> None:
    document = read(traces, "a100-sam-sdpa")
    assert {row.arguments["query"].strides for row in rows_of(document["traceEvents"])} == {None}
    assert all("enable_gqa" not in row.arguments for row in rows_of(document["traceEvents"]))
