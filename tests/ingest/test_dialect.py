"""What a trace says of itself is taken from its top-level keys; how it counts time is found from the data."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from tests.build import Event, document, event, kernel, op, tables
from tracekit.ingest import Recording, read_bytes

NS_BASE = 1_790_857_026_000_000_000


def recording(*events: Any, **top: Any) -> Recording:
    return read_bytes(document(*(events or (op("x", 1, 2),)), **top), "hand.json").recording


def test_a_trace_s_top_level_keys_describe_its_device_and_rank() -> None:
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    device |= {"totalGlobalMem": 85_018_279_936}
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
        "is_truncated": False,
        "vendor": "cuda",
        "external_ids": "none",
        "time_resolution_ns": 1000,
        "is_rewritten": True,
        "device_memory_bytes": 85_018_279_936,
    }


def test_a_trace_that_says_nothing_is_described_by_nothing() -> None:
    data = json.dumps({"displayTimeUnit": "ms", "traceEvents": [op("x", 1, 2)]}).encode()
    said = asdict(read_bytes(data, "hand.json").recording)
    known = {key: value for key, value in said.items() if value is not None}
    assert known.keys() == {
        *("source_name", "source_sha256", "events", "dialect", "is_truncated"),
        *("vendor", "external_ids", "time_resolution_ns", "is_rewritten"),
    }


def test_a_trace_that_is_cut_off_is_said_to_be() -> None:
    whole = document(op("x", 1, 2), op("y", 4, 2), distributedInfo={"rank": 3})
    for cut in (whole[:-2], whole[: whole.index(b"}, {") + 1], whole[:-20]):
        said = read_bytes(cut, "hand.json").recording
        assert (said.is_truncated, said.rank) == (True, 3)


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
    "python": (
        b'{\n"schemaVersion": 1,\n"deviceProperties": [],\n"baseTimeNanoseconds": 0,\n"traceEvents": [\n'
        b'{"ph":"M","name":"process_name","ts":7.940,"pid":8,"tid":0,"args":{"name":"python"}},\n'
        b'{"ph":"X","cat":"cpu_op","name":"x","pid":8,"tid":8,"ts":7.940,"dur":3.599,"args":{"External id": 3}}\n]}',
        "python-relative",
    ),
    "list": (json.dumps([op("x", 5, 1)]).encode(), "list"),
    "list_of_epoch_times": (json.dumps([op("x", EPOCH, 1)]).encode(), "list-epoch"),
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_dialect_is_found_from_the_data(dialect: str) -> None:
    data, expected = DIALECTS[dialect]
    assert read_bytes(data, "hand.json").recording.dialect == expected


def test_times_since_the_epoch_need_no_base() -> None:
    assert recording(op("x", EPOCH, 1), baseTimeNanoseconds=NS_BASE).base_unix_ns == 0


def test_the_python_exporter_has_the_sm_count_under_another_name() -> None:
    device = b'[{"id": 0, "name": "NVIDIA H100", "maxThreadsPerMultiprocessor": 132, "regsPerMultiprocessor": 65536}]'
    data = DIALECTS["python"][0].replace(b"[]", device, 1)
    assert read_bytes(data, "hand.json").recording.sm_count == 132
    assert recording(deviceProperties=json.loads(device)).sm_count is None


def in_layout(*rows: str, base: str = '"baseTimeNanoseconds": 0,') -> bytes:
    """Write events as the C++ exporter lays them out: each begins on a line of its own, its keys on the next."""
    events = ",".join(f'\n  {{\n    "ph": "X", "cat": "cpu_op", "name": "x", {row}\n  }}' for row in rows)
    return f'{{\n  "schemaVersion": 1,\n  {base}\n  "traceEvents": [{events}\n]}}'.encode()


def test_a_file_that_a_tool_wrote_anew_is_told_from_an_exporter_s() -> None:
    written = in_layout('"ts": 5.250, "dur": 1.000', '"ts": 6.250, "dur": 1.000')
    assert read_bytes(written, "hand.json").recording.is_rewritten is False
    for indent in (None, 1, 2, 4):
        anew = json.dumps(json.loads(written), indent=indent).encode()
        assert read_bytes(anew, "hand.json").recording.is_rewritten is True
    assert read_bytes(DIALECTS["python"][0], "hand.json").recording.is_rewritten is False
    assert read_bytes(json.dumps([op("x", 5, 1)]).encode(), "hand.json").recording.is_rewritten is None


def digits(fractions: list[str]) -> tuple[Recording, set[str]]:
    """Read events whose starts are epoch times with these fractions of a µs; return what is said and noticed."""
    rows = (f'"ts": {EPOCH + number}.{fraction}, "dur": 1' for number, fraction in enumerate(fractions))
    events = read_bytes(in_layout(*rows, base=""), "hand.json")
    return events.recording, {problem.check_name for problem in events.problems}


NUMBERS = range(0, 1000, 5)
FRACTIONS: dict[str, tuple[list[str], int, bool]] = {
    "padded": ([f"{number:03}" for number in NUMBERS], 1, False),
    "unpadded": ([f"{number}" for number in NUMBERS], 1000, True),
    "written anew from the digits": ([f"{number:03}".rstrip("0") or "0" for number in NUMBERS], 1, False),
    "written anew from a double": ([("0", "25", "5", "75")[number % 4] for number in range(200)], 250, False),
}


@pytest.mark.parametrize("case", FRACTIONS)
def test_fractions_without_leading_zeros_are_named_and_never_changed(case: str) -> None:
    fractions, resolution, is_named = FRACTIONS[case]
    said, noticed = digits(fractions)
    assert (said.dialect, said.time_resolution_ns) == ("kineto-epoch-ns", resolution)
    assert ("unpadded_fraction" in noticed) is is_named


def test_whole_microseconds_are_all_that_an_old_trace_knows() -> None:
    assert recording(op("x", EPOCH, 1)).time_resolution_ns == 1000
    assert recording(op("x", 5.25, 1)).time_resolution_ns == 1


def test_external_ids_that_repeat_the_correlation_name_no_op() -> None:
    """Equal by chance they may be, where both count from the start of the process."""

    def verdict(*pairs: tuple[int | None, int]) -> str:
        rows = [kernel("k", 9 * at, 1, number, External_id=own) for at, (own, number) in enumerate(pairs)]
        return recording(*rows).external_ids

    assert verdict((6, 6), (7, 10), (8, 14), (9, 18)) == "op"
    assert verdict((6, 6), (7, 7)) == "correlation"
    assert verdict(*((at, at + (at % 10 > 0)) for at in range(200))) == "correlation"
    assert verdict(*((at, at + (at != 7)) for at in range(200))) == "op"
    assert recording(kernel("k", 1, 1, 5)).external_ids == "none"


def runtime(category: str, name: str, **args: Any) -> Event:
    return event(category, name, 1, 1, args={"correlation": 7, **args})


WORK = kernel("k", 5, 2, 7, stream=3)
VENDORS: dict[str, tuple[list[Event], dict[str, Any]]] = {
    "cuda": ([runtime("cuda_runtime", "cudaLaunchKernel", cbid=211), WORK], {}),
    "rocm": ([runtime("cuda_runtime", "hipLaunchKernel", cid=5, kernel="_Z1fv"), kernel("k", 5, 2, 7, stream=3, kind="x")], {}),
    "xpu": (
        [
            runtime("xpu_runtime", "urEnqueueKernelLaunch"),
            kernel("k", 5, 2, 7, stream=3, sycl_queue="0x1", kernel_id=9),
        ],
        {},
    ),
    "mtia": ([runtime("mtia_runtime", "runFunction", stream_id=3), {**WORK, "cat": "mtia_ccp_events"}], {}),
    "hpu": ([runtime("hpu_op", "launch"), WORK], {}),
    "privateuse1": ([runtime("privateuse1_runtime", "aclrtLaunchKernel"), WORK], {}),
    "glow": ([runtime("glow_runtime", "run"), WORK], {}),
}  # fmt: skip


@pytest.mark.parametrize("vendor", VENDORS)
def test_calls_and_device_work_of_every_vendor_land_in_their_tables(vendor: str) -> None:
    found = tables(op("o", 0, 4), *VENDORS[vendor][0])
    assert found["trace"]["vendor"].item() == vendor
    assert found["launch"]["correlation"].to_list() == [7]
    work = found["kernel"].select("kind", "name", "device", "stream", "correlation", "dur_ns", "launch_id", "op_id")
    assert work.rows() == [("kernel", "k", 0, 3, 7, 2000, 0, 0)]
    assert found["other_event"].is_empty()
    assert "unknown_category" not in found["quality"]["check_name"].to_list()


def test_drivers_and_copies_of_other_vendors_count_too() -> None:
    copy = event("gpu_memcpy", "memcpy", 5, 2, pid=1, tid=4, args={"device": 1, "correlation": 7, "bytes": 64})
    for category in ("xpu_driver", "privateuse1_driver"):
        found = tables(runtime(category, "zeCommandListAppendMemoryCopy"), copy)
        assert found["launch"]["category"].to_list() == [category]
        assert found["kernel"].select("kind", "device", "stream", "bytes").rows() == [("memcpy", 1, 4, 64)]


def test_what_an_mtia_stream_only_waits_for_is_no_work() -> None:
    def row(name: str, start: float, duration: float, **args: Any) -> Event:
        return event("mtia_ccp_events", name, start, duration, pid=17, tid=3808, args={"stream": 109, **args})

    found = tables(
        row("event_wait", 1, 900, seq_num=5, correlation=3),
        row("dma_request", 902, 10, direction="HOST_TO_DEVICE", size=2014208, correlation=4),
        row("merge", 913, 70, column="0", row="0", correlation=5),
        row("event_record", 984, 0.5, host_ctx=1),
    )
    work = found["kernel"].select("kind", "name", "device", "stream", "bytes", "correlation")
    assert work.rows() == [("memcpy", "dma_request", 17, 109, 2014208, 4), ("kernel", "merge", 17, 109, None, 5)]
    idle = found["other_event"].select("name", "category", "args_json").rows()
    assert idle == [
        ("event_wait", "mtia_ccp_events", '{"correlation":3,"stream":109,"seq_num":5}'),
        ("event_record", "mtia_ccp_events", '{"stream":109,"host_ctx":1}'),
    ]


@pytest.mark.parametrize(
    ("top", "vendor"),
    [
        ({"deviceProperties": [{"name": "AMD Instinct MI210"}]}, "rocm"),
        ({"deviceProperties": [{"name": "", "maxSharedMemoryPerMultiProcessor": 65536}]}, "rocm"),
        ({"deviceProperties": [{"name": "Tesla V100-SXM2-32GB"}]}, "cuda"),
        ({"deviceProperties": [{"name": "Intel(R) Data Center GPU Max 1550", "maxComputeUnits": 448}]}, "xpu"),
        ({"cupti_version": 26}, "cuda"),
        ({"deviceProperties": [{"name": "Unheard-of"}]}, None),
        ({"distributedInfo": {"backend": "nccl"}}, None),
        ({"deviceProperties": []}, "cpu"),
    ],
)
def test_without_calls_the_vendor_is_known_by_its_device(top: dict[str, Any], vendor: str | None) -> None:
    assert recording(**top).vendor == vendor


@pytest.mark.parametrize(
    ("metadata", "version"),
    [
        ({"torch_version": "2.6.0+cu124"}, "2.6.0+cu124"),
        ({"metadata": {"system": {"env": {"pytorch_version": "2.13.0"}}}}, "2.13.0"),
        ({"metadata": {"torch_version": "none of your business"}}, None),
        ({"metadata": {"torch_version": 2.6}}, None),
        ({"metadata": {"transformers_version": "4.1.0"}}, None),
        ({"notes": ["torch_version", "2.6.0"]}, None),
    ],
)
def test_the_version_of_torch_is_taken_where_a_recorder_wrote_it(metadata: dict[str, Any], version: str | None) -> None:
    assert read_bytes(document(op("aten::mm", 0, 1), **metadata), "t.json").recording.torch_version == version
