"""Device work to its launch and its op.

Owns the join by correlation, which a launch is defined by: whatever runtime or driver call shares its
correlation with device work, whatever its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.link.ops import number, owners

if TYPE_CHECKING:
    from tracekit.link.nesting import Spans
    from tracekit.link.survey import Survey

_NO_LAUNCH = "no launch with its correlation in the trace"
_NO_CORRELATION = "it has no correlation"
_NO_OP = "its launch lies outside every recorded op"


def split_runtime(
    runtime: pl.DataFrame, device: pl.DataFrame, early: pl.Series | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the runtime rows that put work on a device, numbered as launches, and all the others.

    `early` are correlations of device work that is not among these rows.
    """
    working = device["correlation"].drop_nulls().unique()
    if early is not None:
        working = pl.concat([working, early])
    is_launch = pl.col("correlation").is_in(working.implode()) & pl.col("correlation").is_not_null()
    launches = number(runtime.filter(is_launch), "launch_id", "correlation")
    return launches, runtime.filter(~is_launch.fill_null(value=False))


def as_other(calls: pl.DataFrame) -> pl.DataFrame:
    """Return calls that launch nothing as rows of other_event, their correlation among the args."""
    key = pl.concat_str(pl.lit('{"correlation":'), pl.col("correlation"))
    rest = pl.when(pl.col("args_json").is_null()).then(pl.lit("}")).otherwise("," + pl.col("args_json").str.slice(1))
    args = pl.when(pl.col("correlation").is_null()).then(pl.col("args_json")).otherwise(key + rest)
    return calls.with_columns(args.alias("args_json"), phase_letter=pl.lit("X")).drop("correlation")


def link_launches(launches: pl.DataFrame, ops: pl.DataFrame, op_spans: Spans, frame_spans: Spans) -> pl.DataFrame:
    """Add `op_id` (innermost op, never a mere annotation) and `frame_id` to launches, by nesting on their thread."""
    op = owners(launches, op_spans, "op_id", ~ops["is_annotation"])
    return launches.with_columns(op, owners(launches, frame_spans, "frame_id")).drop("thread")


def link_kernels(kernels: pl.DataFrame, launches: pl.DataFrame, ops: pl.DataFrame, known: Survey) -> pl.DataFrame:
    """Add `launch_id`, `op_id` and, where there is no op, `unlinked_reason` and `unlinked_cause` to numbered kernels.

    Where several calls share a correlation (a runtime call and the driver call inside it) the inner one, which
    starts last, is the launch. A kernel without a launch takes the op that its External id names, unless the
    exporter wrote correlations there (PyTorch before 2.6; kineto #1001).
    """
    one = launches.select("correlation", "launch_id", "op_id").unique("correlation", keep="last", maintain_order=True)
    linked = kernels.join(one, on="correlation", how="left", maintain_order="left")
    if known.external_ids_hold:
        by_id = ops.filter(~pl.col("is_annotation")).drop_nulls("external_id").unique("external_id", keep="none")
        named = linked.join(
            by_id.select("external_id", pl.col("op_id").alias("named_op")),
            on="external_id",
            how="left",
            maintain_order="left",
        )
        use = pl.when(pl.col("launch_id").is_null()).then(pl.col("named_op")).otherwise(pl.col("op_id"))
        linked = named.with_columns(use.alias("op_id")).drop("named_op")
    reason = (
        pl.when(pl.col("op_id").is_not_null())
        .then(None)
        .when(pl.col("launch_id").is_not_null())
        .then(pl.lit(_NO_OP))
        .when(pl.col("correlation").is_null())
        .then(pl.lit(_NO_CORRELATION))
        .otherwise(pl.lit(_NO_LAUNCH))
    )
    return _with_causes(linked.with_columns(reason.alias("unlinked_reason")), launches, known)


def _with_causes(kernels: pl.DataFrame, launches: pl.DataFrame, known: Survey) -> pl.DataFrame:
    """Add `unlinked_cause`, what probably happened to a kernel without an op.

    Correlations count up: one below the first launch's was given out before the recording began.
    """
    start, correlation = (pl.lit(value, pl.Int64) for value in (known.first_launch_ns, known.first_correlation))
    is_earlier = (pl.col("start_ns") < start) | (pl.col("correlation") < correlation)
    is_lost = pl.col("launch_id").is_null()
    graphs = launches.filter(pl.col("name").str.contains("(?i)graphlaunch"))["launch_id"]
    cause = (
        pl.when(pl.col("op_id").is_not_null())
        .then(None)
        .when(pl.lit(not known.has_ops))
        .then(pl.lit("no CPU ops were recorded"))
        .when(is_lost & pl.col("correlation").is_null())
        .then(pl.lit("the exporter wrote no correlation"))
        .when(is_lost & pl.lit(known.first_launch_ns is None))
        .then(pl.lit("no launch was recorded"))
        .when(is_lost & is_earlier)
        .then(pl.lit("launched before the recording began"))
        .when(is_lost)
        .then(pl.lit("its launch row was lost, or is a call the profiler does not record"))
        .when(pl.col("launch_id").is_in(graphs.implode()))
        .then(pl.lit("replayed from a graph that was launched outside every op"))
        .otherwise(pl.lit("launched by code that PyTorch does not record as an op"))
    )
    return kernels.with_columns(cause.alias("unlinked_cause"))
