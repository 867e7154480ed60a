"""Ops: their ids, parents and self times, and the Python frame and module each ran in.

Owns nesting of ops and of Python frames on their threads, and the nn.Module tree that frames show.
"""

from __future__ import annotations

import re

import polars as pl

from tracekit.link.nesting import by_thread, innermost, nest

_MODULE = re.compile(r"nn\.Module: (?P<class_name>.+?)(?:_(?P<instance>\d+))?$")
_ROOT_ORDER = ("start_ns", "end_ns", "pid", "tid")


def number(frame: pl.DataFrame, id_name: str, *ties: str) -> pl.DataFrame:
    """Sort rows by start, longest first, break ties by content, and number them from 0 as `id_name`."""
    order = [pl.col("start_ns"), -pl.col("dur_ns"), *(pl.col(name) for name in ("pid", "tid", *ties, "name"))]
    return frame.sort(order, nulls_last=True, maintain_order=True).with_row_index(id_name).cast({id_name: pl.Int64})


def nest_ops(ops: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Add `parent_id`, `depth` and `self_ns` to numbered ops; also return how many end after their parent."""
    parents, depths, self_ns = [-1] * ops.height, [0] * ops.height, [0] * ops.height
    starts, ends = ops["start_ns"].to_list(), (ops["start_ns"] + ops["dur_ns"]).to_list()
    crossings = 0
    for rows in by_thread(ops["pid"].to_list(), ops["tid"].to_list()).values():
        nesting = nest([starts[row] for row in rows], [ends[row] for row in rows])
        crossings += nesting.crossings
        for index, row in enumerate(rows):
            parent = nesting.parents[index]
            parents[row] = rows[parent] if parent >= 0 else -1
            depths[row], self_ns[row] = nesting.depths[index], nesting.self_ns[index]
    return ops.with_columns(
        _ids("parent_id", parents),
        pl.Series("depth", depths, pl.Int64),
        pl.Series("self_ns", self_ns, pl.Int64),
    ), crossings


def owners(rows: pl.DataFrame, intervals: pl.DataFrame, id_name: str) -> pl.Series:
    """Return for each row the id of the innermost interval open on its thread when it starts, or null.

    Both frames are sorted by start; `intervals` holds its ids in `id_name`.
    """
    found: list[int | None] = [None] * rows.height
    starts, ends = intervals["start_ns"].to_list(), (intervals["start_ns"] + intervals["dur_ns"]).to_list()
    ids, times = intervals[id_name].to_list(), rows["start_ns"].to_list()
    threads = by_thread(intervals["pid"].to_list(), intervals["tid"].to_list())
    for key, members in by_thread(rows["pid"].to_list(), rows["tid"].to_list()).items():
        inside = threads.get(key)
        if inside is None:
            continue
        hits = innermost(
            [starts[row] for row in inside], [ends[row] for row in inside], [times[row] for row in members]
        )
        for row, hit in zip(members, hits, strict=True):
            if hit >= 0:
                found[row] = ids[inside[hit]]
    return pl.Series(id_name, found, pl.Int64)


def nest_frames(frames: pl.DataFrame) -> pl.DataFrame:
    """Add `parent_id` to numbered Python frames: by Python id where parents were recorded, else by nesting in time."""
    known = {python_id: row for row, python_id in enumerate(frames["python_id"].to_list()) if python_id is not None}
    if known and frames["python_parent_id"].is_not_null().any():
        parents = [known.get(parent, -1) for parent in frames["python_parent_id"].to_list()]
        return frames.with_columns(_ids("parent_id", parents))
    nested, _ = nest_ops(frames)
    return frames.with_columns(nested["parent_id"])


def find_modules(frames: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the nn.Modules that frames show, and the frames with `module_id`, the innermost module around each.

    A module's parent is the module around its first call, and its path the classes from the root down.
    """
    names, parents = frames["name"].to_list(), frames["parent_id"].to_list()
    around: list[int | None] = [None] * len(names)
    ids: dict[str, int] = {}
    rows: list[tuple[int, str, int | None, str, int | None]] = []
    for row in _parents_first(parents):
        parent = parents[row]
        outer = around[parent] if parent is not None else None
        match = _MODULE.fullmatch(names[row]) if names[row].startswith("nn.Module: ") else None
        if match is None:
            around[row] = outer
            continue
        label = names[row].removeprefix("nn.Module: ")
        if label not in ids:
            ids[label] = len(rows)
            path = f"{rows[outer][3]}/{label}" if outer is not None else label
            instance = match["instance"]
            rows.append((ids[label], match["class_name"], int(instance) if instance else None, path, outer))
        around[row] = ids[label]
    modules = pl.DataFrame(
        rows,
        orient="row",
        schema={
            "module_id": pl.Int64,
            "class_name": pl.String,
            "instance": pl.Int64,
            "path": pl.String,
            "parent_id": pl.Int64,
        },
    )
    return modules, frames.with_columns(pl.Series("module_id", around, pl.Int64))


def _parents_first(parents: list[int | None]) -> list[int]:
    """Return row numbers so that every parent comes before its children; a cycle's rows are cut loose."""
    order: list[int] = []
    placed = [False] * len(parents)
    for row in range(len(parents)):
        chain = []
        current: int | None = row
        while current is not None and not placed[current]:
            placed[current] = True
            chain.append(current)
            current = parents[current]
        order.extend(reversed(chain))
    return order


def _ids(name: str, values: list[int]) -> pl.Series:
    return pl.Series(name, [None if value < 0 else value for value in values], pl.Int64)
