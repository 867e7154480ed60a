"""`tracekit capture attention`: real recordings by the command, and the faults that it tells in a line."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from click.testing import CliRunner
from inline_snapshot import snapshot

from tests.capture.conftest import SMALL, Recorded, run
from tracekit.bundle import Bundle, verify
from tracekit.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Record = Callable[[str], Recorded]

ATTENTION = re.compile(r"aten::_scaled_dot_product_\w+")
CALLS = {
    "auto": "aten::_scaled_dot_product_flash_attention_for_cpu",
    "flash": "aten::_scaled_dot_product_flash_attention_for_cpu",
    "math": "aten::_scaled_dot_product_attention_math",
}


def calls(recorded: Recorded) -> dict[str, int]:
    """Return how often each backend ran."""
    return dict(Counter(row["name"] for row in recorded.rows if ATTENTION.fullmatch(row["name"])))


def names(recorded: Recorded, step: int) -> list[str]:
    """Return the names of a step's ops in order of start."""
    return [row["name"] for row in recorded.ops(step)]


@pytest.mark.parametrize("mode", ["prefill", "decode", "train"])
@pytest.mark.parametrize("impl", ["auto", "math", "flash", "naive"])
def test_every_mode_runs_with_every_implementation_of_the_cpu(recorded: Record, mode: str, impl: str) -> None:
    found = recorded(f"--mode {mode} --impl {impl} --kv-heads 2 --lengths 5,8")
    assert found.said.endswith("; whole\n")
    assert [mark["name"] for mark in found.marks()] == ["tracekit|step=0", "tracekit|step=1"]
    expected = {CALLS[impl]: 2} if impl != "naive" else {}
    if mode == "train" and impl in {"auto", "flash"}:
        expected[f"{CALLS[impl]}_backward"] = 2
    assert calls(found) == expected
    workload = found.facts["workload"]
    assert (workload["mode"], workload["implementation"]) == (mode, impl)


def test_the_verdict_is_one_line_and_stdout_is_empty(tmp_path: Path) -> None:
    result = run("", tmp_path / "run.tkb")
    assert result.stdout == ""
    line = re.sub(r"[\d,]+ events", "N events", result.stderr.replace(f"{tmp_path}/", ""))
    assert line == "run.tkb: 2 steps, N events, shapes stacks modules memory; whole\n"


def test_the_bundle_holds_trace_and_facts_and_says_why_no_tables(recorded: Record) -> None:
    path = recorded("").path
    bundle = Bundle.open(path)
    assert bundle.names() == ["facts.json", "raw/trace.json.gz"]
    assert bundle.manifest.left_out == {"tables": "made when the bundle is first opened"}
    assert all(entry.ok for entry in verify(path))


def test_every_op_of_the_window_lies_in_a_step(recorded: Record) -> None:
    found = recorded("--mode train")
    ops = [row for row in found.rows if row.get("cat") == "cpu_op"]
    assert len(ops) == len(found.ops(0)) + len(found.ops(1))


def test_the_steps_of_a_batch_run_the_same_ops(recorded: Record) -> None:
    found = recorded("--kv-heads 2 --lengths 5,8")
    assert names(found, 0) == names(found, 1)
    linears = [row["args"]["Input Dims"][1] for row in found.ops(0) if row["name"] == "aten::linear"]
    assert linears == [[32, 32], [16, 32], [16, 32], [32, 32], [128, 32], [128, 32], [32, 128], [32, 32]]


def test_recording_again_gives_the_same_ops(recorded: Record, tmp_path: Path) -> None:
    options = "--kv-heads 2 --lengths 5,8"
    assert run(options, tmp_path / "again.tkb").exit_code == 0
    assert names(Recorded(tmp_path / "again.tkb", ""), 0) == names(recorded(options), 0)


def test_naive_attention_is_the_chain_that_the_textbook_has(recorded: Record) -> None:
    found = recorded("--mode decode --impl naive --kv-heads 2 --lengths 5,8")
    chain = {"aten::bmm", "aten::masked_fill", "aten::softmax"}
    assert [name for name in names(found, 0) if name in chain] == [
        "aten::bmm",
        "aten::masked_fill",
        "aten::softmax",
        "aten::bmm",
    ]


def test_a_mask_tensor_is_given_only_where_it_was_asked(recorded: Record) -> None:
    def mask_of(options: str) -> tuple[Any, str]:
        (call,) = (row for row in recorded(options).ops(0) if row["name"] == "aten::scaled_dot_product_attention")
        return call["args"]["Input Dims"][3], call["args"]["Concrete Inputs"][5]

    assert mask_of("") == ([], "True")
    assert mask_of("--kv-heads 2 --lengths 5,8") == ([2, 1, 8, 8], "False")
    assert mask_of("--lengths 5,8 --mask causal") == ([], "True")
    assert mask_of("--mask none") == ([], "False")
    assert mask_of("--mask dense") == ([1, 1, 8, 8], "False")


def test_caches_grow_or_have_their_size(recorded: Record) -> None:
    def keys_of(options: str) -> list[int]:
        found = recorded(options)
        wrapper = "aten::scaled_dot_product_attention"
        rows = [row for step in (0, 1) for row in found.ops(step) if row["name"] == wrapper]
        return [row["args"]["Input Dims"][1][2] for row in rows]

    assert keys_of("--mode decode") == [9, 10]
    assert keys_of("--mode decode --cache static") == [10, 10]
    assert "aten::index_copy_" in names(recorded("--mode decode --cache static"), 0)
    assert "aten::index_copy_" not in names(recorded("--mode decode"), 0)


def test_modules_are_named_and_counted(recorded: Record) -> None:
    found = {row["name"] for row in recorded("").rows if row["name"].startswith("nn.Module: ")}
    classes = Counter(name.removeprefix("nn.Module: ").rpartition("_")[0] for name in found)
    assert classes == {
        "DecoderForCausalLM": 1,
        "Decoder": 1,
        "DecoderLayer": 1,
        "Attention": 1,
        "RotaryEmbedding": 1,
        "GatedMLP": 1,
        "RMSNorm": 3,
        "Linear": 8,
        "Embedding": 1,
    }


def test_the_facts_of_a_padded_batch_are_all_there(recorded: Record) -> None:
    facts = recorded("--kv-heads 2 --lengths 5,8").facts
    assert sorted(facts) == snapshot(
        [
            "environment",
            "facts_version",
            "model",
            "profiled_step_ns",
            "settings",
            "steps",
            "synchronized_each_step",
            "torch_version",
            "unprofiled_step_ns",
            "workload",
        ]
    )
    assert facts["model"] == snapshot(
        {
            "dtype": "float32",
            "head_dim": 8,
            "heads": 4,
            "hidden": 32,
            "intermediate": 128,
            "kv_heads": 2,
            "layers": 1,
            "parameter_bytes": 70016,
            "parameters": 17504,
            "vocab": 32,
        }
    )
    assert facts["workload"] == snapshot(
        {
            "batch": 2,
            "cache": None,
            "device": "cpu",
            "implementation": "auto",
            "label": {},
            "lengths": {"form": "list", "numbers": [5, 8]},
            "mask": "dense",
            "mode": "prefill",
            "seed": 0,
            "seq": 8,
            "warmup": 0,
        }
    )
    assert facts["steps"][1] == snapshot(
        {
            "is_whole": True,
            "lengths": [5, 8],
            "mask": "dense",
            "mask_kind": "causal_padding",
            "number": 1,
            "padded_length": 8,
            "padding_side": "right",
            "query_length": 8,
            "sequences": 2,
            "tokens": 13,
        }
    )
    assert len(facts["unprofiled_step_ns"]) == len(facts["profiled_step_ns"]) == 2
    assert facts["torch_version"] == facts["environment"]["torch"] == torch.__version__


def test_the_switches_are_those_of_the_steps(recorded: Record) -> None:
    sdpa = recorded("--mode train --impl math --kv-heads 2 --lengths 5,8").facts["settings"]["sdpa"]
    assert (sdpa["math"], sdpa["flash"]) == (True, False)


def test_labels_are_facts(tmp_path: Path) -> None:
    run("--label run=base --label note=a=b", tmp_path / "run.tkb")
    assert Recorded(tmp_path / "run.tkb", "").facts["workload"]["label"] == {"run": "base", "note": "a=b"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_what_runs(recorded: Record, dtype: str) -> None:
    found = recorded(f"--mode train --dtype {dtype}")
    assert found.facts["model"]["dtype"] == dtype
    assert found.facts["model"]["parameter_bytes"] == 2 * found.facts["model"]["parameters"]
    (call,) = (row for row in found.ops(0) if row["name"] == "aten::scaled_dot_product_attention")
    assert call["args"]["Input type"][0] == {"bfloat16": "c10::BFloat16", "float16": "c10::Half"}[dtype]


REFUSED = {
    "--device cuda": "there is no CUDA device: torch VERSION was built without CUDA: record with --device cpu",
    "--impl cudnn": "torch VERSION has no cudnn attention for this float32 call on cpu: choose another --impl",
    "--heads 4 --kv-heads 3": "--heads 4 is no multiple of --kv-heads 3: change one of the two",
    "--lengths 9,3": "--lengths goes up to 9, above the padded length 8: raise --seq, or shorten it",
    "--lengths 3,3,3": "--lengths lists 3 sequences, --batch is 2: make them equal, or leave one out",
    "--lengths 0,3": "--lengths holds 0: a sequence has at least 1 token",
    "--lengths=-1,3": "--lengths holds -1: a sequence has at least 1 token",
    "--impl naive --seq 100000000": "out of memory (it tried to allocate ",
    "--vocab 100000000000000": "out of memory (it tried to allocate ",
}


@pytest.mark.parametrize("options", REFUSED)
@pytest.mark.skipif(torch.version.cuda is not None, reason="the lines are those of a torch without CUDA")
def test_what_can_not_be_done_is_one_line_and_writes_nothing(tmp_path: Path, options: str) -> None:
    result = run(options, tmp_path / "run.tkb")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"tracekit: {REFUSED[options].replace('VERSION', torch.__version__)}")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("options", ["--seq 0", "--mode chat", "--impl fast", "--label x", "--steps 0", "--nothing"])
def test_wrong_usage_exits_2(tmp_path: Path, options: str) -> None:
    result = run(options, tmp_path / "run.tkb")
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")
    assert [*tmp_path.iterdir()] == []


def test_an_output_is_kept_without_force_and_replaced_with_it(tmp_path: Path) -> None:
    path = tmp_path / "run.tkb"
    path.write_text("kept")
    result = run("", path)
    line = f"tracekit: {path} exists: choose another name, or overwrite it with --force\n"
    assert (result.exit_code, result.stderr, path.read_text()) == (1, line, "kept")
    assert run("--force", path).exit_code == 0
    assert Bundle.open(path).names("raw/")


def test_a_missing_folder_is_told_before_any_work(tmp_path: Path) -> None:
    result = run("", tmp_path / "none" / "run.tkb")
    assert result.exit_code == 1
    assert "none is not a folder): create it, or choose another" in result.stderr


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file grow further, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with files_of_at_most(50_000):
        result = run("", tmp_path / "run.tkb")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "run.tkb can't be written (" in result.stderr
    assert result.stderr.endswith("): make room, or choose another disk\n")
    assert [*tmp_path.iterdir()] == []


def run_apart(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, in a folder."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


BARE = """
import sys
lacking = {"polars", "duckdb", "msgspec", "rich", "altair", "pyarrow", "isal", "platformdirs", "vl_convert"}
class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in lacking:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from tracekit.cli import main
main(sys.argv[1:] or OPTIONS)
"""


def test_torch_click_and_the_standard_library_are_enough_and_nobody_is_named(tmp_path: Path) -> None:
    home = tmp_path / "home" / "zaphod"
    home.mkdir(parents=True)
    options = repr(["capture", "attention", "-o", "run.tkb", *SMALL.split()])
    secrets = {"HOME": str(home), "USER": "zaphod", "PT_PROFILER_JOB_NAME": "secret-job", "SECRET": "forty-two"}
    done = run_apart(BARE.replace("OPTIONS", options), home, **secrets)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert re.fullmatch(r"run\.tkb: 2 steps, .*; whole\n", done.stderr)
    found = Recorded(home / "run.tkb", "")
    for text in (found.text, Bundle.open(found.path).read("facts.json").decode()):
        assert not [word for word in ("zaphod", "secret-job", "forty-two", str(tmp_path), "host_name") if word in text]
        assert re.findall(r'"/.{0,40}', text) == []
        assert f'"{os.uname().nodename}"' not in text
    assert any(row["name"].startswith("tracekit/capture/model.py(") for row in found.rows)


NO_TORCH = """
import sys
sys.modules["torch"] = None
from tracekit.cli import main
main(["capture", "attention", "-o", "run.tkb"])
"""


def test_without_torch_the_line_says_how_to_get_it(tmp_path: Path) -> None:
    done = run_apart(NO_TORCH, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("tracekit: recording needs torch (")
    assert done.stderr.endswith("): pip install 'torch>=2.5', or record where it is installed\n")
    assert [*tmp_path.iterdir()] == []


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would ignore it
import tracekit.capture.workloads as workloads
work, calls = workloads.Sequences.step, []
def step(self, number):
    calls.append(number)
    if len(calls) == CALL:
        signal.raise_signal(signal.SIGINT)
    return work(self, number)
workloads.Sequences.step = step
from tracekit.cli import main
main(OPTIONS)
"""


@pytest.mark.parametrize(
    ("call", "line", "left"),
    [
        (1, "tracekit: interrupted: nothing was written\n", []),
        (5, "; step 1 is cut (interrupted), what came before it is whole\n", ["run.tkb"]),
    ],
)
def test_ctrl_c_is_one_line_and_keeps_what_is_whole(tmp_path: Path, call: int, line: str, left: list[str]) -> None:
    options = repr(["capture", "attention", "-o", "run.tkb", *SMALL.split()])
    done = run_apart(INTERRUPTED.replace("OPTIONS", options).replace("CALL", str(call)), tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith(line)
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == left


def test_help_needs_no_torch_and_names_every_option() -> None:
    result = CliRunner().invoke(main, ["capture", "attention", "--help"])
    assert result.exit_code == 0
    for option in ("--mode", "--kv-heads", "--lengths", "--cache", "--label", "--output", "--force"):
        assert option in result.stdout
