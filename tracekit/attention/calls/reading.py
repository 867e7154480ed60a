"""What the ops of one attention call say of it: sizes, element types, mask, window, packing.

Owns the reading of one op's row by its rule in calls.toml. What contradicts itself is not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from tracekit.attention.calls.arguments import NOTHING, Argument, arguments, read_inputs
from tracekit.attention.knowledge import load
from tracekit.element_types import size_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.attention.calls.counts import Alignment

Shape = tuple[int, ...]


class Row(NamedTuple):
    """An op's name and the JSON texts of its inputs."""

    name: str
    dims: str | None
    types: str | None
    strides: str | None
    concrete: str | None


class Rule(msgspec.Struct, frozen=True):
    """How ops of a name are read; calls.toml says what its fields mean."""

    implementation: str | None = None
    backend: str | None = None
    layout: str = "any"
    alignment: Literal["top_left", "bottom_right"] | None = None
    is_backward: bool = False
    is_no_call: bool = False
    keeps: tuple[str, ...] = ()
    is_generic: bool = False


@dataclass(frozen=True)
class Sizes:
    """Sizes of a call: of a packed one `nq` and `nk` are those of the longest sequence."""

    b: int | None = None
    hq: int | None = None
    hkv: int | None = None
    nq: int | None = None
    nk: int | None = None
    d_qk: int | None = None
    d_v: int | None = None
    tokens_q: int | None = None
    tokens_k: int | None = None
    is_varlen: bool | None = None
    hides_keys: bool = False
    """Whether how many keys there are stands in a tensor: a page table, or lengths in use."""
    batch_heads: int | None = None
    """Sequences times heads, where only that is known."""

    @property
    def is_known(self) -> bool:
        """Return whether heads and head dim are known, without which nothing can be counted."""
        return self.d_qk is not None


@dataclass(frozen=True)
class Mask:
    """What is hidden: `left` and `right` keys are seen around a query's own, None for all; `kind` None if unknown."""

    kind: str | None = None
    is_causal: bool | None = None
    alignment: Alignment | None = None
    left: int | None = None
    right: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Types:
    """Element types of queries, keys, values and the output, by torch's names."""

    q: str | None = None
    k: str | None = None
    v: str | None = None
    o: str | None = None


@dataclass(frozen=True)
class Reading:
    """All that ops say of a call."""

    implementation: str | None = None
    backend: str | None = None
    is_backward: bool = False
    sizes: Sizes = Sizes()
    mask: Mask = Mask()
    types: Types = Types()
    dropout: float | None = None
    core_dtype: str | None = None
    """Element type of the products, where it is another than the inputs': math makes float32 of half types."""


@cache
def rule_of(name: str) -> Rule | None:
    """Return how ops of a name are read, None for a name that tells of no attention."""
    for row in load("calls/calls")["call"]:
        if re.fullmatch(row["pattern"], name):
            return msgspec.convert(row, Rule)
    telling = load("calls/calls")["generic"]
    if re.fullmatch(telling["pattern"], name) and not re.fullmatch(telling["not_looked_at"], name):
        return Rule("generic", is_generic=True, is_backward=bool(re.fullmatch(telling["backward"], name)))
    return None


@cache
def read_op(row: Row) -> Reading:
    """Return what one op's row says of its call."""
    rule = rule_of(row.name) or Rule()
    named = arguments(*row) or _by_shape(read_inputs(*row[1:]), rule)
    plain = Reading(rule.implementation, rule.backend, rule.is_backward)
    if named is None:
        return plain
    sizes = _sizes(named, rule)
    q, k, v, o = (
        _meant(named, *names).dtype for names in (("query",), ("key",), ("value",), load("calls/calls")["means"]["out"])
    )
    dropout = _number(_meant(named, *load("calls/calls")["means"]["dropout"]).value)
    return replace(plain, sizes=sizes, mask=_mask(named, rule), types=Types(q, k, v, o), dropout=dropout)


def fits_generic(row: Row) -> bool:
    """Tell whether an op that no rule knows has three tensors which can be queries, keys and values."""
    rule = rule_of(row.name)
    return rule is not None and _by_shape(read_inputs(*row[1:]), rule) is not None


def _by_shape(inputs: Sequence[Argument], rule: Rule) -> dict[str, Argument] | None:
    """Return the first three inputs in a row whose shapes fit, as queries, keys and values."""
    fitting = [first for first in range(len(inputs) - 2) if _fit(*(one.shape for one in inputs[first : first + 3]))]
    if not fitting:
        return None
    first = fitting[0]
    if rule.is_backward and first + 1 in fitting:  # the gradient of the output comes before them
        first += 1
    return dict(zip(("query", "key", "value"), inputs[first : first + 3], strict=True))


def _fit(q: Shape | None, k: Shape | None, v: Shape | None) -> bool:
    if q is None or k is None or v is None:
        return False
    same = len(q) == len(k) == len(v) in {3, 4} and k[:-1] == v[:-1] and q[-1] == k[-1]
    return same and (len(q) == 3 or (q[0] == k[0] and any(_divides(q[at], k[at]) for at in (1, 2))))


def _divides(queries: int, keys: int) -> bool:
    return keys > 0 and queries % keys == 0


def _meant(named: Mapping[str, Argument], *names: str) -> Argument:
    return next((named[name] for name in names if name in named), NOTHING)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


# --- sizes -------------------------------------------------------------------------------------------------------


def _sizes(named: Mapping[str, Argument], rule: Rule) -> Sizes:
    means = load("calls/calls")["means"]
    q, k, v = (named.get(name, NOTHING).shape for name in ("query", "key", "value"))
    if rule.layout == "embed":
        heads = _whole(_meant(named, *means["heads"]).value)
        return _embedded(q or named.get("src", NOTHING).shape, k, heads)
    if q is None or k is None or v is None or min(len(q), len(k), len(v)) < 3:
        return Sizes()
    packed = len(q) == 3 and rule.layout in {"bshd", "paged"}
    is_packed = packed or _meant(named, *means["cu_q"]).shape is not None
    if is_packed or rule.layout == "paged":
        return _packed(named, q, k, v, rule)
    dense = _dense(q, k, v, _heads_at(q, k, rule.layout))
    hides = any(_meant(named, *means[name]).shape for name in ("pages", "used"))
    return replace(dense, hides_keys=hides) if dense.is_known else dense


def _heads_at(q: Shape, k: Shape, layout: str) -> int:
    """Return which dim of four counts heads; where nothing tells, the smaller one does."""
    if layout == "bhsd":
        return -3
    if layout == "bshd":
        return -2
    if len(q) < 4:
        return -2
    if q[1] != k[1] and q[2] == k[2]:
        return -2
    return -3 if q[1] != k[1] or q[1] <= q[2] else -2


def _dense(q: Shape, k: Shape, v: Shape, heads: int) -> Sizes:
    """Return the sizes of unpacked inputs. Without a dim for heads there is one, and all before it are sequences."""
    if not len(q) == len(k) == len(v):
        return Sizes()
    if len(q) == 3:  # scaled_dot_product_attention of [.., tokens, head dim]
        q, k, v = ((*each[:1], 1, *each[1:]) for each in (q, k, v))
    tokens = -2 if heads == -3 else -3
    before = len(q) - 3
    b, b_k, b_v = (prod(each[:before]) for each in (q, k, v))
    hq, hkv, nq, nk = q[heads], k[heads], q[tokens], k[tokens]
    agrees = v[tokens] == nk and v[heads] == hkv and q[-1] == k[-1] and hkv > 0 and hq % hkv == 0
    if not agrees or len({b, b_k, b_v} - {1}) > 1:
        return Sizes()
    whole = max(b, b_k, b_v) if min(b, b_k, b_v) else 0
    return Sizes(whole, hq, hkv, nq, nk, q[-1], v[-1], whole * nq, whole * nk, is_varlen=False)


def _packed(named: Mapping[str, Argument], q: Shape, k: Shape, v: Shape, rule: Rule) -> Sizes:
    """Return the sizes of packed queries, [tokens, heads, head dim], whose keys may lie in a cache."""
    means = load("calls/calls")["means"]
    cu_q, pages, used = (_meant(named, *means[name]).shape for name in ("cu_q", "pages", "used"))
    hq, hkv = q[-2], k[-2]
    if q[-1] != k[-1] or k[-2] != v[-2] or hkv <= 0 or hq % hkv:
        return Sizes()
    in_cache = rule.layout == "paged" or bool(pages) or len(k) > len(q)
    hides = in_cache or bool(used)
    tokens = prod(q[:-2])
    nq, nk = (_whole(_meant(named, *means[name]).value) for name in ("max_q", "max_k"))
    b = cu_q[0] - 1 if cu_q is not None and len(cu_q) == 1 and cu_q[0] > 0 else None
    if b is None and pages is not None and len(pages) == 1:  # where each sequence's pages begin
        b = pages[0] - 1
    nq = 1 if nq is None and b == tokens else nq
    tokens_k = None if in_cache else prod(k[:-2])
    return Sizes(b, hq, hkv, nq, nk, q[-1], v[-1], tokens, tokens_k, is_varlen=True, hides_keys=hides)


def _embedded(q: Shape | None, k: Shape | None, heads: int | None) -> Sizes:
    """Return the sizes of inputs whose heads are not split yet: [batch, tokens, heads x head dim]."""
    if q is None or len(q) != 3 or not heads or q[2] % heads:
        return Sizes()
    nk = k[1] if k is not None and len(k) == 3 else q[1]
    dim = q[2] // heads
    return Sizes(q[0], heads, heads, q[1], nk, dim, dim, q[0] * q[1], q[0] * nk, is_varlen=False)


# --- masks -------------------------------------------------------------------------------------------------------


def _mask(named: Mapping[str, Argument], rule: Rule) -> Mask:
    means = load("calls/calls")["means"]
    dense = _meant(named, *means["mask"])
    causal, alignment = _causal(named, rule)
    left, right = _window(named)
    if causal:
        right = 0
    elif right == 0:  # a window that ends at the query's own key
        causal = True
    kind = _kind(dense, causal=causal, is_windowed=left is not None or right is not None)
    return Mask(kind, causal, alignment if causal else None, left, right, _mask_bytes(dense))


def _kind(dense: Argument, *, causal: bool | None, is_windowed: bool) -> str | None:
    if dense.shape:
        return "boolean" if dense.dtype == "bool" else "additive"
    if causal:
        return "causal"
    if is_windowed:
        return "window"
    return "none" if causal is False else None


def _causal(named: Mapping[str, Argument], rule: Rule) -> tuple[bool | None, Alignment | None]:
    """Return whether a causal mask was asked for, None where that was not recorded, and where it starts."""
    kind = named.get("custom_mask_type", NOTHING).value
    if kind is not None:  # of the memory-efficient kernel: 1 starts at the first key, 2 ends at the last
        return kind in {1, 2}, "bottom_right" if kind == 2 else "top_left"
    value = _meant(named, *load("calls/calls")["means"]["causal"]).value
    if isinstance(value, bool):
        return value, rule.alignment
    # The memory-efficient op of 2.0 and nn.MultiheadAttention's fast path have no flag of their own.
    return (False if rule.layout == "embed" else None), rule.alignment


def _window(named: Mapping[str, Argument]) -> tuple[int | None, int | None]:
    """Return how many keys are seen before and after a query's own; -1 stands for all."""
    size: Any = named.get("window_size", NOTHING).value
    if isinstance(size, list) and len(size) == 2:
        return _whole(size[0]), _whole(size[1])
    if isinstance(size, int) and size > 0:  # of the memory-efficient kernel: its own key is one of them
        return size - 1, None
    return tuple(_whole(named.get(f"window_size_{side}", NOTHING).value) for side in ("left", "right"))  # type: ignore[return-value]


def _mask_bytes(dense: Argument) -> int | None:
    """Return the bytes of a mask as it lies in memory: dims that repeat it (stride 0) are not read twice."""
    if not dense.shape:
        return None
    size = size_of(dense.dtype)
    strides = dense.strides or (1,) * len(dense.shape)
    return None if size is None else size * prod(n for n, step in zip(dense.shape, strides, strict=True) if step)


# --- several ops of one call -------------------------------------------------------------------------------------


def merged(readings: Sequence[Reading]) -> Reading:
    """Return what ops of one call say together, the outermost first: what it does not say, those within it do.

    Element types are those of the innermost op, since autocast and padding happen between them.
    """
    outer = readings[0]
    sizes = next((one.sizes for one in readings if one.sizes.is_known), Sizes())
    for one in readings:
        sizes = _completed(sizes, one.sizes)
    return Reading(
        outer.implementation,
        next((one.backend for one in reversed(readings) if one.backend is not None), None),
        outer.is_backward,
        sizes,
        _merged_mask([one.mask for one in readings]),
        next((one.types for one in reversed(readings) if one.types.q is not None), Types()),
        next((one.dropout for one in readings if one.dropout is not None), None),
    )


def _completed(sizes: Sizes, other: Sizes) -> Sizes:
    """Return sizes with what another op of the call adds: packed sequences that the outer one does not know."""
    if not sizes.is_known or not other.is_known:
        return sizes
    missing = {name: getattr(other, name) for name in ("b", "nq", "nk", "tokens_k") if getattr(sizes, name) is None}
    return replace(sizes, **missing)


def _merged_mask(masks: Sequence[Mask]) -> Mask:
    known = [mask for mask in masks if mask.kind is not None]
    if not known:
        return masks[0]
    windowed = next((mask for mask in known if mask.left is not None), known[0])
    return replace(known[0], left=windowed.left, right=known[0].right if known[0].right is not None else windowed.right)
