"""What attention's time is made of, on traces small enough to add up by eye, and on a real one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests import independent
from tests.build import Event, ask, csv, frame, kernel, launch, notes, only, op, trace_file, work

if TYPE_CHECKING:
    from pathlib import Path

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)"
SDPA = "aten::_scaled_dot_product_flash_attention"


def layer(number: int, at: float, core: float) -> list[Event]:
    """Make a decoder layer of 200 µs: 20 µs of projection and a core in attention, 40 µs in the MLP."""
    first = 10 * number + 1
    return [
        frame(f"nn.Module: LlamaDecoderLayer_{number}", at, 200, first),
        frame(f"nn.Module: LlamaAttention_{number}", at + 10, 80, first + 1, first),
        *work("gemm", at + 20, 20, first, op_name="aten::mm"),
        *work(FLASH, at + 50, core, first + 1, op_name=SDPA),
        frame(f"nn.Module: LlamaMLP_{number}", at + 100, 90, first + 2, first),
        *work("gemm", at + 120, 40, first + 2, op_name="aten::mm"),
    ]


def test_each_role_has_a_row_and_its_shares_of_attention_and_of_all() -> None:
    table = ask("attention_breakdown", layer(0, 0, 30), layer(1, 200, 50))
    assert csv(table) == snapshot("""\
layer,phase,role,layers,calls,total_ns,attention_frac,share_frac,certain_frac,likely_frac,inferred_frac
-,forward,attention.core,2,2,80000,0.6666666666666666,0.4,1.0,0.0,0.0
-,forward,attention.qkv_proj,2,2,40000,0.3333333333333333,0.2,0.0,1.0,0.0
""")
    assert notes(table) == snapshot(
        "exact: Attention takes 60.0 % of the time of all work: 0.120 ms, as far as its roles are known.\n"
    )


def test_by_layer_each_attention_module_has_its_own_rows_in_order() -> None:
    table = ask("attention_breakdown", layer(0, 0, 30), layer(1, 200, 50), by_layer=True)
    assert csv(table, "layer", "phase", "role", "layers", "calls", "total_ns", "attention_frac") == snapshot("""\
layer,phase,role,layers,calls,total_ns,attention_frac
0,forward,attention.core,1,1,30000,0.25
0,forward,attention.qkv_proj,1,1,20000,0.16666666666666666
1,forward,attention.core,1,1,50000,0.4166666666666667
1,forward,attention.qkv_proj,1,1,20000,0.16666666666666666
""")


def test_an_attention_module_inside_another_is_the_same_layer() -> None:
    table = ask(
        "attention_breakdown",
        frame("nn.Module: BertAttention_0", 0, 90, 1),
        frame("nn.Module: BertSelfAttention_0", 10, 60, 2, 1),
        work(FLASH, 30, 20, 1, op_name=SDPA),
        frame("nn.Module: BertAttention_1", 100, 90, 3),
        frame("nn.Module: BertSelfAttention_1", 110, 60, 4, 3),
        work(FLASH, 130, 10, 2, op_name=SDPA),
        by_layer=True,
    )
    assert csv(table, "layer", "role", "total_ns") == snapshot("""\
layer,role,total_ns
0,attention.core,20000
1,attention.core,10000
""")


def test_backward_work_is_in_the_layer_of_its_forward_op() -> None:
    events = [
        frame("nn.Module: LlamaAttention_0", 0, 40, 1),
        op(SDPA, 10, 10, Sequence_number=3),
        launch(15, 1),
        kernel(FLASH, 20, 10, 1),
        op("autograd::engine::evaluate_function: ScaledDotProductFlashAttentionBackward0", 50, 20, Sequence_number=3),
        op("aten::_scaled_dot_product_flash_attention_backward", 55, 10),
        launch(60, 2),
        kernel(FLASH.replace("fwd", "bwd"), 80, 30, 2),
    ]
    table = ask("attention_breakdown", *events, by_layer=True)
    assert csv(table, "layer", "phase", "role", "total_ns") == snapshot("""\
layer,phase,role,total_ns
0,backward,attention.core,30000
0,forward,attention.core,10000
""")
    assert ask("attention_breakdown", *events, selection=only(phases=["backward"])).frame["phase"].to_list() == [
        "backward"
    ]


def test_work_in_a_module_that_several_layers_call_is_in_the_layer_that_called_it() -> None:
    events = [
        frame("nn.Module: LlamaAttention_0", 0, 90, 1),
        frame("nn.Module: LlamaRotaryEmbedding_0", 10, 40, 2, 1),
        op("aten::cos", 20, 4, Sequence_number=3),
        launch(22, 1),
        kernel("cos", 25, 10, 1),
        frame("nn.Module: LlamaAttention_1", 100, 90, 3),
        frame("nn.Module: LlamaRotaryEmbedding_0", 110, 40, 4, 3),
        op("aten::cos", 120, 4, Sequence_number=4),
        launch(122, 2),
        kernel("cos", 125, 20, 2),
        op("autograd::engine::evaluate_function: CosBackward0", 250, 20, Sequence_number=4),
        op("aten::sin", 255, 10),
        launch(260, 3),
        kernel("sin", 280, 40, 3),
    ]
    table = ask("attention_breakdown", *events, by_layer=True)
    assert csv(table, "layer", "phase", "role", "total_ns") == snapshot("""\
layer,phase,role,total_ns
0,forward,attention.rope,10000
1,backward,attention.rope,40000
1,forward,attention.rope,20000
""")


def test_how_sure_roles_are_is_shares_of_their_time() -> None:
    frame_ = ask("attention_breakdown", layer(0, 0, 30), kernel(FLASH, 400, 100, 98)).frame
    sums = frame_["certain_frac"] + frame_["likely_frac"] + frame_["inferred_frac"]
    assert sums.to_list() == [1.0] * frame_.height
    core = frame_.filter(phase="forward", role="attention.core").row(0, named=True)
    assert (core["certain_frac"], core["layers"]) == (1.0, 1)
    unlinked = frame_.filter(phase="other").row(0, named=True)
    assert (unlinked["likely_frac"], unlinked["layers"]) == (1.0, 0)


def test_work_outside_of_recorded_attention_modules_has_no_layer_and_a_note_says_how_much() -> None:
    table = ask("attention_breakdown", layer(0, 0, 30), kernel(FLASH, 400, 50, 98), by_layer=True)
    assert csv(table, "layer", "role", "total_ns") == snapshot("""\
layer,role,total_ns
0,attention.core,30000
0,attention.qkv_proj,20000
-,attention.core,50000
""")
    assert "50.0 % of attention's time ran in no attention module" in notes(table)


def test_without_modules_there_are_no_layers_and_a_note_says_what_to_record() -> None:
    table = ask("attention_breakdown", work(FLASH, 20, 30, 1, op_name=SDPA), by_layer=True)
    assert csv(table, "layer", "layers", "total_ns") == snapshot("""\
layer,layers,total_ns
-,0,30000
""")
    assert notes(table) == snapshot("""\
exact: Attention takes 100.0 % of the time of all work: 0.030 ms, as far as its roles are known.
not_derivable: No layers: no nn.Module rows were recorded. The projections around a core, and
attention that is not fused, are told from order and shapes. Record with with_stack=True.
""")


def test_a_run_without_attention_has_no_rows_and_says_so() -> None:
    table = ask(
        "attention_breakdown", frame("nn.Module: Conv2d_0", 0, 50, 1), work("conv", 20, 30, 1, op_name="aten::conv2d")
    )
    assert table.frame.height == 0
    assert notes(table) == snapshot("""\
info: Nothing in the run, or in the selected part of it, matches.
not_derivable: No layers: no nn.Module class that was recorded is known to be attention.
""")


def test_without_a_device_the_self_time_of_ops_counts() -> None:
    table = ask(
        "attention_breakdown",
        frame("nn.Module: LlamaAttention_0", 0, 100, 1),
        op("aten::scaled_dot_product_attention", 10, 50),
        op("aten::_scaled_dot_product_flash_attention_for_cpu", 20, 30),
    )
    assert table.frame["total_ns"].sum() == 50_000


REAL = {"h100-qwen1.5-0.5b": ("Qwen2Attention", 24), "b200-vllm-eager": ("OAIAttention", 36)}
"""Traces, the class of their outermost attention modules, and how many there are."""


@pytest.mark.parametrize("name", REAL)
def test_layers_of_a_real_trace_have_the_work_launched_inside_their_modules(name: str, traces: Path) -> None:
    path = traces / f"{name}.json.gz"
    class_name, count = REAL[name]
    raw = independent.read(path.read_bytes())
    works = independent.device_work(raw)
    totals: dict[int, int] = defaultdict(int)
    cores: dict[int, int] = defaultdict(int)
    reduces = [op for op in independent.complete(raw, independent.OPS) if "all_reduce" in op["name"]]
    spans = [(independent.thread(op), independent.span(op)) for op in reduces]
    for piece, inner, modules in independent.places_of_work(raw, works):
        start = independent.span(inner).start
        if any(independent.thread(inner) == thread and one.start <= start < one.end for thread, one in spans):
            continue  # communication is none of it, nor are its copies
        for module in modules:
            if module.startswith(f"{class_name}_") and "all_reduce" not in piece.name:
                number = int(module.rpartition("_")[2])
                totals[number] += piece.duration
                cores[number] += piece.duration * ("flash_fwd_kernel" in piece.name or "fmhaSm" in piece.name)
    with trace_file(path) as opened:
        found = opened.query("attention_breakdown", by_layer=True).frame
        folded = opened.query("attention_breakdown").frame
    inside = found.filter(found["layer"].is_not_null())
    assert len(totals) == count
    assert dict(inside.group_by("layer").agg(pl.col("total_ns").sum()).iter_rows()) == totals
    core = inside.filter(role="attention.core")
    assert dict(core.select("layer", "total_ns").iter_rows()) == cores
    assert folded["total_ns"].sum() == found["total_ns"].sum()
    assert folded["calls"].sum() == found["calls"].sum()
    share = folded["total_ns"].sum() / sum(piece.duration for piece in works)
    assert abs(folded["share_frac"].sum() - share) < 1e-9
