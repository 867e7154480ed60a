"""Ops are nested on their threads, and know the Python frame and the module they ran in."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.build import annotation, document, event, frame, kernel, launch, op, step, tables, work
from tracekit.ingest import read_bytes
from tracekit.link import Linked, link

if TYPE_CHECKING:
    import polars as pl

    from tests.build import Event


def linked(*events: Event | list[Event]) -> Linked:
    return link(read_bytes(document(*events), "hand.json"))


def parents(rows: pl.DataFrame, id_name: str) -> dict[str, str | None]:
    """Return for each row's name that of its parent."""
    names = dict(rows.select(id_name, "name").iter_rows())
    return {name: names.get(parent) for name, parent in rows.select("name", "parent_id").iter_rows()}


def test_ops_nest_on_their_own_thread() -> None:
    ops = linked(
        op("outer", 0, 10),
        op("inner", 2, 3),
        op("innermost", 3, 1),
        op("sibling", 6, 2),
        op("elsewhere", 2, 3, tid=7),
        op("after", 10, 2),
    ).ops
    assert parents(ops, "op_id") == {
        "outer": None,
        "inner": "outer",
        "innermost": "inner",
        "sibling": "outer",
        "elsewhere": None,
        "after": None,
    }
    assert dict(ops.select("name", "self_ns").iter_rows()) == {
        "outer": 5000,
        "inner": 2000,
        "innermost": 1000,
        "sibling": 2000,
        "elsewhere": 3000,
        "after": 2000,
    }


def test_the_same_thread_number_in_another_process_is_another_thread() -> None:
    ops = linked(op("here", 0, 10), op("there", 2, 3) | {"pid": 200}).ops
    assert parents(ops, "op_id") == {"here": None, "there": None}


def test_annotations_are_parents_too() -> None:
    ops = linked(annotation("forward", 0, 10), op("aten::mm", 2, 3)).ops
    assert parents(ops, "op_id") == {"forward": None, "aten::mm": "forward"}
    assert ops["depth"].to_list() == [0, 1]


def test_of_two_ops_that_start_together_the_longer_is_outside() -> None:
    ops = linked(op("inner", 0, 4, External_id=1), op("outer", 0, 10, External_id=2)).ops
    assert parents(ops, "op_id") == {"outer": None, "inner": "outer"}


def test_of_two_ops_at_one_time_the_one_with_the_smaller_id_is_outside() -> None:
    ops = linked(op("b", 0, 10, External_id=2), op("a", 0, 10, External_id=1)).ops
    assert parents(ops, "op_id") == {"a": None, "b": "a"}


def test_ops_are_numbered_in_order_of_start() -> None:
    ops = linked(op("c", 5, 1), op("a", 0, 9), op("b", 0, 2)).ops
    assert ops.select("op_id", "name").rows() == [(0, "a"), (1, "b"), (2, "c")]


def test_frames_nest_by_their_python_ids_not_by_time() -> None:
    frames = linked(frame("root", 0, 9, 1), frame("child", 2, 20, 2, 1), frame("inside", 3, 2, 3, 1)).frames
    assert parents(frames, "frame_id") == {"root": None, "child": "root", "inside": "root"}


def test_a_parent_that_has_ended_or_is_not_there_is_none() -> None:
    frames = linked(frame("root", 0, 9, 1), frame("late", 20, 2, 2, 1), frame("orphan", 1, 2, 3, 7)).frames
    assert parents(frames, "frame_id") == {"root": None, "late": None, "orphan": None}


def test_frames_without_parents_nest_by_time() -> None:
    def untold(name: str, start: float, duration: float, **args: int) -> Event:
        return event("python_function", name, start, duration, args=args)

    for ids in ({}, {"Python id": 4}):
        frames = linked(untold("root", 0, 9, **ids), untold("child", 2, 2), untold("after", 9, 1)).frames
        assert parents(frames, "frame_id") == {"root": None, "child": "root", "after": None}


def test_a_cycle_of_parent_ids_ends() -> None:
    found = linked(
        frame("nn.Module: A_0", 0, 9, 1, 2), frame("nn.Module: B_0", 1, 7, 2, 1), frame("nn.Module: C_0", 2, 3, 3, 3)
    )
    assert set(found.modules["class_name"]) == {"A", "B", "C"}
    assert found.frames["module_id"].null_count() == 0


MODEL = (
    frame("nn.Module: Net_0", 0, 40, 1),
    frame("net.py(3): forward", 1, 38, 2, 1),
    frame("nn.Module: Linear_0", 2, 6, 3, 2),
    frame("nn.Module: Block_1_0", 10, 20, 4, 2),
    frame("nn.Module: Linear_1", 12, 6, 5, 4),
    frame("nn.Module: Linear_0", 20, 6, 6, 4),
    frame("<built-in method linear>", 21, 4, 7, 6),
    frame("nn.Module: Plain", 32, 2, 8, 2),
)


def test_modules_form_a_tree_with_a_path_from_the_root() -> None:
    modules = linked(*MODEL).modules
    assert modules.select("class_name", "instance", "path", "parent_id").rows() == [
        ("Net", 0, "Net_0", None),
        ("Linear", 0, "Net_0/Linear_0", 0),
        ("Block_1", 0, "Net_0/Block_1_0", 0),
        ("Linear", 1, "Net_0/Block_1_0/Linear_1", 2),
        ("Plain", None, "Net_0/Plain", 0),
    ]


def test_frames_and_ops_belong_to_the_innermost_module_around_them() -> None:
    found = linked(*MODEL, op("first", 3, 2), op("shared", 22, 1), op("between", 30, 1), op("outside", 50, 1))
    paths = dict(found.modules.select("module_id", "path").iter_rows())
    of_frames = [(name, paths.get(module)) for name, module in found.frames.select("name", "module_id").iter_rows()]
    assert of_frames[6] == ("<built-in method linear>", "Net_0/Linear_0")
    assert of_frames[1] == ("net.py(3): forward", "Net_0")
    assert {name: paths.get(module) for name, module in found.ops.select("name", "module_id").iter_rows()} == {
        "first": "Net_0/Linear_0",
        "shared": "Net_0/Linear_0",
        "between": "Net_0",
        "outside": None,
    }


def test_ops_know_the_innermost_frame_when_they_start() -> None:
    found = linked(frame("f", 0, 10, 1), frame("g", 2, 4, 2, 1), op("a", 1, 1), op("b", 3, 9), op("c", 6, 1, tid=9))
    names = dict(found.frames.select("frame_id", "name").iter_rows())
    assert {name: names.get(frame_id) for name, frame_id in found.ops.select("name", "frame_id").iter_rows()} == {
        "a": "f",
        "b": "g",
        "c": None,
    }


def test_times_count_from_the_first_row() -> None:
    found = linked(op("a", 7_000, 5), kernel("k", 7_010, 20, 1), {"ph": "M", "name": "process_name", "pid": 1})
    assert found.ops["start_ns"].to_list() == [0]
    assert found.kernels["start_ns"].to_list() == [10_000]
    assert (found.start_unix_ns, found.dur_ns) == (7_000_000, 30_000)


def test_a_time_of_zero_among_epoch_times_is_no_start() -> None:
    epoch = 1_693_500_000_000_000
    found = linked(op("a", epoch, 5), kernel("k", 0, 0, 1))
    assert found.ops["start_ns"].to_list() == [0]
    assert (found.start_unix_ns, found.dur_ns) == (epoch * 1000, 5_000)


def test_a_trace_without_timed_rows_lasts_no_time() -> None:
    found = linked({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}})
    assert found.dur_ns == 0
    assert found.steps.select("name", "start_ns", "dur_ns").row(0) == ("whole trace", 0, 0)


def test_what_may_matter_is_noticed() -> None:
    found = linked(
        op("a", 0, 10),
        op("crosses", 5, 10),
        op("unfinished", 20, 5, finished=False),
        launch(21, 8),
        launch(22, 9),
        event("cuda_runtime", "cudaDeviceSynchronize", 23, 1, args={"correlation": 10}),
        kernel("k", 30, 0, 8),
        kernel("late", 31, 5, 77),
    )
    assert [(one.check_name, one.severity, one.count) for one in found.problems] == [
        ("unfinished_op", "warn", 1),
        ("overlapping_op", "info", 1),
        ("zero_duration_kernel", "info", 1),
        ("launch_without_work", "warn", 1),
        ("unlinked_kernel", "warn", 1),
        ("no_end_marker", "info", 1),
    ]


def test_launches_without_any_device_work_are_bad() -> None:
    found = linked(
        op("a", 0, 10), launch(1, 8), event("cpu_op", "x", 3, 1), {"ph": "i", "name": "Record Window End", "ts": 9}
    )
    assert [(one.check_name, one.severity, one.count) for one in found.problems] == [("launch_without_work", "bad", 1)]


TRAINING = (
    step(1, 0, 100),
    step(2, 100, 100),
    *MODEL,
    op("aten::linear", 3, 4, External_id=1, Sequence_number=5),
    op("aten::addmm", 4, 2, External_id=2, Sequence_number=5),
    op("autograd::engine::evaluate_function: AddmmBackward0", 60, 9, tid=9, External_id=3, Sequence_number=5),
    op("AddmmBackward0", 61, 7, tid=9, External_id=4, Sequence_number=5),
    *work("gemm", 110, 20, 1, op_name="aten::mm"),
    *work("copy", 140, 2, 2, op_name="aten::copy_"),
    kernel("late", 170, 3, 99),
    {"ph": "M", "name": "process_name", "pid": 1},
)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_events_in_the_file_does_not_matter(seed: int) -> None:
    shuffled = list(TRAINING)
    random.Random(seed).shuffle(shuffled)
    found = tables(shuffled)
    for name, expected in tables(list(TRAINING)).items():
        assert_frame_equal(
            found[name].drop("source_sha256", strict=False), expected.drop("source_sha256", strict=False)
        )


_ROWS: st.SearchStrategy[list[Any]] = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 1), st.sampled_from("abc")), max_size=10
)


@given(_ROWS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_ops_and_kernels_does_not_matter(rows: list[Any], chance: random.Random) -> None:
    made = [op(name, start, length, tid=tid, External_id=at) for at, (start, length, tid, name) in enumerate(rows)]
    made += [launch(start, at) for at, (start, *_) in enumerate(rows)]
    made += [kernel(name, start, length, at, stream=tid) for at, (start, length, tid, name) in enumerate(rows)]
    shuffled = made.copy()
    chance.shuffle(shuffled)
    one, other = (link(read_bytes(document(*events, op("last", 99, 1)), "t")) for events in (made, shuffled))
    for name in ("ops", "launches", "kernels", "steps"):
        assert_frame_equal(getattr(one, name), getattr(other, name))


CODE = "/x/site-packages/transformers/models/llama/modeling_llama.py"


def test_without_module_rows_the_file_and_line_of_forward_name_the_module() -> None:
    found = linked(
        frame(f"{CODE}(239): forward", 0, 50, 1),
        frame("torch/nn/modules/linear.py(124): forward", 5, 10, 2, 1),
        op("aten::linear", 6, 4),
        frame(f"{CODE}(68): apply_rotary_pos_emb", 20, 10, 3, 1),
        op("aten::mul", 21, 4),
        op("aten::add", 60, 4),
    )
    assert found.modules.select("class_name", "instance", "path").rows() == [
        ("modeling_llama:239", None, "modeling_llama:239"),
        ("linear:124", None, "modeling_llama:239/linear:124"),
    ]
    paths = dict(found.modules.select("module_id", "path").iter_rows())
    assert {name: paths.get(module) for name, module in found.ops.select("name", "module_id").iter_rows()} == {
        "aten::linear": "modeling_llama:239/linear:124",
        "aten::mul": "modeling_llama:239",
        "aten::add": None,
    }


def test_where_one_module_row_is_recorded_files_name_none() -> None:
    found = linked(frame(f"{CODE}(239): forward", 0, 50, 1), frame("nn.Module: Linear_0", 5, 10, 2, 1))
    assert found.modules["path"].to_list() == ["Linear_0"]
