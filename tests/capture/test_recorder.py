"""The recorder on steps of the caller's own: its passes, and what is kept when they end badly."""

from __future__ import annotations

import gzip
import json
import signal
from collections.abc import Callable  # noqa: TC003 - the aliases below need it
from pathlib import Path  # noqa: TC003
from typing import Any

import pytest
import torch

import tracekit.capture
from tracekit.bundle import Bundle
from tracekit.capture import CutShort, ModelFacts, Recorder, StepFacts
from tracekit.errors import TracekitError

WARMUP, STEPS = 1, 3
FIRST_RECORDED = WARMUP + STEPS + 1
"""Calls before the window: warm-up, the timed ones and one with the profiler armed."""


def interrupt() -> None:
    """Send the process what Ctrl-C sends, and have it heard: a job in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def exhaust_memory() -> None:
    """Ask torch for a petabyte."""
    torch.empty(2**50)


def fail() -> None:
    """Fail as a fault in the caller's code does."""
    raise KeyError("mine")


def steps(at: int = -1, fault: Callable[[], None] = fail) -> Callable[[int], StepFacts]:
    """Return steps of a small layer that end in a fault in call number `at`."""
    layer, calls = torch.nn.Linear(4, 4), []

    def step(number: int) -> StepFacts:
        calls.append(number)
        layer(torch.ones(2, 4))
        if len(calls) - 1 == at:
            fault()
        layer(torch.ones(2, 4))
        return StepFacts((number + 1,), 9)

    return step


def trace(path: Path) -> list[dict[str, Any]]:
    """Return the events of a bundle's trace."""
    rows: list[dict[str, Any]] = json.loads(gzip.decompress(Bundle.open(path).read("raw/trace.json.gz")))["traceEvents"]
    return rows


def whole_steps(path: Path) -> list[tuple[int, bool, list[int]]]:
    """Return number, wholeness and lengths of a bundle's steps."""
    found: Any = Bundle.open(path).facts["steps"]
    return [(step["number"], step["is_whole"], step["lengths"]) for step in found]


def test_each_pass_begins_at_step_0_after_a_reset(tmp_path: Path) -> None:
    called: list[str] = []
    Recorder(tmp_path / "run.tkb").run(
        lambda number: called.append(str(number)), STEPS, WARMUP, reset=lambda: called.append("reset")
    )
    assert " ".join(called) == "reset 0 reset 0 1 2 reset 0 reset 0 1 2"


def test_the_window_holds_the_steps_asked_for_and_no_other_work(tmp_path: Path) -> None:
    recording = Recorder(tmp_path / "run.tkb").run(steps(), STEPS, WARMUP)
    rows = trace(recording.path)
    marks = [row for row in rows if row.get("cat") == "user_annotation"]
    assert [mark["name"] for mark in marks] == [f"tracekit|step={number}" for number in range(STEPS)]
    linears = [row["ts"] for row in rows if row["name"] == "aten::linear"]
    inside = [sum(mark["ts"] < ts < mark["ts"] + mark["dur"] for ts in linears) for mark in marks]
    assert (inside, len(linears)) == ([2, 2, 2], 6)
    assert not [row for row in rows if row["name"].startswith("ProfilerStep")]


def test_a_recording_tells_its_times_and_that_it_is_whole(tmp_path: Path) -> None:
    recording = Recorder(tmp_path / "run.tkb").run(steps(), STEPS, WARMUP)
    facts = Bundle.open(recording.path).facts
    assert facts["unprofiled_step_ns"] == [*recording.unprofiled_step_ns]
    assert facts["profiled_step_ns"] == [*recording.profiled_step_ns]
    assert len(recording.unprofiled_step_ns) == len(recording.profiled_step_ns) == STEPS
    assert min(recording.unprofiled_step_ns + recording.profiled_step_ns) > 0
    assert str(recording).endswith(" events, shapes stacks modules memory; whole")


def test_the_annotation_lasts_as_long_as_the_measured_step(tmp_path: Path) -> None:
    recording = Recorder(tmp_path / "run.tkb").run(steps(), STEPS, WARMUP)
    marks = [row for row in trace(recording.path) if row.get("cat") == "user_annotation"]
    for mark, measured_ns in zip(marks, recording.profiled_step_ns, strict=True):
        assert mark["dur"] * 1000 >= measured_ns


def test_labels_and_the_size_of_a_module_are_facts(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
    path = tmp_path / "run.tkb"
    Recorder(path, label={"run": "a b"}, model=layer, workload={"mode": "train"}).run(lambda _: None, 1, 0)
    facts: Any = Bundle.open(path).facts
    assert facts["workload"] == {"label": {"run": "a b"}, "mode": "train"}
    assert (facts["model"]["parameters"], facts["model"]["parameter_bytes"]) == (8, 16)
    assert (facts["model"]["dtype"], facts["model"]["layers"]) == ("bfloat16", None)
    assert facts["steps"][0]["lengths"] is None


def test_a_shape_is_read_from_a_configuration_as_transformer_libraries_have_it(tmp_path: Path) -> None:
    class Config:
        num_hidden_layers, num_attention_heads, num_key_value_heads, hidden_size = 3, 8, 2, 64

    class Model(torch.nn.Module):
        config = Config()

    Recorder(tmp_path / "run.tkb", model=Model()).run(lambda _: None, 1, 0)
    model: Any = Bundle.open(tmp_path / "run.tkb").facts["model"]
    assert (model["layers"], model["heads"], model["kv_heads"], model["hidden"]) == (3, 8, 2, 64)
    assert (model["head_dim"], model["parameters"]) == (None, 0)


@pytest.mark.parametrize(("fault", "word"), [(interrupt, "interrupted"), (exhaust_memory, "out of memory")])
def test_whole_steps_before_a_cut_are_kept_and_the_cut_one_is_marked(
    tmp_path: Path, fault: Callable[[], None], word: str
) -> None:
    with pytest.raises(CutShort) as caught:
        Recorder(tmp_path / "run.tkb").run(steps(FIRST_RECORDED + 2, fault), STEPS, WARMUP)
    recording = caught.value.recording
    assert f"; step 2 is cut ({word}" in str(caught.value)
    assert str(caught.value).endswith("what came before it is whole")
    assert whole_steps(recording.path) == [(0, True, [1]), (1, True, [2]), (2, False, [3])]
    assert len(recording.profiled_step_ns) == 2
    assert len([row for row in trace(recording.path) if row["name"] == "aten::linear"]) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["run.tkb"]


@pytest.mark.parametrize("call", [0, WARMUP, WARMUP + STEPS, FIRST_RECORDED])
def test_without_a_whole_step_nothing_is_written_and_the_profiler_is_free_again(tmp_path: Path, call: int) -> None:
    path = tmp_path / "run.tkb"
    with pytest.raises(TracekitError, match=r"^out of memory \(it tried to allocate \d+ bytes\).* smaller$"):
        Recorder(path).run(steps(call, exhaust_memory), STEPS, WARMUP)
    assert [*tmp_path.iterdir()] == []
    assert Recorder(path).run(steps(), STEPS, WARMUP).problems == ()


def test_ctrl_c_before_the_window_is_the_callers(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        Recorder(tmp_path / "run.tkb").run(steps(WARMUP, interrupt), STEPS, WARMUP)
    assert [*tmp_path.iterdir()] == []


def test_ctrl_c_in_the_first_recorded_step_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TracekitError, match=r"^interrupted in the first step: nothing was written$"):
        Recorder(tmp_path / "run.tkb").run(steps(FIRST_RECORDED, interrupt), STEPS, WARMUP)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("call", [WARMUP + STEPS, FIRST_RECORDED + 1])
def test_a_fault_of_the_callers_is_not_hidden_and_the_profiler_is_free_again(tmp_path: Path, call: int) -> None:
    with pytest.raises(KeyError, match="mine"):
        Recorder(tmp_path / "run.tkb").run(steps(call), STEPS, WARMUP)
    assert [*tmp_path.iterdir()] == []
    assert Recorder(tmp_path / "run.tkb").run(steps(), STEPS, WARMUP).problems == ()


def test_outputs_that_can_not_be_written_are_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "kept.tkb").write_text("kept")
    for path, line in (
        (tmp_path / "kept.tkb", "kept.tkb exists: choose another name, or overwrite it with --force"),
        (tmp_path / "none" / "run.tkb", "none is not a folder"),
        (tmp_path, "is a folder: name a file"),
    ):
        with pytest.raises(TracekitError, match=line):
            Recorder(path)
    assert (tmp_path / "kept.tkb").read_text() == "kept"


def test_an_output_is_replaced_where_that_was_asked(tmp_path: Path) -> None:
    (tmp_path / "run.tkb").write_text("old")
    Recorder(tmp_path / "run.tkb", overwrite=True).run(steps(), 1, 0)
    assert len(whole_steps(tmp_path / "run.tkb")) == 1


def test_an_annotation_that_breaks_the_trace_is_told_and_the_trace_is_kept(tmp_path: Path) -> None:
    def step(_: int) -> None:
        with torch.profiler.record_function('said "so"'):
            torch.ones(2)

    recording = Recorder(tmp_path / "run.tkb").run(step, 1, 0)
    assert recording.problems[0].startswith("it is not valid JSON (")
    assert Bundle.open(recording.path).names("raw/") == ["raw/trace.json.gz"]


def test_no_step_can_not_be_recorded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 steps after 0 of warm-up"):
        Recorder(tmp_path / "run.tkb").run(steps(), 0, 0)


def test_the_public_names_are_found_when_asked_for() -> None:
    assert tracekit.capture.ModelFacts is ModelFacts
    assert set(tracekit.capture.__all__) <= set(dir(tracekit.capture))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tracekit.capture.nothing
