"""How busy the device is in each step: hand-made windows, and a count of every microsecond as the oracle."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tests.build import Event, annotation, ask, csv, frame, kernel, launch, notes, only, op, run, step, work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)"
SDPA = "aten::_scaled_dot_product_flash_attention"
BUSY = ("step", "device", "window_ns", "busy_ns", "idle_ns", "idle_frac")


def test_a_window_is_busy_and_idle_time_and_each_role_has_its_part() -> None:
    table = ask(
        "step_breakdown",
        step(1, 0, 100),
        work(FLASH, 20, 30, 1, op_name=SDPA),
        work("gemm", 60, 10, 2, op_name="aten::mm"),
    )
    assert csv(table) == snapshot("""\
rank,step,is_cold,device,window_ns,busy_ns,idle_ns,idle_frac,role,role_ns,role_frac
-,1,false,0,100000,40000,60000,0.6,attention.core,30000,0.75
-,1,false,0,100000,40000,60000,0.6,attention.out_proj,10000,0.25
""")
    assert notes(table) == ""


def test_concurrent_streams_are_busy_once_and_counted_twice_in_roles() -> None:
    events = [
        step(1, 0, 100),
        *work("gemm", 20, 30, 1, op_name="aten::mm", stream=7),
        *work("gemm", 30, 40, 2, op_name="aten::mm", stream=8),
    ]
    assert csv(ask("step_breakdown", *events), *BUSY, "role_ns", "role_frac") == snapshot("""\
step,device,window_ns,busy_ns,idle_ns,idle_frac,role_ns,role_frac
1,0,100000,50000,50000,0.5,70000,1.0
""")


def test_work_inside_longer_work_adds_nothing_to_busy_time() -> None:
    events = [
        step(1, 0, 100),
        *work("gemm", 10, 80, 1, op_name="aten::mm", stream=7),
        *work("gemm", 20, 10, 2, op_name="aten::mm", stream=8),
        *work("gemm", 40, 30, 3, op_name="aten::mm", stream=9),
    ]
    assert csv(ask("step_breakdown", *events), *BUSY, "role_ns") == snapshot("""\
step,device,window_ns,busy_ns,idle_ns,idle_frac,role_ns
1,0,100000,80000,20000,0.2,120000
""")


def test_work_over_the_border_of_two_steps_is_split_between_them() -> None:
    late = [step(1, 0, 100), op("aten::mm", 10, 20), launch(20, 1), kernel("gemm", 80, 50, 1), step(2, 100, 100)]
    table = ask("step_breakdown", *late)
    assert csv(table, *BUSY, "role_ns") == snapshot("""\
step,device,window_ns,busy_ns,idle_ns,idle_frac,role_ns
1,0,100000,20000,80000,0.8,20000
2,0,100000,30000,70000,0.7,30000
""")
    assert "Work runs 0.1 ms after its launch (median), 60 % of a step" in notes(table).replace("\n", " ")


def test_a_step_in_which_the_device_did_nothing_is_idle_throughout() -> None:
    events = [step(1, 0, 100), *work("gemm", 20, 30, 1, op_name="aten::mm"), step(2, 100, 100), op("aten::mm", 110, 5)]
    assert csv(ask("step_breakdown", *events), *BUSY, "role", "role_ns") == snapshot("""\
step,device,window_ns,busy_ns,idle_ns,idle_frac,role,role_ns
1,0,100000,30000,70000,0.7,other,30000
2,0,100000,0,100000,1.0,-,-
""")


def test_each_device_has_its_rows() -> None:
    table = ask(
        "step_breakdown",
        step(1, 0, 100),
        op("aten::mm", 0, 10),
        launch(1, 1),
        kernel("gemm", 20, 30, 1, device=0),
        launch(3, 2),
        kernel("gemm", 20, 60, 2, device=1),
        step(2, 100, 100),
        work("gemm", 120, 10, 3, op_name="aten::mm"),
    )
    assert csv(table, *BUSY, "role_frac") == snapshot("""\
step,device,window_ns,busy_ns,idle_ns,idle_frac,role_frac
1,0,100000,30000,70000,0.7,1.0
1,1,100000,60000,40000,0.4,1.0
2,0,100000,10000,90000,0.9,1.0
2,1,100000,0,100000,1.0,-
""")


def test_work_outside_every_step_is_said() -> None:
    events = [
        step(1, 0, 100),
        *work("gemm", 90, 40, 1, op_name="aten::mm"),
        *work("gemm", 200, 10, 2, op_name="aten::mm"),
    ]
    table = ask("step_breakdown", *events)
    assert csv(table, *BUSY, "role_ns") == snapshot("""\
step,device,window_ns,busy_ns,idle_ns,idle_frac,role_ns
1,0,100000,10000,90000,0.9,10000
""")
    assert notes(table) == snapshot("exact: 0.040 ms of device work ran outside the steps shown.\n")


def test_a_trace_without_steps_is_one_window_and_says_so() -> None:
    table = ask("step_breakdown", op("aten::mm", 0, 100), launch(10, 1), kernel("gemm", 20, 60, 1))
    assert csv(table, "step", "window_ns", "busy_ns", "idle_ns") == snapshot("""\
step,window_ns,busy_ns,idle_ns
-,100000,60000,40000
""")
    assert notes(table) == snapshot("info: No ProfilerStep marks: the whole trace is taken as one step.\n")


def test_a_cold_step_is_marked() -> None:
    events = [step(1, 0, 200), step(2, 200, 100), step(3, 300, 100)]
    events += [row for at in (20, 220, 320) for row in work("gemm", at, 10, at, op_name="aten::mm")]
    assert csv(ask("step_breakdown", *events), "step", "is_cold", "window_ns", "busy_ns") == snapshot("""\
step,is_cold,window_ns,busy_ns
1,true,200000,10000
2,false,100000,10000
3,false,100000,10000
""")


def test_the_rank_of_the_trace_is_shown() -> None:
    events = [step(1, 0, 100), *work("gemm", 20, 30, 1, op_name="aten::mm")]
    with run(*events, distributedInfo={"rank": 3, "world_size": 8}) as opened:
        assert opened.query("step_breakdown").frame["rank"].to_list() == [3]


def test_selected_steps_alone_are_shown() -> None:
    events = [
        step(1, 0, 100),
        *work("gemm", 20, 30, 1, op_name="aten::mm"),
        step(2, 100, 100),
        *work("gemm", 120, 50, 2, op_name="aten::mm"),
    ]
    assert csv(ask("step_breakdown", *events, selection=only(steps=[2])), "step", "busy_ns") == snapshot("""\
step,busy_ns
2,50000
""")


def test_without_a_device_threads_are_busy_once_and_roles_have_self_time() -> None:
    table = ask(
        "step_breakdown",
        step(1, 0, 100),
        frame("nn.Module: LlamaAttention_0", 10, 50, 1),
        annotation("my block", 5, 80),
        op("aten::scaled_dot_product_attention", 20, 40),
        op("aten::_scaled_dot_product_flash_attention_for_cpu", 30, 20),
        op("aten::mul", 50, 30, tid=200),
    )
    assert csv(table) == snapshot("""\
rank,step,is_cold,device,window_ns,busy_ns,idle_ns,idle_frac,role,role_ns,role_frac
-,1,false,-,100000,60000,40000,0.4,other,30000,0.42857142857142855
-,1,false,-,100000,60000,40000,0.4,attention.core,20000,0.2857142857142857
-,1,false,-,100000,60000,40000,0.4,attention.other,20000,0.2857142857142857
""")
    assert notes(table) == snapshot("info: No device was recorded: work is the self time of CPU ops.\n")


def test_without_a_device_an_op_over_a_border_counts_to_the_step_it_started_in() -> None:
    events = [step(1, 0, 100), op("aten::mul", 90, 30, tid=200), step(2, 100, 100), op("aten::mul", 150, 20, tid=200)]
    assert csv(ask("step_breakdown", *events), "step", "busy_ns", "role_ns") == snapshot("""\
step,busy_ns,role_ns
1,10000,30000
2,40000,20000
""")


Key = tuple[int, int]
RoleKey = tuple[int, int, bool]


class Drawn(NamedTuple):
    """A piece of work to be: when it runs in whole µs, where, and which op launches it."""

    start: int
    length: int
    device: int
    stream: int
    is_attention: bool


PIECES = st.lists(
    st.builds(Drawn, st.integers(0, 120), st.integers(0, 40), st.integers(0, 1), st.integers(7, 8), st.booleans()),
    min_size=1,
    max_size=12,
)
BORDERS = st.lists(st.integers(0, 120), min_size=2, max_size=4, unique=True).map(sorted)


def events_of(borders: Sequence[int], pieces: Iterable[Drawn]) -> list[Event]:
    """Make steps between the borders and, launched before all of them, the pieces."""
    events = [step(number, at, end - at) for number, (at, end) in enumerate(pairwise(borders), 1)]
    for number, piece in enumerate(pieces, 1):
        at = number / 100
        events += [
            op(SDPA if piece.is_attention else "aten::mul", at, 0.009),
            launch(at + 0.002, number, duration=0.001),
        ]
        name = FLASH if piece.is_attention else "product"
        events.append(kernel(name, piece.start, piece.length, number, device=piece.device, stream=piece.stream))
    return events


def counted(borders: Sequence[int], pieces: Sequence[Drawn]) -> tuple[dict[Key, tuple[int, int]], dict[RoleKey, int]]:
    """Return busy and idle ns by step and device, and ns by role too, from the microseconds that pieces cover."""
    busy: dict[Key, tuple[int, int]] = {}
    roles: dict[RoleKey, int] = defaultdict(int)
    for number, window in enumerate((range(*ends) for ends in pairwise(borders)), 1):
        for device in {piece.device for piece in pieces}:
            running: set[int] = set()
            for piece in (piece for piece in pieces if piece.device == device):
                inside = set(range(piece.start, piece.start + piece.length)) & set(window)
                running |= inside
                roles[number, device, piece.is_attention] += 1000 * len(inside)
            busy[number, device] = 1000 * len(running), 1000 * (len(window) - len(running))
    return busy, {key: time for key, time in roles.items() if time}


@settings(max_examples=25, deadline=None)
@given(BORDERS, PIECES)
def test_busy_idle_and_role_times_are_those_of_counting_every_microsecond(
    borders: list[int], pieces: list[Drawn]
) -> None:
    rows = ask("step_breakdown", *events_of(borders, pieces)).frame.rows(named=True)
    busy = {(row["step"], row["device"]): (row["busy_ns"], row["idle_ns"]) for row in rows}
    roles = {
        (row["step"], row["device"], row["role"] == "attention.core"): row["role_ns"] for row in rows if row["role"]
    }
    assert (busy, roles) == counted(borders, pieces)
