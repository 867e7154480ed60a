"""Units by suffix, and numbers as people read them."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tracekit.units import (
    BYTES,
    BYTES_PER_SECOND,
    FLOPS,
    FLOPS_PER_SECOND,
    FRACTION,
    MICROSECONDS,
    NANOSECONDS,
    Unit,
    stem_of,
    step_for,
    text,
    unit_of,
)

ALL = (NANOSECONDS, MICROSECONDS, BYTES, FRACTION, FLOPS, BYTES_PER_SECOND, FLOPS_PER_SECOND)


@pytest.mark.parametrize(
    ("column", "unit", "stem"),
    [
        ("total_ns", NANOSECONDS, "total"),
        ("wait_us", MICROSECONDS, "wait"),
        ("peak_bytes", BYTES, "peak"),
        ("share_frac", FRACTION, "share"),
        ("core_flops", FLOPS, "core"),
        ("read_bytes_per_s", BYTES_PER_SECOND, "read"),
        ("core_flops_per_s", FLOPS_PER_SECOND, "core"),
        ("per_step_ns", NANOSECONDS, "per_step"),
        ("bytes", BYTES, "bytes"),
        ("flops", FLOPS, "flops"),
        ("kernel", None, "kernel"),
        ("columns", None, "columns"),
        ("calls_per_s", None, "calls_per_s"),
        ("ns_total", None, "ns_total"),
        ("TOTAL_NS", None, "TOTAL_NS"),
        ("", None, ""),
    ],
)
def test_the_end_of_a_name_is_its_unit(column: str, unit: Unit | None, stem: str) -> None:
    assert unit_of(column) is unit
    assert stem_of(column) == stem


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0, NANOSECONDS, "0 ns"),
        (999, NANOSECONDS, "999 ns"),
        (1_000, NANOSECONDS, "1.00 µs"),
        (1_240_000, NANOSECONDS, "1.24 ms"),
        (12_400_000, NANOSECONDS, "12.4 ms"),
        (124_000_000, NANOSECONDS, "124 ms"),
        (1_240_000_000, NANOSECONDS, "1.24 s"),
        (5_000_000_000_000, NANOSECONDS, "5,000 s"),
        (-1_240_000, NANOSECONDS, "-1.24 ms"),
        (2.5, NANOSECONDS, "2.50 ns"),
        (1_500, MICROSECONDS, "1.50 ms"),
        (1023, BYTES, "1,023 B"),
        (1024, BYTES, "1.00 KiB"),
        (3 * 2**30, BYTES, "3.00 GiB"),
        (0.412, FRACTION, "41.2 %"),
        (1.0, FRACTION, "100.0 %"),
        (0, FRACTION, "0.0 %"),
        (2.5e12, FLOPS, "2.50 TFLOP"),
        (3.35e12, BYTES_PER_SECOND, "3,350 GB/s"),
        (989e12, FLOPS_PER_SECOND, "989 TFLOP/s"),
    ],
)
def test_a_number_is_read_in_the_step_that_suits_it(value: float, unit: Unit, expected: str) -> None:
    assert text(value, unit) == expected


@pytest.mark.parametrize("unit", ALL, ids=lambda unit: unit.name)
def test_steps_grow(unit: Unit) -> None:
    factors = [factor for factor, _ in unit.steps]
    assert factors == sorted(set(factors))


@given(st.floats(-1e18, 1e18), st.sampled_from(ALL))
@example(0.0, NANOSECONDS)
@example(-0.5, BYTES)
def test_the_step_is_the_largest_that_leaves_one_or_more(value: float, unit: Unit) -> None:
    step = step_for(value, unit)
    larger = unit.steps[unit.steps.index(step) + 1 :]
    assert abs(value) >= step[0] or step == unit.steps[0]
    assert all(abs(value) < factor for factor, _ in larger)


@given(st.integers(0, 10**18))
def test_a_time_as_text_is_within_half_a_percent_of_the_value(value: int) -> None:
    shown = re.fullmatch(r"([\d,]+(?:\.\d+)?) (ns|µs|ms|s)", text(value, NANOSECONDS))
    assert shown
    factor = {symbol: factor for factor, symbol in NANOSECONDS.steps}[shown[2]]
    assert float(shown[1].replace(",", "")) * factor == pytest.approx(value, rel=0.00501)
