"""Arguments become traces in natural order, and traces get ranks; what is ambiguous is refused."""

from __future__ import annotations

import gzip
import os
import re
import sys
import tomllib
import zipfile
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from inline_snapshot import snapshot

from tracekit import bundle
from tracekit.errors import TracekitError
from tracekit.loading.sources import Assigned, Known, find, ranks

if TYPE_CHECKING:
    from pathlib import Path

TRACE = b'{"schemaVersion": 1, "traceEvents": []}'
RANKS = tomllib.loads(files("tracekit.loading").joinpath("ranks.toml").read_text(encoding="utf-8"))["pattern"]


def put(folder: Path, *names: str, content: bytes = TRACE) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def names(*paths: Path | str) -> list[str]:
    return [source.name for source in find(paths)]


def fault(*paths: Path | str, folder: Path) -> str:
    """Return the error of finding paths, their folder left out."""
    with pytest.raises(TracekitError) as caught:
        find(paths)
    return str(caught.value).replace(f"{folder}{os.sep}", "").replace(str(folder), "FOLDER")


def test_a_file_is_taken_whatever_it_is(tmp_path: Path) -> None:
    put(tmp_path, "notes.txt", content=b"hello")
    assert names(tmp_path / "notes.txt") == ["notes.txt"]
    assert find([str(tmp_path / "notes.txt")])[0].path == tmp_path / "notes.txt"


def test_a_folder_gives_its_traces_in_natural_order(tmp_path: Path) -> None:
    put(tmp_path, "rank10.json", "rank2.json.gz", "rank1.JSON", "rank3.json.zst", "rank0.zip")
    assert names(tmp_path) == ["rank0.zip", "rank1.JSON", "rank2.json.gz", "rank3.json.zst", "rank10.json"]


def test_files_are_in_natural_order_however_they_are_given(tmp_path: Path) -> None:
    put(tmp_path, "b1.json", "a1.json", "a02.json", "a10.json")
    paths = [tmp_path / name for name in ("a10.json", "b1.json", "a1.json", "a02.json")]
    assert names(*paths) == names(*paths[::-1]) == ["a1.json", "a02.json", "a10.json", "b1.json"]


def test_files_of_other_names_are_taken_by_their_content(tmp_path: Path) -> None:
    put(tmp_path, "plain.trace", content=b'\xef\xbb\xbf\n {"traceEvents": []}')
    put(tmp_path, "listed", content=b'[{"ph": "X"}]')
    put(tmp_path, "packed.gz", content=gzip.compress(TRACE + b" " * 500_000))
    with zipfile.ZipFile(tmp_path / "archive.dat", "w") as archive:
        archive.writestr("rank0.json", TRACE)
    put(tmp_path, "notes.txt", content=b"traceEvents")
    put(tmp_path, "settings", content=b'{"lr": 1}')
    put(tmp_path, "weights.gz", content=gzip.compress(b"\x00" * 99))
    put(tmp_path, "cut.gz", content=b"\x1f\x8bnonsense")
    put(tmp_path, "broken.pt", content=b"PK\x03\x04nonsense")
    put(tmp_path, "empty", content=b"")
    assert names(tmp_path) == ["archive.dat", "listed", "packed.gz", "plain.trace"]


def test_hidden_files_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, ".hidden.json", "seen.json")
    assert names(tmp_path) == ["seen.json"]


def test_folders_inside_are_left_alone_where_there_are_traces(tmp_path: Path) -> None:
    put(tmp_path, "a.json", "rank_0/b.json")
    assert names(tmp_path) == ["a.json"]


def test_folders_named_by_rank_are_read_where_there_is_nothing_else(tmp_path: Path) -> None:
    put(tmp_path, "rank_10/t.json", "rank_2/t.json", ".cache/t.json")
    put(tmp_path, "readme.md", content=b"# no trace")
    assert names(tmp_path) == ["rank_2/t.json", "rank_10/t.json"]


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "logs/t.json", "rank_0/t.json", "holed/rank_0/t.json")
    put(tmp_path, "notes.txt", "holed/rank_1/notes.txt", content=b"no trace")
    (tmp_path / "empty").mkdir()
    assert fault(tmp_path, folder=tmp_path) == snapshot(
        "FOLDER holds no trace: give the folder that the .json or .json.gz files lie in"
    )
    assert fault(tmp_path / "empty", folder=tmp_path) == snapshot(
        "empty holds no trace: give the folder that the .json or .json.gz files lie in"
    )
    assert fault(tmp_path / "holed", folder=tmp_path) == snapshot(
        "holed/rank_1 holds no trace: remove the folder, or give the traces one by one"
    )


def test_a_folder_with_a_bundle_says_to_give_the_bundle(tmp_path: Path) -> None:
    put(tmp_path, "a.json", "run.tkb")
    assert fault(tmp_path, folder=tmp_path) == snapshot(
        "FOLDER holds the bundle run.tkb: give the bundle itself: run.tkb"
    )


def test_a_bundle_is_known_by_its_content(tmp_path: Path) -> None:
    bundle.write(tmp_path / "run.zip", {"calls.json": b"{}"}, tool_version="0")
    assert fault(tmp_path, folder=tmp_path) == snapshot(
        "FOLDER holds the bundle run.zip: give the bundle itself: run.zip"
    )
    assert names(tmp_path / "run.zip") == ["run.zip"]


def test_a_pattern_is_read_where_no_shell_did(tmp_path: Path) -> None:
    put(tmp_path, "rank1.json", "rank0.json", "other.json", "deep/rank2.json")
    assert names(f"{tmp_path}/rank*.json") == ["rank0.json", "rank1.json"]
    assert names(f"{tmp_path}/**/rank2.json") == ["rank2.json"]
    assert fault(f"{tmp_path}/nothing*.json", folder=tmp_path) == snapshot(
        "nothing*.json: no such file: no file fits the pattern"
    )


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    put(tmp_path, "trace[1].json", "trace1.json")
    assert names(tmp_path / "trace[1].json") == ["trace[1].json"]


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    assert fault(tmp_path / "gone.json", folder=tmp_path) == snapshot("gone.json: no such file: check the path")
    assert fault("a\0b", folder=tmp_path).endswith("no such file: check the path")
    with pytest.raises(TracekitError, match="no such file"):
        find([""])
    with pytest.raises(TracekitError, match="no trace is given"):
        find([])


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_one_file_given_twice_is_refused_also_by_a_link(tmp_path: Path) -> None:
    put(tmp_path, "rank0.json")
    (tmp_path / "link.json").symlink_to(tmp_path / "rank0.json")
    (tmp_path / "hard.json").hardlink_to(tmp_path / "rank0.json")
    rank0 = tmp_path / "rank0.json"
    assert fault(rank0, rank0, folder=tmp_path) == snapshot("rank0.json is given twice: give each trace once")
    assert fault(rank0, tmp_path / "link.json", folder=tmp_path) == snapshot(
        "link.json and rank0.json are one file: give each trace once"
    )
    assert fault(rank0, tmp_path / "hard.json", folder=tmp_path) == snapshot(
        "hard.json and rank0.json are one file: give each trace once"
    )
    assert "one file" in fault(tmp_path, folder=tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").symlink_to(tmp_path / "gone.json")
    assert fault(tmp_path, folder=tmp_path) == snapshot(
        "rank0.json can't be read (No such file or directory): check the file"
    )


def test_real_ranks_are_found_in_order(traces: Path) -> None:
    assert names(traces / "h100-nanogpt-8ranks") == [f"rank{rank}.json.gz" for rank in range(8)]


def given(*rows: tuple[str, int | None, int | None]) -> list[Assigned]:
    return ranks([Known(*row) for row in rows])


def refused(*rows: tuple[str, int | None, int | None]) -> str:
    with pytest.raises(TracekitError) as caught:
        given(*rows)
    return str(caught.value)


def test_a_rank_is_what_the_trace_says_whatever_its_name() -> None:
    found = given(("rank7.json", 0, 2), ("rank8.json", 1, 2))
    assert [(one.rank, one.source, one.note) for one in found] == [
        (0, "distributedInfo", None),
        (1, "distributedInfo", None),
    ]


def test_a_rank_is_else_in_the_name_and_else_the_lowest_that_is_free() -> None:
    found = given(("x.json", None, None), ("rank0.json", None, None), ("y.json", None, None), ("z.json", 1, None))
    assert [(one.rank, one.source, one.note) for one in found] == snapshot(
        [
            (2, "order", "the rank of x.json, 2, is from the order of names: the trace does not say one"),
            (0, "file name", "the rank of rank0.json, 0, is from its name: the trace does not say one"),
            (3, "order", "the rank of y.json, 3, is from the order of names: the trace does not say one"),
            (1, "distributedInfo", None),
        ]
    )


def test_a_single_trace_that_does_not_say_has_no_rank() -> None:
    assert given(("rank3.json", None, 8)) == [Assigned("rank3.json", None, None)]
    assert given(("rank3.json", 5, 8)) == [Assigned("rank3.json", 5, "distributedInfo")]
    assert ranks([]) == []


def test_a_number_beyond_the_jobs_size_is_no_rank() -> None:
    found = given(("rank2024.json", None, 2), ("b.json", 0, 2))
    assert [(one.rank, one.source) for one in found] == [(1, "order"), (0, "distributedInfo")]


def test_a_negative_rank_is_none() -> None:
    assert [one.rank for one in given(("rank4.json", -1, None), ("rank5.json", -1, None))] == [4, 5]


def test_two_traces_of_one_rank_are_refused() -> None:
    assert refused(("a.json", 1, 2), ("b.json", 1, 2)) == snapshot(
        "a.json and b.json are both of rank 1: give one trace for each rank (a profiler writes one each cycle), and load other runs or cycles by themselves"
    )
    assert refused(("rank1.json", None, None), ("other.json", 1, None)) == snapshot(
        "rank1.json and other.json are both of rank 1: give one trace for each rank (rename one, if the number is no rank), and load other runs or cycles by themselves"
    )


def test_traces_of_jobs_of_different_size_are_refused() -> None:
    assert refused(("a.json", 0, 8), ("b.json", 1, None), ("c.json", 1, 2)) == snapshot(
        "a.json is of a job of 8 ranks, c.json of one of 2: they are not of one run: load each run by itself, and compare them"
    )


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.json", 0),
        ("rank-7.Apr_03_18_51_38.1102.pt.trace.json.gz", 7),
        ("modded-gpu-rank-00-chrome-trace.json.gz", 0),
        ("Baseline - 12-11 - 8ad3d-rank7-chrome-trace.json.gz", 7),
        ("trace_8_rank_1.json", 1),
        ("bs_32_rank12.json", 12),
        ("profile_trace_rank_3.json.gz", 3),
        ("trace_r5_step1.json", 5),
        ("r2.json", 2),
        ("1718-TP-3.trace.json.gz", 3),
        ("1718-TP-3-DP-1.trace.json.gz", None),
        ("1718-PP-0-TP-3.trace.json.gz", None),
        ("worker11.1623143089861.pt.trace.json.gz", 11),
        ("worker0_4312.1718000000000000000.pt.trace.json", None),
        ("host-rank2_4312.1718000000000000000.pt.trace.json", 2),
        ("kineto_trace_4.json", 4),
        ("libkineto_activities_1074.json", None),
        ("rank_6/worker0.json", 6),
        ("rank_6/host_4312.1718000000000000000.pt.trace.json", 6),
        ("frank1.json", None),
        ("forward_5.json", None),
        ("rank-traces.json", None),
        ("rank1234567.json", None),
    ],
)
def test_ranks_in_names_as_tools_write_them(name: str, rank: int | None) -> None:
    found = given((name, None, None), ("other.json", 99, None))[0]
    assert (found.rank, found.source) == ((0, "order") if rank is None else (rank, "file name"))


@pytest.mark.parametrize("row", RANKS, ids=lambda row: row["example"])
def test_each_pattern_matches_its_example(row: dict[str, Any]) -> None:
    match = re.search(row["pattern"], row["example"], re.IGNORECASE)
    assert match
    assert match.groupdict().get("rank") == (str(row["rank"]) if "rank" in row else None)
    assert row["source"]
