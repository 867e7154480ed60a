"""A trace becomes a bundle or nothing, and a raw trace is loaded once as long as it stays what it was."""

from __future__ import annotations

import gzip
import io
import os
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.build import document, kernel, launch, op, recorded_step
from tracekit import __version__, bundle
from tracekit.bundle import Bundle
from tracekit.errors import TracekitError
from tracekit.loading import Loaded, load, open_tables, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

TRACE = document(op("aten::mm", 0, 10), launch(2, 1), kernel("gemm", 20, 5, 1), kernel("late", 30, 5, 9))
OTHER = document(op("aten::bmm", 0, 10), op("aten::softmax", 20, 10))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a cache of its own, and its folder to work in; return where the copies lie."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "cache" / "tracekit" / "runs"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a trace file, t.json in the folder to work in."""
    path = (tmp_path / "work" / "t.json").relative_to(tmp_path / "work")
    path.write_bytes(TRACE)
    return path


def opened(path: Path) -> tuple[list[str], Mapping[str, pl.LazyFrame]]:
    """Open a run; return what was said meanwhile, and its tables."""
    said: list[str] = []
    return said, open_tables(path, said.append)


def names(tables: Mapping[str, pl.LazyFrame]) -> list[str]:
    return tables["op"].collect()["name"].to_list()


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_a_raw_trace_is_loaded_once_and_then_answers_from_the_cache(trace: Path, cache: Path) -> None:
    said, first = opened(trace)
    assert said == ["loading t.json"]
    written = only_file(cache).read_bytes()
    said, second = opened(trace)
    assert said == []
    assert only_file(cache).read_bytes() == written
    assert first.keys() == second.keys()
    for name, frame in first.items():
        assert_frame_equal(frame.collect(), second[name].collect())


def test_the_cache_holds_what_loading_gives(trace: Path) -> None:
    opened(trace)
    _, cached = opened(trace)
    found = tables_of(TRACE, "t.json")
    assert cached.keys() == found.keys()
    for name, frame in found.items():
        assert_frame_equal(cached[name].cast({pl.Categorical: pl.String}).collect(), frame)


def test_a_changed_trace_is_loaded_again(trace: Path) -> None:
    opened(trace)
    trace.write_bytes(OTHER)
    said, tables = opened(trace)
    assert said == ["loading t.json"]
    assert names(tables) == ["aten::bmm", "aten::softmax"]


def test_a_trace_of_the_same_size_but_another_time_is_loaded_again(trace: Path) -> None:
    opened(trace)
    trace.write_bytes(TRACE.replace(b"aten::mm", b"aten::ab"))
    os.utime(trace, ns=(0, 0))
    said, tables = opened(trace)
    assert said == ["loading t.json"]
    assert names(tables) == ["aten::ab"]


def test_one_trace_by_two_paths_is_one_copy(trace: Path, cache: Path) -> None:
    opened(trace)
    assert opened(trace.absolute())[0] == []
    only_file(cache)


def test_two_traces_of_one_name_are_two_copies(trace: Path, cache: Path) -> None:
    opened(trace)
    elsewhere = trace.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "t.json").write_bytes(OTHER)
    assert names(opened(elsewhere / "t.json")[1]) == ["aten::bmm", "aten::softmax"]
    assert names(opened(trace)[1]) == ["aten::mm"]
    assert len(list(cache.iterdir())) == 2


def test_using_a_copy_makes_it_young(trace: Path, cache: Path) -> None:
    opened(trace)
    os.utime(only_file(cache), (1, 1))
    opened(trace)
    assert only_file(cache).stat().st_mtime > 1


def _parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _bundle(entries: Mapping[str, bytes], path: Path) -> bytes:
    bundle.write(path, entries, tool_version=__version__)
    return path.read_bytes()


@pytest.mark.parametrize("damage", ["cut", "empty", "rubbish", "flipped", "no_tables", "no_parquet", "folder"])
def test_a_damaged_copy_is_replaced(trace: Path, cache: Path, damage: str) -> None:
    opened(trace)
    copy = only_file(cache)
    whole = copy.read_bytes()
    middle = len(whole) // 2
    if damage == "folder":
        copy.unlink()
        copy.mkdir()
    else:
        spoil: dict[str, Callable[[], bytes]] = {
            "cut": lambda: whole[:middle],
            "empty": lambda: b"",
            "rubbish": lambda: b"rubbish" * 99,
            "flipped": lambda: whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "no_tables": lambda: _bundle({}, trace.parent / "a.tkb"),
            "no_parquet": lambda: _bundle({"tables/trace.parquet": b"PAR1"}, trace.parent / "b.tkb"),
        }
        copy.write_bytes(spoil[damage]())
    said, tables = opened(trace)
    assert said[:2] == ["the cached copy is damaged", "loading t.json"]
    assert names(tables) == ["aten::mm"]
    if damage != "folder":  # nothing takes a folder's place: the copy can't be written then
        assert opened(trace)[0] == []
        assert copy.read_bytes() == whole


def test_a_cache_that_can_not_be_written_costs_only_time(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    for _ in range(2):
        said, tables = opened(trace)
        assert said[0] == "loading t.json"
        assert said[1].startswith("the result can't be cached: ")
        assert names(tables) == ["aten::mm"]


def test_a_cache_under_an_impossible_path_costs_only_time(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/" + "x" * 300)
    said, tables = opened(trace)
    assert [line.partition(":")[0] for line in said] == ["loading t.json", "the result can't be cached"]
    assert names(tables) == ["aten::mm"]


def test_the_copies_used_longest_ago_make_room(trace: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(trace)
    size = only_file(cache).stat().st_size
    monkeypatch.setenv("TRACEKIT_CACHE_BYTES", str(int(2.5 * size)))
    first = only_file(cache)
    for number, age in ((2, 200), (3, 100)):
        other = trace.with_name(f"t{number}.json")
        other.write_bytes(TRACE)
        os.utime(first, (300, 300))
        held = set(cache.iterdir())
        opened(other)
        new = (set(cache.iterdir()) - held).pop()
        os.utime(new, (age, age))
    assert first in set(cache.iterdir())
    assert opened(trace)[0] == []
    assert opened(trace.with_name("t2.json"))[0] == ["loading t2.json"]


def test_a_trace_larger_than_the_cache_is_still_kept(trace: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_CACHE_BYTES", "1")
    opened(trace)
    assert opened(trace)[0] == []
    only_file(cache)


def test_a_fault_in_a_trace_leaves_nothing_in_the_cache(trace: Path, cache: Path) -> None:
    trace.write_bytes(b'{"traceEvents": []}')
    with pytest.raises(TracekitError, match="traceEvents is empty"):
        opened(trace)
    assert not cache.exists()


@pytest.mark.parametrize("name", ["missing.json", "x" * 300, "nul\0.json"])
def test_a_path_that_is_none_is_said_to_be(trace: Path, name: str) -> None:
    with pytest.raises(TracekitError, match="no such file: check the path"):
        open_tables(trace.parent / name)


def test_a_folder_without_traces_is_no_run(trace: Path) -> None:
    (trace.parent / "ranks").mkdir()
    with pytest.raises(TracekitError, match=r"ranks holds no trace: give the folder that the \.json"):
        open_tables(trace.parent / "ranks")


def test_a_bundle_answers_without_the_cache(trace: Path, cache: Path) -> None:
    load(trace, "run.tkb")
    said, tables = opened(trace.parent / "run.tkb")
    assert said == []
    assert names(tables) == ["aten::mm"]
    assert not cache.exists()


def test_a_bundle_is_known_by_its_content_and_expected_by_its_name(trace: Path) -> None:
    load(trace, "run.json")
    assert names(opened(trace.parent / "run.json")[1]) == ["aten::mm"]
    (trace.parent / "bad.tkb").write_bytes(TRACE)
    with pytest.raises(TracekitError, match=r"bad\.tkb is not a tracekit bundle"):
        open_tables(trace.parent / "bad.tkb")


def test_the_ranks_of_a_bundle_are_one_table(trace: Path) -> None:
    ranks = {f"tables/trace/{rank}.parquet": _parquet(pl.DataFrame({"rank": [rank]})) for rank in (0, 1)}
    _bundle(ranks, trace.parent / "ranks.tkb")
    assert open_tables(trace.parent / "ranks.tkb")["trace"].collect()["rank"].to_list() == [0, 1]


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({}, "holds no tables"),
        ({"tables/kernel.parquet": _parquet(pl.DataFrame({"a": [1]}))}, "holds no tables"),
        ({"tables/trace.parquet": b"rubbish"}, "entry tables/trace.parquet is no Parquet file"),
    ],
)
def test_a_bundle_without_good_tables_is_refused(trace: Path, entries: Mapping[str, bytes], problem: str) -> None:
    _bundle(entries, trace.parent / "odd.tkb")
    with pytest.raises(TracekitError, match=problem):
        open_tables(trace.parent / "odd.tkb")


def test_loading_writes_a_bundle_and_says_what_it_did(trace: Path) -> None:
    output = trace.parent / "run.tkb"
    assert load(trace, output) == Loaded(
        output,
        traces=1,
        events=4,
        kernels=2,
        problems=("Device work without an op: no launch with its correlation in the trace.",),
    )
    written = Bundle.open(output)
    assert all(check.ok for check in bundle.verify(output))
    assert written.names() == sorted(f"tables/{name}.parquet" for name in tables_of(TRACE, "t.json"))
    assert written.manifest.left_out.keys() == {"raw"}
    assert written.manifest.tool_version == __version__


def test_loading_twice_gives_equal_bytes(trace: Path) -> None:
    for name in ("a.tkb", "b.tkb"):
        load(trace, name)
    assert (trace.parent / "a.tkb").read_bytes() == (trace.parent / "b.tkb").read_bytes()


RAW_NAMES = {
    "t.json": "raw/t.json.gz",
    "t.json.gz": "raw/t.json.gz",
    "box7_123.456.pt.trace.json": "raw/box7_123.456.pt.trace.json.gz",
    "we ird\\näme:é.json": "raw/we_ird_n_me__.json.gz",
    "x" * 150 + ".json": f"raw/{'x' * 95}.json.gz",
}


@pytest.mark.parametrize("name", RAW_NAMES)
def test_the_trace_itself_goes_in_where_it_is_asked_for(trace: Path, name: str) -> None:
    (trace.parent / name).write_bytes(TRACE)
    load(trace.parent / name, "run.tkb", keep_raw=True)
    written = Bundle.open(trace.parent / "run.tkb")
    assert gzip.decompress(written.read(RAW_NAMES[name])) == TRACE
    assert written.manifest.left_out == {}


def test_a_trace_that_is_gzipped_goes_in_as_it_is(trace: Path) -> None:
    packed = gzip.compress(TRACE, 1, mtime=5)
    (trace.parent / "t.json.gz").write_bytes(packed)
    load(trace.parent / "t.json.gz", "run.tkb", keep_raw=True)
    assert Bundle.open(trace.parent / "run.tkb").read("raw/t.json.gz") == packed


def test_an_output_that_exists_is_kept_unless_overwriting_was_asked_for(trace: Path) -> None:
    output = trace.parent / "run.tkb"
    output.write_bytes(b"precious")
    with pytest.raises(TracekitError) as caught:
        load(trace, output)
    assert str(caught.value) == "run.tkb exists: choose another name, or give --force to replace it"
    assert output.read_bytes() == b"precious"
    load(trace, output, overwrite=True)
    assert names(open_tables(output)) == ["aten::mm"]


def test_a_trace_is_never_written_over_by_its_own_bundle(trace: Path) -> None:
    (trace.parent / "link.tkb").symlink_to(trace.absolute())
    for output in ("t.json", "link.tkb"):
        with pytest.raises(TracekitError, match=f"{output} is the trace itself"):
            load(trace, output, overwrite=True)
    assert trace.read_bytes() == TRACE


def test_a_link_to_nowhere_is_an_output_that_exists(trace: Path) -> None:
    (trace.parent / "run.tkb").symlink_to("nowhere")
    with pytest.raises(TracekitError, match="exists"):
        load(trace, "run.tkb")
    assert not (trace.parent / "nowhere").exists()


def test_a_bundle_is_not_loaded_again(trace: Path) -> None:
    load(trace, "run.tkb")
    with pytest.raises(TracekitError, match=r"run\.tkb is a bundle already: query it as it is"):
        load("run.tkb", "again.tkb")


FAULTS = {
    "missing": ("missing.json", "run.tkb", "no such file"),
    "no_trace": ("empty.json", "run.tkb", "is empty"),
    "output_is_a_folder": ("t.json", "folder", "not a file"),
    "folder_of_output_is_missing": ("t.json", "none/run.tkb", "can't be written"),
    "output_s_name_is_too_long": ("t.json", "x" * 300, "can't be written"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_leaves_nothing_behind(trace: Path, fault: str) -> None:
    source, output, problem = FAULTS[fault]
    (trace.parent / "empty.json").touch()
    (trace.parent / "folder").mkdir()
    before = sorted(trace.parent.rglob("*"))
    with pytest.raises(TracekitError, match=problem):
        load(source, output, overwrite=True)
    assert sorted(trace.parent.rglob("*")) == before


def test_a_fault_in_the_source_leaves_the_old_output(trace: Path) -> None:
    load(trace, "run.tkb")
    old = (trace.parent / "run.tkb").read_bytes()
    trace.write_bytes(b"{")
    with pytest.raises(TracekitError, match="cut off"):
        load(trace, "run.tkb", overwrite=True)
    assert (trace.parent / "run.tkb").read_bytes() == old


CAPTURED = document(recorded_step(0, 0, 50), op("aten::mm", 1, 10))
FACTS = {"steps": [{"number": 0, "lengths": [3, 4], "padded_length": 4}], "torch_version": "2.13.0", "extra": [1]}


def captured(path: Path, facts: dict[str, object] | None = None, **raw: bytes) -> Path:
    """Write a bundle as `tracekit capture` does: a trace, facts, no tables. `raw` names other traces."""
    traces = {f"raw/{name}.json.gz": gzip.compress(data) for name, data in (raw or {"trace": CAPTURED}).items()}
    bundle.write(path, traces, facts=FACTS if facts is None else facts, tool_version=__version__, overwrite=True)
    return path


def lengths(tables: Mapping[str, pl.LazyFrame]) -> list[list[int]]:
    found: list[list[int]] = tables["batch"].collect()["lengths"].to_list()
    return found


def test_a_captured_bundle_answers_through_the_cache_with_its_facts(tmp_path: Path, cache: Path) -> None:
    run = captured(tmp_path / "c.tkb")
    before = run.read_bytes()
    said, tables = opened(run)
    assert said == ["loading c.tkb"]
    assert lengths(tables) == [[3, 4]]
    assert tables["trace"].collect()["torch_version"].to_list() == ["2.13.0"]
    said, again = opened(run)
    assert said == []
    assert lengths(again) == [[3, 4]]
    assert run.read_bytes() == before
    only_file(cache)


def test_other_facts_beside_the_same_trace_are_another_run(tmp_path: Path) -> None:
    run = captured(tmp_path / "c.tkb")
    opened(run)
    captured(run, {"steps": [{"number": 0, "lengths": [1, 1, 1, 1], "padded_length": 4}]})
    said, tables = opened(run)
    assert said == ["loading c.tkb"]
    assert lengths(tables) == [[1, 1, 1, 1]]


def test_a_captured_bundle_without_facts_is_a_trace(tmp_path: Path) -> None:
    bundle.write(tmp_path / "c.tkb", {"raw/t.json.gz": gzip.compress(TRACE)}, tool_version=__version__)
    _, tables = opened(tmp_path / "c.tkb")
    assert names(tables) == ["aten::mm"]
    assert lengths(tables) == []
    load(tmp_path / "c.tkb", tmp_path / "out.tkb")
    assert Bundle.open(tmp_path / "out.tkb").facts == {}
    assert "facts.json" not in Bundle.open(tmp_path / "out.tkb").names()


@pytest.mark.parametrize("keep_raw", [False, True])
def test_loading_a_captured_bundle_adds_tables_and_keeps_its_facts(
    tmp_path: Path, cache: Path, *, keep_raw: bool
) -> None:
    run = captured(tmp_path / "c.tkb")
    done = load(run, tmp_path / "out.tkb", keep_raw=keep_raw)
    assert done == Loaded(tmp_path / "out.tkb", traces=1, events=2, kernels=0, problems=())
    written = Bundle.open(tmp_path / "out.tkb")
    assert all(check.ok for check in bundle.verify(tmp_path / "out.tkb"))
    assert written.facts == FACTS
    assert [gzip.decompress(written.read(name)) for name in written.names("raw/")] == [CAPTURED] * keep_raw
    assert written.manifest.left_out.keys() == (set() if keep_raw else {"raw"})
    said, tables = opened(tmp_path / "out.tkb")
    assert said == []
    assert lengths(tables) == [[3, 4]]
    assert not cache.exists()
    with pytest.raises(TracekitError, match=r"out\.tkb is a bundle already"):
        load(tmp_path / "out.tkb", tmp_path / "again.tkb")


def test_a_loaded_bundle_holds_what_the_cache_holds(tmp_path: Path) -> None:
    run = captured(tmp_path / "c.tkb")
    load(run, tmp_path / "out.tkb")
    _, cached = opened(run)
    _, loaded = opened(tmp_path / "out.tkb")
    assert cached.keys() == loaded.keys()
    for name, frame in cached.items():
        assert_frame_equal(frame.collect(), loaded[name].collect())


def test_a_captured_bundle_is_never_written_over_by_its_own_tables(tmp_path: Path) -> None:
    run = captured(tmp_path / "c.tkb")
    before = run.read_bytes()
    with pytest.raises(TracekitError, match=r"c\.tkb is the trace itself"):
        load(run, run, overwrite=True)
    assert run.read_bytes() == before


def test_a_bundle_of_several_traces_is_refused(tmp_path: Path, cache: Path) -> None:
    run = captured(tmp_path / "c.tkb", rank0=TRACE, rank1=OTHER)
    for attempt in (lambda: load(run, tmp_path / "out.tkb"), lambda: open_tables(run)):
        with pytest.raises(TracekitError, match=r"c\.tkb holds 2 traces and no tables: this version reads one trace"):
            attempt()
    assert not cache.exists()
    assert not (tmp_path / "out.tkb").exists()


def test_a_bundle_of_neither_trace_nor_tables_is_not_loaded(tmp_path: Path) -> None:
    bundle.write(tmp_path / "c.tkb", {}, facts=FACTS, tool_version=__version__)
    with pytest.raises(TracekitError, match="holds 0 traces and no tables"):
        load(tmp_path / "c.tkb", tmp_path / "out.tkb")


BAD_FACTS = {
    "a length is negative": b'{"steps": [{"number": 0, "lengths": [-1]}]}',
    "steps are no list": b'{"steps": 7}',
    "a list": b"[1]",
    "text": b'"facts"',
    "null": b"null",
    "cut": b'{"steps": [',
}


@pytest.mark.parametrize("fault", BAD_FACTS)
def test_bad_facts_are_one_line_and_leave_nothing_behind(tmp_path: Path, cache: Path, fault: str) -> None:
    entries = {"raw/t.json.gz": gzip.compress(CAPTURED), "facts.json": BAD_FACTS[fault]}
    bundle.write(tmp_path / "c.tkb", entries, tool_version=__version__)
    for attempt in (lambda: load(tmp_path / "c.tkb", tmp_path / "out.tkb"), lambda: open_tables(tmp_path / "c.tkb")):
        with pytest.raises(TracekitError, match=r"facts\.json") as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert not cache.exists()
    assert not (tmp_path / "out.tkb").exists()


def test_a_captured_trace_that_is_none_is_refused(tmp_path: Path, cache: Path) -> None:
    run = captured(tmp_path / "c.tkb", trace=b"{")
    with pytest.raises(TracekitError, match="cut off"):
        open_tables(run)
    assert not cache.exists()
