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
def load(path: str) -> dict[str, Any]:
    """Return a TOML file of this room (`families`) or of one in it (`roles/order`), without its suffix."""
    return tomllib.loads(files("tracekit.attention").joinpath(f"{path}.toml").read_text(encoding="utf-8"))


@cache
def _rows(name: str, key: str) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    return [(re.compile(row["pattern"]), row) for row in load(name)[key]]


_CASED = "(?-i:"
"""What a family's pattern has where upper case tells."""
_ESCAPED = re.compile(r"\\.|[A-Z]")


@cache
def _families() -> list[tuple[re.Pattern[str], bool, Family]]:
    """Return patterns of families, whether each looks at names in lower case, and the families.

    A pattern in lower case that meets a name in lower case takes half the time of one that ignores case.
    """
    found = []
    for row in load("families")["family"]:
        pattern, family = row["pattern"], Family(row["name"], row["action"])
        is_lower = _CASED not in pattern
        lower = _ESCAPED.sub(lambda one: one[0] if one[0].startswith("\\") else one[0].lower(), pattern)
        found.append((re.compile(lower) if is_lower else re.compile(pattern, re.IGNORECASE), is_lower, family))
    return found


@cache
def family_of(kernel: str) -> Family | None:
    """Return the family of a kernel by its name, or None for a name that nothing matches."""
    lower = kernel.lower()
    for pattern, is_lower, family in _families():
        if pattern.search(lower if is_lower else kernel):
            return family
    return None


@cache
def meaning_of(op: str) -> OpMeaning:
    """Return what an op's name says of its action and its place; an overload (`aten::add.Tensor`) says nothing."""
    op = _OVERLOAD.sub(r"\g<name>", op)
    for pattern, row in _rows("ops", "op"):
        if pattern.fullmatch(op):
            action = row.get("action")
            return OpMeaning(None if action == "none" else action, row.get("place"))
    return OpMeaning(None, None)


@cache
def place_of_module(class_name: str) -> str | None:
    """Return the place that an nn.Module class is, or None for a class that nothing matches."""
    return next(
        (row["place"] for pattern, row in _rows("modules", "module") if pattern.search(class_name)),
        None,
    )


@cache
def place_of_function(name: str) -> str | None:
    """Return the place that a Python function is, by the name of its python_function row."""
    return next((row["place"] for pattern, row in _rows("functions", "function") if pattern.search(name)), None)
