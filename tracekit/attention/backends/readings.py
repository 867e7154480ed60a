"""What is known of one SDPA call and of where it ran: the values that rules about backends read, by name.

Owns the names of these readings, their words, and how each is read from the arguments of
`aten::scaled_dot_product_attention`. A reading that is not known is None, and never guessed: what may be assumed
stands in backends.toml, and rules.py says where it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.attention.knowledge import load

if TYPE_CHECKING:
    from tracekit.attention.calls.arguments import Argument

Readings = Mapping[str, object]

TENSORS = ("query", "key", "value")
"""Names of the tensor arguments, as native_functions.yaml has them; the others it reads are attn_mask, dropout_p,
is_causal and enable_gqa."""

WORDS = {
    "ranks": "dims of query, key, value",
    "batches": "batch of query, key, value",
    "heads": "heads of query, key, value",
    "query_length": "query length",
    "key_length": "key length",
    "value_length": "value length",
    "head_dims": "head_dim of query, key, value",
    "dtypes": "dtype of query, key, value",
    "last_strides": "last stride of query, key, value",
    "strides": "strides of query, key, value",
    "shapes": "shapes of query, key, value",
    "mask": "attn_mask given",
    "mask_shape": "shape of attn_mask",
    "mask_dtype": "dtype of attn_mask",
    "mask_last_stride": "last stride of attn_mask",
    "dropout_p": "dropout_p",
    "is_causal": "is_causal",
    "enable_gqa": "enable_gqa",
    "nested": "nested inputs",
    "needs_grad": "an input needs a gradient",
    "sm": "compute capability",
    "arch": "architecture",
    "device": "device",
    "ran": "backend that ran",
}
"""Readings of a call and its device, in words; those of backends.toml's `fact` rows come on top."""


@dataclass(frozen=True)
class Environment:
    """Where a call ran, as far as that is known.

    `device` is cuda, rocm, cpu, xpu or mps. `capability` is (major, minor). `releases` are those of PyTorch that the
    trace can be of (`releases.releases_of`), asked where `torch_version` is None; None means any. `needs_grad` is
    whether an input needed a gradient while grad mode was on. `facts` holds what backends.toml's `fact` rows name,
    such as `flash_enabled`, `wrapper` (false where a backend's row stood alone), and `priority`, the order that torch
    was told, as `settings` of a bundle's facts has it.
    """

    device: str
    device_name: str | None = None
    capability: tuple[int, int] | None = None
    torch_version: str | None = None
    releases: tuple[str, ...] | None = None
    needs_grad: bool | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


def readings_of(arguments: Mapping[str, Argument], environment: Environment) -> dict[str, object]:
    """Return the readings of a call, None for each that is not known."""
    tensors = [arguments.get(name) for name in TENSORS]
    shapes = [None if each is None else each.shape for each in tensors]
    strides = [None if each is None else each.strides for each in tensors]
    facts = {row["name"]: environment.facts.get(row["name"]) for row in load("backends/backends")["fact"]}
    capability = environment.capability
    return {
        **facts,
        **_sizes(shapes),
        "dtypes": _all(None if each is None else each.dtype for each in tensors),
        "strides": _all(strides),
        "last_strides": _all(each[-1] if each else None for each in strides),
        **_mask(arguments.get("attn_mask"), is_recorded=shapes[0] is not None),
        "dropout_p": _number(_value(arguments, "dropout_p")),
        "is_causal": _flag(_value(arguments, "is_causal")),
        "enable_gqa": _flag(_value(arguments, "enable_gqa")),
        "device": environment.device,
        "nested": False if _all(shapes) else facts["nested"],
        "needs_grad": environment.needs_grad,
        "sm": None if capability is None else 10 * capability[0] + capability[1],
        "arch": facts["arch"] or _arch(environment.device_name),
        "wrapper": environment.facts.get("wrapper", True),
        "ran": None,
    }


def in_words(readings: Readings, name: str) -> str:
    """Return a reading as `name = value`, in words."""
    value = readings[name]
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, tuple):
        text = ", ".join(str([*each]) if isinstance(each, tuple) else str(each) for each in value)
        text = f"[{text}]" if name == "mask_shape" else text
    else:
        text = "not known" if value is None else str(value)
    return f"{words_of(name)} = {text}"


def words_of(name: str) -> str:
    """Return what a reading is called."""
    return WORDS.get(name) or next(row["words"] for row in load("backends/backends")["fact"] if row["name"] == name)


def _sizes(shapes: list[tuple[int, ...] | None]) -> dict[str, object]:
    """Return what shapes tell: batch and heads only of four dims, lengths and head_dim of two or more."""
    known = [each for each in shapes if each is not None]
    if len(known) < len(shapes):
        known = []
    long = known if known and min(map(len, known)) >= 2 else []
    full = known if known and {len(each) for each in known} == {4} else []
    return {
        "shapes": tuple(known) or None,
        "ranks": tuple(map(len, known)) or None,
        "batches": tuple(each[0] for each in full) or None,
        "heads": tuple(each[1] for each in full) or None,
        "head_dims": tuple(each[-1] for each in long) or None,
        "query_length": long[0][-2] if long else None,
        "key_length": long[1][-2] if long else None,
        "value_length": long[2][-2] if long else None,
    }


def _mask(mask: Argument | None, *, is_recorded: bool) -> dict[str, object]:
    """Return what is known of the mask: an argument without a shape is None, if shapes were recorded at all."""
    if mask is None or (mask.shape is None and not is_recorded):
        return dict.fromkeys(("mask", "mask_shape", "mask_dtype", "mask_last_stride"))
    strides = mask.strides
    return {
        "mask": mask.shape is not None,
        "mask_shape": mask.shape,
        "mask_dtype": mask.dtype,
        "mask_last_stride": strides[-1] if strides else None,
    }


def _arch(device_name: str | None) -> str | None:
    """Return the gfx architecture of an AMD device by its name."""
    rows = load("backends/backends")["arch"] if device_name else []
    return next((row["arch"] for row in rows if re.search(row["pattern"], str(device_name))), None)


def _all(values: Iterable[object]) -> tuple[object, ...] | None:
    found = tuple(values)
    return None if any(each is None for each in found) else found


def _value(arguments: Mapping[str, Argument], name: str) -> object:
    argument = arguments.get(name)
    return None if argument is None else argument.value


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
