"""Numbers as text: one scale a column, and nothing that is not zero reads as zero."""

import math
from decimal import Decimal

import pytest

from tracekit.render.figures import figures


@pytest.mark.parametrize(
    ("name", "values", "symbol", "cells"),
    [
        ("dur_ns", [1_234_567, 1_000], "ms", ["1.235", "0.001"]),
        ("dur_ns", [1_234_567, 400], "µs", ["1,234.567", "0.400"]),
        ("dur_ns", [10**10, 1], "µs", ["10,000,000.000", "0.001"]),
        ("dur_ns", [999, 0], "ns", ["999", "0"]),
        ("dur_ns", [12.5, 3.0], "ns", ["12.500", "3.000"]),
        ("dur_ns", [0.0001], "ns", ["<0.001"]),
        ("dur_us", [2_500_000, -1_000], "ms", ["2,500.000", "-1.000"]),
        ("dur_us", [25_000_000, -1_000], "s", ["25.000", "-0.001"]),
        ("dur_ns", [9_999_000_000], "ms", ["9,999.000"]),
        ("dur_us", [5.0, 7.0], "µs", ["5", "7"]),
        ("peak_bytes", [80 * 2**30, 1], "GiB", ["80.000", "<0.001"]),
        ("peak_bytes", [512, 0], "B", ["512", "0"]),
        ("work_flops", [2.5e15, 1e12], "TFLOP", ["2,500.000", "1.000"]),
        ("read_bytes_per_s", [3.2e12], "GB/s", ["3,200.000"]),
        ("bytes", [2048], "KiB", ["2.000"]),
        ("dur_ns", [], "ns", []),
        ("dur_ns", [None, 0], "ns", ["-", "0"]),
    ],
)
def test_a_unit_has_one_step_for_the_column(name: str, values: list[float], symbol: str, cells: list[str]) -> None:
    assert figures(name, values) == (symbol, cells)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.412, "41.2"),
        (0.0, "0.0"),
        (-0.0, "0.0"),
        (0.0001, "<0.1"),
        (-0.0001, ">-0.1"),
        (0.0006, "0.1"),
        (12.5, "1,250.0"),
        (1, "100.0"),
        (Decimal("0.125"), "12.5"),
        (math.nan, "NaN"),
        (None, "-"),
    ],
)
def test_a_fraction_reads_as_percent(value: float | None, text: str) -> None:
    assert figures("share_frac", [value]) == ("%", [text])


@pytest.mark.parametrize(
    ("values", "cells"),
    [
        ([1234567, -5, 0], ["1,234,567", "-5", "0"]),
        ([2**127, -(2**127)], [f"{2**127:,}", f"{-(2**127):,}"]),
        ([1.0, 2.0, math.inf], ["1", "2", "inf"]),
        ([1.5, 2.0, -math.inf], ["1.500", "2.000", "-inf"]),
        ([0.25, 0.0005], ["0.250000", "0.000500"]),
        ([1.5, 4e-9], ["1.500000", "4.000e-09"]),
        ([1e300], ["1.000e+300"]),
        ([Decimal("1.50"), Decimal("2.25")], ["1.500", "2.250"]),
    ],
)
def test_plain_numbers_share_their_decimals(values: list[float], cells: list[str]) -> None:
    assert figures("value", values) == ("", cells)


@pytest.mark.parametrize("name", ["kernel_id", "rank", "step", "device", "stream", "number", "correlation"])
def test_what_names_a_thing_is_not_grouped_in_thousands(name: str) -> None:
    assert figures(name, [1234567]) == ("", ["1234567"])


def test_a_count_of_what_has_a_name_is_grouped() -> None:
    assert figures("launches_per_step", [1234567]) == ("", ["1,234,567"])


def test_an_integer_is_scaled_without_losing_a_digit() -> None:
    assert figures("dur_ns", [2**62, 1]) == ("µs", ["4,611,686,018,427,387.904", "0.001"])
