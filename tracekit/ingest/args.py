"""The shapes of events: one struct for each category, its known args typed, every other arg kept as JSON.

Owns the list of known keys for each kind of row. A struct refuses what it does not know, so that a whole piece of
text decodes in one pass where nothing is unknown; an event that is refused is read key by key, and nothing is lost.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

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
_MEMORY_CATEGORY = "cpu_instant_event"
ABSENT = Raw()
"""What a field that holds JSON text is where its key is not there; one object, so that it is quickly told."""
Identity = int | str | float | None
"""Ids of processes, threads and arrows: numbers, but some exporters write names."""
HEAD: tuple[tuple[str, Any, Any], ...] = (
    ("ph", str, ""),
    ("name", str, ""),
    ("pid", Identity, None),
    ("tid", Identity, None),
    ("ts", Raw, ABSENT),  # the digits of the file, since a float64 can't hold them
    ("dur", Raw, ABSENT),
)


class Shape(NamedTuple):
    """What a category's events become: their kind, and the category as written.

    Kinds are those of `reader`, `other` for rows kept whole, and of arrows `arrow` for those read, `flow` for others.
    """

    kind: str
    category: str


class ArgsReader(NamedTuple):
    """The args of one kind of row: their struct, a decoder for each known key, and the keys kept nowhere.

    `kept` names, by field of the `wide` struct, those keys that are known and have no column: they go into
    args_json. Few traces have them, and all others do better without their fields.
    """

    struct: type[Any]
    wide: type[Any]
    known: dict[str, tuple[str, msgspec.json.Decoder[Any]]]
    redundant: frozenset[str]
    kept: dict[str, str]

    def read(self, raw: Raw) -> tuple[Any, str | None]:
        """Return the known fields, and the JSON text of every other key or None; both from args of whatever shape."""
        if not len(memoryview(raw)):
            return self.struct(), None
        try:
            items = msgspec.json.decode(raw, type=dict[str, Raw])
        except msgspec.DecodeError:
            return self.struct(), text(raw)
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
        rest = {key: rest.pop(key) for key in self.kept.values() if key in rest} | rest
        return self.struct(**values), msgspec.json.encode(rest).decode("utf-8", "replace") if rest else None


def text(raw: Raw) -> str | None:
    """Return the JSON text of a raw value, or None where the key was absent."""
    return str(memoryview(raw), "utf-8", "replace") or None


@cache
def knowledge() -> dict[str, Any]:
    """Return `kineto.toml`: categories, redundant args, device types."""
    return tomllib.loads(files("tracekit.ingest").joinpath("kineto.toml").read_text(encoding="utf-8"))


@cache
def reader(kind: str) -> ArgsReader:
    """Return the reader for a kind of row: op, annotation, frame, runtime, kernel, memcpy, memset, memory."""
    fields = _FIELDS[_SAME.get(kind, kind)]
    redundant = frozenset(knowledge()["redundant"].get(kind, ()))
    unnamed = sorted(redundant - {key for key, _ in fields.values()})
    kept = {f"kept_{number}": key for number, key in enumerate(knowledge()["kept"].get(kind, ()))}
    every = fields | {f"redundant_{number}": (key, Raw) for number, key in enumerate(unnamed)}
    struct, wide = (
        msgspec.defstruct(
            f"{kind.title()}Args",
            [(name, kind_of, ABSENT if kind_of is Raw else None) for name, (_, kind_of) in each.items()],
            rename={name: key for name, (key, _) in each.items()},
            forbid_unknown_fields=True,
            gc=False,
        )
        for each in (every, every | {name: (key, Raw) for name, key in kept.items()})
    )
    known = {key: (name, msgspec.json.Decoder(kind_of)) for name, (key, kind_of) in fields.items()}
    return ArgsReader(struct, wide, known, redundant, kept)


@cache
def row_struct(kind: str) -> type[Any]:
    """Return the struct of one row of a kind, whatever its category: `HEAD` and `args`."""
    return _struct(f"{kind.title()}Row", kind)


@cache
def shapes(*, wide: bool) -> dict[type[Any], Shape]:
    """Return the struct of each known category, in each way that exporters write its name, and what it becomes.

    Those that are `wide` also take the args that few traces have.
    """
    known = knowledge()
    kinds = {
        **known["categories"],
        **dict.fromkeys(known["known_other"]["categories"], "other"),
        _MEMORY_CATEGORY: "memory",
        **dict.fromkeys(known["flows"]["categories"], "flow"),
        **dict.fromkeys(known["flows"]["forward"], "arrow"),
    }
    found: dict[type[Any], Shape] = {}
    for category, kind in kinds.items():
        for written in dict.fromkeys((category, category.capitalize())):
            found[_struct(f"Event{len(found)}", kind, written, wide=wide)] = Shape(kind, written)
    return found


def _struct(name: str, kind: str, category: str | None = None, *, wide: bool = False) -> type[Any]:
    """Make the struct of a kind; one of a category refuses events whose phase or name the kind does not have."""
    head = {field: (type_of, default) for field, type_of, default in HEAD}
    tagging: dict[str, Any] = {}
    if category is not None:
        tagging = {"tag_field": "cat", "tag": category}
        if kind != "other":
            head["ph"] = (Literal[_PHASES.get(kind, ("X",))], msgspec.NODEFAULT)
        if kind == "memory":
            head["name"] = (Literal["[memory]"], msgspec.NODEFAULT)
    rest: dict[str, tuple[Any, Any]]
    if kind == "flow":  # only counted, so nothing of it is decoded
        return msgspec.defstruct(name, [("ph", *head["ph"])], gc=False, **tagging)
    if kind == "arrow":  # whatever else it says, such as to which side of an op it is drawn, is not asked
        known = [(field, *head[field]) for field in ("pid", "tid", "ts")]
        return msgspec.defstruct(name, [("ph", *head["ph"]), ("id", Identity, None), *known], gc=False, **tagging)
    if kind == "other":
        rest = dict.fromkeys(("args", *EXTRAS), (Raw, ABSENT))
    else:
        args = reader(kind).wide if wide else reader(kind).struct
        rest = {"args": (args, msgspec.field(default_factory=args))}
        if kind == "memory":
            rest["s"] = (Raw, ABSENT)  # the scope of an instant, which says nothing of an allocation
    fields = [(field, *said) for field, said in (head | rest).items()]
    return msgspec.defstruct(name, fields, gc=False, kw_only=True, forbid_unknown_fields=True, **tagging)


EXTRAS = ("id", "s", "bp")
"""Fields of an event that have no column; they go into args_json."""
_PHASES = {"flow": ("s", "t", "f"), "arrow": ("s", "t", "f"), "memory": ("i", "I", "X")}
