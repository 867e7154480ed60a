"""A trace's file as it lies on disk: opened without blocking, read in pieces, hashed in passing.

Owns what is said where the system refuses, and the watch for files that change meanwhile. It unpacks nothing.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PIECE_BYTES = 2**16
_THREAD_BYTES = 2**15  # less than that is hashed sooner than handed over
_KINDS = {stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFBLK: "device", stat.S_IFSOCK: "socket"}


class Disk:
    """A file's bytes, hashed in a thread as they are read for the first time; `size` is how many there are."""

    def __init__(self, file: IO[bytes], name: str, path: Path | None) -> None:
        """Watch an open file, which lies at `path` if anywhere; `opened_file` makes one."""
        self.file, self._name, self._path = file, name, path
        self._hash, self._hashed = hashlib.sha256(), 0
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None
        self._before = self._state()
        self.size = self._before[2]

    def pieces(self, size: int = _PIECE_BYTES) -> Iterator[bytes]:
        """Yield the file from its beginning, each time; raises TracekitError if it grows or can't be read."""
        offset = 0
        while piece := self._read(offset, size):
            if fresh := piece[self._hashed - offset :]:
                self._add(fresh)
            offset += len(piece)
            if offset > self.size:  # one that is being written may never end
                raise self._changed()
            yield piece

    @property
    def hashed(self) -> int:
        """Return how many bytes from the beginning were read."""
        return self._hashed

    def finish(self) -> str:
        """Return the SHA-256 of the whole file. Raises TracekitError if it was changed since it was opened."""
        while self._hashed <= self.size and (piece := self._read(self._hashed, _PIECE_BYTES)):
            self._add(piece)
        self.close()
        if self._state() != self._before or self._hashed != self.size:
            raise self._changed()
        return self._hash.hexdigest()

    def close(self) -> None:
        """Wait for the thread."""
        self._thread.shutdown()

    def _read(self, offset: int, size: int) -> bytes:
        with os_faults(self._name):
            self.file.seek(offset)
            return self.file.read(size)

    def _add(self, data: bytes) -> None:
        if self._pending:
            self._pending.result()
            self._pending = None
        if len(data) < _THREAD_BYTES:
            self._hash.update(data)
        else:
            self._pending = self._thread.submit(self._hash.update, data)
        self._hashed += len(data)

    def _changed(self) -> TracekitError:
        return TracekitError(f"{self._name} changed while it was read", "try again when it is complete")

    def _state(self) -> tuple[int, ...]:
        """Return what tells that a file is the same as before, of the open one and of the one at its path."""
        if self._path is None:
            return (0, 0, self.file.seek(0, os.SEEK_END))
        state: list[int] = []
        for look in (partial(os.fstat, self.file.fileno()), self._path.stat):
            try:
                found = look()
            except OSError:
                return ()
            state += [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]
        return tuple(state)


@contextmanager
def opened_file(source: Path | bytes, name: str) -> Iterator[Disk]:
    """Give a file, or bytes as if they were one, to be read. Raises TracekitError for all but a regular file."""
    with io.BytesIO(source) if isinstance(source, bytes) else _file(source, name) as file:
        disk = Disk(file, name, None if isinstance(source, bytes) else source)
        try:
            yield disk
        finally:
            disk.close()


def _file(path: Path, name: str) -> IO[bytes]:
    """Open a file, but nothing that would block, such as a pipe."""
    with os_faults(name):
        try:
            mode = path.stat().st_mode
        except ValueError as error:  # there is a NUL in it
            raise TracekitError(f"{name!r} is no path ({error})", "check the path") from error
        if stat.S_ISDIR(mode):
            raise TracekitError(f"{name} is a folder", "give one trace file or bundle")
        if not stat.S_ISREG(mode):
            raise TracekitError(f"{name} is a {_KINDS.get(stat.S_IFMT(mode), 'device')}, not a file", "give a file")
        return path.open("rb", buffering=0)


@contextmanager
def os_faults(name: str) -> Iterator[None]:
    """Turn what the system refuses into one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise TracekitError(f"{name}: no such file", "check the path") from error
    except OSError as error:
        remedy = "check the disk it lies on" if error.errno == errno.EIO else "check the path and its rights"
        raise TracekitError(f"{name} can't be read ({error.strerror or error})", remedy) from error
