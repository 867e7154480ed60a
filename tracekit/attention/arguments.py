"""The arguments of an op's call by name, as far as the profiler recorded them."""

from __future__ import annotations

from typing import NamedTuple


class Argument(NamedTuple):
    """One argument: shape and strides in elements, the type by torch's name, such as `bfloat16`, the concrete value.

    A shape of None is no tensor, or one that was not recorded.
    """

    shape: tuple[int, ...] | None
    dtype: str | None
    strides: tuple[int, ...] | None
    value: object | None
