"""What kernel, op, module and function names mean, read from the TOML beside this file.

Owns the loading and the memory of answers by name: a trace has many rows but few names.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

_OVERLOAD = re.compile(r"(?<=\w::)(?P<name>\w+)\.\w+$")


class Family(NamedTuple):
    """A kernel family by name, and what its kernels do."""

    name: str
    action: str


class OpMeaning(NamedTuple):
    """What an op does, and the place it marks; `None` where its name does not say."""

    action: str | None
    place: str | None


@cache
def load(name: str) -> dict[str, Any]:
    """Return a TOML file of this room by its stem."""
    return tomllib.loads(files("tracekit.attention").joinpath(f"{name}.toml").read_text(encoding="utf-8"))


@cache
def _rows(name: str, key: str, flags: int) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    return [(re.compile(row["pattern"], flags), row) for row in load(name)[key]]


@cache
def family_of(kernel: str) -> Family | None:
    """Return the family of a kernel by its name, or None for a name that nothing matches."""
    for pattern, row in _rows("families", "family", re.IGNORECASE):
        if pattern.search(kernel):
            return Family(row["name"], row["action"])
    return None


@cache
def meaning_of(op: str) -> OpMeaning:
    """Return what an op's name says of its action and its place; an overload (`aten::add.Tensor`) says nothing."""
    op = _OVERLOAD.sub(r"\g<name>", op)
    for pattern, row in _rows("ops", "op", re.NOFLAG):
        if pattern.fullmatch(op):
            action = row.get("action")
            return OpMeaning(None if action == "none" else action, row.get("place"))
    return OpMeaning(None, None)


@cache
def place_of_module(class_name: str) -> str | None:
    """Return the place that an nn.Module class is, or None for a class that nothing matches."""
    return next(
        (row["place"] for pattern, row in _rows("modules", "module", re.NOFLAG) if pattern.search(class_name)),
        None,
    )


@cache
def place_of_function(name: str) -> str | None:
    """Return the place that a Python function is, by the name of its python_function row."""
    return next((row["place"] for pattern, row in _rows("roles", "function", re.NOFLAG) if pattern.search(name)), None)
