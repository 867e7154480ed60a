"""Pairs, FLOPs and bytes of a call, each with how sure it is.

Owns what follows from what ops say; the arithmetic is counts.py's. exact: sizes and mask are all recorded. estimated:
an upper bound, since the content of a mask or the lengths of packed sequences is not. not_derivable: null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit.attention.calls.counts import (
    Bounds,
    Moved,
    View,
    bytes_of,
    flops_of,
    keys_seen,
    packed_bounds,
    packed_pairs,
    pairs,
)
from tracekit.element_types import size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.attention.calls.reading import Mask, Reading, Sizes

_DENSE = {"boolean", "additive"}
_UNFUSED = {"naive", "mha_fast_path"}


class Counted(NamedTuple):
    """What a call computes and moves; null with a status of not_derivable."""

    pairs: int | None = None
    pairs_least: int | None = None
    pairs_status: str = "not_derivable"
    flops: int | None = None
    flops_status: str = "not_derivable"
    bytes: int | None = None
    bytes_status: str = "not_derivable"


def counted(reading: Reading, lengths: Sequence[int] | None = None) -> Counted:
    """Return what a call computes and moves. `lengths` are the true ones of packed sequences, where facts have them."""
    bounds, status = _pairs(reading, lengths)
    moved, moved_status = _bytes(reading)
    if bounds is None:
        of_chain, chain_status = _of_chain(reading)
        return Counted(None, None, "not_derivable", of_chain, chain_status, moved, moved_status)
    sizes = reading.sizes
    flops = None
    if sizes.hq is not None and sizes.d_qk is not None and sizes.d_v is not None:
        flops = _flops(reading, sizes.hq, bounds.most)
    flops_status = status if flops is not None else "not_derivable"
    return Counted(bounds.most, bounds.least, status, flops, flops_status, moved, moved_status)


def _flops(reading: Reading, heads: int, many: int) -> int:
    sizes = reading.sizes
    recomputes = reading.implementation not in _UNFUSED and reading.backend != "math"
    return flops_of(many, heads, sizes.d_qk or 0, sizes.d_v or 0, backward=reading.is_backward, recomputes=recomputes)


def _of_chain(reading: Reading) -> tuple[int | None, str]:
    """Return the FLOPs of a chain of which only sequences times heads is known, so that pairs of one head are not."""
    sizes = reading.sizes
    if sizes.batch_heads is None or sizes.nq is None or sizes.nk is None or reading.mask.kind is None:
        return None, "not_derivable"
    status = "estimated" if reading.mask.kind in _DENSE else "exact"
    flops = _flops(reading, sizes.batch_heads, pairs(sizes.nq, sizes.nk, view_of(reading.mask)))
    return flops, status


def view_of(mask: Mask) -> View:
    """Return which keys a query sees, apart from what a dense mask hides."""
    return View(mask.left, mask.right, mask.alignment or "bottom_right")


def _pairs(reading: Reading, lengths: Sequence[int] | None) -> tuple[Bounds | None, str]:
    sizes, mask = reading.sizes, reading.mask
    if mask.kind is None or not sizes.is_known:
        return None, "not_derivable"
    if sizes.is_varlen:
        return _packed(sizes, view_of(mask), lengths)
    if sizes.b is None or sizes.nq is None or sizes.nk is None:
        return None, "not_derivable"
    most = sizes.b * pairs(sizes.nq, sizes.nk, view_of(mask))
    if mask.kind in _DENSE or sizes.hides_keys:
        return Bounds(0, most), "estimated"
    return Bounds(most, most), "exact"


def _packed(sizes: Sizes, view: View, lengths: Sequence[int] | None) -> tuple[Bounds | None, str]:
    """Return the pairs of packed sequences: exact where lengths are known or follow, else bounds."""
    if lengths is not None and _are_of(lengths, sizes):
        found = packed_pairs([(length, length) for length in lengths], view)
        return Bounds(found, found), "exact"
    tokens, keys, b, nq, nk = sizes.tokens_q, sizes.tokens_k, sizes.b, sizes.nq, sizes.nk
    if tokens is None or b is None or nq is None or nk is None:
        return None, "not_derivable"
    if nq == 1 and tokens == b and keys is not None and not sizes.hides_keys and view.left is None:
        return Bounds(keys, keys), "exact"  # one query a sequence, which sees all of its keys
    if nq != nk or keys not in {tokens, None}:
        return None, "not_derivable"
    found_bounds = packed_bounds(tokens, b, nq, view)
    if found_bounds is None:
        return None, "not_derivable"
    is_exact = found_bounds.least == found_bounds.most and not sizes.hides_keys
    return found_bounds, "exact" if is_exact else "estimated"


def _are_of(lengths: Sequence[int], sizes: Sizes) -> bool:
    """Tell whether true lengths are those of a call's packed sequences, which attend to themselves."""
    total = sum(lengths)
    is_alike = len(lengths) == sizes.b and total == sizes.tokens_q == sizes.tokens_k
    return is_alike and not sizes.hides_keys


def _bytes(reading: Reading) -> tuple[int | None, str]:
    sizes, types = reading.sizes, reading.types
    own_out = types.o or (None if (types.q or "").startswith("float8") else types.q)
    q, k, v, o = (size_of(each) for each in (types.q, types.k, types.v, own_out))
    if q is None or k is None or v is None or o is None or (reading.mask.kind in _DENSE and reading.mask.bytes is None):
        return None, "not_derivable"
    keys = _keys(sizes, reading.mask)
    heads, tokens, status = sizes.hq, sizes.tokens_q, "exact"
    hkv = sizes.hkv
    if sizes.batch_heads is not None and heads is None:
        heads = hkv = sizes.batch_heads
        tokens, keys = sizes.nq, sizes.nk
    if None in {tokens, keys, heads, hkv, sizes.d_qk, sizes.d_v}:
        return None, "not_derivable"
    if sizes.hides_keys or (sizes.is_varlen and reading.mask.left is not None and sizes.nq != sizes.nk):
        status = "estimated"
    moved = Moved(tokens or 0, keys or 0, heads or 0, hkv or 0, sizes.d_qk or 0, sizes.d_v or 0, q, k, v, o)
    return bytes_of(moved, reading.mask.bytes or 0, backward=reading.is_backward), status


def _keys(sizes: Sizes, mask: Mask) -> int | None:
    """Return the keys over all sequences that any query sees."""
    if sizes.is_varlen or sizes.b is None or sizes.nq is None or sizes.nk is None:
        return sizes.tokens_k
    return sizes.b * keys_seen(sizes.nq, sizes.nk, view_of(mask))
