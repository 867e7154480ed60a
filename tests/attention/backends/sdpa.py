"""Calls of scaled_dot_product_attention typed by hand, as the arguments that a trace holds of them."""

from __future__ import annotations

from typing import Any

from tracekit.attention.backends.readings import Environment
from tracekit.attention.calls.arguments import Argument

Shape = tuple[int, ...]

NONE = Argument(None, None, None, None)


def packed(shape: Shape) -> Shape:
    """Return the strides of a dense tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def tensor(shape: Shape, dtype: str, strides: Shape | None = None) -> Argument:
    """Return a tensor argument, dense unless strides are given."""
    return Argument(shape, dtype, packed(shape) if strides is None else strides, None)


def scalar(value: object) -> Argument:
    """Return an argument with a concrete value."""
    return Argument(None, None, None, value)


def call(
    q: Shape = (2, 8, 64, 64),
    k: Shape | None = None,
    v: Shape | None = None,
    *,
    dtype: str = "bfloat16",
    strides: Shape | None = None,
    mask: Shape | None = None,
    mask_dtype: str = "bool",
    mask_strides: Shape | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    gqa: bool = False,
) -> dict[str, Argument]:
    """Return a call's arguments; keys are like queries and values like keys unless told, `strides` are the queries'."""
    k = q if k is None else k
    v = k if v is None else v
    return {
        "query": tensor(q, dtype, strides),
        "key": tensor(k, dtype),
        "value": tensor(v, dtype),
        "attn_mask": NONE if mask is None else tensor(mask, mask_dtype, mask_strides),
        "dropout_p": scalar(dropout),
        "is_causal": scalar(causal),
        "scale": NONE,
        "enable_gqa": scalar(gqa),
    }


def where(device: str = "cuda", sm: int | None = None, **rest: Any) -> Environment:
    """Return where a call ran: an A100 without gradients unless told."""
    if device == "cuda":
        rest = {"capability": divmod(80 if sm is None else sm, 10), "needs_grad": False} | rest
    if device == "rocm":
        rest = {"device_name": "AMD Instinct MI300X", "capability": (9, 4), "needs_grad": False} | rest
    return Environment(device, **rest)
