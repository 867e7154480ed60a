"""Which traces a run is made of, and which rank each is.

Owns the reading of arguments (files, folders, patterns) and of ranks in names. It opens files only to see what they
are, and loads none.
"""

from __future__ import annotations

import glob
import os
import re
import tomllib
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tracekit import bundle
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RankSource = Literal["distributedInfo", "file name", "order"]

_NAMES = (".json", ".json.gz", ".json.zst", ".zip")
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_MARKS = (b'"traceEvents"', b'"schemaVersion"', b'"ph"')
_SNIFFED = 65_536


@dataclass(frozen=True)
class Source:
    """A trace file, and its name within the run: without its folder, unless that was found by a folder's ranks."""

    path: Path
    name: str


@dataclass(frozen=True)
class Known:
    """What is known of a trace before it has a rank: its name, and what its distributedInfo says, or None."""

    name: str
    rank: int | None
    world_size: int | None


@dataclass(frozen=True)
class Assigned:
    """A trace's rank, where that comes from, and a note where the trace itself doesn't say it.

    Rank and source are None only for a single trace that does not say.
    """

    name: str
    rank: int | None
    source: RankSource | None
    note: str | None = None


def find(paths: Sequence[Path | str]) -> list[Source]:
    """Return the traces that arguments name, in natural order of their paths (rank2 before rank10).

    An argument is a file, which is taken whatever it is; a folder, of which all traces are taken; or a pattern such
    as `traces/*.json`, which a shell may have left as it is. Of a folder those files are taken that end in .json,
    .json.gz, .json.zst or .zip, and those of other names whose content begins as a trace's. Hidden files are left
    out. Folders inside are read only where there is no trace beside them and all their names give a rank (rank_0).
    Raises TracekitError if there is no trace, one is given twice, or a folder holds bundles.
    """
    if not paths:
        raise TracekitError("no trace is given", "name a file, a folder or a bundle")
    found = [source for path in paths for source in _found(path)]
    found.sort(key=lambda source: _natural(str(source.path)))
    _refuse_twice(found)
    return found


def _found(argument: Path | str) -> Iterator[Source]:
    path = Path(argument)
    if str(argument) and _exists(path):
        yield from _in_folder(path) if path.is_dir() else [Source(path, path.name)]
        return
    matches = glob.glob(str(argument), recursive=True) if glob.has_magic(str(argument)) else []  # noqa: PTH207
    if not matches:
        is_pattern = glob.has_magic(str(argument))
        raise TracekitError(f"{argument}: no such file", "no file fits the pattern" if is_pattern else "check the path")
    for match in matches:
        yield from _found(match)


def _exists(path: Path) -> bool:
    """Return whether there is something at a path; a link that leads nowhere counts, and fails when it is read."""
    try:
        return os.path.lexists(path)
    except ValueError:  # a path with a null character
        return False


def _in_folder(folder: Path) -> list[Source]:
    """Return the traces of a folder, or of its folders that are named by rank. Raises TracekitError."""
    entries = _entries(folder)
    traces = [entry for entry in entries if not entry.is_dir() and _is_trace(entry)]
    bundles = [entry for entry in entries if not entry.is_dir() and _is_bundle(entry)]
    if bundles:
        raise TracekitError(f"{folder} holds the bundle {bundles[0].name}", f"give the bundle itself: {bundles[0]}")
    if traces:
        return [Source(trace, trace.name) for trace in traces]
    inner = [entry for entry in entries if entry.is_dir()]
    if not inner or not all(_rank_in(entry.name) is not None for entry in inner):
        raise TracekitError(f"{folder} holds no trace", "give the folder that the .json or .json.gz files lie in")
    return [Source(one.path, f"{entry.name}/{one.name}") for entry in inner for one in _in_rank_folder(entry)]


def _in_rank_folder(folder: Path) -> list[Source]:
    traces = [entry for entry in _entries(folder) if not entry.is_dir() and _is_trace(entry)]
    if not traces:
        raise TracekitError(f"{folder} holds no trace", "remove the folder, or give the traces one by one")
    return [Source(trace, trace.name) for trace in traces]


def _entries(folder: Path) -> list[Path]:
    """Return what lies in a folder, hidden things left out. Raises TracekitError if it can't be read."""
    try:
        return [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise TracekitError(f"{folder} can't be read ({error.strerror})", "check its rights") from error


def _is_bundle(path: Path) -> bool:
    return path.suffix.lower() == ".tkb" or (_begins(path).startswith(_ZIP) and bundle.is_bundle(path))


def _is_trace(path: Path) -> bool:
    """Return whether a file in a folder is taken for a trace: by its name, or by how its content begins."""
    if _is_bundle(path):
        return False
    if path.name.lower().endswith(_NAMES):
        return True
    start = _begins(path)
    if start.startswith(_ZIP):
        return _holds_json(path)
    if start.startswith(_GZIP):
        with suppress(zlib.error):
            start = zlib.decompressobj(wbits=31).decompress(start, _SNIFFED)
    return start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")) and any(mark in start for mark in _MARKS)


def _begins(path: Path) -> bytes:
    """Return the first bytes of a regular file; none of what can't be read or is a pipe."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_SNIFFED)
    except OSError:
        return b""


def _holds_json(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.lower().endswith((".json", ".json.gz")) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def _natural(text: str) -> tuple[Any, ...]:
    """Return a key that sorts numbers in names by their value."""
    parts = re.split(r"([0-9]+)", text)
    return tuple((int(part), "") if number % 2 else (-1, part) for number, part in enumerate(parts)), text


def _refuse_twice(sources: Sequence[Source]) -> None:
    """Raise TracekitError where two sources are one file, also by way of a link."""
    seen: dict[object, Path] = {}
    for source in sources:
        try:
            state = source.path.stat()
        except OSError as error:
            raise TracekitError(f"{source.path} can't be read ({error.strerror})", "check the file") from error
        key = (state.st_dev, state.st_ino) if state.st_ino else source.path.resolve()
        if key in seen:
            is_named_twice = seen[key] == source.path
            both = f"{source.path} is given twice" if is_named_twice else f"{seen[key]} and {source.path} are one file"
            raise TracekitError(both, "give each trace once")
        seen[key] = source.path


def ranks(traces: Sequence[Known]) -> list[Assigned]:
    """Return the rank of each trace of a run, in the order given.

    It is what distributedInfo says, else what the name says, else the lowest that is free. A single trace that does
    not say has none. Raises TracekitError if two traces have one rank, or come from jobs of different size.
    """
    if len(traces) == 1:
        only = traces[0]
        rank = _said(only)
        return [Assigned(only.name, rank, None if rank is None else "distributedInfo")]
    size = _world_size(traces)
    found = [_by_itself(trace, size) for trace in traces]
    _refuse_shared(found)
    taken = {one.rank for one in found}
    free = (rank for rank in range(len(traces) + len(taken)) if rank not in taken)
    return [one if one.rank is not None else _by_order(one.name, next(free)) for one in found]


def _said(trace: Known) -> int | None:
    return trace.rank if trace.rank is not None and trace.rank >= 0 else None


def _by_itself(trace: Known, size: int | None) -> Assigned:
    """Return the rank that a trace or its name says; a number beyond the job's size is no rank."""
    said = _said(trace)
    if said is not None:
        return Assigned(trace.name, said, "distributedInfo")
    named = _rank_in(trace.name)
    if named is None or (size is not None and named >= size):
        return Assigned(trace.name, None, None)
    return Assigned(trace.name, named, "file name", _note(trace.name, named, "its name"))


def _by_order(name: str, rank: int) -> Assigned:
    return Assigned(name, rank, "order", _note(name, rank, "the order of names"))


def _note(name: str, rank: int, origin: str) -> str:
    return f"the rank of {name}, {rank}, is from {origin}: the trace does not say one"


def _rank_in(name: str) -> int | None:
    """Return the rank in a file's name or its folder's, by the first pattern that either has."""
    parts = name.split("/")[::-1]
    for pattern in _patterns():
        for part in list(parts):
            match = pattern.search(part)
            if match and pattern.groupindex:
                return int(match["rank"])
            if match:
                parts.remove(part)
    return None


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    text = files("tracekit.loading").joinpath("ranks.toml").read_text(encoding="utf-8")
    return tuple(re.compile(row["pattern"], re.IGNORECASE) for row in tomllib.loads(text)["pattern"])


def _world_size(traces: Sequence[Known]) -> int | None:
    """Return the size of the job that traces come from. Raises TracekitError if they contradict each other."""
    sized = [trace for trace in traces if trace.world_size is not None]
    for trace in sized:
        if trace.world_size != sized[0].world_size:
            raise TracekitError(
                f"{sized[0].name} is of a job of {sized[0].world_size} ranks, {trace.name} of one of "
                f"{trace.world_size}",
                "they are not of one run: load each run by itself, and compare them",
            )
    return sized[0].world_size if sized else None


def _refuse_shared(found: Sequence[Assigned]) -> None:
    seen: dict[int, Assigned] = {}
    for one in found:
        if one.rank is None:
            continue
        other = seen.setdefault(one.rank, one)
        if other is not one:
            is_named = "file name" in {one.source, other.source}
            remedy = "rename one, if the number is no rank" if is_named else "a profiler writes one each cycle"
            raise TracekitError(
                f"{other.name} and {one.name} are both of rank {one.rank}",
                f"give one trace for each rank ({remedy}), and load other runs or cycles by themselves",
            )
