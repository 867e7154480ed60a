"""Headers of questions that code answers: TOML beside the code, as the files of queries/*.sql have it in comments.

Owns the reading. What a header may hold is the catalog's.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def headers_of(stem: str) -> dict[str, dict[str, Any]]:
    """Return the headers in a file of this room, by question."""
    text = files("tracekit.analyses").joinpath(f"{stem}.toml").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = tomllib.loads(text)
    return found
