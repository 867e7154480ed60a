"""What linking notices about a trace that an answer may depend on.

Owns the counting; it changes no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.ingest import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest import Events

_LAUNCH_CALL = r"(?i)launch|memcpy.*async|memset.*async"


def noticed(
    ops: pl.DataFrame, kernels: pl.DataFrame, calls: pl.DataFrame, events: Events, crossings: int
) -> Iterator[Problem]:
    """Yield what may matter: unfinished ops, overlaps, kernels without launch or op, launches without kernels."""
    checks = (
        (
            "unfinished_op",
            "warn",
            int((~ops["is_finished"]).sum()),
            "Ops that were still running when recording stopped.",
        ),
        (
            "overlapping_op",
            "info",
            crossings,
            "Ops that end after the op they started in; time counts for the inner one.",
        ),
        ("zero_duration_kernel", "info", int((kernels["dur_ns"] == 0).sum()), "Device work of 0 ns."),
        ("launch_without_work", *_launches_without_work(calls, kernels)),
    )
    for name, severity, count, message in checks:
        if count:
            yield Problem(name, severity, count, message)  # type: ignore[arg-type]
    reasons = (
        kernels.filter(pl.col("unlinked_reason").is_not_null())
        .group_by("unlinked_reason")
        .len()
        .sort("unlinked_reason")
    )
    for reason, count in reasons.iter_rows():
        yield Problem("unlinked_kernel", "warn", count, f"Device work without an op: {reason}.")
    ends = events.other.filter(pl.col("name") == "Record Window End").height
    if not ends:
        yield Problem("no_end_marker", "info", 1, "No end marker: the trace was cut, or a tool rewrote it.")


def _launches_without_work(calls: pl.DataFrame, kernels: pl.DataFrame) -> tuple[str, int, str]:
    """Count calls that should have put work on a device but have none: lost, or still queued at the end."""
    lost = calls.filter(pl.col("name").str.contains(_LAUNCH_CALL)).height
    severity = "warn" if kernels.height else "bad"
    return (
        severity,
        lost,
        "Launches and async copies whose device work is not in the trace: lost, or not finished in time.",
    )
