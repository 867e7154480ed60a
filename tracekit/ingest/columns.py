"""Rows to frames: exact times and typed columns.

Owns the step from Python objects to Polars columns. Times become int64 ns from the digits of the text. A value
that can't be held (an integer above int64, a negative duration) is set aside and counted, never wrapped.
"""

from __future__ import annotations

import re
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.ingest import events as shape
from tracekit.ingest.args import ABSENT, knowledge, reader
from tracekit.ingest.decode import SEPARATOR
from tracekit.ingest.demangle import readable
from tracekit.ingest.literals import json_texts, nanoseconds, nulls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from msgspec import Raw

    from tracekit.ingest.args import ArgsReader
    from tracekit.ingest.rows import Finding, Rows

_INT64 = range(-(2**63), 2**63)
_LONGEST_NS = 24 * 3600 * 10**9
"""No row of a recording lasts longer than a day; where one says so, its clock or its digits are wrong."""
_LAST_INTEGER = re.compile(r"(?:.*\s)?(-?[0-9]{1,18})\s*", re.DOTALL)
_DEVICE_KINDS = ("kernel", "memcpy", "memset")


class NoTimeError(Exception):
    """A row's start is no number, so that it is none of its kind."""


def frames_of(found: Rows, *, is_odd: bool = False) -> dict[str, pl.DataFrame]:
    """Return rows as the frames that `Events` names; what can't be held is added to the rows' findings.

    Raises NoTimeError if a row's start is no number, unless the rows were read as odd, when that was seen to.
    """
    made = {
        "ops": _ops,
        "frames": _frames,
        "runtime": _runtime,
        "device": _device,
        "memory": _memory,
        "other": _other,
    }
    kind = _Kind(found, is_odd=is_odd)
    frames = {name: _finished(kind, make, shape.TABLES[name]) for name, make in made.items()}
    frames["arrows"] = _arrows(found)
    is_work = frames["device"]["kind"].is_in(_DEVICE_KINDS)
    if not is_work.all():
        idle = _idle(frames["device"].filter(~is_work)).select(*shape.TABLES["other"])
        frames |= {"device": frames["device"].filter(is_work), "other": frames["other"].vstack(idle)}
    return frames


class _Kind:
    """Makes columns of rows, and counts what they can't hold."""

    def __init__(self, found: Rows, *, is_odd: bool) -> None:
        self.found, self.is_odd = found, is_odd

    @property
    def findings(self) -> dict[str, Finding]:
        return self.found.findings

    def rows(self, *kinds: str) -> list[Any]:
        return [*chain.from_iterable(self.found.rows.get(kind, ()) for kind in kinds)]

    def rests(self, *kinds: str) -> pl.Series:
        """Return the JSON of args that have no column."""
        return pl.concat([self._rests(kind) for kind in kinds])

    def _rests(self, kind: str) -> pl.Series:
        rows = self.found.rows.get(kind, ())
        found = _kept(rows, reader(kind)) if self.found.is_wide else nulls(len(rows))
        if own := self.found.rests.get(kind):
            found = found.scatter(list(own), list(own.values()))
        return found

    def integers(self, values: Sequence[Any]) -> pl.Series:
        """Return integers as a column, null where one is beyond int64."""
        try:
            return pl.Series(values, dtype=pl.Int64)
        except (TypeError, OverflowError):
            fitting = [value if value is None or value in _INT64 else None for value in values]
            beyond = sum(a is not b for a, b in zip(values, fitting, strict=True))
            self.findings["integer_above_int64"].add(beyond)
            return pl.Series(fitting, dtype=pl.Int64)

    def starts(self, rows: Sequence[Any], *, may_lack: bool = False) -> pl.Series:
        """Return when rows start. Raises NoTimeError if one that must not lack a start does not begin with a number."""
        raws = [row.ts for row in rows]
        found = nanoseconds(raws)
        if not (may_lack or self.is_odd) and found.null_count() and _NO_NUMBER.search(SEPARATOR.join((b"", *raws))):
            raise NoTimeError
        return found

    def places(self, said: Sequence[int | None], rows: Sequence[Any], field: str) -> pl.Series:
        """Return an arg's integers or, where rows have none, those at the end of a field."""
        found = self.integers(said)
        if not found.null_count():
            return found
        return self.integers([_first_int(one, getattr(row, field)) for one, row in zip(said, rows, strict=True)])

    def head(self, rows: Sequence[Any], *, may_lack: bool = False) -> dict[str, pl.Series]:
        """Return the columns that all kinds have; those of no kind `may_lack` a start."""
        return {
            "name": pl.Series([row.name for row in rows], dtype=pl.String),
            "pid": _identities([row.pid for row in rows]),
            "tid": _identities([row.tid for row in rows]),
            "ts_ns": self.starts(rows, may_lack=may_lack),
            "dur_ns": nanoseconds([row.dur for row in rows]),
        }


_NO_NUMBER = re.compile(SEPARATOR + rb'(?!"?[-0-9])')


def _kept(rows: Sequence[Any], known: ArgsReader) -> pl.Series:
    """Return the JSON of args that are known and have no column; only the wide struct has them."""
    places = [place for place, row in enumerate(rows) if type(row.args) is known.wide] if known.kept else []
    args = [rows[place].args for place in places]
    each = {key: list(map(attrgetter(name), args)) for name, key in known.kept.items()}
    some = {key: values for key, values in each.items() if values.count(ABSENT) < len(values)}
    return nulls(len(rows)).scatter(places, _as_object(some)) if some else nulls(len(rows))


def _as_object(columns: Mapping[str, Sequence[Raw]]) -> pl.Series:
    """Return columns of JSON text as one of JSON objects, null where there is nothing."""
    texts = {key: json_texts(values) for key, values in columns.items()}
    parts = {key: f'"{key}":' + text for key, text in texts.items()}
    some = pl.any_horizontal(pl.all().is_not_null())
    joined = pl.concat_str(pl.all(), separator=",", ignore_nulls=True)
    return pl.DataFrame(parts).select(pl.when(some).then("{" + joined + "}").alias("rest"))["rest"]


def _identities(values: list[Any]) -> pl.Series:
    if values and values.count(values[0]) == len(values) and type(values[0]) is int:
        return pl.Series([str(values[0])], dtype=pl.String).new_from_index(0, len(values))
    try:
        return pl.Series(values, dtype=pl.Int64).cast(pl.String)
    except (TypeError, OverflowError):
        return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)


def _floats(values: Sequence[float | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64)


def _first(series: pl.Series, other: pl.Series) -> pl.Series:
    """Return a column's values, and the other's where it has none."""
    return series if not series.null_count() else series.zip_with(series.is_not_null(), other)


def _ops(kind: _Kind) -> dict[str, pl.Series]:
    rows = kind.rows("op", "annotation")
    args = [row.args for row in rows]
    external_ids, old_external_ids = ([each.external_id for each in args], [each.external_id_old for each in args])
    dims, old_dims = ([each.input_dims for each in args], [each.input_dims_old for each in args])
    record_ids = kind.integers([each.record_function_id for each in args])
    ops = len(kind.found.rows.get("op", ()))
    finished = pl.Series([each.is_finished for each in args], dtype=pl.Boolean)
    return kind.head(rows) | {
        "is_annotation": pl.Series([False] * ops + [True] * (len(rows) - ops), dtype=pl.Boolean),
        "external_id": _first(kind.integers(external_ids), kind.integers(old_external_ids)),
        "sequence_number": kind.integers([each.sequence_number for each in args]),
        "fwd_thread_id": kind.integers([each.fwd_thread_id for each in args]),
        "input_dims": _first(json_texts(dims), json_texts(old_dims)),
        "input_types": json_texts([each.input_types for each in args]),
        "input_strides": json_texts([each.input_strides for each in args]),
        "concrete_inputs": json_texts([each.concrete_inputs for each in args]),
        "is_finished": finished.fill_null(value=True),
        "args_json": _with_record_function_ids(kind.rests("op", "annotation"), record_ids),
    }


def _with_record_function_ids(rests: pl.Series, ids: pl.Series) -> pl.Series:
    """Keep the ids that join an execution trace, which are 0 unless such a trace was recorded too."""
    if not (ids.fill_null(0) != 0).any():
        return rests
    key = '"Record function id":' + ids.cast(pl.String)
    rest = pl.when(pl.col("rest").is_null()).then(pl.lit("}")).otherwise("," + pl.col("rest").str.slice(1))
    whole = pl.when(pl.col("id").fill_null(0) != 0).then("{" + pl.col("key") + rest).otherwise(pl.col("rest"))
    return pl.DataFrame({"rest": rests, "key": key, "id": ids}).select(whole.alias("rest"))["rest"]


def _frames(kind: _Kind) -> dict[str, pl.Series]:
    rows = kind.rows("frame")
    args = [row.args for row in rows]
    return kind.head(rows) | {
        "python_id": kind.integers([each.python_id for each in args]),
        "python_parent_id": kind.integers([each.python_parent_id for each in args]),
        "args_json": kind.rests("frame"),
    }


def _runtime(kind: _Kind) -> dict[str, pl.Series]:
    rows = kind.rows("runtime")
    categories = [repeat(category.lower(), count) for category, count in kind.found.categories_of["runtime"]]
    return kind.head(rows) | {
        "category": pl.Series([*chain.from_iterable(categories)], dtype=pl.String),
        "correlation": kind.integers([row.args.correlation for row in rows]),
        "args_json": kind.rests("runtime"),
    }


def _device(kind: _Kind) -> dict[str, pl.Series]:
    rows = kind.rows(*_DEVICE_KINDS)
    args = [row.args for row in rows]
    kinds = [name for each in _DEVICE_KINDS for name in _named(kind.found, each)]
    head = kind.head(rows)
    rests = kind.rests(*_DEVICE_KINDS)
    sizes = kind.integers([each.bytes for each in args])
    if knowledge()["named"].keys() & set(kind.found.categories):
        sizes = _first(sizes, rests.str.json_path_match("$.size").cast(pl.Int64, strict=False))
    head["name"], raw_names = readable(head["name"])
    shares, old_shares = ([each.occupancy for each in args], [each.occupancy_old for each in args])
    external_ids, old_external_ids = ([each.external_id for each in args], [each.external_id_old for each in args])
    nodes = kind.integers([each.graph_node_id for each in args])
    return head | {
        "raw_name": raw_names,
        "kind": pl.Series(kinds, dtype=pl.String),
        "device": kind.places([each.device for each in args], rows, "pid"),
        "stream": kind.places([each.stream for each in args], rows, "tid"),
        "bytes": sizes,
        "grid": json_texts([each.grid for each in args]),
        "block": json_texts([each.block for each in args]),
        "registers": kind.integers([each.registers for each in args]),
        "shared_memory_bytes": kind.integers([each.shared_memory_bytes for each in args]),
        "occupancy_frac": _first(_floats(shares), _floats(old_shares)) / 100,
        "correlation": kind.integers([each.correlation for each in args]),
        "graph_node_id": nodes.set(nodes == 0, None),
        "external_id": _first(kind.integers(external_ids), kind.integers(old_external_ids)),
        "args_json": rests,
    }


def _named(found: Rows, kind: str) -> Iterator[str]:
    """Yield the kind of each row of device work: what its name says where its category leaves that open.

    A row that is no work has its category for a kind.
    """
    place = 0
    for category, count in found.categories_of.get(kind, ()):
        names = knowledge()["named"].get(category.lower())
        if names is None:
            yield from repeat(kind, count)
        else:
            said = (names.get(row.name, kind) for row in found.rows[kind][place : place + count])
            yield from (category.lower() if one == "other" else one for one in said)
        place += count


def _idle(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of the device that are no work as those of other_event, where they were among the args."""
    keys = [pl.format('"{}":{}', pl.lit(name), pl.col(name)) for name in ("correlation", "stream")]
    rest = pl.when(pl.col("args_json").str.len_bytes() > 2).then(pl.col("args_json").str.slice(1).str.head(-1))
    args = "{" + pl.concat_str(*keys, rest, separator=",", ignore_nulls=True) + "}"
    return rows.with_columns(args.alias("args_json"), category=pl.col("kind"), phase_letter=pl.lit("X"))


def _first_int(*values: float | str | None) -> int | None:
    """Return the first value that is an integer or ends in one, as `stream 7` does."""
    for value in values:
        if isinstance(value, int):
            return value
        if isinstance(value, str) and (found := _LAST_INTEGER.fullmatch(value)):
            return int(found[1])
    return None


def _memory(kind: _Kind) -> dict[str, pl.Series]:
    rows = kind.rows("memory")
    args = [row.args for row in rows]
    devices = [(each.device_type, each.device_id) for each in args]
    names = {device: _device_name(*device) for device in set(devices)}
    return {
        "ts_ns": kind.starts(rows),
        "pid": _identities([row.pid for row in rows]),
        "tid": _identities([row.tid for row in rows]),
        "device": pl.Series([names[device] for device in devices], dtype=pl.String),
        "address": kind.integers([each.address for each in args]),
        "bytes": kind.integers([each.bytes for each in args]),
        "allocated_bytes": kind.integers([each.allocated_bytes for each in args]),
        "reserved_bytes": kind.integers([each.reserved_bytes for each in args]),
        "args_json": kind.rests("memory"),
    }


def _device_name(device_type: int | None, number: int | None) -> str:
    name: str = knowledge()["device_types"].get(str(device_type), f"type{device_type}")
    return name if number is None or number < 0 else f"{name}:{number}"


def _other(kind: _Kind) -> dict[str, pl.Series]:
    rows = kind.found.other
    return kind.head(rows, may_lack=True) | {
        "category": pl.Series([row.category for row in rows], dtype=pl.String),
        "phase_letter": pl.Series([row.ph for row in rows], dtype=pl.String),
        "args_json": pl.Series([row.args_json for row in rows], dtype=pl.String),
    }


def _arrows(found: Rows) -> pl.DataFrame:
    rows = [row for row in found.arrows if row.ph != "t"]
    columns = {name: _identities(list(map(attrgetter(name), rows))) for name in ("id", "pid", "tid")}
    starts = nanoseconds(list(map(attrgetter("ts"), rows)))
    ends = pl.Series([row.ph == "f" for row in rows], dtype=pl.Boolean)
    return pl.DataFrame({**columns, "ts_ns": starts, "is_end": ends}, schema=shape.ARROW)


def _finished(kind: _Kind, make: Callable[[_Kind], dict[str, pl.Series]], schema: dict[str, Any]) -> pl.DataFrame:
    """Make a frame; leave out rows whose start is no time, set durations that can't be time to 0, and count both."""
    frame = pl.DataFrame(make(kind), schema=schema)
    if "phase_letter" in schema:
        return frame

    def count(check: str, cases: int) -> None:
        if cases:
            kind.findings[check].add(cases)

    if lost := frame["ts_ns"].null_count():
        count("time_beyond_int64", lost)
        frame = frame.filter(pl.col("ts_ns").is_not_null())
    if "dur_ns" not in schema:
        return frame
    durations = frame["dur_ns"]
    if not durations.null_count() and (not len(durations) or _are_plausible(durations)):
        return frame
    count("negative_duration", int((frame["dur_ns"] < 0).sum()))
    count("missing_duration", frame["dur_ns"].null_count())
    durations = durations.fill_null(0).clip(lower_bound=0)
    is_absurd = durations > _LONGEST_NS
    count("absurd_duration", int(is_absurd.sum()))
    return frame.with_columns(durations.set(is_absurd, 0))


def _are_plausible(durations: pl.Series) -> bool:
    values = durations.to_numpy()
    return bool(values.min() >= 0 and values.max() <= _LONGEST_NS)
