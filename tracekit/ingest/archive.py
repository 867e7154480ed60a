"""The one file inside a ZIP archive: where its data lies, and how it is packed.

Owns the reading of ZIP's directory and headers, which are believed in nothing: no size or name is acted upon unless
the data bears it out. It unpacks nothing.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING
from zipfile import BadZipFile, ZipFile

from tracekit.errors import TracekitError
from tracekit.ingest.packing import DEFLATE, ZSTD, Packing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
"""What a ZIP begins with, and what one begins with that holds nothing."""

_HEADER_BYTES, _MAX_DIRECTORY_BYTES, _MAX_OFFSET = 30, 2**24, 2**62
_HAS_DESCRIPTOR, _ENCRYPTED = 0x8, 0x1 | 0x40 | 0x2000
_UNKNOWN = 0xFFFFFFFF  # ZIP64 keeps the size elsewhere
_STORED, _PACKINGS = 0, {8: replace(DEFLATE, name="ZIP"), 20: replace(ZSTD, name="ZIP"), 93: replace(ZSTD, name="ZIP")}
_NAMES = (".json", ".json.gz", ".json.zst")
_UNPACK = "unpack it, and give the trace inside, or the folder"


@dataclass(frozen=True)
class Member:
    """A file inside an archive: from where to where its data lies, how it is packed (None: as it is), its CRC-32.

    `end` and `crc` are None where the archive was cut before it says them.
    """

    start: int
    end: int | None
    packing: Packing | None
    crc: int | None

    def cut(self, pieces: Iterable[bytes], report: Callable[[str], None]) -> Iterator[bytes]:
        """Yield the member's data out of the archive's pieces; `report` hears if the archive ends before it."""
        offset = 0
        for piece in pieces:
            part = piece[max(0, self.start - offset) : None if self.end is None else max(0, self.end - offset)]
            offset += len(piece)
            if part:
                yield part
        if self.packing is None and self.end is not None and self.end > offset:
            report(f"its ZIP data ends too early, after {max(0, offset - self.start):,} bytes of text")

    def checked(self, pieces: Iterable[bytes], report: Callable[[str], None]) -> Iterator[bytes]:
        """Yield the pieces of the member's unpacked data; `report` hears if they are not what was packed."""
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
            yield piece
        if self.crc is None:
            report("its ZIP archive is cut off: it has no directory")
        elif crc != self.crc:
            report("its ZIP data has another checksum than it was packed with")


class _Directory:
    """A file that gives no more in one go than a directory of reasonable size needs."""

    def __init__(self, file: IO[bytes]) -> None:
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self._file = file

    def read(self, size: int = -1, /) -> bytes:
        if size > _MAX_DIRECTORY_BYTES:
            raise BadZipFile
        return self._file.read(size)


def only_member(file: IO[bytes], name: str) -> Member:
    """Return the one file of an archive that is called `name`. Where its end is lost, that is the first.

    Folders, dot files and what macOS adds don't count; of several files, only those named as traces are. Raises
    TracekitError if there is none, are several, if it is encrypted or packed in a rare way, and for a bundle.
    """
    try:
        with ZipFile(_Directory(file)) as archive:
            infos = archive.infolist()
    except (BadZipFile, NotImplementedError, ValueError, EOFError):
        return _first_member(file, name)
    names = {info.filename for info in infos}
    if "manifest.json" in names and any(each.startswith(("raw/", "tables/")) for each in names):
        raise TracekitError(f"{name} is a tracekit bundle, not a trace", "query it as it is")
    found = [info for info in infos if _counts(info.filename)]
    if len(found) > 1:
        found = [info for info in found if info.filename.lower().endswith(_NAMES)] or found
    if len(found) != 1:
        shown = ", ".join(_shown(info.filename) for info in found[:2]) + (", ..." if len(found) > 2 else "")
        what = f"{len(found)} files ({shown})" if found else "no file"
        raise TracekitError(f"{name} is a ZIP archive of {what}, not of one trace", _UNPACK)
    info = found[0]
    start = info.header_offset + _header_size(_header(file, info.header_offset, name))
    packing = _packing(info.compress_type, info.flag_bits, f"{name}: {_shown(info.filename)} inside")
    return Member(start, start + info.compress_size, packing, info.CRC)


def _header(file: IO[bytes], offset: int, name: str) -> bytes:
    if 0 <= offset < _MAX_OFFSET:
        file.seek(offset)
        header = file.read(_HEADER_BYTES)
        if len(header) == _HEADER_BYTES and header.startswith(MAGICS[0]):
            return header
    raise TracekitError(f"{name}: its ZIP archive is cut off or damaged", "get the file again")


def _shown(member: str) -> str:
    """Return a name from an archive as it may be shown: whoever wrote it may not steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in member[:200])


def _counts(member: str) -> bool:
    parts = member.split("/")
    return bool(parts[-1]) and "__MACOSX" not in parts and not parts[-1].startswith(".")


def _packing(method: int, flags: int, shown: str) -> Packing | None:
    if flags & _ENCRYPTED:
        raise TracekitError(f"{shown} is encrypted", _UNPACK)
    if method != _STORED and method not in _PACKINGS:
        raise TracekitError(f"{shown} is packed in a rare way (ZIP method {method})", _UNPACK)
    return _PACKINGS.get(method)


def _first_member(file: IO[bytes], name: str) -> Member:
    """Return the first file of an archive without a directory, going by the header before each."""
    offset = 0
    while True:
        header = _header(file, offset, name)
        flags, method = (int.from_bytes(header[place : place + 2], "little") for place in (6, 8))
        size, name_size = (int.from_bytes(header[place : place + 4], "little") for place in (18, 26))
        member = file.read(name_size & 0xFFFF).decode("utf-8", "replace")
        start = offset + _header_size(header)
        is_known = not flags & _HAS_DESCRIPTOR and size != _UNKNOWN
        if member.startswith("tables/") and member.endswith(".parquet"):
            raise TracekitError(f"{name} is a tracekit bundle that is damaged or cut short", "get the file again")
        if _counts(member):
            packing = _packing(method, flags, f"{name}: {_shown(member)} inside")
            loose = replace(packing, has_end=False) if packing else None
            return Member(start, start + size if is_known else None, loose, None)
        if not is_known:
            raise TracekitError(f"{name}: its ZIP archive has lost its directory", "get the file again")
        offset = start + size


def _header_size(header: bytes) -> int:
    """Return the size of a local header with the name and the extra field that follow it."""
    return _HEADER_BYTES + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
