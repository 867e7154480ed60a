"""The arithmetic of attention, against counting pairs one by one."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.attention.calls.counts import (
    Moved,
    View,
    bytes_of,
    flops_of,
    keys_seen,
    packed_bounds,
    packed_pairs,
    pairs,
)

FEW = st.integers(0, 12)
VIEWS = st.builds(
    View,
    st.one_of(st.none(), st.integers(0, 14)),
    st.one_of(st.none(), st.integers(0, 14)),
    st.sampled_from(["top_left", "bottom_right"]),
)


def seen(queries: int, keys: int, view: View) -> list[tuple[int, int]]:
    """Return the pairs that are seen, each looked at for itself."""
    shift = keys - queries if view.alignment == "bottom_right" else 0
    return [
        (query, key)
        for query, key in product(range(queries), range(keys))
        if (view.right is None or key <= query + shift + view.right)
        and (view.left is None or key >= query + shift - view.left)
    ]


@given(FEW, FEW, VIEWS)
def test_pairs_are_those_that_no_mask_hides(queries: int, keys: int, view: View) -> None:
    assert pairs(queries, keys, view) == len(seen(queries, keys, view))


@given(FEW, FEW, VIEWS)
def test_keys_seen_are_those_of_any_pair(queries: int, keys: int, view: View) -> None:
    assert keys_seen(queries, keys, view) == len({key for _, key in seen(queries, keys, view)})


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), VIEWS)
def test_bounds_hold_whatever_the_lengths_are(lengths: list[int], view: View) -> None:
    view = view._replace(alignment="bottom_right")
    bounds = packed_bounds(sum(lengths), len(lengths), max(lengths), view)
    if not any(lengths):
        assert bounds is None
        return
    assert bounds is not None
    assert bounds.least <= packed_pairs([(length, length) for length in lengths], view) <= bounds.most


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 20), VIEWS)
def test_bounds_are_reached_by_some_lengths(sequences: int, longest: int, tokens: int, view: View) -> None:
    view = view._replace(alignment="bottom_right")
    possible = [
        packed_pairs([(length, length) for length in lengths], view)
        for lengths in product(range(longest + 1), repeat=sequences)
        if sum(lengths) == tokens and max(lengths) == longest
    ]
    bounds = packed_bounds(tokens, sequences, longest, view)
    assert (bounds is None) == (not possible)
    if bounds is not None:
        assert bounds == (min(possible), max(possible))


@pytest.mark.parametrize(
    ("queries", "keys", "view", "expected"),
    [
        (4, 4, View(), 16),
        (4, 4, View(right=0), 10),  # 4 * 4 - 4 * 3 / 2
        (2, 4, View(right=0), 7),  # the first query sees 3 keys, the second 4
        (2, 4, View(right=0, alignment="top_left"), 3),  # 2 * 3 / 2
        (1, 4096, View(right=0, alignment="top_left"), 1),  # a decode step with is_causal sees one key
        (4, 4, View(left=1, right=0), 7),  # two keys a query, one for the first
        (0, 4, View(), 0),
    ],
)
def test_pairs_by_hand(queries: int, keys: int, view: View, expected: int) -> None:
    assert pairs(queries, keys, view) == expected


def test_flops_by_hand() -> None:
    assert flops_of(10, 3, 8, 6) == 2 * 3 * 10 * (8 + 6)
    assert flops_of(10, 3, 8, 8, backward=True) * 2 == flops_of(10, 3, 8, 8) * 5
    assert flops_of(10, 3, 8, 6, backward=True, recomputes=False) == 2 * 3 * 10 * (2 * 8 + 2 * 6)


def test_bytes_by_hand() -> None:
    moved = Moved(queries=4, keys=5, hq=6, hkv=2, d_qk=8, d_v=10, q_bytes=1, k_bytes=2, v_bytes=2, o_bytes=2)
    q, k, v, o = 4 * 6 * 8, 5 * 2 * 8 * 2, 5 * 2 * 10 * 2, 4 * 6 * 10 * 2
    assert bytes_of(moved) == q + k + v + o
    assert bytes_of(moved, 7) == q + k + v + o + 7
    assert bytes_of(moved, backward=True) == 2 * (q + k + v) + 2 * o + 4 * 4 * 6
