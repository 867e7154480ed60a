"""What the doctor finds between the ranks of a job, and in what the allocator wrote.

Owns the wording of these checks, as its sibling does for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analyses.doctor_finding import Finding, noticed, unknown
from tracekit.units import FRACTION, NANOSECONDS, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.analyses.doctor_scans import Facts


def ranks_missing(facts: Facts) -> Finding:
    """Count the ranks of the job whose traces are not in the run."""
    world, here = facts["world_size"], facts["traces"]
    if facts["is_part"]:
        return unknown("only some ranks are selected")
    if not world:
        return unknown("the trace does not say how many ranks the job has")
    missing = world - len(here)
    if missing <= 0:
        return Finding("every rank of the job is here" if world > 1 else "the job has one rank", 0)
    return Finding(f"{missing} of the job's {world} ranks are not here: waiting for them can't be told apart", missing)


def rank_steps(facts: Facts) -> Finding:
    """Tell whether all ranks recorded the same steps."""
    here = facts["traces"]
    if len(here) < 2:
        return Finding("one trace, nothing to compare", 0)
    numbers = [{step["number"] for step in other["steps"]} for other in here]
    shared, all_of_them = set.intersection(*numbers), set.union(*numbers)
    if shared == all_of_them:
        return Finding("all ranks recorded the same steps", 0)
    lone = len(all_of_them - shared)
    return Finding(f"{lone} of {len(all_of_them)} steps are not in every rank: sums over ranks mix them", lone)


def rank_clocks(facts: Facts) -> Finding:
    """Tell how far the ranks' clocks are apart, where that was found out."""
    here = facts["traces"]
    if len(here) < 2:
        return Finding("one trace, nothing to compare", 0)
    offsets = [other.get("clock_offset_ns") for other in here]
    known = [offset for offset in offsets if offset is not None]
    if len(known) < len(here):
        reason = next((other.get("clock_reason") for other in here if other.get("clock_reason")), None)
        return unknown(f"how far the ranks' clocks are apart was not found out{f': {reason}' if reason else ''}")
    apart = max(known) - min(known)
    return Finding(f"the ranks' clocks are {text(apart, NANOSECONDS)} apart", value_ns=apart)


def frees_alone(facts: Facts) -> Finding:
    """Weigh frees of memory that was allocated before the recording."""
    if not facts["has_memory"]:
        return unknown("memory was not recorded")
    frees = facts.get("frees", 0)
    alone = facts.get("frees_alone", 0) or sum(row["count"] for row in noticed(facts, ["free_without_allocation"]))
    share = alone / frees if frees else 0.0
    meaning = f"{alone:,} of {frees:,} frees ({text(share, FRACTION)}) end what was allocated before the recording"
    return Finding(meaning if alone else "every free has its allocation", alone, share)


def reserved_memory(facts: Facts) -> Finding:
    """Tell whether device memory comes with the allocator's own totals."""
    if not facts["has_memory"]:
        return unknown("memory was not recorded")
    samples = facts.get("device_samples", 0)
    if not samples:
        return unknown("no device memory was recorded")
    if facts["reserved_samples"]:
        return Finding("the allocator's totals are there", 0)
    return Finding(f"{samples:,} allocator rows carry no reserved total: fragmentation can't be seen", samples)


def ranks_text(ranks: Iterable[int]) -> str:
    """Return ranks as ranges: `0-3, 7`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
