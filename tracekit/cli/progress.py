"""A run is opened, and somebody who watches sees how far a long load is.

Owns the bar on stderr. It is there only on a terminal, and gone when the work is done.
"""

from __future__ import annotations

import gc
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracekit.cli.options import workers
from tracekit.cli.output import give_up, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, TaskID

    from tracekit.cli.options import Opening
    from tracekit.run import Run


@contextmanager
def opened(run: str, opening: Opening) -> Iterator[Run]:
    """Open a run as its options say. Raises TracekitError if it is none, or lacks what is selected."""
    with _without_collecting():
        from tracekit.store import Limits, get_ready

        get_ready()
        from tracekit.loading.settings import Settings
        from tracekit.run import open as open_run

    with (
        shown() as progress,
        open_run(
            run,
            steps=opening.steps,
            ranks=opening.ranks,
            phases=opening.phases,
            limits=Limits(opening.timeout, opening.memory_limit, give_up),
            say=say,
            workers=workers(),
            settings=Settings(progress=progress),
            device_spec=opening.device_spec,
        ) as found,
    ):
        yield found


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Let nobody search for garbage among what is imported, now or later: it stays."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # what the first run has made since is no import
            gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def shown() -> Iterator[Callable[[str, float], None]]:
    """Give what to tell the name of a trace and the share of it that is done.

    On a terminal it draws a bar, once the work has taken so long that somebody may wonder.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _name, _share: None
        return
    started = time.monotonic()
    bars: list[Progress] = []
    tasks: dict[str, TaskID] = {}

    def tell(name: str, share: float) -> None:
        if not bars and time.monotonic() - started < _PATIENCE_SECONDS:
            return
        if not bars:
            bars.append(_bar())
            bars[0].start()
        if name not in tasks:
            tasks[name] = bars[0].add_task(name, total=1.0)
        bars[0].update(tasks[name], completed=share, visible=share < 1)

    try:
        yield tell
    finally:
        for bar in bars:
            bar.stop()


_PATIENCE_SECONDS = 0.5


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    share = TextColumn("{task.percentage:3.0f} %")
    columns = (TextColumn("{task.description}"), BarColumn(), share, TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
