"""One part of a large trace: its rows taken from the pieces, linked, given meaning and written.

Owns what is done in a worker for a window of time. Ids of the whole run are made of those of the part here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.attention.calls.batches import calls_with_padding
from tracekit.attention.devices.products import wrappers
from tracekit.attention.knowledge import family_of, meaning_of, place_of_function, place_of_module
from tracekit.attention.tables import part_tables, with_trace_id
from tracekit.ingest import TABLES, Frames
from tracekit.link import Around, Survey, Tally, link_part
from tracekit.loading.frames import set_down

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tracekit.loading.outline import Place

    Times = NDArray[np.int64]

COUNTED = {"op": "op_id", "frame": "frame_id", "launch": "launch_id", "kernel": "kernel_id", "sample": "sample_id"}
"""What has an id that is counted part by part, and the id's name."""
_REFERENCES = {
    "op_id": "op",
    "parent_id": "own",  # an op's is an op, a frame's a frame
    "forward_op_id": "op",
    "frame_id": "frame",
    "launch_id": "launch",
    "kernel_id": "kernel",
    "sample_id": "sample",
    "collective_id": "collective",
    "call_id": "call",
}
_TIMES = ("ts_ns", "dur_ns")
_SPANNING = ("ops", "frames")
_TIMED = ("ops", "frames", "runtime", "memory", "other")


@dataclass(frozen=True)
class Split:
    """How the rows of one piece fall into parts: counts by kind and part, and the ops and frames that span a cut."""

    counts: Mapping[str, Times]
    ops: pl.DataFrame
    frames: pl.DataFrame


@dataclass(frozen=True)
class Job:
    """What a worker is told of a part: its window, where its rows are, what is around it, and its first ids.

    `device` holds for each piece the numbers of the rows of device work that were launched in the window, `early` the
    correlations of calls in it whose work belongs to a later call.
    """

    folder: Path
    number: int
    trace_id: int
    window: range
    pieces: Sequence[Place]
    device: Mapping[int, Times]
    early: Times
    survey: Survey
    around: Around
    first_ids: Mapping[str, int]
    modules: Mapping[str, int]


@dataclass(frozen=True)
class Report:
    """What a worker tells of a part: its tables' files, and what is put together for the whole trace.

    `samples` are those of memory, `work` is what the waits of devices are counted from, both as IPC.
    `spanning` says of each op around the part (`known_id`) its self time within and, if it begins there, its frame
    and its module; `wrappers` are the known ids of those that compute a product by an op in the part.
    """

    tables: Mapping[str, Path]
    samples: Path | None
    work: Path | None
    heights: Mapping[str, int]
    tally: Tally
    working_steps: set[int]
    spanning: pl.DataFrame
    wrappers: pl.Series
    modules: pl.DataFrame
    calls: pl.DataFrame
    has_shapes: bool


def split(piece: Place, cuts: Times) -> Split:
    """Count the rows of a piece by part, and find the ops and frames that are open at a cut."""
    counts, spanning = {}, {}
    for kind in _TIMED:
        if not piece.heights[kind]:
            continue
        may_span = kind in _SPANNING
        first, last = np.searchsorted(cuts, _reach(piece, kind), side="right").tolist()
        if first == last:  # as most are, so that there is nothing to look at
            counts[kind] = np.zeros(len(cuts) + 1, dtype=np.int64)
            counts[kind][first] = piece.heights[kind]
            continue
        part, spans = _placed(piece.read(kind, _TIMES if may_span else _TIMES[:1]), cuts, may_span=may_span)
        counts[kind] = np.bincount(part[~spans], minlength=len(cuts) + 1)
        if spans.any():
            spanning[kind] = _alone(piece.read(kind).filter(pl.Series(spans)))
    return Split(
        counts,
        spanning.get("ops", pl.DataFrame(schema=TABLES["ops"])),
        spanning.get("frames", pl.DataFrame(schema=TABLES["frames"])),
    )


def _alone(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a copy of a few rows; as a filter gives them they keep all the text of their piece."""
    return pl.DataFrame(rows.rows(), schema=rows.schema, orient="row")


def _reach(piece: Place, kind: str) -> tuple[int, int]:
    """Return the first start of a piece's rows and the last end or, of rows that belong where they start, start."""
    first, last = piece.extents[kind]
    return first, max(last, piece.ends[kind]) if kind in _SPANNING else last


def _placed(rows: pl.DataFrame, cuts: Times, *, may_span: bool) -> tuple[Times, NDArray[np.bool_]]:
    starts = rows["ts_ns"].fill_null(-(2**63)).to_numpy()
    part = np.searchsorted(cuts, starts, side="right")
    if not may_span:
        return part, np.zeros(len(starts), dtype=bool)
    ends = starts + rows["dur_ns"].to_numpy()
    return part, np.searchsorted(cuts, ends, side="left") > part


def get_ready() -> None:
    """Read what names mean, which the first part would wait for."""
    for meaning in (family_of, meaning_of, place_of_module, place_of_function):
        meaning("")


def link_and_write(job: Job) -> Report:
    """Link one part, give its rows their meaning and write its tables to the job's folder."""
    linked = link_part(_frames(job), job.survey, job.around, pl.Series(job.early))
    tables = part_tables(linked)
    _keep_own_calls(tables, job.window.start - job.survey.origin_ns)
    ids = _Ids(job, tables["op"], tables["frame"], linked.modules)
    around = tables["op"].filter(pl.col("known_id").is_not_null())
    begins = (pl.col("start_ns") >= job.window.start - job.survey.origin_ns).alias("begins")
    spanning = ids.renamed("op", around.select("known_id", "self_ns", "frame_id", "module_id", begins))
    calls = ids.renamed("op", calls_with_padding(linked.ops))
    samples = _put_aside(job, "samples", ids.renamed("sample", tables.pop("memory_sample")))
    work = _put_aside(job, "work", ids.renamed("kernel", tables.pop("device_wait")))
    own = {name: ids.renamed(name, _own(frame)) for name, frame in tables.items()}
    written = {}
    for name, frame in own.items():
        if frame.height or not job.number:
            written[name] = job.folder / f"{job.number:06}.{name}.parquet"
            set_down(with_trace_id(frame, job.trace_id), written[name])
    return Report(
        written,
        samples,
        work,
        {name: frame.height for name, frame in own.items()},
        linked.tally,
        linked.working_steps,
        spanning,
        wrappers(linked.ops)["known_id"].drop_nulls() if around.height else pl.Series(dtype=pl.Int64),
        linked.modules,
        calls,
        bool(own["op"]["input_dims"].is_not_null().any()),
    )


def _put_aside(job: Job, name: str, rows: pl.DataFrame) -> Path | None:
    """Write rows that are for all parts together, and return where; of none, if another part says what columns."""
    if not rows.height and job.number:
        return None
    where = job.folder / f"{job.number:06}.{name}.arrow"
    rows.write_ipc(where, compression="lz4")
    return where


def _keep_own_calls(tables: dict[str, pl.DataFrame], start_ns: int) -> None:
    """Leave out the attention calls of ops that began before the part, which are another part's."""
    calls, kernels = tables["attention_call"], tables["kernel"]
    kept = calls.filter((pl.col("start_ns") >= start_ns) | pl.col("op_id").is_null())
    if kept.height < calls.height:
        known = pl.col("call_id").is_in(kept["call_id"].to_list())
        tables["kernel"] = kernels.with_columns(call_id=pl.when(known).then("call_id"))
        tables["attention_call"] = kept


def _own(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("known_id").is_null()).drop("known_id") if "known_id" in frame.columns else frame


class _Ids:
    """From ids of the part to those of the run."""

    def __init__(self, job: Job, ops: pl.DataFrame, frames: pl.DataFrame, modules: pl.DataFrame) -> None:
        self._first = job.first_ids
        self._tables = {
            "op": _whole_ids(ops["known_id"], job.first_ids["op"]),
            "frame": _whole_ids(frames["known_id"], job.first_ids["frame"]),
            "module": pl.Series([job.modules[label] for label in modules["label"].to_list()], dtype=pl.Int64),
        }

    def renamed(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        made = []
        for name in frame.columns:
            if name == "module_id":
                made.append(self._mapped(name, "module"))
            elif name in _REFERENCES:
                made.append(self._mapped(name, table if _REFERENCES[name] == "own" else _REFERENCES[name]))
        return frame.with_columns(made)

    def _mapped(self, name: str, what: str) -> pl.Expr:
        if what in self._tables:
            return pl.lit(self._tables[what]).gather(pl.col(name)).alias(name)
        return pl.col(name) + self._first[what]


def _whole_ids(known: pl.Series, first: int) -> pl.Series:
    """Return the run's id of each row of a part: the one it is known by, else the next that is free."""
    is_own = known.is_null()
    return known.zip_with(~is_own, is_own.cast(pl.Int64).cum_sum() + (first - 1))


def _frames(job: Job) -> Frames:
    frames = {name: [pl.DataFrame(schema=schema)] for name, schema in TABLES.items()}
    for piece in job.pieces:
        for kind in (*_TIMED, "arrows"):
            if not (extent := piece.extents.get(kind)) or extent[0] >= job.window.stop or extent[1] < job.window.start:
                continue
            rows = piece.read(kind)
            start = pl.col("ts_ns").fill_null(-(2**63))
            inside = (start >= job.window.start) & (start < job.window.stop)
            if kind in _SPANNING:
                inside &= start + pl.col("dur_ns") <= job.window.stop
            frames[kind].append(rows.filter(inside))
        if piece.number in job.device:
            frames["device"].append(piece.read("device")[job.device[piece.number]])
    return Frames(**{name: pl.concat(parts) for name, parts in frames.items()})
