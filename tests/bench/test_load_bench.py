"""The benchmark runs whole on a tiny file, and writes down what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench.tools import ROOT, has_module
from tests.build import document, step, work

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a small trace."""
    path = tmp_path_factory.mktemp("bench") / "small.json"
    path.write_bytes(document([step(1, 0, 1000), *work("gemm", 100, 200, 1, op_name="aten::mm")]))
    return path


def bench(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the benchmark in a process of its own, from the checkout, as anyone would."""
    command = [sys.executable, "-m", "tests.bench.load", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_tiny_benchmark_prints_its_tables_and_writes_its_measurements(small: Path, tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    done = bench("--trace", small, "--sizes", "20kB", "-n", 1, "--json", output, "--without", "HTA")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(output.read_text())
    [file] = found["files"]
    loads = {load["name"]: load for load in file["loads"]}
    asked = [question["name"] for question in file["questions"]]

    assert (found["repetitions"], file["trace"]) == (1, "small.json")
    assert file["bytes"] == pytest.approx(20_000, rel=0.1)
    assert file["events"] == file["copies"] * 4
    assert set(loads) - {"orjson"} == {"tracekit", "tracekit --workers 1", "json"}
    assert asked[0] == "query top_kernels"
    assert asked[-1] == "--help"
    for measured in (*loads.values(), *file["questions"]):
        assert measured["failed"] is None
        assert len(measured["runs"]) == 1
        assert 0 < measured["seconds"] == measured["runs"][0]["seconds"]
    assert loads["tracekit"]["times_tracekit"] == 1
    assert loads["json"]["times_tracekit"] == loads["json"]["seconds"] / loads["tracekit"]["seconds"]
    assert loads["tracekit"]["bundle_frac"] == loads["tracekit"]["bundle_bytes"] / file["bytes"]
    assert loads["json"]["bundle_bytes"] is None
    assert "times tracekit" in done.stdout
    assert "query top_kernels" in done.stdout
    assert str(tmp_path) not in output.read_text()


def test_a_profile_gives_each_stage_its_share(small: Path, tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    done = bench("--trace", small, "--sizes", "20kB", "--keep", tmp_path, "--json", output, "--profile")
    assert done.returncode == 0, done.stderr
    [profile] = json.loads(output.read_text())["profiles"]

    assert list(profile["stages"]) == ["reading", "decoding", "columns", "linking", "meaning", "writing", "other"]
    assert sum(profile["stages"].values()) == pytest.approx(1)
    assert all(share > 0 for share in profile["stages"].values())
    assert profile["functions"] == sorted(profile["functions"], key=lambda row: -row["own_frac"])
    assert len(list(tmp_path.glob("*/rank0.json"))) == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--sizes", "5"], "'5' is not a list of sizes such as 50MB,5GB"),
        (["--sizes", "0MB"], "'0MB' is not a list of sizes such as 50MB,5GB"),
        (["--trace", "README.md"], "README.md can't be tiled"),
        (["--hta-python", "README.md"], "README.md does not run Python"),
        (["--json", "nowhere/found.json"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(words: list[str], line: str) -> None:
    done = bench(*words)

    assert done.returncode != 0
    assert line in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_of_the_same_name_is_not_taken_for_a_tool(tmp_path: Path) -> None:
    (tmp_path / "nosuchtool.py").touch()

    assert has_module(sys.executable, "json.decoder", tmp_path)
    assert not has_module(sys.executable, "nosuchtool.core", tmp_path)
