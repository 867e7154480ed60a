"""What order and shapes tell where nothing else does, and what they must not tell."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.attention.roles.cores import Product, Unit, cores_of, product_of
from tracekit.attention.roles.order import read
from tracekit.loading import tables_of

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from tracekit.attention.roles.cores import Shape

B, S, HEADS, DIM = 2, 16, 4, 8
WIDTH = HEADS * DIM
TOKENS = (B, S, WIDTH)
HEADED = (B, HEADS, S, DIM)


def linear(n: int, k: int = WIDTH, rows: int = B * S, *, backward: bool = False) -> Unit:
    return Unit(0, "aten::mm", "gemm", None, ((rows, k), (k, n)), backward)


def unit(action: str, *shapes: Shape, name: str = "", known: str | None = None, backward: bool = False) -> Unit:
    return Unit(0, name or action, action, known, shapes, backward)


SDPA = unit("attention", HEADED, HEADED, HEADED, name="aten::scaled_dot_product_attention", known="attention.core")
NORM = unit("norm", TOKENS, known="norm")
SUM = unit("elementwise", TOKENS, TOKENS, name="aten::add")
COPY = unit("copy", TOKENS)
GELU = unit("activation", (B, S, 4 * WIDTH))


def told(*units: Unit) -> list[str | None]:
    found = read(units)
    return [found[place].role if place in found else None for place in range(len(units))]


BLOCK = [
    NORM, linear(3 * WIDTH), COPY, SDPA, COPY, linear(WIDTH), SUM,
    NORM, linear(4 * WIDTH), GELU, linear(WIDTH, 4 * WIDTH), SUM,
]  # fmt: skip
BLOCK_ROLES = [
    None, "attention.qkv_proj", "attention.layout", None, "attention.layout", "attention.out_proj", "residual",
    None, "mlp", "mlp", "mlp", "residual",
]  # fmt: skip


@given(st.integers(1, 4))
def test_every_block_of_a_transformer_is_read_alike(blocks: int) -> None:
    assert told(*BLOCK * blocks) == BLOCK_ROLES * blocks


@pytest.mark.parametrize(
    ("projections", "keys"),
    [
        ([3 * WIDTH], HEADED),
        ([WIDTH, WIDTH, WIDTH], HEADED),
        ([WIDTH, 2 * WIDTH], HEADED),
        ([WIDTH, DIM, DIM], (B, 1, S, DIM)),
        ([WIDTH + 2 * DIM], (B, 1, S, DIM)),
        ([WIDTH, 2 * DIM], (B, 1, S, DIM)),
    ],
)
def test_queries_keys_and_values_come_of_as_many_linears_as_their_widths_say(
    projections: list[int], keys: Shape
) -> None:
    core = SDPA._replace(shapes=(HEADED, keys, keys))
    before = [linear(WIDTH), *map(linear, projections)]  # the first one makes nothing that the core takes
    before[0] = linear(WIDTH, 4 * WIDTH)
    roles = told(*before, core, linear(WIDTH))
    assert roles == [None, *["attention.qkv_proj"] * len(projections), None, "attention.out_proj"]


def test_a_linear_that_does_not_fit_is_no_projection() -> None:
    assert told(linear(5 * WIDTH), SDPA, linear(WIDTH, 7 * WIDTH)) == [None, None, None]


def test_a_norm_between_the_projections_and_the_core_is_of_queries_and_keys() -> None:
    qk_norm = unit("norm", HEADED)
    assert told(NORM, linear(3 * WIDTH), qk_norm, SDPA, linear(WIDTH)) == [
        None, "attention.qkv_proj", "attention.qk_norm", None, "attention.out_proj"
    ]  # fmt: skip


def test_a_norm_after_the_core_ends_the_attention() -> None:
    assert told(linear(3 * WIDTH), SDPA, unit("norm", TOKENS), linear(WIDTH)) == [
        "attention.qkv_proj",
        None,
        None,
        None,
    ]


def test_a_head_dim_that_was_padded_for_the_kernel_still_fits() -> None:
    padded = (B, HEADS, S, DIM + 6)
    core = SDPA._replace(shapes=(padded, padded, padded))
    assert told(linear(3 * WIDTH), core, linear(WIDTH)) == ["attention.qkv_proj", None, "attention.out_proj"]


ScoreS = unit("bmm", (B * HEADS, S, DIM), (B * HEADS, DIM, S), name="aten::bmm")
SOFTMAX = unit("softmax", (B, HEADS, S, S))
VALUES = unit("bmm", (B * HEADS, S, S), (B * HEADS, S, DIM), name="aten::bmm")
SCALE = unit("elementwise", (B, HEADS, S, S), name="aten::div")
MASK = unit("mask", (B, HEADS, S, S))
DROPOUT = unit("elementwise", (B, HEADS, S, S), name="aten::native_dropout")


def test_which_dim_counts_heads_is_told_by_the_op_and_else_may_be_either() -> None:
    swapped = (B, S, HEADS, DIM)
    assert told(linear(WIDTH), SDPA._replace(shapes=(swapped,) * 3)) == [None, None]
    for name in ("flash_attn_3::fwd", "custom::attention"):
        core = SDPA._replace(name=name, shapes=(swapped,) * 3)
        assert told(linear(WIDTH), core) == ["attention.qkv_proj", None]


def test_a_chain_of_products_around_a_softmax_is_an_attention() -> None:
    chain = (linear(3 * WIDTH), COPY, ScoreS, SCALE, MASK, SOFTMAX, DROPOUT, VALUES, COPY, linear(WIDTH))
    assert told(*chain) == [
        "attention.qkv_proj", "attention.layout", "attention.scores", "attention.scores", "attention.mask",
        "attention.softmax", "attention.softmax", "attention.values", "attention.layout", "attention.out_proj",
    ]  # fmt: skip


def test_products_of_other_shapes_make_no_chain() -> None:
    elsewhere = unit("bmm", (B * HEADS, S, DIM), (B * HEADS, DIM, 3 * S), name="aten::bmm")
    assert told(elsewhere, SOFTMAX, VALUES) == [None, None, None]
    assert told(ScoreS, SOFTMAX, unit("bmm", (B, S, DIM), (B, DIM, S), name="aten::bmm")) == [None, None, None]


def test_a_classifier_s_softmax_is_no_attention() -> None:
    assert told(linear(10), unit("softmax", (B, 10)), linear(WIDTH)) == [None, None, None]


def test_a_gated_feed_forward_narrows_half_of_what_it_widens_to() -> None:
    fused = (linear(8 * WIDTH), GELU, linear(WIDTH, 4 * WIDTH))
    apart = (linear(4 * WIDTH), GELU, linear(4 * WIDTH), unit("elementwise"), linear(WIDTH, 4 * WIDTH))
    for gated in (fused, apart):
        roles = told(linear(3 * WIDTH), SDPA, linear(WIDTH), NORM, *gated)
        assert roles[4:] == ["mlp"] * len(gated)


def test_linears_that_do_not_come_back_to_the_rows_width_are_no_feed_forward() -> None:
    roles = told(linear(3 * WIDTH), SDPA, linear(WIDTH), NORM, linear(4 * WIDTH), GELU, linear(2 * WIDTH, 4 * WIDTH))
    assert roles[4:] == [None, None, None]


def test_linears_of_a_model_without_attention_say_nothing() -> None:
    assert told(linear(4 * WIDTH), GELU, linear(WIDTH, 4 * WIDTH)) == [None, None, None]


def test_a_sum_that_follows_no_part_of_a_block_is_no_residual() -> None:
    positions = (NORM, SUM, linear(3 * WIDTH), SDPA, linear(WIDTH), NORM, SUM)
    assert told(*positions)[1] is None
    assert told(*positions)[6] is None


def test_a_known_role_is_never_overruled_and_ends_what_can_t_reach_across() -> None:
    known = linear(3 * WIDTH)._replace(known="mlp")
    assert told(known, SDPA, linear(WIDTH)) == [None, None, "attention.out_proj"]


def _backward(unit: Unit) -> Unit:
    """Return one of the two products that a linear's backward pass computes: of its weight."""
    (rows, k), (_, n) = unit.shapes
    return unit._replace(shapes=((k, rows), (rows, n)), is_backward=True)


def test_backward_products_are_told_by_the_sizes_of_the_forward_pass() -> None:
    forward = [*BLOCK]
    core = SDPA._replace(is_backward=True)
    backward = [
        _backward(linear(WIDTH, 4 * WIDTH)), GELU._replace(is_backward=True), _backward(linear(4 * WIDTH)),
        _backward(linear(WIDTH)), core, COPY._replace(is_backward=True), _backward(linear(3 * WIDTH)),
    ]  # fmt: skip
    assert told(*forward, *backward)[len(forward) :] == [
        "mlp", "mlp", "mlp", "attention.out_proj", None, "attention.layout", "attention.qkv_proj",
    ]  # fmt: skip


def test_of_backward_products_of_one_size_those_before_the_core_are_of_the_output() -> None:
    forward = [linear(WIDTH), linear(WIDTH), linear(WIDTH), SDPA, linear(WIDTH)]
    core = SDPA._replace(is_backward=True)
    backward = [_backward(linear(WIDTH)), core, _backward(linear(WIDTH)), _backward(linear(WIDTH))]
    assert told(*forward, *backward)[5:] == ["attention.out_proj", None, "attention.qkv_proj", "attention.qkv_proj"]


def _kernel(action: str, name: str = "", known: str | None = None) -> Unit:
    return Unit(0, name or action, action, known)


def test_kernels_without_shapes_are_read_by_order_alone() -> None:
    gate = _kernel("gemm", "gate")
    core = _kernel("attention", known="attention.core")
    replayed = (
        _kernel("norm", known="norm"), _kernel("gemm"), _kernel("rope"), core, _kernel("copy"),
        core, _kernel("gemm"), _kernel("norm", known="norm"), _kernel("gemm", "modulation"), gate, gate,
        _kernel("activation"), _kernel("gemm"),
    )  # fmt: skip
    assert told(*replayed) == [
        None, "attention.qkv_proj", "attention.rope", None, "attention.layout", None, "attention.out_proj", None, None,
        "mlp", "mlp", "mlp", "mlp",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("aten::linear", ((2, 3, 8), (5, 8), (5,)), Product(1, 6, 8, 5)),
        ("aten::addmm", ((5,), (6, 8), (8, 5)), Product(1, 6, 8, 5)),
        ("aten::mm", ((6, 8), (8, 5)), Product(1, 6, 8, 5)),
        ("aten::bmm", ((4, 6, 8), (4, 8, 5)), Product(4, 6, 8, 5)),
        ("aten::baddbmm", ((4, 6, 5), (4, 6, 8), (4, 8, 5)), Product(4, 6, 8, 5)),
        ("aten::matmul", ((2, 3, 8), (8, 5)), Product(1, 6, 8, 5)),
        ("nanogpt::mm", ((6, 8), (5, 8)), Product(1, 6, 8, 5)),
        ("aten::mm", ((6, 8), (5, 8)), None),
        ("aten::mm", ((6, 8),), None),
        ("aten::mm", ((), ()), None),
        ("aten::linear", ((8,), (5, 8)), None),
    ],
)
def test_the_sizes_of_a_product_are_read_of_its_inputs(
    name: str, shapes: tuple[Shape, ...], expected: Product | None
) -> None:
    assert product_of(name, shapes) == expected


@given(st.lists(st.sampled_from([*BLOCK, ScoreS, SOFTMAX, VALUES, _kernel("gemm"), _kernel("attention")]), max_size=24))
def test_any_sequence_is_read_and_nothing_known_is_told_again(units: list[Unit]) -> None:
    found = read(units)
    assert all(units[place].known is None for place in found)
    cores = cores_of(units)
    assert all(one.first <= one.last for one in cores)
    assert all(one.first <= other.first for one, other in pairwise(cores))


# -- Real traces, against their raw rows ----------------------------------------------------------------------------


def _tables(traces: Path, name: str) -> dict[str, pl.DataFrame]:
    return tables_of((traces / name).read_bytes(), name)


def test_linears_of_segment_anything_are_those_of_its_code(traces: Path) -> None:
    """Hold the encoder's linears, of whom its code says the widths, against the weights of the raw rows.

    image_encoder.py of ViT-H: 32 blocks of width 1280, qkv in one linear, a feed-forward four times as wide.
    """
    for name in ("a100-sam-sdpa.json.gz", "a100-sam-math.json.gz"):
        expected = {(3840, 1280): "attention.qkv_proj", (5120, 1280): "mlp", (1280, 5120): "mlp",
                    (1280, 1280): "attention.out_proj"}  # fmt: skip
        seen: Counter[tuple[Shape, str]] = Counter()
        ops = _tables(traces, name)["op"]
        for op, dims, role in ops.select("name", "input_dims", "role").iter_rows():
            if op == "aten::linear" and (weight := tuple(json.loads(dims)[1])) in expected:
                seen[weight, role] += 1
        assert seen == dict.fromkeys(expected.items(), 32)


def test_products_of_a_compiled_step_have_the_roles_that_their_weights_tell(traces: Path) -> None:
    """Hold every product of a compiled training step, forward and backward, against the sizes in its code.

    modded-nanogpt: width 768, qkv in one matrix, a feed-forward of 3072, gates of 12 to 6 and to 1.
    """
    told_by = {(768, 2304): "attention.qkv_proj", (768, 3072): "mlp", (768, 768): "attention.out_proj",
               (6, 12): "attention.other"}  # fmt: skip
    tables = _tables(traces, "h100-nanogpt-before.json.gz")
    kernels = tables["kernel"].join(tables["op"].select("op_id", "input_dims"), on="op_id")
    wrong: Counter[tuple[str, tuple[int, ...], str]] = Counter()
    right = 0
    for op, dims, role, phase in kernels.select("op_name", "input_dims", "role", "phase").iter_rows():
        if op != "aten::mm" or phase == "optimizer":
            continue
        left, other = json.loads(dims)[:2]
        sizes = sorted([left[0], left[1], other[1]])
        if sizes[-1] != 32768:
            continue
        expected = told_by.get((sizes[0], sizes[1]))
        right += role == expected
        if role != expected:
            wrong[role, tuple(sizes), phase] += 1
    assert not wrong
    assert right > 600


def test_adapters_of_low_rank_beside_projections_are_none_and_hide_none() -> None:
    narrow, wide = linear(4, 8 * WIDTH), linear(8 * WIDTH, 4)
    big = [linear(8 * WIDTH, 8 * WIDTH) for _ in range(3)]
    heads = (B, 8 * HEADS, S, DIM)
    core = SDPA._replace(shapes=(heads,) * 3)
    roles = told(NORM, big[0], narrow, wide, SUM, big[1], big[2], narrow, wide, SUM, core, linear(8 * WIDTH, 8 * WIDTH))
    assert [roles[place] for place in (1, 5, 6, 11)] == [*["attention.qkv_proj"] * 3, "attention.out_proj"]
    assert {roles[place] for place in (2, 3, 7, 8)} == {"attention.other"}


def test_a_forward_linear_that_nothing_tells_makes_its_size_no_evidence() -> None:
    head = linear(WIDTH)  # a head's square linear, of the size of the output projection
    backward = [_backward(head), _backward(linear(WIDTH))]
    forward = [linear(3 * WIDTH), SDPA, linear(WIDTH), NORM, head, unit("loss", known="loss")]
    assert told(*forward, *backward)[len(forward) :] == [None, None]
