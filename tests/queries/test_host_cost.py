"""What ops cost the host against the device time that they launch."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests import independent
from tests.build import annotation, ask, csv, event, frame, kernel, launch, notes, only, op, step, trace_file, work

if TYPE_CHECKING:
    from pathlib import Path


def test_self_time_of_an_op_stands_beside_the_device_time_it_launched() -> None:
    table = ask(
        "host_cost",
        frame("nn.Module: Linear_0", 0, 60, 1),
        op("aten::linear", 0, 50),
        op("aten::addmm", 10, 30),
        launch(20, 1, duration=8),
        kernel("gemm", 60, 90, 1),
        op("aten::mul", 70, 20),
        launch(75, 2),
        kernel("mul", 160, 5, 2),
    )
    assert csv(table) == snapshot("""\
op,kind,module_class,calls,self_ns,share_frac,launch_ns,launches,device_ns,device_to_host_frac
aten::addmm,op,Linear,1,30000,0.42857142857142855,8000,1,90000,3.0
aten::mul,op,-,1,20000,0.2857142857142857,1000,1,5000,0.25
aten::linear,op,Linear,1,20000,0.2857142857142857,0,0,0,0.0
""")
    assert notes(table) == snapshot("""\
warning: Recorded with stacks: host times hold what recording each Python call cost, so that ops
look more host-bound than they are.
""")


def test_what_only_marks_a_step_is_no_row_and_its_work_keeps_the_totals() -> None:
    table = ask(
        "host_cost",
        step(1, 0, 100),
        step(2, 100, 100),
        annotation("stage", 10, 30),
        op("aten::mm", 20, 10),
        launch(22, 1),
        kernel("gemm", 130, 7, 1),
        launch(60, 2),
        kernel("triton", 140, 5, 2),
        kernel("mystery", 150, 3, 99),
    )
    assert csv(table, "op", "kind", "calls", "self_ns", "share_frac", "launches", "device_ns") == snapshot("""\
op,kind,calls,self_ns,share_frac,launches,device_ns
stage,annotation,1,20000,0.6666666666666666,0,0
aten::mm,op,1,10000,0.3333333333333333,1,7000
-,-,0,0,0.0,0,8000
""")
    assert "info: 85.0 % of the steps' time on the host was in no op" in notes(table)


def test_without_a_device_there_is_no_device_time() -> None:
    table = ask("host_cost", op("aten::linear", 0, 50), op("aten::addmm", 10, 30))
    assert csv(
        table, "op", "calls", "self_ns", "share_frac", "launches", "device_ns", "device_to_host_frac"
    ) == snapshot("""\
op,calls,self_ns,share_frac,launches,device_ns,device_to_host_frac
aten::addmm,1,30000,0.6,0,-,-
aten::linear,1,20000,0.4,0,-,-
""")


def test_a_runtime_call_and_the_driver_call_inside_it_are_one_launch() -> None:
    table = ask(
        "host_cost",
        op("aten::mm", 0, 50),
        launch(10, 1, duration=20),
        event("cuda_driver", "cuLaunchKernelEx", 12, 10, args={"correlation": 1}),
        kernel("gemm", 60, 90, 1),
    )
    assert csv(table, "op", "launches", "launch_ns", "device_ns") == snapshot("""\
op,launches,launch_ns,device_ns
aten::mm,1,20000,90000
""")


def test_device_work_without_an_op_has_a_row_without_a_name() -> None:
    table = ask("host_cost", work("gemm", 20, 30, 1, op_name="aten::mm"), kernel("mystery", 60, 10, 77))
    assert csv(table, "op", "kind", "calls", "self_ns", "device_ns", "device_to_host_frac") == snapshot("""\
op,kind,calls,self_ns,device_ns,device_to_host_frac
aten::mm,op,1,4000,30000,7.5
-,-,0,0,10000,-
""")


def test_annotations_are_rows_without_their_running_numbers() -> None:
    table = ask("host_cost", annotation("my block=1", 10, 30), annotation("my block=2", 50, 30), op("aten::mm", 20, 5))
    assert csv(table, "op", "kind", "calls", "self_ns") == snapshot("""\
op,kind,calls,self_ns
my block,annotation,2,55000
aten::mm,op,1,5000
""")


def test_top_cuts_the_rows_and_keeps_the_shares() -> None:
    events = [op(f"aten::op{length}", 100 * length, length) for length in (10, 20, 30, 40)]
    table = ask("host_cost", *events, top=2)
    assert csv(table, "op", "share_frac") == snapshot("""\
op,share_frac
aten::op40,0.4
aten::op30,0.3
""")
    assert "info: 4 rows in all; -p top=0 shows every one." in notes(table)


def test_selected_steps_alone_are_counted() -> None:
    events = [step(1, 0, 100), op("aten::mm", 10, 20), step(2, 100, 100), op("aten::mm", 110, 30)]
    found = ask("host_cost", *events, selection=only(steps=[2])).frame
    assert dict(found.select("op", "self_ns").iter_rows()) == {"aten::mm": 30_000}


@pytest.mark.parametrize("name", ["h100-qwen1.5-0.5b.json.gz", "a100-nccl.json.gz", "mi300x-bert-small.json.gz"])
def test_host_and_device_times_of_a_real_trace_are_all_there(traces: Path, name: str) -> None:
    path = traces / name
    raw = independent.read(path.read_bytes())
    rows = independent.complete(raw, independent.OPS | independent.ANNOTATIONS)
    spans = independent.by_thread(row for row in rows if not row["name"].startswith("ProfilerStep#"))
    works = independent.device_work(raw)
    by_op: dict[str, int] = defaultdict(int)
    names = {
        (independent.thread(row), independent.span(row)): row["name"]
        for row in independent.complete(raw, independent.OPS)
    }
    calls = independent.launched_by(raw)
    for work_, op_span in independent.ops_of_work(raw, works):
        assert work_.correlation is not None
        by_op[names[independent.thread(calls[work_.correlation]), op_span]] += work_.duration
    with trace_file(path) as opened:
        found = opened.query("host_cost", top=0).frame
    assert found["self_ns"].sum() == sum(map(independent.busy, spans.values()))
    assert found["device_ns"].sum() == sum(work_.duration for work_ in works)
    assert found["share_frac"].sum() == pytest.approx(1)
    launching = found.filter(found["op"].is_not_null() & (found["device_ns"] > 0))
    assert dict(launching.group_by("op").agg(pl.col("device_ns").sum()).iter_rows()) == by_op
    assert (found["launch_ns"] <= found["self_ns"]).all()
