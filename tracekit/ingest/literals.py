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
    if raws.count(ABSENT) == len(raws):
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


def _plain(joined: bytes) -> NDArray[np.int64] | None:
    """Return µs as ns if all are plain: no sign, at most three decimals and eighteen digits, and no time too late."""
    text = np.frombuffer(joined, dtype=np.uint8)
    ends = np.append(np.flatnonzero(text == ord(SEPARATOR)), len(text))
    points = np.flatnonzero(text == ord("."))
    digits = np.diff(ends, prepend=-1) - 1
    decimals = np.zeros(len(ends), dtype=np.int64)
    if len(points):
        owner = np.searchsorted(ends, points)
        decimals[owner] = ends[owner] - points - 1
        digits[owner] -= 1
        if bool((np.diff(owner) == 0).any()) or decimals.max() > _DECIMALS:
            return None
    if digits.min() < 1 or digits.max() > _DIGITS:
        return None
    if np.count_nonzero((text >= ord("0")) & (text <= ord("9"))) != digits.sum():
        return None
    numbers = np.fromstring(joined.replace(b".", b""), dtype=np.int64, sep=SEPARATOR.decode())
    scale = _POWERS[decimals]
    return None if bool((numbers > _LATEST_NS // scale).any()) else numbers * scale


def _as_time(nanos: pl.Series) -> pl.Series:
    return nanos.set(nanos.abs() > _LATEST_NS, None)
