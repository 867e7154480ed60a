"""Events are sorted into kinds by their category; what fits none is kept, and what is no trace is refused."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest

from tests.build import document, event, op
from tracekit.errors import TracekitError
from tracekit.ingest import Cutter, Events, decode, decoded, read_bytes
from tracekit.ingest import events as shape
from tracekit.ingest.args import knowledge, reader

KINDS = {"op", "annotation", "frame", "runtime", "kernel", "memcpy", "memset"}


def read(*events: Any, **top: Any) -> Events:
    return read_bytes(document(*events, **top), "hand.json")


def heights(events: Events) -> dict[str, int]:
    names = ("ops", "frames", "runtime", "device", "memory", "other", "arrows")
    return {name: height for name in names if (height := getattr(events, name).height)}


def problems(events: Events) -> dict[str, int]:
    return {problem.check_name: problem.count for problem in events.problems}


def test_every_known_category_lands_in_its_frame() -> None:
    frame_of = {"op": "ops", "annotation": "ops", "frame": "frames", "runtime": "runtime"}
    for category, kind in knowledge()["categories"].items():
        assert heights(read(event(category, "x", 1, 2))) == {frame_of.get(kind, "device"): 1}, category


def test_a_category_is_known_in_whatever_case() -> None:
    assert heights(read(event("CPU_OP", "x", 1, 2), event("Gpu_MemCpy", "y", 1, 2))) == {"ops": 1, "device": 1}


def test_the_names_of_2021_mean_what_those_of_today_mean() -> None:
    old = read(*(event(name, "x", 1, 2, args={}) for name in ("Operator", "Kernel", "Memcpy", "Memset", "Runtime")))
    assert heights(old) == {"ops": 1, "runtime": 1, "device": 3}
    assert old.device["kind"].to_list() == ["kernel", "memcpy", "memset"]
    assert not old.ops["is_annotation"].any()


def test_annotations_and_ops_share_a_frame_and_are_told_apart() -> None:
    ops = read(event("user_annotation", "step", 0, 9), op("aten::mm", 1, 2)).ops
    assert dict(ops.select("name", "is_annotation").iter_rows()) == {"step": True, "aten::mm": False}


def test_an_unknown_category_is_kept_whole_and_counted() -> None:
    events = read(event("Martian", "x", 1, 2, args={"a": [1, {"b": None}]}), event("martian", "y", 1, 2))
    assert events.other.select("category", "name", "phase_letter", "ts_ns", "dur_ns", "args_json").rows() == [
        ("martian", "x", "X", 1000, 2000, '{"a": [1, {"b": null}]}'),
        ("martian", "y", "X", 1000, 2000, None),
    ]
    assert [(found.check_name, found.severity, found.count) for found in events.problems] == [
        ("unknown_category", "warn", 2)
    ]
    assert "'martian'" in events.problems[0].message


def test_known_categories_without_a_table_are_kept_and_not_complained_of() -> None:
    for category in knowledge()["known_other"]["categories"]:
        events = read(event(category, "x", 1, 2))
        assert heights(events) == {"other": 1}
        assert events.problems == ()


def test_metadata_and_instants_are_kept() -> None:
    rows = [
        {"ph": "M", "name": "process_name", "pid": 3, "tid": 0, "args": {"name": "python"}},
        {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 5, "s": "g"},
        {"ph": "C", "name": "counter", "pid": 3, "ts": 6, "args": {"x": 1}},
    ]
    events = read(*rows)
    assert events.other.select("phase_letter", "name", "pid", "tid", "ts_ns").rows() == [
        ("M", "process_name", "3", "0", None),
        ("i", "Record Window End", "", "", 5000),
        ("C", "counter", "3", None, 6000),
    ]
    assert events.problems == ()


def test_where_something_begins_and_ends_in_events_of_their_own_they_are_kept_and_told_of() -> None:
    events = read(event("cpu_op", "x", 1, 0, ph="B"), event("cpu_op", "x", 3, 0, ph="E"), op("aten::mm", 0, 9))
    assert heights(events) == {"ops": 1, "other": 2}
    assert [(found.check_name, found.count) for found in events.problems] == [("open_event", 2)]


def test_arrows_are_counted_and_not_kept() -> None:
    arrows = [{"ph": ph, "cat": "ac2g", "id": 7, "pid": 1, "tid": 1, "ts": 1, "name": "ac2g"} for ph in "stf"]
    events = read(op("aten::mm", 0, 1), *arrows)
    assert heights(events) == {"ops": 1}
    assert problems(events) == {"flow_event": 3}


def test_ends_of_arrows_from_forward_to_backward_ops_are_read() -> None:
    start = {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 7, "pid": 1, "tid": 2, "ts": 3.25}
    odd = {"ph": "f", "cat": "FwdBwd", "id": [7], "ts": "soon", "args": {"x": 1}, "unheard of": 2}
    events = read(op("aten::mm", 0, 1), start, start | {"ph": "f", "bp": "e", "id": "x"}, start | {"ph": "t"}, odd)
    assert heights(events) == {"ops": 1, "arrows": 3}
    assert events.arrows.rows() == [("7", "1", "2", 3250, False), ("x", "1", "2", 3250, True), (None,) * 4 + (True,)]
    assert problems(events) == {"flow_event": 4}


@pytest.mark.parametrize("ts", [None, "", "soon", "NaN", True, {}, [1]])
def test_an_event_without_a_time_is_kept_whole(ts: Any) -> None:
    events = read(op("aten::mm", 0, 1) | {"ts": ts, "args": {"a": 1}})
    assert heights(events) == {"other": 1}
    assert events.other.select("category", "name", "args_json").rows() == [("cpu_op", "aten::mm", '{"a": 1}')]


@pytest.mark.parametrize(("ts", "nanos"), [("12", 12_000), (" 1.5 ", 1500), ("-3", -3000), ("1e3", 1_000_000)])
def test_a_time_written_as_text_is_a_time(ts: str, nanos: int) -> None:
    assert read(op("aten::mm", 0, 1) | {"ts": ts, "dur": "2.5"}).ops.select("ts_ns", "dur_ns").rows() == [(nanos, 2500)]


SHAPES: dict[str, Any] = {
    "number": 5,
    "text": "x",
    "nothing": None,
    "list_of_events": [op("x", 0, 1)],
    "name_is_a_number": op("x", 0, 1) | {"name": 5},
    "category_is_a_list": op("x", 0, 1) | {"cat": ["cpu_op"]},
    "phase_is_missing_a_text": op("x", 0, 1) | {"ph": None},
    "thread_is_an_object": op("x", 0, 1) | {"tid": {"id": 1}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_of_a_wrong_shape_is_kept_whole_and_counted(shape: str) -> None:
    events = read([op("aten::mm", 0, 1), SHAPES[shape]])
    assert heights(events) == {"ops": 1, "other": 1}
    assert events.other["category"].item() == "unreadable"
    assert json.loads(events.other["args_json"].item()) == SHAPES[shape]
    assert problems(events) == {"unreadable_event": 1}


def test_a_bare_list_of_events_is_a_trace() -> None:
    events = read_bytes(json.dumps([op("aten::mm", 0, 1)]).encode(), "list.json")
    assert heights(events) == {"ops": 1}
    assert events.recording.dialect == "list"


def test_bytes_that_are_no_utf_8_are_replaced_and_the_event_still_counts() -> None:
    data = document(op("aten::Q", 0, 1), op("y", 2, 1, note="Q"), op("z", 4, 1, Qkey=1)).replace(b"Q", b"\xff")
    events = read_bytes(data, "hand.json")
    assert events.ops.select("name", "args_json").rows() == [
        ("aten::\N{REPLACEMENT CHARACTER}", None),
        ("y", '{"note":"\N{REPLACEMENT CHARACTER}"}'),
        ("z", '{"\N{REPLACEMENT CHARACTER}key": 1}'),
    ]
    (found,) = [problem for problem in events.problems if problem.check_name == "repaired_event"]
    assert (found.count, found.first_offset) == (3, data.index(b"\xff"))


def test_names_keep_every_character_that_json_can_write() -> None:
    name = 'a"b\\c\n\t\x00é\N{GRINNING FACE}<>'
    assert read(op(name, 0, 1)).ops["name"].item() == name


NO_TRACES = {
    "object": (b'{"a": 1}', "is JSON but no profiler trace (no list named traceEvents)"),
    "events_are_an_object": (b'{"traceEvents": {}}', "is JSON but no profiler trace (no list named traceEvents)"),
    "events_are_nothing": (b'{"traceEvents": null}', "is JSON but no profiler trace (no list named traceEvents)"),
    "number": (b"12", "is JSON but no profiler trace (no list named traceEvents)"),
    "text": (b'"traceEvents"', "is JSON but no profiler trace (no list named traceEvents)"),
    "no_events": (b'{"traceEvents": []}', ": traceEvents is empty"),
    "empty_list": (b"[]", ": traceEvents is empty"),
    "a_word": (b"true", "is JSON but no profiler trace (no list named traceEvents)"),
    "numbers": (b"[1, 2]", "is JSON but no profiler trace (its list holds no events)"),
    "null": (b'{"traceEvents": [null]}', "is JSON but no profiler trace (its list holds no events)"),
    "texts": (b'{"traceEvents": ["a", []]}', "is JSON but no profiler trace (its list holds no events)"),
    "wrong_shapes": (b'{"traceEvents": [{"ph": 1}]}', "is JSON but no profiler trace (its list holds no events)"),
    "cut_at_once": (b"{", "is cut off before its first event ended"),
    "cut_list": (b"[", "is cut off before its first event ended"),
    "cut_in_a_key": (b'{"schemaVersion": 1, "devicePr', "is cut off before its first event ended"),
    "cut_before_events": (b'{"schemaVersion": 1, "traceEvents":', "is cut off before its first event ended"),
    "cut_before_the_first_event": (b'{"traceEvents": [ \n', "is cut off before its first event ended"),
    "cut_in_the_first_event": (b'{"traceEvents": [{"ph": "X", "na', "is cut off before its first event ended"),
    "cut_behind_its_args": (b'[{"ph": "X", "args": {}', "is cut off before its first event ended"),
    "words": (b"hello", "is not JSON, so no profiler trace"),
    "words_in_braces": (b"{hello", "is not JSON, so no profiler trace"),
    "a_page": (b"<html>", "is not JSON, so no profiler trace"),
    "a_log": (b"[W815 10:11] Warning\n", "holds no event that can be read (lines of a log, brackets or other text between events or behind them, at byte 1)"),
    "lone_backslash": (
        b'{"traceEvents": ["C:\\U"]}',
        "holds no event that can be read (an event without its beginning, at byte 17)",
    ),
    "broken_events": (
        b'{"traceEvents": [{"ph": "X", "ts": {{{, "dur": [[}]}',
        "holds no event that can be read (an event without its end, at byte 17)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", NO_TRACES)
def test_what_is_no_trace_is_refused(kind: str) -> None:
    data, problem = NO_TRACES[kind]
    with pytest.raises(TracekitError) as caught:
        read_bytes(data, "t.json")
    separator = "" if problem.startswith(":") else " "
    assert caught.value.problem == f"t.json{separator}{problem}"
    assert caught.value.remedy


def test_a_fault_before_or_behind_the_events_costs_no_event() -> None:
    whole = document(op("aten::mm", 0, 1))
    for data, found in (
        (whole + b"{}", {"lost_event": 1}),
        (whole + b"\0" * 512, {"repaired_event": 1}),
        (whole.replace(b'"schemaVersion": 1', b'"schemaVersion": one'), {"lost_key": 1}),
        (whole[:-1], {"cut_off": 1}),
        (whole[:-2], {"cut_off": 1}),
        (whole[:-2] + b', "traceName": "t.json"}', {"repaired_event": 1}),
    ):
        events = read_bytes(data, "t.json")
        assert heights(events) == {"ops": 1}
        assert problems(events) == found, data
        assert events.recording.is_truncated is ("cut_off" in found)


@pytest.mark.parametrize("depth", [3_000, 200_000])
@pytest.mark.parametrize(
    ("around", "problem"),
    [
        ("{}", "holds no event that can be read"),
        ('{{"a": {}}}', "its JSON is nested too deeply for a profiler trace: give a file written by torch.profiler"),
        ('{{"traceEvents": [{}]}}', "holds no event that can be read"),
    ],
)
def test_json_nested_too_deeply_is_refused(around: str, problem: str, depth: int) -> None:
    data = around.format("[" * depth + "]" * depth).encode()
    with pytest.raises(TracekitError, match=rf"^t\.json:? {re.escape(problem)}"):
        read_bytes(data, "t.json")


def test_an_arg_nested_too_deeply_becomes_null_and_one_beyond_reason_costs_its_event() -> None:
    other = op("aten::mm", 0, 1)
    for depth, found, rows in ((3_000, "repaired_event", 2), (200_000, "lost_event", 1)):
        deep = json.dumps(op("aten::deep", 5, 1, a="DEEP")).replace('"DEEP"', "[" * depth + "]" * depth).encode()
        events = read_bytes(document(other)[:-2] + b", " + deep + b"]}", "t.json")
        assert problems(events) == {found: 1}
        assert events.ops["name"].to_list() == ["aten::mm", "aten::deep"][:rows]


def test_the_knowledge_is_consistent() -> None:
    rules = tomllib.loads(files("tracekit.ingest").joinpath("kineto.toml").read_text(encoding="utf-8"))
    categories, other = rules["categories"], rules["known_other"]["categories"]
    assert set(categories.values()) == KINDS
    assert [name for name in (*categories, *other) if name != name.lower()] == []
    assert Counter((*categories, *other)).most_common(1)[0][1] == 1
    assert set(rules["redundant"]) == KINDS | {"memory"}
    for kind in KINDS | {"memory"}:
        assert not reader(kind).redundant & reader(kind).known.keys(), kind


def test_frames_have_their_columns_whether_or_not_they_have_rows() -> None:
    for events in (
        read(event("martian", "x", 1, 2)),
        read(*(event(name, "x", 1, 2) for name in knowledge()["categories"])),
    ):
        assert dict(events.ops.schema) == shape.OP
        assert dict(events.frames.schema) == shape.FRAME
        assert dict(events.runtime.schema) == shape.RUNTIME
        assert dict(events.device.schema) == shape.DEVICE
        assert dict(events.memory.schema) == shape.MEMORY
        assert dict(events.other.schema) == shape.OTHER


def test_a_list_inside_an_event_is_not_taken_for_events_where_the_text_is_cut() -> None:
    listed = [
        {
            "name": f"n{number}",
            **op("x", number, 1, inputs=[{"name": "k", "ph": 1}] * 20),
            "args": {"a": [{"name": "k"}] * 20},
        }
        for number in range(400)
    ]
    data = json.dumps({"traceEvents": listed}).encode()
    for size in (300, 2000, 50_000):
        events = read_bytes(data, "t.json", size)
        assert (events.ops.height, events.problems) == (400, ())


def test_events_that_begin_with_different_keys_are_cut_all_the_same() -> None:
    listed = [{"name": "process_name", "ph": "M", "pid": 1, "args": {}}, *(op(f"n{at}", at, 1) for at in range(500))]
    data = json.dumps({"traceEvents": listed}).encode()
    pieces = list(Cutter((data[at : at + 1000] for at in range(0, len(data), 1000)), "t.json", 1000).pieces())
    assert max(len(piece.text) for piece in pieces) < 3000
    assert sum(decoded(piece).counts.events for piece in pieces) == len(listed)


@pytest.mark.parametrize("inputs", [[], [{"a": 1}, {"ph": 2}]], ids=["plain", "looks like a place to cut"])
def test_a_piece_that_is_read_in_parts_gives_what_it_gives_as_one(
    inputs: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {}},
        op("shaped", 0, 1, inputs=inputs),
        op("unknown", 1, 1, unheard_of=3),
        event("kernel", "kept", 2, 1, args={"graph id": 4, "correlation": 5}),
        event("kernel", "both", 3, 1, args={"graph id": 6, "unheard of": 7}),
        event("cpu_op", "wrong", 4, 1, tid=[8]),
        event("cpu_op", "never", "n/a", 1),
        event("martian", "x", 5, 1),
    ]
    listed = [each for at, one in enumerate(odd) for each in (one, *(op(f"n{at}", 10 + at, 1) for _ in range(20)))]
    whole = read(*listed)
    monkeypatch.setattr(decode, "PART_BYTES", 500)
    parts = read(*listed)
    assert parts.problems == whole.problems
    assert parts.problems
    for name in shape.TABLES:
        assert getattr(parts, name).equals(getattr(whole, name)), name


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_event_of_a_few_broken_ones_is_saved(count: int) -> None:
    data = document(*(op(f"n{at}", at, 1) | {"ts": 7777} for at in range(count))).replace(b"7777", b"1,500")
    events = read_bytes(data, "t.json")
    assert events.ops["ts_ns"].to_list() == [1500] * count
    assert problems(events) == {"repaired_event": count}
