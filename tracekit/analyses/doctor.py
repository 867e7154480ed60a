"""Is a run fit to judge by? One row a check, and a verdict on the whole.

Owns the verdicts: it holds what the checks found against the bounds of doctor.toml, and puts together the ranks
that are alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.analyses import doctor_device, doctor_ranks, doctor_recording
from tracekit.analyses.doctor_finding import Finding, with_offset
from tracekit.analyses.doctor_scans import quick, rules, thorough
from tracekit.table import Note, Rows, Table
from tracekit.units import FRACTION, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tracekit.analyses.doctor_scans import Facts
    from tracekit.store import Store
    from tracekit.table import Status

DOCS = {
    "check": "What was looked at.",
    "ranks": "Ranks that the row speaks of; null where the run does not number them.",
    "verdict": "ok, warn, bad, or unknown where the trace can't tell.",
    "bears_on": "numbers, which a finding makes doubtful, or answers, which can't be had.",
    "count": "Events, kernels, steps or ranks it is about.",
    "share_frac": "Share of device time, of launches, of ops or of steps, as the meaning says.",
    "value_ns": "Time it is about.",
    "ratio": "How many times something is what it should be.",
    "meaning": "What was found, in one sentence; where ranks differ, of the worst one.",
    "next_capture": "What to do when recording again; empty where all is well.",
    "ask": "The question that says more.",
}
_TYPES = dict.fromkeys(DOCS, "String") | {
    "count": "Int64",
    "share_frac": "Float64",
    "value_ns": "Int64",
    "ratio": "Float64",
}
_RANKING = ("bad", "warn", "unknown", "ok")
_BY_SEVERITY = {"info": "ok", "warn": "warn", "bad": "bad"}


class _Case(NamedTuple):
    """What a check found in one trace."""

    facts: Facts
    verdict: str
    figure: float
    finding: Finding


def diagnose(store: Store, unanswerable: Mapping[str, Sequence[str]]) -> Table:
    """Return a row for each check, for each verdict that ranks differ in, in a fixed order; a note says the whole.

    `unanswerable` names, by the table.column that is empty, the questions that so have no answer.
    """
    traces = _with_siblings(store, thorough(store), unanswerable)
    rows = [row for rule in rules()["check"] for row in _rows(rule, traces)]
    rows += _unspoken(traces)
    table = Table("doctor", Rows(_TYPES, rows), DOCS)
    said = verdict(table)
    status: Status = "info" if said.startswith("fit to") else "warning"
    return replace(table, notes=(Note(status, f"{said}."),))


def verdict(diagnosis: Table) -> str:
    """Return in one line whether a run is fit to judge by, and why not, from what `diagnose` returned."""
    found = list(diagnosis.content.select("check", "bears_on", "verdict").iter_rows())

    def faults(about: str, judged: str) -> list[str]:
        return list(dict.fromkeys(_fault(check) for check, *told in found if told == [about, judged]))

    bad, warned, lacking = faults("numbers", "bad"), faults("numbers", "warn"), faults("answers", "warn")
    if bad:
        return f"not fit to judge by: {', '.join(bad)}" + (f"; with care: {', '.join(warned)}" if warned else "")
    if warned:
        return f"fit with care: {', '.join(warned)}"
    lacks = f", as far as it goes (lacks: {', '.join(lacking)})" if lacking else ""
    return f"fit to judge by{lacks}"


def title(check: str, key: str = "title") -> str:
    """Return what people call a check, or with the key `fault` what they call its finding."""
    return next(
        (rule.get(key, rule["title"]) for rule in rules()["check"] if rule["name"] == check), check.replace("_", " ")
    )


def _fault(check: str) -> str:
    return title(check, "fault")


def short(store: Store) -> tuple[Note, ...]:
    """Return the notes for every answer: what may change its numbers. It looks at a few short scans only."""
    traces = _with_siblings(store, quick(store), {})
    return (*_no_device(traces), *_doubts(traces))


def _no_device(traces: list[Facts]) -> Iterator[Note]:
    if any(facts["has_device"] for facts in traces):
        return
    if any(facts["truncated"] for facts in traces):
        yield Note(
            "warning",
            "The file was cut off, and before the cut there is no device work: work is the self time of CPU ops.",
        )
    else:
        yield Note("info", "No device was recorded: work is the self time of CPU ops.")


def _doubts(traces: list[Facts]) -> tuple[Note, ...]:
    phrases = list(dict.fromkeys(phrase for phrase in _riding(traces) if phrase))
    unlinked = _unlinked(traces)
    if not phrases:
        alone = f"{unlinked} (see unlinked_kernels): its roles come from kernel names and order."
        return (Note("warning", alone),) if unlinked else ()
    phrases += [f"{unlinked}, its roles come from kernel names and order"] if unlinked else []
    return (Note("warning", f"trace quality: {'; '.join(phrases)} (see `tracekit doctor`)."),)


def _riding(traces: list[Facts]) -> Iterator[str]:
    """Yield a phrase for each check whose finding is said beside every answer, of the trace that it is worst in."""
    for rule in rules()["check"]:
        if rule.get("rides", "unlinked") == "unlinked":
            continue
        worst = max((_case(rule, facts) for facts in traces), key=_badness)
        if worst.verdict in {"bad", "warn"}:
            share, count = text(worst.finding.share_frac or 0.0, FRACTION), worst.finding.count
            events = "1 event" if count == 1 else f"{count or 0:,} events"
            yield rule["rides"].format(share=share, count=count, events=events)


def _unlinked(traces: list[Facts]) -> str:
    """Return what share of all device time has no op, if it is worth saying."""
    kernels = [row for facts in traces for row in facts["kernels"]]
    total, alone = sum(row["ns"] for row in kernels), sum(row["ns"] for row in kernels if not row["has_op"])
    least = min(rule["warn"] for rule in rules()["check"] if rule.get("rides") == "unlinked")
    if not total or alone < least * total:
        return ""
    return f"{text(alone / total, FRACTION)} of device time has no op in the trace"


def _with_siblings(store: Store, traces: dict[int, Facts], unanswerable: Mapping[str, Sequence[str]]) -> list[Facts]:
    """Return the traces, each knowing all of them, what has no answer, and whether ranks were left out by choice."""
    every = list(traces.values())
    for facts in every:
        facts |= {"traces": every, "unanswerable": unanswerable, "is_part": bool(store.selection.ranks)}
    return every


def _function(name: str) -> Callable[[Facts], Finding]:
    rooms = (doctor_recording, doctor_device, doctor_ranks)
    found: Callable[[Facts], Finding] = next(getattr(room, name) for room in rooms if hasattr(room, name))
    return found


def _case(rule: Mapping[str, Any], facts: Facts) -> _Case:
    found = _function(rule["name"])(facts)
    figure = getattr(found, rule["figure"]) or 0
    reached = (level for level in ("bad", "warn") if level in rule and figure >= rule[level])
    fixed = (("unknown", not found.is_known), ("ok", found.is_fine), ("bad", found.is_bad))
    said = next((level for level, holds in fixed if holds), None) or next(reached, "ok")
    return _Case(facts, said, figure, found)


def _badness(case: _Case) -> tuple[int, float]:
    return -_RANKING.index(case.verdict), case.figure


def _rows(rule: Mapping[str, Any], traces: list[Facts]) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each verdict, the worst first, with the figures of the trace that is worst in it."""
    cases = [_case(rule, facts) for facts in traces]
    for said in _RANKING:
        alike = [case for case in cases if case.verdict == said]
        if alike:
            may_be_the_cut = rule["bears_on"] == "numbers" and rule["name"] != "read_whole"
            is_sound = not (may_be_the_cut and all(case.facts["truncated"] for case in alike))
            advice = rule["next"] if said in {"bad", "warn"} and is_sound else ""
            ask = rule.get("ask") if advice else None
            yield _row(rule["name"], rule["bears_on"], said, alike, advice, ask)


def _row(check: str, bears_on: str, said: str, alike: list[_Case], advice: str, ask: str | None) -> tuple[Any, ...]:
    worst = max(alike, key=lambda case: case.figure)
    found, rank = worst.finding, worst.facts["rank"]
    meaning = found.meaning
    if len({case.finding.meaning for case in alike}) > 1 and rank is not None:
        meaning = f"worst in rank {rank}: {meaning}"
    ranks = [case.facts["rank"] for case in alike if case.facts["rank"] is not None]
    value = None if found.value_ns is None else round(found.value_ns)
    numbers = (found.count, found.share_frac, value, found.ratio)
    return (check, doctor_ranks.ranks_text(ranks) or None, said, bears_on, *numbers, meaning, advice, ask)


def _unspoken(traces: list[Facts]) -> Iterator[tuple[Any, ...]]:
    """Yield a row for whatever else was noticed while loading, so that nothing is lost."""
    spoken = {name for rule in rules()["check"] for name in rule.get("quality", ())}
    found: dict[tuple[str, str], list[_Case]] = {}
    for facts in traces:
        for row in facts["quality"]:
            if row["check_name"] not in spoken:
                said = _BY_SEVERITY.get(row["severity"], "unknown")
                finding = Finding(with_offset(row), row["count"], row["share_frac"])
                case = _Case(facts, said, row["count"] or 0, finding)
                found.setdefault((row["check_name"], said), []).append(case)
    for (check, said), alike in found.items():
        yield _row(check, "numbers", said, alike, "", None)
