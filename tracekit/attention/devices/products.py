"""The matrix products that ops compute: their sizes, operations and bytes, from the shapes of their inputs.

Owns the counting, and which op a product is counted for. How shapes are read as a product `cores.product_of` says.
"""

from __future__ import annotations

import json
import re
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from tracekit.attention.knowledge import load, meaning_of
from tracekit.attention.roles.cores import Product, product_of
from tracekit.element_types import size_of, spellings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST = 2**62


class Counted(NamedTuple):
    """A product (m, k) x (k, n), `batch` times: FLOP count 2 batch m n k, and the bytes that must move at least.

    Bytes are those of both factors and the result, each once, and of a matrix or vector that is added. Sizes are None
    where shapes do not tell them, `reason` then says why; `dtype` is the format of both factors, None where they
    differ.
    """

    batch: int | None = None
    m: int | None = None
    n: int | None = None
    k: int | None = None
    dtype: str | None = None
    flops: int | None = None
    flops_status: str = "not_derivable"
    bytes: int | None = None
    bytes_status: str = "not_derivable"
    reason: str | None = None


_COUNTED = dict.fromkeys(("batch", "m", "n", "k", "flops", "bytes"), pl.Int64)
PRODUCT: dict[str, Any] = {"op_id": pl.Int64} | {name: _COUNTED.get(name, pl.String) for name in Counted._fields}
"""The columns of table product."""
_SIGNATURE = ("name", "input_dims", "input_types")


def products(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the products of the innermost ops that compute one: another may wrap them, one or two ops around.

    `ops` has op_id, parent_id and the name, shapes and types of ops, as the op table has them.
    """
    named = _named(ops)
    inner = named.filter(~_wraps(ops, named)).with_columns(pl.col(_SIGNATURE).cast(pl.String))
    signatures = inner.select(_SIGNATURE).unique()
    found = pl.DataFrame(
        [counted(*row) for row in signatures.iter_rows()],
        schema={name: kind for name, kind in PRODUCT.items() if name != "op_id"},
        orient="row",
    )
    sized = pl.concat([signatures, found], how="horizontal")
    return inner.join(sized, on=_SIGNATURE, nulls_equal=True, maintain_order="left").select(list(PRODUCT))


def wrappers(ops: pl.DataFrame) -> pl.DataFrame:
    """Return those ops that compute a product by an op inside them; `ops` as for `products`."""
    named = _named(ops)
    return named.filter(_wraps(ops, named))


def _named(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the ops whose name says that they compute a product."""
    names = ops["name"].unique().to_list()
    return ops.filter(
        pl.col("name").is_in([name for name in names if name and meaning_of(name).action in {"gemm", "bmm"}])
    )


def _wraps(ops: pl.DataFrame, named: pl.DataFrame) -> pl.Expr:
    around = named["parent_id"].drop_nulls().unique()
    above = ops.filter(pl.col("op_id").is_in(around.implode()))["parent_id"].drop_nulls().unique()
    return pl.col("op_id").is_in(around.implode()) | pl.col("op_id").is_in(above.implode())


def counted(op_name: str, input_dims: str | None, input_types: str | None) -> Counted:
    """Return the product that an op with these inputs, JSON lists as the op table has them, computes."""
    if input_dims is None:
        return Counted(reason="no shapes were recorded")
    tensors = _tensors(input_dims, input_types)
    shapes = [shape for shape, _ in tensors]
    name = re.sub(r"^aten::_add", "aten::add", op_name)
    found = product_of(name, shapes)
    is_exact = re.fullmatch(load("devices/products")["exact"]["pattern"], op_name) is not None
    at = 1 if name.rpartition("::")[2].startswith(("add", "badd")) else 0
    types = [dtype for _, dtype in tensors[at : at + 2]]
    if found is None or "sparse" in op_name or (not is_exact and len(set(types)) != 1):
        return Counted(reason="the shapes of its inputs are not those of a product")
    flops = 2 * found.batch * found.m * found.n * found.k
    if flops > _MOST:
        return Counted(reason="its sizes are beyond all measure")
    status = "exact" if is_exact else "estimated"
    reason = None if is_exact else "sizes by the first two inputs of an op that is not ATen's"
    moved, moved_status = _bytes(found, at, tensors)
    return Counted(
        found.batch, found.m, found.n, found.k, _format(types), flops, status,
        moved, moved_status if is_exact or moved is None else "estimated", reason,
    )  # fmt: skip


def _tensors(input_dims: str, input_types: str | None) -> list[tuple[tuple[int, ...], str | None]]:
    """Return shape and element type of each input, in order; scalars have the shape ()."""
    dims, types = _list(input_dims), _list(input_types)
    shapes = [_shape(one) for one in dims]
    names = [spellings().get(one) if isinstance(one, str) else None for one in types]
    return list(zip(shapes, [*names, *[None] * len(shapes)], strict=False))


def _list(text: str | None) -> list[Any]:
    try:
        read = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return read if isinstance(read, list) else []


def _shape(dims: object) -> tuple[int, ...]:
    if isinstance(dims, list) and all(type(size) is int and size >= 0 for size in dims):
        return tuple(dims)
    return ()


def _format(types: Sequence[str | None]) -> str | None:
    """Return the number format that both factors have, as peaks name it; None where they differ."""
    formats = {load("devices/products")["format"].get(dtype, dtype) for dtype in types}
    return formats.pop() if len(formats) == 1 else None


def _bytes(found: Product, at: int, tensors: Sequence[tuple[tuple[int, ...], str | None]]) -> tuple[int | None, str]:
    """Return the bytes of factors, result and what is added, and how sure they are.

    That the type of a narrow product's result is the usual one, and that a matrix to be added is read (beta may be
    0), is an estimate.
    """
    left, right = (size_of(dtype) for _, dtype in tensors[at : at + 2])
    written = load("devices/products")["output"].get(tensors[at][1])
    out = size_of(written or tensors[at][1])
    if left is None or right is None or out is None:
        return None, "not_derivable"
    result = found.batch * found.m * found.n
    moved = found.batch * found.k * (found.m * left + found.n * right) + result * out
    added = prod(tensors[0][0]) if at else 0
    is_sure = written is None and added < max(result, 1)
    return moved + min(added, result) * (size_of(tensors[0][1]) or 0), "exact" if is_sure else "estimated"


_READ = {
    "op_id": pl.Int64, "trace_id": pl.Int64, "parent_id": pl.Int64,
    "name": pl.String, "input_dims": pl.String, "input_types": pl.String,
}  # fmt: skip


def products_of_run(tables: Mapping[str, pl.LazyFrame]) -> pl.DataFrame:
    """Return table product for a run that was loaded before it was one; a column that its ops lack is null."""
    columns = [*PRODUCT, "trace_id"]
    if "op" not in tables:
        return pl.DataFrame(schema=PRODUCT | {"trace_id": pl.Int64}).select(columns)
    present = tables["op"].collect_schema()
    read = {name: pl.col(name) if name in present else pl.lit(None) for name in _READ}
    ops = tables["op"].select(column.cast(_READ[name]).alias(name) for name, column in read.items()).collect()
    return products(ops).join(ops.select("op_id", "trace_id"), on="op_id", how="left").select(columns)
