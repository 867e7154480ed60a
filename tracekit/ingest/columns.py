"""Sorted events to frames: exact times, typed columns, and what the trace says of itself.

Owns the step from Python rows to Polars columns. Times become int64 ns from the digits of the text. A value
that can't be held (an integer above int64, a negative duration) is set aside and counted, never wrapped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.ingest import events as shape
from tracekit.ingest.args import knowledge, text
from tracekit.ingest.dialect import recording
from tracekit.ingest.events import Events, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from msgspec import Raw

    from tracekit.ingest.kineto import OtherRow, Row, Sorted

_INT64 = range(-(2**63), 2**63)
_LATEST_NS = 2**62
"""Times beyond it (the year 2116) are none; so start plus duration, and the distance of two times, fit int64."""
_LAST_INTEGER = re.compile(r"(?:.*\s)?(-?[0-9]{1,18})\s*", re.DOTALL)
_DEVICE_KINDS = ("kernel", "memcpy", "memset")


class _Notes:
    """Counts what was set aside while columns are built."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, check: str, count: int) -> None:
        if count:
            self.counts[check] = self.counts.get(check, 0) + count


def build(found: Sorted, name: str, sha256: str) -> Events:
    """Turn sorted events into frames. `name` and `sha256` describe the file they came from."""
    notes = _Notes()
    ops = [row for kind in ("op", "annotation") for row in found.rows.get(kind, [])]
    device = [(kind, row) for kind in _DEVICE_KINDS for row in found.rows.get(kind, [])]
    frames = {
        "ops": _frame(_op_columns(ops, len(found.rows.get("op", []))), shape.OP, notes),
        "frames": _frame(_frame_columns(found.rows.get("frame", [])), shape.FRAME, notes),
        "runtime": _frame(_runtime_columns(found.rows.get("runtime", [])), shape.RUNTIME, notes),
        "device": _frame(_device_columns(device), shape.DEVICE, notes),
        "memory": _frame(_memory_columns(found.rows.get("memory", [])), shape.MEMORY, notes),
        "other": _frame(_other_columns(found.other), shape.OTHER, notes),
    }
    return Events(recording(found, name, sha256), **frames, problems=(*_read_problems(found), *_value_problems(notes)))


def _row_columns(events: Sequence[Any]) -> dict[str, list[Any]]:
    return {
        "name": [event.name for event in events],
        "pid": [_identity(event.pid) for event in events],
        "tid": [_identity(event.tid) for event in events],
        "ts_ns": [_digits(event.ts) for event in events],
        "dur_ns": [_digits(event.dur) for event in events],
    }


def _identity(value: float | str | None) -> str | None:
    return None if value is None else str(value)


def _digits(raw: Raw) -> str | None:
    return str(memoryview(raw), "utf-8", "replace").strip('"') or None


def _op_columns(rows: list[Row], ops: int) -> dict[str, Any]:
    args = [row.args for row in rows]
    return _row_columns([row.event for row in rows]) | {
        "is_annotation": [number >= ops for number in range(len(rows))],
        "external_id": [a.external_id if a.external_id is not None else a.external_id_old for a in args],
        "sequence_number": [a.sequence_number for a in args],
        "fwd_thread_id": [a.fwd_thread_id for a in args],
        "input_dims": [text(a.input_dims) or text(a.input_dims_old) for a in args],
        "input_types": [text(a.input_types) for a in args],
        "input_strides": [text(a.input_strides) for a in args],
        "concrete_inputs": [text(a.concrete_inputs) for a in args],
        "is_finished": [a.is_finished is not False for a in args],
        "args_json": [_with_record_function_id(row) for row in rows],
    }


def _with_record_function_id(row: Row) -> str | None:
    """Keep the id that joins an execution trace, which is 0 unless such a trace was recorded too."""
    if not row.args.record_function_id:
        return row.rest
    key = f'"Record function id":{row.args.record_function_id}'
    return "{" + key + ("," + row.rest[1:] if row.rest else "}")


def _frame_columns(rows: list[Row]) -> dict[str, Any]:
    return _row_columns([row.event for row in rows]) | {
        "python_id": [row.args.python_id for row in rows],
        "python_parent_id": [row.args.python_parent_id for row in rows],
        "args_json": [row.rest for row in rows],
    }


def _runtime_columns(rows: list[Row]) -> dict[str, Any]:
    return _row_columns([row.event for row in rows]) | {
        "category": [(row.event.cat or "").lower() for row in rows],
        "correlation": [row.args.correlation for row in rows],
        "args_json": [row.rest for row in rows],
    }


def _device_columns(rows: list[tuple[str, Row]]) -> dict[str, Any]:
    args = [row.args for _, row in rows]
    occupancy = [a.occupancy if a.occupancy is not None else a.occupancy_old for a in args]
    return _row_columns([row.event for _, row in rows]) | {
        "kind": [kind for kind, _ in rows],
        "device": [_first_int(row.args.device, row.event.pid) for _, row in rows],
        "stream": [_first_int(row.args.stream, row.event.tid) for _, row in rows],
        "bytes": [a.bytes for a in args],
        "grid": [text(a.grid) for a in args],
        "block": [text(a.block) for a in args],
        "registers": [a.registers for a in args],
        "shared_memory_bytes": [a.shared_memory_bytes for a in args],
        "occupancy_frac": [None if value is None else value / 100 for value in occupancy],
        "correlation": [a.correlation for a in args],
        "graph_node_id": [a.graph_node_id or None for a in args],
        "external_id": [a.external_id if a.external_id is not None else a.external_id_old for a in args],
        "args_json": [row.rest for _, row in rows],
    }


def _first_int(*values: float | str | None) -> int | None:
    """Return the first value that is an integer or ends in one, as `stream 7` does."""
    for value in values:
        if isinstance(value, int):
            return value
        if isinstance(value, str) and (found := _LAST_INTEGER.fullmatch(value)):
            return int(found[1])
    return None


def _memory_columns(rows: list[Row]) -> dict[str, Any]:
    names = knowledge()["device_types"]

    def device(args: Any) -> str:
        name = names.get(str(args.device_type), f"type{args.device_type}")
        return name if args.device_id is None or args.device_id < 0 else f"{name}:{args.device_id}"

    columns = _row_columns([row.event for row in rows])
    return {key: columns[key] for key in ("ts_ns", "pid", "tid")} | {
        "device": [device(row.args) for row in rows],
        **{
            field: [getattr(row.args, field) for row in rows]
            for field in ("address", "bytes", "allocated_bytes", "reserved_bytes")
        },
        "args_json": [row.rest for row in rows],
    }


def _other_columns(rows: list[OtherRow]) -> dict[str, Any]:
    return _row_columns([row.event for row in rows]) | {
        "category": [row.category for row in rows],
        "phase_letter": [row.event.ph for row in rows],
        "args_json": [row.args_json for row in rows],
    }


def _frame(columns: dict[str, Any], schema: dict[str, Any], notes: _Notes) -> pl.DataFrame:
    made = {}
    for name, dtype in schema.items():
        if name in ("ts_ns", "dur_ns"):
            made[name] = _nanoseconds(columns[name])
        else:
            made[name] = _series(columns[name], dtype, notes)
    frame = pl.DataFrame(made, schema=schema)
    if "dur_ns" not in schema:
        notes.add("time_beyond_int64", frame["ts_ns"].null_count())
        return frame.filter(pl.col("ts_ns").is_not_null())
    return _flag_durations(frame, notes) if "phase_letter" not in schema else frame


def _nanoseconds(digits: list[str | None]) -> pl.Series:
    """Turn µs of up to six decimals into int64 ns, half to even; null where the text is no number or no time."""
    micro = pl.Series(digits, dtype=pl.String).cast(pl.Decimal(22, 6), strict=False)
    nanos = (micro * 1000).round(0).cast(pl.Int64, strict=False)
    return nanos.set(nanos.abs() > _LATEST_NS, None)


def _series(values: list[Any], dtype: Any, notes: _Notes) -> pl.Series:
    if dtype == pl.Int64:
        fitting = [value if value is None or value in _INT64 else None for value in values]
        notes.add("integer_above_int64", sum(a is not b for a, b in zip(values, fitting, strict=True)))
        values = fitting
    return pl.Series(values, dtype=dtype)


def _flag_durations(frame: pl.DataFrame, notes: _Notes) -> pl.DataFrame:
    """Set durations that can't be time to 0, and leave out rows whose start is no time; count both."""
    notes.add("time_beyond_int64", frame["ts_ns"].null_count())
    notes.add("negative_duration", int((frame["dur_ns"] < 0).sum()))
    notes.add("missing_duration", frame["dur_ns"].null_count())
    return frame.filter(pl.col("ts_ns").is_not_null()).with_columns(pl.col("dur_ns").fill_null(0).clip(lower_bound=0))


def _read_problems(found: Sorted) -> Iterable[Problem]:
    if found.unreadable:
        message = f"Events of the wrong shape, kept whole in other_event; first: {found.unreadable[0]}"
        yield Problem("unreadable_event", "bad", len(found.unreadable), message)
    if flows := sum(found.flows.values()):
        yield Problem(
            "flow_event",
            "info",
            flows,
            "Arrows between events, not kept: correlation and nesting say the same.",
        )
    known: Callable[[str], bool] = {
        "",
        *knowledge()["known_other"]["categories"],
        *knowledge()["categories"],
    }.__contains__
    for category, count in sorted(found.categories.items()):
        if not known(category):
            message = f"Category {category!r} is not one this version understands; its rows are in other_event."
            yield Problem("unknown_category", "warn", count, message)


_MESSAGES = {
    "integer_above_int64": "Integers beyond int64 were set to null.",
    "time_beyond_int64": "Rows whose start is no time before the year 2116 were left out.",
    "negative_duration": "Negative durations were set to 0.",
    "missing_duration": "Durations that are missing, or longer than 146 years, were set to 0.",
}


def _value_problems(notes: _Notes) -> Iterable[Problem]:
    return (Problem(check, "warn", count, _MESSAGES[check]) for check, count in notes.counts.items())
