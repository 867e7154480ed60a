"""The capture of CUDA and HIP graphs: calls that were recorded into a graph instead of being run.

Owns which calls lie in a capture, and how they read as the device work that each replay of the graph is.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.ingest import TABLES, readable

if TYPE_CHECKING:
    from tracekit.ingest import Events


@cache
def rules() -> dict[str, Any]:
    """Return graphs.toml."""
    return tomllib.loads(files("tracekit.link").joinpath("graphs.toml").read_text(encoding="utf-8"))


def captured_work(events: Events) -> list[pl.DataFrame]:
    """Return for each capture in a trace, in order, the device work of a replay, as rows of `device`.

    Each row is at the time of its call, takes no time, and has its correlation. Its name is that of the kernel where
    the call says it, as ROCm's do, else empty.
    """
    calls = events.runtime.sort("ts_ns", "correlation")
    marks = calls.filter(pl.col("name").str.contains(rules()["capture"]["begins"]))
    ends = calls.filter(pl.col("name").str.contains(rules()["capture"]["ends"]))
    work = pl.coalesce(
        pl.when(pl.col("name").str.contains(rule["pattern"])).then(pl.lit(rule["kind"])) for rule in rules()["work"]
    )
    calls = calls.with_columns(work.alias("kind")).filter(pl.col("kind").is_not_null())
    found = []
    for pid, tid, begin in marks.select("pid", "tid", "ts_ns").iter_rows():
        same = (pl.col("pid") == pid) & (pl.col("tid") == tid) & (pl.col("ts_ns") >= begin)
        end = ends.filter(same)["ts_ns"].min()
        if end is not None and (inside := calls.filter(same & (pl.col("ts_ns") < end))).height:
            found.append(_as_device(inside))
    return found


def _as_device(calls: pl.DataFrame) -> pl.DataFrame:
    name = pl.when(pl.col("kind") == "kernel").then(pl.col("args_json").str.json_path_match("$.kernel"))
    rows = calls.select(
        "pid", "tid", "ts_ns", "kind", "correlation", name=name, device=pl.lit(0), stream=pl.lit(0), dur_ns=pl.lit(0)
    )
    plain, raw = readable(rows["name"].fill_null(""))
    rows = rows.with_columns(plain.alias("name"), raw.alias("raw_name"))
    missing = {name: kind for name, kind in TABLES["device"].items() if name not in rows.columns}
    return rows.with_columns(pl.lit(None, kind).alias(name) for name, kind in missing.items()).select(
        pl.col(name).cast(kind) for name, kind in TABLES["device"].items()
    )
