"""One page about a run, on traces small enough to add up by eye."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tests.build import Event, annotation, event, frame, kernel, launch, notes, only, op, run, step, work
from tracekit.units import FRACTION, NANOSECONDS, text

if TYPE_CHECKING:
    from tracekit.store import Selection

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)"
SDPA = "aten::_scaled_dot_product_flash_attention"
END = event("trace", "Record Window End", 1000, 0)


def page(*events: Event | list[Event], selection: Selection | None = None, **top: Any) -> str:
    """Return the page about a run as lines of topic, finding and question."""
    with run(*events, selection=selection, **top) as opened:
        rows = opened.summary().frame.iter_rows()
        return "".join(f"{topic:<10} {finding}{f' → {ask}' if ask else ''}\n" for topic, finding, ask in rows)


def line(found: str, topic: str) -> str:
    """Return the first line about a topic."""
    return lines(found, topic)[0]


def lines(found: str, topic: str) -> list[str]:
    """Return the lines about a topic."""
    return [text.removeprefix(topic).strip() for text in found.splitlines() if text.startswith(topic)]


def memory(at: float, allocated: int, reserved: int) -> Event:
    """Make a row of the allocator of the first device."""
    args = {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 8}
    args |= {"Total Allocated": allocated, "Total Reserved": reserved}
    return event("cpu_instant_event", "[memory]", at, 0, ph="i", args=args)


def training() -> list[Event]:
    """Make two steps of 200 and 100 µs: attention of 60 µs, an MLP of 30, an optimizer of 10, on one device."""
    return [
        step(1, 0, 200),
        frame("nn.Module: LlamaAttention_0", 0, 90, 1),
        *work("gemm", 20, 20, 1, op_name="aten::mm"),
        *work(FLASH, 50, 40, 2, op_name=SDPA),
        frame("nn.Module: LlamaMLP_0", 100, 60, 2),
        *work("gemm", 120, 30, 3, op_name="aten::mm"),
        step(2, 200, 100),
        annotation("Optimizer.step#AdamW.step", 205, 50),
        *work("adamw", 220, 10, 4, op_name="aten::_foreach_add_"),
        memory(150, 2**20, 2**21),
        memory(160, 2**19, 2**21),
        END,
    ]


def test_a_training_run_on_one_page() -> None:
    properties = [{"name": "NVIDIA H100", "numSms": 132, "computeMajor": 9, "computeMinor": 0}]
    distributed = {"rank": 3, "world_size": 8}
    assert page(*training(), deviceProperties=properties, distributedInfo=distributed) == snapshot("""\
run        hand.json · 1 trace of 8 ranks · NVIDIA H100 · 300 µs · 20 events
trust      fit with care: cold first step, idle device perhaps by recording, allocation without free → tracekit doctor
trust      100.0 % of device time has an op, the role of 100.0 % of time is known (certain 50.0 %, likely 50.0 %)
steps      2 of median 150 µs, 100 µs to 200 µs on the host, the first one cold → step_breakdown
attention  60.0 % of 100 µs device time: core 40.0 %, qkv_proj 20.0 % → attention_share
the rest   mlp 30.0 %, optimizer 10.0 % → kernel_attribution
phases     forward 90.0 %, optimizer 10.0 % → attention_share
kernels    50.0 % in 2 × gemm → top_kernels
kernels    40.0 % in 1 × void pytorch_flash::flash_fwd_kernel<Fla…rnel_traits<128, 64>>(Flash_fwd_params) → top_kernels
kernels    10.0 % in 1 × adamw → top_kernels
device     0: idle 52.4 % of the 210 µs from first to last work
memory     cuda:0: peak 1.00 MiB allocated, 2.00 MiB reserved, at 150 µs → memory_hotspots
""")


def test_a_run_without_a_device_on_one_page() -> None:
    events = [
        frame("nn.Module: LlamaAttention_0", 0, 100, 1),
        op("aten::scaled_dot_product_attention", 10, 50),
        op("aten::_scaled_dot_product_flash_attention_for_cpu", 20, 30),
        op("aten::mul", 120, 50),
    ]
    assert page(*events, END) == snapshot("""\
run        hand.json · 1 trace · CPU only · 170 µs · 5 events
trust      fit with care: fewer than two steps → tracekit doctor
trust      the role of 50.0 % of time is known (likely 50.0 %)
steps      none marked: the whole trace is taken as one → step_breakdown
attention  at least 50.0 % of 100 µs CPU time in ops: core 30.0 %, other 20.0 % → attention_share
the rest   other 50.0 % → kernel_attribution
ops        50.0 % in 1 × aten::mul → top_kernels
ops        30.0 % in 1 × aten::_scaled_dot_product_flash_attention_for_cpu → top_kernels
ops        20.0 % in 1 × aten::scaled_dot_product_attention → top_kernels
""")
    with run(*events) as opened:
        assert notes(opened.summary()) == snapshot("info: No device was recorded: work is the self time of CPU ops.\n")


def test_a_recording_of_the_device_alone_says_that_nothing_has_an_op() -> None:
    assert lines(page(kernel("mystery", 20, 10, 5), END), "trust") == snapshot(
        [
            "not fit to judge by: device work without a launch; with care: fewer than two steps → tracekit doctor",
            "0.0 % of device time has an op, the role of 0.0 % of time is known",
        ]
    )


def test_a_run_without_work_says_so() -> None:
    found = page(annotation("my block", 0, 10), END)
    assert lines(found, "trust") == snapshot(
        ["fit with care: fewer than two steps → tracekit doctor", "nothing to judge"]
    )
    assert line(found, "time") == snapshot("no work was recorded")


def test_one_step_has_no_spread() -> None:
    assert line(page(step(1, 0, 100), op("aten::mm", 10, 10)), "steps") == snapshot(
        "1 of 100 µs on the host → step_breakdown"
    )


def test_steps_that_hold_nothing_are_not_taken_for_none() -> None:
    assert line(page(step(1, 0, 100), step(2, 100, 100), op("aten::mm", 250, 10)), "steps") == snapshot(
        "2 marked, none of them whole → step_breakdown"
    )


def test_a_cold_step_is_said() -> None:
    events = [
        row for number, at in ((1, 0), (2, 300), (3, 400)) for row in (step(number, at, 90), op("aten::mm", at + 5, 5))
    ]
    events[0]["dur"] = 290
    assert line(page(*events), "steps") == snapshot(
        "3 of median 90.0 µs, 90.0 µs to 290 µs on the host, the first one cold → step_breakdown"
    )


def test_attention_without_modules_is_a_lower_bound() -> None:
    found = page(*work(FLASH, 20, 30, 1, op_name=SDPA), *work("gemm", 60, 10, 2, op_name="aten::mm"))
    assert line(found, "attention") == snapshot(
        "about 100.0 % of 40.0 µs device time: core 75.0 %, out_proj 25.0 % → attention_share"
    )


def test_a_selection_is_obeyed() -> None:
    found = page(*training(), selection=only(steps=[2]))
    assert [text for text in found.splitlines() if text.startswith(("steps", "attention", "the rest"))] == snapshot(
        [
            "steps      1 of 100 µs on the host → step_breakdown",
            "attention  none in 10.0 µs device time → attention_share",
            "the rest   optimizer 100.0 % → kernel_attribution",
        ]
    )


def test_each_device_has_its_line() -> None:
    found = page(
        op("aten::mm", 0, 10),
        launch(1, 1),
        kernel("gemm", 20, 30, 1, device=0),
        launch(3, 2),
        kernel("gemm", 20, 20, 2, device=1),
        launch(5, 3),
        kernel("gemm", 80, 20, 3, device=1),
    )
    assert [text for text in found.splitlines() if text.startswith("device")] == snapshot(
        [
            "device     0: idle 0.0 % of the 30.0 µs from first to last work",
            "device     1: idle 50.0 % of the 80.0 µs from first to last work",
        ]
    )


def test_long_names_lose_their_middle() -> None:
    found = line(page(*work("a" * 100 + "b" * 100, 20, 30, 1, op_name="aten::mm")), "kernels")
    assert found == f"100.0 % in 1 × {'a' * 40}…{'b' * 39} → top_kernels"


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40), st.integers(7, 9)), min_size=1, max_size=12))
def test_idle_time_is_that_of_counting_every_microsecond(pieces: list[tuple[int, int, int]]) -> None:
    kernels = [kernel("gemm", start, length, n, stream=stream) for n, (start, length, stream) in enumerate(pieces, 1)]
    running = {tick for start, length, _ in pieces for tick in range(start, start + length)}
    span = max(running) + 1 - min(running)
    idle, whole = text(1 - len(running) / span, FRACTION), text(1000 * span, NANOSECONDS)
    expected = f"0: idle {idle} of the {whole} from first to last work"
    assert line(page(*kernels), "device") == expected
