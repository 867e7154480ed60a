"""Ops: their ids, parents and self times, and the Python frame and module each ran in.

Owns nesting of ops and of Python frames on their threads, and the nn.Module tree that frames show.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.link.nesting import Spans, nearest, nest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.link.nesting import Nester

_NAMED, _CALLED = "nn.Module: ", ": forward"
"""How names begin, or end, that the patterns below may match: most don't, and this is told much sooner."""
_MODULE = re.compile(r"nn\.Module: (?P<class_name>.+?)(?:_(?P<instance>\d+))?$")
_FORWARD = re.compile(r"(?:.*[/\\])?(?P<file>[^/\\]+)\.py\((?P<line>[0-9]+)\): forward")


class Module(NamedTuple):
    """What a Python frame's name says of the module that it calls; `label` tells modules apart."""

    label: str
    class_name: str
    instance: int | None = None


def number(frame: pl.DataFrame, id_name: str, *ties: str) -> pl.DataFrame:
    """Sort rows by start, longest first, break ties by content, and number them from 0 as `id_name`."""
    starts, durations = frame["start_ns"].to_numpy(), frame["dur_ns"].to_numpy()
    order = np.lexsort((-durations, starts))
    starts, durations = starts[order], durations[order]
    is_tie = np.zeros(len(order) + 1, dtype=bool)
    is_tie[1:-1] = (starts[1:] == starts[:-1]) & (durations[1:] == durations[:-1])
    tied = np.flatnonzero(is_tie[1:] | is_tie[:-1])
    if len(tied):  # only their texts are compared, which takes far longer than to compare times
        texts = (
            frame[order[tied]]
            .with_row_index("place")
            .select("place", "start_ns", "dur_ns", "pid", "tid", *ties, "name")
        )
        by = ["start_ns", -pl.col("dur_ns"), "pid", "tid", *ties, "name"]
        order[tied] = order[tied[texts.sort(by, nulls_last=True, maintain_order=True)["place"].to_numpy()]]
    return frame[order].with_row_index(id_name).cast({id_name: pl.Int64})


def number_threads(*frames: pl.DataFrame) -> list[pl.DataFrame]:
    """Return frames with a number for each thread, the same in all of them, as `thread`."""
    keys = ["pid", "tid"]
    rows = pl.concat([frame.select(keys) for frame in frames])
    begins = pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift()) for key in keys)
    rows = rows.with_columns(run=begins.cum_sum())  # rows of a thread mostly follow one another
    runs = rows.unique("run", keep="first", maintain_order=True)
    threads = runs.select(keys).unique(maintain_order=True).with_row_index("thread").cast({"thread": pl.Int64})
    of_run = runs.join(threads, on=keys, how="left", nulls_equal=True, maintain_order="left")["thread"]
    numbers = of_run.gather(rows["run"] - rows["run"].first()) if rows.height else of_run
    ends = np.cumsum([frame.height for frame in frames])
    return [
        frame.with_columns(numbers.slice(end - frame.height, frame.height))
        for frame, end in zip(frames, ends.tolist(), strict=True)
    ]


def spans_of(rows: pl.DataFrame, make: Nester | None = None) -> Spans:
    """Return rows with a thread, sorted by start, as intervals; `make` is for `Spans.of`."""
    starts = rows["start_ns"].to_numpy()
    return Spans.of(rows["thread"].to_numpy(), starts, starts + rows["dur_ns"].to_numpy(), make)


def nest_ops(ops: pl.DataFrame, window: range | None = None) -> tuple[pl.DataFrame, Spans, int]:
    """Add `parent_id`, `depth` and `self_ns` to numbered ops; return them, their spans, and how many cross a parent.

    With a window of time, in ns, only the self time within it counts. Ops that cross end after their parent; those
    that span an end of the window (`known_id`) are counted elsewhere.
    """
    spans = spans_of(ops, partial(nest, window=window))
    parents, depths, self_ns = (np.empty(ops.height, dtype=np.int64) for _ in range(3))
    for (one, other), nesting in zip(spans.first.values(), spans.nestings, strict=True):
        rows = spans.rows[one:other]
        depths[rows], self_ns[rows] = nesting.depths, nesting.self_ns
    if ops.height:
        parents[spans.rows] = np.where(spans.parents < 0, -1, spans.rows[spans.parents])
    found = pl.Series("parent_id", parents, pl.Int64)
    nested = ops.with_columns(
        found.set(found < 0, None), pl.Series("depth", depths, pl.Int64), pl.Series("self_ns", self_ns, pl.Int64)
    )
    crosses = np.zeros(ops.height, dtype=bool)
    if ops.height:
        crosses = (spans.parents >= 0) & (spans.ends > spans.ends[spans.parents])
    if "known_id" in ops.columns:
        crosses &= ops["known_id"].is_null().to_numpy()[spans.rows]
    return nested, spans, int(np.count_nonzero(crosses))


def owners(rows: pl.DataFrame, intervals: Spans, name: str, usable: pl.Series | None = None) -> pl.Series:
    """Return for each row the number of the innermost interval open on its thread when it starts, or null.

    Intervals that are not `usable` are looked through.
    """
    chosen = None if usable is None else usable.to_numpy()
    found = intervals.innermost(rows["thread"].to_numpy(), rows["start_ns"].to_numpy(), chosen)
    ids = pl.Series(name, found, pl.Int64)
    return ids.set(ids < 0, None)


def nest_frames(frames: pl.DataFrame) -> pl.DataFrame:
    """Add `parent_id` to numbered Python frames: by Python id where parents were recorded, else by nesting in time.

    A parent that is not open when the frame begins is none: on autograd's thread the profiler goes on to name the
    call that began an earlier backward.
    """
    asked = frames["python_parent_id"]
    known = frames.drop_nulls("python_id").select("python_id", "frame_id")
    if not known.height or asked.null_count() == len(asked):
        return frames.with_columns(nest_ops(frames)[0]["parent_id"])
    order = np.argsort(known["python_id"].to_numpy(), kind="stable")
    ids, rows = (known[name].to_numpy()[order] for name in ("python_id", "frame_id"))
    wanted = asked.fill_null(0).to_numpy()
    place = np.searchsorted(ids, wanted, side="right") - 1  # of frames that share an id, the last one
    parents = rows[place]
    starts = frames["start_ns"].to_numpy()
    ends = starts + frames["dur_ns"].to_numpy()
    is_open = (place >= 0) & (ids[place] == wanted) & asked.is_not_null().to_numpy()
    is_open &= (starts[parents] <= starts) & (starts <= ends[parents]) & (parents != frames["frame_id"].to_numpy())
    found = pl.Series("parent_id", np.where(is_open, parents, -1), pl.Int64)
    return frames.with_columns(found.set(found < 0, None))


def modules_named(names: Iterable[str], *, by_file: bool) -> dict[str, Module]:
    """Return by name the modules that frames of these names call.

    Where no nn.Module was recorded in the whole trace, they are told `by_file`: each `forward` in a file of Python is
    the class it is written in, by file and line.
    """
    found = {}
    for name in names:
        if by_file and name.endswith(_CALLED) and (match := _FORWARD.fullmatch(name)):
            label = f"{match['file']}:{match['line']}"
            found[name] = Module(label, label)
        elif not by_file and name.startswith(_NAMED) and (match := _MODULE.fullmatch(name)):
            instance = match["instance"]
            label = name.removeprefix(_NAMED)
            found[name] = Module(label, match["class_name"], int(instance) if instance else None)
    return found


def find_modules(frames: pl.DataFrame, *, by_file: bool = False) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the modules that frames show, as `modules_named`, and the frames with the innermost one around each.

    A module's parent is the module around its first call, and its path the classes from the root down.
    """
    names = frames["name"]
    named = modules_named(names.unique(), by_file=by_file)
    chosen = names.is_in(list(named)).to_numpy()
    parents = frames["parent_id"].fill_null(-1).to_numpy()
    around = nearest(parents, chosen)
    calls = np.flatnonzero(chosen)
    outer = np.where(parents[calls] < 0, -1, around[parents[calls]])
    module_of: dict[int, int] = {-1: -1}
    ids: dict[str, int] = {}
    rows: list[tuple[int, str, int | None, str, int | None, str]] = []
    for row, above in _parents_first(dict(zip(calls.tolist(), outer.tolist(), strict=True))):
        label, class_name, instance = named[names[row]]
        if label not in ids:
            ids[label] = len(rows)
            parent = module_of[above]
            path = f"{rows[parent][3]}/{label}" if parent >= 0 else label
            rows.append((ids[label], class_name, instance, path, parent if parent >= 0 else None, label))
        module_of[row] = ids[label]
    modules = pl.DataFrame(
        rows,
        orient="row",
        schema={
            "module_id": pl.Int64,
            "class_name": pl.String,
            "instance": pl.Int64,
            "path": pl.String,
            "parent_id": pl.Int64,
            "label": pl.String,
        },
    )
    inside = np.full(frames.height + 1, -1, dtype=np.int64)  # the last one is for -1: no module
    inside[calls] = [module_of[row] for row in calls.tolist()]
    found = pl.Series("module_id", inside[around], pl.Int64)
    return modules, frames.with_columns(found.set(found < 0, None))


def _parents_first(parents: dict[int, int]) -> list[tuple[int, int]]:
    """Return rows with their parents, -1 for none, every parent before its children; a circle is cut loose."""
    order: list[tuple[int, int]] = []
    placed = {-1}
    for row in parents:
        chain = []
        current = row
        while current not in placed:
            placed.add(current)
            chain.append(current)
            current = parents[current]
        if chain:
            cut_loose = current in chain
            order.extend(
                (one, -1 if cut_loose and place == 0 else parents[one]) for place, one in enumerate(reversed(chain))
            )
    return order
