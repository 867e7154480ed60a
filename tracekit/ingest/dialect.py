"""What a trace says of itself: device, rank, flags, and which exporter wrote it.

Owns the reading of top-level keys and the guess at the dialect, which is made from the data because
`schemaVersion` never changes. Names of hosts, users and jobs are never read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tracekit.ingest.args import knowledge
from tracekit.ingest.events import Recording

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from tracekit.ingest.cut import Cutter, Piece
    from tracekit.ingest.kineto import Counts

_EPOCH_NS = 100_000_000_000_000_000
"""Times above this many ns (1973) count from the Unix epoch; relative ones stay below three months."""
_LAYOUT = re.compile(rb'\s*\{(?P<gap>\s*)"[a-z]+":(?P<blank>\s*)')
_ONE_A_LINE = re.compile(rb'\},\n\{"ph":"')
_HEAD = 4096
"""Bytes of a piece in which its layout is looked for."""
_SAMPLE = 256
"""Times of a kind, in a piece, whose digits are looked at; of padded ones, so many all but surely have a leading 0."""
_FEW = 10
"""So many External ids may equal a correlation by chance: both numbers count from the start of the process."""


def external_ids(known: int, repeated: int) -> Literal["op", "correlation", "none"]:
    """Tell what External ids of device work name, of which so many are known and so many repeat the correlation.

    Before PyTorch 2.6 an id without an op was the correlation (kineto #1001).
    """
    if not known:
        return "none"
    is_chance = repeated / known < 0.01 or (repeated < _FEW and repeated / known < 0.5)
    return "op" if is_chance else "correlation"


def recording(cutter: Cutter, found: Counts, name: str, sha256: str) -> Recording:
    """Describe the trace from its top-level keys and what was counted in its events."""
    devices = _value(cutter, "deviceProperties", list) or []
    device: dict[str, Any] = devices[0] if devices and isinstance(devices[0], dict) else {}
    distributed: dict[str, Any] = _value(cutter, "distributedInfo", dict) or {}
    base = _integer(_value(cutter, "baseTimeNanoseconds", int))
    dialect = _dialect(cutter, found, base)
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
        device_count=len(devices) if "deviceProperties" in cutter.metadata else None,
        sm_count=_integer(device.get(_SM_COUNT.get(dialect, "numSms"))),
        compute_capability=None if major is None else f"{major}.{minor}",
        torch_version=_torch_version(cutter),
        is_truncated=cutter.is_cut_off,
        vendor=_vendor(cutter, found, device, distributed),
        external_ids=external_ids(found.external_ids, found.repeated_ids),
        time_resolution_ns=_resolution(found),
        is_rewritten=_is_rewritten(cutter, found),
        device_memory_bytes=_integer(device.get("totalGlobalMem")),
    )


_SM_COUNT = {"python-relative": "maxThreadsPerMultiprocessor"}
"""Where the SM count stands, if not in its own field. Source: pytorch torch/profiler/_chrome_trace_export.py."""


def _torch_version(cutter: Cutter) -> str | None:
    """Return the version of PyTorch where whoever recorded the trace put it into its metadata.

    PyTorch itself writes none; recorders add theirs under this key at whatever depth, as those of the public traces in
    AMD-AGI/TraceLens tests/traces/h100 do.
    """
    for key, raw in cutter.metadata.items():
        if any(name in key.encode() or name in bytes(raw) for name in _VERSION_KEYS):
            try:
                found = _find_version(key, msgspec.json.decode(raw), _DEEPEST)
            except (msgspec.DecodeError, RecursionError):
                continue
            if found is not None:
                return found
    return None


_VERSION_KEYS = (b"torch_version", b"pytorch_version")
_DEEPEST = 6
_VERSION = re.compile(r"[0-9]+\.[0-9]+[0-9A-Za-z.+_-]{0,40}")


def _find_version(key: object, value: object, deepest: int) -> str | None:
    if isinstance(value, str):
        is_named = isinstance(key, str) and key.lower().encode() in _VERSION_KEYS
        return value if is_named and _VERSION.fullmatch(value) else None
    if not isinstance(value, dict) or not deepest:
        return None
    found = (_find_version(inner, held, deepest - 1) for inner, held in value.items())
    return next((version for version in found if version is not None), None)


def _value(cutter: Cutter, key: str, kind: type[Any]) -> Any:
    raw = cutter.metadata.get(key)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None


def _integer(value: object) -> int | None:
    """Return an integer that a column can hold, with room to add a time to it; None for all else."""
    return value if type(value) is int and abs(value) <= 2**62 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _dialect(cutter: Cutter, found: Counts, base: int | None) -> str:
    is_epoch = found.latest_ns > _EPOCH_NS
    if cutter.is_list or not cutter.metadata:
        return "list-epoch" if is_epoch else "list"
    if found.categories.keys() & {"Operator", "Kernel", "Runtime", "Memcpy", "Memset"}:
        return "kineto-2021-epoch"
    if is_epoch:
        return "kineto-epoch-ns" if found.has_fraction else "kineto-epoch-us"
    if base is None:
        return "kineto-relative-no-base"
    return "python-relative" if "layout:python" in found.hints else "kineto-relative"


def _is_rewritten(cutter: Cutter, found: Counts) -> bool | None:
    """Tell whether a tool wrote the file anew; a bare list is laid out as whoever wrote it liked."""
    layouts = {hint for hint in found.hints if hint.startswith("layout:")}
    if not layouts or (cutter.is_list and layouts == {"layout:other"}):
        return None
    return "layout:other" in layouts


def _resolution(found: Counts) -> int:
    """Return the ns to which times can be trusted."""
    if not found.has_fraction or is_unpadded(found):
        return 1000
    is_doubled = found.latest_ns > _EPOCH_NS and not found.hints & {"digits:fine", "digits:led"}
    return 250 if is_doubled else 1


def is_unpadded(found: Counts) -> bool:
    """Tell whether fractions of a µs are ns without leading zeros, so that `.5` may be 5 ns (before kineto #896).

    Such fractions have fewer digits than three and trailing zeros (`.50`), and none has a leading one (`.05`). A tool
    that wrote a double anew leaves no trailing zero, and an exporter that pads them has three digits in each.
    """
    said = {"digits:short", "digits:trailed", "digits:led"} & found.hints
    return found.latest_ns > _EPOCH_NS and said == {"digits:short", "digits:trailed"}


def hints(piece: Piece, digits: Iterable[bytes], calls: pl.Series) -> frozenset[str]:
    """Return what tells of the exporter in a piece: its layout, how fractions of times are written, what is called."""
    prefixes = calls.str.extract("^([a-z]+)").unique().drop_nulls().to_list()
    return frozenset([*_layout(piece), *_fractions(digits), *(f"call:{prefix}" for prefix in prefixes)])


def _layout(piece: Piece) -> list[str]:
    start = piece.text[:_HEAD]
    found = _LAYOUT.match(start)
    if found is None:
        return []
    if found["gap"].replace(b"\r", b"") == b"\n    " and found["blank"] == b" ":
        return ["layout:kineto"]
    is_python = not found["gap"] and not found["blank"] and _ONE_A_LINE.search(start)
    return ["layout:python" if is_python else "layout:other"]


_QUARTERS = frozenset([b"0", b"00", b"000", b"5", b"50", b"500", b"25", b"250", b"75", b"750"])
"""What a double can say of a µs in the 2020s, counted from 1970."""


def _fractions(digits: Iterable[bytes]) -> set[str]:
    found = set()
    for number in digits:
        _, point, fraction = number.strip(b'"').partition(b".")
        if point and len(fraction) > 1:
            found.add("digits:led" if fraction[:1] == b"0" and fraction.strip(b"0") else "")
            found.add("digits:trailed" if fraction.endswith(b"0") and fraction.strip(b"0") else "")
        if point:
            found.add("digits:short" if len(fraction) < 3 else "")
            found.add("" if fraction in _QUARTERS else "digits:fine")
    return found - {""}


def sampled(rows: dict[str, list[Any]]) -> Iterable[bytes]:
    """Yield the digits of some starts: as many as it takes to tell how an exporter writes fractions."""
    for kind in rows.values():
        yield from (bytes(memoryview(row.ts)) for row in kind[:_SAMPLE])


def _vendor(cutter: Cutter, found: Counts, device: dict[str, Any], distributed: dict[str, Any]) -> str | None:
    """Return whose device was recorded, by what the data say first: calls, categories, versions, the device's name."""
    vendors: dict[str, dict[str, list[str]]] = knowledge()["vendors"]
    name = _text(device.get("name")) or ""
    seen = {
        "calls": {hint.removeprefix("call:") for hint in found.hints},
        "categories": {category.lower() for category in found.categories},
        "keys": cutter.metadata.keys(),
        "properties": device.keys(),
        "names": {
            pattern for said in vendors.values() for pattern in said.get("names", ()) if re.search(pattern, name)
        },
    }
    for trait, values in seen.items():
        for vendor, said in vendors.items():
            if not values.isdisjoint(said.get(trait, ())):
                return vendor
    is_unknown = device or found.device_rows or distributed.get("backend") == "nccl"
    return None if is_unknown else "cpu"
