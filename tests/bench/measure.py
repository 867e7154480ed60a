"""What a command costs: its time, its processor time and its memory, measured from outside.

Owns the running and measuring of one process and all that it starts. It knows no tool and prints nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PROC = Path("/proc")
_EVERY_S = 0.01
_TREE_EVERY = 5
"""Looks of which one looks for new processes too: each would cost a question of half a second a tenth of its time."""
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class Measured:
    """What one run of a command cost, and how it ended; what the system can't tell is None.

    `peak_bytes` is the peak of the largest process, `tree_bytes` that of the sum over all at one time, in which
    memory that they share counts in each.
    """

    seconds: float
    cpu_seconds: float | None
    peak_bytes: int | None
    tree_bytes: int | None
    exit_code: int
    fault: str


def how_memory_is_measured() -> str:
    """Return in words where peaks come from on this system."""
    if _sees_processes():
        polled = f"VmHWM of each process of the tree, read from /proc every {_EVERY_S * 1e3:.0f} ms"
        return f"{polled}, or ru_maxrss of wait4 where that is larger and can't be this program's own"
    return "ru_maxrss of wait4" if hasattr(os, "wait4") else "not measured on this system"


def measured(command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> Measured:
    """Run a command in `folder`, its output thrown away, and return what it cost. Ends it if this is interrupted."""
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        watch = _Watch(process.pid)
        try:
            usage = _waited(process)
            seconds = time.perf_counter() - started
        except BaseException:
            _end(process)
            raise
        finally:
            watch.stop()
        errors.seek(0)
        lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return Measured(
        seconds,
        usage.cpu_seconds,
        _peak(watch.largest, usage.maxrss),
        watch.sum or None,
        process.returncode,
        _fault(process.returncode, lines),
    )


def _fault(exit_code: int, lines: Sequence[str]) -> str:
    """Return the last line of what a command that failed had to say, without the name of the user's folder."""
    if not exit_code:
        return ""
    return lines[-1].replace(str(Path.home()), "~") if lines else f"exit code {exit_code}"


@dataclass(frozen=True)
class _Usage:
    cpu_seconds: float | None = None
    maxrss: int = 0


def _waited(process: subprocess.Popen[bytes]) -> _Usage:
    """Wait for a process and return what the system counted for it and for the children that it waited for."""
    if not hasattr(os, "wait4"):
        process.wait()
        return _Usage()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return _Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _MAXRSS_UNIT)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()


def _peak(polled: int, maxrss: int) -> int | None:
    """Return the peak of the largest process.

    Between two looks a process may grow and end, which its ru_maxrss still tells; but on Linux that begins with the
    memory of the program that started it, so it counts only if it is more than this one ever held.
    """
    if not _sees_processes():
        return maxrss or None
    return maxrss if maxrss > max(polled, _own_peak()) else polled or maxrss or None


def _own_peak() -> int:
    return _memory(os.getpid())[0]


def _sees_processes() -> bool:
    return (_PROC / "self" / "status").exists()


@dataclass
class _Watch:
    """Looks at a process and all below it, again and again, from a thread of its own."""

    process: int
    largest: int = 0
    sum: int = 0
    _over: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        for look in count():
            if self._over.is_set() or not _sees_processes():
                return
            if look % _TREE_EVERY == 0:
                known = list(_tree(self.process))
            seen = [_memory(process) for process in known]
            self.largest = max([self.largest, *(peak for peak, _ in seen)])
            self.sum = max(self.sum, sum(held for _, held in seen))
            self._over.wait(_EVERY_S)


def _tree(process: int) -> Iterator[int]:
    yield process
    for children in (_PROC / str(process) / "task").glob("*/children"):
        try:
            below = children.read_text().split()
        except OSError:  # it has ended
            continue
        for child in below:
            yield from _tree(int(child))


def _memory(process: int) -> tuple[int, int]:
    """Return the most memory that a process has held, and what it holds; nothing if it has ended."""
    try:
        lines = (_PROC / str(process) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return 0, 0
    sizes = {key: rest.split()[0] for key, _, rest in (line.partition(":") for line in lines) if rest.endswith(" kB")}
    return int(sizes.get("VmHWM", 0)) * 1024, int(sizes.get("VmRSS", 0)) * 1024
