"""The traces of a run as the profiler wrote them, wherever they lie: for tools that read traces themselves.

Owns the way back from a run to its traces, and their names inside a bundle. It reads no trace.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit import bundle
from tracekit.errors import TracekitError
from tracekit.loading.sources import find

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def has_raw(path: Path) -> bool:
    """Return whether the traces themselves are at hand: a bundle may have been made without them."""
    return not bundle.is_bundle(path) or bool(bundle.Bundle.open(path).names("raw/"))


def raw_traces(path: Path, names: Sequence[str]) -> list[Path | bytes]:
    """Return the traces of a run, files or the bytes of packed ones, by `names`, which are `trace.source_name`.

    Raises TracekitError if they are not there, or no longer those that were loaded.
    """
    if not bundle.is_bundle(path):
        found = {source.name: source.path for source in find([path])}
        if sorted(found) != sorted(names):
            raise TracekitError(f"{path} no longer holds the traces it held when it was loaded", "open it again")
        return [found[name] for name in names]
    ready = bundle.Bundle.open(path)
    held = ready.names("raw/")
    entries = held if len(held) == len(names) == 1 else entry_names(names)
    if missing := sorted(set(entries) - set(held)):
        raise TracekitError(f"{path} holds no {missing[0]}", "load the traces again with --keep-raw")
    return [ready.read(entry) for entry in entries]


def entry_names(names: Sequence[str]) -> list[str]:
    """Return what entries of a bundle are called that hold traces of these names, gzipped."""
    entries: list[str] = []
    for number, name in enumerate(names):
        entry = f"raw/{_plain(name)}.gz"
        entries.append(entry if entry not in entries else f"raw/{number}-{_plain(name)}.gz")
    return entries


def _plain(name: str) -> str:
    """Return a name that every bundle may hold, of a trace that is gzipped in it."""
    bare = re.sub(r"\.(gz|zst|zip)$", "", name)
    return re.sub(r"[^A-Za-z0-9._+=@-]", "_", bare)[-100:]
