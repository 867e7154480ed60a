"""`--lengths`: its text, its checks and its draws."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tracekit.capture.lengths import Lengths, parse
from tracekit.errors import TracekitError

TEXTS = ["37,64,12", "uniform:2-9", "lognormal:8,0.5", "lognormal:1,999", "zipf:1.3", "zipf:0"]


@pytest.mark.parametrize(
    ("text", "form", "numbers"),
    [
        ("37,64,12", "list", (37, 64, 12)),
        (" 5 , 6 ", "list", (5, 6)),
        ("7", "list", (7,)),
        ("uniform:16-64", "uniform", (16, 64)),
        ("lognormal:200,0.6", "lognormal", (200, 0.6)),
        ("zipf:1.2", "zipf", (1.2,)),
    ],
)
def test_lists_and_distributions_are_read(text: str, form: str, numbers: tuple[float, ...]) -> None:
    assert parse(text) == Lengths(form, numbers)


@pytest.mark.parametrize("text", ["", "abc", "1,,2", "1.5,2", "uniform:5", "uniform:9-2", "zipf:", "normal:3,1"])
def test_other_texts_are_refused_with_the_ways_there_are(text: str) -> None:
    with pytest.raises(TracekitError, match=r"--lengths .*uniform:LOW-HIGH, lognormal:MEDIAN,SIGMA, zipf:EXPONENT"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("3,4,5", "--lengths lists 3 sequences, --batch is 2"),
        ("3,0", "--lengths holds 0"),
        ("-1,3", "--lengths holds -1"),
        ("uniform:0-3", "--lengths holds 0"),
        ("lognormal:0,1", "--lengths holds 0"),
        ("3,9", "--lengths goes up to 9, above the padded length 8"),
        ("uniform:3-9", "--lengths goes up to 9, above the padded length 8"),
    ],
)
def test_lengths_that_make_no_such_batch_are_refused(text: str, line: str) -> None:
    with pytest.raises(TracekitError, match=re.escape(line)):
        parse(text).check(batch=2, seq=8)


def test_lengths_as_long_as_the_padding_fit() -> None:
    parse("8,1").check(batch=2, seq=8)
    parse("uniform:1-8").check(batch=2, seq=8)
    parse("lognormal:500,2").check(batch=2, seq=8)


@given(st.sampled_from(TEXTS[1:]), st.integers(1, 20), st.integers(9, 300), st.integers(0, 9), st.integers(0, 5))
def test_drawn_lengths_fill_the_batch_within_the_padding(text: str, batch: int, seq: int, seed: int, step: int) -> None:
    drawn = parse(text).draw(batch, seq, seed, step)
    assert len(drawn) == batch
    assert all(1 <= length <= seq for length in drawn)
    assert drawn == parse(text).draw(batch, seq, seed, step)


def test_equal_seeds_give_equal_lengths_on_every_machine() -> None:
    drawn = {text: parse(text).draw(batch=6, seq=64, seed=0, number=0) for text in TEXTS[1:]}
    assert drawn == snapshot(
        {
            "uniform:2-9": (7, 9, 8, 8, 8, 9),
            "lognormal:8,0.5": (5, 13, 11, 16, 7, 5),
            "lognormal:1,999": (1, 64, 64, 64, 1, 1),
            "zipf:1.3": (2, 7, 16, 2, 4, 13),
            "zipf:0": (22, 45, 54, 26, 37, 52),
        }
    )


def test_seed_and_step_change_what_is_drawn_but_not_a_list() -> None:
    uniform, listed = parse("uniform:1-1000"), parse("1,2,3")
    assert len({uniform.draw(9, 1000, seed, step) for seed in (0, 1) for step in (0, 1)}) == 4
    assert {listed.draw(3, 9, seed, step) for seed in (0, 1) for step in (0, 1)} == {(1, 2, 3)}


def test_zipf_draws_short_sequences_most() -> None:
    drawn = parse("zipf:2").draw(batch=400, seq=50, seed=0, number=0)
    assert drawn.count(1) > drawn.count(2) > drawn.count(4) > 0
