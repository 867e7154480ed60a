"""Runs, from whatever a user gives to a bundle or to tables.

Owns what is read (captured bundles, traces) and what is written.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import __version__, bundle
from tracekit.attention.facts import read_facts
from tracekit.attention.tables import give_meaning, ranked
from tracekit.errors import TracekitError
from tracekit.ingest import opened, read_bytes
from tracekit.link import link
from tracekit.loading.making import Made, make, scratch
from tracekit.loading.opening import held
from tracekit.loading.raw import entry_names
from tracekit.loading.sources import Known, find, ranks
from tracekit.loading.trace import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from tracekit.loading.crew import Crew
    from tracekit.loading.settings import Settings

_KEPT = "not asked for; load with --keep-raw to keep the trace"


@dataclass(frozen=True)
class _Run:
    """The traces to load as one run, and the facts recorded beside them as they stand."""

    sources: list[Source]
    facts: Mapping[str, object]


def tables_of(data: bytes, name: str, facts: Mapping[str, object] | None = None) -> dict[str, pl.DataFrame]:
    """Read one trace from bytes and return its tables by name, ready to be written. Raises TracekitError."""
    known = read_facts(facts) if facts else None
    tables = give_meaning(link(read_bytes(data, name)), known)
    row = tables["trace"]
    (rank,) = ranks([Known(name, row["rank"].item(), row["world_size"].item())])
    return tables | {"trace": ranked(row, rank.rank, rank.source, None)}


def load(
    given: Sequence[Path], output: Path, crew: Crew, settings: Settings, *, keep_raw: bool, overwrite: bool
) -> Made:
    """Load what `tracekit.loading.load` is given; the rest is as there."""
    if os.path.isdir(output):  # noqa: PTH112 - Path's own fails for names that are too long
        raise TracekitError(f"{output} is a folder, not a file", "name one to write, such as run.tkb")
    if os.path.lexists(output) and not overwrite:
        raise TracekitError(f"{output} exists", "choose another name, or give --force to replace it")
    run = _run(given)
    for each in (*given, *(source.content for source in run.sources)):
        if isinstance(each, Path) and _is_one_file(each, output):
            raise TracekitError(f"{output} is the trace itself", "choose another name for the bundle")
    with scratch() as folder:
        made = make(run.sources, folder, crew, settings)
        entries: dict[str, bytes | Path] = {**made.entries}
        if keep_raw:
            entries |= _raw_entries(run.sources, folder, settings)
        bundle.write(
            output,
            entries,
            facts=run.facts or None,
            left_out={} if keep_raw else {"raw": _KEPT},
            tool_version=__version__,
            overwrite=overwrite,
        )
    return made


def _run(given: Sequence[Path]) -> _Run:
    """Return the traces that arguments name, or the one inside a bundle that holds no tables yet."""
    path = given[0]
    if len(given) == 1 and bundle.is_bundle(path):
        captured = bundle.Bundle.open(path)
        raw = captured.names("raw/")
        if captured.names("tables/"):
            raise TracekitError(f"{path} is a bundle already", "query it as it is")
        if len(raw) != 1:
            raise TracekitError(
                f"{path} holds {len(raw)} traces and no tables", "this version reads one trace of a captured bundle"
            )
        facts = read_facts(captured.facts)
        return _Run([Source(captured.read(raw[0]), path.name, facts, raw[0].removeprefix("raw/"))], captured.facts)
    return _Run([Source(each.path, each.name) for each in find(given)], {})


def _is_one_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them is no file, or no path
        return False


def _raw_entries(sources: Sequence[Source], folder: Path, settings: Settings) -> dict[str, bytes | Path]:
    """Return the traces as entries of a bundle, gzipped as they are or, if they are anything else, anew."""
    from isal import igzip

    entries: dict[str, bytes | Path] = {}
    names = entry_names([source.file_name or source.name for source in sources])
    for number, (source, name) in enumerate(zip(sources, names, strict=True)):
        if _begins_with_gzip(source.content):
            entries[name] = source.content
            continue
        packed = folder / f"raw{number}.gz"
        with (
            opened(source.content, source.name, trust_archive=settings.trust_archive) as stream,
            packed.open("wb") as file,
            igzip.IGzipFile(fileobj=file, mode="wb", mtime=0, filename="") as archive,  # type: ignore[no-untyped-call]
        ):
            for block in stream.blocks():
                archive.write(block)  # type: ignore[no-untyped-call]
        entries[name] = packed
    return entries


def _begins_with_gzip(content: Path | bytes) -> bool:
    if isinstance(content, bytes):
        return content.startswith(b"\x1f\x8b")
    with content.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def make_and_keep(
    path: Path, crew: Crew, settings: Settings, say: Callable[[str], None], keep: Callable[[Mapping[str, Path]], None]
) -> Mapping[str, pl.LazyFrame]:
    """Load the traces at a path and return their tables; `keep` gets the files of a bundle's entries meanwhile.

    `say` hears why they can't be kept, if so. Raises TracekitError if the path is no run.
    """
    run = _run([path])
    with scratch() as folder:
        made = make(run.sources, folder, crew, settings)
        try:
            keep(made.entries)
        except TracekitError as error:
            say(f"the result can't be cached: {error}")
        return held({entry: path.read_bytes() for entry, path in made.entries.items()}, path.name)
