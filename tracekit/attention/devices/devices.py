"""What a device can do at most: dense peaks by number format and the bandwidth of its memory.

Owns which row of devices.toml is that of a trace's device, and the reading of a row that a user gives instead.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tracekit.attention.knowledge import load
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_SLICE = re.compile(r"(?P<board>.+?) MIG \d+g\.(?P<gb>\d+)gb")
_MEMORY_SLICES = 8
"""Parts that MIG cuts a board's memory into; a slice has the bandwidth of its parts. Source: NVIDIA MIG User Guide."""
_GIB = 2**30
_LEAST_MEMORY, _MOST_MEMORY = 0.9, 1.0
"""What drivers report of the GiB that a vendor names."""
_NUMBERS = ("gb_per_s", "memory_gb", "l2_mib", "sm_count")


class Device(NamedTuple):
    """What a trace says of its device; None where it does not."""

    name: str | None = None
    vendor: str | None = None
    capability: str | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None


class Spec(NamedTuple):
    """Peaks of a device: `flops_per_s` by number format as torch names it, accumulated in fp32 and without sparsity.

    `bytes_per_s` is that of its memory, `cache_bytes` the last level of cache that all of it shares; None is unknown.
    """

    name: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float | None
    cache_bytes: int | None
    source: str


class Match(NamedTuple):
    """The row that is a device's, or None; how sure that is, and what it was found by or why there is none."""

    spec: Spec | None
    status: Literal["exact", "estimated", "not_derivable"]
    reason: str


def match(device: Device) -> Match:
    """Return the peaks of a trace's device.

    A name alone is not enough: cards that differ share one. Without a name, a row that alone fits is taken.
    """
    if device.name is None or device.name in load("devices/devices")["nameless"]["names"]:
        return _by_size(device)
    cut = _SLICE.fullmatch(device.name)
    row = _row(cut["board"] if cut else device.name)
    if row is None:
        return Match(None, "not_derivable", f"no peaks are known of {device.name}")
    if device.capability != row["capability"]:
        return Match(None, "not_derivable", f"{device.name} with capability {device.capability} is no {row['name']}")
    if cut:
        return _slice(row, device, int(cut["gb"]))
    if device.sm_count != row["sm_count"]:
        problem = f"{device.name} has {device.sm_count} SMs, {row['name']} has {row['sm_count']}"
        return Match(None, "not_derivable", problem)
    return Match(_spec(row), "exact", f"found by name, capability {row['capability']} and {row['sm_count']} SMs")


def _row(name: str) -> dict[str, Any] | None:
    return next((row for row in load("devices/devices")["device"] if re.fullmatch(row["pattern"], name)), None)


def _spec(row: Mapping[str, Any], compute: float = 1.0, memory: float = 1.0) -> Spec:
    """Return a row in FLOP/s and bytes/s; of a slice the shares that it has."""
    peaks = {dtype: peak * 1e12 * compute for dtype, peak in row["tflops"].items()}
    bandwidth, cache_mib = row.get("gb_per_s"), row.get("l2_mib")
    return Spec(
        row["name"],
        peaks,
        None if bandwidth is None else bandwidth * 1e9 * memory,
        None if cache_mib is None else int(cache_mib * 2**20 * memory),
        row["source"],
    )


def _slice(row: dict[str, Any], device: Device, gb: int) -> Match:
    """Return the peaks of a MIG slice: its share of the SMs, and of the memory's parts."""
    if not device.sm_count or device.sm_count > row["sm_count"]:
        problem = f"{device.name} has {device.sm_count} SMs, {row['name']} has {row['sm_count']}"
        return Match(None, "not_derivable", problem)
    parts = min(_MEMORY_SLICES, max(1, round(gb * _MEMORY_SLICES / row["memory_gb"])))
    spec = _spec(row, device.sm_count / row["sm_count"], parts / _MEMORY_SLICES)
    reason = f"a slice: {device.sm_count} of {row['sm_count']} SMs and {parts} of {_MEMORY_SLICES} parts of the memory"
    return Match(spec._replace(name=f"{row['name']}, MIG slice"), "estimated", reason)


def _by_size(device: Device) -> Match:
    """Return the one row whose size is that of a device without a name."""
    if device.sm_count is None:
        return Match(None, "not_derivable", "the trace does not describe its device")
    fitting = [row for row in load("devices/devices")["device"] if _fits(row, device)]
    said = f"capability {device.capability} and {device.sm_count} SMs"
    if len(fitting) == 1:
        return Match(_spec(fitting[0]), "estimated", f"the device has no name; found by {said}")
    if not fitting:
        return Match(None, "not_derivable", f"the device has no name, and no known one has {said}")
    names = " and ".join(row["name"] for row in fitting)
    return Match(None, "not_derivable", f"the device has no name, and {names} have {said}")


def _fits(row: Mapping[str, Any], device: Device) -> bool:
    if (row.get("vendor", "cuda"), row["capability"], row["sm_count"]) != (
        device.vendor, device.capability, device.sm_count,
    ):  # fmt: skip
        return False
    share = (device.memory_bytes or 0) / (row["memory_gb"] * _GIB)
    return device.memory_bytes is None or _LEAST_MEMORY <= share <= _MOST_MEMORY


@cache
def formats() -> frozenset[str]:
    """Return the number formats of which some device's peak is known."""
    return frozenset(dtype for row in load("devices/devices")["device"] for dtype in row["tflops"])


def read_spec(path: Path) -> Spec:
    """Read the peaks that a user gives, a row as devices.toml has them. Raises TracekitError if the file is none.

    `tflops` must be there; `gb_per_s`, `l2_mib` and `name` may be.
    """
    try:
        row = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TracekitError(f"{path} can't be read ({error.strerror})", "give a TOML file with peaks") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TracekitError(f"{path} is not TOML: {error}", _SUCH_AS) from error
    _check(row, path)
    given = {"name": str(row.get("name", path.name)), "source": f"{path.name}, given"}
    return _spec(row | given)


_SUCH_AS = "write it as tflops = { bfloat16 = 989.5 } and gb_per_s = 3350"


def _check(row: Mapping[str, Any], path: Path) -> None:
    """Raise TracekitError for keys that mean nothing, and for peaks that are none."""
    known = {"name", "source", "tflops", *_NUMBERS}
    if unknown := sorted(set(row) - known):
        raise TracekitError(f"{path}: {unknown[0]!r} means nothing", f"known are {', '.join(sorted(known))}")
    peaks = row.get("tflops")
    if not isinstance(peaks, dict) or not peaks:
        raise TracekitError(f"{path} holds no tflops", _SUCH_AS)
    if unknown := sorted(set(peaks) - formats()):
        raise TracekitError(f"{path}: tflops of {unknown[0]!r}", f"formats are {', '.join(sorted(formats()))}")
    _check_numbers([*peaks.items(), *((key, row[key]) for key in _NUMBERS if key in row)], path)


def _check_numbers(pairs: Iterable[tuple[str, object]], path: Path) -> None:
    for key, value in pairs:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise TracekitError(f"{path}: {key} = {value!r} is no peak", _SUCH_AS)
