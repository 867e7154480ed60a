"""Captures of graphs that are given beside a trace: read, and put to the kernels that the trace's graphs replay.

Owns the reading of capture traces, which are small enough to be linked at once, and the files of the tables that
change: kernels, attention calls, modules and what was noticed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit.attention import tables as meaning
from tracekit.attention.captures import Call, Capture, capture_of, named, with_captured
from tracekit.errors import TracekitError
from tracekit.ingest import Problem, read_bytes
from tracekit.link import captured_work, link
from tracekit.loading.frames import set_down, taken_up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.loading.closing import TraceFiles


def captures_of(path: Path) -> list[Capture]:
    """Return the captures in a trace. Raises TracekitError if it is no trace, or holds no capture."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TracekitError(
            f"{path} can't be read ({error.strerror})", "check the path given as --graph-capture"
        ) from error
    events = read_bytes(data, str(path))
    found = captured_work(events)
    if not found:
        problem = f"{path} holds no capture of a graph"
        raise TracekitError(problem, "record the steps in which graphs are captured, as torch.cuda.graph does")
    return [capture_of(link(replace(events, device=work))) for work in found]


def put_names(loaded: TraceFiles, captures: Sequence[Capture]) -> None:
    """Give a loaded trace's replayed kernels what captures say of them; its files, ids and quality change."""
    first_free = loaded.ids["module"]
    modules, module_ids = _modules(loaded, captures)
    replays = unmatched = 0
    attention: dict[int, Call] = {}
    for place, path in enumerate(loaded.tables.get("kernel", [])):
        done = named(taken_up(path), captures, module_ids)
        replays, unmatched = replays + done.replays, unmatched + done.unmatched
        attention |= done.attention
        loaded.tables["kernel"][place] = path.with_suffix(".named.parquet")
        set_down(done.kernels, loaded.tables["kernel"][place])
    for place, path in enumerate(loaded.tables.get("attention_call", []) if attention else []):
        loaded.tables["attention_call"][place] = path.with_suffix(".named.parquet")
        set_down(with_captured(taken_up(path), attention, module_ids), loaded.tables["attention_call"][place])
    if replays:
        loaded.tables["module"] = [loaded.folder / "module.captured.parquet"]
        set_down(modules, loaded.tables["module"][0])
    else:
        loaded.ids["module"] = first_free
    rows = [_noticed(replays, unmatched)]
    loaded.quality = pl.concat(
        [loaded.quality, meaning.with_trace_id(meaning.quality(rows), loaded.row["trace_id"].item())]
    )


def _noticed(replays: int, unmatched: int) -> Problem:
    if not replays and not unmatched:
        words = "The trace replays no graph: the captures that were given name nothing."
        return Problem("graph_capture_mismatch", "warn", 1, words)
    if unmatched:
        words = (
            f"Graph replays, of {replays + unmatched}, that fit none of the captures that were given: "
            "their kernels have the roles that names and order tell."
        )
        return Problem("graph_capture_mismatch", "warn", unmatched, words)
    words = "Graph replays whose kernels have op, module and role of the capture that was given, by position."
    return Problem("graph_capture_used", "info", replays, words)


def _modules(loaded: TraceFiles, captures: Sequence[Capture]) -> tuple[pl.DataFrame, dict[str, int]]:
    """Return the trace's modules with those of the captures, and the ids of all by path."""
    paths = loaded.tables.get("module", [])
    known = pl.concat([taken_up(path) for path in paths])
    ids: dict[str, int] = dict(known.select("path", "module_id").iter_rows())
    added = []
    for capture in captures:
        own = dict(capture.modules.select("module_id", "path").iter_rows())
        for row in meaning.with_kinds(capture.modules).sort("module_id").iter_rows(named=True):
            if row["path"] in ids:
                continue
            ids[row["path"]] = loaded.ids["module"]
            loaded.ids["module"] += 1
            parent = None if row["parent_id"] is None else ids[own[row["parent_id"]]]
            added.append(row | {"module_id": ids[row["path"]], "parent_id": parent})
    if not added:
        return known, ids
    rows = pl.DataFrame(added, schema_overrides=known.schema).with_columns(trace_id=loaded.row["trace_id"].item())
    return pl.concat([known, rows.select(pl.col(name).cast(kind) for name, kind in known.schema.items())]), ids
