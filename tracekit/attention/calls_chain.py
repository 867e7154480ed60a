"""What a chain of ops says of its attention: a product, a softmax and a product, with a mask and a dropout between.

Owns the reading of naive attention. Sequences and heads are told apart only where an op around the products, or what
becomes of the result, has them apart.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tracekit.attention.arguments import Argument, read_inputs, size_of
from tracekit.attention.calls_read import Mask, Reading, Sizes, Types
from tracekit.attention.cores import product_of
from tracekit.attention.knowledge import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from tracekit.attention.calls_found import Chain

Shape = tuple[int, ...]
INPUTS = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")
"""The columns of ops that are read."""
_AFTER = 12
"""How many ops after a chain may say how heads and sequences lie in its result."""


def read_chain(roots: Sequence[int], chain: Chain, ops: pl.DataFrame) -> Reading:
    """Return what a chain says; `roots` are its outermost ops, by row, `ops` the columns `INPUTS` of all ops."""
    scores, values = (_inputs(ops, row) for row in (chain.scores, chain.values))
    first = product_of(ops["name"][chain.scores], _shapes(scores))
    last = product_of(ops["name"][chain.values], _shapes(values))
    plain = Reading("naive")
    if first is None or last is None or (first.m, first.n) != (last.m, last.k) or first.batch != last.batch:
        return plain
    sizes = Sizes(
        nq=first.m, nk=first.n, d_qk=first.k, d_v=last.n, batch_heads=first.batch, is_varlen=False
    )  # fmt: skip
    if (apart := _apart(ops, roots, chain, first.batch)) is not None:
        b, heads = apart
        sizes = replace(sizes, b=b, hq=heads, hkv=heads, tokens_q=b * first.m, tokens_k=b * first.n)
    factors = [one.dtype for one in scores if one.shape]
    dtype = factors[-2] if len(factors) > 1 else None
    applied = [one.dtype for one in values if one.shape]
    types = Types(dtype, factors[-1] if factors else None, applied[-1] if applied else None)
    return replace(plain, sizes=sizes, types=types, mask=_mask(ops, chain, sizes), dropout=_dropout(ops, chain))


def _inputs(ops: pl.DataFrame, row: int) -> tuple[Argument, ...]:
    _, *texts = ops.row(row)
    return read_inputs(*texts)


def _shapes(inputs: Sequence[Argument]) -> list[Shape]:
    return [one.shape or () for one in inputs]


def _apart(ops: pl.DataFrame, roots: Sequence[int], chain: Chain, batch: int) -> tuple[int, int] | None:
    """Return sequences and heads, of which a batched product only has the product."""
    for row in (roots[0], chain.softmax, roots[-1]):
        for shape in _shapes(_inputs(ops, row)):
            if len(shape) == 4 and shape[0] * shape[1] == batch:
                return shape[0], shape[1]
    return _from_result(ops, roots[-1], batch)


def _from_result(ops: pl.DataFrame, last: int, batch: int) -> tuple[int, int] | None:
    """Return sequences and heads from the first view of the result that has them as its first two dims."""
    for name, dims, _, _, concrete in ops[last + 1 : last + 1 + _AFTER].iter_rows():
        if name not in {"aten::view", "aten::reshape", "aten::unflatten"}:
            continue
        given, *rest = read_inputs(dims, None, None, concrete) or (None,)
        wanted = rest[0].value if rest else None
        if given is None or not given.shape or not isinstance(wanted, list) or len(wanted) < 4:
            continue
        if given.shape[0] == batch and wanted[0] * wanted[1] == batch and len(given.shape) == 3:
            return wanted[0], wanted[1]
    return None


def _between(ops: pl.DataFrame, chain: Chain) -> Iterator[tuple[str, tuple[Argument, ...]]]:
    """Yield the ops from scores to values that may hide or drop scores, with their inputs."""
    rules = load("calls")["chain"]
    wanted = {*rules["boolean"], *rules["additive"], *rules["dropout"]}
    for name, *texts in ops[chain.scores : chain.values].iter_rows():
        if name in wanted:
            yield name, read_inputs(*texts)


def _mask(ops: pl.DataFrame, chain: Chain, sizes: Sizes) -> Mask:
    """Return what hides scores between the products. What is no mask of their shape hides nothing."""
    rules = load("calls")["chain"]
    scores = (sizes.batch_heads or 0, sizes.nq or 0, sizes.nk or 0)
    for name, inputs in _between(ops, chain):
        if name in rules["additive"] and (bias := _bias(inputs, prod(scores))) is not None:
            return Mask("additive", bytes=_bytes(bias))
        over = [one for one in inputs if one.shape and _lies_over(one.shape, sizes)]
        if not any(prod(one.shape or ()) == prod(scores) for one in over):
            continue
        if name in rules["boolean"] and (masks := [one for one in over if one.dtype == "bool"]):
            return Mask("boolean", bytes=_bytes(masks[0]))
    return Mask("none", is_causal=False)


def _bias(inputs: Sequence[Argument], scores: int) -> Argument | None:
    """Return what is added to the scores, in whatever shape those are seen: relative positions come in five dims."""
    tensors = [one for one in inputs if one.shape and prod(one.shape) > 1]
    if len(tensors) < 2 or not any(prod(one.shape or ()) == scores for one in tensors):
        return None
    return min(tensors, key=_elements)


def _lies_over(shape: Shape, sizes: Sizes) -> bool:
    return len(shape) >= 2 and shape[-1] == sizes.nk and shape[-2] in {sizes.nq, 1}


def _elements(one: Argument) -> int:
    count = 1
    strides = one.strides or (1,) * len(one.shape or ())
    for size, step in zip(one.shape or (), strides, strict=True):
        count *= size if step else 1
    return count


def _bytes(mask: Argument) -> int | None:
    size = size_of(mask.dtype)
    return None if size is None else size * _elements(mask)


def _dropout(ops: pl.DataFrame, chain: Chain) -> float:
    """Return the probability by which scores are dropped, 0 where no op drops any."""
    for name, inputs in _between(ops, chain):
        if name in load("calls")["chain"]["dropout"] and len(inputs) > 2:
            probability, is_training = inputs[1].value, inputs[2].value
            if is_training is not False and isinstance(probability, int | float):
                return float(probability)
    return 0.0
