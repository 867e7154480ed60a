"""Named arguments of an attention op's row: which input is the query, which the mask, which the causal flag.

Owns how a row's inputs are read; the orders, by op and number of inputs, lie in arguments.toml. It says nothing of
what an argument means.
"""

from __future__ import annotations

import json
import re
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.attention.knowledge import load
from tracekit.element_types import spellings

if TYPE_CHECKING:
    from collections.abc import Mapping


class Argument(NamedTuple):
    """One input of an op: shape and strides in elements, element type by torch's name, value of a scalar.

    `shape` is None for what is no tensor and where shapes were not recorded.
    """

    shape: tuple[int, ...] | None
    dtype: str | None
    strides: tuple[int, ...] | None
    value: object | None


NOTHING = Argument(None, None, None, None)
_NO_TENSOR = frozenset({"", "Scalar", "ScalarList", "TensorList", "GenericList"})


def arguments(
    op_name: str, dims: str | None, types: str | None, strides: str | None, concrete: str | None
) -> dict[str, Argument] | None:
    """Return an op's inputs by name, None where no order of its arguments is known that fits the row.

    The texts are the columns input_dims, input_types, input_strides and concrete_inputs, as JSON.
    """
    inputs = read_inputs(dims, types, strides, concrete)
    for order, least, most in _orders(op_name):
        if least <= len(inputs) <= most and _fits(named := dict(zip(order, inputs, strict=False))):
            return named
    return None


@cache
def read_inputs(dims: str | None, types: str | None, strides: str | None, concrete: str | None) -> tuple[Argument, ...]:
    """Return the inputs of an op's row in their order; what is not there or can't be read is None."""
    shapes, kinds, steps, values = (_list(text) for text in (dims, types, strides, concrete))
    count = max(len(shapes), len(kinds), len(values))
    columns = (each + [None] * (count - len(each)) for each in (shapes, kinds, steps, values))
    return tuple(_input(*cells) for cells in zip(*columns, strict=False))


def as_called(sizes: Mapping[str, Any]) -> dict[str, Argument] | None:
    """Return what `scaled_dot_product_attention` would be given for the sizes of an attention that something else ran.

    `sizes` are columns of attention_call; None is returned where too few of them are known. Tensors are taken to be
    contiguous, and a dense mask to be as large as the scores, of their type unless it is boolean.
    """
    b, hq, hkv, nq, nk, d_qk, d_v, dtype, mask = (
        sizes[name] for name in ("b", "hq", "hkv", "nq", "nk", "d_qk", "d_v", "dtype", "mask_kind")
    )
    if None in {b, hq, nq, nk, d_qk, dtype, mask} or mask == "window":
        return None
    heads, width = hq if hkv is None else hkv, d_qk if d_v is None else d_v
    shapes = {"query": (b, hq, nq, d_qk), "key": (b, heads, nk, d_qk), "value": (b, heads, nk, width)}
    found = {name: _contiguous(shape, dtype) for name, shape in shapes.items()}
    is_dense = mask in {"additive", "boolean"}
    found["attn_mask"] = _contiguous((b, hq, nq, nk), "bool" if mask == "boolean" else dtype) if is_dense else NOTHING
    scalars = {"dropout_p": sizes["dropout"] or 0.0, "is_causal": mask == "causal", "enable_gqa": heads != hq}
    return found | {name: NOTHING._replace(value=value) for name, value in scalars.items()}


def _contiguous(shape: tuple[int, ...], dtype: str) -> Argument:
    strides = tuple(prod(shape[place + 1 :]) for place in range(len(shape)))
    return Argument(shape, dtype, strides, None)


def _list(text: str | None) -> list[Any]:
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _input(shape: object, kind: object, steps: object, value: object) -> Argument:
    is_tensor = isinstance(kind, str) and kind not in _NO_TENSOR
    sizes = _sizes(shape)
    if kind is None and sizes:  # types were not recorded
        is_tensor = True
    if not is_tensor:
        return Argument(None, None, None, _value(value))
    dtype = spellings().get(kind) if isinstance(kind, str) else None
    strides = _sizes(steps)
    if sizes is None or strides is None or len(strides) != len(sizes):
        strides = None
    return Argument(sizes, dtype, strides, None)


def _sizes(shape: object) -> tuple[int, ...] | None:
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        return None
    return tuple(shape)


def _value(text: object) -> object | None:
    """Return what a scalar's text says, None where there is none: `0.` is a number here, but no JSON."""
    if not isinstance(text, str) or not text:
        return None
    if text in {"True", "False"}:
        return text == "True"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return json.loads(text) if text.startswith("[") else float(text)
    except ValueError:
        return text


def _fits(named: Mapping[str, Argument]) -> bool:
    """Tell whether what was recorded can be these arguments, by the kinds of scalars and where tensors stand."""
    if any(named[name].value is not None for name in ("query", "key", "value") if name in named):
        return False
    return all(one.value is None or _is_kind(one.value, _kinds().get(name)) for name, one in named.items())


def _is_kind(value: object, kind: str | None) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int | list) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return True


@cache
def _kinds() -> dict[str, str]:
    return {name: kind for kind, names in load("calls/arguments")["kind"].items() for name in names}


@cache
def _orders(op_name: str) -> tuple[tuple[tuple[str, ...], int, int], ...]:
    """Return the orders of an op's arguments, each with the fewest and the most inputs it is right for."""
    return tuple(
        (tuple(row["args"]), row.get("least", len(row["args"])), row.get("most", len(row["args"])))
        for row in load("calls/arguments")["op"]
        if op_name in row.get("names", ()) or any(re.fullmatch(each, op_name) for each in row.get("patterns", ()))
    )
