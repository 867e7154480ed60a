"""The command as a whole: help, faults, and what it does when it is interrupted or nobody reads on."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from inline_snapshot import snapshot

from tracekit import cli
from tracekit.cli import main

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Said

FULL = Path("/dev/full")
ENDLESS = "select count(*) from range(1000000000000)"


def _commands(group: click.Group, *around: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*around, name)
        if isinstance(command, click.Group):
            yield from _commands(command, *around, name)


@pytest.mark.parametrize("words", [(), *_commands(main)], ids=" ".join)
def test_help_of_every_command_fits_100_columns_and_explains_every_option(
    tracekit: Callable[..., Said], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = tracekit(*words, "--help")
    assert said.code == 0
    assert said.err == ""
    assert said.out.startswith(" ".join(("Usage: tracekit", *words)))
    assert max(len(line) for line in said.out.splitlines()) <= 100
    assert tracekit(*words, "-h") == said
    command: click.Command = main
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    assert command.help
    assert all(parameter.help for parameter in command.params if isinstance(parameter, click.Option))


def test_help_lists_the_verbs(tracekit: Callable[..., Said]) -> None:
    verbs = tracekit("--help").out.partition("Commands:\n")[2]
    modules = {path.stem for path in Path(cli.__file__).parent.glob("*.py")} - {
        "__init__",
        "options",
        "output",
        "progress",
    }
    assert {line.split()[0] for line in verbs.splitlines()} == modules
    assert "..." not in verbs


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["frobnicate"], "Error: No such command 'frobnicate'."),
        (["--frobnicate"], "Error: No such option '--frobnicate'."),
        (["bundle", "frobnicate"], "Error: No such command 'frobnicate'."),
    ],
)
def test_a_wrong_word_is_a_fault_of_usage(tracekit: Callable[..., Said], args: list[str], line: str) -> None:
    said = tracekit(*args)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("Usage: tracekit")
    assert said.err.splitlines()[-1] == line


def test_the_version_is_the_library_s(tracekit: Callable[..., Said]) -> None:
    import tracekit as library

    assert tracekit("--version").out == f"tracekit, version {library.__version__}\n"


def test_ctrl_c_ends_a_query_without_a_traceback(tracekit: Callable[..., Said], trace: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        said = tracekit("query", trace, ENDLESS)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert (said.code, said.out, said.err.split()) == (1, "", ["Aborted!"])


def test_a_reader_that_stops_reading_is_no_fault(
    process: Callable[..., subprocess.Popen[bytes]], run_file: Path
) -> None:
    running = process("query", run_file, "select * from range(1000000)", "-f", "csv")
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline() == b"range\n"
    running.stdout.close()
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait(timeout=20) in (0, 1)


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("args", [["query", "train.tkb", "top_kernels"], ["bundle", "verify", "train.tkb"]])
def test_a_full_disk_behind_stdout_is_a_fault_in_one_line(
    process: Callable[..., subprocess.Popen[bytes]], run_file: Path, args: list[str]
) -> None:
    with FULL.open("wb") as full:
        running = process(*args, stdout=full.fileno())
        _, err = running.communicate(timeout=20)
    assert running.returncode == 1
    assert err.decode() == snapshot(
        "tracekit: stdout can't be written (No space left on device): give stdout a place that has room\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="terminals")
def test_parquet_is_refused_on_a_terminal(process: Callable[..., subprocess.Popen[bytes]], run_file: Path) -> None:
    mine, theirs = os.openpty()
    running = process("query", run_file, "top_kernels", "-f", "parquet", stdout=theirs)
    _, err = running.communicate(timeout=20)
    os.close(theirs)
    os.close(mine)
    assert running.returncode == 1
    assert err.decode() == snapshot("tracekit: parquet is binary: give a file with -o, or redirect stdout\n")


@pytest.mark.skipif(sys.platform == "win32", reason="the memory of a process")
@pytest.mark.parametrize(
    ("sql", "limit", "line"),
    [
        (
            "select lpad('x', 2000000000, 'y')",
            ["--timeout", "0.3"],
            "the query ran longer than 0.3 s and was stopped: ask for less, or raise --timeout",
        ),
        (
            "select repeat('x', 4000000000)",
            ["--memory-limit", "100MB"],
            "the query needs more than 100MB of memory: ask for less, or raise --memory-limit",
        ),
    ],
)
def test_a_query_inside_one_endless_call_ends_with_the_process(
    process: Callable[..., subprocess.Popen[bytes]], run_file: Path, sql: str, limit: list[str], line: str
) -> None:
    started = time.monotonic()
    running = process("query", run_file, sql, *limit)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err.decode()) == (1, b"", f"tracekit: {line}\n")
    assert time.monotonic() - started < 30
