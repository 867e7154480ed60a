"""Traces that are opened as a run: from the cache if they lie in it, else loaded and kept there.

Owns when the cache is asked. What loading needs is imported only where there is no copy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tracekit import bundle
from tracekit.errors import TracekitError
from tracekit.loading import cache
from tracekit.loading.opening import tables_in
from tracekit.loading.sources import find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import polars as pl

    from tracekit.loading.crew import Crew
    from tracekit.loading.settings import Settings


def open_traces(path: Path, crew: Crew, settings: Settings, say: Callable[[str], None]) -> Mapping[str, pl.LazyFrame]:
    """Return the tables of traces, or of a captured bundle that holds none; the rest is as `open_tables` says."""
    found = [] if bundle.is_bundle(path) else find([path])
    files = [source.path for source in found] or [path]
    options = (settings.is_strict, *(source.name for source in found))  # a name may tell the rank
    cached = cache.path_for(files, options) if cache.limit() else None
    if cached is not None and os.path.lexists(cached):
        try:
            tables = dict(tables_in(bundle.Bundle.open(cached)))  # all at once: what is damaged is loaded again
        except TracekitError:
            say("the cached copy is damaged")
        else:
            cache.touch(cached)
            return tables
    say(f"loading {path.name}")
    crew.prepare(files, settings.whole_bytes)
    from tracekit.loading import runs

    def keep(entries: Mapping[str, Path]) -> None:
        if cached is not None:
            cache.store(cached, {**entries}, files, options)

    return runs.make_and_keep(path, crew, settings, say, keep)
