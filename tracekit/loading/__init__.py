"""Traces to tables: the pipeline from bytes to a bundle, and the cache of raw traces loaded on the fly.

Owns the order of the rooms and the layout of the tables on disk. It gives no row a meaning of its own.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import polars as pl

from tracekit import __version__, bundle
from tracekit.attention import give_meaning, read_facts
from tracekit.errors import TracekitError
from tracekit.ingest import read_bytes, read_file
from tracekit.link import link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CACHE_BYTES = 4 * 2**30


@dataclass(frozen=True)
class Loaded:
    """What loading did: the bundle's path, the trace's name, its events and device work."""

    path: Path
    source_name: str
    events: int
    kernels: int
    problems: int


@dataclass(frozen=True)
class Source:
    """A trace's bytes as they lie on disk, its name, that of its own file, and the facts recorded beside it."""

    data: bytes
    name: str
    file_name: str
    facts: dict[str, object]


def tables_of(data: bytes, name: str, facts: Mapping[str, object] | None = None) -> dict[str, pl.DataFrame]:
    """Read one trace from bytes and return its tables by name, ready to be written. Raises TracekitError."""
    known = read_facts(facts) if facts else None
    return give_meaning(link(read_bytes(data, name)), known)


def _source(path: Path) -> Source:
    """Read a trace, or the one trace inside a bundle that holds no tables yet."""
    if not bundle.is_bundle(path):
        return Source(read_file(path), path.name, path.name, {})
    opened = bundle.Bundle.open(path)
    raw = opened.names("raw/")
    if opened.names("tables/"):
        raise TracekitError(f"{path} is a bundle already", "query it as it is")
    if len(raw) != 1:
        raise TracekitError(f"{path} holds {len(raw)} traces and no tables", "this version reads one trace a bundle")
    return Source(opened.read(raw[0]), path.name, raw[0].removeprefix("raw/"), opened.facts)


def load(source: Path | str, output: Path | str, *, keep_raw: bool = False, overwrite: bool = False) -> Loaded:
    """Load one trace file into a bundle at `output`.

    A bundle that was captured, and so holds a trace and facts but no tables, is loaded too; its facts are kept.
    With `keep_raw` the trace itself goes in, gzipped. Raises TracekitError if the source is no trace, if it has
    tables already, or if the output exists and `overwrite` is not given.
    """
    source, output = Path(source), Path(output)
    if os.path.lexists(output) and not overwrite:
        raise TracekitError(f"{output} exists", "choose another name, or give --force to replace it")
    if _is_one_file(source, output):
        raise TracekitError(f"{output} is the trace itself", "choose another name for the bundle")
    found = _source(source)
    tables, entries = _made(found)
    left_out = {"raw": "not asked for; load with --keep-raw to keep the trace"}
    if keep_raw:
        entries |= _raw_entry(found.data, found.file_name)
        left_out = {}
    bundle.write(
        output, entries, facts=found.facts or None, left_out=left_out, tool_version=__version__, overwrite=overwrite
    )
    return Loaded(
        output,
        source.name,
        tables["trace"]["events"][0],
        tables["kernel"].height,
        tables["quality"].filter(pl.col("severity") != "info").height,
    )


def _made(found: Source) -> tuple[dict[str, pl.DataFrame], dict[str, bytes]]:
    """Return a trace's tables by name, and the same as entries of a bundle."""
    tables = tables_of(found.data, found.name, found.facts)
    return tables, {f"tables/{name}.parquet": _parquet(frame) for name, frame in tables.items()}


def _is_one_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them is no file, or no path
        return False


def _parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=True)
    return buffer.getvalue()


def _raw_entry(data: bytes, name: str) -> dict[str, bytes]:
    from isal import igzip

    plain = re.sub(r"[^A-Za-z0-9._+=@-]", "_", name.removesuffix(".gz"))[-100:]  # a name that every bundle may hold
    packed = data if data.startswith(b"\x1f\x8b") else igzip.compress(data, mtime=0)
    return {f"raw/{plain}.gz": packed}


def open_tables(path: Path, say: Callable[[str], None] = lambda _: None) -> dict[str, pl.LazyFrame]:
    """Return the tables of a run: those of a bundle, or those of a trace, raw or captured, loaded once and cached.

    `say` is told when a trace is loaded. Raises TracekitError if the path is neither.
    """
    try:
        path.stat()
    except (OSError, ValueError) as error:
        raise TracekitError(f"{path}: no such file", "check the path") from error
    if bundle.is_bundle(path) or path.suffix == ".tkb":
        opened = bundle.Bundle.open(path)
        if opened.names("tables/") or not opened.names("raw/"):
            return _tables_in(opened)
    cached = _cached(path)
    if os.path.lexists(cached):
        try:
            tables = _tables_in(bundle.Bundle.open(cached))
        except TracekitError:
            say("the cached copy is damaged")
        else:
            with suppress(OSError):  # a cache that can only be read serves as well
                os.utime(cached)
            return tables
    say(f"loading {path.name}")
    return _load_and_cache(path, cached, say)


def _tables_in(opened: bundle.Bundle) -> dict[str, pl.LazyFrame]:
    scans: dict[str, list[pl.LazyFrame]] = {}
    for entry in opened.names("tables/"):
        table = entry.removeprefix("tables/").split("/")[0].removesuffix(".parquet")
        try:
            scan = pl.scan_parquet(io.BytesIO(opened.read(entry)))
            scan.collect_schema()
        except pl.exceptions.PolarsError as error:
            raise TracekitError(f"{opened.path}: entry {entry} is no Parquet file", "load the trace again") from error
        scans.setdefault(table, []).append(scan)
    if "trace" not in scans or not scans["trace"][0].select(pl.len()).collect().item():
        raise TracekitError(f"{opened.path} holds no tables", "load the trace again with this version of tracekit")
    return {name: pl.concat(parts, how="vertical") for name, parts in scans.items()}


def _load_and_cache(path: Path, cached: Path, say: Callable[[str], None]) -> dict[str, pl.LazyFrame]:
    found = _source(path)
    tables, entries = _made(found)
    left_out = {"raw": "a cached copy"}
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        bundle.write(cached, entries, left_out=left_out, tool_version=__version__, overwrite=True)
        _trim(cached.parent, keep=cached)
    except (TracekitError, OSError) as error:
        say(f"the result can't be cached: {error}")
    return {name: frame.lazy() for name, frame in tables.items()}


def _cached(path: Path) -> Path:
    """Return where a trace's bundle lies in the cache, by path, size, time, version and knowledge."""
    state = path.stat()
    key = (str(path.resolve()), state.st_size, state.st_mtime_ns, __version__, _knowledge())
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
    return platformdirs.user_cache_path("tracekit") / "runs" / f"{name}.tkb"


def _knowledge() -> str:
    """Return a hash of all code and rules that decide what rows mean, so that a changed rule is a new answer."""
    digest = hashlib.sha256()
    for room in ("attention", "ingest", "link"):
        for file in sorted(files(f"tracekit.{room}").iterdir(), key=lambda entry: entry.name):
            if file.name.endswith((".py", ".toml")):
                digest.update(file.read_bytes())
    return digest.hexdigest()


def _trim(folder: Path, keep: Path) -> None:
    """Delete the copies used longest ago until the folder is small enough; a copy that vanishes is no fault."""
    held = []
    for file in folder.glob("*.tkb"):
        try:
            held.append((file.stat().st_mtime, file.stat().st_size, file))
        except OSError:
            continue
    total = sum(size for _, size, _ in held)
    for _, size, file in sorted(held):
        if total <= _CACHE_BYTES:
            break
        if file != keep:
            file.unlink(missing_ok=True)
            total -= size
