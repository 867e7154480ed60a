"""Intervals on one thread: which contains which, and who was innermost when.

Owns the sweep over sorted intervals, in plain Python because it is as fast as a vectorised one, and the questions
that can be answered without one. It knows nothing of what the intervals are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Indexes = NDArray[np.int64]
    Nester = Callable[[Sequence[int], Sequence[int]], "Nesting"]


class Nesting(NamedTuple):
    """For each interval: the index of its parent (-1 at the top), its depth, and its self time in ns."""

    parents: list[int]
    depths: list[int]
    self_ns: list[int]
    crossings: int


def nest(starts: Sequence[int], ends: Sequence[int], window: range | None = None) -> Nesting:
    """Nest intervals sorted by (start, -end): a parent is the innermost one open when its child starts.

    Self time is the time during which an interval is the innermost one open, so that self times sum to the
    union of all intervals exactly, even where a child ends after its parent (counted in `crossings`). With a
    window, intervals that reach beyond it count as far as they lie within.
    """
    count = len(starts)
    if window is not None and count and (starts[0] < window.start or max(ends) > window.stop):
        starts = [max(start, window.start) for start in starts]
        ends = [min(end, window.stop) for end in ends]
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


def parents_of(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Return the parents that `nest` finds, and nothing else."""
    found = []
    stack: list[int] = []
    for index, start in enumerate(starts):
        while stack and ends[stack[-1]] <= start:
            stack.pop()
        found.append(stack[-1] if stack else -1)
        stack.append(index)
    return found


@dataclass(frozen=True)
class Spans:
    """Intervals of many threads, those of one after those of the other, each thread's sorted by (start, -end).

    `rows` says which interval is at each place, `first` where the intervals of a thread begin, `parents` at which place
    the parent of each is, -1 for none.
    """

    rows: Indexes
    first: dict[int, tuple[int, int]]
    starts: Indexes
    ends: Indexes
    parents: Indexes
    nestings: tuple[Nesting, ...] = ()

    @classmethod
    def of(cls, threads: Indexes, starts: Indexes, ends: Indexes, make: Nester | None = None) -> Spans:
        """Sort intervals, which are in order of start, by thread, and nest them.

        With `make`, a way to nest those of one thread, `nestings` holds all that it finds, thread by thread.
        """
        rows = np.argsort(threads, kind="stable")
        threads, starts, ends = threads[rows], starts[rows], ends[rows]
        edges = [0, *(np.flatnonzero(np.diff(threads)) + 1).tolist(), len(threads)] if len(threads) else [0]
        first = {int(threads[one]): (one, other) for one, other in pairwise(edges)}
        parents = np.empty(len(rows), dtype=np.int64)
        nestings = []
        for one, other in first.values():
            each = starts[one:other].tolist(), ends[one:other].tolist()
            if make is not None:
                nestings.append(make(*each))
            found = np.array(nestings[-1].parents if make else parents_of(*each), dtype=np.int64)
            parents[one:other] = np.where(found < 0, -1, found + one)
        return cls(rows, first, starts, ends, parents, tuple(nestings))

    def innermost(self, threads: Indexes, times: Indexes, usable: NDArray[np.bool_] | None = None) -> Indexes:
        """Return for each time the interval that is the innermost one open on its thread then, or -1.

        An interval is open from its start up to, not including, its end. Where some are not `usable`, they are
        looked through. Those open are the last to start and, one after the other, its parents.
        """
        place = np.full(len(times), -1, dtype=np.int64)
        if not len(self.rows):
            return place
        order = np.argsort(threads, kind="stable")
        edges = np.flatnonzero(np.diff(threads[order])) + 1
        for group in np.split(order, edges):
            if len(group) and (bounds := self.first.get(int(threads[group[0]]))):
                first, last = bounds
                found = np.searchsorted(self.starts[first:last], times[group], side="right") - 1
                place[group] = np.where(found < 0, -1, found + first)
        asking = np.flatnonzero(place >= 0)
        while len(asking):
            at = place[asking]
            is_shut = self.ends[at] <= times[asking]
            if usable is not None:
                is_shut |= ~usable[self.rows[at]]
            asking = asking[is_shut]
            place[asking] = self.parents[at[is_shut]]
            asking = asking[place[asking] >= 0]
        return np.where(place < 0, -1, self.rows[place])
