"""Element types: the name that torch gives them, by each spelling in a trace, and their size.

Owns nothing but the reading of element_types.toml, which every room may ask.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def spellings() -> dict[str, str]:
    """Return torch's names of element types by how metadata and shapes spell them."""
    return {spelt: name for name, row in _known().items() for spelt in row["spellings"]}


def size_of(dtype: str | None) -> int | None:
    """Return the bytes of an element, None for a type that is not known."""
    return sizes().get(dtype or "")


@cache
def sizes() -> dict[str, int]:
    """Return the bytes of an element by torch's name of its type."""
    return {name: row["bytes"] for name, row in _known().items()}


@cache
def _known() -> dict[str, Any]:
    return tomllib.loads(files("tracekit").joinpath("element_types.toml").read_text(encoding="utf-8"))
