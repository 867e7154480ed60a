"""Units by column suffix, and numbers as text.

Owns the rule that a column's unit is the end of its name, and how a number of that unit reads. It never
changes a value: scaling happens when text is made, nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """A unit with the steps in which people read it: (factor, symbol), smallest first."""

    name: str
    steps: tuple[tuple[float, str], ...]


NANOSECONDS = Unit("nanoseconds", ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")))
MICROSECONDS = Unit("microseconds", ((1, "µs"), (1e3, "ms"), (1e6, "s")))
BYTES = Unit("bytes", ((1, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB")))
FRACTION = Unit("fraction of 1", ((0.01, "%"),))
FLOPS = Unit("floating-point operations", ((1, "FLOP"), (1e6, "MFLOP"), (1e9, "GFLOP"), (1e12, "TFLOP")))
BYTES_PER_SECOND = Unit("bytes per second", ((1, "B/s"), (1e6, "MB/s"), (1e9, "GB/s")))
FLOPS_PER_SECOND = Unit("operations per second", ((1, "FLOP/s"), (1e9, "GFLOP/s"), (1e12, "TFLOP/s")))
INTENSITY = Unit("operations per byte", ((1, "FLOP/B"),))

_LEAST_FRACTION = 0.0005
"""What is less would be read as nothing."""

_BY_SUFFIX = {
    "_flops_per_byte": INTENSITY,
    "_bytes_per_s": BYTES_PER_SECOND,
    "_flops_per_s": FLOPS_PER_SECOND,
    "_ns": NANOSECONDS,
    "_us": MICROSECONDS,
    "_bytes": BYTES,
    "_frac": FRACTION,
    "_flops": FLOPS,
}


def unit_of(column: str) -> Unit | None:
    """Return the unit that a column's suffix names, or None for a plain value."""
    padded = f"_{column}"
    return next((unit for suffix, unit in _BY_SUFFIX.items() if padded.endswith(suffix)), None)


def stem_of(column: str) -> str:
    """Return a column's name without its unit suffix; the name itself if nothing would be left."""
    for suffix in _BY_SUFFIX:
        if column.endswith(suffix) and len(column) > len(suffix):
            return column[: -len(suffix)]
    return column


def step_for(value: float, unit: Unit) -> tuple[float, str]:
    """Return the largest (factor, symbol) of `unit` that leaves `value` at 1 or more, else the smallest."""
    fitting = [step for step in unit.steps if abs(value) >= step[0]]
    return fitting[-1] if fitting else unit.steps[0]


def text(value: float, unit: Unit) -> str:
    """Return a number in the step that suits it, with three significant digits: `1.24 ms`, `41.2 %`, `<0.1 %`."""
    if unit is FRACTION and 0 < value < _LEAST_FRACTION:
        return "<0.1 %"
    if unit is FRACTION:
        return f"{100 * value:.1f} %"
    factor, symbol = step_for(max(abs(value), abs(_three_digits(value))), unit)
    if factor == 1 and not float(value).is_integer():
        return f"{value:,.2f} {symbol}"
    scaled = value / factor
    size = abs(_three_digits(scaled))
    digits = 0 if factor == 1 or size >= 100 else 1 if size >= 10 else 2
    return f"{scaled:,.{digits}f} {symbol}"


def _three_digits(value: float) -> float:
    """Return a number rounded as it will be shown, so that 999.9 µs is 1.00 ms and not 1,000 µs."""
    return float(f"{value:.3g}")
