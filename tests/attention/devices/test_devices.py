"""Whose peaks a trace's device has: by name, capability and SM count, by size alone, and as a user gives them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tracekit.attention.devices.devices import Device, match, read_spec
from tracekit.attention.knowledge import load
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = load("devices/devices")["device"]
H100 = Device("NVIDIA H100 80GB HBM3", "cuda", "9.0", 132, 85_018_279_936)


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_every_row_is_found_by_its_example_alone_and_says_its_source(row: dict[str, object]) -> None:
    example = str(row["example"])
    assert [other["name"] for other in ROWS if re.fullmatch(other["pattern"], example)] == [row["name"]]
    found = match(Device(example, None, str(row["capability"]), int(str(row["sm_count"]))))
    assert found.spec is not None
    assert (found.spec.name, found.status) == (row["name"], "exact")
    assert row["source"]


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_narrower_formats_are_at_least_as_fast_and_none_is_that_of_sparse_factors(row: dict[str, object]) -> None:
    peaks = row["tflops"]
    assert isinstance(peaks, dict)
    ordered = [peaks[name] for name in ("float32", "tf32", "float16", "float8") if name in peaks]
    assert ordered == sorted(ordered)
    tensor = [peaks[name] for name in ("tf32", "float16", "float8") if name in peaks]
    assert all(wider * 1.9 < narrower < wider * 2.1 for wider, narrower in pairwise(tensor))
    assert peaks.get("bfloat16", peaks["float16"]) == peaks["float16"]


def test_peaks_are_in_flops_and_bytes_per_second() -> None:
    found = match(H100)
    assert found.spec is not None
    assert found.spec.flops_per_s["bfloat16"] == 989.5e12
    assert (found.spec.bytes_per_s, found.spec.cache_bytes) == (3350e9, 50 * 2**20)
    assert found.reason == "found by name, capability 9.0 and 132 SMs"


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (H100._replace(sm_count=114), "has 114 SMs, H100 SXM 80 GB has 132"),
        (H100._replace(sm_count=None), "has None SMs"),
        (H100._replace(capability="8.0"), "with capability 8.0 is no H100"),
        (H100._replace(name="NVIDIA H100"), "no peaks are known of NVIDIA H100"),
        (H100._replace(name="NVIDIA H200 NVL"), "no peaks are known of NVIDIA H200 NVL"),
        (Device("NVIDIA A100-PG509-200", "cuda", "8.0", 108), "no peaks are known of NVIDIA A100-PG509-200"),
        (Device("NVIDIA A10G", "cuda", "8.6", 80), "no peaks are known of NVIDIA A10G"),
        # It has the capability and the SM count of an L4, and a name that says that it is none.
        (Device("NVIDIA GeForce RTX 4080 Laptop GPU", "cuda", "8.9", 58), "no peaks are known of"),
        (Device(None, "rocm", "9.4", 304), "MI300X and MI325X have capability 9.4 and 304 SMs"),
        (Device(None, "cuda", "9.4", 304, 206_141_652_992), "no known one has"),
        (Device(None, "rocm", "9.4", 38, 206_141_652_992), "no known one has"),
        (Device(), "the trace does not describe its device"),
    ],
)
def test_what_is_not_that_device_has_no_peaks(device: Device, reason: str) -> None:
    found = match(device)
    assert (found.spec, found.status) == (None, "not_derivable")
    assert reason in found.reason


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (Device(None, "rocm", "9.4", 304, 206_141_652_992), "MI300X"),
        (Device(None, "rocm", "9.4", 304, 274_800_000_000), "MI325X"),
        (Device("AMD Radeon Graphics", "rocm", "9.0", 104, 68_702_699_520), "MI210, or one GCD of an MI250"),
        (Device(None, "cuda", "9.0", 132, 85_018_279_936), "H100 SXM 80 GB"),
        (Device(None, "cuda", "9.0", 132, 150_000_000_000), "H200 SXM"),
    ],
)
def test_a_device_without_a_name_is_found_by_its_size(device: Device, name: str) -> None:
    found = match(device)
    assert found.spec is not None
    assert (found.spec.name, found.status) == (name, "estimated")


def test_a_slice_has_its_share_of_both_peaks() -> None:
    found = match(Device("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "cuda", "8.0", 42))
    assert found.spec is not None
    assert found.status == "estimated"
    assert found.spec.flops_per_s["bfloat16"] == pytest.approx(312e12 * 42 / 108)
    assert found.spec.bytes_per_s == pytest.approx(1555e9 * 4 / 8)
    assert match(Device("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "cuda", "8.0", 200)).spec is None


def test_a_user_s_peaks_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("tflops = { bfloat16 = 600, float8 = 1200.5 }\ngb_per_s = 3000\n")
    spec = read_spec(path)
    assert (spec.name, spec.bytes_per_s, spec.cache_bytes) == ("mine.toml", 3000e9, None)
    assert spec.flops_per_s == {"bfloat16": 600e12, "float8": 1200.5e12}
    path.write_text("name = 'x'\ntflops = { bfloat16 = 600 }\n")
    assert read_spec(path).bytes_per_s is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tflops = ", "is not TOML"),
        ("gb_per_s = 3000", "holds no tflops"),
        ("tflops = 989", "holds no tflops"),
        ("tflops = { bf16 = 989 }", "tflops of 'bf16'"),
        ("tflops = { bfloat16 = 0 }", "bfloat16 = 0 is no peak"),
        ("tflops = { bfloat16 = true }", "bfloat16 = True is no peak"),
        ("tflops = { bfloat16 = nan }", "bfloat16 = nan is no peak"),
        ("tflops = { bfloat16 = 989 }\ngb_per_s = '3'", "gb_per_s = '3' is no peak"),
        ("tflops = { bfloat16 = 989 }\nbandwidth = 3", "'bandwidth' means nothing"),
    ],
)
def test_a_file_that_holds_no_peaks_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(TracekitError, match=re.escape(problem)):
        read_spec(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TracekitError, match="can't be read"):
        read_spec(tmp_path / "none.toml")
