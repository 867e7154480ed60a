"""Sequences of work for order to read: the ops of one thread, the kernels of one replay or one stream.

Owns which ops and kernels are one piece of work, and what of it is known already; what order tells is order.py's.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from tracekit.attention.knowledge import family_of, meaning_of
from tracekit.attention.roles.cores import Unit, chains_of
from tracekit.attention.roles.order import Finding, is_backward_kernel, is_sum_of_rows, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.attention.roles.cores import Shape

UNSAID = frozenset({"other", "copy", "unlinked"})
"""Roles that leave room for what order tells."""
_SIZED = {"gemm", "bmm", "softmax", "attention"}
_AROUND = 3
"""A kernel is known by so many before it and behind it."""
_CORES = {"attention", "softmax"}


def found_in_ops(ops: pl.DataFrame, roles: Sequence[str]) -> dict[int, Finding]:
    """Return by op what order tells of it, given the roles that are known; ops are numbered in order of start.

    What is told of an op is told of all below it.
    """
    names = ops["name"].to_list()
    actions = {name: _action(name) for name in set(names)}
    if not {"gemm", "bmm"} & set(actions.values()) or not _CORES & set(actions.values()):
        return {}
    units, unit_of = _units(ops, names, actions, roles)
    told: dict[int, Finding] = {}
    for sequence in _threads(ops, units):
        told.update({sequence[place].row: finding for place, finding in read(sequence).items()})
    return {row: told[unit] for row, unit in enumerate(unit_of) if unit in told}


def chains_in_ops(ops: pl.DataFrame) -> list[tuple[Unit, Unit, Unit]]:
    """Return the chains that make an attention, as the ops that make scores, take their softmax and apply them."""
    names = ops["name"].to_list()
    actions = {name: _action(name) for name in set(names)}
    if not {"bmm", "softmax"} <= set(actions.values()):
        return []
    units, _ = _units(ops, names, actions, ["other"] * len(names))
    return [chain for sequence in _threads(ops, units) for chain in chains_of(sequence)]


def _action(name: str) -> str | None:
    """Return what an op does; one that stands for a whole attention is one, however it goes about it."""
    meaning = meaning_of(name)
    return "attention" if meaning.action is None and meaning.place == "attention" else meaning.action


def _units(
    ops: pl.DataFrame, names: Sequence[str], actions: Mapping[str, str | None], roles: Sequence[str]
) -> tuple[list[Unit], list[int]]:
    """Return the outermost ops that do something, in order of start, and for each op the one it belongs to, or -1."""
    parents, phases, dims = (ops[name].to_list() for name in ("parent_id", "phase", "input_dims"))
    unit_of = [-1] * len(names)
    units = []
    for row, (name, parent) in enumerate(zip(names, parents, strict=True)):
        if parent is not None and unit_of[parent] >= 0:
            unit_of[row] = unit_of[parent]
            continue
        action = actions[name]
        if action is None or phases[row] == "optimizer":
            continue
        unit_of[row] = row
        shapes = shapes_of(dims[row]) if dims[row] and (action in _SIZED or is_sum_of_rows(name)) else ()
        known = None if roles[row] in UNSAID else roles[row]
        units.append(Unit(row, name, action, known, shapes, phases[row] == "backward"))
    return units, unit_of


def _threads(ops: pl.DataFrame, units: Iterable[Unit]) -> list[list[Unit]]:
    """Return the units of each thread; those of a thread that only runs backward join the busiest of its process."""
    pids, tids = ops["pid"].to_list(), ops["tid"].to_list()
    by_thread: dict[tuple[str, str], list[Unit]] = defaultdict(list)
    for unit in units:
        by_thread[pids[unit.row], tids[unit.row]].append(unit)
    busy = {thread: sum(not unit.is_backward for unit in own) for thread, own in by_thread.items()}
    joined: dict[tuple[str, str], list[Unit]] = defaultdict(list)
    for thread, own in by_thread.items():
        main = max((each for each in by_thread if each[0] == thread[0]), key=lambda each: (busy[each], each))
        joined[thread if busy[thread] else main] += own
    return [sorted(own) for own in joined.values()]


@cache
def shapes_of(dims: str) -> tuple[Shape, ...]:
    """Return the shapes of an op's inputs; what is no tensor has none."""
    try:
        read_dims: list[Any] = msgspec.json.decode(dims)
    except msgspec.DecodeError:
        return ()
    return tuple(
        tuple(one) if isinstance(one, list) and all(isinstance(size, int) for size in one) else () for one in read_dims
    )


def found_in_kernels(kernels: pl.DataFrame, roles: Sequence[str]) -> dict[int, Finding]:
    """Return by kernel, numbered from 0, what order tells of it, given the roles that are known.

    Read are the kernels that one launch replays and, on each stream, those that follow one another without an op. Where
    a model is captured in pieces with the attention between them, the stream is read as a whole for what its replays
    don't tell by themselves.
    """
    names = kernels["name"].to_list()
    actions = {name: family.action if (family := family_of(name)) else None for name in set(names)}
    if "gemm" not in actions.values() or not _CORES & set(actions.values()):
        return {}
    told: dict[int, Finding] = {}
    for rows in (*_replays(kernels), *_orphans(kernels)):
        units = _passes([_kernel_unit(row, names[row], actions[names[row]], roles[row]) for row in rows])
        told.update({rows[place]: finding for place, finding in read(units).items()})
    for rows, replayed in _streams_of_replays(kernels):
        units = _passes([_kernel_unit(row, names[row], actions[names[row]], roles[row]) for row in rows])
        for place, finding in read(units).items():
            if replayed[place]:
                told.setdefault(rows[place], finding)
    return told


def found_elsewhere(kernels: pl.DataFrame, roles: Sequence[str]) -> dict[int, Finding]:
    """Return by kernel without an op what kernels of the same names in the same order, which have one, are for.

    A model's layers repeat: a kernel among the same neighbours on its stream does the same, if all such agree.
    """
    has_op = kernels["op_id"].is_not_null().to_list()
    lost = {row for row, role in enumerate(roles) if not has_op[row] and role in UNSAID}
    if not lost or not any(has_op):
        return {}
    contexts = _contexts(kernels)
    known: dict[tuple[str | None, ...], set[str]] = defaultdict(set)
    for row, context in contexts.items():
        if has_op[row]:
            known[context].add(roles[row])
    told = {}
    for row in lost:
        found = known.get(contexts[row], set())
        if len(found) == 1 and not found & UNSAID:
            told[row] = Finding(next(iter(found)), "kernels of the same names in the same order, with an op, have it")
    return told


def _contexts(kernels: pl.DataFrame) -> dict[int, tuple[str | None, ...]]:
    """Return for each kernel the names of those around it on its stream, itself in the middle."""
    rows = kernels.with_row_index("row").sort("device", "stream", "start_ns", "kernel_id", nulls_last=True)
    around = [
        pl.col("name").shift(-step).over("device", "stream").alias(f"at_{step}")
        for step in range(-_AROUND, _AROUND + 1)
    ]
    return {row: tuple(names) for row, *names in rows.select("row", *around).iter_rows()}


def _passes(units: list[Unit]) -> list[Unit]:
    """Return units with all of a backward pass marked as such: what lies between two cores that are, and after them."""
    found = []
    is_backward = False
    for unit in units:
        if unit.action in _CORES:
            is_backward = unit.is_backward
        found.append(unit._replace(is_backward=True) if is_backward and not unit.is_backward else unit)
    return found


def _replays(kernels: pl.DataFrame) -> list[list[int]]:
    """Return the kernels of each launch that has several, in order of start."""
    rows = kernels.with_row_index("row").filter(pl.col("launch_id").is_not_null()).sort("start_ns", "kernel_id")
    groups = rows.group_by("launch_id", maintain_order=True).agg("row")
    return groups.filter(pl.col("row").list.len() > 1)["row"].to_list()


def _streams_of_replays(kernels: pl.DataFrame) -> list[tuple[list[int], list[bool]]]:
    """Return all kernels of each stream on which replays and kernels with an op take turns, and which are replayed."""
    streams = ["device", "stream"]
    is_replayed = pl.col("launch_id").is_not_null() & (pl.len().over("launch_id") > 1) & pl.col("op_id").is_null()
    rows = kernels.with_row_index("row").with_columns(is_replayed.alias("is_replayed"))
    groups = rows.sort(*streams, "start_ns", "kernel_id", nulls_last=True).group_by(streams, maintain_order=True)
    found = groups.agg("row", "is_replayed", pl.col("op_id").is_not_null().any().alias("has_op"))
    found = found.filter(pl.col("is_replayed").list.any() & pl.col("has_op"))
    return found.select("row", "is_replayed").rows()


def _orphans(kernels: pl.DataFrame) -> list[list[int]]:
    """Return the kernels on each stream that have no op and follow one another, in order of start."""
    replayed = pl.col("launch_id").is_not_null() & (pl.len().over("launch_id") > 1)
    streams = ["device", "stream"]
    rows = kernels.with_row_index("row").sort(*streams, "start_ns", "kernel_id", nulls_last=True)
    rows = rows.with_columns((pl.col("op_id").is_null() & ~replayed).alias("is_orphan"))
    groups = rows.with_columns(pl.struct(*streams, "is_orphan").rle_id().alias("run")).filter("is_orphan")
    return groups.group_by("run", maintain_order=True).agg("row")["row"].to_list()


def _kernel_unit(row: int, name: str, action: str | None, role: str) -> Unit:
    return Unit(row, name, action, None if role in UNSAID else role, (), is_backward_kernel(name))
