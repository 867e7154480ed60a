"""Where answers go: data to stdout or a file, everything else to stderr.

The only module that writes an answer. A file is whole or not there; one that exists is kept without --force.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from tracekit.table import Table


@dataclass(frozen=True)
class Answer:
    """Where an answer goes, and as what: a format or None, a file or None for stdout, and whether to replace it.

    It is made before any work is done. Raises click.BadParameter if the file's suffix stands for no format and none
    is named, TracekitError if the file may not be written.
    """

    format_name: str | None = None
    path: str | None = None
    force: bool = False

    def __post_init__(self) -> None:
        """Refuse what can't be written."""
        if self.path is not None:
            _check_suffix(self)
            check_file(self.path, force=self.force)

    @property
    def chosen(self) -> str | None:
        """Return the format that is named, else the one that the file's suffix stands for, if there is one."""
        if self.format_name or not self.path:
            return self.format_name
        from tracekit.render import format_for_path

        return format_for_path(self.path)


def _check_suffix(answer: Answer) -> None:
    if answer.path and Path(answer.path).suffix and not answer.chosen:
        from tracekit.render import FORMATS

        known = ", ".join(suffix for each in FORMATS.values() for suffix in each.suffixes)
        problem = f"no format has the suffix {Path(answer.path).suffix}: use {known}, or say -f."
        raise click.BadParameter(problem, param_hint="'-o' / '--output'")


def check_file(path: str, *, force: bool) -> None:
    """Raise TracekitError, before any work is done, if a file may not be written."""
    if Path(path).exists() and not Path(path).is_file():
        raise TracekitError(f"{path!r} is not a file", "name one, such as answer.csv")
    if not force and os.path.lexists(path):
        raise TracekitError(f"{path} exists", "choose another name, or give --force to replace it")


def say(line: str) -> None:
    """Write one line to stderr, if somebody is watching."""
    if _is_terminal(sys.stderr):
        click.echo(line, err=True)


def get_ready() -> None:
    """Begin to import what shows an answer, so that it is there when the engine is done."""
    needed = "tracekit.render.wrapping" if _is_terminal(sys.stdout) else "tracekit.render.text"
    threading.Thread(target=import_module, args=(needed,), daemon=True).start()


def give_up(fault: TracekitError) -> NoReturn:
    """End the process with the fault's line, whatever else is still running in it and can't be stopped."""
    click.echo(f"tracekit: {fault}", err=True)
    os._exit(1)


def emit(table: Table, answer: Answer, default: str = "table") -> None:
    """Render an answer and write it where it goes; notes that a format can't hold go to stderr.

    Without a format that is named or that the file's suffix stands for, it is the default.
    """
    from tracekit.render import FORMATS, render
    from tracekit.render.notes import notes_text

    name = answer.chosen or default
    chosen = FORMATS[name]
    is_shown = answer.path is None and _is_terminal(sys.stdout)
    if is_shown and chosen.is_binary:
        raise TracekitError(f"{name} is binary", "give a file with -o, or redirect stdout")
    data = render(table, name, _width() if is_shown else None)
    deliver(data, answer.path, force=answer.force)
    if not chosen.notes_inside and (notes := notes_text(table)):
        click.echo(notes, err=True, nl=not notes.endswith("\n"))


def deliver(data: bytes, path: str | None, *, force: bool) -> None:
    """Write to a file, or to stdout without one. Raises TracekitError where that can't be done."""
    if path is None:
        put(data)
    else:
        _write(Path(path), data, force=force)


def put(data: bytes) -> None:
    """Write to stdout. Raises TracekitError where it is closed or full; a reader that goes away is no fault."""
    remedy = "give stdout a place that has room"
    if sys.stdout is None:
        raise TracekitError("stdout is closed", remedy)
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TracekitError(f"stdout can't be written ({error.strerror})", remedy) from error


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _write(path: Path, data: bytes, *, force: bool) -> None:
    import secrets  # what few answers need is not imported for all

    target = Path(os.path.realpath(path)) if force else path  # a link stays, and what it points to is replaced
    temporary = target.with_name(f".{target.name}.tmp-{secrets.token_hex(6)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if force:
            temporary.replace(target)
        else:
            check_file(str(target), force=False)
            temporary.rename(target)
    except OSError as error:
        raise TracekitError(
            f"{path} can't be written ({error.strerror})", "choose a folder that exists and has room"
        ) from error
    finally:
        with suppress(OSError):  # what made the write fail matters more
            temporary.unlink(missing_ok=True)
