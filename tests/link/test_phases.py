"""Names and sequence numbers say when in a step an op ran, and which forward op a backward op answers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.build import annotation, document, event, frame, kernel, launch, op, recorded_step, step
from tracekit.ingest import read_bytes
from tracekit.link import Linked, link
from tracekit.link.phases import kind_of, phase_of, rules

if TYPE_CHECKING:
    import polars as pl

    from tests.build import Event

NODE = "autograd::engine::evaluate_function: "
PHASES = {"forward", "backward", "recompute", "optimizer", "other"}


def linked(*events: Event | list[Event]) -> Linked:
    return link(read_bytes(document(*events), "hand.json"))


def column(rows: pl.DataFrame, name: str) -> dict[str, Any]:
    return dict(rows.select("name", name).iter_rows())


def forward_ops(found: Linked) -> dict[str, str | None]:
    """Return for each op's name that of its forward op."""
    names = dict(found.ops.select("op_id", "name").iter_rows())
    return {name: names.get(forward) for name, forward in found.ops.select("name", "forward_op_id").iter_rows()}


@pytest.mark.parametrize("row", rules()["phase"], ids=lambda row: row["phase"])
def test_a_phase_s_example_has_that_phase(row: dict[str, str]) -> None:
    assert phase_of(row["example"]) == row["phase"]
    assert row["phase"] in PHASES


@pytest.mark.parametrize("row", rules()["kind"], ids=lambda row: row["kind"])
def test_a_kind_s_example_has_that_kind(row: dict[str, str]) -> None:
    assert kind_of(row["example"], is_annotation=False) == row["kind"]
    assert row["kind"] in {"autograd", "collective", "region"}


@pytest.mark.parametrize(
    ("name", "phase", "kind"),
    [
        ("aten::mm", None, "op"),
        ("aten::native_batch_norm_backward", None, "op"),
        ("ScaledDotProductFlashAttentionBackward0", "backward", "autograd"),
        (f"{NODE}MmBackward0", "backward", "autograd"),
        (f"{NODE}torch::autograd::AccumulateGrad", "backward", "autograd"),
        ("torch::autograd::AccumulateGrad", "backward", "autograd"),
        ("CompiledFunctionBackward", "backward", "autograd"),
        ("torch::autograd::CopyBackwards", "backward", "autograd"),
        ("CheckpointFunctionBackward", "recompute", "autograd"),
        (f"{NODE}CheckpointFunctionBackward", "backward", "autograd"),
        ("Optimizer.step#SGD.step", "optimizer", "op"),
        ("Optimizer.zero_grad#SGD.zero_grad", "optimizer", "op"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "other", "op"),
        ("record_param_comms", None, "collective"),
        ("nccl:all_reduce", None, "collective"),
        ("c10d::allreduce_", None, "collective"),
        ("Torch-Compiled Region: 0/0", None, "region"),
        ("## Call CompiledFxGraph fabc ##", None, "region"),
        ("MyBackwardPass", None, "op"),
    ],
)
def test_a_name_says_phase_and_kind(name: str, phase: str | None, kind: str) -> None:
    assert (phase_of(name), kind_of(name, is_annotation=False)) == (phase, kind)


def test_an_annotation_is_one_unless_its_name_says_more() -> None:
    assert kind_of("my block", is_annotation=True) == "annotation"
    assert kind_of("nccl:all_reduce", is_annotation=True) == "collective"


def test_a_phase_lasts_until_an_op_inside_starts_another() -> None:
    found = linked(
        step(1, 0, 100),
        op("aten::mm", 1, 2),
        op(f"{NODE}MmBackward0", 10, 10),
        op("MmBackward0", 11, 8),
        op("aten::t", 12, 2),
        annotation("Optimizer.step#SGD.step", 30, 10),
        op("aten::add_", 31, 2),
        annotation("enumerate(DataLoader)#Iter.__next__", 50, 10),
        op("aten::stack", 51, 2),
        op("aten::sum", 70, 2),
    )
    assert column(found.ops, "phase") == {
        "ProfilerStep#1": "forward",
        "aten::mm": "forward",
        f"{NODE}MmBackward0": "backward",
        "MmBackward0": "backward",
        "aten::t": "backward",
        "Optimizer.step#SGD.step": "optimizer",
        "aten::add_": "optimizer",
        "enumerate(DataLoader)#Iter.__next__": "other",
        "aten::stack": "other",
        "aten::sum": "forward",
    }


def test_a_backward_op_answers_to_the_last_op_that_started_with_its_number() -> None:
    found = linked(
        op("aten::linear", 0, 9, Sequence_number=5),
        op("aten::addmm", 2, 4, Sequence_number=5),
        op("aten::relu", 10, 4, Sequence_number=6),
        op(f"{NODE}ReluBackward0", 20, 9, tid=9, Sequence_number=6),
        op("ReluBackward0", 21, 7, tid=9, Sequence_number=6),
        op("aten::threshold_backward", 22, 5, tid=9),
        op(f"{NODE}AddmmBackward0", 30, 9, tid=9, Sequence_number=5),
        op("AddmmBackward0", 31, 7, tid=9, Sequence_number=5),
        op("aten::mm", 32, 5, tid=9, Sequence_number=6),
        op(f"{NODE}torch::autograd::AccumulateGrad", 40, 9, tid=9),
        op("aten::add_", 41, 5, tid=9),
    )
    assert forward_ops(found) == {
        "aten::linear": None,
        "aten::addmm": None,
        "aten::relu": None,
        f"{NODE}ReluBackward0": "aten::relu",
        "ReluBackward0": "aten::relu",
        "aten::threshold_backward": "aten::relu",
        f"{NODE}AddmmBackward0": "aten::addmm",
        "AddmmBackward0": "aten::addmm",
        "aten::mm": "aten::addmm",
        f"{NODE}torch::autograd::AccumulateGrad": None,
        "aten::add_": None,
    }


def test_a_number_used_again_in_the_next_step_means_the_latest_op() -> None:
    found = linked(
        op("first", 0, 4, Sequence_number=5),
        op("BackwardOfFirstBackward0", 10, 4, Sequence_number=5),
        op("second", 20, 4, Sequence_number=5),
        op("BackwardOfSecondBackward0", 30, 4, Sequence_number=5),
    )
    assert forward_ops(found) == {
        "first": None,
        "BackwardOfFirstBackward0": "first",
        "second": None,
        "BackwardOfSecondBackward0": "second",
    }


def test_a_backward_op_whose_forward_op_was_not_recorded_has_none() -> None:
    found = linked(op("MmBackward0", 0, 4, Sequence_number=5), op("aten::mm", 10, 4, Sequence_number=5))
    assert forward_ops(found) == {"MmBackward0": None, "aten::mm": None}


def test_what_a_checkpoint_runs_again_is_recompute_and_its_own_backward_is_backward() -> None:
    found = linked(
        op("CheckpointFunction", 0, 5, Sequence_number=5),
        op(f"{NODE}CheckpointFunctionBackward", 10, 40, tid=9, Sequence_number=5),
        op("CheckpointFunctionBackward", 11, 38, tid=9, Sequence_number=5),
        op("aten::mm", 12, 5, tid=9, Sequence_number=8),
        op(f"{NODE}MmBackward0", 20, 9, tid=9, Sequence_number=8),
        op("aten::t", 21, 5, tid=9),
    )
    assert column(found.ops, "phase") == {
        "CheckpointFunction": "forward",
        f"{NODE}CheckpointFunctionBackward": "backward",
        "CheckpointFunctionBackward": "recompute",
        "aten::mm": "recompute",
        f"{NODE}MmBackward0": "backward",
        "aten::t": "backward",
    }
    assert forward_ops(found) == {
        "CheckpointFunction": None,
        f"{NODE}CheckpointFunctionBackward": "CheckpointFunction",
        "CheckpointFunctionBackward": None,
        "aten::mm": None,
        f"{NODE}MmBackward0": "aten::mm",
        "aten::t": "aten::mm",
    }


def test_a_backward_op_belongs_to_the_module_of_its_forward_op() -> None:
    found = linked(
        frame("nn.Module: Linear_0", 0, 10, 1),
        op("aten::addmm", 2, 4, Sequence_number=5),
        frame("nn.Module: Loss_0", 20, 40, 2),
        op("AddmmBackward0", 30, 9, Sequence_number=5),
        op("aten::mm", 31, 5),
        launch(32, 1),
        kernel("k", 70, 5, 1),
    )
    names = dict(found.modules.select("module_id", "class_name").iter_rows())
    modules = {name: names[module] for name, module in column(found.ops, "module_id").items()}
    assert modules == {"aten::addmm": "Linear", "AddmmBackward0": "Linear", "aten::mm": "Linear"}
    assert names[found.kernels["module_id"].item()] == "Linear"


def steps(*events: Event | list[Event]) -> list[tuple[Any, ...]]:
    return linked(*events).steps.select("number", "start_ns", "dur_ns", "is_partial", "is_cold").rows()


def test_a_trace_without_steps_is_one_step() -> None:
    found = linked(op("a", 5, 10), op("b", 20, 10))
    assert found.steps.row(0, named=True) == {
        "step_id": 0,
        "number": None,
        "name": "whole trace",
        "start_ns": 0,
        "dur_ns": 25_000,
        "is_partial": False,
        "is_cold": False,
    }
    assert found.ops["step_id"].to_list() == [0, 0]


def test_a_zero_long_op_at_the_very_end_is_still_in_the_whole_trace() -> None:
    assert linked(op("a", 0, 10), op("b", 10, 0)).ops["step_id"].to_list() == [0, 0]


def test_ops_belong_to_the_step_they_start_in() -> None:
    found = linked(
        op("before", 0, 1), step(7, 2, 10), op("in 7", 3, 20), step(8, 12, 10), op("on the border", 12, 1),
        op("other thread", 15, 1, tid=9), op("at the end", 22, 1), op("after", 30, 1),
    )  # fmt: skip
    numbers = dict(found.steps.select("step_id", "number").iter_rows())
    rows = {name: numbers.get(step_id) for name, step_id in column(found.ops, "step_id").items()}
    assert rows == {
        "before": None,
        "ProfilerStep#7": 7,
        "in 7": 7,
        "ProfilerStep#8": 8,
        "on the border": 8,
        "other thread": 8,
        "at the end": None,
        "after": None,
    }


def test_the_steps_of_2021_were_ops() -> None:
    old = [event("Operator", f"ProfilerStep#{number}", number * 10, 10) for number in (1, 2)]
    assert steps(*old, op("a", 11, 1), op("b", 21, 1)) == [
        (1, 0, 10_000, False, False),
        (2, 10_000, 10_000, False, False),
    ]


def test_a_name_that_only_begins_like_a_step_is_none() -> None:
    names = ("ProfilerStep#", "ProfilerStep#x", "ProfilerStep#1 again", f"ProfilerStep#{'9' * 30}")
    assert steps(*(annotation(name, 0, 9) for name in names)) == [(None, 0, 9_000, False, False)]


def test_the_recorder_s_marks_are_steps_with_its_numbers() -> None:
    marks = [recorded_step(0, 0, 10), op("a", 1, 1), recorded_step(12, 10, 10), op("b", 11, 1)]
    found = linked(*marks)
    assert found.steps.select("number", "name", "start_ns", "dur_ns", "is_partial").rows() == [
        (0, "tracekit|step=0", 0, 10_000, False),
        (12, "tracekit|step=12", 10_000, 10_000, False),
    ]
    assert column(found.ops, "step_id") == {"tracekit|step=0": 0, "a": 0, "tracekit|step=12": 1, "b": 1}


def test_the_recorder_s_marks_come_before_the_profiler_s() -> None:
    found = linked(
        step(3, 0, 30), recorded_step(0, 1, 9), op("a", 2, 1), op("between", 15, 1),
        step(4, 30, 30), recorded_step(1, 31, 9), op("b", 32, 1), step(5, 60, 1),
    )  # fmt: skip
    assert found.steps["number"].to_list() == [0, 1]
    rows = column(found.ops, "step_id")
    assert (rows["a"], rows["between"], rows["b"]) == (0, None, 1)
    assert column(found.ops, "kind")["ProfilerStep#3"] == "annotation"


@pytest.mark.parametrize(
    "name", ["tracekit|step=", "tracekit|step=x", "tracekit|step=-1", "tracekit|step=1 again", "tracekit|steps=1",
             "my tracekit|step=1", f"tracekit|step={'9' * 19}", "tracekit"],
)  # fmt: skip
def test_a_name_that_is_only_like_the_recorder_s_mark_is_none(name: str) -> None:
    assert [row[0] for row in steps(annotation(name, 0, 9), op("a", 1, 1))] == [None]
    assert [row[0] for row in steps(annotation(name, 0, 9), *full(7, 20, 9))] == [7]


def test_the_largest_number_of_a_mark_is_read() -> None:
    assert [row[0] for row in steps(recorded_step(10**18 - 1, 0, 9))] == [10**18 - 1]


def test_a_recorded_step_is_partial_where_it_was_cut_or_holds_nothing() -> None:
    cut = annotation("tracekit|step=2", 20, 10, finished=False)
    rows = steps(recorded_step(0, 0, 10), op("a", 1, 1), recorded_step(1, 10, 10), cut, op("c", 21, 1))
    assert [(number, partial) for number, _, _, partial, _ in rows] == [(0, False), (1, True), (2, True)]


def test_a_step_is_partial_where_it_was_cut_or_holds_nothing() -> None:
    cut = annotation("ProfilerStep#3", 20, 10, finished=False)
    rows = steps(step(1, 0, 10), op("a", 1, 1), step(2, 10, 10), cut, op("c", 21, 1))
    assert [(number, partial) for number, _, _, partial, _ in rows] == [(1, False), (2, True), (3, True)]


def full(number: int, start: float, duration: float) -> list[Event]:
    """Make a step with an op in it."""
    return [step(number, start, duration), op("a", start + 1, 1)]


@pytest.mark.parametrize(
    ("durations", "cold"),
    [
        ((31, 20, 20, 18), True),
        ((30, 20, 20, 18), False),
        ((10, 20, 40, 20), False),
        ((99,), False),
        ((99, 10), True),
    ],
)
def test_a_first_step_much_slower_than_the_median_of_the_others_is_cold(
    durations: tuple[int, ...], *, cold: bool
) -> None:
    made = [full(number, 100 * number, duration) for number, duration in enumerate(durations)]
    assert [row[4] for row in steps(*made)] == [cold] + [False] * (len(durations) - 1)


def test_partial_steps_neither_are_cold_nor_count_for_it() -> None:
    empty = [step(1, 0, 90)]
    assert [row[4] for row in steps(empty, full(2, 100, 10), full(3, 200, 10))] == [False, False, False]
    assert [row[4] for row in steps(full(1, 0, 12), [step(2, 100, 1)], full(3, 200, 10))] == [False, False, False]


def test_threads_count_their_sequence_numbers_for_themselves() -> None:
    def node(name: str, start: float, number: int, thread: int) -> Event:
        return op(f"{name}Backward0", start, 1, tid=9, Sequence_number=number, Fwd_thread_id=thread)

    found = linked(
        op("one 4", 0, 1, tid=1, Sequence_number=4),
        op("one 5", 1, 1, tid=1, Sequence_number=5),
        op("two 5", 2, 1, tid=2, Sequence_number=5),
        op("two 6", 3, 1, tid=2, Sequence_number=6),
        node("C", 10, 6, 2),
        node("D", 11, 5, 2),
        node("E", 12, 4, 1),
        node("F", 13, 5, 1),
    )
    names = forward_ops(found)
    assert {name: names[f"{name}Backward0"] for name in "CDEF"} == {
        "C": "two 6",
        "D": "two 5",
        "E": "one 4",
        "F": "one 5",
    }
