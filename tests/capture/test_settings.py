"""What is asked for becomes a plan, or one line that says why not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tracekit.capture.settings import Settings, Shape, plan
from tracekit.errors import TracekitError

LISTED = "5,3"


def test_a_list_of_lengths_makes_the_batch() -> None:
    planned = plan(Settings(lengths="37,64,12"))
    assert (planned.batch, planned.seq, planned.draw(0)) == (3, 64, (37, 64, 12))


def test_without_lengths_every_sequence_is_full() -> None:
    planned = plan(Settings(batch=3, seq=7))
    assert planned.draw(0) == (7, 7, 7)


def test_heads_are_not_grouped_unless_asked() -> None:
    assert plan(Settings(heads=6)).shape.kv_heads == 6
    assert plan(Settings(heads=6, kv_heads=2)).shape.kv_heads == 2


def test_the_gated_mlp_is_eight_thirds_as_wide_rounded_up() -> None:
    shape = Shape(layers=1, heads=32, kv_heads=32, head_dim=128, vocab=1)
    assert (shape.hidden, shape.intermediate) == (4096, 10944)
    assert replace(shape, heads=3, head_dim=8).intermediate == 64


@pytest.mark.parametrize(
    ("asked", "mask", "kind"),
    [
        ({}, "causal", "causal"),
        ({"lengths": LISTED}, "dense", "causal_padding"),
        ({"lengths": LISTED, "mask": "causal"}, "causal", "causal"),
        ({"lengths": LISTED, "mask": "none"}, "none", "none"),
        ({"mask": "dense"}, "dense", "causal"),
        ({"mode": "train", "lengths": LISTED}, "dense", "causal_padding"),
        ({"mode": "decode"}, "none", "none"),
        ({"mode": "decode", "mask": "dense"}, "dense", "none"),
        ({"mode": "decode", "lengths": LISTED}, "dense", "padding"),
        ({"mode": "decode", "cache": "static"}, "dense", "padding"),
    ],
)
def test_the_mask_follows_from_what_is_padded(asked: dict[str, Any], mask: str, kind: str) -> None:
    planned = plan(Settings(**asked))
    assert (planned.mask, planned.mask_kind) == (mask, kind)


def test_only_decode_keeps_a_cache() -> None:
    assert plan(Settings(mode="decode")).cache == "dynamic"
    assert plan(Settings(mode="decode", cache="static")).cache == "static"
    assert plan(Settings()).cache is None


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"heads": 8, "kv_heads": 3}, "--heads 8 is no multiple of --kv-heads 3: change one of the two"),
        ({"heads": 2, "kv_heads": 4}, "--heads 2 is no multiple of --kv-heads 4"),
        ({"head_dim": 7}, "--head-dim 7 is odd: rotary embeddings need an even one"),
        ({"cache": "static"}, "--mode prefill keeps no cache"),
        ({"mode": "train", "cache": "dynamic"}, "--mode train keeps no cache"),
        ({"mode": "decode", "mask": "causal"}, "--mask causal would show the one query of a decode step"),
        ({"mode": "decode", "mask": "none", "cache": "static"}, "the empty slots of the static cache"),
        ({"lengths": "9,3", "seq": 8}, "--lengths goes up to 9, above the padded length 8"),
        ({"lengths": "9,3", "batch": 3}, "--lengths lists 2 sequences, --batch is 3"),
        ({"lengths": "0,3"}, "--lengths holds 0"),
        ({"lengths": ""}, "--lengths '' is neither a list nor a distribution"),
    ],
)
def test_what_can_not_be_recorded_is_refused_in_one_line(asked: dict[str, Any], line: str) -> None:
    with pytest.raises(TracekitError, match=re.escape(line)):
        plan(Settings(**asked))
