"""What the doctor finds in the file, in what was recorded, and in what recording cost: one function a check.

Owns the wording. Bounds, order and advice lie in doctor.toml; whether a figure is out of bounds is not told here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analyses.doctor_finding import Finding, median, no_device, noticed, rule, spoken_for, unknown, with_offset
from tracekit.analyses.doctor_scans import rules
from tracekit.units import FRACTION, NANOSECONDS, text

if TYPE_CHECKING:
    from tracekit.analyses.doctor_scans import Facts

_NO_STEPS = "no step is marked, or none is whole"


def read_whole(facts: Facts) -> Finding:
    """Tell whether the file was cut off."""
    cuts = noticed(facts, spoken_for("read_whole"))
    if not (facts["truncated"] or cuts):
        return Finding("the file was read to its end", 0)
    cuts += noticed(facts, spoken_for("file_undamaged"))
    said = " ".join(with_offset(row) for row in cuts) or "The file was cut off; what came after is missing."
    return Finding(said, max(1, sum(row["count"] or 1 for row in cuts)))


def file_undamaged(facts: Facts) -> Finding:
    """Tell of damage to a file whose text has its end all the same."""
    damage = noticed(facts, spoken_for("file_undamaged"))
    if facts["truncated"] or not damage:
        return Finding("cut off, as said above" if damage else "what the file is packed in is whole", 0)
    return Finding(" ".join(map(with_offset, damage)), sum(row["count"] or 1 for row in damage))


def end_marker(facts: Facts) -> Finding:
    """Tell whether the profiler's own end mark is there; nothing can be told where it is not."""
    if facts["truncated"]:
        return unknown("it was cut off with the rest of the file")
    if noticed(facts, ["no_end_marker"]):
        return unknown("there is none: a tool rewrote the file, or it was cut and closed again")
    return Finding("the profiler's own end marker is there", 0)


def events_lost(facts: Facts) -> Finding:
    """Count the events that could not be read, by reason."""
    return _by_reason(facts, "lost_event", "lost")


def events_repaired(facts: Facts) -> Finding:
    """Count the events that were read only after a repair, by reason."""
    return _by_reason(facts, "repaired_event", "repaired")


def _by_reason(facts: Facts, name: str, what: str) -> Finding:
    rows = noticed(facts, [name])
    count = sum(row["count"] or 0 for row in rows)
    if not count:
        return Finding(f"no event was {what}", 0, 0.0)
    lost = sum(row["count"] or 0 for row in noticed(facts, ["lost_event"]))
    share = min(1.0, count / max(1, (facts["events"] or 0) + lost))
    reasons = " ".join(f"{row['count']:,}: {with_offset(row)}" for row in rows)
    return Finding(f"{_events(count)} {what}. {reasons}", count, share)


def dialect(facts: Facts) -> Finding:
    """Tell what the exporter's dialect can't say."""
    if facts["truncated"]:
        return unknown("what tells was cut off with the rest of the file")
    name = facts["dialect"]
    known = rules()["dialects"].get(name)
    if known is None:
        return unknown(f"nothing is known of dialect {name}")
    lacks = f": {known['lacks']}" if known["lacks"] else ", which times to the ns"
    return Finding(f"{name}{lacks}", int(known["verdict"] != "ok"))


def shapes(facts: Facts) -> Finding:
    """Tell whether shapes were recorded, and what is lost without."""
    return _flag(facts, "shapes", recorded=bool(facts["has_shapes"]))


def stacks(facts: Facts) -> Finding:
    """Tell whether Python stacks were recorded, and what is lost without."""
    return _flag(facts, "stacks", recorded=bool(facts["has_stacks"]))


def modules(facts: Facts) -> Finding:
    """Tell whether nn.Module rows were recorded, and what is lost without."""
    return _flag(facts, "modules", recorded=bool(facts["has_modules"]))


def memory_rows(facts: Facts) -> Finding:
    """Tell whether allocator rows were recorded, and what is lost without."""
    return _flag(facts, "memory_rows", recorded=bool(facts["has_memory"]))


def _flag(facts: Facts, name: str, *, recorded: bool) -> Finding:
    if recorded:
        return Finding("recorded", 0)
    found = rule(name)
    questions = sorted(
        {
            question
            for column, asking in facts["unanswerable"].items()
            if column.startswith(tuple(found["columns"]))
            for question in asking
        }
    )
    lost = f" (no answer: {', '.join(questions)})" if questions else ""
    return Finding(f"not recorded, so {found['costs']}{lost}", 1)


def step_marks(facts: Facts) -> Finding:
    """Tell whether there are several steps to compare."""
    steps = len(facts["steps"])
    if steps > 1:
        return Finding(f"{steps:,} steps", steps, ratio=0.0)
    meaning = (
        "one step: there is no spread, and it may be the cold one"
        if steps
        else "no step is marked: the whole trace is one, warm-up included"
    )
    return Finding(meaning, steps, ratio=1.0)


def partial_steps(facts: Facts) -> Finding:
    """Count the steps that are not whole."""
    steps = facts["steps"]
    if not steps:
        return unknown(_NO_STEPS)
    partial = sum(step["is_partial"] for step in steps)
    share = partial / len(steps)
    whole = (
        "all steps are whole"
        if not partial
        else f"{partial} of {len(steps)} steps: nothing was recorded in them, or recording stopped there"
    )
    return Finding(whole, partial, share)


def cold_first_step(facts: Facts) -> Finding:
    """Compare the first step with the median of the others."""
    whole = [step["dur_ns"] for step in facts["steps"] if not step["is_partial"]]
    if len(whole) < 2:
        return unknown("there is no second whole step to compare with" if whole else _NO_STEPS)
    others = median(whole[1:])
    ratio, share = whole[0] / max(1, others), whole[0] / max(1, sum(whole))
    meaning = f"the first step took {ratio:.2f} times the {text(others, NANOSECONDS)} of the others"
    if ratio >= 1:
        meaning += f", {text(share, FRACTION)} of all steps' time"
    return Finding(meaning, len(whole), share, whole[0], ratio)


def unfinished_ops(facts: Facts) -> Finding:
    """Weigh the ops that recording cut."""
    if not facts.get("ops"):
        return unknown("no ops were recorded")
    count = facts["unfinished"]
    meaning = f"{count:,} ops were still running when recording stopped: their durations are too short"
    return Finding(meaning if count else "every op ended", count, count / facts["ops"])


def crossing_ops(facts: Facts) -> Finding:
    """Weigh ops that end after the op they started in."""
    if not facts.get("ops"):
        return unknown("no ops were recorded")
    count = sum(row["count"] for row in noticed(facts, ["overlapping_op"]))
    share = count / facts["ops"]
    meaning = f"{count:,} ops end after the op they started in; their time counts for the inner one"
    return Finding(meaning if count else "ops nest", count, share)


def profiler_overhead(facts: Facts) -> Finding:
    """Weigh the time that the profiler itself says it took."""
    spent, whole = facts.get("overhead_ns", 0.0), facts["dur_ns"]
    if not whole:
        return unknown("nothing has a duration")
    share = spent / whole
    meaning = f"the profiler's own work took {text(spent, NANOSECONDS)}, {text(share, FRACTION)} of the trace"
    said = meaning if spent else "the profiler wrote down no work of its own"
    return Finding(said, facts.get("overheads", 0), share, spent)


def recording_inflation(facts: Facts) -> Finding:
    """Compare the steps with the same ones when nothing was recorded."""
    plain = facts["unprofiled_step_ns"]
    whole = [step["dur_ns"] for step in facts["steps"] if not step["is_partial"]]
    slows = ", and stacks, which slow the host, were recorded" if facts["has_stacks"] else ""
    if not plain:
        return unknown(f"no step was timed without the profiler{slows}")
    if not whole:
        return unknown(_NO_STEPS)
    ratio = median(whole) / plain
    return Finding(
        f"a step took {ratio:.2f} times the {text(plain, NANOSECONDS)} that it took without the profiler", ratio=ratio
    )


def idle_device(facts: Facts) -> Finding:
    """Tell whether the device's idle time can be the profiler's doing."""
    if not facts.get("span_ns"):
        return no_device(facts)
    idle = 1 - facts["busy_ns"] / facts["span_ns"]
    waited = f"the device was idle for {text(idle, FRACTION)} of the time from first to last work"
    slowing = [name for name, key in (("stacks", "has_stacks"), ("shapes", "has_shapes")) if facts[key]]
    inflation = recording_inflation(facts).ratio
    if inflation is not None and inflation < rule("recording_inflation")["warn"]:
        return Finding(f"{waited}, which recording did not cause", share_frac=idle, is_fine=True)
    if not slowing or idle < rule("idle_device")["warn"]:
        return Finding(waited, share_frac=idle, is_fine=True)
    cause = f"{' and '.join(slowing)} were recorded, which slows the host"
    return Finding(f"{waited}, and {cause}: launch-bound may be the profiler's doing", share_frac=idle)


def _events(count: int) -> str:
    return "1 event was" if count == 1 else f"{count:,} events were"
