"""The text of a trace as a stream, whatever it is wrapped in, in bounded memory.

Owns the sniffing of magic bytes, the order of the layers around a text, and the limit on what an archive may unpack
to. It knows nothing of what the text means.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from tracekit.errors import TracekitError
from tracekit.ingest.archive import MAGICS, Member, only_member
from tracekit.ingest.disk import Disk, opened_file, os_faults
from tracekit.ingest.packing import Packing, Source, packing_of, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_HEAD_BYTES = 512
_MAX_LAYERS = 2
_MAX_RATIO = 200  # real traces are packed 10 to 30 times
_ALWAYS_BYTES = 2**24  # an archive of any size may give as much: it fills no memory, and tiny traces are all headers
_BLANK = b" \t\r\n\xef\xbb\xbf"
_AGAIN = "get the file again"
_TORCH = "give a trace written by torch.profiler (.json or .json.gz)"
_UNPACK = "unpack it and give the .json or .json.gz inside"
_FOREIGN = (
    (re.compile(rb"PK\x03\x04|PK\x05\x06"), "a ZIP archive", _UNPACK),
    (re.compile(rb"BZh[1-9]1AY&SY"), "a bzip2 archive", _UNPACK),
    (re.compile(rb"\xfd7zXZ\0"), "an xz archive", _UNPACK),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), "a 7-Zip archive", _UNPACK),
    (re.compile(rb".{257}ustar", re.DOTALL), "a tar archive", "unpack it and give the traces inside"),
    (re.compile(rb"\x80[\x02-\x05]"), "a Python pickle", _TORCH),
    (re.compile(rb"SQLite format 3\0"), "an SQLite database", _TORCH),
    (re.compile(rb"PAR1"), "a Parquet file", _TORCH),
    (re.compile(rb"\xff\xfe|\xfe\xff|\0?[\[{]\0"), "UTF-16 text", "save it as UTF-8"),
)


class Stream:
    """One trace's text, unpacked as it is read.

    `name` is what messages call it, `size` the file's bytes on disk. `is_plain` says that the file is bare text, so
    that offsets in the text are offsets in the file. `sha256` (of the file as it lies on disk), `text_bytes` (that
    came out) and `damage` (why that is not all, None if it is) hold once `blocks` has come to its end.
    """

    def __init__(self, disk: Disk, name: str, *, trust_archive: bool) -> None:
        """Find out what the file is wrapped in; `opened` makes a stream. Raises TracekitError for what is no trace."""
        self.name, self.size = name, disk.size
        self.sha256, self.text_bytes = "", 0
        self.damage: str | None = None
        self._disk = disk
        self._limit = None if trust_archive else max(_ALWAYS_BYTES, _MAX_RATIO * disk.size)
        self._packings: list[Packing] = []
        self._member: Member | None = None
        if _head(disk.pieces).startswith(MAGICS):
            with os_faults(name):
                self._member = only_member(disk.file, name)
        self._peel()
        self.is_plain = not (self._member or self._packings)

    def blocks(self, size: int = 2**24) -> Iterator[bytes]:
        """Yield the text in order, once; every block but the last has exactly `size` bytes.

        Of damaged data, all that can be unpacked is yielded; then `damage` is set. Raises TracekitError if there is
        no text, if the file changes meanwhile or can't be read on, and for an archive that unpacks to too much.
        """
        source = partial(self._disk.pieces, size) if self.is_plain else self._source(self._report)
        yield from _blocks(self._seen(source()), size)
        self.sha256 = self._disk.finish()

    @property
    def progress(self) -> float:
        """Return about what share of the file was read, from 0 to 1."""
        return min(1.0, self._disk.hashed / self.size) if self.size else 1.0

    def _peel(self) -> None:
        while packing := packing_of(head := _head(self._source(lambda _: None))):
            if len(self._packings) == _MAX_LAYERS:
                raise TracekitError(f"{self.name} is packed more than {_MAX_LAYERS} times", _UNPACK)
            self._packings.append(packing)
        for magic, what, remedy in _FOREIGN:
            if magic.match(head):
                raise TracekitError(f"{self.name} is {what}, not a profiler trace", remedy)

    def _source(self, report: Callable[[str], None]) -> Source:
        """Return what gives the text, all layers unpacked."""
        source: Source = self._disk.pieces
        if self._member:
            source = partial(self._inside, self._member, source, report)
        for packing in self._packings:
            source = partial(self._unpacked, packing, source, report)
        return source

    def _inside(self, member: Member, source: Source, report: Callable[[str], None]) -> Iterator[bytes]:
        def packed() -> Iterator[bytes]:
            return member.cut(source(), report)

        text = self._unpacked(member.packing, packed, report) if member.packing else packed()
        return member.checked(text, report)

    def _unpacked(self, packing: Packing, source: Source, report: Callable[[str], None]) -> Iterator[bytes]:
        count = 0
        for piece in unpacked(packing, source, self.name, report):
            count += len(piece)
            if self._limit is not None and count > self._limit:
                problem = f"{self.name} unpacks to more than {self._limit:,} bytes, far more than traces do"
                raise TracekitError(problem, "if you trust where it comes from, give --trust-archive")
            yield piece

    def _seen(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces, counted; raises TracekitError if all are blank."""
        is_blank = True
        for piece in pieces:
            is_blank = is_blank and not piece.strip(_BLANK)
            self.text_bytes += len(piece)
            yield piece
        if is_blank and self.damage:
            raise TracekitError(f"{self.name}: {self.damage}", _AGAIN)
        if is_blank:
            raise TracekitError(f"{self.name} is empty", "record the trace again, or get the file again")

    def _report(self, damage: str) -> None:
        self.damage = self.damage or damage  # the rest follows from the first


@contextmanager
def opened(source: Path | bytes, name: str | None = None, *, trust_archive: bool = False) -> Iterator[Stream]:
    """Give the text of a trace, a file or the bytes of one, plain or packed (gzip, zstd, ZIP), as a stream.

    `name` is what messages call it, by default its path. An archive that unpacks to more than 200 times its size is
    refused unless `trust_archive`. Raises TracekitError for what can't be opened, and for what is no trace.
    """
    shown = name or ("the trace" if isinstance(source, bytes) else str(source))
    with opened_file(source, shown) as disk:
        yield Stream(disk, shown, trust_archive=trust_archive)


def _head(source: Source) -> bytes:
    head = b""
    for piece in source():
        head += piece[:_HEAD_BYTES]
        if len(head) >= _HEAD_BYTES:
            break
    return head


def _blocks(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in blocks of one size, only the last of which may be smaller."""
    held = bytearray()
    for piece in pieces:
        if not held and len(piece) == size:
            yield piece
            continue
        held += piece
        while len(held) >= size:
            with memoryview(held) as view:
                block = bytes(view[:size])
            del held[:size]
            yield block
    if held:
        yield bytes(held)
