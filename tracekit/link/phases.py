"""Phases, kinds, steps and the forward op of each backward op.

Owns what names and sequence numbers say about when in a step an op ran; the patterns lie in phases.toml.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import polars as pl


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


def add_phases(ops: pl.DataFrame) -> pl.DataFrame:
    """Add `kind`, `phase` and `forward_op_id` to nested ops.

    A backward op's forward op is the last one outside backward to start with its sequence number: that op made
    the autograd node (wrappers before it carry the same number). Ops inside a backward op inherit it.
    """
    names, parents = ops["name"].to_list(), ops["parent_id"].to_list()
    phases: list[str] = []
    for name, parent in zip(names, parents, strict=True):
        phases.append(phase_of(name) or (phases[parent] if parent is not None else "forward"))
    kinds = [kind_of(name, is_annotation=flag) for name, flag in zip(names, ops["is_annotation"], strict=True)]
    forward = _forward_ops(ops["sequence_number"].to_list(), parents, kinds, phases)
    return ops.with_columns(
        pl.Series("kind", kinds, pl.String),
        pl.Series("phase", phases, pl.String),
        pl.Series("forward_op_id", forward, pl.Int64),
    )


def _forward_ops(
    sequence: list[int | None], parents: list[int | None], kinds: list[str], phases: list[str]
) -> list[int | None]:
    latest: dict[int, int] = {}
    found: list[int | None] = [None] * len(sequence)
    for row, value in enumerate(sequence):
        parent = parents[row]
        if phases[row] in {"forward", "recompute"}:
            if value is not None:
                latest[value] = row
            continue
        inherited = found[parent] if parent is not None else None
        found[row] = latest.get(value, inherited) if value is not None and kinds[row] == "autograd" else inherited
    return found


def inherit_modules(ops: pl.DataFrame) -> pl.DataFrame:
    """Give backward ops the module of their forward op; others keep the module whose frame they ran in."""
    modules = ops["module_id"].to_list()
    forward = ops["forward_op_id"].to_list()
    inherited = [modules[origin] if origin is not None else own for own, origin in zip(modules, forward, strict=True)]
    return ops.with_columns(pl.Series("module_id", inherited, pl.Int64))


def find_steps(ops: pl.DataFrame, dur_ns: int) -> pl.DataFrame:
    """Return the profiler's steps, or one that is the whole trace where none was marked.

    A step is partial if it was unfinished when recording stopped or holds no op, and cold if it is the first
    of several and took much longer than the median of the others.
    """
    marks = _marks(ops)
    rows: list[tuple[int | None, str, int, int, bool]] = []
    parents = set(ops["parent_id"].drop_nulls().to_list())
    for mark in marks.select("op_id", "name", "start_ns", "dur_ns", "is_finished").iter_rows(named=True):
        partial = not mark["is_finished"] or mark["op_id"] not in parents
        number = int(mark["name"].replace("=", "#").rpartition("#")[2])
        rows.append((number, mark["name"], mark["start_ns"], mark["dur_ns"], partial))
    rows = rows or [(None, "whole trace", 0, dur_ns, False)]
    steps = pl.DataFrame(
        rows,
        orient="row",
        schema={
            "number": pl.Int64,
            "name": pl.String,
            "start_ns": pl.Int64,
            "dur_ns": pl.Int64,
            "is_partial": pl.Boolean,
        },
    )
    return steps.with_row_index("step_id").cast({"step_id": pl.Int64}).with_columns(_is_cold(steps))


def _marks(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that mark steps: those of the first kind in phases.toml that the trace holds."""
    for pattern in rules()["step"]["marks"]:  # an op, not an annotation, in 2021
        marks = ops.filter(pl.col("name").str.contains(f"^(?:{pattern})$"))
        if marks.height:
            break
    return marks


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
