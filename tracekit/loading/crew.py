"""Who does the work of loading: this process, or several.

Owns the pool. Its processes are spawned, never forked, since Polars deadlocks in forked ones; so a program that uses
it needs a `__main__` guard, and a library call stays in one process unless it is asked for more.
"""

from __future__ import annotations

import atexit
import gc
import os
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_T = TypeVar("_T")
_AHEAD = 2
"""Jobs that wait for each worker, so that none is idle, and no more, so that memory stays bounded."""


class Crew(AbstractContextManager["Crew"]):
    """Runs jobs in `size` processes, which start with the first job; in this one if `size` is 1."""

    def __init__(self, size: int = 1) -> None:
        """Hire nobody yet."""
        self.size = max(1, size)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def prepare(self, paths: Iterable[Path], whole_bytes: int) -> None:
        """Let the workers start, if files are so large that they will be needed, while this process gets ready."""
        if self.size > 1 and any(_may_be_large(path, whole_bytes) for path in paths):
            for _ in range(self.size):
                self._submit(_get_ready)

    def meanwhile(self, job: Callable[[], None]) -> None:
        """Let the workers, who have nothing else to do, run a job whose result nobody waits for."""
        if self._pool is not None:
            for _ in range(self.size):
                self._submit(job)

    def each(self, job: Callable[..., _T], arguments: Iterable[tuple[Any, ...]]) -> Iterator[_T]:
        """Yield the result of the job for each tuple of arguments, in their order."""
        if self.size == 1:
            for each in arguments:
                yield job(*each)
            return
        waiting: deque[Future[_T]] = deque()
        try:
            for each in arguments:
                waiting.append(self._submit(job, *each))
                if len(waiting) > self.size * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            problem = "a process that was loading the trace ended"
            raise TracekitError(problem, "perhaps memory ran out: close other programs, or use --workers 1") from error
        finally:
            for future in waiting:
                future.cancel()

    def _submit(self, job: Callable[..., _T], *arguments: Any) -> Future[_T]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.size, get_context("spawn"), initializer=_start)
        with _environment(_ENVIRONMENT):  # a job may start another process
            return self._pool.submit(job, *arguments)


def _get_ready() -> None:
    """Import what the first job would import."""
    import_module("tracekit.loading.part")


def _may_be_large(path: Path, whole_bytes: int) -> bool:
    """Tell whether a file, or one in a folder, may hold more text than that; packed text is some 15 times larger."""
    try:
        files = [path] if not path.is_dir() else list(path.iterdir())
        return any(each.stat().st_size > whole_bytes / (1 if each.suffix == ".json" else 15) for each in files)
    except (OSError, ValueError):  # whoever reads it will say so
        return False


_ENVIRONMENT = {
    # As many workers as cores, so one thread each. NumPy's would spin for work that never comes.
    "POLARS_MAX_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # Keep memory for the next piece, which needs as much, instead of giving it back and asking for it again. (glibc)
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_TOP_PAD_": str(2**26),
}


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables that processes started meanwhile are to find."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start() -> None:
    """Prepare a worker: no search for garbage among rows, of which none is any, and no life after our process's.

    It ends at once, as our process does: taking down all that was imported helps nobody.
    """
    gc.disable()
    atexit.register(os._exit, 0)
    Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """End this process when the one that hired it has ended, however that happened."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
