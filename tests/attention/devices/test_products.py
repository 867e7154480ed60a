"""The products that ops compute: sizes, operations and bytes, each against a calculation by hand."""

from __future__ import annotations

import json

import pytest

from tracekit.attention.devices.products import Counted, counted

BF16, FLOAT, FP8, INT8 = "c10::BFloat16", "float", "c10::Float8_e4m3fn", "signed char"


def of(op_name: str, *tensors: tuple[list[int], str]) -> Counted:
    """Count an op with tensors of these shapes and types."""
    return counted(op_name, json.dumps([shape for shape, _ in tensors]), json.dumps([kind for _, kind in tensors]))


@pytest.mark.parametrize(
    ("op_name", "tensors", "sizes", "flops", "moved", "statuses"),
    [
        ("aten::mm", [([2, 3], BF16), ([3, 5], BF16)], (1, 2, 5, 3), 60, 2 * (6 + 15 + 10), ("exact", "exact")),
        ("aten::mm", [([2, 3], FLOAT), ([3, 5], FLOAT)], (1, 2, 5, 3), 60, 4 * (6 + 15 + 10), ("exact", "exact")),
        # With out=, the third tensor is the result.
        ("aten::mm", [([2, 3], BF16), ([3, 5], BF16), ([2, 5], BF16)], (1, 2, 5, 3), 60, 62, ("exact", "exact")),
        # A bias of 5 is read too.
        ("aten::addmm", [([5], BF16), ([2, 3], BF16), ([3, 5], BF16)], (1, 2, 5, 3), 60, 72, ("exact", "exact")),
        ("aten::_addmm_activation", [([5], BF16), ([2, 3], BF16), ([3, 5], BF16)], (1, 2, 5, 3), 60, 72,
         ("exact", "exact")),
        # Whether a whole matrix is read depends on beta.
        ("aten::addmm", [([2, 5], BF16), ([2, 3], BF16), ([3, 5], BF16)], (1, 2, 5, 3), 60, 82, ("exact", "estimated")),
        ("aten::bmm", [([4, 2, 3], BF16), ([4, 3, 5], BF16)], (4, 2, 5, 3), 240, 4 * 62, ("exact", "exact")),
        ("aten::linear", [([7, 2, 3], BF16), ([5, 3], BF16)], (1, 14, 5, 3), 420, 2 * (42 + 15 + 70),
         ("exact", "exact")),
        # 8-bit factors, and a result that is usually bf16 or int32.
        ("aten::_scaled_mm", [([2, 3], FP8), ([3, 5], FP8)], (1, 2, 5, 3), 60, 6 + 15 + 20, ("exact", "estimated")),
        ("aten::_int_mm", [([2, 3], INT8), ([3, 5], INT8)], (1, 2, 5, 3), 60, 6 + 15 + 40, ("exact", "estimated")),
        ("aiter::gemm_a16w16", [([2, 3], BF16), ([5, 3], BF16)], (1, 2, 5, 3), 60, 62, ("estimated", "estimated")),
        ("aten::mm", [([0, 3], BF16), ([3, 5], BF16)], (1, 0, 5, 3), 0, 30, ("exact", "exact")),
    ],
)  # fmt: skip
def test_products_by_hand(
    op_name: str,
    tensors: list[tuple[list[int], str]],
    sizes: tuple[int, ...],
    flops: int,
    moved: int,
    statuses: tuple[str, str],
) -> None:
    found = of(op_name, *tensors)
    assert (found.batch, found.m, found.n, found.k) == sizes
    assert (found.flops, found.bytes) == (flops, moved)
    assert (found.flops_status, found.bytes_status) == statuses


@pytest.mark.parametrize(
    ("op_name", "tensors"),
    [
        ("aten::mm", [([2, 3], BF16), ([4, 5], BF16)]),
        ("aten::mm", [([2, 3], BF16)]),
        ("aten::mv", [([2, 3], BF16), ([3], BF16)]),
        ("aten::_sparse_mm", [([2, 3], BF16), ([3, 5], BF16)]),
        # The result comes first, and all are square: only the types tell.
        ("_C::cutlass_scaled_mm", [([4, 4], BF16), ([4, 4], FP8), ([4, 4], FP8)]),
        ("aten::mm", [([2**40, 2**40], BF16), ([2**40, 2**40], BF16)]),
    ],
)
def test_shapes_that_do_not_tell_the_product_give_none(op_name: str, tensors: list[tuple[list[int], str]]) -> None:
    found = of(op_name, *tensors)
    assert (found.m, found.flops, found.bytes) == (None, None, None)
    assert (found.flops_status, found.bytes_status) == ("not_derivable", "not_derivable")
    assert found.reason


@pytest.mark.parametrize("dims", [None, "", "[[2, 3", "{}", "[5, [-1, 2]]", '["x", null]'])
def test_shapes_that_are_none_give_none(dims: str | None) -> None:
    assert counted("aten::mm", dims, None).flops is None


def test_types_that_are_not_known_leave_bytes_out() -> None:
    found = counted("aten::mm", "[[2, 3], [3, 5]]", '["mystery", "mystery"]')
    assert (found.flops, found.bytes, found.bytes_status) == (60, None, "not_derivable")
    mixed = of("aten::mm", ([2, 3], BF16), ([3, 5], FLOAT))
    assert (mixed.dtype, of("aten::_scaled_mm", ([2, 3], FP8), ([3, 5], FP8)).dtype) == (None, "float8")
