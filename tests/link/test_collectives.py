"""A collective's op, record, annotation and kernels make one row, and what they say of it is read."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from itertools import permutations
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests.build import annotation, event, kernel, launch, op, step, tables
from tracekit.link.collectives import COLLECTIVE, collectives, knowledge, name_of
from tracekit.loading import tables_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.build import Event

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"


def found(*events: Event | list[Event]) -> pl.DataFrame:
    made = tables(*events)
    return collectives(made["op"], made["launch"], made["kernel"])


def csv(frame: pl.DataFrame, *columns: str) -> str:
    return frame.select(columns).write_csv(null_value="-")


def said(name: str, elements: int, received: int | None = None, dtype: str = "BFloat16", **more: Any) -> dict[str, Any]:
    """Return the metadata of a collective among all of eight ranks."""
    known = {"Collective name": name, "In msg nelems": elements, "Out msg nelems": received or elements, "dtype": dtype}
    group = {"Process Group Name": "0", "Process Group Description": "default_pg", "Group size": 8}
    return known | group | {"Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"} | more


def record(start: float, duration: float, *, tid: int = 100, **args: Any) -> Event:
    return event("cpu_op", "record_param_comms", start, duration, tid=tid, args=args)


def asked(start: float, correlation: int, name: str, metadata: dict[str, Any]) -> list[Event]:
    """Make the three rows in which the host asks for a collective of NCCL, and its launch."""
    return [
        op(f"c10d::{name}_", start, 20),
        record(start + 2, 16, **metadata),
        annotation(f"nccl:{name}", start + 4, 12),
        launch(start + 6, correlation),
    ]


def test_op_record_annotation_and_kernel_are_one_collective() -> None:
    rows = found(
        step(0, 0, 100),
        asked(10, 1, "allreduce", said("allreduce", 1000)),
        kernel(ALL_REDUCE, 60, 7, 1),
    )
    assert csv(rows, *COLLECTIVE) == snapshot("""\
collective_id,op_id,name,source,group_name,group_description,group_size,group_ranks,sequence_number,src_rank,dst_rank,is_async,in_elements,out_elements,dtype,bytes,bus_factor,kernel_id,kernels,step_id,phase,start_ns,dur_ns
0,2,all_reduce,record,0,default_pg,8,"[0, 1, 2, 3, 4, 5, 6, 7]",-,-,-,-,1000,1000,bfloat16,2000,1.75,0,1,0,forward,60000,7000
""")


def test_times_are_those_of_the_device_and_ids_count_in_their_order() -> None:
    rows = found(
        asked(0, 1, "allreduce", said("allreduce", 1)),
        asked(40, 2, "_allgather_base", said("_allgather_base", 1, 8)),
        kernel(ALL_REDUCE, 300, 7, 1),
        kernel(ALL_GATHER, 200, 9, 2),
    )
    assert csv(rows, "collective_id", "name", "kernel_id", "start_ns", "dur_ns") == snapshot("""\
collective_id,name,kernel_id,start_ns,dur_ns
0,all_gather,0,200000,9000
1,all_reduce,1,300000,7000
""")


def test_a_collective_without_device_work_has_the_times_of_its_op() -> None:
    rows = found(record(5, 4, **said("allreduce", 3)))
    assert csv(rows, "name", "kernel_id", "kernels", "start_ns", "dur_ns") == snapshot("""\
name,kernel_id,kernels,start_ns,dur_ns
all_reduce,-,0,0,4000
""")


def test_two_kernels_of_one_op_are_one_collective_from_the_first_start_to_the_last_end() -> None:
    rows = found(
        asked(0, 1, "allreduce", said("allreduce", 3)), launch(8, 2),
        kernel(ALL_REDUCE, 60, 7, 1), kernel(ALL_REDUCE, 65, 10, 2),
    )  # fmt: skip
    assert csv(rows, "name", "kernel_id", "kernels", "start_ns", "dur_ns") == snapshot("""\
name,kernel_id,kernels,start_ns,dur_ns
all_reduce,0,2,60000,15000
""")


def test_other_work_under_the_op_is_no_part_of_the_collective() -> None:
    rows = found(
        asked(0, 1, "allreduce", said("allreduce", 3)), launch(8, 2),
        kernel("void at::native::elementwise_kernel", 40, 2, 2), kernel(ALL_REDUCE, 60, 7, 1),
    )  # fmt: skip
    assert csv(rows, "kernels", "start_ns", "dur_ns") == snapshot("""\
kernels,start_ns,dur_ns
1,60000,7000
""")


def test_waiting_is_no_collective() -> None:
    wait = said("wait", 0, dtype="Byte")
    assert found(record(0, 4, **wait), record(10, 4, **(wait | {"Collective name": "init"}))).height == 0


def test_a_record_that_says_nothing_is_a_collective_only_with_an_annotation_or_a_kernel() -> None:
    rows = found(
        record(0, 10), annotation("nccl:all_reduce", 2, 6), launch(4, 1), kernel(ALL_REDUCE, 50, 5, 1),
        record(20, 10),
        record(40, 10), launch(42, 2), kernel(ALL_GATHER, 80, 5, 2),
    )  # fmt: skip
    assert csv(rows, "name", "source", "start_ns") == snapshot("""\
name,source,start_ns
all_reduce,record,50000
all_gather,record,80000
""")


def test_the_outer_of_two_nested_records_stands_for_both() -> None:
    rows = found(
        record(0, 20, **said("barrier", 1)), record(2, 10, **said("allreduce", 1)),
        launch(4, 1), kernel(ALL_REDUCE, 50, 5, 1),
    )  # fmt: skip
    assert csv(rows, "name", "op_id", "kernel_id") == snapshot("""\
name,op_id,kernel_id
barrier,0,0
""")


def test_an_op_without_a_record_is_a_collective_and_its_annotation_says_what_it_gives() -> None:
    rows = found(
        op("c10d::_allgather_base_", 0, 20, Input_Dims=[[64], [8], []], Input_type=["signed char", "signed char", ""]),
        annotation("nccl:_all_gather_base", 4, 12, Input_Dims=[[8]], Input_type=["signed char"]),
        launch(6, 1), kernel(SEND_RECV, 50, 5, 1),
    )  # fmt: skip
    assert csv(rows, "name", "source", "op_id", "in_elements", "out_elements", "dtype", "bytes") == snapshot("""\
name,source,op_id,in_elements,out_elements,dtype,bytes
all_gather,op,0,8,-,int8,-
""")


def test_an_annotation_alone_finds_its_kernel_by_the_time_of_the_launch() -> None:
    rows = found(
        annotation("nccl:all_reduce", 0, 10, Input_Dims=[[4, 5]], Input_type=["float"]), launch(2, 1),
        annotation("nccl:all_reduce", 20, 10), launch(35, 2),
        annotation("nccl:all_reduce", 40, 10, tid=7), launch(42, 3),
        kernel(ALL_REDUCE, 50, 5, 1), kernel(ALL_REDUCE, 60, 5, 2), kernel(ALL_REDUCE, 70, 5, 3),
    )  # fmt: skip
    assert csv(rows, "source", "op_id", "kernel_id", "start_ns", "bytes") == snapshot("""\
source,op_id,kernel_id,start_ns,bytes
annotation,1,-,20000,-
annotation,2,-,40000,-
annotation,0,0,50000,80
kernel,-,1,60000,-
kernel,-,2,70000,-
""")


def test_a_backend_that_annotates_on_its_own_thread_is_not_counted_twice() -> None:
    rows = found(
        op("c10d::allreduce_", 0, 2), op("c10d::broadcast_", 5, 2), op("c10d::allgather_", 8, 2),
        annotation("gloo:all_reduce", 3, 50, tid=7), annotation("gloo:broadcast", 60, 50, tid=7),
    )  # fmt: skip
    assert csv(rows, "name", "source", "start_ns", "dur_ns") == snapshot("""\
name,source,start_ns,dur_ns
all_reduce,annotation,3000,50000
all_gather,op,8000,2000
broadcast,annotation,60000,50000
""")


def test_functional_collectives_count_and_waiting_for_a_tensor_does_not() -> None:
    rows = found(op("_c10d_functional::all_reduce", 0, 5), op("_c10d_functional::wait_tensor", 10, 5))
    assert csv(rows, "name", "source") == snapshot("""\
name,source
all_reduce,op
""")


def test_a_kernel_that_no_op_asked_for_is_a_collective_by_its_metadata_or_its_name() -> None:
    rows = found(
        event("kernel", ALL_REDUCE, 0, 5, pid=0, tid=7, args={"device": 0, "stream": 7, **said("_allgather_base", 2, 16)}),
        kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 10, 5),
        kernel("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", 20, 5),
        kernel("void at::native::elementwise_kernel", 30, 5),
        event("kernel", "someone_elses_kernel", 40, 5, pid=0, tid=7, args={"stream": 7, **said("all_to_allv", 3)}),
    )  # fmt: skip
    assert csv(rows, "name", "source", "op_id", "kernel_id", "group_name", "bytes") == snapshot("""\
name,source,op_id,kernel_id,group_name,bytes
all_gather,kernel,-,0,0,32
all_reduce,kernel,-,1,-,-
-,kernel,-,2,-,-
all_to_all,kernel,-,4,0,6
""")


def test_what_the_kernel_says_fills_what_the_op_does_not() -> None:
    args = {"device": 0, "stream": 7, "correlation": 1, **said("allreduce", 12, Seq=5)}
    rows = found(
        record(0, 9, **{"Collective name": "allreduce", "In msg nelems": 10}), launch(2, 1),
        event("kernel", ALL_REDUCE, 50, 5, pid=0, tid=7, args=args),
    )  # fmt: skip
    assert csv(rows, "in_elements", "out_elements", "dtype", "sequence_number", "group_size", "bytes") == snapshot("""\
in_elements,out_elements,dtype,sequence_number,group_size,bytes
10,12,bfloat16,5,8,20
""")


def test_all_metadata_has_its_column() -> None:
    args = said("send", 6, Seq=41) | {"Src Rank": 3, "Dst Rank": 4, "Is asynchronized op": True}
    rows = found(record(0, 9, **args))
    columns = ("name", "group_description", "group_ranks", "sequence_number", "src_rank", "dst_rank", "is_async")
    assert csv(rows, *columns) == snapshot("""\
name,group_description,group_ranks,sequence_number,src_rank,dst_rank,is_async
send,default_pg,"[0, 1, 2, 3, 4, 5, 6, 7]",41,3,4,true
""")


def test_the_group_number_of_old_traces_is_the_groups_name() -> None:
    rows = found(record(0, 9, **{"Collective name": "allreduce", "Process Group ID": 3}))
    assert rows["group_name"].to_list() == ["3"]


@pytest.mark.parametrize(
    ("name", "given", "received", "expected"),
    [
        ("allreduce", 10, 10, 20),
        ("_allgather_base", 10, 80, 160),
        ("_reduce_scatter_base", 80, 10, 160),
        ("all_to_allv", 30, 50, 60),
        ("scatter", 80, 10, 20),
        ("something_new", 10, 12, 20),
    ],
)
def test_the_message_is_what_the_collective_gives_or_receives(
    name: str, given: int, received: int, expected: int
) -> None:
    assert found(record(0, 9, **said(name, given, received)))["bytes"].to_list() == [expected]


def test_an_all_gather_that_does_not_say_what_it_receives_receives_all_that_is_given() -> None:
    args = said("_allgather_base", 10)
    del args["Out msg nelems"]
    assert found(record(0, 9, **args))["bytes"].to_list() == [160]


@pytest.mark.parametrize(
    "bad",
    [{"dtype": "Mystery"}, {"dtype": 3}, {"In msg nelems": 2**70, "Out msg nelems": 2**62}, {"In msg nelems": -1}],
)
def test_bytes_are_unknown_where_type_or_elements_are(bad: dict[str, Any]) -> None:
    assert found(record(0, 9, **(said("allreduce", 5) | bad)))["bytes"].to_list() == [None]


def test_an_unknown_collective_keeps_the_name_it_was_given() -> None:
    assert found(record(0, 9, **said("something_new", 1)))["name"].to_list() == ["something_new"]


def test_broken_args_cost_their_own_row_only() -> None:
    made = tables(record(0, 9, **said("allreduce", 5)), record(20, 9, **said("broadcast", 5)))
    spoilt = pl.when(pl.col("start_ns") == 0).then(pl.lit('{"Collective name": nan')).otherwise("args_json")
    rows = collectives(made["op"].with_columns(args_json=spoilt), made["launch"], made["kernel"])
    assert rows["name"].to_list() == ["broadcast"]


def test_ids_may_start_anywhere() -> None:
    made = tables(asked(0, 1, "allreduce", said("allreduce", 5)), kernel(ALL_REDUCE, 50, 5, 1))
    moved = made["op"].with_columns(pl.col("op_id", "parent_id") + 1000)
    kernels = made["kernel"].with_columns(pl.col("op_id") + 1000)
    assert collectives(moved, made["launch"], kernels)["op_id"].to_list() == [1001]


def test_a_trace_without_communication_has_no_collectives_and_all_columns() -> None:
    rows = found(op("aten::mm", 0, 5), launch(1, 1), kernel("gemm", 9, 5, 1))
    assert (rows.height, rows.schema) == (0, pl.Schema(COLLECTIVE))
    made = tables(op("aten::mm", 0, 5), launch(1, 1), kernel("gemm", 9, 5, 1))
    empty = collectives(made["op"].clear(), made["launch"].clear(), made["kernel"].clear())
    assert (empty.height, empty.schema) == (0, pl.Schema(COLLECTIVE))


def test_the_order_of_events_changes_nothing() -> None:
    parts = [
        asked(0, 1, "allreduce", said("allreduce", 3)),
        asked(40, 2, "_allgather_base", said("_allgather_base", 1, 8)),
        [kernel(ALL_REDUCE, 60, 7, 1), kernel(ALL_GATHER, 70, 7, 2), kernel(ALL_GATHER, 5, 7)],
    ]
    first, *others = [found(*order).to_dicts() for order in permutations(parts)]
    assert all(other == first for other in others)


@pytest.mark.parametrize("row", knowledge()["collective"], ids=lambda row: row["name"])
def test_each_example_is_the_collective_it_stands_for(row: dict[str, Any]) -> None:
    assert name_of(row["example"]) == row["name"]


@pytest.mark.parametrize("row", knowledge()["kernel"], ids=lambda row: row["example"][:30])
def test_each_example_kernel_is_matched(row: dict[str, Any]) -> None:
    assert re.search(row["pattern"], row["example"].lower())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nccl:all_reduce_barrier", "barrier"),
        ("allreduce_coalesced", "all_reduce"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("ncclKernel_Reduce_RING_LL_Sum_float", "reduce"),
        ("c10d::reduce_", "reduce"),
        ("record_param_comms", None),
        ("_c10d_functional::wait_tensor", None),
        ("ncclDevKernel_Generic", None),
    ],
)
def test_names_that_hold_other_names_are_told_apart(name: str, expected: str | None) -> None:
    assert name_of(name) == expected


def _raw(path: Path) -> list[Event]:
    events: list[Event] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return events


def _independently(events: list[Event]) -> Counter[tuple[str | None, str, int, int]]:
    """Return name, type, elements and duration in ns of each collective of a trace with metadata: a slow way.

    Records that are not waits, each with the NCCL kernels whose launch lies in it, and the kernels left over.
    """
    records = [
        row for row in events if row.get("name") == "record_param_comms" and row["args"]["Collective name"] != "wait"
    ]
    calls = {
        row["args"]["correlation"]: row
        for row in events
        if row.get("cat") in {"cuda_runtime", "cuda_driver"}
        if "correlation" in row["args"]
    }
    rows: Counter[tuple[str | None, str, int, int]] = Counter()
    left = [row for row in events if row.get("cat") == "kernel" and "nccl" in row["name"].lower()]
    for one in records:
        args = one["args"]
        mine = [
            row for row in left
            if (call := calls.get(row["args"]["correlation"])) and call["tid"] == one["tid"]
            and one["ts"] <= call["ts"] <= one["ts"] + one["dur"]
        ]  # fmt: skip
        left = [row for row in left if row not in mine]
        duration = mine[0]["dur"] if mine else one["dur"]
        rows[args["Collective name"], args["dtype"], args["In msg nelems"], round(duration * 1000)] += 1
    for row in left:
        rows[None, "", 0, round(row["dur"] * 1000)] += 1
    return rows


_SPELT = {
    "all_reduce": "allreduce",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "broadcast": "broadcast",
}
_TYPES = {"float32": "Float", "bfloat16": "BFloat16", "int64": "Long"}


@pytest.mark.parametrize(
    ("name", "height"),
    [
        ("a100-nccl.json.gz", 21),
        ("h100-nanogpt-8ranks/rank5.json.gz", 84),
        ("mi300x-resnet-checkpointing.json.gz", 17),
        ("v100-ns-epoch.json.gz", 35),
    ],
)
def test_real_traces_hold_the_collectives_that_their_raw_rows_show(traces: Path, name: str, height: int) -> None:
    path = traces / name
    made = tables_of(path.read_bytes(), path.name)
    rows = collectives(made["op"], made["launch"], made["kernel"])
    ours = Counter(
        (_SPELT[row["name"]], _TYPES[row["dtype"]], row["in_elements"], row["dur_ns"])
        if row["source"] == "record"
        else (None, "", 0, row["dur_ns"])
        for row in rows.iter_rows(named=True)
    )
    assert rows.height == height
    assert ours == _independently(_raw(path))


def test_collectives_of_2022_are_found_without_metadata(traces: Path) -> None:
    path = traces / "v100-training-memory.json.gz"
    made = tables_of(path.read_bytes(), path.name)
    rows = collectives(made["op"], made["launch"], made["kernel"])
    raw = _raw(path)
    kernels = [row for row in raw if row.get("cat") == "kernel" and "nccl" in row["name"]]
    assert (
        rows.height
        == len(kernels)
        == sum(row.get("name") == "nccl:all_reduce" and row["cat"] == "user_annotation" for row in raw)
    )
    assert rows["dur_ns"].sum() == sum(row["dur"] for row in kernels) * 1000
    assert rows["name"].unique().to_list() == ["all_reduce"]


def test_a_sampled_trace_takes_sizes_from_annotations(traces: Path) -> None:
    path = traces / "gpu-sampled-rank0.json.gz"
    made = tables_of(path.read_bytes(), path.name)
    rows = collectives(made["op"], made["launch"], made["kernel"])
    noted = Counter(
        (row["args"]["Input Dims"][0][0], row["args"]["Input type"][0])
        for row in _raw(path)
        if row.get("cat") == "user_annotation" and row["name"].startswith("nccl:")
    )
    spelt = {"int64": "long", "int32": "int", "uint8": "unsigned char", "int8": "signed char", "float32": "float"}
    assert Counter((row["in_elements"], spelt[row["dtype"]]) for row in rows.iter_rows(named=True)) == noted


def test_symmetric_memory_is_communication_too(traces: Path) -> None:
    path = traces / "b200-vllm-eager.json.gz"
    made = tables_of(path.read_bytes(), path.name)
    rows = collectives(made["op"], made["launch"], made["kernel"])
    assert rows.group_by("source", "name").len().sort("name").rows() == [
        ("record", "all_gather", 1),
        ("op", "all_reduce", 73),
    ]
