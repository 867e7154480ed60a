"""What fills the memory at its peak, on allocator rows typed by hand and on real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

from tests import independent
from tests.build import ask, csv, frame, memory, notes, only, op, run, step, trace_file
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.build import Event

REAL = {
    "v100-training-memory.json.gz": {"cpu": (0, -1), "cuda:1": (1, 1)},
    "h100-qwen1.5-0.5b.json.gz": {"cpu": (0, -1), "cuda:0": (1, 0)},
    "mi300x-qwen1.5-0.5b.json.gz": {"cpu": (0, -1), "hip:0": (6, 0)},
    "h100-timesformer-math.json.gz": {"cpu": (0, -1), "cuda:0": (1, 0)},
}
"""Real traces with allocator rows: the name of each device and the numbers by which the rows know it."""


def two_steps() -> list[Event]:
    """Make two steps over 1,000 bytes from before; the first peaks at 1,700 bytes, the second at 1,400."""
    return [
        step(1, 0, 100),
        frame("nn.Module: LlamaMLP_0", 10, 30, 1),
        op("aten::mm", 12, 20),
        memory(13, 64, 300, 1300),
        memory(14, 128, 100, 1400),
        memory(15, 192, 50, 1450),
        memory(16, 192, -50, 1400),
        op("aten::_softmax", 50, 10),
        memory(52, 256, 300, 1700),
        memory(60, 256, -300, 1400),
        memory(61, 128, -100, 1300),
        step(2, 100, 100),
        op("Optimizer.step#AdamW.step", 110, 50),
        op("aten::zeros_like", 120, 10),
        memory(122, 128, 100, 1400),
        memory(170, 64, -300, 1100),
    ]


def host() -> list[Event]:
    """Make an allocation of 40 bytes on the CPU, and its free."""
    return [
        op("aten::arange", 80, 10),
        memory(82, 64, 40, 40, device_type=0, device_id=-1),
        memory(85, 64, -40, 0, device_type=0, device_id=-1),
    ]


def test_what_is_live_at_the_peak_is_listed_by_who_made_it() -> None:
    assert csv(ask("memory_hotspots", two_steps())) == snapshot("""\
made,role,module_class,op,allocations,live_bytes,share_frac,largest_bytes,phase,device
before it,-,-,-,-,1000,0.5882352941176471,-,-,cuda:0
in the recording,mlp,LlamaMLP,aten::mm,2,400,0.23529411764705882,300,forward,cuda:0
in the recording,other,-,aten::_softmax,1,300,0.17647058823529413,300,forward,cuda:0
""")


def test_the_notes_say_when_and_in_which_op_it_peaks_and_how_much_is_older() -> None:
    assert notes(ask("memory_hotspots", two_steps())) == snapshot("""\
exact: cuda:0 peaks at 1,700 bytes, 0.052 ms after the start, in aten::_softmax.
exact: 58.8 % of the peak was allocated before the recording, or outside the selection: who
allocated it is not in the trace.
info: No device was recorded: work is the self time of CPU ops.
""")


def test_nothing_older_is_no_row_and_no_note() -> None:
    table = ask("memory_hotspots", op("aten::mm", 0, 10), memory(1, 64, 100, 100), memory(20, 128, 5, 105))
    assert csv(table) == snapshot("""\
made,role,module_class,op,allocations,live_bytes,share_frac,largest_bytes,phase,device
in the recording,other,-,aten::mm,1,100,0.9523809523809523,100,forward,cuda:0
in the recording,-,-,-,1,5,0.047619047619047616,5,other,cuda:0
""")
    assert notes(table) == snapshot("""\
exact: cuda:0 peaks at 105 bytes, 0.020 ms after the start, in no op.
info: No device was recorded: work is the self time of CPU ops.
""")


def test_what_was_freed_in_the_recording_but_made_before_it_counts_as_older() -> None:
    table = ask("memory_hotspots", op("aten::mm", 0, 10), memory(1, 64, 100, 900), memory(5, 128, -800, 100))
    assert csv(table, "made", "op", "allocations", "live_bytes") == snapshot("""\
made,op,allocations,live_bytes
before it,-,-,800
in the recording,aten::mm,1,100
""")


def test_of_two_equal_peaks_the_first_one_counts() -> None:
    rows = [op("first", 0, 10), memory(1, 64, 100, 100), memory(2, 64, -100, 0), op("second", 20, 10)]
    table = ask("memory_hotspots", rows, memory(21, 128, 100, 100))
    assert table.frame["op"].to_list() == ["first"]


def test_rows_of_one_moment_are_told_apart_at_the_peak() -> None:
    rows = [memory(1, 64, 100, 100), memory(1, 64, -100, 0), memory(1, 64, 300, 300), memory(1, 64, -300, 0)]
    assert csv(ask("memory_hotspots", op("aten::mm", 0, 10), rows), "allocations", "live_bytes") == snapshot("""\
allocations,live_bytes
1,300
""")


def test_the_fullest_device_is_shown_unless_another_is_asked_for() -> None:
    columns = ("device", "made", "op", "live_bytes", "share_frac")
    other = [memory(70, 64, 5, 2005, device_id=1), memory(71, 64, -5, 2000, device_id=1)]
    assert csv(ask("memory_hotspots", two_steps(), other), *columns) == snapshot("""\
device,made,op,live_bytes,share_frac
cuda:1,before it,-,2000,0.9975062344139651
cuda:1,in the recording,-,5,0.0024937655860349127
""")
    table = ask("memory_hotspots", two_steps(), other, device="cuda:0")
    assert table.frame["device"].unique().to_list() == ["cuda:0"]
    assert table.frame["live_bytes"].sum() == 1700


def test_the_cpu_is_a_device_too() -> None:
    table = ask("memory_hotspots", two_steps(), host(), device="cpu")
    assert csv(table) == snapshot("""\
made,role,module_class,op,allocations,live_bytes,share_frac,largest_bytes,phase,device
in the recording,other,-,aten::arange,1,40,1.0,40,forward,cpu
""")
    assert notes(table) == snapshot("""\
exact: cpu peaks at 40 bytes, 0.082 ms after the start, in aten::arange.
info: No device was recorded: work is the self time of CPU ops.
""")
    assert ask("memory_hotspots", two_steps(), host()).frame["device"].unique().to_list() == ["cuda:0"]


@pytest.mark.parametrize("device", ["cuda:7", "cpu"])
def test_a_device_without_totals_has_no_peak(device: str) -> None:
    bare = memory(30, 64, 8, None, device_type=0, device_id=-1)
    table = ask("memory_hotspots", two_steps(), bare, device=device)
    assert table.frame.height == 0
    assert notes(table) == snapshot("""\
info: Nothing in the run, or in the selected part of it, matches.
info: No device was recorded: work is the self time of CPU ops.
""")


def test_a_peak_of_nothing_has_no_share() -> None:
    table = ask("memory_hotspots", op("aten::mm", 0, 10), memory(1, 64, -100, 0))
    assert table.frame.height == 0
    assert notes(table) == snapshot("""\
info: Nothing in the run, or in the selected part of it, matches.
exact: cuda:0 peaks at 0 bytes, 0.001 ms after the start, in no op.
info: No device was recorded: work is the self time of CPU ops.
""")


def test_top_keeps_the_largest() -> None:
    sizes = [ask("memory_hotspots", two_steps(), top=top).frame["live_bytes"].to_list() for top in (1, 2, 0)]
    assert sizes == [[1000], [1000, 400], [1000, 400, 300]]


def test_a_step_has_its_own_peak_and_what_came_before_it_is_older() -> None:
    table = ask("memory_hotspots", two_steps(), selection=only(steps=[2]))
    assert csv(table, "made", "phase", "op", "allocations", "live_bytes", "share_frac") == snapshot("""\
made,phase,op,allocations,live_bytes,share_frac
before it,-,-,-,1300,0.9285714285714286
in the recording,optimizer,aten::zeros_like,1,100,0.07142857142857142
""")
    assert notes(table) == snapshot("""\
exact: cuda:0 peaks at 1,400 bytes, 0.122 ms after the start, in aten::zeros_like.
exact: 92.9 % of the peak was allocated before the recording, or outside the selection: who
allocated it is not in the trace.
info: No device was recorded: work is the self time of CPU ops.
""")


def test_a_phase_shows_what_it_made_of_the_whole_peak() -> None:
    late = [op("aten::mul", 180, 10), memory(181, 512, 900, 2000)]
    table = ask("memory_hotspots", two_steps(), late, selection=only(phases=["optimizer"]))
    assert csv(table, "made", "phase", "op", "live_bytes", "share_frac") == snapshot("""\
made,phase,op,live_bytes,share_frac
before it,-,-,1900,0.95
in the recording,optimizer,aten::zeros_like,100,0.05
""")
    assert "exact: 95.0 % of the peak was allocated before the recording, or outside" in notes(table)


def test_an_allocation_outside_every_op_has_no_op_role_or_module() -> None:
    table = ask("memory_hotspots", op("aten::mm", 0, 10), memory(20, 64, 100, 100))
    assert csv(table, "made", "role", "module_class", "op", "live_bytes") == snapshot("""\
made,role,module_class,op,live_bytes
in the recording,-,-,-,100
""")
    assert "in no op" in notes(table)


@pytest.mark.parametrize("rows", [[], [memory(1, None, 8, None)]], ids=["no rows", "rows of 2021"])
def test_a_run_without_allocator_rows_is_told_how_to_record_them(rows: list[Event]) -> None:
    with run(op("aten::mm", 0, 10), rows) as opened, pytest.raises(TracekitError) as raised:
        opened.query("memory_hotspots")
    assert raised.value.problem == snapshot(
        "memory_hotspots is not derivable from this run: it holds no allocation.bytes, memory_sample.allocated_bytes"
    )
    assert raised.value.remedy == snapshot("it needs allocator rows: profile with profile_memory=True")


@pytest.mark.parametrize("name", REAL)
def test_the_rows_sum_to_the_largest_total_that_the_trace_itself_holds(traces: Path, name: str) -> None:
    rows = independent.allocator_rows(independent.read((traces / name).read_bytes()))
    peaks = {
        device: max(row.allocated or 0 for row in rows if row.device == numbers)
        for device, numbers in REAL[name].items()
    }
    with trace_file(traces / name) as opened:
        found = {device: opened.query("memory_hotspots", device=device, top=0).frame for device in peaks}
    assert {device: frame["live_bytes"].sum() for device, frame in found.items()} == peaks
    assert all(frame["share_frac"].sum() == pytest.approx(1) for frame in found.values())
