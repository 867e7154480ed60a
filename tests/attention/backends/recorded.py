"""Calls of SDPA as a trace's rows hold them: raw input lists to named arguments, by the schemas of two ops.

Owns a reading of its own, so that what the tests ask does not rest on the product's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from tracekit.attention.calls.arguments import Argument

WRAPPER = "aten::scaled_dot_product_attention"
NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "bool": "bool",
    "long int": "int64",
    "int": "int32",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
}
BACKENDS = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_attention_math": "math",
}


class Row(NamedTuple):
    """A wrapper's row: its arguments, the backend of the row in it, whether autograd numbered it, and how often."""

    arguments: dict[str, Argument]
    ran: str | None
    has_sequence_number: bool
    count: int


def arguments_of(event: dict[str, Any], names: tuple[str, ...] = NAMES) -> dict[str, Argument]:
    """Return the arguments of a row by name, those that it has."""
    args = event["args"]
    dims, types = args["Input Dims"], args["Input type"]
    strides = args.get("Input Strides") or [None] * len(dims)
    concrete = args.get("Concrete Inputs") or [""] * len(dims)
    return {
        name: Argument(
            tuple(dim) if kind and kind != "Scalar" else None,
            DTYPES.get(kind),
            tuple(stride) if stride and kind else None,
            _value(text),
        )
        for name, dim, kind, stride, text in zip(names, dims, types, strides, concrete, strict=False)
    }


def rows_of(events: list[dict[str, Any]]) -> list[Row]:
    """Return the wrapper's rows of a trace, the innermost of nested ones, alike ones counted together."""
    ops = [event for event in events if event.get("cat") == "cpu_op" and event["name"] in {WRAPPER, *BACKENDS}]
    ops.sort(key=lambda event: (event["pid"], event["tid"], event["ts"], -event["dur"]))
    found: Counter[str] = Counter()
    rows: dict[str, Row] = {}
    for place, event in enumerate(ops):
        if event["name"] != WRAPPER:
            continue
        inside = [each for each in ops[place + 1 : place + 3] if _is_within(each, event)]
        if inside and inside[0]["name"] == WRAPPER:
            continue
        ran = BACKENDS[inside[0]["name"]] if inside else None
        has_number = "Sequence number" in event["args"]
        arguments = arguments_of(event)
        key = repr((sorted(arguments.items()), ran, has_number))
        found[key] += 1
        rows[key] = Row(arguments, ran, has_number, found[key])
    return list(rows.values())


def bare_rows_of(events: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Return the backends' rows that lie in no wrapper's, and the backend of each."""
    ops = [event for event in events if event.get("cat") == "cpu_op" and event["name"] in {WRAPPER, *BACKENDS}]
    wrappers = [event for event in ops if event["name"] == WRAPPER]
    return [
        (event, BACKENDS[event["name"]])
        for event in ops
        if event["name"] != WRAPPER and not any(_is_within(event, wrapper) for wrapper in wrappers)
    ]


def arities_of(events: list[dict[str, Any]]) -> dict[str, set[int]]:
    """Return the names of a trace's ops, with the numbers of arguments that each has."""
    found: dict[str, set[int]] = {}
    for event in events:
        if event.get("cat") == "cpu_op":
            counts = found.setdefault(event["name"], set())
            dims = (event.get("args") or {}).get("Input Dims")
            counts |= {len(dims)} if dims else set()
    return found


def _is_within(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    same = (inner["pid"], inner["tid"]) == (outer["pid"], outer["tid"])
    return same and inner["ts"] >= outer["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def _value(text: str) -> object:
    if text in {"True", "False"}:
        return text == "True"
    return float(text) if text and not text.startswith("[") else None
