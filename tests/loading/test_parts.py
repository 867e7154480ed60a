"""Chunking changes nothing: a trace read in pieces and linked in parts has the tables of one that is read at once."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from polars.testing import assert_frame_equal

from tests.build import (
    PROCESS,
    Event,
    annotation,
    arrow,
    document,
    event,
    frame,
    kernel,
    launch,
    memory,
    op,
    step,
    work,
)
from tracekit.bundle import Bundle
from tracekit.ingest import TABLES, read_bytes
from tracekit.loading import Settings, cuts, load, outline, tables_of
from tracekit.loading.crew import Crew
from tracekit.loading.frames import taken_up
from tracekit.loading.making import make
from tracekit.loading.trace import IDS, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Tables = dict[str, pl.DataFrame]
SHOWN = {
    "op": ("name", "start_ns", "dur_ns", "tid"),
    "frame": ("name", "start_ns", "tid"),
    "module": ("path",),
    "launch": ("name", "start_ns", "correlation"),
    "kernel": ("name", "start_ns", "stream"),
    "attention_call": ("implementation", "phase", "start_ns"),
}
"""What a row is known by, in place of its id."""
POINTS_TO = {
    "op_id": "op",
    "forward_op_id": "op",
    "free_op_id": "op",
    "frame_id": "frame",
    "module_id": "module",
    "launch_id": "launch",
    "kernel_id": "kernel",
    "before_id": "kernel",
    "call_id": "attention_call",
}
PARENTS = ("op", "frame", "module")
KEPT = ("op", "frame", "launch", "kernel", "memory_sample", "other_event")
"""Tables of which each event that is no arrow is in one."""
REAL = {
    "h100-qwen1.5-0.5b.json.gz": (5_000, 1),
    "v100-training-memory.json.gz": (40_000, 2),
    "mi300x-resnet-checkpointing.json.gz": (5_000, 3),
    "h100-nanogpt-after.json.gz": (5_000, 3),
}
"""Real traces of different kinds, the rows of a part, and how many parts there are at least without cutting a link."""


def in_parts(source: Path | bytes, folder: Path, rows: int, workers: int = 1) -> dict[str, list[pl.DataFrame]]:
    """Return the tables of a trace that is linked in parts, file by file."""
    folder.mkdir()
    with Crew(workers) as crew:
        made = make([Source(source, "t.json")], folder, crew, Settings(whole_bytes=0, part_rows=rows))
        found: dict[str, list[pl.DataFrame]] = {}
        for entry, path in sorted(made.entries.items()):
            name = entry.removeprefix("tables/").split("/")[0].removesuffix(".parquet")
            found.setdefault(name, []).append(taken_up(path))
    return found


def joined(files: dict[str, list[pl.DataFrame]]) -> Tables:
    return {name: pl.concat(parts) for name, parts in files.items()}


ROLES = ("role", "role_confidence", "role_reason")


def references(table: str, rows: pl.DataFrame) -> dict[str, str]:
    """Return which columns of a table point to which table."""
    own = IDS.get(table)
    found = {name: other for name, other in POINTS_TO.items() if name in rows.columns and name != own}
    return found | ({"parent_id": table} if table in PARENTS else {})


def resolved(tables: Tables) -> Tables:
    """Return tables in an order of their own, every id replaced by what the row it points to is known by."""
    known = {
        name: tables[name].select(
            pl.col(IDS[name]).alias("id"),
            pl.concat_str([pl.col(column).cast(pl.String) for column in columns], separator="|", ignore_nulls=True),
        )
        for name, columns in SHOWN.items()
    }
    known = {name: rows.rename({rows.columns[1]: "shown"}) for name, rows in known.items()}
    found = {}
    # Without an op, the role of device work rests on the work around it, of which a part has less than the whole.
    roles = [pl.when(pl.col("op_id").is_not_null()).then(pl.col(name)).alias(name) for name in ROLES]
    for table, rows in (tables | {"kernel": tables["kernel"].with_columns(roles)}).items():
        for column, other in references(table, rows).items():
            by_id = known[other].rename({"id": column, "shown": f"{column} shown"})
            rows = rows.join(by_id, on=column, how="left").drop(column)
        rows = rows.drop(IDS[table]) if table in {*SHOWN, "allocation", "collective"} else rows
        flat = [name for name, kind in rows.schema.items() if not kind.is_nested()]
        found[table] = rows.select(sorted(rows.columns)).sort(sorted(flat))
    return found


def assert_same(parts: Tables, whole: Tables) -> None:
    assert parts.keys() == whole.keys()
    found, expected = resolved(parts), resolved(whole)
    for name, rows in expected.items():
        assert parts[name].columns == whole[name].columns
        assert_frame_equal(found[name], rows)


def assert_sound(tables: Tables) -> None:
    """Check that ids are unique, and that whatever points to a row finds it."""
    for name, own in IDS.items():
        assert tables[name][own].is_unique().all()
        assert not tables[name][own].null_count()
    for name, rows in tables.items():
        for column, other in references(name, rows).items():
            assert set(rows[column].drop_nulls()) <= set(tables[other][IDS[other]]), (name, column)


def training(steps: int) -> list[Event | list[Event]]:
    """Make a trace of steps of forward and backward work within modules, with memory and arrows."""
    rows: list[Event | list[Event]] = []
    for number in range(steps):
        at, calls = 1000 * number, 8 * number
        rows.append(step(number, at, 900))
        rows.append(frame("train.py(1): step", at + 1, 890, 100 * number + 1))
        for layer in range(4):
            start = at + 20 + 80 * layer
            rows.append(frame(f"nn.Module: Linear_{layer}", start, 60, 100 * number + 2 + layer, 100 * number + 1))
            rows.append(op("aten::linear", start + 5, 50, Sequence_number=calls + layer, Input_Dims=[[2, 3 + layer]]))
            rows += work("gemm", start + 20, 30, 2 * (calls + layer), op_name="aten::addmm")
            rows.append(memory(start + 30, 64 * (1 + calls + layer), 512, 512 * layer + 512))
            back = at + 820 - 80 * layer
            rows.append(op("AddmmBackward0", back - 30, 60, tid=7, Sequence_number=calls + layer, Fwd_thread_id=1))
            rows.append(launch(back - 20, 2 * (calls + layer) + 1, tid=7))
            rows.append(kernel("gemm_back", back - 10, 20, 2 * (calls + layer) + 1))
            rows.append(memory(back, 64 * (1 + calls + layer), -512, 512 * (3 - layer), tid=7))
        rows.append(annotation("Optimizer.step#AdamW.step", at + 860, 20))
        rows.append({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": calls, "pid": 1, "tid": 1, "ts": at})
    rows.append(event("martian", "x", 5, 1))
    return rows


@pytest.fixture
def _finely() -> Iterator[None]:
    """Let small traces be cut too: every second row counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outline, "SAMPLE", 2)
        patch.setattr(cuts, "SAMPLE", 2)
        yield


@pytest.mark.usefixtures("_finely")
@pytest.mark.parametrize("rows", [12, 20, 33, 50, 10_000])
def test_a_trace_typed_by_hand_is_the_same_however_it_is_cut(rows: int, tmp_path: Path) -> None:
    data = document(*training(12))
    found = in_parts(data, tmp_path / "parts", rows)
    assert (len(found["op"]) > 1) is (rows < 10_000)
    assert_sound(joined(found))
    assert_same(joined(found), tables_of(data, "t.json"))


@pytest.mark.usefixtures("_finely")
def test_an_op_that_a_cut_parts_from_the_product_inside_it_is_none(tmp_path: Path) -> None:
    shapes = {"Input_type": ["float"] * 3}
    inside = [op("aten::view", at, 10) for at in (*range(110, 1_910, 30), *range(2_110, 3_910, 30))]
    product = op("aten::addmm", 2_000, 50, Input_Dims=[[8], [8, 8], [8, 8]], **shapes)
    around = op("aten::linear", 100, 4_000, Input_Dims=[[8, 8], [8, 8], [8]], **shapes)
    data = document(around, *inside, product, *[op("aten::relu", at, 10) for at in range(4_200, 6_000, 30)])
    found = joined(in_parts(data, tmp_path / "parts", 12))
    names = found["product"].join(found["op"].select("op_id", "name"), on="op_id")["name"]
    assert names.to_list() == ["aten::addmm"]
    whole = tables_of(data, "t.json")
    assert_same(found | {"quality": whole["quality"]}, whole)  # which says that it had to be cut there


_NUMBERED = ("Sequence number", "Fwd thread id")


def by_arrows(rows: list[Event | list[Event]], *, has_numbers: bool = False) -> list[Event | list[Event]]:
    """Return a trace whose backward ops are linked by arrows, with or without sequence numbers besides.

    The first op with a number is the forward op, as in the traces made here.
    """
    events: list[Event] = [each for row in rows for each in (row if isinstance(row, list) else [row])]
    numbered = [(each["args"]["Sequence number"], each) for each in events if "Sequence number" in each.get("args", {})]
    starts = {number: each for number, each in reversed(numbered) if "Backward" not in each["name"]}
    arrows = [arrow(number, starts[number], each) for number, each in numbered if "Backward" in each["name"]]
    for _, each in () if has_numbers else numbered:
        each["args"] = {key: value for key, value in each["args"].items() if key not in _NUMBERED}
    return [*events, *arrows]


@pytest.mark.usefixtures("_finely")
@pytest.mark.parametrize("piece_bytes", [2_000, 10_000_000])
@pytest.mark.parametrize("rows", [12, 20, 33, 50])
def test_no_cut_lies_between_ops_that_only_an_arrow_links(
    rows: int, piece_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.loading.trace.PIECE_BYTES", piece_bytes)
    monkeypatch.setattr("tracekit.ingest.cut.Cutter.__init__.__defaults__", (piece_bytes,))
    data = document(*by_arrows(training(12)))
    found = in_parts(data, tmp_path / "parts", rows)
    assert len(found["op"]) > 1
    assert joined(found)["op"]["forward_op_id"].count() == 48
    assert joined(found)["op"]["sequence_number"].count() == 0
    assert_same(joined(found), tables_of(data, "t.json"))


@pytest.mark.usefixtures("_finely")
@pytest.mark.parametrize("has_numbers", [False, True])
def test_a_link_that_is_cut_is_counted_once_whatever_tells_it(tmp_path: Path, *, has_numbers: bool) -> None:
    data = document(*by_arrows(accumulated(40), has_numbers=has_numbers))
    found = joined(in_parts(data, tmp_path / "parts", 12))
    backward = found["op"].filter(name="AddmmBackward0")
    (cut,) = found["quality"].filter(check_name="cut_for_linking")["message"]
    assert (backward.height, backward["forward_op_id"].null_count()) == (40, 38)
    assert "the backward of 38 forward ops" in cut
    assert_sound(found)


def accumulated(layers: int) -> list[Event | list[Event]]:
    """Make a trace of which every forward op waits for its backward until the end."""
    rows: list[Event | list[Event]] = []
    for layer in range(layers):
        start, back = 100 * layer, 100 * (2 * layers - layer)
        rows.append(frame(f"nn.Module: Linear_{layer}", start, 60, layer + 1))
        rows.append(op("aten::linear", start + 5, 50, Sequence_number=layer))
        rows += work("gemm", start + 20, 30, 2 * layer, op_name="aten::addmm")
        rows.append(op("AddmmBackward0", back, 60, tid=7, Sequence_number=layer, Fwd_thread_id=1))
        rows += [launch(back + 10, 2 * layer + 1, tid=7), kernel("gemm_back", back + 20, 20, 2 * layer + 1)]
    return rows


@pytest.mark.usefixtures("_finely")
def test_a_trace_without_a_quiet_moment_is_cut_all_the_same_and_says_what_that_costs(tmp_path: Path) -> None:
    data = document(*accumulated(40))
    found, whole = joined(in_parts(data, tmp_path / "parts", 12)), tables_of(data, "t.json")
    (cut,) = found["quality"].filter(check_name="cut_for_linking").select("severity", "count", "message").rows()
    backward = pl.col("name") == "AddmmBackward0"
    lost = found["op"].filter(backward & pl.col("forward_op_id").is_null()).height
    assert (lost, whole["op"].filter(backward & pl.col("forward_op_id").is_null()).height) == (38, 0)
    assert cut == snapshot(
        (
            "warn",
            6,
            "Places where a long trace had to be cut for linking while a backward was awaited: the backward of 38 forward ops, at most, has neither its forward op nor its module.",
        )
    )
    assert_sound(found)
    for table, rows in resolved(found).items():
        without = [name for name in rows.columns if not name.startswith(("forward_op_id", "module_id"))]
        flat = [name for name in without if not rows.schema[name].is_nested()]
        if table != "quality":
            expected = resolved(whole)[table].select(without)
            assert_frame_equal(rows.select(without).sort(flat), expected.sort(flat))


@pytest.mark.usefixtures("_finely")
def test_an_attention_call_that_is_cut_is_one_call_of_the_part_it_begins_in(tmp_path: Path) -> None:
    rows: list[Event | list[Event]] = [op("aten::scaled_dot_product_attention", 0, 4000)]
    rows += [work("gemm", 50 * number + 20, 5, number + 1, op_name="aten::bmm") for number in range(60)]
    rows.append(op("aten::scaled_dot_product_attention", 5000, 10))
    files = in_parts(document(*rows), tmp_path / "parts", 12)
    assert len(files["op"]) > 3
    found = joined(files)
    assert_sound(found)
    calls = found["attention_call"].sort("start_ns")
    assert calls["start_ns"].to_list() == [0, 5_000_000]
    owned = found["kernel"].filter(pl.col("call_id").is_not_null())
    assert owned["call_id"].unique().to_list() == calls["call_id"].to_list()[:1]
    assert calls["kernels"].to_list() == [owned.height, 0]


@pytest.mark.parametrize("name", ["mi300x-resnet-checkpointing.json.gz", "v100-ns-epoch.json.gz"])
def test_a_real_trace_of_arrows_alone_is_the_same_however_it_is_cut(name: str, traces: Path, tmp_path: Path) -> None:
    data = gzip.decompress((traces / name).read_bytes())
    for key in (b'"Sequence number"', b'"Fwd thread id"'):
        data = data.replace(key, b'"Ev Idx"')
    found = in_parts(data, tmp_path / "parts", 5_000)
    assert len(found["op"]) > 2
    assert joined(found)["quality"].filter(pl.col("check_name").is_in(["cut_for_linking", "loose_arrow"])).is_empty()
    assert_same(joined(found), tables_of(data, "t.json"))


@pytest.mark.parametrize("name", REAL)
def test_a_real_trace_is_the_same_however_it_is_cut(name: str, traces: Path, tmp_path: Path) -> None:
    rows, least = REAL[name]
    found = in_parts(traces / name, tmp_path / "parts", rows)
    assert len(found["op"]) >= least
    assert_sound(joined(found))
    assert_same(joined(found), tables_of((traces / name).read_bytes(), "t.json"))


@pytest.mark.usefixtures("_finely")
def test_parts_of_a_trace_of_several_pieces_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = document(*training(12))
    monkeypatch.setattr("tracekit.loading.trace.PIECE_BYTES", 2_000)
    monkeypatch.setattr("tracekit.ingest.cut.Cutter.__init__.__defaults__", (2_000,))
    found = in_parts(data, tmp_path / "parts", 20)
    assert_same(joined(found), tables_of(data, "t.json"))


@pytest.mark.parametrize("piece_bytes", [200, 1_000, 50_000, 2_000_000])
@pytest.mark.parametrize("name", ["h100-ddp-small.json", "legacy-categories.json.gz", "mi250-training.json.gz"])
def test_a_trace_is_read_the_same_in_pieces_of_any_size(piece_bytes: int, name: str, traces: Path) -> None:
    data = (traces / name).read_bytes()
    pieces, whole = read_bytes(data, name, piece_bytes), read_bytes(data, name)
    assert (pieces.recording, pieces.problems) == (whole.recording, whole.problems)
    for table in TABLES:
        assert_frame_equal(getattr(pieces, table), getattr(whole, table), check_row_order=False)


def test_several_processes_write_what_one_does(traces: Path, tmp_path: Path) -> None:
    source = traces / "h100-nanogpt-after.json.gz"
    chosen = Settings(whole_bytes=0, part_rows=5_000)
    for workers in (1, 2):
        load(source, tmp_path / f"{workers}.tkb", workers=workers, settings=chosen)
    one, two = (Bundle.open(tmp_path / f"{workers}.tkb") for workers in (1, 2))
    assert one.names() == two.names()
    assert [name for name in one.names() if one.read(name) != two.read(name)] == []


_NAMES = st.sampled_from(["aten::mm", "aten::add", "MmBackward0", "CheckpointFunctionBackward"])
_TIMES = st.integers(0, 200)
_LENGTHS = st.sampled_from([0, 1, 2, 5, 20, 150])
_THREADS = st.sampled_from([1, 2])
_NUMBERS = st.integers(0, 6)


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    """Draw a trace, of which nothing need fit together."""
    makers: list[Any] = [
        st.builds(lambda name, at, length, tid, number: op(name, at, length, tid=tid, Sequence_number=number),
                  _NAMES, _TIMES, _LENGTHS, _THREADS, _NUMBERS),
        st.builds(lambda at, length, number: frame(f"nn.Module: Linear_{number}", at, length, number),
                  _TIMES, _LENGTHS, _NUMBERS),
        st.builds(lambda at, length: frame("a.py(1): f", at, length, 99), _TIMES, _LENGTHS),
        st.builds(lambda at, number, tid: launch(at, number, tid=tid), _TIMES, _NUMBERS, _THREADS),
        st.builds(lambda at, length, number: kernel("k", at, length, number), _TIMES, _LENGTHS, _NUMBERS),
        st.builds(lambda at, number, size: memory(at, 64 * number, size, 512),
                  _TIMES, _NUMBERS, st.sampled_from([512, -512])),
        st.builds(step, _NUMBERS, _TIMES, _LENGTHS),
        st.just({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 1}),
        st.builds(lambda letter, at, tid, number: {"ph": letter, "cat": "fwdbwd", "id": number, "pid": PROCESS, "tid": tid, "ts": at},
                  st.sampled_from("sf"), _TIMES, _THREADS, _NUMBERS),
        st.builds(lambda at: event("martian", "x", at, 1), _TIMES),
    ]  # fmt: skip
    rows: list[Event] = draw(st.lists(st.one_of(makers), min_size=20, max_size=60))
    return rows


@pytest.mark.usefixtures("_finely")
@given(events())
@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
def test_nothing_is_lost_or_counted_twice_however_a_trace_is_cut(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Event]
) -> None:
    data = json.dumps({"traceEvents": rows}).encode()
    folder = tmp_path_factory.mktemp("parts") / "parts"
    found, whole = joined(in_parts(data, folder, 4)), tables_of(data, "t.json")
    assert_sound(found)
    for name in ("op", "frame", "kernel", "memory_sample", "step"):
        own = [column for column in ("name", "start_ns", "dur_ns", "time_ns") if column in whole[name].columns]
        assert_frame_equal(found[name].select(own), whole[name].select(own), check_row_order=False)
    assert found["trace"]["events"].item() == len(rows)
    assert found["op"]["self_ns"].sum() == whole["op"]["self_ns"].sum()
    calls = [sum(tables[name].height for name in ("launch", "other_event")) for tables in (found, whole)]
    assert calls[0] == calls[1]  # of calls that share a correlation the parts may know another as the launch
    arrows = found["quality"].filter(check_name="flow_event")["count"].sum()
    assert sum(found[name].height for name in KEPT) + arrows == len(rows)
