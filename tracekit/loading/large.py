"""A trace that is too large to link at once: read in pieces, linked in parts, put together again.

Owns the plan. Pieces of text are read to rows on disk, in whatever order workers get to them; from a short outline of
each it is decided where to cut time into parts; each part is linked for itself, knowing what spans its ends; and what
only the whole can say is said at the end. Memory depends on the size of a part, not on that of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.attention.tables import part_tables
from tracekit.ingest import TABLES, Frames
from tracekit.link import Around, Linked, Survey, Tally, link_part, survey
from tracekit.loading.cuts import cuts
from tracekit.loading.outline import NONE
from tracekit.loading.part import Job, Report, Split, link_and_write, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tracekit.ingest import Recording
    from tracekit.loading.crew import Crew
    from tracekit.loading.outline import Outline

    Times = NDArray[np.int64]

_BEFORE, _AFTER = -(2**63), 2**62


@dataclass(frozen=True)
class Plan:
    """How a trace falls into parts: the times at which all but the first begin, and the part of each piece of work.

    `device` holds for each part, by piece, the numbers of the rows of device work that are launched in it, `early`
    the correlations of calls in it that share theirs with a later one, which is the launch. `sure` is when the
    first piece of work of any later part begins, None of the last part.
    """

    cuts: Times
    forced: int
    lost: int
    device: Sequence[Mapping[int, Times]]
    early: Sequence[Times]
    launches: Times
    sure: Sequence[int | None]
    survey: Survey


@dataclass(frozen=True)
class Linking:
    """All parts of a trace, linked; `spanning` are the ops and frames that are open at a cut, as tables."""

    plan: Plan
    spanning: Linked
    tables: Mapping[str, pl.DataFrame]
    reports: Sequence[Report]
    modules: pl.DataFrame
    ids: Mapping[str, int]

    @property
    def tally(self) -> Tally:
        """Return what was counted in all of them."""
        return reduce(add, (report.tally for report in self.reports), self.spanning.tally)

    @property
    def working_steps(self) -> set[int]:
        """Return the ids of the steps in which an op ran."""
        return set().union(self.spanning.working_steps, *(report.working_steps for report in self.reports))


def plan(outlines: Sequence[Outline], rows: int, external_ids: str) -> Plan:
    """Decide where to cut, and in which part each piece of device work belongs: that of its launch.

    Of calls that share a correlation, the last to start is the launch. `external_ids` is that of `Recording`.
    """
    found, forced, lost = cuts(outlines, rows)
    working = _distinct(np.concatenate([one.pair("device")[0] for one in outlines]))
    working = working[working != NONE]
    last = np.full(len(working), _BEFORE, dtype=np.int64)
    counts = np.zeros(len(found) + 1, dtype=np.int64)
    first_ns: int | None = None
    for one in outlines:
        correlation, start = one.pair("launches")
        place, is_known = _looked_up(correlation, working)
        place, start = place[is_known], start[is_known]
        np.maximum.at(last, place, start)
        counts += np.bincount(np.searchsorted(found, start, side="right"), minlength=len(counts))
        if len(start):
            first_ns = int(start.min()) if first_ns is None else min(first_ns, int(start.min()))
    early = _early(outlines, found, working, last)
    is_launched = last > _BEFORE
    first = (first_ns, int(working[is_launched][0]) if is_launched.any() else None)
    rows_of: list[dict[int, Times]] = [{} for _ in range(len(found) + 1)]
    begins = np.full(len(found) + 1, _AFTER, dtype=np.int64)
    for one in outlines:
        correlation, start = one.pair("device")
        place, is_known = _looked_up(correlation, working)
        launched = last[np.where(is_known, place, 0)] if len(working) else start
        home = np.searchsorted(found, np.where(is_known & (launched > _BEFORE), launched, start), side="right")
        np.minimum.at(begins, home, start)
        for part in np.unique(home).tolist():
            rows_of[part][one.place.number] = np.flatnonzero(home == part)
    surveyed = survey((one.glance for one in outlines), first, external_ids)
    sure = [*np.minimum.accumulate(begins[:0:-1])[::-1].tolist(), None]
    return Plan(found, forced, lost, rows_of, early, counts, sure, surveyed)


def _early(outlines: Sequence[Outline], found: Times, working: Times, last: Times) -> list[Times]:
    """Return for each part the correlations of calls in it whose device work belongs to a later part's call."""
    early: list[list[Times]] = [[np.empty(0, dtype=np.int64)] for _ in range(len(found) + 1)]
    for one in outlines:
        correlation, start = one.pair("launches")
        place, is_known = _looked_up(correlation, working)
        place, start = place[is_known], start[is_known]
        own = np.searchsorted(found, start, side="right")
        differs = own != np.searchsorted(found, last[place], side="right")
        for part in np.unique(own[differs]).tolist():
            early[part].append(working[place[differs & (own == part)]])
    return [np.concatenate(each) for each in early]


def _distinct(values: Times) -> Times:
    """Return the values once each, in order: what np.unique gives, which hashes and takes fifty times as long."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def _looked_up(wanted: Times, known: Times) -> tuple[Times, NDArray[np.bool_]]:
    """Return the place of each value among known ones, which are in order, and whether it is there."""
    if not len(known):
        return np.zeros(len(wanted), dtype=np.int64), np.zeros(len(wanted), dtype=bool)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return place, known[place] == wanted


def link_parts(
    outlines: Sequence[Outline],
    folder: Path,
    said: Recording,
    trace_id: int,
    first_ids: Mapping[str, int],
    crew: Crew,
    rows: int,
    hear: Callable[[Report, int | None], None],
    done: Callable[[float], None] = lambda _: None,
) -> Linking:
    """Link a trace part by part and write the parts' tables to `folder`.

    `hear` is given each part's report, in order and while later parts are linked, with the time before which no work
    of these begins, None with the last; `done` hears what share is done.
    """
    chosen = plan(outlines, rows, said.external_ids)
    steps = chosen.survey.steps.with_columns(pl.col("step_id") + first_ids["step"])
    chosen = replace(chosen, survey=replace(chosen.survey, steps=steps))
    splits = list(crew.each(split, ((one.place, chosen.cuts) for one in outlines)))
    spanning = link_part(_spanning(splits), chosen.survey)
    tables = part_tables(spanning)
    labels: dict[str, int] = {}
    for one in outlines:
        own = one.labels[not chosen.survey.has_modules]
        labels |= {label: min(time, labels.get(label, time)) for label, time in own.items()}
    order = sorted(labels, key=lambda label: (labels[label], label))
    modules = {label: first_ids["module"] + place for place, label in enumerate(order)}
    jobs = _jobs(chosen, outlines, splits, spanning, folder, trace_id, first_ids, modules)
    reports = []
    for report, sure in zip(crew.each(link_and_write, ((job,) for job in jobs)), chosen.sure, strict=True):
        reports.append(report)
        hear(report, None if sure is None else sure - chosen.survey.origin_ns)
        done(len(reports) / len(jobs))
    used = {name: first_ids[name] for name in first_ids}
    for name, count in _counts(chosen, splits).items():
        used[name] += int(count.sum())
        if name in {"op", "kernel"}:
            used["call"] += int(count.sum())
    used["op"], used["frame"] = used["op"] + spanning.ops.height, used["frame"] + spanning.frames.height
    used["module"] += len(modules)
    mine = _spanning_tables(tables, spanning, reports, first_ids, modules)
    return Linking(chosen, spanning, mine, reports, _modules(reports, modules), used)


def _spanning(splits: Sequence[Split]) -> Frames:
    empty: dict[str, Any] = {name: pl.DataFrame(schema=schema) for name, schema in TABLES.items()}
    found = {name: pl.concat([getattr(one, name) for one in splits]) for name in ("ops", "frames")}
    return Frames(**{**empty, **found})


def _counts(chosen: Plan, splits: Sequence[Split]) -> dict[str, Times]:
    """Return how many rows of each counted kind each part has for its own."""
    none = np.zeros(len(chosen.device), dtype=np.int64)

    def total(kind: str) -> Times:
        return sum((one.counts[kind] for one in splits if kind in one.counts), none)

    kernels = np.array([sum(map(len, part.values())) for part in chosen.device], dtype=np.int64)
    return {
        "op": total("ops"), "frame": total("frames"), "launch": chosen.launches, "kernel": kernels,
        "sample": total("memory"),
    }  # fmt: skip


def _jobs(
    chosen: Plan,
    outlines: Sequence[Outline],
    splits: Sequence[Split],
    spanning: Linked,
    folder: Path,
    trace_id: int,
    first_ids: Mapping[str, int],
    modules: Mapping[str, int],
) -> list[Job]:
    counts = _counts(chosen, splits)
    start = {name: first_ids[name] for name in counts}
    start["op"] += spanning.ops.height
    start["frame"] += spanning.frames.height
    ops = _known(spanning.ops, "op_id", first_ids["op"], "ops", chosen.survey)
    frames = _known(spanning.frames, "frame_id", first_ids["frame"], "frames", chosen.survey)
    jobs = []
    bounds = [_BEFORE, *chosen.cuts.tolist(), _AFTER]
    for number, window in enumerate(map(range, bounds, bounds[1:])):
        near = (pl.col("ts_ns") < window.stop) & (pl.col("ts_ns") + pl.col("dur_ns") > window.start)
        around = Around(window, ops.filter(near), frames.filter(near))
        device = chosen.device[number]
        pieces = [one.place for one in outlines if one.place.number in device or _lies_in(one, window)]
        first = {name: int(start[name] + count[:number].sum()) for name, count in counts.items()} | {"collective": 0}
        # A call has an op or a kernel of its own, so that there are never more calls than those.
        before = sum(first[name] - first_ids[name] for name in ("op", "kernel"))
        first["call"] = first_ids["call"] + before
        jobs.append(
            Job(
                folder,
                number,
                trace_id,
                window,
                pieces,
                device,
                chosen.early[number],
                chosen.survey,
                around,
                first,
                modules,
            )
        )
    return jobs


def _lies_in(one: Outline, window: range) -> bool:
    return any(first < window.stop and last >= window.start for first, last in one.place.extents.values())


def _known(rows: pl.DataFrame, id_name: str, first: int, kind: str, known: Survey) -> pl.DataFrame:
    """Return linked rows as ingest gives them, with their ids in the run."""
    rows = rows.with_columns((pl.col("start_ns") + known.origin_ns).alias("ts_ns"))
    return rows.select(*TABLES[kind], (pl.col(id_name) + first).alias("known_id"))


def _spanning_tables(
    tables: Mapping[str, pl.DataFrame],
    spanning: Linked,
    reports: Sequence[Report],
    first_ids: Mapping[str, int],
    modules: Mapping[str, int],
) -> dict[str, pl.DataFrame]:
    """Return the ops and frames that span a cut as tables, and the products of those ops.

    An op's self time is the sum of that in each part; its frame and module are known where it begins.
    """
    told = pl.concat([report.spanning for report in reports])
    told = told.group_by(pl.col("known_id").alias("op_id")).agg(
        pl.col("self_ns").sum(), pl.col("frame_id", "module_id").filter("begins").first()
    )
    by_label = pl.Series([modules[label] for label in spanning.modules["label"].to_list()], dtype=pl.Int64)
    module = pl.lit(by_label).gather(pl.col("module_id")).alias("module_id")
    first_op, first_frame = first_ids["op"], first_ids["frame"]
    ops = tables["op"].with_columns(*(pl.col(name) + first_op for name in ("op_id", "parent_id", "forward_op_id")))
    ops = ops.update(told, on="op_id", how="left", include_nulls=True)
    frames = tables["frame"].with_columns(module, *(pl.col(name) + first_frame for name in ("frame_id", "parent_id")))
    wrappers = pl.concat([report.wrappers for report in reports])
    products = tables["product"].with_columns(pl.col("op_id") + first_op)
    products = products.filter(~pl.col("op_id").is_in(wrappers.implode()))
    return {"op": ops, "frame": frames, "product": products}


def _modules(reports: Sequence[Report], ids: Mapping[str, int]) -> pl.DataFrame:
    """Return the modules of all parts; what the first call of a module says of it counts."""
    rows: dict[str, tuple[Any, ...]] = {}
    for report in reports:
        labels = report.modules["label"].to_list()
        columns = report.modules.select("label", "class_name", "instance", "parent_id")
        for label, class_name, instance, parent in columns.iter_rows():
            if label not in rows:
                outer = None if parent is None else labels[parent]
                path = label if outer is None else f"{rows[outer][3]}/{label}"
                rows[label] = (ids[label], class_name, instance, path, None if outer is None else ids[outer], label)
    schema = {
        "module_id": pl.Int64, "class_name": pl.String, "instance": pl.Int64, "path": pl.String,
        "parent_id": pl.Int64, "label": pl.String,
    }  # fmt: skip
    return pl.DataFrame(list(rows.values()), schema=schema, orient="row").sort("module_id")
