"""A trace is loaded once however it is moved, and neither a crash nor a full disk nor a neighbour spoils the cache."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.build import document, op
from tests.ends import AFTER_NAMED, ended, needs_signals, points
from tracekit import bundle
from tracekit.errors import TracekitError
from tracekit.loading import cache, open_tables

TRACE, OTHER = document(op("aten::mm", 0, 10)), document(op("aten::bmm", 0, 10))
ROOT = Path(__file__).parents[2]
DAY = 24 * 3600


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a cache of its own, and its folder to work in, which holds a trace; return the cache's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("t.json").write_bytes(TRACE)
    return tmp_path / "cache" / "tracekit"


def opened(path: str | Path) -> list[str]:
    """Open a run, and return what was said meanwhile."""
    said: list[str] = []
    assert open_tables(Path(path), said.append)["op"].collect().height
    return said


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def gone() -> int:
    """Return the number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        return ended.pid


def placed(folder: Path, name: str, size: int = 10, age: float = 0) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)
    return path


def run_name(number: int) -> str:
    return f"runs/{number:032x}.tkb"


def temporary(process: int, folder: str = "runs", suffix: str = ".tkb") -> str:
    return f"{folder}/.{7:032x}{suffix}.tmp-{process}-0123456789abcdef"


def test_a_trace_that_was_touched_or_moved_is_not_loaded_again(folder: Path) -> None:
    assert opened("t.json") == ["loading t.json"]
    os.utime("t.json", (1, 1))
    assert opened("t.json") == []
    Path("elsewhere").mkdir()
    Path("t.json").rename("elsewhere/t.json")
    assert opened("elsewhere/t.json") == []
    assert len(cache.entries()) == 1
    assert len(files(folder / "keys")) == 3


def test_a_trace_by_another_name_is_another_run() -> None:
    opened("t.json")
    Path("u.json").write_bytes(TRACE)
    assert opened("u.json") == ["loading u.json"]
    assert [frame.collect()["source_name"].to_list() for frame in [open_tables(Path("u.json"))["trace"]]] == [
        ["u.json"]
    ]


def test_a_trace_that_is_known_by_its_path_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    opened("t.json")
    monkeypatch.setattr(cache, "_sha256", None)
    assert opened("t.json") == []


def test_a_trace_that_was_changed_and_given_its_old_size_and_time_is_read() -> None:
    opened("t.json")
    before = Path("t.json").stat()
    Path("t.json").write_bytes(TRACE.replace(b'"dur": 10', b'"dur": 70'))
    os.utime("t.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Path("t.json").stat().st_size == before.st_size
    assert open_tables(Path("t.json"))["op"].collect()["dur_ns"].to_list() == [70_000]


def test_a_damaged_key_is_no_key(folder: Path) -> None:
    opened("t.json")
    (key,) = (folder / "keys").iterdir()
    for damage in (b"", b"../../../etc/passwd", b"\xff" * 32, b"x" * 10_000, key.read_bytes()[:20]):
        key.write_bytes(damage)
        assert opened("t.json") == []
        assert len(cache.entries()) == 1


def test_order_options_content_and_version_make_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Path("t.json"), Path("u.json")
    two.write_bytes(OTHER)
    paths = [
        cache.path_for([one]),
        cache.path_for([two]),
        cache.path_for([one, two]),
        cache.path_for([two, one]),
        cache.path_for([one], ["strict"]),
        cache.path_for([one], ["loose"]),
    ]
    assert cache.path_for([one, two]) == paths[2]
    monkeypatch.setattr(cache, "__version__", "99.0")
    assert len({*paths, cache.path_for([one])}) == 7


def test_all_code_and_rules_of_a_room_and_of_the_rooms_in_it_make_the_key() -> None:
    room = ROOT / "tracekit" / "attention"
    written = [path for path in room.rglob("*") if path.suffix in {".py", ".toml"}]
    assert {path.parent for path in written} > {room}
    assert sorted(cache._written(room)) == sorted(written)


def test_what_can_not_be_read_has_no_path() -> None:
    for name, problem in (("none.json", "no such file"), (".", "is a folder"), ("nul\0", "no such file")):
        with pytest.raises(TracekitError, match=problem):
            cache.path_for([Path(name)])


def test_a_trace_that_changes_while_it_is_loaded_is_not_kept() -> None:
    path = cache.path_for([Path("t.json")])
    Path("t.json").write_bytes(OTHER)
    with pytest.raises(TracekitError, match=r"^t\.json changed while it was read$"):
        cache.store(path, {"tables/op.parquet": b""}, [Path("t.json")])
    assert cache.entries() == []


def test_the_state_of_the_cache_is_told(folder: Path) -> None:
    assert cache.info() == cache.Info(folder, 0, 0, 4 * 2**30, 0, None, None)
    for number, size in ((1, 100), (2, 30)):
        os.utime(placed(folder, run_name(number), size), (number * DAY, number * DAY))
    placed(folder, temporary(gone()), 5)
    placed(folder, temporary(os.getpid()), 6)
    times = [datetime.fromtimestamp(number * DAY, UTC) for number in (1, 2)]
    assert cache.info() == cache.Info(folder, 2, 130, 4 * 2**30, 5, *times)
    assert [(entry.path.name, entry.bytes) for entry in cache.entries()] == [
        (f"{1:032x}.tkb", 100),
        (f"{2:032x}.tkb", 30),
    ]


def test_clearing_deletes_what_is_the_cache_s_and_nothing_else(folder: Path) -> None:
    opened("t.json")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    placed(folder, temporary(gone()), 7)
    placed(folder, temporary(gone(), "keys", ""), 5)
    placed(folder, temporary(os.getpid(), "keys", ""), age=2 * DAY)
    foreign = [
        "notes.txt",
        "runs/notes.txt",
        "runs/mine.tkb",
        f"runs/{9:032x}",
        f"keys/{9:032x}.txt",
        "runs/.hidden",
        "runs/.x.tkb.tmp-1-ab",
        temporary(os.getpid()),
    ]
    for name in foreign:
        placed(folder, name)
    (folder / run_name(5)).mkdir()
    (folder / run_name(6)).symlink_to(folder / "notes.txt")
    assert cache.clear() == cache.Cleared(1, size + 7 + 5 + 10)
    assert files(folder) == sorted([*foreign, run_name(6)])
    assert cache.clear() == cache.Cleared(0, 0)
    assert opened("t.json") == ["loading t.json"]


def test_clearing_what_is_not_there_is_no_fault(tmp_path: Path) -> None:
    assert cache.clear() == cache.Cleared(0, 0)
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert cache.clear() == cache.Cleared(0, 0)
    assert cache.info().runs == 0


def test_a_run_that_is_cleared_while_it_is_read_is_read_to_the_end() -> None:
    opened("t.json")
    tables = open_tables(Path("t.json"))
    cache.clear()
    assert tables["op"].collect()["name"].to_list() == ["aten::mm"]


def test_trimming_deletes_what_was_used_longest_ago(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        placed(folder, run_name(number), 100, age=(number + 1) * 100)
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "300")
    cache.trim()
    assert files(folder) == [run_name(number) for number in (0, 1, 2)]
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "150")
    cache.trim(keep=folder / run_name(2))
    assert files(folder) == [run_name(2)]


def test_trimming_deletes_what_broken_off_writes_left(folder: Path) -> None:
    kept = [placed(folder, temporary(os.getpid())), placed(folder, temporary(os.getpid(), "keys", ""))]
    placed(folder, temporary(gone()))
    placed(folder, temporary(gone(), "keys", ""))
    placed(folder, temporary(1, "keys", ""), age=DAY + 60)
    cache.trim()
    assert files(folder) == sorted(path.relative_to(folder).as_posix() for path in kept)


def test_keys_go_with_their_runs_but_not_at_once(folder: Path) -> None:
    run = placed(folder, run_name(1))
    for number, target in ((1, 1), (2, 2), (3, 3)):
        key = placed(folder, f"keys/{number:032x}")
        key.write_text(f"{target:032x}\n")
        if number < 3:
            os.utime(key, (1, 1))
    cache.trim()
    assert files(folder) == [f"keys/{1:032x}", f"keys/{3:032x}", f"runs/{run.name}"]


def test_no_cache_at_all_may_be_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened("t.json")
    before = files(folder)
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "0")
    Path("u.json").write_bytes(OTHER)
    for name in ("t.json", "u.json", "u.json"):
        assert opened(name) == [f"loading {name}"]
    assert files(folder) == before


@pytest.mark.parametrize("value", ["4GB", "-1", "1.5", "1" * 30])
def test_a_limit_that_is_no_number_is_a_fault(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(cache.LIMIT_VARIABLE, value)
    with pytest.raises(TracekitError, match=r"^TRACEKIT_CACHE_BYTES is '.+', not a number of bytes: set it to one"):
        opened("t.json")


LOAD = """
import json, sys, resource
from pathlib import Path
from tracekit.loading import open_tables
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
said = []
print(json.dumps({"rows": open_tables(Path(sys.argv[1]), said.append)["op"].collect().height, "said": said}))
"""


def loading(trace: Path, *limits: int) -> subprocess.Popen[str]:
    """Start a process that opens a trace through the cache and prints how many ops it has, and what was said."""
    words = [sys.executable, "-c", LOAD, str(trace), *map(str, limits)]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


def answer(running: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def whole_runs() -> int:
    """Return the number of runs in the cache, each byte of which is what was written."""
    for entry in cache.entries():
        assert all(check.ok for check in bundle.verify(entry.path))
    return len(cache.entries())


def test_processes_that_load_one_trace_at_once_make_one_run(folder: Path, traces: Path) -> None:
    running = [loading(traces / "a100-nccl.json.gz") for _ in range(2)]
    answers = [answer(each) for each in running]
    assert len({each["rows"] for each in answers}) == 1
    assert all(each["said"] in ([], ["loading a100-nccl.json.gz"]) for each in answers)
    assert whole_runs() == 1
    assert len(files(folder)) == 2


@needs_signals
def test_a_process_that_is_killed_while_it_writes_leaves_the_cache_whole(folder: Path, traces: Path) -> None:
    trace = traces / "a100-nccl.json.gz"
    assert opened(trace) == ["loading a100-nccl.json.gz"]
    (whole,) = cache.entries()
    for how in points(whole.bytes):
        cache.clear()
        ended(how, LOAD, trace)
        assert cache.entries() == []
        (left_over,) = (folder / "runs").iterdir()
        assert cache.info().left_over_bytes == left_over.stat().st_size
    assert left_over.stat().st_size == whole.bytes
    assert opened(trace) == ["loading a100-nccl.json.gz"]
    assert opened(trace) == []
    assert whole_runs() == 1
    assert cache.info().left_over_bytes == 0


@needs_signals
def test_a_process_that_is_killed_once_a_run_has_its_name_leaves_it_whole(folder: Path, traces: Path) -> None:
    ended(AFTER_NAMED, LOAD, traces / "a100-nccl.json.gz")
    assert whole_runs() == 1
    assert cache.info().left_over_bytes == 0
    assert opened(traces / "a100-nccl.json.gz") == []


def test_a_disk_without_room_costs_only_time(folder: Path) -> None:
    opened("t.json")
    (run,) = cache.entries()
    cache.clear()
    found = answer(loading(Path("t.json"), run.bytes // 2))
    assert found["rows"] == 1
    assert found["said"][0] == "loading t.json"
    assert len(found["said"]) == 2
    assert found["said"][1].startswith("the result can't be cached: ")
    assert "File too large" in found["said"][1]
    assert [name for name in files(folder) if name.startswith("runs/")] == []
    assert opened("t.json") == ["loading t.json"]


def test_a_full_file_system_costs_only_time(tmp_path: Path) -> None:
    target = tmp_path / "cache"
    target.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", str(target)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        said = opened("t.json")
        assert said[0] == "loading t.json"
        assert [line.partition(":")[0] for line in said[1:]] == ["the result can't be cached"]
        assert "No space left on device" in said[1]
        assert whole_runs() == 0
        subprocess.run(["mount", "-o", "remount,ro", str(target)], check=True)
        said = opened("t.json")
        assert "Read-only file system" in said[1]
        assert len(said) == 2
    finally:
        subprocess.run(["umount", str(target)], check=True)


def test_a_cache_that_can_only_be_read_still_answers(tmp_path: Path) -> None:
    target = tmp_path / "cache"
    target.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(target)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        opened("t.json")
        subprocess.run(["mount", "-o", "remount,ro", str(target)], check=True)
        assert opened("t.json") == []
        os.utime("t.json", (1, 1))
        assert opened("t.json") == []
        with pytest.raises(TracekitError, match=r"can't be cleared \(Read-only file system\): check your rights"):
            cache.clear()
    finally:
        subprocess.run(["umount", str(target)], check=True)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do everything")
def test_a_folder_without_the_right_to_write_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(stat.S_IRUSR | stat.S_IXUSR)
    said = opened("t.json")
    assert said[0] == "loading t.json"
    assert [line.partition(":")[0] for line in said[1:]] == ["the result can't be cached"]


def test_a_file_where_the_folder_should_be_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    for _ in range(2):
        said = opened("t.json")
        assert said[0] == "loading t.json"
        assert [line.partition(":")[0] for line in said[1:]] == ["the result can't be cached"]
