"""What linking notices about a trace that an answer may depend on.

Owns the counting, which adds up over parts of a trace, and the words for it; it changes no row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import polars as pl

from tracekit.ingest import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

_LAUNCH_CALL = r"(?i)launch|memcpy.*async|memset.*async"
_WORDS: dict[str, tuple[Literal["info", "warn"], str]] = {
    "unfinished_op": ("warn", "Ops that were still running when recording stopped."),
    "overlapping_op": ("info", "Ops that end after the op they started in; time counts for the inner one."),
    "zero_duration_kernel": ("info", "Device work of 0 ns."),
    "loose_arrow": ("info", "Arrows from forward to backward ops that lack an end, or have one at no such op."),
    "launch_without_work": (
        "warn",
        "Launches and async copies whose device work is not in the trace: lost, or not finished in time.",
    ),
}


@dataclass(frozen=True)
class Tally:
    """Counts by check; ops; device work and its summed time in ns, all of it and by the reason why it has no op."""

    counts: Counter[str] = field(default_factory=Counter)
    ops: int = 0
    kernels: int = 0
    device_ns: int = 0
    unlinked: Counter[str] = field(default_factory=Counter)
    unlinked_ns: Counter[str] = field(default_factory=Counter)
    end_markers: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Return what two parts of a trace hold together."""
        return Tally(*(mine + yours for mine, yours in zip(vars(self).values(), vars(other).values(), strict=True)))


def tally(
    ops: pl.DataFrame, kernels: pl.DataFrame, calls: pl.DataFrame, other: pl.DataFrame, crossings: int, arrows: int
) -> Tally:
    """Count what may matter: unfinished ops, overlaps, kernels without launch or op, launches without kernels.

    `calls` launched nothing, `crossings` ops end after their parent, and so many arrows lead nowhere.
    """
    lost = kernels.filter(pl.col("unlinked_reason").is_not_null())
    reasons = lost.group_by("unlinked_reason").agg(pl.len().alias("count"), pl.col("dur_ns").sum()).rows()
    return Tally(
        Counter(
            unfinished_op=int((~ops["is_finished"]).sum()),
            overlapping_op=crossings,
            zero_duration_kernel=int((kernels["dur_ns"] == 0).sum()),
            loose_arrow=arrows,
            launch_without_work=calls.filter(pl.col("name").str.contains(_LAUNCH_CALL)).height,
        ),
        ops.height,
        kernels.height,
        int(kernels["dur_ns"].sum()),
        Counter({reason: count for reason, count, _ in reasons}),
        Counter({reason: dur_ns for reason, _, dur_ns in reasons}),
        other.filter(pl.col("name") == "Record Window End").height,
    )


def noticed(found: Tally) -> Iterator[Problem]:
    """Yield what was counted in a whole trace as problems."""
    for check, (severity, words) in _WORDS.items():
        if count := found.counts[check]:
            is_bad = check == "launch_without_work" and not found.kernels
            yield Problem(check, "bad" if is_bad else severity, count, words)
    for reason, count in sorted(found.unlinked.items()):
        share = found.unlinked_ns[reason] / found.device_ns if found.device_ns else None
        yield Problem("unlinked_kernel", "warn", count, f"Device work without an op: {reason}.", share_frac=share)
    if not (found.ops or found.kernels):
        yield Problem("no_work", "bad", 1, "There is neither an op nor device work in it: nothing can be attributed.")
    if not found.end_markers:
        yield Problem("no_end_marker", "info", 1, "No end marker: the trace was cut, or a tool rewrote it.")
