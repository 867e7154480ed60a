"""What a trace says of itself: device, rank, flags, and which exporter wrote it.

Owns the reading of top-level keys and the guess at the dialect, which is made from the data because
`schemaVersion` never changes. Names of hosts, users and jobs are never read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.ingest.events import Recording

if TYPE_CHECKING:
    from tracekit.ingest.kineto import Sorted

_EPOCH_US = 100_000_000_000_000
"""Times above this many µs (1973) count from the Unix epoch; relative ones stay below three months."""


def recording(found: Sorted, name: str, sha256: str) -> Recording:
    """Describe the trace from its top-level keys and its events."""
    devices = _value(found, "deviceProperties", list) or []
    device: dict[str, Any] = devices[0] if devices and isinstance(devices[0], dict) else {}
    distributed: dict[str, Any] = _value(found, "distributedInfo", dict) or {}
    base = _integer(_value(found, "baseTimeNanoseconds", int))
    dialect = _dialect(found, base)
    major, minor = device.get("computeMajor"), device.get("computeMinor")
    return Recording(
        source_name=name,
        source_sha256=sha256,
        events=found.events,
        dialect=dialect,
        base_unix_ns=0 if "epoch" in dialect else base,
        rank=_integer(distributed.get("rank")),
        world_size=_integer(distributed.get("world_size")),
        device_name=_text(device.get("name")),
        device_count=len(devices) if "deviceProperties" in found.metadata else None,
        sm_count=_integer(device.get("numSms")),
        compute_capability=None if major is None else f"{major}.{minor}",
        torch_version=None,
    )


def _value(found: Sorted, key: str, kind: type[Any]) -> Any:
    raw = found.metadata.get(key)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError:
        return None


def _integer(value: object) -> int | None:
    """Return an integer that a column can hold, with room to add a time to it; None for all else."""
    return value if type(value) is int and abs(value) <= 2**62 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _dialect(found: Sorted, base: int | None) -> str:
    rows = [row for kind in found.rows.values() for row in kind[:1]]
    times = [str(memoryview(row.event.ts), "utf-8", "replace") for row in rows]
    is_epoch = any(float(time) > _EPOCH_US for time in times)
    if not found.metadata:
        return "list-epoch" if is_epoch else "list"
    if any(row.event.cat in {"Operator", "Kernel", "Runtime", "Memcpy", "Memset"} for row in rows):
        return "kineto-2021-epoch"
    if is_epoch:
        return "kineto-epoch-ns" if any("." in time for time in times) else "kineto-epoch-us"
    return "kineto-relative" if base is not None else "kineto-relative-no-base"
