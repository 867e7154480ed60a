"""Where the time of a load goes: by function, and by stage.

Owns which modules make up a stage. Time in other people's code counts for the nearest function of ours that caused it.
"""

from __future__ import annotations

import cProfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.report import aligned

if TYPE_CHECKING:
    from collections.abc import Mapping

    Function = tuple[str, int, str]
    Stats = Mapping[Function, tuple[int, int, float, float, Mapping[Function, tuple[int, int, float, float]]]]

STAGES = {
    "reading": ("ingest/archive", "ingest/container", "ingest/cut", "ingest/disk", "ingest/packing", "loading/sources"),
    "decoding": ("ingest/decode", "ingest/kineto", "ingest/repeats", "ingest/rows", "ingest/salvage"),
    "columns": ("ingest/args", "ingest/columns", "ingest/events", "ingest/literals"),
    "linking": ("link/", "loading/cuts", "loading/large", "loading/outline", "loading/part"),
    "meaning": ("attention/",),
    "writing": ("bundle",),
}
"""Stages of loading and the modules that do them, by the start of their path in tracekit. All else is `other`."""
_WRITERS = ("write_", "sink_")
_DEEPEST = 100


@dataclass(frozen=True)
class Profile:
    """A load's seconds under the profiler, the share of each stage, and the functions with most time of their own."""

    seconds: float
    stages: Mapping[str, float]
    functions: list[tuple[str, int, float]]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        keys = ("function", "calls", "own_frac")
        functions = [dict(zip(keys, row, strict=True)) for row in self.functions]
        return {"seconds": self.seconds, "stages": dict(self.stages), "functions": functions}

    def text(self) -> str:
        """Return it as two tables."""
        stages = [("stage", "%"), *((name, f"{100 * share:.1f}") for name, share in self.stages.items())]
        rows = [(f"{100 * share:.1f}", f"{calls:,}", name) for name, calls, share in self.functions]
        head = f"one process under the profiler, which slows Python down: {self.seconds:.2f} s"
        return "\n".join([head, "", *aligned(stages), "", *aligned([("own %", "calls", "function"), *rows])])


def profile(trace: Path, bundle: Path, top: int = 15) -> Profile:
    """Load a trace in this process under the profiler and return where the time went."""
    from tracekit.loading import load, runs

    ours = Path(runs.__file__).parents[1]
    profiler = cProfile.Profile()
    profiler.runcall(load, trace, bundle, overwrite=True)
    profiler.create_stats()
    stats: Stats = profiler.stats
    seconds = sum(own for _, _, own, _, _ in stats.values())
    largest = sorted(stats.items(), key=lambda item: -item[1][2])[:top]
    functions = [(_name(function, ours), calls, own / seconds) for function, (_, calls, own, _, _) in largest]
    return Profile(seconds, {name: each / seconds for name, each in _stage_seconds(stats, ours).items()}, functions)


def _name(function: Function, ours: Path) -> str:
    """Return a function's name and where it is, without the way to it on this machine."""
    path, line, name = function
    if path == "~":
        return name
    known = Path(path)
    parts = known.relative_to(ours.parent).parts if known.is_relative_to(ours) else known.parts[-2:]
    return f"{'/'.join(parts)}:{line} {name}"


def _stage_seconds(stats: Stats, ours: Path) -> dict[str, float]:
    """Add own times up by stage: what a function without a stage took goes to its callers, until it finds one."""
    total = dict.fromkeys((*STAGES, "other"), 0.0)
    homeless = {function: own for function, (_, _, own, _, _) in stats.items()}
    for _ in range(_DEEPEST):
        above: dict[Function, float] = defaultdict(float)
        for function, seconds in homeless.items():
            callers = {caller: whole for caller, (_, _, _, whole) in stats[function][4].items()}
            among = sum(callers.values())
            if (stage := _stage(function, ours)) or not among:
                total[stage or "other"] += seconds
                continue
            for caller, whole in callers.items():
                above[caller] += seconds * whole / among
        homeless = above
    total["other"] += sum(homeless.values())
    return total


def _stage(function: Function, ours: Path) -> str:
    """Return the stage of a function of ours, or of one that writes; nothing for other people's."""
    path, _, name = function
    if "polars" in path and name.startswith(_WRITERS):
        return "writing"
    if not Path(path).is_relative_to(ours):
        return ""
    place = Path(path).relative_to(ours).as_posix()
    return next((stage for stage, starts in STAGES.items() if place.startswith(starts)), "other")
