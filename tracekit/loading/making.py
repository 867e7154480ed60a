"""From traces to the tables of a run, as files.

Owns the order of the rooms, what several traces have to be told of each other (ranks, clocks), and the layout of
tables in a bundle. It gives no row a meaning of its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tracekit.attention import tables as meaning
from tracekit.errors import TracekitError
from tracekit.ingest import Problem
from tracekit.link import clocks
from tracekit.loading.captured import captures_of, put_names
from tracekit.loading.frames import set_down, taken_up
from tracekit.loading.processes import is_alive, this_machine
from tracekit.loading.sources import Assigned, Known, ranks
from tracekit.loading.trace import IDS, REFUSED, Source, load_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tracekit.link.clocks import Clock
    from tracekit.loading.closing import TraceFiles
    from tracekit.loading.crew import Crew
    from tracekit.loading.settings import Settings

_FOLDER = "tracekit-load-"


@dataclass(frozen=True)
class Made:
    """A run's tables: the files of a bundle's entries, and what to say of them: events, device work, warnings.

    `problems` are sentences, those about what is missing first.
    """

    entries: Mapping[str, Path]
    traces: int
    events: int
    kernels: int
    problems: tuple[str, ...]


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder for the time of loading; those that killed processes left behind are deleted too.

    Raises TracekitError if there is no room in it, or if TMPDIR, which says where it lies, is no folder to write to.
    """
    root = _root()
    for old in root.glob(f"{_FOLDER}*"):
        machine, _, rest = old.name.removeprefix(_FOLDER).partition("-")
        number = rest.split("-")[0]
        if machine == this_machine() and number.isdigit() and not is_alive(int(number)):
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{this_machine()}-{os.getpid()}-"))
    try:
        yield folder
    except (OSError, pl.exceptions.ComputeError) as error:
        if not is_full(error):
            raise
        raise TracekitError(f"no space left in {root}", "make room, or set TMPDIR to a folder with more") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _root() -> Path:
    """Return the folder for temporary files; Python takes another one in silence where TMPDIR is none."""
    wanted = os.environ.get("TMPDIR")
    if wanted and not (Path(wanted).is_dir() and os.access(wanted, os.W_OK | os.X_OK)):
        raise TracekitError(f"TMPDIR is {wanted}, not a folder that can be written to", "make it, or unset TMPDIR")
    return Path(tempfile.gettempdir())


def is_full(error: BaseException) -> bool:
    """Tell whether a fault means that a disk is full, whoever says it."""
    return any(words in str(error).lower() for words in ("no space left", "file too large", "quota exceeded"))


def make(sources: Sequence[Source], folder: Path, crew: Crew, settings: Settings) -> Made:
    """Load the traces of a run and write its tables to `folder`. Raises TracekitError if one of them is not fit."""
    ids = dict.fromkeys(IDS, 0)
    loaded: list[TraceFiles] = []
    captures = [capture for path in settings.graph_captures for capture in captures_of(path)]
    for trace_id, source in enumerate(sources):
        own = folder / str(trace_id)
        own.mkdir()
        loaded.append(load_trace(source, trace_id, ids, own, crew, settings))
        if captures:
            put_names(loaded[-1], captures)
        ids = loaded[-1].ids
        _refuse_copies(sources, loaded)
        _ranks(sources, loaded)  # what contradicts itself is better known before the rest is loaded
    assigned = _ranks(sources, loaded)
    found = _clocks(loaded, assigned)
    rows, noted = [], []
    for each, rank, clock in zip(loaded, assigned, found, strict=True):
        rows.append(meaning.ranked(each.row, rank.rank, rank.source, clock))
        noted.append(each.quality if rank.note is None else pl.concat([each.quality, _note(each, rank)]))
    for name, frames in (("trace", rows), ("quality", noted)):
        for each, frame in zip(loaded, frames, strict=True):
            path = each.folder / f"{name}.final.parquet"
            set_down(frame, path)
            each.tables[name] = [path]
    quality = pl.concat(noted)
    return Made(
        _entries(loaded),
        len(loaded),
        sum(each.row["events"].item() for each in loaded),
        sum(each.kernels for each in loaded),
        _problems(quality),
    )


def _problems(quality: pl.DataFrame) -> tuple[str, ...]:
    is_lost = pl.col("check_name").is_in(REFUSED)
    rows = quality.filter((pl.col("severity") != "info") | is_lost)
    rows = rows.sort(pl.col("severity") != "bad", ~is_lost, maintain_order=True)
    counts = rows.group_by("message", maintain_order=True).agg(pl.col("count").sum())
    return tuple(message if count <= 1 else f"{count:,} × {message}" for message, count in counts.iter_rows())


def _ranks(sources: Sequence[Source], loaded: Sequence[TraceFiles]) -> list[Assigned]:
    known = [
        Known(source.name, each.row["rank"].item(), each.row["world_size"].item())
        for source, each in zip(sources, loaded, strict=False)
    ]
    return ranks(known)


def _refuse_copies(sources: Sequence[Source], loaded: Sequence[TraceFiles]) -> None:
    """Raise TracekitError if the last trace is a copy of one before it, which would double all that it says."""
    last = loaded[-1].row["source_sha256"].item()
    for source, each in zip(sources, loaded[:-1], strict=False):
        if each.row["source_sha256"].item() == last:
            other = sources[len(loaded) - 1].name
            raise TracekitError(f"{source.name} and {other} are the same trace", "give each rank's trace once")


def _note(each: TraceFiles, rank: Assigned) -> pl.DataFrame:
    noted = meaning.quality([Problem("rank_not_recorded", "warn", 1, rank.note or "")])
    return meaning.with_trace_id(noted, each.row["trace_id"].item())


def _clocks(loaded: Sequence[TraceFiles], assigned: Sequence[Assigned]) -> list[Clock | None]:
    """Estimate the offsets between the clocks of several ranks."""
    if len(loaded) < 2:
        return [None] * len(loaded)
    traces = [
        clocks.Trace(
            rank.rank or 0,
            each.row["start_unix_ns"].item(),
            pl.concat([taken_up(path) for path in each.tables["collective"]]),
        )
        for each, rank in zip(loaded, assigned, strict=True)
    ]
    by_rank = {clock.rank: clock for clock in clocks.offsets(traces)}
    return [by_rank[rank.rank or 0] for rank in assigned]


def _entries(loaded: Sequence[TraceFiles]) -> dict[str, Path]:
    """Name the files as a bundle has them: one a table, or a folder a table if there are several."""
    entries = {}
    for name in sorted({name for each in loaded for name in each.tables}):
        files = [(number, path) for number, each in enumerate(loaded) for path in each.tables.get(name, ())]
        if len(files) == 1:
            entries[f"tables/{name}.parquet"] = files[0][1]
            continue
        for place, (number, path) in enumerate(files):
            entries[f"tables/{name}/{number:04}-{place:05}.parquet"] = path
    return entries
