"""What the rows of a trace say of a call's backend before any rule is asked.

Owns the names of the backends' ops, the reading of a backend's row that stands alone as a call of the wrapper, and what
rows tell of gradients.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.attention.calls.arguments import Argument
from tracekit.attention.knowledge import load

if TYPE_CHECKING:
    from collections.abc import Mapping

_OVERLOAD = re.compile(r"(?<=\w)\.\w+$")


def backend_of(op: str) -> str | None:
    """Return the backend that an op's row means, None for an op that means none."""
    name = _OVERLOAD.sub("", op)
    return next((row["backend"] for row in load("backends/backends")["op"] if row["name"] == name), None)


def wrapper_arguments(op: str, arguments: Mapping[str, Argument]) -> dict[str, Argument]:
    """Return the arguments of a backend's row, where no wrapper's row is around it, under the wrapper's names.

    An argument that the backend would not have been given is none; enable_gqa is set where head counts differ.
    """
    name = _OVERLOAD.sub("", op)
    row: dict[str, Any] = next((row for row in load("backends/backends")["op"] if row["name"] == name), {})
    renamed = {row.get("rename", {}).get(key, key): argument for key, argument in arguments.items()}
    none = Argument(None, None, None, None)
    renamed |= dict.fromkeys(row.get("without", ()), none)
    heads = {
        argument.shape[1] if argument.shape and len(argument.shape) == 4 else None
        for argument in (arguments.get(each, none) for each in ("query", "key", "value"))
    }
    if "enable_gqa" not in renamed and None not in heads:
        renamed["enable_gqa"] = none._replace(value=len(heads) > 1)
    return renamed


def gradients_needed(
    *, has_sequence_number: bool | None, saves_log_sumexp: bool | None = None, has_backward: bool | None = None
) -> bool | None:
    """Return whether an input of a call needed a gradient, None where rows don't tell.

    `has_sequence_number` is of the wrapper's row, None in a compiled region, where it tells nothing: no number means
    that grad mode was off. `saves_log_sumexp` is the argument compute_log_sumexp of efficient's and cuDNN's rows, whose
    meaning holds from 2.4 on. `has_backward` is whether a backward row is linked to the call.
    """
    if has_backward:
        return True
    if has_sequence_number is False:
        return False
    return saves_log_sumexp
