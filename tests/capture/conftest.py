"""Small recordings by the command, made once, and what they hold."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest
import torch
from click.testing import CliRunner, Result

from tracekit.bundle import Bundle
from tracekit.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SMALL = "--layers 1 --heads 4 --head-dim 8 --vocab 32 --seq 8 --batch 2 --steps 2 --warmup 0 --device cpu"
"""Options that make a recording quick; later ones win."""


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Keep torch's threads from waiting for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Recorded:
    """A bundle that the command wrote, and the line it said."""

    path: Path
    said: str

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Return `facts.json`."""
        return Bundle.open(self.path).facts

    @cached_property
    def text(self) -> str:
        """Return the trace as it lies in the bundle."""
        return gzip.decompress(Bundle.open(self.path).read("raw/trace.json.gz")).decode()

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return the trace's events."""
        found: list[dict[str, Any]] = json.loads(self.text)["traceEvents"]
        return found

    def marks(self) -> list[dict[str, Any]]:
        """Return the annotations around the steps."""
        return [row for row in self.rows if row.get("cat") == "user_annotation" and row["name"].startswith("tracekit|")]

    def ops(self, step: int) -> list[dict[str, Any]]:
        """Return the ops of a step in order of start."""
        (mark,) = (row for row in self.marks() if row["name"] == f"tracekit|step={step}")
        ops = [row for row in self.rows if row.get("cat") == "cpu_op" and mark["ts"] <= row["ts"]]
        return sorted((row for row in ops if row["ts"] <= mark["ts"] + mark["dur"]), key=lambda row: row["ts"])


def run(options: str, output: Path) -> Result:
    """Run `tracekit capture attention` with these options and those that make it small."""
    return CliRunner().invoke(main, ["capture", "attention", "-o", str(output), *SMALL.split(), *options.split()])


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recorded]:
    """Return a function that records with some options, once for each of them."""
    done: dict[str, Recorded] = {}

    def record(options: str = "") -> Recorded:
        if options not in done:
            path = tmp_path_factory.mktemp("recorded") / "run.tkb"
            result = run(options, path)
            assert result.exit_code == 0, result.output
            done[options] = Recorded(path, result.stderr)
        return done[options]

    return record
