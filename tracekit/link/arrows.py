"""Arrows from forward to backward ops: what is left to link them by where sequence numbers were taken out.

Owns how two ends make an arrow, and at which ops it begins and ends. Numbers count before arrows; that is seen to
where phases are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.link.nesting import Spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.link.nesting import Indexes


def arrows_of(ends: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return arrows of their ends, as `Events.arrows` has them, and how many ends are of none.

    An arrow goes to its end from the last start of its id and process before it: exporters count ids anew in each
    recording, and some repeat starts. `forward_tid` and `forward_ts_ns` say where it begins.
    """
    known = ends.drop_nulls(("id", "ts_ns")).sort("pid", "id", "ts_ns", "is_end", "tid", nulls_last=True)
    known = known.with_row_index("row")
    start = pl.when(~pl.col("is_end")).then("row").forward_fill().over("pid", "id").alias("start")
    found = known.with_columns(start).filter(pl.col("is_end") & pl.col("start").is_not_null())
    starts = known[found["start"]].select(pl.col("tid", "ts_ns").name.prefix("forward_"))
    arrows = pl.concat([found.select("pid", "tid", "ts_ns"), starts], how="horizontal")
    return arrows, ends.height - found.height - found["start"].n_unique()


def forward_ops(
    arrows: pl.DataFrame, ops: pl.DataFrame, is_node: NDArray[np.bool_], is_forward: NDArray[np.bool_]
) -> tuple[dict[int, int], int]:
    """Return by autograd node the forward op that an arrow leads from, and how many arrows lead from or to no op.

    Arrows have `thread` and `start_ns`, `forward_thread` and `forward_start_ns`; ops are those of `number`. An arrow
    is drawn at the start of an op, so it is that of the innermost one open then.
    """
    is_op = ~ops["is_annotation"].to_numpy()
    nodes = _open(ops, is_op & is_node, arrows["thread"], arrows["start_ns"])
    origins = _open(ops, is_op, arrows["forward_thread"], arrows["forward_start_ns"])
    leads = (nodes >= 0) & (origins >= 0) & (origins < nodes) & np.append(is_forward, False)[origins]
    pairs = sorted(zip(origins[leads].tolist(), nodes[leads].tolist(), strict=True))  # of several, the last to begin
    return {node: origin for origin, node in pairs}, int(np.count_nonzero(~leads))


def _open(ops: pl.DataFrame, chosen: NDArray[np.bool_], threads: pl.Series, times: pl.Series) -> Indexes:
    """Return the innermost of the chosen ops open on a thread at a time, or -1; one of no length is, as it starts."""
    rows = np.flatnonzero(chosen)
    starts = ops["start_ns"].to_numpy()[rows]
    ends = starts + np.maximum(ops["dur_ns"].to_numpy()[rows], 1)
    place = Spans.of(ops["thread"].to_numpy()[rows], starts, ends).innermost(threads.to_numpy(), times.to_numpy())
    return np.where(place < 0, -1, np.append(rows, -1)[place])
