"""One trace, from its file to the files of its tables.

Owns the choice between reading a trace at once and in pieces, and what both have in common: the same tables, whose
ids go on from those of the traces before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tracekit.attention.facts import Facts
from tracekit.attention.tables import give_meaning
from tracekit.errors import TracekitError
from tracekit.ingest import (
    PIECE_BYTES,
    Counts,
    Cutter,
    Piece,
    Recording,
    Stream,
    assembled,
    decoded,
    finish,
    opened,
    problems,
    recording,
)
from tracekit.link import link
from tracekit.loading.closing import TABLE_OF, Closing, TraceFiles
from tracekit.loading.frames import set_down as set_table_down
from tracekit.loading.large import link_parts
from tracekit.loading.outline import Outline, set_down
from tracekit.loading.part import COUNTED, get_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.loading.crew import Crew
    from tracekit.loading.settings import Settings

REFUSED = frozenset(
    {"absurd_duration", "cut_off", "damaged_file", "event_without_time", "lost_event", "lost_key", "missing_duration",
     "negative_duration", "repaired_event", "time_beyond_int64", "unreadable_event"}
)  # fmt: skip
"""What a strict reader does not put up with."""
_READING = 0.6
"""About what share of the time for a large trace goes into reading it."""
IDS = {"op": "op_id", "frame": "frame_id", "module": "module_id", "launch": "launch_id", "kernel": "kernel_id",
        "memory_sample": "sample_id", "allocation": "allocation_id", "step": "step_id",
        "collective": "collective_id", "attention_call": "call_id", "workload": "workload_id"}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A trace to load: its file, or its bytes as they lie on disk, its name, and the facts recorded beside it.

    `file_name` is that of bytes which had a file of their own.
    """

    content: Path | bytes
    name: str
    facts: Facts = field(default_factory=Facts)
    file_name: str = ""


def load_trace(
    source: Source, trace_id: int, ids: Mapping[str, int], folder: Path, crew: Crew, settings: Settings
) -> TraceFiles:
    """Load one trace and write its tables to `folder`. Raises TracekitError if it is none, or is not fit to load."""
    with opened(source.content, source.name, trust_archive=settings.trust_archive) as stream:
        cutter = Cutter(_told(stream, settings), source.name)
        pieces = cutter.pieces()
        first, size = [], 0
        is_large = stream.is_plain and stream.size > settings.whole_bytes
        while not is_large and (piece := next(pieces, None)) is not None:
            first.append(piece)
            size += len(piece.text)
            is_large = size > settings.whole_bytes
        if not is_large:
            return _at_once(source, cutter, stream, first, trace_id, ids, folder, settings)
        where = source.content if stream.is_plain and isinstance(source.content, Path) else None
        jobs = ((folder, number, _told_of(piece, where)) for number, piece in enumerate(chain(first, pieces)))
        outlines = list(crew.each(partial(set_down, is_strict=settings.is_strict), jobs))
        crew.meanwhile(get_ready)
    return _in_parts(source, cutter, stream, outlines, trace_id, ids, folder, crew, settings)


def _told(stream: Stream, settings: Settings) -> Iterator[bytes]:
    for block in stream.blocks(PIECE_BYTES):
        yield block
        settings.progress(stream.name, _READING * min(1.0, stream.progress))


def _told_of(piece: Piece, where: Path | None) -> Piece | tuple[Path, int, int]:
    """Return a piece, or where a worker finds it itself, which costs less than to hand it over."""
    return piece if where is None else (where, piece.start, len(piece.text))


def _checked(cutter: Cutter, stream: Stream, counts: Counts, settings: Settings) -> tuple[Counts, Recording]:
    """Return what was counted in the whole file, and what it says of itself; refuse what is to be refused."""
    if stream.damage and settings.is_strict:
        raise TracekitError(f"{stream.name}: {stream.damage}", "get the file again, or load it without --strict")
    if stream.damage:
        cutter.say_damaged(stream.damage, stream.text_bytes)
    found = finish(cutter, counts, stream.name)
    said = recording(cutter, found, Path(stream.name).name, stream.sha256)
    if settings.is_strict:
        for problem in problems(found):
            if problem.check_name in REFUSED:
                at = "" if problem.first_offset is None else f" (first at byte {problem.first_offset:,})"
                raise TracekitError(f"{stream.name}: {problem.message.rstrip('.')}{at}", "load it without --strict")
    return found, said


def _at_once(
    source: Source,
    cutter: Cutter,
    stream: Stream,
    pieces: list[Piece],
    trace_id: int,
    ids: Mapping[str, int],
    folder: Path,
    settings: Settings,
) -> TraceFiles:
    parts = [decoded(piece, is_strict=settings.is_strict) for piece in pieces]
    found, said = _checked(cutter, stream, sum((part.counts for part in parts), Counts()), settings)
    linked = link(assembled(parts, said, problems(found)))
    tables = give_meaning(linked, source.facts, trace_id)
    files = {}
    for name, frame in tables.items():
        if name in {"trace", "quality"}:
            continue
        path = folder / f"{name}.parquet"
        set_table_down(_shifted(frame, ids), path)
        files[name] = [path]
    following = {name: ids[name] + tables[name].height for name in IDS if name in tables}
    settings.progress(stream.name, 1.0)
    return TraceFiles(folder, files, tables["trace"], tables["quality"], tables["kernel"].height, {**ids, **following})


def _shifted(frame: pl.DataFrame, ids: Mapping[str, int]) -> pl.DataFrame:
    """Return a table with ids of the run instead of those of the trace."""
    own = {id_name: table for table, id_name in IDS.items()}
    for name in ("forward_op_id", "free_op_id"):
        own[name] = "op"
    own["before_id"] = "kernel"
    for name in ("start_sample_id", "end_sample_id"):
        own[name] = "memory_sample"
    if "parent_id" in frame.columns:
        own["parent_id"] = next(table for table in ("op", "frame", "module") if IDS[table] == frame.columns[0])
    return frame.with_columns(
        pl.col(name) + ids[own[name]] for name in frame.columns if name in own and ids[own[name]]
    )  # fmt: skip


def _in_parts(
    source: Source,
    cutter: Cutter,
    stream: Stream,
    outlines: list[Outline],
    trace_id: int,
    ids: Mapping[str, int],
    folder: Path,
    crew: Crew,
    settings: Settings,
) -> TraceFiles:
    found, said = _checked(cutter, stream, sum((one.counts for one in outlines), Counts()), settings)

    def done(share: float) -> None:
        settings.progress(stream.name, _READING + (1 - _READING) * share)

    first = {name: ids[TABLE_OF.get(name, name)] for name in (*COUNTED, "module", "step", "call")}
    closing = Closing(source.facts, trace_id, ids, folder)
    linking = link_parts(outlines, folder, said, trace_id, first, crew, settings.part_rows, closing.take, done)
    return closing.files(linking, said, problems(found))
