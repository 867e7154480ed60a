"""What a trace says of itself is taken from its top-level keys; how it counts time is found from the data."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from tests.build import document, event, op
from tracekit.ingest import Recording, read_bytes

NS_BASE = 1_790_857_026_000_000_000


def recording(*events: Any, **top: Any) -> Recording:
    return read_bytes(document(*(events or (op("x", 1, 2),)), **top), "hand.json").recording


def test_a_trace_s_top_level_keys_describe_its_device_and_rank() -> None:
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    said = recording(
        deviceProperties=[device, {**device, "id": 1}],
        distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
        baseTimeNanoseconds=NS_BASE,
        host_name="box7.example",
    )
    found = asdict(said)
    assert len(found.pop("source_sha256")) == 64
    assert found == {
        "source_name": "hand.json",
        "events": 1,
        "dialect": "kineto-relative",
        "base_unix_ns": NS_BASE,
        "rank": 3,
        "world_size": 8,
        "device_name": "NVIDIA H100 80GB HBM3",
        "device_count": 2,
        "sm_count": 132,
        "compute_capability": "9.0",
        "torch_version": None,
    }


def test_a_trace_that_says_nothing_is_described_by_nothing() -> None:
    data = json.dumps({"displayTimeUnit": "ms", "traceEvents": [op("x", 1, 2)]}).encode()
    said = asdict(read_bytes(data, "hand.json").recording)
    known = {key: value for key, value in said.items() if value is not None}
    assert known.keys() == {"source_name", "source_sha256", "events", "dialect"}


def test_a_trace_without_a_device_counts_none_and_an_unnamed_device_has_no_name() -> None:
    assert recording(deviceProperties=[]).device_count == 0
    unnamed = recording(deviceProperties=[{"name": "", "numSms": 304}])
    assert (unnamed.device_count, unnamed.device_name, unnamed.sm_count) == (1, None, 304)


@pytest.mark.parametrize(
    "top",
    [
        {"deviceProperties": {"name": "x"}, "distributedInfo": []},
        {"deviceProperties": [5], "distributedInfo": {"rank": "0", "world_size": 1.5}},
        {"deviceProperties": [{"name": ["x"], "numSms": 2**70}], "distributedInfo": {"rank": 2**70}},
        {"deviceProperties": [{"name": 5, "numSms": True}], "distributedInfo": {"rank": True, "world_size": None}},
    ],
)
def test_what_is_said_in_a_wrong_shape_is_not_believed(top: dict[str, Any]) -> None:
    said = recording(**top)
    assert (said.device_name, said.sm_count, said.rank, said.world_size) == (None, None, None, None)


@pytest.mark.parametrize("base", [None, "1790857026000000000", 2**63, 2**70, [1]])
def test_a_base_that_is_no_time_is_not_known(base: object) -> None:
    said = recording(baseTimeNanoseconds=base)
    assert (said.base_unix_ns, said.dialect) == (None, "kineto-relative-no-base")


EPOCH = 1_693_500_000_123_456
DIALECTS: dict[str, tuple[bytes, str]] = {
    "relative": (document(op("x", 5182064681653.684, 1), baseTimeNanoseconds=NS_BASE), "kineto-relative"),
    "no_base": (json.dumps({"a": 1, "traceEvents": [op("x", 5.5, 1)]}).encode(), "kineto-relative-no-base"),
    "epoch_in_us": (document(op("x", EPOCH, 1)), "kineto-epoch-us"),
    "epoch_in_ns": (document(op("x", 111, 1)).replace(b"111", b"%d.789" % EPOCH), "kineto-epoch-ns"),
    "names_of_2021": (document(event("Operator", "x", EPOCH, 1)), "kineto-2021-epoch"),
    "list": (json.dumps([op("x", 5, 1)]).encode(), "list"),
    "list_of_epoch_times": (json.dumps([op("x", EPOCH, 1)]).encode(), "list-epoch"),
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_dialect_is_found_from_the_data(dialect: str) -> None:
    data, expected = DIALECTS[dialect]
    assert read_bytes(data, "hand.json").recording.dialect == expected


def test_times_since_the_epoch_need_no_base() -> None:
    assert recording(op("x", EPOCH, 1), baseTimeNanoseconds=NS_BASE).base_unix_ns == 0
