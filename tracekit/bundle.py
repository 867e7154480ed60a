"""The `.tkb` file: write one, open one, verify one.

Owns the container, not what lies in it: a plain ZIP of stored entries, so that any tool reads it. Its last entry is
the manifest: it holds the hashes of all others, and every source is read once. Must need only the standard library,
since recording machines have little else, and must believe no size, name or flag of a file, whoever sent it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import stat
import zipfile
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT_VERSION = 1
"""The layout of the container that is written, and the newest that is read."""
SCHEMA_VERSION = 1
"""The set of tables that is written, and the newest that is read."""

_TOOL, _MANIFEST, _FACTS = "tracekit", "manifest.json", "facts.json"
_FILES = (_MANIFEST, _FACTS, "calls.json")
_FOLDERS = ("raw/", "tables/", "snapshot/")

_PIECE_BYTES, _MAX_JSON_BYTES = 2**20, 2**26
_MAX_ENTRIES, _MAX_NAME_BYTES = 100_000, 200
_MAX_DIRECTORY_BYTES = 2**25  # holds _MAX_ENTRIES of the longest names
_MAX_RATIO = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 200}  # other tools may have deflated an entry
_MAGIC = b"PK\x03\x04"
_HARMLESS_FLAGS = 0x800 | 0x8 | 0x6  # UTF-8 name, sizes repeated after the data, how hard deflate tried

_AGAIN = "get the file again, from a source you trust"
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room, or choose another disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose another place, or allow it there"),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "check the path, and that its folder exists"),
    errno.EEXIST: "choose another name, or overwrite it with --force",
    errno.EISDIR: "name a file, such as run.tkb",
}


@dataclass(frozen=True)
class Digest:
    """An entry's size in bytes and its SHA-256 in hexadecimal."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A bundle's `manifest.json`: which versions wrote it, what it holds, and what was left out and why."""

    format_version: int
    schema_version: int
    tool_version: str
    entries: Mapping[str, Digest]
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class EntryCheck:
    """An entry as found: bytes and SHA-256 of what could be read, and what is wrong with it, if anything."""

    name: str
    bytes: int
    sha256: str
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Return whether the entry is what the manifest promises."""
        return not self.problem


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle whose structure was checked; holds no open file, so it may cross threads and processes."""

    path: Path
    manifest: Manifest
    _infos: Mapping[str, ZipInfo] = field(repr=False)

    @classmethod
    def open(cls, path: Path) -> Bundle:
        """Return the bundle at `path`; raises TracekitError if it is none, unsafe, too new or incomplete."""
        manifest, infos = _load(path)
        for name, problem in sorted(_first_sight(manifest, infos).items()):
            raise _bad_entry(path, name, problem)
        return cls(path, manifest, infos)

    @cached_property
    def facts(self) -> dict[str, object]:
        """Return what `facts.json` holds, nothing if there is none; TracekitError if it is no JSON object."""
        return _json_object(self.path, self._infos[_FACTS]) if _FACTS in self._infos else {}

    def names(self, prefix: str = "") -> list[str]:
        """Return the sorted names of the entries that begin with `prefix`; the manifest is not among them."""
        return sorted(name for name in self.manifest.entries if name.startswith(prefix))

    def size(self, name: str) -> int:
        """Return an entry's size in bytes; raises TracekitError if there is no such entry."""
        return self._info(name).file_size

    def read(self, name: str) -> bytes:
        """Return an entry's content; raises TracekitError if there is no such entry, or it is damaged."""
        return b"".join(self.pieces(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield an entry's content by the megabyte; raises as `read`, of damage perhaps only at the end."""
        return _pieces(self.path, self._info(name))

    def _info(self, name: str) -> ZipInfo:
        if name not in self._infos:
            raise TracekitError(f"{self.path} has no entry {name!r}", "see `tracekit bundle info`")
        return self._infos[name]


def verify(path: Path) -> list[EntryCheck]:
    """Return a check of every entry but the manifest; raises TracekitError for what is no readable bundle."""
    manifest, infos = _load(path)
    problems = _first_sight(manifest, infos)
    names = sorted({*manifest.entries, *infos} - {_MANIFEST})
    return [_check(path, name, infos.get(name), manifest, problems.get(name, "")) for name in names]


def is_bundle(path: Path) -> bool:
    """Return whether `path` is a ZIP with a manifest of this tool, of whatever version; raises nothing."""
    with suppress(TracekitError):
        return bool(_identify(path))
    return False


def write(
    path: Path,
    entries: Mapping[str, bytes | Path],
    *,
    facts: Mapping[str, object] | None = None,
    left_out: Mapping[str, str] | None = None,
    tool_version: str,
    overwrite: bool = False,
) -> None:
    """Write a bundle: all of it or, whatever fails or crashes, nothing; equal input gives equal bytes.

    An entry is bytes or the file to copy; `facts` becomes `facts.json`; `left_out` says what is missing, and why.
    Raises TracekitError for files that can't be read, written or, unless `overwrite`, replaced; ValueError for names
    and facts that no bundle can hold.
    """
    made = {} if facts is None else {_FACTS: _json_bytes(facts)}
    refused = [name for name in entries if name in {_MANIFEST, *_FOLDERS, *made} or _bad_name(name)]
    if refused or len(entries) > _MAX_ENTRIES - 2:
        raise ValueError(f"{len(entries)} entries, of which a bundle may not hold {refused}")
    versions = {"format_version": FORMAT_VERSION, "schema_version": SCHEMA_VERSION}
    head = {**versions, "tool": _TOOL, "tool_version": tool_version, "left_out": {**(left_out or {})}}
    with _os_faults(path, "written"):
        target = Path(os.path.realpath(path)) if overwrite else path  # a link stays, and what it points to is replaced
        if target.exists() and not target.is_file():
            raise IsADirectoryError(errno.EISDIR, "not a file")
        if not overwrite and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        _create(target, {**entries, **made}, head, overwrite=overwrite)


def _create(path: Path, contents: dict[str, bytes | Path], head: dict[str, Any], *, overwrite: bool) -> None:
    """Write a temporary file in the same folder and, once it is safely on disk, give it its name."""
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}-{os.urandom(8).hex()}")
    try:
        with temporary.open("xb") as file:
            with ZipFile(file, "w") as archive:
                entries = {name: _store(archive, name, contents[name]) for name in sorted(contents)}
                _store(archive, _MANIFEST, _json_bytes({**head, "entries": entries}))
            file.flush()
            os.fsync(file.fileno())
        (Path.replace if overwrite else _rename_to_new)(temporary, path)
    finally:
        with suppress(OSError):  # what made the write fail matters more
            temporary.unlink(missing_ok=True)
    with suppress(OSError):  # makes the new name outlast a power cut, where folders can be opened and synced
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _rename_to_new(temporary: Path, target: Path) -> None:
    """Name a file `target` unless that exists, which a rename would replace; raises FileExistsError."""
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # there are no hard links here: claim the name with an empty file
        target.touch(exist_ok=False)
        try:
            temporary.replace(target)
        except OSError:
            target.unlink()
            raise


def _store(archive: ZipFile, name: str, source: bytes | Path) -> dict[str, object]:
    """Add an entry and return its line of the manifest."""
    info = ZipInfo(name)  # dated 1980, so that no clock makes equal bundles differ
    info.create_system = 3  # unix, whatever the system
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    digest, count = hashlib.sha256(), 0
    with _opened(source) as stream:
        info.file_size = size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        with archive.open(info, "w") as entry:
            while count <= size and (piece := stream.read(_PIECE_BYTES)):
                digest.update(piece)
                count += entry.write(piece)
    if count != size:
        raise TracekitError(f"{source!s} changed while it was copied", "try again when it is complete")
    return {"bytes": size, "sha256": digest.hexdigest()}


def _opened(source: bytes | Path) -> BinaryIO:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    with _os_faults(source, "read"):
        return source.open("rb")


def _json_bytes(value: Mapping[str, object]) -> bytes:
    return json.dumps({**value}, indent=1, sort_keys=True, allow_nan=False).encode()


class _DirectoryFile(io.FileIO):
    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_DIRECTORY_BYTES:
            raise BadZipFile  # no bundle's directory is that large
        return super().read(size)


def _identify(path: Path) -> tuple[dict[str, object], list[ZipInfo], int]:
    """Return manifest, directory and size of a file that bears this tool's mark, all else unchecked."""
    no_bundle = TracekitError(f"{path} is not a tracekit bundle", "`tracekit load` makes one from a trace")
    try:
        with _os_faults(path, "read"):
            if path.exists() and not path.is_file():  # a pipe would block
                raise IsADirectoryError(errno.EISDIR, "not a file")
            with _DirectoryFile(path) as file:
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise no_bundle
                infos = ZipFile(file).infolist()
                size = file.seek(0, os.SEEK_END)
    except (BadZipFile, NotImplementedError, ValueError) as error:
        raise TracekitError(f"{path} is damaged or cut short", _AGAIN) from error
    info = next((info for info in infos if info.orig_filename == _MANIFEST), None)
    if info and (problem := _danger(info, size)):
        raise _bad_entry(path, _MANIFEST, problem)
    manifest = _json_object(path, info) if info else {}
    if manifest.get("tool") != _TOOL:
        raise no_bundle
    return manifest, infos, size


def _load(path: Path) -> tuple[Manifest, dict[str, ZipInfo]]:
    """Return manifest and directory of a bundle that is safe to read, whether or not the two agree."""
    record, listed, size = _identify(path)
    manifest = _parsed(path, record)
    infos: dict[str, ZipInfo] = {}
    for info in listed:
        name = info.orig_filename
        if problem := "is there twice" if name in infos else _danger(info, size):
            raise _bad_entry(path, name, problem)
        infos[name] = info
    if len(infos) > _MAX_ENTRIES or sum(info.compress_size for info in listed) > size:
        raise TracekitError(f"{path} claims to hold more than a file of its size can", _AGAIN)
    return manifest, {name: info for name, info in infos.items() if name not in _FOLDERS}


def _danger(info: ZipInfo, file_size: int) -> str:
    """Return why an entry must not be read, going by what its directory line says; nothing if it may be."""
    limit = info.compress_size * _MAX_RATIO.get(info.compress_type, 0)
    checks = (
        (stat.S_IFMT(info.external_attr >> 16) not in {0, stat.S_IFREG, stat.S_IFDIR}, "is a link or device"),
        (info.flag_bits & ~_HARMLESS_FLAGS, "is encrypted or uses rare features of ZIP"),
        (info.compress_type not in _MAX_RATIO, "is packed in a way that bundles do not use"),
        (info.file_size > limit, "claims to unpack to far more than it could hold"),
        (not 0 <= info.header_offset <= file_size - info.compress_size, "lies outside the file"),
    )
    return _bad_name(info.orig_filename) or next((problem for is_bad, problem in checks if is_bad), "")


def _bad_name(name: str) -> str:
    """Return why no entry may have this name; nothing if one may, as may a folder that other tools add."""
    if name in _FILES or name in _FOLDERS:
        return ""
    is_plain = name.isprintable() and "\\" not in name and len(name.encode()) <= _MAX_NAME_BYTES
    if not is_plain or name[1:2] == ":" or {"", ".", ".."}.intersection(name.split("/")):
        return "has an unsafe name"
    return "" if name.startswith(_FOLDERS) else "has no place in a bundle"


def _parsed(path: Path, record: dict[str, object]) -> Manifest:
    """Return the manifest as data; raises TracekitError if it is malformed, or newer than this tracekit."""
    try:
        layout, schema = _typed(record, "format_version", int), _typed(record, "schema_version", int)
        version = _typed(record, "tool_version", str)
        if layout > FORMAT_VERSION or schema > SCHEMA_VERSION:
            problem = f"{path} was written by tracekit {version!r} in a newer format than this one reads"
            raise TracekitError(problem, f"install tracekit {version!r} or newer")
        listed = _typed(record, "entries", dict).items()
        entries = {key: Digest(_typed(it, "bytes", int), _typed(it, "sha256", str)) for key, it in listed}
        left_out = {name: str(reason) for name, reason in _typed(record, "left_out", dict).items()}
    except TypeError as error:
        raise _bad_entry(path, _MANIFEST, f"has no valid {error}") from error
    return Manifest(layout, schema, version, entries, left_out)


def _typed(record: object, key: str, kind: type) -> Any:
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(key)
    return value


def _first_sight(manifest: Manifest, infos: Mapping[str, ZipInfo]) -> dict[str, str]:
    """Return the entries on which manifest and directory differ, and how."""
    sizes = {name: info.file_size for name, info in infos.items() if name != _MANIFEST}
    listed = {name: digest.bytes for name, digest in manifest.entries.items()}
    odd = {name: "has another size than the manifest says" for name, _ in sizes.items() ^ listed.items()}
    missing = dict.fromkeys(listed.keys() - sizes, "is missing")
    return {**odd, **missing, **dict.fromkeys(sizes.keys() - listed, "is not listed in the manifest")}


def _check(path: Path, name: str, info: ZipInfo | None, manifest: Manifest, problem: str) -> EntryCheck:
    found, count = hashlib.sha256(), 0
    try:
        for piece in _pieces(path, info) if info else ():
            found.update(piece)
            count += len(piece)
    except TracekitError:
        problem = problem or "is damaged"
    if not problem and found.hexdigest() != manifest.entries[name].sha256:
        problem = "has other content than the manifest says"
    return EntryCheck(name, count, found.hexdigest(), problem)


def _json_object(path: Path, info: ZipInfo) -> dict[str, object]:
    try:
        value = json.loads(b"".join(_pieces(path, info))) if info.file_size <= _MAX_JSON_BYTES else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _bad_entry(path, info.orig_filename, f"is not a JSON object of up to {_MAX_JSON_BYTES >> 20} MiB")
    return value


def _pieces(path: Path, info: ZipInfo) -> Iterator[bytes]:
    """Yield what an entry holds, no more than its declared size; raises TracekitError where it is damaged."""
    left = info.file_size
    try:
        with _os_faults(path, "read"), path.open("rb") as file:
            file.seek(info.header_offset)
            header = file.read(30)
            if not header.startswith(_MAGIC):
                raise BadZipFile
            for start in (26, 28):  # lengths of name and extra field, which the content follows
                file.seek(int.from_bytes(header[start : start + 2], "little"), os.SEEK_CUR)
            content = zipfile.ZipExtFile(file, "r", info)
            while piece := content.read(_PIECE_BYTES):
                left -= len(piece)
                yield piece
    except (BadZipFile, zlib.error, EOFError):
        left = -1
    if left:
        raise _bad_entry(path, info.orig_filename, "is damaged")


@contextmanager
def _os_faults(path: Path, verb: str) -> Iterator[None]:
    """Turn what the system refuses into one line on `path`, which could not be `verb`."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "")
        raise TracekitError(f"{path} can't be {verb} ({error.strerror or error})", remedy) from error


def _bad_entry(path: Path, name: str, problem: str) -> TracekitError:
    return TracekitError(f"{path}: entry {name!r} {problem}", _AGAIN)
