"""How much of the time is attention, on traces small enough to add up by eye."""

from __future__ import annotations

from inline_snapshot import snapshot

from tests.build import Event, annotation, ask, csv, frame, kernel, launch, notes, only, op, run, work

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)"
SDPA = "aten::_scaled_dot_product_flash_attention"


def decoder() -> list[Event]:
    """Modules with 20 µs of projection, 30 of the core and 10 of projection in attention, and 40 µs in the MLP."""
    return [
        frame("nn.Module: LlamaDecoderLayer_0", 0, 200, 1),
        frame("nn.Module: LlamaAttention_0", 10, 80, 2, 1),
        *work("gemm", 20, 20, 1, op_name="aten::mm"),
        *work(FLASH, 50, 30, 2, op_name=SDPA),
        *work("gemm", 90, 10, 3, op_name="aten::mm"),
        frame("nn.Module: LlamaMLP_0", 100, 90, 3, 1),
        *work("gemm", 120, 40, 4, op_name="aten::mm"),
    ]


def test_everything_in_an_attention_module_is_attention_and_the_core_is_part_of_it() -> None:
    table = ask("attention_share", *decoder())
    assert csv(table) == snapshot("""\
phase,total_ns,attention_ns,attention_frac,core_ns,core_frac,rest_ns,unlinked_ns,pieces
all,100000,60000,0.6,30000,0.3,40000,0,3
forward,100000,60000,0.6,30000,0.3,40000,0,3
""")
    assert notes(table) == ""


def test_naive_attention_has_scores_softmax_and_values_as_its_core() -> None:
    table = ask(
        "attention_share",
        frame("nn.Module: LlamaAttention_0", 0, 200, 1),
        work("gemm", 20, 10, 1, op_name="aten::bmm"),
        work("softmax", 50, 20, 2, op_name="aten::_softmax"),
        work("gemm", 80, 10, 3, op_name="aten::bmm"),
        work("gemm", 120, 60, 4, op_name="aten::mm"),
    )
    assert csv(table, "phase", "attention_ns", "core_ns", "core_frac") == snapshot("""\
phase,attention_ns,core_ns,core_frac
all,100000,40000,0.4
forward,100000,40000,0.4
""")


def test_each_phase_has_its_row_below_the_whole() -> None:
    events = [
        op(SDPA, 0, 10, Sequence_number=3),
        launch(5, 1),
        kernel(FLASH, 20, 10, 1),
        op("autograd::engine::evaluate_function: ScaledDotProductFlashAttentionBackward0", 50, 20, Sequence_number=3),
        op("aten::_scaled_dot_product_flash_attention_backward", 55, 10),
        launch(60, 2),
        kernel(FLASH.replace("fwd", "bwd"), 80, 30, 2),
        annotation("Optimizer.step#AdamW.step", 120, 30),
        *work("multi_tensor_apply_kernel", 140, 60, 3, op_name="aten::_foreach_add_"),
    ]
    table = ask("attention_share", *events)
    assert csv(table, "phase", "total_ns", "attention_ns", "attention_frac", "rest_ns", "pieces") == snapshot("""\
phase,total_ns,attention_ns,attention_frac,rest_ns,pieces
all,100000,40000,0.4,60000,2
optimizer,60000,0,0.0,60000,0
backward,30000,30000,1.0,0,1
forward,10000,10000,1.0,0,1
""")


def test_concurrent_streams_count_twice() -> None:
    events = [
        *work(FLASH, 20, 30, 1, op_name=SDPA, stream=7),
        *work(FLASH, 30, 30, 2, op_name=SDPA, stream=8),
    ]
    assert csv(ask("attention_share", *events), "phase", "total_ns", "attention_ns") == snapshot("""\
phase,total_ns,attention_ns
all,60000,60000
forward,60000,60000
""")


def test_a_run_without_attention_says_zero() -> None:
    table = ask(
        "attention_share", frame("nn.Module: Conv2d_0", 0, 50, 1), work("conv", 20, 30, 1, op_name="aten::conv2d")
    )
    assert csv(table, "phase", "attention_ns", "attention_frac", "core_ns", "core_frac", "pieces") == snapshot("""\
phase,attention_ns,attention_frac,core_ns,core_frac,pieces
all,0,0.0,0,0.0,0
forward,0,0.0,0,0.0,0
""")


def test_without_modules_the_share_is_a_lower_bound() -> None:
    assert notes(ask("attention_share", *work(FLASH, 20, 30, 1, op_name=SDPA))) == snapshot("""\
estimated: No nn.Module rows were recorded: attention that is not fused, and the projections around
a core, are told from order and shapes alone. Record with with_stack=True.
""")


def test_unlinked_work_is_rest_and_shown_beside_it() -> None:
    table = ask("attention_share", *decoder(), kernel("mystery", 250, 100, 99), kernel(FLASH, 400, 100, 98))
    assert csv(table, "phase", "total_ns", "attention_ns", "rest_ns", "unlinked_ns") == snapshot("""\
phase,total_ns,attention_ns,rest_ns,unlinked_ns
all,300000,160000,140000,100000
other,200000,100000,100000,100000
forward,100000,60000,40000,0
""")
    assert notes(table) == snapshot("""\
estimated: The role of 33.3 % of the time is not known (other, unlinked), and attention may be in
it: attention_ns is a lower bound.
warning: 66.7 % of device time has no op in the trace (see unlinked_kernels): its roles come from
kernel names and order.
""")


def test_a_selected_phase_is_the_whole() -> None:
    events = [*decoder(), annotation("Optimizer.step#AdamW.step", 300, 50)]
    events += work("multi_tensor_apply_kernel", 320, 60, 9, op_name="aten::_foreach_add_")
    table = ask("attention_share", *events, selection=only(phases=["forward"]))
    assert csv(table, "phase", "total_ns", "attention_frac") == snapshot("""\
phase,total_ns,attention_frac
all,100000,0.6
forward,100000,0.6
""")


def test_without_a_device_the_self_time_of_ops_counts() -> None:
    table = ask(
        "attention_share",
        frame("nn.Module: LlamaAttention_0", 0, 100, 1),
        op("aten::scaled_dot_product_attention", 10, 50),
        op("aten::_scaled_dot_product_flash_attention_for_cpu", 20, 30),
        op("aten::mul", 120, 50),
    )
    assert csv(table, "phase", "total_ns", "attention_ns", "core_ns", "pieces") == snapshot("""\
phase,total_ns,attention_ns,core_ns,pieces
all,100000,50000,30000,2
forward,100000,50000,30000,2
""")
    assert notes(table) == snapshot("""\
estimated: The role of 50.0 % of the time is not known (other, unlinked), and attention may be in
it: attention_ns is a lower bound.
info: No device was recorded: work is the self time of CPU ops.
""")


def test_attention_and_rest_are_the_total() -> None:
    with run(*decoder(), kernel("mystery", 250, 100, 99)) as opened:
        frame_ = opened.query("attention_share").frame
    assert (frame_["attention_ns"] + frame_["rest_ns"] == frame_["total_ns"]).all()
    assert frame_["total_ns"][0] == frame_["total_ns"][1:].sum()
