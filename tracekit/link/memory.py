"""Allocator rows to lifetimes: which allocation each free ends, and the op and frame that made either.

Owns the pairing by address. The rows' own order within one time stamp is kept: with it the allocator's totals
add up, and a sample's id says exactly what was live after it, whatever the clock's resolution.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.ingest import Problem
from tracekit.link.ops import owners

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.link.nesting import Spans


def place_memory(
    rows: pl.DataFrame, ops: pl.DataFrame, frames: pl.DataFrame, op_spans: Spans, frame_spans: Spans
) -> pl.DataFrame:
    """Return allocator rows in order of time, as samples, with the op and frame around each, and what these say.

    Op and frame are the innermost ones on the thread of the allocator call.
    """
    ordered = rows.sort("start_ns", maintain_order=True).with_row_index("sample_id").cast({"sample_id": pl.Int64})
    op = owners(ordered, op_spans, "op_id", ~ops["is_annotation"])
    placed = ordered.with_columns(op, owners(ordered, frame_spans, "frame_id")).drop("thread")
    by_op = ops.select("op_id", "module_id", "phase", "step_id")
    by_frame = frames.select("frame_id", pl.col("module_id").alias("frame_module_id"))
    placed = placed.join(by_op, on="op_id", how="left", maintain_order="left")
    placed = placed.join(by_frame, on="frame_id", how="left", maintain_order="left")
    module = pl.coalesce("module_id", "frame_module_id").alias("module_id")
    return placed.with_columns(module, pl.col("phase").fill_null("other")).drop("frame_module_id")


class Lifetimes(NamedTuple):
    """Allocations from their first row to their last, samples of those that still last, and counts of oddities."""

    allocations: pl.DataFrame
    live: pl.DataFrame
    oddities: Counter[str]


def lifetimes(samples: pl.DataFrame, *, is_end: bool = True) -> Lifetimes:
    """Pair allocations with frees, per device and address; they come in order of their first row.

    A free without an allocation in the trace ends a lifetime that began before it: its start is null. An
    allocation at an address in use ends the one before: that one can't have lasted longer. Where the samples are
    not the last ones of the trace, what is live after them is to be given again, before the samples that follow.
    """
    rows = samples.filter((pl.col("bytes") != 0) & pl.col("address").is_not_null())
    rows = rows.sort("device", "address", "sample_id")
    key = pl.struct("device", "address").rle_id()
    rows = rows.with_columns(
        is_first=(key != key.shift()).fill_null(value=True), is_last=(key != key.shift(-1)).fill_null(value=True)
    )
    is_made = pl.col("bytes") > 0
    before, after = pl.col("bytes").shift(), pl.when(~pl.col("is_last")).then(pl.col("bytes").shift(-1))
    rows = rows.with_columns(
        is_made=is_made,
        is_live_before=~pl.col("is_first") & (before > 0),
        after=after,
        end_ns=pl.when(~pl.col("is_last")).then(pl.col("start_ns").shift(-1)),
        end_sample_id=pl.when(~pl.col("is_last")).then(pl.col("sample_id").shift(-1)),
        free_op_id=pl.when(after < 0).then(pl.col("op_id").shift(-1)),
    )
    goes_on = pl.col("is_made") & pl.col("is_last") & (not is_end)
    live = samples.join(rows.filter(goes_on), on="sample_id", how="semi", maintain_order="left")
    made = rows.filter(pl.col("is_made") & ~goes_on).with_columns(start_sample_id=pl.col("sample_id"))
    lost = rows.filter(~pl.col("is_made") & ~pl.col("is_live_before"))
    nothing = [pl.lit(None, kind).alias(name) for name, kind in lost.schema.items() if name in _OF_MAKER]
    lost = lost.with_columns(
        *nothing,
        bytes=-pl.col("bytes"),
        start_ns=pl.lit(None, pl.Int64),
        end_ns=pl.col("start_ns"),
        start_sample_id=pl.lit(None, pl.Int64),
        end_sample_id=pl.col("sample_id"),
        free_op_id=pl.col("op_id"),
        phase=pl.lit("other"),
    )
    oddities = {
        "free_without_allocation": lost.height,
        "allocation_without_free": int((made["after"] > 0).sum()),
        "free_of_another_size": int(((made["after"] < 0) & (made["after"] != -made["bytes"])).sum()),
    }
    found = pl.concat([made, lost], how="diagonal").sort("sample_id")
    found = found.select(name for name in _LIFETIME if name in found.columns).with_row_index("allocation_id")
    found = found.cast({"allocation_id": pl.Int64})
    return Lifetimes(found, live, Counter(oddities))


_OF_MAKER = ("op_id", "frame_id", "module_id", "step_id", "role")
_LIFETIME = (
    "device", "address", "bytes", "start_ns", "end_ns", "start_sample_id", "end_sample_id", "op_id", "frame_id",
    "free_op_id", "module_id", "phase", "step_id", "role",
)  # fmt: skip


_MESSAGES = {
    "free_without_allocation": "Frees of memory that was allocated before the recording.",
    "allocation_without_free": "Allocations at an address that was still in use: a free is missing.",
    "free_of_another_size": "Frees of another size than was allocated at their address.",
}


def odd_lifetimes(counts: Counter[str]) -> Iterator[Problem]:
    """Yield what was odd about a whole trace's lifetimes as problems."""
    for name, count in counts.items():
        if count:
            severity = "info" if name == "free_without_allocation" else "warn"
            yield Problem(name, severity, count, _MESSAGES[name])  # type: ignore[arg-type]
