"""What text must be for the fast decoder to take it: valid UTF-8, whole surrogate pairs, nesting within reason.

Owns these replacements and the check; it mends no JSON.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

DEPTH = 400
"""Deeper nesting is refused: decoders recurse, and Python allows them about 1,000 levels, callers included."""

_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|([{\[])|[}\]]')

_decoder = msgspec.json.Decoder(dict[str, Raw])


def mend_text(text: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return JSON in valid UTF-8, without halves of surrogate pairs, and the names of what was replaced."""
    repairs: list[str] = []
    if not text.isascii():
        valid = text.decode("utf-8", "replace").encode()
        if valid != text:
            repairs.append("utf8")
            text = valid
    if b"\\u" in text:
        paired = _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], text)
        if paired != text:
            repairs.append("surrogate")
            text = paired
    return text, tuple(repairs)


def is_accepted(text: bytes) -> bool:
    """Say whether the fast decoder takes this object, and will where less of the stack is left."""
    if text.count(b"{") + text.count(b"[") > DEPTH and _depth(text) > DEPTH:
        return False
    try:
        _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _depth(text: bytes) -> int:
    depth = deepest = 0
    for token in _TOKEN.finditer(text):
        if token[1]:
            depth += 1
            deepest = max(deepest, depth)
        elif not token[0].startswith(b'"'):
            depth -= 1
    return deepest
