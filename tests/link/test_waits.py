"""Waits of devices, counted while a trace is linked, against those that a view counts of the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import tracekit
from tests.build import document, kernel, launch, op
from tracekit.link import Waits
from tracekit.loading import open_tables, tables_of
from tracekit.store import Selection, Store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ROWS = "select * from device_wait order by kernel_id"
COLUMNS = ("kernel_id", "device", "stream", "step_id", "start_ns", "dur_ns", "launch_id", "launched_ns")
PIECE = st.tuples(
    st.sampled_from([0, 1, None]),
    st.integers(0, 2),
    st.none(),
    st.integers(0, 30),
    st.integers(0, 12),
    st.sampled_from([None, 7, 8]),
    st.integers(0, 30),
)


def counted(tables: Mapping[str, pl.LazyFrame | pl.DataFrame], selection: Selection | None = None) -> pl.DataFrame:
    """Return what the view makes of the kernels alone, as of a bundle that holds no waits."""
    with Store({name: rows for name, rows in tables.items() if name != "device_wait"}, selection) as store:
        return store.own(ROWS)


def held(tables: Mapping[str, pl.LazyFrame | pl.DataFrame], selection: Selection | None = None) -> pl.DataFrame:
    with Store(tables, selection) as store:
        return store.own(ROWS)


@pytest.mark.parametrize(
    "name",
    [
        "a100-streams-sync",
        "h100-nanogpt-before",
        "mi300x-sglang-decode-graph",
        "mi300x-flux-diffusion",
        "mtia-inference",
        "v100-training-memory",
    ],
)
def test_waits_of_a_real_trace_are_those_of_its_kernels(traces: Path, name: str) -> None:
    tables = tables_of((traces / f"{name}.json.gz").read_bytes(), name)
    assert_frame_equal(held(tables), counted(tables))
    backward = Selection(phases=frozenset(["backward"]))
    assert_frame_equal(held(tables, backward), counted(tables, backward))


def test_waits_of_several_ranks_point_to_kernels_of_their_own(tmp_path: Path) -> None:
    events = [op("aten::mm", 0, 3), launch(1, 1), launch(2, 2), kernel("a", 10, 5, 1), kernel("b", 20, 5, 2)]
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_bytes(document(*events, distributedInfo={"rank": rank}))
    tables = open_tables(tmp_path)
    assert_frame_equal(held(tables), counted(tables))
    assert held(tables)["before_id"].to_list() == [None, 0, None, 2]
    with tracekit.open(tmp_path, ranks=[1]) as run:
        assert run.sql("select before_id from device_wait order by all").frame["before_id"].to_list() == [2, None]


@given(st.lists(PIECE, max_size=14), st.lists(st.integers(0, 31), max_size=3))
def test_waits_are_the_same_part_by_part(pieces: list[tuple[int | None, ...]], cuts: list[int]) -> None:
    """However pieces come in parts, if none of a later one begins before the time that is sure."""
    rows = [(number, *piece) for number, piece in enumerate(pieces)]
    work = pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.Int64), orient="row")
    ends = [*sorted(cuts), 31]
    waits, found = Waits(), []
    for begin, end in zip([0, *ends], ends, strict=False):
        found.append(waits.take(work.filter(pl.col("start_ns").is_between(begin, end, closed="left")), end))
    found.append(waits.take(None))
    whole = Waits().take(work)
    assert_frame_equal(pl.concat(found).sort("kernel_id"), whole.sort("kernel_id"))
    rows_of = {"kernel": work.with_columns(trace_id=0), "launch": pl.DataFrame({"launch_id": [0], "trace_id": [0]})}
    shown = [name for name in whole.columns if name != "launched_ns"]
    assert_frame_equal(whole.sort("kernel_id").select(shown), counted(rows_of).select(shown))


def test_work_that_is_not_sure_is_kept_back() -> None:
    waits = Waits()
    rows = [(0, 0, 1, None, 10, 5, None, None), (1, 0, 1, None, 30, 5, None, None)]
    first = waits.take(pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.Int64), orient="row"), 20)
    late = [(2, 0, 2, None, 20, 30, None, None)]
    rest = waits.take(pl.DataFrame(late, schema=dict.fromkeys(COLUMNS, pl.Int64), orient="row"))
    assert first["kernel_id"].to_list() == [0]
    assert rest.select("kernel_id", "free_ns", "before_id", "idle_ns").rows() == [(2, 15, 0, 5), (1, 50, 2, 0)]


def test_work_whose_device_has_the_smallest_number_is_not_that_of_no_device() -> None:
    devices = [-(2**63), None, -(2**63), None]
    rows = pl.DataFrame(
        {
            "kernel_id": [0, 1, 2, 3], "device": devices, "stream": 0, "step_id": None, "start_ns": [0, 20, 40, 60],
            "dur_ns": 10, "launch_id": [0, 1, 2, 3], "launched_ns": 0,
        },
        schema=dict.fromkeys(COLUMNS, pl.Int64),
    )  # fmt: skip
    waits = Waits()
    found = pl.concat([waits.take(rows[:2], 30), waits.take(rows[2:])]).sort("kernel_id")
    assert found["device"].to_list() == devices
    assert found["before_id"].to_list() == [None, None, 0, 1]
    assert found["idle_ns"].to_list() == [None, None, 30, 30]
