"""What the device waits for: one small trace a cause, and idle time that is that of step_breakdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from inline_snapshot import snapshot

from tests.build import Event, ask, csv, event, kernel, launch, notes, only, op, run, step, trace_file
from tests.queries.test_step_breakdown import BORDERS, PIECES, Drawn, events_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tracekit.run import Run

CAUSES = ("cause", "is_inferred", "gaps", "idle_ns", "longest_ns", "longest_start_ns", "longest_op", "longest_kernel")
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
UPLOAD = "Memcpy HtoD (Pinned -> Device)"


def piece(
    name: str, start: float, duration: float, launched: float, number: int, *, stream: int = 7, call: float = 1
) -> list[Event]:
    """Make device work and its launch call in an op of its own, which begins with the call."""
    row = kernel(name, start, duration, number, stream=stream)
    if name.startswith("Memcpy"):
        row |= {"cat": "gpu_memcpy"}
    api = "cudaMemcpyAsync" if name.startswith("Memcpy") else "cudaLaunchKernel"
    return [
        op(f"aten::op{number}", launched, call + 0.5),
        launch(launched + 0.1, number, name=api, duration=call),
        row,
    ]


def call(name: str, start: float, duration: float, **rest: Any) -> Event:
    """Make a runtime call that launches nothing."""
    return event("cuda_runtime", name, start, duration, args={"cbid": 165, "correlation": 9999}, **rest)


def causes(*events: Event | list[Event]) -> dict[str, int]:
    """Return the idle ns of each cause."""
    return dict(ask("launch_gaps", step(1, 0, 100), *events).frame.select("cause", "idle_ns").iter_rows())


FIRST = piece("gemm", 10, 20, 5, 1)  # from 10 µs to 30 µs, launched 5 µs after the step began


def test_each_gap_has_one_cause_and_they_add_up_to_the_window() -> None:
    table = ask(
        "launch_gaps",
        step(1, 0, 100),
        FIRST,
        piece("gemm", 34, 6, 20, 2),
        piece("add", 60, 10, 55, 3),
        kernel("mystery", 75, 5, 77),
    )
    assert csv(table, "step", "device", *CAUSES) == snapshot("""\
step,device,cause,is_inferred,gaps,idle_ns,longest_ns,longest_start_ns,longest_op,longest_kernel
-,0,waiting for a launch,false,2,30000,20000,40000,aten::op3,add
-,0,no later work,false,1,20000,20000,80000,-,-
-,0,unknown,false,1,5000,5000,70000,-,mystery
-,0,launch latency,true,1,4000,4000,30000,aten::op2,gemm
""")
    assert table.frame["share_frac"].sum() == pytest.approx(0.59)
    assert notes(table) == snapshot("""\
info: A wait for a launch, a copy call or a sync is the host's: it launched too late. A trace does
not show which work waited for another stream, so launch latency may hide that.
warning: 12.2 % of device time has no op in the trace (see unlinked_kernels): its roles come from
kernel names and order.
""")


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (piece("gemm", 50, 50, 40, 2), "waiting for a launch"),
        ([*piece("gemm", 50, 50, 40, 2), call("cudaDeviceSynchronize", 12, 19)], "waiting for a sync"),
        ([*piece("gemm", 50, 50, 40, 2), call("hipStreamSynchronize", 12, 18)], "waiting for a sync"),
        ([*piece("gemm", 50, 50, 40, 2), call("cudaDeviceSynchronize", 31, 5)], "waiting for a launch"),
        ([*piece("gemm", 50, 50, 40, 2), call("cudaDeviceSynchronize", 12, 17)], "waiting for a launch"),
        ([*piece("gemm", 50, 50, 40, 2), call("cudaDeviceSynchronize", 12, 19, tid=5)], "waiting for a launch"),
        ([*piece("gemm", 50, 50, 40, 2), call("cudaEventQuery", 12, 19)], "waiting for a launch"),
        ([*piece(UPLOAD, 20, 5, 15, 3, call=18), *piece("gemm", 50, 50, 40, 2)], "waiting for a copy call"),
        ([*piece("Memcpy DtoD (Device -> Device)", 20, 5, 15, 3, call=18), *piece("gemm", 50, 50, 40, 2)],
         "waiting for a launch"),
        (piece("gemm", 50, 50, 20, 2), "launch latency"),
        (piece("gemm", 50, 50, 29.9, 2), "launch latency"),
        (piece(ALL_REDUCE, 50, 50, 20, 2, stream=20), "waiting for ranks"),
        (piece(UPLOAD, 50, 50, 20, 2), "waiting for a copy"),
        ([kernel("mystery", 50, 50, 77)], "unknown"),
        (piece("gemm", 50, 50, 60, 2), "unknown"),
        ([kernel("node", 50, 50, 1)], "within one launch"),
    ],
)  # fmt: skip
def test_the_order_of_times_tells_the_cause(later: list[Event], expected: str) -> None:
    found = causes(FIRST, later)
    assert found.pop(expected) == 20_000 + (10_000 if expected == "waiting for a launch" else 0)
    assert found == ({} if expected == "waiting for a launch" else {"waiting for a launch": 10_000})


def test_work_after_a_copy_of_another_stream_waited_for_it() -> None:
    copy = piece("Memcpy DtoD (Device -> Device)", 25, 10, 7, 2, stream=9)
    assert causes(FIRST, copy, piece("gemm", 40, 60, 9, 3)) == {
        "waiting for a launch": 10_000,
        "waiting for a copy": 5_000,
    }
    same = piece("Memcpy DtoD (Device -> Device)", 30, 5, 7, 2)
    assert causes(FIRST, same, piece("gemm", 40, 60, 9, 3)) == {"waiting for a launch": 10_000, "launch latency": 5_000}


def test_the_work_before_a_gap_is_what_ended_last_not_what_began_last() -> None:
    upload = piece(UPLOAD, 30, 30, 20, 2, stream=20)
    shorter = piece("add", 40, 5, 22, 3)
    found = causes(FIRST, upload, shorter, piece("gemm", 65, 5, 24, 4))
    assert found["waiting for a copy"] == 5_000


def test_work_after_a_collective_waited_for_ranks() -> None:
    comm = piece(ALL_REDUCE, 30, 10, 7, 2, stream=20)
    assert causes(FIRST, comm, piece("gemm", 45, 55, 9, 3)) == {
        "waiting for a launch": 10_000,
        "waiting for ranks": 5_000,
    }


def test_a_gap_over_a_border_is_one_gap_and_has_a_part_in_each_step() -> None:
    events = [step(1, 0, 50), step(2, 50, 50), *FIRST, *piece("gemm", 70, 20, 65, 2)]
    assert csv(ask("launch_gaps", *events), "step", "cause", "gaps", "idle_ns", "longest_ns") == snapshot("""\
step,cause,gaps,idle_ns,longest_ns
-,waiting for a launch,2,50000,20000
-,no later work,1,10000,10000
""")
    assert csv(ask("launch_gaps", *events, by_step=True), "step", "cause", "gaps", "idle_ns", "longest_ns") == snapshot("""\
step,cause,gaps,idle_ns,longest_ns
1,waiting for a launch,2,30000,20000
2,waiting for a launch,1,20000,20000
2,no later work,1,10000,10000
""")


def test_a_selected_step_has_the_causes_that_it_has_among_all() -> None:
    events = [
        step(1, 0, 50), step(2, 50, 50), *FIRST, *piece("gemm", 60, 20, 45, 2),
        call("cudaDeviceSynchronize", 8, 22.5), *piece("gemm", 85, 5, 47, 3),
        *piece("gemm", 95, 2, 92, 4),
    ]  # fmt: skip
    every = ask("launch_gaps", *events, by_step=True).frame
    alone = ask("launch_gaps", *events, by_step=True, selection=only(steps=[2])).frame
    assert every.filter(step=2).equals(alone)
    assert set(alone["cause"]) == {"waiting for a sync", "launch latency", "waiting for a launch", "no later work"}


def test_each_device_has_its_gaps() -> None:
    two = [
        op("aten::mm", 0, 3),
        launch(1, 1),
        kernel("gemm", 20, 80, 1),
        launch(2, 2),
        kernel("gemm", 0, 90, 2, device=1),
    ]
    table = ask("launch_gaps", step(1, 0, 100), *two)
    assert csv(table, "device", "cause", "idle_ns") == snapshot("""\
device,cause,idle_ns
0,waiting for a launch,20000
1,no later work,10000
""")


def test_a_device_that_is_never_idle_gives_no_row_and_says_so() -> None:
    table = ask("launch_gaps", step(1, 10, 50), op("aten::mm", 0, 3), launch(1, 1), kernel("gemm", 5, 80, 1))
    assert table.frame.height == 0
    assert notes(table).startswith("info: Nothing in the run")


def test_the_rank_of_the_trace_is_shown() -> None:
    with run(step(1, 0, 100), FIRST, distributedInfo={"rank": 3, "world_size": 8}) as opened:
        assert set(opened.query("launch_gaps").frame["rank"]) == {3}


def breakdown(opened: Run) -> dict[tuple[Any, ...], int]:
    """Return the idle ns of each step and device that is idle at all."""
    rows = opened.query("step_breakdown").frame.select("rank", "step", "device", "idle_ns").unique().iter_rows()
    return {tuple(key): idle for *key, idle in rows if idle}


def added_up(opened: Run) -> dict[tuple[Any, ...], int]:
    """Return the sum of this question's causes for each step and device."""
    found: dict[tuple[Any, ...], int] = {}
    rows = opened.query("launch_gaps", by_step=True).frame.select("rank", "step", "device", "idle_ns").iter_rows()
    for *key, idle in rows:
        found[tuple(key)] = found.get(tuple(key), 0) + idle
    return found


@settings(max_examples=25)
@given(BORDERS, PIECES)
def test_causes_add_up_to_the_idle_time_of_step_breakdown(borders: Sequence[int], pieces: Iterable[Drawn]) -> None:
    with run(*events_of(borders, pieces)) as opened:
        assert added_up(opened) == breakdown(opened)
        assert opened.query("launch_gaps").frame["idle_ns"].sum() == sum(breakdown(opened).values())


@pytest.mark.parametrize(
    "name",
    [
        "a100-nccl.json.gz",
        "a100-streams-sync.json.gz",
        "h100-nanogpt-before.json.gz",
        "h100-qwen1.5-0.5b.json.gz",
        "rocm-vllm-decode-graph.json.gz",
        "v100-training-memory.json.gz",
    ],
)
def test_causes_of_real_traces_add_up_to_the_idle_time_of_step_breakdown(traces: Path, name: str) -> None:
    with trace_file(traces / name) as opened:
        assert added_up(opened) == breakdown(opened)
        assert sum(breakdown(opened).values()) > 0
