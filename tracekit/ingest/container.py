"""Bytes of a trace, whatever it is wrapped in.

Owns the sniffing of magic bytes and the unpacking of gzip. It knows nothing of what the bytes mean.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, cast

from isal import igzip, isal_zlib

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

_ISAL_ERROR = cast("type[Exception]", isal_zlib.IsalError)
_GZIP = b"\x1f\x8b"
_FOREIGN = {
    b"PK\x03\x04": ("a ZIP archive", "unpack it and give the .json or .json.gz inside"),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", "unpack it with `zstd -d` and give the .json inside"),
    b"\x80\x02": ("a Python pickle", "give a trace written by torch.profiler (.json or .json.gz)"),
    b"\x80\x03": ("a Python pickle", "give a trace written by torch.profiler (.json or .json.gz)"),
    b"\x80\x04": ("a Python pickle", "give a trace written by torch.profiler (.json or .json.gz)"),
    b"\x80\x05": ("a Python pickle", "give a trace written by torch.profiler (.json or .json.gz)"),
}


def read_file(path: Path) -> bytes:
    """Return a file's bytes. Raises TracekitError if it is missing, a folder or unreadable."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TracekitError(f"{path}: no such file", "check the path") from error
    except IsADirectoryError as error:
        raise TracekitError(f"{path} is a folder", "give one trace file or bundle") from error
    except OSError as error:
        raise TracekitError(f"{path} can't be read ({error.strerror})", "check the path and its rights") from error


def unpack(data: bytes, name: str) -> bytes:
    """Return the JSON text inside `data`, gzipped once, twice or not at all.

    Raises TracekitError, naming `name`, if the file is empty, of another kind or its gzip is damaged.
    """
    for _ in range(2):
        if not data.startswith(_GZIP):
            break
        data = _gunzip(data, name)
    for magic, (what, remedy) in _FOREIGN.items():
        if data.startswith(magic):
            raise TracekitError(f"{name} is {what}, not a profiler trace", remedy)
    if not data.strip():
        raise TracekitError(f"{name} is empty", "record the trace again, or get the file again")
    return data


def _gunzip(data: bytes, name: str) -> bytes:
    try:
        text: bytes = igzip.decompress(data)  # type: ignore[no-untyped-call]
    except (EOFError, OSError, zlib.error, _ISAL_ERROR) as error:
        raise TracekitError(f"{name}: its gzip data is damaged or cut off ({error})", "get the file again") from error
    return text
