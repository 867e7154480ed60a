"""What attention ran on which shapes, on traces small enough to add up by eye."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.build import Event, ask, csv, kernel, launch, notes, only, op, step

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)"
SHAPE = [2, 4, 100, 50]


def sdpa(at: int, number: int, spent: int, *, causal: bool = False, shape: list[int] | None = None) -> list[Event]:
    """Make an SDPA of 2 sequences, 4 heads, 100 tokens and head dim 50, by one kernel of so many µs."""
    dims = [shape or SHAPE] * 3 + [[]] * 5
    types = ["c10::BFloat16"] * 3 + ["", "Scalar", "Scalar", "", "Scalar"]
    concrete = ["", "", "", "", "0.", str(causal), "", "False"]
    around = op(
        "aten::scaled_dot_product_attention", at, 9, Input_Dims=dims, Input_type=types, Concrete_Inputs=concrete
    )
    inner = op(
        "aten::_scaled_dot_product_flash_attention", at + 1, 7,
        Input_Dims=dims[:7], Input_type=[*types[:3], *["Scalar"] * 4], Concrete_Inputs=["", "", "", "0.", str(causal)],
    )  # fmt: skip
    return [around, inner, launch(at + 2, number), kernel(FLASH, at + 20, spent, number)]


def flash_attn(at: int, number: int) -> list[Event]:
    """Make a packed call of 3 sequences with 100 tokens, at most 50 long, by a kernel of 10 µs."""
    dims = [[100, 2, 64]] * 3 + [[4], [4]] + [[]] * 13
    concrete = ["", "", "", "", "", "50", "50", "0.", "0.125", "True", "-1", "-1", "0."]
    types = ["c10::Half"] * 3 + ["int"] * 2 + [""] * 13
    name = "flash_attn::_flash_attn_varlen_forward"
    around = op(name, at, 9, Input_Dims=dims, Input_type=types, Concrete_Inputs=concrete)
    return [around, launch(at + 2, number), kernel("void flash::flash_fwd_kernel<1>()", at + 20, 10, number)]


def test_calls_of_one_signature_are_a_row_with_their_rates() -> None:
    table = ask("attention_calls", sdpa(0, 1, 30), sdpa(100, 2, 10), sdpa(200, 3, 20, causal=True))
    # 2 * 4 * 2 * 100 * 100 * 100 = 16 MFLOP a call and 4 * 2 * 4 * 100 * 50 * 2 bytes; causal 5050 of 10000 pairs.
    assert csv(
        table, "implementation", "backend", "b", "hq", "nq", "d_qk", "dtype", "is_causal", "calls", "total_ns",
        "share_frac", "mean_ns", "kernels", "call_flops", "pairs_counted", "call_bytes", "achieved_flops_per_s",
        "achieved_bytes_per_s",
    ) == snapshot("""\
implementation,backend,b,hq,nq,d_qk,dtype,is_causal,calls,total_ns,share_frac,mean_ns,kernels,call_flops,pairs_counted,call_bytes,achieved_flops_per_s,achieved_bytes_per_s
sdpa,flash,2,4,100,50,bfloat16,false,2,40000,0.6666666666666666,20000.0,2,16000000.0,full,320000.0,800000000000.0,16000000000.0
sdpa,flash,2,4,100,50,bfloat16,true,1,20000,0.3333333333333333,20000.0,1,8080000.0,causal,320000.0,404000000000.0,16000000000.0
""")  # fmt: skip
    assert notes(table) == snapshot("""\
info: FLOPs count only pairs that no causal mask or window hides: 2 hq pairs (d_qk + d_v) forward,
softmax left out. A full count would be up to twice that of a causal call.
""")


def test_a_bound_says_so() -> None:
    table = ask("attention_calls", flash_attn(0, 1))
    assert csv(
        table, "implementation", "backend", "b", "nq", "is_varlen", "call_flops", "flops_status", "pairs_counted",
        "bytes_status",
    ) == snapshot("""\
implementation,backend,b,nq,is_varlen,call_flops,flops_status,pairs_counted,bytes_status
flash_attn,flash_attention_2,3,50,true,1305600.0,estimated,at most,exact
""")  # fmt: skip
    assert notes(table) == snapshot("""\
info: FLOPs count only pairs that no causal mask or window hides: 2 hq pairs (d_qk + d_v) forward,
softmax left out. A full count would be up to twice that of a causal call.
estimated: FLOPs of 1 of 1 calls are an upper bound: the lengths of packed sequences, or what a
dense mask hides, are not recorded.
estimated: FLOPs of 1 packed calls are at most 32 % above the least that their totals allow.
""")


def test_calls_without_shapes_or_kernels_say_what_is_missing() -> None:
    bare = op("aten::scaled_dot_product_attention", 0, 9)
    table = ask("attention_calls", bare, launch(5, 8, tid=2), kernel("gemm", 50, 5, 8))
    assert csv(table, "implementation", "calls", "total_ns", "call_flops", "flops_status") == snapshot("""\
implementation,calls,total_ns,call_flops,flops_status
sdpa,1,-,-,not_derivable
""")
    assert notes(table) == snapshot("""\
not_derivable: FLOPs of 1 of 1 calls: shapes were not recorded, the mask is not known, or the keys
lie in a cache whose lengths are not in the trace.
warning: 1 of 1 calls have no device work in the trace, so no time and no rate.
warning: 100.0 % of device time has no op in the trace (see unlinked_kernels): its roles come from
kernel names and order.
""")


def test_without_a_device_time_is_that_of_the_host() -> None:
    table = ask("attention_calls", sdpa(0, 1, 30)[:2])
    assert table.frame["total_ns"].to_list() == [9000]
    assert table.frame["achieved_flops_per_s"].to_list() == [pytest.approx(16e6 / 9e-6)]


def test_steps_and_phases_select_calls() -> None:
    events = [step(1, 0, 90), sdpa(0, 1, 30), step(2, 100, 90), sdpa(100, 2, 10)]
    assert ask("attention_calls", *events, selection=only(steps=[2])).frame["calls"].to_list() == [1]
    assert ask("attention_calls", *events, selection=only(phases=["backward"])).frame.is_empty()
    assert ask("attention_calls", *events, top=1).frame["calls"].to_list() == [2]


def test_shares_sum_to_one() -> None:
    table = ask("attention_calls", sdpa(0, 1, 30), sdpa(100, 2, 10, causal=True), flash_attn(200, 3))
    assert table.frame["share_frac"].sum() == pytest.approx(1)


def test_calls_that_kernels_alone_tell_of_say_so() -> None:
    graph = [launch(0, 1, name="cudaGraphLaunch"), *(kernel(FLASH, 20 * at, 5, 1) for at in range(1, 4))]
    table = ask("attention_calls", *graph, *(kernel("ampere_sgemm", 20 * at + 10, 5, 1) for at in range(1, 4)))
    assert table.frame.select("implementation", "backend", "calls", "kernels").rows() == [("sdpa", "flash", 3, 3)]
    assert "estimated: 3 of 3 calls are told by their kernels alone" in notes(table)
