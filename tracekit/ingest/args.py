"""The `args` of an event: known keys to typed fields, every other key kept as JSON.

Owns the list of known keys for each kind of row. An args object that holds nothing unknown is decoded in one
pass; only one that does takes the slower second pass, so that nothing is lost and little is paid for it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Raw

_INT = int | None
_FIELDS: dict[str, dict[str, tuple[str, Any]]] = {
    "op": {
        "external_id": ("External id", _INT),
        "external_id_old": ("external id", _INT),
        "sequence_number": ("Sequence number", _INT),
        "fwd_thread_id": ("Fwd thread id", _INT),
        "record_function_id": ("Record function id", _INT),
        "input_dims": ("Input Dims", Raw),
        "input_dims_old": ("Input dims", Raw),
        "input_types": ("Input type", Raw),
        "input_strides": ("Input Strides", Raw),
        "concrete_inputs": ("Concrete Inputs", Raw),
        "is_finished": ("finished", bool | None),
    },
    "frame": {
        "python_id": ("Python id", _INT),
        "python_parent_id": ("Python parent id", _INT),
    },
    "runtime": {"correlation": ("correlation", _INT)},
    "kernel": {
        "device": ("device", _INT),
        "stream": ("stream", _INT),
        "bytes": ("bytes", _INT),
        "grid": ("grid", Raw),
        "block": ("block", Raw),
        "registers": ("registers per thread", _INT),
        "shared_memory_bytes": ("shared memory", _INT),
        "occupancy": ("est. achieved occupancy %", float | None),
        "occupancy_old": ("theoretical occupancy %", float | None),
        "correlation": ("correlation", _INT),
        "graph_node_id": ("graph node id", _INT),
        "external_id": ("External id", _INT),
        "external_id_old": ("external id", _INT),
    },
    "memory": {
        "device_type": ("Device Type", _INT),
        "device_id": ("Device Id", _INT),
        "address": ("Addr", _INT),
        "bytes": ("Bytes", _INT),
        "allocated_bytes": ("Total Allocated", _INT),
        "reserved_bytes": ("Total Reserved", _INT),
    },
}
_SAME = {"annotation": "op", "memcpy": "kernel", "memset": "kernel"}


@cache
def knowledge() -> dict[str, Any]:
    """Return `kineto.toml`: categories, redundant args, device types."""
    return tomllib.loads(files("tracekit.ingest").joinpath("kineto.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class ArgsReader:
    """Decodes the args of one kind of row into a struct of its known fields and the JSON of the rest."""

    fast: msgspec.json.Decoder[Any]
    struct: type[Any]
    known: dict[str, tuple[str, msgspec.json.Decoder[Any]]]
    redundant: frozenset[str]

    def read(self, raw: Raw) -> tuple[Any, str | None]:
        """Return the known fields and the JSON text of every other key, or None where there is none."""
        if not len(memoryview(raw)):
            return self.struct(), None
        try:
            return self.fast.decode(raw), None
        except msgspec.DecodeError:
            return self._read_slowly(raw)

    def _read_slowly(self, raw: Raw) -> tuple[Any, str | None]:
        try:
            items = msgspec.json.decode(raw, type=dict[str, Raw])
        except msgspec.DecodeError:
            return self.struct(), _text(raw)
        values: dict[str, Any] = {}
        rest: dict[str, Raw] = {}
        for key, value in items.items():
            if key in self.known:
                name, decoder = self.known[key]
                try:
                    values[name] = decoder.decode(value)
                except msgspec.ValidationError:
                    rest[key] = value
            elif key not in self.redundant:
                rest[key] = value
        return self.struct(**values), msgspec.json.encode(rest).decode("utf-8", "replace") if rest else None


def _text(raw: Raw) -> str:
    return str(memoryview(raw), "utf-8", "replace")


def text(raw: Raw) -> str | None:
    """Return the JSON text of a raw value, or None where the key was absent."""
    return _text(raw) or None


@cache
def reader(kind: str) -> ArgsReader:
    """Return the reader for a kind of row: op, annotation, frame, runtime, kernel, memcpy, memset, memory."""
    fields = _FIELDS[_SAME.get(kind, kind)]
    redundant = frozenset(knowledge()["redundant"].get(kind, ()))
    ignored = {
        f"redundant_{number}": (key, Raw)
        for number, key in enumerate(sorted(redundant))
        if key not in {name for name, _ in fields.values()}
    }
    every = fields | ignored
    struct = msgspec.defstruct(
        f"{kind.title()}Args",
        [(name, kind_of, Raw() if kind_of is Raw else None) for name, (_, kind_of) in every.items()],
        rename={name: key for name, (key, _) in every.items()},
        forbid_unknown_fields=True,
        gc=False,
    )
    known = {key: (name, msgspec.json.Decoder(kind_of)) for name, (key, kind_of) in fields.items()}
    return ArgsReader(msgspec.json.Decoder(struct), struct, known, redundant)
