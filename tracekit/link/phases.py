"""Phases, kinds, steps and the forward op of each backward op.

Owns what names, sequence numbers and arrows say about when in a step an op ran; the patterns lie in phases.toml.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import polars as pl

from tracekit.link.arrows import forward_ops
from tracekit.link.nesting import nearest

Thread = tuple[str | None, str | None]
_FORWARD = frozenset({"forward", "recompute"})


@cache
def rules() -> dict[str, Any]:
    """Return phases.toml."""
    return tomllib.loads(files("tracekit.link").joinpath("phases.toml").read_text(encoding="utf-8"))


@cache
def phase_of(name: str) -> str | None:
    """Return the phase that an op's name starts, or None where it keeps its parent's."""
    return next((rule["phase"] for rule in rules()["phase"] if re.fullmatch(rule["pattern"], name)), None)


@cache
def kind_of(name: str, *, is_annotation: bool) -> str:
    """Return the kind of an op row: autograd, collective, region, annotation or op."""
    found = next((rule["kind"] for rule in rules()["kind"] if re.fullmatch(rule["pattern"], name)), None)
    return found or ("annotation" if is_annotation else "op")


def add_phases(ops: pl.DataFrame, frames: pl.DataFrame, arrows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Add `kind`, `phase` and `forward_op_id` to nested ops, of which each knows the Python frame that it ran in.

    A backward op's forward op is the last one outside backward to start with its sequence number: that op made
    the autograd node (wrappers before it carry the same number; each thread counts for itself). Where a number leads
    to none, an arrow may, as `forward_ops` has them; how many lead nowhere is returned too. Ops inside a backward op
    inherit its forward op. What a backward op computes anew of the forward pass (activation checkpointing) is a phase
    of its own.
    """
    names, parents = ops["name"].to_list(), ops["parent_id"].to_list()
    flags = ops["is_annotation"].to_list()
    known = {name: [kind_of(name, is_annotation=flag) for flag in (False, True)] for name in set(names)}
    kinds = [known[name][flag] for name, flag in zip(names, flags, strict=True)]
    phases = _phases(names, parents, _recomputed(ops, kinds, frames))
    pointed, loose = _pointed_at(arrows, ops, kinds, phases)
    forward = _forward_ops(ops, kinds, phases, pointed)
    phased = ops.with_columns(
        pl.Series("kind", kinds, pl.String),
        pl.Series("phase", phases, pl.String),
        pl.Series("forward_op_id", forward, pl.Int64),
    )
    return phased, loose


def _phases(names: list[str], parents: list[int | None], recomputed: set[int]) -> list[str]:
    started = {name: phase_of(name) for name in set(names)}
    phases: list[str] = []
    for row, (name, parent) in enumerate(zip(names, parents, strict=True)):
        phase = started[name] or (phases[parent] if parent is not None else "forward")
        phases.append("recompute" if phase == "backward" and row in recomputed and not started[name] else phase)
    return phases


def _recomputed(ops: pl.DataFrame, kinds: list[str], frames: pl.DataFrame) -> set[int]:
    """Return the ops that run again what the forward pass ran, if they lie in a backward op.

    The Python frame around them says so or, where none was recorded, an op among them that no derivative calls.
    """
    pattern = rules()["recompute"]["frame"]
    names = frames["name"]
    chosen = names.is_in([name for name in names.unique() if re.fullmatch(pattern, name)]).to_numpy()
    found: set[int] = set()
    if chosen.any():
        inside = np.flatnonzero(nearest(frames["parent_id"].fill_null(-1).to_numpy(), chosen) >= 0)
        found = set(ops.filter(pl.col("frame_id").is_in(inside.tolist()))["op_id"].to_list())
    return found | _recomputed_without_frames(ops, kinds)


def _recomputed_without_frames(ops: pl.DataFrame, kinds: list[str]) -> set[int]:
    """Return what lies in an autograd node before its last layer op: derivatives call none, so it is run again."""
    layers = set(rules()["recompute"]["layers"])
    made = pl.col("name").is_in(list(layers)) & pl.col("sequence_number").is_not_null() & pl.col("frame_id").is_null()
    candidates = ops.filter(made & (pl.col("fwd_thread_id") == 0))
    if candidates.is_empty() or "autograd" not in kinds:
        return set()
    parents, starts = ops["parent_id"].to_list(), ops["start_ns"].to_list()
    ends: dict[int, int] = {}
    for row, end in candidates.select("op_id", pl.col("start_ns") + pl.col("dur_ns")).iter_rows():
        node = parents[row]
        while node is not None and kinds[node] != "autograd":
            node = parents[node]
        if node is not None:
            ends[node] = max(ends.get(node, end), end)
    return {row for row, parent in enumerate(parents) if parent in ends and starts[row] < ends[parent]}


class _Forward:
    """Forward ops by sequence number, each thread's numbers for themselves."""

    def __init__(self) -> None:
        self._latest: dict[int, dict[Thread, int]] = {}
        self._threads: dict[int | None, Counter[Thread]] = defaultdict(Counter)

    def add(self, number: int, thread: Thread, row: int) -> None:
        own = self._latest.setdefault(number, {})
        own.pop(thread, None)  # so that the last one added is the last in order
        own[thread] = row

    def find(self, number: int, forward_thread: int | None) -> int | None:
        """Return the last op with a number, of the thread that the profiler numbers so if several have one.

        Which thread that is other backward ops tell, whose number only one thread has.
        """
        own = self._latest.get(number, {})
        known = self._threads[forward_thread]
        if len(own) == 1:
            known[next(iter(own))] += 1
        elif own and (fitting := [thread for thread in own if known[thread]]):
            return own[max(fitting, key=lambda thread: known[thread])]
        return next(reversed(own.values()), None)


def _pointed_at(
    arrows: pl.DataFrame, ops: pl.DataFrame, kinds: list[str], phases: list[str]
) -> tuple[dict[int, int], int]:
    """Return forward ops by autograd node as arrows have them, and how many arrows lead nowhere.

    An arrow ends at the node; the engine's call of that node around it has the same forward op.
    """
    if arrows.is_empty():
        return {}, 0
    is_node = pl.Series(kinds, dtype=pl.String) == "autograd"
    is_forward = pl.Series(phases, dtype=pl.String).is_in(_FORWARD)
    found, loose = forward_ops(arrows, ops, is_node.to_numpy(), is_forward.to_numpy())
    nodes = ops.select("name", "parent_id", node="op_id")[pl.Series(list(found), dtype=pl.Int64)]
    nodes = nodes.with_columns(outer=ops["name"].gather(nodes["parent_id"]))
    calls = nodes.filter(pl.col("outer") == rules()["engine"]["caller"] + pl.col("name"))
    return {call: found[node] for call, node in calls.select("parent_id", "node").iter_rows()} | found, loose


def _forward_ops(ops: pl.DataFrame, kinds: list[str], phases: list[str], pointed: dict[int, int]) -> list[int | None]:
    known = _Forward()
    found: list[int | None] = []
    columns = (ops[name].to_list() for name in ("sequence_number", "fwd_thread_id", "parent_id", "pid", "tid"))
    for row, (number, forward_thread, parent, pid, tid) in enumerate(zip(*columns, strict=True)):
        if phases[row] in _FORWARD:
            if number is not None:
                known.add(number, (pid, tid), row)
            found.append(None)
            continue
        origin = known.find(number, forward_thread) if number is not None and kinds[row] == "autograd" else None
        origin = pointed.get(row) if origin is None else origin
        found.append(found[parent] if origin is None and parent is not None else origin)
    return found


def inherit_modules(ops: pl.DataFrame) -> pl.DataFrame:
    """Give backward ops the module of their forward op; others keep the module whose frame they ran in."""
    inherited = pl.col("module_id").gather(pl.col("forward_op_id"))
    return ops.with_columns(pl.when(pl.col("forward_op_id").is_null()).then("module_id").otherwise(inherited))


def number_steps(marks: pl.DataFrame, origin_ns: int, dur_ns: int) -> pl.DataFrame:
    """Return the profiler's steps from the rows that mark them, or one that is the whole trace where none does.

    Of several kinds of marks in phases.toml the first one that the trace holds counts. `is_partial` says only
    whether a step was unfinished when recording stopped; `finish_steps` knows more.
    """
    for pattern in rules()["step"]["marks"]:  # an op, not an annotation, in 2021
        chosen = marks.filter(pl.col("name").str.contains(f"^(?:{pattern})$"))
        if chosen.height:
            break
    rows: list[tuple[int | None, str, str | None, str | None, int, int, bool]] = [
        (int(name.replace("=", "#").rpartition("#")[2]), name, pid, tid, start - origin_ns, dur, not is_finished)
        for name, pid, tid, start, dur, is_finished in chosen.sort("ts_ns", "dur_ns", "name").iter_rows()
    ]
    rows = rows or [(None, "whole trace", None, None, 0, dur_ns, False)]
    return pl.DataFrame(rows, orient="row", schema=_STEP).with_row_index("step_id").cast({"step_id": pl.Int64})


_STEP = {
    "number": pl.Int64,
    "name": pl.String,
    "pid": pl.String,
    "tid": pl.String,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "is_partial": pl.Boolean,
}


def working_steps(steps: pl.DataFrame, ops: pl.DataFrame) -> set[int]:
    """Return the ids of the steps whose mark holds one of these linked ops."""
    holding = ops.join(ops.select(pl.col("parent_id").alias("op_id")).unique(), on="op_id", how="semi")
    keys = ["name", "pid", "tid", "start_ns", "dur_ns"]
    return set(steps.join(holding, on=keys, how="semi", nulls_equal=True)["step_id"].to_list())


def finish_steps(steps: pl.DataFrame, working: set[int]) -> pl.DataFrame:
    """Mark partial and cold steps. `working` are those in which an op ran.

    A step is partial if it was unfinished when recording stopped or holds no op, and cold if it is the first
    of several and took much longer than the median of the others.
    """
    if steps["number"][0] is not None:
        idle = ~pl.col("step_id").is_in(list(working))
        steps = steps.with_columns(pl.col("is_partial") | idle)
    return steps.with_columns(_is_cold(steps)).drop("pid", "tid")


def _is_cold(steps: pl.DataFrame) -> pl.Series:
    whole = steps.with_row_index().filter(~pl.col("is_partial"))
    flags = [False] * steps.height
    if whole.height > 1 and whole["index"][0] == 0:
        others = float(whole["dur_ns"][1:].median() or 0)  # type: ignore[arg-type]
        flags[0] = whole["dur_ns"][0] > rules()["step"]["cold_ratio"] * others
    return pl.Series("is_cold", flags, pl.Boolean)


def steps_of(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Return for each row, sorted by start, the id of the step in which it starts, or null."""
    marks = steps.select("step_id", pl.col("start_ns"), (pl.col("start_ns") + pl.col("dur_ns")).alias("stop_ns")).sort(
        "start_ns"
    )
    hit = rows.select("start_ns").join_asof(marks, on="start_ns", strategy="backward")
    # The whole trace as one step has no end to fall outside of.
    inside = pl.col("start_ns") < pl.col("stop_ns") if steps["number"][0] is not None else pl.lit(value=True)
    return hit.select(pl.when(inside).then(pl.col("step_id")).alias("step_id"))["step_id"]
