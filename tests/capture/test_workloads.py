"""What the steps do: the same work for the same number, and padding left out of what is learnt."""

from __future__ import annotations

from typing import Any

import torch

from tracekit.capture.facts import StepFacts
from tracekit.capture.implementations import implementation
from tracekit.capture.model import DecoderForCausalLM, build
from tracekit.capture.settings import Plan, Settings, plan
from tracekit.capture.workloads import Sequences, Training, Workload, workload


def planned(**options: Any) -> Plan:
    """Return the plan of a small recording."""
    return plan(Settings(**{"layers": 1, "heads": 2, "head_dim": 4, "vocab": 20, **options}))


def built(settled: Plan) -> DecoderForCausalLM:
    """Return the planned decoder."""
    return build(settled.shape, implementation("auto").attend, device="cpu", dtype=torch.float32, seed=0)


def steps(**options: Any) -> Workload:
    """Return the steps of a small recording, ready to begin."""
    settled = planned(**options)
    made = workload(settled, built(settled), "cpu")
    made.reset()
    return made


def test_a_prefill_step_tells_its_lengths() -> None:
    assert steps(lengths="3,8").step(0) == StepFacts((3, 8), 8, "dense", "causal_padding")


def test_drawn_lengths_differ_by_step_and_come_back_with_its_number() -> None:
    made = steps(lengths="uniform:1-500", seq=500, batch=3)
    first, second, again = made.step(0), made.step(1), made.step(0)
    assert first == again != second


def test_a_growing_cache_is_one_longer_each_step_until_it_is_reset() -> None:
    made = steps(mode="decode", lengths="3,8")
    assert [made.step(number) for number in range(2)] == [
        StepFacts((4, 9), 9, "dense", "padding", query_length=1, padding_side="left"),
        StepFacts((5, 10), 10, "dense", "padding", query_length=1, padding_side="left"),
    ]
    made.reset()
    assert made.step(0) == StepFacts((4, 9), 9, "dense", "padding", query_length=1, padding_side="left")


def test_a_static_cache_has_its_capacity_from_the_first_step() -> None:
    made = steps(mode="decode", cache="static", batch=2, seq=8, steps=3)
    assert [made.step(number) for number in range(2)] == [
        StepFacts((9, 9), 11, "dense", "padding", query_length=1, padding_side="left"),
        StepFacts((10, 10), 11, "dense", "padding", query_length=1, padding_side="left"),
    ]


def test_decoding_again_gives_the_same_tokens_with_either_cache() -> None:
    decoded = []
    for cache in ("dynamic", "dynamic", "static"):
        made: Any = steps(mode="decode", cache=cache, lengths="3,8", steps=4)
        for number in range(4):
            made.step(number)
        decoded.append(made.tokens.tolist())
    assert decoded[0] == decoded[1]


def test_training_changes_weights_and_leaves_no_gradients() -> None:
    settled = planned(mode="train", lengths="3,8")
    model = built(settled)
    before = model.lm_head.weight.clone()
    workload(settled, model, "cpu").step(0)
    assert not torch.equal(model.lm_head.weight, before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_padding_is_not_learnt_and_every_real_token_is() -> None:
    settled = planned(mode="train", lengths="3,8")
    batch = Training(settled, built(settled), "cpu").batch(0)
    assert (batch.targets != -100).sum(dim=1).tolist() == [3, 8]
    assert batch.tokens[0, 3:].tolist() == [0] * 5
    assert batch.targets[1, :-1].tolist() == batch.tokens[1, 1:].tolist()


def test_inference_needs_no_gradients() -> None:
    settled = planned(lengths="3,8")
    made = Sequences(settled, built(settled), "cpu")
    with torch.no_grad():
        assert not made.logits(made.batch(0)).requires_grad
