"""What an exported trace holds, found by parsing it again, and whether that is a whole recording.

Owns the checks and the line that says how they went. Must not import torch.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from .facts import STEP_MARK

_DEVICE_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


@dataclass(frozen=True)
class Contents:
    """Counts of a trace's rows by kind, the recording flags it bears, and why it is no JSON, if it isn't."""

    counts: Counter[str]
    flags: frozenset[str] = frozenset()
    damage: str = ""

    def lacks(self, steps: int, *, has_device: bool) -> list[str]:
        """Return what is missing in a whole recording of so many steps."""
        if self.damage:
            return [self.damage]
        rows = self.counts
        missing = [f"{name} rows" for name in ("op", "memory") if not rows[name]]
        if has_device and not rows["kernel"]:
            missing.append("device rows")
        problems = [f"no {name}" for name in missing]
        if rows["step"] != steps:
            problems.insert(0, f"{rows['step']} of {steps} steps")
        if rows["unfinished"]:
            problems.append(f"{rows['unfinished']:,} unfinished ops")
        return problems

    def __str__(self) -> str:
        """Return the counts and what was recorded beside the ops, in a few words."""
        recorded = [
            name for name, flag in (("shapes", "record_shapes"), ("stacks", "with_stack")) if flag in self.flags
        ]
        recorded += [name for name in ("modules", "memory", "kernels") if self.counts[name.removesuffix("s")]]
        return f"{_counted(self.counts['step'], 'step')}, {self.counts['event']:,} events, {' '.join(recorded)}"


def examine(text: str) -> Contents:
    """Parse a trace and count its rows; memory stays near the text's size, since no row is kept."""
    counts: Counter[str] = Counter()

    def count(item: dict[str, Any]) -> dict[str, Any] | None:
        if "ph" not in item:
            return item
        counts.update(_kinds(item))
        return None

    try:
        head = json.loads(text, object_hook=count)
    except (ValueError, RecursionError) as error:
        is_cut = not text.rstrip().endswith("}")
        return Contents(counts, damage="it ends early" if is_cut else f"it is not valid JSON ({error})")
    return Contents(counts, frozenset(head))


def _kinds(row: dict[str, Any]) -> list[str]:
    """Return what a row counts as."""
    category, name, kinds = row.get("cat"), row.get("name", ""), ["event"]
    if category == "user_annotation" and name.startswith(STEP_MARK):
        kinds.append("step")
    if category in _DEVICE_WORK:
        kinds.append("kernel")
    if category == "cpu_op":
        kinds.append("op")
        if row.get("args", {}).get("finished") is False:
            kinds.append("unfinished")
    if name.startswith("nn.Module: "):
        kinds.append("module")
    if name == "[memory]":
        kinds.append("memory")
    return kinds


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
