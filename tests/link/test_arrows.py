"""Where sequence numbers are missing, arrows say which forward op a backward op answers to."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.build import Event, arrow, document, frame, kernel, launch, op, tables
from tests.conftest import ROOT
from tracekit.ingest import opened, read_bytes
from tracekit.link import Linked, Trace, link
from tracekit.loading import tables_of

if TYPE_CHECKING:
    from pathlib import Path

NODE = "autograd::engine::evaluate_function: "
REAL = [
    "a100-nccl.json.gz", "h100-nanogpt-8ranks/rank0.json.gz", "h100-nanogpt-after.json.gz",
    "h100-nanogpt-before.json.gz", "mi250-training.json.gz", "mi300x-resnet-checkpointing.json.gz",
    "v100-ns-epoch.json.gz",
]  # fmt: skip
"""Real traces with both sequence numbers and arrows."""


def linked(*events: Event | list[Event]) -> Trace:
    return link(read_bytes(document(*events), "hand.json"))


def forward_ops(found: Linked) -> dict[str, str | None]:
    """Return for each op's name that of its forward op, of all ops that have one."""
    names = dict(found.ops.select("op_id", "name").iter_rows())
    rows = found.ops.drop_nulls("forward_op_id").select("name", "forward_op_id").iter_rows()
    return {name: names.get(forward) for name, forward in rows}


def loose(found: Trace) -> int:
    return sum(problem.count for problem in found.problems if problem.check_name == "loose_arrow")


def test_a_backward_op_without_a_number_answers_to_the_op_where_its_arrow_begins() -> None:
    addmm, relu = op("aten::addmm", 2, 4), op("aten::relu", 10, 4)
    relu_node, addmm_node = op("ReluBackward0", 21, 7, tid=9), op("AddmmBackward0", 31, 7, tid=9)
    found = linked(
        op("aten::linear", 0, 9),
        addmm,
        relu,
        op(f"{NODE}ReluBackward0", 20, 9, tid=9),
        relu_node,
        op("aten::threshold_backward", 22, 5, tid=9),
        op(f"{NODE}AddmmBackward0", 30, 10, tid=9),
        addmm_node,
        op("aten::mm", 32, 5, tid=9),
        op("aten::add_", 39, 1, tid=9),
        op(f"{NODE}torch::autograd::AccumulateGrad", 40, 9, tid=9),
        op("aten::copy_", 41, 5, tid=9),
        arrow(1, relu, relu_node),
        arrow(2, addmm, addmm_node),
    )
    assert forward_ops(found) == {
        f"{NODE}ReluBackward0": "aten::relu",
        "ReluBackward0": "aten::relu",
        "aten::threshold_backward": "aten::relu",
        f"{NODE}AddmmBackward0": "aten::addmm",
        "AddmmBackward0": "aten::addmm",
        "aten::mm": "aten::addmm",
        "aten::add_": "aten::addmm",
    }
    assert loose(found) == 0


FORWARD, BACKWARD = op("aten::mm", 0, 4), op("MmBackward0", 20, 4)


def of_one(*events: Event | list[Event]) -> tuple[dict[str, str | None], int]:
    """Return the forward ops of a trace of two ops, and how many of these arrows are loose."""
    found = linked(FORWARD, BACKWARD, *events)
    return forward_ops(found), loose(found)


LINKED = {"MmBackward0": "aten::mm"}


def test_a_number_counts_before_an_arrow() -> None:
    numbered, pointed = op("by number", 0, 4, Sequence_number=5), op("by arrow", 10, 4)
    node = op("MmBackward0", 20, 4, Sequence_number=5)
    assert forward_ops(linked(numbered, pointed, node, arrow(1, pointed, node))) == {"MmBackward0": "by number"}


def test_an_arrow_counts_where_a_number_leads_to_no_op() -> None:
    node = op("MmBackward0", 20, 4, Sequence_number=5)
    assert forward_ops(linked(FORWARD, node, arrow(1, FORWARD, node))) == LINKED


@pytest.mark.parametrize("category", ["fwdbwd", "Fwdbwd", "FwdBwd", "forward_backward"])
def test_arrows_have_had_several_names(category: str) -> None:
    assert of_one(arrow(1, FORWARD, BACKWARD, category=category)) == (LINKED, 0)


@pytest.mark.parametrize("category", ["ac2g", "async_cpu_to_gpu", "martian"])
def test_other_arrows_link_no_ops(category: str) -> None:
    assert of_one(arrow(1, FORWARD, BACKWARD, category=category)) == ({}, 0)


@pytest.mark.parametrize("identity", [0, -1, 2**70, 1.5, "7", "0x1f", "é"])
def test_an_arrow_s_id_is_whatever_its_ends_share(identity: float | str) -> None:
    assert of_one(arrow(identity, FORWARD, BACKWARD)) == (LINKED, 0)


def test_an_arrow_belongs_to_the_innermost_op_around_its_ends() -> None:
    inner, node = op("aten::addmm", 2, 6), op("AddmmBackward0", 22, 6)
    found = linked(
        op("aten::linear", 0, 9), inner, op(f"{NODE}AddmmBackward0", 20, 9), node, op("aten::mm", 23, 3),
        arrow(1, inner | {"ts": 4}, node | {"ts": 24}),
    )  # fmt: skip
    assert forward_ops(found)["AddmmBackward0"] == "aten::addmm"
    assert forward_ops(found)["aten::mm"] == "aten::addmm"


def test_an_op_of_no_length_has_arrows_too() -> None:
    start, end = op("aten::mm", 0, 0), op("MmBackward0", 20, 0)
    assert forward_ops(linked(start, end, arrow(1, start, end))) == LINKED


def test_an_id_used_again_means_the_last_start_before_an_end() -> None:
    first, second = op("first", 0, 4), op("second", 20, 4)
    nodes = op("ABackward0", 10, 4), op("BBackward0", 30, 4), op("CBackward0", 40, 4)
    starts = [arrow(1, first, nodes[0]), arrow(1, second, nodes[1]), arrow(1, second, nodes[2])[1:]]
    found = linked(first, second, *nodes, *starts)
    assert forward_ops(found) == {"ABackward0": "first", "BBackward0": "second", "CBackward0": "second"}
    assert loose(found) == 0


def test_of_two_arrows_to_one_op_that_which_begins_last_counts() -> None:
    first, second = op("first", 0, 4), op("second", 10, 4)
    assert forward_ops(linked(first, second, BACKWARD, arrow(1, second, BACKWARD), arrow(2, first, BACKWARD))) == {
        "MmBackward0": "second"
    }


def test_processes_count_their_arrows_for_themselves() -> None:
    events = []
    for pid in (1, 2):
        start, end = (row | {"pid": pid, "name": f"{pid} {row['name']}"} for row in (FORWARD, BACKWARD))
        end["name"] = f"Of{pid}Backward0"
        events += [start, end, *arrow(1, start, end)]
    found = linked(*events)
    assert forward_ops(found) == {"Of1Backward0": "1 aten::mm", "Of2Backward0": "2 aten::mm"}


START, END = arrow(1, FORWARD, BACKWARD)
ODD: dict[str, tuple[list[Event], int]] = {
    "no end": ([START], 1),
    "no start": ([END], 1),
    "no id": ([{**START, "id": None}, {**END, "id": None}], 2),
    "ids that are none": ([{**START, "id": [1]}, {**END, "id": {"a": 1}}], 2),
    "different ids": ([START, END | {"id": 2}], 2),
    "no time": ([START, END | {"ts": None}], 2),
    "a time that is none": ([START | {"ts": "soon"}, END], 2),
    "a time beyond int64": ([START, END | {"ts": 10**30}], 2),
    "a step on the way": ([START | {"ph": "t"}, END], 1),
    "to another process": ([START, END | {"pid": 2}], 2),
    "an end before its start": ([START | {"ts": 21}, END | {"ts": 20}], 2),
    "to no op": ([START, END | {"ts": 90}], 1),
    "to another thread": ([START, END | {"tid": 5}], 1),
    "from no op": ([START | {"tid": 5}, END], 1),
    "from backward": ([START | {"ts": 20}, END | {"ts": 21}], 1),
    "to forward": ([START, END | {"ts": 2}], 1),
    "from an op to itself": ([START | {"ts": 20}, END], 1),
    "nothing but a letter": ([{"ph": "s", "cat": "fwdbwd"}], 1),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_arrow_that_leads_nowhere_is_counted(kind: str) -> None:
    events, count = ODD[kind]
    assert of_one(*events) == ({}, count)
    assert of_one(*events, *arrow(9, FORWARD, BACKWARD)) == (LINKED, count)


def test_arrows_of_a_trace_without_ops_are_counted() -> None:
    assert loose(linked(frame("f", 0, 1, 1), START, END)) == 1


def test_a_backward_op_has_module_phase_and_role_of_the_op_where_its_arrow_begins() -> None:
    start, end = op("aten::addmm", 2, 4), op("AddmmBackward0", 30, 9)
    loaded = tables(
        frame("nn.Module: LayerNorm_0", 0, 10, 1), start, end, op("aten::mm", 31, 5),
        launch(32, 1), kernel("k", 70, 5, 1), arrow(1, start, end),
    )  # fmt: skip
    (row,) = loaded["kernel"].select("phase", "role", "role_reason", "module_id").rows()
    module = loaded["module"].filter(class_name="LayerNorm")["module_id"].item()
    assert row[0] == "backward"
    assert row[1] == loaded["op"].filter(name="aten::addmm")["role"].item() == "norm"
    assert row[2].startswith("backward of: ")
    assert row[3] == module
    assert loaded["quality"].filter(check_name="flow_event")["count"].item() == 2


@st.composite
def passes(draw: st.DrawFn) -> list[tuple[Event, Event]]:
    """Draw forward ops with or without others within, each with the node that it made: both wear a number."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        at, length, depth = 100 * number, draw(st.integers(0, 3)), draw(st.integers(0, 3))
        start = op(f"op {number}", at + depth, length, tid=draw(st.integers(1, 2)), Sequence_number=number)
        end = op(f"Of{number}Backward0", 10_000 - at + 1, length, tid=9, Sequence_number=number)
        found.append((start, end))
    return found


@given(passes(), st.booleans(), st.randoms(use_true_random=False))
def test_arrows_say_what_numbers_say(pairs: list[tuple[Event, Event]], is_called: bool, random: Any) -> None:  # noqa: FBT001 - drawn
    events, drawn = [], []
    for number, (start, end) in enumerate(pairs):
        events += [start, end, op("outer", start["ts"] - 5, 20, tid=start["tid"]), op("aten::mul", end["ts"], 0, tid=9)]
        if is_called:
            events.append(op(NODE + end["name"], end["ts"] - 1, end["dur"] + 2, tid=9, Sequence_number=number))
        drawn += arrow(number, start, end)
    random.shuffle(drawn)
    expected = linked(*events)
    assert len(forward_ops(expected)) >= len(pairs)
    for event in events:
        event["args"] = {}
    assert forward_ops(linked(*events, *drawn)) == forward_ops(expected)
    assert forward_ops(linked(*events)) == {}


def hidden(data: bytes) -> bytes:
    """Return a trace as if its ops had no sequence numbers, in the place of which is a key that is kept nowhere."""
    return data.replace(b'"Sequence number"', b'"Ev Idx"').replace(b'"Fwd thread id"', b'"Ev Idx"')


def assert_told_by_arrows(data: bytes) -> None:
    """Check that arrows alone give every op of a trace the forward op that its sequence numbers give it."""
    both, arrows = (link(read_bytes(each, "t.json")) for each in (data, hidden(data)))
    assert both.ops["sequence_number"].count() > 0 == arrows.ops["sequence_number"].count()
    assert both.ops["forward_op_id"].count() > 0
    columns = ["op_id", "name", "forward_op_id", "module_id", "phase"]
    assert_frame_equal(arrows.ops.select(columns), both.ops.select(columns))
    assert (loose(both), loose(arrows)) == (0, 0)


def test_a_sample_has_the_same_tables_by_arrows_as_by_numbers() -> None:
    data = gzip.decompress((ROOT / "sample_traces" / "train.json.gz").read_bytes())
    assert_told_by_arrows(data)
    numbers, arrows = (tables_of(each, "t.json") for each in (data, hidden(data)))
    for name in ("op", "kernel", "attention_call", "allocation"):
        assert_frame_equal(*(found[name].drop("sequence_number", strict=False) for found in (arrows, numbers)))


@pytest.mark.parametrize("name", REAL)
def test_arrows_of_a_real_trace_say_what_its_numbers_say(name: str, traces: Path) -> None:
    with opened(traces / name, name) as stream:
        assert_told_by_arrows(b"".join(stream.blocks(2**24)))
