"""A command line to try, in an empty folder of its own, and the runs to try it on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from click.testing import CliRunner

from tests.build import Event, document, kernel, op, step, work
from tracekit.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]


class Said(NamedTuple):
    """What a command wrote, and how it ended."""

    code: int
    out: str
    err: str
    data: bytes

    @property
    def fault(self) -> str:
        """Return the one line of a fault in the input; fails if the command said or wrote anything else."""
        assert self.code == 1
        assert self.data == b""
        assert self.err.startswith("tracekit: ")
        assert self.err.count("\n") == 1
        return self.err.removeprefix("tracekit: ").rstrip("\n")


def two_steps() -> list[Event]:
    """Make two steps of work on one device, and one kernel whose launch is not in the trace."""
    return [
        step(4, 0, 1000),
        *work("gemm", 100, 200, 1, op_name="aten::mm"),
        *work("flash_fwd_kernel", 400, 300, 2, op_name="aten::scaled_dot_product_attention"),
        step(5, 1000, 1000),
        *work("gemm", 1100, 400, 3, op_name="aten::mm"),
        kernel("orphan", 1600, 100, 99),
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which commands run in."""
    home = tmp_path / "here"
    home.mkdir()
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def tracekit(folder: Path) -> Callable[..., Said]:
    """Return a function that runs the command line in an empty folder; a bug of ours is raised."""

    def run(*args: str | Path) -> Said:
        done = CliRunner().invoke(main, [str(arg) for arg in args], prog_name="tracekit", catch_exceptions=False)
        return Said(done.exit_code, done.stdout, done.stderr, done.stdout_bytes)

    return run


@pytest.fixture
def process(folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts the command line as a process of its own, which ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str | Path, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tracekit", *map(str, args)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen(command, env=env, stdout=stdout, stderr=subprocess.PIPE))
        return started[-1]

    yield start
    for running in started:
        running.kill()
        running.communicate()


@pytest.fixture
def trace(folder: Path) -> Path:
    """Return a trace of two steps of rank 1, as a file."""
    path = folder / "train.json"
    path.write_bytes(document(two_steps(), distributedInfo={"rank": 1, "world_size": 2}))
    return path


@pytest.fixture
def cpu_trace(folder: Path) -> Path:
    """Return a trace without a device, as a file."""
    path = folder / "cpu.json"
    path.write_bytes(document(op("aten::mm", 0, 100), op("aten::add", 200, 50)))
    return path


@pytest.fixture
def run_file(tracekit: Callable[..., Said], trace: Path) -> Path:
    """Return the bundle that `load` makes of the trace of two steps."""
    assert tracekit("load", trace, "-o", "train.tkb").code == 0
    return trace.with_name("train.tkb")
