"""`tracekit cache`: what is kept is told and cleared, and a command that is killed leaves a whole file or none."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

from tests.ends import AFTER_NAMED, ended, needs_signals, points

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Said

COUNT = "select count(*) as ops from op"


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a cache of its own; return its folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tracekit"


def shown(text: str, kept: Path) -> str:
    """Return text without what differs from run to run."""
    text = text.replace(str(kept), "CACHE")
    return re.sub(r"\d[\d.,]* (B|KiB)\b", "SIZE", re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", text))


def test_info_says_what_is_kept(tracekit: Callable[..., Said], trace: Path, kept: Path) -> None:
    assert shown(tracekit("cache", "info").out, kept) == snapshot("""\
folder       CACHE
holds        0 runs, SIZE of at most 4.00 GiB
""")
    assert tracekit("query", trace, COUNT).code == 0
    said = tracekit("cache", "info")
    assert (said.code, said.err) == (0, "")
    assert shown(said.out, kept) == snapshot("""\
folder       CACHE
holds        1 run, SIZE of at most 4.00 GiB
last used    TIME UTC
oldest use   TIME UTC
""")


def test_info_tells_of_what_broken_off_writes_left(tracekit: Callable[..., Said], kept: Path) -> None:
    (kept / "runs").mkdir(parents=True)
    left_over = kept / "runs" / f".{0:032x}.tkb.tmp-{os.getpid()}-ab"
    left_over.write_bytes(bytes(3000))
    assert "left over" not in tracekit("cache", "info").out
    os.utime(left_over, (1, 1))
    assert tracekit("cache", "info").out.splitlines()[-1] == "left over    2.93 KiB of broken-off writes"
    assert tracekit("cache", "clear").out == f"{kept}: 0 runs deleted, 2.93 KiB freed\n"


def test_info_is_a_table_in_every_format(
    tracekit: Callable[..., Said], trace: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEKIT_CACHE_BYTES", "1000000")
    tracekit("query", trace, COUNT)
    (run,) = (kept / "runs").iterdir()
    os.utime(run, (0, 0))
    expected = {
        "folder": str(kept),
        "runs": 1,
        "size_bytes": run.stat().st_size,
        "limit_bytes": 1_000_000,
        "left_over_bytes": 0,
        "oldest_use": "1970-01-01T00:00:00+00:00",
        "newest_use": "1970-01-01T00:00:00+00:00",
    }
    assert json.loads(tracekit("cache", "info", "-f", "json").out)["rows"] == [expected]
    assert tracekit("cache", "info", "-o", "info.csv").code == 0
    head, row = Path("info.csv").read_text().splitlines()
    assert head == ",".join(expected)
    assert row == ",".join(map(str, expected.values()))
    assert tracekit("cache", "info", "-o", "info.csv").fault.startswith("info.csv exists: ")


def test_clear_gives_the_room_back(tracekit: Callable[..., Said], trace: Path, kept: Path) -> None:
    tracekit("query", trace, COUNT)
    (kept / "mine.txt").touch()
    size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    said = tracekit("cache", "clear")
    assert (said.code, said.err) == (0, "")
    assert said.out == f"{kept}: 1 run deleted, {size / 2**10:.1f} KiB freed\n"
    assert [path.name for path in kept.rglob("*") if path.is_file()] == ["mine.txt"]
    assert tracekit("cache", "clear").out == f"{kept}: 0 runs deleted, 0 B freed\n"


def test_a_limit_that_is_no_number_is_a_fault_in_one_line(
    tracekit: Callable[..., Said], trace: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEKIT_CACHE_BYTES", "4GB")
    for args in (["query", trace, COUNT], ["cache", "info"]):
        assert tracekit(*args).fault == snapshot(
            "TRACEKIT_CACHE_BYTES is '4GB', not a number of bytes: set it to one, or unset it"
        )
    monkeypatch.setenv("TRACEKIT_CACHE_BYTES", "0")
    assert tracekit("query", trace, COUNT).code == 0
    assert not kept.exists()
    assert shown(tracekit("cache", "info").out, kept) == snapshot("""\
folder       CACHE
holds        0 runs, SIZE and no more are kept
""")


@pytest.mark.skipif(sys.platform == "win32", reason="terminals")
def test_a_cache_that_can_not_be_written_costs_one_line_on_a_terminal(trace: Path, kept: Path) -> None:
    import subprocess

    kept.parent.write_text("")
    mine, theirs = os.openpty()
    command = [sys.executable, "-m", "tracekit", "query", str(trace), COUNT, "-f", "csv"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "200"}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=theirs, check=True, timeout=60)
    os.close(theirs)
    said = os.read(mine, 65_536).decode()
    os.close(mine)
    assert done.stdout == b"ops\n5\n"
    assert [said.count(words) for words in ("loading train.json\r\n", "the result can't be cached: ")] == [1, 1]
    if "\x1b" not in said:  # a bar is drawn where the machine is slow
        assert len(said.splitlines()) == 2


COMMAND = "from tracekit.cli import start; start()"


@needs_signals
def test_loading_over_a_bundle_that_is_killed_leaves_the_old_one_or_the_new(
    tracekit: Callable[..., Said], trace: Path, traces: Path
) -> None:
    output = trace.with_name("run.tkb")
    assert tracekit("load", trace, "-o", output).code == 0
    old = output.read_bytes()
    assert tracekit("load", traces / "a100-nccl.json.gz", "-o", "new.tkb").code == 0
    new = output.with_name("new.tkb").read_bytes()
    load = ("load", traces / "a100-nccl.json.gz", "-o", output, "--force")
    for number, how in enumerate(points(len(new)), start=1):
        ended(how, COMMAND, *load)
        assert output.read_bytes() == old
        assert len(list(output.parent.glob(".run.tkb.tmp-*"))) == number
    ended(AFTER_NAMED, COMMAND, *load)
    assert output.read_bytes() == new


@needs_signals
def test_a_query_that_is_killed_while_it_caches_is_answered_the_next_time(
    tracekit: Callable[..., Said], traces: Path, kept: Path
) -> None:
    trace = traces / "a100-nccl.json.gz"
    assert tracekit("query", trace, COUNT).code == 0
    (run,) = (kept / "runs").iterdir()
    ends = points(run.stat().st_size)
    assert tracekit("cache", "clear").code == 0
    for how in ends:
        ended(how, COMMAND, "query", trace, COUNT)
    said = tracekit("query", trace, COUNT, "-f", "csv")
    assert (said.code, said.err) == (0, "")
    assert tracekit("query", trace, COUNT, "-f", "csv") == said
    (run,) = (kept / "runs").iterdir()
    assert tracekit("bundle", "verify", run).code == 0
