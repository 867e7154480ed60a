"""Args with a column land in it, args that say nothing new are dropped, every other one is kept as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.build import annotation, document, event, frame, kernel, launch, op
from tracekit.ingest import Events, read_bytes
from tracekit.ingest.args import knowledge

if TYPE_CHECKING:
    import polars as pl

CATEGORY = {
    "op": "cpu_op",
    "annotation": "user_annotation",
    "frame": "python_function",
    "runtime": "cuda_runtime",
    "kernel": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}


def read(*events: Any) -> Events:
    return read_bytes(document(*events), "hand.json")


def row(events: Events, name: str, *columns: str) -> dict[str, Any]:
    frame: pl.DataFrame = getattr(events, name)
    return frame.select(columns or frame.columns).row(0, named=True)


def rest(kind: str, args: object) -> str | None:
    """Return the args_json of one row of a kind with these args."""
    events = read(event(CATEGORY[kind], "x", 1, 2, args=args))
    name = {"op": "ops", "annotation": "ops", "frame": "frames", "runtime": "runtime"}.get(kind, "device")
    kept: str | None = getattr(events, name)["args_json"].item()
    return kept


def test_an_op_s_args_land_in_its_columns() -> None:
    made = op(
        "aten::mm", 0, 1, External_id=5, Sequence_number=7, Fwd_thread_id=1,
        Input_Dims=[[2, 3], [3, 4]], Input_type=["float", "Scalar"], Input_Strides=[[3, 1], []],
        Concrete_Inputs=["", "1."], finished=False,
    )  # fmt: skip
    columns = (
        "external_id", "sequence_number", "fwd_thread_id", "input_dims", "input_types", "input_strides",
        "concrete_inputs", "is_finished", "args_json",
    )  # fmt: skip
    assert row(read(made), "ops", *columns) == {
        "external_id": 5,
        "sequence_number": 7,
        "fwd_thread_id": 1,
        "input_dims": "[[2, 3], [3, 4]]",
        "input_types": '["float", "Scalar"]',
        "input_strides": "[[3, 1], []]",
        "concrete_inputs": '["", "1."]',
        "is_finished": False,
        "args_json": None,
    }


def test_an_op_without_args_is_finished_and_says_no_more() -> None:
    found = row(read(event("cpu_op", "aten::mm", 0, 1)), "ops")
    said = {key: value for key, value in found.items() if value is not None}
    assert said.keys() == {"name", "pid", "tid", "ts_ns", "dur_ns", "is_annotation", "is_finished"}
    assert said["is_finished"]


def test_a_kernel_s_args_land_in_its_columns() -> None:
    made = kernel(
        "k", 0, 1, 42, device=1, stream=9, grid=[8, 1, 2], block=[128, 1, 1], registers_per_thread=255,
        shared_memory=66560, graph_node_id=6, External_id=77, bytes=12, **{"est._achieved_occupancy_%": 13},
    )  # fmt: skip
    assert row(read(made), "device") == {
        "name": "k",
        "pid": "1",
        "tid": "9",
        "ts_ns": 0,
        "dur_ns": 1000,
        "raw_name": None,
        "kind": "kernel",
        "device": 1,
        "stream": 9,
        "bytes": 12,
        "grid": "[8, 1, 2]",
        "block": "[128, 1, 1]",
        "registers": 255,
        "shared_memory_bytes": 66560,
        "occupancy_frac": 0.13,
        "correlation": 42,
        "graph_node_id": 6,
        "external_id": 77,
        "args_json": None,
    }


def test_a_kernel_outside_graphs_has_no_node() -> None:
    assert row(read(kernel("k", 0, 1, 42, graph_node_id=0)), "device", "graph_node_id") == {"graph_node_id": None}


def test_old_names_of_args_mean_what_the_new_ones_mean() -> None:
    events = read(
        event("Operator", "aten::mm", 0, 1, args={"external id": 5, "Input dims": [[2]]}),
        event("Kernel", "k", 0, 1, tid="stream 7", args={"external id": 6, "theoretical occupancy %": 50}),
    )
    assert row(events, "ops", "external_id", "input_dims", "args_json") == {
        "external_id": 5,
        "input_dims": "[[2]]",
        "args_json": None,
    }
    assert row(events, "device", "external_id", "occupancy_frac", "stream", "args_json") == {
        "external_id": 6,
        "occupancy_frac": 0.5,
        "stream": 7,
        "args_json": None,
    }


def test_frames_and_calls_keep_their_links() -> None:
    events = read(frame("f", 0, 1, 4, 3), launch(0, 42))
    assert row(events, "frames", "python_id", "python_parent_id", "args_json") == {
        "python_id": 4,
        "python_parent_id": 3,
        "args_json": None,
    }
    assert row(events, "runtime", "category", "correlation", "args_json") == {
        "category": "cuda_runtime",
        "correlation": 42,
        "args_json": None,
    }


@pytest.mark.parametrize("kind", CATEGORY)
def test_unknown_args_are_kept_and_redundant_ones_dropped(kind: str) -> None:
    redundant = dict.fromkeys(knowledge()["redundant"][kind], 1)
    assert rest(kind, redundant) is None
    strange = {"new key": {"a": [1, "é"]}, "other": None}
    assert json.loads(rest(kind, {**strange, **redundant}) or "") == strange


def test_a_known_arg_of_an_unknown_type_is_kept_as_json() -> None:
    args = {"External id": "five", "Sequence number": 7, "finished": "no"}
    assert rest("op", args) == '{"External id":"five","finished":"no"}'
    assert row(read(event("cpu_op", "x", 0, 1, args=args)), "ops", "sequence_number") == {"sequence_number": 7}


@pytest.mark.parametrize("args", [None, [1, 2], "text", 5])
def test_args_that_are_no_object_are_kept_as_json(args: object) -> None:
    assert json.loads(rest("op", args) or "") == args


def test_numbers_in_unknown_args_keep_their_digits() -> None:
    data = document(op("x", 0, 1, big=0)).replace(b'"big": 0', b'"big": 12345678901234567890.10')
    assert read_bytes(data, "t").ops["args_json"].item() == '{"big": 12345678901234567890.10}'.replace(": ", ":")


def test_the_id_that_joins_an_execution_trace_is_kept_where_there_is_one() -> None:
    assert rest("op", {"Record function id": 0}) is None
    assert rest("op", {"Record function id": 8}) == '{"Record function id":8}'
    assert json.loads(rest("op", {"Record function id": 8, "scope": "x"}) or "") == {
        "Record function id": 8,
        "scope": "x",
    }


def test_annotations_keep_the_args_of_their_users() -> None:
    assert read(annotation("batch", 0, 1, lengths="3,4")).ops["args_json"].item() == '{"lengths":"3,4"}'
