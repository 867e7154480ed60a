"""Since when a device had nothing to do before each piece of its work.

Owns the order of work on a device, whose streams overlap; a trace that is linked in parts is counted part after part.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_NONE = -(2**63)
"""What stands for null where there are only numbers."""
_WORK = dict.fromkeys(
    ("kernel_id", "device", "stream", "step_id", "start_ns", "dur_ns", "launch_id", "launched_ns"), pl.Int64
)


def work_of(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return of linked kernels what their waits are counted from."""
    return kernels.select(list(_WORK))


class _Last(NamedTuple):
    """The work of a device that ended last so far, the last to begin of several: when, its id, and its launch's."""

    end_ns: int
    kernel_id: int
    launch_id: int


class Waits:
    """Counts the waits of one trace's devices.

    Work is in the order of starts, then of ends, then of ids, whatever part it comes with. What can't be counted yet is
    held, 64 bytes a row: all of a trace in which a last part has work that is dated before all other.
    """

    def __init__(self) -> None:
        """Know of no work yet."""
        self._left = pl.DataFrame(schema=_WORK)
        self._last: dict[int | None, _Last] = {}

    def take(self, work: pl.DataFrame | None, until_ns: int | None = None) -> pl.DataFrame:
        """Take what `work_of` returned, if any, and return the waits before all work that begins before `until_ns`.

        No work that is taken later may begin before that; None means that there is none.
        """
        rows, self._left = self._left if work is None else pl.concat([self._left, work]), self._left.clear()
        if until_ns is not None:
            is_sure = rows["start_ns"] < until_ns
            if not is_sure.any():
                rows, self._left = rows.clear(), rows
            else:
                rows, self._left = rows.filter(is_sure), rows.filter(~is_sure)
        starts, devices = rows["start_ns"].to_numpy(), rows["device"].rank("dense").fill_null(0).to_numpy()
        ends = starts + rows["dur_ns"].to_numpy()
        order = np.lexsort((rows["kernel_id"].to_numpy(), ends, starts, devices))
        rows, ends, devices = rows[order], ends[order], devices[order]
        ids, launches = rows["kernel_id"].to_numpy(), _numbers(rows["launch_id"])
        free, before, before_launch = (np.full(len(order), _NONE, dtype=np.int64) for _ in range(3))
        edges = [0, *(np.flatnonzero(devices[1:] != devices[:-1]) + 1).tolist(), len(order)] if len(order) else []
        for first, end in pairwise(edges):
            span, device = slice(first, end), rows["device"][first]
            last = self._last.get(device, _Last(_NONE, _NONE, _NONE))
            self._last[device] = _counted(
                last, ends[span], ids[span], launches[span], free[span], before[span], before_launch[span]
            )
        return _as_table(rows, free, before, before_launch)


def _counted(
    last: _Last,
    ends: Numbers,
    ids: Numbers,
    launches: Numbers,
    free: Numbers,
    before: Numbers,
    before_launch: Numbers,
) -> _Last:
    """Fill in what was before each piece of one device's work, given in order; return what ended last of all."""
    reach = np.maximum(np.maximum.accumulate(ends), last.end_ns)
    free[0], free[1:] = last.end_ns, reach[:-1]
    place = np.maximum.accumulate(np.where(ends >= free, np.arange(len(ends)), -1))
    for known, of_last, found in ((ids, last.kernel_id, before), (launches, last.launch_id, before_launch)):
        found[0], found[1:] = of_last, np.where(place[:-1] < 0, of_last, known[place[:-1]])
    if place[-1] < 0:
        return last
    return _Last(int(reach[-1]), int(ids[place[-1]]), int(launches[place[-1]]))


def _as_table(rows: pl.DataFrame, free: Numbers, before: Numbers, before_launch: Numbers) -> pl.DataFrame:
    known = rows.with_columns(
        free_ns=_with_nulls(free), before_id=_with_nulls(before), before_launch=_with_nulls(before_launch)
    )
    is_same = (pl.col("launch_id") == pl.col("before_launch")).fill_null(value=False)
    return known.select(
        "kernel_id",
        "device",
        "stream",
        "step_id",
        "free_ns",
        "before_id",
        pl.when(pl.col("before_id").is_not_null()).then(is_same).alias("is_same_launch"),
        (pl.col("start_ns") - pl.col("free_ns")).clip(0).alias("idle_ns"),
        "launched_ns",
    )


def _numbers(column: pl.Series) -> Numbers:
    return column.fill_null(_NONE).to_numpy()


def _with_nulls(values: Numbers) -> pl.Series:
    found = pl.Series(values)
    return found.set(found == _NONE, None)
