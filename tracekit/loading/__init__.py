"""Traces to tables: the pipeline from files to a bundle, and raw traces loaded on the fly.

Owns what a user calls. What is slow to import is imported when it is needed, while the workers that a large trace
needs do the same. How one trace is loaded lies in `trace` and `large`, several in `making`, copies in `cache`
and `cached`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import bundle
from tracekit.loading.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

__all__ = ["Loaded", "Settings", "load", "open_tables", "tables_of"]


@dataclass(frozen=True)
class Loaded:
    """What loading did: the bundle's path, its traces, their events, device work and warnings.

    `problems` are sentences, those about what is missing first.
    """

    path: Path
    traces: int
    events: int
    kernels: int
    problems: tuple[str, ...]


def tables_of(data: bytes, name: str, facts: Mapping[str, object] | None = None) -> dict[str, pl.DataFrame]:
    """Read one trace from bytes and return its tables by name, ready to be written. Raises TracekitError."""
    from tracekit.loading import runs

    return runs.tables_of(data, name, facts)


def load(
    source: Path | str | Sequence[Path | str],
    output: Path | str,
    *,
    keep_raw: bool = False,
    overwrite: bool = False,
    workers: int = 1,
    settings: Settings | None = None,
) -> Loaded:
    """Load a trace, or those of several ranks (files, folders, patterns), into one bundle at `output`.

    A bundle that was captured, and so holds a trace and facts but no tables, is loaded too; its facts are kept.
    With `keep_raw` the traces themselves go in, gzipped. More than one worker needs a `__main__` guard. Raises
    TracekitError if a source is no trace or has tables already, if ranks contradict each other, or if the output
    exists and `overwrite` is not given; then the output is as it was.
    """
    given = [Path(source)] if isinstance(source, (Path, str)) else [Path(each) for each in source]
    settings = settings or Settings()
    from tracekit.loading.crew import Crew

    with Crew(workers) as crew:
        crew.prepare(given, settings.whole_bytes)
        from tracekit.loading import runs

        made = runs.load(given, Path(output), crew, settings, keep_raw=keep_raw, overwrite=overwrite)
    return Loaded(Path(output), made.traces, made.events, made.kernels, made.problems)


def open_tables(
    path: Path, say: Callable[[str], None] = lambda _: None, workers: int = 1, settings: Settings | None = None
) -> Mapping[str, pl.LazyFrame]:
    """Return the tables of a run: those of a bundle, or those of traces, loaded once and cached.

    Traces may be a file, a folder of ranks, a pattern, or a captured bundle. `say` is told when a trace is loaded.
    Raises TracekitError if the path is none of them.
    """
    if bundle.is_bundle(path) or path.suffix == ".tkb":
        ready = bundle.Bundle.open(path)
        if ready.names("tables/") or not ready.names("raw/"):
            from tracekit.loading.opening import tables_in

            return tables_in(ready)
    from tracekit.loading import cached
    from tracekit.loading.crew import Crew

    with Crew(workers) as crew:
        return cached.open_traces(path, crew, settings or Settings(), say)
