"""The end of a trace that was linked in parts: what only the whole can say.

Owns what is counted through all parts (lifetimes of memory, waits of devices, collectives), which is done while later
parts are linked, and the files of the trace.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.attention import tables as meaning
from tracekit.attention.calls.batches import batches
from tracekit.attention.calls.table import with_lengths
from tracekit.ingest import Problem
from tracekit.link import Waits, finish_steps, lifetimes, noticed, odd_lifetimes
from tracekit.loading.frames import set_down, taken_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tracekit.attention.facts import Facts
    from tracekit.ingest import Recording
    from tracekit.loading.large import Linking
    from tracekit.loading.part import Report

TABLE_OF = {"sample": "memory_sample", "call": "attention_call"}
"""The tables of what parts count under another name."""


@dataclass
class TraceFiles:
    """A loaded trace: the files of its tables, by table and in order, and the next free id of each kind.

    Its own row and what was noticed about it are still to be written, since other traces may have a say in them.
    """

    folder: Path
    tables: dict[str, list[Path]]
    row: pl.DataFrame
    quality: pl.DataFrame
    kernels: int
    ids: dict[str, int]


class Closing:
    """Says what only the whole trace can say, and writes it."""

    def __init__(self, facts: Facts, trace_id: int, ids: Mapping[str, int], folder: Path) -> None:
        """Begin a trace whose ids go on from `ids`."""
        self._facts, self._trace_id = facts, trace_id
        self._ids, self._folder = dict(ids), folder
        self._files: dict[str, list[Path]] = {}
        self._waits = Waits()
        self._samples: pl.DataFrame | None = None
        self._live: pl.DataFrame | None = None
        self._oddities, self._sampled = Counter[str](), 0

    def take(self, report: Report, sure_ns: int | None) -> None:
        """Go on with the next part; none after it has work that begins before `sure_ns`, None if it is the last."""
        self._collectives(report)
        self._memory(report, is_end=sure_ns is None)
        work = pl.read_ipc(report.work) if report.work else None
        if work is not None or sure_ns is None:
            self._write_some("device_wait", self._waits.take(work, sure_ns))

    def files(self, linking: Linking, said: Recording, noticed_before: Iterable[Problem]) -> TraceFiles:
        """Return the files of a trace of which every part was taken."""
        known = linking.plan.survey
        steps = meaning.mark_cut_steps(finish_steps(known.steps, linking.working_steps), self._facts)
        for name, frame in linking.tables.items():
            if frame.height:
                self._write(name, frame)
        for report in linking.reports:
            for name, path in report.tables.items():
                if name == "attention_call":
                    self._write(name, with_lengths(taken_up(path).drop("trace_id"), self._facts, steps))
                elif name != "collective":
                    self._files.setdefault(name, []).append(path)
        calls = pl.concat([report.calls for report in linking.reports])
        self._write("module", meaning.with_kinds(linking.modules))
        self._write("step", steps)
        self._write("batch", batches(self._facts, steps, calls))
        workload = meaning.workload(known.dur_ns, self._facts)
        self._write("workload", workload.with_columns(pl.col("workload_id") + self._ids["workload"]))
        found = [*noticed_before, *odd_lifetimes(self._oddities), *noticed(linking.tally), *_forced(linking)]
        row, quality = (
            meaning.with_trace_id(frame, self._trace_id) for frame in (self._row(linking, said), meaning.quality(found))
        )
        following = {**self._ids, **{TABLE_OF.get(name, name): number for name, number in linking.ids.items()}}
        following["step"] += steps.height
        following["workload"] += workload.height
        return TraceFiles(self._folder, self._files, row, quality, linking.tally.kernels, following)

    def _collectives(self, report: Report) -> None:
        """Count through the collectives, since nobody knew how many each part would have."""
        if path := report.tables.get("collective"):
            rows = taken_up(path)
            self._write("collective", rows.with_columns(pl.col("collective_id") + self._ids["collective"]))
            self._ids["collective"] += rows.height

    def _memory(self, report: Report, *, is_end: bool) -> None:
        """Pair allocations with frees: in each part's samples when it is known whether others follow."""
        if report.samples:
            if self._samples is not None:
                self._pair(self._samples, is_end=False)
            self._samples = pl.read_ipc(report.samples)
            self._sampled += self._samples.height
            self._write("memory_sample", meaning.samples(self._samples))
        if is_end and self._samples is not None:
            self._pair(self._samples, is_end=True)

    def _pair(self, samples: pl.DataFrame, *, is_end: bool) -> None:
        rows = samples.drop("args_json", "pid", "tid", "allocated_bytes", "reserved_bytes")
        found = lifetimes(rows if self._live is None else pl.concat([self._live, rows]), is_end=is_end)
        self._live, self._oddities = found.live, self._oddities + found.oddities
        first = self._ids["allocation"]
        self._ids["allocation"] += found.allocations.height
        numbered = found.allocations.with_columns(pl.col("allocation_id") + first)
        self._write("allocation", meaning.with_categories(numbered))

    def _row(self, linking: Linking, said: Recording) -> pl.DataFrame:
        base, known = said.base_unix_ns, linking.plan.survey
        stacks = linking.spanning.frames.height + sum(report.heights["frame"] for report in linking.reports)
        shapes = linking.spanning.ops["input_dims"].is_not_null().any()
        return meaning.trace_row(
            said,
            self._facts,
            start_unix_ns=None if base is None else base + known.origin_ns,
            dur_ns=known.dur_ns,
            has_device=linking.tally.kernels > 0,
            has_shapes=bool(shapes or any(report.has_shapes for report in linking.reports)),
            has_stacks=stacks > 0,
            has_modules=meaning.has_module_rows(linking.modules),
            has_memory=self._sampled > 0,
        )

    def _write_some(self, table: str, frame: pl.DataFrame) -> None:
        """Write rows if there are any; the first file says what columns there are."""
        if frame.height or table not in self._files:
            self._write(table, frame)

    def _write(self, table: str, frame: pl.DataFrame) -> None:
        paths = self._files.setdefault(table, [])
        paths.append(self._folder / f"{table}.{len(paths)}.whole.parquet")
        set_down(meaning.with_trace_id(frame, self._trace_id), paths[-1])


def _forced(linking: Linking) -> Iterator[Problem]:
    if forced := linking.plan.forced:
        words = (
            "Places where a long trace had to be cut for linking while a backward was awaited: the backward of "
            f"{linking.plan.lost:,} forward ops, at most, has neither its forward op nor its module."
        )
        yield Problem("cut_for_linking", "warn", forced, words)
