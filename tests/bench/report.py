"""A benchmark's results as text and as plain data.

Owns what is derived from the measurements (rates, ratios, shares) and how it is aligned. It measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.bench.tools import TRACEKIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.rounds import Result
    from tests.bench.tiling import Made

_LOADS = (
    "file",
    "size",
    "events",
    "tool",
    "median s",
    "MB/s",
    "times tracekit",
    "CPU s",
    "peak MB",
    "all MB",
    "bundle",
)
_QUESTIONS = ("file", "size", "command", "median ms", "peak MB")


@dataclass(frozen=True)
class Bench:
    """All that was measured with one file; `bundles` are the sizes of the bundles that tools made of it."""

    trace: str
    made: Made
    loads: Sequence[Result]
    bundles: Mapping[str, int]
    questions: Sequence[Result]
    left_out: Sequence[str] = field(default=())

    @property
    def tracekit_seconds(self) -> float | None:
        """Return how long tracekit took; None if it failed."""
        return next((load.seconds for load in self.loads if load.name == TRACEKIT and not load.fault), None)

    def times_tracekit(self, load: Result) -> float | None:
        """Return how many times as long as tracekit a load took."""
        return load.seconds / self.tracekit_seconds if self.tracekit_seconds and not load.fault else None

    @property
    def tracekit_failed(self) -> bool:
        """Tell whether a load or an answer of tracekit's failed; of other tools, it is only told."""
        ours = [load for load in self.loads if load.name.startswith(TRACEKIT)]
        return any(each.fault for each in (*ours, *self.questions))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data, with what is derived from it."""
        derived = {
            load.name: {
                "bytes_per_s": None if load.fault else self.made.bytes / load.seconds,
                "times_tracekit": self.times_tracekit(load),
                "bundle_bytes": self.bundles.get(load.name),
                "bundle_frac": self.bundles[load.name] / self.made.bytes if load.name in self.bundles else None,
            }
            for load in self.loads
        }
        return {
            "trace": self.trace,
            "copies": self.made.copies,
            "bytes": self.made.bytes,
            "events": self.made.events,
            "loads": [load.as_json() | derived[load.name] for load in self.loads],
            "questions": [question.as_json() for question in self.questions],
            "left_out": list(self.left_out),
        }


def text(benches: Sequence[Bench]) -> str:
    """Return the tables of loads and of questions, and what was left out."""
    loads = [_LOADS, *(_load(bench, load) for bench in benches for load in bench.loads)]
    asked = [_QUESTIONS, *(_question(bench, each) for bench in benches for each in bench.questions)]
    lines = [*aligned(loads), *([""] if len(asked) > 1 else []), *(aligned(asked) if len(asked) > 1 else [])]
    notes = dict.fromkeys(f"{size(bench.made.bytes)}: {line}" for bench in benches for line in bench.left_out)
    return "\n".join([*lines, *([""] if notes else []), *notes])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, the first one their heads: numbers to the right, words to the left."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(not cell or cell == "-" or cell[0].isdigit() for cell in column[1:]) for column in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "─" * max(map(len, lines)), *lines[1:]]


def size(count: int) -> str:
    """Return a number of bytes as people say it, in powers of ten as disks do."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def _load(bench: Bench, load: Result) -> tuple[str, ...]:
    start = (bench.trace, size(bench.made.bytes), f"{bench.made.events:,}", load.name)
    if load.fault:
        return (*start, *("-" for _ in _LOADS[4:-1]), f"failed: {load.fault}")
    bundle = bench.bundles.get(load.name)
    return (
        *start,
        f"{load.seconds:.2f}",
        f"{bench.made.bytes / load.seconds / 1e6:.0f}",
        _figure(bench.times_tracekit(load), "{:.2f}"),
        _figure(load.cpu_seconds, "{:.2f}"),
        _megabytes(load.peak_bytes),
        _megabytes(load.tree_bytes),
        f"{100 * bundle / bench.made.bytes:.1f} %" if bundle else "-",
    )


def _question(bench: Bench, asked: Result) -> tuple[str, ...]:
    start = (bench.trace, size(bench.made.bytes), asked.name)
    if asked.fault:
        return (*start, "-", f"failed: {asked.fault}")
    return (*start, f"{asked.seconds * 1e3:.0f}", _megabytes(asked.peak_bytes))


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _megabytes(value: int | None) -> str:
    return "-" if value is None else f"{value / 1e6:.0f}"
