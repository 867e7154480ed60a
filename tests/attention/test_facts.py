"""What lies beside a trace is believed only where it makes sense, and a fault in it is one line about facts.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.build import op, recorded_step, run, tables
from tracekit.attention.facts import Facts, read_facts
from tracekit.capture.facts import ModelFacts, StepFacts, StepTimes, document
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.build import Event


def captured(*steps: StepFacts | None, whole: int = 9, unprofiled_ns: Sequence[int] = ()) -> dict[str, Any]:
    """Return the facts that a recording of these steps writes, as they come back from a file."""
    made = document(
        environment={"torch": "2.13.0"},
        settings={},
        model=ModelFacts(),
        workload={"mode": "prefill", "implementation": "flash", "cache": None, "label": {"team": "a", "run": "7"}},
        steps=steps,
        times=StepTimes(unprofiled_ns, [1] * whole),
    )
    found: dict[str, Any] = json.loads(json.dumps(made))
    return found


def two_steps() -> list[Event]:
    """Make two recorded steps, each with an op."""
    return [recorded_step(0, 0, 10), op("a", 1, 2), recorded_step(1, 10, 10), op("b", 11, 2)]


def test_what_capture_writes_is_what_is_read() -> None:
    facts = read_facts(captured(StepFacts((3, 5), 8, "dense", "causal_padding"), None, unprofiled_ns=[4, 6]))
    told, untold = facts.steps
    assert (told.number, told.lengths, told.padded_length, told.query_length) == (0, [3, 5], 8, 8)
    assert told.mask_kind == "causal_padding"
    assert (untold.number, untold.lengths, untold.padded_length, untold.mask_kind) == (1, None, None, None)
    assert facts.torch_version == "2.13.0"
    assert facts.unprofiled_step_ns == [4, 6]
    assert facts.workload is not None
    assert (facts.workload.implementation, facts.workload.label) == ("flash", {"team": "a", "run": "7"})


def test_fields_that_are_new_or_missing_are_no_fault() -> None:
    assert read_facts({}) == Facts()
    assert read_facts({"phase_of_the_moon": [1], "steps": [{"number": 0, "later": {}}]}).steps[0].is_whole


BAD: dict[str, dict[str, object]] = {
    "steps are no list": {"steps": {"number": 0}},
    "a step is no object": {"steps": [7]},
    "a step has no number": {"steps": [{"lengths": [1]}]},
    "a number is text": {"steps": [{"number": "0"}]},
    "a number is negative": {"steps": [{"number": -1}]},
    "a number is too large": {"steps": [{"number": 2**63}]},
    "two steps have one number": {"steps": [{"number": 0}, {"number": 0}]},
    "lengths are no list": {"steps": [{"number": 0, "lengths": 5}]},
    "a length is text": {"steps": [{"number": 0, "lengths": ["5"]}]},
    "a length is a fraction": {"steps": [{"number": 0, "lengths": [1.5]}]},
    "a length is a flag": {"steps": [{"number": 0, "lengths": [True]}]},
    "a length is null": {"steps": [{"number": 0, "lengths": [None]}]},
    "a length is negative": {"steps": [{"number": 0, "lengths": [4, -3], "padded_length": 8}]},
    "a length is zero": {"steps": [{"number": 0, "lengths": [4, 0], "padded_length": 8}]},
    "a length is too large": {"steps": [{"number": 0, "lengths": [2**70], "padded_length": 2**71}]},
    "a length is above the padded one": {"steps": [{"number": 0, "lengths": [9], "padded_length": 8}]},
    "the padded length is negative": {"steps": [{"number": 0, "lengths": [4], "padded_length": -8}]},
    "the padded length is zero": {"steps": [{"number": 0, "lengths": [4], "padded_length": 0}]},
    "the query length is negative": {"steps": [{"number": 0, "lengths": [4], "padded_length": 8, "query_length": -1}]},
    "the mask is a number": {"steps": [{"number": 0, "mask_kind": 1}]},
    "whole is text": {"steps": [{"number": 0, "is_whole": "no"}]},
    "the workload is text": {"workload": "prefill"},
    "a label is a number": {"workload": {"label": {"a": 1}}},
    "the version of torch is a number": {"torch_version": 2.13},
    "a time is text": {"unprofiled_step_ns": ["1"]},
    "a time is too large": {"unprofiled_step_ns": [2**64]},
}


@pytest.mark.parametrize("fault", BAD)
def test_a_fault_is_one_line_that_names_the_file(fault: str) -> None:
    with pytest.raises(TracekitError) as caught:
        tables(*two_steps(), facts=BAD[fault])
    assert str(caught.value).startswith("facts.json: ")
    assert ": record the run again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_step_that_was_cut_is_partial() -> None:
    step = StepFacts((2,), 2)
    assert tables(*two_steps(), facts=captured(step, step, whole=1))["step"]["is_partial"].to_list() == [False, True]
    assert tables(*two_steps(), facts=captured(step, step, whole=2))["step"]["is_partial"].to_list() == [False, False]


def test_a_step_without_a_number_is_not_partial_by_facts() -> None:
    facts = {"steps": [{"number": 0, "is_whole": False}]}
    assert tables(op("a", 0, 5), facts=facts)["step"]["is_partial"].to_list() == [False]


def test_the_trace_knows_its_torch_and_its_time_without_the_profiler() -> None:
    row = tables(*two_steps(), facts=captured(unprofiled_ns=[10, 30, 20]))["trace"].row(0, named=True)
    assert (row["torch_version"], row["unprofiled_step_ns"]) == ("2.13.0", 20)
    row = tables(*two_steps())["trace"].row(0, named=True)
    assert (row["torch_version"], row["unprofiled_step_ns"]) == (None, None)


def test_the_workload_is_one_row_with_its_label() -> None:
    with run(*two_steps(), facts=captured()) as opened:
        found = opened.sql("select unnest(map_entries(label), recursive := true), start_ns, dur_ns from workload").frame
    assert found.rows() == [
        ("mode", "prefill", 0, 20_000),
        ("implementation", "flash", 0, 20_000),
        ("team", "a", 0, 20_000),
        ("run", "7", 0, 20_000),
    ]


def test_without_facts_there_is_no_workload_and_no_batch() -> None:
    with run(*two_steps()) as opened:
        assert opened.sql("from workload").frame.height == 0
        assert opened.sql("from batch").frame.height == 0
