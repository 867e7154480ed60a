"""A place is narrowed from the outside inwards, and what says nothing changes nothing."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.attention.roles.places import NOWHERE, Place, enter, places_of_frames

OUTER, INNER = ("frame", 0), ("frame", 1)
ATTENTION = Place("attention", None, OUTER, "outer")
ROPE = Place("attention", "rope", OUTER, "outer")
MLP, MOE, BLOCK, NORM = (Place(name, None, None, "outer") for name in ("mlp", "moe", "block", "norm"))
PLACES = [
    "attention", "mlp", "moe", "norm", "embedding", "lm_head", "loss", "rope", "conv", "sampling", "quant", "block",
    "optimizer", "comm", "mask", "kv_cache", "layout",
]  # fmt: skip
TRANSPARENT = [None, "container", "linear", "dropout", "activation", "pool"]


def _new(name: str) -> Place:
    return Place(name, None, None, "inner")


@pytest.mark.parametrize(
    ("around", "place", "expected"),
    [
        # From nowhere, a place is what it says.
        (NOWHERE, "attention", Place("attention", None, INNER, "inner")),
        (NOWHERE, "mlp", _new("mlp")),
        (NOWHERE, "norm", _new("norm")),
        (NOWHERE, "rope", _new("rope")),
        (NOWHERE, "block", _new("block")),
        (NOWHERE, "layout", NOWHERE),
        # A block is made of what is in it.
        (BLOCK, "attention", Place("attention", None, INNER, "inner")),
        (BLOCK, "mlp", _new("mlp")),
        (BLOCK, "norm", _new("norm")),
        # The outermost attention owns all inside it; a part of it is named beside it.
        (ATTENTION, "attention", ATTENTION),
        (ATTENTION, "norm", Place("attention", "norm", OUTER, "inner")),
        (ATTENTION, "rope", Place("attention", "rope", OUTER, "inner")),
        (ATTENTION, "mask", Place("attention", "mask", OUTER, "inner")),
        (ATTENTION, "kv_cache", Place("attention", "kv_cache", OUTER, "inner")),
        (ATTENTION, "layout", Place("attention", "layout", OUTER, "inner")),
        (ATTENTION, "conv", ATTENTION),
        (ATTENTION, "block", ATTENTION),
        (ATTENTION, "embedding", ATTENTION),
        (ROPE, "attention", ROPE),
        (ROPE, "norm", Place("attention", "norm", OUTER, "inner")),
        # A feed-forward is one wherever it stands, and experts are experts down to their own layers.
        (ATTENTION, "mlp", _new("mlp")),
        (ATTENTION, "moe", _new("moe")),
        (MLP, "moe", _new("moe")),
        (MOE, "mlp", MOE),
        (MLP, "conv", MLP),
        (MOE, "sampling", MOE),
        (MLP, "norm", _new("norm")),
        (MOE, "loss", _new("loss")),
        # Communication and optimizer are themselves everywhere.
        (ATTENTION, "comm", _new("comm")),
        (MLP, "comm", _new("comm")),
        (MLP, "optimizer", _new("optimizer")),
        (ROPE, "optimizer", _new("optimizer")),
    ],
)
def test_going_inwards_narrows_the_place(around: Place, place: str, expected: Place) -> None:
    assert enter(around, place, INNER, "inner") == expected


@pytest.mark.parametrize("around", [NOWHERE, ATTENTION, ROPE, MLP, MOE, BLOCK, NORM])
@pytest.mark.parametrize("place", TRANSPARENT)
def test_what_says_nothing_changes_nothing(around: Place, place: str | None) -> None:
    assert enter(around, place, INNER, "inner") == around


@given(st.lists(st.sampled_from([*PLACES, *TRANSPARENT])))
def test_an_attention_is_left_for_a_named_reason_only(path: list[str | None]) -> None:
    place = enter(NOWHERE, "attention", OUTER, "outer")
    for step in path:
        place = enter(place, step, INNER, "inner")
        if step in {"mlp", "moe", "comm", "optimizer"}:
            assert place.name == step
            break
        assert (place.name, place.scope) == ("attention", OUTER)


@given(st.lists(st.sampled_from([*PLACES, *TRANSPARENT])))
def test_only_an_attention_has_parts_and_a_scope(path: list[str | None]) -> None:
    place = NOWHERE
    for number, step in enumerate(path):
        place = enter(place, step, ("frame", number), f"step {number}")
        assert (place.scope is not None) == (place.name == "attention")
        assert place.part is None or place.name == "attention"


def _frames(*rows: tuple[str, int | None]) -> pl.DataFrame:
    return pl.DataFrame(rows, orient="row", schema={"name": pl.String, "parent_id": pl.Int64})


def test_frames_take_their_place_from_those_around_them() -> None:
    places = places_of_frames(
        _frames(
            ("train.py(1): main", None),
            ("nn.Module: LlamaForCausalLM_0", 0),
            ("nn.Module: LlamaModel_0", 1),
            ("nn.Module: LlamaDecoderLayer_7", 2),
            ("nn.Module: LlamaAttention_7", 3),
            ("nn.Module: Linear_3", 4),
            ("modeling_llama.py(132): apply_rotary_pos_emb", 4),
            ("nn.Module: LlamaMLP_7", 3),
            ("nn.Module: SiLU_0", 7),
            ("nn.Module: LlamaRMSNorm_1", 3),
            ("nn.Module: Linear_4", 1),
        )
    )
    assert [(place.name, place.part) for place in places] == [
        (None, None),
        (None, None),
        (None, None),
        ("block", None),
        ("attention", None),
        ("attention", None),
        ("attention", "rope"),
        ("mlp", None),
        ("mlp", None),
        ("norm", None),
        ("lm_head", None),
    ]
    assert places[4].reason == places[5].reason == "module LlamaAttention"
    assert places[6].reason == "function apply_rotary_pos_emb"
    assert places[4].scope == places[5].scope == places[6].scope == ("frame", 4)


def test_a_linear_layer_is_the_head_only_right_inside_a_language_model() -> None:
    places = places_of_frames(
        _frames(
            ("nn.Module: LlamaForCausalLM_0", None),
            ("modeling_llama.py(800): forward", 0),
            ("nn.Module: Linear_9", 1),
            ("nn.Module: LlamaModel_0", 0),
            ("nn.Module: Linear_1", 3),
            ("nn.Module: Sequential_0", None),
            ("nn.Module: Linear_2", 5),
        )
    )
    assert [place.name for place in places] == [None, None, "lm_head", None, None, None, None]


def test_parents_may_come_after_their_children_and_a_cycle_does_no_harm() -> None:
    late = places_of_frames(_frames(("nn.Module: Linear_0", 1), ("nn.Module: LlamaAttention_0", None)))
    assert [place.name for place in late] == ["attention", "attention"]
    looped = places_of_frames(_frames(("nn.Module: LlamaMLP_0", 1), ("a.py(1): f", 0), ("b.py(1): g", 1)))
    assert [place.name for place in looped] == ["mlp", "mlp", "mlp"]


def test_a_class_without_a_number_or_with_one_of_its_own_is_read() -> None:
    names = ["nn.Module: LlamaMLP", "nn.Module: LlamaMLP_12", "nn.Module: Conv2d_0", "nn.Module: Conv2d"]
    places = places_of_frames(_frames(*((name, None) for name in names)))
    assert [place.name for place in places] == ["mlp", "mlp", "conv", "conv"]
    assert [place.inner_class for place in places[:3]] == ["LlamaMLP", "LlamaMLP", "Conv2d"]
