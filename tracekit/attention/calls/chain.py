"""What a chain of ops says of its attention: a product, a softmax and a product, with a mask and a dropout between.

Owns the reading of naive attention. Sequences and heads are told apart only where an op around the products, or what
becomes of the result, has them apart.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tracekit.attention.calls.arguments import Argument, read_inputs
from tracekit.attention.calls.reading import Mask, Reading, Sizes, Types
from tracekit.attention.knowledge import load
from tracekit.attention.roles.cores import product_of
from tracekit.element_types import size_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from tracekit.attention.calls.grouping import Chain
    from tracekit.attention.roles.cores import Product

Shape = tuple[int, ...]
INPUTS = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")
"""The columns of ops that are read."""
_AFTER = 12
"""How many ops after a chain may say how heads and sequences lie in its result."""
_BEFORE = 48
"""How many ops before a chain may say how its queries and keys were laid out."""
_VIEWS = {"aten::view", "aten::reshape", "aten::_unsafe_view", "aten::_reshape_alias"}


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
    mask = _mask(ops, chain, sizes)
    if (grouped := _grouped(ops, roots[0], first)) is not None:
        b, hq, hkv = grouped
        sizes = replace(sizes, b=b, hq=hq, hkv=hkv, nq=1, tokens_q=b, tokens_k=b * first.n, batch_heads=b * hq)
    elif (apart := _apart(ops, roots, chain, first.batch)) is not None:
        b, heads = apart
        sizes = replace(sizes, b=b, hq=heads, hkv=heads, tokens_q=b * first.m, tokens_k=b * first.n)
    factors = [one.dtype for one in scores if one.shape]
    dtype = factors[-2] if len(factors) > 1 else None
    applied = [one.dtype for one in values if one.shape]
    types = Types(dtype, factors[-1] if factors else None, applied[-1] if applied else None)
    return replace(plain, sizes=sizes, types=types, mask=mask, dropout=_dropout(ops, chain))


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


def _grouped(ops: pl.DataFrame, root: int, scores: Product) -> tuple[int, int, int] | None:
    """Return sequences, query heads and key heads where the rows of the scores are heads that share keys, else None.

    So it is where the query's heads are split into [key heads, heads that share them] with no tokens beside them, while
    keys have their heads moved in front of their tokens: rows that were tokens would have been moved likewise.
    """
    start = max(root - _BEFORE, 0)
    rows = ops[start:root].rows()
    left = _shapes(_inputs(ops, root))[0]
    if left[-2:] != (scores.m, scores.k) or prod(left[:-2]) != scores.batch or scores.m < 2:
        return None
    hkv = left[-3] if len(left) > 2 else 1
    if not any(name == "aten::transpose" and _are_keys(_first(texts), hkv, scores) for name, *texts in rows):
        return None
    for name, *texts in reversed(rows):
        if name in _VIEWS and (b := _split(read_inputs(*texts), left, hkv, scores)) is not None:
            return b, hkv * scores.m, hkv
    return None


def _first(texts: Sequence[str | None]) -> Shape:
    inputs = read_inputs(*texts)
    return (inputs[0].shape or ()) if inputs else ()


def _are_keys(shape: Shape, heads: int, scores: Product) -> bool:
    """Tell whether a shape is [.., keys, their heads, head dim]."""
    return shape[-3:] == (scores.n, heads, scores.k)


def _split(inputs: Sequence[Argument], left: Shape, hkv: int, scores: Product) -> int | None:
    """Return the sequences of a view that only splits heads, [.., hkv * m, k] into [.., hkv, m, k], else None."""
    given = inputs[0].shape if inputs else None
    sizes = inputs[1].value if len(inputs) > 1 else None
    if not given or not isinstance(sizes, list) or not all(isinstance(size, int) for size in sizes):
        return None
    known = prod(size for size in sizes if size >= 0)
    wanted = tuple(prod(given) // known if size < 0 and known else size for size in sizes)
    around = [size for size in given[:-1] if size != 1]
    heads = around[-1] if around else 1
    b = prod(around[:-1])
    is_split = wanted == left and given[-1] == scores.k and heads == hkv * scores.m and b * hkv == scores.batch
    return b if is_split else None


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
    rules = load("calls/calls")["chain"]
    wanted = {*rules["boolean"], *rules["additive"], *rules["dropout"]}
    for name, *texts in ops[chain.scores : chain.values].iter_rows():
        if name in wanted:
            yield name, read_inputs(*texts)


def _mask(ops: pl.DataFrame, chain: Chain, sizes: Sizes) -> Mask:
    """Return what hides scores between the products. What is no mask of their shape hides nothing."""
    rules = load("calls/calls")["chain"]
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
        if name in load("calls/calls")["chain"]["dropout"] and len(inputs) > 2:
            probability, is_training = inputs[1].value, inputs[2].value
            if is_training is not False and isinstance(probability, int | float):
                return float(probability)
    return 0.0
