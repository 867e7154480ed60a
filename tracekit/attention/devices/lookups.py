"""Small tables in which questions look up what a run itself does not hold: peaks, residency, products.

Owns what a run's tables are asked for them. They are made of distinct values when a question reads them, and lie in
no bundle, so that older bundles have what newer rules know.
"""

from __future__ import annotations

import json
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.attention.devices.devices import Device, Match, Spec, match
from tracekit.attention.devices.occupancy import residency
from tracekit.attention.devices.products import Counted, counted
from tracekit.attention.knowledge import meaning_of

if TYPE_CHECKING:
    from collections.abc import Mapping

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
_COUNTED = dict.fromkeys(("batch", "m", "n", "k", "flops", "bytes"), pl.Int64)
PRODUCT = {
    "op_name": pl.String, "input_dims": pl.String, "input_types": pl.String,
    **{name: _COUNTED.get(name, pl.String) for name in Counted._fields},
}  # fmt: skip


def lookups(tables: Mapping[str, pl.LazyFrame], spec: Spec | None = None) -> dict[str, pl.LazyFrame]:
    """Return the tables device_spec, residency and product of a run; `spec` is what a user says of every device.

    Nothing is read before they are.
    """
    makers = {
        "device_spec": (partial(_device_specs, tables, spec), DEVICE_SPEC),
        "residency": (partial(_residencies, tables), RESIDENCY),
        "product": (partial(_products, tables), PRODUCT),
    }
    return {name: pl.defer(make, schema=schema, validate_schema=True) for name, (make, schema) in makers.items()}


def _distinct(tables: Mapping[str, pl.LazyFrame], table: str, columns: Mapping[str, Any]) -> pl.LazyFrame:
    """Return the different values of columns of a table; one that is missing is null."""
    if table not in tables:
        return pl.LazyFrame(schema=dict(columns))
    present = tables[table].collect_schema()
    picked = [
        (pl.col(name) if name in present else pl.lit(None)).cast(kind).alias(name) for name, kind in columns.items()
    ]
    return tables[table].select(picked).unique()


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


def _products(tables: Mapping[str, pl.LazyFrame]) -> pl.DataFrame:
    names = _distinct(tables, "op", {"name": pl.String}).collect().to_series().to_list()
    wanted = [name for name in names if name and meaning_of(name).action in {"gemm", "bmm"}]
    if not wanted:
        return pl.DataFrame(schema=PRODUCT)
    ops = tables["op"].filter(pl.col("name").is_in(wanted))
    columns = {"name": pl.String, "input_dims": pl.String, "input_types": pl.String}
    signatures = _distinct({"op": ops}, "op", columns).sort(list(columns), nulls_last=True).collect()
    rows = [(*row, *counted(*row)) for row in signatures.iter_rows()]
    return pl.DataFrame(rows, schema=PRODUCT, orient="row")
