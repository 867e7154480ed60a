"""Keys that are repeated in valid JSON are counted, the last one counts, and long texts are looked at in samples."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from polars.testing import assert_frame_equal

from tests.build import document, kernel, launch, memory, op
from tracekit.errors import TracekitError
from tracekit.ingest import read_bytes
from tracekit.ingest.events import TABLES
from tracekit.ingest.repeats import repeats
from tracekit.loading import Settings, load, tables_of

if TYPE_CHECKING:
    from pathlib import Path

LAST = {
    "ph": ["X", "i"],
    "cat": ["cpu_op", "kernel", "martian"],
    "name": ["other"],
    "pid": [9, "worker"],
    "tid": [8],
    "ts": [77, "7.5"],
    "dur": [66],
    "args": [{}, {"correlation": 5}, {"unknown": 1}],
}
"""What may follow as the second value of each key of an event."""


def twice(event: bytes, key: str, value: object) -> bytes:
    return event[:-1] + f", {json.dumps(key)}: {json.dumps(value)}}}".encode()


@pytest.mark.parametrize("key", LAST)
def test_the_last_of_a_repeated_key_counts_as_it_does_for_python(key: str) -> None:
    for event in (op("aten::mm", 0, 5, External_id=3), launch(1, 7), kernel("k", 3, 4, 7), memory(2, 64, 512, 512)):
        for value in LAST[key]:
            text = twice(json.dumps(event).encode(), key, value)
            found, expected = (
                read_bytes(b'{"schemaVersion": 1, "traceEvents": [' + each + b"]}", "t.json")
                for each in (text, json.dumps(json.loads(text)).encode())
            )
            for table in TABLES:
                assert_frame_equal(getattr(found, table), getattr(expected, table))
            assert [problem.check_name for problem in found.problems if problem not in expected.problems] == [
                "repaired_event"
            ]


def test_repeated_keys_are_counted_by_event_with_the_first_one_s_place() -> None:
    rows = [json.dumps(op(f"aten::op{number}", 10 * number, 5)).encode() for number in range(20)]
    rows[7] = twice(rows[7], "ts", 71)
    rows[12] = rows[12].replace(b'"args": {}', b'"args": {"a": 1, "a": 2}')
    opening = document().removesuffix(b"]}")
    tables = tables_of(opening + b", ".join(rows) + b"]}", "t.json")
    assert tables["quality"].filter(check_name="repaired_event").select("count", "first_offset", "message").rows() == [
        (2, len(opening) + len(b", ".join(rows[:7])) + 2, "Repaired while reading: keys are repeated within an object, "
         "and the last counts; long traces are looked at in samples.")
    ]  # fmt: skip
    assert tables["op"].filter(name="aten::op7")["start_ns"].item() == 71_000


def test_a_key_repeated_by_another_spelling_is_repeated() -> None:
    texts = (b'{"a":1,"\\u0061":2}', b'{"a":{"a":1}}', b'{"a":[{"b":1,"b":1}]}', b'1, null, {"a":1,"a":1}')
    assert [repeats(text) for text in texts] == [[0], [], [0], [9]]


def test_in_a_long_text_what_is_frequent_is_counted_exactly_and_what_is_rare_may_be_missed() -> None:
    rows = [json.dumps(op(f"aten::op{number}", 10 * number, 5)).encode() for number in range(20_000)]
    assert repeats(b",".join(rows)) == []
    often = [twice(row, "ts", 1) if number % 50 == 3 else row for number, row in enumerate(rows)]
    found = repeats(b",".join(often))
    assert len(found) == 400
    assert found[0] == len(b",".join(often[:3])) + 1
    assert repeats(b",".join([*rows[:300], twice(rows[300], "ts", 1), *rows[301:]])) == []


def test_a_strict_reader_finds_the_one_that_samples_miss(tmp_path: Path) -> None:
    rows = [json.dumps(op(f"aten::op{number}", 10 * number, 5)).encode() for number in range(20_000)]
    rows[300] = twice(rows[300], "ts", 1)
    source = tmp_path / "t.json"
    source.write_bytes(b"[" + b",".join(rows) + b"]")
    load(source, tmp_path / "t.tkb")
    for whole_bytes in (0, 2**27):
        with pytest.raises(TracekitError, match=r"keys are repeated within an object.*first at byte 3"):
            load(source, tmp_path / "s.tkb", settings=Settings(is_strict=True, whole_bytes=whole_bytes))
