"""What belongs to what: ops to parents, frames and modules, device work to launches and ops, both to steps.

`link(events)` gives `Trace`; `link_part` links a window of time of a trace that is too large to link at once. It reads
no file and gives nothing a role: that is meaning, the room above.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit.ingest import Problem
from tracekit.link.arrows import arrows_of
from tracekit.link.collectives import collectives
from tracekit.link.graphs import captured_work
from tracekit.link.launches import as_other, link_kernels, link_launches, split_runtime
from tracekit.link.linked import Around, Linked, Trace
from tracekit.link.memory import lifetimes, odd_lifetimes, place_memory
from tracekit.link.nesting import nearest
from tracekit.link.ops import (
    find_modules,
    modules_named,
    nest_frames,
    nest_ops,
    number,
    number_threads,
    owners,
    spans_of,
)
from tracekit.link.phases import add_phases, finish_steps, inherit_modules, steps_of, working_steps
from tracekit.link.problems import Tally, noticed, tally
from tracekit.link.survey import Glance, Survey, glance, survey, survey_events
from tracekit.link.waits import Waits, work_of

if TYPE_CHECKING:
    from tracekit.ingest import Events, Frames

__all__ = [
    "Around",
    "Glance",
    "Linked",
    "Problem",
    "Survey",
    "Tally",
    "Trace",
    "Waits",
    "arrows_of",
    "captured_work",
    "finish_steps",
    "glance",
    "lifetimes",
    "link",
    "link_part",
    "modules_named",
    "nearest",
    "noticed",
    "odd_lifetimes",
    "survey",
    "survey_events",
    "work_of",
]


def link(events: Events) -> Trace:
    """Link one trace's rows. Times are shifted so that its first timed row starts at 0."""
    known = survey_events(events)
    part = link_part(events, known)
    lived = lifetimes(part.memory_samples)
    unix = events.recording.base_unix_ns
    return Trace(
        **vars(part),
        recording=events.recording,
        start_unix_ns=None if unix is None else unix + known.origin_ns,
        dur_ns=known.dur_ns,
        steps=finish_steps(known.steps, part.working_steps),
        allocations=lived.allocations,
        problems=(*events.problems, *odd_lifetimes(lived.oddities), *noticed(part.tally)),
    )


def link_part(events: Frames, known: Survey, around: Around | None = None, early: pl.Series | None = None) -> Linked:
    """Link the rows of a trace, or of a window of it, `around` being what is open when that begins.

    `early` are correlations whose device work is in another part. The rows of `around` come back among the others;
    `known_id` tells them apart, which is null for the part's own.
    """
    window = None
    if around is not None:
        window = range(around.window.start - known.origin_ns, around.window.stop - known.origin_ns)
        events = _with(events, around)

    def shifted(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns((pl.col("ts_ns") - known.origin_ns).alias("start_ns")).drop("ts_ns")

    arrows, loose = arrows_of(events.arrows)
    ends, starts = shifted(arrows), shifted(arrows.select("pid", tid="forward_tid", ts_ns="forward_ts_ns"))
    rows = (shifted(rows) for rows in (events.ops, events.frames, events.runtime, events.memory))
    ops, frames, runtime, memory, ends, starts = number_threads(*rows, ends, starts)
    arrows = pl.concat([ends, starts.select(pl.col("thread", "start_ns").name.prefix("forward_"))], how="horizontal")
    frames = number(frames, "frame_id", "python_id")
    frame_spans = spans_of(frames)
    modules, frames = find_modules(nest_frames(frames).drop("thread"), by_file=not known.has_modules)
    ops = number(ops, "op_id", "external_id")
    ops, op_spans, crossings = nest_ops(ops, window)
    ops = ops.with_columns(owners(ops, frame_spans, "frame_id"))
    ops = ops.join(frames.select("frame_id", "module_id"), on="frame_id", how="left", maintain_order="left")
    ops, leading_nowhere = add_phases(ops, frames, arrows)
    ops = inherit_modules(ops.drop("thread"))
    ops = ops.with_columns(steps_of(ops, known.steps))
    launches, calls = split_runtime(runtime, events.device, early)
    launches = link_launches(launches, ops, op_spans, frame_spans)
    launches = launches.with_columns(steps_of(launches, known.steps))
    kernels = number(shifted(events.device), "kernel_id", "device", "stream", "correlation")
    kernels = _place(link_kernels(kernels, launches, ops, known), launches, ops, frames)
    other = pl.concat([shifted(events.other), as_other(calls.drop("thread"))], how="diagonal")
    memory = place_memory(memory, ops, frames, op_spans, frame_spans)
    own = ops if around is None else ops.filter(pl.col("known_id").is_null())
    return Linked(
        ops,
        frames,
        modules,
        launches,
        kernels,
        _own_collectives(ops, launches, kernels),
        memory,
        other,
        tally(own, kernels, calls, events.other, crossings, loose + leading_nowhere),
        working_steps(known.steps, ops),
    )


def _own_collectives(ops: pl.DataFrame, launches: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives of a part; one whose op spans its end is another's, unless its work is here."""
    found = collectives(ops, launches, kernels)
    if "known_id" not in ops.columns:
        return found
    known = ops.filter(pl.col("known_id").is_not_null())["op_id"]
    return found.filter(pl.col("kernel_id").is_not_null() | ~pl.col("op_id").is_in(known.implode()))


def _with(events: Frames, around: Around) -> Frames:
    ops, frames = (
        pl.concat([known, own.with_columns(pl.lit(None, pl.Int64).alias("known_id"))])
        for known, own in ((around.ops, events.ops), (around.frames, events.frames))
    )
    return replace(events, ops=ops, frames=frames)


def _place(kernels: pl.DataFrame, launches: pl.DataFrame, ops: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """Give kernels name, module and phase of their op, else the module around their launch; step and start of that."""
    by_op = ops.select(
        "op_id", "module_id", "phase", pl.col("step_id").alias("op_step"), pl.col("name").alias("op_name")
    )
    by_frame = frames.select("frame_id", pl.col("module_id").alias("launch_module"))
    placed_launches = launches.join(by_frame, on="frame_id", how="left", maintain_order="left")
    by_launch = placed_launches.select("launch_id", "launch_module", launch_step="step_id", launched_ns="start_ns")
    placed = kernels.join(by_op, on="op_id", how="left", maintain_order="left")
    placed = placed.join(by_launch, on="launch_id", how="left", maintain_order="left")
    return placed.with_columns(
        pl.coalesce("launch_step", "op_step").alias("step_id"),
        pl.coalesce("module_id", "launch_module").alias("module_id"),
        pl.col("phase").fill_null("other"),
    ).drop("launch_step", "op_step", "launch_module")
