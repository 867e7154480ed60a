"""Tables of a run that are made when a question reads them: peaks of its devices, residency of its kernels' blocks.

Owns what they are made of. They lie in no bundle, so that older bundles have what newer rules know.
"""

from __future__ import annotations

import json
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.attention.devices.devices import Device, Match, Spec, match
from tracekit.attention.devices.occupancy import residency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Rows = Iterable[tuple[Any, ...]]


class Lookup(NamedTuple):
    """A table made of others: the SQL that reads these, and what makes its rows of those that this gives.

    Its columns, in their order, are those that schema.sql gives the table; a map is a dict.
    """

    sql: str
    rows: Callable[[Rows], Rows]


_DEVICES = """
    select trace_id, device_name, vendor, compute_capability, sm_count, device_memory_bytes from trace order by trace_id
"""
_BLOCKS = """
    select distinct k.trace_id, t.compute_capability, k.block, k.registers, k.shared_memory_bytes
    from kernel_of_any_step as k
    join trace as t using (trace_id)
    where k.block is not null
"""


def lookups(spec: Spec | None = None) -> dict[str, Lookup]:
    """Return the tables device_spec and residency of any run; `spec` is what a user says of every device."""
    return {
        "device_spec": Lookup(_DEVICES, partial(_device_specs, given=spec)),
        "residency": Lookup(_BLOCKS, _residencies),
    }


def _device_specs(rows: Rows, given: Spec | None) -> Rows:
    return [_spec_row(trace_id, _matched(Device(*device), given)) for trace_id, *device in rows]


def _matched(device: Device, given: Spec | None) -> Match:
    return match(device) if given is None else Match(given, "exact", "given by --device-spec")


def _spec_row(trace_id: int, found: Match) -> tuple[Any, ...]:
    spec = found.spec
    if spec is None:
        return trace_id, None, None, None, None, found.status, found.reason, None
    peaks = dict(sorted(spec.flops_per_s.items()))
    return trace_id, spec.name, peaks, spec.bytes_per_s, spec.cache_bytes, found.status, found.reason, spec.source


def _residencies(rows: Rows) -> Rows:
    return [(trace_id, *launched, *_residency(capability, *launched)) for trace_id, capability, *launched in rows]


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
    except (ValueError, RecursionError):
        return None
    is_size = isinstance(sizes, list) and sizes and all(type(size) is int and 0 < size < 2**20 for size in sizes)
    return prod(sizes) if is_size else None
