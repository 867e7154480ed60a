"""Laws of reading, whatever a file holds: nothing is lost, and only TracekitError is raised."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.build import document, frame, kernel, launch, op, step
from tracekit.errors import TracekitError
from tracekit.ingest import Events, read_bytes
from tracekit.ingest.args import knowledge
from tracekit.loading import tables_of

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | _TEXT
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_KEYS = [
    "External id", "external id", "Sequence number", "Fwd thread id", "Record function id", "Input Dims",
    "Concrete Inputs", "finished", "Python id", "Python parent id", "correlation", "device", "stream", "bytes",
    "grid", "registers per thread", "shared memory", "est. achieved occupancy %", "graph node id", "Device Type",
    "Device Id", "Addr", "Bytes", "Total Allocated", "Total Reserved", "Ev Idx", "cbid", "unheard of",
]  # fmt: skip
_NAMES = [
    "aten::mm", "[memory]", "ProfilerStep#3", "ProfilerStep#4", "nn.Module: Linear_0", "MmBackward0",
    "CheckpointFunctionBackward", "Optimizer.step#AdamW.step", "cudaLaunchKernel", "flash_fwd_kernel",
]  # fmt: skip


def _mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 7).flatmap(lambda dice: usual if dice else _JSON)


_CATEGORIES = [
    *knowledge()["categories"],
    "cpu_instant_event",
    "Kernel",
    "martian",
    "fwdbwd",
    "FwdBwd",
    "forward_backward",
]
_NUMBERS = st.integers(0, 20) | st.floats(0, 20)
_EVENTS = _mostly(
    st.fixed_dictionaries(
        {},
        optional={
            "ph": _mostly(st.sampled_from("XXXXisfMB")),
            "cat": _mostly(st.sampled_from(_CATEGORIES)),
            "id": _mostly(st.integers(0, 2)),
            "name": _mostly(st.sampled_from(_NAMES)),
            "pid": _mostly(st.integers(0, 2)),
            "tid": _mostly(st.integers(0, 2)),
            "ts": _mostly(_NUMBERS),
            "dur": _mostly(_NUMBERS),
            "args": _mostly(st.dictionaries(st.sampled_from(_KEYS), _mostly(st.integers(0, 5)), max_size=5)),
        },
    )
)
_TOP = st.dictionaries(
    st.sampled_from(["deviceProperties", "distributedInfo", "baseTimeNanoseconds", "schemaVersion"]),
    _JSON
    | st.lists(st.dictionaries(st.sampled_from(["name", "numSms", "computeMajor"]), _JSON), max_size=2)
    | st.dictionaries(st.sampled_from(["rank", "world_size"]), _JSON),
)
_WHOLE = document(
    step(1, 0, 100),
    op("aten::mm", 1.5, 3, External_id=3, Input_Dims=[[2, 3]], new="é"),
    launch(2, 7),
    kernel("k", 10, 5, 7),
    frame("nn.Module: A_0", 0, 50, 1),
    {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 3, "args": {"Total Allocated": 5}},
    deviceProperties=[{"name": "GPU", "numSms": 8}],
    distributedInfo={"rank": 1},
)
_EDITS = st.lists(
    st.tuples(
        st.integers(0, len(_WHOLE) - 1),
        st.integers(0, 3),
        st.sampled_from([b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b"e", b"\\", b"\xff", b"\0"]),
    ),
    min_size=1,
    max_size=3,
)


_EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
"""One that is an event, since a list without any is no trace."""


def _counted(events: Events, check: str) -> int:
    return sum(problem.count for problem in events.problems if problem.check_name == check)


@given(st.lists(_EVENTS, min_size=1, max_size=12), _TOP)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_every_event_is_a_row_or_is_counted(listed: list[Any], top: dict[str, Any]) -> None:
    listed = [*listed, _EVENT]
    events = read_bytes(json.dumps({**top, "traceEvents": listed}).encode(), "t.json")
    frames = (events.ops, events.frames, events.runtime, events.device, events.memory, events.other)
    left_out = _counted(events, "flow_event") + _counted(events, "time_beyond_int64")
    assert sum(frame.height for frame in frames) + left_out == len(listed) == events.recording.events


@given(listed=st.lists(_EVENTS, min_size=1, max_size=12), top=_TOP, bare=st.booleans())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_whatever_json_a_trace_holds_it_becomes_tables(listed: list[Any], top: dict[str, Any], *, bare: bool) -> None:
    listed = [*listed, _EVENT]
    tables = tables_of(json.dumps(listed if bare else {**top, "traceEvents": listed}).encode(), "t.json")
    assert tables["trace"]["events"].item() == len(listed)


@given(_EDITS)
@settings(deadline=None)
def test_a_damaged_file_becomes_tables_or_is_refused_in_one_line(edits: list[tuple[int, int, bytes]]) -> None:
    data = bytearray(_WHOLE)
    for place, length, text in edits:
        data[place : place + length] = text
    refusal = ""
    try:
        tables_of(bytes(data), "t.json")
    except TracekitError as error:
        refusal = str(error)
    assert re.fullmatch(r"|t\.json.+: .+", refusal)
