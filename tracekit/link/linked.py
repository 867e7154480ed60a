"""What link hands on: the same rows with ids, and what belongs to what.

Owns the shapes only. Ids count from 0 within the trace, in order of time; times are ns since the run's start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from tracekit.ingest import Problem, Recording


@dataclass(frozen=True)
class Linked:
    """One trace, linked. Frames have the columns of the tables of the same name, less those that carry meaning."""

    recording: Recording
    start_unix_ns: int | None
    dur_ns: int
    ops: pl.DataFrame
    frames: pl.DataFrame
    modules: pl.DataFrame
    steps: pl.DataFrame
    launches: pl.DataFrame
    kernels: pl.DataFrame
    memory_samples: pl.DataFrame
    allocations: pl.DataFrame
    other: pl.DataFrame
    problems: tuple[Problem, ...]
