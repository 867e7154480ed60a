"""The content of `facts.json`, by hand."""

from __future__ import annotations

from inline_snapshot import snapshot

from tracekit.capture.facts import ModelFacts, StepFacts, StepTimes, document


def test_a_padded_batch_counts_its_real_tokens() -> None:
    facts = StepFacts((3, 5), padded_length=8, mask="dense", mask_kind="causal_padding").as_dict()
    assert facts == snapshot(
        {
            "lengths": [3, 5],
            "padded_length": 8,
            "mask": "dense",
            "mask_kind": "causal_padding",
            "query_length": 8,
            "padding_side": "right",
            "sequences": 2,
            "tokens": 8,
        }
    )


def test_a_decode_step_counts_one_token_a_sequence_whatever_the_cache_holds() -> None:
    facts = StepFacts((3, 5), padded_length=8, query_length=1).as_dict()
    assert (facts["tokens"], facts["sequences"], facts["query_length"]) == (2, 2, 1)


def test_a_cut_step_and_one_that_told_nothing_are_marked() -> None:
    facts = document(
        environment={"torch": "2.5"},
        settings={},
        model=ModelFacts(layers=2),
        workload={"label": {}},
        steps=[StepFacts((4,), 4), None, StepFacts((4,), 4)],
        times=StepTimes([7, 8, 9], [10, 11]),
    )
    steps = facts["steps"]
    assert isinstance(steps, list)
    assert [(step["number"], step["is_whole"], step["lengths"]) for step in steps] == [
        (0, True, [4]),
        (1, True, None),
        (2, False, [4]),
    ]
    assert steps[0].keys() == steps[1].keys()
    assert list(facts) == snapshot(
        [
            "facts_version",
            "torch_version",
            "environment",
            "settings",
            "model",
            "workload",
            "steps",
            "unprofiled_step_ns",
            "profiled_step_ns",
            "synchronized_each_step",
        ]
    )
