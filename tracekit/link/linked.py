"""What link hands on: the same rows with ids, and what belongs to what.

Owns the shapes only. Ids count from 0 within the trace, or within a part of it, in order of time; times are ns since
the trace's start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from tracekit.ingest import events as shape

if TYPE_CHECKING:
    from tracekit.ingest import Problem, Recording
    from tracekit.link.problems import Tally


@dataclass(frozen=True)
class Around:
    """The window of time that a part of a trace is (ns, as the rows count it), and what spans an end of it.

    `ops` and `frames` are rows in the shape that ingest gives them, with the id that each has in the run as
    `known_id`.
    """

    window: range
    ops: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema={**shape.OP, "known_id": pl.Int64}))
    frames: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema={**shape.FRAME, "known_id": pl.Int64}))


@dataclass(frozen=True)
class Linked:
    """A trace, or a part of one, linked. Frames have the columns of the tables of the same name, less their meaning.

    `memory_samples` also say which op and frame each belongs to; `allocations` are made of those of a whole trace.
    `working_steps` are ids of steps in which an op ran.
    """

    ops: pl.DataFrame
    frames: pl.DataFrame
    modules: pl.DataFrame
    launches: pl.DataFrame
    kernels: pl.DataFrame
    collectives: pl.DataFrame
    memory_samples: pl.DataFrame
    other: pl.DataFrame
    tally: Tally
    working_steps: set[int]


@dataclass(frozen=True)
class Trace(Linked):
    """A whole trace, linked."""

    recording: Recording
    start_unix_ns: int | None
    dur_ns: int
    steps: pl.DataFrame
    allocations: pl.DataFrame
    problems: tuple[Problem, ...]
