"""Commands measured in turn, several times over, and what their runs come to.

Owns the order (A B C A B C, so that a machine that slows down is as unfair to each) and the medians.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.bench.measure import Measured, measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Job:
    """A command to measure, and its name."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Result:
    """All runs of one command: medians of its times, the highest of its peaks."""

    name: str
    runs: Sequence[Measured]

    @property
    def fault(self) -> str:
        """Return the last line of the first run that failed; nothing if none did."""
        return next((run.fault for run in self.runs if run.exit_code), "")

    @property
    def seconds(self) -> float:
        """Return the median of the seconds that passed."""
        return median(run.seconds for run in self.runs)

    @property
    def cpu_seconds(self) -> float | None:
        """Return the median of the processor seconds, of all processes together."""
        known = [run.cpu_seconds for run in self.runs if run.cpu_seconds is not None]
        return median(known) if known else None

    @property
    def peak_bytes(self) -> int | None:
        """Return the most memory that one process held in any run."""
        return _most(run.peak_bytes for run in self.runs)

    @property
    def tree_bytes(self) -> int | None:
        """Return the most memory that all processes held at once in any run."""
        return _most(run.tree_bytes for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """Return the result and each of its runs as plain data."""
        return {
            "name": self.name,
            "failed": self.fault or None,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "peak_bytes": self.peak_bytes,
            "tree_bytes": self.tree_bytes,
            "runs": [asdict(run) for run in self.runs],
        }


def in_turn(jobs: Sequence[Job], times: int, folder: Path, say: Callable[[str], None]) -> list[Result]:
    """Measure each job `times` times, in turn, and return their results in order. A job that failed isn't repeated."""
    runs: dict[str, list[Measured]] = {job.name: [] for job in jobs}
    for number in range(1, times + 1):
        for job in jobs:
            if any(run.exit_code for run in runs[job.name]):
                continue
            done = measured(job.command, folder, job.env)
            runs[job.name].append(done)
            say(f"  {number}/{times}  {job.name}: {done.fault or f'{done.seconds:.2f} s'}")
    return [Result(name, each) for name, each in runs.items()]


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
