"""What another implementation could save, as the question says it of hand-made and of real runs."""

from __future__ import annotations

from bisect import bisect_right
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tests.build import ask, document, kernel, launch, op, run
from tests.independent import read
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.build import Event
    from tracekit.table import Table

A100 = {
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0, "numSms": 108}
    ]
}
BF16 = "c10::BFloat16"
FLASH = "aten::_scaled_dot_product_flash_attention"
MATH = "aten::_scaled_dot_product_attention_math"
EFFICIENT = "aten::_scaled_dot_product_efficient_attention"
WIDE = [2, 8, 1024, 64]


def call(
    start: float,
    number: int,
    child: str,
    took: float,
    *,
    query: list[int] = WIDE,
    dtype: str = BF16,
    is_causal: bool = False,
) -> list[Event]:
    """Make a call of SDPA without a mask, with the row of the backend that ran and a kernel of some µs."""
    args: dict[str, Any] = {
        "Input_Dims": [query, query, query, [], [], [], [], []],
        "Input_type": [dtype, dtype, dtype, "", "Scalar", "Scalar", "", "Scalar"],
        "Concrete_Inputs": ["", "", "", "", "0.", str(is_causal), "", "False"],
    }
    return [
        op("aten::scaled_dot_product_attention", start, 20, **args),
        op(child, start + 1, 15),
        launch(start + 2, number),
        kernel("k", 10_000 + 2000 * number, took, number),
    ]


def other_run(folder: Path, *events: Event | list[Event], **top: Any) -> Path:
    """Write a run to compare with."""
    path = folder / "other.json"
    path.write_bytes(document(*events, **top))
    return path


def notes(table: Table) -> list[str]:
    """Return the texts of an answer's notes."""
    return [note.text for note in table.notes]


def test_the_bound_is_the_time_less_that_at_the_peaks() -> None:
    with run(call(0, 1, MATH, 500), call(50, 2, MATH, 300), **A100) as opened:
        (row,) = opened.query("implementation_gain").frame.rows(named=True)
    flops = 2 * (2 * 8) * 1024 * 1024 * (64 + 64)  # 2 B H Q K (d_qk + d_v)
    nbytes = 4 * (2 * 8 * 1024 * 64) * 2  # q, k, v and the output, two bytes an element
    roof_ns = max(flops / 312e12, nbytes / 1555e9) * 1e9
    assert row["total_ns"] == 800_000
    assert row["roof_ns"] == pytest.approx(roof_ns)
    assert row["roof_gain_ns"] == pytest.approx(800_000 - 2 * roof_ns, abs=1)
    assert row["roof_gain_frac"] == pytest.approx(1 - 2 * roof_ns / 800_000)
    assert (row["measured"], row["measured_gain_ns"], row["run"]) == (None, None, None)


def test_a_fall_back_to_math_names_the_backend_to_go_to() -> None:
    with run(call(0, 1, MATH, 500, query=[2, 8, 1024, 64], dtype="float"), **A100) as opened:
        (row,) = opened.query("implementation_gain").frame.rows(named=True)
    assert row["implementation"] == "sdpa/math"
    assert (row["could"], row["state"]) == ("sdpa/flash", "after a change")
    assert "bfloat16" in row["how"]


def test_a_backend_that_was_passed_over_is_not_sold_as_eligible() -> None:
    with run(call(0, 1, MATH, 500), **A100) as opened:
        (row,) = opened.query("implementation_gain").frame.rows(named=True)
    assert (row["could"], row["state"], row["certainty"]) == ("sdpa/flash", "unknown", "unknown")


def test_what_no_rule_speaks_of_is_not_judged_but_has_its_bound() -> None:
    shapes = [[2, 1024, 8, 64]] * 3
    args: dict[str, Any] = {"Input_Dims": shapes, "Input_type": [BF16] * 3}
    events = [
        op("flash_attn::_flash_attn_forward", 0, 20, **args),
        launch(2, 1),
        kernel("flash_fwd_kernel", 100, 90, 1),
    ]
    with run(*events, **A100) as opened:
        (row,) = opened.query("implementation_gain").frame.rows(named=True)
    assert (row["state"], row["could"], row["calls"]) == ("not judged", None, 1)


def test_without_peaks_there_is_no_bound_and_the_reason_says_so() -> None:
    with run(call(0, 1, MATH, 500)) as opened:
        (row,) = opened.query("implementation_gain").frame.rows(named=True)
    assert (row["roof_gain_ns"], row["roof_ns"]) == (None, None)
    assert row["reason"]


def test_a_measured_run_says_what_the_other_implementation_took(tmp_path: Path) -> None:
    other = other_run(
        tmp_path,
        call(0, 1, FLASH, 90),
        call(50, 2, FLASH, 110),
        call(90, 3, FLASH, 100),
        call(130, 4, EFFICIENT, 150),
        call(170, 5, FLASH, 5, query=[1, 1, 64, 64]),
        **A100,
    )
    with run(call(0, 1, MATH, 500), call(50, 2, MATH, 300), **A100) as opened:
        table = opened.query("implementation_gain", measured=str(other))
    (row,) = table.frame.rows(named=True)
    assert (row["measured"], row["run"], row["measured_mean_ns"]) == ("sdpa/flash", "other.json", 100_000)
    assert row["measured_gain_ns"] == 800_000 - 2 * 100_000
    assert row["measured_gain_frac"] == pytest.approx(600 / 800)


def test_an_implementation_that_is_slower_there_saves_less_than_nothing(tmp_path: Path) -> None:
    other = other_run(tmp_path, call(0, 1, EFFICIENT, 150), **A100)
    with run(call(0, 1, FLASH, 100), **A100) as opened:
        (row,) = opened.query("implementation_gain", measured=str(other)).frame.rows(named=True)
    assert (row["measured"], row["measured_gain_ns"]) == ("sdpa/efficient", -50_000)


def test_a_run_of_another_device_is_not_compared(tmp_path: Path) -> None:
    other = other_run(tmp_path, call(0, 1, FLASH, 90))
    with run(call(0, 1, MATH, 500), **A100) as opened:
        table = opened.query("implementation_gain", measured=str(other))
    assert table.frame["measured"].to_list() == [None]
    said = "other.json is not compared: it ran on a device without a name, this run on NVIDIA A100-SXM4-40GB."
    assert said in notes(table)


def test_clocks_that_differ_are_told_by_the_implementation_that_both_ran(tmp_path: Path) -> None:
    other = other_run(tmp_path, call(0, 1, MATH, 750), call(50, 2, FLASH, 90), **A100)
    with run(call(0, 1, MATH, 500), **A100) as opened:
        table = opened.query("implementation_gain", measured=str(other))
    assert any("take 1.50 times as long" in note for note in notes(table))


def test_measured_runs_that_hold_nothing_of_use_are_said_to(tmp_path: Path) -> None:
    other = other_run(tmp_path, call(0, 1, FLASH, 9, query=[1, 1, 64, 64]), **A100)
    with run(call(0, 1, MATH, 500), **A100) as opened:
        table = opened.query("implementation_gain", measured=f"{other}, {other}")
    assert "The measured runs hold no other implementation of any signature of this run." in notes(table)


def test_sizes_that_were_measured_with_another_mask_are_named_not_compared(tmp_path: Path) -> None:
    other = other_run(tmp_path, call(0, 1, FLASH, 9, is_causal=True), **A100)
    with run(call(0, 1, MATH, 500), **A100) as opened:
        (row,) = opened.query("implementation_gain", measured=str(other)).frame.rows(named=True)
    assert (row["measured"], row["reason"]) == (None, "its sizes were measured with another mask: causal")


def test_a_measured_run_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    with run(call(0, 1, MATH, 500), **A100) as opened, pytest.raises(TracekitError, match="no such file"):
        opened.query("implementation_gain", measured=str(tmp_path / "none.json"))


def test_a_list_of_measured_runs_that_is_empty_is_one_clear_line() -> None:
    with run(call(0, 1, MATH, 500), **A100) as opened, pytest.raises(TracekitError, match="names no run"):
        opened.query("implementation_gain", measured=" , ")


def test_a_run_without_attention_says_so() -> None:
    with pytest.raises(TracekitError, match="calls of attention"):
        ask("implementation_gain", op("aten::mm", 0, 10))


def test_sam_by_math_against_sam_by_sdpa_as_raw_rows_have_it(traces: Path) -> None:
    """The signature with dense relative positions: medians of SDPA's kernels, by correlation and nesting in time."""
    measured = traces / "a100-sam-sdpa.json.gz"
    with tracekit.open(traces / "a100-sam-math.json.gz") as opened:
        rows = opened.query("implementation_gain", measured=str(measured)).frame.rows(named=True)
    row = next(row for row in rows if row["sizes"] == "B=1 H=16/16 Q=4096 K=4096 D=80")
    took = _kernels_of(read(measured.read_bytes()), EFFICIENT, [1, 16, 4096, 80])
    assert row["measured"] == "sdpa/efficient"
    assert row["measured_mean_ns"] == pytest.approx(median(took))
    assert row["measured_gain_ns"] == pytest.approx(row["total_ns"] - row["calls"] * median(took), abs=1)


def _kernels_of(events: list[Event], name: str, query: list[int]) -> list[int]:
    """Return the kernel time in ns of each op of a name whose first input has a shape."""
    ops = sorted(
        (float(each["ts"]), float(each["ts"] + each["dur"]))
        for each in events
        if each["name"] == name and each["args"]["Input Dims"][0] == query
    )
    starts = [start for start, _ in ops]
    of_launch = {}
    for each in events:
        if each.get("cat") == "cuda_runtime" and "correlation" in each["args"]:
            place = bisect_right(starts, float(each["ts"])) - 1
            if place >= 0 and float(each["ts"]) < ops[place][1]:
                of_launch[each["args"]["correlation"]] = place
    took = [0] * len(ops)
    for each in events:
        if each.get("cat") == "kernel" and each["args"].get("correlation") in of_launch:
            took[of_launch[each["args"]["correlation"]]] += round(each["dur"] * 1000)
    return took
