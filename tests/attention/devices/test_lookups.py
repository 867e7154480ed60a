"""Since when a device had nothing to do before each kernel, and tables that are made when a question asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

import tracekit
from tests.build import csv, document, kernel, launch, only, op, run, step, trace_file
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.build import Event
    from tracekit.run import Run

WAITS = """
    select k.name, w.free_ns, b.name as before, w.idle_ns, w.launched_ns
    from device_wait as w
    join kernel as k on k.kernel_id = w.kernel_id
    left join kernel as b on b.kernel_id = w.before_id
    order by k.start_ns, k.dur_ns
"""


def overlapping() -> list[Event]:
    """Two streams: `long` outlasts `short`, `late` follows after 5 µs, `same` begins with it; one on another device."""
    return [
        op("aten::mm", 0, 3),
        launch(1, 1),
        kernel("long", 10, 30, 1),
        kernel("short", 15, 10, 2, stream=8),
        kernel("late", 45, 5, 3, stream=8),
        kernel("same", 45, 10, 4),
        kernel("elsewhere", 50, 10, 5, device=1),
    ]


def test_a_wait_is_counted_from_the_last_end_of_all_streams() -> None:
    with run(*overlapping()) as opened:
        table = opened.sql(WAITS)
    assert csv(table, "name", "free_ns", "before", "idle_ns", "launched_ns") == snapshot("""\
name,free_ns,before,idle_ns,launched_ns
long,-,-,-,1000
short,40000,long,0,-
late,40000,long,5000,-
same,50000,late,0,-
elsewhere,-,-,-,-
""")


def test_work_of_other_phases_is_nothing_when_a_phase_is_selected() -> None:
    forward = op("aten::mm", 0, 3, Sequence_number=1)
    backward = op("autograd::engine::evaluate_function: MmBackward0", 20, 5, Sequence_number=1, tid=2)
    events = [forward, launch(1, 1), kernel("a", 10, 5, 1), backward, launch(21, 2, tid=2), kernel("b", 30, 5, 2)]
    more = [op("aten::add", 40, 3), launch(41, 3), kernel("c", 50, 5, 3)]
    with run(*events, *more) as opened:
        assert opened.sql(WAITS).frame["idle_ns"].to_list() == [None, 15_000, 15_000]
    with run(*events, *more, selection=only(phases=["forward"])) as opened:
        found = opened.sql(WAITS).frame
        assert found["name"].to_list() == ["a", "c"]
        assert found["idle_ns"].to_list() == [None, 35_000]


def test_tables_that_are_made_obey_the_selection(tmp_path: Path) -> None:
    sizes = {"Input_Dims": [[8, 8], [8, 8]], "Input_type": ["float", "float"]}
    events = [step(1, 0, 100), step(2, 100, 100)]
    for number, at in ((1, 10), (2, 110)):
        events += [op("aten::mm", at, 4, **sizes), launch(at + 1, number), kernel("gemm", at + 5, 5, number)]
    tables = ("op", "kernel", "product", "device_wait", "device_wait_of_any_step")

    def counts(opened: Run) -> list[int]:
        return [opened.sql(f"select count(*) from {table} where trace_id is not null").frame.item() for table in tables]

    with run(*events) as opened:
        assert counts(opened) == [4, 2, 2, 2, 2]
    with run(*events, selection=only(steps=[2])) as opened:
        assert counts(opened) == [2, 1, 1, 1, 2]
        assert opened.sql("select idle_ns from device_wait").frame["idle_ns"].to_list() == [95_000]
    with run(*events, selection=only(phases=["backward"])) as opened:
        assert counts(opened) == [0, 0, 0, 0, 0]
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_bytes(document(*events, distributedInfo={"rank": rank}))
    with tracekit.open(tmp_path, ranks=[1]) as opened:
        assert counts(opened) == [4, 2, 2, 2, 2]


@pytest.mark.parametrize("name", ["a100-streams-sync", "h100-nanogpt-before", "mi300x-qwen1.5-0.5b"])
def test_waits_of_a_real_trace_are_those_of_a_count_by_hand(traces: Path, name: str) -> None:
    with trace_file(traces / f"{name}.json.gz") as opened:
        kernels = opened.sql("select kernel_id, trace_id, device, start_ns, dur_ns from kernel").frame
        found = opened.sql("select kernel_id, free_ns, idle_ns from device_wait").frame
    until: dict[tuple[int, int], int] = {}
    expected = {}
    for kernel_id, trace, device, start, dur in sorted(
        kernels.iter_rows(), key=lambda row: (row[3], row[3] + row[4], row[0])
    ):
        free = until.get((trace, device))
        expected[kernel_id] = (free, None if free is None else max(0, start - free))
        until[trace, device] = max(start + dur, start + dur if free is None else free)
    assert {row[0]: row[1:] for row in found.iter_rows()} == expected


def test_a_run_without_a_device_has_no_waits() -> None:
    with run(op("aten::mm", 0, 3)) as opened:
        assert opened.sql("select count(*) from device_wait").frame.item() == 0
        with pytest.raises(TracekitError, match="is not derivable"):
            opened.query("launch_gaps")
