"""Nesting agrees with its definition, worked out the slow way."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.independent import Span, busy
from tracekit.link.nesting import Nesting, by_thread, innermost, nest

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


@given(_SPANS, st.lists(st.integers(-9, 40)).map(sorted))
@settings(deadline=None)
def test_innermost_is_the_last_to_start_of_those_open(spans: list[Span], times: list[int]) -> None:
    found = innermost([one.start for one in spans], [one.end for one in spans], times)
    assert found == [(open_at(spans, time) or [-1])[-1] for time in times]


def test_a_span_is_open_at_its_start_and_closed_at_its_end() -> None:
    assert innermost([5], [9], [4, 5, 8, 9]) == [-1, 0, 0, -1]


def test_a_child_that_ends_after_its_parent_takes_the_time_it_runs() -> None:
    assert nest([0, 5, 12], [10, 15, 20]) == Nesting([-1, 0, 1], [0, 1, 2], [5, 7, 8], 2)


def test_rows_are_grouped_by_process_and_thread() -> None:
    assert by_thread(["1", "1", "2", "1"], ["a", "b", "a", "a"]) == {
        ("1", "a"): [0, 3],
        ("1", "b"): [1],
        ("2", "a"): [2],
    }
