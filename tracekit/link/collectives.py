"""Collectives: which op asked for each, which device work did it, and what it moved.

Owns the pairing of communication ops with their kernels. One collective leaves up to four rows in a trace (an op
`c10d::*`, the profiler's `record_param_comms` with its metadata, an annotation `nccl:*`, and kernels); here it is one.
It compares no ranks: that is `clocks`, and the questions.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from tracekit.element_types import sizes, spellings

if TYPE_CHECKING:
    from collections.abc import Sequence

COLLECTIVE = {
    "collective_id": pl.Int64,
    "op_id": pl.Int64,
    "name": pl.String,
    "source": pl.String,
    "group_name": pl.String,
    "group_description": pl.String,
    "group_size": pl.Int64,
    "group_ranks": pl.String,
    "sequence_number": pl.Int64,
    "src_rank": pl.Int64,
    "dst_rank": pl.Int64,
    "is_async": pl.Boolean,
    "in_elements": pl.Int64,
    "out_elements": pl.Int64,
    "dtype": pl.String,
    "bytes": pl.Int64,
    "bus_factor": pl.Float64,
    "kernel_id": pl.Int64,
    "kernels": pl.Int64,
    "step_id": pl.Int64,
    "phase": pl.String,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
}
"""Columns of the table; `schema.sql` says what they mean."""

_SAID = {
    "said": ("Collective name", pl.String),
    "dtype": ("dtype", pl.String),
    "in_elements": ("In msg nelems", pl.Int64),
    "out_elements": ("Out msg nelems", pl.Int64),
    "group_size": ("Group size", pl.Int64),
    "group_name": ("Process Group Name", pl.String),
    "group_id": ("Process Group ID", pl.Int64),  # before kineto #906 a number took the place of the name
    "group_description": ("Process Group Description", pl.String),
    "group_ranks": ("Process Group Ranks", pl.String),
    "sequence_number": ("Seq", pl.Int64),
    "src_rank": ("Src Rank", pl.Int64),
    "dst_rank": ("Dst Rank", pl.Int64),
    "is_async": ("Is asynchronized op", pl.Boolean),
}
_PYTHON: dict[Any, type] = {pl.String: str, pl.Int64: int, pl.Boolean: bool}
_MOST = 2**56  # elements times the widest type stay within 64 bits

_Said = msgspec.defstruct(
    "_Said", [(name, Any, None) for name in _SAID], rename={name: key for name, (key, _) in _SAID.items()}, gc=False
)


@cache
def knowledge() -> dict[str, Any]:
    """Return `collectives.toml`: names of collectives, of rows and kernels that are theirs."""
    return tomllib.loads(files("tracekit.link").joinpath("collectives.toml").read_text(encoding="utf-8"))


@cache
def name_of(text: str) -> str | None:
    """Return the collective that an op, annotation or kernel name speaks of, such as all_reduce, or None."""
    text = text.lower()
    return next((row["name"] for row in knowledge()["collective"] if re.search(row["pattern"], text)), None)


def collectives(ops: pl.DataFrame, launches: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return one trace's collectives, numbered from 0 in order of start, in the columns of `COLLECTIVE`.

    A collective is an op with what it launched, or device work that no op asked for (launched before the recording
    began, or replayed from a graph). Its times are the device work's, from the first kernel's start to the last one's
    end, else the op's. `bytes` is null where elements or their type are not known.
    """
    ops = ops.with_row_index("row")
    work = _device_work(kernels, launches, ops)
    candidates = _candidates(ops)
    if not work.height and not candidates.height:
        return pl.DataFrame(schema=COLLECTIVE)
    pairs = _above(pl.concat([candidates["row"], work["row"].drop_nulls().unique()]).unique(), ops, candidates)
    chosen = _chosen(candidates, pairs, work)
    work = _asked_for(work, pairs, chosen)
    rows = _with_ops(_grouped(work), chosen, pairs, candidates)
    rows = _with_meaning(rows)
    order = ["start_ns", "op_id", "kernel_id"]
    numbered = rows.sort(order, nulls_last=True, maintain_order=True).with_row_index("collective_id")
    return numbered.select(pl.col(name).cast(kind) for name, kind in COLLECTIVE.items())


def _device_work(kernels: pl.DataFrame, launches: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels that communicate, with their op's row and the place and time of their launch."""
    names = [name for name in kernels["name"].unique() if _communicates(name)]
    says = pl.col("args_json").str.contains('"Collective name"', literal=True).fill_null(value=False)
    work = kernels.filter(pl.col("name").is_in(names) | says).select(
        "kernel_id", "name", "start_ns", "dur_ns", "op_id", "launch_id", "step_id", "phase", "args_json"
    )
    calls = launches.select("launch_id", "pid", "tid", launched_ns="start_ns")
    work = work.join(calls, on="launch_id", how="left", maintain_order="left")
    return work.join(ops.select("op_id", "row"), on="op_id", how="left", maintain_order="left")


@cache
def _communicates(kernel: str) -> bool:
    """Tell whether a kernel communicates, by its name."""
    name = kernel.lower()
    return any(re.search(row["pattern"], name) for row in knowledge()["kernel"])


def _candidates(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the ops that may stand for a collective: what kind of row each is, and what its name and args say."""
    kinds = knowledge()["rows"]
    source = pl.coalesce(
        pl.when(pl.col("name").str.contains(f"^(?:{pattern})$")).then(pl.lit(kind)) for kind, pattern in kinds.items()
    )
    named = ops.select(pl.col("name").unique()).with_columns(source=source).drop_nulls("source")
    found = ops.join(named, on="name", how="inner", maintain_order="left")
    records = found.filter(pl.col("source") == "record")
    others = found.filter(pl.col("source") != "record")
    found = pl.concat([records.with_columns(_said(records["args_json"])), others], how="diagonal").sort("row")
    names = [name_of(name) for name in found["name"]]
    found = found.with_columns(pl.Series("named", names, pl.String))
    is_other = pl.col("said").is_in(knowledge()["not_collective"]["names"]).fill_null(value=False)
    is_nothing = (pl.col("source") != "record") & pl.col("named").is_null()
    return found.filter(~is_other & ~is_nothing)


def _above(rows: pl.Series, ops: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """Return for each row the candidates it lies in, itself included: `row`, `above` and what kind `above` is."""
    parents = ops.select(op_id="parent_id").join(
        ops.select("op_id", "row"), on="op_id", how="left", maintain_order="left"
    )["row"]
    kinds = candidates.select(above="row", source="source")
    climbing = pl.DataFrame({"row": rows, "above": rows})
    found = [climbing.join(kinds, on="above")]
    while climbing.height:
        climbing = climbing.with_columns(parents.gather(climbing["above"]).alias("above")).drop_nulls()
        found.append(climbing.join(kinds, on="above"))
    return pl.concat(found)


def _chosen(candidates: pl.DataFrame, pairs: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Return the candidates that stand for a collective: the outermost record with metadata, else op, else annotation.

    An op is left out too where a backend's worker thread annotates the same collective (gloo): it can't be told which.
    """
    nested = pairs.filter(pl.col("row") != pl.col("above")).join(
        candidates.select("row", inner="source"), on="row", how="inner"
    )
    working = pairs.filter(pl.col("row").is_in(work["row"].drop_nulls().implode()))["above"].unique()

    def around(inner: str) -> pl.Series:
        return nested.filter(pl.col("inner") == inner)["above"].unique()

    def inside(outer: pl.Series) -> pl.Series:
        return nested.filter(pl.col("above").is_in(outer.implode()))["row"].unique()

    annotated = around("annotation")
    speaks = pl.col("said").is_not_null() | _in(annotated) | _in(working)
    records = candidates.filter((pl.col("source") == "record") & speaks)
    records = records.filter(~_in(inside(records["row"])))
    holding = nested.filter(pl.col("row").is_in(records["row"].implode()))["above"].unique()
    taken = pl.concat([holding, inside(records["row"])])
    calls = candidates.filter((pl.col("source") == "op") & ~_in(taken))
    calls = calls.filter(~_in(inside(calls["row"])))
    notes = candidates.filter((pl.col("source") == "annotation") & ~_in(taken) & ~_in(inside(calls["row"])))
    notes = notes.filter(~_in(inside(notes["row"])))
    is_silent = ~_in(annotated) & ~_in(working)
    calls = calls.filter(~(is_silent & pl.col("named").is_in(notes["named"].implode())))
    return pl.concat([records, calls, notes])


def _in(rows: pl.Series) -> pl.Expr:
    return pl.col("row").is_in(rows.implode())


def _asked_for(work: pl.DataFrame, pairs: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """Add to device work the row of the op that stands for its collective, as `asked`; null where there is none."""
    by_op = pairs.filter(pl.col("above").is_in(chosen["row"].implode())).unique(
        "row", keep="first", maintain_order=True
    )
    work = work.join(by_op.select("row", asked="above"), on="row", how="left", maintain_order="left")
    notes = chosen.filter(pl.col("source") == "annotation").select(
        "pid", "tid", launched_ns="start_ns", note="row", note_end=pl.col("start_ns") + pl.col("dur_ns")
    )
    free = work.filter(pl.col("asked").is_null() & pl.col("launched_ns").is_not_null()).sort("launched_ns")
    timed = free.join_asof(
        notes.sort("launched_ns"), on="launched_ns", by=["pid", "tid"], strategy="backward", check_sortedness=False
    ).filter(pl.col("launched_ns") < pl.col("note_end"))
    work = work.join(timed.select("kernel_id", "note"), on="kernel_id", how="left", maintain_order="left")
    return work.with_columns(pl.coalesce("asked", "note").alias("asked")).drop("note")


def _grouped(work: pl.DataFrame) -> pl.DataFrame:
    """Return one row for the device work of each op, and one for each kernel that none asked for."""
    own = pl.when(pl.col("asked").is_null()).then(pl.col("kernel_id"))
    work = work.with_columns(_said(work["args_json"])).sort("start_ns", "kernel_id")
    return work.group_by("asked", own.alias("own"), maintain_order=True).agg(
        pl.col("kernel_id", "name", "step_id", "phase").first(),
        pl.col("op_id").first().alias("kernel_op"),
        *(pl.col(name).drop_nulls().first() for name in _SAID),
        pl.len().alias("kernels"),
        pl.col("start_ns").min(),
        ((pl.col("start_ns") + pl.col("dur_ns")).max() - pl.col("start_ns").min()).alias("dur_ns"),
    )


def _with_ops(work: pl.DataFrame, chosen: pl.DataFrame, pairs: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """Join ops to their device work, either of which may be missing, and let what the op says go first."""
    notes = pairs.join(candidates.filter(pl.col("source") == "annotation"), on="row", how="semi")
    notes = notes.filter(pl.col("above").is_in(chosen["row"].implode())).sort("row").unique("above", keep="first")
    noted = candidates.select("row", note_name="named", note_dims="input_dims", note_types="input_types")
    notes = notes.select("row", asked="above").join(noted, on="row").drop("row")
    asked = chosen.rename({"row": "asked", "name": "op_name"}).join(notes, on="asked", how="left")
    both = asked.join(work, on="asked", how="full", coalesce=True, suffix="_work")
    shared = [*_SAID, "step_id", "phase", "start_ns", "dur_ns"]
    first_work = ("step_id", "phase", "start_ns", "dur_ns")
    merged = [
        pl.coalesce(f"{name}_work", name) if name in first_work else pl.coalesce(name, f"{name}_work")
        for name in shared
    ]
    return both.with_columns(
        *(expr.alias(name) for expr, name in zip(merged, shared, strict=True)),
        pl.coalesce("op_id", "kernel_op").alias("op_id"),
        pl.col("source").fill_null("kernel"),
        pl.col("kernels").fill_null(0),
    )


def _with_meaning(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the collective's name, its element type and the bytes of its message; fill sizes from shapes."""
    names = [_name(*row) for row in rows.select("said", "note_name", "op_name", "name").iter_rows()]
    rows = rows.with_columns(pl.Series("name", names, pl.String))
    rows = _with_shapes(rows)
    received = [row["name"] for row in knowledge()["collective"] if row["message"] == "out"]
    gathered = pl.when(pl.col("name") == "all_gather").then(pl.col("in_elements") * pl.col("group_size"))
    message = (
        pl.when(pl.col("name").is_in(received))
        .then(pl.coalesce("out_elements", gathered))
        .when(pl.col("name").is_not_null())
        .then(pl.coalesce("in_elements", "out_elements"))
    )
    is_credible = message.is_between(0, _MOST)
    rows = rows.with_columns(
        dtype=pl.col("dtype").replace(spellings()),
        group_name=pl.coalesce("group_name", pl.col("group_id").cast(pl.String)),
    )
    size = pl.col("dtype").replace_strict(sizes(), default=None, return_dtype=pl.Int64)
    return rows.with_columns(bytes=pl.when(is_credible).then(message * size), bus_factor=_bus_factor())


def _bus_factor() -> pl.Expr:
    """Return what algorithm bandwidth is multiplied by to get bus bandwidth; null where that is not known."""
    rows = knowledge()["collective"]
    kinds = ("bus_whole", "bus_others")
    known = [{row["name"]: float(row[kind]) for row in rows if kind in row} for kind in kinds]
    whole, others = (pl.col("name").replace_strict(each, default=None, return_dtype=pl.Float64) for each in known)
    size = pl.when(pl.col("group_size") > 0).then(pl.col("group_size"))
    return pl.coalesce(whole, others * (size - 1) / size)


def _name(said: str | None, noted: str | None, op: str | None, kernel: str | None) -> str | None:
    """Return the collective by the first of its rows that tells; a kernel last, since several collectives share some.

    A name in the metadata that is not known is kept as it is.
    """
    if said:
        return name_of(said) or said
    return noted or name_of(op or "") or name_of(kernel or "")


def _with_shapes(rows: pl.DataFrame) -> pl.DataFrame:
    """Fill sizes that no metadata gives from shapes: those of the annotation, which lists what is given.

    An op lists its arguments in its own order; only where what is given is what is received does the first one tell.
    """
    is_alike = pl.col("name").is_in(["all_reduce", "broadcast"])
    is_bare = pl.col("in_elements").is_null()
    own = pl.when(is_alike & (pl.col("source") == "op"))
    rows = rows.with_columns(
        shapes=pl.when(is_bare).then(pl.coalesce("note_dims", own.then(pl.col("input_dims")))),
        types=pl.when(is_bare).then(pl.coalesce("note_types", own.then(pl.col("input_types")))),
    )
    elements = pl.Series("shaped", [_elements(text) for text in rows["shapes"]], pl.Int64)
    dtypes = pl.Series("typed", [_first_type(text) for text in rows["types"]], pl.String)
    rows = rows.with_columns(elements, dtypes)
    return rows.with_columns(
        in_elements=pl.coalesce("in_elements", "shaped"),
        out_elements=pl.coalesce("out_elements", pl.when(is_alike).then(pl.col("shaped"))),
        dtype=pl.coalesce("dtype", "typed"),
    )


def _elements(dims: str | None) -> int | None:
    """Return the elements of the first input, a tensor or a list of tensors, by the JSON of all shapes."""
    try:
        first = msgspec.json.decode(dims, type=list)[0] if dims else None
    except (msgspec.DecodeError, IndexError, RecursionError):
        return None
    if not isinstance(first, list) or not first:
        return None
    shapes = first if all(isinstance(one, list) for one in first) else [first]
    if not all(type(length) is int for shape in shapes for length in shape):
        return None
    total = sum(prod(shape) for shape in shapes)
    return total if 0 <= total < _MOST else None


def _first_type(types: str | None) -> str | None:
    """Return the type of the first input where it is a tensor's."""
    try:
        first = msgspec.json.decode(types, type=list[str])[0] if types else None
    except (msgspec.DecodeError, IndexError):
        return None
    return first if first and first not in {"TensorList", "Scalar", "ScalarList"} else None


def _said(texts: pl.Series) -> list[pl.Series]:
    """Return the metadata of collectives in args, a series for each field, null where it is missing or mistyped."""
    rows = _decoded(texts.fill_null("{}").to_list())
    return [_column(name, kind, [getattr(row, name) for row in rows]) for name, (_, kind) in _SAID.items()]


def _decoded(texts: Sequence[str]) -> list[Any]:
    """Decode many JSON objects in one pass; one by one, broken ones as empty, only where that fails."""
    try:
        return msgspec.json.decode(f"[{','.join(texts)}]", type=list[_Said])  # type: ignore[valid-type]
    except msgspec.DecodeError:
        return [_decoded_one(text) for text in texts]


def _decoded_one(text: str) -> Any:
    try:
        return msgspec.json.decode(text, type=_Said)
    except msgspec.DecodeError:
        return _Said()


def _column(name: str, kind: Any, values: Sequence[Any]) -> pl.Series:
    wanted = _PYTHON[kind]
    kept: list[Any] = [value if type(value) is wanted and value != "" else None for value in values]
    if kind == pl.Int64:
        kept = [value if value is not None and -1 <= value < _MOST else None for value in kept]
    return pl.Series(name, kept, kind)
