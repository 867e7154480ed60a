"""What reading noticed about a trace, in sentences.

Owns the words; the counting is done where the events are read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tracekit.ingest.args import knowledge
from tracekit.ingest.events import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.ingest.events import Severity
    from tracekit.ingest.kineto import Counts
    from tracekit.ingest.rows import Finding


_NAMES = {"lost": "lost_event", "repaired": "repaired_event"}
_BAD = frozenset({"cut_off", "damaged_file", "unreadable_event"})


def problems(found: Counts) -> Iterable[Problem]:
    """Yield what an answer may depend on: events lost, repaired, of wrong shape or unknown, and values set aside."""
    by_kind: Counter[str] = Counter()
    for check, case in found.findings.items():
        by_kind[check.partition(":")[0]] += case.count
    for check, case in sorted(found.findings.items()):
        kind = check.partition(":")[0]
        name, share = _NAMES.get(kind, kind), None
        severity: Severity = "bad" if kind in _BAD else "warn"
        if kind in _NAMES:
            events = max(1, found.events + by_kind["lost"])
            severity, share = _by_share(name, by_kind[kind] / events), case.count / events
        yield Problem(name, severity, case.count, _said(check, case), share, case.first_offset)
    if found.flows:
        yield Problem("flow_event", "info", found.flows, words("flow_event"))
    for category, count in sorted(found.unknown.items()):
        if count:
            message = f"Category {category!r} is not one this version understands; its rows are in other_event."
            yield Problem("unknown_category", "warn", count, message)


def _by_share(name: str, share: float) -> Severity:
    """Return what a share of the events means, by the bounds that the doctor judges by too."""
    bounds: dict[str, float] = knowledge()["bounds"][name]
    if share >= bounds.get("bad", 2):
        return "bad"
    return "warn" if share >= bounds["warn"] else "info"


def words(check: str) -> str:
    """Return what a check's name means; one such as `lost:stray_text` may have words by its second half."""
    known: dict[str, str] = knowledge()["findings"]
    reason = check.rpartition(":")[2]
    return known.get(check) or known.get(reason) or reason.replace("_", " ")


def _said(check: str, case: Finding) -> str:
    kind, _, reason = check.partition(":")
    said = words(check)
    if kind == "lost":
        return f"Text that gave no event: {said}; first: {case.example}."
    if kind == "repaired":
        return f"Repaired while reading: {said}."
    if kind == "lost_key":
        return f"The value of the key {reason!r} beside the events can't be read."
    return f"{said} First: {case.example}" if kind in {"unreadable_event", "damaged_file"} else said
