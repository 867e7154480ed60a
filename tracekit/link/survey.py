"""What of a whole trace its parts must know: when it begins, its steps, and what its ids can be trusted for.

Owns `Survey`, and the glance at pieces of a trace that it is made of: a trace too large to link at once is linked in
parts, windows of time, each of which is given the same survey and so comes out as it would have in the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.link.phases import number_steps, rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.ingest import Events

_EPOCH_NS = 100_000_000_000_000_000
_TIMED = ("ops", "frames", "runtime", "device")
_MARK = {"name": pl.String, "pid": pl.String, "tid": pl.String, "ts_ns": pl.Int64, "dur_ns": pl.Int64}


@dataclass(frozen=True)
class Survey:
    """A trace's start (ns, as its rows count time) and length, its steps, and what is true of all its rows."""

    origin_ns: int
    dur_ns: int
    steps: pl.DataFrame
    has_ops: bool
    has_modules: bool
    external_ids_hold: bool
    first_launch_ns: int | None
    first_correlation: int | None


@dataclass(frozen=True)
class Glance:
    """What a survey needs of one piece of a trace; glances add up."""

    first_ns: int | None
    first_credible_ns: int | None
    last_ns: int
    marks: pl.DataFrame
    has_ops: bool
    has_modules: bool


def glance(frames: Mapping[str, pl.DataFrame]) -> Glance:
    """Look at a piece of a trace: its frames, named as those of `Events`."""
    times = pl.concat([frames[name].select("ts_ns", "dur_ns") for name in _TIMED])
    start, end = pl.col("ts_ns"), pl.col("ts_ns") + pl.col("dur_ns")
    found = times.select(start.min(), start.filter(start > _EPOCH_NS).min().alias("credible"), end.max().alias("end"))
    first, credible, last = found.row(0)
    ops = frames["ops"]
    patterns = "|".join(f"(?:{pattern})" for pattern in rules()["step"]["marks"])
    marks = ops.filter(pl.col("name").str.contains(f"^(?:{patterns})$")).select(*_MARK, "is_finished")
    has_modules = bool(frames["frames"]["name"].str.starts_with("nn.Module: ").any())
    return Glance(first, credible, last or 0, marks, not ops["is_annotation"].all(), has_modules)


def survey(glances: Iterable[Glance], first_launch: tuple[int | None, int | None], external_ids: str) -> Survey:
    """Put glances at all pieces of a trace together.

    `first_launch` is its first time (ns) and correlation, `external_ids` what those ids name, as `Recording` has it.
    """
    glances = list(glances)
    last = max((one.last_ns for one in glances), default=0)
    firsts = [one.first_credible_ns if last > _EPOCH_NS else one.first_ns for one in glances]
    # A time of 0 among epoch times is no start.
    origin = min((first for first in firsts if first is not None), default=0)
    time, correlation = first_launch
    return Survey(
        origin,
        last - origin if any(first is not None for first in firsts) else 0,
        number_steps(pl.concat([one.marks for one in glances]), origin, last - origin),
        any(one.has_ops for one in glances),
        any(one.has_modules for one in glances),
        external_ids == "op",
        None if time is None else time - origin,
        correlation,
    )


def survey_events(events: Events) -> Survey:
    """Survey a trace that is all at hand."""
    frames = {name: getattr(events, name) for name in ("ops", "frames", "runtime", "device")}
    working = events.device["correlation"].drop_nulls().unique()
    launches = events.runtime.filter(pl.col("correlation").is_in(working.implode()))
    first = launches.select(pl.col("ts_ns").min(), pl.col("correlation").min()).row(0)
    return survey([glance(frames)], first, events.recording.external_ids)
