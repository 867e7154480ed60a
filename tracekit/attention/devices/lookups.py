"""Tables of a run that are made when a question reads them: peaks, residency, waits of devices.

Owns what they are made of. They lie in no bundle, so that older bundles have what newer rules know; table product is
made here for bundles that were loaded before it was one.
"""

from __future__ import annotations

import json
from functools import partial
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.attention.devices.devices import Device, Match, Spec, match
from tracekit.attention.devices.occupancy import residency
from tracekit.attention.devices.products import PRODUCT, products

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_PEAKS = pl.List(pl.Struct({"key": pl.String, "value": pl.Float64}))
DEVICE_SPEC: dict[str, Any] = {
    "trace_id": pl.Int64, "name": pl.String, "flops_per_s": _PEAKS, "bytes_per_s": pl.Float64,
    "cache_bytes": pl.Int64, "status": pl.String, "reason": pl.String, "source": pl.String,
}  # fmt: skip
RESIDENCY = {
    "trace_id": pl.Int64, "block": pl.String, "registers": pl.Int64, "shared_memory_bytes": pl.Int64,
    "threads": pl.Int64, "resident_blocks": pl.Int64, "limits": pl.String, "block_frac": pl.Float64,
    "status": pl.String, "reason": pl.String,
}  # fmt: skip
_PRODUCT = PRODUCT | {"trace_id": pl.Int64}
DEVICE_WAIT = dict.fromkeys(
    ("kernel_id", "trace_id", "step_id", "free_ns", "before_id", "idle_ns", "launched_ns"), pl.Int64
)


def lookups(
    tables: Mapping[str, pl.LazyFrame], spec: Spec | None = None, phases: Collection[str] = ()
) -> dict[str, pl.LazyFrame]:
    """Return the tables device_spec, residency and device_wait of a run, and product if it has none.

    `spec` is what a user says of every device. With `phases` a device waits while it does the work of others. Nothing
    is read before they are.
    """
    makers = {
        "device_spec": (partial(_device_specs, tables, spec), DEVICE_SPEC),
        "residency": (partial(_residencies, tables), RESIDENCY),
        "product": (partial(_products, tables), _PRODUCT),
        "device_wait": (partial(_waits, tables, phases), DEVICE_WAIT),
    }
    if "product" in tables:  # of bundles that were loaded before it was a table
        del makers["product"]
    return {name: pl.defer(_once(make), schema=schema, validate_schema=True) for name, (make, schema) in makers.items()}


def _once(make: Callable[[], pl.DataFrame]) -> Callable[[], pl.DataFrame]:
    """Return what makes a table the first time it is called, by whichever thread, and then has it."""
    made: list[pl.DataFrame] = []
    lock = Lock()

    def get() -> pl.DataFrame:
        with lock:
            if not made:
                made.append(make())
        return made[0]

    return get


def _distinct(tables: Mapping[str, pl.LazyFrame], table: str, columns: Mapping[str, Any]) -> pl.LazyFrame:
    """Return the different values of columns of a table; one that is missing is null."""
    return _columns(tables[table], columns).unique() if table in tables else pl.LazyFrame(schema=dict(columns))


def _columns(frame: pl.LazyFrame, columns: Mapping[str, Any]) -> pl.LazyFrame:
    """Return these columns of a table; one that is missing is null."""
    present = frame.collect_schema()
    return frame.select(
        (pl.col(name) if name in present else pl.lit(None)).cast(kind).alias(name) for name, kind in columns.items()
    )


_DEVICE = {
    "trace_id": pl.Int64, "device_name": pl.String, "vendor": pl.String, "compute_capability": pl.String,
    "sm_count": pl.Int64, "device_memory_bytes": pl.Int64,
}  # fmt: skip


def _device_specs(tables: Mapping[str, pl.LazyFrame], given: Spec | None) -> pl.DataFrame:
    rows = _distinct(tables, "trace", _DEVICE).sort("trace_id").collect()
    found = [(trace_id, _matched(Device(*device), given)) for trace_id, *device in rows.iter_rows()]
    return pl.DataFrame([_spec_row(trace_id, one) for trace_id, one in found], schema=DEVICE_SPEC, orient="row")


def _matched(device: Device, given: Spec | None) -> Match:
    return match(device) if given is None else Match(given, "exact", "given by --device-spec")


def _spec_row(trace_id: int, found: Match) -> tuple[Any, ...]:
    spec = found.spec
    if spec is None:
        return trace_id, None, None, None, None, found.status, found.reason, None
    peaks = [{"key": dtype, "value": peak} for dtype, peak in sorted(spec.flops_per_s.items())]
    return trace_id, spec.name, peaks, spec.bytes_per_s, spec.cache_bytes, found.status, found.reason, spec.source


_LAUNCHED = {"trace_id": pl.Int64, "block": pl.String, "registers": pl.Int64, "shared_memory_bytes": pl.Int64}


def _residencies(tables: Mapping[str, pl.LazyFrame]) -> pl.DataFrame:
    known = _distinct(tables, "trace", {"trace_id": pl.Int64, "compute_capability": pl.String}).collect()
    capabilities = dict(known.iter_rows())
    launched = _distinct(tables, "kernel", _LAUNCHED).filter(pl.col("block").is_not_null()).collect()
    rows = [(*row, *_residency(capabilities.get(row[0]), *row[1:])) for row in launched.iter_rows()]
    return pl.DataFrame(rows, schema=RESIDENCY, orient="row")


def _residency(capability: str | None, block: str, registers: int | None, shared: int | None) -> tuple[Any, ...]:
    """Return threads, resident blocks, limits, share of a block, status and reason."""
    threads = _threads(block)
    if threads is None:
        return None, None, None, None, "not_derivable", "its block is no size"
    if registers is None or shared is None:
        return threads, None, None, None, "not_derivable", "registers and shared memory were not recorded"
    found = residency(capability, threads, registers, shared)
    if found is None:
        reason = f"how many such blocks a device of capability {capability} holds is not known"
        return threads, None, None, None, "not_derivable", reason
    return threads, found.blocks, ", ".join(found.limits), found.block_frac, "estimated", None


def _threads(block: str) -> int | None:
    try:
        sizes = json.loads(block)
    except ValueError:
        return None
    is_size = isinstance(sizes, list) and sizes and all(type(size) is int and 0 < size < 2**20 for size in sizes)
    return prod(sizes) if is_size else None


_NAMED = {
    "op_id": pl.Int64, "trace_id": pl.Int64, "parent_id": pl.Int64,
    "name": pl.String, "input_dims": pl.String, "input_types": pl.String,
}  # fmt: skip


def _products(tables: Mapping[str, pl.LazyFrame]) -> pl.DataFrame:
    if "op" not in tables:
        return pl.DataFrame(schema=_PRODUCT)
    ops = _columns(tables["op"], _NAMED).collect()
    return products(ops).join(ops.select("op_id", "trace_id"), on="op_id", how="left").select(list(_PRODUCT))


_TIMED = dict.fromkeys(("kernel_id", "trace_id", "step_id", "device", "start_ns", "dur_ns", "launch_id"), pl.Int64)


def _waits(tables: Mapping[str, pl.LazyFrame], phases: Collection[str]) -> pl.DataFrame:
    """Return since when the device had nothing to do before each kernel, after which one, and the kernel's launch."""
    if "kernel" not in tables:
        return pl.DataFrame(schema=DEVICE_WAIT)
    every = _columns(tables["kernel"], _TIMED | ({"phase": pl.String} if phases else {}))
    chosen = every.filter(pl.col("phase").is_in(list(phases))) if phases else every
    started = {"launch_id": pl.Int64, "start_ns": pl.Int64}
    launches = _columns(tables["launch"], started) if "launch" in tables else pl.LazyFrame(schema=started)
    in_order = (
        chosen.collect()
        .join(launches.rename({"start_ns": "launched_ns"}).collect(), on="launch_id", how="left")
        .with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .sort("trace_id", "device", "start_ns", "end_ns", "kernel_id")
    )
    # Cut by hand: a window over each device would be found anew for each of its columns.
    devices = [_waits_of_device(one) for one in in_order.partition_by("trace_id", "device", maintain_order=True)]
    return pl.concat(devices) if devices else pl.DataFrame(schema=DEVICE_WAIT)


def _waits_of_device(in_order: pl.DataFrame) -> pl.DataFrame:
    end_ns, latest_ns, free_ns = pl.col("end_ns"), pl.col("latest_ns"), pl.col("free_ns")
    return (
        in_order.with_columns(latest_ns=end_ns.cum_max())
        .with_columns(latest_id=pl.when(end_ns == latest_ns).then("kernel_id").forward_fill())
        .with_columns(free_ns=latest_ns.shift(), before_id=pl.col("latest_id").shift())
        .with_columns(idle_ns=pl.when(free_ns.is_not_null()).then((pl.col("start_ns") - free_ns).clip(0)))
        .select(list(DEVICE_WAIT))
    )
