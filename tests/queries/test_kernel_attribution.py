"""What takes the time, on traces small enough to add up by eye."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

import tracekit
from tests.build import Event, annotation, ask, csv, document, frame, kernel, launch, notes, only, op, run, step, work
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


def two_steps() -> list[Event]:
    """Two steps of 100 µs: 30 and 50 µs of products, 10 µs of adds in the second, and 10 µs outside of both."""
    return [
        step(1, 0, 100),
        *work("gemm", 20, 30, 1, op_name="aten::mm"),
        step(2, 100, 100),
        *work("gemm", 120, 50, 2, op_name="aten::mm"),
        *work(ADD, 180, 10, 3, op_name="aten::add"),
        *work(ADD, 220, 10, 4, op_name="aten::add"),
    ]


def test_a_group_adds_up_its_work() -> None:
    events = [
        work("gemm", start, length, start, op_name="aten::mm") for start, length in ((10, 10), (40, 20), (70, 30))
    ]
    table = ask("kernel_attribution", *events, *work(ADD, 110, 40, 9, op_name="aten::add"), by="op")
    assert csv(table, "op", "calls", "total_ns", "share_frac", "mean_ns", "p50_ns", "p99_ns") == snapshot("""\
op,calls,total_ns,share_frac,mean_ns,p50_ns,p99_ns
aten::mm,3,60000,0.6,20000.0,20000,30000
aten::add,1,40000,0.4,40000.0,40000,40000
""")


def test_percentiles_are_durations_that_occur() -> None:
    events = [work("gemm", 200 * length, length, length, op_name="aten::mm") for length in range(1, 101)]
    table = ask("kernel_attribution", *events, by="op")
    assert csv(table, "calls", "mean_ns", "p50_ns", "p99_ns") == snapshot("""\
calls,mean_ns,p50_ns,p99_ns
100,50500.0,50000,99000
""")


def test_the_median_of_an_even_number_is_the_lower_of_the_middle_two() -> None:
    events = [work("gemm", start, length, start, op_name="aten::mm") for start, length in ((10, 10), (40, 20))]
    assert ask("kernel_attribution", *events, by="op").frame["p50_ns"].to_list() == [10_000]


@pytest.mark.parametrize("by", ["role", "module", "op", "family", "phase", "role,phase", "role,module,op,family,phase"])
def test_only_the_columns_grouped_by_are_filled_and_the_total_stays(by: str) -> None:
    attention = [
        frame("nn.Module: LlamaAttention_0", 0, 60, 1),
        *work(FLASH, 20, 30, 1, op_name="aten::_scaled_dot_product_flash_attention"),
    ]
    table = ask("kernel_attribution", *attention, *work(ADD, 120, 10, 2, op_name="aten::add"), by=by)
    named = {"role": "role", "module": "module_class", "op": "op", "family": "family", "phase": "phase"}
    filled = [name for name in named.values() if table.frame[name].is_not_null().any()]
    assert sorted(filled) == sorted(named[part] for part in by.split(","))
    assert table.frame["total_ns"].sum() == 40_000
    assert table.frame["share_frac"].sum() == pytest.approx(1)


def test_work_in_a_module_is_named_by_its_class_op_and_family() -> None:
    table = ask(
        "kernel_attribution",
        frame("nn.Module: LlamaDecoderLayer_3", 0, 100, 1),
        frame("nn.Module: LlamaAttention_3", 10, 50, 2, 1),
        work(FLASH, 20, 30, 1, op_name="aten::_scaled_dot_product_flash_attention"),
        frame("nn.Module: LlamaMLP_3", 70, 30, 3, 1),
        work("gemm", 80, 20, 2, op_name="aten::mm"),
    )
    assert csv(table, "role", "module_class", "op", "calls", "total_ns", "share_frac") == snapshot("""\
role,module_class,op,calls,total_ns,share_frac
attention.core,LlamaAttention,aten::_scaled_dot_product_flash_attention,1,30000,0.6
mlp,LlamaMLP,aten::mm,1,20000,0.4
""")
    assert table.frame["family"].is_not_null().any()


def test_concurrent_streams_count_twice_in_totals() -> None:
    events = [
        *work("gemm", 10, 50, 1, op_name="aten::mm", stream=7),
        *work("gemm", 20, 40, 2, op_name="aten::mm", stream=8),
    ]
    assert csv(ask("kernel_attribution", *events, by="op"), "op", "calls", "total_ns", "share_frac") == snapshot("""\
op,calls,total_ns,share_frac
aten::mm,2,90000,1.0
""")


def test_several_devices_add_up() -> None:
    table = ask(
        "kernel_attribution",
        op("aten::mm", 0, 10),
        launch(2, 1),
        kernel("gemm", 20, 10, 1, device=0),
        launch(4, 2),
        kernel("gemm", 20, 30, 2, device=1),
        by="op",
    )
    assert csv(table, "op", "calls", "total_ns") == snapshot("""\
op,calls,total_ns
aten::mm,2,40000
""")


def test_by_step_gives_each_step_its_rows_and_none_to_work_outside() -> None:
    table = ask("kernel_attribution", *two_steps(), by="op", by_step=True)
    assert csv(table, "step", "op", "calls", "total_ns", "share_frac") == snapshot("""\
step,op,calls,total_ns,share_frac
2,aten::mm,1,50000,0.5
1,aten::mm,1,30000,0.3
2,aten::add,1,10000,0.1
none,aten::add,1,10000,0.1
""")


def test_work_counts_to_the_step_it_was_launched_in() -> None:
    late = [step(1, 0, 100), op("aten::mm", 10, 20), launch(20, 1), kernel("gemm", 90, 60, 1), step(2, 100, 100)]
    assert csv(ask("kernel_attribution", *late, by="op", by_step=True), "step", "total_ns") == snapshot("""\
step,total_ns
1,60000
""")


def test_per_step_time_is_over_the_steps_the_group_ran_in_and_outside_is_one_more() -> None:
    table = ask("kernel_attribution", *two_steps(), work("gemm", 70, 20, 5, op_name="aten::mm"), by="op")
    assert csv(table, "step", "op", "calls", "total_ns", "per_step_ns") == snapshot("""\
step,op,calls,total_ns,per_step_ns
-,aten::mm,3,100000,50000.0
-,aten::add,2,20000,10000.0
""")


def test_a_trace_without_steps_is_one_step() -> None:
    table = ask("kernel_attribution", *work("gemm", 20, 30, 1, op_name="aten::mm"), by="op", by_step=True)
    assert csv(table, "step", "op", "total_ns", "per_step_ns") == snapshot("""\
step,op,total_ns,per_step_ns
none,aten::mm,30000,30000.0
""")


def test_top_cuts_the_rows_says_so_and_keeps_the_shares() -> None:
    table = ask("kernel_attribution", *two_steps(), by="op", top=1)
    assert csv(table, "op", "total_ns", "share_frac") == snapshot("""\
op,total_ns,share_frac
aten::mm,80000,0.8
""")
    assert notes(table) == snapshot("info: 2 groups in all; -p top=0 shows every one.\n")


@pytest.mark.parametrize("top", [0, 2, "2"])
def test_an_answer_that_is_whole_says_nothing_of_more_groups(top: int | str) -> None:
    table = ask("kernel_attribution", *two_steps(), by="op", top=top)
    assert table.frame.height == 2
    assert notes(table) == ""


def test_groups_are_counted_as_they_are_asked_for() -> None:
    assert notes(ask("kernel_attribution", *two_steps(), by="op", by_step=True, top=1)) == snapshot(
        "info: 4 groups in all; -p top=0 shows every one.\n"
    )


def test_a_step_that_several_ranks_took_is_one_group(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_bytes(document(*two_steps(), distributedInfo={"rank": rank}))
    with tracekit.open(tmp_path) as opened:
        every = opened.query("kernel_attribution", by="op", by_step=True)
        cut = opened.query("kernel_attribution", by="op", by_step=True, top=1)
    assert f"info: {every.frame.height} groups in all" in notes(cut)
    assert every.frame.height == 4


def test_rows_of_equal_time_stand_in_a_fixed_order() -> None:
    events = [work(name, at, 10, at, op_name=f"aten::{name}") for at, name in ((10, "sub"), (40, "mul"), (70, "add"))]
    assert ask("kernel_attribution", *events, by="op").frame["op"].to_list() == ["aten::add", "aten::mul", "aten::sub"]


def test_a_cold_first_step_is_named() -> None:
    events = [
        step(5, 0, 300),
        *work("gemm", 20, 200, 1, op_name="aten::mm"),
        step(6, 300, 100),
        *work("gemm", 320, 50, 2, op_name="aten::mm"),
        step(7, 400, 100),
        *work("gemm", 420, 50, 3, op_name="aten::mm"),
    ]
    assert notes(ask("kernel_attribution", *events)) == snapshot(
        "warning: Step 5 was cold (0.3 ms): leave it out with --steps.\n"
    )
    assert notes(ask("kernel_attribution", *events, selection=only(steps=[6, 7]))) == ""


def test_selected_steps_alone_are_counted() -> None:
    table = ask("kernel_attribution", *two_steps(), by="op", selection=only(steps=[2]))
    assert csv(table, "op", "calls", "total_ns", "share_frac") == snapshot("""\
op,calls,total_ns,share_frac
aten::mm,1,50000,0.8333333333333334
aten::add,1,10000,0.16666666666666666
""")


def test_a_selected_phase_alone_is_counted() -> None:
    events = [
        *work("gemm", 20, 30, 1, op_name="aten::mm"),
        annotation("Optimizer.step#AdamW.step", 100, 50),
        *work(ADD, 120, 10, 2, op_name="aten::_foreach_add_"),
    ]
    assert csv(ask("kernel_attribution", *events, by="phase"), "phase", "total_ns") == snapshot("""\
phase,total_ns
forward,30000
optimizer,10000
""")
    table = ask("kernel_attribution", *events, by="phase,op", selection=only(phases=["optimizer"]))
    assert csv(table, "phase", "op", "total_ns", "share_frac") == snapshot("""\
phase,op,total_ns,share_frac
optimizer,aten::_foreach_add_,10000,1.0
""")


def test_backward_work_has_the_phase_of_its_op() -> None:
    events = [
        op("aten::mm", 0, 10, Sequence_number=7),
        launch(4, 1),
        kernel("gemm", 20, 10, 1),
        op("autograd::engine::evaluate_function: MmBackward0", 50, 20, Sequence_number=7, Fwd_thread_id=1),
        op("aten::mm", 55, 10),
        launch(60, 2),
        kernel("gemm", 80, 25, 2),
    ]
    assert csv(ask("kernel_attribution", *events, by="phase,op"), "phase", "op", "total_ns") == snapshot("""\
phase,op,total_ns
backward,aten::mm,25000
forward,aten::mm,10000
""")


def test_work_without_an_op_is_unlinked_and_the_answer_warns() -> None:
    table = ask("kernel_attribution", *work("gemm", 20, 30, 1, op_name="aten::mm"), kernel("mystery", 60, 10, 99))
    assert csv(table, "role", "op", "total_ns") == snapshot("""\
role,op,total_ns
other,aten::mm,30000
unlinked,-,10000
""")
    assert notes(table) == snapshot("""\
warning: 25.0 % of device time has no op in the trace (see unlinked_kernels): its roles come from
kernel names and order.
""")


def test_without_a_device_the_self_time_of_ops_counts() -> None:
    table = ask(
        "kernel_attribution",
        annotation("my block", 0, 200),
        op("aten::linear", 0, 100),
        op("aten::addmm", 20, 60),
        op("aten::linear", 120, 30),
        by="op,family",
    )
    assert csv(table, "op", "family", "calls", "total_ns", "share_frac", "p50_ns") == snapshot("""\
op,family,calls,total_ns,share_frac,p50_ns
aten::linear,-,2,70000,0.5384615384615384,30000
aten::addmm,-,1,60000,0.46153846153846156,60000
""")
    assert notes(table) == snapshot("info: No device was recorded: work is the self time of CPU ops.\n")


def test_work_of_no_length_gives_no_share() -> None:
    assert csv(ask("kernel_attribution", *work("gemm", 20, 0, 1, op_name="aten::mm"), by="op")) == snapshot("""\
step,phase,role,module_class,op,family,calls,total_ns,share_frac,mean_ns,p50_ns,p99_ns,per_step_ns
-,-,-,-,aten::mm,-,1,0,-,0.0,0,0,0.0
""")


def test_a_selection_that_holds_no_work_is_refused_with_the_reason() -> None:
    with (
        run(*two_steps(), selection=only(phases=["backward"])) as opened,
        pytest.raises(TracekitError, match=r"holds no work\.dur_ns in the selected part"),
    ):
        opened.query("kernel_attribution")
