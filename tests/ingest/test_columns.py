"""Times are exact to the nanosecond, and what no column can hold is set aside and counted, never wrapped."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import document, event, kernel, op
from tests.independent import nanoseconds
from tracekit.ingest import Events, read_bytes

TIMES = {
    "0": 0,
    "5": 5_000,
    "5.0": 5_000,
    "1.5": 1_500,
    "0.001": 1,
    "1693500000123456": 1_693_500_000_123_456_000,
    "1693500000123456.789": 1_693_500_000_123_456_789,
    "7889237999999.999": 7_889_237_999_999_999,
    "4611686018427387.903": 4_611_686_018_427_387_903,
    "1.5e3": 1_500_000,
    "1E+15": 1_000_000_000_000_000_000,
    "1e-3": 1,
    "25e-1": 2_500,
    "1.0004": 1_000,
    "1.0006": 1_001,
    "1.0005": 1_000,
    "1.0015": 1_002,
    "1.123456": 1_123,
    "0.1234567890123456789": 123,
    "-2.5": -2_500,
}


TEMPLATE = document(op("x", 111, 222))


def read(*events: Any) -> Events:
    return read_bytes(document(*events), "hand.json")


def at(digits: str, duration: str = "1") -> Events:
    """Read an op whose time and duration are written with these digits."""
    start, end = TEMPLATE.split(b"111")
    data = start + digits.encode() + end.replace(b"222", duration.encode())
    return read_bytes(data, "hand.json")


def problems(events: Events) -> dict[str, int]:
    return {problem.check_name: problem.count for problem in events.problems}


@pytest.mark.parametrize("digits", TIMES)
def test_a_time_is_the_digits_of_the_file(digits: str) -> None:
    assert at(digits).ops["ts_ns"].item() == TIMES[digits]


@pytest.mark.parametrize("digits", [digits for digits, value in TIMES.items() if value >= 0])
def test_a_duration_is_the_digits_of_the_file(digits: str) -> None:
    is_credible = TIMES[digits] <= 24 * 3600 * 10**9
    assert at("0", digits).ops["dur_ns"].item() == (TIMES[digits] if is_credible else 0)


@pytest.mark.parametrize("digits", ["18446744073709552", "9223372036854775807", "1700000000000000000"])
def test_whole_microseconds_beyond_int64_do_not_wrap(digits: str) -> None:
    events = at("0", digits)
    assert events.ops["dur_ns"].item() == 0
    assert [(found.check_name, found.count) for found in events.problems] == [("missing_duration", 1)]
    lost = at(digits, "1") if len(digits) > 18 else None
    assert lost is None or lost.ops.height == 0


def test_a_duration_of_more_than_a_day_is_no_time_and_does_not_stretch_the_trace() -> None:
    events = read_bytes(document(op("a", 1, 2), kernel("k", 5, 1e15)), "t.json")
    assert events.device["dur_ns"].item() == 0
    assert [(found.check_name, found.count) for found in events.problems] == [("absurd_duration", 1)]


@given(st.integers(0, 2**62 // 1000 - 1), st.text("0123456789", max_size=6))
@settings(deadline=None)
def test_times_agree_with_decimal_arithmetic(whole: int, fraction: str) -> None:
    digits = f"{whole}.{fraction}" if fraction else str(whole)
    assert at(digits).ops["ts_ns"].item() == nanoseconds(Decimal(digits))


@pytest.mark.parametrize("digits", ["4611686018427388", "9223372036854775.808", "1e30", "-1e30", "1" * 60])
def test_a_time_that_is_none_leaves_its_row_out_and_is_counted(digits: str) -> None:
    events = at(digits)
    assert events.ops.height == 0
    assert problems(events) == {"time_beyond_int64": 1}


def test_a_negative_duration_is_none_and_is_counted() -> None:
    events = read(op("x", 1, -2), op("y", 1, 0), op("z", 1, 3))
    assert dict(events.ops.select("name", "dur_ns").iter_rows()) == {"x": 0, "y": 0, "z": 3000}
    assert problems(events) == {"negative_duration": 1}


@pytest.mark.parametrize("duration", ["null", '"N/A"', "1e30", "{}"])
def test_a_duration_that_is_no_number_is_none_and_is_counted(duration: str) -> None:
    events = at("1", duration)
    assert events.ops["dur_ns"].to_list() == [0]
    assert problems(events) == {"missing_duration": 1}


def test_a_missing_duration_is_none_and_is_counted() -> None:
    row = op("x", 1, 0)
    del row["dur"]
    events = read(row)
    assert events.ops["dur_ns"].to_list() == [0]
    assert problems(events) == {"missing_duration": 1}


def test_an_integer_above_int64_is_set_to_null_and_counted() -> None:
    events = read(kernel("k", 1, 2, 2**63, bytes=2**64), op("x", 1, 2, Sequence_number=2**63 - 1, External_id=-(2**63)))
    assert events.device.select("correlation", "bytes", "stream").row(0) == (None, None, 7)
    assert events.ops.select("sequence_number", "external_id").row(0) == (2**63 - 1, -(2**63))
    assert problems(events) == {"integer_above_int64": 2}


@pytest.mark.parametrize(
    ("pid", "tid", "expected"),
    [
        (0, 7, (0, 7)),
        ("0", "7", (0, 7)),
        ("GPU 2", "stream 13 ", (2, 13)),
        (1, -1, (1, -1)),
        ("", "", (None, None)),
        ("gpu", "stream ²", (None, None)),
        ("--5", "9" * 30, (None, None)),
        (None, 1.5, (None, None)),
    ],
)
def test_device_and_stream_come_from_the_row_where_the_args_lack_them(
    pid: object, tid: object, expected: tuple[int | None, int | None]
) -> None:
    events = read(event("kernel", "k", 1, 2, pid=pid, tid=tid))
    assert events.device.select("device", "stream").row(0) == expected


def test_args_say_device_and_stream_better_than_the_row() -> None:
    events = read(event("kernel", "k", 1, 2, pid=9, tid="stream 9", args={"device": 1, "stream": 20}))
    assert events.device.select("device", "stream").row(0) == (1, 20)


@pytest.mark.parametrize(("value", "expected"), [(3, "3"), ("Spans", "Spans"), (1.5, "1.5"), (None, None), (-1, "-1")])
def test_processes_and_threads_are_text(value: object, expected: str | None) -> None:
    assert read(event("cpu_op", "x", 1, 2, pid=value, tid=value)).ops.select("pid", "tid").row(0) == (expected,) * 2


def memory(**args: int) -> dict[str, Any]:
    """Make an allocator's row."""
    named = {"Device Type": 1, "Device Id": 0, "Addr": 64, "Bytes": 32, "Total Allocated": 96, "Total Reserved": 128}
    row = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 2, "ts": 3.5}
    return row | {"args": named | {key.replace("_", " "): value for key, value in args.items()}}


def test_an_allocator_s_row_is_a_sample_and_no_other_event() -> None:
    events = read(memory(Ev_Idx=9, finished=1, pool=4))
    assert events.memory.row(0, named=True) == {
        "ts_ns": 3500,
        "pid": "1",
        "tid": "2",
        "device": "cuda:0",
        "address": 64,
        "bytes": 32,
        "allocated_bytes": 96,
        "reserved_bytes": 128,
        "args_json": '{"pool":4}',
    }
    assert events.other.height == 0


@pytest.mark.parametrize(
    ("kind", "index", "expected"),
    [(0, -1, "cpu"), (1, 3, "cuda:3"), (6, 0, "hip:0"), (12, 1, "xpu:1"), (77, 2, "type77:2")],
)
def test_an_allocator_s_device_has_the_name_that_pytorch_gives_it(kind: int, index: int, expected: str) -> None:
    assert read(memory(Device_Type=kind, Device_Id=index)).memory["device"].item() == expected


def test_allocator_rows_are_found_in_every_dialect() -> None:
    python_exporter = memory() | {"ph": "X", "dur": 40}
    without_category = memory()
    del without_category["cat"]
    events = read(memory(), python_exporter, without_category)
    assert events.memory.height == 3
    assert events.memory.unique().height == 1
    assert events.other.height == 0
    assert events.problems == ()


def test_an_allocator_s_row_without_args_is_kept() -> None:
    row = memory()
    del row["args"]
    events = read(row)
    assert events.memory.drop("device").rows() == [(3500, "1", "2", None, None, None, None, None)]
    assert events.other.height == 0


@pytest.mark.parametrize("time", [10**30, -(10**30)])
def test_an_allocator_s_row_beyond_all_time_is_left_out_and_counted(time: int) -> None:
    events = read(memory() | {"ts": time}, memory())
    assert events.memory.height == 1
    assert events.other.height == 0
    assert problems(events) == {"time_beyond_int64": 1}


@pytest.mark.parametrize(
    ("check", "key", "value"),
    [
        ("negative_duration", "dur", -3),
        ("missing_duration", "dur", "soon"),
        ("absurd_duration", "dur", 9e13),
        ("time_beyond_int64", "ts", 9e30),
    ],
)
def test_the_first_event_whose_time_is_none_is_found_in_the_text(check: str, key: str, value: float | str) -> None:
    rows = [op(f"aten::op{number}", 10 * number, 5) for number in range(50)]
    for number in (17, 31, 48):
        rows[number][key] = value
    data = document(*rows)
    place = data.index(json.dumps(rows[17]).encode())
    for piece_bytes in (200, 1_000, 2**24):
        (found,) = (
            problem for problem in read_bytes(data, "t.json", piece_bytes).problems if problem.check_name == check
        )
        assert (found.count, found.first_offset) == (3, place)
