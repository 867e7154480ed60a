"""Device work finds its launch by correlation and its op by the launch, or says why it has none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.build import annotation, document, event, frame, kernel, launch, op, step
from tracekit.ingest import read_bytes
from tracekit.link import Linked, link

if TYPE_CHECKING:
    from tests.build import Event

NO_LAUNCH = "no launch with its correlation in the trace"
NO_CORRELATION = "it has no correlation"
NO_OP = "its launch lies outside every recorded op"


def linked(*events: Event | list[Event]) -> Linked:
    return link(read_bytes(document(*events), "hand.json"))


def ops_of(found: Linked) -> dict[str, str | None]:
    """Return for each kernel's name that of its op."""
    names = dict(found.ops.select("op_id", "name").iter_rows())
    return {name: names.get(op_id) for name, op_id in found.kernels.select("name", "op_id").iter_rows()}


def launches_of(found: Linked) -> dict[str, str | None]:
    """Return for each kernel's name that of its launch."""
    names = dict(found.launches.select("launch_id", "name").iter_rows())
    return {name: names.get(launch_id) for name, launch_id in found.kernels.select("name", "launch_id").iter_rows()}


def reasons(found: Linked) -> dict[str, str | None]:
    return dict(found.kernels.select("name", "unlinked_reason").iter_rows())


def test_a_kernel_belongs_to_the_innermost_op_around_its_launch() -> None:
    found = linked(
        op("aten::linear", 0, 20), op("aten::addmm", 2, 10), launch(5, 1), launch(15, 2),
        kernel("inner", 50, 5, 1), kernel("outer", 60, 5, 2),
    )  # fmt: skip
    assert ops_of(found) == {"inner": "aten::addmm", "outer": "aten::linear"}
    assert reasons(found) == {"inner": None, "outer": None}


def test_any_call_with_the_correlation_is_a_launch_whatever_its_name() -> None:
    names = ("cuLaunchKernelEx", "hipExtModuleLaunchKernel", "cudaGraphLaunch", "INVALID")
    calls = [launch(at, at, name=name) for at, name in enumerate(names, 1)]
    kernels = [kernel(name, 50 + at, 1, at) for at, name in enumerate(names, 1)]
    found = linked(op("aten::mm", 0, 20), *calls, *kernels)
    assert launches_of(found) == {name: name for name in names}


def test_calls_that_put_no_work_on_a_device_are_no_launches_and_are_kept() -> None:
    found = linked(
        op("aten::mm", 0, 20),
        launch(1, 1),
        event("cuda_runtime", "cudaStreamSynchronize", 3, 2, args={"correlation": 2, "new": "x"}),
        event("cuda_runtime", "cudaMalloc", 6, 2, args={"cbid": 3}),
        event("cuda_driver", "cuModuleLoad", 9, 2, args={"correlation": 4}),
        kernel("k", 50, 5, 1),
    )
    assert found.launches["name"].to_list() == ["cudaLaunchKernel"]
    kept = dict(found.other.select("name", "args_json").iter_rows())
    assert json.loads(kept["cudaStreamSynchronize"] or "") == {"correlation": 2, "new": "x"}
    assert json.loads(kept["cuModuleLoad"] or "") == {"correlation": 4}
    assert kept["cudaMalloc"] is None
    assert set(found.other["phase_letter"]) == {"X"}


def test_of_two_calls_with_one_correlation_the_inner_one_is_the_launch() -> None:
    calls = [launch(5, 1, name="cudaLaunchKernel", duration=9), launch(7, 1, name="cuLaunchKernel", duration=3)]
    for order in (calls, calls[::-1]):
        found = linked(op("aten::mm", 0, 20), op("inside", 6, 5), order, kernel("k", 50, 5, 1))
        assert launches_of(found) == {"k": "cuLaunchKernel"}
        assert ops_of(found) == {"k": "inside"}
        assert found.launches.height == 2


def test_many_kernels_may_share_one_launch() -> None:
    found = linked(
        op("replay", 0, 20), launch(5, 1, name="cudaGraphLaunch"), *(kernel(f"k{n}", 50 + n, 1, 1) for n in range(4))
    )
    assert launches_of(found) == {f"k{n}": "cudaGraphLaunch" for n in range(4)}
    assert found.kernels.height == 4


def test_a_kernel_without_an_op_says_why() -> None:
    found = linked(
        op("aten::mm", 0, 5),
        launch(1, 1),
        launch(20, 2),
        kernel("linked", 50, 5, 1),
        kernel("outside", 51, 5, 2),
        kernel("before", 52, 5, 3),
        kernel("untold", 53, 5),
    )
    assert reasons(found) == {"linked": None, "outside": NO_OP, "before": NO_LAUNCH, "untold": NO_CORRELATION}
    assert ops_of(found) == {"linked": "aten::mm", "outside": None, "before": None, "untold": None}


def test_a_kernel_without_an_op_says_what_probably_happened() -> None:
    found = linked(
        op("aten::mm", 0, 5),
        launch(1, 10),
        launch(20, 12),
        launch(30, 13, name="cudaGraphLaunch"),
        kernel("linked", 50, 5, 10),
        kernel("outside", 51, 5, 12),
        kernel("replayed", 52, 5, 13),
        kernel("earlier", 53, 5, 9),
        kernel("lost", 54, 5, 11),
        kernel("untold", 55, 5),
    )
    assert dict(found.kernels.select("name", "unlinked_cause").iter_rows()) == {
        "linked": None,
        "outside": "launched by code that PyTorch does not record as an op",
        "replayed": "replayed from a graph that was launched outside every op",
        "earlier": "launched before the recording began",
        "lost": "its launch row was lost, or is a call the profiler does not record",
        "untold": "the exporter wrote no correlation",
    }
    assert linked(kernel("k", 0, 5, 1)).kernels["unlinked_cause"].item() == "no CPU ops were recorded"
    assert linked(op("a", 0, 1), kernel("k", 5, 5, 1)).kernels["unlinked_cause"].item() == "no launch was recorded"


def test_an_annotation_is_no_op_of_a_kernel() -> None:
    found = linked(step(1, 0, 40), annotation("forward", 1, 30), launch(5, 1), kernel("k", 50, 5, 1))
    assert ops_of(found) == {"k": None}
    assert reasons(found) == {"k": NO_OP}
    assert found.kernels["step_id"].to_list() == [0]


def test_a_launch_on_another_thread_is_not_inside_the_op() -> None:
    found = linked(op("aten::mm", 0, 20), launch(5, 1, tid=9), kernel("k", 50, 5, 1))
    assert ops_of(found) == {"k": None}


def test_a_launch_knows_the_frame_it_was_made_in() -> None:
    found = linked(frame("f", 0, 20, 1), frame("g", 4, 4, 2, 1), launch(5, 1), kernel("k", 50, 5, 1))
    assert found.launches["frame_id"].to_list() == [1]


def test_a_kernel_without_a_launch_takes_the_op_that_its_external_id_names() -> None:
    found = linked(
        op("aten::mm", 0, 5, External_id=70),
        op("aten::add", 6, 5, External_id=71),
        launch(1, 1),
        kernel("launched", 50, 5, 1, External_id=71),
        kernel("named", 60, 5, 2, External_id=71),
        kernel("unknown", 70, 5, 3, External_id=999),
    )
    assert ops_of(found) == {"launched": "aten::mm", "named": "aten::add", "unknown": None}
    assert reasons(found) == {"launched": None, "named": None, "unknown": NO_LAUNCH}


def test_an_external_id_that_two_ops_carry_names_none() -> None:
    found = linked(op("a", 0, 5, External_id=70), op("b", 6, 5, External_id=70), kernel("k", 60, 5, 2, External_id=70))
    assert ops_of(found) == {"k": None}


def test_external_ids_that_repeat_the_correlation_are_not_trusted() -> None:
    found = linked(
        op("aten::mm", 0, 5, External_id=2),
        kernel("k", 50, 5, 2, External_id=2),
        kernel("m", 60, 5, 3, External_id=2),
    )
    assert ops_of(found) == {"k": None, "m": None}


def test_kernels_take_the_step_of_their_launch_not_of_their_own_time() -> None:
    found = linked(
        step(1, 0, 10), step(2, 10, 10),
        op("a", 2, 3), launch(3, 1), op("b", 12, 3), launch(13, 2),
        kernel("first", 15, 5, 1), kernel("second", 25, 5, 2), kernel("unlaunched", 16, 5, 3),
    )  # fmt: skip
    numbers = dict(found.steps.select("step_id", "number").iter_rows())
    assert {name: numbers.get(step_id) for name, step_id in found.kernels.select("name", "step_id").iter_rows()} == {
        "first": 1,
        "second": 2,
        "unlaunched": None,
    }


def test_kernels_take_phase_and_module_of_their_op() -> None:
    found = linked(
        frame("nn.Module: Linear_0", 0, 10, 1),
        op("aten::addmm", 2, 3),
        launch(3, 1),
        op("AddmmBackward0", 20, 5, tid=9),
        launch(21, 2, tid=9),
        kernel("forward", 50, 5, 1),
        kernel("backward", 60, 5, 2),
        kernel("alone", 70, 5, 3),
    )
    assert found.kernels.select("name", "phase", "module_id").rows() == [
        ("forward", "forward", 0),
        ("backward", "backward", None),
        ("alone", "other", None),
    ]
