"""The finished tables of one trace: linked rows with their meaning, in the columns of the schema.

Owns which columns each table has on disk; schema.sql says what they mean, and a test holds the two together.
"""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.attention.calls.batches import batches
from tracekit.attention.calls.table import attention_calls, with_lengths
from tracekit.attention.devices.precisions import compute_dtypes
from tracekit.attention.devices.products import products
from tracekit.attention.facts import Facts
from tracekit.attention.knowledge import place_of_module
from tracekit.attention.roles.roles import kernel_roles, op_meanings
from tracekit.link import Waits, work_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.ingest import Problem, Recording
    from tracekit.link import Linked, Trace
    from tracekit.link.clocks import Clock

_QUALITY = {
    "check_name": pl.String, "severity": pl.String, "count": pl.Int64, "share_frac": pl.Float64,
    "first_offset": pl.Int64, "message": pl.String,
}  # fmt: skip


def give_meaning(linked: Trace, facts: Facts | None = None, trace_id: int = 0) -> dict[str, pl.DataFrame]:
    """Return the tables of one trace by name: roles and families added, columns as the schema has them.

    `facts` were recorded beside the trace; without them batch and workload are empty.
    """
    facts = facts or Facts()
    part = part_tables(linked)
    by_op = part["op"].select("op_id", "role")
    tables = part | {
        "trace": _trace(linked, facts),
        "step": mark_cut_steps(linked.steps, facts),
        "module": with_kinds(linked.modules),
        "memory_sample": samples(part["memory_sample"]),
        "device_wait": Waits().take(part["device_wait"]),
        "allocation": with_categories(
            linked.allocations.join(by_op, on="op_id", how="left", maintain_order="left")
        ),
        "attention_call": with_lengths(part["attention_call"], facts, linked.steps),
        "batch": batches(facts, linked.steps, linked.ops),
        "workload": workload(linked.dur_ns, facts),
        "quality": quality(linked.problems),
    }  # fmt: skip
    return {name: with_trace_id(frame, trace_id) for name, frame in tables.items()}


def with_trace_id(frame: pl.DataFrame, trace_id: int) -> pl.DataFrame:
    """Return a table's rows with the trace they belong to."""
    return frame.with_columns(pl.lit(trace_id, pl.Int64).alias("trace_id"))


def part_tables(linked: Linked) -> dict[str, pl.DataFrame]:
    """Return those tables that can be made of any part of a trace, in which every row has its meaning.

    Samples of memory also keep the op around them, its role included, of which allocations are made; of waits there
    is what they are counted from, since a device waits for work of any part.
    """
    meanings = op_meanings(linked.ops, linked.frames)
    kernels = linked.kernels.with_columns(
        kernel_roles(linked.kernels, linked.ops, meanings), compute_dtype=compute_dtypes(linked.kernels["name"])
    )
    calls = attention_calls(linked.ops, kernels, linked.modules)
    kernels = kernels.with_columns(call_id=calls.of_kernel)
    ops = linked.ops.hstack(meanings.columns()).drop("is_annotation", "fwd_thread_id")
    by_op = ops.select("op_id", "role")
    return {
        "op": ops,
        "frame": linked.frames.drop("python_id", "python_parent_id"),
        "launch": linked.launches,
        "collective": linked.collectives,
        "product": _with_known(products(ops), ops),
        "attention_call": calls.table,
        "kernel": kernels.drop("external_id", "pid", "tid", "launched_ns"),
        "device_wait": work_of(linked.kernels),
        "memory_sample": linked.memory_samples.join(by_op, on="op_id", how="left", maintain_order="left"),
        "other_event": linked.other.sort("start_ns", "category", "name", nulls_last=False, maintain_order=True),
    }


def _with_known(made: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return rows made of ops with the ids by which ops that span a cut are known, in a part of a trace."""
    known = [name for name in ops.columns if name == "known_id"]
    return made.join(ops.select("op_id", *known), on="op_id", how="left", maintain_order="left") if known else made


def has_module_rows(modules: pl.DataFrame) -> bool:
    """Return whether modules were recorded as such, and not told by the file and line of their code."""
    return bool((~modules["class_name"].str.contains(":", literal=True)).any())


def with_kinds(modules: pl.DataFrame) -> pl.DataFrame:
    """Return modules as their table has them, with what their class is."""
    kinds = [place_of_module(name) for name in modules["class_name"].to_list()]
    return modules.drop("label").with_columns(pl.Series("kind", kinds, pl.String))


def samples(placed: pl.DataFrame) -> pl.DataFrame:
    """Return samples of memory as their table has them."""
    return placed.select(
        "sample_id", "device", pl.col("start_ns").alias("time_ns"), "allocated_bytes", "reserved_bytes", "args_json"
    )  # fmt: skip


def with_categories(allocations: pl.DataFrame) -> pl.DataFrame:
    """Add what an allocation holds, of which nothing says anything yet."""
    return allocations.with_columns(**{name: pl.lit(None, pl.String) for name in ("category", "category_reason")})


def mark_cut_steps(steps: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Mark as partial the steps that were cut, as only the recorder knows."""
    cut = [step.number for step in facts.steps if not step.is_whole]
    return steps.with_columns(is_partial=pl.col("is_partial") | pl.col("number").is_in(cut).fill_null(value=False))


def workload(dur_ns: int, facts: Facts) -> pl.DataFrame:
    """Return the one workload that facts speak of, its label as key and value."""
    kinds = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))
    schema: dict[str, Any] = {"workload_id": pl.Int64, "label": kinds, "start_ns": pl.Int64, "dur_ns": pl.Int64}
    if facts.workload is None:
        return pl.DataFrame(schema=schema)
    said = facts.workload
    known = {"mode": said.mode, "implementation": said.implementation, **said.label}
    label = [{"key": key, "value": value} for key, value in known.items() if value is not None]
    return pl.DataFrame([(0, label, 0, dur_ns)], schema=schema, orient="row")


def _trace(linked: Trace, facts: Facts) -> pl.DataFrame:
    return trace_row(
        linked.recording,
        facts,
        start_unix_ns=linked.start_unix_ns,
        dur_ns=linked.dur_ns,
        has_device=linked.kernels.height > 0,
        has_shapes=linked.ops["input_dims"].is_not_null().any(),
        has_stacks=linked.frames.height > 0,
        has_modules=has_module_rows(linked.modules),
        has_memory=linked.memory_samples.height > 0,
    )


def trace_row(said: Recording, facts: Facts, **linked: Any) -> pl.DataFrame:
    """Return the one row of a trace: what it says of itself, and what linking found, by column."""
    row = {
        "rank": said.rank,
        "world_size": said.world_size,
        "source_name": said.source_name,
        "source_sha256": said.source_sha256,
        "events": said.events,
        "dialect": said.dialect,
        "is_rewritten": said.is_rewritten,
        "vendor": said.vendor,
        "external_ids": said.external_ids,
        "time_resolution_ns": said.time_resolution_ns,
        "device_name": said.device_name,
        "device_count": said.device_count,
        "sm_count": said.sm_count,
        "compute_capability": said.compute_capability,
        "device_memory_bytes": said.device_memory_bytes,
        "torch_version": facts.torch_version or said.torch_version,
        **linked,
        "truncated": said.is_truncated,
        "unprofiled_step_ns": int(median(facts.unprofiled_step_ns)) if facts.unprofiled_step_ns else None,
        "environment_json": _json(facts.environment),
        "settings_json": _json(facts.settings),
    }
    text = (
        *("source_name", "source_sha256", "dialect", "vendor", "external_ids"),
        *("device_name", "compute_capability", "torch_version", "environment_json", "settings_json"),
    )
    truth = ("is_rewritten",)  # which may be null
    kinds = {
        name: pl.String if name in text else pl.Boolean if isinstance(value, bool) or name in truth else pl.Int64
        for name, value in row.items()
    }
    return pl.DataFrame([row], schema=kinds)


def _json(recorded: Any) -> str | None:
    return None if recorded is None else json.dumps(recorded, sort_keys=True)


def ranked(row: pl.DataFrame, rank: int | None, source: str | None, clock: Clock | None) -> pl.DataFrame:
    """Return a trace's row with its rank in the run, where that comes from, and its clock against the others'."""
    return row.with_columns(
        pl.lit(rank, pl.Int64).alias("rank"),
        pl.lit(source, pl.String).alias("rank_source"),
        *(
            pl.lit(getattr(clock, field) if clock else None, kind).alias(f"clock_{field}")
            for field, kind in _CLOCK.items()
        ),
    )


_CLOCK = {
    "status": pl.String,
    "reason": pl.String,
    "offset_ns": pl.Int64,
    "start_ns": pl.Int64,
    "spread_ns": pl.Int64,
    "matched": pl.Int64,
    "drift_ns_per_s": pl.Float64,
    "through_rank": pl.Int64,
}


def quality(problems: Iterable[Problem]) -> pl.DataFrame:
    """Return what was noticed about a trace as rows."""
    rows = [
        (one.check_name, one.severity, one.count, one.share_frac, one.first_offset, one.message) for one in problems
    ]
    return pl.DataFrame(rows, schema=_QUALITY, orient="row")
