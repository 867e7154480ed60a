"""Device work without an op: one hand-made trace for each way to lose it."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.build import Event, ask, csv, kernel, launch, notes, only, op, run, work
from tracekit.errors import TracekitError

LINKED = work("gemm", 50, 10, 100, op_name="aten::mm")
"""10 µs with an op; its launch, the first one, is at 45 µs and has correlation 100."""


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            [kernel("early", 5, 10, 120)],
            snapshot(("early", "no launch with its correlation in the trace", "launched before the recording began")),
        ),
        (
            [kernel("queued", 90, 10, 99)],
            snapshot(("queued", "no launch with its correlation in the trace", "launched before the recording began")),
        ),
        (
            [kernel("lost", 90, 10, 120)],
            snapshot(
                (
                    "lost",
                    "no launch with its correlation in the trace",
                    "its launch row was lost, or is a call the profiler does not record",
                )
            ),
        ),
        (
            [kernel("bare", 90, 10)],
            snapshot(("bare", "it has no correlation", "the exporter wrote no correlation")),
        ),
        (
            [launch(80, 120, name="cudaGraphLaunch"), kernel("replayed", 90, 10, 120)],
            snapshot(
                (
                    "replayed",
                    "its launch lies outside every recorded op",
                    "replayed from a graph that was launched outside every op",
                )
            ),
        ),
        (
            [launch(80, 120, name="hipGraphLaunch"), kernel("replayed", 90, 10, 120)],
            snapshot(
                (
                    "replayed",
                    "its launch lies outside every recorded op",
                    "replayed from a graph that was launched outside every op",
                )
            ),
        ),
        (
            [launch(80, 120), kernel("foreign", 90, 10, 120)],
            snapshot(
                (
                    "foreign",
                    "its launch lies outside every recorded op",
                    "launched by code that PyTorch does not record as an op",
                )
            ),
        ),
    ],
    ids=[
        "before the window",
        "queued before it",
        "lost",
        "no correlation",
        "graph",
        "graph on AMD",
        "outside every op",
    ],
)
def test_each_way_to_have_no_op_has_its_reason_and_cause(events: list[Event], expected: tuple[str, ...]) -> None:
    table = ask("unlinked_kernels", LINKED, events)
    assert table.frame.height == 1
    assert table.frame["share_frac"].item() == 0.5
    assert table.frame.select("kernel", "reason", "cause").row(0) == expected


def test_a_recording_without_correlations_is_not_taken_for_an_early_launch() -> None:
    table = ask("unlinked_kernels", op("aten::mm", 0, 10), kernel("bare", 20, 10), kernel("bare", 40, 10))
    assert csv(table, "kernel", "reason", "cause", "calls") == snapshot("""\
kernel,reason,cause,calls
bare,it has no correlation,the exporter wrote no correlation,2
""")


def test_a_recording_without_launches_says_so() -> None:
    table = ask("unlinked_kernels", op("aten::mm", 0, 10), kernel("gemm", 20, 10, 5))
    assert csv(table, "kernel", "reason", "cause") == snapshot("""\
kernel,reason,cause
gemm,no launch with its correlation in the trace,no launch was recorded
""")


def test_a_recording_of_the_device_alone_says_so() -> None:
    table = ask("unlinked_kernels", kernel("gemm", 20, 10, 5), kernel("gemm", 40, 10, 6))
    assert csv(table, "kernel", "reason", "cause", "calls") == snapshot("""\
kernel,reason,cause,calls
gemm,no launch with its correlation in the trace,no CPU ops were recorded,2
""")
    assert notes(table) == snapshot("""\
exact: 2 pieces of device work have no op: 100.0 % of device time.
warning: 100.0 % of device time has no op in the trace (see unlinked_kernels): its roles come from
kernel names and order.
""")


def test_work_of_one_name_and_cause_is_one_row_and_its_share_is_of_all_work() -> None:
    table = ask(
        "unlinked_kernels",
        LINKED,
        kernel("early", 5, 10, 90),
        kernel("early", 16, 20, 91),
        launch(80, 120),
        kernel("early", 90, 60, 120),
    )
    assert csv(table, "kernel", "cause", "calls", "total_ns", "share_frac") == snapshot("""\
kernel,cause,calls,total_ns,share_frac
early,launched by code that PyTorch does not record as an op,1,60000,0.6
early,launched before the recording began,2,30000,0.3
""")
    assert notes(table) == snapshot("""\
exact: 3 pieces of device work have no op: 90.0 % of device time.
warning: 90.0 % of device time has no op in the trace (see unlinked_kernels): its roles come from
kernel names and order.
""")


def test_the_name_alone_gives_a_role() -> None:
    table = ask(
        "unlinked_kernels",
        LINKED,
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 70, 10, 120),
        kernel("mystery", 90, 10, 121),
    )
    assert csv(table, "role", "total_ns") == snapshot("""\
role,total_ns
unlinked,10000
comm,10000
""")


def test_top_keeps_the_largest() -> None:
    events = [kernel(f"k{length}", 100 * length, length, 120 + length) for length in (10, 30, 20)]
    assert ask("unlinked_kernels", LINKED, events, top=2).frame["kernel"].to_list() == ["k30", "k20"]
    assert ask("unlinked_kernels", LINKED, events, top=0).frame.height == 3


def test_an_answer_without_rows_explains_itself() -> None:
    table = ask("unlinked_kernels", LINKED)
    assert table.frame.height == 0
    assert notes(table) == snapshot("""\
info: Nothing in the run, or in the selected part of it, matches.
exact: Every piece of device work has an op.
""")


def test_a_run_without_a_device_is_told_what_to_record() -> None:
    with run(op("aten::mm", 0, 10)) as opened, pytest.raises(TracekitError) as raised:
        opened.query("unlinked_kernels")
    assert raised.value.problem == snapshot(
        "unlinked_kernels is not derivable from this run: it holds no kernel.dur_ns"
    )
    assert raised.value.remedy == snapshot(
        "it needs device activity: profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU"
    )


def test_work_without_an_op_is_of_the_phase_other() -> None:
    table = ask("unlinked_kernels", LINKED, kernel("lost", 90, 10, 120), selection=only(phases=["other"]))
    assert csv(table, "kernel", "calls", "total_ns") == snapshot("""\
kernel,calls,total_ns
lost,1,10000
""")
