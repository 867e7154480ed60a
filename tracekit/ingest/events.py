"""What ingest hands on: one frame for each kind of row, times in int64 ns, and what was noticed on the way.

Owns the shapes only. Rows are in no particular order; ids and links are made by the rooms above.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

Severity = Literal["info", "warn", "bad"]

ROW = {"name": pl.String, "pid": pl.String, "tid": pl.String, "ts_ns": pl.Int64, "dur_ns": pl.Int64}
OP = {
    **ROW,
    "is_annotation": pl.Boolean,
    "external_id": pl.Int64,
    "sequence_number": pl.Int64,
    "fwd_thread_id": pl.Int64,
    "input_dims": pl.String,
    "input_types": pl.String,
    "input_strides": pl.String,
    "concrete_inputs": pl.String,
    "is_finished": pl.Boolean,
    "args_json": pl.String,
}
FRAME = {**ROW, "python_id": pl.Int64, "python_parent_id": pl.Int64, "args_json": pl.String}
RUNTIME = {**ROW, "category": pl.String, "correlation": pl.Int64, "args_json": pl.String}
DEVICE = {
    **ROW,
    "raw_name": pl.String,
    "kind": pl.String,
    "device": pl.Int64,
    "stream": pl.Int64,
    "bytes": pl.Int64,
    "grid": pl.String,
    "block": pl.String,
    "registers": pl.Int64,
    "shared_memory_bytes": pl.Int64,
    "occupancy_frac": pl.Float64,
    "correlation": pl.Int64,
    "graph_node_id": pl.Int64,
    "external_id": pl.Int64,
    "args_json": pl.String,
}
MEMORY = {
    "ts_ns": pl.Int64,
    "pid": pl.String,
    "tid": pl.String,
    "device": pl.String,
    "address": pl.Int64,
    "bytes": pl.Int64,
    "allocated_bytes": pl.Int64,
    "reserved_bytes": pl.Int64,
    "args_json": pl.String,
}
ARROW = {"id": pl.String, "pid": pl.String, "tid": pl.String, "ts_ns": pl.Int64, "is_end": pl.Boolean}
OTHER = {**ROW, "category": pl.String, "phase_letter": pl.String, "args_json": pl.String}

TABLES: dict[str, dict[str, Any]] = {
    "ops": OP,
    "frames": FRAME,
    "runtime": RUNTIME,
    "device": DEVICE,
    "memory": MEMORY,
    "other": OTHER,
    "arrows": ARROW,
}
"""The frames of `Events` and their columns."""


@dataclass(frozen=True)
class Problem:
    """Something about a trace that an answer may depend on: how often, and what it means, in one sentence.

    `share_frac` is its share of device time, `first_offset` the byte of the text where it was met first.
    """

    check_name: str
    severity: Severity
    count: int
    message: str
    share_frac: float | None = None
    first_offset: int | None = None


@dataclass(frozen=True)
class Recording:
    """What a trace says about itself outside its events. `None` where it does not say."""

    source_name: str
    source_sha256: str
    events: int
    dialect: str
    base_unix_ns: int | None
    rank: int | None
    world_size: int | None
    device_name: str | None
    device_count: int | None
    sm_count: int | None
    compute_capability: str | None
    torch_version: str | None
    is_truncated: bool = False
    vendor: str | None = None
    external_ids: Literal["op", "correlation", "none"] = "none"
    time_resolution_ns: int = 1
    is_rewritten: bool | None = None
    device_memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Rows of a trace, or of a part of it, by kind.

    `arrows` are the ends of those from a forward to its backward op, some perhaps without a time or an id.
    """

    ops: pl.DataFrame
    frames: pl.DataFrame
    runtime: pl.DataFrame
    device: pl.DataFrame
    memory: pl.DataFrame
    other: pl.DataFrame
    arrows: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class Events(Frames):
    """One trace as frames. Every event of the file is in one of them or is counted in `problems`.

    Times are ns since `recording.base_unix_ns`, or since an unknown moment if that is None.
    """

    recording: Recording
    problems: tuple[Problem, ...] = field(default=())
