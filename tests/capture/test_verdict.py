"""The verdict on an exported trace, on traces typed by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tracekit.capture.verdict import examine


def trace(*rows: dict[str, Any], **head: int) -> str:
    return json.dumps({**head, "traceEvents": list(rows), "traceName": "x.json"})


def row(category: str | None, name: str, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": 1.5, "dur": 1, "args": args}


STEP = row("user_annotation", "tracekit|step=0")
OP = row("cpu_op", "aten::mm")
MEMORY = row("cpu_instant_event", "[memory]", finished=False, Bytes=4)
MODULE = row("python_function", "nn.Module: Linear_0")


def test_a_whole_trace_lacks_nothing_and_says_what_it_holds() -> None:
    found = examine(trace(STEP, OP, MEMORY, MODULE, record_shapes=1, with_stack=1, profile_memory=1))
    assert str(found) == "1 step, 4 events, shapes stacks modules memory"
    assert found.lacks(1, has_device=False) == []


def test_a_step_on_the_device_row_is_not_counted_again() -> None:
    on_device = {**STEP, "cat": "gpu_user_annotation"}
    found = examine(trace(STEP, on_device, OP, MEMORY, row("kernel", "gemm")))
    assert found.lacks(1, has_device=True) == []
    assert str(found) == "1 step, 5 events, memory kernels"


@pytest.mark.parametrize(
    ("rows", "has_device", "lacking"),
    [
        ((OP, MEMORY), False, ["0 of 1 steps"]),
        ((STEP, STEP, OP, MEMORY), False, ["2 of 1 steps"]),
        ((STEP, MEMORY), False, ["no op rows"]),
        ((STEP, OP), False, ["no memory rows"]),
        ((STEP, OP, MEMORY), True, ["no device rows"]),
        ((STEP, OP, MEMORY, row("cpu_op", "aten::add", finished=False)), False, ["1 unfinished ops"]),
    ],
)
def test_what_is_missing_is_named(rows: tuple[dict[str, Any], ...], has_device: bool, lacking: list[str]) -> None:  # noqa: FBT001
    assert examine(trace(*rows)).lacks(1, has_device=has_device) == lacking


def test_a_name_that_breaks_the_json_is_named() -> None:
    broken = trace(STEP, OP, MEMORY).replace("aten::mm", 'a"b')
    (problem,) = examine(broken).lacks(1, has_device=False)
    assert problem.startswith("it is not valid JSON (")


def test_a_file_that_ends_early_is_named() -> None:
    assert examine(trace(STEP, OP)[:-30]).lacks(1, has_device=False) == ["it ends early"]
