"""One trace, from its file to the files of its tables.

Owns the choice between reading a trace at once and in pieces, and what both have in common: the same tables, whose
ids go on from those of the traces before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tracekit.attention import tables as meaning
from tracekit.attention.calls.batches import batches
from tracekit.attention.calls.table import with_lengths
from tracekit.attention.facts import Facts
from tracekit.attention.tables import give_meaning
from tracekit.errors import TracekitError
from tracekit.ingest import (
    PIECE_BYTES,
    Counts,
    Cutter,
    Piece,
    Problem,
    Recording,
    Stream,
    assembled,
    decoded,
    finish,
    opened,
    problems,
    recording,
)
from tracekit.link import finish_steps, lifetimes, link, noticed, odd_lifetimes
from tracekit.loading.frames import set_down as set_table_down
from tracekit.loading.frames import taken_up
from tracekit.loading.large import Linking, link_parts
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

_TABLES = {"sample": "memory_sample", "call": "attention_call"}
"""The tables of what parts count under another name."""


@dataclass(frozen=True)
class Source:
    """A trace to load: its file, or its bytes as they lie on disk, its name, and the facts recorded beside it.

    `file_name` is that of bytes which had a file of their own.
    """

    content: Path | bytes
    name: str
    facts: Facts = field(default_factory=Facts)
    file_name: str = ""


@dataclass
class TraceFiles:
    """A loaded trace: the files of its tables, by table and in order, and the next free id of each kind.

    Its own row and what was noticed about it are still to be written, since other traces may have a say in them.
    """

    folder: Path
    tables: dict[str, list[Path]]
    row: pl.DataFrame
    quality: pl.DataFrame
    kernels: int
    ids: dict[str, int]


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

    first = {name: ids[_TABLES.get(name, name)] for name in (*COUNTED, "module", "step", "call")}
    linking = link_parts(outlines, folder, said, trace_id, first, crew, settings.part_rows, done)
    closing = _Closing(linking, source.facts, trace_id, ids, folder)
    return closing.files(said, list(problems(found)))


class _Closing:
    """Says what only the whole trace can say, and writes it."""

    def __init__(self, linking: Linking, facts: Facts, trace_id: int, ids: Mapping[str, int], folder: Path) -> None:
        self._linking, self._facts, self._trace_id = linking, facts, trace_id
        self._ids, self._folder = dict(ids), folder
        self._files: dict[str, list[Path]] = {}
        self._known = linking.plan.survey
        steps = finish_steps(self._known.steps, linking.working_steps)
        self._steps = meaning.mark_cut_steps(steps, facts)

    def files(self, said: Recording, noticed_before: list[Problem]) -> TraceFiles:
        linking = self._linking
        for name, frame in linking.tables.items():
            if frame.height:
                self._write(name, frame)
        for report in linking.reports:
            for name, path in report.tables.items():
                if name == "attention_call":
                    self._write(name, with_lengths(taken_up(path).drop("trace_id"), self._facts, self._steps))
                elif name != "collective":
                    self._files.setdefault(name, []).append(path)
        self._collectives()
        oddities, samples = self._memory()
        calls = pl.concat([report.calls for report in linking.reports])
        self._write("module", meaning.with_kinds(linking.modules))
        self._write("step", self._steps)
        self._write("batch", batches(self._facts, self._steps, calls))
        workload = meaning.workload(self._known.dur_ns, self._facts)
        self._write("workload", workload.with_columns(pl.col("workload_id") + self._ids["workload"]))
        quality = meaning.quality([*noticed_before, *odd_lifetimes(oddities), *noticed(linking.tally), *self._forced()])
        row, quality = (meaning.with_trace_id(frame, self._trace_id) for frame in (self._row(said, samples), quality))
        following = {**self._ids, **{_TABLES.get(name, name): number for name, number in linking.ids.items()}}
        following["step"] += self._steps.height
        following["workload"] += workload.height
        return TraceFiles(self._folder, self._files, row, quality, linking.tally.kernels, following)

    def _collectives(self) -> None:
        """Count through the collectives, since nobody knew how many each part would have."""
        for report in self._linking.reports:
            if path := report.tables.get("collective"):
                rows = taken_up(path)
                self._write("collective", rows.with_columns(pl.col("collective_id") + self._ids["collective"]))
                self._ids["collective"] += rows.height

    def _forced(self) -> Iterator[Problem]:
        if forced := self._linking.plan.forced:
            words = (
                "Places where a long trace had to be cut for linking while a backward was awaited: the backward of "
                f"{self._linking.plan.lost:,} forward ops, at most, has neither its forward op nor its module."
            )
            yield Problem("cut_for_linking", "warn", forced, words)

    def _row(self, said: Recording, samples: int) -> pl.DataFrame:
        base, linking = said.base_unix_ns, self._linking
        stacks = linking.spanning.frames.height + sum(report.heights["frame"] for report in linking.reports)
        shapes = linking.spanning.ops["input_dims"].is_not_null().any()
        return meaning.trace_row(
            said,
            self._facts,
            start_unix_ns=None if base is None else base + self._known.origin_ns,
            dur_ns=self._known.dur_ns,
            has_device=linking.tally.kernels > 0,
            has_shapes=bool(shapes or any(report.has_shapes for report in linking.reports)),
            has_stacks=stacks > 0,
            has_modules=meaning.has_module_rows(linking.modules),
            has_memory=samples > 0,
        )

    def _memory(self) -> tuple[Counter[str], int]:
        """Pair allocations with frees part after part, and write both tables; return oddities, and the samples."""
        live, oddities, count = None, Counter[str](), 0
        paths = [report.samples for report in self._linking.reports if report.samples]
        for number, path in enumerate(paths):
            rows = pl.read_ipc(path)
            count += rows.height
            self._write("memory_sample", meaning.samples(rows))
            rows = rows.drop("args_json", "pid", "tid", "allocated_bytes", "reserved_bytes")
            found = lifetimes(rows if live is None else pl.concat([live, rows]), is_end=number + 1 == len(paths))
            live, oddities = found.live, oddities + found.oddities
            first = self._ids["allocation"]
            self._ids["allocation"] += found.allocations.height
            numbered = found.allocations.with_columns(pl.col("allocation_id") + first)
            self._write("allocation", meaning.with_categories(numbered))
        return oddities, count

    def _write(self, table: str, frame: pl.DataFrame) -> None:
        paths = self._files.setdefault(table, [])
        paths.append(self._folder / f"{table}.{len(paths)}.whole.parquet")
        set_table_down(meaning.with_trace_id(frame, self._trace_id), paths[-1])
