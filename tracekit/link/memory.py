"""Allocator rows to lifetimes: which allocation each free ends, and the op and frame that made either.

Owns the pairing by address. The rows' own order within one time stamp is kept: with it the allocator's totals
add up, and a sample's id says exactly what was live after it, whatever the clock's resolution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.ingest import Problem
from tracekit.link.ops import owners

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMA = {
    "device": pl.String,
    "address": pl.Int64,
    "bytes": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "start_sample_id": pl.Int64,
    "end_sample_id": pl.Int64,
}


class Memory(NamedTuple):
    """Samples of the allocator's totals, lifetimes, and what was noticed while pairing them."""

    samples: pl.DataFrame
    allocations: pl.DataFrame
    problems: tuple[Problem, ...]


def link_memory(rows: pl.DataFrame, ops: pl.DataFrame, frames: pl.DataFrame) -> Memory:
    """Pair allocations with frees, per device and address, and find the op and frame around each.

    A free without an allocation in the trace ends a lifetime that began before it: its start is null. Op and
    frame are the innermost ones on the thread of the allocator call.
    """
    ordered = rows.sort("start_ns", maintain_order=True).with_row_index("sample_id").cast({"sample_id": pl.Int64})
    real = ops.filter(~pl.col("is_annotation"))
    placed = ordered.with_columns(owners(ordered, real, "op_id"), owners(ordered, frames, "frame_id"))
    lifetimes, problems = _pair(placed)
    made = placed.select(pl.col("sample_id").alias("start_sample_id"), "op_id", "frame_id")
    frees = placed.filter(pl.col("bytes") < 0)
    ended = frees.select(pl.col("sample_id").alias("end_sample_id"), pl.col("op_id").alias("free_op_id"))
    linked = lifetimes.join(made, on="start_sample_id", how="left", maintain_order="left")
    linked = linked.join(ended, on="end_sample_id", how="left", maintain_order="left")
    by_op = ops.select("op_id", "module_id", "phase", "step_id")
    by_frame = frames.select("frame_id", pl.col("module_id").alias("frame_module_id"))
    linked = linked.join(by_op, on="op_id", how="left", maintain_order="left")
    linked = linked.join(by_frame, on="frame_id", how="left", maintain_order="left").with_columns(
        pl.coalesce("module_id", "frame_module_id").alias("module_id"), pl.col("phase").fill_null("other")
    )
    linked = linked.drop("frame_module_id")
    return Memory(placed.drop("op_id", "frame_id"), _numbered(linked), tuple(problems))


def _numbered(lifetimes: pl.DataFrame) -> pl.DataFrame:
    return lifetimes.with_row_index("allocation_id").cast({"allocation_id": pl.Int64})


def _pair(rows: pl.DataFrame) -> tuple[pl.DataFrame, Iterator[Problem]]:
    """Return lifetimes in order of their first row, and what was odd about them."""
    live: dict[tuple[str, int | None], int] = {}
    lifetimes: list[list[object]] = []
    oddities = {"free_without_allocation": 0, "allocation_without_free": 0, "free_of_another_size": 0}
    columns = rows.select("sample_id", "start_ns", "device", "address", "bytes")
    for sample_id, time, device, address, size in columns.iter_rows():
        key = (device, address)
        if not size or address is None:
            continue
        if size > 0:
            if key in live:  # its free is missing: it can't have lasted longer than this
                oddities["allocation_without_free"] += 1
                lifetimes[live[key]][4], lifetimes[live[key]][6] = time, sample_id
            live[key] = len(lifetimes)
            lifetimes.append([device, address, size, time, None, sample_id, None])
        elif key in live:
            lifetime = lifetimes[live.pop(key)]
            oddities["free_of_another_size"] += lifetime[2] != -size
            lifetime[4], lifetime[6] = time, sample_id
        else:
            oddities["free_without_allocation"] += 1
            lifetimes.append([device, address, -size, None, time, None, sample_id])
    return pl.DataFrame(lifetimes, schema=_SCHEMA, orient="row"), _problems(oddities)


_MESSAGES = {
    "free_without_allocation": "Frees of memory that was allocated before the recording.",
    "allocation_without_free": "Allocations at an address that was still in use: a free is missing.",
    "free_of_another_size": "Frees of another size than was allocated at their address.",
}


def _problems(counts: dict[str, int]) -> Iterator[Problem]:
    for name, count in counts.items():
        if count:
            severity = "info" if name == "free_without_allocation" else "warn"
            yield Problem(name, severity, count, _MESSAGES[name])  # type: ignore[arg-type]
