"""The sample trace holds what its README promises and nothing of the machine that made it."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "sample_traces" / "record.py"
TRACE = ROOT / "sample_traces" / "decoder-cpu-train.json.gz"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
BACKENDS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
}

RAW = """{
  "schemaVersion": 1,
    "record_shapes": 1,
    "host_name": "box7.example",
    "PT_PROFILER_JOB_NAME": "nightly \\"a\\"",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
  {"name": "/opt/py/lib/python3.11/contextlib.py(81): inner", "ts": 5180094602688.890, "dur": 0.000},
  {"name": "/opt/py/lib/python3.11/site-packages/torch/x.py(7): f", "ts": 9007199254740993.001, "dur": 1e-05},
  {"name": "aten::mul", "args": {"Concrete Inputs": ["1.0000000000000001e-05", "0."], "Bytes": -1024}}
  ],
  "traceName": "/scratch/run/out.json" }"""
PREFIXES = {
    "/opt/py/lib/python3.11/": "python3.11/",
    "/opt/py/lib/python3.11/site-packages/": "site-packages/",
    "/scratch/run/": "",
}


@pytest.fixture(scope="module")
def text() -> str:
    return gzip.decompress(TRACE.read_bytes()).decode("utf-8")


@pytest.fixture(scope="module")
def trace(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@pytest.fixture(scope="module")
def events(trace: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = trace["traceEvents"]
    return rows


@pytest.fixture(scope="module")
def record() -> Any:
    pytest.importorskip("torch")
    from sample_traces import record

    return record


def run_script(*args: str | Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("torch")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PT_PROFILER_JOB_NAME": "secret-job"}
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_the_file_is_small() -> None:
    assert TRACE.stat().st_size < 400_000


def test_the_file_names_no_machine_and_no_user(text: str, trace: dict[str, Any]) -> None:
    assert "host_name" not in text
    assert "PT_PROFILER_JOB" not in text
    assert trace["traceName"] == "decoder-cpu-train.json"
    for pattern in (r"/(?:root|home|Users|tmp|work|opt|usr|var)\b", r'"/', r"\w@\w", r"[A-Za-z]:[\\/]+Users"):
        assert re.findall(f"{pattern}.{{0,40}}", text) == []


def test_the_steps_are_three_and_none_is_empty(events: list[dict[str, Any]]) -> None:
    steps = {event["name"]: event for event in events if event["name"].startswith("ProfilerStep#")}
    assert list(steps) == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    linears = [event["ts"] for event in events if event["name"] == "aten::linear"]
    for step in steps.values():
        inside = [ts for ts in linears if step["ts"] <= ts <= step["ts"] + step["dur"]]
        assert len(inside) == 2 * 7 + 1


def test_attention_is_grouped_causal_and_flash(events: list[dict[str, Any]]) -> None:
    names = Counter(event["name"] for event in events if event["name"] in BACKENDS)
    assert names == dict.fromkeys(BACKENDS, 3 * 2)
    calls = [event["args"] for event in events if event["name"] == "aten::scaled_dot_product_attention"]
    assert len(calls) == 3 * 2
    assert all(call["Input Dims"][:2] == [[2, 4, 64, 16], [2, 2, 64, 16]] for call in calls)
    assert all(call["Concrete Inputs"][5] == "True" for call in calls)


def test_every_backward_op_finds_its_forward_op(events: list[dict[str, Any]]) -> None:
    numbered = [event for event in events if "Sequence number" in event.get("args", {})]
    forward = {event["args"]["Sequence number"] for event in numbered if event["args"]["Fwd thread id"] == 0}
    backward = {event["args"]["Sequence number"] for event in numbered if event["args"]["Fwd thread id"] > 0}
    assert len(backward) > 3 * 50
    assert backward <= forward


def test_modules_are_named_and_instances_counted(events: list[dict[str, Any]]) -> None:
    modules = {event["name"] for event in events if event["name"].startswith("nn.Module: ")}
    classes = Counter(name.removeprefix("nn.Module: ").rpartition("_")[0] for name in modules)
    assert classes == {
        "Decoder": 1,
        "DecoderLayer": 2,
        "Attention": 2,
        "RotaryEmbedding": 2,
        "GatedMLP": 2,
        "RMSNorm": 5,
        "Linear": 15,
        "Embedding": 1,
    }


def test_memory_rows_hold_allocations_and_frees(events: list[dict[str, Any]]) -> None:
    sizes = [event["args"]["Bytes"] for event in events if event["name"] == "[memory]"]
    assert min(sizes) < 0 < max(sizes)


def test_the_recording_has_no_device(trace: dict[str, Any]) -> None:
    assert trace["deviceProperties"] == []
    assert not {event.get("cat") for event in trace["traceEvents"]} & {"kernel", "cuda_runtime", "ac2g"}


def test_cleaning_names_no_machine(record: Any) -> None:
    cleaned = json.loads(record.clean(RAW, PREFIXES))
    assert list(cleaned) == [
        "schemaVersion",
        "record_shapes",
        "baseTimeNanoseconds",
        "traceEvents",
        "traceName",
    ]
    assert cleaned["traceName"] == "out.json"
    assert [event["name"] for event in cleaned["traceEvents"]] == [
        "python3.11/contextlib.py(81): inner",
        "site-packages/torch/x.py(7): f",
        "aten::mul",
    ]


def test_cleaning_keeps_the_digits_of_every_number(record: Any) -> None:
    unnamed = re.sub(r'\s*"(host_name|PT_PROFILER_JOB_NAME)".*', "", RAW)
    for prefix in sorted(PREFIXES, key=len, reverse=True):
        unnamed = unnamed.replace(prefix, PREFIXES[prefix])
    cleaned = record.clean(RAW, PREFIXES)
    assert NUMBER.findall(cleaned) == NUMBER.findall(unnamed)
    for digits in ("5180094602688.890", "9007199254740993.001", "0.000", "1e-05", '"1.0000000000000001e-05"'):
        assert digits in cleaned


@pytest.mark.parametrize("name", ["/home/ann/x.py(1): f", "<module '/srv/x'>", "C:/Users/ann/x.py"])
def test_cleaning_refuses_a_path_that_it_does_not_know(record: Any, name: str) -> None:
    with pytest.raises(record.TracekitError, match="absolute path"):
        record.clean(json.dumps({"name": name}), PREFIXES)


@pytest.mark.parametrize("name", ["aten::a/b", "Torch-Compiled Region: 0/1", "torch/x.py(3): f", "a / b", "1/2"])
def test_cleaning_leaves_a_slash_that_starts_no_path(record: Any, name: str) -> None:
    assert record.clean(json.dumps({"name": name}), PREFIXES) == json.dumps({"name": name})


def test_recording_again_gives_the_same_attention_ops(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    output = tmp_path / "again.json"
    done = run_script("-o", output)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["again.json"]
    again = json.loads(output.read_text())
    assert "secret-job" not in output.read_text()
    assert again["traceName"] == "again.json"
    names, sample_names = (
        {event["name"] for event in rows if event.get("cat") == "cpu_op" and "attention" in event["name"]}
        for rows in (again["traceEvents"], events)
    )
    assert names == sample_names


def test_an_existing_output_is_refused_in_one_line(tmp_path: Path) -> None:
    output = tmp_path / "kept.json"
    output.write_text("kept")
    done = run_script("-o", output)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{output} exists: choose another output or pass --force\n"
    assert output.read_text() == "kept"
