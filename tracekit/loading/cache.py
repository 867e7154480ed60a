"""The cache: what was made of raw traces, kept as bundles, so that a trace is loaded once.

Owns where copies lie, what they are called, how long they are kept, and what is deleted. A copy is found by path,
size and time of the files it was made of, else by their names and content. It loads nothing, and any of its files
may vanish at any moment: other processes use it too.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import platformdirs

from tracekit import __version__, bundle
from tracekit.errors import TracekitError
from tracekit.loading.processes import is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.resources.abc import Traversable
    from pathlib import Path

LIMIT_VARIABLE = "TRACEKIT_CACHE_BYTES"
"""The environment variable that says how many bytes of runs are kept; 0 is no cache at all."""

_LIMIT_BYTES = 4 * 2**30
_DAY_NS = 24 * 3600 * 10**9
_RUN, _KEY = re.compile(r"[0-9a-f]{32}\.tkb"), re.compile(r"[0-9a-f]{32}")
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}(\.tkb)?\.tmp-(?P<process>\d{1,10})-[0-9a-f]+")  # as bundle.py names them
_MADE_BY = ("attention", "ingest", "link", "loading")


@dataclass(frozen=True)
class Entry:
    """A run in the cache: its bundle, the size of it, and when it was used last, in ns since 1970."""

    path: Path
    bytes: int
    used_ns: int


@dataclass(frozen=True)
class Info:
    """The state of the cache: its folder, how much it holds and may hold, and when runs were used last.

    `left_over_bytes` is what broken-off writes left behind.
    """

    folder: Path
    runs: int
    bytes: int
    limit_bytes: int
    left_over_bytes: int
    oldest_use: datetime | None
    newest_use: datetime | None


@dataclass(frozen=True)
class Cleared:
    """What clearing deleted: the number of runs, and the bytes of all files."""

    runs: int
    bytes: int


def location() -> Path:
    """Return the cache's folder, which need not exist."""
    return platformdirs.user_cache_path("tracekit")


def limit() -> int:
    """Return how many bytes of runs are kept, 0 for no cache at all; TracekitError if the variable is no number."""
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not text:
        return _LIMIT_BYTES
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise TracekitError(f"{LIMIT_VARIABLE} is {text!r}, not a number of bytes", "set it to one, or unset it")
    return int(text)


def path_for(sources: Sequence[Path], options: Sequence[object] = ()) -> Path:
    """Return where the bundle lies, or will, that is made of these files, in this order, with these options.

    Files that were only moved or touched have the path of before: then they are read once, to be known by content. The
    version and all code and rules that decide what rows mean count too. Raises TracekitError for unreadable files.
    """
    rules = (__version__, _knowledge(), *options)
    states = [_state(path) for path in sources]
    key = location() / "keys" / _name_of(states, rules)
    name = _told_by(key)
    if name is None:
        name = _name_of([(path.name, _sha256(path)) for path in sources], rules)
        if states == [_state(path) for path in sources]:
            _tell(key, name)
    return location() / "runs" / f"{name}.tkb"


def store(
    path: Path, entries: Mapping[str, bytes | Path], sources: Sequence[Path], options: Sequence[object] = ()
) -> None:
    """Keep what was made of files at the path that `path_for` gave for them before they were read, and make room.

    Raises TracekitError if they have changed since, or if it can't be written.
    """
    if path_for(sources, options) != path:
        raise TracekitError(f"{', '.join(map(str, sources))} changed while it was read")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TracekitError(f"{path.parent} can't be made ({error.strerror or error})") from error
    bundle.write(path, entries, left_out={"raw": "a cached copy"}, tool_version=__version__, overwrite=True)
    trim(keep=path)


def touch(path: Path) -> None:
    """Note that a run was used, where the cache can be written."""
    with suppress(OSError):
        os.utime(path)


def entries() -> list[Entry]:
    """Return the runs in the cache, those used longest ago first."""
    found = [Entry(path, state.st_size, state.st_mtime_ns) for path, state in _files("runs", _RUN)]
    return sorted(found, key=lambda entry: (entry.used_ns, entry.path))


def info() -> Info:
    """Return the state of the cache."""
    held = entries()
    uses = [datetime.fromtimestamp(entry.used_ns / 1e9, UTC) for entry in held]
    left_over = sum(state.st_size for _, state in _left_over())
    total = sum(entry.bytes for entry in held)
    oldest, newest = (uses[0], uses[-1]) if uses else (None, None)
    return Info(location(), len(held), total, limit(), left_over, oldest, newest)


def clear() -> Cleared:
    """Delete all runs, keys and left-overs, nothing else, and nothing that another process is writing.

    Raises TracekitError if some can't be deleted, after all others were.
    """
    runs = freed = 0
    fault: OSError | None = None
    for path, state in [*_files("runs", _RUN), *_files("keys", _KEY), *_left_over()]:
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            fault = error
            continue
        runs += bool(_RUN.fullmatch(path.name))
        freed += state.st_size
    if fault:
        raise TracekitError(f"{location()} can't be cleared ({fault.strerror})", "check your rights to the folder")
    return Cleared(runs, freed)


def trim(keep: Path | None = None) -> None:
    """Delete left-overs, and the runs used longest ago until the rest fits the limit; the run `keep` stays anyway."""
    for path, _ in _left_over():
        _delete(path)
    held = entries()
    excess = sum(entry.bytes for entry in held) - limit()
    for entry in held:
        if excess > 0 and entry.path != keep:
            _delete(entry.path)
            excess -= entry.bytes
    kept = {entry.path.stem for entry in entries()}
    for path, state in _files("keys", _KEY):
        if _age_ns(state) > _DAY_NS and _told_by(path) not in kept:  # a younger one's run may be on its way
            _delete(path)


@cache
def _knowledge() -> str:
    """Return a hash of all code and rules that decide what rows mean, so that a changed rule is a new answer."""
    digest = hashlib.sha256()
    root = files("tracekit")
    for room in _MADE_BY:
        for file in _written(root.joinpath(room)):
            digest.update(file.read_bytes())
    for name in ("element_types.py", "element_types.toml"):
        digest.update(root.joinpath(name).read_bytes())
    return digest.hexdigest()


def _written(room: Traversable) -> Iterator[Traversable]:
    """Yield the code and rules of a room, and of the rooms in it."""
    for entry in sorted(room.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith((".py", ".toml")):
            yield entry
        elif entry.is_dir():
            yield from _written(entry)


def _name_of(sources: Sequence[tuple[object, ...]], rules: tuple[object, ...]) -> str:
    return hashlib.sha256(repr((sources, rules)).encode()).hexdigest()[:32]


def _state(path: Path) -> tuple[str | int, ...]:
    """Return what changes when a file does: its time can be set back, that of its inode can't."""
    try:
        found = path.stat()
        return str(path.resolve()), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
    except (OSError, ValueError) as error:
        raise TracekitError(f"{path}: no such file", "check the path") from error


def _sha256(path: Path) -> str:
    from tracekit.ingest.disk import opened_file  # a room that is slow to import

    with opened_file(path, str(path)) as file:
        return file.finish()


def _told_by(key: Path) -> str | None:
    """Return the name of the run that a key leads to, None if there is no such key, or a damaged one."""
    try:
        name = key.read_bytes()[:64].decode("ascii").strip()
    except (OSError, ValueError):
        return None
    return name if _KEY.fullmatch(name) else None


def _tell(key: Path, name: str) -> None:
    """Write a key, whole or not at all; a cache that can't be written does without."""
    temporary = key.with_name(f".{key.name}.tmp-{os.getpid()}-{os.urandom(8).hex()}")
    with suppress(OSError):
        key.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(f"{name}\n", "ascii")
            temporary.replace(key)
        finally:
            temporary.unlink(missing_ok=True)


def _files(folder: str, name: re.Pattern[str]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the regular files of such names, as many as can be seen."""
    try:
        found = sorted((location() / folder).iterdir())
    except OSError:
        return
    for path in found:
        if name.fullmatch(path.name):
            with suppress(OSError):
                state = path.lstat()
                if stat.S_ISREG(state.st_mode):
                    yield path, state


def _left_over() -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the temporary files whose process is gone, or that nothing was written to for a day."""
    for folder in ("runs", "keys"):
        for path, state in _files(folder, _TEMPORARY):
            named = _TEMPORARY.fullmatch(path.name)
            if named and (_age_ns(state) > _DAY_NS or not is_alive(int(named["process"]))):
                yield path, state


def _age_ns(state: os.stat_result) -> int:
    return time.time_ns() - state.st_mtime_ns


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
