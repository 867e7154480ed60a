"""Several ranks are one run: ids go on from trace to trace, links stay within one, clocks are told and not applied."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot
from polars.testing import assert_frame_equal

import tracekit
from tests.build import Event, document, op, step, work
from tests.loading.test_parts import assert_sound, references
from tracekit.bundle import Bundle
from tracekit.cli import main
from tracekit.errors import TracekitError
from tracekit.loading import load, open_tables, tables_of
from tracekit.loading.trace import IDS

if TYPE_CHECKING:
    from pathlib import Path

Tables = dict[str, pl.DataFrame]
RANKS = 8


def collected(path: Path) -> Tables:
    return {name: rows.cast({pl.Categorical: pl.String}).collect() for name, rows in open_tables(path).items()}


def rank_of(rank: int, shift: int = 0) -> list[Event | list[Event]]:
    return [step(1, shift, 100), *work("gemm", shift + 20 + rank, 30, 1, op_name="aten::mm"), op("aten::add", shift, 2)]


def put(folder: Path, name: str, rank: int | None, world_size: int | None = 2, shift: int = 0) -> Path:
    top = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world_size}}
    (folder / name).write_bytes(document(*rank_of(rank or 0, shift), **top))
    return folder / name


@pytest.fixture(scope="module")
def eight(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Load eight real ranks into one bundle."""
    output = tmp_path_factory.mktemp("ranks") / "run.tkb"
    done = load(traces / "h100-nanogpt-8ranks", output)
    assert done.traces == RANKS
    return output


def test_eight_real_ranks_are_one_run(eight: Path) -> None:
    with tracekit.open(eight) as opened:
        assert opened.sql("select count(distinct rank), count(*), min(rank), max(rank) from trace").frame.rows() == [
            (RANKS, RANKS, 0, RANKS - 1)
        ]
        assert opened.sql("select distinct rank_source from trace").frame.rows() == [("distributedInfo",)]


def test_ids_are_unique_over_the_run_and_point_within_their_own_trace(eight: Path) -> None:
    tables = collected(eight)
    assert_sound(tables)
    for name, rows in tables.items():
        for column, other in references(name, rows).items():
            own = tables[other].select(pl.col(IDS[other]).alias(column), pl.col("trace_id").alias("other_trace_id"))
            pairs = rows.select("trace_id", column).drop_nulls().join(own, on=column)
            assert pairs.height == rows[column].count()
            assert (pairs["trace_id"] == pairs["other_trace_id"]).all(), (name, column)


def test_each_rank_has_the_rows_that_it_has_alone(eight: Path, traces: Path) -> None:
    tables = collected(eight)
    for rank in (0, 5):
        name = f"rank{rank}.json.gz"
        alone = tables_of((traces / "h100-nanogpt-8ranks" / name).read_bytes(), name)
        for table in ("op", "kernel", "launch", "step", "collective"):
            mine = tables[table].filter(pl.col("trace_id") == rank)
            columns = [column for column in alone[table].columns if not column.endswith("_id")]
            assert_frame_equal(mine.select(columns), alone[table].select(columns))


def test_clocks_are_told_and_nothing_is_moved(eight: Path, traces: Path) -> None:
    rows = collected(eight)["trace"].sort("rank")
    assert rows["clock_status"].to_list() == ["reference", *["estimated"] * (RANKS - 1)]
    assert rows["clock_offset_ns"].null_count() == 0
    assert (rows["clock_matched"][1:] > 50).all()
    name = "rank3.json.gz"
    alone = tables_of((traces / "h100-nanogpt-8ranks" / name).read_bytes(), name)
    assert rows["start_unix_ns"][3] == alone["trace"]["start_unix_ns"].item()
    starts = collected(eight)["kernel"].filter(pl.col("trace_id") == 3)["start_ns"]
    assert starts.to_list() == alone["kernel"]["start_ns"].to_list()


def test_two_files_of_one_rank_are_refused_and_both_are_named(tmp_path: Path) -> None:
    one, other = put(tmp_path, "a.json", 1), put(tmp_path, "b.json", 1, shift=5)
    with pytest.raises(TracekitError) as caught:
        load([one, other], tmp_path / "run.tkb")
    assert str(caught.value) == snapshot(
        "a.json and b.json are both of rank 1: give one trace for each rank (a profiler writes one each cycle), and load other runs or cycles by themselves"
    )
    assert not (tmp_path / "run.tkb").exists()


def test_ranks_of_jobs_of_different_size_are_refused(tmp_path: Path) -> None:
    one, other = put(tmp_path, "a.json", 0), put(tmp_path, "b.json", 1, world_size=8)
    with pytest.raises(TracekitError, match=r"a\.json is of a job of 2 ranks, b\.json of one of 8"):
        load([one, other], tmp_path / "run.tkb")


def test_ranks_that_traces_do_not_say_are_from_their_names_with_a_note(tmp_path: Path) -> None:
    put(tmp_path, "rank10.json", None)
    put(tmp_path, "rank2.json", None, shift=7)
    load(tmp_path, tmp_path.parent / f"{tmp_path.name}.tkb")
    tables = collected(tmp_path.parent / f"{tmp_path.name}.tkb")
    shown = tables["trace"].select("trace_id", "rank", "rank_source", "source_name")
    assert shown.rows() == [(0, 2, "file name", "rank2.json"), (1, 10, "file name", "rank10.json")]
    notes = tables["quality"].filter(pl.col("check_name") == "rank_not_recorded").select("trace_id", "severity")
    assert notes.rows() == [(0, "warn"), (1, "warn")]


def test_a_folder_has_the_same_ranks_however_it_is_asked(tmp_path: Path) -> None:
    for rank in (3, 5):
        (tmp_path / "R" / f"rank_{rank}").mkdir(parents=True)
        put(tmp_path / "R" / f"rank_{rank}", "trace.json", None, shift=rank)
    load(tmp_path / "R", tmp_path / "run.tkb")
    for path in (tmp_path / "run.tkb", tmp_path / "R"):
        with tracekit.open(path) as opened:
            assert opened.sql("select rank from trace order by rank").frame["rank"].to_list() == [3, 5], path


def test_a_copy_of_a_trace_is_refused_with_both_names(tmp_path: Path) -> None:
    put(tmp_path, "a.json", None)
    put(tmp_path, "b.json", None)
    with pytest.raises(TracekitError, match=r"^a\.json and b\.json are the same trace: "):
        load(tmp_path, tmp_path.parent / f"{tmp_path.name}.tkb")


def test_the_order_in_which_ranks_are_given_does_not_matter(tmp_path: Path) -> None:
    paths = [put(tmp_path, f"rank{rank}.json", rank, 3) for rank in range(3)]
    for name, given in (("a.tkb", paths), ("b.tkb", paths[::-1])):
        load(given, tmp_path / name)
    assert (tmp_path / "a.tkb").read_bytes() == (tmp_path / "b.tkb").read_bytes()


def test_a_rank_that_is_damaged_costs_its_own_events_alone(tmp_path: Path) -> None:
    put(tmp_path, "rank0.json", 0)
    cut = put(tmp_path, "rank1.json", 1)
    whole = json.loads(cut.read_bytes())["traceEvents"]
    cut.write_bytes(cut.read_bytes()[:-40])
    load(tmp_path, tmp_path.parent / f"{tmp_path.name}.tkb")
    rows = collected(tmp_path.parent / f"{tmp_path.name}.tkb")["trace"]
    assert rows.select("rank", "events", "truncated").rows() == [
        (0, len(whole), False),
        (1, len(whole) - 1, True),
    ]


def test_a_folder_of_ranks_is_asked_as_it_is_and_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "run").mkdir()
    for rank in range(2):
        put(tmp_path / "run", f"rank{rank}.json", rank)
    question = "select rank, count(*) as kernels from kernel join trace using (trace_id) group by rank order by rank"
    for _ in range(2):
        done = CliRunner().invoke(main, ["query", str(tmp_path / "run"), question, "-f", "csv"], catch_exceptions=False)
        assert (done.exit_code, done.stdout) == (0, "rank,kernels\n0,1\n1,1\n")
    said: list[str] = []
    open_tables(tmp_path / "run", said.append)
    assert said == []
    put(tmp_path / "run", "rank1.json", 1, shift=3)
    open_tables(tmp_path / "run", said.append)
    assert said == ["loading run"]


def test_a_bundle_keeps_the_traces_of_all_ranks_where_it_is_asked_to(tmp_path: Path) -> None:
    paths = [put(tmp_path, f"rank{rank}.json", rank) for rank in range(2)]
    load(paths, tmp_path / "run.tkb", keep_raw=True)
    assert Bundle.open(tmp_path / "run.tkb").names("raw/") == ["raw/rank0.json.gz", "raw/rank1.json.gz"]
