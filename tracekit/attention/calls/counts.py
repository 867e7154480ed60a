"""Query-key pairs, floating-point operations and bytes of an attention: plain arithmetic on its sizes.

Owns the formulas. What is counted are pairs that no mask of known shape hides: a causal mask, a sliding window.
Softmax is left out, as PyTorch's FlopCounterMode and FlashAttention's benchmarks do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

Alignment = Literal["top_left", "bottom_right"]


class View(NamedTuple):
    """Which keys a query sees: up to `left` before and `right` after the one at its own place, None for all.

    Query i stands at key i (top_left), or at key i + keys - queries (bottom_right). A causal mask is right = 0.
    """

    left: int | None = None
    right: int | None = None
    alignment: Alignment = "bottom_right"

    @property
    def sees_all(self) -> bool:
        """Return whether nothing is hidden."""
        return self.left is None and self.right is None


ALL = View()


def pairs(queries: int, keys: int, view: View = ALL) -> int:
    """Return how many of queries x keys pairs are seen, of one sequence and one head."""
    shift = keys - queries if view.alignment == "bottom_right" else 0
    above = queries * keys if view.right is None else _clipped(queries, shift + view.right + 1, keys)
    below = 0 if view.left is None else _clipped(queries, shift - view.left, keys)
    return above - below


def _clipped(count: int, first: int, most: int) -> int:
    """Return the sum over i in range(count) of first + i, each held between 0 and `most`."""
    rising = range(max(0, -first), max(0, min(count, most - first)))
    flat = count - max(0, min(count, most - first))
    return (len(rising) * (2 * first + rising.start + rising.stop - 1)) // 2 + flat * most if rising else flat * most


def keys_seen(queries: int, keys: int, view: View = ALL) -> int:
    """Return how many keys are seen by any query."""
    if not queries:
        return 0
    shift = keys - queries if view.alignment == "bottom_right" else 0
    last = keys if view.right is None else min(keys, shift + queries + view.right)
    first = 0 if view.left is None else max(0, shift - view.left)
    return max(0, last - first)


class Bounds(NamedTuple):
    """The least and the most that something can be."""

    least: int
    most: int


def packed_pairs(lengths: Sequence[tuple[int, int]], view: View = ALL) -> int:
    """Return the pairs of packed sequences, each of which has so many queries and keys."""
    return sum(pairs(queries, keys, view) for queries, keys in lengths)


def packed_bounds(tokens: int, sequences: int, longest: int, view: View = ALL) -> Bounds | None:
    """Return the least and the most pairs of sequences that attend to themselves, of which only totals are known.

    Pairs of a sequence grow with its length and never slower than before, until a window is full: few long sequences
    have the most, equal ones the least. None where the totals contradict each other.
    """
    if sequences < 1 or longest < 1 or not longest <= tokens <= sequences * longest:
        return None
    whole, rest = divmod(tokens, longest)
    most = whole * pairs(longest, longest, view) + pairs(rest, rest, view)
    # One sequence is as long as the longest is said to be; the others share what is left.
    others = sequences - 1
    share, more = divmod(tokens - longest, others) if others else (0, 0)
    least = pairs(longest, longest, view) + more * pairs(share + 1, share + 1, view)
    least += (others - more) * pairs(share, share, view)
    return Bounds(least, most)


def flops_of(pairs: int, heads: int, d_qk: int, d_v: int, *, backward: bool = False, recomputes: bool = True) -> int:
    """Return the operations of an attention over so many pairs: two for each multiply and add.

    Forward are the products QK and PV. Backward are those of dV, dP, dQ and dK; a fused kernel also makes QK anew.
    """
    if not backward:
        return 2 * heads * pairs * (d_qk + d_v)
    return 2 * heads * pairs * ((3 if recomputes else 2) * d_qk + 2 * d_v)


class Moved(NamedTuple):
    """Elements that an attention must read or write, and the bytes of one: queries, keys, values and the output.

    `queries`, `keys` are tokens over all sequences.
    """

    queries: int
    keys: int
    hq: int
    hkv: int
    d_qk: int
    d_v: int
    q_bytes: int
    k_bytes: int
    v_bytes: int
    o_bytes: int


def bytes_of(moved: Moved, mask_bytes: int = 0, *, backward: bool = False) -> int:
    """Return the bytes that must move at least: every input read once, every output written once.

    Backward reads Q, K, V, O, dO and 4 bytes a query and head (log-sum-exp), and writes dQ, dK and dV.
    """
    q = moved.queries * moved.hq * moved.d_qk * moved.q_bytes
    k = moved.keys * moved.hkv * moved.d_qk * moved.k_bytes
    v = moved.keys * moved.hkv * moved.d_v * moved.v_bytes
    o = moved.queries * moved.hq * moved.d_v * moved.o_bytes
    if not backward:
        return q + k + v + o + mask_bytes
    return 2 * (q + k + v) + 2 * o + 4 * moved.queries * moved.hq + mask_bytes
