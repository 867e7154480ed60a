"""What stands for a number or a word in JSON that writers other than JSON's have printed.

Owns the spellings: C's and Python's of what is no number, Python's of constants, numbers of other grammars and
locales. It guesses no value: what has none in JSON becomes null.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_WORD = re.compile(rb'[^\s,"{}\[\]:]++(?=[\s,}\]]|\Z)')
_JSON = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_LOOSE = re.compile(rb"([+-]?)(\d*)(?:(\.)(\d*))?(?:([eE][+-]?)(\d*))?")
_FRACTION = re.compile(rb",(\d+)([eE][+-]?\d+)?(,\d+)*(?=[ \t]*(?:[,}]|\r?\n|\Z))")

_NOT_FINITE = frozenset(
    {b"nan", b"inf", b"infinity", b"nan(ind)", b"nan(snan)", b"1.#inf", b"1.#ind", b"1.#qnan", b"1.#snan"}
)
"""As printf of glibc and of old and new Microsoft runtimes, C++ streams, Python and JavaScript print them."""
_CONSTANTS = {b"true": b"true", b"false": b"false", b"none": b"null"}
_NOT_AVAILABLE = frozenset({b"n/a", b"na"})


class Scalar(NamedTuple):
    """A value in valid JSON, where it ended, and the name of its repair, empty if it needed none."""

    text: bytes
    end: int
    repair: str = ""


def scalar(text: bytes, pos: int, *, is_member: bool) -> Scalar | None:
    """Return the number or word at `pos`, or None if there is neither.

    `is_member` says that it is a member's value: only there may a comma be a decimal one, and only there can a
    value be missing.
    """
    word = _WORD.match(text, pos)
    if word is None:
        return Scalar(b"null", pos, "missing_value") if is_member and text[pos : pos + 1] in b",}" else None
    if is_member and word[0].lstrip(b"+-").isdigit() and (comma := _FRACTION.match(text, word.end())):
        return _with_comma(word[0], comma)
    if _JSON.fullmatch(word[0]):
        return Scalar(word[0], word.end())
    known = _known(word[0].lower())
    return Scalar(known[0], word.end(), known[1]) if known else None


def _known(word: bytes) -> tuple[bytes, str] | None:
    if word.lstrip(b"+-") in _NOT_FINITE:
        return b"null", "not_finite"
    if word in _NOT_AVAILABLE:
        return b"null", "not_available"
    if word in _CONSTANTS:
        return _CONSTANTS[word], "constant"
    number = _LOOSE.fullmatch(word)
    return (_number(number), "number") if number else None


def _with_comma(whole: bytes, comma: re.Match[bytes]) -> Scalar:
    """Read a decimal comma; more than one groups digits in a way that can't be known."""
    number = _LOOSE.fullmatch(whole + b"." + comma[1] + (comma[2] or b""))
    if comma[3] or number is None:
        return Scalar(b"null", comma.end(), "number")
    return Scalar(_number(number), comma.end(), "decimal_comma")


def _number(number: re.Match[bytes]) -> bytes:
    """Write a number as JSON does. Without digits, or with an exponent cut off, it has no value that is known."""
    sign, whole, _, fraction, mark, exponent = number.groups()
    if not (whole or fraction) or (mark and not exponent):
        return b"null"
    digits = b"-" * (sign == b"-") + ((whole or b"").lstrip(b"0") or b"0")
    return digits + (b"." + fraction if fraction else b"") + ((mark or b"") + (exponent or b""))
