"""Attention calls of ops typed by hand: what each kind says, and FLOPs and bytes beside a calculation by hand."""

from __future__ import annotations

import re
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.build import Event, annotation, frame, kernel, launch, op, recorded_step, step, tables
from tracekit.attention.calls.reading import rule_of
from tracekit.attention.knowledge import load

if TYPE_CHECKING:
    from collections.abc import Sequence

HALF, SINGLE, FP8 = "c10::BFloat16", "float", "c10::Float8_e4m3fn"
B, H, N, D = 2, 4, 16, 8
BHSD = [B, H, N, D]
BSHD = [B, N, H, D]
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)"
CAUSAL = N * (N + 1) // 2  # pairs of one head of one sequence
HIDDEN = "not_derivable"


def call(
    name: str,
    dims: Sequence[object],
    types: Sequence[str] | str = HALF,
    concrete: Sequence[str] = (),
    *,
    at: float = 0,
    lasts: float = 50,
    **args: Any,
) -> Event:
    """Make an op with shapes: where `types` is one type it is that of each tensor."""
    if isinstance(types, str):
        types = [types if shape else "" for shape in dims]
    values = [*concrete, *[""] * (len(dims) - len(concrete))]
    return op(name, at, lasts, Input_Dims=list(dims), Input_type=list(types), Concrete_Inputs=values, **args)


def sdpa(
    q: Sequence[int] = BHSD,
    k: Sequence[int] | None = None,
    v: Sequence[int] | None = None,
    *,
    mask: Sequence[int] = (),
    causal: bool = False,
    dtype: str = HALF,
    mask_type: str = "bool",
    at: float = 0,
    lasts: float = 50,
    **args: Any,
) -> Event:
    dims: list[Any] = [list(q), list(k or q), list(v or k or q), list(mask), [], [], [], []]
    types = [dtype] * 3 + [mask_type if mask else "", "Scalar", "Scalar", "", "Scalar"]
    concrete = ["", "", "", "", "0.", str(causal), "", "False"]
    return call("aten::scaled_dot_product_attention", dims, types, concrete, at=at, lasts=lasts, **args)


def flash(
    q: Sequence[int] = BHSD, *, causal: bool = False, at: float = 10, lasts: float = 30, dtype: str = HALF
) -> Event:
    concrete = ["", "", "", "0.", str(causal), "False", "0.125"]
    return call(
        "aten::_scaled_dot_product_flash_attention", [q, q, q, [], [], [], []], dtype, concrete, at=at, lasts=lasts
    )


def calls(*events: Event | list[Event], **rest: Any) -> pl.DataFrame:
    return tables(*events, **rest)["attention_call"]


def one(*events: Event | list[Event], **rest: Any) -> dict[str, Any]:
    found = calls(*events, **rest)
    assert found.height == 1
    return found.row(0, named=True)


def told(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


SIZES = ("b", "hq", "hkv", "nq", "nk", "d_qk", "d_v")
FIGURES = ("pairs", "pairs_status", "flops", "flops_status", "bytes", "bytes_status")

# --- scaled_dot_product_attention ------------------------------------------------------------------------------------


def test_sdpa_and_its_backend_are_one_call_with_the_kernel_in_it() -> None:
    made = tables(sdpa(causal=True), flash(causal=True), launch(20, 1), kernel(FLASH, 60, 7, 1))
    row = made["attention_call"].row(0, named=True)
    assert told(row, "implementation", "backend", "source", "phase", "mode") == (
        *("sdpa", "flash", "op", "forward", "prefill"),
    )
    assert told(row, *SIZES) == (B, H, H, N, N, D, D)
    assert told(row, "dtype", "is_causal", "causal_alignment", "mask_kind") == ("bfloat16", True, "top_left", "causal")
    assert told(row, "kernels", "launches", "device_ns", "host_ns") == (1, 1, 7000, 50_000)
    assert told(row, "tokens_q", "tokens_k", "is_varlen", "dropout") == (B * N, B * N, False, 0.0)
    assert told(row, *FIGURES) == (
        *(B * CAUSAL, "exact"),
        *(2 * H * B * CAUSAL * (D + D), "exact"),
        *(4 * B * H * N * D * 2, "exact"),
    )
    assert made["kernel"]["call_id"].to_list() == [0]
    assert made["op"].filter(pl.col("op_id") == row["op_id"])["name"].item() == "aten::scaled_dot_product_attention"


def test_autocast_leaves_two_wrappers_of_one_call_in_the_inner_type() -> None:
    row = one(sdpa(dtype=SINGLE), sdpa(at=5, lasts=40), flash())
    assert told(row, "dtype", "backend") == ("bfloat16", "flash")
    assert row["bytes"] == 4 * B * H * N * D * 2


def test_a_padded_head_dim_is_told_from_the_true_one() -> None:
    row = one(sdpa([B, H, N, 5]), flash([B, H, N, 8]))
    assert told(row, "d_qk", "d_v", "flops") == (5, 5, 2 * H * B * N * N * 10)


def test_compiled_code_has_the_backend_alone() -> None:
    assert told(one(flash(causal=True)), "implementation", "backend", "flops") == (
        *("sdpa", "flash", 2 * H * B * CAUSAL * (D + D)),
    )


@pytest.mark.parametrize(
    ("q", "k", "pairs", "keys"),
    [
        ([B, H, 1, D], [B, H, 9, D], 1, 1),  # top left: the only query sees the first key alone
        ([B, H, 4, D], [B, H, 9, D], 10, 4),
        ([B, H, 9, D], [B, H, 4, D], 10 + 5 * 4, 4),
    ],
)
def test_a_causal_mask_starts_at_the_first_key(q: list[int], k: list[int], pairs: int, keys: int) -> None:
    row = one(sdpa(q, k, causal=True))
    assert told(row, "pairs", "causal_alignment") == (B * pairs, "top_left")
    assert row["bytes"] == 2 * (2 * B * H * q[2] * D + 2 * B * H * keys * D)


def test_grouped_heads_move_fewer_keys() -> None:
    row = one(sdpa(BHSD, [B, 2, N, D]))
    assert told(row, "hq", "hkv", "flops") == (4, 2, 2 * 4 * B * N * N * 16)
    assert row["bytes"] == 2 * (2 * B * 4 * N * D + 2 * B * 2 * N * D)


def test_values_may_have_a_head_dim_of_their_own() -> None:
    row = one(sdpa(BHSD, BHSD, [B, H, N, 6]))
    assert told(row, "d_qk", "d_v", "flops") == (8, 6, 2 * H * B * N * N * 14)
    assert row["bytes"] == 2 * B * H * N * (8 + 8 + 6 + 6)


def test_a_dense_mask_makes_the_count_a_bound_and_is_read() -> None:
    row = one(sdpa(mask=[B, 1, N, N]))
    assert told(row, "mask_kind", "mask_bytes", "pairs", "pairs_least", "pairs_status") == (
        *("boolean", B * N * N, B * N * N, 0, "estimated"),
    )
    assert told(row, "bytes", "bytes_status") == (4 * B * H * N * D * 2 + B * N * N, "exact")
    assert told(one(sdpa(mask=[N, N], mask_type=HALF)), "mask_kind", "mask_bytes") == ("additive", 2 * N * N)


def test_repeated_dims_of_a_mask_are_read_once() -> None:
    strides = [[512, 128, 8, 1]] * 3 + [[0, 0, N, 1]] + [[]] * 4
    assert one(sdpa(mask=[*BHSD[:2], N, N], Input_Strides=strides))["mask_bytes"] == N * N


def test_math_of_half_types_runs_in_single() -> None:
    dims = [BHSD, BHSD, BHSD, [], [], [], [], [], []]
    concrete = ["", "", "", "", "0.1", "False", "", "", "False"]
    math = call("aten::_scaled_dot_product_attention_math", dims, HALF, concrete, at=5, lasts=40)
    product = call("aten::bmm", [[B * H, N, D], [B * H, D, N]], SINGLE, at=10, lasts=5)
    row = one(sdpa(), math, product)
    assert told(row, "backend", "dtype", "bytes") == ("math", "float32", 4 * B * H * N * D * 2)


def test_backward_is_a_call_of_its_own_of_the_true_head_dim() -> None:
    forward = [sdpa([B, H, N, 5], causal=True, Sequence_number=3), flash(causal=True)]
    dims = [BHSD] * 5 + [[B, H, N]] + [[]] * 9
    concrete = ["", "", "", "", "", "", "", "", "16", "16", "0.", "True", "", "", "0.1"]
    back = call("aten::_scaled_dot_product_flash_attention_backward", dims, HALF, concrete, at=110, lasts=20)
    node = op("ScaledDotProductFlashAttentionBackward0", 100, 40, tid=9, Sequence_number=3, Fwd_thread_id=1)
    found = calls(*forward, node, back | {"tid": 9})
    assert found["phase"].to_list() == ["forward", "backward"]
    assert found["mode"].to_list() == ["train", "train"]
    row = found.row(1, named=True)
    assert told(row, "d_qk", "backend", "is_causal") == (5, "flash", True)
    assert row["flops"] == 2 * H * B * CAUSAL * (3 * 5 + 2 * 5)
    assert row["bytes"] == 8 * B * H * N * 5 * 2 + 4 * B * H * N


def test_autograd_nodes_of_a_call_without_a_backward_op_are_its_backward() -> None:
    dims = [BHSD, BHSD, BHSD, [], [], [], [], [], []]
    concrete = ["", "", "", "", "0.1", "False", "", "", "False"]
    math = call("aten::_scaled_dot_product_attention_math", dims, SINGLE, concrete, at=5, lasts=40)
    forward = [sdpa(dtype=SINGLE), math]
    forward += [op("aten::bmm", at, 2, Sequence_number=at) for at in (10, 20)]
    nodes = [op("BmmBackward0", 200 - at, 5, tid=9, Sequence_number=at, Fwd_thread_id=1) for at in (20, 10)]
    found = calls(*forward, *nodes)
    assert found.select("phase", "source", "backend", "host_ns").rows() == [
        ("forward", "op", "math", 50_000),
        ("backward", "autograd", "math", 10_000),
    ]
    assert found["flops"].to_list() == [2 * H * B * N * N * 16, 2 * H * B * N * N * 32]  # nothing is computed anew


# --- packed, paged, of other libraries ---------------------------------------------------------------------------------


def flash_attn_3(tokens: int, sequences: int, longest: int, window: int = -1, at: float = 0) -> Event:
    packed = [tokens, 6, 16]
    dims: list[Any] = [packed] * 3 + [[]] * 4 + [[sequences + 1]] * 2 + [[]] * 25
    concrete = [""] * 12 + [str(longest)] * 2 + [""] * 9 + ["0.1", "True", str(window), "0"]
    return call("flash_attn_3::fwd", dims, HALF, concrete, at=at)


def test_packed_sequences_have_bounds() -> None:
    row = one(flash_attn_3(100, 4, 40))
    assert told(row, "implementation", "b", "nq", "nk", "tokens_q", "tokens_k", "is_varlen") == (
        *("flash_attn_3", 4, 40, 40, 100, 100, True),
    )
    triangle = [size * (size + 1) // 2 for size in range(41)]
    assert told(row, "pairs", "pairs_least", "pairs_status", "flops_status") == (
        *(2 * triangle[40] + triangle[20], triangle[40] + 3 * triangle[20], "estimated", "estimated"),
    )
    assert told(row, "bytes", "bytes_status") == (4 * 100 * 6 * 16 * 2, "exact")
    assert one(flash_attn_3(100, 4, 40, 0))["pairs"] == 100  # each sees itself alone
    assert one(flash_attn_3(160, 4, 40))["pairs_status"] == "exact"  # all are as long as the longest


def test_packed_sequences_of_the_efficient_kernel_have_a_dim_of_one_before_them() -> None:
    dims: list[Any] = [[1, 100, H, D]] * 3 + [[], [5], [5]] + [[]] * 8
    concrete = ["", "", "", "", "", "", "40", "40", "0.", "1", "False", "", "", ""]
    row = one(call("aten::_efficient_attention_forward", dims, HALF, concrete))
    assert told(row, "backend", "b", "nq", "tokens_q", "tokens_k", "is_causal") == ("efficient", 4, 40, 100, 100, True)
    assert told(row, "pairs", "bytes") == (2 * 820 + 210, 4 * 100 * H * D * 2)


def test_a_window_that_ends_at_its_own_key_is_a_causal_mask() -> None:
    dims: list[Any] = [[100, H, D]] * 3 + [[5], [5]] + [[]] * 6
    concrete = ["", "", "", "", "", "40", "40", "False", "", "[-1, 0]", "False"]
    row = one(call("torch_attn::_varlen_attn", dims, HALF, concrete))
    assert told(row, "implementation", "is_causal", "mask_kind", "pairs") == (
        "varlen_attn",
        True,
        "causal",
        2 * 820 + 210,
    )


def test_true_lengths_make_packed_sequences_exact() -> None:
    facts = {"facts_version": 1, "steps": [{"number": 1, "lengths": [40, 30, 20, 10], "padded_length": 40}]}
    row = one(recorded_step(1, 0, 100), flash_attn_3(100, 4, 40, at=10), facts=facts)
    pairs = sum(size * (size + 1) // 2 for size in (40, 30, 20, 10))
    assert told(row, "pairs", "pairs_least", "pairs_status") == (pairs, pairs, "exact")
    assert told(row, "flops", "flops_status") == (2 * 6 * pairs * 32, "exact")
    other = {"facts_version": 1, "steps": [{"number": 1, "lengths": [40, 30, 20], "padded_length": 40}]}
    assert one(recorded_step(1, 0, 100), flash_attn_3(100, 4, 40, at=10), facts=other)["pairs_status"] == "estimated"


def test_flash_attn_aligns_its_mask_at_the_last_key() -> None:
    dims: list[Any] = [[B, 4, H, D], [B, 9, 2, D], [B, 9, 2, D]] + [[]] * 8
    concrete = ["", "", "", "0.", "0.1", "True", "-1", "-1", "0.", "", "False"]
    row = one(call("flash_attn::_flash_attn_forward", dims, HALF, concrete))
    assert told(row, "implementation", "causal_alignment", *SIZES) == (
        "flash_attn",
        "bottom_right",
        B,
        4,
        2,
        4,
        9,
        8,
        8,
    )
    assert row["pairs"] == B * (4 * 9 - 4 * 3 // 2)


def test_keys_in_a_cache_are_not_counted() -> None:
    dims: list[Any] = [[88, 8, 64], [88, 1, 64], [88, 1, 64], [88, 8, 64], [], [], []]
    types = [FP8, HALF, HALF, HALF, "", "", ""]
    row = one(call("vllm::unified_attention_with_output", dims, types))
    assert told(row, "implementation", "hq", "hkv", "d_qk", "dtype", "tokens_q", "is_varlen") == (
        *("vllm", 8, 1, 64, "float8_e4m3fn", 88, True),
    )
    assert told(row, "b", "nq", "nk", "tokens_k", "mode", *FIGURES) == (*[None] * 5, *[None, HIDDEN] * 3)


def test_an_op_within_a_serving_engines_adds_what_it_knows() -> None:
    outer = call("vllm::unified_attention", [[88, 8, 64], [88, 2, 64], [88, 2, 64], []])
    inner = flash_attn_3(88, 8, 11) | {"ts": 5, "dur": 10}
    assert told(one(outer, inner), "implementation", "b", "nq") == ("vllm", 8, 11)


@pytest.mark.parametrize(
    ("op_name", "kernel_name", "role"),
    [
        ("_C_cache_ops::reshape_and_cache_flash", "vllm::reshape_and_cache_flash_kernel", "attention.kv_cache"),
        ("_C::rotary_embedding", "vllm::rotary_embedding_kernel", "attention.rope"),
        ("_C::static_scaled_fp8_quant", "vllm::scaled_fp8_quant_kernel_strided", "attention.other"),
    ],
)
def test_what_a_vendors_op_does_beside_the_attention_is_not_the_calls(
    op_name: str, kernel_name: str, role: str
) -> None:
    fmha = "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext"
    made = tables(
        call("vllm::unified_attention_with_output", [[88, 8, 64], [88, 2, 64], [88, 2, 64], []], lasts=30),
        op(op_name, 2, 10),
        *[launch(4, 1), kernel(kernel_name, 40, 3, 1)],
        *[launch(20, 2), kernel(fmha, 50, 9, 2)],
    )
    row = made["attention_call"].row(0, named=True)
    assert told(row, "kernels", "launches", "device_ns", "backend") == (1, 1, 9000, "trtllm_fmha")
    assert made["kernel"].select("role", "call_id").rows() == [(role, None), ("attention.core", 0)]


def test_one_query_a_sequence_is_decode_and_sees_all_its_keys() -> None:
    dims: list[Any] = [[5, H, D], [90, H, D], [90, H, D], [6], [6]] + [[]] * 14
    concrete = ["", "", "", "", "", "1", "40", "0.", "0.1", "True", "-1", "-1", "0."]
    row = one(call("flash_attn::_flash_attn_varlen_forward", dims, HALF, concrete))
    assert told(row, "mode", "b", "nq", "pairs", "pairs_status") == ("decode", 5, 1, 90, "exact")


def test_the_fast_path_of_multihead_attention_is_its_products_without_its_projections() -> None:
    dims: list[Any] = [[B, N, 32]] * 3 + [[], [], [96, 32], [96], [32, 32], [32], [], [], [], []]
    concrete = ["", "", "", "32", "4", "", "", "", "", "", "True", "True", ""]
    around = call("aten::_native_multi_head_attention", dims, SINGLE, concrete, lasts=100)
    inside = [
        [op(name, at, 8), launch(at + 2, at), kernel(f"kernel {at}", 200 + at, 1, at)]
        for name, at in (("aten::addmm", 10), ("aten::bmm", 20), ("aten::_masked_softmax", 30), ("aten::bmm", 40))
    ]
    row = one(around, *inside)
    assert told(row, "implementation", *SIZES) == ("mha_fast_path", B, 4, 4, N, N, 8, 8)
    assert told(row, "kernels", "flops") == (3, 2 * 4 * B * N * N * 16)


def test_flex_attention_has_sizes_but_its_mask_is_not_in_the_trace() -> None:
    row = one(call("FlexAttentionAutogradOp", [BHSD, BHSD, BHSD, [], []]))
    assert told(row, "implementation", *SIZES) == ("flex", B, H, H, N, N, D, D)
    assert told(row, "pairs_status", "flops_status", "bytes_status") == (HIDDEN, HIDDEN, "exact")


@pytest.mark.parametrize(
    ("name", "shapes", "is_call"),
    [
        ("customflash::custom_flash_aligned", [BHSD, BHSD, BHSD], True),
        ("acme::attention_fwd", [[], BSHD, [B, N, 2, D], [B, N, 2, D]], True),
        ("acme::attention_fwd", [BHSD, BHSD], False),
        ("acme::attention_fwd", [BHSD, [B, H, N, 7], BHSD], False),
        ("acme::flash_cache_clean", [[5], [6], [7]], False),
        ("acme::matmul_of_three", [BHSD, BHSD, BHSD], False),
    ],
)
def test_an_op_nobody_knows_is_a_call_by_name_and_shapes(name: str, shapes: list[Any], is_call: bool) -> None:  # noqa: FBT001
    found = calls(call(name, shapes))
    assert found["implementation"].to_list() == ["generic"] * is_call
    assert set(found["flops_status"]) <= {HIDDEN}


def test_an_annotation_is_no_call() -> None:
    assert calls(annotation("flash_attention", 0, 10, Input_Dims=[BHSD] * 3)).is_empty()


# --- chains ----------------------------------------------------------------------------------------------------------------


def chain(*between: Event, h: int = H, dtype: str = HALF) -> list[Event]:
    scores = [B, h, N, N]
    return [
        call("aten::matmul", [[B, h, N, D], [B, h, D, N]], dtype, at=0, lasts=9),
        call("aten::bmm", [[B * h, N, D], [B * h, D, N]], dtype, at=3, lasts=5),
        *between,
        call("aten::softmax", [scores, [], []], dtype, at=50, lasts=9),
        call("aten::matmul", [scores, [B, h, N, D]], dtype, at=80, lasts=9),
        call("aten::bmm", [[B * h, N, N], [B * h, N, D]], dtype, at=83, lasts=5),
    ]


def test_a_chain_is_one_call_with_all_that_lies_between() -> None:
    scale = call("aten::mul", [[B, H, N, N], []], HALF, at=20, lasts=9)
    work = [[launch(at, at), kernel(f"kernel {at}", 100 + at, 2, at)] for at in (4, 21, 51, 84)]
    made = tables(*chain(scale), *work)
    row = made["attention_call"].row(0, named=True)
    assert told(row, "implementation", "backend", "source", *SIZES) == ("naive", None, "chain", B, H, H, N, N, D, D)
    assert told(row, "kernels", "device_ns", "host_ns", "mask_kind", "is_causal") == (4, 8000, 36_000, "none", False)
    assert told(row, "flops", "bytes") == (2 * H * B * N * N * 16, 4 * B * H * N * D * 2)
    assert made["kernel"]["call_id"].to_list() == [0] * 4


@pytest.mark.parametrize(
    ("name", "dims", "types", "kind", "size"),
    [
        ("aten::masked_fill", [[B, H, N, N], [N, N], []], [HALF, "bool", ""], "boolean", N * N),
        ("aten::add", [[B, H, N, N], [B, 1, N, N], []], [HALF, SINGLE, ""], "additive", 4 * B * N * N),
        ("aten::add", [[B, H, N, N], [B, 1, 1, N], []], [HALF, HALF, ""], "additive", 2 * B * N),
        ("aten::where", [[N, N], [N, N], [N, N]], ["bool", "float", "float"], "none", None),  # not over the scores
    ],
)
def test_a_mask_in_a_chain_is_seen(name: str, dims: list[Any], types: list[str], kind: str, size: int | None) -> None:
    row = one(*chain(call(name, dims, types, at=20, lasts=9)))
    assert told(row, "mask_kind", "mask_bytes") == (kind, size)
    assert told(row, "flops_status", "is_causal") == (("exact", False) if kind == "none" else ("estimated", None))


def test_dropout_in_a_chain_is_seen() -> None:
    dropped = call("aten::dropout", [[B, H, N, N], [], []], HALF, ["", "0.25", "True"], at=62, lasts=9)
    assert one(*chain(dropped))["dropout"] == 0.25
    kept = call("aten::dropout", [[B, H, N, N], [], []], HALF, ["", "0.25", "False"], at=62, lasts=9)
    assert one(*chain(kept))["dropout"] == 0.0


def test_sequences_and_heads_that_lie_in_one_dim_are_not_told_apart() -> None:
    flat = [event for event in chain() if event["name"] == "aten::bmm"]
    softmax = call("aten::softmax", [[B * H, N, N], [], []], HALF, at=50, lasts=9)
    row = one(flat[0], softmax, flat[1])
    assert told(row, "b", "hq", "pairs_status") == (None, None, HIDDEN)
    assert told(row, "flops", "flops_status") == (2 * H * B * N * N * 16, "exact")
    view = call("aten::view", [[B * H, N, D], []], HALF, ["", f"[{B}, {H}, {N}, {D}]"], at=95, lasts=1)
    assert told(one(flat[0], softmax, flat[1], view), "b", "hq", "pairs") == (B, H, B * N * N)


def decode_chain(queries: list[int], viewed: list[int], keys: list[int], *, moves_heads: bool = True) -> list[Event]:
    """Make a chain whose scores have a row for each query head that shares a key head, its keys as a cache has them."""
    *batch, rows, d = viewed
    many, swapped, flat = keys[-3], [*keys[:-3], keys[-2], keys[-3], d], prod(batch)
    name = "aten::transpose" if moves_heads else "aten::contiguous"
    return [
        call("aten::view", [queries, []], HALF, ["", str([*batch, -1, d])], at=0, lasts=1),
        call(name, [keys, [], []], HALF, ["", "-3", "-2"], at=2, lasts=1),
        call("aten::transpose", [swapped, [], []], HALF, ["", "-2", "-1"], at=4, lasts=1),
        call("aten::matmul", [viewed, [*batch, d, many]], HALF, at=6, lasts=3),
        call("aten::bmm", [[flat, rows, d], [flat, d, many]], HALF, at=7, lasts=1),
        call("aten::softmax", [[*batch, rows, many], [], []], HALF, at=10, lasts=1),
        call("aten::matmul", [[*batch, rows, many], [*batch, many, d]], HALF, at=12, lasts=3),
        call("aten::bmm", [[flat, rows, many], [flat, many, d]], HALF, at=13, lasts=1),
    ]


@pytest.mark.parametrize(
    ("queries", "viewed", "keys", "b"),
    [
        ([16, 64], [8, 2, 64], [17, 8, 64], 1),
        ([3, 16, 64], [3, 8, 2, 64], [3, 17, 8, 64], 3),
        ([3, 1, 16, 64], [3, 8, 2, 64], [3, 17, 8, 64], 3),
    ],
)
def test_rows_that_are_heads_sharing_keys_are_one_query(
    queries: list[int], viewed: list[int], keys: list[int], b: int
) -> None:
    row = one(*decode_chain(queries, viewed, keys))
    assert told(row, "mode", "b", "hq", "hkv", "nq", "nk", "tokens_q", "tokens_k") == (
        "decode",
        b,
        16,
        8,
        1,
        17,
        b,
        17 * b,
    )
    assert told(row, "pairs", "flops") == (17 * b, 2 * 16 * 17 * b * 128)
    assert row["bytes"] == 2 * b * (2 * 16 * 64 + 2 * 17 * 8 * 64)


def test_rows_that_may_be_tokens_are_not_taken_for_heads() -> None:
    row = one(*decode_chain([16, 64], [8, 2, 64], [17, 8, 64], moves_heads=False))
    assert told(row, "mode", "nq", "nk") == ("prefill", 2, 17)
    row = one(*decode_chain([2, 8, 64], [8, 2, 64], [17, 8, 64]))
    assert told(row, "mode", "nq") == ("prefill", 2)


# --- kernels that no op tells of, places, faults ------------------------------------------------------------------------


def test_kernels_alone_make_a_call_without_shapes_unless_their_launch_is_lost() -> None:
    graph = [launch(10, 1, name="cudaGraphLaunch"), *(kernel(FLASH, 20 + 10 * at, 5, 1) for at in range(2))]
    between = kernel("ampere_sgemm", 26, 2, 1)
    found = calls(*graph, between)
    assert (
        found.select("implementation", "backend", "source", "op_id", "kernels", "flops_status").rows()
        == [("sdpa", "flash", "kernel", None, 1, HIDDEN)] * 2
    )
    assert calls(kernel(FLASH, 20, 5)).is_empty()


def test_layer_module_and_step_are_those_of_the_op() -> None:
    block = [frame("nn.Module: LlamaDecoderLayer_7", 1, 80, 1), frame("nn.Module: LlamaAttention_3", 2, 70, 2, 1)]
    made = tables(step(4, 0, 100), *block, sdpa(at=10, lasts=20))
    row = made["attention_call"].row(0, named=True)
    assert row["layer"] == 7
    assert made["module"].filter(pl.col("module_id") == row["module_id"])["class_name"].item() == "LlamaAttention"
    assert made["step"].filter(pl.col("step_id") == row["step_id"])["number"].item() == 4


def test_decode_is_one_query_a_sequence() -> None:
    found = calls(sdpa([B, H, 1, D], [B, H, 9, D]), sdpa(at=100))
    assert found["mode"].to_list() == ["decode", "prefill"]


@pytest.mark.parametrize(
    "event",
    [
        op("aten::scaled_dot_product_attention", 0, 5),  # nothing recorded
        sdpa([]),  # nested tensors have no dims
        sdpa(BHSD, [B, 3, N, D]),  # heads that don't divide
        sdpa(BHSD, [B, H, N, 7]),  # head dims that differ
        sdpa(BHSD, [3, H, N, D]),  # batches that differ
        sdpa(BHSD, BHSD, [B, H, N + 1, D]),  # keys without values
        sdpa(BHSD, [N, D]),
        sdpa([B, H, -N, D]),  # no size at all
        call("aten::scaled_dot_product_attention", [BHSD] * 30),  # more inputs than any release has
        op("aten::scaled_dot_product_attention", 0, 5, Input_Dims="[[1", Input_type=7, Concrete_Inputs={}),
        sdpa([2**40, 2**40, 2**40, 8]),  # counts beyond 64 bits
    ],
)
def test_what_contradicts_itself_or_is_missing_is_null_with_a_status(event: Event) -> None:
    row = one(event)
    assert row["implementation"] == "sdpa"
    assert told(row, "pairs", "pairs_status", "flops", "flops_status") == (None, HIDDEN) * 2


def test_nothing_is_exact_about_nothing() -> None:
    row = one(sdpa([B, H, 0, D], BHSD))
    assert told(row, "pairs", "flops", "bytes", "flops_status") == (0, 0, 0, "exact")


def test_an_unknown_type_hides_the_bytes_alone() -> None:
    assert told(one(sdpa(dtype="c10::Weird")), "dtype", *FIGURES[2:]) == (
        *(None, 2 * H * B * N * N * 16, "exact", None, HIDDEN),
    )


def test_a_row_of_the_knowledge_is_found_by_its_own_example() -> None:
    for row in load("calls/calls")["call"]:
        assert re.fullmatch(row["pattern"], row["example"])
        rule = rule_of(row["example"])
        assert rule is not None
        assert (rule.implementation, rule.backend, rule.is_backward) == (
            *(row.get("implementation"), row.get("backend"), row.get("is_backward", False)),
        )
        assert row["source"]


def test_calls_are_numbered_by_their_start() -> None:
    numbers = count()
    found = calls(*(sdpa(at=100 * next(numbers)) for _ in range(3)), flash([3, H, N, D], at=1000))
    assert found["call_id"].to_list() == [0, 1, 2, 3]
    assert found["start_ns"].is_sorted()
