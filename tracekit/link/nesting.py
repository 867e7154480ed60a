"""Intervals on one thread: which contains which, and who was innermost when.

Owns the sweep over sorted intervals, in plain Python because it is as fast as a vectorised one. It knows
nothing of what the intervals are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Nesting(NamedTuple):
    """For each interval: the index of its parent (-1 at the top), its depth, and its self time in ns."""

    parents: list[int]
    depths: list[int]
    self_ns: list[int]
    crossings: int


def nest(starts: Sequence[int], ends: Sequence[int]) -> Nesting:
    """Nest intervals sorted by (start, -end): a parent is the innermost one open when its child starts.

    Self time is the time during which an interval is the innermost one open, so that self times sum to the
    union of all intervals exactly, even where a child ends after its parent (counted in `crossings`).
    """
    count = len(starts)
    parents, depths, self_ns = [-1] * count, [0] * count, [0] * count
    stack: list[int] = []
    cursor, crossings = (starts[0] if count else 0), 0
    for index in range(count):
        start = starts[index]
        while stack and ends[stack[-1]] <= start:
            closing = stack.pop()
            if ends[closing] > cursor:
                self_ns[closing] += ends[closing] - cursor
                cursor = ends[closing]
        if stack:
            top = stack[-1]
            parents[index], depths[index] = top, len(stack)
            self_ns[top] += start - cursor
            crossings += ends[index] > ends[top]
        cursor = start
        stack.append(index)
    while stack:
        closing = stack.pop()
        if ends[closing] > cursor:
            self_ns[closing] += ends[closing] - cursor
            cursor = ends[closing]
    return Nesting(parents, depths, self_ns, crossings)


def innermost(starts: Sequence[int], ends: Sequence[int], times: Sequence[int]) -> list[int]:
    """Return for each time the index of the innermost interval open then, or -1.

    Intervals are sorted by (start, -end), times ascending; an interval is open from its start up to, not
    including, its end.
    """
    found = []
    stack: list[int] = []
    following, count = 0, len(starts)
    for time in times:
        while following < count and starts[following] <= time:
            while stack and ends[stack[-1]] <= starts[following]:
                stack.pop()
            stack.append(following)
            following += 1
        while stack and ends[stack[-1]] <= time:
            stack.pop()
        found.append(stack[-1] if stack else -1)
    return found


def by_thread(pids: Sequence[object], tids: Sequence[object]) -> dict[tuple[object, object], list[int]]:
    """Return the row indexes of each (pid, tid), in row order."""
    groups: dict[tuple[object, object], list[int]] = {}
    for index, key in enumerate(zip(pids, tids, strict=True)):
        groups.setdefault(key, []).append(index)
    return groups
