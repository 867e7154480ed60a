"""Salvage: each kind of damage by hand, and laws for all of them on real events."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tests.ingest.breakages import BREAKAGES, SINGLE, compact, lost_beyond, measure, pretty, real_events, seam
from tracekit.ingest.salvage import Lost, Salvaged, metadata, salvage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BEFORE = {"ph": "X", "cat": "cpu_op", "name": "before", "pid": 1, "tid": 2, "ts": 1.5, "dur": 2, "args": {"Ev Idx": 0}}
AFTER = BEFORE | {"name": "after"}
HAND = [
    BEFORE | {"name": "aten::mm", "args": {"Input Dims": [[1, 2], []], "Concrete Inputs": ["", "[1, 2]"], "n": None}},
    {"name": "process_name", "ph": "M", "ts": 0.0, "pid": 1, "tid": 0, "args": {"name": "python"}},
    {"ph": "s", "id": 7, "pid": 1, "tid": 2, "ts": 3, "cat": "ac2g", "name": "ac2g"},
    {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 9.125},
    BEFORE | {"name": 'say "é" \\ {"ph": "X"}, {', "args": {"list": [{"name": "x"}, {"name": "y"}], "o": {"ph": "B"}}},
]
TRACES = [
    "rtx4080-nanovllm-forward.json",
    "h100-ddp-small.json",
    "gpu-sampled-rank0.json.gz",
    "h100-bert-small.json.gz",
    "legacy-categories.json.gz",
]


def _among(middle: str | bytes) -> tuple[Salvaged, bytes]:
    """Salvage text between two whole events, which must come back as they stand."""
    text = middle if isinstance(middle, bytes) else middle.encode()
    piece = compact(BEFORE) + b", " + text + b", " + compact(AFTER)
    saved = salvage(piece, 50)
    assert [saved.events[0], saved.events[-1]] == [
        (50, compact(BEFORE), ()),
        (50 + piece.rindex(compact(AFTER)), compact(AFTER), ()),
    ]
    return saved, piece


def _saved(middle: str | bytes) -> list[str]:
    """Return what became of text between two whole events, each loss and each repair on a line."""
    saved, piece = _among(middle)
    lost = [f"lost as {loss.reason}: {piece[loss.offset - 50 :][: loss.length].decode()}" for loss in saved.lost]
    return [f"{', '.join(whole.repairs)}: {whole.text.decode()}" for whole in saved.events[1:-1]] + lost


def _rest(name: str = '"n"', rest: str = '"ts": 1, "args": {"a": 2}') -> str:
    return f'{{"ph": "X", "name": {name}, {rest}}}'


def test_quotes_in_a_string_are_escaped() -> None:
    assert _saved(_rest('"foo("a", "b") <lambda "x">"')) == snapshot(
        ['quote: {"ph":"X","name":"foo(\\"a\\", \\"b\\") <lambda \\"x\\">","ts":1,"args":{"a":2}}']
    )


def test_a_dict_in_a_string_ends_where_the_string_ends() -> None:
    assert _saved(_rest('"{"a": "b"}"')) == snapshot(
        ['quote: {"ph":"X","name":"{\\"a\\": \\"b\\"}","ts":1,"args":{"a":2}}']
    )


def test_lone_backslashes_are_escaped_and_valid_escapes_stay() -> None:
    assert _saved(_rest('"C:\\Users\\new\\u00e9"')) == snapshot(
        ['backslash: {"ph":"X","name":"C:\\\\Users\\new\\u00e9","ts":1,"args":{"a":2}}']
    )


def test_a_backslash_before_the_closing_quote_is_no_escape() -> None:
    assert _saved(_rest('"C:\\tmp\\"')) == snapshot(
        ['backslash: {"ph":"X","name":"C:\\tmp\\\\","ts":1,"args":{"a":2}}']
    )


def test_control_characters_become_escapes() -> None:
    assert _saved(_rest('"a\nb\tc\0d\x7f"')) == snapshot(
        ['control_character: {"ph":"X","name":"a\\u000ab\\u0009c\\u0000d\x7f","ts":1,"args":{"a":2}}']
    )


def test_invalid_utf8_is_replaced() -> None:
    assert _saved(_rest('"caf?"').encode().replace(b"?", b"\xc3")) == snapshot(
        ['utf8: {"ph": "X", "name": "caf�", "ts": 1, "args": {"a": 2}}']
    )


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_stays() -> None:
    assert _saved(_rest('"\\ud83d\\ude00 \\ud83d \\\\ud83d"')) == snapshot(
        ['surrogate: {"ph": "X", "name": "\\ud83d\\ude00 \\ufffd \\\\ud83d", "ts": 1, "args": {"a": 2}}']
    )


def test_what_is_no_number_becomes_null() -> None:
    words = "NaN Infinity -Infinity inf -inf nan -nan(ind) N/A None 1e - 1,234,567"
    values = ", ".join(f'"{place}": {word}' for place, word in enumerate(words.split()))
    assert _saved(_rest(rest=values)) == snapshot(
        [
            'not_finite, not_available, constant, number: {"ph":"X","name":"n","0":null,"1":null,"2":null,"3":null,"4":null,"5":null,"6":null,"7":null,"8":null,"9":null,"10":null,"11":null}'
        ]
    )


def test_constants_of_python_become_those_of_json() -> None:
    assert _saved(_rest(rest='"a": True, "b": [False, None]')) == snapshot(
        ['constant: {"ph":"X","name":"n","a":true,"b":[false,null]}']
    )


def test_numbers_of_other_grammars_keep_their_value() -> None:
    assert _saved(_rest(rest='"a": 0., "b": .5, "c": +1, "d": 01, "e": -.5e3, "f": [00.10, 2]')) == snapshot(
        ['number: {"ph":"X","name":"n","a":0,"b":0.5,"c":1,"d":1,"e":-0.5e3,"f":[0.10,2]}']
    )


def test_decimal_commas_become_points_but_lists_stay_lists() -> None:
    assert _saved(_rest(rest='"ts": 1234,567, "dur": 3,5\n, "args": {"a": [1,2], "b": 0,5e-3}')) == snapshot(
        ['decimal_comma: {"ph":"X","name":"n","ts":1234.567,"dur":3.5,"args":{"a":[1,2],"b":0.5e-3}}']
    )


def test_commas_are_put_right() -> None:
    assert _saved('{"ph": "X",, "name": "n" "ts": 1, "args": {"a": [1, 2,],},}') == snapshot(
        ['comma: {"ph":"X","name":"n","ts":1,"args":{"a":[1,2]}}']
    )


def test_a_missing_closing_brace_is_put_in_where_all_keys_are_there() -> None:
    assert _saved(compact(BEFORE)[:-1]) == snapshot(
        [
            'closing_brace: {"ph":"X","cat":"cpu_op","name":"before","pid":1,"tid":2,"ts":1.5,"dur":2,"args":{"Ev Idx":0}}'
        ]
    )


def test_an_event_cut_in_the_middle_is_lost_alone() -> None:
    assert _saved(compact(BEFORE)[:70]) == snapshot(
        ['lost as cut_off: {"ph": "X", "cat": "cpu_op", "name": "before", "pid": 1, "tid": 2, "ts']
    )


def test_a_missing_opening_brace_is_put_in() -> None:
    assert _saved(compact(BEFORE)[1:]) == snapshot(
        [
            'opening_brace: {"ph":"X","cat":"cpu_op","name":"before","pid":1,"tid":2,"ts":1.5,"dur":2,"args":{"Ev Idx":0}}'
        ]
    )


def test_a_missing_brace_of_args_is_put_in() -> None:
    assert _saved(compact(BEFORE).replace(b'"args": {', b'"args": ')) == snapshot(
        [
            'opening_brace: {"ph":"X","cat":"cpu_op","name":"before","pid":1,"tid":2,"ts":1.5,"dur":2,"args":{"Ev Idx":0}}'
        ]
    )


def test_a_missing_bracket_is_put_in() -> None:
    assert _saved(_rest(rest='"args": {"a": [1, "b": [2}')) == snapshot(
        ['closing_bracket: {"ph":"X","name":"n","args":{"a":[1],"b":[2]}}']
    )


def test_a_fragment_that_lacks_its_start_is_lost() -> None:
    assert _saved(compact(BEFORE)[30:]) == snapshot(
        ['lost as no_start: name": "before", "pid": 1, "tid": 2, "ts": 1.5, "dur": 2, "args": {"Ev Idx": 0}}']
    )


def test_log_lines_between_events_are_lost() -> None:
    assert _saved('\n[W815 10:11:12 a.cpp:7] Warning: {"ph": 1}\nSTAGE:2023 1:1 b.cpp:3] Done\n') == snapshot(
        [
            'lost as stray_text: [W815 10:11:12 a.cpp:7] Warning: {"ph": 1}',
            "lost as stray_text: STAGE:2023 1:1 b.cpp:3] Done",
        ]
    )


def test_a_log_line_in_an_event_is_left_out() -> None:
    assert _saved(_rest(rest='\n[W815 10:11:12 a.cpp:7] Warning: {a}\n"ts": 1')) == snapshot(
        ['log_line: {"ph":"X","name":"n","ts":1}']
    )


def test_repeated_keys_are_named_and_left() -> None:
    assert _saved(_rest(rest='"ts": 1, "args": {"a": 1, "a": 2}')) == snapshot(
        ['duplicate_key: {"ph": "X", "name": "n", "ts": 1, "args": {"a": 1, "a": 2}}']
    )


def test_valid_but_odd_events_stay_as_they_are() -> None:
    odd = '{"name": "{\\"ph\\": 1}, {", "ts": "123.5", "n": 18446744073709551616, "l": [{"ph": "X", "name": "m"}]}'
    saved, _ = _among(odd)
    assert [(whole.text.decode(), whole.repairs) for whole in saved.events[1:-1]] == [(odd, ())]


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"ph": ', "}"), ('[{"name": ', "}]")])
def test_a_value_nested_5000_deep_becomes_null(opened: str, closed: str) -> None:
    deep = _rest(rest='"args": {"a": ' + opened * 5000 + "1" + closed * 5000 + ', "b": [[1]]}')
    assert _saved(deep) == ['too_deep: {"ph":"X","name":"n","args":{"a":null,"b":[[1]]}}']


def test_an_event_that_is_cut_off_by_the_end_is_unfinished() -> None:
    piece = compact(BEFORE) + b", " + compact(AFTER)[:-1]
    saved = salvage(piece, 0)
    assert (len(saved.events), saved.lost, saved.end) == snapshot(
        (1, [Lost(offset=112, length=108, reason="cut_off")], 112)
    )
    assert len(salvage(piece[saved.end :] + b"}", saved.end).events) == 1


def test_what_follows_the_array_is_the_tail() -> None:
    tail = b'],\n  "traceName": "C:\\x", "list": [{"a": 1}]}'
    saved = salvage(compact(BEFORE) + b"\n" + tail, 0)
    assert (len(saved.events), saved.lost, saved.tail) == (1, [], tail)


def test_keys_after_the_events_are_the_tail_where_the_bracket_is_missing() -> None:
    saved = salvage(compact(BEFORE) + b',\n  "traceName": "x"\n}', 0)
    assert (len(saved.events), saved.lost, saved.tail) == (1, [], b'"traceName": "x"\n}')


def test_events_of_other_keys_of_the_tail_are_none_of_the_array() -> None:
    tail = b'], "others": [' + compact(AFTER) + b", " + compact(AFTER) + b"]}"
    saved = salvage(compact(BEFORE) + tail, 0)
    assert (len(saved.events), saved.tail) == (1, tail)


def test_the_keys_around_the_events_are_read_one_by_one() -> None:
    head = b'\xef\xbb\xbf{\n "schemaVersion": 1,\n "note": "a"b", "bad": foo, "c": {"x": NaN, "y": 2}, "d": 1,5,\n "traceEvents": ['
    assert metadata(head) == snapshot(
        (
            {"schemaVersion": b"1", "note": b'"a\\"b"', "c": b'{"x":null,"y":2}', "d": b"1.5"},
            ("quote", "lost_key:bad", "not_finite", "decimal_comma"),
        )
    )


def test_the_keys_of_a_cut_tail_are_read_as_far_as_they_are_whole() -> None:
    assert metadata(b'], "traceName": "C:\\Users\\x" "n": 1, "list": [1, 2') == snapshot(
        ({"traceName": b'"C:\\\\Users\\\\x"', "n": b"1"}, ("backslash", "lost_key:list"))
    )


def test_keys_that_are_valid_stay_as_they_stand() -> None:
    assert metadata(b'{"a": [1, {"b": "c"}], "traceEvents": [') == ({"a": b'[1, {"b": "c"}]'}, ())


_EVENTS = st.lists(st.sampled_from(HAND), min_size=5, max_size=8)
_LAYOUTS = st.sampled_from([compact, pretty])
_SEEDS = st.integers(0, 2**32)


def _accounted(piece: bytes, saved: Salvaged) -> None:
    """Check that all bytes but separators belong to an event, a loss or the tail, and that these are in order."""
    starts = sorted([(whole.offset, whole) for whole in saved.events] + [(loss.offset, loss) for loss in saved.lost])
    assert [place for place, _ in starts] == [place for place, _ in dict(starts).items()]
    end = len(piece) - len(saved.tail)
    left = bytearray(piece[:end])
    for at, (place, entry) in enumerate(starts):
        following = starts[at + 1][0] if at + 1 < len(starts) else end
        length = following - place
        if isinstance(entry, Lost):
            length = entry.length
        elif not entry.repairs:
            length = len(entry.text)
            assert piece[place : place + length] == entry.text
        assert length <= following - place
        left[place : place + length] = b" " * length
    assert left.replace(b"\xef\xbb\xbf", b"").translate(None, b" \t\r\n\x0b\x0c,") == b""


def _usable(saved: Salvaged) -> None:
    """Check what every user of a saved event relies on."""
    for whole in saved.events:
        msgspec.json.decode(whole.text, type=dict[str, msgspec.Raw])
        whole.text.decode()
        json.loads(whole.text)


@given(_EVENTS, _LAYOUTS, _SEEDS, st.sampled_from(sorted(BREAKAGES)))
@settings(max_examples=80)
def test_only_the_broken_event_is_lost(
    made: list[dict[str, object]], layout: Callable[[dict[str, object]], bytes], seed: int, kind: str
) -> None:
    events = [layout(event) for event in made]
    text, may_change = BREAKAGES[kind](Random(seed), events)
    assert lost_beyond(text, events, may_change)[0] == 0
    saved = salvage(text, 0)
    _accounted(text, saved)
    _usable(saved)


@given(_EVENTS, _LAYOUTS)
def test_unbroken_events_come_back_unchanged(
    made: list[dict[str, object]], layout: Callable[[dict[str, object]], bytes]
) -> None:
    events = [layout(event) for event in made]
    saved = salvage(seam(events).join(events), 0)
    assert [(whole.text, whole.repairs) for whole in saved.events] == [(event, ()) for event in events]
    assert (saved.lost, saved.tail) == ([], b"")


_BYTES = st.lists(
    st.sampled_from(
        [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\n", b" ", b'"ph": "X"', b'"name": ', b"1", b"-", b"NaN",
         b"\xff", b"\0", b"[W1] x\n", b"\\ud800", b'{"ph": "X", "ts": 1}', b', "args": {"a": ', b"\xef\xbb\xbf"]
    )
    | st.binary(max_size=3),
    max_size=40,
).map(b"".join)  # fmt: skip


@given(_BYTES)
@settings(max_examples=600)
def test_any_bytes_are_accounted_for(text: bytes) -> None:
    saved = salvage(text, 0)
    _usable(saved)
    _accounted(text, saved)
    assert 0 <= saved.end <= len(text)
    values, _ = metadata(text)
    assert all(json.loads(value) is not ... for value in values.values())


@pytest.mark.parametrize("kind", sorted(BREAKAGES))
def test_no_other_event_of_a_real_trace_is_lost(kind: str, samples: list[list[bytes]]) -> None:
    found = measure(kind, Random(kind), samples, 12)
    assert (found.lost_beyond, found.invented) == (0, 0)


@pytest.fixture(scope="module")
def samples(traces: Path) -> list[list[bytes]]:
    """Return events of real traces as they stand, and of one in the other layout."""
    real = [real_events(traces / name) for name in TRACES]
    return [*real, [compact(json.loads(event)) for event in real[0]]]


@pytest.mark.parametrize("name", TRACES)
def test_a_real_trace_comes_back_unchanged(name: str, traces: Path) -> None:
    events = real_events(traces / name)
    saved = salvage(seam(events).join(events), 0)
    assert [whole.text for whole in saved.events] == events
    assert saved.lost == []


def test_most_single_damages_are_repaired(samples: list[list[bytes]]) -> None:
    """Cuts can't be: everything else mostly."""
    hopeless = {"cut in an event", "bytes lost in an event", "garbage in an event", "log line anywhere"}
    for kind in sorted(SINGLE.keys() - hopeless):
        found = measure(kind, Random(kind), samples, 12)
        assert found.repaired >= 0.7 * found.damaged, found
