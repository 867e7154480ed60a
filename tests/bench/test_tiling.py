"""Copies of a trace stay apart, follow one another, and are otherwise as the trace is."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests.bench.tiling import make
from tests.build import Event, document, kernel, launch, op
from tracekit.errors import TracekitError
from tracekit.loading import tables_of

if TYPE_CHECKING:
    from pathlib import Path

EVENTS: list[Event] = [
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python 100%"}},
    op("aten::mm", 100, 50, External_id=7, Sequence_number=3, Record_function_id=0),
    launch(110, 41),
    kernel("gemm 50%", 130.25, 10, 41),
    {"ph": "s", "id": 41, "cat": "ac2g", "name": "ac2g", "pid": 100, "tid": 100, "ts": 110},
    {"ph": "f", "id": 41, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 130.25, "bp": "e"},
    {"ph": "s", "id": 2, "cat": "fwdbwd", "name": "fwdbwd", "pid": 100, "tid": 100, "ts": 100},
    {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 200},
]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Write a small trace of every kind of event that tiling treats apart."""
    path = tmp_path / "small.json.gz"
    path.write_bytes(gzip.compress(document(EVENTS)))
    return path


def tiled(small: Path, folder: Path, size: int = 3000) -> dict[str, Any]:
    """Read what is made of a small trace."""
    document: dict[str, Any] = json.loads(make(small, size, folder).path.read_bytes())
    return document


def test_names_of_tracks_stand_once_and_the_end_of_the_recording_last(small: Path, tmp_path: Path) -> None:
    names = [event["name"] for event in tiled(small, tmp_path)["traceEvents"]]

    assert names == snapshot(
        [
            "process_name",
            "aten::mm",
            "cudaLaunchKernel",
            "gemm 50%",
            "ac2g",
            "ac2g",
            "fwdbwd",
            "aten::mm",
            "cudaLaunchKernel",
            "gemm 50%",
            "ac2g",
            "ac2g",
            "fwdbwd",
            "aten::mm",
            "cudaLaunchKernel",
            "gemm 50%",
            "ac2g",
            "ac2g",
            "fwdbwd",
            "Record Window End",
        ]
    )


def test_ids_that_link_events_are_shifted_and_times_follow_one_another(small: Path, tmp_path: Path) -> None:
    events = tiled(small, tmp_path)["traceEvents"]
    rows = [(event["name"], event["ts"], event.get("id"), event.get("args", {})) for event in events[7:]]

    assert rows == snapshot(
        [
            ("aten::mm", 1150, None, {"External id": 15, "Sequence number": 7, "Record function id": 0}),
            ("cudaLaunchKernel", 1160, None, {"cbid": 211, "correlation": 83}),
            ("gemm 50%", 1180.25, None, {"device": 0, "stream": 7, "correlation": 83}),
            ("ac2g", 1160, 83, {}),
            ("ac2g", 1180.25, 83, {}),
            ("fwdbwd", 1150, 5, {}),
            ("aten::mm", 2200, None, {"External id": 23, "Sequence number": 11, "Record function id": 0}),
            ("cudaLaunchKernel", 2210, None, {"cbid": 211, "correlation": 125}),
            ("gemm 50%", 2230.25, None, {"device": 0, "stream": 7, "correlation": 125}),
            ("ac2g", 2210, 125, {}),
            ("ac2g", 2230.25, 125, {}),
            ("fwdbwd", 2200, 8, {}),
            ("Record Window End", 2300, None, {}),
        ]
    )


def test_an_event_lies_over_several_lines_and_digits_stay_as_written(tmp_path: Path) -> None:
    source = tmp_path / "exact.json"
    source.write_text(
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a%d", "pid": 1, "tid": 1, '
        '"ts": 1669783687464181.440, "dur": 5.10, "args": {"External id": 1, "Input Dims": [[1, 2],\n   []]}}]}'
    )

    assert make(source, 400, tmp_path).path.read_text() == snapshot("""\
{
  "schemaVersion": 1,
  "traceEvents": [
  {
    "ph": "X", "cat": "cpu_op", "name": "a%d", "pid": 1, "tid": 1,
    "ts": 1669783687464181.440, "dur": 5.10,
    "args": {
      "External id": 1, "Input Dims": [[1, 2],[]]
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "a%d", "pid": 1, "tid": 1,
    "ts": 1669783687465186.440, "dur": 5.10,
    "args": {
      "External id": 3, "Input Dims": [[1, 2],[]]
    }
  }
  ]
}
""")


def test_a_made_trace_answers_as_its_copies_together(small: Path, tmp_path: Path) -> None:
    made = make(small, 5000, tmp_path)
    tables = tables_of(made.path.read_bytes(), "made")

    assert made.copies > 2
    assert tables["trace"]["events"].item() == made.events
    assert {name: tables[name].height for name in ("op", "launch", "kernel")} == dict.fromkeys(
        ("op", "launch", "kernel"), made.copies
    )
    assert tables["kernel"]["launch_id"].n_unique() == made.copies
    assert tables["kernel"]["op_id"].is_not_null().all()
    assert tables["op"]["start_ns"].diff().drop_nulls().gt(0).all()
    assert tables["quality"].filter(pl.col("severity") == "bad").height == 0


def test_the_size_is_that_asked_for_to_the_nearest_copy(small: Path, tmp_path: Path) -> None:
    made = make(small, 100_000, tmp_path)

    assert made.bytes == made.path.stat().st_size
    assert abs(made.bytes - 100_000) < 0.1 * 100_000


def test_a_trace_made_before_is_kept_and_a_part_of_one_is_made_anew(small: Path, tmp_path: Path) -> None:
    made = make(small, 3000, tmp_path)
    whole = made.path.read_bytes()
    made.path.write_bytes(whole.replace(b"aten::mm", b"aten::mn"))
    assert make(small, 3000, tmp_path) == made
    assert b"aten::mn" in made.path.read_bytes()

    made.path.write_bytes(whole[:-100])
    assert make(small, 3000, tmp_path) == made
    assert made.path.read_bytes() == whole


@pytest.mark.parametrize("text", ["{", "[]", '{"events": []}', '{"traceEvents": []}'])
def test_what_is_no_whole_trace_is_refused(tmp_path: Path, text: str) -> None:
    source = tmp_path / "broken.json"
    source.write_text(text)

    with pytest.raises(TracekitError, match="can't be tiled"):
        make(source, 1000, tmp_path)
