"""Allocations and frees become lifetimes that add up to the allocator's own totals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from inline_snapshot import snapshot

from tests import independent
from tests.build import THREAD, annotation, frame, memory, op, step, tables
from tracekit.loading import tables_of

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from tests.build import Event

ROOT = op("root", 0, 100)
"""An op of 100 µs on the usual thread, so that times count from 0."""
LIFETIME = ("device", "address", "bytes", "start_ns", "end_ns", "start_sample_id", "end_sample_id")
REAL = {
    "v100-training-memory.json.gz": {"cpu": (0, -1), "cuda:1": (1, 1)},
    "h100-qwen1.5-0.5b.json.gz": {"cpu": (0, -1), "cuda:0": (1, 0)},
    "mi300x-qwen1.5-0.5b.json.gz": {"cpu": (0, -1), "hip:0": (6, 0)},
    "h100-timesformer-math.json.gz": {"cpu": (0, -1), "cuda:0": (1, 0)},
}
"""Real traces with allocator rows: the name of each device and the numbers by which the rows know it."""


def lines(frame: pl.DataFrame, *columns: str) -> str:
    return frame.select(columns).write_csv(null_value="-")


def lifetimes(*events: Event | list[Event]) -> str:
    """Return the lifetimes that allocator rows make."""
    return lines(tables(ROOT, *events)["allocation"], *LIFETIME)


def complaints(*events: Event | list[Event]) -> dict[str, tuple[str, int]]:
    """Return what the quality table says of allocator rows: severity and count by check."""
    rows = tables(ROOT, *events)["quality"].select("check_name", "severity", "count").iter_rows()
    return {check: (severity, count) for check, severity, count in rows if "allocation" in check or "free" in check}


def test_a_free_ends_the_allocation_at_its_address() -> None:
    rows = [memory(1, 64, 100, 100), memory(2, 128, 50, 150), memory(5, 64, -100, 50), memory(9, 128, -50, 0)]
    assert lifetimes(rows) == snapshot("""\
device,address,bytes,start_ns,end_ns,start_sample_id,end_sample_id
cuda:0,64,100,1000,5000,0,2
cuda:0,128,50,2000,9000,1,3
""")
    assert complaints(rows) == {}


def test_an_address_may_be_used_again() -> None:
    rows = [memory(1, 64, 100, 100), memory(2, 64, -100, 0), memory(3, 64, 30, 30), memory(4, 64, -30, 0)]
    assert lifetimes(rows) == snapshot("""\
device,address,bytes,start_ns,end_ns,start_sample_id,end_sample_id
cuda:0,64,100,1000,2000,0,1
cuda:0,64,30,3000,4000,2,3
""")
    assert complaints(rows) == {}


def test_the_same_address_on_another_device_is_another_one() -> None:
    rows = [
        memory(1, 64, 100, 100),
        memory(2, 64, 50, 50, device_id=1),
        memory(3, 64, 20, 20, device_type=0, device_id=-1),
        memory(4, 64, -50, 0, device_id=1),
        memory(5, 64, -20, 0, device_type=0, device_id=-1),
    ]
    assert lifetimes(rows) == snapshot("""\
device,address,bytes,start_ns,end_ns,start_sample_id,end_sample_id
cuda:0,64,100,1000,-,0,-
cuda:1,64,50,2000,4000,1,3
cpu,64,20,3000,5000,2,4
""")
    assert complaints(rows) == {}


def test_rows_of_one_moment_keep_the_file_s_order() -> None:
    rows = [memory(1, 64, 10, 10), memory(1, 64, -10, 0), memory(1, 64, 20, 20), memory(1, 64, -20, 0)]
    assert lifetimes(rows) == snapshot("""\
device,address,bytes,start_ns,end_ns,start_sample_id,end_sample_id
cuda:0,64,10,1000,1000,0,1
cuda:0,64,20,1000,1000,2,3
""")
    assert complaints(rows) == {}
    assert tables(ROOT, rows)["memory_sample"]["allocated_bytes"].to_list() == [10, 0, 20, 0]


def test_rows_are_paired_by_time_however_the_file_mixes_moments() -> None:
    rows = [memory(5, 64, -10, 10), memory(1, 64, 10, 10), memory(5, 64, 20, 30), memory(3, 128, 10, 20)]
    assert lifetimes(rows) == snapshot("""\
device,address,bytes,start_ns,end_ns,start_sample_id,end_sample_id
cuda:0,64,10,1000,5000,0,2
cuda:0,128,10,3000,-,1,-
cuda:0,64,20,5000,-,3,-
""")
    assert complaints(rows) == {}


def test_a_free_without_an_allocation_ends_what_began_before_the_recording() -> None:
    rows = [memory(1, 64, -100, 900), memory(2, 64, 30, 930)]
    assert lifetimes(rows) == snapshot("""\
device,address,bytes,start_ns,end_ns,start_sample_id,end_sample_id
cuda:0,64,100,-,1000,-,0
cuda:0,64,30,2000,-,1,-
""")
    assert complaints(rows) == {"free_without_allocation": ("info", 1)}


def test_an_allocation_without_a_free_outlives_the_recording() -> None:
    rows = memory(1, 64, 100, 100)
    assert lifetimes(rows) == snapshot("""\
device,address,bytes,start_ns,end_ns,start_sample_id,end_sample_id
cuda:0,64,100,1000,-,0,-
""")
    assert complaints(rows) == {}


def test_an_allocation_at_an_address_in_use_is_counted_and_the_free_is_the_later_one_s() -> None:
    rows = [memory(1, 64, 100, 100), memory(2, 64, 30, 130), memory(3, 64, -30, 100)]
    ends = tables(ROOT, rows)["allocation"].filter(bytes=30)
    assert ends.select("start_sample_id", "end_sample_id").rows() == [(1, 2)]
    assert complaints(rows) == {"allocation_without_free": ("warn", 1)}


def test_a_free_of_another_size_ends_the_lifetime_and_is_counted() -> None:
    rows = [memory(1, 64, 100, 100), memory(2, 64, -60, 40)]
    assert lifetimes(rows) == snapshot("""\
device,address,bytes,start_ns,end_ns,start_sample_id,end_sample_id
cuda:0,64,100,1000,2000,0,1
""")
    assert complaints(rows) == {"free_of_another_size": ("warn", 1)}


def test_a_row_of_no_bytes_is_a_sample_and_ends_nothing() -> None:
    rows = [memory(1, 64, 100, 100), memory(2, 64, 0, 100), memory(3, 64, -100, 0)]
    assert lifetimes(rows) == snapshot("""\
device,address,bytes,start_ns,end_ns,start_sample_id,end_sample_id
cuda:0,64,100,1000,3000,0,2
""")
    assert tables(ROOT, rows)["memory_sample"].height == 3


def test_an_allocation_knows_who_made_it_and_who_freed_it() -> None:
    made = tables(
        step(4, 0, 100),
        frame("nn.Module: LlamaMLP_0", 5, 30, 1),
        frame("mlp.py(7): forward", 6, 28, 2, 1),
        op("aten::linear", 10, 20),
        op("aten::mm", 12, 10),
        memory(15, 64, 100, 100),
        op("autograd::engine::evaluate_function: MmBackward0", 40, 20, tid=7),
        op("MmBackward0", 41, 18, tid=7),
        memory(45, 64, -100, 0, tid=7),
        memory(50, 128, 30, 30, tid=7),
    )
    allocations, frames = made["allocation"], made["frame"].select("frame_id", frame="name")
    names = made["op"].select("op_id", "name")
    joined = (
        allocations.join(names.rename({"name": "op"}), on="op_id", how="left", maintain_order="left")
        .join(
            names.rename({"op_id": "free_op_id", "name": "free_op"}), on="free_op_id", how="left", maintain_order="left"
        )
        .join(frames, on="frame_id", how="left", maintain_order="left")
        .join(made["module"].select("module_id", "class_name"), on="module_id", how="left", maintain_order="left")
        .join(made["step"].select("step_id", "number"), on="step_id", how="left", maintain_order="left")
    )
    columns = ("bytes", "op", "free_op", "frame", "class_name", "phase", "role", "number")
    assert lines(joined, *columns) == snapshot("""\
bytes,op,free_op,frame,class_name,phase,role,number
100,aten::mm,MmBackward0,mlp.py(7): forward,LlamaMLP,forward,mlp,4
30,MmBackward0,-,-,-,backward,other,4
""")
    roles = dict(made["op"].select("op_id", "role").iter_rows())
    assert allocations["role"].to_list() == [roles[op_id] for op_id in allocations["op_id"]]
    assert allocations.select("category", "category_reason").unique().rows() == [(None, None)]


def test_a_row_on_another_thread_is_not_of_the_op_that_runs_meanwhile() -> None:
    allocations = tables(ROOT, memory(5, 64, 100, 100, tid=THREAD + 1))["allocation"]
    assert lines(allocations, "op_id", "frame_id", "phase", "role") == snapshot("""\
op_id,frame_id,phase,role
-,-,other,-
""")


def test_an_allocation_inside_no_op_but_an_annotation_has_no_op() -> None:
    made = tables(
        step(1, 0, 100),
        annotation("load", 5, 50),
        op("aten::mm", 60, 10),
        memory(8, 64, 100, 100),
        memory(62, 64, -100, 0),
    )
    allocations = made["allocation"].join(made["op"].select(free_op_id="op_id", free_op="name"), on="free_op_id")
    columns = ("op_id", "module_id", "step_id", "role", "free_op")
    assert lines(allocations, *columns) == snapshot("""\
op_id,module_id,step_id,role,free_op
-,-,-,-,aten::mm
""")


def test_rows_without_addresses_or_totals_are_samples_of_no_lifetime() -> None:
    made = tables(ROOT, memory(1, None, 100, None), memory(2, None, -100, None))
    assert made["allocation"].height == 0
    columns = ("sample_id", "device", "time_ns", "allocated_bytes", "reserved_bytes", "args_json")
    assert lines(made["memory_sample"], *columns) == snapshot("""\
sample_id,device,time_ns,allocated_bytes,reserved_bytes,args_json
0,cuda:0,1000,-,-,-
1,cuda:0,2000,-,-,-
""")
    assert made["trace"]["has_memory"].item() is True
    assert complaints(memory(1, None, 100, None), memory(2, None, -100, None)) == {}


def test_rows_without_totals_alone_make_lifetimes() -> None:
    assert lifetimes(memory(1, 64, 100, None), memory(2, 64, -100, None)) == snapshot("""\
device,address,bytes,start_ns,end_ns,start_sample_id,end_sample_id
cuda:0,64,100,1000,2000,0,1
""")


def test_args_that_no_column_holds_stay_with_their_sample() -> None:
    row = memory(1, 64, 100, 100)
    row["args"] |= {"Ev Idx": 3, "pool": [0, 1]}
    assert tables(ROOT, row)["memory_sample"]["args_json"].to_list() == ['{"pool":[0, 1]}']


def test_a_trace_without_allocator_rows_has_neither_samples_nor_lifetimes() -> None:
    made = tables(ROOT)
    assert (made["memory_sample"].height, made["allocation"].height) == (0, 0)
    assert made["trace"]["has_memory"].item() is False


class Moment(NamedTuple):
    """A sample of the allocator: bytes live by our lifetimes, older bytes never freed, and the trace's own total."""

    sample_id: int
    time: int
    live: int
    constant: int
    total: int


def moments(data: bytes, name: str) -> dict[str, list[Moment]]:
    """Return ten moments of each device, spread over its samples; constant and total come from the raw file."""
    made, raw = tables_of(data, name), independent.read(data)
    rows, origin = independent.allocator_rows(raw), independent.first_moment(raw)
    found = {}
    for device, numbers in REAL[name].items():
        samples = made["memory_sample"].filter(device=device).select("sample_id", "time_ns").rows()
        totals = [row for row in rows if row.device == numbers]
        assert [time + origin for _, time in samples] == [row.time for row in totals]
        lives = made["allocation"].filter(device=device).select("bytes", "start_sample_id", "end_sample_id").rows()
        freed = sum(size for size, start, _ in lives if start is None)
        constant = (totals[0].allocated or 0) - (totals[0].size or 0) - freed
        found[device] = [
            Moment(samples[at][0], samples[at][1], _live(lives, samples[at][0]), constant, totals[at].allocated or 0)
            for at in (round(part * (len(samples) - 1) / 9) for part in range(10))
        ]
    return found


def _live(lives: list[tuple[int, int | None, int | None]], at: int) -> int:
    """Return the bytes live after a sample."""
    began = [(size, end) for size, start, end in lives if start is None or start <= at]
    return sum(size for size, end in began if end is None or end > at)


@pytest.mark.parametrize("name", REAL)
def test_bytes_live_at_ten_moments_are_the_trace_s_own_totals(traces: Path, name: str) -> None:
    for device, found in moments((traces / name).read_bytes(), name).items():
        assert len({moment.sample_id for moment in found}) == 10, device
        assert [moment.live + moment.constant for moment in found] == [moment.total for moment in found], device
        assert len({moment.live for moment in found}) > 1, device


def test_a_missing_free_ends_a_lifetime_where_its_address_is_given_out_again() -> None:
    found = tables(memory(1, 64, 32, 32), memory(2, 64, 48, 48))["allocation"]
    assert found.select("bytes", "end_sample_id", "free_op_id").rows() == [(32, 1, None), (48, None, None)]
