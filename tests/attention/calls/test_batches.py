"""Pairs of query and key, needed and computed: the formulas against masks counted cell by cell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import Event, annotation, op, recorded_step, tables
from tracekit.attention.calls.batches import useful_pairs
from tracekit.attention.knowledge import load

FLASH = "aten::_scaled_dot_product_flash_attention"
FLASH_CPU = "aten::_scaled_dot_product_flash_attention_for_cpu"
MATH = "aten::_scaled_dot_product_attention_math"

ARGUMENTS = {
    FLASH_CPU: "query key value dropout_p is_causal attn_mask scale",
    FLASH: "query key value dropout_p is_causal return_debug_mask scale",
    "aten::_scaled_dot_product_efficient_attention": (
        "query key value attn_mask compute_log_sumexp dropout_p is_causal scale"
    ),
    "aten::_scaled_dot_product_cudnn_attention": (
        "query key value attn_mask compute_log_sumexp dropout_p is_causal return_debug_mask scale"
    ),
    "aten::_scaled_dot_product_fused_attention_overrideable": (
        "query key value attn_mask dropout_p is_causal return_debug_mask scale"
    ),
    MATH: "query key value attn_mask dropout_p is_causal dropout_mask scale enable_gqa",
}
"""Arguments in PyTorch 2.13 in their order; a mask is attn_mask here, whatever the op calls it."""

LENGTHS = [5, 8, 2]
FACTS = {"number": 0, "lengths": LENGTHS, "padded_length": 8, "query_length": 8, "mask_kind": "causal"}


def call(
    name: str,
    start: float = 1,
    *,
    query: tuple[int, ...] = (3, 4, 8, 16),
    key: tuple[int, ...] | None = None,
    mask: tuple[int, ...] = (),
    is_causal: bool = False,
) -> Event:
    """Make an attention call with the shapes and values that the profiler records for it."""
    shapes = {"query": query, "key": key or query, "value": key or query, "attn_mask": mask}
    names = ARGUMENTS[name].split()
    dims = [[*shapes.get(argument, ())] for argument in names]
    concrete = [str(is_causal) if argument == "is_causal" else "" for argument in names]
    return op(name, start, 1, Input_Dims=dims, Concrete_Inputs=concrete)


def batch(*events: Event, facts: dict[str, Any] = FACTS, workload: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the one batch of a trace whose one step holds these events."""
    beside = {"steps": [facts], "workload": workload}
    (row,) = tables(recorded_step(0, 0, 100), *events, facts=beside)["batch"].rows(named=True)
    return row


def computed(*events: Event, **rest: Any) -> tuple[str | None, int | None, str]:
    row = batch(*events, **rest)
    return row["implementation"], row["computed_pairs"], row["pairs_status"]


def counted(length: int, padded: int, queries: int, kind: str, *, side: str) -> int:
    """Count the cells of one sequence's mask where a real query sees a real key."""
    first = 0 if side == "right" else padded - length
    real = range(first, first + length)
    asking = range(padded - queries, padded)
    return sum(
        query in real and key in real and (key <= query or kind not in {"causal", "causal_padding"})
        for query in asking
        for key in range(padded)
    )


@st.composite
def padded_batches(draw: st.DrawFn) -> tuple[list[int], int, int, str]:
    padded = draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(1, padded), min_size=1, max_size=4))
    kind = draw(st.sampled_from(["causal", "causal_padding", "padding", "none"]))
    return lengths, padded, draw(st.integers(1, padded)), kind


@given(padded_batches())
@settings(max_examples=60)
def test_useful_tokens_and_pairs_are_those_that_a_mask_counted_cell_by_cell_has(
    drawn: tuple[list[int], int, int, str],
) -> None:
    lengths, padded, queries, kind = drawn
    facts = {"number": 0, "lengths": lengths, "padded_length": padded, "query_length": queries, "mask_kind": kind}
    row = batch(op("a", 1, 2), facts=facts)
    assert row["useful_pairs"] == sum(counted(length, padded, queries, kind, side="left") for length in lengths)
    asking = range(padded - queries, padded)
    assert row["useful_tokens"] == sum(slot >= padded - length for length in lengths for slot in asking)
    assert row["computed_tokens"] == len(lengths) * queries
    assert (row["sequences"], row["padded_length"], row["lengths"]) == (len(lengths), padded, lengths)
    assert row["tokens"] == sum(lengths)


@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from(["causal", "causal_padding", "padding", "none"]))
def test_the_side_of_the_padding_changes_no_pairs(one: int, other: int, kind: str) -> None:
    length, padded = sorted((one, other))
    assert useful_pairs(length, length, kind) == counted(length, padded, padded, kind, side="right")
    assert useful_pairs(length, length, kind) == counted(length, padded, padded, kind, side="left")


@given(st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=30)
def test_is_causal_skips_the_keys_after_the_query_counted_from_the_first(queries: int, keys: int) -> None:
    seen = sum(key <= query for query in range(queries) for key in range(keys))
    shape = call(FLASH, query=(3, 4, queries, 16), key=(3, 4, keys, 16), is_causal=True)
    assert computed(shape) == ("flash", 3 * seen, "estimated")


def test_every_rule_is_tried_here() -> None:
    assert sorted(rule["name"] for rule in load("calls/padding")["op"]) == sorted(ARGUMENTS)


@pytest.mark.parametrize("rule", load("calls/padding")["op"], ids=lambda rule: rule["name"].removeprefix("aten::_"))
def test_arguments_stand_where_pytorch_has_them(rule: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    packet = getattr(torch.ops.aten, rule["name"].removeprefix("aten::"))
    names = [argument.name for argument in packet.default._schema.arguments]
    assert names[rule["is_causal"]] == "is_causal"
    masks = [names.index(name) for name in ("attn_mask", "attn_bias") if name in names]
    assert masks == ([rule["mask"]] if "mask" in rule else [])
    mine = ARGUMENTS[rule["name"]].split()
    assert [name.replace("attn_bias", "attn_mask") for name in names] == mine


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name != MATH])
def test_is_causal_is_skipped_and_the_count_is_a_lower_bound(name: str) -> None:
    _, pairs, status = computed(call(name, is_causal=True))
    assert (pairs, status) == (3 * 36, "estimated")
    _, pairs, status = computed(call(name, is_causal=False))
    assert (pairs, status) == (3 * 64, "exact")


@pytest.mark.parametrize("name", [name for name, names in ARGUMENTS.items() if "attn_mask" in names])
def test_a_dense_mask_skips_nothing(name: str) -> None:
    _, pairs, status = computed(call(name, mask=(3, 1, 8, 8)))
    assert (pairs, status) == (3 * 64, "exact")


def test_math_computes_all_pairs_whatever_the_mask() -> None:
    for events in (call(MATH, is_causal=True), call(MATH, mask=(3, 1, 8, 8)), call(MATH)):
        assert computed(events) == ("math", 3 * 64, "exact")


def test_naive_attention_is_known_from_facts_and_computes_all_pairs() -> None:
    assert computed(op("aten::bmm", 1, 2), workload={"implementation": "naive"}) == ("naive", 3 * 64, "exact")
    assert computed(op("aten::bmm", 1, 2), workload={"implementation": "flash"}) == (None, None, "not_derivable")
    assert computed(op("aten::bmm", 1, 2)) == (None, None, "not_derivable")


def test_fewer_heads_of_keys_change_no_pairs() -> None:
    shared = call(MATH, query=(3, 8, 8, 16), key=(3, 2, 8, 16))
    assert computed(shared) == computed(call(MATH, query=(3, 8, 8, 16)))


def test_a_call_in_every_layer_counts_once() -> None:
    assert computed(*(call(FLASH, layer, is_causal=True) for layer in (1, 5, 9))) == ("flash", 3 * 36, "estimated")


def test_calls_that_differ_give_no_pairs() -> None:
    nothing = (None, None, "not_derivable")
    assert computed(call(FLASH), call(FLASH, 5, is_causal=True)) == nothing
    assert computed(call(FLASH), call(MATH, 5)) == nothing
    assert computed(call(FLASH), call(FLASH, 5, query=(3, 4, 9, 16))) == nothing
    assert computed(call(FLASH), op(FLASH, 5, 1)) == nothing


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"Input_Dims": [[3, 4, 8, 16]] * 3},
        {"Input_Dims": [], "Concrete_Inputs": []},
        {"Input_Dims": [[]] * 7, "Concrete_Inputs": [""] * 7},
        {"Input_Dims": [[24, 8, 16]] * 3, "Concrete_Inputs": ["", "", "", "", "True"]},
    ],
    ids=["no shapes", "no values", "empty", "empty shapes", "three dimensions"],
)
def test_a_call_without_shapes_gives_no_pairs_but_the_needed_ones(args: dict[str, Any]) -> None:
    row = batch(op(FLASH_CPU, 1, 1, **args))
    assert (row["implementation"], row["computed_pairs"], row["pairs_status"]) == (None, None, "not_derivable")
    assert (row["useful_pairs"], row["tokens"], row["computed_tokens"]) == (15 + 36 + 3, 15, 24)


def test_the_backward_of_attention_is_no_call_of_its_own() -> None:
    backward = [
        op("autograd::engine::evaluate_function: ScaledDotProductFlashAttentionBackward0", 10, 10),
        call(FLASH, 11, is_causal=False),
    ]
    assert computed(call(FLASH, is_causal=True), *backward) == ("flash", 3 * 36, "estimated")


@pytest.mark.parametrize(("slots", "cache"), [(9, "dynamic"), (16, "static")])
def test_a_decode_step_asks_one_query_of_each_slot_of_the_cache(slots: int, cache: str) -> None:
    facts = {"number": 0, "lengths": [6, 9, 3], "padded_length": slots, "query_length": 1, "mask_kind": "padding"}
    row = batch(call(FLASH_CPU, query=(3, 4, 1, 16), key=(3, 2, slots, 16), mask=(3, 1, 1, slots)), facts=facts)
    assert (row["useful_tokens"], row["computed_tokens"], row["tokens"]) == (3, 3, 18), cache
    assert (row["useful_pairs"], row["computed_pairs"], row["pairs_status"]) == (18, 3 * slots, "exact")


def test_naive_decode_computes_one_query_against_the_whole_cache() -> None:
    facts = {"number": 0, "lengths": [6, 9], "padded_length": 16, "query_length": 1, "mask_kind": "padding"}
    found = computed(op("aten::bmm", 1, 2), facts=facts, workload={"implementation": "naive"})
    assert found == ("naive", 2 * 16, "exact")


def test_without_a_query_length_every_padded_token_asks() -> None:
    row = batch(op("a", 1, 2), facts={"number": 0, "lengths": [3], "padded_length": 5, "mask_kind": "causal"})
    assert (row["computed_tokens"], row["useful_tokens"], row["useful_pairs"]) == (5, 3, 6)


def test_each_step_has_the_batch_of_its_number() -> None:
    events = [recorded_step(0, 0, 10), op("a", 1, 2), recorded_step(1, 10, 10), op("b", 11, 2)]
    events += [recorded_step(2, 20, 10), op("c", 21, 2)]
    steps = [
        {"number": 2, "lengths": [3], "padded_length": 4},
        {"number": 0, "lengths": [1, 2], "padded_length": 4},
        {"number": 1, "lengths": None, "padded_length": None},
        {"number": 7, "lengths": [4], "padded_length": 4},
    ]
    made = tables(*events, facts={"steps": steps})
    numbers = dict(made["step"].select("step_id", "number").iter_rows())
    found = {numbers[step_id]: lengths for step_id, lengths in made["batch"].select("step_id", "lengths").iter_rows()}
    assert found == {2: [3], 0: [1, 2]}
    assert made["batch"]["source"].unique().to_list() == ["facts"]


def test_calls_outside_the_step_are_not_its_own() -> None:
    events = [call(FLASH, 200, is_causal=True), annotation("after", 150, 100)]
    assert computed(call(MATH), *events) == ("math", 3 * 64, "exact")


def test_a_trace_without_numbered_steps_has_no_batch() -> None:
    assert tables(call(FLASH), facts={"steps": [FACTS]})["batch"].height == 0


def test_a_mask_of_an_unknown_kind_leaves_its_pairs_unknown() -> None:
    assert useful_pairs(3, 4, "sliding_window") is None
