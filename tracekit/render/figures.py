"""The numbers of one column as text: one scale, one number of decimals, digits grouped in thousands.

Owns how a number reads to people. A column is scaled as a whole, so that its numbers compare by eye; a value
other than zero never reads as zero, and an integer keeps every digit whatever its size.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from tracekit.units import FRACTION, MICROSECONDS, NANOSECONDS, Unit, step_for, unit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

Number: TypeAlias = int | float | Decimal

NULL = "-"
"""What stands for a missing value, here and in columns of text."""

_IDENTIFIERS = frozenset({"address", "correlation", "device", "number", "pid", "rank", "step", "stream", "tid"})
"""Columns whose numbers name things, as those do that end in `_id` and `_number`."""

_DECIMALS = 3
_LONGEST_FIXED = 1e15
"""Floats from here on have no digit behind the point left, and read better with an exponent."""

_ROOM_FOR_SECONDS = 10
"""A column of times goes to seconds only from this many on: milliseconds beside milliseconds compare."""

_EXACT = decimal.Context(prec=60)
"""Wide enough for a 128-bit integer and its decimals."""


@dataclass(frozen=True)
class _Style:
    """How every number of one column reads; `symbol` goes to the header."""

    factor: float
    decimals: int
    symbol: str = ""
    grouping: str = ","
    is_plain: bool = False


def figures(name: str, values: Sequence[Number | None]) -> tuple[str, list[str]]:
    """Return the unit symbol to show with the column `name`, empty for none, and the text of each value."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    style = _style_for(name, known)
    return style.symbol, [NULL if value is None else _figure(value, style) for value in values]


def _style_for(name: str, known: Sequence[Number]) -> _Style:
    unit = unit_of(name)
    if unit is FRACTION:
        return _Style(unit.steps[0][0], decimals=1, symbol=unit.steps[0][1])
    sizes = [abs(float(value)) for value in known if value]
    if unit:
        factor, symbol = _step_for_all(sizes, unit)
        is_unscaled = factor == 1 and _are_whole(known)
        return _Style(factor, decimals=0 if is_unscaled else _DECIMALS, symbol=symbol)
    return _Style(
        factor=1,
        decimals=_plain_decimals(known, sizes),
        grouping="" if name in _IDENTIFIERS or name.endswith(("_id", "_number")) else ",",
        is_plain=True,
    )


def _step_for_all(sizes: Sequence[float], unit: Unit) -> tuple[float, str]:
    """Choose by the largest size; times go down to where the smallest still shows a digit."""
    most = max(sizes, default=0)
    if unit not in (NANOSECONDS, MICROSECONDS) or not sizes:
        return step_for(most, unit)
    largest = step_for(most / _ROOM_FOR_SECONDS if most >= unit.steps[-1][0] else most, unit)
    smallest = min(sizes)
    showing = [step for step in unit.steps if step[0] <= largest[0] and round(smallest / step[0], _DECIMALS)]
    return showing[-1] if showing else unit.steps[0]


def _plain_decimals(known: Sequence[Number], sizes: Sequence[float]) -> int:
    if _are_whole(known):
        return 0
    return _DECIMALS if min(sizes) >= 10**-_DECIMALS else 2 * _DECIMALS


def _are_whole(values: Sequence[Number]) -> bool:
    return all(value == int(value) for value in values)


def _figure(value: Number, style: _Style) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    scaled = _scaled(value, style.factor) if value else 0  # and not -0.0
    if isinstance(scaled, float) and abs(scaled) >= _LONGEST_FIXED:
        return f"{scaled:.{_DECIMALS}e}"
    digits = f"{scaled:{style.grouping}.{style.decimals}f}"
    if value and not digits.strip("-0."):
        return _below_one_digit(scaled, style)
    return digits


def _below_one_digit(scaled: Number, style: _Style) -> str:
    if style.is_plain:
        return f"{scaled:.{_DECIMALS}e}"
    least = f"{10**-style.decimals:.{style.decimals}f}"
    return f"<{least}" if scaled > 0 else f">-{least}"


def _scaled(value: Number, factor: float) -> Number:
    if factor < 1:  # a percent is 0.01, which no float holds
        return value * round(1 / factor)
    if isinstance(value, float):
        return value / factor
    return _EXACT.divide(Decimal(value), Decimal(factor))
