"""What the doctor finds in device work: its launches, ops, clocks, overlaps and durations; one function a check.

Owns the wording. Bounds, order and advice lie in doctor.toml; whether a figure is out of bounds is not told here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analyses.doctor_finding import Finding, no_device, noticed, rule, spoken_for, unknown, with_offset
from tracekit.analyses.doctor_scans import rules
from tracekit.units import FRACTION, NANOSECONDS, text

if TYPE_CHECKING:
    from tracekit.analyses.doctor_scans import Facts


def device(facts: Facts) -> Finding:
    """Tell whether the device has a name."""
    if not facts["has_device"]:
        return no_device(facts)
    if facts["device_name"]:
        return Finding(facts["device_name"], 0)
    return Finding("the device has no name, so no peak rates can be looked up", 1)


def one_device(facts: Facts) -> Finding:
    """Count the devices that work ran on."""
    if not facts["kernels"]:
        return no_device(facts)
    devices = facts.get("devices", [])
    if len(devices) < 2:
        return Finding("all device work ran on one device", len(devices))
    names = ", ".join(map(str, devices))
    return Finding(f"work ran on devices {names}: device times add up over devices that ran at once", len(devices))


def launches_without_work(facts: Facts) -> Finding:
    """Count launches whose kernel is not in the trace, and tell whether recording stopped at some time."""
    lost, captured = facts.get("lost", 0), facts.get("captured", 0)
    if not (facts["has_device"] or lost or captured):
        return no_device(facts)
    also = f"; {captured:,} more were captured into a graph, which runs nothing" if captured else ""
    if not lost:
        return Finding(f"every launch has its kernel{also}", 0, 0.0)
    launches = lost + facts["working_launches"]
    share, after = lost / launches, facts["lost_after"]
    meaning = f"{lost:,} of {launches:,} launches ({text(share, FRACTION)}) lack their kernel{also}"
    bounds = rules()["scan"]
    if not facts["working_launches"]:
        return Finding(f"{meaning}: no device work was recorded at all", lost, share, is_bad=True)
    if after >= bounds["tail_frac"] * lost and after >= bounds["tail_launches_frac"] * launches:
        stopped = facts["last_working_ns"]
        meaning += f": none after {text(stopped, NANOSECONDS)} has one, the profiler's buffer was full"
        return Finding(meaning, lost, share, stopped, is_bad=True)
    if facts["lost_before"] >= bounds["tail_frac"] * lost:
        meaning += ", nearly all at the start of the recording"
    return Finding(meaning, lost, share)


def work_without_launch(facts: Facts) -> Finding:
    """Weigh device work that no launch in the trace put on the device, and that has no op either."""
    return _unlinked(facts, has_launch=False, what="has no launch in the trace")


def work_outside_ops(facts: Facts) -> Finding:
    """Weigh device work whose launch lies in no op."""
    return _unlinked(facts, has_launch=True, what="was launched outside every op")


def _unlinked(facts: Facts, *, has_launch: bool, what: str) -> Finding:
    if not facts["kernels"]:
        return no_device(facts)
    total = sum(row["ns"] for row in facts["kernels"])
    rows = [row for row in facts["kernels"] if not row["has_op"] and row["has_launch"] == has_launch]
    if not rows:
        return Finding(f"no device work {what}" if has_launch else "all device work has a launch or an op", 0, 0.0)
    pieces, spent = sum(row["pieces"] for row in rows), sum(row["ns"] for row in rows)
    share = spent / total if total else 0.0
    causes = ", ".join(
        f"{row['cause']}" + (f" {text(row['ns'] / total, FRACTION)}" if len(rows) > 1 and total else "")
        for row in sorted(rows, key=lambda row: -row["ns"])
    )
    meaning = f"{text(share, FRACTION)} of device time {what} ({causes})"
    return Finding(f"{meaning}: its roles come from kernel names and order", pieces, share, spent)


def external_ids(facts: Facts) -> Finding:
    """Weigh device work whose op is known by its External id alone, which old exporters got wrong."""
    if not facts["kernels"]:
        return no_device(facts)
    rows = [row for row in facts["kernels"] if row["has_op"] and not row["has_launch"]]
    if not rows:
        return Finding("no op is known by External id alone", 0, 0.0)
    pieces, total = sum(row["pieces"] for row in rows), sum(row["ns"] for row in facts["kernels"])
    share = sum(row["ns"] for row in rows) / total if total else 0.0
    meaning = f"{text(share, FRACTION)} of device time has its op by External id alone"
    if "epoch" not in facts["dialect"]:
        return Finding(f"{meaning}, which this dialect's ids allow", pieces, share, is_fine=True)
    return Finding(f"{meaning}, which in this dialect can be that of another op", pieces, share)


def repeated_correlations(facts: Facts) -> Finding:
    """Count calls and kernels, those of graphs aside, that share a correlation."""
    if not facts["kernels"]:
        return no_device(facts)
    calls, pieces = facts.get("repeated_calls", 0), facts.get("repeated_pieces", 0)
    if not calls + pieces:
        return Finding("each correlation names one call", 0)
    total = sum(row["ns"] for row in facts["kernels"])
    share = facts["repeated_ns"] / total if total else 0.0
    meaning = f"{calls:,} calls repeat the correlation of another, and {pieces:,} kernels share one outside of graphs"
    return Finding(f"{meaning}: their ops may be mistaken", calls + pieces, share)


def starts_before_launch(facts: Facts) -> Finding:
    """Weigh device work that starts before its own launch."""
    if not facts.get("linked"):
        return unknown("no device work has a launch") if facts["kernels"] else no_device(facts)
    early, share = facts["early"], facts["early"] / facts["linked"]
    if not early:
        return Finding("no kernel starts before its launch", 0, 0.0, 0)
    worst, usual = (text(facts[key], NANOSECONDS) for key in ("worst_lead_ns", "median_lead_ns"))
    meaning = f"{early:,} kernels ({text(share, FRACTION)}) start before their launch, by {usual} as a rule"
    return Finding(
        f"{meaning} and {worst} at worst: queue delays are wrong by that much", early, share, facts["worst_lead_ns"]
    )


def starts_late(facts: Facts) -> Finding:
    """Tell whether even the quickest start on the device comes long after its launch."""
    if not facts.get("linked"):
        return unknown("no device work has a launch") if facts["kernels"] else no_device(facts)
    least = max(0, facts["least_delay_ns"])
    quickest = f"the quickest kernel starts {text(least, NANOSECONDS)} after its launch"
    before = sum(row["pieces"] for row in facts["kernels"] if not row["has_launch"])
    if before:
        return Finding(
            f"{quickest}; {before:,} pieces of earlier work were queued before", before, value_ns=least, is_fine=True
        )
    return Finding(f"{quickest}{_late(least)}", value_ns=least)


def _late(least: int) -> str:
    if least < rule("starts_late")["warn"]:
        return ""
    return ": the clocks disagree, or work from before the recording held the device"


def stream_overlaps(facts: Facts) -> Finding:
    """Weigh pairs of kernels that overlap on one stream for longer than programmatic dependent launch explains."""
    if not facts["kernels"]:
        return no_device(facts)
    pairs, over = facts.get("pairs", 0), facts.get("overlaps", 0)
    usual = facts.get("usual_overlaps", 0)
    normal = f"; {usual:,} overlap by less than 4 µs, as dependent launches do" if usual else ""
    if not over:
        return Finding(f"no two kernels of a stream run at once{normal}", 0, 0.0, 0)
    worst = text(facts["worst_overlap_ns"], NANOSECONDS)
    meaning = f"{over:,} of {pairs:,} pairs of kernels overlap on one stream, by {worst} at most{normal}"
    return Finding(f"{meaning}: summed durations exceed busy time", over, over / pairs, facts["overlap_ns"])


def zero_durations(facts: Facts) -> Finding:
    """Weigh device work that took no time."""
    if not facts["kernels"]:
        return no_device(facts)
    zeros, pieces = (sum(row[key] for row in facts["kernels"]) for key in ("zeros", "pieces"))
    meaning = f"{zeros:,} of {pieces:,} pieces of device work last 0 ns, and count for nothing"
    return Finding(meaning if zeros else "all device work lasts some time", zeros, zeros / pieces)


def impossible_durations(facts: Facts) -> Finding:
    """Count durations that are negative, missing, longer than an hour, or than all the rest of the trace."""
    names = spoken_for("impossible_durations")
    parts = [f"{row['count']:,}: {with_offset(row)}" for row in noticed(facts, names)]
    endless = facts.get("endless_ops", 0) + sum(row["endless"] for row in facts["kernels"])
    count = sum(row["count"] for row in noticed(facts, names)) + endless
    if endless:
        parts.append(f"{endless:,} last longer than an hour.")
    longest = max((row["longest_ns"] or 0 for row in facts["kernels"]), default=0)
    others = sum(row["ns"] for row in facts["kernels"]) - longest + facts.get("host_ns", 0)
    if not endless and longest > max(others, rules()["scan"]["long_ns"]):
        count += 1
        parts.append(f"One kernel lasts {text(longest, NANOSECONDS)}, longer than all else together.")
    return Finding(" ".join(parts) or "every duration can be true", count)
