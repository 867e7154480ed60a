"""What belongs to what: ops to parents, frames and modules, device work to launches and ops, both to steps.

`link(events)` gives `Linked`. It reads no file and gives nothing a role: that is meaning, the room above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.ingest import Problem
from tracekit.link.launches import as_other, link_kernels, link_launches, split_runtime
from tracekit.link.linked import Linked
from tracekit.link.memory import link_memory
from tracekit.link.ops import find_modules, nest_frames, nest_ops, number, owners
from tracekit.link.phases import add_phases, find_steps, inherit_modules, steps_of
from tracekit.link.problems import noticed

if TYPE_CHECKING:
    from tracekit.ingest import Events

__all__ = ["Linked", "Problem", "link"]

_EPOCH_NS = 100_000_000_000_000_000


def link(events: Events) -> Linked:
    """Link one trace's rows. Times are shifted so that its first timed row starts at 0."""
    origin, end = _extent(events)

    def shifted(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns((pl.col("ts_ns") - origin).alias("start_ns")).drop("ts_ns")

    frames = nest_frames(number(shifted(events.frames), "frame_id", "python_id"))
    modules, frames = find_modules(frames)
    ops, crossings = nest_ops(number(shifted(events.ops), "op_id", "external_id"))
    ops = ops.with_columns(owners(ops, frames, "frame_id"))
    ops = ops.join(frames.select("frame_id", "module_id"), on="frame_id", how="left", maintain_order="left")
    ops = inherit_modules(add_phases(ops))
    steps = find_steps(ops, end - origin)
    ops = ops.with_columns(steps_of(ops, steps))
    launches, calls = split_runtime(shifted(events.runtime), events.device)
    launches = link_launches(launches, ops, frames)
    launches = launches.with_columns(steps_of(launches, steps))
    kernels = number(shifted(events.device), "kernel_id", "device", "stream", "correlation")
    kernels = _place(link_kernels(kernels, launches, ops), launches, ops, frames)
    other = pl.concat([shifted(events.other), as_other(calls)], how="diagonal")
    memory = link_memory(shifted(events.memory), ops, frames)
    unix = events.recording.base_unix_ns
    problems = (*events.problems, *memory.problems, *noticed(ops, kernels, calls, events, crossings))
    return Linked(
        events.recording,
        None if unix is None else unix + origin,
        end - origin,
        ops,
        frames,
        modules,
        steps,
        launches,
        kernels,
        memory.samples,
        memory.allocations,
        other,
        problems,
    )


def _extent(events: Events) -> tuple[int, int]:
    """Return start and end of the trace in ns, from its timed rows; a time of 0 among epoch times is no start."""
    rows = pl.concat(
        [frame.select("ts_ns", "dur_ns") for frame in (events.ops, events.frames, events.runtime, events.device)]
    )
    if not rows.height:
        return 0, 0
    latest = rows.select((pl.col("ts_ns") + pl.col("dur_ns")).max()).item()
    credible = rows.filter(pl.col("ts_ns") > _EPOCH_NS) if latest > _EPOCH_NS else rows
    return credible["ts_ns"].min() or 0, latest  # type: ignore[return-value]


def _place(kernels: pl.DataFrame, launches: pl.DataFrame, ops: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """Give kernels the module and phase of their op, else the module around their launch, and the step of that."""
    by_op = ops.select("op_id", "module_id", "phase", pl.col("step_id").alias("op_step"))
    by_frame = frames.select("frame_id", pl.col("module_id").alias("launch_module"))
    placed_launches = launches.join(by_frame, on="frame_id", how="left", maintain_order="left")
    by_launch = placed_launches.select("launch_id", pl.col("step_id").alias("launch_step"), "launch_module")
    placed = kernels.join(by_op, on="op_id", how="left", maintain_order="left")
    placed = placed.join(by_launch, on="launch_id", how="left", maintain_order="left")
    return placed.with_columns(
        pl.coalesce("launch_step", "op_step").alias("step_id"),
        pl.coalesce("module_id", "launch_module").alias("module_id"),
        pl.col("phase").fill_null("other"),
    ).drop("launch_step", "op_step", "launch_module")
