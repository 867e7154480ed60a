"""Nesting agrees with its definition, worked out the slow way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.independent import Span, busy
from tracekit.link.nesting import Spans, _nested, _swept, nearest, nest, parents_of

_SPANS = st.lists(
    st.builds(lambda start, length: Span(start, start + length), st.integers(-9, 24), st.integers(0, 12)), max_size=14
).map(lambda spans: sorted(spans, key=lambda one: (one.start, -one.end)))


class Nested(NamedTuple):
    """What nests, as lists."""

    parents: list[int]
    depths: list[int]
    self_ns: list[int]


def columns(spans: list[Span]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([one.start for one in spans], dtype=np.int64), np.array([one.end for one in spans], dtype=np.int64)


def nested(spans: list[Span]) -> Nested:
    return Nested(*(column.tolist() for column in nest(*columns(spans))))


def open_at(spans: list[Span], time: int) -> list[int]:
    """Return the spans that are open at a time, in order of start."""
    return [index for index, (start, end) in enumerate(spans) if start <= time < end]


def parent_of(spans: list[Span], index: int) -> int:
    """Return the last span before this one that is open when this one starts."""
    around = [other for other in open_at(spans, spans[index].start) if other < index]
    return around[-1] if around else -1


@given(_SPANS)
@settings(deadline=None)
def test_a_parent_is_the_innermost_span_open_when_its_child_starts(spans: list[Span]) -> None:
    assert nested(spans).parents == [parent_of(spans, index) for index in range(len(spans))]


@given(_SPANS)
@settings(deadline=None)
def test_depth_counts_the_parents(spans: list[Span]) -> None:
    parents, depths, *_ = nested(spans)
    assert depths == [0 if parent < 0 else depths[parent] + 1 for parent in parents]


@given(_SPANS)
@settings(deadline=None)
def test_self_time_is_the_time_as_the_innermost(spans: list[Span]) -> None:
    own = [0] * len(spans)
    for time in range(-9, 40):
        if inside := open_at(spans, time):
            own[inside[-1]] += 1
    assert nested(spans).self_ns == own


@given(_SPANS.filter(bool))
@settings(deadline=None)
def test_self_times_sum_to_the_union_even_where_spans_cross(spans: list[Span]) -> None:
    assert sum(nested(spans).self_ns) == busy(spans)


@st.composite
def trees(draw: st.DrawFn) -> list[Span]:
    """Return spans of which none crosses another, some of no length and some that begin or end together."""
    spans: list[Span] = []
    for start, length in draw(st.lists(st.tuples(st.integers(-9, 24), st.integers(0, 12)), max_size=14)):
        one = Span(start, start + length)
        if not any(a.start < b.start < a.end < b.end for other in spans for a, b in ((one, other), (other, one))):
            spans.append(one)
    return sorted(spans, key=lambda one: (one.start, -one.end))


@given(trees(), st.integers(-9, 36), st.integers(0, 20))
@settings(deadline=None)
def test_spans_that_do_not_cross_nest_without_a_sweep_as_with_one(spans: list[Span], start: int, length: int) -> None:
    starts, ends = columns(spans)
    assert _nested(starts, ends) is not None
    swept = [column.tolist() for column in _swept(starts.tolist(), ends.tolist())]
    assert list(nested(spans)) == swept
    window = range(start, start + length)
    inside = [one for one in spans if one.start < window.stop and one.end > window.start]
    clipped = [Span(max(one.start, window.start), min(one.end, window.stop)) for one in inside]
    assert list(nested(clipped)) == [column.tolist() for column in nest(*columns(inside), window)]


def test_spans_that_cross_are_swept() -> None:
    assert _nested(*columns([Span(0, 10), Span(5, 15)])) is None


@given(st.lists(st.tuples(st.integers(-1, 12), st.booleans()), max_size=12))
@settings(deadline=None)
def test_the_nearest_chosen_one_is_found_by_climbing(rows: list[tuple[int, bool]]) -> None:
    parents = [min(parent, len(rows) - 1) for parent, _ in rows]
    chosen = [is_chosen for _, is_chosen in rows]
    slow = []
    for row in range(len(rows)):
        for _ in range(len(rows) + 1):  # a circle has no more members than there are rows
            if row < 0 or chosen[row]:
                break
            row = parents[row]
        else:
            row = -1
        slow.append(row)
    assert nearest(np.array(parents, dtype=np.int64), np.array(chosen, dtype=bool)).tolist() == slow


def spans_of(threads: list[list[Span]]) -> tuple[Spans, list[tuple[int, Span]]]:
    """Return intervals of several threads as spans, and the same with their threads as a list in order of start."""
    rows = sorted(
        ((number, one) for number, spans in enumerate(threads) for one in spans),
        key=lambda row: (row[1].start, -row[1].end, row[0]),
    )
    columns = ([number for number, _ in rows], [one.start for _, one in rows], [one.end for _, one in rows])
    return Spans.of(*(np.array(column, dtype=np.int64) for column in columns)), rows


@given(_SPANS)
def test_parents_alone_are_those_of_the_whole_nesting(spans: list[Span]) -> None:
    assert parents_of(*columns(spans)).tolist() == nested(spans).parents


@given(
    st.lists(_SPANS, max_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 40)), max_size=20),
    st.lists(st.booleans(), min_size=42, max_size=42),
)
def test_innermost_is_the_last_to_start_of_those_open_and_usable(
    threads: list[list[Span]], asked: list[tuple[int, int]], usable: list[bool]
) -> None:
    spans, rows = spans_of(threads)
    on, times = (np.array([pair[place] for pair in asked], dtype=np.int64) for place in (0, 1))
    flags = np.array(usable[: len(rows)], dtype=bool)
    found = spans.innermost(on, times, flags)
    for (thread, time), hit in zip(asked, found.tolist(), strict=True):
        inside = [
            place
            for place, (number, one) in enumerate(rows)
            if flags[place] and number == thread and one.start <= time < one.end
        ]
        assert hit == (inside or [-1])[-1]


def test_a_span_is_open_at_its_start_and_closed_at_its_end() -> None:
    spans, _ = spans_of([[Span(5, 9)]])
    times = np.array([4, 5, 8, 9], dtype=np.int64)
    assert spans.innermost(np.zeros(4, dtype=np.int64), times).tolist() == [-1, 0, 0, -1]


def test_a_child_that_ends_after_its_parent_takes_the_time_it_runs() -> None:
    assert nested([Span(0, 10), Span(5, 15), Span(12, 20)]) == Nested([-1, 0, 1], [0, 1, 2], [5, 7, 8])
