"""The finished tables of one trace: linked rows with their meaning, in the columns of the schema.

Owns which columns each table has on disk; schema.sql says what they mean, and a test holds the two together.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.attention.batches import batches
from tracekit.attention.facts import Facts
from tracekit.attention.knowledge import place_of_module
from tracekit.attention.roles import kernel_roles, op_meanings

if TYPE_CHECKING:
    from tracekit.link import Linked

_QUALITY = {
    "check_name": pl.String, "severity": pl.String, "count": pl.Int64, "share_frac": pl.Float64,
    "first_offset": pl.Int64, "message": pl.String,
}  # fmt: skip


def give_meaning(linked: Linked, facts: Facts | None = None, trace_id: int = 0) -> dict[str, pl.DataFrame]:
    """Return the tables of one trace by name: roles and families added, columns as the schema has them.

    `facts` were recorded beside the trace; without them batch and workload are empty.
    """
    facts = facts or Facts()
    meanings = op_meanings(linked.ops, linked.frames)
    kernels = linked.kernels.with_columns(
        kernel_roles(linked.kernels, linked.ops, meanings), call_id=pl.lit(None, pl.Int64)
    )
    roles = pl.DataFrame(
        meanings.roles,
        orient="row",
        schema={"role": pl.String, "role_confidence": pl.String, "role_reason": pl.String},
    )
    kinds = [place_of_module(name) for name in linked.modules["class_name"].to_list()]
    tables = {
        "trace": _trace(linked, facts),
        "step": _steps(linked.steps, facts),
        "op": linked.ops.with_columns(roles).drop("is_annotation", "fwd_thread_id"),
        "frame": linked.frames.drop("python_id", "python_parent_id"),
        "module": linked.modules.with_columns(pl.Series("kind", kinds, pl.String)),
        "launch": linked.launches,
        "kernel": kernels.drop("external_id", "pid", "tid"),
        "memory_sample": linked.memory_samples.select(
            "sample_id", "device", pl.col("start_ns").alias("time_ns"), "allocated_bytes", "reserved_bytes", "args_json"
        ),
        "allocation": _allocations(linked.allocations, roles),
        "batch": batches(facts, linked.steps, linked.ops),
        "workload": _workload(linked, facts),
        "other_event": linked.other.sort("start_ns", "category", "name", nulls_last=False, maintain_order=True),
        "quality": _quality(linked),
    }  # fmt: skip
    return {name: frame.with_columns(pl.lit(trace_id, pl.Int64).alias("trace_id")) for name, frame in tables.items()}


def _allocations(allocations: pl.DataFrame, roles: pl.DataFrame) -> pl.DataFrame:
    """Give allocations the role of the op that made them; nothing says yet what they hold."""
    by_op = roles.select(pl.col("role")).with_row_index("op_id").cast({"op_id": pl.Int64})
    unknown = {name: pl.lit(None, pl.String) for name in ("category", "category_reason")}
    return allocations.join(by_op, on="op_id", how="left", maintain_order="left").with_columns(**unknown)


def _steps(steps: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Mark as partial the steps that were cut, as only the recorder knows."""
    cut = [step.number for step in facts.steps if not step.is_whole]
    return steps.with_columns(is_partial=pl.col("is_partial") | pl.col("number").is_in(cut).fill_null(value=False))


def _workload(linked: Linked, facts: Facts) -> pl.DataFrame:
    """Return the one workload that facts speak of, its label as key and value."""
    kinds = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))
    schema: dict[str, Any] = {"workload_id": pl.Int64, "label": kinds, "start_ns": pl.Int64, "dur_ns": pl.Int64}
    if facts.workload is None:
        return pl.DataFrame(schema=schema)
    said = facts.workload
    known = {"mode": said.mode, "implementation": said.implementation, **said.label}
    label = [{"key": key, "value": value} for key, value in known.items() if value is not None]
    return pl.DataFrame([(0, label, 0, linked.dur_ns)], schema=schema, orient="row")


def _trace(linked: Linked, facts: Facts) -> pl.DataFrame:
    said = linked.recording
    row = {
        "rank": said.rank,
        "world_size": said.world_size,
        "source_name": said.source_name,
        "source_sha256": said.source_sha256,
        "events": said.events,
        "dialect": said.dialect,
        "device_name": said.device_name,
        "device_count": said.device_count,
        "sm_count": said.sm_count,
        "compute_capability": said.compute_capability,
        "torch_version": facts.torch_version or said.torch_version,
        "start_unix_ns": linked.start_unix_ns,
        "dur_ns": linked.dur_ns,
        "has_device": linked.kernels.height > 0,
        "has_shapes": linked.ops["input_dims"].is_not_null().any(),
        "has_stacks": linked.frames.height > 0,
        "has_modules": linked.modules.height > 0,
        "has_memory": linked.memory_samples.height > 0,
        "truncated": False,
        "unprofiled_step_ns": int(median(facts.unprofiled_step_ns)) if facts.unprofiled_step_ns else None,
    }
    text = ("source_name", "source_sha256", "dialect", "device_name", "compute_capability", "torch_version")
    kinds = {
        name: pl.String if name in text else pl.Boolean if isinstance(value, bool) else pl.Int64
        for name, value in row.items()
    }
    return pl.DataFrame([row], schema=kinds)


def _quality(linked: Linked) -> pl.DataFrame:
    device_ns = linked.kernels["dur_ns"].sum()
    lost = dict(linked.kernels.group_by("unlinked_reason").agg(pl.col("dur_ns").sum()).iter_rows())
    rows = []
    for problem in linked.problems:
        reason = problem.message.removeprefix("Device work without an op: ").removesuffix(".")
        share = lost.get(reason, 0) / device_ns if problem.check_name == "unlinked_kernel" and device_ns else None
        rows.append((problem.check_name, problem.severity, problem.count, share, None, problem.message))
    return pl.DataFrame(rows, schema=_QUALITY, orient="row")
