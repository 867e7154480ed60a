"""Events of valid JSON in which a key is repeated: the decoders take the last and say nothing.

Owns the look for them. A reader that notices is as slow as all the rest of reading, so of a long text a sample is
looked at, spread evenly; where that has such an event, all of the text is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.ingest.salvage_scan import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAMPLES = 16
_SAMPLE_BYTES = 2**12
_SEPARATORS = re.compile(rb"[\s,]*")
_BOUNDARY = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:)')


def repeats(piece: bytes, *, is_strict: bool = False) -> list[int]:
    """Return where in a piece of text, events separated by commas, those begin that repeat a key.

    None is found in a long text of which no sample has any, so that a few may be missed, unless `is_strict`.
    """
    if is_strict or len(piece) <= _SAMPLES * _SAMPLE_BYTES or any(map(_has_any, _sampled(piece))):
        return list(_repeating(piece))
    return []


def _sampled(piece: bytes) -> Iterator[bytes]:
    """Yield parts of the text that begin with an event, the last of which is cut off."""
    for number in range(_SAMPLES):
        first = len(piece) * number // _SAMPLES
        if boundary := _BOUNDARY.search(piece, first, first + 4 * _SAMPLE_BYTES):
            yield piece[boundary.end() : boundary.end() + _SAMPLE_BYTES]


def _has_any(text: bytes) -> bool:
    return next(_repeating(text), None) is not None


def _repeating(text: bytes) -> Iterator[int]:
    """Yield where events begin that repeat a key, up to one that can't be read."""
    reader, at = Reader(text), 0
    while (separators := _SEPARATORS.match(text, at)) and separators.end() < len(text):
        at = separators.end()
        if found := reader.object_at(at):
            if found.has_duplicates:
                yield at
            at = found.end
        elif value := reader.value_at(at):
            at = value[1]
        else:
            return
