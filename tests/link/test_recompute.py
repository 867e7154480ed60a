"""What a backward pass computes anew of the forward pass is a phase of its own, with stacks and without."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING

from tests.build import op
from tests.link.test_phases import NODE, column, forward_ops, linked
from tracekit.link.phases import rules
from tracekit.loading import tables_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.build import Event

RECOMPUTE = rules()["recompute"]


def seen(name: str, start: float, sequence: int) -> Event:
    """Make an op that autograd recorded, as those of a forward pass are, on autograd's thread."""
    return op(name, start, 1, tid=9, Sequence_number=sequence, Fwd_thread_id=0)


def test_the_frame_of_the_recomputation_is_named_as_its_rule_says() -> None:
    assert re.fullmatch(RECOMPUTE["frame"], RECOMPUTE["frame_example"])


def test_without_stacks_layers_inside_a_backward_op_tell_that_it_runs_forward_again() -> None:
    found = linked(
        op(f"{NODE}AddmmBackward0", 10, 40, tid=9, Sequence_number=5, Fwd_thread_id=1),
        op("AddmmBackward0", 11, 38, tid=9, Sequence_number=5, Fwd_thread_id=1),
        op("aten::view", 12, 1, tid=9),
        seen("aten::linear", 14, 8),
        op("aten::mm", 20, 5, tid=9),
        op(f"{NODE}AddmmBackward0 ", 60, 9, tid=9, Sequence_number=8, Fwd_thread_id=1),
        op("aten::t", 61, 5, tid=9),
    )
    assert column(found.ops, "phase") == {
        f"{NODE}AddmmBackward0": "backward",
        "AddmmBackward0": "backward",
        "aten::view": "recompute",
        "aten::linear": "recompute",
        "aten::mm": "backward",
        f"{NODE}AddmmBackward0 ": "backward",
        "aten::t": "backward",
    }
    assert forward_ops(found)["aten::t"] == "aten::linear"


def test_a_derivative_of_a_derivative_is_no_recomputation() -> None:
    found = linked(
        op(f"{NODE}MmBackward0", 10, 40, tid=9, Sequence_number=5, Fwd_thread_id=1),
        seen("aten::mm", 14, 8),
        seen("aten::mul", 16, 9),
    )
    assert set(column(found.ops, "phase").values()) == {"backward"}


def test_a_checkpointed_model_s_recomputation_is_what_lies_in_its_frames(traces: Path) -> None:
    """Hold the phase against the raw rows: launches inside `recompute_fn` on its thread, by time."""
    raw = json.loads(gzip.decompress((traces / "mi300x-resnet-checkpointing.json.gz").read_bytes()))
    rows = [row for row in raw["traceEvents"] if row.get("ph") == "X"]
    around = [row for row in rows if row.get("cat") == "python_function" and row["name"].endswith(": recompute_fn")]
    assert len(around) == 12
    launched = {
        row["args"]["correlation"]
        for row in rows
        if row.get("cat") == "cuda_runtime"
        and any(one["tid"] == row["tid"] and one["ts"] <= row["ts"] < one["ts"] + one["dur"] for one in around)
    }
    work = [row for row in rows if row.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]
    expected = {row["args"]["correlation"] for row in work} & launched
    kernels = tables_of(json.dumps(raw).encode(), "with stacks")["kernel"]
    found = set(kernels.filter(kernels["phase"] == "recompute")["correlation"])
    assert found == expected
    assert len(found) == 615

    raw["traceEvents"] = [row for row in raw["traceEvents"] if row.get("cat") != "python_function"]
    kernels = tables_of(json.dumps(raw).encode(), "without")["kernel"]
    without = kernels.filter(kernels["phase"] == "recompute")
    assert set(without["correlation"]) < found
    assert len(without) == 591  # not the last sum and activation of each block, which no layer follows


def test_a_run_without_backward_has_none() -> None:
    found = linked(seen("aten::linear", 0, 1))
    assert column(found.ops, "phase") == {"aten::linear": "forward"}
