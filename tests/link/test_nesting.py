"""Nesting agrees with its definition, worked out the slow way."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.independent import Span, busy
from tracekit.link.nesting import Nesting, Spans, nest, parents_of

_SPANS = st.lists(
    st.builds(lambda start, length: Span(start, start + length), st.integers(-9, 24), st.integers(0, 12)), max_size=14
).map(lambda spans: sorted(spans, key=lambda one: (one.start, -one.end)))


def nested(spans: list[Span]) -> Nesting:
    return nest([one.start for one in spans], [one.end for one in spans])


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


@given(_SPANS)
@settings(deadline=None)
def test_crossings_are_the_children_that_end_after_their_parent(spans: list[Span]) -> None:
    parents = nested(spans).parents
    assert nested(spans).crossings == sum(
        spans[index].end > spans[parent].end for index, parent in enumerate(parents) if parent >= 0
    )


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
    assert parents_of([one.start for one in spans], [one.end for one in spans]) == nested(spans).parents


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
    assert nest([0, 5, 12], [10, 15, 20]) == Nesting([-1, 0, 1], [0, 1, 2], [5, 7, 8], 2)
