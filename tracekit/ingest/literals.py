"""JSON text to columns: the text of values as such, and times as int64 ns from their digits.

Owns the way from many small pieces of text to a column, which goes through one large one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.ingest.args import ABSENT
from tracekit.ingest.decode import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw
    from numpy.typing import NDArray

_LATEST_NS = 2**62
"""Times beyond it (the year 2116) are none; so start plus duration, and the distance of two times, fit int64."""
_DECIMALS = 3
_DIGITS = 18
"""As many as always fit int64."""


def nulls(count: int) -> pl.Series:
    """Return texts of which none is there."""
    return pl.Series([None], dtype=pl.String).new_from_index(0, count)


def json_texts(raws: Sequence[Raw]) -> pl.Series:
    """Return the JSON text of raw values, null where the key was absent.

    One string that the engine splits is an order of magnitude cheaper than many small ones.
    """
    if not raws or (raws[0] is ABSENT and raws.count(ABSENT) == len(raws)):
        return nulls(len(raws))
    joined = SEPARATOR.join(raws)
    return _split(joined if joined.isascii() else joined.decode("utf-8", "replace").encode())


def _split(joined: bytes) -> pl.Series:
    """Return the texts between separators, null where there is none."""
    found = pl.Series([joined.decode()]).str.split(SEPARATOR.decode()).explode()
    is_empty = found.str.len_bytes() == 0
    return found.set(is_empty, None) if is_empty.any() else found


def nanoseconds(raws: list[Raw]) -> pl.Series:
    """Turn µs of up to six decimals into int64 ns, half to even; null where the text is no number or no time.

    Up to three decimals, as exporters write, need no decimal arithmetic.
    """
    if not raws:
        return pl.Series(dtype=pl.Int64)
    if (plain := _plain(SEPARATOR.join(raws))) is not None:
        return pl.Series(plain)
    text = json_texts(raws).str.strip_chars('"').str.strip_chars()
    micros = text.cast(pl.Decimal(22, 6), strict=False)
    return _as_time((micros * 1000).round(0).cast(pl.Int64, strict=False))


_POWERS = 10 ** np.arange(_DECIMALS + 1)[::-1]
_MOST = _LATEST_NS // _POWERS


def _plain(joined: bytes) -> NDArray[np.int64] | None:
    """Return µs as ns if all are plain: no sign, at most three decimals and eighteen digits, and no time too late."""
    text = np.frombuffer(joined, dtype=np.uint8)
    marks = np.flatnonzero(text < ord("0"))  # separators and points, if all else is digits
    is_point = text[marks] == ord(".")
    if text.max(initial=0) > ord("9") or np.count_nonzero(text[marks] == ord(SEPARATOR)) + is_point.sum() < len(marks):
        return None
    if (parts := _parts(marks, is_point, len(text))) is None:
        return None
    digits, decimals = parts
    if digits.min() < 1 or digits.max() > _DIGITS or decimals.max() > _DECIMALS:
        return None
    numbers = np.fromstring(joined.replace(b".", b""), dtype=np.int64, sep=SEPARATOR.decode())
    return None if bool((numbers > _MOST[decimals]).any()) else numbers * _POWERS[decimals]


def _parts(
    marks: NDArray[np.int64], is_point: NDArray[np.bool_], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return how many digits each number of a text has, and how many decimals, or None if one has two points."""
    if len(marks) % 2 and is_point[::2].all() and not is_point[1::2].any():  # one point each, as most exporters write
        points, ends = marks[::2], np.append(marks[1::2], length)
        return np.diff(ends, prepend=-1) - 2, ends - points - 1
    points, ends = marks[is_point], np.append(marks[~is_point], length)
    owner = np.cumsum(~is_point)[is_point]
    if bool((owner[1:] == owner[:-1]).any()):
        return None
    digits, decimals = np.diff(ends, prepend=-1) - 1, np.zeros(len(ends), dtype=np.int64)
    digits[owner] -= 1
    decimals[owner] = ends[owner] - points - 1
    return digits, decimals


def _as_time(nanos: pl.Series) -> pl.Series:
    return nanos.set(nanos.abs() > _LATEST_NS, None)
