"""Laws that hold on every real trace, against a second reading of the same file that shares no code with ours."""

from __future__ import annotations

import gc
import random
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests import independent
from tests.build import asked
from tests.conftest import ROOT, TRACES
from tracekit.attention.tables import give_meaning, ranked
from tracekit.errors import TracekitError
from tracekit.ingest import Events, opened, read_bytes
from tracekit.link import link
from tracekit.loading import tables_of
from tracekit.run import Run
from tracekit.store import Limits, Selection, Store, schema

if TYPE_CHECKING:
    from pathlib import Path

FILES = {str(path.relative_to(TRACES)): path for path in sorted(TRACES.rglob("*.json*"))}
FILES |= {path.name: path for path in sorted((ROOT / "sample_traces").glob("*.json*"))}
GROUPS = ("role", "phase", "family", "step_id", "step", "module_id", "module_path", "op_name", "stream", "kind")
POLARS = {
    "BIGINT": pl.Int64(),
    "BIGINT[]": pl.List(pl.Int64()),
    "VARCHAR": pl.String(),
    "BOOLEAN": pl.Boolean(),
    "DOUBLE": pl.Float64(),
    "MAP(VARCHAR, VARCHAR)": pl.List(pl.Struct({"key": pl.String, "value": pl.String})),
    "MAP(VARCHAR, DOUBLE)": pl.List(pl.Struct({"key": pl.String, "value": pl.Float64})),
}
DEVICES: dict[tuple[int | None, int | None], str] = {
    (0, -1): "cpu",
    (1, 0): "cuda:0",
    (1, 1): "cuda:1",
    (6, 0): "hip:0",
}
"""Devices of the allocator, as PyTorch numbers and names them."""
NAMELESS = {
    *("a100-sam-compile", "a100-sam-math", "a100-sam-sdpa", "gpu-sampled-rank0", "gpu-sampled-rank1"),  # correlations
    *("v100-training-memory", "h100-ddp-small", "large-integer", "legacy-categories", "mi210-gpu-only"),
    *("cpu-only", "mtia-inference", "no-rank", "train"),  # no device work
}
"""Traces whose device work carries no id of a recorded op."""
NAME = pl.coalesce("raw_name", "name")
"""A kernel's name as the file has it."""
ARROWS = {
    "a100-nccl.json.gz": 543,
    "mi250-training.json.gz": 4,
    "mi300x-resnet-checkpointing.json.gz": 213,
    "v100-ns-epoch.json.gz": 905,
    "h100-nanogpt-after.json.gz": 8,
    "h100-nanogpt-before.json.gz": 8,
    **{f"h100-nanogpt-8ranks/rank{rank}.json.gz": 8 for rank in range(8)},
}


class Case(NamedTuple):
    """One real trace, read by us and independently; `origin` is the time in ns that our tables count from."""

    name: str
    events: Events
    tables: dict[str, pl.DataFrame]
    raw: list[independent.Event]
    works: list[independent.Work]
    origin: int


@pytest.fixture(scope="module", params=FILES)
def case(request: pytest.FixtureRequest) -> Case:
    """Load one trace; pytest runs all tests on it before it loads the next."""
    data = FILES[request.param].read_bytes()
    gc.disable()  # collecting garbage among a million new objects would double the time
    try:
        events = read_bytes(data, request.param)
        raw = independent.read(data)
    finally:
        gc.enable()
    works, origin = independent.device_work(raw), independent.first_moment(raw)
    tables = give_meaning(link(events))
    tables["trace"] = ranked(tables["trace"], None, None, None)
    return Case(request.param, events, tables, raw, works, origin)


def test_every_event_is_a_row_or_an_arrow(case: Case) -> None:
    arrows = sum(event.get("ph") in independent.ARROWS for event in case.raw)
    names = ("ops", "frames", "runtime", "device", "memory", "other")
    rows = (getattr(case.events, name) for name in names)
    assert sum(frame.height for frame in rows) + arrows == len(case.raw)
    assert case.tables["trace"]["events"].item() == len(case.raw)


def test_every_event_is_in_one_table_or_an_arrow(case: Case) -> None:
    arrows = sum(event.get("ph") in independent.ARROWS for event in case.raw)
    names = ("op", "frame", "launch", "kernel", "memory_sample", "other_event")
    assert sum(case.tables[name].height for name in names) + arrows == len(case.raw)


def test_device_work_is_what_an_independent_reading_finds(case: Case) -> None:
    columns = (NAME, pl.col("start_ns") + case.origin, "dur_ns", pl.col("stream").cast(pl.String), "correlation")
    found = Counter(case.tables["kernel"].select(columns).iter_rows())
    assert found == Counter(tuple(work) for work in case.works)


def test_ops_last_as_long_as_an_independent_reading_finds(case: Case) -> None:
    events = independent.complete(case.raw, independent.OPS | independent.ANNOTATIONS)
    columns = ("name", pl.col("start_ns") + case.origin, pl.col("start_ns") + pl.col("dur_ns") + case.origin)
    found = Counter(case.tables["op"].select(columns[0], columns[1], columns[2].alias("end_ns")).iter_rows())
    assert found == Counter((event["name"], *independent.span(event)) for event in events)


def test_kernels_have_the_op_that_independent_nesting_finds(case: Case) -> None:
    ops = case.tables["op"].select("op_id", op_start=pl.col("start_ns"), op_end=pl.col("start_ns") + pl.col("dur_ns"))
    joined = case.tables["kernel"].join(ops, on="op_id", how="left")
    times = [pl.col(name) + case.origin for name in ("start_ns", "op_start", "op_end")]
    with_op = joined.filter(pl.col("op_id").is_not_null())
    found = Counter(with_op.select(NAME, times[0], "dur_ns", "correlation", *times[1:]).iter_rows())
    expected = Counter(
        (work.name, work.start, work.duration, work.correlation, *op)
        for work, op in independent.ops_of_work(case.raw, case.works)
    )
    assert not expected - found
    by_external_id = with_op.filter(pl.col("launch_id").is_null()).height
    assert (found - expected).total() == by_external_id


def test_kernels_have_the_op_that_the_profiler_s_own_ids_name(case: Case) -> None:
    ops = case.tables["op"].select("op_id", "external_id")
    kernels = case.tables["kernel"].join(ops, on="op_id").filter(pl.col("launch_id").is_not_null())
    start = pl.col("start_ns") + case.origin
    found = Counter(kernels.select(NAME, start, "dur_ns", "correlation", "external_id").iter_rows())
    named = independent.ids_of_work(case.raw, case.works)
    expected = Counter((work.name, work.start, work.duration, work.correlation, number) for work, number in named)
    assert not expected - found
    assert bool(expected) == (case.name.partition(".")[0] not in NAMELESS)


def test_self_times_of_ops_sum_to_the_busy_time_of_their_thread(case: Case) -> None:
    threads = independent.by_thread(independent.complete(case.raw, independent.OPS | independent.ANNOTATIONS))
    sums = case.tables["op"].group_by("pid", "tid").agg(pl.col("self_ns").sum())
    found = {(pid, tid): total for pid, tid, total in sums.iter_rows()}
    assert found == {thread: independent.busy(spans) for thread, spans in threads.items()}


def test_work_adds_up_to_the_same_total_however_it_is_grouped(case: Case) -> None:
    kernels, ops = case.tables["kernel"], case.tables["op"].filter(pl.col("kind") != "annotation")
    on_device = sum(work.duration for work in case.works)
    total = on_device if kernels.height else ops["self_ns"].sum()
    with Store(case.tables) as store:
        counts = asked(store, "select count(*) as rows, count(distinct work_id) as ids from work").row(0)
        parts = asked(
            store,
            f"select grouping({', '.join(GROUPS)}) as grouped_by, sum(dur_ns) as part from work "
            f"group by grouping sets ({', '.join(f'({group})' for group in GROUPS)})",
        )
    assert counts == (kernels.height or ops.height,) * 2
    totals = dict(parts.group_by("grouped_by").agg(pl.col("part").sum()).iter_rows())
    assert list(totals.values()) == [total] * (len(GROUPS) if counts[0] else 0)


def test_the_allocator_s_totals_are_those_of_the_file_in_its_order(case: Case) -> None:
    samples = case.tables["memory_sample"]
    assert samples["sample_id"].to_list() == list(range(samples.height))
    found = samples.select("device", pl.col("time_ns") + case.origin, "allocated_bytes", "reserved_bytes").rows()
    expected = independent.allocator_rows(case.raw)
    assert found == [(DEVICES[row.device], row.time, row.allocated, row.reserved) for row in expected]


def test_every_allocator_row_with_an_address_is_one_end_of_a_lifetime(case: Case) -> None:
    ends = case.tables["allocation"].select("start_sample_id", "end_sample_id")
    found = sorted(sample_id for row in ends.iter_rows() for sample_id in row if sample_id is not None)
    events = [event for event in case.raw if event.get("name") == "[memory]"]
    addressed = sum("Addr" in independent.args(event) for event in events)
    assert len(found) == len(set(found)) == addressed


def test_parents_contain_the_start_of_their_children(case: Case) -> None:
    ops = case.tables["op"]
    assert ops["op_id"].to_list() == list(range(ops.height))
    assert ops["start_ns"].is_sorted()
    parents = ops.select(pl.all().name.prefix("parent_"))
    pairs = ops.join(parents, left_on="parent_id", right_on="parent_op_id")
    assert pairs.height == ops["parent_id"].count()
    inside = pairs.filter(
        (pl.col("pid") == pl.col("parent_pid"))
        & (pl.col("tid") == pl.col("parent_tid"))
        & (pl.col("depth") == pl.col("parent_depth") + 1)
        & (pl.col("start_ns") < pl.col("parent_start_ns") + pl.col("parent_dur_ns"))
    )
    assert inside.height == pairs.height


def test_a_forward_op_has_the_sequence_number_of_a_backward_ancestor(case: Case) -> None:
    rows = case.tables["op"].select("parent_id", "forward_op_id", "phase", "sequence_number", "start_ns").rows()
    for forward_id, row in ((row[1], row) for row in rows if row[1] is not None):
        _, _, phase, number, start = rows[forward_id]
        assert phase in {"forward", "recompute"}
        ancestor = row
        while ancestor[2] == "backward" and ancestor[3] != number:
            ancestor = rows[ancestor[0]]
        assert ancestor[2] == "backward"
        assert start < ancestor[4]


def test_backward_ops_point_where_the_file_s_own_arrows_come_from(case: Case) -> None:
    arrows = independent.backward_arrows(case.raw)
    assert len(arrows) == ARROWS.get(case.name, len(arrows))
    ops = case.tables["op"].select("pid", "tid", pl.col("start_ns") + case.origin, "forward_op_id").rows()
    points = [independent.Point((pid, tid), start) for pid, tid, start, _ in ops]
    ours = {(points[row[3]], point) for row, point in zip(ops, points, strict=True) if row[3] is not None}
    assert [arrow for arrow in arrows if arrow not in ours] == []


def test_the_tables_are_those_of_the_schema(case: Case) -> None:
    promised = {
        table.name: {column.name: POLARS[column.type] for column in table.columns}
        for table in schema()
        if table.name in case.tables
    }
    assert {name: dict(frame.schema) for name, frame in case.tables.items()} == promised


@pytest.mark.parametrize(
    "name",
    ["h100-bert-small.json.gz", "mi300x-bert-small.json.gz", "mi250-training.json.gz", "cpu-only.json.gz"],
)
def test_the_order_of_a_real_trace_s_events_does_not_matter(traces: Path, name: str) -> None:
    data = (traces / name).read_bytes()
    with opened(data, name) as stream:
        document = msgspec.json.decode(b"".join(stream.blocks()), type=dict[str, msgspec.Raw])
    events = msgspec.json.decode(document["traceEvents"], type=list[msgspec.Raw])
    random.Random(7).shuffle(events)
    shuffled = tables_of(msgspec.json.encode({**document, "traceEvents": events}), name)
    for table, frame in tables_of(data, name).items():
        assert_frame_equal(
            frame.drop("source_sha256", strict=False),
            shuffled[table].drop("source_sha256", strict=False),
            check_row_order=table != "other_event",  # no ids: rows of one moment keep the file's order
        )


def test_every_question_is_answered_or_says_what_the_run_lacks(case: Case) -> None:
    tables = {name: rows.lazy() for name, rows in case.tables.items()}
    with Run(case.name, tables, Selection(), Limits()) as opened:
        assert opened.summary().frame.height >= 4
        for row in opened.questions().frame.iter_rows(named=True):
            if row["answerable"]:
                assert opened.query(row["question"]).frame.columns
            else:
                with pytest.raises(TracekitError, match="is not derivable from this run"):
                    opened.query(row["question"])
