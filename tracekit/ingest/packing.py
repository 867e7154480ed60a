"""Packed bytes to bytes, piece by piece: gzip, zstd and deflate, as far as they can be unpacked.

Owns the decoders, and what is done where packed data is damaged. It opens no file and knows nothing of what the
bytes mean.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Protocol, cast

from isal import igzip_lib

from tracekit.errors import TracekitError

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

Source = Callable[[], Iterator[bytes]]
"""Gives the same bytes from their beginning each time it is called, in pieces of which none is empty."""

_TEXT_BYTES = 2**20  # unpacked in one step at most, however well the data is packed
_MAGIC_BYTES = 4
_FAULTS = (zlib.error, ZstdError, cast("type[Exception]", igzip_lib.IsalError))


class Decoder(Protocol):
    """What the standard library's bz2, lzma and zstd decompressors have in common."""

    @property
    def eof(self) -> bool:
        """Whether the data's own end was met."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes out unless something goes in."""

    @property
    def unused_data(self) -> bytes:
        """What was given beyond the end."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return up to `max_length` bytes; what is left over of `data` is kept for the next call."""


class _Zlib:
    """zlib as a `Decoder`: slower than isal, but it gives all that comes before a fault."""

    def __init__(self, window_bits: int) -> None:
        self._inner = zlib.decompressobj(window_bits)
        self._is_full = False

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not (self.eof or self._is_full or self._inner.unconsumed_tail)

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        text = self._inner.decompress(self._inner.unconsumed_tail + data, max(0, max_length))
        self._is_full = len(text) == max_length
        return text


def _isal(flag: int) -> Decoder:
    return cast("Decoder", igzip_lib.IgzipDecompressor(flag=flag))


@dataclass(frozen=True)
class Packing:
    """A way to pack bytes: its name, a fast decoder and one that gives all it can, and what its data begins with.

    Where `is_repeated`, data may follow data of the same kind. Where not `has_end`, what follows is of no account.
    """

    name: str
    fast: Callable[[], Decoder]
    careful: Callable[[], Decoder]
    magic: re.Pattern[bytes]
    is_repeated: bool = True
    has_end: bool = True


GZIP = Packing("gzip", lambda: _isal(igzip_lib.DECOMP_GZIP), lambda: _Zlib(31), re.compile(rb"\x1f\x8b"))
ZSTD = Packing(
    "zstd", ZstdDecompressor, ZstdDecompressor, re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
)  # the second magic begins a frame to be skipped
DEFLATE = Packing(
    "deflate", lambda: _isal(igzip_lib.DECOMP_DEFLATE), lambda: _Zlib(-15), re.compile(rb""), is_repeated=False
)


def packing_of(head: bytes) -> Packing | None:
    """Return how data that begins with `head` is packed, None if it is neither gzip nor zstd."""
    return next((packing for packing in (GZIP, ZSTD) if packing.magic.match(head)), None)


def unpacked(packing: Packing, source: Source, name: str, report: Callable[[str], None]) -> Iterator[bytes]:
    """Yield what `source` holds, in pieces of up to a megabyte; where it is damaged, all that comes before.

    `report` hears of damage, of an end that comes too early, and of bytes left over. Raises TracekitError, which
    calls the file `name`, for zstd data that needs more memory than 128 MiB.
    """
    given = fed = 0

    def counted() -> Iterator[bytes]:
        nonlocal fed
        for piece in source():
            fed += 1
            yield piece

    try:
        for text in _members(packing, packing.fast, counted(), report):
            given += len(text)
            yield text
        return
    except (EOFError, *_FAULTS) as error:
        fault = error
    if "too much memory" in str(fault):
        raise TracekitError(
            f"{name}: its zstd data needs more than 128 MiB of memory", "unpack it with `zstd -d --long=31`"
        )
    more, is_damaged = yield from _after(given, _careful(packing, source, fed - 2))
    how = "is damaged" if is_damaged or not isinstance(fault, EOFError) else "ends too early,"
    report(f"its {packing.name} data {how} after {given + more:,} bytes of text")


def _members(
    packing: Packing, decoder_of: Callable[[], Decoder], feed: Iterator[bytes], report: Callable[[str], None]
) -> Iterator[bytes]:
    """Yield what one member after the other holds. Raises EOFError where one ends too early, or its decoder's error."""
    held = next(feed, b"")
    while True:
        decoder = decoder_of()
        yield from _member(decoder, held, feed)
        held = decoder.unused_data
        while len(held) < _MAGIC_BYTES and (more := next(feed, b"")):
            held += more
        if not (packing.is_repeated and packing.magic.match(held)):
            break
    if held and packing.has_end:
        are_zero, count = not held.strip(b"\0"), len(held)
        for piece in feed:
            are_zero, count = are_zero and not piece.strip(b"\0"), count + len(piece)
        what = f"{count:,} bytes, all zero," if are_zero else f"{count:,} bytes"
        report(f"{what} after the end of its {packing.name} data are ignored")


def _member(decoder: Decoder, held: bytes, feed: Iterator[bytes]) -> Iterator[bytes]:
    while True:
        if text := decoder.decompress(held, _TEXT_BYTES):
            yield text
        if decoder.eof:
            return
        held = b""
        if decoder.needs_input and not (held := next(feed, b"")):
            raise EOFError


def _careful(packing: Packing, source: Source, doubtful: int) -> Iterator[bytes]:
    """Yield all there is before a fault, then raise it. From the piece number `doubtful` on, bytes are fed singly.

    A decoder that meets a fault drops what it has unpacked in that step.
    """

    def feed() -> Iterator[bytes]:
        for number, piece in enumerate(source()):
            if number < doubtful:
                yield piece
            else:
                yield from (piece[place : place + 1] for place in range(len(piece)))

    return _members(packing, packing.careful, feed(), lambda _: None)


def _after(skipped: int, pieces: Iterator[bytes]) -> Generator[bytes, None, tuple[int, bool]]:
    """Yield what comes after the first `skipped` bytes; return how much, and whether damage came."""
    count = 0
    try:
        for piece in pieces:
            if part := piece[max(0, skipped - count) :]:
                yield part
            count += len(piece)
    except EOFError:
        return max(0, count - skipped), False
    except _FAULTS:
        return max(0, count - skipped), True
    return max(0, count - skipped), False
