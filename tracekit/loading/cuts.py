"""Where a trace that is too large to link at once is cut into windows of time.

Owns the choice: where no op and no nn.Module is open, and no backward is awaited; so nothing that is linked by more
than time lies on both sides of a cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.ingest import TABLES
from tracekit.link import arrows_of
from tracekit.loading.outline import SAMPLE, united

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.loading.outline import Outline

    Times = NDArray[np.int64]

_BEFORE, _AFTER = -(2**63), 2**63 - 1
_MOST = 4
"""A part may be this many times larger before it is cut where something is open."""


class Cuts(NamedTuple):
    """The times, in ns, at which parts after the first begin, and how many of them cut through something.

    `lost` is how many forward ops, at most, have their backward in another part, so that the link is lost.
    """

    times: Times
    forced: int
    lost: int


def cuts(outlines: Sequence[Outline], rows: int) -> Cuts:
    """Decide where to cut a trace into parts of about so many rows."""
    times = np.sort(np.concatenate([one.times() for one in outlines]))
    samples = max(1, rows // SAMPLE)
    busy = united(*_joined(outlines, "busy"))
    awaited, pointed = _awaited(outlines), _pointed(outlines)
    quiet = _gaps(*united(*(np.concatenate([spans[end] for spans in (busy, awaited, pointed)]) for end in (0, 1))))
    calm = _gaps(*busy)
    found: list[int] = []
    forced, last = 0, 0
    for place in range(samples, len(times) - samples // 2, samples):
        bounds = (max(last + 1, place - samples // 2), min(len(times) - 1, place + samples // 2))
        near = times[place], times[bounds[0]], times[bounds[1]]
        cut = _nearest(quiet, *near)
        if cut is None and place - last >= _MOST * samples:
            cut = _nearest(calm, *near) or int(near[0])
            forced += 1
        if cut is not None and (not found or cut > found[-1]):
            found.append(cut)
            last = int(np.searchsorted(times, cut))
    chosen = np.array(found, dtype=np.int64)
    return Cuts(chosen, forced, _across(chosen, awaited) + _across(chosen, pointed))


def _awaited(outlines: Sequence[Outline]) -> tuple[Times, Times]:
    """Return the spans from a forward op to its backward, by sequence number."""
    forward, backward = (_numbered(outlines, name).group_by("number") for name in ("forward", "backward"))
    spans = forward.agg(pl.col("time").min()).join(backward.agg(pl.col("time").max().alias("end")), on="number")
    spans = spans.filter(pl.col("end") > pl.col("time"))
    return spans["time"].to_numpy(), spans["end"].to_numpy()


def _pointed(outlines: Sequence[Outline]) -> tuple[Times, Times]:
    """Return the spans from a forward op to its backward, by arrows, of those that no number tells."""
    ends = [one.place.read("arrows") for one in outlines if one.place.heights["arrows"]]
    arrows, _ = arrows_of(pl.concat([pl.DataFrame(schema=TABLES["arrows"]), *ends]))
    first = _numbered(outlines, "forward").group_by("number").agg(pl.col("time").min().alias("first"))
    told = _numbered(outlines, "backward").join(first, on="number").filter(pl.col("time") > pl.col("first"))
    spans = arrows.filter(~pl.col("ts_ns").is_in(told["time"].implode()))
    return spans["forward_ts_ns"].to_numpy(), spans["ts_ns"].to_numpy()


def _numbered(outlines: Sequence[Outline], name: str) -> pl.DataFrame:
    return pl.DataFrame(dict(zip(("number", "time"), _joined(outlines, name), strict=True)))


def _across(cuts: Times, spans: tuple[Times, Times]) -> int:
    """Return how many spans begin and end in different parts."""
    first, last = (np.searchsorted(cuts, ends, side="right") for ends in spans)
    return int((first != last).sum())


def _joined(outlines: Sequence[Outline], name: str) -> tuple[Times, Times]:
    first, second = np.concatenate([one.pair(name) for one in outlines], axis=1)
    return first, second


def _gaps(starts: Times, ends: Times) -> tuple[Times, Times]:
    """Return the spans around and between merged ones."""
    return np.concatenate(([_BEFORE], ends)), np.concatenate((starts, [_AFTER]))


def _nearest(gaps: tuple[Times, Times], wanted: int, first: int, last: int) -> int | None:
    """Return a time in a gap, as near as can be to the one wanted, or None if there is none between two others."""
    begins, ends = gaps
    after = int(np.searchsorted(ends, wanted))
    best: int | None = None
    for place in (after - 1, after):
        if not 0 <= place < len(begins):
            continue
        nearest = int(min(max(wanted, begins[place]), ends[place]))
        if first < nearest < last and (best is None or abs(nearest - wanted) < abs(best - wanted)):
            best = nearest
    return best
