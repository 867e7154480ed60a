"""Intervals on one thread: which contains which, and who was innermost when.

Owns nesting, in whole columns where every interval ends within its parent and by a sweep where some cross, and who
was innermost when. It knows nothing of what the intervals are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Indexes = NDArray[np.int64]
    Nester = Callable[[Indexes, Indexes], "Nesting"]


class Nesting(NamedTuple):
    """For each interval: the index of its parent (-1 at the top), its depth, and its self time in ns."""

    parents: Indexes
    depths: Indexes
    self_ns: Indexes


def nest(starts: Indexes, ends: Indexes, window: range | None = None) -> Nesting:
    """Nest intervals sorted by (start, -end): a parent is the innermost one open when its child starts.

    Self time is the time during which an interval is the innermost one open, so that self times sum to the
    union of all intervals exactly, even where a child ends after its parent. With a window, intervals that reach
    beyond it count as far as they lie within.
    """
    if window is not None:
        known = np.iinfo(np.int64)
        starts = np.maximum(starts, max(window.start, known.min))
        ends = np.minimum(ends, min(window.stop, known.max))
    if (proper := _nested(starts, ends)) is None:
        return _swept(starts.tolist(), ends.tolist())
    parents, depths = proper
    self_ns = np.maximum(ends - starts, 0)
    inner = parents >= 0
    np.subtract.at(self_ns, parents[inner], self_ns[inner].copy())
    return Nesting(parents, depths, self_ns)


def parents_of(starts: Indexes, ends: Indexes) -> Indexes:
    """Return the parents that `nest` finds, and nothing else."""
    if (proper := _nested(starts, ends)) is not None:
        return proper[0]
    found = []
    stack: list[int] = []
    shut = ends.tolist()
    for index, start in enumerate(starts.tolist()):
        while stack and shut[stack[-1]] <= start:
            stack.pop()
        found.append(stack[-1] if stack else -1)
        stack.append(index)
    return np.array(found, dtype=np.int64)


def _nested(starts: Indexes, ends: Indexes) -> tuple[Indexes, Indexes] | None:
    """Return parents and depths of sorted intervals, or None if one ends after its parent.

    As many are open when one starts as began before it, less those that have ended; if those are a chain, the last
    to begin at the depth above it is its parent. That they are a chain is seen by every interval ending within.
    """
    count = len(starts)
    places = np.arange(count)
    lasts = ends > starts  # what takes no time contains nothing
    depths = np.cumsum(lasts) - lasts - np.searchsorted(np.sort(ends[lasts]), starts, side="right")
    inner = depths > 0
    known = np.sort(depths[lasts] * count + places[lasts])
    wanted = (depths[inner] - 1) * count + places[inner]
    at = np.searchsorted(known, wanted) - 1
    parents = np.full(count, -1, dtype=np.int64)
    if len(wanted):
        found = known[np.maximum(at, 0)]
        above = found % count
        if not bool(((at >= 0) & (found // count == wanted // count) & (ends[inner] <= ends[above])).all()):
            return None
        parents[inner] = above
    return parents, depths


def _swept(starts: list[int], ends: list[int]) -> Nesting:
    count = len(starts)
    parents, depths, self_ns = [-1] * count, [0] * count, [0] * count
    stack: list[int] = []
    cursor = starts[0] if count else 0
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
        cursor = start
        stack.append(index)
    while stack:
        closing = stack.pop()
        if ends[closing] > cursor:
            self_ns[closing] += ends[closing] - cursor
            cursor = ends[closing]
    return Nesting(*(np.array(column, dtype=np.int64) for column in (parents, depths, self_ns)))


def nearest(parents: Indexes, chosen: NDArray[np.bool_]) -> Indexes:
    """Return for each of some things the first chosen one among itself, its parent, its parent's and so on, or -1.

    `parents` need not come first, and may run in a circle.
    """
    found = np.where(chosen, np.arange(len(parents)), parents)
    for _ in range(len(parents).bit_length()):  # each turn looks twice as far
        at = np.flatnonzero(found >= 0)
        at = at[~chosen[found[at]]]
        if not len(at):
            return found
        found[at] = found[found[at]]
    found[(found >= 0) & ~chosen[found]] = -1
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
            each = starts[one:other], ends[one:other]
            if make is not None:
                nestings.append(make(*each))
            found = nestings[-1].parents if make else parents_of(*each)
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
